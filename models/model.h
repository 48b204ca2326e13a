/* What is trained: the architecture, and the counts that follow from it alone. */
#ifndef MODELS_MODEL_H
#define MODELS_MODEL_H
#include "models/cfg.h"
#include <stdint.h>

enum attention { ATTENTION_GQA, ATTENTION_MLA };
enum score { SCORE_SOFTMAX, SCORE_SIGMOID };

struct model {
    char name[64];
    int32_t layers, hidden, vocab;
    int32_t attention;                              /* enum attention                                        */
    int32_t heads, kv_heads, head_dim, qk_norm;     /* GQA                                                   */
    int32_t q_lora, kv_lora, qk_nope, qk_rope, v_dim;       /* MLA                                           */
    int32_t ffn;                                    /* width of a dense layer's SwiGLU                       */
    int32_t experts, topk, expert_ffn, shared_ffn;  /* experts 0: a dense model; shared_ffn 0: none          */
    int32_t dense_layers;                           /* the first ones; all when experts is 0                 */
    int32_t score, norm_topk, selection_bias;       /* enum score; weights renormalised over the top k       */
    int32_t groups, groups_kept;                    /* group-limited routing; 1, 1: none                     */
    double route_scale;
    int32_t mtp;                                    /* multi-token-prediction layers after the last (0 or 1) */
    double mtp_weight;                              /* of its loss                                           */
    int32_t tied;                                   /* input and output tables are one                       */
    double rope_theta, norm_eps, init_std;
};

extern const struct opt model_opts[];
extern const int model_n_opt;

/* From a name or path; from a document. Both end with model_check, whose errors then get the place of the key. */
enum err model_read(struct model *m, struct arena *a, const char *arg, struct diag *d);
enum err model_fill(struct model *m, const struct cfg *c, struct diag *d);
/* Sizes that cannot be: heads and groups that do not divide, top-k above the experts kept, ... (cases C09). */
enum err model_check(const struct model *m, struct diag *d);

static inline int model_is_moe(const struct model *m, int layer) { return m->experts > 0 && layer >= m->dense_layers; }
static inline int model_qk_dim(const struct model *m)
{ return m->attention == ATTENTION_MLA ? m->qk_nope + m->qk_rope : m->head_dim; }
static inline int model_v_dim(const struct model *m) { return m->attention == ATTENTION_MLA ? m->v_dim : m->head_dim; }

/* Parameters, true vocabulary, router and its bias counted, one copy of tied tables. `total` without MTP; `active` is
 * total less the experts a token does not use; `mtp` what the MTP layers add (tables shared); `expert` those of all
 * routed experts, MTP's apart. */
struct model_params { int64_t total, active, mtp, expert; };
struct model_params model_params(const struct model *m);
/* FLOP per token of a training step, forward and backward, causal half of attention; Megatron's counter
 * (Megatron-LM training.py num_floating_point_operations): no router, no recompute, vocabulary padded to `vocab_padded`. */
double model_flop_per_token(const struct model *m, int64_t seq, int64_t vocab_padded);

#endif
