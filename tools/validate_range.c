/* The range of a row's prediction, and whether the measurement lies in it. */
#include "tools/validate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum err validate_range_read(struct validate_cv *cv, struct arena *a, struct diag *d)
{
    TRY(cfg_read_named(&cv->file, a, "published", "cv", d));
    return range_read(&cv->ranges, a, "range", d);
}

/* ln(predicted / measured rate) of an id; NAN: no calibration has seen it. */
static enum err residual(double *ln_fast, const struct validate_cv *cv, const char *id, struct diag *d)
{
    *ln_fast = (double)NAN;
    for (int i = 0; i < cv->file.root.n; i++) {
        if (strcmp(cv->file.root.key[i], id) != 0) continue;
        const struct cfg_node *v = &cv->file.root.child[i];
        char *end = NULL;
        *ln_fast = v->type == CFG_SCALAR ? strtod(v->text, &end) : (double)NAN;
        if (!end || *end || !isfinite(*ln_fast)) return cfg_fail(d, &cv->file, v, "%s is no number", id);
    }
    return OK;
}

enum err validate_range_row(struct validate_row *row, const struct validate_cv *cv, const struct job *j,
                            const struct predict *r, struct diag *d)
{
    const enum range_class c = range_class_of(&cv->ranges, j, r->off_grid_share);
    const struct range step = range_step(&cv->ranges, c, r->step_s);
    const int is_step = row->unit == VALIDATE_STEP;
    double ln_fast;
    TRY(residual(&ln_fast, cv, row->id, d));
    row->low  = row->predicted * (is_step ? step.low / r->step_s : r->step_s / step.high);
    row->high = row->predicted * (is_step ? step.high / r->step_s : r->step_s / step.low);
    row->cv_error = fabs(exp(is_step ? -ln_fast : ln_fast) - 1);
    if (!isfinite(ln_fast)) ln_fast = log1p(row->fast);
    row->covered = ln_fast >= log(step.low / r->step_s) && ln_fast <= log(step.high / r->step_s);
    return OK;
}
