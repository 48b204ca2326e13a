/* The gated activation between the two matrices of an MLP: y = silu(gate) * up, times the row's routing
 * weight where there is one. gate and up are the two halves of a row of x. float32. Shazeer, "GLU Variants
 * Improve Transformer". */
#ifndef KERNELS_SWIGLU_H
#define KERNELS_SWIGLU_H
#include "models/base/err.h"
#include <stdint.h>

/* y [rows, cols]; x [rows, 2 cols]; prob [rows] or NULL, which means 1. */
enum err swiglu_ref(float *y, const float *x, const float *prob, int64_t rows, int cols);
/* dx [rows, 2 cols]; dprob [rows] or NULL; dy [rows, cols]. */
enum err swiglu_bwd_ref(float *dx, float *dprob, const float *x, const float *dy, const float *prob,
                        int64_t rows, int cols);

#endif
