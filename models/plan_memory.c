/* What a plan may cut over replicas, and what it may put on the host: `offload` as it is written, and
 * the rules (Megatron-LM core/transformer/transformer_config.py, docs
 * fine_grained_activation_offloading.md). */
#include "models/plan.h"
#include <stdlib.h>
#include <string.h>

static enum err unknown(const char *word, struct diag *d)
{
    return fail(d, ERR_CONFIG,
                "offload %s: not known: give none, layers:N, optimizer:F, or modules among attn_norm, qkv_linear, "
                "core_attn, attn_proj, mlp_norm, expert_fc1 and moe_act, joined by +",
                cfg_shown(word).text);
}

/* One of the words between plus signs. */
static enum err fill_word(struct plan *p, const char *word, struct diag *d)
{
    char *end;
    if (strncmp(word, "layers:", 7) == 0) {
        const long n = strtol(word + 7, &end, 10);
        if (*end || end == word + 7 || n < 1 || n > 1000)
            return fail(d, ERR_CONFIG, "offload %s: give a whole number of layers from 1 to 1000", word);
        p->offload_layers = (int32_t)n;
        return OK;
    }
    if (strncmp(word, "optimizer:", 10) == 0) {
        const double share = strtod(word + 10, &end);
        if (*end || end == word + 10 || !(share > 0 && share <= 1))
            return fail(d, ERR_CONFIG, "offload %s: give a share above 0, up to 1", word);
        p->offload_optimizer = share;
        return OK;
    }
    for (int m = OFFLOAD_ATTN_NORM; m <= OFFLOAD_MOE_ACT; m++)
        if (strcmp(word, stack_offloads[m]) == 0) {
            p->offload_modules |= 1 << m;
            return OK;
        }
    return unknown(word, d);
}

enum err plan_memory_fill(struct plan *p, struct diag *d)
{
    char text[sizeof p->offload], *rest = text, *word;
    memcpy(text, p->offload, sizeof text);
    p->offload_layers = p->offload_modules = 0;
    p->offload_optimizer = 0;
    if (!*text || strcmp(text, "none") == 0) return OK;     /* a plan made in code may leave it out */
    while ((word = strtok_r(rest, "+", &rest))) TRY(fill_word(p, word, d));
    return OK;
}

static enum err check_offered(const struct plan *p, const struct stack *s, struct diag *d)
{
    const int asked = p->offload_modules | (p->offload_layers > 0) << OFFLOAD_LAYERS |
                      (p->offload_optimizer > 0) << OFFLOAD_OPTIMIZER;
    for (int m = OFFLOAD_ATTN_NORM; m < OFFLOAD_COUNT; m++)
        if (asked & ~s->offloads & 1 << m)
            return fail(d, ERR_CONFIG,
                        "offload of %s is not offered by stack %s: set offload none, or choose another stack",
                        stack_offloads[m], s->name);
    return OK;
}

static enum err check_layers(const struct plan *p, const struct model *m, struct diag *d)
{
    if (!p->offload_layers) return OK;
    if (p->offload_modules)
        return fail(d, ERR_CONFIG, "offload %s: layers and modules exclude each other: choose one",
                    p->offload);
    if (p->offload_layers >= m->layers)
        return fail(d, ERR_CONFIG, "offload layers:%d of %d layers: the last stays, give %d at most",
                    p->offload_layers, m->layers, m->layers - 1);
    if (p->pp > 1)
        return fail(d, ERR_CONFIG,
                    "offload layers:%d needs pp 1, but pp is %d: choose modules, or set offload none",
                    p->offload_layers, p->pp);
    if (p->recompute)
        return fail(d, ERR_CONFIG, "offload layers:%d and recompute exclude each other: choose one",
                    p->offload_layers);
    return OK;
}

static enum err check_modules(const struct plan *p, const struct model *m, struct diag *d)
{
    const int experts = 1 << OFFLOAD_EXPERT_FC1 | 1 << OFFLOAD_MOE_ACT;
    if (p->offload_modules >> OFFLOAD_ATTN_PROJ & 1 && !(p->offload_modules >> OFFLOAD_CORE_ATTN & 1))
        return fail(d, ERR_CONFIG, "offload attn_proj needs core_attn, whose output it reads: add core_attn");
    if (p->offload_modules & experts && m->experts == 0)
        return fail(d, ERR_CONFIG,
                    "offload %s needs experts, but model %s has none: leave expert_fc1 and moe_act out",
                    p->offload, m->name);
    if (p->offload_modules && p->fsdp)
        return fail(d, ERR_LIMIT,
                    "offload of modules and fsdp 1 are not built together yet: choose layers:N, or set fsdp 0");
    if ((p->offload_layers || p->offload_modules) && p->split_wgrad)
        return fail(d, ERR_CONFIG,
                    "offload and split-wgrad 1 exclude each other: weight gradients would read what the next "
                    "layers overwrite; set one of them off");
    return OK;
}

static enum err check_optimizer(const struct job *j, struct diag *d)
{
    const struct plan *p = &j->plan;
    if (!(p->offload_optimizer > 0)) return OK;
    if (p->optimizer != OPTIMIZER_ADAMW)
        return fail(d, ERR_CONFIG, "offload optimizer:%g needs optimizer adamw: set it, or offload none",
                    p->offload_optimizer);
    if (p->master != MASTER_FP32 || p->precision == PRECISION_FP32)
        return fail(d, ERR_CONFIG, "offload optimizer:%g needs master fp32 beside weights of less: set offload none",
                    p->offload_optimizer);
    if (!(j->system.host_update_B_per_s > 0))
        return fail(d, ERR_CONFIG,
                    "offload optimizer:%g needs host.update of system %s, which is 0: give it, or set offload none",
                    p->offload_optimizer, j->system.name);
    return OK;
}

static enum err check_fsdp(const struct job *j, struct diag *d)
{
    const struct plan *p = &j->plan;
    if (!p->fsdp) return OK;
    if (!j->stack.fsdp)
        return fail(d, ERR_CONFIG, "fsdp 1 is not offered by stack %s: set it to 0, or choose another stack",
                    j->stack.name);
    if (p->split_wgrad)
        return fail(d, ERR_CONFIG,
                    "fsdp 1 and split-wgrad 1 exclude each other: a layer's gradients are reduced when its "
                    "backward is over; set one of them to 0");
    return OK;
}

enum err plan_memory_check(const struct job *j, struct diag *d)
{
    TRY(check_fsdp(j, d));
    TRY(check_offered(&j->plan, &j->stack, d));
    TRY(check_optimizer(j, d));
    TRY(check_layers(&j->plan, &j->model, d));
    return check_modules(&j->plan, &j->model, d);
}
