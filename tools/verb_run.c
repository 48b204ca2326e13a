/* moefold run: trains under a plan on this machine and leaves a directory that `compare` reads: plan.yaml (the
 * plan, every option), trace.mft (one span per op that happened), metrics.jsonl (one line a step), run.json (the
 * answer). */
#include "exec/exec.h"
#include "tools/answer.h"
#include "tools/args.h"
#include "tools/save.h"
#include "tools/verb.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const backends[] = { "cpu", NULL }, *const kernel_kinds[] = { "fast", "reference", NULL };
static const char *const comms[] = { "shm", NULL };
static const char *const rank_kinds[] = { "thread", NULL };

struct run_flags {
    int32_t ranks, steps, traced, backend, kernels, comm, ranks_as;
    double timeout_s;
    char data[512], out[512];
};
static const struct opt flags[] = {
    { .key = "ranks", ARGS_INT(struct run_flags, ranks, 0, 1024, "0"),
      .help = "the plan's gpus; 0: as in the plan" },
    { .key = "steps", ARGS_INT(struct run_flags, steps, 1, 1000000, "10"), .help = "optimizer steps" },
    { .key = "trace-steps", ARGS_INT(struct run_flags, traced, 1, 1000, "20"),
      .help = "the first steps whose spans are kept for compare" },
    { .key = "data", ARGS_TEXT(struct run_flags, data, ""),
      .help = "train on a text (a byte is a token) or a pair .bin .idx of Megatron-LM; default: a built-in text" },
    { .key = "out", ARGS_TEXT(struct run_flags, out, "moefold-run"),
      .help = "directory for plan, trace and metrics" },
    { .key = "timeout", .type = OPT_NUMBER, .unit = UNIT_S, ARGS_AT(struct run_flags, timeout_s), .lo = 0.1,
      .hi = 86400, .def = "120 s", .help = "a rank that comes later than this to a collective breaks the run" },
    { .key = "backend", ARGS_NAME(struct run_flags, backend, backends, "cpu"), .help = "who computes" },
    { .key = "kernels", ARGS_NAME(struct run_flags, kernels, kernel_kinds, "fast"),
      .help = "whose arithmetic: this CPU's vector code, or the plain loops that define it" },
    { .key = "comm", ARGS_NAME(struct run_flags, comm, comms, "shm"), .help = "who communicates" },
    { .key = "ranks-as", ARGS_NAME(struct run_flags, ranks_as, rank_kinds, "thread"), .help = "what a rank is" },
};

struct step_row { int32_t step; double loss, mtp_loss, grad_norm, step_s, tokens_per_s, tflops, flop_per_s; };
static const struct report_col step_cols[] = {
    { "step", "step", REPORT_INT, offsetof(struct step_row, step) },
    { "loss", "loss", REPORT_SIX, offsetof(struct step_row, loss) },
    { "mtp_loss", NULL, REPORT_NUMBER, offsetof(struct step_row, mtp_loss) },
    { "grad_norm", "gradient norm", REPORT_SIX, offsetof(struct step_row, grad_norm) },
    { "step_s", "time", REPORT_S, offsetof(struct step_row, step_s) },
    { "tokens_per_s", "tokens/s", REPORT_TENTHS, offsetof(struct step_row, tokens_per_s) },
    { "tflops", NULL, REPORT_NUMBER, offsetof(struct step_row, tflops) },
    { NULL, "GFLOPS/rank", REPORT_GIGA, offsetof(struct step_row, flop_per_s) },
};
struct sum_row { int64_t live_peak_B, arena_B, touched_B, spans; double score_gap; const char *trace; };
static const struct report_col sum_cols[] = {
    { "trace", "trace", REPORT_TEXT, offsetof(struct sum_row, trace) },
    { NULL, "spans", REPORT_LONG, offsetof(struct sum_row, spans) },
    { "live_peak_B", "most bytes alive on a rank", REPORT_LONG, offsetof(struct sum_row, live_peak_B) },
    { "arena_B", "largest arena, bytes", REPORT_LONG, offsetof(struct sum_row, arena_B) },
    { "touched_B", "  of which used", REPORT_LONG, offsetof(struct sum_row, touched_B) },
    { "score_gap", "smallest gap below the k-th routing score", REPORT_NUMBER,
      offsetof(struct sum_row, score_gap) },
};

/* All that a run is made of; lives in one arena. */
struct run { struct data data; struct job job; struct program pr; struct unroll *u; struct exec_ask ask; struct exec_result r; };

/* ---- data ---- */

/* The text that travels inside the program: the licence. */
static enum err embedded_text(struct data *x, struct diag *d)
{
    for (int i = 0; i < cfg_embedded_n; i++) {
        if (strcmp(cfg_embedded[i].kind, "texts") != 0) continue;
        *x = data_of_text((const uint8_t *)cfg_embedded[i].text, (int64_t)strlen(cfg_embedded[i].text));
        return OK;
    }
    return fail(d, ERR_IO, "--data: no text was built in; name a file");
}

static enum err open_data(struct data *x, struct arena *a, const struct run_flags *f, const struct plan *p, struct diag *d)
{
    TRY(*f->data ? data_open(x, a, f->data, 0, d) : embedded_text(x, d));
    x->shuffle = *f->data != '\0';
    x->seed = (uint64_t)p->seed;
    return data_check(x, DATA_TRAIN, p->seq, d);
}

/* ---- progress ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct progress { double start_s; int steps; };

static void show_progress(void *user, int rank, int step, const struct unroll *u, const char *arena)
{
    const struct progress *p = user;
    (void)u, (void)arena;
    if (rank == 0)
        fprintf(stderr, "\rstep %d of %d, %.1f s %s", step + 1, p->steps, now_s() - p->start_s,
                step + 1 == p->steps ? "\n" : "");
}

/* ---- the run ---- */

static enum err prepare(struct run *r, struct arena *a, const struct args *args, const struct run_flags *f,
                        struct diag *d)
{
    TRY(args_job(&r->job, a, args, 1, d));
    TRY(open_data(&r->data, a, f, &r->job.plan, d));
    r->ask.data = &r->data;
    TRY(save_directory(f->out, d));
    program_build(&r->pr, a, &r->job);
    r->u = arena_alloc(a, (size_t)r->pr.n_stage * sizeof *r->u);
    TRY(unroll_all(r->u, a, &r->pr, d));
    for (int s = 0; s < r->pr.n_stage; s++) unroll_plan(&r->u[s], a, &r->pr);
    return unroll_check(r->u, &r->pr, 1, d);
}

static struct step_row *step_rows(struct arena *a, const struct run *r)
{
    const struct plan *p = &r->job.plan;
    const double tokens = (double)p->gbs * p->seq;
    const double flop = tokens * model_flop_per_token(&r->job.model, p->seq, p->vocab_padded);
    struct step_row *row = arena_alloc(a, (size_t)(r->r.n_step + 1) * sizeof *row);
    for (int i = 0; i < r->r.n_step; i++) {
        const struct exec_step *s = &r->r.step[i];
        const double flop_per_s = flop / s->step_s / p->gpus;
        row[i] = (struct step_row){ i, s->loss, s->mtp_loss, s->grad_norm, s->step_s, tokens / s->step_s,
                                    flop_per_s / 1e12, flop_per_s };
    }
    return row;
}

static struct sum_row sum_up(struct arena *a, const struct run *r, const char *out)
{
    struct sum_row s = { .spans = r->r.trace.n,
                         .score_gap = r->job.model.experts ? (double)r->r.score_gap : (double)NAN,
                         .trace = arena_printf(a, "%s/trace.mft", out) };
    for (int i = 0; i < r->job.plan.gpus; i++) {
        if (r->r.live_B[i] > s.live_peak_B) s.live_peak_B = r->r.live_B[i];
        if (r->r.touched_B[i] > s.touched_B) s.touched_B = r->r.touched_B[i];
    }
    for (int i = 0; i < r->pr.n_stage; i++)
        if (r->u[i].arena_B > s.arena_B) s.arena_B = r->u[i].arena_B;
    return s;
}

static enum err save_metrics(const char *path, const json_t *steps, struct diag *d)
{
    char *text = NULL;
    size_t text_B = 0;
    FILE *out = open_memstream(&text, &text_B);
    if (!out) return fail(d, ERR_IO, "%s: no memory for it", path);
    for (size_t i = 0; i < json_array_size(steps); i++) {
        json_dumpf(json_array_get(steps, i), out, JSON_COMPACT | JSON_REAL_PRECISION(12));
        fputc('\n', out);
    }
    const enum err e = fclose(out) == 0 ? save_text(path, text, text_B, d)
                                        : fail(d, ERR_IO, "%s: no memory for it", path);
    free(text);
    return e;
}

static enum err save_all(const struct run *r, const json_t *doc, struct arena *a, const char *out, struct diag *d)
{
    const char *plan = plan_text(a, &r->job.plan);
    TRY(save_text(arena_printf(a, "%s/plan.yaml", out), plan, strlen(plan), d));
    TRY(trace_write(&r->r.trace, arena_printf(a, "%s/trace.mft", out), d));
    TRY(save_metrics(arena_printf(a, "%s/metrics.jsonl", out), json_object_get(doc, "steps"), d));
    return save_json(arena_printf(a, "%s/run.json", out), doc, d);
}

static void show_steps(struct arena *a, const struct report_list *steps)
{
    enum { SHOWN = 24 };
    struct report_list last = *steps;
    const int left_out = steps->n_row > SHOWN ? steps->n_row - SHOWN : 0;
    last.row = (const char *)steps->row + (size_t)left_out * steps->row_B;
    last.n_row -= left_out;
    report_table(left_out ? arena_printf(a, "The last %d of %d steps", last.n_row, steps->n_row) : "Steps", &last, -1);
}

/* A run whose numbers left the range of floats is done, but its answer is no. */
static enum err check_finite(const struct run *r, struct diag *d)
{
    for (int i = 0; i < r->r.n_step; i++) {
        const struct exec_step *s = &r->r.step[i];
        if (!isfinite(s->loss) || !isfinite(s->mtp_loss) || !isfinite(s->grad_norm))
            return fail(d, ERR_NO, "step %d: loss or gradient norm is no finite number; lower lr (%g), or clip (%g)",
                        i, r->job.plan.lr, r->job.plan.clip);
    }
    return OK;
}

static enum err answer(struct arena *a, const struct args *args, const struct run_flags *f, struct diag *d)
{
    struct run *r = arena_alloc(a, sizeof *r);
    struct progress progress = { now_s(), f->steps };
    TRY(prepare(r, a, args, f, d));
    r->ask.steps = f->steps;
    r->ask.iters_traced = f->traced;
    r->ask.timeout_s = f->timeout_s;
    r->ask.kernels = f->kernels ? &kernels_ref : NULL;
    if (isatty(STDERR_FILENO)) {
        r->ask.after_step = show_progress;
        r->ask.user = &progress;
    }
    const enum err ran = exec_run(&r->r, a, &r->pr, r->u, &r->job, &r->ask, d);
    data_close(&r->data);
    TRY(ran);
    const struct sum_row sum = sum_up(a, r, f->out);
    const struct report_list steps = { step_cols, LEN(step_cols), step_rows(a, r), sizeof(struct step_row),
                                       r->r.n_step };
    json_t *doc = json_pack("{s:o,s:o}", "plan", answer_plan(a, &r->job.plan), "steps", report_rows(&steps));
    report_keys(doc, sum_cols, LEN(sum_cols), &sum);
    const enum err e = save_all(r, doc, a, f->out, d);
    if (e == OK && args->json) {
        report_document(doc);
        return check_finite(r, d);
    }
    json_decref(doc);
    if (e != OK) return e;
    report_heading("%s on %d ranks of this machine", r->job.model.name, r->job.plan.gpus);
    printf("  %s\n", answer_plan_line(a, &r->job.plan));
    show_steps(a, &steps);
    report_lines("Left behind", sum_cols, LEN(sum_cols), &sum);
    return check_finite(r, d);
}

enum err verb_run(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = {
        .verb = "run", .words = "[PLAN]", .flag = flags, .n_flag = LEN(flags),
        .takes_plan = 1, .max_words = 1, .what = "train under a plan on this machine",
    };
    struct run_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec);
    else if (e == OK) {
        if (f.ranks > 0) args_add(&args, &a, "gpus", arena_printf(&a, "%d", f.ranks));
        e = answer(&a, &args, &f, d);
    }
    arena_free(&a);
    return e;
}
