/* bench_heap: events a second of sim_heap, one thread, on a step of a published plan, links roomy and shared. What is
 * counted is the whole call: deps turned round, and every event. Not a test. Usage: bench_heap [PLAN] [TIMES]. */
#include "sim/sim_heap.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* what others take of the core does not count */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void bench(const struct cost *c, const struct unroll *u, int share, int times)
{
    double best_s = 1e9;
    struct sim_heap h;
    for (int i = 0; i < times; i++) {
        struct arena a = { 0 };
        const double start_s = now_s();
        sim_heap(&h, &a, c, u, share);
        best_s = now_s() - start_s < best_s ? now_s() - start_s : best_s;
        arena_free(&a);
    }
    printf("links %-7s %9lld events  %7.1f ms  %5.1f M events/s\n", share ? "shared" : "roomy", (long long)h.events,
           1e3 * best_s, 1e-6 * (double)h.events / best_s);
}

int main(int argc, char **argv)
{
    struct arena a = { 0 };
    struct job *j = arena_alloc(&a, sizeof *j);
    struct program pr;
    struct diag d;
    struct cost c;
    enum err e = plan_read_job(j, &a, argc > 1 ? argv[1] : "deepseek-v3-256-gb200", 0, NULL, 0, &d);
    if (e == OK) {
        program_build(&pr, &a, j);
        cost_init(&c, &pr, j);
        struct unroll *u = arena_alloc(&a, (size_t)pr.n_stage * sizeof *u);
        e = unroll_all(u, &a, &pr, &d);
        for (int share = 0; share < 2 && e == OK; share++) bench(&c, u, share, argc > 2 ? atoi(argv[2]) : 9);
    }
    if (e != OK) fprintf(stderr, "bench_heap: %s\n", d.text);
    arena_free(&a);
    return e == OK ? 0 : 2;
}
