/* One plan again and again with something else in it: what predict --vary, its advice on plans that do not fit, and
 * its table of sensitivities have in common. */
#ifndef TOOLS_VARY_H
#define TOOLS_VARY_H
#include "sim/predict.h"
#include "tools/args.h"
#include "tools/report.h"

/* A plan predicted; NULL `reason`: it fits. What was refused is not a number. usd: NaN without a price. */
struct vary_row {
    const char *value, *reason;
    int32_t feasible, gpus;
    double step_s, tflops, tokens_per_s_gpu, tokens_per_s, peak_B, usd, days;
};
extern const struct report_col vary_cols[];
extern const int vary_n_col;

/* What a curve's days and dollars are of: so many tokens, USD per GPU-hour (0: the system's). */
struct vary_cost { double tokens, price_usd_per_h; };
enum { VARY_POINTS = 64 };

/* The plan of `args` with `set` (n pairs of key and text) on top, predicted. Keys are the plan's, or a quantity of
 * the system's such as gpu.memory. An error is the plan's, and `r` is then untouched. */
enum err vary_try(struct predict *r, struct job *j, struct arena *a, const struct args *args, int n,
                  const char *const (*set)[2], struct diag *d);
/* `text`: "key=a..b", from a by doubling to b, or "key=x,y,z". Rows in that order, VARY_POINTS at most. */
enum err vary_curve(struct vary_row **row, int *n, struct arena *a, const struct args *args, const char *text,
                    const struct vary_cost *c, struct diag *d);

#endif
