/* many_strip.cuh: multiplies the vectors of a piece by a strip, in one warpgroup.
 *
 * out = sum over tokens of 2^(l - m) v / sum of 2^(l - m), where l is the logit in base 2 and m a
 * reference near the greatest l (wide_tile.cuh). A weight is the sum of two numbers of the cache's
 * type, as in attention_strip.cuh: the weight rounded down, and the remainder. Together they keep
 * full precision.
 *
 * Premise: V is finite for those
 * tokens of a piece that some query of the row sees, because V of a token that a query does not see
 * is multiplied by 0. All other tokens of a strip may hold any bytes. */
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

/* Overwrites V of those tokens of a strip at the edge that no query sees. */
template <class form>
static __device__ __forceinline__ void fig_many_clear_v(const fig_ring_note &note,
                                                        const fig_many_seat &seat, uint32_t v) {
    const int32_t before = note.first - note.token, end = note.end - note.token;
    fig_wide_clear<form>(v, 0, before, seat.thread);
    fig_wide_clear<form>(v, end, form::TILE, seat.thread);
    fig_wide_show_clear(FIG_MANY_OWN + seat.group);
}

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
 * Were this a branch within the function, the assembler would wait for both products at its
 * end. */
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
    if (note.flags & FIG_RING_EDGE) {
        fig_many_hide_rest<form>(seen);
        fig_many_clear_v<form>(note, seat, fig_ring_side(ring, FIG_RING_V));
    }
    seen->open = ring.slot;
}

#endif
#endif
