/* Every thread sums an element over all members, in member order: the bits are those of the host's loop. */
extern "C" {
#include "kernels/sum.h"
}
#include "kernels/cu.cuh"

struct sum_from {
    const float *at[SUM_MEMBERS];
};

static __global__ void sum_members_kernel(float *to, struct sum_from from, int members, int64_t n, int max)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < n; k += step) {
        float all = from.at[0][k];
        for (int i = 1; i < members; i++) {
            const float x = from.at[i][k];
            all = !max ? all + x : x > all ? x : all;
        }
        to[k] = all;
    }
}

extern "C" enum err sum_members_cuda(float *to, const float *const *from, int members, int64_t n, int max, kstream s)
{
    struct sum_from all = {};
    if (members > SUM_MEMBERS) return ERR_LIMIT;
    if (n == 0) return OK;
    for (int i = 0; i < members; i++) all.at[i] = from[i];
    cu_launch(sum_members_kernel, cu_blocks(n, CU_WIDTH, CU_MANY), CU_WIDTH, 0, s, to, all, members, n, max);
    return cu_answer();
}
