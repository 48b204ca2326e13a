/* Small programs made by hand, so that schedules, unroll and traces are tested without the builders: per chunk
 * `layers` layers of two GEMMs between a gather and a scatter over ep, with routed sizes, pipeline boundaries,
 * one bucket a layer and an SGD step. Shapes are tiny and uneven; nothing here is ever executed. */
#ifndef TESTS_TOY_H
#define TESTS_TOY_H
#include "models/sched.h"
#include "models/unroll.h"
#include <check.h>
#include <string.h>

struct toy { int pp, vpp, n_micro, group, schedule, split, layers; };

struct toy_layer { int w, g, in, size, up, wide, out; };    /* buffers that backward reads */

static inline int toy_buf(struct program *pr, int64_t rows, int cols, enum keep keep, int stage)
{
    pr->buf[pr->n_buf] = (struct buf){ .rows = rows, .cols = cols, .dtype = DT_F32, .keep = (uint8_t)keep,
                                       .stage = (int16_t)(keep == KEEP_MICRO ? -1 : stage) };
    return pr->n_buf++;
}

static inline int toy_micro(struct program *pr, int64_t rows)
{
    return toy_buf(pr, rows, 8, KEEP_MICRO, -1);
}

static inline int toy_sized(struct program *pr, int64_t rows, int size)
{
    const int b = toy_micro(pr, rows);
    pr->buf[b].size = size;
    return b;
}

struct toy_at { struct program *pr; enum half half; int layer, part; };     /* where ops are being added */

static inline struct op *toy_op(const struct toy_at *at, enum op_kind kind, enum stream s, enum group g,
                                struct io io)
{
    struct op *o = &at->pr->op[at->pr->n_op++];
    *o = (struct op){ .kind = (uint8_t)kind, .stream = (uint8_t)s, .group = (uint8_t)g, .half = (uint8_t)at->half,
                      .layer = (int16_t)at->layer, .part = (int16_t)at->part, .copies = 1, .io = io };
    return o;
}

static inline int toy_layer_fwd(struct toy_at *at, struct toy_layer *k, int x)
{
    struct program *pr = at->pr;
    k->in = x;
    const int y = toy_micro(pr, 5);
    toy_op(at, OP_GEMM, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { y }, .read = { x, k->w } });
    k->size = toy_buf(pr, 2, 1, KEEP_MICRO, -1);
    toy_op(at, OP_SIZES, STREAM_COMPUTE, GROUP_NONE,
           (struct io){ .write = { k->size }, .read = { y } })->flags = OP_HOST_READS;
    at->part++;
    k->up = toy_sized(pr, 11, k->size);
    toy_op(at, OP_GATHER, STREAM_EP, GROUP_EP, (struct io){ .write = { k->up }, .read = { y } });
    at->part++;
    k->wide = toy_sized(pr, 23, k->size);
    toy_op(at, OP_GEMM, STREAM_COMPUTE, GROUP_NONE,
           (struct io){ .write = { k->wide }, .read = { k->up, k->w } });
    const int thin = toy_sized(pr, 11, k->size);
    toy_op(at, OP_SWIGLU, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { thin }, .read = { k->wide } });
    at->part++;
    k->out = toy_micro(pr, 5);
    toy_op(at, OP_SCATTER, STREAM_EP, GROUP_EP, (struct io){ .write = { k->out }, .read = { thin } });
    at->part++;
    return k->out;
}

static inline int toy_layer_bwd(struct toy_at *at, const struct toy_layer *k, int dy)
{
    struct program *pr = at->pr;
    const int d = toy_sized(pr, 11, k->size);
    toy_op(at, OP_GATHER, STREAM_EP, GROUP_EP, (struct io){ .write = { d }, .read = { dy } });
    at->part++;
    const int dwide = toy_sized(pr, 23, k->size), dup = toy_sized(pr, 11, k->size);
    toy_op(at, OP_SWIGLU_BWD, STREAM_COMPUTE, GROUP_NONE,
           (struct io){ .write = { dwide }, .read = { k->wide, d } });
    toy_op(at, OP_DGRAD, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { dup }, .read = { dwide, k->w } });
    toy_op(at, OP_WGRAD, STREAM_COMPUTE, GROUP_NONE,
           (struct io){ .add = { k->g }, .read = { k->up, dwide } })->flags = OP_WEIGHT_GRAD;
    at->part++;
    const int back = toy_micro(pr, 5), dx = toy_micro(pr, 5);
    toy_op(at, OP_SCATTER, STREAM_EP, GROUP_EP, (struct io){ .write = { back }, .read = { dup } });
    at->part++;
    toy_op(at, OP_DGRAD, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { dx }, .read = { back, k->w } });
    toy_op(at, OP_WGRAD, STREAM_COMPUTE, GROUP_NONE,
           (struct io){ .add = { k->g }, .read = { k->in, back } })->flags = OP_WEIGHT_GRAD;
    at->part++;
    return dx;
}

/* The first chunk begins with data, the last ends with a loss; between chunks there are SEND and RECV. */
static inline int toy_begin(const struct toy_at *at, int first)
{
    const int x = toy_micro(at->pr, 5);
    if (first) {
        const int label = toy_micro(at->pr, 5);
        toy_op(at, OP_DATA, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { x, label } });
    } else {
        toy_op(at, OP_RECV, STREAM_RECV_F, GROUP_PREV, (struct io){ .write = { x } });
    }
    return x;
}

static inline void toy_chunk(struct program *pr, const struct toy *t, int c)
{
    struct toy_at at = { .pr = pr, .half = HALF_FWD, .layer = c * t->layers };
    struct toy_layer kept[8];
    struct chunk *chunk = &pr->chunk[c];
    const int stage = c % t->pp, first = c == 0, last = c == pr->n_chunk - 1;
    for (int l = 0; l < t->layers; l++) {
        kept[l].w = toy_buf(pr, 7, 8, KEEP_WEIGHT, stage);
        kept[l].g = toy_buf(pr, 7, 8, KEEP_GRADIENT, stage);
    }
    chunk->fwd = pr->n_op;
    int x = toy_begin(&at, first);
    for (int l = 0; l < t->layers; l++, at.layer++) x = toy_layer_fwd(&at, &kept[l], x);
    if (last)
        toy_op(&at, OP_XENT, STREAM_COMPUTE, GROUP_NONE,
               (struct io){ .add = { pr->metric + stage }, .read = { x } });
    else toy_op(&at, OP_SEND, STREAM_SEND_F, GROUP_NEXT, (struct io){ .read = { x } });
    at.half = HALF_BWD;
    at.part = 0;
    chunk->bwd = pr->n_op;
    int dy = toy_micro(pr, 5);
    if (last)
        toy_op(&at, OP_NORM, STREAM_COMPUTE, GROUP_NONE,
               (struct io){ .write = { dy }, .read = { x, kept[0].w } });
    else toy_op(&at, OP_RECV, STREAM_RECV_B, GROUP_NEXT, (struct io){ .write = { dy } });
    for (int l = t->layers - 1; l >= 0; l--) {
        at.layer--;
        dy = toy_layer_bwd(&at, &kept[l], dy);
    }
    if (first) toy_op(&at, OP_HOLD, STREAM_COMPUTE, GROUP_NONE, (struct io){ .read = { dy } });
    else toy_op(&at, OP_SEND, STREAM_SEND_B, GROUP_PREV, (struct io){ .read = { dy } });
    chunk->reduce = pr->n_op;
    for (int l = t->layers - 1; l >= 0; l--)
        toy_op(&at, OP_GRAD_SCATTER, STREAM_DP, GROUP_DPCP,
               (struct io){ .add = { kept[l].g } })->flags = OP_REDUCE;
    chunk->end = pr->n_op;
}

static inline void toy_stage(struct program *pr, const struct toy *t, int s)
{
    const struct toy_at at = { .pr = pr, .half = HALF_STEP, .layer = -1 };
    const int metric = pr->metric + s, n = pr->n_buf;
    struct stage *stage = &pr->stage[s];
    (void)t;
    stage->optim = pr->n_op;
    for (int b = 1; b < n; b++)
        if (pr->buf[b].keep == KEEP_GRADIENT && pr->buf[b].stage == s)
            toy_op(&at, OP_SUMSQ, STREAM_COMPUTE, GROUP_DPCP, (struct io){ .add = { metric }, .read = { b } });
    toy_op(&at, OP_ALL_REDUCE, STREAM_WORLD, GROUP_WORLD, (struct io){ .add = { metric } });
    for (int b = 1; b < n; b++)
        if (pr->buf[b].keep == KEEP_GRADIENT && pr->buf[b].stage == s)
            toy_op(&at, OP_SGD, STREAM_COMPUTE, GROUP_DPCP,
                   (struct io){ .add = { b - 1 }, .read = { b, metric } });
    stage->start = pr->n_op;
    toy_op(&at, OP_ZERO, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { metric } });
    for (int b = 1; b < n; b++)
        if (pr->buf[b].keep == KEEP_GRADIENT && pr->buf[b].stage == s)
            toy_op(&at, OP_ZERO, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { b } });
    stage->end = pr->n_op;
}

static inline void toy_job(struct job *j, const struct toy *t)
{
    memset(j, 0, sizeof *j);
    j->plan = (struct plan){ .gpus = t->pp, .tp = 1, .cp = 1, .pp = t->pp, .vpp = t->vpp, .etp = 1, .ep = 1,
                             .dp = 1, .edp = 1, .mbs = 1, .gbs = t->n_micro, .n_micro = t->n_micro, .seq = 8,
                             .schedule = t->schedule, .vpp_group = t->group, .split_wgrad = t->split };
    j->model = (struct model){ .layers = t->pp * t->vpp * t->layers, .hidden = 8, .vocab = 16, .heads = 1,
                               .kv_heads = 1, .head_dim = 8, .dense_layers = t->pp * t->vpp * t->layers };
}

/* The whole program, scheduled. 1 <= layers <= 8. */
static inline void toy_build(struct program *pr, struct arena *a, struct job *j, const struct toy *t)
{
    const int n_chunk = t->pp * t->vpp;
    const size_t room = (size_t)(n_chunk * (t->layers * 32 + 16) + t->pp * 8 + 8);
    toy_job(j, t);
    *pr = (struct program){ .arena = a, .n_chunk = n_chunk, .n_stage = t->pp, .n_micro = t->n_micro, .n_buf = 1,
                            .n_op = 1, .seq = 8, .topk = 1, .even = { 9, 9 } };
    for (int g = 0; g < GROUP_COUNT; g++) pr->group_size[g] = 1;
    pr->buf = arena_alloc(a, room * sizeof *pr->buf);
    pr->op = arena_alloc(a, room * sizeof *pr->op);
    pr->chunk = arena_alloc(a, (size_t)n_chunk * sizeof *pr->chunk);
    pr->stage = arena_alloc(a, (size_t)t->pp * sizeof *pr->stage);
    pr->metric = pr->n_buf;
    for (int s = 0; s < t->pp; s++) toy_buf(pr, 4, 1, KEEP_METRIC, s);
    for (int c = 0; c < n_chunk; c++) toy_chunk(pr, t, c);
    for (int s = 0; s < t->pp; s++) toy_stage(pr, t, s);
    sched_build(pr, j);
}

/* The same, unrolled: all stages. */
static inline struct unroll *toy_unroll(struct program *pr, struct arena *a, struct job *j, const struct toy *t,
                                        struct diag *d)
{
    toy_build(pr, a, j, t);
    struct unroll *u = arena_alloc(a, (size_t)t->pp * sizeof *u);
    ck_assert_msg(unroll_all(u, a, pr, d) == OK, "%s", d->text);
    return u;
}

/* Calls `visit` with every legal schedule over pp 1..8, vpp 1..4 and several micro-batch counts. Megatron wants
 * pp > 1 for vpp > 1, groups of at least pp, and at least pp micro-batches in the last group. */
static inline void toy_each(void (*visit)(const struct toy *t))
{
    static const int micro[] = { 1, 2, 3, 4, 7, 8, 13, 16 };
    for (int pp = 1; pp <= 8; pp++)
        for (int vpp = 1; vpp <= (pp > 1 ? 4 : 1); vpp++)
            for (int group = pp; group <= (vpp > 1 ? pp + 2 : pp); group++)
                for (int m = 0; m < LEN(micro); m++) {
                    const int tail = micro[m] % group;
                    if (vpp > 1 && tail > 0 && tail < pp) continue;
                    const int plain = vpp > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
                    for (int kind = 0; kind < 4; kind++)
                        visit(&(struct toy){ .pp = pp, .vpp = vpp, .n_micro = micro[m], .group = group,
                                             .layers = 1, .schedule = kind & 1 ? SCHEDULE_FWD_BWD : plain,
                                             .split = kind >> 1 });
                }
}

#endif
