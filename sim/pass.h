/* A pass (or a block of one) as algebra: its time is a (max,+) matrix, its memory a pair. Both are associative, so
 * blocks are priced once and multiplied: pass = block (x) block (x) ..., step = sum over the schedule (sim.h).
 * State: when each stream is free, when the host is, and when the pass's input is there; out: the same, with the pass's
 * output in the input's place. RECV and SEND are not in it: the simulator meets them. */
#ifndef SIM_PASS_H
#define SIM_PASS_H
#include "sim/cost.h"

enum { PASS_HOST = STREAM_COUNT, PASS_DATA, PASS_DIM };     /* rows and columns besides the streams */

struct pass_price {
    double m[PASS_DIM][PASS_DIM];   /* m[to][from] seconds; -INFINITY: no path                       */
    double net_B, peak_B;           /* bytes alive after less before; most alive during, less before */
    double busy_s[STREAM_COUNT];    /* sum of durations                                              */
};

void pass_identity(struct pass_price *p);
/* a then b: m = b.m (x) a.m; net = a + b; peak = max(peak_a, net_a + peak_b). `out` may be `a` or `b`. */
void pass_multiply(struct pass_price *out, const struct pass_price *a, const struct pass_price *b);
/* The state after the pass; in and out may be the same array. */
void pass_apply(double out[PASS_DIM], const struct pass_price *p, const double in[PASS_DIM]);
/* Prices ops order[0 .. n - 1] as one run in list order. `x_in` (0: none): a buffer that arrives as PASS_DATA; `x_out`: whose
 * completion is PASS_DATA afterwards. `kept`: per buffer, what a life crossing the run's edges means (pass_kept).
 * op_s: cost_all_s. */
struct pass_kept { int8_t *before, *after; };   /* per root buffer: used before this run / after it, in the micro-batch's passes */
void pass_price(struct pass_price *out, const struct cost *c, const double *op_s, const int32_t *order, int n, int x_in,
                int x_out, const struct pass_kept *kept);
/* Every pass of a program: n_pass prices from the arena. Boundary sends and receives are left out, their buffers counted. */
struct pass_price *pass_price_all(const struct cost *c, const double *op_s, struct arena *a);

#endif
