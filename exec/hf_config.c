/* config.json and the layout of files for a checkpoint that never was Hugging Face's: of the architectures
 * that transformers has, the one that computes what the model does. */
#include "exec/hf.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *hf_config_gqa(const struct model *m)
{
    if (!m->experts) return m->qk_norm ? NULL : "llama";
    if (m->score != SCORE_SOFTMAX || m->shared_ffn || m->selection_bias || m->groups > 1 ||
        m->route_scale != 1)
        return NULL;
    if (m->qk_norm) return "qwen3_moe";
    return m->norm_topk && !m->dense_layers ? "mixtral" : NULL;
}

static const char *hf_config_mla(const struct model *m)
{
    if (!m->experts || m->shared_ffn % (m->expert_ffn ? m->expert_ffn : 1) != 0) return NULL;
    if (m->score == SCORE_SIGMOID && m->selection_bias && m->group_score == GROUP_SCORE_TOP2)
        return "deepseek_v3";
    return m->score == SCORE_SOFTMAX && !m->selection_bias && !m->mtp && !m->norm_topk &&
                   (m->groups == 1 || m->group_score == GROUP_SCORE_MAX) ? "deepseek_v2" : NULL;
}

static void hf_config_set(json_t *to, const char *key, int64_t v)
{
    json_object_set_new(to, key, json_integer(v));
}

static void hf_config_mla_keys(json_t *to, const struct model *m, int v3)
{
    json_object_set_new(to, "q_lora_rank", m->q_lora ? json_integer(m->q_lora) : json_null());
    hf_config_set(to, "kv_lora_rank", m->kv_lora);
    hf_config_set(to, "qk_nope_head_dim", m->qk_nope);
    hf_config_set(to, "qk_rope_head_dim", m->qk_rope);
    hf_config_set(to, "v_head_dim", m->v_dim);
    hf_config_set(to, "n_routed_experts", m->experts);
    hf_config_set(to, "n_shared_experts", m->shared_ffn / m->expert_ffn);
    hf_config_set(to, "n_group", m->groups);
    hf_config_set(to, "topk_group", m->groups_kept);
    hf_config_set(to, "first_k_dense_replace", m->dense_layers);
    hf_config_set(to, "num_nextn_predict_layers", m->mtp);
    json_object_set_new(to, "routed_scaling_factor", json_real(m->route_scale));
    json_object_set_new(to, "topk_method",
                        json_string(v3              ? "noaux_tc"
                                    : m->groups > 1 ? "group_limited_greedy"
                                                    : "greedy"));
    json_object_set_new(to, "scoring_func", json_string(v3 ? "sigmoid" : "softmax"));
}

static void hf_config_dense_layers(json_t *to, const struct model *m)
{
    json_t *list = json_array();
    for (int i = 0; i < m->dense_layers; i++) json_array_append_new(list, json_integer(i));
    json_object_set_new(to, "mlp_only_layers", list);
    hf_config_set(to, "decoder_sparse_step", 1);
    hf_config_set(to, "num_experts", m->experts);
}

/* Class names of transformers. */
static const char *hf_config_class(const char *type)
{
    static const char *const of[][2] = { { "llama", "Llama" },
                                         { "mixtral", "Mixtral" },
                                         { "qwen3_moe", "Qwen3Moe" },
                                         { "deepseek_v2", "DeepseekV2" },
                                         { "deepseek_v3", "DeepseekV3" } };
    int i = 0;
    while (strcmp(of[i][0], type) != 0) i++;
    return of[i][1];
}

/* Keys of the model's rotary scaling, as both spellings have them. */
static json_t *hf_config_rope(const struct model *m)
{
    static const char *const name[] = { "default", "linear", "yarn", "llama3" };
    const int yarn = m->rope_scaling == SCALING_YARN, llama3 = m->rope_scaling == SCALING_LLAMA3;
    json_t *to = json_pack("{s:f,s:s}", "rope_theta", m->rope_theta, "rope_type", name[m->rope_scaling]);
    if (m->rope_scaling == SCALING_NONE) return to;
    json_object_set_new(to, "factor", json_real(m->rope_factor));
    if (yarn || llama3) {
        hf_config_set(to, "original_max_position_embeddings", m->rope_original);
        json_object_set_new(to, yarn ? "beta_fast" : "high_freq_factor", json_real(m->rope_fast));
        json_object_set_new(to, yarn ? "beta_slow" : "low_freq_factor", json_real(m->rope_slow));
    }
    if (yarn) json_object_set_new(to, "truncate", json_boolean(m->rope_truncate));
    if (m->rope_mscale > 0) json_object_set_new(to, "mscale", json_real(m->rope_mscale));
    if (m->rope_mscale_all > 0) json_object_set_new(to, "mscale_all_dim", json_real(m->rope_mscale_all));
    if (m->rope_magnitude > 0) json_object_set_new(to, "attention_factor", json_real(m->rope_magnitude));
    return to;
}

static char *hf_config_text(struct arena *a, const struct model *m, const char *type)
{
    const int mixtral = strcmp(type, "mixtral") == 0, mla = m->attention == ATTENTION_MLA;
    json_t *to = json_object();
    json_object_set_new(to, "architectures",
                        json_pack("[s]", arena_printf(a, "%sForCausalLM", hf_config_class(type))));
    json_object_set_new(to, "model_type", json_string(type));
    hf_config_set(to, "num_hidden_layers", m->layers);
    hf_config_set(to, "hidden_size", m->hidden);
    hf_config_set(to, "vocab_size", m->vocab);
    hf_config_set(to, "num_attention_heads", m->heads);
    hf_config_set(to, "num_key_value_heads", mla ? m->heads : m->kv_heads);
    if (!mla) hf_config_set(to, "head_dim", m->head_dim);
    hf_config_set(to, "intermediate_size", mixtral ? m->expert_ffn : m->ffn ? m->ffn : m->hidden);
    json_object_set_new(to, "tie_word_embeddings", json_boolean(m->tied));
    json_object_set_new(to, "rms_norm_eps", json_real(m->norm_eps));
    json_object_set_new(to, "rope_theta", json_real(m->rope_theta));
    json_object_set_new(to, "rope_parameters", hf_config_rope(m));
    if (m->rope_scaling != SCALING_NONE) json_object_set_new(to, "rope_scaling", hf_config_rope(m));
    json_object_set_new(to, "initializer_range", json_real(m->init_std));
    json_object_set_new(to, "hidden_act", json_string("silu"));
    json_object_set_new(to, "dtype", json_string("float32"));
    json_object_set_new(to, "torch_dtype", json_string("float32"));
    if (m->experts) hf_config_set(to, "num_experts_per_tok", m->topk);
    if (m->experts && !mixtral) hf_config_set(to, "moe_intermediate_size", m->expert_ffn);
    if (m->experts && !mixtral) json_object_set_new(to, "norm_topk_prob", json_boolean(m->norm_topk));
    if (mixtral) hf_config_set(to, "num_local_experts", m->experts);
    if (m->experts && !mixtral && !mla) hf_config_dense_layers(to, m);
    if (mla) hf_config_mla_keys(to, m, strcmp(type, "deepseek_v3") == 0);
    char *text = json_dumps(to, JSON_INDENT(2)), *copy = arena_printf(a, "%s\n", text);
    json_decref(to);
    free(text);
    return copy;
}

enum err hf_config_make(json_t **files, struct arena *a, const struct program *pr, const struct model *m,
                        struct diag *d)
{
    const char *type = m->attention == ATTENTION_MLA ? hf_config_mla(m) : hf_config_gqa(m);
    struct hf_tensor *all;
    int64_t head_B;
    if (!type || m->activation != ACTIVATION_SWIGLU)
        return fail(
            d, ERR_LIMIT,
            "model %s is none of Llama, Mixtral, Qwen3-MoE, DeepSeek-V2 and V3 (its scores, norms or shared "
            "experts): transformers could not read it",
            m->name);
    const int n = hf_tensors(&all, a, pr, m, type);
    struct safetensors_tensor *t = arena_alloc(a, (size_t)n * sizeof *t);
    for (int i = 0; i < n; i++) {
        t[i] = (struct safetensors_tensor){ .name = all[i].name,
                                            .type = SAFETENSORS_F32,
                                            .n_dim = all[i].n_dim };
        t[i].dim[0] = all[i].n_dim == 1 ? all[i].cols : all[i].rows;
        t[i].dim[1] = all[i].cols;
    }
    const char *head = safetensors_head(a, t, n, &head_B), *config = hf_config_text(a, m, type);
    *files = json_pack("[{s:s,s:s},{s:s,s:s#}]", "name", "config.json", "text", config, "name",
                       "model.safetensors", "head", head + 8, (int)head_B - 8);
    return OK;
}
