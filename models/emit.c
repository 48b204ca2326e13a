#include "models/emit.h"
#include <assert.h>

int emit_buf(struct build *b, int64_t rows, int cols, enum dtype t)
{
    struct program *pr = b->pr;
    assert(rows > 0 && cols > 0);
    if (pr->n_buf == b->cap_buf) {
        pr->buf = arena_grow(b->arena, pr->buf, (size_t)b->cap_buf, 2 * (size_t)b->cap_buf, sizeof *pr->buf);
        if (b->copies)
            b->copies = arena_grow(b->arena, b->copies, (size_t)b->cap_buf, 2 * (size_t)b->cap_buf,
                                   sizeof *b->copies);
        if (b->bound)
            b->bound = arena_grow(b->arena, b->bound, (size_t)b->cap_buf, 2 * (size_t)b->cap_buf,
                                  sizeof *b->bound);
        b->cap_buf *= 2;
    }
    pr->buf[pr->n_buf] = (struct buf){ .rows = rows, .cols = cols, .dtype = (uint8_t)t, .keep = KEEP_MICRO,
                                       .chunk = (int16_t)b->chunk, .stage = -1 };
    return pr->n_buf++;
}

int emit_view(struct build *b, int x, int64_t row, int64_t rows)
{
    const struct buf of = b->pr->buf[x];
    const int y = emit_buf(b, rows, of.cols, (enum dtype)of.dtype);
    assert(!of.view && !of.size && row + rows <= of.rows);
    b->pr->buf[y].view = x;
    b->pr->buf[y].view_at = row * of.cols;
    return y;
}

int emit_like(struct build *b, int x, int cols)
{
    const struct buf from = b->pr->buf[x];
    const int y = emit_buf(b, from.rows, cols, (enum dtype)from.dtype);
    b->pr->buf[y].size = from.size;
    b->pr->buf[y].size_at = from.size_at;
    b->pr->buf[y].groups = from.groups;
    b->pr->buf[y].pad = from.pad;
    return y;
}

int emit_bound(struct build *b, int x)
{
    const struct buf of = b->pr->buf[x];
    const int to = b->bound ? b->bound[of.view ? of.view : x].to : 0;
    if (!to) return x;
    if (b->bound[x].view && b->pr->buf[b->bound[x].view].view == to) return b->bound[x].view;
    const int y = emit_buf(b, of.rows, of.cols, (enum dtype)of.dtype);
    b->pr->buf[y].view = to;
    b->pr->buf[y].view_at = of.view_at;
    return b->bound[x].view = y;
}

static void bind(struct build *b, struct io *io)
{
    for (int i = 0; i < OP_READS; i++) io->read[i] = emit_bound(b, io->read[i]);
    for (int i = 0; i < OP_ADDS; i++) io->add[i] = emit_bound(b, io->add[i]);
}

struct op *emit(struct build *b, enum op_kind k, enum stream s, enum group g, struct io io)
{
    struct program *pr = b->pr;
    if (b->bound) bind(b, &io);
    if (pr->n_op == b->cap_op) {
        pr->op = arena_grow(b->arena, pr->op, (size_t)b->cap_op, 2 * (size_t)b->cap_op, sizeof *pr->op);
        b->cap_op *= 2;
    }
    struct op *o = &pr->op[pr->n_op++];
    *o = (struct op){ .kind = (uint8_t)k,
                      .stream = (uint8_t)s,
                      .group = (uint8_t)g,
                      .half = (uint8_t)b->half,
                      .flags = (uint8_t)b->flags,
                      .graph = (uint8_t)b->graph,
                      .layer = (int16_t)b->layer,
                      .part = (int16_t)b->part,
                      .copies = 1,
                      .io = io };
    assert(op_io_fits(o, b->arity[k]));
    if (b->graph == OP_GRAPH_FIRST && k != OP_HOLD) b->graph = OP_GRAPH_INSIDE;
    return o;
}

static struct op *compute(struct build *b, enum op_kind k, struct io io)
{
    return emit(b, k, STREAM_COMPUTE, GROUP_NONE, io);
}

static int waits(const struct build *b)
{
    return b->j->stack.sync_experts && b->j->plan.schedule != SCHEDULE_FWD_BWD;
}

enum stream emit_stream(const struct build *b, enum group g)
{
    switch (g) {
    case GROUP_TP: return STREAM_TP;
    case GROUP_CP: return STREAM_CP;
    case GROUP_EP: case GROUP_ETP: case GROUP_TPEP: return waits(b) ? STREAM_COMPUTE : STREAM_EP;
    case GROUP_EMBED: return STREAM_EMBED;
    case GROUP_WORLD: return STREAM_WORLD;
    default: return STREAM_DP;
    }
}

int emit_taken(struct build *b, int64_t rows, int cols, enum dtype t)
{
    const int y = emit_buf(b, rows, cols, t);
    compute(b, OP_HOLD, (struct io){ .write = { y } });
    return y;
}

void emit_hold(struct build *b, int x0, int x1, int x2, int x3)
{
    compute(b, OP_HOLD, (struct io){ .read = { x0, x1, x2, x3 } });
}

/* One fp32 for every row of every run of w.cols columns. */
static int norm_stat(struct build *b, int x, struct weight w)
{
    if (!b->j->stack.norm_stat) return 0;
    const int runs = b->pr->buf[x].cols / b->pr->buf[w.w].cols;
    const int rstd = emit_like(b, x, runs);
    b->pr->buf[rstd].dtype = DT_F32;
    if (b->n_norm == b->cap_norm) {
        const int32_t more = b->cap_norm ? 2 * b->cap_norm : 64;
        b->norm = arena_grow(b->arena, b->norm, (size_t)b->cap_norm, (size_t)more, sizeof *b->norm);
        b->cap_norm = more;
    }
    b->norm[b->n_norm++] = (struct norm_made){ x, w.w, rstd };
    return rstd;
}

static int norm_stat_of(const struct build *b, int x, struct weight w)
{
    int i = b->n_norm - 1;
    while (i >= 0 && (b->norm[i].x != x || b->norm[i].w != w.w)) i--;
    return i < 0 ? 0 : b->norm[i].rstd;
}

int emit_norm_slice(struct build *b, int x, struct weight w, int cols)
{
    const int y = emit_like(b, x, cols), rstd = norm_stat(b, x, w);
    compute(b, OP_NORM, (struct io){ .write = { y, rstd }, .read = { x, w.w } });
    return y;
}

int emit_norm(struct build *b, int x, struct weight w)
{
    return emit_norm_slice(b, x, w, b->pr->buf[x].cols);
}

int emit_norm_bwd(struct build *b, int x, struct weight w, int dy, int dres)
{
    const int dx = emit_like(b, x, b->pr->buf[dy].cols), rstd = norm_stat_of(b, x, w);
    compute(b, OP_NORM_BWD,
            (struct io){ .write = { dx }, .add = { w.g }, .read = { x, w.w, dy, dres, rstd } });
    return dx;
}

int emit_add(struct build *b, int x, int y)
{
    const int sum = emit_like(b, x, b->pr->buf[x].cols);
    compute(b, OP_ADD, (struct io){ .write = { sum }, .read = { x, y } });
    return sum;
}

/* Operands of a product: as they are, or their copies. */
static int operand(struct build *b, int x, const struct weight *w, enum axis axis, int fresh)
{
    return w->low && emit_is_low(b) ? emit_copy(b, x, axis, fresh) : x;
}

static int weight_operand(struct build *b, const struct weight *w, enum axis axis)
{
    return w->low && emit_is_low(b) ? emit_copy_weight(b, w->w, axis) : w->w;
}

int emit_gemm(struct build *b, int x, struct weight w)
{
    const int from = operand(b, x, &w, AXIS_ROWS, 1), by = weight_operand(b, &w, AXIS_ROWS);
    const int y = emit_like(b, x, (int)b->pr->buf[w.w].rows);
    compute(b, OP_GEMM, (struct io){ .write = { y }, .read = { from, by, w.bias } });
    return y;
}

int emit_dgrad(struct build *b, int dy, struct weight w)
{
    const int from = operand(b, dy, &w, AXIS_ROWS, 1), by = weight_operand(b, &w, AXIS_COLUMNS);
    const int dx = emit_like(b, dy, b->pr->buf[w.w].cols);
    compute(b, OP_DGRAD, (struct io){ .write = { dx }, .read = { from, by } });
    return dx;
}

void emit_wgrad(struct build *b, int x, int dy, struct weight w)
{
    const int from = operand(b, x, &w, AXIS_COLUMNS, 0), by = operand(b, dy, &w, AXIS_COLUMNS, 1);
    compute(b, OP_WGRAD, (struct io){ .add = { w.g, w.bias_g }, .read = { from, by } })->flags |=
        OP_WEIGHT_GRAD;
}

int emit_act(struct build *b, int fc1, int prob)
{
    const int up = model_up(&b->j->model), y = emit_like(b, fc1, b->pr->buf[fc1].cols / up);
    compute(b, up == 2 ? OP_SWIGLU : OP_ACT, (struct io){ .write = { y }, .read = { fc1, prob } });
    return y;
}

int emit_act_bwd(struct build *b, int fc1, int dy, int prob, int *dprob)
{
    const int dfc1 = emit_like(b, fc1, b->pr->buf[fc1].cols);
    if (prob) *dprob = emit_like(b, prob, 1);
    compute(b, model_up(&b->j->model) == 2 ? OP_SWIGLU_BWD : OP_ACT_BWD,
            (struct io){ .write = { dfc1, prob ? *dprob : 0 }, .read = { fc1, dy, prob } });
    return dfc1;
}

int emit_gather(struct build *b, enum group g, int x)
{
    const int n = b->pr->group_size[g];
    if (n == 1) return x;
    const int y = emit_like(b, x, b->pr->buf[x].cols);
    b->pr->buf[y].rows *= n;
    emit(b, OP_GATHER, emit_stream(b, g), g, (struct io){ .write = { y }, .read = { x } });
    return y;
}

int emit_scatter(struct build *b, enum group g, int x)
{
    const int n = b->pr->group_size[g];
    if (n == 1) return x;
    const int y = emit_like(b, x, b->pr->buf[x].cols);
    assert(b->pr->buf[y].rows % n == 0);
    b->pr->buf[y].rows /= n;
    emit(b, OP_SCATTER, emit_stream(b, g), g, (struct io){ .write = { y }, .read = { x } });
    return y;
}

int emit_swap(struct build *b, int x, int back)
{
    const int n = b->pr->group_size[GROUP_CP], cols = b->pr->buf[x].cols;
    if (n == 1) return x;
    const int y = emit_like(b, x, back ? cols * n : cols / n);
    b->pr->buf[y].rows = back ? b->pr->buf[y].rows / n : b->pr->buf[y].rows * n;
    emit(b, OP_SWAP, STREAM_CP, GROUP_CP, (struct io){ .write = { y }, .read = { x } });
    return y;
}

int emit_documents(const struct build *b, enum packed of)
{
    return b->j->plan.packed >> of & 1 ? b->start : 0;
}

void emit_shift(struct build *b, const int x[2], int y[2])
{
    y[0] = emit_like(b, x[0], b->pr->buf[x[0]].cols);
    y[1] = emit_like(b, x[1], b->pr->buf[x[1]].cols);
    emit(b, OP_SHIFT, STREAM_CP, GROUP_CP, (struct io){ .write = { y[0], y[1] }, .read = { x[0], x[1] } });
}

void emit_all_reduce(struct build *b, enum group g, int x, int max)
{
    if (b->pr->group_size[g] == 1) return;
    emit(b, max ? OP_ALL_MAX : OP_ALL_REDUCE, emit_stream(b, g), g, (struct io){ .add = { x } });
}

int emit_grouped_gemm(struct build *b, int x, struct weight w, int count, int cols)
{
    const int from = operand(b, x, &w, AXIS_ROWS, 1), by = weight_operand(b, &w, AXIS_ROWS);
    const int y = emit_like(b, x, cols);
    compute(b, OP_GROUPED_GEMM, (struct io){ .write = { y }, .read = { from, by, count, w.bias } });
    return y;
}

int emit_grouped_dgrad(struct build *b, int dy, struct weight w, int count, int cols)
{
    const int from = operand(b, dy, &w, AXIS_ROWS, 1), by = weight_operand(b, &w, AXIS_COLUMNS);
    const int dx = emit_like(b, dy, cols);
    compute(b, OP_GROUPED_DGRAD, (struct io){ .write = { dx }, .read = { from, by, count } });
    return dx;
}

void emit_grouped_wgrad(struct build *b, int x, int dy, struct weight w, int count)
{
    const int from = operand(b, x, &w, AXIS_COLUMNS, 0), by = operand(b, dy, &w, AXIS_COLUMNS, 1);
    compute(b, OP_GROUPED_WGRAD, (struct io){ .add = { w.g, w.bias_g }, .read = { from, by, count } })
        ->flags |= OP_WEIGHT_GRAD;
}

int emit_routed(struct build *b, int like, const struct route *r, int at)
{
    const int y =
        emit_buf(b, plan_capacity_rows(b->j, at), b->pr->buf[like].cols, (enum dtype)b->pr->buf[like].dtype);
    b->pr->buf[y].size = r->size;
    b->pr->buf[y].size_at = at;
    return y;
}

/* Several local experts receive rows from several ranks: rows must be sorted by expert before the grouped
 * GEMM. */
static int needs_sort(const struct build *b)
{
    return b->pr->group_size[GROUP_TPEP] > 1 && b->j->model.experts > b->j->plan.ep;
}

/* Rows of each expert up to what blocks of scales need (Megatron-LM moe_utils.py, padding fused into the
 * permute). */
void emit_pad(struct build *b, int x)
{
    struct buf *p = &b->pr->buf[x];
    if (b->recipe->pad == 1 || !emit_is_low(b)) return;
    p->pad = b->recipe->pad;
    p->groups = b->j->model.experts / b->j->plan.ep;
    p->rows = buf_padded(p->rows, p->groups, p->pad);
    if (!p->size) p->size_at = 1;
}

int emit_to_experts(struct build *b, int x, const struct route *r)
{
    const int *size = b->pr->group_size;
    if (size[GROUP_EP] > 1) {
        const int y = emit_routed(b, x, r, 0);
        emit(b, OP_DISPATCH, emit_stream(b, GROUP_EP), GROUP_EP, (struct io){ .write = { y }, .read = { x, r->count } });
        x = y;
    }
    if (size[GROUP_ETP] > 1) {
        const int y = emit_routed(b, x, r, 1);
        emit(b, OP_GATHER_V, emit_stream(b, GROUP_ETP), GROUP_ETP, (struct io){ .write = { y }, .read = { x, r->count } });
        x = y;
    }
    if (needs_sort(b)) {
        const int y = emit_like(b, x, b->pr->buf[x].cols);
        compute(b, OP_SORT, (struct io){ .write = { y }, .read = { x, r->count } });
        x = y;
    }
    if (x != r->prob) emit_pad(b, x);
    return x;
}

int emit_to_tokens(struct build *b, int x, const struct route *r)
{
    const int *size = b->pr->group_size, cols = b->pr->buf[x].cols;
    const enum dtype t = (enum dtype)b->pr->buf[x].dtype;
    const int64_t sent = b->pr->buf[r->prob].rows;
    if (needs_sort(b)) {
        const int y = emit_routed(b, x, r, b->pr->buf[x].size_at);
        compute(b, OP_UNSORT, (struct io){ .write = { y }, .read = { x, r->count } });
        x = y;
    }
    if (size[GROUP_ETP] > 1) {
        const int y = size[GROUP_EP] > 1 ? emit_routed(b, x, r, 0) : emit_buf(b, sent, cols, t);
        emit(b, OP_SCATTER_V, emit_stream(b, GROUP_ETP), GROUP_ETP, (struct io){ .write = { y }, .read = { x, r->count } });
        x = y;
    }
    if (size[GROUP_EP] > 1) {
        const int y = emit_buf(b, sent, cols, t);
        emit(b, OP_COMBINE, emit_stream(b, GROUP_EP), GROUP_EP, (struct io){ .write = { y }, .read = { x, r->count } });
        x = y;
    }
    return x;
}

int emit_recv(struct build *b, enum group g, int64_t rows)
{
    const int x = emit_buf(b, rows, b->j->model.hidden, b->act);
    emit(b, OP_RECV, g == GROUP_PREV ? STREAM_RECV_F : STREAM_RECV_B, g, (struct io){ .write = { x } });
    return x;
}

void emit_send(struct build *b, enum group g, int x)
{
    emit(b, OP_SEND, g == GROUP_NEXT ? STREAM_SEND_F : STREAM_SEND_B, g, (struct io){ .read = { x } });
}
