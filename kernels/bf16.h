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

/* A float in two halves, the high one rounded: up when the low one, signed, is negative. So a float32 master weight is kept
 * beside its bf16 weight in 16 bits (TransformerEngine, multi_tensor_adam with parameter remainders). Exact, and of
 * numbers exactly half way between two of bf16 the high half is the larger magnitude, not the even one. */
static inline void bf16_split(bf16 *high, int16_t *low, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t rest = (uint16_t)bits;
    *high = (bf16)((bits >> 16) + (rest >> 15));
    memcpy(low, &rest, sizeof rest);
}

static inline float bf16_join(bf16 high, int16_t low)
{
    const uint32_t bits = ((uint32_t)high - (low < 0)) << 16 | (uint16_t)low;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* y[i] = x[i], i < n. */
enum err bf16_widen_ref(float *y, const bf16 *x, int64_t n);
enum err bf16_narrow_ref(bf16 *y, const float *x, int64_t n);

#endif
