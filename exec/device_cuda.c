/* The first GPU. Arenas are managed memory, which this backend's launchers and the CPU's both reach: what a kernel
 * has no part in (tokens, counts) needs no copies, and pages that only kernels touch stay on the GPU. */
#include "exec/device_cuda.h"
#include <cuda_runtime.h>

static const char *says(cudaError_t e)
{
    return e == cudaSuccess ? NULL : cudaGetErrorString(e);
}

static enum err device_checks(struct diag *d)
{
    int count = 0, major = 0, minor = 0, shared = 0;
    const cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaErrorInsufficientDriver)
        return fail(d, ERR_DEVICE,
                    "--backend cuda: no NVIDIA driver, or one older than CUDA %d.%d needs: install one, or use "
                    "--backend cpu",
                    CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (e != cudaSuccess || count == 0)
        return fail(d, ERR_DEVICE, "--backend cuda: no GPU that the driver shows (%s): use --backend cpu",
                    e == cudaSuccess ? "it counts 0" : cudaGetErrorString(e));
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    if ((major != 9 && major != 10) || minor != 0)
        return fail(d, ERR_DEVICE,
                    "--backend cuda: GPU 0 has compute capability %d.%d; kernels were built for 9.0 and 10.0: use "
                    "--backend cpu",
                    major, minor);
    cudaDeviceGetAttribute(&shared, cudaDevAttrConcurrentManagedAccess, 0);
    if (!shared)
        return fail(d, ERR_DEVICE,
                    "--backend cuda: GPU 0 cannot share memory with the host while it works (no concurrent managed "
                    "access), which this backend needs: use --backend cpu");
    return OK;
}

enum err device_open(struct diag *d)
{
    TRY(device_checks(d));
    cudaError_t e = cudaSetDevice(0);
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX; /* scratch that is given back stays with the pool, not with the driver */
    if (e == cudaSuccess) e = cudaDeviceGetDefaultMemPool(&pool, 0);
    if (e == cudaSuccess) e = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all);
    return e == cudaSuccess ? OK : fail(d, ERR_DEVICE, "--backend cuda: GPU 0: %s", cudaGetErrorString(e));
}

int64_t device_memory_B(void)
{
    size_t free_B = 0, all_B = 0;
    return cudaMemGetInfo(&free_B, &all_B) == cudaSuccess ? (int64_t)all_B : 0;
}

/* Managed memory may exceed the GPU's: pages then move to and fro, so what does not fit is refused. */
void *device_arena_new(int64_t bytes)
{
    size_t free_B = 0, all_B = 0;
    void *p = NULL;
    if (cudaMemGetInfo(&free_B, &all_B) != cudaSuccess || (size_t)bytes > free_B) return NULL;
    return cudaMallocManaged(&p, (size_t)bytes, cudaMemAttachGlobal) == cudaSuccess ? p : NULL;
}

void device_arena_free(void *p)
{
    cudaFree(p);
}

/* Pages would follow one fault at a time; a refusal costs time alone. */
void device_arena_filled(void *p, int64_t bytes)
{
    const struct cudaMemLocation here = { .type = cudaMemLocationTypeDevice, .id = 0 };
    if (cudaMemPrefetchAsync(p, (size_t)bytes, here, 0, cudaStreamPerThread) != cudaSuccess) cudaGetLastError();
    cudaStreamSynchronize(cudaStreamPerThread);
}

/* ---- the calling thread's stream ---- */

kstream device_stream(void)
{
    return (kstream)cudaStreamPerThread;
}

const char *device_wait(void)
{
    return says(cudaStreamSynchronize(cudaStreamPerThread));
}

const char *device_scratch_new(void **p, int64_t bytes)
{
    return says(cudaMallocAsync(p, (size_t)(bytes > 0 ? bytes : 1), cudaStreamPerThread));
}

const char *device_scratch_free(void *p)
{
    return says(cudaFreeAsync(p, cudaStreamPerThread));
}

const char *device_zero(void *p, int64_t bytes)
{
    return says(cudaMemsetAsync(p, 0, (size_t)bytes, cudaStreamPerThread));
}

const char *device_copy(void *to, const void *from, int64_t bytes)
{
    const cudaError_t e = cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, cudaStreamPerThread);
    return e == cudaSuccess ? device_wait() : cudaGetErrorString(e);
}

/* ---- marks ---- */

void *device_mark_new(void)
{
    cudaEvent_t e;
    return cudaEventCreate(&e) == cudaSuccess ? e : NULL;
}

void device_mark_free(void *mark)
{
    if (mark) cudaEventDestroy(mark);
}

const char *device_mark(void *mark)
{
    return says(cudaEventRecord(mark, cudaStreamPerThread));
}

const char *device_after(void *mark)
{
    return says(cudaStreamWaitEvent(cudaStreamPerThread, mark, 0));
}

const char *device_reached(void *mark)
{
    return says(cudaEventSynchronize(mark));
}

double device_between_s(void *from, void *to)
{
    float ms = 0;
    return cudaEventElapsedTime(&ms, from, to) == cudaSuccess ? 1e-3 * (double)ms : 0;
}
