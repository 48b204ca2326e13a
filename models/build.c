/* Puts the blocks of every chunk together: forward, backward, reduction; then each stage's optimizer; then
 * schedules. */
#include "models/build.h"
#include "models/sched.h"
#include "models/spread.h"

/* Of params and buckets; of ops and buffers for each layer: most need no more, and what is not touched costs
 * nothing. */
enum { FIRST_CAPACITY = 256 };

static void arrays_init(struct build *b, int layers)
{
    struct program *pr = b->pr;
    b->cap_param = b->cap_bucket = FIRST_CAPACITY;
    b->cap_buf = b->cap_op = FIRST_CAPACITY * (layers + 1);
    pr->buf = arena_alloc(b->arena, (size_t)b->cap_buf * sizeof *pr->buf);
    pr->op = arena_alloc(b->arena, (size_t)b->cap_op * sizeof *pr->op);
    pr->param = arena_alloc(b->arena, FIRST_CAPACITY * sizeof *pr->param);
    pr->bucket = arena_alloc(b->arena, FIRST_CAPACITY * sizeof *pr->bucket);
    pr->chunk = arena_alloc(b->arena, (size_t)pr->n_chunk * sizeof *pr->chunk);
    pr->stage = arena_alloc(b->arena, (size_t)pr->n_stage * sizeof *pr->stage);
    b->gathered = arena_alloc(b->arena, (size_t)pr->n_stage * sizeof *b->gathered);
    b->roped = arena_alloc(b->arena, (size_t)pr->n_stage * sizeof *b->roped);
    b->table = arena_alloc(b->arena, (size_t)pr->n_stage * sizeof *b->table);
    b->table_unit = arena_alloc(b->arena, (size_t)pr->n_stage * sizeof *b->table_unit);
    if (b->j->plan.fsdp) b->bound = arena_alloc(b->arena, (size_t)b->cap_buf * sizeof *b->bound);
    if (recipe_is_low(b->recipe)) b->copies = arena_alloc(b->arena, (size_t)b->cap_buf * sizeof *b->copies);
    pr->n_buf = pr->n_op = 1;
}

static void metrics_init(struct build *b)
{
    for (int s = 0; s < b->pr->n_stage; s++) {
        const int id = emit_buf(b, 4, 1, DT_F32);
        b->pr->buf[id].keep = KEEP_METRIC;
        b->pr->buf[id].stage = (int16_t)s;
        if (s == 0) b->pr->metric = id;
    }
}

static struct build build_init(struct program *pr, struct arena *a, const struct job *j, int n_chunk,
                               int n_stage, int layers)
{
    const struct plan *p = &j->plan;
    *pr = (struct program){ .n_chunk = n_chunk,
                            .n_stage = n_stage,
                            .n_micro = p->n_micro,
                            .seq = p->seq,
                            .document = p->document ? plan_document_rows(j) : 0,
                            .topk = j->model.topk,
                            .even = { plan_even_rows(j, 0), plan_even_rows(j, 1) },
                            .picked = { plan_picked_rows(j, 0), plan_picked_rows(j, 1) },
                            .round_B = (int32_t)j->stack.alloc_round_B,
                            .arena = a };
    for (int g = 0; g < GROUP_COUNT; g++) pr->group_size[g] = fold_size(j, (enum group)g);
    pr->targets = spread_targets(&j->model, p->ep) * p->etp;
    struct build b = { .pr = pr, .arena = a, .j = j, .layer = -1, .recipe = recipe_of(p->precision),
                       .act = (enum dtype)recipe_of(p->precision)->act,
                       .tok = plan_tokens(p), .tok_sp = plan_tokens_sp(p) };
    for (int k = 0; k < OP_KIND_COUNT; k++) b.arity[k] = op_arity((enum op_kind)k);
    arrays_init(&b, layers);
    metrics_init(&b);
    return b;
}

/* What one chunk carries from its weights to its backward. */
struct body {
    int first, n;               /* layers */
    struct layer_w *w; struct layer_kept *k;
    int has_embedding, has_mtp, has_loss, token, label[1 + MODEL_MTP], table;
    int unit, loss_unit, loss_end;      /* of its first layer; of the model's end: first, behind the last */
    struct loss_w loss_w; struct loss_kept loss_k;
};

static struct body body_init(struct build *b, int first, int n, int has_embedding, int has_mtp, int has_loss)
{
    struct body y = {
        .first = first, .n = n, .has_embedding = has_embedding, .has_mtp = has_mtp, .has_loss = has_loss
    };
    y.w = arena_alloc(b->arena, (size_t)(n + 1) * sizeof *y.w);
    y.k = arena_alloc(b->arena, (size_t)(n + 1) * sizeof *y.k);
    if (has_embedding) y.table = build_embedding_table(b);
    y.unit = b->n_unit;
    for (int i = 0; i < n; i++) {
        b->layer = first + i;
        y.w[i] = build_layer_weights(b, model_layer(&b->j->model, first + i));
    }
    b->layer = -1;
    y.loss_unit = b->n_unit;
    if (has_mtp || has_loss) y.loss_w = build_loss_weights(b, has_mtp, has_loss);
    y.loss_end = b->n_unit;
    return y;
}

static void read_data(struct build *b, struct body *y)
{
    const int labels = y->has_loss  ? 1 + b->j->plan.mtp
                       : y->has_mtp ? b->j->plan.mtp
                                    : 0; /* MTP embeds them */
    if (!y->has_embedding && !labels) return;
    const int words = b->j->stack.token_int64 ? 2 : 1;
    if (y->has_embedding) y->token = emit_buf(b, b->tok, words, DT_I32);
    for (int i = 0; i < labels; i++) y->label[i] = emit_buf(b, b->tok, words, DT_I32);
    emit(b, OP_DATA, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { y->token, y->label[0], y->label[1], y->label[2] } });
}

/* What rotation and attention read where documents are packed; forward's serves backward. */
static void read_documents(struct build *b, const struct body *y)
{
    b->start = 0;
    if (!(b->j->plan.packed & (1 << PACKED_POSITIONS | 1 << PACKED_ATTENTION)) || (!y->n && !y->has_mtp)) return;
    b->start = emit_buf(b, (int64_t)b->j->plan.mbs * b->j->plan.seq, 1, DT_I32);
    emit(b, OP_DOCUMENTS, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { b->start } });
}

/* ---- units that are no layers, where parameters are cut ---- */

typedef void shard_do(struct build *b, int unit, int turn);

static int end_reads_table(const struct build *b, const struct body *y)
{
    return y->has_mtp || (y->has_loss && b->j->model.tied);
}

/* Those of the model's end: its own, and an input table that it shares with another chunk. */
static void end_units(struct build *b, const struct body *y, shard_do *f)
{
    for (int u = y->loss_unit; u < y->loss_end; u++) f(b, u, BUILD_OWN);
    if (end_reads_table(b, y) && !y->has_embedding && build_embedding_unit(b) < y->loss_unit)
        f(b, build_embedding_unit(b), BUILD_OWN);
}

static void scatter(struct build *b, int unit, int turn)
{
    (void)turn;
    build_shard_scatter(b, unit);
}

/* The next one in forward: gathered while this one is at work. */
static void gather_after(struct build *b, const struct body *y, int i)
{
    if (i + 1 < y->n) build_shard_gather(b, y->unit + i + 1, (i + 1) % 2);
    else end_units(b, y, build_shard_gather);
}

static int forward(struct build *b, struct body *y, int x)
{
    build_shard_begin(b);
    read_data(b, y);
    read_documents(b, y);
    if (y->has_embedding) build_shard_gather(b, build_embedding_unit(b), BUILD_OWN);
    gather_after(b, y, -1);
    if (y->has_embedding) x = build_embedding_fwd(b, y->token, y->table);
    for (int i = 0; i < y->n; i++) {
        b->layer = y->first + i;
        gather_after(b, y, i);
        x = build_layer_fwd(b, &y->w[i], x, &y->k[i]);
    }
    b->layer = -1;
    return y->has_mtp || y->has_loss ? build_loss_fwd(b, &y->loss_w, x, y->label, &y->loss_k) : x;
}

static int backward(struct build *b, struct body *y, int dy)
{
    build_shard_begin(b);
    if (y->n) build_shard_gather(b, y->unit + y->n - 1, (y->n - 1) % 2);
    const int early = y->has_embedding && end_reads_table(b, y);
    if (early) build_shard_gradients(b, build_embedding_unit(b), BUILD_OWN);
    end_units(b, y, build_shard_gradients);
    if (y->has_mtp || y->has_loss) dy = build_loss_bwd(b, &y->loss_w, dy, &y->loss_k);
    end_units(b, y, scatter);
    for (int i = y->n - 1; i >= 0; i--) {
        b->layer = y->first + i;
        if (i) build_shard_gather(b, y->unit + i - 1, (i - 1) % 2);
        build_shard_gradients(b, y->unit + i, i % 2);
        dy = build_layer_bwd(b, &y->w[i], dy, &y->k[i]);
        build_shard_scatter(b, y->unit + i);
    }
    b->layer = -1;
    if (y->has_embedding && !early) build_shard_gradients(b, build_embedding_unit(b), BUILD_OWN);
    if (y->has_embedding) build_embedding_bwd(b, y->token, y->table, dy);
    if (y->has_embedding) build_shard_scatter(b, build_embedding_unit(b));
    return y->has_embedding ? 0 : dy;
}

/* `pipe`: the boundary is received and sent; else it is plain buffers, as of a block alone. */
static void chunk_ops(struct build *b, struct body *y, int pipe)
{
    struct program *pr = b->pr;
    struct chunk *c = &pr->chunk[b->chunk];
    const struct layout *l = &b->j->plan.split;
    const int held = pipe && build_keep_holds_pipeline(b), hidden = b->j->model.hidden;
    const int64_t in = b->tok_sp * (pipe ? layout_states(l, b->chunk) : 1);
    const int64_t out = b->tok_sp * (pipe ? layout_states(l, b->chunk + 1) : 1);
    int x_before = 0, dy_before = 0; /* an earlier micro-batch's: its input by its loss graph, its output's
                                        gradient by a variable */
    b->half = HALF_FWD;
    b->graph = b->j->plan.graph & 1 << GRAPH_FULL ? OP_GRAPH_INSIDE : OP_GRAPH_NONE;
    b->part = b->n_norm = 0;
    c->fwd = pr->n_op;
    if (!y->has_embedding) c->x_in = pipe ? emit_recv(b, GROUP_PREV, in) : emit_buf(b, in, hidden, b->act);
    if (held && !y->has_embedding) x_before = emit_taken(b, in, hidden, b->act);
    if (held && !y->has_loss) dy_before = emit_taken(b, out, hidden, b->act);
    c->x_out = forward(b, y, c->x_in);
    if (held) emit_hold(b, x_before, dy_before, 0, 0);
    if (c->x_out && pipe) emit_send(b, GROUP_NEXT, c->x_out);
    b->half = HALF_BWD;
    b->part = 0;
    c->bwd = pr->n_op;
    if (!y->has_loss) c->dy_in = pipe ? emit_recv(b, GROUP_NEXT, out) : emit_buf(b, out, hidden, b->act);
    c->dx_out = backward(b, y, c->dy_in);
    if (held && c->dy_in) emit_hold(b, c->dy_in, 0, 0, 0);
    if (c->dx_out && pipe) emit_send(b, GROUP_PREV, c->dx_out);
    if (b->copies) emit_copy_settle(b, c->fwd, pr->n_op);
    c->bwd = build_offload(b, c->fwd, c->bwd);
    c->reduce = pr->n_op;
    b->graph = OP_GRAPH_NONE;
    build_beside(b, c->fwd, c->reduce);
    build_bucket_reduce(b);
    c->end = pr->n_op;
    build_bucket_gather(b);
    c->gathered = pr->n_op;
}

void program_build(struct program *pr, struct arena *a, const struct job *j)
{
    const struct layout *l = &j->plan.split;
    struct build b = build_init(pr, a, j, l->n_chunk, j->plan.pp, j->model.layers);
    for (int c = 0; c < l->n_chunk; c++) {
        b.chunk = c;
        b.stage = layout_stage(c, j->plan.pp);
        struct body y = body_init(&b, l->first[c], l->first[c + 1] - l->first[c], c == 0, c == l->mtp_chunk,
                                  c == l->n_chunk - 1);
        chunk_ops(&b, &y, 1);
    }
    for (int s = 0; s < pr->n_stage; s++) {
        b.stage = s;
        build_keep_stage(&b);
        build_optimizer(&b);
    }
    sched_build(pr, j);
}

void program_build_block(struct program *pr, struct arena *a, const struct job *j, enum block block)
{
    const int layer = block == BLOCK_DENSE || block == BLOCK_MOE;
    struct build b = build_init(pr, a, j, 1, 1, 0);
    struct body y = body_init(&b, block == BLOCK_MOE ? j->model.dense_layers : 0, layer, block == BLOCK_EMBED,
                              block == BLOCK_LOSS && j->plan.mtp, block == BLOCK_LOSS);
    chunk_ops(&b, &y, 0);
    build_keep_stage(&b);
    build_optimizer(&b);
}
