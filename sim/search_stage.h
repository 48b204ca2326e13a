/* How often every stage of a plan runs each kind of block: what bounds sum over. Hangs on layout and schedule, not on
 * prices, so neighbouring plans share it. */
#ifndef SIM_SEARCH_STAGE_H
#define SIM_SEARCH_STAGE_H
#include "sim/search_view.h"

/* In passes of their own, forward and backward; and in all. */
struct search_runs { double alone_f[BLOCK_COUNT], alone_b[BLOCK_COUNT], all[BLOCK_COUNT]; };
/* How often two layers are woven inside merged passes (by phase, search_block_woven), and at their ends. */
struct search_meets { double inside[4], ends; };
/* n: blocks on its chunks. same: they, runs and meets are those of the stage before; same_first: so is what its first chunk
 * begins with. */
struct search_stage { double n[BLOCK_COUNT]; struct search_runs runs; struct search_meets meets; int32_t same, same_first; };

/* By stage; until the next call with other views. */
const struct search_stage *search_stage_all(struct search_views *all, const struct search_view *v);

#endif
