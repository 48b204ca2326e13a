/* Sums, windows of columns, rows of a table held in parts. */
#include "kernels/move.h"
#include "kernels/vec.h"
#include <string.h>

enum err move_add_ref(float *y, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
    return OK;
}

enum err move_cols_ref(float *to, int to_cols, const float *from, int from_cols, int64_t rows, int cols)
{
    for (int64_t r = 0; r < rows; r++, to += to_cols, from += from_cols)
        memcpy(to, from, (size_t)cols * sizeof *to);
    return OK;
}

/* The row of the held part that a token names, or -1. */
static int64_t move_held(int32_t token, int64_t first, int64_t held)
{
    return token >= first && token < first + held ? token - first : -1;
}

enum err move_embed_ref(float *y, const int32_t *token, const float *table, int64_t rows, int cols,
                        int64_t first, int64_t held)
{
    for (int64_t t = 0; t < rows; t++, y += cols) {
        const int64_t at = move_held(token[t], first, held);
        if (at < 0) memset(y, 0, (size_t)cols * sizeof *y);
        else memcpy(y, table + at * cols, (size_t)cols * sizeof *y);
    }
    return OK;
}

enum err move_embed_bwd_ref(float *g, const int32_t *token, const float *dy, int64_t rows, int cols,
                            int64_t first, int64_t held)
{
    for (int64_t t = 0; t < rows; t++, dy += cols) {
        const int64_t at = move_held(token[t], first, held);
        if (at >= 0) vec_add(g + at * cols, dy, 1, cols);
    }
    return OK;
}

enum err move_bias_ref(float *y, const float *bias, int64_t rows, int cols)
{
    for (int64_t r = 0; r < rows; r++, y += cols)
        for (int c = 0; c < cols; c++) y[c] += bias[c];
    return OK;
}

enum err move_bias_bwd_ref(float *g, const float *dy, int64_t rows, int cols)
{
    for (int c = 0; c < cols; c++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += dy[r * cols + c];
        g[c] += (float)sum;
    }
    return OK;
}
