/* GELU is x P(x) with the normal distribution's P, its slope P(x) + x p(x) with the density p. */
#include "kernels/act.h"
#include <math.h>

static double act_normal(double x)
{
    return 0.5 * erfc(-x * sqrt(0.5));
}

static double act_value(double x, enum act kind)
{
    if (kind == ACT_GELU) return x * act_normal(x);
    return x > 0 ? x * x : 0;
}

static double act_slope(double x, enum act kind)
{
    const double density_at_0 = 0.3989422804014327;     /* 1 / sqrt(2 pi) */
    if (kind == ACT_GELU) return act_normal(x) + x * density_at_0 * exp(-x * x / 2);
    return x > 0 ? 2 * x : 0;
}

enum err act_ref(float *y, const float *x, const float *prob, int64_t rows, int cols, enum act kind)
{
    for (int64_t r = 0; r < rows; r++, x += cols, y += cols) {
        const double weight = prob ? prob[r] : 1;
        for (int i = 0; i < cols; i++) y[i] = (float)(act_value(x[i], kind) * weight);
    }
    return OK;
}

enum err act_bwd_ref(float *dx, float *dprob, const float *x, const float *dy, const float *prob, int64_t rows,
                     int cols, enum act kind)
{
    for (int64_t r = 0; r < rows; r++, x += cols, dx += cols, dy += cols) {
        const double weight = prob ? prob[r] : 1;
        double sum = 0;
        for (int i = 0; i < cols; i++) {
            dx[i] = (float)(dy[i] * weight * act_slope(x[i], kind));
            sum += dy[i] * act_value(x[i], kind);
        }
        if (dprob) dprob[r] = (float)sum;
    }
    return OK;
}
