/* Rows to the order of experts and back. perm [n, 2] holds (token, expert) per routed row. float32. */
#ifndef KERNELS_PERMUTE_H
#define KERNELS_PERMUTE_H
#include "models/base/err.h"
#include <stdint.h>

/* y [n, cols]: y[j] = x[perm[j].token]. */
enum err permute_ref(float *y, const float *x, const int32_t *perm, int64_t n, int cols);
/* y [rows, cols]: y[t] = residual[t] (zero when NULL) + the sum of x[j] with perm[j].token = t, in rising j.
 */
enum err permute_back_ref(float *y, const float *x, const int32_t *perm, const float *residual, int64_t rows,
                          int64_t n, int cols);

#endif
