/* Attention: causal FLOP at one efficiency forward and one backward, of the peak that tensor products run at
 * (bf16, or fp32 where the machine has no bf16), bounded by the bytes of its operands. */
#include "sim/cost.h"
#include <math.h>

double cost_attention_s(const struct cost *c, const struct work *w, int backward)
{
    const struct system *s = &c->job->system;
    const double eff = backward ? s->eff_attention_bwd : s->eff_attention_fwd;
    const double math_s = w->flop / (cost_peak(s, DT_BF16) * eff);
    const double hbm_s = (w->read_B + w->write_B) / (s->hbm_B_per_s * s->eff_memory);
    return fmax(math_s, hbm_s) + s->kernel_s;
}
