/* Where a step went. Each stream is a row of segments (nothing, late issue, waiting, running); at every instant
 * the segment that stands first in the order of lines takes it. Streams are walked together, so it costs one
 * look at every segment. */
#include "sim/sim.h"
#include <math.h>
#include <string.h>

enum { LINE_OPTIMIZER, LINE_COMPUTE, LINE_GROUP, LINE_OFFLOAD = LINE_GROUP + GROUP_COUNT, LINE_HOST, LINE_WAIT, LINE_NONE,
       LINE_COUNT };

/* ---- one stream's segments ---- */

/* An op on its stream: when each of its segments ends (before ready, until issued, until met, running), and the last
 * one's line. */
enum { PART_NONE, PART_HOST, PART_WAIT, PART_RUN, PART_COUNT };
struct turn { double end_s[PART_COUNT]; int32_t line; };
/* A stream's turns that are not over, and the segment of the first where it is: its part, line and end. */
struct row { struct turn *turn; int32_t head, n, cap, part, line; double end_s; };

static int line_of_op(const struct op *o)
{
    switch (op_family((enum op_kind)o->kind)) {
    case FAMILY_OPTIM: return o->half == HALF_STEP ? LINE_OPTIMIZER : LINE_COMPUTE;
    case FAMILY_COMM: case FAMILY_P2P: return LINE_GROUP + o->group;
    case FAMILY_OFFLOAD: return LINE_OFFLOAD;
    default: return LINE_COMPUTE;
    }
}

static int is_group(int line)
{
    return line >= LINE_GROUP && line < LINE_OFFLOAD;
}

/* Shows the segment where the row is. Past its last turn a row is nothing until another comes. */
static void row_show(struct row *r)
{
    static const int8_t line[] = { LINE_NONE, LINE_HOST, LINE_WAIT };
    if (r->head == r->n) {
        r->line = LINE_NONE;
        r->end_s = INFINITY;
        return;
    }
    const struct turn *t = &r->turn[r->head];
    r->line = r->part == PART_RUN ? t->line : line[r->part];
    r->end_s = t->end_s[r->part];
}

/* On to the segment of an instant. */
static void row_seek(struct row *r, double now_s)
{
    while (r->end_s <= now_s) {
        if (++r->part == PART_COUNT) r->part = 0, r->head++;
        row_show(r);
    }
}

static void row_take(struct row *r, struct arena *a, const struct play_mark *m, int line)
{
    const int idle = r->head == r->n;
    if (r->n == r->cap && r->head > 0) {
        memmove(r->turn, r->turn + r->head, (size_t)(r->n - r->head) * sizeof *r->turn);
        r->n -= r->head;
        r->head = 0;
    }
    if (r->n == r->cap) {
        const int32_t more = r->cap ? 2 * r->cap : 64;
        r->turn = arena_grow(a, r->turn, (size_t)r->cap, (size_t)more, sizeof *r->turn);
        r->cap = more;
    }
    r->turn[r->n++] = (struct turn){ { m->ready_s, m->t0_s, m->meet_s, m->t1_s }, line };
    if (idle) row_show(r);
}

/* ---- all streams together ---- */

/* The account so far: every instant before now_s has its line. */
struct account {
    struct sim_lines *l;
    const struct cost *c;
    struct arena scratch;
    struct row row[STREAM_COUNT];
    double now_s, line_s[LINE_COUNT];
    int32_t *times;                 /* by op: how often it happened */
};

static void account_open(struct account *x, struct sim_lines *l, const struct cost *c)
{
    *l = (struct sim_lines){ 0 };
    *x = (struct account){ .l = l, .c = c };
    x->times = arena_alloc(&x->scratch, (size_t)c->pr->n_op * sizeof *x->times);
    for (int s = 0; s < STREAM_COUNT; s++) row_show(&x->row[s]);
}

/* The line of now_s and until when it stays so. Nothing comes before what computes, so while it runs other streams
 * are not even walked on. */
static double rows_until(int *line, struct account *x, double end_s)
{
    *line = LINE_NONE;
    for (int s = 0; s < STREAM_COUNT; s++) {
        struct row *r = &x->row[s];
        row_seek(r, x->now_s);
        if (r->end_s < end_s) end_s = r->end_s;
        if (r->line < *line) *line = r->line;
        if (r->line <= LINE_COMPUTE) break;
    }
    return end_s;
}

/* Books every instant up to `until_s`: no mark that comes later may begin before it. */
static void account_until(struct account *x, double until_s)
{
    while (x->now_s < until_s) {
        int line;
        const double next_s = rows_until(&line, x, until_s);
        x->line_s[line] += next_s - x->now_s;
        x->now_s = next_s;
    }
}

static void account_take(void *account, const struct play_mark *mark, int n, double final_s)
{
    struct account *x = account;
    const struct program *pr = x->c->pr;
    for (int i = 0; i < n; i++) {
        const struct op *o = &pr->op[mark[i].op];
        const double took_s = mark[i].t1_s - mark[i].meet_s;
        const int line = line_of_op(o);
        row_take(&x->row[o->stream], &x->scratch, &mark[i], line);
        x->times[mark[i].op]++;
        if (mark[i].t1_s > x->l->step_s) x->l->step_s = mark[i].t1_s;
        x->l->kind_n[o->kind]++;
        x->l->kind_s[o->kind] += took_s;
        if (is_group(line)) x->l->group_total_s[o->group] += took_s;
    }
    account_until(x, final_s);
}

static void account_close(struct account *x)
{
    struct sim_lines *l = x->l;
    const struct program *pr = x->c->pr;
    account_until(x, l->step_s);
    l->optimizer_s = x->line_s[LINE_OPTIMIZER];
    l->compute_s = x->line_s[LINE_COMPUTE];
    memcpy(l->exposed_s, &x->line_s[LINE_GROUP], sizeof l->exposed_s);
    l->offload_s = x->line_s[LINE_OFFLOAD];
    l->host_s = x->line_s[LINE_HOST];
    l->bubble_s = x->line_s[LINE_WAIT];
    l->unaccounted_s = x->line_s[LINE_NONE];
    for (int i = 1; i < pr->n_op; i++) {
        const struct op *o = &pr->op[i];
        if (x->times[i] == 0 || !is_group(line_of_op(o)) || o->kind == OP_RECV) continue;
        l->group_B[o->group] += x->times[i] * op_work(pr, o, pr->even).wire_B;
    }
    arena_free(&x->scratch);
}

void sim_account_replay(struct sim_lines *l, struct play *p, int stage)
{
    struct account x;
    account_open(&x, l, p->c);
    play_replay(p, stage, account_take, &x);
    account_close(&x);
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
    struct account x;
    account_open(&x, l, c);
    account_take(&x, mark, n, 0);
    account_close(&x);
    arena_free(&scratch);
}
