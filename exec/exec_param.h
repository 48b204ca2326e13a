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
/* Where a rank keeps a parameter, or its gradient (grad 1; q->g is not 0): in root buffer `buf`, which holds elements
 * [held.first, held.end) of the parameter's bucket; of them the slice is those from `at` on. Held is all, but where
 * parameters are cut over replicas (plan.fsdp) what the rank owns. */
struct exec_param_home { int32_t buf; struct exec_param_owned held; int64_t at; };
struct exec_param_home exec_param_home(const struct program *pr, const struct job *j, const struct param *q, int grad,
                                       int rank);
/* A rank's part of a bucket's master weights, from its own buffer and from the weights' home. */
struct numbers exec_param_master(struct numbers own, struct numbers weights, const struct exec_param_home *home,
                                 struct exec_param_owned mine);

/* Element `index` = (expert * rows + row) * cols + col of the whole: bell-shaped with deviation
 * model.init_std, 1 for norms, 0 for biases. Stages that hold a copy of one table agree, because a table has
 * layer -1 on all. */
float exec_param_value(const struct job *j, const struct param *q, int64_t index);
/* Writes the initial values of all parameters of the rank's stage into its arena; where there are master
 * weights, also its part of those, not rounded, and of the host's copy. */
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
