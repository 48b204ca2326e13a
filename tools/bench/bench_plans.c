/* bench_plans: what searches and predictions are made of, on one core: plans priced by their bounds, blocks at hand; the step
 * of a pipeline of 16 stages, 4 chunks each and 128 micro-batches by max-plus and by the sweep; a whole prediction of 100,000
 * GPUs; and, with PLANS above 0, bounds of as many random plans against their simulations: exit 1 if one exceeds it. Medians of
 * CPU time; not a test. Usage: bench_plans [PLANS] */
#include "sim/predict.h"
#include "sim/search_bound.h"
#include "sim/search_live.h"
#include "sim/search_try.h"
#include "sim/sim.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TIMES = 15 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* what others take of the core does not count */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

struct space { struct job *job; struct search_space s; struct search_views views; };

static void space_open(struct space *to, struct arena *a, const char *model, const char *system, const char *gpus,
                       const char *gbs, const char *seq)
{
    const char *flag[][2] = {
        { "model", model }, { "system", system }, { "gpus", gpus }, { "gbs", gbs }, { "seq", seq } };
    struct diag d;
    char fixed[64] = { 0 };
    to->job = arena_alloc(a, sizeof *to->job);
    if (plan_read_open(to->job, a, LEN(flag), flag, &d) != OK) {
        fprintf(stderr, "bench_plans: %s\n", d.text);
        exit(2);
    }
    search_space_init(&to->s, a, to->job, fixed);
    search_view_init(&to->views, a, &to->s);
}

/* ---- prices ---- */

/* Time and memory of every plan of some grids, as a search asks for them: grid by grid. */
static int64_t price_grids(struct space *sp, struct search_point *point, int every, double *sum)
{
    int64_t n = 0;
    for (int g = 0; g < sp->s.n_grid; g += every)
        for (int mbs = sp->s.mbs[0]; mbs <= sp->s.mbs[1]; mbs++) {
            const int points = (int)search_space_points(&sp->s, &sp->s.grid[g], g, mbs, point).points;
            for (int i = 0; i < points; i++)
                for (int r = 0; r < sp->s.n_recompute[point[i].way.weave]; r++, n++) {
                    const int set = sp->s.recompute[point[i].way.weave][r];
                    sum[0] += search_bound_slots_s(&sp->views, &point[i], set);
                    sum[1] += search_live_states_B(&sp->views, &point[i]);
                }
        }
    return n;
}

static void bench_prices(void)
{
    struct arena a = { 0 };
    struct space sp;
    double took_s[TIMES], sum[2] = { 0, 0 };
    int64_t n = 0;
    struct search_point *point = arena_alloc(&a, SEARCH_POINTS * sizeof *point);
    space_open(&sp, &a, "deepseek-v3", "gb200-nvl72", "1024", "4096", "4096");
    for (int i = -1; i < TIMES; i++) {          /* the first prices the blocks */
        const double from_s = now_s();
        n = price_grids(&sp, point, 400, sum);
        if (i >= 0) took_s[i] = now_s() - from_s;
    }
    const double s = median(took_s, TIMES);
    printf("plans priced, blocks at hand      %9lld plans  %8.3f ms  %6.2f M plans/s\n", (long long)n, 1e3 * s,
           1e-6 * (double)n / s);
    search_block_close(sp.views.blocks);
    arena_free(&a);
}

/* ---- a step ---- */

static struct job *read_plan(struct arena *a, int n, const char *const (*flag)[2])
{
    struct job *j = arena_alloc(a, sizeof *j);
    struct diag d;
    if (plan_read_job(j, a, NULL, n, flag, 0, &d) == OK) return j;
    fprintf(stderr, "bench_plans: %s\n", d.text);
    exit(2);
}

static void bench_step(void)
{
    static const char *const flag[][2] = {
        { "model", "qwen3-235b-a22b" }, { "system", "h100-sxm" }, { "gpus", "1024" }, { "gbs", "2048" }, { "seq", "4096" },
        { "pp", "16" }, { "vpp", "4" }, { "tp", "4" }, { "ep", "16" }, { "mbs", "1" },
    };
    struct arena a = { 0 };
    const struct job *j = read_plan(&a, LEN(flag), flag);
    struct program pr;
    struct cost c;
    double took_s[TIMES], swept_s[TIMES];
    program_build(&pr, &a, j);
    cost_init(&c, &pr, j);
    const double *op_s = cost_all_s(&c, &a);
    const struct pass_price *price = pass_price_all(&c, op_s, &a);
    struct diag d;
    struct unroll *u = arena_alloc(&a, (size_t)pr.n_stage * sizeof *u);
    if (unroll_all(u, &a, &pr, &d) != OK) exit(2);
    int64_t passes = 0, items = 0;
    for (int s = 0; s < pr.n_stage; s++) passes += pr.n_step[s], items += u[s].n_item;
    struct arena scratch = { 0 };               /* kept, as a search keeps its own */
    for (int i = 0; i < TIMES; i++) {
        struct play p;
        const double from_s = now_s();
        play_run(&p, &scratch, &c, op_s, price);
        took_s[i] = now_s() - from_s;
        arena_clear(&scratch);
    }
    for (int i = 0; i < TIMES; i++) {
        struct trace t;
        const double from_s = now_s();
        sim_sweep(&t, &scratch, &c, u, NULL, 0);
        swept_s[i] = now_s() - from_s;
        arena_clear(&scratch);
    }
    arena_free(&scratch);
    const double s = median(took_s, TIMES), w = median(swept_s, TIMES);
    printf("step pp 16 vpp 4 x %d, max-plus  %9lld passes %8.3f ms  %6.1f M passes/s\n", pr.n_micro, (long long)passes, 1e3 * s,
           1e-6 * (double)passes / s);
    printf("step pp 16 vpp 4 x %d, sweep     %9lld items  %8.3f ms  %6.1f M items/s\n", pr.n_micro, (long long)items, 1e3 * w,
           1e-6 * (double)items / w);
    arena_free(&a);
}

static void bench_predict(void)
{
    static const char *const flag[][2] = {
        { "model", "deepseek-v3" }, { "system", "h100-sxm" }, { "gpus", "98304" }, { "gbs", "12288" }, { "seq", "4096" },
        { "pp", "16" }, { "vpp", "2" }, { "tp", "8" }, { "ep", "64" }, { "mbs", "1" },
    };
    double took_s[TIMES];
    for (int i = 0; i < TIMES; i++) {
        struct arena a = { 0 };
        const struct job *j = read_plan(&a, LEN(flag), flag);
        struct predict r;
        const double from_s = now_s();
        predict_job(&r, NULL, &a, j);
        took_s[i] = now_s() - from_s;
        arena_free(&a);
    }
    printf("prediction of 98,304 GPUs                           %8.3f ms\n", 1e3 * median(took_s, TIMES));
}

/* ---- bounds ---- */

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

enum { BATCH_PLANS = 256 };

/* As many random plans as asked for, small ones in turn with those of clusters. */
static int bench_bounds(int64_t plans)
{
    static const char *const on[][5] = {
        { "tiny-moe", "h100-sxm", "16", "64", "256" },       { "tiny-moe", "gb200-nvl72", "12", "48", "96" },
        { "mixtral-8x7b", "h100-sxm", "64", "256", "4096" }, { "qwen3-30b-a3b", "gb200-nvl72", "72", "288", "4096" },
        { "llama3-8b", "b200", "32", "128", "8192" },        { "deepseek-v3", "h100-sxm", "1024", "2048", "4096" },
    };
    uint64_t state = 1;
    int64_t done = 0, over = 0;
    double sum = 0, least = 1;
    for (int k = 0; k < LEN(on); k++) {
        struct arena a = { 0 };
        struct space sp;
        struct search_tries tries;
        const int64_t share = plans * (k < 2 ? 40 : 5) / 100;
        struct search_point *point = arena_alloc(&a, SEARCH_POINTS * sizeof *point);
        space_open(&sp, &a, on[k][0], on[k][1], on[k][2], on[k][3], on[k][4]);
        search_try_open(&tries, &sp.s, INFINITY, 0);
        for (int64_t at = 0; at < share; at += BATCH_PLANS) {
            struct search_try plan[BATCH_PLANS];
            const int n = (int)(share - at < BATCH_PLANS ? share - at : BATCH_PLANS);
            for (int i = 0; i < n;) {
                const int g = (int)(next(&state) % (uint64_t)sp.s.n_grid), mbs = sp.s.mbs[0] + (int)(next(&state) % 4);
                const int points = (int)search_space_points(&sp.s, &sp.s.grid[g], g, mbs, point).points;
                if (!points) continue;
                const struct search_point *p = &point[next(&state) % (uint64_t)points];
                const uint64_t sets = (uint64_t)sp.s.n_recompute[p->way.weave];
                const int32_t set = sp.s.recompute[p->way.weave][next(&state) % sets];
                plan[i++] = (struct search_try){ .point = *p, .recompute = (uint8_t)set };
            }
            search_try_all(&tries, plan, n);
            for (int i = 0; i < n; i++) {
                const double bound_s = search_bound_step_s(&sp.views, &plan[i].point, plan[i].recompute);
                const double live_B = search_live_B(&sp.views, &plan[i].point, plan[i].recompute);
                over += bound_s > plan[i].step_s * (1 + 1e-12) || live_B > plan[i].peak_B;
                least = fmin(least, bound_s / plan[i].step_s);
                sum += bound_s / plan[i].step_s;
            }
            done += n;
        }
        search_try_close(&tries);
        search_block_close(sp.views.blocks);
        arena_free(&a);
    }
    printf("bounds of %lld random plans: %lld exceed the simulation; of a step %.3f on average, %.3f at least\n",
           (long long)done, (long long)over, sum / (double)done, least);
    return over > 0;
}

int main(int argc, char **argv)
{
    const int64_t plans = argc > 1 ? atoll(argv[1]) : 0;
    bench_prices();
    bench_step();
    bench_predict();
    return plans > 0 ? bench_bounds(plans) : 0;
}
