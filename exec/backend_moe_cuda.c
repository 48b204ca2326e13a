/* The CUDA backend's launchers of the routed half of a layer, except its collectives. */
#include "exec/backend_cuda.h"
#include "kernels/gemm.h"
#include "kernels/permute.h"
#include <math.h>

struct grouped { int32_t *start; int experts, out, in; };

/* Where every local expert's rows begin, from the counts, on the device. `w`: the experts' weights here, or their gradient. */
static enum err grouped_open(struct grouped *g, const struct call *c, struct operand count, struct operand w)
{
    const struct plan *p = &c->job->plan;
    void *start;
    *g = (struct grouped){ .experts = (int)count.cols / p->ep, .in = (int)w.cols };
    g->out = (int)(w.rows / g->experts);
    TRY(scratch_open(&start, c, (g->experts + 1) * (int64_t)sizeof *g->start));
    g->start = start;
    return OK;
}

static enum err grouped_starts(const struct grouped *g, const struct call *c, struct operand count)
{
    const struct plan *p = &c->job->plan;
    return exchange_sizes_cuda(NULL, g->start, count.p, p->etp, p->ep, (int)count.cols, c->at.etp, c->at.ep, STREAM);
}

/* One row of counts for all members, where experts are filled up to a capacity: kernels here read a matrix. */
static int counts_are_alike(const struct call *c, struct operand count)
{
    return count.rows < (int64_t)c->job->plan.etp * c->job->plan.ep;
}

enum err backend_cuda_grouped_gemm(const struct call *c)
{
    const struct operand x = c->read[0];
    const enum dtype t = type_of(c, c->op->io.read[0]), to = type_of(c, c->op->io.write[0]);
    struct grouped g;
    if (c->read[3].p || !stored_as(c, t, WRITTEN(0) | READ(2)) || (to != t && to != DT_F32)) return on_host(c);
    if (counts_are_alike(c, c->read[2])) return on_host(c);
    TRY(grouped_open(&g, c, c->read[2], c->read[1]));
    enum err e = grouped_starts(&g, c, c->read[2]);
    if (e == OK)
        e = gemm_grouped_cuda(c->write[0].p, x.p, c->read[1].p, g.start, g.experts, x.rows, g.out, g.in, t, to, STREAM);
    return done_with(c, e, g.start);
}

enum err backend_cuda_grouped_dgrad(const struct call *c)
{
    const struct operand dy = c->read[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    struct grouped g;
    if (!stored_as(c, t, READ(2)) || counts_are_alike(c, c->read[2])) return on_host(c);
    TRY(grouped_open(&g, c, c->read[2], c->read[1]));
    enum err e = grouped_starts(&g, c, c->read[2]);
    if (e == OK)
        e = gemm_grouped_dgrad_cuda(c->write[0].p, dy.p, c->read[1].p, g.start, g.experts, dy.rows, g.out, g.in, t, STREAM);
    return done_with(c, e, g.start);
}

enum err backend_cuda_grouped_wgrad(const struct call *c)
{
    const struct operand x = c->read[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    struct grouped g;
    if (c->add[1].p || !stored_as(c, t, ADDED(0) | READ(2)) || !is_float(c, c->add[0], c->op->io.add[0])) return on_host(c);
    if (counts_are_alike(c, c->read[2])) return on_host(c);
    TRY(grouped_open(&g, c, c->read[2], c->add[0]));
    enum err e = grouped_starts(&g, c, c->read[2]);
    if (e == OK)
        e = gemm_grouped_wgrad_cuda(c->add[0].p, x.p, c->read[1].p, g.start, g.experts, x.rows, g.out, g.in, t, STREAM);
    return done_with(c, e, g.start);
}

/* ---- the routed half, except its collectives ---- */

/* Recorded and replayed choices are the host's, and so are experts with a capacity. */
enum err backend_cuda_route(const struct call *c)
{
    const struct operand logit = c->read[0];
    const struct route_rule r = backend_cpu_route_rule(c);
    const int64_t own_B = (route_cuda_scratch_B(logit.rows, &r) + 7) / 8 * 8;
    float least = INFINITY;
    void *scratch;
    if (c->routes || r.capacity || !stored_as(c, DT_F32, WRITTEN(1) | WRITTEN(3))) return on_host(c);
    TRY(scratch_open(&scratch, c, own_B + (int64_t)sizeof least));
    float *gap = (float *)(void *)((char *)scratch + own_B);
    const char *copied = device_copy(gap, &least, sizeof least);
    const enum err e = route_cuda(c->write[0].p, c->write[1].p, c->write[2].p, c->write[3].p, gap, logit.p, c->read[1].p, NULL,
                                  logit.rows, &r, scratch, STREAM);
    if (!copied) copied = device_copy(&least, gap, sizeof least);   /* waits: the host soon would, for the counts */
    TRY(done_with(c, e, scratch));
    if (c->score_gap) *c->score_gap = fminf(*c->score_gap, least);
    return says(c, copied);
}

enum err backend_cuda_route_bwd(const struct call *c)
{
    const struct operand dlogit = c->write[0];
    const struct route_rule r = backend_cpu_route_rule(c);
    void *scratch;
    if (c->read[0].cols != 1 || r.capacity || !stored_as(c, DT_F32, READ(2))) return on_host(c);
    TRY(scratch_open(&scratch, c, route_cuda_scratch_B(dlogit.rows, &r)));
    return done_with(c, route_bwd_cuda(dlogit.p, c->read[0].p, c->read[1].p, c->read[2].p, dlogit.rows, &r, scratch, STREAM),
                     scratch);
}

enum err backend_cuda_route_load(const struct call *c)
{
    const struct operand score = c->read[0];
    const struct balance b = backend_cpu_balance_rule(c, score.rows);
    if (!stored_as(c, DT_F32, 0)) return on_host(c);
    return done(c, balance_load_cuda(c->write[0].p, score.p, score.rows, c->write[0].rows, &b, STREAM));
}

enum err backend_cuda_balance(const struct call *c)
{
    const int64_t rows = c->add[0].rows;
    const struct balance b = backend_cpu_balance_rule(c, rows);
    void *scratch;
    if (!stored_as(c, DT_F32, 0)) return on_host(c);
    TRY(scratch_open(&scratch, c, balance_cuda_scratch_B(rows)));
    return done_with(c, balance_cuda(c->add[0].p, (float *)c->add[1].p + METRIC_BALANCE, c->read[0].p, c->read[1].p, c->read[2].p,
                                     rows, &b, scratch, STREAM), scratch);
}

enum err backend_cuda_permute(const struct call *c)
{
    const struct operand y = c->write[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!stored_as(c, t, READ(1))) return on_host(c);
    return done(c, permute_cuda(y.p, c->read[0].p, c->read[1].p, y.rows, (int)y.cols, t, STREAM));
}

/* A token has topk rows, or (from the dispatcher that gathers) as many of them as are here. */
enum err backend_cuda_unpermute(const struct call *c)
{
    const struct operand y = c->write[0], x = c->read[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    const int most = c->job->model.topk;
    void *scratch;
    if (!stored_as(c, t, READ(1))) return on_host(c);
    TRY(scratch_open(&scratch, c, permute_scratch_B(y.rows, most)));
    return done_with(c, permute_back_cuda(y.p, x.p, c->read[1].p, c->read[2].p, y.rows, x.rows, (int)y.cols, most, scratch, t,
                                          STREAM), scratch);
}

static enum err sort_rows(const struct call *c, int back)
{
    const struct operand y = c->write[0], count = c->read[1];
    const struct plan *p = &c->job->plan;
    const enum dtype t = type_of(c, c->op->io.read[0]);
    void *scratch;
    if (!stored_as(c, t, READ(1)) || counts_are_alike(c, count)) return on_host(c);
    TRY(scratch_open(&scratch, c, exchange_scratch_B(p->etp, (int)count.cols)));
    return done_with(c, exchange_sort_cuda(y.p, c->read[0].p, count.p, p->etp, p->ep, (int)count.cols, c->at.ep, y.rows,
                                           (int)y.cols, back, scratch, t, STREAM), scratch);
}

enum err backend_cuda_sort(const struct call *c)
{
    return sort_rows(c, 0);
}

enum err backend_cuda_unsort(const struct call *c)
{
    return sort_rows(c, 1);
}

