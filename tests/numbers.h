/* What the kernels' tests share: repeatable numbers, comparison with a formula in double, and slopes by
 * central differences of such a formula. A gradient is right when it is the slope of what forward means; the
 * formulas in the tests are written apart from the kernels, in double, with no regard for speed. */
#ifndef TESTS_NUMBERS_H
#define TESTS_NUMBERS_H
#include "tests/test.h"
#include <math.h>
#include <stdint.h>

/* n floats in [-1, 1); the same for the same seed (splitmix64). */
static inline float *numbers_make(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = (seed << 32) + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        x[i] = (float)((double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1);
    }
    return x;
}

/* n floats that are not numbers: what a kernel must overwrite, or must not touch. */
static inline float *numbers_poison(int64_t n)
{
    float *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (int64_t i = 0; i < n; i++) x[i] = NAN;
    return x;
}

static inline double *numbers_double(const float *x, int64_t n)
{
    double *d = malloc((size_t)(n ? n : 1) * sizeof *d);
    ck_assert_ptr_nonnull(d);
    for (int64_t i = 0; i < n; i++) d[i] = x[i];
    return d;
}

/* Fails unless |got - want| <= tolerance (1 + |want|), NaN included. */
static inline void numbers_same(const float *got, const double *want, int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(fabs(got[i] - want[i]) <= tolerance * (1 + fabs(want[i])),
                      "[%lld]: got %.9g, want %.9g", (long long)i, (double)got[i], want[i]);
}

/* slope[i] = d loss / d x[i], x restored. */
static inline double *numbers_slope(double *x, int64_t n, double (*loss)(const void *user), const void *user)
{
    const double h = 1e-5;
    double *slope = malloc((size_t)(n ? n : 1) * sizeof *slope);
    ck_assert_ptr_nonnull(slope);
    for (int64_t i = 0; i < n; i++) {
        const double at = x[i];
        x[i] = at + h;
        const double up = loss(user);
        x[i] = at - h;
        slope[i] = (up - loss(user)) / (2 * h);
        x[i] = at;
    }
    return slope;
}

#endif
