/* Matrix products. Arithmetic runs at one measured efficiency a dtype, slowed by a ramp over the inner size (the
 * prologue of each tile); operands cross memory at their own. Of the lesser of the two a measured share is not
 * hidden. A grouped product, one product after another over the local experts, also pays a floor for each. Why so
 * few figures: they meet 514 and 183 measured products to a median of 5 and 2 %, and 108 grouped ones to 6 %
 * (tests/test_microbench.c); tables over all shapes do no better on shapes left out of them. */
#include "sim/cost.h"
#include <math.h>

/* How far the innermost loop runs: over inputs forward, outputs for data, rows of an expert for weights. */
static double depth(enum op_kind kind, const struct work *w)
{
    switch (kind) {
    case OP_DGRAD: case OP_GROUPED_DGRAD: return (double)w->cols;
    case OP_WGRAD: return (double)w->rows;
    case OP_GROUPED_WGRAD: return (double)w->rows / (double)w->experts;
    default: return (double)w->inner;
    }
}

double cost_gemm_s(const struct cost *c, enum op_kind kind, const struct work *w)
{
    const struct system *s = &c->job->system;
    const enum dtype t = cost_path(s, w->dtype);
    const int grouped = op_family(kind) == FAMILY_GROUPED;
    const double inner = depth(kind, w), ramp = inner > 0 ? 1 + s->ramp_gemm[t] / inner : 1;
    const double math_s = w->flop * ramp / (s->peak_flop_per_s[t] * (grouped ? s->eff_grouped : s->eff_gemm)[t]);
    const double hbm_s = (w->read_B + w->write_B) / cost_hbm(s, s->eff_gemm_bytes);
    const double exposed_s = (grouped ? s->exposed_grouped : s->exposed_gemm) * fmin(math_s, hbm_s);
    const double floor_s = s->kernel_s + (grouped ? s->expert_s * (double)w->experts : 0);
    return floor_s + fmax(math_s, hbm_s) + exposed_s;
}
