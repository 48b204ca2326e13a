/* Rotary position embedding, and where a row of a context-parallel slice stands in its sequence. float32;
 * rotate-halves convention: numbers i and i + dim / 2 of a head turn by pos * theta^(-2 i / dim). Su et al.,
 * "RoFormer". With cp members a sequence is cut into 2 cp chunks and member i holds chunks i and 2 cp - 1 -
 * i, so that causal work is even (Megatron-LM get_batch_on_this_cp_rank). Positions may restart with every document of a
 * packed sequence (Megatron-LM --reset-position-ids). A context longer than that of training is reached by slower turns of
 * some pairs (linear; Peng et al., "YaRN"; Llama 3), as in transformers modeling_rope_utils.py. */
#ifndef KERNELS_ROPE_H
#define KERNELS_ROPE_H
#include "kernels/stream.h"
#ifndef __cplusplus /* a .cu file has it before its extern "C" */
#include <math.h>
#endif

/* Pair i turns at f = theta^(-2 i / dim), or f / factor, or between: by a ramp from 0 at `low` to 1 at `high`, of i, or with
 * `original` of the turns that f makes in so many positions. What is turned is also multiplied by `magnitude`. All zero: as
 * without. */
struct rope_scaling { double factor, low, high, original, magnitude; };
struct rope_scaling rope_linear(double factor);
/* Pairs that make more than `fast` turns in `original` positions keep theirs, those with fewer than `slow` are `factor` times
 * slower; `truncate`: in whole pairs. rope_llama3 ramps by turns, rope_yarn by pairs of a head of `dim` numbers. */
struct rope_scaling rope_llama3(double factor, double original, double fast, double slow);
struct rope_scaling rope_yarn(double factor, double original, double fast, double slow, int truncate, double magnitude,
                              double theta, int dim);

struct rope {
    int seq, cp, index; /* tokens of a whole sequence; members; which member this is */
    double theta;
    const int32_t *start; /* NULL, or of whole sequences, at s * seq + position: where that token's document starts */
    struct rope_scaling scaling;
};

/* The angle of pair i of `dim` numbers, per position. */
static inline STREAM_BOTH double rope_angle(const struct rope *r, int i, int dim)
{
    const struct rope_scaling *s = &r->scaling;
    const double f = pow(r->theta, -2.0 * i / dim);
    if (s->factor == 0) return f;
    const double at = s->original > 0 ? s->original * f * 0.15915494309189535 : i; /* over 2 pi */
    const double ramp = (at - s->low) / (s->high - s->low), slower = ramp < 0 ? 0 : ramp < 1 ? ramp : 1;
    return f * (1 - slower + slower / s->factor);
}

static inline STREAM_BOTH double rope_magnitude(const struct rope *r)
{
    return r->scaling.magnitude > 0 ? r->scaling.magnitude : 1;
}

/* The position of local row `row` (below seq / cp) of a sequence on member `index`. */
static inline STREAM_BOTH int rope_position(int row, int seq, int cp, int index)
{
    const int half = seq / (2 * cp);
    if (cp == 1) return row;
    return row < half ? index * half + row : (2 * cp - 1 - index) * half + row - half;
}

/* The position in its document of local row `row` of all rows here, which are sequences one after the other. */
static inline STREAM_BOTH int rope_place(const struct rope *r, int64_t row)
{
    const int local = r->seq / r->cp, position = rope_position((int)(row % local), r->seq, r->cp, r->index);
    return r->start ? position - r->start[row / local * r->seq + position] : position;
}

/* x [rows, heads * width]: turns the last `dim` numbers of every head in place; `back` turns the other way
 * (the gradient). Rows are sequences one after the other, each with seq / cp rows. */
enum err rope_ref(float *x, int64_t rows, int heads, int width, int dim, const struct rope *r, int back);

/* The same, x of type t. */
enum err rope_cuda(void *x, int64_t rows, int heads, int width, int dim, const struct rope *r, int back, enum dtype t,
                   kstream s);

#endif
