/* bfloat16: the upper half of a float. Numbers are stored in it and computed with as floats. */
#ifndef KERNELS_BF16_H
#define KERNELS_BF16_H
#include "models/base/err.h"
#include <stdint.h>
#include <string.h>

typedef uint16_t bf16;

static inline float bf16_to_float(bf16 x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* To the nearest, ties to even; not a number stays so. */
static inline bf16 bf16_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1);
    return (bf16)((x != x ? bits | 0x400000u : rounded) >> 16);
}

/* y[i] = x[i], i < n. */
enum err bf16_widen_ref(float *y, const bf16 *x, int64_t n);
enum err bf16_narrow_ref(bf16 *y, const float *x, int64_t n);

#endif
