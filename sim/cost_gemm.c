/* Matrix products: a roofline with one efficiency per dtype for dense and one for grouped ones. The bytes of a
 * grouped product hold the weights of all local experts, which alone gives its fall-off at few tokens an expert
 * (measured grouped products on B200 follow it: 459 TFLOPS at 128 tokens an expert, 1100 at 2460, SimuMax
 * tables). */
#include "sim/cost.h"
#include <math.h>

double cost_gemm_s(const struct cost *c, const struct work *w, int grouped)
{
    const struct system *s = &c->job->system;
    const double eff = grouped ? s->eff_grouped[w->dtype] : s->eff_gemm[w->dtype];
    const double math_s = w->flop / (cost_peak(s, w->dtype) * eff);
    const double hbm_s = (w->read_B + w->write_B) / (s->hbm_B_per_s * s->eff_memory);
    return fmax(math_s, hbm_s) + s->kernel_s;
}
