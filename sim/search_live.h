/* Bounds of memory from block prices: the worst stage holds no less than this. The pairs (net, peak) of the
 * blocks along the stage's schedule, over what is kept for ever; exact but for padding, metrics and merged
 * passes. */
#ifndef SIM_SEARCH_LIVE_H
#define SIM_SEARCH_LIVE_H
#include "sim/search_view.h"

/* Weights, gradients and optimizer states alone. */
double search_live_states_B(struct search_views *all, const struct search_point *p);
/* With what is alive at the peak. */
double search_live_B(struct search_views *all, const struct search_point *p, int recompute);

#endif
