/* The activation between the two matrices of an MLP without a gate: GELU in its exact form (Hendrycks and Gimpel), or the
 * square of what is above zero (So et al., "Primer"); times the row's routing weight where there is one. float32. */
#ifndef KERNELS_ACT_H
#define KERNELS_ACT_H
#include "kernels/stream.h"

enum act { ACT_GELU, ACT_RELU2 };

/* y [rows, cols]; x [rows, cols]; prob [rows] or NULL, which means 1. */
enum err act_ref(float *y, const float *x, const float *prob, int64_t rows, int cols, enum act kind);
/* dx [rows, cols]; dprob [rows] or NULL; dy [rows, cols]. */
enum err act_bwd_ref(float *dx, float *dprob, const float *x, const float *dy, const float *prob, int64_t rows,
                     int cols, enum act kind);

/* The same; x, y, dx, dy of type t, prob and dprob float32. */
enum err act_cuda(void *y, const void *x, const float *prob, int64_t rows, int cols, enum act kind, enum dtype t, kstream s);
enum err act_bwd_cuda(void *dx, float *dprob, const void *x, const void *dy, const float *prob, int64_t rows, int cols,
                      enum act kind, enum dtype t, kstream s);

#endif
