/* Communicators among ranks of this host, without a launcher: every member shows its peers where its data lies,
 * all meet, everyone pulls by memcpy, all meet again. The second meeting is what lets a sender's buffer die at
 * the end of the call. Ranks are threads, or processes forked after all have joined: then the arena is a shared one,
 * and what a rank shows that lies elsewhere (a launcher's scratch) is first copied into it. Logical ranks on one device pull by
 * its copies. */
#ifndef EXEC_COMM_SHM_H
#define EXEC_COMM_SHM_H
#include "exec/comm.h"
#include "models/base/arena.h"

struct comm_shm;                                /* what all ranks of one run share */

/* A run whose collectives wait at most `timeout_s` for a member (<= 0: for ever). Lives in the arena; nothing
 * to close. */
struct comm_shm *comm_shm_open(struct arena *a, double timeout_s);
/* Forked ranks: room for `bytes` that a member shows from its own memory, in every communicator joined later. */
void comm_shm_reserve(struct comm_shm *s, int64_t bytes);
/* Members are threads, and their data lies where `m` moves it. */
void comm_shm_move_by(struct comm_shm *s, const struct comm_mover *m);
/* The handle of member `me` of `n` in the communicator `name`.`key`: members that name the same pair meet.
 * `rank[i]` is member i's rank, for messages. Not thread-safe: join all before the ranks start. */
struct comm *comm_shm_join(struct comm_shm *s, const char *name, int64_t key, int me, int n,
                           const int32_t *rank);
/* Breaks every communicator of the run and wakes whoever waits. The first `why` is what all of them report. */
void comm_shm_break(struct comm_shm *s, const char *why);

extern const struct comm_ops comm_shm;

#endif
