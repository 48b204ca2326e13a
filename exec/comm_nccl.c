/* NCCL's calls under the interface of comm.h. Uneven parts, which its collectives do not know, are groups of calls of
 * one member each. A call waits for its stream, looking for errors of peers meanwhile. */
#include "exec/comm_nccl.h"
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

_Static_assert(COMM_NCCL_ID_B == NCCL_UNIQUE_ID_BYTES, "what the header says");

#define NCCL_LIST(X)                                                                                                 \
    X(ncclGetUniqueId)                                                                                               \
    X(ncclCommInitRank) X(ncclCommSplit) X(ncclCommDestroy) X(ncclCommAbort) X(ncclCommGetAsyncError)                \
        X(ncclGetErrorString) X(ncclGroupStart) X(ncclGroupEnd) X(ncclAllReduce) X(ncclAllGather)                    \
            X(ncclReduceScatter) X(ncclBroadcast) X(ncclReduce) X(ncclSend) X(ncclRecv)
static struct {
#define X(f) __typeof__(f) *f;
    NCCL_LIST(X)
#undef X
    int here;
} lib;
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct comm {
    struct comm_nccl *run;
    struct comm *next;
    ncclComm_t nccl;
    cudaStream_t stream;
    const char *name, *op;
    int me, n;
};
struct comm_nccl {
    struct arena *arena;
    ncclComm_t world;
    struct comm *first;
    double timeout_s;
    int rank;
};

static void nccl_open(void)
{
    void *so = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!so) return;
#define X(f)                                                                                                         \
    if (!(lib.f = (__typeof__(lib.f))(uintptr_t)dlsym(so, #f))) return;
    NCCL_LIST(X)
#undef X
    lib.here = 1;
}

static enum err nccl_here(struct diag *d)
{
    pthread_once(&once, nccl_open);
    return lib.here ? OK
                    : fail(d, ERR_COMM,
                           "no NCCL here: libnccl.so.2 of 2.18 or newer is not found; install it, or run ranks "
                           "on one GPU or the CPU");
}

static enum err nccl_try(ncclResult_t e, const char *what, struct diag *d)
{
    return e == ncclSuccess ? OK : fail(d, ERR_COMM, "NCCL, %s: %s", what, lib.ncclGetErrorString(e));
}

/* ---- opening ---- */

enum err comm_nccl_id(void *id, struct diag *d)
{
    ncclUniqueId made;
    TRY(nccl_here(d));
    TRY(nccl_try(lib.ncclGetUniqueId(&made), "an id for the run", d));
    memcpy(id, &made, sizeof made);
    return OK;
}

enum err comm_nccl_open(struct comm_nccl **s, struct arena *a, const void *id, int ranks, int rank, double timeout_s,
                        struct diag *d)
{
    ncclUniqueId all;
    TRY(nccl_here(d));
    memcpy(&all, id, sizeof all);
    struct comm_nccl *x = arena_alloc(a, sizeof *x);
    *x = (struct comm_nccl){ .arena = a, .rank = rank, .timeout_s = timeout_s };
    TRY(nccl_try(lib.ncclCommInitRank(&x->world, ranks, all, rank), "the world", d));
    *s = x;
    return OK;
}

void comm_nccl_close(struct comm_nccl *s)
{
    if (!s) return;
    for (struct comm *c = s->first; c; c = c->next) {
        if (c->nccl) lib.ncclCommDestroy(c->nccl);
        if (c->stream) cudaStreamDestroy(c->stream);
    }
    if (s->world) lib.ncclCommDestroy(s->world);
    s->world = NULL;
    s->first = NULL;
}

enum err comm_nccl_join(struct comm **c, struct comm_nccl *s, const char *name, int me, int n, const int32_t *rank,
                        struct diag *d)
{
    ncclComm_t nccl = NULL;
    TRY(nccl_try(lib.ncclCommSplit(s->world, me < 0 ? NCCL_SPLIT_NOCOLOR : rank[0], me, &nccl, NULL), name, d));
    *c = NULL;
    if (me < 0) return OK;
    struct comm *x = arena_alloc(s->arena, sizeof *x);
    *x = (struct comm){ .run = s, .next = s->first, .nccl = nccl, .name = name, .op = "no op yet", .me = me, .n = n };
    s->first = x;
    const cudaError_t e = cudaStreamCreateWithFlags(&x->stream, cudaStreamNonBlocking);
    if (e != cudaSuccess) return fail(d, ERR_DEVICE, "group %s: no stream: %s", name, cudaGetErrorString(e));
    *c = x;
    return OK;
}

/* ---- waiting ---- */

static double comm_nccl_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The communicator is of no use afterwards; its kernels end. */
static enum err comm_nccl_broken(struct comm *c, const char *what, struct diag *d)
{
    lib.ncclCommAbort(c->nccl);
    c->nccl = NULL;
    return fail(d, ERR_COMM, "rank %d in group %s at %s: %s", c->run->rank, c->name, c->op, what);
}

/* `e`: what the calls said; then until their stream is done. */
static enum err comm_nccl_done(struct comm *c, ncclResult_t e, struct diag *d)
{
    enum { LOOKS = 10000, NAP_NS = 20000 }; /* looks at once before it naps */
    const double from_s = comm_nccl_now_s();
    cudaError_t at = cudaErrorNotReady;
    if (e != ncclSuccess) return comm_nccl_broken(c, lib.ncclGetErrorString(e), d);
    for (int64_t i = 0; (at = cudaStreamQuery(c->stream)) == cudaErrorNotReady; i++) {
        ncclResult_t async = ncclSuccess;
        if (i < LOOKS) continue;
        if (lib.ncclCommGetAsyncError(c->nccl, &async) == ncclSuccess && async != ncclSuccess &&
            async != ncclInProgress)
            return comm_nccl_broken(c, lib.ncclGetErrorString(async), d);
        if (c->run->timeout_s > 0 && comm_nccl_now_s() - from_s > c->run->timeout_s)
            return comm_nccl_broken(
                c, "a member did not come in time: look at what the others do, or raise the time-out", d);
        nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    }
    return at == cudaSuccess ? OK : comm_nccl_broken(c, cudaGetErrorString(at), d);
}

/* A communicator that broke stays so. */
static enum err comm_nccl_sound(const struct comm *c, struct diag *d)
{
    return c->nccl
               ? OK
               : fail(d, ERR_COMM, "rank %d in group %s at %s: the group broke before", c->run->rank, c->name, c->op);
}

static ncclResult_t worse(ncclResult_t a, ncclResult_t b)
{
    return a != ncclSuccess ? a : b;
}

static int even(const int64_t *part, int n)
{
    for (int i = 1; i < n; i++)
        if (part[i] != part[0]) return 0;
    return 1;
}

/* ---- the calls ---- */

static enum err comm_nccl_gather(struct comm *c, void *out, const void *in, const int64_t *part_B, struct diag *d)
{
    TRY(comm_nccl_sound(c, d));
    if (even(part_B, c->n))
        return comm_nccl_done(c, lib.ncclAllGather(in, out, (size_t)part_B[0], ncclInt8, c->nccl, c->stream), d);
    char *to = out;
    ncclResult_t e = lib.ncclGroupStart();
    for (int i = 0; i < c->n; to += part_B[i++])
        if (part_B[i])
            e = worse(
                e, lib.ncclBroadcast(i == c->me ? in : to, to, (size_t)part_B[i], ncclInt8, i, c->nccl, c->stream));
    return comm_nccl_done(c, worse(e, lib.ncclGroupEnd()), d);
}

static enum err comm_nccl_scatter_sum(struct comm *c, float *out, const float *in, const int64_t *part_n,
                                      struct diag *d)
{
    TRY(comm_nccl_sound(c, d));
    if (even(part_n, c->n))
        return comm_nccl_done(
            c, lib.ncclReduceScatter(in, out, (size_t)part_n[0], ncclFloat, ncclSum, c->nccl, c->stream), d);
    ncclResult_t e = lib.ncclGroupStart();
    for (int i = 0; i < c->n; in += part_n[i++])
        if (part_n[i])
            e = worse(e, lib.ncclReduce(in, i == c->me ? out : NULL, (size_t)part_n[i], ncclFloat, ncclSum, i,
                                        c->nccl, c->stream));
    return comm_nccl_done(c, worse(e, lib.ncclGroupEnd()), d);
}

static enum err comm_nccl_all_reduce(struct comm *c, float *x, int64_t n, int max, struct diag *d)
{
    TRY(comm_nccl_sound(c, d));
    return comm_nccl_done(
        c, lib.ncclAllReduce(x, x, (size_t)n, ncclFloat, max ? ncclMax : ncclSum, c->nccl, c->stream), d);
}

static enum err comm_nccl_all_to_all(struct comm *c, void *out, const int64_t *recv_B, const void *in,
                                     const int64_t *send_B, struct diag *d)
{
    const char *from = in;
    char *to = out;
    TRY(comm_nccl_sound(c, d));
    ncclResult_t e = lib.ncclGroupStart();
    for (int i = 0; i < c->n; from += send_B[i], to += recv_B[i], i++) {
        if (send_B[i]) e = worse(e, lib.ncclSend(from, (size_t)send_B[i], ncclInt8, i, c->nccl, c->stream));
        if (recv_B[i]) e = worse(e, lib.ncclRecv(to, (size_t)recv_B[i], ncclInt8, i, c->nccl, c->stream));
    }
    return comm_nccl_done(c, worse(e, lib.ncclGroupEnd()), d);
}

static enum err comm_nccl_send(struct comm *c, int to, const void *in, int64_t bytes, struct diag *d)
{
    TRY(comm_nccl_sound(c, d));
    return bytes ? comm_nccl_done(c, lib.ncclSend(in, (size_t)bytes, ncclInt8, to, c->nccl, c->stream), d) : OK;
}

static enum err comm_nccl_recv(struct comm *c, int from, void *out, int64_t bytes, struct diag *d)
{
    TRY(comm_nccl_sound(c, d));
    return bytes ? comm_nccl_done(c, lib.ncclRecv(out, (size_t)bytes, ncclInt8, from, c->nccl, c->stream), d) : OK;
}

static void comm_nccl_say(struct comm *c, const char *op)
{
    c->op = op;
}

const struct comm_ops comm_nccl = {
    .name = "nccl",
    .gather = comm_nccl_gather,
    .scatter_sum = comm_nccl_scatter_sum,
    .all_reduce = comm_nccl_all_reduce,
    .all_to_all = comm_nccl_all_to_all,
    .send = comm_nccl_send,
    .recv = comm_nccl_recv,
    .say = comm_nccl_say,
};
