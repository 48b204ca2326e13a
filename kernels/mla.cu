/* q, k, v of latent attention, one block a row: copies, and rotations of the last numbers of q's heads and of the one key
 * that all heads share. */
#include <math.h>
extern "C" {
#include "kernels/mla.h"
}
#include "kernels/turn.cuh"

template <typename T>
static __global__ void mla_kernel(T *q, T *k, T *v, const T *qb, const T *kvb, const T *krope, int64_t rows, struct mla m,
                                  struct rope r)
{
    const int qk = m.nope + m.rope, half = m.rope / 2;
    float *cosine = (float *)cu_shared(), *sine = cosine + half;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        turn_angles(cosine, sine, half, r, row, 0);
        for (int h = cu_warp(); h < m.heads; h += CU_WIDTH / CU_WARP) {
            const int64_t head = row * m.heads + h;
            const T *kv = kvb + head * (m.nope + m.v), *qr = qb + head * qk + m.nope, *kr = krope + row * m.rope;
            for (int i = cu_lane(); i < m.nope; i += CU_WARP) {
                q[head * qk + i] = qb[head * qk + i];
                k[head * qk + i] = kv[i];
            }
            for (int i = cu_lane(); i < m.v; i += CU_WARP) v[head * m.v + i] = kv[m.nope + i];
            for (int i = cu_lane(); i < half; i += CU_WARP) {
                T *to_q = q + head * qk + m.nope + i, *to_k = k + head * qk + m.nope + i;
                turn_pair(to_q, to_q + half, cu_float(qr[i]), cu_float(qr[i + half]), cosine[i], sine[i]);
                turn_pair(to_k, to_k + half, cu_float(kr[i]), cu_float(kr[i + half]), cosine[i], sine[i]);
            }
        }
    }
}

template <typename T>
static __global__ void mla_bwd_kernel(T *dqb, T *dkvb, T *dkrope, const T *dq, const T *dk, const T *dv, int64_t rows,
                                      struct mla m, struct rope r)
{
    const int qk = m.nope + m.rope, half = m.rope / 2;
    float *cosine = (float *)cu_shared(), *sine = cosine + half;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        turn_angles(cosine, sine, half, r, row, 1);
        for (int h = cu_warp(); h < m.heads; h += CU_WIDTH / CU_WARP) {
            const int64_t head = row * m.heads + h;
            T *dkv = dkvb + head * (m.nope + m.v);
            const T *from = dq + head * qk + m.nope;
            for (int i = cu_lane(); i < m.nope; i += CU_WARP) {
                dqb[head * qk + i] = dq[head * qk + i];
                dkv[i] = dk[head * qk + i];
            }
            for (int i = cu_lane(); i < m.v; i += CU_WARP) dkv[m.nope + i] = dv[head * m.v + i];
            for (int i = cu_lane(); i < half; i += CU_WARP) {
                T *to = dqb + head * qk + m.nope + i;
                turn_pair(to, to + half, cu_float(from[i]), cu_float(from[i + half]), cosine[i], sine[i]);
            }
        }
        for (int i = threadIdx.x; i < half; i += blockDim.x) {
            float x = 0, y = 0;
            for (int h = 0; h < m.heads; h++) {
                const T *from = dk + (row * m.heads + h) * qk + m.nope;
                x += cu_float(from[i]), y += cu_float(from[i + half]);
            }
            turn_pair(&dkrope[row * m.rope + i], &dkrope[row * m.rope + i + half], x, y, cosine[i], sine[i]);
        }
    }
}

extern "C" enum err mla_cuda(void *q, void *k, void *v, const void *qb, const void *kvb, const void *krope, int64_t rows,
                             const struct mla *m, const struct rope *r, enum dtype t, kstream s)
{
    const struct mla shape = *m;
    const struct rope at = *r;
    if (rows == 0) return OK;
    return cu_type(t, [=](auto zero) {
        using T = decltype(zero);
        cu_launch(mla_kernel<T>, cu_blocks(rows, 1, CU_MANY), CU_WIDTH, (size_t)shape.rope * sizeof(float), s, (T *)q, (T *)k,
                  (T *)v, (const T *)qb, (const T *)kvb, (const T *)krope, rows, shape, at);
        return cu_answer();
    });
}

extern "C" enum err mla_bwd_cuda(void *dqb, void *dkvb, void *dkrope, const void *dq, const void *dk, const void *dv,
                                 int64_t rows, const struct mla *m, const struct rope *r, enum dtype t, kstream s)
{
    const struct mla shape = *m;
    const struct rope at = *r;
    if (rows == 0) return OK;
    return cu_type(t, [=](auto zero) {
        using T = decltype(zero);
        cu_launch(mla_bwd_kernel<T>, cu_blocks(rows, 1, CU_MANY), CU_WIDTH, (size_t)shape.rope * sizeof(float), s, (T *)dqb,
                  (T *)dkvb, (T *)dkrope, (const T *)dq, (const T *)dk, (const T *)dv, rows, shape, at);
        return cu_answer();
    });
}
