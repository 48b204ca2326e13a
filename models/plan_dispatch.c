/* What a plan may not ask of its dispatcher. */
#include "models/place.h"

int plan_fits_queue(const struct job *j)
{
    const struct plan *p = &j->plan;
    const int queues = j->model.experts > 0 && p->dispatcher != DISPATCHER_ALLTOALL &&
                       p->dispatcher != DISPATCHER_ALLGATHER;
    return !queues || plan_tokens_sp(p) <= PLAN_QUEUE_TOKENS || place_of(j, GROUP_TPEP).domains <= 1;
}

enum err plan_dispatch_check(const struct job *j, struct diag *d)
{
    const struct plan *p = &j->plan;
    const char *name = stack_dispatchers[p->dispatcher];
    if (p->dispatcher != DISPATCHER_ALLTOALL && p->routing.policy != ROUTING_DROPLESS)     /* transformer_config.py */
        return fail(d, ERR_CONFIG, "dispatcher %s knows no capacity of experts, but load is %s: use dropless, or alltoall",
                    name, p->load);
    if (p->dispatcher == DISPATCHER_ALLGATHER && p->schedule == SCHEDULE_FWD_BWD)
        return fail(d, ERR_CONFIG, "dispatcher allgather has no exchange that ep-overlap %d could hide (Megatron-LM "
                    "transformer_config.py): use alltoall, deepep or hybridep, or set ep-overlap 0", p->ep_overlap);
    if (plan_fits_queue(j)) return OK;
    return fail(d, ERR_CONFIG, "dispatcher %s takes %d tokens of a rank at most when ep %d leaves an NVLink domain, but "
                "seq %d x mbs %d / (tp %d x cp %d) is %lld: lower mbs, raise tp or cp, or use dispatcher alltoall",
                name, PLAN_QUEUE_TOKENS, p->ep, p->seq, p->mbs, p->tp, p->cp, (long long)plan_tokens_sp(p));
}
