/* Two traces of one program laid beside each other: spans joined by key (rank, step, op), summed by kind of op. */
#ifndef TOOLS_JOIN_H
#define TOOLS_JOIN_H
#include "models/trace.h"

/* Predicted, predicted at the measured load, measured. */
enum join_side { JOIN_EVEN, JOIN_LOAD, JOIN_MEASURED, JOIN_SIDES };

/* Of one kind of op, over all ranks and one step: time at work (a collective's transfer), and waiting for peers
 * apart. */
struct join_kind { int64_t count; double work_s[JOIN_SIDES], wait_s[JOIN_SIDES]; };
struct join {
    int64_t spans[JOIN_SIDES];          /* in each trace                                                   */
    int64_t joined;                     /* keys in all three                                               */
    struct span lost; int is_lost;      /* the first key that is not in all three                          */
    struct join_kind kind[OP_KIND_COUNT];
};

/* One iteration of a trace as a trace of its own: `iter` 0, clock from its first t0. */
struct trace join_iteration(struct arena *a, const struct trace *t, int iter);
/* The iteration whose length is the median, the first one (cold caches, first touches) left out when there are
 * more. */
int join_median_iteration(struct arena *a, const struct trace *t);
/* From the first t0 to the last t1, seconds. */
double join_length_s(const struct trace *t);
/* The rank whose last span ends last; the lowest on a tie. */
int join_last_rank(const struct trace *t);
/* `side`: sorted traces of one iteration each. Kinds are summed only when every key joins. */
void join_traces(struct join *to, struct arena *a, const struct trace *const side[JOIN_SIDES],
                 const struct program *pr, const struct job *j, const struct unroll *u);

#endif
