/* Tiny jobs that really run: what the tests of the executor share. A family is a model; a fold is how one set
 * of ranks is folded twice, with its schedule. Everything is built in code, so that a test of execution does
 * not hang on configs. */
#ifndef TESTS_PARITY_H
#define TESTS_PARITY_H
#include "exec/exec.h"
#include "exec/exec_param.h"
#include "models/sched.h"
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum family { GQA, GQA_ALL, MLA, MLA_ALL, DENSE, TIED_MTP, V2, V2_ALL, OSS, OSS_ALL, LATENT_ALL, FAMILY_TEST_COUNT };  /* _ALL: top-k = experts */

struct fold {
    const char *name;
    enum family family;
    int tp, cp, dp, ep, etp, pp, vpp;       /* 0 means 1; gpus = tp cp dp pp */
    int split, woven, recompute;            /* recompute: bits */
    const char *layout;                     /* NULL: auto */
    int mbs, group;                         /* 0: 1; pp */
    int a2a;                                /* cp by heads */
    int p2p;                                /* cp by a ring */
    int dispatcher, domain;                 /* enum dispatcher; ranks of an NVLink domain, 0: all */
    int bf16, wide;                         /* wide: no gradient of a handful of elements */
    int fsdp; const char *offload;
    int balance;                            /* enum balance_loss, with a z loss too */
    int small;                              /* states: bf16 moments; of bf16 plans, masters in two halves */
    const char *load;                       /* NULL: dropless */
};

enum { PARITY_SEQ = 16, PARITY_GBS = 8 };

/* Sanitized builds are ten times slower: fewer steps; every fifth fold, every fifth parameter. */
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
enum { PARITY_STEPS = 4, PARITY_STRIDE = 5 };
#else
enum { PARITY_STEPS = 20, PARITY_STRIDE = 1 };
#endif

static inline struct model parity_model(enum family f)
{
    struct model m = { .name = "tiny", .layers = 4, .hidden = 32, .vocab = 260, .attention = ATTENTION_GQA,
                       .heads = 4, .kv_heads = 2, .head_dim = 8, .qk_norm = 1, .ffn = 48, .experts = 8,
                       .topk = 2, .expert_ffn = 16, .dense_layers = 1, .score = SCORE_SOFTMAX, .norm_topk = 1,
                       .groups = 1, .groups_kept = 1, .route_scale = 1, .mtp_weight = 0.3,
                       .rope_theta = 10000, .norm_eps = 1e-5, .init_std = 0.15, .mamba_conv = 4,
                       .mamba_chunk = 128 };
    if (f == GQA_ALL || f == MLA_ALL) m.experts = m.topk = 4;
    if (f == GQA_ALL) m.norm_topk = 0;
    if (f == DENSE) m.experts = m.topk = 0, m.dense_layers = 4, m.tied = 1, m.qk_norm = 0, m.activation = ACTIVATION_GELU;
    if (f == TIED_MTP) m.tied = m.mtp = 1;
    if (f == MLA || f == MLA_ALL) {
        m.attention = ATTENTION_MLA;
        m.q_lora = 24, m.kv_lora = 16, m.qk_nope = 8, m.qk_rope = 4, m.v_dim = 8;
        m.shared_ffn = 16, m.score = SCORE_SIGMOID, m.selection_bias = 1, m.route_scale = 2.5, m.mtp = 1;
    }
    if (f == MLA) m.groups = 4, m.groups_kept = 2;
    if (f == V2 || f == V2_ALL) {           /* as DeepSeek-V2 and its Lite: full-rank queries, groups by their best expert */
        m.attention = ATTENTION_MLA;
        m.kv_lora = 16, m.qk_nope = 8, m.qk_rope = 4, m.v_dim = 8;
        m.shared_ffn = 32, m.norm_topk = 0, m.route_scale = 2, m.qk_norm = 0;
        m.groups = 2, m.groups_kept = 1, m.group_score = GROUP_SCORE_MAX;
    }
    if (f == OSS || f == OSS_ALL) {         /* as GPT-OSS: windows in every second layer, sinks, biases everywhere */
        m.window = 5, m.full_every = 2, m.sinks = 1, m.qk_norm = 0, m.dense_layers = 1;
        m.bias = 1 << BIAS_QKV | 1 << BIAS_O | 1 << BIAS_MLP | 1 << BIAS_ROUTER;
    }
    if (f == OSS_ALL) m.experts = m.topk = 4, m.shared_ffn = 16, m.positions = POSITIONS_NONE;
    if (f == LATENT_ALL) {                  /* as Nemotron-3 Super: narrower tokens among experts, squared relu */
        m.experts = m.topk = 4, m.moe_latent = 16, m.shared_ffn = 16, m.activation = ACTIVATION_RELU2;
        m.score = SCORE_SIGMOID, m.selection_bias = 1, m.route_scale = 2.5;
    }
    if (f == V2_ALL) m.experts = m.topk = 4, m.groups = m.groups_kept = 1, m.activation = ACTIVATION_RELU2;
    return m;
}

static inline struct stack parity_stack(void)
{
    return (struct stack){ .name = "moefold", .runs = 1, .schedules = 7,
                           .recomputes = (2 << RECOMPUTE_FULL) - 1, .dispatchers = 1 << DISPATCHER_ALLTOALL | 1 << DISPATCHER_HYBRIDEP | 1 << DISPATCHER_ALLGATHER, .cp_comms = 7,
                           .split_wgrad = 1, .fsdp = 1, .offloads = (1 << OFFLOAD_COUNT) - 1, .offload_smallest = 1, .capacity = 1.5, .vocab_multiple = 8, .issue = 1,
                           .host_reads = 1, .arena = 1, .grad_fp32 = 1 };
}

/* Round numbers: only tests that predict look at them. */
static inline struct system parity_system(void)
{
    struct system s = { .name = "host", .memory_B = 1e12, .hbm_B_per_s = 1e10, .eff_attention_fwd = 0.5,
                        .eff_attention_bwd = 0.5, .eff_memory = 0.5, .gpus_per_host = 64, .domain = 64,
                        .nvlink_B_per_s = 1e10, .nvlink_latency_s = 1e-6, .eff_nvlink = 0.5,
                        .eff_nvlink_alltoall = 0.5, .nic_B_per_s = 1e9, .nic_latency_s = 1e-6, .eff_nic = 0.5,
                        .eff_nic_alltoall = 0.5, .host_link_B_per_s = 1e10, .host_memory_B = 1e12, .host_update_B_per_s = 1e10,
                        .issue_s = 1e-6 };
    s.peak_flop_per_s[DT_F32] = s.peak_flop_per_s[DT_BF16] = 1e10;
    s.eff_gemm[DT_F32] = s.eff_grouped[DT_F32] = s.eff_gemm[DT_BF16] = s.eff_grouped[DT_BF16] = 0.5;
    return s;
}

static inline void parity_widen(struct model *m)
{
    int32_t *width[] = { &m->hidden, &m->head_dim, &m->q_lora, &m->kv_lora, &m->qk_nope, &m->qk_rope, &m->v_dim,
                         &m->ffn, &m->expert_ffn, &m->shared_ffn };
    for (int i = 0; i < LEN(width); i++) *width[i] *= 4;
    m->init_std /= 2;
}

static inline struct job parity_job(const struct fold *f, int seed, enum optimizer optimizer)
{
    struct job j = { .model = parity_model(f->family), .stack = parity_stack() };
    if (f->wide) parity_widen(&j.model);
    j.system = parity_system();
    struct plan *p = &j.plan;
    *p = (struct plan){ .model = "tiny", .system = "host", .stack = "moefold", .tp = f->tp, .cp = f->cp,
                        .pp = f->pp, .vpp = f->vpp, .etp = f->etp, .ep = f->ep, .schedule = -1,
                        .vpp_group = f->group, .mbs = f->mbs, .gbs = PARITY_GBS, .seq = PARITY_SEQ,
                        .precision = f->bf16 ? PRECISION_BF16 : PRECISION_FP32, .optimizer = optimizer, .recompute = f->recompute, .cp_comm = f->p2p ? CP_COMM_P2P : f->a2a ? CP_COMM_A2A : CP_COMM_ALLGATHER,
                        .dispatcher = f->dispatcher, .domain_gpus = f->domain, .ep_overlap = f->woven, .dp_overlap = -1, .split_wgrad = f->split, .sp = -1,
                        .mtp = -1, .lr = optimizer == OPTIMIZER_SGD ? 0.05 : 1e-3, .weight_decay = 0.01,
                        .beta1 = 0.9, .beta2 = 0.95, .adam_eps = 1e-8, .clip = 1, .seed = seed };
    p->fsdp = f->fsdp;
    p->balance = f->balance;
    if (f->balance) p->aux_loss = 0.5, p->z_loss = 0.01;
    if (f->offload) snprintf(p->offload, sizeof p->offload, "%s", f->offload);
    if (f->small) p->moments = STATE_BF16, p->master = f->bf16 ? MASTER_REMAINDER : MASTER_FP32;
    struct diag d;
    if (routing_parse(&p->routing, f->load ? f->load : "dropless", &d) != OK) ck_abort_msg("%s: %s", f->name, d.text);
    snprintf(p->load, sizeof p->load, "%s", f->load ? f->load : "dropless:balanced");
    int32_t *degree[] = { &p->tp, &p->cp, &p->pp, &p->vpp, &p->etp, &p->ep, &p->mbs };
    for (int i = 0; i < LEN(degree); i++)
        if (!*degree[i]) *degree[i] = 1;
    p->gpus = p->tp * p->cp * (f->dp ? f->dp : 1) * p->pp;
    if (f->layout) snprintf(p->layout, sizeof p->layout, "%s", f->layout);
    return j;
}

/* A job made ready to run, what it gave, and every rank's arena after the first step. */
struct parity {
    struct arena a;
    struct job j; struct program pr; struct unroll *u;
    struct exec_ask ask; struct exec_result r;
    char **arena;
    struct diag d;
};

static inline const uint8_t *parity_text(int64_t *n)
{
    static const char text[] =
        "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in "
        "want of a wife. However little known the feelings or views of such a man may be on his first entering "
        "a neighbourhood, this truth is so well fixed in the minds of the surrounding families, that he is "
        "considered as the rightful property of some one or other of their daughters. My dear Mr. Bennet, said "
        "his lady to him one day, have you heard that Netherfield Park is let at last?";
    *n = (int64_t)sizeof text - 1;
    return (const uint8_t *)text;
}

static inline void parity_keep(void *user, int rank, int step, const struct unroll *u, const char *arena)
{
    struct parity *p = user;
    if (step == 0) memcpy(p->arena[rank], arena, (size_t)unroll_memory_B(u));
}

/* Builds, unrolls and plans p->j; fails the test with the diagnosis. */
static inline void parity_make(struct parity *p, const struct fold *f)
{
    ck_assert_msg(plan_resolve(&p->j, &p->d) == OK, "%s: %s", f->name, p->d.text);
    program_build(&p->pr, &p->a, &p->j);
    p->u = arena_alloc(&p->a, (size_t)p->pr.n_stage * sizeof *p->u);
    ck_assert_msg(unroll_all(p->u, &p->a, &p->pr, &p->d) == OK, "%s: %s", f->name, p->d.text);
    for (int s = 0; s < p->pr.n_stage; s++) unroll_plan(&p->u[s], &p->a, &p->pr);
    p->arena = arena_alloc(&p->a, (size_t)p->j.plan.gpus * sizeof *p->arena);
    for (int r = 0; r < p->j.plan.gpus; r++)
        p->arena[r] = arena_alloc(&p->a, (size_t)unroll_memory_B(&p->u[fold_coord(&p->j.plan, r).pp]));
    p->ask = (struct exec_ask){ .steps = PARITY_STEPS, .iters_traced = 1, .poison = 1, .timeout_s = 60,
                                .after_step = parity_keep, .user = p };
    p->ask.text = parity_text(&p->ask.text_n);
}

static inline void parity_open(struct parity *p, const struct fold *f, int seed, enum optimizer optimizer)
{
    *p = (struct parity){ .j = parity_job(f, seed, optimizer) };
    parity_make(p, f);
}

static inline enum err parity_run(struct parity *p)
{
    return exec_run(&p->r, &p->a, &p->pr, p->u, &p->j, &p->ask, &p->d);
}

static inline void parity_close(struct parity *p)
{
    arena_free(&p->a);
}

/* A parameter's text: "layer 2 expert_fc1". */
static inline const char *parity_name(char to[64], const struct param *q)
{
    snprintf(to, 64, "layer %d %s", q->layer, program_param_name((enum param_name)q->name));
    return to;
}

/* The whole gradient (or parameter) after the first step; from the arena. */
static inline float *parity_whole(struct parity *p, int param, int grad)
{
    float *whole = arena_alloc(&p->a, (size_t)exec_param_elements(&p->pr.param[param]) * sizeof *whole);
    exec_param_gather(whole, &p->pr, p->u, &p->j, param, grad, p->arena);
    return whole;
}

/* Elements that two folds share: padded vocabulary rows differ between them. */
static inline int64_t parity_true_elements(const struct param *q, const struct model *m)
{
    const int table = q->name == PARAM_EMBEDDING || q->name == PARAM_HEAD;
    return table ? (int64_t)m->vocab * q->cols : exec_param_elements(q);
}

static inline double parity_norm(const float *x, const float *minus, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i] - (minus ? (double)minus[i] : 0);
        sum += v * v;
    }
    return sqrt(sum);
}

/* ---- what differs from the one-rank run: text in p->d, NULL when nothing does ---- */

static inline const char *parity_loss_differs(struct parity *p, const struct parity *one)
{
    for (int s = 0; s < p->r.n_step; s++) {
        const struct exec_step *x = &p->r.step[s], *y = &one->r.step[s];
        const double mine[] = { x->loss, x->mtp_loss, x->grad_norm },
                     want[] = { y->loss, y->mtp_loss, y->grad_norm };
        static const char *const name[] = { "loss", "MTP loss", "gradient norm" };
        for (int k = 0; k < 3; k++)
            if (!(fabs(mine[k] - want[k]) <= 1e-5 * want[k])) {
                snprintf(p->d.text, sizeof p->d.text, "%s of step %d is %.9g, one rank's %.9g", name[k], s,
                         mine[k], want[k]);
                return p->d.text;
            }
    }
    return NULL;
}

/* Every copy of parameter `want` of the one-rank program; counts them. */
static inline const char *parity_gradient_differs(struct parity *p, struct parity *one, int want, int *copies)
{
    const struct param *q = &one->pr.param[want];
    const int64_t n = parity_true_elements(q, &one->j.model);
    const float *y = parity_whole(one, want, 1);
    char text[64];
    for (int i = 0; i < p->pr.n_param; i++) {
        if (p->pr.param[i].name != q->name || p->pr.param[i].layer != q->layer) continue;
        const double off = parity_norm(parity_whole(p, i, 1), y, n), norm = parity_norm(y, NULL, n);
        ++*copies;
        if (off <= 1e-5 * norm) continue;
        snprintf(p->d.text, sizeof p->d.text, "gradient of %s (stage %d) is off by %.3g of its norm %.3g",
                 parity_name(text, q), p->pr.param[i].stage, off / norm, norm);
        return p->d.text;
    }
    return NULL;
}

static inline const char *parity_gradients_differ(struct parity *p, struct parity *one)
{
    int copies = 0;
    for (int i = 0; i < one->pr.n_param; i++) {
        const int before = copies;
        const char *text = parity_gradient_differs(p, one, i, &copies);
        if (text) return text;
        if (copies == before) return program_param_name((enum param_name)one->pr.param[i].name);
    }
    return copies == p->pr.n_param ? NULL : "a parameter that one rank does not have";
}

/* Counted while running against what unroll predicted. */
static inline const char *parity_counts_differ(struct parity *p)
{
    for (int r = 0; r < p->j.plan.gpus; r++) {
        const struct unroll *u = &p->u[fold_coord(&p->j.plan, r).pp];
        if (p->r.live_B[r] == u->live_B && p->r.touched_B[r] == u->arena_B) continue;
        snprintf(p->d.text, sizeof p->d.text,
                 "rank %d: live %lld bytes, predicted %lld; touched %lld, arena %lld", r,
                 (long long)p->r.live_B[r], (long long)u->live_B, (long long)p->r.touched_B[r],
                 (long long)u->arena_B);
        return p->d.text;
    }
    return NULL;
}

#endif
