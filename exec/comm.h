/* Collectives among the ranks of one run. One communicator belongs to one (group, stream); every call is
 * collective over the group, in the same order on all members. Sums run in member order, so a run repeats bit
 * for bit and all members hold the same bits. Zero-byte and uneven counts are normal. Buffers may be reused as
 * soon as the call returns. A member that does not come within the time-out, or that fails, breaks the
 * communicators of the whole run: everybody gets ERR_COMM naming rank, group and op, and nobody hangs. */
#ifndef EXEC_COMM_H
#define EXEC_COMM_H
#include "models/base/dtype.h"
#include "models/base/err.h"
#include <stdint.h>

struct comm;                                    /* one member's handle of one group */
struct comm_ops {
    const char *name;
    /* out = members' parts one after the other; part_B[i] bytes from member i. `in` may be my part of `out`. */
    enum err (*gather)(struct comm *c, void *out, const void *in, const int64_t *part_B, struct diag *d);
    /* out = sum over members of part `me` of in (floats); part_n[i] floats for member i. `out` may be my part
     * of `in`. */
    enum err (*scatter_sum)(struct comm *c, float *out, const float *in, const int64_t *part_n, struct diag *d);
    /* x = the sum over members (max 0), or the largest. */
    enum err (*all_reduce)(struct comm *c, float *x, int64_t n, int max, struct diag *d);
    /* send_B[i] bytes to member i from consecutive places of in; recv_B[i] from member i to consecutive places
     * of out. */
    enum err (*all_to_all)(struct comm *c, void *out, const int64_t *recv_B, const void *in,
                           const int64_t *send_B, struct diag *d);
    /* A rendezvous of two members; to, from: member. */
    enum err (*send)(struct comm *c, int to, const void *in, int64_t bytes, struct diag *d);
    enum err (*recv)(struct comm *c, int from, void *out, int64_t bytes, struct diag *d);
    /* Names the op that calls next, for messages; exec calls it. */
    void (*say)(struct comm *c, const char *op);
};

/* Who moves data when it lies on a device that all members share; the host does when there is none. Text: what went wrong, or
 * NULL. */
struct comm_mover {
    const char *(*copy)(void *to, const void *from, int64_t bytes);             /* under way when it returns */
    /* to = the sum (max: the largest) of `from` in member order, under way; *reduced 0: not by this mover, the host must. `to`
     * may be one of them. */
    const char *(*reduce)(int *reduced, float *to, const float *const *from, int members, int64_t n, int max);
    const char *(*wait)(void);                                                  /* for all that this thread moved */
};

/* Where the part of member n begins, parts one after the other. */
static inline int64_t comm_before(const int64_t *part, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += part[i];
    return sum;
}

#endif
