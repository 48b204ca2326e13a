/* Inside exec: one rank of a run (arena, streams, counts) and what its threads share. A rank's host thread
 * issues items in list order; each stream used is a thread (a lane) that takes its own items in that order,
 * waits for their deps and launches. All waiting is on bells, rung only for those whom a completed item
 * concerns. */
#ifndef EXEC_EXEC_RANK_H
#define EXEC_EXEC_RANK_H
#include "exec/bell.h"
#include "exec/comm_shm.h"
#include "exec/exec.h"
#include "exec/lock.h"

/* What all ranks of a run share. The first error wins: it stops every rank and is the run's answer. */
struct exec_shared {
    const struct program *pr; const struct unroll *u; const struct job *j; const struct exec_ask *ask;
    launch *const *backend; const struct kernels *kernels;
    struct data data;                   /* what ask names, or its text */
    int64_t *loss_tokens;               /* by step: how many the loss counts; NULL: all */
    struct arena *arena;                /* of all that ranks share */
    const struct comm_ops *comm_ops;    /* of ask->world, or comm_shm's */
    struct comm_shm *shm; void *run;    /* one of them */
    struct exec_rank *rank; int32_t n_rank, n_traced;
    struct lock lock;                   /* guards e and d */
    enum err e; struct diag d;
    _Atomic int stop;
    int64_t start_ns;                   /* when the ranks were started */
    int32_t (*least)[2];                /* [size buffer][at]: the smallest buffer that it sizes, 0: none */
};

/* Births and deaths of buffer instances, counted from uses alone: `life` is asked only for the offset. An
 * instance is (root buffer, micro-batch); for-ever ones have micro -1 and are alive from the start. */
struct exec_life {
    int32_t *total, *left;              /* uses in the list; uses not yet issued */
    _Atomic int32_t *todo;              /* uses not yet completed (poison only) */
    int64_t alive_B, most_B, touched_B;
};

struct lane {                           /* one stream of one rank */
    struct exec_rank *r;
    int32_t *item; int32_t n_item;
    pthread_t thread; int started;
    struct bell bell;
    struct diag d;
};

struct exec_rank {
    struct exec_shared *x;
    int32_t rank; struct coord at;
    const struct unroll *u;             /* its stage's */
    char *arena;
    struct comm *comm[GROUP_COUNT][STREAM_COUNT];
    uint32_t joined[GROUP_COUNT];       /* bits of the streams that have one */
    int32_t *member[GROUP_COUNT], me[GROUP_COUNT], members[GROUP_COUNT];    /* NULL, 0, 1: alone */
    struct lane lane[STREAM_COUNT];
    _Atomic int64_t issued;             /* items issued since the run began */
    _Atomic int32_t *done;              /* per item: steps in which it is done (with a device: launched) */
    uint32_t *concerns; /* per item: bits of the streams that depend on it; bit STREAM_COUNT: the host */
    struct bell host;
    void **mark; int32_t n_mark;        /* of a device: two an item, and one where its clock and ours were alike, at clock_ns */
    int64_t clock_ns;
    pthread_t thread;
    int told;                           /* a process: where it says that a step is done */
    struct exec_life life;
    struct span *span;                  /* [traced step][item] */
    int64_t *end_ns;                    /* per step */
    struct exec_step *step;             /* per step, as this rank sees it */
    float score_gap;
};

/* Whether this process holds the rank. */
static inline int exec_rank_here(const struct exec_shared *x, int rank)
{
    return !x->ask->world || x->ask->seat.process == rank;
}

/* ---- exec_rank.c ---- */
enum err exec_rank_open(struct exec_rank *r, struct exec_shared *x, struct arena *a, int rank, struct diag *d);
void *exec_rank_main(void *rank);                       /* host thread: all steps */
void exec_rank_close(struct exec_rank *r); /* frees the arena; threads have ended. May be half open */
/* Records the run's first error and stops all ranks. */
void  exec_rank_fail(struct exec_rank *r, enum err e, const struct diag *d);

/* ---- exec_fork.c ---- */
/* Every rank's host loop in a process of its own; returns when all have ended. Calls the report hook itself. */
void exec_fork_go(struct exec_shared *x);

/* ---- exec_world.c ---- */
/* Collective: what every rank has counted and timed, on every process, by its own clock. */
void exec_world_share(struct exec_shared *x);

/* ---- exec_lane.c ---- */
void *exec_lane_main(void *lane);
/* Waits until `item` is done in `step` (on bell `b`); 0 when the run stopped. */
int   exec_lane_wait_done(struct exec_rank *r, struct bell *b, int item, int step);

/* ---- exec_mark.c: a device's streams; nothing without one ---- */
enum err exec_mark_open(struct exec_rank *r, struct arena *a, struct diag *d);
void exec_mark_close(struct exec_rank *r);
/* Around a launch, by the lane: behind the item's deps in other lanes. */
enum err exec_mark_begin(const struct exec_rank *r, int item, struct diag *d);
enum err exec_mark_end(const struct exec_rank *r, int item, struct diag *d);
/* By the host: waits for an item that is launched. */
enum err exec_mark_reached(const struct exec_rank *r, int item, struct diag *d);
/* Before a step's first item, and when all its items are done: their spans by the device's clock. */
enum err exec_mark_clock(struct exec_rank *r, struct diag *d);
void exec_mark_spans(struct exec_rank *r, int step);

/* ---- exec_bind.c ---- */
/* Operands, true rows and communicator of an item. ERR_NO when true rows lie outside a buffer's capacity. */
enum err exec_bind(struct call *c, struct exec_rank *r, const struct item *it, int step, struct diag *d);
/* What a span says of rows (trace.h), after the launch. */
void exec_bind_rows(int32_t rows[2], const struct call *c);
/* After SIZES: ERR_NO when a routed buffer is too small for what will arrive, naming rank, layer, rows and the
 * factor needed. */
enum err exec_bind_capacity(const struct exec_rank *r, const struct call *c, struct diag *d);

/* ---- exec_life.c ---- */
void exec_life_open(struct exec_life *l, struct arena *a, const struct exec_rank *r);
/* Host, in issue order. */
void exec_life_issue(struct exec_life *l, const struct exec_rank *r, const struct item *it);
/* Instances whose uses are not at their beginning: 0 after every whole step. */
int  exec_life_open_count(const struct exec_life *l, const struct exec_rank *r);
/* Poison: fills what is born before the launch, what has died after it. */
void exec_life_born(struct exec_life *l, const struct exec_rank *r, const struct item *it);
void exec_life_died(struct exec_life *l, const struct exec_rank *r, const struct item *it);

#endif
