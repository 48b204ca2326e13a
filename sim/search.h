/* All plans of a model on a system, bounded, and the best simulated: exact when it says proven. */
#ifndef SIM_SEARCH_H
#define SIM_SEARCH_H
#include "sim/predict.h"

/* Plans simulated at most; then `proven` may be 0, with its gap. Five times what any case of tools/bench_search needs. */
enum { SEARCH_SIMULATE = 50000 };

struct search_hit { struct plan plan; double step_s, tflops, tokens_per_s_gpu, peak_B; };
struct search_reject { char reason[96]; int64_t grids; };       /* a class of refusals */
struct search_result {
    struct search_hit *hit; int n_hit;              /* best first; ties by the plan's total order */
    int64_t grids, gbs_valid, with_mbs, with_layout, plans;     /* the space, counted */
    int64_t grids_valid, grids_opened, grids_bounded_out;
    struct search_reject *reject; int n_reject;
    int64_t priced, fits, simulated;
    int proven; double gap;                         /* (best step - best unsimulated bound) / best step */
    double total_s;
};
/* fixed: one byte per plan option, 1: the user gave it, do not vary. simulate: plans simulated at most, no more than
 * SEARCH_SIMULATE, which 0 stands for. threads: 0: as many as there are processors. */
struct search_ask { int top; char fixed[64]; int simulate, threads; };
/* `j` (plan_read_open) carries model, system, stack, gpus, seq, gbs, precision and whatever is fixed. ERR_NO,
 * with the result filled, when nothing passes the rules or nothing fits: the text says what comes nearest.
 * ERR_CONFIG when every plan is refused alike, in plan_check's words. Same answer every time, with any number of
 * threads; only total_s is measured. */
enum err search_run(struct search_result *r, struct arena *a, const struct job *j,
                    const struct search_ask *ask, struct diag *d);

#endif
