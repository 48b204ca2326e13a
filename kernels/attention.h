/* Causal attention with grouped key/value heads, float32. Query rows are one context-parallel member's; key
 * and value rows are those of all members, gathered: member 0's rows, then member 1's, each `seqs` sequences
 * of seq / cp rows. Scores never exist as a whole; the backward pass makes probabilities again from `lse`, the
 * logarithm of their denominator (Dao, "FlashAttention-2"). Scale 1 / sqrt(dqk).
 * Window: a query sees itself and the window - 1 keys before it (transformers masking_utils.py,
 * sliding_window_overlay). Sink: a learned score of each head that takes probability and has no value (GPT-OSS;
 * Xiao et al., "Efficient Streaming Language Models with Attention Sinks"). */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H
#include "kernels/rope.h"

struct attention_shape {
    int nq, nkv, dqk, dv; /* query heads here, key/value heads here; their widths              */
    int seqs;             /* sequences in these rows                                           */
    struct rope at;       /* theta unused                                                      */
    int window;           /* 0: all keys before                                                */
};

/* Bytes of scratch for either pass. */
int64_t attention_scratch_B_ref(const struct attention_shape *a);

/* Tq = seqs * seq / cp, Tk = cp * Tq. o [Tq, nq * dv]; lse [Tq, nq]; q [Tq, nq * dqk]; k [Tk, nkv * dqk];
 * v [Tk, nkv * dv]; sink [nq] or NULL. */
typedef enum err attention_fwd(float *o, float *lse, const float *q, const float *k, const float *v,
                               const float *sink, const struct attention_shape *a, void *scratch);
/* dk and dv [Tk, ...] hold what this member's queries say; the sum over members is the caller's. dsink [nq] +=
 * the sinks' gradient (NULL without sinks): a sink's probability is what lse leaves over the keys'. */
typedef enum err attention_bwd(float *dq, float *dk, float *dv, float *dsink, const float *q, const float *k,
                               const float *v, const float *o, const float *lse, const float *dout,
                               const struct attention_shape *a, void *scratch);
attention_fwd attention_ref;
attention_bwd attention_bwd_ref;

/* The same; lse, sink and dsink float32, all else of type t. bf16 heads up to 192 / 128 wide go through tensor cores, others
 * up to 256 do not. scratch: attention_cuda_scratch_B. */
int64_t attention_cuda_scratch_B(const struct attention_shape *a);
enum err attention_cuda(void *o, float *lse, const void *q, const void *k, const void *v, const float *sink,
                        const struct attention_shape *a, enum dtype t, kstream s);
enum err attention_bwd_cuda(void *dq, void *dk, void *dv, float *dsink, const void *q, const void *k, const void *v,
                            const void *o, const float *lse, const void *dout, const struct attention_shape *a, void *scratch,
                            enum dtype t, kstream s);

#endif
