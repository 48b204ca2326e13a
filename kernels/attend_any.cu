/* Attention of any width without tensor cores: float32, kept for checking folds against the CPU, and the widths that the
 * mma kernels do not have. A warp holds one query (or one key); its lanes take 32 keys (queries) at a time for the scores,
 * then the columns for the sums. */
#include "kernels/attend.cuh"

enum { WARPS = 4, EACH = ATTEND_WIDEST / CU_WARP };     /* of a block; columns of a head that a lane holds */

template <typename T> static __device__ float attend_any_dot(const T *a, const T *b, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += cu_float(a[i]) * cu_float(b[i]);
    return sum;
}

/* The warp's number among (row, head) pairs, row slowest; -1: there are not so many. */
static __device__ int64_t attend_any_item(int64_t rows, int heads)
{
    const int64_t i = (int64_t)blockIdx.x * WARPS + cu_warp();
    return i < rows * heads ? i : -1;
}

template <typename T> static __global__ void attend_any_kernel(attend_io<T> io)
{
    __shared__ float weight[WARPS][CU_WARP];
    const struct attention_shape &a = io.a;
    const int local = attend_local(a), lane = cu_lane();
    const int64_t item = attend_any_item((int64_t)a.seqs * local, a.nq);
    if (item < 0) return;
    const int64_t row = item / a.nq;
    const int head = (int)(item % a.nq), s = (int)(row / local), kv = head / (a.nq / a.nkv);
    const attend_seen seen = attend_keys(a, s, (int)(row % local));
    float acc[EACH] = {}, most = io.sink ? io.sink[head] : -INFINITY, sum = io.sink ? 1 : 0;
    for (int p0 = seen.from; p0 < seen.to; p0 += CU_WARP) {
        const int p = p0 + lane, n = seen.to - p0 < CU_WARP ? seen.to - p0 : CU_WARP;
        float score = -INFINITY;
        if (lane < n)
            score = attend_any_dot(io.q + item * a.dqk, io.k + (attention_key_row(&a, s, p) * a.nkv + kv) * a.dqk, a.dqk) *
                    attention_scale(&a);
        const float now = fmaxf(most, cu_warp_max(score)), keep = expf(most - now), e = lane < n ? expf(score - now) : 0;
        sum = sum * keep + cu_warp_sum(e);
        most = now;
        weight[cu_warp()][lane] = e;
        __syncwarp();
        for (int i = 0; i < EACH; i++) acc[i] *= keep;
        for (int j = 0; j < n; j++) {
            const T *v = io.v + (attention_key_row(&a, s, p0 + j) * a.nkv + kv) * a.dv;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (lane + i * CU_WARP < a.dv) acc[i] += weight[cu_warp()][j] * cu_float(v[lane + i * CU_WARP]);
        }
        __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + i * CU_WARP < a.dv) io.o[item * a.dv + lane + i * CU_WARP] = cu_from<T>(sum > 0 ? acc[i] / sum : 0);
    if (lane == 0) io.lse[item] = most + logf(sum);             /* -infinity where no key is seen */
}

/* p and its score's gradient, of query row `item` (row, head) and the key row of its kv head. */
struct attend_any_pair { float p, ds; };
template <typename T> static __device__ attend_any_pair attend_any_grad(const attend_io<T> &io, int64_t item, int64_t key)
{
    const struct attention_shape &a = io.a;
    const float scale = attention_scale(&a);
    const float p = expf(attend_any_dot(io.q + item * a.dqk, io.k + key * a.dqk, a.dqk) * scale - io.lse[item]);
    return { p, p * (attend_any_dot(io.dout + item * a.dv, io.v + key * a.dv, a.dv) - io.along[item]) * scale };
}

template <typename T> static __global__ void attend_any_dq_kernel(attend_io<T> io)
{
    __shared__ float weight[WARPS][CU_WARP];
    const struct attention_shape &a = io.a;
    const int local = attend_local(a), lane = cu_lane();
    const int64_t item = attend_any_item((int64_t)a.seqs * local, a.nq);
    if (item < 0) return;
    const int64_t row = item / a.nq;
    const int head = (int)(item % a.nq), s = (int)(row / local), kv = head / (a.nq / a.nkv);
    const attend_seen keys = attend_keys(a, s, (int)(row % local));
    float acc[EACH] = {}, seen = 0;
    for (int p0 = keys.from; p0 < keys.to; p0 += CU_WARP) {
        const int n = keys.to - p0 < CU_WARP ? keys.to - p0 : CU_WARP;
        if (lane < n) {
            const attend_any_pair mine = attend_any_grad(io, item, attention_key_row(&a, s, p0 + lane) * a.nkv + kv);
            weight[cu_warp()][lane] = mine.ds;
            seen += mine.p;
        }
        __syncwarp();
        for (int j = 0; j < n; j++) {
            const T *k = io.k + (attention_key_row(&a, s, p0 + j) * a.nkv + kv) * a.dqk;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (lane + i * CU_WARP < a.dqk) acc[i] += weight[cu_warp()][j] * cu_float(k[lane + i * CU_WARP]);
        }
        __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + i * CU_WARP < a.dqk) io.dq[item * a.dqk + lane + i * CU_WARP] = cu_from<T>(acc[i]);
    seen = cu_warp_sum(seen);
    if (lane == 0) io.rest[item] = attend_whole(a) - seen;
}

/* A warp holds one key of one key/value head, and goes through this member's queries of all its query heads. */
template <typename T> static __global__ void attend_any_dkv_kernel(attend_io<T> io)
{
    __shared__ attend_any_pair pair[WARPS][CU_WARP];
    const struct attention_shape &a = io.a;
    const int local = attend_local(a), lane = cu_lane(), share = a.nq / a.nkv;
    const int keys = attention_keys(&a);
    const int64_t item = attend_any_item((int64_t)a.seqs * keys, a.nkv);
    if (item < 0) return;
    const int kv = (int)(item % a.nkv), p = (int)(item / a.nkv % keys), s = (int)(item / a.nkv / keys);
    const int64_t key = attention_key_row(&a, s, p) * a.nkv + kv;
    float dk[EACH] = {}, dv[EACH] = {};
    for (int head = kv * share; head < (kv + 1) * share; head++)
        for (int r0 = 0; r0 < local; r0 += CU_WARP) {
            const int r = r0 + lane;
            attend_any_pair mine = {};
            if (r < local && attend_sees(attend_keys(a, s, r), p))
                mine = attend_any_grad(io, ((int64_t)s * local + r) * a.nq + head, key);
            pair[cu_warp()][lane] = mine;
            __syncwarp();
            for (int j = 0; j < CU_WARP && r0 + j < local; j++) {
                const attend_any_pair w = pair[cu_warp()][j];
                const int64_t query = ((int64_t)s * local + r0 + j) * a.nq + head;
                if (!attend_sees(attend_keys(a, s, r0 + j), p)) continue;
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    const int c = lane + i * CU_WARP;
                    if (c < a.dqk) dk[i] += w.ds * cu_float(io.q[query * a.dqk + c]);
                    if (c < a.dv) dv[i] += w.p * cu_float(io.dout[query * a.dv + c]);
                }
            }
            __syncwarp();
        }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int c = lane + i * CU_WARP;
        if (c < a.dqk) io.dk[key * a.dqk + c] = cu_from<T>(dk[i]);
        if (c < a.dv) io.dv[key * a.dv + c] = cu_from<T>(dv[i]);
    }
}

static unsigned attend_any_blocks(int64_t items)
{
    return cu_blocks(items, WARPS, INT32_MAX);
}

template <typename T> enum err attend_any(const attend_io<T> &io, kstream s)
{
    const int64_t queries = (int64_t)io.a.seqs * attend_local(io.a) * io.a.nq;
    if (io.a.dqk > ATTEND_WIDEST || io.a.dv > ATTEND_WIDEST) return ERR_LIMIT;
    cu_launch(attend_any_kernel<T>, attend_any_blocks(queries), WARPS * CU_WARP, 0, s, io);
    return cu_answer();
}

template <typename T> enum err attend_any_bwd(const attend_io<T> &io, kstream s)
{
    const int64_t queries = (int64_t)io.a.seqs * attend_local(io.a) * io.a.nq, keys = (int64_t)io.a.seqs * attention_keys(&io.a) * io.a.nkv;
    if (io.a.dqk > ATTEND_WIDEST || io.a.dv > ATTEND_WIDEST) return ERR_LIMIT;
    cu_launch(attend_any_dq_kernel<T>, attend_any_blocks(queries), WARPS * CU_WARP, 0, s, io);
    cu_launch(attend_any_dkv_kernel<T>, attend_any_blocks(keys), WARPS * CU_WARP, 0, s, io);
    return cu_answer();
}

template enum err attend_any<float>(const attend_io<float> &, kstream);
template enum err attend_any<cu_bf16>(const attend_io<cu_bf16> &, kstream);
template enum err attend_any_bwd<float>(const attend_io<float> &, kstream);
template enum err attend_any_bwd<cu_bf16>(const attend_io<cu_bf16> &, kstream);
