/* Who sends how many routed rows to whom: every count that dispatch, combine, the etp gather, the sorts and
 * the grouped products need is a sum over one matrix, count[member][expert], that all etp x ep members hold.
 * Member = a + etp * j for etp index a and ep index j; ep index i holds experts i * E / ep and the E / ep - 1
 * after it. Three orders of rows: a source's own (expert); received and gathered (member a, source j, local
 * expert l); sorted (l, a, j). */
#ifndef KERNELS_EXCHANGE_H
#define KERNELS_EXCHANGE_H
#include "kernels/stream.h"

struct exchange {
    const int32_t *count;
    int etp, ep, experts;
    int alike;                      /* one row of counts is every member's (experts filled up to a capacity) */
};

/* Rows that source (a, j) sends to ep index i: all, or those of its local expert l. */
int64_t exchange_sent(const struct exchange *x, int a, int j, int i);
int64_t exchange_sent_to(const struct exchange *x, int a, int j, int i, int l);
/* Rows that (a, i) holds after dispatch: sum over j. */
int64_t exchange_received(const struct exchange *x, int a, int i);
/* Rows that every etp member of ep index i holds after the gather: sum over a. */
int64_t exchange_gathered(const struct exchange *x, int i);
/* Of these, the rows of local expert l. */
int64_t exchange_expert(const struct exchange *x, int i, int l);

/* y, x [exchange_gathered(i), cols]: y sorted from x gathered, or `back` again. */
enum err exchange_sort_ref(float *y, const float *in, const struct exchange *x, int i, int cols, int back);

/* For the device, from the count matrix there: size[0] = exchange_received(a, i), size[1] = exchange_gathered(i); start [experts / ep
 * + 1]: where every local expert's rows begin in sorted order, and where the last one's end. Either may be NULL. */
enum err exchange_sizes_cuda(int32_t *size, int32_t *start, const int32_t *count, int etp, int ep, int experts, int a, int i,
                             kstream s);
/* exchange_sort_ref; `rows`: at least exchange_gathered(i). Rows of type t; scratch: exchange_scratch_B. */
int64_t exchange_scratch_B(int etp, int experts);
enum err exchange_sort_cuda(void *y, const void *in, const int32_t *count, int etp, int ep, int experts, int i, int64_t rows,
                            int cols, int back, void *scratch, enum dtype t, kstream s);

#endif
