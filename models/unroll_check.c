/* What must hold before a program may run. Each stage alone: every op has its operands, no life is read before
 * it is written, no work is done for nobody, a group keeps to one stream, deps order all uses of a life, no
 * gradient grows after it was used, no two lives collide in memory. All stages together: the program is played
 * at zero price, which needs no model of time, only of who waits for whom; what cannot go on is a ring. */
#include "models/unroll.h"
#include <stdio.h>
#include <string.h>

enum { TEXT_B = 160 };

/* ---- each stage alone ---- */

static enum err unroll_check_operands(const struct program *pr, struct diag *d)
{
    for (int op = 1; op < pr->n_op; op++)
        if (!op_io_complete(&pr->op[op]))
            return fail(d, ERR_NO,
                        "op %d: %s of layer %d lacks an operand or has one too many: it takes \"%s\"", op,
                        op_name((enum op_kind)pr->op[op].kind), pr->op[op].layer,
                        op_io_text((enum op_kind)pr->op[op].kind));
    return OK;
}

/* Members of a group would meet in different orders on two streams. */
static enum err unroll_check_streams(const struct program *pr, struct diag *d)
{
    int stream_of[GROUP_COUNT];
    for (int g = 0; g < GROUP_COUNT; g++) stream_of[g] = -1;
    for (int op = 1; op < pr->n_op; op++) {
        const struct op *o = &pr->op[op];
        if (op_family((enum op_kind)o->kind) != FAMILY_COMM) continue;
        if (stream_of[o->group] >= 0 && stream_of[o->group] != o->stream)
            return fail(d, ERR_NO, "op %d: %s on stream %s, but group %s has collectives on stream %s too", op,
                        op_name((enum op_kind)o->kind), op_stream_name((enum stream)o->stream),
                        fold_group_name((enum group)o->group),
                        op_stream_name((enum stream)stream_of[o->group]));
        stream_of[o->group] = o->stream;
    }
    return OK;
}

static int unroll_check_life(const struct unroll *u, const struct program *pr, const struct item *i, int root)
{
    return (int)(unroll_life(u, pr, i, root) - u->life);
}

/* Weights and optimizer state come from outside; everything else is written before it is read or added to. */
static enum err unroll_check_written(const struct unroll *u, const struct program *pr, struct arena *a,
                                     struct diag *d)
{
    char *written = arena_alloc(a, (size_t)u->n_life + 1), text[TEXT_B];
    for (int i = 0; i < u->n_item; i++) {
        struct use use[OP_USES];
        const int n = op_uses(use, pr, &pr->op[u->item[i].op]);
        for (int k = 0; k < n; k++) {
            const int keep = pr->buf[use[k].buf].keep, life = unroll_check_life(u, pr, &u->item[i], use[k].buf);
            const int outside = keep == KEEP_WEIGHT || keep == KEEP_OPTIMIZER;
            if (use[k].access != ACCESS_WRITE && !outside && !written[life])
                return fail(d, ERR_NO, "%s reads buffer %d before anything writes it",
                            unroll_item_text(text, sizeof text, u, pr, i), use[k].buf);
            written[life] |= use[k].access != ACCESS_READ;
        }
    }
    return OK;
}

/* Whether an item's results are all its own micro-batch's, and nobody reads any of them. */
static int unroll_check_idle(const struct unroll *u, const struct program *pr, int item, const char *read)
{
    struct use use[OP_USES];
    int made = 0;
    const int n = op_uses(use, pr, &pr->op[u->item[item].op]);
    for (int k = 0; k < n; k++) {
        if (use[k].access == ACCESS_READ) continue;
        if (pr->buf[use[k].buf].keep != KEEP_MICRO ||
            read[unroll_check_life(u, pr, &u->item[item], use[k].buf)])
            return 0;
        made = 1;
    }
    return made;
}

/* Work whose results nobody reads: a read is missing somewhere. Recompute may end so: it repeats a block. */
static enum err unroll_check_read(const struct unroll *u, const struct program *pr, struct arena *a,
                                  struct diag *d)
{
    char *read = arena_alloc(a, (size_t)u->n_life + 1), text[TEXT_B];
    for (int i = 0; i < u->n_item; i++) {
        struct use use[OP_USES];
        const int n = op_uses(use, pr, &pr->op[u->item[i].op]);
        for (int k = 0; k < n; k++)
            if (use[k].access != ACCESS_WRITE) read[unroll_check_life(u, pr, &u->item[i], use[k].buf)] = 1;
    }
    for (int i = 0; i < u->n_item; i++)
        if (!(pr->op[u->item[i].op].flags & OP_RECOMPUTE) && unroll_check_idle(u, pr, i, read))
            return fail(d, ERR_NO, "%s: nobody reads what it writes",
                        unroll_item_text(text, sizeof text, u, pr, i));
    return OK;
}

/* ---- order ---- */

/* A gradient that was reduced, or that the optimizer has read, is complete: nothing may be added any more. */
static enum err unroll_check_gradients(const struct unroll *u, const struct program *pr, struct arena *a,
                                       struct diag *d)
{
    char *complete = arena_alloc(a, (size_t)u->n_life + 1), text[TEXT_B];
    for (int i = 0; i < u->n_item; i++) {
        struct use use[OP_USES];
        const struct op *o = &pr->op[u->item[i].op];
        const enum op_family f = op_family((enum op_kind)o->kind);
        const int n = op_uses(use, pr, o), completes = f == FAMILY_COMM || f == FAMILY_OPTIM;
        for (int k = 0; k < n; k++) {
            const int life = unroll_check_life(u, pr, &u->item[i], use[k].buf);
            if (pr->buf[use[k].buf].keep != KEEP_GRADIENT || use[k].access == ACCESS_WRITE) continue;
            if (!completes && complete[life] && use[k].access == ACCESS_ADD)
                return fail(d, ERR_NO, "%s adds to gradient %d, which was reduced or used before",
                            unroll_item_text(text, sizeof text, u, pr, i), use[k].buf);
            complete[life] |= completes;
        }
    }
    return OK;
}

/* What has surely finished, from streams and deps alone, and what every life was last used by. */
struct clocks { int32_t (*clock)[STREAM_COUNT], (*used)[STREAM_COUNT], *writer, last[STREAM_COUNT]; };

static void unroll_check_clock(struct clocks *o, const struct unroll *u, const struct program *pr, int item)
{
    const struct item *it = &u->item[item];
    const int own = pr->op[it->op].stream, before = o->last[own];
    int32_t *clock = o->clock[item];
    for (int s = 0; s < STREAM_COUNT; s++) clock[s] = before >= 0 ? o->clock[before][s] : -1;
    clock[own] = before;
    for (int k = 0; k < it->n_dep; k++) {
        const int dep = u->dep[it->dep + k], stream = pr->op[u->item[dep].op].stream;
        for (int s = 0; s < STREAM_COUNT; s++)
            if (o->clock[dep][s] > clock[s]) clock[s] = o->clock[dep][s];
        if (dep > clock[stream]) clock[stream] = dep;
    }
    o->last[own] = item;
}

/* An earlier use that this one must follow and does not; -1: none. */
static int unroll_check_race(const struct clocks *o, const struct unroll *u, const struct program *pr, int item,
                             int life, enum access access)
{
    const int32_t *clock = o->clock[item];
    const int writer = o->writer[life];
    if (access == ACCESS_READ && writer < 0) return -1;
    if (access == ACCESS_READ) return writer > clock[pr->op[u->item[writer].op].stream] ? writer : -1;
    for (int s = 0; s < STREAM_COUNT; s++)
        if (o->used[life][s] > clock[s]) return o->used[life][s];
    return -1;
}

static enum err unroll_check_uses(struct clocks *o, const struct unroll *u, const struct program *pr, int item,
                                  struct diag *d)
{
    char text[TEXT_B], other[TEXT_B];
    struct use use[OP_USES];
    const struct op *op = &pr->op[u->item[item].op];
    const int n = op_uses(use, pr, op);
    for (int k = 0; k < n; k++) {
        const int life = unroll_check_life(u, pr, &u->item[item], use[k].buf);
        const int race = unroll_check_race(o, u, pr, item, life, use[k].access);
        if (race >= 0)
            return fail(d, ERR_NO, "%s does not wait for %s, which uses the same buffer %d",
                        unroll_item_text(text, sizeof text, u, pr, item),
                        unroll_item_text(other, sizeof other, u, pr, race), use[k].buf);
    }
    for (int k = 0; k < n; k++) {
        const int life = unroll_check_life(u, pr, &u->item[item], use[k].buf);
        o->used[life][op->stream] = item;
        if (use[k].access != ACCESS_READ) o->writer[life] = item;
    }
    return OK;
}

/* Deps are taken on trust nowhere: uses of one life are ordered by them, and `seen` claims no more than they do. */
static enum err unroll_check_order(const struct unroll *u, const struct program *pr, struct arena *a,
                                   struct diag *d)
{
    char text[TEXT_B];
    struct clocks o;
    o.clock = arena_alloc(a, ((size_t)u->n_item + 1) * sizeof *o.clock);
    o.used = arena_alloc(a, ((size_t)u->n_life + 1) * sizeof *o.used);
    o.writer = arena_alloc(a, ((size_t)u->n_life + 1) * sizeof *o.writer);
    memset(o.used, -1, (size_t)u->n_life * sizeof *o.used);
    memset(o.writer, -1, (size_t)u->n_life * sizeof *o.writer);
    memset(o.last, -1, sizeof o.last);
    for (int i = 0; i < u->n_item; i++) {
        unroll_check_clock(&o, u, pr, i);
        TRY(unroll_check_uses(&o, u, pr, i, d));
        for (int s = 0; s < STREAM_COUNT; s++)
            if (u->seen[i][s] > o.clock[i][s])
                return fail(d, ERR_NO, "%s is said to follow item %d of stream %s, but waits for nothing that does",
                            unroll_item_text(text, sizeof text, u, pr, i), u->seen[i][s],
                            op_stream_name((enum stream)s));
    }
    return OK;
}

/* ---- offsets ---- */

static enum err unroll_check_bytes(const struct unroll *u, const struct program *pr, struct diag *d)
{
    for (int k = 0; k < u->n_life; k++) {
        const struct life *l = &u->life[k];
        const int64_t needed_B = buf_B(&pr->buf[l->buf]);
        const int on_host = pr->buf[l->buf].place == PLACE_HOST;
        const int64_t from = on_host ? u->host_at : 0, end = on_host ? u->host_at + u->host_B : u->arena_B;
        if (l->bytes < needed_B)
            return fail(d, ERR_NO, "stage %d: buffer %d of micro-batch %d was given %lld bytes of %lld",
                        u->stage, l->buf, l->micro, (long long)l->bytes, (long long)needed_B);
        if (l->offset < from || l->offset + l->bytes > end)
            return fail(d, ERR_NO,
                        "stage %d: buffer %d of micro-batch %d lies at %lld, outside the %s from %lld to %lld",
                        u->stage, l->buf, l->micro, (long long)l->offset, on_host ? "host's memory" : "arena",
                        (long long)from, (long long)end);
    }
    return OK;
}

/* Who used each byte last: segment k reaches from at[k] to at[k + 1]. */
struct owners { int32_t n; int64_t *at; int32_t *life; };

static int unroll_check_segment(const struct owners *o, int64_t byte)
{
    int from = 0, to = o->n;
    while (to - from > 1) {
        const int mid = (from + to) / 2;
        if (o->at[mid] <= byte) from = mid;
        else to = mid;
    }
    return from;
}

/* Makes a segment begin at `byte`; returns its index. */
static int unroll_check_cut(struct owners *o, int64_t byte)
{
    const int k = unroll_check_segment(o, byte);
    if (o->at[k] == byte) return k;
    memmove(o->at + k + 2, o->at + k + 1, (size_t)(o->n - k - 1) * sizeof *o->at);
    memmove(o->life + k + 2, o->life + k + 1, (size_t)(o->n - k - 1) * sizeof *o->life);
    o->at[k + 1] = byte;
    o->life[k + 1] = o->life[k];
    o->n++;
    return k + 1;
}

/* Gives the bytes of `life` to it. ERR_NO when one of their last owners may still be alive. */
static enum err unroll_check_take(struct owners *o, const struct unroll *u, const struct program *pr, int life,
                                  struct diag *d)
{
    const struct life *l = &u->life[life];
    if (l->bytes == 0) return OK;
    const int from = unroll_check_cut(o, l->offset), to = unroll_check_cut(o, l->offset + l->bytes);
    for (int k = from; k < to; k++) {
        const struct life *before = o->life[k] < 0 ? NULL : &u->life[o->life[k]];
        if (before && unroll_meet(u, pr, before, l))
            return fail(d, ERR_NO,
                        "stage %d: buffer %d of micro-batch %d and buffer %d of micro-batch %d share byte %lld "
                        "and may be alive together",
                        u->stage, before->buf, before->micro, l->buf, l->micro, (long long)o->at[k]);
    }
    memmove(o->at + from + 1, o->at + to, (size_t)(o->n - to) * sizeof *o->at);
    memmove(o->life + from + 1, o->life + to, (size_t)(o->n - to) * sizeof *o->life);
    o->life[from] = life;
    o->n -= to - from - 1;
    return OK;
}

/* Lives in order of birth, those that live for ever first: "surely over before" is transitive, so it is enough
 * that each life's bytes were given up by their last owners. A life's index is its order of birth. */
static enum err unroll_check_collide(const struct unroll *u, const struct program *pr, struct arena *a,
                                     struct diag *d)
{
    const size_t room = 2 * (size_t)u->n_life + 3;
    struct owners o = { .n = 1 };
    o.at = arena_alloc(a, room * sizeof *o.at);
    o.life = arena_alloc(a, room * sizeof *o.life);
    o.life[0] = -1;
    for (int ever = 1; ever >= 0; ever--)
        for (int k = 0; k < u->n_life; k++)
            if ((pr->buf[u->life[k].buf].keep != KEEP_MICRO) == ever) TRY(unroll_check_take(&o, u, pr, k, d));
    return OK;
}

/* ---- all stages together, at zero price ---- */

struct play {
    const struct unroll *u;
    const struct program *pr;
    struct lane {                       /* one stage being played */
        int32_t next[STREAM_COUNT];     /* the item at the head of each stream, n_item when it is through */
        int32_t *after;                 /* by item: the next one on its stream */
        char *done;
        int32_t *met[2];                /* items of WORLD and EMBED, by ordinal */
        int32_t n_met[2];
    } *lane;
};

static const struct op *unroll_check_op(const struct play *p, int stage, int item)
{
    return &p->pr->op[p->u[stage].item[item].op];
}

/* 0 WORLD, 1 EMBED, -1: not a collective between stages. */
static int unroll_check_span(const struct op *o)
{
    if (op_family((enum op_kind)o->kind) != FAMILY_COMM) return -1;
    return o->group == GROUP_WORLD ? 0 : o->group == GROUP_EMBED ? 1 : -1;
}

static int unroll_check_peer(const struct play *p, int stage, const struct op *o)
{
    const int n = p->pr->n_stage;
    return o->group == GROUP_NEXT ? (stage + 1) % n : (stage + n - 1) % n;
}

/* What an item waits for in its own stage: an earlier one of its stream, or a dep; -1: nothing. */
static int unroll_check_blocker(const struct play *p, int stage, int item)
{
    const struct unroll *u = &p->u[stage];
    const struct lane *l = &p->lane[stage];
    const int head = l->next[unroll_check_op(p, stage, item)->stream];
    if (head != item) return head;
    for (int k = 0; k < u->item[item].n_dep; k++)
        if (!l->done[u->dep[u->item[item].dep + k]]) return u->dep[u->item[item].dep + k];
    return -1;
}

/* The stage whose member of this meeting has not come, and its item; -1: all have, or it meets nobody. */
static int unroll_check_absent(const struct play *p, int stage, int item, int *peer_item)
{
    const struct op *o = unroll_check_op(p, stage, item);
    const int mate = p->u[stage].item[item].mate, span = unroll_check_span(o);
    if (op_family((enum op_kind)o->kind) == FAMILY_P2P) {
        const int peer = unroll_check_peer(p, stage, o);
        *peer_item = mate;
        return !p->lane[peer].done[mate] && unroll_check_blocker(p, peer, mate) >= 0 ? peer : -1;
    }
    for (int s = 0; span >= 0 && s < p->pr->n_stage; s++) {
        if (mate >= p->lane[s].n_met[span]) continue;       /* a stage without an input table */
        *peer_item = p->lane[s].met[span][mate];
        if (!p->lane[s].done[*peer_item] && unroll_check_blocker(p, s, *peer_item) >= 0) return s;
    }
    return -1;
}

static void unroll_check_finish(struct play *p, int stage, int item)
{
    struct lane *l = &p->lane[stage];
    if (l->done[item]) return;
    l->done[item] = 1;
    l->next[unroll_check_op(p, stage, item)->stream] = l->after[item];
}

/* Finishes an item and all it meets. */
static void unroll_check_meet(struct play *p, int stage, int item)
{
    const struct op *o = unroll_check_op(p, stage, item);
    const int mate = p->u[stage].item[item].mate, span = unroll_check_span(o);
    if (op_family((enum op_kind)o->kind) == FAMILY_P2P)
        unroll_check_finish(p, unroll_check_peer(p, stage, o), mate);
    for (int s = 0; span >= 0 && s < p->pr->n_stage; s++)
        if (mate < p->lane[s].n_met[span]) unroll_check_finish(p, s, p->lane[s].met[span][mate]);
    unroll_check_finish(p, stage, item);
}

/* Plays one stage as far as it goes; returns whether it moved. */
static int unroll_check_advance(struct play *p, int stage)
{
    int moved = 0, any, peer_item;
    do {
        any = 0;
        for (int s = 0; s < STREAM_COUNT; s++) {
            const int item = p->lane[stage].next[s];
            if (item == p->u[stage].n_item || unroll_check_blocker(p, stage, item) >= 0) continue;
            if (unroll_check_absent(p, stage, item, &peer_item) >= 0) continue;
            unroll_check_meet(p, stage, item);
            any = moved = 1;
        }
    } while (any);
    return moved;
}

static void unroll_check_open(struct play *p, struct arena *a)
{
    p->lane = arena_alloc(a, (size_t)p->pr->n_stage * sizeof *p->lane);
    for (int s = 0; s < p->pr->n_stage; s++) {
        const struct unroll *u = &p->u[s];
        struct lane *l = &p->lane[s];
        const size_t n = (size_t)u->n_item + 1;
        l->after = arena_alloc(a, n * sizeof *l->after);
        l->done = arena_alloc(a, n);
        for (int k = 0; k < 2; k++) l->met[k] = arena_alloc(a, n * sizeof *l->met[k]);
        for (int k = 0; k < STREAM_COUNT; k++) l->next[k] = u->n_item;
        for (int i = u->n_item - 1; i >= 0; i--) {
            const int stream = unroll_check_op(p, s, i)->stream;
            l->after[i] = l->next[stream];
            l->next[stream] = i;
        }
        for (int i = 0; i < u->n_item; i++) {
            const int span = unroll_check_span(unroll_check_op(p, s, i));
            if (span >= 0) l->met[span][l->n_met[span]++] = i;
        }
    }
}

/* From a stuck item to what it waits for in another stage; says so in `text` unless that is NULL. */
static void unroll_check_hop(const struct play *p, int *stage, int *item, char text[TEXT_B])
{
    for (int inside; (inside = unroll_check_blocker(p, *stage, *item)) >= 0;) *item = inside;
    int peer_item = -1;
    const int peer = unroll_check_absent(p, *stage, *item, &peer_item);
    if (text) unroll_item_text(text, TEXT_B, &p->u[*stage], p->pr, *item);
    *stage = peer;
    *item = peer_item;
}

/* A stuck item leads, from one who waits to the next, into a ring; names as many as the message holds. */
static enum err unroll_check_ring(const struct play *p, int stage, int item, struct diag *d)
{
    char text[440], who[TEXT_B];
    size_t len = 0;
    for (int k = 0; k < p->pr->n_stage * STREAM_COUNT; k++) unroll_check_hop(p, &stage, &item, NULL);
    const int start_stage = stage, start_item = item;
    int more = 0;
    do {
        unroll_check_hop(p, &stage, &item, who);
        if (len + strlen(who) + 32 < sizeof text)
            len += (size_t)snprintf(text + len, sizeof text - len, "; %s waits for stage %d", who, stage);
        else
            more++;
    } while (stage != start_stage || item != start_item);
    if (more) return fail(d, ERR_NO, "stages wait for each other%s; and %d more", text, more);
    return fail(d, ERR_NO, "stages wait for each other%s", text);
}

static enum err unroll_check_play(const struct unroll *u, const struct program *pr, struct arena *a,
                                  struct diag *d)
{
    struct play p = { .u = u, .pr = pr };
    unroll_check_open(&p, a);
    for (int moved = 1; moved;) {
        moved = 0;
        for (int s = 0; s < pr->n_stage; s++) moved |= unroll_check_advance(&p, s);
    }
    for (int s = 0; s < pr->n_stage; s++)
        for (int i = 0; i < u[s].n_item; i++)
            if (!p.lane[s].done[i]) return unroll_check_ring(&p, s, i, d);
    return OK;
}

/* Meetings that unroll_all left open would have no peer to ask. */
static enum err unroll_check_mates(const struct unroll *u, const struct program *pr, struct diag *d)
{
    char text[TEXT_B];
    for (int i = 0; i < u->n_item; i++)
        if (op_family((enum op_kind)pr->op[u->item[i].op].kind) == FAMILY_P2P && u->item[i].mate < 0)
            return fail(d, ERR_NO, "%s meets nobody", unroll_item_text(text, sizeof text, u, pr, i));
    return OK;
}

static enum err unroll_check_stage(const struct unroll *u, const struct program *pr, struct arena *a,
                                   int planned, struct diag *d)
{
    TRY(unroll_check_mates(u, pr, d));
    TRY(unroll_check_written(u, pr, a, d));
    TRY(unroll_check_read(u, pr, a, d));
    TRY(unroll_check_gradients(u, pr, a, d));
    TRY(unroll_check_order(u, pr, a, d));
    if (!planned) return OK;
    TRY(unroll_check_bytes(u, pr, d));
    return unroll_check_collide(u, pr, a, d);
}

static enum err unroll_check_all(const struct unroll *u, const struct program *pr, struct arena *a, int planned,
                                 struct diag *d)
{
    TRY(unroll_check_operands(pr, d));
    TRY(unroll_check_streams(pr, d));
    for (int s = 0; s < pr->n_stage; s++) TRY(unroll_check_stage(&u[s], pr, a, planned, d));
    return unroll_check_play(u, pr, a, d);
}

enum err unroll_check(const struct unroll *u, const struct program *pr, int planned, struct diag *d)
{
    struct arena a = { 0 };
    const enum err e = unroll_check_all(u, pr, &a, planned, d);
    arena_free(&a);
    return e;
}
