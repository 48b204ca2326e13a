/* Plan -> arguments. First what cannot be written, then the model's sizes, then the plan by the tables, then
 * what a launch of it needs in kernels, overlaps and environment. */
#include "tools/megatron.h"
#include <stdio.h>
#include <string.h>

struct writer { struct megatron_args *args; struct arena *a; };

static void add(const struct writer *w, const char *flag, const char *value)
{
    megatron_add(w->args, w->a, flag, value);
}

static void add_int(const struct writer *w, const char *flag, int64_t value)
{
    add(w, flag, arena_printf(w->a, "%lld", (long long)value));
}

static void add_real(const struct writer *w, const char *flag, double value)
{
    add(w, flag, arena_printf(w->a, "%.15g", value));
}

/* ---- the model ---- */

/* What MLATransformerConfig takes for granted is as we have it (Megatron-LM transformer_config.py). */
static int writes_yarn(const struct model *m)
{
    return m->rope_scaling == SCALING_YARN && m->attention == ATTENTION_MLA && m->rope_original == 4096 && m->rope_fast == 32 &&
           m->rope_slow == 1 && m->rope_truncate && m->rope_magnitude == 0 && m->rope_mscale > 0 && m->rope_mscale_all > 0;
}

static enum err check_model(const struct model *m, struct diag *d)
{
    if (*m->pattern)
        return fail(
            d, ERR_NO,
            "model %s is a hybrid of layers: pretrain_gpt.py has none, and its arguments for Megatron's "
            "hybrid models are not written yet",
            m->name);
    if (m->rope_scaling != SCALING_NONE && !writes_yarn(m))
        return fail(d, ERR_NO,
                    "model %s: rope_scaling: pretrain_gpt.py has arguments for MLA's yarn alone, with rope_original 4096, "
                    "rope_fast 32, rope_slow 1 and both mscales: use none",
                    m->name);
    if (m->positions == POSITIONS_NONE || m->activation != ACTIVATION_SWIGLU || model_has_bias(m, BIAS_NORM))
        return fail(
            d, ERR_NO,
            "model %s is of the GPT kind (no rotary positions, no SwiGLU, or LayerNorm): its arguments are "
            "not written yet",
            m->name);
    return OK;
}

static void model_attention(const struct writer *w, const struct model *m)
{
    add_int(w, "--num-attention-heads", m->heads);
    if (m->attention == ATTENTION_MLA) {
        add(w, "--multi-latent-attention", NULL);
        megatron_add_all(w->args, w->a, "--qk-layernorm --rope-type");          /* of the latents */
        add(w, m->rope_scaling == SCALING_YARN ? "yarn" : "rope", NULL);
        if (m->rope_scaling == SCALING_YARN) {
            add_real(w, "--rotary-scaling-factor", m->rope_factor);
            add_real(w, "--mscale", m->rope_mscale);
            add_real(w, "--mscale-all-dim", m->rope_mscale_all);
        }
        if (m->q_lora) add_int(w, "--q-lora-rank", m->q_lora);
        add_int(w, "--kv-lora-rank", m->kv_lora);
        add_int(w, "--qk-head-dim", m->qk_nope);
        add_int(w, "--qk-pos-emb-head-dim", m->qk_rope);
        add_int(w, "--v-head-dim", m->v_dim);
        return;
    }
    add(w, "--group-query-attention", NULL);
    add_int(w, "--num-query-groups", m->kv_heads);
    add_int(w, "--kv-channels", m->head_dim);
    if (m->qk_norm) add(w, "--qk-layernorm", NULL);
    if (m->window) add(w, "--window-size", arena_printf(w->a, "%d,0", m->window - 1));
    if (m->window && m->full_every) add_int(w, "--window-attn-skip-freq", m->full_every);
    if (m->sinks) add(w, "--softmax-type", "learnable");
}

static void model_biases(const struct writer *w, const struct model *m)
{
    const int qkv = model_has_bias(m, BIAS_QKV), o = model_has_bias(m, BIAS_O),
              mlp = model_has_bias(m, BIAS_MLP);
    if (!(qkv && o && mlp)) add(w, "--disable-bias-linear", NULL);
    if (qkv && !o) add(w, "--add-qkv-bias", NULL);
}

static void model_experts(const struct writer *w, const struct model *m)
{
    if (!m->experts) return;
    add_int(w, "--num-experts", m->experts);
    add_int(w, "--moe-ffn-hidden-size", m->expert_ffn);
    if (m->dense_layers)
        add(w, "--moe-layer-freq",
            arena_printf(w->a, "([0]*%d+[1]*%d)", m->dense_layers, m->layers - m->dense_layers));
    if (m->shared_ffn) add_int(w, "--moe-shared-expert-intermediate-size", m->shared_ffn);
    if (m->moe_latent) add_int(w, "--moe-latent-size", m->moe_latent);
    add_int(w, "--moe-router-topk", m->topk);
    add(w, "--moe-router-score-function", m->score == SCORE_SIGMOID ? "sigmoid" : "softmax");
    /* softmax over all experts and no renormalising, or over the chosen ones, which is renormalising */
    if (m->score == SCORE_SOFTMAX && !m->norm_topk) add(w, "--moe-router-pre-softmax", NULL);
    if (m->selection_bias) add(w, "--moe-router-enable-expert-bias", NULL);
    if (m->groups > 1) add_int(w, "--moe-router-num-groups", m->groups);
    if (m->groups > 1) add_int(w, "--moe-router-group-topk", m->groups_kept);
    if (m->route_scale != 1) add_real(w, "--moe-router-topk-scaling-factor", m->route_scale);
}

enum err megatron_model(struct megatron_args *args, struct arena *a, const struct model *m, struct diag *d)
{
    const struct writer w = { args, a };
    TRY(check_model(m, d));
    add_int(&w, "--num-layers", m->layers);
    add_int(&w, "--hidden-size", m->hidden);
    if (model_count_ffn(m, FFN_DENSE) > 0 || !m->experts) add_int(&w, "--ffn-hidden-size", m->ffn);
    else add_int(&w, "--ffn-hidden-size", m->expert_ffn);
    model_attention(&w, m);
    model_experts(&w, m);
    model_biases(&w, m);
    add(&w, "--swiglu", NULL);
    add(&w, "--normalization", "RMSNorm");
    add_real(&w, "--norm-epsilon", m->norm_eps);
    add(&w, "--position-embedding-type", "rope");
    add_real(&w, "--rotary-base", m->rope_theta);
    if (!m->tied) add(&w, "--untie-embeddings-and-output-weights", NULL);
    return OK;
}

/* ---- what cannot be written ---- */

static int is_apart(const char *key)
{
    for (int i = 0; megatron_apart[i]; i++)
        if (strcmp(megatron_apart[i], key) == 0) return 1;
    for (int i = 0; i < megatron_n_same; i++)
        if (strcmp(megatron_same[i].key, key) == 0) return 1;
    return 0;
}

static const char *means(const char *key, const char *text)
{
    for (int i = 0; i < megatron_n_means; i++)
        if (strcmp(megatron_means[i].key, key) == 0 && strcmp(megatron_means[i].text, text) == 0)
            return megatron_means[i].args;
    return NULL;
}

/* An option that no table knows must be at its default; a value that none knows cannot be written. */
static enum err check_option(const struct plan *p, const struct opt *o, struct diag *d)
{
    char text[1024];
    cfg_echo(text, sizeof text, p, o);
    if (is_apart(o->key) || means(o->key, text) || (o->def && strcmp(text, o->def) == 0)) return OK;
    return fail(d, ERR_NO, "--%s: Megatron-LM has no argument for %s %s here: set it to %s", o->key, o->key,
                cfg_shown(text).text, o->def ? o->def : "its default");
}

static enum err check_plan(const struct job *j, struct diag *d)
{
    const struct plan *p = &j->plan;
    if (j->stack.runs)
        return fail(d, ERR_NO,
                    "stack %s is our own executor, not Megatron-Core: give --stack, such as mcore-2608",
                    j->stack.name);
    if (p->split_wgrad && !p->ep_overlap)
        return fail(d, ERR_NO,
                    "split-wgrad 1 without ep-overlap: Megatron-Core delays weight gradients only with "
                    "--overlap-moe-expert-parallel-comm: set ep-overlap 1 or split-wgrad 0");
    if (p->moments != STATE_FP32 && p->master != MASTER_REMAINDER)
        return fail(d, ERR_NO,
                    "moments below fp32 with master fp32: Megatron-Core's precision-aware optimizer stores "
                    "remainders: set master remainder");
    if (p->routing.capacity > 0 && p->dispatcher == DISPATCHER_DEEPEP)
        return fail(
            d, ERR_NO,
            "a capacity with dispatcher deepep: Megatron-Core has no capacity there: use alltoall");
    for (int i = 0; i < plan_n_opt; i++) TRY(check_option(p, &plan_opts[i], d));
    return OK;
}

/* ---- the plan ---- */

static void plan_same(const struct writer *w, const struct plan *p)
{
    char text[256];
    for (int i = 0; i < megatron_n_same; i++) {
        const struct megatron_same *s = &megatron_same[i];
        const int idle = (strcmp(s->key, "vpp-group") == 0 && p->vpp == 1) ||
                         (strcmp(s->key, "lr-steps") == 0 && !p->lr_steps) ||
                         (strcmp(s->key, "aux-loss-coeff") == 0 && p->balance == BALANCE_NONE) ||
                         (strcmp(s->key, "z-loss-coeff") == 0 && !(p->z_loss > 0));
        if (idle) continue;
        cfg_echo(text, sizeof text, p, cfg_opt(plan_opts, plan_n_opt, s->key));
        add(w, s->flag, arena_strdup(w->a, text));
    }
}

static void plan_means(const struct writer *w, const struct job *j)
{
    char text[256];
    for (int i = 0; i < plan_n_opt; i++) {
        const char *key  = plan_opts[i].key,
                   *args = means(key, cfg_echo(text, sizeof text, &j->plan, &plan_opts[i]));
        const int routes = strcmp(key, "dispatcher") == 0 || strcmp(key, "balance") == 0;
        const int idle = (routes && !j->model.experts) ||
                         (strcmp(key, "cp-comm") == 0 && j->plan.cp == 1);
        if (args && !idle) megatron_add_all(w->args, w->a, args);
    }
}

static void plan_pipeline(const struct writer *w, const struct plan *p)
{
    if (p->pp > 1) add(w, "--pipeline-model-parallel-layout", layout_text(w->a, &p->split));
    if (p->mtp) add_int(w, "--mtp-num-layers", p->mtp);
}

static void plan_recompute(const struct writer *w, const struct plan *p)
{
    const char *modules = "";
    if (!p->recompute) return;
    if (p->recompute >> RECOMPUTE_FULL & 1) {
        megatron_add_all(w->args, w->a,
                         "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
        return;
    }
    for (int r = 0; r < RECOMPUTE_FULL; r++)
        if (p->recompute >> r & 1)
            modules = arena_printf(w->a, "%s%s%s", modules, *modules ? " " : "", stack_recomputes[r]);
    add(w, "--recompute-granularity", "selective");
    add(w, "--recompute-modules", modules);
}

static void plan_graphs(const struct writer *w, const struct plan *p, const struct stack *s)
{
    const char *modules = "";
    if (p->graph >> GRAPH_FULL & 1) {
        megatron_add_all(w->args, w->a, s->graph_scope ? "--cuda-graph-impl local --cuda-graph-scope full_iteration"
                                                       : "--cuda-graph-impl full_iteration");
        megatron_add_all(w->args, w->a, "--no-check-for-nan-in-loss-and-grad --te-rng-tracker");
        return;
    }
    for (int g = 0; g < GRAPH_FULL_LAYER; g++)
        if (p->graph >> g & 1)
            modules = arena_printf(w->a, "%s%s%s", modules, *modules ? " " : "", stack_graphs[g]);
    if (!p->graph) return;
    megatron_add_all(w->args, w->a, "--cuda-graph-impl transformer_engine --te-rng-tracker");
    if (*modules) add(w, s->graph_scope ? "--cuda-graph-scope" : "--cuda-graph-modules", modules); /* none: whole layers */
}

static void plan_offload(const struct writer *w, const struct plan *p)
{
    const char *modules = "";
    if (p->offload_layers) add(w, "--cpu-offloading", NULL);
    if (p->offload_layers) add_int(w, "--cpu-offloading-num-layers", p->offload_layers);
    for (int m = OFFLOAD_ATTN_NORM; m <= OFFLOAD_MOE_ACT; m++)
        if (p->offload_modules >> m & 1)
            modules = arena_printf(w->a, "%s%s%s", modules, *modules ? " " : "", stack_offloads[m]);
    if (*modules) add(w, "--fine-grained-activation-offloading", NULL);
    if (*modules) add(w, "--offload-modules", modules);
    if (p->offload_optimizer <= 0) return;
    megatron_add_all(w->args, w->a, "--optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d");
    add_real(w, "--optimizer-offload-fraction", p->offload_optimizer);
}

static void plan_decay(const struct writer *w, const struct plan *p)
{
    if (p->lr_decay == LR_DECAY_CONSTANT) return;
    add_real(w, "--min-lr", p->lr * p->lr_min);
    if (p->lr_decay == LR_DECAY_WSD && p->lr_steps)
        add_int(w, "--lr-wsd-decay-iters", (int64_t)(p->lr_steps * p->lr_cooldown + 0.5));
}

static void plan_rest(const struct writer *w, const struct job *j)
{
    const struct plan *p = &j->plan;
    if (p->high_first || p->high_last) {
        add(w, "--first-last-layers-bf16", NULL);
        add_int(w, "--num-layers-at-start-in-bf16", p->high_first);
        add_int(w, "--num-layers-at-end-in-bf16", p->high_last);
    }
    if (p->routing.capacity > 0) add_real(w, "--moe-expert-capacity-factor", p->routing.capacity);
    if (p->routing.policy == ROUTING_PADDED) add(w, "--moe-pad-expert-input-to-capacity", NULL);
    if (p->routing.by_position) add(w, "--moe-token-drop-policy", "position");
    add_int(w, "--vocab-size", j->model.vocab + p->vocab_extra);
    add_int(w, "--make-vocab-size-divisible-by", j->stack.vocab_multiple);
}

/* ---- what a launch needs besides ---- */

static void launch(const struct writer *w, const struct job *j)
{
    megatron_add_all(
        w->args, w->a,
        "--use-mcore-models --transformer-impl transformer_engine --use-distributed-optimizer "
        "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te "
        "--no-create-attention-mask-in-dataloader --attention-dropout 0 --hidden-dropout 0 --manual-gc "
        "--manual-gc-interval 10");
    add_int(w, "--max-position-embeddings", j->plan.seq);
    add_real(w, "--init-method-std", j->model.init_std);
    if (!j->model.experts) return;
    megatron_add_all(w->args, w->a, "--moe-grouped-gemm --moe-permute-fusion --moe-router-dtype fp32");
    if (j->plan.mtp) add_real(w, "--mtp-loss-scaling-factor", j->model.mtp_weight);
}

static void environment(const struct writer *w, const struct job *j)
{
    const struct plan *p = &j->plan;
    const int hybrid = j->model.experts && p->dispatcher == DISPATCHER_HYBRIDEP && p->ep > 1;
    const int domain = p->domain_gpus < p->ep ? p->domain_gpus : p->ep;
    /* 1 keeps collectives before the GEMMs they feed on Hopper; woven halves need more queues */
    add(w, "CUDA_DEVICE_MAX_CONNECTIONS", p->ep_overlap ? "32" : "1");
    add(w, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
    if (hybrid) add_int(w, "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN", domain);
    if (hybrid) add_int(w, "USE_MNNVL", j->system.domain > j->system.gpus_per_host);
}

enum err megatron_export(struct megatron_args *args, struct megatron_args *env, struct arena *a,
                         const struct job *j, struct diag *d)
{
    const struct writer w = { args, a }, e = { env, a };
    *args = *env = (struct megatron_args){ 0 };
    TRY(check_plan(j, d));
    TRY(megatron_model(args, a, &j->model, d));
    plan_same(&w, &j->plan);
    plan_means(&w, j);
    plan_pipeline(&w, &j->plan);
    plan_recompute(&w, &j->plan);
    plan_graphs(&w, &j->plan, &j->stack);
    plan_offload(&w, &j->plan);
    plan_decay(&w, &j->plan);
    plan_rest(&w, j);
    launch(&w, j);
    environment(&e, j);
    return OK;
}

/* ---- a script ---- */

/* Quoted where the shell would see more than a word; several words of one flag stay apart. */
static const char *quoted(struct arena *a, const char *flag, const char *value)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+/:=, ";
    const int words = strcmp(flag, "--recompute-modules") == 0 || strspn(value, plain) == strlen(value);
    return words ? value : arena_printf(a, "'%s'", value);
}

char *megatron_script(struct arena *a, const struct job *j, const struct megatron_args *args,
                      const struct megatron_args *env)
{
    int per_node = j->plan.gpus < j->system.gpus_per_host ? j->plan.gpus : j->system.gpus_per_host;
    while (j->plan.gpus % per_node) per_node--;
    char *text = arena_printf(
        a,
        "#!/bin/bash\n"
        "# %s on %d GPUs of %s, as moefold planned it for stack %s. Data, tokenizer, iterations, schedule "
        "of\n"
        "# the learning rate and checkpoints are yours: they are handed on. In the directory of "
        "Megatron-LM:\n"
        "#   NODE_RANK=.. MASTER_ADDR=.. bash THIS --data-path .. --tokenizer-type .. --train-iters ..\n"
        "set -eu\n",
        j->model.name, j->plan.gpus, j->system.name, j->stack.name);
    if (j->model.experts && !j->model.selection_bias && j->plan.balance == BALANCE_NONE)
        text = arena_printf(a, "%s# Nothing keeps experts even: plan with --balance aux_loss or seq_aux_loss, as most training runs do.\n", text);
    for (int i = 0; i < env->n; i++)
        text = arena_printf(a, "%sexport %s=%s\n", text, env->arg[i].flag, env->arg[i].value);
    text = arena_printf(a,
                        "%storchrun --nproc-per-node %d --nnodes %d --node-rank \"${NODE_RANK:-0}\" \\\n"
                        "    --master-addr \"${MASTER_ADDR:-localhost}\" --master-port "
                        "\"${MASTER_PORT:-29500}\" pretrain_gpt.py \\\n",
                        text, per_node, j->plan.gpus / per_node);
    for (int i = 0; i < args->n; i++) {
        const struct megatron_arg *x = &args->arg[i];
        text = arena_printf(a, "%s    %s%s%s \\\n", text, x->flag, x->value ? " " : "",
                            x->value ? quoted(a, x->flag, x->value) : "");
    }
    return arena_printf(a, "%s    \"$@\"\n", text);
}
