/* Bounds of a step from block prices, without building a plan: it takes no less than this. A stage runs its
 * slots one after the other on every stream, so that for each stage and stream the first input's way there,
 * the diagonals of all slots and the way of the last gradient back are one path of the simulated step's graph
 * ((A (x) B)[k][k] >= A[k][k] + B[k][k]). A merged pass weaves two op lists: what is left of it is the sum of
 * durations, and the diagonal of the segment that repeats inside. All in seconds, each no less than the one
 * before. */
#ifndef SIM_SEARCH_BOUND_H
#define SIM_SEARCH_BOUND_H
#include "sim/search_view.h"

/* Of any plan with the point's grid, micro-batch, way and recompute set, whatever the rest; where parameters are cut over
 * replicas, also with its order, and for that the grid is priced. */
double search_bound_floor_s(struct search_views *all, const struct search_point *p, int recompute);
/* Forward and backward slots only. */
double search_bound_slots_s(struct search_views *all, const struct search_point *p, int recompute);
/* With gradient reduction, optimizer and parameter gather, for which the grid is priced. */
double search_bound_step_s(struct search_views *all, const struct search_point *p, int recompute);

#endif
