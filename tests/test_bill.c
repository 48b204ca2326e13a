/* Case G03: days, GPU-hours and dollars of tokens, from published hours, rates and a measured step. */
#include "tests/test.h"
#include "tools/bill.h"
#include <math.h>

START_TEST(published_hours_are_dollars)
{
    const double hours = 2.788e6, tokens = 14.8e12;         /* of an H800, at 2 USD */
    const struct bill b = bill_of(tokens, tokens / (hours / 2048 * 3600), 2048, 0, 2, 1);
    ck_assert_double_eq_tol(b.gpu_hours, hours, 1e-3);
    ck_assert_double_eq_tol(b.usd, 5.576e6, 1e-3);
    ck_assert_double_eq_tol(b.billed_usd, 5.576e6, 1e-3);
}
END_TEST

START_TEST(hours_of_a_trillion_are_days)
{
    const struct bill b = bill_of(1e12, 1e12 / (180e3 / 2048 * 3600), 2048, 0, 0, 1);
    ck_assert_double_eq_tol(b.days, 3.66, 0.005);
    ck_assert(isnan(b.usd) && isnan(b.billed_usd) && isnan(b.billed_usd_at_goodput));
}
END_TEST

/* 13.89 s a step of 4096 x 4096 tokens on 256 GPUs, 64 used of each of 4 racks of 72. */
START_TEST(a_measured_step)
{
    const double tokens_per_s = 4096.0 * 4096 / 13.89, p = 3.5;
    const struct bill b = bill_of(1e12, tokens_per_s, 256, 32, p, 0.8);
    ck_assert_double_eq_tol(tokens_per_s, 1.208e6, 500);
    ck_assert_double_eq_tol(b.days, 9.58, 0.005);
    ck_assert_double_eq_tol(b.gpu_hours, 58873, 1);
    ck_assert_double_eq_tol(b.usd / p, 58873, 1);
    ck_assert_double_eq_tol(b.idle_gpu_hours, 58873 / 8.0, 1);
    ck_assert_double_eq_tol(b.billed_usd, b.usd * 1.125, 1e-6);
    ck_assert_double_eq_tol(b.days_at_goodput, b.days / 0.8, 1e-9);
    ck_assert_double_eq_tol(b.billed_usd_at_goodput, b.billed_usd / 0.8, 1e-6);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { published_hours_are_dollars, hours_of_a_trillion_are_days, a_measured_step };
    return test_main("bill", tests, LEN(tests), 10);
}
