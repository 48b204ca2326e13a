/* moefold compare: what was predicted beside what was measured, of a directory that `run` wrote. Three columns:
 * predicted, predicted at the load that the run really routed, measured: the first gap is the load's, the second
 * the model's. */
#include "tools/answer.h"
#include "tools/args.h"
#include "tools/beside.h"
#include "tools/verb.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct compare { struct beside b; struct join join; };

struct head_row { const char *what; double predicted, at_load, measured, ratio; };
static const struct report_col step_cols[] = {
    { NULL, "", REPORT_TEXT, offsetof(struct head_row, what) },
    { "predicted_s", "predicted", REPORT_S, offsetof(struct head_row, predicted) },
    { "predicted_at_load_s", "at the measured load", REPORT_S, offsetof(struct head_row, at_load) },
    { "measured_s", "measured", REPORT_S, offsetof(struct head_row, measured) },
    { NULL, "measured / at load", REPORT_RATIO, offsetof(struct head_row, ratio) },
};
static const struct report_col rate_cols[] = {
    { NULL, "", REPORT_TEXT, offsetof(struct head_row, what) },
    { "predicted", "predicted", REPORT_NUMBER, offsetof(struct head_row, predicted) },
    { "predicted_at_load", "at the measured load", REPORT_NUMBER, offsetof(struct head_row, at_load) },
    { "measured", "measured", REPORT_NUMBER, offsetof(struct head_row, measured) },
    { NULL, "measured / at load", REPORT_RATIO, offsetof(struct head_row, ratio) },
};
struct line_row { const char *line; double s[JOIN_SIDES]; };
static const struct report_col line_cols[] = {
    { "line", "line", REPORT_TEXT, offsetof(struct line_row, line) },
    { "predicted_s", "predicted", REPORT_S, offsetof(struct line_row, s[JOIN_EVEN]) },
    { "predicted_at_load_s", "at the measured load", REPORT_S, offsetof(struct line_row, s[JOIN_LOAD]) },
    { "measured_s", "measured", REPORT_S, offsetof(struct line_row, s[JOIN_MEASURED]) },
};
struct memory_row { const char *what; int64_t predicted, measured; const char *same; };
static const struct report_col memory_cols[] = {
    { NULL, "bytes on the fullest rank", REPORT_TEXT, offsetof(struct memory_row, what) },
    { NULL, "predicted", REPORT_LONG, offsetof(struct memory_row, predicted) },
    { NULL, "measured", REPORT_LONG, offsetof(struct memory_row, measured) },
    { NULL, " ", REPORT_TEXT, offsetof(struct memory_row, same) },
};
struct kind_row { const char *kind, *family; struct join_kind k; double ratio; };
static const struct report_col kind_cols[] = {
    { "kind", "op", REPORT_TEXT, offsetof(struct kind_row, kind) },
    { "family", "family", REPORT_TEXT, offsetof(struct kind_row, family) },
    { "count", "count", REPORT_LONG, offsetof(struct kind_row, k.count) },
    { "predicted_s", "predicted", REPORT_S, offsetof(struct kind_row, k.work_s[JOIN_EVEN]) },
    { "predicted_at_load_s", "at load", REPORT_S, offsetof(struct kind_row, k.work_s[JOIN_LOAD]) },
    { "measured_s", "measured", REPORT_S, offsetof(struct kind_row, k.work_s[JOIN_MEASURED]) },
    { "ratio", "measured / at load", REPORT_RATIO, offsetof(struct kind_row, ratio) },
    { "predicted_wait_s", "waits, at load", REPORT_S, offsetof(struct kind_row, k.wait_s[JOIN_LOAD]) },
    { "measured_wait_s", "waits, measured", REPORT_S, offsetof(struct kind_row, k.wait_s[JOIN_MEASURED]) },
};

/* The answer: rows of every table. */
struct shown {
    struct head_row step, tflops;
    struct memory_row memory[2];
    struct line_row line[ANSWER_LINES];
    struct kind_row kind[OP_KIND_COUNT]; int n_kind;
};

static void join(struct compare *c, struct arena *a)
{
    const struct trace *side[JOIN_SIDES];
    for (int i = 0; i < JOIN_SIDES; i++) side[i] = &c->b.side[i];
    join_traces(&c->join, a, side, &c->b.pr, &c->b.job, c->b.u);
}

/* ---- rows ---- */

static struct head_row row_of(const char *what, double predicted, double at_load, double measured)
{
    return (struct head_row){ what, predicted, at_load, measured, measured / at_load };
}

static struct head_row step_row(const struct compare *c)
{
    return row_of("step", join_length_s(&c->b.side[JOIN_EVEN]), join_length_s(&c->b.side[JOIN_LOAD]),
                  join_length_s(&c->b.side[JOIN_MEASURED]));
}

static struct head_row tflops_row(const struct compare *c, const struct head_row *s)
{
    const struct plan *p = &c->b.job.plan;
    const double tera = 1e-12 * p->gbs * p->seq * model_flop_per_token(&c->b.job.model, plan_context(p), p->vocab_padded) /
                        p->gpus;
    return row_of("TFLOPS/rank", tera / s->predicted, tera / s->at_load, tera / s->measured);
}

static void memory_rows(struct memory_row row[2], const struct compare *c)
{
    row[0] = (struct memory_row){ .what = "alive" };
    row[1] = (struct memory_row){ .what = "arena" };
    for (int s = 0; s < c->b.pr.n_stage; s++) {
        if (c->b.u[s].live_B > row[0].predicted) row[0].predicted = c->b.u[s].live_B;
        if (c->b.u[s].arena_B > row[1].predicted) row[1].predicted = c->b.u[s].arena_B;
    }
    row[0].measured = json_integer_value(json_object_get(c->b.run, "live_peak_B"));
    row[1].measured = json_integer_value(json_object_get(c->b.run, "touched_B"));
    for (int i = 0; i < 2; i++) row[i].same = row[i].predicted == row[i].measured ? "to the byte" : "DIFFERENT";
}

static int by_measured(const void *a, const void *b)
{
    const struct kind_row *x = a, *y = b;
    const double s = x->k.work_s[JOIN_MEASURED], t = y->k.work_s[JOIN_MEASURED];
    return s != t ? (s > t ? -1 : 1) : strcmp(x->kind, y->kind);
}

static int kind_rows(struct kind_row row[OP_KIND_COUNT], const struct join *join)
{
    int n = 0;
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        const struct join_kind *x = &join->kind[k];
        if (x->count == 0) continue;
        row[n++] = (struct kind_row){ op_name((enum op_kind)k), op_family_name(op_family((enum op_kind)k)), *x,
                                      x->work_s[JOIN_MEASURED] / x->work_s[JOIN_LOAD] };
    }
    qsort(row, (size_t)n, sizeof *row, by_measured);
    return n;
}

/* Where the step of the rank that finishes last went, on every side, by the same function. */
static void line_rows(struct line_row row[ANSWER_LINES], const struct compare *c)
{
    for (int s = 0; s < JOIN_SIDES; s++) {
        double line_s[ANSWER_LINES];
        struct sim_lines l;
        sim_account(&l, &c->b.cost, c->b.u, &c->b.side[s], fold_coord(&c->b.job.plan, join_last_rank(&c->b.side[s])).pp);
        answer_lines(line_s, &l);
        for (int i = 0; i < ANSWER_LINES; i++) row[i].s[s] = line_s[i];
    }
    for (int i = 0; i < ANSWER_LINES; i++) row[i].line = answer_line_name((enum answer_line)i);
}

static void fill(struct shown *x, const struct compare *c)
{
    x->step = step_row(c);
    x->tflops = tflops_row(c, &x->step);
    memory_rows(x->memory, c);
    line_rows(x->line, c);
    x->n_kind = kind_rows(x->kind, &c->join);
}

/* ---- showing ---- */

#define ROWS(cols, rows, n) (&(struct report_list){ cols, LEN(cols), rows, sizeof *(rows), n })

static json_t *document(const struct compare *c, const struct shown *x)
{
    const struct memory_row *m = x->memory;
    json_t *doc = json_object();
    json_object_set_new(doc, "step", report_keys(json_object(), step_cols, LEN(step_cols), &x->step));
    json_object_set_new(doc, "tflops", report_keys(json_object(), rate_cols, LEN(rate_cols), &x->tflops));
    json_object_set_new(doc, "memory",
                        json_pack("{s:I,s:I,s:I,s:I}", "predicted_live_B", (json_int_t)m[0].predicted,
                                  "measured_live_B", (json_int_t)m[0].measured, "predicted_arena_B",
                                  (json_int_t)m[1].predicted, "arena_B", (json_int_t)m[1].measured));
    json_object_set_new(doc, "spans",
                        json_pack("{s:I,s:I,s:I}", "predicted", (json_int_t)c->join.spans[JOIN_EVEN], "measured",
                                  (json_int_t)c->join.spans[JOIN_MEASURED], "joined", (json_int_t)c->join.joined));
    json_object_set_new(doc, "iteration", json_integer(c->b.iter));
    json_object_set_new(doc, "lines", report_rows(ROWS(line_cols, x->line, ANSWER_LINES)));
    json_object_set_new(doc, "ops", report_rows(ROWS(kind_cols, x->kind, x->n_kind)));
    json_object_set_new(doc, "unaccounted_s", report_real(x->line[ANSWER_UNACCOUNTED].s[JOIN_MEASURED]));
    return doc;
}

/* Ranks that take turns on a core measure each other too. */
static void show_crowding(const struct compare *c)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (strcmp(c->b.job.system.name, "host") == 0 && c->b.job.plan.gpus > cores)
        printf("  %d ranks shared this machine's %ld cores: measured times hold each other's work, predicted ones "
               "do not\n",
               c->b.job.plan.gpus, cores);
}

static void show(struct arena *a, const struct compare *c, const struct shown *x)
{
    report_heading("%s on %d ranks of %s: step %d of %d (the median%s)", c->b.job.model.name, c->b.job.plan.gpus,
                   c->b.job.system.name, c->b.iter, c->b.n_iter, c->b.n_iter > 1 ? ", the first left out" : "");
    printf("  %s\n", answer_plan_line(a, &c->b.job.plan));
    report_table("Time", ROWS(step_cols, &x->step, 1), -1);
    report_table("Rate", ROWS(rate_cols, &x->tflops, 1), -1);
    report_table("Memory", ROWS(memory_cols, x->memory, 2), -1);
    report_table("Where the step of the rank that finishes last went", ROWS(line_cols, x->line, ANSWER_LINES),
                 ANSWER_STEP);
    report_table("By kind of op, all ranks, one step; waiting for peers apart", ROWS(kind_cols, x->kind, x->n_kind),
                 -1);
    printf("\n  %lld of %lld predicted spans join one of %lld measured\n", (long long)c->join.joined,
           (long long)c->join.spans[JOIN_EVEN], (long long)c->join.spans[JOIN_MEASURED]);
    show_crowding(c);
}

static enum err check_join(const struct compare *c, struct diag *d)
{
    const struct span *s = &c->join.lost;
    if (!c->join.is_lost) return OK;
    return fail(d, ERR_NO,
                "%lld predicted and %lld measured spans, of which %lld join; the first that does not: rank %d, "
                "step %d, op %d (%s)",
                (long long)c->join.spans[JOIN_EVEN], (long long)c->join.spans[JOIN_MEASURED],
                (long long)c->join.joined, s->rank, s->step, s->op, op_name((enum op_kind)c->b.pr.op[s->op].kind));
}

static enum err answer(struct compare *c, struct arena *a, const struct args *args, const char *system,
                       struct diag *d)
{
    struct shown *x = arena_alloc(a, sizeof *x);
    TRY(beside_read(&c->b, a, args->word[0], system, d));
    join(c, a);
    TRY(check_join(c, d));
    fill(x, c);
    if (args->json) report_document(document(c, x));
    else show(a, c, x);
    return OK;
}

enum err verb_compare(int argc, char **argv, struct diag *d)
{
    static const struct opt flags[] = { { .key = "system", .type = OPT_TEXT, .size = 192, .def = "",
                                          .help = "predict for this one, such as what calibrate wrote; "
                                                  "default: the plan's" } };
    static const struct args_spec spec = { .verb = "compare", .words = "DIR", .min_words = 1, .max_words = 1,
                                           .flag = flags, .n_flag = LEN(flags), .what = "predicted beside measured, of a directory that run wrote" };
    char system[192];
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, system, &spec, &a, argc, argv, d);
    struct compare *c = arena_alloc(&a, sizeof *c);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = answer(c, &a, &args, system, d);
    json_decref(c->b.run);
    arena_free(&a);
    return e;
}
