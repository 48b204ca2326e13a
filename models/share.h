/* Which experts tokens pick, as shares: formulas of a routing, the same for every token, layer, micro-batch
 * and source rank, so a step needs no sampling and no seed. In truth layers differ in which experts are
 * popular, less in how much; here the same ranks hold the popular ones in all layers: alike in time, and the
 * most that memory may need. */
#ifndef MODELS_SHARE_H
#define MODELS_SHARE_H
#include "models/plan.h"

/* pick[experts], in expert order: the share of tokens that pick each, 0 .. 1; they sum to topk. Popularity p
 * (routing.h) becomes min(1, c p): inclusion probabilities of a draw without replacement (Tille, Sampling
 * Algorithms, 2006, section 2.10). The k-th most popular expert is dealt to the (k mod ep)-th rank of
 * share_deal. RECORDED: the counts' shares, each expert where it is; of several layers the mean by rank of busyness,
 * so that the busiest rank has what the busiest rank of every layer has on average. WORST: every token picks min(topk, experts / ep) of rank 0's, and of the others equally. Limits
 * of groups are not looked at. */
void share_picks(double *pick, const struct job *j);
/* 0 .. n - 1 in the order of their bits reversed, so that neighbours are far apart: order[n]. */
void share_deal(int32_t *order, int n);
/* Distinct targets of a token among `targets` equal, contiguous parts of the experts: exactly spread_targets for even
 * picks; a part is missed when each of its experts is, as if picked by itself, to a power that makes even picks right.
 * busiest (may be NULL): the share of tokens that go to the part that most go to, times `targets`. */
double share_targets(const struct job *j, const double *pick, int targets, double *busiest);
/* x at which the share p (0 < p < 1) of Gamma(shape, 1) lies below it. */
double share_gamma_quantile(double shape, double p);

#endif
