/* CPU ranks: the table, and the launchers of a layer's arithmetic. A launcher unpacks positions
 * that OP_LIST gives meaning to and calls one kernel. Routing, communication and the step's ends are in the
 * files beside this one. */
#include "exec/backend_cpu.h"
#include "kernels/act.h"
#include "kernels/mla.h"
#include "kernels/move.h"
#include <stdlib.h>

launch *const backend_cpu_launch[OP_KIND_COUNT] = {
    [OP_DATA] = backend_cpu_data,
    [OP_EMBED] = backend_cpu_embed,
    [OP_EMBED_BWD] = backend_cpu_embed_bwd,
    [OP_NORM] = backend_cpu_norm,
    [OP_NORM_BWD] = backend_cpu_norm_bwd,
    [OP_ADD] = backend_cpu_add,
    [OP_SPLIT] = backend_cpu_split,
    [OP_MERGE] = backend_cpu_merge,
    [OP_ROPE] = backend_cpu_rope,
    [OP_ROPE_BWD] = backend_cpu_rope_bwd,
    [OP_MLA_QKV] = backend_cpu_mla_qkv,
    [OP_MLA_QKV_BWD] = backend_cpu_mla_qkv_bwd,
    [OP_ATTN] = backend_cpu_attn,
    [OP_ATTN_BWD] = backend_cpu_attn_bwd,
    [OP_GEMM] = backend_cpu_gemm,
    [OP_DGRAD] = backend_cpu_dgrad,
    [OP_WGRAD] = backend_cpu_wgrad,
    [OP_GROUPED_GEMM] = backend_cpu_grouped_gemm,
    [OP_GROUPED_DGRAD] = backend_cpu_grouped_dgrad,
    [OP_GROUPED_WGRAD] = backend_cpu_grouped_wgrad,
    [OP_SWIGLU] = backend_cpu_swiglu,
    [OP_SWIGLU_BWD] = backend_cpu_swiglu_bwd,
    [OP_ACT] = backend_cpu_act,
    [OP_ACT_BWD] = backend_cpu_act_bwd,
    [OP_ROUTE] = backend_cpu_route,
    [OP_ROUTE_BWD] = backend_cpu_route_bwd,
    [OP_ROUTE_LOAD] = backend_cpu_route_load,
    [OP_BALANCE] = backend_cpu_balance,
    [OP_SIZES] = backend_cpu_sizes,
    [OP_PERMUTE] = backend_cpu_permute,
    [OP_UNPERMUTE] = backend_cpu_unpermute,
    [OP_SORT] = backend_cpu_sort,
    [OP_UNSORT] = backend_cpu_unsort,
    [OP_DISPATCH] = backend_cpu_dispatch,
    [OP_COMBINE] = backend_cpu_combine,
    [OP_DISPATCH_TOKENS] = backend_cpu_dispatch_tokens,
    [OP_COMBINE_TOKENS] = backend_cpu_combine_tokens,
    [OP_ROUTE_MAP] = backend_cpu_route_map,
    [OP_PICK] = backend_cpu_pick,
    [OP_PICK_BWD] = backend_cpu_pick_bwd,
    [OP_SCATTER_ADD] = backend_cpu_scatter_add,
    [OP_OFFLOAD] = backend_cpu_copy,
    [OP_RELOAD] = backend_cpu_copy,
    [OP_HOST_ADAMW] = backend_cpu_host_adamw,
    [OP_CAST] = backend_cpu_cast,
    [OP_GATHER_V] = backend_cpu_gather_v,
    [OP_SCATTER_V] = backend_cpu_scatter_v,
    [OP_GATHER] = backend_cpu_gather,
    [OP_SCATTER] = backend_cpu_scatter,
    [OP_SWAP] = backend_cpu_swap,
    [OP_DOCUMENTS] = backend_cpu_documents,
    [OP_SHIFT] = backend_cpu_shift,
    [OP_ATTN_MERGE] = backend_cpu_attn_merge,
    [OP_ALL_REDUCE] = backend_cpu_all_reduce,
    [OP_ALL_MAX] = backend_cpu_all_max,
    [OP_XENT_MAX] = backend_cpu_xent_max,
    [OP_XENT_SUM] = backend_cpu_xent_sum,
    [OP_XENT] = backend_cpu_xent,
    [OP_XENT_BWD] = backend_cpu_xent_bwd,
    [OP_SEND] = backend_cpu_send,
    [OP_RECV] = backend_cpu_recv,
    [OP_ZERO] = backend_cpu_zero,
    [OP_GRAD_SCATTER] = backend_cpu_grad_scatter,
    [OP_PARAM_GATHER] = backend_cpu_param_gather,
    [OP_SUMSQ] = backend_cpu_sumsq,
    [OP_ADAMW] = backend_cpu_adamw,
    [OP_SGD] = backend_cpu_sgd,
    [OP_HOLD] = backend_cpu_hold,
};

enum err backend_cpu_scratch(void **p, int64_t bytes, const struct call *c)
{
    *p = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (!*p)
        return fail(c->d, ERR_LIMIT, "%s: no memory for %lld bytes of scratch", op_name(c->op->kind),
                    (long long)bytes);
    return OK;
}

int64_t backend_cpu_B(const struct call *c, struct operand o, int id)
{
    return o.rows * o.cols * dtype_B((enum dtype)c->pr->buf[id].dtype);
}

static struct rope_scaling rope_scaling_of(const struct model *m)
{
    const int dim = m->attention == ATTENTION_MLA ? m->qk_rope : m->head_dim;
    switch (m->rope_scaling) {
    case SCALING_LINEAR: return rope_linear(m->rope_factor);
    case SCALING_LLAMA3: return rope_llama3(m->rope_factor, m->rope_original, m->rope_fast, m->rope_slow);
    case SCALING_YARN:
        return rope_yarn(m->rope_factor, m->rope_original, m->rope_fast, m->rope_slow, m->rope_truncate,
                         model_rope_magnitude(m), m->rope_theta, dim);
    default: return (struct rope_scaling){ 0 };
    }
}

/* What DOCUMENTS wrote, where the op reads it; NULL: its sequences are whole. */
static const int32_t *documents_of(const struct call *c)
{
    switch (c->op->kind) {
    case OP_ROPE: case OP_ROPE_BWD: return c->read[0].p;
    case OP_MLA_QKV: case OP_MLA_QKV_BWD: return c->read[3].p;
    case OP_ATTN: return c->read[4].p;
    case OP_ATTN_BWD: return c->read[6].p;
    default: return NULL;
    }
}

struct rope backend_cpu_positions(const struct call *c)
{
    const struct plan *p = &c->job->plan;
    const struct model *m = &c->job->model;
    return (struct rope){
        .seq = p->seq, .cp = p->cp, .index = c->at.cp, .theta = m->rope_theta, .start = documents_of(c),
        .scaling = rope_scaling_of(m)};
}

/* ---- rows of a table, norms, columns ---- */

enum err backend_cpu_embed(const struct call *c)
{
    const struct operand y = c->write[0], table = c->read[1];
    return move_embed_ref(y.p, c->read[0].p, table.p, y.rows, (int)y.cols, c->at.tp * table.rows, table.rows);
}

enum err backend_cpu_embed_bwd(const struct call *c)
{
    const struct operand g = c->add[0], dy = c->read[1];
    return move_embed_bwd_ref(g.p, c->read[0].p, dy.p, dy.rows, (int)dy.cols, c->at.tp * g.rows, g.rows);
}

enum err backend_cpu_norm(const struct call *c)
{
    const struct operand x = c->read[0], w = c->read[1];
    return c->kernels->norm(c->write[0].p, x.p, w.p, x.rows * x.cols / w.cols, (int)w.cols, c->job->model.norm_eps);
}

enum err backend_cpu_norm_bwd(const struct call *c)
{
    const struct operand x = c->read[0], w = c->read[1];
    return c->kernels->norm_bwd(c->write[0].p, c->add[0].p, x.p, w.p, c->read[2].p, c->read[3].p,
                        x.rows * x.cols / w.cols, (int)w.cols, c->job->model.norm_eps);
}

enum err backend_cpu_add(const struct call *c)
{
    const struct operand y = c->write[0];
    return move_add_ref(y.p, c->read[0].p, c->read[1].p, y.rows * y.cols);
}

enum err backend_cpu_split(const struct call *c)
{
    const struct operand x = c->read[0];
    const float *from = x.p;
    for (int i = 0; i < OP_WRITES && c->write[i].p; from += c->write[i++].cols) {
        const struct operand y = c->write[i];
        TRY(move_cols_ref(y.p, (int)y.cols, from, (int)x.cols, x.rows, (int)y.cols));
    }
    return OK;
}

enum err backend_cpu_merge(const struct call *c)
{
    const struct operand y = c->write[0];
    float *to = y.p;
    for (int i = 0; i < OP_READS && c->read[i].p; to += c->read[i++].cols) {
        const struct operand x = c->read[i];
        TRY(move_cols_ref(to, (int)y.cols, x.p, (int)x.cols, y.rows, (int)x.cols));
    }
    return OK;
}

/* ---- attention ---- */

static enum err turn_heads(const struct call *c, int back)
{
    const struct operand x = c->add[0];
    const struct rope at = backend_cpu_positions(c);
    const int dim = c->job->model.head_dim;
    return rope_ref(x.p, x.rows, (int)x.cols / dim, dim, dim, &at, back);
}

enum err backend_cpu_rope(const struct call *c)
{
    return turn_heads(c, 0);
}

enum err backend_cpu_rope_bwd(const struct call *c)
{
    return turn_heads(c, 1);
}

struct mla backend_cpu_mla(const struct call *c)
{
    const struct model *m = &c->job->model;
    return (struct mla){
        .heads = m->heads / c->job->plan.tp, .nope = m->qk_nope, .rope = m->qk_rope, .v = m->v_dim};
}

enum err backend_cpu_mla_qkv(const struct call *c)
{
    const struct mla m = backend_cpu_mla(c);
    const struct rope at = backend_cpu_positions(c);
    return mla_ref(c->write[0].p, c->write[1].p, c->write[2].p, c->read[0].p, c->read[1].p, c->read[2].p,
                   c->read[0].rows, &m, &at);
}

enum err backend_cpu_mla_qkv_bwd(const struct call *c)
{
    const struct mla m = backend_cpu_mla(c);
    const struct rope at = backend_cpu_positions(c);
    return mla_bwd_ref(c->write[0].p, c->write[1].p, c->write[2].p, c->read[0].p, c->read[1].p, c->read[2].p,
                       c->read[0].rows, &m, &at);
}

/* `heads`: of o, here. Where queries have as many rows as keys, all tokens are here in order of position. */
struct attention_shape backend_cpu_attention(const struct call *c, struct operand o, int heads)
{
    const struct operand q = c->read[0], k = c->read[1];
    struct rope at = backend_cpu_positions(c);
    const int dqk = (int)q.cols / heads;
    if (!c->op->ring && q.rows == k.rows) at.cp = 1, at.index = 0;
    return (struct attention_shape){.nq = heads,
                                    .nkv = (int)k.cols / dqk,
                                    .dqk = dqk,
                                    .dv = (int)o.cols / heads,
                                    .seqs = (int)(q.rows / (at.seq / at.cp)),
                                    .at = at,
                                    .window = c->op->window,
                                    .ring = c->op->ring,
                                    .scale = (float)model_score_scale(&c->job->model)};
}

/* The sinks of the heads here, when heads are shared out over cp. */
float *backend_cpu_sinks(const struct call *c, struct operand all, int heads)
{
    return all.p ? (float *)all.p + (all.rows > heads ? c->at.cp * heads : 0) : NULL;
}

enum err backend_cpu_attn(const struct call *c)
{
    const int heads = (int)c->write[1].cols;
    const struct attention_shape a = backend_cpu_attention(c, c->write[0], heads);
    void *scratch;
    TRY(backend_cpu_scratch(&scratch, c->kernels->attention_scratch_B(&a), c));
    const enum err e = c->kernels->attention(c->write[0].p, c->write[1].p, c->read[0].p, c->read[1].p, c->read[2].p,
                                             backend_cpu_sinks(c, c->read[3], heads), &a, scratch);
    free(scratch);
    return e;
}

enum err backend_cpu_attn_bwd(const struct call *c)
{
    const int heads = (int)c->read[4].cols;
    const struct attention_shape a = backend_cpu_attention(c, c->read[3], heads);
    void *scratch;
    TRY(backend_cpu_scratch(&scratch, c->kernels->attention_scratch_B(&a), c));
    const enum err e = c->kernels->attention_bwd(c->write[0].p, c->write[1].p, c->write[2].p,
                                                 backend_cpu_sinks(c, c->add[0], heads), c->read[0].p, c->read[1].p,
                                                 c->read[2].p, c->read[3].p, c->read[4].p, c->read[5].p, &a, scratch);
    free(scratch);
    return e;
}

enum err backend_cpu_attn_merge(const struct call *c)
{
    const struct operand o = c->write[0], lse = c->write[1];
    return merge_ref(o.p, lse.p, c->read[0].p, c->read[1].p, c->read[2].p, c->read[3].p, o.rows, (int)lse.cols,
                     (int)(o.cols / lse.cols));
}

/* ---- linear layers and the activation between them ---- */

/* Where inputs are cut over tp all members make a part of every output, and of what is added once only one may:
 * the first. `weight`: a buffer, the weight or its gradient. */
static int counts_bias(const struct call *c, int weight)
{
    for (int i = 0; i < c->pr->n_param; i++) {
        const struct param *q = &c->pr->param[i];
        if (q->w == weight || q->g == weight) return q->shard != SHARD_COLS || q->batch || c->at.tp == 0;
    }
    return 1; /* several parameters side by side: cut by outputs */
}

enum err backend_cpu_gemm(const struct call *c)
{
    const struct operand x = c->read[0], w = c->read[1], bias = c->read[2];
    TRY(c->kernels->gemm(c->write[0].p, x.p, w.p, x.rows, (int)w.rows, (int)w.cols));
    if (!bias.p || !counts_bias(c, c->op->io.read[1])) return OK;
    return move_bias_ref(c->write[0].p, bias.p, x.rows, (int)w.rows);
}

enum err backend_cpu_dgrad(const struct call *c)
{
    const struct operand dy = c->read[0], w = c->read[1];
    return c->kernels->gemm_dgrad(c->write[0].p, dy.p, w.p, dy.rows, (int)w.rows, (int)w.cols);
}

enum err backend_cpu_wgrad(const struct call *c)
{
    const struct operand g = c->add[0], x = c->read[0], bias = c->add[1];
    TRY(c->kernels->gemm_wgrad(g.p, x.p, c->read[1].p, x.rows, (int)g.rows, (int)g.cols));
    if (!bias.p || !counts_bias(c, c->op->io.add[0])) return OK;
    return move_bias_bwd_ref(bias.p, c->read[1].p, x.rows, (int)g.rows);
}

enum err backend_cpu_swiglu(const struct call *c)
{
    const struct operand y = c->write[0];
    return c->kernels->swiglu(y.p, c->read[0].p, c->read[1].p, y.rows, (int)y.cols);
}

enum err backend_cpu_swiglu_bwd(const struct call *c)
{
    const struct operand dy = c->read[1];
    return c->kernels->swiglu_bwd(c->write[0].p, c->write[1].p, c->read[0].p, dy.p, c->read[2].p, dy.rows,
                          (int)dy.cols);
}

enum act backend_cpu_act_kind(const struct call *c)
{
    return c->job->model.activation == ACTIVATION_GELU ? ACT_GELU : ACT_RELU2;
}

enum err backend_cpu_act(const struct call *c)
{
    const struct operand y = c->write[0];
    return act_ref(y.p, c->read[0].p, c->read[1].p, y.rows, (int)y.cols, backend_cpu_act_kind(c));
}

enum err backend_cpu_act_bwd(const struct call *c)
{
    const struct operand dy = c->read[1];
    return act_bwd_ref(c->write[0].p, c->write[1].p, c->read[0].p, dy.p, c->read[2].p, dy.rows, (int)dy.cols,
                       backend_cpu_act_kind(c));
}

/* ---- the loss ---- */

/* What a row's loss counts for: one over the tokens of a step that do. */
static double per_token(const struct call *c)
{
    return 1 / (c->loss_tokens ? (double)c->loss_tokens : (double)c->job->plan.gbs * c->job->plan.seq);
}

struct xent backend_cpu_vocabulary(const struct call *c, struct operand logit)
{
    return (struct xent){
        .first = c->at.tp * logit.cols, .cols = (int)logit.cols, .vocab = c->job->model.vocab};
}

enum err backend_cpu_xent_max(const struct call *c)
{
    const struct xent x = backend_cpu_vocabulary(c, c->read[0]);
    return c->kernels->xent_max(c->write[0].p, c->read[0].p, c->read[0].rows, &x);
}

enum err backend_cpu_xent_sum(const struct call *c)
{
    const struct xent x = backend_cpu_vocabulary(c, c->read[0]);
    return c->kernels->xent_sum(c->write[0].p, c->read[0].p, c->read[1].p, c->read[2].p, c->read[0].rows, &x);
}

enum err backend_cpu_xent(const struct call *c)
{
    float *metric = c->add[0].p;
    if (c->at.tp != 0) return OK; /* all of tp hold the same sums: they count once */
    return xent_loss_ref(&metric[c->op->flags & OP_MTP ? 1 : 0], c->read[0].p, c->read[0].rows, per_token(c));
}

double backend_cpu_loss_scale(const struct call *c)
{
    return (c->op->flags & OP_MTP ? c->job->model.mtp_weight : 1) * per_token(c);
}

enum err backend_cpu_xent_bwd(const struct call *c)
{
    const struct operand logit = c->add[0];
    const struct xent x = backend_cpu_vocabulary(c, logit);
    return c->kernels->xent_bwd(logit.p, c->read[0].p, c->read[1].p, c->read[2].p, logit.rows, backend_cpu_loss_scale(c),
                        &x);
}
