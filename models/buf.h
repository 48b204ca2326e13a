/* A buffer: a shape. Bytes and lifetime are never stored: they follow from the shape and from uses (unroll). */
#ifndef MODELS_BUF_H
#define MODELS_BUF_H
#include "models/base/dtype.h"
#include <stdint.h>

enum keep  { KEEP_MICRO, KEEP_WEIGHT, KEEP_GRADIENT, KEEP_OPTIMIZER, KEEP_METRIC,
             KEEP_CACHE };      /* MICRO: each has one; CACHE: workspaces and what else a framework never gives back */
enum place_of_buf { PLACE_DEVICE, PLACE_HOST,
                    PLACE_PEER };      /* on the device, registered with peers: no allocator has it */

struct buf {                        /* id 0 is no buffer                                                       */
    int64_t rows;                   /* capacity: the arena holds this many                                     */
    int32_t cols;
    int32_t size, size_at;          /* 0, or the int32 buffer that holds the true row count, and where in it   */
    int32_t view; int64_t view_at;  /* 0, or the buffer this is a window of, and its first element there       */
    int16_t chunk; uint8_t dtype, keep, place;
    int16_t stage;                  /* owner of a buffer that is kept for ever; -1 for KEEP_MICRO              */
    int32_t groups; int16_t pad;    /* pad 0, or the rows of each of `groups` experts are rounded up to a multiple of it */
};

static inline int64_t buf_B(const struct buf *b) { return dtype_all_B((enum dtype)b->dtype, b->rows * b->cols); }
/* Rows with padding, when all experts get equally many. */
static inline int64_t buf_padded(int64_t rows, int32_t groups, int16_t pad)
{
    const int64_t each = (rows + groups - 1) / groups;
    return groups * ((each + pad - 1) / pad * pad);
}

#endif
