/* The step that pictures with a time axis show. */
#include "tools/draw.h"

enum err draw_step_sweep(struct draw_step *w, struct arena *a, const struct job *j, struct diag *d)
{
    program_build(&w->pr, a, j);
    struct unroll *u = arena_alloc(a, (size_t)w->pr.n_stage * sizeof *u);
    TRY(unroll_all(u, a, &w->pr, d));
    TRY(unroll_check(u, &w->pr, 0, d));
    cost_init(&w->c, &w->pr, j);
    sim_sweep(&w->t, a, &w->c, u, NULL, 0);
    return OK;
}
