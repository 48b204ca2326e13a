/* A plan predicted, and all that must agree on its program: both clocks, both counts of memory, the
 * check of what runs. */
#ifndef TESTS_SOUND_H
#define TESTS_SOUND_H
#include "sim/predict.h"
#include "tests/test.h"
#include <math.h>

struct made { struct arena arena; struct job j; struct program pr; struct predict r; };

static inline void sound_make(struct made *m, const char *flags)
{
    *m = (struct made){ 0 };
    test_job(&m->j, &m->arena, flags);
    predict_job(&m->r, &m->pr, &m->arena, &m->j);
}

/* Max-plus and sweep take equally long, and live bytes by pairs are those item by item; the items of all stages. */
static inline struct unroll *sound_clocks(struct made *m, const char *flags)
{
    struct cost c;
    struct trace t = { 0 };
    struct diag d = { "" };
    struct unroll *u = arena_alloc(&m->arena, (size_t)m->pr.n_stage * sizeof *u);
    int64_t end_ns = 0;
    ck_assert_msg(unroll_all(u, &m->arena, &m->pr, &d) == OK, "%s: %s", flags, d.text);
    ck_assert_double_eq(m->r.live_B, (double)u[m->r.worst_stage].live_B);
    cost_init(&c, &m->pr, &m->j);
    sim_sweep(&t, &m->arena, &c, u, NULL, 0);
    for (int64_t i = 0; i < t.n; i++) end_ns = t.span[i].t1_ns > end_ns ? t.span[i].t1_ns : end_ns;
    ck_assert_msg(fabs((double)end_ns * 1e-9 - m->r.step_s) < 3e-9, "%s: %.9f s, by items %.9f", flags,
                  m->r.step_s, (double)end_ns * 1e-9);
    ck_assert_double_eq_tol(m->r.lines.unaccounted_s, 0, 1e-12);
    return u;
}

/* That, and unroll_check passes, planned too. */
static inline void sound_check(struct made *m, const char *flags)
{
    struct diag d = { "" };
    struct unroll *u = sound_clocks(m, flags);
    ck_assert_msg(unroll_check(u, &m->pr, 0, &d) == OK, "%s: %s", flags, d.text);
    for (int s = 0; s < m->pr.n_stage; s++) unroll_plan(&u[s], &m->arena, &m->pr);
    ck_assert_msg(unroll_check(u, &m->pr, 1, &d) == OK, "%s: %s", flags, d.text);
}

/* Any op that takes longer never makes a step shorter. */
static inline void sound_monotone(struct made *m)
{
    struct cost c;
    struct sim_result before, after;
    cost_init(&c, &m->pr, &m->j);
    double *op_s = cost_all_s(&c, &m->arena);
    sim_step(&before, &m->arena, &c, op_s, pass_price_all(&c, op_s, &m->arena));
    for (int op = 1; op < m->pr.n_op; op++) {
        struct arena scratch = { 0 };
        const double was_s = op_s[op];
        op_s[op] = 3 * was_s + 1e-5;
        sim_step(&after, &scratch, &c, op_s, pass_price_all(&c, op_s, &scratch));
        ck_assert_msg(after.step_s >= before.step_s - 1e-12, "op %d: %g s, was %g", op, after.step_s,
                      before.step_s);
        op_s[op] = was_s;
        arena_free(&scratch);
    }
}

/* Refused as bad input (or not built), in words that hold all of `said`. */
static inline void sound_refused(const char *flags, const char *const *said)
{
    struct arena a = { 0 };
    struct job j;
    struct diag d = { "" };
    const enum err e = test_job_try(&j, &a, flags, &d);
    ck_assert_msg((e == ERR_CONFIG || e == ERR_LIMIT) && test_has(d.text, said), "%s: %s", flags, d.text);
    arena_free(&a);
}

#endif
