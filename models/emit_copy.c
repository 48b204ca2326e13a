/* Copies of low precision. A product of weights asks here for what it reads in place of each operand: along
 * its rows, or along its columns where it contracts over the other axis. One QUANTIZE a tensor makes both (or
 * the op that wrote it, in stacks that fuse the two); it grows by a copy when a reader asks, also when a
 * weight gradient asks long after forward: that copy then lives until then, and the tensor itself dies with
 * its other readers. What is gathered over tp is gathered as copies. Weights have copies that live for ever
 * and are made once a step. */
#include "models/emit.h"

/* Megatron-LM core/fp8_utils.py, is_first_last_bf16_layer: what is no layer of the decoder is not one of
 * them. */
int emit_is_low(const struct build *b)
{
    const struct plan *p = &b->j->plan;
    const int layers = b->j->model.layers, high = b->layer >= 0 && b->layer < layers &&
                       (b->layer < p->high_first || b->layer >= layers - p->high_last);
    return b->copies && !high;
}

static enum axis axis_read(const struct build *b, enum axis axis)
{
    const enum columns c = (enum columns)b->recipe->columns;
    const int own = c == COLUMNS_OWN || (c == COLUMNS_KMAJOR && !b->j->system.block_scaled);
    return own ? axis : AXIS_ROWS;
}

static int is_low_type(const struct build *b, int x)
{
    return b->pr->buf[x].dtype != b->act;
}

/* A buffer of x's shape. */
static int copy_buf(struct build *b, int x, enum dtype t)
{
    const int y = emit_like(b, x, b->pr->buf[x].cols);
    b->pr->buf[y].dtype = (uint8_t)t;
    return y;
}

/* The kernels that make copies of x; which, its readers will say. Of what is low already: a transpose. */
static int quantize(struct build *b, int x)
{
    int amax = 0;
    if (b->recipe->passes > 1 && !is_low_type(b, x)) {
        amax = emit_buf(b, 1, 1, DT_F32);
        emit(b, OP_AMAX, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { amax }, .read = { x } });
    }
    emit(b, OP_QUANTIZE, STREAM_COMPUTE, GROUP_NONE, (struct io){ .read = { x, amax } });
    return b->pr->n_op - 1;
}

/* The output from which a kernel of this kind writes copies of its first one; 0: it does not. */
static int copies_at(const struct build *b, enum op_kind k)
{
    const struct stack *s = &b->j->stack;
    if (!b->recipe->fused) return 0;
    switch (k) {
    case OP_NORM: return s->quantize_norm ? 2 : 0;
    case OP_SWIGLU: case OP_ACT: return s->quantize_act ? 1 : 0;
    case OP_SWIGLU_BWD: case OP_ACT_BWD: return s->quantize_act ? 2 : 0;
    default: return 0;
    }
}

/* Who makes copies of x from here on: the op that wrote it just before, or one of its own. */
static struct copies maker(struct build *b, int x)
{
    enum { JUST = 4 };
    for (int i = b->pr->n_op - 1; i > 0 && i >= b->pr->n_op - JUST; i--) {
        const struct op *o = &b->pr->op[i];
        const int first = copies_at(b, (enum op_kind)o->kind);
        if (first && o->io.write[0] == x && o->half == b->half)
            return (struct copies){ .op = i, .first = first };
    }
    return (struct copies){ .op = quantize(b, x) };
}

static int copy_of_shard(struct build *b, int x, int shard, enum axis axis, int fresh)
{
    const int part = emit_copy(b, shard, axis, fresh), y = copy_buf(b, x, (enum dtype)b->recipe->x);
    emit(b, OP_GATHER, STREAM_TP, GROUP_TP, (struct io){ .write = { y }, .read = { part } });
    return y;
}

static int copy_in(struct build *b, int x, enum axis axis, int fresh, enum dtype t)
{
    const int shard = b->copies[x].shard;
    if (shard) {
        if (!b->copies[x].copy[axis]) {
            const int y = copy_of_shard(b, x, shard, axis, fresh);
            b->copies[x].copy[axis] = y;
        }
        return b->copies[x].copy[axis];
    }
    const int op = b->copies[x].op;
    if (!op || (fresh && b->pr->op[op].half != b->half)) {
        const struct copies made = maker(b, x);
        b->copies[x] = made;
    }
    const int32_t *at = &b->pr->op[b->copies[x].op].io.write[b->copies[x].first + axis];
    if (*at) return *at;
    const int y = copy_buf(b, x, t);
    return b->pr->op[b->copies[x].op].io.write[b->copies[x].first + axis] = y;
}

int emit_copy(struct build *b, int x, enum axis axis, int fresh)
{
    return copy_in(b, x, axis_read(b, axis), fresh, (enum dtype)b->recipe->x);
}

int emit_copy_weight(struct build *b, int w, enum axis axis)
{
    axis = axis_read(b, axis);
    const int here = emit_bound(b, w);
    if (here != w && axis == AXIS_ROWS && is_low_type(b, here)) return here;
    if (here != w) return copy_in(b, here, axis, 1, (enum dtype)b->recipe->w);     /* gathered: made each time */
    if (axis == AXIS_ROWS && is_low_type(b, w)) return w;
    if (b->copies[w].copy[axis]) return b->copies[w].copy[axis];
    if (!b->copies[w].copy[AXIS_ROWS] && !b->copies[w].copy[AXIS_COLUMNS]) {
        b->copies[w].next = b->low_weights;
        b->low_weights = w;
    }
    const struct buf from = b->pr->buf[w];
    const int y = emit_buf(b, from.rows, from.cols, (enum dtype)b->recipe->w);
    b->pr->buf[y].keep = KEEP_WEIGHT;
    b->pr->buf[y].stage = from.stage;
    return b->copies[w].copy[axis] = y;
}

int emit_gather_input(struct build *b, int x)
{
    if (!emit_is_low(b) || b->pr->group_size[GROUP_TP] == 1) return emit_gather(b, GROUP_TP, x);
    const int y = emit_like(b, x, b->pr->buf[x].cols);
    b->pr->buf[y].rows *= b->pr->group_size[GROUP_TP];
    b->copies[y].shard = x;
    return y;
}

int emit_gather_ahead(struct build *b, int x)
{
    if (!b->j->stack.async_tp || b->pr->group_size[GROUP_TP] == 1) return 0;
    const int y = emit_gather_input(b, x);
    if (b->copies && b->copies[y].shard) emit_copy(b, y, AXIS_COLUMNS, 0);
    return y;
}

void emit_hold_gathered(struct build *b, int x)
{
    if (b->j->stack.async_tp && b->pr->group_size[GROUP_TP] > 1 && !emit_is_low(b)) emit_hold(b, x, 0, 0, 0);
}

void emit_quantize_weights(struct build *b)
{
    int32_t first = 0, *rest = &b->low_weights;
    for (int32_t w = b->low_weights, next; w; w = next) {   /* newest first; made in the order in which they were met */
        next = b->copies[w].next;
        if (b->pr->buf[w].stage != b->stage) {
            *rest = w;
            rest = &b->copies[w].next;
        } else {
            b->copies[w].next = first;
            first = w;
        }
    }
    *rest = 0;
    for (int w = first; w; w = b->copies[w].next) {
        const int op = quantize(b, w);
        for (int axis = 0; axis <= AXIS_COLUMNS; axis++)
            b->pr->op[op].io.write[axis] = b->copies[w].copy[axis];
    }
}

void emit_copy_settle(struct build *b, int from, int to)
{
    char *read = arena_alloc(b->arena, (size_t)b->pr->n_buf);
    for (int i = from; i < to; i++)
        for (int k = 0; k < OP_READS; k++) read[b->pr->op[i].io.read[k]] = 1;
    for (int i = from; i < to; i++) {
        int32_t *write = b->pr->op[i].io.write;
        const int first = copies_at(b, (enum op_kind)b->pr->op[i].kind);
        if (first && (write[first] || write[first + 1]) && !read[write[0]]) write[0] = 0;
    }
}
