/* Evaluation. A job's forward passes make a program: the steps of its schedule without those of backward and
 * optimizer. */
#include "exec/train.h"

/* Plain passes (nothing woven, nothing recomputed), no moments to allocate. */
static struct job train_forward_job(const struct job *j)
{
    struct job f = *j;
    f.plan.schedule = f.plan.vpp > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    f.plan.ep_overlap = f.plan.split_wgrad = f.plan.recompute = 0;
    f.plan.optimizer = OPTIMIZER_SGD;
    return f;
}

static void train_forward_only(struct program *pr)
{
    for (int s = 0; s < pr->n_stage; s++) {
        int n = 0;
        for (int i = 0; i < pr->n_step[s]; i++) {
            const int kind = pr->pass[pr->step[s][i].pass].kind;
            if (kind == PASS_START || kind == PASS_FWD) pr->step[s][n++] = pr->step[s][i];
        }
        pr->n_step[s] = n;
    }
}

enum err train_forward_build(struct train_forward *f, struct arena *a, const struct job *j, struct diag *d)
{
    f->job = train_forward_job(j);
    program_build(&f->pr, a, &f->job);
    train_forward_only(&f->pr);
    f->u = arena_alloc(a, (size_t)f->pr.n_stage * sizeof *f->u);
    TRY(unroll_all(f->u, a, &f->pr, d));
    for (int s = 0; s < f->pr.n_stage; s++) unroll_plan(&f->u[s], a, &f->pr);
    return OK;
}

struct evaluation { const struct train_forward *f; const struct state *s; double (*sum)[2]; /* [rank] */ };

static void train_eval_before(void *user, int rank, const struct unroll *u, char *arena)
{
    const struct evaluation *v = user;
    state_put_weights(v->s, rank, &v->f->pr, u, arena);
}

/* Without an optimizer pass nobody reduces the metric: each rank has the part of its own tokens. */
static void train_eval_after(void *user, int rank, int step, const struct unroll *u, const char *arena)
{
    const struct evaluation *v = user;
    const struct item once = { .micro = -1 };
    const float *m =
        (const float *)(const void *)(arena +
                                      unroll_life(u, &v->f->pr, &once, v->f->pr.metric + u->stage)->offset);
    (void)step;
    v->sum[rank][0] += m[0];
    v->sum[rank][1] += m[1];
}

enum err train_evaluate(struct train_eval *e, const struct train_forward *f, const struct state *s,
                        const struct train_ask *ask, struct diag *d)
{
    const struct plan *p = &f->job.plan;
    const int64_t whole = data_sequences(ask->data, DATA_EVAL, p->seq) / p->gbs, most = whole > 0 ? whole : 1;
    const int64_t steps = ask->eval_steps > 0 && ask->eval_steps < most ? ask->eval_steps : most;
    struct arena a = { .shared = ask->processes };
    struct evaluation v = { f, s, arena_alloc(&a, (size_t)p->gpus * sizeof *v.sum) };
    const struct exec_ask x = { .steps = (int)steps,
                                .iters_traced = 1,
                                .data = ask->data,
                                .part = DATA_EVAL,
                                .timeout_s = ask->timeout_s,
                                .processes = ask->processes,
                                .world = ask->world,
                                .seat = ask->seat,
                                .poison = ask->poison,
                                .on = ask->on,
                                .kernels = ask->kernels,
                                .user = &v,
                                .before = train_eval_before,
                                .after_step = train_eval_after };
    struct exec_result r;
    const enum err status = exec_run(&r, &a, &f->pr, f->u, &f->job, &x, d);
    e->tokens = steps * p->gbs * p->seq;
    e->loss = e->mtp_loss = 0;
    for (int i = 0; i < p->gpus && status == OK; i++) {
        e->loss += v.sum[i][0] / (double)steps;
        e->mtp_loss += v.sum[i][1] / (double)steps;
    }
    arena_free(&a);
    return status;
}
