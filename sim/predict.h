/* A whole answer about one plan: memory, time, communication, all numbers that a report prints. */
#ifndef SIM_PREDICT_H
#define SIM_PREDICT_H
#include "sim/sim.h"

/* Three figures of one GPU's memory, each less sure than the one before: what the program allocates; what its allocator
 * reserves for that, with the share of stack.reserve_low or _high; what is taken on the device besides, by context,
 * communicators and the software. A plan fits when the device holds the least of it. */
static inline double predict_taken_B(const struct job *j, double allocated_B, double share)
{ return allocated_B * (1 + share) + j->system.overhead_B + j->stack.overhead_B; }
static inline double predict_device_B(const struct job *j, double allocated_B)
{ return predict_taken_B(j, allocated_B, j->stack.reserve_low); }
/* The most that can be allocated on one GPU. */
static inline double predict_room_B(const struct job *j)
{ return (j->system.memory_B - j->system.overhead_B - j->stack.overhead_B) / (1 + j->stack.reserve_low); }

/* Parts of one GPU's memory when its stage holds most; they sum to peak_B, what is taken on the device. Activations live from forward to
 * backward, buffers within a pass; where memory is planned, buffers hold what alignment and gaps cost too. */
struct predict_stage { double params_B, grads_B, optimizer_B, activations_B, buffers_B, overhead_B, peak_B;
                       double graphs_B,    /* of the overhead: inputs of CUDA graphs, each micro-batch in flight its own */
                       peers_B; };          /* of the overhead: buffers of dispatchers, registered with peers */
/* Lives of one shape that ops of one kind wrote: "ATTN [4096 x 16384 bf16]", their bytes, how many. */
struct predict_alive { char what[64]; double bytes; int n; };
enum { PREDICT_ALIVE = 12, PREDICT_PLANNED_ITEMS = 60000 };
struct predict {
    int feasible; char reason[384];
    double step_s, tokens_per_s_gpu, tflops_gpu, mfu, flop_per_token, peak_flop_per_s; int peak_dtype;
    struct model_params params;
    struct load_spread load;                                /* of the plan's routing                        */
    struct predict_stage *stage; int n_stage, worst_stage;
    double capacity_B;
    double host_B;                                          /* most that the host holds for a rank              */
    /* Of the worst stage, without overhead. peak_B: arena_B, or live_B where offsets are not planned (arena_B 0). */
    double peak_B, live_B, arena_B;
    char peak_at[128];                                      /* "stage 0, step 12, BWD of chunk 0: ATTN_BWD" */
    struct predict_alive alive[PREDICT_ALIVE]; int n_alive; /* largest at the worst stage's peak            */
    struct sim_lines lines;                                 /* of the stage that finishes last              */
    struct place place[GROUP_COUNT];
    /* Products and attentions of the program; of them, those of sizes not measured on this system (cost_off_grid); and
     * the share of their time that these take when each runs once. */
    int n_priced, n_off_grid; double off_grid_share;
};
/* Builds, prices, simulates. `pr` (may be NULL) receives the program. Never fails: the job was checked. Offsets
 * are planned for stacks whose memory is (stack.arena) when the stages have at most PREDICT_PLANNED_ITEMS items
 * together. */
void predict_job(struct predict *r, struct program *pr, struct arena *a, const struct job *j);
/* step_s alone, of a program already built for this job or for one that differs only in figures of its system and
 * host times of its stack. INFINITY: stages wait for each other. */
double predict_step_s(const struct program *pr, const struct job *j);
/* What follows from step_s alone: tokens/s, TFLOPS, MFU, and what they are counted by. */
void predict_rates(struct predict *r, const struct job *j);

#endif
