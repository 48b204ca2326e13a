/* See fit_data.h. */
#include "tools/fit/fit_data.h"
#include "sim/predict.h"
#include <fnmatch.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const double ln_step = 0.02;     /* of a slope: past the rounding of schedules that switch their critical path */

/* ---- reading ---- */

static const char *job_key(struct arena *a, const struct job *j, const char *source, int overridden)
{
    const char *key = overridden ? source : "";
    char text[1024];
    for (int i = 0; i < plan_n_opt; i++)
        key = arena_printf(a, "%s|%s", key, cfg_echo(text, sizeof text, &j->plan, &plan_opts[i]));
    return key;
}

static enum err override_bare(struct fit_job *to, const char *source, const struct fit_override *o, int n,
                              int *overridden, struct diag *d)
{
    *overridden = 0;
    for (int i = 0; i < n; i++) {
        if (fnmatch(o[i].source, source, 0)) continue;
        const struct opt *opt = cfg_opt(system_opts, system_n_opt, o[i].key);
        if (!opt) return fail(d, ERR_CONFIG, "--override: systems have no key '%s'", cfg_shown(o[i].key).text);
        TRY(cfg_set(&to->bare, opt, o[i].text, "--override", d));
        *overridden = 1;
    }
    return OK;
}

static int find_job(const struct fit_data *data, const char *key)
{
    for (int i = 0; i < data->n_job; i++)
        if (strcmp(data->job[i]->key, key) == 0) return i;
    return -1;
}

/* A program needs none of the figures that are fitted. */
static int add_job(struct fit_data *data, struct fit_job *j)
{
    program_build(&j->pr, data->a, &j->job);
    for (int i = 0; i < data->params->n; i++)
        j->moves[i] = (char)fit_param_moves(data->params, i, j->bare.name, j->stack.name);
    data->job = arena_grow(data->a, data->job, (size_t)data->n_job, (size_t)data->n_job + 1, sizeof *data->job);
    data->job[data->n_job] = j;
    return data->n_job++;
}

/* In the row's unit, of a step of 1 s: rates fall with it, the step's own time grows. */
static double measured_step_s(const struct validate_row *row, const struct validate_source *s, const struct job *j)
{
    struct predict r = { .step_s = 1 };
    predict_rates(&r, j);
    const double of_1_s = validate_count_predicted(row->unit, s, j, &r);
    return row->unit == VALIDATE_STEP ? row->measured / of_1_s : of_1_s / row->measured;
}

static enum err add_row(struct fit_data *data, struct validate_row *row, const struct validate_rules *rules,
                        struct validate_record *of, const struct fit_override *o, int n_o, struct diag *d)
{
    struct fit_job *j = arena_alloc(data->a, sizeof *j);
    struct diag why = { "" };
    int overridden;
    const struct validate_source s = validate_rules_source(rules, row->source);
    if (!row->scored || row->unit == VALIDATE_NOTHING) return OK;
    if (validate_map_job(&j->job, row, data->a, rules, of, &why) != OK) return OK;
    TRY(system_read(&j->bare, data->a, j->job.plan.system, d));
    j->stack = j->job.stack;
    TRY(override_bare(j, row->source, o, n_o, &overridden, d));
    j->key = job_key(data->a, &j->job, row->source, overridden);
    int at = find_job(data, j->key);
    if (at < 0) at = add_job(data, j);
    data->job[at]->rows++;
    data->row = arena_grow(data->a, data->row, (size_t)data->n_row, (size_t)data->n_row + 1, sizeof *data->row);
    data->row[data->n_row++] = (struct fit_row){ *row, at, measured_step_s(row, &s, &j->job), 1 };
    return OK;
}

enum err fit_data_read(struct fit_data *to, const char *path, const struct validate_rules *rules,
                       const struct fit_override *override, int n_override, struct diag *d)
{
    struct csv *c = arena_alloc(to->a, sizeof *c);
    TRY(csv_read_file(c, to->a, path, d));
    TRY(validate_row_ids(c, d));
    for (int i = 0; i < c->n_row; i++) {
        struct validate_row row;
        struct validate_record of = { c, i, 0 };
        TRY(validate_row_read(&row, &of, "", d));
        TRY(add_row(to, &row, rules, &of, override, n_override, d));
    }
    return OK;
}

void fit_data_weigh(struct fit_data *data)
{
    for (int i = 0; i < data->n_row; i++) data->row[i].weight = 1 / sqrt(data->job[data->row[i].job]->rows);
}

/* ---- evaluating ---- */

static double job_step_s(const struct fit_data *data, int job, const double *value)
{
    const struct fit_job *from = data->job[job];
    struct job *j = malloc(sizeof *j);
    if (!j) abort();
    *j = from->job;
    j->system = from->bare;
    j->stack = from->stack;
    fit_param_apply(data->params, value, &j->system, &j->stack);
    system_in_step(&j->system);
    const double step_s = predict_step_s(&from->pr, j);
    free(j);
    return step_s;
}

/* Threads take tasks in turn; each writes places of its own, so their number changes no result. */
struct work_list {
    const struct fit_data *data;
    const double *value;
    const int (*task)[2]; int n;        /* job, parameter that is moved or -1                  */
    double *out;
    atomic_int next;
};

static void *work_on(void *of)
{
    struct work_list *w = of;
    double value[FIT_PARAMS];
    for (int t; (t = atomic_fetch_add(&w->next, 1)) < w->n;) {
        memcpy(value, w->value, (size_t)w->data->params->n * sizeof *value);
        if (w->task[t][1] >= 0) value[w->task[t][1]] *= exp(ln_step);
        w->out[t] = job_step_s(w->data, w->task[t][0], value);
    }
    return NULL;
}

static void work_all(const struct fit_data *data, const double *value, const int (*task)[2], int n, double *out)
{
    enum { MOST = 64 };
    struct work_list w = { .data = data, .value = value, .task = task, .n = n, .out = out };
    pthread_t thread[MOST];
    int started = 0;
    while (started + 1 < data->threads && started < MOST && pthread_create(&thread[started], NULL, work_on, &w) == 0)
        started++;
    work_on(&w);
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
}

static void *work_alloc(size_t n, size_t size_B)
{
    void *x = calloc(n ? n : 1, size_B);
    if (!x) abort();
    return x;
}

void fit_data_steps(const struct fit_data *data, const double *value, const char *want, double *step_s)
{
    int (*task)[2] = work_alloc((size_t)data->n_job, sizeof *task), n = 0;
    double *out = work_alloc((size_t)data->n_job, sizeof *out);
    for (int j = 0; j < data->n_job; j++)
        if (want[j]) task[n][0] = j, task[n++][1] = -1;
    work_all(data, value, (const int (*)[2])task, n, out);
    for (int t = 0; t < n; t++) step_s[task[t][0]] = out[t];
    free(task), free(out);
}

void fit_data_slopes(const struct fit_data *data, const double *value, const char *want_job, const char *want_param,
                     const double *step_s, double *slope)
{
    const int n_param = data->params->n;
    const size_t all = (size_t)data->n_job * (size_t)n_param;
    int (*task)[2] = work_alloc(all, sizeof *task), n = 0;
    double *out = work_alloc(all, sizeof *out);
    memset(slope, 0, all * sizeof *slope);
    for (int j = 0; j < data->n_job; j++)
        for (int i = 0; want_job[j] && i < n_param; i++)
            if (want_param[i] && data->job[j]->moves[i]) task[n][0] = j, task[n++][1] = i;
    work_all(data, value, (const int (*)[2])task, n, out);
    for (int t = 0; t < n; t++) {
        const int j = task[t][0];
        slope[(size_t)j * (size_t)n_param + (size_t)task[t][1]] = log(out[t] / step_s[j]) / ln_step;
    }
    free(task), free(out);
}

void fit_data_slopes_at_medians(struct fit_data *data, const char *want_job)
{
    const size_t n = (size_t)data->params->n, jobs = (size_t)data->n_job;
    double value[FIT_PARAMS], *step_s = work_alloc(jobs, sizeof *step_s), *slope = work_alloc(jobs * n, sizeof *slope);
    char *want = work_alloc(jobs, 1), all[FIT_PARAMS];
    memset(all, 1, sizeof all);
    for (size_t i = 0; i < n; i++) value[i] = data->params->at[i].median;
    for (size_t j = 0; j < jobs; j++) want[j] = want_job[j] && !data->job[j]->slope;
    fit_data_steps(data, value, want, step_s);
    fit_data_slopes(data, value, want, all, step_s, slope);
    for (size_t j = 0; j < jobs; j++) {
        if (!want[j]) continue;
        data->job[j]->slope = arena_alloc(data->a, (n + 1) * sizeof *slope);
        memcpy(data->job[j]->slope, slope + j * n, n * sizeof *slope);
    }
    free(step_s), free(slope), free(want);
}

double fit_data_ln_fast(const struct fit_row *row, double step_s)
{
    return log(row->measured_s / step_s);
}

double fit_data_error(const struct fit_row *row, double ln_fast)
{
    return fabs(exp(row->of.unit == VALIDATE_STEP ? -ln_fast : ln_fast) - 1);
}
