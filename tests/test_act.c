/* Activations without a gate, with and without routing weights: known values, and slopes of the formula in double. */
#include "kernels/act.h"
#include "tests/numbers.h"

enum { ROWS = 4, COLS = 5, N = ROWS * COLS };

struct act_case {
    double *x, *prob;
    const float *dy;
    enum act kind;
}; /* prob NULL: 1 */

static double formula(const struct act_case *c, int i)
{
    const double x = c->x[i], y = c->kind == ACT_GELU ? x * (1 + erf(x / sqrt(2))) / 2 : pow(fmax(x, 0), 2);
    return y * (c->prob ? c->prob[i / COLS] : 1);
}

static double loss(const void *user)
{
    const struct act_case *c = user;
    double sum = 0;
    for (int i = 0; i < N; i++) sum += formula(c, i) * c->dy[i];
    return sum;
}

static void check(enum act kind, const float *prob)
{
    float *x = numbers_make(N, 1), *dy = numbers_make(N, 2), *y = numbers_poison(N), *dx = numbers_poison(N);
    float dprob[ROWS];
    for (int i = 0; i < N; i++) x[i] *= 4;
    struct act_case c = { numbers_double(x, N), prob ? numbers_double(prob, ROWS) : NULL, dy, kind };
    double want[N], *want_dx = numbers_slope(c.x, N, loss, &c);
    for (int i = 0; i < N; i++) want[i] = formula(&c, i);
    act_ref(y, x, prob, ROWS, COLS, kind);
    act_bwd_ref(dx, prob ? dprob : NULL, x, dy, prob, ROWS, COLS, kind);
    numbers_same(y, want, N, 1e-6);
    numbers_same(dx, want_dx, N, 1e-5);
    if (prob) {
        double *want_dprob = numbers_slope(c.prob, ROWS, loss, &c);
        numbers_same(dprob, want_dprob, ROWS, 1e-6);
        free(want_dprob), free(c.prob);
    }
    free(x), free(dy), free(y), free(dx), free(c.x), free(want_dx);
}

START_TEST(slopes)
{
    float *prob = numbers_make(ROWS, 3);
    for (int kind = ACT_GELU; kind <= ACT_RELU2; kind++) {
        check((enum act)kind, NULL);
        check((enum act)kind, prob);
    }
    free(prob);
}
END_TEST

/* GELU(1) = 0.8413, far below zero nothing is left; squared ReLU is exact. */
START_TEST(known_values)
{
    const float x[4] = { 1, -30, 0, 3 };
    float y[4];
    act_ref(y, x, NULL, 1, 4, ACT_GELU);
    ck_assert_float_eq_tol(y[0], 0.8413447f, 1e-6f);
    ck_assert_float_eq_tol(y[1], 0, 1e-20f);
    ck_assert_float_eq(y[2], 0);
    act_ref(y, x, NULL, 2, 2, ACT_RELU2);
    ck_assert_float_eq(y[0], 1);
    ck_assert_float_eq(y[1], 0);
    ck_assert_float_eq(y[3], 9);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {slopes, known_values};
    return test_main("act", test, LEN(test), 300);
}
