/* Times of the CUDA kernels on this machine's GPU, each over its floor: bytes at the rate of a copy, products at the rate of
 * cuBLASLt (which is opened where it is, a rival only). One JSON document on stdout. Shapes are DeepSeek-V3's and
 * Qwen3-30B-A3B's at 4,096 tokens. Median of REPEATS, buffers larger than the caches. */
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/permute.h"
#include "kernels/swiglu.h"
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { REPEATS = 11 };
static cudaEvent_t from, to;
static cudaStream_t stream;
static json_t *rows;

static void sound(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "bench_gpu: %s: %s\n", what, cudaGetErrorString(e));
    exit(e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver ? 2 : 1);
}

/* Small whole numbers over 64: sums stay finite in bf16. */
static void *filled(int64_t n, int bf16)
{
    const int64_t bytes = n * (bf16 ? 2 : 4);
    void *p = NULL, *host = malloc((size_t)bytes);
    if (!host) exit(1);
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)((i * 2654435761u >> 7) % 129) / 64 - 1;
        uint32_t bits;
        __builtin_memcpy(&bits, &x, 4);
        if (bf16) ((uint16_t *)host)[i] = (uint16_t)(bits >> 16);
        else ((float *)host)[i] = x;
    }
    sound(cudaMalloc(&p, (size_t)bytes), "cudaMalloc");
    sound(cudaMemcpy(p, host, (size_t)bytes, cudaMemcpyHostToDevice), "filling");
    free(host);
    return p;
}

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median milliseconds of what `launch` puts on the stream. */
static double time_ms(enum err (*launch)(void *), void *user)
{
    float ms[REPEATS];
    for (int i = -2; i < REPEATS; i++) {
        sound(cudaEventRecord(from, stream), "event");
        if (launch(user) != OK) return -1;
        sound(cudaEventRecord(to, stream), "event");
        sound(cudaEventSynchronize(to), "kernel");
        if (i >= 0) sound(cudaEventElapsedTime(&ms[i], from, to), "event");
    }
    qsort(ms, REPEATS, sizeof *ms, compare);
    return ms[REPEATS / 2];
}

/* floor_ms: the least that it could take; rival: what gives it. */
static void row(const char *kernel, const char *shape, double ms, double floor_ms, const char *rival, double tflops)
{
    json_array_append_new(rows, json_pack("{s:s,s:s,s:f,s:f,s:f,s:s,s:f}", "kernel", kernel, "shape", shape, "ms", ms, "floor_ms",
                                          floor_ms, "fraction", ms > 0 ? floor_ms / ms : 0, "floor", rival, "tflops", tflops));
    fprintf(stderr, "%-16s %-28s %8.4f ms  %5.2f of %s  %7.1f TFLOP/s\n", kernel, shape, ms, ms > 0 ? floor_ms / ms : 0, rival,
            tflops);
}

/* ---- copies ---- */

struct copy { void *y, *x; size_t bytes; };
static enum err copy(void *user)
{
    const struct copy *c = user;
    return cudaMemcpyAsync(c->y, c->x, c->bytes, cudaMemcpyDeviceToDevice, stream) == cudaSuccess ? OK : ERR_DEVICE;
}

static double copy_B_per_ms(void)
{
    struct copy c = { filled(1 << 28, 0), filled(1 << 28, 0), (size_t)1 << 30 };
    const double ms = time_ms(copy, &c);
    row("copy", "1 GiB", ms, ms, "itself", 0);
    cudaFree(c.x), cudaFree(c.y);
    return 2.0 * (double)c.bytes / ms;
}

/* ---- cuBLASLt, where it is ---- */

struct lt {
    cublasLtHandle_t handle;
    void *work;
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtMatmulDescCreate) *desc;
    __typeof__(cublasLtMatmulDescSetAttribute) *desc_set;
    __typeof__(cublasLtMatrixLayoutCreate) *layout;
    __typeof__(cublasLtMatmulPreferenceCreate) *preference;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *preference_set;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *heuristic;
    __typeof__(cublasLtMatmul) *matmul;
};
static struct lt lt;
enum { WORK_B = 64 << 20 };

static int lt_open(void)
{
    void *so = dlopen("libcublasLt.so.13", RTLD_NOW);
    if (!so) so = dlopen("libcublasLt.so.12", RTLD_NOW);
    if (!so) return 0;
    const struct { const char *name; void **at; } need[] = {
        { "cublasLtCreate", (void **)&lt.create }, { "cublasLtMatmulDescCreate", (void **)&lt.desc },
        { "cublasLtMatmulDescSetAttribute", (void **)&lt.desc_set }, { "cublasLtMatrixLayoutCreate", (void **)&lt.layout },
        { "cublasLtMatmulPreferenceCreate", (void **)&lt.preference },
        { "cublasLtMatmulPreferenceSetAttribute", (void **)&lt.preference_set },
        { "cublasLtMatmulAlgoGetHeuristic", (void **)&lt.heuristic }, { "cublasLtMatmul", (void **)&lt.matmul },
    };
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        if (!(*need[i].at = dlsym(so, need[i].name))) return 0;
    sound(cudaMalloc(&lt.work, WORK_B), "workspace");
    return lt.create(&lt.handle) == CUBLAS_STATUS_SUCCESS;
}

struct product {
    void *y, *x, *w;
    int32_t *start;
    int64_t rows;
    int out, in, experts;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t lx, lw, ly;
    cublasLtMatmulAlgo_t algo;
};

/* Row-major y [rows, out] = x w^T is, by columns, y^T [out, rows] = w x^T. */
static int lt_plan(struct product *p)
{
    const cublasOperation_t yes = CUBLAS_OP_T, no = CUBLAS_OP_N;
    const size_t most = WORK_B;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    lt.desc(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    lt.desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &yes, sizeof yes);
    lt.desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &no, sizeof no);
    lt.layout(&p->lw, CUDA_R_16BF, (uint64_t)p->in, (uint64_t)p->out, p->in);
    lt.layout(&p->lx, CUDA_R_16BF, (uint64_t)p->in, (uint64_t)p->rows, p->in);
    lt.layout(&p->ly, CUDA_R_16BF, (uint64_t)p->out, (uint64_t)p->rows, p->out);
    lt.preference(&preference);
    lt.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    lt.heuristic(lt.handle, p->desc, p->lw, p->lx, p->ly, p->ly, preference, 1, &best, &found);
    p->algo = best.algo;
    return found > 0;
}

static enum err lt_run(void *user)
{
    const struct product *p = user;
    const float one = 1, zero = 0;
    return lt.matmul(lt.handle, p->desc, &one, p->w, p->lw, p->x, p->lx, &zero, p->y, p->ly, p->y, p->ly, &p->algo, lt.work, WORK_B,
                     stream) == CUBLAS_STATUS_SUCCESS ? OK : ERR_DEVICE;
}

/* ---- cuBLAS's grouped products, a rival: sizes on the host, where a router's are not ---- */

enum { GROUPS_MOST = 64 };
static struct {
    cublasHandle_t handle;
    __typeof__(cublasCreate) *create;
    __typeof__(cublasSetStream) *set_stream;
    __typeof__(cublasGemmGroupedBatchedEx) *multiply;
} cublas;
#define NAME_OF(f) NAME_OF_(f)          /* the header renames some: what they are called in the library */
#define NAME_OF_(f) #f

static int cublas_open(void)
{
    void *so = dlopen("libcublas.so.13", RTLD_NOW);
    if (!so) return 0;
    *(void **)&cublas.create = dlsym(so, NAME_OF(cublasCreate));
    *(void **)&cublas.set_stream = dlsym(so, NAME_OF(cublasSetStream));
    *(void **)&cublas.multiply = dlsym(so, NAME_OF(cublasGemmGroupedBatchedEx));
    return cublas.create && cublas.set_stream && cublas.multiply && cublas.create(&cublas.handle) == CUBLAS_STATUS_SUCCESS &&
           cublas.set_stream(cublas.handle, stream) == CUBLAS_STATUS_SUCCESS;
}

struct groups {
    cublasOperation_t turned[GROUPS_MOST], plain[GROUPS_MOST];
    int m[GROUPS_MOST], n[GROUPS_MOST], k[GROUPS_MOST], one[GROUPS_MOST], count;
    float alpha[GROUPS_MOST], beta[GROUPS_MOST];
    const void *const *w, *const *x;
    void *const *y;
};

static void *pointers(char *first, int64_t each_B, int n)
{
    char *at[GROUPS_MOST];
    void *p;
    for (int i = 0; i < n; i++) at[i] = first + i * each_B;
    sound(cudaMalloc(&p, sizeof at), "cudaMalloc");
    sound(cudaMemcpy(p, at, (size_t)n * sizeof *at, cudaMemcpyHostToDevice), "pointers");
    return p;
}

static enum err grouped_run(void *user)
{
    const struct groups *g = user;
    return cublas.multiply(cublas.handle, g->turned, g->plain, g->m, g->n, g->k, g->alpha, g->w, CUDA_R_16BF, g->k, g->x, CUDA_R_16BF,
                           g->k, g->beta, g->y, CUDA_R_16BF, g->m, g->count, g->one, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_SUCCESS
               ? OK : ERR_DEVICE;
}

/* Milliseconds; -1: not here. */
static double grouped_ms(const struct product *p)
{
    struct groups g = { .count = p->experts };
    const int64_t each = p->rows / p->experts;
    if (!cublas.handle || p->experts > GROUPS_MOST) return -1;
    for (int i = 0; i < p->experts; i++) {
        g.turned[i] = CUBLAS_OP_T, g.plain[i] = CUBLAS_OP_N;
        g.m[i] = p->out, g.n[i] = (int)each, g.k[i] = p->in, g.one[i] = 1, g.alpha[i] = 1;
    }
    g.w = pointers(p->w, 2LL * p->out * p->in, p->experts);
    g.x = pointers(p->x, 2 * each * p->in, p->experts);
    g.y = pointers(p->y, 2 * each * p->out, p->experts);
    const double ms = time_ms(grouped_run, &g);
    cudaFree((void *)(uintptr_t)g.w), cudaFree((void *)(uintptr_t)g.x), cudaFree((void *)(uintptr_t)g.y);
    return ms;
}

/* ---- products ---- */

static enum err own(void *user)
{
    const struct product *p = user;
    return gemm_grouped_cuda(p->y, p->x, p->w, p->start, p->experts, p->rows, p->out, p->in, DT_BF16, DT_BF16, stream);
}

static enum err own_dgrad(void *user)
{
    const struct product *p = user;
    return gemm_grouped_dgrad_cuda(p->x, p->y, p->w, p->start, p->experts, p->rows, p->out, p->in, DT_BF16, stream);
}

/* The dense product of the same rows is the limit of a grouped one. */
static void products(int64_t rows_each, int experts, int out, int in, int has_lt, double peak_flop_per_ms)
{
    char shape[64];
    const int64_t n = rows_each * experts;
    struct product p = { .rows = n, .out = out, .in = in, .experts = experts };
    int32_t *start = malloc((size_t)(experts + 1) * sizeof *start);
    if (!start) exit(1);
    for (int e = 0; e <= experts; e++) start[e] = (int32_t)(e * rows_each);
    p.x = filled(n * in, 1), p.w = filled((int64_t)experts * out * in, 1), p.y = filled(n * out, 1);
    const double flop = 2.0 * (double)n * out * in, peak_ms = flop / peak_flop_per_ms;
    const double dense_ms = has_lt && lt_plan(&p) ? time_ms(lt_run, &p) : -1;
    snprintf(shape, sizeof shape, "%lld x %d x %d", (long long)n, out, in);
    if (dense_ms > 0) row("cuBLASLt", shape, dense_ms, peak_ms, "peak", flop / dense_ms * 1e-9);
    p.experts = 1;
    double ms = time_ms(own, &p);
    row("gemm", shape, ms, dense_ms > 0 ? dense_ms : peak_ms, dense_ms > 0 ? "cuBLASLt" : "peak", flop / ms * 1e-9);
    p.experts = experts;
    sound(cudaMalloc((void **)&p.start, (size_t)(experts + 1) * sizeof *start), "cudaMalloc");
    sound(cudaMemcpy(p.start, start, (size_t)(experts + 1) * sizeof *start, cudaMemcpyHostToDevice), "starts");
    snprintf(shape, sizeof shape, "%d of %lld x %d x %d", experts, (long long)rows_each, out, in);
    ms = grouped_ms(&p);
    if (ms > 0) row("cuBLAS grouped", shape, ms, peak_ms, "peak", flop / ms * 1e-9);
    ms = time_ms(own, &p);
    row("grouped gemm", shape, ms, dense_ms > 0 ? dense_ms : peak_ms, dense_ms > 0 ? "cuBLASLt" : "peak", flop / ms * 1e-9);
    ms = time_ms(own_dgrad, &p);
    row("grouped dgrad", shape, ms, dense_ms > 0 ? dense_ms : peak_ms, dense_ms > 0 ? "cuBLASLt" : "peak", flop / ms * 1e-9);
    cudaFree(p.x), cudaFree(p.w), cudaFree(p.y), cudaFree(p.start);
    free(start);
}

/* ---- attention ---- */

struct attending { void *o, *q, *k, *v; float *lse; struct attention_shape a; };
static enum err attend(void *user)
{
    const struct attending *x = user;
    return attention_cuda(x->o, x->lse, x->q, x->k, x->v, NULL, &x->a, DT_BF16, stream);
}

static void attention(int nq, int nkv, int dqk, int dv, double peak_flop_per_ms)
{
    enum { SEQ = 4096 };
    char shape[64];
    struct attending x = { .a = { .nq = nq, .nkv = nkv, .dqk = dqk, .dv = dv, .seqs = 1 } };
    x.a.at.seq = SEQ, x.a.at.cp = 1;
    x.q = filled((int64_t)SEQ * nq * dqk, 1), x.k = filled((int64_t)SEQ * nkv * dqk, 1), x.v = filled((int64_t)SEQ * nkv * dv, 1);
    x.o = filled((int64_t)SEQ * nq * dv, 1), x.lse = filled((int64_t)SEQ * nq, 0);
    const double flop = (double)SEQ * SEQ * nq * (dqk + dv), ms = time_ms(attend, &x);     /* causal half of 2 products */
    snprintf(shape, sizeof shape, "%d/%d heads of %d/%d, %d", nq, nkv, dqk, dv, SEQ);
    row("attention", shape, ms, flop / peak_flop_per_ms, "peak", flop / ms * 1e-9);
    cudaFree(x.q), cudaFree(x.k), cudaFree(x.v), cudaFree(x.o), cudaFree(x.lse);
}

/* ---- what only moves bytes ---- */

enum { TOKENS = 4096, HIDDEN = 7168, TOPK = 8, FFN = 2048 };
struct moving { void *y, *x, *w; float *prob, *m, *v; int32_t *perm; };

static enum err norming(void *user)
{
    const struct moving *p = user;
    return norm_cuda(p->y, p->x, p->w, TOKENS, HIDDEN, 1e-6, DT_BF16, stream);
}

static enum err permuting(void *user)
{
    const struct moving *p = user;
    return permute_cuda(p->y, p->x, p->perm, TOKENS * TOPK, HIDDEN, DT_BF16, stream);
}

static enum err activating(void *user)
{
    const struct moving *p = user;
    return swiglu_cuda(p->y, p->x, p->prob, TOKENS * TOPK, FFN, DT_BF16, stream);
}

enum { PARAMS = 1 << 26 };
static enum err updating(void *user)
{
    const struct moving *p = user;
    const struct optimizer_adamw o = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .scale = 1, .step = 3 };
    return optimizer_adamw_cuda(p->y, p->prob, p->m, p->v, p->x, PARAMS, &o, NULL, 0, DT_BF16, stream);
}

static void bytes_alone(double B_per_ms)
{
    struct moving n = { filled((int64_t)TOKENS * HIDDEN, 1), filled((int64_t)TOKENS * HIDDEN, 1), filled(HIDDEN, 1), NULL, NULL, NULL, NULL };
    row("norm", "4096 x 7168", time_ms(norming, &n), 4.0 * TOKENS * HIDDEN / B_per_ms, "copy", 0);
    struct moving p = { filled((int64_t)TOKENS * TOPK * HIDDEN, 1), n.x, NULL, NULL, NULL, NULL, NULL };
    int32_t *perm = malloc(sizeof *perm * 2 * TOKENS * TOPK);
    if (!perm) exit(1);
    for (int i = 0; i < TOKENS * TOPK; i++) perm[2 * i] = (int32_t)((i * 2654435761u) % TOKENS), perm[2 * i + 1] = i / (TOKENS * TOPK / 8);
    sound(cudaMalloc((void **)&p.perm, sizeof *perm * 2 * TOKENS * TOPK), "cudaMalloc");
    sound(cudaMemcpy(p.perm, perm, sizeof *perm * 2 * TOKENS * TOPK, cudaMemcpyHostToDevice), "rows");
    row("permute", "32768 of 4096 x 7168", time_ms(permuting, &p), 2.0 * (TOKENS + TOKENS * TOPK) * HIDDEN / B_per_ms, "copy", 0);
    struct moving a = { filled((int64_t)TOKENS * TOPK * FFN, 1), filled((int64_t)TOKENS * TOPK * FFN * 2, 1), NULL,
                        filled((int64_t)TOKENS * TOPK, 0), NULL, NULL, NULL };
    row("swiglu", "32768 x 2048", time_ms(activating, &a), 6.0 * TOKENS * TOPK * FFN / B_per_ms, "copy", 0);
    struct moving o = { filled(PARAMS, 1), filled(PARAMS, 0), NULL, filled(PARAMS, 0), filled(PARAMS, 0), filled(PARAMS, 0), NULL };
    sound(cudaMemset(o.v, 0, sizeof(float) * PARAMS), "moments");
    row("adamw", "67108864", time_ms(updating, &o), (4 + 3 * 8 + 2) * (double)PARAMS / B_per_ms, "copy", 0);
    free(perm);
}

int main(void)
{
    struct cudaDeviceProp card;
    sound(cudaGetDeviceProperties(&card, 0), "GPU 0");
    sound(cudaStreamCreate(&stream), "stream");
    sound(cudaEventCreate(&from), "event");
    sound(cudaEventCreate(&to), "event");
    rows = json_array();
    const double B_per_ms = copy_B_per_ms();
    const double peak_flop_per_ms = (card.major >= 10 ? 2500e12 : 989.4e12) * 1e-3;    /* dense bf16: vendor */
    const int has_lt = lt_open();
    if (!cublas_open()) fprintf(stderr, "bench_gpu: no cuBLAS here: no grouped rival\n");
    if (!has_lt) fprintf(stderr, "bench_gpu: no cuBLASLt here: products are over the peak alone\n");
    products(128, 32, 4096, 7168, has_lt, peak_flop_per_ms);
    products(256, 32, 4096, 7168, has_lt, peak_flop_per_ms);
    products(1024, 32, 4096, 7168, has_lt, peak_flop_per_ms);
    products(2048, 16, 1536, 2048, has_lt, peak_flop_per_ms);
    attention(32, 4, 128, 128, peak_flop_per_ms);
    attention(128, 128, 192, 128, peak_flop_per_ms);
    bytes_alone(B_per_ms);
    json_t *doc = json_pack("{s:s,s:f,s:b,s:o}", "card", card.name, "copy_B_per_s", B_per_ms * 1e3, "cublaslt", has_lt, "rows", rows);
    json_dumpf(doc, stdout, JSON_INDENT(1));
    printf("\n");
    json_decref(doc);
    return 0;
}
