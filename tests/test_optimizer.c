/* The gradient norm of case D09, clipping, and both optimizers against their published formulas, step after
 * step. */
#include "tests/under.h"
#include <string.h>

START_TEST(the_norm_is_one_sum_over_ranks)
{
    const float here[2] = {2, 4}, there[2] = {6, 8};
    float sum = 0;
    under->optimizer_sumsq(&sum, here, 2, 1);
    under->optimizer_sumsq(&sum, there, 2, 1);
    ck_assert_double_eq_tol(sqrt(sum), 10.954452, 1e-6);
    under->optimizer_sumsq(&sum, there, 0, 1);
    ck_assert_float_eq(sum, 120);
}
END_TEST

/* Four copies, a quarter each. */
START_TEST(copies_count_once)
{
    const float g[3] = {1, 2, 2};
    float sum = 0;
    for (int copy = 0; copy < 4; copy++) under->optimizer_sumsq(&sum, g, 3, 0.25);
    ck_assert_float_eq(sum, 9);
}
END_TEST

START_TEST(clip_only_shortens)
{
    ck_assert_double_eq(optimizer_clip(100, 0), 1);
    ck_assert_double_eq(optimizer_clip(0.25, 1), 1);
    ck_assert_double_eq_tol(optimizer_clip(100, 1) * 10, 1, 1e-6);
    ck_assert_double_eq(optimizer_clip(0, 1), 1);
}
END_TEST

enum { N = 10, STEPS = 5 };

/* Loshchilov and Hutter, algorithm 2, without schedule multiplier. */
static void adamw_formula(double *w, double *m, double *v, const float *g, int t,
                          const struct optimizer_adamw *o)
{
    for (int i = 0; i < N; i++) {
        const double d = g[i] * o->scale;
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * d;
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * d * d;
        const double m_hat = m[i] / (1 - pow(o->beta1, t)), v_hat = v[i] / (1 - pow(o->beta2, t));
        w[i] -= o->lr * (m_hat / (sqrt(v_hat) + o->eps) + o->weight_decay * w[i]);
    }
}

static void check_adamw(int with_master)
{
    struct optimizer_adamw o = {
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .scale = 0.5};
    float *w = numbers_make(N, 1), *master = numbers_make(N, 1), m[N] = {0}, v[N] = {0};
    double *want = numbers_double(w, N), want_m[N] = {0}, want_v[N] = {0};
    if (with_master) memset(w, 0, N * sizeof *w);
    for (o.step = 1; o.step <= STEPS; o.step++) {
        float *g = numbers_make(N, (uint64_t)(10 + o.step));
        adamw_formula(want, want_m, want_v, g, o.step, &o);
        under->optimizer_adamw(w, with_master ? master : NULL, m, v, g, N, &o);
        numbers_same(w, want, N, 1e-6);
        free(g);
    }
    if (with_master) ck_assert_int_eq(memcmp(w, master, N * sizeof *w), 0);
    free(w), free(master), free(want);
}

START_TEST(adamw_is_the_formula)
{
    check_adamw(0);
    check_adamw(1);
}
END_TEST

START_TEST(sgd_is_the_formula)
{
    float *w = numbers_make(N, 1), *g = numbers_make(N, 2), *master = numbers_make(N, 1), other[N] = {0};
    double *want = numbers_double(w, N);
    for (int i = 0; i < N; i++) want[i] -= 0.1 * 0.5 * g[i];
    optimizer_sgd_ref(w, NULL, g, N, 0.1, 0.5);
    optimizer_sgd_ref(other, master, g, N, 0.1, 0.5);
    numbers_same(w, want, N, 1e-6);
    ck_assert_int_eq(memcmp(w, other, sizeof other), 0);
    ck_assert_int_eq(memcmp(w, master, sizeof other), 0);
    free(w), free(g), free(master), free(want);
}
END_TEST

/* Slices step alike whoever holds them: that is the distributed optimizer. */
START_TEST(slices_step_like_the_whole)
{
    const struct optimizer_adamw o = {
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .scale = 1, .step = 1};
    float *w = numbers_make(N, 1), *parts = numbers_make(N, 1), *g = numbers_make(N, 2), m[2][N] = {{0}},
          v[2][N] = {{0}};
    under->optimizer_adamw(w, NULL, m[0], v[0], g, N, &o);
    for (int at = 0; at < N; at += N / 2)
        under->optimizer_adamw(parts + at, NULL, m[1] + at, v[1] + at, g + at, N / 2, &o);
    ck_assert_int_eq(memcmp(w, parts, N * sizeof *w), 0);
    free(w), free(parts), free(g);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {
        the_norm_is_one_sum_over_ranks, copies_count_once,  clip_only_shortens,
        adamw_is_the_formula,           sgd_is_the_formula, slices_step_like_the_whole};
    return under_each("optimizer", test, LEN(test));
}
