/* Figures of many errors. P90 lies between ranks as numpy's default does: at 0.9 (n - 1) of the sorted values. */
#include "tools/validate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct validate_error validate_error_of(const double *error, int n)
{
    const double none = (double)NAN;
    if (n == 0) return (struct validate_error){ 0, none, none, none, none };
    double *s = malloc((size_t)n * sizeof *s), sum = 0;
    if (!s) abort();
    memcpy(s, error, (size_t)n * sizeof *s);
    for (int i = 0; i < n; i++) sum += s[i];
    const double median = range_quantile(s, n, 0.5);
    const struct validate_error e = { n, median, sum / n, range_quantile(s, n, 0.9), s[n - 1] };
    free(s);
    return e;
}

double validate_error_median(const double *value, int n)
{
    return validate_error_of(value, n).median;
}
