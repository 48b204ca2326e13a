/* The three products of a linear layer, plain and grouped by expert, from group sizes that stay on the device. A block makes
 * a 128 x 128 tile of one group's result; 64 bytes of the inner index at a time wait in shared memory, three steps deep.
 * bfloat16 goes through tensor cores; float32, kept for checking folds against the CPU, through the same tiles and the same
 * places of the result by plain multiplication. */
extern "C" {
#include "kernels/gemm.h"
}
#include "kernels/mma.cuh"

enum {
    SIDE = 128, STEP_B = 64,            /* of a tile; of the inner index, per step                                          */
    STEPS = 3,                          /* in shared memory at once                                                         */
    PAD_B = 16,                         /* after each row there: rows of 8 x 8 matrices then start in different banks       */
    PANEL_B = SIDE * (STEP_B + PAD_B), SHARED_B = STEPS * 2 * PANEL_B,
    ACROSS = 2, DOWN = 4,               /* a warp's 64 x 32 of the tile: 4 x 4 pieces of 16 x 8                             */
    ROWS = 4, COLS = 4
};

/* An operand as (index of the result, inner index): `inner` says whether the inner index is the contiguous one. `ld` numbers
 * from one row of memory to the next; n, k: how many there are. */
template <typename T> struct gemm_side { const T *p; int64_t ld, n, k; bool wide; };

/* Columns of a panel in shared memory, and its row length. */
template <typename T, bool INNER> struct gemm_panel {
    static constexpr int step = STEP_B / sizeof(T), cols = INNER ? step : SIDE, rows = INNER ? SIDE : step;
    static constexpr int pitch = cols + PAD_B / (int)sizeof(T);
    static_assert(rows * pitch * (int)sizeof(T) <= PANEL_B, "a panel fits");
};

/* One step of a side, from index n0 and inner index k0, into shared memory; what lies outside becomes zero. */
template <typename T, bool INNER> static __device__ void gemm_fetch(T *to, gemm_side<T> s, int64_t n0, int64_t k0)
{
    using P = gemm_panel<T, INNER>;
    constexpr int V = 16 / sizeof(T);
    const int64_t row_end = INNER ? s.n : s.k, col_end = INNER ? s.k : s.n;
    for (int i = threadIdx.x; i < P::rows * P::cols / V; i += CU_WIDTH) {
        const int r = i / (P::cols / V), c = i % (P::cols / V) * V;
        const int64_t row = (INNER ? n0 : k0) + r, col = (INNER ? k0 : n0) + c, left = row < row_end ? col_end - col : 0;
        const int n = left < 0 ? 0 : left < V ? (int)left : V;
        const T *from = n ? s.p + row * s.ld + col : s.p;
        T *at = to + r * P::pitch + c;
        if (s.wide) mma_copy(at, from, n * (int)sizeof(T));
        else
            for (int k = 0; k < V; k++) at[k] = k < n ? from[k] : cu_from<T>(0);
    }
}

/* Where a lane's row of the four matrices at (n0, k0) begins: of an a fragment they lie (n, k), (n + 8, k), (n, k + 8), ..,
 * of two b fragments (n, k), (n, k + 8), (n + 8, k), ... */
template <bool INNER, bool IS_A> static __device__ const cu_bf16 *gemm_rows(const cu_bf16 *panel, int n0, int k0)
{
    using P = gemm_panel<cu_bf16, INNER>;
    const int matrix = cu_lane() / 8, row = cu_lane() % 8;
    const int n = n0 + (IS_A ? matrix % 2 : matrix / 2) * 8, k = k0 + (IS_A ? matrix / 2 : matrix % 2) * 8;
    return INNER ? panel + (n + row) * P::pitch + k : panel + (k + row) * P::pitch + n;
}

template <bool A_INNER, bool B_INNER>
static __device__ void gemm_multiply(float c[ROWS][COLS][4], const cu_bf16 *a, const cu_bf16 *b, int m0, int n0)
{
    for (int k = 0; k < STEP_B / 2; k += 16) {
        uint32_t fa[ROWS][4], fb[COLS / 2][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++) mma_load<!A_INNER>(fa[i], gemm_rows<A_INNER, true>(a, m0 + i * 16, k));
#pragma unroll
        for (int i = 0; i < COLS / 2; i++) mma_load<!B_INNER>(fb[i], gemm_rows<B_INNER, false>(b, n0 + i * 16, k));
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLS; j++) mma_add(c[i][j], fa[i], fb[j / 2] + j % 2 * 2);
    }
}

template <bool INNER> static __device__ float gemm_at(const float *panel, int n, int k)
{
    using P = gemm_panel<float, INNER>;
    return INNER ? panel[n * P::pitch + k] : panel[k * P::pitch + n];
}

template <bool A_INNER, bool B_INNER>
static __device__ void gemm_multiply(float c[ROWS][COLS][4], const float *a, const float *b, int m0, int n0)
{
    for (int k = 0; k < STEP_B / 4; k++) {
        float fa[ROWS][2], fb[COLS][2];
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++)
            fa[i / 2][i % 2] = gemm_at<A_INNER>(a, m0 + i / 2 * 16 + mma_row(cu_lane(), i % 2 * 2), k);
#pragma unroll
        for (int i = 0; i < 2 * COLS; i++) fb[i / 2][i % 2] = gemm_at<B_INNER>(b, n0 + i / 2 * 8 + mma_col(cu_lane(), i % 2), k);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLS; j++)
#pragma unroll
                for (int q = 0; q < 4; q++) c[i][j][q] += fa[i][q / 2] * fb[j][q % 2];
    }
}

/* out [a.n, b.n] of pitch b.n = or += a b^T, the tile at (m0, n0). */
template <typename T, typename O, bool A_INNER, bool B_INNER, bool ADD>
static __device__ void gemm_tile(O *out, gemm_side<T> a, gemm_side<T> b, int64_t m0, int64_t n0)
{
    constexpr int step = STEP_B / sizeof(T);
    const int64_t steps = (a.k + step - 1) / step;
    const int m1 = cu_warp() % ACROSS * (SIDE / ACROSS), n1 = cu_warp() / ACROSS * (SIDE / DOWN);
    float c[ROWS][COLS][4] = {};
    const auto panel = [](int64_t i, int side) { return (T *)(cu_shared() + (i % STEPS * 2 + side) * PANEL_B); };
    const auto fetch = [&](int64_t i) {
        if (i < steps) {
            gemm_fetch<T, A_INNER>(panel(i, 0), a, m0, i * step);
            gemm_fetch<T, B_INNER>(panel(i, 1), b, n0, i * step);
        }
        mma_copy_commit();              /* also when there is nothing: the waits below count groups */
    };
    for (int i = 0; i < STEPS - 1; i++) fetch(i);
    for (int64_t i = 0; i < steps; i++) {
        mma_copy_wait<STEPS - 2>();
        __syncthreads();                /* step i is there for all, and step i - 1, overwritten next, is read */
        fetch(i + STEPS - 1);
        gemm_multiply<A_INNER, B_INNER>(c, panel(i, 0), panel(i, 1), m1, n1);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLS; j++)
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const int64_t m = m0 + m1 + i * 16 + mma_row(cu_lane(), q), n = n0 + n1 + j * 8 + mma_col(cu_lane(), q);
                if (m >= a.n || n >= b.n) continue;
                O *to = &out[m * b.n + n];
                *to = cu_from<O>(ADD ? cu_float(*to) + c[i][j][q] : c[i][j][q]);
            }
}

/* ---- which tile of which group ---- */

struct gemm_groups { const int32_t *start; int experts; int64_t rows; };    /* start NULL: one group of all rows */

/* The rows of group e; none of it lies behind the rows that there are. */
static __device__ int64_t gemm_first(gemm_groups g, int e)
{
    const int64_t first = !g.start ? (e ? g.rows : 0) : g.start[e];
    return first < g.rows ? first : g.rows;
}

struct gemm_place { int expert; int64_t tile; };

/* Which group the tile-th stripe of SIDE rows belongs to, and its number there; expert -1: there are fewer. Every warp looks
 * through 32 groups at once. */
static __device__ gemm_place gemm_find(gemm_groups g, int64_t tile)
{
    for (int e0 = 0; e0 < g.experts; e0 += CU_WARP) {
        const int e = e0 + cu_lane();
        const int own = e < g.experts ? (int)((gemm_first(g, e + 1) - gemm_first(g, e) + SIDE - 1) / SIDE) : 0;
        int end = own;
        for (int by = 1; by < CU_WARP; by *= 2) {
            const int before = __shfl_up_sync(CU_ALL, end, by);
            if (cu_lane() >= by) end += before;
        }
        const unsigned beyond = __ballot_sync(CU_ALL, end > tile);
        const int at = beyond ? __ffs(beyond) - 1 : CU_WARP - 1;
        const int end_at = __shfl_sync(CU_ALL, end, at), own_at = __shfl_sync(CU_ALL, own, at);
        if (beyond) return { e0 + at, tile - (end_at - own_at) };
        tile -= end_at;
    }
    return { -1, 0 };
}

/* y [rows, out] from x [rows, in] by w [out, in] of the rows' group; or, W_INNER false, from dy [rows, out] to dx [rows, in]. */
template <typename T, typename O, bool W_INNER>
static __global__ void __launch_bounds__(CU_WIDTH, 2)
    gemm_rows_kernel(O *y, const T *x, const T *w, gemm_groups g, int n, int k, bool wide)
{
    const gemm_place at = gemm_find(g, blockIdx.x);
    if (at.expert < 0) return;
    const int64_t first = gemm_first(g, at.expert), rows = gemm_first(g, at.expert + 1) - first;
    const gemm_side<T> a = { x + first * k, k, rows, k, wide };
    const gemm_side<T> b = { w + (int64_t)at.expert * n * k, W_INNER ? k : n, n, k, wide };
    gemm_tile<T, O, true, W_INNER, false>(y + first * n, a, b, at.tile * SIDE, (int64_t)blockIdx.y * SIDE);
}

/* g [out, in] of a group += dy^T x over its rows; a group without rows is left alone. */
template <typename T>
static __global__ void __launch_bounds__(CU_WIDTH, 2)
    gemm_wgrad_kernel(float *to, const T *x, const T *dy, gemm_groups g, int out, int in, bool wide)
{
    const int e = blockIdx.z;
    const int64_t first = gemm_first(g, e), rows = gemm_first(g, e + 1) - first;
    if (rows <= 0) return;
    const gemm_side<T> a = { dy + first * out, out, out, rows, wide }, b = { x + first * in, in, in, rows, wide };
    gemm_tile<T, float, false, false, true>(to + (int64_t)e * out * in, a, b, (int64_t)blockIdx.x * SIDE,
                                            (int64_t)blockIdx.y * SIDE);
}

/* ---- launchers ---- */

static int64_t gemm_stripes(int64_t n)
{
    return (n + SIDE - 1) / SIDE;
}

template <typename K, typename... A> static enum err gemm_go(K *kernel, dim3 blocks, kstream s, A... args)
{
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_B);
    cu_launch(kernel, blocks, CU_WIDTH, SHARED_B, s, args...);
    return cu_answer();
}

/* Stripes of rows: each group may have one that is not full. */
static dim3 gemm_blocks(const gemm_groups &g, int n)
{
    return dim3((unsigned)(gemm_stripes(g.rows) + g.experts), (unsigned)gemm_stripes(n));
}

static gemm_groups gemm_make_groups(const int32_t *start, int experts, int64_t rows)
{
    return { start, start ? experts : 1, rows };
}

extern "C" enum err gemm_grouped_cuda(void *y, const void *x, const void *w, const int32_t *start, int experts, int64_t rows,
                                      int out, int in, enum dtype t, enum dtype to, kstream s)
{
    const gemm_groups g = gemm_make_groups(start, experts, rows);
    const dim3 blocks = gemm_blocks(g, out);
    if (rows == 0 || out == 0) return OK;
    if (to != t && to != DT_F32) return ERR_LIMIT;
    return cu_type(t, [=](auto zero) {
        using T = decltype(zero);
        const bool wide = cu_wide<T>(in, (T *)x, (T *)w);
        if (to == t) return gemm_go(gemm_rows_kernel<T, T, true>, blocks, s, (T *)y, (const T *)x, (const T *)w, g, out, in, wide);
        return gemm_go(gemm_rows_kernel<T, float, true>, blocks, s, (float *)y, (const T *)x, (const T *)w, g, out, in, wide);
    });
}

extern "C" enum err gemm_grouped_dgrad_cuda(void *dx, const void *dy, const void *w, const int32_t *start, int experts,
                                            int64_t rows, int out, int in, enum dtype t, kstream s)
{
    const gemm_groups g = gemm_make_groups(start, experts, rows);
    if (rows == 0 || in == 0) return OK;
    return cu_type(t, [=](auto zero) {
        using T = decltype(zero);
        const bool wide = cu_wide<T>(out, (T *)dy) && cu_wide<T>(in, (T *)w);
        return gemm_go(gemm_rows_kernel<T, T, false>, gemm_blocks(g, in), s, (T *)dx, (const T *)dy, (const T *)w, g, in, out,
                       wide);
    });
}

extern "C" enum err gemm_grouped_wgrad_cuda(float *to, const void *x, const void *dy, const int32_t *start, int experts,
                                            int64_t rows, int out, int in, enum dtype t, kstream s)
{
    const gemm_groups g = gemm_make_groups(start, experts, rows);
    const dim3 blocks((unsigned)gemm_stripes(out), (unsigned)gemm_stripes(in), (unsigned)g.experts);
    if (rows == 0 || out == 0 || in == 0) return OK;
    return cu_type(t, [=](auto zero) {
        using T = decltype(zero);
        const bool wide = cu_wide<T>(out, (T *)dy) && cu_wide<T>(in, (T *)x);
        return gemm_go(gemm_wgrad_kernel<T>, blocks, s, to, (const T *)x, (const T *)dy, g, out, in, wide);
    });
}
