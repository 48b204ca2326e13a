/* SwiGLU, with and without routing weights, against its formula in double and the slopes of that formula. */
#include "tests/under.h"

enum { ROWS = 4, COLS = 5, N = ROWS * COLS };

struct swiglu_case {
    double *x, *prob;
    const float *dy;
}; /* prob NULL: 1 */

static double formula(const struct swiglu_case *c, int row, int col)
{
    const double gate = c->x[row * 2 * COLS + col], up = c->x[row * 2 * COLS + COLS + col];
    return gate / (1 + exp(-gate)) * up * (c->prob ? c->prob[row] : 1);
}

static double loss(const void *user)
{
    const struct swiglu_case *c = user;
    double sum = 0;
    for (int i = 0; i < N; i++) sum += formula(c, i / COLS, i % COLS) * c->dy[i];
    return sum;
}

static void check(const float *prob)
{
    float *x = numbers_make(2 * N, 1), *dy = numbers_make(N, 2), *y = numbers_poison(N),
          *dx = numbers_poison(2 * N);
    float dprob[ROWS];
    for (int i = 0; i < 2 * N; i++) x[i] *= 4;
    struct swiglu_case c = {numbers_double(x, 2 * N), prob ? numbers_double(prob, ROWS) : NULL, dy};
    double want[N], *want_dx = numbers_slope(c.x, 2 * N, loss, &c);
    for (int i = 0; i < N; i++) want[i] = formula(&c, i / COLS, i % COLS);
    under->swiglu(y, x, prob, ROWS, COLS);
    under->swiglu_bwd(dx, prob ? dprob : NULL, x, dy, prob, ROWS, COLS);
    numbers_same(y, want, N, 1e-6);
    numbers_same(dx, want_dx, 2 * N, 1e-6);
    if (prob) {
        double *want_dprob = numbers_slope(c.prob, ROWS, loss, &c);
        numbers_same(dprob, want_dprob, ROWS, 1e-6);
        free(want_dprob), free(c.prob);
    }
    free(x), free(dy), free(y), free(dx), free(c.x), free(want_dx);
}

START_TEST(plain)
{
    check(NULL);
}
END_TEST

START_TEST(weighted)
{
    float *prob = numbers_make(ROWS, 3);
    check(prob);
    free(prob);
}
END_TEST

START_TEST(large_gates_stay_finite)
{
    const float x[4] = {200, -200, 1, 1}, dy[2] = {1, 1};
    float y[2], dx[4];
    under->swiglu(y, x, NULL, 1, 2);
    under->swiglu_bwd(dx, NULL, x, dy, NULL, 1, 2);
    ck_assert_float_eq(y[0], 200);
    ck_assert_float_eq(y[1], 0);
    for (int i = 0; i < 4; i++) ck_assert(isfinite(dx[i]));
}
END_TEST

int main(void)
{
    const TTest *const test[] = {plain, weighted, large_gates_stay_finite};
    return under_each("swiglu", test, LEN(test));
}
