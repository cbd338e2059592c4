/* norm.cuh: computes the factor of an RMSNorm.
 *
 * Squares are added up in double, where they are exact and cannot overflow. Mean and root use
 * neither a division nor a library call, because each would add a tenth to the time of a short
 * kernel. The results are still exact far beyond f32. */
#ifndef FIG_KERNELS_NORM_CUH
#define FIG_KERNELS_NORM_CUH

#include "kernels/common/vector.cuh"

/* Returns the sum of squares of a vector. */
static __device__ __forceinline__ double fig_norm_squares(uint4 vector, int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype);
    float numbers[FIG_VECTOR_LANE_LIMIT];
    double sum = 0;
    fig_vector_read(numbers, lanes, vector, dtype);
#pragma unroll
    for (int32_t i = 0; i < lanes; i++)
        sum += (double)numbers[i] * (double)numbers[i];
    return sum;
}

/* Returns 1 / sqrt(sum / count + epsilon), or 0 for an infinite sum. Each Newton step doubles the
 * number of correct bits. */
static __device__ __forceinline__ float fig_norm_factor(double sum, int32_t count, float epsilon) {
    double share = (double)__fdividef(1.0f, (float)count), root;
    share *= 2.0 - share * count;
    const double mean = sum * share + (double)epsilon;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(root) : "d"(mean));
    const double better = root * (1.5 - 0.5 * mean * root * root);
    return (float)(root > 0 ? better : root);
}

#endif
