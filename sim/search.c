/* Best first. Every plan whose states fit waits in a heap under its bound; the lowest is taken, its bound
 * made finer, its memory checked by pairs, and at last it is simulated whole. When the lowest bound left is
 * no lower than the best step simulated, that step is proven best of the space (under this cost model); the
 * hunt goes on to what lies within WITHIN of it. A plan that does not fit puts its recompute sets into the
 * heap: computing again never makes a step shorter, so while a plan fits they need not be looked at. */
#include "sim/search.h"
#include "sim/search_bound.h"
#include "sim/search_live.h"
#include "sim/search_try.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const double WITHIN = 1.02;          /* of the best: all of these are reported      */
static const double NEAR = 1.25;            /* how far the first `top` may be from the best */
/* Plans simulated before the next are chosen: many threads have work, and the choice is the same for any number of
 * them. */
enum { BATCH = 16 };

/* A node is a grid and micro-batch under all ways, under one (its first plan stands for all), or one plan. */
enum level { LEVEL_GRID, LEVEL_MANY, LEVEL_SLOTS, LEVEL_STEP, LEVEL_FITS };
struct node { double bound_s; struct search_point point; uint8_t recompute, level; };
/* Of some plan of the grid: its states fit; its memory was looked at; it fits. */
struct grid_state { uint8_t holds, opened, fits; };
struct need { double live_B; struct search_point point; int32_t only_states; };

struct hunt {
    const struct job *job;
    struct search_space space;
    struct search_views views;
    struct search_tries tries;
    struct search_try batch[BATCH]; int32_t n_batch;    /* about to be simulated */
    struct arena *arena;
    struct search_point *points;            /* SEARCH_POINTS: of one grid and micro-batch */
    struct node *heap; int32_t n_heap, room_heap;
    struct search_try *found; int32_t n_found, room_found;
    struct grid_state *grid;
    struct need least;                      /* the plan that comes nearest to fitting */
    double *first_s; int top;               /* the lowest steps found, ascending; how many are asked for */
    int most;                               /* plans simulated at most */
    struct search_result *r;
};

/* ---- the heap ---- */

/* The total order of plans: grids in the order of the space, then what varies on them. */
static int point_order(const struct search_point *a, const struct search_point *b)
{
    const struct search_way *v = &a->way, *w = &b->way;
    const int32_t x[] = { a->grid, a->mbs, a->vpp, v->weave, v->dispatcher, v->cp_comm, v->fsdp, a->order };
    const int32_t y[] = { b->grid, b->mbs, b->vpp, w->weave, w->dispatcher, w->cp_comm, w->fsdp, b->order };
    for (int i = 0; i < LEN(x); i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

static int node_before(const struct node *a, const struct node *b)
{
    if (a->bound_s != b->bound_s) return a->bound_s < b->bound_s;
    const int order = point_order(&a->point, &b->point);
    if (order) return order < 0;
    return a->recompute != b->recompute ? a->recompute < b->recompute : a->level < b->level;
}

static void heap_push(struct hunt *h, struct node n)
{
    if (h->n_heap == h->room_heap) {
        const int32_t room = h->room_heap ? 2 * h->room_heap : 1 << 16;
        h->heap = arena_grow(h->arena, h->heap, (size_t)h->n_heap, (size_t)room, sizeof *h->heap);
        h->room_heap = room;
    }
    int i = h->n_heap++;
    for (; i > 0 && node_before(&n, &h->heap[(i - 1) / 2]); i = (i - 1) / 2)
        h->heap[i] = h->heap[(i - 1) / 2];
    h->heap[i] = n;
}

static struct node heap_pop(struct hunt *h)
{
    const struct node top = h->heap[0], last = h->heap[--h->n_heap];
    int i = 0;
    for (int k = 1; k < h->n_heap; i = k, k = 2 * k + 1) {
        if (k + 1 < h->n_heap && node_before(&h->heap[k + 1], &h->heap[k])) k++;
        if (node_before(&last, &h->heap[k])) break;
        h->heap[i] = h->heap[k];
    }
    h->heap[i] = last;
    return top;
}

/* ---- what waits ---- */

static void too_large(struct hunt *h, const struct search_point *p, double live_B, int only_states)
{
    if (live_B < h->least.live_B) h->least = (struct need){ live_B, *p, only_states };
}

static int first_recompute(const struct hunt *h, const struct search_point *p)
{
    return h->space.recompute[p->way.weave][0];
}

static int same_way(struct search_way a, struct search_way b)
{
    return a.weave == b.weave && a.dispatcher == b.dispatcher && a.cp_comm == b.cp_comm && a.fsdp == b.fsdp;
}

static void wait_for(struct hunt *h, const struct search_point *p, int recompute)
{
    const double bound_s = search_bound_slots_s(&h->views, p, recompute);
    heap_push(h, (struct node){ bound_s, *p, (uint8_t)recompute, LEVEL_SLOTS });
    h->r->priced++;
}

/* Do the states of some plan fit? They depend on the layout besides the grid. */
static int states_fit(struct hunt *h, const struct search_point *p)
{
    const double states_B = search_live_states_B(&h->views, p);
    if (states_B > h->tries.room_B) too_large(h, p, states_B, 1);
    return states_B <= h->tries.room_B;
}

/* A node for each way among `n` points: each has a floor of its own. `whole`: where parameters are cut, the floor of what they
 * would take whole, for which no grid is priced. */
static int ways_of(struct node to[SEARCH_WAYS], struct hunt *h, int64_t n, int whole)
{
    int ways = 0;
    for (int64_t i = 0; i < n; i++) {
        struct search_point p = h->points[i];
        const int recompute = first_recompute(h, &p);
        int w = 0;
        while (w < ways && !same_way(to[w].point.way, p.way)) w++;
        if (w < ways && (whole || !p.way.fsdp || to[w].point.order == p.order)) continue;
        if (w == ways) to[ways++] = (struct node){ INFINITY, p, (uint8_t)recompute, LEVEL_MANY };
        if (whole) p.way.fsdp = 0;
        to[w].bound_s = fmin(to[w].bound_s, search_bound_floor_s(&h->views, &p, recompute));
    }
    return ways;
}

static void wait_ways(struct hunt *h, int64_t n)
{
    struct node way[SEARCH_WAYS];
    struct node low = { .bound_s = INFINITY };
    for (int w = ways_of(way, h, n, 1) - 1; w >= 0; w--)
        if (way[w].bound_s <= low.bound_s) low = way[w];
    low.level = LEVEL_GRID;
    heap_push(h, low);
}

static void wait_grid(struct hunt *h, int grid)
{
    const struct search_grid *g = &h->space.grid[grid];
    for (int mbs = h->space.mbs[0]; mbs <= h->space.mbs[1]; mbs++) {
        const int64_t n = search_space_points(&h->space, g, grid, mbs, h->points).points;
        int holds = 0;
        for (int64_t i = 0; i < n && !holds; i++) holds = states_fit(h, &h->points[i]);
        if (holds) wait_ways(h, n);
        h->grid[grid].holds |= holds;
    }
}

/* ---- taking one ---- */

/* What does not fit may, with something computed again. */
static void recompute_more(struct hunt *h, const struct search_point *p, int recompute, double live_B)
{
    const struct search_space *s = &h->space;
    too_large(h, p, live_B, 0);
    if (recompute != s->recompute[p->way.weave][0]) return;
    for (int i = 1; i < s->n_recompute[p->way.weave]; i++) wait_for(h, p, s->recompute[p->way.weave][i]);
}

static int64_t points_like(struct hunt *h, const struct node *n)
{
    const int grid = n->point.grid;
    return search_space_points(&h->space, &h->space.grid[grid], grid, n->point.mbs, h->points).points;
}

static void open_grid(struct hunt *h, const struct node *n)
{
    struct node way[SEARCH_WAYS];
    const int ways = ways_of(way, h, points_like(h, n), 0);
    for (int w = 0; w < ways; w++) heap_push(h, way[w]);
}

static void open_many(struct hunt *h, const struct node *n)
{
    const int64_t count = points_like(h, n);
    for (int64_t i = 0; i < count; i++)
        if (same_way(h->points[i].way, n->point.way) && states_fit(h, &h->points[i]))
            wait_for(h, &h->points[i], first_recompute(h, &h->points[i]));
}

static void refine(struct hunt *h, struct node n)
{
    n.bound_s = fmax(n.bound_s, search_bound_step_s(&h->views, &n.point, n.recompute));
    n.level = LEVEL_STEP;
    heap_push(h, n);
}

static void check_memory(struct hunt *h, struct node n)
{
    const double live_B = search_live_B(&h->views, &n.point, n.recompute);
    h->grid[n.point.grid].opened = 1;
    if (live_B > h->tries.room_B) {
        recompute_more(h, &n.point, n.recompute, live_B);
        return;
    }
    n.level = LEVEL_FITS;
    heap_push(h, n);
}

static void keep_first(struct hunt *h, double step_s)
{
    int i = h->top - 1;
    if (step_s >= h->first_s[i]) return;
    for (; i > 0 && step_s < h->first_s[i - 1]; i--) h->first_s[i] = h->first_s[i - 1];
    h->first_s[i] = step_s;
}

static void keep_found(struct hunt *h, const struct search_try *f)
{
    if (h->n_found == h->room_found) {
        h->room_found = 2 * h->room_found + 256;
        h->found = arena_grow(h->arena, h->found, (size_t)h->n_found, (size_t)h->room_found, sizeof *h->found);
    }
    h->found[h->n_found++] = *f;
    keep_first(h, f->step_s);
}

static void take(struct hunt *h, const struct search_try *f)
{
    if (f->peak_B > h->tries.room_B) {
        recompute_more(h, &f->point, f->recompute, f->peak_B);
        return;
    }
    h->grid[f->point.grid].fits = 1;
    h->r->fits++;
    if (f->step_s < INFINITY) keep_found(h, f);
}

static void take_batch(struct hunt *h)
{
    search_try_all(&h->tries, h->batch, h->n_batch);
    for (int i = 0; i < h->n_batch; i++) take(h, &h->batch[i]);
    h->r->simulated += h->n_batch;
    h->n_batch = 0;
}

/* Above this bound nothing is looked at. */
static double limit_s(const struct hunt *h)
{
    return fmax(WITHIN * h->first_s[0], fmin(h->first_s[h->top - 1], NEAR * h->first_s[0]));
}

static int may_be_better(const struct hunt *h)
{
    return h->n_heap && h->heap[0].bound_s < limit_s(h) && h->r->simulated + h->n_batch < h->most;
}

static void hunt(struct hunt *h)
{
    while (may_be_better(h) || h->n_batch) {
        if (h->n_batch == BATCH || !may_be_better(h)) {
            take_batch(h);
            continue;
        }
        const struct node n = heap_pop(h);
        switch ((enum level)n.level) {
        case LEVEL_GRID: open_grid(h, &n); break;
        case LEVEL_MANY: open_many(h, &n); break;
        case LEVEL_SLOTS: refine(h, n); break;
        case LEVEL_STEP: check_memory(h, n); break;
        case LEVEL_FITS:
            h->batch[h->n_batch++] = (struct search_try){ .point = n.point, .recompute = n.recompute };
            break;
        }
    }
}

/* ---- the answer ---- */

static int found_order(const void *a, const void *b)
{
    const struct search_try *x = a, *y = b;
    if (x->step_s != y->step_s) return x->step_s < y->step_s ? -1 : 1;
    const int order = point_order(&x->point, &y->point);
    return order ? order : (x->recompute > y->recompute) - (x->recompute < y->recompute);
}

/* As predict answers about the plan. */
static struct search_hit hit_of(const struct hunt *h, const struct search_try *f)
{
    struct arena a = { 0 };
    struct job *j = arena_alloc(&a, sizeof *j);
    struct predict whole = { .step_s = f->step_s, .peak_B = f->peak_B };
    struct diag d;
    *j = *h->job;
    search_space_plan(j, &h->space, &f->point, f->recompute, &d);
    if (j->stack.arena) predict_job(&whole, NULL, &a, j);
    else predict_rates(&whole, j);
    const struct search_hit hit = { .plan = j->plan, .step_s = whole.step_s, .tflops = whole.tflops_gpu,
                                    .tokens_per_s_gpu = whole.tokens_per_s_gpu, .peak_B = whole.peak_B };
    arena_free(&a);
    return hit;
}

/* The best `top`, and all within WITHIN of the best. */
static void answer_hits(struct hunt *h)
{
    struct search_result *r = h->r;
    const double same_s = WITHIN * h->first_s[0];
    if (h->n_found) qsort(h->found, (size_t)h->n_found, sizeof *h->found, found_order);
    while (r->n_hit < h->n_found && (r->n_hit < h->top || h->found[r->n_hit].step_s <= same_s)) r->n_hit++;
    r->hit = arena_alloc(h->arena, (size_t)(r->n_hit + 1) * sizeof *r->hit);
    for (int i = 0; i < r->n_hit; i++) r->hit[i] = hit_of(h, &h->found[i]);
}

static void reject(struct hunt *h, const char *reason, int64_t grids)
{
    struct search_result *r = h->r;
    if (grids) {
        snprintf(r->reject[r->n_reject].reason, sizeof r->reject->reason, "%s", reason);
        r->reject[r->n_reject++].grids = grids;
    }
}

/* A grid is refused by a rule, by its states, or by everything else that its plans hold. */
static void answer_rejects(struct hunt *h)
{
    const struct search_space *s = &h->space;
    int64_t states = 0, live = 0;
    uint8_t *waits = arena_alloc(h->arena, (size_t)s->n_grid + 1);
    for (int i = 0; i < h->n_heap; i++) waits[h->heap[i].point.grid] = 1;
    for (int g = 0; g < s->n_grid; g++) {
        const struct grid_state *t = &h->grid[g];
        states += !t->holds;
        live += t->opened && !t->fits && !waits[g];
        h->r->grids_opened += t->opened;
        h->r->grids_bounded_out += t->holds && !t->opened;
    }
    h->r->reject = arena_alloc(h->arena, (SEARCH_RULE_COUNT + 2) * sizeof *h->r->reject);
    for (int k = 0; k < SEARCH_RULE_COUNT; k++)
        reject(h, search_space_rule_text((enum search_rule)k), s->refused[k]);
    reject(h, "weights, gradients and optimizer states alone exceed the memory", states);
    reject(h, "with activations no plan fits, whatever is computed again", live);
}

static void answer_proof(struct hunt *h)
{
    const double left_s = h->n_heap ? h->heap[0].bound_s : INFINITY;
    const double best_s = h->first_s[0];
    h->r->proven = h->n_found > 0 && left_s >= best_s;
    h->r->gap = h->n_found && !h->r->proven ? (best_s - left_s) / best_s : 0;
}

static enum err nothing_passes(const struct hunt *h, struct diag *d)
{
    const struct search_space *s = &h->space;
    int most = 0;
    for (int k = 1; k < SEARCH_RULE_COUNT; k++)
        if (s->refused[k] > s->refused[most]) most = k;
    if (!s->foldings)
        return fail(d, ERR_NO, "no folding of %d GPUs has the degrees that were fixed: they must divide it",
                    h->job->plan.gpus);
    return fail(d, ERR_NO,
                "no plan passes the rules; of %lld foldings of %d GPUs most (%lld) are refused because %s",
                (long long)s->foldings, h->job->plan.gpus, (long long)s->refused[most],
                search_space_rule_text((enum search_rule)most));
}

/* The plan that comes nearest, and its need. */
static enum err nothing_fits(const struct hunt *h, struct diag *d)
{
    const struct search_point *p = &h->least.point;
    const struct search_grid *g = &h->space.grid[p->grid];
    const double gib = 1 << 30;
    if (h->n_heap)
        return fail(d, ERR_NO, "none of the %d plans simulated fits, others were not looked at: fix some options",
                    h->most);
    return fail(d, ERR_NO,
                "nothing fits: the plan that needs least (tp %d cp %d pp %d ep %d etp %d mbs %d) needs %s "
                "%.1f GiB of %.1f GiB on its worst GPU%s: use more GPUs, or GPUs with more memory",
                g->tp, g->cp, g->pp, g->ep, g->etp, p->mbs, h->least.only_states ? "at least" : "about",
                predict_device_B(h->job, h->least.live_B) / gib, h->job->system.memory_B / gib,
                h->least.only_states ? ", weights, gradients and optimizer states alone" : "");
}

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void hunt_open(struct hunt *h, struct search_result *r, struct arena *a, const struct job *j,
                      const struct search_ask *ask)
{
    *h = (struct hunt){ .job = j, .arena = a, .r = r, .least.live_B = INFINITY };
    h->top = ask->top > 0 ? ask->top : 1;
    h->most = ask->simulate > 0 && ask->simulate < SEARCH_SIMULATE ? ask->simulate : SEARCH_SIMULATE;
    search_space_init(&h->space, a, j, ask->fixed);
    search_view_init(&h->views, a, &h->space);
    search_try_open(&h->tries, &h->space, predict_room_B(j), ask->threads);
    h->grid = arena_alloc(a, (size_t)h->space.n_grid * sizeof *h->grid + 1);
    h->first_s = arena_alloc(a, (size_t)h->top * sizeof *h->first_s);
    for (int i = 0; i < h->top; i++) h->first_s[i] = INFINITY;
    h->points = arena_alloc(a, SEARCH_POINTS * sizeof *h->points);
    *r = (struct search_result){
        .grids = h->space.grids,
        .gbs_valid = h->space.gbs_valid,
        .with_mbs = h->space.with_mbs,
        .with_layout = h->space.with_layout,
        .plans = h->space.plans,
        .grids_valid = h->space.n_grid,
    };
}

/* Sizes without which nothing can be counted, refused in plan_resolve's words. */
static enum err check_sizes(const struct job *j, struct diag *d)
{
    struct job one = *j;
    return j->plan.gpus < 1 || j->plan.gbs < 1 || j->plan.seq < 1 ? plan_resolve(&one, d) : OK;
}

/* What no degree can cure (a precision without a peak, an option that the stack lacks): it refuses every plan. */
static enum err check_first(struct hunt *h, struct diag *d)
{
    struct job one = *h->job;
    for (int mbs = h->space.mbs[0]; h->space.n_grid && mbs <= h->space.mbs[1]; mbs++)
        if (search_space_points(&h->space, &h->space.grid[0], 0, mbs, h->points).points)
            return search_space_plan(&one, &h->space, &h->points[0], first_recompute(h, &h->points[0]), d);
    return OK;
}

enum err search_run(struct search_result *r, struct arena *a, const struct job *j,
                    const struct search_ask *ask, struct diag *d)
{
    const double from_s = clock_s();
    struct hunt h;
    if (j->plan.packed)
        return fail(d, ERR_LIMIT, "--packed: a search prices whole sequences: leave it out, and predict the plans that "
                                  "it finds");
    TRY(check_sizes(j, d));
    hunt_open(&h, r, a, j, ask);
    TRY(check_first(&h, d));
    for (int g = 0; g < h.space.n_grid; g++) wait_grid(&h, g);
    hunt(&h);
    answer_hits(&h);
    answer_rejects(&h);
    answer_proof(&h);
    search_block_close(h.views.blocks);
    search_try_close(&h.tries);
    r->total_s = clock_s() - from_s;
    if (!h.space.n_grid) return nothing_passes(&h, d);
    return r->n_hit ? OK : nothing_fits(&h, d);
}
