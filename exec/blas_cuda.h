/* Products of one linear layer by cuBLASLt, where that library is. As kernels/gemm.h, with one matrix; fp32 is not
 * rounded to TF32. Each returns 1 when the product is under way in the calling thread's stream; 0: the library, or an
 * algorithm of it for this shape, is not here, and nothing was done. */
#ifndef EXEC_BLAS_CUDA_H
#define EXEC_BLAS_CUDA_H
#include "kernels/stream.h"

/* y of type `to`: t, or float32. */
int blas_gemm(void *y, const void *x, const void *w, int64_t rows, int out, int in, enum dtype t, enum dtype to);
int blas_dgrad(void *dx, const void *dy, const void *w, int64_t rows, int out, int in, enum dtype t);
int blas_wgrad(float *g, const void *x, const void *dy, int64_t rows, int out, int in, enum dtype t);

#endif
