/* The CUDA backend: a module that is loaded only when asked for. Arenas are managed memory, so what a kernel has no part in
 * (tokens, counts, and what falls back) is done by the CPU's launchers on the same addresses, once all before it in its stream
 * is done. Each stream of a rank is a thread of the executor, and has its own CUDA stream: the thread's. Nobody else waits: a
 * launcher returns with its kernels under way. */
#include "exec/backend_cuda.h"
#include "exec/blas_cuda.h"
#include "kernels/gemm.h"
#include "kernels/move.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/swiglu.h"

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
    if (blas_gemm(c->write[0].p, x.p, w.p, x.rows, (int)w.rows, (int)w.cols, t, to)) return OK;
    return done(c, gemm_grouped_cuda(c->write[0].p, x.p, w.p, NULL, 1, x.rows, (int)w.rows, (int)w.cols, t, to, STREAM));
}

static enum err dgrad(const struct call *c)
{
    const struct operand dy = c->read[0], w = c->read[1];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (!stored_as(c, t, 0)) return on_host(c);
    if (blas_dgrad(c->write[0].p, dy.p, w.p, dy.rows, (int)w.rows, (int)w.cols, t)) return OK;
    return done(c, gemm_grouped_dgrad_cuda(c->write[0].p, dy.p, w.p, NULL, 1, dy.rows, (int)w.rows, (int)w.cols, t, STREAM));
}

static enum err wgrad(const struct call *c)
{
    const struct operand g = c->add[0], x = c->read[0];
    const enum dtype t = type_of(c, c->op->io.read[0]);
    if (c->add[1].p || !stored_as(c, t, ADDED(0)) || !is_float(c, g, c->op->io.add[0])) return on_host(c);
    if (blas_wgrad(g.p, x.p, c->read[1].p, x.rows, (int)g.rows, (int)g.cols, t)) return OK;
    return done(c, gemm_grouped_wgrad_cuda(g.p, x.p, c->read[1].p, NULL, 1, x.rows, (int)g.rows, (int)g.cols, t, STREAM));
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
    return says(c, device_zero(c->write[0].p, backend_cpu_B(c, c->write[0], c->op->io.write[0])));
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
    TRY(says(c, device_wait()));        /* the host reads the gradient's norm */
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
    [OP_WGRAD] = wgrad, [OP_GROUPED_GEMM] = backend_cuda_grouped_gemm, [OP_GROUPED_DGRAD] = backend_cuda_grouped_dgrad,
    [OP_GROUPED_WGRAD] = backend_cuda_grouped_wgrad, [OP_SWIGLU] = swiglu, [OP_SWIGLU_BWD] = swiglu_bwd, [OP_ACT] = act,
    [OP_ACT_BWD] = act_bwd, [OP_ROUTE] = backend_cuda_route, [OP_ROUTE_BWD] = backend_cuda_route_bwd, [OP_ROUTE_LOAD] = backend_cuda_route_load, [OP_BALANCE] = backend_cuda_balance,
    [OP_PERMUTE] = backend_cuda_permute, [OP_UNPERMUTE] = backend_cuda_unpermute,
    [OP_SORT] = backend_cuda_sort, [OP_UNSORT] = backend_cuda_unsort, [OP_XENT_MAX] = xent_max, [OP_XENT_SUM] = xent_sum, [OP_XENT_BWD] = xent_bwd,
    [OP_ZERO] = zero, [OP_ADAMW] = adamw, [OP_SUMSQ] = sumsq,
};

static enum err backend_cuda_launch(const struct call *c)
{
    return own[c->op->kind] ? own[c->op->kind](c) : on_host(c);
}

static launch *const table[OP_KIND_COUNT] = {
#define X(id, family, io) [OP_##id] = backend_cuda_launch,
    OP_LIST(X)
#undef X
};

__attribute__((visibility("default"))) const struct backend backend_module = {
    .version = BACKEND_VERSION, .name = "cuda", .launch = table, .open = device_open, .memory_B = device_memory_B,
    .arena_new = device_arena_new, .arena_free = device_arena_free, .arena_filled = device_arena_filled,
    .wait = device_wait, .mark_new = device_mark_new,
    .mark_free = device_mark_free, .mark = device_mark, .after = device_after, .reached = device_reached,
    .between_s = device_between_s, .mover = &local_mover,
};
