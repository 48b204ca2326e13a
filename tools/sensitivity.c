/* The same plan on a machine whose bandwidth, peak or memory is a tenth more, or whose times are a tenth less; one
 * figure at a time, everything else as it is. */
#include "tools/sensitivity.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const struct report_col sensitivity_cols[] = {
    { "key", "a tenth better", REPORT_TEXT, offsetof(struct sensitivity_row, key) },
    { "from", "from", REPORT_TEXT, offsetof(struct sensitivity_row, from) },
    { "to", "to", REPORT_TEXT, offsetof(struct sensitivity_row, to) },
    { "step_s", "step", REPORT_S, offsetof(struct sensitivity_row, step_s) },
    { "gain", "tokens/s", REPORT_GAIN, offsetof(struct sensitivity_row, gain) },
    { "gain_per_unit", "for one more", REPORT_GAIN, offsetof(struct sensitivity_row, gain_per_unit) },
    { "unit", "unit", REPORT_TEXT, offsetof(struct sensitivity_row, unit) },
    { "feasible", "fits", REPORT_BOOL, offsetof(struct sensitivity_row, feasible) },
    { "with", "by", REPORT_TEXT, offsetof(struct sensitivity_row, with) },
};
const int sensitivity_n_col = LEN(sensitivity_cols);

/* A figure, or figures that are one to a buyer. per: how large the unit is; below 0: less is better. */
static const struct figure { const char *key[4], *unit; double per; } figures[] = {
    { { "gpu.memory" }, "GB", 1e9 },
    { { "gpu.peak.bf16", "gpu.peak.fp8", "gpu.peak.fp4", "gpu.peak.fp32" }, "TFLOP/s", 1e12 },
    { { "gpu.hbm_bandwidth" }, "GB/s", 1e9 },
    { { "nvlink.bandwidth" }, "GB/s", 1e9 },
    { { "nic.bandwidth" }, "GB/s", 1e9 },
    { { "host.link" }, "GB/s", 1e9 },
    { { "host.update" }, "GB/s", 1e9 },
    { { "nvlink.latency" }, "us less", -1e-6 },
    { { "nic.latency" }, "us less", -1e-6 },
    { { "gpu.kernel_floor" }, "us less", -1e-6 },
    { { "host.issue" }, "us less", -1e-6 },
    { { "host.call" }, "us less", -1e-6 },
};

static double *at(struct system *s, const struct opt *o)
{
    return (double *)((char *)s + o->at);
}

static const char *human(struct arena *a, double x, enum unit unit)
{
    char text[64];
    return arena_strdup(a, units_human(text, sizeof text, x, unit));
}

/* ---- what more memory lets a plan do ---- */

/* `j` with the i-th relaxation in it; what it is in words, or NULL when it does not apply. */
static const char *relax(struct job *j, struct arena *a, int i)
{
    struct plan *p = &j->plan;
    if (i < RECOMPUTE_FULL) {
        if (!(p->recompute >> i & 1)) return NULL;
        p->recompute &= ~(1 << i);
        return arena_printf(a, "without recompute of %s", stack_recomputes[i]);
    }
    if (i == RECOMPUTE_FULL) {
        if (!p->recompute) return NULL;
        p->recompute = 0;
        return "without recompute";
    }
    if (p->n_micro % 2 != 0) return NULL;
    p->mbs *= 2;
    p->n_micro /= 2;
    return arena_printf(a, "mbs %d", p->mbs);
}

/* The fastest relaxation that fits into `memory_B`, but not into what there is. */
static void relax_memory(struct sensitivity_row *row, struct arena *a, const struct job *j, double memory_B)
{
    for (int i = 0; i <= RECOMPUTE_FULL + 1; i++) {
        struct arena scratch = { 0 };
        struct job *other = arena_alloc(&scratch, sizeof *other);
        struct predict r;
        struct diag why = { "" };
        *other = *j;
        other->system.memory_B = memory_B;
        const char *what = relax(other, a, i);
        if (what && plan_check(other, &why) == OK) {
            predict_job(&r, NULL, &scratch, other);
            if (r.feasible && r.step_s < row->step_s && r.stage[r.worst_stage].peak_B > j->system.memory_B) {
                row->step_s = r.step_s;
                row->with = what;
            }
        }
        arena_free(&scratch);
    }
}

/* ---- rows ---- */

/* Row of a figure; 0 when the system has none. */
static int row_of(struct sensitivity_row *row, struct arena *a, const struct job *j, const struct predict *base,
                  const struct figure *f)
{
    struct arena scratch = { 0 };
    struct job *other = arena_alloc(&scratch, sizeof *other);
    struct predict r;
    double change = 0;
    *other = *j;
    for (int k = 0; k < LEN(f->key) && f->key[k]; k++) {
        const struct opt *o = cfg_opt(system_opts, system_n_opt, f->key[k]);
        double *x = at(&other->system, o);
        const double was = *x;
        *x *= f->per > 0 ? 1.1 : 0.9;
        if (change == 0 && was > 0) {
            *row = (struct sensitivity_row){ .key = f->key[k], .unit = f->unit, .from = human(a, was, o->unit),
                                             .to = human(a, *x, o->unit) };
            change = (*x - was) / f->per;
        }
    }
    if (change > 0) {
        predict_job(&r, NULL, &scratch, other);
        row->step_s = r.step_s;
        row->feasible = r.feasible;
        if (strcmp(row->key, "gpu.memory") == 0) relax_memory(row, a, j, other->system.memory_B);
        row->gain = base->step_s / row->step_s - 1;
        row->gain_per_unit = row->gain / change;
    }
    arena_free(&scratch);
    return change > 0;
}

static int by_gain(const void *a, const void *b)
{
    const struct sensitivity_row *x = a, *y = b;
    if (x->gain != y->gain) return x->gain > y->gain ? -1 : 1;
    return strcmp(x->key, y->key);
}

int sensitivity_of(struct sensitivity_row *row, struct arena *a, const struct job *j, const struct predict *r)
{
    int n = 0;
    for (int i = 0; i < LEN(figures) && n < SENSITIVITY_ROWS; i++) n += row_of(&row[n], a, j, r, &figures[i]);
    qsort(row, (size_t)n, sizeof *row, by_gain);
    return n;
}
