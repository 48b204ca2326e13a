/* The activation between the two matrices of an MLP without a gate: GELU in its exact form (Hendrycks and Gimpel), or the
 * square of what is above zero (So et al., "Primer"); times the row's routing weight where there is one. float32. */
#ifndef KERNELS_ACT_H
#define KERNELS_ACT_H
#include "models/base/err.h"
#include <stdint.h>

enum act { ACT_GELU, ACT_RELU2 };

/* y [rows, cols]; x [rows, cols]; prob [rows] or NULL, which means 1. */
enum err act_ref(float *y, const float *x, const float *prob, int64_t rows, int cols, enum act kind);
/* dx [rows, cols]; dprob [rows] or NULL; dy [rows, cols]. */
enum err act_bwd_ref(float *dx, float *dprob, const float *x, const float *dy, const float *prob, int64_t rows,
                     int cols, enum act kind);

#endif
