/* SwiGLU and its gradient: silu(g) = g s with s = 1 / (1 + exp(-g)), silu'(g) = s (1 + g (1 - s)). */
#include "kernels/swiglu.h"
#include <math.h>

static float swiglu_sigmoid(float g)
{
    return 1 / (1 + expf(-g));
}

enum err swiglu_ref(float *y, const float *x, const float *prob, int64_t rows, int cols)
{
    for (int64_t r = 0; r < rows; r++, x += 2 * cols, y += cols) {
        const float weight = prob ? prob[r] : 1, *up = x + cols;
        for (int i = 0; i < cols; i++) y[i] = x[i] * swiglu_sigmoid(x[i]) * up[i] * weight;
    }
    return OK;
}

enum err swiglu_bwd_ref(float *dx, float *dprob, const float *x, const float *dy, const float *prob,
                        int64_t rows, int cols)
{
    for (int64_t r = 0; r < rows; r++, x += 2 * cols, dx += 2 * cols, dy += cols) {
        const float weight = prob ? prob[r] : 1, *up = x + cols;
        double sum = 0;
        for (int i = 0; i < cols; i++) {
            const float s = swiglu_sigmoid(x[i]), silu = x[i] * s, d = dy[i] * weight;
            dx[i] = d * up[i] * s * (1 + x[i] * (1 - s));
            dx[cols + i] = d * silu;
            sum += (double)dy[i] * silu * up[i];
        }
        if (dprob) dprob[r] = (float)sum;
    }
    return OK;
}
