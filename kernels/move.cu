/* Plain row work. The embedding's gradient adds a token's rows in rising order without atomics: the block of a token's
 * first appearance adds all of them, the blocks of the others leave. */
extern "C" {
#include "kernels/move.h"
}
#include "kernels/cu.cuh"

template <typename T, int V> static __global__ void move_add_kernel(T *y, const T *a, const T *b, int64_t n)
{
    const int64_t each = (int64_t)gridDim.x * blockDim.x * V;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; i < n; i += each) {
        const cu_pack<T, V> pa = cu_load<T, V>(a + i), pb = cu_load<T, V>(b + i);
        cu_pack<T, V> out;
        for (int k = 0; k < V; k++) out.v[k] = cu_from<T>(cu_float(pa.v[k]) + cu_float(pb.v[k]));
        cu_store<T, V>(y + i, out);
    }
}

extern "C" enum err move_add_cuda(void *y, const void *a, const void *b, int64_t n, enum dtype t, kstream s)
{
    if (n == 0) return OK;
    return cu_type_wide(t, n, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(move_add_kernel<T, count.n>, cu_blocks(n, CU_WIDTH * count.n, CU_MANY), CU_WIDTH, 0, s, (T *)y, (const T *)a,
                  (const T *)b, n);
        return cu_answer();
    }, y, a, b);
}

extern "C" enum err move_cols_cuda(void *to, int to_cols, const void *from, int from_cols, int64_t rows, int cols,
                                   enum dtype t, kstream s)
{
    const size_t B = (size_t)dtype_B(t);
    if (rows == 0 || cols == 0) return OK;
    return cudaMemcpy2DAsync(to, (size_t)to_cols * B, from, (size_t)from_cols * B, (size_t)cols * B, (size_t)rows,
                             cudaMemcpyDeviceToDevice, s) == cudaSuccess ? OK : ERR_DEVICE;
}

template <typename T, int V>
static __global__ void move_embed_kernel(T *y, const int32_t *token, const T *table, int64_t rows, int cols, int64_t first,
                                         int64_t held)
{
    for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
        const int64_t at = token[t] - first;
        const bool here = at >= 0 && at < held;
        for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
            cu_pack<T, V> p = {};
            if (here) p = cu_load<T, V>(table + at * cols + c);
            cu_store<T, V>(y + t * cols + c, p);
        }
    }
}

extern "C" enum err move_embed_cuda(void *y, const int32_t *token, const void *table, int64_t rows, int cols, int64_t first,
                                    int64_t held, enum dtype t, kstream s)
{
    if (rows == 0) return OK;
    return cu_type_wide(t, cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(move_embed_kernel<T, count.n>, cu_blocks(rows, 1, CU_MANY), CU_WIDTH, 0, s, (T *)y, token, (const T *)table,
                  rows, cols, first, held);
        return cu_answer();
    }, y, table);
}

/* Whether the block's token stood anywhere before t; the same answer in all threads. */
static __device__ bool move_seen(const int32_t *token, int64_t t)
{
    __shared__ int seen;
    __syncthreads();
    if (threadIdx.x == 0) seen = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < t; i += blockDim.x)
        if (token[i] == token[t]) seen = 1;
    __syncthreads();
    return seen;
}

template <typename T>
static __global__ void move_embed_bwd_kernel(float *g, const int32_t *token, const T *dy, int64_t rows, int cols, int64_t first,
                                             int64_t held)
{
    __shared__ int32_t some[CU_WIDTH];
    const int64_t t = blockIdx.x, at = token[t] - first;
    if (at < 0 || at >= held || move_seen(token, t)) return;
    for (int64_t from = t; from < rows; from += CU_WIDTH) {
        __syncthreads();
        if (from + threadIdx.x < rows) some[threadIdx.x] = token[from + threadIdx.x];
        __syncthreads();
        for (int64_t i = from; i < rows && i < from + CU_WIDTH; i++) {
            if (some[i - from] != token[t]) continue;
            for (int c = threadIdx.x; c < cols; c += blockDim.x) g[at * cols + c] += cu_float(dy[i * cols + c]);
        }
    }
}

extern "C" enum err move_embed_bwd_cuda(float *g, const int32_t *token, const void *dy, int64_t rows, int cols, int64_t first,
                                        int64_t held, enum dtype t, kstream s)
{
    if (rows == 0) return OK;
    return cu_type(t, [=](auto zero) {
        using T = decltype(zero);
        cu_launch(move_embed_bwd_kernel<T>, (unsigned)rows, CU_WIDTH, 0, s, g, token, (const T *)dy, rows, cols, first, held);
        return cu_answer();
    });
}
