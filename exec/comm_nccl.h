/* Communicators among processes that have a GPU each, by NCCL: the world is split into groups by ncclCommSplit, each
 * with a stream of its own. NCCL is opened when asked for, never linked. Sums run in an order of NCCL's, the same
 * every time for the same ranks but not the members': bits may differ from comm_shm's. Needs no NCCL header. */
#ifndef EXEC_COMM_NCCL_H
#define EXEC_COMM_NCCL_H
#include "exec/comm.h"
#include "models/base/arena.h"

struct comm_nccl; /* what all communicators of one rank's run share */
enum { COMM_NCCL_ID_B = 128 };

/* One rank makes the id, and its launcher gives it to all. ERR_COMM: there is no NCCL, or it says no. */
enum err comm_nccl_id(void *id, struct diag *d);
/* Collective over `ranks` processes, on the device that is current; a wait ends after timeout_s (<= 0: never). */
enum err comm_nccl_open(struct comm_nccl **s, struct arena *a, const void *id, int ranks, int rank, double timeout_s,
                        struct diag *d);
/* Accepts NULL. */
void comm_nccl_close(struct comm_nccl *s);
/* Collective over all processes, which join all communicators in the same order, those they are no member of with me
 * -1 (then *c is NULL). rank[0 .. n - 1]: the members, this one at `me`; groups joined in one call share no member.
 */
enum err comm_nccl_join(struct comm **c, struct comm_nccl *s, const char *name, int me, int n, const int32_t *rank,
                        struct diag *d);

/* Buffers: the device's or managed memory, complete when a call is made, and again when it returns. */
extern const struct comm_ops comm_nccl;

#endif
