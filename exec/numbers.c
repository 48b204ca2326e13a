#include "exec/numbers.h"
#include <assert.h>

void numbers_get(float *to, struct numbers x, int64_t at, int64_t n)
{
    const bf16 *b16 = x.p;
    const int16_t *low = x.p;
    switch (x.type) {
    case DT_F32: memcpy(to, (const float *)x.p + at, (size_t)n * sizeof *to); break;
    case DT_BF16: for (int64_t i = 0; i < n; i++) to[i] = bf16_to_float(b16[at + i]); break;
    default:
        assert(x.type == DT_I16);
        for (int64_t i = at; i < at + n; i++) *to++ = bf16_join(x.high[i], low[i]);
    }
}

void numbers_set(struct numbers x, int64_t at, const float *from, int64_t n)
{
    bf16 *b16 = x.p;
    int16_t *low = x.p, rest;
    switch (x.type) {
    case DT_F32: memcpy((float *)x.p + at, from, (size_t)n * sizeof *from); break;
    case DT_BF16:
        for (int64_t i = 0; i < n; i++)
            if (x.up) bf16_split(&b16[at + i], &rest, from[i]);
            else b16[at + i] = bf16_of_float(from[i]);
        break;
    default:
        assert(x.type == DT_I16);
        for (int64_t i = at; i < at + n; i++) bf16_split(&x.high[i], &low[i], *from++);
    }
}
