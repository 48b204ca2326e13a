/* Context parallelism by a ring (plan cp-comm p2p; Liu et al., "Ring Attention with Blockwise Transformers"; Megatron-LM's
 * cp_comm_type p2p): a rank's keys and values go around its cp group, one member further a block; each block is attended
 * alone and joined to those before. Balanced chunks (kernels/rope.h) make every block the same work: its own is the causal
 * half of a square, of an earlier member's keys all queries see the first half, of a later one's the second half of the
 * queries sees all. In backward keys and values go around again, and the gradients of each follow them one block behind,
 * every member adding what its queries say; one hop more brings them home. The next block is on the wire while one is
 * computed. Sinks belong to the first block. What runs through more than two blocks is kept in float. */
#include "models/build.h"

int build_ring_goes(const struct build *b)
{
    return b->j->plan.cp_comm == CP_COMM_P2P && b->pr->group_size[GROUP_CP] > 1;
}

/* The block's own attention: ring 1 + r marks whose keys these are. */
static void block_fwd(struct build *b, const struct attention_w *w, int keys, int values, int r, struct attention_kept *k)
{
    const struct model *m = &b->j->model;
    const int heads = m->heads / b->j->plan.tp;
    k->o_part = emit_like(b, k->q, heads * model_v_dim(m));
    k->lse = emit_buf(b, b->pr->buf[k->q].rows, heads, DT_F32);
    struct op *o = emit(b, OP_ATTN, STREAM_COMPUTE, GROUP_NONE,
                        (struct io){ .write = { k->o_part, k->lse },
                                     .read = { k->q, keys, values, r ? 0 : w->sink.w, emit_documents(b, PACKED_ATTENTION) } });
    o->window = model_layer(m, b->layer).window;
    o->ring = (int16_t)(1 + r);
}

static void merge(struct build *b, const struct attention_kept *before, int last, struct attention_kept *k)
{
    const int part = k->o_part, lse = k->lse;
    k->o_part = emit_like(b, part, b->pr->buf[part].cols);
    if (!last) b->pr->buf[k->o_part].dtype = DT_F32;
    k->lse = emit_like(b, lse, b->pr->buf[lse].cols);
    emit(b, OP_ATTN_MERGE, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { k->o_part, k->lse }, .read = { before->o_part, before->lse, part, lse } });
}

void build_ring_fwd(struct build *b, const struct attention_w *w, struct attention_kept *k)
{
    const int cp = b->pr->group_size[GROUP_CP];
    int here[2] = { k->k, k->v }, next[2] = { 0 };
    for (int r = 0; r < cp; r++) {
        const struct attention_kept before = *k;
        if (r + 1 < cp) emit_shift(b, here, next);
        block_fwd(b, w, here[0], here[1], r, k);
        if (r) merge(b, &before, r + 1 == cp, k);
        here[0] = next[0], here[1] = next[1];
    }
}

void build_ring_bwd(struct build *b, const struct attention_w *w, int d_part, const struct attention_kept *k, int *dq, int d_own[2])
{
    const int cp = b->pr->group_size[GROUP_CP];
    int here[2] = { k->k, k->v }, next[2] = { 0 }, sum[2] = { 0 }, came[2] = { 0 };
    for (int r = 0; r < cp; r++) {
        if (r + 1 < cp) emit_shift(b, here, next);
        if (r) emit_shift(b, sum, came);
        const int dq_r = emit_like(b, k->q, b->pr->buf[k->q].cols);
        const int dk = emit_like(b, here[0], b->pr->buf[here[0]].cols), dv = emit_like(b, here[1], b->pr->buf[here[1]].cols);
        struct op *o = emit(b, OP_ATTN_BWD, STREAM_COMPUTE, GROUP_NONE,
                            (struct io){ .write = { dq_r, dk, dv },
                                         .add = { w->sink.g },
                                         .read = { k->q, here[0], here[1], k->o_part, k->lse, d_part,
                                                   emit_documents(b, PACKED_ATTENTION) } });
        o->window = model_layer(&b->j->model, b->layer).window;
        o->ring = (int16_t)(1 + r);
        *dq = r ? emit_add(b, *dq, dq_r) : dq_r;
        sum[0] = r ? emit_add(b, came[0], dk) : dk;
        sum[1] = r ? emit_add(b, came[1], dv) : dv;
        here[0] = next[0], here[1] = next[1];
    }
    emit_shift(b, sum, d_own);
}
