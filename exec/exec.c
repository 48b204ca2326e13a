/* A run: refuses what it cannot run, opens all ranks, starts their host threads, and makes the result. */
#include "exec/exec_rank.h"
#include "models/base/units.h"
#include <malloc.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* Linux promises memory that it does not have, and ends processes later: better to say no before. */
static enum err exec_fits(const struct unroll *u, const struct job *j, const struct exec_ask *ask, struct diag *d)
{
    const double have_B = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double need_B = 0;
    char need[32], have[32];
    for (int r = 0; r < j->plan.gpus; r++)
        if (!ask->world || ask->seat.process == r) need_B += (double)unroll_memory_B(&u[fold_coord(&j->plan, r).pp]);
    if (need_B <= have_B) return OK;
    return fail(d, ERR_NO,
                "the arenas of %d ranks need %s, this host has %s of memory; use a smaller model, fewer "
                "ranks or a shorter sequence",
                j->plan.gpus, units_human(need, sizeof need, need_B, UNIT_B),
                units_human(have, sizeof have, have_B, UNIT_B));
}

static enum err exec_refuse(const struct program *pr, const struct unroll *u, const struct job *j,
                            const struct exec_ask *ask, struct diag *d)
{
    if (!j->stack.runs)
        return fail(d, ERR_CONFIG,
                    "stack %s is predicted, not run: the executor does what stack moefold describes; "
                    "use --stack moefold",
                    j->stack.name);
    if (j->plan.precision != PRECISION_FP32 && j->plan.precision != PRECISION_BF16)
        return fail(d, ERR_CONFIG, "precision %s does not run on the cpu backend: use --precision fp32 or bf16",
                    recipe_of(j->plan.precision)->name);
    if (ask->steps < 1) return fail(d, ERR_CONFIG, "--steps %d; at least 1 is needed", ask->steps);
    if (!ask->data && ask->text_n < 1) return fail(d, ERR_CONFIG, "the training text is empty; at least 1 byte is needed");
    if (j->plan.packed) {
        const struct data text = data_of_text(ask->text, ask->text_n);
        TRY(data_documents_check(ask->data ? ask->data : &text, j->plan.eod, d));
    }
    if (ask->routes) TRY(routes_check(ask->routes, j, ask->routes_from + ask->steps, d));
    if (ask->world) TRY(exec_world_check(ask->world, &ask->seat, j, ask->routes && !ask->replay, ask->processes, d));
    if (ask->processes && ask->on)
        return fail(d, ERR_CONFIG, "backend %s runs ranks as threads: use --ranks-as thread", ask->on->name);
    TRY(unroll_check(u, pr, 1, d));
    return ask->on ? OK : exec_fits(u, j, ask, d);
}

static void exec_find_least(struct exec_shared *x, struct arena *a)
{
    const struct buf *buf = x->pr->buf;
    x->least = arena_alloc(a, (size_t)x->pr->n_buf * sizeof *x->least);
    for (int id = 1; id < x->pr->n_buf; id++) {
        if (!buf[id].size) continue;
        int32_t *least = &x->least[buf[id].size][buf[id].size_at];
        if (!*least || buf[id].rows < buf[*least].rows) *least = id;
    }
}

/* What loss and gradient are means over, where they leave out documents' last tokens. */
static enum err exec_count_loss(struct exec_shared *x, struct arena *a, struct diag *d)
{
    const struct plan *p = &x->j->plan;
    int64_t most = 0;
    if (!(p->packed >> PACKED_LOSS & 1)) return OK;
    x->loss_tokens = arena_alloc(a, (size_t)x->ask->steps * sizeof *x->loss_tokens);
    for (int s = 0; s < x->ask->steps; s++) {
        const int64_t first = x->ask->first_seq + (int64_t)s * p->gbs;
        const int64_t n = data_loss_tokens(&x->data, (enum data_part)x->ask->part, p->eod, p->seq, first, p->gbs);
        x->loss_tokens[s] = n > 0 ? n : 1;      /* none: the step's loss is 0 */
        if (n > most) most = n;
    }
    if (most == 0)
        return fail(d, ERR_CONFIG,
                    "every token of %d steps of %d sequences of %d ends a document, which packed loss leaves out: "
                    "nothing to learn from; give the tokenizer's end token as --eod, or leave loss out of --packed",
                    x->ask->steps, p->gbs, p->seq);
    return OK;
}

/* A launcher's scratch holds what it sends in floats, once for each member at most of a dispatch: a few times what its
 * operands take. Pages that are not used cost nothing. */
static int64_t exec_stage_B(const struct exec_shared *x)
{
    enum { TIMES = 4, LEAST_B = 1 << 20 };
    int64_t most_B = 0;
    for (int s = 0; s < x->pr->n_stage; s++)
        if (x->u[s].arena_B > most_B) most_B = x->u[s].arena_B;
    return TIMES * most_B + LEAST_B;
}

static enum err exec_open(struct exec_shared *x, struct arena *a, struct diag *d)
{
    const int traced = x->ask->iters_traced;
    lock_open(&x->lock);
    x->backend = x->ask->backend ? x->ask->backend
                 : x->ask->on    ? x->ask->on->launch
                                 : backend_cpu_table(&x->j->plan);
    x->data = x->ask->data ? *x->ask->data : data_of_text(x->ask->text, x->ask->text_n);
    x->kernels = x->ask->kernels ? x->ask->kernels : kernels_fast(0);
    x->arena = a;
    x->comm_ops = x->ask->world ? x->ask->world->ops : &comm_shm;
    if (x->ask->world) TRY(x->ask->world->begin(&x->run, a, x->ask->timeout_s, d));
    else x->shm = comm_shm_open(a, x->ask->timeout_s);
    if (x->ask->processes) comm_shm_reserve(x->shm, exec_stage_B(x));
    if (x->ask->on) comm_shm_move_by(x->shm, x->ask->on->mover);
    x->n_rank = x->j->plan.gpus;
    x->n_traced = traced > 0 && traced < x->ask->steps ? traced : x->ask->steps;
    x->rank = arena_alloc(a, (size_t)x->n_rank * sizeof *x->rank);
    exec_find_least(x, a);
    TRY(exec_count_loss(x, a, d));
    for (int i = 0; i < x->n_rank; i++) TRY(exec_rank_open(&x->rank[i], x, a, i, d));
    return OK;
}

static void exec_go(struct exec_shared *x)
{
    struct diag d;
    int started = 0;
    for (; started < x->n_rank; started++)
        if (pthread_create(&x->rank[started].thread, NULL, exec_rank_main, &x->rank[started]) != 0) {
            exec_rank_fail(&x->rank[started],
                           fail(&d, ERR_LIMIT, "no thread for rank %d; run fewer ranks", started), &d);
            break;
        }
    for (int i = 0; i < started; i++) pthread_join(x->rank[i].thread, NULL);
}

/* Loss and gradient norm are sums over WORLD: all ranks hold the same. */
static void exec_collect_steps(struct exec_result *res, struct arena *a, const struct exec_shared *x,
                               int64_t start_ns)
{
    res->n_step = x->ask->steps;
    const struct exec_rank *first = &x->rank[x->ask->world ? x->ask->seat.process : 0];
    res->step = arena_alloc(a, (size_t)res->n_step * sizeof *res->step);
    for (int s = 0; s < res->n_step; s++) {
        int64_t end_ns = start_ns;
        for (int i = 0; i < x->n_rank; i++)
            if (x->rank[i].end_ns[s] > end_ns) end_ns = x->rank[i].end_ns[s];
        res->step[s] = first->step[s];
        res->step[s].step_s = (double)(end_ns - start_ns) * 1e-9;
        start_ns = end_ns;
    }
}

static void exec_collect_trace(struct exec_result *res, struct arena *a, const struct exec_shared *x)
{
    struct trace *t = &res->trace;
    int64_t n = 0;
    for (int i = 0; i < x->n_rank; i++) n += (int64_t)x->rank[i].u->n_item * x->n_traced;
    *t = (struct trace){ .head = { .program_hash = program_hash(x->pr), .source = "measured", .n_rank = x->n_rank,
                                   .n_iter = x->n_traced } };
    memcpy(t->head.system, x->j->system.name, sizeof t->head.system);
    t->span = arena_alloc(a, (size_t)n * sizeof *t->span);
    for (int i = 0; i < x->n_rank; i++) {
        const int64_t mine = (int64_t)x->rank[i].u->n_item * x->n_traced;
        memcpy(t->span + t->n, x->rank[i].span, (size_t)mine * sizeof *t->span);
        t->n += mine;
    }
    trace_sort(t);
}

static enum err exec_collect(struct exec_result *res, struct arena *a, const struct exec_shared *x,
                             int64_t start_ns, struct diag *d)
{
    exec_collect_steps(res, a, x, start_ns);
    exec_collect_trace(res, a, x);
    res->live_B = arena_alloc(a, (size_t)x->n_rank * sizeof *res->live_B);
    res->touched_B = arena_alloc(a, (size_t)x->n_rank * sizeof *res->touched_B);
    res->score_gap = INFINITY;
    for (int i = 0; i < x->n_rank; i++) {
        const struct exec_rank *r = &x->rank[i];
        res->live_B[i] = r->life.most_B;
        res->touched_B[i] = r->life.touched_B;
        if (r->score_gap < res->score_gap) res->score_gap = r->score_gap;
        const int open = exec_rank_here(x, i) ? exec_life_open_count(&r->life, r) : 0;
        if (open) return fail(d, ERR_NO, "rank %d: %d buffers were born but did not die", r->rank, open);
    }
    return OK;
}

/* Launchers take scratch and give it back, every time: without this the C library returns large pieces to the system
 * each time and every page is cleared again. */
static void exec_keep_scratch(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

static enum err exec_agree(const struct exec_shared *x, enum err e, struct diag *d)
{
    return x->ask->world ? x->ask->world->agree(e, d) : e;
}

static enum err exec_open_and_go(struct exec_result *res, struct arena *a, struct arena *own, struct exec_shared *x,
                                 struct diag *d)
{
    exec_keep_scratch();
    TRY(exec_agree(x, exec_open(x, own, d), d));
    x->start_ns = bell_now_ns();
    if (x->ask->processes) exec_fork_go(x);
    else if (x->ask->world) exec_rank_main(&x->rank[x->ask->seat.process]);
    else exec_go(x);
    if (x->e != OK) *d = x->d;
    TRY(exec_agree(x, x->e, d));
    if (x->ask->world) exec_world_share(x);
    return exec_agree(x, exec_collect(res, a, x, x->start_ns, d), d);
}

enum err exec_run(struct exec_result *r, struct arena *a, const struct program *pr, const struct unroll *u,
                  const struct job *j, const struct exec_ask *ask, struct diag *d)
{
    struct exec_result res = { 0 };
    struct arena own = { .shared = ask->processes };
    TRY(exec_refuse(pr, u, j, ask, d));
    struct exec_shared *x = arena_alloc(&own, sizeof *x);
    *x = (struct exec_shared){ .pr = pr, .u = u, .j = j, .ask = ask };
    const enum err e = exec_open_and_go(&res, a, &own, x, d);
    if (e == OK) *r = res;
    for (int i = 0; i < x->n_rank; i++) exec_rank_close(&x->rank[i]);
    if (x->run) ask->world->end(x->run);
    arena_free(&own);
    return e;
}
