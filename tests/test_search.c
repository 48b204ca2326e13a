/* Search: the pruned best plans are those of simulating every plan, on small models, systems and memory limits drawn at
 * random; an answer is what predict says of its plans, the same for any number of threads. */
#include "sim/search.h"
#include "tests/setting.h"
#include "tests/test.h"

/* ---- pruned against brute force ---- */

enum { PRUNED = 54, MOST_PLANS = 2000 };        /* settings, six memory limits each; plans of one, all simulated */

/* first: recompute is the point's first set. */
struct tried { struct truth is; struct search_point point; int recompute, first; };

/* All plans, simulated. */
static struct tried *try_all(struct setting *t, int *n)
{
    static struct search_point point[SEARCH_MBS * SEARCH_POINTS];
    struct tried *all = arena_alloc(&t->arena, (size_t)t->space.plans * sizeof *all);
    struct job *j = arena_alloc(&t->arena, sizeof *j);
    struct diag d;
    *n = 0;
    for (int g = 0; g < t->space.n_grid; g++) {
        const int points = points_of(&t->space, g, point);
        for (int i = 0; i < points; i++)
            for (int r = 0; r < t->space.n_recompute[point[i].way.weave]; r++) {
                const int set = t->space.recompute[point[i].way.weave][r];
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
    for (;;) {
        setting_read(&t, random_flags(&a, &state));
        randomise(&t, &state);
        if (t.space.plans <= MOST_PLANS) break;
        arena_free(&t.arena);
    }
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
    const struct test_loop tests[] = {
        { pruned_is_brute_force, PRUNED },
        { hits_are_predictions_and_repeat, LEN(answers) },
        { a_cut_search_says_its_gap, LEN(answers) },
        { grids_are_accounted_for, 0 },
        { refused_in_words, LEN(refused) },
    };
    return test_main_loops("search", NULL, tests, LEN(tests), 600);
}
