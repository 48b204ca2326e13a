/* Whose software runs the plan: what the builder may emit, what is kept, which options exist. Settings, never factors
 * per era. `moefold` is what our executor does; stacks named after other software are predicted, searched, exported. */
#ifndef MODELS_STACK_H
#define MODELS_STACK_H
#include "models/cfg.h"
#include <stdint.h>

/* What a plan may choose among; the plan's options are named by the same lists. */
enum schedule   { SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_FWD_BWD };
enum recompute  { RECOMPUTE_MOE_ACT, RECOMPUTE_LAYERNORM, RECOMPUTE_MLA_UP_PROJ, RECOMPUTE_FULL };    /* bits 1 << r */
enum dispatcher { DISPATCHER_ALLTOALL };
extern const char *const stack_schedules[], *const stack_recomputes[], *const stack_dispatchers[];

struct stack {
    char name[64];
    int32_t runs;                           /* the executor of this program can run it                                */
    int32_t schedules, recomputes, dispatchers;     /* bit sets of the enums above                                    */
    int32_t dispatcher;                     /* the default one                                                        */
    int32_t split_wgrad;                    /* BWD_INPUT and BWD_WEIGHT may be separate passes                        */
    double capacity;                        /* default factor of a routed buffer's rows; 0: none, rows are the load's */
    int32_t vocab_multiple;                 /* the vocabulary is padded to a multiple of this times tp                */
    double issue;                           /* host time per op, in units of system.issue_s                           */
    int32_t host_reads;                     /* the host waits for the routed sizes                                    */
    int32_t arena;                          /* memory is planned offsets (1) or a framework's allocator (0)           */
    int32_t grad_fp32;                      /* main gradients fp32 also when the plan trains in bf16                  */
    int32_t moe_overlap;                    /* the shared expert runs under the dispatch, FC1's weight gradient under the combine */
    double overhead_B;                      /* what the software itself holds, on top of system.overhead_B            */
};

extern const struct opt stack_opts[];
extern const int stack_n_opt;

/* From a name or path; from a document. ERR_CONFIG also when the default dispatcher is not among the offered. */
enum err stack_read(struct stack *s, struct arena *a, const char *arg, struct diag *d);
enum err stack_fill(struct stack *s, const struct cfg *c, struct diag *d);

#endif
