/* The router: the numbers of case F04, ties of case D07, group limits of case C09, the listing, the margin,
 * and gradients as slopes of the weights with the choice held (top-k's own slope is zero almost everywhere).
 */
#include "kernels/route.h"
#include "tests/numbers.h"
#include <string.h>

enum { MOST = 4096, WIDE = 256 };
struct routed {
    float *score, *prob, gap;
    int32_t *perm, *mine;
    void *scratch;
};

static struct routed routed_init(int rows, const struct route_rule *r)
{
    struct routed o = {.gap = INFINITY,
                       .score = numbers_poison(rows * r->experts),
                       .prob = numbers_poison((int)route_rows(rows, r)),
                       .scratch = malloc((size_t)route_scratch_B(rows, r) + 1)};
    o.perm = malloc((size_t)route_listed(rows, r) * 2 * sizeof *o.perm + 1);
    o.mine = malloc((size_t)r->experts * sizeof *o.mine);
    ck_assert(o.perm && o.mine && o.scratch);
    return o;
}

static void routed_free(struct routed *o)
{
    free(o->score), free(o->prob), free(o->perm), free(o->mine), free(o->scratch);
}

static struct routed run(const float *logit, const float *bias, int rows, const struct route_rule *r)
{
    struct routed o = routed_init(rows, r);
    ck_assert_int_eq(route_ref(o.score, o.perm, o.prob, o.mine, &o.gap, logit, bias, NULL, rows, r, o.scratch), OK);
    return o;
}

/* The weight of (token, expert), or -1 when it was not chosen. */
static double weight_of(const struct routed *o, int n, int token, int expert)
{
    for (int j = 0; j < n; j++)
        if (o->perm[2 * j] == token && o->perm[2 * j + 1] == expert) return o->prob[j];
    return -1;
}

/* By expert, then token; every token k times; counts agree. */
static void check_list(const struct routed *o, int rows, const struct route_rule *r)
{
    int per_expert[WIDE] = {0}, per_token[MOST] = {0};
    for (int j = 0; j < rows * r->topk; j++) {
        const int32_t *p = o->perm + 2 * j;
        if (j) ck_assert(p[-1] < p[1] || (p[-1] == p[1] && p[-2] < p[0]));
        per_token[p[0]]++;
        per_expert[p[1]]++;
    }
    for (int t = 0; t < rows; t++) ck_assert_int_eq(per_token[t], r->topk);
    for (int e = 0; e < r->experts; e++) ck_assert_int_eq(per_expert[e], o->mine[e]);
}

START_TEST(softmax_then_top_k)
{
    const float logit[4] = {2, 1, 0, -1};
    struct route_rule r = {.experts = 4, .topk = 2, .groups = 1, .kept = 1, .scale = 1};
    struct routed plain = run(logit, NULL, 1, &r);
    r.norm_topk = 1;
    struct routed normed = run(logit, NULL, 1, &r);
    ck_assert_double_eq_tol(weight_of(&plain, 2, 0, 0), 0.6439, 5e-5);
    ck_assert_double_eq_tol(weight_of(&plain, 2, 0, 1), 0.2369, 5e-5);
    ck_assert_double_eq_tol(weight_of(&normed, 2, 0, 0), 0.7311, 5e-5);
    ck_assert_double_eq_tol(weight_of(&normed, 2, 0, 1), 0.2689, 5e-5);
    ck_assert_double_eq_tol(plain.gap, 0.2369 - 0.0871, 1e-4);
    routed_free(&plain), routed_free(&normed);
}
END_TEST

START_TEST(bias_chooses_but_does_not_weigh)
{
    const float logit[4] = {2, 1, 0, -1}, bias[4] = {0, 0, 0, 1};
    const struct route_rule r = {
        .experts = 4, .topk = 2, .groups = 1, .kept = 1, .sigmoid = 1, .norm_topk = 1, .scale = 2.5};
    struct routed o = run(logit, bias, 1, &r);
    const double s0 = 1 / (1 + exp(-2)), s3 = 1 / (1 + exp(1));
    ck_assert_double_eq_tol(weight_of(&o, 2, 0, 0), 2.5 * s0 / (s0 + s3), 1e-6);
    ck_assert_double_eq_tol(weight_of(&o, 2, 0, 3), 2.5 * s3 / (s0 + s3), 1e-6);
    routed_free(&o);
}
END_TEST

START_TEST(ties_go_to_the_lower_index)
{
    enum { ROWS = 4096, E = 128, K = 6 };
    const struct route_rule r = {.experts = E, .topk = K, .groups = 1, .kept = 1, .norm_topk = 1, .scale = 1};
    float *logit = calloc((size_t)ROWS * E, sizeof *logit);
    struct routed o = run(logit, NULL, ROWS, &r);
    for (int e = 0; e < E; e++) ck_assert_int_eq(o.mine[e], e < K ? ROWS : 0);
    ck_assert_float_eq(o.gap, 0);
    check_list(&o, ROWS, &r);
    routed_free(&o);
    free(logit);
}
END_TEST

START_TEST(a_tie_at_the_boundary)
{
    const float logit[5] = {0, 3, 1, 1, 2};
    const struct route_rule r = {.experts = 5, .topk = 3, .groups = 1, .kept = 1, .scale = 1};
    struct routed o = run(logit, NULL, 1, &r);
    const int32_t want[5] = {0, 1, 1, 0, 1};
    ck_assert_int_eq(memcmp(o.mine, want, sizeof want), 0);
    routed_free(&o);
}
END_TEST

START_TEST(all_experts_leave_no_margin_to_report)
{
    float *logit = numbers_make(8 * 4, 1);
    const struct route_rule r = {.experts = 4, .topk = 4, .groups = 1, .kept = 1, .scale = 1};
    struct routed o = run(logit, NULL, 8, &r);
    ck_assert(isinf(o.gap));
    check_list(&o, 8, &r);
    routed_free(&o);
    free(logit);
}
END_TEST

START_TEST(no_tokens)
{
    const struct route_rule r = {.experts = 4, .topk = 2, .groups = 2, .kept = 1, .scale = 1};
    struct routed o = run(NULL, NULL, 0, &r);
    for (int e = 0; e < 4; e++) ck_assert_int_eq(o.mine[e], 0);
    routed_free(&o);
}
END_TEST

/* Experts are listed even when the logits are no numbers: k different ones, nothing read outside. */
START_TEST(not_a_number_still_lists)
{
    float *logit = numbers_poison(3 * 8);
    const struct route_rule r = {.experts = 8, .topk = 3, .groups = 4, .kept = 2, .scale = 1};
    struct routed o = run(logit, NULL, 3, &r);
    check_list(&o, 3, &r);
    routed_free(&o);
    free(logit);
}
END_TEST

/* ---- group limits ---- */

/* Sum of the best two of a group, the slow way: over all pairs. */
static double pair_score(const float *v, int size)
{
    double best = -INFINITY;
    for (int i = 0; i < size; i++)
        for (int j = i + 1; j < size; j++) best = fmax(best, (double)(v[i] + v[j]));
    return best;
}

static double group_score(const float *v, int size, const struct route_rule *r)
{
    double best = v[0];
    for (int i = 1; i < size; i++) best = fmax(best, v[i]);
    return r->group_max ? best : pair_score(v, size);
}

/* Is expert e chosen: its group is beaten by fewer than `kept` others, and e by fewer than topk experts of
 * kept groups. */
static int chosen(const float *v, int e, const struct route_rule *r)
{
    const int size = r->experts / r->groups;
    int kept[WIDE] = {0}, beaten = 0;
    for (int g = 0; g < r->groups; g++) {
        int by = 0;
        const double mine = group_score(v + g * size, size, r);
        for (int o = 0; o < r->groups; o++) {
            const double other = group_score(v + o * size, size, r);
            by += other > mine || (other == mine && o < g);
        }
        kept[g] = by < r->kept;
    }
    if (!kept[e / size]) return 0;
    for (int o = 0; o < r->experts; o++) beaten += kept[o / size] && (v[o] > v[e] || (v[o] == v[e] && o < e));
    return beaten < r->topk;
}

START_TEST(group_limits_choose_as_defined)
{
    static const struct route_rule rules[] = {
        {.experts = 256, .topk = 8, .groups = 8, .kept = 4, .sigmoid = 1, .norm_topk = 1, .scale = 2.5},
        {.experts = 160, .topk = 6, .groups = 8, .kept = 3, .scale = 16},
        {.experts = 160, .topk = 6, .groups = 8, .kept = 3, .group_max = 1, .scale = 16},
        {.experts = 8, .topk = 2, .groups = 8, .kept = 2, .group_max = 1, .scale = 1},
        {.experts = 8, .topk = 3, .groups = 4, .kept = 2, .sigmoid = 1, .scale = 1},
        {.experts = 256, .topk = 8, .groups = 1, .kept = 1, .sigmoid = 1, .scale = 1},
    };
    enum { ROWS = 40 };
    for (int i = 0; i < LEN(rules); i++) {
        const struct route_rule *r = &rules[i];
        float *logit = numbers_make(ROWS * r->experts, 1), *bias = numbers_make(r->experts, 2), v[WIDE];
        for (int e = 0; e < r->experts; e++) bias[e] *= 0.05f;
        struct routed o = run(logit, bias, ROWS, r);
        check_list(&o, ROWS, r);
        ck_assert(o.gap >= 0 && o.gap < 1);
        for (int t = 0; t < ROWS; t++) {
            for (int e = 0; e < r->experts; e++) v[e] = o.score[t * r->experts + e] + bias[e];
            for (int e = 0; e < r->experts; e++)
                ck_assert_int_eq(weight_of(&o, ROWS * r->topk, t, e) >= 0, chosen(v, e, r));
        }
        routed_free(&o);
        free(logit), free(bias);
    }
}
END_TEST

/* All four groups tie: the first stays, and its two experts are chosen. */
START_TEST(group_ties_go_to_the_lower_index)
{
    const float logit[8] = {0, 1, 1, 0, 0, 1, 1, 0};
    const struct route_rule r = {.experts = 8, .topk = 2, .groups = 4, .kept = 1, .sigmoid = 1, .scale = 1};
    struct routed o = run(logit, NULL, 1, &r);
    ck_assert_int_eq(o.mine[0], 1);
    ck_assert_int_eq(o.mine[1], 1);
    ck_assert_float_eq(o.gap, 0);
    routed_free(&o);
}
END_TEST

/* ---- gradient ---- */

struct slope_case {
    double *logit;
    const float *dprob;
    const int32_t *perm;
    int rows;
    const struct route_rule *r;
};

static double score_of(const struct slope_case *c, int t, int e)
{
    const double *l = c->logit + t * c->r->experts;
    double sum = 0;
    if (c->r->sigmoid) return 1 / (1 + exp(-l[e]));
    for (int i = 0; i < c->r->experts; i++) sum += exp(l[i] - l[e]);
    return 1 / sum;
}

/* The weights' share of the loss, with the choice that `perm` lists. */
static double loss(const void *user)
{
    const struct slope_case *c = user;
    const int n = (int)route_listed(c->rows, c->r);
    double picked[64] = {0}, sum = 0;
    for (int j = 0; j < n; j++) {
        const int t = route_token(c->perm[2 * j]);
        if (t >= 0) picked[t] += score_of(c, t, c->perm[2 * j + 1]);
    }
    for (int j = 0; j < n; j++) {
        const int t = c->perm[2 * j];
        if (t < 0) continue;
        const double s = score_of(c, t, c->perm[2 * j + 1]);
        sum += c->dprob[j] * c->r->scale * (c->r->norm_topk ? s / picked[t] : s);
    }
    return sum;
}

START_TEST(backward_is_the_slope)
{
    enum { ROWS = 5, E = 6, K = 3 };
    for (int kind = 0; kind < 12; kind++) {     /* nothing dropped, dropped, dropped and filled up */
        const struct route_rule r = {.experts = E,
                                     .capacity = kind < 4 ? 0 : 2,
                                     .padded = kind >= 8,
                                     .topk = K,
                                     .groups = 1,
                                     .kept = 1,
                                     .sigmoid = kind & 1,
                                     .norm_topk = kind >> 1 & 1,
                                     .scale = 2.5};
        float *logit = numbers_make(ROWS * E, 1), *dprob = numbers_make((int)route_rows(ROWS, &r), 2),
              *dlogit = numbers_poison(ROWS * E);
        struct routed o = run(logit, NULL, ROWS, &r);
        struct slope_case c = {numbers_double(logit, ROWS * E), dprob, o.perm, ROWS, &r};
        double *want = numbers_slope(c.logit, ROWS * E, loss, &c);
        ck_assert_int_eq(route_bwd_ref(dlogit, dprob, o.score, o.perm, ROWS, &r, o.scratch), OK);
        numbers_same(dlogit, want, ROWS * E, 1e-6);
        routed_free(&o);
        free(logit), free(dprob), free(dlogit), free(c.logit), free(want);
    }
}
END_TEST

/* ---- capacity ---- */

/* Case D15: 16 tokens, each of which weighs expert 0 most, with 0.30 .. 0.45; capacity ceil(16 / 4 x 0.5) = 2. */
static void prefer_first(float logit[16 * 4])
{
    for (int t = 0; t < 16; t++) {
        const double p = 0.30 + 0.01 * t;
        for (int e = 0; e < 4; e++) logit[4 * t + e] = (float)log(e ? (1 - p) / 3 : p);
    }
}

static void keeps(const struct route_rule *r, int first, int second)
{
    float logit[16 * 4];
    prefer_first(logit);
    struct routed o = run(logit, NULL, 16, r);
    ck_assert_int_eq(o.perm[0], first);
    ck_assert_int_eq(o.perm[2], second);
    ck_assert_double_eq_tol(o.prob[0], 0.30 + 0.01 * first, 1e-6);
    ck_assert_double_eq_tol(o.prob[1], 0.30 + 0.01 * second, 1e-6);
    for (int64_t j = 2; j < route_rows(16, r); j++) ck_assert(o.perm[2 * j] < 0 && o.prob[j] == 0);
    int lost = 0;
    for (int64_t j = 0; j < route_listed(16, r); j++) {
        if (o.perm[2 * j] >= -1) continue;
        const int t = route_token(o.perm[2 * j]);
        ck_assert(t >= 0 && t < 16 && t != first && t != second && o.perm[2 * j + 1] == 0);
        lost |= 1 << t;
    }
    ck_assert_int_eq(lost, 0xffff & ~(1 << first) & ~(1 << second));
    for (int e = 0; e < 4; e++) ck_assert_int_eq(o.mine[e], r->padded || e == 0 ? 2 : 0);
    routed_free(&o);
}

START_TEST(full_experts_keep_by_weight_or_by_position)
{
    struct route_rule r = {.experts = 4, .topk = 1, .groups = 1, .kept = 1, .scale = 1, .capacity = 2};
    keeps(&r, 14, 15);
    r.by_position = 1;
    keeps(&r, 0, 1);
    r.padded = 1;
    keeps(&r, 0, 1);
    r.by_position = 0;
    keeps(&r, 14, 15);
}
END_TEST

/* Of equal weights the first tokens stay. */
START_TEST(equal_weights_keep_the_first)
{
    const struct route_rule r = {.experts = 2, .topk = 1, .groups = 1, .kept = 1, .scale = 1, .capacity = 3};
    float logit[2 * 8] = {0};
    struct routed o = run(logit, NULL, 8, &r);
    for (int j = 0; j < 3; j++) ck_assert_int_eq(o.perm[2 * j], j);
    ck_assert_int_eq(o.mine[0], 3);
    routed_free(&o);
}
END_TEST

/* A capacity that nobody fills changes nothing. */
START_TEST(room_for_all_drops_nothing)
{
    enum { ROWS = 8, E = 2, K = 2 };
    struct route_rule r = {.experts = E, .topk = K, .groups = 1, .kept = 1, .norm_topk = 1, .scale = 1};
    float *logit = numbers_make(ROWS * E, 4);
    struct routed all = run(logit, NULL, ROWS, &r);
    r.capacity = ROWS;
    struct routed held = run(logit, NULL, ROWS, &r);
    ck_assert_int_eq(route_rows(ROWS, &r), ROWS * K);
    ck_assert_mem_eq(all.perm, held.perm, ROWS * K * 2 * sizeof *all.perm);
    ck_assert_mem_eq(all.prob, held.prob, ROWS * K * sizeof *all.prob);
    routed_free(&all), routed_free(&held);
    free(logit);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {
        softmax_then_top_k,       bias_chooses_but_does_not_weigh,       ties_go_to_the_lower_index,
        a_tie_at_the_boundary,    all_experts_leave_no_margin_to_report, no_tokens,
        not_a_number_still_lists, group_limits_choose_as_defined,        group_ties_go_to_the_lower_index,
        backward_is_the_slope,    full_experts_keep_by_weight_or_by_position, equal_weights_keep_the_first,
        room_for_all_drops_nothing};
    return test_main("route", test, LEN(test), 300);
}
