/* Ranks as processes. Each is forked with all that ranks share mapped and open; a pipe from it tells its parent of
 * rank 0's steps and, by closing, of its end, however it came: so nobody polls. A rank that dies is the run's error and
 * breaks all communicators; ranks that then do not end by themselves are killed. */
#include "exec/exec_rank.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRACE_MS = 5000 };   /* for ranks of a broken run to finish the op that they are at */

struct child { pid_t pid; int steps; };

/* Never returns: what the parent left in its streams and at its exit is the parent's. */
static _Noreturn void exec_fork_child(struct exec_rank *r, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    exec_rank_main(r);
    _exit(0);
}

static enum err exec_fork_one(struct pollfd *told, struct child *k, struct exec_rank *r, struct diag *d)
{
    int end[2];
    const pid_t parent = getpid();
    if (pipe2(end, O_CLOEXEC) != 0)
        return fail(d, ERR_LIMIT, "no pipe for rank %d: %s; run fewer ranks", r->rank, strerror(errno));
    r->told = end[1];
    k->pid = fork();
    if (k->pid == 0) exec_fork_child(r, parent);
    close(end[1]);
    *told = (struct pollfd){ .fd = end[0], .events = POLLIN };
    if (k->pid > 0) return OK;
    close(end[0]);
    return fail(d, ERR_LIMIT, "no process for rank %d: %s; run fewer ranks", r->rank, strerror(errno));
}

static void exec_fork_ended(struct exec_shared *x, int rank, pid_t pid)
{
    int status = 0;
    struct diag d;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (WIFSIGNALED(status))
        exec_rank_fail(&x->rank[rank], fail(&d, ERR_COMM, "rank %d died (process %d): %s", rank, (int)pid, strsignal(WTERMSIG(status))),
                       &d);
    else if (WEXITSTATUS(status) != 0)
        exec_rank_fail(&x->rank[rank], fail(&d, ERR_COMM, "rank %d ended (process %d) with status %d", rank, (int)pid,
                                            WEXITSTATUS(status)), &d);
}

/* What one pipe has to say; 0: it was the last. */
static int exec_fork_hear(struct exec_shared *x, struct pollfd *told)
{
    int step;
    const ssize_t n = read(told->fd, &step, sizeof step);
    if (n < 0 && errno == EINTR) return 1;
    if (n == (ssize_t)sizeof step) {
        x->ask->report(x->ask->user, step, &x->rank[0].step[step]);
        return 1;
    }
    close(told->fd);
    told->fd = -1;              /* poll passes over it */
    return 0;
}

void exec_fork_go(struct exec_shared *x)
{
    struct arena a = { 0 };
    struct pollfd *told = arena_alloc(&a, (size_t)x->n_rank * sizeof *told);
    struct child *child = arena_alloc(&a, (size_t)x->n_rank * sizeof *child);
    int64_t killed_ns = 0;
    int n = 0, alive;
    struct diag d;
    for (enum err e = OK; n < x->n_rank && e == OK; n += e == OK)
        if ((e = exec_fork_one(&told[n], &child[n], &x->rank[n], &d)) != OK) exec_rank_fail(&x->rank[n], e, &d);
    for (alive = n; alive > 0;) {
        const int broken = atomic_load(&x->stop);
        if (broken && !killed_ns) killed_ns = bell_now_ns() + (int64_t)GRACE_MS * 1000000;
        if (poll(told, (nfds_t)n, broken ? 100 : -1) < 0 && errno != EINTR) break;
        for (int i = 0; i < n; i++)
            if (told[i].fd >= 0 && told[i].revents && !exec_fork_hear(x, &told[i])) {
                exec_fork_ended(x, i, child[i].pid);
                alive--;
            }
        for (int i = 0; i < n && killed_ns && bell_now_ns() > killed_ns; i++)
            if (told[i].fd >= 0) kill(child[i].pid, SIGKILL);
    }
    arena_free(&a);
}
