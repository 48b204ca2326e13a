/* moefold validate: predicts runs that others measured and published, and says how far off it is: by source, system,
 * precision and kind of model, by which part of the step is large, and whether A/B changes have the right sign.
 * Nothing is fitted here; what had to be inferred or approximated is counted and listed with each row. */
#include "tools/args.h"
#include "tools/report.h"
#include "tools/validate.h"
#include "tools/verb.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct validate_flags { char rules[256], by[64]; int32_t worst; };
static const struct opt flags[] = {
    { .key = "rules", ARGS_TEXT(struct validate_flags, rules, "sources"),
      .help = "how columns, blanks and sources are read: a file, or the built-in rules" },
    { .key = "by", ARGS_TEXT(struct validate_flags, by, ""),
      .help = "errors also by the values of this column of the table" },
    { .key = "worst", ARGS_INT(struct validate_flags, worst, 0, 100000, "15"),
      .help = "how many of the worst rows are shown" },
};

struct view {
    struct validate_rules rules;
    struct validate_cv seen;
    struct csv csv;
    struct validate_row *row; int n_row;
    struct validate_row *worst;             /* predicted rows that count, largest error first                       */
    int n_worst, n_predicted, n_unfit;      /* unfit: they ran, and are said not to fit                             */
    struct validate_error error, memory, cv;    /* cv: of rows in a half that no fit had seen                       */
    double coverage;                        /* of the rows that count, the share inside its range                   */
    struct validate_pair *pair; int n_pair; /* with steps of a log, which no column names                           */
    const struct validate_flags *flags;
};

/* ---- one row ---- */

static enum err row_predict(struct validate_row *row, struct arena *scratch, const struct job *j,
                            const struct validate_source *s, const struct validate_cv *seen, struct diag *d)
{
    struct predict r;
    predict_job(&r, NULL, scratch, j);
    row->predicted = validate_count_predicted(row->unit, s, j, &r);
    row->error = fabs(row->predicted / row->measured - 1);
    row->fast = (row->unit == VALIDATE_STEP ? row->measured / row->predicted : row->predicted / row->measured) - 1;
    row->rate = r.tokens_per_s_gpu;
    row->measured_rate = row->rate / (1 + row->fast);
    row->predicted_mem_B = validate_count_memory(s, &r);
    row->mem_error = fabs(row->predicted_mem_B / row->measured_mem_B - 1);
    row->fits = r.feasible;
    row->share = validate_count_share(&r.lines);
    return validate_range_row(row, seen, j, &r, d);
}

/* Everything of one row that does not outlive it is in `scratch`. */
static enum err row_answer(struct validate_row *row, struct arena *a, const struct view *v, struct validate_record *of,
                           struct diag *d)
{
    enum err e = OK;
    struct arena scratch = { 0 };
    struct job *j = arena_alloc(&scratch, sizeof *j);
    const struct validate_source s = validate_rules_source(&v->rules, row->source);
    struct diag why = { "" };
    if (validate_map_job(j, row, &scratch, &v->rules, of, &why) != OK) row->skipped = arena_strdup(a, why.text);
    else if (row->unit == VALIDATE_NOTHING && !isfinite(row->measured_mem_B)) row->skipped = "nothing was measured";
    else e = row_predict(row, &scratch, j, &s, &v->seen, d);
    row->mapping = *row->approximated ? "approximated" : "whole";
    row->inferred = arena_strdup(a, row->inferred);
    row->approximated = arena_strdup(a, row->approximated);
    arena_free(&scratch);
    return e;
}

/* ---- all rows ---- */

static int by_error(const void *a, const void *b)
{
    const struct validate_row *x = a, *y = b;
    return x->error != y->error ? (x->error < y->error) - (x->error > y->error) : strcmp(x->id, y->id);
}

static void collect_errors(struct view *v, struct arena *a)
{
    double *error = arena_alloc(a, (size_t)(v->n_row + 1) * sizeof *error);
    int n = 0;
    v->worst = arena_alloc(a, (size_t)(v->n_row + 1) * sizeof *v->worst);
    for (int i = 0; i < v->n_row; i++) {
        const struct validate_row *r = &v->row[i];
        v->n_predicted += !r->skipped;
        v->n_unfit += r->scored && !r->skipped && !r->fits;
        if (r->scored && isfinite(r->error)) v->worst[v->n_worst++] = *r;
        if (r->scored && isfinite(r->mem_error)) error[n++] = r->mem_error;
    }
    v->memory = validate_error_of(error, n);
    qsort(v->worst, (size_t)v->n_worst, sizeof *v->worst, by_error);
    for (int i = 0; i < v->n_worst; i++) error[i] = v->worst[i].error;
    v->error = validate_error_of(error, v->n_worst);
    n = 0;
    for (int i = 0; i < v->n_worst; i++) {
        v->coverage += v->worst[i].covered ? 1.0 / v->n_worst : 0;
        if (isfinite(v->worst[i].cv_error)) error[n++] = v->worst[i].cv_error;
    }
    v->cv = validate_error_of(error, n);
}

static enum err collect(struct view *v, struct arena *a, const char *path, struct diag *d)
{
    TRY(validate_rules_read(&v->rules, a, v->flags->rules, d));
    TRY(validate_range_read(&v->seen, a, d));
    TRY(csv_read_file(&v->csv, a, path, d));
    TRY(validate_row_ids(&v->csv, d));
    v->n_row = v->csv.n_row;
    v->row = arena_alloc(a, (size_t)(v->n_row + 1) * sizeof *v->row);
    if (*v->flags->by && csv_column(&v->csv, v->flags->by) < 0)
        return fail(d, ERR_CONFIG, "--by: %s has no column '%s'", path, cfg_shown(v->flags->by).text);
    for (int i = 0; i < v->n_row; i++)
        TRY(validate_row_read(&v->row[i], &(struct validate_record){ &v->csv, i, 0 }, v->flags->by, d));
    for (int i = 0; i < v->n_row; i++)
        TRY(row_answer(&v->row[i], a, v, &(struct validate_record){ &v->csv, i, 0 }, d));
    collect_errors(v, a);
    v->n_pair = validate_pair_all(&v->pair, a, &v->csv, &v->rules, v->row, v->n_row);
    return OK;
}

/* ---- columns ---- */

static const struct report_col error_cols[] = {
    { "rows", "rows", REPORT_INT, offsetof(struct validate_error, n) },
    { "median", "median", REPORT_SHARE, offsetof(struct validate_error, median) },
    { "mean", "mean", REPORT_SHARE, offsetof(struct validate_error, mean) },
    { "p90", "P90", REPORT_SHARE, offsetof(struct validate_error, p90) },
    { "max", "max", REPORT_SHARE, offsetof(struct validate_error, max) },
};
struct final_row { struct validate_error e; const char *name; };
static const struct report_col final_cols[] = {
    { NULL, "", REPORT_TEXT, offsetof(struct final_row, name) },
    { NULL, "rows", REPORT_INT, offsetof(struct final_row, e.n) },
    { NULL, "median", REPORT_SHARE, offsetof(struct final_row, e.median) },
    { NULL, "mean", REPORT_SHARE, offsetof(struct final_row, e.mean) },
    { NULL, "P90", REPORT_SHARE, offsetof(struct final_row, e.p90) },
    { NULL, "max", REPORT_SHARE, offsetof(struct final_row, e.max) },
};
static const struct report_col group_cols[] = {
    { NULL, "", REPORT_TEXT, offsetof(struct validate_group, name) },
    { "rows", "rows", REPORT_INT, offsetof(struct validate_group, error.n) },
    { "median", "median", REPORT_SHARE, offsetof(struct validate_group, error.median) },
    { "mean", "mean", REPORT_SHARE, offsetof(struct validate_group, error.mean) },
    { "p90", "P90", REPORT_SHARE, offsetof(struct validate_group, error.p90) },
    { "max", "max", REPORT_SHARE, offsetof(struct validate_group, error.max) },
    { "cv_median", "unseen: median", REPORT_SHARE, offsetof(struct validate_group, cv.median) },
    { "cv_mean", "mean", REPORT_SHARE, offsetof(struct validate_group, cv.mean) },
    { "cv_p90", "P90", REPORT_SHARE, offsetof(struct validate_group, cv.p90) },
    { "too_fast", "too fast", REPORT_SHARE, offsetof(struct validate_group, fast) },
    { "gemm", "gemm", REPORT_SHARE, offsetof(struct validate_group, share.gemm) },
    { "attention", "attention", REPORT_SHARE, offsetof(struct validate_group, share.attention) },
    { "memory_bound", "memory", REPORT_SHARE, offsetof(struct validate_group, share.memory) },
    { "communication", "comm", REPORT_SHARE, offsetof(struct validate_group, share.comm) },
    { "host", "host", REPORT_SHARE, offsetof(struct validate_group, share.host) },
    { "bubble", "bubble", REPORT_SHARE, offsetof(struct validate_group, share.bubble) },
    { "optimizer", "optim", REPORT_SHARE, offsetof(struct validate_group, share.optimizer) },
};
static const struct report_col row_cols[] = {
    { "id", "row", REPORT_TEXT, offsetof(struct validate_row, id) },
    { "measured", "measured", REPORT_NUMBER, offsetof(struct validate_row, measured) },
    { "predicted", "predicted", REPORT_NUMBER, offsetof(struct validate_row, predicted) },
    { "error", "error", REPORT_SHARE, offsetof(struct validate_row, error) },
    { "too_fast", "too fast", REPORT_SHARE, offsetof(struct validate_row, fast) },
    { "low", "80 % from", REPORT_NUMBER, offsetof(struct validate_row, low) },
    { "high", "to", REPORT_NUMBER, offsetof(struct validate_row, high) },
    { "cv_error", NULL, REPORT_NUMBER, offsetof(struct validate_row, cv_error) },
    { "fits", "fits", REPORT_BOOL, offsetof(struct validate_row, fits) },
    { "measured_mem_gib", NULL, REPORT_GIB, offsetof(struct validate_row, measured_mem_B) },
    { "predicted_mem_gib", NULL, REPORT_GIB, offsetof(struct validate_row, predicted_mem_B) },
    { "use", NULL, REPORT_TEXT, offsetof(struct validate_row, use) },
    { "inferred", NULL, REPORT_TEXT, offsetof(struct validate_row, inferred) },
    { "approximated", NULL, REPORT_TEXT, offsetof(struct validate_row, approximated) },
    { NULL, "approximated", REPORT_TEXT, offsetof(struct validate_row, approximated) },
};
static const struct report_col skip_cols[] = {
    { "id", "not predicted", REPORT_TEXT, offsetof(struct validate_row, id) },
    { "reason", "because", REPORT_TEXT, offsetof(struct validate_row, skipped) },
};
static const struct report_col memory_cols[] = {
    { NULL, "row", REPORT_TEXT, offsetof(struct validate_row, id) },
    { NULL, "measured", REPORT_GIB, offsetof(struct validate_row, measured_mem_B) },
    { NULL, "predicted", REPORT_GIB, offsetof(struct validate_row, predicted_mem_B) },
    { NULL, "error", REPORT_SHARE, offsetof(struct validate_row, mem_error) },
};
static const struct report_col note_cols[] = {
    { "rows", "rows", REPORT_INT, offsetof(struct validate_note, rows) },
    { "what", "setting", REPORT_TEXT, offsetof(struct validate_note, text) },
};
/* Of the pairs of one column; or of all. */
struct ab_row { const char *column; int32_t pairs, changed, right, within_1_5; double size; };
static const struct report_col ab_cols[] = {
    { NULL, "column", REPORT_TEXT, offsetof(struct ab_row, column) },
    { "pairs", "pairs", REPORT_INT, offsetof(struct ab_row, pairs) },
    { "changed", "above 5 %", REPORT_INT, offsetof(struct ab_row, changed) },
    { "right", "sign right", REPORT_INT, offsetof(struct ab_row, right) },
    { "within_1_5", "size within 1.5", REPORT_INT, offsetof(struct ab_row, within_1_5) },
    { "size", "predicted size / measured", REPORT_RATIO, offsetof(struct ab_row, size) },
};
struct wrong_row { const char *a, *b, *column; double measured, predicted; };
static const struct report_col wrong_cols[] = {
    { "a", "from", REPORT_TEXT, offsetof(struct wrong_row, a) },
    { "b", "to", REPORT_TEXT, offsetof(struct wrong_row, b) },
    { "column", "by", REPORT_TEXT, offsetof(struct wrong_row, column) },
    { "measured", "measured", REPORT_SHARE, offsetof(struct wrong_row, measured) },
    { "predicted", "predicted", REPORT_SHARE, offsetof(struct wrong_row, predicted) },
};
static const struct { const char *key, *title; size_t at; } groupings[] = {
    { "by_source", "By source", offsetof(struct validate_row, source) },
    { "by_system", "By system", offsetof(struct validate_row, system) },
    { "by_precision", "By precision", offsetof(struct validate_row, precision) },
    { "by_kind", "MoE and dense", offsetof(struct validate_row, kind) },
    { "by_model", "By model", offsetof(struct validate_row, model) },
    { "by_mapping", "Rows that plans express as a whole, and others", offsetof(struct validate_row, mapping) },
    { "by", "By the column asked for", offsetof(struct validate_row, by) },
};
#define LIST(cols, rows, n) (&(struct report_list){ cols, LEN(cols), rows, sizeof *(rows), n })

/* The last one only when it was asked for. */
static int n_groupings(const struct view *v)
{
    return LEN(groupings) - !*v->flags->by;
}

/* ---- pairs ---- */

static void ab_add(struct ab_row *to, const struct validate_pair *p)
{
    to->pairs++;
    to->changed += p->changed;
    to->right += p->changed && p->right;
    to->within_1_5 += p->changed && p->close;
}

/* Of changes above 5 %, the median of predicted over measured size, as logarithms; `column` "all": of every pair. */
static double ab_size(struct arena *a, const struct view *v, const char *column)
{
    double *size = arena_alloc(a, (size_t)(v->n_pair + 1) * sizeof *size);
    int n = 0;
    for (int i = 0; i < v->n_pair; i++) {
        const struct validate_pair *p = &v->pair[i];
        if (!p->column || !p->changed || (strcmp(column, "all") && strcmp(column, p->column))) continue;
        size[n++] = log(1 + p->predicted) / log(1 + p->measured);
    }
    return validate_error_median(size, n);
}

/* A line for each column and, last, one for all; steps of a log are not among them. */
static int ab_rows(struct ab_row **row, struct arena *a, const struct view *v)
{
    int n = 0;
    struct ab_row all = { .column = "all" };
    *row = arena_alloc(a, (size_t)(v->n_pair + 1) * sizeof **row);
    for (int i = 0; i < v->n_pair; i++) {
        int at = 0;
        if (!v->pair[i].column) continue;
        while (at < n && strcmp((*row)[at].column, v->pair[i].column)) at++;
        if (at == n) (*row)[n++] = (struct ab_row){ .column = v->pair[i].column };
        ab_add(&(*row)[at], &v->pair[i]);
        ab_add(&all, &v->pair[i]);
    }
    (*row)[n++] = all;
    for (int i = 0; i < n; i++) (*row)[i].size = ab_size(a, v, (*row)[i].column);
    return n;
}

/* Pairs as rows: those of a log (`steps`), or those of a changed column with the wrong sign. */
static int pair_rows(struct wrong_row **row, struct arena *a, const struct view *v, int steps)
{
    int n = 0;
    *row = arena_alloc(a, (size_t)(v->n_pair + 1) * sizeof **row);
    for (int i = 0; i < v->n_pair; i++) {
        const struct validate_pair *p = &v->pair[i];
        if (steps ? p->column != NULL : !p->column || !p->changed || p->right) continue;
        (*row)[n++] = (struct wrong_row){ v->row[p->a].id, v->row[p->b].id, p->column, p->measured, p->predicted };
    }
    return n;
}

/* ---- the document ---- */

static json_t *groups_json(struct arena *a, const struct view *v, size_t text_at)
{
    struct validate_group *group;
    const int n = validate_group_by(&group, a, v->row, v->n_row, text_at);
    json_t *o = json_object();
    for (int i = 0; i < n; i++)
        json_object_set_new(o, group[i].name, report_keys(json_object(), group_cols, LEN(group_cols), &group[i]));
    return o;
}

static json_t *residual_json(struct arena *a, const struct view *v)
{
    struct validate_group *group;
    const int n = validate_group_quarters(&group, a, v->row, v->n_row);
    json_t *o = json_object();
    for (int i = 0; i < n; i++)
        json_object_set_new(o, group[i].name, report_keys(json_object(), group_cols, LEN(group_cols), &group[i]));
    return o;
}

static json_t *ab_json(struct arena *a, const struct view *v)
{
    struct ab_row *row;
    struct wrong_row *pair;
    const int n = ab_rows(&row, a, v);
    json_t *ab = report_keys(json_object(), ab_cols, LEN(ab_cols), &row[n - 1]), *by = json_object();
    for (int i = 0; i < n - 1; i++)
        json_object_set_new(by, row[i].column, report_keys(json_object(), ab_cols, LEN(ab_cols), &row[i]));
    json_object_set_new(ab, "by_column", by);
    int n_pair = pair_rows(&pair, a, v, 0);
    json_object_set_new(ab, "wrong", report_rows(LIST(wrong_cols, pair, n_pair)));
    n_pair = pair_rows(&pair, a, v, 1);
    json_object_set_new(ab, "not_scored", report_rows(LIST(wrong_cols, pair, n_pair)));
    return ab;
}

static json_t *runs_json(const struct view *v)
{
    json_t *runs = json_array();
    for (int i = 0; i < v->n_row; i++) {
        const struct validate_row *r = &v->row[i];
        if (r->skipped) continue;
        json_t *o = report_keys(json_object(), row_cols, LEN(row_cols), r);
        json_object_set_new(o, "unit", json_string(validate_count_unit(r->unit)));
        json_array_append_new(runs, o);
    }
    return runs;
}

/* The rows without a prediction, in the table's order. */
static int skipped_rows(struct validate_row **row, struct arena *a, const struct view *v)
{
    int n = 0;
    *row = arena_alloc(a, (size_t)(v->n_row + 1) * sizeof **row);
    for (int i = 0; i < v->n_row; i++)
        if (v->row[i].skipped) (*row)[n++] = v->row[i];
    return n;
}

static json_t *document(const struct view *v, struct arena *a)
{
    struct validate_row *skipped;
    const int n = skipped_rows(&skipped, a, v);
    json_t *doc = json_object();
    json_object_set_new(doc, "rows", json_integer(v->n_row));
    json_object_set_new(doc, "predicted", json_integer(v->n_predicted));
    json_object_set_new(doc, "unfit", json_integer(v->n_unfit));
    json_object_set_new(doc, "skipped", report_rows(LIST(skip_cols, skipped, n)));
    json_object_set_new(doc, "error", report_keys(json_object(), error_cols, LEN(error_cols), &v->error));
    json_object_set_new(doc, "cross_validated", report_keys(json_object(), error_cols, LEN(error_cols), &v->cv));
    json_object_set_new(doc, "memory_error", report_keys(json_object(), error_cols, LEN(error_cols), &v->memory));
    for (int i = 0; i < n_groupings(v); i++)
        json_object_set_new(doc, groupings[i].key, groups_json(a, v, groupings[i].at));
    json_object_set_new(doc, "residual", residual_json(a, v));
    json_object_set_new(doc, "ab", ab_json(a, v));
    json_object_set_new(doc, "coverage80", report_real(v->n_worst ? v->coverage : (double)NAN));
    json_object_set_new(doc, "runs", runs_json(v));
    return doc;
}

/* ---- the tables ---- */

static void show_notes(const char *heading, struct arena *a, const struct view *v, size_t text_at)
{
    enum { SHOWN = 20 };
    struct validate_note *note;
    const int n = validate_group_notes(&note, a, v->row, v->n_row, text_at);
    report_table(heading, LIST(note_cols, note, n < SHOWN ? n : SHOWN), -1);
    if (n > SHOWN) printf("and %d more settings in fewer rows: see --json\n", n - SHOWN);
}

static int with_memory(struct validate_row **row, struct arena *a, const struct view *v)
{
    int n = 0;
    *row = arena_alloc(a, (size_t)(v->n_row + 1) * sizeof **row);
    for (int i = 0; i < v->n_row; i++)
        if (isfinite(v->row[i].mem_error)) (*row)[n++] = v->row[i];
    return n;
}

static void show_memory(struct arena *a, const struct view *v)
{
    struct validate_row *row;
    const int n = with_memory(&row, a, v);
    report_table("Memory", LIST(memory_cols, row, n), -1);
}

static void show_pairs(struct arena *a, const struct view *v)
{
    struct ab_row *row;
    struct wrong_row *pair;
    const int n = ab_rows(&row, a, v);
    report_table("A/B: pairs of rows that differ in one column", LIST(ab_cols, row, n), n - 1);
    int n_pair = pair_rows(&pair, a, v, 0);
    report_table("Changes above 5 % with the wrong sign", LIST(wrong_cols, pair, n_pair), -1);
    n_pair = pair_rows(&pair, a, v, 1);
    report_table("Steps that no column names, not scored", LIST(wrong_cols, pair, n_pair), -1);
}

static void show(const struct view *v, struct arena *a)
{
    struct validate_group *group;
    struct validate_row *skipped;
    const struct final_row error[] = { { v->error, "as calibrated" }, { v->cv, "in halves that no fit had seen" },
                                       { v->memory, "memory" } };
    for (int i = 0; i < n_groupings(v); i++) {
        const int n = validate_group_by(&group, a, v->row, v->n_row, groupings[i].at);
        report_table(arena_printf(a, "%s: errors; too fast (+) or slow (-); where the predicted step goes",
                                  groupings[i].title), LIST(group_cols, group, n), -1);
    }
    int n = validate_group_quarters(&group, a, v->row, v->n_row);
    report_table("The quarter of the rows where this part of the step is largest", LIST(group_cols, group, n), -1);
    show_pairs(a, v);
    show_memory(a, v);
    show_notes("Approximated: what plans cannot express", a, v, offsetof(struct validate_row, approximated));
    show_notes("Inferred: what blanks stand for", a, v, offsetof(struct validate_row, inferred));
    n = skipped_rows(&skipped, a, v);
    report_table("Skipped", LIST(skip_cols, skipped, n), -1);
    n = v->n_worst < v->flags->worst ? v->n_worst : v->flags->worst;
    report_table("The worst rows", LIST(row_cols, v->worst, n), -1);
    report_heading("%d rows, %d predicted; errors of the rows with use score", v->n_row, v->n_predicted);
    report_table(NULL, LIST(final_cols, error, 3), -1);
    printf("%d of the rows with use score, which ran, are said not to fit.\n"
           "%.0f %% lie inside their 80 %% range, by the residual of an unseen half where there is one (%d rows).\n",
           v->n_unfit, 100 * v->coverage, v->cv.n);
}

enum err verb_validate(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = {
        .verb = "validate", .words = "RUNS.csv", .flag = flags, .n_flag = LEN(flags), .min_words = 1, .max_words = 1,
        .what = "predicts measured runs of others and says how far off it is",
    };
    struct validate_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) {
        struct view *v = arena_alloc(&a, sizeof *v);
        v->flags = &f;
        e = collect(v, &a, args.word[0], d);
        if (e == OK && args.json) report_document(document(v, &a));
        else if (e == OK) show(v, &a);
    }
    arena_free(&a);
    return e;
}
