/* Activations that wait on the host for their backward (plan.offload), found in the ops of a chunk once
 * these are there, since nothing else says what is kept: a buffer that forward writes and one layer's
 * backward reads. It goes down the host link when the layer's forward has been issued; the layer after
 * next waits until it is there, so that two layers' worth is on the device. It comes back one layer
 * ahead, into buffers that layers take in turn (TransformerEngine pytorch/cpu_offload.py, the
 * double-buffered handler: a group is awaited when the next one is committed, and fetched when the one
 * before begins). By layers (--cpu-offloading-num-layers): the first ones, all they keep. By module
 * (--offload-modules, Megatron-LM docs fine_grained_activation_offloading.md): the inputs that those
 * modules keep, of all layers of a chunk but the last. */
#include "models/build.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct kept { int32_t buf, layer, host, back; };    /* back: what backward reads instead */
struct place { int32_t at, seq; };                  /* before which op an op goes, in order of seq */
struct reload { int32_t buf, turn, layer; };        /* a buffer of a turn, and the layer that had it last */

struct copying {
    struct build *b;
    int first, middle, end;         /* ops of forward, of backward */
    struct kept *kept; int32_t n_kept;
    struct reload *reload; int32_t n_reload;
    struct place *place; int32_t n_place;
};

/* ---- what is kept ---- */

/* The module whose first parameter an op's gradient belongs to; 0: of none that offloads. */
static int module_of_gradient(const struct program *pr, int gradient)
{
    const struct buf x = pr->buf[gradient];
    int name = -1;
    for (int i = 0; i < pr->n_param && name < 0; i++) {
        const struct buf g = pr->buf[pr->param[i].g];
        if (pr->param[i].g && g.view == x.view && g.view_at == x.view_at) name = pr->param[i].name;
    }
    switch (name) {
    case PARAM_ATTN_NORM: return OFFLOAD_ATTN_NORM;
    case PARAM_MLP_NORM: return OFFLOAD_MLP_NORM;
    case PARAM_Q: case PARAM_K: case PARAM_Q_A: case PARAM_Q_B: case PARAM_KV_A: case PARAM_KV_B:
        return OFFLOAD_QKV_LINEAR;
    case PARAM_O: return OFFLOAD_ATTN_PROJ;
    case PARAM_EXPERT_FC1: return OFFLOAD_EXPERT_FC1;
    default: return 0;
    }
}

/* The module that a backward op reads an operand for: its input. */
static int module_of(const struct program *pr, const struct op *o, int root)
{
    if (o->kind == OP_ATTN_BWD) return OFFLOAD_CORE_ATTN;
    if (program_root(pr, o->io.read[0]) != root) return 0;
    switch (o->kind) {
    case OP_NORM_BWD: case OP_WGRAD: case OP_GROUPED_WGRAD: return module_of_gradient(pr, o->io.add[0]);
    case OP_SWIGLU_BWD: case OP_ACT_BWD: return pr->buf[o->io.read[0]].size ? OFFLOAD_MOE_ACT : 0;
    default: return 0;
    }
}

/* Whether a layer's kept buffers go, of these modules (bits). */
static int goes(const struct build *b, int layer, int last, int modules)
{
    const struct plan *p = &b->j->plan;
    if (layer < 0 || layer >= b->j->model.layers) return 0;
    if (p->offload_layers) return layer < p->offload_layers;
    return layer != last && modules & p->offload_modules;
}

struct kept_use { int32_t layer, modules; uint8_t written, only_read; };   /* of a root, by backward */

static void note_use(struct kept_use *k, const struct program *pr, const struct op *o, int root,
                     enum access access)
{
    if (!k->modules && !k->layer) k->layer = o->layer + 2, k->only_read = 1;     /* 0: not met yet */
    if (k->layer != o->layer + 2 || access != ACCESS_READ) k->only_read = 0;
    k->modules |= 1 << module_of(pr, o, root);
}

static void find_kept(struct copying *x)
{
    struct build *b = x->b;
    const struct program *pr = b->pr;
    struct kept_use *k = arena_alloc(b->arena, (size_t)pr->n_buf * sizeof *k);
    struct use use[OP_USES];
    int last = -1;
    x->kept = arena_alloc(b->arena, (size_t)pr->n_buf * sizeof *x->kept);
    for (int i = x->first; i < x->end; i++) {
        const int n = op_uses(use, pr, &pr->op[i]), fwd = i < x->middle;
        if (fwd && pr->op[i].layer > last && pr->op[i].layer < b->j->model.layers) last = pr->op[i].layer;
        for (int u = 0; u < n; u++) {
            if (pr->buf[use[u].buf].keep != KEEP_MICRO) continue;
            if (fwd) k[use[u].buf].written |= use[u].access != ACCESS_READ;
            else note_use(&k[use[u].buf], pr, &pr->op[i], use[u].buf, use[u].access);
        }
    }
    for (int i = 1; i < pr->n_buf; i++) {
        const int layer = k[i].layer - 2;
        if (!k[i].written || !k[i].only_read || pr->buf[i].rows * pr->buf[i].cols < b->j->stack.offload_smallest) continue;
        if (goes(b, layer, last, k[i].modules))
            x->kept[x->n_kept++] = (struct kept){ .buf = i, .layer = layer };
    }
}

/* ---- where its copies go ---- */

/* The first or the last compute op of a layer in a half; -1: it has none. */
static int op_of(const struct copying *x, int layer, int backward, int last)
{
    const int from = backward ? x->middle : x->first, to = backward ? x->end : x->middle;
    for (int n = 0; n < to - from; n++) {
        const int i = last ? to - 1 - n : from + n;
        if (x->b->pr->op[i].layer == layer && x->b->pr->op[i].stream == STREAM_COMPUTE) return i;
    }
    return -1;
}

/* An op that goes before op `at`, as part of what stands at `like`. */
static void put(struct copying *x, int at, int like, enum op_kind kind, enum stream s, struct io io)
{
    struct build *b = x->b;
    const struct op of = b->pr->op[like];
    b->half = (enum half)of.half;
    b->part = of.part;
    b->layer = of.layer;
    emit(b, kind, s, GROUP_NONE, io);
    x->place[x->n_place] = (struct place){ at, x->n_place };
    x->n_place++;
}

static int copy_like(struct build *b, int buf, enum place_of_buf place)
{
    const int y = emit_buf(b, b->pr->buf[buf].rows, b->pr->buf[buf].cols, (enum dtype)b->pr->buf[buf].dtype);
    b->pr->buf[y] = b->pr->buf[buf];
    b->pr->buf[y].place = (uint8_t)place;
    return y;
}

/* The buffer of the layer's turn for something of this shape. */
static int turn_of(struct copying *x, const struct kept *k)
{
    const struct buf *of = &x->b->pr->buf[k->buf];
    for (int i = 0; i < x->n_reload; i++) {
        struct reload *r = &x->reload[i];
        const struct buf *is = &x->b->pr->buf[r->buf];
        if (r->turn != k->layer % 2 || r->layer == k->layer || is->rows != of->rows || is->cols != of->cols ||
            is->dtype != of->dtype || is->size != of->size || is->size_at != of->size_at ||
            is->pad != of->pad)
            continue;
        r->layer = k->layer;
        return r->buf;
    }
    const int y = copy_like(x->b, k->buf, PLACE_DEVICE);
    x->reload[x->n_reload++] = (struct reload){ y, k->layer % 2, k->layer };
    return y;
}

/* The layer after next waits for the copies, and so does what comes back: passes know of one another
 * what stream order implies, not which copy belongs to which. */
static void send_down(struct copying *x, int layer)
{
    const int end = op_of(x, layer, 0, 1), next = op_of(x, layer + 1, 0, 1);
    for (int i = 0; i < x->n_kept; i++) {
        struct kept *k = &x->kept[i];
        if (k->layer != layer) continue;
        k->host = copy_like(x->b, k->buf, PLACE_HOST);
        put(x, end + 1, end, OP_OFFLOAD, STREAM_D2H, (struct io){ .write = { k->host }, .read = { k->buf } });
        if (next < 0) continue;
        put(x, next + 1, next, OP_HOLD, STREAM_COMPUTE, (struct io){ .read = { k->host, k->buf } });
        put(x, next + 1, next, OP_HOLD, STREAM_H2D, (struct io){ .read = { k->host } });
    }
}

static void bring_back(struct copying *x, int layer)
{
    const int before = op_of(x, layer + 1, 1, 0);
    const int at = before < 0 ? x->middle : before;
    for (int sized = 0; sized < 2; sized++)     /* these have no turns: behind those that wait for theirs */
        for (int i = 0; i < x->n_kept; i++) {
            struct kept *k = &x->kept[i];
            if (k->layer != layer || (x->b->pr->buf[k->buf].size != 0) != sized) continue;
            k->back = turn_of(x, k);
            put(x, at, at, OP_RELOAD, STREAM_H2D, (struct io){ .write = { k->back }, .read = { k->host } });
        }
}

/* ---- backward reads what came back ---- */

static void rename_reads(struct copying *x)
{
    struct program *pr = x->b->pr;
    int32_t *back = arena_alloc(x->b->arena, (size_t)pr->n_buf * sizeof *back);
    const int n_buf = pr->n_buf;
    for (int i = 0; i < x->n_kept; i++) back[x->kept[i].buf] = x->kept[i].back;
    for (int i = x->middle; i < x->end; i++)
        for (int r = 0; r < OP_READS; r++) {
            const int id = pr->op[i].io.read[r], root = program_root(pr, id);
            if (root >= n_buf || !back[root]) continue;
            int y = back[root];
            if (id != root) {
                y = copy_like(x->b, id, PLACE_DEVICE);
                pr->buf[y].view = back[root];
            }
            pr->op[i].io.read[r] = y;
        }
}

static int place_before(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->at != y->at ? x->at - y->at : x->seq - y->seq;
}

/* Puts the new ops, which stand behind `end`, where they go. Returns how many went into forward. */
static int merge(struct copying *x)
{
    struct program *pr = x->b->pr;
    const int n = x->end - x->first + x->n_place;
    struct op *old = arena_alloc(x->b->arena, (size_t)n * sizeof *old), *to = &pr->op[x->first];
    memcpy(old, to, (size_t)n * sizeof *old);
    qsort(x->place, (size_t)x->n_place, sizeof *x->place, place_before);
    int k = 0, forward = 0;
    for (int i = x->first; i <= x->end; i++) {
        for (; k < x->n_place && x->place[k].at == i; k++) {
            const struct op o = old[x->end - x->first + x->place[k].seq];
            forward += o.half == HALF_FWD;
            *to++ = o;
        }
        if (i < x->end) *to++ = old[i - x->first];
    }
    assert(to == &pr->op[x->first] + n);
    return forward;
}

int build_offload(struct build *b, int first, int middle)
{
    const struct plan *p = &b->j->plan;
    if (!p->offload_layers && !p->offload_modules) return middle;
    struct copying x = { .b = b, .first = first, .middle = middle, .end = b->pr->n_op };
    const int layer = b->layer, part = b->part;
    const enum half half = b->half;
    find_kept(&x);
    x.reload = arena_alloc(b->arena, (size_t)x.n_kept * sizeof *x.reload + 1);
    x.place = arena_alloc(b->arena, 4 * (size_t)x.n_kept * sizeof *x.place + 1);
    for (int i = 0; i < b->j->model.layers; i++) send_down(&x, i);
    for (int i = b->j->model.layers - 1; i >= 0; i--) bring_back(&x, i);
    rename_reads(&x);
    b->layer = layer, b->part = part, b->half = half;
    return middle + merge(&x);
}
