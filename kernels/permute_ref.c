/* Permutation of routed rows: a gather forward, a sum back. */
#include "kernels/permute.h"
#include "kernels/vec.h"
#include <string.h>

enum err permute_ref(float *y, const float *x, const int32_t *perm, int64_t n, int cols)
{
    for (int64_t j = 0; j < n; j++)
        if (perm[2 * j] < 0) memset(y + j * cols, 0, (size_t)cols * sizeof *y);
        else memcpy(y + j * cols, x + (int64_t)perm[2 * j] * cols, (size_t)cols * sizeof *y);
    return OK;
}

enum err permute_back_ref(float *y, const float *x, const int32_t *perm, const float *residual, int64_t rows,
                          int64_t n, int cols)
{
    const size_t y_B = (size_t)(rows * cols) * sizeof *y;
    if (residual) memcpy(y, residual, y_B);
    else memset(y, 0, y_B);
    for (int64_t j = 0; j < n; j++)
        if (perm[2 * j] >= 0) vec_add(y + (int64_t)perm[2 * j] * cols, x + j * cols, 1, cols);
    return OK;
}
