/* Cross-validation: the figures that count. Rows of one model on one system are siblings, so they are never divided: a
 * half holds models on systems that its fit has not seen. */
#include "tools/fit/fit_run.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

static uint64_t cv_random(uint64_t *state)      /* splitmix64, by Vigna: a sequence that is the same everywhere */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int is_sibling(const struct fit_row *a, const struct fit_row *b, enum fit_group by)
{
    const int model = strcmp(a->of.model, b->of.model) == 0, system = strcmp(a->of.system, b->of.system) == 0;
    return (by == FIT_GROUP_SYSTEM || model) && (by == FIT_GROUP_MODEL || system);
}

/* The first row of each row's group, and how many rows it has. */
static int groups_of(int *first, int *rows, int *group, const struct fit_data *data, enum fit_group by)
{
    int n = 0;
    for (int i = 0; i < data->n_row; i++) {
        int g = 0;
        while (g < n && !is_sibling(&data->row[first[g]], &data->row[i], by)) g++;
        if (g == n) {
            first[n] = i;
            rows[n++] = 0;
        }
        rows[g]++;
        group[i] = g;
    }
    return n;
}

void fit_cv_halves(char *half, const struct fit_data *data, enum fit_group by, int seed)
{
    struct arena a = { 0 };
    const size_t room = ((size_t)data->n_row + 1) * sizeof(int);
    int *first = arena_alloc(&a, room), *rows = arena_alloc(&a, room), *group = arena_alloc(&a, room);
    int *order = arena_alloc(&a, room), *side = arena_alloc(&a, room), filled[2] = { 0, 0 };
    uint64_t state = (uint64_t)seed;
    const int n = groups_of(first, rows, group, data, by);
    for (int g = 0; g < n; g++) {
        const int k = (int)(cv_random(&state) % (uint64_t)(g + 1));
        order[g] = order[k];
        order[k] = g;
    }
    for (int k = 0; k < n; k++) {
        const int g = order[k];
        side[g] = filled[1] < filled[0];
        filled[side[g]] += rows[g];
    }
    for (int i = 0; i < data->n_row; i++) half[i] = (char)side[group[i]];
    arena_free(&a);
}

static void score_half(struct fit_cv *cv, struct fit_data *data, const char *half, int seed, int unseen)
{
    struct arena a = { 0 };
    const size_t n = (size_t)data->n_row;
    char *train = arena_alloc(&a, n + 1), *score = arena_alloc(&a, n + 1);
    double *ln_fast = arena_alloc(&a, (n + 1) * sizeof *ln_fast), value[FIT_PARAMS];
    struct fit_value fitted[FIT_PARAMS];
    for (size_t i = 0; i < n; i++) {
        score[i] = half[i] == unseen;
        train[i] = !score[i];
    }
    fit_run(fitted, data, train, 1, 0);
    for (int i = 0; i < data->params->n; i++) value[i] = fitted[i].value;
    fit_run_score(ln_fast, data, value, score);
    for (size_t i = 0; i < n; i++)
        if (score[i]) cv->ln_fast[(size_t)(seed - 1) * n + i] = ln_fast[i];
    cv->fold[cv->n_fold++] = (struct fit_fold){ fit_run_error(data, ln_fast), seed, unseen };
    arena_free(&a);
}

void fit_cv_all(struct fit_cv *cv, struct fit_data *data, enum fit_group by, int n_seed,
                void (*progress)(const struct fit_fold *fold))
{
    char *half = arena_alloc(data->a, (size_t)data->n_row + 1);
    *cv = (struct fit_cv){ .n_fold = 0 };
    cv->ln_fast = arena_alloc(data->a, ((size_t)n_seed * (size_t)data->n_row + 1) * sizeof *cv->ln_fast);
    for (int seed = 1; seed <= n_seed; seed++) {
        fit_cv_halves(half, data, by, seed);
        for (int unseen = 0; unseen < 2; unseen++) {
            score_half(cv, data, half, seed, unseen);
            if (progress) progress(&cv->fold[cv->n_fold - 1]);
        }
    }
    for (int i = 0; i < cv->n_fold; i++) {
        const struct validate_error *e = &cv->fold[i].error;
        cv->mean.n += e->n;
        cv->mean.median += e->median / cv->n_fold;
        cv->mean.mean += e->mean / cv->n_fold;
        cv->mean.p90 += e->p90 / cv->n_fold;
        cv->mean.max = fmax(cv->mean.max, e->max);
    }
}
