/* Losses of a router: counts by one block a token, gradients by one warp a token, the value by one block over all of
 * them, so that its sum has one order. */
extern "C" {
#include "kernels/balance.h"
}
#include "kernels/cu.cuh"

static __device__ int64_t balance_scope(int64_t row, struct balance b)
{
    return (b.first + row) / b.local;
}

/* Counts are whole and far below 2^24: in any order the same. load is zeros. */
static __global__ void balance_load_kernel(float *load, const float *score, int64_t rows, struct balance b)
{
    float *row = (float *)cu_shared();
    for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
        const float *s = score + t * b.experts;
        __syncthreads(); /* everybody has read the row before */
        for (int e = threadIdx.x; e < b.experts; e += blockDim.x) row[e] = s[e];
        __syncthreads();
        for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
            int before = 0; /* larger, or as large and of a lower index */
            for (int i = 0; i < b.experts; i++) before += row[i] > row[e] || (row[i] == row[e] && i < e);
            if (before < b.topk) atomicAdd(load + balance_scope(t, b) * b.experts + e, 1.0f);
        }
    }
}

/* What a token's lane adds to dlogit; returns the token's value, whole in every lane. As balance_row of
 * balance_ref.c. */
static __device__ double balance_token(float *dlogit, const float *s, const float *load, struct balance b)
{
    const int divided = b.sigmoid && b.topk > 1;
    double whole = 0, mixed = 0;
    for (int e = cu_lane(); e < b.experts && divided; e += CU_WARP) whole += s[e];
    whole = divided ? cu_warp_sum(whole) + 1e-20 : 1;
    for (int e = cu_lane(); e < b.experts; e += CU_WARP) mixed += load[e] * s[e] / whole;
    mixed = cu_warp_sum(mixed);
    for (int e = cu_lane(); e < b.experts; e += CU_WARP) {
        const double dp = b.sigmoid && !divided ? load[e] : load[e] - mixed;
        dlogit[e] += (float)(b.scale * dp / whole * s[e] * (b.sigmoid ? 1 - s[e] : 1));
    }
    return b.scale * mixed;
}

static __device__ double balance_z_token(float *dlogit, const float *logit, struct balance b)
{
    float most = -INFINITY;
    double sum = 0;
    for (int e = cu_lane(); e < b.experts; e += CU_WARP) most = fmaxf(most, logit[e]);
    most = cu_warp_max(most);
    for (int e = cu_lane(); e < b.experts; e += CU_WARP) sum += exp((double)logit[e] - most);
    sum = cu_warp_sum(sum);
    const double lse = most + log(sum);
    for (int e = cu_lane(); e < b.experts; e += CU_WARP)
        dlogit[e] += (float)(2 * b.z_scale * lse * exp((double)logit[e] - most) / sum);
    return b.z_scale * lse * lse;
}

static __global__ void balance_kernel(float *dlogit, double *value, const float *score, const float *load,
                                      const float *logit, int64_t rows, struct balance b)
{
    const int64_t warps = blockDim.x / CU_WARP;
    for (int64_t t = blockIdx.x * warps + cu_warp(); t < rows; t += gridDim.x * warps) {
        const int64_t at = t * b.experts;
        double is = 0;
        if (load) is += balance_token(dlogit + at, score + at, load + balance_scope(t, b) * b.experts, b);
        if (logit) is += balance_z_token(dlogit + at, logit + at, b);
        if (cu_lane() == 0) value[t] = is;
    }
}

static __global__ void balance_sum_kernel(float *loss, const double *value, int64_t rows)
{
    double all = 0;
    for (int64_t t = threadIdx.x; t < rows; t += blockDim.x) all += value[t];
    all = cu_block_sum(all);
    if (threadIdx.x == 0) *loss += (float)all;
}

extern "C" enum err balance_load_cuda(float *load, const float *score, int64_t rows, int64_t scopes,
                                      const struct balance *b, kstream s)
{
    if (b->experts > BALANCE_EXPERTS) return ERR_LIMIT;
    if (cudaMemsetAsync(load, 0, (size_t)(scopes * b->experts) * sizeof *load, s) != cudaSuccess) return ERR_DEVICE;
    if (rows == 0) return OK;
    cu_launch(balance_load_kernel, cu_blocks(rows, 1, CU_MANY), CU_WIDTH, (size_t)b->experts * sizeof(float), s, load,
              score, rows, *b);
    return cu_answer();
}

extern "C" int64_t balance_cuda_scratch_B(int64_t rows)
{
    return rows * (int64_t)sizeof(double);
}

extern "C" enum err balance_cuda(float *dlogit, float *loss, const float *score, const float *load,
                                 const float *logit, int64_t rows, const struct balance *b, void *scratch, kstream s)
{
    double *value = (double *)scratch;
    if (rows == 0) return OK;
    cu_launch(balance_kernel, cu_blocks(rows, CU_WIDTH / CU_WARP, CU_MANY), CU_WIDTH, 0, s, dlogit, value, score,
              load, logit, rows, *b);
    cu_launch(balance_sum_kernel, 1, CU_WIDTH, 0, s, loss, value, rows);
    return cu_answer();
}
