/* Flash attention (Dao, "FlashAttention-2") on tensor cores for bfloat16 heads up to 192 / 128, and the choice between it and
 * attend_any. Backward is two kernels, one that holds queries and one that holds keys: nothing is added by atomics, so a run
 * repeats, for one product more in three. Sums stay in registers; a warp holds 16 rows. */
#include "kernels/attend.cuh"

enum {
    WARPS = 4, WIDTH = WARPS * CU_WARP, HELD = WARPS * 16,      /* of a block; rows that it holds                      */
    KEYS = 64, PASSING = 32,                                    /* rows that pass by at a time: forward, backward      */
    PAD = 8                                                     /* numbers after a row: no two of eight in one bank    */
};
static constexpr float LOG2E = 1.44269504f, LN2 = 0.69314718f;

/* N rows of at most D numbers in shared memory. */
template <int D> static constexpr int attention_pitch = D + PAD;
template <int D, int N> static constexpr int attention_panel_n = N * attention_pitch<D>;

/* Row r of the panel becomes row_of(r) of a matrix, `heads` heads a row of which `head` is meant; -1: zeros. */
template <int D, int N, typename R>
static __device__ void attention_fetch(cu_bf16 *to, const cu_bf16 *from, int heads, int head, int d, bool wide, R row_of)
{
    for (int i = threadIdx.x; i < N * (D / 8); i += WIDTH) {
        const int r = i / (D / 8), c = i % (D / 8) * 8;
        const int64_t row = row_of(r);
        const int left = row < 0 ? 0 : d - c, n = left < 0 ? 0 : left < 8 ? left : 8;
        const cu_bf16 *p = n ? from + (row * heads + head) * d + c : from;
        cu_bf16 *at = to + r * attention_pitch<D> + c;
        if (wide) mma_copy(at, p, n * 2);
        else
            for (int k = 0; k < 8; k++) at[k] = k < n ? p[k] : cu_bf16{ 0 };
    }
}

/* s[j] = rows m0.. of a times rows 8 j.. of b, over D numbers. */
template <int D, int TILES> static __device__ void attention_scores(float s[TILES][4], const cu_bf16 *a, int m0, const cu_bf16 *b)
{
    const int lane = cu_lane();
#pragma unroll
    for (int j = 0; j < TILES; j++)
        for (int q = 0; q < 4; q++) s[j][q] = 0;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t fa[4], fb[4];
        mma_load<false>(fa, a + (m0 + lane % 16) * attention_pitch<D> + k + lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < TILES; j += 2) {
            mma_load<false>(fb, b + (j * 8 + lane / 16 * 8 + lane % 8) * attention_pitch<D> + k + lane / 8 % 2 * 8);
            mma_add(s[j], fa, fb);
            mma_add(s[j + 1], fa, fb + 2);
        }
    }
}

/* acc += p b: p [16, 8 TILES] as attention_scores leaves it, b [8 TILES, D]. */
template <int D, int TILES> static __device__ void attention_sums(float acc[D / 8][4], const float p[TILES][4], const cu_bf16 *b)
{
    const int lane = cu_lane();
#pragma unroll
    for (int k = 0; k < TILES; k += 2) {
        const uint32_t fa[4] = { mma_pair(p[k][0], p[k][1]), mma_pair(p[k][2], p[k][3]), mma_pair(p[k + 1][0], p[k + 1][1]),
                                 mma_pair(p[k + 1][2], p[k + 1][3]) };
        uint32_t fb[4];
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            mma_load<true>(fb, b + (k * 8 + lane % 16) * attention_pitch<D> + n * 8 + lane / 16 * 8);
            mma_add(acc[n], fa, fb);
            mma_add(acc[n + 1], fa, fb + 2);
        }
    }
}

/* Rows m0.. of what a warp summed, those below `rows`, to out; `at`: the number of its first row, `heads` apart. */
template <int D, typename S>
static __device__ void attention_write(cu_bf16 *out, const float acc[D / 8][4], int d, int heads, int head, int m0, int rows,
                                       S scale_and_row)
{
#pragma unroll
    for (int q = 0; q < 4; q += 2) {
        const int m = m0 + mma_row(cu_lane(), q);
        if (m >= rows) continue;
        float scale;
        const int64_t row = scale_and_row(m, q / 2, &scale);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int c = n * 8 + mma_col(cu_lane(), i);
                if (c < d) out[(row * heads + head) * d + c] = cu_from<cu_bf16>(acc[n][q + i] * scale);
            }
    }
}

/* What a block of queries is: HELD local rows from r0 of one sequence and one head. */
struct attention_block { int s, head, kv, r0, rows, low, high; };   /* rows there; the keys that they see, low .. high */

static __device__ attention_block attention_queries(const struct attention_shape &a)
{
    attention_block b;
    b.s = blockIdx.z, b.head = blockIdx.y, b.kv = b.head / (a.nq / a.nkv);
    b.r0 = (int)(gridDim.x - 1 - blockIdx.x) * HELD;            /* the longest first */
    b.rows = attend_local(a) - b.r0 < HELD ? attend_local(a) - b.r0 : HELD;
    b.low = attend_keys(a, b.s, b.r0).from, b.high = attend_keys(a, b.s, b.r0 + b.rows - 1).to - 1;
    return b;
}

/* What a lane's two rows see; a row that is not there stands where the last one does. */
static __device__ void attention_rows(attend_seen at[2], const struct attention_shape &a, const attention_block &b, int m0)
{
    for (int i = 0; i < 2; i++) {
        const int m = m0 + mma_row(cu_lane(), i * 2);
        at[i] = attend_keys(a, b.s, b.r0 + (m < b.rows ? m : b.rows - 1));
    }
}

/* Scores of one block of keys become probabilities to the running base; `acc` and `sum` move to the new base. */
template <int TILES, int DV>
static __device__ void attention_softmax(float s[TILES][4], float acc[DV / 8][4], float most[2], float sum[2],
                                         const attend_seen at[2], int p0, float scale2)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float now = most[i];
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int q = 2 * i; q < 2 * i + 2; q++) {
                const int p = p0 + j * 8 + mma_col(cu_lane(), q);
                s[j][q] = attend_sees(at[i], p) ? s[j][q] * scale2 : -INFINITY;
                now = fmaxf(now, s[j][q]);
            }
        now = fmaxf(now, __shfl_xor_sync(CU_ALL, now, 1));
        now = fmaxf(now, __shfl_xor_sync(CU_ALL, now, 2));
        const float base = now == -INFINITY ? 0 : now, keep = exp2f(most[i] - base);    /* nothing seen yet */
        most[i] = now;
        sum[i] *= keep;
#pragma unroll
        for (int n = 0; n < DV / 8; n++) acc[n][2 * i] *= keep, acc[n][2 * i + 1] *= keep;
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int q = 2 * i; q < 2 * i + 2; q++) {
                s[j][q] = exp2f(s[j][q] - base);
                sum[i] += s[j][q];
            }
    }
}

template <int DQK, int DV> static __global__ void __launch_bounds__(WIDTH) attention_kernel(attend_io<cu_bf16> io, bool wide)
{
    const struct attention_shape &a = io.a;
    const attention_block b = attention_queries(a);
    const int lane = cu_lane(), m0 = cu_warp() * 16;
    cu_bf16 *q = (cu_bf16 *)cu_shared(), *k = q + attention_panel_n<DQK, HELD>, *v = k + 2 * attention_panel_n<DQK, KEYS>;
    float acc[DV / 8][4] = {}, most[2], sum[2];
    attend_seen at[2];
    const auto fetch = [&](int p0) {
        const auto row = [&](int r) { return p0 + r < attention_keys(&a) ? attention_key_row(&a, b.s, p0 + r) : -1; };
        const int turn = p0 / KEYS % 2;
        if (p0 <= b.high) {
            attention_fetch<DQK, KEYS>(k + turn * attention_panel_n<DQK, KEYS>, io.k, a.nkv, b.kv, a.dqk, wide, row);
            attention_fetch<DV, KEYS>(v + turn * attention_panel_n<DV, KEYS>, io.v, a.nkv, b.kv, a.dv, wide, row);
        }
        mma_copy_commit();
    };
    attention_fetch<DQK, HELD>(q, io.q, a.nq, b.head, a.dqk, wide,
                               [&](int r) { return r < b.rows ? (int64_t)b.s * attend_local(a) + b.r0 + r : -1; });
    const int first = b.low / KEYS * KEYS;
    fetch(first);
    attention_rows(at, a, b, m0);
    for (int i = 0; i < 2; i++) {
        most[i] = io.sink ? io.sink[b.head] * LOG2E : -INFINITY;
        sum[i] = io.sink && lane % 4 == 0 ? 1 : 0;              /* four lanes share a row */
    }
    for (int p0 = first; p0 <= b.high; p0 += KEYS) {
        const int turn = p0 / KEYS % 2;
        float s[KEYS / 8][4];
        fetch(p0 + KEYS);
        mma_copy_wait<1>();
        __syncthreads();
        attention_scores<DQK, KEYS / 8>(s, q, m0, k + turn * attention_panel_n<DQK, KEYS>);
        attention_softmax<KEYS / 8, DV>(s, acc, most, sum, at, p0, LOG2E * attention_scale(&a));
        attention_sums<DV, KEYS / 8>(acc, s, v + turn * attention_panel_n<DV, KEYS>);
        __syncthreads();                                        /* read by all before it is overwritten */
    }
    for (int i = 0; i < 2; i++) {
        sum[i] += __shfl_xor_sync(CU_ALL, sum[i], 1);
        sum[i] += __shfl_xor_sync(CU_ALL, sum[i], 2);
    }
    attention_write<DV>(io.o, acc, a.dv, a.nq, b.head, m0, b.rows, [&](int m, int i, float *scale) {
        const int64_t row = (int64_t)b.s * attend_local(a) + b.r0 + m;
        if (lane % 4 == 0) io.lse[row * a.nq + b.head] = most[i] * LN2 + logf(sum[i]);
        *scale = sum[i] > 0 ? 1 / sum[i] : 0;                   /* a block of a ring may show no keys */
        return row;
    });
}

/* dq of a block of queries: keys pass by. */
template <int DQK, int DV> static __global__ void __launch_bounds__(WIDTH) attention_dq_kernel(attend_io<cu_bf16> io, bool wide)
{
    constexpr int TILES = PASSING / 8;
    const struct attention_shape &a = io.a;
    const attention_block b = attention_queries(a);
    const int m0 = cu_warp() * 16;
    const float scale = attention_scale(&a);
    cu_bf16 *q = (cu_bf16 *)cu_shared(), *dout = q + attention_panel_n<DQK, HELD>, *k = dout + attention_panel_n<DV, HELD>,
            *v = k + 2 * attention_panel_n<DQK, PASSING>;
    float acc[DQK / 8][4] = {}, lse2[2], along[2], seen[2] = {};
    attend_seen at[2];
    const auto query = [&](int r) { return r < b.rows ? (int64_t)b.s * attend_local(a) + b.r0 + r : -1; };
    const auto fetch = [&](int p0) {
        const auto row = [&](int r) { return p0 + r < attention_keys(&a) ? attention_key_row(&a, b.s, p0 + r) : -1; };
        const int turn = p0 / PASSING % 2;
        if (p0 <= b.high) {
            attention_fetch<DQK, PASSING>(k + turn * attention_panel_n<DQK, PASSING>, io.k, a.nkv, b.kv, a.dqk, wide, row);
            attention_fetch<DV, PASSING>(v + turn * attention_panel_n<DV, PASSING>, io.v, a.nkv, b.kv, a.dv, wide, row);
        }
        mma_copy_commit();
    };
    attention_fetch<DQK, HELD>(q, io.q, a.nq, b.head, a.dqk, wide, query);
    attention_fetch<DV, HELD>(dout, io.dout, a.nq, b.head, a.dv, wide, query);
    const int first = b.low / PASSING * PASSING;
    fetch(first);
    attention_rows(at, a, b, m0);
    for (int i = 0; i < 2; i++) {
        const int64_t row = query(m0 + mma_row(cu_lane(), i * 2));
        lse2[i] = row < 0 ? 0 : io.lse[row * a.nq + b.head] * LOG2E;
        along[i] = row < 0 ? 0 : io.along[row * a.nq + b.head];
    }
    for (int p0 = first; p0 <= b.high; p0 += PASSING) {
        const int turn = p0 / PASSING % 2;
        const cu_bf16 *k_now = k + turn * attention_panel_n<DQK, PASSING>;
        float s[TILES][4], d[TILES][4];
        fetch(p0 + PASSING);
        mma_copy_wait<1>();
        __syncthreads();
        attention_scores<DQK, TILES>(s, q, m0, k_now);
        attention_scores<DV, TILES>(d, dout, m0, v + turn * attention_panel_n<DV, PASSING>);
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float p = attend_sees(at[i / 2], p0 + j * 8 + mma_col(cu_lane(), i))
                                    ? exp2f(s[j][i] * scale * LOG2E - lse2[i / 2]) : 0;
                seen[i / 2] += p;
                s[j][i] = p * (d[j][i] - along[i / 2]) * scale;
            }
        attention_sums<DQK, TILES>(acc, s, k_now);
        __syncthreads();
    }
    for (int i = 0; i < 2; i++) {
        const int64_t row = query(m0 + mma_row(cu_lane(), i * 2));
        seen[i] += __shfl_xor_sync(CU_ALL, seen[i], 1);
        seen[i] += __shfl_xor_sync(CU_ALL, seen[i], 2);
        if (row >= 0 && cu_lane() % 4 == 0) io.rest[row * a.nq + b.head] = attend_whole(a) - seen[i];
    }
    attention_write<DQK>(io.dq, acc, a.dqk, a.nq, b.head, m0, b.rows, [&](int m, int, float *one) { return *one = 1, query(m); });
}

/* dk and dv of a block of keys (blockIdx: positions, key/value head, sequence): all queries that see any of them pass by, head
 * after head. VALUES: dv, else dk: together they are more than a thread's registers hold for wide heads. */
template <int DQK, int DV, bool VALUES>
static __global__ void __launch_bounds__(WIDTH) attention_dkv_kernel(attend_io<cu_bf16> io, bool wide)
{
    constexpr int TILES = PASSING / 8, D = VALUES ? DV : DQK;
    const struct attention_shape &a = io.a;
    const int local = attend_local(a), share = a.nq / a.nkv, tiles = (local + PASSING - 1) / PASSING, all = share * tiles;
    const int p0 = blockIdx.x * HELD, kv = blockIdx.y, sequence = blockIdx.z, m0 = cu_warp() * 16, keys = attention_keys(&a);
    const int rows = keys - p0 < HELD ? keys - p0 : HELD;
    const float scale = attention_scale(&a);
    cu_bf16 *k = (cu_bf16 *)cu_shared(), *v = k + attention_panel_n<DQK, HELD>, *q = v + attention_panel_n<DV, HELD>,
            *dout = q + 2 * attention_panel_n<DQK, PASSING>;
    float acc[D / 8][4] = {};
    const auto key = [&](int r) { return r < rows ? attention_key_row(&a, sequence, p0 + r) : -1; };
    /* The next of the passing tiles, from i on, in which somebody sees a key here. */
    const auto next = [&](int i) {
        for (; i < all; i++) {
            const int r0 = i % tiles * PASSING, r1 = r0 + PASSING < local ? r0 + PASSING - 1 : local - 1;
            if (attend_keys(a, sequence, r1).to > p0 && attend_keys(a, sequence, r0).from < p0 + rows) break;
        }
        return i;
    };
    const auto fetch = [&](int i, int turn) {
        const auto row = [&](int r) {
            const int at = i % tiles * PASSING + r;
            return at < local ? (int64_t)sequence * local + at : -1;
        };
        if (i < all) {
            const int head = kv * share + i / tiles;
            attention_fetch<DQK, PASSING>(q + turn * attention_panel_n<DQK, PASSING>, io.q, a.nq, head, a.dqk, wide, row);
            attention_fetch<DV, PASSING>(dout + turn * attention_panel_n<DV, PASSING>, io.dout, a.nq, head, a.dv, wide, row);
        }
        mma_copy_commit();
    };
    attention_fetch<DQK, HELD>(k, io.k, a.nkv, kv, a.dqk, wide, key);
    if (!VALUES) attention_fetch<DV, HELD>(v, io.v, a.nkv, kv, a.dv, wide, key);
    int i = next(0), turn = 0;
    for (fetch(i, turn); i < all; turn = 1 - turn) {
        const int ahead = next(i + 1), head = kv * share + i / tiles, r0 = i % tiles * PASSING;
        const cu_bf16 *q_now = q + turn * attention_panel_n<DQK, PASSING>, *d_now = dout + turn * attention_panel_n<DV, PASSING>;
        float s[TILES][4], d[TILES][4];
        fetch(ahead, 1 - turn);
        mma_copy_wait<1>();
        __syncthreads();
        attention_scores<DQK, TILES>(s, k, m0, q_now);
        if (!VALUES) attention_scores<DV, TILES>(d, v, m0, d_now);
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int x = 0; x < 4; x++) {
                const int r = r0 + j * 8 + mma_col(cu_lane(), x), p = p0 + m0 + mma_row(cu_lane(), x);
                const bool sees = r < local && p < keys && attend_sees(attend_keys(a, sequence, r < local ? r : 0), p);
                const int64_t at = ((int64_t)sequence * local + r) * a.nq + head;
                const float weight = sees ? exp2f((s[j][x] * scale - io.lse[at]) * LOG2E) : 0;
                s[j][x] = VALUES ? weight : sees ? weight * (d[j][x] - io.along[at]) * scale : 0;
            }
        attention_sums<D, TILES>(acc, s, VALUES ? d_now : q_now);
        __syncthreads();
        i = ahead;
    }
    attention_write<D>(VALUES ? io.dv : io.dk, acc, VALUES ? a.dv : a.dqk, a.nkv, kv, m0, rows,
                       [&](int m, int, float *one) { return *one = 1, key(m); });
}

/* ---- launchers ---- */

template <typename K> static void attention_go(K *kernel, dim3 blocks, int shared_n, kstream s, attend_io<cu_bf16> io, bool wide)
{
    const size_t shared_B = (size_t)shared_n * sizeof(cu_bf16);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_B);
    cu_launch(kernel, blocks, WIDTH, shared_B, s, io, wide);
}

static dim3 attention_blocks(int rows, int heads, int seqs)
{
    return dim3((unsigned)((rows + HELD - 1) / HELD), (unsigned)heads, (unsigned)seqs);
}

template <int DQK, int DV> static enum err attention_mma(const attend_io<cu_bf16> &io, bool wide, kstream s)
{
    attention_go(attention_kernel<DQK, DV>, attention_blocks(attend_local(io.a), io.a.nq, io.a.seqs),
                 attention_panel_n<DQK, HELD> + 2 * (attention_panel_n<DQK, KEYS> + attention_panel_n<DV, KEYS>), s, io, wide);
    return cu_answer();
}

template <int DQK, int DV> static enum err attention_mma_bwd(const attend_io<cu_bf16> &io, bool wide, kstream s)
{
    constexpr int shared_n = attention_panel_n<DQK, HELD> + attention_panel_n<DV, HELD> +
                             2 * (attention_panel_n<DQK, PASSING> + attention_panel_n<DV, PASSING>);
    attention_go(attention_dq_kernel<DQK, DV>, attention_blocks(attend_local(io.a), io.a.nq, io.a.seqs), shared_n, s, io, wide);
    attention_go(attention_dkv_kernel<DQK, DV, false>, attention_blocks(attention_keys(&io.a), io.a.nkv, io.a.seqs), shared_n, s, io, wide);
    attention_go(attention_dkv_kernel<DQK, DV, true>, attention_blocks(attention_keys(&io.a), io.a.nkv, io.a.seqs), shared_n, s, io, wide);
    return cu_answer();
}

/* The narrowest pair of widths that holds the heads. */
static enum err attention_pick(const attend_io<cu_bf16> &io, bool back, kstream s)
{
    const struct attention_shape &a = io.a;
    const bool wide = cu_wide<cu_bf16>(a.dqk, io.q, io.k) && cu_wide<cu_bf16>(a.dv, io.v, io.dout);
    if (a.dqk <= 64 && a.dv <= 64) return back ? attention_mma_bwd<64, 64>(io, wide, s) : attention_mma<64, 64>(io, wide, s);
    if (a.dqk <= 128 && a.dv <= 128) return back ? attention_mma_bwd<128, 128>(io, wide, s) : attention_mma<128, 128>(io, wide, s);
    if (a.dqk <= 192 && a.dv <= 128) return back ? attention_mma_bwd<192, 128>(io, wide, s) : attention_mma<192, 128>(io, wide, s);
    return back ? attend_any_bwd(io, s) : attend_any(io, s);
}
static enum err attention_pick(const attend_io<float> &io, bool back, kstream s)
{
    return back ? attend_any_bwd(io, s) : attend_any(io, s);
}

/* along [items] = dout . o, a warp an item. */
template <typename T> static __global__ void attention_along_kernel(float *along, const T *o, const T *dout, int64_t items, int dv)
{
    const int64_t i = (int64_t)blockIdx.x * WARPS + cu_warp();
    float sum = 0;
    if (i >= items) return;
    for (int c = cu_lane(); c < dv; c += CU_WARP) sum += cu_float(o[i * dv + c]) * cu_float(dout[i * dv + c]);
    sum = cu_warp_sum(sum);
    if (cu_lane() == 0) along[i] = sum;
}

/* A block a head. */
static __global__ void attention_sink_kernel(float *dsink, const float *rest, const float *along, int64_t rows, int heads)
{
    const int head = blockIdx.x;
    double sum = 0;
    for (int64_t t = threadIdx.x; t < rows; t += blockDim.x)
        sum -= (double)rest[t * heads + head] * along[t * heads + head];
    sum = cu_block_sum(sum);
    if (threadIdx.x == 0) dsink[head] += (float)sum;
}

static int64_t attention_tokens(const struct attention_shape *a)
{
    return (int64_t)a->seqs * attend_local(*a);
}

extern "C" int64_t attention_cuda_scratch_B(const struct attention_shape *a)
{
    return 2 * attention_tokens(a) * a->nq * (int64_t)sizeof(float);
}

extern "C" enum err attention_cuda(void *o, float *lse, const void *q, const void *k, const void *v, const float *sink,
                                   const struct attention_shape *a, enum dtype t, kstream s)
{
    if (attention_tokens(a) == 0) return OK;
    return cu_type(t, [=](auto zero) {
        using T = decltype(zero);
        attend_io<T> io = {};
        io.o = (T *)o, io.lse = lse, io.sink = sink, io.a = *a;
        io.q = (const T *)q, io.k = (const T *)k, io.v = (const T *)v;
        return attention_pick(io, false, s);
    });
}

extern "C" enum err attention_bwd_cuda(void *dq, void *dk, void *dv, float *dsink, const void *q, const void *k, const void *v,
                                       const void *o, const float *lse, const void *dout, const struct attention_shape *a,
                                       void *scratch, enum dtype t, kstream s)
{
    const int64_t tokens = attention_tokens(a), items = tokens * a->nq;
    float *along = (float *)scratch, *rest = along + items;
    if (tokens == 0) return OK;
    return cu_type(t, [=](auto zero) {
        using T = decltype(zero);
        attend_io<T> io = {};
        io.dq = (T *)dq, io.dk = (T *)dk, io.dv = (T *)dv, io.along = along, io.rest = rest, io.lse = (float *)lse;
        io.q = (const T *)q, io.k = (const T *)k, io.v = (const T *)v, io.dout = (const T *)dout, io.a = *a;
        cu_launch(attention_along_kernel<T>, cu_blocks(items, WARPS, INT32_MAX), WIDTH, 0, s, along, (const T *)o, io.dout, items,
                  a->dv);
        const enum err e = attention_pick(io, true, s);
        if (e != OK || !dsink) return e;
        cu_launch(attention_sink_kernel, (unsigned)a->nq, CU_WIDTH, 0, s, dsink, (const float *)rest, (const float *)along, tokens,
                  a->nq);
        return cu_answer();
    });
}
