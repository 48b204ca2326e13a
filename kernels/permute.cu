/* Rows to experts and back. Back, every token first learns which rows are its own (in the order that threads came, then
 * sorted), and one block sums them in rising order: the sum does not depend on the threads' order. */
extern "C" {
#include "kernels/permute.h"
}
#include "kernels/cu.cuh"

extern "C" int64_t permute_scratch_B(int64_t rows, int most)
{
    return rows * (most + 1) * (int64_t)sizeof(int32_t);
}

template <typename T, int V>
static __global__ void permute_kernel(T *y, const T *x, const int32_t *perm, int64_t n, int cols)
{
    for (int64_t j = blockIdx.x; j < n; j += gridDim.x) {
        const int64_t from = perm[2 * j];
        for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
            cu_pack<T, V> p = {};
            if (from >= 0) p = cu_load<T, V>(x + from * cols + c);
            cu_store<T, V>(y + j * cols + c, p);
        }
    }
}

static __global__ void permute_list_kernel(int32_t *list, int32_t *have, const int32_t *perm, int64_t n, int most)
{
    const int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= n || perm[2 * j] < 0) return;
    const int64_t t = perm[2 * j];
    const int at = atomicAdd(&have[t], 1);
    if (at < most) list[t * most + at] = (int32_t)j;
}

/* Insertion: a token has a handful of rows. */
static __device__ void permute_sort(int32_t *list, int n)
{
    for (int i = 1; i < n; i++) {
        const int32_t x = list[i];
        int k = i;
        for (; k > 0 && list[k - 1] > x; k--) list[k] = list[k - 1];
        list[k] = x;
    }
}

template <typename T, int V>
static __global__ void permute_back_kernel(T *y, const T *x, int32_t *list, const int32_t *have, const T *residual,
                                           int64_t rows, int cols, int most)
{
    for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
        const int n = have[t] < most ? have[t] : most;
        if (threadIdx.x == 0) permute_sort(list + t * most, n);
        __syncthreads();
        for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
            float sum[V];
            cu_pack<T, V> p = {};
            if (residual) p = cu_load<T, V>(residual + t * cols + c);
            for (int i = 0; i < V; i++) sum[i] = cu_float(p.v[i]);
            for (int k = 0; k < n; k++) {
                p = cu_load<T, V>(x + (int64_t)list[t * most + k] * cols + c);
                for (int i = 0; i < V; i++) sum[i] += cu_float(p.v[i]);
            }
            for (int i = 0; i < V; i++) p.v[i] = cu_from<T>(sum[i]);
            cu_store<T, V>(y + t * cols + c, p);
        }
    }
}

extern "C" enum err permute_cuda(void *y, const void *x, const int32_t *perm, int64_t n, int cols, enum dtype t, kstream s)
{
    if (n == 0) return OK;
    return cu_type_wide(t, cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(permute_kernel<T, count.n>, cu_blocks(n, 1, CU_MANY), CU_WIDTH, 0, s, (T *)y, (const T *)x, perm, n, cols);
        return cu_answer();
    }, y, x);
}

extern "C" enum err permute_back_cuda(void *y, const void *x, const int32_t *perm, const void *residual, int64_t rows, int64_t n,
                                      int cols, int most, void *scratch, enum dtype t, kstream s)
{
    int32_t *have = (int32_t *)scratch, *list = have + rows;
    if (rows == 0) return OK;
    if (cudaMemsetAsync(have, 0, (size_t)rows * sizeof *have, s) != cudaSuccess) return ERR_DEVICE;
    if (n) cu_launch(permute_list_kernel, cu_blocks(n, CU_WIDTH, INT32_MAX), CU_WIDTH, 0, s, list, have, perm, n, most);
    return cu_type_wide(t, cols, [=](auto zero, auto count) {
        using T = decltype(zero);
        cu_launch(permute_back_kernel<T, count.n>, cu_blocks(rows, 1, CU_MANY), CU_WIDTH, 0, s, (T *)y, (const T *)x, list, have,
                  (const T *)residual, rows, cols, most);
        return cu_answer();
    }, y, x, residual);
}
