/* Members of one group for test_comm: threads, forked processes, processes of an MPI job (TEST_MPI), or logical ranks on one
 * device (TEST_LOCAL). */
#ifndef TESTS_COMM_MEMBERS_H
#define TESTS_COMM_MEMBERS_H
#include "exec/comm_shm.h"
#ifdef TEST_MPI
#include "exec/comm_mpi.h"
#include <mpi.h>
#endif
#ifdef TEST_LOCAL
#include "exec/device_cuda.h"
#endif
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 16, WORDS = 4096 };
#ifdef TEST_MPI
enum { FIRST = 0 };                 /* rank of the first member: a rank is a process */
#else
enum { FIRST = 10 };
#endif

struct member {
    const struct comm_ops *ops; struct comm *c;
    void *run; void (*broken)(void *run, const char *why);
    int me, n;
    enum err e; struct diag d;
    void (*body)(struct member *m);
    float out[WORDS];
};

static const int sizes[] = { 2, 3, 5, 8, MOST };

#ifdef TEST_MPI
static void break_mpi(void *run, const char *why) { comm_mpi_break(run, why); }
#else
static void break_shm(void *run, const char *why) { comm_shm_break(run, why); }

static void *member_main(void *arg)
{
    struct member *m = arg;
    m->body(m);
    return NULL;
}
#endif

static void has(const struct member *m, const char *format, int member)
{
    char text[128];
    snprintf(text, sizeof text, format, FIRST + member, FIRST + member + 1);
    ck_assert_msg(strstr(m->d.text, text) != NULL, "\"%s\" is not in: %s", text, m->d.text);
}

#ifdef TEST_MPI
/* Every process is one member; those of higher numbers only look on. */
static void run_all(struct member *m, int n, double timeout_s, void (*body)(struct member *m))
{
    struct arena a = { 0 };
    struct comm_mpi *s;
    struct diag d;
    int32_t rank[MOST];
    int me, processes;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    ck_assert_int_ge(processes, n);
    ck_assert_msg(comm_mpi_open(&s, &a, timeout_s, &d) == OK, "%s", d.text);
    for (int i = 0; i < n; i++) rank[i] = i;
    struct member *at = arena_alloc(&a, sizeof *at);
    *at = (struct member){ .ops = &comm_mpi, .run = s, .broken = break_mpi, .me = me, .n = n, .body = body };
    at->c = comm_mpi_join(s, "dp", 10, me < n ? me : -1, n, rank);
    if (at->c) {
        at->ops->say(at->c, "TEST_OP");
        body(at);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) {
        if (i == me) m[i] = *at;
        MPI_Bcast(&m[i], sizeof m[i], MPI_BYTE, i, MPI_COMM_WORLD);
    }
    comm_mpi_close(s);
    arena_free(&a);
}
#else
static int forked;                  /* what the members are; each TCase sets it */
static void as_threads(void) { forked = 0; }
#ifndef TEST_LOCAL                  /* whose members are threads */
static void as_processes(void) { forked = 1; }
#endif

static void go_threads(struct member *m, int n)
{
    pthread_t t[MOST];
    for (int i = 0; i < n; i++) ck_assert_int_eq(pthread_create(&t[i], NULL, member_main, &m[i]), 0);
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
}

static void go_processes(struct member *m, int n)
{
    pid_t pid[MOST];
    int status;
    for (int i = 0; i < n; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            member_main(&m[i]);
            _exit(0);
        }
    }
    for (int i = 0; i < n; i++) ck_assert(waitpid(pid[i], &status, 0) == pid[i] && status == 0);
}

/* Runs `body` on `n` members of one group; `m` receives what each ended with. */
static void run_all(struct member *m, int n, double timeout_s, void (*body)(struct member *m))
{
    struct arena a = { .shared = forked };
    struct comm_shm *s = comm_shm_open(&a, timeout_s);
    struct member *at = arena_alloc(&a, (size_t)n * sizeof *at);
    int32_t rank[MOST];
#ifdef TEST_LOCAL
    comm_shm_move_by(s, &local_mover);
#endif
    if (forked) comm_shm_reserve(s, WORDS * (int64_t)sizeof(float));
    for (int i = 0; i < n; i++) rank[i] = FIRST + i;
    for (int i = 0; i < n; i++) {
        at[i] = (struct member){ .ops = &comm_shm, .run = s, .broken = break_shm, .me = i, .n = n, .body = body };
        at[i].c = comm_shm_join(s, "dp", 10, i, n, rank);
        at[i].ops->say(at[i].c, "TEST_OP");
    }
    if (forked) go_processes(at, n);
    else go_threads(at, n);
    memcpy(m, at, (size_t)n * sizeof *m);
    arena_free(&a);
}
#endif

#endif
