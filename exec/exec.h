/* Runs a program for real: one host loop per rank issues the unrolled list; streams do the work; spans say what happened.
 * Knows no backend: launches go through a table by op kind (backend.h). Refuses programs of stacks that it is not
 * (stack.runs) and programs that unroll_check did not pass. */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H
#include "models/trace.h"
#include "models/unroll.h"

struct exec_ask {
    int steps, iters_traced;                /* spans of the first iters_traced steps are kept (0: all)            */
    const uint8_t *text; int64_t text_n;    /* byte-level tokens, cyclic                                          */
    int poison;                             /* fill every life with NaN bytes at birth and death (tests)          */
    double timeout_s;                       /* of a collective                                                    */
    /* Called on every rank after each step, all streams idle, with that rank's arena; may be NULL. */
    void (*after_step)(void *user, int rank, int step, const struct unroll *u, const char *arena);
    void *user;
};
struct exec_step { double loss, mtp_loss, grad_norm, step_s; };
struct exec_result {
    struct exec_step *step; int n_step;
    struct trace trace;                     /* measured                                                           */
    int64_t *live_B, *touched_B;            /* per rank: births and deaths counted in issue order; highest byte used */
    float score_gap;                        /* smallest gap between the k-th and the next routing score           */
};
/* Threads as ranks over comm_shm. ERR_NO: capacity overflow, naming rank, layer, rows and the factor needed. */
enum err exec_run(struct exec_result *r, struct arena *a, const struct program *pr, const struct unroll *u, const struct job *j,
                  const struct exec_ask *ask, struct diag *d);

/* A parameter's or its gradient's element [expert][row][col] of the whole, by the same numbers under every fold: initial
 * value from (seed, name, layer, index). */
float exec_init_value(const struct job *j, const struct param *q, int64_t index);
/* Gathers one parameter (grad 0) or gradient (grad 1) of the whole model from all ranks' arenas: batch * rows * cols floats. */
void exec_gather_param(float *whole, const struct program *pr, const struct unroll *u, const struct job *j, int param, int grad,
                       char *const *arenas);

#endif
