#include "models/op.h"
#include "models/program.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *name, *io; } kinds[] = {
#define X(id, family, io) { #id, io },
    OP_LIST(X)
#undef X
};

static const char *const streams[] = {
#define X(id) #id,
    STREAM_LIST(X)
#undef X
};

const char *op_name(enum op_kind k)
{
    return kinds[k].name;
}

const char *op_io_text(enum op_kind k)
{
    return kinds[k].io;
}

const char *op_family_name(enum op_family f)
{
    static const char *const name[] = { "GEMM", "grouped GEMM", "attention", "memory-bound", "communication",
                                        "pipeline", "optimizer", "host", "offload" };
    return name[f];
}

const char *op_stream_name(enum stream s)
{
    return streams[s];
}

/* ---- arity ---- */

/* '+' marks an add, left of the arrow the rest are writes. */
struct op_arity op_arity(enum op_kind k)
{
    struct op_arity a = { 0 };
    int left = 1;
    for (const char *s = kinds[k].io; *s;) {
        const size_t len = strcspn(s, " ,");
        if (len == 2 && !strncmp(s, "<-", 2)) left = 0;
        else if (len > 0) {
            const int optional = memchr(s, '?', len) != NULL, add = memchr(s, '+', len) != NULL;
            const enum access to = !left ? ACCESS_READ : add ? ACCESS_ADD : ACCESS_WRITE;
            const int bit = a.named[to] + 1;        /* named bits stand in a row, from the lowest */
            a.named[to] = (uint8_t)(a.named[to] | bit);
            if (!optional) a.required[to] = (uint8_t)(a.required[to] | bit);
        }
        s += len;
        s += strspn(s, " ,");
    }
    return a;
}

static int operands_fit(const int32_t *id, int n, struct op_arity a, enum access access)
{
    int there = 0;
    for (int i = 0; i < n; i++) there |= (id[i] != 0) << i;
    return !(there & ~a.named[access]) && !(a.required[access] & ~there);
}

int op_io_fits(const struct op *o, struct op_arity a)
{
    return operands_fit(o->io.read, OP_READS, a, ACCESS_READ) &&
           operands_fit(o->io.write, OP_WRITES, a, ACCESS_WRITE) &&
           operands_fit(o->io.add, OP_ADDS, a, ACCESS_ADD);
}

int op_io_complete(const struct op *o)
{
    return op_io_fits(o, op_arity((enum op_kind)o->kind));
}

/* ---- uses ---- */

static int add_use(struct use *use, int n, int buf, enum access access)
{
    for (int i = 0; i < n; i++)
        if (use[i].buf == buf) {    /* one entry a buffer; a write and a read of it together are an add */
            if (use[i].access != access) use[i].access = ACCESS_ADD;
            return n;
        }
    use[n] = (struct use){ buf, access };
    return n + 1;
}

static int add_operand(struct use *use, int n, const struct program *pr, int id, enum access access)
{
    if (!id) return n;
    n = add_use(use, n, program_root(pr, id), access);
    return pr->buf[id].size ? add_use(use, n, pr->buf[id].size, ACCESS_READ) : n;
}

int op_uses(struct use use[OP_USES], const struct program *pr, const struct op *o)
{
    int n = 0;
    for (int i = 0; i < OP_READS; i++) n = add_operand(use, n, pr, o->io.read[i], ACCESS_READ);
    for (int i = 0; i < OP_ADDS; i++) n = add_operand(use, n, pr, o->io.add[i], ACCESS_ADD);
    for (int i = 0; i < OP_WRITES; i++) n = add_operand(use, n, pr, o->io.write[i], ACCESS_WRITE);
    return n;
}

/* ---- work ---- */

static double rows_of(const struct program *pr, int id, const int64_t even[2])
{
    return (double)program_rows(pr, id, even);
}

static double bytes_of(const struct program *pr, int id, const int64_t even[2])
{
    if (!id) return 0;
    return (double)dtype_all_B((enum dtype)pr->buf[id].dtype, program_rows(pr, id, even) * pr->buf[id].cols);
}

/* Every operand once; what is added to is read and written. */
static void work_bytes(struct work *w, const struct program *pr, const struct op *o, const int64_t even[2])
{
    for (int i = 0; i < OP_READS; i++) w->read_B += bytes_of(pr, o->io.read[i], even);
    for (int i = 0; i < OP_WRITES; i++) w->write_B += bytes_of(pr, o->io.write[i], even);
    for (int i = 0; i < OP_ADDS; i++) {
        const double add_B = bytes_of(pr, o->io.add[i], even);
        w->read_B += add_B;
        w->write_B += add_B;
    }
}

/* rows: tokens; cols: outputs; inner: inputs of the layer, in forward, data and weight gradient alike. */
static void work_gemm(struct work *w, const struct program *pr, const struct op *o, const int64_t even[2])
{
    const int grouped = op_family((enum op_kind)o->kind) == FAMILY_GROUPED;
    const int wgrad = o->kind == OP_WGRAD || o->kind == OP_GROUPED_WGRAD;
    const int dgrad = o->kind == OP_DGRAD || o->kind == OP_GROUPED_DGRAD;
    const int weight = wgrad ? o->io.add[0] : o->io.read[1], x = o->io.read[0];
    w->rows = program_rows(pr, x, even);
    w->inner = pr->buf[weight].cols;
    w->cols = wgrad ? pr->buf[o->io.read[1]].cols : dgrad ? pr->buf[x].cols : pr->buf[o->io.write[0]].cols;
    w->experts = grouped ? pr->buf[weight].rows / w->cols : 1;
    w->dtype = dtype_peak((enum dtype)pr->buf[x].dtype);
    w->flop = 2.0 * (double)w->rows * (double)w->cols * (double)w->inner;
    const struct buf *b = &pr->buf[x];
    const int static_rows = grouped && !b->size && pr->picked[b->size_at] < pr->even[b->size_at];
    const double bare = (double)(static_rows ? pr->picked[b->size_at] : program_rows_bare(pr, x, even));
    w->model_flop = o->flags & (OP_RECOMPUTE | OP_ROUTER) ? 0 : 2.0 * bare * (double)w->cols * (double)w->inner;
}

/* Causal half of both products: T (seq / 2) (n d_qk + n d_v) multiply-adds forward; five products backward (three as wide as
 * q, two as o), of which Megatron's counter books four (twice forward). */
static void work_attention(struct work *w, const struct program *pr, const struct op *o, const int64_t even[2])
{
    const int backward = o->kind == OP_ATTN_BWD;
    const int q = o->io.read[0], out = backward ? o->io.read[3] : o->io.write[0];
    const int packed = pr->document && o->io.read[backward ? 6 : 4];
    const int64_t seq = packed ? pr->document : pr->seq;
    const int64_t back = packed && (!o->window || o->window > seq) ? seq : o->window;
    const double share = o->ring ? model_ring_share(pr->seq, back, pr->group_size[GROUP_CP], o->ring - 1) : 1;
    const double seen = 2 * share * model_context(seq, o->window);          /* half of it on average */
    const double per_col = (double)program_rows(pr, q, even) * seen;        /* 2 FLOP, half the square */
    const double qk_flop = per_col * pr->buf[q].cols, pv_flop = per_col * pr->buf[out].cols;
    w->rows = program_rows(pr, q, even);
    w->cols = pr->buf[q].cols;
    w->inner = (int64_t)seen;
    w->experts = pr->buf[backward ? o->io.read[4] : o->io.write[1]].cols;
    w->dtype = dtype_peak((enum dtype)pr->buf[q].dtype);
    w->flop = backward ? 3 * qk_flop + 2 * pv_flop : qk_flop + pv_flop;
    w->model_flop = o->flags & OP_RECOMPUTE ? 0 : (backward ? 2 : 1) * (qk_flop + pv_flop);
}

/* Tokens of the rank that sends most, each in `targets` copies, or of the one that receives most (rows are a token's
 * picks, on every etp member, unless the load says how many tokens those are); weights of the picks ride along. rows:
 * those of the local experts. */
static void work_tokens(struct work *w, const struct program *pr, const struct op *o, const int64_t even[2])
{
    const int out = o->kind == OP_DISPATCH_TOKENS, token = out ? o->io.read[0] : o->io.write[0];
    const int row = out ? o->io.write[0] : o->io.read[0];
    const double n = pr->group_size[o->group], picks = (double)pr->topk * pr->group_size[GROUP_ETP];
    const double sent = rows_of(pr, token, even), received = (double)program_rows_bare(pr, row, even) / picks;
    const double token_B = pr->buf[token].cols * dtype_B((enum dtype)pr->buf[token].dtype) +
                           (o->io.write[1] ? pr->topk * dtype_B(DT_F32) : 0);
    w->rows = program_rows(pr, row, even);
    const double busiest = pr->busy.targets > 0 ? sent * pr->busy.targets : received * pr->targets;
    w->wire_B = fmax(sent * pr->targets, busiest) * token_B * (n - 1) / n;
}

static void work_wire(struct work *w, const struct program *pr, const struct op *o, const int64_t even[2])
{
    const double n = pr->group_size[o->group], share = (n - 1) / n;
    const double read_B = bytes_of(pr, o->io.read[0], even), write_B = bytes_of(pr, o->io.write[0], even);
    const double add_B = bytes_of(pr, o->io.add[0], even);
    switch (o->kind) {
    case OP_GATHER: case OP_GATHER_V: w->wire_B = write_B * share; break;
    case OP_SCATTER: case OP_SCATTER_V: case OP_SCATTER_ADD: w->wire_B = read_B * share; break;
    case OP_DISPATCH: case OP_COMBINE: case OP_SWAP: w->wire_B = read_B * share; break;
    case OP_SHIFT: w->wire_B = read_B + bytes_of(pr, o->io.read[1], even); break;
    case OP_DISPATCH_TOKENS: case OP_COMBINE_TOKENS: work_tokens(w, pr, o, even); break;
    case OP_ALL_REDUCE: case OP_ALL_MAX: w->wire_B = 2 * add_B * share; break;
    case OP_GRAD_SCATTER: case OP_PARAM_GATHER: w->wire_B = add_B * share; break;
    case OP_SEND: w->wire_B = read_B; break;
    case OP_RECV: w->wire_B = write_B; break;
    default: break;
    }
}

/* Of Mamba's mixer: convolution, chunk states, their passing, chunk outputs and the gated norm are kernels that read what the
 * one before wrote (state-spaces/mamba ssd_combined.py): input and output pass once more, states twice more. Backward does
 * all of it again, then twice as much of its own. */
static void work_scan(struct work *w, const struct program *pr, const struct op *o, const int64_t even[2])
{
    const int backward = o->kind == OP_SCAN_BWD, state = o->io.write[backward ? 1 : 2];
    const double x_B = bytes_of(pr, o->io.read[0], even), y_B = bytes_of(pr, backward ? o->io.read[1] : o->io.write[1], even);
    const double state_B = bytes_of(pr, state, even), times = backward ? 3 : 1;
    const double once = MODEL_SCAN_FLOP * rows_of(pr, o->io.read[0], even) * pr->buf[state].cols;
    w->read_B += times * (x_B + y_B + 2 * state_B);
    w->write_B += times * (x_B + state_B);
    w->flop = times * once;
    w->model_flop = o->flags & OP_RECOMPUTE ? 0 : (backward ? 2 : 1) * once;
}

/* Ops that touch only a part of an operand. */
static void work_parts(struct work *w, const struct program *pr, const struct op *o, const int64_t even[2])
{
    const double part = 1.0 / pr->group_size[o->group];
    switch (o->kind) {
    case OP_EMBED:                      /* reads the rows it needs, not the table */
        w->read_B = bytes_of(pr, o->io.read[0], even) + w->write_B;
        break;
    case OP_EMBED_BWD: {
        const double rows_B = rows_of(pr, o->io.read[1], even) * pr->buf[o->io.add[0]].cols *
                              dtype_B((enum dtype)pr->buf[o->io.add[0]].dtype);
        w->read_B = bytes_of(pr, o->io.read[0], even) + bytes_of(pr, o->io.read[1], even) + rows_B;
        w->write_B = rows_B;
        break;
    }
    case OP_ADAMW: case OP_SGD: {       /* master and moments are parts already */
        const double whole_B = bytes_of(pr, o->io.add[0], even) * (1 - part);
        w->read_B -= whole_B + bytes_of(pr, o->io.read[0], even) * (1 - part);
        w->write_B -= whole_B;
        break;
    }
    case OP_CAST:
        w->read_B -= bytes_of(pr, o->io.add[0], even);
        w->write_B *= part;
        break;
    case OP_SUMSQ:
        w->read_B = bytes_of(pr, o->io.read[0], even) * part;
        break;
    case OP_SCAN: case OP_SCAN_BWD: work_scan(w, pr, o, even); break;
    case OP_HOLD: case OP_SIZES: case OP_DATA: case OP_DOCUMENTS:
        w->read_B = w->write_B = 0;
        break;
    default: break;
    }
}

struct work op_work(const struct program *pr, const struct op *o, const int64_t even[2])
{
    struct work w = { .dtype = DT_F32 };
    work_bytes(&w, pr, o, even);
    switch (op_family((enum op_kind)o->kind)) {
    case FAMILY_GEMM: case FAMILY_GROUPED: work_gemm(&w, pr, o, even); break;
    case FAMILY_ATTENTION: work_attention(&w, pr, o, even); break;
    case FAMILY_COMM: case FAMILY_P2P: work_wire(&w, pr, o, even); break;
    default: work_parts(&w, pr, o, even); break;
    }
    return w;
}
