/* The input table, cut over tp by vocabulary rows: every rank looks up all tokens of the cp slice, the sum
 * over tp lands sequence-parallel. A stage has at most one table, also when the loss (tied) or MTP uses it
 * again. */
#include "models/build.h"

int build_embedding_table(struct build *b)
{
    if (b->table[b->stage]) return b->table[b->stage] - 1;
    const int layer = b->layer;
    b->layer = -1;
    const int table =
        build_param(b, PARAM_EMBEDDING, b->j->plan.vocab_padded, b->j->model.hidden, SHARD_ROWS, 0);
    build_bucket_close(b);
    b->layer = layer;
    b->table[b->stage] = table + 1;
    b->table_unit[b->stage] = b->n_unit - 1;
    return table;
}

int build_embedding_unit(const struct build *b)
{
    return b->table_unit[b->stage];
}

int build_embedding_fwd(struct build *b, int token, int table)
{
    const int y = emit_buf(b, b->tok, b->j->model.hidden, b->act);
    emit(b, OP_EMBED, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { y }, .read = { token, b->pr->param[table].w } });
    return emit_scatter(b, GROUP_TP, y);
}

void build_embedding_bwd(struct build *b, int token, int table, int dy)
{
    const int dy_full = emit_gather(b, GROUP_TP, dy);
    const struct buf whole = b->pr->buf[b->pr->param[table].w];
    const int flags = b->flags;
    b->flags |= OP_WEIGHT_GRAD;
    const int dense = b->j->stack.table_grad ? emit_taken(b, whole.rows, whole.cols, b->act) : 0;
    emit(b, OP_EMBED_BWD, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .add = { b->pr->param[table].g }, .read = { token, dy_full } });
    if (dense) emit_hold(b, dense, 0, 0, 0);
    b->flags = flags;
}
