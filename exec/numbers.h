/* Numbers as buffers keep them: float32, bf16, or float32 in two halves, of which bf16 weights are the high one
 * (plan.master `remainder`). Read and written as float32. */
#ifndef EXEC_NUMBERS_H
#define EXEC_NUMBERS_H
#include "kernels/bf16.h"
#include "models/buf.h"

struct numbers {
    void *p;
    enum dtype type;            /* DT_F32, DT_BF16, or DT_I16: the low halves */
    bf16 *high;                 /* of DT_I16: the high ones */
    int up;                     /* of DT_BF16: high halves, rounded as bf16_split does, not to even */
};

/* Elements [at, at + n) as float32. */
void numbers_get(float *to, struct numbers x, int64_t at, int64_t n);
/* The same, written: rounded where `x` is bf16, exact in two halves, which writes `high` too. */
void numbers_set(struct numbers x, int64_t at, const float *from, int64_t n);

#endif
