/* From a job to the whole answer: build, price, simulate by max-plus, then look closer only where it matters:
 * the stage that finishes last for the lines of the step, the pass at each stage's peak for what is alive. */
#include "sim/predict.h"
#include "sim/peak.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

/* A micro-batch's buffer belongs to activations when backward reads what forward wrote. */
static double *part_of(struct predict_stage *m, const struct cost *c, int buf)
{
    const int used = c->flow.used[buf];
    switch (c->pr->buf[buf].keep) {
    case KEEP_WEIGHT: return &m->params_B;
    case KEEP_GRADIENT: return &m->grads_B;
    case KEEP_OPTIMIZER: return &m->optimizer_B;
    case KEEP_METRIC: case KEEP_CACHE: return &m->buffers_B;
    default: return used & FLOW_FWD && used & ~FLOW_FWD ? &m->activations_B : &m->buffers_B;
    }
}

static struct predict_stage stage_parts(const struct cost *c, const struct peak *k, int stage)
{
    const struct program *pr = c->pr;
    struct predict_stage m = { 0 };
    for (int i = 1; i < pr->n_buf; i++) {
        const struct buf *b = &pr->buf[i];
        const int32_t n = b->keep == KEEP_MICRO ? k->n[i] : b->stage == stage;
        if (n == 0 || b->view || b->place == PLACE_HOST) continue;
        *(b->place == PLACE_PEER ? &m.peers_B : part_of(&m, c, i)) += (double)program_B(pr, i) * n;
    }
    for (int i = 1; i < pr->n_op; i++) {
        const int32_t x = pr->op[i].graph == OP_GRAPH_INPUT ? pr->op[i].io.write[0] : 0;
        if (x) m.graphs_B += (double)program_B(pr, x) * k->n[x];
    }
    m.activations_B -= m.graphs_B;
    m.peak_B = predict_device_B(c->job, k->live_B);
    m.overhead_B = m.peak_B - k->live_B + m.graphs_B + m.peers_B;
    return m;
}

/* The planned total of a stage, or 0 where memory is a framework's or planning would take too long. */
static double planned_B(const struct cost *c, int stage)
{
    struct arena scratch = { 0 };
    struct unroll u;
    unroll_stage(&u, &scratch, c->pr, stage);
    unroll_plan(&u, &scratch, c->pr);
    const double arena_B = (double)u.arena_B;
    arena_free(&scratch);
    return arena_B;
}

static int is_planned(const struct cost *c)
{
    const struct program *pr = c->pr;
    int64_t items = 0;
    for (int s = 0; s < pr->n_stage; s++)
        for (int k = 0; k < pr->n_step[s]; k++) items += pr->pass[pr->step[s][k].pass].n;
    return c->job->stack.arena && items <= PREDICT_PLANNED_ITEMS;
}

static void peak_text(char *to, size_t to_B, const struct program *pr, const struct peak *k, int stage)
{
    const struct pass *p = &pr->pass[pr->step[stage][k->step].pass];
    const struct op *o = &pr->op[k->op];
    int n = snprintf(to, to_B, "stage %d, step %d, %s", stage, k->step, program_pass_name((enum pass_kind)p->kind));
    if (o->half != HALF_STEP) n += snprintf(to + n, to_B - (size_t)n, " of chunk %d", p->chunk[o->half == HALF_BWD]);
    snprintf(to + n, to_B - (size_t)n, ": %s", op_name((enum op_kind)o->kind));
}

/* The op that first writes a buffer names it. */
static int32_t *writers_of(struct arena *a, const struct program *pr)
{
    int32_t *writer = arena_alloc(a, (size_t)pr->n_buf * sizeof *writer);
    for (int i = 1; i < pr->n_op; i++)
        for (int w = 0; w < OP_WRITES; w++) {
            const int root = pr->op[i].io.write[w] ? program_root(pr, pr->op[i].io.write[w]) : 0;
            if (root && !writer[root]) writer[root] = i;
        }
    return writer;
}

static int by_bytes(const void *a, const void *b)
{
    const struct predict_alive *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : strcmp(x->what, y->what);
}

/* Instances of one shape that ops of one kind wrote are one line. */
static void list_alive(struct predict *r, const struct cost *c, const struct peak *k)
{
    const struct program *pr = c->pr;
    struct arena scratch = { 0 };
    const int32_t *writer = writers_of(&scratch, pr);
    struct predict_alive *all = arena_alloc(&scratch, (size_t)pr->n_buf * sizeof *all);
    int n = 0;
    for (int i = 1; i < pr->n_buf; i++) {
        const struct buf *b = &pr->buf[i];
        struct predict_alive x = { .bytes = (double)program_B(pr, i) * k->n[i], .n = k->n[i] };
        if (k->n[i] == 0 || b->place != PLACE_DEVICE) continue;
        snprintf(x.what, sizeof x.what, "%s [%lld x %d %s]", op_name((enum op_kind)pr->op[writer[i]].kind),
                 (long long)b->rows, b->cols, dtype_name((enum dtype)b->dtype));
        int at = 0;
        while (at < n && strcmp(all[at].what, x.what)) at++;
        if (at == n) all[n++] = (struct predict_alive){ .n = 0 }, memcpy(all[at].what, x.what, sizeof x.what);
        all[at].bytes += x.bytes;
        all[at].n += x.n;
    }
    qsort(all, (size_t)n, sizeof *all, by_bytes);
    r->n_alive = n < PREDICT_ALIVE ? n : PREDICT_ALIVE;
    memcpy(r->alive, all, (size_t)r->n_alive * sizeof *all);
    arena_free(&scratch);
}

/* More rows than a routed buffer holds end a run. */
static int overflows(struct predict *r, const struct job *j)
{
    const double rows = r->load.most, holds = (double)plan_capacity_rows(j, 0);
    if (!load_overflows(&r->load, j)) return 0;
    snprintf(r->reason, sizeof r->reason,
             "load %s sends %.0f rows to a rank, but capacity %g holds %.0f: a run would stop; use capacity %g",
             j->plan.load, rows, j->plan.capacity, holds, ceil(1000 * rows / (double)plan_even_rows(j, 0)) / 1000);
    return 1;
}

static void judge(struct predict *r, const struct job *j)
{
    const struct predict_stage *m = &r->stage[r->worst_stage];
    const double gib = 1.0 / (1 << 30);
    const int on_host = r->host_B <= j->system.host_memory_B;
    r->feasible = m->peak_B <= r->capacity_B && on_host && !overflows(r, j);
    if (r->feasible || r->reason[0]) return;
    if (!on_host) {
        snprintf(r->reason, sizeof r->reason,
                 "the host of %s, not the GPU: it would hold %.2f GiB for each GPU and has %.2f GiB (%.2f of %d data workers, "
                 "%d on a host): fewer of these, or offload less",
                 j->system.name, r->host_B * gib, j->system.host_memory_B * gib,
                 j->plan.data_workers * j->stack.data_worker_B * gib, j->plan.data_workers,
                 j->plan.data_workers * j->system.gpus_per_host);
        return;
    }
    snprintf(r->reason, sizeof r->reason,
             "stage %d needs %.2f GiB (%.2f at its peak, %.2f of overhead), a GPU of %s has %.2f GiB: "
             "%.2f too much; recompute, or raise pp, ep or tp",
             r->worst_stage, m->peak_B * gib, (m->peak_B - m->overhead_B) * gib, m->overhead_B * gib, j->system.name,
             r->capacity_B * gib, (m->peak_B - r->capacity_B) * gib);
}

static void memory_of(struct predict *r, struct arena *a, const struct cost *c, const struct pass_price *price)
{
    const int n = c->pr->n_stage, planned = is_planned(c);
    struct arena scratch = { 0 };
    struct peak *k = arena_alloc(&scratch, (size_t)n * sizeof *k);
    double *arena_B = arena_alloc(&scratch, (size_t)n * sizeof *arena_B);
    r->stage = arena_alloc(a, (size_t)n * sizeof *r->stage);
    r->n_stage = n;
    for (int s = 0; s < n; s++) {
        peak_of(&k[s], &scratch, c, price, s);
        r->host_B = fmax(r->host_B, peak_host_B(c, s));
        r->stage[s] = stage_parts(c, &k[s], s);
        if (planned) {
            arena_B[s] = planned_B(c, s);
            r->stage[s].buffers_B += arena_B[s] - k[s].live_B;
            r->stage[s].peak_B = predict_device_B(c->job, arena_B[s]);
            r->stage[s].overhead_B =
                r->stage[s].peak_B - arena_B[s] + r->stage[s].graphs_B + r->stage[s].peers_B;
        }
        if (r->stage[s].peak_B > r->stage[r->worst_stage].peak_B) r->worst_stage = s;
    }
    r->host_B += c->job->plan.data_workers * c->job->stack.data_worker_B;
    const int w = r->worst_stage;
    r->live_B = k[w].live_B;
    r->arena_B = arena_B[w];
    r->peak_B = planned ? arena_B[w] : k[w].live_B;
    r->capacity_B = c->job->system.memory_B;
    peak_text(r->peak_at, sizeof r->peak_at, c->pr, &k[w], w);
    list_alive(r, c, &k[w]);
    judge(r, c->job);
    arena_free(&scratch);
}

/* ---- time ---- */

static void time_of(struct predict *r, const struct cost *c, const double *op_s, const struct pass_price *price)
{
    struct arena scratch = { 0 };
    struct play p;
    struct sim_result step;
    const int played = play_run(&p, &scratch, c, op_s, price);
    sim_result_of(&step, &scratch, &p, played);
    r->step_s = step.step_s;
    if (played) sim_account_replay(&r->lines, &p, step.last_stage);
    arena_free(&scratch);
}

double predict_step_s(const struct program *pr, const struct job *j)
{
    struct arena scratch = { 0 };
    struct program own = *pr;
    struct cost c;
    struct sim_result step;
    struct play p;
    own.arena = &scratch;               /* what a price needs goes with it, not with the program */
    cost_init(&c, &own, j);
    const double *op_s = cost_all_s(&c, &scratch);
    const struct pass_price *price = pass_price_all(&c, op_s, &scratch);
    const int played = play_run(&p, &scratch, &c, op_s, price);
    sim_result_of(&step, &scratch, &p, played);
    arena_free(&scratch);
    return step.step_s;
}

void predict_rates(struct predict *r, const struct job *j)
{
    const double tok = (double)j->plan.gbs * j->plan.seq;
    r->peak_dtype = (int)dtype_peak(recipe_of(j->plan.precision)->x);
    r->peak_flop_per_s = cost_peak(&j->system, (enum dtype)r->peak_dtype);
    r->flop_per_token = model_flop_per_token(&j->model, plan_context(&j->plan), j->plan.vocab_padded);
    r->tokens_per_s_gpu = tok / r->step_s / j->plan.gpus;
    r->tflops_gpu = r->tokens_per_s_gpu * r->flop_per_token / 1e12;
    r->mfu = r->tflops_gpu * 1e12 / r->peak_flop_per_s;
}

/* What of the prices is extrapolated. */
static void off_grid_of(struct predict *r, const struct cost *c, const double *op_s)
{
    double all_s = 0, off_s = 0;
    for (int o = 1; o < c->pr->n_op; o++) {
        const enum op_family f = op_family((enum op_kind)c->pr->op[o].kind);
        if (f != FAMILY_GEMM && f != FAMILY_GROUPED && f != FAMILY_ATTENTION) continue;
        const int off = cost_off_grid(c, o);
        r->n_priced++;
        r->n_off_grid += off;
        all_s += op_s[o];
        off_s += off ? op_s[o] : 0;
    }
    r->off_grid_share = all_s > 0 ? off_s / all_s : 0;
}

void predict_job(struct predict *r, struct program *pr, struct arena *a, const struct job *j)
{
    struct program own;
    struct cost c;
    *r = (struct predict){ .params = model_params(&j->model) };
    if (!pr) pr = &own;
    program_build(pr, a, j);
    load_apply(pr, j);
    r->load = load_spread(j);
    cost_init(&c, pr, j);
    const double *op_s = cost_all_s(&c, a);
    const struct pass_price *price = pass_price_all(&c, op_s, a);
    memcpy(r->place, c.place, sizeof r->place);
    time_of(r, &c, op_s, price);
    memory_of(r, a, &c, price);
    off_grid_of(r, &c, op_s);
    predict_rates(r, j);
}
