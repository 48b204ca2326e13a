/* The whole step written out and played by events. */
#include "tools/contention.h"
#include "sim/sim_heap.h"
#include <stddef.h>

const char *const contention_names[] = { "static", "dynamic", NULL };

const struct report_col contention_cols[] = {
    { "group", "group", REPORT_TEXT, offsetof(struct contention_row, group) },
    { "alone_s", "transfer alone", REPORT_S, offsetof(struct contention_row, alone_s) },
    { "shared_s", "links shared", REPORT_S, offsetof(struct contention_row, shared_s) },
    { "longer", "longer", REPORT_SHARE, offsetof(struct contention_row, longer) },
};
const int contention_n_col = LEN(contention_cols);

/* What rounding makes of nothing is nothing. */
static double longer(double shared_s, double alone_s)
{
    return shared_s > alone_s * (1 + 1e-9) ? shared_s / alone_s - 1 : 0;
}

static int64_t items_of(const struct program *pr)
{
    int64_t n = 0;
    for (int s = 0; s < pr->n_stage; s++)
        for (int k = 0; k < pr->n_step[s]; k++) n += pr->pass[pr->step[s][k].pass].n;
    return n;
}

enum err contention_of(struct contention *x, const struct program *pr, const struct job *j, double step_s, struct diag *d)
{
    struct arena a = { 0 };
    struct unroll *u = arena_alloc(&a, (size_t)pr->n_stage * sizeof *u);
    struct program own = *pr;
    struct sim_heap h;
    struct cost c;
    own.arena = &a;
    if (items_of(pr) > CONTENTION_ITEMS)
        return fail(d, ERR_LIMIT, "--contention: a step of %lld ops on %d stages, at most %d are played by events: lower gbs",
                    (long long)items_of(pr), pr->n_stage, CONTENTION_ITEMS);
    const enum err e = unroll_all(u, &a, pr, d);
    if (e == OK) {
        cost_init(&c, &own, j);
        sim_heap(&h, &a, &c, u, 1);
        *x = (struct contention){ .asked = 1, .last_stage = h.last_stage, .step_s = h.step_s, .longer = longer(h.step_s, step_s) };
        const struct sim_heap_stage *s = &h.stage[h.last_stage];
        for (int g = 1; g < GROUP_COUNT; g++)
            if (s->alone_s[g] > 0)
                x->row[x->n++] = (struct contention_row){ fold_group_name((enum group)g), s->alone_s[g], s->shared_s[g],
                                                          longer(s->shared_s[g], s->alone_s[g]) };
    }
    arena_free(&a);
    return e;
}
