/* wide_tile.cuh: processes a tile of K and V in one warpgroup: products, mask, weights.
 *
 * A thread holds two of the warpgroup's 64 vectors, 8 apart, and of each the columns 8 j + 2 q and
 * 8 j + 2 q + 1, where q is its number in its quad. Sums are rescaled only if a row's greatest
 * logit grows by more than a factor of 2^8, and only the row's own logits decide that.
 *
 * A form tells how a side of a tile lies in shared memory: COLUMNS columns of COLUMN bytes of a
 * token, COLUMN_APART bytes apart, in which 8 tokens lie together and the next 8 are GROUP_APART
 * bytes further on. Invariant: no row's results depend on another row. */
#ifndef FIG_KERNELS_WIDE_TILE_CUH
#define FIG_KERNELS_WIDE_TILE_CUH

#include "kernels/wide/wide_machine.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Stands for the greatest logit of no tokens. It is finite, so its difference to itself is 0. */
#define FIG_WIDE_NONE (-1e30f)
#define FIG_WIDE_MINUS_INFINITY __int_as_float((int32_t)0xff800000u)
#define FIG_WIDE_GROWTH 8.0f /* in powers of two; weights up to 2^8 lose nothing in f32 sums */

template <int32_t DTYPE> struct fig_wide_tag { typedef fig_wgmma_f16 type; };
template <> struct fig_wide_tag<FIG_BF16> { typedef fig_wgmma_bf16 type; };

/* Returns x, which must be the same in all lanes. The shuffle tells the compiler that it is;
 * otherwise products after a branch on x would not overlap. */
static __device__ __forceinline__ int32_t fig_wide_same(int32_t x) {
    return __shfl_sync(0xffffffffu, x, 0);
}

/* ---- Products */

template <class form>
static __device__ __forceinline__ void
fig_wide_product_k(float (&logits)[form::TILE / 2], const uint32_t *q, uint32_t q_at, uint32_t k) {
    constexpr int32_t STEPS = form::COLUMN / 32; /* steps of 16 dims in a column */
    const uint64_t left = fig_wgmma_matrix(q_at, form::COLUMN, FIG_WIDE_BLOCK * form::COLUMN, 16);
    const uint64_t right = fig_wgmma_matrix(k, form::COLUMN, form::GROUP_APART, 16);
#pragma unroll
    for (int32_t i = 0; i < form::DIM / 16; i++) {
        const int32_t column = i / STEPS, within = i % STEPS * 32;
        const uint64_t at = right + (uint64_t)((column * form::COLUMN_APART + within) / 16);
        if constexpr (form::HOLDS_QUERIES)
            fig_wgmma_along_r(typename form::tag(), logits, q + 4 * i, at, i > 0);
        else
            fig_wgmma_along(typename form::tag(), logits,
                            left + (uint64_t)((column * form::Q_COLUMN + within) / 16), at, i > 0);
    }
}

template <class form>
static __device__ __forceinline__ void fig_wide_product_v(float (&sums)[form::DIM / 2],
                                                          const uint32_t *weights, uint32_t v,
                                                          int32_t is_sum) {
    constexpr int32_t STEP = 2 * form::GROUP_APART; /* bytes of 16 tokens */
    const uint64_t right = fig_wgmma_matrix(v, form::COLUMN, form::GROUP_APART, form::COLUMN_APART);
#pragma unroll
    for (int32_t i = 0; i < form::TILE / 16; i++)
        fig_wgmma_across(typename form::tag(), sums, weights + 4 * i,
                         right + (uint64_t)(i * STEP / 16), i > 0 ? 1 : is_sum);
}

/* Loads the warp's 16 rows of queries into registers. */
template <class form>
static __device__ __forceinline__ void fig_wide_load_q(uint32_t *q, uint32_t q_at, int32_t warp,
                                                       int32_t lane) {
    constexpr int32_t STEPS = form::COLUMN / 32;
    const int32_t row = warp * 16 + (lane & 15);
    const int32_t turned = form::COLUMN == 128 ? row & 7 : row >> 1 & 3; /* the swizzle */
#pragma unroll
    for (int32_t i = 0; i < form::DIM / 16; i++) {
        const int32_t chunk = (2 * (i % STEPS) + (lane >> 4)) ^ turned;
        uint32_t to[4];
        fig_fragment_load(
            to, q_at + (uint32_t)(i / STEPS * form::Q_COLUMN + row * form::COLUMN + chunk * 16));
#pragma unroll
        for (int32_t j = 0; j < 4; j++)
            q[4 * i + j] = to[j];
    }
}

/* Overwrites rows [from, end) of V with zeros. Any bytes may lie there, and their product with a
 * weight of 0 must be 0. All threads of a warpgroup call it, and then fig_wide_show_clear(). */
template <class form>
static __device__ __forceinline__ void fig_wide_clear(uint32_t v, int32_t from, int32_t end,
                                                      int32_t thread) {
    constexpr int32_t CHUNKS = form::COLUMN / 16; /* chunks of a token in a column */
#pragma unroll 1
    for (int32_t i = thread; i < (end - from) * form::COLUMNS * CHUNKS; i += 128) {
        const int32_t row = from + i / (form::COLUMNS * CHUNKS), of = i % (form::COLUMNS * CHUNKS);
        const uint32_t at = v + (uint32_t)(row / FIG_WIDE_BLOCK * form::GROUP_APART +
                                           of / CHUNKS * form::COLUMN_APART +
                                           row % FIG_WIDE_BLOCK * form::COLUMN + of % CHUNKS * 16);
        fig_wide_clear_chunk(at);
    }
}

/* Makes what the warpgroup has cleared known to its products. barrier: one of its own. */
static __device__ __forceinline__ void fig_wide_show_clear(int32_t barrier) {
    fig_wide_order_engines();
    fig_ring_meet(barrier, 128);
}

/* ---- Weights */

/* Holds the tokens [low, high] that each of the thread's two rows sees. */
struct fig_wide_sight {
    int32_t low[2], high[2];
};

/* Sets the logits of tokens that a row does not see to -inf. token: the token of the thread's first
 * column. */
template <class form>
static __device__ __forceinline__ void fig_wide_mask(float (&logits)[form::TILE / 2],
                                                     const fig_wide_sight &sight, int32_t token) {
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t low = sight.low[h] - token, high = sight.high[h] - token;
#pragma unroll
        for (int32_t j = 0; j < form::TILE / 8; j++)
#pragma unroll
            for (int32_t e = 0; e < 2; e++)
                if (8 * j + e > high || 8 * j + e < low)
                    logits[4 * j + 2 * h + e] = FIG_WIDE_MINUS_INFINITY;
    }
}

/* Replaces each logit x by cap * tanh(x / cap), in base 2. rate: 2 * log2(e) / cap, times the
 * factor that turns a product into a logit. */
template <class form>
static __device__ __forceinline__ void fig_wide_cap(float (&logits)[form::TILE / 2], float rate,
                                                    float cap) {
#pragma unroll
    for (int32_t i = 0; i < form::TILE / 2; i++) {
        const float power = fig_wide_exp2(logits[i] * rate);
        logits[i] = cap - __fdividef(2.0f * cap, power + 1.0f);
    }
}

/* Raises the references of those rows that see their first token, or whose greatest logit exceeds
 * the reference by more than 2^8. A row's logits are relative to its reference, or to 0 if it has
 * none. Sets `shrink`, by which the sums must be multiplied. */
template <class form>
static __device__ __forceinline__ void fig_wide_raise(float (&logits)[form::TILE / 2],
                                                      float (&greatest)[2], float (&weights)[2],
                                                      float (&shrink)[2]) {
    float most[2] = {logits[0], logits[2]};
#pragma unroll
    for (int32_t j = 0; j < form::TILE / 8; j++) {
        most[0] = fmaxf(most[0], fmaxf(logits[4 * j], logits[4 * j + 1]));
        most[1] = fmaxf(most[1], fmaxf(logits[4 * j + 2], logits[4 * j + 3]));
    }
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 1));
        most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 2));
        const int32_t is_new = greatest[h] == FIG_WIDE_NONE && most[h] > FIG_WIDE_MINUS_INFINITY;
        const float limit = FIG_WIDE_GROWTH + form::LIFT;
        const float more = is_new || most[h] > limit ? most[h] - form::LIFT : 0.0f;
        shrink[h] = is_new ? 0.0f : fig_wide_exp2(-more);
        weights[h] *= shrink[h];
        greatest[h] = is_new ? more : greatest[h] + more;
        most[h] = more;
    }
#pragma unroll
    for (int32_t j = 0; j < form::TILE / 2; j++)
        logits[j] -= most[j / 2 % 2];
}

/* Turns products into weights relative to the row's reference, which is LIFT below a logit near its
 * greatest one so far: f16 spans 2^-24 to 2^16. Returns 1 if some row of the warp must scale its
 * sums by `shrink`. That a logit exceeds its reference shows in the logits' bits: as integers,
 * positive numbers compare as they do as floats, and negative ones are less. One instruction
 * compares three integers. */
template <class form>
static __device__ __forceinline__ int32_t fig_wide_weigh(float (&logits)[form::TILE / 2],
                                                         float (&greatest)[2], float (&weights)[2],
                                                         float (&shrink)[2], float scale) {
    const int32_t CHAINS = 4;
    const int32_t is_new = greatest[0] == FIG_WIDE_NONE || greatest[1] == FIG_WIDE_NONE;
    const float low = greatest[0] == FIG_WIDE_NONE ? 0.0f : greatest[0];
    const float high = greatest[1] == FIG_WIDE_NONE ? 0.0f : greatest[1];
    float sums[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    int32_t most[CHAINS];
#pragma unroll
    for (int32_t i = 0; i < CHAINS; i++)
        most[i] = is_new ? INT32_MAX : INT32_MIN;
#pragma unroll
    for (int32_t j = 0; j < form::TILE / 4; j++) {
        const float reference = j % 2 ? high : low;
        logits[2 * j] = fmaf(logits[2 * j], scale, -reference);
        logits[2 * j + 1] = fmaf(logits[2 * j + 1], scale, -reference);
        most[j % CHAINS] = fig_wide_most(most[j % CHAINS], __float_as_int(logits[2 * j]),
                                         __float_as_int(logits[2 * j + 1]));
    }
    const int32_t greater = max(fig_wide_most(most[0], most[1], most[2]), most[3]);
    const int32_t grows =
        __any_sync(0xffffffffu, greater > __float_as_int(FIG_WIDE_GROWTH + form::LIFT));
    if (grows) fig_wide_raise<form>(logits, greatest, weights, shrink);
#pragma unroll
    for (int32_t j = 0; j < form::TILE / 8; j++) {
#pragma unroll
        for (int32_t e = 0; e < 4; e++) {
            logits[4 * j + e] = fig_wide_exp2(logits[4 * j + e]);
            sums[e / 2][e % 2] += logits[4 * j + e];
        }
    }
    weights[0] += sums[0][0] + sums[0][1];
    weights[1] += sums[1][0] + sums[1][1];
    return grows;
}

/* Adds up a row's weights, of which each thread of a quad has a part. */
static __device__ __forceinline__ void fig_wide_add_weights(float (&weights)[2]) {
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        weights[h] += __shfl_xor_sync(0xffffffffu, weights[h], 1);
        weights[h] += __shfl_xor_sync(0xffffffffu, weights[h], 2);
    }
}

#endif
#endif
