/* Row work of the CUDA source, emulated, against the references: activations, copies, sums, tables, permutation, exchange,
 * rotations. Shapes: none, one, ragged ones, ones that fill vectors. */
#include "kernels/act.h"
#include "kernels/exchange.h"
#include "kernels/mla.h"
#include "kernels/move.h"
#include "kernels/permute.h"
#include "kernels/swiglu.h"
#include "tests/device.h"

static const struct shape { int rows, cols; } shapes[] = { { 0, 8 }, { 1, 1 }, { 7, 33 }, { 19, 264 }, { 5, 96 } };

/* ---- activations ---- */

static void activation_with(enum dtype t, struct shape s, int kind, int weighted)
{
    const int wide = kind < 0 ? 2 : 1;
    const int64_t n = (int64_t)s.rows * s.cols;
    struct tensor x = tensor_make(n * wide, 1, t), dy = tensor_make(n, 2, t), prob = tensor_make(s.rows, 3, DT_F32),
                  y = tensor_out(n, t), dx = tensor_out(n * wide, t), dprob = tensor_out(s.rows, DT_F32);
    const float *p = weighted ? prob.value : NULL, *p_dev = weighted ? prob.p : NULL;
    if (kind < 0) {
        swiglu_ref(y.value, x.value, p, s.rows, s.cols);
        swiglu_bwd_ref(dx.value, dprob.value, x.value, dy.value, p, s.rows, s.cols);
        ck_assert_int_eq(swiglu_cuda(y.p, x.p, p_dev, s.rows, s.cols, t, NULL), OK);
        ck_assert_int_eq(swiglu_bwd_cuda(dx.p, dprob.p, x.p, dy.p, p_dev, s.rows, s.cols, t, NULL), OK);
    } else {
        act_ref(y.value, x.value, p, s.rows, s.cols, (enum act)kind);
        act_bwd_ref(dx.value, dprob.value, x.value, dy.value, p, s.rows, s.cols, (enum act)kind);
        ck_assert_int_eq(act_cuda(y.p, x.p, p_dev, s.rows, s.cols, (enum act)kind, t, NULL), OK);
        ck_assert_int_eq(act_bwd_cuda(dx.p, dprob.p, x.p, dy.p, p_dev, s.rows, s.cols, (enum act)kind, t, NULL), OK);
    }
    tensor_same(y, 1e-6, "activation");
    tensor_same(dx, 1e-6, "activation dx");
    tensor_same(dprob, 1e-5, "activation dprob");
    tensor_free(x), tensor_free(dy), tensor_free(prob), tensor_free(y), tensor_free(dx), tensor_free(dprob);
}

static void activation(enum dtype t)
{
    for (int i = 0; i < LEN(shapes); i++)
        for (int kind = -1; kind <= ACT_RELU2; kind++)
            for (int weighted = 0; weighted < 2; weighted++) activation_with(t, shapes[i], kind, weighted);
}

START_TEST(activations_are_the_references)
{
    DEVICE_EACH(activation);
}
END_TEST

/* ---- sums, windows, tables ---- */

static void sums(enum dtype t)
{
    static const int sizes[] = { 0, 1, 31, 4096, 1003 };
    for (int i = 0; i < LEN(sizes); i++) {
        const int64_t n = sizes[i];
        struct tensor a = tensor_make(n, 1, t), b = tensor_make(n, 2, t), y = tensor_out(n, t);
        move_add_ref(y.value, a.value, b.value, n);
        ck_assert_int_eq(move_add_cuda(y.p, a.p, b.p, n, t, NULL), OK);
        tensor_same(y, 0, "add");
        tensor_free(a), tensor_free(b), tensor_free(y);
    }
}

static void windows(enum dtype t)
{
    enum { ROWS = 5, FROM = 12, TO = 9, COLS = 4 };
    struct tensor from = tensor_make(ROWS * FROM, 1, t), to = tensor_make(ROWS * TO, 2, t);
    move_cols_ref(to.value + 3, TO, from.value + 7, FROM, ROWS, COLS);
    ck_assert_int_eq(move_cols_cuda((char *)to.p + 3 * dtype_B(t), TO, (char *)from.p + 7 * dtype_B(t), FROM, ROWS, COLS, t, NULL),
                     OK);
    tensor_same(to, 0, "window");
    tensor_free(from), tensor_free(to);
}

/* Tokens that repeat, that another rank holds, and at both ends of what is held. */
static void table(enum dtype t)
{
    enum { ROWS = 530, COLS = 24, FIRST = 10, HELD = 7 };
    int32_t token[ROWS];
    uint64_t state = 3;
    for (int i = 0; i < ROWS; i++) token[i] = i == 0 ? FIRST : i == 1 ? FIRST + HELD : test_random(&state, 30);
    int32_t *dev = device_new(token, sizeof token);
    struct tensor w = tensor_make(HELD * COLS, 1, t), y = tensor_out(ROWS * COLS, t), dy = tensor_make(ROWS * COLS, 2, t),
                  g = tensor_make(HELD * COLS, 3, DT_F32);
    for (int rows = 0; rows <= ROWS; rows += ROWS) {
        move_embed_ref(y.value, token, w.value, rows, COLS, FIRST, HELD);
        move_embed_bwd_ref(g.value, token, dy.value, rows, COLS, FIRST, HELD);
        ck_assert_int_eq(move_embed_cuda(y.p, dev, w.p, rows, COLS, FIRST, HELD, t, NULL), OK);
        ck_assert_int_eq(move_embed_bwd_cuda(g.p, dev, dy.p, rows, COLS, FIRST, HELD, t, NULL), OK);
    }
    tensor_same(y, 0, "embed");
    tensor_same(g, 0, "embed_bwd");     /* the same additions in the same order */
    device_free(dev);
    tensor_free(w), tensor_free(y), tensor_free(dy), tensor_free(g);
}

START_TEST(plain_row_work_is_the_reference)
{
    DEVICE_EACH(sums);
    DEVICE_EACH(windows);
    DEVICE_EACH(table);
}
END_TEST

/* ---- permutation ---- */

/* topk rows for each of `rows` tokens, in an order of their own; every fifth row is padding when asked. */
static int64_t make_perm(int32_t *perm, int rows, int topk, int padded)
{
    int64_t n = 0;
    for (int k = 0; k < topk; k++)
        for (int i = 0; i < rows; i++) {
            if (padded && n % 5 == 2) perm[2 * n] = -1, perm[2 * n++ + 1] = 0;
            perm[2 * n] = (i * 11 + k) % rows, perm[2 * n++ + 1] = k;
        }
    return n;
}

/* The reference knows no padding: it sees the padded list without it. */
static void permutation_with(enum dtype t, int rows, int cols, int topk, int padded, int residual)
{
    int32_t *perm = malloc((size_t)(rows * topk * 2 + 8) * 8), *plain = malloc((size_t)(rows * topk * 2 + 8) * 8);
    const int64_t n = make_perm(perm, rows, topk, padded);
    struct tensor x = tensor_make((int64_t)rows * cols, 1, t), sent = tensor_out(n * cols, t), back = tensor_make(n * cols, 2, t),
                  res = tensor_make((int64_t)rows * cols, 3, t), y = tensor_out((int64_t)rows * cols, t);
    float *kept = malloc((size_t)(n * cols + 1) * sizeof *kept);
    int64_t real = 0;
    for (int64_t j = 0; j < n; j++) {
        float *row = sent.value + j * cols;
        if (perm[2 * j] < 0) {
            for (int c = 0; c < cols; c++) row[c] = 0;
            continue;
        }
        permute_ref(row, x.value, &perm[2 * j], 1, cols);
        memcpy(kept + real * cols, back.value + j * cols, (size_t)cols * sizeof *kept);
        plain[2 * real++] = perm[2 * j];
    }
    permute_back_ref(y.value, kept, plain, residual ? res.value : NULL, rows, real, cols);
    int32_t *dev = device_new(perm, n * 8);
    void *scratch = device_new(NULL, permute_scratch_B(rows, topk));
    ck_assert_int_eq(permute_cuda(sent.p, x.p, dev, n, cols, t, NULL), OK);
    ck_assert_int_eq(permute_back_cuda(y.p, back.p, dev, residual ? res.p : NULL, rows, n, cols, topk, scratch, t, NULL), OK);
    tensor_same(sent, 0, "permute");
    tensor_same(y, 0, "permute_back");
    device_free(dev), device_free(scratch);
    free(perm), free(plain), free(kept);
    tensor_free(x), tensor_free(sent), tensor_free(back), tensor_free(res), tensor_free(y);
}

static void permutation(enum dtype t)
{
    for (int i = 0; i < LEN(shapes); i++)
        for (int how = 0; how < 4; how++)
            permutation_with(t, shapes[i].rows, shapes[i].cols, i % 4 + 1, how & 1, how >> 1);
}

START_TEST(rows_go_to_experts_and_back)
{
    DEVICE_EACH(permutation);
}
END_TEST

/* ---- exchange ---- */

static const struct exchange_case { int etp, ep, experts, most; } exchanges[] = {
    { 1, 1, 4, 6 }, { 2, 2, 8, 5 }, { 1, 4, 4, 3 }, { 3, 2, 6, 9 }, { 2, 2, 4, 0 },
};

static void exchange_with(enum dtype t, struct exchange_case q, int cols)
{
    const int members = q.etp * q.ep;
    int32_t *count = malloc((size_t)(members * q.experts) * sizeof *count), size[2], start[16] = { 0 };
    uint64_t state = 5;
    for (int i = 0; i < members * q.experts; i++) count[i] = q.most ? test_random(&state, q.most) % (i % 3 + 1) : 0;
    const struct exchange x = { count, q.etp, q.ep, q.experts, 0 };
    int32_t *dev = device_new(count, members * q.experts * 4), *dev_size = device_new(NULL, 8), *dev_start = device_new(NULL, 64);
    for (int a = 0; a < q.etp; a++)
        for (int i = 0; i < q.ep; i++) {
            const int locals = q.experts / q.ep;
            const int64_t rows = exchange_gathered(&x, i);
            size[0] = (int32_t)exchange_received(&x, a, i), size[1] = (int32_t)rows;
            for (int l = 0; l < locals; l++) start[l + 1] = start[l] + (int32_t)exchange_expert(&x, i, l);
            ck_assert_int_eq(exchange_sizes_cuda(dev_size, dev_start, dev, q.etp, q.ep, q.experts, a, i, NULL), OK);
            device_same_ints(dev_size, size, 2, "sizes");
            device_same_ints(dev_start, start, locals + 1, "starts");
            struct tensor in = tensor_make(rows * cols, 1, t), y = tensor_out(rows * cols, t);
            void *scratch = device_new(NULL, exchange_scratch_B(q.etp, q.experts));
            for (int back = 0; back < 2; back++) {
                exchange_sort_ref(y.value, in.value, &x, i, cols, back);
                ck_assert_int_eq(
                    exchange_sort_cuda(y.p, in.p, dev, q.etp, q.ep, q.experts, i, rows, cols, back, scratch, t, NULL), OK);
                tensor_same(y, 0, "sort");
            }
            device_free(scratch);
            tensor_free(in), tensor_free(y);
        }
    free(count);
    device_free(dev), device_free(dev_size), device_free(dev_start);
}

static void exchanged(enum dtype t)
{
    for (int i = 0; i < LEN(exchanges); i++) {
        exchange_with(t, exchanges[i], 5);
        exchange_with(t, exchanges[i], 16);
    }
}

START_TEST(counts_and_sorts_follow_the_matrix)
{
    DEVICE_EACH(exchanged);
}
END_TEST

/* ---- rotations ---- */

/* The last place of a long sequence: an angle in float would be far off. */
static const struct rope ropes[] = {
    { .seq = 8, .cp = 1, .theta = 1e4 },
    { .seq = 8, .cp = 2, .index = 1, .theta = 1e4, .scaling = { .factor = 4, .low = 0.5, .high = 2, .magnitude = 1.25 } },
    { .seq = 131072, .cp = 16384, .index = 16383, .theta = 1e6, .scaling = { .factor = 8, .low = 4, .high = 1, .original = 8192 } },
};

static void rotation(enum dtype t)
{
    enum { ROWS = 8, HEADS = 3, WIDTH = 20, DIM = 12 };
    static const int32_t start[16] = { 0, 0, 2, 2, 2, 5, 5, 5, 0, 1, 1, 1, 4, 5, 5, 5 };  /* of two sequences of 8 */
    int32_t *there = device_new(start, sizeof start);
    for (int i = 0; i <= LEN(ropes); i++)
        for (int back = 0; back < 2; back++) {
            struct rope r = ropes[i < LEN(ropes) ? i : 1], on = r;
            if (i == LEN(ropes)) r.start = start, on.start = there;
            struct tensor x = tensor_make(ROWS * HEADS * WIDTH, 1, t);
            rope_ref(x.value, ROWS, HEADS, WIDTH, DIM, &r, back);
            ck_assert_int_eq(rope_cuda(x.p, ROWS, HEADS, WIDTH, DIM, &on, back, t, NULL), OK);
            tensor_same(x, 2e-6, "rope");
            tensor_free(x);
        }
    device_free(there);
}

static void latent(enum dtype t)
{
    enum { ROWS = 8 };
    static const struct mla shape[] = { { 3, 8, 6, 8 }, { 9, 40, 2, 5 } };
    for (int i = 0; i < LEN(shape); i++) {
        const struct mla m = shape[i];
        const struct rope *r = &ropes[i + 1];
        const int64_t qk = (int64_t)ROWS * m.heads * (m.nope + m.rope), kv = (int64_t)ROWS * m.heads * (m.nope + m.v);
        struct tensor qb = tensor_make(qk, 1, t), kvb = tensor_make(kv, 2, t), kr = tensor_make(ROWS * m.rope, 3, t),
                      q = tensor_out(qk, t), k = tensor_out(qk, t), v = tensor_out((int64_t)ROWS * m.heads * m.v, t);
        mla_ref(q.value, k.value, v.value, qb.value, kvb.value, kr.value, ROWS, &m, r);
        ck_assert_int_eq(mla_cuda(q.p, k.p, v.p, qb.p, kvb.p, kr.p, ROWS, &m, r, t, NULL), OK);
        tensor_same(q, 2e-6, "mla q"), tensor_same(k, 2e-6, "mla k"), tensor_same(v, 0, "mla v");
        tensor_free(q), tensor_free(k), tensor_free(v);
        q = tensor_make(qk, 4, t), k = tensor_make(qk, 5, t), v = tensor_make((int64_t)ROWS * m.heads * m.v, 6, t);
        mla_bwd_ref(qb.value, kvb.value, kr.value, q.value, k.value, v.value, ROWS, &m, r);
        ck_assert_int_eq(mla_bwd_cuda(qb.p, kvb.p, kr.p, q.p, k.p, v.p, ROWS, &m, r, t, NULL), OK);
        tensor_same(qb, 2e-6, "mla dqb"), tensor_same(kvb, 0, "mla dkvb"), tensor_same(kr, 5e-6, "mla dkrope");
        tensor_free(q), tensor_free(k), tensor_free(v), tensor_free(qb), tensor_free(kvb), tensor_free(kr);
    }
}

START_TEST(rotations_are_the_references)
{
    DEVICE_EACH(rotation);
    DEVICE_EACH(latent);
}
END_TEST

int main(void)
{
    const TTest *const test[] = { activations_are_the_references, plain_row_work_is_the_reference, rows_go_to_experts_and_back,
                                  counts_and_sorts_follow_the_matrix, rotations_are_the_references };
    return test_main("cu_rows", test, LEN(test), 300);
}
