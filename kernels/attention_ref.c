/* A query sees a run of the keys of its sequence, wherever the gather has put their rows. */
#include "kernels/attention.h"
#include "kernels/vec.h"
#include <math.h>
#include <string.h>

/* One query head and the keys that it sees. */
struct attention_view {
    const float *q, *k, *v; /* the query's row; the first rows of its key/value head in its sequence */
    int64_t k_row, v_row;   /* floats from one row to the next                                     */
    const int32_t *row;     /* of a key in sequence 0, from the first seen on                       */
    int n;                  /* keys seen                                                            */
    float scale;
    const float *sink;      /* its head's, or NULL                                                  */
};

int64_t attention_scratch_B_ref(const struct attention_shape *a)
{
    return (int64_t)a->at.seq * (int64_t)(sizeof(int32_t) + sizeof(float));
}

/* row[i]: of key i of sequence 0. */
static void attention_rows(int32_t *row, const struct attention_shape *a)
{
    for (int i = 0; i < attention_keys(a); i++) row[i] = (int32_t)attention_key_row(a, 0, i);
}

static struct attention_view attention_view(const struct attention_shape *a, const float *q, const float *k,
                                            const float *v, const float *sink, const int32_t *row,
                                            int64_t query, int head)
{
    const int local = a->at.seq / a->at.cp, kv = head / (a->nq / a->nkv);
    const int64_t first = query / local * local; /* sequences are as far apart in keys as in queries */
    const int position = rope_position((int)(query % local), a->at.seq, a->at.cp, a->at.index);
    const int seen = attention_from(a, query / local, position);
    return (struct attention_view){
        .q = q + (query * a->nq + head) * a->dqk,
        .k = k + (first * a->nkv + kv) * a->dqk,
        .k_row = (int64_t)a->nkv * a->dqk,
        .v = v + (first * a->nkv + kv) * a->dv,
        .v_row = (int64_t)a->nkv * a->dv,
        .row = row + seen,
        .n = attention_before(a, position + 1) - seen,
        .scale = attention_scale(a),
        .sink = sink ? sink + head : NULL,
    };
}

static void attention_scores(float *score, const struct attention_view *s, int dqk)
{
    for (int i = 0; i < s->n; i++) score[i] = s->scale * vec_dot(s->q, s->k + s->row[i] * s->k_row, dqk);
}

/* Scores become exp(score - largest); returns log of their sum, largest added back. */
static double attention_softmax(float *score, double *sum, const float *sink, int n)
{
    float most = sink ? *sink : -INFINITY;
    for (int i = 0; i < n; i++) most = fmaxf(most, score[i]);
    *sum = sink ? expf(*sink - most) : 0;
    for (int i = 0; i < n; i++) {
        score[i] = expf(score[i] - most);
        *sum += score[i];
    }
    return most + log(*sum);
}

static void attention_head(float *o, float *lse, const struct attention_view *s,
                           const struct attention_shape *a, float *score)
{
    double sum;
    attention_scores(score, s, a->dqk);
    *lse = (float)attention_softmax(score, &sum, s->sink, s->n);
    memset(o, 0, (size_t)a->dv * sizeof *o);
    for (int i = 0; i < s->n; i++) vec_add(o, s->v + s->row[i] * s->v_row, (float)(score[i] / sum), a->dv);
}

enum err attention_ref(float *o, float *lse, const float *q, const float *k, const float *v, const float *sink,
                       const struct attention_shape *a, void *scratch)
{
    int32_t *row = scratch;
    float *score = (float *)(row + a->at.seq);
    const int64_t tokens = (int64_t)a->seqs * (a->at.seq / a->at.cp);
    attention_rows(row, a);
    for (int64_t t = 0; t < tokens; t++)
        for (int h = 0; h < a->nq; h++) {
            const struct attention_view s = attention_view(a, q, k, v, sink, row, t, h);
            attention_head(o + (t * a->nq + h) * a->dv, lse + t * a->nq + h, &s, a, score);
        }
    return OK;
}

/* What one query head adds: with p the probabilities, ds = p (dout . v - dout . o) is the scores' gradient.
 * dk and dv point where s->k and s->v do. Returns the sink's gradient: its probability, which is what the keys
 * leave of 1, takes from all of them. Later blocks of a ring take theirs from what the first one counted. */
static double attention_head_bwd(float *dq, float *dk, float *dv, const struct attention_view *s, const float *o,
                                 float lse, const float *dout, const struct attention_shape *a, float *score)
{
    const float along = vec_dot(dout, o, a->dv);
    double seen = 0;
    attention_scores(score, s, a->dqk);
    memset(dq, 0, (size_t)a->dqk * sizeof *dq);
    for (int i = 0; i < s->n; i++) {
        const int64_t k_at = s->row[i] * s->k_row, v_at = s->row[i] * s->v_row;
        const float p = expf(score[i] - lse);
        const float ds = p * (vec_dot(dout, s->v + v_at, a->dv) - along) * s->scale;
        vec_add(dv + v_at, dout, p, a->dv);
        vec_add(dq, s->k + k_at, ds, a->dqk);
        vec_add(dk + k_at, s->q, ds, a->dqk);
        seen += p;
    }
    return -((a->ring > 1 ? 0 : 1) - seen) * along;
}

enum err attention_bwd_ref(float *dq, float *dk, float *dv, float *dsink, const float *q, const float *k,
                           const float *v, const float *o, const float *lse, const float *dout,
                           const struct attention_shape *a, void *scratch)
{
    int32_t *row = scratch;
    float *score = (float *)(row + a->at.seq);
    const int64_t tokens = (int64_t)a->seqs * (a->at.seq / a->at.cp);
    const int64_t keys = (int64_t)a->seqs * attention_keys(a);
    attention_rows(row, a);
    memset(dk, 0, (size_t)(keys * a->nkv * a->dqk) * sizeof *dk);
    memset(dv, 0, (size_t)(keys * a->nkv * a->dv) * sizeof *dv);
    for (int h = 0; h < a->nq; h++) {
        double sum = 0;
        for (int64_t t = 0; t < tokens; t++) {
            const struct attention_view s = attention_view(a, q, k, v, NULL, row, t, h);
            const int64_t at = t * a->nq + h;
            sum += attention_head_bwd(dq + at * a->dqk, dk + (s.k - k), dv + (s.v - v), &s, o + at * a->dv, lse[at],
                                      dout + at * a->dv, a, score);
        }
        if (dsink) dsink[h] += (float)sum;
    }
    return OK;
}
