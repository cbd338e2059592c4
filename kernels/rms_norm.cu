/* rms_norm.cu: rms_norm and add_rms_norm on a GPU.
 *
 * out = x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset), in f32, rounded once; x is `in`
 * or, where there is a residual, residual + in, which is rounded to the dtype and kept there first.
 * One block per row, which reads it twice, the second time out of L1. Squares are exact in double
 * and added up there, so that no width loses a digit and no square overflows. Where all addresses
 * allow, a thread takes vectors, a batch of them in flight, and numbers only behind the last whole
 * one. Helpers take the dtype as a constant, once inlined. Invariant: a thread has the same places
 * of a row whenever it reads or writes, so out may be in. */
#include "kernels/block.cuh"
#include "kernels/numeric.h"
#include "kernels/params.h"
#include "kernels/vector.cuh"

enum { THREADS = 256 };

/* One row; x is the residual or, where there is none, `in`. */
typedef struct row_places {
    const uint8_t *in, *weight, *x;
    uint8_t *residual, *out; /* residual: NULL: none */
    int32_t vectors;         /* whole ones; 0 where an address does not allow them */
    int32_t numbers;         /* in them; those behind are taken one by one */
} row_places;

static __device__ __forceinline__ row_places places_of(const fig_rms_norm_params *p, int32_t row,
                                                       int32_t dtype) {
    const int32_t bytes = fig_numeric_bytes(dtype);
    row_places at;
    at.in = (const uint8_t *)p->in + row * p->in_stride * bytes;
    at.weight = (const uint8_t *)p->weight;
    at.residual = NULL;
    if (p->residual != NULL)
        at.residual = (uint8_t *)p->residual + row * p->residual_stride * bytes;
    at.x = at.residual != NULL ? at.residual : at.in;
    at.out = (uint8_t *)p->out + row * p->out_stride * bytes;
    uintptr_t all = (uintptr_t)at.in | (uintptr_t)at.weight | (uintptr_t)at.x | (uintptr_t)at.out;
    at.vectors = all % FIG_VECTOR_BYTES == 0 ? p->width / fig_vector_lanes(dtype) : 0;
    at.numbers = at.vectors * fig_vector_lanes(dtype);
    return at;
}

/* As the dtype rounds it. */
static __device__ __forceinline__ uint4 sum_of(uint4 a, uint4 b, int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype);
    float numbers[FIG_VECTOR_LANE_LIMIT], more[FIG_VECTOR_LANE_LIMIT];
    fig_vector_read(numbers, lanes, a, dtype);
    fig_vector_read(more, lanes, b, dtype);
#pragma unroll
    for (int32_t i = 0; i < lanes; i++)
        numbers[i] += more[i];
    return fig_vector_of(numbers, lanes, dtype);
}

static __device__ __forceinline__ double squares_of(uint4 vector, int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype);
    float numbers[FIG_VECTOR_LANE_LIMIT];
    double sum = 0;
    fig_vector_read(numbers, lanes, vector, dtype);
#pragma unroll
    for (int32_t i = 0; i < lanes; i++)
        sum += (double)numbers[i] * (double)numbers[i];
    return sum;
}

static __device__ __forceinline__ uint4 normed_of(uint4 x, uint4 weight, float scale, float offset,
                                                  int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype);
    float numbers[FIG_VECTOR_LANE_LIMIT], weights[FIG_VECTOR_LANE_LIMIT];
    fig_vector_read(numbers, lanes, x, dtype);
    fig_vector_read(weights, lanes, weight, dtype);
#pragma unroll
    for (int32_t i = 0; i < lanes; i++)
        numbers[i] *= scale * (weights[i] + offset);
    return fig_vector_of(numbers, lanes, dtype);
}

/* Of what this thread has of x; where there is a residual, adds `in` to it first. */
static __device__ __forceinline__ double squares_of_thread(const row_places *at, int32_t width,
                                                           int32_t dtype) {
    double sum = 0;
    for (int32_t first = (int32_t)threadIdx.x; first < at->vectors;
         first += FIG_VECTOR_BATCH * THREADS) {
        uint4 x[FIG_VECTOR_BATCH], more[FIG_VECTOR_BATCH];
        fig_vector_load<THREADS>(x, at->x, first, at->vectors);
        if (at->residual != NULL) fig_vector_load<THREADS>(more, at->in, first, at->vectors);
#pragma unroll 1
        for (int32_t j = 0; j < FIG_VECTOR_BATCH && first + j * THREADS < at->vectors; j++) {
            uint4 vector = fig_vector_choose(x, j);
            if (at->residual != NULL) {
                vector = sum_of(vector, fig_vector_choose(more, j), dtype);
                ((uint4 *)at->residual)[first + j * THREADS] = vector;
            }
            sum += squares_of(vector, dtype);
        }
    }
    for (int32_t i = at->numbers + (int32_t)threadIdx.x; i < width; i += THREADS) {
        float x = fig_numeric_load(at->x, dtype, i);
        if (at->residual != NULL) {
            fig_numeric_store(at->residual, dtype, i, x + fig_numeric_load(at->in, dtype, i));
            x = fig_numeric_load(at->residual, dtype, i);
        }
        sum += (double)x * (double)x;
    }
    return sum;
}

/* The first weights are on their way while the squares are added up. */
static __device__ __forceinline__ void norm_row(const fig_rms_norm_params *p, int32_t row,
                                                int32_t dtype, double *sums) {
    const row_places at = places_of(p, row, dtype);
    const int32_t thread = (int32_t)threadIdx.x;
    uint4 weight[FIG_VECTOR_BATCH];
    fig_vector_load<THREADS>(weight, at.weight, thread, at.vectors);
    double sum = fig_block_sum(squares_of_thread(&at, p->width, dtype), sums);
    float scale = (float)rsqrt(sum / p->width + (double)p->epsilon);
    for (int32_t first = thread; first < at.vectors; first += FIG_VECTOR_BATCH * THREADS) {
        uint4 x[FIG_VECTOR_BATCH];
        fig_vector_load<THREADS>(x, at.x, first, at.vectors);
        if (first > thread) fig_vector_load<THREADS>(weight, at.weight, first, at.vectors);
#pragma unroll 1
        for (int32_t j = 0; j < FIG_VECTOR_BATCH && first + j * THREADS < at.vectors; j++)
            ((uint4 *)at.out)[first + j * THREADS] =
                normed_of(fig_vector_choose(x, j), fig_vector_choose(weight, j), scale,
                          p->weight_offset, dtype);
    }
    for (int32_t i = at.numbers + thread; i < p->width; i += THREADS) {
        float factor = scale * (fig_numeric_load(at.weight, dtype, i) + p->weight_offset);
        fig_numeric_store(at.out, dtype, i, fig_numeric_load(at.x, dtype, i) * factor);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    fig_kernel_rms_norm(const __grid_constant__ fig_rms_norm_params p) {
    __shared__ double sums[FIG_BLOCK_WARP_LIMIT];
    int32_t row = (int32_t)blockIdx.x;
    fig_block_wait();
    fig_block_trigger();
    if (row >= fig_params_rows(&p.rows, p.plan)) return;
    switch (p.dtype) {
    case FIG_F16: norm_row(&p, row, FIG_F16, sums); break;
    case FIG_BF16: norm_row(&p, row, FIG_BF16, sums); break;
    default: norm_row(&p, row, FIG_F32, sums); break;
    }
}
