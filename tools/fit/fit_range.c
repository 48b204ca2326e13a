/* Two files of published/: the residuals by row, and their quantiles by what a prediction is like. */
#include "tools/fit/fit_range.h"
#include "tools/fit/fit_write.h"
#include <math.h>
#include <string.h>

double *fit_range_residuals(const struct fit_cv *cv, const struct fit_data *data, int n_seed)
{
    const size_t n = (size_t)data->n_row;
    double *to = arena_alloc(data->a, (n + 1) * sizeof *to), *seed = arena_alloc(data->a, (size_t)n_seed * sizeof *seed);
    for (size_t i = 0; i < n; i++) {
        for (int s = 0; s < n_seed; s++) seed[s] = cv->ln_fast[(size_t)s * n + i];
        to[i] = range_quantile(seed, n_seed, 0.5);
    }
    return to;
}

/* Of each job: most of its products are of sizes not measured. */
static char *off_grid(const struct fit_data *data)
{
    char *off = arena_alloc(data->a, (size_t)data->n_job + 1);
    for (int i = 0; i < data->n_job; i++) {
        struct arena scratch = { 0 };
        struct predict r;
        predict_job(&r, NULL, &scratch, &data->job[i]->job);
        off[i] = r.off_grid_share > RANGE_OFF;
        arena_free(&scratch);
    }
    return off;
}

/* Rows of one class. moe: 0 dense, 1 MoE; grid: 0 on the measured one, 1 off it; -1: either. */
static struct range range_among(const struct fit_data *data, const double *ln_fast, const char *off, int moe, int grid)
{
    double *ln = arena_alloc(data->a, ((size_t)data->n_row + 1) * sizeof *ln);
    int n = 0;
    for (int i = 0; i < data->n_row; i++) {
        const struct fit_row *r = &data->row[i];
        if ((moe >= 0 && (strcmp(r->of.kind, "moe") == 0) != moe) || (grid >= 0 && off[r->job] != grid)) continue;
        ln[n++] = ln_fast[i];
    }
    return range_of(ln, n);
}

/* "[a, b]" of one text of the rows, each once, in the order in which they come. */
static const char *names_of(const struct fit_data *data, size_t at)
{
    const char *text = "";
    for (int i = 0; i < data->n_row; i++) {
        const char *name = *(const char *const *)((const char *)&data->row[i].of + at);
        int k = 0;
        while (k < i && strcmp(*(const char *const *)((const char *)&data->row[k].of + at), name) != 0) k++;
        if (k == i) text = arena_printf(data->a, "%s%s%s", text, *text ? ", " : "", name);
    }
    return text;
}

static const char *range_text(const struct fit_data *data, const double *pair, const double *model, const double *system)
{
    struct arena *a = data->a;
    const char *off = off_grid(data);
    const struct range of[RANGE_CLASSES] = {
        [RANGE_DENSE]      = range_among(data, pair, off, 0, 0),     [RANGE_MOE]       = range_among(data, pair, off, 1, 0),
        [RANGE_DENSE_OFF]  = range_among(data, pair, off, 0, 1),     [RANGE_MOE_OFF]   = range_among(data, pair, off, 1, 1),
        [RANGE_NEW_SYSTEM] = range_among(data, system, off, -1, -1), [RANGE_NEW_MODEL] = range_among(data, model, off, -1, -1),
    };
    const char *text = "# Written by `moefold-fit cv runs.csv --out DIR`: of ln(measured step / predicted step) of runs whose half was not in\n"
                       "# the fit, 10 % lie below low and 90 % below high. Divided by model and system; new-system by system alone,\n"
                       "# new-model by model alone.\n";
    for (int c = 0; c < RANGE_CLASSES; c++)
        text = arena_printf(a, "%s%s: { low: %.4f, high: %.4f, rows: %d }\n", text, range_name((enum range_class)c), of[c].low,
                            of[c].high, of[c].rows);
    return arena_printf(a, "%smodels: [%s]\nsystems: [%s]\n", text, names_of(data, offsetof(struct validate_row, model)),
                        names_of(data, offsetof(struct validate_row, system)));
}

enum err fit_range_write(const struct fit_data *data, const double *pair, const double *model, const double *system,
                         const char *dir, struct diag *d)
{
    char *rows = "# Written by `moefold-fit cv runs.csv --out DIR`: ln(predicted rate / measured rate) of each run when its half was\n"
                 "# not in the fit, the median over six divisions by model and system.\n";
    for (int i = 0; i < data->n_row; i++)
        rows = arena_printf(data->a, "%s%s: %.4f\n", rows, data->row[i].of.id, pair[i]);
    TRY(fit_write_file(data->a, dir, "published", "cv", rows, d));
    return fit_write_file(data->a, dir, "published", "range", range_text(data, pair, model, system), d);
}
