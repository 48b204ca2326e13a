/* Events in the order of (time, lane): a lane is one stream of one stage, and holds one item at a time. An item is
 * posted when its stream is free, its deps are done and the host has issued it; it begins when all that it meets are
 * posted. What begins has an end, which moves when a link that it needs gets fuller or emptier. */
#include "sim/sim_heap.h"
#include <math.h>

enum { OUT_NVLINK, IN_NVLINK, OUT_NIC, IN_NIC, LINKS };
enum { IDLE, POSTED, STARTS, RUNS, FOLLOWS };       /* FOLLOWS: it goes as another lane's that it met */

struct lane {
    double begin_s, left_s, from_s, speed;  /* of RUNS: what is left from from_s on, at full speed */
    double key_s;                           /* of its event */
    int32_t item, op, at;                   /* posted or running; place in the heap, -1: not there */
    int32_t state;
};
/* Items that wait for an item, behind each other in `after`; and the next one on its stream. */
struct node { int32_t after, next; uint16_t waits; };
struct actor {
    struct node *node; int32_t *after;
    double *t0_s, *t1_s;                    /* t0_s holds the time of issue until the item is posted */
    double host_s;
    int32_t n_issued;
    uint16_t flows;                         /* bits of its lanes that use links */
};
_Static_assert(STREAM_COUNT <= 16, "a bit for every stream");
/* Stages that flows tie together: what happens on a link of one is felt by all. fixed: by leading lane, its speed, -1: open. */
struct part { int32_t *stage, n; uint8_t *has; double *fixed; };
struct met { int32_t lane, item; };
struct heap {
    const struct cost *c; const struct unroll *u;
    const double *op_s; double *issue_s; double (*need)[LINKS];     /* by op; need: shares of links at full speed */
    struct actor *actor; struct lane *lane;
    int32_t *heap, n;                       /* lanes with an event, earliest first */
    int32_t embed[2]; int n_embed;
    struct met *met;
    struct part *part;
    int share;
    struct sim_heap *out;
};

static const struct op *op_at(const struct heap *h, int lane)
{
    return &h->c->pr->op[h->lane[lane].op];
}

/* ---- the heap ---- */

static int sooner(const struct heap *h, int a, int b)
{
    const double x = h->lane[a].key_s, y = h->lane[b].key_s;
    return x != y ? x < y : a < b;
}

static void put(struct heap *h, int at, int lane)
{
    h->heap[at] = lane;
    h->lane[lane].at = at;
}

static void sift(struct heap *h, int at)
{
    const int lane = h->heap[at];
    for (; at > 0 && sooner(h, lane, h->heap[(at - 1) / 2]); at = (at - 1) / 2) put(h, at, h->heap[(at - 1) / 2]);
    for (int child; (child = 2 * at + 1) < h->n; at = child) {
        if (child + 1 < h->n && sooner(h, h->heap[child + 1], h->heap[child])) child++;
        if (!sooner(h, h->heap[child], lane)) break;
        put(h, at, h->heap[child]);
    }
    put(h, at, lane);
}

static void event(struct heap *h, int lane, double at_s)
{
    struct lane *l = &h->lane[lane];
    l->key_s = at_s;
    if (l->at < 0) put(h, h->n++, lane);
    sift(h, l->at);
}

static int take(struct heap *h)
{
    const int lane = h->heap[0], last = h->heap[--h->n];
    h->lane[lane].at = -1;
    if (h->n > 0) {
        put(h, 0, last);
        sift(h, 0);
    }
    return lane;
}

/* ---- who meets whom ---- */

/* The k-th lane of those that a posted or running item goes with, the one that carries their event first; -1: no more. */
static int meets(const struct heap *h, int lane, int k)
{
    const struct op *o = op_at(h, lane);
    const int n = h->c->pr->n_stage, stage = lane / STREAM_COUNT;
    switch (op_family((enum op_kind)o->kind)) {
    case FAMILY_P2P: {
        if (k > 1) return -1;
        if (k == (o->kind == OP_RECV)) return lane;
        const int peer = (stage + (o->group == GROUP_NEXT ? 1 : n - 1)) % n;
        const int mate = h->u[stage].item[h->lane[lane].item].mate;
        return peer * STREAM_COUNT + h->c->pr->op[h->u[peer].item[mate].op].stream;
    }
    case FAMILY_COMM:
        if (o->group == GROUP_WORLD) return k < n ? k * STREAM_COUNT + o->stream : -1;
        if (o->group == GROUP_EMBED) return k < h->n_embed ? h->embed[k] * STREAM_COUNT + o->stream : -1;
        return k ? -1 : lane;
    default: return k ? -1 : lane;
    }
}

/* The n-th of a lane meets the n-th of its peers, so whoever is posted there is the one. */
static int all_posted(const struct heap *h, int lane)
{
    for (int k = 0, m; (m = meets(h, lane, k)) >= 0; k++)
        if (h->lane[m].state != POSTED) return 0;
    return 1;
}

/* ---- links ---- */

static const double *need_of(const struct heap *h, int lane)
{
    return h->need[h->lane[lane].op];
}

static int uses_links(const struct heap *h, int lane)
{
    const double *x = need_of(h, lane);
    return x[OUT_NVLINK] > 0 || x[IN_NVLINK] > 0 || x[OUT_NIC] > 0 || x[IN_NIC] > 0;
}

/* What all flows of a stage would take of a link at full speed. */
static double asked(const struct heap *h, int stage, int link)
{
    double sum = 0;
    for (unsigned left = h->actor[stage].flows; left; left &= left - 1) {
        const int lane = stage * STREAM_COUNT + __builtin_ctz(left);
        sum += need_of(h, lane)[link];
    }
    return sum;
}

static int is_crowded(const struct heap *h, int lane)
{
    for (int k = 0, m; (m = meets(h, lane, k)) >= 0; k++)
        for (int i = 0; i < LINKS; i++)
            if (asked(h, m / STREAM_COUNT, i) > 1 + 1e-12) return 1;
    return 0;
}

static int leads(const struct heap *h, int lane)
{
    return h->lane[lane].state == RUNS;
}

/* The lane that carries a flow's event. */
static int leader(const struct heap *h, int lane)
{
    return leads(h, lane) ? lane : meets(h, lane, 0);
}

/* How fast all flows whose speed is still open could be on a link. */
static double room(const struct heap *h, int stage, int link)
{
    double open = 0, taken = 0;
    for (unsigned left = h->actor[stage].flows; left; left &= left - 1) {
        const int lane = stage * STREAM_COUNT + __builtin_ctz(left);
        const double need = need_of(h, lane)[link], speed = h->part->fixed[leader(h, lane)];
        if (speed < 0) open += need;
        else taken += need * speed;
    }
    return open > 0 ? fmax(0, 1 - taken) / open : INFINITY;
}

static void part_add(struct part *p, int stage)
{
    if (p->has[stage]) return;
    p->has[stage] = 1;
    p->stage[p->n++] = stage;
}

static void part_of(const struct heap *h, int stage)
{
    struct part *p = h->part;
    p->n = 0;
    part_add(p, stage);
    for (int i = 0; i < p->n; i++)
        for (unsigned left = h->actor[p->stage[i]].flows; left; left &= left - 1) {
            const int lane = p->stage[i] * STREAM_COUNT + __builtin_ctz(left);
            p->fixed[leader(h, lane)] = -1;
            for (int k = 0, m; (m = meets(h, lane, k)) >= 0; k++) part_add(p, m / STREAM_COUNT);
        }
    for (int i = 0; i < p->n; i++) p->has[p->stage[i]] = 0;
}

/* Fixes the flows on the links that are full at `speed`. */
static void fix(const struct heap *h, double speed)
{
    const struct part *p = h->part;
    for (int k = 0; k < p->n; k++)
        for (int i = 0; i < LINKS; i++) {
            if (room(h, p->stage[k], i) > speed * (1 + 1e-12)) continue;
            for (unsigned left = h->actor[p->stage[k]].flows; left; left &= left - 1) {
                const int lane = p->stage[k] * STREAM_COUNT + __builtin_ctz(left);
                if (p->fixed[leader(h, lane)] < 0 && need_of(h, lane)[i] > 0) p->fixed[leader(h, lane)] = speed;
            }
        }
}

/* Progressive filling: all speeds rise alike until a link is full, whose flows stay there; then the others go on. */
static void fill(const struct heap *h)
{
    const struct part *p = h->part;
    for (double speed = 0; speed < 1;) {
        speed = 1;
        for (int k = 0; k < p->n; k++)
            for (int i = 0; i < LINKS; i++) speed = fmin(speed, room(h, p->stage[k], i));
        fix(h, speed);
    }
}

static void speed_set(struct heap *h, int lane, double speed, double now_s)
{
    struct lane *l = &h->lane[lane];
    if (l->speed == speed) return;
    l->left_s -= l->speed * (now_s - l->from_s);
    l->from_s = now_s;
    l->speed = speed;
    event(h, lane, now_s + fmax(0, l->left_s) / speed);
}

/* New speeds of all that a stage's flows are tied to. */
static void share_out(struct heap *h, int stage, double now_s)
{
    part_of(h, stage);
    fill(h);
    for (int k = 0; k < h->part->n; k++)
        for (unsigned left = h->actor[h->part->stage[k]].flows; left; left &= left - 1) {
            const int lane = h->part->stage[k] * STREAM_COUNT + __builtin_ctz(left);
            if (leads(h, lane)) speed_set(h, lane, h->part->fixed[lane] < 0 ? 1 : h->part->fixed[lane], now_s);
        }
}

/* ---- what happens to an item ---- */

static void begin(struct heap *h, int lane, double now_s)
{
    struct lane *l = &h->lane[lane];
    const int flows = h->share && uses_links(h, lane);
    for (int k = 0, m; (m = meets(h, lane, k)) >= 0; k++) {
        h->lane[m].state = FOLLOWS;
        if (flows) h->actor[m / STREAM_COUNT].flows |= (uint16_t)(1u << m % STREAM_COUNT);
    }
    l->state = RUNS;
    l->from_s = now_s;
    l->speed = 1;
    event(h, lane, now_s + l->left_s);
    if (flows && is_crowded(h, lane)) share_out(h, lane / STREAM_COUNT, now_s);
}

/* All that meet are posted: what needs links begins when the last of them does, not before its time has come. */
static void meet(struct heap *h, int lane, double now_s)
{
    double begin_s = 0, price_s = 0;
    const int first = meets(h, lane, 0);
    for (int k = 0, m; (m = meets(h, lane, k)) >= 0; k++) {
        begin_s = fmax(begin_s, h->actor[m / STREAM_COUNT].t0_s[h->lane[m].item]);
        price_s = fmax(price_s, h->op_s[h->lane[m].op]);
    }
    h->lane[first].begin_s = begin_s;
    h->lane[first].left_s = price_s;
    if (begin_s <= now_s || !h->share || !uses_links(h, first)) {
        begin(h, first, begin_s);
        return;
    }
    for (int k = 0, m; (m = meets(h, lane, k)) >= 0; k++) h->lane[m].state = FOLLOWS;
    h->lane[first].state = STARTS;
    event(h, first, begin_s);
}

static void post(struct heap *h, int stage, int item, double t0_s, double now_s)
{
    const int32_t op = h->u[stage].item[item].op;
    const int lane = stage * STREAM_COUNT + h->c->pr->op[op].stream;
    h->actor[stage].t0_s[item] = t0_s;
    h->lane[lane].item = item;
    h->lane[lane].op = op;
    h->lane[lane].state = POSTED;
    if (all_posted(h, lane)) meet(h, lane, now_s);
}

/* The host issues in list order and stops behind an item that it waits for. */
static void issue(struct heap *h, int stage, double now_s)
{
    const struct unroll *u = &h->u[stage];
    struct actor *x = &h->actor[stage];
    for (; x->n_issued < u->n_item; x->n_issued++) {
        const int before = x->n_issued - 1, item = x->n_issued;
        if (before >= 0 && h->c->pr->op[u->item[before].op].flags & OP_HOST_READS) {
            if (isnan(x->t1_s[before])) return;
            x->host_s = fmax(x->host_s, x->t1_s[before] + cost_read_s(h->c));
        }
        x->host_s += h->issue_s[u->item[item].op];
        x->t0_s[item] = x->host_s;
        if (x->node[item].waits == 0) post(h, stage, item, x->host_s, now_s);
    }
}

/* One thing less that an item waits for. */
static void release(struct heap *h, int stage, int item, double now_s)
{
    struct actor *x = &h->actor[stage];
    if (--x->node[item].waits == 0 && item < x->n_issued) post(h, stage, item, fmax(now_s, x->t0_s[item]), now_s);
}

static void done(struct heap *h, int lane, int item, double now_s)
{
    const int stage = lane / STREAM_COUNT;
    struct actor *x = &h->actor[stage];
    const struct node *n = &x->node[item];
    for (int k = n->after; k < n[1].after; k++) release(h, stage, x->after[k], now_s);
    if (n->next >= 0) release(h, stage, n->next, now_s);
    if (item == x->n_issued - 1 && h->c->pr->op[h->u[stage].item[item].op].flags & OP_HOST_READS) issue(h, stage, now_s);
}

/* First all ends, then all that waited: what they begin finds the links free. */
static void end(struct heap *h, int lane, double now_s)
{
    const struct op *o = op_at(h, lane);
    const double alone_s = h->op_s[h->lane[lane].op], shared_s = now_s - h->lane[lane].begin_s;
    const int crowded = h->share && uses_links(h, lane) && is_crowded(h, lane);
    int n = 0;
    for (int m; (m = meets(h, lane, n)) >= 0; n++) {
        struct sim_heap_stage *to = &h->out->stage[m / STREAM_COUNT];
        to->t1_s[h->lane[m].item] = to->end_s = now_s;
        to->alone_s[o->group] += alone_s;
        to->shared_s[o->group] += shared_s;
        h->met[n].lane = m;
        h->met[n].item = h->lane[m].item;
    }
    for (int k = 0; k < n; k++) {
        const int m = h->met[k].lane;
        h->actor[m / STREAM_COUNT].flows &= (uint16_t)~(1u << m % STREAM_COUNT);
        h->lane[m].state = IDLE;
    }
    for (int k = 0; k < n && crowded; k++) share_out(h, h->met[k].lane / STREAM_COUNT, now_s);
    for (int k = 0; k < n; k++) done(h, h->met[k].lane, h->met[k].item, now_s);
}

/* ---- setting up ---- */

/* Per item who waits for it: deps turned round. One node more says where the last one's end. */
static void actor_open(struct heap *h, struct arena *a, int stage)
{
    const struct unroll *u = &h->u[stage];
    struct actor *x = &h->actor[stage];
    int32_t last[STREAM_COUNT], *fill = arena_alloc(a, (size_t)(u->n_item + 1) * sizeof *fill);
    x->node = arena_alloc(a, ((size_t)u->n_item + 1) * sizeof *x->node);
    x->after = arena_alloc(a, ((size_t)u->n_dep + 1) * sizeof *x->after);
    x->t0_s = h->out->stage[stage].t0_s;
    x->t1_s = h->out->stage[stage].t1_s;
    for (int s = 0; s < STREAM_COUNT; s++) last[s] = -1;
    for (int i = 0; i < u->n_item; i++)
        for (int k = 0; k < u->item[i].n_dep; k++) fill[u->dep[u->item[i].dep + k] + 1]++;
    for (int i = 0; i < u->n_item; i++) fill[i + 1] += fill[i];
    for (int i = 0; i <= u->n_item; i++) x->node[i].after = fill[i];
    for (int i = 0; i < u->n_item; i++) {
        const int stream = h->c->pr->op[u->item[i].op].stream;
        for (int k = 0; k < u->item[i].n_dep; k++) x->after[fill[u->dep[u->item[i].dep + k]]++] = i;
        x->node[i].next = -1;
        x->node[i].waits = (uint16_t)(u->item[i].n_dep + (last[stream] >= 0));
        if (last[stream] >= 0) x->node[last[stream]].next = i;
        last[stream] = i;
        x->t1_s[i] = NAN;
    }
}

/* A message takes the sender's way out and the receiver's way in, a collective both. */
static void need_set(double need[LINKS], const struct cost *c, const struct op *o, double price_s)
{
    const struct work w = op_work(c->pr, o, c->pr->even);
    const struct cost_links l = cost_comm_links(c, o, &w);
    const double nvlink = fmin(1, l.nvlink_s / price_s), nic = fmin(1, l.nic_s / price_s);
    if (o->kind != OP_RECV) need[OUT_NVLINK] = nvlink, need[OUT_NIC] = nic;
    if (o->kind != OP_SEND) need[IN_NVLINK] = nvlink, need[IN_NIC] = nic;
}

static void heap_open(struct heap *h, struct arena *a, struct arena *result)
{
    const struct program *pr = h->c->pr;
    const size_t lanes = (size_t)pr->n_stage * STREAM_COUNT, ops = (size_t)pr->n_op;
    h->op_s = cost_all_s(h->c, a);
    h->issue_s = arena_alloc(a, ops * sizeof *h->issue_s);
    h->need = arena_alloc(a, ops * sizeof *h->need);
    h->actor = arena_alloc(a, (size_t)pr->n_stage * sizeof *h->actor);
    h->lane = arena_alloc(a, lanes * sizeof *h->lane);
    h->heap = arena_alloc(a, lanes * sizeof *h->heap);
    h->met = arena_alloc(a, ((size_t)pr->n_stage + 2) * sizeof *h->met);
    h->part = arena_alloc(a, sizeof *h->part);
    *h->part = (struct part){ .stage = arena_alloc(a, (size_t)pr->n_stage * sizeof(int32_t)),
                              .has = arena_alloc(a, (size_t)pr->n_stage), .fixed = arena_alloc(a, lanes * sizeof(double)) };
    h->n_embed = fold_embed_stages(h->c->job, h->embed);
    for (int i = 1; i < pr->n_op; i++) {
        const enum op_family f = op_family((enum op_kind)pr->op[i].kind);
        h->issue_s[i] = cost_issue_s(h->c, i);
        const int sends = (f == FAMILY_COMM || f == FAMILY_P2P) && h->c->place[pr->op[i].group].size > 1;
        if (sends && h->op_s[i] > 0) need_set(h->need[i], h->c, &pr->op[i], h->op_s[i]);
    }
    for (size_t k = 0; k < lanes; k++) h->lane[k].at = -1;
    for (int s = 0; s < pr->n_stage; s++) {
        const size_t n = ((size_t)h->u[s].n_item + 1) * sizeof(double);
        h->out->stage[s].t0_s = arena_alloc(result, n);
        h->out->stage[s].t1_s = arena_alloc(result, n);
        actor_open(h, a, s);
    }
}

static void heap_close(struct heap *h)
{
    struct sim_heap *out = h->out;
    for (int s = 0; s < h->c->pr->n_stage; s++) {
        for (int i = 0; i < h->u[s].n_item; i++) {
            out->stage[s].t0_s[i] += cost_wake_s(h->c, h->u[s].item[i].op);    /* the price holds it */
            if (isnan(out->stage[s].t1_s[i])) out->stage[s].end_s = INFINITY;
        }
        if (out->stage[s].end_s > out->stage[out->last_stage].end_s) out->last_stage = s;
    }
    out->step_s = out->stage[out->last_stage].end_s;
}

void sim_heap(struct sim_heap *to, struct arena *a, const struct cost *c, const struct unroll *u, int share)
{
    struct arena scratch = { 0 };
    struct heap h = { .c = c, .u = u, .share = share, .out = to };
    *to = (struct sim_heap){ .stage = arena_alloc(a, (size_t)c->pr->n_stage * sizeof *to->stage) };
    heap_open(&h, &scratch, a);
    for (int s = 0; s < c->pr->n_stage; s++) issue(&h, s, 0);
    for (; h.n > 0; to->events++) {
        const int lane = take(&h);
        if (h.lane[lane].state == STARTS) begin(&h, lane, h.lane[lane].key_s);
        else end(&h, lane, h.lane[lane].key_s);
    }
    heap_close(&h);
    arena_free(&scratch);
}
