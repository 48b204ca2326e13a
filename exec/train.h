/* A training run: steps of one program, broken where it evaluates or saves. Between the pieces the ranks'
 * weights and optimizer state stand apart from any arena (state.h); evaluation runs the forward passes alone,
 * as a program of its own on the same weights. A resumed run takes the steps that an uninterrupted one would
 * have taken. */
#ifndef EXEC_TRAIN_H
#define EXEC_TRAIN_H
#include "exec/checkpoint.h"
#include "exec/exec.h"

/* After `step` steps, on `tokens` of the evaluation part: means over them. */
struct train_eval { int64_t step, tokens; double loss, mtp_loss; };
struct train_ask {
    const struct data *data;
    const char *data_name; double eval_split; /* for checkpoints: how the user named it; NULL: "" */
    int64_t steps; /* of the whole run: those before a resumed checkpoint count */
    int32_t traced, processes; double timeout_s; /* as exec_ask */
    const struct world *world; struct world_seat seat; /* as exec_ask; process 0 begins and commits checkpoints, and train_run
        is collective */
    int32_t poison; const struct kernels *kernels; const struct backend *on; /* as exec_ask */
    int64_t eval_every, eval_steps; /* every 0: after the last step; steps of gbs sequences, 0: the whole part */
    int32_t evals; /* 0: no evaluation */
    int64_t save_every; int32_t keep; /* every 0: no checkpoints; else after the last step too. The newest stay */
    const char *root; /* directory of checkpoints */
    const struct routes *routes; /* of processes in shared memory; gets the choices of experts of all steps, or gives them; of as many; NULL: nobody */
    int32_t replay, routes_from;    /* as in exec.h; evaluations choose for themselves */
    const struct checkpoint_file *resume; /* NULL: from the beginning */
    const char *const *carry; /* files of resume that every checkpoint gets a copy of; NULL-ended */
    void *user; /* of the hooks, which may be NULL */
    void (*on_step)(void *user, int64_t step, const struct exec_step *s); /* one rank's thread, while it runs; of
        processes the caller's */
    void (*on_eval)(void *user, const struct train_eval *e);
};
struct train_result {
    int64_t first_step; int32_t n_step, n_eval;     /* taken here */
    struct exec_step *step;
    struct train_eval *eval;
    struct exec_result run;             /* of the first piece: its trace, its counts of bytes */
    float score_gap;                    /* the smallest */
};

/* What can be refused before anything is written or loaded: data too short or without documents, a checkpoint that is as far
 * already, or lacks moments. train_run begins with it. */
enum err train_check(const struct train_ask *ask, const struct job *j, struct diag *d);
/* As exec_run; what was done before an error stands in `r`, and checkpoints stay. ERR_CONFIG: a resumed
 * checkpoint is not behind `steps`, or holds no state of the plan's optimizer; the data is too short. ERR_IO:
 * a checkpoint cannot be written. */
enum err train_run(struct train_result *r, struct arena *a, const struct program *pr, const struct unroll *u,
                   const struct job *j, const struct train_ask *ask, struct diag *d);

/* ---- train_eval.c ---- */
/* The forward passes of a job as a program: same parameters in the same buckets, no backward, no optimizer.
 */
struct train_forward { struct job job; struct program pr; struct unroll *u; };
enum err train_forward_build(struct train_forward *f, struct arena *a, const struct job *j, struct diag *d);
/* Mean losses over `steps` steps of the evaluation part (0: all of it, whole steps). */
enum err train_evaluate(struct train_eval *e, const struct train_forward *f, const struct state *s,
                        const struct train_ask *ask, struct diag *d);

#endif
