/* Rows of routed buffers under even routing. */
#include "models/plan.h"
#include <math.h>

int64_t plan_expert_rows(const struct job *j)
{
    const double picks = (double)plan_tokens_sp(&j->plan) * j->model.topk / j->model.experts;
    const int64_t held = (int64_t)ceil(picks * j->plan.routing.capacity - 1e-6);
    return held < plan_tokens_sp(&j->plan) ? held : plan_tokens_sp(&j->plan);
}

int64_t plan_even_rows(const struct job *j, int at)
{
    const struct plan *p = &j->plan;
    int64_t sent = plan_tokens_sp(p) * j->model.topk;
    if (p->routing.policy != ROUTING_DROPLESS && j->model.experts > 0) {
        const int64_t held = plan_expert_rows(j) * j->model.experts;
        if (p->routing.policy == ROUTING_PADDED || held < sent) sent = held;
    }
    return sent * (at ? p->etp : 1);
}

int64_t plan_picked_rows(const struct job *j, int at)
{
    const int64_t even = plan_even_rows(j, at);
    const int64_t picks = plan_tokens_sp(&j->plan) * j->model.topk * (at ? j->plan.etp : 1);
    return even < picks ? even : picks;
}
