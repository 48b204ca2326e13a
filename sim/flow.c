/* See flow.h. */
#include "sim/flow.h"

static int key_of(const struct program *pr, const struct op *o, int root)
{
    return 2 * root + (pr->buf[root].keep == KEEP_MICRO && o->half == HALF_BWD);
}

static uint8_t use_bits(const struct op *o)
{
    if (o->half == HALF_FWD) return FLOW_FWD;
    if (o->half == HALF_STEP) return 0;
    return o->flags & OP_WEIGHT_GRAD ? FLOW_BWD_WEIGHT : FLOW_BWD_INPUT;
}

void flow_init(struct flow *f, struct arena *a, const struct program *pr)
{
    int32_t n = 0;
    f->n_key = 2 * pr->n_buf;
    f->at = arena_alloc(a, ((size_t)pr->n_op + 1) * sizeof *f->at);
    f->use = arena_alloc(a, (size_t)pr->n_op * OP_USES * sizeof *f->use);
    f->used = arena_alloc(a, (size_t)pr->n_buf + 1);
    for (int i = 1; i < pr->n_op; i++) {
        const struct op *o = &pr->op[i];
        struct use use[OP_USES];
        const int n_use = op_uses(use, pr, o);
        f->at[i] = n;
        for (int u = 0; u < n_use; u++) {
            f->use[n++] = (struct flow_use){ key_of(pr, o, use[u].buf), use[u].access != ACCESS_READ,
                                             pr->buf[use[u].buf].keep == KEEP_MICRO };
            f->used[use[u].buf] |= use_bits(o);
        }
    }
    f->at[pr->n_op] = n;
}
