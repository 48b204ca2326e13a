/* Loads as recorded: counts of tokens by expert and layer, by hand; what is no recording; a formula's shares recorded are that
 * formula. */
#include "sim/predict.h"
#include "tests/test.h"
#include <stdio.h>

#define MCORE "system gb200-nvl72 stack mcore-2510 "

/* 100 tokens, each to one of 4 experts on two ranks, as `text` says. */
static void record(struct job *j, struct arena *a, const char *text)
{
    struct diag d;
    *j = (struct job){ .model = { .experts = 4, .topk = 1, .groups = 1, .groups_kept = 1 },
                       .plan = { .ep = 2, .etp = 1, .tp = 1, .cp = 1, .mbs = 1, .seq = 100 } };
    ck_assert_msg(routing_parse(&j->plan.routing, "recorded:tokens.yaml", &d) == OK, "%s", d.text);
    ck_assert_msg(recorded_parse(&j->plan.routing.recorded, a, "tokens.yaml", text, strlen(text), &d) == OK, "%s", d.text);
}

static const struct { const char *text; double pick[4]; int64_t rows[2]; } recordings[] = {
    { "tokens: [1, 3, 5, 7]", { 1 / 16.0, 3 / 16.0, 5 / 16.0, 7 / 16.0 }, { 50, 150 } },
    { "{\"tokens\": [2e3, 6e3, 10e3, 14e3]}", { 1 / 16.0, 3 / 16.0, 5 / 16.0, 7 / 16.0 }, { 50, 150 } },
    /* the busiest rank has 12 of 16 in both layers, be it the first or the second */
    { "tokens: [[1, 3, 5, 7], [7, 5, 3, 1]]", { 7 / 16.0, 5 / 16.0, 3 / 16.0, 1 / 16.0 }, { 150, 50 } },
    { "tokens: [[0, 0, 0, 9], [1, 1, 1, 1], [0, 0, 4, 4]]",
      { 0.25 / 3, 0.25 / 3, 0.75 / 3, 1.75 / 3 }, { 33, 167 } },
};
START_TEST(recorded_by_hand)
{
    struct arena a = { 0 };
    struct job j;
    double pick[4];
    int64_t rows[2];
    record(&j, &a, recordings[_i].text);
    share_picks(pick, &j);
    for (int e = 0; e < 4; e++) ck_assert_double_eq_tol(pick[e], recordings[_i].pick[e], 1e-12);
    load_members(rows, NULL, &j, 1, 1);
    for (int m = 0; m < 2; m++) ck_assert_int_eq(rows[m], recordings[_i].rows[m]);
    arena_free(&a);
}
END_TEST

static const char *const no_recordings[][2] = {
    { "tokens: []", "one key, tokens" }, { "tokens: 7", "one key, tokens" }, { "token: [1]", "one key, tokens" },
    { "tokens: [1]\nlayers: 3", "one key, tokens" }, { "[1, 2]", "one key, tokens" }, { "tokens: [1, -2]", "'-2' is no count" },
    { "tokens: [1, x]", "tokens.yaml:1:13: tokens: 'x' is no count" }, { "tokens: [1, nan]", "no count" },
    { "tokens: [1, 1e16]", "no count" }, { "tokens: [0, 0]", "0 tokens" }, { "tokens: [[1, 2], [1]]", "1 counts, the first 2" },
    { "tokens: [[1, 2], 3]", "0 counts, the first 2" }, { "tokens: [1, [2]]", "'[..]' is no count" }, { "tokens: [[1, 2], [0, 0]]", "0 tokens" },
    { "tokens: [1, 2", "not YAML" },
};
START_TEST(other_recordings_are_refused)
{
    struct arena a = { 0 };
    struct diag d = { "" };
    const struct recorded *r = NULL;
    const char *text = no_recordings[_i][0];
    ck_assert_int_eq(recorded_parse(&r, &a, "tokens.yaml", text, strlen(text), &d), ERR_CONFIG);
    ck_assert_msg(!r && strncmp(d.text, "tokens.yaml:", 12) == 0 && strstr(d.text, no_recordings[_i][1]), "%s: %s", text, d.text);
    arena_free(&a);
}
END_TEST

/* Counts that are a formula's shares are that formula, in time, traffic and memory; equal counts are even routing. */
static const char *const formulas[] = { "zipf:1", "dirichlet:0.5", "worst", "balanced" };
START_TEST(a_formula_recorded_is_the_formula)
{
    static const char *const path = BUILD_DIR "/recorded_load.yaml";
    struct arena a = { 0 };
    struct job j, k;
    struct predict r, s;
    double pick[128];
    const char *flags = "model qwen3-30b-a3b layers 4 " MCORE "gpus 8 gbs 32 seq 1024 ep 8 precision mxfp8 dispatcher hybridep load ";
    test_job(&j, &a, arena_printf(&a, "%s%s", flags, formulas[_i]));
    share_picks(pick, &j);
    FILE *f = fopen(path, "w");
    fprintf(f, "tokens: [");
    for (int e = 0; e < 128; e++) fprintf(f, "%s%.17g", e ? ", " : "", 1e6 * pick[e]);
    fprintf(f, "]\n");
    fclose(f);
    test_job(&k, &a, arena_printf(&a, "%srecorded:%s", flags, path));
    ck_assert_str_eq(k.plan.load, arena_printf(&a, "dropless:recorded:%s", path));
    predict_job(&r, NULL, &a, &j);
    predict_job(&s, NULL, &a, &k);
    ck_assert_double_eq_tol(s.step_s, r.step_s, 1e-9 * r.step_s);
    ck_assert_double_eq_tol(s.lines.group_B[GROUP_TPEP], r.lines.group_B[GROUP_TPEP], 1e-9 * r.lines.group_B[GROUP_TPEP]);
    ck_assert_double_eq_tol(s.peak_B, r.peak_B, 1e-9 * r.peak_B);
    ck_assert_double_eq(s.load.most, r.load.most);
    struct diag d = { "" };
    ck_assert(test_job_try(&k, &a, arena_printf(&a, "model deepseek-v3 " MCORE "gpus 8 ep 8 gbs 8 seq 64 load recorded:%s", path),
                           &d) == ERR_CONFIG);
    ck_assert_msg(strstr(d.text, "counts 128 experts, model deepseek-v3 has 256"), "%s", d.text);
    arena_free(&a);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { recorded_by_hand, LEN(recordings) },
        { other_recordings_are_refused, LEN(no_recordings) },
        { a_formula_recorded_is_the_formula, LEN(formulas) },
    };
    return test_main_loops("recorded", NULL, tests, LEN(tests), 120);
}
