/* moefold verify: one program, op by op, on two backends. Every op of arithmetic is launched on the same inputs by
 * both, and what they write is compared. */
#include "exec/backend_load.h"
#include "exec/verify.h"
#include "tools/answer.h"
#include "tools/args.h"
#include "tools/verb.h"
#include <string.h>

static const char *const verify_backends[] = { "cpu", "cuda", NULL };
struct verify_flags { int32_t steps, backend; };
static const struct opt verify_flag[] = {
    { .key = "steps", ARGS_INT(struct verify_flags, steps, 1, 1000, "2"), .help = "optimizer steps" },
    { .key = "backend", ARGS_NAME(struct verify_flags, backend, verify_backends, "cpu"),
      .help = "whose kernels are held to the references" },
};

struct verify_row { const char *kind, *where; int64_t launches; double off, limit, a, b; int32_t equal; };
static const struct report_col verify_cols[] = {
    { "op", "op", REPORT_TEXT, offsetof(struct verify_row, kind) },
    { "launches", "launches", REPORT_LONG, offsetof(struct verify_row, launches) },
    { "off", "largest difference", REPORT_NUMBER, offsetof(struct verify_row, off) },
    { "limit", "limit", REPORT_NUMBER, offsetof(struct verify_row, limit) },
    { "reference", "reference", REPORT_NUMBER, offsetof(struct verify_row, a) },
    { "fast", "other", REPORT_NUMBER, offsetof(struct verify_row, b) },
    { "equal", NULL, REPORT_BOOL, offsetof(struct verify_row, equal) },
    { "where", "where", REPORT_TEXT, offsetof(struct verify_row, where) },
};

/* All of a verification; lives in one arena. */
struct verification { struct job job; struct program pr; struct unroll *u; struct verify v; struct verify_row row[OP_KIND_COUNT]; int n; };

static enum err verify_prepare(struct verification *x, struct arena *a, const struct args *args, struct diag *d)
{
    TRY(args_job(&x->job, a, args, 1, d));
    program_build(&x->pr, a, &x->job);
    x->u = arena_alloc(a, (size_t)x->pr.n_stage * sizeof *x->u);
    TRY(unroll_all(x->u, a, &x->pr, d));
    for (int s = 0; s < x->pr.n_stage; s++) unroll_plan(&x->u[s], a, &x->pr);
    return OK;
}

static char *verify_where(struct arena *a, const struct program *pr, const struct verify_kind *k)
{
    if (!(k->off > 0)) return arena_strdup(a, "");
    return arena_printf(a, "step %d, rank %d, layer %d, micro-batch %d, output %d, element %lld", k->iter, k->rank,
                        pr->op[k->op].layer, k->micro, k->output, (long long)k->element);
}

/* The worst against its limit first. */
static void verify_sort(struct verification *x)
{
    for (int i = 1; i < x->n; i++)
        for (int k = i; k > 0 && x->row[k].off / x->row[k].limit > x->row[k - 1].off / x->row[k - 1].limit; k--) {
            const struct verify_row at = x->row[k];
            x->row[k] = x->row[k - 1];
            x->row[k - 1] = at;
        }
}

static void verify_rows(struct verification *x, struct arena *a)
{
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        const struct verify_kind *v = &x->v.kind[k];
        if (!v->launches) continue;
        const double limit = verify_limit((enum dtype)v->dtype);
        x->row[x->n++] = (struct verify_row){ op_name((enum op_kind)k), verify_where(a, &x->pr, v), v->launches, v->off,
                                              limit, v->a, v->b, v->off <= limit };
    }
    verify_sort(x);
}

static enum err verify_answer(struct arena *a, const struct args *args, const struct verify_flags *f, struct diag *d)
{
    struct verification *x = arena_alloc(a, sizeof *x);
    struct exec_ask ask = { .steps = f->steps, .iters_traced = 1, .timeout_s = 600 };
    for (int i = 0; i < cfg_embedded_n; i++)
        if (strcmp(cfg_embedded[i].kind, "texts") == 0) {
            ask.text = (const uint8_t *)cfg_embedded[i].text;
            ask.text_n = (int64_t)strlen(cfg_embedded[i].text);
        }
    TRY(verify_prepare(x, a, args, d));
    x->v.a = (struct verify_side){ backend_cpu_table(&x->job.plan), &kernels_ref, NULL };
    x->v.b = (struct verify_side){ backend_cpu_table(&x->job.plan), kernels_fast(0), NULL };
    if (f->backend) TRY(backend_load(&x->v.b.on, verify_backends[f->backend], d));
    if (f->backend) x->v.b.launch = x->v.b.on->launch;
    const char *name = f->backend ? x->v.b.on->name : x->v.b.kernels->name;
    TRY(verify_run(&x->v, a, &x->pr, x->u, &x->job, &ask, d));
    verify_rows(x, a);
    const struct report_list list = { verify_cols, LEN(verify_cols), x->row, sizeof x->row[0], x->n };
    const struct verify_row *worst = &x->row[0];
    if (args->json)
        report_document(json_pack("{s:o,s:s,s:s,s:b,s:o}", "plan", answer_plan(a, &x->job.plan), "backend",
                                  name, "worst", worst->kind, "equal", worst->equal, "ops",
                                  report_rows(&list)));
    else {
        report_heading("%s on %d ranks: references against the kernels of %s", x->job.model.name, x->job.plan.gpus,
                       name);
        printf("  %s\n", answer_plan_line(a, &x->job.plan));
        report_table("Ops, the worst first", &list, -1);
    }
    if (worst->equal) return OK;
    return fail(d, ERR_NO, "%s differs by %.3g of its largest output, %.3g is allowed: %s", worst->kind, worst->off,
                worst->limit, worst->where);
}

enum err verb_verify(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = {
        .verb = "verify", .words = "[PLAN]", .flag = verify_flag, .n_flag = LEN(verify_flag), .takes_plan = 1,
        .max_words = 1, .what = "one program on references and on fast kernels or a GPU, compared op by op",
    };
    struct verify_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = verify_answer(&a, &args, &f, d);
    arena_free(&a);
    return e;
}
