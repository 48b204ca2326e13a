/* What a better machine would buy: a plan predicted again with each figure of its system improved by a tenth. */
#ifndef TOOLS_SENSITIVITY_H
#define TOOLS_SENSITIVITY_H
#include "sim/predict.h"
#include "tools/report.h"

/* gain: of tokens/s, a share. gain_per_unit: of it, for one more `unit` (GB, GB/s, TFLOP/s; of times: one less us),
 * as far as the tenth is straight. More memory buys no time by itself: `with` is what else it lets the plan do, of
 * recomputing less and larger micro-batches; NULL: nothing that is faster. */
struct sensitivity_row {
    const char *key, *from, *to, *unit, *with;
    int32_t feasible;
    double step_s, gain, gain_per_unit;
};
extern const struct report_col sensitivity_cols[];
extern const int sensitivity_n_col;

enum { SENSITIVITY_ROWS = 16 };
/* Fills at most SENSITIVITY_ROWS rows, most gain first; returns how many. `r`: the plan of `j` predicted. Figures
 * that are 0 have no row. */
int sensitivity_of(struct sensitivity_row *row, struct arena *a, const struct job *j, const struct predict *r);

#endif
