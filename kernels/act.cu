/* The ungated activation and its gradient, a warp a row at a time. */
extern "C" {
#include "kernels/act.h"
}
#include "kernels/cu.cuh"

static __device__ __forceinline__ float act_normal(float x)
{
    return 0.5f * erfcf(-x * 0.70710678f);
}

template <enum act KIND> static __device__ __forceinline__ float act_value(float x)
{
    if (KIND == ACT_GELU) return x * act_normal(x);
    return x > 0 ? x * x : 0;
}

template <enum act KIND> static __device__ __forceinline__ float act_slope(float x)
{
    if (KIND == ACT_GELU) return act_normal(x) + x * 0.39894228f * expf(-x * x / 2);    /* 1 / sqrt(2 pi) */
    return x > 0 ? 2 * x : 0;
}

template <typename T, int V, enum act KIND>
static __global__ void act_kernel(T *y, const T *x, const float *prob, int64_t rows, int cols)
{
    const int64_t warps = (int64_t)gridDim.x * (CU_WIDTH / CU_WARP);
    for (int64_t r = (int64_t)blockIdx.x * (CU_WIDTH / CU_WARP) + cu_warp(); r < rows; r += warps) {
        const float weight = prob ? prob[r] : 1;
        for (int c = cu_lane() * V; c < cols; c += CU_WARP * V) {
            cu_pack<T, V> p = cu_load<T, V>(x + r * cols + c);
            for (int i = 0; i < V; i++) p.v[i] = cu_from<T>(act_value<KIND>(cu_float(p.v[i])) * weight);
            cu_store<T, V>(y + r * cols + c, p);
        }
    }
}

template <typename T, int V, enum act KIND>
static __global__ void act_bwd_kernel(T *dx, float *dprob, const T *x, const T *dy, const float *prob, int64_t rows, int cols)
{
    const int64_t warps = (int64_t)gridDim.x * (CU_WIDTH / CU_WARP);
    for (int64_t r = (int64_t)blockIdx.x * (CU_WIDTH / CU_WARP) + cu_warp(); r < rows; r += warps) {
        const float weight = prob ? prob[r] : 1;
        float sum = 0;
        for (int c = cu_lane() * V; c < cols; c += CU_WARP * V) {
            const cu_pack<T, V> px = cu_load<T, V>(x + r * cols + c), pd = cu_load<T, V>(dy + r * cols + c);
            cu_pack<T, V> out;
            for (int i = 0; i < V; i++) {
                const float xi = cu_float(px.v[i]), d = cu_float(pd.v[i]);
                out.v[i] = cu_from<T>(d * weight * act_slope<KIND>(xi));
                sum += d * act_value<KIND>(xi);
            }
            cu_store<T, V>(dx + r * cols + c, out);
        }
        sum = cu_warp_sum(sum);
        if (dprob && cu_lane() == 0) dprob[r] = sum;
    }
}

extern "C" enum err act_cuda(void *y, const void *x, const float *prob, int64_t rows, int cols, enum act kind, enum dtype t,
                             kstream s)
{
    const unsigned blocks = cu_blocks(rows, CU_WIDTH / CU_WARP, CU_MANY);
    if (rows == 0) return OK;
    return cu_type_wide(t, cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(kind == ACT_GELU ? act_kernel<T, count.n, ACT_GELU> : act_kernel<T, count.n, ACT_RELU2>, blocks, CU_WIDTH, 0,
                  s, (T *)y, (const T *)x, prob, rows, cols);
        return cu_answer();
    }, y, x);
}

extern "C" enum err act_bwd_cuda(void *dx, float *dprob, const void *x, const void *dy, const float *prob, int64_t rows,
                                 int cols, enum act kind, enum dtype t, kstream s)
{
    const unsigned blocks = cu_blocks(rows, CU_WIDTH / CU_WARP, CU_MANY);
    if (rows == 0) return OK;
    return cu_type_wide(t, cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(kind == ACT_GELU ? act_bwd_kernel<T, count.n, ACT_GELU> : act_bwd_kernel<T, count.n, ACT_RELU2>, blocks,
                  CU_WIDTH, 0, s, (T *)dx, dprob, (const T *)x, (const T *)dy, prob, rows, cols);
        return cu_answer();
    }, dx, x, dy);
}
