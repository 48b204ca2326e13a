/* Tests of kernels that exist twice: each test runs on the reference and on every fast table that this CPU has. */
#ifndef TESTS_UNDER_H
#define TESTS_UNDER_H
#include "kernels/kernels.h"
#include "tests/numbers.h"
#include <stdio.h>

static const struct kernels *under; /* test */

static inline int under_each(const char *name, const TTest *const *tests, int n)
{
    int failed = 0;
    under = &kernels_ref;
    for (int i = 0; under; under = kernels_fast(i++)) {
        printf("%s: %s\n", name, under->name);
        fflush(stdout);
        failed |= test_main(name, tests, n, 300);
    }
    return failed;
}

#endif
