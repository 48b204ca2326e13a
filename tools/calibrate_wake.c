/* The price of a wake from whole steps: that with which the probes' steps are predicted best, by the sum of the
 * logarithms of how far off they are. */
#include "sim/sim.h"
#include "tools/calibrate.h"
#include "tools/join.h"
#include <math.h>

static double predicted_s(struct arena *a, const struct calibrate_step *p, const struct system *s, double wake_s)
{
    struct job j = *p->job;
    struct cost c;
    struct trace t;
    j.system = *s;
    j.system.wake_s = wake_s;
    system_in_step(&j.system);
    cost_init(&c, p->pr, &j);
    sim_sweep(&t, a, &c, p->u, &p->load, 1);
    return join_length_s(&t);
}

void calibrate_wake(struct system *to, const struct calibrate_run *r)
{
    enum { TRIES = 81 };                /* from the gap to five of it */
    struct arena a = { 0 };
    const double gap_s = to->wake_s;
    double at_s[CALIBRATE_STEPS], more_s[CALIBRATE_STEPS], least = INFINITY;
    for (int i = 0; i < r->n_step; i++) {
        at_s[i] = predicted_s(&a, &r->step[i], to, gap_s);
        more_s[i] = predicted_s(&a, &r->step[i], to, 2 * gap_s) - at_s[i];
    }
    for (int k = 0; k < TRIES; k++) {
        const double more = 4.0 * k / (TRIES - 1);
        double off = 0;
        for (int i = 0; i < r->n_step; i++) off += fabs(log((at_s[i] + more * more_s[i]) / r->step[i].measured_s));
        if (off >= least) continue;
        least = off;
        to->wake_s = (1 + more) * gap_s;
    }
    arena_free(&a);
}
