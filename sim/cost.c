/* One op to its family's formula, and the host's share. */
#include "sim/cost.h"
#include <math.h>

/* An etp group that spans several domains takes a token to each. */
static double domain_targets(const struct cost *c, const struct place *p)
{
    const int etp = c->job->plan.etp, ep = c->job->plan.ep, domains = p->domains < ep ? p->domains : ep;
    if (c->job->model.experts < 1 || p->domains < 1) return 1;
    if (etp > p->in_domain) return fmin(p->domains, c->pr->targets / p->in_domain);
    return load_targets(c->job, domains);
}

void cost_init(struct cost *c, const struct program *pr, const struct job *j)
{
    *c = (struct cost){ .pr = pr, .job = j };
    for (int g = 0; g < GROUP_COUNT; g++) c->place[g] = place_of(j, (enum group)g);
    c->domain_targets = domain_targets(c, &c->place[GROUP_TPEP]);
    flow_init(&c->flow, pr->arena, pr);
    cost_wake(c);
    cost_beside(c);
}

static int launches(const struct cost *c, const struct op *o)
{
    if (o->kind == OP_HOLD) return 0;
    return op_family((enum op_kind)o->kind) != FAMILY_COMM || c->place[o->group].size > 1;
}

int cost_runs(const struct cost *c, int op)
{
    return launches(c, &c->pr->op[op]);
}

/* Its local experts, of an op that works on each. */
static double experts_of(const struct cost *c, const struct op *o)
{
    const int grouped = op_family((enum op_kind)o->kind) == FAMILY_GROUPED || c->pr->buf[o->io.read[0]].groups > 0;
    return grouped ? (double)c->job->model.experts / c->job->plan.ep : 0;
}

double cost_kernels(const struct cost *c, int op)
{
    const struct op *o = &c->pr->op[op];
    const struct stack_launch *l = &c->job->stack.launch[o->kind];
    return l->kernels > 0 ? l->kernels + (l->each > 0 ? l->each * experts_of(c, o) : 0) : 1;
}

/* Kernels that follow each other in one op; grouped products have a floor of their own. */
static double more_kernels_s(const struct cost *c, int op)
{
    switch (op_family((enum op_kind)c->pr->op[op].kind)) {
    case FAMILY_MEMORY: case FAMILY_OPTIM: case FAMILY_HOST:
        return (fmax(cost_kernels(c, op), 1) - 1) * c->job->system.kernel_s;
    default: return 0;
    }
}

static double operand_B(const struct program *pr, const struct op *o)
{
    double bytes = 0;
    for (int i = 0; i < OP_WRITES; i++)
        if (o->io.write[i]) bytes += (double)buf_B(&pr->buf[o->io.write[i]]);
    return bytes;
}

static double alone_s(const struct cost *c, int op, const int64_t even[2])
{
    const struct op *o = &c->pr->op[op];
    if (!launches(c, o)) return 0;
    const struct work w = op_work(c->pr, o, even);
    if (cost_is_measured(c, (enum op_kind)o->kind)) return cost_measured_s(c, o, &w);
    switch (op_family((enum op_kind)o->kind)) {
    case FAMILY_GEMM: case FAMILY_GROUPED: return cost_gemm_s(c, (enum op_kind)o->kind, &w);
    case FAMILY_ATTENTION: return cost_attention_s(c, &w, o->kind == OP_ATTN_BWD);
    case FAMILY_COMM: case FAMILY_P2P: return cost_comm_s(c, o, &w);
    case FAMILY_HOST: return cost_host_s(c, operand_B(c->pr, o)) + more_kernels_s(c, op);
    case FAMILY_OPTIM:
        if (o->kind == OP_HOST_ADAMW) return (w.read_B + w.write_B) / c->job->system.host_update_B_per_s;
        return cost_memory_s(c, (enum op_kind)o->kind, &w) + more_kernels_s(c, op);
    case FAMILY_OFFLOAD: return cost_host_s(c, w.write_B);
    default: return cost_memory_s(c, (enum op_kind)o->kind, &w) + more_kernels_s(c, op);
    }
}

double cost_op_s(const struct cost *c, int op, const int64_t even[2])
{
    if (c->given_s) return c->given_s[op];
    return cost_wake_s(c, op) + alone_s(c, op, even) * (c->beside && c->pr->op[op].beside ? c->beside[op] : 1);
}

static double host_s(const struct system *s, double kernels, double calls)
{
    return kernels * s->issue_s + calls * (s->call_s > 0 ? s->call_s : s->issue_s);
}

/* The first op of a step, which zeroes the metric, comes after all that a framework does between steps. */
static double before_s(const struct cost *c, const struct op *o)
{
    return o->kind == OP_ZERO && c->pr->buf[o->io.write[0]].keep == KEEP_METRIC ? c->job->stack.step_s : 0;
}

/* In a graph only its launch counts; what the host waits for stays outside it: a copy, and the wait. */
double cost_issue_s(const struct cost *c, int op)
{
    const struct op *o = &c->pr->op[op];
    const struct system *s = &c->job->system;
    const struct stack *t = &c->job->stack;
    const struct stack_launch *l = &t->launch[o->kind];
    if (c->given_issue_s) return c->given_issue_s[op];
    if (!launches(c, o)) return 0;
    if (o->graph == OP_GRAPH_FIRST)
        return (s->graph_s > 0 ? s->graph_s : s->issue_s) + host_s(s, t->replay.kernels, t->replay.calls);
    if (o->graph) return o->flags & OP_HOST_READS ? host_s(s, 1, 1) : 0;
    if (l->kernels == 0) return s->issue_s * t->issue + before_s(c, o);
    return before_s(c, o) + host_s(s, cost_kernels(c, op), l->calls + (l->each_call > 0 ? l->each_call * experts_of(c, o) : 0));
}

double *cost_all_s(const struct cost *c, struct arena *a)
{
    double *op_s = arena_alloc(a, (size_t)c->pr->n_op * sizeof *op_s);
    for (int i = 1; i < c->pr->n_op; i++) op_s[i] = cost_op_s(c, i, c->pr->even);
    return op_s;
}

static int outside(double flop, double from, double to)
{
    return flop > 0 && (flop < from || flop > to);
}

int cost_off_grid(const struct cost *c, int op)
{
    const struct op *o = &c->pr->op[op];
    const struct system *s = &c->job->system;
    switch (op_family((enum op_kind)o->kind)) {
    case FAMILY_GEMM: return outside(op_work(c->pr, o, c->pr->even).flop, s->gemm_flop.from, s->gemm_flop.to);
    case FAMILY_GROUPED:
        return outside(op_work(c->pr, o, c->pr->even).flop, s->grouped_flop.from, s->grouped_flop.to);
    case FAMILY_ATTENTION:
        return outside(op_work(c->pr, o, c->pr->even).flop, s->attention_flop.from, s->attention_flop.to);
    default: return 0;
    }
}

enum dtype cost_path(const struct system *s, enum dtype t)
{
    const enum dtype path[] = { dtype_peak(t), DT_FP8, DT_BF16 };
    for (int i = t == DT_F32 ? LEN(path) : path[0] == DT_BF16 ? 2 : 0; i < LEN(path); i++)
        if (s->peak_flop_per_s[path[i]] > 0) return path[i];
    return DT_F32;
}

double cost_peak(const struct system *s, enum dtype t)
{
    return s->peak_flop_per_s[cost_path(s, t)];
}

double cost_hbm(const struct system *s, double eff)
{
    return s->hbm_B_per_s * (eff > 0 ? eff : s->eff_memory);
}
