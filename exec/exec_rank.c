/* A rank: what it owns, and its host thread, which issues the list step after step. The host is never ahead of
 * an item flagged HOST_READS, and never of the end of a step. */
#include "exec/exec_rank.h"
#include "exec/exec_param.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGN = 64, CANARY_B = 64, CANARY = 0xc5 };

void exec_rank_fail(struct exec_rank *r, enum err e, const struct diag *d)
{
    struct exec_shared *x = r->x;
    lock_take(&x->lock);
    if (x->e == OK) {
        x->e = e;
        x->d = *d;
    }
    lock_give(&x->lock);
    atomic_store(&x->stop, 1);
    struct diag why;
    fail(&why, ERR_COMM, "rank %d stopped: %.400s", r->rank, d->text);
    if (x->ask->world) x->ask->world->stop(x->run, why.text);
    else comm_shm_break(x->shm, why.text);
    for (int i = 0; i < x->n_rank; i++) {
        bell_ring(&x->rank[i].host);
        for (int s = 0; s < STREAM_COUNT; s++) bell_ring(&x->rank[i].lane[s].bell);
    }
}

/* ---- opening ---- */

static struct comm *exec_rank_meet(struct exec_rank *r, const char *name, int64_t key, int me, int n, const int32_t *rank)
{
    const struct exec_shared *x = r->x;
    if (!x->ask->world) return comm_shm_join(x->shm, name, key, me, n, rank);
    return x->ask->world->join(x->run, name, key, exec_rank_here(x, r->rank) ? me : -1, n, rank);
}

/* A pair is known by its sender and direction: NEXT of one rank and PREV of the other are the same pair. */
static struct comm *exec_rank_join_pair(struct exec_rank *r, const struct op *o, const int32_t pair[2])
{
    const int sends = o->kind == OP_SEND, forward = o->stream == STREAM_SEND_F || o->stream == STREAM_RECV_F;
    const int32_t peer = pair[0] == r->rank ? pair[1] : pair[0];
    const int32_t ends[2] = { sends ? r->rank : peer, sends ? peer : r->rank };
    return exec_rank_meet(r, forward ? "pp forward" : "pp backward", ends[0], !sends, 2, ends);
}

static void exec_rank_take_seat(struct exec_rank *r, struct arena *a, enum group g)
{
    const int n = fold_size(r->x->j, g);
    if (n < 2 || r->member[g]) return;
    r->member[g] = arena_alloc(a, (size_t)n * sizeof *r->member[g]);
    r->me[g] = fold_members(r->x->j, g, r->rank, r->member[g]);
    r->members[g] = n;
}

/* Optimizer ops name a group only for their part of a bucket; they need no communicator. */
static void exec_rank_join(struct exec_rank *r, struct arena *a, const struct op *o)
{
    const enum group g = (enum group)o->group;
    const enum op_family family = op_family((enum op_kind)o->kind);
    exec_rank_take_seat(r, a, g);
    if (!r->member[g] || r->joined[g] >> o->stream & 1) return;
    if (family == FAMILY_P2P || family == FAMILY_COMM) r->joined[g] |= 1u << o->stream;
    if (family == FAMILY_P2P) r->comm[g][o->stream] = exec_rank_join_pair(r, o, r->member[g]);
    if (family == FAMILY_COMM)
        r->comm[g][o->stream] = exec_rank_meet(r, fold_group_name(g), r->member[g][0], r->me[g], r->members[g], r->member[g]);
}

/* Which streams wait for which items, and each stream's own items in list order. */
static void exec_rank_sort_items(struct exec_rank *r, struct arena *a)
{
    const struct unroll *u = r->u;
    const struct op *op = r->x->pr->op;
    for (int i = 0; i < u->n_item; i++) r->lane[op[u->item[i].op].stream].n_item++;
    for (int s = 0; s < STREAM_COUNT; s++) {
        r->lane[s].item = arena_alloc(a, (size_t)r->lane[s].n_item * sizeof(int32_t));
        r->lane[s].n_item = 0;
        r->lane[s].r = r;
    }
    for (int i = 0; i < u->n_item; i++) {
        const struct item *it = &u->item[i];
        struct lane *l = &r->lane[op[it->op].stream];
        l->item[l->n_item++] = i;
        if (op[it->op].flags & OP_HOST_READS) r->concerns[i] |= 1u << STREAM_COUNT;
        for (int k = 0; k < it->n_dep; k++) r->concerns[u->dep[it->dep + k]] |= 1u << op[it->op].stream;
    }
    for (int s = 0; s < STREAM_COUNT; s++)
        if (r->lane[s].n_item) r->concerns[r->lane[s].item[r->lane[s].n_item - 1]] |= 1u << STREAM_COUNT;
}

static char *exec_rank_memory(struct exec_rank *r, int64_t size_B)
{
    const struct exec_ask *ask = r->x->ask;
    if (ask->processes) {
        const uintptr_t at = (uintptr_t)arena_alloc(r->x->arena, (size_t)size_B + ALIGN);
        return (char *)((at + ALIGN - 1) / ALIGN * ALIGN);
    }
    return ask->on ? ask->on->arena_new(size_B) : aligned_alloc(ALIGN, (size_t)size_B);
}

static enum err exec_rank_make_arena(struct exec_rank *r, struct diag *d)
{
    const int64_t memory_B = unroll_memory_B(r->u), size_B = (memory_B + CANARY_B + ALIGN - 1) / ALIGN * ALIGN;
    r->arena = exec_rank_memory(r, size_B);
    if (!r->arena)
        return fail(d, ERR_LIMIT, "rank %d: no %s memory for its arena of %lld bytes", r->rank,
                    r->x->ask->on ? r->x->ask->on->name : "host", (long long)memory_B);
    memset(r->arena, 0, (size_t)memory_B);
    memset(r->arena + r->u->arena_B, CANARY, CANARY_B);     /* host_at leaves room for it */
    memset(r->arena + memory_B, CANARY, CANARY_B);
    exec_param_init(r->x->pr, r->u, r->x->j, r->rank, r->arena);
    if (r->x->ask->before) r->x->ask->before(r->x->ask->user, r->rank, r->u, r->arena);
    if (r->x->ask->on) r->x->ask->on->arena_filled(r->arena, r->u->arena_B);
    return OK;
}

enum err exec_rank_open(struct exec_rank *r, struct exec_shared *x, struct arena *a, int rank, struct diag *d)
{
    const size_t steps = (size_t)x->ask->steps;
    *r = (struct exec_rank){ .x = x, .rank = rank, .at = fold_coord(&x->j->plan, rank), .score_gap = INFINITY };
    r->u = &x->u[r->at.pp];
    const size_t n = (size_t)r->u->n_item;
    for (int g = 0; g < GROUP_COUNT; g++) r->members[g] = 1;
    for (size_t i = 0; i < n; i++) exec_rank_join(r, a, &x->pr->op[r->u->item[i].op]);
    r->span = arena_alloc(a, n * (size_t)x->n_traced * sizeof *r->span);
    r->end_ns = arena_alloc(a, steps * sizeof *r->end_ns);
    if (!exec_rank_here(x, rank)) return OK;
    r->step = arena_alloc(a, steps * sizeof *r->step);
    r->done = arena_alloc(a, n * sizeof *r->done);
    r->concerns = arena_alloc(a, n * sizeof *r->concerns);
    exec_rank_sort_items(r, a);
    exec_life_open(&r->life, a, r);
    TRY(exec_mark_open(r, a, d));
    return exec_rank_make_arena(r, d);
}

void exec_rank_close(struct exec_rank *r)
{
    exec_mark_close(r);
    if (!r->arena) return;              /* not opened, when an earlier one failed */
    if (r->x->ask->on) r->x->ask->on->arena_free(r->arena);
    else if (!r->x->ask->processes) free(r->arena);
    r->arena = NULL;
}

/* ---- running ---- */

static int exec_rank_canary_at(struct exec_rank *r, int64_t at, int step)
{
    struct diag d;
    for (int i = 0; i < CANARY_B; i++) {
        if ((unsigned char)r->arena[at + i] == CANARY) continue;
        exec_rank_fail(
            r,
            fail(&d, ERR_NO,
                 "rank %d wrote behind its arena of %lld bytes in step %d: a kernel or a shape is wrong",
                 r->rank, (long long)at, step),
            &d);
        return 0;
    }
    return 1;
}

static int exec_rank_canary(struct exec_rank *r, int step)
{
    return exec_rank_canary_at(r, r->u->arena_B, step) && exec_rank_canary_at(r, unroll_memory_B(r->u), step);
}

/* Until the last item of a list, or one that the host reads, is done, not only launched; 0: the run stops. */
static int exec_rank_wait(struct exec_rank *r, int item, int step)
{
    struct diag d;
    if (!exec_lane_wait_done(r, &r->host, item, step)) return 0;
    const enum err e = exec_mark_reached(r, item, &d);
    if (e != OK) exec_rank_fail(r, e, &d);
    return e == OK;
}

static int exec_rank_issue(struct exec_rank *r, int step)
{
    for (int i = 0; i < r->u->n_item; i++) {
        const struct item *it = &r->u->item[i];
        const struct op *o = &r->x->pr->op[it->op];
        exec_life_issue(&r->life, r, it);
        atomic_store(&r->issued, (int64_t)step * r->u->n_item + i + 1);
        bell_ring(&r->lane[o->stream].bell);
        if (o->flags & OP_HOST_READS && !exec_rank_wait(r, i, step)) return 0;
        if (atomic_load(&r->x->stop)) return 0;
    }
    return 1;
}

static int exec_rank_drain(struct exec_rank *r, int step)
{
    for (int s = 0; s < STREAM_COUNT; s++) {
        const struct lane *l = &r->lane[s];
        if (l->n_item && !exec_rank_wait(r, l->item[l->n_item - 1], step)) return 0;
    }
    return 1;
}

static void exec_rank_read_metrics(struct exec_rank *r, int step)
{
    const struct item once = { .micro = -1 };
    const float *m =
        (const float *)(void *)(r->arena +
                                unroll_life(r->u, r->x->pr, &once, r->x->pr->metric + r->at.pp)->offset);
    r->step[step] = (struct exec_step){ .loss = m[0], .mtp_loss = m[1], .balance_loss = m[3],
                                          .grad_norm = sqrt(m[2]) };
}

/* All ranks hold the same losses: the first one speaks. */
static int exec_rank_finite(struct exec_rank *r, int step)
{
    const struct exec_step *s = &r->step[step];
    const struct plan *p = &r->x->j->plan;
    struct diag d;
    if (r->rank != 0 || (isfinite(s->loss) && isfinite(s->mtp_loss) && isfinite(s->balance_loss) && isfinite(s->grad_norm))) return 1;
    exec_rank_fail(r,
                   fail(&d, ERR_NO,
                        "step %lld: loss or gradient norm is no finite number; lower lr (%g), or clip (%g)",
                        (long long)r->x->ask->first_step + step, p->lr, p->clip),
                   &d);
    return 0;
}

/* A process has no hold on what its parent's hook writes: that calls it (exec_fork.c). */
static void exec_rank_report(struct exec_rank *r, int step)
{
    const struct exec_ask *ask = r->x->ask;
    if (!ask->processes) ask->report(ask->user, step, &r->step[step]);
    else if (write(r->told, &step, sizeof step) != sizeof step) atomic_store(&r->x->stop, 1);
}

static int exec_rank_step(struct exec_rank *r, int step)
{
    const struct exec_ask *ask = r->x->ask;
    struct diag d;
    const enum err e = exec_mark_clock(r, &d);
    if (e != OK) exec_rank_fail(r, e, &d);
    if (e != OK || !exec_rank_issue(r, step) || !exec_rank_drain(r, step)) return 0;
    r->end_ns[step] = bell_now_ns();
    exec_mark_spans(r, step);
    exec_rank_read_metrics(r, step);
    r->step[step].step_s = 1e-9 * (double)(r->end_ns[step] - (step ? r->end_ns[step - 1] : r->x->start_ns));
    if (ask->report && r->rank == 0) exec_rank_report(r, step);
    if (ask->stop_at_nan && !exec_rank_finite(r, step)) return 0;
    if (ask->after_step) ask->after_step(ask->user, r->rank, step, r->u, r->arena);
    return exec_rank_canary(r, step);
}

void *exec_rank_main(void *rank)
{
    struct exec_rank *r = rank;
    struct diag d;
    for (int s = 0; s < STREAM_COUNT; s++) {
        struct lane *l = &r->lane[s];
        if (!l->n_item) continue;
        l->started = pthread_create(&l->thread, NULL, exec_lane_main, l) == 0;
        if (!l->started)
            exec_rank_fail(r,
                           fail(&d, ERR_LIMIT, "rank %d: no thread for its stream %s; run fewer ranks", r->rank,
                                op_stream_name((enum stream)s)),
                           &d);
    }
    for (int step = 0; step < r->x->ask->steps; step++)
        if (!exec_rank_step(r, step)) break;
    for (int s = 0; s < STREAM_COUNT; s++)
        if (r->lane[s].started) pthread_join(r->lane[s].thread, NULL);
    return NULL;
}
