/* Causal attention with grouped key/value heads, float32. Query rows are one context-parallel member's; key
 * and value rows are those of all members, gathered: member 0's rows, then member 1's, each `seqs` sequences
 * of seq / cp rows. One row of scores exists at a time; the backward pass makes probabilities again from
 * `lse`, the logarithm of their denominator (Dao, "FlashAttention-2"). Scale 1 / sqrt(dqk). */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H
#include "kernels/rope.h"

struct attention_shape {
    int nq, nkv, dqk, dv; /* query heads here, key/value heads here; their widths              */
    int seqs;             /* sequences in these rows                                           */
    struct rope at;       /* theta unused                                                      */
};

/* Bytes of scratch for either pass. */
int64_t attention_scratch_B(const struct attention_shape *a);

/* Tq = seqs * seq / cp, Tk = cp * Tq. o [Tq, nq * dv]; lse [Tq, nq]; q [Tq, nq * dqk]; k [Tk, nkv * dqk];
 * v [Tk, nkv * dv]. */
enum err attention_ref(float *o, float *lse, const float *q, const float *k, const float *v,
                       const struct attention_shape *a, void *scratch);
/* dk and dv [Tk, ...] hold what this member's queries say; the sum over members is the caller's. */
enum err attention_bwd_ref(float *dq, float *dk, float *dv, const float *q, const float *k, const float *v,
                           const float *o, const float *lse, const float *dout,
                           const struct attention_shape *a, void *scratch);

#endif
