/* Causal attention with grouped key/value heads, float32. Query rows are one context-parallel member's; key
 * and value rows are those of all members, gathered: member 0's rows, then member 1's, each `seqs` sequences
 * of seq / cp rows. Scores never exist as a whole; the backward pass makes probabilities again from `lse`, the
 * logarithm of their denominator (Dao, "FlashAttention-2").
 * Window: a query sees itself and the window - 1 keys before it (transformers masking_utils.py,
 * sliding_window_overlay). Sink: a learned score of each head that takes probability and has no value (GPT-OSS;
 * Xiao et al., "Efficient Streaming Language Models with Attention Sinks").
 * Ring (Liu et al., "Ring Attention with Blockwise Transformers"): the keys here are one member's only, and o and lse are what
 * they alone give; kernels/merge.h joins such parts. A query that sees none of them has lse -infinity and o 0. Backward takes
 * the joined o and lse, and gives this block's share of every gradient.
 * Documents: a query sees none of the documents before its own in the sequence. */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H
#include "kernels/rope.h"

struct attention_shape {
    int nq, nkv, dqk, dv; /* query heads here, key/value heads here; their widths              */
    int seqs;             /* sequences in these rows                                           */
    struct rope at;       /* no angles                                                         */
    int window;           /* 0: all keys before                                                */
    int ring;             /* 0: keys of all members; 1 + r: of the member r before this one, around the ring */
    float scale;          /* of scores, beside 1 / sqrt(dqk); 0: 1                             */
};

static inline STREAM_BOTH float attention_scale(const struct attention_shape *a)
{
    return (a->scale > 0 ? a->scale : 1) / sqrtf((float)a->dqk);
}

/* Keys of a sequence here. They are counted in order of position: key i of sequence s is ... */
static inline STREAM_BOTH int attention_keys(const struct attention_shape *a)
{
    return a->ring ? a->at.seq / a->at.cp : a->at.seq;
}

/* How many of them stand before a position, 0 .. seq. */
static inline STREAM_BOTH int attention_before(const struct attention_shape *a, int position)
{
    const int half = a->at.seq / (2 * a->at.cp);
    if (!a->ring) return position;
    const int member = (a->at.index + 1 - a->ring + a->at.cp) % a->at.cp;
    const int first = position - member * half, second = position - (2 * a->at.cp - 1 - member) * half;
    return (first < 0 ? 0 : first < half ? first : half) + (second < 0 ? 0 : second < half ? second : half);
}

/* ... at this row. */
static inline STREAM_BOTH int64_t attention_key_row(const struct attention_shape *a, int64_t s, int i)
{
    const int local = a->at.seq / a->at.cp, half = a->at.seq / (2 * a->at.cp);
    if (a->ring || a->at.cp == 1) return s * local + i;
    const int chunk = i / half, second = chunk >= a->at.cp, member = second ? 2 * a->at.cp - 1 - chunk : chunk;
    return ((int64_t)member * a->seqs + s) * local + second * half + i % half;
}

/* The query at a position of sequence s sees keys [from, before(position + 1)). Both rise with the position. */
static inline STREAM_BOTH int attention_from(const struct attention_shape *a, int64_t s, int position)
{
    const int start = a->at.start ? a->at.start[s * a->at.seq + position] : 0;
    const int first = a->window && position >= a->window ? position + 1 - a->window : 0;
    return attention_before(a, first > start ? first : start);
}

/* Bytes of scratch for either pass. */
int64_t attention_scratch_B_ref(const struct attention_shape *a);

/* Tq = seqs * seq / cp, Tk = cp * Tq, with ring Tq. o [Tq, nq * dv]; lse [Tq, nq]; q [Tq, nq * dqk]; k [Tk, nkv * dqk];
 * v [Tk, nkv * dv]; sink [nq] or NULL. */
typedef enum err attention_fwd(float *o, float *lse, const float *q, const float *k, const float *v,
                               const float *sink, const struct attention_shape *a, void *scratch);
/* dk and dv [Tk, ...] hold what this member's queries say; the sum over members is the caller's. dsink [nq] +=
 * the sinks' gradient (NULL without sinks): a sink's probability is what lse leaves over the keys'; of a ring the first block
 * counts the whole, every block takes its keys' off. */
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
