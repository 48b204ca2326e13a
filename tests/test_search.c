/* Search: bounds never exceed what is simulated, block prices depend on nothing but their keys, and the
 * pruned best plans are those of simulating every plan, on small models, systems and memory limits drawn at
 * random. */
#include "tests/test.h"
#include "sim/search.h"
#include "sim/search_bound.h"
#include "sim/search_live.h"
#include <math.h>

struct setting { struct arena arena; struct job *job; char fixed[64]; struct search_space space; };

static void setting_read(struct setting *t, const char *flags)
{
    const char *flag[64][2];
    struct diag d = { 0 };
    int n = 0;
    *t = (struct setting){ .job = NULL };
    t->job = arena_alloc(&t->arena, sizeof *t->job);
    char *rest = arena_strdup(&t->arena, flags), *key, *value;
    while ((key = strtok_r(rest, " ", &rest)) && (value = strtok_r(rest, " ", &rest))) {
        flag[n][0] = key;
        flag[n++][1] = value;
        t->fixed[cfg_opt(plan_opts, plan_n_opt, key) - plan_opts] = 1;
    }
    ck_assert_msg(plan_read_open(t->job, &t->arena, n, (const char *const(*)[2])flag, &d) == OK, "%s: %s",
                  flags, d.text);
}

static void setting_open(struct setting *t, const char *flags)
{
    setting_read(t, flags);
    search_space_init(&t->space, &t->arena, t->job, t->fixed);
}

static int points_of(const struct search_space *s, int grid, struct search_point *out)
{
    int n = 0;
    for (int mbs = s->mbs[0]; mbs <= s->mbs[1]; mbs++)
        n += (int)search_space_points(s, &s->grid[grid], grid, mbs, out + n).points;
    return n;
}

struct truth { double step_s, live_B; };

/* The whole program, built and simulated. */
static struct truth truth_of(const struct job *j)
{
    struct arena a = { 0 };
    struct program pr;
    struct cost c;
    struct sim_result sim;
    struct truth t = { 0, 0 };
    program_build(&pr, &a, j);
    cost_init(&c, &pr, j);
    const double *op_s = cost_all_s(&c, &a);
    sim_step(&sim, &a, &c, op_s, pass_price_all(&c, op_s, &a));
    t.step_s = sim.step_s;
    for (int s = 0; s < pr.n_stage; s++) t.live_B = fmax(t.live_B, sim.live_B[s]);
    arena_free(&a);
    return t;
}

/* ---- bounds ---- */

/* small: tiny steps of a host that costs nothing, so that what is done once a step shows; 2: with tied tables. */
static const struct { const char *flags; int plans; double time, memory; int small; } bounded[] = {
    { "model deepseek-v3 system gb200-nvl72 gpus 256 gbs 512 seq 4096", 60, 0.90, 0.98, 0 },
    { "model deepseek-v3 system h100-sxm gpus 1024 gbs 2048 seq 4096 split-wgrad 1", 40, 0.90, 0.98, 0 },
    { "model qwen3-30b-a3b system gb200-nvl72 gpus 72 gbs 288 seq 4096", 100, 0.90, 0.98, 0 },
    { "model mixtral-8x7b system h100-sxm gpus 64 gbs 256 seq 8192", 200, 0.90, 0.98, 0 },
    { "model mixtral-8x7b system h100-sxm gpus 64 gbs 256 seq 16384 dispatcher deepep", 60, 0.90, 0.98, 0 },
    { "model tiny-moe system h100-sxm gpus 16 gbs 64 seq 256 dispatcher hybridep", 300, 0.60, 0.90, 0 },
    { "model llama3-8b system b200 gpus 32 gbs 128 seq 8192", 200, 0.90, 0.98, 0 },
    { "model tiny-moe system h100-sxm gpus 16 gbs 64 seq 256", 600, 0.60, 0.90, 0 },
    { "model tiny-moe system gb200-nvl72 gpus 8 gbs 32 seq 512 split-wgrad 1", 600, 0.60, 0.90, 0 },
    { "model tiny-moe system host gpus 12 gbs 48 seq 96", 600, 0.60, 0.90, 0 },
    { "model tiny-moe system a100-sxm gpus 1 gbs 1 seq 48 mtp 0", 100, 0.60, 0.60, 1 },
    { "model tiny-moe system a100-sxm gpus 1 gbs 1 seq 48 mtp 0", 100, 0.60, 0.60, 2 },
    { "model tiny-moe system a100-sxm gpus 1 gbs 1 seq 48 mtp 1", 100, 0.60, 0.60, 1 },
    { "model tiny-moe system gb200-nvl72 gpus 16 gbs 64 seq 256 precision mxfp8", 300, 0.60, 0.90, 0 },
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

/* ---- pruned against brute force ---- */

/* first: recompute is the point's first set. */
struct tried { struct truth is; struct search_point point; int recompute, first; };

/* All plans, simulated. */
static struct tried *try_all(struct setting *t, int *n)
{
    static struct search_point point[65536];
    struct tried *all = arena_alloc(&t->arena, (size_t)t->space.plans * sizeof *all);
    struct job *j = arena_alloc(&t->arena, sizeof *j);
    struct diag d;
    *n = 0;
    for (int g = 0; g < t->space.n_grid; g++) {
        const int points = points_of(&t->space, g, point);
        for (int i = 0; i < points; i++)
            for (int r = 0; r < t->space.n_recompute[point[i].weave]; r++) {
                const int set = t->space.recompute[point[i].weave][r];
                *j = *t->job;
                ck_assert_int_eq(search_space_plan(j, &t->space, &point[i], set, &d), OK);
                all[(*n)++] = (struct tried){ truth_of(j), point[i], set, r == 0 };
            }
    }
    ck_assert_int_eq(*n, t->space.plans);
    return all;
}

static int by_time(const void *a, const void *b)
{
    const struct tried *x = a, *y = b;
    return (x->is.step_s > y->is.step_s) - (x->is.step_s < y->is.step_s);
}

static int by_bytes(const void *a, const void *b)
{
    const struct tried *x = a, *y = b;
    return (x->is.live_B > y->is.live_B) - (x->is.live_B < y->is.live_B);
}

/* Steps of the plans that a search would list: those that fit, with something computed again only where the
 * plain plan does not fit. */
static int listed(double *step_s, const struct tried *all, int n, double room_B)
{
    int k = 0, plain = 0;
    for (int i = 0; i < n; i++) {
        if (all[i].first) plain = all[i].is.live_B <= room_B;
        if (all[i].is.live_B <= room_B && (all[i].first || !plain)) step_s[k++] = all[i].is.step_s;
    }
    return k;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double best_of(const struct tried *all, int n, double room_B)
{
    double best_s = INFINITY;
    for (int i = 0; i < n; i++)
        if (all[i].is.live_B <= room_B) best_s = fmin(best_s, all[i].is.step_s);
    return best_s;
}

/* The search at one memory limit against all plans. */
static void check_search(struct setting *t, const struct tried *all, int n, double room_B)
{
    struct arena a = { 0 };
    struct search_result r;
    struct search_ask ask = { .top = 7 };
    struct diag d = { 0 };
    double *step_s = arena_alloc(&a, (size_t)n * sizeof *step_s + 8);
    t->job->system.memory_B = predict_device_B(t->job, room_B) + 1;      /* a byte for rounding */
    memcpy(ask.fixed, t->fixed, sizeof ask.fixed);
    const enum err e = search_run(&r, &a, t->job, &ask, &d);
    const double best_s = best_of(all, n, room_B);
    const int k = listed(step_s, all, n, room_B);
    qsort(step_s, (size_t)k, sizeof *step_s, by_value);
    ck_assert_int_eq(e, best_s < INFINITY ? OK : ERR_NO);
    if (e == OK) {
        ck_assert(r.proven);
        ck_assert_msg(r.hit[0].step_s == best_s, "best %.12g, but %.12g of all", r.hit[0].step_s, best_s);
        for (int i = 0; i < r.n_hit && r.hit[i].step_s < 1.25 * best_s; i++)
            ck_assert_double_eq(r.hit[i].step_s, step_s[i]);
        for (int i = r.n_hit; i < k; i++) ck_assert_double_gt(step_s[i], 1.02 * best_s);
    } else {
        ck_assert_ptr_nonnull(strstr(d.text, "nothing fits"));
    }
    arena_free(&a);
}

static double draw(uint64_t *state, double lo, double hi)
{
    return lo * pow(hi / lo, test_random(state, 1000) / 999.0);
}

static const char *random_flags(struct arena *a, uint64_t *state)
{
    static const int gpus[] = { 2, 3, 4, 6, 8 };
    static const char *const systems[] = { "h100-sxm", "gb200-nvl72", "b200" };
    const int n = gpus[test_random(state, LEN(gpus))], times = 1 + test_random(state, 3);
    const char *system = systems[test_random(state, LEN(systems))];
    const int seq = 96 << test_random(state, 3), mtp = test_random(state, 2);
    return arena_printf(a, "model tiny-moe system %s gpus %d gbs %d seq %d mtp %d", system, n, n * times, seq,
                        mtp);
}

static void random_attention(struct model *m, uint64_t *state)
{
    m->kv_heads = 1 << test_random(state, 4);
    m->tied = test_random(state, 3) == 0;
    if (test_random(state, 2)) return;
    m->attention = ATTENTION_MLA;
    m->q_lora = 64, m->kv_lora = 32, m->qk_nope = 16, m->qk_rope = 8, m->v_dim = 16;
}

/* A model and a machine unlike the others, small enough that all its plans can be simulated. */
static void randomise(struct setting *t, uint64_t *state)
{
    struct model *m = &t->job->model;
    struct system *s = &t->job->system;
    m->layers = 1 + test_random(state, 4);
    m->experts = test_random(state, 5) ? 2 << test_random(state, 3) : 0;
    m->dense_layers = m->experts ? test_random(state, m->layers) : m->layers;
    m->topk = m->experts ? 1 + test_random(state, 2) : 0;
    m->hidden = 64 << test_random(state, 6);
    m->ffn = 128 << test_random(state, 5);
    m->expert_ffn = m->experts ? 64 << test_random(state, 5) : 0;
    m->shared_ffn = m->experts && test_random(state, 2) ? 128 : 0;
    random_attention(m, state);
    s->nvlink_B_per_s *= draw(state, 0.03, 3);
    s->nic_B_per_s *= draw(state, 0.03, 3);
    s->issue_s *= draw(state, 0.01, 1);
    s->kernel_s *= draw(state, 0.01, 1);
    s->domain = 1 << test_random(state, 4);
    t->job->plan.split_wgrad = test_random(state, 4) == 0;
    t->fixed[cfg_opt(plan_opts, plan_n_opt, "split_wgrad") - plan_opts] = 1;
    search_space_init(&t->space, &t->arena, t->job, t->fixed);
}

START_TEST(pruned_is_brute_force)
{
    uint64_t state = 1000 + (uint64_t)_i;
    struct setting t;
    struct arena a = { 0 };
    int n;
    setting_read(&t, random_flags(&a, &state));
    randomise(&t, &state);
    struct tried *all = try_all(&t, &n);
    struct tried *sorted = arena_alloc(&a, (size_t)n * sizeof *sorted + 8);
    memcpy(sorted, all, (size_t)n * sizeof *all);
    qsort(sorted, (size_t)n, sizeof *sorted, by_time);
    const double best_B = n ? sorted[0].is.live_B : 0;      /* so that the fastest does not fit */
    qsort(sorted, (size_t)n, sizeof *sorted, by_bytes);
    check_search(&t, all, n, INFINITY);
    check_search(&t, all, n, best_B - 1);
    check_search(&t, all, n, sorted[n / 2].is.live_B);
    check_search(&t, all, n, sorted[n / 20].is.live_B);
    check_search(&t, all, n, sorted[0].is.live_B);
    check_search(&t, all, n, sorted[0].is.live_B - 1);
    arena_free(&a);
    arena_free(&t.arena);
}
END_TEST

/* ---- the answer ---- */

static const char *const answers[] = {
    "model qwen3-30b-a3b system h100-sxm gpus 16 gbs 64 seq 4096",
    "model mixtral-8x7b system gb200-nvl72 gpus 72 gbs 72 seq 4096",
    "model tiny-moe system host gpus 4 gbs 8 seq 64",
    "model deepseek-v3 system gb200-nvl72 gpus 256 gbs 2048 seq 4096 pp 4 ep 64",
};

START_TEST(hits_are_predictions_and_repeat)
{
    struct setting t;
    struct search_result r[2];
    struct search_ask ask = { .top = 5 };
    struct diag d = { 0 };
    setting_open(&t, answers[_i]);
    memcpy(ask.fixed, t.fixed, sizeof ask.fixed);
    for (int k = 0; k < 2; k++) {
        ask.threads = 1 + 2 * k;
        ck_assert_msg(search_run(&r[k], &t.arena, t.job, &ask, &d) == OK, "%s", d.text);
    }
    ck_assert(r[0].proven && r[0].n_hit >= 5 && r[0].n_hit == r[1].n_hit && r[0].simulated == r[1].simulated);
    for (int i = 0; i < r[0].n_hit; i++)
        ck_assert(!strcmp(plan_text(&t.arena, &r[0].hit[i].plan), plan_text(&t.arena, &r[1].hit[i].plan)) &&
                  r[0].hit[i].step_s == r[1].hit[i].step_s);
    for (int i = 0; i < 5; i++) {
        struct job *j = arena_alloc(&t.arena, sizeof *j);
        struct predict p;
        *j = *t.job;
        j->plan = r[0].hit[i].plan;
        ck_assert_msg(plan_resolve(j, &d) == OK, "%s", d.text);
        predict_job(&p, NULL, &t.arena, j);
        ck_assert(p.feasible);
        ck_assert_double_eq(p.step_s, r[0].hit[i].step_s);
        ck_assert_double_eq(p.peak_B, r[0].hit[i].peak_B);
        ck_assert_double_eq(p.tflops_gpu, r[0].hit[i].tflops);
        ck_assert_double_eq(p.tokens_per_s_gpu, r[0].hit[i].tokens_per_s_gpu);
        ck_assert(!t.fixed[cfg_opt(plan_opts, plan_n_opt, "pp") - plan_opts] ||
                  (j->plan.pp == 4 && j->plan.ep == 64));
    }
    arena_free(&t.arena);
}
END_TEST

/* A search that may simulate only few plans says how far the best may be: no plan is better than its gap allows. */
START_TEST(a_cut_search_says_its_gap)
{
    static const int cut[] = { 1, 2, 4, 8 };
    struct setting t;
    struct search_result whole, r;
    struct search_ask ask = { .top = 3 };
    struct diag d = { 0 };
    int unproven = 0;
    setting_open(&t, answers[_i]);
    memcpy(ask.fixed, t.fixed, sizeof ask.fixed);
    ck_assert_int_eq(search_run(&whole, &t.arena, t.job, &ask, &d), OK);
    ck_assert(whole.proven && whole.gap == 0);
    for (int i = 0; i < LEN(cut); i++) {
        ask.simulate = cut[i];
        const enum err e = search_run(&r, &t.arena, t.job, &ask, &d);
        ck_assert_int_le(r.simulated, cut[i]);
        if (e != OK) {
            ck_assert_msg(e == ERR_NO && strstr(d.text, "others were not looked at"), "%s", d.text);
            ck_assert(!r.proven);
            continue;
        }
        const double best_s = whole.hit[0].step_s, mine_s = r.hit[0].step_s;
        ck_assert_double_ge(mine_s, best_s);
        ck_assert(r.proven ? mine_s == best_s && r.gap == 0 : r.gap > 0 && r.gap < 1);
        ck_assert_double_ge(best_s, mine_s * (1 - r.gap) * (1 - 1e-12));
        unproven += !r.proven;
    }
    ck_assert_int_gt(unproven, 0);
    arena_free(&t.arena);
}
END_TEST

/* Every folding has its fate: refused by a rule or by memory, looked at, or bounded out. */
START_TEST(grids_are_accounted_for)
{
    struct setting t;
    struct search_result r;
    struct search_ask ask = { .top = 1 };
    struct diag d = { 0 };
    int64_t refused = 0, states = 0;
    setting_open(&t, "model qwen3-30b-a3b system h100-sxm gpus 16 gbs 64 seq 4096");
    ck_assert_int_eq(search_run(&r, &t.arena, t.job, &ask, &d), OK);
    for (int i = 0; i < r.n_reject; i++) {
        if (strstr(r.reject[i].reason, "states alone")) states = r.reject[i].grids;
        else if (!strstr(r.reject[i].reason, "activations")) refused += r.reject[i].grids;
    }
    ck_assert_int_eq(refused + r.grids_valid, t.space.foldings);
    ck_assert_int_eq(states + r.grids_opened + r.grids_bounded_out, r.grids_valid);
    ck_assert(r.gap == 0 && r.simulated >= 1 && r.fits >= 1 && r.priced >= r.simulated);
    arena_free(&t.arena);
}
END_TEST

static const struct { const char *flags; enum err e; const char *parts[4];
} refused[] = {
    /* 12.08 TB of states on 64 GPUs of 80 GiB (cases G01) */
    { "model deepseek-v3 system h100-sxm gpus 64 gbs 4096 seq 4096",
     ERR_NO,
     { "nothing fits", "states alone", "more GPUs" } },
    { "model tiny-moe system h100-sxm gpus 8 gbs 8 seq 64 tp 3", ERR_NO, { "8 GPUs", "fixed" } },
    { "model tiny-moe system h100-sxm gpus 8 gbs 7 seq 64 tp 1 pp 1 cp 1",
     ERR_NO,
     { "no plan passes", "global batch" } },
    { "model tiny-moe system h100-sxm gpus 8 gbs 8 seq 64 stack moefold precision fp8-cs", ERR_LIMIT, { "bf16" } },
    { "model tiny-moe system h100-sxm gpus 8 gbs 8 seq 64 domain-gpus 9", ERR_CONFIG, { "domain", "9", "8" } },
};

START_TEST(refused_in_words)
{
    struct setting t;
    struct search_result r;
    struct search_ask ask = { .top = 1 };
    struct diag d = { 0 };
    setting_read(&t, refused[_i].flags);
    memcpy(ask.fixed, t.fixed, sizeof ask.fixed);
    ck_assert_int_eq(search_run(&r, &t.arena, t.job, &ask, &d), refused[_i].e);
    ck_assert_msg(test_has(d.text, refused[_i].parts), "%s", d.text);
    arena_free(&t.arena);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("search");
    TCase *all = tcase_create("search");
    tcase_set_timeout(all, 600);
    tcase_add_loop_test(all, bounds_hold, 0, LEN(bounded));
    tcase_add_loop_test(all, blocks_see_their_keys, 0, 2);
    tcase_add_loop_test(all, pruned_is_brute_force, 0, 24);
    tcase_add_loop_test(all, hits_are_predictions_and_repeat, 0, LEN(answers));
    tcase_add_loop_test(all, a_cut_search_says_its_gap, 0, LEN(answers));
    tcase_add_test(all, grids_are_accounted_for);
    tcase_add_loop_test(all, refused_in_words, 0, LEN(refused));
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
