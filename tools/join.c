/* A merge of sorted spans. Keys are four integers and the same for both interpreters, so nothing is guessed: a key
 * that one side lacks is reported, never matched to a neighbour. */
#include "tools/join.h"
#include <stdlib.h>
#include <string.h>

struct trace join_iteration(struct arena *a, const struct trace *t, int iter)
{
    struct trace one = { .head = t->head };
    int64_t first = 0, start_ns = INT64_MAX;
    while (first < t->n && t->span[first].iter < iter) first++;     /* sorted: an iteration is one run of spans */
    while (first + one.n < t->n && t->span[first + one.n].iter == iter) one.n++;
    one.head.n_iter = 1;
    one.span = arena_alloc(a, (size_t)(one.n + 1) * sizeof *one.span);
    if (one.n) memcpy(one.span, t->span + first, (size_t)one.n * sizeof *one.span);
    for (int64_t i = 0; i < one.n; i++)
        if (one.span[i].t0_ns < start_ns) start_ns = one.span[i].t0_ns;
    for (int64_t i = 0; i < one.n; i++) {
        one.span[i].iter = 0;
        one.span[i].t0_ns -= start_ns;
        one.span[i].t1_ns -= start_ns;
    }
    return one;
}

double join_length_s(const struct trace *t)
{
    int64_t t0_ns = INT64_MAX, t1_ns = 0;
    for (int64_t i = 0; i < t->n; i++) {
        if (t->span[i].t0_ns < t0_ns) t0_ns = t->span[i].t0_ns;
        if (t->span[i].t1_ns > t1_ns) t1_ns = t->span[i].t1_ns;
    }
    return t->n ? 1e-9 * (double)(t1_ns - t0_ns) : 0;
}

struct length { double s; int iter; };

static int by_length(const void *a, const void *b)
{
    const struct length *x = a, *y = b;
    if (x->s != y->s) return x->s < y->s ? -1 : 1;
    return (x->iter > y->iter) - (x->iter < y->iter);
}

int join_median_iteration(struct arena *a, const struct trace *t)
{
    const int n = t->head.n_iter, cold = n > 1;
    struct length *length = arena_alloc(a, (size_t)(n + 1) * sizeof *length);
    for (int i = cold; i < n; i++) {
        const struct trace one = join_iteration(a, t, i);
        length[i - cold] = (struct length){ join_length_s(&one), i };
    }
    qsort(length, (size_t)(n - cold), sizeof *length, by_length);
    return length[(n - cold) / 2].iter;
}

int join_last_rank(const struct trace *t)
{
    int64_t last = 0;
    for (int64_t i = 1; i < t->n; i++)
        if (t->span[i].t1_ns > t->span[last].t1_ns) last = i;
    return t->n ? t->span[last].rank : 0;
}

/* Keys are rank, step, op: iter is 0 on all sides. */
static int by_key(const struct span *a, const struct span *b)
{
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    return (a->op > b->op) - (a->op < b->op);
}

static void sum_kinds(struct join *to, struct arena *a, enum join_side s, const struct trace *t,
                      const struct program *pr, const struct job *j, const struct unroll *u)
{
    int64_t *wait_ns = arena_alloc(a, (size_t)(t->n + 1) * sizeof *wait_ns);
    trace_waits(wait_ns, t, pr, j, u);
    for (int64_t i = 0; i < t->n; i++) {
        const struct span *x = &t->span[i];
        struct join_kind *k = &to->kind[pr->op[x->op].kind];
        k->count += s == JOIN_MEASURED;
        k->wait_s[s] += 1e-9 * (double)wait_ns[i];
        k->work_s[s] += 1e-9 * (double)(x->t1_ns - x->t0_ns - wait_ns[i]);
    }
}

/* Of the keys that come next on the three sides, the first; and which sides have it. */
static const struct span *first_of(int here[JOIN_SIDES], const struct trace *const side[JOIN_SIDES],
                                   const int64_t at[JOIN_SIDES])
{
    const struct span *first = NULL;
    for (int s = 0; s < JOIN_SIDES; s++)
        if (at[s] < side[s]->n && (!first || by_key(&side[s]->span[at[s]], first) < 0))
            first = &side[s]->span[at[s]];
    for (int s = 0; s < JOIN_SIDES; s++) here[s] = at[s] < side[s]->n && by_key(&side[s]->span[at[s]], first) == 0;
    return first;
}

void join_traces(struct join *to, struct arena *a, const struct trace *const side[JOIN_SIDES],
                 const struct program *pr, const struct job *j, const struct unroll *u)
{
    int64_t at[JOIN_SIDES] = { 0 };
    *to = (struct join){ 0 };
    for (int s = 0; s < JOIN_SIDES; s++) to->spans[s] = side[s]->n;
    for (;;) {
        int here[JOIN_SIDES];
        const struct span *first = first_of(here, side, at);
        if (!first) break;
        const int all = here[JOIN_EVEN] && here[JOIN_LOAD] && here[JOIN_MEASURED];
        if (!all && !to->is_lost) to->lost = *first, to->is_lost = 1;
        to->joined += all;
        for (int s = 0; s < JOIN_SIDES; s++) at[s] += here[s];
    }
    for (int s = 0; s < JOIN_SIDES && !to->is_lost; s++) sum_kinds(to, a, (enum join_side)s, side[s], pr, j, u);
}
