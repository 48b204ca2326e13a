/* moefold predict: one plan's memory, communication, compute, time and cost (view.h). Exit 1, with the whole answer,
 * when the plan does not fit. */
#include "sim/sim.h"
#include "tools/args.h"
#include "tools/verb.h"
#include "tools/view.h"

struct predict_flags { char trace[256]; struct view_ask ask; };
static const struct opt flags[] = {
    { .key = "trace", ARGS_TEXT(struct predict_flags, trace, ""),
      .help = "write the predicted step as a Chrome trace (Perfetto)" },
    { .key = "tokens", .type = OPT_NUMBER, ARGS_AT(struct predict_flags, ask.tokens), .hi = 1e18, .def = "0",
      .help = "tokens to train on: adds days, GPU-hours and cost" },
    { .key = "price", .type = OPT_NUMBER, ARGS_AT(struct predict_flags, ask.price_usd_per_h), .hi = 1e6, .def = "0",
      .help = "USD per GPU-hour; 0: the system's" },
    { .key = "goodput", .type = OPT_NUMBER, ARGS_AT(struct predict_flags, ask.goodput), .lo = 0.01, .hi = 1,
        .def = "1",
      .help = "share of the time that trains (restarts, failures); shown apart" },
    { .key = "vary", ARGS_TEXT(struct predict_flags, ask.vary, ""),
      .help = "key=a..b: the plan again with key = a, 2a, 4a, .. b; or key=a,b,c; also of the system: "
          "gpu.memory=.." },
    { .key = "contention", ARGS_NAME(struct predict_flags, ask.contention, contention_names, "static"),
      .help = "dynamic: the step also by events, where what runs at once shares links; a second figure" },
    { .key = "sensitivity", ARGS_BOOL(struct predict_flags, ask.sensitivity),
      .help = "what each figure of the system would buy, were it a tenth better" },
};

/* The whole step written out, swept, and saved: a process per rank, a thread per stream. */
static enum err write_trace(const char *path, struct arena *a, const struct program *pr, const struct job *j,
                            struct diag *d)
{
    struct unroll *u = arena_alloc(a, (size_t)pr->n_stage * sizeof *u);
    struct trace t = { 0 };
    struct cost c;
    TRY(unroll_all(u, a, pr, d));
    cost_init(&c, pr, j);
    sim_sweep(&t, a, &c, u, NULL, 0);
    return trace_write_chrome(&t, pr, j, path, d);
}

static enum err answer(struct arena *a, const struct args *args, const struct predict_flags *f, struct diag *d)
{
    struct view *v = arena_alloc(a, sizeof *v);
    struct program pr = { 0 };
    TRY(view_collect(v, &pr, a, args, &f->ask, d));
    if (*f->trace) TRY(write_trace(f->trace, a, &pr, v->job, d));
    if (args->json) report_document(view_document(v, a, &f->ask));
    else view_show(v, a, &f->ask);
    if (*f->trace && !args->json) printf("\n  the step is in %s: open it in ui.perfetto.dev\n", f->trace);
    return v->r.feasible ? OK : ERR_NO;
}

enum err verb_predict(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = {
        .verb = "predict", .words = "[PLAN]", .flag = flags, .n_flag = LEN(flags),
        .takes_plan = 1, .max_words = 1, .what = "what one plan needs and how fast it is",
    };
    struct predict_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = answer(&a, &args, &f, d);
    arena_free(&a);
    return e;
}
