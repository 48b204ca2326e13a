/* Vocabulary-parallel cross-entropy, one block a row of logits. */
extern "C" {
#include "kernels/xent.h"
}
#include "kernels/cu.cuh"

static __device__ int xent_real(struct xent x)
{
    const int64_t real = x.vocab - x.first;
    return real < 0 ? 0 : real < x.cols ? (int)real : x.cols;
}

template <typename T, int V> static __global__ void xent_max_kernel(float *most, const T *logit, int64_t rows, struct xent x)
{
    const int real = xent_real(x);
    for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
        float m = -INFINITY;
        for (int c = threadIdx.x * V; c < real; c += blockDim.x * V) {
            const cu_pack<T, V> p = cu_load<T, V>(logit + t * x.cols + c);
            for (int i = 0; i < V; i++)
                if (c + i < real) m = fmaxf(m, cu_float(p.v[i]));
        }
        m = cu_block_max(m);
        if (threadIdx.x == 0) most[t] = m;
    }
}

template <typename T, int V>
static __global__ void xent_sum_kernel(float *sum, const T *logit, const int32_t *label, const float *most, int64_t rows,
                                       struct xent x)
{
    const int real = xent_real(x);
    for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
        const int64_t at = label[t] - x.first;
        float all = 0;
        for (int c = threadIdx.x * V; c < real; c += blockDim.x * V) {
            const cu_pack<T, V> p = cu_load<T, V>(logit + t * x.cols + c);
            for (int i = 0; i < V; i++)
                if (c + i < real) all += expf(cu_float(p.v[i]) - most[t]);
        }
        all = cu_block_sum(all);
        if (threadIdx.x != 0) continue;
        sum[2 * t] = label[t] < 0 ? x.first == 0 : all;
        sum[2 * t + 1] = at >= 0 && at < real ? cu_float(logit[t * x.cols + at]) - most[t] : 0;
    }
}

static __global__ void xent_loss_kernel(float *loss, const float *sum, int64_t rows, double scale)
{
    double all = 0;
    for (int64_t t = threadIdx.x; t < rows; t += blockDim.x) all += log((double)sum[2 * t]) - sum[2 * t + 1];
    all = cu_block_sum(all);
    if (threadIdx.x == 0) *loss += (float)(all * scale);
}

template <typename T, int V>
static __global__ void xent_bwd_kernel(T *logit, const int32_t *label, const float *most, const float *sum, int64_t rows,
                                       float scale, struct xent x)
{
    const int real = xent_real(x);
    for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
        const int64_t at = label[t] - x.first;
        const float each = label[t] < 0 ? 0 : scale / sum[2 * t];
        for (int c = threadIdx.x * V; c < x.cols; c += blockDim.x * V) {
            cu_pack<T, V> p = cu_load<T, V>(logit + t * x.cols + c);
            for (int i = 0; i < V; i++) {
                float d = c + i < real ? expf(cu_float(p.v[i]) - most[t]) * each : 0;
                if (c + i == at && at < real) d -= scale;
                p.v[i] = cu_from<T>(d);
            }
            cu_store<T, V>(logit + t * x.cols + c, p);
        }
    }
}

extern "C" enum err xent_max_cuda(float *most, const void *logit, int64_t rows, const struct xent *x, enum dtype t, kstream s)
{
    const struct xent at = *x;
    if (rows == 0) return OK;
    return cu_type_wide(t, at.cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(xent_max_kernel<T, count.n>, cu_blocks(rows, 1, CU_MANY), CU_WIDTH, 0, s, most, (const T *)logit, rows, at);
        return cu_answer();
    }, logit);
}

extern "C" enum err xent_sum_cuda(float *sum, const void *logit, const int32_t *label, const float *most, int64_t rows,
                                  const struct xent *x, enum dtype t, kstream s)
{
    const struct xent at = *x;
    if (rows == 0) return OK;
    return cu_type_wide(t, at.cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(xent_sum_kernel<T, count.n>, cu_blocks(rows, 1, CU_MANY), CU_WIDTH, 0, s, sum, (const T *)logit, label, most,
                  rows, at);
        return cu_answer();
    }, logit);
}

extern "C" enum err xent_loss_cuda(float *loss, const float *sum, int64_t rows, double scale, kstream s)
{
    cu_launch(xent_loss_kernel, 1, CU_WIDTH, 0, s, loss, sum, rows, scale);
    return cu_answer();
}

extern "C" enum err xent_bwd_cuda(void *logit, const int32_t *label, const float *most, const float *sum, int64_t rows,
                                  double scale, const struct xent *x, enum dtype t, kstream s)
{
    const struct xent at = *x;
    if (rows == 0) return OK;
    return cu_type_wide(t, at.cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(xent_bwd_kernel<T, count.n>, cu_blocks(rows, 1, CU_MANY), CU_WIDTH, 0, s, (T *)logit, label, most, sum, rows,
                  (float)scale, at);
        return cu_answer();
    }, logit);
}
