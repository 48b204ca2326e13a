/* What the tests of CUDA kernels share: arrays on the device and comparison with a reference. The device is the emulation
 * of tests/simt, where every case runs in several thread orders; linked with tests/simt/device_cuda.c instead, the same
 * tests run on a GPU (tools/gpu_check). */
#ifndef TESTS_DEVICE_H
#define TESTS_DEVICE_H
#include "kernels/stream.h"
#include "tests/numbers.h"

/* `from` NULL: filled with 0xff, which is NaN in every float type and -1 in int32. */
void *device_new(const void *from, int64_t bytes);
void device_read(void *to, const void *p, int64_t bytes);
void device_free(void *p);
int  device_orders(void);               /* thread orders to go through */
void device_order(int i);
const char *device_fault(void);         /* waits for all launches; "" when none went wrong */

static const enum dtype device_types[] = { DT_F32, DT_BF16 };
enum { DEVICE_TYPES = LEN(device_types) };

/* An array on the device, and what its elements are worth as floats. */
struct tensor { void *p; float *value; int64_t n; enum dtype t; };

/* To the nearest bfloat16, even on ties: written apart from the kernels'. */
static inline float device_round(float x, enum dtype t)
{
    if (t != DT_BF16 || isnan(x) || isinf(x)) return x;
    int exponent;
    const double m = frexp(x, &exponent);
    return (float)ldexp(nearbyint(ldexp(m, 8)), exponent - 8);
}

static inline void device_encode(void *to, const float *x, int64_t n, enum dtype t)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        if (t == DT_BF16) ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
        else ((uint32_t *)to)[i] = bits;
    }
}

/* Takes `value`, rounds it to t and puts it on the device. */
static inline struct tensor tensor_of(float *value, int64_t n, enum dtype t)
{
    for (int64_t i = 0; i < n; i++) value[i] = device_round(value[i], t);
    void *raw = malloc((size_t)n * 4 + 1);
    ck_assert_ptr_nonnull(raw);
    device_encode(raw, value, n, t);
    const struct tensor x = { device_new(raw, n * dtype_B(t)), value, n, t };
    free(raw);
    return x;
}

static inline struct tensor tensor_make(int64_t n, uint64_t seed, enum dtype t)
{
    return tensor_of(numbers_make(n, seed), n, t);
}

/* Poisoned on the device; `value` too: the reference writes there. */
static inline struct tensor tensor_out(int64_t n, enum dtype t)
{
    return (struct tensor){ device_new(NULL, n * dtype_B(t)), numbers_poison(n), n, t };
}

static inline void tensor_free(struct tensor x)
{
    device_free(x.p);
    free(x.value);
}

static inline float *tensor_read(struct tensor x)
{
    float *got = malloc((size_t)x.n * sizeof *got + 1);
    ck_assert_ptr_nonnull(got);
    device_read(got, x.p, x.n * dtype_B(x.t));
    for (int64_t i = x.t == DT_BF16 ? x.n - 1 : -1; i >= 0; i--) {     /* widened in place, from the end */
        uint16_t half;
        memcpy(&half, (char *)got + 2 * i, sizeof half);
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(&got[i], &bits, sizeof bits);
    }
    return got;
}

/* Fails unless the device holds x.value to `tolerance` (1 + |value|), and to half a unit in the last place of x.t, which
 * is rounded once more; NaN only where the reference has one. */
static inline void tensor_same(struct tensor x, double tolerance, const char *what)
{
    const double all = tolerance + (x.t == DT_BF16 ? 1.0 / 256 : 0);
    const char *fault = device_fault();
    ck_assert_msg(!*fault, "%s: %s", what, fault);
    float *got = tensor_read(x);
    for (int64_t i = 0; i < x.n; i++) {
        const double want = x.value[i];
        const int same = isnan(want) ? isnan(got[i]) : isinf(want) ? got[i] == want
                         : fabs(got[i] - want) <= all * (1 + fabs(want));
        ck_assert_msg(same, "%s, %s [%lld]: got %.9g, want %.9g", what, dtype_name(x.t), (long long)i, (double)got[i], want);
    }
    free(got);
}

/* int32 arrays: bit for bit. */
static inline void device_same_ints(const void *p, const int32_t *want, int64_t n, const char *what)
{
    const char *fault = device_fault();
    ck_assert_msg(!*fault, "%s: %s", what, fault);
    int32_t *got = malloc((size_t)n * sizeof *got + 1);
    ck_assert_ptr_nonnull(got);
    device_read(got, p, n * (int64_t)sizeof *got);
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(got[i] == want[i], "%s [%lld]: got %d, want %d", what, (long long)i, got[i], want[i]);
    free(got);
}

/* Runs `check(t)` for every storage type under every thread order. */
#define DEVICE_EACH(check)                                                                                        \
    for (int order_i = 0; order_i < device_orders(); order_i++) {                                                 \
        device_order(order_i);                                                                                    \
        for (int type_i = 0; type_i < DEVICE_TYPES; type_i++) check(device_types[type_i]);                        \
    }

#endif
