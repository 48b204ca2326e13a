/* When everything happens in a step, and what it needs. Two ways that must agree to rounding: the sweep over unrolled
 * items (traces, recorded loads) and max-plus over pass prices (everything else). */
#ifndef SIM_SIM_H
#define SIM_SIM_H
#include "models/load.h"
#include "models/unroll.h"
#include "sim/play.h"

struct sim_result {
    double step_s;                      /* the last stage's finish; INFINITY: stages wait for each other     */
    double *stage_s;                    /* per stage                                                         */
    double *live_B;                     /* per stage: kept for ever + most alive in list order               */
    int last_stage;                     /* finishes last                                                     */
};
/* Max-plus: time from play.h, bytes from the pairs of the passes in schedule order. */
void sim_step(struct sim_result *r, struct arena *a, const struct cost *c, const double *op_s,
              const struct pass_price *price);
/* The same of a step that was played (`played`: what play_run returned), for who goes on with it. */
void sim_result_of(struct sim_result *r, struct arena *a, const struct play *p, int played);

/* Bytes of a stage as its passes come and go. */
struct sim_peak { double kept_B, live_B; int32_t step; };   /* for ever; with it, the most alive, and in which step */
struct sim_peak sim_live(const struct program *pr, const struct pass_price *price, int stage);

/* Longest path over items: a step. Spans of every rank class (one per stage, rank = the stage's first rank; all
 * ranks of a stage are alike) or, with `all_ranks`, of every rank. `u`: all stages (unroll_all). `load` NULL:
 * even; with a load a class is priced at its busiest rank. Spans are sorted by key. Of a program that
 * unroll_check refuses, only the items before ranks wait for each other for ever have spans. */
void sim_sweep(struct trace *t, struct arena *a, const struct cost *c, const struct unroll *u,
               const struct load *load, int all_ranks);

/* Where the step of a stage went: each instant belongs to one line, first match, in the order
 * of the lines. They sum to step_s. */
struct sim_lines {
    double optimizer_s, compute_s, exposed_s[GROUP_COUNT];
    double offload_s;                   /* copies to and from the host that nothing hides                     */
    double host_s;                      /* an op could have run but was not issued yet                       */
    double bubble_s;                    /* waiting for peers: other stages, or busier ranks under a load     */
    double unaccounted_s, step_s;
    double group_total_s[GROUP_COUNT];  /* transfer time of a group's ops on that stage, hidden or not       */
    double group_B[GROUP_COUNT];        /* wire bytes per rank                                               */
    double kind_s[OP_KIND_COUNT]; int64_t kind_n[OP_KIND_COUNT];
};
/* From spans: those of `stage`'s last-finishing rank in `t` (sorted; class or all ranks). `u`: all stages. */
void sim_account(struct sim_lines *l, const struct cost *c, const struct unroll *u, const struct trace *t, int stage);
/* From a replay of a stage that has been played; the same lines without a trace. */
void sim_account_replay(struct sim_lines *l, struct play *p, int stage);

#endif
