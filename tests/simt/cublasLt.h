/* Stands in for cuBLASLt's header under the emulation: the part of the library that exec/blas_cuda.c uses, in plain
 * loops, for column-major float32 and bfloat16. Meanings as in the cuBLAS documentation. As the real one may, it has
 * no algorithm for some shapes: those whose m is no multiple of 8. */
#ifndef TESTS_SIMT_CUBLASLT_H
#define TESTS_SIMT_CUBLASLT_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SIMT_CUBLASLT
typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_NOT_SUPPORTED = 15
} cublasStatus_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
typedef enum { CUDA_R_32F = 0, CUDA_R_16BF = 14 } cudaDataType_t;
typedef enum { CUBLAS_COMPUTE_32F = 68 } cublasComputeType_t;
typedef enum { CUBLASLT_MATMUL_DESC_TRANSA = 3, CUBLASLT_MATMUL_DESC_TRANSB = 4 } cublasLtMatmulDescAttributes_t;
typedef enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
} cublasLtMatmulPreferenceAttributes_t;
typedef struct {
    cublasOperation_t a, b;
} * cublasLtMatmulDesc_t;
typedef struct {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
} * cublasLtMatrixLayout_t;
typedef struct {
    int any;
} * cublasLtHandle_t, *cublasLtMatmulPreference_t;
typedef struct {
    int any;
} cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
} cublasLtMatmulHeuristicResult_t;

static inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    static int any;
    *h = (cublasLtHandle_t)(void *)&any;
    return CUBLAS_STATUS_SUCCESS;
}

static inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                                      cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    *d = calloc(1, sizeof **d);
    return CUBLAS_STATUS_SUCCESS;
}

static inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a,
                                                            const void *x, size_t size_B)
{
    if (size_B != sizeof d->a) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(a == CUBLASLT_MATMUL_DESC_TRANSA ? &d->a : &d->b, x, size_B);
    return CUBLAS_STATUS_SUCCESS;
}

static inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t type, uint64_t rows,
                                                        uint64_t cols, int64_t ld)
{
    if (ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    *l = calloc(1, sizeof **l);
    (*l)->type = type, (*l)->rows = rows, (*l)->cols = cols, (*l)->ld = ld;
    return CUBLAS_STATUS_SUCCESS;
}

static inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = calloc(1, sizeof **p);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                                  cublasLtMatmulPreferenceAttributes_t a,
                                                                  const void *x, size_t size_B)
{
    (void)p, (void)x;
    return size_B == (a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4) ? CUBLAS_STATUS_SUCCESS
                                                                             : CUBLAS_STATUS_INVALID_VALUE;
}
static inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

/* op(A) [m, k], op(B) [k, n], D [m, n]; one type in. */
static inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                                                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                                            cublasLtMatmulPreference_t p, int most,
                                                            cublasLtMatmulHeuristicResult_t *best, int *n)
{
    (void)h, (void)p, (void)most;
    *n = 0;
    const uint64_t m = d->a ? a->cols : a->rows, k = d->a ? a->rows : a->cols;
    const int fits =
        c == out && m == out->rows && k == (d->b ? b->cols : b->rows) && (d->b ? b->rows : b->cols) == out->cols;
    if (!fits || a->type != b->type) return CUBLAS_STATUS_INVALID_VALUE;
    if (m % 8) return CUBLAS_STATUS_NOT_SUPPORTED;
    best->workspaceSize = 64;
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static inline float simt_lt_at(const void *p, cudaDataType_t t, int64_t i)
{
    uint32_t bits;
    float x;
    if (t == CUDA_R_32F) return ((const float *)p)[i];
    bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline void simt_lt_put(void *p, cudaDataType_t t, int64_t i, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (t == CUDA_R_32F) ((float *)p)[i] = x;
    else ((uint16_t *)p)[i] = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
                                            const void *a, cublasLtMatrixLayout_t la, const void *b,
                                            cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                                            cublasLtMatrixLayout_t lc, void *out, cublasLtMatrixLayout_t lo,
                                            const cublasLtMatmulAlgo_t *algo, void *work, size_t work_B, void *stream)
{
    const int64_t k_n = (int64_t)(d->a ? la->rows : la->cols);
    (void)h, (void)lc, (void)algo, (void)stream;
    if (*(const float *)alpha != 1 || c != out || !work || work_B < 64) return CUBLAS_STATUS_INVALID_VALUE;
    for (int64_t j = 0; j < (int64_t)lo->cols; j++)
        for (int64_t i = 0; i < (int64_t)lo->rows; i++) {
            double sum =
                *(const float *)beta ? *(const float *)beta * (double)simt_lt_at(c, lo->type, i + j * lo->ld) : 0;
            for (int64_t k = 0; k < k_n; k++)
                sum += (double)simt_lt_at(a, la->type, d->a ? k + i * la->ld : i + k * la->ld) *
                       (double)simt_lt_at(b, lb->type, d->b ? j + k * lb->ld : k + j * lb->ld);
            simt_lt_put(out, lo->type, i + j * lo->ld, (float)sum);
        }
    return CUBLAS_STATUS_SUCCESS;
}

static inline void *simt_cublaslt(void *so, const char *name)
{
#define X(f) { #f, (void *)(uintptr_t)f },
    static const struct {
        const char *name;
        void *at;
    } all[] = { X(cublasLtCreate) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescSetAttribute)
                    X(cublasLtMatrixLayoutCreate) X(cublasLtMatmulPreferenceCreate)
                        X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulPreferenceDestroy)
                            X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul) };
#undef X
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (so && strcmp(all[i].name, name) == 0) return all[i].at;
    return NULL;
}

#endif
