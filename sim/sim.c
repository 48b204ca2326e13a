/* A step by max-plus: when stages finish, and the most bytes that each holds. */
#include "sim/sim.h"
#include <math.h>

static double kept_B(const struct program *pr, int stage)
{
    double bytes = 0;
    for (int i = 1; i < pr->n_buf; i++) {
        const struct buf *b = &pr->buf[i];
        if (b->keep != KEEP_MICRO && b->stage == stage && !b->view && b->place != PLACE_HOST)
            bytes += (double)program_B(pr, i);
    }
    return bytes;
}

struct sim_peak sim_live(const struct program *pr, const struct pass_price *price, int stage)
{
    double now_B = kept_B(pr, stage);
    struct sim_peak s = { now_B, now_B, 0 };
    for (int k = 0; k < pr->n_step[stage]; k++) {
        const struct pass_price *p = &price[pr->step[stage][k].pass];
        if (now_B + p->peak_B > s.live_B) {
            s.live_B = now_B + p->peak_B;
            s.step = k;
        }
        now_B += p->net_B;
    }
    return s;
}

void sim_result_of(struct sim_result *r, struct arena *a, const struct play *p, int played)
{
    const struct program *pr = p->c->pr;
    *r = (struct sim_result){ 0 };
    r->stage_s = arena_alloc(a, (size_t)pr->n_stage * sizeof *r->stage_s);
    r->live_B = arena_alloc(a, (size_t)pr->n_stage * sizeof *r->live_B);
    for (int s = 0; s < pr->n_stage; s++) {
        r->stage_s[s] = played ? play_stage_s(p, s) : INFINITY;
        r->live_B[s] = sim_live(pr, p->price, s).live_B;
        if (r->stage_s[s] > r->stage_s[r->last_stage]) r->last_stage = s;
    }
    r->step_s = r->stage_s[r->last_stage];
}

void sim_step(struct sim_result *r, struct arena *a, const struct cost *c, const double *op_s,
              const struct pass_price *price)
{
    struct arena scratch = { 0 };
    struct play p;
    const int played = play_run(&p, &scratch, c, op_s, price);
    sim_result_of(r, a, &p, played);
    arena_free(&scratch);
}
