/* gated.cu: runs silu_and_mul, gelu_and_mul, gelu_tanh_and_mul and swiglu_limited on a GPU.
 *
 * out[r][c] = activation(in[r][c]) * in[r][width + c], in f32, rounded once; gated.c explains the
 * form of each activation. A block processes one stretch of one row, or of several rows in turn
 * (fig_params_abreast()). The stretch's vectors are in flight before the block knows whether the
 * step has that row, because any row of a tensor may be read. If an address or the width does not
 * allow vectors, the block takes numbers one by one. Dtype and activation are constants once the
 * compiler has inlined a helper. Invariant: each number is written by one thread, once. */
#include "kernels/common/block.cuh"
#include "kernels/rows/gated.h"
#include "kernels/common/vector.cuh"

#define ROOT_HALF 0.70710678118654752f
#define ROOT_HALF_LOG2_E 0.84932180028801904f
#define TWICE_ROOT_2_OVER_PI 1.5957691216057308f

/* The addresses of a stretch of a row. */
typedef struct stretch_place {
    const uint8_t *gate, *up;
    uint8_t *out;
} stretch_place;

/* Returns 1 / x, within one unit of the last place. */
static __device__ __forceinline__ float inverse_of(float x) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
}

/* Returns x / (1 + exp(-y)), computed from exp(y), which is 0 where exp(-y) would be infinite. For
 * y beyond 80 the quotient is x. The GPU's own exponential errs by two units, plus one for each
 * unit of the exponent: far below half a unit of 16 bits. */
static __device__ __forceinline__ float damped(float x, float y) {
    const float power = __expf(fminf(y, 80.0f));
    return x * (power * inverse_of(1.0f + power));
}

/* Returns x * erfc(-x / sqrt(2)) / 2 for 16-bit numbers. With y = |x| / sqrt(2) and t = 1 / (1 + y
 * / 2), erfc(y) is t * exp(polynomial(t) - y^2), with a relative error of 1.2e-7 however small
 * erfc(y) is (Numerical Recipes, 6.2). The code writes this as a power of two, and halves it. erfcf
 * has twice the instructions, which would limit the speed with thousands of rows. */
static __device__ __forceinline__ float short_gelu(float x) {
    const float y = fabsf(x) * ROOT_HALF_LOG2_E;
    const float t = inverse_of(fmaf(0.5f * ROOT_HALF, fabsf(x), 1.0f));
    float power = 0.246517298f, beyond;
    power = fmaf(power, t, -1.18611495f);
    power = fmaf(power, t, 2.14747446f);
    power = fmaf(power, t, -1.63775315f);
    power = fmaf(power, t, 0.402321582f);
    power = fmaf(power, t, -0.26875686f);
    power = fmaf(power, t, 0.139630057f);
    power = fmaf(power, t, 0.539700616f);
    power = fmaf(power, t, 1.4427292f);
    power = fmaf(power, t, -2.82574822f);
    power = fmaf(-y, y, power);
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(beyond) : "f"(power));
    beyond *= t;
    return x * (x < 0.0f ? beyond : 1.0f - beyond);
}

static __device__ __forceinline__ float activation_of(float x, int32_t dtype, int32_t activation) {
    if (activation == FIG_SILU) return damped(x, x);
    if (activation == FIG_SWIGLU_LIMITED) {
        const float bounded = x > FIG_GATED_LIMIT ? FIG_GATED_LIMIT : x;
        return damped(bounded, FIG_GATED_SLOPE * bounded);
    }
    if (activation == FIG_GELU_TANH)
        return damped(x, TWICE_ROOT_2_OVER_PI * (x + 0.044715f * x * x * x));
    return dtype == FIG_F32 ? 0.5f * x * erfcf(-x * ROOT_HALF) : short_gelu(x);
}

static __device__ __forceinline__ uint4 product_of(uint4 gate, uint4 up, int32_t dtype,
                                                   int32_t activation) {
    const int32_t lanes = fig_vector_lanes(dtype);
    float numbers[FIG_VECTOR_LANE_LIMIT], more[FIG_VECTOR_LANE_LIMIT];
    fig_vector_read(numbers, lanes, gate, dtype);
    fig_vector_read(more, lanes, up, dtype);
#pragma unroll
    for (int32_t i = 0; i < lanes; i++)
        numbers[i] =
            activation_of(numbers[i], dtype, activation) * fig_gated_beside(more[i], activation);
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
    fig_block_enter(p->early_reads & FIG_EARLY_READS_ON);
    if (part->row >= fig_params_rows(&p->rows, p->plan)) return;
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x; i < part->count; i += (int32_t)blockDim.x) {
        const float x = activation_of(fig_numeric_load(at->gate, dtype, i), dtype, activation);
        const float up = fig_gated_beside(fig_numeric_load(at->up, dtype, i), activation);
        fig_numeric_store(at->out, dtype, i, x * up);
    }
}

/* Gates by vectors. Both halves of a row begin at the start of a vector, so the first half also
 * ends at the end of one. */
static __device__ __forceinline__ void gate_vectors(const fig_gated_params *p,
                                                    const fig_gated_part *part,
                                                    const stretch_place *at, int32_t dtype,
                                                    int32_t activation) {
    const int32_t thread = (int32_t)threadIdx.x;
    const int32_t is_there = thread < part->count / fig_vector_lanes(dtype);
    const uint4 *gate = (const uint4 *)at->gate + thread, *up = (const uint4 *)at->up + thread;
    uint4 gates, ups; /* set only if is_there; initialising them to zeros would delay their loads */
    fig_block_enter(p->early_reads & FIG_EARLY_READS_ON);
    if (is_there) gates = fig_vector_fetch(gate);
    if (is_there) ups = fig_vector_fetch(up);
    if (part->row >= fig_params_rows(&p->rows, p->plan)) return;
    if (is_there) ((uint4 *)at->out)[thread] = product_of(gates, ups, dtype, activation);
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
    case FIG_SWIGLU_LIMITED: gate_stretch(p, part, dtype, FIG_SWIGLU_LIMITED); break;
    default: gate_stretch(p, part, dtype, FIG_GELU_TANH); break;
    }
}

template <int32_t IS_LONG>
static __device__ __forceinline__ void activate_rows(const fig_gated_params *p, int32_t dtype) {
    const int32_t abreast = fig_params_abreast(&p->rows);
    fig_gated_part part = fig_gated_part_of(p, (int32_t)blockDim.x, blockIdx.x);
#pragma unroll 1
    do {
        activate(p, &part, dtype);
        part.row += abreast;
    } while (IS_LONG && part.row < fig_params_rows(&p->rows, p->plan));
}

#define ENTRY(name, is_long)                                                                       \
    extern "C" __global__ void __launch_bounds__(FIG_GATED_THREAD_LIMIT)                           \
        fig_kernel_##name(const __grid_constant__ fig_gated_params p) {                            \
        switch (p.dtype) {                                                                         \
        case FIG_F16: activate_rows<is_long>(&p, FIG_F16); break;                                  \
        case FIG_BF16: activate_rows<is_long>(&p, FIG_BF16); break;                                \
        default: activate_rows<is_long>(&p, FIG_F32); break;                                       \
        }                                                                                          \
    }
ENTRY(gated, 0)
ENTRY(gated_long, 1)
