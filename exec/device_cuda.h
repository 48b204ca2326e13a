/* The GPU under the CUDA backend: memory that host and device both see, the calling thread's stream, marks in streams
 * (events). Needs no CUDA header. Functions that return text say what the GPU says; NULL: nothing went wrong. */
#ifndef EXEC_DEVICE_CUDA_H
#define EXEC_DEVICE_CUDA_H
#include "exec/backend.h"

/* ERR_DEVICE: no driver, no GPU, one that kernels were not built for, or that cannot share memory with a working
 * host. */
enum err device_open(struct diag *d);
int64_t device_memory_B(void);
/* NULL: more than is free. Pages lie where they were last used. */
void *device_arena_new(int64_t bytes);
void device_arena_free(void *p);
void device_arena_filled(void *p, int64_t bytes);

/* Of the calling thread. */
kstream device_stream(void);
const char *device_wait(void);

/* Memory of one op: taken and given back in stream order, so nobody waits. */
const char *device_scratch_new(void **p, int64_t bytes);
const char *device_scratch_free(void *p);
const char *device_zero(void *p, int64_t bytes);
/* One may be the host's; returns when the host's is free again, or written. */
const char *device_copy(void *to, const void *from, int64_t bytes);

void *device_mark_new(void);
void device_mark_free(void *mark);
const char *device_mark(void *mark);
const char *device_after(void *mark);
const char *device_reached(void *mark);
double device_between_s(void *from, void *to);

/* Copies and sums of communicators among ranks on this GPU (local_cuda.c). */
extern const struct comm_mover local_mover;

#endif
