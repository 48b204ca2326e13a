/* Communicators among logical ranks on one GPU: comm_shm, whose members are threads that show each other device
 * memory, with copies and sums by the device. Memory that only the host sees (a launcher's scratch) is copied just
 * the same, and summed by the host. */
#include "exec/device_cuda.h"
#include "kernels/sum.h"
#include <cuda_runtime.h>

static int on_device(const void *p)
{
    struct cudaPointerAttributes a;
    if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return a.type == cudaMemoryTypeManaged || a.type == cudaMemoryTypeDevice;
}

static const char *local_copy(void *to, const void *from, int64_t bytes)
{
    const cudaError_t e = cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, cudaStreamPerThread);
    return e == cudaSuccess ? NULL : cudaGetErrorString(e);
}

static const char *local_reduce(int *reduced, float *to, const float *const *from, int members, int64_t n, int max)
{
    *reduced = members <= SUM_MEMBERS && on_device(to);
    for (int i = 0; i < members && *reduced; i++) *reduced = on_device(from[i]);
    if (!*reduced) return NULL;
    return sum_members_cuda(to, from, members, n, max, device_stream()) == OK ? NULL : "the sum's launch was refused";
}

const struct comm_mover local_mover = { .copy = local_copy, .reduce = local_reduce, .wait = device_wait };
