/* See search_bound.h. A stage is a count of blocks per chunk (a shape, shared by all plans with as many chunks); all sums
 * run over at most BLOCK_COUNT kinds of blocks, so a bound costs a microsecond. Warm-up and groups are sched.c's. */
#include "sim/search_bound.h"
#include <math.h>
#include <string.h>

struct shape { int16_t n[BLOCK_COUNT]; };       /* blocks on one chunk, in this order: EMBED, DENSE, MOE, LOSS */

struct search_bounds {
    const struct search_space *space;
    struct search_blocks *blocks;
    struct shape *shape[LAYOUT_CHUNKS + 1];     /* by number of chunks; NULL: not yet asked for                */
    struct arena *arena;
};

/* A plan, as the functions below see it. */
struct view {
    const struct search_space *space;
    const struct search_grid *g;
    const struct shape *shape;                  /* of chunk c                                                  */
    const struct search_block *block[BLOCK_COUNT];
    struct search_blocks *blocks;
    const struct search_point *point;
    int pp, vpp, n_micro, group, weave, split, recompute;
};

static const enum block view_blocks[] = { BLOCK_EMBED, BLOCK_DENSE, BLOCK_MOE, BLOCK_LOSS };

/* ---- shapes ---- */

static const struct shape *shape_of(struct search_bounds *b, int n_chunk)
{
    if (b->shape[n_chunk]) return b->shape[n_chunk];
    const struct job *j = b->space->job;
    struct shape *s = arena_alloc(b->arena, (size_t)n_chunk * sizeof *s);
    struct layout l;
    struct diag d;
    layout_parse(&l, b->space->fixed[SEARCH_KEY_LAYOUT] ? j->plan.layout : "auto", j->model.layers, b->space->mtp, n_chunk, 1, &d);
    for (int c = 0; c < n_chunk; c++)
        for (int layer = l.first[c]; layer < l.first[c + 1]; layer++)
            s[c].n[model_is_moe(&j->model, layer) ? BLOCK_MOE : BLOCK_DENSE]++;
    s[0].n[BLOCK_EMBED] = 1;
    s[n_chunk - 1].n[BLOCK_LOSS] = 1;
    return b->shape[n_chunk] = s;
}

static struct view view_of(struct search_bounds *b, const struct search_point *p)
{
    const struct search_grid *g = &b->space->grid[p->grid];
    const struct plan *plan = &b->space->job->plan;
    return (struct view){ .space = b->space, .g = g, .blocks = b->blocks, .point = p, .shape = shape_of(b, g->pp * p->vpp), .pp = g->pp, .vpp = p->vpp,
                          .n_micro = plan->gbs / (g->dp * p->mbs), .weave = p->weave, .split = plan->split_wgrad != 0,
                          .group = p->vpp == 1 ? plan->gbs : b->space->group ? b->space->group : g->pp };
}

static void view_prices(struct view *v, struct search_bounds *b, const struct search_point *p, int recompute)
{
    const struct model *m = &b->space->job->model;
    v->recompute = recompute;
    for (int i = 0; i < LEN(view_blocks); i++) {
        const enum block k = view_blocks[i];
        const int none = (k == BLOCK_DENSE && m->experts && !m->dense_layers) || (k == BLOCK_MOE && !m->experts);
        if (!none) v->block[k] = search_block_price(b->blocks, p, recompute, k);
    }
}

/* First and last block of a chunk that is not empty. */
static const struct search_block *view_first(const struct view *v, int chunk)
{
    int i = 0;
    while (!v->shape[chunk].n[view_blocks[i]]) i++;
    return v->block[view_blocks[i]];
}

/* ---- sums over blocks ---- */

struct streams { double s[PASS_DATA]; };

static void add(struct streams *to, const double x_s[PASS_DATA], double times)
{
    for (int k = 0; k < PASS_DATA; k++) to->s[k] += times * x_s[k];
}

/* `alone_f` and `alone_b` of a chunk's slots are forward and backward passes of their own, the rest merged ones. */
static void add_chunk(struct streams *to, const struct view *v, int chunk, double alone_f, double alone_b)
{
    for (int i = 0; i < LEN(view_blocks); i++) {
        const double n = v->shape[chunk].n[view_blocks[i]];
        const struct search_block *b = v->block[view_blocks[i]];
        if (!n) continue;
        add(to, b->fwd.diag_s, n * alone_f);
        add(to, b->bwd.diag_s, n * alone_b);
        if (alone_f < v->n_micro) add(to, b->fwd.busy_s, n * (v->n_micro - alone_f));
        if (alone_b < v->n_micro) add(to, b->bwd.busy_s, n * (v->n_micro - alone_b));
        if (v->split) add(to, b->weight.diag_s, n * v->n_micro);
    }
}

static int view_warmup(const struct view *v, int stage)
{
    const int behind = v->pp - 1 - stage, slots = v->n_micro * v->vpp;
    const int n = (v->vpp == 1 ? behind : 2 * behind + (v->vpp - 1) * v->group) + v->weave;
    return n < slots ? n : slots;
}

/* How many times backward parts 4 i to 4 i + 3 (i from 1) meet forward parts that all are MoE layers'; the forward's first
 * `dense` parts are dense layers. */
static int insides(const struct shape *f, const struct shape *b)
{
    const int dense = f->n[BLOCK_DENSE], from = dense > 4 ? (dense + 3) / 4 : 1;
    const int f_end = (dense + 4 * f->n[BLOCK_MOE]) / 4, end = b->n[BLOCK_MOE] < f_end ? b->n[BLOCK_MOE] : f_end;
    return end > from ? end - from : 0;
}

/* Which of a stage's chunks slot k of the forward order takes; the backward order takes the mirrored one. */
static int view_slot(const struct view *v, int k)
{
    const int first = k / (v->group * v->vpp) * v->group, rest = v->n_micro - first;
    return v->vpp == 1 ? 0 : (k - first * v->vpp) / (rest < v->group ? rest : v->group);
}

/* How often two layers are woven inside (by phase), and at the ends of passes. */
struct meets { double inside[4], ends; };

static void meet(struct meets *m, const struct shape *f, const struct shape *b, double times)
{
    m->inside[f->n[BLOCK_DENSE] % 4] += times * insides(f, b);
    if (f->n[BLOCK_MOE] && b->n[BLOCK_MOE] && !f->n[BLOCK_DENSE]) m->ends += times;
}

/* Over the merged slots of a stage; which chunks meet repeats after a round of groups. */
static struct meets stage_meets(const struct view *v, int stage)
{
    struct meets m = { { 0 }, 0 };
    const int slots = v->n_micro * v->vpp, warmup = view_warmup(v, stage), merged = slots - warmup;
    const int period = v->vpp == 1 ? 1 : v->n_micro % v->group ? slots : v->group * v->vpp;
    for (int i = 0; i < period && i < merged; i++) {
        const int f = view_slot(v, warmup + i), b = v->vpp - 1 - view_slot(v, i);
        meet(&m, &v->shape[f * v->pp + stage], &v->shape[b * v->pp + stage], (merged - 1 - i) / period + 1);
    }
    return m;
}

/* What merged passes take longer than the sum of durations. Without dense layers the first parts of both halves and the last
 * one of backward make one layer more. */
static void add_meets(struct streams *to, const struct view *v, int stage)
{
    const struct meets m = stage_meets(v, stage);
    const struct search_block *moe = v->block[BLOCK_MOE];
    for (int phase = 0; phase < 4; phase++) {
        if (m.inside[phase] + (phase ? 0 : m.ends) <= 0) continue;
        const struct search_woven *w = search_block_woven(v->blocks, v->point, v->recompute, phase);
        for (int k = 0; k < PASS_DATA; k++) {
            const double busy_s = moe->fwd.busy_s[k] + moe->bwd.busy_s[k];
            to->s[k] += m.inside[phase] * fmax(0, w->inside_s[k] - busy_s);
            if (!phase) to->s[k] += m.ends * fmax(0, w->ends_s[k] - busy_s);
        }
    }
}

static struct streams stage_slots(const struct view *v, int stage)
{
    struct streams sum = { { 0 } };
    const int slots = v->n_micro * v->vpp, warmup = view_warmup(v, stage);
    for (int c = 0; c < v->vpp; c++) {
        double alone_f = v->n_micro, alone_b = v->n_micro;
        if (v->weave) alone_f = alone_b = 0;
        for (int k = 0; k < warmup && v->weave; k++) {
            alone_f += view_slot(v, k) == c;
            alone_b += v->vpp - 1 - view_slot(v, slots - 1 - k) == c;
        }
        add_chunk(&sum, v, c * v->pp + stage, alone_f, alone_b);
    }
    if (v->weave) add_meets(&sum, v, stage);
    return sum;
}

/* ---- the way through chunks ---- */

static double most_of(const double x_s[PASS_DATA])
{
    double most = 0;
    for (int k = 0; k < PASS_DATA; k++) most = fmax(most, x_s[k]);
    return most;
}

/* From a chunk's input (the embedding: from its start) to its output. */
static double forward_s(const struct view *v, int chunk)
{
    double sum = v->shape[chunk].n[BLOCK_EMBED] ? most_of(v->block[BLOCK_EMBED]->fwd.out_s) : 0;
    for (int k = BLOCK_DENSE; k <= BLOCK_MOE; k++)
        if (v->shape[chunk].n[k]) sum += v->shape[chunk].n[k] * v->block[k]->fwd.through_s;
    return sum;
}

/* From a chunk's gradient to its input's gradient; of the first chunk, to the end on the compute stream. */
static double backward_s(const struct view *v, int chunk)
{
    double sum = 0;
    for (int k = BLOCK_DENSE; k <= BLOCK_MOE; k++)
        if (v->shape[chunk].n[k]) sum += v->shape[chunk].n[k] * v->block[k]->bwd.through_s;
    return chunk ? sum : sum + fmax(0, v->block[BLOCK_EMBED]->bwd.in_s[STREAM_COMPUTE]);
}

/* What a path takes longer at its ends than the diagonals say; -INFINITY: it cannot turn there. */
static double enter_s(const struct view *v, int stage, int k)
{
    const struct search_half *h = &view_first(v, stage)->fwd;
    return h->in_s[k] - h->diag_s[k];
}

static double leave_s(const struct view *v, int stage, int k)
{
    const struct search_half *h = &view_first(v, stage)->bwd;
    double weight_s = 0;
    for (int i = 0; i < LEN(view_blocks) && v->split; i++)
        if (v->shape[stage].n[view_blocks[i]]) weight_s += v->shape[stage].n[view_blocks[i]] * v->block[view_blocks[i]]->weight.diag_s[k];
    return h->out_s[k] - h->diag_s[k] - weight_s;
}

/* ---- time ---- */

/* Of every stage, and of the whole: `compute`: the stage's own backward is done on the compute stream; `first`: a way through
 * any stage back to the first one's compute stream is; `any`: the longest path. */
struct paths { double compute_s[LAYOUT_CHUNKS], first_s, any_s; };

static void paths_of(struct paths *to, const struct view *v)
{
    double arrive_s = 0, back_s = 0;
    to->first_s = to->any_s = 0;
    for (int s = 0; s < v->pp; s++) {
        const struct streams slots = stage_slots(v, s);
        for (int k = 0; k < PASS_DATA; k++) {
            const double start_s = s ? fmax(0, arrive_s + enter_s(v, s, k)) : 0, end_s = start_s + slots.s[k];
            const double first_s = s ? end_s + leave_s(v, s, k) + back_s : k == STREAM_COMPUTE ? end_s : 0;
            if (k == STREAM_COMPUTE) to->compute_s[s] = end_s;
            to->first_s = fmax(to->first_s, first_s);
            to->any_s = fmax(to->any_s, end_s);
        }
        arrive_s += forward_s(v, s);
        back_s += backward_s(v, s);
    }
    to->any_s = fmax(to->any_s, to->first_s);
}

/* Some stage is no shorter than the average. */
double search_bound_floor_s(struct search_bounds *b, const struct search_point *p, int recompute)
{
    struct view v = view_of(b, p);
    struct streams sum = { { 0 } };
    const int dense = b->space->job->model.experts ? b->space->job->model.dense_layers : b->space->job->model.layers;
    const double n[BLOCK_COUNT] = { [BLOCK_EMBED] = 1, [BLOCK_DENSE] = dense, [BLOCK_MOE] = b->space->job->model.layers - dense,
                                    [BLOCK_LOSS] = 1 };
    view_prices(&v, b, p, recompute);
    for (int i = 0; i < LEN(view_blocks); i++) {
        const struct search_block *k = v.block[view_blocks[i]];
        if (!k) continue;
        add(&sum, k->fwd.busy_s, n[view_blocks[i]] * v.n_micro / v.pp);
        add(&sum, k->bwd.busy_s, n[view_blocks[i]] * v.n_micro / v.pp);
        if (v.split) add(&sum, k->weight.busy_s, n[view_blocks[i]] * v.n_micro / v.pp);
    }
    return most_of(sum.s);
}

double search_bound_slots_s(struct search_bounds *b, const struct search_point *p, int recompute)
{
    struct view v = view_of(b, p);
    struct paths t;
    view_prices(&v, b, p, recompute);
    paths_of(&t, &v);
    return t.any_s;
}

static struct search_once add_once(struct search_once a, const struct search_once *b, double n)
{
    return (struct search_once){ .zero_s = a.zero_s + n * b->zero_s, .scatter_s = a.scatter_s + n * b->scatter_s,
                                 .sumsq_s = a.sumsq_s + n * b->sumsq_s, .world_s = b->world_s,
                                 .update_s = a.update_s + n * b->update_s, .gather_s = a.gather_s + n * b->gather_s };
}

static struct search_once chunk_once(struct search_bounds *b, const struct view *v, const struct search_point *p, int chunk)
{
    struct search_once sum = { 0 };
    for (int i = 0; i < LEN(view_blocks); i++) {
        const enum block k = view_blocks[i];
        if (v->shape[chunk].n[k]) sum = add_once(sum, search_block_once(b->blocks, p, k), v->shape[chunk].n[k]);
    }
    return sum;
}

/* Backward compute of the last pass of a stage, under which its reductions may start. */
static double last_pass_s(const struct view *v, int stage)
{
    double sum = 0;
    for (int i = 0; i < LEN(view_blocks); i++) {
        const struct search_block *b = v->block[view_blocks[i]];
        const double n = v->shape[stage].n[view_blocks[i]];
        if (n) sum += n * (b->bwd.diag_s[STREAM_COMPUTE] + (v->split ? b->weight.diag_s[STREAM_COMPUTE] : 0));
    }
    return sum;
}

/* After the backward: reductions of the chunk that ends last can start under its last pass only; the norm needs all stages;
 * every stage then updates on one stream and gathers on another. */
double search_bound_step_s(struct search_bounds *b, const struct search_point *p, int recompute)
{
    struct view v = view_of(b, p);
    struct paths t;
    double ready_s = 0, update_s = 0, world_s = 0;
    view_prices(&v, b, p, recompute);
    paths_of(&t, &v);
    for (int s = 0; s < v.pp; s++) {
        struct search_once all = { 0 }, last = chunk_once(b, &v, p, s);
        for (int c = 0; c < v.vpp; c++) {
            const struct search_once one = chunk_once(b, &v, p, c * v.pp + s);
            all = add_once(all, &one, 1);
        }
        const double done_s = s ? t.compute_s[s] : fmax(t.compute_s[s] + all.zero_s, t.first_s);
        ready_s = fmax(ready_s, done_s + all.sumsq_s);
        ready_s = fmax(ready_s, t.compute_s[s] - last_pass_s(&v, s) + last.scatter_s);
        update_s = fmax(update_s, fmax(all.update_s, all.gather_s));
        world_s = all.world_s;
    }
    return fmax(t.any_s, ready_s + world_s + update_s);
}

/* ---- memory ---- */

struct pair { double net_B, peak_B; };

/* `n` times one block, after what came before. */
static void pair_add(struct pair *p, const struct search_half *h, double n)
{
    if (!n) return;
    p->peak_B = fmax(p->peak_B, p->net_B + fmax(0, h->net_B) * (n - 1) + h->peak_B);
    p->net_B += n * h->net_B;
}

/* A pass of a chunk, with its boundary: received first, gone once sent. */
static struct pair pair_of(const struct view *v, int chunk, enum pass_kind kind)
{
    const int fwd = kind == PASS_FWD, wires = kind != PASS_BWD_WEIGHT;
    const int head = chunk == 0, tail = chunk == v->pp * v->vpp - 1;
    const double edge_B = view_first(v, chunk)->edge_B;
    struct pair p = { 0, 0 };
    if (wires && !(fwd ? head : tail)) p.net_B = p.peak_B = edge_B;
    for (int i = 0; i < LEN(view_blocks); i++) {
        const enum block k = view_blocks[fwd ? i : LEN(view_blocks) - 1 - i];
        const struct search_block *b = v->block[k];
        if (b) pair_add(&p, fwd ? &b->fwd : wires ? &b->bwd : &b->weight, v->shape[chunk].n[k]);
    }
    if (wires && !(fwd ? tail : head)) p.net_B -= edge_B;
    return p;
}

struct walk { double now_B, peak_B; };

static void walk_pass(struct walk *w, struct pair p)
{
    w->peak_B = fmax(w->peak_B, w->now_B + p.peak_B);
    w->now_B += p.net_B;
}

/* Woven: while one half is at its peak, forward holds no less than nothing, and backward no less than nothing less all that
 * the forward of its chunk had left (`saved_B`). */
static struct pair pair_woven(struct pair f, struct pair b, double saved_B)
{
    const double net_B = f.net_B + b.net_B;
    return (struct pair){ net_B, fmax(fmax(b.peak_B, f.peak_B - saved_B), net_B) };
}

/* Through the schedule of one stage until it repeats itself. */
static double stage_peak_B(const struct view *v, int stage)
{
    struct pair f[LAYOUT_CHUNKS], b[LAYOUT_CHUNKS], weight[LAYOUT_CHUNKS];
    const int slots = v->n_micro * v->vpp, warmup = view_warmup(v, stage);
    const int period = v->vpp == 1 ? 1 : v->group * v->vpp, last = slots < warmup + 2 * period ? slots : warmup + 2 * period;
    struct walk w = { 0, 0 };
    for (int c = 0; c < v->vpp; c++) {
        f[c] = pair_of(v, c * v->pp + stage, PASS_FWD);
        b[c] = pair_of(v, c * v->pp + stage, PASS_BWD);
        if (v->split) weight[c] = pair_of(v, c * v->pp + stage, PASS_BWD_WEIGHT);
    }
    int waits = -1;                         /* the chunk whose weight gradients are still to run */
    for (int k = 0; k < last + (last == slots ? warmup : 0); k++) {
        const int has_f = k < slots, has_b = k >= warmup;
        const int cf = has_f ? view_slot(v, k) : 0, cb = has_b ? v->vpp - 1 - view_slot(v, k - warmup) : 0;
        if (has_f && has_b && v->weave) {
            walk_pass(&w, pair_woven(f[cf], b[cb], f[cb].net_B));
            if (v->split) walk_pass(&w, weight[cb]);
            continue;
        }
        if (has_f) walk_pass(&w, f[cf]);
        if (waits >= 0) walk_pass(&w, weight[waits]);
        waits = -1;
        if (has_b) walk_pass(&w, b[cb]);
        if (!has_b || !v->split) continue;
        if (v->weave || k + 1 >= slots) walk_pass(&w, weight[cb]);
        else waits = cb;
    }
    return w.peak_B;
}

static double stage_states_B(struct search_bounds *b, const struct view *v, const struct search_point *p, int stage)
{
    double sum = 0;
    for (int i = 0; i < LEN(view_blocks); i++) {
        int n = 0;
        for (int c = 0; c < v->vpp; c++) n += v->shape[c * v->pp + stage].n[view_blocks[i]];
        if (!n) continue;
        const struct search_states *s = search_block_states(b->blocks, p, view_blocks[i]);
        sum += n * (s->own_B + s->dense_B / (v->g->cp * v->g->dp) + s->expert_B / v->g->edp);
    }
    return sum;
}

double search_bound_states_B(struct search_bounds *b, const struct search_point *p)
{
    const struct view v = view_of(b, p);
    double most = 0;
    for (int s = 0; s < v.pp; s++) most = fmax(most, stage_states_B(b, &v, p, s));
    return most;
}

double search_bound_live_B(struct search_bounds *b, const struct search_point *p, int recompute)
{
    struct view v = view_of(b, p);
    double most = 0;
    view_prices(&v, b, p, recompute);
    for (int s = 0; s < v.pp; s++) most = fmax(most, stage_states_B(b, &v, p, s) + stage_peak_B(&v, s));
    return most;
}

/* ---- the whole ---- */

struct search_bounds *search_bound_open(struct arena *a, const struct search_space *s)
{
    struct search_bounds *b = arena_alloc(a, sizeof *b);
    b->space = s;
    b->arena = a;
    b->blocks = search_block_open(a, s);
    return b;
}

int64_t search_bound_built(const struct search_bounds *b) { return search_block_built(b->blocks); }
