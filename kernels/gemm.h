/* Matrix products of a linear layer y = x w^T, w [out, in], all row-major float32: forward, input gradient,
 * weight gradient; and the same over rows that are sorted by expert, expert e owning `count[e]` rows and w[e]
 * [out, in]. Every element is summed in a fixed order of the inner index: results repeat bit for bit, and a
 * row of y or dx does not depend on the rows beside it. */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H
#include "kernels/stream.h"

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

/* The same, matrices of type t and g float32, with the groups on the device: expert e owns rows start[e] to start[e + 1] of
 * at most `rows`; start NULL: all rows are of one matrix. y of type `to`: t, or float32. Any shape; 16-byte rows are fast. */
enum err gemm_grouped_cuda(void *y, const void *x, const void *w, const int32_t *start, int experts, int64_t rows, int out,
                           int in, enum dtype t, enum dtype to, kstream s);
enum err gemm_grouped_dgrad_cuda(void *dx, const void *dy, const void *w, const int32_t *start, int experts, int64_t rows,
                                 int out, int in, enum dtype t, kstream s);
enum err gemm_grouped_wgrad_cuda(float *g, const void *x, const void *dy, const int32_t *start, int experts, int64_t rows,
                                 int out, int in, enum dtype t, kstream s);

#endif
