/* The end of the model: final norm, vocabulary-parallel head and cross-entropy (largest, sum of exponentials
 * and the label's logit, each reduced over tp). Backward turns the logits into their gradient in place. */
#include "models/build.h"

static struct head_w head_weights(struct build *b)
{
    const struct model *m = &b->j->model;
    const int table = m->tied ? build_embedding_table(b) : 0;
    const int norm = build_param(b, PARAM_FINAL_NORM, model_norm_rows(m), m->hidden, SHARD_NONE, 0);
    const int head =
        m->tied ? table : build_param(b, PARAM_HEAD, b->j->plan.vocab_padded, m->hidden, SHARD_ROWS, 0);
    build_bucket_close(b);
    return (struct head_w){ build_weight(b, norm), build_weight(b, head) };
}

/* Depths behind the first may share its weights. */
static void mtp_weights(struct build *b, struct loss_w *w, int i)
{
    const int shared = i && b->j->model.mtp_shared;
    struct weight norm = w->mtp_head[0].norm;
    if (w->has_mtp) w->mtp[i] = shared ? w->mtp[0] : build_mtp_weights(b, i, w->has_heads ? &norm : NULL);
    else if (!shared) norm = build_mtp_norm_weight(b, i);
    w->mtp_head[i] = (struct head_w){ norm, w->head.head };
}

struct loss_w build_loss_weights(struct build *b, int has_mtp, int has_heads)
{
    struct loss_w w = { .has_mtp = has_mtp, .has_heads = has_heads };
    b->layer = -1;
    if (has_heads) w.head = head_weights(b);
    for (int i = 0; i < b->j->plan.mtp; i++) mtp_weights(b, &w, i);
    return w;
}

static void logit_gradient(struct build *b, const struct head_kept *k)
{
    emit(b, OP_XENT_BWD, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .add = { k->logit }, .read = { k->label, k->max, k->sum } });
}

/* The head's input of all tokens. Some stacks gather into one buffer that every layer of this use shares for
 * ever. */
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
    emit(b, OP_XENT_MAX, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { k->max }, .read = { k->logit } });
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
    const int ahead = b->j->stack.async_tp, n_early = ahead ? build_norm_again(b, k->h, w->norm, k->n, 1) : 0;
    const int early = ahead ? gather_input(b, n_early) : 0;
    const int dn_full = emit_dgrad(b, k->logit, w->head), dn = emit_scatter(b, GROUP_TP, dn_full);
    if (k->loss) emit_hold(b, k->loss, 0, 0, 0);
    const int n_full = early ? early : gather_input(b, build_norm_again(b, k->h, w->norm, k->n, 1));
    emit_wgrad(b, n_full, k->logit, w->head);
    if (ahead) emit_hold(b, n_early, 0, 0, 0);      /* autograd's, until the function returns */
    return emit_norm_bwd(b, k->h, w->norm, dn, 0);
}

/* ---- all hidden states in one buffer, as they pass from MTP's chunk to that of the heads, and gradients
 * back ---- */

static void states_apart(struct build *b, int all, int h[1 + MODEL_MTP])
{
    for (int i = 0; i <= b->j->plan.mtp; i++) h[i] = emit_view(b, all, i * b->tok_sp, b->tok_sp);
}

/* A copy of each, as concatenation makes one. */
static int states_joined(struct build *b, const int h[1 + MODEL_MTP])
{
    const int all = emit_buf(b, (1 + b->j->plan.mtp) * b->tok_sp, b->j->model.hidden, b->act);
    int part[1 + MODEL_MTP];
    states_apart(b, all, part);
    for (int i = 0; i <= b->j->plan.mtp; i++)
        emit(b, OP_SPLIT, STREAM_COMPUTE, GROUP_NONE, (struct io){ .write = { part[i] }, .read = { h[i] } });
    return all;
}

/* ---- the end of the model ---- */

int build_loss_fwd(struct build *b, const struct loss_w *w, int x, const int label[1 + MODEL_MTP],
                   struct loss_kept *k)
{
    const int mtp = b->j->plan.mtp;
    int h[1 + MODEL_MTP] = { x };
    if (mtp && !w->has_mtp) states_apart(b, x, h);
    for (int i = 0; i < mtp; i++) {
        if (w->has_mtp) h[i + 1] = build_mtp_fwd(b, &w->mtp[i], i, h[i], label[i], &k->mtp[i]);
        if (w->has_heads) build_mtp_head_fwd(b, &w->mtp_head[i], i, h[i + 1], label[i + 1], &k->mtp_head[i]);
    }
    if (!w->has_heads) return states_joined(b, h);
    build_head_fwd(b, &w->head, h[0], label[0], &k->head);
    return 0;
}

int build_loss_bwd(struct build *b, const struct loss_w *w, int dy, const struct loss_kept *k)
{
    const int mtp = b->j->plan.mtp;
    int dh[1 + MODEL_MTP] = { 0 }, dnext = 0;
    if (!w->has_heads) states_apart(b, dy, dh);
    else dh[0] = build_head_bwd(b, &w->head, &k->head);
    for (int i = mtp - 1; i >= 0; i--) {
        if (w->has_heads) dh[i + 1] = build_mtp_head_bwd(b, &w->mtp_head[i], i, &k->mtp_head[i]);
        if (w->has_mtp) dnext = build_mtp_bwd(b, &w->mtp[i], i, dh[i + 1], dnext, i ? 0 : dh[0], &k->mtp[i]);
    }
    if (!mtp) return dh[0];
    return w->has_mtp ? dnext : states_joined(b, dh);
}
