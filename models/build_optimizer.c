/* The optimizer pass of a stage: gradient norm over all ranks, then each rank updates its part of every
 * bucket (distributed optimizer, ZeRO-1) and the parts are gathered. The metric (losses, square sum) is
 * reduced over the world in one call. Where gathers go under the next forward they are the chunk's
 * (build_bucket.c). */
#include "models/build.h"

/* Who holds all of a bucket that each updates a part of. */
static enum group holders(const struct bucket *k)
{
    return k->whole ? GROUP_NONE : (enum group)k->share_group;
}

static void square_sums(struct build *b)
{
    const struct program *pr = b->pr;
    for (int i = 0; i < pr->n_bucket; i++) {
        const struct bucket k = pr->bucket[i];
        if (k.stage != b->stage) continue;
        b->layer = k.layer;
        struct op *o = emit(b, OP_SUMSQ, STREAM_COMPUTE, holders(&k),
                            (struct io){ .add = { pr->metric + b->stage }, .read = { k.g } });
        o->copies = k.copies;
    }
    b->layer = -1;
    emit_all_reduce(b, GROUP_WORLD, pr->metric + b->stage, 0);
}

/* Gradients go down while others are updated; the host's thread, which issues nothing meanwhile, does
 * one bucket after the other (--overlap-cpu-optimizer-d2h-h2d). */
static void send_gradient(struct build *b, const struct bucket *k)
{
    b->layer = k->layer;
    emit(b, OP_OFFLOAD, STREAM_D2H, holders(k), (struct io){ .write = { k->host_g }, .read = { k->g } });
}

static void gather(struct build *b, const struct bucket *k)
{
    const enum group share = holders(k);
    if (b->pr->group_size[share] > 1 && b->j->plan.dp_overlap != DP_OVERLAP_BOTH)
        emit(b, OP_PARAM_GATHER, emit_stream(b, share), share, (struct io){ .add = { k->w } });
}

static void update_on_host(struct build *b, const struct bucket *k)
{
    const enum group share = holders(k);
    b->layer = k->layer;
    emit(b, OP_HOST_ADAMW, STREAM_COMPUTE, share,
         (struct io){ .add = { k->host_master, k->m, k->v }, .read = { k->host_g, b->pr->metric + b->stage } })
        ->flags |= OP_HOST_READS;
    emit(b, OP_RELOAD, STREAM_H2D, GROUP_NONE,
         (struct io){ .write = { k->master }, .read = { k->host_master } });
    emit(b, OP_CAST, STREAM_COMPUTE, share, (struct io){ .add = { k->w }, .read = { k->master } });
    gather(b, k);
}

static void update(struct build *b, const struct bucket *k)
{
    const int metric = b->pr->metric + b->stage;
    const enum group share = holders(k);
    b->layer = k->layer;
    if (k->m)
        emit(b, OP_ADAMW, STREAM_COMPUTE, share,
             (struct io){ .add = { k->w, k->master, k->m, k->v }, .read = { k->g, metric } });
    else
        emit(b, OP_SGD, STREAM_COMPUTE, share,
             (struct io){ .add = { k->w, k->master }, .read = { k->g, metric } });
    gather(b, k);
}

static void at_end(struct build *b)
{
    build_bucket_reduce_tables(b);
    square_sums(b);
    for (int i = 0; i < b->pr->n_bucket; i++) {
        const struct bucket k = b->pr->bucket[i];
        if (k.stage == b->stage && k.host_g) send_gradient(b, &k);
    }
    for (int i = 0; i < b->pr->n_bucket; i++) {
        const struct bucket k = b->pr->bucket[i];
        if (k.stage == b->stage && !k.host_g) update(b, &k);
    }
    for (int i = 0; i < b->pr->n_bucket; i++) {
        const struct bucket k = b->pr->bucket[i];
        if (k.stage == b->stage && k.host_g) update_on_host(b, &k);
    }
}

static void at_start(struct build *b)
{
    emit(b, OP_ZERO, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { b->pr->metric + b->stage } });
    for (int i = 0; i < b->pr->n_bucket; i++) {
        const struct bucket k = b->pr->bucket[i];
        if (k.stage != b->stage || build_bucket_zeroed_late(b, &k)) continue;
        b->layer = k.layer;
        emit(b, OP_ZERO, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { k.g } });
    }
}

void build_optimizer(struct build *b)
{
    struct stage *s = &b->pr->stage[b->stage];
    b->half = HALF_STEP;
    b->flags = b->part = 0;
    b->chunk = -1;
    b->layer = -1;
    s->optim = b->pr->n_op;
    at_end(b);
    s->start = b->pr->n_op;
    b->layer = -1;
    emit_quantize_weights(b);
    at_start(b);
    s->end = b->pr->n_op;
}
