/* What so many tokens take and cost. */
#ifndef TOOLS_BILL_H
#define TOOLS_BILL_H

/* goodput: share of the time that trains; days, GPU-hours and USD are of time that does, and stand beside. idle: GPUs that
 * the plan leaves unused in NVLink domains that are rented whole: billed, and a figure of their own. USD are NaN without
 * a price. */
struct bill {
    double days, gpu_hours, usd, idle_gpu_hours, idle_usd, billed_usd, goodput, days_at_goodput, billed_usd_at_goodput;
};
struct bill bill_of(double tokens, double tokens_per_s, int gpus, int idle, double usd_per_gpu_h, double goodput);

#endif
