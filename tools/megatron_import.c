/* Arguments -> options of a plan. The tables are read backwards; sizes are compared with what each built-in
 * model would be written as. Whatever a table's flag says that no row has is refused, so nothing of it is
 * lost silently. */
#include "tools/megatron.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the model ---- */

static int same_text(const char *a, const char *b)
{
    char *end_a, *end_b;
    const double x = strtod(a, &end_a), y = strtod(b, &end_b);
    if (*a && *b && !*end_a && !*end_b) return fabs(x - y) <= 1e-12 * fabs(x);
    for (;; a++, b++) {
        while (*a == ' ') a++;
        while (*b == ' ') b++;
        if (*a != *b) return 0;
        if (!*a) return 1;
    }
}

/* Flags of models that change them when they are there and the model has not got them. */
static const char *const telling[] = {
    "--num-experts", "--multi-latent-attention", "--q-lora-rank", "--moe-shared-expert-intermediate-size",
    "--moe-router-num-groups", "--moe-latent-size", "--window-size",
};
static const char *const needed[] = { "--num-layers", "--hidden-size", "--num-attention-heads" };

/* How many arguments say otherwise than the model's, and in words the first. */
static int differences(const char **first, struct arena *a, const struct megatron_args *args,
                       const struct megatron_args *model, int layers)
{
    int n = 0;
    for (int i = 0; i < model->n; i++) {
        const struct megatron_arg *x = &model->arg[i];
        const char *given = megatron_find(args, x->flag), *has = x->value ? x->value : "";
        const int fewer =
            strcmp(x->flag, "--num-layers") == 0 && given && atoi(given) < layers && atoi(given) > 0;
        const int freq = strcmp(x->flag, "--moe-layer-freq") == 0;
        if (!given || same_text(given, has) || fewer ||
            (freq && strchr(given, '[') == NULL && strcmp(given, "1") != 0))
            continue;
        if (!n++)
            *first = arena_printf(a, "%s is %s, the model's is %s", x->flag, cfg_shown(given).text, has);
    }
    for (int i = 0; i < LEN(telling); i++) {
        const char *given = megatron_find(args, telling[i]), *has = megatron_find(model, telling[i]);
        if (!given == !has || n++) continue;
        *first = arena_printf(a, "%s is %s, the model's is %s", telling[i],
                              given ? cfg_shown(given).text : "absent", has ? has : "absent");
    }
    return n;
}

static enum err candidate(struct megatron_args *as, struct model *m, struct arena *a, const char *name,
                          struct diag *d)
{
    *as = (struct megatron_args){ 0 };
    TRY(model_read(m, a, name, d));
    return megatron_model(as, a, m, d);
}

static enum err find_model(const char **name, struct model *m, struct arena *a,
                           const struct megatron_args *args, const char *asked, struct diag *d)
{
    struct megatron_args as;
    const char *first = "", *nearest = "", *why = "";
    int least = 1 << 20;
    for (int i = 0; i < LEN(needed); i++)
        if (!megatron_find(args, needed[i]) && !*asked)
            return fail(d, ERR_CONFIG,
                        "%s is missing among the arguments: give --model to say which model it is",
                        needed[i]);
    for (int i = 0; i < (*asked ? 1 : cfg_embedded_n); i++) {
        struct diag refused = { "" };
        const char *try = *asked ? asked : cfg_embedded[i].name;
        if (!*asked && strcmp(cfg_embedded[i].kind, "models") != 0) continue;
        if (candidate(&as, m, a, try, *asked ? d : &refused) != OK) {
            if (*asked) return ERR_CONFIG;
            continue;
        }
        const int n = differences(&first, a, args, &as, m->layers);
        if (!n) return *name = try, OK;
        if (n < least) least = n, nearest = try, why = first;
    }
    if (*asked) return fail(d, ERR_CONFIG, "--model: %s is not what the arguments say: %s", asked, why);
    return fail(d, ERR_CONFIG,
                "no built-in model has these sizes; nearest is %s, but %s: give --model FILE with this model",
                nearest, why);
}

/* ---- the tables backwards ---- */

struct reader {
    const struct megatron_args *args; struct arena *a; struct diag *d;
    const char *(*flag)[2]; int n;
    char *used;                             /* by argument: some row took it */
};

static void put(struct reader *r, const char *key, const char *text)
{
    r->flag = arena_grow(r->a, r->flag, r->n, r->n + 1, sizeof *r->flag);
    r->flag[r->n][0] = key;
    r->flag[r->n++][1] = text;
}

/* A value, or NULL; a variable of the shell is refused. */
static enum err value_of(const char **text, const struct reader *r, const char *flag)
{
    *text = megatron_find(r->args, flag);
    if (*text && strchr(*text, '$'))
        return fail(r->d, ERR_CONFIG, "%s is the variable %s: write its value", flag, cfg_shown(*text).text);
    return OK;
}

static enum err int_of(int *to, const struct reader *r, const char *flag, int absent)
{
    const char *text;
    char *end = NULL;
    TRY(value_of(&text, r, flag));
    *to = absent;
    if (!text) return OK;
    const long n = strtol(text, &end, 10);
    if (end == text || *end || n < 0 || n > 1 << 24)
        return fail(r->d, ERR_CONFIG, "%s: '%s' is not a whole number from 0 to %d", flag,
                    cfg_shown(text).text, 1 << 24);
    *to = (int)n;
    return OK;
}

static enum err read_same(struct reader *r)
{
    const char *text;
    for (int i = 0; i < megatron_n_same; i++) {
        TRY(value_of(&text, r, megatron_same[i].flag));
        if (strcmp(megatron_same[i].key, "aux-loss-coeff") == 0 && megatron_balances_otherwise(r->args)) continue;
        if (text) put(r, megatron_same[i].key, text);
    }
    return OK;
}

/* Whether all of a row's arguments are given; how many, and marks them when `mark`. */
static int row_fits(struct reader *r, const struct megatron_means *row, int mark)
{
    struct megatron_args want = { 0 };
    megatron_add_all(&want, r->a, row->args);
    for (int i = 0; i < want.n; i++) {
        const char *given = megatron_find(r->args, want.arg[i].flag);
        if (!given || !same_text(given, want.arg[i].value ? want.arg[i].value : "")) return -1;
        for (int k = 0; mark && k < r->args->n; k++)
            if (strcmp(r->args->arg[k].flag, want.arg[i].flag) == 0) r->used[k] = 1;
    }
    return want.n;
}

/* Ways of keeping experts even that plans have not: they cost no time worth a prediction, and a note says so. */
static void pass_over_balance(struct reader *r)
{
    for (int i = 0; i < r->args->n && megatron_balances_otherwise(r->args); i++)
        if (strcmp(r->args->arg[i].flag, megatron_balance_flag) == 0) r->used[i] = 1;
}

static void read_means(struct reader *r)
{
    for (int i = 0; i < megatron_n_means; i++) {
        const char *key = megatron_means[i].key;
        const struct megatron_means *best = NULL;
        int most = -1;
        if (i > 0 && strcmp(megatron_means[i - 1].key, key) == 0) continue; /* rows of a key stand together */
        for (int k = i; k < megatron_n_means && strcmp(megatron_means[k].key, key) == 0; k++) {
            const int n = row_fits(r, &megatron_means[k], 0);
            if (n > most) most = n, best = &megatron_means[k];
        }
        if (!best) continue;
        row_fits(r, best, 1);
        put(r, key, best->text);
    }
}

static int in_row(struct arena *a, const char *flag)
{
    for (int i = 0; i < megatron_n_means; i++) {
        struct megatron_args want = { 0 };
        megatron_add_all(&want, a, megatron_means[i].args);
        if (megatron_find(&want, flag)) return 1;
    }
    return 0;
}

static enum err check_used(const struct reader *r)
{
    for (int i = 0; i < r->args->n; i++) {
        const struct megatron_arg *x = &r->args->arg[i];
        if (r->used[i] || !in_row(r->a, x->flag)) continue;
        return fail(r->d, ERR_CONFIG,
                    "%s%s%s says what no plan can, or contradicts the others: see `moefold predict --help`",
                    x->flag, x->value ? " " : "", x->value ? cfg_shown(x->value).text : "");
    }
    return OK;
}

/* ---- what needs more than a table ---- */

static const char *int_text(const struct reader *r, int64_t n)
{
    return arena_printf(r->a, "%lld", (long long)n);
}

/* Layers by chunk from --decoder-first- and --decoder-last-pipeline-num-layers. */
static enum err read_uneven(struct reader *r, int layers, int pp)
{
    int first, last;
    TRY(int_of(&first, r, "--decoder-first-pipeline-num-layers", -1));
    TRY(int_of(&last, r, "--decoder-last-pipeline-num-layers", -1));
    if (first < 0 && last < 0) return OK;
    const int middle = pp - (first >= 0) - (last >= 0),
              left   = layers - (first > 0 ? first : 0) - (last > 0 ? last : 0);
    if (middle < 1 || left < 0 || left % middle)
        return fail(r->d, ERR_CONFIG,
                    "%d of %d layers are left for %d stages between the first and the last: they do not "
                    "divide",
                    left, layers, middle);
    const char *text = first >= 0 ? int_text(r, first) : "";
    for (int s = 0; s < middle; s++)
        text = arena_printf(r->a, "%s%s%d", text, *text ? "," : "", left / middle);
    if (last >= 0) text = arena_printf(r->a, "%s,%d", text, last);
    put(r, "layout", text);
    return OK;
}

static enum err read_layout(struct reader *r, int layers, int mtp, int pp)
{
    const char *text;
    struct diag why = { "" };
    struct layout l;
    int stages, each;
    TRY(value_of(&text, r, "--pipeline-model-parallel-layout"));
    TRY(int_of(&stages, r, "--num-virtual-stages-per-pipeline-rank", 0));
    TRY(int_of(&each, r, "--num-layers-per-virtual-pipeline-stage", 0));
    if (text) {
        for (int vpp = 1; vpp <= LAYOUT_CHUNKS / pp; vpp++) {
            if (layout_parse(&l, text, layers, mtp, pp, vpp, &why) != OK) continue;
            put(r, "layout", text);
            put(r, "vpp", int_text(r, vpp));
            return OK;
        }
        return fail(r->d, ERR_CONFIG,
                    "--pipeline-model-parallel-layout: '%s' is no layout of %d layers on %d stages",
                    cfg_shown(text).text, layers, pp);
    }
    if (stages > 0) put(r, "vpp", int_text(r, stages));
    if (each > 0 && layers % (pp * each))
        return fail(r->d, ERR_CONFIG,
                    "--num-layers-per-virtual-pipeline-stage %d x %d stages does not divide %d layers", each,
                    pp, layers);
    if (each > 0) put(r, "vpp", int_text(r, layers / (pp * each)));
    return read_uneven(r, layers, pp);
}

static enum err read_recompute(struct reader *r)
{
    const char *how, *modules, *words = "";
    TRY(value_of(&how, r, "--recompute-granularity"));
    TRY(value_of(&modules, r, "--recompute-modules"));
    if (!how) return OK;
    if (strcmp(how, "full") == 0) return put(r, "recompute", "full"), OK;
    if (strcmp(how, "selective") != 0)
        return fail(r->d, ERR_CONFIG, "--recompute-granularity: '%s' is not known: full and selective are",
                    cfg_shown(how).text);
    char *rest = arena_strdup(r->a, modules ? modules : "core_attn"), *word;    /* its default module */
    while ((word = strtok_r(rest, " ,", &rest)))
        words = arena_printf(r->a, "%s%s%s", words, *words ? "+" : "", word);
    put(r, "recompute", arena_printf(r->a, "selective:%s", words));
    return OK;
}

static enum err read_graphs(struct reader *r)
{
    const char *how, *modules, *words = "";
    const char *flag =
        megatron_find(r->args, "--cuda-graph-scope") ? "--cuda-graph-scope" : "--cuda-graph-modules";
    TRY(value_of(&how, r, "--cuda-graph-impl"));
    TRY(value_of(&modules, r, flag));
    if (!how || strcmp(how, "none") == 0) return put(r, "cuda-graph", "none"), OK;
    if (strcmp(how, "full_iteration") == 0 || (modules && strcmp(modules, "full_iteration") == 0))
        return put(r, "cuda-graph", "full"), OK;
    char *rest = arena_strdup(r->a, modules ? modules : "full-layer"), *word;
    while ((word = strtok_r(rest, " ,", &rest)))
        words = arena_printf(r->a, "%s%s%s", words, *words ? "+" : "", word);
    put(r, "cuda-graph", words);
    return OK;
}

static enum err read_offload(struct reader *r)
{
    const char *modules, *share, *words = "";
    int layers;
    TRY(int_of(&layers, r, "--cpu-offloading-num-layers", 0));
    TRY(value_of(&modules, r, "--offload-modules"));
    TRY(value_of(&share, r, "--optimizer-offload-fraction"));
    if (layers && megatron_find(r->args, "--cpu-offloading")) words = arena_printf(r->a, "layers:%d", layers);
    char *rest = arena_strdup(r->a, modules ? modules : ""), *word;
    while ((word = strtok_r(rest, " ,", &rest)))
        words = arena_printf(r->a, "%s%s%s", words, *words ? "+" : "", word);
    if (megatron_find(r->args, "--optimizer-cpu-offload"))
        words = arena_printf(r->a, "%s%soptimizer:%s", words, *words ? "+" : "", share ? share : "1");
    if (*words) put(r, "offload", words);
    return OK;
}

/* Plans say what is left of the rate, and which part of the steps the end takes. */
static enum err read_decay(struct reader *r)
{
    const char *lr, *least;
    int steps, cooldown;
    TRY(value_of(&lr, r, "--lr"));
    TRY(value_of(&least, r, "--min-lr"));
    TRY(int_of(&steps, r, "--lr-decay-iters", 0));
    TRY(int_of(&cooldown, r, "--lr-wsd-decay-iters", 0));
    const double part = lr && least && atof(lr) > 0 ? atof(least) / atof(lr) : 0;
    if (least && (part < 0 || part > 1))
        return fail(r->d, ERR_CONFIG, "--min-lr %s is not between 0 and --lr %s", cfg_shown(least).text,
                    lr ? lr : "");
    if (least) put(r, "lr-min", arena_printf(r->a, "%.12g", part));
    if (steps && cooldown > steps)
        return fail(r->d, ERR_CONFIG, "--lr-wsd-decay-iters %d is more than --lr-decay-iters %d", cooldown,
                    steps);
    if (steps && cooldown) put(r, "lr-cooldown", arena_printf(r->a, "%.12g", (double)cooldown / steps));
    return OK;
}

static enum err read_high(struct reader *r)
{
    int first, last;
    if (!megatron_find(r->args, "--first-last-layers-bf16")) return OK;
    TRY(int_of(&first, r, "--num-layers-at-start-in-bf16", 1));
    TRY(int_of(&last, r, "--num-layers-at-end-in-bf16", 1));
    put(r, "high-first", int_text(r, first));
    put(r, "high-last", int_text(r, last));
    return OK;
}

static enum err read_vocab(struct reader *r, const struct model *m)
{
    int vocab;
    TRY(int_of(&vocab, r, "--vocab-size", m->vocab));
    if (vocab == m->vocab) return OK;
    if (vocab < m->vocab || vocab > m->vocab + 1024)
        return fail(r->d, ERR_CONFIG,
                    "--vocab-size is %d, model %s has %d, and plans add up to 1024: give --model FILE", vocab,
                    m->name, m->vocab);
    put(r, "vocab-extra", int_text(r, vocab - m->vocab));
    return OK;
}

static enum err read_cp(struct reader *r)
{
    int cp;
    TRY(int_of(&cp, r, "--context-parallel-size", 1));
    if (cp > 1 && !megatron_find(r->args, "--cp-comm-type")) put(r, "cp-comm", "p2p"); /* its default */
    return OK;
}

static enum err read_moe(struct reader *r, const struct model *m)
{
    const char *factor, *keeps;
    TRY(value_of(&factor, r, "--moe-expert-capacity-factor"));
    TRY(value_of(&keeps, r, "--moe-token-drop-policy"));
    const int padded = megatron_find(r->args, "--moe-pad-expert-input-to-capacity") != NULL;
    const int first = keeps && strcmp(keeps, "position") == 0;
    if (keeps && !first && strcmp(keeps, "probs") != 0)
        return fail(r->d, ERR_CONFIG, "--moe-token-drop-policy %s is not known: take probs or position", keeps);
    if (factor) put(r, "load", arena_printf(r->a, "%s:cf%s%s", padded ? "padded" : "drop", factor, first ? ":position" : ""));
    if (!m->experts) return OK;
    if (!megatron_find(r->args,
                       "--expert-tensor-parallel-size")) { /* Megatron-LM's default is the other fold's tp */
        int tp;
        TRY(int_of(&tp, r, "--tensor-model-parallel-size", 1));
        put(r, "etp", int_text(r, tp));
    }
    if (!megatron_find(r->args, "--moe-token-dispatcher-type"))
        put(r, "dispatcher", "allgather"); /* its default */
    return OK;
}

/* torchrun's own arguments. */
static enum err read_gpus(struct reader *r)
{
    int nodes, here;
    const char *under = megatron_find(r->args, "--nproc_per_node");
    TRY(int_of(&nodes, r, "--nnodes", 0));
    TRY(int_of(&here, r, under ? "--nproc_per_node" : "--nproc-per-node", 0));
    if (nodes > 0 && here > 0) put(r, "gpus", int_text(r, (int64_t)nodes * here));
    return OK;
}

enum err megatron_import(const char *(**flag)[2], int *n_flag, struct arena *a,
                         const struct megatron_args *args, const char *model, struct diag *d)
{
    struct reader r = { .args = args, .a = a, .d = d, .used = arena_alloc(a, (size_t)args->n + 1) };
    struct model m;
    const char *name = "";
    int layers, mtp, pp;
    TRY(find_model(&name, &m, a, args, model, d));
    TRY(int_of(&layers, &r, "--num-layers", m.layers));
    TRY(int_of(&mtp, &r, "--mtp-num-layers", 0));
    TRY(int_of(&pp, &r, "--pipeline-model-parallel-size", 1));
    if (pp < 1) return fail(d, ERR_CONFIG, "--pipeline-model-parallel-size is 0: give 1 or more");
    put(&r, "model", name);
    if (layers < m.layers) put(&r, "layers", int_text(&r, layers));
    put(&r, "mtp", int_text(&r, mtp));
    TRY(read_gpus(&r));
    TRY(read_same(&r));
    read_means(&r);
    pass_over_balance(&r);
    TRY(check_used(&r));
    TRY(read_layout(&r, layers, mtp, pp));
    TRY(read_recompute(&r));
    TRY(read_graphs(&r));
    TRY(read_offload(&r));
    TRY(read_decay(&r));
    TRY(read_high(&r));
    TRY(read_vocab(&r, &m));
    TRY(read_cp(&r));
    TRY(read_moe(&r, &m));
    *flag = r.flag;
    *n_flag = r.n;
    return OK;
}
