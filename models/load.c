/* Rows of routed buffers: even or by formula, or as a run recorded them. Rows that a trace does not have (it
 * was written by one rank per stage) are even. */
#include "models/load.h"
#include "models/spread.h"
#include <math.h>
#include <string.h>

/* Rows that an expert gets of each source rank. */
static double expert_rows(const struct job *j, double pick)
{
    const double rows = pick * (double)plan_tokens_sp(&j->plan);
    return j->plan.routing.policy == ROUTING_DROPLESS ? rows : fmin(rows, (double)plan_expert_rows(j));
}

static double *picks_of(struct arena *a, const struct job *j)
{
    double *pick = arena_alloc(a, (size_t)j->model.experts * sizeof *pick);
    share_picks(pick, j);
    return pick;
}

/* Whole rows: each expert's are what the running sum rounds up by, so members and experts add up. */
void load_members(int64_t *rows, int64_t *padded, const struct job *j, int pad, int times)
{
    const int ep = j->plan.ep, here = j->model.experts / ep, is_static = j->plan.routing.policy == ROUTING_PADDED;
    struct arena scratch = { 0 };
    const double *pick = picks_of(&scratch, j);
    double sum = 0;
    for (int m = 0; m < ep; m++) {
        rows[m] = 0;
        if (padded) padded[m] = 0;
        for (int e = m * here; e < (m + 1) * here; e++) {
            const int64_t before = llround(sum);
            sum += ep * (is_static ? (double)plan_expert_rows(j) : expert_rows(j, pick[e]));
            const int64_t n = llround(sum) - before;
            rows[m] += n;
            if (padded) padded[m] += buf_padded(n * times, 1, (int16_t)pad);
        }
    }
    arena_free(&scratch);
}

static int64_t most_of(const int64_t *rows, int n, int32_t *which)
{
    *which = 0;
    for (int i = 1; i < n; i++)
        if (rows[i] > rows[*which]) *which = i;
    return rows[*which];
}

struct load_spread load_spread(const struct job *j)
{
    struct load_spread s = { 0 };
    struct arena scratch = { 0 };
    if (j->model.experts < 1) return s;
    const double *pick = picks_of(&scratch, j);
    double kept = 0;
    for (int e = 0; e < j->model.experts; e++) kept += expert_rows(j, pick[e]);
    int64_t *rows = arena_alloc(&scratch, (size_t)j->plan.ep * sizeof *rows);
    load_members(rows, NULL, j, 1, 1);
    for (int m = 0; m < j->plan.ep; m++) s.mean += (double)rows[m] / j->plan.ep;
    s.most = (double)most_of(rows, j->plan.ep, &s.busiest);
    if (j->plan.routing.policy != ROUTING_DROPLESS)
        s.dropped = fmax(0, 1 - kept / ((double)plan_tokens_sp(&j->plan) * j->model.topk));
    arena_free(&scratch);
    return s;
}

double load_targets(const struct job *j, int targets)
{
    struct arena scratch = { 0 };
    if (j->plan.routing.kind == ROUTING_BALANCED) return spread_targets(&j->model, targets);
    const double hit = share_targets(j, picks_of(&scratch, j), targets, NULL);
    arena_free(&scratch);
    return hit;
}

int load_overflows(const struct load_spread *s, const struct job *j)
{
    return j->plan.capacity != 0 && s->most > (double)plan_capacity_rows(j, 0);
}

static int pad_of(const struct program *pr)
{
    for (int i = 1; i < pr->n_buf; i++)
        if (pr->buf[i].pad) return pr->buf[i].pad;
    return 0;
}

void load_apply(struct program *pr, const struct job *j)
{
    const struct plan *p = &j->plan;
    struct arena scratch = { 0 };
    int32_t which;
    if (j->model.experts < 1 || p->routing.kind == ROUTING_BALANCED || p->routing.policy == ROUTING_PADDED) return;
    int64_t *rows = arena_alloc(&scratch, (size_t)p->ep * sizeof *rows);
    int64_t *padded = arena_alloc(&scratch, (size_t)p->ep * sizeof *padded);
    const int pad = pad_of(pr);
    for (int at = 0; at < 2; at++) {
        load_members(rows, padded, j, pad ? pad : 1, at ? p->etp : 1);
        pr->even[at] = most_of(rows, p->ep, &which) * (at ? p->etp : 1);
        pr->busy.padded[at] = pad ? most_of(padded, p->ep, &which) : 0;
    }
    pr->targets = share_targets(j, picks_of(&scratch, j), p->ep, &pr->busy.targets) * p->etp;
    pr->busy.targets *= p->etp;
    for (int i = 1; i < pr->n_buf && p->capacity == 0; i++)
        if (pr->buf[i].size || pr->buf[i].pad) pr->buf[i].rows = program_rows(pr, i, pr->even);
    arena_free(&scratch);
}

/* ---- recorded ---- */

static int32_t *load_at(const struct load *l, int rank, int layer, int micro)
{
    return &l->rows[(((int64_t)rank * l->n_layer + layer) * l->n_micro + micro) * 2];
}

static int load_layers(const struct program *pr)
{
    int n = 0;
    for (int op = 1; op < pr->n_op; op++)
        if (pr->op[op].layer >= n) n = pr->op[op].layer + 1;
    return n;
}

enum err load_from_trace(struct load *l, struct arena *a, const struct program *pr, const struct job *j,
                         const struct trace *t, struct diag *d)
{
    struct load made = { .n_rank = j->plan.gpus, .n_layer = load_layers(pr), .n_micro = pr->n_micro };
    const size_t n = (size_t)made.n_rank * (size_t)made.n_layer * (size_t)made.n_micro * 2;
    TRY(trace_fits(t, pr, j, d));
    made.rows = arena_alloc(a, n * sizeof *made.rows);
    for (size_t k = 0; k < n; k++) made.rows[k] = -1;
    for (int64_t i = 0; i < t->n && t->span[i].iter == 0; i++) {
        const struct span *s = &t->span[i];
        const struct op *o = &pr->op[s->op];
        if (o->kind != OP_SIZES || o->layer < 0) continue;
        const struct step *step = &pr->step[fold_coord(&j->plan, s->rank).pp][s->step];
        const int micro = step->micro[o->half == HALF_BWD];
        if (micro >= 0) memcpy(load_at(&made, s->rank, o->layer, micro), s->rows, sizeof s->rows);
    }
    *l = made;
    return OK;
}

void load_rows(int64_t even[2], const struct load *l, const struct program *pr, int rank, int layer, int micro)
{
    even[0] = pr->even[0];
    even[1] = pr->even[1];
    if (!l || !l->rows || layer < 0 || layer >= l->n_layer || micro < 0) return;
    const int32_t *rows = load_at(l, rank, layer, micro);
    for (int at = 0; at < 2; at++)
        if (rows[at] >= 0) even[at] = rows[at];
}

void load_rows_stage(int64_t even[2], const struct load *l, const struct program *pr, const struct job *j,
                     int stage, int layer, int micro)
{
    load_rows(even, NULL, pr, 0, layer, micro);
    if (!l || !l->rows) return;
    int found = 0;
    for (int rank = 0; rank < l->n_rank; rank++) {
        int64_t rows[2];
        if (fold_coord(&j->plan, rank).pp != stage) continue;
        load_rows(rows, l, pr, rank, layer, micro);
        for (int at = 0; at < 2; at++)
            if (!found || rows[at] > even[at]) even[at] = rows[at];
        found = 1;
    }
}
