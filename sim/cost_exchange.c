/* Dispatch and combine kernels that send a token once to each distinct target (DeepEP, HybridEP): a
 * persistent kernel on a few multiprocessors moves the bytes, so three rates bound it at once: of those
 * multiprocessors, of NVLink and of the NIC. The two hops of a token overlap, but not wholly: at two domains,
 * where both take long, HybridEP needs more than the longer and less than their sum. Each peer costs a
 * message, the framework's call around the kernel (metadata, permute) its own time. */
#include "sim/cost.h"
#include <math.h>

/* Bytes that one multiprocessor moves in a second; 0: no bound. DeepEP 2 is written with TMA, 50 GB/s a
 * multiprocessor by its own rule for how many it needs (deepseek-ai/DeepEP, buffers/elastic.py). */
static double sm_B_per_s(const struct system_exchange *e, const struct exchange *x)
{
    const double hybrid = x->combine ? e->combine_B_per_s : x->fp8 ? e->dispatch_fp8_B_per_s : e->dispatch_B_per_s;
    switch (x->kernel) {
    case EXCHANGE_DEEPEP2: return 50e9;
    case EXCHANGE_DEEPEP: return hybrid * (x->combine ? e->deepep.combine : e->deepep.dispatch);
    default: return hybrid;
    }
}

static struct cost_links exchange_links(const struct system *s, const struct exchange *x)
{
    const struct system_exchange *e = &s->exchange;
    const double eff_nvlink = x->combine ? e->eff_nvlink.combine : e->eff_nvlink.dispatch;
    const double eff_nic = x->combine ? e->eff_nic.combine : e->eff_nic.dispatch;
    const double nvlink = s->nvlink_B_per_s * (eff_nvlink > 0 ? eff_nvlink : s->eff_nvlink_alltoall);
    const double nic = s->nic_B_per_s * (eff_nic > 0 ? eff_nic : s->eff_nic_alltoall);
    return (struct cost_links){ x->nvlink_B / nvlink, x->nic_B / nic };
}

double cost_exchange_s(const struct system *s, const struct exchange *x)
{
    const struct system_exchange *e = &s->exchange;
    const double rate = sm_B_per_s(e, x) * x->sms;
    const double sm_s = rate > 0 ? x->target_B / rate : 0;
    const struct cost_links l = exchange_links(s, x);
    const double call_s = !x->called ? 0 : x->combine ? e->call_s.combine : e->call_s.dispatch;
    return s->kernel_s + x->peers * s->nvlink_latency_s + call_s + hypot(fmax(sm_s, l.nvlink_s), l.nic_s);
}

/* Megatron-LM transformer_config.py, moe_deepep_num_sms and moe_hybridep_num_sms. */
int cost_exchange_sms(const struct cost *c)
{
    return c->job->plan.dispatcher == DISPATCHER_DEEPEP ? 20 : 16;
}

struct exchange cost_exchange_of(const struct cost *c, const struct op *o, const struct work *w)
{
    const struct place *p = &c->place[o->group];
    const int deepep = c->job->plan.dispatcher == DISPATCHER_DEEPEP;
    struct exchange x = { .kernel = deepep ? EXCHANGE_DEEPEP : EXCHANGE_HYBRIDEP, .sms = cost_exchange_sms(c),
                          .peers = p->size - 1, .combine = o->kind == OP_COMBINE_TOKENS };
    x.target_B = w->wire_B * p->size / (p->size - 1);
    if (p->domains <= 1) {
        x.nvlink_B = w->wire_B;
        return x;
    }
    x.nvlink_B = x.target_B * (1 - (double)p->domains / p->size);
    x.nic_B = x.target_B / c->pr->targets * c->domain_targets * (1 - 1.0 / p->domains);
    return x;
}

/* The permute kernel reads every token that arrived and writes its rows; going back it adds them up. */
double cost_tokens_s(const struct cost *c, const struct op *o, const struct work *w)
{
    const struct exchange x = cost_exchange_of(c, o, w);
    const struct work permute = { .read_B = x.combine ? w->read_B : x.target_B, .write_B = x.combine ? x.target_B : w->write_B };
    return cost_exchange_s(&c->job->system, &x) + cost_memory_s(c, OP_PERMUTE, &permute);
}

struct cost_links cost_tokens_links(const struct cost *c, const struct op *o, const struct work *w)
{
    const struct exchange x = cost_exchange_of(c, o, w);
    return exchange_links(&c->job->system, &x);
}
