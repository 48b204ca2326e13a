/* optimizer_ref.c in float: one step of an element is a dozen roundings, each below 1e-7 of the step, and every
 * slice of a bucket still steps alike. */
#include "kernels/kernels.h"
#include <math.h>

enum { OPTIMIZER_PARTS = 8 };

enum err optimizer_sumsq_cpu(float *sum, const float *restrict g, int64_t n, double scale)
{
    double part[OPTIMIZER_PARTS] = {0}, all = 0;
    int64_t i = 0;
    for (; i + OPTIMIZER_PARTS <= n; i += OPTIMIZER_PARTS)
        for (int j = 0; j < OPTIMIZER_PARTS; j++) part[j] += (double)g[i + j] * g[i + j];
    for (; i < n; i++) all += (double)g[i] * g[i];
    for (int j = 0; j < OPTIMIZER_PARTS; j++) all += part[j];
    *sum += (float)(all * scale);
    return OK;
}

enum err optimizer_adamw_cpu(float *w, float *master, float *restrict m, float *restrict v, const float *restrict g,
                             int64_t n, const struct optimizer_adamw *o)
{
    const float fix1 = (float)(1 / (1 - pow(o->beta1, o->step))), fix2 = (float)(1 / (1 - pow(o->beta2, o->step)));
    const float beta1 = (float)o->beta1, beta2 = (float)o->beta2, rest1 = (float)(1 - o->beta1),
                rest2 = (float)(1 - o->beta2), eps = (float)o->eps, scale = (float)o->scale, lr = (float)o->lr,
                keep = (float)(1 - o->lr * o->weight_decay);
    float *restrict x = master ? master : w;
    for (int64_t i = 0; i < n; i++) {
        const float d = scale * g[i];
        m[i] = beta1 * m[i] + rest1 * d;
        v[i] = beta2 * v[i] + rest2 * d * d;
        x[i] = x[i] * keep - lr * (m[i] * fix1) / (sqrtf(v[i] * fix2) + eps);
    }
    for (int64_t i = 0; master && i < n; i++) w[i] = x[i];
    return OK;
}
