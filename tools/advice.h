/* What to change in a plan that does not fit: its neighbours, predicted. */
#ifndef TOOLS_ADVICE_H
#define TOOLS_ADVICE_H
#include "sim/predict.h"
#include "tools/args.h"
#include "tools/report.h"

/* One change of the plan, or a few together. saves_B: of the fullest stage's device memory; against the plan that
 * does not fit. slower: loss of tokens/s/GPU, a share; below 0 a gain. */
struct advice_row {
    const char *change, *flags;
    int32_t fits, gpus, n, order;           /* n: changes; order: lesser ones come first                           */
    double saves_B, peak_B, step_s, slower;
};
extern const struct report_col advice_cols[];
extern const int advice_n_col;

struct advice {
    struct advice_row *row; int n;          /* those that fit first, least changes, then least slower; then by
                                               saving */
    int32_t tried;
    int64_t least_gpus, least_gpus_mtp;     /* no layout fits fewer (sim/least.h); with the plan's MTP layers
                                                     */
    const char *bound;                      /* a sentence; NULL: the GPUs suffice for the states                 */
};
/* Of `args`, read as `j` and predicted as `r`, which is not feasible. At most ADVICE_ROWS rows. */
enum { ADVICE_ROWS = 20 };
void advice_of(struct advice *v, struct arena *a, const struct args *args, const struct job *j,
    const struct predict *r);

#endif
