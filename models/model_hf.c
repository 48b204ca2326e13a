/* Two tables: which of our keys each of theirs is, and what each architecture fixes or assumes (the classes
 * configuration_*.py of transformers 5.24 and the published config.json files). */
#include "models/model_hf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HF_NAMES = 3, HF_FIXED = 8, HF_TEXT = 32 };
struct hf_key { const char *own, *theirs[HF_NAMES]; };
static const struct hf_key keys[] = {
    { "layers", { "num_hidden_layers" } },
    { "hidden", { "hidden_size" } },
    { "vocab", { "vocab_size" } },
    { "tied", { "tie_word_embeddings" } },
    { "heads", { "num_attention_heads" } },
    { "rope_theta", { "rope_theta", "rope_parameters.rope_theta", "rope_scaling.rope_theta" } },
    { "norm_eps", { "rms_norm_eps" } },
    { "init_std", { "initializer_range" } },
};
static const struct hf_key gqa_keys[] = {
    { "kv_heads", { "num_key_value_heads" } },
    { "head_dim", { "head_dim" } },
};
static const struct hf_key mla_keys[] = {
    { "q_lora", { "q_lora_rank" } },       { "kv_lora", { "kv_lora_rank" } },
    { "qk_nope", { "qk_nope_head_dim" } }, { "qk_rope", { "qk_rope_head_dim" } },
    { "v_dim", { "v_head_dim" } },
};
static const struct hf_key moe_keys[] = {
    { "experts", { "n_routed_experts", "num_experts", "num_local_experts" } },
    { "topk", { "num_experts_per_tok" } },
    { "norm_topk", { "norm_topk_prob" } },
    { "score", { "scoring_func" } },
    { "shared_ffn", { "shared_expert_intermediate_size" } },
    { "dense_layers", { "first_k_dense_replace" } },
    { "route_scale", { "routed_scaling_factor" } },
    { "mtp", { "num_nextn_predict_layers", "num_mtp_layers" } },
};

/* `fixed`: pairs of our key and text; a key of the file goes before. */
struct hf_family {
    const char *type;
    int moe, mla;
    const char *expert_ffn; /* their key for an expert's width                                    */
    const char *fixed[HF_FIXED][2];
};
#define DEEPSEEK_V3                                                                                              \
    1, 1, "moe_intermediate_size",                                                                               \
    { { "norm_topk", "1" }, { "score", "sigmoid" }, { "selection_bias", "1" }, { "attention", "mla" } }
static const struct hf_family families[] = {
    { "llama", 0, 0, NULL, { { "norm_eps", "1e-6" } } },
    { "mixtral",
      1,
      0,
      "intermediate_size",
      { { "norm_topk", "1" }, { "norm_eps", "1e-5" }, { "rope_theta", "1e6" } } },
    { "qwen2_moe", 1, 0, "moe_intermediate_size", { { "norm_topk", "0" }, { "bias", "qkv" } } },
    { "qwen3_moe", 1, 0, "moe_intermediate_size", { { "norm_topk", "0" }, { "qk_norm", "1" } } },
    { "gpt_oss",
      1,
      0,
      "intermediate_size",
      { { "norm_topk", "1" },
        { "sinks", "1" },
        { "bias", "qkv+o+mlp+router" },
        { "rope_theta", "150000" },
        { "norm_eps", "1e-5" },
        { "head_dim", "64" } } },
    { "deepseek_v2", 1, 1, "moe_intermediate_size", { { "norm_topk", "0" }, { "attention", "mla" } } },
    { "deepseek_v3", DEEPSEEK_V3 },
    { "kimi_k2", DEEPSEEK_V3 },
};

struct hf { const struct cfg *c; const struct cfg_node *map; struct model *m; struct diag *d; };

/* The value of a key that is there and not null. */
static const struct cfg_node *hf_find(const struct hf *f, const char *key)
{
    const struct cfg_node *v = cfg_find(f->map, key);
    return v && v->type == CFG_SCALAR && strcmp(v->text, "null") == 0 ? NULL : v;
}

static const char *hf_text(const struct cfg_node *v)
{
    return v && v->type == CFG_SCALAR ? v->text : "";
}

static enum err hf_set(const struct hf *f, const char *own, const char *text, const struct cfg_node *at)
{
    char where[256];
    snprintf(where, sizeof where, "%s:%d:%d", f->c->name, at->line, at->column);
    return cfg_set(f->m, cfg_opt(model_opts, model_n_opt, own), text, where, f->d);
}

static enum err hf_int(int *to, const struct hf *f, const char *key, int absent)
{
    const struct cfg_node *v = hf_find(f, key);
    char *end = NULL;
    *to = absent;
    if (!v) return OK;
    const long n = v->type == CFG_SCALAR ? strtol(v->text, &end, 10) : 0;
    if (v->type != CFG_SCALAR || *end || end == v->text || n < 0 || n > 100000000)
        return cfg_fail(f->d, f->c, v, "%s is not a whole number from 0 to 100000000", key);
    *to = (int)n;
    return OK;
}

static enum err hf_take(const struct hf *f, const struct hf_key *key, int n)
{
    for (int i = 0; i < n; i++) {
        const struct cfg_node *v = NULL;
        for (int k = 0; k < HF_NAMES && !v && key[i].theirs[k]; k++) v = hf_find(f, key[i].theirs[k]);
        if (!v && !cfg_opt(model_opts, model_n_opt, key[i].own)->def)
            return cfg_fail(f->d, f->c, f->map, "'%s' is missing", key[i].theirs[0]);
        if (v && v->type != CFG_SCALAR)
            return cfg_fail(f->d, f->c, v, "%s needs one value", key[i].theirs[0]);
        if (v) TRY(hf_set(f, key[i].own, v->text, v));
    }
    return OK;
}

/* ---- which layers are dense, and which see all ---- */

static int hf_list_int(const struct cfg_node *list, int i)
{
    return list->child[i].type == CFG_SCALAR ? atoi(list->child[i].text) : -1;
}

/* moe_layer_freq: 1, or 0 and 1 for each layer. A dense prefix is first_k_dense_replace's, not this one's
 * (case F01). */
static enum err hf_layer_freq(const struct hf *f)
{
    const struct cfg_node *v = hf_find(f, "moe_layer_freq");
    if (!v || (v->type == CFG_SCALAR && strcmp(v->text, "1") == 0)) return OK;
    if (v->type != CFG_LIST)
        return cfg_fail(f->d, f->c, v,
                        "moe_layer_freq is not 1: models have experts in every layer behind the dense ones");
    if (v->n != f->m->layers)
        return cfg_fail(f->d, f->c, v,
                        "moe_layer_freq has %d entries, num_hidden_layers is %d: give one for each", v->n,
                        f->m->layers);
    int dense = 0;
    while (dense < v->n && hf_list_int(v, dense) == 0) dense++;
    for (int i = dense; i < v->n; i++)
        if (hf_list_int(v, i) != 1)
            return cfg_fail(f->d, f->c, &v->child[i],
                            "layer %d of moe_layer_freq is dense behind layers with experts: "
                            "only the first ones can be",
                            i);
    f->m->dense_layers = dense;
    return OK;
}

/* mlp_only_layers: indices of dense layers. */
static enum err hf_mlp_only(const struct hf *f)
{
    const struct cfg_node *v = hf_find(f, "mlp_only_layers");
    int step;
    TRY(hf_int(&step, f, "decoder_sparse_step", 1));
    if (step != 1)
        return cfg_fail(
            f->d, f->c, cfg_find(f->map, "decoder_sparse_step"),
            "decoder_sparse_step is %d: models have experts in every layer behind the dense ones, as with 1",
            step);
    if (!v || v->type != CFG_LIST) return OK;
    for (int i = 0; i < v->n; i++)
        if (hf_list_int(v, i) != i)
            return cfg_fail(f->d, f->c, &v->child[i],
                            "mlp_only_layers is not 0, 1, .. in order: only the first layers can be "
                            "dense");
    if (v->n) f->m->dense_layers = v->n;
    return OK;
}

/* Every full_every-th layer sees all. */
static enum err hf_layer_types(const struct hf *f)
{
    const struct cfg_node *v = hf_find(f, "layer_types");
    int full = 0;
    if (!v || v->type != CFG_LIST) return OK;
    if (v->n != f->m->layers)
        return cfg_fail(f->d, f->c, v,
                        "layer_types has %d entries, num_hidden_layers is %d: give one for each", v->n,
                        f->m->layers);
    while (full < v->n && v->child[full].type == CFG_SCALAR &&
           strcmp(v->child[full].text, "full_attention") != 0)
        full++;
    for (int i = 0; i < v->n; i++) {
        const char *want = (i + 1) % (full + 1) ? "sliding_attention" : "full_attention";
        if (v->child[i].type != CFG_SCALAR || strcmp(v->child[i].text, want) != 0)
            return cfg_fail(f->d, f->c, &v->child[i],
                            "layer_types is not one full_attention in every %d layers", full + 1);
    }
    f->m->full_every = full < v->n ? full + 1 : 0;
    if (full == 0) f->m->window = f->m->full_every = 0;
    return OK;
}

static enum err hf_window(const struct hf *f)
{
    const struct cfg_node *use = hf_find(f, "use_sliding_window"), *v = hf_find(f, "sliding_window");
    const int used = !use || use->type != CFG_SCALAR || strcmp(use->text, "false") != 0;
    if (!v || !used || f->m->attention == ATTENTION_MLA) return OK;
    TRY(hf_int(&f->m->window, f, "sliding_window", 0));
    return hf_layer_types(f);
}

/* ---- rotary angles ---- */

/* Both spellings: rope_parameters (transformers 5) and rope_scaling with rope_type or type. Its keys are ours; what one kind
 * of scaling has no use for is left alone, as transformers does. */
static const struct hf_key rope_keys[] = {
    { "rope_factor", { "factor" } },
    { "rope_original", { "original_max_position_embeddings" } },
};
static const struct hf_key yarn_keys[] = {
    { "rope_fast", { "beta_fast" } },
    { "rope_slow", { "beta_slow" } },
    { "rope_truncate", { "truncate" } },
    { "rope_mscale", { "mscale" } },
    { "rope_mscale_all", { "mscale_all_dim" } },
    { "rope_magnitude", { "attention_factor" } },
};
static const struct hf_key llama3_keys[] = {
    { "rope_fast", { "high_freq_factor" } },
    { "rope_slow", { "low_freq_factor" } },
};

/* The class's own (configuration_gpt_oss.py), where a file says nothing. */
static enum err hf_rope_gpt_oss(const struct hf *f)
{
    static const char *const set[][2] = { { "rope_scaling", "yarn" }, { "rope_factor", "32" }, { "rope_original", "4096" },
                                          { "rope_truncate", "0" } };
    for (int i = 0; i < LEN(set); i++) TRY(hf_set(f, set[i][0], set[i][1], f->map));
    return OK;
}

static enum err hf_rope_parts(const struct hf *f)
{
    const struct cfg_node *partial = hf_find(f, "partial_rotary_factor");
    if (!partial) partial = hf_find(f, "rope_parameters.partial_rotary_factor");
    if (!partial || (partial->type == CFG_SCALAR && strtod(partial->text, NULL) == 1)) return OK;
    return cfg_fail(f->d, f->c, partial, "partial_rotary_factor is not 1: heads are rotated whole here");
}

/* The context before: said beside the others, or of the whole model. */
static enum err hf_rope_original(const struct hf *f)
{
    int n;
    if (f->m->rope_original > 0) return OK;
    TRY(hf_int(&n, f, "original_max_position_embeddings", 0));
    if (!n) TRY(hf_int(&n, f, "max_position_embeddings", 0));
    f->m->rope_original = n;
    return OK;
}

static enum err hf_rope(const struct hf *f, const struct hf_family *family)
{
    const struct cfg_node *v = hf_find(f, "rope_parameters");
    if (!v) v = hf_find(f, "rope_scaling");
    TRY(hf_rope_parts(f));
    const int null = cfg_find(f->map, "rope_scaling") || cfg_find(f->map, "rope_parameters");   /* said to be none */
    if (!v) return strcmp(family->type, "gpt_oss") == 0 && !null ? hf_rope_gpt_oss(f) : OK;
    if (v->type != CFG_MAP) return cfg_fail(f->d, f->c, v, "rope scaling is not a map");
    const struct hf in = { f->c, v, f->m, f->d };
    const struct cfg_node *type = hf_find(&in, "rope_type");
    if (!type) type = hf_find(&in, "type");
    const char *how = hf_text(type);
    if (!type && hf_find(&in, "full_attention"))
        return cfg_fail(f->d, f->c, v, "rope_parameters differ by kind of layer: one set for all layers is known");
    if (!*how || strcmp(how, "default") == 0) return OK;
    const int yarn = strcmp(how, "yarn") == 0, llama3 = strcmp(how, "llama3") == 0;
    if (!yarn && !llama3 && strcmp(how, "linear") != 0)
        return cfg_fail(f->d, f->c, type, "rope_type '%s' is not known: default, linear, yarn and llama3 are",
                        cfg_shown(how).text);
    TRY(hf_set(f, "rope_scaling", how, type));
    if (!hf_find(&in, "factor")) return cfg_fail(f->d, f->c, v, "rope_type '%s' needs a factor", how);
    TRY(hf_take(&in, rope_keys, yarn || llama3 ? LEN(rope_keys) : 1));
    if (yarn) TRY(hf_take(&in, yarn_keys, LEN(yarn_keys)));
    if (llama3) TRY(hf_take(&in, llama3_keys, LEN(llama3_keys)));
    return yarn || llama3 ? hf_rope_original(f) : OK;
}

/* ---- experts ---- */

/* n_shared_experts experts of a routed one's width run as one. */
static enum err hf_shared(const struct hf *f)
{
    int n;
    TRY(hf_int(&n, f, "n_shared_experts", 0));
    if (n)
        f->m->shared_ffn =
            (int32_t)((int64_t)n * f->m->expert_ffn < 1000000 ? n * f->m->expert_ffn : 1000000);
    return OK;
}

/* V2 scores a group by its best expert, V3 by its best two; "greedy" has no groups. */
static enum err hf_groups(const struct hf *f)
{
    const struct cfg_node *method = hf_find(f, "topk_method");
    const char *how = method && method->type == CFG_SCALAR ? method->text : "";
    const int v2 = strcmp(how, "group_limited_greedy") == 0;
    if (strcmp(how, "greedy") == 0) return OK;
    if (*how && !v2 && strcmp(how, "noaux_tc") != 0)
        return cfg_fail(f->d, f->c, method,
                        "topk_method '%s' is not known: greedy, group_limited_greedy, noaux_tc are",
                        cfg_shown(how).text);
    TRY(hf_int(&f->m->groups, f, "n_group", 1));
    TRY(hf_int(&f->m->groups_kept, f, "topk_group", 1));
    f->m->group_score = v2 ? GROUP_SCORE_MAX : GROUP_SCORE_TOP2;
    return OK;
}

static enum err hf_moe(const struct hf *f, const struct hf_family *family)
{
    TRY(hf_take(f, moe_keys, LEN(moe_keys)));
    if (f->m->experts < 1)
        return cfg_fail(f->d, f->c, f->map, "the number of experts is missing (%s)",
                        family->mla ? "n_routed_experts" : "num_experts or num_local_experts");
    TRY(hf_int(&f->m->expert_ffn, f, family->expert_ffn, 0));
    if (strcmp(family->expert_ffn, "intermediate_size") == 0) f->m->ffn = 0;
    TRY(hf_shared(f));
    TRY(hf_groups(f));
    TRY(hf_layer_freq(f));
    return hf_mlp_only(f);
}

/* ---- the whole ---- */

/* Multimodal files keep the language model in a map of its own. */
static const struct cfg_node *hf_language(const struct cfg *c)
{
    const struct cfg_node *text = cfg_find(&c->root, "text_config");
    return text && text->type == CFG_MAP ? text : &c->root;
}

int model_hf_is(const struct cfg *c)
{
    const struct cfg_node *map = hf_language(c);
    return c->root.type == CFG_MAP && (cfg_find(map, "model_type") || cfg_find(&c->root, "architectures"));
}

static enum err hf_family_of(const struct hf_family **family, const struct cfg *c, struct diag *d)
{
    char known[256] = "";
    const struct cfg_node *type = cfg_find(hf_language(c), "model_type");
    for (int i = 0; i < LEN(families); i++) {
        *family = &families[i];
        if (strcmp(families[i].type, hf_text(type)) == 0) return OK;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 families[i].type);
    }
    const struct cfg_node *list = cfg_find(&c->root, "architectures");
    const char *shown = *hf_text(type) ? hf_text(type)
                        : list && list->type == CFG_LIST && list->n ? hf_text(&list->child[0]) : "";
    return cfg_fail(d, c, type ? type : list,
                    "model_type '%s' is not known: %s are; write a model file of our own for it",
                    cfg_shown(shown).text, known);
}

/* "Qwen3-30B-A3B" of "Qwen/Qwen3-30B-A3B", where the file says where it came from; else the architecture. */
static void hf_name(struct model *m, const struct cfg *c, const struct hf_family *family)
{
    const char *from = hf_text(cfg_find(&c->root, "_name_or_path")), *slash = strrchr(from, '/');
    const char *name = slash ? slash + 1 : from;
    const int good = *name && strlen(name) < sizeof m->name && strspn(name, "abcdefghijklmnopqrstuvwxyz"
                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == strlen(name);
    snprintf(m->name, sizeof m->name, "%s", good ? name : family->type);
}

static enum err hf_biases(const struct hf *f)
{
    const int attention = strcmp(hf_text(hf_find(f, "attention_bias")), "true") == 0;
    const int mlp = strcmp(hf_text(hf_find(f, "mlp_bias")), "true") == 0;
    if (attention) f->m->bias |= 1 << BIAS_QKV | 1 << BIAS_O;
    if (mlp) f->m->bias |= 1 << BIAS_MLP;
    return OK;
}

static enum err hf_activation(const struct hf *f)
{
    const struct cfg_node *v = hf_find(f, "hidden_act");
    if (!v || strcmp(hf_text(v), "silu") == 0) return OK;
    return cfg_fail(f->d, f->c, v, "hidden_act '%s' is not known: silu (SwiGLU) is",
                    cfg_shown(hf_text(v)).text);
}

static enum err hf_attention(const struct hf *f, const struct hf_family *family)
{
    if (family->mla) return hf_take(f, mla_keys, LEN(mla_keys));
    f->m->kv_heads = f->m->heads;
    if (!f->m->head_dim) f->m->head_dim = f->m->hidden / f->m->heads;
    return hf_take(f, gqa_keys, LEN(gqa_keys));
}

enum err model_hf_fill(struct model *m, const struct cfg *c, struct diag *d)
{
    const struct hf f = { c, hf_language(c), m, d };
    const struct hf_family *family;
    TRY(hf_family_of(&family, c, d));
    *m = (struct model){ 0 };
    cfg_defaults(m, model_opts, model_n_opt);
    for (int i = 0; i < HF_FIXED && family->fixed[i][0]; i++)
        TRY(hf_set(&f, family->fixed[i][0], family->fixed[i][1], f.map));
    TRY(hf_take(&f, keys, LEN(keys)));
    TRY(hf_int(&m->ffn, &f, "intermediate_size", 0));
    TRY(hf_attention(&f, family));
    if (family->moe) TRY(hf_moe(&f, family));
    TRY(hf_window(&f));
    TRY(hf_biases(&f));
    TRY(hf_rope(&f, family));
    TRY(hf_activation(&f));
    hf_name(m, c, family);
    return OK;
}
