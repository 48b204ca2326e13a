/* Least squares over what one op took: floor, bytes, FLOP and units, none of them below 0, of relative errors.
 * The few unknowns allow the plain way: every choice of those that are not 0 is solved, and the best that has
 * none below 0 stays. Weights that fall with the error turn it into least absolute deviations, so that a
 * disturbed op does not count more than others. */
#include "models/op.h"
#include "tools/calibrate.h"
#include "tools/range.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TERMS = 4, TERM_FLOOR = 0, TERM_BYTES, TERM_FLOP, TERM_UNITS, ROUNDS = 60,
       FLOOR_BYTES = 1 << TERM_FLOOR | 1 << TERM_BYTES };
struct row { double x[TERMS], s, weight; };

/* Solves n equations in place; 0: they do not determine it. */
static int solve(double a[TERMS][TERMS + 1], int n)
{
    for (int i = 0; i < n; i++) {
        int p = i;
        for (int r = i + 1; r < n; r++)
            if (fabs(a[r][i]) > fabs(a[p][i])) p = r;
        if (fabs(a[p][i]) < 1e-9) return 0;
        for (int k = 0; k <= n; k++) {
            const double t = a[i][k];
            a[i][k] = a[p][k], a[p][k] = t;
        }
        for (int r = 0; r < n; r++)
            for (int k = n; r != i && k >= i; k--) a[r][k] -= a[r][i] / a[i][i] * a[i][k];
    }
    return 1;
}

static double missed(const struct row *row, int n, const double c[TERMS])
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double off = -1;
        for (int k = 0; k < TERMS; k++) off += c[k] * row[i].x[k] / row[i].s;
        sum += row[i].weight * off * off;
    }
    return sum;
}

/* The terms of `chosen` (bits), scaled to unit length so that they can be told apart. */
static int chosen_terms(double c[TERMS], const struct row *row, int n, int chosen)
{
    double a[TERMS][TERMS + 1] = { { 0 } }, length[TERMS];
    int term[TERMS], m = 0;
    for (int k = 0; k < TERMS; k++)
        if (chosen >> k & 1) term[m++] = k;
    for (int i = 0; i < m; i++) {
        length[i] = 0;
        for (int q = 0; q < n; q++) length[i] += row[q].weight * pow(row[q].x[term[i]] / row[q].s, 2);
        length[i] = sqrt(length[i]);
        if (!(length[i] > 0)) return 0;
    }
    for (int q = 0; q < n; q++)
        for (int i = 0; i < m; i++) {
            const double x = row[q].x[term[i]] / row[q].s / length[i] * row[q].weight;
            for (int k = 0; k < m; k++) a[i][k] += x * row[q].x[term[k]] / row[q].s / length[k];
            a[i][m] += x;
        }
    if (!solve(a, m)) return 0;
    memset(c, 0, TERMS * sizeof *c);
    for (int i = 0; i < m; i++) c[term[i]] = a[i][m] / a[i][i] / length[i];
    for (int k = 0; k < TERMS; k++)
        if (c[k] < 0) return 0;
    return 1;
}

static void best_terms(double best[TERMS], const struct row *row, int n, int allowed)
{
    double least = INFINITY;
    memset(best, 0, TERMS * sizeof *best);
    for (int chosen = 1; chosen < 1 << TERMS; chosen++) {
        double c[TERMS];
        if (chosen & ~allowed || !chosen_terms(c, row, n, chosen)) continue;
        const double m = missed(row, n, c);
        if (m < least) least = m, memcpy(best, c, sizeof c);
    }
}

static double fitted_s(const struct row *r, const double c[TERMS])
{
    double s = 0;
    for (int k = 0; k < TERMS; k++) s += c[k] * r->x[k];
    return s;
}

/* Errors count by their logarithm: half and double are as far off. A fit to what was twice as long in one run
 * as in another would else be the shorter one. */
static double off_of(const struct row *r, const double c[TERMS])
{
    return fabs(log(fmax(fitted_s(r, c), 1e-3 * r->s) / r->s));
}

/* The weight that makes the square of fit / measured - 1 the logarithm's size; `least`: an error below it does
 * not count more. */
static double weight_of(const struct row *r, const double c[TERMS], double least)
{
    const double over = fmin(fmax(r->s / fmax(fitted_s(r, c), 1e-3 * r->s), 0.1), 10);
    return over / fmax(off_of(r, c), least);
}

static int allowed_terms(enum op_family f)
{
    switch (f) {
    case FAMILY_GEMM: return FLOOR_BYTES | 1 << TERM_FLOP;
    case FAMILY_GROUPED: case FAMILY_ATTENTION: return FLOOR_BYTES | 1 << TERM_FLOP | 1 << TERM_UNITS;
    case FAMILY_P2P: return FLOOR_BYTES;
    default: return FLOOR_BYTES | 1 << TERM_UNITS;
    }
}

static int rows_of(struct row *row, const struct calibrate_run *r, int kind)
{
    const int comm = op_family((enum op_kind)kind) == FAMILY_COMM;
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        const struct calibrate_sample *s = &r->sample[i];
        if (s->kind != kind || !(s->s > 0) || (comm && s->members < 2)) continue;
        row[n++] = (struct row){ { comm ? s->members - 1 : 1, s->bytes, s->flop, s->units }, s->s, 1 };
    }
    return n;
}

static double median_spread(struct arena *a, const struct calibrate_run *r, int kind)
{
    double *x = arena_alloc(a, ((size_t)r->n + 1) * sizeof *x);
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if (r->sample[i].kind == kind && r->sample[i].s > 0) x[n++] = r->sample[i].spread;
    return range_quantile(x, n, 0.5);
}

static struct calibrate_fit fit_kind(struct arena *a, struct row *row, int n, int kind)
{
    const enum op_family family = op_family((enum op_kind)kind);
    struct calibrate_fit f = { .op = kind, .n = n, .kind = op_name((enum op_kind)kind), .family = op_family_name(family),
                               .from_B = INFINITY };
    double c[TERMS] = { 0 }, *off = arena_alloc(a, (size_t)n * sizeof *off);
    double least = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double now[TERMS], sum = 0;
        best_terms(now, row, n, allowed_terms(family));
        for (int i = 0; i < n; i++) sum += off_of(&row[i], now);
        if (sum < least) least = sum, memcpy(c, now, sizeof c);
        for (int i = 0; i < n; i++) row[i].weight = weight_of(&row[i], now, pow(0.85, round));
    }
    for (int i = 0; i < n; i++) {
        off[i] = fabs(fitted_s(&row[i], c) / row[i].s - 1);
        f.from_B = fmin(f.from_B, row[i].x[TERM_BYTES]);
        f.to_B = fmax(f.to_B, row[i].x[TERM_BYTES]);
    }
    f.error = range_quantile(off, n, 0.5);
    f.price = (struct system_op){ c[TERM_FLOOR], c[TERM_BYTES] > 0 ? 1 / c[TERM_BYTES] : 0,
                                  c[TERM_FLOP] > 0 ? 1 / c[TERM_FLOP] : 0, c[TERM_UNITS] };
    return f;
}

/* ---- what follows for ops that no probe has, and for rates that answers name ---- */

/* Of the kinds of a family that have a rate, by `flop` of FLOP, else of bytes; NAN: none has. */
static double family_rate(struct arena *a, const struct system *s, enum op_family f, int flop, double q)
{
    double *x = arena_alloc(a, OP_KIND_COUNT * sizeof *x);
    int n = 0;
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        const double rate = flop ? s->op[k].flop_per_s : s->op[k].B_per_s;
        if (op_family((enum op_kind)k) == f && rate > 0) x[n++] = rate;
    }
    return n ? range_quantile(x, n, q) : NAN;
}

static void set_share(double *to, double part, double whole)
{
    if (part > 0 && whole > 0) *to = fmin(1, part / whole);
}

static void set_range(double *from, double *to, const struct calibrate_run *r, enum op_family f)
{
    *from = INFINITY, *to = 0;
    for (int i = 0; i < r->n; i++) {
        if (op_family((enum op_kind)r->sample[i].kind) != f) continue;
        *from = fmin(*from, r->sample[i].flop);
        *to = fmax(*to, r->sample[i].flop);
    }
    if (*to == 0) *from = 0;
}

static void set_machine(struct arena *a, struct system *to, const struct calibrate_run *r)
{
    double *floors = arena_alloc(a, OP_KIND_COUNT * sizeof *floors), peak = 0, bytes = 0;
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        const struct calibrate_sample *s = &r->sample[i];
        if (op_family((enum op_kind)s->kind) == FAMILY_GEMM) peak = fmax(peak, s->flop / s->s);
    }
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        const enum op_family f = op_family((enum op_kind)k);
        if (f == FAMILY_MEMORY || f == FAMILY_OPTIM) bytes = fmax(bytes, to->op[k].B_per_s);
        if (f == FAMILY_MEMORY && to->op[k].floor_s > 0) floors[n++] = to->op[k].floor_s;
    }
    if (peak > 0) to->peak_flop_per_s[DT_F32] = to->peak_flop_per_s[DT_BF16] = peak;
    if (bytes > 0) to->hbm_B_per_s = bytes;
    if (n) to->kernel_s = range_quantile(floors, n, 0.5);
    for (int t = 0; t < DT_COUNT; t++) {
        if (to->peak_flop_per_s[t] == 0) continue;
        set_share(&to->eff_gemm[t], family_rate(a, to, FAMILY_GEMM, 1, 0.5), peak);
        set_share(&to->eff_grouped[t], family_rate(a, to, FAMILY_GROUPED, 1, 0.5), peak);
    }
    set_share(&to->eff_memory, family_rate(a, to, FAMILY_MEMORY, 0, 0.5), bytes);
    set_share(&to->eff_optimizer, to->op[OP_ADAMW].B_per_s, bytes);
    if (to->op[OP_ADAMW].B_per_s > 0) to->host_update_B_per_s = to->op[OP_ADAMW].B_per_s;
    const double link = family_rate(a, to, FAMILY_COMM, 0, 1);
    if (link > 0) to->nvlink_B_per_s = to->nic_B_per_s = link;
    set_share(&to->eff_nvlink, family_rate(a, to, FAMILY_COMM, 0, 0.5), link);
    set_share(&to->eff_nvlink_alltoall, to->op[OP_DISPATCH].B_per_s, link);
    if (to->op[OP_GATHER].floor_s > 0) to->nvlink_latency_s = to->nic_latency_s = to->op[OP_GATHER].floor_s;
}

/* The mean of the middle half: what usually passes, whatever else the machine did now and then. */
static double middle(double *x, int n)
{
    double sum = 0;
    const int from = n / 4, end = n - n / 4;
    if (n == 0) return 0;
    range_quantile(x, n, 0.5);                      /* sorts */
    for (int i = from; i < end; i++) sum += x[i];
    return sum / (end - from);
}

/* Four digits: no more of a measurement means anything. */
static void round_all(struct system *s)
{
    for (int i = 0; i < system_n_opt; i++) {
        double *const x = (double *)(void *)((char *)s + system_opts[i].at);
        char text[32];
        if (system_opts[i].type != OPT_NUMBER || system_opts[i].unit == UNIT_B) continue;
        snprintf(text, sizeof text, "%.4g", *x);
        *x = strtod(text, NULL);
    }
}

int calibrate_fits(struct calibrate_fit *fit, struct system *to, const struct calibrate_run *r)
{
    struct arena a = { 0 };
    struct row *row = arena_alloc(&a, ((size_t)r->n + 1) * sizeof *row);
    int n = 0;
    memset(to->op, 0, sizeof to->op);
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        const int rows = rows_of(row, r, k);
        if (rows == 0) continue;
        fit[n] = fit_kind(&a, row, rows, k);
        fit[n].spread = median_spread(&a, r, k);
        to->op[k] = fit[n++].price;
    }
    to->next_s = to->issue_s = middle(r->gap[CALIBRATE_NEXT], r->n_gap[CALIBRATE_NEXT]);
    to->wake_s = middle(r->gap[CALIBRATE_WAKE], r->n_gap[CALIBRATE_WAKE]);
    set_machine(&a, to, r);
    if (r->cache_B > 0) to->cache_B = r->cache_B;
    round_all(to);
    set_range(&to->gemm_flop.from, &to->gemm_flop.to, r, FAMILY_GEMM);
    set_range(&to->grouped_flop.from, &to->grouped_flop.to, r, FAMILY_GROUPED);
    set_range(&to->attention_flop.from, &to->attention_flop.to, r, FAMILY_ATTENTION);
    for (int i = 0; i < n; i++) fit[i].price = to->op[fit[i].op];
    arena_free(&a);
    return n;
}
