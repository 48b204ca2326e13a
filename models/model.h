/* What is trained: the architecture, and the counts that follow from it alone. */
#ifndef MODELS_MODEL_H
#define MODELS_MODEL_H
#include "models/cfg.h"
#include <stdint.h>

enum attention { ATTENTION_GQA, ATTENTION_MLA };
enum score { SCORE_SOFTMAX, SCORE_SIGMOID };
enum group_score { GROUP_SCORE_TOP2, GROUP_SCORE_MAX };     /* the sum of a group's best two experts, or its best one */
enum activation { ACTIVATION_SWIGLU, ACTIVATION_GELU, ACTIVATION_RELU2 };   /* only the first has a gate */
enum positions { POSITIONS_ROPE, POSITIONS_NONE };
enum bias { BIAS_QKV, BIAS_O, BIAS_MLP, BIAS_ROUTER, BIAS_NORM };   /* bits 1 << bias; NORM: LayerNorm's shift */
/* What a layer does: one of each, at most, in this order, each behind a norm of its own and with a residual. */
enum mixer { MIXER_NONE, MIXER_ATTENTION, MIXER_MAMBA };
enum ffn { FFN_NONE, FFN_DENSE, FFN_MOE };
struct layer_kind { int32_t mixer, ffn, window; };          /* window: tokens that attention sees back; 0: all */

enum { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_LLAMA3 };   /* of rotary angles */
enum { MODEL_MTP = 2 };                                     /* most MTP depths */

struct model {
    char name[64];
    int32_t layers, hidden, vocab;
    int32_t attention;                              /* enum attention                                        */
    int32_t heads, kv_heads, head_dim, qk_norm;     /* GQA                                                   */
    int32_t q_lora, kv_lora, qk_nope, qk_rope, v_dim;       /* MLA                                           */
    int32_t ffn;                                    /* width of a dense layer's MLP                          */
    int32_t experts, topk, expert_ffn, shared_ffn;  /* experts 0: a dense model; shared_ffn 0: none          */
    int32_t dense_layers;                           /* the first ones; all when experts is 0                 */
    int32_t score, norm_topk, selection_bias;       /* enum score; weights renormalised over the top k       */
    int32_t groups, groups_kept;                    /* group-limited routing; 1, 1: none                     */
    double route_scale;
    int32_t mtp;                                    /* multi-token-prediction depths after the last layer    */
    double mtp_weight;                              /* of its loss                                           */
    int32_t tied;                                   /* input and output tables are one                       */
    double rope_theta, norm_eps, init_std;
    int32_t rope_scaling, rope_original, rope_truncate;     /* enum rope_scaling; tokens of the context it began with; YaRN:
                                                               whole pairs */
    double rope_factor, rope_fast, rope_slow;               /* longer by; turns in that context                */
    double rope_mscale, rope_mscale_all, rope_magnitude;    /* YaRN's m; 0: not given; of cos and sin          */
    int32_t activation, bias, positions;            /* of all MLPs; bits; POSITIONS_NONE: no rope op         */
    int32_t group_score;                            /* enum group_score                                      */
    int32_t window, full_every, sinks;              /* sliding, but every full_every-th layer sees all       */
    int32_t moe_latent;                             /* width of tokens among the experts; 0: hidden          */
    char pattern[256], mtp_pattern[16];             /* a letter a layer: M Mamba, * attention, - MLP, E      */
                                                    /* experts; "": every layer is attention and an MLP      */
    int32_t mamba_heads, mamba_head_dim, mamba_state, mamba_groups, mamba_conv, mamba_chunk;    /* Mamba-2   */
    int32_t mtp_shared;                             /* MTP depths are one set of weights used again          */
};

extern const struct opt model_opts[];
extern const int model_n_opt;

/* From a name or path; from a document, which may be a Hugging Face config.json (model_hf.h). Both end with model_check,
 * whose errors then get the place of the key. */
enum err model_read(struct model *m, struct arena *a, const char *arg, struct diag *d);
enum err model_fill(struct model *m, const struct cfg *c, struct diag *d);
/* The model as YAML text, every option, in table order: model_read reads the same back. */
char *model_text(struct arena *a, const struct model *m);
/* Sizes that cannot be: heads and groups that do not divide, top-k above the experts kept, ... (cases C09). */
enum err model_check(const struct model *m, struct diag *d);

/* What layer 0 .. layers - 1 is; from layers on (MTP): what the last one is. */
struct layer_kind model_layer(const struct model *m, int layer);
/* Layers of one MTP depth, and what each is. */
int model_mtp_layers(const struct model *m);
struct layer_kind model_mtp_layer(const struct model *m, int i);
/* How many layers, MTP apart, have this mixer or this MLP. */
int model_count_mixer(const struct model *m, enum mixer k);
int model_count_ffn(const struct model *m, enum ffn k);
/* What no stack that runs can do yet, in words ("sliding windows"); NULL: it can run all of it. */
const char *model_cost_only(const struct model *m);
/* The first `layers` of it (1 .. its own). */
void model_cut(struct model *m, int layers);

/* YaRN's factors on what is rotated, and, with MLA, on scores beside 1 / sqrt(width); 1 without. */
double model_rope_magnitude(const struct model *m);
double model_score_scale(const struct model *m);

static inline int model_is_moe(const struct model *m, int layer) { return model_layer(m, layer).ffn == FFN_MOE; }
static inline int model_has_bias(const struct model *m, enum bias b) { return m->bias >> b & 1; }
/* Rows of an MLP's first matrix over its width: gate and up, or up alone. */
static inline int model_up(const struct model *m) { return m->activation == ACTIVATION_SWIGLU ? 2 : 1; }
static inline int model_expert_in(const struct model *m) { return m->moe_latent ? m->moe_latent : m->hidden; }
static inline int model_norm_rows(const struct model *m) { return model_has_bias(m, BIAS_NORM) ? 2 : 1; }
static inline int model_mamba_dim(const struct model *m) { return m->mamba_heads * m->mamba_head_dim; }
/* Outputs of Mamba's first projection: gate and values, B and C of every group, a step per head. */
static inline int model_mamba_in(const struct model *m)
{ return 2 * model_mamba_dim(m) + 2 * m->mamba_groups * m->mamba_state + m->mamba_heads; }
static inline int model_qk_dim(const struct model *m)
{ return m->attention == ATTENTION_MLA ? m->qk_nope + m->qk_rope : m->head_dim; }
static inline int model_v_dim(const struct model *m) { return m->attention == ATTENTION_MLA ? m->v_dim : m->head_dim; }

/* Parameters, true vocabulary, router and its bias counted, one copy of tied tables. `total` without MTP; `active` is
 * total less the experts a token does not use; `mtp` what the MTP layers add (tables shared); `expert` those of all
 * routed experts, MTP's apart. */
struct model_params { int64_t total, active, mtp, expert; };
struct model_params model_params(const struct model *m);
/* Tokens that one sees back, on average over a sequence, causal: half of it, or what a window leaves. */
double model_context(int64_t seq, int64_t window);
/* Of what all queries see, the part that they see in step `step` (0: their own) of a ring of cp members, each with chunks i and
 * 2 cp - 1 - i; the mean over members: nearly 1 / cp without a window. */
double model_ring_share(int64_t seq, int64_t window, int cp, int step);
/* FLOP of Mamba's scan, per token, column and state, forward (Megatron-LM training.py). */
enum { MODEL_SCAN_FLOP = 7 };
/* FLOP per token of a training step, forward and backward, causal half of attention (of the window where there is
 * one); Megatron's counter (Megatron-LM training.py num_floating_point_operations): no router, no recompute,
 * vocabulary padded to `vocab_padded`. Of hybrids it leaves out MTP's projection (0.5 % of Nemotron 3 Super), which is
 * counted here. */
double model_flop_per_token(const struct model *m, int64_t seq, int64_t vocab_padded);

#endif
