/* See peak.h. At a step's start an instance is alive if its micro-batch's passes so far used it and later ones
 * will, so counting micro-batches between their passes, chunk by chunk, counts all instances. */
#include "sim/peak.h"

/* Micro-batches of a chunk between forward and backward, and between the two halves of a split backward. */
struct between { int32_t forward, weight; };

static void between_step(struct between *b, const struct cost *c, const struct pass *p)
{
    const int split = c->job->plan.split_wgrad;
    switch (p->kind) {
    case PASS_FWD: b[p->chunk[0]].forward++; break;
    case PASS_BWD: case PASS_BWD_LAST: b[p->chunk[1]].forward--; break;
    case PASS_BWD_INPUT: b[p->chunk[1]].forward--, b[p->chunk[1]].weight++; break;
    case PASS_BWD_WEIGHT: b[p->chunk[1]].weight--; break;
    case PASS_FWD_BWD: b[p->chunk[0]].forward++, b[p->chunk[1]].forward--, b[p->chunk[1]].weight += split; break;
    default: break;
    }
}

static void count_crossing(int32_t *n, const struct cost *c, const struct between *b)
{
    const struct program *pr = c->pr;
    for (int i = 1; i < pr->n_buf; i++) {
        const int used = c->flow.used[i];
        if (pr->buf[i].keep != KEEP_MICRO || pr->buf[i].view || pr->buf[i].chunk < 0) continue;
        const struct between *k = &b[pr->buf[i].chunk];
        if (used & FLOW_FWD && used & (FLOW_BWD_INPUT | FLOW_BWD_WEIGHT)) n[i] += k->forward;
        if (used & (FLOW_FWD | FLOW_BWD_INPUT) && used & FLOW_BWD_WEIGHT) n[i] += k->weight;
    }
}

/* First use in the pass, by key, and the position behind the last; end 0: not used. */
struct use_range { int32_t first, end; };

/* `at` comes in as zeros. */
static void ranges_of(struct use_range *at, const struct cost *c, const struct pass *p)
{
    const struct flow *f = &c->flow;
    for (int pos = 0; pos < p->n; pos++) {
        const int op = c->pr->order[p->first + pos];
        for (int u = f->at[op]; u < f->at[op + 1]; u++) {
            struct use_range *r = &at[f->use[u].key];
            if (r->end == 0) r->first = pos;
            r->end = pos + 1;
        }
    }
}

/* Change of a key's instances at a position against the pass's start: -1, 0 or 1. */
static int change_at(const struct cost *c, enum pass_kind kind, int key, struct use_range r, int pos)
{
    int before, after;
    pass_around(&before, &after, c, kind, key & 1);
    const int used = c->flow.used[flow_root(key)], was = (used & before) != 0, will = (used & after) != 0;
    const int is = (was || r.first <= pos) && (will || pos < r.end);
    return is - was;
}

/* The position where the pass holds most. */
static int worst_position(const struct cost *c, const struct pass *p, const struct use_range *at, double *change_B)
{
    double now_B = 0, most_B = -1;
    int worst = 0;
    for (int key = 2; key < c->flow.n_key; key++) {
        if (at[key].end == 0) continue;
        const double bytes = flow_B(c->pr, key);
        for (int k = 0, was = 0; k < 3; k++) {
            const int pos = k == 0 ? 0 : k == 1 ? at[key].first : at[key].end;
            const int is = change_at(c, (enum pass_kind)p->kind, key, at[key], pos);
            change_B[pos] += bytes * (is - was);
            was = is;
        }
    }
    for (int pos = 0; pos < p->n; pos++) {
        now_B += change_B[pos];
        if (now_B <= most_B) continue;
        most_B = now_B;
        worst = pos;
    }
    return worst;
}

void peak_of(struct peak *k, struct arena *a, const struct cost *c, const struct pass_price *price, int stage)
{
    const struct program *pr = c->pr;
    const struct sim_peak s = sim_live(pr, price, stage);
    const struct pass *p = &pr->pass[pr->step[stage][s.step].pass];
    struct arena scratch = { 0 };
    struct between *b = arena_alloc(&scratch, (size_t)pr->n_chunk * sizeof *b);
    struct use_range *at = arena_alloc(&scratch, (size_t)c->flow.n_key * sizeof *at);
    double *change_B = arena_alloc(&scratch, ((size_t)p->n + 1) * sizeof *change_B);
    *k = (struct peak){ .kept_B = s.kept_B, .live_B = s.live_B, .step = s.step };
    k->n = arena_alloc(a, (size_t)pr->n_buf * sizeof *k->n);
    for (int i = 0; i < s.step; i++) between_step(b, c, &pr->pass[pr->step[stage][i].pass]);
    count_crossing(k->n, c, b);
    ranges_of(at, c, p);
    const int pos = worst_position(c, p, at, change_B);
    k->op = pr->order[p->first + pos];
    for (int key = 2; key < c->flow.n_key; key++)
        if (at[key].end > 0 && pr->buf[flow_root(key)].keep == KEEP_MICRO)
            k->n[flow_root(key)] += change_at(c, (enum pass_kind)p->kind, key, at[key], pos);
    arena_free(&scratch);
}

/* ---- on the host ---- */

double peak_host_B(const struct cost *c, int stage)
{
    const struct program *pr = c->pr;
    struct arena scratch = { 0 };
    struct between *b = arena_alloc(&scratch, (size_t)pr->n_chunk * sizeof *b);
    double *chunk_B = arena_alloc(&scratch, (size_t)pr->n_chunk * sizeof *chunk_B), kept_B = 0, most_B = 0;
    for (int i = 1; i < pr->n_buf; i++) {
        const struct buf *x = &pr->buf[i];
        if (x->place != PLACE_HOST || x->view) continue;
        if (x->keep == KEEP_MICRO) chunk_B[x->chunk] += (double)buf_B(x);
        else if (x->stage == stage) kept_B += (double)buf_B(x);
    }
    for (int k = 0; k < pr->n_step[stage]; k++) {
        const struct pass *p = &pr->pass[pr->step[stage][k].pass];
        double now_B = p->kind == PASS_FWD_BWD ? chunk_B[p->chunk[1]] : 0;      /* ends with the pass */
        between_step(b, c, p);
        for (int n = 0; n < pr->n_chunk; n++) now_B += chunk_B[n] * b[n].forward;
        if (now_B > most_B) most_B = now_B;
    }
    arena_free(&scratch);
    return kept_B + most_B;
}
