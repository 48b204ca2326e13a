/* RMSNorm of the CUDA source, emulated, against its reference: rows that fill vectors and rows that do not, none, one, more
 * than there are blocks, zeros, and numbers that are none. */
#include "kernels/norm.h"
#include "tests/device.h"

static const struct shape { int runs, cols; } shapes[] = { { 0, 8 }, { 1, 1 }, { 3, 7 }, { 5, 64 }, { 300, 24 }, { 2, 2056 } };
static const double eps = 1e-5;

static void forward(enum dtype t)
{
    for (int i = 0; i < LEN(shapes); i++) {
        const struct shape s = shapes[i];
        const int64_t n = (int64_t)s.runs * s.cols;
        struct tensor x = tensor_make(n, 1, t), w = tensor_make(s.cols, 2, t), y = tensor_out(n, t);
        norm_ref(y.value, x.value, w.value, s.runs, s.cols, eps);
        ck_assert_int_eq(norm_cuda(y.p, x.p, w.p, s.runs, s.cols, eps, t, NULL), OK);
        tensor_same(y, 2e-6, "norm");
        tensor_free(x), tensor_free(w), tensor_free(y);
    }
}

static void backward_with(enum dtype t, struct shape s, int residual)
{
    const int64_t n = (int64_t)s.runs * s.cols;
    struct tensor x = tensor_make(n, 1, t), w = tensor_make(s.cols, 2, t), dy = tensor_make(n, 3, t),
                  dres = tensor_make(n, 4, t), dx = tensor_out(n, t), g = tensor_make(s.cols, 5, DT_F32);
    void *scratch = device_new(NULL, norm_scratch_B(s.runs, s.cols));
    norm_bwd_ref(dx.value, g.value, x.value, w.value, dy.value, residual ? dres.value : NULL, s.runs, s.cols, eps);
    ck_assert_int_eq(norm_bwd_cuda(dx.p, g.p, x.p, w.p, dy.p, residual ? dres.p : NULL, s.runs, s.cols, eps, scratch, t, NULL),
                     OK);
    tensor_same(dx, 5e-6, "norm_bwd dx");
    tensor_same(g, 2e-5, "norm_bwd g");
    device_free(scratch);
    tensor_free(x), tensor_free(w), tensor_free(dy), tensor_free(dres), tensor_free(dx), tensor_free(g);
}

static void backward(enum dtype t)
{
    for (int i = 0; i < LEN(shapes); i++) {
        backward_with(t, shapes[i], 0);
        backward_with(t, shapes[i], 1);
    }
}

/* A run of zeros stays finite; a number that is none spoils its run and no other. */
static void odd_runs(enum dtype t)
{
    enum { RUNS = 4, COLS = 24 };
    float *x0 = numbers_make(RUNS * COLS, 1);
    memset(x0 + COLS, 0, COLS * sizeof *x0);
    x0[2 * COLS + 5] = NAN;
    struct tensor x = tensor_of(x0, RUNS * COLS, t), w = tensor_make(COLS, 2, t), y = tensor_out(RUNS * COLS, t);
    norm_ref(y.value, x.value, w.value, RUNS, COLS, eps);
    ck_assert_int_eq(norm_cuda(y.p, x.p, w.p, RUNS, COLS, eps, t, NULL), OK);
    tensor_same(y, 2e-6, "norm of odd runs");
    tensor_free(x), tensor_free(w), tensor_free(y);
}

START_TEST(forward_is_the_reference)
{
    DEVICE_EACH(forward);
}
END_TEST
START_TEST(backward_is_the_reference)
{
    DEVICE_EACH(backward);
}
END_TEST
START_TEST(zeros_and_nans_stay_in_their_run)
{
    DEVICE_EACH(odd_runs);
}
END_TEST

START_TEST(what_has_no_kernel_is_refused)
{
    ck_assert_int_eq(norm_cuda(NULL, NULL, NULL, 1, 8, eps, DT_FP8, NULL), ERR_LIMIT);
    ck_assert_int_eq(norm_bwd_cuda(NULL, NULL, NULL, NULL, NULL, NULL, 1, NORM_COLS + 8, eps, NULL, DT_F32, NULL), ERR_LIMIT);
}
END_TEST

int main(void)
{
    const TTest *const test[] = { forward_is_the_reference, backward_is_the_reference, zeros_and_nans_stay_in_their_run,
                                  what_has_no_kernel_is_refused };
    return test_main("cu_norm", test, LEN(test), 300);
}
