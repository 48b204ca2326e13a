/* Collectives and p2p: the bytes that leave one rank over the bandwidth of the links they take, and a
 * latency. Waiting for peers is not a price. Ring and all-to-all differ in what crosses between NVLink
 * domains. Links are an op's own: nic.bandwidth is each GPU's part of its host's NICs, so groups of one kind, which
 * all run at once, have theirs; what ops of different kinds take from each other is --contention's (sim_heap.h). */
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

/* A ring crosses each domain's border once, through the NIC of the GPU where it leaves; with k members in a
 * domain there are k such rings, one a NIC (NCCL src/graph/search.cc: one ring a channel, one NIC a channel
 * and domain). So the border passes k NICs' worth and NVLink carries the rest: the slower of the two. `rings`: fewer of
 * them, of software that makes fewer (stack.rings); 0: one a NIC. */
static struct cost_links ring_links(const struct system *s, const struct place *p, int rings, double wire_B)
{
    const int nics = rings && rings < p->in_domain ? rings : p->in_domain;
    struct cost_links l = { 0 };
    if (p->domains <= 1 || p->in_domain > 1) l.nvlink_s = wire_B / (s->nvlink_B_per_s * s->eff_nvlink);
    if (p->domains > 1) l.nic_s = wire_B / (nics * s->nic_B_per_s * s->eff_nic);
    return l;
}

/* The faster of a ring and, inside a domain, of NVLS, where a rank sends its buffer once and the switch sends
 * each rank's share of the sum back through all: n + 1 of the buffer's n parts instead of 2 (n - 1) (NCCL
 * src/transport/nvls.cc). A ring wins on 2 to 4 GPUs, NVLS on more. Its pipe holds a chunk of every channel for
 * every GPU: one of 72 takes 0.5 ms to fill. */
static struct cost_links allreduce_links(const struct system *s, const struct place *p, int rings, double wire_B)
{
    const struct cost_links ring = ring_links(s, p, rings, wire_B);
    if (s->eff_nvls <= 0 || p->domains > 1) return ring;
    const double nvls_B = wire_B * (p->size + 1) / (2.0 * (p->size - 1));
    const double pipe_B = p->size * s->nvls_fill_B, fill_B = pipe_B > 0 ? pipe_B * nvls_B / (pipe_B + nvls_B) : 0;
    return (struct cost_links){ .nvlink_s = fmin(ring.nvlink_s, (nvls_B + fill_B) / (s->nvlink_B_per_s * s->eff_nvls)) };
}

/* What a collective of that many passes over the ring takes besides its bytes. The pipe of each hop fills as
 * bytes grow: NCCL's own model is 1.2 to 2 times too fast from 1 to 64 MB and right at 1 GB (measured on
 * A100, H100, H200 and GB200, Azure AI-benchmarking-guide); a loss that saturates meets these within 5 %. */
static double passes_s(const struct system *s, const struct place *p, double wire_B, int passes)
{
    const int near = hops(p->domains > 1 ? p->in_domain : p->size);
    const double most_s = passes * (near * s->ramp_s + (p->domains > 1 ? s->nic_ramp_s : 0));
    const double ramp_s = most_s > 0 && wire_B > 0 ? most_s * wire_B / (wire_B + s->ramp_B) : 0;
    return s->kernel_s + s->nvlink_call_s + passes * ring_latency_s(s, p) + ramp_s;
}

/* Of the bytes that a rank sends to its n - 1 peers, (n - k) / (n - 1) leave its domain through its own NIC,
 * the rest stays on NVLink; both go at once. */
static struct cost_links alltoall_links(const struct system *s, const struct place *p, double wire_B)
{
    const double peers = p->size - 1, local = p->domains > 1 ? p->in_domain - 1 : peers;
    struct cost_links l = { .nvlink_s = wire_B * local / peers / (s->nvlink_B_per_s * s->eff_nvlink_alltoall) };
    if (p->domains > 1) l.nic_s = wire_B * (peers - local) / peers / (s->nic_B_per_s * s->eff_nic_alltoall);
    return l;
}

static struct cost_links p2p_links(const struct system *s, const struct place *p, double wire_B)
{
    if (p->link == LINK_NIC) return (struct cost_links){ .nic_s = wire_B / (s->nic_B_per_s * s->eff_nic) };
    return (struct cost_links){ .nvlink_s = wire_B / (s->nvlink_B_per_s * s->eff_nvlink) };
}

struct cost_links cost_comm_links(const struct cost *c, const struct op *o, const struct work *w)
{
    const struct system *s = &c->job->system;
    const struct place *p = &c->place[o->group];
    const int rings = c->job->stack.rings;
    switch (o->kind) {
    case OP_SEND: case OP_RECV: case OP_SHIFT: return p2p_links(s, p, w->wire_B);
    case OP_DISPATCH: case OP_COMBINE: case OP_SWAP:    /* the busiest rank's way in or out */
        return alltoall_links(s, p, fmax(w->wire_B, w->write_B * (p->size - 1) / p->size));
    case OP_DISPATCH_TOKENS: case OP_COMBINE_TOKENS: return cost_tokens_links(c, o, w);
    case OP_ALL_REDUCE: case OP_ALL_MAX: return allreduce_links(s, p, rings, w->wire_B);
    default: return ring_links(s, p, rings, w->wire_B);
    }
}

/* Every peer of an all-to-all costs one message (GB200: 735 us to 8 ranks and 930 us to 64 for the same bytes,
 * arXiv 2603.07685 table 7: 1.5 us a peer). */
double cost_comm_s(const struct cost *c, const struct op *o, const struct work *w)
{
    const struct system *s = &c->job->system;
    const struct place *p = &c->place[o->group];
    if (o->kind == OP_DISPATCH_TOKENS || o->kind == OP_COMBINE_TOKENS) return cost_tokens_s(c, o, w);
    const struct cost_links l = cost_comm_links(c, o, w);
    const double bytes_s = fmax(l.nvlink_s, l.nic_s), messages_s = (p->size - 1) * s->nvlink_latency_s;
    switch (o->kind) {
    case OP_SEND: case OP_RECV: case OP_SHIFT:
        return s->kernel_s + (bytes_s + (p->link == LINK_NIC ? nic_hop_s(s, p) : s->nvlink_latency_s));
    case OP_DISPATCH: case OP_COMBINE: case OP_SWAP:
        return s->kernel_s + (bytes_s + messages_s + (p->domains > 1 ? nic_hop_s(s, p) : 0));
    case OP_ALL_REDUCE: case OP_ALL_MAX: return passes_s(s, p, w->wire_B, 2) + bytes_s;
    default: return passes_s(s, p, w->wire_B, 1) + bytes_s;
    }
}
