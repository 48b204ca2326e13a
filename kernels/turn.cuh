/* The rotation that rope.cu and mla.cu share. */
#ifndef KERNELS_TURN_CUH
#define KERNELS_TURN_CUH
#include "kernels/cu.cuh"

/* cosine, sine [half] in shared memory: the angles of a row of rows that follow one another as rope.h says. All threads call
 * it; none returns before all are written. In half turns, whose remainder is exact: cos and sin would keep a local array for large
 * arguments. */
static __device__ void turn_angles(float *cosine, float *sine, int half, struct rope r, int64_t row, int back)
{
    const int position = rope_place(&r, row);
    const float size = (float)rope_magnitude(&r);
    __syncthreads();
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        const double turns = position * rope_angle(&r, i, 2 * half) * 0.31830988618379067;  /* angle over pi */
        cosine[i] = size * (float)cospi(turns);
        sine[i] = size * (float)(back ? -sinpi(turns) : sinpi(turns));
    }
    __syncthreads();
}

template <typename T> static __device__ void turn_pair(T *to_x, T *to_y, float x, float y, float cosine, float sine)
{
    *to_x = cu_from<T>(x * cosine - y * sine);
    *to_y = cu_from<T>(y * cosine + x * sine);
}

#endif
