/* Launchers of the routed half of a layer, except its collectives. Shapes that only a router knows are sums
 * over the count matrix. */
#include "exec/backend_cpu.h"
#include "kernels/move.h"
#include "kernels/permute.h"
#include "kernels/route.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct exchange backend_cpu_exchange(const struct call *c, struct operand count)
{
    const struct plan *p = &c->job->plan;
    return (struct exchange){
        .count = count.p, .etp = p->etp, .ep = p->ep, .experts = (int)count.cols, .alike = count.rows == 1};
}

/* ---- the router ---- */

struct route_rule backend_cpu_route_rule(const struct call *c)
{
    const struct model *m = &c->job->model;
    const struct routing *r = &c->job->plan.routing;
    return (struct route_rule){.experts = m->experts,
                               .topk = m->topk,
                               .groups = m->groups,
                               .kept = m->groups_kept,
                               .group_max = m->group_score == GROUP_SCORE_MAX,
                               .sigmoid = m->score == SCORE_SIGMOID,
                               .norm_topk = m->norm_topk,
                               .scale = m->route_scale,
                               .capacity = r->policy == ROUTING_DROPLESS ? 0 : plan_expert_rows(c->job),
                               .by_position = r->by_position,
                               .padded = r->policy == ROUTING_PADDED};
}

/* Where the choices of local row t are recorded: a rank has its tp slice of its cp slice's rows. */
static int32_t *recorded(const struct call *c, int64_t t, int64_t rows)
{
    const struct plan *p = &c->job->plan;
    const struct rope at = backend_cpu_positions(c);
    const int local = at.seq / at.cp;
    const int64_t row = (rows * p->tp == plan_tokens(p) ? c->at.tp * rows : 0) + t;
    const int64_t sequence = ((int64_t)c->micro * p->dp + c->at.dp) * p->mbs + row / local;
    return routes_at(c->routes, c->routes_step, c->op->layer, sequence,
                     rope_position((int)(row % local), at.seq, at.cp, at.index));
}

static void record(const struct call *c, const int32_t *perm, int64_t listed, int64_t rows)
{
    const int k = c->job->model.topk;
    for (int64_t t = 0; t < rows; t++) memset(recorded(c, t, rows), 0xff, (size_t)k * sizeof *perm);
    for (int64_t j = 0; j < listed; j++) {
        if (perm[2 * j] == -1) continue;
        int32_t *pick = recorded(c, route_token(perm[2 * j]), rows);
        while (*pick >= 0) pick++;
        *pick = perm[2 * j + 1];
    }
}

static enum err replayed(int32_t *given, const struct call *c, int64_t rows)
{
    const int k = c->job->model.topk;
    for (int64_t t = 0; t < rows; t++) {
        const int32_t *pick = recorded(c, t, rows);
        for (int i = 0; i < k; i++) {
            if (pick[i] < 0 || pick[i] >= c->job->model.experts)
                return fail(c->d, ERR_CONFIG, "step %d, layer %d: no recorded routing for a token", c->routes_step, c->op->layer);
            given[t * k + i] = pick[i];
        }
    }
    return OK;
}

enum err backend_cpu_route(const struct call *c)
{
    const struct operand logit = c->read[0];
    const struct route_rule r = backend_cpu_route_rule(c);
    const int64_t own_B = (route_scratch_B(logit.rows, &r) + 7) / 8 * 8;
    const int replay = c->routes && c->replay;
    float gap = INFINITY;
    void *scratch;
    assert(c->write[1].rows == route_listed(logit.rows, &r) && c->write[2].rows == route_rows(logit.rows, &r));
    TRY(backend_cpu_scratch(&scratch, own_B + logit.rows * r.topk * (int64_t)sizeof(int32_t), c));
    int32_t *given = replay ? (int32_t *)(void *)((char *)scratch + own_B) : NULL;
    enum err e = replay ? replayed(given, c, logit.rows) : OK;
    if (e == OK)
        e = route_ref(c->write[0].p, c->write[1].p, c->write[2].p, c->write[3].p, &gap, logit.p, c->read[1].p, given,
                      logit.rows, &r, scratch);
    free(scratch);
    if (e == OK && c->routes && !c->replay) record(c, c->write[1].p, c->write[1].rows, logit.rows);
    if (c->score_gap) *c->score_gap = fminf(*c->score_gap, gap);
    return e;
}

/* dprob comes in the order of perm, or (from the dispatcher that gathers) as a place for every token and expert: then it
 * is brought into that order. */
static float *in_order(float *list, struct operand dprob, struct operand perm)
{
    const int32_t *p = perm.p;
    if (dprob.cols == 1) return dprob.p;
    for (int64_t j = 0; j < perm.rows; j++)
        list[j] = ((const float *)dprob.p)[p[2 * j] * dprob.cols + p[2 * j + 1]];
    return list;
}

enum err backend_cpu_route_bwd(const struct call *c)
{
    const struct operand dlogit = c->write[0], perm = c->read[2];
    const struct route_rule r = backend_cpu_route_rule(c);
    const int64_t own_B = (route_scratch_B(dlogit.rows, &r) + 7) / 8 * 8;
    void *scratch;
    TRY(backend_cpu_scratch(&scratch, own_B + perm.rows * (int64_t)sizeof(float), c));
    const float *dprob = in_order((float *)(void *)((char *)scratch + own_B), c->read[0], perm);
    const enum err e = route_bwd_ref(dlogit.p, dprob, c->read[1].p, perm.p, dlogit.rows, &r, scratch);
    free(scratch);
    return e;
}

/* ---- balance ---- */

/* The first row's place among the micro-batch's: a rank has its tp slice of its cp slice of every sequence. */
struct balance backend_cpu_balance_rule(const struct call *c, int64_t rows)
{
    const struct plan *p = &c->job->plan;
    const struct model *m = &c->job->model;
    const struct rope at = backend_cpu_positions(c);
    const int by_sequence = p->balance == BALANCE_SEQ_AUX;
    const double tokens = (double)at.seq * (by_sequence ? 1 : p->mbs), batches = (double)p->n_micro * p->dp;
    const double scopes = batches * (by_sequence ? p->mbs : 1);
    return (struct balance){ .experts = m->experts, .topk = m->topk, .sigmoid = m->score == SCORE_SIGMOID,
                             .first = rows * p->tp == plan_tokens(p) ? c->at.tp * rows : 0,
                             .local = by_sequence ? at.seq / at.cp : plan_tokens(p),
                             .scale = p->aux_loss * m->experts / (m->topk * tokens * tokens * scopes),
                             .z_scale = p->z_loss / ((double)at.seq * p->mbs * batches) };
}

enum err backend_cpu_route_load(const struct call *c)
{
    const struct balance b = backend_cpu_balance_rule(c, c->read[0].rows);
    return balance_load_ref(c->write[0].p, c->read[0].p, c->read[0].rows, c->write[0].rows, &b);
}

enum err backend_cpu_balance(const struct call *c)
{
    const struct balance b = backend_cpu_balance_rule(c, c->add[0].rows);
    float *metric = c->add[1].p;
    return balance_ref(c->add[0].p, &metric[METRIC_BALANCE], c->read[0].p, c->read[1].p, c->read[2].p, c->add[0].rows, &b);
}

/* ---- how many rows, and where ---- */

/* The executor holds them against the capacity, whoever wrote them. */
enum err backend_cpu_sizes(const struct call *c)
{
    const struct exchange x = backend_cpu_exchange(c, c->read[0]);
    int32_t *size = c->write[0].p;
    size[0] = (int32_t)exchange_received(&x, c->at.etp, c->at.ep);
    size[1] = (int32_t)exchange_gathered(&x, c->at.ep);
    return OK;
}

enum err backend_cpu_permute(const struct call *c)
{
    const struct operand y = c->write[0];
    return permute_ref(y.p, c->read[0].p, c->read[1].p, y.rows, (int)y.cols);
}

enum err backend_cpu_unpermute(const struct call *c)
{
    const struct operand y = c->write[0], x = c->read[0];
    return permute_back_ref(y.p, x.p, c->read[1].p, c->read[2].p, y.rows, x.rows, (int)y.cols);
}

static enum err sort(const struct call *c, int back)
{
    const struct exchange x = backend_cpu_exchange(c, c->read[1]);
    return exchange_sort_ref(c->write[0].p, c->read[0].p, &x, c->at.ep, (int)c->write[0].cols, back);
}

enum err backend_cpu_sort(const struct call *c)
{
    return sort(c, 0);
}

enum err backend_cpu_unsort(const struct call *c)
{
    return sort(c, 1);
}

/* ---- grouped products ---- */

struct grouped {
    int64_t *rows;
    int experts, out, in;
}; /* rows by local expert; one expert's matrix */

/* `w`: the experts' weights here, or their gradient. rows is scratch. */
static enum err grouped_shape(struct grouped *g, const struct call *c, struct operand count, struct operand w)
{
    const struct exchange x = backend_cpu_exchange(c, count);
    void *rows;
    *g = (struct grouped){.experts = x.experts / x.ep, .in = (int)w.cols};
    g->out = (int)(w.rows / g->experts);
    TRY(backend_cpu_scratch(&rows, g->experts * (int64_t)sizeof *g->rows, c));
    g->rows = rows;
    for (int l = 0; l < g->experts; l++) g->rows[l] = exchange_expert(&x, c->at.ep, l);
    return OK;
}

/* y's rows of every expert get its bias; or (gradient) a bias's gradient gets the sum of its expert's rows. */
static enum err grouped_bias(const struct grouped *g, float *bias, float *y, int gradient)
{
    for (int l = 0; l < g->experts; y += g->rows[l++] * g->out, bias += g->out)
        TRY(gradient ? move_bias_bwd_ref(bias, y, g->rows[l], g->out) : move_bias_ref(y, bias, g->rows[l], g->out));
    return OK;
}

enum err backend_cpu_grouped_gemm(const struct call *c)
{
    struct grouped g;
    TRY(grouped_shape(&g, c, c->read[2], c->read[1]));
    enum err e =
        c->kernels->gemm_grouped(c->write[0].p, c->read[0].p, c->read[1].p, g.rows, g.experts, g.out, g.in);
    if (e == OK && c->read[3].p) e = grouped_bias(&g, c->read[3].p, c->write[0].p, 0);
    free(g.rows);
    return e;
}

enum err backend_cpu_grouped_dgrad(const struct call *c)
{
    struct grouped g;
    TRY(grouped_shape(&g, c, c->read[2], c->read[1]));
    const enum err e =
        c->kernels->gemm_grouped_dgrad(c->write[0].p, c->read[0].p, c->read[1].p, g.rows, g.experts, g.out, g.in);
    free(g.rows);
    return e;
}

enum err backend_cpu_grouped_wgrad(const struct call *c)
{
    struct grouped g;
    TRY(grouped_shape(&g, c, c->read[2], c->add[0]));
    enum err e =
        c->kernels->gemm_grouped_wgrad(c->add[0].p, c->read[0].p, c->read[1].p, g.rows, g.experts, g.out, g.in);
    if (e == OK && c->add[1].p) e = grouped_bias(&g, c->add[1].p, c->read[1].p, 1);
    free(g.rows);
    return e;
}
