/* strip.cuh: copies a strip of K or V tokens from the cache to shared memory, in the cache's
 * format.
 *
 * Owns the address of one head's part of a token, and the method of copying that part: by
 * asynchronous 16-byte copies that use no registers if every token is aligned for them, and element
 * by element otherwise. Each warp copies one of every FIG_STRIP_WARPS tokens. Its first lanes look
 * up the addresses one strip ahead, because the copies depend on a load from the page table.
 * Invariant: no warp looks up or copies a token outside the strip. Whole warps call all
 * functions. */
#ifndef FIG_KERNELS_STRIP_CUH
#define FIG_KERNELS_STRIP_CUH

#include "kernels/common/block.cuh"

#include <cuda_pipeline_primitives.h>

#include "kernels/common/cache.h"
#include "kernels/common/numeric.h"

enum {
    FIG_STRIP_TOKENS = FIG_BLOCK_WARP, /* largest strip: one lane weighs one token */
    FIG_STRIP_WARPS = 4,
    FIG_STRIP_WARP_TOKENS = FIG_STRIP_TOKENS / FIG_STRIP_WARPS,
    FIG_STRIP_SEGMENT = 16, /* bytes of one copy; a token is a whole number of segments */
    FIG_STRIP_BYTES = 12288 /* largest: 12 tokens of the largest head_dim in f32 */
};

/* Tokens [first, end) of a sequence; empty if end <= first. */
typedef struct fig_strip_range {
    int32_t first, end;
} fig_strip_range;

/* Describes one head of K or V. */
typedef struct fig_strip_side {
    const uint8_t *base;
    fig_cache_strides strides;
    int64_t pages;
    int32_t aligned; /* 1: every token begins at a multiple of FIG_STRIP_SEGMENT */
} fig_strip_side;

/* Holds the addresses of K and V of the token that a lane looks up for its warp. NULL means that
 * the lane has no token. */
typedef struct fig_strip_place {
    const uint8_t *k, *v;
} fig_strip_place;

static __device__ fig_strip_range fig_strip_overlap(fig_strip_range a, fig_strip_range b) {
    fig_strip_range both = {a.first > b.first ? a.first : b.first, fig_size_min(a.end, b.end)};
    return both;
}

static __device__ fig_strip_side fig_strip_side_of(const void *cache,
                                                   const fig_cache_strides &strides, int64_t pages,
                                                   int32_t kv_head, int32_t bytes) {
    uint64_t places = (uint64_t)cache | (uint64_t)(strides.page * bytes) |
                      (uint64_t)(strides.token * bytes) | (uint64_t)(strides.head * bytes);
    fig_strip_side side;
    side.base = (const uint8_t *)cache + kv_head * strides.head * bytes;
    side.strides = strides;
    side.pages = pages;
    side.aligned = places % FIG_STRIP_SEGMENT == 0;
    return side;
}

/* Returns the address of a token. A page number outside the cache counts as page 0. */
static __device__ const uint8_t *fig_strip_token(const fig_strip_side &side,
                                                 const fig_cache_sequence &sequence, int32_t page,
                                                 int32_t token, int32_t bytes) {
    if (page < 0 || page >= side.pages) page = 0;
    return side.base + fig_cache_offset(&side.strides, &sequence, page, token) * bytes;
}

static __device__ fig_strip_place fig_strip_place_of(const fig_strip_side &k,
                                                     const fig_strip_side &v,
                                                     const fig_cache_sequence &sequence,
                                                     fig_strip_range strip, int32_t bytes) {
    int32_t warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    int32_t token = strip.first + warp + FIG_STRIP_WARPS * lane;
    fig_strip_place place = {NULL, NULL};
    if (lane >= FIG_STRIP_WARP_TOKENS || token >= strip.end) return place;
    int32_t page = fig_cache_page(&sequence, token);
    place.k = fig_strip_token(k, sequence, page, token, bytes);
    place.v = fig_strip_token(v, sequence, page, token, bytes);
    return place;
}

static __device__ const uint8_t *fig_strip_place_of_lane(const uint8_t *place, int32_t lane) {
    uint64_t address = (uint64_t)place;
    return (const uint8_t *)__shfl_sync(0xffffffffu, address, lane);
}

/* Copies the segments of the warp's tokens. Neighbouring lanes copy neighbouring segments. `turn`
 * counts the warp's tokens; a turn past the last token has no address. */
static __device__ void fig_strip_copy_segments(const uint8_t *place, int32_t segments, uint4 *to) {
    int32_t warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    int32_t turn = lane / segments, segment = lane % segments;
    int32_t turns = FIG_BLOCK_WARP / segments, rest = FIG_BLOCK_WARP % segments;
    for (int32_t done = 0; done < FIG_STRIP_WARP_TOKENS * segments; done += FIG_BLOCK_WARP) {
        const uint8_t *from = fig_strip_place_of_lane(place, turn);
        if (from != NULL)
            __pipeline_memcpy_async(to + (warp + FIG_STRIP_WARPS * turn) * segments + segment,
                                    from + segment * FIG_STRIP_SEGMENT, FIG_STRIP_SEGMENT);
        turn += turns;
        segment += rest;
        if (segment < segments) continue;
        segment -= segments;
        turn++;
    }
}

/* Copies the warp's tokens element by element. The copy is complete on return. */
template <typename element>
static __device__ void fig_strip_copy_elements(const uint8_t *place, int32_t head_dim,
                                               element *to) {
    int32_t warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    for (int32_t turn = 0; turn < FIG_STRIP_WARP_TOKENS; turn++) {
        const element *from = (const element *)fig_strip_place_of_lane(place, turn);
        if (from == NULL) return;
        for (int32_t i = lane; i < head_dim; i += FIG_BLOCK_WARP)
            to[(warp + FIG_STRIP_WARPS * turn) * head_dim + i] = from[i];
    }
}

/* Starts copying the warp's tokens to `to`, [tokens][head_dim] of DTYPE. `place` is the lane's
 * address of K or V. Commits one group of copies, which may be empty. */
template <int32_t DTYPE>
static __device__ void fig_strip_copy(const fig_strip_side &side, const uint8_t *place,
                                      int32_t head_dim, uint4 *to) {
    const int32_t bytes = fig_numeric_bytes(DTYPE);
    if (side.aligned) {
        fig_strip_copy_segments(place, head_dim * bytes / FIG_STRIP_SEGMENT, to);
    } else if (bytes == 4) {
        fig_strip_copy_elements(place, head_dim, (uint32_t *)to);
    } else if (bytes == 2) {
        fig_strip_copy_elements(place, head_dim, (uint16_t *)to);
    } else {
        fig_strip_copy_elements(place, head_dim, (uint8_t *)to);
    }
    __pipeline_commit();
}

#endif
