/* Offsets: which lives share bytes. Largest first, each at the lowest gap among those already placed that may be alive
 * together with it (core.md's measurements: within 0.15-2 % of the live bytes, where birth order costs 3-13 % more). Two
 * lives exclude each other in time only if every use of one has surely finished before the first use of the other, by
 * streams and deps; list order proves nothing.
 * To be fast, placed lives are kept sorted by address in one list per block of steps: the lead window proves that lives
 * of distant steps never meet, so a query looks only at the lists of its own steps. */
#include "models/unroll.h"
#include <stdlib.h>

enum { ALIGN_B = 64, BLOCK_STEPS = 4 };

struct list { int32_t n, room, *life; };        /* placed lives that touch a block of steps, by offset */

struct planner {
    struct unroll *u;
    struct arena *a;
    const struct program *pr;
    struct list *block;
    int32_t *cursor;                            /* by block: where a query stands in its list */
};

static int64_t unroll_plan_size(const struct life *l)
{
    return (l->bytes + ALIGN_B - 1) / ALIGN_B * ALIGN_B;
}

/* Blocks of steps in which other lives may meet `l`: from its first step to `lead` behind its last. */
static int unroll_plan_from(const struct planner *p, const struct life *l)
{
    return p->u->item[l->first].step / BLOCK_STEPS;
}

static int unroll_plan_to(const struct planner *p, const struct life *l)
{
    const int n = p->pr->n_step[p->u->stage], last = p->u->item[l->last_item].step + p->pr->lead;
    return (last < n ? last : n - 1) / BLOCK_STEPS;
}

/* Inserts a placed life into one list, behind those of the same offset. */
static void unroll_plan_insert(struct planner *p, struct list *at, int life)
{
    const struct life *all = p->u->life;
    if (at->n == at->room) {
        const int32_t more = at->room ? 2 * at->room : 64;
        at->life = arena_grow(p->a, at->life, (size_t)at->room, (size_t)more, sizeof *at->life);
        at->room = more;
    }
    int k = at->n++;
    for (; k > 0 && all[at->life[k - 1]].offset > all[life].offset; k--) at->life[k] = at->life[k - 1];
    at->life[k] = life;
}

/* The next placed life by offset over the lists from .. to, or -1. One that stands in several lists comes several times. */
static int unroll_plan_next(struct planner *p, int from, int to)
{
    int best = -1, at = -1;
    for (int b = from; b <= to; b++) {
        const struct list *list = &p->block[b];
        if (p->cursor[b] == list->n) continue;
        const int k = list->life[p->cursor[b]];
        if (best < 0 || p->u->life[k].offset < p->u->life[best].offset) {
            best = k;
            at = b;
        }
    }
    if (at >= 0) p->cursor[at]++;
    return best;
}

/* The lowest gap from `base_B` on that holds `l`. */
static int64_t unroll_plan_gap(struct planner *p, const struct life *l, int64_t base_B)
{
    const int from = unroll_plan_from(p, l), to = unroll_plan_to(p, l);
    const int64_t size_B = unroll_plan_size(l);
    int64_t at_B = base_B;
    for (int b = from; b <= to; b++) p->cursor[b] = 0;
    for (int k; (k = unroll_plan_next(p, from, to)) >= 0;) {
        const struct life *placed = &p->u->life[k];
        const int64_t end_B = placed->offset + unroll_plan_size(placed);
        if (placed->offset >= at_B + size_B) break;
        if (end_B > at_B && unroll_meet(p->u, p->pr, placed, l)) at_B = end_B;
    }
    return at_B;
}

struct rank { int64_t size_B; int32_t life; };  /* placing order */

/* Larger first, then the earlier made: a total order. */
static int unroll_plan_compare(const void *x, const void *y)
{
    const struct rank *a = x, *b = y;
    if (a->size_B != b->size_B) return a->size_B < b->size_B ? 1 : -1;
    return (a->life > b->life) - (a->life < b->life);
}

void unroll_plan(struct unroll *u, struct arena *a, const struct program *pr)
{
    const int n_block = pr->n_step[u->stage] / BLOCK_STEPS + 1;
    struct planner p = { .u = u, .a = a, .pr = pr };
    struct rank *rank = arena_alloc(a, (size_t)u->n_life * sizeof *rank);
    int64_t base_B = 0;
    int n = 0;
    p.block = arena_alloc(a, (size_t)n_block * sizeof *p.block);
    p.cursor = arena_alloc(a, (size_t)n_block * sizeof *p.cursor);
    for (int k = 0; k < u->n_life; k++) {
        struct life *l = &u->life[k];
        if (pr->buf[l->buf].keep == KEEP_MICRO) {
            rank[n++] = (struct rank){ l->bytes, k };
        } else {                                /* lives for ever: shares with nobody */
            l->offset = base_B;
            base_B += unroll_plan_size(l);
        }
    }
    qsort(rank, (size_t)n, sizeof *rank, unroll_plan_compare);
    u->arena_B = base_B;
    for (int k = 0; k < n; k++) {
        struct life *l = &u->life[rank[k].life];
        l->offset = unroll_plan_gap(&p, l, base_B);
        const int to = unroll_plan_to(&p, l);
        for (int b = unroll_plan_from(&p, l); b <= to; b++) unroll_plan_insert(&p, &p.block[b], rank[k].life);
        if (l->offset + unroll_plan_size(l) > u->arena_B) u->arena_B = l->offset + unroll_plan_size(l);
    }
}
