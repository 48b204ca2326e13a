/* The products of the CUDA source, emulated, against their references: plain and grouped, rows of 16 bytes and rows that are
 * not, more than one tile each way, an inner index longer than what waits in shared memory; case D01's split in bf16. And
 * the same by cuBLASLt as the backend calls it (under the emulation a stand-in: what it is told is what is tested). */
#include "exec/blas_cuda.h"
#include "kernels/gemm.h"
#include "tests/device.h"

static void products_with(enum dtype t, const int64_t *count, int experts, int out, int in)
{
    int32_t start[65] = { 0 };
    for (int e = 0; e < experts; e++) start[e + 1] = start[e] + (int32_t)count[e];
    const int64_t rows = start[experts], one = (int64_t)out * in;
    int32_t *dev = experts > 1 ? device_new(start, (experts + 1) * 4) : NULL;
    struct tensor x = tensor_make(rows * in, 1, t), w = tensor_make(experts * one, 2, t), dy = tensor_make(rows * out, 3, t),
                  y = tensor_out(rows * out, t), y32 = tensor_out(rows * out, DT_F32), dx = tensor_out(rows * in, t),
                  g = tensor_make(experts * one, 4, DT_F32);
    gemm_grouped_ref(y.value, x.value, w.value, count, experts, out, in);
    memcpy(y32.value, y.value, (size_t)(rows * out) * sizeof *y.value);
    gemm_grouped_dgrad_ref(dx.value, dy.value, w.value, count, experts, out, in);
    gemm_grouped_wgrad_ref(g.value, x.value, dy.value, count, experts, out, in);
    ck_assert_int_eq(gemm_grouped_cuda(y.p, x.p, w.p, dev, experts, rows, out, in, t, t, NULL), OK);
    tensor_same(y, 2e-5, "gemm");
    ck_assert_int_eq(gemm_grouped_cuda(y32.p, x.p, w.p, dev, experts, rows, out, in, t, DT_F32, NULL), OK);
    tensor_same(y32, 2e-5, "gemm to fp32");
    ck_assert_int_eq(gemm_grouped_dgrad_cuda(dx.p, dy.p, w.p, dev, experts, rows, out, in, t, NULL), OK);
    tensor_same(dx, 2e-5, "dgrad");
    ck_assert_int_eq(gemm_grouped_wgrad_cuda(g.p, x.p, dy.p, dev, experts, rows, out, in, t, NULL), OK);
    tensor_same(g, 2e-4, "wgrad");
    device_free(dev);
    tensor_free(x), tensor_free(w), tensor_free(dy), tensor_free(y), tensor_free(y32), tensor_free(dx), tensor_free(g);
}

static void plain(enum dtype t)
{
    static const struct shape { int64_t rows; int out, in; } shapes[] = {
        { 0, 3, 5 }, { 1, 1, 1 }, { 5, 7, 3 }, { 130, 8, 40 }, { 9, 136, 24 }, { 33, 20, 200 },
    };
    for (int i = 0; i < LEN(shapes); i++) products_with(t, &shapes[i].rows, 1, shapes[i].out, shapes[i].in);
}

START_TEST(plain_products_are_the_references)
{
    DEVICE_EACH(plain);
}
END_TEST

static void grouped(enum dtype t)
{
    static const int64_t few[] = { 3, 0, 0, 130, 1, 0 };
    int64_t many[40] = { 0 };
    for (int e = 1; e < LEN(many); e += 3) many[e] = e % 7;     /* more than one warp looks at; the last ones empty */
    products_with(t, few, LEN(few), 24, 16);
    products_with(t, many, LEN(many), 8, 9);
}

START_TEST(grouped_products_are_the_references)
{
    DEVICE_EACH(grouped);
}
END_TEST

/* D01, widths cut down. The outputs are poisoned, so that what nobody wrote is NaN; empty experts keep their gradient. */
START_TEST(experts_without_rows)
{
    static const int64_t splits[][6] = { { 162, 0, 2577, 446, 0, 83 }, { 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 3268, 0, 0 } };
    device_order(2);
    for (int i = 0; i < LEN(splits); i++) products_with(DT_BF16, splits[i], 6, 32, 48);
}
END_TEST

/* Rows behind the last group's end belong to nobody: capacity is more than what came. */
START_TEST(rows_of_no_group_stay_untouched)
{
    enum { ROWS = 20, CAPACITY = 300, OUT = 8, IN = 16 };
    const int32_t start[] = { 0, 5, 5, ROWS };
    int32_t *dev = device_new(start, sizeof start);
    struct tensor x = tensor_make(CAPACITY * IN, 1, DT_BF16), w = tensor_make(3 * OUT * IN, 2, DT_BF16),
                  y = tensor_out(CAPACITY * OUT, DT_BF16);
    const int64_t count[] = { 5, 0, 15 };
    gemm_grouped_ref(y.value, x.value, w.value, count, 3, OUT, IN);
    ck_assert_int_eq(gemm_grouped_cuda(y.p, x.p, w.p, dev, 3, CAPACITY, OUT, IN, DT_BF16, DT_BF16, NULL), OK);
    tensor_same(y, 2e-5, "gemm under capacity");
    device_free(dev);
    tensor_free(x), tensor_free(w), tensor_free(y);
}
END_TEST

static void library(enum dtype t)
{
    static const struct { int64_t rows; int out, in; } shapes[] = { { 1, 8, 16 }, { 40, 64, 24 }, { 130, 8, 48 }, { 3, 136, 8 } };
    for (int i = 0; i < LEN(shapes); i++) {
        const int64_t rows = shapes[i].rows;
        const int out = shapes[i].out, in = shapes[i].in;
        struct tensor x = tensor_make(rows * in, 1, t), w = tensor_make((int64_t)out * in, 2, t), dy = tensor_make(rows * out, 3, t),
                      y = tensor_out(rows * out, t), y32 = tensor_out(rows * out, DT_F32), dx = tensor_out(rows * in, t),
                      g = tensor_make((int64_t)out * in, 4, DT_F32);
        gemm_ref(y.value, x.value, w.value, rows, out, in);
        memcpy(y32.value, y.value, (size_t)(rows * out) * sizeof *y.value);
        gemm_dgrad_ref(dx.value, dy.value, w.value, rows, out, in);
        gemm_wgrad_ref(g.value, x.value, dy.value, rows, out, in);
        for (int again = 0; again < 2; again++) {       /* as chosen, and as kept */
            ck_assert(blas_gemm(y.p, x.p, w.p, rows, out, in, t, t));
            tensor_same(y, 2e-5, "gemm");
        }
        ck_assert(blas_gemm(y32.p, x.p, w.p, rows, out, in, t, DT_F32));
        tensor_same(y32, 2e-5, "gemm to fp32");
        ck_assert(blas_dgrad(dx.p, dy.p, w.p, rows, out, in, t));
        tensor_same(dx, 2e-5, "dgrad");
        ck_assert(blas_wgrad(g.p, x.p, dy.p, rows, out, in, t));
        tensor_same(g, 2e-4, "wgrad");
        ck_assert(!blas_gemm(y.p, x.p, w.p, 0, out, in, t, t));
        ck_assert(!blas_gemm(y.p, (char *)x.p + 4, w.p, rows, out, in, t, t));
        tensor_free(x), tensor_free(w), tensor_free(dy), tensor_free(y), tensor_free(y32), tensor_free(dx), tensor_free(g);
    }
}

START_TEST(the_library_is_told_the_same_products)
{
    for (int i = 0; i < DEVICE_TYPES; i++) library(device_types[i]);
}
END_TEST

int main(void)
{
    const TTest *const test[] = { plain_products_are_the_references, grouped_products_are_the_references, experts_without_rows,
                                  rows_of_no_group_stay_untouched, the_library_is_told_the_same_products };
    return test_main("cu_gemm", test, LEN(test), 300);
}
