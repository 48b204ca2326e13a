/* NCCL as the executor would use it, with one rank: all that one GPU allows, as NCCL refuses two ranks on it. Every
 * collective of a group of one is a copy. Exit: 0 sound, 1 not, 2 no NCCL or no GPU; one line says what. */
#include "exec/comm_nccl.h"
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

enum { N = 1000 };

static int fails(const char *what, const struct diag *d)
{
    fprintf(stderr, "nccl_one: %s%s%s\n", what, d ? ": " : "", d ? d->text : "");
    return 1;
}

static enum err calls(struct comm *c, float *x, float *y, struct diag *d)
{
    const int64_t n = N / 2, part_B = N / 2 * (int64_t)sizeof *x;
    TRY(comm_nccl.gather(c, y, x, &part_B, d));
    TRY(comm_nccl.scatter_sum(c, y + n, x + n, &n, d));
    TRY(comm_nccl.all_reduce(c, x, N, 0, d));
    TRY(comm_nccl.all_reduce(c, x, N, 1, d));
    return comm_nccl.all_to_all(c, y, &part_B, x, &part_B, d);
}

int main(void)
{
    struct arena a = { 0 };
    struct comm_nccl *s = NULL;
    struct comm *c = NULL;
    struct diag d;
    char id[COMM_NCCL_ID_B];
    float *x, *y;
    const int32_t rank = 0;
    if (comm_nccl_id(id, &d) != OK || comm_nccl_open(&s, &a, id, 1, 0, 20, &d) != OK) return fails("opening", &d) + 1;
    if (cudaMallocManaged((void **)&x, N * sizeof *x, cudaMemAttachGlobal) != cudaSuccess ||
        cudaMallocManaged((void **)&y, N * sizeof *y, cudaMemAttachGlobal) != cudaSuccess)
        return fails("no memory", NULL);
    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = -1;
    if (comm_nccl_join(&c, s, "dp", 0, 1, &rank, &d) != OK || calls(c, x, y, &d) != OK) return fails("calls", &d);
    if (memcmp(x, y, N * sizeof *x) != 0 || x[N - 1] != N - 1) return fails("a group of one changed its data", NULL);
    comm_nccl_close(s);
    cudaFree(x), cudaFree(y);
    arena_free(&a);
    printf("nccl_one: every call is sound on one rank\n");
    return 0;
}
