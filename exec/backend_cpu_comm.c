/* Launchers of communication: each turns shapes or the count matrix into the members' parts and makes one
 * call. A group of one member has no communicator; then the answer is a copy, or already in place. */
#include "exec/backend_cpu.h"
#include <stdlib.h>
#include <string.h>

/* Bytes or numbers for every member, in one allocation: part[0 .. members) and more[0 .. members). */
struct parts {
    int64_t *part, *more;
};

static enum err parts_open(struct parts *s, const struct call *c)
{
    void *p;
    TRY(backend_cpu_scratch(&p, 2 * c->members * (int64_t)sizeof *s->part, c));
    s->part = p;
    s->more = s->part + c->members;
    return OK;
}

static enum err copy(const struct call *c)
{
    memcpy(c->write[0].p, c->read[0].p, (size_t)backend_cpu_B(c, c->read[0], c->op->io.read[0]));
    return OK;
}

static int64_t row_B(const struct call *c)
{
    return c->read[0].cols * dtype_B((enum dtype)c->pr->buf[c->op->io.read[0]].dtype);
}

/* ---- equal parts ---- */

enum err backend_cpu_gather(const struct call *c)
{
    struct parts s;
    if (!c->comm) return copy(c);
    TRY(parts_open(&s, c));
    for (int i = 0; i < c->members; i++) s.part[i] = c->read[0].rows * row_B(c);
    const enum err e = c->comm_ops->gather(c->comm, c->write[0].p, c->read[0].p, s.part, c->d);
    free(s.part);
    return e;
}

enum err backend_cpu_scatter(const struct call *c)
{
    const struct operand y = c->write[0];
    struct parts s;
    if (!c->comm) return copy(c);
    TRY(parts_open(&s, c));
    for (int i = 0; i < c->members; i++) s.part[i] = y.rows * y.cols;
    const enum err e = c->comm_ops->scatter_sum(c->comm, y.p, c->read[0].p, s.part, c->d);
    free(s.part);
    return e;
}

static enum err all_reduce(const struct call *c, int max)
{
    const struct operand x = c->add[0];
    return c->comm ? c->comm_ops->all_reduce(c->comm, x.p, x.rows * x.cols, max, c->d) : OK;
}

enum err backend_cpu_all_reduce(const struct call *c)
{
    return all_reduce(c, 0);
}

enum err backend_cpu_all_max(const struct call *c)
{
    return all_reduce(c, 1);
}

/* My slice of a bucket, in place; the other slices of a gradient are left as they are. */
enum err backend_cpu_grad_scatter(const struct call *c)
{
    float *g = c->add[0].p;
    const int64_t n = c->add[0].rows * c->add[0].cols / c->members;
    struct parts s;
    if (!c->comm) return OK;
    TRY(parts_open(&s, c));
    for (int i = 0; i < c->members; i++) s.part[i] = n;
    const enum err e = c->comm_ops->scatter_sum(c->comm, g + c->me * n, g, s.part, c->d);
    free(s.part);
    return e;
}

/* Summed apart, since what is there stays. */
enum err backend_cpu_scatter_add(const struct call *c)
{
    const int64_t n = c->read[0].rows * c->read[0].cols / c->members;
    float *g = c->add[0].p;
    void *sum;
    struct parts s;
    enum err e = OK;
    TRY(backend_cpu_scratch(&sum, n * (int64_t)sizeof *g, c));
    if (c->comm) {
        e = parts_open(&s, c);
        for (int i = 0; e == OK && i < c->members; i++) s.part[i] = n;
        if (e == OK) e = c->comm_ops->scatter_sum(c->comm, sum, c->read[0].p, s.part, c->d), free(s.part);
    } else memcpy(sum, c->read[0].p, (size_t)n * sizeof *g);
    for (int64_t i = 0; e == OK && i < n; i++) g[i] += ((float *)sum)[i];
    free(sum);
    return e;
}

enum err backend_cpu_param_gather(const struct call *c)
{
    char *w = c->add[0].p;
    const int64_t bytes = backend_cpu_B(c, c->add[0], c->op->io.add[0]) / c->members;
    struct parts s;
    if (!c->comm) return OK;
    TRY(parts_open(&s, c));
    for (int i = 0; i < c->members; i++) s.part[i] = bytes;
    const enum err e = c->comm_ops->gather(c->comm, w, w + c->me * bytes, s.part, c->d);
    free(s.part);
    return e;
}

/* ---- heads for tokens ---- */

/* Where row r of member m's rows stands among all tokens in order of position. */
static int64_t in_order(const struct call *c, int64_t r, int m)
{
    const struct rope at = backend_cpu_positions(c);
    const int local = at.seq / at.cp;
    return r / local * at.seq + rope_position((int)(r % local), at.seq, at.cp, m);
}

/* `tokens`: my tokens with all heads; `heads`: all tokens with my heads; parts of `rows` tokens and `wide` bytes lie
 * one after the other in `parts`, one a member. Copies a part to (out) or from `parts`. */
static void swap_tokens(char *parts, char *tokens, int64_t rows, int64_t wide, int members, int m, int out)
{
    for (int64_t r = 0; r < rows; r++) {
        char *part = parts + (m * rows + r) * wide, *row = tokens + (r * members + m) * wide;
        memcpy(out ? part : row, out ? row : part, (size_t)wide);
    }
}

static void swap_heads(const struct call *c, char *parts, char *heads, int64_t rows, int64_t wide, int m, int out)
{
    for (int64_t r = 0; r < rows; r++) {
        char *part = parts + (m * rows + r) * wide, *row = heads + in_order(c, r, m) * wide;
        memcpy(out ? part : row, out ? row : part, (size_t)wide);
    }
}

/* Fewer rows in than out: my tokens go out, my heads come in; else back. */
enum err backend_cpu_swap(const struct call *c)
{
    const struct operand x = c->read[0], y = c->write[0];
    const int back = x.rows > y.rows;
    const int64_t all_B = x.rows * row_B(c), rows = back ? y.rows : x.rows, wide = all_B / (rows * c->members);
    struct parts s;
    void *p;
    if (!c->comm) return copy(c);
    TRY(backend_cpu_scratch(&p, 2 * all_B, c));
    char *out = p, *in = out + all_B;
    enum err e = parts_open(&s, c);
    for (int m = 0; e == OK && m < c->members; m++) {
        s.part[m] = rows * wide;
        if (back) swap_heads(c, out, x.p, rows, wide, m, 1);
        else swap_tokens(out, x.p, rows, wide, c->members, m, 1);
    }
    if (e == OK) {
        e = c->comm_ops->all_to_all(c->comm, in, s.part, out, s.part, c->d);
        free(s.part);
    }
    for (int m = 0; e == OK && m < c->members; m++) {
        if (back) swap_tokens(in, y.p, rows, wide, c->members, m, 0);
        else swap_heads(c, in, y.p, rows, wide, m, 0);
    }
    free(p);
    return e;
}

/* ---- around the group ---- */

/* One tensor to the next member, from the one before. */
static enum err shift(const struct call *c, int i, struct parts *s)
{
    const int64_t bytes = backend_cpu_B(c, c->read[i], c->op->io.read[i]);
    const int next = (c->me + 1) % c->members, before = (c->me + c->members - 1) % c->members;
    for (int m = 0; m < c->members; m++) {
        s->part[m] = m == next ? bytes : 0;
        s->more[m] = m == before ? bytes : 0;
    }
    return c->comm_ops->all_to_all(c->comm, c->write[i].p, s->more, c->read[i].p, s->part, c->d);
}

enum err backend_cpu_shift(const struct call *c)
{
    struct parts s;
    TRY(parts_open(&s, c));
    enum err e = shift(c, 0, &s);
    if (e == OK && c->read[1].p) e = shift(c, 1, &s);
    free(s.part);
    return e;
}

/* ---- parts by the count matrix ---- */

/* part: my rows for every ep member; more: every ep member's rows for me. */
static enum err exchange_open(struct parts *s, const struct call *c)
{
    const struct exchange x = backend_cpu_exchange(c, c->read[1]);
    TRY(parts_open(s, c));
    for (int j = 0; j < c->members; j++) {
        s->part[j] = exchange_sent(&x, c->at.etp, c->me, j) * row_B(c);
        s->more[j] = exchange_sent(&x, c->at.etp, j, c->me) * row_B(c);
    }
    return OK;
}

enum err backend_cpu_dispatch(const struct call *c)
{
    struct parts s;
    if (!c->comm) return copy(c);
    TRY(exchange_open(&s, c));
    const enum err e = c->comm_ops->all_to_all(c->comm, c->write[0].p, s.more, c->read[0].p, s.part, c->d);
    free(s.part);
    return e;
}

enum err backend_cpu_combine(const struct call *c)
{
    struct parts s;
    if (!c->comm) return copy(c);
    TRY(exchange_open(&s, c));
    const enum err e = c->comm_ops->all_to_all(c->comm, c->write[0].p, s.part, c->read[0].p, s.more, c->d);
    free(s.part);
    return e;
}

/* part: rows that every etp member holds after dispatch, times `per_row`. */
static enum err received_open(struct parts *s, const struct call *c, int64_t per_row)
{
    const struct exchange x = backend_cpu_exchange(c, c->read[1]);
    TRY(parts_open(s, c));
    for (int a = 0; a < c->members; a++) s->part[a] = exchange_received(&x, a, c->at.ep) * per_row;
    return OK;
}

enum err backend_cpu_gather_v(const struct call *c)
{
    struct parts s;
    if (!c->comm) return copy(c);
    TRY(received_open(&s, c, row_B(c)));
    const enum err e = c->comm_ops->gather(c->comm, c->write[0].p, c->read[0].p, s.part, c->d);
    free(s.part);
    return e;
}

enum err backend_cpu_scatter_v(const struct call *c)
{
    struct parts s;
    if (!c->comm) return copy(c);
    TRY(received_open(&s, c, c->read[0].cols));
    const enum err e = c->comm_ops->scatter_sum(c->comm, c->write[0].p, c->read[0].p, s.part, c->d);
    free(s.part);
    return e;
}

/* ---- between stages: member 0 sends, member 1 receives ---- */

enum err backend_cpu_send(const struct call *c)
{
    const int64_t bytes = backend_cpu_B(c, c->read[0], c->op->io.read[0]);
    return c->comm_ops->send(c->comm, 1 - c->me, c->read[0].p, bytes, c->d);
}

enum err backend_cpu_recv(const struct call *c)
{
    const int64_t bytes = backend_cpu_B(c, c->write[0], c->op->io.write[0]);
    return c->comm_ops->recv(c->comm, 1 - c->me, c->write[0].p, bytes, c->d);
}
