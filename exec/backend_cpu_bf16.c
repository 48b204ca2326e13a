/* Plans with buffers in bfloat16: what is stored so is computed with as float. An op of arithmetic gets float copies of what it
 * reads, and what it wrote is rounded once, when it is done: a product accumulates in float over its whole inner
 * dimension. Main gradients, moments, master weights and losses are float buffers and pass as they are.
 * Communication moves bytes and needs no more than to add right: sums over members run in float, in member order,
 * and are rounded once; their parts travel as all-to-alls. */
#include "exec/backend_cpu.h"
#include "exec/numbers.h"
#include <stdlib.h>
#include <string.h>

/* ---- arithmetic ---- */

enum { WIDE_OPERANDS = OP_WRITES + OP_ADDS + OP_READS };

/* Operand i of a call in the order written, added to, read; its buffer. */
static struct operand *operand_at(struct call *c, int i, int *id)
{
    const struct io *io = &c->op->io;
    if (i < OP_WRITES) return *id = io->write[i], &c->write[i];
    if (i < OP_WRITES + OP_ADDS) return *id = io->add[i - OP_WRITES], &c->add[i - OP_WRITES];
    return *id = io->read[i - OP_WRITES - OP_ADDS], &c->read[i - OP_WRITES - OP_ADDS];
}

static int is_bf16(const struct call *c, const struct operand *o, int id)
{
    return o->p && c->pr->buf[id].dtype == DT_BF16;
}

static int64_t floats_needed(struct call *c)
{
    int64_t n = 0;
    for (int i = 0; i < WIDE_OPERANDS; i++) {
        int id;
        const struct operand *o = operand_at(c, i, &id);
        if (is_bf16(c, o, id)) n += o->rows * o->cols;
    }
    return n;
}

/* Every bf16 operand of `wide` becomes floats at `to`, filled where it is read. */
static void widen(struct call *wide, float *to)
{
    for (int i = 0; i < WIDE_OPERANDS; i++) {
        int id;
        struct operand *o = operand_at(wide, i, &id);
        if (!is_bf16(wide, o, id)) continue;
        if (i >= OP_WRITES) wide->kernels->bf16_widen(to, o->p, o->rows * o->cols);
        o->p = to;
        to += o->rows * o->cols;
    }
}

static void narrow(struct call *c, struct call *wide)
{
    for (int i = 0; i < OP_WRITES + OP_ADDS; i++) {
        int id;
        struct operand *to = operand_at(c, i, &id), *from = operand_at(wide, i, &id);
        if (is_bf16(c, to, id)) c->kernels->bf16_narrow(to->p, from->p, to->rows * to->cols);
    }
}

static enum err in_float(const struct call *call)
{
    struct call c = *call, wide = *call;
    const int64_t n = floats_needed(&c);
    void *floats;
    if (n == 0) return backend_cpu_launch[c.op->kind](&c);
    TRY(backend_cpu_scratch(&floats, n * (int64_t)sizeof(float), &c));
    widen(&wide, floats);
    const enum err e = backend_cpu_launch[c.op->kind](&wide);
    if (e == OK) narrow(&c, &wide);
    free(floats);
    return e;
}

/* Master weights in two halves: whole for the step, then cut again. */
static enum err in_halves(const struct call *call)
{
    struct call c = *call;
    const int64_t n = c.add[1].rows, first = c.me * n;
    struct numbers master = { .p = c.add[1].p, .type = DT_I16, .high = (bf16 *)c.add[0].p + first };
    void *floats;
    if (c.pr->buf[c.op->io.add[1]].dtype != DT_I16) return in_float(call);
    TRY(backend_cpu_scratch(&floats, n * (int64_t)sizeof(float), &c));
    numbers_get(floats, master, 0, n);
    c.add[1].p = floats;
    const enum err e = in_float(&c);
    if (e == OK) numbers_set(master, 0, floats, n);
    free(floats);
    return e;
}

/* ---- sums over members ---- */

/* out [part_n[me]] = the sum over members of their part `me` of in, both bf16; `out` may be that part of `in`. */
static enum err scatter_sum(const struct call *c, bf16 *out, const bf16 *in, const int64_t *part_n)
{
    const int64_t mine = part_n[c->me];
    int64_t *send_B;
    void *p;
    TRY(backend_cpu_scratch(&p, c->members * (2 * (int64_t)sizeof *send_B + mine * (int64_t)sizeof *in), c));
    send_B = p;
    int64_t *recv_B = send_B + c->members;
    bf16 *parts = (bf16 *)(recv_B + c->members);
    for (int i = 0; i < c->members; i++) {
        send_B[i] = part_n[i] * (int64_t)sizeof *in;
        recv_B[i] = mine * (int64_t)sizeof *in;
    }
    const enum err e = c->comm_ops->all_to_all(c->comm, parts, recv_B, in, send_B, c->d);
    for (int64_t k = 0; e == OK && k < mine; k++) {
        float sum = 0;
        for (int i = 0; i < c->members; i++) sum += bf16_to_float(parts[i * mine + k]);
        out[k] = bf16_of_float(sum);
    }
    free(p);
    return e;
}

static enum err equal_parts(int64_t **part, int64_t n, const struct call *c)
{
    void *p;
    TRY(backend_cpu_scratch(&p, c->members * (int64_t)sizeof **part, c));
    *part = p;
    for (int i = 0; i < c->members; i++) (*part)[i] = n;
    return OK;
}

static enum err scatter(const struct call *c)
{
    const struct operand y = c->write[0];
    int64_t *part;
    if (!c->comm || !is_bf16(c, &y, c->op->io.write[0])) return backend_cpu_scatter(c);
    TRY(equal_parts(&part, y.rows * y.cols, c));
    const enum err e = scatter_sum(c, y.p, c->read[0].p, part);
    free(part);
    return e;
}

static enum err scatter_v(const struct call *c)
{
    const struct operand y = c->write[0];
    const struct exchange x = backend_cpu_exchange(c, c->read[1]);
    int64_t *part;
    if (!c->comm || !is_bf16(c, &y, c->op->io.write[0])) return backend_cpu_scatter_v(c);
    TRY(equal_parts(&part, 0, c));
    for (int a = 0; a < c->members; a++) part[a] = exchange_received(&x, a, c->at.ep) * y.cols;
    const enum err e = scatter_sum(c, y.p, c->read[0].p, part);
    free(part);
    return e;
}

static enum err grad_scatter(const struct call *c)
{
    const struct operand g = c->add[0];
    const int64_t n = g.rows * g.cols / c->members;
    int64_t *part;
    if (!c->comm || !is_bf16(c, &g, c->op->io.add[0])) return backend_cpu_grad_scatter(c);
    TRY(equal_parts(&part, n, c));
    const enum err e = scatter_sum(c, (bf16 *)g.p + c->me * n, g.p, part);
    free(part);
    return e;
}

static enum err scatter_add(const struct call *c)
{
    const struct operand g = c->add[0];
    int64_t *part;
    void *sum;
    if (!is_bf16(c, &g, c->op->io.add[0])) return backend_cpu_scatter_add(c);
    TRY(equal_parts(&part, g.rows, c));
    enum err e = backend_cpu_scratch(&sum, g.rows * (int64_t)sizeof(bf16), c);
    if (e == OK) {
        e = scatter_sum(c, sum, c->read[0].p, part);
        for (int64_t k = 0; e == OK && k < g.rows; k++)
            ((bf16 *)g.p)[k] = bf16_of_float(bf16_to_float(((bf16 *)g.p)[k]) + bf16_to_float(((bf16 *)sum)[k]));
        free(sum);
    }
    free(part);
    return e;
}

/* Everybody's, then summed by everybody: in member order on all, so all hold the same bits. */
static enum err all_reduce(const struct call *c)
{
    const struct operand x = c->add[0];
    const int64_t n = x.rows * x.cols;
    int64_t *part;
    void *all;
    if (!c->comm || !is_bf16(c, &x, c->op->io.add[0])) return backend_cpu_all_reduce(c);
    TRY(equal_parts(&part, n * (int64_t)sizeof(bf16), c));
    enum err e = backend_cpu_scratch(&all, c->members * n * (int64_t)sizeof(bf16), c);
    if (e == OK) {
        e = c->comm_ops->gather(c->comm, all, x.p, part, c->d);
        for (int64_t k = 0; e == OK && k < n; k++) {
            float sum = 0;
            for (int i = 0; i < c->members; i++) sum += bf16_to_float(((const bf16 *)all)[i * n + k]);
            ((bf16 *)x.p)[k] = bf16_of_float(sum);
        }
        free(all);
    }
    free(part);
    return e;
}

/* Copies of rows need no floats. */
static enum err embed(const struct call *c)
{
    const struct operand y = c->write[0], table = c->read[1];
    const int32_t *token = c->read[0].p;
    if (!is_bf16(c, &y, c->op->io.write[0])) return backend_cpu_embed(c);
    for (int64_t t = 0; t < y.rows; t++) {
        const int64_t row = token[t] - c->at.tp * table.rows;
        bf16 *to = (bf16 *)y.p + t * y.cols;
        if (row < 0 || row >= table.rows) memset(to, 0, (size_t)y.cols * sizeof *to);
        else memcpy(to, (const bf16 *)table.p + row * y.cols, (size_t)y.cols * sizeof *to);
    }
    return OK;
}

/* ---- the choice ---- */

static enum err any(const struct call *c)
{
    const enum op_kind k = (enum op_kind)c->op->kind;
    const enum op_family f = op_family(k);
    switch (k) {
    case OP_EMBED: return embed(c);
    case OP_ADAMW: case OP_SGD: return in_halves(c);
    case OP_DISPATCH_TOKENS: case OP_COMBINE_TOKENS: return in_float(c);
    case OP_SCATTER: return scatter(c);
    case OP_SCATTER_V: return scatter_v(c);
    case OP_GRAD_SCATTER: return grad_scatter(c);
    case OP_ALL_REDUCE: return all_reduce(c);
    case OP_SCATTER_ADD: return scatter_add(c);
    case OP_ZERO: case OP_HOLD: case OP_OFFLOAD: case OP_RELOAD: case OP_DATA: case OP_SIZES: return backend_cpu_launch[k](c);
    default: return f == FAMILY_COMM || f == FAMILY_P2P ? backend_cpu_launch[k](c) : in_float(c);
    }
}

launch *const *backend_cpu_table(const struct plan *p)
{
    static launch *const bf16_table[OP_KIND_COUNT] = { [0 ... OP_KIND_COUNT - 1] = any };
    return p->precision == PRECISION_FP32 && p->moments == STATE_FP32 ? backend_cpu_launch : bf16_table;
}
