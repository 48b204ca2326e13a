/* Copies and rotations only. Forward copies the shared key to every head and rotates it there; backward sums
 * the heads' gradients first and rotates the sum back once, since a rotation is linear. */
#include "kernels/mla.h"
#include <string.h>

static void mla_copy(float *to, const float *from, int n)
{
    memcpy(to, from, (size_t)n * sizeof *to);
}

enum err mla_ref(float *q, float *k, float *v, const float *qb, const float *kvb, const float *krope,
                 int64_t rows, const struct mla *m, const struct rope *r)
{
    const int qk = m->nope + m->rope;
    memcpy(q, qb, (size_t)rows * m->heads * qk * sizeof *q);
    for (int64_t i = 0; i < rows * m->heads; i++) {
        const float *kv = kvb + i * (m->nope + m->v);
        mla_copy(k + i * qk, kv, m->nope);
        mla_copy(k + i * qk + m->nope, krope + i / m->heads * m->rope, m->rope);
        mla_copy(v + i * m->v, kv + m->nope, m->v);
    }
    TRY(rope_ref(q, rows, m->heads, qk, m->rope, r, 0));
    return rope_ref(k, rows, m->heads, qk, m->rope, r, 0);
}

enum err mla_bwd_ref(float *dqb, float *dkvb, float *dkrope, const float *dq, const float *dk,
                     const float *dv, int64_t rows, const struct mla *m, const struct rope *r)
{
    const int qk = m->nope + m->rope;
    memcpy(dqb, dq, (size_t)rows * m->heads * qk * sizeof *dqb);
    memset(dkrope, 0, (size_t)rows * m->rope * sizeof *dkrope);
    for (int64_t i = 0; i < rows * m->heads; i++) {
        float *dkv = dkvb + i * (m->nope + m->v), *shared = dkrope + i / m->heads * m->rope;
        mla_copy(dkv, dk + i * qk, m->nope);
        mla_copy(dkv + m->nope, dv + i * m->v, m->v);
        for (int j = 0; j < m->rope; j++) shared[j] += dk[i * qk + m->nope + j];
    }
    TRY(rope_ref(dqb, rows, m->heads, qk, m->rope, r, 1));
    return rope_ref(dkrope, rows, 1, m->rope, m->rope, r, 1);
}
