/* The router. A warp chooses a token's experts; the list by expert, then token, is a counting sort over chunks of tokens
 * whose every step has one order, so that forward and its recomputation, and any order of threads, agree to the bit. */
extern "C" {
#include "kernels/route.h"
}
#include "kernels/cu.cuh"

enum { TOKENS = 4, CHUNK = 64 };        /* tokens a block chooses for at once; tokens a block of the sort lists */

/* ---- choosing ---- */

/* A warp's view of its shared memory. */
struct route_work { float *value, *group; char *taken, *kept; };

static __device__ route_work route_share(int experts)
{
    char *at = cu_shared() + (size_t)TOKENS * experts * 8 + (size_t)cu_warp() * experts * 2;
    route_work w;
    w.value = (float *)cu_shared() + (size_t)cu_warp() * experts * 2;
    w.group = w.value + experts;
    w.taken = at;
    w.kept = at + experts;
    return w;
}

/* The lowest index of the largest value that is not taken, -1 when all are: as a search in rising order that only a larger
 * value displaces, so the first one wins when it is not a number, and no other such one ever does. */
static __device__ int route_best(const float *value, const char *taken, int n)
{
    int first = n, best = -1;
    float most = -INFINITY;
    for (int i = cu_lane(); i < n; i += CU_WARP) {
        if (taken[i]) continue;
        if (i < first) first = i;
        if (!isnan(value[i]) && (best < 0 || value[i] > most)) most = value[i], best = i;
    }
    for (int bits = CU_WARP / 2; bits; bits /= 2) {
        const int first2 = __shfl_xor_sync(CU_ALL, first, bits), best2 = __shfl_xor_sync(CU_ALL, best, bits);
        const float most2 = __shfl_xor_sync(CU_ALL, most, bits);
        if (first2 < first) first = first2;
        if (best2 >= 0 && (best < 0 || most2 > most || (most2 == most && best2 < best))) most = most2, best = best2;
    }
    if (first == n) return -1;
    return isnan(value[first]) ? first : best;
}

/* Takes the best k of n; `pick` may be NULL. Returns `gap`, lowered by the last taken against the first not taken. */
static __device__ float route_take(int32_t *pick, char *taken, float gap, const float *value, int n, int k)
{
    int last = -1;
    for (int i = 0; i < k; i++) {
        last = route_best(value, taken, n);
        __syncwarp();
        if (cu_lane() == 0) {
            taken[last] = 1;
            if (pick) pick[i] = last;
        }
        __syncwarp();
    }
    const int next = route_best(value, taken, n);
    return next < 0 ? gap : fminf(gap, value[last] - value[next]);
}

static __device__ float route_group_score(const float *value, int size, int best_one)
{
    float first = -INFINITY, second = -INFINITY;
    for (int e = 0; e < size; e++) {
        second = fmaxf(second, fminf(first, value[e]));
        first = fmaxf(first, value[e]);
    }
    return best_one ? first : first + second;
}

/* Marks the experts of the groups that are not kept as taken. */
static __device__ float route_limit(route_work w, float gap, struct route_rule r)
{
    const int size = r.experts / r.groups;
    for (int g = cu_lane(); g < r.groups; g += CU_WARP) {
        w.group[g] = route_group_score(w.value + g * size, size, r.group_max);
        w.kept[g] = 0;
    }
    __syncwarp();
    gap = route_take(nullptr, w.kept, gap, w.group, r.groups, r.kept);
    for (int e = cu_lane(); e < r.experts; e += CU_WARP) w.taken[e] = !w.kept[e / size];
    __syncwarp();
    return gap;
}

/* Written by their lanes, read by all after the caller's __syncwarp. */
static __device__ void route_scores(float *score, const float *logit, struct route_rule r)
{
    float most = -INFINITY;
    double sum = 0;
    if (r.sigmoid) {
        for (int e = cu_lane(); e < r.experts; e += CU_WARP) score[e] = 1 / (1 + expf(-logit[e]));
        return;
    }
    for (int e = cu_lane(); e < r.experts; e += CU_WARP) most = fmaxf(most, logit[e]);
    most = cu_warp_max(most);
    for (int e = cu_lane(); e < r.experts; e += CU_WARP) {
        score[e] = expf(logit[e] - most);
        sum += score[e];
    }
    sum = cu_warp_sum(sum);
    for (int e = cu_lane(); e < r.experts; e += CU_WARP) score[e] = (float)(score[e] / sum);
}

static __device__ double route_factor(double picked_sum, struct route_rule r)
{
    return r.norm_topk ? r.scale / (picked_sum + 1e-20) : r.scale;
}

static __global__ void route_choose_kernel(float *score, int32_t *pick, float *weight, float *gap, const float *logit,
                                           const float *bias, const int32_t *given, int64_t rows, struct route_rule r)
{
    const route_work w = route_share(r.experts);
    for (int64_t t = (int64_t)blockIdx.x * TOKENS + cu_warp(); t < rows; t += (int64_t)gridDim.x * TOKENS) {
        float *s = score + t * r.experts, least = INFINITY;
        int32_t *mine = pick + t * r.topk;
        route_scores(s, logit + t * r.experts, r);
        for (int e = cu_lane(); e < r.experts; e += CU_WARP) {
            w.value[e] = s[e] + (bias ? bias[e] : 0);
            w.taken[e] = 0;
        }
        __syncwarp();
        if (given)
            for (int i = cu_lane(); i < r.topk; i += CU_WARP) mine[i] = given[t * r.topk + i];
        else {
            if (r.groups > 1) least = route_limit(w, least, r);
            least = route_take(mine, w.taken, least, w.value, r.experts, r.topk);
        }
        __syncwarp();
        if (cu_lane() == 0) {
            double sum = 0;
            for (int i = 0; i < r.topk; i++) sum += s[mine[i]];
            const double factor = route_factor(sum, r);
            for (int i = 0; i < r.topk; i++) weight[t * r.topk + i] = (float)(s[mine[i]] * factor);
            if (gap) atomicMin((int *)gap, __float_as_int(least));      /* never negative: ordered as their bits */
        }
        __syncwarp();
    }
}

/* ---- listing by expert ---- */

static __device__ int route_chunk(int32_t *to, const int32_t *pick, int64_t rows, int topk)
{
    const int64_t first = (int64_t)blockIdx.x * CHUNK, left = rows - first, most = CHUNK;
    const int n = (int)(left < most ? left : most) * topk;
    for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = pick[first * topk + i];
    __syncthreads();
    return n;
}

static __global__ void route_count_kernel(int32_t *count, const int32_t *pick, int64_t rows, struct route_rule r)
{
    int32_t *mine = (int32_t *)cu_shared();
    const int n = route_chunk(mine, pick, rows, r.topk);
    for (int e = threadIdx.x; e < r.experts; e += blockDim.x) {
        int32_t found = 0;
        for (int i = 0; i < n; i++) found += mine[i] == e;
        count[(int64_t)blockIdx.x * r.experts + e] = found;
    }
}

/* count[chunk][e] becomes where that chunk's rows of e begin. */
static __global__ void route_scan_kernel(int32_t *mine, int32_t *count, int chunks, int experts)
{
    int32_t *start = (int32_t *)cu_shared();
    for (int e = threadIdx.x; e < experts; e += blockDim.x) {
        int32_t all = 0;
        for (int c = 0; c < chunks; c++) all += count[(int64_t)c * experts + e];
        mine[e] = start[e] = all;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (int32_t e = 0, at = 0; e < experts; e++) {
            const int32_t n = start[e];
            start[e] = at;
            at += n;
        }
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += blockDim.x) {
        int32_t at = start[e];
        for (int c = 0; c < chunks; c++) {
            const int32_t n = count[(int64_t)c * experts + e];
            count[(int64_t)c * experts + e] = at;
            at += n;
        }
    }
}

static __global__ void route_list_kernel(int32_t *perm, float *prob, const int32_t *start, const int32_t *pick,
                                         const float *weight, int64_t rows, struct route_rule r)
{
    int32_t *mine = (int32_t *)cu_shared();
    const int n = route_chunk(mine, pick, rows, r.topk);
    const int64_t first = (int64_t)blockIdx.x * CHUNK;
    for (int e = threadIdx.x; e < r.experts; e += blockDim.x) {
        int64_t at = start[(int64_t)blockIdx.x * r.experts + e];
        for (int i = 0; i < n; i++) {
            if (mine[i] != e) continue;
            perm[2 * at] = (int32_t)(first + i / r.topk);
            perm[2 * at + 1] = e;
            prob[at++] = weight[first * r.topk + i];
        }
    }
}

static int64_t route_chunks(int64_t rows)
{
    return (rows + CHUNK - 1) / CHUNK;
}

extern "C" int64_t route_cuda_scratch_B(int64_t rows, const struct route_rule *r)
{
    const int64_t forward = rows * r->topk * 8 + route_chunks(rows) * r->experts * 4, backward = rows * r->experts * 4;
    return forward > backward ? forward : backward;
}

extern "C" enum err route_cuda(float *score, int32_t *perm, float *prob, int32_t *mine, float *gap, const float *logit,
                               const float *bias, const int32_t *given, int64_t rows, const struct route_rule *rule,
                               void *scratch, kstream s)
{
    const struct route_rule r = *rule;
    const int chunks = (int)route_chunks(rows);
    int32_t *pick = (int32_t *)scratch, *count = pick + rows * r.topk;
    float *weight = (float *)(count + (int64_t)chunks * r.experts);
    const size_t chunk_B = (size_t)CHUNK * r.topk * sizeof(int32_t), expert_B = (size_t)r.experts * sizeof(int32_t);
    if (r.experts > ROUTE_EXPERTS || r.topk > ROUTE_TOPK || r.capacity) return ERR_LIMIT;
    if (rows) {
        cu_launch(route_choose_kernel, cu_blocks(rows, TOKENS, CU_MANY), TOKENS * CU_WARP, (size_t)TOKENS * r.experts * 10, s,
                  score, pick, weight, gap, logit, bias, given, rows, r);
        cu_launch(route_count_kernel, chunks, CU_WIDTH, chunk_B, s, count, (const int32_t *)pick, rows, r);
    }
    cu_launch(route_scan_kernel, 1, CU_WIDTH, expert_B, s, mine, count, chunks, r.experts);
    if (rows)
        cu_launch(route_list_kernel, chunks, CU_WIDTH, chunk_B, s, perm, prob, (const int32_t *)count, (const int32_t *)pick,
                  (const float *)weight, rows, r);
    return cu_answer();
}

/* ---- backward ---- */

static __global__ void route_slots_kernel(int32_t *slot, const int32_t *perm, int64_t picks, int experts)
{
    const int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (j < picks) slot[(int64_t)perm[2 * j] * experts + perm[2 * j + 1]] = (int32_t)j + 1;
}

/* ds of the picked scores, then dlogit of all: softmax mixes, dlogit = s (ds - sum of ds s). */
static __global__ void route_bwd_kernel(float *dlogit, const int32_t *slot, const float *dprob, const float *score, int64_t rows,
                                        struct route_rule r)
{
    for (int64_t t = (int64_t)blockIdx.x * TOKENS + cu_warp(); t < rows; t += (int64_t)gridDim.x * TOKENS) {
        const float *s = score + t * r.experts;
        const int32_t *mine = slot + t * r.experts;
        float *d = dlogit + t * r.experts;
        double sum = 0, along = 0, mixed = 0;
        for (int e = cu_lane(); e < r.experts; e += CU_WARP) {
            if (!mine[e]) continue;
            sum += s[e];
            along += (double)s[e] * dprob[mine[e] - 1];
        }
        sum = cu_warp_sum(sum), along = cu_warp_sum(along);
        const double shared = r.norm_topk ? along / (sum + 1e-20) : 0, factor = route_factor(sum, r);
        for (int e = cu_lane(); e < r.experts; e += CU_WARP) {
            d[e] = mine[e] ? (float)(factor * (dprob[mine[e] - 1] - shared)) : 0.0f;
            mixed += (double)d[e] * s[e];
        }
        mixed = cu_warp_sum(mixed);
        for (int e = cu_lane(); e < r.experts; e += CU_WARP)
            d[e] = r.sigmoid ? d[e] * s[e] * (1 - s[e]) : (float)(s[e] * (d[e] - mixed));
    }
}

extern "C" enum err route_bwd_cuda(float *dlogit, const float *dprob, const float *score, const int32_t *perm, int64_t rows,
                                   const struct route_rule *rule, void *scratch, kstream s)
{
    const struct route_rule r = *rule;
    const int64_t picks = rows * r.topk;
    int32_t *slot = (int32_t *)scratch;
    if (rows == 0) return OK;
    if (cudaMemsetAsync(slot, 0, (size_t)(rows * r.experts) * sizeof *slot, s) != cudaSuccess) return ERR_DEVICE;
    cu_launch(route_slots_kernel, cu_blocks(picks, CU_WIDTH, INT32_MAX), CU_WIDTH, 0, s, slot, perm, picks, r.experts);
    cu_launch(route_bwd_kernel, cu_blocks(rows, TOKENS, CU_MANY), TOKENS * CU_WARP, 0, s, dlogit, (const int32_t *)slot, dprob,
              score, rows, r);
    return cu_answer();
}
