/* What a plan may cut over replicas. */
#include "models/plan.h"

enum err plan_memory_check(const struct job *j, struct diag *d)
{
    const struct plan *p = &j->plan;
    if (!p->fsdp) return OK;
    if (!j->stack.fsdp)
        return fail(d, ERR_CONFIG, "fsdp 1 is not offered by stack %s: set it to 0, or choose another stack",
                    j->stack.name);
    if (p->split_wgrad)
        return fail(d, ERR_CONFIG,
                    "fsdp 1 and split-wgrad 1 exclude each other: a layer's gradients are reduced when its "
                    "backward is over; set one of them to 0");
    return OK;
}
