/* Whose software runs the plan: what the builder may emit, what is kept, which options exist. Settings, never factors
 * per era. `moefold` is what our executor does; stacks named after other software are predicted, searched, exported. */
#ifndef MODELS_STACK_H
#define MODELS_STACK_H
#include "models/cfg.h"
#include <stdint.h>

/* What a plan may choose among; the plan's options are named by the same lists. */
enum schedule   { SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_FWD_BWD };
enum recompute  { RECOMPUTE_MOE_ACT, RECOMPUTE_LAYERNORM, RECOMPUTE_MLA_UP_PROJ, RECOMPUTE_CORE_ATTN, RECOMPUTE_MLP,
                  RECOMPUTE_MOE, RECOMPUTE_SHARED_EXPERTS, RECOMPUTE_FULL };        /* bits 1 << r; FULL is last */
enum cp_comm    { CP_COMM_ALLGATHER, CP_COMM_A2A, CP_COMM_P2P };     /* K and V of all tokens; my heads of all tokens; K and V
                                                                        of a member after the other */
/* A row for every expert of a token, in one all-to-all; or a token once for each rank that holds some of them, which leaves
 * for another NVLink domain once (deepseek-ai/DeepEP and its branch hybrid-ep); or every token to every rank. */
enum dispatcher { DISPATCHER_ALLTOALL, DISPATCHER_DEEPEP, DISPATCHER_HYBRIDEP, DISPATCHER_ALLGATHER };
/* How long routed rows in every order are held: not; until they are combined; until tokens are whole again. */
enum hold_rows { HOLD_ROWS_NONE, HOLD_ROWS_COMBINED, HOLD_ROWS_WHOLE };
/* Vocabulary-parallel cross-entropy. SPLIT: backward turns the logits into their gradient; INPLACE: forward does already;
 * FP32_GRAD: forward makes an fp32 gradient beside them. */
enum cross_entropy { CROSS_ENTROPY_SPLIT, CROSS_ENTROPY_INPLACE, CROSS_ENTROPY_FP32_GRAD };
/* What is captured once and replayed (Megatron-LM --cuda-graph-modules); MOE: also what lies between router and the
 * tokens' return; FULL_LAYER: whole layers; FULL: forward and backward of the whole step. */
enum graph { GRAPH_ATTN, GRAPH_MLP, GRAPH_MOE, GRAPH_MOE_ROUTER, GRAPH_MOE_PREPROCESS, GRAPH_MAMBA, GRAPH_FULL_LAYER,
             GRAPH_FULL };
/* Activations that may wait on the host: inputs that modules keep, all that layers keep; the optimizer's share of states. */
/* Which collectives over replicas go under compute: reductions of gradients, and gathers of parameters; or neither. */
enum dp_overlap { DP_OVERLAP_GRADS, DP_OVERLAP_BOTH, DP_OVERLAP_NONE };
enum offload { OFFLOAD_NONE, OFFLOAD_ATTN_NORM, OFFLOAD_QKV_LINEAR, OFFLOAD_CORE_ATTN, OFFLOAD_ATTN_PROJ, OFFLOAD_MLP_NORM,
               OFFLOAD_EXPERT_FC1, OFFLOAD_MOE_ACT, OFFLOAD_LAYERS, OFFLOAD_OPTIMIZER, OFFLOAD_COUNT };
extern const char *const stack_schedules[], *const stack_recomputes[], *const stack_dispatchers[], *const stack_cp_comms[],
    *const stack_graphs[], *const stack_offloads[], *const stack_dp_overlaps[];

/* What one op of ours is in this software: kernels, and the framework's calls around them (a tensor op that autograd
 * sees, a module, a function in Python: dearer than a launch). each, each_call: of both, more for every local expert.
 * kernels 0: not counted, one kernel on the device and `issue` units of the host's. */
struct stack_launch { double kernels, calls, each, each_call; };
enum { STACK_KINDS = 96 };                  /* at least OP_KIND_COUNT */

struct stack {
    char name[64];
    int32_t runs;                           /* the executor of this program can run it                                */
    int32_t cp_comms;                       /* bit set of enum cp_comm; allgather always                              */
    int32_t schedules, recomputes, dispatchers;     /* bit sets of the enums above                                    */
    int32_t dispatcher;                     /* the default one                                                        */
    int32_t split_wgrad;                    /* BWD_INPUT and BWD_WEIGHT may be separate passes                        */
    int32_t offloads;                       /* bits 1 << enum offload                                                 */
    int32_t offload_smallest;               /* elements of the smallest activation that goes (--min-offloaded-tensor-size)     */
    int32_t fsdp;                           /* parameters may be cut over their replicas                              */
    double capacity;                        /* default factor of a routed buffer's rows; 0: none, rows are the load's */
    int32_t vocab_multiple;                 /* the vocabulary is padded to a multiple of this times tp                */
    double issue;                           /* host time of an op not in `launch`, in units of system.issue_s        */
    struct stack_launch launch[STACK_KINDS];    /* by enum op_kind                                                    */
    double step_s;                          /* of the host at the start of a step: data, counters, logs, schedules    */
    struct stack_launch replay;             /* of a captured region's replay, beside the launch of its graph          */
    int32_t graphs, graph;                  /* bit sets of enum graph: offered; the default                           */
    int32_t graph_scope;                    /* Megatron-LM of 2025: --cuda-graph-scope, not --cuda-graph-modules      */
    int32_t host_reads;                     /* the host waits for the routed sizes                                    */
    int32_t arena;                          /* memory is planned offsets (1) or a framework's allocator (0)           */
    int32_t rings;                          /* of a collective that leaves its domains, each out by one NIC; 0: one a NIC */
    int32_t grad_fp32;                      /* main gradients fp32 also when the plan trains in bf16                  */
    int32_t moe_overlap;                    /* the shared expert runs under the dispatch, FC1's weight gradient under the combine */
    int32_t sync_experts;                   /* exchanges of experts are in order with compute, unless passes are woven */
    int32_t dp_overlap;                     /* enum dp_overlap, the default                                            */
    int32_t tp_overlap;                     /* collectives over tp may go in pieces under products                    */
    int32_t async_tp;                       /* backward gathers a linear's input over tp under its data gradient      */
    /* what it keeps in memory: an OP_HOLD or a buffer of the program each */
    double alloc_round_B;                   /* an allocation is a multiple of this; 0: exactly its bytes              */
    int32_t token_int64;                    /* token ids and labels are int64, not int32                              */
    int32_t norm_stat;                      /* a norm keeps one fp32 a row for backward                               */
    int32_t quantize_norm, quantize_act;    /* norms, activations write copies of low precision themselves            */
    int32_t norm_fused;                     /* a norm before one linear is part of it                                 */
    int32_t split_views;                    /* slices of a latent projection are views of it                          */
    int32_t cross_entropy;                  /* enum cross_entropy                                                     */
    int32_t table_grad;                     /* the input table's gradient is made dense before it is added            */
    int32_t dummy_wgrad;                    /* a cached gradient per distinct weight shape is returned to autograd    */
    double workspace_B;                     /* of linears: one, and `grouped_workspaces` more with grouped GEMMs      */
    int32_t grouped_workspaces;
    double blas_workspace_B;                /* of the framework's GEMMs, forward and backward thread                  */
    int32_t output_gather;                  /* sequence-parallel input of the output layer: a buffer for ever         */
    int32_t rope_cache;                     /* rotary tables are kept                                                 */
    int32_t hold_pipeline;                  /* tensors received and sent are held until the next replaces them        */
    int32_t hold_moe_rows;                  /* enum hold_rows                                                         */
    int32_t router_lists;                   /* masks, indices and maps of the router stay until backward              */
    int32_t keep_fc2;                       /* probabilities are applied to FC2's output, which stays                 */
    double reserve_low, reserve_high;       /* shares that the allocator reserves beyond what is allocated            */
    double data_worker_B;                   /* host memory of a process that loads data (plan.data_workers)           */
    double overhead_B;                      /* what the software itself holds, on top of system.overhead_B            */
};

extern const struct opt stack_opts[];
extern const int stack_n_opt;

/* From a name or path; from a document. ERR_CONFIG also when the default dispatcher is not among the offered. */
enum err stack_read(struct stack *s, struct arena *a, const char *arg, struct diag *d);
enum err stack_fill(struct stack *s, const struct cfg *c, struct diag *d);

#endif
