/* Searches at every divisor of the GPUs given, small to large. A number of GPUs whose memory cannot hold the states
 * is not searched. Throughput and cost are one order of plans at one number of GPUs, so a search needs no other
 * aim. */
#include "tools/objective.h"
#include "sim/least.h"
#include "tools/report.h"
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

const char *const objective_names[] = { "throughput", "cost", "gpus", NULL };
const struct report_col objective_cols[] = {
    { "gpus", "GPUs", REPORT_INT, offsetof(struct objective_row, gpus) },
    { "fits", "fits", REPORT_BOOL, offsetof(struct objective_row, fits) },
    { "step_s", "step", REPORT_S, offsetof(struct objective_row, step_s) },
    { "tokens_per_s", "tokens/s", REPORT_WHOLE, offsetof(struct objective_row, tokens_per_s) },
    { "days", "days for 1e12 tokens", REPORT_TENTHS, offsetof(struct objective_row, days) },
    { "usd_per_gtoken", "USD for 1e9 tokens", REPORT_WHOLE, offsetof(struct objective_row, usd_per_gtoken) },
    { "idle_gpus", "idle beside", REPORT_INT, offsetof(struct objective_row, idle) },
    { "pareto", "none smaller is as fast", REPORT_BOOL, offsetof(struct objective_row, pareto) },
    { "proven", "proven", REPORT_BOOL, offsetof(struct objective_row, proven) },
    { "why", "why not", REPORT_TEXT, offsetof(struct objective_row, why) },
};
const int objective_n_col = LEN(objective_cols);

void objective_free(struct objective_found *f)
{
    arena_free(&f->own);
    *f = (struct objective_found){ 0 };
}

static void fill(struct objective_row *row, const struct job *j, const struct search_result *r)
{
    const struct plan *p = &r->hit[0].plan;
    const int domains = (p->gpus + p->domain_gpus - 1) / p->domain_gpus;
    const double price = j->system.price_usd_per_h > 0 ? j->system.price_usd_per_h : (double)NAN;
    row->fits = 1;
    row->proven = r->proven;
    row->step_s = r->hit[0].step_s;
    row->idle = domains * j->system.domain - p->gpus;
    if (p->gpus <= j->system.domain) row->idle = 0;         /* part of a domain can be rented alone */
    row->tokens_per_s = r->hit[0].tokens_per_s_gpu * p->gpus;
    row->days = 1e12 / row->tokens_per_s / 86400;
    row->usd_per_gtoken = 1e9 / row->tokens_per_s / 3600 * price * (p->gpus + row->idle);
}

/* The search at one number of GPUs, in an arena of its own, which the choice keeps. */
static enum err one(struct objective_row *row, struct objective_found *f, struct arena *a,
    const struct args *args, int gpus,
                    const struct search_ask *ask, struct diag *d)
{
    struct arena own = { 0 };
    struct job *j = arena_alloc(&own, sizeof *j);
    struct search_result *r = arena_alloc(&own, sizeof *r);
    struct args with = { 0 };
    const double none = (double)NAN;
    *row = (struct objective_row){ .gpus = gpus, .step_s = none, .tokens_per_s = none, .usd_per_gtoken = none,
        .days = none };
    for (int i = 0; i < args->n_plan; i++) args_add(&with, &own, args->plan[i][0], args->plan[i][1]);
    args_add(&with, &own, "gpus", arena_printf(&own, "%d", gpus));
    enum err e = plan_read_open(j, &own, with.n_plan, (const char *const(*)[2])with.plan, d);
    const int64_t least = e == OK ? least_gpus(j, model_params(&j->model).total) : 0;
    if (e == OK && gpus < least) {
        e = fail(d, ERR_NO, "the states alone need %lld GPUs", (long long)least);
    } else if (e == OK) {
        if (isatty(STDERR_FILENO)) fprintf(stderr, "\rsearching %d GPUs ..   \r", gpus);
        e = search_run(r, &own, j, ask, d);
    }
    if (e != OK) {
        row->why = arena_strdup(a, d->text);
        arena_free(&own);
        return e;
    }
    fill(row, j, r);
    const double paid = row->tokens_per_s / (gpus + row->idle);
    const int better = !f->result || paid > f->tokens_per_s_paid;
    if (!better) {
        arena_free(&own);
        return OK;
    }
    arena_free(&f->own);
    f->own = own;
    f->job = j;
    f->result = r;
    f->tokens_per_s_paid = paid;
    return OK;
}

enum err objective_run(struct objective_found *f, struct arena *a, const struct args *args, enum objective o,
                       const struct search_ask *ask, struct diag *d)
{
    enum { DIVISORS = 512 };
    struct job *j = arena_alloc(a, sizeof *j);
    struct objective_row *all = arena_alloc(a, DIVISORS * sizeof *all);
    double fastest = 0;
    enum err e = OK;
    *f = (struct objective_found){ .row = all };
    TRY(plan_read_open(j, a, args->n_plan, (const char *const(*)[2])args->plan, d));
    int n = 0, any = 0;
    for (int g = 1; g <= j->plan.gpus && n < DIVISORS; g++) {
        if (j->plan.gpus % g) continue;
        *d = (struct diag){ "" };
        e = one(&all[n], f, a, args, g, ask, d);
        if (e != OK && e != ERR_NO && e != ERR_CONFIG) return e;
        any |= e != ERR_CONFIG;
        if (all[n].fits) {
            all[n].pareto = all[n].tokens_per_s > fastest;
            fastest = fmax(fastest, all[n].tokens_per_s);
        }
        if (all[n++].fits && o == OBJECTIVE_GPUS) break;
    }
    f->n = n;
    if (f->result) return *d = (struct diag){ "" }, OK;
    return any ? ERR_NO : e;
}
