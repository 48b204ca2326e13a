/* See search_view.h. */
#include "sim/search_view.h"
#include <string.h>

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

static int same_stage(const struct search_shape *s, int n_chunk, int pp, int stage)
{
    for (int c = stage; c < n_chunk; c += pp)
        if (memcmp(&s[c], &s[c - 1], sizeof s[c])) return 0;
    return 1;
}

static const struct search_runs *runs_of(struct search_views *all, int n_chunk, int pp)
{
    const struct search_shape *s = shape_of(all, n_chunk);
    if (!all->runs[n_chunk])
        all->runs[n_chunk] = arena_alloc(all->arena, (size_t)(n_chunk + 1) * sizeof *all->runs[n_chunk]);
    if (all->runs[n_chunk][pp]) return all->runs[n_chunk][pp];
    struct search_runs *r = arena_alloc(all->arena, sizeof *r + (size_t)pp * sizeof r->run[0]);
    for (int stage = 0; stage < pp; stage++) {
        struct search_run *run = &r->run[r->n - 1];
        if (stage && same_stage(s, n_chunk, pp, stage)) {
            run->n++;
            continue;
        }
        run = &r->run[r->n++];
        run->first = stage, run->n = 1;
        for (int c = stage; c < n_chunk; c += pp)
            for (int k = 0; k < BLOCK_COUNT; k++) run->all[k] += s[c].n[k];
    }
    return all->runs[n_chunk][pp] = r;
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
        .runs = runs_of(all, g->pp * p->vpp, g->pp),
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

/* Whole rounds of groups, then part of one, which the last micro-batches may make shorter. */
void search_view_slots_of(int n[], const struct search_view *v, int k)
{
    const int round = v->group * v->vpp, whole = v->n_micro / v->group;
    const int rounds = k / round < whole ? k / round : whole;
    const int rest = v->n_micro - rounds * v->group, group = rest < v->group ? rest : v->group;
    for (int c = 0, left = k - rounds * round; c < v->vpp; c++, left -= group)
        n[c] = rounds * v->group + (left < 0 ? 0 : left < group ? left : group);
}

int search_view_slot(const struct search_view *v, int k)
{
    const int first = k / (v->group * v->vpp) * v->group, rest = v->n_micro - first;
    return v->vpp == 1 ? 0 : (k - first * v->vpp) / (rest < v->group ? rest : v->group);
}
