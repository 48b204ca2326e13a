/* predict --vary: reads "key=a..b" and "key=x,y,z" for any option of the plan and any quantity of the system, and
 * predicts the plan at each value. A plan that is refused is a row with its reason. */
#include "tools/vary.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

const struct report_col vary_cols[] = {
    { "value", "value", REPORT_TEXT, offsetof(struct vary_row, value) },
    { "gpus", NULL, REPORT_INT, offsetof(struct vary_row, gpus) },
    { "feasible", "fits", REPORT_BOOL, offsetof(struct vary_row, feasible) },
    { "step_s", "step", REPORT_S, offsetof(struct vary_row, step_s) },
    { "tflops_gpu", "TFLOPS/GPU", REPORT_TENTHS, offsetof(struct vary_row, tflops) },
    { "tokens_per_s_gpu", "tokens/s/GPU", REPORT_TENTHS, offsetof(struct vary_row, tokens_per_s_gpu) },
    { "tokens_per_s", "tokens/s", REPORT_WHOLE, offsetof(struct vary_row, tokens_per_s) },
    { "days", "days", REPORT_TENTHS, offsetof(struct vary_row, days) },
    { "usd", "USD", REPORT_WHOLE, offsetof(struct vary_row, usd) },
    { "peak_gib", "peak", REPORT_GIB, offsetof(struct vary_row, peak_B) },
    { "reason", "why not", REPORT_TEXT, offsetof(struct vary_row, reason) },
};
const int vary_n_col = LEN(vary_cols);

/* Whole numbers of a system say how ranks are placed, which the plan has already settled by then. */
static const struct opt *system_key(const char *key)
{
    const struct opt *o = cfg_opt(system_opts, system_n_opt, key);
    return o && o->type == OPT_NUMBER ? o : NULL;
}

static const struct opt *find(const char *key)
{
    const struct opt *o = cfg_opt(plan_opts, plan_n_opt, key);
    return o ? o : system_key(key);
}

enum err vary_try(struct predict *r, struct job *j, struct arena *a, const struct args *args, int n,
                  const char *const (*set)[2], struct diag *d)
{
    struct args with = *args;
    with.plan = arena_alloc(a, (size_t)(args->n_plan + n + 1) * sizeof *with.plan);
    if (args->n_plan) memcpy(with.plan, args->plan, (size_t)args->n_plan * sizeof *with.plan);
    for (int i = 0; i < n; i++) {
        if (!cfg_opt(plan_opts, plan_n_opt, set[i][0])) continue;
        with.plan[with.n_plan][0] = set[i][0];
        with.plan[with.n_plan++][1] = set[i][1];
    }
    TRY(args_job(j, a, &with, 0, d));
    for (int i = 0; i < n; i++) {
        if (cfg_opt(plan_opts, plan_n_opt, set[i][0])) continue;
        TRY(cfg_set(&j->system, system_key(set[i][0]), set[i][1], arena_printf(a, "--vary: %s", set[i][0]), d));
    }
    TRY(system_check(&j->system, d));
    predict_job(r, NULL, a, j);
    return OK;
}

static struct vary_row point(struct arena *a, const struct args *args, const char *key, const char *value,
                             const struct vary_cost *c)
{
    const double none = (double)NAN;
    const char *const set[1][2] = { { key, value } };
    struct job *j = arena_alloc(a, sizeof *j);
    struct predict r;
    struct diag why = { "" };
    if (vary_try(&r, j, a, args, 1, set, &why) != OK)
        return (struct vary_row){ value, arena_strdup(a, why.text), 0, 0, none, none, none, none, none, none, none };
    struct vary_row row = { value, r.feasible ? NULL : arena_strdup(a, r.reason), r.feasible, j->plan.gpus, r.step_s,
                            r.tflops_gpu, r.tokens_per_s_gpu, r.tokens_per_s_gpu * j->plan.gpus,
                            r.stage[r.worst_stage].peak_B, none, none };
    const double hours = c->tokens / row.tokens_per_s / 3600;
    const double price = c->price_usd_per_h > 0 ? c->price_usd_per_h : j->system.price_usd_per_h;
    row.days = hours / 24;
    if (price > 0) row.usd = hours * j->plan.gpus * price;
    return row;
}

/* ---- what is varied ---- */

/* One value of an option, in a struct of which nothing else is looked at. */
union holder { struct plan plan; struct system system; };

static double held(const union holder *h, const struct opt *o)
{
    const void *at = (const char *)h + o->at;
    double x;
    int32_t i;
    if (o->type == OPT_NUMBER) return memcpy(&x, at, sizeof x), x;
    return memcpy(&i, at, sizeof i), i;
}

static void hold(union holder *h, const struct opt *o, double value)
{
    void *at = (char *)h + o->at;
    const int32_t i = (int32_t)value;
    if (o->type == OPT_NUMBER) memcpy(at, &value, sizeof value);
    else memcpy(at, &i, sizeof i);
}

static enum err bound(double *x, union holder *h, const struct opt *o, const char *text, struct diag *d)
{
    TRY(cfg_set(h, o, text, "--vary", d));
    *x = held(h, o);
    if (*x > 0) return OK;
    return fail(d, ERR_CONFIG, "--vary: %s from '%s' cannot be doubled: begin above 0", o->key,
                cfg_shown(text).text);
}

static enum err range_of(struct vary_row *row, int *n, struct arena *a, const struct args *args, const struct opt *o,
                         char *from, char *to, const struct vary_cost *c, struct diag *d)
{
    union holder *h = arena_alloc(a, sizeof *h);
    double low, high;
    if (o->type != OPT_INT && o->type != OPT_NUMBER)
        return fail(d, ERR_CONFIG, "--vary: '%s' has no numbers between two values; list them: %s=x,y,z",
            o->key, o->key);
    TRY(bound(&low, h, o, from, d));
    TRY(bound(&high, h, o, to, d));
    if (high < low || !isfinite(high))
        return fail(d, ERR_CONFIG, "--vary: '%s' is above '%s': begin with the lesser", cfg_shown(from).text,
                    cfg_shown(to).text);
    for (double x = low; x <= high * (1 + 1e-12); x *= 2) {
        char value[64];
        if (*n == VARY_POINTS)
            return fail(d, ERR_CONFIG, "--vary: '%s' to '%s' is more than %d values", cfg_shown(from).text,
                        cfg_shown(to).text, VARY_POINTS);
        hold(h, o, x);
        row[(*n)++] = point(a, args, o->key, arena_strdup(a, cfg_echo(value, sizeof value, h, o)), c);
    }
    return OK;
}

enum err vary_curve(struct vary_row **to, int *n, struct arena *a, const struct args *args, const char *text,
                    const struct vary_cost *c, struct diag *d)
{
    char *rest = arena_strdup(a, text), *key = strsep(&rest, "=");
    if (!rest || !*rest)
        return fail(d, ERR_CONFIG, "--vary: '%s' is not of the form key=a..b or key=a,b,c", cfg_shown(text).text);
    const struct opt *o = find(key);
    if (!o)
        return fail(d, ERR_CONFIG, "--vary: '%s' is no option of the plan and no quantity of the system",
                    cfg_shown(key).text);
    struct vary_row *row = arena_alloc(a, VARY_POINTS * sizeof *row);
    *to = row;
    *n = 0;
    char *dots = strstr(rest, "..");
    if (dots) {
        *dots = '\0';
        return range_of(row, n, a, args, o, rest, dots + 2, c, d);
    }
    while (rest && *n < VARY_POINTS) row[(*n)++] = point(a, args, o->key, strsep(&rest, ","), c);
    if (!rest) return OK;
    return fail(d, ERR_CONFIG, "--vary: '%s' has more than %d values", cfg_shown(text).text, VARY_POINTS);
}
