/* bench_kernels: the fast kernels against their rivals on this CPU, one thread, as ratios within one run: both sides take
 * turns, and the median of the pairs' ratios is printed. Grouped products are held to 90 % of one dense product of the
 * same rows at 128 rows an expert and more: exit 1 below that. Not a test: it needs a quiet core. */
#include "kernels/kernels.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef BENCH_OPENBLAS
#include <cblas.h>
#endif

enum { PAIRS = 15 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* what others take of the core does not count */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *numbers(int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    if (!x) exit(2);
    uint32_t s = 1;
    for (int64_t i = 0; i < n; i++) {
        s = s * 1664525 + 1013904223;
        x[i] = (float)(s >> 8) * 0x1p-23f - 1;
    }
    return x;
}

/* A product of `experts` weights, `rows` rows each; or attention of one sequence. */
struct work {
    const struct kernels *k;
    int experts, rows, out, in;
    float *x, *w, *y;
    int64_t count[64];
    struct attention_shape a;
    float *o, *lse, *dq, *dk, *dv;
    void *scratch;
};

static void run_dense(struct work *b) { b->k->gemm(b->y, b->x, b->w, (int64_t)b->rows * b->experts, b->out, b->in); }
static void run_grouped(struct work *b) { b->k->gemm_grouped(b->y, b->x, b->w, b->count, b->experts, b->out, b->in); }
static void run_dense_wgrad(struct work *b)
{
    b->k->gemm_wgrad(b->w, b->x, b->y, (int64_t)b->rows * b->experts, b->out, b->in);
}
static void run_grouped_wgrad(struct work *b)
{
    b->k->gemm_grouped_wgrad(b->w, b->x, b->y, b->count, b->experts, b->out, b->in);
}
static void run_dense_dgrad(struct work *b)
{
    b->k->gemm_dgrad(b->x, b->y, b->w, (int64_t)b->rows * b->experts, b->out, b->in);
}
static void run_grouped_dgrad(struct work *b)
{
    b->k->gemm_grouped_dgrad(b->x, b->y, b->w, b->count, b->experts, b->out, b->in);
}
static void run_attention(struct work *b) { b->k->attention(b->o, b->lse, b->x, b->w, b->y, NULL, &b->a, b->scratch); }
static void run_attention_bwd(struct work *b)
{
    b->k->attention_bwd(b->dq, b->dk, b->dv, NULL, b->x, b->w, b->y, b->o, b->lse, b->o, &b->a, b->scratch);
}
#ifdef BENCH_OPENBLAS
static void run_blas(struct work *b)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, b->rows * b->experts, b->out, b->in, 1, b->x, b->in, b->w, b->in,
                0, b->y, b->out);
}
#endif

static double time_s(void (*run)(struct work *), struct work *b, int times)
{
    const double start_s = now_s();
    for (int i = 0; i < times; i++) run(b);
    return (now_s() - start_s) / times;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How many times as fast as `rival` is `run`; *best_s: its best time. */
static double ratio(void (*run)(struct work *), struct work *b, void (*rival)(struct work *), struct work *r,
                    double *best_s)
{
    double pair[PAIRS];
    run(b), rival(r);
    const double once_s = time_s(run, b, 1);
    const int times = once_s < 2e-3 ? (int)(2e-3 / once_s) + 1 : 1;
    *best_s = once_s;
    for (int i = 0; i < PAIRS; i++) {
        const double mine_s = time_s(run, b, times), theirs_s = time_s(rival, r, times);
        pair[i] = theirs_s / mine_s;
        if (mine_s < *best_s) *best_s = mine_s;
    }
    qsort(pair, PAIRS, sizeof *pair, by_value);
    return pair[PAIRS / 2];
}

static struct work product(const struct kernels *k, int experts, int rows, int out, int in)
{
    struct work b = {.k = k, .experts = experts, .rows = rows, .out = out, .in = in};
    b.x = numbers((int64_t)experts * rows * in);
    b.w = numbers((int64_t)experts * out * in);
    b.y = numbers((int64_t)experts * rows * out);
    for (int e = 0; e < experts; e++) b.count[e] = rows;
    return b;
}

static void product_free(struct work *b) { free(b->x), free(b->w), free(b->y); }

static void show(const char *what, double flop, double best_s, double x, const char *rival)
{
    printf("%-44s %8.1f GFLOP/s %8.2f x %s\n", what, flop / best_s * 1e-9, x, rival);
}

static int bench_grouped(int rows, int out, int in)
{
    static const struct { const char *name; void (*grouped)(struct work *), (*dense)(struct work *); } row[] = {
        {"forward", run_grouped, run_dense},
        {"input gradient", run_grouped_dgrad, run_dense_dgrad},
        {"weight gradient", run_grouped_wgrad, run_dense_wgrad},
    };
    struct work b = product(kernels_fast(0), 8, rows, out, in);
    int bad = 0;
    for (int i = 0; i < LEN(row); i++) {
        char what[64];
        double best_s;
        const double x = ratio(row[i].grouped, &b, row[i].dense, &b, &best_s);
        snprintf(what, sizeof what, "grouped 8 x %d, %d x %d, %s", rows, out, in, row[i].name);
        show(what, 2.0 * 8 * rows * out * in, best_s, x, rows >= 128 ? "one dense product (limit 0.90)" : "one dense product");
        bad |= rows >= 128 && x < 0.9;
    }
    product_free(&b);
    return bad;
}

static void bench_dense(int rows, int out, int in)
{
    struct work b = product(kernels_fast(0), 1, rows, out, in), r = b;
    char what[64];
    double best_s;
    r.k = &kernels_ref;
    snprintf(what, sizeof what, "product %d x %d x %d", rows, out, in);
    const double x = ratio(run_dense, &b, run_dense, &r, &best_s);
    show(what, 2.0 * rows * out * in, best_s, x, "the reference");
#ifdef BENCH_OPENBLAS
    openblas_set_num_threads(1);
    const double y = ratio(run_dense, &b, run_blas, &b, &best_s);
    show(what, 2.0 * rows * out * in, best_s, y, "OpenBLAS as it comes");
#endif
    product_free(&b);
}

/* The same work where less is seen, in whole blocks of keys passed over: as many times as fast as the whole. */
static void bench_seen(const struct work *whole, const char *what, int window, const int32_t *start, double seen)
{
    struct work b = *whole, r = *whole;
    double best_s;
    char text[64];
    const double flop = 2.0 * seen * whole->a.at.seq * whole->a.nq * whole->a.dqk * 2;
    b.a.window = window, b.a.at.start = start;
    double x = ratio(run_attention, &b, run_attention, &r, &best_s);
    snprintf(text, sizeof text, "  %s (%.2f of the work)", what, 2 * seen / whole->a.at.seq);
    show(text, flop, best_s, x, "the whole");
    x = ratio(run_attention_bwd, &b, run_attention_bwd, &r, &best_s);
    show("    its gradient", 2.5 * flop, best_s, x, "the whole");
}

static void bench_attention(int seq, int heads, int kv, int dim)
{
    struct work b = {.k = kernels_fast(0), .a = {heads, kv, dim, dim, 1, {.seq = seq, .cp = 1}, 0, 0, 0}}, r;
    const int64_t q = (int64_t)seq * heads * dim, k = (int64_t)seq * kv * dim;
    const double flop = 2.0 * q * seq;      /* causal half of two products */
    char what[64];
    double best_s;
    b.x = numbers(q), b.w = numbers(k), b.y = numbers(k), b.o = numbers(q), b.lse = numbers((int64_t)seq * heads);
    b.dq = numbers(q), b.dk = numbers(k), b.dv = numbers(k);
    r = b;
    r.k = &kernels_ref;
    b.scratch = malloc((size_t)b.k->attention_scratch_B(&b.a));
    r.scratch = malloc((size_t)r.k->attention_scratch_B(&r.a));
    snprintf(what, sizeof what, "attention %d tokens, %d/%d heads of %d", seq, heads, kv, dim);
    double x = ratio(run_attention, &b, run_attention, &r, &best_s);
    show(what, flop, best_s, x, "the reference");
    x = ratio(run_attention_bwd, &b, run_attention_bwd, &r, &best_s);
    snprintf(what, sizeof what, "  its gradient");
    show(what, 2.5 * flop, best_s, x, "the reference");
    if (seq >= 1024) {
        int32_t *start = malloc((size_t)seq * sizeof *start);
        if (!start) exit(2);
        for (int i = 0; i < seq; i++) start[i] = i / (seq / 8) * (seq / 8);
        bench_seen(&b, "window of an eighth", seq / 8, NULL, seq / 8.0 - seq / 128.0);
        bench_seen(&b, "8 documents", 0, start, seq / 16.0);
        free(start);
    }
    free(b.x), free(b.w), free(b.y), free(b.o), free(b.lse), free(b.dq), free(b.dk), free(b.dv);
    free(b.scratch), free(r.scratch);
}

int main(void)
{
    int bad = 0;
    printf("fast kernels: %s\n", kernels_fast(0)->name);
    bench_dense(64, 64, 64);
    bench_dense(256, 256, 256);
    bench_dense(512, 1024, 1024);
    bad |= bench_grouped(16, 128, 64);
    bad |= bench_grouped(128, 128, 64);
    bad |= bench_grouped(128, 1024, 512);
    bad |= bench_grouped(256, 1024, 512);
    bench_attention(64, 8, 4, 8);
    bench_attention(1024, 8, 2, 64);
    return bad;
}
