/* What follows from an architecture alone: what each layer is, parameters to the last one, and FLOP per token as
 * Megatron-LM counts them. Every count is a sum over layers of what their mixer and their MLP have. */
#include "models/model.h"
#include <math.h>
#include <string.h>

/* ---- kinds of layers ---- */

static struct layer_kind model_letter(char c)
{
    switch (c) {
    case 'M': return (struct layer_kind){ MIXER_MAMBA, FFN_NONE, 0 };
    case '*': return (struct layer_kind){ MIXER_ATTENTION, FFN_NONE, 0 };
    case 'E': return (struct layer_kind){ MIXER_NONE, FFN_MOE, 0 };
    default: return (struct layer_kind){ MIXER_NONE, FFN_DENSE, 0 };
    }
}

struct layer_kind model_layer(const struct model *m, int layer)
{
    const int at = layer < m->layers ? layer : m->layers - 1;
    const int moe = m->experts > 0 && layer >= m->dense_layers;
    const int full = m->full_every > 0 && (at + 1) % m->full_every == 0;
    struct layer_kind k = *m->pattern ? model_letter(m->pattern[at])
                                      : (struct layer_kind){ MIXER_ATTENTION, moe ? FFN_MOE : FFN_DENSE, 0 };
    if (k.mixer == MIXER_ATTENTION && !full) k.window = m->window;
    return k;
}

int model_mtp_layers(const struct model *m)
{
    return *m->mtp_pattern ? (int)strlen(m->mtp_pattern) : 1;
}

struct layer_kind model_mtp_layer(const struct model *m, int i)
{
    return *m->mtp_pattern ? model_letter(m->mtp_pattern[i]) : model_layer(m, m->layers);
}

int model_count_mixer(const struct model *m, enum mixer k)
{
    int n = 0;
    for (int i = 0; i < m->layers; i++) n += model_layer(m, i).mixer == (int)k;
    return n;
}

int model_count_ffn(const struct model *m, enum ffn k)
{
    int n = 0;
    for (int i = 0; i < m->layers; i++) n += model_layer(m, i).ffn == (int)k;
    return n;
}

const char *model_cost_only(const struct model *m)
{
    if (*m->pattern) return "a pattern of layers";
    if (model_has_bias(m, BIAS_NORM)) return "shifts of norms";
    if (m->mtp > 1) return "more than one MTP depth";
    return NULL;
}

void model_cut(struct model *m, int layers)
{
    m->layers = layers;
    if (m->dense_layers > layers) m->dense_layers = layers;
    if (*m->pattern) m->pattern[layers] = '\0';
}

/* ---- parameters ---- */

static int64_t model_norm_params(const struct model *m)
{
    return model_norm_rows(m) * (int64_t)m->hidden;
}

static int64_t model_attention_params(const struct model *m)
{
    const int64_t h = m->hidden, n = m->heads, qkv = (n + 2 * m->kv_heads) * m->head_dim;
    if (m->attention == ATTENTION_GQA)
        return h * qkv + n * m->head_dim * h + (m->qk_norm ? 2 * m->head_dim : 0) +
               (model_has_bias(m, BIAS_QKV) ? qkv : 0) + (model_has_bias(m, BIAS_O) ? h : 0) + (m->sinks ? n : 0);
    const int64_t up = n * (m->qk_nope + m->qk_rope), rank = m->q_lora;
    const int64_t q  = rank ? h * rank + rank + rank * up : h * up;
    const int64_t kv = h * (m->kv_lora + m->qk_rope) + m->kv_lora + m->kv_lora * n * (m->qk_nope + m->v_dim);
    return q + kv + n * m->v_dim * h;
}

/* Projections in and out; convolution with its shift over values, B and C; of a head: step shift, decay, skip; the
 * gated norm (Megatron-LM core/ssm/mamba_mixer.py). */
static int64_t model_mamba_params(const struct model *m)
{
    const int64_t h = m->hidden, in = model_mamba_in(m), dim = model_mamba_dim(m);
    return h * in + (in - dim - m->mamba_heads) * (m->mamba_conv + 1) + 3 * m->mamba_heads + dim + dim * h;
}

/* An MLP of this width between columns of `in`. */
static int64_t model_mlp_params(const struct model *m, int64_t in, int64_t width)
{
    const int64_t up = model_up(m) * width;
    return width ? in * (up + width) + (model_has_bias(m, BIAS_MLP) ? up + in : 0) : 0;
}

static int64_t model_expert_params(const struct model *m)
{
    return model_mlp_params(m, model_expert_in(m), m->expert_ffn);
}

static int64_t model_moe_params(const struct model *m)
{
    const int64_t h = m->hidden, per_expert = h + m->selection_bias + model_has_bias(m, BIAS_ROUTER);
    return m->experts * (per_expert + model_expert_params(m)) + model_mlp_params(m, h, m->shared_ffn) +
           2 * h * m->moe_latent;
}

static int64_t model_layer_params(const struct model *m, struct layer_kind k)
{
    int64_t n = 0;
    if (k.mixer != MIXER_NONE)
        n += model_norm_params(m) + (k.mixer == MIXER_MAMBA ? model_mamba_params(m) : model_attention_params(m));
    if (k.ffn != FFN_NONE)
        n += model_norm_params(m) +
             (k.ffn == FFN_MOE ? model_moe_params(m) : model_mlp_params(m, m->hidden, m->ffn));
    return n;
}

/* Its layers, projection and three norms; shared depths count once. */
static int64_t model_mtp_params(const struct model *m)
{
    const int64_t h = m->hidden, depths = m->mtp_shared && m->mtp > 1 ? 1 : m->mtp;
    int64_t n = 2 * h * h + 3 * model_norm_params(m);
    for (int i = 0; i < model_mtp_layers(m); i++) n += model_layer_params(m, model_mtp_layer(m, i));
    return depths * n;
}

struct model_params model_params(const struct model *m)
{
    const int64_t n_moe = model_count_ffn(m, FFN_MOE);
    struct model_params p = { .mtp = model_mtp_params(m) };
    p.total = (m->tied ? 1 : 2) * (int64_t)m->vocab * m->hidden + model_norm_params(m);
    for (int i = 0; i < m->layers; i++) p.total += model_layer_params(m, model_layer(m, i));
    p.expert = n_moe * m->experts * model_expert_params(m);
    p.active = p.total - n_moe * (m->experts - m->topk) * model_expert_params(m);
    return p;
}

/* ---- FLOP ---- */

/* Linear layers of attention, forward, per token: multiply-adds. MLA's latent norms count as one column each,
 * as in Megatron-LM training.py. */
static double model_attention_macs(const struct model *m)
{
    const double h = m->hidden, n = m->heads, up = n * (m->qk_nope + m->qk_rope);
    if (m->attention == ATTENTION_GQA) return h * (n + 2.0 * m->kv_heads) * m->head_dim + n * m->head_dim * h;
    const double q  = m->q_lora ? m->q_lora * (h + up + 1) : h * up;
    const double kv = m->kv_lora * (h + n * (m->qk_nope + m->v_dim) + 1) + h * m->qk_rope;
    return q + kv + n * m->v_dim * h;
}

double model_context(int64_t seq, int64_t window)
{
    const double s = (double)seq, w = (double)window;
    return window > 0 && window < seq ? w - w * w / (2 * s) : s / 2;
}

/* DeepSeek-V3 inference/model.py; transformers modeling_rope_utils.py get_mscale. */
static double model_mscale(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

double model_rope_magnitude(const struct model *m)
{
    if (m->rope_scaling != SCALING_YARN) return 1;
    if (m->rope_magnitude > 0) return m->rope_magnitude;
    if (m->rope_mscale > 0 && m->rope_mscale_all > 0)
        return model_mscale(m->rope_factor, m->rope_mscale) / model_mscale(m->rope_factor, m->rope_mscale_all);
    return model_mscale(m->rope_factor, 1);
}

double model_score_scale(const struct model *m)
{
    if (m->rope_scaling != SCALING_YARN || m->attention != ATTENTION_MLA || m->rope_mscale_all <= 0) return 1;
    const double by = model_mscale(m->rope_factor, m->rope_mscale_all);
    return by * by;
}

/* Sum over i in [0, n) of x + i held within [0, n]. */
static double model_ramp(double x, double n)
{
    if (x >= n) return n * n;
    if (x >= 0) return (x + n - 1) * (n - x) / 2 + x * n;
    return x > -n ? (n - 1 + x) * (n + x) / 2 : 0;
}

/* Pairs of a query in a chunk of n tokens and a key in a chunk `apart` chunks before it that the query sees. */
static double model_chunk_pairs(int apart, double n, double window)
{
    return apart < 0 ? 0 : model_ramp(apart * n + 1, n) - model_ramp(apart * n + 1 - window, n);
}

double model_ring_share(int64_t seq, int64_t window, int cp, int step)
{
    const double w = window > 0 && window < seq ? (double)window : (double)seq, n = (double)seq / (2.0 * cp);
    double pairs = 0;
    for (int i = 0; i < cp; i++) {
        const int mine[] = { i, 2 * cp - 1 - i }, j = (i - step + cp) % cp, keys[] = { j, 2 * cp - 1 - j };
        for (int k = 0; k < 4; k++) pairs += model_chunk_pairs(mine[k / 2] - keys[k % 2], n, w);
    }
    return pairs / (w * (double)seq - w * (w - 1) / 2);
}

/* Scores and their product with the values. */
static double model_core_macs(const struct model *m, int64_t seq, int window)
{
    return model_context(seq, window) * m->heads * (model_qk_dim(m) + model_v_dim(m));
}

/* Projections, and 7 FLOP a state (Megatron-LM training.py mamba_layer_flops). */
static double model_mamba_macs(const struct model *m)
{
    const double dim = model_mamba_dim(m);
    return m->hidden * (model_mamba_in(m) + dim) + MODEL_SCAN_FLOP / 2.0 * dim * m->mamba_state;
}

static double model_mlp_macs(const struct model *m, double in, double width)
{
    return in * (model_up(m) + 1) * width;
}

static double model_moe_macs(const struct model *m)
{
    return m->topk * model_mlp_macs(m, model_expert_in(m), m->expert_ffn) +
           model_mlp_macs(m, m->hidden, m->shared_ffn) + 2.0 * m->hidden * m->moe_latent;
}

static double model_layer_macs(const struct model *m, struct layer_kind k, int64_t seq)
{
    double n = 0;
    if (k.mixer == MIXER_ATTENTION) n += model_attention_macs(m) + model_core_macs(m, seq, k.window);
    if (k.mixer == MIXER_MAMBA) n += model_mamba_macs(m);
    if (k.ffn == FFN_DENSE) n += model_mlp_macs(m, m->hidden, m->ffn);
    if (k.ffn == FFN_MOE) n += model_moe_macs(m);
    return n;
}

double model_flop_per_token(const struct model *m, int64_t seq, int64_t vocab_padded)
{
    const double h = m->hidden, mtp = m->mtp;
    double macs = h * (double)vocab_padded * (mtp + 1) + mtp * (3 * h + 2 * h * h);
    for (int i = 0; i < m->layers; i++) macs += model_layer_macs(m, model_layer(m, i), seq);
    for (int i = 0; i < model_mtp_layers(m); i++) macs += mtp * model_layer_macs(m, model_mtp_layer(m, i), seq);
    return 6 * macs;                                    /* forward and two of backward, 2 FLOP a multiply-add */
}
