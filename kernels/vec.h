/* Short vectors for the reference loops. The order of additions is fixed here (eight partial sums, folded in
 * order), so results do not depend on the width of the machine's registers; the compiler alone may not
 * reorder float sums. */
#ifndef KERNELS_VEC_H
#define KERNELS_VEC_H

enum { VEC_N = 8 };
typedef float vec __attribute__((vector_size(4 * VEC_N), aligned(4), may_alias)); /* loads from any float */

/* Sum of a[i] * b[i], i < n. */
static inline float vec_dot(const float *a, const float *b, int n)
{
    vec part = {0};
    float sum = 0;
    int i = 0;
    for (; i + VEC_N <= n; i += VEC_N) part += *(const vec *)(a + i) * *(const vec *)(b + i);
    for (; i < n; i++) sum += a[i] * b[i];
    for (int j = 0; j < VEC_N; j++) sum += part[j];
    return sum;
}

/* y[i] += s * x[i], i < n. */
static inline void vec_add(float *y, const float *x, float s, int n)
{
    int i = 0;
    for (; i + VEC_N <= n; i += VEC_N) *(vec *)(y + i) += s * *(const vec *)(x + i);
    for (; i < n; i++) y[i] += s * x[i];
}

#endif
