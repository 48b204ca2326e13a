/* See beside.h. */
#include "tools/beside.h"

static enum err read_run(struct beside *b, struct arena *a, const char *dir, struct diag *d)
{
    json_error_t why;
    const char *path = arena_printf(a, "%s/run.json", dir);
    b->run = json_load_file(path, 0, &why);
    if (b->run && json_is_object(b->run)) return OK;
    return fail(d, ERR_IO, "%s: %s; `moefold run --out %s` writes it", path, b->run ? "is no object" : why.text,
                dir);
}

static enum err check_spans(const struct beside *b, const struct trace *t, const char *path, struct diag *d)
{
    if (t->head.program_hash != program_hash(&b->pr))
        return fail(d, ERR_CONFIG,
                    "%s: is the trace of program %016llx, but plan.yaml makes %016llx; run the plan again", path,
                    (unsigned long long)t->head.program_hash, (unsigned long long)program_hash(&b->pr));
    if (t->n < 1 || t->head.n_iter < 1) return fail(d, ERR_CONFIG, "%s: holds no spans", path);
    for (int64_t i = 0; i < t->n; i++) {
        const struct span *s = &t->span[i];
        if (s->op < 1 || s->op >= b->pr.n_op || s->rank < 0 || s->rank >= b->job.plan.gpus)
            return fail(d, ERR_CONFIG, "%s: span %lld is of rank %d, op %d; the program has %d ranks and %d ops",
                        path, (long long)i, s->rank, s->op, b->job.plan.gpus, b->pr.n_op - 1);
    }
    return OK;
}

static enum err read_directory(struct beside *b, struct trace *all, struct arena *a, const char *dir,
                               const char *system, struct diag *d)
{
    const char *path = arena_printf(a, "%s/trace.mft", dir), *const flag[1][2] = { { "system", system } };
    TRY(plan_read_job(&b->job, a, arena_printf(a, "%s/plan.yaml", dir), *system != '\0', flag, 1, d));
    TRY(read_run(b, a, dir, d));
    TRY(trace_read(all, a, path, d));
    program_build(&b->pr, a, &b->job);
    b->u = arena_alloc(a, (size_t)b->pr.n_stage * sizeof *b->u);
    TRY(unroll_all(b->u, a, &b->pr, d));
    for (int s = 0; s < b->pr.n_stage; s++) unroll_plan(&b->u[s], a, &b->pr);
    trace_sort(all);
    return check_spans(b, all, path, d);
}

enum err beside_read(struct beside *b, struct arena *a, const char *dir, const char *system, struct diag *d)
{
    struct trace all = { 0 };
    struct load load = { 0 };
    TRY(read_directory(b, &all, a, dir, system, d));
    b->n_iter = all.head.n_iter;
    b->iter = join_median_iteration(a, &all);
    b->side[JOIN_MEASURED] = join_iteration(a, &all, b->iter);
    TRY(load_from_trace(&load, a, &b->pr, &b->job, &b->side[JOIN_MEASURED], d));
    cost_init(&b->cost, &b->pr, &b->job);
    sim_sweep(&b->side[JOIN_EVEN], a, &b->cost, b->u, NULL, 1);
    sim_sweep(&b->side[JOIN_LOAD], a, &b->cost, b->u, &load, 1);
    return OK;
}
