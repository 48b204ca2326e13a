/* Block prices, computed once per set of sizes that a block can see and shared by all plans that agree on
 * them. A dense layer, the embedding and the loss see tp, cp and the micro-batch; a MoE layer also etp and
 * ep; none sees pp, dp or the order, since the groups inside a layer are runs of neighbouring ranks in both.
 * What happens once a step (gradient reduction, optimizer) sees the whole grid and is priced apart, when a
 * plan comes near enough to need it. Everything comes from the one builder and the one cost model; the keys
 * are the only knowledge here. */
#ifndef SIM_SEARCH_BLOCK_H
#define SIM_SEARCH_BLOCK_H
#include "sim/pass.h"
#include "sim/search_space.h"

/* What the ops of a block's halves run on: a few streams, and the host. */
enum search_lane { LANE_COMPUTE, LANE_TP, LANE_CP, LANE_EP, LANE_DP, LANE_HOST, LANE_COUNT };

/* One half of a block: of its (max,+) matrix the diagonal, and what leads from its input and to its
 * output. exchange_s: of the compute stream's busy_s, exchanges of experts, which woven passes have on a stream of their
 * own. */
struct search_half {
    double diag_s[LANE_COUNT];
    double in_s[LANE_COUNT], out_s[LANE_COUNT]; /* input -> lane, lane -> output; -INFINITY: no path   */
    double through_s;                   /* input -> output                                             */
    double busy_s[LANE_COUNT];          /* sum of durations; of the host: of issue times               */
    double net_B, peak_B, exchange_s;
};
struct search_block {
    struct search_half fwd, bwd;
    const struct search_half *weight;   /* BWD_WEIGHT where backward is split, else nothing            */
    double edge_B;                      /* of an activation between blocks                             */
    double cache_B;                     /* workspaces and caches of a stage that holds this block alone */
};
/* What a layer keeps streams busy more, both ways, than under the plain way of the space. */
struct search_shift { double busy_s[LANE_COUNT], exchange_s; };
/* A MoE layer's forward woven with another one's backward: diagonals of the segment that repeats inside a
 * merged pass, and of its first and last parts together, one layer's worth too (phase 0 only). */
struct search_woven { double inside_s[LANE_COUNT], ends_s[LANE_COUNT]; };
/* Bytes kept for ever: of a rank, and before they are shared over dp x cp and over edp. Less than the truth
 * by padding. */
struct search_states { double own_B, dense_B, expert_B; };
/* Seconds of a block's ops once a step. Of a bucket shared by nobody scatter and gather are 0; early_s: gathers before the
 * next step's first forward, not after the update. */
struct search_once { double zero_s, scatter_s, sumsq_s, world_s, update_s, gather_s, early_s; };

struct search_blocks;
/* Everything that is kept lives in `a`; close lets go of what was needed to price. */
struct search_blocks *search_block_open(struct arena *a, const struct search_space *s);
void search_block_close(struct search_blocks *b);
const struct search_block *search_block_price(struct search_blocks *b, const struct search_point *p,
                                              int recompute, enum block k);
/* The loss block without MTP: what it costs hangs on no experts. */
const struct search_block *search_block_head(struct search_blocks *b, const struct search_point *p, int recompute);
/* Of a layer's attention under the point's kind of cp, which sees no experts; of its exchanges under the point's dispatcher,
 * which see no more than a rank's tokens, etp and ep: so every way has a floor without a block priced for it. */
const struct search_shift *search_block_shift_cp(struct search_blocks *b, const struct search_point *p, int recompute);
const struct search_shift *search_block_shift_ep(struct search_blocks *b, const struct search_point *p, int recompute);
/* Of a layer whose parameters are cut over the replicas of the point's grid and order; sees no micro-batch. */
const struct search_shift *search_block_shift_fsdp(struct search_blocks *b, const struct search_point *p, int recompute,
                                                   enum block k);
/* `phase`: parts by which the forward lags, as dense layers (one part each) stand before its experts; 0 to
 * 3. */
const struct search_woven *search_block_woven(struct search_blocks *b, const struct search_point *p,
                                              int recompute, int phase);
const struct search_states *search_block_states(struct search_blocks *b, const struct search_point *p,
                                                enum block k);
const struct search_once *search_block_once(struct search_blocks *b, const struct search_point *p,
                                            enum block k);

#endif
