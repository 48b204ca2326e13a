#include "exec/lock.h"
#include "exec/train.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A run in the making. Lies in `kept`, with all that ranks write. */
struct train {
    struct train_result *r;
    struct arena *a, *kept;
    const struct program *pr; const struct unroll *u; const struct job *j; const struct train_ask *ask;
    struct state state; int32_t has_state;
    struct train_forward *forward;
    int64_t from, end, first_seq;       /* the piece: steps [from, end); sequences before the first piece */
    int32_t saves;                      /* the piece ends with a checkpoint */
    struct checkpoint checkpoint;
    struct lock lock;                   /* guards e and d */
    enum err e; struct diag d;          /* of the shards */
};

/* ---- hooks: inside a piece ---- */

static void train_before(void *user, int rank, const struct unroll *u, char *arena)
{
    const struct train *t = user;
    if (t->has_state) state_put(&t->state, rank, u, arena);
}

static void train_report(void *user, int step, const struct exec_step *s)
{
    struct train *t = user;
    t->r->step[t->r->n_step++] = *s;
    if (t->ask->on_step) t->ask->on_step(t->ask->user, t->from + step, s);
}

static int train_keeps_state(const struct train *t)
{
    return t->saves || t->ask->evals || t->end < t->ask->steps;
}

static void train_after(void *user, int rank, int step, const struct unroll *u, const char *arena)
{
    struct train *t = user;
    struct diag d;
    if (t->from + step + 1 < t->end || !train_keeps_state(t)) return;
    state_take(&t->state, rank, u, arena);
    const enum err e = t->saves ? checkpoint_shard(&t->checkpoint, &t->state, rank, &d) : OK;
    if (e == OK) return;
    lock_take(&t->lock);
    if (t->e == OK) {
        t->e = e;
        t->d = d;
    }
    lock_give(&t->lock);
}

/* ---- a world's processes ---- */

static int train_leads(const struct train *t)
{
    return !t->ask->world || t->ask->seat.process == 0;
}

static enum err train_agree(const struct train *t, enum err e, struct diag *d)
{
    return t->ask->world ? t->ask->world->agree(e, d) : e;
}

/* ---- pieces ---- */

static int64_t train_next(int64_t from, int64_t every, int64_t end)
{
    const int64_t next = every > 0 ? (from / every + 1) * every : end;
    return next < end ? next : end;
}

static enum err train_begin_checkpoint(struct train *t, struct diag *d)
{
    struct checkpoint_head head = { .step = t->end,
                                    .optimizer = t->j->plan.optimizer,
                                    .seq = t->j->plan.seq,
                                    .sequences =
                                        t->first_seq + (t->end - t->r->first_step) * t->j->plan.gbs };
    head.eval_split = t->ask->eval_split;
    if (t->ask->data_name) snprintf(head.data, sizeof head.data, "%s", t->ask->data_name);
    t->saves = t->ask->save_every > 0 && (t->end % t->ask->save_every == 0 || t->end == t->ask->steps);
    if (!t->saves) return OK;
    const enum err e = train_leads(t) ? checkpoint_begin(&t->checkpoint, t->kept, t->ask->root, t->pr, t->j, &head, d)
                                      : checkpoint_join(&t->checkpoint, t->kept, t->ask->root, t->pr, t->j, &head, d);
    return train_agree(t, e, d);
}

static enum err train_write_commit(struct train *t, struct diag *d)
{
    for (int i = 0; t->ask->resume && t->ask->carry && t->ask->carry[i]; i++)
        TRY(checkpoint_carry(&t->checkpoint, t->ask->resume->dir, t->ask->carry[i], d));
    TRY(checkpoint_commit(&t->checkpoint, d));
    checkpoint_prune(t->ask->root, t->ask->keep);
    return OK;
}

/* What every process says of its shard, for the manifest. */
static void train_share_shards(struct train *t)
{
    struct arena a = { 0 };
    int64_t *part_B = arena_alloc(&a, (size_t)t->checkpoint.n_shard * sizeof *part_B);
    for (int i = 0; i < t->checkpoint.n_shard; i++) part_B[i] = sizeof *t->checkpoint.shard;
    t->ask->world->share(t->checkpoint.shard, part_B);
    arena_free(&a);
}

static enum err train_commit(struct train *t, struct diag *d)
{
    if (t->e != OK) *d = t->d;
    TRY(train_agree(t, t->e, d));
    if (t->ask->world) train_share_shards(t);
    return train_agree(t, train_leads(t) ? train_write_commit(t, d) : OK, d);
}

static enum err train_steps(struct train *t, struct diag *d)
{
    const struct train_ask *ask = t->ask;
    const int first_piece = t->from == t->r->first_step;
    const struct exec_ask x = { .steps = (int)(t->end - t->from),
                                .iters_traced = first_piece ? ask->traced : 1,
                                .routes = ask->routes,
                                .replay = ask->replay,
                                .routes_from = ask->routes_from + (int32_t)(t->from - t->r->first_step),
                                .data = ask->data,
                                .first_step = t->from,
                                .timeout_s = ask->timeout_s,
                                .processes = ask->processes,
                                .world = ask->world,
                                .seat = ask->seat,
                                .first_seq = t->first_seq + (t->from - t->r->first_step) * t->j->plan.gbs,
                                .stop_at_nan = 1,
                                .poison = ask->poison,
                                .on = ask->on,
                                .kernels = ask->kernels,
                                .user = t,
                                .before = train_before,
                                .report = train_report,
                                .after_step = train_after };
    struct arena own = { 0 };           /* of what nobody wants of a later piece */
    struct exec_result r;
    const int before = t->r->n_step;
    const enum err e = exec_run(&r, first_piece ? t->a : &own, t->pr, t->u, t->j, &x, d);
    for (int i = 0; e == OK && i < r.n_step; i++) t->r->step[before + i] = r.step[i];
    arena_free(&own);
    TRY(e);
    if (first_piece) t->r->run = r;
    t->r->score_gap = fminf(t->r->score_gap, r.score_gap);
    t->has_state = train_keeps_state(t);
    return OK;
}

static enum err train_evaluates(struct train *t, struct diag *d)
{
    const struct train_ask *ask = t->ask;
    const int due = t->end == ask->steps || (ask->eval_every > 0 && t->end % ask->eval_every == 0);
    struct train_eval e = { .step = t->end };
    if (!ask->evals || !due) return OK;
    TRY(train_evaluate(&e, t->forward, &t->state, ask, d));
    t->r->eval[t->r->n_eval++] = e;
    if (ask->on_eval) ask->on_eval(ask->user, &e);
    return OK;
}

static enum err train_piece(struct train *t, struct diag *d)
{
    const int64_t save = train_next(t->from, t->ask->save_every, t->ask->steps);
    t->end = train_next(t->from, t->ask->evals ? t->ask->eval_every : 0, save);
    TRY(train_begin_checkpoint(t, d));
    enum err e = train_steps(t, d);
    if (e == OK && t->saves) e = train_commit(t, d);
    if (e != OK && t->saves && train_leads(t)) checkpoint_abandon(&t->checkpoint);
    TRY(e);
    TRY(train_evaluates(t, d));
    t->from = t->end;
    return OK;
}

/* ---- the run ---- */

enum err train_check(const struct train_ask *ask, const struct job *j, struct diag *d)
{
    const struct checkpoint_file *c = ask->resume;
    if (ask->world) TRY(exec_world_check(ask->world, &ask->seat, j, ask->routes && !ask->replay, ask->processes, d));
    TRY(data_check(ask->data, DATA_TRAIN, j->plan.seq, d));
    if (ask->evals) TRY(data_check(ask->data, DATA_EVAL, j->plan.seq, d));
    if (j->plan.packed) TRY(data_documents_check(ask->data, j->plan.eod, d));
    if (!c) return OK;
    if (c->head.step >= ask->steps)
        return fail(d, ERR_CONFIG, "%.300s is at step %lld already, --steps is %lld: ask for more", c->dir,
                    (long long)c->head.step, (long long)ask->steps);
    if (c->head.step > 0 && j->plan.optimizer == OPTIMIZER_ADAMW && c->head.optimizer != OPTIMIZER_ADAMW)
        return fail(d, ERR_CONFIG,
                    "%.300s holds no moments of adamw after its %lld steps: resume it with --optimizer sgd",
                    c->dir, (long long)c->head.step);
    return OK;
}

static enum err train_resume(struct train *t, struct diag *d)
{
    const struct checkpoint_file *c = t->ask->resume;
    if (!c) return OK;
    TRY(checkpoint_load(c, &t->state, t->j, d));
    t->has_state = 1;
    t->from = c->head.step;
    t->first_seq = c->head.sequences * c->head.seq / t->j->plan.seq;     /* as many tokens */
    return OK;
}

static enum err train_open(struct train *t, struct diag *d)
{
    const struct train_ask *ask = t->ask;
    TRY(train_check(ask, t->j, d));
    if (ask->evals || ask->save_every > 0 || ask->resume) state_make(&t->state, t->kept, t->pr, t->j);
    TRY(train_resume(t, d));
    const size_t n = (size_t)(ask->steps - t->from);
    *t->r = (struct train_result){ .first_step = t->from, .score_gap = INFINITY };
    t->r->step = arena_alloc(t->a, (n + 1) * sizeof *t->r->step);
    t->r->eval = arena_alloc(t->a, (n + 1) * sizeof *t->r->eval);
    if (!ask->evals) return OK;
    t->forward = arena_alloc(t->a, sizeof *t->forward);
    return train_forward_build(t->forward, t->a, t->j, d);
}

enum err train_run(struct train_result *r, struct arena *a, const struct program *pr, const struct unroll *u,
                   const struct job *j, const struct train_ask *ask, struct diag *d)
{
    struct arena kept = { .shared = ask->processes };
    struct train *t = arena_alloc(&kept, sizeof *t);
    *t = (struct train){ .r = r, .a = a, .kept = &kept, .pr = pr, .u = u, .j = j, .ask = ask };
    *r = (struct train_result){ 0 };
    lock_open(&t->lock);
    enum err e = train_agree(t, train_open(t, d), d);
    while (e == OK && t->from < ask->steps) e = train_piece(t, d);
    arena_free(&kept);
    return e;
}
