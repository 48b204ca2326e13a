/* Turns an item into a call: ids become addresses, capacities become true row counts. Deps have made sure that
 * the size buffers were written, so rows are read here, right before the launch. */
#include "exec/exec_rank.h"
#include "exec/lr.h"
#include "kernels/exchange.h"
#include <math.h>

static char *exec_bind_at(const struct exec_rank *r, const struct item *it, int id)
{
    const struct buf *b = &r->x->pr->buf[id];
    return r->arena + unroll_life(r->u, r->x->pr, it, id)->offset + b->view_at * dtype_B((enum dtype)b->dtype);
}

static int64_t exec_bind_true_rows(const struct exec_rank *r, const struct item *it, const struct buf *b)
{
    return b->size ? ((const int32_t *)(const void *)exec_bind_at(r, it, b->size))[b->size_at] : b->rows;
}

static enum err exec_bind_operand(struct operand *to, const struct exec_rank *r, const struct item *it, int id,
                                  struct diag *d)
{
    *to = (struct operand){ 0 };
    if (!id) return OK;
    const struct buf *b = &r->x->pr->buf[id];
    const int64_t rows = exec_bind_true_rows(r, it, b);
    if (rows < 0 || rows > b->rows)
        return fail(d, ERR_NO,
                    "rank %d, %s of layer %d, micro-batch %d: buffer %d holds %lld rows, its size says %lld: "
                    "either it is short, or its size was read before it was written",
                    r->rank, op_name((enum op_kind)r->x->pr->op[it->op].kind), r->x->pr->op[it->op].layer,
                    it->micro, id, (long long)b->rows, (long long)rows);
    *to = (struct operand){ exec_bind_at(r, it, id), rows, b->cols };
    return OK;
}

static enum err exec_bind_io(struct call *c, const struct exec_rank *r, const struct item *it, struct diag *d)
{
    const struct io *io = &c->op->io;
    for (int i = 0; i < OP_WRITES; i++) TRY(exec_bind_operand(&c->write[i], r, it, io->write[i], d));
    for (int i = 0; i < OP_ADDS; i++) TRY(exec_bind_operand(&c->add[i], r, it, io->add[i], d));
    for (int i = 0; i < OP_READS; i++) TRY(exec_bind_operand(&c->read[i], r, it, io->read[i], d));
    return OK;
}

enum err exec_bind(struct call *c, struct exec_rank *r, const struct item *it, int step, struct diag *d)
{
    const struct exec_shared *x = r->x;
    const struct op *o = &x->pr->op[it->op];
    const int p2p = op_family((enum op_kind)o->kind) == FAMILY_P2P;
    *c = (struct call){ .op = o, .pr = x->pr, .job = x->j, .kernels = x->kernels,
                        .backend_user = x->ask->backend_user, .at = r->at,
                        .rank = r->rank, .iter = (int32_t)(x->ask->first_step + step),
                        .micro = it->micro, .comm_ops = x->comm_ops, .comm = r->comm[o->group][o->stream],
                        .me = p2p ? o->kind == OP_RECV : r->me[o->group],
                        .members = p2p ? 2 : r->members[o->group], .data = &x->data,
                        .part = x->ask->part, .first_seq = x->ask->first_seq + (int64_t)step * x->j->plan.gbs,
                        .loss_tokens = x->loss_tokens ? x->loss_tokens[step] : 0,
                        .lr = lr_at(&x->j->plan, x->ask->first_step + step), .routes = x->ask->routes, .routes_step = x->ask->routes_from + step,
                        .replay = x->ask->replay, .score_gap = &r->score_gap, .d = d };
    if (c->comm) c->comm_ops->say(c->comm, op_name((enum op_kind)o->kind));
    return exec_bind_io(c, r, it, d);
}

/* The first sized operand among what is written, added to and read. */
static int64_t exec_bind_sized(const struct operand *x, const int32_t *id, int n, const struct program *pr)
{
    for (int i = 0; i < n; i++)
        if (id[i] && pr->buf[id[i]].size) return x[i].rows;
    return -1;
}

void exec_bind_rows(int32_t rows[2], const struct call *c)
{
    const struct io *io = &c->op->io;
    rows[0] = rows[1] = 0;
    if (c->op->kind == OP_SIZES) {
        const int32_t *size = c->write[0].p;
        rows[0] = size[0];
        rows[1] = size[1];
        return;
    }
    int64_t n = exec_bind_sized(c->write, io->write, OP_WRITES, c->pr);
    if (n < 0) n = exec_bind_sized(c->add, io->add, OP_ADDS, c->pr);
    if (n < 0) n = exec_bind_sized(c->read, io->read, OP_READS, c->pr);
    if (n > 0) rows[0] = (int32_t)n;
}

struct fullest { int32_t rank; int64_t rows; };

/* All members of an etp x ep group hold the count matrix, so all name the same one. at: 0 after dispatch, 1
 * after the etp gather. */
static struct fullest exec_bind_fullest(const struct exec_rank *r, const struct call *c, int at)
{
    const struct plan *p = &r->x->j->plan;
    const struct exchange x = {
        .count = c->read[0].p, .etp = p->etp, .ep = p->ep, .experts = (int)c->read[0].cols
    };
    struct fullest most = { 0 };
    for (int i = 0; i < r->members[GROUP_TPEP]; i++) {
        const int32_t rank = r->member[GROUP_TPEP][i];
        const struct coord seat = fold_coord(p, rank);
        const int64_t rows = at ? exchange_gathered(&x, seat.ep) : exchange_received(&x, seat.etp, seat.ep);
        if (rows > most.rows) most = (struct fullest){ rank, rows };
    }
    return most;
}

enum err exec_bind_capacity(const struct exec_rank *r, const struct call *c, struct diag *d)
{
    const struct program *pr = r->x->pr;
    const int32_t *least = r->x->least[c->op->io.write[0]];
    for (int at = 0; at < 2; at++) {
        const int64_t holds = least[at] ? pr->buf[least[at]].rows : INT64_MAX;
        const struct fullest most = exec_bind_fullest(r, c, at);
        if (most.rows <= holds) continue;
        return fail(d, ERR_NO,
                    "capacity overflow: rank %d, layer %d, micro-batch %d, step %d: %lld routed rows arrive, "
                    "buffer %d holds %lld; needs capacity %.3f (or worst)",
                    most.rank, c->op->layer, c->micro, c->iter, (long long)most.rows, least[at],
                    (long long)holds, ceil(1e3 * (double)most.rows / (double)pr->even[at]) * 1e-3);
    }
    return OK;
}
