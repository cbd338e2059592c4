/* strip.cuh: brings a strip of K or V tokens from the cache to shared memory, as it is stored.
 *
 * Owns where a token of one head lies and how it is copied: by the 16-byte copies that pass no
 * register where every token allows them, element by element where one does not. Each warp copies
 * tokens of its own, one of each FIG_STRIP_WARPS, and its first lanes look up where those lie, a
 * strip ahead, since the page table is a load that the copies depend on. Invariant: a token outside
 * the strip is neither looked up nor copied. All functions are called by whole warps. */
#ifndef FIG_KERNELS_STRIP_CUH
#define FIG_KERNELS_STRIP_CUH

#include "kernels/block.cuh"

#include <cuda_pipeline_primitives.h>

#include "kernels/cache.h"
#include "kernels/numeric.h"

enum {
    FIG_STRIP_TOKENS = FIG_BLOCK_WARP, /* at most: a lane each when they are weighed */
    FIG_STRIP_WARPS = 4,
    FIG_STRIP_WARP_TOKENS = FIG_STRIP_TOKENS / FIG_STRIP_WARPS,
    FIG_STRIP_SEGMENT = 16, /* bytes that one copy moves; a token is whole ones */
    FIG_STRIP_BYTES = 12288 /* at most: 12 tokens of the longest in f32 */
};

/* Tokens [first, end) of a sequence; none where end <= first. */
typedef struct fig_strip_range {
    int32_t first, end;
} fig_strip_range;

/* One head of K or V. */
typedef struct fig_strip_side {
    const uint8_t *base;
    fig_cache_strides strides;
    int64_t pages;
    int32_t aligned; /* 1: every token begins at a multiple of FIG_STRIP_SEGMENT */
} fig_strip_side;

/* K and V of the token that a lane looks up for its warp; NULL: it has none. */
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

/* A page number outside the cache reads as page 0. */
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

/* Lanes go through the warp's segments side by side; `turn` counts its tokens, and those past the
 * last have no place. */
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

/* Done when it returns. */
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

/* Starts to copy the warp's tokens to `to`, [tokens][head_dim] of DTYPE; `place` is the lane's, of
 * K or of V. One group of copies to wait for, empty where nothing is left. */
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
