/* Collectives and p2p: the bytes that leave one rank over the bandwidth of the links they take, and a latency.
 * Waiting for peers is not a price. Ring and all-to-all differ in what crosses between NVLink domains. */
#include "sim/cost.h"
#include <math.h>

static int log2_up(int n)
{
    int r = 0;
    for (int reach = 1; reach < n; reach *= 2) r++;
    return r;
}

/* Hops in a row among n: a ring's n - 1, or up and down a tree when that is shorter (NCCL 2.30
 * src/graph/tuning.cc takes the faster of ring, tree, NVLS and PAT; 12 hops of 1.5 us and a kernel are the 15
 * to 25 us of a small all-reduce on 4 to 8 GPUs, Azure AI-benchmarking-guide). */
static int hops(int n)
{
    const int ring = n - 1, tree = 2 * log2_up(n);
    return ring < tree ? ring : tree;
}

static double nic_hop_s(const struct system *s, const struct place *p)
{
    return s->nic_latency_s + (p->same_rail ? 0 : s->rail_hop_s);
}

static double ring_latency_s(const struct system *s, const struct place *p)
{
    if (p->domains <= 1) return hops(p->size) * s->nvlink_latency_s;
    return hops(p->in_domain) * s->nvlink_latency_s + hops(p->domains) * nic_hop_s(s, p);
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

/* Of the bytes that a rank sends to its n - 1 peers, (n - k) / (n - 1) leave its domain through its own NIC,
 * the rest stays on NVLink; both go at once. Every peer costs one message (GB200: 735 us to 8 ranks and 930 us
 * to 64 for the same bytes, arXiv 2603.07685 table 7: 1.5 us a peer). */
static double alltoall_s(const struct system *s, const struct place *p, double wire_B)
{
    const double peers = p->size - 1, local = p->domains > 1 ? p->in_domain - 1 : peers;
    const double nvlink_s = wire_B * local / peers / (s->nvlink_B_per_s * s->eff_nvlink_alltoall);
    const double messages_s = peers * s->nvlink_latency_s;
    if (p->domains <= 1) return nvlink_s + messages_s;
    const double nic_s = wire_B * (peers - local) / peers / (s->nic_B_per_s * s->eff_nic_alltoall);
    return fmax(nvlink_s, nic_s) + messages_s + nic_hop_s(s, p);
}

static double p2p_s(const struct system *s, const struct place *p, double wire_B)
{
    if (p->link == LINK_NIC) return wire_B / (s->nic_B_per_s * s->eff_nic) + nic_hop_s(s, p);
    return wire_B / (s->nvlink_B_per_s * s->eff_nvlink) + s->nvlink_latency_s;
}

double cost_comm_s(const struct cost *c, const struct op *o, const struct work *w)
{
    const struct system *s = &c->job->system;
    const struct place *p = &c->place[o->group];
    switch (o->kind) {
    case OP_SEND: case OP_RECV: return s->kernel_s + p2p_s(s, p, w->wire_B);
    case OP_DISPATCH: case OP_COMBINE: case OP_SWAP:    /* the busiest rank's way in or out */
        return s->kernel_s + alltoall_s(s, p, fmax(w->wire_B, w->write_B * (p->size - 1) / p->size));
    case OP_ALL_REDUCE: case OP_ALL_MAX:
        return s->kernel_s + 2 * ring_latency_s(s, p) + w->wire_B / ring_B_per_s(s, p);
    default: return s->kernel_s + ring_latency_s(s, p) + w->wire_B / ring_B_per_s(s, p);
    }
}
