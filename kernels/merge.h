/* Attention over two blocks of keys becomes attention over both: with lse the logarithm of a block's denominator, each output
 * weighs exp(lse_i - lse) of the whole (Dao, "FlashAttention-2", section 2.3.1; Liu et al., "Ring Attention"). A block without
 * keys has lse -infinity and weighs nothing. */
#ifndef KERNELS_MERGE_H
#define KERNELS_MERGE_H
#include "kernels/stream.h"

/* o, o0, o1 [rows, heads * width]; lse, lse0, lse1 [rows, heads]. */
enum err merge_ref(float *o, float *lse, const float *o0, const float *lse0, const float *o1, const float *lse1, int64_t rows,
                   int heads, int width);

/* The same; o, o0 and o1 of types t, t0 and t1, which may differ: what runs through many blocks is kept wide. */
enum err merge_cuda(void *o, float *lse, const void *o0, const float *lse0, const void *o1, const float *lse1, int64_t rows,
                    int heads, int width, enum dtype t, enum dtype t0, enum dtype t1, kstream s);

#endif
