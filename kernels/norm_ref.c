/* RMSNorm and its gradient. With r = 1 / sqrt(mean(x^2) + eps):
 * dx = r (w dy) - x r^3 mean(w dy x), and dw = sum over runs of dy x r. */
#include "kernels/norm.h"
#include <math.h>

static double norm_scale(const float *x, int cols, double eps)
{
    double sum = 0;
    for (int i = 0; i < cols; i++) sum += (double)x[i] * x[i];
    return 1 / sqrt(sum / cols + eps);
}

enum err norm_ref(float *y, const float *x, const float *w, int64_t runs, int cols, double eps)
{
    for (int64_t run = 0; run < runs; run++, x += cols, y += cols) {
        const float r = (float)norm_scale(x, cols, eps);
        for (int i = 0; i < cols; i++) y[i] = x[i] * r * w[i];
    }
    return OK;
}

enum err norm_bwd_ref(float *dx, float *g, const float *x, const float *w, const float *dy, const float *dres,
                      int64_t runs, int cols, double eps)
{
    for (int64_t run = 0; run < runs; run++, x += cols, dy += cols, dx += cols) {
        const double r = norm_scale(x, cols, eps);
        double along = 0;
        for (int i = 0; i < cols; i++) along += (double)w[i] * dy[i] * x[i];
        const double back = along * r * r * r / cols;
        for (int i = 0; i < cols; i++) {
            dx[i] = (float)(r * w[i] * dy[i] - back * x[i]) + (dres ? dres[run * cols + i] : 0);
            g[i] += (float)(r * dy[i] * x[i]);
        }
    }
    return OK;
}
