/* The device of tests/device.h on a GPU: the same tests, the kernels that nvcc made (tools/gpu_check). One thread order: the
 * hardware's. */
#include "tests/device.h"
#include <cuda_runtime.h>

static void sound(cudaError_t e, const char *what)
{
    ck_assert_msg(e == cudaSuccess, "%s: %s", what, cudaGetErrorString(e));
}

void *device_new(const void *from, int64_t bytes)
{
    void *p = NULL;
    sound(cudaMalloc(&p, (size_t)bytes + 16), "cudaMalloc");
    sound(from ? cudaMemcpy(p, from, (size_t)bytes, cudaMemcpyHostToDevice) : cudaMemset(p, 0xff, (size_t)bytes), "filling it");
    return p;
}

void device_read(void *to, const void *p, int64_t bytes)
{
    sound(cudaMemcpy(to, p, (size_t)bytes, cudaMemcpyDeviceToHost), "reading it");
}

void device_free(void *p)
{
    sound(cudaFree(p), "cudaFree");
}

int device_orders(void)
{
    return 1;
}

void device_order(int i)
{
    (void)i;
}

const char *device_fault(void)
{
    const cudaError_t e = cudaDeviceSynchronize();
    return e == cudaSuccess ? "" : cudaGetErrorString(e);
}
