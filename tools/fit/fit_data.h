/* Published runs as data of a fit: every row with a rate that counts, its job built once; rows of one job (the same
 * layout in several containers) share it, and share weight: n of them weigh together as sqrt(n) would. A prediction is
 * the whole simulation of the step, so there is no second model of time here. */
#ifndef TOOLS_FIT_DATA_H
#define TOOLS_FIT_DATA_H
#include "tools/fit/fit_param.h"
#include "tools/validate.h"

struct fit_row {
    struct validate_row of;             /* kind, source, .. as validate has them              */
    int job;
    double measured_s;                  /* the step that its measured rate means              */
    double weight;
};
struct fit_job {
    struct job job;
    struct system bare; struct stack stack;     /* as read                                    */
    struct program pr;
    const char *key;                    /* its plan, echoed                                   */
    int rows;
    double *slope;                      /* of ln step_s at the medians; NULL: not asked for yet */
    char moves[FIT_PARAMS];             /* which parameters can                               */
};
struct fit_data {
    struct arena *a;
    const struct fit_params *params;
    struct fit_row *row; int n_row;
    struct fit_job **job; int n_job;
    int threads;
};

/* A figure of the machines of one source, instead of their system file's: "simumax-*:gpu.gemm_efficiency.bf16=0.5". */
struct fit_override { const char *source, *key, *text; };

/* Adds the rows of a table. Rows without a plan or a rate are left out, as are those with use ab or no. */
enum err fit_data_read(struct fit_data *to, const char *path, const struct validate_rules *rules,
                       const struct fit_override *override, int n_override, struct diag *d);
/* Weights, once all tables are read. */
void fit_data_weigh(struct fit_data *data);
/* Seconds of each job's step, where want[job] is set. */
void fit_data_steps(const struct fit_data *data, const double *value, const char *want, double *step_s);
/* slope[job * n_param + i] = d ln step_s / d ln value[i] where both are wanted, else 0. */
void fit_data_slopes(const struct fit_data *data, const double *value, const char *want_job, const char *want_param,
                     const double *step_s, double *slope);
/* The slopes at the medians of the wanted jobs, in their `slope`; simulated once in a program's life. */
void fit_data_slopes_at_medians(struct fit_data *data, const char *want_job);
/* ln of predicted over measured rate, of a row whose job takes step_s. */
double fit_data_ln_fast(const struct fit_row *row, double step_s);
/* The row's error as validate counts it. */
double fit_data_error(const struct fit_row *row, double ln_fast);

#endif
