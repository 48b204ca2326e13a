/* Copies to and from bfloat16. */
#include "kernels/bf16.h"

enum err bf16_widen_ref(float *y, const bf16 *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = bf16_to_float(x[i]);
    return OK;
}

enum err bf16_narrow_ref(bf16 *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = bf16_of_float(x[i]);
    return OK;
}
