/* Which CUDA graph scopes a plan may have. A graph replays what was captured, launches with the sizes of then: a
 * region in which the host reads a count and sizes the next launch by it cannot be captured (case E06). */
#include "models/plan.h"

enum { GRAPH_EXPERTS = 1 << GRAPH_MOE | 1 << GRAPH_MOE_ROUTER | 1 << GRAPH_MOE_PREPROCESS,
       GRAPH_WHOLE = 1 << GRAPH_FULL | 1 << GRAPH_FULL_LAYER };

static int of_model(int g, const struct model *m)
{
    if (m->experts == 0) g &= ~GRAPH_EXPERTS;
    if (m->mamba_heads == 0) g &= ~(1 << GRAPH_MAMBA);
    return g;
}

int plan_graph_default(const struct job *j)
{
    return of_model(j->stack.graph, &j->model);
}

int plan_graph_most(const struct job *j)
{
    const int g = of_model(j->stack.graphs, &j->model) & ~(GRAPH_WHOLE | 1 << GRAPH_MOE);
    return g & 1 << GRAPH_MOE_ROUTER ? g : g & ~(1 << GRAPH_MOE_PREPROCESS);
}

int plan_host_reads(const struct job *j)
{
    const struct plan *p = &j->plan;
    const int budget = p->dispatcher == DISPATCHER_HYBRIDEP && p->capacity != 0 && !j->stack.runs;
    return j->stack.host_reads && p->routing.policy != ROUTING_PADDED && !budget;
}

static enum err check_offered(const struct job *j, struct diag *d)
{
    const int not_offered = j->plan.graph & ~j->stack.graphs;
    for (int i = 0; i <= GRAPH_FULL; i++)
        if (not_offered >> i & 1)
            return fail(d, ERR_CONFIG, "cuda-graph %s is not offered by stack %s: choose another, or another stack",
                        stack_graphs[i], j->stack.name);
    return OK;
}

/* Scopes beside each other (Megatron-LM transformer_config.py). */
static enum err check_scopes(const struct job *j, struct diag *d)
{
    const int g = j->plan.graph;
    if (g & GRAPH_WHOLE && g & (g - 1))
        return fail(d, ERR_CONFIG, "cuda-graph %s holds every other scope: give it alone, or scopes without it",
                    stack_graphs[g & 1 << GRAPH_FULL ? GRAPH_FULL : GRAPH_FULL_LAYER]);
    if (g & GRAPH_EXPERTS && j->model.experts == 0)
        return fail(d, ERR_CONFIG, "cuda-graph has scopes of experts, but model %s has none: remove them", j->model.name);
    if (g & 1 << GRAPH_MAMBA && j->model.mamba_heads == 0)
        return fail(d, ERR_CONFIG, "cuda-graph has scope mamba, but model %s has no such layers: remove it",
                    j->model.name);
    if (g & 1 << GRAPH_MOE_PREPROCESS && !(g & 1 << GRAPH_MOE_ROUTER))
        return fail(d, ERR_CONFIG, "cuda-graph moe_preprocess is captured behind moe_router: add moe_router");
    if (g & 1 << GRAPH_MOE && g & (1 << GRAPH_MOE_ROUTER | 1 << GRAPH_MOE_PREPROCESS))
        return fail(d, ERR_CONFIG, "cuda-graph moe holds moe_router and moe_preprocess already: give either");
    return OK;
}

static enum err check_static(const struct job *j, enum graph g, struct diag *d)
{
    const struct plan *p = &j->plan;
    if (!(p->graph >> g & 1) || j->model.experts == 0 || !plan_host_reads(j)) return OK;
    return fail(d, ERR_CONFIG,
                "cuda-graph %s would capture the host's read of routed row counts (dispatcher %s, load %s, capacity 0): "
                "use attn+moe_router+moe_preprocess; or load padded:cf1; or dispatcher hybridep with a capacity, "
                "such as 1.5",
                stack_graphs[g], stack_dispatchers[p->dispatcher], p->load);
}

enum err plan_graph_check(const struct job *j, struct diag *d)
{
    TRY(check_offered(j, d));
    TRY(check_scopes(j, d));
    TRY(check_static(j, GRAPH_MOE, d));
    TRY(check_static(j, GRAPH_FULL_LAYER, d));
    return check_static(j, GRAPH_FULL, d);
}
