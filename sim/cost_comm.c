/* Collectives and p2p: the bytes that leave one rank over the bandwidth of the links they take, and a latency. Waiting
 * for peers is not a price. Ring and all-to-all differ in what crosses between NVLink domains. */
#include "sim/cost.h"
#include <math.h>

/* Rounds of a group of n when latency rules: NCCL leaves the ring for trees, NVLS or PAT, whose depth is logarithmic
 * (NCCL 2.30 src/graph/tuning.cc: tree floor(log2 D), PAT log2 D). */
static int rounds(int n)
{
    int r = 0;
    for (int reach = 1; reach < n; reach *= 2) r++;
    return r;
}

/* The worst domain's members first, then the domains. */
static double latency_s(const struct system *s, const struct place *p)
{
    const int local = p->domains > 1 ? p->in_domain : p->size;
    const double inside_s = rounds(local) * s->nvlink_latency_s;
    if (p->domains <= 1) return inside_s;
    return inside_s + rounds(p->domains) * (s->nic_latency_s + (p->same_rail ? 0 : s->rail_hop_s));
}

/* A ring crosses each domain's border once, through the NIC of the GPU where it leaves; with k members in a domain
 * there are k such rings, one a NIC (NCCL src/graph/search.cc: one ring a channel, one NIC a channel and domain).
 * So the border passes k NICs' worth and NVLink carries the rest: the slower of the two. */
static double ring_B_per_s(const struct system *s, const struct place *p)
{
    const double nvlink = s->nvlink_B_per_s * s->eff_nvlink;
    if (p->domains <= 1) return nvlink;
    const double nic = p->in_domain * s->nic_B_per_s * s->eff_nic;
    return p->in_domain > 1 ? fmin(nvlink, nic) : nic;
}

/* Of the bytes that a rank sends to its n - 1 peers, (n - k) / (n - 1) leave its domain through its own NIC, the rest
 * stays on NVLink; both go at once. */
static double alltoall_s(const struct system *s, const struct place *p, double wire_B)
{
    const double peers = p->size - 1, local = p->domains > 1 ? p->in_domain - 1 : peers;
    const double nvlink_s = wire_B * local / peers / (s->nvlink_B_per_s * s->eff_nvlink_alltoall);
    if (p->domains <= 1) return nvlink_s;
    return fmax(nvlink_s, wire_B * (peers - local) / peers / (s->nic_B_per_s * s->eff_nic_alltoall));
}

static double p2p_s(const struct system *s, const struct place *p, double wire_B)
{
    if (p->link == LINK_SELF) return 0;
    return p->link == LINK_NIC ? wire_B / (s->nic_B_per_s * s->eff_nic) + s->nic_latency_s +
                                     (p->same_rail ? 0 : s->rail_hop_s)
                               : wire_B / (s->nvlink_B_per_s * s->eff_nvlink) + s->nvlink_latency_s;
}

double cost_comm_s(const struct cost *c, const struct op *o, const struct work *w)
{
    const struct system *s = &c->job->system;
    const struct place *p = &c->place[o->group];
    switch (o->kind) {
    case OP_SEND: case OP_RECV: return p2p_s(s, p, w->wire_B);
    case OP_DISPATCH: case OP_COMBINE:      /* the busiest rank's way in or out */
        return latency_s(s, p) + alltoall_s(s, p, fmax(w->wire_B, w->write_B * (p->size - 1) / p->size));
    case OP_ALL_REDUCE: case OP_ALL_MAX: return 2 * latency_s(s, p) + w->wire_B / ring_B_per_s(s, p);
    default: return latency_s(s, p) + w->wire_B / ring_B_per_s(s, p);
    }
}
