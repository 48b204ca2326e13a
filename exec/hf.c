/* Names and shapes of transformers' tensors: its modeling_llama.py, modeling_mixtral.py,
 * modeling_qwen3_moe.py and modeling_deepseek_v3.py; MTP as in the DeepSeek-V3 repository
 * (README_WEIGHTS.md). */
#include "exec/hf.h"
#include "models/base/units.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const hf_carried[] = { "hf.json", NULL };

struct names {
    struct arena *a;
    const struct program *pr; const struct model *m;
    int mixtral;
    struct hf_tensor *all; int n, room;
};

static int find(const struct names *x, enum param_name name, int layer)
{
    for (int i = 0; i < x->pr->n_param; i++)
        if (x->pr->param[i].name == name && x->pr->param[i].layer == layer) return i;
    return -1;
}

/* Part `part` of `parts` of a parameter's rows (vocabulary: true rows), under a name. Nothing where the model
 * has no such parameter. */
static struct hf_tensor *add(struct names *x, enum param_name name, int layer, int expert, int part,
                             int parts, const char *format, ...) __attribute__((format(printf, 7, 8)));
static struct hf_tensor *add(struct names *x, enum param_name name, int layer, int expert, int part,
                             int parts, const char *format, ...)
{
    static struct hf_tensor nothing;
    const int i = find(x, name, layer);
    if (i < 0) return &nothing;
    if (x->n == x->room) {
        x->all = arena_grow(x->a, x->all, (size_t)x->room, 2 * (size_t)x->room + 64, sizeof *x->all);
        x->room = 2 * x->room + 64;
    }
    const struct param *q = &x->pr->param[i];
    const int32_t rows = (int32_t)checkpoint_rows(q, x->m) / parts;
    struct hf_tensor *t = &x->all[x->n++];
    *t = (struct hf_tensor){
        .param = i, .expert = expert, .row = part * rows, .rows = rows, .cols = q->cols, .n_dim = 2
    };
    if (rows == 1 && (strstr(program_param_name(name), "norm") || name == PARAM_ROUTER_BIAS)) t->n_dim = 1;
    va_list list;
    va_start(list, format);
    vsnprintf(t->name, sizeof t->name, format, list);
    va_end(list);
    return t;
}

static void add_mlp(struct names *x, enum param_name fc1, int layer, int expert, const char *prefix,
                    const char *const part[3])
{
    add(x, fc1, layer, expert, 0, 2, "%s.%s.weight", prefix, part[0]);
    add(x, fc1, layer, expert, 1, 2, "%s.%s.weight", prefix, part[1]);
    add(x, (enum param_name)(fc1 + 1), layer, expert, 0, 1, "%s.%s.weight", prefix, part[2]);
}

static void add_attention(struct names *x, int l, const char *p)
{
    const struct model *m = x->m;
    add(x, PARAM_Q, l, 0, 0, 1, "%s.q_proj.weight", p);
    add(x, PARAM_K, l, 0, 0, 1, "%s.k_proj.weight", p);
    add(x, PARAM_V, l, 0, 0, 1, "%s.v_proj.weight", p);
    add(x, PARAM_Q_NORM, l, 0, 0, 1, "%s.q_norm.weight", p);
    add(x, PARAM_K_NORM, l, 0, 0, 1, "%s.k_norm.weight", p);
    add(x, PARAM_O, l, 0, 0, 1, "%s.o_proj.weight", p);
    if (m->attention != ATTENTION_MLA) return;
    add(x, PARAM_Q_A, l, 0, 0, 1, "%s.q_a_proj.weight", p);
    add(x, PARAM_Q_A_NORM, l, 0, 0, 1, "%s.q_a_layernorm.weight", p);
    struct hf_tensor *q = add(x, PARAM_Q_B, l, 0, 0, 1, "%s.%s.weight", p, m->q_lora ? "q_b_proj" : "q_proj");
    q->turn = m->qk_rope;
    q->head = m->qk_nope + m->qk_rope;
    struct hf_tensor *kv = add(x, PARAM_KV_A, l, 0, 0, 1, "%s.kv_a_proj_with_mqa.weight", p);
    kv->turn = kv->head = m->qk_rope;
    kv->skip = m->kv_lora;
    add(x, PARAM_KV_A_NORM, l, 0, 0, 1, "%s.kv_a_layernorm.weight", p);
    add(x, PARAM_KV_B, l, 0, 0, 1, "%s.kv_b_proj.weight", p);
}

static void add_layer(struct names *x, int l)
{
    static const char *const parts[] = { "gate_proj", "up_proj", "down_proj" }, *const mixtral[] = { "w1",
                                                                                                     "w3",
                                                                                                     "w2" };
    char p[64];
    snprintf(p, sizeof p, "model.layers.%d", l);
    add(x, PARAM_ATTN_NORM, l, 0, 0, 1, "%s.input_layernorm.weight", p);
    add(x, PARAM_MLP_NORM, l, 0, 0, 1, "%s.post_attention_layernorm.weight", p);
    snprintf(p, sizeof p, "model.layers.%d.self_attn", l);
    add_attention(x, l, p);
    snprintf(p, sizeof p, "model.layers.%d.%s", l, x->mixtral ? "block_sparse_moe" : "mlp");
    if (!x->mixtral) add_mlp(x, PARAM_FC1, l, 0, p, parts);
    add(x, PARAM_ROUTER, l, 0, 0, 1, "%s.gate.weight", p);
    add(x, PARAM_ROUTER_BIAS, l, 0, 0, 1, "%s.gate.e_score_correction_bias", p);
    for (int e = 0; model_is_moe(x->m, l) && e < x->m->experts; e++) {
        snprintf(p, sizeof p, "model.layers.%d.%s.experts.%d", l, x->mixtral ? "block_sparse_moe" : "mlp", e);
        add_mlp(x, PARAM_EXPERT_FC1, l, e, p, x->mixtral ? mixtral : parts);
    }
    snprintf(p, sizeof p, "model.layers.%d.mlp.shared_experts", l);
    add_mlp(x, PARAM_SHARED_FC1, l, 0, p, parts);
}

static void add_mtp(struct names *x, int l)
{
    add(x, PARAM_MTP_ENORM, l, 0, 0, 1, "model.layers.%d.enorm.weight", l);
    add(x, PARAM_MTP_HNORM, l, 0, 0, 1, "model.layers.%d.hnorm.weight", l);
    add(x, PARAM_MTP_PROJ, l, 0, 0, 1, "model.layers.%d.eh_proj.weight", l);
    add(x, PARAM_MTP_NORM, l, 0, 0, 1, "model.layers.%d.shared_head.norm.weight", l);
    add(x, PARAM_EMBEDDING, -1, 0, 0, 1, "model.layers.%d.embed_tokens.weight", l)->copy = 1;
    add(x, PARAM_HEAD, -1, 0, 0, 1, "model.layers.%d.shared_head.head.weight", l)->copy = 1;
}

int hf_tensors(struct hf_tensor **all, struct arena *a, const struct program *pr, const struct model *m,
               const char *model_type)
{
    struct names x = { .a = a, .pr = pr, .m = m, .mixtral = strcmp(model_type, "mixtral") == 0 };
    add(&x, PARAM_EMBEDDING, -1, 0, 0, 1, "model.embed_tokens.weight");
    add(&x, PARAM_HEAD, -1, 0, 0, 1, "lm_head.weight");
    add(&x, PARAM_FINAL_NORM, -1, 0, 0, 1, "model.norm.weight");
    for (int l = 0; l < m->layers + m->mtp; l++) {
        add_layer(&x, l);
        if (l >= m->layers) add_mtp(&x, l);
    }
    *all = x.all;
    return x.n;
}

void hf_turn(float *to, const float *from, const struct hf_tensor *t, int back)
{
    const int half = t->turn / 2;
    for (int r = 0; r < t->rows; r++) {
        int other = r;                              /* the row of theirs that is row r of ours */
        const int at = t->turn && r >= t->skip ? (r - t->skip) % t->head - (t->head - t->turn) : -1;
        if (at >= 0) other = r - at + (at < half ? 2 * at : 2 * (at - half) + 1);
        const int64_t x = (int64_t)(back ? other : r) * t->cols, y = (int64_t)(back ? r : other) * t->cols;
        memcpy(to + x, from + y, (size_t)t->cols * sizeof *to);
    }
}

enum err hf_fits(const struct program *pr, const struct job *j, double host_B, struct diag *d)
{
    const double need_B = state_B(pr, j);
    char need[32], have[32];
    if (need_B <= host_B) return OK;
    return fail(d, ERR_NO,
                "the host's memory, not a GPU's: converting %s holds its weights and optimizer state whole, %s in float32, and "
                "this host has %s; it is not streamed part by part: use a host with more",
                j->model.name, units_human(need, sizeof need, need_B, UNIT_B), units_human(have, sizeof have, host_B, UNIT_B));
}

enum err hf_model_make(struct hf_model *h, struct arena *a, struct diag *d)
{
    program_build(&h->pr, a, &h->job);
    TRY(hf_fits(&h->pr, &h->job, (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE), d));
    state_make(&h->state, a, &h->pr, &h->job);
    return OK;
}

enum err hf_model_open(struct hf_model *h, struct arena *a, const char *model, int mtp, struct diag *d)
{
    const char *const flag[][2] = { { "model", model }, { "system", "host" }, { "precision", "fp32" } };
    const char *const none[][2] = {
        { "model", model }, { "system", "host" }, { "precision", "fp32" }, { "mtp", "0" }
    };
    TRY(plan_read_job(&h->job, a, NULL, mtp ? LEN(flag) : LEN(none), mtp ? flag : none, 1, d));
    h->job.model.mtp = h->job.plan.mtp;
    return hf_model_make(h, a, d);
}
