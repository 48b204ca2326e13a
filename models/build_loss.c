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
    for (int i = 0; i < b->j->plan.mtp; i++) w.mtp[i] = i && m->mtp_shared ? w.mtp[0] : build_mtp_weights(b, i, w.head.head);
    return w;
}

static void logit_gradient(struct build *b, const struct head_kept *k)
{
    emit(b, OP_XENT_BWD, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .add = { k->logit }, .read = { k->label, k->max, k->sum } });
}

/* The head's input of all tokens. Some stacks gather into one buffer that every layer of this use shares for ever. */
static int gather_input(struct build *b, int n)
{
    if (!b->j->stack.output_gather || b->pr->group_size[GROUP_TP] == 1) return emit_gather(b, GROUP_TP, n);
    const int all = build_keep_gather(b, b->pr->buf[n].cols);
    emit(b, OP_GATHER, STREAM_TP, GROUP_TP, (struct io){ .write = { all }, .read = { n } });
    return all;
}

void build_head_fwd(struct build *b, const struct head_w *w, int h, int label, struct head_kept *k)
{
    const enum cross_entropy how = (enum cross_entropy)b->j->stack.cross_entropy;
    k->h = h;
    k->label = label;
    k->n = emit_norm(b, h, w->norm);
    k->logit = emit_gemm(b, gather_input(b, k->n), w->head);
    k->max = emit_buf(b, b->tok, 1, DT_F32);
    emit(b, OP_XENT_MAX, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { k->max }, .read = { k->logit } });
    emit_all_reduce(b, GROUP_TP, k->max, 1);
    k->sum = emit_buf(b, b->tok, 2, DT_F32);
    emit(b, OP_XENT_SUM, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { k->sum }, .read = { k->logit, label, k->max } });
    emit_all_reduce(b, GROUP_TP, k->sum, 0);
    emit(b, OP_XENT, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .add = { b->pr->metric + b->stage }, .read = { k->sum } });
    if (how == CROSS_ENTROPY_INPLACE) logit_gradient(b, k);
    k->wide = how == CROSS_ENTROPY_FP32_GRAD ? emit_taken(b, b->tok, b->pr->buf[k->logit].cols, DT_F32) : 0;
    k->loss = how == CROSS_ENTROPY_SPLIT ? 0 : emit_taken(b, b->tok, 1, DT_F32);
}

int build_head_bwd(struct build *b, const struct head_w *w, const struct head_kept *k)
{
    if (b->j->stack.cross_entropy != CROSS_ENTROPY_INPLACE) logit_gradient(b, k);
    if (k->wide) emit_hold(b, k->wide, 0, 0, 0);
    const int dn_full = emit_dgrad(b, k->logit, w->head), dn = emit_scatter(b, GROUP_TP, dn_full);
    if (k->loss) emit_hold(b, k->loss, 0, 0, 0);
    const int n = build_norm_again(b, k->h, w->norm, k->n, 1);
    emit_wgrad(b, gather_input(b, n), k->logit, w->head);
    return emit_norm_bwd(b, k->h, w->norm, dn, 0);
}

void build_loss_fwd(struct build *b, const struct loss_w *w, int h, const int label[1 + MODEL_MTP], struct loss_kept *k)
{
    for (int i = 0, from = h; i < b->j->plan.mtp; i++)
        from = build_mtp_fwd(b, &w->mtp[i], i, from, label[i], label[i + 1], &k->mtp[i]);
    build_head_fwd(b, &w->head, h, label[0], &k->head);
}

int build_loss_bwd(struct build *b, const struct loss_w *w, const struct loss_kept *k)
{
    const int dh = build_head_bwd(b, &w->head, &k->head);
    int dnext = 0;
    for (int i = b->j->plan.mtp - 1; i >= 0; i--) dnext = build_mtp_bwd(b, &w->mtp[i], i, i ? 0 : dh, dnext, &k->mtp[i]);
    return b->j->plan.mtp ? dnext : dh;
}
