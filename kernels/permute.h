/* Rows to the order of experts and back. perm [n, 2] holds (token, expert) per routed row; a token below 0 is nobody's: permute
 * makes zeros there, permute_back ignores the row. float32. */
#ifndef KERNELS_PERMUTE_H
#define KERNELS_PERMUTE_H
#include "kernels/stream.h"

/* y [n, cols]: y[j] = x[perm[j].token]. */
enum err permute_ref(float *y, const float *x, const int32_t *perm, int64_t n, int cols);
/* y [rows, cols]: y[t] = residual[t] (zero when NULL) + the sum of x[j] with perm[j].token = t, in rising j.
 */
enum err permute_back_ref(float *y, const float *x, const int32_t *perm, const float *residual, int64_t rows,
                          int64_t n, int cols);

/* The same, rows of type t, sums in float32. `most`: the most rows that one token can have; scratch: permute_scratch_B. */
int64_t permute_scratch_B(int64_t rows, int most);
enum err permute_cuda(void *y, const void *x, const int32_t *perm, int64_t n, int cols, enum dtype t, kstream s);
enum err permute_back_cuda(void *y, const void *x, const int32_t *perm, const void *residual, int64_t rows, int64_t n, int cols,
                           int most, void *scratch, enum dtype t, kstream s);

#endif
