/* See fit_solve.h. */
#include "tools/fit/fit_solve.h"
#include <gsl/gsl_blas.h>
#include <gsl/gsl_linalg.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ITERATIONS = 40 };
static const double most_left = 0.9;    /* of a prior's spread, for a parameter that rows determine */
static const double quantile_90 = 1.2815515655446004;   /* of the normal distribution */

struct solve {
    const struct fit_problem *p;
    int n;                              /* parameters that are fitted                                  */
    int *at;                            /* which                                                       */
    char *want;
    double *value, *r, *jac;            /* all values; residuals; d r / d ln value                     */
};

static void *solve_alloc(size_t n, size_t size_B)
{
    void *x = calloc(n ? n : 1, size_B);
    if (!x) abort();
    return x;
}

/* ---- bounds: a free variable x, zero in the middle ---- */

static double middle(const struct fit_prior *q) { return log(q->low * q->high) / 2; }
static double half(const struct fit_prior *q) { return log(q->high / q->low) / 2; }

static double value_of(const struct fit_problem *p, int i, double x)
{
    const struct fit_prior *q = &p->prior[i];
    return exp(p->bounded ? middle(q) + half(q) * tanh(x) : x);
}

static double slope_of(const struct fit_problem *p, int i, double x)    /* d ln value / d x */
{
    return p->bounded ? half(&p->prior[i]) * (1 - tanh(x) * tanh(x)) : 1;
}

/* A median at a bound begins a little inside, or nothing would move it. */
static double free_of(const struct fit_problem *p, int i, double value)
{
    const struct fit_prior *q = &p->prior[i];
    if (!p->bounded) return log(value);
    const double t = (log(value) - middle(q)) / half(q);
    return atanh(fmax(-0.95, fmin(0.95, t)));
}

/* ---- the loss as a sum of squares ---- */

/* z^2 is the soft L1 loss of r; slope: d z / d r. */
static double soften(double r, double scale, double *slope)
{
    const double u = r / scale, root = sqrt(1 + u * u), z = copysign(sqrt(2 * (root - 1)), u);
    *slope = (fabs(u) < 1e-6 ? 1 : u / (root * z)) / scale;
    return z;
}

static double prior_z(const struct fit_problem *p, int i, double value)
{
    return log(value / p->prior[i].median) / p->prior[i].ln_sigma;
}

static void take(struct solve *s, const gsl_vector *x)
{
    for (int k = 0; k < s->n; k++) s->value[s->at[k]] = value_of(s->p, s->at[k], gsl_vector_get(x, (size_t)k));
}

static int squares(const gsl_vector *x, void *of, gsl_vector *f)
{
    struct solve *s = of;
    const struct fit_problem *p = s->p;
    double slope;
    take(s, x);
    p->residual(p->of, s->value, s->r);
    for (int i = 0; i < p->n_row; i++)
        gsl_vector_set(f, (size_t)i, p->weight[i] > 0 ? sqrt(p->weight[i]) * soften(s->r[i], p->scale, &slope) : 0);
    for (int k = 0; k < s->n; k++)
        gsl_vector_set(f, (size_t)(p->n_row + k), prior_z(p, s->at[k], s->value[s->at[k]]));
    return GSL_SUCCESS;
}

static int squares_slopes(const gsl_vector *x, void *of, gsl_matrix *to)
{
    struct solve *s = of;
    const struct fit_problem *p = s->p;
    take(s, x);
    p->residual(p->of, s->value, s->r);
    p->jacobian(p->of, s->value, s->want, s->jac);
    gsl_matrix_set_zero(to);
    for (int k = 0; k < s->n; k++) {
        const int a = s->at[k];
        const double dx = slope_of(p, a, gsl_vector_get(x, (size_t)k));
        for (int i = 0; i < p->n_row; i++) {
            double slope;
            if (!(p->weight[i] > 0)) continue;
            soften(s->r[i], p->scale, &slope);
            gsl_matrix_set(to, (size_t)i, (size_t)k,
                           sqrt(p->weight[i]) * slope * s->jac[(size_t)i * (size_t)p->n_param + (size_t)a] * dx);
        }
        gsl_matrix_set(to, (size_t)(p->n_row + k), (size_t)k, dx / p->prior[a].ln_sigma);
    }
    return GSL_SUCCESS;
}

/* ---- a fit of the parameters in s->at ---- */

static void minimise(struct solve *s)
{
    const struct fit_problem *p = s->p;
    gsl_multifit_nlinear_parameters how = gsl_multifit_nlinear_default_parameters();
    gsl_multifit_nlinear_fdf f = { .f = squares, .df = squares_slopes, .n = (size_t)(p->n_row + s->n),
                                   .p = (size_t)s->n, .params = s };
    how.scale = gsl_multifit_nlinear_scale_levenberg;
    how.solver = gsl_multifit_nlinear_solver_svd;       /* stands columns of zeros: a figure no row uses */
    gsl_vector *x = gsl_vector_alloc((size_t)s->n);
    for (int k = 0; k < s->n; k++) gsl_vector_set(x, (size_t)k, free_of(p, s->at[k], s->value[s->at[k]]));
    gsl_multifit_nlinear_workspace *w =
        gsl_multifit_nlinear_alloc(gsl_multifit_nlinear_trust, &how, f.n, f.p);
    int info;
    gsl_multifit_nlinear_init(x, &f, w);
    gsl_multifit_nlinear_driver(MOST_ITERATIONS, 1e-4, 1e-6, 0, NULL, NULL, &info, w);
    take(s, gsl_multifit_nlinear_position(w));
    gsl_multifit_nlinear_free(w);
    gsl_vector_free(x);
}

/* Spread of each fitted parameter in logarithms: the inverse of the curvature by rows and priors; once fitted, widened
 * when rows scatter more than the loss takes for granted. */
static void spreads(double *ln_sigma, struct solve *s, int fitted)
{
    const struct fit_problem *p = s->p;
    const size_t n = (size_t)s->n;
    gsl_matrix *h = gsl_matrix_calloc(n, n);
    double loss = 0, rows = 0;
    p->residual(p->of, s->value, s->r);
    p->jacobian(p->of, s->value, s->want, s->jac);
    for (int i = 0; i < p->n_row; i++) {
        double slope;
        if (!(p->weight[i] > 0)) continue;
        const double z = soften(s->r[i], p->scale, &slope);
        const double *j = s->jac + (size_t)i * (size_t)p->n_param;
        loss += p->weight[i] * z * z;
        rows += p->weight[i];
        for (size_t k = 0; k < n; k++)
            for (size_t m = 0; m < n; m++)
                *gsl_matrix_ptr(h, k, m) += p->weight[i] * slope * slope * j[s->at[k]] * j[s->at[m]];
    }
    const double widen = fitted && rows > s->n ? fmax(1, loss / (rows - s->n)) : 1;
    gsl_matrix_scale(h, 1 / widen);
    for (size_t k = 0; k < n; k++)
        *gsl_matrix_ptr(h, k, k) += 1 / (p->prior[s->at[k]].ln_sigma * p->prior[s->at[k]].ln_sigma);
    gsl_linalg_cholesky_decomp1(h);     /* positive: priors alone make it so */
    gsl_linalg_cholesky_invert(h);
    for (size_t k = 0; k < n; k++) ln_sigma[k] = sqrt(gsl_matrix_get(h, k, k));
    gsl_matrix_free(h);
}

/* Leaves out what rows do not determine. Returns how many went. */
static int drop(struct solve *s, struct fit_value *value, const double *ln_sigma)
{
    int left = 0;
    for (int k = 0; k < s->n; k++) {
        const int a = s->at[k];
        if (ln_sigma[k] < most_left * s->p->prior[a].ln_sigma) {
            s->at[left++] = a;
            continue;
        }
        value[a].undetermined = 1;
        s->want[a] = 0;
        s->value[a] = s->p->prior[a].median;
    }
    const int gone = s->n - left;
    s->n = left;
    return gone;
}

static double loss_of(struct solve *s)
{
    const struct fit_problem *p = s->p;
    double sum = 0, slope;
    p->residual(p->of, s->value, s->r);
    for (int i = 0; i < p->n_row; i++) {
        const double z = p->weight[i] > 0 ? soften(s->r[i], p->scale, &slope) : 0;
        sum += p->weight[i] * z * z;
    }
    for (int i = 0; i < p->n_param; i++) sum += prior_z(p, i, s->value[i]) * prior_z(p, i, s->value[i]);
    return sum;
}

/* Sensitivities of all, also of those not fitted. */
static void describe(struct fit_value *value, struct solve *s, const double *ln_sigma)
{
    const struct fit_problem *p = s->p;
    memset(s->want, 1, (size_t)p->n_param);
    p->jacobian(p->of, s->value, s->want, s->jac);
    for (int i = 0; i < p->n_param; i++) {
        const struct fit_prior *q = &p->prior[i];
        double spread = q->ln_sigma, sum = 0, rows = 0;
        for (int k = 0; k < s->n; k++)
            if (s->at[k] == i) spread = ln_sigma[k];
        for (int r = 0; r < p->n_row; r++) {
            const double j = s->jac[(size_t)r * (size_t)p->n_param + (size_t)i];
            if (!(p->weight[r] > 0)) continue;
            sum += j * j;
            rows++;
        }
        value[i].value = s->value[i];
        value[i].low  = fmax(q->low, s->value[i] * exp(-quantile_90 * spread));
        value[i].high = fmin(q->high, s->value[i] * exp(quantile_90 * spread));
        value[i].sensitivity = rows > 0 ? sqrt(sum / rows) : 0;
        const double near = 0.01 * log(q->high / q->low);
        if (!value[i].undetermined)
            value[i].at_bound = log(s->value[i] / q->low) < near ? -1 : log(q->high / s->value[i]) < near;
    }
}

double fit_solve(struct fit_value *value, const struct fit_problem *p)
{
    const size_t n = (size_t)p->n_param, rows = (size_t)p->n_row;
    struct solve s = { .p = p };
    s.at = solve_alloc(n, sizeof *s.at);
    s.want = solve_alloc(n, 1);
    s.value = solve_alloc(n, sizeof *s.value);
    s.r = solve_alloc(rows, sizeof *s.r);
    s.jac = solve_alloc(rows * n, sizeof *s.jac);
    double *ln_sigma = solve_alloc(n, sizeof *ln_sigma);
    for (int i = 0; i < p->n_param; i++) {
        value[i] = (struct fit_value){ 0 };
        s.value[i] = p->start ? p->start[i] : p->prior[i].median;
        s.at[s.n++] = i;
        s.want[i] = 1;
    }
    spreads(ln_sigma, &s, 0);
    do {
        drop(&s, value, ln_sigma);
        if (s.n == 0) break;
        minimise(&s);
        spreads(ln_sigma, &s, 1);
    } while (drop(&s, value, ln_sigma));
    describe(value, &s, ln_sigma);
    const double loss = loss_of(&s);
    free(s.at), free(s.want), free(s.value), free(s.r), free(s.jac), free(ln_sigma);
    return loss;
}
