/* Rotary position embedding, and where a row of a context-parallel slice stands in its sequence. float32;
 * rotate-halves convention: numbers i and i + dim / 2 of a head turn by pos * theta^(-2 i / dim). Su et al.,
 * "RoFormer". With cp members a sequence is cut into 2 cp chunks and member i holds chunks i and 2 cp - 1 -
 * i, so that causal work is even (Megatron-LM get_batch_on_this_cp_rank). */
#ifndef KERNELS_ROPE_H
#define KERNELS_ROPE_H
#include "kernels/stream.h"

struct rope {
    int seq, cp, index;
    double theta;
}; /* tokens of a whole sequence; members; which member this is */

/* The position of local row `row` (below seq / cp) of a sequence on member `index`. */
static inline STREAM_BOTH int rope_position(int row, int seq, int cp, int index)
{
    const int half = seq / (2 * cp);
    if (cp == 1) return row;
    return row < half ? index * half + row : (2 * cp - 1 - index) * half + row - half;
}

/* x [rows, heads * width]: turns the last `dim` numbers of every head in place; `back` turns the other way
 * (the gradient). Rows are sequences one after the other, each with seq / cp rows. */
enum err rope_ref(float *x, int64_t rows, int heads, int width, int dim, const struct rope *r, int back);

/* The same, x of type t. */
enum err rope_cuda(void *x, int64_t rows, int heads, int width, int dim, const struct rope *r, int back, enum dtype t,
                   kstream s);

#endif
