/* Parameters and gradients cut over their replicas (plan.fsdp: Megatron-FSDP `optim_grads_params`,
 * ZeRO-3). A unit (a layer, the input table, the head) is gathered before it is used, and reduced after
 * its backward. Layers take two buffers in turn, so that the next one is gathered while one is at work,
 * and no earlier; likewise two for gradients, one filled while the other is reduced
 * (megatron/core/distributed/fsdp/src/docs/runtime_schedule.md: prefetching, fused weight gradients). What
 * is no layer has buffers of its own and stays until its backward is over: only units are released after
 * forward (megatron_fsdp.py, _post_forward). Gathers and reductions share one stream: they share the links
 * too. */
#include "models/build.h"
#include <assert.h>

int build_shard_cuts(const struct build *b, enum group share)
{
    return b->j->plan.fsdp && b->pr->group_size[share] > 1;
}

int build_shard_on_host(struct build *b, int64_t part)
{
    b->states += part;
    const double most = b->j->plan.offload_optimizer * (double)b->states;
    if (most <= 0 || (double)(b->on_host + part) > most * (1 + 1e-9)) return 0;
    b->on_host += part;
    return 1;
}

void build_shard_close(struct build *b)
{
    if (!b->bound) return;
    if (b->n_unit == b->cap_unit) {
        const int32_t more = b->cap_unit ? 2 * b->cap_unit : 64;
        b->unit = arena_grow(b->arena, b->unit, (size_t)b->cap_unit, (size_t)more, sizeof *b->unit);
        b->cap_unit = more;
    }
    b->unit[b->n_unit++] = (struct gathered){ b->unit_from, b->pr->n_bucket - b->unit_from };
    b->unit_from = b->pr->n_bucket;
}

void build_shard_begin(struct build *b)
{
    b->n_pool = 0;
}

/* The buffer of this turn for buckets shared as `k` is, as large as the largest of them. BUILD_OWN: a new
 * one. */
static int pool_buf(struct build *b, const struct bucket *k, int grad, int turn)
{
    const struct buf whole = b->pr->buf[grad ? k->whole_g : k->whole];
    int i = turn == BUILD_OWN ? b->n_pool : 0;
    for (; i < b->n_pool; i++) {
        const struct pool *p = &b->pool[i];
        if (p->sum_group == k->sum_group && p->share_group == k->share_group && p->dtype == whole.dtype &&
            p->turn == turn && p->grad == grad)
            break;
    }
    if (i == b->n_pool) {
        const int buf = emit_buf(b, whole.rows, 1, (enum dtype)whole.dtype);
        if (turn == BUILD_OWN) return buf;
        assert(b->n_pool < LEN(b->pool));
        b->pool[b->n_pool++] = (struct pool){ .buf = buf, .sum_group = k->sum_group, .share_group = k->share_group,
                                              .dtype = whole.dtype, .turn = (uint8_t)turn, .grad = (uint8_t)grad };
    }
    const int buf = b->pool[i].buf;
    if (b->pr->buf[buf].rows < whole.rows) b->pr->buf[buf].rows = whole.rows;
    return buf;
}

/* From here on the bucket's parameters (or gradients) are in this turn's buffer. Returns a window of its
 * size. */
static int turn_to(struct build *b, const struct bucket *k, int grad, int turn)
{
    const int whole = grad ? k->whole_g : k->whole, buf = pool_buf(b, k, grad, turn);
    b->bound[whole].to = buf;
    return emit_bound(b, whole);
}

void build_shard_gather(struct build *b, int unit, int turn)
{
    if (!b->bound) return;
    const struct gathered u = b->unit[unit];
    const int layer = b->layer;
    for (int i = u.first; i < u.first + u.n; i++) {
        const struct bucket k = b->pr->bucket[i];
        if (!k.whole) continue;
        b->layer = k.layer;
        const int to = turn_to(b, &k, 0, turn);
        emit(b, OP_GATHER, emit_stream(b, (enum group)k.share_group), (enum group)k.share_group,
             (struct io){ .write = { to }, .read = { k.w } });
    }
    b->layer = layer;
}

void build_shard_gradients(struct build *b, int unit, int turn)
{
    if (!b->bound) return;
    const struct gathered u = b->unit[unit];
    const int layer = b->layer;
    for (int i = u.first; i < u.first + u.n; i++) {
        const struct bucket k = b->pr->bucket[i];
        if (!k.whole) continue;
        b->layer = k.layer;
        const int to = turn_to(b, &k, 1, turn);
        emit(b, OP_ZERO, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { to } });
    }
    b->layer = layer;
}

void build_shard_scatter(struct build *b, int unit)
{
    if (!b->bound) return;
    const struct gathered u = b->unit[unit];
    const int layer = b->layer;
    for (int i = u.first + u.n - 1; i >= u.first; i--) {
        const struct bucket k = b->pr->bucket[i];
        if (!k.whole) continue;
        b->layer = k.layer;
        emit(b, OP_SCATTER_ADD, emit_stream(b, (enum group)k.share_group), (enum group)k.share_group,
             (struct io){ .add = { k.g }, .read = { k.whole_g } });
    }
    b->layer = layer;
}
