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

/* Lines of memory that the next panel will be packed from: runs of `per` lines, `step` floats apart. They are asked for a few
 * at a time while this panel's products run: all at once would fill the queue of misses. */
enum { TILE_LINE = 16, TILE_ASK = 16 }; /* floats of a line; rows of a panel between two askings */
struct tile_next {
    const float *p;
    int64_t step;
    int per, lines, at; /* in a run, left; of the run that p is in */
};

/* Of b's first nk rows and TILE_COLS columns. */
static inline struct tile_next tile_next(struct tile_matrix b, int nk)
{
    const int turned = b.row == 1, per = ((turned ? nk : TILE_COLS) + TILE_LINE - 1) / TILE_LINE;
    return (struct tile_next){b.p, turned ? b.col : b.row, per, per * (turned ? TILE_COLS : nk), 0};
}

static inline void tile_ask(struct tile_next *x, int n)
{
    for (; n > 0 && x->lines > 0; n--, x->lines--) {
        __builtin_prefetch(x->p + x->at * TILE_LINE);
        if (++x->at == x->per) x->at = 0, x->p += x->step;
    }
}

static inline __attribute__((always_inline)) void tile_some(float *c, int64_t ldc, const struct tile_matrix a,
                                                            const tile_vec *panel, int nk, int nn, int add,
                                                            const int rows, const int vecs, struct tile_next *next,
                                                            int ask)
{
    tile_vec s[TILE_ROWS][TILE_VECS] = {0};
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++) __builtin_prefetch(c + r * ldc + v * TILE_LANES, 1);
    for (int k = 0; k < nk; k++, panel += vecs) {
        const float *at = a.p + k * a.col;
        if (k % TILE_ASK == 0) tile_ask(next, ask);
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
                                                           int add, const int vecs, struct tile_next next)
{
    const int64_t askings = (nm + TILE_ROWS - 1) / TILE_ROWS * ((nk + TILE_ASK - 1) / TILE_ASK);
    const int ask = next.lines ? (int)(next.lines / (askings ? askings : 1)) + 1 : 0;
    int64_t m = 0;
    for (; m + TILE_ROWS <= nm; m += TILE_ROWS, c += TILE_ROWS * ldc, a.p += TILE_ROWS * a.row)
        tile_some(c, ldc, a, panel, nk, nn, add, TILE_ROWS, vecs, &next, ask);
    for (; m + 2 <= nm; m += 2, c += 2 * ldc, a.p += 2 * a.row)
        tile_some(c, ldc, a, panel, nk, nn, add, 2, vecs, &next, ask);
    if (m < nm) tile_some(c, ldc, a, panel, nk, nn, add, 1, vecs, &next, ask);
}

/* c [nm, nn] (+)= a [nm, nk] times a panel; rows of c are ldc apart. `next`: what will be packed next, or {0}. */
static inline void tile_product_next(float *c, int64_t ldc, struct tile_matrix a, const tile_vec *panel, int nk,
                                     int64_t nm, int nn, int add, struct tile_next next)
{
    if (tile_vecs(nn) == 1) tile_all(c, ldc, a, panel, nk, nm, nn, add, 1, next);
    else tile_all(c, ldc, a, panel, nk, nm, nn, add, TILE_VECS, next);
}

static inline void tile_product(float *c, int64_t ldc, struct tile_matrix a, const tile_vec *panel, int nk,
                                int64_t nm, int nn, int add)
{
    tile_product_next(c, ldc, a, panel, nk, nm, nn, add, (struct tile_next){0});
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

/* Four floats each of the rows 0, 4, 8, .. of what lies `row` apart, side by side: loads do half of a transposition. */
typedef float tile_four __attribute__((vector_size(16), aligned(4), may_alias));
static inline tile_vec tile_fours(const float *p, int64_t row)
{
#if defined __AVX512F__
    const tile_four a = *(const tile_four *)p, b = *(const tile_four *)(p + 4 * row), c = *(const tile_four *)(p + 8 * row),
                    d = *(const tile_four *)(p + 12 * row);
    return __builtin_shufflevector(__builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7),
                                   __builtin_shufflevector(c, d, 0, 1, 2, 3, 4, 5, 6, 7), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
                                   13, 14, 15);
#elif defined __AVX__
    const tile_four a = *(const tile_four *)p, b = *(const tile_four *)(p + 4 * row);
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
#else
    (void)row;
    return *(const tile_vec *)p;
#endif
}

/* Of every four lanes those of x and of y in turn, from the `at`-th pair: x0 y0 x1 y1, or x2 y2 x3 y3; or (pairs) two of each:
 * x0 x1 y0 y1, or x2 x3 y2 y3. */
static inline tile_vec tile_zip(tile_vec x, tile_vec y, int at, int pairs)
{
    tile_mask m;
    for (int j = 0; j < TILE_LANES; j++) {
        const int four = j / 4 * 4, i = j % 4, from = pairs ? i % 2 : i / 2, of_y = pairs ? i / 2 : i % 2;
        m[j] = four + 2 * at + from + (of_y ? TILE_LANES : 0);
    }
    return tile_pick(x, y, m);
}

/* TILE_LANES columns of b that lie along its rows: four rows of the panel at a time. */
static inline void tile_pack_turned(tile_vec *panel, struct tile_matrix b, int nk, int vecs)
{
    int k = 0;
    for (; k + 4 <= nk; k += 4) {
        const float *from = b.p + k;
        const tile_vec v0 = tile_fours(from, b.col), v1 = tile_fours(from + b.col, b.col),
                       v2 = tile_fours(from + 2 * b.col, b.col), v3 = tile_fours(from + 3 * b.col, b.col);
        const tile_vec a = tile_zip(v0, v1, 0, 0), c = tile_zip(v2, v3, 0, 0), e = tile_zip(v0, v1, 1, 0),
                       g = tile_zip(v2, v3, 1, 0);
        panel[k * vecs] = tile_zip(a, c, 0, 1);
        panel[(k + 1) * vecs] = tile_zip(a, c, 1, 1);
        panel[(k + 2) * vecs] = tile_zip(e, g, 0, 1);
        panel[(k + 3) * vecs] = tile_zip(e, g, 1, 1);
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
