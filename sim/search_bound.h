/* Bounds from block prices, without building a plan: no less than this long, no less than this much memory.
 * Time: a stage runs its slots one after the other on every stream, so that for each stage and stream the first input's way
 * there, the diagonals of all slots and the way of the last gradient back are one path of the simulated step's graph
 * ((A (x) B)[k][k] >= A[k][k] + B[k][k]). A merged pass weaves two op lists, of which only the sum of durations is left.
 * Memory: the pairs (net, peak) of the blocks along the schedule, over what is kept for ever. */
#ifndef SIM_SEARCH_BOUND_H
#define SIM_SEARCH_BOUND_H
#include "sim/search_block.h"

struct search_bounds;
/* `s` and everything made here live in `a`. */
struct search_bounds *search_bound_open(struct arena *a, const struct search_space *s);
/* Seconds: of any plan of the point's grid, micro-batch and recompute set, whatever the rest. */
double search_bound_floor_s(struct search_bounds *b, const struct search_point *p, int recompute);
/* Seconds: forward and backward slots only. Not less. */
double search_bound_slots_s(struct search_bounds *b, const struct search_point *p, int recompute);
/* Seconds, with gradient reduction, optimizer and parameter gather; prices the grid. Not less. */
double search_bound_step_s(struct search_bounds *b, const struct search_point *p, int recompute);
/* Bytes of the worst stage: states alone, and with what is alive at the peak. */
double search_bound_states_B(struct search_bounds *b, const struct search_point *p);
double search_bound_live_B(struct search_bounds *b, const struct search_point *p, int recompute);
int64_t search_bound_built(const struct search_bounds *b);

#endif
