/* kv_copy.cuh: brings strips to the ring by copies of 16 bytes, of which two warps issue one side
 * each.
 *
 * A page that the row does not have is never read: zeros come in its place. Leaves the way along
 * the split to kv_piece.cuh. Invariant: every slot is filled once and whole, and all functions are
 * called by whole warps. */
#ifndef FIG_KERNELS_KV_COPY_CUH
#define FIG_KERNELS_KV_COPY_CUH

#include "kernels/kv_piece.cuh"

static __device__ __forceinline__ void fig_feed_copy(uint32_t to, const void *from, uint32_t bytes,
                                                     uint64_t policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
                 "l"(from), "r"(bytes), "l"(policy)
                 : "memory");
}

/* The side is full once the copies of all lanes so far, and lane 0's note, are there. */
static __device__ __forceinline__ void fig_feed_fill_after_copies(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
    if (threadIdx.x % FIG_BLOCK_WARP == 0) fig_ring_arrive(barrier);
}

/* Of the lane's token of a stretch; NULL: nowhere. A page number outside the cache reads as page 0.
 */
static __device__ __forceinline__ const uint8_t *
fig_feed_token_at(const fig_strip_side &side, const fig_feed_piece &of, int32_t token,
                  fig_feed_place place, int32_t value_bytes) {
    if (token < of.tokens.first || token >= of.tokens.end) return NULL;
    const int32_t page = place.page < 0 || place.page >= side.pages ? 0 : place.page;
    const int64_t offset = page * side.strides.page + place.token * side.strides.token;
    return side.base + offset * value_bytes;
}

static __device__ __forceinline__ fig_feed_place fig_feed_token_ahead(const fig_feed_piece &of,
                                                                      int32_t token) {
    fig_feed_place nowhere = {0, 0};
    return token < of.tokens.end ? fig_feed_place_of(of, token) : nowhere;
}

/* Up to 32 tokens of every head; `to` is where the first begins. */
template <class form>
static __device__ __forceinline__ void
fig_feed_copy_tokens(const uint8_t *place, const fig_strip_side &side, int32_t tokens,
                     int32_t heads, uint32_t to, uint64_t policy) {
    const int64_t head_bytes = side.strides.head * form::VALUE_BYTES;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
#pragma unroll 4
    for (int32_t i = lane; i < tokens * form::CHUNKS; i += FIG_BLOCK_WARP) {
        const int32_t token = i / form::CHUNKS, chunk = i % form::CHUNKS;
        const uint8_t *from =
            (const uint8_t *)__shfl_sync(0xffffffffu, (uint64_t)place, token & 31);
        const uint32_t bytes = from == NULL ? 0 : FIG_RING_CHUNK;
        const uint32_t block = (uint32_t)(token / FIG_RING_TOKENS * heads);
        uint32_t at = to + block * form::BLOCK_BYTES + (uint32_t)(chunk / 8) * FIG_RING_COLUMN;
        at += (uint32_t)(token % FIG_RING_TOKENS * 128 + (chunk % 8 ^ token % 8) * FIG_RING_CHUNK);
        for (int32_t head = 0; head < heads; head++)
            fig_feed_copy(at + (uint32_t)head * form::BLOCK_BYTES,
                          from == NULL ? side.base
                                       : from + head * head_bytes + chunk * FIG_RING_CHUNK,
                          bytes, policy);
    }
}

template <class form>
static __device__ __forceinline__ void
fig_feed_copy_piece(const fig_attention_params &p, const fig_split_line &line,
                    const fig_feed_piece &of, int32_t is_v, fig_ring *ring, int32_t *has_waited) {
    const int32_t STRETCH = form::STRIP < FIG_BLOCK_WARP ? form::STRIP : FIG_BLOCK_WARP;
    const int32_t bytes = form::VALUE_BYTES;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const fig_strip_side side =
        is_v ? fig_strip_side_of(p.v_cache, p.v_cache_strides, p.v_pages, of.kv_head, bytes)
             : fig_strip_side_of(p.k_cache, p.k_cache_strides, p.k_pages, of.kv_head, bytes);
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    int32_t token = of.tokens.first, partial = -1;
    fig_feed_place ahead = fig_feed_token_ahead(of, token + lane);
    do {
        if (!*has_waited && token + form::STRIP > of.length - p.split.row_tokens) {
            fig_block_wait();
            *has_waited = 1;
        }
        fig_ring_wait_empty(*ring, is_v);
#pragma unroll 1
        for (int32_t done = 0; done < form::STRIP; done += STRETCH) {
            const int32_t mine = token + done + lane;
            const uint8_t *place = fig_feed_token_at(side, of, mine, ahead, bytes);
            ahead = fig_feed_token_ahead(of, mine + STRETCH);
            const uint32_t blocks = (uint32_t)(done / FIG_RING_TOKENS * p.heads_per_worker);
            fig_feed_copy_tokens<form>(place, side, STRETCH, p.heads_per_worker,
                                       fig_ring_side(*ring, is_v) + blocks * form::BLOCK_BYTES,
                                       policy);
        }
        if (!is_v && token == of.tokens.first) partial = fig_feed_partial(p, line, of);
        if (!is_v && lane == 0)
            fig_ring_write(*ring, fig_feed_note(of, partial, token, form::STRIP));
        fig_feed_fill_after_copies(fig_ring_full(*ring, is_v));
        fig_ring_next(ring);
        token += form::STRIP;
    } while (token < of.tokens.end);
}

#endif
