/* The products at the speed of the machine: gemm_ref.c's loop nest over tiles that the registers hold (tile.h).
 * A panel of b is packed once for each block of the inner index and met by all rows of a; it stays in the first
 * cache. */
#include "kernels/kernels.h"
#include "kernels/tile.h"

enum { GEMM_INNER = 256 };

/* The panel after that of column n0 and row k0 of b [k, n]; none after the last. */
static struct tile_next gemm_next(struct tile_matrix b, int64_t n, int64_t k, int64_t n0, int64_t k0)
{
    const int64_t n1 = n0 + TILE_COLS < n ? n0 + TILE_COLS : 0, k1 = n1 ? k0 : k0 + GEMM_INNER;
    const int nk = k - k1 < GEMM_INNER ? (int)(k - k1) : GEMM_INNER;
    return k1 < k ? tile_next((struct tile_matrix){b.p + k1 * b.row + n1 * b.col, b.row, b.col}, nk) : (struct tile_next){0};
}

/* c [m, n] = or += (add) a b. */
static void gemm_product(float *c, struct tile_matrix a, struct tile_matrix b, int64_t m, int64_t n, int64_t k,
                         int add)
{
    tile_vec panel[GEMM_INNER * TILE_VECS];
    for (int64_t k0 = 0; k0 < k; k0 += GEMM_INNER) {
        const int nk = k - k0 < GEMM_INNER ? (int)(k - k0) : GEMM_INNER;
        const struct tile_matrix from = {a.p + k0 * a.col, a.row, a.col};
        for (int64_t n0 = 0; n0 < n; n0 += TILE_COLS) {
            const int nn = n - n0 < TILE_COLS ? (int)(n - n0) : TILE_COLS;
            tile_pack(panel, (struct tile_matrix){b.p + k0 * b.row + n0 * b.col, b.row, b.col}, nk, nn);
            tile_product_next(c + n0, n, from, panel, nk, m, nn, add || k0 > 0, gemm_next(b, n, k, n0, k0));
        }
    }
}

enum err gemm_cpu(float *y, const float *x, const float *w, int64_t rows, int out, int in)
{
    gemm_product(y, (struct tile_matrix){x, in, 1}, (struct tile_matrix){w, 1, in}, rows, out, in, 0);
    return OK;
}

enum err gemm_dgrad_cpu(float *dx, const float *dy, const float *w, int64_t rows, int out, int in)
{
    gemm_product(dx, (struct tile_matrix){dy, out, 1}, (struct tile_matrix){w, in, 1}, rows, in, out, 0);
    return OK;
}

enum err gemm_wgrad_cpu(float *g, const float *x, const float *dy, int64_t rows, int out, int in)
{
    gemm_product(g, (struct tile_matrix){dy, 1, out}, (struct tile_matrix){x, in, 1}, out, in, rows, 1);
    return OK;
}

enum err gemm_grouped_cpu(float *y, const float *x, const float *w, const int64_t *count, int experts, int out,
                          int in)
{
    for (int e = 0; e < experts; y += count[e] * out, x += count[e] * in, e++)
        if (count[e]) gemm_cpu(y, x, w + (int64_t)e * out * in, count[e], out, in);
    return OK;
}

enum err gemm_grouped_dgrad_cpu(float *dx, const float *dy, const float *w, const int64_t *count, int experts,
                                int out, int in)
{
    for (int e = 0; e < experts; dx += count[e] * in, dy += count[e] * out, e++)
        if (count[e]) gemm_dgrad_cpu(dx, dy, w + (int64_t)e * out * in, count[e], out, in);
    return OK;
}

enum err gemm_grouped_wgrad_cpu(float *g, const float *x, const float *dy, const int64_t *count, int experts,
                                int out, int in)
{
    for (int e = 0; e < experts; x += count[e] * in, dy += count[e] * out, e++)
        if (count[e]) gemm_wgrad_cpu(g + (int64_t)e * out * in, x, dy, count[e], out, in);
    return OK;
}
