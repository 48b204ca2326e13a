/* A job of processes that a launcher started (mpirun), on one host or many: each holds the rank of its number. What a run
 * over one needs besides collectives. A module beside the program, moefold_NAME.so, opened when asked for: its libraries take
 * tens of milliseconds to start. Collective means: by all processes, in the same order. */
#ifndef EXEC_WORLD_H
#define EXEC_WORLD_H
#include "exec/comm.h"
#include "models/base/arena.h"

enum { WORLD_VERSION = 1 };
struct world_seat { int32_t process, processes, one_host; };    /* one_host: all share its clock */
struct world {
    int32_t version;
    const char *name;
    const struct comm_ops *ops;
    /* Takes this process's seat; once. ERR_COMM: the library cannot do what a run needs. */
    enum err (*open)(struct world_seat *seat, struct diag *d);
    /* Collective: the communicators of one run, in the arena. */
    enum err (*begin)(void **run, struct arena *a, double timeout_s, struct diag *d);
    /* As comm_shm_join. Collective over the job, those it does not concern with me -1, which get NULL. */
    struct comm *(*join)(void *run, const char *name, int64_t key, int me, int n, const int32_t *rank);
    void (*stop)(void *run, const char *why);       /* breaks all of the run's communicators, on all processes */
    void (*end)(void *run);                         /* collective */
    /* Collective: all return the same, OK or the first failure that is not only another's (ERR_COMM), with its text. */
    enum err (*agree)(enum err mine, struct diag *d);
    /* Collective: every process's part of `all`, part_B[process] bytes, one after the other, to all. */
    void (*share)(void *all, const int64_t *part_B);
    /* The process ends with this status. Collective: called as the last thing, nobody's end cuts another's words short. */
    void (*close)(int status);
};

/* Opens the module and takes the seat. It stays open until the program ends. ERR_CONFIG: the module is not there, or of
 * another version. */
enum err world_load(const struct world **w, struct world_seat *seat, const char *name, struct diag *d);

#endif
