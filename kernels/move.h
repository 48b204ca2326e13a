/* Plain row work: sums, windows of columns, rows of a table. float32. */
#ifndef KERNELS_MOVE_H
#define KERNELS_MOVE_H
#include "kernels/stream.h"

/* y[i] = a[i] + b[i], i < n. */
enum err move_add_ref(float *y, const float *a, const float *b, int64_t n);
/* Copies a window of `cols` columns; `to` and `from` point at its first element, rows are to_cols and
 * from_cols apart. */
enum err move_cols_ref(float *to, int to_cols, const float *from, int from_cols, int64_t rows, int cols);
/* y [rows, cols]: y[t] = table[token[t] - first] when that is one of its `held` rows, else zero. */
enum err move_embed_ref(float *y, const int32_t *token, const float *table, int64_t rows, int cols,
                        int64_t first, int64_t held);
/* g [held, cols]: g[token[t] - first] += dy[t], in rising t. */
enum err move_embed_bwd_ref(float *g, const int32_t *token, const float *dy, int64_t rows, int cols,
                            int64_t first, int64_t held);

/* y [rows, cols] += bias [cols] in every row; g [cols] += the sum of dy's rows (in double). */
enum err move_bias_ref(float *y, const float *bias, int64_t rows, int cols);
enum err move_bias_bwd_ref(float *g, const float *dy, int64_t rows, int cols);

/* The same, elements of type t; g float32. */
enum err move_add_cuda(void *y, const void *a, const void *b, int64_t n, enum dtype t, kstream s);
enum err move_cols_cuda(void *to, int to_cols, const void *from, int from_cols, int64_t rows, int cols, enum dtype t,
                        kstream s);
enum err move_embed_cuda(void *y, const int32_t *token, const void *table, int64_t rows, int cols, int64_t first,
                         int64_t held, enum dtype t, kstream s);
enum err move_embed_bwd_cuda(float *g, const int32_t *token, const void *dy, int64_t rows, int cols, int64_t first,
                             int64_t held, enum dtype t, kstream s);

#endif
