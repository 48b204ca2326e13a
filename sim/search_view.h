/* A plan as the bounds see it: how many blocks of each kind stand on every chunk (a shape, shared by all
 * plans with as many chunks), what they cost, and in which order a stage takes its chunks. Warm-up and groups
 * are sched.c's. */
#ifndef SIM_SEARCH_VIEW_H
#define SIM_SEARCH_VIEW_H
#include "sim/search_block.h"

struct search_shape { int16_t n[BLOCK_COUNT]; };    /* blocks on a chunk, in the order of enum block */

/* Neighbouring stages that hold the same blocks chunk by chunk, and how many of each kind a stage has in all. */
struct search_run { int32_t first, n, all[BLOCK_COUNT]; };
struct search_runs { int32_t n; struct search_run run[]; };

struct search_counts;
struct search_views {
    const struct search_space *space;
    struct search_blocks *blocks;
    struct search_shape *shape[LAYOUT_CHUNKS + 1];  /* by number of chunks; NULL: not yet asked for */
    struct search_runs **runs[LAYOUT_CHUNKS + 1];   /* by number of chunks, and of stages           */
    struct search_counts *counts;                   /* search_bound's own                           */
    int32_t reads;                                  /* bits of enum dispatcher: the host waits for row counts */
    struct arena *arena;
};

struct search_view {
    const struct search_grid *g;
    const struct search_point *point;
    const struct search_shape *shape;               /* of chunk c                                    */
    const struct search_runs *runs;                 /* its stages                                    */
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
/* By chunk of a stage: how many of the first k slots of the forward order take it. */
void search_view_slots_of(int n[], const struct search_view *v, int k);
/* Which of a stage's chunks slot k of the forward order takes; the backward order takes the mirrored one. */
int search_view_slot(const struct search_view *v, int k);

#endif
