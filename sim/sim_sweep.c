/* The longest path over unrolled items. Every actor (a stage's rank class, or a rank) has a queue per stream
 * and a host that issues in list order; an item's t0 is posted when its own side is ready, its t1 is known when
 * all that it meets have posted. Actors take turns until nothing moves, so the order of turns cannot change a
 * time. */
#include "sim/sim.h"
#include <math.h>
#include <string.h>

/* Items of a stage by stream, linked (-1: no more), and its collectives of WORLD and EMBED by ordinal. */
struct sweep_stage { int32_t first[STREAM_COUNT], *after; int32_t *meets[2]; };

/* What the walk asks of an op, close together. */
struct sweep_op {
    double price_s, issue_s, wake_s;            /* the price at even rows                                          */
    uint8_t kind, stream, group, p2p, spans, collective, host_reads;
    uint8_t sized;                              /* it has a routed operand                                         */
};
struct sweep_time { double t0_s, t1_s, issued_s, price_s; };    /* once issued; t0 and t1 are NAN until known     */

struct sweep_actor {
    int32_t rank, stage;
    struct sweep_time *at;                      /* by item                                                         */
    double free_s[STREAM_COUNT], host_s;
    int32_t next[STREAM_COUNT], n_issued;       /* the item to come; how many are issued                           */
    int32_t *member[GROUP_COUNT], n_member[GROUP_COUNT];    /* actors of its groups                             */
};

struct sweep {
    const struct cost *c; const struct unroll *u; const struct load *load;
    const struct sweep_op *op;
    double read_s;                              /* until the host goes on, behind what it waits for                */
    struct sweep_stage *stage;
    struct sweep_actor *actor; int32_t n_actor;
    int32_t all_ranks;
};

static const struct sweep_op *op_of(const struct sweep *s, const struct sweep_actor *x, int item)
{
    return &s->op[s->u[x->stage].item[item].op];
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* ---- rows and prices ---- */

/* The first sized operand among what is written, added to and read, or 0. */
static int sized_operand(const struct program *pr, const struct op *o)
{
    for (int i = 0; i < OP_WRITES; i++)
        if (o->io.write[i] && pr->buf[o->io.write[i]].size) return o->io.write[i];
    for (int i = 0; i < OP_ADDS; i++)
        if (o->io.add[i] && pr->buf[o->io.add[i]].size) return o->io.add[i];
    for (int i = 0; i < OP_READS; i++)
        if (o->io.read[i] && pr->buf[o->io.read[i]].size) return o->io.read[i];
    return 0;
}

static void item_rows(int64_t even[2], const struct sweep *s, const struct sweep_actor *x, const struct item *i)
{
    const struct program *pr = s->c->pr;
    const int layer = pr->op[i->op].layer;
    if (!s->load) memcpy(even, pr->even, sizeof pr->even);
    else if (s->all_ranks) load_rows(even, s->load, pr, x->rank, layer, i->micro);
    else load_rows_stage(even, s->load, pr, s->c->job, x->stage, layer, i->micro);
}

static double item_price_s(const struct sweep *s, const struct sweep_actor *x, const struct item *i)
{
    int64_t even[2];
    if (!s->load || !s->op[i->op].sized) return s->op[i->op].price_s;
    item_rows(even, s, x, i);
    return cost_op_s(s->c, i->op, even);
}

/* ---- who meets whom ---- */

struct sweep_peer { const struct sweep_actor *actor; int32_t item; };

static int peer_of_stage(const struct sweep *s, const struct sweep_actor *x, int stage)
{
    if (!s->all_ranks) return stage;
    struct coord at = fold_coord(&s->c->job->plan, x->rank);
    at.pp = stage;
    return fold_rank(&s->c->job->plan, at);
}

/* Whether it ends when others on other actors let it. */
static int meets_others(const struct sweep *s, const struct sweep_op *o)
{
    return o->p2p || (o->collective && (s->all_ranks || o->spans));
}

/* The k-th of those whom such an item meets, itself among them; 0 when there are no more. */
static int item_peer(struct sweep_peer *p, const struct sweep *s, const struct sweep_actor *x, int item, int k)
{
    const struct sweep_op *o = op_of(s, x, item);
    const int mate = s->u[x->stage].item[item].mate, n = s->c->pr->n_stage;
    if (o->p2p) {
        const int ahead = o->group == GROUP_NEXT ? 1 : n - 1;
        *p = k ? (struct sweep_peer){ &s->actor[peer_of_stage(s, x, (x->stage + ahead) % n)], mate }
               : (struct sweep_peer){ x, item };
        return k < 2;
    }
    if (k >= x->n_member[o->group]) return 0;
    p->actor = &s->actor[x->member[o->group][k]];
    p->item = o->spans ? s->stage[p->actor->stage].meets[o->group == GROUP_EMBED][mate] : item;
    return 1;
}

/* All have posted: the latest t0 and the longest price of those who meet. NAN: somebody has not. */
static double meet_end_s(const struct sweep *s, const struct sweep_actor *x, int item)
{
    const struct sweep_time *own = &x->at[item];
    struct sweep_peer p;
    double t0_s = 0, price_s = 0;
    if (!meets_others(s, op_of(s, x, item))) return own->t0_s + own->price_s;
    for (int k = 0; item_peer(&p, s, x, item, k); k++) {
        const struct sweep_time *t = &p.actor->at[p.item];
        if (p.item >= p.actor->n_issued || isnan(t->t0_s)) return NAN;
        t0_s = later(t0_s, t->t0_s);
        price_s = later(price_s, t->price_s);
    }
    return t0_s + price_s;
}

/* ---- turns ---- */

/* The host issues in list order and stops behind an item that it waits for. */
static int turn_host(const struct sweep *s, struct sweep_actor *x)
{
    const struct unroll *u = &s->u[x->stage];
    const int from = x->n_issued;
    double host_s = x->host_s;
    int i = from;
    for (; i < u->n_item; i++) {
        if (i > 0 && op_of(s, x, i - 1)->host_reads) {
            if (isnan(x->at[i - 1].t1_s)) break;
            host_s = later(host_s, x->at[i - 1].t1_s + s->read_s);
        }
        host_s += op_of(s, x, i)->issue_s;
        x->at[i] = (struct sweep_time){ NAN, NAN, host_s, 0 };
    }
    x->host_s = host_s;
    x->n_issued = i;
    return i > from;
}

static double ready_s(const struct sweep *s, const struct sweep_actor *x, int item, int stream)
{
    const struct unroll *u = &s->u[x->stage];
    const struct item *i = &u->item[item];
    double t = later(x->free_s[stream], x->at[item].issued_s);
    for (int k = 0; k < i->n_dep; k++) {
        const double dep_s = x->at[u->dep[i->dep + k]].t1_s;
        if (isnan(dep_s)) return NAN;
        t = later(t, dep_s);
    }
    return t;
}

static int turn_stream(const struct sweep *s, struct sweep_actor *x, int stream)
{
    const struct sweep_stage *g = &s->stage[x->stage];
    int moved = 0;
    for (int item; (item = x->next[stream]) >= 0; x->next[stream] = g->after[item]) {
        struct sweep_time *t = &x->at[item];
        if (item >= x->n_issued) break;
        if (isnan(t->t0_s)) {
            t->t0_s = ready_s(s, x, item, stream);
            if (isnan(t->t0_s)) break;
            t->price_s = item_price_s(s, x, &s->u[x->stage].item[item]);
            moved = 1;
        }
        const double t1_s = meet_end_s(s, x, item);
        if (isnan(t1_s)) break;
        t->t1_s = x->free_s[stream] = t1_s;
        moved = 1;
    }
    return moved;
}

static int turn(const struct sweep *s, struct sweep_actor *x)
{
    int moved = 0;
    for (int again = 1; again; moved |= again) {
        again = turn_host(s, x);
        for (int k = 0; k < STREAM_COUNT; k++) again |= turn_stream(s, x, k);
    }
    return moved;
}

/* ---- setting up ---- */

static void meets_add(struct sweep_stage *g, struct arena *a, int n[2], int which, int item)
{
    if ((n[which] & (n[which] - 1)) == 0)       /* full: room for as many again */
        g->meets[which] = arena_grow(a, g->meets[which], (size_t)n[which], 2 * (size_t)n[which] + 1, sizeof(int32_t));
    g->meets[which][n[which]++] = item;
}

static void stage_open(struct sweep_stage *g, struct arena *a, const struct sweep_op *op, const struct unroll *u)
{
    int32_t *end[STREAM_COUNT];                 /* where the next item of a stream is linked */
    int n[2] = { 0, 0 };
    for (int k = 0; k < STREAM_COUNT; k++) end[k] = &g->first[k];
    g->after = arena_alloc(a, (size_t)u->n_item * sizeof *g->after);
    for (int i = 0; i < u->n_item; i++) {
        const struct sweep_op *o = &op[u->item[i].op];
        *end[o->stream] = i;
        end[o->stream] = &g->after[i];
        if (o->spans) meets_add(g, a, n, o->group == GROUP_EMBED, i);
    }
    for (int k = 0; k < STREAM_COUNT; k++) *end[k] = -1;
}

/* Actors are numbered by rank, or by stage; a class then stands for its peers in other stages only. */
static void actor_groups(struct sweep_actor *x, struct arena *a, const struct sweep *s)
{
    const struct job *j = s->c->job;
    for (int g = 0; g < GROUP_COUNT; g++) {
        if (!s->all_ranks && g != GROUP_WORLD && g != GROUP_EMBED) continue;
        const int by_stage = !s->all_ranks && g == GROUP_WORLD;     /* EMBED's members are stages anyhow */
        x->n_member[g] = by_stage ? s->c->pr->n_stage : fold_size(j, (enum group)g);
        x->member[g] = arena_alloc(a, (size_t)x->n_member[g] * sizeof(int32_t));
        if (s->all_ranks) fold_members(j, (enum group)g, x->rank, x->member[g]);
        else if (g == GROUP_EMBED) fold_embed_stages(j, x->member[g]);
        else for (int i = 0; i < x->n_member[g]; i++) x->member[g][i] = i;
    }
}

static void actor_open(struct sweep_actor *x, struct arena *a, const struct sweep *s, int index)
{
    const struct plan *p = &s->c->job->plan;
    x->rank = s->all_ranks ? index : fold_rank(p, (struct coord){ .pp = index });
    x->stage = s->all_ranks ? fold_coord(p, index).pp : index;
    x->at = arena_alloc(a, (size_t)s->u[x->stage].n_item * sizeof *x->at);
    memcpy(x->next, s->stage[x->stage].first, sizeof x->next);
    actor_groups(x, a, s);
}

static const struct sweep_op *ops_open(struct arena *a, const struct cost *c)
{
    const struct program *pr = c->pr;
    const double *op_s = cost_all_s(c, a);
    struct sweep_op *op = arena_alloc(a, (size_t)pr->n_op * sizeof *op);
    for (int i = 1; i < pr->n_op; i++) {
        const struct op *o = &pr->op[i];
        const enum op_family family = op_family((enum op_kind)o->kind);
        const int comm = family == FAMILY_COMM;
        const int wide = o->group == GROUP_WORLD || o->group == GROUP_EMBED;
        op[i] = (struct sweep_op){
            .price_s = op_s[i], .issue_s = cost_issue_s(c, i), .wake_s = cost_wake_s(c, i), .kind = o->kind,
            .stream = o->stream, .group = o->group, .p2p = family == FAMILY_P2P, .collective = comm,
            .spans = comm && wide, .host_reads = (o->flags & OP_HOST_READS) != 0, .sized = sized_operand(pr, o) != 0,
        };
    }
    return op;
}

static struct sweep sweep_open(struct arena *a, const struct cost *c, const struct unroll *u,
                               const struct load *load, int all_ranks)
{
    const struct program *pr = c->pr;
    struct sweep s = { .c = c, .u = u, .load = load && load->rows ? load : NULL, .op = ops_open(a, c),
                       .read_s = cost_read_s(c), .all_ranks = all_ranks,
                       .n_actor = all_ranks ? c->job->plan.gpus : pr->n_stage };
    s.stage = arena_alloc(a, (size_t)pr->n_stage * sizeof *s.stage);
    s.actor = arena_alloc(a, (size_t)s.n_actor * sizeof *s.actor);
    for (int i = 0; i < pr->n_stage; i++) stage_open(&s.stage[i], a, s.op, &u[i]);
    for (int i = 0; i < s.n_actor; i++) actor_open(&s.actor[i], a, &s, i);
    return s;
}

/* ---- spans ---- */

static void span_rows(struct span *p, const struct sweep *s, const struct sweep_actor *x, const struct item *i)
{
    const struct op *o = &s->c->pr->op[i->op];
    int64_t even[2];
    item_rows(even, s, x, i);
    p->rows[0] = (int32_t)(o->kind == OP_SIZES ? even[0] : program_rows(s->c->pr, sized_operand(s->c->pr, o), even));
    p->rows[1] = o->kind == OP_SIZES ? (int32_t)even[1] : 0;
}

static void spans_add(struct trace *t, const struct sweep *s, const struct sweep_actor *x)
{
    for (int i = 0; i < x->n_issued; i++) {
        const struct item *it = &s->u[x->stage].item[i];
        const struct sweep_op *o = &s->op[it->op];
        if (isnan(x->at[i].t1_s)) continue;
        struct span *p = &t->span[t->n++];
        *p = (struct span){ .rank = x->rank, .step = it->step, .op = it->op,
                            .t0_ns = trace_ns(x->at[i].t0_s + o->wake_s), .t1_ns = trace_ns(x->at[i].t1_s) };
        if (o->kind == OP_SIZES || o->sized) span_rows(p, s, x, it);
    }
}

static void spans_write(struct trace *t, struct arena *a, const struct sweep *s)
{
    int64_t n = 0;
    for (int i = 0; i < s->n_actor; i++) n += s->u[s->actor[i].stage].n_item;
    *t = (struct trace){ .head = { .program_hash = program_hash(s->c->pr), .source = "predicted",
                                   .n_rank = s->c->job->plan.gpus, .n_iter = 1 } };
    memcpy(t->head.system, s->c->job->system.name, sizeof t->head.system);
    t->span = arena_alloc(a, (size_t)n * sizeof *t->span);
    for (int i = 0; i < s->n_actor; i++) spans_add(t, s, &s->actor[i]);
    trace_sort(t);
}

void sim_sweep(struct trace *t, struct arena *a, const struct cost *c, const struct unroll *u,
               const struct load *load, int all_ranks)
{
    struct arena scratch = { 0 };
    struct sweep s = sweep_open(&scratch, c, u, load, all_ranks);
    for (int moved = 1; moved;) {
        moved = 0;
        for (int i = 0; i < s.n_actor; i++) moved |= turn(&s, &s.actor[i]);
    }
    spans_write(t, a, &s);
    arena_free(&scratch);
}
