/* See fit_run.h. */
#include "tools/fit/fit_run.h"
#include <math.h>
#include <string.h>

struct run {
    const struct fit_data *data;
    char *want_job;
    double *step_s, *slope;             /* by job                                              */
    double *at;                         /* the values that step_s is of; NAN: none yet         */
    double *slope_at, *slope_s;         /* the values that the slopes are of, and the steps    */
    struct arena a;
};

static void run_open(struct run *r, const struct fit_data *data, const char *train)
{
    const size_t jobs = (size_t)data->n_job, params = (size_t)data->params->n;
    *r = (struct run){ .data = data };
    r->want_job = arena_alloc(&r->a, jobs + 1);
    r->step_s = arena_alloc(&r->a, (jobs + 1) * sizeof *r->step_s);
    r->slope = arena_alloc(&r->a, (jobs * params + 1) * sizeof *r->slope);
    r->at = arena_alloc(&r->a, (params + 1) * sizeof *r->at);
    r->slope_at = arena_alloc(&r->a, (params + 1) * sizeof *r->slope_at);
    r->slope_s = arena_alloc(&r->a, (jobs + 1) * sizeof *r->slope_s);
    r->at[0] = (double)NAN;
    for (int i = 0; i < data->n_row; i++) r->want_job[data->row[i].job] |= train[i];
}

/* Once for each point, though the solver asks for values and slopes apart. */
static void simulate(struct run *r, const double *value)
{
    const size_t B = (size_t)r->data->params->n * sizeof *value;
    if (B && memcmp(r->at, value, B) == 0) return;
    fit_data_steps(r->data, value, r->want_job, r->step_s);
    memcpy(r->at, value, B);
}

static void residual(void *of, const double *value, double *to)
{
    struct run *r = of;
    simulate(r, value);
    for (int i = 0; i < r->data->n_row; i++) {
        const struct fit_row *row = &r->data->row[i];
        to[i] = r->want_job[row->job] ? fit_data_ln_fast(row, r->step_s[row->job]) : 0;
    }
}

static void slopes_begin(struct run *r, struct fit_data *data)
{
    const size_t n = (size_t)data->params->n;
    double value[FIT_PARAMS];
    fit_data_slopes_at_medians(data, r->want_job);
    for (size_t i = 0; i < n; i++) value[i] = data->params->at[i].median;
    simulate(r, value);
    for (int j = 0; j < data->n_job; j++)
        if (r->want_job[j]) memcpy(r->slope + (size_t)j * n, data->job[j]->slope, n * sizeof *value);
    memcpy(r->slope_at, value, n * sizeof *value);
    memcpy(r->slope_s, r->step_s, (size_t)data->n_job * sizeof *value);
}

static void slopes_anew(struct run *r, const double *value)
{
    const size_t n = (size_t)r->data->params->n;
    char all[FIT_PARAMS];
    memset(all, 1, sizeof all);
    simulate(r, value);
    fit_data_slopes(r->data, value, r->want_job, all, r->step_s, r->slope);
    memcpy(r->slope_at, value, n * sizeof *value);
    memcpy(r->slope_s, r->step_s, (size_t)r->data->n_job * sizeof *value);
}

/* What a job's step changed beyond what its slopes said is shared out along the way taken; a figure that cannot move
 * a job has no part in it. */
static void slopes_follow(struct run *r, const double *value)
{
    const int n = r->data->params->n;
    for (int j = 0; j < r->data->n_job; j++) {
        double *slope = r->slope + (size_t)j * (size_t)n, said = 0, way = 0;
        if (!r->want_job[j]) continue;
        for (int i = 0; i < n; i++) {
            const double d = r->data->job[j]->moves[i] ? log(value[i] / r->slope_at[i]) : 0;
            said += slope[i] * d;
            way += d * d;
        }
        const double missed = log(r->step_s[j] / r->slope_s[j]) - said;
        for (int i = 0; i < n && way > 1e-8; i++)
            if (r->data->job[j]->moves[i]) slope[i] += missed * log(value[i] / r->slope_at[i]) / way;
    }
    memcpy(r->slope_at, value, (size_t)n * sizeof *value);
    memcpy(r->slope_s, r->step_s, (size_t)r->data->n_job * sizeof *value);
}

static void jacobian(void *of, const double *value, const char *want, double *jac)
{
    struct run *r = of;
    const size_t n = (size_t)r->data->params->n;
    simulate(r, value);
    if (n && memcmp(r->slope_at, value, n * sizeof *value)) slopes_follow(r, value);
    for (int i = 0; i < r->data->n_row; i++)
        for (size_t k = 0; k < n; k++)
            jac[(size_t)i * n + k] = want[k] ? -r->slope[(size_t)r->data->row[i].job * n + k] : 0;
}

void fit_run(struct fit_value *value, struct fit_data *data, const char *train, int bounded, int exact)
{
    struct run r;
    double at[FIT_PARAMS];
    run_open(&r, data, train);
    slopes_begin(&r, data);
    const int n = data->params->n;
    struct fit_prior *prior = arena_alloc(&r.a, ((size_t)n + 1) * sizeof *prior);
    double *weight = arena_alloc(&r.a, ((size_t)data->n_row + 1) * sizeof *weight);
    for (int i = 0; i < n; i++) {
        const struct fit_param *p = &data->params->at[i];
        prior[i] = (struct fit_prior){ p->median, p->ln_sigma, p->low, p->high };
    }
    for (int i = 0; i < data->n_row; i++) weight[i] = train[i] ? data->row[i].weight : 0;
    struct fit_problem p = { .n_param = n, .n_row = data->n_row, .prior = prior, .weight = weight, .scale = FIT_SCALE,
                             .bounded = bounded, .of = &r, .residual = residual, .jacobian = jacobian };
    fit_solve(value, &p);
    if (exact) {
        for (int i = 0; i < n; i++) at[i] = value[i].value;
        slopes_anew(&r, at);
        p.start = at;
        fit_solve(value, &p);
    }
    arena_free(&r.a);
}

void fit_run_score(double *ln_fast, const struct fit_data *data, const double *value, const char *want)
{
    struct run r;
    run_open(&r, data, want);
    simulate(&r, value);
    for (int i = 0; i < data->n_row; i++) {
        const struct fit_row *row = &data->row[i];
        ln_fast[i] = want[i] ? fit_data_ln_fast(row, r.step_s[row->job]) : (double)NAN;
    }
    arena_free(&r.a);
}

struct validate_error fit_run_error(const struct fit_data *data, const double *ln_fast)
{
    struct arena a = { 0 };
    double *error = arena_alloc(&a, ((size_t)data->n_row + 1) * sizeof *error);
    int n = 0;
    for (int i = 0; i < data->n_row; i++)
        if (isfinite(ln_fast[i])) error[n++] = fit_data_error(&data->row[i], ln_fast[i]);
    const struct validate_error e = validate_error_of(error, n);
    arena_free(&a);
    return e;
}
