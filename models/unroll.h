/* One stage's steps written out as items, walked alike by simulator, executor and offset planner. Derives what no
 * builder writes: deps from uses of buffer instances, lives, which items have surely finished, who meets whom. */
#ifndef MODELS_UNROLL_H
#define MODELS_UNROLL_H
#include "models/program.h"

struct item { int32_t step, op, micro, dep, n_dep, mate; };     /* dep: first in unroll.dep. micro -1: none. mate: of SEND and RECV, the
                                                                   item index in the peer stage; of a WORLD or EMBED collective, its ordinal; else -1 */
struct life {                       /* one instance of a buffer (never of a view)                                    */
    int32_t buf, micro;             /* micro -1: lives for ever                                                      */
    int32_t first, last_item, n_use;    /* first and last item in list order; how many items use it                 */
    int32_t last[STREAM_COUNT];     /* last item on every stream, -1: none                                           */
    int64_t bytes, offset;          /* capacity; offset in the rank's memory (unroll_plan)                           */
};
struct unroll {
    int32_t stage, n_item, n_dep, n_life;
    struct item *item; int32_t *dep;
    int32_t (*seen)[STREAM_COUNT];  /* seen[i][s]: last item of stream s surely finished when item i starts; -1      */
    struct life *life;
    int32_t *life_of;               /* life_of[buf * (n_micro + 1) + micro + 1]: index, or -1                        */
    int64_t live_B, arena_B;        /* most bytes alive in list order, the planned total: of the device              */
    int64_t host_at, host_B;        /* the host's part of the rank's memory lies behind the arena, from there; its bytes */
    int32_t live_item;              /* where live_B is reached                                                       */
};

/* Writes out one stage; meets SENDs and RECVs with its neighbours only in unroll_all. */
void unroll_stage(struct unroll *u, struct arena *a, const struct program *pr, int stage);
/* All stages, mates found. ERR_NO names a SEND without its RECV, or unequal counts of WORLD or EMBED collectives. */
enum err unroll_all(struct unroll *u, struct arena *a, const struct program *pr, struct diag *d);
/* Offsets: two lives share bytes only if every use of one has surely finished before the first use of the other.
 * Offsets are multiples of 64. What is on the host comes behind what is on the device, both planned alike. Fills
 * life.offset, arena_B, host_at, host_B. */
void unroll_plan(struct unroll *u, struct arena *a, const struct program *pr);
/* Bytes of a planned rank's memory, both parts. */
static inline int64_t unroll_memory_B(const struct unroll *u) { return u->host_B ? u->host_at + u->host_B : u->arena_B; }
/* The life of `buf` (view or root) for an item's micro-batch; NULL when no item uses it. */
const struct life *unroll_life(const struct unroll *u, const struct program *pr, const struct item *i, int buf);

/* Whether two lives may be alive together: neither has surely ended before the other begins. */
int unroll_meet(const struct unroll *u, const struct program *pr, const struct life *a, const struct life *b);
/* "stage 0, step 3 (BWD of chunk 1, micro-batch 2): RECV" for messages; 160 bytes are enough. Returns `to`. */
char *unroll_item_text(char *to, size_t to_B, const struct unroll *u, const struct program *pr, int item);

/* Plays all stages at zero price: names the ring of stages that wait for each other, a life read before it is written,
 * two lives on the same bytes that may be alive together. `planned`: offsets are checked too. The executor refuses what this did not pass. */
enum err unroll_check(const struct unroll *u, const struct program *pr, int planned, struct diag *d);

#endif
