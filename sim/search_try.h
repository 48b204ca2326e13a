/* Plans simulated whole, several at a time: a step by max-plus, and the most bytes of any stage. Each simulation is on its
 * own, so their results do not depend on how many threads there are. */
#ifndef SIM_SEARCH_TRY_H
#define SIM_SEARCH_TRY_H
#include "sim/search_space.h"

enum { SEARCH_THREADS = 16 };               /* at most */

/* step_s INFINITY: a rank would get more rows than it holds. */
struct search_try { double step_s, peak_B; struct search_point point; uint8_t recompute; };
/* Threads with the memory that each keeps from plan to plan. */
struct search_tries { const struct search_space *space; double room_B; int threads; struct arena scratch[SEARCH_THREADS]; };

/* threads 0: as many as there are processors. room_B: what a program may hold; planned exactly only where it matters. */
void search_try_open(struct search_tries *t, const struct search_space *s, double room_B, int threads);
void search_try_close(struct search_tries *t);
/* Fills step_s and peak_B of all `n`. */
void search_try_all(struct search_tries *t, struct search_try *plan, int n);

#endif
