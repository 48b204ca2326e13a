/* See search_bound.h. All sums run over at most BLOCK_COUNT kinds of blocks, so a bound costs a
 * microsecond. */
#include "sim/search_bound.h"
#include <math.h>
#include <string.h>

/* ---- sums over blocks ---- */

struct streams { double s[PASS_DATA]; };

static void add(struct streams *to, const double x_s[PASS_DATA], double times)
{
    for (int k = 0; k < PASS_DATA; k++) to->s[k] += times * x_s[k];
}

/* How often a stage runs each kind of block: in passes of their own, and in merged ones. */
struct runs { double alone_f[BLOCK_COUNT], alone_b[BLOCK_COUNT], all[BLOCK_COUNT]; };

/* Slots of the stage's chunks that are passes of their own: all, or those of warm-up and flush. */
static void alone_slots(double alone_f[], double alone_b[], const struct search_view *v, int stage)
{
    const int slots = v->n_micro * v->vpp, warmup = search_view_warmup(v, stage);
    for (int c = 0; c < v->vpp; c++) alone_f[c] = alone_b[c] = v->weave ? 0 : v->n_micro;
    for (int k = 0; k < warmup && v->weave; k++) {
        alone_f[search_view_slot(v, k)]++;
        alone_b[v->vpp - 1 - search_view_slot(v, slots - 1 - k)]++;
    }
}

static struct runs stage_runs(const struct search_view *v, int stage)
{
    struct runs r = { { 0 }, { 0 }, { 0 } };
    double alone_f[LAYOUT_CHUNKS], alone_b[LAYOUT_CHUNKS];
    alone_slots(alone_f, alone_b, v, stage);
    for (int c = 0; c < v->vpp; c++)
        for (int k = 0; k < BLOCK_COUNT; k++) {
            const double n = v->shape[c * v->pp + stage].n[k];
            r.alone_f[k] += n * alone_f[c];
            r.alone_b[k] += n * alone_b[c];
            r.all[k] += n * v->n_micro;
        }
    return r;
}

static void add_runs(struct streams *to, const struct search_view *v, const struct runs *r)
{
    for (int k = 0; k < BLOCK_COUNT; k++) {
        const struct search_block *b = v->block[k];
        if (!r->all[k]) continue;
        add(to, b->fwd.diag_s, r->alone_f[k]);
        add(to, b->bwd.diag_s, r->alone_b[k]);
        if (v->split) add(to, b->weight->diag_s, r->all[k]);
        if (r->alone_f[k] < r->all[k]) add(to, b->fwd.busy_s, r->all[k] - r->alone_f[k]);
        if (r->alone_b[k] < r->all[k]) add(to, b->bwd.busy_s, r->all[k] - r->alone_b[k]);
    }
}

/* How many times backward parts 4 i to 4 i + 3 (i from 1) meet forward parts that all are MoE layers'; the
 * forward's first `dense` parts are dense layers. */
static int insides(const struct search_shape *f, const struct search_shape *b)
{
    const int dense = f->n[BLOCK_DENSE], from = dense > 4 ? (dense + 3) / 4 : 1;
    const int f_end = (dense + 4 * f->n[BLOCK_MOE]) / 4;
    const int end = b->n[BLOCK_MOE] < f_end ? b->n[BLOCK_MOE] : f_end;
    return end > from ? end - from : 0;
}

/* How often two layers are woven inside (by phase), and at the ends of passes. */
struct meets { double inside[4], ends; };

static void meet(struct meets *m, const struct search_shape *f, const struct search_shape *b, double times)
{
    m->inside[f->n[BLOCK_DENSE] % 4] += times * insides(f, b);
    if (f->n[BLOCK_MOE] && b->n[BLOCK_MOE] && !f->n[BLOCK_DENSE]) m->ends += times;
}

/* Over the merged slots of a stage; which chunks meet repeats after a round of groups. */
static struct meets stage_meets(const struct search_view *v, int stage)
{
    struct meets m = { { 0 }, 0 };
    const int slots = v->n_micro * v->vpp, warmup = search_view_warmup(v, stage), merged = slots - warmup;
    const int period = v->vpp == 1 ? 1 : v->n_micro % v->group ? slots : v->group * v->vpp;
    for (int i = 0; i < period && i < merged; i++) {
        const int f = search_view_slot(v, warmup + i), b = v->vpp - 1 - search_view_slot(v, i);
        meet(&m, &v->shape[f * v->pp + stage], &v->shape[b * v->pp + stage], (merged - 1 - i) / period + 1);
    }
    return m;
}

/* What merged passes take longer than the sum of durations. Without dense layers the first parts of both
 * halves and the last one of backward make one layer more. */
static void add_meets(struct streams *to, const struct search_view *v, int stage)
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

/* `before` (NULL: none) has what the stage before had: most stages of a plan hold the same blocks. */
struct stage_sum { struct runs runs; struct streams streams; };

static struct stage_sum stage_slots(const struct search_view *v, int stage, const struct stage_sum *before)
{
    struct stage_sum sum = { .runs = stage_runs(v, stage) };
    if (before && !v->weave && !memcmp(&before->runs, &sum.runs, sizeof sum.runs)) return *before;
    add_runs(&sum.streams, v, &sum.runs);
    if (v->weave) add_meets(&sum.streams, v, stage);
    return sum;
}

/* ---- the way through chunks ---- */

static double later(double a, double b)
{
    return a > b ? a : b;
}

static double most_of(const double x_s[PASS_DATA])
{
    double most = 0;
    for (int k = 0; k < PASS_DATA; k++) most = later(most, x_s[k]);
    return most;
}

/* From a chunk's input (the embedding: from its start) to its output. */
static double forward_s(const struct search_view *v, int chunk)
{
    double sum = v->shape[chunk].n[BLOCK_EMBED] ? most_of(v->block[BLOCK_EMBED]->fwd.out_s) : 0;
    for (int k = BLOCK_DENSE; k <= BLOCK_MOE; k++)
        if (v->shape[chunk].n[k]) sum += v->shape[chunk].n[k] * v->block[k]->fwd.through_s;
    return sum;
}

/* From a chunk's gradient to its input's gradient; of the first chunk, to the end on the compute stream. */
static double backward_s(const struct search_view *v, int chunk)
{
    double sum = 0;
    for (int k = BLOCK_DENSE; k <= BLOCK_MOE; k++)
        if (v->shape[chunk].n[k]) sum += v->shape[chunk].n[k] * v->block[k]->bwd.through_s;
    return chunk ? sum : sum + fmax(0, v->block[BLOCK_EMBED]->bwd.in_s[STREAM_COMPUTE]);
}

/* What a path takes longer at its ends than the diagonals say; -INFINITY: it cannot turn there. */
static double enter_s(const struct search_view *v, int stage, int k)
{
    const struct search_half *h = &search_view_first(v, stage)->fwd;
    return h->in_s[k] - h->diag_s[k];
}

static double leave_s(const struct search_view *v, int stage, int k)
{
    const struct search_half *h = &search_view_first(v, stage)->bwd;
    double weight_s = 0;
    for (int i = 0; i < BLOCK_COUNT; i++)
        if (v->shape[stage].n[i]) weight_s += v->shape[stage].n[i] * v->block[i]->weight->diag_s[k];
    return h->out_s[k] - h->diag_s[k] - weight_s;
}

/* ---- time ---- */

/* compute_s: a stage's own backward is done on its compute stream, which its slots take slots_s of; first_s: so is a way
 * through any stage and back to the first one's compute stream; any_s: the longest path. */
struct paths { double compute_s[LAYOUT_CHUNKS], slots_s[LAYOUT_CHUNKS], first_s, any_s; };

static void paths_of(struct paths *to, const struct search_view *v)
{
    double arrive_s = 0, back_s = 0;
    struct stage_sum sum;
    to->first_s = to->any_s = 0;
    for (int s = 0; s < v->pp; s++) {
        sum = stage_slots(v, s, s ? &sum : NULL);
        const struct streams slots = sum.streams;
        to->slots_s[s] = slots.s[STREAM_COMPUTE];
        for (int k = 0; k < PASS_DATA; k++) {
            const double start_s = s ? later(0, arrive_s + enter_s(v, s, k)) : 0, end_s = start_s + slots.s[k];
            const double first_s = s ? end_s + leave_s(v, s, k) + back_s : k == STREAM_COMPUTE ? end_s : 0;
            if (k == STREAM_COMPUTE) to->compute_s[s] = end_s;
            to->first_s = later(to->first_s, first_s);
            to->any_s = later(to->any_s, end_s);
        }
        arrive_s += forward_s(v, s);
        back_s += backward_s(v, s);
    }
    to->any_s = later(to->any_s, to->first_s);
}

/* What another way than the plain one adds to `dense` layers and `moe` with experts, and where woven passes have
 * their exchanges. Differences of sums: a billionth covers how they round. */
static void add_way(struct streams *sum, struct search_views *all, const struct search_point *p, int recompute, double dense,
                    double moe, double exchange_s)
{
    const struct search_way *plain = &all->space->plain;
    if (p->way.cp_comm != plain->cp_comm) add(sum, search_block_shift_cp(all->blocks, p, recompute)->busy_s, dense + moe);
    if (p->way.dispatcher != plain->dispatcher) {
        const struct search_shift *to = search_block_shift_ep(all->blocks, p, recompute);
        add(sum, to->busy_s, moe);
        exchange_s += moe * to->exchange_s;
    }
    for (int k = BLOCK_DENSE; k <= BLOCK_MOE && p->way.fsdp; k++) {
        const double n = k == BLOCK_MOE ? moe : dense;
        if (n > 0) sum->s[STREAM_DP] += n * search_block_shift_fsdp(all->blocks, p, recompute, (enum block)k)->busy_s[STREAM_DP];
    }
    if (p->way.weave) sum->s[STREAM_COMPUTE] -= exchange_s, sum->s[STREAM_EP] += exchange_s;
    for (int k = 0; k < PASS_DATA; k++) sum->s[k] *= 1 - 1e-9;
}

/* Some stage is no shorter than the average. An MTP depth is no less than its layers, which are like the last, and a
 * head: the block that holds both would have to be priced for every grid. */
double search_bound_floor_s(struct search_views *all, const struct search_point *p, int recompute)
{
    const struct model *m = &all->space->job->model;
    const int dense = m->experts ? m->dense_layers : m->layers;
    const int mtp = all->space->mtp, more = mtp * model_mtp_layers(m);
    const double n[BLOCK_COUNT] = { 1, dense + (m->experts ? 0 : more), m->layers - dense + (m->experts ? more : 0),
                                    1 + mtp };
    const struct search_view v = search_view_of(all, p);
    const double times = (double)v.n_micro / v.pp;
    struct search_point plain = *p;
    struct streams sum = { { 0 } };
    double exchange_s = 0;
    plain.way = all->space->plain;
    for (int k = 0; k < BLOCK_COUNT; k++) {
        if (!n[k]) continue;
        const struct search_block *b = k == BLOCK_LOSS ? search_block_head(all->blocks, &plain, recompute)
                                                       : search_block_price(all->blocks, &plain, recompute, (enum block)k);
        const struct search_half *half[] = { &b->fwd, &b->bwd, b->weight };
        for (int i = 0; i < LEN(half); i++) {
            add(&sum, half[i]->busy_s, n[k] * times);
            exchange_s += n[k] * times * half[i]->exchange_s;
        }
    }
    add_way(&sum, all, p, recompute, n[BLOCK_DENSE] * times, n[BLOCK_MOE] * times, exchange_s);
    return most_of(sum.s);
}

double search_bound_slots_s(struct search_views *all, const struct search_point *p, int recompute)
{
    const struct search_view v = search_view_priced(all, p, recompute);
    struct paths t;
    paths_of(&t, &v);
    return t.any_s;
}

/* ---- once a step ---- */

static struct search_once add_once(struct search_once a, const struct search_once *b, double n)
{
    return (struct search_once){
        .zero_s = a.zero_s + n * b->zero_s,
        .scatter_s = a.scatter_s + n * b->scatter_s,
        .sumsq_s = a.sumsq_s + n * b->sumsq_s,
        .world_s = b->world_s,
        .update_s = a.update_s + n * b->update_s,
        .gather_s = a.gather_s + n * b->gather_s,
        .early_s = a.early_s + n * b->early_s,
    };
}

static struct search_once chunk_once(const struct search_view *v, int chunk)
{
    struct search_once sum = { 0 };
    for (int k = 0; k < BLOCK_COUNT; k++) {
        const double n = v->shape[chunk].n[k];
        if (n) sum = add_once(sum, search_block_once(v->blocks, v->point, (enum block)k), n);
    }
    return sum;
}

static struct search_once stage_once(const struct search_view *v, int stage)
{
    struct search_once sum = { 0 };
    for (int c = 0; c < v->vpp; c++) {
        const struct search_once one = chunk_once(v, c * v->pp + stage);
        sum = add_once(sum, &one, 1);
    }
    return sum;
}

/* A chunk's passes, alone, on the compute stream. */
static double forward_compute_s(const struct search_view *v, int chunk)
{
    double sum = 0;
    for (int k = 0; k < BLOCK_COUNT; k++)
        if (v->shape[chunk].n[k]) sum += v->shape[chunk].n[k] * v->block[k]->fwd.diag_s[STREAM_COMPUTE];
    return sum;
}

static double backward_compute_s(const struct search_view *v, int chunk)
{
    double sum = 0;
    for (int k = 0; k < BLOCK_COUNT; k++) {
        const struct search_block *b = v->block[k];
        const double n = v->shape[chunk].n[k];
        if (n) sum += n * (b->bwd.diag_s[STREAM_COMPUTE] + b->weight->diag_s[STREAM_COMPUTE]);
    }
    return sum;
}

/* Gathers of all chunks follow one another; the last of them is needed by the first forward of the stage's last chunk, which
 * all other slots but the ones before it follow. All of these are passes of their own. */
static double gathered_s(const struct search_view *v, int stage, double early_s, double slots_s)
{
    const int slots = v->n_micro * v->vpp;
    int c = 0;
    for (int k = 0; k < slots && c < v->vpp - 1; k++) {
        c = search_view_slot(v, k);
        slots_s -= forward_compute_s(v, c * v->pp + stage);
    }
    if (v->vpp == 1) slots_s -= forward_compute_s(v, stage);
    return early_s > 0 ? early_s + slots_s : 0;
}

/* Where the host waits for row counts it issues a chunk's gathers only after the pass before has begun: what they take
 * longer than that pass and the chunk's first, which waits for the last of them. No two chunks count the same pass. */
static double held_s(const struct search_view *v, int stage)
{
    double sum = 0;
    for (int c = 1; c < v->vpp && v->reads && v->group > 1 && c * v->group <= search_view_warmup(v, stage); c++) {
        const int here = c * v->pp + stage, before = here - v->pp;
        if (!v->shape[before].n[BLOCK_MOE]) continue;
        sum += fmax(0, chunk_once(v, here).early_s - forward_compute_s(v, before) - forward_compute_s(v, here));
    }
    return sum;
}

/* Reductions of a chunk, one after the other with those of the chunks that end after it, start under its last backward at the
 * earliest, at whose start no forward is left. done_s: the stage's last backward is. */
static double scattered_s(const struct search_view *v, int stage, double done_s)
{
    uint8_t seen[LAYOUT_CHUNKS] = { 0 };
    double most_s = 0, scatter_s = 0;
    for (int k = v->n_micro * v->vpp - 1, left = v->vpp; k >= 0 && left; k--) {
        const int c = v->vpp - 1 - search_view_slot(v, k);
        done_s -= backward_compute_s(v, c * v->pp + stage);
        if (seen[c]) continue;
        seen[c] = 1, left--;
        scatter_s += chunk_once(v, c * v->pp + stage).scatter_s;
        most_s = fmax(most_s, done_s + scatter_s);
    }
    return most_s;
}

/* After the backward: reductions of a chunk can start under its last pass only; the norm needs all stages; every stage then updates on one stream and gathers on another. Nothing of a micro-batch begins before
 * what a framework does between steps is done; only copies of weights may. */
double search_bound_step_s(struct search_views *all, const struct search_point *p, int recompute)
{
    const struct search_view v = search_view_priced(all, p, recompute);
    struct paths t;
    const double between_s = all->space->job->stack.step_s;
    double ready_s = 0, update_s = 0, world_s = 0;
    paths_of(&t, &v);
    for (int s = 0; s < v.pp; s++) {
        const struct search_once once = stage_once(&v, s);
        const double early_s = gathered_s(&v, s, once.early_s, t.slots_s[s]);
        const double slots_s = fmax(t.compute_s[s] + between_s + held_s(&v, s), early_s);
        const double own_s = s ? slots_s : fmax(fmax(slots_s, t.compute_s[s] + once.zero_s), t.first_s + between_s);
        ready_s = fmax(ready_s, own_s + once.sumsq_s);
        ready_s = fmax(ready_s, scattered_s(&v, s, slots_s));
        update_s = fmax(update_s, fmax(once.update_s, once.gather_s));
        world_s = once.world_s;
    }
    return fmax(t.any_s + between_s, ready_s + world_s + update_s);
}
