/* What is alive at the instant when a stage holds most: found from the pass pairs, then only the pass at the peak is
 * walked op by op. */
#ifndef SIM_PEAK_H
#define SIM_PEAK_H
#include "sim/sim.h"

struct peak {
    double kept_B, live_B;      /* for ever; with it, the most alive: sim_live                             */
    int32_t step, op;           /* where: step of the stage, op of its pass (an id)                        */
    int32_t *n;                 /* per root buffer of a micro-batch: how many instances are alive; n_buf   */
};
void peak_of(struct peak *k, struct arena *a, const struct cost *c, const struct pass_price *price, int stage);

/* Most bytes that the host holds for a rank of the stage: for ever, and micro-batches' between their passes. */
double peak_host_B(const struct cost *c, int stage);

#endif
