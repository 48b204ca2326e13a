/* Attention of the CUDA source, emulated, against the reference: widths with and without tensor cores (128; 192 / 128; narrow,
 * odd ones), shared key/value heads, context-parallel rows, blocks of a ring, windows, packed documents, sinks, sequences of one
 * token, of a tile and of more; and the joining of blocks. */
#include "kernels/attention.h"
#include "kernels/merge.h"
#include "tests/device.h"

#define RING(nq_, nkv_, dqk_, dv_, seqs_, seq_, cp_, index_, window_, ring_)                                       \
    { .nq = nq_, .nkv = nkv_, .dqk = dqk_, .dv = dv_, .seqs = seqs_, .window = window_, .ring = ring_,     \
      .at = { .seq = seq_, .cp = cp_, .index = index_ }, .scale = ring_ ? 1.5f : 0 }
#define SHAPE(...) RING(__VA_ARGS__, 0)
static const struct attention_shape shapes[] = {
    SHAPE(2, 1, 128, 128, 1, 70, 1, 0, 0),      SHAPE(1, 1, 192, 128, 1, 66, 1, 0, 0),  SHAPE(4, 2, 16, 16, 2, 1, 1, 0, 0),
    SHAPE(2, 2, 24, 40, 2, 64, 2, 1, 0),        SHAPE(2, 1, 64, 64, 1, 200, 1, 0, 33),  SHAPE(3, 1, 7, 5, 1, 40, 1, 0, 0),
    SHAPE(1, 1, 64, 32, 1, 256, 4, 2, 70),      SHAPE(1, 1, 200, 136, 1, 9, 1, 0, 0),   SHAPE(2, 1, 8, 8, 0, 8, 1, 0, 0),
    RING(2, 1, 64, 32, 2, 96, 2, 1, 0, 1),      RING(2, 1, 64, 32, 2, 96, 2, 0, 0, 2),  RING(1, 1, 72, 72, 1, 144, 2, 1, 90, 2),
    RING(2, 2, 24, 40, 1, 64, 4, 2, 0, 4),
};

struct pass { struct tensor q, k, v, o, lse, sink, dout, dq, dk, dv, dsink; };

static struct pass pass_make(const struct attention_shape *a, enum dtype t)
{
    const int64_t tq = (int64_t)a->seqs * (a->at.seq / a->at.cp), tk = (int64_t)a->seqs * attention_keys(a);
    return (struct pass){
        .q = tensor_make(tq * a->nq * a->dqk, 1, t), .k = tensor_make(tk * a->nkv * a->dqk, 2, t),
        .v = tensor_make(tk * a->nkv * a->dv, 3, t), .o = tensor_out(tq * a->nq * a->dv, t), .lse = tensor_out(tq * a->nq, DT_F32),
        .sink = tensor_make(a->nq, 4, DT_F32), .dout = tensor_make(tq * a->nq * a->dv, 5, t),
        .dq = tensor_out(tq * a->nq * a->dqk, t), .dk = tensor_out(tk * a->nkv * a->dqk, t),
        .dv = tensor_out(tk * a->nkv * a->dv, t), .dsink = tensor_make(a->nq, 6, DT_F32),
    };
}

static void pass_free(struct pass p)
{
    tensor_free(p.q), tensor_free(p.k), tensor_free(p.v), tensor_free(p.o), tensor_free(p.lse), tensor_free(p.sink);
    tensor_free(p.dout), tensor_free(p.dq), tensor_free(p.dk), tensor_free(p.dv), tensor_free(p.dsink);
}

/* bf16 also rounds probabilities and their gradients before the second products. */
static void attention_with(const struct attention_shape *shape, enum dtype t, int sinks, const int32_t *start)
{
    struct attention_shape here = *shape, there = *shape;      /* on the host, on the device */
    struct attention_shape *const a = &here, *const d = &there;
    a->at.start = start;
    d->at.start = start ? device_new(start, (int64_t)a->seqs * a->at.seq * (int64_t)sizeof *start) : NULL;
    const double tolerance = t == DT_BF16 ? 4e-3 : 2e-5;
    struct pass p = pass_make(a, t);
    void *work = malloc((size_t)attention_scratch_B_ref(a)), *scratch = device_new(NULL, attention_cuda_scratch_B(a));
    const float *sink = sinks ? p.sink.value : NULL, *sink_dev = sinks ? p.sink.p : NULL;
    attention_ref(p.o.value, p.lse.value, p.q.value, p.k.value, p.v.value, sink, a, work);
    ck_assert_int_eq(attention_cuda(p.o.p, p.lse.p, p.q.p, p.k.p, p.v.p, sink_dev, d, t, NULL), OK);
    tensor_same(p.o, tolerance, "o");
    tensor_same(p.lse, 1e-5, "lse");
    attention_bwd_ref(p.dq.value, p.dk.value, p.dv.value, sinks ? p.dsink.value : NULL, p.q.value, p.k.value, p.v.value,
                      p.o.value, p.lse.value, p.dout.value, a, work);
    ck_assert_int_eq(attention_bwd_cuda(p.dq.p, p.dk.p, p.dv.p, sinks ? p.dsink.p : NULL, p.q.p, p.k.p, p.v.p, p.o.p,
                                        p.lse.p, p.dout.p, d, scratch, t, NULL), OK);
    tensor_same(p.dq, tolerance, "dq"), tensor_same(p.dk, tolerance, "dk"), tensor_same(p.dv, tolerance, "dv");
    tensor_same(p.dsink, t == DT_BF16 ? 2e-2 : 1e-5, "dsink");
    free(work);
    device_free(scratch);
    if (start) device_free((void *)(uintptr_t)d->at.start);
    pass_free(p);
}

/* Documents of 1, 2, 3 .. tokens, then the same from the next sequence on. */
static int32_t *documents(const struct attention_shape *a)
{
    int32_t *start = malloc((size_t)a->seqs * (size_t)a->at.seq * sizeof *start + 1);
    ck_assert_ptr_nonnull(start);
    for (int s = 0; s < a->seqs; s++)
        for (int p = 0, from = 0, long_ = 1; p < a->at.seq; p++) {
            if (p == from + long_) from = p, long_ += 3;
            start[s * a->at.seq + p] = from;
        }
    return start;
}

/* Every shape in two orders (copies late, copies at once), the smaller ones in all. */
static void attention(enum dtype t, int order)
{
    for (int i = 0; i < LEN(shapes); i++)
        if (order < 2 || shapes[i].at.seq <= 64) {
            int32_t *start = documents(&shapes[i]);
            attention_with(&shapes[i], t, i % 2, NULL);
            if (order < 1 || shapes[i].at.seq <= 64) attention_with(&shapes[i], t, i % 2, start);
            free(start);
        }
}

START_TEST(passes_are_the_reference)
{
    for (int order = 0; order < device_orders(); order++) {
        device_order(order);
        for (int i = 0; i < DEVICE_TYPES; i++) attention(device_types[i], order);
    }
}
END_TEST

static void merge_with(enum dtype t, enum dtype t0, enum dtype t1)
{
    enum { ROWS = 9, HEADS = 3, WIDTH = 37 };
    struct tensor o0 = tensor_make(ROWS * HEADS * WIDTH, 1, t0), o1 = tensor_make(ROWS * HEADS * WIDTH, 2, t1),
                  l0 = tensor_make(ROWS * HEADS, 3, DT_F32), l1 = tensor_make(ROWS * HEADS, 4, DT_F32),
                  o = tensor_out(ROWS * HEADS * WIDTH, t), lse = tensor_out(ROWS * HEADS, DT_F32);
    l0.value[4] = l1.value[5] = l0.value[6] = l1.value[6] = -INFINITY;
    float *d0 = device_new(l0.value, l0.n * 4), *d1 = device_new(l1.value, l1.n * 4);
    merge_ref(o.value, lse.value, o0.value, l0.value, o1.value, l1.value, ROWS, HEADS, WIDTH);
    ck_assert_int_eq(merge_cuda(o.p, lse.p, o0.p, d0, o1.p, d1, ROWS, HEADS, WIDTH, t, t0, t1, NULL), OK);
    tensor_same(o, 2e-6, "o"), tensor_same(lse, 2e-6, "lse");
    device_free(d0), device_free(d1);
    tensor_free(o0), tensor_free(o1), tensor_free(l0), tensor_free(l1), tensor_free(o), tensor_free(lse);
}

START_TEST(blocks_are_joined)
{
    for (int i = 0; i < 8; i++)
        merge_with(i & 1 ? DT_BF16 : DT_F32, i & 2 ? DT_BF16 : DT_F32, i & 4 ? DT_BF16 : DT_F32);
    ck_assert_int_eq(merge_cuda(NULL, NULL, NULL, NULL, NULL, NULL, 1, 1, 1, DT_FP8, DT_F32, DT_F32, NULL), ERR_LIMIT);
}
END_TEST

START_TEST(too_wide_is_refused)
{
    const struct attention_shape a = SHAPE(1, 1, 260, 8, 1, 4, 1, 0, 0);
    ck_assert_int_eq(attention_cuda(NULL, NULL, NULL, NULL, NULL, NULL, &a, DT_F32, NULL), ERR_LIMIT);
}
END_TEST

int main(void)
{
    const TTest *const test[] = { passes_are_the_reference, blocks_are_joined, too_wide_is_refused };
    return test_main("cu_attention", test, LEN(test), 300);
}
