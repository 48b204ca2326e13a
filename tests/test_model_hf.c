/* Hugging Face configurations against our own descriptions of the same models, option by option; and what is
 * refused (cases F01, F02, F04). */
#include "models/model_hf.h"
#include "tests/test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = { "deepseek-v3",      "kimi-k2",        "deepseek-v2",
                                     "deepseek-v2-lite", "qwen2-57b-a14b", "qwen3-30b-a3b",
                                     "mixtral-8x22b",    "gpt-oss-20b",    "llama3-8b" };

static enum err read_named(struct model *m, const char *arg, struct diag *d)
{
    struct arena a = { 0 };
    const enum err e = model_read(m, &a, arg, d);
    arena_free(&a);
    return e;
}

/* Not in a configuration, or another thing there: how MTP's loss counts, how weights begin (the class's
 * default), the width of dense layers that do not exist. */
static int is_apart(const struct opt *o, const struct model *m)
{
    static const char *const apart[] = { "name", "mtp_weight", "init_std", "mamba_conv" };
    for (int i = 0; i < LEN(apart); i++)
        if (strcmp(o->key, apart[i]) == 0) return 1;
    return strcmp(o->key, "ffn") == 0 && model_count_ffn(m, FFN_DENSE) == 0;
}

static void check_same(const char *file, const char *name)
{
    struct model ours, theirs;
    struct diag d = { "" };
    char path[512], want[512], got[512];
    snprintf(path, sizeof path, SOURCE_DIR "/tests/data/model/%s", file);
    ck_assert_msg(read_named(&ours, name, &d) == OK, "%s", d.text);
    ck_assert_msg(read_named(&theirs, path, &d) == OK, "%s", d.text);
    for (int i = 0; i < model_n_opt; i++) {
        const struct opt *o = &model_opts[i];
        if (is_apart(o, &ours)) continue;
        cfg_echo(want, sizeof want, &ours, o);
        cfg_echo(got, sizeof got, &theirs, o);
        ck_assert_msg(strcmp(want, got) == 0, "%s: %s is %s, ours has %s", file, o->key, got, want);
    }
    ck_assert_int_eq(model_params(&ours).total, model_params(&theirs).total);
}

START_TEST(both_spellings)
{
    char file[128];
    for (int i = 0; i < LEN(names); i++) {
        snprintf(file, sizeof file, "%s-v4.json", names[i]);
        check_same(file, names[i]);
        snprintf(file, sizeof file, "%s-v5.json", names[i]);
        check_same(file, names[i]);
    }
}
END_TEST

/* ---- one small file, and what a change of it does ---- */

#define LLAMA "\"model_type\": \"llama\", \"num_hidden_layers\": 4, \"hidden_size\": 64, \"vocab_size\": 256, " \
              "\"num_attention_heads\": 4, \"intermediate_size\": 128"
#define QWEN3                                                                                                \
    "\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 4, \"hidden_size\": 64, \"vocab_size\": 256, "    \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32, \"intermediate_size\": 128, " \
    "\"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 48, \"norm_topk_prob\": "    \
    "true"
#define V3 "\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 4, \"hidden_size\": 64, \"vocab_size\": 256, "      \
           "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"q_lora_rank\": null, \"kv_lora_rank\": 16, "     \
           "\"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 8, \"v_head_dim\": 16, \"n_routed_experts\": 8, "         \
           "\"n_shared_experts\": 2, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 48, "                    \
           "\"first_k_dense_replace\": 2, \"routed_scaling_factor\": 2.5"

static enum err read_text(struct model *m, const char *body, struct diag *d)
{
    struct arena a = { 0 };
    struct cfg c;
    char text[2048];
    snprintf(text, sizeof text, "{ %s }", body);
    enum err e = cfg_read_text(&c, &a, "config.json", text, strlen(text), d);
    if (e == OK) e = model_fill(m, &c, d);
    arena_free(&a);
    return e;
}

static void check_refused(const char *body, const char *what)
{
    struct model m;
    struct diag d = { "" };
    ck_assert_int_eq(read_text(&m, body, &d), ERR_CONFIG);
    ck_assert_msg(strncmp(d.text, "config.json:1:", 14) == 0, "no place: %s", d.text);
    ck_assert_msg(strstr(d.text, what), "'%s' is not in: %s", what, d.text);
}

START_TEST(reads_small)
{
    struct model m;
    struct diag d = { "" };
    ck_assert_msg(read_text(&m, LLAMA, &d) == OK, "%s", d.text);
    ck_assert_int_eq(m.kv_heads, 4);            /* absent: as many as heads                       */
    ck_assert_int_eq(m.head_dim, 16);           /* absent: hidden / heads                         */
    ck_assert_int_eq(m.tied, 0);
    ck_assert_msg(read_text(&m, LLAMA ", \"tie_word_embeddings\": true", &d) == OK, "%s", d.text);
    ck_assert_int_eq(m.tied, 1);
    ck_assert_msg(read_text(&m, QWEN3, &d) == OK, "%s", d.text);
    ck_assert_int_eq(m.head_dim, 32);           /* case F02: not hidden / heads                   */
    ck_assert_int_eq(m.norm_topk, 1);           /* case F04                                       */
    ck_assert_msg(read_text(&m, V3, &d) == OK, "%s", d.text);
    ck_assert_int_eq(m.dense_layers, 2);        /* case F01                                       */
    ck_assert_int_eq(m.shared_ffn, 96);
    ck_assert_int_eq(m.q_lora, 0);
    ck_assert_int_eq(m.selection_bias, 1);
}
END_TEST

START_TEST(reads_nested)
{
    struct model m;
    struct diag d = { "" };
    ck_assert_msg(read_text(&m, "\"model_type\": \"vision\", \"text_config\": { " QWEN3 " }", &d) == OK, "%s",
                  d.text);
    ck_assert_int_eq(m.experts, 8);
    ck_assert_str_eq(m.name, "qwen3_moe");
    ck_assert_msg(read_text(&m, QWEN3 ", \"_name_or_path\": \"Qwen/Small-1B\"", &d) == OK, "%s", d.text);
    ck_assert_str_eq(m.name, "Small-1B");
}
END_TEST

START_TEST(dense_layers_by_list)
{
    struct model m;
    struct diag d = { "" };
    ck_assert_msg(read_text(&m, V3 ", \"moe_layer_freq\": [0, 1, 1, 1]", &d) == OK, "%s", d.text);
    ck_assert_int_eq(m.dense_layers, 1);
    ck_assert_msg(read_text(&m, QWEN3 ", \"mlp_only_layers\": [0, 1]", &d) == OK, "%s", d.text);
    ck_assert_int_eq(m.dense_layers, 2);
    check_refused(V3 ", \"moe_layer_freq\": [0, 1, 1]", "3 entries, num_hidden_layers is 4");
    check_refused(V3 ", \"moe_layer_freq\": [0, 1, 0, 1]", "layer 2 of moe_layer_freq");
    check_refused(V3 ", \"moe_layer_freq\": 2", "moe_layer_freq is not 1");
    check_refused(QWEN3 ", \"mlp_only_layers\": [3]", "mlp_only_layers");
    check_refused(QWEN3 ", \"decoder_sparse_step\": 2", "decoder_sparse_step is 2");
}
END_TEST

START_TEST(windows)
{
    struct model m;
    struct diag d = { "" };
    const char *alternating =
        ", \"sliding_window\": 8, \"layer_types\": [\"sliding_attention\", \"full_attention\", "
        "\"sliding_attention\", \"full_attention\"]";
    char body[1024];
    snprintf(body, sizeof body, "%s%s", QWEN3, alternating);
    ck_assert_msg(read_text(&m, body, &d) == OK, "%s", d.text);
    ck_assert_int_eq(m.window, 8);
    ck_assert_int_eq(m.full_every, 2);
    ck_assert_msg(read_text(&m, QWEN3 ", \"sliding_window\": 8, \"use_sliding_window\": false", &d) == OK,
                  "%s", d.text);
    ck_assert_int_eq(m.window, 0);
    check_refused(QWEN3
                  ", \"sliding_window\": 8, \"layer_types\": [\"full_attention\", \"sliding_attention\", "
                  "\"sliding_attention\", \"full_attention\"]",
                  "layer_types");
}
END_TEST

/* Both spellings of rotary scaling; what a kind does not say is its default; another kind is refused by name. */
START_TEST(rotary_scaling)
{
    struct model m;
    struct diag d = { "" };
    ck_assert_msg(read_text(&m, V3 ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, \"beta_fast\": 32, "
                                   "\"beta_slow\": 1, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, "
                                   "\"original_max_position_embeddings\": 4096}", &d) == OK, "%s", d.text);
    ck_assert(m.rope_scaling == SCALING_YARN && m.rope_factor == 40 && m.rope_original == 4096 && m.rope_truncate == 1);
    ck_assert_double_eq_tol(model_rope_magnitude(&m), 1, 1e-12);
    ck_assert_double_eq_tol(model_score_scale(&m), 1.8738542, 1e-6);        /* (0.1 ln 40 + 1)^2 */
    ck_assert_msg(read_text(&m, QWEN3 ", \"max_position_embeddings\": 512, \"rope_parameters\": {\"rope_type\": \"yarn\", "
                                      "\"factor\": 4, \"rope_theta\": 5e5, \"truncate\": false}", &d) == OK, "%s", d.text);
    ck_assert(m.rope_original == 512 && m.rope_fast == 32 && m.rope_slow == 1 && m.rope_truncate == 0 && m.rope_theta == 5e5);
    ck_assert_double_eq_tol(model_rope_magnitude(&m), 1.1386294, 1e-6);     /* 0.1 ln 4 + 1 */
    ck_assert_double_eq(model_score_scale(&m), 1);                          /* MLA's alone */
    ck_assert_msg(read_text(&m, LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
                                      "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}", &d) == OK, "%s",
                  d.text);
    ck_assert(m.rope_scaling == SCALING_LLAMA3 && m.rope_slow == 1 && m.rope_fast == 4);
    ck_assert_msg(read_text(&m, LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}", &d) == OK, "%s", d.text);
    ck_assert(m.rope_scaling == SCALING_LINEAR && m.rope_factor == 2.5);
    check_refused(LLAMA ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}", "rope_type 'dynamic' is not known");
    check_refused(LLAMA ", \"rope_parameters\": {\"rope_type\": \"longrope\"}", "rope_type 'longrope' is not known");
    check_refused(LLAMA ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\"}}", "differ by kind of layer");
    check_refused(LLAMA ", \"rope_scaling\": {\"type\": \"yarn\"}", "needs a factor");
    check_refused(LLAMA ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 0.5}", "rope_factor");
    check_refused(LLAMA ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}", "rope_original = 0");
    check_refused(LLAMA ", \"partial_rotary_factor\": 0.5", "partial_rotary_factor is not 1");
}
END_TEST

START_TEST(refusals)
{
    check_refused("\"model_type\": \"falcon\", \"hidden_size\": 64",
                  "model_type 'falcon' is not known: llama, mixtral");
    check_refused("\"architectures\": [\"FalconForCausalLM\"]", "'FalconForCausalLM' is not known");
    check_refused("\"model_type\": \"llama\", \"hidden_size\": 64", "'num_hidden_layers' is missing");
    check_refused(LLAMA ", \"hidden_act\": \"gelu\"", "hidden_act 'gelu'");
    check_refused(V3 ", \"topk_method\": \"best\"", "topk_method 'best'");
    check_refused(V3 ", \"n_group\": -1", "n_group");
    check_refused(LLAMA ", \"num_key_value_heads\": [1]", "needs one value");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { both_spellings,       reads_small, reads_nested,
                                   dense_layers_by_list, windows,     rotary_scaling, refusals };
    return test_main("model_hf", tests, LEN(tests), 60);
}
