/* A plan as the bounds see it: how many blocks of each kind stand on every chunk (a shape, shared by all
 * plans with as many chunks), what they cost, and in which order a stage takes its chunks. Warm-up and groups
 * are sched.c's. */
#ifndef SIM_SEARCH_VIEW_H
#define SIM_SEARCH_VIEW_H
#include "sim/search_block.h"

struct search_shape { int16_t n[BLOCK_COUNT]; };    /* blocks on a chunk, in the order of enum block */

struct search_views {
    const struct search_space *space;
    struct search_blocks *blocks;
    struct search_shape *shape[LAYOUT_CHUNKS + 1];  /* by number of chunks; NULL: not yet asked for */
    int32_t reads;                                  /* bits of enum dispatcher: the host waits for row counts */
    struct arena *arena;
};

struct search_view {
    const struct search_grid *g;
    const struct search_point *point;
    const struct search_shape *shape;               /* of chunk c                                    */
    struct search_blocks *blocks;
    const struct search_block *block[BLOCK_COUNT];  /* NULL: the model has none, or not priced       */
    int pp, vpp, n_micro, group, weave, split, reads, recompute;
};

/* Everything lives in `a`. */
void search_view_init(struct search_views *all, struct arena *a, const struct search_space *s);
/* Without prices. */
struct search_view search_view_of(struct search_views *all, const struct search_point *p);
struct search_view search_view_priced(struct search_views *all, const struct search_point *p, int recompute);
/* The first block of a chunk: the last one that its backward runs. */
const struct search_block *search_view_first(const struct search_view *v, int chunk);
/* Forward slots of a stage before its first backward. */
int search_view_warmup(const struct search_view *v, int stage);
/* Which of a stage's chunks slot k of the forward order takes; the backward order takes the mirrored one. */
int search_view_slot(const struct search_view *v, int k);

#endif
