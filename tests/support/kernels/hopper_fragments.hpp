/* hopper_fragments.hpp: what hopper_strips.hpp is, for kernels that multiply strips by the products
 * of one warp.
 *
 * A program includes this file before the kernel's .cu file. It takes the place of the rest of
 * fragment.cuh; hopper_turns.hpp, which it includes, serves RoPE and append. Blocks that wait for
 * others run twice, see passing. Invariant: that of hopper.hpp. */
#ifndef FIG_TESTS_SUPPORT_HOPPER_FRAGMENTS_HPP
#define FIG_TESTS_SUPPORT_HOPPER_FRAGMENTS_HPP

#include "tests/support/kernels/hopper_strips.hpp"

/* Shared memory that a kernel declares, and the size that it reads from a special register. No
 * other assembler statement of these kernels has outputs. */
static uint32_t dynamic_bytes;
#define fig_warps_shared shared
#define asm(...) shared_bytes = dynamic_bytes

namespace {
int __clz(int x) {
    return x == 0 ? 32 : __builtin_clz((uint32_t)x);
}

/* Returns the greater of two 16-bit numbers in each half. */
uint32_t __vmaxu2(uint32_t a, uint32_t b) {
    return max(a & 0xffffu, b & 0xffffu) | max(a >> 16, b >> 16) << 16;
}
uint32_t __vimax3_u16x2(uint32_t a, uint32_t b, uint32_t c) {
    return __vmaxu2(a, __vmaxu2(b, c));
}
} // namespace

/* ---- Fragments ------------------------------------------------------------------------------- */

static constexpr int32_t fig_fragment_dtype(int32_t kv_dtype) {
    return kv_dtype == FIG_BF16 ? FIG_BF16 : FIG_F16;
}

namespace {
/* A product of one warp: what each lane holds of the operands, and the results. The lane that comes
 * last computes all of them. */
struct fragment_product {
    int32_t arrived, turn;
    uint32_t words[WARP][6]; /* four of the left operand, two of the right one */
    four results[2][16][2];  /* [turn % 2] */
};
fragment_product fragment_products[BLOCK_THREADS / WARP];

/* Computes left [16][16] * right [16][8]. Lane (g, t) holds rows g and g + 8 of the left operand
 * and column g of the right one, each at 2t, 2t + 1, 2t + 8 and 2t + 9. */
void multiply(const uint32_t (&words)[WARP][6], int32_t is_bf16, four (&results)[16][2]) {
    float left[16][16];
    four right[16][2];
    for (uint32_t lane = 0; lane < WARP; lane++)
        for (uint32_t i = 0; i < 12; i++) {
            const uint32_t g = lane / 4, at = lane % 4 * 2 + i % 2, part = i / 2;
            const float x = half_of((uint16_t)(words[lane][part] >> i % 2 * 16), is_bf16);
            if (part < 4)
                left[g + part % 2 * 8][at + part / 2 * 8] = x;
            else
                right[at + (part - 4) * 8][g / 4][g % 4] = x;
        }
    for (uint32_t row = 0; row < 16; row++) {
        four low = {0, 0, 0, 0}, high = low;
        for (uint32_t k = 0; k < 16; k++) {
            low += left[row][k] * right[k][0];
            high += left[row][k] * right[k][1];
        }
        results[row][0] = low;
        results[row][1] = high;
    }
}
} // namespace

template <int32_t DTYPE>
static void fig_fragment_multiply(float (&sums)[4], uint32_t left0, uint32_t left1, uint32_t left2,
                                  uint32_t left3, uint32_t right0, uint32_t right1) {
    const uint32_t lane = threadIdx.x % WARP, row = lane / 4, column = lane % 4 * 2;
    const uint32_t words[] = {left0, left1, left2, left3, right0, right1};
    fragment_product *of = &fragment_products[threadIdx.x / WARP];
    const int32_t turn = of->turn;
    memcpy(of->words[lane], words, sizeof words);
    if (++of->arrived == WARP) {
        multiply(of->words, DTYPE == FIG_BF16, of->results[turn % 2]);
        of->arrived = 0;
        of->turn++;
    }
    while (of->turn == turn)
        give_way();
    advanced = 1;
    for (uint32_t i = 0; i < 4; i++)
        sums[i] += of->results[turn % 2][row + i / 2 * 8][column / 4][column % 4 + i % 2];
}

static void fig_fragment_load_turned(uint32_t (&to)[4], uint32_t address) {
    const uint64_t *words = meet_warp(address);
    const uint32_t lane = threadIdx.x % WARP, first = threadIdx.x - lane;
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t e = 0; e < 2; e++)
            memcpy((uint8_t *)&to[i] + 2 * e,
                   &shared[words[first + 8 * i + lane % 4 * 2 + e] + lane / 4 * 2], 2);
}

static uint32_t fig_fragment_turn(uint32_t block) {
    return fig_latent_machine_across(block);
}

template <int32_t KV_DTYPE>
static void fig_fragment_widen(uint32_t codes, uint32_t *low, uint32_t *high) {
    static_assert(KV_DTYPE != FIG_E5M2, "codes of e4m3");
    fig_latent_machine_codes(codes, low, high);
}

template <int32_t KV_DTYPE>
static void fig_fragment_widen_apart(uint32_t codes, uint32_t *even, uint32_t *odd) {
    const uint32_t middle = (codes >> 8 & 0xff00) | (codes << 8 & 0xff0000);
    fig_fragment_widen<KV_DTYPE>((codes & 0xff0000ffu) | middle, even, odd);
}

/* ---- What blocks pass to others -------------------------------------------------------------- */

/* Blocks run one after the other, so a block that waits for a later one would wait forever. Such a
 * launch runs twice. In the first run blocks leave their partials, and what they merge is of no
 * use; the program undoes all else that they have written. In the second run all partials are
 * there from the beginning. */
enum { PASSING_AT_ONCE, PASSING_FIRST, PASSING_SECOND };

namespace {
int32_t passing;

template <class word, uint32_t COUNT> void pass(float *to, const word (&words)[COUNT]) {
    uint32_t there[COUNT];
    memcpy(there, to, sizeof there);
    const int is_cleared = words[0] == 0;
    if (passing == PASSING_FIRST && is_cleared) return;
    if (passing == PASSING_SECOND && !is_cleared) {
        if (there[0] != 0 && memcmp(there, words, sizeof there) != 0)
            fault = "a partial has other bits in the second run";
        return;
    }
    memcpy(to, words, sizeof there);
}

template <uint32_t COUNT> void receive(uint32_t (&words)[COUNT], const float *from) {
    memcpy(words, from, sizeof words);
    for (uint32_t &word : words)
        if (passing == PASSING_FIRST && word == 0) word = 0x80000000u;
}
} // namespace

static void fig_machine_store(float *to, uint4 of) {
    const uint32_t words[] = {of.x, of.y, of.z, of.w};
    pass(to, words);
}

static void fig_machine_store(float *to, uint2 of) {
    const uint32_t words[] = {of.x, of.y};
    pass(to, words);
}

static void fig_machine_load(uint4 *of, const float *from) {
    uint32_t words[4];
    receive(words, from);
    *of = {words[0], words[1], words[2], words[3]};
}

static void fig_machine_load(uint2 *of, const float *from) {
    uint32_t words[2];
    receive(words, from);
    *of = {words[0], words[1]};
}

static uint32_t fig_machine_look(const uint32_t *counter) {
    return *counter;
}

#include "tests/support/kernels/hopper_turns.hpp"

#endif
