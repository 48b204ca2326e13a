/* What tests of a search start from: a job read with its degrees open, its space, its points, and the truth about a plan. */
#ifndef TESTS_SETTING_H
#define TESTS_SETTING_H
#include "sim/search_space.h"
#include "sim/sim.h"
#include "tests/test.h"
#include <math.h>
#include <string.h>

struct setting { struct arena arena; struct job *job; char fixed[64]; struct search_space space; };

static inline void setting_read(struct setting *t, const char *flags)
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

static inline void setting_open(struct setting *t, const char *flags)
{
    setting_read(t, flags);
    search_space_init(&t->space, &t->arena, t->job, t->fixed);
}

static inline int points_of(const struct search_space *s, int grid, struct search_point *out)
{
    int n = 0;
    for (int mbs = s->mbs[0]; mbs <= s->mbs[1]; mbs++)
        n += (int)search_space_points(s, &s->grid[grid], grid, mbs, out + n).points;
    return n;
}

struct truth { double step_s, live_B; };

/* The whole program, built and simulated. */
static inline struct truth truth_of(const struct job *j)
{
    static struct arena kept;           /* thousands of plans: its memory stays */
    struct arena *a = &kept;
    struct program pr;
    struct cost c;
    struct sim_result sim;
    struct truth t = { 0, 0 };
    program_build(&pr, a, j);
    cost_init(&c, &pr, j);
    const double *op_s = cost_all_s(&c, a);
    sim_step(&sim, a, &c, op_s, pass_price_all(&c, op_s, a));
    t.step_s = sim.step_s;
    for (int s = 0; s < pr.n_stage; s++) t.live_B = fmax(t.live_B, sim.live_B[s]);
    arena_clear(a);
    return t;
}

#endif
