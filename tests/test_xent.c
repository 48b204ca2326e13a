/* Cross-entropy over a cut vocabulary: any number of parts gives the loss of the whole row and the slopes of
 * that loss; padding columns count for nothing, whatever stands in them. */
#include "tests/under.h"
#include <string.h>

enum { ROWS = 6, VOCAB = 13, PADDED = 24 }; /* cut into 4, the last part is padding alone */
static const int32_t label[ROWS] = {0, 12, 5, 6, -1, 5}; /* -1 does not count */
static const double scale = 0.125;

/* Of logits [ROWS, VOCAB]. */
static double loss(const void *user)
{
    const double *logit = *(double *const *)user;
    double all = 0;
    for (int t = 0; t < ROWS; t++) {
        double sum = 0;
        if (label[t] < 0) continue;
        for (int c = 0; c < VOCAB; c++) sum += exp(logit[t * VOCAB + c] - logit[t * VOCAB + label[t]]);
        all += log(sum) * scale;
    }
    return all;
}

static void part(float *to, const float *whole, int first, int cols)
{
    for (int t = 0; t < ROWS; t++)
        memcpy(to + t * cols, whole + t * PADDED + first, (size_t)cols * sizeof *to);
}

/* The three steps on every part, reduced between them by hand; `whole` becomes its gradient; returns the
 * loss. */
static double in_parts(float *whole, int parts)
{
    const int cols = PADDED / parts;
    float most[ROWS], sum[2 * ROWS] = {0}, some[2 * ROWS], total = 0, *x = numbers_poison(ROWS * cols);
    for (int t = 0; t < ROWS; t++) most[t] = -INFINITY;
    for (int p = 0; p < parts; p++) {
        const struct xent s = {p * cols, cols, VOCAB};
        part(x, whole, p * cols, cols);
        under->xent_max(some, x, ROWS, &s);
        for (int t = 0; t < ROWS; t++) most[t] = fmaxf(most[t], some[t]);
    }
    for (int p = 0; p < parts; p++) {
        const struct xent s = {p * cols, cols, VOCAB};
        part(x, whole, p * cols, cols);
        under->xent_sum(some, x, label, most, ROWS, &s);
        for (int i = 0; i < 2 * ROWS; i++) sum[i] += some[i];
    }
    xent_loss_ref(&total, sum, ROWS, scale);
    for (int p = 0; p < parts; p++) {
        const struct xent s = {p * cols, cols, VOCAB};
        part(x, whole, p * cols, cols);
        under->xent_bwd(x, label, most, sum, ROWS, scale, &s);
        for (int t = 0; t < ROWS; t++)
            memcpy(whole + t * PADDED + p * cols, x + t * cols, (size_t)cols * sizeof *x);
    }
    free(x);
    return total;
}

static void check(int parts, float stretch)
{
    float *logit = numbers_make(ROWS * PADDED, 1), *true_part = numbers_poison(ROWS * VOCAB);
    for (int i = 0; i < ROWS * PADDED; i++) logit[i] = i % PADDED < VOCAB ? logit[i] * stretch : NAN;
    part(true_part, logit, 0, VOCAB);
    double *x = numbers_double(true_part, ROWS * VOCAB), *want = numbers_slope(x, ROWS * VOCAB, loss, &x);
    ck_assert_double_eq_tol(in_parts(logit, parts), loss(&x), 1e-5 * stretch);
    part(true_part, logit, 0, VOCAB);
    numbers_same(true_part, want, ROWS * VOCAB, 1e-6);
    for (int i = 0; i < ROWS * PADDED; i++)
        if (i % PADDED >= VOCAB) ck_assert_float_eq(logit[i], 0);
    free(logit), free(true_part), free(x), free(want);
}

START_TEST(any_cut_is_the_whole)
{
    const int parts[] = {1, 2, 3, 4, 24};
    for (int i = 0; i < LEN(parts); i++) {
        check(parts[i], 1);
        check(parts[i], 30);
    }
}
END_TEST

START_TEST(equal_logits_lose_the_logarithm_of_the_vocabulary)
{
    float logit[ROWS * PADDED] = {0};
    ck_assert_double_eq_tol(in_parts(logit, 2), (ROWS - 1) * scale * log(VOCAB), 1e-6);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {any_cut_is_the_whole, equal_logits_lose_the_logarithm_of_the_vocabulary};
    return under_each("xent", test, LEN(test));
}
