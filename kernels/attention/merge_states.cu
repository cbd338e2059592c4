/* merge_states.cu: merges the attention results over two sets of tokens into the result over both.
 *
 * out = (2^(lse_a - m) a + 2^(lse_b - m) b) / (2^(lse_a - m) + 2^(lse_b - m)) with m the greater
 * lse, in f32, rounded once. One block per row merges all heads. It works on 16 bytes at a time if
 * addresses, strides and head_dim allow it, and on single elements otherwise. Operands do not
 * overlap. Invariant: a side that saw no token has lse -inf. It is skipped, not multiplied by zero,
 * so any bytes may lie there. */
#include "kernels/common/block.cuh"
#include "kernels/common/numeric.h"
#include "kernels/common/params.h"
#include "kernels/common/vector.cuh"

enum { THREADS = 128 };

/* Holds the weight of each side in a head's result, and the lse of the result. */
typedef struct merge_weights {
    float a, b, lse;
} merge_weights;

/* Returns the weight of a side, relative to the greater lse. */
static __device__ __forceinline__ float weight_of(float lse, float greatest) {
    return lse == -INFINITY ? 0 : exp2f(lse - greatest);
}

static __device__ __forceinline__ merge_weights weights_of(float lse_a, float lse_b) {
    float greatest = lse_a > lse_b ? lse_a : lse_b;
    float weight_a = weight_of(lse_a, greatest), weight_b = weight_of(lse_b, greatest);
    float weights = weight_a + weight_b;
    float scale = weights == 0 ? 0 : 1.0f / weights;
    return {weight_a * scale, weight_b * scale, greatest + log2f(weights)};
}

static __device__ __forceinline__ float merged(merge_weights weights, float a, float b) {
    float sum = 0;
    if (weights.a != 0) sum += a * weights.a;
    if (weights.b != 0) sum += b * weights.b;
    return sum;
}

static __device__ __forceinline__ uint32_t merged_half(merge_weights weights, int32_t dtype,
                                                       uint32_t a, uint32_t b) {
    float x = merged(weights, fig_vector_of_half(dtype, a), fig_vector_of_half(dtype, b));
    return dtype == FIG_F16 ? fig_numeric_f16(x) : fig_numeric_bf16(x);
}

/* Merges a word: one f32, or two neighbouring 16-bit numbers. */
static __device__ __forceinline__ uint32_t merged_word(merge_weights weights, int32_t dtype,
                                                       uint32_t a, uint32_t b) {
    if (dtype == FIG_F32)
        return fig_numeric_bits(merged(weights, fig_numeric_of_bits(a), fig_numeric_of_bits(b)));
    return merged_half(weights, dtype, a & 0xffffu, b & 0xffffu) |
           merged_half(weights, dtype, a >> 16, b >> 16) << 16;
}

static __device__ __forceinline__ int64_t element_of(const fig_row_strides *strides, int32_t row,
                                                     int32_t head) {
    return row * strides->row + head * strides->head;
}

static __device__ __forceinline__ int32_t unit_of(const fig_merge_states_params *p) {
    return p->dtype == FIG_F32 ? 4 : 2;
}

/* Returns 1 if every head of an array begins at a multiple of the vector size. */
static __device__ __forceinline__ int32_t is_in_vectors(const void *array,
                                                        const fig_row_strides *strides,
                                                        int32_t unit) {
    uint64_t steps = (uint64_t)strides->row | (uint64_t)strides->head;
    return ((uint64_t)array | steps * (uint32_t)unit) % FIG_VECTOR_BYTES == 0;
}

/* Returns the weights of a head. The thread that merges the head's first part also writes the
 * lse. */
static __device__ __forceinline__ merge_weights head_weights(const fig_merge_states_params *p,
                                                             int32_t row, int32_t head,
                                                             int32_t part) {
    const merge_weights weights =
        weights_of(p->lse_a[row * p->lse_a_stride + head], p->lse_b[row * p->lse_b_stride + head]);
    if (part == 0 && p->lse != NULL) p->lse[row * p->lse_stride + head] = weights.lse;
    return weights;
}

static __device__ __forceinline__ void merge_vectors(const fig_merge_states_params *p,
                                                     int32_t row) {
    const int32_t unit = unit_of(p), vectors = p->head_dim * unit / FIG_VECTOR_BYTES;
    const uint8_t *out_a = (const uint8_t *)p->out_a, *out_b = (const uint8_t *)p->out_b;
    for (int32_t i = (int32_t)threadIdx.x; i < p->heads * vectors; i += THREADS) {
        const int32_t head = i / vectors, vector = i % vectors;
        const int64_t at_a = element_of(&p->out_a_strides, row, head) * unit;
        const int64_t at_b = element_of(&p->out_b_strides, row, head) * unit;
        const int64_t at = element_of(&p->out_strides, row, head) * unit;
        const uint4 a = ((const uint4 *)(out_a + at_a))[vector];
        const uint4 b = ((const uint4 *)(out_b + at_b))[vector];
        const merge_weights weights = head_weights(p, row, head, vector);
        ((uint4 *)((uint8_t *)p->out + at))[vector] = make_uint4(
            merged_word(weights, p->dtype, a.x, b.x), merged_word(weights, p->dtype, a.y, b.y),
            merged_word(weights, p->dtype, a.z, b.z), merged_word(weights, p->dtype, a.w, b.w));
    }
}

static __device__ __forceinline__ void merge_elements(const fig_merge_states_params *p,
                                                      int32_t row) {
    for (int32_t i = (int32_t)threadIdx.x; i < p->heads * p->head_dim; i += THREADS) {
        const int32_t head = i / p->head_dim, element = i % p->head_dim;
        const int64_t at_a = element_of(&p->out_a_strides, row, head) + element;
        const int64_t at_b = element_of(&p->out_b_strides, row, head) + element;
        const int64_t at = element_of(&p->out_strides, row, head) + element;
        const float a = fig_numeric_load(p->out_a, p->dtype, at_a);
        const float b = fig_numeric_load(p->out_b, p->dtype, at_b);
        const merge_weights weights = head_weights(p, row, head, element);
        fig_numeric_store(p->out, p->dtype, at, merged(weights, a, b));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    fig_kernel_merge_states(const __grid_constant__ fig_merge_states_params p) {
    fig_block_wait();
    fig_block_trigger();
    const int32_t row = (int32_t)blockIdx.x, unit = unit_of(&p);
    if (row >= fig_params_rows(&p.rows, p.plan)) return;
    if (p.head_dim * unit % FIG_VECTOR_BYTES == 0 &&
        is_in_vectors(p.out_a, &p.out_a_strides, unit) &&
        is_in_vectors(p.out_b, &p.out_b_strides, unit) &&
        is_in_vectors(p.out, &p.out_strides, unit)) {
        merge_vectors(&p, row);
    } else {
        merge_elements(&p, row);
    }
}
