/* Losses that keep a router's choices even: values by hand, gradients as slopes of the value with the counts held, and the
 * same loss and gradients under every fold. */
#include "kernels/balance.h"
#include "kernels/route.h"
#include "tests/numbers.h"
#include "tests/parity.h"
#include "tests/test.h"

/* ---- the kernel ---- */

enum { ROWS = 12, E = 8, K = 2 };

static void scores_of(float *score, const float *logit, int sigmoid)
{
    const struct route_rule r = { .experts = E, .topk = K, .groups = 1, .kept = 1, .sigmoid = sigmoid, .scale = 1 };
    int32_t perm[ROWS * K * 2], mine[E];
    float prob[ROWS * K], gap = INFINITY;
    void *scratch = malloc((size_t)route_scratch_B(ROWS, &r));
    ck_assert_int_eq(route_ref(score, perm, prob, mine, &gap, logit, NULL, NULL, ROWS, &r, scratch), OK);
    free(scratch);
}

/* All alike: every token likes the first K, P is T / E, so the loss is coeff; all logits c: z is (c + ln E)^2. */
START_TEST(values_by_hand)
{
    float logit[ROWS * E], score[ROWS * E], load[2 * E], dlogit[ROWS * E] = { 0 }, loss = 0;
    for (int i = 0; i < ROWS * E; i++) logit[i] = 0.25f;
    const double coeff = 0.3, z = 0.01;
    for (int sigmoid = 0; sigmoid < 2; sigmoid++)
        for (int scopes = 1; scopes <= 2; scopes++) {
            const double tokens = (double)ROWS / scopes;
            const struct balance b = { .experts = E, .topk = K, .sigmoid = sigmoid, .local = ROWS / scopes,
                                       .scale = coeff * E / (K * tokens * tokens * scopes), .z_scale = z / ROWS };
            scores_of(score, logit, sigmoid);
            ck_assert_int_eq(balance_load_ref(load, score, ROWS, scopes, &b), OK);
            for (int i = 0; i < scopes * E; i++) ck_assert_float_eq(load[i], i % E < K ? (float)tokens : 0);
            loss = 0;
            ck_assert_int_eq(balance_ref(dlogit, &loss, score, load, NULL, ROWS, &b), OK);
            ck_assert_double_eq_tol(loss, coeff, 1e-6);
            loss = 0;
            ck_assert_int_eq(balance_ref(dlogit, &loss, score, NULL, logit, ROWS, &b), OK);
            ck_assert_double_eq_tol(loss, z * pow(0.25 + log(E), 2), 1e-6);
        }
}
END_TEST

/* A slice of a micro-batch that begins inside a sequence counts for the right ones. */
START_TEST(scopes_are_the_rows_sequences)
{
    float logit[ROWS * E], score[ROWS * E], all[3 * E], part[3 * E], sum[3 * E] = { 0 };
    for (int i = 0; i < ROWS * E; i++) logit[i] = sinf((float)(7 * i));
    const struct balance b = { .experts = E, .topk = K, .local = 4 };
    scores_of(score, logit, 0);
    balance_load_ref(all, score, ROWS, 3, &b);
    for (int first = 0; first < ROWS; first += 6) {
        const struct balance slice = { .experts = E, .topk = K, .local = 4, .first = first };
        balance_load_ref(part, score + first * E, 6, 3, &slice);
        for (int i = 0; i < 3 * E; i++) sum[i] += part[i];
    }
    ck_assert_int_eq(memcmp(sum, all, sizeof all), 0);
}
END_TEST

static double value_of(const float *logit, const float *load, const struct balance *b)
{
    float score[ROWS * E], dlogit[ROWS * E] = { 0 }, loss = 0;
    scores_of(score, logit, b->sigmoid);
    balance_ref(dlogit, &loss, score, load, logit, ROWS, b);
    return loss;
}

START_TEST(gradients_are_slopes)
{
    for (int way = 0; way < 3; way++) {         /* softmax; sigmoids; one choice of them */
        const struct balance b = { .experts = E, .topk = way < 2 ? K : 1, .sigmoid = way > 0, .local = 4, .scale = 0.05, .z_scale = 0.02 };
        float logit[ROWS * E], score[ROWS * E], load[3 * E], dlogit[ROWS * E], loss = 0;
        for (int i = 0; i < ROWS * E; i++) logit[i] = sinf((float)(3 * i)), dlogit[i] = 1;
        scores_of(score, logit, b.sigmoid);
        balance_load_ref(load, score, ROWS, 3, &b);
        balance_ref(dlogit, &loss, score, load, logit, ROWS, &b);
        ck_assert_double_eq_tol(loss, value_of(logit, load, &b), 1e-6);
        for (int i = 0; i < ROWS * E; i += 5) {
            const float at = logit[i], h = 1e-2f;
            logit[i] = at + h;
            const double up = value_of(logit, load, &b);
            logit[i] = at - h;
            const double down = value_of(logit, load, &b);
            logit[i] = at;
            ck_assert_msg(fabs((up - down) / (2 * h) - (dlogit[i] - 1)) < 1e-3, "way %d, %d: slope %g, not %g", way, i,
                          (up - down) / (2 * h), dlogit[i] - 1);
        }
    }
}
END_TEST

/* ---- under every fold ---- */

static const struct fold folds[] = {
    { .name = "dp4 / ep4", .family = GQA, .dp = 4, .ep = 4, .balance = BALANCE_AUX },
    { .name = "tp2 dp2 / etp2 ep2", .family = GQA, .tp = 2, .dp = 2, .etp = 2, .ep = 2, .balance = BALANCE_SEQ_AUX },
    { .name = "tp2 cp2 / ep4", .family = MLA_ALL, .tp = 2, .cp = 2, .ep = 4, .balance = BALANCE_AUX },
    { .name = "cp2 pp2 / ep2, moe recomputed", .family = MLA_ALL, .cp = 2, .pp = 2, .ep = 2, .recompute = 1 << RECOMPUTE_MOE,
      .balance = BALANCE_SEQ_AUX },
    { .name = "pp2 vpp2 dp2 / ep2 woven", .family = GQA, .pp = 2, .vpp = 2, .dp = 2, .ep = 2, .woven = 1, .balance = BALANCE_AUX },
    { .name = "dp2, all recomputed", .family = GQA, .dp = 2, .recompute = 1 << RECOMPUTE_FULL, .balance = BALANCE_SEQ_AUX },
    { .name = "mbs2 tp2", .family = GQA, .tp = 2, .mbs = 2, .balance = BALANCE_SEQ_AUX },
    { .name = "allgather dp2 / ep2", .family = GQA, .dp = 2, .ep = 2, .dispatcher = DISPATCHER_ALLGATHER, .balance = BALANCE_AUX },
};

START_TEST(folds_equal_one_rank)
{
    const struct fold one = { .name = "one rank", .family = folds[_i].family, .balance = folds[_i].balance };
    struct parity p, q;
    const int seed = one.family == GQA ? 12 : 1;
    parity_open(&p, &folds[_i], seed, OPTIMIZER_ADAMW);
    parity_open(&q, &one, seed, OPTIMIZER_ADAMW);
    p.ask.steps = q.ask.steps = 4;
    ck_assert_msg(parity_run(&p) == OK, "%s: %s", folds[_i].name, p.d.text);
    ck_assert_msg(parity_run(&q) == OK, "%s", q.d.text);
    const char *off = parity_gradients_differ(&p, &q);
    if (!off) off = parity_loss_differs(&p, &q);
    if (!off) off = parity_counts_differ(&p);
    ck_assert_msg(!off, "%s: %s", folds[_i].name, off ? off : "");
    for (int s = 0; s < 4; s++) {
        const double is = p.r.step[s].balance_loss, want = q.r.step[s].balance_loss;
        ck_assert_msg(want > 0.1 && fabs(is - want) < 1e-5 * want, "%s, step %d: %.9g, not %.9g", folds[_i].name, s, is, want);
    }
    parity_close(&p);
    parity_close(&q);
}
END_TEST

/* What it is for: a router trained with it sends tokens more evenly than one without. */
START_TEST(it_keeps_experts_even)
{
    double uneven[2];
    for (int with = 0; with < 2; with++) {
        const struct fold one = { .name = "one rank", .family = GQA, .balance = BALANCE_AUX };
        struct parity p;
        parity_open(&p, &one, 12, OPTIMIZER_ADAMW);
        p.j.plan.z_loss = 0;
        p.j.plan.lr = 5e-3;
        p.j.plan.aux_loss = with ? 1 : 1e-9;    /* measured, not trained */
        p.ask.steps = PARITY_STEPS;
        ck_assert_msg(parity_run(&p) == OK, "%s", p.d.text);
        uneven[with] = p.r.step[PARITY_STEPS - 1].balance_loss / p.j.plan.aux_loss;
        parity_close(&p);
    }
    ck_assert_msg(uneven[1] < uneven[0], "%g with the loss, %g without", uneven[1], uneven[0]);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { values_by_hand, 0 },
        { scopes_are_the_rows_sequences, 0 },
        { gradients_are_slopes, 0 },
        { folds_equal_one_rank, LEN(folds) },
        { it_keeps_experts_even, 0 },
    };
    return test_main_loops("balance", NULL, tests, LEN(tests), 120);
}
