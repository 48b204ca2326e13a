/* Ops whose kind was measured on the system, as calibrate does on a CPU: every term on top of the others, since
 * one core computes and moves one thing after the other. What waking takes is apart: it lies before an op. */
#include "sim/cost.h"
#include <math.h>

/* Weights, gradients and states of all ranks, which share the last cache; ranks that hold the same each have
 * their own. */
static double for_ever_B(const struct job *j)
{
    const struct plan *p = &j->plan;
    const struct model_params n = model_params(&j->model);
    const double dense = (double)(n.total - n.expert) / (p->tp * p->pp), expert = (double)n.expert / (p->etp * p->ep * p->pp);
    const double states = 2 * dtype_B(DT_F32);
    return p->gpus * ((dense + expert) * 2 * dtype_B(DT_F32) + states * (dense / (p->dp * p->cp) + expert / p->edp));
}

/* Of bytes that are met once a step, what is no longer in the cache: nothing where all fits, all where half
 * does. */
static double cold(const struct job *j)
{
    const double cache_B = j->system.cache_B;
    return cache_B > 0 ? fmin(fmax(for_ever_B(j) / cache_B - 1, 0), 1) : 0;
}

static int is_once_a_step(const struct op *o)
{
    return op_family((enum op_kind)o->kind) == FAMILY_OPTIM ||
           (op_family((enum op_kind)o->kind) == FAMILY_COMM && o->stream == STREAM_DP);
}

double cost_units(const struct program *pr, const struct op *o, const struct work *w, const struct job *j)
{
    if (is_once_a_step(o)) return cold(j) * (w->wire_B > 0 ? w->wire_B : w->read_B + w->write_B);
    const double rows = (double)pr->buf[o->io.read[0]].rows, cols = pr->buf[o->io.read[0]].cols;
    switch (o->kind) {
    case OP_GROUPED_GEMM: case OP_GROUPED_DGRAD: case OP_GROUPED_WGRAD: return (double)w->experts;
    case OP_ATTN: case OP_ATTN_BWD: return w->cols > 0 ? w->flop * (double)w->experts / (double)w->cols : 0;
    case OP_NORM: case OP_NORM_BWD: return rows * cols / pr->buf[o->io.read[1]].cols;
    case OP_ROPE: case OP_ROPE_BWD: return (double)pr->buf[o->io.add[0]].rows * model_qk_dim(&j->model) / 2;
    default: return 0;
    }
}

/* Hops of a collective one behind the other, or messages. */
static double times(const struct cost *c, const struct op *o)
{
    const int n = c->place[o->group].size;
    return op_family((enum op_kind)o->kind) == FAMILY_COMM && n > 1 ? n - 1 : 1;
}

double cost_measured_s(const struct cost *c, const struct op *o, const struct work *w)
{
    const struct system_op *m = &c->job->system.op[o->kind];
    const enum op_family f = op_family((enum op_kind)o->kind);
    const double bytes = f == FAMILY_COMM || f == FAMILY_P2P ? w->wire_B : w->read_B + w->write_B;
    return m->floor_s * times(c, o) + (m->B_per_s > 0 ? bytes / m->B_per_s : 0) +
           (m->flop_per_s > 0 ? w->flop / m->flop_per_s : 0) +
           (m->each_s > 0 ? m->each_s * cost_units(c->pr, o, w, c->job) : 0);
}

int cost_is_measured(const struct cost *c, enum op_kind kind)
{
    const struct system_op *m = &c->job->system.op[kind];
    return m->floor_s > 0 || m->B_per_s > 0 || m->flop_per_s > 0 || m->each_s > 0;
}
