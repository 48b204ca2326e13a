/* One program on two backends at once: every op of arithmetic is launched twice on the same inputs, its outputs are
 * compared, and the run goes on with the first backend's. So a difference is of that op, never of what came before
 * it. Communication is launched once. */
#ifndef EXEC_VERIFY_H
#define EXEC_VERIFY_H
#include "exec/exec.h"
#include <pthread.h>

/* The largest difference of one kind of op. off: |b - a| over the output's largest |a|; whole numbers must be equal
 * (else infinity). */
struct verify_kind {
    int64_t launches;
    double off, a, b;           /* a, b: the two values there                                     */
    int32_t rank, op, micro, iter, output;      /* output: place among written, then added to     */
    int64_t element;
    int32_t dtype;              /* of that output                                                 */
};
/* on: whose memory the side reaches beside the host's; NULL: the host's alone. */
struct verify_side { launch *const *launch; const struct kernels *kernels; const struct backend *on; };
struct verify {
    struct verify_side a, b;
    struct verify_kind kind[OP_KIND_COUNT];
    pthread_mutex_t lock;       /* guards kind */
};

/* What two sums of the same terms in another order may differ by, relative to the output's largest: 2e-5 in fp32
 * (long sums of mixed signs), one and a half units in the last place of bf16. */
double verify_limit(enum dtype t);
/* exec_run with `ask`, whose backend, kernels, memory and backend_user are replaced. `v` has its two sides; the first is the
 * CPU's. */
enum err verify_run(struct verify *v, struct arena *arena, const struct program *pr, const struct unroll *u,
                    const struct job *j, const struct exec_ask *ask, struct diag *d);

#endif
