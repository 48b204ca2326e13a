/* A calibration on some rows, and the check that it holds on others. */
#ifndef TOOLS_FIT_RUN_H
#define TOOLS_FIT_RUN_H
#include "tools/fit/fit_data.h"
#include "tools/fit/fit_solve.h"

/* Errors above it count less than squared: what remains between containers of one layout, and then some. */
#define FIT_SCALE 0.06

/* Fits to the rows whose train[row] is set; no other row's job is even simulated. Slopes are simulated at the medians
 * and follow each step by what it changed (Broyden's update, row by row); `exact`: they are simulated anew at the
 * result, from where the fit goes on. */
void fit_run(struct fit_value *value, struct fit_data *data, const char *train, int bounded, int exact);
/* ln of predicted over measured rate of the rows whose want[row] is set, under `value`; NAN for the others. */
void fit_run_score(double *ln_fast, const struct fit_data *data, const double *value, const char *want);
/* Figures of the scored rows. */
struct validate_error fit_run_error(const struct fit_data *data, const double *ln_fast);

/* ---- cross-validation (fit_cv.c) ---- */

enum { FIT_SEEDS = 6 };
/* One half that was not in its fit. */
struct fit_fold { struct validate_error error; int seed, half; };
struct fit_cv {
    struct fit_fold fold[2 * FIT_SEEDS]; int n_fold;
    struct validate_error mean;         /* of the folds' figures                              */
    double *ln_fast;                    /* [fold's seed * n_row + row]                        */
};
/* What falls into one half together: rows of one model and system; of one model; of one system. */
enum fit_group { FIT_GROUP_PAIR, FIT_GROUP_MODEL, FIT_GROUP_SYSTEM };
/* half[row] 0 or 1: groups in an order that the seed shuffles, each to the half with fewer rows so far. */
void fit_cv_halves(char *half, const struct fit_data *data, enum fit_group by, int seed);
/* Seeds 1 .. n_seed: each half scored by a fit to the other one. `progress` may be NULL. */
void fit_cv_all(struct fit_cv *cv, struct fit_data *data, enum fit_group by, int n_seed,
                void (*progress)(const struct fit_fold *fold));

#endif
