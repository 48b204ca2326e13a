/* Where groups sit. A plan of thousands of GPUs is asked for every kind of group and every grid of a search, so
 * the groups are not listed: ranks that provably share their fate are folded into one first (picture_of), and of
 * a pattern that repeats only one period is walked. Both steps are exact; the test holds them against a walk over
 * every rank. Splits over racks: case E05 (a full rack holds no whole number of expert groups). */
#include "models/place.h"
#include <stdint.h>

const char *place_link_name(enum link l)
{
    static const char *const name[] = { [LINK_SELF] = "self", [LINK_NVLINK] = "nvlink", [LINK_NIC] = "nic" };
    return name[l];
}

static int largest_part(int gpus, int domain, int multiple)
{
    for (int n = domain; n > 0; n--)
        if (gpus % n == 0 && n % multiple == 0) return n;
    return 0;
}

int place_domain_gpus(int gpus, int domain, int gpus_per_host)
{
    const int whole = gpus_per_host > 0 ? largest_part(gpus, domain, gpus_per_host) : 0;
    return whole ? whole : largest_part(gpus, domain, 1);
}

int place_domain(const struct plan *p, int rank)
{
    return rank / p->domain_gpus;
}

/* ---- the folded picture: a member stands for `weight` ranks, a group for `copies` groups ---- */
struct picture {
    struct fold_axes axes;
    int ranks, domain, weight, copies;
};

static int gcd(int a, int b)
{
    return b ? gcd(b, a % b) : a;
}

/* Two axes that continue each other are one; an axis of one member is none. */
static struct fold_axes merge(struct fold_axes x)
{
    if (x.size[0] == 1) x = (struct fold_axes){ { x.size[1], 1 }, { x.stride[1], 1 } };
    if (x.size[0] == 1) return (struct fold_axes){ { 1, 1 }, { 1, 1 } };
    if (x.size[1] > 1 && x.stride[1] != x.size[0] * x.stride[0]) return x;
    return (struct fold_axes){ { x.size[0] * x.size[1], 1 }, { x.stride[0], 1 } };
}

static void divide(struct picture *s, int by)
{
    s->ranks /= by;
    s->domain /= by;
    s->axes.stride[0] = s->axes.stride[0] > by ? s->axes.stride[0] / by : 1;
    s->axes.stride[1] = s->axes.stride[1] > by ? s->axes.stride[1] / by : 1;
}

/* Neighbours that are always in one domain become one: members of a run of stride 1 (weight), or the same member
 * of neighbouring groups (copies). Group sizes and strides are multiples of what is divided out, so nothing is
 * rounded. */
static struct picture picture_of(const struct plan *p, struct fold_axes axes)
{
    struct picture s = { merge(axes), .ranks = p->gpus, .domain = p->domain_gpus, .weight = 1, .copies = 1 };
    for (int run = 2, beside = 2; run > 1 || beside > 1; s.axes = merge(s.axes)) {
        beside = gcd(s.axes.stride[0], s.domain);
        run = s.axes.stride[0] == 1 ? gcd(s.axes.size[0], s.domain) : 1;
        s.axes.size[0] /= run;
        s.weight *= run;
        s.copies *= beside;
        divide(&s, run * beside);
    }
    return s;
}

/* Ranks after which groups and domains repeat together. */
static int picture_period(const struct picture *s)
{
    const struct fold_axes *x = &s->axes;
    const int block = x->size[1] > 1 ? x->size[1] * x->stride[1] : x->size[0] * x->stride[0];
    const int64_t period = (int64_t)block / gcd(block, s->domain) * s->domain;
    return period < s->ranks ? (int)period : s->ranks;
}

static int picture_member(const struct picture *s, int first, int i)
{
    const struct fold_axes *x = &s->axes;
    return x->size[1] == 1 ? first + i * x->stride[0]
                           : first + i % x->size[0] * x->stride[0] + i / x->size[0] * x->stride[1];
}

/* ---- one group ---- */
struct split { int domains, fewest, even, rails; };

/* Members ascend, so each domain's are a run; every run is held against the first. */
static struct split split_of(const struct picture *s, int first)
{
    const int n = s->axes.size[0] * s->axes.size[1];
    struct split x = { .domains = 0, .fewest = n, .even = 1, .rails = 1 };
    for (int i = 0, run = 0, head = 0; i < n; i += run, x.domains++) {
        const int domain = picture_member(s, first, i) / s->domain, end = (domain + 1) * s->domain;
        for (run = 0; i + run < n; run++) {
            const int rank = picture_member(s, first, i + run);
            if (rank >= end) break;
            if (i > 0 && (run >= head || (rank - picture_member(s, first, run)) % s->domain)) x.rails = 0;
        }
        if (i == 0) head = run;
        if (run != head) x.even = 0;
        if (run < x.fewest) x.fewest = run;
    }
    x.rails &= x.even;
    return x;
}

/* ---- all groups of a kind ---- */
struct survey {
    struct place worst;
    int fewest_domains, well; /* of the best placed group; groups that are placed like it and split evenly */
};

static void survey_add(struct survey *v, const struct split *x, int weight, int groups)
{
    struct place *w = &v->worst;
    if (x->domains > w->domains || (x->domains == w->domains && x->fewest * weight < w->in_domain)) {
        w->domains = x->domains;
        w->in_domain = x->fewest * weight;
    }
    if (v->fewest_domains == 0 || x->domains < v->fewest_domains) {
        v->fewest_domains = x->domains;
        v->well = 0;
    }
    if (x->domains == v->fewest_domains && x->even) v->well += groups;
    w->same_rail &= x->rails;
    w->groups += groups;
}

static struct place survey_end(struct survey *v, int size)
{
    struct place *w = &v->worst;
    w->size = size;
    w->link = size == 1 ? LINK_SELF : w->domains == 1 ? LINK_NVLINK : LINK_NIC;
    w->straddles = w->groups - v->well;
    if (w->nic_share == 0) w->nic_share = 1;
    return *w;
}

/* A group is counted in a domain at its first member there, if it reaches other domains too. */
static int crosses_here(const struct picture *s, int rank)
{
    const struct fold_axes *x = &s->axes;
    const int i0 = rank / x->stride[0] % x->size[0], i1 = rank / x->stride[1] % x->size[1];
    const int first = rank - i0 * x->stride[0] - i1 * x->stride[1];
    const int last = first + (x->size[0] - 1) * x->stride[0] + (x->size[1] - 1) * x->stride[1];
    const int turn = x->stride[1] - (x->size[0] - 1) * x->stride[0];    /* from the end of a run to the next */
    const int before = i0 > 0 ? rank - x->stride[0] : i1 > 0 ? rank - turn : -1;
    const int start = rank / s->domain * s->domain;
    return before < start && (first < start || last >= start + s->domain);
}

static int is_first(const struct picture *s, int rank)
{
    const struct fold_axes *x = &s->axes;
    return rank / x->stride[0] % x->size[0] == 0 && rank / x->stride[1] % x->size[1] == 0;
}

/* Ranks 0 .. n - 1, which stand for `times` as many. */
static void survey_walk(struct survey *v, const struct picture *s, int n, int times)
{
    for (int rank = 0, share = 0; rank < n; rank++) {
        if (rank % s->domain == 0) share = 0;
        if (is_first(s, rank)) {
            const struct split x = split_of(s, rank);
            survey_add(v, &x, s->weight, s->copies * times);
        }
        share += crosses_here(s, rank) * s->copies;
        if (share > v->worst.nic_share) v->worst.nic_share = share;
    }
}

/* Where folding left domains of one rank, or groups of one, all groups are alike: every member is in a domain of its
 * own. Always so with powers of two. */
static int survey_alike(struct survey *v, const struct picture *s)
{
    const int n = s->axes.size[0] * s->axes.size[1];
    const struct split x = { n, 1, 1, 1 };
    if (s->domain > 1 && n > 1) return 0;
    survey_add(v, &x, s->weight, s->ranks / n * s->copies);
    if (n > 1) v->worst.nic_share = s->copies;
    return 1;
}

static struct place place_axes(const struct job *j, enum group g)
{
    const struct picture s = picture_of(&j->plan, fold_axes_of(j, g));
    const int period = picture_period(&s);
    struct survey v = { .worst.same_rail = 1 };
    if (survey_alike(&v, &s)) return survey_end(&v, fold_size(j, g));
    survey_walk(&v, &s, period, s.ranks / period);
    survey_walk(&v, &s, s.ranks % period, 1);
    return survey_end(&v, fold_size(j, g));
}

/* ---- pairs of stages: PREV and NEXT (one set of pairs, seen from either end), EMBED ---- */
/* The stage that `stage` pairs with, or -1. The ring closes only where a pipeline has more chunks than stages. */
static int partner(const struct job *j, enum group g, int stage)
{
    const int pp = j->plan.pp;
    int32_t table[2] = { 0, 0 };
    if (g == GROUP_EMBED) return fold_embed_stages(j, table) == 2 && stage == 0 ? table[1] : -1;
    return stage + 1 < pp ? stage + 1 : j->plan.vpp > 1 ? 0 : -1;
}

static void survey_pairs(struct survey *v, const struct job *j, enum group g, const struct picture *s, int n,
                         int times)
{
    const int stride = s->axes.stride[0];
    for (int rank = 0, share = 0; rank < n; rank++) {
        const int stage = rank / stride % j->plan.pp, to = partner(j, g, stage);
        if (rank % s->domain == 0) share = 0;
        if (to < 0) continue;
        const int other = rank + (to - stage) * stride, apart = rank / s->domain != other / s->domain;
        const struct split x = { 1 + apart, 2 - apart, 1, !apart || (rank - other) % s->domain == 0 };
        survey_add(v, &x, 1, s->copies * times);
        share += apart * s->copies;
        if (share > v->worst.nic_share) v->worst.nic_share = share;
    }
}

/* Where folding left domains of one rank, the two of a pair are never in one: one pipeline stands for all. */
static int survey_apart(struct survey *v, const struct job *j, enum group g, const struct picture *s)
{
    const struct split x = { 2, 1, 1, 1 };
    if (s->domain > 1) return 0;
    for (int stage = 0; stage < j->plan.pp; stage++)
        if (partner(j, g, stage) >= 0) survey_add(v, &x, 1, s->ranks / j->plan.pp * s->copies);
    v->worst.nic_share = s->copies;
    return 1;
}

static struct place place_pairs(const struct job *j, enum group g)
{
    const struct fold_axes pipe = fold_axes_of(j, GROUP_PP);
    struct picture s = { .axes = pipe, .ranks = j->plan.gpus, .domain = j->plan.domain_gpus, .weight = 1 };
    s.copies = gcd(pipe.stride[0], s.domain);
    divide(&s, s.copies);
    const int period = picture_period(&s);
    struct survey v = { .worst.same_rail = 1 };
    if (survey_apart(&v, j, g, &s)) return survey_end(&v, 2);
    survey_pairs(&v, j, g, &s, period, s.ranks / period);
    survey_pairs(&v, j, g, &s, s.ranks % period, 1);
    return survey_end(&v, 2);
}

struct place place_of(const struct job *j, enum group g)
{
    const int picks = g == GROUP_PREV || g == GROUP_NEXT || g == GROUP_EMBED;
    return picks && fold_size(j, g) > 1 ? place_pairs(j, g) : place_axes(j, picks ? GROUP_NONE : g);
}
