/* Verify finds what differs, and only that: the fast kernels agree with the references in every op of every kind of
 * model, a kernel with one wrong element is named, and what it does to later ops is not held against them. */
#include "exec/verify.h"
#include "tests/parity.h"
#include "tests/test.h"

static struct verify v;

static void verify(struct parity *p, const struct fold *f, const struct kernels *fast)
{
    parity_open(p, f, 1, OPTIMIZER_ADAMW);
    p->ask.steps = 2;
    p->ask.before = NULL;
    p->ask.after_step = NULL;
    v.a = (struct verify_side){backend_cpu_launch, &kernels_ref, NULL};
    v.b = (struct verify_side){backend_cpu_launch, fast, NULL};
    ck_assert_msg(verify_run(&v, &p->a, &p->pr, p->u, &p->j, &p->ask, &p->d) == OK, "%s: %s", f->name, p->d.text);
}

static const struct fold folds[] = {
    {.name = "gqa", .family = GQA},
    {.name = "mla", .family = MLA, .tp = 2, .cp = 2, .ep = 2, .recompute = 1 << RECOMPUTE_MLA_UP_PROJ},
    {.name = "v2", .family = V2, .pp = 2, .dp = 4, .ep = 2, .etp = 2},
    {.name = "dense", .family = DENSE, .cp = 2},
};

START_TEST(fast_kernels_agree)
{
    for (int k = 0; kernels_fast(k); k++) {
        struct parity p;
        int64_t launches = 0;
        verify(&p, &folds[_i], kernels_fast(k));
        for (int i = 0; i < OP_KIND_COUNT; i++) {
            launches += v.kind[i].launches;
            ck_assert_msg(v.kind[i].off <= verify_limit((enum dtype)v.kind[i].dtype), "%s: %s is off by %g",
                          folds[_i].name, op_name((enum op_kind)i), v.kind[i].off);
        }
        ck_assert_int_gt(launches, 200);
        parity_close(&p);
    }
}
END_TEST

static enum err wrong_dgrad(float *dx, const float *dy, const float *w, int64_t rows, int out, int in)
{
    const enum err e = gemm_dgrad_ref(dx, dy, w, rows, out, in);
    dx[rows * in - 1] = -dx[rows * in - 1];
    return e;
}

START_TEST(one_wrong_element_is_found_and_does_not_spread)
{
    struct kernels wrong = kernels_ref;
    struct parity p;
    wrong.gemm_dgrad = wrong_dgrad;
    verify(&p, &folds[0], &wrong);
    for (int i = 0; i < OP_KIND_COUNT; i++) {
        if (i != OP_DGRAD) ck_assert_msg(v.kind[i].off == 0, "%s", op_name((enum op_kind)i));
    }
    const struct verify_kind *k = &v.kind[OP_DGRAD];
    ck_assert(k->off > verify_limit(DT_F32) && k->a == -k->b);
    ck_assert_int_eq(p.pr.op[k->op].kind, OP_DGRAD);
    parity_close(&p);
}
END_TEST

static enum err nan_norm(float *y, const float *x, const float *w, int64_t runs, int cols, double eps)
{
    const enum err e = norm_ref(y, x, w, runs, cols, eps);
    y[0] = NAN;
    return e;
}

START_TEST(not_a_number_is_a_difference)
{
    struct kernels wrong = kernels_ref;
    struct parity p;
    wrong.norm = nan_norm;
    verify(&p, &folds[0], &wrong);
    ck_assert(isinf(v.kind[OP_NORM].off) && isnan(v.kind[OP_NORM].b));
    parity_close(&p);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { fast_kernels_agree, LEN(folds) },
        { one_wrong_element_is_found_and_does_not_spread, 0 },
        { not_a_number_is_a_difference, 0 },
    };
    return test_main_loops("verify", NULL, tests, LEN(tests), 120);
}
