/* Lower bounds on GPUs (case G01), and that no plan that fits is below them. */
#include "sim/least.h"
#include "sim/predict.h"
#include "tests/test.h"

static const char base[] = "system a100-sxm gpus 64 ep 64 seq 4096 gbs 1024 stack mcore-2510 mtp 0 ";     /* 80 GiB */

static int64_t least(struct arena *a, const char *flags, double *param_B)
{
    struct job *j = arena_alloc(a, sizeof *j);
    test_job(j, a, arena_printf(a, "%s%s", base, flags));
    *param_B = least_param_B(&j->plan);
    return least_gpus(j, model_params(&j->model).total);
}

START_TEST(published_models)
{
    static const struct { const char *flags; double param_B; int64_t gpus; } row[] = {
        { "model deepseek-v3", 18, 141 },
        { "model deepseek-v3 grads bf16 moments bf16", 12, 94 },
        { "model kimi-k2", 18, 216 },
        { "model kimi-k2 grads bf16 moments bf16", 12, 144 },
    };
    for (int i = 0; i < LEN(row); i++) {
        struct arena a = { 0 };
        double param_B = 0;
        ck_assert_int_eq(least(&a, row[i].flags, &param_B), row[i].gpus);
        ck_assert_double_eq(param_B, row[i].param_B);
        arena_free(&a);
    }
}
END_TEST

/* A plan's weights, gradients and states on all its GPUs are never less than the bound takes. */
START_TEST(no_plan_is_below)
{
    static const char *const flags[] = { "", "moments fp8", "grads bf16 master remainder", "fsdp 1",
        "optimizer sgd" };
    for (int i = 0; i < LEN(flags); i++) {
        struct arena a = { 0 };
        struct job *j = arena_alloc(&a, sizeof *j);
        struct predict r;
        double states_B = 0;
        test_job(j, &a, arena_printf(&a, "model qwen3-30b-a3b system h200-sxm gpus 8 ep 8 seq 4096 gbs 64 "
                                         "stack mcore-2510 %s", flags[i]));
        predict_job(&r, NULL, &a, j);
        for (int s = 0; s < r.n_stage; s++)
            states_B += r.stage[s].params_B + r.stage[s].grads_B + r.stage[s].optimizer_B;
        const double least_B = (double)r.params.total * least_param_B(&j->plan);
        ck_assert_msg(states_B * j->plan.gpus / r.n_stage >= least_B * (1 - 1e-9), "%s: %g < %g", flags[i],
                      states_B * j->plan.gpus / r.n_stage, least_B);
        ck_assert_msg(!r.feasible || j->plan.gpus >= least_gpus(j, r.params.total), "%s", flags[i]);
        arena_free(&a);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { published_models, no_plan_is_below };
    return test_main("least", tests, LEN(tests), 30);
}
