/* A run's results when its ranks are processes of a world: each has its own, and all get all. */
#include "exec/exec_rank.h"
#include <string.h>

enum err exec_world_check(const struct world *w, const struct world_seat *seat, const struct job *j, int routes, int forked,
                          struct diag *d)
{
    if (seat->processes != j->plan.gpus)
        return fail(d, ERR_CONFIG, "the %s job has %d process%s, the plan %d ranks: start one for each, as in mpirun -n %d moefold run",
                    w->name, seat->processes, seat->processes > 1 ? "es" : "", j->plan.gpus, j->plan.gpus);
    if (routes) return fail(d, ERR_CONFIG, "over %s choices of experts are not recorded: use --comm shm", w->name);
    if (forked) return fail(d, ERR_CONFIG, "over %s a rank is a process of the job, and forks no other: use --comm shm", w->name);
    return OK;
}

struct told { int64_t start_ns, most_B, touched_B; float score_gap; };

/* The other process's clock, of another host, told by this one's: the runs began together. */
static void told_later(struct exec_rank *r, int64_t by_ns)
{
    for (int s = 0; s < r->x->ask->steps; s++) r->end_ns[s] += by_ns;
    for (int64_t i = 0; i < (int64_t)r->u->n_item * r->x->n_traced; i++) r->span[i].t0_ns += by_ns, r->span[i].t1_ns += by_ns;
}

/* `bytes` (NULL: of all alike) of every rank, one after the other in a new array; its own part is at `mine`. */
static char *share_all(const struct exec_shared *x, struct arena *a, int64_t *part_B, const void *mine)
{
    const int me = x->ask->seat.process;
    char *all = arena_alloc(a, (size_t)comm_before(part_B, x->n_rank) + 1);
    memcpy(all + comm_before(part_B, me), mine, (size_t)part_B[me]);
    x->ask->world->share(all, part_B);
    return all;
}

void exec_world_share(struct exec_shared *x)
{
    struct arena a = { 0 };
    const struct exec_rank *own = &x->rank[x->ask->seat.process];
    const struct told mine = { x->start_ns, own->life.most_B, own->life.touched_B, own->score_gap };
    int64_t *told_B = arena_alloc(&a, (size_t)x->n_rank * sizeof *told_B), *end_B = arena_alloc(&a, (size_t)x->n_rank * sizeof *end_B);
    int64_t *span_B = arena_alloc(&a, (size_t)x->n_rank * sizeof *span_B);
    for (int i = 0; i < x->n_rank; i++) {
        told_B[i] = sizeof mine;
        end_B[i] = x->ask->steps * (int64_t)sizeof *own->end_ns;
        span_B[i] = (int64_t)x->rank[i].u->n_item * x->n_traced * (int64_t)sizeof *own->span;
    }
    const struct told *told = (const struct told *)(void *)share_all(x, &a, told_B, &mine);
    const char *ends = share_all(x, &a, end_B, own->end_ns), *spans = share_all(x, &a, span_B, own->span);
    for (int i = 0; i < x->n_rank; i++) {
        struct exec_rank *r = &x->rank[i];
        if (r == own) continue;
        r->life.most_B = told[i].most_B, r->life.touched_B = told[i].touched_B, r->score_gap = told[i].score_gap;
        memcpy(r->end_ns, ends + comm_before(end_B, i), (size_t)end_B[i]);
        memcpy(r->span, spans + comm_before(span_B, i), (size_t)span_B[i]);
        if (!x->ask->seat.one_host) told_later(r, x->start_ns - told[i].start_ns);
    }
    arena_free(&a);
}
