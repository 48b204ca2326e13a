/* One pass as a graph: a node is an op, an edge a buffer that one writes and another reads. Weights, gradients and
 * sizes are left out: every op has them, and a picture of everything shows nothing. What forward keeps for
 * backward, and what comes from or goes to a neighbour stage, is drawn as an ellipse. */
#include "tools/draw.h"
#include <string.h>

static const char *stream_fill(enum stream s)
{
    switch (s) {
    case STREAM_COMPUTE: return "#dbe9f6";
    case STREAM_TP:      return "#fdbf6f";
    case STREAM_CP:      return "#ffff99";
    case STREAM_EP:      return "#fb9a99";
    case STREAM_DP:      return "#cab2d6";
    default:             return "#b2df8a";
    }
}

struct drawer {
    FILE *out;
    const struct program *pr;
    int32_t *writer;            /* per root buffer: the last op here that wrote it; 0 none, -1 drawn as a source */
    struct arena a;
};

static int flows(const struct program *pr, int root)
{
    const struct buf *b = &pr->buf[root];
    return b->keep == KEEP_MICRO && !(b->dtype == DT_I32 && b->rows * b->cols <= 2);
}

static const char *shape_text(struct drawer *w, int root)
{
    const struct buf *b = &w->pr->buf[root];
    return arena_printf(&w->a, "%s%lld x %d %s", b->size ? "<= " : "", (long long)b->rows, b->cols,
                        dtype_name((enum dtype)b->dtype));
}

/* The weight that the op uses or whose gradient it makes: "q"; several that lie side by side: the first. */
static const char *weight_name(const struct program *pr, const struct op *o)
{
    for (int i = 0; i < pr->n_param; i++)
        for (int k = 0; k < OP_READS; k++)
            if ((o->io.read[k] && o->io.read[k] == pr->param[i].w) ||
                (k < OP_ADDS && o->io.add[k] && o->io.add[k] == pr->param[i].g))
                return program_param_name((enum param_name)pr->param[i].name);
    return "";
}

static void draw_node(struct drawer *w, int op)
{
    const struct op *o = &w->pr->op[op];
    const char *group = o->group == GROUP_NONE
                            ? ""
                            : arena_printf(&w->a, " over %s", fold_group_name((enum group)o->group));
    fprintf(w->out, "  o%d [label=\"%s%s\\n#%d %s%s%s\", fillcolor=\"%s\"];\n", op, op_name((enum op_kind)o->kind),
            group, op, weight_name(w->pr, o), o->flags & OP_RECOMPUTE ? " recompute" : "",
            o->flags & OP_HOST_READS ? " host waits" : "", stream_fill((enum stream)o->stream));
}

/* A buffer that was there before the pass: an ellipse, once. */
static void draw_source(struct drawer *w, int root)
{
    if (w->writer[root] == 0)
        fprintf(w->out, "  b%d [shape=ellipse, fillcolor=\"#eeeeee\", label=\"%s\"];\n", root, shape_text(w, root));
    w->writer[root] = -1;
}

static void draw_edges(struct drawer *w, int op)
{
    struct use use[OP_USES];
    const int n = op_uses(use, w->pr, &w->pr->op[op]);
    for (int i = 0; i < n; i++) {
        const int root = use[i].buf, counts = w->pr->buf[root].dtype == DT_I32;     /* who goes where: in grey */
        if (!flows(w->pr, root) || use[i].access == ACCESS_WRITE) continue;
        const char *grey = counts ? ", color=\"#cccccc\", style=dashed" : "";
        if (w->writer[root] <= 0) {
            draw_source(w, root);
            fprintf(w->out, "  b%d -> o%d [label=\"\"%s];\n", root, op, grey);
        } else if (w->writer[root] != op) {
            fprintf(w->out, "  o%d -> o%d [label=\"%s\"%s];\n", w->writer[root], op,
                    counts ? "" : shape_text(w, root), grey);
        }
    }
    for (int i = 0; i < n; i++)
        if (use[i].access != ACCESS_READ) w->writer[use[i].buf] = op;
}

static int is_drawn(const struct op *o, const struct draw_part *part)
{
    return part->layer < 0 || o->layer == part->layer;
}

static const char *kind_name(struct layer_kind k)
{
    if (k.ffn != FFN_NONE) return k.ffn == FFN_MOE ? "MoE" : "dense";
    return k.mixer == MIXER_MAMBA ? "Mamba" : "attention";
}

static const char *layer_name(struct arena *a, const struct job *j, int layer)
{
    if (layer < 0) return "embedding, loss, pipeline";
    if (layer >= j->model.layers) return arena_printf(a, "MTP %d", layer - j->model.layers);
    return arena_printf(a, "layer %d (%s)", layer, kind_name(model_layer(&j->model, layer)));
}

void draw_program(FILE *out, const struct program *pr, const struct job *j, const struct draw_part *part)
{
    struct drawer w = { .out = out, .pr = pr };
    const int c = part->chunk * j->plan.pp + part->stage;
    const struct chunk *chunk = &pr->chunk[c];
    const int first = part->backward ? chunk->bwd : chunk->fwd, end = part->backward ? chunk->reduce : chunk->bwd;
    char model[64];
    int open = -2;
    w.writer = arena_alloc(&w.a, (size_t)pr->n_buf * sizeof *w.writer);
    fprintf(
        out,
        "digraph program {\n  graph [fontname=\"Helvetica\", labelloc=t, fontsize=16, ranksep=0.25, "
        "label=\"%s, stage %d, chunk %d: %s of one micro-batch\\nblue: compute; orange: tp; yellow: cp; red: ep; "
        "violet: dp; green: pipeline; grey: from elsewhere\"];\n"
        "  node [shape=box, style=\"filled,rounded\", fontname=\"Helvetica\", fontsize=10, "
        "margin=\"0.08,0.04\"];\n"
        "  edge [fontname=\"Helvetica\", fontsize=8, color=\"#666666\"];\n",
        draw_safe(model, j->model.name), part->stage, c, part->backward ? "backward" : "forward");
    for (int o = first; o < end; o++) {
        if (!is_drawn(&pr->op[o], part)) continue;
        if (pr->op[o].layer != open) {
            if (open != -2) fprintf(out, "  }\n");
            open = pr->op[o].layer;
            fprintf(out, "  subgraph cluster_%d {\n  label=\"%s\"; color=\"#aaaaaa\"; fontsize=12;\n", o,
                    layer_name(&w.a, j, open));
        }
        draw_node(&w, o);
    }
    if (open != -2) fprintf(out, "  }\n");
    for (int o = first; o < end; o++)
        if (is_drawn(&pr->op[o], part)) draw_edges(&w, o);
    fprintf(out, "}\n");
    arena_free(&w.a);
}
