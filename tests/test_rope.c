/* Positions of context-parallel rows, rotations, and MLA's assembly of q, k and v, which is linear: its
 * gradient is its adjoint, <F x, d> = <x, F' d>. */
#include "kernels/mla.h"
#include "tests/numbers.h"
#include <string.h>

START_TEST(every_position_has_one_row)
{
    enum { SEQ = 48 };
    for (int cp = 1; cp <= 4; cp++) {
        int seen[SEQ] = {0};
        for (int m = 0; m < cp; m++)
            for (int r = 0; r < SEQ / cp; r++) seen[rope_position(r, SEQ, cp, m)]++;
        for (int p = 0; p < SEQ; p++) ck_assert_int_eq(seen[p], 1);
    }
}
END_TEST

/* Member i holds chunks i and 2 cp - 1 - i of 2 cp, each in order. */
START_TEST(chunks_are_balanced)
{
    ck_assert_int_eq(rope_position(5, 8, 1, 0), 5);
    const int want[2][4] = {{0, 1, 6, 7}, {2, 3, 4, 5}};
    for (int m = 0; m < 2; m++)
        for (int r = 0; r < 4; r++) ck_assert_int_eq(rope_position(r, 8, 2, m), want[m][r]);
}
END_TEST

enum { SEQ = 8, SEQS = 2, HEADS = 3, WIDTH = 6, DIM = 4 };

START_TEST(rotation_is_the_formula)
{
    const int cp = 2, rows = SEQS * SEQ / cp;
    const struct rope at = {.seq = SEQ, .cp = cp, .index = 1, .theta = 100};
    float *x = numbers_make(rows * HEADS * WIDTH, 1), *y = numbers_make(rows * HEADS * WIDTH, 1);
    rope_ref(y, rows, HEADS, WIDTH, DIM, &at, 0);
    for (int i = 0; i < rows * HEADS; i++) {
        const float *a = x + i * WIDTH, *b = y + i * WIDTH;
        const int position = rope_position(i / HEADS % (SEQ / cp), SEQ, cp, 1);
        double want[WIDTH] = {a[0], a[1]};
        for (int j = 0; j < DIM / 2; j++) {
            const double angle = position / pow(100, 2.0 * j / DIM);
            want[2 + j] = a[2 + j] * cos(angle) - a[4 + j] * sin(angle);
            want[4 + j] = a[4 + j] * cos(angle) + a[2 + j] * sin(angle);
        }
        numbers_same(b, want, WIDTH, 1e-6);
    }
    free(x), free(y);
}
END_TEST

START_TEST(back_undoes)
{
    const int n = SEQS * SEQ * HEADS * DIM;
    const struct rope at = {.seq = SEQ, .cp = 1, .theta = 10000};
    float *x = numbers_make(n, 1);
    double *want = numbers_double(x, n);
    rope_ref(x, SEQS * SEQ, HEADS, DIM, DIM, &at, 0);
    rope_ref(x, SEQS * SEQ, HEADS, DIM, DIM, &at, 1);
    numbers_same(x, want, n, 1e-6);
    free(x), free(want);
}
END_TEST

/* What attention sees of two rotated rows is how far apart they are. */
START_TEST(products_depend_on_distance)
{
    enum { LONG = 64, D = 8 };
    const struct rope at = {.seq = LONG, .cp = 1, .theta = 10000};
    float *one = numbers_make(2 * D, 3), q[LONG * D], k[LONG * D];
    for (int r = 0; r < LONG; r++) {
        memcpy(q + r * D, one, D * sizeof *q);
        memcpy(k + r * D, one + D, D * sizeof *k);
    }
    rope_ref(q, LONG, 1, D, D, &at, 0);
    rope_ref(k, LONG, 1, D, D, &at, 0);
    double first = 0, moved = 0;
    for (int i = 0; i < D; i++) first += q[9 * D + i] * k[4 * D + i], moved += q[60 * D + i] * k[55 * D + i];
    ck_assert_double_eq_tol(first, moved, 1e-5);
    free(one);
}
END_TEST

/* Positions restart with documents, and what is turned backwards is turned by the same, magnitude and all. */
START_TEST(documents_restart_and_scale_is_adjoint)
{
    enum { CP = 2, LOCAL = SEQ / CP, N = SEQS * LOCAL * DIM };
    int32_t start[SEQS * SEQ] = {0, 0, 0, 3, 3, 5, 5, 5, 0, 1, 1, 1, 1, 1, 1, 7};
    const struct rope_scaling scaling = rope_yarn(4, 8, 2, 0.25, 0, 1.25, 100, DIM);
    const struct rope at = {.seq = SEQ, .cp = CP, .index = 1, .theta = 100, .start = start, .scaling = scaling};
    float *x = numbers_make(N, 1), *y = numbers_make(N, 2), *fx = numbers_make(N, 1), *by = numbers_make(N, 2);
    ck_assert_int_eq(rope_place(&at, 2), 4 - 3);    /* member 1 holds positions 2 3 4 5 */
    ck_assert_int_eq(rope_place(&at, 0), 2);
    ck_assert_int_eq(rope_place(&at, LOCAL + 3), 4);
    rope_ref(fx, SEQS * LOCAL, 1, DIM, DIM, &at, 0);
    rope_ref(by, SEQS * LOCAL, 1, DIM, DIM, &at, 1);
    double one = 0, other = 0, size = 0, was = 0;
    for (int i = 0; i < N; i++) {
        one += (double)fx[i] * y[i], other += (double)x[i] * by[i];
        size += (double)fx[i] * fx[i], was += (double)x[i] * x[i];
    }
    ck_assert_double_eq_tol(one, other, 1e-5);
    ck_assert_double_eq_tol(size, was * 1.25 * 1.25, 1e-5);
    free(x), free(y), free(fx), free(by);
}
END_TEST

/* Fast pairs keep their angle, slow ones turn `factor` times slower, the others in between: three kinds of ramp. */
START_TEST(slow_pairs_turn_slower)
{
    enum { D = 64 };
    const struct rope_scaling kinds[] = {rope_linear(8), rope_llama3(8, 8192, 4, 1), rope_yarn(8, 4096, 32, 1, 1, 1, 1e4, D)};
    for (int k = 0; k < 3; k++) {
        const struct rope plain = {.seq = 8, .cp = 1, .theta = 1e4}, at = {.seq = 8, .cp = 1, .theta = 1e4, .scaling = kinds[k]};
        double before = 0;
        for (int i = 0; i < D / 2; i++) {
            const double ratio = rope_angle(&plain, i, D) / rope_angle(&at, i, D);
            ck_assert(ratio >= before - 1e-9 && ratio >= 1 - 1e-9 && ratio <= 8 + 1e-9);
            before = ratio;
            if (i == 0) ck_assert_double_eq_tol(ratio, k ? 1 : 8, 1e-9);
        }
        ck_assert_double_eq_tol(before, 8, 1e-9);
    }
}
END_TEST

/* ---- MLA ---- */

enum { NOPE = 3, ROPE = 4, V = 5, QK = NOPE + ROPE, ROWS = SEQS * SEQ };
static const struct mla shape = {HEADS, NOPE, ROPE, V};
static const struct rope whole = {.seq = SEQ, .cp = 1, .theta = 100};

struct qkv {
    float q[ROWS * HEADS * QK], k[ROWS * HEADS * QK], v[ROWS * HEADS * V];
};
struct latent {
    float qb[ROWS * HEADS * QK], kvb[ROWS * HEADS * (NOPE + V)], krope[ROWS * ROPE];
};

static double inner(const void *a, const void *b, size_t bytes)
{
    const float *x = a, *y = b;
    double sum = 0;
    for (size_t i = 0; i < bytes / sizeof *x; i++) sum += (double)x[i] * y[i];
    return sum;
}

static void fill(void *to, size_t bytes, uint64_t seed)
{
    float *x = numbers_make((int64_t)(bytes / sizeof *x), seed);
    memcpy(to, x, bytes);
    free(x);
}

START_TEST(mla_places_and_rotates)
{
    static struct latent in;
    static struct qkv out;
    fill(&in, sizeof in, 1);
    mla_ref(out.q, out.k, out.v, in.qb, in.kvb, in.krope, ROWS, &shape, &whole);
    rope_ref(in.qb, ROWS, HEADS, QK, ROPE, &whole, 0);
    rope_ref(in.krope, ROWS, 1, ROPE, ROPE, &whole, 0);
    ck_assert_int_eq(memcmp(out.q, in.qb, sizeof out.q), 0);
    for (int i = 0; i < ROWS * HEADS; i++) {
        const float *kv = in.kvb + i * (NOPE + V);
        ck_assert_int_eq(memcmp(out.k + i * QK, kv, NOPE * sizeof *kv), 0);
        ck_assert_int_eq(memcmp(out.k + i * QK + NOPE, in.krope + i / HEADS * ROPE, ROPE * sizeof *kv), 0);
        ck_assert_int_eq(memcmp(out.v + i * V, kv + NOPE, V * sizeof *kv), 0);
    }
}
END_TEST

START_TEST(mla_backward_is_the_adjoint)
{
    static struct latent in, din;
    static struct qkv out, dout;
    fill(&dout, sizeof dout, 2);
    mla_bwd_ref(din.qb, din.kvb, din.krope, dout.q, dout.k, dout.v, ROWS, &shape, &whole);
    for (uint64_t seed = 3; seed < 8; seed++) {
        fill(&in, sizeof in, seed);
        mla_ref(out.q, out.k, out.v, in.qb, in.kvb, in.krope, ROWS, &shape, &whole);
        ck_assert_double_eq_tol(inner(&out, &dout, sizeof out), inner(&in, &din, sizeof in), 1e-4);
    }
}
END_TEST

int main(void)
{
    const TTest *const test[] = {
        every_position_has_one_row,  chunks_are_balanced,    rotation_is_the_formula,    back_undoes,
        products_depend_on_distance, documents_restart_and_scale_is_adjoint,             slow_pairs_turn_slower,
        mla_places_and_rotates,      mla_backward_is_the_adjoint};
    return test_main("rope", test, LEN(test), 300);
}
