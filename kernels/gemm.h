/* Matrix products of a linear layer y = x w^T, w [out, in], all row-major float32: forward, input gradient,
 * weight gradient; and the same over rows that are sorted by expert, expert e owning `count[e]` rows and w[e]
 * [out, in]. Every element is summed in a fixed order of the inner index: results repeat bit for bit, and a
 * row of y or dx does not depend on the rows beside it. */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H
#include "models/base/err.h"
#include <stdint.h>

/* y [rows, out] = x [rows, in] w^T. */
enum err gemm_ref(float *y, const float *x, const float *w, int64_t rows, int out, int in);
/* dx [rows, in] = dy [rows, out] w. */
enum err gemm_dgrad_ref(float *dx, const float *dy, const float *w, int64_t rows, int out, int in);
/* g [out, in] += dy^T x. */
enum err gemm_wgrad_ref(float *g, const float *x, const float *dy, int64_t rows, int out, int in);

/* The rows of `experts` experts one after the other; an expert without rows touches nothing, its gradient
 * neither. */
enum err gemm_grouped_ref(float *y, const float *x, const float *w, const int64_t *count, int experts,
                          int out, int in);
enum err gemm_grouped_dgrad_ref(float *dx, const float *dy, const float *w, const int64_t *count, int experts,
                                int out, int in);
enum err gemm_grouped_wgrad_ref(float *g, const float *x, const float *dy, const int64_t *count, int experts,
                                int out, int in);

#endif
