/* Runs a program for real: one host loop per rank issues the unrolled list; streams do the work; spans say what
 * happened. Knows no backend: launches go through a table by op kind (backend.h). Refuses programs of stacks
 * that it is not (stack.runs) and programs that unroll_check did not pass. */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H
#include "exec/backend.h"
#include "exec/data.h"
#include "exec/world.h"
#include "models/trace.h"
#include "models/unroll.h"

/* loss, mtp_loss: means over the step's tokens; balance_loss: of routers, coefficients in it (plan.balance, z_loss), summed
 * over layers; what is trained is loss + model.mtp_weight mtp_loss + balance_loss. grad_norm: before clipping. step_s: from the last rank's end of the step before to the last rank's end; while a run
 * goes on (report) as rank 0 sees it. */
struct exec_step { double loss, mtp_loss, balance_loss, grad_norm, step_s; };
struct exec_ask {
    int steps, iters_traced;                /* spans of the first iters_traced steps are kept (0: all)        */
    const uint8_t *text; int64_t text_n;    /* byte-level tokens, in order, when there is no data             */
    const struct data *data;                /* what is trained on; NULL: the text                             */
    int32_t part;                           /* enum data_part                                                 */
    int64_t first_step, first_seq;          /* steps and sequences that came before the first one             */
    const struct routes *routes; int replay;    /* records choices of experts there, or takes them from there */
    int32_t routes_from;                        /* which of its steps is the first of these */
    int stop_at_nan;                        /* ERR_NO after a step whose loss or gradient norm is not finite  */
    int poison;                             /* fill every life with NaN bytes at birth and death (tests)      */
    double timeout_s;                       /* of a collective; <= 0: waits for ever                          */
    int processes;                          /* ranks are forked processes, not threads: the memory that hooks of a rank
                                               write must be shared (arena.h) */
    const struct world *world;              /* this process holds the rank of its number alone, the others of the job the rest;
                                               NULL: all ranks are here. Then hooks are called for that rank, what is
                                               collected of all is on every process, and errors are the same on all */
    struct world_seat seat;                 /* its own                                                        */
    launch *const *backend;                 /* OP_KIND_COUNT launchers; NULL: backend_cpu_table of the plan    */
    const struct backend *on;               /* whose memory arenas are of, and launchers; NULL: the host       */
    const struct kernels *kernels;          /* of backend_cpu's launchers; NULL: kernels_fast(0)              */
    void *backend_user;                     /* handed to every launch                                         */
    void *user;                             /* of the hooks, any of which may be NULL                  */
    /* May overwrite initial values in a rank's arena (a checkpoint, a test). One rank after the other. */
    void (*before)(void *user, int rank, const struct unroll *u, char *arena);
    /* After each step of rank 0, as it saw it, in the caller's process; of threads before after_step. */
    void (*report)(void *user, int step, const struct exec_step *s);
    /* After each step, the rank's streams idle, with its arena. Concurrently on all ranks. */
    void (*after_step)(void *user, int rank, int step, const struct unroll *u, const char *arena);
};
struct exec_result {
    struct exec_step *step; int n_step;
    struct trace trace;                     /* measured                                                       */
    int64_t *live_B;                        /* per rank: most alive, births and deaths counted in issue order */
    int64_t *touched_B;                     /* per rank: end of the highest life used                         */
    float score_gap;                        /* smallest gap between the k-th and the next routing score;
                                               INFINITY: no choice was made                                   */
};
/* Threads or forked processes as ranks over comm_shm, or this process as one of a world; u: one unroll per stage, planned. The result lives in `a`. ERR_CONFIG: a
 * program that this executor does not run, with the way out. ERR_NO: capacity overflow, naming rank, layer,
 * rows and the factor needed; a failed unroll_check, or arenas that this host cannot hold. ERR_COMM: a rank did
 * not come, or its process died: then the others end within seconds. */
enum err exec_run(struct exec_result *r, struct arena *a, const struct program *pr, const struct unroll *u,
                  const struct job *j, const struct exec_ask *ask, struct diag *d);

/* What a world refuses (ERR_CONFIG): another number of processes than ranks, routes kept of all, ranks that are forked. */
enum err exec_world_check(const struct world *w, const struct world_seat *seat, const struct job *j, int routes, int forked,
                          struct diag *d);

#endif
