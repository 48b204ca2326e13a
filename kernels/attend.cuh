/* What the attention kernels share: who sees whom, and where the rows lie. Keys are walked by position; the gather has put
 * position p of a sequence at the row that attend_key says. */
#ifndef KERNELS_ATTEND_CUH
#define KERNELS_ATTEND_CUH
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

/* Row, among the gathered keys, of position p of sequence s: the inverse of rope_position. */
static __device__ __forceinline__ int64_t attend_key(const struct attention_shape &a, int s, int p)
{
    const int local = attend_local(a), half = a.at.seq / (2 * a.at.cp);
    if (a.at.cp == 1) return (int64_t)s * local + p;
    const int chunk = p / half, second = chunk >= a.at.cp, member = second ? 2 * a.at.cp - 1 - chunk : chunk;
    return ((int64_t)member * a.seqs + s) * local + second * half + p % half;
}

/* The first position that a query at `position` sees. */
static __device__ __forceinline__ int attend_first(const struct attention_shape &a, int position)
{
    return a.window && position >= a.window ? position + 1 - a.window : 0;
}
static __device__ __forceinline__ bool attend_sees(const struct attention_shape &a, int query, int key)
{
    return key <= query && key >= attend_first(a, query);
}

/* ---- attend_any.cu: any width up to ATTEND_WIDEST, no tensor cores ---- */
template <typename T> enum err attend_any(const attend_io<T> &io, kstream s);
template <typename T> enum err attend_any_bwd(const attend_io<T> &io, kstream s);

#endif
