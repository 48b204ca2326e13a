/* Which ops a plan captures in CUDA graphs (Megatron-LM docs/user-guide/features/cuda_graph.md): modules of a
 * layer, one graph for those that follow each other, so a layer has a few graphs a half; or all of forward and
 * backward. A graph reads its inputs where it was captured, so every micro-batch in flight has a place for a
 * layer's input beside the input itself (TransformerEngine graph.py, make_graphed_callables: static inputs). */
#include "models/build.h"

/* MOE is all of the experts' modules, FULL_LAYER every module. */
static int captures(const struct build *b, enum graph scope)
{
    const int moe = scope == GRAPH_MOE_ROUTER || scope == GRAPH_MOE_PREPROCESS ? 1 << GRAPH_MOE : 0;
    return (b->j->plan.graph & (1 << scope | moe | 1 << GRAPH_FULL_LAYER)) != 0;
}

void build_scope_open(struct build *b)
{
    if (b->graph != OP_GRAPH_NONE && !(b->j->plan.graph & 1 << GRAPH_FULL)) b->graph = OP_GRAPH_NONE;
}

void build_scope(struct build *b, enum graph scope)
{
    if (b->j->plan.graph & 1 << GRAPH_FULL) return;
    if (!captures(b, scope)) b->graph = OP_GRAPH_NONE;
    else if (b->graph == OP_GRAPH_NONE) b->graph = OP_GRAPH_FIRST;
}

int build_scope_input(struct build *b)
{
    if (b->graph != OP_GRAPH_FIRST || b->half != HALF_FWD) return 0;
    const int x = emit_taken(b, b->tok_sp, b->j->model.hidden, b->act);
    b->pr->op[b->pr->n_op - 1].graph = OP_GRAPH_INPUT;
    return x;
}
