/* What no layout can go below: the states of all parameters, each held once, over the memory of as many GPUs. */
#ifndef SIM_LEAST_H
#define SIM_LEAST_H
#include "models/plan.h"

/* Bytes that a parameter's weight, gradient, master and moments take on devices at least, sharded with nothing held
 * twice: 2 + 4 + 4 + 8 = 18 of mixed-precision AdamW in fp32, 12 with bf16 gradients and moments (ZeRO, section 3.1).
 * Low-precision originals (fp8-param-gather) count 1 byte, though not all parameters have them. */
double least_param_B(const struct plan *p);
/* GPUs whose whole memory holds that for `params` parameters: no plan with fewer can fit. */
int64_t least_gpus(const struct job *j, int64_t params);

#endif
