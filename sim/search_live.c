/* See search_live.h. */
#include "sim/search_live.h"
#include <math.h>

struct pair { double net_B, peak_B; };

/* `n` times one block, after what came before. */
static void pair_add(struct pair *p, const struct search_half *h, double n)
{
    if (!n) return;
    p->peak_B = fmax(p->peak_B, p->net_B + fmax(0, h->net_B) * (n - 1) + h->peak_B);
    p->net_B += n * h->net_B;
}

/* A pass of a chunk, with its boundary: received first, gone once sent. */
static struct pair pair_of(const struct search_view *v, int chunk, enum pass_kind kind)
{
    const int fwd = kind == PASS_FWD, wires = kind != PASS_BWD_WEIGHT;
    const int head = chunk == 0, tail = chunk == v->pp * v->vpp - 1;
    const double edge_B = search_view_first(v, chunk)->edge_B;
    struct pair p = { 0, 0 };
    if (wires && !(fwd ? head : tail)) p.net_B = p.peak_B = edge_B;
    for (int i = 0; i < BLOCK_COUNT; i++) {
        const int k = fwd ? i : BLOCK_COUNT - 1 - i;
        const struct search_block *b = v->block[k];
        if (b) pair_add(&p, fwd ? &b->fwd : wires ? &b->bwd : b->weight, v->shape[chunk].n[k]);
    }
    if (wires && !(fwd ? tail : head)) p.net_B -= edge_B;
    return p;
}

/* Woven: while one half is at its peak, forward holds no less than nothing, and backward no less than nothing
 * less all that the forward of its chunk had left (`saved_B`). */
static struct pair pair_woven(struct pair f, struct pair b, double saved_B)
{
    const double net_B = f.net_B + b.net_B;
    return (struct pair){ net_B, fmax(fmax(b.peak_B, f.peak_B - saved_B), net_B) };
}

/* A stage on its way through its schedule. */
struct walk {
    const struct search_view *v;
    struct pair f[LAYOUT_CHUNKS], b[LAYOUT_CHUNKS], weight[LAYOUT_CHUNKS];      /* by chunk of the stage */
    int slots, warmup;
    int waits;                          /* the chunk whose weight gradients are still to run, -1: none */
    double now_B, peak_B;
};

static void walk_pass(struct walk *w, struct pair p)
{
    w->peak_B = fmax(w->peak_B, w->now_B + p.peak_B);
    w->now_B += p.net_B;
}

static void walk_weight(struct walk *w)
{
    if (w->waits >= 0) walk_pass(w, w->weight[w->waits]);
    w->waits = -1;
}

/* Slot k of the stage's schedule: sched.c's sched_slot in bytes. */
static void walk_slot(struct walk *w, int k)
{
    const struct search_view *v = w->v;
    const int has_f = k < w->slots, has_b = k >= w->warmup;
    const int f = has_f ? search_view_slot(v, k) : 0;
    const int b = has_b ? v->vpp - 1 - search_view_slot(v, k - w->warmup) : 0;
    if (has_f && has_b && v->weave) {
        walk_pass(w, pair_woven(w->f[f], w->b[b], w->f[b].net_B));
    } else {
        if (has_f) walk_pass(w, w->f[f]);
        walk_weight(w);
        if (has_b) walk_pass(w, w->b[b]);
    }
    if (has_b && v->split) w->waits = b;
    if (v->weave || k + 1 >= w->slots) walk_weight(w);
}

/* Until the schedule repeats itself, or to its end. */
static double stage_peak_B(const struct search_view *v, int stage)
{
    const int period = v->vpp == 1 ? 1 : v->group * v->vpp;
    struct walk w;
    w.v = v, w.waits = -1, w.now_B = w.peak_B = 0;
    w.slots = v->n_micro * v->vpp;
    w.warmup = search_view_warmup(v, stage);
    const int all = w.slots + w.warmup, some = w.warmup + 2 * period;
    for (int c = 0; c < v->vpp; c++) {
        w.f[c] = pair_of(v, c * v->pp + stage, PASS_FWD);
        w.b[c] = pair_of(v, c * v->pp + stage, PASS_BWD);
        if (v->split) w.weight[c] = pair_of(v, c * v->pp + stage, PASS_BWD_WEIGHT);
    }
    for (int k = 0; k < (some < w.slots ? some : all); k++) walk_slot(&w, k);
    return w.peak_B;
}

/* ---- what is kept for ever ---- */

/* Of one block of each kind, on a rank. */
static void block_states_B(double one_B[BLOCK_COUNT], const struct search_view *v)
{
    int has[BLOCK_COUNT] = { 0 };
    for (int r = 0; r < v->runs->n; r++)
        for (int k = 0; k < BLOCK_COUNT; k++) has[k] |= v->runs->run[r].all[k];
    for (int k = 0; k < BLOCK_COUNT; k++) {
        if (!has[k]) continue;
        const struct search_states *s = search_block_states(v->blocks, v->point, (enum block)k);
        one_B[k] = s->own_B + s->dense_B / (v->g->cp * v->g->dp) + s->expert_B / v->g->edp;
    }
}

static double run_states_B(const double one_B[BLOCK_COUNT], const struct search_run *r)
{
    double sum = 0;
    for (int k = 0; k < BLOCK_COUNT; k++)
        if (r->all[k]) sum += r->all[k] * one_B[k];
    return sum;
}

/* Of all blocks together: no less than of one. */
static double stage_cache_B(const struct search_view *v, int stage)
{
    double most = 0;
    for (int c = 0; c < v->vpp; c++)
        for (int k = 0; k < BLOCK_COUNT; k++)
            if (v->shape[c * v->pp + stage].n[k]) most = fmax(most, v->block[k]->cache_B);
    return most;
}

double search_live_states_B(struct search_views *all, const struct search_point *p)
{
    const struct search_view v = search_view_of(all, p);
    double most = 0, one_B[BLOCK_COUNT];
    block_states_B(one_B, &v);
    for (int r = 0; r < v.runs->n; r++) {
        const double states_B = run_states_B(one_B, &v.runs->run[r]);
        if (states_B > most) most = states_B;
    }
    return most;
}

double search_live_B(struct search_views *all, const struct search_point *p, int recompute)
{
    const struct search_view v = search_view_priced(all, p, recompute);
    double most = 0, one_B[BLOCK_COUNT];
    block_states_B(one_B, &v);
    for (int r = 0; r < v.runs->n; r++) {
        const struct search_run *run = &v.runs->run[r];
        const double states_B = run_states_B(one_B, run), cache_B = stage_cache_B(&v, run->first);
        for (int s = run->first; s < run->first + run->n; s++)
            most = fmax(most, states_B + cache_B + stage_peak_B(&v, s));
    }
    return most;
}
