/* A step by events, where what runs at once shares links: `--contention dynamic`. Every NVLink port and NIC of a rank
 * class carries bytes out and in. A collective or message needs each for a part of its time (cost_comm_links over its
 * price); while those on one port need more than there is, all that it holds up go slower alike (max-min fairness:
 * Bertsekas and Gallager, Data Networks, 6.5.2, by progressive filling of the speeds). Latencies need no link, so they
 * are shared with nobody. With nothing shared it is the sweep, to the bit. */
#ifndef SIM_SIM_HEAP_H
#define SIM_SIM_HEAP_H
#include "models/unroll.h"
#include "sim/cost.h"

struct sim_heap_stage {
    double *t0_s, *t1_s;                            /* by item, as the sweep's spans; t1 NAN: never */
    double end_s;                                   /* INFINITY: it waits for ever */
    double alone_s[GROUP_COUNT], shared_s[GROUP_COUNT];     /* transfers of a group, by price and as it went */
};
struct sim_heap { struct sim_heap_stage *stage; double step_s; int last_stage; int64_t events; };

/* `u`: all stages (unroll_all); one rank class a stage, even rows. share 0: links have room for all. No op ends
 * earlier than without sharing. Memory of the result is the arena's. */
void sim_heap(struct sim_heap *h, struct arena *a, const struct cost *c, const struct unroll *u, int share);

#endif
