/* Inside the fast CPU kernels: one tile of a matrix product, c [m, n] (+)= sum over k of a(m, k) b(k, n), with a
 * panel of b packed so that a row of it is one or two short vectors. Compiled once for every instruction set
 * (kernels.h), whose registers decide the tile. Every element is one chain of multiply-adds over k in rising
 * order, whatever its tile: a row of c does not depend on the rows beside it. */
#ifndef KERNELS_TILE_H
#define KERNELS_TILE_H
#include <stdint.h>

/* A vector is a register. Eight independent sums at the least hide the latency of a multiply-add; with their
 * operands they fit in 32 registers (AVX-512) or 16. */
#if defined __AVX512F__
enum { TILE_LANES = 16, TILE_ROWS = 8, TILE_VECS = 2 };
#elif defined __AVX__
enum { TILE_LANES = 8, TILE_ROWS = 6, TILE_VECS = 2 };
#else
enum { TILE_LANES = 4, TILE_ROWS = 4, TILE_VECS = 2 };
#endif
typedef float tile_vec __attribute__((vector_size(4 * TILE_LANES), aligned(4), may_alias));
typedef int32_t tile_mask __attribute__((vector_size(4 * TILE_LANES)));
enum { TILE_COLS = TILE_LANES * TILE_VECS };

/* Element (i, j) is p[i * row + j * col]. */
struct tile_matrix {
    const float *p;
    int64_t row, col;
};

/* Vectors in a row of a panel of nn columns, nn <= TILE_COLS. */
static inline int tile_vecs(int nn)
{
    return nn > TILE_LANES ? TILE_VECS : 1;
}

static inline void tile_store(float *c, const tile_vec *s, int nn, int add)
{
    if (nn == TILE_LANES) {
        tile_vec *to = (tile_vec *)c;
        if (add) *to += *s;
        else *to = *s;
        return;
    }
    for (int n = 0; n < nn; n++) c[n] = add ? c[n] + (*s)[n] : (*s)[n];
}

static inline __attribute__((always_inline)) void tile_some(float *c, int64_t ldc, const struct tile_matrix a,
                                                            const tile_vec *panel, int nk, int nn, int add,
                                                            const int rows, const int vecs)
{
    tile_vec s[TILE_ROWS][TILE_VECS] = {0};
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++) __builtin_prefetch(c + r * ldc + v * TILE_LANES, 1);
    for (int k = 0; k < nk; k++, panel += vecs) {
        const float *at = a.p + k * a.col;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int v = 0; v < vecs; v++) s[r][v] += at[r * a.row] * panel[v];
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) {
            const int rest = nn - v * TILE_LANES;
            tile_store(c + r * ldc + v * TILE_LANES, &s[r][v], rest < TILE_LANES ? rest : TILE_LANES, add);
        }
}

static inline __attribute__((always_inline)) void tile_all(float *c, int64_t ldc, struct tile_matrix a,
                                                           const tile_vec *panel, int nk, int64_t nm, int nn,
                                                           int add, const int vecs)
{
    int64_t m = 0;
    for (; m + TILE_ROWS <= nm; m += TILE_ROWS, c += TILE_ROWS * ldc, a.p += TILE_ROWS * a.row)
        tile_some(c, ldc, a, panel, nk, nn, add, TILE_ROWS, vecs);
    for (; m + 2 <= nm; m += 2, c += 2 * ldc, a.p += 2 * a.row)
        tile_some(c, ldc, a, panel, nk, nn, add, 2, vecs);
    if (m < nm) tile_some(c, ldc, a, panel, nk, nn, add, 1, vecs);
}

/* c [nm, nn] (+)= a [nm, nk] times a panel; rows of c are ldc apart. */
static inline void tile_product(float *c, int64_t ldc, struct tile_matrix a, const tile_vec *panel, int nk,
                                int64_t nm, int nn, int add)
{
    if (tile_vecs(nn) == 1) tile_all(c, ldc, a, panel, nk, nm, nn, add, 1);
    else tile_all(c, ldc, a, panel, nk, nm, nn, add, TILE_VECS);
}

/* Lanes of x, then of y, by index. */
static inline tile_vec tile_pick(tile_vec x, tile_vec y, tile_mask at)
{
#ifdef __clang__                        /* which shuffles by constants only */
    tile_vec r;
    for (int j = 0; j < TILE_LANES; j++) r[j] = at[j] < TILE_LANES ? x[at[j]] : y[at[j] - TILE_LANES];
    return r;
#else
    return __builtin_shuffle(x, y, at);
#endif
}

/* r[i][j] becomes r[j][i]. */
static inline void tile_transpose(tile_vec r[TILE_LANES])
{
#pragma GCC unroll 4
    for (int s = TILE_LANES / 2; s > 0; s /= 2) {
        tile_mask low, high;
        for (int j = 0; j < TILE_LANES; j++) {
            low[j] = j & s ? TILE_LANES + j - s : j;
            high[j] = j & s ? TILE_LANES + j : j + s;
        }
#pragma GCC unroll 16
        for (int i = 0; i < TILE_LANES; i++) {
            if (i & s) continue;
            const tile_vec x = r[i], y = r[i + s];
            r[i] = tile_pick(x, y, low);
            r[i + s] = tile_pick(x, y, high);
        }
    }
}

/* TILE_LANES columns of b that lie along its rows: read as rows, then turned. */
static inline void tile_pack_turned(tile_vec *panel, struct tile_matrix b, int nk, int vecs)
{
    int k = 0;
    for (; k + TILE_LANES <= nk; k += TILE_LANES) {
        tile_vec r[TILE_LANES];
#pragma GCC unroll 16
        for (int n = 0; n < TILE_LANES; n++) {
            r[n] = *(const tile_vec *)(b.p + n * b.col + k);
            __builtin_prefetch(b.p + (n + TILE_COLS) * b.col + k);   /* the next panel's */
        }
        tile_transpose(r);
#pragma GCC unroll 16
        for (int n = 0; n < TILE_LANES; n++) panel[(k + n) * vecs] = r[n];
    }
    for (; k < nk; k++)
        for (int n = 0; n < TILE_LANES; n++) panel[k * vecs][n] = b.p[n * b.col + k];
}

static inline void tile_pack_some(tile_vec *panel, struct tile_matrix b, int nk, int nn, int vecs)
{
    if (nn == TILE_LANES && b.row == 1) {
        tile_pack_turned(panel, b, nk, vecs);
        return;
    }
    for (int k = 0; k < nk; k++) {
        const float *from = b.p + k * b.row;
        tile_vec v = {0};
        __builtin_prefetch(from + TILE_COLS * b.col);
        if (nn == TILE_LANES && b.col == 1) v = *(const tile_vec *)from;
        else
            for (int n = 0; n < nn; n++) v[n] = from[n * b.col];
        panel[k * vecs] = v;
    }
}

/* The panel of b's first nk rows and nn columns, nk * tile_vecs(nn) vectors; what is beyond nn is 0. */
static inline void tile_pack(tile_vec *panel, struct tile_matrix b, int nk, int nn)
{
    const int vecs = tile_vecs(nn);
    for (int v = 0; v < vecs; v++, nn -= TILE_LANES, b.p += TILE_LANES * b.col)
        tile_pack_some(panel + v, b, nk, nn < TILE_LANES ? nn : TILE_LANES, vecs);
}

#endif
