/* The (max,+) matrix of a run is read off one walk over its ops, in which every time is a vector: the longest
 * path from each entry of the state. The walk is the clock of play.c with numbers replaced by vectors. */
#include "sim/pass.h"
#include <math.h>
#include <string.h>

/* ---- algebra ---- */

void pass_identity(struct pass_price *p)
{
    *p = (struct pass_price){ 0 };
    for (int i = 0; i < PASS_DIM; i++)
        for (int k = 0; k < PASS_DIM; k++) p->m[i][k] = i == k ? 0 : -INFINITY;
}

/* The state vector of a run's end in terms of another run's beginning. */
static void multiply_times(double out[PASS_DIM][PASS_DIM], const double a[PASS_DIM][PASS_DIM],
                           const double b[PASS_DIM][PASS_DIM])
{
    for (int i = 0; i < PASS_DIM; i++) {
        for (int j = 0; j < PASS_DIM; j++) out[i][j] = -INFINITY;
        for (int k = 0; k < PASS_DIM; k++) {
            if (b[i][k] == -INFINITY) continue;
            for (int j = 0; j < PASS_DIM; j++) {
                const double t = b[i][k] + a[k][j];
                out[i][j] = out[i][j] > t ? out[i][j] : t;
            }
        }
    }
}

static struct pass_wire multiply_wire(const struct pass_wire *a, const struct pass_wire *b, double a_host_s)
{
    struct pass_wire w = *a;
    if (b->recv) w.recv = 1, w.recv_issue_s = a_host_s + b->recv_issue_s, w.recv_s = b->recv_s;
    if (b->send) w.send = 1, w.send_s = b->send_s;
    return w;
}

void pass_multiply(struct pass_price *out, const struct pass_price *a, const struct pass_price *b)
{
    struct pass_price p;
    multiply_times(p.m, a->m, b->m);
    p.net_B = a->net_B + b->net_B;
    p.peak_B = fmax(a->peak_B, a->net_B + b->peak_B);
    for (int s = 0; s < STREAM_COUNT; s++) p.busy_s[s] = a->busy_s[s] + b->busy_s[s];
    for (int h = 0; h < 2; h++) p.wire[h] = multiply_wire(&a->wire[h], &b->wire[h], a->m[PASS_HOST][PASS_HOST]);
    *out = p;
}

_Static_assert(PASS_DIM % 2 == 0, "pass_apply takes entries in pairs");
void pass_apply(double out[PASS_DIM], const struct pass_price *p, const double in[PASS_DIM])
{
    double t[PASS_DIM];
    for (int i = 0; i < PASS_DIM; i++) {
        double most[2] = { -INFINITY, -INFINITY };          /* of even and of odd k: neither waits for the other */
        for (int k = 0; k < PASS_DIM; k += 2)
            for (int h = 0; h < 2; h++) {
                const double at_s = p->m[i][k + h] + in[k + h];
                most[h] = most[h] > at_s ? most[h] : at_s;
            }
        t[i] = most[0] > most[1] ? most[0] : most[1];
    }
    memcpy(out, t, sizeof t);
}

static int row_changes(const struct pass_price *p, int i)
{
    for (int k = 0; k < PASS_DIM; k++)
        if (p->m[i][k] != (i == k ? 0 : -INFINITY)) return 1;
    return 0;
}

static int column_counts(const struct pass_price *p, const struct pass_brief *b, int k)
{
    for (int i = 0; i < b->n_row; i++)
        if (p->m[b->row[i]][k] != -INFINITY) return 1;
    return 0;
}

void pass_brief_of(struct pass_brief *b, const struct pass_price *p)
{
    b->n_row = b->n_col = 0;
    for (int i = 0; i < PASS_DIM; i++)
        if (row_changes(p, i)) b->row[b->n_row++] = (int8_t)i;
    for (int k = 0; k < PASS_DIM; k++)
        if (column_counts(p, b, k)) b->col[b->n_col++] = (int8_t)k;
    for (int i = 0; i < b->n_row; i++)
        for (int k = 0; k < b->n_col; k++) b->m[i * b->n_col + k] = p->m[b->row[i]][b->col[k]];
}

void pass_brief_apply(double state[PASS_DIM], const struct pass_brief *b)
{
    const double *m = b->m;
    double in[PASS_DIM];
    for (int k = 0; k < b->n_col; k++) in[k] = state[b->col[k]];
    for (int i = 0; i < b->n_row; i++, m += b->n_col) {
        double most = -INFINITY;
        for (int k = 0; k < b->n_col; k++) most = most > m[k] + in[k] ? most : m[k] + in[k];
        state[b->row[i]] = most;
    }
}

/* ---- the walk ---- */

struct when { double t[PASS_DIM]; };    /* a time: longest path from every entry of the state */

/* What a run knows of a buffer. */
struct slot {
    int32_t key, first, last;           /* first -1: an edge that no op used */
    int32_t is_written, is_read;        /* whether these have been: */
    struct when wrote, read;            /* completion of the last write, of all reads since */
};
struct run {
    const struct cost *c; const double *op_s;
    struct when stream[STREAM_COUNT], host, data[2];
    int32_t *slot_of;                   /* by key: 1 + index in slot, 0: not met */
    struct slot *slot; int32_t n_slot;
    struct pass_price *out;
};

static const struct when *later(struct when *a, const struct when *b)
{
    for (int i = 0; i < PASS_DIM; i++) a->t[i] = a->t[i] > b->t[i] ? a->t[i] : b->t[i];
    return a;
}

static void shift(struct when *a, double s)
{
    for (int i = 0; i < PASS_DIM; i++) a->t[i] += s;
}

static struct when never(void)
{
    struct when w;
    for (int i = 0; i < PASS_DIM; i++) w.t[i] = -INFINITY;
    return w;
}

static struct when entry(int at)
{
    struct when w = never();
    w.t[at] = 0;
    return w;
}

static struct slot *slot_at(struct run *r, int key)
{
    if (!r->slot_of[key]) {
        struct slot *s = &r->slot[r->n_slot];
        s->key = key, s->first = -1, s->is_written = s->is_read = 0;
        r->slot_of[key] = ++r->n_slot;
    }
    return &r->slot[r->slot_of[key] - 1];
}

static void slot_write(struct slot *s, const struct when *t)
{
    s->wrote = *t;
    s->is_written = 1;
    s->is_read = 0;
}

static void wait_uses(struct run *r, struct when *t, int op, int pos)
{
    const struct flow *f = &r->c->flow;
    for (int u = f->at[op]; u < f->at[op + 1]; u++) {
        struct slot *s = slot_at(r, f->use[u].key);
        if (s->first < 0) s->first = pos;
        s->last = pos;
        if (s->is_written) later(t, &s->wrote);
        if (s->is_read && f->use[u].writes) later(t, &s->read);
    }
}

static void note_uses(struct run *r, const struct when *t, int op)
{
    const struct flow *f = &r->c->flow;
    for (int u = f->at[op]; u < f->at[op + 1]; u++) {
        struct slot *s = &r->slot[r->slot_of[f->use[u].key] - 1];
        if (f->use[u].writes) slot_write(s, t);
        else if (s->is_read) later(&s->read, t);
        else s->read = *t, s->is_read = 1;
    }
}

static void host_reads(struct run *r, struct when t)
{
    shift(&t, cost_read_s(r->c));
    later(&r->host, &t);
}

/* The clock's rules: issued, stream free, deps done; a RECV's completion is the state's DATA, a SEND ends as DATA. */
static void run_op(struct run *r, int op, int pos)
{
    const struct op *o = &r->c->pr->op[op];
    const int half = o->half == HALF_BWD;
    struct pass_wire *w = &r->out->wire[half];
    shift(&r->host, cost_issue_s(r->c, op));
    struct when t = r->host;
    wait_uses(r, &t, op, pos);
    if (o->kind == OP_RECV) {
        *w = (struct pass_wire){ 1, w->send, r->host.t[PASS_HOST], r->op_s[op], w->send_s };
        t = entry(PASS_DATA + half);
    } else if (o->kind == OP_SEND) {
        w->send = 1;
        w->send_s = r->op_s[op];
        r->data[half] = t;
    } else {
        later(&t, &r->stream[o->stream]);
        shift(&t, r->op_s[op]);
        r->stream[o->stream] = t;
        r->out->busy_s[o->stream] += r->op_s[op];
        if (o->flags & OP_HOST_READS) host_reads(r, t);
    }
    note_uses(r, &t, op);
}

/* ---- edges ---- */

static int edge_key(const struct cost *c, int buf, int half)
{
    return 2 * program_root(c->pr, buf) + half;
}

/* A block's input is there when the state says so. */
static void run_open(struct run *r, const struct pass_edge *e)
{
    for (int s = 0; s < STREAM_COUNT; s++) r->stream[s] = entry(s);
    r->host = entry(PASS_HOST);
    for (int h = 0; h < 2; h++) {
        r->data[h] = entry(PASS_DATA + h);
        if (e->in[h]) slot_write(slot_at(r, edge_key(r->c, e->in[h], h)), &r->data[h]);
    }
}

static struct when slot_written(struct run *r, int key)
{
    const struct slot *s = slot_at(r, key);
    return s->is_written ? s->wrote : never();
}

static void run_close(struct run *r, const struct pass_edge *e)
{
    for (int h = 0; h < 2; h++)         /* what came in and does not go on ends here */
        if (e->in[h] && !e->out[h]) r->data[h] = never();
        else if (e->out[h] && !r->out->wire[h].send) r->data[h] = slot_written(r, edge_key(r->c, e->out[h], h));
    for (int s = 0; s < STREAM_COUNT; s++) memcpy(r->out->m[s], r->stream[s].t, sizeof r->out->m[s]);
    memcpy(r->out->m[PASS_HOST], r->host.t, sizeof r->host.t);
    for (int h = 0; h < 2; h++) memcpy(r->out->m[PASS_DATA + h], r->data[h].t, sizeof r->data[h].t);
}

/* ---- memory ---- */

void pass_around(int *before, int *after, const struct cost *c, enum pass_kind kind, int half)
{
    const int weight_after = kind == PASS_BWD_INPUT || (kind == PASS_FWD_BWD && c->job->plan.split_wgrad);
    *before = !half ? 0 : kind == PASS_BWD_WEIGHT ? FLOW_FWD | FLOW_BWD_INPUT : FLOW_FWD;
    *after = !half ? FLOW_BWD_INPUT | FLOW_BWD_WEIGHT : weight_after ? FLOW_BWD_WEIGHT : 0;
    if (kind == PASS_START || kind == PASS_OPTIM) *before = *after = 0;
}

struct fate { int before, after; };

static struct fate slot_fate(const struct run *r, const struct slot *s, enum pass_kind kind,
                             const struct pass_edge *e)
{
    const int half = s->key & 1, used = r->c->flow.used[flow_root(s->key)];
    int before, after;
    pass_around(&before, &after, r->c, kind, half);
    struct fate f = { (used & before) != 0, (used & after) != 0 };
    if (e->in[half] && s->key == edge_key(r->c, e->in[half], half) && !r->out->wire[half].recv) f.before = 1;
    if (e->out[half] && s->key == edge_key(r->c, e->out[half], half) && !r->out->wire[half].send) f.after = 1;
    return f;
}

/* Births and deaths at positions, then the walk over them. A life is there at its last use and gone after it. */
static void run_memory(struct run *r, enum pass_kind kind, const struct pass_edge *e, double *born_B,
                       double *dies_B, int n)
{
    double net_B = 0, peak_B = 0;
    memset(born_B, 0, (size_t)n * sizeof *born_B);
    memset(dies_B, 0, (size_t)n * sizeof *dies_B);
    for (int i = 0; i < r->n_slot; i++) {
        const struct slot *s = &r->slot[i];
        const double bytes = flow_B(r->c->pr, s->key);
        const struct fate f = slot_fate(r, s, kind, e);
        if (s->first < 0) continue;
        if (!f.before) born_B[s->first] += bytes;
        if (!f.after) dies_B[s->last] += bytes;
    }
    for (int i = 0; i < n; i++) {
        net_B += born_B[i];
        if (net_B > peak_B) peak_B = net_B;
        net_B -= dies_B[i];
    }
    r->out->net_B = net_B;
    r->out->peak_B = peak_B;
}

/* ---- runs ---- */

/* Scratch for runs of up to `longest` ops that use up to `slots` buffers. */
struct space { int32_t *slot_of; struct slot *slot; double *born_B, *dies_B; };

/* It is small beside the program, whose arena it comes from. */
static void space_open(struct space *s, const struct cost *c, int longest)
{
    s->slot_of = arena_alloc(c->pr->arena, (size_t)c->flow.n_key * sizeof *s->slot_of);
    s->born_B = arena_alloc(c->pr->arena, ((size_t)longest + 1) * sizeof *s->born_B);
    s->dies_B = arena_alloc(c->pr->arena, ((size_t)longest + 1) * sizeof *s->dies_B);
}

/* Buffers that a run uses: each has a slot. */
static int count_slots(const struct space *s, const struct flow *f, const int32_t *order, int n)
{
    int slots = 0;
    for (int i = 0; i < n; i++)
        for (int u = f->at[order[i]]; u < f->at[order[i] + 1]; u++)
            if (!s->slot_of[f->use[u].key]) s->slot_of[f->use[u].key] = 1, slots++;
    for (int i = 0; i < n; i++)
        for (int u = f->at[order[i]]; u < f->at[order[i] + 1]; u++) s->slot_of[f->use[u].key] = 0;
    return slots;
}

/* Room for them, and for what edges name besides. */
static void space_slots(struct space *s, const struct cost *c, int slots)
{
    s->slot = arena_alloc(c->pr->arena, ((size_t)slots + 4) * sizeof *s->slot);
}

static void price_run(struct pass_price *out, struct space *sp, const struct cost *c, const double *op_s,
                      enum pass_kind kind, const int32_t *order, int n, const struct pass_edge *e)
{
    struct run r = { .c = c, .op_s = op_s, .slot_of = sp->slot_of, .slot = sp->slot, .out = out };
    pass_identity(out);
    run_open(&r, e);
    for (int i = 0; i < n; i++) run_op(&r, order[i], i);
    run_close(&r, e);
    run_memory(&r, kind, e, sp->born_B, sp->dies_B, n);
    for (int i = 0; i < r.n_slot; i++) sp->slot_of[r.slot[i].key] = 0;
}

void pass_price(struct pass_price *out, const struct cost *c, const double *op_s, enum pass_kind kind,
                const int32_t *order, int n, const struct pass_edge *edge)
{
    struct space sp;
    space_open(&sp, c, n);
    space_slots(&sp, c, count_slots(&sp, &c->flow, order, n));
    price_run(out, &sp, c, op_s, kind, order, n, edge);
}

static struct pass_edge chunk_edge(const struct program *pr, enum pass_kind kind, const int16_t chunk[2])
{
    struct pass_edge e = { 0 };
    if (kind == PASS_START || kind == PASS_OPTIM || kind == PASS_BWD_WEIGHT) return e;
    if (kind == PASS_FWD || kind == PASS_FWD_BWD) {
        e.in[0] = pr->chunk[chunk[0]].x_in;
        e.out[0] = pr->chunk[chunk[0]].x_out;
    }
    if (kind != PASS_FWD) {
        e.in[1] = pr->chunk[chunk[1]].dy_in;
        e.out[1] = pr->chunk[chunk[1]].dx_out;
    }
    return e;
}

static int chunk_list(int32_t *order, const struct program *pr, enum pass_kind kind, const struct chunk *k)
{
    const int first = kind == PASS_FWD ? k->fwd : k->bwd, end = kind == PASS_FWD ? k->bwd : k->reduce;
    int n = 0;
    for (int i = first; i < end; i++) {
        const int weight = (pr->op[i].flags & OP_WEIGHT_GRAD) != 0;
        if (kind == PASS_BWD_INPUT ? !weight : kind == PASS_BWD_WEIGHT ? weight : 1) order[n++] = i;
    }
    return n;
}

void pass_price_chunk(struct pass_price price[PASS_COUNT], const struct cost *c, const double *op_s, int chunk)
{
    static const enum pass_kind kinds[] = { PASS_FWD, PASS_BWD, PASS_BWD_INPUT, PASS_BWD_WEIGHT };
    const struct chunk *k = &c->pr->chunk[chunk];
    const int16_t both[2] = { (int16_t)chunk, (int16_t)chunk };
    struct space sp;
    space_open(&sp, c, k->end - k->fwd);
    space_slots(&sp, c, c->flow.at[k->end] - c->flow.at[k->fwd]);
    int32_t *order = arena_alloc(c->pr->arena, (size_t)(k->end - k->fwd + 1) * sizeof *order);
    for (int i = 0; i < PASS_COUNT; i++) pass_identity(&price[i]);
    for (int i = 0; i < LEN(kinds); i++) {
        const int n = chunk_list(order, c->pr, kinds[i], k);
        const struct pass_edge e = chunk_edge(c->pr, kinds[i], both);
        price_run(&price[kinds[i]], &sp, c, op_s, kinds[i], order, n, &e);
    }
}

struct pass_price *pass_price_all(const struct cost *c, const double *op_s, struct arena *a)
{
    const struct program *pr = c->pr;
    struct pass_price *price = arena_alloc(a, (size_t)pr->n_pass * sizeof *price);
    int longest = 0, slots = 0;
    struct space sp;
    for (int i = 0; i < pr->n_pass; i++) longest = pr->pass[i].n > longest ? pr->pass[i].n : longest;
    space_open(&sp, c, longest);
    for (int i = 0; i < pr->n_pass; i++) {
        const int n = count_slots(&sp, &c->flow, &pr->order[pr->pass[i].first], pr->pass[i].n);
        slots = n > slots ? n : slots;
    }
    space_slots(&sp, c, slots);
    for (int i = 0; i < pr->n_pass; i++) {
        const struct pass *p = &pr->pass[i];
        const struct pass_edge e = chunk_edge(pr, (enum pass_kind)p->kind, p->chunk);
        price_run(&price[i], &sp, c, op_s, (enum pass_kind)p->kind, &pr->order[p->first], p->n, &e);
    }
    return price;
}

