/* Joins two blocks' outputs: a warp holds one row of one head. Types are asked for at every number: the kernel waits for memory
 * all the same. */
extern "C" {
#include "kernels/merge.h"
}
#include "kernels/cu.cuh"

enum { WARPS = 4 };                     /* of a block */

struct merge_part { const void *o; const float *lse; enum dtype t; };

static __device__ __forceinline__ float merge_at(const merge_part &p, int64_t i)
{
    return p.t == DT_F32 ? ((const float *)p.o)[i] : cu_float(((const cu_bf16 *)p.o)[i]);
}

static __global__ void merge_kernel(void *o, enum dtype t, float *lse, merge_part a, merge_part b, int64_t items, int width)
{
    const int64_t each = (int64_t)gridDim.x * WARPS;
    for (int64_t i = (int64_t)blockIdx.x * WARPS + cu_warp(); i < items; i += each) {
        const float x = a.lse[i], y = b.lse[i], most = fmaxf(x, y);
        const float all = most > -INFINITY ? most + logf(expf(x - most) + expf(y - most)) : -INFINITY;
        const float wx = x > -INFINITY ? expf(x - all) : 0, wy = y > -INFINITY ? expf(y - all) : 0;
        for (int c = cu_lane(); c < width; c += CU_WARP) {
            const int64_t at = i * width + c;
            const float v = wx * merge_at(a, at) + wy * merge_at(b, at);
            if (t == DT_F32) ((float *)o)[at] = v;
            else ((cu_bf16 *)o)[at] = cu_from<cu_bf16>(v);
        }
        if (cu_lane() == 0) lse[i] = all;
    }
}

static bool merge_knows(enum dtype t)
{
    return t == DT_F32 || t == DT_BF16;
}

extern "C" enum err merge_cuda(void *o, float *lse, const void *o0, const float *lse0, const void *o1, const float *lse1,
                               int64_t rows, int heads, int width, enum dtype t, enum dtype t0, enum dtype t1, kstream s)
{
    const int64_t items = rows * heads;
    if (!merge_knows(t) || !merge_knows(t0) || !merge_knows(t1)) return ERR_LIMIT;
    if (items == 0) return OK;
    const merge_part a = { o0, lse0, t0 }, b = { o1, lse1, t1 };
    cu_launch(merge_kernel, cu_blocks(items, WARPS, CU_MANY), WARPS * CU_WARP, 0, s, o, t, lse, a, b, items, width);
    return cu_answer();
}
