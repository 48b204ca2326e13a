/* One set of GPUs, folded twice: once for attention (tp x cp x dp x pp), once for experts (etp x ep x edp x pp).
 * Plain data. plan_resolve fills what follows from the rest; plan_check refuses what cannot be, each rule in its own
 * words, with both numbers and the way out (Megatron-LM parallel_state.py, schedules.py; cases C01-C12). */
#ifndef MODELS_PLAN_H
#define MODELS_PLAN_H
#include "models/layout.h"
#include "models/model.h"
#include "models/recipe.h"
#include "models/routing.h"
#include "models/stack.h"
#include "models/system.h"

enum order     { ORDER_TP_CP_EP_DP_PP, ORDER_TP_CP_EP_PP_DP };      /* leftmost varies fastest */
enum optimizer { OPTIMIZER_ADAMW, OPTIMIZER_SGD };
enum state_type { STATE_FP32, STATE_BF16, STATE_FP8 };     /* of main gradients (not FP8), of moments     */
enum lr_decay { LR_DECAY_CONSTANT, LR_DECAY_COSINE, LR_DECAY_WSD };     /* after the warm-up (exec/lr.h)          */
enum master    { MASTER_FP32, MASTER_REMAINDER };           /* REMAINDER: the low 16 bits; bf16 weights are the high ones */

enum balance_loss { BALANCE_NONE, BALANCE_AUX, BALANCE_SEQ_AUX };     /* scope: a micro-batch, each sequence */
struct plan {
    char model[192], system[192], stack[192];       /* names of embedded files, or paths; stack "": the default  */
    int32_t gpus, tp, cp, pp, vpp, etp, ep;
    int32_t order;                                  /* enum order                                                */
    char layout[512];                               /* Megatron string, "auto", or layers per chunk "1,2,2,3"    */
    int32_t schedule;                               /* enum schedule, -1: from vpp and ep_overlap                */
    int32_t vpp_group;                              /* micro-batches in a row on one chunk; 0: pp                */
    int32_t mbs, gbs, seq;                          /* sequences; tokens per sequence                            */
    int32_t precision, optimizer;
    int32_t grads, moments, master;                 /* enum state_type (grads -1: the stack's), enum master      */
    int32_t fp8_param_gather;                       /* weights of low products have no bf16 original             */
    int32_t high_first, high_last;                  /* layers at either end whose products take no copies        */
    int32_t recompute;                              /* bits 1 << enum recompute                                  */
    char offload[128];                              /* what the host keeps: "none", or layers:N, modules, optimizer:F */
    int32_t fsdp;                                   /* parameters and gradients are cut over replicas too        */
    int32_t cp_comm;                                /* enum cp_comm                                              */
    int32_t packed, eod, document;                  /* bits 1 << enum packed; -1: the index's documents; tokens of one,
                                                       for predictions, 0: a sequence                            */
    int32_t dispatcher, ep_overlap, split_wgrad;    /* dispatcher -1: the stack's                                */
    int32_t graph;                                  /* bits 1 << enum graph; -1: the stack's                     */
    int32_t dp_overlap;                             /* enum dp_overlap; -1: the stack's                          */
    int32_t tp_overlap;                             /* gathers and scatters over tp in pieces under their products */
    int32_t sp;                                     /* sequence parallel; -1: when tp > 1                        */
    int32_t mtp;                                    /* -1: as in the model                                       */
    int32_t layers;                                 /* the model's first ones only; 0: all                       */
    double capacity;                                /* 0: the stack's; PLAN_CAPACITY_WORST: worst                */
    char load[192];                                 /* routing, as routing.h spells it                           */
    int32_t vocab_extra;                            /* entries that the tokenizer adds to the model's            */
    int32_t data_workers;                           /* processes beside each rank that load data, on the host    */
    int32_t domain_gpus;                            /* GPUs used of each NVLink domain; 0: chosen                */
    int32_t balance;                                /* enum balance_loss                                         */
    double aux_loss, z_loss;                        /* their coefficients                                        */
    double lr, weight_decay, beta1, beta2, adam_eps, clip;      /* of the optimizer; clip 0: none                */
    int32_t lr_decay, lr_warmup, lr_steps;          /* enum lr_decay; steps; steps at whose end it is done, 0: of the run */
    double lr_min, lr_cooldown;                     /* at the end, over lr; wsd: the part of lr_steps that decays  */
    int32_t seed;
    /* resolved */
    int32_t dp, edp, n_micro;                       /* per pipeline: micro-batches in a step                     */
    int32_t vocab_padded;                           /* model's and vocab_extra, padded                           */
    int32_t offload_layers, offload_modules;        /* of `offload`: first layers; bits 1 << enum offload        */
    double offload_optimizer;                       /* share of parameters that the host updates                 */
    struct layout split;                            /* layout, parsed or made                                    */
    struct routing routing;                         /* load, parsed when read                                    */
};
#define PLAN_CAPACITY_WORST (-1.0)

extern const struct opt plan_opts[];
extern const int plan_n_opt;

/* The four descriptions that answer one question together. */
struct job { struct plan plan; struct model model; struct system system; struct stack stack; };

/* Reads the plan file `arg` (or, when NULL, starts from defaults) and applies the flags `key, text` pairs on top, then
 * reads model, system and stack, and resolves and checks. `runs`: defaults for `run` (stack moefold, system host). */
enum err plan_read_job(struct job *j, struct arena *a, const char *arg, int n_flag, const char *const (*flag)[2], int runs,
                       struct diag *d);
/* The same from a document (NULL: none). Errors begin with the place in it, or with the flag. */
enum err plan_fill_job(struct job *j, struct arena *a, const struct cfg *c, int n_flag, const char *const (*flag)[2], int runs,
                       struct diag *d);
/* Flags only, and neither resolved nor checked: what a search begins with, whose degrees are still open. */
enum err plan_read_open(struct job *j, struct arena *a, int n_flag, const char *const (*flag)[2], struct diag *d);
/* Defaults that depend on the rest (schedule, sp, vpp_group, capacity, domain_gpus, layout), dp, edp, n_micro; divides
 * only where it divides, so it ends with plan_check. */
enum err plan_resolve(struct job *j, struct diag *d);
enum err plan_check(const struct job *j, struct diag *d);
/* What is cut over replicas or put on the host (plan_memory.c): reads `offload`, and the rules, part of plan_check. */
enum err plan_memory_fill(struct plan *p, struct diag *d);
enum err plan_memory_check(const struct job *j, struct diag *d);
/* The plan as YAML text, every option, in table order. */
char *plan_text(struct arena *a, const struct plan *p);

/* A sequence must be a multiple of this: cp x lcm(2, tp) with cp > 1, else tp under sequence parallelism (case C11). */
int plan_seq_multiple(const struct plan *p);

static inline int64_t plan_tokens(const struct plan *p) { return (int64_t)p->mbs * p->seq / p->cp; }     /* rank, before SP */
static inline int64_t plan_tokens_sp(const struct plan *p) { return plan_tokens(p) / p->tp; }
/* DeepEP and HybridEP keep 3 queue entries a token, and one more, of 65535 when experts are in several NVLink domains; inside one
 * there is no such limit (case E03). Of a job whose folds and domain_gpus are known. */
enum { PLAN_QUEUE_TOKENS = (65535 - 1) / 3 };
int plan_fits_queue(const struct job *j);
/* Padding, woven passes and tokens that the plan's dispatcher does not take. */
enum err plan_dispatch_check(const struct job *j, struct diag *d);
/* ---- plan_packed.c: documents, several in a sequence ---- */
enum packed { PACKED_POSITIONS, PACKED_ATTENTION, PACKED_LOSS };    /* Megatron-LM --reset-position-ids, --reset-attention-mask,
                                                                       --eod-mask-loss */
int plan_document_rows(const struct job *j);                /* of one of plan.document tokens, padding counted */
enum err plan_packed_check(const struct job *j, struct diag *d);
/* Tokens among which attention looks back. */
static inline int plan_context(const struct plan *p) { return p->document ? p->document : p->seq; }
/* ---- plan_graph.c ---- */
/* The stack's scopes, of the modules that the model has; which scopes go together, and what must be static in them. */
int plan_graph_default(const struct job *j);
/* All modules that the stack can capture and the model has, whatever the routing: attn, mlp, mamba, moe_router, moe_preprocess. */
int plan_graph_most(const struct job *j);
enum err plan_graph_check(const struct job *j, struct diag *d);
/* Whether the host waits for the routed row counts: of dropless routing, unless the dispatcher is told how many rows
 * may come (Megatron-LM fused_a2a.py, hybrid-ep with num_permuted_tokens). */
int plan_host_reads(const struct job *j);
/* Rows of a routed buffer: 0 after dispatch, 1 after the etp gather. Even routing; and capacity (>= even). */
int64_t plan_even_rows(const struct job *j, int at);
int64_t plan_picked_rows(const struct job *j, int at);      /* of those, without what only pads experts to a capacity */
/* Rows that an expert takes of one rank at most when tokens may be dropped (Megatron-LM moe_utils.py get_capacity): all its tokens
 * at most. */
int64_t plan_expert_rows(const struct job *j);
int64_t plan_capacity_rows(const struct job *j, int at);

#endif
