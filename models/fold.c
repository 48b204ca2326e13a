/* The two folds. Each is a row of axes, leftmost fastest: the attention fold tp cp dp pp, the expert fold etp ep
 * edp pp, with pp last or before the data-parallel axis. A group is the ranks that differ only in some
 * neighbouring axes, so it is one or two strides; PREV, NEXT and EMBED, which pick stages of a pipeline, are
 * written apart. Formulas: Megatron-LM core/parallel_state.py, RankGenerator. */
#include "models/fold.h"
#include <stddef.h>

const char *fold_group_name(enum group g)
{
    static const char *const name[GROUP_COUNT] = {
#define X(id, text, help) [GROUP_##id] = text,
        GROUP_LIST(X)
#undef X
    };
    return name[g];
}

/* Strides of every axis. One pp stride serves both folds: tp x cp x dp equals etp x ep x edp. */
struct strides { int tp, cp, dp, pp, etp, ep, edp; };

static struct strides strides_of(const struct plan *p)
{
    const int dense = p->tp * p->cp, expert = p->etp * p->ep, pp_last = p->order == ORDER_TP_CP_EP_DP_PP;
    return (struct strides){
        .tp = 1, .cp = p->tp, .etp = 1, .ep = p->etp,
        .dp  = pp_last ? dense : dense * p->pp,
        .edp = pp_last ? expert : expert * p->pp,
        .pp  = pp_last ? dense * p->dp : dense,
    };
}

struct coord fold_coord(const struct plan *p, int rank)
{
    const struct strides s = strides_of(p);
    return (struct coord){
        .pp = rank / s.pp % p->pp, .tp = rank % p->tp, .cp = rank / s.cp % p->cp, .dp = rank / s.dp % p->dp,
        .etp = rank % p->etp, .ep = rank / s.ep % p->ep, .edp = rank / s.edp % p->edp,
    };
}

int fold_rank(const struct plan *p, struct coord c)
{
    const struct strides s = strides_of(p);
    return c.tp + c.cp * s.cp + c.dp * s.dp + c.pp * s.pp;
}

int fold_rank_expert(const struct plan *p, struct coord c)
{
    const struct strides s = strides_of(p);
    return c.etp + c.ep * s.ep + c.edp * s.edp + c.pp * s.pp;
}

static int kv_copies(const struct job *j)
{
    const struct model *m = &j->model;
    const int copied = m->attention == ATTENTION_GQA && m->kv_heads > 0 && j->plan.tp > m->kv_heads;
    return copied ? j->plan.tp / m->kv_heads : 1;
}

struct fold_axes fold_axes_of(const struct job *j, enum group g)
{
    const struct plan *p = &j->plan;
    const struct strides s = strides_of(p);
    switch (g) {
    case GROUP_TP:     return (struct fold_axes){ { p->tp, 1 }, { 1, 1 } };
    case GROUP_KV:     return (struct fold_axes){ { kv_copies(j), 1 }, { 1, 1 } };
    case GROUP_CP:     return (struct fold_axes){ { p->cp, 1 }, { s.cp, 1 } };
    case GROUP_DP:     return (struct fold_axes){ { p->dp, 1 }, { s.dp, 1 } };
    case GROUP_DPCP:   return (struct fold_axes){ { p->cp, p->dp }, { s.cp, s.dp } };
    case GROUP_TPDPCP: return (struct fold_axes){ { p->tp * p->cp, p->dp }, { 1, s.dp } };
    case GROUP_EP:     return (struct fold_axes){ { p->ep, 1 }, { s.ep, 1 } };
    case GROUP_ETP:    return (struct fold_axes){ { p->etp, 1 }, { 1, 1 } };
    case GROUP_TPEP:   return (struct fold_axes){ { p->etp * p->ep, 1 }, { 1, 1 } };
    case GROUP_EDP:    return (struct fold_axes){ { p->edp, 1 }, { s.edp, 1 } };
    case GROUP_PP:     return (struct fold_axes){ { p->pp, 1 }, { s.pp, 1 } };
    case GROUP_WORLD:  return (struct fold_axes){ { p->gpus, 1 }, { 1, 1 } };
    default:           return (struct fold_axes){ { 1, 1 }, { 1, 1 } };
    }
}

/* A plan that has no layout yet will get one with MTP on the last chunk. */
static int mtp_stage(const struct plan *p)
{
    const int placed = p->split.n_chunk == p->pp * p->vpp && p->split.mtp_chunk >= 0;
    return placed ? layout_stage(p->split.mtp_chunk, p->pp) : p->pp - 1;
}

int fold_embed_stages(const struct job *j, int32_t stage[2])
{
    stage[0] = 0;
    if (j->plan.pp == 1 || !(j->model.tied || j->model.mtp)) return 1;
    stage[1] = j->model.tied ? j->plan.pp - 1 : mtp_stage(&j->plan);
    return stage[1] ? 2 : 1;
}

enum err fold_check_tables(const struct job *j, struct diag *d)
{
    const int stage = mtp_stage(&j->plan), last = j->plan.pp - 1;
    if (!j->model.tied || !j->model.mtp || stage == 0 || stage == last) return OK;
    return fail(d, ERR_LIMIT,
                "layout has m on stage %d and %s ties its tables: stages 0, %d and %d would hold the input table, "
                "at most two may: write mL at the end",
                stage, j->model.name, stage, last);
}

int fold_size(const struct job *j, enum group g)
{
    int32_t stage[2];
    if (g == GROUP_EMBED) return fold_embed_stages(j, stage);
    if (g == GROUP_PREV || g == GROUP_NEXT) return j->plan.pp > 1 ? 2 : 1;
    const struct fold_axes x = fold_axes_of(j, g);
    return x.size[0] * x.size[1];
}

/* A group that picks `n` stages of the rank's pipeline. */
static int members_by_stage(const struct plan *p, int rank, const int32_t *stage, int n, int32_t *ranks)
{
    const int stride = strides_of(p).pp, own = rank / stride % p->pp;
    int index = -1;
    for (int i = 0; i < n; i++) {
        if (ranks) ranks[i] = rank + (stage[i] - own) * stride;
        if (stage[i] == own) index = i;
    }
    return index;
}

static int members_by_axes(const struct fold_axes *x, int rank, int32_t *ranks)
{
    const int i0 = rank / x->stride[0] % x->size[0], i1 = rank / x->stride[1] % x->size[1];
    const int first = rank - i0 * x->stride[0] - i1 * x->stride[1];
    for (int i = 0; ranks && i < x->size[0] * x->size[1]; i++)
        ranks[i] = first + i % x->size[0] * x->stride[0] + i / x->size[0] * x->stride[1];
    return i1 * x->size[0] + i0;
}

int fold_members(const struct job *j, enum group g, int rank, int32_t *ranks)
{
    const struct plan *p = &j->plan;
    const int own = fold_coord(p, rank).pp;
    const int32_t pair[2] = { g == GROUP_PREV ? (own + p->pp - 1) % p->pp : own,
                              g == GROUP_NEXT ? (own + 1) % p->pp : own };
    int32_t stage[2];
    if (g == GROUP_PREV || g == GROUP_NEXT) return members_by_stage(p, rank, pair, p->pp > 1 ? 2 : 1, ranks);
    if (g == GROUP_EMBED) return members_by_stage(p, rank, stage, fold_embed_stages(j, stage), ranks);
    const struct fold_axes x = fold_axes_of(j, g);
    return members_by_axes(&x, rank, ranks);
}
