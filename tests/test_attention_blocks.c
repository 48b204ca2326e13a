/* Attention that sees less than all before: packed documents equal each document alone; a ring's blocks, each attended alone and
 * joined, equal one member, forward and backward, with grouped heads, unequal widths, windows, sinks and documents, whose
 * borders fall within and on the members' chunks. Reference and fast. */
#include "kernels/merge.h"
#include "tests/under.h"
#include <string.h>

enum { SEQ = 96, SEQS = 2, NQ = 4, NKV = 2, DQK = 6, DV = 10, ROWS = SEQS * SEQ };

/* Where documents start in each sequence: one of one token, one longer than a member's chunk. */
static const int borders[SEQS][6] = { { 0, 1, 12, 48, 49, 80 }, { 0, 24, 37, 72, 95, 96 } };

static void starts(int32_t *start)
{
    for (int s = 0; s < SEQS; s++)
        for (int p = 0, b = 0; p < SEQ; p++) {
            while (b < 5 && borders[s][b + 1] <= p) b++;
            start[s * SEQ + p] = borders[s][b];
        }
}

/* Everything of one call, `rows` queries and `keys` keys. */
struct run { int64_t rows, keys; float *q, *k, *v, *dout, *o, *lse, *dq, *dk, *dv, *dsink; };

static struct run run_new(int64_t rows, int64_t keys)
{
    struct run r = { .rows = rows, .keys = keys };
    r.q = numbers_make(rows * NQ * DQK, 1), r.k = numbers_make(keys * NKV * DQK, 2), r.v = numbers_make(keys * NKV * DV, 3);
    r.dout = numbers_make(rows * NQ * DV, 4), r.o = numbers_poison(rows * NQ * DV), r.lse = numbers_poison(rows * NQ);
    r.dq = numbers_poison(rows * NQ * DQK), r.dk = numbers_poison(keys * NKV * DQK), r.dv = numbers_poison(keys * NKV * DV);
    r.dsink = calloc(NQ, sizeof(float));
    ck_assert_ptr_nonnull(r.dsink);
    return r;
}

static void run_free(struct run *r)
{
    free(r->q), free(r->k), free(r->v), free(r->dout), free(r->o), free(r->lse), free(r->dq), free(r->dk), free(r->dv);
    free(r->dsink);
}

static void forward(struct run *r, const struct attention_shape *a, const float *sink)
{
    void *scratch = malloc((size_t)under->attention_scratch_B(a));
    ck_assert_int_eq(under->attention(r->o, r->lse, r->q, r->k, r->v, sink, a, scratch), OK);
    free(scratch);
}

static void backward(struct run *r, const struct attention_shape *a, int sinks)
{
    void *scratch = malloc((size_t)under->attention_scratch_B(a));
    ck_assert_int_eq(under->attention_bwd(r->dq, r->dk, r->dv, sinks ? r->dsink : NULL, r->q, r->k, r->v, r->o, r->lse, r->dout, a,
                                          scratch), OK);
    free(scratch);
}

static void same(const float *got, const float *want, int64_t n)
{
    double *d = numbers_double(want, n);
    numbers_same(got, d, n, 1e-5);
    free(d);
}

static struct attention_shape shape(int seqs, int seq, int window, const int32_t *start)
{
    return (struct attention_shape){ .nq = NQ, .nkv = NKV, .dqk = DQK, .dv = DV, .seqs = seqs, .window = window,
                                     .at = { .seq = seq, .cp = 1, .start = start } };
}

/* ---- documents ---- */

static void document(const struct run *all, int s, int from, int to, int window, const float *sink, float *dsink)
{
    const struct attention_shape a = shape(1, to - from, window, NULL);
    const int64_t n = to - from, at = s * SEQ + from;
    struct run one = run_new(n, n);
    memcpy(one.q, all->q + at * NQ * DQK, (size_t)(n * NQ * DQK) * 4);
    memcpy(one.k, all->k + at * NKV * DQK, (size_t)(n * NKV * DQK) * 4);
    memcpy(one.v, all->v + at * NKV * DV, (size_t)(n * NKV * DV) * 4);
    memcpy(one.dout, all->dout + at * NQ * DV, (size_t)(n * NQ * DV) * 4);
    forward(&one, &a, sink);
    backward(&one, &a, 1);
    same(all->o + at * NQ * DV, one.o, n * NQ * DV);
    same(all->lse + at * NQ, one.lse, n * NQ);
    same(all->dq + at * NQ * DQK, one.dq, n * NQ * DQK);
    same(all->dk + at * NKV * DQK, one.dk, n * NKV * DQK);
    same(all->dv + at * NKV * DV, one.dv, n * NKV * DV);
    for (int h = 0; h < NQ; h++) dsink[h] += one.dsink[h];
    run_free(&one);
}

START_TEST(packed_documents_are_each_alone)
{
    static const int windows[] = { 0, 7 };
    const float sink[NQ] = { 0.5f, -1, 2, 0 };
    int32_t start[ROWS];
    starts(start);
    for (int w = 0; w < LEN(windows); w++) {
        const struct attention_shape a = shape(SEQS, SEQ, windows[w], start);
        struct run all = run_new(ROWS, ROWS);
        float dsink[NQ] = { 0 };
        forward(&all, &a, sink);
        backward(&all, &a, 1);
        for (int s = 0; s < SEQS; s++)
            for (int b = 0; b < 6; b++) {
                const int to = b < 5 ? borders[s][b + 1] : SEQ;
                if (borders[s][b] < to) document(&all, s, borders[s][b], to, windows[w], sink, dsink);
            }
        same(all.dsink, dsink, NQ);
        run_free(&all);
    }
}
END_TEST

/* ---- members ---- */

/* Member m's rows of a whole matrix, or (add) added back. */
static void cut(float *part, float *whole, int cp, int m, int cols, int add)
{
    for (int r = 0; r < ROWS / cp; r++)
        for (int c = 0; c < cols; c++) {
            float *at = &whole[(r / (SEQ / cp) * SEQ + rope_position(r % (SEQ / cp), SEQ, cp, m)) * cols + c];
            if (add) *at += part[r * cols + c];
            else part[r * cols + c] = *at;
        }
}

static void block_open(struct run *b, struct run *whole, int cp, int m, int keys_of)
{
    *b = run_new(ROWS / cp, ROWS / cp);
    cut(b->q, whole->q, cp, m, NQ * DQK, 0);
    cut(b->dout, whole->dout, cp, m, NQ * DV, 0);
    cut(b->k, whole->k, cp, keys_of, NKV * DQK, 0);
    cut(b->v, whole->v, cp, keys_of, NKV * DV, 0);
}

/* Member m of a ring: the blocks joined, then the gradients of each, added into `sum`. */
static void member(struct run *sum, struct run *whole, const struct attention_shape *all, int cp, int m, const float *sink)
{
    const int64_t n = ROWS / cp;
    struct attention_shape a = *all;
    struct run b[8];
    a.at.cp = cp, a.at.index = m;
    for (int r = 0; r < cp; r++) {
        a.ring = 1 + r;
        block_open(&b[r], whole, cp, m, (m - r + cp) % cp);
        forward(&b[r], &a, r ? NULL : sink);
        if (r) merge_ref(b[0].o, b[0].lse, b[0].o, b[0].lse, b[r].o, b[r].lse, n, NQ, DV);
    }
    for (int r = 0; r < cp; r++) {
        a.ring = 1 + r;
        memcpy(b[r].o, b[0].o, (size_t)(n * NQ * DV) * 4);
        memcpy(b[r].lse, b[0].lse, (size_t)(n * NQ) * 4);
        backward(&b[r], &a, 1);
        cut(b[r].dq, sum->dq, cp, m, NQ * DQK, 1);
        cut(b[r].dk, sum->dk, cp, (m - r + cp) % cp, NKV * DQK, 1);
        cut(b[r].dv, sum->dv, cp, (m - r + cp) % cp, NKV * DV, 1);
        for (int h = 0; h < NQ; h++) sum->dsink[h] += b[r].dsink[h];
    }
    cut(b[0].o, sum->o, cp, m, NQ * DV, 1);
    cut(b[0].lse, sum->lse, cp, m, NQ, 1);
    for (int r = 0; r < cp; r++) run_free(&b[r]);
}

static void zero(struct run *r)
{
    memset(r->o, 0, (size_t)(ROWS * NQ * DV) * 4), memset(r->lse, 0, (size_t)(ROWS * NQ) * 4);
    memset(r->dq, 0, (size_t)(ROWS * NQ * DQK) * 4), memset(r->dk, 0, (size_t)(ROWS * NKV * DQK) * 4);
    memset(r->dv, 0, (size_t)(ROWS * NKV * DV) * 4);
}

START_TEST(a_ring_is_one_member)
{
    static const struct { int cp, window, packed, sinks; } c[] = {
        { 2, 0, 0, 0 }, { 4, 0, 0, 1 }, { 4, 5, 0, 1 }, { 2, 60, 0, 0 }, { 2, 0, 1, 0 }, { 4, 9, 1, 1 }, { 8, 0, 1, 0 },
    };
    const float sink[NQ] = { 0.5f, -1, 2, 0 };
    int32_t start[ROWS];
    starts(start);
    for (int i = 0; i < LEN(c); i++) {
        const struct attention_shape a = shape(SEQS, SEQ, c[i].window, c[i].packed ? start : NULL);
        struct run whole = run_new(ROWS, ROWS), sum = run_new(ROWS, ROWS);
        zero(&sum);
        forward(&whole, &a, c[i].sinks ? sink : NULL);
        backward(&whole, &a, 1);
        for (int m = 0; m < c[i].cp; m++) member(&sum, &whole, &a, c[i].cp, m, c[i].sinks ? sink : NULL);
        same(sum.o, whole.o, ROWS * NQ * DV), same(sum.lse, whole.lse, ROWS * NQ);
        same(sum.dq, whole.dq, ROWS * NQ * DQK);
        same(sum.dk, whole.dk, ROWS * NKV * DQK), same(sum.dv, whole.dv, ROWS * NKV * DV);
        if (c[i].sinks) same(sum.dsink, whole.dsink, NQ);
        run_free(&whole), run_free(&sum);
    }
}
END_TEST

START_TEST(a_block_without_keys_weighs_nothing)
{
    const float none = -INFINITY, o0[2] = { 3, 4 }, o1[2] = { 7, 8 }, lse = 2;
    float o[2], all;
    merge_ref(o, &all, o0, &lse, o1, &none, 1, 1, 2);
    ck_assert(o[0] == 3 && o[1] == 4 && all == 2);
    merge_ref(o, &all, o0, &none, o1, &lse, 1, 1, 2);
    ck_assert(o[0] == 7 && o[1] == 8 && all == 2);
    merge_ref(o, &all, o0, &none, o1, &none, 1, 1, 2);
    ck_assert(o[0] == 0 && o[1] == 0 && all == none);
}
END_TEST

int main(void)
{
    const TTest *const test[] = { packed_documents_are_each_alone, a_ring_is_one_member, a_block_without_keys_weighs_nothing };
    return under_each("attention_blocks", test, LEN(test));
}
