/* What a launcher (mpirun, srun) says to the processes that it starts, before any of them takes a seat (exec/world.h). */
#ifndef TOOLS_LAUNCHED_H
#define TOOLS_LAUNCHED_H

int launched_processes(void);           /* of the job; 1: nothing launched this one */
int launched_first(void);               /* whether it is the job's first, which speaks for all */

#endif
