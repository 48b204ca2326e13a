/* Reads configs/systems: what a machine is, in plain constants with units. */
#include "models/system.h"
#include "models/op.h"
#include <stddef.h>

/* key, type, field, unit, lowest, highest, default (0: required), help */
#define SYSTEM_OPTS(X)                                                                                       \
    X("name", TEXT, name, NONE, 0, 0, "", "name in answers; default: of the file")                           \
    X("gpu.memory", NUMBER, memory_B, B, 1e6, 1e15, 0, "device memory in total, such as 80 GiB")             \
    X("gpu.hbm_bandwidth", NUMBER, hbm_B_per_s, B_PER_S, 1e6, 1e16, 0,                                       \
      "memory bandwidth, such as 3.35 TB/s")                                                                 \
    X("gpu.peak.fp32", NUMBER, peak_flop_per_s[DT_F32], FLOP_PER_S, 0, 1e19, "0 FLOP/s", "dense fp32 peak")  \
    X("gpu.peak.bf16", NUMBER, peak_flop_per_s[DT_BF16], FLOP_PER_S, 0, 1e19, "0 FLOP/s",                    \
      "dense bf16 peak; 0: none")                                                                            \
    X("gpu.peak.fp8", NUMBER, peak_flop_per_s[DT_FP8], FLOP_PER_S, 0, 1e19, "0 FLOP/s",                      \
      "dense fp8 peak; 0: none")                                                                             \
    X("gpu.peak.fp4", NUMBER, peak_flop_per_s[DT_FP4], FLOP_PER_S, 0, 1e19, "0 FLOP/s",                      \
      "dense fp4 peak; 0: none")                                                                             \
    X("gpu.block_scaled", BOOL, block_scaled, NONE, 0, 1, "0",                                               \
      "1: tensor cores scale by block and take fp8 along any axis")                                          \
    X("gpu.gemm_efficiency.fp32", NUMBER, eff_gemm[DT_F32], NONE, 0, 1, "0",                                 \
      "fraction of the peak that large GEMMs sustain")                                                       \
    X("gpu.gemm_efficiency.bf16", NUMBER, eff_gemm[DT_BF16], NONE, 0, 1, "0", "the same in bf16")            \
    X("gpu.gemm_efficiency.fp8", NUMBER, eff_gemm[DT_FP8], NONE, 0, 1, "0", "the same in fp8")               \
    X("gpu.gemm_efficiency.fp4", NUMBER, eff_gemm[DT_FP4], NONE, 0, 1, "0", "the same in fp4")               \
    X("gpu.grouped_efficiency.fp32", NUMBER, eff_grouped[DT_F32], NONE, 0, 1, "0",                           \
      "fraction of the peak that grouped GEMMs sustain")                                                     \
    X("gpu.grouped_efficiency.bf16", NUMBER, eff_grouped[DT_BF16], NONE, 0, 1, "0", "the same in bf16")      \
    X("gpu.grouped_efficiency.fp8", NUMBER, eff_grouped[DT_FP8], NONE, 0, 1, "0", "the same in fp8")         \
    X("gpu.grouped_efficiency.fp4", NUMBER, eff_grouped[DT_FP4], NONE, 0, 1, "0", "the same in fp4")         \
    X("gpu.attention_efficiency.fwd", NUMBER, eff_attention_fwd, NONE, 1e-6, 1, 0,                           \
      "causal attention forward, fraction of the bf16 peak")                                                 \
    X("gpu.attention_efficiency.bwd", NUMBER, eff_attention_bwd, NONE, 1e-6, 1, 0,                           \
      "causal attention backward, fraction of the bf16 peak")                                                \
    X("gpu.memory_efficiency", NUMBER, eff_memory, NONE, 1e-6, 1, 0,                                         \
      "fraction of hbm_bandwidth that memory-bound ops reach")                                               \
    X("gpu.kernel_floor", NUMBER, kernel_s, S, 0, 1, 0,                                                      \
      "least time of one kernel on the device, such as 3 us")                                                \
    X("gpu.sms", INT, sms, NONE, 1, 4096, "1", "multiprocessors")                                            \
    X("gpu.gemm_ramp.fp32", NUMBER, ramp_gemm[DT_F32], NONE, 0, 1e5, "0",                                    \
      "inner size of a product whose time comes on top")                                                     \
    X("gpu.gemm_ramp.bf16", NUMBER, ramp_gemm[DT_BF16], NONE, 0, 1e5, "0", "the same in bf16")               \
    X("gpu.gemm_ramp.fp8", NUMBER, ramp_gemm[DT_FP8], NONE, 0, 1e5, "0", "the same in fp8")                  \
    X("gpu.gemm_ramp.fp4", NUMBER, ramp_gemm[DT_FP4], NONE, 0, 1e5, "0", "the same in fp4")                  \
    X("gpu.gemm_bytes_efficiency", NUMBER, eff_gemm_bytes, NONE, 0, 1, "0",                                  \
      "fraction of hbm_bandwidth for operands of products; 0: memory_efficiency")                            \
    X("gpu.gemm_exposed", NUMBER, exposed_gemm, NONE, 0, 1, "0",                                             \
      "share of the lesser of arithmetic and bytes that a product does not hide")                            \
    X("gpu.grouped_exposed", NUMBER, exposed_grouped, NONE, 0, 1, "0", "the same of grouped products")       \
    X("gpu.expert_floor", NUMBER, expert_s, S, 0, 1, "0 s", "of a grouped product, for each expert")         \
    X("gpu.attention_rows.fwd", NUMBER, attention_rows.fwd, NONE, 0, 4096, "0",                              \
      "query rows that one multiprocessor works off alone; 0: work spreads evenly")                          \
    X("gpu.attention_rows.bwd", NUMBER, attention_rows.bwd, NONE, 0, 4096, "0", "the same backward")         \
    X("gpu.attention_wide.fwd", NUMBER, attention_wide.fwd, NONE, -1, 1, "0",                                \
      "efficiency falls as (128 / d)^wide for heads of d > 128")                                             \
    X("gpu.attention_wide.bwd", NUMBER, attention_wide.bwd, NONE, -1, 1, "0", "the same backward")           \
    X("gpu.attention_narrow", NUMBER, attention_narrow, NONE, 0, 1, "0",                                     \
      "efficiency falls as (d / 128)^narrow for heads of d < 128")                                           \
    X("gpu.attention_bytes.fwd", NUMBER, attention_bytes.fwd, NONE, 0, 8, "0",                               \
      "share of the time of its bytes that comes on top")                                                    \
    X("gpu.attention_bytes.bwd", NUMBER, attention_bytes.bwd, NONE, 0, 8, "0", "the same backward")          \
    X("gpu.permute_efficiency", NUMBER, eff_permute, NONE, 0, 1, "0",                                        \
      "fraction of hbm_bandwidth that permutes reach; 0: memory_efficiency")                                 \
    X("gpu.scan_efficiency", NUMBER, eff_scan, NONE, 0, 1, "0",                                              \
      "fraction of hbm_bandwidth that Mamba's scans reach; 0: memory_efficiency")                            \
    X("gpu.optimizer_efficiency", NUMBER, eff_optimizer, NONE, 0, 1, "0",                                    \
      "fraction of hbm_bandwidth that updates of weights reach; 0: memory_efficiency")                       \
    X("gpu.measured.gemm.from", NUMBER, gemm_flop.from, NONE, 0, 1e20, "0", "FLOP of the least one measured") \
    X("gpu.measured.gemm.to", NUMBER, gemm_flop.to, NONE, 0, 1e20, "0", "of the largest; 0: none measured")  \
    X("gpu.measured.grouped.from", NUMBER, grouped_flop.from, NONE, 0, 1e20, "0", "of grouped ones")         \
    X("gpu.measured.grouped.to", NUMBER, grouped_flop.to, NONE, 0, 1e20, "0", "of grouped ones")             \
    X("gpu.measured.attention.from", NUMBER, attention_flop.from, NONE, 0, 1e20, "0", "of attention forward") \
    X("gpu.measured.attention.to", NUMBER, attention_flop.to, NONE, 0, 1e20, "0", "of attention forward")    \
    X("gpu.overhead", NUMBER, overhead_B, B, 0, 1e15, 0, "context, communicators, workspaces on each GPU")   \
    X("gpu.per_host", INT, gpus_per_host, NONE, 1, 1024, 0, "GPUs under one operating system")               \
    X("nvlink.domain", INT, domain, NONE, 1, 65536, 0, "GPUs in one NVLink domain")                          \
    X("nvlink.bandwidth", NUMBER, nvlink_B_per_s, B_PER_S, 1e3, 1e16, 0,                                     \
      "per GPU and direction, such as 450 GB/s")                                                             \
    X("nvlink.latency", NUMBER, nvlink_latency_s, S, 0, 1, 0, "of one step to a peer, such as 2 us")         \
    X("nvlink.efficiency", NUMBER, eff_nvlink, NONE, 1e-6, 1, 0, "fraction that ring collectives reach")     \
    X("nvlink.alltoall_efficiency", NUMBER, eff_nvlink_alltoall, NONE, 1e-6, 1, 0,                           \
      "fraction that alltoall reaches")                                                                      \
    X("nvlink.nvls_efficiency", NUMBER, eff_nvls, NONE, 0, 1, "0",                                           \
      "of an all-reduce that switches add up; 0: there is none")                                             \
    X("nvlink.nvls_fill", NUMBER, nvls_fill_B, B, 0, 1e12, "0 B",                                            \
      "of each GPU in that all-reduce's pipe; 0: counted in the ramp")                                       \
    X("nvlink.call", NUMBER, nvlink_call_s, S, 0, 1, "0 s", "of each collective")                            \
    X("nvlink.ramp", NUMBER, ramp_s, S, 0, 1, "0 s", "most that a hop loses until its pipe is full")                      \
    X("nvlink.ramp_bytes", NUMBER, ramp_B, B, 0, 1e12, "0 B", "sent, at which half of it is lost")           \
    X("nic.bandwidth", NUMBER, nic_B_per_s, B_PER_S, 1e3, 1e16, 0,                                           \
      "per GPU and direction, such as 400 Gb/s")                                                             \
    X("nic.latency", NUMBER, nic_latency_s, S, 0, 1, 0, "of one step to a peer in another domain")           \
    X("nic.efficiency", NUMBER, eff_nic, NONE, 1e-6, 1, 0, "fraction that ring collectives reach")           \
    X("nic.alltoall_efficiency", NUMBER, eff_nic_alltoall, NONE, 1e-6, 1, 0,                                 \
      "fraction that alltoall reaches")                                                                      \
    X("nic.ramp", NUMBER, nic_ramp_s, S, 0, 1, "0 s", "the same between domains, of each pass")           \
    X("exchange.nvlink_efficiency.dispatch", NUMBER, exchange.eff_nvlink.dispatch, NONE, 0, 1, "0",          \
      "of kernels that send a token once to each target; 0: as alltoall")                                    \
    X("exchange.nvlink_efficiency.combine", NUMBER, exchange.eff_nvlink.combine, NONE, 0, 1, "0", "back")    \
    X("exchange.nic_efficiency.dispatch", NUMBER, exchange.eff_nic.dispatch, NONE, 0, 1, "0", "between domains") \
    X("exchange.nic_efficiency.combine", NUMBER, exchange.eff_nic.combine, NONE, 0, 1, "0", "back")          \
    X("exchange.sm_rate.dispatch", NUMBER, exchange.dispatch_B_per_s, B_PER_S, 0, 1e16, "0 B/s",             \
      "bytes that one SM of the kernel sends; 0: no bound")                                                  \
    X("exchange.sm_rate.dispatch_fp8", NUMBER, exchange.dispatch_fp8_B_per_s, B_PER_S, 0, 1e16, "0 B/s", "in fp8") \
    X("exchange.sm_rate.combine", NUMBER, exchange.combine_B_per_s, B_PER_S, 0, 1e16, "0 B/s", "back")       \
    X("exchange.deepep.dispatch", NUMBER, exchange.deepep.dispatch, NONE, 1e-3, 10, "1",                     \
      "DeepEP's rate of an SM over HybridEP's")                                                              \
    X("exchange.deepep.combine", NUMBER, exchange.deepep.combine, NONE, 1e-3, 10, "1", "back")               \
    X("exchange.call.dispatch", NUMBER, exchange.call_s.dispatch, S, 0, 1, "0 s",                            \
      "of the framework's call around the kernel")                                                           \
    X("exchange.call.combine", NUMBER, exchange.call_s.combine, S, 0, 1, "0 s", "back")                      \
    X("nic.rail_hop", NUMBER, rail_hop_s, S, 0, 1, "0 s", "added between GPUs on different rails")           \
    X("step.gemm.fp32", NUMBER, step.gemm[DT_F32], NONE, 0.01, 4, "1", "share of a bare product's fp32 rate left in a step")\
    X("step.gemm.bf16", NUMBER, step.gemm[DT_BF16], NONE, 0.01, 4, "1", "the same in bf16")                  \
    X("step.gemm.fp8", NUMBER, step.gemm[DT_FP8], NONE, 0.01, 4, "1", "the same in fp8")                     \
    X("step.gemm.fp4", NUMBER, step.gemm[DT_FP4], NONE, 0.01, 4, "1", "the same in fp4")                     \
    X("step.grouped", NUMBER, step.grouped, NONE, 0.01, 4, "1", "and of grouped products, on top")           \
    X("step.attention", NUMBER, step.attention, NONE, 0.01, 4, "1", "of attention's rate")                   \
    X("step.memory", NUMBER, step.memory, NONE, 0.01, 4, "1", "of the bandwidth of memory-bound ops")        \
    X("step.scan", NUMBER, step.scan, NONE, 0.01, 4, "1", "of the bandwidth of Mamba's scans")               \
    X("step.optimizer", NUMBER, step.optimizer, NONE, 0.01, 4, "1", "of the bandwidth of weight updates")    \
    X("step.nvlink", NUMBER, step.nvlink, NONE, 0.01, 4, "1", "of the bandwidth of collectives on NVLink")   \
    X("step.nic", NUMBER, step.nic, NONE, 0.01, 4, "1", "of the same on NICs")                               \
    X("step.exchange", NUMBER, step.exchange, NONE, 0.01, 4, "1", "of the bandwidth of dispatch, combine")     \
    X("host.link", NUMBER, host_link_B_per_s, B_PER_S, 1e3, 1e16, 0,                                         \
      "GPU to host memory, per GPU and direction")                                                           \
    X("host.memory", NUMBER, host_memory_B, B, 0, 1e15, 0, "host memory for each GPU")                       \
    X("host.update", NUMBER, host_update_B_per_s, B_PER_S, 0, 1e16, "0 B/s",                                 \
      "host memory read and written by AdamW on the host, per GPU; 0: unknown")                              \
    X("host.issue", NUMBER, issue_s, S, 0, 1, 0, "host time to launch one kernel")                           \
    X("host.call", NUMBER, call_s, S, 0, 1, "0 s", "of one call of a Python framework; 0: as a launch")      \
    X("host.graph", NUMBER, graph_s, S, 0, 1, "0 s", "to launch a captured graph; 0: as a kernel")           \
    X("host.next", NUMBER, next_s, S, 0, 1, "0 s", "between two ops of a stream, of what runs them")         \
    X("host.wake", NUMBER, wake_s, S, 0, 1, "0 s",                                                           \
      "from the end of an op until another stream, or the host, that waits for it goes on")                  \
    X("host.cache", NUMBER, cache_B, B, 0, 1e15, "0 B", "where ranks are a CPU's: the last cache, which they share; 0: none") \
    X("price", NUMBER, price_usd_per_h, USD_PER_H, 0, 1e6, "0 USD/h", "per GPU-hour; 0: unknown")

const struct opt system_opts[] = {
#define X(k, t, f, u, low, high, d, h)                                                                               \
    { .key = k, .type = OPT_##t, .at = offsetof(struct system, f), .size = sizeof(((struct system *)0)->f),          \
      .unit = UNIT_##u, .lo = low, .hi = high, .def = d, .help = h },
    SYSTEM_OPTS(X)
#undef X
#define OP(k, f, to, u, high, d, h)                                                                                     \
    { .key = "op." #k "." #f, .type = OPT_NUMBER, .at = offsetof(struct system, op[OP_##k].to),                         \
      .size = sizeof(double), .unit = UNIT_##u, .hi = high, .def = d, .help = h },
#define X(k, family, io)                                                                                             \
    OP(k, floor, floor_s, S, 1, "0 s", "measured: of one, of no size")                                                        \
    OP(k, rate, B_per_s, B_PER_S, 1e16, "0 B/s", "measured: its bytes, on top; 0: none")                                      \
    OP(k, flops, flop_per_s, FLOP_PER_S, 1e19, "0 FLOP/s", "measured: its FLOP, on top; 0: none")                                \
    OP(k, each, each_s, S, 1, "0 s", "measured: an expert, a score, a run of a norm, an angle, a cold byte, on top")
    OP_LIST(X)
#undef X
#undef OP
};
_Static_assert((int)OP_KIND_COUNT <= (int)SYSTEM_KINDS, "every kind has its prices");
const int system_n_opt = LEN(system_opts);

void system_in_step(struct system *s)
{
    const struct system_step in = s->step;
    struct system_exchange *x = &s->exchange;
    s->eff_scan = (s->eff_scan > 0 ? s->eff_scan : s->eff_memory) * in.scan;
    s->eff_optimizer = (s->eff_optimizer > 0 ? s->eff_optimizer : s->eff_memory) * in.optimizer;
    for (int t = 0; t < DT_COUNT; t++) {
        s->eff_gemm[t] *= in.gemm[t];
        s->eff_grouped[t] *= in.gemm[t] * in.grouped;
        s->step.gemm[t] = 1;
    }
    const struct { double *at, share; } moved[] = {
        { &s->eff_attention_fwd, in.attention }, { &s->eff_attention_bwd, in.attention }, { &s->eff_memory, in.memory },
        { &s->eff_permute, in.memory }, { &s->eff_nvlink, in.nvlink }, { &s->eff_nvls, in.nvlink }, { &s->eff_nic, in.nic },
        { &s->eff_nvlink_alltoall, in.exchange }, { &s->eff_nic_alltoall, in.exchange },
        { &x->eff_nvlink.dispatch, in.exchange }, { &x->eff_nvlink.combine, in.exchange },
        { &x->eff_nic.dispatch, in.exchange }, { &x->eff_nic.combine, in.exchange },
        { &x->dispatch_B_per_s, in.exchange }, { &x->dispatch_fp8_B_per_s, in.exchange },
        { &x->combine_B_per_s, in.exchange },
    };
    for (int i = 0; i < LEN(moved); i++) *moved[i].at *= moved[i].share;
    s->step.grouped = s->step.attention = s->step.memory = s->step.scan = s->step.optimizer = 1;
    s->step.nvlink = s->step.nic = s->step.exchange = 1;
}

enum err system_check(const struct system *s, struct diag *d)
{
    for (int t = 0; t < DT_COUNT; t++) {
        if (s->peak_flop_per_s[t] == 0) continue;
        if (s->eff_gemm[t] == 0)
            return fail(d, ERR_CONFIG, "gpu.gemm_efficiency.%s = 0 beside a peak: give a fraction above 0",
                        dtype_name((enum dtype)t));
        if (s->eff_grouped[t] == 0)
            return fail(d, ERR_CONFIG, "gpu.grouped_efficiency.%s = 0 beside a peak: give a fraction above 0",
                        dtype_name((enum dtype)t));
    }
    if (s->peak_flop_per_s[DT_F32] == 0)
        return fail(d, ERR_CONFIG,
                    "gpu.peak.fp32 = 0 FLOP/s: router and optimizer run in fp32, give its dense peak");
    if (s->domain % s->gpus_per_host != 0)
        return fail(d, ERR_CONFIG,
                    "nvlink.domain = %d is not a multiple of gpu.per_host = %d: a host lies in one domain",
                    s->domain, s->gpus_per_host);
    return OK;
}

enum err system_fill(struct system *s, const struct cfg *c, struct diag *d)
{
    struct system read = { 0 };
    TRY(cfg_fill(&read, NULL, system_opts, system_n_opt, c, d));
    const enum err status = system_check(&read, d);
    if (status != OK) return cfg_locate(d, status, system_opts, system_n_opt, NULL, c);
    if (*read.name == '\0') cfg_stem(read.name, sizeof(read.name), c->name);
    *s = read;
    return OK;
}

enum err system_read(struct system *s, struct arena *a, const char *arg, struct diag *d)
{
    struct cfg c;
    TRY(cfg_read_named(&c, a, "systems", arg, d));
    return system_fill(s, &c, d);
}
