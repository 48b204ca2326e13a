/* cuBLASLt is opened when the first product asks, never linked: the module works without it. Row-major matrices are
 * the library's column-major ones transposed. An algorithm is chosen once for every shape, by the library's
 * heuristic, and kept; its workspace is scratch in stream order. */
#include "exec/blas_cuda.h"
#include "exec/device_cuda.h"
#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define BLAS_LIST(X)                                                                                                 \
    X(cublasLtCreate)                                                                                                \
    X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate)                      \
        X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulPreferenceDestroy) \
            X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul)
static struct {
#define X(f) __typeof__(f) *f;
    BLAS_LIST(X)
#undef X
    cublasLtHandle_t handle;
    int here;
} lt;
enum { ALIGN_B = 16, WORK_B = 64 << 20, BUCKETS = 1024 };

/* D [m, n] = A [m, k] B [k, n] (+ D), by columns. */
struct shape {
    int64_t m, n, k;
    int32_t a_turned, b_turned, adds, from, to;
};
struct chosen {
    struct shape s;
    struct chosen *next;
    int found;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    size_t work_B;
};
static struct chosen *_Atomic table[BUCKETS]; /* grows only; lists are read without the lock */
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void blas_open(void)
{
#ifdef SIMT_CUBLASLT
    void *(*const find)(void *, const char *) = simt_cublaslt;
    void *so = &lt;
#else
    void *(*const find)(void *, const char *) = dlsym;
    void *so = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
#endif
    if (!so) return;
#define X(f)                                                                                                         \
    if (!(lt.f = (__typeof__(lt.f))(uintptr_t)find(so, #f))) return;
    BLAS_LIST(X)
#undef X
    lt.here = lt.cublasLtCreate(&lt.handle) == CUBLAS_STATUS_SUCCESS;
}

static int makes(const struct shape *s, struct chosen *c)
{
    const cublasOperation_t turn[2] = { CUBLAS_OP_N, CUBLAS_OP_T };
    const cudaDataType_t type[2] = { CUDA_R_32F, CUDA_R_16BF };
    const cudaDataType_t from = type[s->from == DT_BF16], to = type[s->to == DT_BF16];
    const int64_t a_rows = s->a_turned ? s->k : s->m, b_rows = s->b_turned ? s->n : s->k;
    return lt.cublasLtMatmulDescCreate(&c->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           lt.cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_TRANSA, &turn[s->a_turned],
                                             sizeof *turn) == CUBLAS_STATUS_SUCCESS &&
           lt.cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_TRANSB, &turn[s->b_turned],
                                             sizeof *turn) == CUBLAS_STATUS_SUCCESS &&
           lt.cublasLtMatrixLayoutCreate(&c->a, from, (uint64_t)a_rows, (uint64_t)(s->m + s->k - a_rows), a_rows) ==
               CUBLAS_STATUS_SUCCESS &&
           lt.cublasLtMatrixLayoutCreate(&c->b, from, (uint64_t)b_rows, (uint64_t)(s->n + s->k - b_rows), b_rows) ==
               CUBLAS_STATUS_SUCCESS &&
           lt.cublasLtMatrixLayoutCreate(&c->d, to, (uint64_t)s->m, (uint64_t)s->n, s->m) == CUBLAS_STATUS_SUCCESS;
}

static void chooses(struct chosen *c)
{
    const uint64_t most = WORK_B;
    const uint32_t align = ALIGN_B;
    cublasLtMatmulPreference_t p;
    cublasLtMatmulHeuristicResult_t best;
    int n = 0;
    if (!makes(&c->s, c) || lt.cublasLtMatmulPreferenceCreate(&p) != CUBLAS_STATUS_SUCCESS) return;
    int sound = lt.cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                                        sizeof most) == CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < 4; i++) {
        static const cublasLtMatmulPreferenceAttributes_t of[] = { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                                   CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                                   CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                                   CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
        sound =
            sound && lt.cublasLtMatmulPreferenceSetAttribute(p, of[i], &align, sizeof align) == CUBLAS_STATUS_SUCCESS;
    }
    c->found = sound &&
               lt.cublasLtMatmulAlgoGetHeuristic(lt.handle, c->desc, c->a, c->b, c->d, c->d, p, 1, &best, &n) ==
                   CUBLAS_STATUS_SUCCESS &&
               n > 0;
    lt.cublasLtMatmulPreferenceDestroy(p);
    if (!c->found) return;
    c->algo = best.algo;
    c->work_B = best.workspaceSize;
}

static int same(const struct shape *a, const struct shape *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->a_turned == b->a_turned && a->b_turned == b->b_turned &&
           a->adds == b->adds && a->from == b->from && a->to == b->to;
}

static struct chosen *kept(const struct shape *s, uint64_t bucket)
{
    struct chosen *c = atomic_load(&table[bucket]);
    while (c && !same(&c->s, s)) c = c->next;
    return c;
}

/* Shapes that have no algorithm are kept too. NULL: no memory. */
static struct chosen *chosen_for(const struct shape *s)
{
    const uint64_t bucket = ((uint64_t)s->m * 31 + (uint64_t)s->n * 1009 + (uint64_t)s->k * 65537) % BUCKETS;
    struct chosen *c = kept(s, bucket);
    if (c) return c;
    pthread_mutex_lock(&one);
    c = kept(s, bucket);
    if (!c && (c = calloc(1, sizeof *c))) {
        c->s = *s;
        c->next = atomic_load(&table[bucket]);
        chooses(c);
        atomic_store(&table[bucket], c);
    }
    pthread_mutex_unlock(&one);
    return c;
}

static int multiply(const struct shape *s, const void *a, const void *b, void *d)
{
    const float alpha = 1, beta = (float)s->adds;
    void *work = NULL;
    if (s->m == 0 || s->n == 0 || s->k == 0 || ((uintptr_t)a | (uintptr_t)b | (uintptr_t)d) % ALIGN_B) return 0;
    pthread_once(&once, blas_open);
    const struct chosen *c = lt.here ? chosen_for(s) : NULL;
    if (!c || !c->found) return 0;
    if (c->work_B && device_scratch_new(&work, (int64_t)c->work_B)) return 0;
    const cublasStatus_t e = lt.cublasLtMatmul(lt.handle, c->desc, &alpha, a, c->a, b, c->b, &beta, d, c->d, d, c->d,
                                               &c->algo, work, c->work_B, device_stream());
    if (work) device_scratch_free(work);
    return e == CUBLAS_STATUS_SUCCESS;
}

/* y^T [out, rows] = w x^T. */
int blas_gemm(void *y, const void *x, const void *w, int64_t rows, int out, int in, enum dtype t, enum dtype to)
{
    const struct shape s = { .m = out, .n = rows, .k = in, .a_turned = 1, .from = t, .to = to };
    return multiply(&s, w, x, y);
}

/* dx^T [in, rows] = w^T dy^T. */
int blas_dgrad(void *dx, const void *dy, const void *w, int64_t rows, int out, int in, enum dtype t)
{
    const struct shape s = { .m = in, .n = rows, .k = out, .from = t, .to = t };
    return multiply(&s, w, dy, dx);
}

/* g^T [in, out] += x^T dy. */
int blas_wgrad(float *g, const void *x, const void *dy, int64_t rows, int out, int in, enum dtype t)
{
    const struct shape s = { .m = in, .n = out, .k = rows, .b_turned = 1, .adds = 1, .from = t, .to = DT_F32 };
    return multiply(&s, x, dy, g);
}
