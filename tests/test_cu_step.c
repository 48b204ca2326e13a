/* The loss and the optimizers of the CUDA source, emulated, against their references; case D09's norm. */
#include "kernels/optimizer.h"
#include "kernels/xent.h"
#include "tests/device.h"

/* ---- cross-entropy ---- */

static const struct slice { int64_t first; int cols, vocab; } slices[] = {
    { 0, 24, 24 }, { 16, 16, 29 }, { 32, 8, 30 }, { 0, 7, 5 }, { 0, 1200, 1111 },
};

static void loss_with(enum dtype t, struct slice q, int rows)
{
    const struct xent x = { q.first, q.cols, q.vocab };
    const int64_t n = (int64_t)rows * q.cols;
    int32_t *label = malloc((size_t)rows * 4 + 4);
    uint64_t state = 7;
    for (int i = 0; i < rows; i++) label[i] = i % 4 == 3 ? -1 : test_random(&state, q.vocab);
    float *wide = numbers_make(n, 1);
    for (int64_t i = 0; i < n; i++) wide[i] *= 20;
    struct tensor logit = tensor_of(wide, n, t), most = tensor_out(rows, DT_F32), sum = tensor_out(2 * rows, DT_F32),
                  loss = tensor_make(1, 2, DT_F32);
    int32_t *dev = device_new(label, rows * 4);
    xent_max_ref(most.value, logit.value, rows, &x);
    ck_assert_int_eq(xent_max_cuda(most.p, logit.p, rows, &x, t, NULL), OK);
    tensor_same(most, 0, "max");
    if (q.first < q.vocab) {            /* padding alone has no largest logit: its rank learns another's */
        xent_sum_ref(sum.value, logit.value, label, most.value, rows, &x);
        ck_assert_int_eq(xent_sum_cuda(sum.p, logit.p, dev, most.p, rows, &x, t, NULL), OK);
        tensor_same(sum, 5e-6, "sum");
        xent_loss_ref(loss.value, sum.value, rows, 0.25);
        ck_assert_int_eq(xent_loss_cuda(loss.p, sum.p, rows, 0.25, NULL), OK);
        tensor_same(loss, 1e-5, "loss");
        xent_bwd_ref(logit.value, label, most.value, sum.value, rows, 0.25, &x);
        ck_assert_int_eq(xent_bwd_cuda(logit.p, dev, most.p, sum.p, rows, 0.25, &x, t, NULL), OK);
        tensor_same(logit, 2e-6, "dlogit");
    }
    free(label);
    device_free(dev);
    tensor_free(logit), tensor_free(most), tensor_free(sum), tensor_free(loss);
}

static void losses(enum dtype t)
{
    static const int rows[] = { 0, 1, 9 };
    for (int i = 0; i < LEN(slices); i++)
        for (int k = 0; k < LEN(rows); k++) loss_with(t, slices[i], rows[k]);
}

START_TEST(cross_entropy_is_the_reference)
{
    DEVICE_EACH(losses);
}
END_TEST

/* ---- optimizers ---- */

static void steps_with(enum dtype t, int64_t n, int master, double clip)
{
    const float squares = 6.25f;
    const struct optimizer_adamw o = { 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 3 };
    struct optimizer_adamw clipped = o;
    clipped.scale *= optimizer_clip(squares, clip);
    struct tensor x = tensor_make(n, 1, DT_F32), m = tensor_make(n, 2, DT_F32), v = tensor_make(n, 3, DT_F32),
                  g = tensor_make(n, 4, DT_F32), w = tensor_make(n, 5, t);
    for (int64_t i = 0; i < n; i++) v.value[i] = fabsf(v.value[i]);
    device_free(v.p);
    v = tensor_of(v.value, n, DT_F32);
    float *sumsq = device_new(&squares, sizeof squares);
    optimizer_adamw_ref(w.value, master ? x.value : NULL, m.value, v.value, g.value, n, &clipped);
    ck_assert_int_eq(optimizer_adamw_cuda(w.p, master ? x.p : NULL, m.p, v.p, g.p, n, &o, sumsq, clip, t, NULL), OK);
    tensor_same(x, 1e-6, "master"), tensor_same(m, 1e-6, "m"), tensor_same(v, 1e-6, "v"), tensor_same(w, 1e-6, "weights");
    optimizer_sgd_ref(w.value, master ? x.value : NULL, g.value, n, 0.3, clipped.scale);
    ck_assert_int_eq(optimizer_sgd_cuda(w.p, master ? x.p : NULL, g.p, n, 0.3, o.scale, sumsq, clip, t, NULL), OK);
    tensor_same(x, 1e-6, "sgd master"), tensor_same(w, 1e-6, "sgd weights");
    device_free(sumsq);
    tensor_free(x), tensor_free(m), tensor_free(v), tensor_free(g), tensor_free(w);
}

static void steps(enum dtype t)
{
    static const int64_t sizes[] = { 0, 1, 7, 1024, 4099 };
    for (int i = 0; i < LEN(sizes); i++)
        for (int clip = 0; clip < 3; clip++) {
            steps_with(t, sizes[i], 1, clip * 2.0);
            if (t == DT_F32) steps_with(t, sizes[i], 0, clip);
        }
}

START_TEST(optimizers_are_the_references)
{
    DEVICE_EACH(steps);
    const struct optimizer_adamw o = { .step = 1, .beta1 = 0.9, .beta2 = 0.9 };
    ck_assert_int_eq(optimizer_adamw_cuda(NULL, NULL, NULL, NULL, NULL, 1, &o, NULL, 0, DT_BF16, NULL), ERR_LIMIT);
}
END_TEST

static float squares_of(const float *g, int64_t n, double scale, float before)
{
    float *dev = device_new(g, n * 4), *sum = device_new(&before, 4), got;
    void *scratch = device_new(NULL, OPTIMIZER_SCRATCH_B);
    ck_assert_int_eq(optimizer_sumsq_cuda(sum, dev, n, scale, scratch, NULL), OK);
    device_read(&got, sum, 4);
    device_free(dev), device_free(sum), device_free(scratch);
    return got;
}

/* D09: ranks hold 2, 4 and 6, 8; a dense gradient that two ranks hold counts once; a rank without gradients adds nothing. */
START_TEST(squares_are_the_reference)
{
    static const int64_t sizes[] = { 0, 1, 255, 5000, 3000000 };
    static const float here[] = { 2, 4 }, there[] = { 6, 8 }, both[] = { 3 };
    for (int order = 0; order < device_orders(); order++) {
        device_order(order);
        for (int i = 0; i < LEN(sizes) - (order > 0); i++) {
            float *g = numbers_make(sizes[i], 1), want = 0.5f;
            optimizer_sumsq_ref(&want, g, sizes[i], 0.25);
            ck_assert_double_eq_tol(squares_of(g, sizes[i], 0.25, 0.5f), want, 1e-6 * want);
            free(g);
        }
        ck_assert_double_eq_tol(sqrt(squares_of(there, 2, 1, squares_of(here, 2, 1, squares_of(NULL, 0, 1, 0)))), 10.954452, 1e-6);
        ck_assert_double_eq_tol(squares_of(both, 1, 0.5, squares_of(both, 1, 0.5, 0)), 9, 1e-6);
    }
}
END_TEST

int main(void)
{
    const TTest *const test[] = { cross_entropy_is_the_reference, optimizers_are_the_references, squares_are_the_reference };
    return test_main("cu_step", test, LEN(test), 300);
}
