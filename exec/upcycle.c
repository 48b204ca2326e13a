#include "exec/upcycle.h"
#include "exec/exec_param.h"
#include "exec/hf.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct upcycle { struct hf_model dense, moe; const struct upcycle_ask *ask; };

static enum err upcycle_check(const struct model *m, const struct upcycle_ask *ask, struct diag *d)
{
    const int g = ask->granularity;
    if (m->experts)
        return fail(d, ERR_CONFIG, "model %s has %d experts already: upcycle a dense one", m->name,
                    m->experts);
    if (*m->pattern)
        return fail(d, ERR_CONFIG, "model %s has a pattern of layers: only plain dense models are upcycled",
                    m->name);
    if (m->ffn % g)
        return fail(d, ERR_CONFIG, "--granularity %d does not divide ffn = %d: use a divisor", g, m->ffn);
    if (ask->experts % g)
        return fail(d, ERR_CONFIG, "--granularity %d does not divide --experts %d: a copy has all its shards",
                    g, ask->experts);
    if (ask->topk % g)
        return fail(d, ERR_CONFIG,
                    "--granularity %d does not divide --topk %d: a token needs all shards of a copy", g,
                    ask->topk);
    return OK;
}

/* The dense job with the other model, resolved again. */
static enum err upcycle_open(struct upcycle *u, struct arena *a, struct diag *d)
{
    const struct upcycle_ask *ask = u->ask;
    struct job *j = &u->moe.job;
    *j = u->dense.job;
    struct model *m = &j->model;
    m->experts = ask->experts;
    m->topk = ask->topk;
    m->expert_ffn = m->ffn / ask->granularity;
    m->ffn = m->dense_layers = m->shared_ffn = m->selection_bias = 0;
    m->score = SCORE_SOFTMAX;
    m->norm_topk = m->groups = m->groups_kept = 1;
    m->route_scale = 1;
    const size_t n = strlen(m->name);
    snprintf(m->name + n, sizeof m->name - n, "-%dx%d", ask->experts, ask->topk);
    snprintf(j->plan.model, sizeof j->plan.model, "%s/step-00000000/model.yaml", ask->root);
    j->plan.seed = ask->seed;
    TRY(model_check(m, d));
    TRY(plan_resolve(j, d));
    return hf_model_make(&u->moe, a, d);
}

static const struct param *upcycle_parent(const struct upcycle *u, const struct param *q)
{
    const enum param_name name = q->name == PARAM_EXPERT_FC1   ? PARAM_FC1
                                 : q->name == PARAM_EXPERT_FC2 ? PARAM_FC2
                                                               : q->name;
    for (int i = 0; i < u->dense.pr.n_param; i++)
        if (u->dense.pr.param[i].name == name && u->dense.pr.param[i].layer == q->layer)
            return &u->dense.pr.param[i];
    return NULL;
}

/* Expert e is shard e mod G: of FC1 rows of gate and of up, of FC2 columns. */
static void upcycle_expert(float *to, const float *from, const struct param *q, const struct param *parent,
                           int e, const struct upcycle *u)
{
    const int g = u->ask->granularity, gated = model_up(&u->moe.job.model) == 2;
    const double root = sqrt(g);
    for (int r = 0; r < q->rows; r++) {
        const int half = q->rows / (gated ? 2 : 1), second = r >= half, fc1 = q->name == PARAM_EXPERT_FC1;
        const int row = fc1 ? (second ? parent->rows / 2 : 0) + e % g * half + r % half : r,
                  col = fc1 ? 0 : e % g * q->cols;
        const double scale = fc1 ? (gated && second ? root : 1) : gated ? root : g;
        for (int c = 0; c < q->cols; c++)
            to[(int64_t)r * q->cols + c] =
                (float)(scale * (double)from[(int64_t)row * parent->cols + col + c]);
    }
}

static void upcycle_router(float *to, const struct param *q, const struct upcycle *u)
{
    for (int e = 0; e < q->rows; e++)
        for (int c = 0; c < q->cols; c++)
            to[(int64_t)e * q->cols + c] =
                exec_param_value(&u->moe.job, q, (int64_t)(e / u->ask->granularity) * q->cols + c);
}

static void upcycle_param(struct upcycle *u, const struct param *q)
{
    float *to = state_at(&u->moe.state, 0, q->w);
    const struct param *parent = upcycle_parent(u, q);
    if (q->name == PARAM_ROUTER) {
        upcycle_router(to, q, u);
        return;
    }
    const float *from = state_at(&u->dense.state, 0, parent->w);
    if (!q->batch) memcpy(to, from, (size_t)exec_param_elements(q) * sizeof *to);
    for (int e = 0; e < q->batch; e++)
        upcycle_expert(to + (int64_t)e * q->rows * q->cols, from, q, parent, e, u);
}

static enum err upcycle_save(struct upcycle *u, struct arena *a, struct diag *d)
{
    const struct checkpoint_head head = { .optimizer = -1 };
    struct checkpoint c;
    TRY(checkpoint_begin(&c, a, u->ask->root, &u->moe.pr, &u->moe.job, &head, d));
    enum err e = checkpoint_shard(&c, &u->moe.state, 0, d);
    if (e == OK) e = checkpoint_commit(&c, d);
    if (e != OK) checkpoint_abandon(&c);
    return e;
}

enum err upcycle(struct arena *a, const char *dir, const struct upcycle_ask *ask, struct diag *d)
{
    struct upcycle u = { .ask = ask };
    struct checkpoint_file c;
    TRY(hf_model_open(&u.dense, a, arena_printf(a, "%s/model.yaml", dir), 1, d));
    TRY(upcycle_check(&u.dense.job.model, ask, d));
    TRY(checkpoint_open(&c, a, dir, d));
    const enum err e = checkpoint_load(&c, &u.dense.state, &u.dense.job, d);
    checkpoint_close(&c);
    TRY(e);
    TRY(upcycle_open(&u, a, d));
    for (int i = 0; i < u.moe.pr.n_param; i++) upcycle_param(&u, &u.moe.pr.param[i]);
    return upcycle_save(&u, a, d);
}
