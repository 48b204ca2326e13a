/* A whole answer about one plan: memory, time, communication, all numbers that a report prints. */
#ifndef SIM_PREDICT_H
#define SIM_PREDICT_H
#include "sim/sim.h"

struct predict_stage { double params_B, grads_B, optimizer_B, activations_B, buffers_B, overhead_B, peak_B; };
struct predict {
    int feasible; char reason[256];
    double step_s, tokens_per_s_gpu, tflops_gpu, mfu, flop_per_token, peak_flop_per_s; int peak_dtype;
    struct model_params params;
    struct predict_stage *stage; int n_stage, worst_stage;      /* parts at the peak; they sum to peak_B          */
    double peak_B, capacity_B, live_B, arena_B;                 /* of the worst stage; arena_B 0: not planned     */
    char peak_at[96];                                           /* "stage 0, step 12, BWD of chunk 0: ATTN_BWD"   */
    struct { char what[64]; double bytes; int n; } alive[12]; int n_alive;      /* largest at the peak            */
    struct sim_lines lines;
    struct place place[GROUP_COUNT];
};
/* Builds, prices, simulates. `pr` (may be NULL) receives the program. Never fails: the job was checked. */
void predict_job(struct predict *r, struct program *pr, struct arena *a, const struct job *j);

#endif
