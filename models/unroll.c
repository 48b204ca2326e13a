/* One stage's steps written out: what simulator, executor and offset planner walk. Deps come from uses alone:
 * an op waits for whoever wrote what it reads and for whoever used what it writes, on instances (buffer,
 * micro-batch), so backward finds forward's results by naming them. `seen`, a vector clock over streams, drops
 * the deps that others imply and is later what says whether two lives may share bytes. */
#include "models/unroll.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

struct walk {                           /* one stage being written out */
    struct unroll *u;
    struct arena *a;
    const struct program *pr;
    int32_t room_dep, room_life;
    int32_t *writer;                    /* by life: the last item that wrote or added; -1: none yet */
    int32_t last[STREAM_COUNT];         /* last item so far on every stream, -1: none */
    int32_t (*upto)[STREAM_COUNT];      /* upto[k][s]: last item of stream s in steps < k */
    int32_t host;                       /* last item that the host waits for, -1: none */
    int32_t met[2];                     /* collectives of WORLD and EMBED so far */
};

/* ---- instances ---- */

static int unroll_slot(const struct program *pr, int root, int micro)
{
    const int m = pr->buf[root].keep == KEEP_MICRO ? micro : -1;
    return root * (pr->n_micro + 1) + m + 1;
}

const struct life *unroll_life(const struct unroll *u, const struct program *pr, const struct item *i, int buf)
{
    const int at = u->life_of[unroll_slot(pr, program_root(pr, buf), i->micro)];
    return at < 0 ? NULL : &u->life[at];
}

/* Whether every use of `a` has surely finished when `b` is first used. */
static int unroll_before(const struct unroll *u, const struct life *a, const struct life *b)
{
    for (int s = 0; s < STREAM_COUNT; s++)
        if (a->last[s] > u->seen[b->first][s]) return 0;
    return 1;
}

int unroll_meet(const struct unroll *u, const struct program *pr, const struct life *a, const struct life *b)
{
    if (pr->buf[a->buf].keep != KEEP_MICRO || pr->buf[b->buf].keep != KEEP_MICRO) return 1;
    if (a->first == b->first) return 1;     /* made by one op */
    return a->first < b->first ? !unroll_before(u, a, b) : !unroll_before(u, b, a);
}

/* The index of an instance's life, made at its first use. */
static int unroll_instance(struct walk *w, int root, int micro)
{
    struct unroll *u = w->u;
    int32_t *at = &u->life_of[unroll_slot(w->pr, root, micro)];
    if (*at >= 0) return *at;
    if (u->n_life == w->room_life) {
        const size_t old = (size_t)w->room_life, more = old ? 2 * old : 256;
        u->life = arena_grow(w->a, u->life, old, more, sizeof *u->life);
        w->writer = arena_grow(w->a, w->writer, old, more, sizeof *w->writer);
        w->room_life = (int32_t)more;
    }
    struct life *l = &u->life[u->n_life];
    *l = (struct life){ .buf = root, .micro = w->pr->buf[root].keep == KEEP_MICRO ? micro : -1, .first = -1,
                        .last_item = -1, .bytes = program_B(w->pr, root), .offset = -1 };
    for (int s = 0; s < STREAM_COUNT; s++) l->last[s] = -1;
    w->writer[u->n_life] = -1;
    return *at = u->n_life++;
}

/* ---- what an item waits for ---- */

static void unroll_later(int32_t *at, int32_t item)
{
    if (item > *at) *at = item;
}

static int unroll_stream(const struct walk *w, int item)
{
    return w->pr->op[w->u->item[item].op].stream;
}

/* need[s]: the last item of stream s that this use must follow: a read its writer, a write all earlier uses. */
static void unroll_need(const struct walk *w, int life, enum access access, int32_t need[STREAM_COUNT])
{
    if (access == ACCESS_READ) {
        const int writer = w->writer[life];
        if (writer >= 0) unroll_later(&need[unroll_stream(w, writer)], writer);
        return;
    }
    for (int s = 0; s < STREAM_COUNT; s++) unroll_later(&need[s], w->u->life[life].last[s]);
}

static void unroll_touch(struct walk *w, int life, enum access access, int item)
{
    struct life *l = &w->u->life[life];
    if (l->first < 0) l->first = item;
    l->n_use += l->last_item != item;
    l->last_item = item;
    l->last[unroll_stream(w, item)] = item;
    if (access != ACCESS_READ) w->writer[life] = item;
}

static void unroll_add_dep(struct walk *w, int dep)
{
    struct unroll *u = w->u;
    if (u->n_dep == w->room_dep) {
        const int32_t more = w->room_dep ? 2 * w->room_dep : 1024;
        u->dep = arena_grow(w->a, u->dep, (size_t)w->room_dep, (size_t)more, sizeof *u->dep);
        w->room_dep = more;
    }
    u->dep[u->n_dep++] = dep;
}

/* Turns needs into deps, the latest first: it may imply earlier ones, and never the other way round. */
static void unroll_order(struct walk *w, int i, const int32_t need[STREAM_COUNT])
{
    struct unroll *u = w->u;
    int32_t *seen = u->seen[i];
    const int own = unroll_stream(w, i), before = w->last[own];
    for (int s = 0; s < STREAM_COUNT; s++) seen[s] = before >= 0 ? u->seen[before][s] : -1;
    seen[own] = before;
    for (;;) {
        int32_t dep = -1;
        for (int s = 0; s < STREAM_COUNT; s++)
            if (need[s] > seen[s]) unroll_later(&dep, need[s]);
        if (dep < 0) break;
        unroll_add_dep(w, dep);
        for (int s = 0; s < STREAM_COUNT; s++) unroll_later(&seen[s], u->seen[dep][s]);
        seen[unroll_stream(w, dep)] = dep;
    }
    u->item[i].n_dep = u->n_dep - u->item[i].dep;
    w->last[own] = i;
}

/* Streams are at most `lead` steps apart, and nothing is issued before the host has what it waits for. */
static void unroll_need_all(const struct walk *w, int step, int32_t need[STREAM_COUNT])
{
    const int window = step - w->pr->lead;      /* steps before this one must be over */
    for (int s = 0; s < STREAM_COUNT; s++) need[s] = window > 0 ? w->upto[window][s] : -1;
    if (w->host >= 0) unroll_later(&need[unroll_stream(w, w->host)], w->host);
}

/* ---- items ---- */

static int unroll_micro(const struct step *t, const struct op *o)
{
    return o->half == HALF_FWD ? t->micro[0] : o->half == HALF_BWD ? t->micro[1] : -1;
}

static int unroll_ordinal(struct walk *w, const struct op *o)
{
    if (o->group == GROUP_WORLD && op_family((enum op_kind)o->kind) == FAMILY_COMM) return w->met[0]++;
    if (o->group == GROUP_EMBED && op_family((enum op_kind)o->kind) == FAMILY_COMM) return w->met[1]++;
    return -1;
}

static void unroll_item(struct walk *w, int step, int op)
{
    struct unroll *u = w->u;
    const struct op *o = &w->pr->op[op];
    const int i = u->n_item++, micro = unroll_micro(&w->pr->step[u->stage][step], o);
    u->item[i] = (struct item){ .step = step, .op = op, .micro = micro, .dep = u->n_dep,
                                .mate = unroll_ordinal(w, o) };
    struct use use[OP_USES];
    int life[OP_USES];
    int32_t need[STREAM_COUNT];
    const int n = op_uses(use, w->pr, o);
    unroll_need_all(w, step, need);
    for (int k = 0; k < n; k++) {
        life[k] = unroll_instance(w, use[k].buf, micro);
        unroll_need(w, life[k], use[k].access, need);
    }
    unroll_order(w, i, need);
    for (int k = 0; k < n; k++) unroll_touch(w, life[k], use[k].access, i);
    if (o->flags & OP_HOST_READS) w->host = i;
}

/* Bytes alive on the device at every item, in list order: instances from their first to their last use, the rest always. */
static void unroll_live(struct unroll *u, struct arena *a, const struct program *pr)
{
    int64_t *change = arena_alloc(a, (size_t)(u->n_item + 1) * sizeof *change), now = 0;
    for (int k = 0; k < u->n_life; k++) {
        const struct life *l = &u->life[k];
        if (pr->buf[l->buf].place == PLACE_HOST) continue;
        if (pr->buf[l->buf].keep != KEEP_MICRO) {
            now += l->bytes;
            continue;
        }
        change[l->first] += l->bytes;
        change[l->last_item + 1] -= l->bytes;
    }
    u->live_B = now;
    u->live_item = 0;
    for (int i = 0; i < u->n_item; i++) {
        now += change[i];
        if (now <= u->live_B) continue;
        u->live_B = now;
        u->live_item = i;
    }
}

static void unroll_begin(struct walk *w, int stage)
{
    struct unroll *u = w->u;
    const struct program *pr = w->pr;
    const size_t n_slot = (size_t)pr->n_buf * (size_t)(pr->n_micro + 1);
    int n = 0;
    for (int k = 0; k < pr->n_step[stage]; k++) n += pr->pass[pr->step[stage][k].pass].n;
    *u = (struct unroll){ .stage = stage };
    u->item = arena_alloc(w->a, (size_t)n * sizeof *u->item);
    u->seen = arena_alloc(w->a, (size_t)n * sizeof *u->seen);
    u->life_of = arena_alloc(w->a, n_slot * sizeof *u->life_of);
    w->upto = arena_alloc(w->a, (size_t)(pr->n_step[stage] + 1) * sizeof *w->upto);
    memset(u->life_of, -1, n_slot * sizeof *u->life_of);
    for (int s = 0; s < STREAM_COUNT; s++) w->last[s] = -1;
    for (int b = 1; b < pr->n_buf; b++)
        if (pr->buf[b].keep != KEEP_MICRO && pr->buf[b].stage == stage && !pr->buf[b].view)
            unroll_instance(w, b, -1);
}

void unroll_stage(struct unroll *u, struct arena *a, const struct program *pr, int stage)
{
    struct walk w = { .u = u, .a = a, .pr = pr, .host = -1 };
    unroll_begin(&w, stage);
    for (int k = 0; k < pr->n_step[stage]; k++) {
        const struct pass *p = &pr->pass[pr->step[stage][k].pass];
        memcpy(w.upto[k], w.last, sizeof w.last);
        for (int n = 0; n < p->n; n++) unroll_item(&w, k, pr->order[p->first + n]);
    }
    unroll_live(u, a, pr);
}

/* ---- who meets whom across stages ---- */

char *unroll_item_text(char *to, size_t to_B, const struct unroll *u, const struct program *pr, int item)
{
    const struct item *i = &u->item[item];
    const struct pass *p = &pr->pass[pr->step[u->stage][i->step].pass];
    const struct op *o = &pr->op[i->op];
    int n = snprintf(to, to_B, "stage %d, step %d (%s", u->stage, i->step,
                     program_pass_name((enum pass_kind)p->kind));
    if (i->micro >= 0)
        n += snprintf(to + n, to_B - (size_t)n, " of chunk %d, micro-batch %d", p->chunk[o->half == HALF_BWD],
                      i->micro);
    snprintf(to + n, to_B - (size_t)n, "): %s", op_name((enum op_kind)o->kind));
    return to;
}

/* The first item from `from` on with this kind and stream, or n_item. */
static int unroll_next(const struct unroll *u, const struct program *pr, int from, enum op_kind kind,
                       enum stream stream)
{
    int i = from;
    while (i < u->n_item && (pr->op[u->item[i].op].kind != kind || pr->op[u->item[i].op].stream != stream)) i++;
    return i;
}

static int unroll_chunk(const struct unroll *u, const struct program *pr, int item)
{
    const struct pass *p = &pr->pass[pr->step[u->stage][u->item[item].step].pass];
    return p->chunk[pr->op[u->item[item].op].half == HALF_BWD];
}

/* The n-th SEND of `a` meets the n-th RECV of `b`, whose chunk is `ahead` of the sender's. */
static enum err unroll_match(struct unroll *a, struct unroll *b, const struct program *pr, enum stream send,
                             enum stream recv, int ahead, struct diag *d)
{
    char from[160], to[160];
    for (int i = 0, k = 0;; i++, k++) {
        i = unroll_next(a, pr, i, OP_SEND, send);
        k = unroll_next(b, pr, k, OP_RECV, recv);
        if (i == a->n_item && k == b->n_item) return OK;
        if (k == b->n_item)
            return fail(d, ERR_NO, "%s has no RECV in stage %d to meet",
                        unroll_item_text(from, sizeof from, a, pr, i), b->stage);
        if (i == a->n_item)
            return fail(d, ERR_NO, "%s has no SEND in stage %d to meet",
                        unroll_item_text(to, sizeof to, b, pr, k), a->stage);
        if (a->item[i].micro != b->item[k].micro || unroll_chunk(a, pr, i) + ahead != unroll_chunk(b, pr, k))
            return fail(d, ERR_NO, "%s meets %s: not the same micro-batch and boundary",
                        unroll_item_text(from, sizeof from, a, pr, i),
                        unroll_item_text(to, sizeof to, b, pr, k));
        a->item[i].mate = k;
        b->item[k].mate = i;
    }
}

static int unroll_count(const struct unroll *u, const struct program *pr, enum group g)
{
    int n = 0;
    for (int i = 0; i < u->n_item; i++) {
        const struct op *o = &pr->op[u->item[i].op];
        n += o->group == g && op_family((enum op_kind)o->kind) == FAMILY_COMM;
    }
    return n;
}

/* Every stage of the world, and every stage that holds an input table, has equally many of its collectives. */
static enum err unroll_counts(const struct unroll *u, const struct program *pr, enum group g, struct diag *d)
{
    int first = -1, n_first = 0;
    for (int s = 0; s < pr->n_stage; s++) {
        const int n = unroll_count(&u[s], pr, g);
        if (n == 0 && g == GROUP_EMBED) continue;
        if (first < 0) first = s, n_first = n;
        if (n != n_first)
            return fail(d, ERR_NO, "stage %d has %d collectives of group %s, stage %d has %d", first, n_first,
                        g == GROUP_WORLD ? "world" : "embed", s, n);
    }
    return OK;
}

enum err unroll_all(struct unroll *u, struct arena *a, const struct program *pr, struct diag *d)
{
    for (int s = 0; s < pr->n_stage; s++) unroll_stage(&u[s], a, pr, s);
    for (int s = 0; s < pr->n_stage; s++) {
        struct unroll *next = &u[(s + 1) % pr->n_stage];
        TRY(unroll_match(&u[s], next, pr, STREAM_SEND_F, STREAM_RECV_F, 1, d));
        TRY(unroll_match(next, &u[s], pr, STREAM_SEND_B, STREAM_RECV_B, -1, d));
    }
    TRY(unroll_counts(u, pr, GROUP_WORLD, d));
    return unroll_counts(u, pr, GROUP_EMBED, d);
}
