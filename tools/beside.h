/* A run's directory and its prediction, side by side: what `compare` lays out in tables and `draw timeline` as
 * a picture. */
#ifndef TOOLS_BESIDE_H
#define TOOLS_BESIDE_H
#include "sim/sim.h"
#include "tools/join.h"
#include <jansson.h>

/* Everything in one arena. side: one iteration each, that of the median length; run: run.json, to be released. */
struct beside {
    struct job job; struct program pr; struct unroll *u; struct cost cost;
    struct trace side[JOIN_SIDES];
    int iter, n_iter;
    json_t *run;
};
/* Reads what run wrote to `dir`, and predicts it on `system` ("": the plan's), at even load and at the measured
 * one. ERR_IO: no such run. ERR_CONFIG: the trace is another program's. b->run may be set also when it fails.
 * */
enum err beside_read(struct beside *b, struct arena *a, const char *dir, const char *system, struct diag *d);

#endif
