/* Schedules: which passes exist and in what order each stage takes them. No prices.
 * 1F1B, interleaved 1F1B with groups of vpp_group micro-batches (Megatron-LM schedules.py: warm-up
 * 2 (pp - 1 - stage) + (vpp - 1) group chunk-forwards, +1 for FWD_BWD; pp - 1 - stage when vpp is 1), FWD_BWD pairs.
 * With split_wgrad a backward is BWD_INPUT, its BWD_WEIGHT follows after the next forward. The last backward of a chunk
 * is BWD_LAST (gradient reduction under it) unless backward is split or meets a forward, or the plan says otherwise: then
 * OPTIM does the reduction. */
#ifndef MODELS_SCHED_H
#define MODELS_SCHED_H
#include "models/program.h"

/* Fills pass, order, step, n_step, lead of a program whose ops, chunks, stages and n_micro are there. lead is 2, more
 * where an interleaved schedule would lock up: split backward, or groups of more micro-batches than stages. */
void sched_build(struct program *pr, const struct job *j);
/* Most chunk forwards in flight at once on a stage (cases A07), by the same lists. */
int sched_in_flight(const struct program *pr, int stage);

#endif
