/* How many rows a routed buffer really holds: by rank, MoE layer, micro-batch and place (0 after dispatch, 1 after the
 * etp gather). Even routing is a formula (program.even); a recorded load comes from a measured trace. */
#ifndef MODELS_LOAD_H
#define MODELS_LOAD_H
#include "models/program.h"
#include "models/trace.h"

struct load { int32_t n_rank, n_layer, n_micro; int32_t *rows; };   /* rows[((rank * n_layer + layer) * n_micro + micro) * 2 + at]; NULL: even */

/* Reads the rows that OP_SIZES wrote out of a measured trace (spans of the first iteration). */
enum err load_from_trace(struct load *l, struct arena *a, const struct program *pr, const struct job *j, const struct trace *t,
                         struct diag *d);
/* rows of one (rank, layer, micro). */
void load_rows(int64_t even[2], const struct load *l, const struct program *pr, int rank, int layer, int micro);
/* The busiest rank of a stage. */
void load_rows_stage(int64_t even[2], const struct load *l, const struct program *pr, const struct job *j, int stage, int layer,
                     int micro);

#endif
