/* Communicators among processes of an MPI job, on one host or many: a rank is the process of the same number. Built on
 * messages between two processes rather than MPI's collectives, so that sums run in member order with the bits of
 * comm_shm, a wait has an end, and members that make unequal calls are told. Waiting sleeps after a short spin. Needs
 * MPI_THREAD_MULTIPLE: every stream is a thread. After a break the job is to end: what was under way stays under way. */
#ifndef EXEC_COMM_MPI_H
#define EXEC_COMM_MPI_H
#include "exec/comm.h"
#include "models/base/arena.h"

struct comm_mpi;                                /* what all communicators of one run share */

/* Collective over the job, which has been initialised. ERR_COMM: MPI does not let threads communicate at once. Lives in
 * the arena until closed. */
enum err comm_mpi_open(struct comm_mpi **s, struct arena *a, double timeout_s, struct diag *d);
/* Collective over the job. */
void comm_mpi_close(struct comm_mpi *s);
/* As comm_shm_join. Every process joins all communicators, those it is no member of with me -1, in the same order. */
struct comm *comm_mpi_join(struct comm_mpi *s, const char *name, int64_t key, int me, int n, const int32_t *rank);
/* Breaks every communicator of the run on all processes; the first `why` that a process hears is what it reports. */
void comm_mpi_break(struct comm_mpi *s, const char *why);

extern const struct comm_ops comm_mpi;

#endif
