/* What follows from a plan, and what a plan may not be. Every rule is one short function with its own words: both
 * numbers, then the way out. plan_resolve runs the rules that its divisions need before it divides; plan_check
 * runs them all. Rules: Megatron-LM core/parallel_state.py (folds), core/pipeline_parallel/schedules.py (groups
 * of micro-batches), core/transformer/transformer_config.py (the rest). */
#include "models/place.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GPUS = 1 << 20, TOKENS = 1 << 30 };      /* limits that keep every product below within 64 bits */

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

static int64_t lcm(int64_t a, int64_t b)
{
    return a / gcd(a, b) * b;
}

/* "56 or 64": the multiples of `of` around `n`. */
struct near { char text[48]; };

static struct near near_multiples(int64_t n, int64_t of)
{
    struct near x;
    const long long below = n / of * of, above = below + of;
    if (below > 0) snprintf(x.text, sizeof x.text, "%lld or %lld", below, above);
    else snprintf(x.text, sizeof x.text, "%lld", above);
    return x;
}

/* ---- ranges ---- */
/* The option table holds these for users; plans made in code come through here too. */
static enum err check_ranges(const struct plan *p, struct diag *d)
{
    const struct { const char *key; int32_t value, lo, hi; } row[] = {
        { "gpus", p->gpus, 1, GPUS },       { "tp", p->tp, 1, p->gpus },       { "cp", p->cp, 1, p->gpus },
        { "pp", p->pp, 1, p->gpus },        { "ep", p->ep, 1, p->gpus },       { "etp", p->etp, 1, p->gpus },
        { "vpp", p->vpp, 1, LAYOUT_CHUNKS }, { "mbs", p->mbs, 1, TOKENS },     { "gbs", p->gbs, 1, INT_MAX },
        { "seq", p->seq, 1, TOKENS },       { "vpp-group", p->vpp_group, 1, INT_MAX },
        { "order", p->order, 0, ORDER_TP_CP_EP_PP_DP }, { "schedule", p->schedule, 0, SCHEDULE_FWD_BWD },
        { "dispatcher", p->dispatcher, 0, DISPATCHER_ALLGATHER }, { "precision", p->precision, 0, PRECISION_COUNT - 1 },
        { "grads", p->grads, 0, STATE_BF16 }, { "moments", p->moments, 0, STATE_FP8 },
        { "master", p->master, 0, MASTER_REMAINDER }, { "fp8-param-gather", p->fp8_param_gather, 0, 1 },
        { "high-first", p->high_first, 0, 1000 }, { "high-last", p->high_last, 0, 1000 },
        { "recompute", p->recompute, 0, (2 << RECOMPUTE_FULL) - 1 }, { "sp", p->sp, 0, 1 }, { "fsdp", p->fsdp, 0, 1 }, { "tp-overlap", p->tp_overlap, 0, 1 }, { "dp-overlap", p->dp_overlap, 0, DP_OVERLAP_NONE },
        { "ep-overlap", p->ep_overlap, 0, 1 }, { "split-wgrad", p->split_wgrad, 0, 1 }, { "mtp", p->mtp, 0, MODEL_MTP },
    };
    for (int i = 0; i < LEN(row); i++)
        if (row[i].value < row[i].lo || row[i].value > row[i].hi)
            return fail(d, ERR_CONFIG, "%s %d is outside %d to %d", row[i].key, row[i].value, row[i].lo,
                        row[i].hi);
    if ((int64_t)p->mbs * p->seq > TOKENS)
        return fail(d, ERR_LIMIT, "mbs %d x seq %d is more than %d tokens in one micro-batch: lower mbs", p->mbs,
                    p->seq, TOKENS);
    return OK;
}

/* ---- the two folds ---- */
static enum err check_folds(const struct plan *p, struct diag *d)
{
    const int64_t dense = (int64_t)p->tp * p->cp * p->pp, expert = (int64_t)p->etp * p->ep * p->pp;
    const int huge = dense > GPUS || expert > GPUS; /* no hint of ours would help, and lcm might overflow */
    const struct near n = near_multiples(p->gpus, huge ? (dense > expert ? dense : expert) : lcm(dense, expert));
    if (p->gpus % dense)
        return fail(d, ERR_CONFIG,
                    "tp %d x cp %d x pp %d = %lld does not divide gpus %d: lower one of them, or use %s GPUs",
                    p->tp, p->cp, p->pp, (long long)dense, p->gpus, n.text);
    if (p->gpus % expert)
        return fail(d, ERR_CONFIG,
                    "etp %d x ep %d x pp %d = %lld does not divide gpus %d: lower one of them, or use %s GPUs",
                    p->etp, p->ep, p->pp, (long long)expert, p->gpus, n.text);
    const int64_t dp = p->gpus / dense, edp = p->gpus / expert;
    if (p->order == ORDER_TP_CP_EP_PP_DP && p->pp > 1 && dp != edp)
        return fail(d, ERR_CONFIG,
                    "order tp-cp-ep-pp-dp with pp %d needs equal dp and edp, but dp is %lld and edp %lld: "
                    "use order tp-cp-ep-dp-pp, or make etp x ep equal tp x cp",
                    p->pp, (long long)dp, (long long)edp);
    return OK;
}

/* The folds as resolved agree with the degrees. */
static enum err check_resolved(const struct plan *p, struct diag *d)
{
    if ((int64_t)p->tp * p->cp * p->dp * p->pp != p->gpus || (int64_t)p->etp * p->ep * p->edp * p->pp != p->gpus)
        return fail(d, ERR_CONFIG,
                    "gpus %d with dp %d and edp %d does not follow from the degrees: resolve the plan again",
                    p->gpus, p->dp, p->edp);
    if (p->split.n_chunk != p->pp * p->vpp)
        return fail(d, ERR_CONFIG, "layout was made for %d chunks, but pp %d x vpp %d = %d: resolve the plan again",
                    p->split.n_chunk, p->pp, p->vpp, p->pp * p->vpp);
    return OK;
}

/* ---- cuts of the model ---- */
static enum err cut(const char *what, int size, const char *key, int degree, struct diag *d)
{
    if (size % degree == 0) return OK;
    return fail(d, ERR_CONFIG, "%s %d does not divide %s %d: choose %s among the divisors of %d", key, degree,
                what, size, key, size);
}

/* Megatron-LM core/ssm/mamba_context_parallel.py: heads and groups are cut over tp, then over cp. */
static enum err check_mamba_cut(const struct plan *p, const struct model *m, struct diag *d)
{
    if (model_count_mixer(m, MIXER_MAMBA) == 0) return OK;
    TRY(cut("mamba_groups", m->mamba_groups, "tp", p->tp, d));
    return cut("mamba_groups / tp", m->mamba_groups / p->tp, "cp", p->cp, d);
}

static enum err check_attention_cut(const struct plan *p, const struct model *m, struct diag *d)
{
    if (*m->pattern) TRY(check_mamba_cut(p, m, d));
    TRY(cut("heads", m->heads, "tp", p->tp, d));
    if (m->attention == ATTENTION_MLA || m->kv_heads < 1) return OK;
    if (m->kv_heads % p->tp && p->tp % m->kv_heads)
        return fail(d, ERR_CONFIG,
                    "tp %d and kv_heads %d: one must divide the other, so that K/V heads are either cut or "
                    "copied evenly; choose another tp",
                    p->tp, m->kv_heads);
    return OK;
}

/* a2a swaps whole heads for tokens. TransformerEngine's ring has neither windows nor sinks (context_parallel.py,
 * attn_forward_func_with_cp); our own has. */
static enum err check_cp_comm(const struct plan *p, const struct model *m, const struct stack *s, struct diag *d)
{
    if (p->cp_comm == CP_COMM_P2P && p->cp > 1 && !s->runs && (m->window || m->sinks))
        return fail(d, ERR_CONFIG, "cp-comm p2p: stack %s has no ring for %s: use cp-comm a2a or allgather", s->name,
                    m->window ? "a sliding window" : "sinks");
    if (p->cp_comm != CP_COMM_A2A || p->cp == 1) return OK;
    const int heads = m->heads / p->tp;
    const int kv = m->attention == ATTENTION_MLA || m->kv_heads < 1 ? heads : m->kv_heads / p->tp;
    if (heads % p->cp == 0 && kv > 0 && kv % p->cp == 0) return OK;
    return fail(d, ERR_CONFIG,
                "cp-comm a2a: cp %d does not divide the %d heads and %d K/V heads of a tp rank: lower cp or tp, "
                "or use cp-comm allgather",
                p->cp, heads, kv);
}

static enum err check_mlp_cut(const struct plan *p, const struct model *m, struct diag *d)
{
    if (model_count_ffn(m, FFN_DENSE) > 0) TRY(cut("ffn", m->ffn, "tp", p->tp, d));
    if (m->experts > 0 && m->shared_ffn > 0) TRY(cut("shared_ffn", m->shared_ffn, "tp", p->tp, d));
    return OK;
}

static enum err check_expert_cut(const struct plan *p, const struct model *m, struct diag *d)
{
    if (m->experts > 0) {
        TRY(cut("experts", m->experts, "ep", p->ep, d));
        return cut("expert_ffn", m->expert_ffn, "etp", p->etp, d);
    }
    if (p->ep > 1 || p->etp > 1)
        return fail(d, ERR_CONFIG, "ep %d and etp %d need experts, but model %s has none: set both to 1", p->ep,
                    p->etp, m->name);
    return OK;
}

/* ---- sequence and batch ---- */
/* With cp every rank takes two pieces of the sequence, one from either end (equal causal work), and sequence
 * parallelism cuts what a rank has over tp. */
int plan_seq_multiple(const struct plan *p)
{
    const int tp = p->sp ? p->tp : 1;
    return p->cp > 1 ? (int)(p->cp * lcm(2, tp)) : tp;
}

static enum err check_sequence(const struct plan *p, struct diag *d)
{
    const int of = plan_seq_multiple(p);
    const struct near n = near_multiples(p->seq, of);
    if (p->seq % of == 0) return OK;
    if (p->cp > 1)
        return fail(d, ERR_CONFIG,
                    "seq %d is not a multiple of %d (cp %d x the least common multiple of 2 and tp %d): pad to %s",
                    p->seq, of, p->cp, p->tp, n.text);
    return fail(d, ERR_CONFIG,
                "seq %d is not a multiple of tp %d, over which sequence parallelism cuts it: pad to %s", p->seq, of, n.text);
}

static enum err check_batch(const struct plan *p, struct diag *d)
{
    const int64_t dp = p->gpus / ((int64_t)p->tp * p->cp * p->pp), at_once = p->mbs * dp;
    const struct near n = near_multiples(p->gbs, at_once);
    if (p->gbs % at_once)
        return fail(d, ERR_CONFIG, "gbs %d is not a multiple of mbs %d x dp %lld = %lld: use gbs %s, or another mbs",
                    p->gbs, p->mbs, (long long)dp, (long long)at_once, n.text);
    return OK;
}

static enum err check_sp(const struct plan *p, const struct model *m, struct diag *d)
{
    if (p->tp == 1 || p->sp) return OK;
    if (m->experts > 0)
        return fail(d, ERR_CONFIG,
                    "tp %d with experts needs sp 1: without it all %d tp ranks route and dispatch the same tokens",
                    p->tp, p->tp);
    return fail(d, ERR_LIMIT, "sp 0 with tp > 1 (here %d) is not built yet: set sp 1", p->tp);
}

/* ---- pipeline ---- */
static enum err check_schedule(const struct plan *p, struct diag *d)
{
    if (p->vpp > 1 && p->pp == 1)
        return fail(d, ERR_CONFIG, "vpp %d needs pp above 1: with one stage set vpp 1", p->vpp);
    if (p->schedule == SCHEDULE_1F1B && p->vpp > 1)
        return fail(d, ERR_CONFIG,
                    "schedule 1f1b has one chunk per stage, but vpp is %d: use schedule interleaved, or vpp 1",
                    p->vpp);
    if (p->schedule == SCHEDULE_INTERLEAVED && p->vpp == 1)
        return fail(d, ERR_CONFIG, "schedule interleaved needs vpp above 1: use schedule 1f1b, or raise vpp");
    if (p->ep_overlap == (p->schedule == SCHEDULE_FWD_BWD)) return OK;
    return fail(d, ERR_CONFIG,
                "ep-overlap %d and schedule %s exclude each other: ep-overlap 1 is schedule fwd-bwd",
                p->ep_overlap, stack_schedules[p->schedule]);
}

/* Megatron-LM schedules.py: pp <= group <= m, and the last group is whole or has at least pp micro-batches. */
static enum err check_groups(const struct plan *p, struct diag *d)
{
    const int g = p->vpp_group, m = p->n_micro, rest = m % g;
    const char *const out = "raise gbs, lower dp or mbs, or change vpp-group";
    if (p->vpp == 1) return OK;
    if (m < p->pp)
        return fail(d, ERR_CONFIG,
                    "vpp %d needs at least pp %d micro-batches, but gbs / (mbs x dp) is %d: raise gbs, lower "
                    "dp or mbs, or set vpp 1",
                    p->vpp, p->pp, m);
    if (g < p->pp)
        return fail(d, ERR_CONFIG, "vpp-group %d is smaller than pp %d: use %d or more", g, p->pp, p->pp);
    if (g > m)
        return fail(d, ERR_CONFIG, "vpp-group %d exceeds the %d micro-batches of a step (pp %d): %s", g, m, p->pp,
                    out);
    if (rest && rest < p->pp)
        return fail(d, ERR_CONFIG, "vpp-group %d cuts %d micro-batches so that %d are left, fewer than pp %d: %s",
                    g, m, rest, p->pp, out);
    return OK;
}

static enum err check_fwd_bwd(const struct plan *p, const struct model *m, struct diag *d)
{
    if (p->schedule != SCHEDULE_FWD_BWD) return OK;
    if (p->ep == 1)
        return fail(d, ERR_CONFIG,
                    "schedule fwd-bwd hides expert exchange, but ep is 1: raise ep, or set ep-overlap 0");
    if (*m->pattern)
        return fail(d, ERR_LIMIT, "schedule fwd-bwd weaves equal layers, but model %s has a pattern: set ep-overlap 0",
                    m->name);
    if (p->pp > 1 && p->vpp == 1)
        return fail(d, ERR_CONFIG,
                    "schedule fwd-bwd with pp %d needs vpp above 1: raise vpp, or set ep-overlap 0", p->pp);
    if (p->recompute & 1 << RECOMPUTE_MOE)
        return fail(d, ERR_CONFIG,
                    "schedule fwd-bwd and recompute moe exclude each other: the exchange that it hides would run again; "
                    "choose other modules, or set ep-overlap 0");
    if (p->recompute & 1 << RECOMPUTE_FULL)
        return fail(d, ERR_CONFIG,
                    "schedule fwd-bwd and recompute full exclude each other: choose recompute by module, or set "
                    "ep-overlap 0");
    return OK;
}

/* ---- options of model, stack and system ---- */
static enum err check_recompute(const struct plan *p, const struct model *m, struct diag *d)
{
    const int full = 1 << RECOMPUTE_FULL;
    if (p->recompute & full && p->recompute != full)
        return fail(d, ERR_CONFIG,
                    "recompute full holds every module already: give full alone, or modules without it");
    if (p->recompute & 1 << RECOMPUTE_MOE_ACT && m->experts == 0)
        return fail(d, ERR_CONFIG, "recompute moe_act needs experts, but model %s has none: remove it", m->name);
    const int experts = 1 << RECOMPUTE_MOE | 1 << RECOMPUTE_SHARED_EXPERTS;
    if (p->recompute & experts && m->experts == 0)
        return fail(d, ERR_CONFIG,
                    "recompute moe and shared_experts need experts, but model %s has none: remove them", m->name);
    if (p->recompute & 1 << RECOMPUTE_MLA_UP_PROJ && m->attention != ATTENTION_MLA)
        return fail(d, ERR_CONFIG, "recompute mla_up_proj needs MLA attention, but model %s has GQA: remove it",
                    m->name);
    return OK;
}

static enum err offered(const struct stack *s, const char *what, int32_t set, int option,
                        const char *const names[], struct diag *d)
{
    if (set >> option & 1) return OK;
    return fail(d, ERR_CONFIG, "%s %s is not offered by stack %s: choose another %s, or another stack", what,
                names[option], s->name, what);
}

static enum err check_stack(const struct plan *p, const struct model *m, const struct stack *s, struct diag *d)
{
    TRY(offered(s, "schedule", s->schedules, p->schedule, stack_schedules, d));
    if (p->tp_overlap && !s->tp_overlap)
        return fail(d, ERR_CONFIG, "tp-overlap 1 is not offered by stack %s, whose tp_overlap is 0: set tp-overlap 0, or take "
                    "another stack", s->name);
    if (p->cp_comm != CP_COMM_ALLGATHER) TRY(offered(s, "cp-comm", s->cp_comms, p->cp_comm, stack_cp_comms, d));
    TRY(offered(s, "dispatcher", s->dispatchers, p->dispatcher, stack_dispatchers, d));
    for (int r = 0; r <= RECOMPUTE_FULL; r++)
        if (p->recompute >> r & 1) TRY(offered(s, "recompute", s->recomputes, r, stack_recomputes, d));
    if ((p->balance || p->z_loss > 0) && !m->experts)
        return fail(d, ERR_CONFIG, "balance and z-loss-coeff are of routers, but model %s has no experts: leave them out", m->name);
    if (s->runs && p->dp_overlap == DP_OVERLAP_BOTH)
        return fail(d, ERR_LIMIT, "dp-overlap both is not built in stack %s yet: set grads, or take a stack that is only "
                    "predicted", s->name);
    if (p->split_wgrad && !s->split_wgrad)
        return fail(d, ERR_CONFIG,
                    "split-wgrad 1 is not offered by stack %s: set it to 0, or choose another stack", s->name);
    if (s->runs && model_cost_only(m))
        return fail(d, ERR_LIMIT,
                    "model %s has %s, which stack %s cannot run: take a stack that is only predicted", m->name,
                    model_cost_only(m), s->name);
    if (s->runs && p->etp > 1 && m->experts > 0 && model_has_bias(m, BIAS_MLP))
        return fail(d, ERR_LIMIT, "etp %d with biases of experts is not built in stack %s yet: set etp 1", p->etp, s->name);
    if (s->runs && recipe_is_low(recipe_of(p->precision)))
        return fail(d, ERR_LIMIT,
                    "precision %s is not built in stack %s yet: set precision bf16, or take a stack that is only "
                    "predicted",
                    recipe_of(p->precision)->name, s->name);
    if (s->runs && p->moments == STATE_FP8)
        return fail(d, ERR_LIMIT,
                    "moments fp8 are not built in stack %s yet: set moments bf16, or take a stack that is only predicted",
                    s->name);
    return OK;
}

/* Gradients, optimizer state and primary weights beside the precision. */
static enum err check_states(const struct plan *p, struct diag *d)
{
    const struct recipe *r = recipe_of(p->precision);
    if (p->grads != STATE_FP32 && r->act == DT_F32)
        return fail(d, ERR_CONFIG, "grads bf16 needs training below fp32, but precision is %s: set grads fp32",
                    r->name);
    if (p->optimizer != OPTIMIZER_ADAMW && p->moments)
        return fail(d, ERR_CONFIG, "moments other than fp32 need optimizer adamw: set moments fp32");
    if (p->fp8_param_gather && (!recipe_is_low(r) || r->x == DT_FP4))
        return fail(d, ERR_CONFIG, "fp8-param-gather needs an fp8 precision, but precision is %s: set it to 0",
                    r->name);
    if (p->high_first + p->high_last > 0 && !recipe_is_low(r))
        return fail(d, ERR_CONFIG, "high-first %d and high-last %d need a low precision, but precision is %s: set both to 0",
                    p->high_first, p->high_last, r->name);
    if (p->master == MASTER_REMAINDER && (r->act != DT_BF16 || p->fp8_param_gather))
        return fail(d, ERR_CONFIG,
                    "master remainder holds what bf16 weights lack, but %s: set master fp32",
                    p->fp8_param_gather ? "fp8-param-gather leaves none" : "precision has none");
    return OK;
}

static enum err check_system(const struct plan *p, const struct system *s, struct diag *d)
{
    const struct recipe *r = recipe_of(p->precision);
    if (!(s->peak_flop_per_s[dtype_peak(r->x)] > 0) || !(s->peak_flop_per_s[dtype_peak(r->act)] > 0))
        return fail(d, ERR_CONFIG, "precision %s has no peak on system %s: choose another", r->name, s->name);
    if (r->needs_block && !s->block_scaled)
        return fail(d, ERR_CONFIG,
                    "precision %s needs tensor cores that scale by block, system %s has none: choose fp8-block",
                    r->name, s->name);
    if (p->domain_gpus < 1 || p->domain_gpus > s->domain)
        return fail(d, ERR_CONFIG,
                    "domain-gpus %d is outside 1 to %d, the GPUs of one NVLink domain of system %s",
                    p->domain_gpus, s->domain, s->name);
    return OK;
}

/* ---- capacity ---- */
/* The most a rank can receive, over even routing: every token picks as many of its experts as it can. */
static double worst_capacity(const struct plan *p, const struct model *m)
{
    const int here = m->experts / p->ep, picked = m->topk < here ? m->topk : here;
    return (double)p->ep * picked / m->topk;
}

static enum err check_capacity(const struct plan *p, const struct model *m, struct diag *d)
{
    if (m->experts == 0 && (p->routing.policy || p->routing.kind))
        return fail(d, ERR_CONFIG, "load %s needs experts, but model %s has none: remove it", p->load, m->name);
    if (p->routing.kind == ROUTING_RECORDED && p->routing.recorded->experts != m->experts)
        return fail(d, ERR_CONFIG, "load %s counts %d experts, model %s has %d: record it with this model", p->load,
                    p->routing.recorded->experts, m->name, m->experts);
    if (m->experts == 0 || p->capacity == 0 || p->capacity == PLAN_CAPACITY_WORST) return OK;
    const double worst = worst_capacity(p, m);
    if (!(p->capacity >= 1))
        return fail(d, ERR_CONFIG, "capacity %g is below 1, the rows of even routing: use 1 or more, or worst",
                    p->capacity);
    if (p->capacity > worst)
        return fail(d, ERR_CONFIG,
                    "capacity %g exceeds %g, the most a rank can receive (ep %d, topk %d, %d experts): use worst",
                    p->capacity, worst, p->ep, m->topk, m->experts);
    return OK;
}

int64_t plan_capacity_rows(const struct job *j, int at)
{
    const struct plan *p = &j->plan;
    const int64_t even = plan_even_rows(j, at);
    const double factor = p->capacity == PLAN_CAPACITY_WORST ? worst_capacity(p, &j->model) : p->capacity;
    const double rows = ceil((double)even * factor - 1e-6);     /* 1.1 x 10 is 11 rows, not 12 */
    const int64_t held = plan_expert_rows(j) * j->model.experts * (at ? p->etp : 1);
    if (p->routing.policy != ROUTING_DROPLESS && rows > (double)held) return held;     /* no rank sends an expert more */
    return rows > (double)even ? (int64_t)rows : even;
}

/* ---- all together ---- */
static void fill_options(struct job *j)
{
    struct plan *p = &j->plan;
    if (p->schedule < 0)
        p->schedule = p->ep_overlap ? SCHEDULE_FWD_BWD : p->vpp > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    if (p->schedule == SCHEDULE_FWD_BWD) p->ep_overlap = 1;
    if (p->vpp_group == 0) p->vpp_group = p->pp;
    if (p->dispatcher < 0) p->dispatcher = j->stack.dispatcher;
    if (p->dp_overlap < 0) p->dp_overlap = j->stack.dp_overlap;
    if (p->graph < 0) p->graph = plan_graph_default(j);
    if (p->sp < 0) p->sp = p->tp > 1;
    if (p->grads < 0)
        p->grads = j->stack.grad_fp32 || p->precision == PRECISION_FP32 ? STATE_FP32 : STATE_BF16;
    if (p->mtp < 0) p->mtp = j->model.mtp;
}

/* The stack's default, no larger than the worst case; worst on the host, where memory is no concern. */
static double default_capacity(const struct job *j)
{
    const double worst = worst_capacity(&j->plan, &j->model);
    if (j->stack.capacity == 0) return 0;
    if (strcmp(j->system.name, "host") == 0) return PLAN_CAPACITY_WORST;
    return j->stack.capacity < worst ? j->stack.capacity : worst;
}

static enum err fill_sizes(struct job *j, struct diag *d)
{
    struct plan *p = &j->plan;
    const int64_t of = (int64_t)(j->stack.vocab_multiple > 0 ? j->stack.vocab_multiple : 1) * p->tp;
    const int64_t vocab = (int64_t)j->model.vocab + p->vocab_extra, padded = (vocab + of - 1) / of * of;
    if (padded > INT_MAX)
        return fail(d, ERR_LIMIT, "vocab %d padded to a multiple of %lld is too large", j->model.vocab,
                    (long long)of);
    p->vocab_padded = (int32_t)padded;
    p->dp = p->gpus / (p->tp * p->cp * p->pp);
    p->edp = p->gpus / (p->etp * p->ep * p->pp);
    p->n_micro = p->gbs / (p->mbs * p->dp);
    if (p->domain_gpus == 0)
        p->domain_gpus = place_domain_gpus(p->gpus, j->system.domain, j->system.gpus_per_host);
    if (p->capacity == 0 && j->model.experts > 0) p->capacity = default_capacity(j);
    return OK;
}

enum err plan_resolve(struct job *j, struct diag *d)
{
    struct plan *p = &j->plan;
    fill_options(j);
    TRY(plan_memory_fill(p, d));
    TRY(check_ranges(p, d));
    TRY(check_folds(p, d));
    TRY(check_expert_cut(p, &j->model, d));
    TRY(check_batch(p, d));
    TRY(check_schedule(p, d));
    j->model.mtp = p->mtp;
    TRY(fill_sizes(j, d));
    TRY(layout_parse(&p->split, p->layout[0] ? p->layout : "auto", j->model.layers, p->mtp, p->pp, p->vpp, d));
    return plan_check(j, d);
}

enum err plan_check(const struct job *j, struct diag *d)
{
    const struct plan *p = &j->plan;
    const struct model *m = &j->model;
    TRY(check_ranges(p, d));
    TRY(check_folds(p, d));
    TRY(check_resolved(p, d));
    TRY(fold_check_tables(j, d));
    TRY(check_attention_cut(p, m, d));
    TRY(check_cp_comm(p, m, &j->stack, d));
    TRY(check_mlp_cut(p, m, d));
    TRY(check_expert_cut(p, m, d));
    TRY(check_sp(p, m, d));
    TRY(check_sequence(p, d));
    TRY(plan_packed_check(j, d));
    TRY(check_batch(p, d));
    TRY(check_schedule(p, d));
    TRY(check_groups(p, d));
    TRY(check_fwd_bwd(p, m, d));
    TRY(check_recompute(p, m, d));
    TRY(check_capacity(p, m, d));
    TRY(check_stack(p, m, &j->stack, d));
    TRY(check_states(p, d));
    TRY(plan_memory_check(j, d));
    TRY(plan_graph_check(j, d));
    TRY(plan_dispatch_check(j, d));
    return check_system(p, &j->system, d);
}
