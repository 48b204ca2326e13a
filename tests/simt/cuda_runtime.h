/* Stands in for CUDA's header of this name when a kernel file, or the CUDA backend, is compiled by the host's compiler
 * for the emulation of simt.h. Only what this tree uses is here; meanings as in the CUDA C++ Programming Guide and the
 * CUDA Runtime API reference. Device memory is host memory, and every stream is done when a call returns. */
#ifndef TESTS_SIMT_CUDA_RUNTIME_H
#define TESTS_SIMT_CUDA_RUNTIME_H
#include "tests/simt/simt.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInsufficientDriver = 35,
               cudaErrorLaunchFailure = 719 } cudaError_t;
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3,
                      cudaMemcpyDefault = 4 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
typedef struct CUstream_st *cudaStream_t;

static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                          cudaStream_t s)
{
    (void)kind, (void)s;
    if (bytes) memcpy(to, from, bytes);
    return cudaSuccess;
}

static inline cudaError_t cudaMemcpy2DAsync(void *to, size_t to_B, const void *from, size_t from_B, size_t row_B,
                                            size_t rows, enum cudaMemcpyKind kind, cudaStream_t s)
{
    (void)kind, (void)s;
    if (row_B > to_B || row_B > from_B) return cudaErrorInvalidValue;
    for (size_t i = 0; i < rows; i++) memcpy((char *)to + i * to_B, (const char *)from + i * from_B, row_B);
    return cudaSuccess;
}

static inline cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
    (void)s;
    if (bytes) memset(to, value, bytes);
    return cudaSuccess;
}

/* ---- memory and the device, of which there is one, as good as any ---- */
#define CUDART_VERSION 13000
#define cudaStreamPerThread ((cudaStream_t)0x2)
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76,
                      cudaDevAttrConcurrentManagedAccess = 89 };
enum { cudaMemAttachGlobal = 1 };
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };

static inline cudaError_t simt_new(void **p, size_t bytes)
{
    *p = aligned_alloc(256, (bytes / 256 + 1) * 256);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    return simt_new(p, bytes);
}
/* What is new holds no numbers. */
static inline cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t s)
{
    (void)s;
    const cudaError_t e = simt_new(p, bytes);
    if (e == cudaSuccess) memset(*p, 0xff, bytes);
    return e;
}
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes { enum cudaMemoryType type; };
/* As if all memory were the device's. */
static inline cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    a->type = cudaMemoryTypeManaged;
    return p ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}
static inline cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
    (void)s;
    return cudaFree(p);
}
static inline cudaError_t cudaMemGetInfo(size_t *free_B, size_t *all_B)
{
    *free_B = *all_B = SIZE_MAX / 2;
    return cudaSuccess;
}
typedef struct CUmemPoolHandle_st *cudaMemPool_t;
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
static inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    *pool = NULL;
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr a, void *value)
{
    (void)pool, (void)a;
    return value ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    (void)s;
    return cudaSuccess;
}
struct cudaMemLocation { enum cudaMemLocationType type; int id; };
static inline cudaError_t cudaMemPrefetchAsync(const void *p, size_t bytes, struct cudaMemLocation to, unsigned flags,
                                               cudaStream_t s)
{
    (void)bytes, (void)flags, (void)s;
    return p && to.id == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

/* Events: all before them is done when they are recorded. Waiting for one that never was, which CUDA takes for done, is a fault
 * here: whoever waits for an event means one. */
typedef struct CUevent_st { double ms; int recorded; } *cudaEvent_t;
static inline cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    *e = (cudaEvent_t)calloc(1, sizeof **e);
    return *e ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return cudaSuccess;
}
static inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    struct timespec now;
    (void)s;
    clock_gettime(CLOCK_MONOTONIC, &now);
    e->ms = 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
    e->recorded = 1;
    return cudaSuccess;
}
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)s, (void)flags;
    return e->recorded ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    return e->recorded ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)(to->ms - from->ms);
    return from->recorded && to->recorded ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int i)
{
    return i == 0 ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a, int device)
{
    (void)device;
    *value = a == cudaDevAttrComputeCapabilityMajor ? 9 : a == cudaDevAttrConcurrentManagedAccess;
    return cudaSuccess;
}
static inline const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaSuccess ? "no error" : "an error of the emulation";
}

/* A fault is reported once, to whoever asks first: the launcher. simt_fault() still has its text. */
#ifdef __cplusplus
extern "C"
#endif
cudaError_t cudaGetLastError(void);

#ifdef __cplusplus
/* ---- the language ---- */
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
/* Each use of `static` is its own variable: in a kernel template, one for each instance, as on a GPU. */
#define __shared__ static __attribute__((section("simt_shared")))
#define threadIdx simt_thread
#define blockIdx simt_block
#define blockDim simt_threads
#define gridDim simt_blocks

struct alignas(8) float2 { float x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

static inline void __syncthreads() { simt_barrier(); }
static inline double cospi(double x) { return cos(M_PI * (x - 2 * rint(x / 2))); }
static inline double sinpi(double x) { return sin(M_PI * (x - 2 * rint(x / 2))); }
static inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
static inline int __float_as_int(float x)
{
    int i;
    memcpy(&i, &x, sizeof i);
    return i;
}

/* ---- warp operations: all 32 lanes, whole masks ---- */
struct simt_vote { unsigned mask; int64_t value, from, answer; };
static inline void simt_vote_check(unsigned mask)
{
    if (mask != 0xffffffffu) simt_fail("a warp operation with a mask of less than 32 lanes");
}
static inline void simt_shuffle_all(void *const *lane)
{
    for (int i = 0; i < 32; i++) {
        simt_vote *v = (simt_vote *)lane[i];
        v->answer = ((simt_vote *)lane[v->from & 31])->value;
    }
}
static inline void simt_ballot_all(void *const *lane)
{
    int64_t bits = 0;
    for (int i = 0; i < 32; i++) bits |= (int64_t)(((simt_vote *)lane[i])->value != 0) << i;
    for (int i = 0; i < 32; i++) ((simt_vote *)lane[i])->answer = bits;
}
static inline int simt_lane() { return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }
template <typename T> static inline T simt_shuffle(unsigned mask, T value, int from)
{
    simt_vote v = { mask, 0, from, 0 };
    T answer;
    static_assert(sizeof(T) <= sizeof v.value, "one shuffle moves 8 bytes");
    simt_vote_check(mask);
    memcpy(&v.value, &value, sizeof value);
    simt_meet(&v, simt_shuffle_all);
    memcpy(&answer, &v.answer, sizeof answer);
    return answer;
}
template <typename T> static inline T __shfl_sync(unsigned mask, T value, int from) { return simt_shuffle(mask, value, from); }
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits)
{
    return simt_shuffle(mask, value, simt_lane() ^ bits);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by)
{
    return simt_shuffle(mask, value, simt_lane() < (int)by ? simt_lane() : simt_lane() - (int)by);
}
static inline unsigned __ballot_sync(unsigned mask, int is)
{
    simt_vote v = { mask, is, 0, 0 };
    simt_vote_check(mask);
    simt_meet(&v, simt_ballot_all);
    return (unsigned)v.answer;
}
static inline void __syncwarp() { __ballot_sync(0xffffffffu, 0); }

/* ---- atomics: one thread runs at a time ---- */
template <typename T> static inline T atomicAdd(T *to, T value) { const T was = *to; *to = was + value; return was; }
template <typename T> static inline T atomicMin(T *to, T value) { const T was = *to; if (value < was) *to = value; return was; }

template <typename K> static inline cudaError_t cudaFuncSetAttribute(K *kernel, cudaFuncAttribute a, int value)
{
    (void)a;
    simt_launch_allow((const void *)kernel, value);
    return cudaSuccess;
}
#else
cudaError_t cudaGetLastError(void);
#endif
#endif
