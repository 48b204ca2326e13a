/* search --objective gpus|cost: the best plan at every number of GPUs that divides the one given, judged. */
#ifndef TOOLS_OBJECTIVE_H
#define TOOLS_OBJECTIVE_H
#include "sim/search.h"
#include "tools/args.h"
#include "tools/report.h"

enum objective { OBJECTIVE_THROUGHPUT, OBJECTIVE_COST, OBJECTIVE_GPUS };
extern const char *const objective_names[];

/* The best plan on so many GPUs; pareto: no fewer GPUs are as fast. usd_per_gtoken: of 1e9 tokens, GPUs idle in
 * rented NVLink domains billed; NaN without a price. days: of 1e12 tokens. */
struct objective_row {
    int32_t gpus, fits, pareto, proven, idle;
    double step_s, tokens_per_s, usd_per_gtoken, days;
    const char *why;
};
extern const struct report_col objective_cols[];
extern const int objective_n_col;

/* What was chosen, as search_run answers, and every row by ascending GPUs. Rows live in the arena given, the answer
 * in one of its own, which objective_free releases. */
struct objective_found {
    struct objective_row *row; int n;
    struct job *job; struct search_result *result;      /* of the choice; NULL: nothing fits anywhere */
    double tokens_per_s_paid;                           /* of the choice, for each GPU that is billed */
    struct arena own;
};
/* `gpus` (a divisor of which fits at least) stops at the first that fits, from the lower bound on. ERR_NO: none
 * does. ERR_CONFIG: no number of GPUs passes the rules, in the words of the largest. */
enum err objective_run(struct objective_found *f, struct arena *a, const struct args *args, enum objective o,
                       const struct search_ask *ask, struct diag *d);
void objective_free(struct objective_found *f);

#endif
