/* Multi-token prediction, one depth (DeepSeek-V3 report, section 2.2): the next token's embedding and the
 * hidden state before, each normed, side by side through one projection, then its layers (one like the last)
 * and the shared head. Its projection is whole on every tp rank and works on the sequence-parallel tokens.
 * Body and head are apart: they may stand on two chunks. */
#include "models/build.h"

static struct weight build_mtp_norm(struct build *b)
{
    const struct model *m = &b->j->model;
    return build_weight(b, build_param(b, PARAM_MTP_NORM, model_norm_rows(m), m->hidden, SHARD_NONE, 0));
}

struct mtp_w build_mtp_weights(struct build *b, int depth, struct weight *norm)
{
    const struct model *m = &b->j->model;
    struct mtp_w w = { .table = build_embedding_table(b), .n = model_mtp_layers(m) };
    w.layer = arena_alloc(b->arena, (size_t)w.n * sizeof *w.layer);
    b->layer = m->layers + depth;
    w.enorm = build_weight(b, build_param(b, PARAM_MTP_ENORM, model_norm_rows(m), m->hidden, SHARD_NONE, 0));
    w.hnorm = build_weight(b, build_param(b, PARAM_MTP_HNORM, model_norm_rows(m), m->hidden, SHARD_NONE, 0));
    w.proj = build_weight(b, build_param(b, PARAM_MTP_PROJ, m->hidden, 2 * m->hidden, SHARD_NONE, 0));
    if (norm) *norm = build_mtp_norm(b);
    for (int i = 0; i < w.n; i++) w.layer[i] = build_layer_weights(b, model_mtp_layer(m, i));
    b->layer = -1;
    return w;
}

struct weight build_mtp_norm_weight(struct build *b, int depth)
{
    b->layer = b->j->model.layers + depth;
    const struct weight norm = build_mtp_norm(b);
    build_bucket_close(b);
    b->layer = -1;
    return norm;
}

/* What an MTP depth's ops carry: its number and its flag. */
static void enter(struct build *b, int depth)
{
    b->flags |= OP_MTP;
    b->layer = b->j->model.layers + depth;
}

static void leave(struct build *b)
{
    b->layer = -1;
    b->flags &= ~OP_MTP;
}

void build_mtp_head_fwd(struct build *b, const struct head_w *w, int depth, int h, int label,
                        struct head_kept *k)
{
    enter(b, depth);
    build_head_fwd(b, w, h, label, k);
    leave(b);
}

int build_mtp_head_bwd(struct build *b, const struct head_w *w, int depth, const struct head_kept *k)
{
    enter(b, depth);
    const int dx = build_head_bwd(b, w, k);
    leave(b);
    return dx;
}

int build_mtp_fwd(struct build *b, const struct mtp_w *w, int depth, int h, int token, struct mtp_kept *k)
{
    enter(b, depth);
    k->h = h;
    k->token = token;
    k->e = build_embedding_fwd(b, token, w->table);
    k->en = emit_norm(b, k->e, w->enorm);
    k->hn = emit_norm(b, h, w->hnorm);
    k->cat = emit_like(b, h, 2 * b->j->model.hidden);
    emit(b, OP_MERGE, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { k->cat }, .read = { k->en, k->hn } });
    int x = emit_gemm(b, k->cat, w->proj);
    k->layer = arena_alloc(b->arena, (size_t)w->n * sizeof *k->layer);
    for (int i = 0; i < w->n; i++) x = build_layer_fwd(b, &w->layer[i], x, &k->layer[i]);
    leave(b);
    return x;
}

int build_mtp_bwd(struct build *b, const struct mtp_w *w, int depth, int dx, int dnext, int dh,
                  const struct mtp_kept *k)
{
    enter(b, depth);
    if (dnext) dx = emit_add(b, dx, dnext);
    for (int i = w->n - 1; i >= 0; i--) dx = build_layer_bwd(b, &w->layer[i], dx, &k->layer[i]);
    const int dcat = emit_dgrad(b, dx, w->proj);
    emit_wgrad(b, k->cat, dx, w->proj);
    const int den = emit_like(b, k->h, b->j->model.hidden), dhn = emit_like(b, k->h, b->j->model.hidden);
    emit(b, OP_SPLIT, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { den, dhn }, .read = { dcat } });
    build_embedding_bwd(b, k->token, w->table, emit_norm_bwd(b, k->e, w->enorm, den, 0));
    const int sum = emit_norm_bwd(b, k->h, w->hnorm, dhn, dh);
    leave(b);
    return sum;
}
