/* Reads configs/models and refuses architectures that cannot be. What follows from an architecture alone (kinds of
 * layers, parameters, FLOP per token) is model_count.c. */
#include "models/model.h"
#include "models/model_hf.h"
#include <stddef.h>
#include <string.h>

static const char *const model_attentions[] = { "gqa", "mla", NULL };
static const char *const model_scores[] = { "softmax", "sigmoid", NULL };
static const char *const model_group_scores[] = { "top2", "max", NULL };
static const char *const model_activations[] = { "swiglu", "gelu", "relu2", NULL };
static const char *const model_scalings[] = { "none", "linear", "yarn", "llama3", NULL };
static const char *const model_positions[] = { "rope", "none", NULL };
static const char *const model_biases[] = { "qkv", "o", "mlp", "router", "norm", NULL };

/* Largest sizes keep every later product of two of them inside int32 and every byte count inside int64. */
/* key, type, field, names, lowest, highest, default (0: required), help */
#define MODEL_OPTS(X)                                                                                        \
    X("name", TEXT, name, 0, 0, 0, "", "name in answers; default: of the file")                              \
    X("layers", INT, layers, 0, 1, 1000, 0, "transformer layers, MTP apart")                                 \
    X("hidden", INT, hidden, 0, 1, 1000000, 0, "width of the residual stream")                               \
    X("vocab", INT, vocab, 0, 2, 10000000, 0, "entries of the token table, unpadded")                        \
    X("tied", BOOL, tied, 0, 0, 1, "0", "1: input and output tables are one")                                \
    X("attention", NAME, attention, model_attentions, 0, 0, "gqa", "gqa or mla")                             \
    X("heads", INT, heads, 0, 1, 16384, 0, "query heads")                                                    \
    X("kv_heads", INT, kv_heads, 0, 0, 16384, "0", "gqa: key and value heads")                               \
    X("head_dim", INT, head_dim, 0, 0, 16384, "0", "gqa: width of a head (not hidden / heads)")              \
    X("qk_norm", BOOL, qk_norm, 0, 0, 1, "0", "gqa: 1: queries and keys are normalised per head")            \
    X("q_lora", INT, q_lora, 0, 0, 1000000, "0", "mla: rank of the queries' latent; 0: none, full rank")     \
    X("kv_lora", INT, kv_lora, 0, 0, 1000000, "0", "mla: rank of the keys' and values' latent")              \
    X("qk_nope", INT, qk_nope, 0, 0, 16384, "0", "mla: width of a head's part without rope")                 \
    X("qk_rope", INT, qk_rope, 0, 0, 16384, "0", "mla: width of a head's part with rope")                    \
    X("v_dim", INT, v_dim, 0, 0, 16384, "0", "mla: width of a head's value")                                 \
    X("ffn", INT, ffn, 0, 0, 1000000, "0", "width of a dense layer's MLP")                                   \
    X("experts", INT, experts, 0, 0, 65536, "0", "routed experts of a layer; 0: a dense model")              \
    X("topk", INT, topk, 0, 0, 1024, "0", "experts a token uses")                                            \
    X("expert_ffn", INT, expert_ffn, 0, 0, 1000000, "0", "width of an expert's MLP")                         \
    X("shared_ffn", INT, shared_ffn, 0, 0, 1000000, "0", "width of all shared experts together; 0: none")    \
    X("dense_layers", INT, dense_layers, 0, 0, 1000, "0", "first layers without experts")                    \
    X("score", NAME, score, model_scores, 0, 0, "softmax", "how router logits become scores")                \
    X("norm_topk", BOOL, norm_topk, 0, 0, 1, "1", "1: weights of the chosen experts sum to one")             \
    X("selection_bias", BOOL, selection_bias, 0, 0, 1, "0",                                                  \
      "1: a bias per expert is added for selection only")                                                    \
    X("groups", INT, groups, 0, 0, 65536, "1", "groups of experts; 1: none")                                 \
    X("groups_kept", INT, groups_kept, 0, 0, 65536, "1", "groups a token may choose from")                   \
    X("route_scale", NUMBER, route_scale, 0, 1e-6, 1e6, "1", "factor on the weights of the chosen experts")  \
    X("mtp", INT, mtp, 0, 0, MODEL_MTP, "0", "multi-token-prediction depths")                                \
    X("mtp_weight", NUMBER, mtp_weight, 0, 0, 100, "0.1", "factor on their loss")                            \
    X("rope_theta", NUMBER, rope_theta, 0, 1, 1e12, "10000", "base of the rotary angles")                    \
    X("rope_scaling", NAME, rope_scaling, model_scalings, 0, 0, "none", "how rotary angles reach a longer context") \
    X("rope_factor", NUMBER, rope_factor, 0, 0, 1e6, "1", "how many times longer")                           \
    X("rope_original", INT, rope_original, 0, 0, 1 << 30, "0", "yarn, llama3: tokens of the context before")  \
    X("rope_fast", NUMBER, rope_fast, 0, 0, 1e6, "32", "yarn, llama3: pairs with more turns in it keep theirs") \
    X("rope_slow", NUMBER, rope_slow, 0, 0, 1e6, "1", "yarn, llama3: pairs with fewer slow down in full")  \
    X("rope_truncate", BOOL, rope_truncate, 0, 0, 1, "1", "yarn: 1: the two borders are whole pairs")        \
    X("rope_mscale", NUMBER, rope_mscale, 0, 0, 100, "0", "yarn: mscale of queries and keys; 0: not given")  \
    X("rope_mscale_all", NUMBER, rope_mscale_all, 0, 0, 100, "0", "yarn: mscale_all_dim; 0: not given")      \
    X("rope_magnitude", NUMBER, rope_magnitude, 0, 0, 100, "0", "yarn: factor on cos and sin; 0: by the mscales") \
    X("norm_eps", NUMBER, norm_eps, 0, 1e-12, 1, "1e-6", "added under RMSNorm's root")                       \
    X("init_std", NUMBER, init_std, 0, 0, 100, "0.02", "standard deviation of initial weights")              \
    X("activation", NAME, activation, model_activations, 0, 0, "swiglu", "of MLPs; gelu and relu2 have no gate")   \
    X("bias", SET, bias, model_biases, 0, 0, "none", "what has biases, such as [qkv, o]; norm: LayerNorm's")  \
    X("positions", NAME, positions, model_positions, 0, 0, "rope", "none: learned in the table, or not at all") \
    X("group_score", NAME, group_score, model_group_scores, 0, 0, "top2", "of a group: its best two, or its best") \
    X("window", INT, window, 0, 0, 1 << 24, "0", "tokens that attention sees back; 0: all")                  \
    X("full_every", INT, full_every, 0, 0, 1000, "0", "every so many layers, one sees all; 0: none does")    \
    X("sinks", BOOL, sinks, 0, 0, 1, "0", "1: attention's softmax has one learned logit more per head")      \
    X("moe_latent", INT, moe_latent, 0, 0, 1000000, "0", "width of tokens among the experts; 0: hidden")     \
    X("pattern", TEXT, pattern, 0, 0, 0, "", "a letter a layer: M Mamba, * attention, - MLP, E experts")     \
    X("mamba_heads", INT, mamba_heads, 0, 0, 16384, "0", "Mamba-2: heads")                                   \
    X("mamba_head_dim", INT, mamba_head_dim, 0, 0, 16384, "0", "Mamba-2: width of a head")                   \
    X("mamba_state", INT, mamba_state, 0, 0, 16384, "0", "Mamba-2: states of a column")                      \
    X("mamba_groups", INT, mamba_groups, 0, 0, 16384, "1", "Mamba-2: groups that share B and C")             \
    X("mamba_conv", INT, mamba_conv, 0, 1, 64, "4", "Mamba-2: taps of its convolution")                      \
    X("mamba_chunk", INT, mamba_chunk, 0, 1, 65536, "128", "Mamba-2: tokens between kept states")            \
    X("mtp_pattern", TEXT, mtp_pattern, 0, 0, 0, "", "layers of an MTP depth; default: one like the last")   \
    X("mtp_shared", BOOL, mtp_shared, 0, 0, 1, "0", "1: MTP depths use one set of weights again")

const struct opt model_opts[] = {
#define X(k, t, f, n, low, high, d, h)                                                                               \
    { .key = k, .type = OPT_##t, .at = offsetof(struct model, f), .size = sizeof(((struct model *)0)->f),            \
      .names = n, .lo = low, .hi = high, .def = d, .help = h },
    MODEL_OPTS(X)
#undef X
};
const int model_n_opt = LEN(model_opts);

/* ---- what cannot be ---- */

static enum err model_check_gqa(const struct model *m, struct diag *d)
{
    if (m->kv_heads < 1 || m->heads % m->kv_heads != 0)
        return fail(d, ERR_CONFIG, "kv_heads = %d does not divide heads = %d: use a divisor", m->kv_heads,
                    m->heads);
    if (m->head_dim < 2 || m->head_dim % 2 != 0)
        return fail(
            d, ERR_CONFIG,
            "head_dim = %d is not even and positive: rope turns pairs of columns; hidden / heads is %d",
            m->head_dim, m->hidden / m->heads);
    return OK;
}

static enum err model_check_mla(const struct model *m, struct diag *d)
{
    if (m->positions != POSITIONS_ROPE)
        return fail(d, ERR_CONFIG, "positions = none with mla: its keys have a rotary part, use rope");
    if (m->bias & (1 << BIAS_QKV | 1 << BIAS_O))
        return fail(d, ERR_CONFIG, "bias = qkv or o with mla: no published model has them, remove them");
    if (m->sinks) return fail(d, ERR_CONFIG, "sinks = 1 with mla: no published model has them, use 0");
    if (m->kv_lora < 1)
        return fail(d, ERR_CONFIG, "kv_lora = %d with mla: give the rank of the keys' latent", m->kv_lora);
    if (m->qk_nope < 1)
        return fail(d, ERR_CONFIG, "qk_nope = %d with mla: give its width, such as 128", m->qk_nope);
    if (m->v_dim < 1)
        return fail(d, ERR_CONFIG, "v_dim = %d with mla: give its width, such as 128", m->v_dim);
    if (m->qk_rope < 2 || m->qk_rope % 2 != 0)
        return fail(d, ERR_CONFIG, "qk_rope = %d is not even and positive: rope turns pairs of columns",
                    m->qk_rope);
    if (m->qk_norm)
        return fail(d, ERR_CONFIG, "qk_norm = 1 with mla: its latents are normalised already, use 0");
    return OK;
}

/* Nothing is ignored silently: what another way needs is refused. */
static enum err model_check_rope(const struct model *m, struct diag *d)
{
    const char *const how = model_scalings[m->rope_scaling];
    const int by_turns = m->rope_scaling == SCALING_YARN || m->rope_scaling == SCALING_LLAMA3;
    if (m->rope_scaling == SCALING_NONE && m->rope_factor > 1)
        return fail(d, ERR_CONFIG, "rope_factor = %g with rope_scaling = none: say which, or use 1", m->rope_factor);
    if (m->rope_scaling != SCALING_NONE && m->rope_factor < 1)
        return fail(d, ERR_CONFIG, "rope_factor = %g with rope_scaling = %s: a context grows, give 1 or more", m->rope_factor, how);
    if (m->rope_scaling != SCALING_NONE && m->positions != POSITIONS_ROPE)
        return fail(d, ERR_CONFIG, "rope_scaling = %s with positions = none: there are no angles, use none", how);
    if (by_turns && m->rope_original < 1)
        return fail(d, ERR_CONFIG, "rope_original = %d with rope_scaling = %s: give the context before, such as 4096",
                    m->rope_original, how);
    if (m->rope_scaling == SCALING_YARN && m->rope_theta <= 1)
        return fail(d, ERR_CONFIG, "rope_theta = %g with rope_scaling = yarn: all pairs turn alike; give more than 1",
                    m->rope_theta);
    if (by_turns && m->rope_slow <= 0)
        return fail(d, ERR_CONFIG, "rope_slow = %g: pairs make more than 0 turns, such as 1", m->rope_slow);
    if (m->rope_scaling == SCALING_LLAMA3 ? m->rope_fast <= m->rope_slow : by_turns && m->rope_fast < m->rope_slow)
        return fail(d, ERR_CONFIG, "rope_fast = %g is not above rope_slow = %g: swap them", m->rope_fast, m->rope_slow);
    if (m->rope_scaling != SCALING_YARN && (m->rope_mscale > 0 || m->rope_mscale_all > 0 || m->rope_magnitude > 0))
        return fail(d, ERR_CONFIG,
                    "rope_mscale = %g, rope_mscale_all = %g, rope_magnitude = %g with rope_scaling = %s: only yarn has "
                    "them, use 0",
                    m->rope_mscale, m->rope_mscale_all, m->rope_magnitude, how);
    return OK;
}

/* Group-limited routing: groups are scored by their best experts, then the top k is taken inside the kept ones. */
static enum err model_check_groups(const struct model *m, struct diag *d)
{
    if (m->groups < 1 || m->experts % m->groups != 0)
        return fail(d, ERR_CONFIG, "groups = %d does not divide experts = %d: use a divisor, 1 for none",
                    m->groups, m->experts);
    if (m->groups_kept < 1 || m->groups_kept > m->groups)
        return fail(d, ERR_CONFIG,
                    "groups_kept = %d is not in 1 .. groups = %d: keep at least one and at most all",
                    m->groups_kept, m->groups);
    const int size = m->experts / m->groups;
    if (m->groups > 1 && size < 2 && m->group_score == GROUP_SCORE_TOP2)
        return fail(d, ERR_CONFIG,
                    "groups = %d of experts = %d leaves %d in a group, scoring needs 2: use fewer groups",
                    m->groups, m->experts, size);
    if (m->topk > m->groups_kept * size)
        return fail(d, ERR_CONFIG,
                    "topk = %d is more than the %d experts in groups_kept = %d groups: keep more groups",
                    m->topk, m->groups_kept * size, m->groups_kept);
    return OK;
}

static enum err model_check_moe(const struct model *m, struct diag *d)
{
    if (m->topk < 1 || m->topk > m->experts)
        return fail(d, ERR_CONFIG, "topk = %d is not in 1 .. experts = %d: choose how many a token uses",
                    m->topk, m->experts);
    if (m->expert_ffn < 1)
        return fail(d, ERR_CONFIG, "expert_ffn = %d with experts = %d: give the width of an expert",
                    m->expert_ffn, m->experts);
    return model_check_groups(m, d);
}

static enum err model_check_dense(const struct model *m, struct diag *d)
{
    if (m->topk > 0)
        return fail(d, ERR_CONFIG, "topk = %d with experts = 0: a dense model has none, use 0", m->topk);
    if (m->shared_ffn > 0)
        return fail(d, ERR_CONFIG, "shared_ffn = %d with experts = 0: a dense model has none, use 0",
                    m->shared_ffn);
    return OK;
}

/* ---- hybrids ---- */

static enum err model_check_letters(const char *key, const char *text, struct diag *d)
{
    const size_t n = strspn(text, "M*-E");
    if (text[n] == '\0') return OK;
    return fail(d, ERR_CONFIG, "%s = %s has '%c' at %d: M (Mamba), * (attention), - (MLP), E (experts) are known",
                key, text, text[n], (int)n + 1);
}

static enum err model_check_mamba(const struct model *m, struct diag *d)
{
    if (m->mamba_heads < 1 || m->mamba_head_dim < 1 || m->mamba_state < 1)
        return fail(d, ERR_CONFIG,
                    "pattern has M, but mamba_heads = %d, mamba_head_dim = %d, mamba_state = %d: give all three",
                    m->mamba_heads, m->mamba_head_dim, m->mamba_state);
    if (m->mamba_groups < 1 || m->mamba_heads % m->mamba_groups != 0)
        return fail(d, ERR_CONFIG, "mamba_groups = %d does not divide mamba_heads = %d: use a divisor",
                    m->mamba_groups, m->mamba_heads);
    return OK;
}

static enum err model_check_pattern(const struct model *m, struct diag *d)
{
    TRY(model_check_letters("pattern", m->pattern, d));
    TRY(model_check_letters("mtp_pattern", m->mtp_pattern, d));
    if (*m->pattern == '\0')
        return *m->mtp_pattern == '\0'
                   ? OK
                   : fail(d, ERR_CONFIG, "mtp_pattern = %s without a pattern: give both", m->mtp_pattern);
    if ((int)strlen(m->pattern) != m->layers)
        return fail(d, ERR_CONFIG, "pattern has %d letters, layers = %d: give one for each",
                    (int)strlen(m->pattern), m->layers);
    if (m->dense_layers > 0)
        return fail(d, ERR_CONFIG, "dense_layers = %d with a pattern: write - where a layer is dense, use 0",
                    m->dense_layers);
    if (strchr(m->pattern, 'E') != NULL && m->experts == 0)
        return fail(d, ERR_CONFIG, "pattern has E, but experts = 0: give their number");
    return strchr(m->pattern, 'M') != NULL || strchr(m->mtp_pattern, 'M') != NULL ? model_check_mamba(m, d) : OK;
}

/* Counts stay far inside int64 (16 bytes of state a parameter) when no sum of them passes this. */
#define MODEL_PARAMS_MAX 1e15

static double model_params_about(const struct model *m)
{
    const double h = m->hidden, layers = m->layers + m->mtp, heads = m->heads;
    const double attention =
        h * heads * (4.0 * m->head_dim + m->qk_nope + m->qk_rope + 2.0 * m->v_dim) +
        (h + heads * (2.0 * m->qk_nope + m->qk_rope + m->v_dim)) * ((double)m->q_lora + m->kv_lora);
    const double ffn = 3 * h * ((double)m->ffn + m->shared_ffn + (double)m->experts * (m->expert_ffn + 1.0));
    const double mamba = (h + m->mamba_conv) * (3.0 * m->mamba_heads * m->mamba_head_dim + m->mamba_heads +
                                                2.0 * m->mamba_groups * m->mamba_state);
    return layers * (attention + ffn + mamba + h * m->moe_latent) + 2 * h * (m->vocab + h);
}

enum err model_check(const struct model *m, struct diag *d)
{
    TRY(m->attention == ATTENTION_MLA ? model_check_mla(m, d) : model_check_gqa(m, d));
    TRY(m->experts > 0 ? model_check_moe(m, d) : model_check_dense(m, d));
    TRY(model_check_pattern(m, d));
    TRY(model_check_rope(m, d));
    if (m->dense_layers > m->layers)
        return fail(d, ERR_CONFIG, "dense_layers = %d is more than layers = %d: lower it", m->dense_layers,
                    m->layers);
    if (m->ffn < 1 && model_count_ffn(m, FFN_DENSE) > 0)
        return fail(d, ERR_CONFIG, "ffn = %d with %d dense layers: give the width of their MLP", m->ffn,
                    model_count_ffn(m, FFN_DENSE));
    if (model_params_about(m) > MODEL_PARAMS_MAX)
        return fail(
            d, ERR_CONFIG,
            "hidden = %d with these sizes makes about %.2g parameters, the limit is %.2g: check the sizes",
            m->hidden, model_params_about(m), MODEL_PARAMS_MAX);
    return OK;
}

enum err model_fill(struct model *m, const struct cfg *c, struct diag *d)
{
    struct model read = { 0 };
    if (model_hf_is(c)) TRY(model_hf_fill(&read, c, d));
    else TRY(cfg_fill(&read, NULL, model_opts, model_n_opt, c, d));
    const enum err status = model_check(&read, d);
    if (status != OK) return cfg_locate(d, status, model_opts, model_n_opt, NULL, c);
    if (*read.name == '\0') cfg_stem(read.name, sizeof(read.name), c->name);
    *m = read;
    return OK;
}

enum err model_read(struct model *m, struct arena *a, const char *arg, struct diag *d)
{
    struct cfg c;
    TRY(cfg_read_named(&c, a, "models", arg, d));
    return model_fill(m, &c, d);
}

/* A text may hold what YAML has a meaning for; in single quotes only the quote itself is doubled. */
static char *model_quoted(struct arena *a, const char *value)
{
    char *quoted = arena_alloc(a, 2 * strlen(value) + 3), *to = quoted;
    *to++ = '\'';
    for (; *value; *to++ = *value++)
        if (*value == '\'') *to++ = '\'';
    *to = '\'';
    return quoted;
}

char *model_text(struct arena *a, const struct model *m)
{
    char *text = "";
    for (int i = 0; i < model_n_opt; i++) {
        char value[512];
        const char *shown = cfg_echo(value, sizeof(value), m, &model_opts[i]);
        if (model_opts[i].type == OPT_TEXT) shown = model_quoted(a, shown);
        text = arena_printf(a, "%s%s: %s\n", text, model_opts[i].key, shown);
    }
    return text;
}
