/* The router of the CUDA source and its balance losses, emulated: choices, counts and lists equal the reference's bit for bit over every kind of
 * score, bias and group limit; ties (case D07: all tied, and two logits equal at the boundary, twenty times), logits that are
 * not numbers, no tokens, as many picks as experts. */
#include "kernels/balance.h"
#include "kernels/route.h"
#include "tests/device.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* given: [rows, topk], or NULL. */
static void run_given(float *logits, float *bias, const int32_t *given, int64_t rows, struct route_rule r)
{
    int32_t *dev_given = given ? device_new(given, rows * r.topk * 4) : NULL;
    const int64_t n = rows * r.experts, picks = rows * r.topk;
    struct tensor logit = tensor_of(logits, n, DT_F32), b = tensor_of(bias ? bias : numbers_make(r.experts, 9), r.experts, DT_F32),
                  score = tensor_out(n, DT_F32), prob = tensor_out(picks, DT_F32), dprob = tensor_make(picks, 4, DT_F32),
                  dlogit = tensor_out(n, DT_F32);
    float gap = INFINITY, got_gap;
    int32_t *perm = malloc((size_t)picks * 8 + 8), *mine = malloc((size_t)r.experts * 4);
    void *work = malloc((size_t)route_scratch_B(rows, &r) + 1), *dev_gap = device_new(&gap, sizeof gap);
    int32_t *dev_perm = device_new(NULL, picks * 8), *dev_mine = device_new(NULL, r.experts * 4);
    void *scratch = device_new(NULL, larger(route_cuda_scratch_B(rows, &r), 1));
    route_ref(score.value, perm, prob.value, mine, &gap, logit.value, bias, given, rows, &r, work);
    ck_assert_int_eq(route_cuda(score.p, dev_perm, prob.p, dev_mine, dev_gap, logit.p, bias ? b.p : NULL, dev_given, rows, &r,
                                scratch, NULL), OK);
    device_same_ints(dev_perm, perm, picks * 2, "perm");
    device_same_ints(dev_mine, mine, r.experts, "tokens per expert");
    tensor_same(score, 1e-6, "score"), tensor_same(prob, 2e-6, "prob");
    device_read(&got_gap, dev_gap, sizeof got_gap);
    ck_assert_msg(got_gap == gap || fabsf(got_gap - gap) <= 1e-6f, "gap: got %g, want %g", (double)got_gap, (double)gap);
    route_bwd_ref(dlogit.value, dprob.value, score.value, perm, rows, &r, work);
    ck_assert_int_eq(route_bwd_cuda(dlogit.p, dprob.p, score.p, dev_perm, rows, &r, scratch, NULL), OK);
    tensor_same(dlogit, 2e-6, "dlogit");
    free(perm), free(mine), free(work);
    device_free(dev_given), device_free(dev_gap), device_free(dev_perm), device_free(dev_mine), device_free(scratch);
    tensor_free(logit), tensor_free(b), tensor_free(score), tensor_free(prob), tensor_free(dprob), tensor_free(dlogit);
}

static void run(float *logits, float *bias, int64_t rows, struct route_rule r)
{
    run_given(logits, bias, NULL, rows, r);
}

/* Multiples of 1/64, far apart: no rounding decides a choice, but many are tied. */
static float *coarse(int64_t n, uint64_t seed)
{
    float *x = numbers_make(n, seed);
    for (int64_t i = 0; i < n; i++) x[i] = rintf(x[i] * 64) / 16;
    return x;
}

static const struct route_rule rules[] = {
    { 8, 2, 1, 1, 0, 0, 1, .scale = 1 }, { 8, 2, 1, 1, 0, 0, 0, .scale = 1 }, { 64, 8, 8, 4, 0, 1, 1, .scale = 2.5 },
    { 40, 6, 8, 3, 1, 0, 0, .scale = 16 },
    { 5, 5, 1, 1, 0, 1, 1, .scale = 1 }, { 2, 2, 1, 1, 0, 0, 1, .scale = 1 }, { 1, 1, 1, 1, 0, 1, 0, .scale = 1 },
    { 256, 8, 8, 4, 0, 1, 1, .scale = 2.5 },
};
static const int64_t tokens[] = { 0, 1, 3, 65, 130 };

static void each_rule(void)
{
    for (int i = 0; i < LEN(rules); i++)
        for (int k = 0; k < LEN(tokens); k++) {
            const int64_t n = tokens[k] * rules[i].experts;
            run(numbers_make(n, 1), NULL, tokens[k], rules[i]);
            run(coarse(n, 2), coarse(rules[i].experts, 3), tokens[k], rules[i]);
        }
}

START_TEST(every_rule_is_the_reference)
{
    for (int order = 0; order < device_orders(); order++) {
        device_order(order);
        each_rule();
    }
}
END_TEST

/* D07. */
START_TEST(ties_go_to_the_lower_index_every_time)
{
    const struct route_rule r = { 128, 6, 1, 1, 0, 0, 1, .scale = 1 };
    enum { TOKENS = 96 };
    for (int again = 0; again < 20; again++) {
        device_order(again % device_orders());
        run(calloc(TOKENS * 128, sizeof(float)), NULL, TOKENS, r);
        float *x = numbers_make(TOKENS * 128, 1);
        for (int t = 0; t < TOKENS; t++) {      /* five clear winners, then two equal ones */
            for (int i = 0; i < 5; i++) x[t * 128 + (t * 11 + i * 17) % 128] = 3 + (float)i;
            x[t * 128 + 40] = x[t * 128 + 90] = 2;
        }
        run(x, NULL, TOKENS, r);
    }
}
END_TEST

START_TEST(logits_that_are_no_numbers_choose_different_experts)
{
    for (int order = 0; order < device_orders(); order++)
        for (int i = 0; i < LEN(rules); i++) {
            const int experts = rules[i].experts;
            enum { TOKENS = 6 };
            float *x = coarse(TOKENS * experts, 5);
            device_order(order);
            for (int e = 0; e < experts; e++) x[e] = NAN, x[experts + e] = -INFINITY;
            x[2 * experts] = NAN, x[3 * experts + experts / 2] = NAN, x[4 * experts + experts - 1] = INFINITY;
            run(x, NULL, TOKENS, rules[i]);
        }
}
END_TEST

START_TEST(choices_made_elsewhere_are_taken)
{
    enum { TOKENS = 70 };
    for (int order = 0; order < device_orders(); order++) {
        const struct route_rule r = { 8, 2, 1, 1, 0, 0, 1, .scale = 1 };
        int32_t given[TOKENS * 2];
        device_order(order);
        for (int t = 0; t < TOKENS; t++) given[2 * t] = t * 5 % 8, given[2 * t + 1] = (t * 5 + 3) % 8;
        run_given(numbers_make(TOKENS * 8, 1), NULL, given, TOKENS, r);
    }
}
END_TEST

/* ---- balance losses ---- */

/* `parts`: bit 0 balance, bit 1 the z loss. Scores are tied in places, and rows begin inside a scope. */
static void balance_run(int64_t rows, struct balance b, int parts)
{
    const int64_t n = rows * b.experts, scopes = (b.first + rows + b.local - 1) / b.local, loads = scopes * b.experts;
    struct tensor logit = tensor_of(coarse(n, 6), n, DT_F32), score = tensor_of(coarse(n, 7), n, DT_F32),
                  load = tensor_out(loads, DT_F32), dlogit = tensor_make(n, 8, DT_F32), loss = tensor_make(1, 9, DT_F32);
    void *scratch = device_new(NULL, larger(balance_cuda_scratch_B(rows), 1));
    for (int64_t i = 0; i < n; i++) score.value[i] = fabsf(score.value[i]) / 8 + 0.125f;
    device_free(score.p);
    score.p = device_new(score.value, n * 4);
    balance_load_ref(load.value, score.value, rows, scopes, &b);
    ck_assert_int_eq(balance_load_cuda(load.p, score.p, rows, scopes, &b, NULL), OK);
    tensor_same(load, 0, "load");
    balance_ref(dlogit.value, loss.value, score.value, parts & 1 ? load.value : NULL, parts & 2 ? logit.value : NULL, rows, &b);
    ck_assert_int_eq(balance_cuda(dlogit.p, loss.p, score.p, parts & 1 ? load.p : NULL, parts & 2 ? logit.p : NULL, rows, &b,
                                  scratch, NULL), OK);
    tensor_same(dlogit, 1e-6, "dlogit"), tensor_same(loss, 1e-6, "loss");
    device_free(scratch);
    tensor_free(logit), tensor_free(score), tensor_free(load), tensor_free(dlogit), tensor_free(loss);
}

START_TEST(balance_losses_are_the_reference)
{
    const struct { int experts, topk; } kind[] = { { 8, 2 }, { 5, 5 }, { 3, 1 }, { 256, 8 } };
    for (int order = 0; order < device_orders(); order++)
        for (int i = 0; i < LEN(kind); i++)
            for (int k = 0; k < 2 * LEN(tokens); k++) {
                const int64_t rows = tokens[k / 2];
                const struct balance b = { .experts = kind[i].experts, .topk = kind[i].topk, .sigmoid = k % 2, .first = 20,
                                           .local = 32, .scale = 0.01, .z_scale = 0.02 };
                device_order(order);
                for (int parts = 1; parts < 4; parts++) balance_run(rows, b, parts);
            }
}
END_TEST

START_TEST(what_has_no_kernel_is_refused)
{
    const struct route_rule wide = { ROUTE_EXPERTS + 1, 8, 1, 1, 0, 0, 1, .scale = 1 },
                            deep = { 64, ROUTE_TOPK + 1, 1, 1, 0, 0, 1, .scale = 1 };
    ck_assert_int_eq(route_cuda(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, &wide, NULL, NULL), ERR_LIMIT);
    ck_assert_int_eq(balance_load_cuda(NULL, NULL, 1, 1, &(struct balance){ .experts = BALANCE_EXPERTS + 1 }, NULL), ERR_LIMIT);
    ck_assert_int_eq(route_cuda(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, &deep, NULL, NULL), ERR_LIMIT);
}
END_TEST

int main(void)
{
    const TTest *const test[] = { every_rule_is_the_reference, ties_go_to_the_lower_index_every_time,
                                  logits_that_are_no_numbers_choose_different_experts,
                                  choices_made_elsewhere_are_taken, balance_losses_are_the_reference,
                                  what_has_no_kernel_is_refused };
    return test_main("cu_route", test, LEN(test), 300);
}
