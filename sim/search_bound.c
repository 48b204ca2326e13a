/* See search_bound.h. All sums run over at most BLOCK_COUNT kinds of blocks, so a bound costs a
 * fifth of a microsecond. */
#include "sim/search_bound.h"
#include <math.h>
#include <string.h>

/* ---- sums over blocks ---- */

struct streams { double s[LANE_COUNT]; };

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void add(struct streams *to, const double x_s[LANE_COUNT], double times)
{
    for (int k = 0; k < LANE_COUNT; k++) to->s[k] += times * x_s[k];
}

/* How often a stage runs each kind of block: in passes of their own, and in merged ones. */
struct runs { double alone_f[BLOCK_COUNT], alone_b[BLOCK_COUNT], all[BLOCK_COUNT]; };
/* How often two layers are woven inside (by phase), and at the ends of passes. */
struct meets { double inside[4], ends; };
/* Both of every stage (unless woven, of the first one of a run), as they were counted last: they hang on no sizes of
 * blocks, and plans that differ in these alone are neighbours. */
struct search_counts {
    const struct search_runs *of; int n_micro, group, weave;
    struct runs runs[LAYOUT_CHUNKS]; struct meets meets[LAYOUT_CHUNKS];
};

/* Of merged schedules slots of warm-up and flush are passes of their own, of others all. */
static struct runs stage_runs(const struct search_view *v, int stage, const struct search_run *run)
{
    const int slots = v->n_micro * v->vpp, warmup = search_view_warmup(v, stage);
    struct runs r = { { 0 }, { 0 }, { 0 } };
    for (int k = 0; k < BLOCK_COUNT; k++) {
        r.all[k] = (double)run->all[k] * v->n_micro;
        if (!v->weave) r.alone_f[k] = r.alone_b[k] = r.all[k];
    }
    if (!v->weave) return r;
    int first[LAYOUT_CHUNKS], but_last[LAYOUT_CHUNKS], alone_f[BLOCK_COUNT] = { 0 }, alone_b[BLOCK_COUNT] = { 0 };
    search_view_slots_of(first, v, warmup);
    search_view_slots_of(but_last, v, slots - warmup);
    for (int c = 0; c < v->vpp; c++) {
        const struct search_shape *s = &v->shape[c * v->pp + stage];
        const int last = v->n_micro - but_last[v->vpp - 1 - c];
        for (int k = 0; k < BLOCK_COUNT; k++) alone_f[k] += s->n[k] * first[c], alone_b[k] += s->n[k] * last;
    }
    for (int k = 0; k < BLOCK_COUNT; k++) r.alone_f[k] = alone_f[k], r.alone_b[k] = alone_b[k];
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

static void meet(struct meets *m, const struct search_shape *f, const struct search_shape *b, double times)
{
    m->inside[f->n[BLOCK_DENSE] % 4] += times * insides(f, b);
    if (f->n[BLOCK_MOE] && b->n[BLOCK_MOE] && !f->n[BLOCK_DENSE]) m->ends += times;
}

/* Slot by slot, where the last group is shorter than the others. */
static struct meets uneven_meets(const struct search_view *v, int stage, int warmup, int merged)
{
    struct meets m = { { 0 }, 0 };
    for (int i = 0; i < merged; i++) {
        const int f = search_view_slot(v, warmup + i), b = v->vpp - 1 - search_view_slot(v, i);
        meet(&m, &v->shape[f * v->pp + stage], &v->shape[b * v->pp + stage], 1);
    }
    return m;
}

/* Over the merged slots of a stage; which chunks meet repeats after a round of groups, and changes only where one of
 * both comes to its next chunk. */
static struct meets stage_meets(const struct search_view *v, int stage)
{
    struct meets m = { { 0 }, 0 };
    const int slots = v->n_micro * v->vpp, warmup = search_view_warmup(v, stage), merged = slots - warmup;
    const int alone = v->vpp == 1, group = alone ? 1 : v->group, period = group * v->vpp;
    if (merged <= 0) return m;
    if (!alone && v->n_micro % group) return uneven_meets(v, stage, warmup, merged);
    const int rounds = (merged - 1) / period, more = merged - rounds * period;      /* one round more up to there */
    int f = warmup / group % v->vpp, f_end = group - warmup % group, b = v->vpp - 1, b_end = group;
    for (int i = 0, next; i < period; i = next) {
        next = f_end < b_end ? f_end : b_end;
        if (i < more && next > more) next = more;
        if (i >= more && !rounds) break;
        meet(&m, &v->shape[f * v->pp + stage], &v->shape[b * v->pp + stage],
             (double)(next - i) * (rounds + (i < more)));
        if (next == f_end) f_end += group, f = f + 1 < v->vpp ? f + 1 : 0;
        if (next == b_end) b_end += group, b--;
    }
    return m;
}

/* What a merged pass takes longer than the sum of durations where two layers are woven inside it, by phase, and at its
 * ends. Without dense layers the first parts of both halves and the last one of backward make one layer more. */
struct overs { struct streams inside[4], ends; int8_t has[4]; };

static void overs_of(struct overs *o, const struct search_view *v, int phase)
{
    const struct search_woven *w = search_block_woven(v->blocks, v->point, v->recompute, phase);
    const struct search_block *moe = v->block[BLOCK_MOE];
    for (int k = 0; k < LANE_COUNT; k++) {
        const double busy_s = moe->fwd.busy_s[k] + moe->bwd.busy_s[k];
        o->inside[phase].s[k] = later(0, w->inside_s[k] - busy_s);
        if (!phase) o->ends.s[k] = later(0, w->ends_s[k] - busy_s);
    }
    o->has[phase] = 1;
}

static void add_meets(struct streams *to, struct overs *o, const struct search_view *v, const struct meets *m)
{
    for (int phase = 0; phase < 4; phase++) {
        if (m->inside[phase] + (phase ? 0 : m->ends) <= 0) continue;
        if (!o->has[phase]) overs_of(o, v, phase);
        add(to, o->inside[phase].s, m->inside[phase]);
        if (!phase) add(to, o->ends.s, m->ends);
    }
}

static const struct search_counts *counts_of(struct search_views *all, const struct search_view *v)
{
    if (!all->counts) all->counts = arena_alloc(all->arena, sizeof *all->counts);
    struct search_counts *n = all->counts;
    if (n->of == v->runs && n->n_micro == v->n_micro && n->group == v->group && n->weave == v->weave) return n;
    n->of = v->runs, n->n_micro = v->n_micro, n->group = v->group, n->weave = v->weave;
    for (int r = 0; r < v->runs->n; r++) {
        const struct search_run *run = &v->runs->run[r];
        for (int s = run->first; s < run->first + (v->weave ? run->n : 1); s++) {
            n->runs[s] = stage_runs(v, s, run);
            if (v->weave) n->meets[s] = stage_meets(v, s);
        }
    }
    return n;
}

static struct streams stage_slots(const struct search_view *v, int stage, const struct search_counts *n, struct overs *o)
{
    struct streams sum = { { 0 } };
    add_runs(&sum, v, &n->runs[stage]);
    if (v->weave) add_meets(&sum, o, v, &n->meets[stage]);
    return sum;
}

/* ---- the way through chunks ---- */

static double most_of(const double x_s[LANE_COUNT])
{
    double most = 0;
    for (int k = 0; k < LANE_COUNT; k++) most = later(most, x_s[k]);
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
    return chunk ? sum : sum + fmax(0, v->block[BLOCK_EMBED]->bwd.in_s[LANE_COMPUTE]);
}

/* What a path takes longer at its ends than the diagonals say; -INFINITY: it cannot turn there. */
static void enter_of(struct streams *to, const struct search_view *v, int stage)
{
    const struct search_half *h = &search_view_first(v, stage)->fwd;
    for (int k = 0; k < LANE_COUNT; k++) to->s[k] = h->in_s[k] - h->diag_s[k];
}

static void leave_of(struct streams *to, const struct search_view *v, int stage)
{
    const struct search_half *h = &search_view_first(v, stage)->bwd;
    struct streams weight = { { 0 } };
    for (int i = 0; i < BLOCK_COUNT && v->split; i++)
        if (v->shape[stage].n[i]) add(&weight, v->block[i]->weight->diag_s, v->shape[stage].n[i]);
    for (int k = 0; k < LANE_COUNT; k++) to->s[k] = h->out_s[k] - h->diag_s[k] - weight.s[k];
}

/* ---- time ---- */

/* compute_s: a stage's own backward is done on its compute stream, which its slots take slots_s of; first_s: so is a way
 * through any stage and back to the first one's compute stream; any_s: the longest path. */
struct paths { double compute_s[LAYOUT_CHUNKS], slots_s[LAYOUT_CHUNKS], first_s, any_s; };

/* What the stages of a run have in common: the ways in and out, and through the first chunk and back. */
struct ways { struct streams enter, leave; double forward_s, backward_s; };

/* Paths that turn at a stage of which the slots are `slots`: arrive_s there, and back_s from the one before. */
static void turn_at(struct paths *to, const struct ways *w, const struct streams *slots, double arrive_s, double back_s)
{
    double any_s = to->any_s, first_s = to->first_s;
    for (int k = 0; k < LANE_COUNT; k++) {
        const double end_s = later(0, arrive_s + w->enter.s[k]) + slots->s[k];
        any_s = later(any_s, end_s);
        first_s = later(first_s, end_s + w->leave.s[k] + back_s);
    }
    to->any_s = any_s, to->first_s = first_s;
}

static void turn_at_first(struct paths *to, const struct streams *slots)
{
    to->compute_s[0] = slots->s[LANE_COMPUTE];
    to->first_s = later(0, slots->s[LANE_COMPUTE]);
    to->any_s = most_of(slots->s);
}

/* Of stages alike the last one's paths are the longest, since the way there and back only grows; merged schedules have
 * as many passes of their own as stages come behind, and no two stages are alike. */
static void paths_of(struct paths *to, struct search_views *all, const struct search_view *v)
{
    const struct search_counts *n = counts_of(all, v);
    double arrive_s = 0, back_s = 0;
    struct overs overs;
    memset(overs.has, 0, sizeof overs.has);
    for (int r = 0; r < v->runs->n; r++) {
        const struct search_run *run = &v->runs->run[r];
        const int last = run->first + run->n - 1;
        struct ways w;
        w.forward_s = forward_s(v, run->first);
        w.backward_s = backward_s(v, run->first);
        if (last > 0) enter_of(&w.enter, v, run->first), leave_of(&w.leave, v, run->first);
        struct streams slots = stage_slots(v, run->first, n, &overs);
        for (int s = run->first; s <= last; s++) {
            if (v->weave && s > run->first) slots = stage_slots(v, s, n, &overs);
            to->slots_s[s] = slots.s[LANE_COMPUTE];
            if (!s) turn_at_first(to, &slots);
            else to->compute_s[s] = later(0, arrive_s + w.enter.s[LANE_COMPUTE]) + slots.s[LANE_COMPUTE];
            if (s && (s == last || v->weave)) turn_at(to, &w, &slots, arrive_s, back_s);
            arrive_s += w.forward_s;
            back_s += w.backward_s;
        }
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
        if (n > 0) sum->s[LANE_DP] += n * search_block_shift_fsdp(all->blocks, p, recompute, (enum block)k)->busy_s[LANE_DP];
    }
    if (p->way.weave) sum->s[LANE_COMPUTE] -= exchange_s, sum->s[LANE_EP] += exchange_s;
    for (int k = 0; k < LANE_COUNT; k++) sum->s[k] *= 1 - 1e-9;
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
    paths_of(&t, all, &v);
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
        if (v->shape[chunk].n[k]) sum += v->shape[chunk].n[k] * v->block[k]->fwd.diag_s[LANE_COMPUTE];
    return sum;
}

static double backward_compute_s(const struct search_view *v, int chunk)
{
    double sum = 0;
    for (int k = 0; k < BLOCK_COUNT; k++) {
        const struct search_block *b = v->block[k];
        const double n = v->shape[chunk].n[k];
        if (n) sum += n * (b->bwd.diag_s[LANE_COMPUTE] + b->weight->diag_s[LANE_COMPUTE]);
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

/* After the backward: reductions of a chunk can start under its last pass only; the norm needs all stages; every stage
 * then updates on one stream and gathers on another. Nothing of a micro-batch begins before what a framework does between
 * steps is done; only copies of weights may. */
double search_bound_step_s(struct search_views *all, const struct search_point *p, int recompute)
{
    const struct search_view v = search_view_priced(all, p, recompute);
    struct paths t;
    const double between_s = all->space->job->stack.step_s;
    double ready_s = 0, update_s = 0, world_s = 0;
    paths_of(&t, all, &v);
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
