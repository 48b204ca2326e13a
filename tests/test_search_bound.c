/* Bounds of a search never exceed what is simulated, on 10,000 random plans, and block prices depend on nothing but their
 * keys. */
#include "sim/search_bound.h"
#include "sim/search_live.h"
#include "tests/setting.h"
#include "tests/test.h"

/* ---- bounds ---- */

/* small: tiny steps of a host that costs nothing, so that what is done once a step shows; 2: with tied tables. */
static const struct { const char *flags; int plans; double time, memory; int small; } bounded[] = {
    { "model deepseek-v3 system gb200-nvl72 gpus 256 gbs 512 seq 4096", 60, 0.90, 0.98, 0 },
    { "model deepseek-v3 system h100-sxm gpus 1024 gbs 2048 seq 4096 split-wgrad 1", 40, 0.90, 0.98, 0 },
    { "model qwen3-30b-a3b system gb200-nvl72 gpus 72 gbs 288 seq 4096", 120, 0.90, 0.98, 0 },
    { "model mixtral-8x7b system h100-sxm gpus 64 gbs 256 seq 8192", 200, 0.90, 0.98, 0 },
    { "model mixtral-8x7b system h100-sxm gpus 64 gbs 256 seq 16384 dispatcher deepep", 60, 0.90, 0.98, 0 },
    { "model tiny-moe system h100-sxm gpus 16 gbs 64 seq 256 dispatcher hybridep", 800, 0.60, 0.90, 0 },
    { "model llama3-8b system b200 gpus 32 gbs 128 seq 8192", 200, 0.90, 0.98, 0 },
    { "model tiny-moe system h100-sxm gpus 16 gbs 64 seq 256", 2200, 0.60, 0.90, 0 },
    { "model tiny-moe system gb200-nvl72 gpus 8 gbs 32 seq 512 split-wgrad 1", 2200, 0.60, 0.90, 0 },
    { "model tiny-moe system host gpus 12 gbs 48 seq 96", 2200, 0.60, 0.90, 0 },
    { "model tiny-moe system a100-sxm gpus 1 gbs 1 seq 48 mtp 0", 300, 0.60, 0.60, 1 },
    { "model tiny-moe system a100-sxm gpus 1 gbs 1 seq 48 mtp 0", 300, 0.60, 0.60, 2 },
    { "model tiny-moe system a100-sxm gpus 1 gbs 1 seq 48 mtp 1", 300, 0.60, 0.60, 1 },
    { "model tiny-moe system gb200-nvl72 gpus 16 gbs 64 seq 256 precision mxfp8", 900, 0.60, 0.90, 0 },
    { "model deepseek-v3 system h100-sxm gpus 1024 gbs 2048 seq 4096 precision fp8-block", 20, 0.90, 0.98, 0 },
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
    static struct search_point point[65536];
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
                     t.space.recompute[p->weave][test_random(&state, t.space.n_recompute[p->weave])], sum);
    }
    ck_assert_double_gt(sum[0] / bounded[_i].plans, bounded[_i].time);      /* and are not idle */
    ck_assert_double_gt(sum[1] / bounded[_i].plans, bounded[_i].memory);
    search_block_close(v.blocks);
    arena_free(&t.arena);
}
END_TEST

/* ---- keys ---- */

static void check_half(const struct search_half *a, const struct search_half *b)
{
    for (int k = 0; k < PASS_DATA; k++) {
        ck_assert_double_eq(a->diag_s[k], b->diag_s[k]);
        ck_assert_double_eq(a->busy_s[k], b->busy_s[k]);
        ck_assert(a->in_s[k] == b->in_s[k] && a->out_s[k] == b->out_s[k]);
    }
    ck_assert(a->through_s == b->through_s);
    ck_assert_double_eq(a->net_B, b->net_B);
    ck_assert_double_eq(a->peak_B, b->peak_B);
}

/* The same block seen from any plan that agrees on its key: stages, data parallelism and order are not in it,
 * and for dense layers nor are experts. */
START_TEST(blocks_see_their_keys)
{
    static const char *const flags[] = { "model deepseek-v3 system gb200-nvl72 gpus 64 gbs 64 seq 4096",
                                         "model mixtral-8x7b system h100-sxm gpus 32 gbs 32 seq 4096" };
    struct setting t;
    uint64_t state = 5;
    static struct search_point point[65536];
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
        const int same = g->etp == o->etp && g->ep == o->ep && p[0].weave == p[1].weave;
        for (int k = BLOCK_EMBED; k <= BLOCK_LOSS; k++) {
            if (k == BLOCK_DENSE && !t.job->model.dense_layers) continue;
            if (!ends && (k == BLOCK_EMBED || k == BLOCK_LOSS)) continue;
            if (!same && (k == BLOCK_MOE || (k == BLOCK_LOSS && t.job->model.mtp))) continue;
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
        { blocks_see_their_keys, 2 },
    };
    return test_main_loops("search_bound", NULL, tests, LEN(tests), 600);
}
