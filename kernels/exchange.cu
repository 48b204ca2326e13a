/* Counts that stay on the device. The sort's map is a short table of runs, one for each source and local expert; a block
 * finds the run of its row by bisection. */
extern "C" {
#include "kernels/exchange.h"
}
#include "kernels/cu.cuh"

/* The sums of exchange.h, over a matrix on the device. Member m = a + etp * j. */
struct exchange_view { const int32_t *count; int etp, ep, experts; };

static __device__ int exchange_run(exchange_view x, int member, int i, int l)
{
    return x.count[(int64_t)member * x.experts + i * (x.experts / x.ep) + l];
}

/* One thread an expert counts; one thread then adds up, in order: a few hundred numbers. */
static __global__ void exchange_sizes_kernel(int32_t *size, int32_t *start, exchange_view x, int a, int i)
{
    int32_t *rows = (int32_t *)cu_shared();
    const int locals = x.experts / x.ep, members = x.etp * x.ep;
    for (int l = threadIdx.x; l < locals; l += blockDim.x) {
        int32_t all = 0;
        for (int m = 0; m < members; m++) all += exchange_run(x, m, i, l);
        rows[l] = all;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    int32_t at = 0, received = 0;
    for (int l = 0; l < locals; l++) {
        if (start) start[l] = at;
        at += rows[l];
        for (int j = 0; j < x.ep; j++) received += exchange_run(x, a + x.etp * j, i, l);
    }
    if (start) start[locals] = at;
    if (size) size[0] = received, size[1] = at;
}

extern "C" enum err exchange_sizes_cuda(int32_t *size, int32_t *start, const int32_t *count, int etp, int ep, int experts, int a,
                                        int i, kstream s)
{
    const exchange_view x = { count, etp, ep, experts };
    cu_launch(exchange_sizes_kernel, 1, CU_WIDTH, (size_t)(experts / ep) * sizeof(int32_t), s, size, start, x, a, i);
    return cu_answer();
}

/* ---- sorting ---- */

extern "C" int64_t exchange_scratch_B(int etp, int experts)
{
    return 2 * ((int64_t)etp * experts + 1) * (int64_t)sizeof(int32_t);
}

/* gathered[r], sorted[r]: where run r begins on either side. Runs in sorted order: local expert, a, j; the gathered side
 * holds a, j, local expert. The last entry ends the sorted side. */
static __global__ void exchange_runs_kernel(int32_t *gathered, int32_t *sorted, exchange_view x, int i)
{
    const int locals = x.experts / x.ep, members = x.etp * x.ep, runs = locals * members;
    if (threadIdx.x == 0) {
        int32_t at = 0;
        for (int r = 0; r < runs; r++) {
            const int l = r / members, a = r % members / x.ep, j = r % x.ep;
            sorted[r] = at;
            at += exchange_run(x, a + x.etp * j, i, l);
        }
        sorted[runs] = at;
    }
    if (threadIdx.x == CU_WARP) {
        int32_t at = 0;
        for (int q = 0; q < members; q++)
            for (int l = 0; l < locals; l++) {
                gathered[l * members + q] = at;
                at += exchange_run(x, q / x.ep + x.etp * (q % x.ep), i, l);
            }
    }
}

/* The last run that begins at or before `row`: empty runs before it begin there too. */
static __device__ int exchange_find(const int32_t *sorted, int runs, int64_t row)
{
    int low = 0, high = runs;
    while (high - low > 1) {
        const int mid = (low + high) / 2;
        if (sorted[mid] <= row) low = mid;
        else high = mid;
    }
    return low;
}

template <typename T, int V>
static __global__ void exchange_sort_kernel(T *y, const T *in, const int32_t *gathered, const int32_t *sorted, int runs,
                                            int cols, int back)
{
    for (int64_t row = blockIdx.x; row < sorted[runs]; row += gridDim.x) {
        const int r = exchange_find(sorted, runs, row);
        const int64_t other = gathered[r] + row - sorted[r];
        const T *from = in + (back ? row : other) * cols;
        T *to = y + (back ? other : row) * cols;
        for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) cu_store<T, V>(to + c, cu_load<T, V>(from + c));
    }
}

extern "C" enum err exchange_sort_cuda(void *y, const void *in, const int32_t *count, int etp, int ep, int experts, int i,
                                       int64_t rows, int cols, int back, void *scratch, enum dtype t, kstream s)
{
    const exchange_view x = { count, etp, ep, experts };
    const int runs = etp * experts;
    int32_t *gathered = (int32_t *)scratch, *sorted = gathered + runs + 1;
    if (rows == 0) return OK;
    cu_launch(exchange_runs_kernel, 1, 2 * CU_WARP, 0, s, gathered, sorted, x, i);
    return cu_type_wide(t, cols, [=](auto zero, auto width) {
        using T = decltype(zero);
        cu_launch(exchange_sort_kernel<T, width.n>, cu_blocks(rows, 1, CU_MANY), CU_WIDTH, 0, s, (T *)y, (const T *)in,
                  gathered, sorted, runs, cols, back);
        return cu_answer();
    }, y, in);
}
