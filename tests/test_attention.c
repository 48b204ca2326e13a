/* Attention, reference and fast, against a full score matrix in double over whole sequences: grouped heads, MLA's
 * unequal widths, windows, sinks, and context parallelism simulated by cutting rows as members hold them. Gradients
 * are slopes of that matrix formula. */
#include "tests/under.h"
#include <string.h>

struct net { /* whole sequences, rows in order of position */
    int seqs, seq, nq, nkv, dqk, dv;
    int window, sinks;
    double *q, *k, *v, *sink;
    const float *dout;
};

static const struct net nets[] = {
    {.seqs = 1, .seq = 1, .nq = 1, .nkv = 1, .dqk = 1, .dv = 1},
    {.seqs = 2, .seq = 8, .nq = 4, .nkv = 2, .dqk = 6, .dv = 6},   /* grouped heads         */
    {.seqs = 1, .seq = 16, .nq = 3, .nkv = 3, .dqk = 12, .dv = 9}, /* MLA: widths differ    */
    {.seqs = 3, .seq = 4, .nq = 4, .nkv = 1, .dqk = 2, .dv = 17},
    {.seqs = 2, .seq = 8, .nq = 2, .nkv = 1, .dqk = 4, .dv = 4, .window = 3, .sinks = 1},
    {.seqs = 1, .seq = 8, .nq = 2, .nkv = 2, .dqk = 3, .dv = 5, .window = 1},
    {.seqs = 1, .seq = 16, .nq = 2, .nkv = 1, .dqk = 5, .dv = 3, .sinks = 1},
};

/* Row r of head h's output; *lse may be NULL. */
static void formula(double *o, double *lse, const struct net *n, int row, int head)
{
    const int first = row / n->seq * n->seq, kv = head / (n->nq / n->nkv);
    const double *q = n->q + (row * n->nq + head) * n->dqk;
    const int seen = n->window && row - first >= n->window ? row + 1 - n->window : first;
    double sum = n->sinks ? exp(n->sink[head]) : 0;
    for (int j = 0; j < n->dv; j++) o[j] = 0;
    for (int key = seen; key <= row; key++) {
        const double *k = n->k + (key * n->nkv + kv) * n->dqk, *v = n->v + (key * n->nkv + kv) * n->dv;
        double score = 0;
        for (int i = 0; i < n->dqk; i++) score += q[i] * k[i];
        const double p = exp(score / sqrt(n->dqk));
        for (int j = 0; j < n->dv; j++) o[j] += p * v[j];
        sum += p;
    }
    for (int j = 0; j < n->dv; j++) o[j] /= sum;
    if (lse) *lse = log(sum);
}

static double loss(const void *user)
{
    const struct net *n = user;
    double sum = 0, o[32];
    for (int i = 0; i < n->seqs * n->seq * n->nq; i++) {
        formula(o, NULL, n, i / n->nq, i % n->nq);
        for (int j = 0; j < n->dv; j++) sum += o[j] * n->dout[i * n->dv + j];
    }
    return sum;
}

/* The whole row of local row `r` of member m. */
static int whole_row(const struct net *n, int cp, int m, int r)
{
    const int local = n->seq / cp;
    return r / local * n->seq + rope_position(r % local, n->seq, cp, m);
}

/* Member m's rows of a whole matrix, or (back) added into it. */
static void cut(float *part, float *whole, const struct net *n, int cp, int m, int cols, int back)
{
    for (int r = 0; r < n->seqs * n->seq / cp; r++)
        for (int c = 0; c < cols; c++) {
            float *at = &whole[whole_row(n, cp, m, r) * cols + c];
            if (back) *at += part[r * cols + c];
            else part[r * cols + c] = *at;
        }
}

/* All members' rows one after the other, as a gather over cp leaves them, or back. */
static void gathered(float *all, float *whole, const struct net *n, int cp, int cols, int back)
{
    const int part = n->seqs * n->seq / cp * cols;
    for (int m = 0; m < cp; m++) cut(all + m * part, whole, n, cp, m, cols, back);
}

struct answer {
    float *o, *lse, *dq, *dk, *dv, *dsink;
}; /* of whole sequences, in order of position */

static struct answer answer_init(const struct net *n)
{
    const size_t rows = (size_t)(n->seqs * n->seq);
    struct answer a = {calloc(rows * (size_t)(n->nq * n->dv), 4), calloc(rows * (size_t)n->nq, 4),
                       calloc(rows * (size_t)(n->nq * n->dqk), 4),
                       calloc(rows * (size_t)(n->nkv * n->dqk), 4),
                       calloc(rows * (size_t)(n->nkv * n->dv), 4), calloc((size_t)n->nq, 4)};
    ck_assert(a.o && a.lse && a.dq && a.dk && a.dv && a.dsink);
    return a;
}

static void answer_free(struct answer *a)
{
    free(a->o), free(a->lse), free(a->dq), free(a->dk), free(a->dv), free(a->dsink);
}

/* What member m computes, added into the whole answer. */
static void member(struct answer *a, const struct net *n, float *q, float *k, float *v, float *dout,
                   const float *sink, int cp, int m)
{
    const int rows = n->seqs * n->seq / cp, keys = n->seqs * n->seq;
    const int q_cols = n->nq * n->dqk, o_cols = n->nq * n->dv, k_cols = n->nkv * n->dqk,
              v_cols = n->nkv * n->dv;
    const struct attention_shape s = {
        .nq = n->nq, .nkv = n->nkv, .dqk = n->dqk, .dv = n->dv, .seqs = n->seqs, .window = n->window,
        .at = {.seq = n->seq, .cp = cp, .index = m}};
    float *mq = numbers_poison(rows * q_cols), *mk = numbers_poison(keys * k_cols),
          *mv = numbers_poison(keys * v_cols);
    float *md = numbers_poison(rows * o_cols), *o = numbers_poison(rows * o_cols),
          *lse = numbers_poison(rows * n->nq);
    float *dq = numbers_poison(rows * q_cols), *dk = numbers_poison(keys * k_cols),
          *dv = numbers_poison(keys * v_cols);
    void *scratch = malloc((size_t)under->attention_scratch_B(&s));
    cut(mq, q, n, cp, m, q_cols, 0);
    cut(md, dout, n, cp, m, o_cols, 0);
    gathered(mk, k, n, cp, k_cols, 0);
    gathered(mv, v, n, cp, v_cols, 0);
    ck_assert_int_eq(under->attention(o, lse, mq, mk, mv, sink, &s, scratch), OK);
    ck_assert_int_eq(under->attention_bwd(dq, dk, dv, sink ? a->dsink : NULL, mq, mk, mv, o, lse, md, &s, scratch), OK);
    cut(o, a->o, n, cp, m, o_cols, 1);
    cut(lse, a->lse, n, cp, m, n->nq, 1);
    cut(dq, a->dq, n, cp, m, q_cols, 1);
    gathered(dk, a->dk, n, cp, k_cols, 1);
    gathered(dv, a->dv, n, cp, v_cols, 1);
    free(mq), free(mk), free(mv), free(md), free(o), free(lse), free(dq), free(dk), free(dv), free(scratch);
}

static void check_forward(const struct answer *a, const struct net *n)
{
    for (int i = 0; i < n->seqs * n->seq * n->nq; i++) {
        double want[32], lse;
        formula(want, &lse, n, i / n->nq, i % n->nq);
        numbers_same(a->o + i * n->dv, want, n->dv, 2e-6);
        numbers_same(a->lse + i, &lse, 1, 2e-6);
    }
}

static void check_backward(const struct answer *a, const struct net *n)
{
    const int rows = n->seqs * n->seq;
    double *dq = numbers_slope(n->q, rows * n->nq * n->dqk, loss, n);
    double *dk = numbers_slope(n->k, rows * n->nkv * n->dqk, loss, n);
    double *dv = numbers_slope(n->v, rows * n->nkv * n->dv, loss, n);
    numbers_same(a->dq, dq, rows * n->nq * n->dqk, 4e-6);
    numbers_same(a->dk, dk, rows * n->nkv * n->dqk, 4e-6);
    numbers_same(a->dv, dv, rows * n->nkv * n->dv, 4e-6);
    free(dq), free(dk), free(dv);
    if (!n->sinks) return;
    double *dsink = numbers_slope(n->sink, n->nq, loss, n);
    numbers_same(a->dsink, dsink, n->nq, 4e-6);
    free(dsink);
}

static void check(struct net n, int cp)
{
    const int rows = n.seqs * n.seq;
    float *q = numbers_make(rows * n.nq * n.dqk, 1), *k = numbers_make(rows * n.nkv * n.dqk, 2);
    float *v = numbers_make(rows * n.nkv * n.dv, 3), *dout = numbers_make(rows * n.nq * n.dv, 4);
    float *sink = numbers_make(n.nq, 5);
    struct answer a = answer_init(&n);
    n.sink = numbers_double(sink, n.nq);
    n.q = numbers_double(q, rows * n.nq * n.dqk);
    n.k = numbers_double(k, rows * n.nkv * n.dqk);
    n.v = numbers_double(v, rows * n.nkv * n.dv);
    n.dout = dout;
    for (int m = 0; m < cp; m++) member(&a, &n, q, k, v, dout, n.sinks ? sink : NULL, cp, m);
    check_forward(&a, &n);
    check_backward(&a, &n);
    answer_free(&a);
    free(q), free(k), free(v), free(dout), free(sink), free(n.q), free(n.k), free(n.v), free(n.sink);
}

START_TEST(one_member_is_the_matrix_formula)
{
    for (int i = 0; i < LEN(nets); i++) check(nets[i], 1);
}
END_TEST

START_TEST(context_parallel_members_sum_to_the_same)
{
    for (int i = 1; i < LEN(nets); i++) check(nets[i], 2);
    check(nets[1], 4);
    check(nets[2], 4);
    check(nets[4], 4);
}
END_TEST

START_TEST(large_scores_stay_finite)
{
    enum { SEQ = 4 };
    const struct attention_shape s = {.nq = 1, .nkv = 1, .dqk = 1, .dv = 1, .seqs = 1, .at = {.seq = SEQ, .cp = 1}};
    const float q[SEQ] = {1e4f, 1e4f, -1e4f, 0}, k[SEQ] = {1e4f, -1e4f, 1e4f, 1}, v[SEQ] = {1, 2, 3, 4};
    const float want[SEQ] = {1, 1, 2, 2.5f};
    float o[SEQ], lse[SEQ], dq[SEQ], dk[SEQ], dv[SEQ], *scratch = malloc((size_t)under->attention_scratch_B(&s));
    under->attention(o, lse, q, k, v, NULL, &s, scratch);
    under->attention_bwd(dq, dk, dv, NULL, q, k, v, o, lse, v, &s, scratch);
    for (int i = 0; i < SEQ; i++) {
        ck_assert_float_eq_tol(o[i], want[i], 1e-6f);
        ck_assert(isfinite(dq[i]) && isfinite(dk[i]) && isfinite(dv[i]));
    }
    free(scratch);
}
END_TEST

/* More queries and keys than a block holds, and tails of each; what the formula would take long for. */
START_TEST(fast_equals_reference_across_blocks)
{
#define SHAPE(nq_, nkv_, dqk_, dv_, seqs_, seq_, cp_, index_, window_, scale_)                                    \
    {.nq = nq_, .nkv = nkv_, .dqk = dqk_, .dv = dv_, .seqs = seqs_, .window = window_, .scale = scale_,             \
     .at = {.seq = seq_, .cp = cp_, .index = index_}}
    static const struct attention_shape shapes[] = {
        SHAPE(4, 2, 64, 64, 1, 300, 1, 0, 0, 0),  SHAPE(2, 2, 40, 24, 2, 257, 1, 0, 0, 1.5f),
        SHAPE(3, 1, 16, 16, 1, 288, 2, 0, 0, 0),  SHAPE(3, 1, 16, 16, 2, 288, 2, 1, 0, 0),
        SHAPE(2, 1, 33, 65, 1, 272, 4, 2, 50, 0), SHAPE(1, 1, 8, 8, 1, 400, 1, 0, 129, 0),
    };
    for (int i = 0; i < LEN(shapes); i++) {
        const struct attention_shape *s = &shapes[i];
        const int keys = s->seqs * s->at.seq, rows = keys / s->at.cp;
        const int64_t nq = rows * s->nq * s->dqk, no = rows * s->nq * s->dv, nk = keys * s->nkv * s->dqk,
                      nv = keys * s->nkv * s->dv, nl = rows * s->nq;
        float *q = numbers_make(nq, 1), *key = numbers_make(nk, 2), *v = numbers_make(nv, 3),
              *dout = numbers_make(no, 4), *sink = numbers_make(s->nq, 5), *out[2][6];
        for (int t = 0; t < 2; t++) {
            const struct kernels *x = t ? under : &kernels_ref;
            const int64_t n[6] = {no, nl, nq, nk, nv, s->nq};
            void *scratch = malloc((size_t)x->attention_scratch_B(s));
            for (int j = 0; j < 6; j++) out[t][j] = numbers_poison(n[j]);
            memset(out[t][5], 0, (size_t)s->nq * sizeof(float));
            float **y = out[t];
            x->attention(y[0], y[1], q, key, v, sink, s, scratch);
            x->attention_bwd(y[2], y[3], y[4], y[5], q, key, v, y[0], y[1], dout, s, scratch);
            free(scratch);
            if (!t) continue;
            for (int j = 0; j < 6; j++) {
                double *want = numbers_double(out[0][j], n[j]);
                numbers_same(out[1][j], want, n[j], 2e-5);
                free(want), free(out[0][j]), free(out[1][j]);
            }
        }
        free(q), free(key), free(v), free(dout), free(sink);
    }
}
END_TEST

int main(void)
{
    const TTest *const test[] = {one_member_is_the_matrix_formula, context_parallel_members_sum_to_the_same,
                                 large_scores_stay_finite, fast_equals_reference_across_blocks};
    return under_each("attention", test, LEN(test));
}
