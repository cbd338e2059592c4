/* gated.cu: silu_and_mul, gelu_and_mul and gelu_tanh_and_mul on a GPU.
 *
 * out[r][c] = activation(in[r][c]) * in[r][width + c], in f32, rounded once; gated.c says why each
 * activation is written as it is. One block per row. A thread has a batch of vectors of either half
 * in flight before it waits for the first; where an address or the width does not allow vectors, it
 * takes numbers one by one. Helpers take dtype and activation as constants, once inlined.
 * Invariant: what a thread writes over, it alone has read before. */
#include "kernels/block.cuh"
#include "kernels/numeric.h"
#include "kernels/params.h"
#include "kernels/vector.cuh"

enum { THREADS = 256 };

#define ROOT_HALF 0.70710678118654752f
#define TWICE_ROOT_2_OVER_PI 1.5957691216057308f

static __device__ __forceinline__ float activation_of(float x, int32_t activation) {
    if (activation == FIG_SILU) return x / (1.0f + expf(-x));
    if (activation == FIG_GELU) return 0.5f * x * erfcf(-x * ROOT_HALF);
    float twice = TWICE_ROOT_2_OVER_PI * (x + 0.044715f * x * x * x);
    return x / (1.0f + expf(-twice));
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

static __device__ __forceinline__ void gate_row(const fig_gated_params *p, int32_t row,
                                                int32_t dtype, int32_t activation) {
    const int32_t bytes = fig_numeric_bytes(dtype);
    const uint8_t *gate = (const uint8_t *)p->in + row * p->in_stride * bytes;
    const uint8_t *up = gate + (int64_t)p->width * bytes;
    uint8_t *out = (uint8_t *)p->out + row * p->out_stride * bytes;
    if (((uintptr_t)gate | (uintptr_t)up | (uintptr_t)out) % FIG_VECTOR_BYTES != 0) {
        for (int32_t i = (int32_t)threadIdx.x; i < p->width; i += THREADS) {
            float x = activation_of(fig_numeric_load(gate, dtype, i), activation);
            fig_numeric_store(out, dtype, i, x * fig_numeric_load(up, dtype, i));
        }
        return;
    }
    /* Both halves begin with a vector, so the first ends with one. */
    int32_t count = p->width / fig_vector_lanes(dtype);
    for (int32_t first = (int32_t)threadIdx.x; first < count; first += FIG_VECTOR_BATCH * THREADS) {
        uint4 gates[FIG_VECTOR_BATCH], ups[FIG_VECTOR_BATCH];
        fig_vector_load<THREADS>(gates, gate, first, count);
        fig_vector_load<THREADS>(ups, up, first, count);
#pragma unroll 1
        for (int32_t j = 0; j < FIG_VECTOR_BATCH && first + j * THREADS < count; j++)
            ((uint4 *)out)[first + j * THREADS] = product_of(
                fig_vector_choose(gates, j), fig_vector_choose(ups, j), dtype, activation);
    }
}

static __device__ __forceinline__ void activate_row(const fig_gated_params *p, int32_t row,
                                                    int32_t dtype) {
    switch (p->activation) {
    case FIG_SILU: gate_row(p, row, dtype, FIG_SILU); break;
    case FIG_GELU: gate_row(p, row, dtype, FIG_GELU); break;
    default: gate_row(p, row, dtype, FIG_GELU_TANH); break;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    fig_kernel_gated(const __grid_constant__ fig_gated_params p) {
    int32_t row = (int32_t)blockIdx.x;
    fig_block_wait();
    fig_block_trigger();
    if (row >= fig_params_rows(&p.rows, p.plan)) return;
    switch (p.dtype) {
    case FIG_F16: activate_row(&p, row, FIG_F16); break;
    case FIG_BF16: activate_row(&p, row, FIG_BF16); break;
    default: activate_row(&p, row, FIG_F32); break;
    }
}
