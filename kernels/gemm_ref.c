/* One loop nest serves the three products: c [m, n] (+)= sum over k of a(m, k) b(k, n), operands read through
 * strides. A panel of b, VEC_N columns wide, is packed once per block of the inner index and met by four rows
 * of a at a time: that keeps it in the first cache and the four sums in registers, which is all a reference
 * needs to train on. */
#include "kernels/gemm.h"
#include "kernels/vec.h"

enum { GEMM_INNER = 256, GEMM_ROWS = 4 };

/* Element (i, j) is p[i * row + j * col]. */
struct gemm_matrix {
    const float *p;
    int64_t row, col;
};

static void gemm_pack(vec *panel, struct gemm_matrix b, int64_t k0, int nk, int64_t n0, int nn)
{
    for (int k = 0; k < nk; k++) {
        const float *from = b.p + (k0 + k) * b.row + n0 * b.col;
        vec v = {0};
        for (int n = 0; n < nn; n++) v[n] = from[n * b.col];
        panel[k] = v;
    }
}

/* c[0..nm) [0..nn) += a[0..nm) panel; the rows beyond nm are computed as copies of the first and dropped. */
static void gemm_tile(float *c, int64_t ldc, struct gemm_matrix a, const vec *panel, int nk, int nm, int nn)
{
    const float *a0 = a.p, *a1 = a.p + (nm > 1) * a.row, *a2 = a.p + (nm > 2) * 2 * a.row,
                *a3 = a.p + (nm > 3) * 3 * a.row;
    vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    for (int k = 0; k < nk; k++) {
        const vec b = panel[k];
        const int64_t at = k * a.col;
        s0 += a0[at] * b, s1 += a1[at] * b, s2 += a2[at] * b, s3 += a3[at] * b;
    }
    const vec sum[GEMM_ROWS] = {s0, s1, s2, s3};
    for (int m = 0; m < nm; m++)
        for (int n = 0; n < nn; n++) c[m * ldc + n] += sum[m][n];
}

static int gemm_min(int64_t a, int b)
{
    return a < b ? (int)a : b;
}

static void gemm_add(float *c, struct gemm_matrix a, struct gemm_matrix b, int64_t m, int64_t n, int64_t k)
{
    vec panel[GEMM_INNER];
    for (int64_t k0 = 0; k0 < k; k0 += GEMM_INNER) {
        const int nk = gemm_min(k - k0, GEMM_INNER);
        for (int64_t n0 = 0; n0 < n; n0 += VEC_N) {
            const int nn = gemm_min(n - n0, VEC_N);
            gemm_pack(panel, b, k0, nk, n0, nn);
            for (int64_t m0 = 0; m0 < m; m0 += GEMM_ROWS) {
                const struct gemm_matrix at = {a.p + m0 * a.row + k0 * a.col, a.row, a.col};
                gemm_tile(c + m0 * n + n0, n, at, panel, nk, gemm_min(m - m0, GEMM_ROWS), nn);
            }
        }
    }
}

static void gemm_zero(float *c, int64_t n)
{
    for (int64_t i = 0; i < n; i++) c[i] = 0;
}

enum err gemm_ref(float *y, const float *x, const float *w, int64_t rows, int out, int in)
{
    gemm_zero(y, rows * out);
    gemm_add(y, (struct gemm_matrix){x, in, 1}, (struct gemm_matrix){w, 1, in}, rows, out, in);
    return OK;
}

enum err gemm_dgrad_ref(float *dx, const float *dy, const float *w, int64_t rows, int out, int in)
{
    gemm_zero(dx, rows * in);
    gemm_add(dx, (struct gemm_matrix){dy, out, 1}, (struct gemm_matrix){w, in, 1}, rows, in, out);
    return OK;
}

enum err gemm_wgrad_ref(float *g, const float *x, const float *dy, int64_t rows, int out, int in)
{
    gemm_add(g, (struct gemm_matrix){dy, 1, out}, (struct gemm_matrix){x, in, 1}, out, in, rows);
    return OK;
}

enum err gemm_grouped_ref(float *y, const float *x, const float *w, const int64_t *count, int experts,
                          int out, int in)
{
    for (int e = 0; e < experts; y += count[e] * out, x += count[e] * in, e++)
        gemm_ref(y, x, w + (int64_t)e * out * in, count[e], out, in);
    return OK;
}

enum err gemm_grouped_dgrad_ref(float *dx, const float *dy, const float *w, const int64_t *count, int experts,
                                int out, int in)
{
    for (int e = 0; e < experts; dx += count[e] * in, dy += count[e] * out, e++)
        gemm_dgrad_ref(dx, dy, w + (int64_t)e * out * in, count[e], out, in);
    return OK;
}

enum err gemm_grouped_wgrad_ref(float *g, const float *x, const float *dy, const int64_t *count, int experts,
                                int out, int in)
{
    for (int e = 0; e < experts; x += count[e] * in, dy += count[e] * out, e++)
        gemm_wgrad_ref(g + (int64_t)e * out * in, x, dy, count[e], out, in);
    return OK;
}
