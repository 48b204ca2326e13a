/* swiglu_ref.c with an exp that loops can be made of (vexp.h). */
#include "kernels/kernels.h"
#include "kernels/vexp.h"

static inline float swiglu_sigmoid(float g)
{
    return 1 / (1 + vexp(-g));
}

enum err swiglu_cpu(float *restrict y, const float *restrict x, const float *restrict prob, int64_t rows, int cols)
{
    for (int64_t r = 0; r < rows; r++, x += 2 * cols, y += cols) {
        const float weight = prob ? prob[r] : 1, *up = x + cols;
        for (int i = 0; i < cols; i++) y[i] = x[i] * swiglu_sigmoid(x[i]) * up[i] * weight;
    }
    return OK;
}

enum { SWIGLU_PARTS = 16 };

/* One row's gradient of columns [from, to); part[i % SWIGLU_PARTS] += what belongs to the routing weight. */
static inline void swiglu_bwd_some(float *restrict dx, float *restrict part, const float *restrict x,
                                   const float *restrict dy, float weight, int from, int to, int cols)
{
    for (int i = from; i < to; i++) {
        const float s = swiglu_sigmoid(x[i]), silu = x[i] * s, d = dy[i] * weight, up = x[cols + i];
        dx[i] = d * up * s * (1 + x[i] * (1 - s));
        dx[cols + i] = d * silu;
        part[i - from] += dy[i] * silu * up;
    }
}

enum err swiglu_bwd_cpu(float *restrict dx, float *restrict dprob, const float *restrict x, const float *restrict dy,
                        const float *restrict prob, int64_t rows, int cols)
{
    for (int64_t r = 0; r < rows; r++, x += 2 * cols, dx += 2 * cols, dy += cols) {
        const float weight = prob ? prob[r] : 1;
        float part[SWIGLU_PARTS] = {0};
        int i = 0;
        for (; i + SWIGLU_PARTS <= cols; i += SWIGLU_PARTS)
            swiglu_bwd_some(dx, part, x, dy, weight, i, i + SWIGLU_PARTS, cols);
        swiglu_bwd_some(dx, part, x, dy, weight, i, cols, cols);
        double sum = 0;
        for (int j = 0; j < SWIGLU_PARTS; j++) sum += part[j];
        if (dprob) dprob[r] = (float)sum;
    }
    return OK;
}
