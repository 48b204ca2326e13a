/* The dispatcher that gathers everything (Megatron-LM token_dispatcher.py, MoEAllGatherTokenDispatcher): hidden
 * states, routing map and scores of all ranks of etp x ep come to each, which picks the rows of its own experts;
 * going back, each fills rows for all tokens and they are summed and scattered. That sum is made in the router's
 * type, fp32, and so is its gradient's gather. */
#include "models/emit.h"

static int as(struct build *b, int x, enum dtype t)
{
    if (b->pr->buf[x].dtype == t) return x;
    const int y = emit_like(b, x, b->pr->buf[x].cols);
    b->pr->buf[y].dtype = (uint8_t)t;
    emit(b, OP_SPLIT, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { y }, .read = { x } });
    return y;
}

void emit_allgather_plan(struct build *b, struct route *r, int score, int mine)
{
    r->count = b->j->stack.runs ? emit_gather(b, GROUP_TPEP, mine) : mine;
    r->map = emit_gather(b, GROUP_TPEP, emit_tokens_map(b, r));
    r->score = emit_gather(b, GROUP_TPEP, score);
}

void emit_allgather_pick(struct build *b, struct route *r)
{
    const int at = b->pr->group_size[GROUP_ETP] > 1;
    r->pick = emit_routed(b, r->perm, r, at);
    r->pick_prob = emit_routed(b, r->prob, r, at);
    emit(b, OP_PICK, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { r->pick, r->pick_prob }, .read = { r->map, r->score } });
    emit_pad(b, r->pick_prob);
}

int emit_allgather_out(struct build *b, int x, const struct route *r, int forward)
{
    const enum dtype t = (enum dtype)b->pr->buf[x].dtype;
    const int wide = forward ? x : as(b, x, DT_F32), all = as(b, emit_gather(b, GROUP_TPEP, wide), t);
    const int y = emit_routed(b, x, r, b->pr->group_size[GROUP_ETP] > 1);
    emit(b, OP_PERMUTE, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { y }, .read = { all, r->pick } });
    emit_pad(b, y);
    return y;
}

int emit_allgather_back(struct build *b, int x, const struct route *r, int forward)
{
    const enum dtype t = (enum dtype)b->pr->buf[x].dtype;
    const int all = emit_buf(b, b->tok_sp * b->pr->group_size[GROUP_TPEP], b->pr->buf[x].cols, t);
    emit(b, OP_UNPERMUTE, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { all }, .read = { x, r->pick } });
    const int wide = forward ? as(b, all, DT_F32) : all;
    return as(b, emit_scatter(b, GROUP_TPEP, wide), t);
}

int emit_allgather_prob_back(struct build *b, int dprob, const struct route *r)
{
    const int all = emit_like(b, r->score, b->pr->buf[r->score].cols);
    emit(b, OP_PICK_BWD, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { all }, .read = { dprob, r->pick } });
    return emit_scatter(b, GROUP_TPEP, all);
}
