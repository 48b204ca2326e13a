/* Micro-benchmarks of this machine: programs of a few sizes run by the executor itself, so that every op is
 * timed as `run` launches it (its table, its kernels, its communicators), and a system file made of what they
 * took. A probe is a small model and plan; a sample is what one op of it took, with its work by op_work; a fit
 * makes samples one line of prices. */
#ifndef TOOLS_CALIBRATE_H
#define TOOLS_CALIBRATE_H
#include "exec/backend.h"
#include "models/plan.h"
#include "models/program.h"
#include "sim/cost.h"

/* A small model (keys over tiny-moe's) under a plan, both as `key value ..`. */
struct calibrate_probe { const char *model, *plan; };

/* One op of a probe: the median of all times it happened (of a collective: without waiting for peers), its mean
 * work. */
struct calibrate_sample {
    uint8_t kind;
    int32_t members, probe;             /* of its group, 1: none; which probe                          */
    double flop, bytes, units;          /* bytes: wire_B of collectives and messages; units: cost_units */
    double s, spread;                   /* median; half of the distance between its quartiles, over it */
    int64_t n;
};
/* What lies between ops: on one stream, one behind the other; from the end of what an op waits for on another
 * stream until it begins; from the end of what the host waits for until the next op begins. */
enum { CALIBRATE_STEPS = 64 };
enum calibrate_gap { CALIBRATE_NEXT, CALIBRATE_WAKE, CALIBRATE_READ, CALIBRATE_GAPS };
/* A probe of several ranks, to be predicted as a whole; load: as it was routed in the step of median length,
 * measured_s. */
struct calibrate_step { struct job *job; struct program *pr; const struct unroll *u; struct load load; double measured_s; };
struct calibrate_run {
    struct calibrate_sample *sample; int32_t n, cap;
    /* seconds, every one that was seen */
    double *gap[CALIBRATE_GAPS]; int32_t n_gap[CALIBRATE_GAPS], cap_gap[CALIBRATE_GAPS];
    struct calibrate_step step[CALIBRATE_STEPS]; int32_t n_step;
    double cache_B;                     /* the machine's last cache; 0: as the built-in host's */
    const struct backend *on;           /* whose ops; NULL: the CPU's */
    struct arena *a;
};

/* Runs one probe for `steps` steps (2 or more), the first of which is not looked at, and adds its samples. */
enum err calibrate_probe(struct calibrate_run *r, const struct calibrate_probe *p, int index, int steps,
                         struct diag *d);

/* One kind's prices, fitted; the table that calibrate prints. n: ops; from_B, to_B: their bytes; error: median
 * of |fit / measured - 1|; spread: median of theirs. */
struct calibrate_fit {
    int32_t op, n;                      /* op: enum op_kind */
    const char *kind, *family;
    double from_B, to_B, error, spread;
    struct system_op price;
};
/* Prices of every kind that was measured, into `to->op`, and what follows from them: peaks, efficiencies,
 * bandwidths, sizes that were measured, what lies between ops, all to four digits. `to` begins as a system that
 * has the rest. fit[OP_KIND_COUNT]; returns how many. */
int calibrate_fits(struct calibrate_fit *fit, struct system *to, const struct calibrate_run *r);
/* What a wake costs in all: not only until the thread runs, but also that its data lies in another core's cache
 * and that ranks come apart. The wake_s, from the gap that was seen to five of it, with which the steps of
 * probes of several ranks are predicted best. */
void calibrate_wake(struct system *to, const struct calibrate_run *r);

#endif
