/* See search_try.h. */
#include "sim/search_try.h"
#include "sim/predict.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* All that the plan would hold if nothing were ever reused: what fits so needs no planned offsets to be known
 * to fit. */
static double without_reuse_B(const struct program *pr)
{
    double sum_B = 0;
    for (int i = 1; i < pr->n_buf; i++)
        if (!pr->buf[i].view)
            sum_B += ((double)buf_B(&pr->buf[i]) + 64) * (pr->buf[i].keep == KEEP_MICRO ? pr->n_micro : 1);
    return sum_B;
}

static void try_one(struct search_try *to, const struct search_tries *t, struct arena *a)
{
    struct job *j = arena_alloc(a, sizeof *j);
    struct program pr;
    struct cost cost;
    struct play play;
    struct sim_result sim;
    struct diag d;
    *j = *t->space->job;
    search_space_plan(j, t->space, &to->point, to->recompute, &d);
    program_build(&pr, a, j);
    load_apply(&pr, j);
    cost_init(&cost, &pr, j);
    const double *op_s = cost_all_s(&cost, a);
    const int played = play_run(&play, a, &cost, op_s, pass_price_all(&cost, op_s, a));
    sim_result_of(&sim, a, &play, played);
    const struct load_spread load = load_spread(j);
    to->step_s = load_overflows(&load, j) ? INFINITY : sim.step_s;      /* it would stop */
    to->peak_B = 0;
    for (int s = 0; s < pr.n_stage; s++) to->peak_B = fmax(to->peak_B, sim.live_B[s]);
    if (j->stack.arena && to->peak_B <= t->room_B && without_reuse_B(&pr) > t->room_B) {
        struct predict whole;
        predict_job(&whole, NULL, a, j);
        to->peak_B = whole.peak_B;
    }
    arena_clear(a);
}

/* ---- threads ---- */

struct tries_work { struct search_tries *t; struct search_try *plan; int n; atomic_int next, who; };

static void *work_on(void *work)
{
    struct tries_work *w = work;
    struct arena *a = &w->t->scratch[atomic_fetch_add(&w->who, 1)];
    for (int i = atomic_fetch_add(&w->next, 1); i < w->n; i = atomic_fetch_add(&w->next, 1))
        try_one(&w->plan[i], w->t, a);
    return NULL;
}

/* A thread that cannot be had leaves its share to the others. */
void search_try_all(struct search_tries *t, struct search_try *plan, int n)
{
    struct tries_work w = { t, plan, n, 0, 0 };
    pthread_t thread[SEARCH_THREADS];
    int started = 0;
    while (started + 1 < t->threads && started + 1 < n && !pthread_create(&thread[started], NULL, work_on, &w))
        started++;
    work_on(&w);
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
}

void search_try_open(struct search_tries *t, const struct search_space *s, double room_B, int threads)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    *t = (struct search_tries){ .space = s, .room_B = room_B, .threads = threads > 0 ? threads : (int)processors };
    if (t->threads < 1) t->threads = 1;
    if (t->threads > SEARCH_THREADS) t->threads = SEARCH_THREADS;
}

void search_try_close(struct search_tries *t)
{
    for (int i = 0; i < t->threads; i++) arena_free(&t->scratch[i]);
}
