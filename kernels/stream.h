/* What every CUDA launcher takes last: a stream. A launcher enqueues and returns; it never waits for the device. Memory is the
 * device's. ERR_LIMIT: a type or width that it has no kernel for; ERR_DEVICE: the launch was refused. */
#ifndef KERNELS_STREAM_H
#define KERNELS_STREAM_H
#include "models/base/dtype.h"
#include "models/base/err.h"
#include <stdint.h>

typedef struct CUstream_st *kstream; /* CUDA's cudaStream_t */

/* Index functions that references and kernels share. */
#if defined(__CUDACC__)
#define STREAM_BOTH __host__ __device__
#else
#define STREAM_BOTH
#endif

#endif
