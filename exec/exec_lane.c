/* A stream: a thread that takes its items in list order. It waits until an item is issued and its deps are done (on a device:
 * launched), launches, marks it done and rings those whom that concerns. */
#include "exec/exec_rank.h"

struct pending { const struct exec_rank *r; int64_t issued; int32_t item, step; };

static int exec_lane_issued(const void *arg)
{
    const struct pending *p = arg;
    return atomic_load(&p->r->issued) >= p->issued || atomic_load(&p->r->x->stop);
}

static int exec_lane_done(const void *arg)
{
    const struct pending *p = arg;
    return atomic_load(&p->r->done[p->item]) > p->step || atomic_load(&p->r->x->stop);
}

int exec_lane_wait_done(struct exec_rank *r, struct bell *b, int item, int step)
{
    const struct pending p = { .r = r, .item = item, .step = step };
    bell_wait(b, exec_lane_done, &p, 0);
    return !atomic_load(&r->x->stop);
}

static int exec_lane_ready(struct lane *l, int item, int step)
{
    struct exec_rank *r = l->r;
    const struct item *it = &r->u->item[item];
    const struct pending p = { .r = r, .issued = (int64_t)step * r->u->n_item + item + 1 };
    bell_wait(&l->bell, exec_lane_issued, &p, 0);
    for (int k = 0; k < it->n_dep; k++)
        if (!exec_lane_wait_done(r, &l->bell, r->u->dep[it->dep + k], step)) return 0;
    return !atomic_load(&r->x->stop);
}

static enum err exec_lane_launch(struct lane *l, int item, int step, struct span *s)
{
    struct exec_rank *r = l->r;
    const struct item *it = &r->u->item[item];
    struct call c;
    TRY(exec_mark_begin(r, item, &l->d));
    if (r->x->ask->poison) exec_life_born(&r->life, r, it);
    s->t0_ns = bell_now_ns();
    TRY(exec_bind(&c, r, it, step, &l->d));
    TRY(r->x->backend[c.op->kind](&c));
    TRY(exec_mark_end(r, item, &l->d));
    if (c.op->kind == OP_SIZES) TRY(exec_bind_capacity(r, &c, &l->d));
    s->t1_ns = bell_now_ns();
    exec_bind_rows(s->rows, &c);
    if (r->x->ask->poison) exec_life_died(&r->life, r, it);
    return OK;
}

static void exec_lane_finish(struct exec_rank *r, int item, int step)
{
    atomic_store(&r->done[item], step + 1);
    const uint32_t who = r->concerns[item];
    for (int s = 0; s < STREAM_COUNT; s++)
        if (who >> s & 1) bell_ring(&r->lane[s].bell);
    if (who >> STREAM_COUNT & 1) bell_ring(&r->host);
}

static int exec_lane_item(struct lane *l, int item, int step)
{
    struct exec_rank *r = l->r;
    const struct item *it = &r->u->item[item];
    struct span s = { .iter = step, .rank = r->rank, .step = it->step, .op = it->op };
    if (!exec_lane_ready(l, item, step)) return 0;
    const enum err e = exec_lane_launch(l, item, step, &s);
    if (e != OK) {
        exec_rank_fail(r, e, &l->d);
        return 0;
    }
    if (step < r->x->n_traced) r->span[(int64_t)step * r->u->n_item + item] = s;
    exec_lane_finish(r, item, step);
    return 1;
}

void *exec_lane_main(void *lane)
{
    struct lane *l = lane;
    for (int step = 0; step < l->r->x->ask->steps; step++)
        for (int k = 0; k < l->n_item; k++)
            if (!exec_lane_item(l, l->item[k], step)) return NULL;
    return NULL;
}
