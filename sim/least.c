/* A lower bound on GPUs from bytes alone: no activations, no overhead, no copies, so it holds for every layout. */
#include "sim/least.h"
#include <math.h>

double least_param_B(const struct plan *p)
{
    const int fp32 = p->precision == PRECISION_FP32;
    const double weight_B = fp32 ? 4 : p->fp8_param_gather ? 1 : 2;
    const double grad_B = p->grads == STATE_BF16 ? 2 : 4;
    const double master_B = fp32 ? 0 : p->master == MASTER_REMAINDER ? 2 : 4;
    const double moment_B = p->moments == STATE_FP32 ? 4 : p->moments == STATE_BF16 ? 2 : 1;
    const double moments_B = p->optimizer == OPTIMIZER_ADAMW ? 2 * moment_B * (1 - p->offload_optimizer) : 0;
    return weight_B + grad_B + master_B + moments_B;
}

int64_t least_gpus(const struct job *j, int64_t params)
{
    return (int64_t)ceil((double)params * least_param_B(&j->plan) / j->system.memory_B);
}
