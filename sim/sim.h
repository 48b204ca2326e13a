/* When everything happens in a step, and what it needs. Two ways that must agree to rounding: the sweep over unrolled
 * items (traces, recorded loads) and max-plus over pass prices (everything else). */
#ifndef SIM_SIM_H
#define SIM_SIM_H
#include "models/load.h"
#include "models/unroll.h"
#include "sim/pass.h"

/* p2p of one direction between neighbours, and the two groups that span stages. */
struct sim_comm { double p2p_s; double p2p_issue_s; };

struct sim_result {
    double step_s;                      /* the last stage's finish                                           */
    double *stage_s;                    /* per stage                                                         */
    double *live_B;                     /* per stage: kept for ever + most alive in list order               */
    int last_stage;                     /* finishes last                                                     */
};
/* Max-plus. Deadlock cannot happen on a program that passed unroll_check; if it does, step_s is INFINITY. */
void sim_step(struct sim_result *r, struct arena *a, const struct cost *c, const double *op_s, const struct pass_price *price);

/* Longest path over items. Spans of every rank class (one per stage, rank = the stage's first rank; all ranks of a stage
 * are alike) or, with `all_ranks`, of every rank. `load` NULL: even. Spans are sorted by key. */
void sim_sweep(struct trace *t, struct arena *a, const struct cost *c, const struct unroll *u, const struct load *load, int all_ranks);

/* Where the step of the last-finishing stage went (design rule 5): each instant belongs to one line, first match. The lines
 * sum to step_s. */
struct sim_lines {
    double optimizer_s, compute_s, exposed_s[GROUP_COUNT], host_s, bubble_s, unaccounted_s, step_s;
    double group_total_s[GROUP_COUNT];  /* transfer time of a group's ops on that stage, hidden or not */
    double group_B[GROUP_COUNT];        /* wire bytes per rank                                         */
    double kind_s[OP_KIND_COUNT]; int64_t kind_n[OP_KIND_COUNT];
};
void sim_account(struct sim_lines *l, const struct cost *c, const struct unroll *u, const struct trace *t, int stage);

#endif
