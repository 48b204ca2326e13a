/* Where a rank's slices of a parameter lie in the whole: initial values, and gathering a parameter or its
 * gradient from all ranks. The same numbers under every fold: a value depends on (seed, name, layer, place in
 * the whole) alone. */
#ifndef EXEC_EXEC_PARAM_H
#define EXEC_EXEC_PARAM_H
#include "exec/numbers.h"
#include "models/unroll.h"

/* Where the rank at `at` keeps its part of a parameter. */
struct exec_param_slice {
    int64_t batch, rows, cols;          /* here; batch 1 for a parameter of no expert */
    int64_t expert;                     /* the first one here */
    int64_t part;                       /* which of the equal parts of rows or columns */
    int64_t copy;                       /* 0: the first of those tp (etp) members that hold the same */
    const struct param *q;
};
struct exec_param_slice exec_param_slice(const struct program *pr, const struct job *j, const struct param *q,
                                         struct coord at);
/* Place in the whole of the first column of a local row; the row's columns follow one another there too. */
int64_t exec_param_place(const struct exec_param_slice *s, int64_t expert, int64_t row);
/* The bucket of a trained parameter (q->g is not 0). */
const struct bucket *exec_param_bucket(const struct program *pr, const struct param *q);
/* Elements [first, end) of a parameter's bucket whose sums and optimizer state a rank holds; q->g is not 0.
 */
struct exec_param_owned { int64_t first, end; };
struct exec_param_owned exec_param_owned(const struct program *pr, const struct job *j, const struct param *q,
                                         int rank);

/* A rank's part of a bucket's master weights, from its own buffer and the bucket's weights. */
struct numbers exec_param_master(struct numbers own, struct numbers weights, struct exec_param_owned mine);

/* Element `index` = (expert * rows + row) * cols + col of the whole: bell-shaped with deviation
 * model.init_std, 1 for norms, 0 for biases. Stages that hold a copy of one table agree, because a table has
 * layer -1 on all. */
float exec_param_value(const struct job *j, const struct param *q, int64_t index);
/* Writes the initial values of all parameters of the rank's stage into its arena; where there are master
 * weights, also its part of those, not rounded. */
void exec_param_init(const struct program *pr, const struct unroll *stage, const struct job *j, int rank,
                     char *arena);
/* Elements of the whole: experts * rows * cols. */
int64_t exec_param_elements(const struct param *q);
/* Gathers a parameter (grad 0) or its gradient after a step (grad 1) from all ranks' arenas. A gradient's
 * element is taken from the member of the bucket's share_group that owns its part: only there it is the sum.
 * Zeros where q->g is 0. */
void exec_param_gather(float *whole, const struct program *pr, const struct unroll *u, const struct job *j,
                       int param, int grad, char *const *arenas);

#endif
