/* RMSNorm, y = x / sqrt(mean(x^2) + eps) * w, over runs of `cols` numbers (a row, or each head of a row).
 * float32, sums in double. Zhang and Sennrich, "Root Mean Square Layer Normalization". */
#ifndef KERNELS_NORM_H
#define KERNELS_NORM_H
#include "kernels/stream.h"

/* y, x [runs, cols]; w [cols]. */
enum err norm_ref(float *y, const float *x, const float *w, int64_t runs, int cols, double eps);
/* dx [runs, cols] = the gradient through the norm, plus dres when that is not NULL; g [cols] += the weight's.
 */
enum err norm_bwd_ref(float *dx, float *g, const float *x, const float *w, const float *dy, const float *dres,
                      int64_t runs, int cols, double eps);

/* The same, rows of type t, g float32; scratch: norm_scratch_B. cols at most NORM_COLS backward. */
enum { NORM_COLS = 16384 };
int64_t norm_scratch_B(int64_t runs, int cols);
enum err norm_cuda(void *y, const void *x, const void *w, int64_t runs, int cols, double eps, enum dtype t, kstream s);
enum err norm_bwd_cuda(void *dx, float *g, const void *x, const void *w, const void *dy, const void *dres, int64_t runs,
                       int cols, double eps, void *scratch, enum dtype t, kstream s);

#endif
