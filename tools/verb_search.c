/* moefold search: the best plans of a model on a cluster, how sure that is, and why the others lost. The model's
 * error is larger than the gaps among the best, so every plan within 2 % of the first is marked as its equal. */
#include "sim/search.h"
#include "tools/answer.h"
#include "tools/args.h"
#include "tools/contention.h"
#include "tools/counsel.h"
#include "tools/objective.h"
#include "tools/save.h"
#include "tools/verb.h"
#include <math.h>
#include <string.h>

struct search_flags { int32_t top, objective, contention; char fix[8], out[256]; };
static const struct opt flags[] = {
    { .key = "top", ARGS_INT(struct search_flags, top, 1, 1000, "10"), .help = "plans to show" },
    { .key = "fix", ARGS_TEXT(struct search_flags, fix, ""),
      .help = "key=value, any number of times: not varied (as --key value)" },
    { .key = "objective", ARGS_NAME(struct search_flags, objective, objective_names, "throughput"),
      .help = "cost, gpus: the best plan at each divisor of gpus; the cheapest a token, the fewest GPUs" },
    { .key = "contention", ARGS_NAME(struct search_flags, contention, contention_names, "static"),
      .help = "dynamic: of the plans shown also the step by events, where what runs at once shares links" },
    { .key = "out", ARGS_TEXT(struct search_flags, out, ""),
      .help = "also -o: write the best plan to this file" },
};

struct hit_row { struct search_hit hit; double needs_B, shared_s; int32_t place; const char *same, *line; };
static const struct report_col hit_cols[] = {
    { NULL, "#", REPORT_INT, offsetof(struct hit_row, place) },
    { NULL, "", REPORT_TEXT, offsetof(struct hit_row, same) },
    { "step_s", "step", REPORT_S, offsetof(struct hit_row, hit.step_s) },
    { "tflops_gpu", "TFLOPS/GPU", REPORT_TENTHS, offsetof(struct hit_row, hit.tflops) },
    { "tokens_per_s_gpu", "tokens/s/GPU", REPORT_TENTHS, offsetof(struct hit_row, hit.tokens_per_s_gpu) },
    { "peak_gib", NULL, REPORT_GIB, offsetof(struct hit_row, hit.peak_B) },
    { NULL, "memory", REPORT_GIB, offsetof(struct hit_row, needs_B) },
    { NULL, "plan", REPORT_TEXT, offsetof(struct hit_row, line) },
    { "contention_step_s", "step, links shared", REPORT_S, offsetof(struct hit_row, shared_s) },     /* when asked for */
};
static int hit_n_col(const struct search_flags *f) { return LEN(hit_cols) - !f->contention; }

static const struct report_col space_cols[] = {
    { "grids", NULL, REPORT_LONG, offsetof(struct search_result, grids) },
    { "gbs_valid", NULL, REPORT_LONG, offsetof(struct search_result, gbs_valid) },
    { "with_mbs", NULL, REPORT_LONG, offsetof(struct search_result, with_mbs) },
    { "with_layout", NULL, REPORT_LONG, offsetof(struct search_result, with_layout) },
    { "plans", NULL, REPORT_LONG, offsetof(struct search_result, plans) },
};
static const struct report_col grid_cols[] = {
    { "valid", NULL, REPORT_LONG, offsetof(struct search_result, grids_valid) },
    { "opened", NULL, REPORT_LONG, offsetof(struct search_result, grids_opened) },
    { "bounded_out", NULL, REPORT_LONG, offsetof(struct search_result, grids_bounded_out) },
};
static const struct report_col count_cols[] = {
    { NULL, "pairs of foldings that suit the model", REPORT_LONG, offsetof(struct search_result, grids) },
    { NULL, "  with a plan that passes every rule", REPORT_LONG, offsetof(struct search_result, grids_valid) },
    { NULL, "  left unopened: a bound says slower", REPORT_LONG, offsetof(struct search_result, grids_bounded_out) },
    { NULL, "  opened", REPORT_LONG, offsetof(struct search_result, grids_opened) },
    { NULL, "pairs whose dp divides the batch", REPORT_LONG, offsetof(struct search_result, gbs_valid) },
    { NULL, "  x micro-batches", REPORT_LONG, offsetof(struct search_result, with_mbs) },
    { NULL, "  x chunks per stage", REPORT_LONG, offsetof(struct search_result, with_layout) },
    { NULL, "  x weaving, order, recompute: plans", REPORT_LONG, offsetof(struct search_result, plans) },
    { "priced", "  priced", REPORT_LONG, offsetof(struct search_result, priced) },
    { "simulated", "  simulated whole", REPORT_LONG, offsetof(struct search_result, simulated) },
    { "fits", "    that fit", REPORT_LONG, offsetof(struct search_result, fits) },
    { "proven", "proven best", REPORT_BOOL, offsetof(struct search_result, proven) },
    { "gap", "  gap to the best bound left", REPORT_SHARE, offsetof(struct search_result, gap) },
    { "total_s", "took", REPORT_S, offsetof(struct search_result, total_s) },
};
static const struct report_col reject_cols[] = {
    { "grids", "pairs", REPORT_LONG, offsetof(struct search_reject, grids) },
    { "reason", "refused because", REPORT_CHARS, offsetof(struct search_reject, reason) },
};

/* NAN: the step is too long to be played by events. */
static double shared_s(const struct job *j, const struct search_hit *hit)
{
    struct arena scratch = { 0 };
    struct job *other = arena_alloc(&scratch, sizeof *other);
    struct contention x;
    struct program pr;
    struct diag why;
    *other = *j;
    other->plan = hit->plan;
    program_build(&pr, &scratch, other);
    load_apply(&pr, other);
    const enum err e = contention_of(&x, &pr, other, hit->step_s, &why);
    arena_free(&scratch);
    return e == OK ? x.step_s : (double)NAN;
}

static struct hit_row *hit_rows(struct arena *a, const struct job *j, const struct search_result *r, const struct search_flags *f)
{
    struct hit_row *row = arena_alloc(a, (size_t)(r->n_hit + 1) * sizeof *row);
    for (int i = 0; i < r->n_hit; i++)
        row[i] = (struct hit_row){ .hit = r->hit[i],
                                   .needs_B = predict_device_B(j, r->hit[i].peak_B),
                                   .place = i + 1,
                                   .shared_s = f->contention && i < f->top ? shared_s(j, &r->hit[i]) : (double)NAN,
                                   .line = answer_plan_line(a, &r->hit[i].plan),
                                   .same = r->hit[i].step_s <= 1.02 * r->hit[0].step_s ? "=" : "" };
    return row;
}

static json_t *document(struct arena *a, const struct job *j, const struct search_result *r, const struct search_flags *f)
{
    struct hit_row *row = hit_rows(a, j, r, f);
    json_t *plans = report_rows(&(struct report_list){ hit_cols, hit_n_col(f), row, sizeof *row, r->n_hit });
    json_t *doc = json_object(), *rejected = json_object();
    for (int i = 0; i < r->n_hit; i++)
        json_object_set_new(json_array_get(plans, (size_t)i), "plan", answer_plan(a, &r->hit[i].plan));
    for (int i = 0; i < r->n_reject; i++)
        json_object_set_new(rejected, r->reject[i].reason, json_integer(r->reject[i].grids));
    json_object_set_new(doc, "plans", plans);
    json_object_set_new(doc, "space", report_keys(json_object(), space_cols, LEN(space_cols), r));
    json_object_set_new(doc, "grids", report_keys(json_object(), grid_cols, LEN(grid_cols), r));
    json_object_set_new(doc, "rejected", rejected);
    return report_keys(doc, count_cols, LEN(count_cols), r);
}

static void show(struct arena *a, const struct job *j, const struct search_result *r, const struct search_flags *f)
{
    const int shown = r->n_hit < f->top ? r->n_hit : f->top;
    struct hit_row *row = hit_rows(a, j, r, f);
    report_table(arena_printf(a,
                              "The best plans for %s on %d GPUs of %s, stack %s, seq %d, global batch %d  (=: "
                              "within 2 %% of the first)",
                              j->model.name, j->plan.gpus, j->system.name, j->stack.name, j->plan.seq, j->plan.gbs),
                 &(struct report_list){ hit_cols, hit_n_col(f), row, sizeof *row, shown }, 0);
    if (r->n_hit > shown)
        printf("  and %d more within 2 %% of the first: --top %d\n", r->n_hit - shown, r->n_hit);
    if (r->n_hit) printf("\n  layout of the first: %s\n", layout_text(a, &r->hit[0].plan.split));
    report_lines("How it was found", count_cols, LEN(count_cols), r);
    report_table("Pairs of foldings refused",
                 &(struct report_list){ reject_cols, LEN(reject_cols), r->reject, sizeof *r->reject, r->n_reject },
                 -1);
}

/* With the rows of the other numbers of GPUs, if there are any. */
static enum err tell(struct arena *a, const struct args *args, const struct search_flags *f, const struct job *j,
                     const struct search_ask *ask, const struct search_result *r, const struct objective_found *o,
                     struct diag *d)
{
    struct counsel_row counsel[COUNSEL_ROWS];
    const int n_counsel = r->grids ? counsel_batch(counsel, a, j, ask, r) : 0;
    const struct report_list advised = { counsel_cols, counsel_n_col, counsel, sizeof *counsel, n_counsel };
    const struct report_list rows = { objective_cols, objective_n_col, o->row, sizeof *o->row, o->n };
    if (args->json) {
        json_t *doc = document(a, j, r, f);
        json_object_set_new(doc, "objective", json_string(objective_names[f->objective]));
        json_object_set_new(doc, "by_gpus", report_rows(&rows));
        json_object_set_new(doc, "counsel", report_rows(&advised));
        report_document(doc);
    } else {
        report_table("The best plan at each number of GPUs", &rows, -1);
        show(a, j, r, f);
        report_table("The batch fits badly", &advised, -1);
    }
    if (!r->n_hit || !*f->out) return OK;
    const char *text = plan_text(a, &r->hit[0].plan);
    TRY(save_text(f->out, text, strlen(text), d));
    if (!args->json) printf("\n  the first plan is in %s: moefold predict %s\n", f->out, f->out);
    return OK;
}

static enum err answer(struct arena *a, const struct args *args, const struct search_flags *f, struct diag *d)
{
    struct job *j = arena_alloc(a, sizeof *j);
    struct search_result r = { 0 };
    struct search_ask ask = { .top = f->top };
    struct objective_found o = { 0 };
    TRY(plan_read_open(j, a, args->n_plan, (const char *const (*)[2])args->plan, d));
    for (int i = 0; i < args->n_plan; i++)
        ask.fixed[cfg_opt(plan_opts, plan_n_opt, args->plan[i][0]) - plan_opts] = 1;
    if (*f->out) TRY(save_try(f->out, d));
    enum err e = f->objective == OBJECTIVE_THROUGHPUT
                     ? search_run(&r, a, j, &ask, d)
                     : objective_run(&o, a, args, (enum objective)f->objective, &ask, d);
    if (e == OK || e == ERR_NO) {
        const enum err told = tell(a, args, f, o.job ? o.job : j, &ask, o.result ? o.result : &r, &o, d);
        if (told != OK) e = told;
    }
    objective_free(&o);
    return e;
}

enum err verb_search(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = {
        .verb = "search", .words = "--model M --system S --gpus N --seq L --gbs B",
        .flag = flags, .n_flag = LEN(flags),
        .takes_plan = 1, .what = "the best plans, and why the others lost",
    };
    struct search_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = answer(&a, &args, &f, d);
    arena_free(&a);
    return e;
}
