/* kv_copy.cuh: brings strips to the ring by copies of 16 bytes, of which several warps issue some
 * tokens of each strip.
 *
 * A filler has a part of every strip, tokens one behind the other, and each of its lanes the same
 * chunks of those. Lanes look up where 32 of the filler's tokens lie while it copies the 32 before
 * them, since the page table is a load that the copies depend on. Leaves the way along the split to
 * kv_piece.cuh, and how a slot is laid out to kv_ring.cuh. Invariant: nothing behind a piece is
 * read; there a slot has its last token again or what it had before, and nobody looks at it. All
 * functions are called by whole warps. */
#ifndef FIG_KERNELS_KV_COPY_CUH
#define FIG_KERNELS_KV_COPY_CUH

#include "kernels/kv_piece.cuh"

/* A filler's part of a strip of so many shares, and how many copies bring one head of it. */
template <class form, int32_t SHARES> struct fig_copy_part {
    static constexpr int32_t STRIP = form::SHARE_TOKENS * SHARES;
    static constexpr int32_t TOKENS = STRIP / form::FILLERS;
    static constexpr int32_t STRIPS = FIG_BLOCK_WARP / TOKENS; /* looked up at once */
    static constexpr int32_t CHUNKS = TOKENS * form::CHUNKS;
    static constexpr int32_t COPIES = (CHUNKS + FIG_BLOCK_WARP - 1) / FIG_BLOCK_WARP;
    static constexpr int32_t BATCH = COPIES > 8 ? COPIES / 2 : COPIES; /* of a lane, side by side */
    static constexpr int32_t IS_WHOLE = CHUNKS % FIG_BLOCK_WARP == 0;  /* in the last of a lane */
    static_assert(COPIES % BATCH == 0 && BATCH <= 8, "no copy is made twice");
};

/* The part of one side of a strip. */
typedef struct fig_copy_work {
    const uint8_t *row; /* of the first head of the lane's token */
    int32_t first_lane; /* lane first_lane + n has the n-th token */
    int32_t heads;
    int64_t head_bytes; /* from head to head */
    uint32_t to, pitch; /* to: where the first token lies; pitch: from token to token */
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

/* The side is full once the copies of all lanes so far, and the teller's note, are there. */
static __device__ __forceinline__ void fig_copy_fill(uint32_t barrier, int32_t is_teller) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
    if (is_teller) fig_ring_arrive(barrier);
}

/* Behind the piece its last token lies once more, so that no copy has a condition. */
static __device__ __forceinline__ fig_feed_place fig_copy_place(const fig_feed_piece &of,
                                                                int32_t token) {
    return fig_feed_place_of(of, min(token, of.tokens.end - 1));
}

/* A page number outside the cache reads as page 0. */
static __device__ __forceinline__ const uint8_t *
fig_copy_row(const fig_strip_side &side, fig_feed_place place, int32_t value_bytes) {
    const int32_t page = place.page < 0 || place.page >= side.pages ? 0 : place.page;
    const int64_t offset = page * side.strides.page + place.token * side.strides.token;
    return side.base + offset * value_bytes;
}

/* Addresses first and the copies behind them, none under a condition but where lanes are too many:
 * else each would wait for the registers of the one before. */
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
    const uint64_t policy = fig_feed_once();
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
