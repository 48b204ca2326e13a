/* Ranges of predictions: quantiles by hand, and who is how wide. */
#include "tests/test.h"
#include "tools/range.h"
#include <math.h>

START_TEST(quantiles_by_hand)
{
    double x[] = { 5, 1, 4, 2, 3 }, one[] = { 7 };
    ck_assert_double_eq_tol(range_quantile(x, 5, 0.5), 3, 1e-12);
    ck_assert_double_eq_tol(range_quantile(x, 5, 0.1), 1.4, 1e-12);     /* numpy: 1 + 0.4 */
    ck_assert_double_eq_tol(range_quantile(x, 5, 0.9), 4.6, 1e-12);
    ck_assert_double_eq_tol(range_quantile(one, 1, 0.9), 7, 1e-12);
    const struct range r = range_of(x, 5), none = range_of(x, 0);
    ck_assert_double_eq_tol(r.low, 1.4, 1e-12);
    ck_assert_double_eq_tol(r.high, 4.6, 1e-12);
    ck_assert_int_eq(r.rows, 5);
    ck_assert_int_eq(none.rows, 0);
}
END_TEST

START_TEST(wider_off_what_was_seen)
{
    struct ranges r = { .of = { [RANGE_DENSE] = { -0.1, 0.1, 9 }, [RANGE_MOE] = { -0.2, 0.15, 9 },
                                [RANGE_DENSE_OFF] = { -0.05, 0.3, 9 }, [RANGE_MOE_OFF] = { -0.5, 0.5, 9 },
                                [RANGE_NEW_SYSTEM] = { 0, 0, 9 }, [RANGE_NEW_MODEL] = { -0.4, 0.6, 9 } } };
    const struct range on = range_step(&r, RANGE_DENSE, 2), off = range_step(&r, RANGE_DENSE_OFF, 2),
                       system = range_step(&r, RANGE_NEW_SYSTEM, 2), model = range_step(&r, RANGE_NEW_MODEL, 2);
    ck_assert_double_eq_tol(on.low, 2 * exp(-0.1), 1e-12);
    ck_assert_double_eq_tol(off.low, on.low, 1e-12);            /* never narrower than on the grid */
    ck_assert_double_eq_tol(off.high, 2 * exp(0.3), 1e-12);
    ck_assert_double_eq_tol(system.low, 2 * exp(-0.2), 1e-12);
    ck_assert_double_eq_tol(model.high, 2 * exp(0.6), 1e-12);
}
END_TEST

START_TEST(classes_by_what_was_seen)
{
    struct arena a = { 0 };
    struct diag d = { "" };
    struct ranges r;
    struct job j;
    ck_assert_msg(range_read(&r, &a, "range", &d) == OK, "%s", d.text);
    test_job(&j, &a, "model deepseek-v3 system gb200-nvl72 gpus 64 ep 64 seq 4096 gbs 64");
    ck_assert_int_eq(range_class_of(&r, &j, 0.1), RANGE_MOE);
    ck_assert_int_eq(range_class_of(&r, &j, 0.9), RANGE_MOE_OFF);
    test_job(&j, &a, "model llama3-70b system h100-sxm gpus 64 tp 8 seq 4096 gbs 64");
    ck_assert_int_eq(range_class_of(&r, &j, 0.1), RANGE_DENSE);
    test_job(&j, &a, "model gpt-oss-120b system h100-sxm gpus 64 ep 8 seq 4096 gbs 64");
    ck_assert_int_eq(range_class_of(&r, &j, 0.1), RANGE_NEW_MODEL);
    test_job(&j, &a, "model llama3-70b system h200-sxm gpus 64 tp 8 seq 4096 gbs 64");
    ck_assert_int_eq(range_class_of(&r, &j, 0.1), RANGE_NEW_SYSTEM);
    for (int c = 0; c < RANGE_CLASSES; c++) {
        ck_assert_int_gt(r.of[c].rows, 0);
        ck_assert_double_lt(r.of[c].low, r.of[c].high);
        ck_assert_double_lt(fabs(r.of[c].low) + fabs(r.of[c].high), 2);
    }
    arena_free(&a);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { quantiles_by_hand, wider_off_what_was_seen, classes_by_what_was_seen };
    return test_main("range", tests, LEN(tests), 60);
}
