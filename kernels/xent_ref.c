/* Vocabulary-parallel cross-entropy, one row of logits at a time. */
#include "kernels/xent.h"
#include <math.h>

/* How many of the columns here are real. */
static int xent_real(const struct xent *x)
{
    const int64_t real = x->vocab - x->first;
    return real < 0 ? 0 : real < x->cols ? (int)real : x->cols;
}

enum err xent_max_ref(float *most, const float *logit, int64_t rows, const struct xent *x)
{
    const int real = xent_real(x);
    for (int64_t t = 0; t < rows; t++, logit += x->cols) {
        most[t] = -INFINITY;
        for (int c = 0; c < real; c++) most[t] = fmaxf(most[t], logit[c]);
    }
    return OK;
}

enum err xent_sum_ref(float *sum, const float *logit, const int32_t *label, const float *most, int64_t rows,
                      const struct xent *x)
{
    const int real = xent_real(x);
    for (int64_t t = 0; t < rows; t++, logit += x->cols) {
        const int64_t at = label[t] - x->first;
        double all = 0;
        for (int c = 0; c < real; c++) all += expf(logit[c] - most[t]);
        sum[2 * t] = (float)all;
        sum[2 * t + 1] = at >= 0 && at < real ? logit[at] - most[t] : 0;
        if (label[t] < 0) sum[2 * t] = x->first == 0; /* 1 of all columns: its logarithm is 0 */
    }
    return OK;
}

enum err xent_loss_ref(float *loss, const float *sum, int64_t rows, double scale)
{
    double all = 0;
    for (int64_t t = 0; t < rows; t++) all += log(sum[2 * t]) - sum[2 * t + 1];
    *loss += (float)(all * scale);
    return OK;
}

enum err xent_bwd_ref(float *logit, const int32_t *label, const float *most, const float *sum, int64_t rows,
                      double scale, const struct xent *x)
{
    const int real = xent_real(x);
    for (int64_t t = 0; t < rows; t++, logit += x->cols) {
        const int64_t at = label[t] - x->first;
        const float each = label[t] < 0 ? 0 : (float)(scale / sum[2 * t]);
        for (int c = 0; c < real; c++) logit[c] = expf(logit[c] - most[t]) * each;
        for (int c = real; c < x->cols; c++) logit[c] = 0;
        if (at >= 0 && at < real) logit[at] -= (float)scale;
    }
    return OK;
}
