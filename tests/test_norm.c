/* RMSNorm against its formula in double, and its gradient against slopes of that formula. */
#include "tests/under.h"
#include <string.h>

enum { RUNS = 5, COLS = 7, N = RUNS * COLS };
static const double eps = 1e-3;

struct norm_case {
    double *x, *w;
    const float *dy;
};

static double formula(const struct norm_case *c, int run, int col)
{
    double sum = 0;
    for (int i = 0; i < COLS; i++) sum += c->x[run * COLS + i] * c->x[run * COLS + i];
    return c->x[run * COLS + col] / sqrt(sum / COLS + eps) * c->w[col];
}

static double loss(const void *user)
{
    const struct norm_case *c = user;
    double sum = 0;
    for (int i = 0; i < N; i++) sum += formula(c, i / COLS, i % COLS) * c->dy[i];
    return sum;
}

START_TEST(forward_is_the_formula)
{
    float *x = numbers_make(N, 1), *w = numbers_make(COLS, 2), *y = numbers_poison(N);
    struct norm_case c = {numbers_double(x, N), numbers_double(w, COLS), NULL};
    double want[N];
    for (int i = 0; i < N; i++) want[i] = formula(&c, i / COLS, i % COLS);
    under->norm(y, x, w, RUNS, COLS, eps);
    numbers_same(y, want, N, 1e-6);
    free(x), free(w), free(y), free(c.x), free(c.w);
}
END_TEST

static void check_backward(const float *dres)
{
    float *x = numbers_make(N, 1), *w = numbers_make(COLS, 2), *dy = numbers_make(N, 3);
    float *dx = numbers_poison(N), *g = numbers_make(COLS, 5);
    struct norm_case c = {numbers_double(x, N), numbers_double(w, COLS), dy};
    double *want_x = numbers_slope(c.x, N, loss, &c), *want_w = numbers_slope(c.w, COLS, loss, &c);
    for (int i = 0; dres && i < N; i++) want_x[i] += dres[i];
    for (int i = 0; i < COLS; i++) want_w[i] += g[i];
    under->norm_bwd(dx, g, x, w, dy, dres, RUNS, COLS, eps);
    numbers_same(dx, want_x, N, 1e-6);
    numbers_same(g, want_w, COLS, 1e-6);
    free(x), free(w), free(dy), free(dx), free(g), free(c.x), free(c.w), free(want_x), free(want_w);
}

START_TEST(backward_is_the_slope_plus_the_residual)
{
    float *dres = numbers_make(N, 4);
    check_backward(NULL);
    check_backward(dres);
    free(dres);
}
END_TEST

START_TEST(zeros_stay_finite)
{
    float x[COLS] = {0}, y[COLS], dx[COLS], g[COLS] = {0}, *w = numbers_make(COLS, 2),
          *dy = numbers_make(COLS, 3);
    under->norm(y, x, w, 1, COLS, eps);
    under->norm_bwd(dx, g, x, w, dy, NULL, 1, COLS, eps);
    for (int i = 0; i < COLS; i++) {
        ck_assert_float_eq(y[i], 0);
        ck_assert_float_eq(g[i], 0);
        ck_assert_double_eq_tol(dx[i], w[i] * dy[i] / sqrt(eps), 1e-4);
    }
    free(w), free(dy);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {forward_is_the_formula, backward_is_the_slope_plus_the_residual,
                                 zeros_stay_finite};
    return under_each("norm", test, LEN(test));
}
