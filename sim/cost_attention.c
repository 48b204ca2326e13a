/* Attention: the FLOP of its causal half at an efficiency that depends on the size of heads, of the peak that
 * tensor products run at (bf16, or fp32 where the machine has no bf16), bounded by the bytes of its operands.
 * With few heads or short sequences the blocks of query rows do not fill the machine: the last rows of a
 * sequence attend to all of it, twice the mean, and one multiprocessor works off a block of them alone. What
 * prepares and converts (the row sums of o and do, dq from fp32) moves bytes before and after: a share of the
 * operands' time comes on top. */
#include "sim/cost.h"
#include <math.h>

static double efficiency(const struct system *s, const struct work *w, double heads, int backward)
{
    const double d = heads > 0 ? (double)w->cols / heads : 128;
    const double at128 = backward ? s->eff_attention_bwd : s->eff_attention_fwd;
    const double wide = backward ? s->attention_wide.bwd : s->attention_wide.fwd;
    return at128 * (d > 128 ? pow(128 / d, wide) : d > 0 && d < 128 ? pow(d / 128, s->attention_narrow) : 1);
}

double cost_attention_s(const struct cost *c, const struct work *w, int backward)
{
    const struct system *s = &c->job->system;
    const double heads = (double)w->experts, runs = (double)w->rows * heads;
    const double rate = cost_peak(s, DT_BF16) * efficiency(s, w, heads, backward);
    const double block = backward ? s->attention_rows.bwd : s->attention_rows.fwd;
    const double even_s = w->flop / rate;
    const double last_s = runs > 0 ? block * 2 * w->flop / runs / (rate / s->sms) : 0;
    const double hbm_s = (w->read_B + w->write_B) / cost_hbm(s, s->eff_memory);
    const double around_s = hbm_s * (backward ? s->attention_bytes.bwd : s->attention_bytes.fwd);
    return s->kernel_s + fmax(sqrt(even_s * even_s + last_s * last_s) + around_s, hbm_s);
}
