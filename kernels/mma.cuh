/* Tensor cores by the instructions that every GPU since Ampere has (PTX ISA: mma.m16n8k16, ldmatrix, cp.async), each with a
 * twin for the emulation that follows the ISA's description of which lane holds what. Products of bfloat16, sums in float32.
 * A warp's 16 x 8 piece of a result: lane holds 4 numbers, number j at row mma_row(lane, j) and column mma_col(lane, j). */
#ifndef KERNELS_MMA_CUH
#define KERNELS_MMA_CUH
#include "kernels/cu.cuh"

static __device__ __forceinline__ int mma_row(int lane, int j) { return lane / 4 + j / 2 * 8; }
static __device__ __forceinline__ int mma_col(int lane, int j) { return lane % 4 * 2 + j % 2; }

/* Two neighbours as a fragment holds them. */
static __device__ __forceinline__ uint32_t mma_pair(float low, float high)
{
    return cu_from<cu_bf16>(low).bits | (uint32_t)cu_from<cu_bf16>(high).bits << 16;
}

#if defined(__CUDACC__)
/* c += a b^T: a 16 rows of 16, b 8 rows of 16. */
static __device__ __forceinline__ void mma_add(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* Four 8 x 8 matrices of shared memory; lane l names row l % 8 of matrix l / 8, 16 bytes. r[i]: of matrix i, row lane / 4, two
 * neighbours from column lane % 4 * 2; TURNED: the same of its transpose. */
template <bool TURNED> static __device__ __forceinline__ void mma_load(uint32_t r[4], const void *row)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
/* Sends for 16 bytes, of which the last 16 - bytes become zero; both addresses are multiples of 16. */
static __device__ __forceinline__ void mma_copy(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void mma_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Until at most LEFT groups of this thread are still under way. */
template <int LEFT> static __device__ __forceinline__ void mma_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
}
#else
struct mma_lane { float *c; const uint32_t *a, *b; };
static inline float mma_part(uint32_t pair, int k) { return cu_float(cu_bf16{ (uint16_t)(pair >> 16 * (k % 2)) }); }
static inline void mma_add_all(void *const *lane)
{
    float a[16][16], b[8][16];
    for (int l = 0; l < 32; l++) {
        const mma_lane *m = (const mma_lane *)lane[l];
        for (int k = 0; k < 2; k++) {
            const int at = l % 4 * 2 + k;
            a[l / 4][at] = mma_part(m->a[0], k), a[l / 4 + 8][at] = mma_part(m->a[1], k);
            a[l / 4][at + 8] = mma_part(m->a[2], k), a[l / 4 + 8][at + 8] = mma_part(m->a[3], k);
            b[l / 4][at] = mma_part(m->b[0], k), b[l / 4][at + 8] = mma_part(m->b[1], k);
        }
    }
    for (int l = 0; l < 32; l++)
        for (int j = 0; j < 4; j++) {
            const float *x = a[mma_row(l, j)], *y = b[mma_col(l, j)];
            float sum = 0;
            for (int k = 0; k < 16; k++) sum += x[k] * y[k];
            ((mma_lane *)lane[l])->c[j] += sum;
        }
}
static inline void mma_add(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_lane m = { c, a, b };
    simt_meet(&m, mma_add_all);
}
struct mma_rows { uint32_t *r; const void *row; };
template <bool TURNED> static inline void mma_load_all(void *const *lane)
{
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) {
            uint16_t two[2];
            for (int k = 0; k < 2; k++) {
                const int row = TURNED ? l % 4 * 2 + k : l / 4, col = TURNED ? l / 4 : l % 4 * 2 + k;
                memcpy(&two[k], (const uint16_t *)((mma_rows *)lane[8 * i + row])->row + col, sizeof two[k]);
            }
            ((mma_rows *)lane[l])->r[i] = two[0] | (uint32_t)two[1] << 16;
        }
}
template <bool TURNED> static inline void mma_load(uint32_t r[4], const void *row)
{
    mma_rows m = { r, row };
    if ((uintptr_t)row % 16) simt_fail("ldmatrix of an address that is no multiple of 16");
    simt_meet(&m, mma_load_all<TURNED>);
}
static inline void mma_copy(void *to, const void *from, int bytes)
{
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16) simt_fail("cp.async of an address that is no multiple of 16");
    simt_copy(to, from, bytes, 16 - bytes);
}
static inline void mma_copy_commit() { simt_copy_commit(); }
template <int LEFT> static inline void mma_copy_wait() { simt_copy_wait(LEFT); }
#endif

#endif
