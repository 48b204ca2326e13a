/* What tests share: a suite from a list of tests, and jobs from the flags a user would type. */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H
#include "models/plan.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Runs the tests of `all`, each in a process of its own; the process's exit status. */
static inline int test_case_main(TCase *all, const char *name, double timeout_s)
{
    Suite *suite = suite_create(name);
    tcase_set_timeout(all, timeout_s);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}

static inline int test_main(const char *name, const TTest *const *tests, int n, double timeout_s)
{
    TCase *all = tcase_create(name);
    for (int i = 0; i < n; i++) tcase_add_test(all, tests[i]);
    return test_case_main(all, name, timeout_s);
}

/* A test, `times` times with _i from 0 on; 0: once. */
struct test_loop { const TTest *test; int times; };

/* As test_main; `open` (NULL: nothing to make before) runs once, before the tests fork. */
static inline int test_main_loops(const char *name, void (*open)(void), const struct test_loop *loop, int n,
                                  double timeout_s)
{
    TCase *all = tcase_create(name);
    if (open) tcase_add_unchecked_fixture(all, open, NULL);
    for (int i = 0; i < n; i++)
        if (loop[i].times) tcase_add_loop_test(all, loop[i].test, 0, loop[i].times);
        else tcase_add_test(all, loop[i].test);
    return test_case_main(all, name, timeout_s);
}

/* plan_read_job from flags such as "model tiny-moe system host gpus 4 ep 2". */
static inline enum err test_job_try(struct job *j, struct arena *a, const char *flags, struct diag *d)
{
    const char *flag[64][2];
    int n = 0;
    char *rest = arena_strdup(a, flags), *key, *value;
    while ((key = strtok_r(rest, " ", &rest)) && (value = strtok_r(rest, " ", &rest)) && n < 64) {
        flag[n][0] = key;
        flag[n++][1] = value;
    }
    return plan_read_job(j, a, NULL, n, (const char *const(*)[2])flag, 0, d);
}

static inline void test_job(struct job *j, struct arena *a, const char *flags)
{
    struct diag d = { 0 };
    ck_assert_msg(test_job_try(j, a, flags, &d) == OK, "%s: %s", flags, d.text);
}

/* As published: cut to `layers` (0: not), of them `dense` without experts (-1: the model's). */
static inline void test_job_cut(struct job *j, struct arena *a, const char *flags, int layers, int dense)
{
    struct diag d;
    test_job(j, a, flags);
    if (layers) model_cut(&j->model, layers);
    if (dense >= 0) j->model.dense_layers = dense;
    ck_assert_msg(plan_resolve(j, &d) == OK, "%s", d.text);
}

/* plan_read_open from the same, and which options they fixed. */
static inline void test_job_open(struct job *j, struct arena *a, char fixed[64], const char *flags)
{
    const char *flag[64][2];
    struct diag d = { 0 };
    int n = 0;
    char *rest = arena_strdup(a, flags), *key, *value;
    memset(fixed, 0, 64);
    while ((key = strtok_r(rest, " ", &rest)) && (value = strtok_r(rest, " ", &rest)) && n < 64) {
        flag[n][0] = key;
        flag[n++][1] = value;
        fixed[cfg_opt(plan_opts, plan_n_opt, key) - plan_opts] = 1;
    }
    ck_assert_msg(plan_read_open(j, a, n, (const char *const(*)[2])flag, &d) == OK, "%s: %s", flags, d.text);
}

/* A small generator of its own, so that every run and every machine tests the same cases. */
static inline int test_random(uint64_t *state, int below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)below);
}

/* Every one of `parts` (NULL-ended) stands in `text`. */
static inline int test_has(const char *text, const char *const *parts)
{
    for (; *parts; parts++)
        if (!strstr(text, *parts)) return 0;
    return 1;
}

#endif
