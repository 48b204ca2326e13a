/* How many rows a routed buffer really holds: by rank, MoE layer, micro-batch and place (0 after dispatch, 1 after the
 * etp gather). Even routing is a formula (program.even), and so are synthetic loads (share.h): alike in every layer
 * and micro-batch, and from every source rank. A recorded load comes from a measured trace. */
#ifndef MODELS_LOAD_H
#define MODELS_LOAD_H
#include "models/program.h"
#include "models/share.h"
#include "models/trace.h"

struct load { int32_t n_rank, n_layer, n_micro; int32_t *rows; };   /* rows[((rank * n_layer + layer) * n_micro + micro) * 2 + at]; NULL: even */

/* A plan's routing, by formula: rows after dispatch of one micro-batch and layer. */
struct load_spread {
    double mean, most;              /* over the ep members; of the busiest one                                   */
    int32_t busiest;                /* index of that member                                                      */
    double dropped;                 /* share of the picks that found their expert full                           */
};
/* rows[ep]: what each member of an ep group receives; they sum to the picks that are kept, or with ROUTING_PADDED to
 * all capacities. padded[ep] (may be NULL): with the rows of each expert, times `times`, rounded up to a multiple of
 * `pad`; an expert without rows has none. */
void load_members(int64_t *rows, int64_t *padded, const struct job *j, int pad, int times);
/* share_targets of the plan's routing. */
double load_targets(const struct job *j, int targets);
struct load_spread load_spread(const struct job *j);
/* Whether the busiest rank gets more rows than the plan's capacity holds: a run would stop (exec's rule of overflow). */
int load_overflows(const struct load_spread *s, const struct job *j);
/* Makes a built program what it is under the plan's load, on the busiest rank of every group: even, targets and,
 * where the stack has no capacity, the rows of routed buffers. Changes nothing under balanced routing or with
 * ROUTING_PADDED. How experts of one rank differ is not priced, their sum is. A program's hash excludes the load: it
 * is that of before. */
void load_apply(struct program *pr, const struct job *j);

/* Reads the rows that OP_SIZES wrote out of a measured trace (spans of the first iteration). */
enum err load_from_trace(struct load *l, struct arena *a, const struct program *pr, const struct job *j, const struct trace *t,
                         struct diag *d);
/* rows of one (rank, layer, micro). */
void load_rows(int64_t even[2], const struct load *l, const struct program *pr, int rank, int layer, int micro);
/* The busiest rank of a stage. */
void load_rows_stage(int64_t even[2], const struct load *l, const struct program *pr, const struct job *j, int stage, int layer,
                     int micro);

#endif
