/* Runs a probe and turns its spans into samples: per op the median time, and the work of the rows that it
 * really had. */
#include "tools/calibrate.h"
#include "exec/exec.h"
#include "models/load.h"
#include "tools/join.h"
#include "tools/range.h"
#include <math.h>
#include <string.h>

enum { PAIRS = 32 };

/* A probe's job, its program and what running it said: lives in the run's arena. */
struct probing {
    struct arena *a;
    struct job job; struct program pr; struct unroll *u;
    struct exec_result r;
    double **time; int32_t *n_time;             /* by op: every span's seconds                      */
    struct { double flop, bytes, units; } *work;    /* by op: summed over the same spans                */
};

static int words_of(const char *word[2 * PAIRS], struct arena *a, const char *text)
{
    char *rest = arena_strdup(a, text);
    int n = 0;
    for (char *w = strtok_r(rest, " ", &rest); w && n < 2 * PAIRS; w = strtok_r(NULL, " ", &rest)) word[n++] = w;
    return n / 2;
}

static enum err job_of(struct job *j, struct arena *a, const struct calibrate_probe *p, double cache_B,
                       struct diag *d)
{
    const char *word[2 * PAIRS];
    const char *flag[PAIRS + 3][2] = { { "model", "tiny-moe" }, { "system", "host" }, { "lr", "0" } };
    int n = words_of(word, a, p->plan);
    for (int i = 0; i < n; i++) flag[3 + i][0] = word[2 * i], flag[3 + i][1] = word[2 * i + 1];
    TRY(plan_read_job(j, a, NULL, n + 3, flag, 1, d));
    n = words_of(word, a, p->model);
    for (int i = 0; i < n; i++)
        TRY(cfg_set(&j->model, cfg_opt(model_opts, model_n_opt, word[2 * i]), word[2 * i + 1], word[2 * i], d));
    TRY(model_check(&j->model, d));
    if (cache_B > 0) j->system.cache_B = cache_B;
    return plan_resolve(j, d);
}

static enum err probe_run(struct probing *x, const struct backend *on, int steps, struct diag *d)
{
    struct exec_ask ask = { .steps = steps, .timeout_s = 60, .on = on };
    for (int i = 0; i < cfg_embedded_n; i++)
        if (strcmp(cfg_embedded[i].kind, "texts") == 0) {
            ask.text = (const uint8_t *)cfg_embedded[i].text;
            ask.text_n = (int64_t)strlen(cfg_embedded[i].text);
        }
    program_build(&x->pr, x->a, &x->job);
    x->u = arena_alloc(x->a, (size_t)x->pr.n_stage * sizeof *x->u);
    TRY(unroll_all(x->u, x->a, &x->pr, d));
    for (int s = 0; s < x->pr.n_stage; s++) unroll_plan(&x->u[s], x->a, &x->pr);
    return exec_run(&x->r, x->a, &x->pr, x->u, &x->job, &ask, d);
}

/* ---- ops ---- */

/* Bytes that a price is of. */
static double bytes_of(const struct op *o, const struct work *w)
{
    const enum op_family f = op_family((enum op_kind)o->kind);
    return f == FAMILY_COMM || f == FAMILY_P2P ? w->wire_B : w->read_B + w->write_B;
}

static int32_t micro_of(const struct program *pr, const struct span *s, int stage)
{
    const struct step *t = &pr->step[stage][s->step];
    const struct op *o = &pr->op[s->op];
    return o->half == HALF_FWD ? t->micro[0] : o->half == HALF_BWD ? t->micro[1] : -1;
}

static enum err ops_of(struct probing *x, const struct trace *t, struct diag *d)
{
    struct load load = { 0 };
    int64_t *wait_ns = arena_alloc(x->a, (size_t)(t->n + 1) * sizeof *wait_ns);
    TRY(load_from_trace(&load, x->a, &x->pr, &x->job, t, d));
    trace_waits(wait_ns, t, &x->pr, &x->job, x->u);
    for (int64_t i = 0; i < t->n; i++) {
        const struct span *s = &t->span[i];
        const struct op *o = &x->pr.op[s->op];
        const int micro = micro_of(&x->pr, s, fold_coord(&x->job.plan, s->rank).pp);
        int64_t even[2] = { x->pr.even[0], x->pr.even[1] };
        if (load.rows && o->layer >= 0 && micro >= 0) load_rows(even, &load, &x->pr, s->rank, o->layer, micro);
        const struct work w = op_work(&x->pr, o, even);
        x->work[s->op].flop += w.flop;
        x->work[s->op].bytes += bytes_of(o, &w);
        x->work[s->op].units += cost_units(&x->pr, o, &w, &x->job);
        x->time[s->op][x->n_time[s->op]++] = 1e-9 * (double)(s->t1_ns - s->t0_ns - wait_ns[i]);
    }
    return OK;
}

static void sample_add(struct calibrate_run *r, struct probing *x, int op, int index)
{
    const struct op *o = &x->pr.op[op];
    const int times = x->n_time[op];
    const double s = range_quantile(x->time[op], times, 0.5);
    if (r->n == r->cap) {
        const int32_t more = r->cap ? 2 * r->cap : 1024;
        r->sample = arena_grow(r->a, r->sample, (size_t)r->cap, (size_t)more, sizeof *r->sample);
        r->cap = more;
    }
    r->sample[r->n++] = (struct calibrate_sample){
        .kind = o->kind, .members = fold_size(&x->job, (enum group)o->group), .probe = index,
        .flop = x->work[op].flop / times, .bytes = x->work[op].bytes / times, .units = x->work[op].units / times,
        .s = s, .n = times,
        .spread = (range_quantile(x->time[op], times, 0.75) - range_quantile(x->time[op], times, 0.25)) / 2 / s };
}

/* ---- what lies between ops ---- */

static void gap_add(struct calibrate_run *r, enum calibrate_gap which, int64_t ns)
{
    if (r->n_gap[which] == r->cap_gap[which]) {
        const int32_t more = r->cap_gap[which] ? 2 * r->cap_gap[which] : 4096;
        r->gap[which] = arena_grow(r->a, r->gap[which], (size_t)r->cap_gap[which], (size_t)more, sizeof(double));
        r->cap_gap[which] = more;
    }
    r->gap[which][r->n_gap[which]++] = 1e-9 * (double)ns;
}

/* `t`: one step. Items of a rank in list order; behind what the host reads everything waits for the host. */
static void gaps_of(struct calibrate_run *r, struct probing *x, const struct trace *t, int rank)
{
    const struct unroll *u = &x->u[fold_coord(&x->job.plan, rank).pp];
    int64_t *done_ns = arena_alloc(x->a, (size_t)u->n_item * sizeof *done_ns);
    int64_t free_ns[STREAM_COUNT] = { 0 }, read_ns = -1;
    for (int i = 0; i < u->n_item; i++) {
        const struct item *it = &u->item[i];
        const struct op *o = &x->pr.op[it->op];
        const struct span *s = trace_find(t, 0, rank, it->step, it->op);
        int64_t dep_ns = 0, *mine_ns = &free_ns[o->stream];
        for (int k = 0; k < it->n_dep; k++)
            if (done_ns[u->dep[it->dep + k]] > dep_ns) dep_ns = done_ns[u->dep[it->dep + k]];
        if (read_ns >= *mine_ns && read_ns >= dep_ns && read_ns > 0) gap_add(r, CALIBRATE_READ, s->t0_ns - read_ns);
        else if (dep_ns > *mine_ns) gap_add(r, CALIBRATE_WAKE, s->t0_ns - dep_ns);
        else if (*mine_ns > 0 && read_ns < 0) gap_add(r, CALIBRATE_NEXT, s->t0_ns - *mine_ns);
        read_ns = o->flags & OP_HOST_READS ? s->t1_ns : -1;
        done_ns[i] = *mine_ns = s->t1_ns;
    }
}

static enum err step_add(struct calibrate_run *r, struct probing *x, struct diag *d)
{
    const struct trace one = join_iteration(x->a, &x->r.trace, join_median_iteration(x->a, &x->r.trace));
    if (r->n_step == CALIBRATE_STEPS) return OK;
    struct calibrate_step *s = &r->step[r->n_step];
    *s = (struct calibrate_step){ .job = &x->job, .pr = &x->pr, .u = x->u, .measured_s = join_length_s(&one) };
    TRY(load_from_trace(&s->load, x->a, &x->pr, &x->job, &one, d));
    r->n_step++;
    return OK;
}

/* Room for every span of every op. */
static void probe_room(struct probing *x)
{
    const struct trace *t = &x->r.trace;
    const size_t n = (size_t)x->pr.n_op;
    int32_t *times = arena_alloc(x->a, n * sizeof *times);
    x->time = arena_alloc(x->a, n * sizeof *x->time);
    x->n_time = arena_alloc(x->a, n * sizeof *x->n_time);
    x->work = arena_alloc(x->a, n * sizeof *x->work);
    for (int64_t i = 0; i < t->n; i++) times[t->span[i].op]++;
    for (size_t i = 1; i < n; i++) x->time[i] = arena_alloc(x->a, ((size_t)times[i] + 1) * sizeof(double));
}

enum err calibrate_probe(struct calibrate_run *r, const struct calibrate_probe *p, int index, int steps,
                         struct diag *d)
{
    struct probing *x = arena_alloc(r->a, sizeof *x);
    x->a = r->a;
    enum err e = job_of(&x->job, x->a, p, r->cache_B, d);
    if (e == OK) e = probe_run(x, r->on, steps, d);
    if (e == OK) probe_room(x);
    for (int i = steps > 1; e == OK && i < steps; i++) {
        const struct trace one = join_iteration(x->a, &x->r.trace, i);
        e = ops_of(x, &one, d);
        for (int k = 0; e == OK && k < x->job.plan.gpus; k++) gaps_of(r, x, &one, k);
    }
    for (int i = 1; e == OK && i < x->pr.n_op; i++)
        if (x->n_time[i]) sample_add(r, x, i, index);
    if (e == OK && x->job.plan.gpus > 1) e = step_add(r, x, d);
    return e;
}
