/* A/B pairs: what a planner asks is which of two settings is faster, and by how much. Two rows of one source and
 * model answer it when exactly one setting column tells them apart. Sizes are compared as logarithms of ratios, so
 * it does not matter which of the two comes first. */
#include "tools/validate.h"
#include <math.h>
#include <string.h>

/* How many setting columns differ, the last of them in `*column`; one that is blank in one row counts as several. */
static int differences(const struct csv *c, const struct validate_rules *rules, int a, int b, const char **column)
{
    enum { SEVERAL = 2 };
    int n = 0;
    for (int i = 0; i < rules->columns->n; i++) {
        const struct validate_record x = { c, a, 0 }, y = { c, b, 0 };
        const char *name = rules->columns->key[i];
        const char *in_a = validate_rules_cell(&x, name), *in_b = validate_rules_cell(&y, name);
        if (strcmp(in_a, in_b) == 0) continue;
        n += *in_a && *in_b ? 1 : SEVERAL;
        *column = name;
    }
    return n;
}

static int is_candidate(const struct validate_row *r)
{
    return r->ab && !r->skipped && isfinite(r->measured) && r->measured > 0;
}

static struct validate_pair pair_of(const struct validate_row *row, int a, int b, const char *column)
{
    const double measured = row[b].measured_rate / row[a].measured_rate, predicted = row[b].rate / row[a].rate;
    const double m = log(measured), p = log(predicted);
    struct validate_pair x = { a, b, column, measured - 1, predicted - 1, 0, 0, 0 };
    x.changed = fabs(m) > log(1.05);
    x.right   = m * p > 0;
    x.close   = x.right && fabs(p) <= 1.5 * fabs(m) && fabs(m) <= 1.5 * fabs(p);
    return x;
}

int validate_pair_all(struct validate_pair **pair, struct arena *a, const struct csv *c,
                      const struct validate_rules *rules, const struct validate_row *row, int n_row)
{
    int n = 0, room = 64;
    *pair = arena_alloc(a, (size_t)room * sizeof **pair);
    for (int i = 0; i < n_row; i++) {
        int next = 1;                           /* whether no row of the source lies between */
        for (int j = i + 1; j < n_row; j++) {
            const char *column = NULL;
            if (!is_candidate(&row[i]) || !is_candidate(&row[j])) continue;
            if (strcmp(row[i].source, row[j].source) || strcmp(row[i].model, row[j].model)) continue;
            const int n_diff = differences(c, rules, row[i].index, row[j].index, &column);
            const int step = next && n_diff == 0;
            next = 0;
            if (n_diff != 1 && !step) continue;
            if (n == room) *pair = arena_grow(a, *pair, (size_t)n, (size_t)(room *= 2), sizeof **pair);
            (*pair)[n++] = pair_of(row, i, j, step ? NULL : column);
        }
    }
    return n;
}
