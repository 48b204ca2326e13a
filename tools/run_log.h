/* What a training run says while it runs: a line of JSON for every step and every evaluation, in
 * DIR/metrics.jsonl as they happen, and on a terminal a line of progress. */
#ifndef TOOLS_RUN_LOG_H
#define TOOLS_RUN_LOG_H
#include "exec/train.h"
#include <stdio.h>

struct run_log {
    FILE *f; const char *path;
    const struct job *job;
    double flop;                        /* of a step, all ranks */
    int64_t steps;                      /* of the whole run */
    int32_t progress;                   /* 1: also the line of progress, on stderr */
    double spent_s; int64_t done;       /* steps taken here and their time */
    int32_t lost;                       /* a line could not be written */
};

/* Lines of steps before `first` that are there already stay: those of the run that is resumed. */
enum err run_log_open(struct run_log *l, struct arena *a, const char *dir, const struct job *j, int64_t first,
                      int64_t steps, struct diag *d);
/* Hooks of struct train_ask; user: the log. */
void run_log_step(void *user, int64_t step, const struct exec_step *s);
void run_log_eval(void *user, const struct train_eval *e);
/* ERR_IO when a line was lost. Accepts one that is not open. */
enum err run_log_close(struct run_log *l, struct diag *d);

#endif
