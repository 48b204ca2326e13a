/* Offsets: which lives share bytes. Largest first, each at the lowest gap among those already placed that may
 * be alive together with it (measured elsewhere: 0.15-2 % above the live bytes, where birth order costs 3-13 %
 * more). Two lives exclude each other in time only if every use of one has surely finished before the first use
 * of the other, by streams and deps; list order proves nothing. To be fast, placed lives are kept by address in
 * lists per block of steps: the lead window proves that lives of distant steps never meet, so a query looks
 * only at its own block. Blocks come in several lengths, since some lives are long. */
#include "models/unroll.h"
#include <stdlib.h>
#include <string.h>

enum { ALIGN_B = 64, LEVELS = 5, SHORTEST = 4, TIMES = 6 };     /* blocks of 4, 24, 144, 864, all steps */
enum { HOST_ALIGN_B = 1 << 21 };        /* the least that a device maps (cuMemGetAllocationGranularity): room for a guard too */

/* A placed life, as much of it as a query mostly needs. */
struct placed {
    int64_t offset, end;
    int32_t first, last, clear, life;           /* clear: all items from there on are after it */
};
struct list { int32_t n, room; struct placed *placed; };    /* lives that touch a block of steps, by offset */

struct planner {
    struct unroll *u;
    struct arena *a;
    const struct program *pr;
    int host;                                   /* which lives are planned: those of the host, or of the device */
    struct list *level[LEVELS];                 /* by block; NULL where no life is that long */
    int32_t *start;                             /* first item of every step, and n_item */
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

/* The shortest blocks that are at least as long as a life: it touches one or two of them. */
static int unroll_plan_level(const struct planner *p, struct range steps)
{
    int level = 0;
    while (level < LEVELS - 1 && unroll_plan_block_steps(p, level) < steps.to - steps.from + 1) level++;
    return level;
}

/* Inserts a placed life into one list, behind those of the same offset. */
static void unroll_plan_insert(struct planner *p, struct list *list, const struct placed *new)
{
    int from = 0, to = list->n;
    if (list->n == list->room) {
        const int32_t more = list->room ? 2 * list->room : 64;
        list->placed = arena_grow(p->a, list->placed, (size_t)list->room, (size_t)more, sizeof *list->placed);
        list->room = more;
    }
    while (from < to) {
        const int mid = (from + to) / 2;
        if (list->placed[mid].offset <= new->offset) from = mid + 1;
        else to = mid;
    }
    memmove(list->placed + from + 1, list->placed + from, (size_t)(list->n++ - from) * sizeof *list->placed);
    list->placed[from] = *new;
}

static void unroll_plan_insert_all(struct planner *p, int life)
{
    const struct life *l = &p->u->life[life];
    const struct range steps = unroll_plan_steps(p, l);
    const struct placed new = { .offset = l->offset, .end = l->offset + unroll_plan_size(l), .first = l->first,
                                .last = l->last_item, .clear = p->start[steps.to + 1], .life = life };
    for (int level = 0; level < LEVELS; level++) {
        if (!p->level[level]) continue;
        const struct range b = unroll_plan_blocks(p, steps, level);
        for (int k = b.from; k <= b.to; k++) unroll_plan_insert(p, &p->level[level][k], &new);
    }
}

/* unroll_meet, but list order decides all pairs that are not close to each other. `clear` as in placed. */
static int unroll_plan_meet(const struct planner *p, const struct placed *x, const struct life *l, int clear)
{
    if (x->clear <= l->first || clear <= x->first) return 0;
    if (x->first <= l->last_item && l->first <= x->last) return 1;
    return unroll_meet(p->u, p->pr, &p->u->life[x->life], l);
}

/* Merges two lists: the next placed life by offset, or NULL. One that stands in both comes twice. */
static const struct placed *unroll_plan_next(const struct placed *at[2], const struct placed *const end[2])
{
    const int second = at[0] == end[0] || (at[1] != end[1] && at[1]->offset < at[0]->offset);
    return at[second] == end[second] ? NULL : at[second]++;
}

/* The lowest gap from `base_B` on that holds `l`. */
static int64_t unroll_plan_gap(const struct planner *p, const struct life *l, int64_t base_B)
{
    const struct range steps = unroll_plan_steps(p, l);
    const int level = unroll_plan_level(p, steps);
    const struct range b = unroll_plan_blocks(p, steps, level);
    const struct list *x = &p->level[level][b.from], *y = &p->level[level][b.to];
    const struct placed *at[2] = { x->placed, y->placed };
    const struct placed *const end[2] = { x->placed + x->n, y->placed + (x == y ? 0 : y->n) };
    const int64_t size_B = unroll_plan_size(l);
    const int clear = p->start[steps.to + 1];
    int64_t at_B = base_B;
    for (const struct placed *k; (k = unroll_plan_next(at, end)) && k->offset < at_B + size_B;)
        if (k->end > at_B && unroll_plan_meet(p, k, l, clear)) at_B = k->end;
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

static int unroll_plan_is(const struct planner *p, const struct life *l)
{
    return (p->pr->buf[l->buf].place == PLACE_HOST) == p->host;
}

static void unroll_plan_open(struct planner *p)
{
    const int n_step = p->pr->n_step[p->u->stage];
    for (int k = 0; k < p->u->n_life; k++) {
        if (p->pr->buf[p->u->life[k].buf].keep != KEEP_MICRO || !unroll_plan_is(p, &p->u->life[k])) continue;
        const int level = unroll_plan_level(p, unroll_plan_steps(p, &p->u->life[k]));
        const int n = n_step / unroll_plan_block_steps(p, level) + 1;
        if (!p->level[level]) p->level[level] = arena_alloc(p->a, (size_t)n * sizeof *p->level[level]);
    }
    p->start = arena_alloc(p->a, (size_t)(n_step + 1) * sizeof *p->start);
    for (int i = 0; i < p->u->n_item; i++) p->start[p->u->item[i].step + 1] = i + 1;
    for (int k = 0; k < n_step; k++)            /* a step without ops ends where it begins */
        if (p->start[k + 1] < p->start[k]) p->start[k + 1] = p->start[k];
}

/* Plans the lives of one place from `base_B` on; returns their end. */
static int64_t unroll_plan_place(struct unroll *u, struct arena *a, const struct program *pr, int host, int64_t base_B)
{
    struct planner p = { .u = u, .a = a, .pr = pr, .host = host };
    struct rank *rank = arena_alloc(a, (size_t)u->n_life * sizeof *rank);
    int n = 0;
    unroll_plan_open(&p);
    for (int k = 0; k < u->n_life; k++) {
        struct life *l = &u->life[k];
        if (!unroll_plan_is(&p, l)) continue;
        if (pr->buf[l->buf].keep == KEEP_MICRO) {
            rank[n++] = (struct rank){ l->bytes, k };
        } else {                                /* lives for ever: shares with nobody */
            l->offset = base_B;
            base_B += unroll_plan_size(l);
        }
    }
    qsort(rank, (size_t)n, sizeof *rank, unroll_plan_compare);
    int64_t end_B = base_B;
    for (int k = 0; k < n; k++) {
        struct life *l = &u->life[rank[k].life];
        l->offset = unroll_plan_gap(&p, l, base_B);
        unroll_plan_insert_all(&p, rank[k].life);
        if (l->offset + unroll_plan_size(l) > end_B) end_B = l->offset + unroll_plan_size(l);
    }
    return end_B;
}

static int unroll_plan_has_host(const struct unroll *u, const struct program *pr)
{
    for (int k = 0; k < u->n_life; k++)
        if (pr->buf[u->life[k].buf].place == PLACE_HOST) return 1;
    return 0;
}

void unroll_plan(struct unroll *u, struct arena *a, const struct program *pr)
{
    u->arena_B = unroll_plan_place(u, a, pr, 0, 0);
    u->host_at = u->host_B = 0;
    if (!unroll_plan_has_host(u, pr)) return;
    u->host_at = (u->arena_B / HOST_ALIGN_B + 1) * HOST_ALIGN_B;
    u->host_B = unroll_plan_place(u, a, pr, 1, u->host_at) - u->host_at;
}
