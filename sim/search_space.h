/* The plans that a search walks: every pair of foldings (tp cp dp pp, and etp ep edp pp, all divisors of the GPUs), and on
 * each the order, micro-batch, chunks per stage, weaving, dispatcher where experts are spread, kind of context parallelism
 * where there is any, parameters cut over replicas or not, and recompute sets that plan_check allows. The rules are
 * checked here on integers, a thousand times faster than plan_check; tests hold the two verdicts equal. Layouts are
 * `auto`, or the one the user gave; vpp_group, splitting and everything else that changes what is trained is the user's.
 * CUDA graphs cost a little memory and no time: all plans of a search capture what the stack can capture of any model's
 * layers, unless the user says what, such as none. */
#ifndef SIM_SEARCH_SPACE_H
#define SIM_SEARCH_SPACE_H
#include "models/place.h"

/* X(id, why a folding is refused). A refused grid counts under the first that applies. */
#define SEARCH_RULE_LIST(X)                                                                                 \
    X(OFFLOAD, "a plan with offload cannot be searched yet: set it to none")                                \
    X(KINDS, "layers of more kinds than one dense and one with experts cannot be searched yet")             \
    X(HEADS, "tp does not divide the attention heads")                                                      \
    X(KV_HEADS, "neither tp nor the K/V heads divide the other")                                            \
    X(FFN, "tp does not divide a feed-forward width")                                                       \
    X(SEQ, "the sequence is no multiple of cp lcm(2, tp) (cp 1: of tp)")                                    \
    X(SP, "tp > 1 without sequence parallelism")                                                            \
    X(DENSE, "the model has no experts to spread over ep and etp")                                          \
    X(EP, "ep does not divide the experts")                                                                 \
    X(ETP, "etp does not divide the expert width")                                                          \
    X(CAPACITY, "the capacity given exceeds the most that a rank can receive")                              \
    X(LAYOUT, "more pipeline chunks than layers, embedding, MTP and loss, or not those of the layout given") \
    X(GBS, "dp times the micro-batch does not divide the global batch")                                     \
    X(SCHEDULE, "no schedule, dispatcher and kind of cp that are asked for and that the stack offers run on it")

enum search_rule {
#define X(id, text) SEARCH_##id,
    SEARCH_RULE_LIST(X)
#undef X
    SEARCH_RULE_COUNT
};
const char *search_space_rule_text(enum search_rule r);

/* Plan options that a search varies unless the user gave them. */
#define SEARCH_KEY_LIST(X)                                                                                  \
    X(TP, "tp") X(CP, "cp") X(PP, "pp") X(VPP, "vpp") X(ETP, "etp") X(EP, "ep") X(ORDER, "order")           \
    X(LAYOUT, "layout") X(SCHEDULE, "schedule") X(VPP_GROUP, "vpp_group") X(MBS, "mbs")                     \
    X(RECOMPUTE, "recompute") X(EP_OVERLAP, "ep_overlap")                                                   \
    X(SP, "sp") X(CAPACITY, "capacity") X(GRAPH, "cuda_graph") X(DISPATCHER, "dispatcher") X(CP_COMM, "cp_comm") X(FSDP, "fsdp")
enum search_key {
#define X(id, key) SEARCH_KEY_##id,
    SEARCH_KEY_LIST(X)
#undef X
    SEARCH_KEY_COUNT
};

struct search_grid { int32_t tp, cp, pp, etp, ep, dp, edp; };
/* How ranks exchange inside layers. weave: FWD_BWD passes; enum dispatcher, enum cp_comm; fsdp as in plan. */
struct search_way { int8_t weave, dispatcher, cp_comm, fsdp; };
/* A plan but for its recompute set. */
struct search_point { int32_t grid; int16_t vpp; int32_t mbs; int8_t order; struct search_way way; };
/* Of one grid; layouts: micro-batches x vpp. */
struct search_count { int64_t mbs, layouts, points, plans; };

/* Ways: 2 x 4 dispatchers x 3 kinds of context parallelism x 2; points of a grid and micro-batch, at most. */
enum { SEARCH_MBS = 8, SEARCH_RECOMPUTES = 8, SEARCH_WAYS = 48, SEARCH_POINTS = 2 * SEARCH_WAYS * LAYOUT_CHUNKS };

struct search_space {
    const struct job *job;
    uint8_t fixed[SEARCH_KEY_COUNT];                /* the user gave it */
    int32_t graph;                                  /* of every plan: as given, or all that no plan can be slower by */
    int32_t mtp, sp;                                /* MTP layers; sp as in plan, -1: when tp > 1 */
    int32_t mbs[2], vpp[2], group;                  /* ranges; micro-batches per group, 0: pp */
    int32_t size[256], n_size;                      /* divisors of the GPUs, ascending */
    int32_t orders, schedules, dispatchers, cp_comms;   /* bits: asked for and offered */
    struct search_way plain;                        /* dispatcher and kind of cp where they change nothing; fsdp 0 */
    int32_t fsdps;                                  /* bits: of fsdp 0 and 1 */
    uint8_t layout[LAYOUT_CHUNKS + 1];              /* by number of chunks: a layout exists */
    int32_t recompute[2][SEARCH_RECOMPUTES], n_recompute[2];        /* sets, by weave; ascending */
    struct search_grid *grid; int32_t n_grid;       /* foldings with at least one plan, in order of fields */
    int64_t foldings;                               /* all of them: pairs of divisors */
    int64_t grids;                                  /* those that no rule about the model refuses */
    int64_t gbs_valid, with_mbs, with_layout, plans;        /* of those: see search_count */
    int64_t refused[SEARCH_RULE_COUNT];
};

/* Counts the whole space and lists its grids. `fixed`: a byte per plan option. `j`: as read, its degrees open
 * (plan_read_open) or resolved for any of its plans. */
void search_space_init(struct search_space *s, struct arena *a, const struct job *j, const char *fixed);
/* -1, or the rule about model and sequence that refuses the folding. */
int search_space_refuses(const struct search_space *s, const struct search_grid *g);
/* The points of a grid and micro-batch in order of vpp, way, order into `out` (may be NULL, else room for SEARCH_POINTS), and
 * their counts; without counts.mbs the batch does not divide. */
struct search_count search_space_points(const struct search_space *s, const struct search_grid *g, int grid,
                                        int mbs, struct search_point *out);
/* The plan of a point and recompute set, resolved, in `j`, a copy of the search's job. */
enum err search_space_plan(struct job *j, const struct search_space *s, const struct search_point *p,
                           int recompute, struct diag *d);

#endif
