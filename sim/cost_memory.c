/* Kernels that only move bytes (norms, activations, permutes, optimizer), and copies between GPU and host. Permutes
 * read or write rows by index and reach less of the bandwidth (SimuMax B200: 4.0 of 5.3 TB/s); Mamba's scans are Triton kernels
 * bound by bandwidth and latency, less than half of it (pytorch.org/blog/accelerating-mamba2-with-kernel-fusion). */
#include "sim/cost.h"

static int by_index(enum op_kind kind)
{
    return kind == OP_PERMUTE || kind == OP_UNPERMUTE || kind == OP_SORT || kind == OP_UNSORT;
}

double cost_memory_s(const struct cost *c, enum op_kind kind, const struct work *w)
{
    const struct system *s = &c->job->system;
    const double eff = by_index(kind)                       ? s->eff_permute
                       : kind == OP_SCAN || kind == OP_SCAN_BWD ? s->eff_scan
                       : op_family(kind) == FAMILY_OPTIM       ? s->eff_optimizer
                                                               : 0;
    return (w->read_B + w->write_B) / cost_hbm(s, eff) + s->kernel_s;
}

double cost_host_s(const struct cost *c, double bytes)
{
    const struct system *s = &c->job->system;
    return (s->host_link_B_per_s > 0 ? bytes / s->host_link_B_per_s : 0) + s->kernel_s;
}
