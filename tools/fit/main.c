/* moefold-fit: calibrates the few figures of systems and stacks that only whole runs tell, and says how far the result
 * holds on runs it has not seen. A program of its own, since GSL is under the GPL. */
#include "tools/args.h"
#include "tools/fit/fit_range.h"
#include "tools/fit/fit_run.h"
#include "tools/fit/fit_write.h"
#include "tools/report.h"
#include <fnmatch.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

struct main_flags { char params[256], rules[256], out[1024], hold_out[128], override[512]; int32_t threads; };
#define MAIN_FLAGS                                                                                                    \
    { .key = "params", ARGS_TEXT(struct main_flags, params, "fit"),                                                   \
      .help = "what may move, with priors and bounds: a file, or the built-in one" },                                 \
    { .key = "rules", ARGS_TEXT(struct main_flags, rules, "sources"),                                                 \
      .help = "how columns, blanks and sources are read: a file, or the built-in rules" },                            \
    { .key = "out", ARGS_TEXT(struct main_flags, out, ""), .help = "folder to write into; default: nothing is written" }, \
    { .key = "override", ARGS_TEXT(struct main_flags, override, ""),                                                  \
      .help = "figures of one source's machines, SOURCE:KEY=VALUE, several joined by ','" },                          \
    { .key = "threads", ARGS_INT(struct main_flags, threads, 0, 64, "0"),                                             \
      .help = "that simulate; 0: one a processor. Their number changes no result" }
static const struct opt fit_flags[] = {
    MAIN_FLAGS,
    { .key = "hold-out", ARGS_TEXT(struct main_flags, hold_out, ""),
      .help = "rows that are scored but not fitted, such as source=simumax-*" },
};
static const struct opt cv_flags[] = { MAIN_FLAGS };

struct main_view {
    const struct main_flags *flags;
    struct fit_params params;
    struct fit_data data;
    char *train, *held;                 /* by row                                              */
};

/* ---- reading ---- */

static enum err read_overrides(struct fit_override **to, int *n, struct arena *a, const char *text, struct diag *d)
{
    char *rest = arena_strdup(a, text), *word;
    *n = 0;
    *to = arena_alloc(a, (strlen(text) / 2 + 1) * sizeof **to);
    while ((word = strtok_r(rest, ",", &rest))) {
        char *key = strchr(word, ':'), *value = key ? strchr(key, '=') : NULL;
        if (!value) return fail(d, ERR_CONFIG, "--override: '%s' is not SOURCE:KEY=VALUE", cfg_shown(word).text);
        *key++ = *value++ = '\0';
        (*to)[(*n)++] = (struct fit_override){ word, key, value };
    }
    return OK;
}

static const char *column_of(const struct validate_row *r, const char *column)
{
    const struct { const char *name, *text; } known[] = { { "source", r->source }, { "model", r->model },
                                                          { "system", r->system }, { "precision", r->precision },
                                                          { "kind", r->kind }, { "id", r->id } };
    for (int i = 0; i < LEN(known); i++)
        if (strcmp(known[i].name, column) == 0) return known[i].text;
    return NULL;
}

static enum err hold_out(struct main_view *v, const char *text, struct diag *d)
{
    const char *eq = strchr(text, '=');
    char column[32] = "";
    if (eq && (size_t)(eq - text) < sizeof column) memcpy(column, text, (size_t)(eq - text));
    for (int i = 0; i < v->data.n_row; i++) {
        const char *cell = *text ? column_of(&v->data.row[i].of, column) : "";
        if (!cell)
            return fail(d, ERR_CONFIG, "--hold-out: '%s' is not COLUMN=PATTERN with source, model, system, precision, "
                        "kind or id", cfg_shown(text).text);
        v->held[i] = *text && fnmatch(eq + 1, cell, 0) == 0;
        v->train[i] = !v->held[i];
    }
    return OK;
}

static enum err main_read(struct main_view *v, struct arena *a, const struct args *args, struct diag *d)
{
    struct validate_rules rules;
    struct fit_override *o;
    int n_o;
    v->data = (struct fit_data){ .a = a, .params = &v->params,
                                 .threads = v->flags->threads ? v->flags->threads : (int)sysconf(_SC_NPROCESSORS_ONLN) };
    TRY(fit_param_read(&v->params, a, v->flags->params, d));
    TRY(validate_rules_read(&rules, a, v->flags->rules, d));
    TRY(read_overrides(&o, &n_o, a, v->flags->override, d));
    for (int i = 0; i < args->n_word; i++) TRY(fit_data_read(&v->data, args->word[i], &rules, o, n_o, d));
    if (v->data.n_row == 0) return fail(d, ERR_CONFIG, "%s: no row has a plan and a rate", args->word[0]);
    fit_data_weigh(&v->data);
    v->train = arena_alloc(a, (size_t)v->data.n_row + 1);
    v->held = arena_alloc(a, (size_t)v->data.n_row + 1);
    return hold_out(v, v->flags->hold_out, d);
}

/* ---- fit ---- */

static const struct report_col error_cols[] = {
    { NULL, "", REPORT_TEXT, sizeof(struct validate_error) },
    { "rows", "rows", REPORT_INT, offsetof(struct validate_error, n) },
    { "median", "median", REPORT_SHARE, offsetof(struct validate_error, median) },
    { "mean", "mean", REPORT_SHARE, offsetof(struct validate_error, mean) },
    { "p90", "P90", REPORT_SHARE, offsetof(struct validate_error, p90) },
    { "max", "max", REPORT_SHARE, offsetof(struct validate_error, max) },
};
struct error_row { struct validate_error e; const char *name; };
struct value_row { const char *name; struct fit_value v; double median, bound_low, bound_high; const char *state; };
static const struct report_col value_cols[] = {
    { "name", "parameter", REPORT_TEXT, offsetof(struct value_row, name) },
    { "value", "value", REPORT_NUMBER, offsetof(struct value_row, v.value) },
    { "low", "low", REPORT_NUMBER, offsetof(struct value_row, v.low) },
    { "high", "high", REPORT_NUMBER, offsetof(struct value_row, v.high) },
    { "prior", "prior", REPORT_NUMBER, offsetof(struct value_row, median) },
    { "bound_low", "not below", REPORT_NUMBER, offsetof(struct value_row, bound_low) },
    { "bound_high", "not above", REPORT_NUMBER, offsetof(struct value_row, bound_high) },
    { "sensitivity", "sensitivity", REPORT_NUMBER, offsetof(struct value_row, v.sensitivity) },
    { "state", "", REPORT_TEXT, offsetof(struct value_row, state) },
};
struct fit_answer {
    struct value_row value[FIT_PARAMS];
    struct error_row error[4]; int n_error;     /* before, after, without bounds, held out     */
    int n_bound, n_undetermined;
};
enum { BEFORE, AFTER };

static void score(struct fit_answer *to, struct main_view *v, const char *name, const double *value, const char *want)
{
    double *ln_fast = arena_alloc(v->data.a, ((size_t)v->data.n_row + 1) * sizeof *ln_fast);
    fit_run_score(ln_fast, &v->data, value, want);
    to->error[to->n_error++] = (struct error_row){ fit_run_error(&v->data, ln_fast), name };
}

static void fit_answer(struct fit_answer *to, double *value, struct main_view *v)
{
    struct fit_value fitted[FIT_PARAMS], free[FIT_PARAMS];
    const int n = v->params.n;
    int any_held = 0;
    for (int i = 0; i < n; i++) value[i] = v->params.at[i].median;
    score(to, v, "priors alone", value, v->train);
    fit_run(fitted, &v->data, v->train, 1, 1);
    for (int i = 0; i < n; i++) {
        const struct fit_param *p = &v->params.at[i];
        const char *state = fitted[i].undetermined ? "the rows do not determine it: not fitted"
                            : fitted[i].at_bound < 0 ? "at its lower bound" : fitted[i].at_bound ? "at its upper bound" : "";
        to->value[i] = (struct value_row){ p->name, fitted[i], p->median, p->low, p->high, state };
        to->n_bound += fitted[i].at_bound != 0;
        to->n_undetermined += fitted[i].undetermined;
        value[i] = fitted[i].value;
    }
    score(to, v, "calibrated", value, v->train);
    for (int i = 0; i < v->data.n_row; i++) any_held |= v->held[i];
    if (any_held) score(to, v, "held out", value, v->held);
    if (to->n_bound) {
        double unbounded[FIT_PARAMS];
        fit_run(free, &v->data, v->train, 0, 0);
        for (int i = 0; i < n; i++) unbounded[i] = free[i].value;
        score(to, v, "calibrated without bounds, not used", unbounded, v->train);
    }
}

static json_t *errors_json(const struct error_row *row, int n)
{
    json_t *all = json_object();
    for (int i = 0; i < n; i++)
        json_object_set_new(all, row[i].name, report_keys(json_object(), error_cols, LEN(error_cols), &row[i]));
    return all;
}

#define MAIN_LIST(cols, rows, n) (&(struct report_list){ cols, LEN(cols), rows, sizeof *(rows), n })

static enum err main_fit(struct main_view *v, int json, struct diag *d)
{
    struct fit_answer *f = arena_alloc(v->data.a, sizeof *f);
    double value[FIT_PARAMS];
    int written = 0;
    fit_answer(f, value, v);
    if (*v->flags->out) TRY(fit_write_all(&written, v->data.a, &v->params, value, v->flags->out, d));
    const struct report_list *values = MAIN_LIST(value_cols, f->value, v->params.n);
    if (json) {
        json_t *doc = report_keys(json_object(), error_cols, LEN(error_cols), &f->error[AFTER]);
        json_object_set_new(doc, "errors", errors_json(f->error, f->n_error));
        json_object_set_new(doc, "parameters", report_rows(values));
        report_document(doc);
        return OK;
    }
    report_table("Parameters: 80 % ranges; change of the step for a change of the parameter, both relative", values, -1);
    report_table("Errors of steps per second", MAIN_LIST(error_cols, f->error, f->n_error), AFTER);
    printf("%d parameters, %d at a bound, %d not determined by these rows.\n", v->params.n, f->n_bound,
           f->n_undetermined);
    if (*v->flags->out) printf("%d files written into %s.\n", written, v->flags->out);
    return OK;
}

/* ---- cv ---- */

static void show_fold(const struct fit_fold *f)
{
    fprintf(stderr, "seed %d, half %d: median %.1f %%, mean %.1f %%, P90 %.1f %% of %d rows\n", f->seed, f->half + 1,
            100 * f->error.median, 100 * f->error.mean, 100 * f->error.p90, f->error.n);
}

/* Residuals of rows, and ranges for predictions, which also ask how it goes with models and systems nobody has seen. */
static enum err write_ranges(struct main_view *v, const struct fit_cv *pair, struct diag *d)
{
    enum { SEEDS = 3 };
    const double *by[2];
    for (int i = 0; i < 2; i++) {
        struct fit_cv *cv = arena_alloc(v->data.a, sizeof *cv);
        fit_cv_all(cv, &v->data, i ? FIT_GROUP_SYSTEM : FIT_GROUP_MODEL, SEEDS, isatty(2) ? show_fold : NULL);
        by[i] = fit_range_residuals(cv, &v->data, SEEDS);
    }
    return fit_range_write(&v->data, fit_range_residuals(pair, &v->data, FIT_SEEDS), by[0], by[1], v->flags->out, d);
}

static enum err main_cv(struct main_view *v, int json, struct diag *d)
{
    struct fit_cv *cv = arena_alloc(v->data.a, sizeof *cv);
    fit_cv_all(cv, &v->data, FIT_GROUP_PAIR, FIT_SEEDS, isatty(2) ? show_fold : NULL);
    if (*v->flags->out) TRY(write_ranges(v, cv, d));
    struct error_row row[2 * FIT_SEEDS + 1];
    for (int i = 0; i < cv->n_fold; i++)
        row[i] = (struct error_row){ cv->fold[i].error, arena_printf(v->data.a, "seed %d, half %d", cv->fold[i].seed,
                                                                     cv->fold[i].half + 1) };
    row[cv->n_fold] = (struct error_row){ cv->mean, "mean of the halves" };
    if (json) {
        json_t *doc = report_keys(json_object(), error_cols, LEN(error_cols), &row[cv->n_fold]);
        json_object_set_new(doc, "halves", errors_json(row, cv->n_fold));
        report_document(doc);
        return OK;
    }
    report_table("Errors of halves that their fit has not seen", MAIN_LIST(error_cols, row, cv->n_fold + 1), cv->n_fold);
    return OK;
}

/* ---- main ---- */

static const struct args_spec specs[] = {
    { .verb = "fit", .program = "moefold-fit", .words = "RUNS.csv ...", .flag = fit_flags, .n_flag = LEN(fit_flags),
      .min_words = 1, .max_words = ARGS_WORDS, .what = "calibrates figures of systems and stacks on measured runs" },
    { .verb = "cv", .program = "moefold-fit", .words = "RUNS.csv ...", .flag = cv_flags, .n_flag = LEN(cv_flags),
      .min_words = 1, .max_words = ARGS_WORDS, .what = "the same on halves of the runs, scored on the other halves" },
};

static enum err main_run(const struct args_spec *spec, int argc, char **argv, struct diag *d)
{
    struct arena a = { 0 };
    struct main_flags f = { .threads = 0 };
    struct args args;
    enum err e = args_parse(&args, &f, spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(spec, &args);
    else if (e == OK) {
        struct main_view *v = arena_alloc(&a, sizeof *v);
        v->flags = &f;
        e = main_read(v, &a, &args, d);
        if (e == OK) e = spec == &specs[0] ? main_fit(v, args.json, d) : main_cv(v, args.json, d);
    }
    arena_free(&a);
    return e;
}

int main(int argc, char **argv)
{
    struct diag d = { "" };
    enum err e = fail(&d, ERR_CONFIG, "usage: moefold-fit fit|cv RUNS.csv ... [--json] [--help]");
    for (int i = 0; argc > 1 && i < LEN(specs); i++) {
        if (strcmp(argv[1], specs[i].verb)) continue;
        d.text[0] = '\0';
        e = main_run(&specs[i], argc - 2, argv + 2, &d);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) e = fail(&d, ERR_IO, "stdout: the answer could not be written");
    if (d.text[0]) fprintf(stderr, "moefold-fit: %s\n", d.text);
    return e == OK ? 0 : e == ERR_NO ? 1 : 2;
}
