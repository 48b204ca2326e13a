/* Plans in low precision, and which of their ops and buffers are low. */
#ifndef TESTS_LOW_H
#define TESTS_LOW_H
#include "tests/sound.h"

#define QWEN "model qwen3-30b-a3b gpus 8 ep 8 gbs 64 seq 4096 "
#define HOPPER "system h100-sxm precision "
#define BLACKWELL "system gb200-nvl72 precision "

static inline int low_buf(const struct program *pr, int id)
{
    return id && dtype_formats[pr->buf[id].dtype].bits <= 8;
}

#endif
