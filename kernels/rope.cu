/* The rotation, one block a row. Angles in double, made once a row and shared by all heads. */
#include <math.h>
extern "C" {
#include "kernels/rope.h"
}
#include "kernels/turn.cuh"

template <typename T>
static __global__ void rope_kernel(T *x, int64_t rows, int heads, int width, int dim, struct rope r, int back)
{
    const int half = dim / 2;
    float *cosine = (float *)cu_shared(), *sine = cosine + half;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        turn_angles(cosine, sine, half, r, row, back);
        for (int p = threadIdx.x; p < heads * half; p += blockDim.x) {
            const int i = p % half;
            T *head = x + (row * heads + p / half) * width + width - dim;
            turn_pair(&head[i], &head[i + half], cu_float(head[i]), cu_float(head[i + half]), cosine[i], sine[i]);
        }
    }
}

extern "C" enum err rope_cuda(void *x, int64_t rows, int heads, int width, int dim, const struct rope *r, int back,
                              enum dtype t, kstream s)
{
    const struct rope at = *r;
    if (rows == 0 || dim < 2) return OK;
    return cu_type(t, [=](auto zero) {
        using T = decltype(zero);
        cu_launch(rope_kernel<T>, cu_blocks(rows, 1, CU_MANY), CU_WIDTH, (size_t)(dim / 2) * 2 * sizeof(float), s, (T *)x, rows,
                  heads, width, dim, at, back);
        return cu_answer();
    });
}
