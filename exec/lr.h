/* The learning rate of a step: a straight warm-up, then constant, a cosine, or constant with a straight end
 * (WSD: warm-up, stable, decay; Hu et al., "MiniCPM", section 4). */
#ifndef EXEC_LR_H
#define EXEC_LR_H
#include "models/plan.h"

/* step from 0. Warm-up rises to plan.lr at step lr_warmup - 1; decays end at lr_steps, from where the rate is
 * lr lr_min. `cosine` and `wsd` need lr_steps > 0. */
double lr_at(const struct plan *p, int64_t step);

#endif
