#include "exec/lr.h"
#include <math.h>

double lr_at(const struct plan *p, int64_t step)
{
    static const double pi = 3.14159265358979323846;
    const double floor = p->lr * p->lr_min, at = (double)step;
    if (step < p->lr_warmup) return p->lr * (at + 1) / p->lr_warmup;
    if (p->lr_decay == LR_DECAY_CONSTANT) return p->lr;
    const double from = p->lr_decay == LR_DECAY_WSD ? p->lr_steps * (1 - p->lr_cooldown) : 0;
    const double begin = fmax(from, p->lr_warmup);
    const double done = p->lr_steps > begin ? fmin(fmax((at - begin) / (p->lr_steps - begin), 0), 1) : 1;
    const double left = p->lr_decay == LR_DECAY_COSINE ? (1 + cos(pi * done)) / 2 : 1 - done;
    return floor + (p->lr - floor) * left;
}
