/* What the attention kernels share: who sees whom, and where the rows lie. Keys are walked in order of position; the gather
 * has put them where attention_key_row says. */
#ifndef KERNELS_ATTEND_CUH
#define KERNELS_ATTEND_CUH
#include <math.h>
extern "C" {
#include "kernels/attention.h"
}
#include "kernels/mma.cuh"

enum { ATTEND_WIDEST = 256 };           /* of a head, for the kernels without tensor cores */

/* All operands of one launch, rows of type T; what a pass does not use is NULL. */
template <typename T> struct attend_io {
    T *o, *dq, *dk, *dv;
    float *lse, *along, *rest;          /* [Tq, nq]; along: dout . o; rest: what the keys leave of probability, the sink's */
    const T *q, *k, *v, *dout;
    const float *sink;
    struct attention_shape a;
};

static __host__ __device__ __forceinline__ int attend_local(const struct attention_shape &a) { return a.at.seq / a.at.cp; }

/* Position of a local query row. */
static __device__ __forceinline__ int attend_position(const struct attention_shape &a, int row)
{
    return rope_position(row, a.at.seq, a.at.cp, a.at.index);
}

/* The keys of sequence s that a query sees: [from, to), in order of position (attention.h). */
struct attend_seen { int from, to; };
static __device__ __forceinline__ attend_seen attend_keys(const struct attention_shape &a, int s, int query_row)
{
    const int position = attend_position(a, query_row);
    return { attention_from(&a, s, position), attention_before(&a, position + 1) };
}
static __device__ __forceinline__ bool attend_sees(attend_seen seen, int key) { return key >= seen.from && key < seen.to; }

/* What the sink's probability is counted from: 1 once, by the first block of a ring. */
static __device__ __forceinline__ float attend_whole(const struct attention_shape &a) { return a.ring > 1 ? 0 : 1; }

/* ---- attend_any.cu: any width up to ATTEND_WIDEST, no tensor cores ---- */
template <typename T> enum err attend_any(const attend_io<T> &io, kstream s);
template <typename T> enum err attend_any_bwd(const attend_io<T> &io, kstream s);

#endif
