/* The emulation finds what it is there to find: a missing barrier, threads that wait for ever, a broken warp operation, reads
 * of another block's shared memory, copies used before they arrived, and sizes that no GPU takes. */
#include "tests/simt/faults.h"
#include "tests/simt/simt.h"
#include "tests/test.h"

enum { THREADS = 64 };

static int wrong_answers(enum fault which)
{
    int out[THREADS], wrong = 0;
    ck_assert_int_eq(faults_run(out, which, 1, THREADS, 0), OK);
    for (int i = 0; i < THREADS; i++) wrong += out[i] != THREADS - 1 - i;
    return wrong;
}

START_TEST(a_missing_barrier_shows_in_every_order)
{
    for (unsigned order = 0; order < SIMT_ORDERS; order++) {
        simt_order(order);
        ck_assert_int_gt(wrong_answers(FAULT_NO_BARRIER), 0);
        ck_assert_int_eq(wrong_answers(FAULT_NONE), 0);
    }
}
END_TEST

static void expect_fault(enum fault which, int blocks, int threads, int shared_B, const char *says)
{
    int out[THREADS];
    ck_assert_int_eq(faults_run(out, which, blocks, threads, shared_B), ERR_DEVICE);
    const char *got = simt_fault();
    ck_assert_msg(strstr(got, says) != NULL, "says '%s', not '%s'", got, says);
    ck_assert_int_eq(faults_run(out, FAULT_NONE, 1, THREADS, 0), OK);   /* and the next launch is not spoiled */
    ck_assert_str_eq(simt_fault(), "");
}

START_TEST(waits_for_ever_are_named)
{
    for (unsigned order = 0; order < SIMT_ORDERS; order++) {
        simt_order(order);
        expect_fault(FAULT_HALF_BARRIER, 1, THREADS, 0, "at a barrier that not all threads reach");
        expect_fault(FAULT_HALF_WARP, 1, THREADS, 0, "in a warp operation that not all threads reach");
        expect_fault(FAULT_MIXED_WARP, 1, THREADS, 0, "different warp operations");
        expect_fault(FAULT_HALF_WARP, 1, 16, 0, "whole warps");
    }
}
END_TEST

START_TEST(shared_memory_starts_poisoned)
{
    int out[3] = { 0 };
    ck_assert_int_eq(faults_run(out, FAULT_STALE, 3, 1, 4), OK);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(out[i], 1);
}
END_TEST

START_TEST(copies_arrive_late_or_at_once)
{
    int out[2];
    for (unsigned order = 0; order < 2; order++) {
        simt_order(order);
        ck_assert_int_eq(faults_run(out, FAULT_EARLY_COPY, 1, 1, 16), OK);
        ck_assert_int_eq(out[0], (int)order);
        ck_assert_int_eq(out[1], 1);
    }
}
END_TEST

START_TEST(impossible_sizes_are_refused)
{
    expect_fault(FAULT_NONE, 0, THREADS, 0, "a grid of (0, 1, 1)");
    expect_fault(FAULT_NONE, 1, 1025, 0, "a block of (1025, 1, 1)");
    expect_fault(FAULT_NONE, 1, THREADS, 49153, "49153 bytes of dynamic shared memory");
}
END_TEST

int main(void)
{
    const TTest *const test[] = { a_missing_barrier_shows_in_every_order, waits_for_ever_are_named,
                                  shared_memory_starts_poisoned, copies_arrive_late_or_at_once,
                                  impossible_sizes_are_refused };
    return test_main("simt", test, LEN(test), 60);
}
