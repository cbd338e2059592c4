/* many_strip.cuh: multiplies the vectors of a piece by a strip, in one warpgroup.
 *
 * out = sum over tokens of 2^(l - m) v / sum of 2^(l - m), where l is the logit in base 2 and m a
 * reference near the greatest l (wide_tile.cuh). A weight is the sum of two numbers of the cache's
 * type, as in attention_strip.cuh: the weight rounded down, and the remainder. Together they keep
 * full precision.
 *
 * Invariant: a token that a vector does not see may hold any bytes. Those that no query of the row
 * sees are overwritten in the ring; those that only some see are, if their V is not finite, added
 * to the sums one by one. */
#ifndef FIG_KERNELS_MANY_STRIP_CUH
#define FIG_KERNELS_MANY_STRIP_CUH

#include "kernels/many/many_form.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Returns a pair of numbers, each of them at least the least positive one. */
template <int32_t DTYPE>
static __device__ __forceinline__ uint32_t fig_many_positive(uint32_t pair) {
    if (DTYPE == FIG_BF16) {
        asm("max.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(0x00800080u));
    } else {
        asm("max.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(0x00010001u));
    }
    return pair;
}

/* Splits weights: each is the sum of its parts in `below` and `rest`. The rest of a weight is never
 * 0, so that an infinite V makes the result infinite and not NaN; the least positive number is
 * nothing beside the other weights. */
template <class form>
static __device__ __forceinline__ void fig_many_split(const float (&weights)[form::TILE / 2],
                                                      fig_many_seen<form> *seen) {
#pragma unroll
    for (int32_t i = 0; i < form::TILE / 4; i++) {
        const float first = weights[2 * i], second = weights[2 * i + 1];
        const uint32_t below = fig_fragment_pair_below<form::TYPE>(first, second);
        const float2 low = fig_warps_widen_q(form::TYPE, below);
        const uint32_t rest = fig_fragment_pair<form::TYPE>(first - low.x, second - low.y);
        seen->below[i] = below;
        seen->rest[i] = fig_many_positive<form::TYPE>(rest);
    }
}

/* Sets the rest of weights that are 0 to 0, for strips that have tokens which some vector does not
 * see. */
template <class form>
static __device__ __forceinline__ void fig_many_hide_rest(fig_many_seen<form> *seen) {
#pragma unroll
    for (int32_t i = 0; i < form::TILE / 4; i++) {
        const uint32_t low = (seen->below[i] & 0xffffu) != 0 ? 0xffffu : 0;
        const uint32_t high = seen->below[i] >> 16 != 0 ? 0xffff0000u : 0;
        seen->rest[i] &= low | high;
    }
}

/* ---- The edge of a row */

/* Tokens of a strip, counted from its first one. */
typedef struct fig_many_rows {
    int32_t first, end;
} fig_many_rows;

/* Returns the tokens of a strip that only some queries see: before those that all see (side 0) or
 * behind them (side 1). */
template <class form>
static __device__ __forceinline__ fig_many_rows fig_many_partly(const fig_ring_note &note,
                                                                const fig_many_share &share,
                                                                int32_t side) {
    const int32_t all = max(share.by_all.first, note.first);
    const int32_t first = side == 0 ? note.first : max(share.by_all.end, all);
    const int32_t end = side == 0 ? min(all, note.end) : note.end;
    return {max(first - note.token, 0), min(end - note.token, (int32_t)form::TILE)};
}

/* Returns the shared address of a token's chunk of V. */
template <class form>
static __device__ __forceinline__ uint32_t fig_many_chunk_at(uint32_t v, int32_t row,
                                                             int32_t chunk) {
    const int32_t OF_COLUMN = form::COLUMN / FIG_RING_CHUNK;
    return v + (uint32_t)(chunk / OF_COLUMN * form::COLUMN_APART + row / 8 * form::GROUP_APART +
                          fig_ring_chunk_at<form::COLUMN>(row % 8, chunk % OF_COLUMN));
}

/* Returns 1 if V of some of these tokens is not finite. All lanes get the same result. */
template <class form>
static __device__ __forceinline__ int32_t fig_many_is_wild(uint32_t v, const fig_many_rows &rows,
                                                           int32_t lane) {
    const int32_t CHUNKS = form::DIM * 2 / FIG_RING_CHUNK;
    const uint32_t low = form::TYPE == FIG_BF16 ? 0x7f80u : 0x7c00u, high = low << 16;
    int32_t is_wild = 0;
#pragma unroll 1
    for (int32_t i = rows.first * CHUNKS + lane; i < rows.end * CHUNKS; i += FIG_BLOCK_WARP) {
        const uint4 words = fig_wide_load(fig_many_chunk_at<form>(v, i / CHUNKS, i % CHUNKS));
        const uint32_t word[] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int32_t w = 0; w < 4; w++)
            is_wild |= (word[w] & low) == low || (word[w] & high) == high;
    }
    return __any_sync(0xffffffffu, is_wild);
}

/* Returns the weight of a token for the thread's vector h. All lanes of the warp take part. */
template <class form>
static __device__ __forceinline__ float fig_many_weight(const fig_many_seen<form> &seen,
                                                        int32_t row, int32_t h, int32_t lane) {
    uint32_t below = 0, rest = 0;
#pragma unroll
    for (int32_t j = 0; j < form::TILE / 8; j++) {
        const uint32_t mask = j == row / 8 ? ~0u : 0;
        below |= seen.below[2 * j + h] & mask;
        rest |= seen.rest[2 * j + h] & mask;
    }
    const int32_t holder = (lane & -4) | row % 8 / 2;
    const float2 large = fig_warps_widen_q(form::TYPE, __shfl_sync(0xffffffffu, below, holder));
    const float2 small = fig_warps_widen_q(form::TYPE, __shfl_sync(0xffffffffu, rest, holder));
    return row % 2 ? large.y + small.y : large.x + small.x;
}

/* Adds V of these tokens to the sums of those vectors that see them. */
template <class form>
static __device__ __forceinline__ void
fig_many_add_rows(const fig_many_seat &seat, const fig_many_share &share, int32_t token, uint32_t v,
                  const fig_many_rows &rows, fig_many_seen<form> *seen) {
#pragma unroll 1
    for (int32_t row = rows.first; row < rows.end; row++) {
        float weights[2];
        int32_t sees[2];
#pragma unroll
        for (int32_t h = 0; h < 2; h++) {
            weights[h] = fig_many_weight<form>(*seen, row, h, seat.lane);
            sees[h] = token + row >= share.sight.low[h] && token + row <= share.sight.high[h];
        }
#pragma unroll
        for (int32_t j = 0; j < form::DIM / 8; j++) {
            const float2 x = fig_warps_widen_q(
                form::TYPE,
                fig_wide_load_word(fig_many_chunk_at<form>(v, row, j) + (uint32_t)seat.quad * 4));
#pragma unroll
            for (int32_t h = 0; h < 2; h++) {
                float *sums = seen->sums + 4 * j + 2 * h;
                sums[0] = sees[h] ? fmaf(x.x, weights[h], sums[0]) : sums[0];
                sums[1] = sees[h] ? fmaf(x.y, weights[h], sums[1]) : sums[1];
            }
        }
    }
}

/* Prepares V of a strip at the edge for its product with weights, which are 0 where a vector does
 * not see a token. If both warpgroups read the strip, both find the same, and neither overwrites
 * what the other has not read. */
template <class form>
static __device__ __forceinline__ void
fig_many_trim(const fig_ring_note &note, const fig_many_seat &seat, const fig_many_share &share,
              uint32_t v, fig_many_seen<form> *seen) {
    const fig_many_rows before = fig_many_partly<form>(note, share, 0);
    const fig_many_rows behind = fig_many_partly<form>(note, share, 1);
    fig_many_hide_rest<form>(seen);
    if (fig_wide_same(fig_many_is_wild<form>(v, before, seat.lane) |
                      fig_many_is_wild<form>(v, behind, seat.lane))) {
        fig_many_add_rows<form>(seat, share, note.token, v, before, seen);
        fig_many_add_rows<form>(seat, share, note.token, v, behind, seen);
        if (share.takes_turns)
            fig_ring_meet(FIG_MANY_OWN + seat.group, FIG_MANY_GROUP_THREADS);
        else
            fig_ring_meet(FIG_MANY_BOTH, FIG_MANY_GROUPS * FIG_MANY_GROUP_THREADS);
        fig_wide_clear<form>(v, before.first, before.end, seat.thread);
        fig_wide_clear<form>(v, behind.first, behind.end, seat.thread);
    }
    fig_wide_clear<form>(v, 0, note.first - note.token, seat.thread);
    fig_wide_clear<form>(v, max(note.end - note.token, 0), form::TILE, seat.thread);
    fig_wide_show_clear(FIG_MANY_OWN + seat.group);
}

/* ---- A strip */

/* Issues the product of the open weights with V. */
template <class form>
static __device__ __forceinline__ void fig_many_product_v(const fig_ring &ring,
                                                          fig_many_seen<form> *seen) {
    fig_ring at = ring;
    at.slot = seen->open;
    fig_wgmma_begin();
    fig_wide_product_v<form>(seen->sums, seen->below, fig_ring_side(at, FIG_RING_V), 1);
    fig_wide_product_v<form>(seen->sums, seen->rest, fig_ring_side(at, FIG_RING_V), 1);
    fig_wgmma_commit();
}

/* Waits for that product, and releases V. */
template <class form>
static __device__ __forceinline__ void fig_many_settle(const fig_ring &ring,
                                                       fig_many_seen<form> *seen) {
    fig_ring at = ring;
    at.slot = seen->open;
    fig_wgmma_wait<0>(seen->sums);
    fig_ring_release(at, FIG_RING_V);
}

/* Turns the next strip in the ring into weights. */
template <class form>
static __device__ __forceinline__ void
fig_many_see_strip(const fig_ring &ring, const fig_ring_note &note, const fig_many_seat &seat,
                   const fig_many_share &share, fig_many_seen<form> *seen) {
    float logits[form::TILE / 2], shrink[2];
    fig_wgmma_begin();
    fig_wide_product_k<form>(logits, seen->q, 0, fig_ring_side(ring, FIG_RING_K));
    fig_wgmma_commit();
    fig_wgmma_wait<0>(logits);
    fig_ring_release(ring, FIG_RING_K);
    if (share.cap > 0.0f) fig_wide_cap<form>(logits, share.rate, share.cap);
    if (note.flags & FIG_RING_EDGE)
        fig_wide_mask<form>(logits, share.sight, note.token + 2 * seat.quad);
    const int32_t grows =
        fig_wide_weigh<form>(logits, seen->greatest, seen->weights, shrink, share.scale);
    if (grows) {
#pragma unroll
        for (int32_t i = 0; i < form::DIM / 2; i++)
            seen->sums[i] *= shrink[i / 2 % 2];
    }
    fig_many_split<form>(logits, seen);
    fig_ring_wait_full(ring, FIG_RING_V);
    if (note.flags & FIG_RING_EDGE)
        fig_many_trim<form>(note, seat, share, fig_ring_side(ring, FIG_RING_V), seen);
    seen->open = ring.slot;
}

#endif
#endif
