/* The end of the model: final norm, vocabulary-parallel head and cross-entropy (largest, sum of exponentials and the label's
 * logit, each reduced over tp). Backward turns the logits into their gradient in place. */
#include "models/build.h"

struct loss_w build_loss_weights(struct build *b)
{
    const struct model *m = &b->j->model;
    struct loss_w w = { 0 };
    b->layer = -1;
    const int table = m->tied ? build_embedding_table(b) : 0;
    w.head.norm = build_weight(b, build_param(b, PARAM_FINAL_NORM, model_norm_rows(m), m->hidden, SHARD_NONE, 0));
    w.head.head = build_weight(b, m->tied ? table : build_param(b, PARAM_HEAD, b->j->plan.vocab_padded, m->hidden, SHARD_ROWS, 0));
    build_bucket_close(b);
    if (b->j->plan.mtp) w.mtp = build_mtp_weights(b, w.head.head);
    return w;
}

void build_head_fwd(struct build *b, const struct head_w *w, int h, int label, struct head_kept *k)
{
    k->h = h;
    k->label = label;
    k->n = emit_norm(b, h, w->norm);
    k->logit = emit_gemm(b, emit_gather(b, GROUP_TP, k->n), w->head);
    k->max = emit_buf(b, b->tok, 1, DT_F32);
    emit(b, OP_XENT_MAX, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { k->max }, .read = { k->logit } });
    emit_all_reduce(b, GROUP_TP, k->max, 1);
    k->sum = emit_buf(b, b->tok, 2, DT_F32);
    emit(b, OP_XENT_SUM, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { k->sum }, .read = { k->logit, label, k->max } });
    emit_all_reduce(b, GROUP_TP, k->sum, 0);
    emit(b, OP_XENT, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .add = { b->pr->metric + b->stage }, .read = { k->sum } });
}

int build_head_bwd(struct build *b, const struct head_w *w, const struct head_kept *k)
{
    emit(b, OP_XENT_BWD, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .add = { k->logit }, .read = { k->label, k->max, k->sum } });
    const int dn = emit_scatter(b, GROUP_TP, emit_dgrad(b, k->logit, w->head));
    const int n = build_norm_again(b, k->h, w->norm, k->n);
    emit_wgrad(b, emit_gather(b, GROUP_TP, n), k->logit, w->head);
    return emit_norm_bwd(b, k->h, w->norm, dn, 0);
}

void build_loss_fwd(struct build *b, const struct loss_w *w, int h, int label, int label2, struct loss_kept *k)
{
    if (b->j->plan.mtp) build_mtp_fwd(b, &w->mtp, h, label, label2, &k->mtp);
    build_head_fwd(b, &w->head, h, label, &k->head);
}

int build_loss_bwd(struct build *b, const struct loss_w *w, const struct loss_kept *k)
{
    const int dh = build_head_bwd(b, &w->head, &k->head);
    return b->j->plan.mtp ? build_mtp_bwd(b, &w->mtp, dh, &k->mtp) : dh;
}
