/* What kernel files share: launches, storage types, sums over a warp or a block. The same source is compiled by nvcc for
 * GPUs and by the host's compiler for the emulation in tests/simt, whose cuda_runtime.h stands in for CUDA's. */
#ifndef KERNELS_CU_CUH
#define KERNELS_CU_CUH
extern "C" {
#include "kernels/stream.h"
}
#include <cuda_runtime.h>

enum { CU_WARP = 32, CU_WIDTH = 256 };  /* lanes; threads of a block unless a kernel says otherwise */
static constexpr unsigned CU_ALL = 0xffffffffu;     /* lanes of a whole warp */

/* ---- launches ---- */

static inline enum err cu_answer()
{
    return cudaGetLastError() == cudaSuccess ? OK : ERR_DEVICE;
}

#if defined(__CUDACC__)
template <typename... P, typename... A>
static void cu_launch(void (*kernel)(P...), dim3 blocks, int threads, size_t shared_B, kstream s, A... args)
{
    kernel<<<blocks, threads, shared_B, s>>>(static_cast<P>(args)...);
}
static __device__ __forceinline__ char *cu_shared()
{
    extern __shared__ __align__(128) char cu_dynamic[];
    return cu_dynamic;
}
#else
template <typename... P, typename... A>
static void cu_launch(void (*kernel)(P...), dim3 blocks, int threads, size_t shared_B, kstream, A... args)
{
    auto body = [&] { kernel(static_cast<P>(args)...); };
    const simt_grid g = { { blocks.x, blocks.y, blocks.z }, { (unsigned)threads, 1, 1 }, shared_B };
    if (simt_launch_allowed((const void *)kernel, shared_B))
        simt_launch_run(&g, [](void *b) { (*(decltype(body) *)b)(); }, &body);
}
static inline char *cu_shared() { return simt_shared_memory(); }
#endif

/* Blocks for n things, `each` a block, at most `most`: kernels stride over what is left. */
static inline unsigned cu_blocks(int64_t n, int64_t each, int64_t most)
{
    const int64_t blocks = (n + each - 1) / each;
    return (unsigned)(blocks < most ? blocks : most);
}
enum { CU_MANY = 1 << 16 }; /* blocks beyond what any GPU holds at once */

/* ---- storage: float32, or bfloat16 rounded to nearest even; sums are made in float32 ---- */

struct cu_bf16 { uint16_t bits; };

static __device__ __forceinline__ float cu_float(float x) { return x; }
static __device__ __forceinline__ float cu_float(cu_bf16 x)
{
    const uint32_t bits = (uint32_t)x.bits << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

template <typename T> static __device__ __forceinline__ T cu_from(float x);
template <> __device__ __forceinline__ float cu_from<float>(float x) { return x; }
template <> __device__ __forceinline__ cu_bf16 cu_from<cu_bf16>(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return cu_bf16{ 0x7fff };   /* as cvt.rn.bf16.f32: one NaN */
    return cu_bf16{ (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16) };
}

/* V neighbours, moved as one. */
template <typename T, int V> struct alignas(V * sizeof(T)) cu_pack { T v[V]; };
template <typename T, int V> static __device__ __forceinline__ cu_pack<T, V> cu_load(const T *p)
{
    return *(const cu_pack<T, V> *)p;
}
template <typename T, int V> static __device__ __forceinline__ void cu_store(T *p, cu_pack<T, V> x)
{
    *(cu_pack<T, V> *)p = x;
}
/* Whether rows of `cols` at these addresses can be moved 16 bytes at a time. */
template <typename T, typename... P> static inline bool cu_wide(int64_t cols, const P *...p)
{
    const uintptr_t all = (0 | ... | (uintptr_t)p);
    return cols * (int64_t)sizeof(T) % 16 == 0 && all % 16 == 0;
}

/* f(a value of the storage type t), or f(the same, how many are moved as one). */
template <typename F> static enum err cu_type(enum dtype t, F f)
{
    switch (t) {
    case DT_F32: return f(float{});
    case DT_BF16: return f(cu_bf16{});
    default: return ERR_LIMIT;
    }
}
template <int V> struct cu_count { static constexpr int n = V; };
template <typename F, typename... P> static enum err cu_type_wide(enum dtype t, int64_t cols, F f, const P *...p)
{
    return cu_type(t, [&](auto zero) {
        using T = decltype(zero);
        return cu_wide<T>(cols, p...) ? f(zero, cu_count<16 / sizeof(T)>{}) : f(zero, cu_count<1>{});
    });
}

/* ---- sums, in one fixed order whatever the threads' order ---- */

static __device__ __forceinline__ int cu_lane() { return (int)threadIdx.x % CU_WARP; }
static __device__ __forceinline__ int cu_warp() { return (int)threadIdx.x / CU_WARP; }

template <typename T> static __device__ __forceinline__ T cu_warp_sum(T x)
{
    for (int bits = CU_WARP / 2; bits; bits /= 2) x += __shfl_xor_sync(CU_ALL, x, bits);
    return x;
}
static __device__ __forceinline__ float cu_warp_max(float x)
{
    for (int bits = CU_WARP / 2; bits; bits /= 2) x = fmaxf(x, __shfl_xor_sync(CU_ALL, x, bits));
    return x;
}
/* Every thread of a block of at most 1024 gets the answer. */
template <typename T> static __device__ T cu_block_sum(T x)
{
    __shared__ T part[CU_WARP];
    T sum = 0;
    x = cu_warp_sum(x);
    __syncthreads();                    /* of a sum before this one: everybody has read it */
    if (cu_lane() == 0) part[cu_warp()] = x;
    __syncthreads();
    for (int w = 0; w < (int)blockDim.x / CU_WARP; w++) sum += part[w];
    return sum;
}
static __device__ inline float cu_block_max(float x)
{
    __shared__ float part[CU_WARP];
    x = cu_warp_max(x);
    __syncthreads();
    if (cu_lane() == 0) part[cu_warp()] = x;
    __syncthreads();
    for (int w = 0; w < (int)blockDim.x / CU_WARP; w++) x = fmaxf(x, part[w]);
    return x;
}

#endif
