/* The table of references, and the choice among the fast ones. */
#include "kernels/kernels.h"
#include <stddef.h>

const struct kernels kernels_ref = {
    .name = "reference",
#define X(k) .k = k##_ref,
    KERNELS_LIST(X)
#undef X
};

extern const struct kernels kernels_base;
#ifdef KERNELS_X86
extern const struct kernels kernels_v3, kernels_v4;

/* What -march=x86-64-v4 and -v3 may use, as far as a CPU could lack it (x86-64 psABI, microarchitecture levels). */
static int kernels_has_v4(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512cd");
}

static int kernels_has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

const struct kernels *kernels_fast(int i)
{
    if (kernels_has_v4() && i-- == 0) return &kernels_v4;
    if (kernels_has_v3() && i-- == 0) return &kernels_v3;
    return i == 0 ? &kernels_base : NULL;
}
#else
const struct kernels *kernels_fast(int i)
{
    return i == 0 ? &kernels_base : NULL;
}
#endif
