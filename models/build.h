/* The blocks of a program. Each block is a file: what its weights are, forward, and backward by hand beside it, in the order
 * of the chain rule. Forward fills a `kept` struct with what backward may read; nothing is declared saved: what backward
 * does not read dies in forward, so recompute is the same call made again. Parts (op.part) are the cut points where a
 * forward and a backward may be woven: a layer has four (attention, dispatch, experts, combine). */
#ifndef MODELS_BUILD_H
#define MODELS_BUILD_H
#include "models/emit.h"

/* ---- build_bucket.c: parameters and their reduction units ---- */
/* Declares a parameter of the current layer: its views are laid behind the last one that is shared the same way. `rows`,
 * `cols` of the whole (of one expert when `batch` > 0). Returns its index in program.param. */
int build_param(struct build *b, enum param_name name, int rows, int cols, enum shard shard, int batch);
struct weight build_weight(const struct build *b, int param);
/* One weight over parameters `first` .. `last`, declared one after the other with equal cols and sharing. */
struct weight build_weight_span(struct build *b, int first, int last);
/* Gives a weight its bias, one value an output. */
void build_bias(struct build *b, struct weight *w, enum param_name name, int rows, enum shard shard, int batch);
/* A weight that is not trained (the router's selection bias): zero, fp32. Returns its buffer. */
int build_constant(struct build *b, enum param_name name, int rows, int cols);
/* Ends a layer's buckets: padded to equal parts, optimizer state made. */
void build_bucket_close(struct build *b);
/* Gradient reduction of the current chunk's buckets, flagged OP_REDUCE. */
void build_bucket_reduce(struct build *b);
/* Gathers of the current chunk's parameters, and what follows them, where they go under its first forward (plan.dp_overlap). */
void build_bucket_gather(struct build *b);
/* Whether a bucket's gradients are zeroed there: its weights are gathered in their memory. */
int build_bucket_zeroed_late(const struct build *b, const struct bucket *k);
/* Reduction of input tables that two stages hold: part of the optimizer pass of the current stage. */
void build_bucket_reduce_tables(struct build *b);

/* ---- build_shard.c: units of buckets that are cut over who shares them; nothing where none is ---- */
enum { BUILD_OWN = -1 };        /* no turn: buffers of its own                                             */
/* Whether buckets shared by this group are cut. */
int build_shard_cuts(const struct build *b, enum group share);
/* Whether the host updates the next bucket, of `part` elements, so that its share stays near plan.offload_optimizer. */
int build_shard_on_host(struct build *b, int64_t part);
/* The buckets since the last unit are one: build.n_unit - 1. */
void build_shard_close(struct build *b);
/* A half of a chunk begins: buffers that units take in turn are new ones. */
void build_shard_begin(struct build *b);
/* Gathers a unit's buckets into the buffers of turn 0 or 1 (BUILD_OWN: its own); its parameters stand for them
 * until it is gathered again. Waits for the unit that had the turn before. */
void build_shard_gather(struct build *b, int unit, int turn);
/* Zeroes what the unit's gradients are added to from here on. */
void build_shard_gradients(struct build *b, int unit, int turn);
/* Adds them, summed over the members, to each one's part. */
void build_shard_scatter(struct build *b, int unit);

/* ---- build_offload.c: activations that wait on the host; nothing without plan.offload ---- */
/* A chunk's forward [first, middle) and backward [middle, n_op): adds the copies. Returns where backward begins now. */
int build_offload(struct build *b, int first, int middle);

/* ---- build_optimizer.c ---- */
/* What the current stage does once a step: at the end (input-table reduction, norm, update, parameter gather), at the start. */
void build_optimizer(struct build *b);

/* ---- build_scope.c: what the plan captures in CUDA graphs; nothing where it captures nothing ---- */
void build_scope_open(struct build *b);                     /* no graph reaches into what follows (layers)               */
void build_scope(struct build *b, enum graph scope);        /* ops from here on are of this module of the current layer  */
/* Where a graph that begins with the next op has its input, for backward to release (emit_hold); 0: none begins in
 * forward. */
int  build_scope_input(struct build *b);

/* ---- build_keep.c: what a framework keeps for ever, by the stack's settings; nothing where it has none ---- */
/* The buffer of the output layer's gathered input [tok, cols] of the current stage. */
int build_keep_gather(struct build *b, int cols);
/* Rotary tables of the current layer. */
void build_keep_rope(struct build *b);
/* Workspaces and caches of the current stage, whose chunks are built; of no chunk (-1), unlike the two above. */
void build_keep_stage(struct build *b);
/* Whether what this stage received and sent for an earlier micro-batch is still referenced at its fullest. The order without
 * interleaving only: the interleaved one keeps lists, read but not measured. */
int build_keep_holds_pipeline(const struct build *b);

/* ---- attention: GQA (build_attention.c) and MLA (build_mla.c) ---- */
struct attention_w {
    struct weight norm, qkv, kv, q_norm, k_norm, o, sink;   /* GQA; kv apart from q when K/V heads are replicated over tp */
    struct weight q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b;    /* MLA */
};
struct attention_kept {
    int x, n, q, k, v, o, lse;
    int o_part;                                             /* cp a2a: o before it went back to tokens */
    int q_raw, k_raw;                                       /* GQA: before qk_norm */
    int q_a, q_a_n, kv_latent, kv_latent_n, krope;          /* MLA */
};
struct attention_w build_attention_weights(struct build *b);
int build_attention_fwd(struct build *b, const struct attention_w *w, int x, struct attention_kept *k);
int build_attention_bwd(struct build *b, const struct attention_w *w, int dy, const struct attention_kept *k);
struct attention_w build_mla_weights(struct build *b);
int build_mla_fwd(struct build *b, const struct attention_w *w, int x, struct attention_kept *k);
int build_mla_bwd(struct build *b, const struct attention_w *w, int dy, const struct attention_kept *k);
/* With cp a2a q, k and v of all tokens for this rank's heads replace those of its tokens; else nothing. */
void build_attention_swap(struct build *b, struct attention_kept *k);
/* The part both kinds share: k and v gathered (or heads swapped) over cp, attention, its output projection and the residual. */
int build_attention_core_fwd(struct build *b, const struct attention_w *w, int x, struct attention_kept *k);
/* dq, dk, dv of this rank's tokens from dy. */
void build_attention_core_bwd(struct build *b, const struct attention_w *w, int dy, const struct attention_kept *k, int *dq, int *dk,
                              int *dv);

/* ---- build_ring.c: attention of keys and values that go around the cp group; not where its size is 1 ---- */
int build_ring_goes(const struct build *b);                 /* the plan says so                                         */
void build_ring_fwd(struct build *b, const struct attention_w *w, struct attention_kept *k);     /* o_part, lse from q, k, v */
/* d_part: of o_part. dq, and d_own: of k and v, of this rank's tokens. */
void build_ring_bwd(struct build *b, const struct attention_w *w, int d_part, const struct attention_kept *k, int *dq, int d_own[2]);

/* ---- build_mamba.c: a Mamba-2 mixer ---- */
struct mamba_w    { struct weight norm, in, scan, out; };
struct mamba_kept { int x, n, in, raw, y; };                /* in: the scan's input; raw: its output before the norm */
struct mamba_w build_mamba_weights(struct build *b);
int build_mamba_fwd(struct build *b, const struct mamba_w *w, int x, struct mamba_kept *k);
int build_mamba_bwd(struct build *b, const struct mamba_w *w, int dy, const struct mamba_kept *k);

/* ---- build_mlp.c: dense, also the shared expert ---- */
struct mlp_w    { struct weight norm, fc1, fc2; };
struct mlp_kept { int x, n, fc1, act; };
struct mlp_w build_mlp_weights(struct build *b);
/* Both matrices, with biases where the model has them: named `fc1` and the name behind it. */
void build_mlp_matrices(struct build *b, struct mlp_w *w, enum param_name fc1, int in, int width, int batch);
int build_mlp_fwd(struct build *b, const struct mlp_w *w, int x, struct mlp_kept *k);
int build_mlp_bwd(struct build *b, const struct mlp_w *w, int dy, const struct mlp_kept *k);
/* Without norm and residual: n -> output, dy -> dn. `n_again`: the normed input for the weight gradient. */
int build_mlp_inner_fwd(struct build *b, const struct mlp_w *w, int n, struct mlp_kept *k);
int build_mlp_inner_bwd(struct build *b, const struct mlp_w *w, int dy, int n_again, const struct mlp_kept *k);

/* ---- build_moe.c ---- */
struct moe_w    { struct weight norm, router, down, up; int bias; struct mlp_w routed, shared; };
struct moe_kept { int x, n, score, load, logit, lists, rows, prob, fc1, act, back, latent; struct route to; struct mlp_kept shared; };
struct moe_w build_moe_weights(struct build *b);
int build_moe_fwd(struct build *b, const struct moe_w *w, int x, struct moe_kept *k);
int build_moe_bwd(struct build *b, const struct moe_w *w, int dy, const struct moe_kept *k);

/* ---- build_beside.c: which ops of a chunk, [from, to), run beside which collective ---- */
void build_beside(struct build *b, int from, int to);

/* ---- build_layer.c: a transformer layer ---- */
struct layer_w    { struct layer_kind kind; struct mamba_w mamba; struct attention_w attention; struct mlp_w mlp; struct moe_w experts; };
struct layer_kept { int x, graph_x[2]; struct mamba_kept mamba; struct attention_kept attention; struct mlp_kept mlp;
                    struct moe_kept experts; };
struct layer_w build_layer_weights(struct build *b, struct layer_kind kind);
int build_layer_fwd(struct build *b, const struct layer_w *w, int x, struct layer_kept *k);
int build_layer_bwd(struct build *b, const struct layer_w *w, int dy, const struct layer_kept *k);

/* ---- build_embedding.c ---- */
int build_embedding_table(struct build *b);                 /* the stage's input table, made once; param index */
int build_embedding_unit(const struct build *b);            /* its unit, when buckets are cut */
int build_embedding_fwd(struct build *b, int token, int table);
void build_embedding_bwd(struct build *b, int token, int table, int dy);

/* ---- build_loss.c, build_mtp.c: the end of the model ---- */
struct head_w    { struct weight norm, head; };
struct head_kept { int h, n, logit, label, max, sum, wide, loss; }; /* n: kept normed h; wide: an fp32 gradient, loss: of every
                                                                       token, where the stack makes them apart; or 0 */
struct mtp_w     { struct weight enorm, hnorm, proj; int table, n; struct layer_w *layer; };
struct mtp_kept  { int h, token, e, cat, en, hn; struct layer_kept *layer; };
/* What a chunk holds of the model's end: MTP's bodies, the heads (of MTP's depths and of the model), or both. */
struct loss_w    { int has_mtp, has_heads; struct head_w head, mtp_head[MODEL_MTP]; struct mtp_w mtp[MODEL_MTP]; };
struct loss_kept { struct head_kept head, mtp_head[MODEL_MTP]; struct mtp_kept mtp[MODEL_MTP]; };
/* Head, cross-entropy: h [T/tp, hidden] -> loss in the metric. */
void build_head_fwd(struct build *b, const struct head_w *w, int h, int label, struct head_kept *k);
int  build_head_bwd(struct build *b, const struct head_w *w, const struct head_kept *k);      /* dh */
/* The same with an MTP depth's head. */
void build_mtp_head_fwd(struct build *b, const struct head_w *w, int depth, int h, int label, struct head_kept *k);
int  build_mtp_head_bwd(struct build *b, const struct head_w *w, int depth, const struct head_kept *k);
/* norm: where to put the head's norm when the head stands on this chunk too, or NULL. */
struct mtp_w build_mtp_weights(struct build *b, int depth, struct weight *norm);
struct weight build_mtp_norm_weight(struct build *b, int depth);    /* the head's norm, of a head apart */
/* From the depth before (or the last layer) `h` to this depth's hidden state; token: the next ones. */
int  build_mtp_fwd(struct build *b, const struct mtp_w *w, int depth, int h, int token, struct mtp_kept *k);
/* Gradient of `h` with dh (0: none) added. Of this depth's hidden state dx comes from its head, dnext from the depth behind it (0:
 * the last). */
int  build_mtp_bwd(struct build *b, const struct mtp_w *w, int depth, int dx, int dnext, int dh, const struct mtp_kept *k);
struct loss_w build_loss_weights(struct build *b, int has_mtp, int has_heads);
/* x: the main hidden state, or where bodies are apart and before, all states in one buffer [(1 + mtp) T/tp, hidden], the main one
 * first. Returns that buffer where the heads come after, else 0. label: of the next token, and of one more for each MTP depth. */
int  build_loss_fwd(struct build *b, const struct loss_w *w, int x, const int label[1 + MODEL_MTP], struct loss_kept *k);
/* dy: of what forward returned; returns dx. */
int  build_loss_bwd(struct build *b, const struct loss_w *w, int dy, const struct loss_kept *k);

/* The normed input for a weight gradient: as kept, or normed again (recompute `layernorm`). A norm that feeds `one` linear
 * is part of it in some stacks (stack.norm_fused), which then have no norm to recompute. */
int build_norm_again(struct build *b, int x, struct weight norm, int kept, int one);
static inline int build_recomputes(const struct build *b, enum recompute r) { return b->j->plan.recompute >> r & 1; }

#endif
