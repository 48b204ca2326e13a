/* Reads configs/models, refuses architectures that cannot be, and counts what follows from the architecture
 * alone: parameters to the last one, and FLOP per token as Megatron-LM counts them. */
#include "models/model.h"
#include <stddef.h>

static const char *const model_attentions[] = { "gqa", "mla", NULL };
static const char *const model_scores[] = { "softmax", "sigmoid", NULL };

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
    X("q_lora", INT, q_lora, 0, 0, 1000000, "0", "mla: rank of the queries' latent")                         \
    X("kv_lora", INT, kv_lora, 0, 0, 1000000, "0", "mla: rank of the keys' and values' latent")              \
    X("qk_nope", INT, qk_nope, 0, 0, 16384, "0", "mla: width of a head's part without rope")                 \
    X("qk_rope", INT, qk_rope, 0, 0, 16384, "0", "mla: width of a head's part with rope")                    \
    X("v_dim", INT, v_dim, 0, 0, 16384, "0", "mla: width of a head's value")                                 \
    X("ffn", INT, ffn, 0, 0, 1000000, "0", "width of a dense layer's SwiGLU")                                \
    X("experts", INT, experts, 0, 0, 65536, "0", "routed experts of a layer; 0: a dense model")              \
    X("topk", INT, topk, 0, 0, 1024, "0", "experts a token uses")                                            \
    X("expert_ffn", INT, expert_ffn, 0, 0, 1000000, "0", "width of an expert's SwiGLU")                      \
    X("shared_ffn", INT, shared_ffn, 0, 0, 1000000, "0", "width of the shared expert's SwiGLU; 0: none")     \
    X("dense_layers", INT, dense_layers, 0, 0, 1000, "0", "first layers without experts")                    \
    X("score", NAME, score, model_scores, 0, 0, "softmax", "how router logits become scores")                \
    X("norm_topk", BOOL, norm_topk, 0, 0, 1, "1", "1: weights of the chosen experts sum to one")             \
    X("selection_bias", BOOL, selection_bias, 0, 0, 1, "0",                                                  \
      "1: a bias per expert is added for selection only")                                                    \
    X("groups", INT, groups, 0, 0, 65536, "1", "groups of experts; 1: none")                                 \
    X("groups_kept", INT, groups_kept, 0, 0, 65536, "1", "groups a token may choose from")                   \
    X("route_scale", NUMBER, route_scale, 0, 1e-6, 1e6, "1", "factor on the weights of the chosen experts")  \
    X("mtp", INT, mtp, 0, 0, 1, "0", "multi-token-prediction layers")                                        \
    X("mtp_weight", NUMBER, mtp_weight, 0, 0, 100, "0.1", "factor on their loss")                            \
    X("rope_theta", NUMBER, rope_theta, 0, 1, 1e12, "10000", "base of the rotary angles")                    \
    X("norm_eps", NUMBER, norm_eps, 0, 1e-12, 1, "1e-6", "added under RMSNorm's root")                       \
    X("init_std", NUMBER, init_std, 0, 0, 100, "0.02", "standard deviation of initial weights")

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
    if (m->q_lora < 1)
        return fail(d, ERR_CONFIG, "q_lora = %d with mla: full-rank queries are not supported, give a rank",
                    m->q_lora);
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

/* Group-limited routing: groups are scored by their two best experts, then the top k is taken inside the kept
 * ones. */
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
    if (m->groups > 1 && size < 2)
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

/* Counts stay far inside int64 (16 bytes of state a parameter) when no sum of them passes this. */
#define MODEL_PARAMS_MAX 1e15

static double model_params_about(const struct model *m)
{
    const double h = m->hidden, layers = m->layers + m->mtp, heads = m->heads;
    const double attention =
        h * heads * (4.0 * m->head_dim + m->qk_nope + m->qk_rope + 2.0 * m->v_dim) +
        (h + heads * (2.0 * m->qk_nope + m->qk_rope + m->v_dim)) * ((double)m->q_lora + m->kv_lora);
    const double ffn = 3 * h * ((double)m->ffn + m->shared_ffn + (double)m->experts * (m->expert_ffn + 1.0));
    return layers * (attention + ffn) + 2 * h * (m->vocab + h);
}

enum err model_check(const struct model *m, struct diag *d)
{
    TRY(m->attention == ATTENTION_MLA ? model_check_mla(m, d) : model_check_gqa(m, d));
    TRY(m->experts > 0 ? model_check_moe(m, d) : model_check_dense(m, d));
    if (m->dense_layers > m->layers)
        return fail(d, ERR_CONFIG, "dense_layers = %d is more than layers = %d: lower it", m->dense_layers,
                    m->layers);
    if (m->ffn < 1 && (m->experts == 0 || m->dense_layers > 0))
        return fail(d, ERR_CONFIG, "ffn = %d with %d dense layers: give the width of their SwiGLU", m->ffn,
                    m->experts == 0 ? m->layers : m->dense_layers);
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
    TRY(cfg_fill(&read, NULL, model_opts, model_n_opt, c, d));
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

/* ---- counts ---- */

static int64_t model_attention_params(const struct model *m)
{
    const int64_t h = m->hidden, n = m->heads;
    if (m->attention == ATTENTION_GQA)
        return h * (n + 2 * m->kv_heads) * m->head_dim + n * m->head_dim * h +
               (m->qk_norm ? 2 * m->head_dim : 0);
    const int64_t q  = h * m->q_lora + m->q_lora + m->q_lora * n * (m->qk_nope + m->qk_rope);
    const int64_t kv = h * (m->kv_lora + m->qk_rope) + m->kv_lora + m->kv_lora * n * (m->qk_nope + m->v_dim);
    return q + kv + n * m->v_dim * h;
}

static int64_t model_expert_params(const struct model *m)
{
    return 3 * (int64_t)m->hidden * m->expert_ffn;
}

/* One layer: attention, two norms, and a dense or a routed MLP with its router and shared expert. */
static int64_t model_layer_params(const struct model *m, int moe)
{
    const int64_t h = m->hidden, shell = model_attention_params(m) + 2 * h;
    if (!moe) return shell + 3 * h * m->ffn;
    return shell + h * m->experts + (m->selection_bias ? m->experts : 0) + 3 * h * m->shared_ffn +
           m->experts * model_expert_params(m);
}

struct model_params model_params(const struct model *m)
{
    const int64_t h = m->hidden, n_dense = m->experts > 0 ? m->dense_layers : m->layers,
                  n_moe = m->layers - n_dense;
    const int64_t tables = (m->tied ? 1 : 2) * (int64_t)m->vocab * h;
    struct model_params p;
    p.total  = tables + n_dense * model_layer_params(m, 0) + n_moe * model_layer_params(m, 1) + h;
    p.expert = n_moe * m->experts * model_expert_params(m);
    p.active = p.total - n_moe * (m->experts - m->topk) * model_expert_params(m);
    p.mtp = m->mtp *
            (model_layer_params(m, m->experts > 0) + 2 * h * h + 3 * h); /* its layer, projection, norms */
    return p;
}

/* Linear layers of attention, forward, per token: multiply-adds. MLA's latent norms count as one column each,
 * as in Megatron-LM training.py. */
static double model_attention_macs(const struct model *m)
{
    const double h = m->hidden, n = m->heads;
    if (m->attention == ATTENTION_GQA) return h * (n + 2.0 * m->kv_heads) * m->head_dim + n * m->head_dim * h;
    const double q  = m->q_lora * (h + n * (m->qk_nope + m->qk_rope) + 1);
    const double kv = m->kv_lora * (h + n * (m->qk_nope + m->v_dim) + 1) + h * m->qk_rope;
    return q + kv + n * m->v_dim * h;
}

/* Scores and their product with the values: half of the square is masked. */
static double model_core_macs(const struct model *m, int64_t seq)
{
    return (double)seq * m->heads * (model_qk_dim(m) + model_v_dim(m)) / 2;
}

double model_flop_per_token(const struct model *m, int64_t seq, int64_t vocab_padded)
{
    const double h = m->hidden, mtp = m->mtp, n_dense = m->experts > 0 ? m->dense_layers : m->layers + mtp;
    const double n_moe = m->layers + mtp - n_dense;     /* an MTP layer is of the last layer's kind */
    const double attention = (m->layers + mtp) * (model_attention_macs(m) + model_core_macs(m, seq));
    const double mlp = 3 * h * (n_dense * m->ffn + n_moe * ((double)m->topk * m->expert_ffn + m->shared_ffn));
    const double rest = mtp * (3 * h + 2 * h * h) + h * (double)vocab_padded * (mtp + 1);
    return 6 * (attention + mlp + rest);                /* forward and two of backward, 2 FLOP a multiply-add */
}
