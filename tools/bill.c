#include "tools/bill.h"
#include <math.h>

struct bill bill_of(double tokens, double tokens_per_s, int gpus, int idle, double usd_per_gpu_h, double goodput)
{
    const double hours = tokens / tokens_per_s / 3600, price = usd_per_gpu_h > 0 ? usd_per_gpu_h : (double)NAN;
    struct bill b = { .days = hours / 24, .gpu_hours = hours * gpus, .idle_gpu_hours = hours * idle, .goodput = goodput,
                      .days_at_goodput = hours / 24 / goodput };
    b.usd = b.gpu_hours * price;
    b.idle_usd = b.idle_gpu_hours * price;
    b.billed_usd = b.usd + b.idle_usd;
    b.billed_usd_at_goodput = b.billed_usd / goodput;
    return b;
}
