/* Bounds of a search never exceed what is simulated, on 10,000 random plans, and block prices depend on nothing but their
 * keys. */
#include "sim/search_bound.h"
#include "sim/search_live.h"
#include "tests/setting.h"
#include "tests/test.h"

/* ---- bounds ---- */

/* small: tiny steps of a host that costs nothing, so that what is done once a step shows; 2: with tied tables. */
static const struct { const char *flags; int plans; double time, memory; int small; } bounded[] = {
    { "model deepseek-v3 system gb200-nvl72 gpus 256 gbs 512 seq 4096 fsdp 0", 60, 0.90, 0.98, 0 },
    { "model deepseek-v3 system gb200-nvl72 gpus 256 gbs 512 seq 4096 fsdp 1", 30, 0.80, 0.90, 0 },
    { "model deepseek-v3 system h100-sxm gpus 1024 gbs 2048 seq 4096 split-wgrad 1", 40, 0.90, 0.98, 0 },
    { "model qwen3-30b-a3b system gb200-nvl72 gpus 72 gbs 288 seq 4096", 120, 0.90, 0.98, 0 },
    { "model mixtral-8x7b system h100-sxm gpus 64 gbs 256 seq 8192 fsdp 0", 200, 0.90, 0.98, 0 },
    { "model mixtral-8x7b system h100-sxm gpus 64 gbs 256 seq 16384 dispatcher deepep fsdp 0", 60, 0.90, 0.98, 0 },
    { "model tiny-moe system h100-sxm gpus 16 gbs 64 seq 256 dispatcher hybridep", 800, 0.60, 0.90, 0 },
    { "model mixtral-8x7b system h100-sxm gpus 64 gbs 256 seq 8192 fsdp 1", 60, 0.90, 0.90, 0 },
    { "model tiny-moe system h100-sxm gpus 16 gbs 64 seq 256 fsdp 1", 800, 0.60, 0.90, 0 },
    { "model llama3-8b system b200 gpus 32 gbs 128 seq 8192 fsdp 0", 200, 0.90, 0.98, 0 },
    { "model llama3-8b system b200 gpus 32 gbs 128 seq 8192 fsdp 1", 100, 0.90, 0.90, 0 },
    { "model tiny-moe system h100-sxm gpus 16 gbs 64 seq 256", 2200, 0.60, 0.90, 0 },
    { "model tiny-moe system gb200-nvl72 gpus 8 gbs 32 seq 512 split-wgrad 1", 2200, 0.60, 0.90, 0 },
    { "model tiny-moe system host gpus 12 gbs 48 seq 96", 2200, 0.60, 0.90, 0 },
    { "model tiny-moe system a100-sxm gpus 1 gbs 1 seq 48 mtp 0", 300, 0.60, 0.60, 1 },
    { "model tiny-moe system a100-sxm gpus 1 gbs 1 seq 48 mtp 0", 300, 0.60, 0.60, 2 },
    { "model tiny-moe system a100-sxm gpus 1 gbs 1 seq 48 mtp 1", 300, 0.60, 0.60, 1 },
    { "model tiny-moe system gb200-nvl72 gpus 16 gbs 64 seq 256 precision mxfp8", 900, 0.60, 0.90, 0 },
    { "model deepseek-v3 system h100-sxm gpus 1024 gbs 2048 seq 4096 precision fp8-block fsdp 0", 20, 0.90, 0.98, 0 },
    { "model tiny-moe system b200 gpus 16 gbs 64 seq 256 precision mxfp8 fp8-param-gather 1 moments bf16 grads bf16",
      100, 0.60, 0.90, 0 },
};

static void check_bounds(struct setting *t, struct search_views *v, const struct search_point *p,
                         int recompute, double *sum)
{
    struct diag d;
    struct job *j = arena_alloc(&t->arena, sizeof *j);
    *j = *t->job;
    ck_assert_int_eq(search_space_plan(j, &t->space, p, recompute, &d), OK);
    const struct truth is = truth_of(j);
    const double floor_s = search_bound_floor_s(v, p, recompute),
                 slots_s = search_bound_slots_s(v, p, recompute);
    const double step_s = search_bound_step_s(v, p, recompute), live_B = search_live_B(v, p, recompute);
    const struct plan *q = &j->plan;
    ck_assert_msg(
        floor_s <= slots_s * (1 + 1e-12) && slots_s <= step_s && step_s <= is.step_s * (1 + 1e-12),
        "tp %d cp %d pp %d vpp %d etp %d ep %d mbs %d schedule %d recompute %d: bounds %g %g %g, step %g",
        q->tp, q->cp, q->pp, q->vpp, q->etp, q->ep, q->mbs, q->schedule, recompute, floor_s, slots_s, step_s,
        is.step_s);
    ck_assert_msg(search_live_states_B(v, p) <= live_B && live_B <= is.live_B,
                  "tp %d cp %d pp %d vpp %d etp %d ep %d mbs %d schedule %d recompute %d: states %.0f, bound "
                  "%.0f, live %.0f",
                  q->tp, q->cp, q->pp, q->vpp, q->etp, q->ep, q->mbs, q->schedule, recompute,
                  search_live_states_B(v, p), live_B, is.live_B);
    sum[0] += step_s / is.step_s;
    sum[1] += live_B / is.live_B;
}

START_TEST(bounds_hold)
{
    struct setting t;
    uint64_t state = 11;
    double sum[2] = { 0, 0 };
    static struct search_point point[SEARCH_MBS * SEARCH_POINTS];
    setting_read(&t, bounded[_i].flags);
    if (bounded[_i].small) {
        t.job->system.issue_s = t.job->system.call_s = t.job->stack.step_s = 0;
        t.job->model.tied = bounded[_i].small > 1;
    }
    search_space_init(&t.space, &t.arena, t.job, t.fixed);
    struct search_views v;
    search_view_init(&v, &t.arena, &t.space);
    for (int i = 0; i < bounded[_i].plans; i++) {
        const int grid = test_random(&state, t.space.n_grid), n = points_of(&t.space, grid, point);
        const struct search_point *p = &point[test_random(&state, n)];
        check_bounds(&t, &v, p,
                     t.space.recompute[p->way.weave][test_random(&state, t.space.n_recompute[p->way.weave])], sum);
    }
    ck_assert_double_gt(sum[0] / bounded[_i].plans, bounded[_i].time);      /* and are not idle */
    ck_assert_double_gt(sum[1] / bounded[_i].plans, bounded[_i].memory);
    search_block_close(v.blocks);
    arena_free(&t.arena);
}
END_TEST

static const char *const floors[] = {
    "model deepseek-v3 system h100-sxm gpus 256 gbs 512 seq 4096 pp 8",
    "model qwen3-30b-a3b system h100-sxm gpus 16 gbs 64 seq 4096",
    "model mixtral-8x7b system h100-sxm gpus 64 gbs 256 seq 8192",
};

/* A search opens the plans of a grid, micro-batch and way only when the floor of the first is below the best: no other plan
 * of that way is faster. With exchanges in order with compute, a woven plan is faster than the floor of one that is not. */
START_TEST(a_floor_stands_for_its_way)
{
    struct setting t;
    struct search_views v;
    uint64_t state = 7;
    int pairs = 0, below = 0;
    static struct search_point point[SEARCH_MBS * SEARCH_POINTS];
    setting_open(&t, floors[_i]);
    search_view_init(&v, &t.arena, &t.space);
    for (int i = 0; i < 200; i++) {
        const int grid = test_random(&state, t.space.n_grid), n = points_of(&t.space, grid, point);
        const struct search_point *p = &point[test_random(&state, n)], *first = point;
        while (first->mbs != p->mbs || memcmp(&first->way, &p->way, sizeof p->way)) first++;
        const double floor_s = search_bound_floor_s(&v, first, t.space.recompute[first->way.weave][0]);
        const int set = t.space.recompute[p->way.weave][test_random(&state, t.space.n_recompute[p->way.weave])];
        const double step_s = search_bound_step_s(&v, p, set);
        ck_assert_msg(floor_s <= step_s * (1 + 1e-12), "floor %g, step %g", floor_s, step_s);
        pairs += first != p;
        if (!p->way.weave) continue;
        for (first = point; first->mbs != p->mbs; first++) {}
        below += !first->way.weave &&
                 search_bound_floor_s(&v, first, t.space.recompute[0][0]) > search_bound_floor_s(&v, p, set);
    }
    ck_assert_int_ge(pairs, 50);
    ck_assert_int_ge(below, 5);
    search_block_close(v.blocks);
    arena_free(&t.arena);
}
END_TEST

/* ---- ways ---- */

static struct search_shift busy_of(const struct search_block *b)
{
    const struct search_half *half[] = { &b->fwd, &b->bwd, b->weight };
    struct search_shift sum = { .exchange_s = 0 };
    for (int i = 0; i < LEN(half); i++) {
        for (int k = 0; k < LANE_COUNT; k++) sum.busy_s[k] += half[i]->busy_s[k];
        sum.exchange_s += half[i]->exchange_s;
    }
    return sum;
}

/* A layer under any dispatcher and kind of cp keeps every stream as busy as under the plain way and both shifts, which were
 * read off other grids that look the same to them. */
START_TEST(shifts_are_differences)
{
    struct setting t;
    uint64_t state = 3;
    static struct search_point point[SEARCH_MBS * SEARCH_POINTS];
    int shifted = 0;
    setting_open(&t, floors[_i]);
    struct search_blocks *b = search_block_open(&t.arena, &t.space);
    for (int i = 0; i < 400; i++) {
        const int grid = test_random(&state, t.space.n_grid);
        struct search_point p = point[test_random(&state, points_of(&t.space, grid, point))], plain = p;
        p.way.weave = p.way.fsdp = 0, plain.way = t.space.plain;
        const struct search_shift way = busy_of(search_block_price(b, &p, 0, BLOCK_MOE));
        const struct search_shift from = busy_of(search_block_price(b, &plain, 0, BLOCK_MOE));
        const struct search_shift *cp = search_block_shift_cp(b, &p, 0), *ep = search_block_shift_ep(b, &p, 0);
        for (int k = 0; k < LANE_COUNT; k++)
            ck_assert_double_eq_tol(way.busy_s[k], from.busy_s[k] + cp->busy_s[k] + ep->busy_s[k],
                                    1e-9 * way.busy_s[k] + 1e-15);
        ck_assert_double_eq_tol(way.exchange_s, from.exchange_s + ep->exchange_s, 1e-9 * way.exchange_s + 1e-15);
        shifted += p.way.dispatcher != plain.way.dispatcher && p.way.cp_comm != plain.way.cp_comm;
    }
    ck_assert_int_ge(shifted, 20);
    search_block_close(b);
    arena_free(&t.arena);
}
END_TEST

/* ---- keys ---- */

static void check_half(const struct search_half *a, const struct search_half *b)
{
    for (int k = 0; k < LANE_COUNT; k++) {
        ck_assert_double_eq(a->diag_s[k], b->diag_s[k]);
        ck_assert_double_eq(a->busy_s[k], b->busy_s[k]);
        ck_assert(a->in_s[k] == b->in_s[k] && a->out_s[k] == b->out_s[k]);
    }
    ck_assert(a->through_s == b->through_s);
    ck_assert_double_eq(a->net_B, b->net_B);
    ck_assert_double_eq(a->peak_B, b->peak_B);
}

/* The same block seen from any plan that agrees on its key: stages, data parallelism and order are not in it,
 * and for dense layers nor are experts and who is sent to them. */
START_TEST(blocks_see_their_keys)
{
    static const char *const flags[] = { "model deepseek-v3 system gb200-nvl72 gpus 64 gbs 64 seq 4096",
                                         "model mixtral-8x7b system h100-sxm gpus 32 gbs 32 seq 4096" };
    struct setting t;
    uint64_t state = 5;
    static struct search_point point[SEARCH_MBS * SEARCH_POINTS];
    int pairs = 0;
    setting_open(&t, flags[_i]);
    for (int i = 0; i < 40000 && pairs < 150; i++) {
        struct search_point p[2];
        for (int k = 0; k < 2; k++) {
            const int grid = test_random(&state, t.space.n_grid);
            p[k] = point[test_random(&state, points_of(&t.space, grid, point))];
        }
        const struct search_grid *g = &t.space.grid[p[0].grid], *o = &t.space.grid[p[1].grid];
        if (g->tp != o->tp || g->cp != o->cp || p[0].mbs != p[1].mbs) continue;
        const int ends = (g->pp > 1) == (o->pp > 1);
        const int same = g->etp == o->etp && g->ep == o->ep && !memcmp(&p[0].way, &p[1].way, sizeof p->way);
        for (int k = BLOCK_EMBED; k <= BLOCK_LOSS; k++) {
            if (k == BLOCK_DENSE && !t.job->model.dense_layers) continue;
            if (!ends && (k == BLOCK_EMBED || k == BLOCK_LOSS)) continue;
            if ((p[0].way.fsdp || p[1].way.fsdp) && (g->pp != o->pp || p[0].order != p[1].order || !same)) continue;
            if (!same && (k == BLOCK_MOE || (k == BLOCK_LOSS && t.job->model.mtp))) continue;
            if (p[0].way.cp_comm != p[1].way.cp_comm && k == BLOCK_DENSE) continue;
            const struct search_block *x[2];
            for (int m = 0; m < 2; m++) {           /* a memo each: both are built */
                struct search_blocks *b = search_block_open(&t.arena, &t.space);
                x[m] = search_block_price(b, &p[m], 0, (enum block)k);
                search_block_close(b);
            }
            ck_assert_double_eq(x[0]->cache_B, x[1]->cache_B);
            check_half(&x[0]->fwd, &x[1]->fwd);
            check_half(&x[0]->bwd, &x[1]->bwd);
            pairs++;
        }
    }
    ck_assert_int_ge(pairs, 100);
    arena_free(&t.arena);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { bounds_hold, LEN(bounded) },
        { a_floor_stands_for_its_way, LEN(floors) },
        { shifts_are_differences, LEN(floors) },
        { blocks_see_their_keys, 2 },
    };
    return test_main_loops("search_bound", NULL, tests, LEN(tests), 600);
}
