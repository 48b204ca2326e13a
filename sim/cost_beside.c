/* What a product loses to the collective beside it. The collective's kernel holds `sms` multiprocessors for
 * as long as it runs; the ops that are marked with it (op.beside) have the rest. Measured: 20 of 132 held
 * cost GEMMs about a fifth (arXiv 2603.07685, section 4.2.2). */
#include "sim/cost.h"
#include <math.h>

/* Channels of NCCL, one block each: 16 of NVLS on Hopper (NVIDIA/nccl src/transport/nvls.cc), as many as
 * TransformerEngine's userbuffers take by default. */
enum { SMS_COLLECTIVE = 16 };

static double share(const struct cost *c, const struct op *o)
{
    const struct system *s = &c->job->system;
    if (s->sms <= 0) return 0;
    const int tokens = o->kind == OP_DISPATCH_TOKENS || o->kind == OP_COMBINE_TOKENS;
    const int sms = tokens ? cost_exchange_sms(c) : SMS_COLLECTIVE;
    return fmin(0.5, (double)sms / s->sms);
}

/* Pieces of a collective and of its product (TransformerEngine userbuffers, num_split; Megatron-Bridge
 * training/comm_overlap.py): the first gather has nothing to hide under, or the last scatter. */
enum { PIECES = 4 };

static double shown(double d_s, double m_s)
{
    return m_s > 0 ? fmax(1.0 / PIECES, 1 - d_s * (PIECES - 1) / PIECES / m_s) : 1;
}

static int is_pipelined(const struct op *o)
{
    return o->beside && op_family((enum op_kind)o->kind) == FAMILY_COMM;
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
    double *factor = arena_alloc(pr->arena, (size_t)pr->n_op * sizeof *factor);
    for (int i = 1; i < pr->n_op; i++) {
        const int m = pr->op[i].beside;
        if (is_pipelined(&pr->op[i])) factor[i] = shown(own_s[m], own_s[i]);
        else if (m) factor[i] = slower(share(c, &pr->op[m]), sum_s[m], cost_op_s(c, m, pr->even));
    }
    c->beside = factor;
}
