/* Kernels that only move bytes (norms, activations, permutes, optimizer), and copies between GPU and host. */
#include "sim/cost.h"

double cost_memory_s(const struct cost *c, const struct work *w)
{
    const struct system *s = &c->job->system;
    return (w->read_B + w->write_B) / (s->hbm_B_per_s * s->eff_memory) + s->kernel_s;
}

double cost_host_s(const struct cost *c, double bytes)
{
    const struct system *s = &c->job->system;
    return (s->host_link_B_per_s > 0 ? bytes / s->host_link_B_per_s : 0) + s->kernel_s;
}
