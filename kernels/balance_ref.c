#include "kernels/balance.h"
#include <math.h>
#include <string.h>

static int64_t balance_scope(int64_t row, const struct balance *b)
{
    return (b->first + row) / b->local;
}

/* How many experts come before e: larger, or as large and of a lower index. */
static int balance_rank(const float *score, int e, int n)
{
    int before = 0;
    for (int i = 0; i < n; i++) before += score[i] > score[e] || (score[i] == score[e] && i < e);
    return before;
}

enum err balance_load_ref(float *load, const float *score, int64_t rows, int64_t scopes, const struct balance *b)
{
    memset(load, 0, (size_t)(scopes * b->experts) * sizeof *load);
    for (int64_t t = 0; t < rows; t++) {
        float *to = load + balance_scope(t, b) * b->experts;
        for (int e = 0; e < b->experts; e++)
            to[e] += balance_rank(score + t * b->experts, e, b->experts) < b->topk;
    }
    return OK;
}

/* Of one row: the gradient by its logits, added; returns the value. */
static double balance_row(float *dlogit, const float *s, const float *load, const struct balance *b)
{
    const int divided = b->sigmoid && b->topk > 1;
    double whole = divided ? 1e-20 : 1, mixed = 0;      /* what scores are divided by; the sum of load times probability */
    for (int e = 0; e < b->experts && divided; e++) whole += s[e];
    for (int e = 0; e < b->experts; e++) mixed += load[e] * s[e] / whole;
    for (int e = 0; e < b->experts; e++) {
        const double dp = b->sigmoid && !divided ? load[e] : load[e] - mixed;
        dlogit[e] += (float)(b->scale * dp / whole * s[e] * (b->sigmoid ? 1 - s[e] : 1));
    }
    return b->scale * mixed;
}

static double balance_z_row(float *dlogit, const float *logit, const struct balance *b)
{
    double most = logit[0], sum = 0;
    for (int e = 1; e < b->experts; e++) most = fmax(most, logit[e]);
    for (int e = 0; e < b->experts; e++) sum += exp(logit[e] - most);
    const double lse = most + log(sum);
    for (int e = 0; e < b->experts; e++)
        dlogit[e] += (float)(2 * b->z_scale * lse * exp(logit[e] - most) / sum);
    return b->z_scale * lse * lse;
}

enum err balance_ref(float *dlogit, float *loss, const float *score, const float *load, const float *logit, int64_t rows,
                     const struct balance *b)
{
    double all = 0;
    for (int64_t t = 0; t < rows; t++) {
        float *d = dlogit + t * b->experts;
        if (load) all += balance_row(d, score + t * b->experts, load + balance_scope(t, b) * b->experts, b);
        if (logit) all += balance_z_row(d, logit + t * b->experts, b);
    }
    *loss += (float)all;
    return OK;
}
