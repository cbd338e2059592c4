/* hopper_turns.hpp: what hopper_fragments.hpp is, for kernels that apply RoPE and append.
 *
 * hopper_fragments.hpp includes it. It takes the place of vector.cuh, heads.cuh and store.cuh, for
 * what attention_turn.cuh uses of them. Cosines and sines are those of the C library, and the sum of
 * a norm has another order, so results may differ from the twin's by a rounding. Invariant: that of
 * hopper.hpp. */
#ifndef FIG_TESTS_SUPPORT_HOPPER_TURNS_HPP
#define FIG_TESTS_SUPPORT_HOPPER_TURNS_HPP

extern "C" {
#include "kernels/common/cache.h"
#include "kernels/common/heads.h"
}

/* ---- vector.cuh ------------------------------------------------------------------------------ */

#define FIG_KERNELS_VECTOR_CUH
static uint32_t fig_vector_fetch_word(const uint32_t *from) {
    return *from;
}
static int32_t fig_vector_fetch_number(const int32_t *from) {
    return *from;
}
static float fig_vector_low(uint32_t word, int32_t dtype) {
    return half_of((uint16_t)word, dtype == FIG_BF16);
}
static float fig_vector_high(uint32_t word, int32_t dtype) {
    return fig_vector_low(word >> 16, dtype);
}
static uint32_t fig_vector_pair(float low, float high, int32_t dtype) {
    return dtype == FIG_BF16 ? fig_fragment_pair<FIG_BF16>(low, high)
                             : fig_fragment_pair<FIG_F16>(low, high);
}

/* ---- heads.cuh ------------------------------------------------------------------------------- */

#define FIG_KERNELS_HEADS_CUH
static void fig_heads_turn_of(double angle, float *cosine, float *sine) {
    *cosine = (float)std::cos(angle);
    *sine = (float)std::sin(angle);
}
static void fig_heads_turn_pair(float *x, float *y, float cosine, float sine) {
    const float a = *x, b = *y;
    *x = a * cosine - b * sine;
    *y = b * cosine + a * sine;
}
static float fig_heads_factor(double squares, int32_t, int32_t head_dim, float epsilon) {
    uint64_t bits;
    memcpy(&bits, &squares, sizeof bits);
    const uint64_t *all = meet_warp(bits) + threadIdx.x / WARP * WARP;
    double sum = 0;
    for (uint32_t i = 0; i < WARP; i++) {
        memcpy(&squares, &all[i], sizeof squares);
        sum += squares;
    }
    return (float)(1 / std::sqrt(sum / head_dim + (double)epsilon));
}

/* ---- store.cuh ------------------------------------------------------------------------------- */

#define FIG_KERNELS_STORE_CUH
static uint32_t fig_store_codes(uint32_t pair, int32_t dtype, int32_t kv_dtype, float scale) {
    uint8_t codes[2];
    fig_numeric_store(codes, kv_dtype, 0, fig_vector_low(pair, dtype) / scale);
    fig_numeric_store(codes, kv_dtype, 1, fig_vector_high(pair, dtype) / scale);
    return codes[0] | (uint32_t)codes[1] << 8;
}

#endif
