/* Who uses what, flattened once per program: the uses of every op, keyed so that the two micro-batches of a
 * FWD_BWD pass stay apart, and in which parts of a micro-batch's passes every buffer is used. Pass prices and
 * the op-by-op clock derive the same deps from it as unroll does from lives: read after write, write after read
 * or write. */
#ifndef SIM_FLOW_H
#define SIM_FLOW_H
#include "models/program.h"

struct flow_use {
    int32_t key;                /* 2 root + 1 where a BWD half binds a micro-batch's buffer                    */
    uint8_t writes, micro;      /* written or added to; each micro-batch has its own                           */
};
enum { FLOW_FWD = 1, FLOW_BWD_INPUT = 2, FLOW_BWD_WEIGHT = 4 };
struct flow {
    int32_t *at;                /* uses of op i: use[at[i]] .. use[at[i + 1] - 1]                              */
    struct flow_use *use;
    uint8_t *used;              /* per root buffer: FLOW_ bits                                                 */
    int32_t n_key;
};
void flow_init(struct flow *f, struct arena *a, const struct program *pr);

static inline int flow_root(int key) { return key >> 1; }
/* Bytes that a micro-batch's life of the key takes on the device; 0 for what is kept for ever or lies on the host. */
static inline double flow_B(const struct program *pr, int key)
{
    const struct buf *b = &pr->buf[flow_root(key)];
    return b->keep == KEEP_MICRO && b->place != PLACE_HOST ? (double)program_B(pr, flow_root(key)) : 0;
}

#endif
