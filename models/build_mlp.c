/* The dense MLP, also used inside the MoE block as the shared expert. Column-parallel up, row-parallel down.
 */
#include "models/build.h"

int build_norm_again(struct build *b, int x, struct weight norm, int kept, int one)
{
    if (!build_recomputes(b, RECOMPUTE_LAYERNORM) || (one && b->j->stack.norm_fused)) return kept;
    b->flags |= OP_RECOMPUTE;
    const int n = emit_norm(b, x, norm);
    b->flags &= ~OP_RECOMPUTE;
    return n;
}

static enum param_name bias_of(enum param_name fc1)
{
    return fc1 == PARAM_FC1 ? PARAM_FC1_BIAS : fc1 == PARAM_EXPERT_FC1 ? PARAM_EXPERT_FC1_BIAS : PARAM_SHARED_FC1_BIAS;
}

void build_mlp_matrices(struct build *b, struct mlp_w *w, enum param_name fc1, int in, int width, int batch)
{
    const struct model *m = &b->j->model;
    const int up = model_up(m) * width;
    const enum shard cut = model_up(m) == 2 ? SHARD_ROWS_PAIR : SHARD_ROWS;
    w->fc1 = build_weight(b, build_param(b, fc1, up, in, cut, batch));
    w->fc2 = build_weight(b, build_param(b, (enum param_name)(fc1 + 1), in, width, SHARD_COLS, batch));
    if (!model_has_bias(m, BIAS_MLP)) return;
    build_bias(b, &w->fc1, bias_of(fc1), up, cut, batch);
    build_bias(b, &w->fc2, (enum param_name)(bias_of(fc1) + 1), in, SHARD_NONE, batch);
}

struct mlp_w build_mlp_weights(struct build *b)
{
    const struct model *m = &b->j->model;
    struct mlp_w w;
    w.norm = build_weight(b, build_param(b, PARAM_MLP_NORM, model_norm_rows(m), m->hidden, SHARD_NONE, 0));
    build_mlp_matrices(b, &w, PARAM_FC1, m->hidden, m->ffn, 0);
    return w;
}

int build_mlp_inner_fwd(struct build *b, const struct mlp_w *w, int n, struct mlp_kept *k)
{
    k->fc1 = emit_gemm(b, emit_gather_input(b, n), w->fc1);
    k->act = emit_act(b, k->fc1, 0);
    return emit_scatter(b, GROUP_TP, emit_gemm(b, k->act, w->fc2));
}

int build_mlp_inner_bwd(struct build *b, const struct mlp_w *w, int dy, int n_again, const struct mlp_kept *k)
{
    const int dy_full = emit_gather_input(b, dy);
    const int dact = emit_dgrad(b, dy_full, w->fc2);
    emit_wgrad(b, k->act, dy_full, w->fc2);
    const int dfc1 = emit_act_bwd(b, k->fc1, dact, 0, NULL);
    int n_full = emit_gather_ahead(b, n_again);
    const int dn = emit_scatter(b, GROUP_TP, emit_dgrad(b, dfc1, w->fc1));
    if (!n_full) n_full = emit_gather_input(b, n_again);
    emit_wgrad(b, n_full, dfc1, w->fc1);
    emit_hold_gathered(b, n_again);
    return dn;
}

int build_mlp_fwd(struct build *b, const struct mlp_w *w, int x, struct mlp_kept *k)
{
    k->x = x;
    k->n = emit_norm(b, x, w->norm);
    return emit_add(b, x, build_mlp_inner_fwd(b, w, k->n, k));
}

/* With recompute `mlp` only the input is kept. */
int build_mlp_bwd(struct build *b, const struct mlp_w *w, int dy, const struct mlp_kept *kept)
{
    struct mlp_kept k = *kept;
    if (build_recomputes(b, RECOMPUTE_MLP)) {
        b->flags |= OP_RECOMPUTE;
        k.n = emit_norm(b, k.x, w->norm);
        build_mlp_inner_fwd(b, w, k.n, &k);
        b->flags &= ~OP_RECOMPUTE;
    } else {
        k.n = build_norm_again(b, k.x, w->norm, k.n, 1);
    }
    const int dn = build_mlp_inner_bwd(b, w, dy, k.n, &k);
    return emit_norm_bwd(b, k.x, w->norm, dn, dy);
}
