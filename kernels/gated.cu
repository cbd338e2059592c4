/* gated.cu: silu_and_mul, gelu_and_mul and gelu_tanh_and_mul on a GPU.
 *
 * out[r][c] = activation(in[r][c]) * in[r][width + c], in f32, rounded once; gated.c says why each
 * activation is written as it is. A block does one stretch of one row. Its vectors are on their way
 * before it knows whether the step has that row: any row of a tensor may be read. Where an address
 * or the width does not allow vectors, it takes numbers one by one. Helpers take dtype and
 * activation as constants, once inlined. Invariant: each number is written by one thread, once. */
#include "kernels/block.cuh"
#include "kernels/gated.h"
#include "kernels/vector.cuh"

#define ROOT_HALF 0.70710678118654752f
#define TWICE_ROOT_2_OVER_PI 1.5957691216057308f

/* Where its stretch of a row begins in memory. */
typedef struct stretch_place {
    const uint8_t *gate, *up;
    uint8_t *out;
} stretch_place;

/* x / (1 + exp(-y)). The GPU's own exponential and reciprocal err by two units each, and by one for
 * each unit of the exponent: far below half a unit of 16 bits. Its quotient is 0 where the divisor
 * is above 2^126; so far out the 1 is nothing beside the exponential. */
static __device__ __forceinline__ float damped(float x, float y) {
    if (y < -80.0f) return x * __expf(y);
    return __fdividef(x, 1.0f + __expf(-y));
}

static __device__ __forceinline__ float activation_of(float x, int32_t activation) {
    if (activation == FIG_SILU) return damped(x, x);
    if (activation == FIG_GELU) return 0.5f * x * erfcf(-x * ROOT_HALF);
    return damped(x, TWICE_ROOT_2_OVER_PI * (x + 0.044715f * x * x * x));
}

static __device__ __forceinline__ uint4 product_of(uint4 gate, uint4 up, int32_t dtype,
                                                   int32_t activation) {
    const int32_t lanes = fig_vector_lanes(dtype);
    float numbers[FIG_VECTOR_LANE_LIMIT], more[FIG_VECTOR_LANE_LIMIT];
    fig_vector_read(numbers, lanes, gate, dtype);
    fig_vector_read(more, lanes, up, dtype);
#pragma unroll
    for (int32_t i = 0; i < lanes; i++)
        numbers[i] = activation_of(numbers[i], activation) * more[i];
    return fig_vector_of(numbers, lanes, dtype);
}

static __device__ __forceinline__ stretch_place place_of(const fig_gated_params *p,
                                                         const fig_gated_part *part,
                                                         int32_t dtype) {
    const int32_t bytes = fig_numeric_bytes(dtype);
    stretch_place at;
    at.gate = (const uint8_t *)p->in + (part->row * p->in_stride + part->first) * bytes;
    at.up = at.gate + (int64_t)p->width * bytes;
    at.out = (uint8_t *)p->out + (part->row * p->out_stride + part->first) * bytes;
    return at;
}

static __device__ __forceinline__ void gate_numbers(const fig_gated_params *p,
                                                    const fig_gated_part *part,
                                                    const stretch_place *at, int32_t dtype,
                                                    int32_t activation) {
    fig_block_enter(p->haste & FIG_HASTE_EARLY);
    if (part->row >= fig_params_rows(&p->rows, p->plan)) return;
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x; i < part->count; i += FIG_GATED_THREADS) {
        float x = activation_of(fig_numeric_load(at->gate, dtype, i), activation);
        fig_numeric_store(at->out, dtype, i, x * fig_numeric_load(at->up, dtype, i));
    }
}

/* Both halves begin with a vector, so the first ends with one. */
static __device__ __forceinline__ void gate_vectors(const fig_gated_params *p,
                                                    const fig_gated_part *part,
                                                    const stretch_place *at, int32_t dtype,
                                                    int32_t activation) {
    const int32_t thread = (int32_t)threadIdx.x, count = part->count / fig_vector_lanes(dtype);
    const uint4 *gate = (const uint4 *)at->gate + thread, *up = (const uint4 *)at->up + thread;
    uint4 *out = (uint4 *)at->out + thread;
    uint4 gates[FIG_GATED_VECTORS], ups[FIG_GATED_VECTORS];
    fig_block_enter(p->haste & FIG_HASTE_EARLY);
#pragma unroll
    for (int32_t j = 0; j < FIG_GATED_VECTORS; j++) {
        if (thread + j * FIG_GATED_THREADS >= count) continue;
        gates[j] = fig_vector_fetch(gate + j * FIG_GATED_THREADS);
        ups[j] = fig_vector_fetch(up + j * FIG_GATED_THREADS);
    }
    if (part->row >= fig_params_rows(&p->rows, p->plan)) return;
#pragma unroll
    for (int32_t j = 0; j < FIG_GATED_VECTORS; j++) {
        if (thread + j * FIG_GATED_THREADS >= count) continue;
        out[j * FIG_GATED_THREADS] = product_of(gates[j], ups[j], dtype, activation);
    }
}

static __device__ __forceinline__ void gate_stretch(const fig_gated_params *p,
                                                    const fig_gated_part *part, int32_t dtype,
                                                    int32_t activation) {
    const stretch_place at = place_of(p, part, dtype);
    if (((uintptr_t)at.gate | (uintptr_t)at.up | (uintptr_t)at.out) % FIG_VECTOR_BYTES == 0) {
        gate_vectors(p, part, &at, dtype, activation);
    } else {
        gate_numbers(p, part, &at, dtype, activation);
    }
}

static __device__ __forceinline__ void activate(const fig_gated_params *p,
                                                const fig_gated_part *part, int32_t dtype) {
    switch (p->activation) {
    case FIG_SILU: gate_stretch(p, part, dtype, FIG_SILU); break;
    case FIG_GELU: gate_stretch(p, part, dtype, FIG_GELU); break;
    default: gate_stretch(p, part, dtype, FIG_GELU_TANH); break;
    }
}

extern "C" __global__ void __launch_bounds__(FIG_GATED_THREADS)
    fig_kernel_gated(const __grid_constant__ fig_gated_params p) {
    const fig_gated_part part = fig_gated_part_of(&p, blockIdx.x);
    switch (p.dtype) {
    case FIG_F16: activate(&p, &part, FIG_F16); break;
    case FIG_BF16: activate(&p, &part, FIG_BF16); break;
    default: activate(&p, &part, FIG_F32); break;
    }
}
