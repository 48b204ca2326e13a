/* What cross-validation leaves behind: how far off each row was when its half was not in the fit, and the ranges that
 * follow for predictions. */
#ifndef TOOLS_FIT_RANGE_H
#define TOOLS_FIT_RANGE_H
#include "tools/fit/fit_run.h"
#include "tools/range.h"

/* ln(predicted / measured rate) of each row, the median over the seeds; from the arena of `data`. */
double *fit_range_residuals(const struct fit_cv *cv, const struct fit_data *data, int n_seed);
/* DIR/published/cv.yaml and range.yaml. pair, model, system: residuals by what was divided. */
enum err fit_range_write(const struct fit_data *data, const double *pair, const double *model, const double *system,
                         const char *dir, struct diag *d);

#endif
