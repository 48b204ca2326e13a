/* Schedules over many shapes: every chunk's forward and backward of every micro-batch happens once and in
 * order, in-flight counts are Megatron's (cases A07), and every op runs exactly as often as it must. */
#include "tests/test.h"
#include "tests/toy.h"

static const struct pass *pass_of(const struct program *pr, int stage, int step)
{
    return &pr->pass[pr->step[stage][step].pass];
}

/* Runs of every op in a stage's step, and whether its order is right; aborts with the shape otherwise. */
static void check_counts(const struct program *pr, const struct toy *t, int stage)
{
    int *runs = calloc((size_t)pr->n_op, sizeof *runs);
    for (int k = 0; k < pr->n_step[stage]; k++) {
        const struct pass *p = pass_of(pr, stage, k);
        for (int i = 0; i < p->n; i++) runs[pr->order[p->first + i]]++;
    }
    for (int c = stage; c < pr->n_chunk; c += t->pp)
        for (int op = pr->chunk[c].fwd; op < pr->chunk[c].end; op++)
            ck_assert_int_eq(runs[op], op < pr->chunk[c].reduce ? t->n_micro : 1);
    for (int op = pr->stage[stage].optim; op < pr->stage[stage].end; op++) ck_assert_int_eq(runs[op], 1);
    free(runs);
}

/* Forward, then backward, then its weight half, of each (chunk, micro-batch), once. */
static void check_order(const struct program *pr, const struct toy *t, int stage)
{
    int *state = calloc((size_t)(pr->n_chunk * t->n_micro), sizeof *state);
    const int n = pr->n_step[stage];
    ck_assert_int_eq(pass_of(pr, stage, 0)->kind, PASS_START);
    ck_assert_int_eq(pass_of(pr, stage, n - 1)->kind, PASS_OPTIM);
    for (int k = 1; k < n - 1; k++) {
        const struct step *s = &pr->step[stage][k];
        const struct pass *p = pass_of(pr, stage, k);
        const int f = p->kind == PASS_FWD || p->kind == PASS_FWD_BWD, weight = p->kind == PASS_BWD_WEIGHT;
        ck_assert_int_eq(f, s->micro[0] >= 0);
        ck_assert_int_eq(f, p->chunk[0] >= 0);
        ck_assert_int_eq(p->kind != PASS_FWD, s->micro[1] >= 0);
        if (f) {
            ck_assert_int_eq(p->chunk[0] % t->pp, stage);
            ck_assert_int_eq(state[p->chunk[0] * t->n_micro + s->micro[0]]++, 0);
        }
        if (p->kind != PASS_FWD) ck_assert_int_eq(state[p->chunk[1] * t->n_micro + s->micro[1]]++, 1 + weight);
    }
    for (int c = stage; c < pr->n_chunk; c += t->pp)
        for (int m = 0; m < t->n_micro; m++) ck_assert_int_eq(state[c * t->n_micro + m], 2 + t->split);
    free(state);
}

/* No gradient is added to after its reduction. */
static void check_reduced_last(const struct program *pr, int stage)
{
    char *reduced = calloc((size_t)pr->n_buf, 1);
    for (int k = 0; k < pr->n_step[stage]; k++)
        for (int i = 0; i < pass_of(pr, stage, k)->n; i++) {
            const struct op *o = &pr->op[pr->order[pass_of(pr, stage, k)->first + i]];
            const int g = o->io.add[0];
            if (o->flags & OP_WEIGHT_GRAD) ck_assert_int_eq(reduced[g], 0);
            if (o->flags & OP_REDUCE) reduced[g] = 1;
        }
    free(reduced);
}

static int in_flight_formula(const struct toy *t, int stage)
{
    const int behind = t->pp - 1 - stage, all = t->n_micro * t->vpp;
    const int warm =
        (t->vpp == 1 ? behind : 2 * behind + (t->vpp - 1) * t->group) + (t->schedule == SCHEDULE_FWD_BWD);
    return warm + 1 < all ? warm + 1 : all;
}

static void check_shape(const struct toy *t)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    toy_build(&pr, &a, &j, t);
    ck_assert_int_ge(pr.lead, 2);
    if (t->vpp == 1 || (t->group == t->pp && !t->split)) ck_assert_int_eq(pr.lead, 2);
    for (int s = 0; s < t->pp; s++) {
        check_counts(&pr, t, s);
        check_order(&pr, t, s);
        check_reduced_last(&pr, s);
        if (!t->split) ck_assert_int_eq(sched_in_flight(&pr, s), in_flight_formula(t, s));
        else ck_assert_int_ge(sched_in_flight(&pr, s), in_flight_formula(t, s));
    }
    arena_free(&a);
}

START_TEST(every_shape)
{
    toy_each(check_shape);
}
END_TEST

/* cases A07; the last row is 1F1B with fewer micro-batches than stages. */
START_TEST(in_flight)
{
    static const struct { int pp, vpp, m, stage, want; } row[] = {
        { 8, 1, 4, 0, 4 },  { 8, 1, 4, 4, 4 },   { 8, 1, 4, 5, 3 },    { 8, 1, 4, 6, 2 },  { 8, 1, 4, 7, 1 },
        { 4, 2, 8, 0, 11 }, { 4, 2, 4, 0, 8 },   { 8, 2, 16, 0, 23 },  { 16, 2, 64, 0, 47 },
        { 4, 4, 16, 0, 19 }, { 4, 4, 16, 1, 17 }, { 4, 4, 16, 2, 15 }, { 4, 4, 16, 3, 13 }, { 16, 1, 3, 0, 3 },
    };
    for (int i = 0; i < LEN(row); i++) {
        struct arena a = { 0 };
        struct program pr;
        struct job j;
        const struct toy t = { .pp = row[i].pp, .vpp = row[i].vpp, .n_micro = row[i].m, .layers = 1,
                               .schedule = row[i].vpp > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B };
        toy_build(&pr, &a, &j, &t);
        ck_assert_msg(sched_in_flight(&pr, row[i].stage) == row[i].want, "row %d: %d, want %d", i,
                      sched_in_flight(&pr, row[i].stage), row[i].want);
        arena_free(&a);
    }
}
END_TEST

/* Megatron's get_schedule_table(9, 2, 5): a group of five, then the four that are left. */
START_TEST(tail_group)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    int f = 0, b = 0;
    toy_build(&pr, &a, &j, &(struct toy){ .pp = 4, .vpp = 2, .n_micro = 9, .group = 5, .layers = 1,
                                          .schedule = SCHEDULE_INTERLEAVED });
    for (int k = 1; k < pr.n_step[1] - 1; k++) {
        const struct step *s = &pr.step[1][k];
        const int half = s->micro[1] >= 0;
        const int at = half ? b++ : f++, tail = at >= 10, in = tail ? at - 10 : at, group = tail ? 4 : 5;
        ck_assert_int_eq(s->micro[half], in % group + 5 * tail);
        ck_assert_int_eq(pass_of(&pr, 1, k)->chunk[half] / 4, half ? 1 - in / group : in / group);
    }
    ck_assert_int_eq(f, 18);
    ck_assert_int_eq(b, 18);
    arena_free(&a);
}
END_TEST

/* One BWD_LAST a chunk, of the last micro-batch; each reduction right behind the last op that adds to its
 * gradient. */
START_TEST(last_backward)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    int found = 0;
    toy_build(&pr, &a, &j,
              &(struct toy){ .pp = 2, .vpp = 2, .n_micro = 4, .layers = 3, .schedule = SCHEDULE_INTERLEAVED });
    for (int k = 0; k < pr.n_step[0]; k++) {
        const struct pass *p = pass_of(&pr, 0, k);
        for (int i = 0; i < p->n; i++) {
            const struct op *o = &pr.op[pr.order[p->first + i]];
            if (!(o->flags & OP_REDUCE)) continue;
            const struct op *before = &pr.op[pr.order[p->first + i - 1]];
            ck_assert_int_eq(p->kind, PASS_BWD_LAST);
            ck_assert_int_eq(pr.step[0][k].micro[1], 3);
            ck_assert_int_eq(before->kind, OP_WGRAD);
            ck_assert_int_eq(before->io.add[0], o->io.add[0]);
            found++;
        }
    }
    ck_assert_int_eq(found, 6);
    arena_free(&a);
}
END_TEST

/* A gradient that two chunks of a stage add to, or whose reduction meets other stages, waits for OPTIM, with
 * all that comes after on the same gradient. */
START_TEST(late_reductions)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    toy_build(&pr, &a, &j,
              &(struct toy){ .pp = 2, .vpp = 2, .n_micro = 4, .layers = 1, .schedule = SCHEDULE_INTERLEAVED });
    int shared = 0, own = 0, n_optim = 0;
    for (int op = pr.chunk[0].bwd; op < pr.chunk[0].reduce; op++)
        if (pr.op[op].flags & OP_WEIGHT_GRAD) shared = pr.op[op].io.add[0];
    for (int op = pr.chunk[2].bwd, n = 0; op < pr.chunk[2].reduce; op++) {
        if (!(pr.op[op].flags & OP_WEIGHT_GRAD)) continue;
        if (n++) own = pr.op[op].io.add[0];
        else pr.op[op].io.add[0] = shared;      /* a tied table */
    }
    pr.op[pr.chunk[3].reduce].group = GROUP_EMBED;
    sched_build(&pr, &j);
    for (int stage = 0; stage < 2; stage++) {
        const struct pass *p = pass_of(&pr, stage, pr.n_step[stage] - 1);
        for (int i = 0; i < p->n; i++)
            if (pr.op[pr.order[p->first + i]].flags & OP_REDUCE) {
                ck_assert_int_eq(pr.order[p->first + i], pr.chunk[stage ? 3 : 0].reduce);
                n_optim++;
            }
    }
    ck_assert_int_ne(own, shared);
    ck_assert_int_eq(n_optim, 2);
    arena_free(&a);
}
END_TEST

/* Backward one part ahead, parts in turn, each half in its own order; one pass per pair of chunks that meet. */
START_TEST(woven)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    int n_woven = 0;
    toy_build(&pr, &a, &j,
              &(struct toy){ .pp = 4, .vpp = 2, .n_micro = 8, .layers = 2, .schedule = SCHEDULE_FWD_BWD });
    for (int k = 0; k < pr.n_pass; k++) {
        const struct pass *p = &pr.pass[k];
        if (p->kind != PASS_FWD_BWD) continue;
        int next[2] = { pr.chunk[p->chunk[0]].fwd, pr.chunk[p->chunk[1]].bwd }, part[2] = { -1, -1 };
        for (int i = 0; i < p->n; i++) {
            const struct op *o = &pr.op[pr.order[p->first + i]];
            ck_assert_int_eq(pr.order[p->first + i], next[o->half]++);
            part[o->half] = o->part;
            const int behind = part[HALF_BWD] - part[HALF_FWD];
            if (next[HALF_FWD] < pr.chunk[p->chunk[0]].bwd && next[HALF_BWD] < pr.chunk[p->chunk[1]].reduce)
                ck_assert(behind == 0 || behind == 1);
        }
        ck_assert_int_eq(next[0], pr.chunk[p->chunk[0]].bwd);
        ck_assert_int_eq(next[1], pr.chunk[p->chunk[1]].reduce);
        n_woven++;
    }
    ck_assert_int_eq(n_woven, 3 + 3 + 4 + 4);   /* by hand, stage after stage */
    arena_free(&a);
}
END_TEST

/* A weight half runs after the next forward; in the flush, right after its input half. */
START_TEST(split_order)
{
    static const int want[] = { PASS_START,     PASS_FWD,        PASS_FWD,       PASS_BWD_INPUT,
                                PASS_FWD,       PASS_BWD_WEIGHT, PASS_BWD_INPUT, PASS_BWD_WEIGHT,
                                PASS_BWD_INPUT, PASS_BWD_WEIGHT, PASS_OPTIM };
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    toy_build(&pr, &a, &j, &(struct toy){ .pp = 2, .vpp = 1, .n_micro = 3, .layers = 1, .split = 1 });
    ck_assert_int_eq(pr.n_step[0], LEN(want));
    for (int k = 0; k < LEN(want); k++) ck_assert_int_eq(pass_of(&pr, 0, k)->kind, want[k]);
    for (int k = 0; k < pr.n_pass; k++)
        for (int i = 0; i < pr.pass[k].n; i++) {
            const int weight = pr.op[pr.order[pr.pass[k].first + i]].flags & OP_WEIGHT_GRAD;
            ck_assert_int_eq(weight != 0, pr.pass[k].kind == PASS_BWD_WEIGHT);
        }
    arena_free(&a);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { every_shape,     in_flight, tail_group, last_backward,
                                   late_reductions, woven,     split_order };
    return test_main("sched", tests, LEN(tests), 300);
}
