/* bf16_ref.c as vector code. */
#include "kernels/kernels.h"

enum err bf16_widen_cpu(float *restrict y, const bf16 *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = bf16_to_float(x[i]);
    return OK;
}

enum err bf16_narrow_cpu(bf16 *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = bf16_of_float(x[i]);
    return OK;
}
