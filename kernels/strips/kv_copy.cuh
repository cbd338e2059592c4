/* kv_copy.cuh: brings strips to the ring by copies of 16 bytes. Several warps each copy some tokens
 * of every strip.
 *
 * A filler copies a run of consecutive tokens of every strip, and each of its lanes copies the same
 * chunks of those tokens. Lanes look up the addresses of 32 of the filler's tokens while it copies
 * the previous 32, because the copies depend on a load from the page table. kv_piece.cuh walks
 * along the split, and kv_ring.cuh defines the layout of a slot. Invariant: no warp reads the cache
 * past a piece. The rest of the piece's last slot holds the last token again or old bytes, and no
 * reader uses them. Whole warps call all functions. */
#ifndef FIG_KERNELS_KV_COPY_CUH
#define FIG_KERNELS_KV_COPY_CUH

#include "kernels/strips/kv_piece.cuh"

/* Describes a filler's part of a strip of SHARES shares, and the number of copies for one head of
 * that part. */
template <class form, int32_t SHARES> struct fig_copy_part {
    static constexpr int32_t STRIP = form::SHARE_TOKENS * SHARES;
    static constexpr int32_t TOKENS = STRIP / form::FILLERS;
    /* strips whose tokens a warp looks up at once */
    static constexpr int32_t STRIPS = FIG_BLOCK_WARP / TOKENS;
    static constexpr int32_t CHUNKS = TOKENS * form::CHUNKS;
    static constexpr int32_t COPIES = (CHUNKS + FIG_BLOCK_WARP - 1) / FIG_BLOCK_WARP;
    /* copies that a lane issues together */
    static constexpr int32_t BATCH = COPIES > 8 ? COPIES / 2 : COPIES;
    /* 1: every lane takes part in the last copy */
    static constexpr int32_t IS_WHOLE = CHUNKS % FIG_BLOCK_WARP == 0;
    static_assert(COPIES % BATCH == 0 && BATCH <= 8, "no copy is made twice");
};

/* Describes the filler's part of one side of a strip. */
typedef struct fig_copy_work {
    const uint8_t *row; /* first head of the lane's token */
    int32_t first_lane; /* lane first_lane + n holds the n-th token */
    int32_t heads;
    int64_t head_bytes; /* distance between two heads */
    /* to: shared address of the first token; pitch: distance between two tokens */
    uint32_t to, pitch;
} fig_copy_work;

template <class form> static __device__ constexpr int32_t fig_copy_full_count(void) {
    return form::FILLERS * FIG_BLOCK_WARP + 1;
}

static __device__ __forceinline__ void fig_copy_chunk(uint32_t to, const uint8_t *from,
                                                      uint64_t policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "l"(policy)
                 : "memory");
}

/* Makes the lane's copies arrive at the barrier of a side. The side is full when the copies of all
 * lanes and the teller's note have arrived. */
static __device__ __forceinline__ void fig_copy_fill(uint32_t barrier, int32_t is_teller) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
    if (is_teller) fig_ring_arrive(barrier);
}

/* Returns the place of a token. A token past the piece gets the place of the last token, so no copy
 * needs a condition. */
static __device__ __forceinline__ fig_feed_place fig_copy_place(const fig_feed_piece &of,
                                                                int32_t token) {
    return fig_feed_place_of(of, min(token, of.tokens.end - 1));
}

/* Returns the address of a token. A page number outside the cache counts as page 0. */
static __device__ __forceinline__ const uint8_t *
fig_copy_row(const fig_strip_side &side, fig_feed_place place, int32_t value_bytes) {
    const int32_t page = place.page < 0 || place.page >= side.pages ? 0 : place.page;
    const int64_t offset = page * side.strides.page + place.token * side.strides.token;
    return side.base + offset * value_bytes;
}

/* Computes all addresses and then issues the copies. A copy has a condition only if it has fewer
 * chunks than lanes. If every copy had a condition, each would wait for the registers of the copy
 * before it. */
template <class form, int32_t SHARES>
static __device__ __forceinline__ void fig_copy_tokens(const fig_copy_work &work, uint64_t policy) {
    typedef fig_copy_part<form, SHARES> part;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
#pragma unroll 1
    for (int32_t first = 0; first < part::CHUNKS; first += part::BATCH * FIG_BLOCK_WARP) {
        const uint8_t *from[part::BATCH];
        uint32_t to[part::BATCH];
#pragma unroll
        for (int32_t i = 0; i < part::BATCH; i++) {
            const int32_t number = first + lane + i * FIG_BLOCK_WARP;
            const int32_t token = number / form::CHUNKS, chunk = number % form::CHUNKS;
            const int32_t from_lane = work.first_lane + token;
            const uint64_t row = __shfl_sync(0xffffffffu, (uint64_t)work.row, from_lane);
            from[i] = (const uint8_t *)row + chunk * FIG_RING_CHUNK;
            to[i] = work.to + (uint32_t)token * work.pitch + (uint32_t)(chunk * FIG_RING_CHUNK);
        }
        int64_t head_from = 0;
        uint32_t head_to = 0;
#pragma unroll 1
        for (int32_t head = 0; head < work.heads; head++) {
#pragma unroll
            for (int32_t i = 0; i < part::BATCH; i++)
                if (part::IS_WHOLE || first + lane + i * FIG_BLOCK_WARP < part::CHUNKS)
                    fig_copy_chunk(to[i] + head_to, from[i] + head_from, policy);
            head_from += work.head_bytes;
            head_to += form::ROW_BYTES;
        }
    }
}

template <class form, int32_t SHARES>
static __device__ __forceinline__ void fig_copy_strips(const fig_attention_params &p,
                                                       const fig_feed_piece &of, int32_t filler,
                                                       fig_ring *ring, int32_t *has_waited) {
    typedef fig_copy_part<form, SHARES> part;
    const int32_t BYTES = form::VALUE_BYTES;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t is_teller = filler == FIG_FEED_TELLER && lane == 0;
    const int32_t mine = filler * part::TOKENS; /* the filler's first token of a strip */
    const int32_t of_lane = lane / part::TOKENS * part::STRIP + mine + lane % part::TOKENS;
    const fig_strip_side sides[2] = {
        fig_strip_side_of(p.k_cache, p.k_cache_strides, p.k_pages, of.kv_head, BYTES),
        fig_strip_side_of(p.v_cache, p.v_cache_strides, p.v_pages, of.kv_head, BYTES)};
    const uint64_t policy = fig_machine_policy_once();
    fig_feed_place ahead = fig_copy_place(of, of.tokens.first + of_lane);
    const uint8_t *rows[2];
    fig_copy_work work;
    work.first_lane = 0;
    work.heads = p.heads_per_worker;
    work.pitch = ring->tokens_bytes / FIG_RING_TOKENS;
    int32_t token = of.tokens.first, partial = -1;
    do {
        if (token + part::STRIP > of.length - p.split.row_tokens) fig_feed_wait(has_waited);
        if (work.first_lane == 0) {
            rows[0] = fig_copy_row(sides[0], ahead, BYTES);
            rows[1] = fig_copy_row(sides[1], ahead, BYTES);
            ahead = fig_copy_place(of, token + part::STRIPS * part::STRIP + of_lane);
        }
#pragma unroll
        for (int32_t side = 0; side < 2; side++) {
            work.row = rows[side];
            work.head_bytes = sides[side].strides.head * BYTES;
            work.to = fig_ring_side(*ring, side) + (uint32_t)mine * work.pitch;
            fig_ring_wait_empty(*ring, side);
            if (token + mine < of.tokens.end) fig_copy_tokens<form, SHARES>(work, policy);
            if (filler == FIG_FEED_TELLER && side == FIG_RING_K) {
                if (token == of.tokens.first) partial = fig_feed_partial(p, of);
                if (is_teller)
                    fig_ring_write(*ring, fig_feed_note(of, partial, token, part::STRIP));
            }
            fig_copy_fill(fig_ring_full(*ring, side), is_teller);
        }
        fig_ring_next(ring);
        token += part::STRIP;
        work.first_lane = (work.first_lane + part::TOKENS) % FIG_BLOCK_WARP;
    } while (token < of.tokens.end);
}

template <class form>
static __device__ __forceinline__ void fig_copy_piece(const fig_attention_params &p,
                                                      const fig_feed_piece &of, int32_t filler,
                                                      fig_ring *ring, int32_t *has_waited) {
    const int32_t shares = ring->strip / form::SHARE_TOKENS;
    if (shares == 4) {
        fig_copy_strips<form, 4>(p, of, filler, ring, has_waited);
    } else if (shares == 2) {
        fig_copy_strips<form, 2>(p, of, filler, ring, has_waited);
    } else {
        fig_copy_strips<form, 1>(p, of, filler, ring, has_waited);
    }
}

#endif
