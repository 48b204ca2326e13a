/* Reads configs/stacks. The lists of names here are also those of the plan's options. */
#include "models/op.h"
#include <stddef.h>

const char *const stack_schedules[] = { "1f1b", "interleaved", "fwd-bwd", NULL };
const char *const stack_recomputes[] = { "moe_act", "layernorm", "mla_up_proj", "core_attn", "mlp", "moe",
                                          "shared_experts", "full", NULL };
const char *const stack_dispatchers[] = { "alltoall", "deepep", "hybridep", "allgather", NULL };
const char *const stack_cp_comms[] = { "allgather", "a2a", "p2p", NULL };
const char *const stack_graphs[] = { "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba", "full-layer", "full",
                                     NULL };
const char *const stack_offloads[] = { "none", "attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm",
                                       "expert_fc1", "moe_act", "layers", "optimizer", NULL };
static const char *const stack_hold_rows[] = { "none", "combined", "whole", NULL };
const char *const stack_dp_overlaps[] = { "grads", "both", "none", NULL };
static const char *const stack_cross_entropies[] = { "split", "inplace", "fp32-grad", NULL };

/* key, type, field, names, unit, lowest, highest, default (0: required), help */
#define STACK_OPTS(X)                                                                                        \
    X("name", TEXT, name, 0, NONE, 0, 0, "", "name in answers; default: of the file")                        \
    X("runs", BOOL, runs, 0, NONE, 0, 1, "0", "1: this program's executor runs it")                          \
    X("schedules", SET, schedules, stack_schedules, NONE, 0, 0, 0,                                           \
      "pipeline schedules offered, such as [1f1b, interleaved]")                                             \
    X("recompute", SET, recomputes, stack_recomputes, NONE, 0, 0, 0,                                         \
      "modules whose activations it can recompute")                                                          \
    X("dispatchers", SET, dispatchers, stack_dispatchers, NONE, 0, 0, 0, "ways to send tokens to experts")   \
    X("dispatcher", NAME, dispatcher, stack_dispatchers, NONE, 0, 0, 0, "the default way")                   \
    X("cp_comm", SET, cp_comms, stack_cp_comms, NONE, 0, 0, "allgather",                                     \
      "ways of context parallelism; allgather always")                                                       \
    X("split_wgrad", BOOL, split_wgrad, 0, NONE, 0, 1, "0",                                                  \
      "1: weight gradients may be passes of their own")                                                      \
    X("offload", SET, offloads, stack_offloads, NONE, 0, 0, "none", "what may wait on the host")             \
    X("offload_smallest", INT, offload_smallest, 0, NONE, 1, 1 << 30, "1048576",                                 \
      "elements of the smallest activation that goes to the host")                                           \
    X("fsdp", BOOL, fsdp, 0, NONE, 0, 1, "0", "1: parameters may be cut over their replicas")                \
    X("capacity", NUMBER, capacity, 0, NONE, 0, 1e4, 0,                                                      \
      "rows of routed buffers over even routing; 0: the load's")                                             \
    X("vocab_multiple", INT, vocab_multiple, 0, NONE, 1, 1024, 0,                                            \
      "the vocabulary is padded to a multiple of this times tp")                                             \
    X("issue", NUMBER, issue, 0, NONE, 0, 1000, 0,                                                           \
      "host time of an op not counted in launch, in units of the system's host.issue")                       \
    X("replay.kernels", NUMBER, replay.kernels, 0, NONE, 0, 1e4, "0", "of each replay, beside its graph")    \
    X("replay.calls", NUMBER, replay.calls, 0, NONE, 0, 1e4, "0", "of the framework, around a replay")       \
    X("graphs", SET, graphs, stack_graphs, NONE, 0, 0, "none", "CUDA graph scopes offered")                  \
    X("graph", SET, graph, stack_graphs, NONE, 0, 0, "none", "the default ones")                             \
    X("graph_scope", BOOL, graph_scope, 0, NONE, 0, 1, "0", "their argument is --cuda-graph-scope; else -modules") \
    X("step", NUMBER, step_s, 0, S, 0, 100, "0 s", "host time of a step beside its ops: data, counters, logs") \
    X("host_reads", BOOL, host_reads, 0, NONE, 0, 1, 0, "1: the host waits for routed row counts")           \
    X("arena", BOOL, arena, 0, NONE, 0, 1, 0, "1: memory is planned offsets; 0: a framework's allocator")    \
    X("moe_overlap", BOOL, moe_overlap, 0, NONE, 0, 1, 0,                                                    \
      "1: shared expert under dispatch, FC1's weight gradient under combine")                                \
    X("sync_experts", BOOL, sync_experts, 0, NONE, 0, 1, "0",                                                \
      "1: exchanges of experts and compute wait for each other, unless two passes are woven")                \
    X("tp_overlap", BOOL, tp_overlap, 0, NONE, 0, 1, "0",                                                    \
      "1: collectives over tp may go in pieces under products")                                              \
    X("async_tp", BOOL, async_tp, 0, NONE, 0, 1, "0",                                                        \
      "1: backward gathers a linear's input under its data gradient")                                        \
    X("dp_overlap", NAME, dp_overlap, stack_dp_overlaps, NONE, 0, 0, "grads",                                \
      "grads: reduced under the last backward; both: and parameters gathered under the first forward")       \
    X("grad_fp32", BOOL, grad_fp32, 0, NONE, 0, 1, 0, "1: main gradients are fp32 in bf16 training")         \
    X("rings", INT, rings, 0, NONE, 0, 1024, "0",                                                            \
      "rings of a collective over several domains, each out by one NIC; 0: one a NIC")                       \
    X("alloc_round", NUMBER, alloc_round_B, 0, B, 0, 1048576, "0 B",                                         \
      "an allocation is a multiple of this; 0: exactly its bytes")                                           \
    X("token_int64", BOOL, token_int64, 0, NONE, 0, 1, "0", "1: token ids and labels are int64, not int32")  \
    X("norm_stat", BOOL, norm_stat, 0, NONE, 0, 1, "0", "1: a norm keeps one fp32 a row for backward")       \
    X("quantize_norm", BOOL, quantize_norm, 0, NONE, 0, 1, "0",                                              \
      "1: norms write fp8 or fp4 copies themselves")                                                         \
    X("quantize_act", BOOL, quantize_act, 0, NONE, 0, 1, "0", "1: activations do, forward and backward")     \
    X("norm_fused", BOOL, norm_fused, 0, NONE, 0, 1, "0", "1: a norm before one linear is part of it")       \
    X("split_views", BOOL, split_views, 0, NONE, 0, 1, "0",                                                  \
      "1: slices of a latent projection are views of it, and it stays whole")                                \
    X("cross_entropy", NAME, cross_entropy, stack_cross_entropies, NONE, 0, 0, "split",                      \
      "split, inplace (gradient in the logits) or fp32-grad (beside them)")                                  \
    X("table_grad", BOOL, table_grad, 0, NONE, 0, 1, "0",                                                    \
      "1: the input table's gradient is made dense before it is added")                                      \
    X("dummy_wgrad", BOOL, dummy_wgrad, 0, NONE, 0, 1, "0",                                                  \
      "1: a gradient per distinct weight shape is kept for autograd")                                        \
    X("workspace", NUMBER, workspace_B, 0, B, 0, 1e12, "0 B", "of linears, kept for ever")                   \
    X("grouped_workspaces", INT, grouped_workspaces, 0, NONE, 0, 64, "0", "more of them with grouped GEMMs") \
    X("blas_workspace", NUMBER, blas_workspace_B, 0, B, 0, 1e12, "0 B",                                      \
      "of the framework's own GEMMs (output layer, router), on each of two threads")                         \
    X("output_gather", BOOL, output_gather, 0, NONE, 0, 1, "0",                                              \
      "1: the output layer's gathered input has a buffer for ever")                                          \
    X("rope_cache", BOOL, rope_cache, 0, NONE, 0, 1, "0", "1: rotary tables are kept")                       \
    X("hold_pipeline", BOOL, hold_pipeline, 0, NONE, 0, 1, "0",                                              \
      "1: what came and went between stages is held until the next replaces it")                             \
    X("hold_moe_rows", NAME, hold_moe_rows, stack_hold_rows, NONE, 0, 0, "none",                             \
      "how long routed rows in all orders are held: none, until combined, or tokens are whole")              \
    X("router_lists", BOOL, router_lists, 0, NONE, 0, 1, "0",                                                \
      "1: the router's masks, indices and maps stay until backward")                                         \
    X("keep_fc2", BOOL, keep_fc2, 0, NONE, 0, 1, "0",                                                        \
      "1: probabilities are applied to FC2's output, which stays until backward")                            \
    X("reserve_low", NUMBER, reserve_low, 0, NONE, 0, 1, "0",                                                \
      "least share that the allocator reserves beyond what is allocated: what must fit")                     \
    X("reserve_high", NUMBER, reserve_high, 0, NONE, 0, 1, "0", "most, where nothing is short")              \
    X("data_worker", NUMBER, data_worker_B, 0, B, 0, 1e15, "0 B", "host memory of a process that loads data")     \
    X("overhead", NUMBER, overhead_B, 0, B, 0, 1e12, 0, "bytes the software holds beside the program")

const struct opt stack_opts[] = {
#define X(k, t, f, n, u, low, high, d, h)                                                                            \
    { .key = k, .type = OPT_##t, .at = offsetof(struct stack, f), .size = sizeof(((struct stack *)0)->f),            \
      .names = n, .unit = UNIT_##u, .lo = low, .hi = high, .def = d, .help = h },
    STACK_OPTS(X)
#undef X
#define LAUNCH(k, f, h)                                                                                              \
    { .key = "launch." #k "." #f, .type = OPT_NUMBER, .at = offsetof(struct stack, launch[OP_##k].f),                \
      .size = sizeof(double), .hi = 1e4, .def = "0", .help = h },
#define X(k, family, io)                                                                                             \
    LAUNCH(k, kernels, "kernels of one; 0: not counted")                                                             \
    LAUNCH(k, calls, "framework calls of one")                                                                       \
    LAUNCH(k, each, "kernels more for each local expert")                                                            \
    LAUNCH(k, each_call, "calls more for each")
    OP_LIST(X)
#undef X
#undef LAUNCH
};
_Static_assert((int)OP_KIND_COUNT <= (int)STACK_KINDS, "every kind has its launches");
const int stack_n_opt = LEN(stack_opts);

static enum err stack_check(const struct stack *s, struct diag *d)
{
    if (s->schedules == 0)
        return fail(d, ERR_CONFIG, "schedules is empty, 1 is needed at least: name one, such as 1f1b");
    if (!(s->dispatchers & 1 << s->dispatcher))
        return fail(d, ERR_CONFIG, "dispatcher = %s is not among the dispatchers: add it there",
                    stack_dispatchers[s->dispatcher]);
    if (s->graph & ~s->graphs)
        return fail(d, ERR_CONFIG, "graph = %d has scopes that graphs = %d lacks: offer them there", s->graph, s->graphs);
    if (s->reserve_high < s->reserve_low)
        return fail(d, ERR_CONFIG, "reserve_high = %g is below reserve_low = %g: swap them", s->reserve_high,
                    s->reserve_low);
    if (s->capacity > 0 && s->capacity < 1)
        return fail(d, ERR_CONFIG,
                    "capacity = %g is below 1: even routing would overflow; use at least 1, or 0 for none",
                    s->capacity);
    return OK;
}

enum err stack_fill(struct stack *s, const struct cfg *c, struct diag *d)
{
    struct stack read = { 0 };
    TRY(cfg_fill(&read, NULL, stack_opts, stack_n_opt, c, d));
    const enum err status = stack_check(&read, d);
    if (status != OK) return cfg_locate(d, status, stack_opts, stack_n_opt, NULL, c);
    if (*read.name == '\0') cfg_stem(read.name, sizeof(read.name), c->name);
    *s = read;
    return OK;
}

enum err stack_read(struct stack *s, struct arena *a, const char *arg, struct diag *d)
{
    struct cfg c;
    TRY(cfg_read_named(&c, a, "stacks", arg, d));
    return stack_fill(s, &c, d);
}
