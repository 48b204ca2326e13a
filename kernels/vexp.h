/* Inside the fast CPU kernels: exp without branches or calls, so that loops over it become vector code. Within
 * 2 units in the last place of expf on [-87, 88]; below that 0, above it infinity; not a number stays so. Range
 * reduction by powers of two and the Taylor polynomial of degree 7 on |r| <= ln(2) / 2, whose error there is
 * below 6e-9. */
#ifndef KERNELS_VEXP_H
#define KERNELS_VEXP_H
#include <stdint.h>

/* 2^n, |n| <= 126. */
static inline float vexp_power(int32_t n)
{
    const union { int32_t bits; float x; } power = {(n + 127) << 23};
    return power.x;
}

static inline float vexp(float x)
{
    const float magic = 12582912.0f;    /* 1.5 * 2^23: adding it rounds to whole numbers */
    const float most = 88.72283f, least = -87.33654f;
    const float at = x > most ? most : x < least ? least : x;
    const float n = (at * 1.44269504f + magic) - magic;
    const float r = (at - n * 0.693359375f) + n * 2.12194440e-4f;   /* ln(2) in two parts */
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1;
    p = p * r + 1;
    const int32_t whole = (int32_t)(n == n ? n : 0);    /* NaN is no int; p is NaN then */
    const int32_t half = whole / 2, rest = whole - half;    /* 2^128 is no float, 2^64 is */
    const float y = p * vexp_power(half) * vexp_power(rest);
    return x < least ? 0 : x > most ? y * 3.4e38f : y;
}

#endif
