/* A pass (or a block of one) as algebra: its time is a (max,+) matrix, its memory a pair. Both are associative,
 * so blocks are priced once and multiplied: pass = block (x) block (x) ..., step = the schedule of passes
 * (sim.h). State: when each stream is free, when the host is, and when the data of the forward and of the
 * backward half is there. A RECV's time is the simulator's: its completion comes in as DATA. A SEND leaves as
 * DATA: the time when it could start if its stream were free. Both count with their host time and their
 * buffers; inside a run without them DATA is the input and the output of a block. */
#ifndef SIM_PASS_H
#define SIM_PASS_H
#include "sim/cost.h"

enum { PASS_HOST = STREAM_COUNT, PASS_DATA, PASS_DATA_BWD, PASS_DIM };     /* rows and columns besides the streams */

/* What a run exchanges with other stages, of its forward half [0] and backward half [1]. */
struct pass_wire {
    int8_t recv, send;
    double recv_issue_s;            /* the RECV is issued this long after the host begins the run          */
    double recv_s, send_s;          /* prices of the transfer                                              */
};
struct pass_price {
    double m[PASS_DIM][PASS_DIM];   /* m[to][from] seconds; -INFINITY: no path                             */
    double net_B, peak_B;           /* bytes alive after less before; most alive during, less before       */
    double busy_s[STREAM_COUNT];    /* sum of durations; p2p is not in it                                  */
    struct pass_wire wire[2];
};

void pass_identity(struct pass_price *p);
/* a then b: m = b.m (x) a.m; net = a + b; peak = max(peak_a, net_a + peak_b). `out` may be `a` or `b`. */
void pass_multiply(struct pass_price *out, const struct pass_price *a, const struct pass_price *b);
/* The state after the pass; in and out may be the same array. */
void pass_apply(double out[PASS_DIM], const struct pass_price *p, const double in[PASS_DIM]);

/* A pass without what it leaves alone: rows that change a state, columns that they see, their entries row by row. */
struct pass_brief { int8_t n_row, n_col, row[PASS_DIM], col[PASS_DIM]; double m[PASS_DIM * PASS_DIM]; };
void pass_brief_of(struct pass_brief *b, const struct pass_price *p);
/* pass_apply of its price to `state`, to the bit. */
void pass_brief_apply(double state[PASS_DIM], const struct pass_brief *b);

/* A run's boundary buffers by half, 0: none. One that no RECV of the run writes comes from the run before; one
 * that no SEND reads goes to the run after. */
struct pass_edge { int32_t in[2], out[2]; };
/* Prices ops order[0 .. n - 1] as one run in list order. `kind` says which passes of their micro-batch come
 * before and after: lives that these use too cross the run's edges. op_s: cost_all_s. */
void pass_price(struct pass_price *out, const struct cost *c, const double *op_s, enum pass_kind kind,
                const int32_t *order, int n, const struct pass_edge *edge);
/* Parts of a micro-batch's passes (FLOW_ bits) that come before the half of a pass, and after it. */
void pass_around(int *before, int *after, const struct cost *c, enum pass_kind kind, int half);
/* A chunk's FWD, BWD, BWD_INPUT and BWD_WEIGHT by its op ranges, whatever the schedule holds; other kinds are
 * identities. For a program of one block (program_build_block, chunk 0). */
void pass_price_chunk(struct pass_price price[PASS_COUNT], const struct cost *c, const double *op_s, int chunk);
/* Every pass of a program: n_pass prices from the arena. */
struct pass_price *pass_price_all(const struct cost *c, const double *op_s, struct arena *a);

#endif
