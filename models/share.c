/* See share.h. */
#include "models/share.h"
#include "models/spread.h"
#include <math.h>
#include <stdlib.h>

/* ---- Gamma's quantile ---- */

/* Share of Gamma(a) below x: a series below a + 1, a continued fraction above (Abramowitz and Stegun 6.5.29,
 * 6.5.31). */
static double gamma_below(double a, double x)
{
    const double front = exp(a * log(x) - x - lgamma(a));
    if (x < a + 1) {
        double sum = 1 / a, term = sum;
        for (int n = 1; term > 1e-16 * sum; n++) sum += term *= x / (a + n);
        return front * sum;
    }
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int n = 1; n < 10000; n++) {
        const double an = -n * (n - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-15) break;
    }
    return 1 - front * h;
}

/* Newton's steps in log x, halving where one leaves the bounds, which close in. */
double share_gamma_quantile(double shape, double p)
{
    double low = (log(p) + lgamma(shape + 1)) / shape - 1, high = log(shape + 40 + 40 * sqrt(shape)), y = low + 1;
    for (int n = 0; n < 200; n++) {
        const double x = exp(y), off = gamma_below(shape, x) - p, slope = exp(shape * y - x - lgamma(shape));
        if (off > 0) high = y;
        else low = y;
        const double next = y - off / slope, at = next > low && next < high ? next : 0.5 * (low + high);
        if (fabs(at - y) <= 1e-14 * fmax(1, fabs(y))) break;
        y = at;
    }
    return exp(y);
}

/* ---- popularity ---- */

static double popularity(const struct routing *r, int k, int n)
{
    switch (r->kind) {
    case ROUTING_ZIPF: return pow(k + 1, -r->skew);
    case ROUTING_DIRICHLET: return share_gamma_quantile(r->skew, (n - k - 0.5) / n);
    default: return 1;
    }
}

static double sum_from(const double *p, int from, int n)
{
    double sum = 0;
    for (int k = n - 1; k >= from; k--) sum += p[k];       /* smallest first */
    return sum;
}

/* Popularities, falling, to shares that sum to topk: those that would be above one are one. */
static void to_shares(double *p, int n, int topk)
{
    int full = 0;
    while (full < topk && p[full] * (topk - full) > sum_from(p, full, n)) full++;
    const double rest = sum_from(p, full, n);
    for (int k = 0; k < n; k++) p[k] = k < full ? 1 : rest > 0 ? fmin(1, p[k] / rest * (topk - full)) : 0;
}

void share_deal(int32_t *order, int n)
{
    int bits = 0, at = 0;
    while (1 << bits < n) bits++;
    for (int i = 0; i < 1 << bits; i++) {
        int reversed = 0;
        for (int b = 0; b < bits; b++) reversed |= (i >> b & 1) << (bits - 1 - b);
        if (reversed < n) order[at++] = reversed;
    }
}

static void worst_picks(double *pick, const struct model *m, int here)
{
    const int most = m->topk < here ? m->topk : here, others = m->experts - here;
    for (int e = 0; e < m->experts; e++)
        pick[e] = e < most ? 1 : e < here || others == 0 ? 0 : (double)(m->topk - most) / others;
}

/* ---- recorded ---- */

struct ranked { double sum; int32_t at; };

static int by_sum(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->sum != y->sum ? (x->sum < y->sum) - (x->sum > y->sum) : x->at - y->at;
}

static void rank_all(struct ranked *r, const double *x, int n)
{
    for (int i = 0; i < n; i++) r[i] = (struct ranked){ x[i], i };
    qsort(r, (size_t)n, sizeof *r, by_sum);
}

/* One layer's counts as shares, in expert order. */
static void layer_shares(double *to, const double *tokens, int n, int topk, struct ranked *r, double *p)
{
    rank_all(r, tokens, n);
    for (int k = 0; k < n; k++) p[k] = r[k].sum;
    to_shares(p, n, topk);
    for (int k = 0; k < n; k++) to[r[k].at] = p[k];
}

static void sums_of(double *sum, const double *share, int ep, int here)
{
    for (int m = 0; m < ep; m++) sum[m] = 0;
    for (int e = 0; e < ep * here; e++) sum[e / here] += share[e];
}

/* Adds one layer to the mean: its k-th busiest rank to the rank that is k-th busiest over all layers, and within
 * them the k-th busiest expert likewise. So the mean's busiest rank has what the busiest of every layer has. */
static void add_ranked(double *pick, const double *share, const double *total, int ep, int here, double part)
{
    struct arena scratch = { 0 };
    struct ranked *mine = arena_alloc(&scratch, (size_t)(ep + here) * sizeof *mine), *mine_e = mine + ep;
    struct ranked *all = arena_alloc(&scratch, (size_t)(ep + here) * sizeof *all), *all_e = all + ep;
    double *sum = arena_alloc(&scratch, (size_t)ep * sizeof *sum);
    sums_of(sum, share, ep, here);
    rank_all(mine, sum, ep);
    sums_of(sum, total, ep, here);
    rank_all(all, sum, ep);
    for (int k = 0; k < ep; k++) {
        rank_all(mine_e, &share[mine[k].at * here], here);
        rank_all(all_e, &total[all[k].at * here], here);
        for (int i = 0; i < here; i++) pick[all[k].at * here + all_e[i].at] += part * mine_e[i].sum;
    }
    arena_free(&scratch);
}

static void recorded_picks(double *pick, const struct recorded *r, int ep, int topk)
{
    const size_t n = (size_t)r->experts;
    struct arena scratch = { 0 };
    struct ranked *order = arena_alloc(&scratch, n * sizeof *order);
    double *share = arena_alloc(&scratch, (size_t)r->layers * n * sizeof *share), *p = arena_alloc(&scratch, n * sizeof *p);
    double *total = arena_alloc(&scratch, n * sizeof *total);
    for (int l = 0; l < r->layers; l++) {
        layer_shares(&share[(size_t)l * n], &r->tokens[(size_t)l * n], r->experts, topk, order, p);
        for (size_t e = 0; e < n; e++) total[e] += share[(size_t)l * n + e];
    }
    for (size_t e = 0; e < n; e++) pick[e] = 0;
    for (int l = 0; l < r->layers; l++)
        add_ranked(pick, &share[(size_t)l * n], total, ep, r->experts / ep, 1.0 / r->layers);
    arena_free(&scratch);
}

void share_picks(double *pick, const struct job *j)
{
    const struct model *m = &j->model;
    const int ep = j->plan.ep, here = m->experts / ep;
    struct arena scratch = { 0 };
    if (j->plan.routing.kind == ROUTING_WORST) {
        worst_picks(pick, m, here);
        return;
    }
    if (j->plan.routing.kind == ROUTING_RECORDED) {
        recorded_picks(pick, j->plan.routing.recorded, ep, m->topk);
        return;
    }
    double *p = arena_alloc(&scratch, (size_t)m->experts * sizeof *p);
    int32_t *deal = arena_alloc(&scratch, (size_t)ep * sizeof *deal);
    for (int k = 0; k < m->experts; k++) p[k] = popularity(&j->plan.routing, k, m->experts);
    to_shares(p, m->experts, m->topk);
    share_deal(deal, ep);
    for (int k = 0; k < m->experts; k++) pick[deal[k % ep] * here + k / ep] = p[k];
    arena_free(&scratch);
}

/* ---- targets ---- */

/* Draws without replacement miss less often than picks by themselves: by a power, which even picks tell. */
static double missed_power(const struct model *m, int targets, double even)
{
    const double missed = log1p(-even / targets), each = log1p(-(double)m->topk / m->experts);
    const double power = missed / (each * m->experts / targets);
    return isfinite(power) && power > 0 ? power : 1;
}

double share_targets(const struct job *j, const double *pick, int targets, double *busiest)
{
    const struct model *m = &j->model;
    const double even = spread_targets(m, targets), power = missed_power(m, targets, even);
    const double each = 1 - (double)m->topk / m->experts;
    double hit = 0, hit_even = 0, most = 0;
    for (int t = 0; t < targets; t++) {
        const int from = (int)((int64_t)m->experts * t / targets);
        const int to = (int)((int64_t)m->experts * (t + 1) / targets);
        double missed = 1;
        for (int e = from; e < to; e++) missed *= 1 - pick[e];
        missed = pow(missed, power);
        hit += 1 - missed;
        hit_even += 1 - pow(each, power * (to - from));
        most = fmax(most, 1 - missed);
    }
    if (busiest) *busiest = fmin(1, most * even / hit_even) * targets;
    return fmax(1, hit * even / hit_even);
}
