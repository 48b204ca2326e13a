/* Sums, windows of columns, and a table cut over members: the parts of a lookup sum to the whole, and
 * gradients land in the row that was looked up, once per use. */
#include "kernels/move.h"
#include "tests/numbers.h"
#include <string.h>

START_TEST(add)
{
    const float a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, want[3] = {11, 22, 33};
    float y[3];
    move_add_ref(y, a, b, 3);
    ck_assert_int_eq(memcmp(y, want, sizeof y), 0);
}
END_TEST

/* Splitting into three windows and merging them is the identity. */
START_TEST(windows_of_columns)
{
    enum { ROWS = 5, A = 1, B = 4, C = 3, ALL = A + B + C };
    float *x = numbers_make(ROWS * ALL, 1), *again = numbers_poison(ROWS * ALL), a[ROWS * A], b[ROWS * B],
          c[ROWS * C];
    move_cols_ref(a, A, x, ALL, ROWS, A);
    move_cols_ref(b, B, x + A, ALL, ROWS, B);
    move_cols_ref(c, C, x + A + B, ALL, ROWS, C);
    for (int r = 0; r < ROWS; r++) ck_assert_float_eq(b[r * B], x[r * ALL + A]);
    move_cols_ref(again, ALL, a, A, ROWS, A);
    move_cols_ref(again + A, ALL, b, B, ROWS, B);
    move_cols_ref(again + A + B, ALL, c, C, ROWS, C);
    ck_assert_int_eq(memcmp(again, x, ROWS * ALL * sizeof *x), 0);
    free(x), free(again);
}
END_TEST

enum { VOCAB = 12, PARTS = 3, HELD = VOCAB / PARTS, ROWS = 7, COLS = 9 };
static const int32_t token[ROWS] = {0, 11, 4, 4, 3, 8, 4};

START_TEST(parts_of_a_lookup_sum_to_the_whole)
{
    float *table = numbers_make(VOCAB * COLS, 1), *y = numbers_poison(ROWS * COLS), sum[ROWS * COLS] = {0};
    for (int p = 0; p < PARTS; p++) {
        move_embed_ref(y, token, table + p * HELD * COLS, ROWS, COLS, p * HELD, HELD);
        for (int i = 0; i < ROWS * COLS; i++) sum[i] += y[i];
    }
    for (int t = 0; t < ROWS; t++)
        ck_assert_int_eq(memcmp(sum + t * COLS, table + token[t] * COLS, COLS * sizeof *sum), 0);
    free(table), free(y);
}
END_TEST

START_TEST(gradients_add_where_they_were_looked_up)
{
    float *dy = numbers_make(ROWS * COLS, 2), *g = numbers_make(VOCAB * COLS, 3);
    double *want = numbers_double(g, VOCAB * COLS);
    for (int i = 0; i < ROWS * COLS; i++) want[token[i / COLS] * COLS + i % COLS] += dy[i];
    for (int p = 0; p < PARTS; p++)
        move_embed_bwd_ref(g + p * HELD * COLS, token, dy, ROWS, COLS, p * HELD, HELD);
    numbers_same(g, want, VOCAB * COLS, 1e-6);
    free(dy), free(g), free(want);
}
END_TEST

START_TEST(a_bias_is_every_rows)
{
    float y[6] = {1, 2, 3, 4, 5, 6}, g[3] = {1, 1, 1};
    const float bias[3] = {10, 20, 30}, want[6] = {11, 22, 33, 14, 25, 36}, sums[3] = {26, 48, 70};
    move_bias_ref(y, bias, 2, 3);
    for (int i = 0; i < 6; i++) ck_assert(y[i] == want[i]);
    move_bias_bwd_ref(g, y, 2, 3);
    for (int i = 0; i < 3; i++) ck_assert(g[i] == sums[i]);
    move_bias_bwd_ref(g, y, 0, 3);
    ck_assert(g[0] == 26);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {add, windows_of_columns, parts_of_a_lookup_sum_to_the_whole,
                                 gradients_add_where_they_were_looked_up, a_bias_is_every_rows};
    return test_main("move", test, LEN(test), 300);
}
