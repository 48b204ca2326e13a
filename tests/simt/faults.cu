/* Kernels that are wrong on purpose: test_simt.c checks that the emulation says so. */
#include "kernels/cu.cuh"
#include "tests/simt/faults.h"

static __global__ void no_barrier_kernel(int *out)
{
    __shared__ int part[64];
    part[threadIdx.x] = (int)threadIdx.x;
    out[threadIdx.x] = part[63 - threadIdx.x];      /* without a barrier before it */
}
static __global__ void barrier_kernel(int *out)
{
    __shared__ int part[64];
    part[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = part[63 - threadIdx.x];
}
static __global__ void half_barrier_kernel(int *)
{
    if (threadIdx.x < 40) __syncthreads();
}
static __global__ void half_warp_kernel(int *out)
{
    if (threadIdx.x < 16) out[0] = __shfl_sync(CU_ALL, 1, 0);
}
static __global__ void mixed_warp_kernel(int *out)
{
    if (threadIdx.x < 16) out[0] = __shfl_sync(CU_ALL, 1, 0);
    else __syncwarp();
}
static __global__ void stale_kernel(int *out)
{
    __shared__ int seen;
    int *more = (int *)cu_shared();
    out[blockIdx.x] = seen == -1 && more[0] == -1;  /* nothing of the block before is left */
    seen = more[0] = 7;
}
static __global__ void early_copy_kernel(int *out)
{
    int *there = (int *)cu_shared();
    static const int four[4] = { 1, 2, 3, 4 };
    simt_copy(there, four, 16, 0);
    simt_copy_commit();
    out[0] = there[3] == 4;             /* too early: nobody waited */
    simt_copy_wait(0);
    out[1] = there[3] == 4;
}

extern "C" enum err faults_run(int *out, enum fault which, int blocks, int threads, int shared_B)
{
    void (*const kernel[])(int *) = { no_barrier_kernel, barrier_kernel, half_barrier_kernel, half_warp_kernel,
                                      mixed_warp_kernel, stale_kernel, early_copy_kernel };
    cu_launch(kernel[which], blocks, threads, shared_B, nullptr, out);
    return cu_answer();
}
