/* Rows of routed buffers: even by formula, or as a run recorded them. Rows that a trace does not have (it was
 * written by one rank per stage) are even. */
#include "models/load.h"
#include <string.h>

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
