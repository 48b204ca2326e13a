/* norm_ref.c with sums in parts, so that loops become vector code; sums still in double. */
#include "kernels/kernels.h"
#include <math.h>
#include <stddef.h>

enum { NORM_PARTS = 8 };

/* Sum of x[i] y[i] w[i]; w NULL: 1. */
static double norm_sum(const float *restrict x, const float *restrict y, const float *restrict w, int cols)
{
    double part[NORM_PARTS] = {0}, all = 0;
    int i = 0;
    for (; w && i + NORM_PARTS <= cols; i += NORM_PARTS)
        for (int j = 0; j < NORM_PARTS; j++) part[j] += (double)x[i + j] * y[i + j] * w[i + j];
    for (; !w && i + NORM_PARTS <= cols; i += NORM_PARTS)
        for (int j = 0; j < NORM_PARTS; j++) part[j] += (double)x[i + j] * y[i + j];
    for (; i < cols; i++) all += (double)x[i] * y[i] * (w ? w[i] : 1);
    for (int j = 0; j < NORM_PARTS; j++) all += part[j];
    return all;
}

static double norm_scale(const float *x, int cols, double eps)
{
    return 1 / sqrt(norm_sum(x, x, NULL, cols) / cols + eps);
}

enum err norm_cpu(float *restrict y, const float *restrict x, const float *restrict w, int64_t runs, int cols,
                  double eps)
{
    for (int64_t run = 0; run < runs; run++, x += cols, y += cols) {
        const float r = (float)norm_scale(x, cols, eps);
        for (int i = 0; i < cols; i++) y[i] = x[i] * r * w[i];
    }
    return OK;
}

enum err norm_bwd_cpu(float *restrict dx, float *restrict g, const float *restrict x, const float *restrict w,
                      const float *restrict dy, const float *restrict dres, int64_t runs, int cols, double eps)
{
    for (int64_t run = 0; run < runs; run++, x += cols, dy += cols, dx += cols) {
        const double scale = norm_scale(x, cols, eps), along = norm_sum(w, dy, x, cols);
        const float r = (float)scale, back = (float)(along * scale * scale * scale / cols);
        const float *res = dres ? dres + run * cols : NULL;
        for (int i = 0; i < cols; i++) dx[i] = r * w[i] * dy[i] - back * x[i];
        for (int i = 0; res && i < cols; i++) dx[i] += res[i];
        for (int i = 0; i < cols; i++) g[i] += r * dy[i] * x[i];
    }
    return OK;
}
