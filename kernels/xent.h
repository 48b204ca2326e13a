/* Cross-entropy over a vocabulary whose columns are cut over tp, in three steps with a reduction between them
 * (Megatron-LM core/tensor_parallel/cross_entropy.py). Columns at or beyond the true vocabulary are padding:
 * they count as minus infinity and get no gradient. float32, sums in double. */
#ifndef KERNELS_XENT_H
#define KERNELS_XENT_H
#include "kernels/stream.h"

/* The columns here: [first, first + cols) of the whole, of which those below `vocab` are real. */
struct xent {
    int64_t first;
    int cols, vocab;
};

/* A label below 0 does not count: its row's loss and gradient are 0. */
/* most [rows]: the largest real logit here, -infinity when all columns are padding. */
enum err xent_max_ref(float *most, const float *logit, int64_t rows, const struct xent *x);
/* sum [rows, 2]: sum of exp(logit - most); the label's logit - most, 0 when the label stands elsewhere. */
enum err xent_sum_ref(float *sum, const float *logit, const int32_t *label, const float *most, int64_t rows,
                      const struct xent *x);
/* *loss += scale * sum over rows of log(sum[0]) - sum[1], sums reduced over tp. */
enum err xent_loss_ref(float *loss, const float *sum, int64_t rows, double scale);
/* logit becomes scale * (softmax - one-hot label). */
enum err xent_bwd_ref(float *logit, const int32_t *label, const float *most, const float *sum, int64_t rows,
                      double scale, const struct xent *x);

/* The same, logits of type t, all sums float32. */
enum err xent_max_cuda(float *most, const void *logit, int64_t rows, const struct xent *x, enum dtype t, kstream s);
enum err xent_sum_cuda(float *sum, const void *logit, const int32_t *label, const float *most, int64_t rows,
                       const struct xent *x, enum dtype t, kstream s);
enum err xent_loss_cuda(float *loss, const float *sum, int64_t rows, double scale, kstream s);
enum err xent_bwd_cuda(void *logit, const int32_t *label, const float *most, const float *sum, int64_t rows, double scale,
                       const struct xent *x, enum dtype t, kstream s);

#endif
