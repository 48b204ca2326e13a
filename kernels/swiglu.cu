/* SwiGLU and its gradient, a warp a row at a time: no barrier, and the row's sum for dprob stays in the warp. */
extern "C" {
#include "kernels/swiglu.h"
}
#include "kernels/cu.cuh"

static __device__ __forceinline__ float swiglu_sigmoid(float g)
{
    return 1 / (1 + expf(-g));
}

template <typename T, int V>
static __global__ void swiglu_kernel(T *y, const T *x, const float *prob, int64_t rows, int cols)
{
    const int64_t warps = (int64_t)gridDim.x * (CU_WIDTH / CU_WARP);
    for (int64_t r = (int64_t)blockIdx.x * (CU_WIDTH / CU_WARP) + cu_warp(); r < rows; r += warps) {
        const float weight = prob ? prob[r] : 1;
        const T *gate = x + r * 2 * cols, *up = gate + cols;
        for (int c = cu_lane() * V; c < cols; c += CU_WARP * V) {
            const cu_pack<T, V> pg = cu_load<T, V>(gate + c), pu = cu_load<T, V>(up + c);
            cu_pack<T, V> out;
            for (int i = 0; i < V; i++) {
                const float g = cu_float(pg.v[i]);
                out.v[i] = cu_from<T>(g * swiglu_sigmoid(g) * cu_float(pu.v[i]) * weight);
            }
            cu_store<T, V>(y + r * cols + c, out);
        }
    }
}

template <typename T, int V>
static __global__ void swiglu_bwd_kernel(T *dx, float *dprob, const T *x, const T *dy, const float *prob, int64_t rows,
                                         int cols)
{
    const int64_t warps = (int64_t)gridDim.x * (CU_WIDTH / CU_WARP);
    for (int64_t r = (int64_t)blockIdx.x * (CU_WIDTH / CU_WARP) + cu_warp(); r < rows; r += warps) {
        const float weight = prob ? prob[r] : 1;
        const T *gate = x + r * 2 * cols, *up = gate + cols;
        T *dgate = dx + r * 2 * cols, *dup = dgate + cols;
        float sum = 0;
        for (int c = cu_lane() * V; c < cols; c += CU_WARP * V) {
            const cu_pack<T, V> pg = cu_load<T, V>(gate + c), pu = cu_load<T, V>(up + c), pd = cu_load<T, V>(dy + r * cols + c);
            cu_pack<T, V> outg, outu;
            for (int i = 0; i < V; i++) {
                const float g = cu_float(pg.v[i]), u = cu_float(pu.v[i]), d = cu_float(pd.v[i]);
                const float sig = swiglu_sigmoid(g), silu = g * sig;
                outg.v[i] = cu_from<T>(d * weight * u * sig * (1 + g * (1 - sig)));
                outu.v[i] = cu_from<T>(d * weight * silu);
                sum += d * silu * u;
            }
            cu_store<T, V>(dgate + c, outg);
            cu_store<T, V>(dup + c, outu);
        }
        sum = cu_warp_sum(sum);
        if (dprob && cu_lane() == 0) dprob[r] = sum;
    }
}

extern "C" enum err swiglu_cuda(void *y, const void *x, const float *prob, int64_t rows, int cols, enum dtype t, kstream s)
{
    if (rows == 0) return OK;
    return cu_type_wide(t, cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(swiglu_kernel<T, count.n>, cu_blocks(rows, CU_WIDTH / CU_WARP, CU_MANY), CU_WIDTH, 0, s, (T *)y,
                  (const T *)x, prob, rows, cols);
        return cu_answer();
    }, y, x);
}

extern "C" enum err swiglu_bwd_cuda(void *dx, float *dprob, const void *x, const void *dy, const float *prob, int64_t rows,
                                    int cols, enum dtype t, kstream s)
{
    if (rows == 0) return OK;
    return cu_type_wide(t, cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(swiglu_bwd_kernel<T, count.n>, cu_blocks(rows, CU_WIDTH / CU_WARP, CU_MANY), CU_WIDTH, 0, s, (T *)dx, dprob,
                  (const T *)x, (const T *)dy, prob, rows, cols);
        return cu_answer();
    }, dx, x, dy);
}
