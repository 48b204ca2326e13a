/* See search_stage.h. */
#include "sim/search_stage.h"
#include <string.h>

/* Slots of the stage's chunks that are passes of their own: all, or those of warm-up and flush. */
static void alone_slots(double alone_f[], double alone_b[], const struct search_view *v, int stage)
{
    const int slots = v->n_micro * v->vpp, warmup = search_view_warmup(v, stage);
    for (int c = 0; c < v->vpp; c++) alone_f[c] = alone_b[c] = v->weave ? 0 : v->n_micro;
    for (int k = 0; k < warmup && v->weave; k++) {
        alone_f[search_view_slot(v, k)]++;
        alone_b[v->vpp - 1 - search_view_slot(v, slots - 1 - k)]++;
    }
}

static struct search_runs stage_runs(const struct search_view *v, int stage)
{
    struct search_runs r = { { 0 }, { 0 }, { 0 } };
    double alone_f[LAYOUT_CHUNKS], alone_b[LAYOUT_CHUNKS];
    alone_slots(alone_f, alone_b, v, stage);
    for (int c = 0; c < v->vpp; c++)
        for (int k = 0; k < BLOCK_COUNT; k++) {
            const double n = v->shape[c * v->pp + stage].n[k];
            r.alone_f[k] += n * alone_f[c];
            r.alone_b[k] += n * alone_b[c];
            r.all[k] += n * v->n_micro;
        }
    return r;
}

/* How many times backward parts 4 i to 4 i + 3 (i from 1) meet forward parts that all are MoE layers'; the
 * forward's first `dense` parts are dense layers. */
static int insides(const struct search_shape *f, const struct search_shape *b)
{
    const int dense = f->n[BLOCK_DENSE], from = dense > 4 ? (dense + 3) / 4 : 1;
    const int f_end = (dense + 4 * f->n[BLOCK_MOE]) / 4;
    const int end = b->n[BLOCK_MOE] < f_end ? b->n[BLOCK_MOE] : f_end;
    return end > from ? end - from : 0;
}

static void meet(struct search_meets *m, const struct search_shape *f, const struct search_shape *b, double times)
{
    m->inside[f->n[BLOCK_DENSE] % 4] += times * insides(f, b);
    if (f->n[BLOCK_MOE] && b->n[BLOCK_MOE] && !f->n[BLOCK_DENSE]) m->ends += times;
}

/* Over the merged slots of a stage; which chunks meet repeats after a round of groups. */
static struct search_meets stage_meets(const struct search_view *v, int stage)
{
    struct search_meets m = { { 0 }, 0 };
    const int slots = v->n_micro * v->vpp, warmup = search_view_warmup(v, stage), merged = slots - warmup;
    const int period = v->vpp == 1 ? 1 : v->n_micro % v->group ? slots : v->group * v->vpp;
    for (int i = 0; i < period && i < merged; i++) {
        const int f = search_view_slot(v, warmup + i), b = v->vpp - 1 - search_view_slot(v, i);
        meet(&m, &v->shape[f * v->pp + stage], &v->shape[b * v->pp + stage], (merged - 1 - i) / period + 1);
    }
    return m;
}

/* What the answer hangs on. */
struct search_stages {
    const struct search_shape *shape;
    int pp, vpp, n_micro, group, weave, split;
    struct search_stage stage[LAYOUT_CHUNKS];
};

static int is_of(const struct search_stages *s, const struct search_view *v)
{
    return s->shape == v->shape && s->pp == v->pp && s->vpp == v->vpp && s->n_micro == v->n_micro && s->group == v->group &&
           s->weave == v->weave && s->split == v->split;
}

static int same_first(const struct search_view *v, int stage)
{
    const struct search_shape *a = &v->shape[stage - 1], *b = &v->shape[stage];
    return v->split ? !memcmp(a, b, sizeof *a) : search_view_first_kind(v, stage - 1) == search_view_first_kind(v, stage);
}

const struct search_stage *search_stage_all(struct search_views *all, const struct search_view *v)
{
    if (!all->stages) all->stages = arena_alloc(all->arena, sizeof *all->stages);
    struct search_stages *x = all->stages;
    if (is_of(x, v)) return x->stage;
    *x = (struct search_stages){ v->shape, v->pp, v->vpp, v->n_micro, v->group, v->weave, v->split, { { .same = 0 } } };
    for (int s = 0; s < v->pp; s++) {
        struct search_stage *to = &x->stage[s];
        to->runs = stage_runs(v, s);
        if (v->weave) to->meets = stage_meets(v, s);
        for (int k = 0; k < BLOCK_COUNT; k++) to->n[k] = to->runs.all[k] / v->n_micro;
        to->same = s && !memcmp(&to->runs, &to[-1].runs, sizeof to->runs) && !memcmp(&to->meets, &to[-1].meets, sizeof to->meets);
        to->same_first = s && same_first(v, s);
    }
    return x->stage;
}
