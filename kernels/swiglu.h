/* The gated activation between the two matrices of an MLP: y = silu(gate) * up, times the row's routing
 * weight where there is one. gate and up are the two halves of a row of x. float32. Shazeer, "GLU Variants
 * Improve Transformer". */
#ifndef KERNELS_SWIGLU_H
#define KERNELS_SWIGLU_H
#include "kernels/stream.h"

/* y [rows, cols]; x [rows, 2 cols]; prob [rows] or NULL, which means 1. */
enum err swiglu_ref(float *y, const float *x, const float *prob, int64_t rows, int cols);
/* dx [rows, 2 cols]; dprob [rows] or NULL; dy [rows, cols]. */
enum err swiglu_bwd_ref(float *dx, float *dprob, const float *x, const float *dy, const float *prob,
                        int64_t rows, int cols);

/* The same; x, y, dx, dy of type t, prob and dprob float32. */
enum err swiglu_cuda(void *y, const void *x, const float *prob, int64_t rows, int cols, enum dtype t, kstream s);
enum err swiglu_bwd_cuda(void *dx, float *dprob, const void *x, const void *dy, const float *prob, int64_t rows, int cols,
                         enum dtype t, kstream s);

#endif
