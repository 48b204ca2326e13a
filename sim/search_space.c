/* Enumerates and counts the space. Rules are Megatron-LM's (parallel_state.py, schedules.py), in the order in
 * which plan_check looks at them; grids and counts equal those of an independent program (tests). */
#include "sim/search_space.h"
#include <stdio.h>
#include <string.h>

const char *search_space_rule_text(enum search_rule r)
{
    static const char *const text[] = {
#define X(id, words) words,
        SEARCH_RULE_LIST(X)
#undef X
    };
    return text[r];
}

static int space_sp(const struct search_space *s, const struct search_grid *g)
{
    return s->sp < 0 ? g->tp > 1 : s->sp;
}

/* One token slice per cp rank, in two halves of the causal mask, each cut over tp when sequences are (cases
 * C11). */
static int space_seq_ok(const struct search_space *s, const struct search_grid *g)
{
    const int sp = space_sp(s, g) ? g->tp : 1;
    const int multiple = g->cp == 1 ? sp : g->cp * (sp % 2 ? 2 * sp : sp);
    return s->job->plan.seq % multiple == 0;
}

static int space_ffn_ok(const struct model *m, int tp)
{
    return (m->experts > 0 && m->dense_layers == 0 ? 1 : m->ffn % tp == 0) && m->shared_ffn % tp == 0;
}

/* Every token picks as many of a rank's experts as it can. */
static int space_capacity_ok(const struct search_space *s, int ep)
{
    const struct model *m = &s->job->model;
    const int here = m->experts / ep, picked = m->topk < here ? m->topk : here;
    return !s->fixed[SEARCH_KEY_CAPACITY] || s->job->plan.capacity <= (double)ep * picked / m->topk;
}

int search_space_refuses(const struct search_space *s, const struct search_grid *g)
{
    const struct model *m = &s->job->model;
    const int gqa = m->attention == ATTENTION_GQA;
    const int mixed = m->window > 0 && m->dense_layers > 0;    /* a kind is priced by its first layer */
    if (*s->job->plan.offload && strcmp(s->job->plan.offload, "none")) return SEARCH_OFFLOAD;
    if (*m->pattern || mixed || s->job->plan.high_first + s->job->plan.high_last > 0) return SEARCH_KINDS;
    if (m->heads % g->tp) return SEARCH_HEADS;
    if (gqa && m->kv_heads % g->tp && g->tp % m->kv_heads) return SEARCH_KV_HEADS;
    if (!space_ffn_ok(m, g->tp)) return SEARCH_FFN;
    if (!space_seq_ok(s, g)) return SEARCH_SEQ;
    if (g->tp > 1 && !space_sp(s, g)) return SEARCH_SP;
    if (!m->experts) return g->ep * g->etp > 1 ? SEARCH_DENSE : -1;
    if (m->experts % g->ep) return SEARCH_EP;
    if (m->expert_ffn % g->etp) return SEARCH_ETP;
    return space_capacity_ok(s, g->ep) ? -1 : SEARCH_CAPACITY;
}

static int space_refuses_layout(const struct search_space *s, int pp)
{
    for (int vpp = s->vpp[0]; vpp <= s->vpp[1] && pp * vpp <= LAYOUT_CHUNKS; vpp++)
        if (s->layout[pp * vpp]) return 0;
    return 1;
}

/* Interleaving takes whole groups of micro-batches; a rest of at least pp makes one more (cases C06). */
static int space_groups(const struct search_space *s, int pp, int n_micro)
{
    const int group = s->group ? s->group : pp, rest = n_micro % group;
    return pp <= group && group <= n_micro && (rest == 0 || rest >= pp);
}

/* Merged passes hide a pass's transfers behind its partner's work: they need experts that are spread, and two
 * chunks. */
static int space_runs(const struct search_space *s, const struct search_grid *g, int vpp, int n_micro,
                      int weave)
{
    const int kind = weave ? SCHEDULE_FWD_BWD : vpp > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    if (!(s->schedules >> kind & 1) || (vpp > 1 && (g->pp == 1 || !space_groups(s, g->pp, n_micro))))
        return 0;
    return !weave || (g->ep > 1 && (g->pp == 1 || vpp > 1));
}

/* Whole heads go to the members of a cp group (plan_check.c, check_cp_comm). */
static int space_swaps_heads(const struct model *m, const struct search_grid *g)
{
    const int heads = m->heads / g->tp;
    const int kv = m->attention == ATTENTION_MLA || m->kv_heads < 1 ? heads : m->kv_heads / g->tp;
    return heads % g->cp == 0 && kv > 0 && kv % g->cp == 0;
}

static int space_cp_comms(const struct search_space *s, const struct search_grid *g)
{
    const struct model *m = &s->job->model;
    const int no_ring = !s->job->stack.runs && (m->window || m->sinks);
    if (g->cp == 1) return 1 << s->plain.cp_comm;
    return s->cp_comms & ~((no_ring ? 1 << CP_COMM_P2P : 0) | (space_swaps_heads(m, g) ? 0 : 1 << CP_COMM_A2A));
}

/* Parameters that nobody else holds cannot be cut. */
static int space_fsdps(const struct search_space *s, const struct search_grid *g)
{
    const int shared = g->dp * g->cp > 1 || (s->job->model.experts && g->edp > 1);
    return shared || s->fsdps != 3 ? s->fsdps : 1;
}

/* An all-gather has no exchange that weaving could hide. */
static int space_dispatchers(const struct search_space *s, const struct search_grid *g, int weave)
{
    const int of = g->ep * g->etp > 1 ? s->dispatchers : 1 << s->plain.dispatcher;
    return weave ? of & ~(1 << DISPATCHER_ALLGATHER) : of;
}

/* The ways of a grid with `vpp` chunks a stage, in order. */
static int space_ways(struct search_way way[SEARCH_WAYS], const struct search_space *s, const struct search_grid *g, int vpp,
                      int n_micro)
{
    const int cp = space_cp_comms(s, g), fsdps = space_fsdps(s, g);
    int n = 0;
    for (int weave = 0; weave < 2; weave++) {
        if (!s->n_recompute[weave] || !space_runs(s, g, vpp, n_micro, weave)) continue;
        const int to = space_dispatchers(s, g, weave);
        for (int d = 0; d <= DISPATCHER_ALLGATHER; d++)
            for (int c = 0; c <= CP_COMM_P2P; c++)
                for (int f = 0; f < 2; f++)
                    if (to >> d & 1 && cp >> c & 1 && fsdps >> f & 1)
                        way[n++] = (struct search_way){ (int8_t)weave, (int8_t)d, (int8_t)c, (int8_t)f };
    }
    return n;
}

/* The second order differs only where a stage is not alone, and both folds must agree on what it strides
 * over. */
static int space_orders(const struct search_space *s, const struct search_grid *g)
{
    const int second = 1 << ORDER_TP_CP_EP_PP_DP, asked = s->fixed[SEARCH_KEY_ORDER];
    const int legal = g->pp == 1 || g->edp == g->dp, differs = g->pp > 1 && g->dp > 1;
    return legal && (differs || asked) ? s->orders : s->orders & ~second;
}

/* Whether the dispatcher takes a rank's tokens (case E03); only large micro-batches ask where groups sit. */
static int space_fits_queue(const struct search_space *s, const struct search_grid *g, int mbs, int order, int dispatcher)
{
    const struct plan *asked = &s->job->plan;
    if ((int64_t)mbs * asked->seq / g->cp / g->tp <= PLAN_QUEUE_TOKENS) return 1;
    struct job j = *s->job;
    struct plan *p = &j.plan;
    p->tp = g->tp, p->cp = g->cp, p->pp = g->pp, p->etp = g->etp, p->ep = g->ep, p->dp = g->dp, p->edp = g->edp;
    p->mbs = mbs, p->order = order, p->dispatcher = dispatcher;
    if (!p->domain_gpus) p->domain_gpus = place_domain_gpus(p->gpus, j.system.domain, j.system.gpus_per_host);
    return plan_fits_queue(&j);
}

static int space_micros(const struct search_space *s, const struct search_grid *g, int mbs)
{
    const int64_t per_step = (int64_t)g->dp * mbs;
    return s->job->plan.gbs % per_step ? 0 : (int)(s->job->plan.gbs / per_step);
}

/* Adds the points of one micro-batch and number of chunks. */
static void space_points(struct search_count *n, const struct search_space *s, const struct search_grid *g,
                         struct search_point p, struct search_point *out)
{
    const int64_t before = n->points;
    const int orders = space_orders(s, g);
    struct search_way way[SEARCH_WAYS];
    const int ways = space_ways(way, s, g, p.vpp, space_micros(s, g, p.mbs));
    for (int w = 0; w < ways; w++)
        for (p.way = way[w], p.order = 0; p.order < 2; p.order++) {
            if (!(orders >> p.order & 1) || !space_fits_queue(s, g, p.mbs, p.order, p.way.dispatcher)) continue;
            if (out) out[n->points] = p;
            n->points++;
            n->plans += s->n_recompute[p.way.weave];
        }
    n->layouts += n->points > before;
}

struct search_count search_space_points(const struct search_space *s, const struct search_grid *g, int grid,
                                        int mbs, struct search_point *out)
{
    struct search_count n = { 0 };
    if (!space_micros(s, g, mbs)) return n;
    n.mbs = 1;
    for (int vpp = s->vpp[0]; vpp <= s->vpp[1] && g->pp * vpp <= LAYOUT_CHUNKS; vpp++)
        if (s->layout[g->pp * vpp])
            space_points(&n, s, g, (struct search_point){ .grid = grid, .vpp = (int16_t)vpp, .mbs = mbs }, out);
    return n;
}

/* Which sets of modules may be computed again: those that the model has and the stack offers, one by one and
 * together. */
static void space_recomputes(struct search_space *s, int weave)
{
    const struct job *j = s->job;
    const int full = 1 << RECOMPUTE_FULL;
    const int has = (j->model.experts ? 1 << RECOMPUTE_MOE_ACT : 0) | 1 << RECOMPUTE_LAYERNORM |
                    (j->model.attention == ATTENTION_MLA ? 1 << RECOMPUTE_MLA_UP_PROJ : 0);
    const int part = has & j->stack.recomputes;
    int n = 0, *set = s->recompute[weave];
    if (s->fixed[SEARCH_KEY_RECOMPUTE]) {
        if (!(weave && j->plan.recompute & full)) set[n++] = j->plan.recompute;
    } else {
        set[n++] = 0;
        for (int bit = 1; bit < full; bit <<= 1)
            if (part & bit) set[n++] = bit;
        if (part & (part - 1)) set[n++] = part;
        if (j->stack.recomputes & full && !weave) set[n++] = full;
    }
    s->n_recompute[weave] = n;
}

static void space_layouts(struct search_space *s)
{
    const char *text = s->fixed[SEARCH_KEY_LAYOUT] ? s->job->plan.layout : "auto";
    struct layout l;
    struct diag d;
    for (int n = 1; n <= LAYOUT_CHUNKS; n++)
        s->layout[n] = layout_parse(&l, text, s->job->model.layers, s->mtp, n, 1, &d) == OK;
}

static void space_range(int32_t range[2], int fixed, int value, int most)
{
    range[0] = fixed ? value : 1;
    range[1] = fixed ? value : most;
}

/* Only rows that nobody drops may go by other dispatchers than alltoall (models/plan_dispatch.c). */
static void space_ask_ways(struct search_space *s)
{
    const struct plan *p = &s->job->plan;
    const struct stack *stack = &s->job->stack;
    const int given = s->fixed[SEARCH_KEY_DISPATCHER], standard = p->dispatcher < 0 ? stack->dispatcher : p->dispatcher;
    const int offered = p->routing.policy == ROUTING_DROPLESS ? stack->dispatchers : 1 << DISPATCHER_ALLTOALL;
    s->dispatchers = given ? 1 << standard : offered;
    s->cp_comms = s->fixed[SEARCH_KEY_CP_COMM] ? 1 << p->cp_comm : stack->cp_comms | 1 << CP_COMM_ALLGATHER;
    s->plain.dispatcher = (int8_t)(s->dispatchers >> standard & 1 ? standard : DISPATCHER_ALLTOALL);
    s->plain.cp_comm = (int8_t)p->cp_comm;
    s->fsdps = s->fixed[SEARCH_KEY_FSDP] ? 1 << p->fsdp : stack->fsdp && !p->split_wgrad && !p->offload_modules ? 3 : 1;
}

/* What is asked for, in the form in which the loops need it. */
static void space_ask(struct search_space *s, const char *fixed)
{
    static const char *const key[] = {
#define X(id, name) name,
        SEARCH_KEY_LIST(X)
#undef X
    };
    const struct plan *p = &s->job->plan;
    for (int k = 0; k < SEARCH_KEY_COUNT; k++) {
        const struct opt *o = cfg_opt(plan_opts, plan_n_opt, key[k]);
        s->fixed[k] = o && fixed[o - plan_opts];
    }
    space_range(s->mbs, s->fixed[SEARCH_KEY_MBS], p->mbs, SEARCH_MBS);
    space_range(s->vpp, s->fixed[SEARCH_KEY_VPP], p->vpp, LAYOUT_CHUNKS);
    s->group = s->fixed[SEARCH_KEY_VPP_GROUP] ? p->vpp_group : 0;
    s->orders = s->fixed[SEARCH_KEY_ORDER] ? 1 << p->order : 3;
    s->schedules = s->job->stack.schedules;
    if (s->fixed[SEARCH_KEY_SCHEDULE] && p->schedule >= 0) s->schedules &= 1 << p->schedule;
    if (s->fixed[SEARCH_KEY_EP_OVERLAP])
        s->schedules &= p->ep_overlap ? 1 << SCHEDULE_FWD_BWD : ~(1 << SCHEDULE_FWD_BWD);
    space_ask_ways(s);
}

/* Counts one folding under the rule that refuses it, or with its plans; returns whether it has any. */
static int space_count(struct search_space *s, const struct search_grid *g)
{
    int rule = search_space_refuses(s, g);
    if (rule < 0 && space_refuses_layout(s, g->pp)) rule = SEARCH_LAYOUT;
    s->foldings++;
    if (rule >= 0) return s->refused[rule]++, 0;
    int64_t mbs = 0, plans = 0;
    for (int b = s->mbs[0]; b <= s->mbs[1]; b++) {
        const struct search_count n = search_space_points(s, g, 0, b, NULL);
        mbs += n.mbs;
        plans += n.plans;
        s->with_layout += n.layouts;
    }
    s->grids++;
    s->gbs_valid += mbs > 0;
    s->with_mbs += mbs;
    s->plans += plans;
    if (!plans) s->refused[mbs ? SEARCH_SCHEDULE : SEARCH_GBS]++;
    return plans > 0;
}

static void space_add(struct search_space *s, struct arena *a, const struct search_grid *g, int *room)
{
    if (!space_count(s, g)) return;
    if (s->n_grid == *room) {
        s->grid = arena_grow(a, s->grid, (size_t)*room, 2 * (size_t)*room + 64, sizeof *g);
        *room = 2 * *room + 64;
    }
    s->grid[s->n_grid++] = *g;
}

/* An axis may have this size: the user's, or any divisor of what is left. */
static int space_may(const struct search_space *s, enum search_key k, int left, int size)
{
    const struct plan *p = &s->job->plan;
    const int given[] = { p->tp, p->cp, p->pp, p->vpp, p->etp, p->ep };
    return left % size == 0 && (!s->fixed[k] || given[k] == size);
}

static void space_experts(struct search_space *s, struct arena *a, struct search_grid g, int stage, int *room)
{
    for (int i = 0; i < s->n_size; i++) {
        g.etp = s->size[i];
        if (!space_may(s, SEARCH_KEY_ETP, stage, g.etp)) continue;
        for (int k = 0; k < s->n_size; k++) {
            g.ep = s->size[k];
            if (!space_may(s, SEARCH_KEY_EP, stage / g.etp, g.ep)) continue;
            g.edp = stage / g.etp / g.ep;
            space_add(s, a, &g, room);
        }
    }
}

static void space_attention(struct search_space *s, struct arena *a, struct search_grid g, int *room)
{
    const int stage = s->job->plan.gpus / g.pp;
    for (int i = 0; i < s->n_size; i++) {
        g.tp = s->size[i];
        if (!space_may(s, SEARCH_KEY_TP, stage, g.tp)) continue;
        for (int k = 0; k < s->n_size; k++) {
            g.cp = s->size[k];
            if (!space_may(s, SEARCH_KEY_CP, stage / g.tp, g.cp)) continue;
            g.dp = stage / g.tp / g.cp;
            space_experts(s, a, g, stage, room);
        }
    }
}

static void space_sizes(struct search_space *s)
{
    const int gpus = s->job->plan.gpus;
    for (int n = 1; n <= gpus; n++)
        if (gpus % n == 0 && s->n_size < LEN(s->size)) s->size[s->n_size++] = n;
}

void search_space_init(struct search_space *s, struct arena *a, const struct job *j, const char *fixed)
{
    int room = 0;
    *s = (struct search_space){ .job = j };
    space_ask(s, fixed);
    s->mtp = j->plan.mtp < 0 ? j->model.mtp : j->plan.mtp;
    s->sp = s->fixed[SEARCH_KEY_SP] ? j->plan.sp : -1;
    s->graph = s->fixed[SEARCH_KEY_GRAPH] ? j->plan.graph : plan_graph_most(j);
    space_sizes(s);
    space_layouts(s);
    space_recomputes(s, 0);
    space_recomputes(s, 1);
    for (int i = 0; i < s->n_size; i++)
        if (space_may(s, SEARCH_KEY_PP, j->plan.gpus, s->size[i]))
            space_attention(s, a, (struct search_grid){ .pp = s->size[i] }, &room);
}

enum err search_space_plan(struct job *j, const struct search_space *s, const struct search_point *p,
                           int recompute, struct diag *d)
{
    const struct search_grid *g = &s->grid[p->grid];
    struct plan *to = &j->plan;
    *to = s->job->plan;
    to->tp = g->tp, to->cp = g->cp, to->pp = g->pp, to->etp = g->etp, to->ep = g->ep;
    to->vpp = p->vpp, to->mbs = p->mbs, to->order = p->order;
    to->ep_overlap = p->way.weave, to->dispatcher = p->way.dispatcher, to->cp_comm = p->way.cp_comm;
    to->fsdp = p->way.fsdp;
    to->recompute = recompute;
    to->graph = s->graph;
    if (!s->fixed[SEARCH_KEY_SP]) to->sp = -1;
    if (!s->fixed[SEARCH_KEY_CAPACITY]) to->capacity = 0;
    if (!s->fixed[SEARCH_KEY_SCHEDULE]) to->schedule = -1;
    if (!s->fixed[SEARCH_KEY_VPP_GROUP]) to->vpp_group = 0;
    if (!s->fixed[SEARCH_KEY_LAYOUT]) snprintf(to->layout, sizeof to->layout, "auto");
    return plan_resolve(j, d);
}
