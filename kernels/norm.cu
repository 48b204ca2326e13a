/* RMSNorm. One block a run forward and backward. Backward, a block takes every PARTS-th run and keeps its share of the
 * weight's gradient in shared memory; a second kernel adds the shares in order, so a run of the program repeats. */
extern "C" {
#include "kernels/norm.h"
}
#include "kernels/cu.cuh"

enum { PARTS = 264 };                   /* two blocks on each of an H100's 132 multiprocessors */

template <typename T, int V> static __device__ float norm_scale(const T *x, int cols, float eps)
{
    float sum = 0;
    for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
        const cu_pack<T, V> p = cu_load<T, V>(x + c);
        for (int i = 0; i < V; i++) sum += cu_float(p.v[i]) * cu_float(p.v[i]);
    }
    return 1 / sqrtf(cu_block_sum(sum) / cols + eps);
}

template <typename T, int V>
static __global__ void norm_kernel(T *y, const T *x, const T *w, int64_t runs, int cols, float eps)
{
    for (int64_t run = blockIdx.x; run < runs; run += gridDim.x) {
        const float r = norm_scale<T, V>(x + run * cols, cols, eps);
        for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
            const cu_pack<T, V> p = cu_load<T, V>(x + run * cols + c), q = cu_load<T, V>(w + c);
            cu_pack<T, V> out;
            for (int i = 0; i < V; i++) out.v[i] = cu_from<T>(cu_float(p.v[i]) * r * cu_float(q.v[i]));
            cu_store<T, V>(y + run * cols + c, out);
        }
    }
}

/* One run: dx, and the run's part of the weight's gradient added to `g`, of which a thread touches only its columns. */
template <typename T, int V>
static __device__ void norm_bwd_run(T *dx, float *g, const T *x, const T *w, const T *dy, const T *dres, int cols, float eps)
{
    const float r = norm_scale<T, V>(x, cols, eps);
    float along = 0;
    for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
        const cu_pack<T, V> px = cu_load<T, V>(x + c), pw = cu_load<T, V>(w + c), pd = cu_load<T, V>(dy + c);
        for (int i = 0; i < V; i++) along += cu_float(pw.v[i]) * cu_float(pd.v[i]) * cu_float(px.v[i]);
    }
    const float back = cu_block_sum(along) * r * r * r / cols;
    for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
        const cu_pack<T, V> px = cu_load<T, V>(x + c), pw = cu_load<T, V>(w + c), pd = cu_load<T, V>(dy + c);
        cu_pack<T, V> out, add = {};
        if (dres) add = cu_load<T, V>(dres + c);
        for (int i = 0; i < V; i++) {
            const float xi = cu_float(px.v[i]), di = cu_float(pd.v[i]);
            out.v[i] = cu_from<T>(r * cu_float(pw.v[i]) * di - back * xi + cu_float(add.v[i]));
            g[c + i] += r * di * xi;
        }
        cu_store<T, V>(dx + c, out);
    }
}

template <typename T, int V>
static __global__ void norm_bwd_kernel(T *dx, float *part, const T *x, const T *w, const T *dy, const T *dres, int64_t runs,
                                       int cols, float eps)
{
    float *g = (float *)cu_shared();
    for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V)
        for (int i = 0; i < V; i++) g[c + i] = 0;
    for (int64_t run = blockIdx.x; run < runs; run += gridDim.x) {
        const int64_t at = run * cols;
        norm_bwd_run<T, V>(dx + at, g, x + at, w, dy + at, dres ? dres + at : nullptr, cols, eps);
    }
    for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V)
        for (int i = 0; i < V; i++) part[(int64_t)blockIdx.x * cols + c + i] = g[c + i];
}

static __global__ void norm_add_kernel(float *g, const float *part, int parts, int cols)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    if (c >= cols) return;
    for (int p = 0; p < parts; p++) sum += part[(int64_t)p * cols + c];
    g[c] += sum;
}

static int norm_parts(int64_t runs)
{
    return runs < PARTS ? (int)runs : PARTS;
}

extern "C" int64_t norm_scratch_B(int64_t runs, int cols)
{
    return (int64_t)norm_parts(runs) * cols * (int64_t)sizeof(float);
}

extern "C" enum err norm_cuda(void *y, const void *x, const void *w, int64_t runs, int cols, double eps, enum dtype t,
                              kstream s)
{
    if (runs == 0) return OK;
    return cu_type_wide(t, cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(norm_kernel<T, count.n>, cu_blocks(runs, 1, CU_MANY), CU_WIDTH, 0, s, (T *)y, (const T *)x, (const T *)w,
                  runs, cols, (float)eps);
        return cu_answer();
    }, y, x, w);
}

extern "C" enum err norm_bwd_cuda(void *dx, float *g, const void *x, const void *w, const void *dy, const void *dres,
                                  int64_t runs, int cols, double eps, void *scratch, enum dtype t, kstream s)
{
    const int parts = norm_parts(runs);
    const size_t shared_B = (size_t)cols * sizeof(float);
    float *part = (float *)scratch;
    if (runs == 0) return OK;
    if (cols > NORM_COLS) return ERR_LIMIT;
    return cu_type_wide(t, cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        const auto kernel = norm_bwd_kernel<T, count.n>;
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, NORM_COLS * (int)sizeof(float));
        cu_launch(kernel, parts, CU_WIDTH, shared_B, s, (T *)dx, part, (const T *)x, (const T *)w, (const T *)dy,
                  (const T *)dres, runs, cols, (float)eps);
        cu_launch(norm_add_kernel, cu_blocks(cols, CU_WIDTH, CU_MANY), CU_WIDTH, 0, s, g, part, parts, cols);
        return cu_answer();
    }, dx, x, w, dy, dres);
}
