/* Every call is two rounds of messages among the members: what each is about to do (so a late or disagreeing member is
 * named), then the bytes. Messages of one pair keep their order and a communicator has a tag of its own, so rounds of
 * calls that follow one another do not mix. */
#include "exec/comm_mpi.h"
#include "exec/bell.h"
#include "exec/lock.h"
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum call_kind { CALL_GATHER, CALL_SCATTER, CALL_REDUCE, CALL_ALL_TO_ALL, CALL_P2P };
enum { TAG_BREAK = 0, TAG_FIRST = 1, SPINS = 64, NAP_NS = 20000, LONGEST_NAP_NS = 500000 };

struct notice { int64_t kind, total, bytes; char op[40]; };     /* bytes: of the sender for the receiver */
struct room {
    struct room *next;
    const char *name; int64_t key;
    int n, tag; int32_t *rank;
    struct notice *mine, *theirs;
    MPI_Request *request;               /* 2 n */
    const char *op;
};
struct comm_mpi {
    struct arena *arena;
    struct room *room;
    int n_room, process, processes;
    double timeout_s;
    MPI_Comm world;
    struct lock lock;                   /* guards why */
    _Atomic int broken;
    struct diag why;
};
struct comm { struct comm_mpi *run; struct room *room; int me; };

enum err comm_mpi_open(struct comm_mpi **s, struct arena *a, double timeout_s, struct diag *d)
{
    int threads;
    MPI_Query_thread(&threads);
    if (threads < MPI_THREAD_MULTIPLE)
        return fail(d, ERR_COMM, "this MPI does not let several threads communicate (level %d, %d is needed): use one built "
                    "with MPI_THREAD_MULTIPLE", threads, MPI_THREAD_MULTIPLE);
    *s = arena_alloc(a, sizeof **s);
    (*s)->arena = a;
    (*s)->timeout_s = timeout_s;
    MPI_Comm_dup(MPI_COMM_WORLD, &(*s)->world);
    MPI_Comm_rank((*s)->world, &(*s)->process);
    MPI_Comm_size((*s)->world, &(*s)->processes);
    lock_open(&(*s)->lock);
    return OK;
}

void comm_mpi_close(struct comm_mpi *s)
{
    MPI_Comm_free(&s->world);
}

struct comm *comm_mpi_join(struct comm_mpi *s, const char *name, int64_t key, int me, int n, const int32_t *rank)
{
    struct room *r = s->room;
    while (r && (r->key != key || strcmp(r->name, name) != 0)) r = r->next;
    if (!r) {
        r = arena_alloc(s->arena, sizeof *r);
        *r = (struct room){ .next = s->room, .name = name, .key = key, .n = n, .tag = TAG_FIRST + s->n_room++, .op = "no op yet" };
        r->rank = arena_alloc(s->arena, (size_t)n * sizeof *r->rank);
        memcpy(r->rank, rank, (size_t)n * sizeof *rank);
        r->mine = arena_alloc(s->arena, (size_t)n * sizeof *r->mine);
        r->theirs = arena_alloc(s->arena, (size_t)n * sizeof *r->theirs);
        r->request = arena_alloc(s->arena, 2 * (size_t)n * sizeof(MPI_Request));
        s->room = r;
    }
    if (me < 0) return NULL;
    struct comm *c = arena_alloc(s->arena, sizeof *c);
    *c = (struct comm){ .run = s, .room = r, .me = me };
    return c;
}

/* ---- breaks ---- */

/* Returns 1 when `why` is the first. */
static int comm_mpi_hear(struct comm_mpi *s, const char *why)
{
    lock_take(&s->lock);
    const int first = !atomic_load(&s->broken);
    if (first) {
        fail(&s->why, ERR_COMM, "%s", why);
        atomic_store(&s->broken, 1);
    }
    lock_give(&s->lock);
    return first;
}

void comm_mpi_break(struct comm_mpi *s, const char *why)
{
    MPI_Request sent;
    if (!comm_mpi_hear(s, why)) return;
    for (int i = 0; i < s->processes; i++) {
        if (i == s->process) continue;
        MPI_Isend(&s->why, sizeof s->why, MPI_BYTE, i, TAG_BREAK, s->world, &sent);
        MPI_Request_free(&sent);        /* `why` stays as it is */
    }
}

/* Another process's break, if it came. */
static void comm_mpi_listen(struct comm_mpi *s)
{
    int came;
    MPI_Message m;
    struct diag why;
    MPI_Improbe(MPI_ANY_SOURCE, TAG_BREAK, s->world, &came, &m, MPI_STATUS_IGNORE);
    if (!came) return;
    MPI_Mrecv(&why, sizeof why, MPI_BYTE, &m, MPI_STATUS_IGNORE);
    comm_mpi_hear(s, why.text);
}

static enum err comm_mpi_broken(struct comm_mpi *s, struct diag *d)
{
    lock_take(&s->lock);
    const enum err e = fail(d, ERR_COMM, "%s", s->why.text);
    lock_give(&s->lock);
    return e;
}

/* ---- rounds ---- */

/* Sends stand at the even places of `request`, receives at the odd ones. The first member whose message is not here. */
static int comm_mpi_late(const struct room *r)
{
    for (int i = 0; i < r->n; i++)
        if (r->request[2 * i + 1] != MPI_REQUEST_NULL) return i;
    for (int i = 0; i < r->n; i++)
        if (r->request[2 * i] != MPI_REQUEST_NULL) return i;
    return -1;
}

static int comm_mpi_done(struct room *r)
{
    int all = 1, done;
    for (int i = 0; i < 2 * r->n; i++) {
        if (r->request[i] == MPI_REQUEST_NULL) continue;
        MPI_Test(&r->request[i], &done, MPI_STATUS_IGNORE);
        all &= done;
    }
    return all;
}

static void comm_mpi_give_up(struct comm *c)
{
    const struct room *r = c->room;
    const int late = comm_mpi_late(r);
    struct diag why;
    fail(&why, ERR_COMM, "rank %d waited %g s in group %s at %s; rank %d did not come to group %s: look at what rank %d does, or "
         "raise the time-out", r->rank[c->me], c->run->timeout_s, r->name, r->op, r->rank[late], r->name, r->rank[late]);
    comm_mpi_break(c->run, why.text);
}

static enum err comm_mpi_wait(struct comm *c, struct diag *d)
{
    struct comm_mpi *s = c->run;
    const int64_t end_ns = bell_now_ns() + (int64_t)(s->timeout_s * 1e9);
    struct timespec nap = { .tv_nsec = NAP_NS };
    for (int i = 0; !comm_mpi_done(c->room); i++) {
        if (i < SPINS) {
            sched_yield();      /* ranks may be more than cores */
            continue;
        }
        comm_mpi_listen(s);
        if (s->timeout_s > 0 && bell_now_ns() > end_ns && !atomic_load(&s->broken)) comm_mpi_give_up(c);
        if (atomic_load(&s->broken)) return comm_mpi_broken(s, d);
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < LONGEST_NAP_NS) nap.tv_nsec += nap.tv_nsec / 8;
    }
    return OK;
}

static enum err comm_mpi_post(struct comm *c, int i, const void *out, int64_t out_B, void *in, int64_t in_B, struct diag *d)
{
    struct room *r = c->room;
    r->request[2 * i] = r->request[2 * i + 1] = MPI_REQUEST_NULL;
    if (out_B > INT_MAX || in_B > INT_MAX)
        return fail(d, ERR_LIMIT, "group %s at %s: rank %d and rank %d exchange %lld bytes in one message, MPI takes %d: use a "
                    "smaller micro-batch", r->name, r->op, r->rank[c->me], r->rank[i], (long long)(out_B > in_B ? out_B : in_B), INT_MAX);
    if (i == c->me) return OK;
    if (in_B > 0) MPI_Irecv(in, (int)in_B, MPI_BYTE, r->rank[i], r->tag, c->run->world, &r->request[2 * i + 1]);
    if (out_B > 0) MPI_Isend(out, (int)out_B, MPI_BYTE, r->rank[i], r->tag, c->run->world, &r->request[2 * i]);
    return OK;
}

/* All members must be in the same call of the same size, and send what the other expects: bytes[i] from member i. */
static enum err comm_mpi_agree(struct comm *c, const int64_t *expected_B, struct diag *d)
{
    const struct room *r = c->room;
    struct diag why;
    for (int i = 0; i < r->n; i++) {
        const struct notice *x = &r->mine[i], *y = &r->theirs[i];
        if (i == c->me) continue;
        if (x->kind != y->kind || x->total != y->total)
            fail(&why, ERR_COMM, "group %s: rank %d is at %s with %lld, rank %d at %s with %lld; members must make equal calls", r->name,
                 r->rank[c->me], r->op, (long long)x->total, r->rank[i], y->op, (long long)y->total);
        else if (expected_B && y->bytes != expected_B[i])
            fail(&why, ERR_COMM, "group %s at %s: rank %d sends %lld bytes, rank %d expects %lld", r->name, r->op, r->rank[i],
                 (long long)y->bytes, r->rank[c->me], (long long)expected_B[i]);
        else continue;
        comm_mpi_break(c->run, why.text);
        return comm_mpi_broken(c->run, d);
    }
    return OK;
}

static enum err comm_mpi_meet(struct comm *c, enum call_kind kind, int64_t total, const int64_t *send_B, const int64_t *recv_B,
                              struct diag *d)
{
    struct room *r = c->room;
    comm_mpi_listen(c->run);
    if (atomic_load(&c->run->broken)) return comm_mpi_broken(c->run, d);
    for (int i = 0; i < r->n; i++) {
        r->mine[i] = (struct notice){ .kind = kind, .total = total, .bytes = send_B ? send_B[i] : 0 };
        memccpy(r->mine[i].op, r->op, 0, sizeof r->mine[i].op - 1);
        TRY(comm_mpi_post(c, i, &r->mine[i], sizeof r->mine[i], &r->theirs[i], sizeof r->theirs[i], d));
    }
    TRY(comm_mpi_wait(c, d));
    return comm_mpi_agree(c, recv_B, d);
}

static void comm_mpi_copy(void *to, const void *from, int64_t bytes)
{
    if (bytes > 0 && to != from) memmove(to, from, (size_t)bytes);
}

/* ---- the calls ---- */

static enum err comm_mpi_spread(struct comm *c, char *out, const void *in, const int64_t *part_B, struct diag *d)
{
    const struct room *r = c->room;
    char *to = out;
    for (int i = 0; i < r->n; to += part_B[i++]) {
        TRY(comm_mpi_post(c, i, in, part_B[c->me], to, part_B[i], d));
        if (i == c->me) comm_mpi_copy(to, in, part_B[i]);
    }
    return comm_mpi_wait(c, d);
}

static enum err comm_mpi_gather(struct comm *c, void *out, const void *in, const int64_t *part_B, struct diag *d)
{
    TRY(comm_mpi_meet(c, CALL_GATHER, comm_before(part_B, c->room->n), NULL, NULL, d));
    return comm_mpi_spread(c, out, in, part_B, d);
}

/* `all`: n floats of every member but me; in member order with `mine`. */
static void comm_mpi_sum(float *out, const float *all, const float *mine, int64_t n, const struct comm *c, int max)
{
    for (int64_t k = 0; k < n; k++) {
        float sum = c->me == 0 ? mine[k] : all[k];
        for (int i = 1; i < c->room->n; i++) {
            const float x = i == c->me ? mine[k] : all[i * n + k];
            sum = max ? (x > sum ? x : sum) : sum + x;
        }
        out[k] = sum;
    }
}

/* Every member gets its part of everybody and sums. A broken call keeps its scratch: a message may yet come into it. */
static enum err comm_mpi_collect(struct comm *c, float *out, const float *in, const int64_t *part_n, int max, struct diag *d)
{
    const struct room *r = c->room;
    const int64_t n = part_n[c->me];
    float *all = malloc((size_t)(n * r->n + 1) * sizeof *all);
    if (!all) return fail(d, ERR_LIMIT, "group %s at %s: no memory for %lld floats", r->name, r->op, (long long)(n * r->n));
    const float *from = in;
    for (int i = 0; i < r->n; from += part_n[i++])
        TRY(comm_mpi_post(c, i, from, part_n[i] * (int64_t)sizeof *in, all + i * n, n * (int64_t)sizeof *all, d));
    TRY(comm_mpi_wait(c, d));
    comm_mpi_sum(out, all, in + comm_before(part_n, c->me), n, c, max);
    free(all);
    return OK;
}

static enum err comm_mpi_scatter_sum(struct comm *c, float *out, const float *in, const int64_t *part_n, struct diag *d)
{
    TRY(comm_mpi_meet(c, CALL_SCATTER, comm_before(part_n, c->room->n), NULL, NULL, d));
    return comm_mpi_collect(c, out, in, part_n, 0, d);
}

/* Everyone reduces one slice, then all slices go to all. */
static enum err comm_mpi_all_reduce(struct comm *c, float *x, int64_t n, int max, struct diag *d)
{
    const int members = c->room->n;
    int64_t part[1024];
    if (members > LEN(part)) return fail(d, ERR_LIMIT, "a group of %d members; %d is the most", members, LEN(part));
    for (int i = 0; i < members; i++) part[i] = n * (i + 1) / members - n * i / members;
    float *mine = x + n * c->me / members;
    TRY(comm_mpi_meet(c, CALL_REDUCE, n, NULL, NULL, d));
    TRY(comm_mpi_collect(c, mine, x, part, max, d));
    for (int i = 0; i < members; i++) part[i] *= (int64_t)sizeof *x;
    return comm_mpi_spread(c, (char *)x, mine, part, d);
}

static enum err comm_mpi_all_to_all(struct comm *c, void *out, const int64_t *recv_B, const void *in, const int64_t *send_B,
                                    struct diag *d)
{
    const struct room *r = c->room;
    const char *from = in;
    char *to = out;
    TRY(comm_mpi_meet(c, CALL_ALL_TO_ALL, 0, send_B, recv_B, d));
    for (int i = 0; i < r->n; from += send_B[i], to += recv_B[i++]) {
        TRY(comm_mpi_post(c, i, from, send_B[i], to, recv_B[i], d));
        if (i == c->me) comm_mpi_copy(to, from, recv_B[i]);
    }
    return comm_mpi_wait(c, d);
}

static enum err comm_mpi_send(struct comm *c, int to, const void *in, int64_t bytes, struct diag *d)
{
    TRY(comm_mpi_meet(c, CALL_P2P, bytes, NULL, NULL, d));
    TRY(comm_mpi_post(c, to, in, bytes, NULL, 0, d));
    return comm_mpi_wait(c, d);
}

static enum err comm_mpi_recv(struct comm *c, int from, void *out, int64_t bytes, struct diag *d)
{
    TRY(comm_mpi_meet(c, CALL_P2P, bytes, NULL, NULL, d));
    TRY(comm_mpi_post(c, from, NULL, 0, out, bytes, d));
    return comm_mpi_wait(c, d);
}

static void comm_mpi_say(struct comm *c, const char *op)
{
    c->room->op = op;
}

const struct comm_ops comm_mpi = {
    .name = "mpi",
    .gather = comm_mpi_gather,
    .scatter_sum = comm_mpi_scatter_sum,
    .all_reduce = comm_mpi_all_reduce,
    .all_to_all = comm_mpi_all_to_all,
    .send = comm_mpi_send,
    .recv = comm_mpi_recv,
    .say = comm_mpi_say,
};
