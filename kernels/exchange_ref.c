/* Sums over the count matrix, and the sort that follows from them. Nothing is stored: the matrix is small,
 * and a sum made again cannot disagree with another copy of itself. */
#include "kernels/exchange.h"
#include <string.h>

int64_t exchange_sent_to(const struct exchange *x, int a, int j, int i, int l)
{
    const int64_t member = x->alike ? 0 : a + x->etp * j;
    return x->count[member * x->experts + i * (x->experts / x->ep) + l];
}

int64_t exchange_sent(const struct exchange *x, int a, int j, int i)
{
    int64_t rows = 0;
    for (int l = 0; l < x->experts / x->ep; l++) rows += exchange_sent_to(x, a, j, i, l);
    return rows;
}

int64_t exchange_received(const struct exchange *x, int a, int i)
{
    int64_t rows = 0;
    for (int j = 0; j < x->ep; j++) rows += exchange_sent(x, a, j, i);
    return rows;
}

int64_t exchange_gathered(const struct exchange *x, int i)
{
    int64_t rows = 0;
    for (int a = 0; a < x->etp; a++) rows += exchange_received(x, a, i);
    return rows;
}

int64_t exchange_expert(const struct exchange *x, int i, int l)
{
    int64_t rows = 0;
    for (int a = 0; a < x->etp; a++)
        for (int j = 0; j < x->ep; j++) rows += exchange_sent_to(x, a, j, i, l);
    return rows;
}

/* Copies the runs of local expert l, which begins at row `sorted` of the sorted side; returns the row after
 * it. */
static int64_t exchange_sort_expert(float *y, const float *in, const struct exchange *x, int i, int cols,
                                    int back, int l, int64_t sorted)
{
    int64_t block = 0; /* first gathered row of source (a, j) */
    for (int a = 0; a < x->etp; a++)
        for (int j = 0; j < x->ep; j++) {
            const int64_t n = exchange_sent_to(x, a, j, i, l);
            int64_t gathered = block;
            for (int before = 0; before < l; before++) gathered += exchange_sent_to(x, a, j, i, before);
            const int64_t to = back ? gathered : sorted, from = back ? sorted : gathered;
            memcpy(y + to * cols, in + from * cols, (size_t)(n * cols) * sizeof *y);
            sorted += n;
            block += exchange_sent(x, a, j, i);
        }
    return sorted;
}

enum err exchange_sort_ref(float *y, const float *in, const struct exchange *x, int i, int cols, int back)
{
    int64_t sorted = 0;
    for (int l = 0; l < x->experts / x->ep; l++)
        sorted = exchange_sort_expert(y, in, x, i, cols, back, l, sorted);
    return OK;
}
