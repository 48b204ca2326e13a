/* The CUDA backend: a module that is loaded only when asked for. Arenas are managed memory, which host and device both see,
 * so what a kernel has no part in (tokens, counts, collectives, and what falls back) is done by the CPU launchers on the
 * same addresses. Each stream of a rank is a thread of the executor, and has its own CUDA stream: the thread's. An op's
 * launcher waits for its kernels, as the executor takes an op as done when its launcher returns. */
#include "exec/backend_cpu.h"
#include "kernels/act.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/merge.h"
#include "kernels/mla.h"
#include "kernels/move.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/permute.h"
#include "kernels/route.h"
#include "kernels/swiglu.h"
#include "kernels/xent.h"
#include <cuda_runtime.h>
#include <math.h>

#define STREAM ((kstream)cudaStreamPerThread)

/* ---- what launchers share ---- */

static enum dtype type_of(const struct call *c, int id)
{
    return (enum dtype)c->pr->buf[id].dtype;
}

static enum err cuda_says(const struct call *c, cudaError_t e)
{
    if (e == cudaSuccess) return OK;
    return fail(c->d, ERR_DEVICE, "rank %d, %s of layer %d: the GPU says: %s", c->rank, op_name((enum op_kind)c->op->kind),
                c->op->layer, cudaGetErrorString(e));
}

/* Waits for what the op launched; `e`: what the launcher said. */
static enum err done(const struct call *c, enum err e)
{
    if (e == ERR_DEVICE) return cuda_says(c, cudaErrorLaunchFailure);
    if (e != OK)
        return fail(c->d, e, "rank %d, %s of layer %d: no kernel for this type or width", c->rank,
                    op_name((enum op_kind)c->op->kind), c->op->layer);
    return cuda_says(c, cudaStreamSynchronize(STREAM));
}

static enum err scratch_open(void **p, const struct call *c, int64_t bytes)
{
    return cuda_says(c, cudaMallocAsync(p, (size_t)(bytes > 0 ? bytes : 1), STREAM));
}

/* Ends an op that had scratch. */
static enum err done_with(const struct call *c, enum err e, void *scratch)
{
    const cudaError_t freed = cudaFreeAsync(scratch, STREAM);
    TRY(done(c, e));
    return cuda_says(c, freed);
}

/* By the CPU, on the same memory: nothing of the op's inputs is under way, since their launchers have waited. */
static enum err on_host(const struct call *c)
{
    return backend_cpu_table(&c->job->plan)[c->op->kind](c);
}

/* Whether all operands that are there, except those with a bit in `apart` (written, added to, read: in that order), are stored
 * as `t`, which is fp32 or bf16. */
static int stored_as(const struct call *c, enum dtype t, unsigned apart)
{
    const struct io *io = &c->op->io;
    unsigned bit = 1;
    if (t != DT_F32 && t != DT_BF16) return 0;
    for (int i = 0; i < OP_WRITES; i++, bit <<= 1)
        if (c->write[i].p && !(apart & bit) && type_of(c, io->write[i]) != t) return 0;
    for (int i = 0; i < OP_ADDS; i++, bit <<= 1)
        if (c->add[i].p && !(apart & bit) && type_of(c, io->add[i]) != t) return 0;
    for (int i = 0; i < OP_READS; i++, bit <<= 1)
        if (c->read[i].p && !(apart & bit) && type_of(c, io->read[i]) != t) return 0;
    return 1;
}
#define WRITTEN(i) (1u << (i))
#define ADDED(i) (1u << (OP_WRITES + (i)))
#define READ(i) (1u << (OP_WRITES + OP_ADDS + (i)))

static int is_float(const struct call *c, struct operand o, int id)
{
    return !o.p || type_of(c, id) == DT_F32;
}

/* ---- rows of a table, norms, columns ---- */

static enum err embed(const struct call *c)
{
    const struct operand y = c->write[0], table = c->read[1];
    const enum dtype t = type_of(c, c->op->io.write[0]);
    if (!stored_as(c, t, READ(0))) return on_host(c);
    return done(c, move_embed_cuda(y.p, c->read[0].p, table.p, y.rows, (int)y.cols, c->at.tp * table.rows, table.rows, t, STREAM));
}

static enum err embed_bwd(const struct call *c)
{
    const struct operand g = c->add[0], dy = c->read[1];
    const enum dtype t = type_of(c, c->op->io.read[1]);
    if (!is_float(c, g, c->op->io.add[0])) return on_host(c);
    return done(c, move_embed_bwd_cuda(g.p, c->read[0].p, dy.p, dy.rows, (int)dy.cols, c->at.tp * g.rows, g.rows, t, STREAM));
}

static enum err norm(const struct call *c)
{
    const struct operand x = c->read[0], w = c->read[1];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!stored_as(c, t, 0)) return on_host(c);
    return done(c, norm_cuda(c->write[0].p, x.p, w.p, x.rows * x.cols / w.cols, (int)w.cols, c->job->model.norm_eps, t, STREAM));
}

static enum err norm_bwd(const struct call *c)
{
    const struct operand x = c->read[0], w = c->read[1];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    const int64_t runs = x.rows * x.cols / w.cols;
    void *scratch;
    if (!stored_as(c, t, ADDED(0)) || !is_float(c, c->add[0], c->op->io.add[0])) return on_host(c);
    TRY(scratch_open(&scratch, c, norm_scratch_B(runs, (int)w.cols)));
    return done_with(c, norm_bwd_cuda(c->write[0].p, c->add[0].p, x.p, w.p, c->read[2].p, c->read[3].p, runs, (int)w.cols,
                                      c->job->model.norm_eps, scratch, t, STREAM), scratch);
}

static enum err add(const struct call *c)
{
    const struct operand y = c->write[0];
    const enum dtype t = type_of(c, c->op->io.write[0]);
    if (!stored_as(c, t, 0)) return on_host(c);
    return done(c, move_add_cuda(y.p, c->read[0].p, c->read[1].p, y.rows * y.cols, t, STREAM));
}

static enum err split(const struct call *c)
{
    const struct operand x = c->read[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    const char *from = x.p;
    if (!stored_as(c, t, 0)) return on_host(c);
    for (int i = 0; i < OP_WRITES && c->write[i].p; from += c->write[i++].cols * dtype_B(t)) {
        const struct operand y = c->write[i];
        const enum err e = move_cols_cuda(y.p, (int)y.cols, from, (int)x.cols, x.rows, (int)y.cols, t, STREAM);
        if (e != OK) return done(c, e);
    }
    return done(c, OK);
}

static enum err merge(const struct call *c)
{
    const struct operand y = c->write[0];
    const enum dtype t = type_of(c, c->op->io.write[0]);
    char *to = y.p;
    if (!stored_as(c, t, 0)) return on_host(c);
    for (int i = 0; i < OP_READS && c->read[i].p; to += c->read[i++].cols * dtype_B(t)) {
        const struct operand x = c->read[i];
        const enum err e = move_cols_cuda(to, (int)y.cols, x.p, (int)x.cols, y.rows, (int)x.cols, t, STREAM);
        if (e != OK) return done(c, e);
    }
    return done(c, OK);
}

/* ---- attention ---- */

static enum err turn_heads(const struct call *c, int back)
{
    const struct operand x = c->add[0];
    const struct rope at = backend_cpu_positions(c);
    const int dim = c->job->model.head_dim;
    const enum dtype t = type_of(c, c->op->io.add[0]);
    return done(c, rope_cuda(x.p, x.rows, (int)x.cols / dim, dim, dim, &at, back, t, STREAM));
}

static enum err rope(const struct call *c)
{
    return turn_heads(c, 0);
}

static enum err rope_bwd(const struct call *c)
{
    return turn_heads(c, 1);
}

static enum err mla_qkv(const struct call *c)
{
    const struct mla m = backend_cpu_mla(c);
    const struct rope at = backend_cpu_positions(c);
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!stored_as(c, t, READ(3))) return on_host(c);
    return done(c, mla_cuda(c->write[0].p, c->write[1].p, c->write[2].p, c->read[0].p, c->read[1].p, c->read[2].p,
                            c->read[0].rows, &m, &at, t, STREAM));
}

static enum err mla_qkv_bwd(const struct call *c)
{
    const struct mla m = backend_cpu_mla(c);
    const struct rope at = backend_cpu_positions(c);
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!stored_as(c, t, READ(3))) return on_host(c);
    return done(c, mla_bwd_cuda(c->write[0].p, c->write[1].p, c->write[2].p, c->read[0].p, c->read[1].p, c->read[2].p,
                                c->read[0].rows, &m, &at, t, STREAM));
}

static enum err attn(const struct call *c)
{
    const int heads = (int)c->write[1].cols;
    const struct attention_shape a = backend_cpu_attention(c, c->write[0], heads);
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!stored_as(c, t, WRITTEN(1) | READ(3) | READ(4)) || !is_float(c, c->write[1], c->op->io.write[1]) ||
        !is_float(c, c->read[3], c->op->io.read[3]))
        return on_host(c);
    return done(c, attention_cuda(c->write[0].p, c->write[1].p, c->read[0].p, c->read[1].p, c->read[2].p,
                                  backend_cpu_sinks(c, c->read[3], heads), &a, t, STREAM));
}

static enum err attn_bwd(const struct call *c)
{
    const int heads = (int)c->read[4].cols;
    const struct attention_shape a = backend_cpu_attention(c, c->read[3], heads);
    const enum dtype t = type_of(c, c->op->io.read[0]);
    void *scratch;
    if (!stored_as(c, t, ADDED(0) | READ(4) | READ(6)) || !is_float(c, c->add[0], c->op->io.add[0]) ||
        !is_float(c, c->read[4], c->op->io.read[4]))
        return on_host(c);
    TRY(scratch_open(&scratch, c, attention_cuda_scratch_B(&a)));
    return done_with(c, attention_bwd_cuda(c->write[0].p, c->write[1].p, c->write[2].p, backend_cpu_sinks(c, c->add[0], heads),
                                           c->read[0].p, c->read[1].p, c->read[2].p, c->read[3].p, c->read[4].p, c->read[5].p,
                                           &a, scratch, t, STREAM), scratch);
}

static enum err attn_merge(const struct call *c)
{
    const struct operand o = c->write[0], lse = c->write[1];
    return done(c, merge_cuda(o.p, lse.p, c->read[0].p, c->read[1].p, c->read[2].p, c->read[3].p, o.rows, (int)lse.cols,
                              (int)(o.cols / lse.cols), type_of(c, c->op->io.write[0]), type_of(c, c->op->io.read[0]),
                              type_of(c, c->op->io.read[2]), STREAM));
}

/* ---- linear layers and the activation between them ---- */

static enum err gemm(const struct call *c)
{
    const struct operand x = c->read[0], w = c->read[1];
    const enum dtype t = type_of(c, c->op->io.read[0]), to = type_of(c, c->op->io.write[0]);
    if (c->read[2].p || !stored_as(c, t, WRITTEN(0)) || (to != t && to != DT_F32)) return on_host(c);
    return done(c, gemm_grouped_cuda(c->write[0].p, x.p, w.p, NULL, 1, x.rows, (int)w.rows, (int)w.cols, t, to, STREAM));
}

static enum err dgrad(const struct call *c)
{
    const struct operand dy = c->read[0], w = c->read[1];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!stored_as(c, t, 0)) return on_host(c);
    return done(c, gemm_grouped_dgrad_cuda(c->write[0].p, dy.p, w.p, NULL, 1, dy.rows, (int)w.rows, (int)w.cols, t, STREAM));
}

static enum err wgrad(const struct call *c)
{
    const struct operand g = c->add[0], x = c->read[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (c->add[1].p || !stored_as(c, t, ADDED(0)) || !is_float(c, g, c->op->io.add[0])) return on_host(c);
    return done(c, gemm_grouped_wgrad_cuda(g.p, x.p, c->read[1].p, NULL, 1, x.rows, (int)g.rows, (int)g.cols, t, STREAM));
}

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

static enum err grouped_gemm(const struct call *c)
{
    const struct operand x = c->read[0];
    const enum dtype t = type_of(c, c->op->io.read[0]), to = type_of(c, c->op->io.write[0]);
    struct grouped g;
    if (c->read[3].p || !stored_as(c, t, WRITTEN(0) | READ(2)) || (to != t && to != DT_F32)) return on_host(c);
    TRY(grouped_open(&g, c, c->read[2], c->read[1]));
    enum err e = grouped_starts(&g, c, c->read[2]);
    if (e == OK)
        e = gemm_grouped_cuda(c->write[0].p, x.p, c->read[1].p, g.start, g.experts, x.rows, g.out, g.in, t, to, STREAM);
    return done_with(c, e, g.start);
}

static enum err grouped_dgrad(const struct call *c)
{
    const struct operand dy = c->read[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    struct grouped g;
    if (!stored_as(c, t, READ(2))) return on_host(c);
    TRY(grouped_open(&g, c, c->read[2], c->read[1]));
    enum err e = grouped_starts(&g, c, c->read[2]);
    if (e == OK)
        e = gemm_grouped_dgrad_cuda(c->write[0].p, dy.p, c->read[1].p, g.start, g.experts, dy.rows, g.out, g.in, t, STREAM);
    return done_with(c, e, g.start);
}

static enum err grouped_wgrad(const struct call *c)
{
    const struct operand x = c->read[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    struct grouped g;
    if (c->add[1].p || !stored_as(c, t, ADDED(0) | READ(2)) || !is_float(c, c->add[0], c->op->io.add[0])) return on_host(c);
    TRY(grouped_open(&g, c, c->read[2], c->add[0]));
    enum err e = grouped_starts(&g, c, c->read[2]);
    if (e == OK)
        e = gemm_grouped_wgrad_cuda(c->add[0].p, x.p, c->read[1].p, g.start, g.experts, x.rows, g.out, g.in, t, STREAM);
    return done_with(c, e, g.start);
}

static enum err swiglu(const struct call *c)
{
    const struct operand y = c->write[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!stored_as(c, t, READ(1)) || !is_float(c, c->read[1], c->op->io.read[1])) return on_host(c);
    return done(c, swiglu_cuda(y.p, c->read[0].p, c->read[1].p, y.rows, (int)y.cols, t, STREAM));
}

/* dprob and prob apart. */
static int routed_weights_are_float(const struct call *c, enum dtype t)
{
    return stored_as(c, t, WRITTEN(1) | READ(2)) && is_float(c, c->write[1], c->op->io.write[1]) &&
           is_float(c, c->read[2], c->op->io.read[2]);
}

static enum err swiglu_bwd(const struct call *c)
{
    const struct operand dy = c->read[1];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!routed_weights_are_float(c, t)) return on_host(c);
    return done(c, swiglu_bwd_cuda(c->write[0].p, c->write[1].p, c->read[0].p, dy.p, c->read[2].p, dy.rows, (int)dy.cols, t,
                                   STREAM));
}

static enum err act(const struct call *c)
{
    const struct operand y = c->write[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!stored_as(c, t, READ(1)) || !is_float(c, c->read[1], c->op->io.read[1])) return on_host(c);
    return done(c, act_cuda(y.p, c->read[0].p, c->read[1].p, y.rows, (int)y.cols, backend_cpu_act_kind(c), t, STREAM));
}

static enum err act_bwd(const struct call *c)
{
    const struct operand dy = c->read[1];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!routed_weights_are_float(c, t)) return on_host(c);
    return done(c, act_bwd_cuda(c->write[0].p, c->write[1].p, c->read[0].p, dy.p, c->read[2].p, dy.rows, (int)dy.cols,
                                backend_cpu_act_kind(c), t, STREAM));
}

/* ---- the routed half, except its collectives ---- */

/* Recorded and replayed choices are the host's. */
static enum err route(const struct call *c)
{
    const struct operand logit = c->read[0];
    const struct route_rule r = backend_cpu_route_rule(c);
    const int64_t own_B = (route_cuda_scratch_B(logit.rows, &r) + 7) / 8 * 8;
    float least = INFINITY;
    void *scratch;
    if (c->routes || !stored_as(c, DT_F32, WRITTEN(1) | WRITTEN(3))) return on_host(c);
    TRY(scratch_open(&scratch, c, own_B + (int64_t)sizeof least));
    float *gap = (float *)(void *)((char *)scratch + own_B);
    cudaError_t copied = cudaMemcpyAsync(gap, &least, sizeof least, cudaMemcpyHostToDevice, STREAM);
    const enum err e = route_cuda(c->write[0].p, c->write[1].p, c->write[2].p, c->write[3].p, gap, logit.p, c->read[1].p, NULL,
                                  logit.rows, &r, scratch, STREAM);
    if (copied == cudaSuccess) copied = cudaMemcpyAsync(&least, gap, sizeof least, cudaMemcpyDeviceToHost, STREAM);
    TRY(done_with(c, e, scratch));
    if (c->score_gap) *c->score_gap = fminf(*c->score_gap, least);
    return cuda_says(c, copied);
}

static enum err route_bwd(const struct call *c)
{
    const struct operand dlogit = c->write[0];
    const struct route_rule r = backend_cpu_route_rule(c);
    void *scratch;
    if (c->read[0].cols != 1 || !stored_as(c, DT_F32, READ(2))) return on_host(c);
    TRY(scratch_open(&scratch, c, route_cuda_scratch_B(dlogit.rows, &r)));
    return done_with(c, route_bwd_cuda(dlogit.p, c->read[0].p, c->read[1].p, c->read[2].p, dlogit.rows, &r, scratch, STREAM),
                     scratch);
}

static enum err route_load(const struct call *c)
{
    const struct operand score = c->read[0];
    const struct balance b = backend_cpu_balance_rule(c, score.rows);
    if (!stored_as(c, DT_F32, 0)) return on_host(c);
    return done(c, balance_load_cuda(c->write[0].p, score.p, score.rows, c->write[0].rows, &b, STREAM));
}

static enum err balance(const struct call *c)
{
    const int64_t rows = c->add[0].rows;
    const struct balance b = backend_cpu_balance_rule(c, rows);
    void *scratch;
    if (!stored_as(c, DT_F32, 0)) return on_host(c);
    TRY(scratch_open(&scratch, c, balance_cuda_scratch_B(rows)));
    return done_with(c, balance_cuda(c->add[0].p, (float *)c->add[1].p + METRIC_BALANCE, c->read[0].p, c->read[1].p, c->read[2].p,
                                     rows, &b, scratch, STREAM), scratch);
}

static enum err permute(const struct call *c)
{
    const struct operand y = c->write[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!stored_as(c, t, READ(1))) return on_host(c);
    return done(c, permute_cuda(y.p, c->read[0].p, c->read[1].p, y.rows, (int)y.cols, t, STREAM));
}

/* A token has topk rows, or (from the dispatcher that gathers) as many of them as are here. */
static enum err unpermute(const struct call *c)
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
    if (!stored_as(c, t, READ(1))) return on_host(c);
    TRY(scratch_open(&scratch, c, exchange_scratch_B(p->etp, (int)count.cols)));
    return done_with(c, exchange_sort_cuda(y.p, c->read[0].p, count.p, p->etp, p->ep, (int)count.cols, c->at.ep, y.rows,
                                           (int)y.cols, back, scratch, t, STREAM), scratch);
}

static enum err sort(const struct call *c)
{
    return sort_rows(c, 0);
}

static enum err unsort(const struct call *c)
{
    return sort_rows(c, 1);
}

/* ---- the loss and the step's end ---- */

static enum err xent_max(const struct call *c)
{
    const struct xent x = backend_cpu_vocabulary(c, c->read[0]);
    if (!is_float(c, c->write[0], c->op->io.write[0])) return on_host(c);
    return done(c, xent_max_cuda(c->write[0].p, c->read[0].p, c->read[0].rows, &x, type_of(c, c->op->io.read[0]), STREAM));
}

static enum err xent_sum(const struct call *c)
{
    const struct xent x = backend_cpu_vocabulary(c, c->read[0]);
    if (!is_float(c, c->write[0], c->op->io.write[0]) || !is_float(c, c->read[2], c->op->io.read[2])) return on_host(c);
    return done(c, xent_sum_cuda(c->write[0].p, c->read[0].p, c->read[1].p, c->read[2].p, c->read[0].rows, &x,
                                 type_of(c, c->op->io.read[0]), STREAM));
}

static enum err xent_bwd(const struct call *c)
{
    const struct operand logit = c->add[0];
    const struct xent x = backend_cpu_vocabulary(c, logit);
    if (!is_float(c, c->read[1], c->op->io.read[1]) || !is_float(c, c->read[2], c->op->io.read[2])) return on_host(c);
    return done(c, xent_bwd_cuda(logit.p, c->read[0].p, c->read[1].p, c->read[2].p, logit.rows, backend_cpu_loss_scale(c), &x,
                                 type_of(c, c->op->io.add[0]), STREAM));
}

static enum err zero(const struct call *c)
{
    return cuda_says(c, cudaMemsetAsync(c->write[0].p, 0, (size_t)backend_cpu_B(c, c->write[0], c->op->io.write[0]), STREAM)) == OK
               ? done(c, OK) : ERR_DEVICE;
}

/* The CPU launcher cuts a bucket into runs of parameters that decay and that do not; each run is the GPU's. */
static enum err adamw_kernel(float *w, float *master, float *m, float *v, const float *g, int64_t n,
                             const struct optimizer_adamw *o)
{
    return optimizer_adamw_cuda(w, master, m, v, g, n, o, NULL, 0, DT_F32, STREAM);
}

static enum err adamw(const struct call *c)
{
    struct kernels k = *c->kernels;
    struct call mine = *c;
    if (!stored_as(c, DT_F32, 0)) return on_host(c);
    k.optimizer_adamw = adamw_kernel;
    mine.kernels = &k;
    return done(c, backend_cpu_launch[OP_ADAMW](&mine));
}

static enum err sumsq(const struct call *c)
{
    const int64_t n = c->read[0].rows * c->read[0].cols / c->members;
    void *scratch;
    if (!stored_as(c, DT_F32, 0)) return on_host(c);
    TRY(scratch_open(&scratch, c, OPTIMIZER_SCRATCH_B));
    return done_with(c, optimizer_sumsq_cuda((float *)c->add[0].p + METRIC_SQUARES, (const float *)c->read[0].p + c->me * n, n,
                                             1.0 / c->op->copies, scratch, STREAM), scratch);
}

/* What has no entry here is the host's: tokens, counts, the loss's last sum, SGD, and every collective. */
static launch *const own[OP_KIND_COUNT] = {
    [OP_EMBED] = embed, [OP_EMBED_BWD] = embed_bwd, [OP_NORM] = norm, [OP_NORM_BWD] = norm_bwd, [OP_ADD] = add,
    [OP_SPLIT] = split, [OP_MERGE] = merge, [OP_ROPE] = rope, [OP_ROPE_BWD] = rope_bwd, [OP_MLA_QKV] = mla_qkv,
    [OP_MLA_QKV_BWD] = mla_qkv_bwd, [OP_ATTN] = attn, [OP_ATTN_BWD] = attn_bwd, [OP_ATTN_MERGE] = attn_merge,
    [OP_GEMM] = gemm, [OP_DGRAD] = dgrad,
    [OP_WGRAD] = wgrad, [OP_GROUPED_GEMM] = grouped_gemm, [OP_GROUPED_DGRAD] = grouped_dgrad,
    [OP_GROUPED_WGRAD] = grouped_wgrad, [OP_SWIGLU] = swiglu, [OP_SWIGLU_BWD] = swiglu_bwd, [OP_ACT] = act,
    [OP_ACT_BWD] = act_bwd, [OP_ROUTE] = route, [OP_ROUTE_BWD] = route_bwd, [OP_ROUTE_LOAD] = route_load, [OP_BALANCE] = balance,
    [OP_PERMUTE] = permute, [OP_UNPERMUTE] = unpermute,
    [OP_SORT] = sort, [OP_UNSORT] = unsort, [OP_XENT_MAX] = xent_max, [OP_XENT_SUM] = xent_sum, [OP_XENT_BWD] = xent_bwd,
    [OP_ZERO] = zero, [OP_ADAMW] = adamw, [OP_SUMSQ] = sumsq,
};

static enum err backend_cuda_launch(const struct call *c)
{
    return own[c->op->kind] ? own[c->op->kind](c) : on_host(c);
}

/* ---- the device ---- */

static enum err device_checks(int *device, struct diag *d)
{
    int count = 0, major = 0, minor = 0, shared = 0;
    const cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaErrorInsufficientDriver)
        return fail(d, ERR_DEVICE, "--backend cuda: no NVIDIA driver, or one older than CUDA %d.%d needs: install one, or use "
                                   "--backend cpu", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (e != cudaSuccess || count == 0)
        return fail(d, ERR_DEVICE, "--backend cuda: no GPU that the driver shows (%s): use --backend cpu",
                    e == cudaSuccess ? "it counts 0" : cudaGetErrorString(e));
    *device = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    if ((major != 9 && major != 10) || minor != 0)
        return fail(d, ERR_DEVICE, "--backend cuda: GPU 0 has compute capability %d.%d; kernels were built for 9.0 and 10.0: use "
                                   "--backend cpu", major, minor);
    cudaDeviceGetAttribute(&shared, cudaDevAttrConcurrentManagedAccess, 0);
    if (!shared)
        return fail(d, ERR_DEVICE, "--backend cuda: GPU 0 cannot share memory with the host while it works (no concurrent managed "
                                   "access), which this backend needs: use --backend cpu");
    return OK;
}

static enum err backend_cuda_open(struct diag *d)
{
    int device;
    TRY(device_checks(&device, d));
    const cudaError_t e = cudaSetDevice(device);
    return e == cudaSuccess ? OK : fail(d, ERR_DEVICE, "--backend cuda: GPU %d: %s", device, cudaGetErrorString(e));
}

/* Managed memory may exceed the GPU's: pages then move to and fro, so what does not fit is refused. */
static void *backend_cuda_arena_new(int64_t bytes)
{
    size_t free_B = 0, all_B = 0;
    void *p = NULL;
    if (cudaMemGetInfo(&free_B, &all_B) != cudaSuccess || (size_t)bytes > free_B) return NULL;
    return cudaMallocManaged(&p, (size_t)bytes, cudaMemAttachGlobal) == cudaSuccess ? p : NULL;
}

static void backend_cuda_arena_free(void *p)
{
    cudaFree(p);
}

static launch *const table[OP_KIND_COUNT] = {
#define X(id, family, io) [OP_##id] = backend_cuda_launch,
    OP_LIST(X)
#undef X
};

__attribute__((visibility("default"))) const struct backend backend_module = {
    .version = BACKEND_VERSION, .name = "cuda", .launch = table, .open = backend_cuda_open, .arena_new = backend_cuda_arena_new,
    .arena_free = backend_cuda_arena_free,
};
