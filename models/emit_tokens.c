/* Dispatchers that send whole tokens: nothing is permuted before they go, a token goes once to each rank that
 * holds experts of it, and arrives as rows sorted by expert; on the way back ranks add up what is one
 * token's. They span etp x ep: a token goes to every member of its experts' etp groups, so there is no gather
 * over etp (Megatron-LM token_dispatcher.py, MoEFlexTokenDispatcher). The kernel that permutes is part of the
 * op (hybrid-ep: dispatch_with_permute). */
#include "models/emit.h"

int emit_by_tokens(const struct build *b)
{
    return b->j->plan.dispatcher != DISPATCHER_ALLTOALL && b->pr->group_size[GROUP_TPEP] > 1;
}

/* Who of this rank's tokens picks whom, a byte each: what frameworks have at hand, our executor makes of its list. */
int emit_tokens_map(struct build *b, const struct route *r)
{
    const int experts = b->j->model.experts;
    if (!b->j->stack.runs) return emit_taken(b, b->tok_sp, experts, DT_FP8);
    const int map = emit_buf(b, b->tok_sp, experts, DT_FP8);
    emit(b, OP_ROUTE_MAP, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { map }, .read = { r->perm } });
    return map;
}

/* DeepEP exchanges counts. HybridEP gathers the routing map, a byte a token and expert (fused_a2a.py,
 * hybrid-ep guide). */
void emit_tokens_plan(struct build *b, struct route *r, int mine)
{
    if (b->j->plan.dispatcher == DISPATCHER_DEEPEP) {
        r->count = emit_gather(b, GROUP_TPEP, mine);
        return;
    }
    r->count = b->j->stack.runs ? emit_gather(b, GROUP_TPEP, mine) : mine;
    r->map = emit_gather(b, GROUP_TPEP, emit_tokens_map(b, r));
}

int emit_tokens_out(struct build *b, int x, const struct route *r, int *prob)
{
    const int at = b->pr->group_size[GROUP_ETP] > 1;
    const int y = emit_routed(b, x, r, at), weight = prob ? emit_routed(b, *prob, r, at) : 0;
    emit(b, OP_DISPATCH_TOKENS, emit_stream(b, GROUP_TPEP), GROUP_TPEP,
         (struct io){ .write = { y, weight }, .read = { x, r->count, prob || b->j->stack.runs ? r->map : 0, prob ? *prob : 0 } });
    emit_pad(b, y);
    if (prob) emit_pad(b, *prob = weight);
    return y;
}

int emit_tokens_back(struct build *b, int x, const struct route *r, int *prob)
{
    const int y = emit_buf(b, b->tok_sp, b->pr->buf[x].cols, (enum dtype)b->pr->buf[x].dtype);
    const int weight = prob ? emit_buf(b, b->pr->buf[r->perm].rows, 1, DT_F32) : 0;
    emit(b, OP_COMBINE_TOKENS, emit_stream(b, GROUP_TPEP), GROUP_TPEP,
         (struct io){ .write = { y, weight }, .read = { x, r->count, prob ? *prob : 0, b->j->stack.runs ? r->map : 0 } });
    if (prob) *prob = weight;
    return y;
}
