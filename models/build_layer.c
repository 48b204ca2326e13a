/* One transformer layer: attention, then a dense MLP or experts. With `full` recompute only its input is kept: the whole
 * forward is emitted again in backward. */
#include "models/build.h"

enum { PARTS = 4 };     /* attention, dispatch, experts, combine: dense layers count as many, so that layers weave in step */

struct layer_w build_layer_weights(struct build *b, int moe)
{
    struct layer_w w = { .moe = moe };
    w.attention = b->j->model.attention == ATTENTION_MLA ? build_mla_weights(b) : build_attention_weights(b);
    build_keep_rope(b);
    if (moe) w.experts = build_moe_weights(b);
    else w.mlp = build_mlp_weights(b);
    build_bucket_close(b);
    return w;
}

int build_layer_fwd(struct build *b, const struct layer_w *w, int x, struct layer_kept *k)
{
    k->x = x;
    const int mid = b->j->model.attention == ATTENTION_MLA ? build_mla_fwd(b, &w->attention, x, &k->attention)
                                                           : build_attention_fwd(b, &w->attention, x, &k->attention);
    if (w->moe) return build_moe_fwd(b, &w->experts, mid, &k->experts);
    const int out = build_mlp_fwd(b, &w->mlp, mid, &k->mlp);
    b->part += PARTS;
    return out;
}

int build_layer_bwd(struct build *b, const struct layer_w *w, int dy, const struct layer_kept *kept)
{
    struct layer_kept k = *kept;
    if (build_recomputes(b, RECOMPUTE_FULL)) {
        b->flags |= OP_RECOMPUTE;
        build_layer_fwd(b, w, kept->x, &k);
        b->flags &= ~OP_RECOMPUTE;
    }
    const int dmid = w->moe ? build_moe_bwd(b, &w->experts, dy, &k.experts) : build_mlp_bwd(b, &w->mlp, dy, &k.mlp);
    if (!w->moe) b->part += PARTS;
    return b->j->model.attention == ATTENTION_MLA ? build_mla_bwd(b, &w->attention, dmid, &k.attention)
                                                  : build_attention_bwd(b, &w->attention, dmid, &k.attention);
}
