/* Optimizers, element by element, in double between loads and stores: every slice of a bucket then steps
 * alike, whoever holds it. */
#include "kernels/optimizer.h"
#include <math.h>

enum err optimizer_sumsq_ref(float *sum, const float *g, int64_t n, double scale)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++) all += (double)g[i] * g[i];
    *sum += (float)(all * scale);
    return OK;
}

double optimizer_clip(double sumsq, double clip)
{
    const double norm = sqrt(sumsq);
    return clip > 0 ? fmin(1, clip / (norm + 1e-6)) : 1;
}

enum err optimizer_adamw_ref(float *w, float *master, float *m, float *v, const float *g, int64_t n,
                             const struct optimizer_adamw *o)
{
    const double fix1 = 1 - pow(o->beta1, o->step), fix2 = 1 - pow(o->beta2, o->step);
    float *x = master ? master : w;
    for (int64_t i = 0; i < n; i++) {
        const double d = o->scale * g[i];
        m[i] = (float)(o->beta1 * m[i] + (1 - o->beta1) * d);
        v[i] = (float)(o->beta2 * v[i] + (1 - o->beta2) * d * d);
        const double step = m[i] / fix1 / (sqrt(v[i] / fix2) + o->eps) + o->weight_decay * x[i];
        w[i] = x[i] = (float)(x[i] - o->lr * step);
    }
    return OK;
}

enum err optimizer_sgd_ref(float *w, float *master, const float *g, int64_t n, double lr, double scale)
{
    float *x = master ? master : w;
    for (int64_t i = 0; i < n; i++) w[i] = x[i] = (float)(x[i] - lr * scale * g[i]);
    return OK;
}
