/* Public bug reports and user questions on memory and utilisation (tests/README.md): the input, and the right
 * answer. */
#include "sim/predict.h"
#include "tests/test.h"
#include <math.h>

#define GIB 1073741824.0
#define STACK "stack mcore-2510 "

static struct predict answered(const char *flags, struct arena *a)
{
    struct job *j = arena_alloc(a, sizeof *j);
    struct predict r;
    test_job(j, a, flags);
    predict_job(&r, NULL, a, j);
    return r;
}

static double static_B(const struct predict *r)
{
    const struct predict_stage *s = &r->stage[r->worst_stage];
    return s->params_B + s->grads_B + s->optimizer_B;
}

/* Case A01: experts are cut over etp x ep and their states over edp, the rest over tp and dp; weights in
 * bf16, gradients in fp32, master and moments sharded. Of it, routed experts alone, parameters by the shapes
 * times 6 + 12 / edp bytes. */
static const struct { const char *flags; double gib, expert_gib; } folds[] = {
    { "gpus 8 tp 4 ep 8", 65.16, 3623878656 * 18.0 / GIB },
    { "gpus 8 tp 8 ep 4", 84.63, 7247757312 * 12.0 / GIB },        /* 4 K/V heads, each on two ranks */
    { "gpus 16 tp 2 ep 8", 45.93, 3623878656 * 12.0 / GIB },
};

START_TEST(states_follow_both_folds)
{
    struct arena a = { 0 };
    const struct predict r = answered(
        arena_printf(&a, "model qwen3-30b-a3b system h100-sxm " STACK "gbs 16 seq 4096 %s", folds[_i].flags), &a);
    ck_assert_double_eq_tol(static_B(&r) / GIB, folds[_i].gib, 0.01);
    struct job j;
    struct program pr;
    double expert_B = 0;
    test_job(&j, &a,
             arena_printf(&a, "model qwen3-30b-a3b system h100-sxm " STACK "gbs 16 seq 4096 %s", folds[_i].flags));
    program_build(&pr, &a, &j);
    for (int i = 0; i < pr.n_param; i++) {
        const struct buf *w = &pr.buf[pr.param[i].w];
        if (pr.param[i].name == PARAM_EXPERT_FC1 || pr.param[i].name == PARAM_EXPERT_FC2)
            expert_B += (6 + 12.0 / j.plan.edp) * (double)(w->rows * w->cols);
    }
    ck_assert_double_eq_tol(expert_B / GIB, folds[_i].expert_gib, 1e-6);
    arena_free(&a);
}
END_TEST

/* Case A02: DeepSeek-V3 cut to 4 layers, one of them dense; its static part, and nothing that grows with the
 * number of micro-batches. */
START_TEST(micro_batches_do_not_add_up)
{
    static const int micro[] = { 4, 8, 32 };
    double peak_B = 0;
    for (int i = 0; i < LEN(micro); i++) {
        struct arena a = { 0 };
        struct job j;
        struct diag d;
        struct predict r;
        test_job(&j, &a, arena_printf(&a, "model deepseek-v3 layers 4 mtp 0 system b200 " STACK
                                          "gpus 8 ep 8 gbs %d seq 4096 load padded:cf1", 8 * micro[i]));
        j.model.dense_layers = 1;
        ck_assert_msg(plan_resolve(&j, &d) == OK, "%s", d.text);
        predict_job(&r, NULL, &a, &j);
        ck_assert_double_eq_tol(static_B(&r) / GIB, 92.78, 0.01);
        ck_assert(i == 0 || r.peak_B == peak_B);
        peak_B = r.peak_B;
        arena_free(&a);
    }
}
END_TEST

/* Case A15: fused attention keeps no square, so recomputing it saves next to nothing and costs time. */
START_TEST(core_attention_has_nothing_to_save)
{
    struct arena a = { 0 };
    const char *flags = "model qwen3-30b-a3b system h100-sxm " STACK "gpus 16 ep 16 gbs 1024 seq 4096 recompute ";
    const struct predict none = answered(arena_printf(&a, "%snone", flags), &a);
    const struct predict core = answered(arena_printf(&a, "%sselective:core_attn", flags), &a);
    ck_assert_msg(fabs(none.peak_B - core.peak_B) < 2e9, "%g %g", none.peak_B, core.peak_B);
    ck_assert_double_gt(core.step_s, none.step_s);
    arena_free(&a);
}
END_TEST

/* Case A15, second: moe_act saves more for its time than mla_up_proj. */
START_TEST(moe_act_before_up_projection)
{
    struct arena a = { 0 };
    const char *flags = "model moonlight-16b-a3b system h100-sxm " STACK "gpus 8 ep 8 gbs 256 seq 4096 recompute ";
    const struct predict none = answered(arena_printf(&a, "%snone", flags), &a);
    const struct predict act = answered(arena_printf(&a, "%sselective:moe_act", flags), &a);
    const struct predict up = answered(arena_printf(&a, "%sselective:mla_up_proj", flags), &a);
    const double by_act = (none.peak_B - act.peak_B) / (act.step_s - none.step_s);
    const double by_up = (none.peak_B - up.peak_B) / (up.step_s - none.step_s);
    ck_assert_msg(act.step_s > none.step_s && up.step_s > none.step_s, "%g %g %g", none.step_s, act.step_s,
                  up.step_s);
    ck_assert_msg(by_act > by_up, "%g %g", by_act, by_up);
    arena_free(&a);
}
END_TEST

/* Case B07: DeepSeek-V3's training, 14.8 T tokens in 2.79 M hours of an H800: three passes, not one, of the
 * dense peak. */
START_TEST(utilisation_of_the_dense_peak)
{
    struct arena a = { 0 };
    struct system s;
    struct diag d;
    ck_assert_msg(system_read(&s, &a, "h800-sxm", &d) == OK, "%s", d.text);
    const double flop = 6 * 37e9 * 14.8e12;
    ck_assert_double_eq_tol(flop, 3.29e24, 0.005e24);
    ck_assert_double_eq_tol(flop / (2.79e6 * 3600 * cost_peak(&s, DT_FP8)), 0.165, 0.0005);
    ck_assert_double_eq_tol(flop / (2.664e6 * 3600 * cost_peak(&s, DT_BF16)), 0.346, 0.0005);
    const struct predict r =
        answered("model deepseek-v3 mtp 0 system h800-sxm " STACK "gpus 2048 pp 16 ep 64 gbs 4096 seq 4096 "
                 "precision fp8-block dispatcher deepep", &a);
    ck_assert_int_eq(r.peak_dtype, DT_FP8);
    ck_assert_double_eq(r.peak_flop_per_s, cost_peak(&s, DT_FP8));
    ck_assert_double_eq_tol(r.flop_per_token / 249.8e9, 1, 0.001);
    ck_assert_double_eq_tol(r.mfu, r.tokens_per_s_gpu * r.flop_per_token / r.peak_flop_per_s, 1e-12);
    arena_free(&a);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { states_follow_both_folds, LEN(folds) },
        { micro_batches_do_not_add_up, 0 },
        { core_attention_has_nothing_to_save, 0 },
        { moe_act_before_up_projection, 0 },
        { utilisation_of_the_dense_peak, 0 },
    };
    return test_main_loops("case", NULL, tests, LEN(tests), 120);
}
