/* moefold run: trains under a plan on this machine and leaves a directory that `compare` reads: plan.yaml
 * (the plan, every option), trace.mft (one span per op that happened), metrics.jsonl (one line a step),
 * checkpoints/ (when asked for), run.json (the answer). */
#include "exec/backend_load.h"
#include "exec/hf.h"
#include "exec/lr.h"
#include "exec/train.h"
#include "tools/answer.h"
#include "tools/args.h"
#include "tools/launched.h"
#include "tools/record.h"
#include "tools/run_log.h"
#include "tools/save.h"
#include "tools/verb.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const backends[] = { "cpu", "cuda", NULL }, *const kernel_kinds[] = { "fast", "reference", NULL };
static const char *const comms[] = { "shm", "mpi", NULL };
static const struct word as_before[] = { { "auto", -1 }, { NULL, 0 } };
static const char *const rank_kinds[] = { "thread", "process", NULL };

struct run_flags {
    int32_t ranks, steps, traced, backend, kernels, comm, ranks_as, eval_every, eval_steps, save_every, keep;
    double timeout_s, eval_split;
    char data[512], out[512], resume[512], record[512], record_routes[512], replay[512];
};
static const struct opt flags[] = {
    { .key = "ranks",
      ARGS_INT(struct run_flags, ranks, 0, 1024, "0"),
      .help = "the plan's gpus; 0: as in the plan" },
    { .key = "steps",
      ARGS_INT(struct run_flags, steps, 1, 1000000, "10"),
      .help = "optimizer steps, those before a resumed checkpoint counted" },
    { .key = "trace-steps",
      ARGS_INT(struct run_flags, traced, 1, 1000, "20"),
      .help = "the first steps whose spans are kept for compare" },
    { .key = "data",
      ARGS_TEXT(struct run_flags, data, ""),
      .help = "train on a text (a byte is a token) or a pair .bin .idx of Megatron-LM; default: as resumed, "
              "or a built-in text" },
    { .key = "eval-split",
      .type = OPT_NUMBER,
      ARGS_AT(struct run_flags, eval_split),
      .lo = 0,
      .hi = 0.9,
      .def = "auto",
      .words = as_before,
      .help = "the end of the data that is evaluated, not trained on; auto: as resumed, or 0" },
    { .key = "eval-every",
      ARGS_INT(struct run_flags, eval_every, 0, 1000000000, "0"),
      .help = "steps between evaluations; 0: one after the last step" },
    { .key = "eval-steps",
      ARGS_INT(struct run_flags, eval_steps, 0, 1000000, "0"),
      .help = "steps of gbs sequences in one; 0: the whole split" },
    { .key = "save-every",
      ARGS_INT(struct run_flags, save_every, 0, 1000000000, "0"),
      .help = "steps between checkpoints in OUT/checkpoints, one after the last step; 0: none" },
    { .key = "keep",
      ARGS_INT(struct run_flags, keep, 1, 1000000, "2"),
      .help = "newest checkpoints that stay" },
    { .key = "resume",
      ARGS_TEXT(struct run_flags, resume, ""),
      .help = "go on from a checkpoint, or the newest of a run's directory, under its plan, PLAN or flags" },
    { .key = "out",
      ARGS_TEXT(struct run_flags, out, "moefold-run"),
      .help = "directory for plan, trace and metrics" },
    { .key = "record-load",
      ARGS_TEXT(struct run_flags, record, ""),
      .help = "write the tokens that each expert of each layer got, for predict --load recorded:FILE" },
    { .key = "record-routes",
      ARGS_TEXT(struct run_flags, record_routes, ""),
      .help = "write which experts every token of every step chose" },
    { .key = "replay-routes",
      ARGS_TEXT(struct run_flags, replay, ""),
      .help = "take those choices again, of the same model, batch and data, under any plan" },
    { .key = "timeout",
      .type = OPT_NUMBER,
      .unit = UNIT_S,
      ARGS_AT(struct run_flags, timeout_s),
      .lo = 0.1,
      .hi = 86400,
      .def = "120 s",
      .help = "a rank that comes later than this to a collective breaks the run" },
    { .key = "backend", ARGS_NAME(struct run_flags, backend, backends, "cpu"), .help = "who computes" },
    { .key = "kernels",
      ARGS_NAME(struct run_flags, kernels, kernel_kinds, "fast"),
      .help = "whose arithmetic: this CPU's vector code, or the plain loops that define it" },
    { .key = "comm", ARGS_NAME(struct run_flags, comm, comms, "shm"), .help = "who communicates: shared memory; or mpi, where mpirun has started a process for each rank" },
    { .key = "ranks-as",
      ARGS_NAME(struct run_flags, ranks_as, rank_kinds, "thread"),
      .help = "what a rank is: a thread of this process, or a process of its own" },
};

struct step_row {
    int32_t step;
    double loss, mtp_loss, balance_loss, grad_norm, lr, step_s, tokens_per_s, tflops, flop_per_s;
};
static const struct report_col step_cols[] = {
    { "step", "step", REPORT_INT, offsetof(struct step_row, step) },
    { "loss", "loss", REPORT_SIX, offsetof(struct step_row, loss) },
    { "mtp_loss", NULL, REPORT_NUMBER, offsetof(struct step_row, mtp_loss) },
    { "balance_loss", NULL, REPORT_NUMBER, offsetof(struct step_row, balance_loss) },
    { "grad_norm", "gradient norm", REPORT_SIX, offsetof(struct step_row, grad_norm) },
    { "lr", "lr", REPORT_NUMBER, offsetof(struct step_row, lr) },
    { "step_s", "time", REPORT_S, offsetof(struct step_row, step_s) },
    { "tokens_per_s", "tokens/s", REPORT_TENTHS, offsetof(struct step_row, tokens_per_s) },
    { "tflops", NULL, REPORT_NUMBER, offsetof(struct step_row, tflops) },
    { NULL, "GFLOPS/rank", REPORT_GIGA, offsetof(struct step_row, flop_per_s) },
};
static const struct report_col eval_cols[] = {
    { "after_steps", "after steps", REPORT_LONG, offsetof(struct train_eval, step) },
    { "tokens", "tokens", REPORT_LONG, offsetof(struct train_eval, tokens) },
    { "loss", "loss", REPORT_SIX, offsetof(struct train_eval, loss) },
    { "mtp_loss", NULL, REPORT_NUMBER, offsetof(struct train_eval, mtp_loss) },
};
struct sum_row { int64_t live_peak_B, arena_B, touched_B, host_B, spans; double score_gap; const char *trace; };
static const struct report_col sum_cols[] = {
    { "trace", "trace", REPORT_TEXT, offsetof(struct sum_row, trace) },
    { NULL, "spans", REPORT_LONG, offsetof(struct sum_row, spans) },
    { "live_peak_B", "most bytes alive on a rank", REPORT_LONG, offsetof(struct sum_row, live_peak_B) },
    { "arena_B", "largest arena, bytes", REPORT_LONG, offsetof(struct sum_row, arena_B) },
    { "touched_B", "  of which used", REPORT_LONG, offsetof(struct sum_row, touched_B) },
    { "host_B", "beside it, for what waits on the host", REPORT_LONG, offsetof(struct sum_row, host_B) },
    { "score_gap", "smallest gap below the k-th routing score", REPORT_NUMBER,
      offsetof(struct sum_row, score_gap) },
};

/* All that a run is made of; lives in one arena. */
struct run {
    struct data data;
    struct job job; struct program pr; struct unroll *u;
    const struct backend *on;           /* NULL: the CPU */
    struct checkpoint_file from; struct train_ask ask; struct train_result r;
    const struct world *world; struct world_seat seat;      /* NULL: all ranks are of this process or its children */
    struct run_log log;
    struct routes routes;
    struct arena shared;                /* of what processes of ranks write */
};

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

static enum err open_data(struct data *x, struct arena *a, const struct run_flags *f, const struct plan *p,
                          struct diag *d)
{
    TRY(*f->data ? data_open(x, a, f->data, f->eval_split, d) : embedded_text(x, d));
    x->n_train = *f->data ? x->n_train : x->n - (int64_t)(f->eval_split * (double)x->n);
    x->shuffle = *f->data != '\0';
    x->seed = (uint64_t)p->seed;
    return data_check(x, DATA_TRAIN, p->seq, d);
}

/* ---- going on from a checkpoint ---- */

static int given(const struct args *args, const char *key)
{
    for (int i = 0; i < args->n_plan; i++)
        if (strcmp(args->plan[i][0], key) == 0) return 1;
    return 0;
}

/* The checkpoint's own plan when no other is named, and its model. Where flags change the fold, what the plan
 * had resolved for the old one is open again. */
static enum err take_plan(struct args *args, struct arena *a, const char *dir)
{
    static const char *const fold[] = { "gpus", "tp", "cp", "pp", "vpp", "etp", "ep", "gbs", "mbs" };
    static const char *const again[] = { "layout", "schedule", "vpp-group", "domain-gpus", "sp" };
    struct args old = *args;
    int folds = 0;
    args->plan = NULL;
    args->n_plan = 0;
    if (!given(&old, "model")) args_add(args, a, "model", arena_printf(a, "%s/model.yaml", dir));
    for (int i = 0; i < LEN(fold); i++) folds |= given(&old, fold[i]);
    for (int i = 0; i < LEN(again) && folds && !old.n_word; i++) args_add(args, a, again[i], "auto");
    for (int i = 0; i < old.n_plan; i++) args_add(args, a, old.plan[i][0], old.plan[i][1]);
    if (!args->n_word) args->word[args->n_word++] = arena_printf(a, "%s/plan.yaml", dir);
    return OK;
}

static enum err open_checkpoint(struct run *r, struct arena *a, struct args *args, struct run_flags *f,
                                struct diag *d)
{
    const char *dir;
    if (!*f->resume) return OK;
    TRY(checkpoint_find(&dir, a, f->resume, d));
    TRY(checkpoint_open(&r->from, a, dir, d));
    r->ask.resume = &r->from;
    if (*f->data == '\0') strcpy(f->data, r->from.head.data);
    if (f->eval_split < 0) f->eval_split = r->from.head.eval_split;
    return take_plan(args, a, dir);
}

/* ---- the run ---- */

/* The checkpoint's model, kept beside the run's plan: checkpoints go, and what is left behind must say what
 * ran. */
static enum err keep_model(struct run *r, struct arena *a, const char *out, struct diag *d)
{
    struct plan *p = &r->job.plan;
    const char *own = arena_printf(a, "%s/model.yaml", out), *text = model_text(a, &r->job.model);
    if (!r->ask.resume || strcmp(p->model, arena_printf(a, "%s/model.yaml", r->from.dir)) != 0) return OK;
    if (strlen(own) >= sizeof p->model)
        return fail(d, ERR_CONFIG,
                    "--out: %.100s...: is longer than the name of a model may be (%d): give a shorter one",
                    out, (int)sizeof p->model - 1);
    strcpy(p->model, own);
    return save_text(own, text, strlen(text), d);
}

static enum err prepare(struct run *r, struct arena *a, struct args *args, struct run_flags *f,
                        struct diag *d)
{
    struct plan *p = &r->job.plan;
    TRY(open_checkpoint(r, a, args, f, d));
    if (f->eval_split < 0) f->eval_split = 0;
    TRY(args_job(&r->job, a, args, 1, d));
    if (r->ask.resume) TRY(checkpoint_check_model(&r->from, a, &r->job.model, d));
    if (p->lr_steps == 0) p->lr_steps = f->steps;
    if (f->backend) TRY(backend_load(&r->on, backends[f->backend], d));
    if (*f->replay && (*f->record || *f->record_routes))
        return fail(d, ERR_CONFIG, "--replay-routes: choices that are taken from a file are not recorded: give either");
    if (*f->replay)
        TRY(record_replay(&r->routes, &r->ask.routes_from, a, &r->job, (int)r->from.head.step, f->steps - (int)r->from.head.step,
                          f->replay, d));
    TRY(open_data(&r->data, a, f, p, d));
    program_build(&r->pr, a, &r->job);
    r->u = arena_alloc(a, (size_t)r->pr.n_stage * sizeof *r->u);
    TRY(unroll_all(r->u, a, &r->pr, d));
    for (int s = 0; s < r->pr.n_stage; s++) unroll_plan(&r->u[s], a, &r->pr);
    return unroll_check(r->u, &r->pr, 1, d);
}

static int leads(const struct run *r)
{
    return !r->world || r->seat.process == 0;
}

/* After all that may be refused: what a run before this one left there stays until then. */
static enum err open_out(struct run *r, struct arena *a, const struct run_flags *f, struct diag *d)
{
    TRY(train_check(&r->ask, &r->job, d));
    if (!leads(r)) return OK;
    TRY(save_directory(f->out, d));
    TRY(keep_model(r, a, f->out, d));
    r->shared.shared = f->ranks_as;
    const int first = (int)r->from.head.step, steps = f->steps - first;
    if (*f->record) TRY(record_open(&r->routes, &r->shared, &r->job, first, steps, "record-load", f->record, d));
    if (*f->record_routes)
        TRY(record_open(&r->routes, &r->shared, &r->job, first, steps, "record-routes", f->record_routes, d));
    return run_log_open(&r->log, a, f->out, &r->job, r->from.head.step, f->steps, d);
}

static struct step_row *step_rows(struct arena *a, const struct run *r)
{
    const struct plan *p = &r->job.plan;
    const double tokens = (double)p->gbs * p->seq;
    const double flop = tokens * model_flop_per_token(&r->job.model, plan_context(p), p->vocab_padded);
    struct step_row *row = arena_alloc(a, (size_t)(r->r.n_step + 1) * sizeof *row);
    for (int i = 0; i < r->r.n_step; i++) {
        const struct exec_step *s = &r->r.step[i];
        const double flop_per_s = flop / s->step_s / p->gpus;
        const int64_t step = r->r.first_step + i;
        row[i] = (struct step_row){ (int32_t)step,      s->loss,           s->mtp_loss,
                                    s->balance_loss,    s->grad_norm,      lr_at(p, step),    s->step_s,
                                    tokens / s->step_s, flop_per_s / 1e12, flop_per_s };
    }
    return row;
}

static struct sum_row sum_up(struct arena *a, const struct run *r, const char *out)
{
    struct sum_row s = { .spans = r->r.run.trace.n,
                         .score_gap = r->job.model.experts ? (double)r->r.score_gap : (double)NAN,
                         .trace = arena_printf(a, "%s/trace.mft", out) };
    for (int i = 0; i < r->job.plan.gpus; i++) {
        if (r->r.run.live_B[i] > s.live_peak_B) s.live_peak_B = r->r.run.live_B[i];
        if (r->r.run.touched_B[i] > s.touched_B) s.touched_B = r->r.run.touched_B[i];
    }
    for (int i = 0; i < r->pr.n_stage; i++) {
        if (r->u[i].arena_B > s.arena_B) s.arena_B = r->u[i].arena_B;
        if (r->u[i].host_B > s.host_B) s.host_B = r->u[i].host_B;
    }
    return s;
}

static enum err save_all(const struct run *r, const json_t *doc, struct arena *a, const char *out,
                         struct diag *d)
{
    const char *plan = plan_text(a, &r->job.plan);
    TRY(save_text(arena_printf(a, "%s/plan.yaml", out), plan, strlen(plan), d));
    TRY(trace_write(&r->r.run.trace, arena_printf(a, "%s/trace.mft", out), d));
    return save_json(arena_printf(a, "%s/run.json", out), doc, d);
}

static void show_steps(struct arena *a, const struct report_list *steps)
{
    enum { SHOWN = 24 };
    struct report_list last = *steps;
    const int left_out = steps->n_row > SHOWN ? steps->n_row - SHOWN : 0;
    last.row = (const char *)steps->row + (size_t)left_out * steps->row_B;
    last.n_row -= left_out;
    report_table(left_out ? arena_printf(a, "The last %d of %d steps", last.n_row, steps->n_row) : "Steps",
                 &last, -1);
}

static void ask_for(struct run *r, struct arena *a, const struct run_flags *f)
{
    const struct checkpoint_file *resume = r->ask.resume;
    r->ask = (struct train_ask){ .data = &r->data,
                                 .data_name = f->data,
                                 .eval_split = f->eval_split,
                                 .steps = f->steps,
                                 .traced = f->traced,
                                 .processes = f->ranks_as,
                                 .world = r->world,
                                 .seat = r->seat,
                                 .timeout_s = f->timeout_s,
                                 .on = r->on,
                                 .kernels = f->kernels ? &kernels_ref : NULL,
                                 .evals = f->eval_split > 0,
                                 .eval_every = f->eval_every,
                                 .eval_steps = f->eval_steps,
                                 .save_every = f->save_every,
                                 .keep = f->keep,
                                 .root = arena_printf(a, "%s/checkpoints", f->out),
                                 .resume = resume,
                                 .routes = *f->record || *f->record_routes || *f->replay ? &r->routes : NULL,
                                 .replay = *f->replay != '\0',
                                 .routes_from = r->ask.routes_from,
                                 .carry = hf_carried,
                                 .user = &r->log,
                                 .on_step = leads(r) ? run_log_step : NULL,
                                 .on_eval = leads(r) ? run_log_eval : NULL };
}

/* What was done is saved and shown also when the run ended early, by numbers that left the range of floats;
 * then `ran` is the answer. */
static enum err show(struct arena *a, const struct args *args, const struct run_flags *f, const struct run *r,
                     enum err ran, struct diag *d)
{
    const struct report_list steps = { step_cols, LEN(step_cols), step_rows(a, r), sizeof(struct step_row),
                                       r->r.n_step };
    const struct report_list evals = { eval_cols, LEN(eval_cols), r->r.eval, sizeof(struct train_eval),
                                       r->r.n_eval };
    const int whole = ran == OK;
    const struct sum_row sum = whole ? sum_up(a, r, f->out) : (struct sum_row){ 0 };
    struct diag saved;
    json_t *doc = json_pack("{s:o,s:o,s:o}", "plan", answer_plan(a, &r->job.plan), "steps",
                            report_rows(&steps), "evals", report_rows(&evals));
    if (whole) report_keys(doc, sum_cols, LEN(sum_cols), &sum);
    enum err e = whole ? save_all(r, doc, a, f->out, &saved) : OK;
    if (whole && e == OK && *f->record) e = record_save(&r->routes, &r->job.model, f->record, &saved);
    if (whole && e == OK && *f->record_routes) e = record_routes(&r->routes, f->record_routes, &saved);
    if (e != OK) *d = saved, ran = e;       /* what was trained is shown all the same */
    if (args->json) {
        report_document(doc);
        return ran;
    }
    json_decref(doc);
    report_heading("%s on %d ranks of this machine", r->job.model.name, r->job.plan.gpus);
    printf("  %s\n", answer_plan_line(a, &r->job.plan));
    show_steps(a, &steps);
    report_table("Evaluations", &evals, -1);
    if (whole) report_lines("Left behind", sum_cols, LEN(sum_cols), &sum);
    return ran;
}

static enum err agree(const struct run *r, enum err e, struct diag *d)
{
    return r->world ? r->world->agree(e, d) : e;
}

/* A job's processes do the same, but the first alone writes and speaks, of errors too. */
static enum err take_seat(struct run *r, const struct run_flags *f, struct diag *d)
{
    if (f->comm) return world_load(&r->world, &r->seat, comms[f->comm], d);
    if (launched_processes() < 2) return OK;
    return fail(d, ERR_CONFIG, "this is one of %d processes of a job, which would all write to %.100s: add --comm mpi, or start one",
                launched_processes(), f->out);
}

static enum err run_it(struct run *r, struct arena *a, struct args *args, struct run_flags *f, struct diag *d)
{
    struct diag closed;
    enum err e = agree(r, prepare(r, a, args, f, d), d);
    if (e == OK) {
        ask_for(r, a, f);
        e = agree(r, open_out(r, a, f, d), d);
    }
    if (e == OK) e = train_run(&r->r, a, &r->pr, r->u, &r->job, &r->ask, d);
    if (run_log_close(&r->log, &closed) != OK && e == OK) *d = closed, e = ERR_IO;
    checkpoint_close(&r->from);
    data_close(&r->data);
    if (leads(r) && (e == OK || (e == ERR_NO && r->r.n_step > 0))) e = show(a, args, f, r, e, d);
    return e;
}

static enum err answer(struct arena *a, struct args *args, struct run_flags *f, struct diag *d)
{
    struct run *r = arena_alloc(a, sizeof *r);
    TRY(take_seat(r, f, d));
    const enum err e = run_it(r, a, args, f, d);
    arena_free(&r->shared);
    verb_world(r->world);
    return e;
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
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) {
        if (f.ranks > 0) args_add(&args, &a, "gpus", arena_printf(&a, "%d", f.ranks));
        e = answer(&a, &args, &f, d);
    }
    arena_free(&a);
    return e;
}
