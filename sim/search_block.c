/* Memos over program_build_block: prices, states, and once-a-step work. Each has its own key, the sizes
 * that its values depend on and nothing more; a test holds equal keys to equal values. */
#include "sim/search_block.h"
#include "sim/search_memo.h"
#include <assert.h>
#include <stdio.h>

enum memo_kind { MEMO_PRICE, MEMO_WOVEN, MEMO_STATES, MEMO_ONCE, MEMO_SHIFT, MEMO_COUNT };

struct search_blocks {
    const struct search_space *space;
    struct arena *arena;
    struct memo memo[MEMO_COUNT];
    struct last price[BLOCK_COUNT][LAST_SETS], states[BLOCK_COUNT], woven[4][LAST_SETS];
    struct job job;
    struct arena scratch;               /* of one block, cleared once it is priced */
};

/* ---- keys ---- */

static int sees_experts(const struct search_space *s, enum block k)
{
    return k == BLOCK_MOE || (k == BLOCK_LOSS && s->mtp && s->job->model.experts);
}

/* pp: the embedding and the loss, alone on one stage, share what each has of its own on two. */
static struct key key_of(const struct search_blocks *b, const struct search_point *p, enum block k)
{
    const struct search_grid *g = &b->space->grid[p->grid];
    struct key key = { .block = (int32_t)k, .tp = g->tp, .etp = 1, .ep = 1 };
    key.pp = g->pp > 1 && (k == BLOCK_EMBED || k == BLOCK_LOSS);
    if (sees_experts(b->space, k)) key.etp = g->etp, key.ep = g->ep;
    return key;
}

/* ---- building ---- */

struct built { struct arena *arena; struct program pr; struct cost cost; const double *op_s; };

static void built_open(struct built *t, struct search_blocks *b, const struct search_point *p, int recompute,
                       enum block k, int mtp)
{
    struct diag d;
    *t = (struct built){ .arena = &b->scratch };
    b->job = *b->space->job;
    search_space_plan(&b->job, b->space, p, recompute, &d);
    b->job.plan.mtp = mtp;
    program_build_block(&t->pr, t->arena, &b->job, k);
    load_apply(&t->pr, &b->job);
    cost_init(&t->cost, &t->pr, &b->job);
    t->op_s = cost_all_s(&t->cost, t->arena);
}

/* With one chunk the embedding and the loss share one DATA op, and the input table with its gathers where MTP reads it again:
 * they are counted with the loss. */
static int counts_op(const struct search_blocks *b, enum block k, const struct op *o)
{
    const int shared = o->kind == OP_DATA || (b->space->mtp && (o->stream == STREAM_DP || o->kind == OP_ZERO));
    return !shared || k != BLOCK_EMBED || b->job.plan.pp > 1;
}

/* See emit_stream. */
static int exchanges_in_order(const struct op *o)
{
    return o->stream == STREAM_COMPUTE && (o->group == GROUP_EP || o->group == GROUP_ETP || o->group == GROUP_TPEP);
}

/* Parameters cut over replicas are gathered a layer ahead: in a block alone, what waits for them would wait too long. They
 * only keep their stream busy. */
static int comes_ahead(const struct op *o)
{
    return o->kind == OP_GATHER && o->stream == STREAM_DP;
}

static const int8_t lane_stream[LANE_COUNT] = { STREAM_COMPUTE, STREAM_TP, STREAM_CP, STREAM_EP, STREAM_DP, PASS_HOST };

/* No op of the run is on a stream that is no lane. */
static int lanes_hold(const struct pass_price *p)
{
    double all_s = 0, lanes_s = 0;
    for (int k = 0; k < STREAM_COUNT; k++) all_s += p->busy_s[k];
    for (int k = 0; k < LANE_HOST; k++) lanes_s += p->busy_s[lane_stream[k]];
    return all_s <= lanes_s * (1 + 1e-9);
}

static void half_read(struct search_half *h, const struct pass_price *p, int data)
{
    assert(lanes_hold(p));
    for (int k = 0; k < LANE_COUNT; k++) {
        const int at = lane_stream[k];
        h->diag_s[k] = p->m[at][at];
        h->in_s[k] = p->m[at][data];
        h->out_s[k] = p->m[data][at];
        h->busy_s[k] = k == LANE_HOST ? 0 : p->busy_s[at];
    }
    h->through_s = p->m[data][data];
}

static void half_price(struct search_half *h, struct built *t, const struct search_blocks *b,
                       enum block block, enum pass_kind kind)
{
    const struct chunk *c = &t->pr.chunk[0];
    const int fwd = kind == PASS_FWD;
    const int input = kind == PASS_BWD || kind == PASS_BWD_INPUT;
    const struct pass_edge edge = { .in = { fwd ? c->x_in : 0, fwd ? 0 : c->dy_in },
                                    .out = { fwd ? c->x_out : 0, input ? c->dx_out : 0 } };
    int32_t *order = arena_alloc(t->arena, (size_t)(c->reduce - c->fwd + 1) * sizeof *order);
    int n = 0, timed = 0;
    double issue_s = 0, exchange_s = 0, ahead_s = 0;
    for (int i = fwd ? c->fwd : c->bwd; i < (fwd ? c->bwd : c->reduce); i++) {
        const int weight = (t->pr.op[i].flags & OP_WEIGHT_GRAD) != 0;
        if ((kind == PASS_BWD_INPUT && weight) || (kind == PASS_BWD_WEIGHT && !weight)) continue;
        if (!counts_op(b, block, &t->pr.op[i])) continue;
        order[n++] = i;
        issue_s += cost_issue_s(&t->cost, i);
        if (exchanges_in_order(&t->pr.op[i])) exchange_s += t->op_s[i];
    }
    struct pass_price all, price;
    pass_price(&all, &t->cost, t->op_s, kind, order, n, &edge);
    for (int i = 0; i < n; i++) {
        if (comes_ahead(&t->pr.op[order[i]])) ahead_s += t->op_s[order[i]];
        else order[timed++] = order[i];
    }
    if (timed < n) pass_price(&price, &t->cost, t->op_s, kind, order, timed, &edge);
    half_read(h, timed < n ? &price : &all, fwd ? PASS_DATA : PASS_DATA_BWD);
    h->net_B = all.net_B, h->peak_B = all.peak_B;
    h->diag_s[LANE_DP] += ahead_s;
    h->busy_s[LANE_DP] += ahead_s;
    h->busy_s[LANE_HOST] = issue_s;
    h->exchange_s = exchange_s;
}

static struct search_block *price_new(struct search_blocks *b, const struct search_point *p, int recompute, enum block k,
                                      int mtp)
{
    struct search_block *v = arena_alloc(b->arena, sizeof *v);
    struct built t;
    b->memo[MEMO_PRICE].n++;
    built_open(&t, b, p, recompute, k, mtp);
    static const struct search_half nothing;
    const int split = b->job.plan.split_wgrad;
    struct search_half *weight = split ? arena_alloc(b->arena, sizeof *weight) : NULL;
    v->weight = split ? weight : &nothing;
    half_price(&v->fwd, &t, b, k, PASS_FWD);
    half_price(&v->bwd, &t, b, k, split ? PASS_BWD_INPUT : PASS_BWD);
    if (split) half_price(weight, &t, b, k, PASS_BWD_WEIGHT);
    const int edge = t.pr.chunk[0].x_in ? t.pr.chunk[0].x_in : t.pr.chunk[0].x_out;
    v->edge_B = (double)program_B(&t.pr, edge);
    for (int i = 1; i < t.pr.n_buf; i++)
        if (t.pr.buf[i].keep == KEEP_CACHE && t.pr.buf[i].chunk < 0) v->cache_B += (double)program_B(&t.pr, i);
    arena_clear(t.arena);
    return v;
}

static const struct search_block *block_price(struct search_blocks *b, const struct search_point *p,
                                              int recompute, enum block k, int mtp)
{
    struct key key = key_of(b, p, k);
    if (k == BLOCK_LOSS && !mtp) key.etp = key.ep = 1;
    key.fsdp = p->way.fsdp;
    if (key.fsdp) key.pp = b->space->grid[p->grid].pp, key.order = p->order;    /* replicas, and where they are */
    key.mtp = k == BLOCK_LOSS ? mtp : 0;
    key.recompute = recompute;
    key.cp = b->space->grid[p->grid].cp;
    key.mbs = p->mbs;
    const int experts = sees_experts(b->space, k) && (k == BLOCK_MOE || mtp);
    key.weave = experts && p->way.weave;                /* which stream exchanges are on */
    key.dispatcher = experts ? p->way.dispatcher : 0;
    key.cp_comm = k == BLOCK_EMBED || (k == BLOCK_LOSS && !mtp) ? 0 : p->way.cp_comm;
    struct last *last = &b->price[k][last_of(&key)];
    if (is_last(last, &key)) return last->value;
    void **at = memo_find(&b->memo[MEMO_PRICE], b->arena, &key);
    if (!*at) *at = price_new(b, p, recompute, k, mtp);
    *last = (struct last){ key, *at };
    return *at;
}

const struct search_block *search_block_price(struct search_blocks *b, const struct search_point *p,
                                              int recompute, enum block k)
{
    return block_price(b, p, recompute, k, b->space->mtp);
}

const struct search_block *search_block_head(struct search_blocks *b, const struct search_point *p, int recompute)
{
    return block_price(b, p, recompute, BLOCK_LOSS, 0);
}

/* ---- other ways ---- */

static void shift_add(struct search_shift *v, const struct search_half *h, double times)
{
    for (int k = 0; k < LANE_COUNT; k++) v->busy_s[k] += times * h->busy_s[k];
    v->exchange_s += times * h->exchange_s;
}

/* One block under two ways. */
static const struct search_shift *shift(struct search_blocks *b, const struct key *key, struct search_point p,
                                        struct search_way way, int recompute, enum block k)
{
    void **at = memo_find(&b->memo[MEMO_SHIFT], b->arena, key);
    if (*at) return *at;
    struct search_shift *v = *at = arena_alloc(b->arena, sizeof *v);
    b->memo[MEMO_SHIFT].n++;
    for (int after = 0; after < 2; after++) {
        p.way = after ? way : b->space->plain;
        const struct search_block *x = search_block_price(b, &p, recompute, k);
        shift_add(v, &x->fwd, after ? 1 : -1);
        shift_add(v, &x->bwd, after ? 1 : -1);
        shift_add(v, x->weight, after ? 1 : -1);
    }
    return v;
}

const struct search_shift *search_block_shift_cp(struct search_blocks *b, const struct search_point *p, int recompute)
{
    const struct search_grid *g = &b->space->grid[p->grid];
    const struct model *m = &b->space->job->model;
    const struct key key = { .block = BLOCK_DENSE, .recompute = recompute, .tp = g->tp, .cp = g->cp, .mbs = p->mbs,
                             .cp_comm = p->way.cp_comm };
    struct search_way way = b->space->plain;
    way.cp_comm = p->way.cp_comm;
    return shift(b, &key, *p, way, recompute, m->experts && !m->dense_layers ? BLOCK_MOE : BLOCK_DENSE);
}

const struct search_shift *search_block_shift_ep(struct search_blocks *b, const struct search_point *p, int recompute)
{
    const struct search_grid *g = &b->space->grid[p->grid];
    const struct key key = { .block = BLOCK_MOE, .recompute = recompute, .tp = g->tp * g->cp, .etp = g->etp, .ep = g->ep,
                             .mbs = p->mbs, .dispatcher = p->way.dispatcher };
    struct search_way way = b->space->plain;
    way.dispatcher = p->way.dispatcher;
    return shift(b, &key, *p, way, recompute, BLOCK_MOE);
}

const struct search_shift *search_block_shift_fsdp(struct search_blocks *b, const struct search_point *p, int recompute,
                                                   enum block k)
{
    const struct search_grid *g = &b->space->grid[p->grid];
    const struct key key = { .block = (int32_t)k, .recompute = recompute, .tp = g->tp, .cp = g->cp, .etp = g->etp, .ep = g->ep,
                             .pp = g->pp, .order = p->order, .fsdp = 1 };
    struct search_way way = b->space->plain;
    way.fsdp = 1;
    return shift(b, &key, *p, way, recompute, k);
}

/* ---- woven ---- */

enum { PARTS = 4, WOVEN_LAYERS = 3 };       /* parts of a MoE layer; enough layers that one is inside */

/* A plan of one stage whose merged pass weaves WOVEN_LAYERS MoE layers; groups inside a layer are those of
 * the point. */
static void woven_job(struct job *j, const struct search_blocks *b, const struct search_point *p,
                      int recompute, int phase)
{
    const struct search_grid *g = &b->space->grid[p->grid];
    struct plan *to = &j->plan;
    struct diag d;
    *j = *b->space->job;
    j->model.dense_layers = phase;
    j->model.layers = phase + WOVEN_LAYERS;
    to->tp = g->tp, to->cp = g->cp, to->etp = g->etp, to->ep = g->ep, to->mbs = p->mbs,
    to->recompute = recompute, to->dispatcher = p->way.dispatcher, to->cp_comm = p->way.cp_comm;
    to->graph = b->space->graph;
    to->fsdp = 0;                       /* replicas are not those of the point; cutting adds work only */
    to->pp = to->vpp = 1;
    to->order = ORDER_TP_CP_EP_DP_PP;
    to->gbs = to->gpus / (to->tp * to->cp) * to->mbs * 2;
    to->mtp = to->vpp_group = 0;
    to->schedule = -1, to->ep_overlap = 1, to->sp = -1;
    if (!b->space->fixed[SEARCH_KEY_CAPACITY]) to->capacity = 0;
    snprintf(to->layout, sizeof to->layout, "auto");
    plan_resolve(j, &d);
}

/* The pass takes a part of backward, then one of forward, and so on. Adds the diagonal of its parts `from` ..
 * `to` of both halves, layers' ops only: what else stands there makes it longer. */
static void woven_add(double sum_s[LANE_COUNT], struct built *t, const struct pass *pass, int from, int to)
{
    static const struct pass_edge none = { { 0, 0 }, { 0, 0 } };
    int32_t *order = arena_alloc(t->arena, (size_t)pass->n * sizeof *order);
    struct pass_price price;
    int n = 0, part[2] = { -1, -1 };
    for (int i = 0, half = -1; i < pass->n; i++) {
        const int op = t->pr.order[pass->first + i];
        const struct op *o = &t->pr.op[op];
        if (o->half != half) part[half = o->half]++;
        if (part[half] >= from && part[half] <= to && o->layer >= 0) order[n++] = op;
    }
    pass_price(&price, &t->cost, t->op_s, PASS_FWD_BWD, order, n, &none);
    for (int k = 0; k < LANE_COUNT; k++) sum_s[k] += price.m[lane_stream[k]][lane_stream[k]];
}

const struct search_woven *search_block_woven(struct search_blocks *b, const struct search_point *p,
                                              int recompute, int phase)
{
    struct key key = key_of(b, p, BLOCK_MOE);
    key.recompute = recompute;
    key.cp = b->space->grid[p->grid].cp;
    key.mbs = p->mbs;
    key.dispatcher = p->way.dispatcher, key.cp_comm = p->way.cp_comm;
    key.order = phase;
    struct last *last = &b->woven[phase][last_of(&key)];
    if (is_last(last, &key)) return last->value;
    void **at = memo_find(&b->memo[MEMO_WOVEN], b->arena, &key);
    *last = (struct last){ key, *at };
    if (*at) return *at;
    struct search_woven *v = *at = arena_alloc(b->arena, sizeof *v);
    struct built t = { .arena = &b->scratch };
    const struct pass *pass;
    b->memo[MEMO_WOVEN].n++;
    woven_job(&b->job, b, p, recompute, phase);
    program_build(&t.pr, t.arena, &b->job);
    load_apply(&t.pr, &b->job);
    cost_init(&t.cost, &t.pr, &b->job);
    t.op_s = cost_all_s(&t.cost, t.arena);
    for (pass = t.pr.pass; pass->kind != PASS_FWD_BWD;) pass++;
    woven_add(v->inside_s, &t, pass, PARTS, 2 * PARTS - 1);
    if (!phase) woven_add(v->ends_s, &t, pass, 0, PARTS - 1);
    if (!phase) woven_add(v->ends_s, &t, pass, PARTS * WOVEN_LAYERS, PARTS * WOVEN_LAYERS);
    arena_clear(t.arena);
    return v;
}

/* ---- states ---- */

/* Optimizer bytes of one element of a bucket, before it is shared; of one that is cut, with its weight and gradient. */
static double state_B(const struct program *pr, const struct bucket *k)
{
    const int32_t id[] = { k->master, k->m, k->v };
    double bytes = 0;
    for (int i = 0; i < LEN(id); i++)
        if (id[i]) bytes += dtype_B((enum dtype)pr->buf[id[i]].dtype);
    if (k->whole) bytes += dtype_B((enum dtype)pr->buf[k->w].dtype) + dtype_B((enum dtype)pr->buf[k->g].dtype);
    return bytes;
}

static const struct bucket *bucket_of(const struct program *pr, int w)
{
    for (int i = 0; i < pr->n_bucket; i++) {
        const struct bucket *k = &pr->bucket[i];
        if (program_root(pr, k->whole ? k->whole : k->w) == w) return k;
    }
    return NULL;
}

/* A copy of a weight in low precision. */
static int is_copy(const struct program *pr, int id)
{
    const struct buf *b = &pr->buf[id];
    return b->keep == KEEP_WEIGHT && !b->view && dtype_formats[b->dtype].bits <= 8 && !bucket_of(pr, id);
}

/* Parameters, not buckets, are counted: padding depends on how many share, and one stage's two uses of an
 * input table are one table. */
static void states_read(struct search_states *v, const struct program *pr, int skip_table)
{
    for (int i = 0; i < pr->n_param; i++) {
        const struct param *p = &pr->param[i];
        const struct bucket *k = bucket_of(pr, program_root(pr, p->w));
        if (skip_table && p->name == PARAM_EMBEDDING) continue;
        if (pr->buf[p->w].keep == KEEP_WEIGHT) v->own_B += (double)buf_B(&pr->buf[p->w]);
        if (p->g && pr->buf[p->g].keep == KEEP_GRADIENT) v->own_B += (double)buf_B(&pr->buf[p->g]);
        if (!k) continue;
        const double n = (double)(pr->buf[p->w].rows * pr->buf[p->w].cols);
        *(k->share_group == GROUP_EDP ? &v->expert_B : &v->dense_B) += n * state_B(pr, k);
    }
    for (int i = 1; i < pr->n_buf; i++)
        if (is_copy(pr, i)) v->own_B += (double)buf_B(&pr->buf[i]);
}

const struct search_states *search_block_states(struct search_blocks *b, const struct search_point *p,
                                                enum block k)
{
    const struct search_grid *g = &b->space->grid[p->grid];
    struct key key = key_of(b, p, k);
    key.fsdp = p->way.fsdp ? 1 + (g->dp * g->cp > 1) + 2 * (g->edp > 1) : 0;     /* what can be cut */
    if (is_last(&b->states[k], &key)) return b->states[k].value;
    void **at = memo_find(&b->memo[MEMO_STATES], b->arena, &key);
    b->states[k] = (struct last){ key, *at };
    if (*at) return *at;
    struct search_states *v = *at = arena_alloc(b->arena, sizeof *v);
    struct built t;
    b->memo[MEMO_STATES].n++;
    built_open(&t, b, p, 0, k, b->space->mtp);
    states_read(v, &t.pr, k == BLOCK_LOSS && b->job.plan.pp == 1);
    arena_clear(t.arena);
    return v;
}

/* ---- once a step ---- */

static double *once_of(struct search_once *v, enum op_kind k)
{
    switch (k) {
    case OP_ZERO: case OP_AMAX: case OP_QUANTIZE: return &v->zero_s;
    case OP_GRAD_SCATTER: return &v->scatter_s;
    case OP_SUMSQ: return &v->sumsq_s;
    case OP_ADAMW: case OP_SGD: return &v->update_s;
    case OP_PARAM_GATHER: return &v->gather_s;
    default: return NULL;
    }
}

static int is_table(const struct program *pr, int root)
{
    for (int i = 0; i < pr->n_param; i++) {
        const struct param *p = &pr->param[i];
        if (p->name != PARAM_EMBEDDING) continue;
        if (program_root(pr, p->w) == root || (p->g && program_root(pr, p->g) == root)) return 1;
    }
    return 0;
}

/* Blocks share their stage's metric, and of one stage the input table. */
static int once_counts(const struct program *pr, const struct op *o, int skip_table)
{
    struct use use[OP_USES];
    const int n = op_uses(use, pr, o);
    for (int k = 0; k < n; k++) {
        if (o->kind == OP_ZERO && pr->buf[use[k].buf].keep == KEEP_METRIC) return 0;
        if (skip_table && is_table(pr, use[k].buf)) return 0;
    }
    return 1;
}

static void once_read(struct search_once *v, const struct built *t, int skip_table)
{
    for (int i = t->pr.chunk[0].reduce; i < t->pr.stage[0].end; i++) {
        const struct op *o = &t->pr.op[i];
        const int early = o->kind == OP_PARAM_GATHER && i < t->pr.stage[0].optim;
        double *sum = early ? &v->early_s : once_of(v, (enum op_kind)o->kind);
        if (sum && once_counts(&t->pr, o, skip_table)) *sum += t->op_s[i];
        if (o->kind == OP_ALL_REDUCE && o->group == GROUP_WORLD) v->world_s = t->op_s[i];
    }
}

const struct search_once *search_block_once(struct search_blocks *b, const struct search_point *p,
                                            enum block k)
{
    const struct search_grid *g = &b->space->grid[p->grid];
    struct key key = { .block = (int32_t)k, .tp = g->tp, .cp = g->cp, .etp = g->etp, .ep = g->ep };
    key.pp = g->pp;
    key.order = p->order;
    key.fsdp = p->way.fsdp;
    void **at = memo_find(&b->memo[MEMO_ONCE], b->arena, &key);
    if (*at) return *at;
    struct search_once *v = *at = arena_alloc(b->arena, sizeof *v);
    struct built t;
    b->memo[MEMO_ONCE].n++;
    built_open(&t, b, p, 0, k, b->space->mtp);
    once_read(v, &t, k == BLOCK_LOSS && b->job.plan.pp == 1);
    arena_clear(t.arena);
    return v;
}

/* ---- the whole ---- */

struct search_blocks *search_block_open(struct arena *a, const struct search_space *s)
{
    struct search_blocks *b = arena_alloc(a, sizeof *b);
    b->space = s;
    b->arena = a;
    for (int m = 0; m < MEMO_COUNT; m++) memo_init(&b->memo[m], a, 1024);
    return b;
}

void search_block_close(struct search_blocks *b)
{
    arena_free(&b->scratch);
}
