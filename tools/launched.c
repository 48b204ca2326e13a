#include "tools/launched.h"
#include <stdlib.h>

/* Open MPI, MPICH and its kin, MVAPICH2. */
static int number_of(const char *const names[3], int otherwise)
{
    for (int i = 0; i < 3; i++)
        if (getenv(names[i])) return atoi(getenv(names[i]));
    return otherwise;
}

int launched_processes(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE" };
    return number_of(names, 1);
}

int launched_first(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK" };
    return number_of(names, 0) == 0;
}
