/* Grouped-query attention, optionally with RMSNorm on every head of q and k (Qwen3). Tokens are
 * sequence-parallel outside, gathered over tp before the projections; K and V are gathered over cp, and
 * gathered again in backward, not kept; or heads are swapped for tokens, or they go around (build_ring.c). */
#include "models/build.h"

static struct weight with_bias(struct weight w, struct weight bias)
{
    w.bias = bias.w;
    w.bias_g = bias.g;
    return w;
}

/* As the matrices: side by side, or two vectors when K/V heads are replicated over tp. */
static void bias_qkv(struct build *b, struct attention_w *w, int q_rows, int kv_rows)
{
    const int q = build_param(b, PARAM_Q_BIAS, q_rows, 1, SHARD_ROWS, 0);
    const int k = build_param(b, PARAM_K_BIAS, kv_rows, 1, SHARD_KV, 0);
    const int v = build_param(b, PARAM_V_BIAS, kv_rows, 1, SHARD_KV, 0);
    w->qkv = with_bias(w->qkv, w->kv.w ? build_weight(b, q) : build_weight_span(b, q, v));
    if (w->kv.w) w->kv = with_bias(w->kv, build_weight_span(b, k, v));
}

struct attention_w build_attention_weights(struct build *b)
{
    const struct model *m = &b->j->model;
    const int h = m->hidden, q_rows = m->heads * m->head_dim, kv_rows = m->kv_heads * m->head_dim;
    struct attention_w w = { 0 };
    w.norm = build_weight(b, build_param(b, PARAM_ATTN_NORM, model_norm_rows(m), h, SHARD_NONE, 0));
    const int q = build_param(b, PARAM_Q, q_rows, h, SHARD_ROWS, 0);
    const int k = build_param(b, PARAM_K, kv_rows, h, SHARD_KV, 0);
    const int v = build_param(b, PARAM_V, kv_rows, h, SHARD_KV, 0);
    if (b->pr->group_size[GROUP_KV] == 1) w.qkv = build_weight_span(b, q, v);
    else {
        w.qkv = build_weight(b, q);
        w.kv = build_weight_span(b, k, v);
    }
    if (m->qk_norm) {
        w.q_norm = build_weight(b, build_param(b, PARAM_Q_NORM, 1, m->head_dim, SHARD_NONE, 0));
        w.k_norm = build_weight(b, build_param(b, PARAM_K_NORM, 1, m->head_dim, SHARD_NONE, 0));
    }
    w.o = build_weight(b, build_param(b, PARAM_O, h, q_rows, SHARD_COLS, 0));
    if (m->sinks) w.sink = build_weight(b, build_param(b, PARAM_SINK, m->heads, 1, SHARD_ROWS, 0));
    if (model_has_bias(m, BIAS_QKV)) bias_qkv(b, &w, q_rows, kv_rows);
    if (model_has_bias(m, BIAS_O)) build_bias(b, &w.o, PARAM_O_BIAS, h, SHARD_NONE, 0);
    return w;
}

/* Columns of K (and of V) that this rank computes. */
static int kv_cols(const struct build *b)
{
    const struct model *m = &b->j->model;
    return m->kv_heads * b->pr->group_size[GROUP_KV] / b->j->plan.tp * m->head_dim;
}

static void project(struct build *b, const struct attention_w *w, int n, struct attention_kept *k)
{
    const struct model *m = &b->j->model;
    const int qkv = emit_gemm(b, n, w->qkv), q_cols = m->heads / b->j->plan.tp * m->head_dim;
    const int kv = w->kv.w ? emit_gemm(b, n, w->kv) : 0;
    k->q_raw = kv ? qkv : emit_like(b, n, q_cols);
    k->k_raw = emit_like(b, n, kv_cols(b));
    k->v = emit_like(b, n, kv_cols(b));
    const struct io split = kv ? (struct io){ .write = { k->k_raw, k->v }, .read = { kv } }
                               : (struct io){ .write = { k->q_raw, k->k_raw, k->v }, .read = { qkv } };
    emit(b, OP_SPLIT, STREAM_COMPUTE, GROUP_NONE, split);
}

static void rotate(struct build *b, enum op_kind kind, int x)
{
    emit(b, kind, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .add = { x }, .read = { emit_documents(b, PACKED_POSITIONS) } });
}

/* What attention of the current layer sees back. */
static int window(const struct build *b)
{
    return model_layer(&b->j->model, b->layer).window;
}

static int swaps(const struct build *b)
{
    return b->j->plan.cp_comm == CP_COMM_A2A && b->pr->group_size[GROUP_CP] > 1;
}

void build_attention_swap(struct build *b, struct attention_kept *k)
{
    if (!swaps(b)) return;
    k->q = emit_swap(b, k->q, 0);
    k->k = emit_swap(b, k->k, 0);
    k->v = emit_swap(b, k->v, 0);
}

/* K or V as attention reads it. */
static int all_keys(struct build *b, int x)
{
    return swaps(b) ? x : emit_gather(b, GROUP_CP, x);
}

/* Its gradient -> of this rank's tokens. */
static int own_keys(struct build *b, int dx)
{
    return swaps(b) ? emit_swap(b, dx, 1) : emit_scatter(b, GROUP_CP, dx);
}

/* k->o_part and k->lse from k->q and what it sees. */
static void attend(struct build *b, const struct attention_w *w, int keys, int values,
                   struct attention_kept *k)
{
    const struct model *m = &b->j->model;
    const int heads = m->heads / b->j->plan.tp / (swaps(b) ? b->pr->group_size[GROUP_CP] : 1);
    k->o_part = emit_like(b, k->q, heads * model_v_dim(m));
    k->lse = emit_buf(b, b->pr->buf[k->q].rows, heads, DT_F32);
    emit(b, OP_ATTN, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { k->o_part, k->lse },
                      .read = { k->q, keys, values, w->sink.w, emit_documents(b, PACKED_ATTENTION) } })
        ->window = window(b);
}

int build_attention_core_fwd(struct build *b, const struct attention_w *w, int x, struct attention_kept *k)
{
    build_attention_swap(b, k);
    if (build_ring_goes(b)) build_ring_fwd(b, w, k);
    else {
        const int keys = all_keys(b, k->k), values = all_keys(b, k->v);
        attend(b, w, keys, values, k);
    }
    k->o = swaps(b) ? emit_swap(b, k->o_part, 1) : k->o_part;
    const int y = emit_gemm(b, k->o, w->o);
    const int y_sp = emit_scatter(b, GROUP_TP, y);
    return emit_add(b, x, y_sp);
}

int build_attention_fwd(struct build *b, const struct attention_w *w, int x, struct attention_kept *k)
{
    k->x = x;
    k->n = emit_norm(b, x, w->norm);
    project(b, w, emit_gather_input(b, k->n), k);
    k->q = k->q_raw;
    k->k = k->k_raw;
    if (b->j->model.qk_norm) {
        k->q = emit_norm(b, k->q_raw, w->q_norm);
        k->k = emit_norm(b, k->k_raw, w->k_norm);
    }
    if (b->j->model.positions == POSITIONS_ROPE) {
        rotate(b, OP_ROPE, k->q);
        rotate(b, OP_ROPE, k->k);
    }
    return build_attention_core_fwd(b, w, x, k);
}

static void core_ring_bwd(struct build *b, const struct attention_w *w, int d_o, struct attention_kept *k, int *dq, int *dk,
                          int *dv)
{
    int d_own[2];
    if (build_recomputes(b, RECOMPUTE_CORE_ATTN)) {
        b->flags |= OP_RECOMPUTE;
        build_ring_fwd(b, w, k);
        b->flags &= ~OP_RECOMPUTE;
    }
    build_ring_bwd(b, w, d_o, k, dq, d_own);
    *dk = d_own[0];
    *dv = d_own[1];
}

/* With recompute `core_attn` attention itself runs again; its output is kept all the same, the projection's
 * gradient needs it. */
void build_attention_core_bwd(struct build *b, const struct attention_w *w, int dy,
                              const struct attention_kept *kept, int *dq, int *dk, int *dv)
{
    struct attention_kept again = *kept;
    const struct attention_kept *k = &again;
    const int dy_full = emit_gather_input(b, dy);
    const int d_o = emit_dgrad(b, dy_full, w->o);
    emit_wgrad(b, k->o, dy_full, w->o);
    if (build_ring_goes(b)) {
        core_ring_bwd(b, w, d_o, &again, dq, dk, dv);
        return;
    }
    const int d_part = swaps(b) ? emit_swap(b, d_o, 0) : d_o;
    const int keys = all_keys(b, k->k), values = all_keys(b, k->v);
    if (build_recomputes(b, RECOMPUTE_CORE_ATTN)) {
        b->flags |= OP_RECOMPUTE;
        attend(b, w, keys, values, &again);
        b->flags &= ~OP_RECOMPUTE;
    }
    *dq = emit_like(b, k->q, b->pr->buf[k->q].cols);
    const int dkeys = emit_like(b, keys, b->pr->buf[keys].cols),
              dvalues = emit_like(b, values, b->pr->buf[values].cols);
    emit(b, OP_ATTN_BWD, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { *dq, dkeys, dvalues },
                      .add = { w->sink.g },
                      .read = { k->q, keys, values, k->o_part, k->lse, d_part,
                                emit_documents(b, PACKED_ATTENTION) } })
        ->window = window(b);
    if (swaps(b)) *dq = emit_swap(b, *dq, 1);
    *dk = own_keys(b, dkeys);
    *dv = own_keys(b, dvalues);
}

/* Through the projections: data gradient first, so that its reduction runs under the weight gradient. */
static int project_bwd(struct build *b, const struct attention_w *w, const struct attention_kept *k, int dq,
                       int dk, int dv)
{
    const int kv_apart = w->kv.w != 0;
    const int d = emit_buf(b, b->tok, (kv_apart ? 0 : b->pr->buf[dq].cols) + 2 * kv_cols(b), b->act);
    emit(b, OP_MERGE, STREAM_COMPUTE, GROUP_NONE,
         kv_apart ? (struct io){ .write = { d }, .read = { dk, dv } }
                  : (struct io){ .write = { d }, .read = { dq, dk, dv } });
    const int early = b->j->stack.async_tp ? build_norm_again(b, k->x, w->norm, k->n, 1) : 0;
    int n_full = early ? emit_gather_ahead(b, early) : 0;
    int dn_full = emit_dgrad(b, d, kv_apart ? w->kv : w->qkv);
    if (kv_apart) {
        const int dn_q = emit_dgrad(b, dq, w->qkv);
        dn_full = emit_add(b, dn_full, dn_q);
    }
    const int dn = emit_scatter(b, GROUP_TP, dn_full);
    const int n = early ? early : build_norm_again(b, k->x, w->norm, k->n, 1);
    if (!n_full) n_full = emit_gather_input(b, n);
    emit_wgrad(b, n_full, d, kv_apart ? w->kv : w->qkv);
    if (kv_apart) emit_wgrad(b, n_full, dq, w->qkv);
    if (early) emit_hold_gathered(b, early);
    return dn;
}

int build_attention_bwd(struct build *b, const struct attention_w *w, int dy, const struct attention_kept *k)
{
    int dq, dk, dv;
    build_attention_core_bwd(b, w, dy, k, &dq, &dk, &dv);
    if (b->j->model.positions == POSITIONS_ROPE) {
        rotate(b, OP_ROPE_BWD, dq);
        rotate(b, OP_ROPE_BWD, dk);
    }
    if (b->j->model.qk_norm) {
        dq = emit_norm_bwd(b, k->q_raw, w->q_norm, dq, 0);
        dk = emit_norm_bwd(b, k->k_raw, w->k_norm, dk, 0);
    }
    const int dn = project_bwd(b, w, k, dq, dk, dv);
    return emit_norm_bwd(b, k->x, w->norm, dn, dy);
}
