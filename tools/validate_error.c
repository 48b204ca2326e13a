/* Figures of many errors. P90 lies between ranks as numpy's default does: at 0.9 (n - 1) of the sorted values. */
#include "tools/validate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *sorted(const double *value, int n)
{
    double *s = malloc((size_t)n * sizeof *s);
    if (!s) abort();
    memcpy(s, value, (size_t)n * sizeof *s);
    qsort(s, (size_t)n, sizeof *s, by_value);
    return s;
}

static double quantile(const double *s, int n, double q)
{
    const double at = q * (n - 1);
    const int below = (int)at, above = below + 1 < n ? below + 1 : below;
    return s[below] + (at - below) * (s[above] - s[below]);
}

struct validate_error validate_error_of(const double *error, int n)
{
    const double none = (double)NAN;
    if (n == 0) return (struct validate_error){ 0, none, none, none, none };
    double *s = sorted(error, n), sum = 0;
    for (int i = 0; i < n; i++) sum += s[i];
    const struct validate_error e = { n, quantile(s, n, 0.5), sum / n, quantile(s, n, 0.9), s[n - 1] };
    free(s);
    return e;
}

double validate_error_median(const double *value, int n)
{
    return validate_error_of(value, n).median;
}
