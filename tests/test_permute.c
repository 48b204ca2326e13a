/* Rows to experts and back: permutation and its sum, the count sums and the sort against a list of labelled
 * rows that is ordered by its definition. */
#include "kernels/exchange.h"
#include "kernels/permute.h"
#include "tests/numbers.h"
#include <string.h>

START_TEST(permute_copies_and_back_sums)
{
    enum { ROWS = 4, COLS = 9, N = 6 };
    const int32_t perm[2 * N] = {1, 0, 3, 0, 0, 1,
                                 1, 2, 3, 2, 1, 3}; /* token 2 goes nowhere, 1 three times */
    float *x = numbers_make(ROWS * COLS, 1), *res = numbers_make(ROWS * COLS, 2), y[N * COLS], z[ROWS * COLS];
    double want[ROWS * COLS];
    const int times[ROWS] = {1, 3, 0, 2};
    permute_ref(y, x, perm, N, COLS);
    for (int j = 0; j < N; j++)
        ck_assert_int_eq(memcmp(y + j * COLS, x + perm[2 * j] * COLS, COLS * sizeof *y), 0);
    for (int with = 0; with < 2; with++) {
        for (int i = 0; i < ROWS * COLS; i++) want[i] = (double)times[i / COLS] * x[i] + (with ? res[i] : 0);
        permute_back_ref(z, y, perm, with ? res : NULL, ROWS, N, COLS);
        numbers_same(z, want, ROWS * COLS, 1e-6);
    }
    permute_back_ref(z, NULL, NULL, res, ROWS, 0, COLS);
    ck_assert_int_eq(memcmp(z, res, sizeof z), 0);
    free(x), free(res);
}
END_TEST

/* ---- the count matrix ---- */

enum { ETP = 2, EP = 3, E = 12, HERE = E / EP, MEMBERS = ETP * EP };

struct row {
    int a, j, l;
    float label;
}; /* source (a, j), local expert l */

static void counts(int32_t *count, uint64_t seed)
{
    float *x = numbers_make(MEMBERS * E, seed);
    for (int i = 0; i < MEMBERS * E; i++) count[i] = x[i] < 0 ? 0 : (int32_t)(x[i] * 5);
    free(x);
}

/* The rows of ep index i in gathered order, written down by the definition; returns how many. */
static int list(struct row *row, const int32_t *count, int i)
{
    int n = 0;
    for (int a = 0; a < ETP; a++)
        for (int j = 0; j < EP; j++)
            for (int l = 0; l < HERE; l++)
                for (int k = 0; k < count[(a + ETP * j) * E + i * HERE + l]; k++, n++)
                    row[n] = (struct row){a, j, l, (float)(n + 1)};
    return n;
}

static int by_expert(const void *x, const void *y)
{
    const struct row *a = x, *b = y;
    if (a->l != b->l) return a->l - b->l;
    if (a->a != b->a) return a->a - b->a;
    if (a->j != b->j) return a->j - b->j;
    return (a->label > b->label) - (a->label < b->label);
}

START_TEST(sums_agree_with_the_list)
{
    int32_t count[MEMBERS * E];
    struct row row[MEMBERS * E * 5];
    counts(count, 1);
    const struct exchange x = {count, ETP, EP, E, 0};
    for (int i = 0; i < EP; i++) {
        const int n = list(row, count, i);
        int from[ETP][EP] = {{0}}, expert[HERE] = {0};
        for (int r = 0; r < n; r++) from[row[r].a][row[r].j]++, expert[row[r].l]++;
        ck_assert_int_eq(exchange_gathered(&x, i), n);
        for (int l = 0; l < HERE; l++) ck_assert_int_eq(exchange_expert(&x, i, l), expert[l]);
        for (int a = 0; a < ETP; a++) {
            ck_assert_int_eq(exchange_received(&x, a, i), from[a][0] + from[a][1] + from[a][2]);
            for (int j = 0; j < EP; j++) ck_assert_int_eq(exchange_sent(&x, a, j, i), from[a][j]);
        }
    }
}
END_TEST

START_TEST(sort_is_stable_by_expert_and_comes_back)
{
    enum { COLS = 3, MOST = MEMBERS * E * 5 };
    int32_t count[MEMBERS * E];
    struct row row[MOST];
    float in[MOST * COLS], out[MOST * COLS], again[MOST * COLS];
    for (int seed = 1; seed < 9; seed++) {
        counts(count, (uint64_t)seed);
        if (seed == 8) memset(count, 0, sizeof count);
        const struct exchange x = {count, ETP, EP, E, 0};
        for (int i = 0; i < EP; i++) {
            const int n = list(row, count, i);
            for (int r = 0; r < n * COLS; r++) in[r] = row[r / COLS].label + 0.25f * (float)(r % COLS);
            ck_assert_int_eq(exchange_sort_ref(out, in, &x, i, COLS, 0), OK);
            ck_assert_int_eq(exchange_sort_ref(again, out, &x, i, COLS, 1), OK);
            qsort(row, (size_t)n, sizeof *row, by_expert);
            for (int r = 0; r < n * COLS; r++) {
                ck_assert_float_eq(out[r], row[r / COLS].label + 0.25f * (float)(r % COLS));
                ck_assert_float_eq(again[r], in[r]);
            }
        }
    }
}
END_TEST

int main(void)
{
    const TTest *const test[] = {permute_copies_and_back_sums, sums_agree_with_the_list,
                                 sort_is_stable_by_expert_and_comes_back};
    return test_main("permute", test, LEN(test), 300);
}
