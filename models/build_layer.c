/* One layer: a mixer (attention or Mamba), then a dense MLP or experts; layers of hybrids have one of the
 * two. With `full` recompute only its input is kept: the whole forward is emitted again in backward. */
#include "models/build.h"

enum {
    PARTS = 4
}; /* attention, dispatch, experts, combine: dense layers count as many, so that layers weave in step */

struct layer_w build_layer_weights(struct build *b, struct layer_kind kind)
{
    struct layer_w w = { .kind = kind };
    if (kind.mixer == MIXER_MAMBA) w.mamba = build_mamba_weights(b);
    if (kind.mixer == MIXER_ATTENTION) {
        w.attention =
            b->j->model.attention == ATTENTION_MLA ? build_mla_weights(b) : build_attention_weights(b);
        build_keep_rope(b);
    }
    if (kind.ffn == FFN_MOE) w.experts = build_moe_weights(b);
    if (kind.ffn == FFN_DENSE) w.mlp = build_mlp_weights(b);
    build_bucket_close(b);
    return w;
}

static int mixer_fwd(struct build *b, const struct layer_w *w, int x, struct layer_kept *k)
{
    if (w->kind.mixer == MIXER_NONE) return x;
    if (w->kind.mixer == MIXER_MAMBA) return build_mamba_fwd(b, &w->mamba, x, &k->mamba);
    return b->j->model.attention == ATTENTION_MLA ? build_mla_fwd(b, &w->attention, x, &k->attention)
                                                  : build_attention_fwd(b, &w->attention, x, &k->attention);
}

static int mixer_bwd(struct build *b, const struct layer_w *w, int dy, const struct layer_kept *k)
{
    if (w->kind.mixer == MIXER_NONE) return dy;
    if (w->kind.mixer == MIXER_MAMBA) return build_mamba_bwd(b, &w->mamba, dy, &k->mamba);
    return b->j->model.attention == ATTENTION_MLA ? build_mla_bwd(b, &w->attention, dy, &k->attention)
                                                  : build_attention_bwd(b, &w->attention, dy, &k->attention);
}

static void scope_mixer(struct build *b, const struct layer_w *w)
{
    if (w->kind.mixer != MIXER_NONE) build_scope(b, w->kind.mixer == MIXER_MAMBA ? GRAPH_MAMBA : GRAPH_ATTN);
}

static void scope_ffn(struct build *b, const struct layer_w *w)
{
    if (w->kind.ffn != FFN_NONE) build_scope(b, w->kind.ffn == FFN_MOE ? GRAPH_MOE_ROUTER : GRAPH_MLP);
}

int build_layer_fwd(struct build *b, const struct layer_w *w, int x, struct layer_kept *k)
{
    k->x = x;
    build_scope_open(b);
    scope_mixer(b, w);
    k->graph_x[0] = build_scope_input(b);
    const int mid = mixer_fwd(b, w, x, k);
    scope_ffn(b, w);
    k->graph_x[1] = build_scope_input(b);
    int out = mid;
    if (w->kind.ffn == FFN_MOE) out = build_moe_fwd(b, &w->experts, mid, &k->experts);
    if (w->kind.ffn == FFN_DENSE) out = build_mlp_fwd(b, &w->mlp, mid, &k->mlp);
    if (w->kind.ffn != FFN_MOE) b->part += PARTS;
    build_scope_open(b);
    return out;
}

int build_layer_bwd(struct build *b, const struct layer_w *w, int dy, const struct layer_kept *kept)
{
    struct layer_kept k = *kept;
    for (int i = 0; i < LEN(k.graph_x); i++)
        if (k.graph_x[i]) emit_hold(b, k.graph_x[i], 0, 0, 0);
    build_scope_open(b);
    if (build_recomputes(b, RECOMPUTE_FULL)) {
        b->flags |= OP_RECOMPUTE;
        build_layer_fwd(b, w, kept->x, &k);
        b->flags &= ~OP_RECOMPUTE;
    }
    int dmid = dy;
    if (w->kind.ffn == FFN_MOE) dmid = build_moe_bwd(b, &w->experts, dy, &k.experts);
    if (w->kind.ffn == FFN_DENSE) scope_ffn(b, w), dmid = build_mlp_bwd(b, &w->mlp, dy, &k.mlp);
    if (w->kind.ffn != FFN_MOE) b->part += PARTS;
    scope_mixer(b, w);
    const int dx = mixer_bwd(b, w, dmid, &k);
    build_scope_open(b);
    return dx;
}
