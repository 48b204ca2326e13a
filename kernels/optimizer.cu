/* Optimizers over a slice, and the square sum in two steps of fixed order. Bias corrections are made on the host, in double;
 * elements in float32. */
extern "C" {
#include "kernels/optimizer.h"
}
#include "kernels/cu.cuh"

static __global__ void optimizer_squares_kernel(double *part, const float *g, int64_t n)
{
    const int64_t each = (int64_t)gridDim.x * blockDim.x;
    double all = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += each) all += (double)g[i] * g[i];
    all = cu_block_sum(all);
    if (threadIdx.x == 0) part[blockIdx.x] = all;
}

static __global__ void optimizer_sumsq_kernel(float *sum, const double *part, int parts, double scale)
{
    double all = 0;
    for (int i = threadIdx.x; i < parts; i += blockDim.x) all += part[i];
    all = cu_block_sum(all);
    if (threadIdx.x == 0) *sum += (float)(all * scale);
}

extern "C" enum err optimizer_sumsq_cuda(float *sum, const float *g, int64_t n, double scale, void *scratch, kstream s)
{
    const unsigned parts = cu_blocks(n, CU_WIDTH * 8, OPTIMIZER_BLOCKS);
    double *part = (double *)scratch;
    if (n == 0) return OK;
    cu_launch(optimizer_squares_kernel, parts, CU_WIDTH, 0, s, part, g, n);
    cu_launch(optimizer_sumsq_kernel, 1, CU_WIDTH, 0, s, sum, (const double *)part, (int)parts, scale);
    return cu_answer();
}

/* What a gradient is multiplied by; the formula of optimizer_clip, on the device. */
struct optimizer_factor { const float *sumsq; float clip, scale; };

static __device__ float optimizer_scale(optimizer_factor f)
{
    if (!f.sumsq || !(f.clip > 0)) return f.scale;
    return f.scale * fminf(1, f.clip / (sqrtf(*f.sumsq) + 1e-6f));
}

struct optimizer_rates { float lr, beta1, rest1, beta2, rest2, eps, decay, fix1, fix2; };

template <typename T, int V>
static __global__ void optimizer_adamw_kernel(T *w, float *x, float *m, float *v, const float *g, int64_t n, optimizer_rates o,
                                              optimizer_factor f)
{
    const int64_t each = (int64_t)gridDim.x * blockDim.x * V;
    const float scale = optimizer_scale(f);
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; i < n; i += each) {
        cu_pack<float, V> px = cu_load<float, V>(x + i), pm = cu_load<float, V>(m + i), pv = cu_load<float, V>(v + i);
        const cu_pack<float, V> pg = cu_load<float, V>(g + i);
        cu_pack<T, V> out;
        for (int k = 0; k < V; k++) {
            const float d = scale * pg.v[k];
            pm.v[k] = o.beta1 * pm.v[k] + o.rest1 * d;
            pv.v[k] = o.beta2 * pv.v[k] + o.rest2 * d * d;
            const float step = pm.v[k] * o.fix1 / (sqrtf(pv.v[k] * o.fix2) + o.eps) + o.decay * px.v[k];
            px.v[k] -= o.lr * step;
            out.v[k] = cu_from<T>(px.v[k]);
        }
        cu_store<float, V>(m + i, pm);
        cu_store<float, V>(v + i, pv);
        cu_store<float, V>(x + i, px);
        if ((void *)w != (void *)x) cu_store<T, V>(w + i, out);
    }
}

template <typename T, int V>
static __global__ void optimizer_sgd_kernel(T *w, float *x, const float *g, int64_t n, float lr, optimizer_factor f)
{
    const int64_t each = (int64_t)gridDim.x * blockDim.x * V;
    const float scale = lr * optimizer_scale(f);
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; i < n; i += each) {
        cu_pack<float, V> px = cu_load<float, V>(x + i);
        const cu_pack<float, V> pg = cu_load<float, V>(g + i);
        cu_pack<T, V> out;
        for (int k = 0; k < V; k++) {
            px.v[k] -= scale * pg.v[k];
            out.v[k] = cu_from<T>(px.v[k]);
        }
        cu_store<float, V>(x + i, px);
        if ((void *)w != (void *)x) cu_store<T, V>(w + i, out);
    }
}

extern "C" enum err optimizer_adamw_cuda(void *w, float *master, float *m, float *v, const float *g, int64_t n,
                                         const struct optimizer_adamw *o, const float *sumsq, double clip, enum dtype t,
                                         kstream s)
{
    const double fix1 = 1 / (1 - pow(o->beta1, o->step)), fix2 = 1 / (1 - pow(o->beta2, o->step));
    const optimizer_rates rates = { (float)o->lr, (float)o->beta1, (float)(1 - o->beta1), (float)o->beta2, (float)(1 - o->beta2),
                                    (float)o->eps, (float)o->weight_decay, (float)fix1, (float)fix2 };
    const optimizer_factor f = { sumsq, (float)clip, (float)o->scale };
    float *x = master ? master : (float *)w;
    if (n == 0) return OK;
    if (!master && t != DT_F32) return ERR_LIMIT;
    return cu_type(t, [=](auto zero) {
        using T = decltype(zero);
        const bool wide = cu_wide<float>(n, (float *)w, x, m, v, g);
        cu_launch(wide ? optimizer_adamw_kernel<T, 4> : optimizer_adamw_kernel<T, 1>,
                  cu_blocks(n, CU_WIDTH * (wide ? 4 : 1), CU_MANY), CU_WIDTH, 0, s, (T *)w, x, m, v, g, n, rates, f);
        return cu_answer();
    });
}

extern "C" enum err optimizer_sgd_cuda(void *w, float *master, const float *g, int64_t n, double lr, double scale,
                                       const float *sumsq, double clip, enum dtype t, kstream s)
{
    const optimizer_factor f = { sumsq, (float)clip, (float)scale };
    float *x = master ? master : (float *)w;
    if (n == 0) return OK;
    if (!master && t != DT_F32) return ERR_LIMIT;
    return cu_type(t, [=](auto zero) {
        using T = decltype(zero);
        const bool wide = cu_wide<float>(n, (float *)w, x, g);
        cu_launch(wide ? optimizer_sgd_kernel<T, 4> : optimizer_sgd_kernel<T, 1>, cu_blocks(n, CU_WIDTH * (wide ? 4 : 1), CU_MANY),
                  CU_WIDTH, 0, s, (T *)w, x, g, n, (float)lr, f);
        return cu_answer();
    });
}
