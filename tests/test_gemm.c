/* The three products of a linear layer against triple loops in double, on ragged and empty shapes; grouped
 * ones against one expert at a time, with the split of case D01 (experts without rows leave their gradient
 * alone). */
#include "tests/under.h"
#include <string.h>

static const struct shape {
    int rows, out, in;
} shapes[] = {
    {0, 3, 5}, {1, 1, 1}, {5, 7, 3}, {4, 8, 16}, {9, 17, 300}, {33, 20, 257}, {3, 513, 9}, {300, 6, 11},
};

/* c[i][j] = sum over k of a(i, k) b(k, j), strides as given. */
static double *product(const float *a, int ai, int ak, const float *b, int bk, int bj, int ni, int nj, int nk)
{
    double *c = calloc((size_t)(ni * nj + 1), sizeof *c);
    ck_assert_ptr_nonnull(c);
    for (int i = 0; i < ni; i++)
        for (int j = 0; j < nj; j++)
            for (int k = 0; k < nk; k++) c[i * nj + j] += (double)a[i * ai + k * ak] * b[k * bk + j * bj];
    return c;
}

static void check_forward(struct shape s)
{
    float *x = numbers_make(s.rows * s.in, 1), *w = numbers_make(s.out * s.in, 2),
          *y = numbers_poison(s.rows * s.out);
    double *want = product(x, s.in, 1, w, 1, s.in, s.rows, s.out, s.in);
    ck_assert_int_eq(under->gemm(y, x, w, s.rows, s.out, s.in), OK);
    numbers_same(y, want, s.rows * s.out, 2e-5);
    free(x), free(w), free(y), free(want);
}

static void check_dgrad(struct shape s)
{
    float *dy = numbers_make(s.rows * s.out, 3), *w = numbers_make(s.out * s.in, 4),
          *dx = numbers_poison(s.rows * s.in);
    double *want = product(dy, s.out, 1, w, s.in, 1, s.rows, s.in, s.out);
    ck_assert_int_eq(under->gemm_dgrad(dx, dy, w, s.rows, s.out, s.in), OK);
    numbers_same(dx, want, s.rows * s.in, 2e-5);
    free(dy), free(w), free(dx), free(want);
}

static void check_wgrad(struct shape s)
{
    float *dy = numbers_make(s.rows * s.out, 5), *x = numbers_make(s.rows * s.in, 6),
          *g = numbers_make(s.out * s.in, 7);
    double *want = product(dy, 1, s.out, x, s.in, 1, s.out, s.in, s.rows);
    for (int i = 0; i < s.out * s.in; i++) want[i] += g[i];
    ck_assert_int_eq(under->gemm_wgrad(g, x, dy, s.rows, s.out, s.in), OK);
    numbers_same(g, want, s.out * s.in, 2e-5);
    free(dy), free(x), free(g), free(want);
}

START_TEST(products_are_the_sums)
{
    for (int i = 0; i < LEN(shapes); i++) {
        check_forward(shapes[i]);
        check_dgrad(shapes[i]);
        check_wgrad(shapes[i]);
    }
}
END_TEST

/* A row of a product does not depend on the rows beside it, so a fold that cuts rows cannot change a bit. */
START_TEST(rows_are_independent)
{
    enum { ROWS = 11, OUT = 19, IN = 270 };
    float *x = numbers_make(ROWS * IN, 1), *w = numbers_make(OUT * IN, 2), *all = numbers_poison(ROWS * OUT);
    under->gemm(all, x, w, ROWS, OUT, IN);
    for (int r = 0; r < ROWS; r++) {
        float one[OUT];
        under->gemm(one, x + r * IN, w, 1, OUT, IN);
        ck_assert_int_eq(memcmp(one, all + r * OUT, sizeof one), 0);
    }
    free(x), free(w), free(all);
}
END_TEST

/* ---- grouped ---- */

enum { EXPERTS = 6, OUT = 12, IN = 24, ONE = OUT * IN };
static const int64_t splits[][EXPERTS] = {
    {162, 0, 2577, 446, 0, 83},
    {0, 0, 0, 0, 0, 0},
    {0, 0, 0, 3268, 0, 0},
    {1, 2, 3, 4, 5, 6},
};

static int total(const int64_t *count)
{
    int rows = 0;
    for (int e = 0; e < EXPERTS; e++) rows += (int)count[e];
    return rows;
}

START_TEST(grouped_is_one_expert_at_a_time)
{
    for (int i = 0; i < LEN(splits); i++) {
        const int rows = total(splits[i]);
        float *x = numbers_make(rows * IN, 1), *w = numbers_make(EXPERTS * ONE, 2),
              *dy = numbers_make(rows * OUT, 3);
        float *y = numbers_poison(rows * OUT), *dx = numbers_poison(rows * IN);
        under->gemm_grouped(y, x, w, splits[i], EXPERTS, OUT, IN);
        under->gemm_grouped_dgrad(dx, dy, w, splits[i], EXPERTS, OUT, IN);
        for (int e = 0, at = 0; e < EXPERTS; at += (int)splits[i][e++]) {
            const int n = (int)splits[i][e];
            double *want_y = product(x + at * IN, IN, 1, w + e * ONE, 1, IN, n, OUT, IN);
            double *want_dx = product(dy + at * OUT, OUT, 1, w + e * ONE, IN, 1, n, IN, OUT);
            numbers_same(y + at * OUT, want_y, n * OUT, 2e-5);
            numbers_same(dx + at * IN, want_dx, n * IN, 2e-5);
            free(want_y), free(want_dx);
        }
        free(x), free(w), free(dy), free(y), free(dx);
    }
}
END_TEST

START_TEST(grouped_gradients_add_and_empty_experts_keep_theirs)
{
    for (int i = 0; i < LEN(splits); i++) {
        const int rows = total(splits[i]);
        float *x = numbers_make(rows * IN, 1), *dy = numbers_make(rows * OUT, 3);
        float *g = numbers_make(EXPERTS * ONE, 4), *before = numbers_make(EXPERTS * ONE, 4);
        under->gemm_grouped_wgrad(g, x, dy, splits[i], EXPERTS, OUT, IN);
        for (int e = 0, at = 0; e < EXPERTS; at += (int)splits[i][e++]) {
            double *want = product(dy + at * OUT, 1, OUT, x + at * IN, IN, 1, OUT, IN, (int)splits[i][e]);
            for (int k = 0; k < ONE; k++) want[k] += before[e * ONE + k];
            numbers_same(g + e * ONE, want, ONE, 2e-4);
            if (!splits[i][e]) ck_assert_int_eq(memcmp(g + e * ONE, before + e * ONE, ONE * sizeof *g), 0);
            free(want);
        }
        free(x), free(dy), free(g), free(before);
    }
}
END_TEST

int main(void)
{
    const TTest *const test[] = {products_are_the_sums, rows_are_independent, grouped_is_one_expert_at_a_time,
                                 grouped_gradients_add_and_empty_experts_keep_theirs};
    return under_each("gemm", test, LEN(test));
}
