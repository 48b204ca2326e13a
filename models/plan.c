/* Reads plans: the options, from a file and then from flags, with the defaults that depend on the system, and
 * the three descriptions a plan names. What follows from a plan, and what it may not be, is plan_check.c. */
#include "models/place.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const plan_orders[]     = { "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", NULL };
static const char *const plan_optimizers[] = { "adamw", "sgd", NULL };
static const char *const plan_moments[]    = { "fp32", "bf16", "fp8", NULL };
static const char *const plan_grads[]      = { "fp32", "bf16", NULL };
static const char *const plan_masters[]    = { "fp32", "remainder", NULL };
static const char *const plan_balances[]  = { "none", "aux_loss", "seq_aux_loss", NULL };
static const char *const plan_decays[]     = { "constant", "cosine", "wsd", NULL };
static const struct word plan_auto[]       = { { "auto", -1 }, { NULL, 0 } };
static const char *const plan_packed[]     = { "positions", "attention", "loss", NULL };
static const struct word plan_index_ends[] = { { "index", -1 }, { NULL, 0 } };
static const struct word plan_auto_0[]     = { { "auto", 0 }, { NULL, 0 } };
static const struct word plan_capacities[] = { { "auto", 0 }, { "worst", PLAN_CAPACITY_WORST }, { NULL, 0 } };
static const struct word plan_graphs[] = { { "auto", -1 }, { "none", 0 }, { NULL, 0 } };
static const struct word plan_recomputes[] = { { "none", 0 }, { "full", 1 << RECOMPUTE_FULL }, { NULL, 0 } };

/* Highest sizes keep the product of three degrees, or of mbs and seq, inside int32. */
enum { DEGREE = 1024, GPUS = 1 << 20, SEQ = 1 << 24, GBS = 1 << 24 };

/* key, type, field, names, words, lowest, highest, default, help; rows stand in the order of plan_text */
#define PLAN_OPTS(X)                                                                                         \
    X("model", TEXT, model, 0, 0, 0, 0, "", "built-in model, or a file")                                     \
    X("system", TEXT, system, 0, 0, 0, 0, "", "built-in system, or a file; run: host")                       \
    X("stack", TEXT, stack, 0, 0, 0, 0, "", "whose software runs it; host: moefold, else mcore-2510")        \
    X("gpus", INT, gpus, 0, 0, 1, GPUS, "1", "GPUs, or CPU ranks")                                           \
    X("tp", INT, tp, 0, 0, 1, DEGREE, "1", "tensor parallel degree of attention")                            \
    X("cp", INT, cp, 0, 0, 1, DEGREE, "1", "context parallel degree")                                        \
    X("pp", INT, pp, 0, 0, 1, DEGREE, "1", "pipeline stages")                                                \
    X("vpp", INT, vpp, 0, 0, 1, DEGREE, "1", "chunks on each pipeline stage")                                \
    X("etp", INT, etp, 0, 0, 1, DEGREE, "1", "tensor parallel degree of experts")                            \
    X("ep", INT, ep, 0, 0, 1, DEGREE, "1", "expert parallel degree")                                         \
    X("order", NAME, order, plan_orders, 0, 0, 0, "tp-cp-ep-dp-pp", "rank order, leftmost varies fastest")   \
    X("layout", TEXT, layout, 0, 0, 0, 0, "auto", "layers on chunks: Megatron string, 1,2,2,3, even or auto") \
    X("schedule", NAME, schedule, stack_schedules, plan_auto, 0, 0, "auto", "pipeline schedule")             \
    X("vpp-group", INT, vpp_group, 0, plan_auto_0, 1, GBS, "auto",                                           \
      "micro-batches in a row on a chunk; auto: pp")                                                         \
    X("mbs", INT, mbs, 0, 0, 1, DEGREE, "1", "sequences in a micro-batch")                                   \
    X("gbs", INT, gbs, 0, plan_auto_0, 1, GBS, "auto", "sequences in a step; auto only on the host")         \
    X("seq", INT, seq, 0, plan_auto_0, 1, SEQ, "auto", "tokens in a sequence; auto only on the host: 64")    \
    X("precision", NAME, precision, recipe_names, 0, 0, 0, "bf16",                                           \
      "of products and activations; host: fp32")                                                              \
    X("optimizer", NAME, optimizer, plan_optimizers, 0, 0, 0, "adamw", "its state is sharded over replicas") \
    X("grads", NAME, grads, plan_grads, plan_auto, 0, 0, "auto", "main gradients; auto: the stack's")        \
    X("moments", NAME, moments, plan_moments, 0, 0, 0, "fp32", "AdamW's moments as they are stored")         \
    X("master", NAME, master, plan_masters, 0, 0, 0, "fp32",                                                 \
      "master weights; remainder: the low 16 bits beside bf16 weights")                                      \
    X("fp8-param-gather", BOOL, fp8_param_gather, 0, 0, 0, 1, "0",                                           \
      "1: weights of low precision have no bf16 original")                                                   \
    X("high-first", INT, high_first, 0, 0, 0, 1000, "0", "first layers that stay in high precision")         \
    X("high-last", INT, high_last, 0, 0, 0, 1000, "0", "last layers that do, MTP not counted")               \
    X("offload", TEXT, offload, 0, 0, 0, 0, "none",                                                          \
      "what waits on the host: layers:N, optimizer:F, or modules such as core_attn+attn_proj")               \
    X("fsdp", BOOL, fsdp, 0, 0, 0, 1, "0",                                                                   \
      "1: replicas share parameters and gradients too, gathered for each layer (ZeRO-3)")                    \
    X("recompute", SET, recompute, stack_recomputes, plan_recomputes, 0, 0, "none",                          \
      "modules recomputed: selective:a+b, full, none")                                                       \
    X("cp-comm", NAME, cp_comm, stack_cp_comms, 0, 0, 0, "allgather",                                        \
      "context parallelism: K and V of all tokens, heads swapped for tokens (a2a), or a ring (p2p)")                             \
    X("packed", SET, packed, plan_packed, 0, 0, 0, "none",                                                   \
      "kept within documents: positions, attention, loss (not of a document's last token)")                  \
    X("eod", INT, eod, 0, plan_index_ends, 0, 10000000, "index",                                             \
      "packed: the token that ends a document; index: the .idx says where")                                  \
    X("document", INT, document, 0, 0, 0, SEQ, "0",                                                          \
      "packed attention, predicted: tokens of a document; 0: as many as a sequence has")                     \
    X("dispatcher", NAME, dispatcher, stack_dispatchers, plan_auto, 0, 0, "auto",                            \
      "how tokens reach experts; auto: the stack's")                                                         \
    X("ep-overlap", BOOL, ep_overlap, 0, 0, 0, 1, "0", "1: expert exchange under the other half (fwd-bwd)")  \
    X("dp-overlap", NAME, dp_overlap, stack_dp_overlaps, plan_auto, 0, 0, "auto",                            \
      "gradients reduced under the last backward, parameters gathered under the first forward; auto: the stack's") \
    X("tp-overlap", BOOL, tp_overlap, 0, 0, 0, 1, "0",                                                       \
      "1: gathers and scatters over tp go in pieces under the product that reads or makes them")             \
    X("split-wgrad", BOOL, split_wgrad, 0, 0, 0, 1, "0", "1: weight gradients are passes of their own")      \
    X("cuda-graph", SET, graph, stack_graphs, plan_graphs, 0, 0, "auto",                                     \
      "what is captured and replayed: attn+moe_router, full-layer, full, none; auto: the stack's")           \
    X("sp", BOOL, sp, 0, plan_auto, 0, 1, "auto", "sequence parallel; auto: when tp > 1")                    \
    X("mtp", INT, mtp, 0, plan_auto, 0, MODEL_MTP, "auto", "multi-token-prediction depths; auto: the model's") \
    X("layers", INT, layers, 0, plan_auto_0, 1, 1000, "auto", "the model's first ones only; auto: all")      \
    X("capacity", NUMBER, capacity, 0, plan_capacities, 1, 1e6, "auto",                                      \
      "rows of routed buffers over even routing")                                                            \
    X("load", TEXT, load, 0, 0, 0, 0, "dropless:balanced",                                                   \
      "dropless, drop:cf1[:position], padded:cf1, of each rank's tokens; balanced, zipf:S, dirichlet:A, worst, recorded:FILE")                 \
    X("vocab-extra", INT, vocab_extra, 0, 0, 0, 1024, "0",                                                   \
      "entries the tokenizer adds before padding (Megatron's null tokenizer: 1)")                            \
    X("data-workers", INT, data_workers, 0, 0, 0, 1024, "0", "processes of each rank that load data: host memory") \
    X("domain-gpus", INT, domain_gpus, 0, plan_auto_0, 1, GPUS, "auto", "GPUs used of each NVLink domain")   \
    X("balance", NAME, balance, plan_balances, 0, 0, 0, "none",                                              \
      "a loss that keeps experts even: over a micro-batch, over each sequence")                              \
    X("aux-loss-coeff", NUMBER, aux_loss, 0, 0, 0, 1e3, "0.01", "what it counts, where there is one")        \
    X("z-loss-coeff", NUMBER, z_loss, 0, 0, 0, 1e3, "0", "of the loss that keeps the router's logits small; 0: none") \
    X("lr", NUMBER, lr, 0, 0, 0, 1e6, "1e-3", "learning rate")                                               \
    X("lr-decay", NAME, lr_decay, plan_decays, 0, 0, 0, "constant", "after the warm-up; wsd: straight, at the end")  \
    X("lr-warmup", INT, lr_warmup, 0, 0, 0, 1000000000, "0", "steps in which it rises")                       \
    X("lr-steps", INT, lr_steps, 0, plan_auto_0, 1, 1000000000, "auto", "steps after which it has decayed; auto: the run's") \
    X("lr-min", NUMBER, lr_min, 0, 0, 0, 1, "0.1", "what is left of it at the end")                           \
    X("lr-cooldown", NUMBER, lr_cooldown, 0, 0, 0, 1, "0.2", "wsd: part of lr-steps in which it decays")       \
    X("weight-decay", NUMBER, weight_decay, 0, 0, 0, 1e6, "0.1", "AdamW: decoupled, of matrices; norms and biases have none")     \
    X("beta1", NUMBER, beta1, 0, 0, 0, 0.999999, "0.9", "AdamW: decay of the first moment")                  \
    X("beta2", NUMBER, beta2, 0, 0, 0, 0.999999, "0.95", "AdamW: decay of the second moment")                \
    X("adam-eps", NUMBER, adam_eps, 0, 0, 1e-30, 1, "1e-8", "AdamW: added to the root")                      \
    X("clip", NUMBER, clip, 0, 0, 0, 1e9, "1", "largest gradient norm; 0: none")                             \
    X("seed", INT, seed, 0, 0, 0, 2147483647, "1234", "of weights and data")

const struct opt plan_opts[] = {
#define X(k, t, f, n, w, low, high, d, h)                                                                  \
    { .key = k, .type = OPT_##t, .at = offsetof(struct plan, f), .size = sizeof(((struct plan *)0)->f),    \
      .names = n, .words = w, .lo = low, .hi = high, .def = d, .help = h,                                  \
      .prefix = offsetof(struct plan, f) == offsetof(struct plan, recompute) ? "selective:" : NULL },
    PLAN_OPTS(X)
#undef X
};
const int plan_n_opt = LEN(plan_opts);

/* What was given, by whom: `set` by the file or a flag, `flagged` by a flag. One byte per option. */
struct plan_given { const struct cfg *c; char set[LEN(plan_opts)], flagged[LEN(plan_opts)]; };

static int plan_is_set(const struct plan_given *g, const char *key)
{
    return g->set[cfg_opt(plan_opts, plan_n_opt, key) - plan_opts];
}

static enum err plan_located(struct diag *d, enum err e, const struct plan_given *g)
{
    return e == OK ? OK : cfg_locate(d, e, plan_opts, plan_n_opt, g->flagged, g->c);
}

static enum err plan_apply_flag(struct plan *p, struct plan_given *g, const char *key, const char *text,
                                struct diag *d)
{
    char where[64];
    const struct opt *o = cfg_opt(plan_opts, plan_n_opt, key);
    if (o == NULL) {
        const char *near = cfg_nearest(plan_opts, plan_n_opt, key);
        return fail(d, ERR_CONFIG, "--%s: unknown option%s%s%s", cfg_shown(key).text,
                    near != NULL ? ": did you mean --" : "", near != NULL ? near : ": see --help",
                    near != NULL ? "?" : "");
    }
    snprintf(where, sizeof(where), "--%s", o->key);
    g->set[o - plan_opts] = g->flagged[o - plan_opts] = 1;
    return cfg_set(p, o, text, where, d);
}

static enum err plan_missing(const struct plan *p, struct diag *d)
{
    if (*p->model == '\0')
        return fail(d, ERR_CONFIG, "model is missing: name one, such as --model deepseek-v3");
    if (*p->system == '\0')
        return fail(d, ERR_CONFIG, "system is missing: name one, such as --system gb200-nvl72");
    return OK;
}

static enum err plan_read_parts(struct job *j, struct arena *a, const struct plan_given *g, struct diag *d)
{
    const struct plan *p = &j->plan;
    TRY(plan_located(d, cfg_check_name("models", p->model, "model", d), g));
    TRY(plan_located(d, cfg_check_name("systems", p->system, "system", d), g));
    TRY(plan_located(d, cfg_check_name("stacks", p->stack, "stack", d), g));
    TRY(model_read(&j->model, a, p->model, d));
    if (p->layers > j->model.layers)
        return plan_located(d, fail(d, ERR_CONFIG, "layers = %d, but model %s has %d: ask for no more", p->layers,
                                    j->model.name, j->model.layers), g);
    if (p->layers > 0) model_cut(&j->model, p->layers);
    TRY(system_read(&j->system, a, p->system, d));
    system_in_step(&j->system);
    return stack_read(&j->stack, a, p->stack, d);
}

/* The built-in system host, or a file that says that it is this machine: named host, as calibrate writes it. What is wrong with
 * a file is said when it is read for good. */
static int plan_is_host(const struct plan *p, struct arena *a)
{
    struct system s;
    struct diag d;
    if (strcmp(p->system, "host") == 0) return 1;
    const int is_file = strchr(p->system, '/') || strstr(p->system, ".yaml") || strstr(p->system, ".json");
    return is_file && system_read(&s, a, p->system, &d) == OK && strcmp(s.name, "host") == 0;
}

/* A small step on the host; elsewhere nobody but the user knows the size of the job. */
static enum err plan_size_defaults(struct plan *p, const struct plan_given *g, int host, struct diag *d)
{
    if (!host && !plan_is_set(g, "gpus"))
        return fail(d, ERR_CONFIG, "gpus is missing: say how many, such as --gpus 256");
    if (!host && p->gbs == 0)
        return fail(d, ERR_CONFIG, "gbs is missing: give the sequences of a step, such as --gbs 4096");
    if (!host && p->seq == 0)
        return fail(d, ERR_CONFIG, "seq is missing: give the tokens of a sequence, such as --seq 4096");
    const int least = p->mbs * p->gpus;         /* every dp divides it, and it fills every pipeline */
    if (p->gbs == 0) p->gbs = (7 / least + 1) * least;
    if (p->seq == 0) p->seq = 64;
    return OK;
}

/* The text that is echoed is the whole of it. Of `run`, tokens choose experts themselves. */
static enum err plan_read_load(struct plan *p, struct arena *a, int runs, struct diag *d)
{
    TRY(routing_load(&p->routing, a, p->load, d));
    snprintf(p->load, sizeof(p->load), "%s", routing_text(a, &p->routing));
    if (runs && p->routing.kind != ROUTING_BALANCED)
        return fail(d, ERR_CONFIG,
                    "load %s is for predictions, but a run's tokens choose experts themselves: remove it", p->load);
    return OK;
}

/* Everything but plan_resolve; `g` begins with its document. */
static enum err plan_collect(struct job *read, struct arena *a, struct plan_given *g, int n_flag,
                             const char *const (*flag)[2], int runs, struct diag *d)
{
    struct plan *p = &read->plan;
    if (g->c != NULL) {
        TRY(cfg_fill(p, g->set, plan_opts, plan_n_opt, g->c, d));
    } else {
        cfg_defaults(p, plan_opts, plan_n_opt);
    }
    for (int i = 0; i < n_flag; i++) TRY(plan_apply_flag(p, g, flag[i][0], flag[i][1], d));
    if (*p->system == '\0' && runs) strcpy(p->system, "host");
    TRY(plan_located(d, plan_missing(p, d), g));
    const int host = plan_is_host(p, a);
    if (*p->stack == '\0') strcpy(p->stack, runs || host ? "moefold" : "mcore-2510");
    if (!plan_is_set(g, "precision")) p->precision = host ? PRECISION_FP32 : PRECISION_BF16;
    TRY(plan_located(d, plan_size_defaults(p, g, host, d), g));
    TRY(plan_located(d, plan_read_load(p, a, runs, d), g));
    return plan_read_parts(read, a, g, d);
}

/* Every byte count of a program stays inside int64: the largest buffer, in fp32, for every layer and micro-batch
 * in flight, some dozens of it. */
static enum err plan_countable(const struct job *j, struct diag *d)
{
    const struct plan *p = &j->plan;
    const struct model *m = &j->model;
    const double heads = (double)m->heads * fmax(model_qk_dim(m) + m->qk_nope, model_v_dim(m));
    const double dense = fmax(fmax(m->hidden, 2.0 * m->ffn), fmax(p->vocab_padded, fmax(heads, m->experts)));
    const double worst = p->capacity == PLAN_CAPACITY_WORST || p->routing.kind
                             ? p->ep
                             : fmax(fmax(p->capacity, p->routing.capacity), 1);
    const double rows = (double)plan_tokens(p) * fmax(m->topk, 1) * p->etp * worst;
    const double largest = fmax((double)plan_tokens(p) * dense, rows * fmax(m->hidden, 2.0 * m->expert_ffn));
    const double in_flight = fmin(p->n_micro, (double)p->pp * p->vpp + 1) * (m->layers + 2.0);
    if (4 * 64 * largest * in_flight < 9e18) return OK;
    return fail(d, ERR_CONFIG,
                "seq = %d with mbs = %d makes buffers of %.2g bytes, more than can be counted: lower them",
                p->seq, p->mbs, 4 * largest);
}

enum err plan_fill_job(struct job *j, struct arena *a, const struct cfg *c, int n_flag,
                       const char *const (*flag)[2], int runs, struct diag *d)
{
    struct job read = { 0 };
    struct plan_given g = { .c = c };
    TRY(plan_collect(&read, a, &g, n_flag, flag, runs, d));
    TRY(plan_located(d, plan_resolve(&read, d), &g));
    TRY(plan_located(d, plan_countable(&read, d), &g));
    *j = read;
    return OK;
}

enum err plan_read_job(struct job *j, struct arena *a, const char *arg, int n_flag,
                       const char *const (*flag)[2], int runs, struct diag *d)
{
    struct cfg c;
    if (arg == NULL) return plan_fill_job(j, a, NULL, n_flag, flag, runs, d);
    TRY(cfg_read_named(&c, a, "plans", arg, d));
    return plan_fill_job(j, a, &c, n_flag, flag, runs, d);
}

enum err plan_read_open(struct job *j, struct arena *a, int n_flag, const char *const (*flag)[2],
                        struct diag *d)
{
    struct job read = { 0 };
    struct plan_given g = { .c = NULL };
    TRY(plan_collect(&read, a, &g, n_flag, flag, 0, d));
    *j = read;
    return OK;
}

/* ---- the plan as text ---- */

/* Whether YAML reads the text back as it is. */
static int plan_is_plain(const char *text)
{
    static const char harmless[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/+-";
    return *text != '\0' && *text != '-' && strspn(text, harmless) == strlen(text);
}

static char *plan_quoted(struct arena *a, const char *text)
{
    char *to = arena_alloc(a, 2 * strlen(text) + 3), *end = to;
    *end++ = '\'';
    for (; *text != '\0'; text++) {
        if (*text == '\'') *end++ = '\'';
        *end++ = *text;
    }
    *end = '\'';
    return to;
}

char *plan_text(struct arena *a, const struct plan *p)
{
    char *text = "";
    for (int i = 0; i < plan_n_opt; i++) {
        const struct opt *o = &plan_opts[i];
        char value[512];
        cfg_echo(value, sizeof(value), p, o);
        const char *shown = value;
        if (o->at == offsetof(struct plan, layout) && p->split.n_chunk > 0) shown = layout_text(a, &p->split);
        if (o->type == OPT_TEXT && !plan_is_plain(shown)) shown = plan_quoted(a, shown);
        text = arena_printf(a, "%s%s: %s\n", text, o->key, shown);
    }
    return text;
}
