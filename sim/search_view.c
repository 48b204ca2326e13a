/* See search_view.h. */
#include "sim/search_view.h"

static const struct search_shape *shape_of(struct search_views *all, int n_chunk)
{
    if (all->shape[n_chunk]) return all->shape[n_chunk];
    const struct job *j = all->space->job;
    const char *text = all->space->fixed[SEARCH_KEY_LAYOUT] ? j->plan.layout : "auto";
    struct search_shape *s = arena_alloc(all->arena, (size_t)n_chunk * sizeof *s);
    struct layout l;
    struct diag d;
    layout_parse(&l, text, j->model.layers, all->space->mtp, n_chunk, 1, &d);   /* the space has it: it exists */
    for (int c = 0; c < n_chunk; c++)
        for (int layer = l.first[c]; layer < l.first[c + 1]; layer++)
            s[c].n[model_is_moe(&j->model, layer) ? BLOCK_MOE : BLOCK_DENSE]++;
    s[0].n[BLOCK_EMBED] = 1;
    s[n_chunk - 1].n[BLOCK_LOSS] = 1;
    return all->shape[n_chunk] = s;
}

void search_view_init(struct search_views *all, struct arena *a, const struct search_space *s)
{
    struct job *j = arena_alloc(a, sizeof *j);
    *all = (struct search_views){ .space = s, .arena = a, .blocks = search_block_open(a, s) };
    *j = *s->job;
    for (int d = 0; d <= DISPATCHER_ALLGATHER; d++) {
        j->plan.dispatcher = d;
        all->reads |= plan_host_reads(j) << d;
    }
}

struct search_view search_view_of(struct search_views *all, const struct search_point *p)
{
    const struct search_grid *g = &all->space->grid[p->grid];
    const struct plan *plan = &all->space->job->plan;
    const int group = all->space->group ? all->space->group : g->pp;
    return (struct search_view){
        .g = g,
        .point = p,
        .blocks = all->blocks,
        .shape = shape_of(all, g->pp * p->vpp),
        .pp = g->pp,
        .vpp = p->vpp,
        .n_micro = plan->gbs / (g->dp * p->mbs),
        .group = p->vpp == 1 ? plan->gbs : group,
        .weave = p->way.weave,
        .split = plan->split_wgrad != 0,
        .reads = all->reads >> p->way.dispatcher & 1 && (g->ep * g->etp > 1 || !all->space->job->stack.runs),
    };
}

struct search_view search_view_priced(struct search_views *all, const struct search_point *p, int recompute)
{
    const struct model *m = &all->space->job->model;
    struct search_view v = search_view_of(all, p);
    v.recompute = recompute;
    for (int k = 0; k < BLOCK_COUNT; k++) {
        const int none =
            (k == BLOCK_DENSE && m->experts && !m->dense_layers) || (k == BLOCK_MOE && !m->experts);
        if (!none) v.block[k] = search_block_price(all->blocks, p, recompute, (enum block)k);
    }
    return v;
}

const struct search_block *search_view_first(const struct search_view *v, int chunk)
{
    int k = 0;
    while (!v->shape[chunk].n[k]) k++;
    return v->block[k];
}

int search_view_warmup(const struct search_view *v, int stage)
{
    const int behind = v->pp - 1 - stage, slots = v->n_micro * v->vpp;
    const int n = (v->vpp == 1 ? behind : 2 * behind + (v->vpp - 1) * v->group) + v->weave;
    return n < slots ? n : slots;
}

int search_view_slot(const struct search_view *v, int k)
{
    const int first = k / (v->group * v->vpp) * v->group, rest = v->n_micro - first;
    return v->vpp == 1 ? 0 : (k - first * v->vpp) / (rest < v->group ? rest : v->group);
}
