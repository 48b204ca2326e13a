/* Multi-head latent attention (DeepSeek-V2/V3): queries and keys through low-rank latents, one rotary key
 * shared by all heads. With q_lora 0 queries have no latent: their up-projection takes the normed input
 * (DeepSeek-V2-Lite, Moonlight). Down-projections are whole on every tp rank and work on its
 * sequence-parallel tokens; what is gathered over tp are the latents and the rotary key, not the hidden state
 * (Megatron-LM multi_latent_attention.py). `mla_up_proj` computes the up-projections again in backward, so q,
 * k and v are not kept. */
#include "models/build.h"

struct attention_w build_mla_weights(struct build *b)
{
    const struct model *m = &b->j->model;
    const int h = m->hidden, qk = model_qk_dim(m);
    struct attention_w w = { 0 };
    w.norm = build_weight(b, build_param(b, PARAM_ATTN_NORM, model_norm_rows(m), h, SHARD_NONE, 0));
    if (m->q_lora) {
        w.q_a = build_weight(b, build_param(b, PARAM_Q_A, m->q_lora, h, SHARD_NONE, 0));
        w.q_a_norm = build_weight(b, build_param(b, PARAM_Q_A_NORM, 1, m->q_lora, SHARD_NONE, 0));
    }
    w.q_b =
        build_weight(b, build_param(b, PARAM_Q_B, m->heads * qk, m->q_lora ? m->q_lora : h, SHARD_ROWS, 0));
    w.kv_a = build_weight(b, build_param(b, PARAM_KV_A, m->kv_lora + m->qk_rope, h, SHARD_NONE, 0));
    w.kv_a_norm = build_weight(b, build_param(b, PARAM_KV_A_NORM, 1, m->kv_lora, SHARD_NONE, 0));
    w.kv_b = build_weight(
        b, build_param(b, PARAM_KV_B, m->heads * (m->qk_nope + m->v_dim), m->kv_lora, SHARD_ROWS, 0));
    w.o = build_weight(b, build_param(b, PARAM_O, h, m->heads * m->v_dim, SHARD_COLS, 0));
    return w;
}

static void norm_latents(struct build *b, const struct attention_w *w, struct attention_kept *k)
{
    if (b->j->model.q_lora) k->q_a_n = emit_norm(b, k->q_a, w->q_a_norm);
    k->kv_latent_n = emit_norm_slice(b, k->kv_latent, w->kv_a_norm, b->j->model.kv_lora);
}

static void down(struct build *b, const struct attention_w *w, int n, struct attention_kept *k)
{
    const struct model *m = &b->j->model;
    k->q_a_n = n;
    if (m->q_lora) {
        k->q_a = emit_gemm(b, n, w->q_a);
        k->q_a_n = emit_norm(b, k->q_a, w->q_a_norm);
    }
    const int kv_a = emit_gemm(b, n, w->kv_a);
    k->kv_latent = k->krope = kv_a;
    if (!b->j->stack.split_views) {
        k->kv_latent = emit_like(b, kv_a, m->kv_lora);
        k->krope = emit_like(b, kv_a, m->qk_rope);
        emit(b, OP_SPLIT, STREAM_COMPUTE, GROUP_NONE,
             (struct io){ .write = { k->kv_latent, k->krope }, .read = { kv_a } });
    }
    k->kv_latent_n = emit_norm_slice(b, k->kv_latent, w->kv_a_norm, m->kv_lora);
}

/* The rotary key of all tokens: its columns only, also where it is a view. */
static int gather_krope(struct build *b, int krope)
{
    if (b->pr->group_size[GROUP_TP] == 1) return krope;
    const int all = emit_like(b, krope, b->j->model.qk_rope);
    b->pr->buf[all].rows *= b->pr->group_size[GROUP_TP];
    emit(b, OP_GATHER, STREAM_TP, GROUP_TP, (struct io){ .write = { all }, .read = { krope } });
    return all;
}

/* Latents -> q, k, v of all heads here; the same call is the recompute. */
static void up(struct build *b, const struct attention_w *w, struct attention_kept *k)
{
    const struct model *m = &b->j->model;
    const int heads = m->heads / b->j->plan.tp, qk = model_qk_dim(m);
    const int q_latent = emit_gather_input(b, k->q_a_n), qb = emit_gemm(b, q_latent, w->q_b);
    const int kv_latent = emit_gather_input(b, k->kv_latent_n), kvb = emit_gemm(b, kv_latent, w->kv_b);
    const int krope = gather_krope(b, k->krope);
    k->q = emit_like(b, qb, heads * qk);
    k->k = emit_like(b, qb, heads * qk);
    k->v = emit_like(b, qb, heads * m->v_dim);
    emit(b, OP_MLA_QKV, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { k->q, k->k, k->v }, .read = { qb, kvb, krope, emit_documents(b, PACKED_POSITIONS) } });
}

int build_mla_fwd(struct build *b, const struct attention_w *w, int x, struct attention_kept *k)
{
    k->x = x;
    k->n = emit_norm(b, x, w->norm);
    down(b, w, k->n, k);
    up(b, w, k);
    return build_attention_core_fwd(b, w, x, k);
}

/* dq, dk, dv -> gradients of the latents and the rotary key, in this rank's sequence slice. */
static void up_bwd(struct build *b, const struct attention_w *w, const struct attention_kept *k, int dq,
                   int dk, int dv, int d_latent[3])
{
    const struct model *m = &b->j->model;
    const int heads = m->heads / b->j->plan.tp;
    const int dqb = emit_like(b, dq, heads * model_qk_dim(m)),
              dkvb = emit_like(b, dq, heads * (m->qk_nope + m->v_dim));
    const int dkrope = emit_like(b, dq, m->qk_rope);
    emit(b, OP_MLA_QKV_BWD, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { dqb, dkvb, dkrope }, .read = { dq, dk, dv, emit_documents(b, PACKED_POSITIONS) } });
    int q_latent = emit_gather_ahead(b, k->q_a_n);
    const int dq_latent = emit_dgrad(b, dqb, w->q_b);
    d_latent[0] = emit_scatter(b, GROUP_TP, dq_latent);
    if (!q_latent) q_latent = emit_gather_input(b, k->q_a_n);
    emit_wgrad(b, q_latent, dqb, w->q_b);
    int kv_latent = emit_gather_ahead(b, k->kv_latent_n);
    const int dkv_latent = emit_dgrad(b, dkvb, w->kv_b);
    d_latent[1] = emit_scatter(b, GROUP_TP, dkv_latent);
    if (!kv_latent) kv_latent = emit_gather_input(b, k->kv_latent_n);
    emit_wgrad(b, kv_latent, dkvb, w->kv_b);
    d_latent[2] = emit_scatter(b, GROUP_TP, dkrope);
}

/* Latents -> dn. */
static int down_bwd(struct build *b, const struct attention_w *w, const struct attention_kept *k,
                    const int d_latent[3])
{
    const struct model *m = &b->j->model;
    const int dq_a = m->q_lora ? emit_norm_bwd(b, k->q_a, w->q_a_norm, d_latent[0], 0) : 0;
    const int dkv_latent = emit_norm_bwd(b, k->kv_latent, w->kv_a_norm, d_latent[1], 0);
    const int dkv_a = emit_like(b, dkv_latent, m->kv_lora + m->qk_rope);
    emit(b, OP_MERGE, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { dkv_a }, .read = { dkv_latent, d_latent[2] } });
    const int dn_q = m->q_lora ? emit_dgrad(b, dq_a, w->q_a) : d_latent[0];
    const int dn_kv = emit_dgrad(b, dkv_a, w->kv_a);
    const int n = m->q_lora ? build_norm_again(b, k->x, w->norm, k->n, 0) : k->q_a_n;
    if (m->q_lora) emit_wgrad(b, n, dq_a, w->q_a);
    emit_wgrad(b, n, dkv_a, w->kv_a);
    return emit_add(b, dn_q, dn_kv);
}

int build_mla_bwd(struct build *b, const struct attention_w *w, int dy, const struct attention_kept *kept)
{
    struct attention_kept k = *kept;
    if (!b->j->model.q_lora) k.q_a_n = build_norm_again(b, k.x, w->norm, k.n, 0);
    if (build_recomputes(b, RECOMPUTE_MLA_UP_PROJ)) {
        b->flags |= OP_RECOMPUTE;
        if (b->j->stack.norm_fused) norm_latents(b, w, &k);
        up(b, w, &k);
        build_attention_swap(b, &k);
        b->flags &= ~OP_RECOMPUTE;
    }
    int dq, dk, dv, d_latent[3];
    build_attention_core_bwd(b, w, dy, &k, &dq, &dk, &dv);
    up_bwd(b, w, &k, dq, dk, dv, d_latent);
    const int dn = down_bwd(b, w, &k, d_latent);
    return emit_norm_bwd(b, k.x, w->norm, dn, dy);
}
