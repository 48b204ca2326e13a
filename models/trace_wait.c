/* How long a member of a collective waited for its peers: one function for predicted and
 * measured traces. Members inside a stage meet at the same (step, op); SEND and RECV at their mates;
 * collectives of WORLD and EMBED, which span stages, at the same ordinal. Members whose spans are not in the
 * trace (one rank per stage) are passed over. */
#include "models/trace.h"
#include <string.h>

struct meet {                           /* what is needed to find a span's peers */
    const struct trace *t;
    const struct program *pr;
    const struct job *j;
    const struct unroll *u;
    struct arena *a;
    int32_t **start;                    /* by stage and step: the step's first item */
    int32_t **met[2];                   /* by stage and ordinal: the item of a WORLD, of an EMBED collective */
    int32_t *n_met[2];
    int32_t *rank;                      /* room for the largest group */
};

static int trace_wait_span(const struct op *o)
{
    if (op_family((enum op_kind)o->kind) != FAMILY_COMM) return -1;
    return o->group == GROUP_WORLD ? 0 : o->group == GROUP_EMBED ? 1 : -1;
}

static void trace_wait_open(struct meet *m)
{
    const int n_stage = m->pr->n_stage;
    m->rank = arena_alloc(m->a, (size_t)m->j->plan.gpus * sizeof *m->rank);
    m->start = arena_alloc(m->a, (size_t)n_stage * sizeof *m->start);
    for (int k = 0; k < 2; k++) {
        m->met[k] = arena_alloc(m->a, (size_t)n_stage * sizeof *m->met[k]);
        m->n_met[k] = arena_alloc(m->a, (size_t)n_stage * sizeof *m->n_met[k]);
    }
    for (int s = 0; s < n_stage; s++) {
        const struct unroll *u = &m->u[s];
        m->start[s] = arena_alloc(m->a, (size_t)m->pr->n_step[s] * sizeof *m->start[s]);
        for (int k = 0; k < 2; k++) m->met[k][s] = arena_alloc(m->a, (size_t)u->n_item * sizeof *m->met[k][s]);
        for (int i = u->n_item - 1; i >= 0; i--) m->start[s][u->item[i].step] = i;
        for (int i = 0; i < u->n_item; i++) {
            const int k = trace_wait_span(&m->pr->op[u->item[i].op]);
            if (k >= 0) m->met[k][s][m->n_met[k][s]++] = i;
        }
    }
}

/* The item of a span, or -1 when the program has none. */
static int trace_wait_item(const struct meet *m, int stage, const struct span *s)
{
    const struct unroll *u = &m->u[stage];
    if (s->step >= m->pr->n_step[stage]) return -1;
    for (int i = m->start[stage][s->step]; i < u->n_item && u->item[i].step == s->step; i++)
        if (u->item[i].op == s->op) return i;
    return -1;
}

/* A peer's index in the trace given its stage's item, or -1. */
static int64_t trace_wait_find(const struct meet *m, const struct span *s, int rank, int stage, int item)
{
    const struct item *i = &m->u[stage].item[item];
    const struct span *found = trace_find(m->t, s->iter, rank, i->step, i->op);
    return found ? found - m->t->span : -1;
}

/* Spans that meet `s` (itself among them) into `peer`; returns how many. */
static int trace_wait_peers(const struct meet *m, const struct span *s, int64_t *peer)
{
    const struct op *o = &m->pr->op[s->op];
    const int stage = fold_coord(&m->j->plan, s->rank).pp, own = trace_wait_item(m, stage, s);
    const int size = fold_size(m->j, (enum group)o->group), span = trace_wait_span(o);
    const int p2p = op_family((enum op_kind)o->kind) == FAMILY_P2P;
    int n = 0;
    if (own < 0 || size < 2) return 0;
    fold_members(m->j, (enum group)o->group, s->rank, m->rank);
    for (int k = 0; k < size; k++) {
        const int rank = m->rank[k], at = fold_coord(&m->j->plan, rank).pp, mate = m->u[stage].item[own].mate;
        int item = own;
        if (rank != s->rank && p2p) item = mate;
        if (span >= 0) item = mate < m->n_met[span][at] ? m->met[span][at][mate] : -1;
        const int64_t found = item < 0 ? -1 : trace_wait_find(m, s, rank, at, item);
        if (found >= 0) peer[n++] = found;
    }
    return n;
}

static int trace_wait_meets(const struct op *o)
{
    const enum op_family f = op_family((enum op_kind)o->kind);
    return f == FAMILY_COMM || f == FAMILY_P2P;
}

void trace_waits(int64_t *wait_ns, const struct trace *t, const struct program *pr, const struct job *j,
                 const struct unroll *u)
{
    struct arena a = { 0 };
    struct meet m = { .t = t, .pr = pr, .j = j, .u = u, .a = &a };
    int64_t *peer = arena_alloc(&a, (size_t)j->plan.gpus * sizeof *peer + 2 * sizeof *peer);
    trace_wait_open(&m);
    for (int64_t i = 0; i < t->n; i++) wait_ns[i] = -1;
    for (int64_t i = 0; i < t->n; i++) {
        if (wait_ns[i] >= 0) continue;                          /* its group has been done */
        wait_ns[i] = 0;
        if (t->span[i].op >= pr->n_op || !trace_wait_meets(&pr->op[t->span[i].op])) continue;
        int64_t latest_ns = t->span[i].t0_ns;
        const int n = trace_wait_peers(&m, &t->span[i], peer);
        for (int k = 0; k < n; k++)
            if (t->span[peer[k]].t0_ns > latest_ns) latest_ns = t->span[peer[k]].t0_ns;
        for (int k = 0; k < n; k++) wait_ns[peer[k]] = latest_ns - t->span[peer[k]].t0_ns;
    }
    arena_free(&a);
}
