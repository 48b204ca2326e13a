/* An MPI job as a world. One thing at a time outside collectives: agree and share are of the host's thread alone, on a
 * communicator of their own, so that they work when a run's communicators are broken. */
#include "exec/bell.h"
#include "exec/comm_mpi.h"
#include "exec/world.h"
#include <mpi.h>
#include <string.h>
#include <unistd.h>

static MPI_Comm all_of_us;
static int me, processes;
static int32_t stopped;                 /* a run was broken off here */
static int lost;                        /* a process did not come: collectives are over */
enum { GRACE_S = 5, NAP_US = 200 };     /* for a process to come, when this one has failed */

static enum err mpi_open(struct world_seat *seat, struct diag *d)
{
    MPI_Comm here;
    int threads, near;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &threads) != MPI_SUCCESS)
        return fail(d, ERR_COMM, "MPI does not start");
    MPI_Comm_dup(MPI_COMM_WORLD, &all_of_us);
    MPI_Comm_rank(all_of_us, &me);
    MPI_Comm_size(all_of_us, &processes);
    MPI_Comm_split_type(all_of_us, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &near);
    MPI_Comm_free(&here);
    *seat = (struct world_seat){ .process = me, .processes = processes, .one_host = near == processes };
    return OK;
}

static enum err mpi_begin(void **run, struct arena *a, double timeout_s, struct diag *d)
{
    return comm_mpi_open((struct comm_mpi **)run, a, timeout_s, d);
}

static struct comm *mpi_join(void *run, const char *name, int64_t key, int seat, int n, const int32_t *rank)
{
    return comm_mpi_join(run, name, key, seat, n, rank);
}

static void mpi_stop(void *run, const char *why)
{
    stopped = 1;
    comm_mpi_break(run, why);
}

static void mpi_end(void *run)
{
    if (!lost) comm_mpi_close(run);
}

struct verdict { int32_t e; char text[sizeof(((struct diag *)0)->text)]; };

/* 0: somebody did not come. Who has not failed waits as long as it takes. */
static int came(MPI_Request *r, enum err mine)
{
    const int64_t end_ns = bell_now_ns() + (int64_t)GRACE_S * 1000000000;
    for (int done = 0;;) {
        MPI_Test(r, &done, MPI_STATUS_IGNORE);
        if (done) return 1;
        if (mine != OK && bell_now_ns() > end_ns) return 0;
        usleep(NAP_US);
    }
}

static enum err mpi_agree(enum err mine, struct diag *d)
{
    MPI_Request asked;
    if (lost) return mine;
    struct verdict v = { .e = mine }, said;
    int32_t all[2] = { processes, processes }, first[2];    /* who failed first, for reasons of its own or not */
    if (mine != OK) {
        memcpy(v.text, d->text, sizeof v.text);
        all[1] = me;
        if (mine != ERR_COMM) all[0] = me;
    }
    MPI_Iallreduce(all, first, 2, MPI_INT32_T, MPI_MIN, all_of_us, &asked);
    lost = !came(&asked, mine);
    if (lost) return mine;
    const int who = first[0] < processes ? first[0] : first[1];
    if (who == processes) return OK;
    said = v;
    MPI_Bcast(&said, (int)sizeof said, MPI_BYTE, who, all_of_us);
    return fail(d, (enum err)said.e, "%s", said.text);
}

static void mpi_share(void *all, const int64_t *part_B)
{
    enum { PIECE_B = 1 << 30 };
    char *at = all;
    for (int p = 0; p < processes; at += part_B[p++])
        for (int64_t done_B = 0; done_B < part_B[p]; done_B += PIECE_B) {
            const int64_t left_B = part_B[p] - done_B;
            MPI_Bcast(at + done_B, (int)(left_B < PIECE_B ? left_B : PIECE_B), MPI_BYTE, p, all_of_us);
        }
}

/* The first has spoken when it comes here; with a process lost the others give it the time for that. */
static void give_up(int status)
{
    if (me) sleep(1);
    MPI_Abort(all_of_us, status ? status : 1);
}

/* After a run was broken off messages may be under way for ever, so that MPI could not finish. */
static void mpi_close(int status)
{
    int32_t any = 0;
    if (lost) give_up(status);
    MPI_Allreduce(&stopped, &any, 1, MPI_INT32_T, MPI_MAX, all_of_us);
    if (any) give_up(status);
    MPI_Comm_free(&all_of_us);
    MPI_Finalize();
}

extern const struct world world_module;
__attribute__((visibility("default"))) const struct world world_module = {
    .version = WORLD_VERSION,
    .name = "mpi",
    .ops = &comm_mpi,
    .open = mpi_open,
    .begin = mpi_begin,
    .join = mpi_join,
    .stop = mpi_stop,
    .end = mpi_end,
    .agree = mpi_agree,
    .share = mpi_share,
    .close = mpi_close,
};
