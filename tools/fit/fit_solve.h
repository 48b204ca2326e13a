/* A robust fit of positive quantities with priors and bounds, by Gauss-Newton within a trust region (GSL's
 * gsl_multifit_nlinear). Minimised is
 *   sum over rows of weight * 2 scale^2 (sqrt(1 + (r / scale)^2) - 1), the soft L1 loss, over scale^2
 *   + sum over parameters of (ln(value / median) / ln_sigma)^2,
 * r a residual in logarithms. A bound is never crossed: ln(value) = middle + half * tanh(x). What the rows do not
 * determine (its spread falls by less than a tenth) is not fitted: it stays at its median, and is named. */
#ifndef TOOLS_FIT_SOLVE_H
#define TOOLS_FIT_SOLVE_H

struct fit_prior { double median, ln_sigma, low, high; };
struct fit_problem {
    int n_param, n_row;
    const struct fit_prior *prior;
    const double *start;                /* NULL: medians                                                    */
    const double *weight;               /* of rows; 0: not looked at                                        */
    double scale;                       /* of the loss: errors above it count less than squared             */
    int bounded;                        /* 0: bounds are ignored, to see what they cost                     */
    void *of;
    void (*residual)(void *of, const double *value, double *r);
    /* jac[row * n_param + i] = d r / d ln value[i], for the parameters whose `want` is set. */
    void (*jacobian)(void *of, const double *value, const char *want, double *jac);
};
/* Of a parameter. low, high: where it lies with 80 %, inside its bounds. sensitivity: root mean square over the rows of
 * d r / d ln value. at_bound: -1 low, 1 high. */
struct fit_value { double value, low, high, sensitivity; int undetermined, at_bound; };
/* Fills `value` [n_param]. Returns the loss. */
double fit_solve(struct fit_value *value, const struct fit_problem *p);

#endif
