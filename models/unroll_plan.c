/* Offsets: which lives share bytes. Largest first, each at the lowest gap among those already placed that may be alive
 * together with it (measured elsewhere: 0.15-2 % above the live bytes, where birth order costs 3-13 % more). Two lives
 * exclude each other in time only if every use of one has surely finished before the first use of the other, by streams and
 * deps; list order proves nothing.
 * To be fast, placed lives are kept by address in lists per block of steps: the lead window proves that lives of distant
 * steps never meet, so a query looks only at its own block. Blocks come in several lengths, since some lives are long. */
#include "models/unroll.h"
#include <stdlib.h>
#include <string.h>

enum { ALIGN_B = 64, LEVELS = 5, SHORTEST = 4, TIMES = 6 };     /* blocks of 4, 24, 144, 864, all steps */

struct list { int32_t n, room, *life; };        /* placed lives that touch a block of steps, by offset */

struct planner {
    struct unroll *u;
    struct arena *a;
    const struct program *pr;
    struct list *level[LEVELS];
};

static int64_t unroll_plan_size(const struct life *l)
{
    return (l->bytes + ALIGN_B - 1) / ALIGN_B * ALIGN_B;
}

struct range { int32_t from, to; };             /* steps or blocks, both ends included */

/* Steps in which other lives may meet `l`: from its first step to `lead` behind its last. */
static struct range unroll_plan_steps(const struct planner *p, const struct life *l)
{
    const int end = p->pr->n_step[p->u->stage] - 1, to = p->u->item[l->last_item].step + p->pr->lead;
    return (struct range){ p->u->item[l->first].step, to < end ? to : end };
}

static int unroll_plan_block_steps(const struct planner *p, int level)
{
    int steps = SHORTEST;
    if (level == LEVELS - 1) return p->pr->n_step[p->u->stage];
    while (level-- > 0) steps *= TIMES;
    return steps;
}

static struct range unroll_plan_blocks(const struct planner *p, struct range steps, int level)
{
    const int n = unroll_plan_block_steps(p, level);
    return (struct range){ steps.from / n, steps.to / n };
}

/* Inserts a placed life into one list, behind those of the same offset. */
static void unroll_plan_insert(struct planner *p, struct list *list, int life)
{
    const struct life *all = p->u->life;
    int from = 0, to = list->n;
    if (list->n == list->room) {
        const int32_t more = list->room ? 2 * list->room : 64;
        list->life = arena_grow(p->a, list->life, (size_t)list->room, (size_t)more, sizeof *list->life);
        list->room = more;
    }
    while (from < to) {
        const int mid = (from + to) / 2;
        if (all[list->life[mid]].offset <= all[life].offset) from = mid + 1;
        else to = mid;
    }
    memmove(list->life + from + 1, list->life + from, (size_t)(list->n++ - from) * sizeof *list->life);
    list->life[from] = life;
}

static void unroll_plan_insert_all(struct planner *p, int life)
{
    const struct range steps = unroll_plan_steps(p, &p->u->life[life]);
    for (int level = 0; level < LEVELS; level++) {
        const struct range b = unroll_plan_blocks(p, steps, level);
        for (int k = b.from; k <= b.to; k++) unroll_plan_insert(p, &p->level[level][k], life);
    }
}

/* The next placed life by offset over neighbouring lists, or -1. One that stands in two lists comes twice. */
static int unroll_plan_next(const struct planner *p, const struct list *list, int n, int *cursor)
{
    int best = -1, at = -1;
    for (int k = 0; k < n; k++) {
        if (cursor[k] == list[k].n) continue;
        const int life = list[k].life[cursor[k]];
        if (best >= 0 && p->u->life[life].offset >= p->u->life[best].offset) continue;
        best = life;
        at = k;
    }
    if (at >= 0) cursor[at]++;
    return best;
}

/* The lowest gap from `base_B` on that holds `l`. It looks at blocks at least as long as the life, so at two or one. */
static int64_t unroll_plan_gap(const struct planner *p, const struct life *l, int64_t base_B)
{
    const struct range steps = unroll_plan_steps(p, l);
    int level = 0, cursor[2] = { 0 };
    while (level < LEVELS - 1 && unroll_plan_block_steps(p, level) < steps.to - steps.from + 1) level++;
    const struct range b = unroll_plan_blocks(p, steps, level);
    const int64_t size_B = unroll_plan_size(l);
    int64_t at_B = base_B;
    for (int k; (k = unroll_plan_next(p, &p->level[level][b.from], b.to - b.from + 1, cursor)) >= 0;) {
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

static void unroll_plan_open(struct planner *p)
{
    for (int level = 0; level < LEVELS; level++) {
        const int n = p->pr->n_step[p->u->stage] / unroll_plan_block_steps(p, level) + 1;
        p->level[level] = arena_alloc(p->a, (size_t)n * sizeof *p->level[level]);
    }
}

void unroll_plan(struct unroll *u, struct arena *a, const struct program *pr)
{
    struct planner p = { .u = u, .a = a, .pr = pr };
    struct rank *rank = arena_alloc(a, (size_t)u->n_life * sizeof *rank);
    int64_t base_B = 0;
    int n = 0;
    unroll_plan_open(&p);
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
        unroll_plan_insert_all(&p, rank[k].life);
        if (l->offset + unroll_plan_size(l) > u->arena_B) u->arena_B = l->offset + unroll_plan_size(l);
    }
}
