/* xent_ref.c with an exp that loops can be made of (vexp.h), and sums in parts. */
#include "kernels/kernels.h"
#include "kernels/vexp.h"
#include <math.h>

enum { XENT_PARTS = 16 };

/* How many of the columns here are real. */
static int xent_real(const struct xent *x)
{
    const int64_t real = x->vocab - x->first;
    return real < 0 ? 0 : real < x->cols ? (int)real : x->cols;
}

enum err xent_max_cpu(float *most, const float *logit, int64_t rows, const struct xent *x)
{
    const int real = xent_real(x);
    for (int64_t t = 0; t < rows; t++, logit += x->cols) {
        float part[XENT_PARTS], all = -INFINITY;
        int c = 0;
        for (int j = 0; j < XENT_PARTS; j++) part[j] = -INFINITY;
        for (; c + XENT_PARTS <= real; c += XENT_PARTS)
            for (int j = 0; j < XENT_PARTS; j++) part[j] = logit[c + j] > part[j] ? logit[c + j] : part[j];
        for (; c < real; c++) all = logit[c] > all ? logit[c] : all;
        for (int j = 0; j < XENT_PARTS; j++) all = part[j] > all ? part[j] : all;
        most[t] = all;
    }
    return OK;
}

static double xent_row_sum(const float *logit, float most, int real)
{
    double part[XENT_PARTS] = {0}, all = 0;
    int c = 0;
    for (; c + XENT_PARTS <= real; c += XENT_PARTS)
        for (int j = 0; j < XENT_PARTS; j++) part[j] += vexp(logit[c + j] - most);
    for (; c < real; c++) all += vexp(logit[c] - most);
    for (int j = 0; j < XENT_PARTS; j++) all += part[j];
    return all;
}

enum err xent_sum_cpu(float *sum, const float *logit, const int32_t *label, const float *most, int64_t rows,
                      const struct xent *x)
{
    const int real = xent_real(x);
    for (int64_t t = 0; t < rows; t++, logit += x->cols) {
        const int64_t at = label[t] - x->first;
        sum[2 * t] = (float)xent_row_sum(logit, most[t], real);
        sum[2 * t + 1] = at >= 0 && at < real ? logit[at] - most[t] : 0;
        if (label[t] < 0) sum[2 * t] = x->first == 0; /* 1 of all columns: its logarithm is 0 */
    }
    return OK;
}

enum err xent_bwd_cpu(float *restrict logit, const int32_t *label, const float *restrict most,
                      const float *restrict sum, int64_t rows, double scale, const struct xent *x)
{
    const int real = xent_real(x);
    for (int64_t t = 0; t < rows; t++, logit += x->cols) {
        const int64_t at = label[t] - x->first;
        const float each = label[t] < 0 ? 0 : (float)(scale / sum[2 * t]), top = most[t];
        for (int c = 0; c < real; c++) logit[c] = vexp(logit[c] - top) * each;
        for (int c = real; c < x->cols; c++) logit[c] = 0;
        if (at >= 0 && at < real) logit[at] -= (float)scale;
    }
    return OK;
}
