/* Where a step went. Each stream is a row of segments (nothing, late issue, waiting, running); at every instant
 * the segment that stands first in the order of lines takes it. Streams are walked together, so it costs one
 * look at every segment. */
#include "sim/sim.h"
#include <math.h>
#include <string.h>

enum { LINE_OPTIMIZER, LINE_COMPUTE, LINE_GROUP, LINE_HOST = LINE_GROUP + GROUP_COUNT, LINE_WAIT, LINE_NONE,
       LINE_COUNT };

/* ---- one stream's segments ---- */

/* A stream's place in its list: mark `at`, of it segment `part` (before ready, until issued, until met, running). */
struct row { const int32_t *at; int32_t n, part, line; double end_s; };

static int line_of_op(const struct op *o)
{
    switch (op_family((enum op_kind)o->kind)) {
    case FAMILY_OPTIM: return LINE_OPTIMIZER;
    case FAMILY_COMM: case FAMILY_P2P: return LINE_GROUP + o->group;
    default: return LINE_COMPUTE;
    }
}

/* The next segment of the row. Past its last mark a row is nothing for ever. */
static void row_next(struct row *r, const struct program *pr, const struct play_mark *mark)
{
    if (r->part == 4) r->part = 0, r->at++, r->n--;
    if (r->n == 0) {
        r->line = LINE_NONE;
        r->end_s = INFINITY;
        return;
    }
    const struct play_mark *m = &mark[*r->at];
    switch (r->part++) {
    case 0: r->line = LINE_NONE, r->end_s = m->ready_s; break;
    case 1: r->line = LINE_HOST, r->end_s = m->t0_s; break;
    case 2: r->line = LINE_WAIT, r->end_s = m->meet_s; break;
    default: r->line = line_of_op(&pr->op[m->op]), r->end_s = m->t1_s; break;
    }
}

/* ---- all streams together ---- */

struct rows { struct row row[STREAM_COUNT]; int32_t n; };

/* Streams that have ops, compute first; `list` becomes their marks, stream by stream. */
static void rows_open(struct rows *x, int32_t *list, const struct program *pr, const struct play_mark *mark, int n)
{
    int32_t count[STREAM_COUNT] = { 0 }, *fill[STREAM_COUNT];
    x->n = 0;
    for (int i = 0; i < n; i++) count[pr->op[mark[i].op].stream]++;
    for (int s = 0; s < STREAM_COUNT; list += count[s++]) {
        fill[s] = list;
        if (count[s]) x->row[x->n++] = (struct row){ .at = list, .n = count[s] };
    }
    for (int i = 0; i < n; i++) *fill[pr->op[mark[i].op].stream]++ = i;
    for (int i = 0; i < x->n; i++) row_next(&x->row[i], pr, mark);
}

static void rows_pass(struct rows *x, const struct program *pr, const struct play_mark *mark, double t_s)
{
    for (int i = 0; i < x->n; i++)
        while (x->row[i].end_s <= t_s) row_next(&x->row[i], pr, mark);
}

/* Nothing comes before what computes, so other streams' segments need no look while it runs. */
static double rows_until(int *line, const struct rows *x, double end_s)
{
    *line = LINE_NONE;
    for (int i = 0; i < x->n; i++) {
        if (x->row[i].line <= LINE_COMPUTE) {
            *line = x->row[i].line;
            return x->row[i].end_s;
        }
        if (x->row[i].line < *line) *line = x->row[i].line;
        end_s = fmin(end_s, x->row[i].end_s);
    }
    return end_s;
}

static void account_instants(double line_s[LINE_COUNT], const struct program *pr,
                             const struct play_mark *mark, int n, double end_s)
{
    struct arena scratch = { 0 };
    struct rows x;
    rows_open(&x, arena_alloc(&scratch, (size_t)n * sizeof(int32_t)), pr, mark, n);
    for (double now_s = 0; now_s < end_s;) {
        int line;
        rows_pass(&x, pr, mark, now_s);
        const double next_s = rows_until(&line, &x, end_s);
        line_s[line] += next_s - now_s;
        now_s = next_s;
    }
    arena_free(&scratch);
}

/* ---- sums ---- */

static void account_ops(struct sim_lines *l, const struct cost *c, const struct play_mark *mark, int n)
{
    const struct program *pr = c->pr;
    struct arena scratch = { 0 };
    int32_t *times = arena_alloc(&scratch, (size_t)pr->n_op * sizeof *times);
    for (int i = 0; i < n; i++) {
        const struct op *o = &pr->op[mark[i].op];
        const double took_s = mark[i].t1_s - mark[i].meet_s;
        times[mark[i].op]++;
        l->kind_n[o->kind]++;
        l->kind_s[o->kind] += took_s;
        if (line_of_op(o) >= LINE_GROUP) l->group_total_s[o->group] += took_s;
    }
    for (int i = 1; i < pr->n_op; i++) {
        const struct op *o = &pr->op[i];
        if (times[i] == 0 || line_of_op(o) < LINE_GROUP || o->kind == OP_RECV) continue;
        l->group_B[o->group] += times[i] * op_work(pr, o, pr->even).wire_B;
    }
    arena_free(&scratch);
}

void sim_account_marks(struct sim_lines *l, const struct cost *c, const struct play_mark *mark, int n)
{
    double line_s[LINE_COUNT] = { 0 };
    *l = (struct sim_lines){ 0 };
    for (int i = 0; i < n; i++) l->step_s = fmax(l->step_s, mark[i].t1_s);
    account_instants(line_s, c->pr, mark, n, l->step_s);
    l->optimizer_s = line_s[LINE_OPTIMIZER];
    l->compute_s = line_s[LINE_COMPUTE];
    memcpy(l->exposed_s, &line_s[LINE_GROUP], sizeof l->exposed_s);
    l->host_s = line_s[LINE_HOST];
    l->bubble_s = line_s[LINE_WAIT];
    l->unaccounted_s = line_s[LINE_NONE];
    account_ops(l, c, mark, n);
}

/* ---- from a trace ---- */

/* Order of the key of a measured or predicted first step: below, at or above (rank, step, op). */
static int span_compare(const struct span *s, int rank, int step, int op)
{
    if (s->iter) return s->iter;
    if (s->rank != rank) return s->rank - rank;
    return s->step != step ? s->step - step : s->op - op;
}

/* The span of a key in a sorted trace, or -1. */
static int64_t span_find(const struct trace *t, int rank, int step, int op)
{
    int64_t lo = 0, hi = t->n;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (span_compare(&t->span[mid], rank, step, op) < 0) lo = mid + 1;
        else hi = mid;
    }
    return lo < t->n && span_compare(&t->span[lo], rank, step, op) == 0 ? lo : -1;
}

/* The stage's rank in the trace that finishes last, -1: none. */
static int last_rank(const struct trace *t, const struct job *j, int stage)
{
    int64_t last_ns = -1;
    int rank = -1;
    for (int64_t i = 0; i < t->n; i++) {
        const struct span *s = &t->span[i];
        if (s->iter || s->t1_ns <= last_ns || fold_coord(&j->plan, s->rank).pp != stage) continue;
        last_ns = s->t1_ns;
        rank = s->rank;
    }
    return rank;
}

/* Items that the trace lacks are left out. */
static int marks_from_trace(struct play_mark *mark, const struct cost *c, const struct unroll *u,
                            const struct trace *t, const int64_t *wait_ns, int rank)
{
    struct arena scratch = { 0 };
    double *done_s = arena_alloc(&scratch, (size_t)u->n_item * sizeof *done_s), free_s[STREAM_COUNT] = { 0 };
    int n = 0;
    for (int i = 0; i < u->n_item; i++) {
        const struct item *it = &u->item[i];
        const int64_t at = span_find(t, rank, it->step, it->op);
        if (at < 0) continue;
        const struct span *s = &t->span[at];
        double *stream_s = &free_s[c->pr->op[it->op].stream];
        struct play_mark *m = &mark[n++];
        *m = (struct play_mark){ it->step, it->op, it->micro, *stream_s, 1e-9 * (double)s->t0_ns,
                                 1e-9 * (double)(s->t0_ns + wait_ns[at]), 1e-9 * (double)s->t1_ns };
        for (int k = 0; k < it->n_dep; k++) m->ready_s = fmax(m->ready_s, done_s[u->dep[it->dep + k]]);
        m->ready_s = fmin(m->ready_s, m->t0_s);
        done_s[i] = *stream_s = m->t1_s;
    }
    arena_free(&scratch);
    return n;
}

void sim_account(struct sim_lines *l, const struct cost *c, const struct unroll *u, const struct trace *t, int stage)
{
    struct arena scratch = { 0 };
    const int rank = last_rank(t, c->job, stage);
    int64_t *wait_ns = arena_alloc(&scratch, (size_t)t->n * sizeof *wait_ns);
    struct play_mark *mark = arena_alloc(&scratch, (size_t)u[stage].n_item * sizeof *mark);
    trace_waits(wait_ns, t, c->pr, c->job, u);
    const int n = marks_from_trace(mark, c, &u[stage], t, wait_ns, rank);
    sim_account_marks(l, c, mark, n);
    arena_free(&scratch);
}
