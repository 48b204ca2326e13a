/* Rank <-> coordinates in the two folds, and every group of ranks. Both folds have the same pipeline stages.
 * Formulas: Megatron-LM core/parallel_state.py (RankGenerator): leftmost name of the order varies fastest. */
#ifndef MODELS_FOLD_H
#define MODELS_FOLD_H
#include "models/plan.h"

struct coord { int32_t pp, tp, cp, dp, etp, ep, edp; };

/* X(id, name, what it is). Members in ascending order of the fold's own axes, leftmost fastest. */
#define GROUP_LIST(X)                                                                                        \
    X(NONE, "none", "this rank alone")                                                                       \
    X(TP, "tp", "tensor parallel")                                                                           \
    X(KV, "kv", "ranks of a tp group that hold the same K/V heads (tp > kv_heads)")                          \
    X(CP, "cp", "context parallel")                                                                          \
    X(DP, "dp", "data parallel of attention")                                                                \
    X(DPCP, "dp-cp", "who share one dense gradient: cp x dp")                                                \
    X(TPDPCP, "tp-dp-cp", "a whole stage of the attention fold")                                             \
    X(EP, "ep", "expert parallel")                                                                           \
    X(ETP, "etp", "expert tensor parallel")                                                                  \
    X(TPEP, "tp-ep", "etp x ep: who exchange one micro-batch's routed tokens")                               \
    X(EDP, "edp", "who share one expert gradient")                                                           \
    X(PP, "pp", "the stages of one pipeline")                                                                \
    X(PREV, "prev", "the same place in the stage before (cyclic)")                                           \
    X(NEXT, "next", "the same place in the stage after (cyclic)")                                            \
    X(EMBED, "embed", "the stages of one pipeline that hold a copy of the input table")                      \
    X(WORLD, "world", "all ranks")

enum group {
#define X(id, name, text) GROUP_##id,
    GROUP_LIST(X)
#undef X
    GROUP_COUNT
};

/* A group as strides: member i of it is first + i % size[0] * stride[0] + i / size[0] * stride[1]. Every rank is
 * in exactly one group. Not for PREV, NEXT and EMBED, which pick stages (they read as one rank here). */
struct fold_axes { int32_t size[2], stride[2]; };

const char *fold_group_name(enum group g);
struct coord fold_coord(const struct plan *p, int rank);
int fold_rank(const struct plan *p, struct coord c);    /* from pp, tp, cp, dp                                 */
int fold_rank_expert(const struct plan *p, struct coord c);     /* from pp, etp, ep, edp                       */
struct fold_axes fold_axes_of(const struct job *j, enum group g);
/* How many ranks a group has. KV needs kv_heads: tp / kv_heads when larger than 1; EMBED: 2 stages or 1 (see
 * fold_embed_stages); PREV and NEXT 2 (1 when pp is 1). */
int fold_size(const struct job *j, enum group g);
/* The members of `rank`'s group in group order into `ranks` (fold_size of them; NULL: not wanted); returns the
 * index of `rank` among them. PREV and NEXT are a sender and its receiver, in this order: { a, b } is NEXT of a and
 * PREV of b, also where the pipeline closes in a ring. EMBED of a rank on another stage: its pipeline's members,
 * and -1. */
int fold_members(const struct job *j, enum group g, int rank, int32_t *ranks);
/* Stages that hold the input table, ascending: the first; the last where tables are tied, else the one with MTP.
 * Checked plans have no more. */
int fold_embed_stages(const struct job *j, int32_t stage[2]);
/* ERR_LIMIT: tied tables with MTP on a third stage. */
enum err fold_check_tables(const struct job *j, struct diag *d);

#endif
