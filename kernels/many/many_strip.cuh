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
        seen->rest[i] = fig_wide_positive<form::TYPE>(rest);
    }
}

/* Sets the rest of weights that are 0 to 0, for strips that have tokens which some vector does not
 * see. A half that is not 0, and no weight is below 0, sets its highest bit when 0x7fff is added;
 * one instruction makes a mask of these bits. */
template <class form>
static __device__ __forceinline__ void fig_many_hide_rest(fig_many_seen<form> *seen) {
#pragma unroll
    for (int32_t i = 0; i < form::TILE / 4; i++)
        seen->rest[i] &= fig_wide_signs(seen->below[i] + 0x7fff7fffu);
}

/* ---- The edge of a row */

/* Divides the tokens of a strip, counted from its first one: those in [first, end) belong to the
 * piece, and every query sees those in [all, all_end). */
typedef struct fig_many_rows {
    int32_t first, all, all_end, end;
} fig_many_rows;

template <class form>
static __device__ __forceinline__ fig_many_rows fig_many_rows_of(const fig_ring_note &note,
                                                                 const fig_many_share &share) {
    fig_many_rows rows;
    rows.first = max(note.first - note.token, 0);
    rows.end = min(note.end - note.token, (int32_t)form::TILE);
    rows.all = min(max(share.by_all.first - note.token, rows.first), rows.end);
    rows.all_end = min(max(share.by_all.end - note.token, rows.all), rows.end);
    return rows;
}

/* Returns the number of tokens that only some queries see. */
static __device__ __forceinline__ int32_t fig_many_partly(const fig_many_rows &rows) {
    return rows.all - rows.first + rows.end - rows.all_end;
}

/* Returns the i-th of them. */
static __device__ __forceinline__ int32_t fig_many_partly_row(const fig_many_rows &rows,
                                                              int32_t i) {
    const int32_t before = rows.all - rows.first;
    return i < before ? rows.first + i : rows.all_end + i - before;
}

/* Returns the shared address of a token's chunk of V. */
template <class form>
static __device__ __forceinline__ uint32_t fig_many_chunk_at(uint32_t v, int32_t row,
                                                             int32_t chunk) {
    const int32_t OF_COLUMN = form::COLUMN / FIG_RING_CHUNK;
    return v + (uint32_t)(chunk / OF_COLUMN * form::COLUMN_APART + row / 8 * form::GROUP_APART +
                          fig_ring_chunk_at<form::COLUMN>(row % 8, chunk % OF_COLUMN));
}

/* Returns 1 if V of a token that only some queries see is not finite. The threads of a warpgroup
 * divide the tokens, and get the same result. */
template <class form>
static __device__ __forceinline__ int32_t fig_many_is_wild(uint32_t v, const fig_many_rows &rows,
                                                           const fig_many_seat &seat) {
    const int32_t CHUNKS = form::DIM * 2 / FIG_RING_CHUNK;
    const uint32_t low = form::TYPE == FIG_BF16 ? 0x7f80u : 0x7c00u, high = low << 16;
    int32_t is_wild = 0;
#pragma unroll 1
    for (int32_t i = seat.thread; i < fig_many_partly(rows) * CHUNKS; i += FIG_MANY_GROUP_THREADS) {
        const uint4 words = fig_machine_load_chunk(
            fig_many_chunk_at<form>(v, fig_many_partly_row(rows, i / CHUNKS), i % CHUNKS));
        const uint32_t word[] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int32_t w = 0; w < 4; w++)
            is_wild |= (word[w] & low) == low || (word[w] & high) == high;
    }
    return fig_wide_meet_any(FIG_MANY_OWN + seat.group, FIG_MANY_GROUP_THREADS, is_wild);
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

/* Adds V of the tokens that only some queries see to the sums of those vectors that see them. */
template <class form>
static __device__ __forceinline__ void
fig_many_add_rows(const fig_many_seat &seat, const fig_many_share &share, int32_t token, uint32_t v,
                  const fig_many_rows &rows, fig_many_seen<form> *seen) {
#pragma unroll 1
    for (int32_t i = 0; i < fig_many_partly(rows); i++) {
        const int32_t row = fig_many_partly_row(rows, i);
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
    const fig_many_rows rows = fig_many_rows_of<form>(note, share);
    int32_t first = rows.first, end = rows.end;
    fig_many_hide_rest<form>(seen);
    if (fig_many_is_wild<form>(v, rows, seat)) {
        fig_many_add_rows<form>(seat, share, note.token, v, rows, seen);
        first = rows.all;
        end = rows.all_end;
        if (share.takes_turns)
            fig_ring_meet(FIG_MANY_OWN + seat.group, FIG_MANY_GROUP_THREADS);
        else
            fig_ring_meet(FIG_MANY_BOTH, FIG_MANY_GROUPS * FIG_MANY_GROUP_THREADS);
    }
    fig_wide_clear<form>(v, 0, first, seat.thread);
    fig_wide_clear<form>(v, max(end, first), form::TILE, seat.thread);
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

/* Turns the next strip in the ring into weights. HAS_LAST: 1 if the weights of the last strip still
 * wait for their product with V; it runs beside the product with K and beside the exponentials.
 * Were this a branch within the function, the assembler would wait for both products at its end.
 * Did both never run at once, it would give them the same registers, and copy sums twice a
 * strip. */
template <class form, int32_t HAS_LAST>
static __device__ __forceinline__ void
fig_many_see_strip(const fig_ring &ring, const fig_ring_note &note, const fig_many_seat &seat,
                   const fig_many_share &share, fig_many_seen<form> *seen) {
    float logits[form::TILE / 2], shrink[2];
    fig_wgmma_begin();
    fig_wide_product_k<form>(logits, seen->q, 0, fig_ring_side(ring, FIG_RING_K));
    fig_wgmma_commit();
    if (HAS_LAST) fig_many_product_v<form>(ring, seen);
    fig_wgmma_wait<HAS_LAST>(logits);
    fig_ring_release(ring, FIG_RING_K);
    if (share.cap > 0.0f) fig_wide_cap<form>(logits, share.rate, share.cap);
    if (note.flags & FIG_RING_EDGE)
        fig_wide_mask<form>(logits, share.sight, note.token + 2 * seat.quad);
    const int32_t grows =
        fig_wide_weigh<form>(logits, seen->greatest, seen->weights, shrink, share.scale);
    if (HAS_LAST) fig_many_settle<form>(ring, seen);
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
