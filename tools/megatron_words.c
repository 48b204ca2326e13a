/* Arguments out of a launch script, and out of a recipe in YAML. */
#include "tools/megatron.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- words of a script ---- */

struct words { const char *at; const char *name; int line; struct arena *a; };

static int is_blank(char c)
{
    return isspace((unsigned char)c) || c == '(' || c == ')' || c == ';';
}

static void skip_blanks(struct words *w)
{
    for (; *w->at; w->at++) {
        if (*w->at == '#') {
            while (w->at[1] && w->at[1] != '\n') w->at++;
        } else if (!is_blank(*w->at) && !(*w->at == '\\' && w->at[1] == '\n')) {
            return;
        }
        w->line += *w->at == '\n';
    }
}

/* The next word without its quotes, or NULL at the end; w->line is the one it ends on. */
static enum err next_word(const char **word, struct words *w, struct diag *d)
{
    skip_blanks(w);
    *word = NULL;
    if (!*w->at) return OK;
    char *text = arena_alloc(w->a, strlen(w->at) < 4096 ? strlen(w->at) + 1 : 4097);
    int n = 0;
    const int line = w->line;
    for (char quote = 0; *w->at && (quote || !is_blank(*w->at)); w->at++) {
        w->line += *w->at == '\n';
        if (*w->at == '\\' && w->at[1] == '\n') continue;
        if (quote ? *w->at == quote : *w->at == '"' || *w->at == '\'') quote = quote ? 0 : *w->at;
        else if (n < 4096) text[n++] = *w->at;
        else
            return fail(d, ERR_CONFIG,
                        "%s:%d: a word is longer than 4096 characters: is this a launch script?", w->name,
                        line);
        if (quote && !w->at[1]) return fail(d, ERR_CONFIG, "%s:%d: a quote is not closed", w->name, line);
    }
    *word = text;
    return OK;
}

enum err megatron_read(struct megatron_args *args, struct arena *a, const char *name, const char *text,
                       struct diag *d)
{
    struct words w = { text, name, 1, a };
    const char *word;
    int line = 0;
    *args = (struct megatron_args){ 0 };
    for (;;) {
        TRY(next_word(&word, &w, d));
        if (!word) break;
        const char *eq = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
        struct megatron_arg *last = args->n && line == w.line ? &args->arg[args->n - 1] : NULL;
        line = w.line;
        if (strlen(word) > 3 && strcmp(word + strlen(word) - 3, ".py") == 0)
            line = 0; /* the program of torchrun */
        else if (eq) megatron_add(args, a, arena_printf(a, "%.*s", (int)(eq - word), word), eq + 1);
        else if (strncmp(word, "--", 2) == 0) megatron_add(args, a, word, NULL);
        else if (last) last->value = last->value ? arena_printf(a, "%s %s", last->value, word) : word;
    }
    if (!args->n)
        return fail(d, ERR_CONFIG, "%s: no argument begins with --: is this a launch script of Megatron-LM?",
                    name);
    return OK;
}

/* ---- a recipe in YAML ---- */

/* Fields of Megatron-Bridge whose arguments are called otherwise. */
static const struct { const char *field, *flag; } fields[] = {
    { "virtual_pipeline_model_parallel_size", "--num-virtual-stages-per-pipeline-rank" },
    { "sequence_length", "--seq-length" },
    { "num_moe_experts", "--num-experts" },
    { "layernorm_epsilon", "--norm-epsilon" },
    { "window_attn_skip_freq", "--window-attn-skip-freq" },
    { "grad_reduce_in_fp32", "--accumulate-allreduce-grads-in-fp32" },
};
static const struct { const char *name, *args; } mixed[] = {
    { "bf16_mixed", "--bf16" },
    { "fp16_mixed", "--fp16" },
    { "bf16_with_fp8_delayed_scaling_mixed", "--bf16 --fp8-format hybrid --fp8-recipe delayed" },
    { "bf16_with_fp8_current_scaling_mixed", "--bf16 --fp8-format hybrid --fp8-recipe tensorwise" },
    { "bf16_with_fp8_subchannel_scaling_mixed", "--bf16 --fp8-format e4m3 --fp8-recipe blockwise" },
    { "bf16_with_mxfp8_mixed", "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8" },
    { "bf16_with_nvfp4_mixed", "--bf16 --fp4-format e2m1 --fp4-recipe nvfp4" },
};

static const char *flag_of(struct arena *a, const char *field)
{
    for (int i = 0; i < LEN(fields); i++)
        if (strcmp(fields[i].field, field) == 0) return fields[i].flag;
    char *flag = arena_printf(a, "--%s", field);
    for (char *c = flag; *c; c++)
        if (*c == '_') *c = '-';
    return flag;
}

static enum err yaml_list(struct megatron_args *args, struct arena *a, const struct cfg *c, const char *field,
                          const struct cfg_node *list, struct diag *d)
{
    const char *text = "";
    for (int i = 0; i < list->n; i++) {
        if (list->child[i].type != CFG_SCALAR)
            return cfg_fail(d, c, &list->child[i], "%s is a list of lists or maps: write it as one string",
                            field);
        text = arena_printf(a, "%s%s%s", text, i ? " " : "", list->child[i].text);
    }
    if (list->n) megatron_add(args, a, flag_of(a, field), text);
    return OK;
}

static enum err yaml_scalar(struct megatron_args *args, struct arena *a, const struct cfg *c,
                            const char *field, const struct cfg_node *v, struct diag *d)
{
    static const char *const nothing[] = { "", "null", "~", "false", "False", "None" };
    if (strcmp(field, "mixed_precision") == 0) {
        for (int i = 0; i < LEN(mixed); i++)
            if (strcmp(mixed[i].name, v->text) == 0) return megatron_add_all(args, a, mixed[i].args), OK;
        return cfg_fail(
            d, c, v, "mixed_precision '%s' is not known: bf16_mixed, bf16_with_mxfp8_mixed and the like are",
            cfg_shown(v->text).text);
    }
    for (int i = 0; i < LEN(nothing); i++)
        if (strcmp(nothing[i], v->text) == 0) return OK;
    const int on = strcmp(v->text, "true") == 0 || strcmp(v->text, "True") == 0;
    megatron_add(args, a, flag_of(a, field), on ? NULL : v->text);
    return OK;
}

static enum err yaml_map(struct megatron_args *args, struct arena *a, const struct cfg *c,
                         const struct cfg_node *map, struct diag *d)
{
    for (int i = 0; i < map->n; i++) {
        const struct cfg_node *v = &map->child[i];
        if (v->type == CFG_MAP) TRY(yaml_map(args, a, c, v, d));
        else if (v->type == CFG_LIST) TRY(yaml_list(args, a, c, map->key[i], v, d));
        else TRY(yaml_scalar(args, a, c, map->key[i], v, d));
    }
    return OK;
}

enum err megatron_read_yaml(struct megatron_args *args, struct arena *a, const struct cfg *c, struct diag *d)
{
    *args = (struct megatron_args){ 0 };
    if (c->root.type != CFG_MAP) return cfg_fail(d, c, &c->root, "a recipe is a map of keys");
    return yaml_map(args, a, c, &c->root, d);
}
