/* Choice by repeated search for the largest: k passes over E numbers are plain and have one tie rule. What
 * was taken is marked apart from the values, so that even logits that are not numbers choose k different
 * experts. */
#include "kernels/route.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct route_claim { float prob; int32_t at; };     /* a token's weight for an expert, and which choice it was */

struct route_work {
    int32_t *pick;
    float *value, *group;
    int32_t *next;
    struct route_claim *claim;      /* [rows], of one expert; with a capacity, as lost */
    char *taken, *dropped, *lost;   /* lost [rows * topk] */
};

int64_t route_scratch_B(int64_t rows, const struct route_rule *r)
{
    const int64_t claims = r->capacity ? rows * ((int64_t)sizeof(struct route_claim) + r->topk) : 0;
    const int64_t forward = rows * r->topk * 4 + r->experts * (4 + 4 + 4 + 1 + 1) + claims;
    const int64_t backward = rows * 2 * (int64_t)sizeof(double);
    return forward > backward ? forward : backward;
}

static struct route_work route_work(void *scratch, int64_t rows, const struct route_rule *r)
{
    struct route_work w = {.pick = scratch};
    w.next = w.pick + rows * r->topk;
    w.value = (float *)(w.next + r->experts);
    w.group = w.value + r->experts;
    w.claim = (struct route_claim *)(void *)(w.group + r->experts);
    w.taken = (char *)(w.claim + (r->capacity ? rows : 0));
    w.dropped = w.taken + r->experts;
    w.lost = w.dropped + r->experts;
    return w;
}

static void route_sigmoid(float *score, const float *logit, int n)
{
    for (int e = 0; e < n; e++) score[e] = 1 / (1 + expf(-logit[e]));
}

static void route_softmax(float *score, const float *logit, int n)
{
    float most = logit[0];
    double sum = 0;
    for (int e = 1; e < n; e++) most = fmaxf(most, logit[e]);
    for (int e = 0; e < n; e++) {
        score[e] = expf(logit[e] - most);
        sum += score[e];
    }
    for (int e = 0; e < n; e++) score[e] = (float)(score[e] / sum);
}

/* The lowest index of the largest value that is not taken; -1 when all are. */
static int route_best(const float *value, const char *taken, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || value[i] > value[best])) best = i;
    return best;
}

/* Takes the best k of n; `pick` may be NULL. Lowers `gap` by the last taken against the first not taken. */
static void route_take(int32_t *pick, char *taken, float *gap, const float *value, int n, int k)
{
    int last = -1;
    for (int i = 0; i < k; i++) {
        last = route_best(value, taken, n);
        taken[last] = 1;
        if (pick) pick[i] = last;
    }
    const int next = route_best(value, taken, n);
    if (next >= 0) *gap = fminf(*gap, value[last] - value[next]);
}

/* The sum of the best two, or the best one. */
static float route_group_score(const float *value, int size, int best_one)
{
    float first = -INFINITY, second = -INFINITY;
    for (int e = 0; e < size; e++) {
        const float v = value[e];
        second = fmaxf(second, fminf(first, v));
        first = fmaxf(first, v);
    }
    return best_one ? first : first + second;
}

/* Marks the experts of the groups that are not kept as taken. */
static void route_limit(struct route_work *w, float *gap, const struct route_rule *r)
{
    const int size = r->experts / r->groups;
    memset(w->dropped, 0, (size_t)r->groups);
    for (int g = 0; g < r->groups; g++) w->group[g] = route_group_score(w->value + g * size, size, r->group_max);
    route_take(NULL, w->dropped, gap, w->group, r->groups, r->kept);
    for (int g = 0; g < r->groups; g++)
        if (!w->dropped[g]) memset(w->taken + g * size, 1, (size_t)size);
}

static void route_choose(struct route_work *w, int64_t token, float *gap, const float *score,
                         const float *bias, const struct route_rule *r)
{
    for (int e = 0; e < r->experts; e++) w->value[e] = score[e] + (bias ? bias[e] : 0);
    memset(w->taken, 0, (size_t)r->experts);
    if (r->groups > 1) route_limit(w, gap, r);
    route_take(w->pick + token * r->topk, w->taken, gap, w->value, r->experts, r->topk);
}

/* What every picked score of a token is multiplied by. */
static double route_factor(double picked_sum, const struct route_rule *r)
{
    return r->norm_topk ? r->scale / (picked_sum + 1e-20) : r->scale;
}

static double route_picked_sum(const float *score, const int32_t *pick, int k)
{
    double sum = 0;
    for (int i = 0; i < k; i++) sum += score[pick[i]];
    return sum;
}

/* ---- capacity ---- */

static int route_claim_order(const void *x, const void *y)
{
    const struct route_claim *a = x, *b = y;
    if (a->prob != b->prob) return a->prob > b->prob ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Which tokens chose expert e, with what weight, in their order; how many. */
static int64_t route_claims(struct route_work *w, int e, const float *score, int64_t rows, const struct route_rule *r)
{
    int64_t n = 0;
    for (int64_t t = 0; t < rows; t++) {
        const float *s = score + t * r->experts;
        const int32_t *pick = w->pick + t * r->topk;
        for (int i = 0; i < r->topk; i++)
            if (pick[i] == e)
                w->claim[n++] = (struct route_claim){(float)(s[e] * route_factor(route_picked_sum(s, pick, r->topk), r)),
                                                     (int32_t)(t * r->topk + i)};
    }
    return n;
}

/* Marks what full experts lose. */
static void route_drop(struct route_work *w, int32_t *mine, float *gap, const float *score, int64_t rows,
                       const struct route_rule *r)
{
    memset(w->lost, 0, (size_t)(rows * r->topk));
    for (int e = 0; e < r->experts; e++) {
        if (mine[e] <= r->capacity) continue;
        const int64_t n = route_claims(w, e, score, rows, r);
        if (!r->by_position) {
            qsort(w->claim, (size_t)n, sizeof *w->claim, route_claim_order);
            *gap = fminf(*gap, w->claim[r->capacity - 1].prob - w->claim[r->capacity].prob);
        }
        for (int64_t i = r->capacity; i < n; i++) w->lost[w->claim[i].at] = 1;
        mine[e] = (int32_t)r->capacity;
    }
}

/* All rows are nobody's until a choice takes them. Returns where those begin that were dropped. */
static int64_t route_clear(int32_t *perm, float *prob, int32_t *mine, int64_t rows, const struct route_rule *r)
{
    int64_t kept = 0;
    memset(perm, 0xff, (size_t)route_listed(rows, r) * 2 * sizeof *perm);
    memset(prob, 0, (size_t)route_rows(rows, r) * sizeof *prob);
    for (int e = 0; e < r->experts; e++) {
        if (r->padded) mine[e] = (int32_t)r->capacity;
        kept += mine[e];
    }
    return kept;
}

/* Lists the choices by expert, then token: a counting sort, tokens taken in order. */
static void route_list(int32_t *perm, float *prob, struct route_work *w, const float *score,
                       int32_t *mine, int64_t rows, const struct route_rule *r)
{
    int64_t lost = r->capacity ? route_clear(perm, prob, mine, rows, r) : 0;
    for (int e = 0, at = 0; e < r->experts; at += mine[e++]) w->next[e] = at;
    for (int64_t t = 0; t < rows; t++) {
        const float *s = score + t * r->experts;
        const int32_t *pick = w->pick + t * r->topk;
        const double factor = route_factor(route_picked_sum(s, pick, r->topk), r);
        for (int i = 0; i < r->topk; i++) {
            if (r->capacity && w->lost[t * r->topk + i]) {
                perm[2 * lost] = route_dropped((int32_t)t);
                perm[2 * lost++ + 1] = pick[i];
                continue;
            }
            const int32_t at = w->next[pick[i]]++;
            perm[2 * at] = (int32_t)t;
            perm[2 * at + 1] = pick[i];
            prob[at] = (float)(s[pick[i]] * factor);
        }
    }
}

enum err route_ref(float *score, int32_t *perm, float *prob, int32_t *mine, float *gap, const float *logit,
                   const float *bias, const int32_t *given, int64_t rows, const struct route_rule *r, void *scratch)
{
    struct route_work w = route_work(scratch, rows, r);
    memset(mine, 0, (size_t)r->experts * sizeof *mine);
    for (int64_t t = 0; t < rows; t++) {
        (r->sigmoid ? route_sigmoid : route_softmax)(score + t * r->experts, logit + t * r->experts,
                                                     r->experts);
        if (given) memcpy(w.pick + t * r->topk, given + t * r->topk, (size_t)r->topk * sizeof *given);
        else route_choose(&w, t, gap, score + t * r->experts, bias, r);
        for (int i = 0; i < r->topk; i++) mine[w.pick[t * r->topk + i]]++;
    }
    if (r->capacity) route_drop(&w, mine, gap, score, rows, r);
    route_list(perm, prob, &w, score, mine, rows, r);
    return OK;
}

/* ds of the picked scores, in place, to dlogit of all. Softmax mixes: dlogit = s (ds - sum of ds s). */
static void route_score_bwd(float *d, const float *s, const struct route_rule *r)
{
    double mixed = 0;
    if (!r->sigmoid)
        for (int e = 0; e < r->experts; e++) mixed += (double)d[e] * s[e];
    for (int e = 0; e < r->experts; e++)
        d[e] = r->sigmoid ? d[e] * s[e] * (1 - s[e]) : (float)(s[e] * (d[e] - mixed));
}

enum err route_bwd_ref(float *dlogit, const float *dprob, const float *score, const int32_t *perm,
                       int64_t rows, const struct route_rule *r, void *scratch)
{
    double *sum = scratch, *along = sum + rows; /* per token over its picks: s, and dprob s */
    const int64_t listed = route_listed(rows, r);
    memset(sum, 0, (size_t)rows * 2 * sizeof *sum);
    memset(dlogit, 0, (size_t)(rows * r->experts) * sizeof *dlogit);
    for (int64_t j = 0; j < listed; j++) {
        const int32_t t = route_token(perm[2 * j]);
        if (t < 0) continue;
        const double s = score[(int64_t)t * r->experts + perm[2 * j + 1]];
        sum[t] += s;
        if (perm[2 * j] >= 0) along[t] += s * dprob[j];
    }
    for (int64_t j = 0; j < listed; j++) {
        const int32_t t = route_token(perm[2 * j]);
        if (t < 0) continue;
        const double shared = r->norm_topk ? along[t] / (sum[t] + 1e-20) : 0;
        dlogit[(int64_t)t * r->experts + perm[2 * j + 1]] =
            (float)(route_factor(sum[t], r) * ((perm[2 * j] >= 0 ? dprob[j] : 0) - shared));
    }
    for (int64_t t = 0; t < rows; t++) route_score_bwd(dlogit + t * r->experts, score + t * r->experts, r);
    return OK;
}
