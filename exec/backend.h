/* What a backend is: a table of launchers by op kind. A launcher unpacks one call into one kernel (or one
 * collective) and returns; it takes shapes from the operands and never from the plan, so that a buffer's shape
 * has one home. */
#ifndef EXEC_BACKEND_H
#define EXEC_BACKEND_H
#include "exec/comm.h"
#include "exec/data.h"
#include "exec/routes.h"
#include "kernels/kernels.h"
#include "models/program.h"

/* True rows (the capacity of unsized ones), not more. p NULL: absent. */
struct operand { void *p; int64_t rows, cols; };

struct call {
    const struct op *op; const struct program *pr; const struct job *job;
    const struct kernels *kernels;              /* whose arithmetic: kernels_ref, or this machine's fast ones  */
    void *backend_user;                         /* what the run was asked with; NULL for backend_cpu_launch     */
    struct coord at;                            /* where this rank sits                                       */
    int32_t rank, iter, micro;                  /* iter: steps before this one; micro -1: none                                             */
    struct operand write[OP_WRITES], add[OP_ADDS], read[OP_READS];
    const struct comm_ops *comm_ops;
    struct comm *comm;                          /* of op.group; NULL when it has one member or is NONE        */
    int32_t me, members;                        /* index in the group, its size; SEND is 0 of 2, RECV 1 of 2  */
    const struct data *data; int32_t part;      /* DATA reads it; enum data_part                              */
    int64_t first_seq;                          /* of the step, among all sequences of the run                */
    int64_t loss_tokens;                        /* of the step, that the loss counts; 0: all                  */
    double lr;                                  /* learning rate of the step                                  */
    const struct routes *routes; int32_t routes_step, replay;   /* NULL, or where choices are recorded, or taken from */
    float *score_gap;                           /* ROUTE lowers it                                            */
    struct diag *d;
};
typedef enum err launch(const struct call *c);

/* CPU ranks; what OP_LIST says is only predicted has no entry. */
extern launch *const backend_cpu_launch[OP_KIND_COUNT];
/* The table for a plan's precision and moments: that one, or the one whose buffers may be bf16. */
launch *const *backend_cpu_table(const struct plan *p);

/* A backend of another device: its launchers, one for every kind, and the memory that arenas are of, which the host can also
 * reach. A launcher returns when its work is under way, in order, in the calling thread's stream of the device. A mark is a
 * place in a stream: others wait for it, and it knows when it was reached. Functions that return text: NULL is well. */
enum { BACKEND_VERSION = 2 };
struct backend {
    int32_t version; const char *name;
    launch *const *launch;
    enum err (*open)(struct diag *d);           /* ERR_DEVICE: what is missing, and what to do                 */
    int64_t (*memory_B)(void);                  /* of the device                                               */
    void *(*arena_new)(int64_t bytes);          /* NULL: there is no room                                      */
    void (*arena_free)(void *p);
    void (*arena_filled)(void *p, int64_t bytes);       /* by the host, which now leaves it to the device      */
    const char *(*wait)(void);                  /* the host, for all that this thread launched                 */
    void *(*mark_new)(void);                    /* NULL: there is no room                                      */
    void (*mark_free)(void *mark);              /* NULL: nothing                                               */
    const char *(*mark)(void *mark);            /* behind all that this thread launched                        */
    const char *(*after)(void *mark);           /* what this thread launches next comes after it; nobody waits */
    const char *(*reached)(void *mark);         /* the host waits for it                                       */
    double (*between_s)(void *from, void *to);  /* both reached                                                */
    const struct comm_mover *mover;             /* among ranks that share the device                           */
};

#endif
