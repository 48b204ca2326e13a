/* What a product loses to the collective beside it. The collective's kernel holds `sms` multiprocessors for as long as it
 * runs; the ops that are marked with it (op.beside) have the rest. Measured: 20 of 132 held cost GEMMs about a fifth (arXiv
 * 2603.07685, section 4.2.2). */
#include "sim/cost.h"
#include <math.h>

/* Channels of NCCL, one block each: 16 of NVLS on Hopper (NVIDIA/nccl src/transport/nvls.cc), as many as TransformerEngine's
 * userbuffers take by default. */
enum { SMS_COLLECTIVE = 16 };

static double share(const struct cost *c, const struct op *o)
{
    const struct system *s = &c->job->system;
    if (s->sms <= 0) return 0;
    const int tokens = o->kind == OP_DISPATCH_TOKENS || o->kind == OP_COMBINE_TOKENS;
    const int sms = tokens ? cost_exchange_sms(c) : SMS_COLLECTIVE;
    return fmin(0.5, (double)sms / s->sms);
}

/* While the collective runs the ops get on at 1 - a: at its end they have done m (1 - a) of their d. */
static double slower(double a, double d_s, double m_s)
{
    return d_s > 0 ? fmin(1 / (1 - a), 1 + a * m_s / d_s) : 1;
}

void cost_beside(struct cost *c)
{
    const struct program *pr = c->pr;
    double *own_s = NULL, *sum_s = NULL;
    for (int i = 1; i < pr->n_op; i++) {
        const int m = pr->op[i].beside;
        if (!m) continue;
        if (!own_s) {
            own_s = arena_alloc(pr->arena, (size_t)pr->n_op * sizeof *own_s);
            sum_s = arena_alloc(pr->arena, (size_t)pr->n_op * sizeof *sum_s);
        }
        own_s[i] = cost_op_s(c, i, pr->even);
        sum_s[m] += own_s[i];
    }
    if (!own_s) return;
    for (int i = 1; i < pr->n_op; i++) {
        const int m = pr->op[i].beside;
        if (m) own_s[i] = slower(share(c, &pr->op[m]), sum_s[m], cost_op_s(c, m, pr->even));
    }
    c->slower = own_s;
}
