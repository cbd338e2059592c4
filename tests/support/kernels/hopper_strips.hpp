/* hopper_strips.hpp: what hopper.hpp is, for kernels that read the ring of strips.
 *
 * A program includes this file before the kernel's .cu file. It takes the place of kv_machine.cuh,
 * and of what hopper_latent.hpp does. Invariant: that of hopper.hpp. */
#ifndef FIG_TESTS_SUPPORT_HOPPER_STRIPS_HPP
#define FIG_TESTS_SUPPORT_HOPPER_STRIPS_HPP

#include "tests/support/kernels/hopper_latent.hpp"

#define __noinline__

namespace {
template <class T> T __shfl_down_sync(uint32_t, T x, uint32_t apart) {
    const uint32_t lane = threadIdx.x % WARP;
    return of_lane(x, lane + apart < WARP ? lane + apart : lane);
}

struct __half2 {
    uint16_t x, y;
};
float2 __half22float2(__half2 pair) {
    return {fig_numeric_of_f16(pair.x), fig_numeric_of_f16(pair.y)};
}

/* Returns f16 bits of a number that is not negative, rounded down. */
uint16_t f16_below(float x) {
    const uint16_t bits = fig_numeric_f16(x);
    return fig_numeric_of_f16(bits) > x ? bits - 1 : bits;
}
} // namespace

template <int32_t DTYPE> static uint32_t fig_fragment_pair_below(float first, float second) {
    if (DTYPE == FIG_BF16)
        return __float_as_uint(first) >> 16 | (__float_as_uint(second) & 0xffff0000u);
    return f16_below(first) | (uint32_t)f16_below(second) << 16;
}

/* ---- The rest of wide_machine.cuh ------------------------------------------------------------ */

static void fig_wide_copy_word(uint32_t to, uint64_t from) {
    memcpy(&shared[to], (const void *)from, 4);
}

static uint32_t fig_wide_load_word(uint32_t from) {
    uint32_t word;
    memcpy(&word, &shared[from], sizeof word);
    return word;
}

/* Returns a pair of numbers, each of them at least the least positive one. */
template <int32_t DTYPE> static uint32_t fig_wide_positive(uint32_t pair) {
    const uint32_t least = DTYPE == FIG_BF16 ? 0x0080 : 0x0001;
    const uint32_t low = (int16_t)pair < (int32_t)least ? least : pair & 0xffff;
    const uint32_t high = (int16_t)(pair >> 16) < (int32_t)least ? least : pair >> 16;
    return low | high << 16;
}

static uint32_t fig_wide_signs(uint32_t word) {
    return (word & 0x8000 ? 0xffff : 0) | (word & 0x80000000 ? 0xffff0000 : 0);
}

/* ---- kv_machine.cuh -------------------------------------------------------------------------- */

#define FIG_KERNELS_KV_MACHINE_CUH
static void fig_feed_box(uint32_t to, const void *map, int32_t token, int32_t column, int32_t head,
                         int32_t page, uint32_t barrier, uint64_t) {
    const int32_t place[] = {0, token, column, head, page};
    send(to, (const fig_tensor_map *)map, place, (const uint64_t *)(const void *)&shared[barrier]);
}

static void fig_feed_expect(uint32_t barrier, uint32_t bytes) {
    barrier_change(barrier_at(barrier), 1, bytes);
}

static void fig_feed_order_engines() {
}
static void fig_feed_prefetch_maps(const fig_attention_params &) {
}
static void fig_feed_bring_boxes(const fig_tensor_map *, const fig_tensor_map *, int32_t, int32_t,
                                 int32_t, int32_t, int32_t) {
}

#endif
