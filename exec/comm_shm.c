/* Collectives by shared memory: show, meet, pull, meet (comm_shm.h). Everything that a peer may read lies in
 * the room or in a rank's arena, never on a stack, so a member that leaves a broken run takes nothing away from
 * the others. */
#include "exec/comm_shm.h"
#include "exec/bell.h"
#include "exec/lock.h"
#include <string.h>

enum call_kind { CALL_GATHER, CALL_SCATTER, CALL_REDUCE, CALL_ALL_TO_ALL, CALL_P2P };
enum { BLOCK = 256,             /* floats summed at a time */
       SEATS = 64 };            /* members whose sum a device makes */

struct seat {                   /* what one member shows the others during a call */
    int kind;
    int64_t total;              /* must be equal on all members */
    const char *data;
    int64_t *send_B;            /* all_to_all: bytes for every member */
    char *stage;                /* forked ranks: what it shows that peers cannot see */
    _Atomic uint32_t came;      /* meetings it has come to */
    const char *_Atomic op;     /* peers look at it when they give up */
};
struct room {                   /* one communicator */
    struct comm_shm *run; struct room *next;
    const char *name; int64_t key;
    int n; int32_t *rank;
    struct seat *seat;
    _Atomic uint32_t arrived, meeting;
    struct bell bell;
};
struct comm_shm {
    struct arena *arena;
    struct room *room;
    double timeout_s;
    int64_t stage_B;            /* of every seat; 0: all memory is seen by all */
    const struct comm_mover *mover;     /* NULL: the host */
    struct lock lock;           /* guards why */
    _Atomic int broken;
    struct diag why;
};
struct comm { struct room *room; int me; };

struct comm_shm *comm_shm_open(struct arena *a, double timeout_s)
{
    struct comm_shm *s = arena_alloc(a, sizeof *s);
    s->arena = a;
    s->timeout_s = timeout_s;
    lock_open(&s->lock);
    return s;
}

void comm_shm_reserve(struct comm_shm *s, int64_t bytes)
{
    s->stage_B = bytes;
}

void comm_shm_move_by(struct comm_shm *s, const struct comm_mover *m)
{
    s->mover = m;
}

static struct room *comm_shm_room_make(struct comm_shm *s, const char *name, int64_t key, int n,
                                       const int32_t *rank)
{
    struct room *r = arena_alloc(s->arena, sizeof *r);
    *r = (struct room){ .run = s, .next = s->room, .name = name, .key = key, .n = n };
    r->rank = arena_alloc(s->arena, (size_t)n * sizeof *r->rank);
    memcpy(r->rank, rank, (size_t)n * sizeof *rank);
    r->seat = arena_alloc(s->arena, (size_t)n * sizeof *r->seat);
    for (int i = 0; i < n; i++) {
        r->seat[i].send_B = arena_alloc(s->arena, (size_t)n * sizeof(int64_t));
        if (s->stage_B) r->seat[i].stage = arena_alloc(s->arena, (size_t)s->stage_B);
        r->seat[i].op = "no op yet";
    }
    return s->room = r;
}

struct comm *comm_shm_join(struct comm_shm *s, const char *name, int64_t key, int me, int n,
                           const int32_t *rank)
{
    struct room *r = s->room;
    while (r && (r->key != key || strcmp(r->name, name) != 0)) r = r->next;
    if (!r) r = comm_shm_room_make(s, name, key, n, rank);
    struct comm *c = arena_alloc(s->arena, sizeof *c);
    *c = (struct comm){ .room = r, .me = me };
    return c;
}

void comm_shm_break(struct comm_shm *s, const char *why)
{
    lock_take(&s->lock);
    if (!atomic_load(&s->broken)) {
        fail(&s->why, ERR_COMM, "%s", why);
        atomic_store(&s->broken, 1);
    }
    lock_give(&s->lock);
    for (struct room *r = s->room; r; r = r->next) bell_ring(&r->bell);
}

static enum err comm_shm_broken(struct comm_shm *s, struct diag *d)
{
    lock_take(&s->lock);       /* `why` is whole once it can be taken */
    const enum err e = fail(d, ERR_COMM, "%s", s->why.text);
    lock_give(&s->lock);
    return e;
}

/* ---- meeting ---- */

struct wait { const struct room *room; uint32_t meeting; };

static int comm_shm_met(const void *arg)
{
    const struct wait *w = arg;
    return atomic_load(&w->room->meeting) != w->meeting || atomic_load(&w->room->run->broken);
}

/* The first member that the others wait for; -1: all have come. */
static int comm_shm_late(const struct room *r)
{
    const uint32_t met = atomic_load(&r->meeting);
    for (int i = 0; i < r->n; i++)
        if (atomic_load(&r->seat[i].came) == met) return i;
    return -1;
}

/* A room in which `rank` itself waits for others, and its seat there; NULL: it waits in none. */
static struct room *comm_shm_waiting(const struct comm_shm *s, int32_t rank, int *seat)
{
    for (struct room *r = s->room; r; r = r->next)
        for (int i = 0; i < r->n; i++) {
            if (r->rank[i] != rank || comm_shm_late(r) < 0 || comm_shm_late(r) == i) continue;
            if (atomic_load(&r->seat[i].came) == atomic_load(&r->meeting)) continue;
            *seat = i;
            return r;
        }
    return NULL;
}

/* Who waits longest is often not who is to blame: follows those that wait to the one that does not. Others move
 * on meanwhile, so the way is short by count, not by proof. Returns 0 when all have come after all. */
static int comm_shm_give_up(struct comm *c)
{
    enum { HOPS = 64 };
    struct room *r = c->room, *next = r;
    struct diag why;
    int seat = c->me, late = comm_shm_late(r), next_seat = seat;
    if (late < 0) return 0;
    for (int hop = 0; hop < HOPS && (next = comm_shm_waiting(r->run, r->rank[late], &next_seat)); hop++) {
        const int next_late = comm_shm_late(next);
        if (next_late < 0) break;
        r = next, seat = next_seat, late = next_late;
    }
    fail(&why, ERR_COMM,
         "rank %d waited %g s in group %s at %s; rank %d did not come to group %s, where rank %d is at %s: "
         "look at "
         "what rank %d does, or raise the time-out",
         c->room->rank[c->me], r->run->timeout_s, c->room->name, atomic_load(&c->room->seat[c->me].op),
         r->rank[late], r->name, r->rank[seat], atomic_load(&r->seat[seat].op), r->rank[late]);
    comm_shm_break(r->run, why.text);
    return 1;
}

static enum err comm_shm_meet(struct comm *c, struct diag *d)
{
    struct room *r = c->room;
    const struct wait w = { r, atomic_load(&r->meeting) };
    atomic_fetch_add(&r->seat[c->me].came, 1);
    if (atomic_fetch_add(&r->arrived, 1) == (uint32_t)r->n - 1) {
        atomic_store(&r->arrived, 0);
        atomic_fetch_add(&r->meeting, 1);
        bell_ring(&r->bell);
    } else {
        while (!bell_wait(&r->bell, comm_shm_met, &w, r->run->timeout_s))
            if (comm_shm_give_up(c)) break;
    }
    return atomic_load(&r->run->broken) ? comm_shm_broken(r->run, d) : OK;
}

/* All members must be in the same call of the same size: a difference is a fault of the program that must not
 * spread. */
static enum err comm_shm_agree(struct comm *c, struct diag *d)
{
    const struct room *r = c->room;
    const struct seat *mine = &r->seat[c->me];
    for (int i = 0; i < r->n; i++) {
        const struct seat *s = &r->seat[i];
        if (s->kind == mine->kind && s->total == mine->total) continue;
        struct diag why;
        fail(&why, ERR_COMM,
             "group %s: rank %d is at %s with %lld, rank %d at %s with %lld; members must make equal calls",
             r->name, r->rank[c->me], atomic_load(&mine->op), (long long)mine->total, r->rank[i],
             atomic_load(&s->op), (long long)s->total);
        comm_shm_break(r->run, why.text);
        return comm_shm_broken(r->run, d);
    }
    return OK;
}

static enum err comm_shm_show(struct comm *c, enum call_kind kind, const void *data, int64_t total,
                              struct diag *d)
{
    struct seat *s = &c->room->seat[c->me];
    s->kind = kind;
    s->data = data;
    s->total = total;
    TRY(comm_shm_meet(c, d));
    return comm_shm_agree(c, d);
}

/* The device said something: that ends the run. */
static void comm_shm_said(const struct comm *c, const char *text)
{
    struct room *r = c->room;
    struct diag why;
    if (!text) return;
    fail(&why, ERR_COMM, "group %s: rank %d at %s: the device says: %s", r->name, r->rank[c->me], atomic_load(&r->seat[c->me].op),
         text);
    comm_shm_break(r->run, why.text);
}

static void comm_shm_copy(const struct comm *c, void *to, const void *from, int64_t bytes)
{
    const struct comm_mover *m = c->room->run->mover;
    if (bytes <= 0 || to == from) return;
    if (m) comm_shm_said(c, m->copy(to, from, bytes));
    else memcpy(to, from, (size_t)bytes);
}

/* When what I pulled has arrived. */
static enum err comm_shm_meet_again(struct comm *c, struct diag *d)
{
    const struct comm_mover *m = c->room->run->mover;
    if (m) comm_shm_said(c, m->wait());
    return comm_shm_meet(c, d);
}

/* What peers will read of `data`: itself, or where they see it. */
static enum err comm_shm_share(const void **seen, struct comm *c, const void *data, int64_t bytes, struct diag *d)
{
    struct comm_shm *s = c->room->run;
    struct diag why;
    *seen = data;
    if (!s->stage_B || bytes <= 0 || arena_holds(s->arena, data)) return OK;
    if (bytes > s->stage_B) {
        fail(&why, ERR_COMM, "group %s: rank %d shows %lld bytes of its own memory at %s, room was made for %lld; use ranks "
             "as threads", c->room->name, c->room->rank[c->me], (long long)bytes,
             atomic_load(&c->room->seat[c->me].op), (long long)s->stage_B);
        comm_shm_break(s, why.text);
        return comm_shm_broken(s, d);
    }
    *seen = c->room->seat[c->me].stage;
    memcpy(c->room->seat[c->me].stage, data, (size_t)bytes);
    return OK;
}

/* ---- the calls ---- */

static enum err comm_shm_gather(struct comm *c, void *out, const void *in, const int64_t *part_B,
                                struct diag *d)
{
    const struct room *r = c->room;
    const void *seen;
    TRY(comm_shm_share(&seen, c, in, part_B[c->me], d));
    TRY(comm_shm_show(c, CALL_GATHER, seen, comm_before(part_B, r->n), d));
    char *to = out;
    for (int i = 0; i < r->n; to += part_B[i++]) comm_shm_copy(c, to, r->seat[i].data, part_B[i]);
    return comm_shm_meet_again(c, d);
}

static const float *comm_shm_shown(const struct room *r, int member, int64_t at)
{
    return (const float *)(const void *)r->seat[member].data + at;
}

static int comm_shm_device_reduces(const struct comm *c, float *to, int64_t at, int64_t n, int max)
{
    const struct room *r = c->room;
    const float *from[SEATS];
    int reduced = 0;
    if (!r->run->mover || r->n > SEATS || n <= 0) return 0;
    for (int i = 0; i < r->n; i++) from[i] = comm_shm_shown(r, i, at);
    comm_shm_said(c, r->run->mover->reduce(&reduced, to, from, r->n, n, max));
    return reduced;
}

/* to[0 .. n - 1] = sum (or the largest) over members, in member order, of what they show from element `at` on.
 * Through a block on the stack, because `to` may be part of what is summed. */
static void comm_shm_reduce(const struct comm *c, float *to, int64_t at, int64_t n, int max)
{
    const struct room *r = c->room;
    float sum[BLOCK];
    if (comm_shm_device_reduces(c, to, at, n, max)) return;
    for (int64_t k = 0; k < n; k += BLOCK) {
        const int len = n - k < BLOCK ? (int)(n - k) : BLOCK;
        memcpy(sum, comm_shm_shown(r, 0, at + k), (size_t)len * sizeof *sum);
        for (int i = 1; i < r->n; i++) {
            const float *x = comm_shm_shown(r, i, at + k);
            if (max) for (int l = 0; l < len; l++) sum[l] = x[l] > sum[l] ? x[l] : sum[l];
            else     for (int l = 0; l < len; l++) sum[l] += x[l];
        }
        memcpy(to + k, sum, (size_t)len * sizeof *sum);
    }
}

static enum err comm_shm_scatter_sum(struct comm *c, float *out, const float *in, const int64_t *part_n,
                                     struct diag *d)
{
    const int64_t n = comm_before(part_n, c->room->n);
    const void *seen;
    TRY(comm_shm_share(&seen, c, in, n * (int64_t)sizeof *in, d));
    TRY(comm_shm_show(c, CALL_SCATTER, seen, n, d));
    comm_shm_reduce(c, out, comm_before(part_n, c->me), part_n[c->me], 0);
    return comm_shm_meet_again(c, d);
}

/* Everyone reduces one slice, in place (only its owner reads that slice of anybody), then copies the rest. */
static enum err comm_shm_all_reduce(struct comm *c, float *x, int64_t n, int max, struct diag *d)
{
    const struct room *r = c->room;
    const int64_t at = n * c->me / r->n, end = n * (c->me + 1) / r->n;
    const void *seen;
    TRY(comm_shm_share(&seen, c, x, n * (int64_t)sizeof *x, d));
    TRY(comm_shm_show(c, CALL_REDUCE, seen, n, d));
    comm_shm_reduce(c, (float *)(uintptr_t)seen + at, at, end - at, max);
    TRY(comm_shm_meet_again(c, d));
    for (int i = 0; i < r->n; i++) {
        const int64_t from = n * i / r->n, to = n * (i + 1) / r->n;
        comm_shm_copy(c, x + from, (const float *)(const void *)r->seat[i].data + from,
                      (to - from) * (int64_t)sizeof *x);
    }
    return comm_shm_meet_again(c, d);
}

static enum err comm_shm_uneven(struct comm *c, int from, int64_t sent_B, int64_t expected_B, struct diag *d)
{
    const struct room *r = c->room;
    struct diag why;
    fail(&why, ERR_COMM, "group %s at %s: rank %d sends %lld bytes, rank %d expects %lld", r->name,
         atomic_load(&r->seat[c->me].op), r->rank[from], (long long)sent_B, r->rank[c->me],
         (long long)expected_B);
    comm_shm_break(r->run, why.text);
    return comm_shm_broken(r->run, d);
}

static enum err comm_shm_all_to_all(struct comm *c, void *out, const int64_t *recv_B, const void *in,
                                    const int64_t *send_B, struct diag *d)
{
    const struct room *r = c->room;
    const void *seen;
    memcpy(r->seat[c->me].send_B, send_B, (size_t)r->n * sizeof *send_B);
    TRY(comm_shm_share(&seen, c, in, comm_before(send_B, r->n), d));
    TRY(comm_shm_show(c, CALL_ALL_TO_ALL, seen, 0, d));
    char *to = out;
    for (int i = 0; i < r->n; to += recv_B[i++]) {
        const struct seat *s = &r->seat[i];
        if (s->send_B[c->me] != recv_B[i]) return comm_shm_uneven(c, i, s->send_B[c->me], recv_B[i], d);
        if (recv_B[i]) comm_shm_copy(c, to, s->data + comm_before(s->send_B, c->me), recv_B[i]);
    }
    return comm_shm_meet_again(c, d);
}

/* The n-th send meets the n-th receive: sizes are compared like those of any call. */
static enum err comm_shm_send(struct comm *c, int to, const void *in, int64_t bytes, struct diag *d)
{
    const void *seen;
    (void)to;       /* a communicator of p2p has two members */
    TRY(comm_shm_share(&seen, c, in, bytes, d));
    TRY(comm_shm_show(c, CALL_P2P, seen, bytes, d));
    return comm_shm_meet_again(c, d);
}

static enum err comm_shm_recv(struct comm *c, int from, void *out, int64_t bytes, struct diag *d)
{
    TRY(comm_shm_show(c, CALL_P2P, out, bytes, d));
    comm_shm_copy(c, out, c->room->seat[from].data, bytes);
    return comm_shm_meet_again(c, d);
}

static void comm_shm_say(struct comm *c, const char *op)
{
    atomic_store(&c->room->seat[c->me].op, op);
}

const struct comm_ops comm_shm = {
    .name = "shm",
    .gather = comm_shm_gather,
    .scatter_sum = comm_shm_scatter_sum,
    .all_reduce = comm_shm_all_reduce,
    .all_to_all = comm_shm_all_to_all,
    .send = comm_shm_send,
    .recv = comm_shm_recv,
    .say = comm_shm_say,
};
