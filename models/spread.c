/* A target is hit unless all picks miss it: hypergeometric in the experts of the kept groups, averaged over how many
 * experts of the target the kept groups hold. A target is a run of experts: a piece of a group at either end, whole
 * groups between. */
#include "models/spread.h"

/* What is still open: `kept` of `groups` groups will be kept; the target has `hold` experts in those that are by now. */
struct draw { const struct model *m; int groups, kept, hold; };

/* That topk picks among the experts of all kept groups miss those `hold`. */
static double missed(const struct draw *d, int hold)
{
    const int n = d->m->groups_kept * (d->m->experts / d->m->groups);
    double p = 1;
    for (int i = 0; i < d->m->topk && p > 0; i++) p *= n - hold - i > 0 ? (double)(n - hold - i) / (n - i) : 0;
    return p;
}

/* P(i + 1) / P(i): i of the target's `whole` groups are kept. */
static double step(const struct draw *d, int whole, int i)
{
    const double others = d->groups - whole - d->kept + i + 1;
    return others > 0 ? (double)(whole - i) * (d->kept - i) / ((i + 1) * others) : 0;
}

/* The same with `whole` whole groups, each kept or not. Weights start at the likeliest number, so none overflows. */
static double missed_whole(const struct draw *d, int whole)
{
    const int size = d->m->experts / d->m->groups;
    const int most = whole < d->kept ? whole : d->kept, spare = d->kept - (d->groups - whole), least = spare > 0 ? spare : 0;
    int mode = (int)((whole + 1.0) * (d->kept + 1.0) / (d->groups + 2.0));
    mode = mode > most ? most : mode < least ? least : mode;
    double sum = missed(d, d->hold + mode * size), weight = 1, p = 1;
    for (int i = mode; i < most; i++) {
        p *= step(d, whole, i);
        weight += p;
        sum += p * missed(d, d->hold + (i + 1) * size);
    }
    p = 1;
    for (int i = mode - 1; i >= least; i--) {
        p /= step(d, whole, i);
        weight += p;
        sum += p * missed(d, d->hold + i * size);
    }
    return sum / weight;
}

/* Pieces of up to two groups first; 0: no such piece. */
static double missed_all(struct draw d, int piece, int next, int whole)
{
    if (!piece) return next ? missed_all(d, next, 0, whole) : missed_whole(&d, whole);
    const double keep = (double)d.kept / d.groups;
    const struct draw out = { d.m, d.groups - 1, d.kept, d.hold }, in = { d.m, d.groups - 1, d.kept - 1, d.hold + piece };
    double p = 0;
    if (d.kept > 0) p += keep * missed_all(in, next, 0, whole);
    if (d.kept < d.groups) p += (1 - keep) * missed_all(out, next, 0, whole);
    return p;
}

double spread_targets(const struct model *m, int targets)
{
    if (m->experts < 1) return 0;
    const int size = m->experts / m->groups;
    double hit = 0;
    for (int t = 0; t < targets; t++) {
        const int from = (int)((int64_t)m->experts * t / targets), to = (int)((int64_t)m->experts * (t + 1) / targets);
        const int border = (size - from % size) % size, piece = border < to - from ? border : to - from;
        const int rest = to - from - piece;
        hit += 1 - missed_all((struct draw){ m, m->groups, m->groups_kept, 0 }, piece, rest % size, rest / size);
    }
    return hit;
}
