/* hopper_latent.hpp: what hopper.hpp is, for the kernels over latents.
 *
 * A program includes this file before the kernel's .cu file. It takes the place of machine.cuh,
 * latent_machine.cuh and narrow_products.cuh. Blocks run one after the other, so a launch must have
 * FIG_ATTENTION_APART: no block then waits for another. Invariant: that of hopper.hpp. */
#ifndef FIG_TESTS_SUPPORT_HOPPER_LATENT_HPP
#define FIG_TESTS_SUPPORT_HOPPER_LATENT_HPP

#include "tests/support/kernels/hopper.hpp"

namespace {
uint32_t __float_as_uint(float x) {
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}
float __uint_as_float(uint32_t word) {
    return __int_as_float((int32_t)word);
}
struct __nv_bfloat16 {
    uint16_t bits;
};
struct __half {
    uint16_t bits;
};
__nv_bfloat16 __float2bfloat16_rn(float x) {
    return {fig_numeric_bf16(x)};
}
__half __float2half_rn(float x) {
    return {fig_numeric_f16(x)};
}
int __ffs(int x) {
    return __builtin_ffs(x);
}
int __popc(uint32_t x) {
    return __builtin_popcount(x);
}
void __trap() {
    fault = "a wait in vain";
}
} // namespace

#define _CUDA_PIPELINE_PRIMITIVES_H_
static void __pipeline_memcpy_async(void *, const void *, size_t, size_t = 0) {
}
static void __pipeline_commit() {
}
static void __pipeline_wait_prior(size_t) {
}

static void fig_block_prefetch(const void *) {
}

/* ---- Machine instructions -------------------------------------------------------------------- */

#define FIG_KERNELS_MACHINE_CUH
static uint64_t fig_machine_policy_once() {
    return 0;
}
static uint64_t fig_machine_policy_usual() {
    return 0;
}
static uint4 fig_machine_load_chunk(uint32_t from) {
    uint4 words;
    memcpy(&words, &shared[from], sizeof words);
    return words;
}
static float fig_machine_load_here(const float *from) {
    return *from;
}
static float fig_machine_exp2(float x) {
    return std::exp2(x);
}
static float fig_machine_log2(float x) {
    return std::log2(x);
}
template <class words> static void fig_machine_store(float *to, words from) {
    memcpy(to, &from, sizeof from);
}
template <class words> static void fig_machine_load(words *to, const float *from) {
    memcpy(to, from, sizeof *to);
}

#define FIG_KERNELS_LATENT_MACHINE_CUH
static float2 fig_latent_machine_floats(uint32_t pair) {
    return {fig_numeric_of_f16((uint16_t)pair), fig_numeric_of_f16((uint16_t)(pair >> 16))};
}

static uint32_t f16_of_codes(uint32_t codes) {
    return fig_numeric_f16(fig_numeric_of_e4m3((uint8_t)codes)) |
           (uint32_t)fig_numeric_f16(fig_numeric_of_e4m3((uint8_t)(codes >> 8))) << 16;
}

static void fig_latent_machine_codes(uint32_t codes, uint32_t *low, uint32_t *high) {
    *low = f16_of_codes(codes);
    *high = f16_of_codes(codes >> 16);
}

static uint32_t fig_latent_machine_across(uint32_t pair) {
    const uint64_t *words = meet_warp(pair) + threadIdx.x / WARP * WARP;
    const uint32_t lane = threadIdx.x % WARP, column = lane / 4, row = lane % 4 * 2;
    const uint32_t shift = column % 2 * 16;
    return (uint32_t)((words[row * 4 + column / 2] >> shift & 0xffff) |
                      (words[(row + 1) * 4 + column / 2] >> shift & 0xffff) << 16);
}

static void fig_latent_machine_end_if(int32_t is_vain) {
    if (is_vain) fault = "a wait in vain";
}

static void fig_latent_machine_expect(const uint64_t *barrier, uint32_t bytes) {
    fig_wide_expect(barrier, bytes);
}

static void fig_latent_machine_publish() {
}

static void fig_machine_store_chunk(uint32_t to, uint4 words) {
    memcpy(&shared[to], &words, sizeof words);
}

static float fig_latent_machine_load_scale(uint32_t from) {
    float scale;
    memcpy(&scale, &shared[from], sizeof scale);
    return scale;
}

static void fig_latent_machine_clear(uint32_t to) {
    memset(&shared[to], 0, 16);
}

/* Row r of matrix i of 16-bit values goes to the address of lane 8 i + r. The lane's pair holds
 * values 2 (lane % 4) and 2 (lane % 4) + 1 of row lane / 4 of the matrix before it is transposed. */
static void fig_latent_machine_store_turned(uint32_t to, uint32_t first, uint32_t second) {
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x - lane, pairs[] = {first, second};
    uint32_t rows[16];
    const uint64_t *words = meet_warp(to);
    for (uint32_t i = 0; i < 16; i++)
        rows[i] = (uint32_t)words[warp + i];
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t e = 0; e < 2; e++) {
            const uint16_t value = (uint16_t)(pairs[i] >> 16 * e);
            memcpy(&shared[rows[8 * i + lane % 4 * 2 + e] + lane / 4 * 2], &value, 2);
        }
    meet_warp(0);
}

static void fig_latent_machine_store_matrices(uint32_t to, const uint32_t *pairs) {
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x - lane;
    uint32_t rows[4];
    const uint64_t *words = meet_warp(to);
    for (uint32_t i = 0; i < 4; i++)
        rows[i] = (uint32_t)words[warp + 8 * i + lane / 4];
    for (uint32_t i = 0; i < 4; i++)
        memcpy(&shared[rows[i] + lane % 4 * 4], &pairs[i], 4);
    meet_warp(0);
}

static void fig_latent_machine_send(uint32_t to, const fig_tensor_map *map, int32_t column,
                                    int32_t token, int32_t page, const uint64_t *barrier,
                                    uint64_t) {
    const int32_t place[] = {column, token, page};
    send(to, map, place, barrier);
}

static void fig_latent_machine_copy(uint32_t to, const void *from, uint32_t bytes,
                                    const uint64_t *barrier, uint64_t) {
    post(to, from, bytes, barrier);
}

/* ---- A cluster of blocks -------------------------------------------------------------------- */

/* Blocks run one after the other, so each block of a cluster runs twice: what it gives to others in
 * its first run has come for their second run. In the first run nothing comes, and what the block
 * then merges is overwritten by its second run. */
namespace {
struct gift {
    alignas(16) uint32_t words[4];
    uint32_t to, barrier, bytes;
};
enum { GIFT_RANK_BITS = 24 };
std::vector<std::vector<gift>> gifts; /* [block] */
int32_t cluster_blocks = 1;           /* of a cluster */
int32_t is_giving;                    /* 1: the first runs */
int32_t are_posted;                   /* 1: the block's gifts are on their way */

void give(uint32_t to, uint32_t barrier, const uint32_t *words, uint32_t bytes) {
    const uint32_t mask = (1u << GIFT_RANK_BITS) - 1, rank = to >> GIFT_RANK_BITS;
    gift of = {{0, 0, 0, 0}, to & mask, barrier & mask, bytes};
    if (!is_giving) return;
    if (barrier >> GIFT_RANK_BITS != rank || of.to % bytes != 0 || of.to + bytes > SHARED_BYTES)
        fault = "a gift without its barrier or outside shared memory";
    memcpy(of.words, words, bytes);
    gifts[blockIdx.x / cluster_blocks * cluster_blocks + rank].push_back(of);
}
} // namespace

static void fig_latent_machine_show_barriers() {
    are_posted = 0;
}

static void fig_latent_machine_announce() {
}

/* The block's barriers exist when a thread calls this function. */
static void fig_latent_machine_meet() {
    if (is_giving || are_posted) return;
    are_posted = 1;
    for (const gift &one : gifts[blockIdx.x]) {
        parcel of = {};
        of.from = one.words;
        of.bytes = one.bytes;
        of.to = one.to;
        of.of = barrier_at(one.barrier);
        parcels.push_back(of);
    }
}

static void fig_latent_machine_arrive(uint32_t barrier) {
    fig_ring_arrive(barrier);
}

static uint32_t fig_latent_machine_of(uint32_t own, int32_t rank) {
    return own | (uint32_t)rank << GIFT_RANK_BITS;
}

static void fig_latent_machine_give(uint32_t to, uint32_t barrier, uint4 words) {
    const uint32_t of[] = {words.x, words.y, words.z, words.w};
    give(to, barrier, of, sizeof of);
}

static void fig_latent_machine_give(uint32_t to, uint32_t barrier, uint2 words) {
    const uint32_t of[] = {words.x, words.y};
    give(to, barrier, of, sizeof of);
}

static void fig_latent_machine_await_given(const uint64_t *barrier) {
    if (!is_giving) fig_ring_wait(fig_fragment_shared(barrier), 0);
}

static void fig_latent_machine_bring_map(const fig_tensor_map *) {
}
static void fig_latent_machine_bring(const void *, uint32_t) {
}
template <int32_t COUNT> static void fig_latent_machine_keep() {
}
template <int32_t COUNT> static void fig_latent_machine_take() {
}

/* ---- Products -------------------------------------------------------------------------------- */

static void fig_latent_machine_await_all_but_one() {
    float none[1];
    fig_wgmma_wait<1>(none);
}

static void fig_latent_machine_pin(float &) {
}

#define FIG_KERNELS_NARROW_PRODUCTS_CUH
static void fig_narrow_products_wait() {
    float none[1];
    fig_wgmma_wait<0>(none);
}

template <int N> static void fig_narrow_products_pin(float (&)[N]) {
}

template <class tag, int N>
static void fig_narrow_products_set(tag of, float (&d)[N], uint64_t a, uint64_t b) {
    issue(d, NULL, a, b, 0, 0, is_bf16(of));
}

template <class tag, int N>
static void fig_narrow_products_along(tag of, float (&d)[N], uint64_t a, uint64_t b) {
    issue(d, NULL, a, b, 0, 1, is_bf16(of));
}

template <class tag, int N>
static void fig_narrow_products_turned(tag of, float (&d)[N], uint64_t a, uint64_t b) {
    issue(d, NULL, a, b, 0, 1, is_bf16(of), 1);
}

#endif
