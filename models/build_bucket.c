/* Parameters live in buckets: one weight buffer, one gradient buffer and one set of optimizer state per layer
 * and way of sharing, so that a reduction is one call and an optimizer part a slice, without copies. Ways of
 * sharing: DENSE (cut over tp, or tp is 1), REPLICATED (whole on every tp rank; gradients summed over tp
 * first, since with sequence parallelism every rank saw its own tokens), KV (K/V heads held by several tp
 * ranks), TABLE (copies of the input table on two stages), EXPERT (cut over ep and etp, shared over edp). */
#include "models/build.h"
#include <assert.h>
#include <string.h>

enum way { WAY_DENSE, WAY_REPLICATED, WAY_KV, WAY_TABLE, WAY_EXPERT, WAY_COUNT };

static enum way way_of(const struct build *b, enum param_name name, enum shard shard, int batch)
{
    const int *size = b->pr->group_size;
    if (batch) return WAY_EXPERT;
    if (name == PARAM_EMBEDDING && size[GROUP_EMBED] > 1) return WAY_TABLE;
    if (shard == SHARD_KV && size[GROUP_KV] > 1) return WAY_KV;
    return shard == SHARD_NONE && size[GROUP_TP] > 1 ? WAY_REPLICATED : WAY_DENSE;
}

static enum group sum_group(enum way way)
{
    switch (way) {
    case WAY_REPLICATED: return GROUP_TP;
    case WAY_KV: return GROUP_KV;
    case WAY_TABLE: return GROUP_EMBED;
    default: return GROUP_NONE;
    }
}

static enum dtype grad_dtype(const struct build *b)
{
    return b->j->plan.grads == STATE_FP32 ? DT_F32 : b->act;
}

static enum dtype moment_dtype(const struct build *b)
{
    static const enum dtype of[] = { [STATE_FP32] = DT_F32, [STATE_BF16] = DT_BF16, [STATE_FP8] = DT_FP8 };
    return of[b->j->plan.moments];
}

/* Matrices whose products take copies of low precision: those of the layers, but not the router. */
static int is_low(enum param_name name)
{
    switch (name) {
    case PARAM_Q: case PARAM_K: case PARAM_V: case PARAM_O: case PARAM_Q_A: case PARAM_Q_B: case PARAM_KV_A:
    case PARAM_KV_B: case PARAM_FC1: case PARAM_FC2: case PARAM_EXPERT_FC1: case PARAM_EXPERT_FC2:
    case PARAM_SHARED_FC1: case PARAM_SHARED_FC2: case PARAM_MTP_PROJ: case PARAM_MAMBA_IN: case PARAM_MAMBA_OUT:
    case PARAM_LATENT_DOWN: case PARAM_LATENT_UP: return 1;
    default: return 0;
    }
}

/* A root buffer that lives for ever; rows grow as parameters are laid into it. */
static int root(struct build *b, int64_t rows, enum dtype t, enum keep keep)
{
    const int id = emit_buf(b, rows, 1, t);
    b->pr->buf[id].keep = (uint8_t)keep;
    b->pr->buf[id].stage = (int16_t)b->stage;
    return id;
}

static int view(struct build *b, int of, int64_t at, int64_t rows, int cols)
{
    const struct buf from = b->pr->buf[of];
    const int id = emit_buf(b, rows, cols, (enum dtype)from.dtype);
    struct buf *v = &b->pr->buf[id];
    v->keep = from.keep;
    v->stage = from.stage;
    v->view = from.view ? from.view : of;
    v->view_at = at;
    return id;
}

/* The weight buffer of a bucket without bf16 originals: in low precision; or, where gathers send bf16, in the
 * memory of the gradients, which nobody needs between the update and the next step (Megatron-LM
 * --reuse-grad-buf-for-mxfp8-param-ag). */
static int low_root(struct build *b, int g)
{
    if (b->recipe->sends_B == 1) return root(b, 1, (enum dtype)b->recipe->w, KEEP_WEIGHT);
    const int id = view(b, g, 0, 1, 1);
    b->pr->buf[id].dtype = (uint8_t)b->act;
    return id;
}

static struct bucket *bucket_open(struct build *b, enum way way, int low)
{
    struct program *pr = b->pr;
    int32_t *open = &b->open[way + low * WAY_COUNT];
    if (*open) return &pr->bucket[*open - 1];
    if (pr->n_bucket == b->cap_bucket) {
        pr->bucket = arena_grow(b->arena, pr->bucket, (size_t)b->cap_bucket, 2 * (size_t)b->cap_bucket,
                                sizeof *pr->bucket);
        b->cap_bucket *= 2;
    }
    const enum group sum = sum_group(way);
    struct bucket *k = &pr->bucket[pr->n_bucket++];
    const enum group share = way == WAY_EXPERT ? GROUP_EDP : GROUP_DPCP;
    *k = (struct bucket){ .sum_group = (uint8_t)sum,
                          .share_group = (uint8_t)share,
                          .copies = (int16_t)pr->group_size[sum],
                          .stage = (int16_t)b->stage,
                          .chunk = (int16_t)b->chunk,
                          .layer = (int16_t)b->layer };
    if (build_shard_cuts(b, share)) {
        k->whole = k->w = emit_buf(b, 1, 1, low ? (enum dtype)b->recipe->w : b->act);
        k->whole_g = k->g = emit_buf(b, 1, 1, grad_dtype(b));
    } else {
        k->w = low ? 0 : root(b, 1, b->act, KEEP_WEIGHT);
        k->g = root(b, 1, grad_dtype(b), KEEP_GRADIENT);
        if (low) k->w = low_root(b, k->g);
    }
    pr->buf[k->w].rows = pr->buf[k->g].rows = 0;
    *open = pr->n_bucket;
    return k;
}

/* This rank's share of a parameter: rows (of all local experts) and cols. */
static void local_shape(const struct build *b, int64_t *rows, int *cols, enum shard shard, int batch)
{
    const struct plan *p = &b->j->plan;
    const int cut = batch ? p->etp : p->tp;
    if (shard == SHARD_ROWS || shard == SHARD_ROWS_PAIR) *rows /= cut;
    if (shard == SHARD_COLS) *cols /= cut;
    if (shard == SHARD_KV) *rows = *rows * b->pr->group_size[GROUP_KV] / cut;
    if (batch) *rows *= batch / p->ep;
}

static struct param *param_new(struct build *b)
{
    struct program *pr = b->pr;
    if (pr->n_param == b->cap_param) {
        pr->param = arena_grow(b->arena, pr->param, (size_t)b->cap_param, 2 * (size_t)b->cap_param,
                               sizeof *pr->param);
        b->cap_param *= 2;
    }
    return &pr->param[pr->n_param++];
}

int build_param(struct build *b, enum param_name name, int rows, int cols, enum shard shard, int batch)
{
    struct program *pr = b->pr;
    int64_t here = rows;
    int wide = cols;
    local_shape(b, &here, &wide, shard, batch);
    const int bf16 = b->j->plan.fsdp && b->recipe->sends_B > 1;     /* no gradients for ever to put them in */
    const int low = b->j->plan.fp8_param_gather && !bf16 && is_low(name) && emit_is_low(b);
    const struct bucket k = *bucket_open(b, way_of(b, name, shard, batch), low);
    const int64_t at = pr->buf[k.w].rows;
    const int w = view(b, k.w, at, here, wide);
    const int g = view(b, k.g, at, here, wide);
    pr->buf[k.w].rows = pr->buf[k.g].rows = at + here * wide;
    *param_new(b) = (struct param){ .w = w,
                                    .g = g,
                                    .rows = rows,
                                    .cols = cols,
                                    .batch = batch,
                                    .layer = (int16_t)b->layer,
                                    .stage = (int16_t)b->stage,
                                    .name = (uint8_t)name,
                                    .shard = (uint8_t)shard };
    return pr->n_param - 1;
}

struct weight build_weight(const struct build *b, int param)
{
    const struct param *p = &b->pr->param[param];
    return (struct weight){ .w = p->w, .g = p->g, .low = is_low((enum param_name)p->name) };
}

void build_bias(struct build *b, struct weight *w, enum param_name name, int rows, enum shard shard, int batch)
{
    const struct weight v = build_weight(b, build_param(b, name, rows, 1, shard, batch));
    w->bias = v.w;
    w->bias_g = v.g;
}

struct weight build_weight_span(struct build *b, int first, int last)
{
    const struct buf *buf = b->pr->buf;
    const struct buf from = buf[b->pr->param[first].w], to = buf[b->pr->param[last].w];
    assert(from.view == to.view && from.cols == to.cols);
    const int64_t rows = (to.view_at - from.view_at) / from.cols + to.rows;
    const int w = view(b, from.view, from.view_at, rows, from.cols);
    const int g = view(b, b->pr->buf[b->pr->param[first].g].view, from.view_at, rows, from.cols);
    return (struct weight){ .w = w, .g = g, .low = 1 };
}

int build_constant(struct build *b, enum param_name name, int rows, int cols)
{
    const int w = root(b, rows, DT_F32, KEEP_WEIGHT);
    b->pr->buf[w].cols = cols;
    *param_new(b) = (struct param){ .w = w,
                                    .rows = rows,
                                    .cols = cols,
                                    .layer = (int16_t)b->layer,
                                    .stage = (int16_t)b->stage,
                                    .name = (uint8_t)name,
                                    .shard = SHARD_NONE };
    return w;
}

/* Megatron-LM's hybrid optimizer (core/optimizer/cpu_offloading): the host has moments and copies of gradient and
 * master, the device keeps the master that weights are cast from. Measured so too: 8 bytes a parameter are saved
 * (Megatron Bridge's cpu-offloading guide, 15.2 GB of 1.9e9 parameters). */
static void states_on_host(struct build *b, struct bucket *k, int64_t part)
{
    k->host_master = root(b, part, DT_F32, KEEP_OPTIMIZER);
    k->host_g = root(b, part, grad_dtype(b), KEEP_OPTIMIZER);
    k->m = root(b, part, moment_dtype(b), KEEP_OPTIMIZER);
    k->v = root(b, part, moment_dtype(b), KEEP_OPTIMIZER);
    const int32_t id[] = { k->host_master, k->host_g, k->m, k->v };
    for (int i = 0; i < LEN(id); i++) b->pr->buf[id[i]].place = PLACE_HOST;
}

void build_bucket_close(struct build *b)
{
    struct program *pr = b->pr;
    for (int i = 0; i < LEN(b->open); i++) {
        if (!b->open[i]) continue;
        struct bucket *k = &pr->bucket[b->open[i] - 1];
        const int64_t n = pr->group_size[k->share_group];
        const int64_t part = (pr->buf[k->w].rows + n - 1) / n;
        pr->buf[k->w].rows = pr->buf[k->g].rows = part * n;
        if (k->whole) {
            k->w = root(b, part, (enum dtype)pr->buf[k->whole].dtype, KEEP_WEIGHT);
            k->g = root(b, part, (enum dtype)pr->buf[k->whole_g].dtype, KEEP_GRADIENT);
        }
        const enum dtype master = b->j->plan.master == MASTER_REMAINDER ? DT_I16 : DT_F32;
        if (b->act != DT_F32) k->master = root(b, part, master, KEEP_OPTIMIZER);
        if (build_shard_on_host(b, part)) states_on_host(b, k, part);
        else if (b->j->plan.optimizer == OPTIMIZER_ADAMW) {
            k->m = root(b, part, moment_dtype(b), KEEP_OPTIMIZER);
            k->v = root(b, part, moment_dtype(b), KEEP_OPTIMIZER);
        }
    }
    memset(b->open, 0, sizeof b->open);
    build_shard_close(b);
}

static void reduce(struct build *b, const struct bucket *k)
{
    const enum group share = (enum group)k->share_group;
    b->layer = k->layer;
    emit_all_reduce(b, (enum group)k->sum_group, k->g, 0);
    if (b->pr->group_size[share] > 1 && !k->whole)
        emit(b, OP_GRAD_SCATTER, emit_stream(b, share), share, (struct io){ .add = { k->g } });
}

/* Last layers first, as backward finishes them. Tables that two stages hold wait for the optimizer pass: a
 * rendezvous across stages inside a backward would hold the pipeline up. */
void build_bucket_reduce(struct build *b)
{
    b->flags = OP_REDUCE;
    for (int i = b->pr->n_bucket - 1; i >= 0; i--) {
        const struct bucket k = b->pr->bucket[i];
        if (k.chunk == b->chunk && k.sum_group != GROUP_EMBED) reduce(b, &k);
    }
    b->flags = 0;
}

int build_bucket_zeroed_late(const struct build *b, const struct bucket *k)
{
    return b->j->plan.dp_overlap == DP_OVERLAP_BOTH && program_root(b->pr, k->w) == k->g;
}

/* Megatron-LM core/distributed/param_and_grad_buffer.py: buckets in the order in which forward needs them. What comes in the
 * memory of gradients is copied from there before they begin anew. */
void build_bucket_gather(struct build *b)
{
    const struct program *pr = b->pr;
    if (b->j->plan.dp_overlap != DP_OVERLAP_BOTH) return;
    b->half = HALF_STEP;
    b->part = 0;
    for (int i = 0; i < pr->n_bucket; i++) {
        const struct bucket k = pr->bucket[i];
        const enum group share = (enum group)k.share_group;
        if (k.chunk != b->chunk || k.whole || pr->group_size[share] < 2) continue;
        b->layer = k.layer;
        emit(b, OP_PARAM_GATHER, emit_stream(b, share), share, (struct io){ .add = { k.w } });
    }
    emit_quantize_weights(b);
    for (int i = 0; i < pr->n_bucket; i++) {
        const struct bucket k = pr->bucket[i];
        if (k.chunk != b->chunk || !build_bucket_zeroed_late(b, &k)) continue;
        b->layer = k.layer;
        emit(b, OP_ZERO, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { k.g } });
    }
    b->layer = -1;
}

void build_bucket_reduce_tables(struct build *b)
{
    for (int i = 0; i < b->pr->n_bucket; i++) {
        const struct bucket k = b->pr->bucket[i];
        if (k.stage == b->stage && k.sum_group == GROUP_EMBED) reduce(b, &k);
    }
}
