/* The MoE half of a layer: router, permute, dispatch, (etp gather), grouped GEMMs with the routing weight
 * applied in the activation, combine, unpermute; the shared expert on this rank's own tokens. Combine's
 * gradient is a dispatch, so both halves share the walks to and fro (emit_to_experts, emit_to_tokens).
 * Dispatchers that send whole tokens (emit_tokens.c) neither permute before nor unpermute after. */
#include "models/build.h"

struct moe_w build_moe_weights(struct build *b)
{
    const struct model *m = &b->j->model;
    struct moe_w w = { 0 };
    w.norm = build_weight(b, build_param(b, PARAM_MLP_NORM, model_norm_rows(m), m->hidden, SHARD_NONE, 0));
    w.router = build_weight(b, build_param(b, PARAM_ROUTER, m->experts, m->hidden, SHARD_NONE, 0));
    if (model_has_bias(m, BIAS_ROUTER)) build_bias(b, &w.router, PARAM_ROUTER_SHIFT, m->experts, SHARD_NONE, 0);
    if (m->selection_bias) w.bias = build_constant(b, PARAM_ROUTER_BIAS, 1, m->experts);
    if (m->shared_ffn) build_mlp_matrices(b, &w.shared, PARAM_SHARED_FC1, m->hidden, m->shared_ffn, 0);
    build_mlp_matrices(b, &w.routed, PARAM_EXPERT_FC1, model_expert_in(m), m->expert_ffn, m->experts);
    if (m->moe_latent) {
        w.down = build_weight(b, build_param(b, PARAM_LATENT_DOWN, m->moe_latent, m->hidden, SHARD_NONE, 0));
        w.up = build_weight(b, build_param(b, PARAM_LATENT_UP, m->hidden, m->moe_latent, SHARD_NONE, 0));
    }
    return w;
}

/* What the router leaves for backward beside scores and permutation, bytes a token: expert mask, mask after
 * dropping, final probabilities (bf16) and the auxiliary loss's softmax (fp32), E each; top-k indices and
 * those of groups (int64, a group gives topk / groups_kept); the fused permutation's row map (int32, 2 E +
 * 1). */
static int router_list_B(const struct model *m)
{
    const int groups_B = m->groups > 1 ? 8 * m->groups * (m->topk / m->groups_kept) : 0;
    return 8 * m->experts + groups_B + 8 * m->topk + 4 * (2 * m->experts + 1);
}

static int gathers_all(const struct build *b)
{
    return emit_by_tokens(b) && b->j->plan.dispatcher == DISPATCHER_ALLGATHER;
}

/* What losses of balance need in backward: how often experts are liked, by all who hold tokens of the micro-batch. */
static void route_load(struct build *b, struct moe_kept *k, int logit)
{
    const struct plan *p = &b->j->plan;
    k->logit = p->z_loss > 0 ? logit : 0;
    k->load = 0;
    if (p->balance == BALANCE_NONE) return;
    k->load = emit_buf(b, p->balance == BALANCE_SEQ_AUX ? p->mbs : 1, b->j->model.experts, DT_F32);
    emit(b, OP_ROUTE_LOAD, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { k->load }, .read = { k->score } });
    if (b->tok_sp < b->tok) emit_all_reduce(b, GROUP_TP, k->load, 0);
    emit_all_reduce(b, GROUP_CP, k->load, 0);
}

/* Scores and counts; when rows move between ranks, everybody's counts. */
static void route(struct build *b, const struct moe_w *w, struct moe_kept *k)
{
    const struct model *m = &b->j->model;
    const int64_t sent = plan_even_rows(b->j, 0), picks = b->tok_sp * m->topk;
    const enum routing_policy policy = (enum routing_policy)b->j->plan.routing.policy;
    const int64_t dropped = b->j->stack.runs && policy == ROUTING_PADDED ? picks : b->j->stack.runs ? picks - sent : 0;
    const int logit = emit_buf(b, b->tok_sp, m->experts, DT_F32);
    emit(b, OP_GEMM, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { logit }, .read = { k->n, w->router.w, w->router.bias } })
        ->flags |= OP_ROUTER;
    const int mine = emit_buf(b, 1, m->experts, DT_I32);
    k->score = emit_buf(b, b->tok_sp, m->experts, DT_F32);
    k->to = (struct route){ 0 };
    k->to.perm = emit_buf(b, sent + dropped, 2, DT_I32);
    k->to.prob = emit_buf(b, sent, 1, DT_F32);
    emit(b, OP_ROUTE, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { k->score, k->to.perm, k->to.prob, mine }, .read = { logit, w->bias } });
    const int again = build_recomputes(b, RECOMPUTE_MOE) || build_recomputes(b, RECOMPUTE_FULL);
    const int kept = !again || b->flags & OP_RECOMPUTE;     /* what is made here is what backward reads */
    if (kept) route_load(b, k, logit);
    if (b->j->stack.router_lists && kept)
        k->lists = emit_taken(b, b->tok_sp, router_list_B(m), DT_FP8);
    build_scope(b, GRAPH_MOE_PREPROCESS);
    if (gathers_all(b)) emit_allgather_plan(b, &k->to, k->score, mine);
    else if (emit_by_tokens(b)) emit_tokens_plan(b, &k->to, mine);
    else k->to.count = policy == ROUTING_PADDED ? mine : emit_gather(b, GROUP_TPEP, mine);
}

/* The sizes that follow from counts. Where rows stay, a framework whose grouped products take their sizes from the
 * host reads the counts all the same. */
static void sizes(struct build *b, struct moe_kept *k)
{
    const int padded = b->j->plan.routing.policy == ROUTING_PADDED;
    const int moves = b->pr->group_size[GROUP_TPEP] > 1 && (emit_by_tokens(b) || !padded);
    if (!moves && (b->j->stack.runs || !plan_host_reads(b->j))) return;
    const int size = emit_buf(b, 2, 1, DT_I32);
    if (moves) k->to.size = size;
    struct op *o =
        emit(b, OP_SIZES, STREAM_COMPUTE, GROUP_NONE,
             (struct io){ .write = { size }, .read = { k->to.map && !b->j->stack.runs ? k->to.map : k->to.count } });
    if (plan_host_reads(b->j)) o->flags |= OP_HOST_READS;
    if (!moves) emit_hold(b, size, 0, 0, 0);
    if (!gathers_all(b)) return;
    build_scope(b, GRAPH_MOE);                  /* picks as many rows as the sizes say */
    emit_allgather_pick(b, &k->to);
}

static int permute(struct build *b, int x, const struct route *to)
{
    const int y = emit_buf(b, b->pr->buf[to->prob].rows, b->pr->buf[x].cols, b->act);
    emit(b, OP_PERMUTE, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { y }, .read = { x, to->perm } });
    return y;
}

static int unpermute(struct build *b, int x, int perm, int residual)
{
    const int y = emit_buf(b, b->tok_sp, b->pr->buf[x].cols, b->act);
    emit(b, OP_UNPERMUTE, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { y }, .read = { x, perm, residual } });
    return y;
}

/* ---- tokens to experts and back, by either kind of dispatcher ---- */

static int to_send(struct build *b, int x, const struct route *to)
{
    return emit_by_tokens(b) ? x : permute(b, x, to);
}

/* prob: of every row sent, then of every row received, in forward; NULL: rows alone, in backward. */
static int send(struct build *b, int x, const struct route *to, int *prob)
{
    if (gathers_all(b)) {
        if (prob) *prob = to->pick_prob;
        return emit_allgather_out(b, x, to, prob != NULL);
    }
    if (emit_by_tokens(b)) return emit_tokens_out(b, x, to, prob);
    const int y = emit_to_experts(b, x, to);
    if (prob) *prob = emit_to_experts(b, *prob, to);
    return y;
}

/* The other way round: with prob, its gradient, in backward. */
static int send_back(struct build *b, int x, const struct route *to, int *prob)
{
    if (gathers_all(b)) {
        const int y = emit_allgather_back(b, x, to, prob == NULL);
        if (prob) *prob = emit_allgather_prob_back(b, *prob, to);
        return y;
    }
    if (emit_by_tokens(b)) return emit_tokens_back(b, x, to, prob);
    const int y = emit_to_tokens(b, x, to);
    if (prob) *prob = emit_to_tokens(b, *prob, to);
    return y;
}

/* What came back, as tokens; plus `residual` unless it is 0. */
static int as_tokens(struct build *b, int x, const struct route *to, int residual)
{
    if (!emit_by_tokens(b)) return unpermute(b, x, to->perm, residual);
    return residual ? emit_add(b, x, residual) : x;
}

/* ---- forward ---- */

/* The residual and the shared expert's output, which every token gets. */
static int shared(struct build *b, const struct moe_w *w, struct moe_kept *k)
{
    if (!w->shared.fc1.w) return k->x;
    return emit_add(b, k->x, build_mlp_inner_fwd(b, &w->shared, k->n, &k->shared));
}

static int moves_rows(enum op_kind k)
{
    switch (k) {
    case OP_PERMUTE: case OP_DISPATCH: case OP_UNSORT: case OP_COMBINE: case OP_DISPATCH_TOKENS: case OP_COMBINE_TOKENS: return 1;
    default: return 0;
    }
}

/* Rows in every order that tokens took since op `first`: permuted, dispatched, sorted back, combined. The
 * layer's forward has a variable for each until it returns (Megatron-LM 23e00ed,
 * core/transformer/moe/moe_layer.py). */
static void hold_rows(struct build *b, int first)
{
    int x[4] = { 0 }, n = 0;
    for (int i = first; i < b->pr->n_op && n < LEN(x); i++) {
        const struct op *o = &b->pr->op[i];
        if (moves_rows((enum op_kind)o->kind) &&
            b->pr->buf[o->io.write[0]].cols == model_expert_in(&b->j->model))
            x[n++] = o->io.write[0];
    }
    emit_hold(b, x[0], x[1], x[2], x[3]);
}

/* Latent experts (arXiv 2603.07685, section 7.3): tokens go narrow before they are sent, and wide again when
 * they are back. */
static int from_latent(struct build *b, const struct moe_w *w, int base, int back, struct moe_kept *k)
{
    k->latent = as_tokens(b, back, &k->to, 0);
    return emit_add(b, base, emit_gemm(b, k->latent, w->up));
}

static int to_latent_bwd(struct build *b, const struct moe_w *w, int dy, const struct moe_kept *k)
{
    if (!w->up.w) return dy;
    const int dlatent = emit_dgrad(b, dy, w->up);
    emit_wgrad(b, k->latent, dy, w->up);
    return dlatent;
}

static int from_latent_bwd(struct build *b, const struct moe_w *w, int drows, int dn_shared, int n,
                           const struct moe_kept *k)
{
    if (!w->down.w) return as_tokens(b, drows, &k->to, dn_shared);
    const int dlatent = as_tokens(b, drows, &k->to, 0), dn = emit_dgrad(b, dlatent, w->down);
    emit_wgrad(b, n, dlatent, w->down);
    return dn_shared ? emit_add(b, dn, dn_shared) : dn;
}

/* Everything behind the norm, in three parts of its own. */
static int experts_fwd(struct build *b, const struct moe_w *w, struct moe_kept *k)
{
    const struct model *m = &b->j->model;
    const int first = b->pr->n_op;
    const int late = !b->j->stack.runs;         /* a framework issues what needs no sizes before it waits for them */
    route(b, w, k);
    if (!late) sizes(b, k);
    int base = 0;
    if (!b->j->stack.moe_overlap) {
        if (w->shared.fc1.w) build_scope(b, GRAPH_MOE_ROUTER);
        base = shared(b, w, k);
    }
    build_scope(b, GRAPH_MOE_PREPROCESS);
    const int from = m->moe_latent ? emit_gemm(b, k->n, w->down) : k->n, x_send = to_send(b, from, &k->to);
    if (late) sizes(b, k);
    b->part++;
    build_scope(b, GRAPH_MOE);
    k->prob = k->to.prob;
    k->rows = send(b, x_send, &k->to, &k->prob);
    if (!base) base = shared(b, w, k);
    b->part++;
    k->fc1 = emit_grouped_gemm(b, k->rows, w->routed.fc1, k->to.count,
                               model_up(m) * m->expert_ffn / b->j->plan.etp);
    k->act = emit_act(b, k->fc1, k->prob);
    const int y = emit_grouped_gemm(b, k->act, w->routed.fc2, k->to.count, model_expert_in(m));
    b->part++;
    const int back = send_back(b, y, &k->to, NULL);
    k->back = emit_by_tokens(b) ? y : back;
    if (b->j->stack.hold_moe_rows == HOLD_ROWS_COMBINED) hold_rows(b, first);
    const int out = m->moe_latent ? from_latent(b, w, base, back, k) : as_tokens(b, back, &k->to, base);
    if (b->j->stack.hold_moe_rows == HOLD_ROWS_WHOLE) hold_rows(b, first);
    b->part++;
    return out;
}

int build_moe_fwd(struct build *b, const struct moe_w *w, int x, struct moe_kept *k)
{
    k->x = x;
    k->n = emit_norm(b, x, w->norm);
    return experts_fwd(b, w, k);
}

/* Recompute `moe`: forward again from the normed input, all inside one part of backward. Returns whether it
 * was. */
static int moe_again(struct build *b, const struct moe_w *w, struct moe_kept *k)
{
    const int part = b->part;
    if (!build_recomputes(b, RECOMPUTE_MOE)) return 0;
    k->n = build_norm_again(b, k->x, w->norm, k->n, 0);
    b->flags |= OP_RECOMPUTE;
    build_scope(b, GRAPH_MOE_ROUTER);
    experts_fwd(b, w, k);
    b->flags &= ~OP_RECOMPUTE;
    b->part = part;
    return 1;
}

static int moe_act(struct build *b, const struct moe_kept *k)
{
    if (!build_recomputes(b, RECOMPUTE_MOE_ACT)) return k->act;
    b->flags |= OP_RECOMPUTE;
    const int act = emit_act(b, k->fc1, k->prob);
    b->flags &= ~OP_RECOMPUTE;
    return act;
}

/* dy's rows at the experts -> gradients of the dispatched rows and of their weights; the weight gradient of
 * FC1 is the caller's, who may start the way back first. */
static void experts_bwd(struct build *b, const struct moe_w *w, const struct moe_kept *k, int d, int *drows,
                        int *dprob, int *dfc1)
{
    const struct model *m = &b->j->model;
    const int act = moe_act(b, k);
    const int dact = emit_grouped_dgrad(b, d, w->routed.fc2, k->to.count, m->expert_ffn / b->j->plan.etp);
    emit_grouped_wgrad(b, act, d, w->routed.fc2, k->to.count);
    *dfc1 = emit_act_bwd(b, k->fc1, dact, k->prob, dprob);
    *drows = emit_grouped_dgrad(b, *dfc1, w->routed.fc1, k->to.count, model_expert_in(m));
}

/* The router: gradient of the weights -> of the normed input. */
static int route_bwd(struct build *b, const struct moe_w *w, const struct moe_kept *k, int n, int dprob)
{
    const int dlogit = emit_like(b, k->score, b->j->model.experts), dn = emit_like(b, n, b->j->model.hidden);
    emit(b, OP_ROUTE_BWD, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { dlogit }, .read = { dprob, k->score, k->to.perm } });
    if (k->load || k->logit)
        emit(b, OP_BALANCE, STREAM_COMPUTE, GROUP_NONE,
             (struct io){ .add = { dlogit, b->pr->metric + b->stage }, .read = { k->score, k->load, k->logit } });
    if (k->lists) emit_hold(b, k->lists, 0, 0, 0);
    const int flags = b->flags;
    b->flags |= OP_ROUTER;
    emit(b, OP_DGRAD, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { dn }, .read = { dlogit, w->router.w } });
    emit_wgrad(b, n, dlogit, w->router);
    b->flags = flags;
    return dn;
}

static int shared_bwd(struct build *b, const struct moe_w *w, int dy, int n, const struct moe_kept *k)
{
    struct mlp_kept s = k->shared;
    if (!w->shared.fc1.w) return 0;
    if (build_recomputes(b, RECOMPUTE_SHARED_EXPERTS)) {
        b->flags |= OP_RECOMPUTE;
        build_mlp_inner_fwd(b, &w->shared, n, &s);
        b->flags &= ~OP_RECOMPUTE;
    }
    return build_mlp_inner_bwd(b, &w->shared, dy, n, &s);
}

/* With stack.moe_overlap the shared expert runs under the dispatch and FC1's weight gradient under the
 * combine. */
int build_moe_bwd(struct build *b, const struct moe_w *w, int dy, const struct moe_kept *kept)
{
    const int overlap = b->j->stack.moe_overlap;
    int drows, dprob, dfc1;
    struct moe_kept again = *kept;
    const int moe = moe_again(b, w, &again);
    build_scope(b, GRAPH_MOE);
    const struct moe_kept *k = &again;
    if (b->j->stack.keep_fc2) emit_hold(b, k->back, 0, 0, 0);   /* gradient of the probabilities */
    const int dsend = to_send(b, to_latent_bwd(b, w, dy, k), &k->to);
    b->part++;
    const int d = send(b, dsend, &k->to, NULL);
    const int n = moe ? k->n : build_norm_again(b, k->x, w->norm, k->n, 0);
    int dn_shared = overlap ? shared_bwd(b, w, dy, n, k) : 0;
    b->part++;
    experts_bwd(b, w, k, d, &drows, &dprob, &dfc1);
    if (!overlap) emit_grouped_wgrad(b, k->rows, dfc1, w->routed.fc1, k->to.count);
    b->part++;
    const int drows_tok = send_back(b, drows, &k->to, &dprob);
    if (overlap) emit_grouped_wgrad(b, k->rows, dfc1, w->routed.fc1, k->to.count);
    b->part++;
    build_scope(b, GRAPH_MOE_ROUTER);
    if (!overlap) dn_shared = shared_bwd(b, w, dy, n, k);
    const int dn_routed = from_latent_bwd(b, w, drows_tok, dn_shared, n, k);
    const int dn_router = route_bwd(b, w, k, n, dprob);
    return emit_norm_bwd(b, k->x, w->norm, emit_add(b, dn_routed, dn_router), dy);
}
