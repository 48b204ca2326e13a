/* In float: outputs are averages, so no sum grows. */
#include "kernels/merge.h"
#include <math.h>

/* What a block weighs of the whole. */
static float merge_weight(float part, float all)
{
    return part > -INFINITY ? expf(part - all) : 0;
}

enum err merge_ref(float *o, float *lse, const float *o0, const float *lse0, const float *o1, const float *lse1, int64_t rows,
                   int heads, int width)
{
    for (int64_t i = 0; i < rows * heads; i++) {
        const float most = fmaxf(lse0[i], lse1[i]);
        const float all = most > -INFINITY ? most + logf(expf(lse0[i] - most) + expf(lse1[i] - most)) : -INFINITY;
        const float w0 = merge_weight(lse0[i], all), w1 = merge_weight(lse1[i], all);
        for (int64_t j = i * width; j < (i + 1) * width; j++) o[j] = w0 * o0[j] + w1 * o1[j];
        lse[i] = all;
    }
    return OK;
}
