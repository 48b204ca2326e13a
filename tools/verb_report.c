/* moefold report: what predict says about a plan, as one HTML page to send to somebody. Exit 0 also when the plan
 * does not fit: the page says so, and what would help. */
#include "tools/page.h"
#include "tools/save.h"
#include "tools/verb.h"
#include <stdlib.h>
#include <string.h>

struct report_flags { char out[512]; struct view_ask ask; };
static const struct opt flags[] = {
    { .key = "out", ARGS_TEXT(struct report_flags, out, ""), .help = "also -o: the page, F.html" },
    { .key = "tokens", .type = OPT_NUMBER, ARGS_AT(struct report_flags, ask.tokens), .hi = 1e18, .def = "0",
      .help = "tokens to train on: adds days, GPU-hours and cost" },
    { .key = "price", .type = OPT_NUMBER, ARGS_AT(struct report_flags, ask.price_usd_per_h), .hi = 1e6, .def = "0",
      .help = "USD per GPU-hour; 0: the system's" },
    { .key = "vary", ARGS_TEXT(struct report_flags, ask.vary, ""), .help = "a curve, as of predict: gpus=64..1024" },
};

/* A bar a pass: more of them would make a page that no browser likes. */
enum { DRAWN_STEPS = 20000 };

static int steps_of(const struct program *pr)
{
    int n = 0;
    for (int s = 0; s < pr->n_stage; s++) n += pr->n_step[s];
    return n;
}

static enum err answer(struct arena *a, const struct args *args, struct report_flags *f, struct diag *d)
{
    const size_t n = strlen(f->out);
    struct view *v = arena_alloc(a, sizeof *v);
    struct program pr = { 0 };
    struct draw_step step = { 0 };
    char *text = NULL;
    size_t text_B = 0;
    if (n < 6 || strcmp(f->out + n - 5, ".html") != 0)
        return fail(d, ERR_CONFIG, "--out: '%s' should end in .html", cfg_shown(f->out).text);
    TRY(save_try(f->out, d));
    f->ask.sensitivity = 1;
    f->ask.goodput = 1;
    TRY(view_collect(v, &pr, a, args, &f->ask, d));
    const int drawn = steps_of(&pr) <= DRAWN_STEPS;
    if (drawn) TRY(draw_step_sweep(&step, a, v->job, d));
    FILE *out = open_memstream(&text, &text_B);
    if (!out) return fail(d, ERR_IO, "%s: no memory for the page", f->out);
    page_write(out, a, v, &f->ask, drawn ? &step : NULL);
    fclose(out);
    const enum err e = save_text(f->out, text, text_B, d);
    free(text);
    if (e == OK && args->json) report_document(json_pack("{s:s,s:b}", "written", f->out, "feasible", v->r.feasible));
    else if (e == OK) printf("%s\n", f->out);
    return e;
}

enum err verb_report(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = {
        .verb = "report", .words = "[PLAN] -o F.html", .flag = flags, .n_flag = LEN(flags), .takes_plan = 1,
            .max_words = 1,
        .what = "one page about a plan",
    };
    struct report_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = answer(&a, &args, &f, d);
    arena_free(&a);
    return e;
}
