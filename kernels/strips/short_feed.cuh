/* short_feed.cuh: deals the tokens of a short row to warps and copies them to shared memory.
 *
 * A row's tokens are dealt in turns: in each turn of a cluster each warp gets 16 tokens. The
 * block's number and two loads give the page of these tokens. Therefore the copies are in flight
 * as early as a launch can start them, for all turns that fit in shared memory. The warp copies
 * the newest token with the others. If the step itself appends the newest token, this copy is too
 * early. The warp then loads the token again after the wait, and replaces the first copy.
 *
 * attention_short.cuh processes a turn. Invariant: a token that no vector sees arrives as zeros,
 * whole warps call all functions, and in every turn a warp commits two groups of copies, K's and
 * V's, even if they are empty. */
#ifndef FIG_KERNELS_SHORT_FEED_CUH
#define FIG_KERNELS_SHORT_FEED_CUH

#include "kernels/strips/attention_strip.cuh"

enum { FIG_SHORT_ABREAST = FIG_GEOMETRY_SHORT_ABREAST };

template <int32_t KV, int32_t DIMS, int32_t BLOCK_COUNT, int32_t WARP_COUNT, int32_t TURNING>
struct fig_short_form : fig_warps_form<KV, DIMS, 1, 0, TURNING> {
    typedef fig_warps_form<KV, DIMS, 1, 0, TURNING> of_warps;
    static constexpr int32_t WARPS = WARP_COUNT, THREADS = WARP_COUNT * FIG_BLOCK_WARP;
    static constexpr int32_t BLOCKS = BLOCK_COUNT;                  /* blocks of a cluster */
    static constexpr int32_t TOKENS = WARP_COUNT * FIG_RING_TOKENS; /* tokens of a block's turn */
    static constexpr int32_t OF_ROW = of_warps::CHUNKS;             /* chunks of a token */
    /* chunks of a token that one lane has in a fragment */
    static constexpr int32_t OF_LANE = OF_ROW / 4;
    static constexpr int32_t OF_HEAD = DIMS / 8; /* chunks of a 16-bit head of q, k or v */
    /* chunks of the newest token, as it is loaded */
    static constexpr int32_t OF_NEWEST = TURNING ? OF_HEAD : OF_ROW;
    static constexpr int32_t ABREAST = FIG_BLOCK_WARP / OF_ROW; /* tokens that a warp copies */
    /* lanes of a warp that copy */
    static constexpr int32_t COPIERS = ABREAST * OF_ROW;
    /* tiles of a warp's sums, and the warps that have tiles */
    static constexpr int32_t OWN_TILES = (DIMS / 16 + WARP_COUNT - 1) / WARP_COUNT;
    static constexpr int32_t OWNERS = DIMS / 16 / OWN_TILES;
    static constexpr int32_t STAGES = fig_geometry_short_stages(of_warps::VALUE_BYTES);
    /* rows of lanes' sums that a block writes */
    static constexpr int32_t ROWS = DIMS / 2 / BLOCK_COUNT;
    static_assert(OF_ROW % 4 == 0 && DIMS / 16 % OWN_TILES == 0, "whole chunks and tiles");
};

/* Returns 1 if the warp adds up V. If a head has 96 numbers, the last warp has no dimensions. */
template <class form> static __device__ __forceinline__ int32_t fig_short_owns(int32_t warp) {
    return form::OWNERS == form::WARPS || warp < form::OWNERS;
}

/* Holds a block's tokens of a turn. */
template <class form> struct fig_short_stage {
    uint4 k[form::TOKENS][form::OF_ROW];
    uint4 v[form::TOKENS][form::OF_ROW];
};

/* Returns the place of chunk c of token t in the token's row. The order avoids bank conflicts both
 * between the tokens of two lanes and between 8 tokens' copies of one chunk. If a row takes an odd
 * multiple of 64 bytes, the same chunks of two rows cover all banks without a change of order. */
template <class form>
static __device__ __forceinline__ int32_t fig_short_k_at(int32_t token, int32_t chunk) {
    return form::OF_ROW % 8 == 0 ? chunk ^ token % 2 * 4 : chunk;
}

template <class form>
static __device__ __forceinline__ int32_t fig_short_v_at(int32_t token, int32_t chunk) {
    return chunk ^ (form::OF_ROW % 8 == 0 ? token % 8 : token / 2 % 4);
}

/* ---- A row */

/* Describes the row that the block's cluster processes. */
typedef struct fig_short_row {
    int32_t row, kv_head, rank; /* rank: number of the block in the cluster */
    int32_t vectors;
    int32_t length, sequence;
    int32_t last;     /* number of the last token; 0 if there is none */
    int32_t position; /* position for RoPE, if the launch applies it */
    fig_strip_range seen;
    float k_scale, v_scale; /* scales of codes; known after the wait */
} fig_short_row;

/* Finds the row of the block. */
template <class form>
static __device__ __forceinline__ fig_short_row fig_short_row_of(const fig_attention_params &p) {
    fig_short_row row;
    const int32_t segment = (int32_t)blockIdx.x / form::BLOCKS;
    row.rank = (int32_t)blockIdx.x % form::BLOCKS;
    row.row = fig_geometry_divide(segment, p.kv_heads);
    row.kv_head = segment - row.row * p.kv_heads;
    row.length = fig_vector_fetch_number((const int32_t *)(p.plan + p.lengths_offset) + row.row);
    row.sequence =
        fig_vector_fetch_number((const int32_t *)(p.plan + p.sequences_offset) + row.row);
    row.position = 0;
    if (form::TURNS)
        row.position =
            fig_vector_fetch_number((const int32_t *)(p.plan + p.turn.positions_offset) + row.row);
    row.vectors = fig_geometry_divide(p.q_heads, p.kv_heads);
    return row;
}

/* Finds the tokens that the row sees. A row behind the step's rows has none. */
static __device__ __forceinline__ void fig_short_bound(const fig_attention_params &p, int32_t rows,
                                                       fig_short_row *row) {
    if (row->row >= rows) row->length = row->sequence = 0;
    row->last = max(row->length - 1, 0);
    row->seen.first = p.split.window > 0 ? max(row->length - p.split.window, 0) : 0;
    row->seen.end = row->length;
}

/* Describes a warp's way through the row's turns. */
typedef struct fig_short_way {
    int32_t first, turns; /* the warp's first token; turns of the block, at least 1 */
    int32_t newest;       /* turn in which the warp has the row's newest token; -1: none */
} fig_short_way;

template <class form>
static __device__ __forceinline__ fig_short_way fig_short_way_of(const fig_short_row &row) {
    const int32_t STRIDE = form::BLOCKS * form::TOKENS;
    const int32_t first = (row.seen.first & -FIG_RING_TOKENS) + row.rank * form::TOKENS;
    fig_short_way way;
    way.first = first + fig_block_warp() * FIG_RING_TOKENS;
    way.turns = max((row.length - first + STRIDE - 1) / STRIDE, 1);
    const int32_t newest = row.length - 1 - way.first;
    way.newest = newest >= 0 && newest % STRIDE < FIG_RING_TOKENS ? newest / STRIDE : -1;
    return way;
}

/* Holds the addresses of the scales of the head's codes. NULL means that the scale is 1. */
typedef struct fig_short_scales {
    const float *k, *v;
} fig_short_scales;

static __device__ __forceinline__ const float *
fig_short_find_scale(const float *scales, int32_t count, int32_t kv_head) {
    if (scales == NULL) return NULL;
    scales += count > 1 ? kv_head : 0;
    if (threadIdx.x % FIG_BLOCK_WARP == 0) fig_block_prefetch(scales);
    return scales;
}

template <class form>
static __device__ __forceinline__ fig_short_scales
fig_short_find_scales(const fig_attention_params &p, const fig_short_row &row) {
    fig_short_scales scales = {NULL, NULL};
    if (form::VALUE_BYTES == 2) return scales;
    scales.k = fig_short_find_scale(p.k_scale, p.k_scales, row.kv_head);
    scales.v = fig_short_find_scale(p.v_scale, p.v_scales, row.kv_head);
    return scales;
}

static __device__ __forceinline__ float fig_short_load_scale(const float *at) {
    float scale = 1;
    if (at != NULL) asm volatile("ld.global.f32 %0, [%1];" : "=f"(scale) : "l"(at));
    return scale;
}

/* Returns the turn for which the warp loads the newest token again after the wait, or -1 if there
 * is none. If the launch itself appends the token, the warp must load it, because the cache does
 * not have it. */
template <class form>
static __device__ __forceinline__ int32_t fig_short_late(const fig_attention_params &p,
                                                         const fig_short_way &way) {
    if (form::TURNS) return way.newest;
    if ((p.flags & FIG_ATTENTION_EARLY) == 0 || way.newest >= form::STAGES) return -1;
    return way.newest;
}

/* ---- Copies */

/* Holds the byte offsets of the first chunks that a lane copies, from head 0 of the first of 16
 * tokens. */
typedef struct fig_short_lane {
    int64_t k, v;
} fig_short_lane;

/* Copies a chunk; writes zeros if is_seen is 0. */
static __device__ __forceinline__ void fig_short_copy(const uint4 *to, const uint8_t *from,
                                                      uint64_t policy, int32_t is_seen) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                     fig_fragment_shared(to)),
                 "l"(from), "r"(is_seen ? FIG_RING_CHUNK : 0), "l"(policy)
                 : "memory");
}

static __device__ __forceinline__ void fig_short_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most the last GROUPS groups of copies are in flight. */
template <int32_t GROUPS> static __device__ __forceinline__ void fig_short_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

template <class form>
static __device__ __forceinline__ fig_short_lane fig_short_lane_of(const fig_attention_params &p,
                                                                   const fig_short_row &row) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t token = lane / form::OF_ROW, chunk = lane % form::OF_ROW;
    fig_short_lane of;
    of.k = form::VALUE_BYTES *
               (row.kv_head * p.k_cache_strides.head + token * p.k_cache_strides.token) +
           chunk * FIG_RING_CHUNK;
    of.v = form::VALUE_BYTES *
               (row.kv_head * p.v_cache_strides.head + token * p.v_cache_strides.token) +
           chunk * FIG_RING_CHUNK;
    return of;
}

/* Returns the address of token `within` of page `page`. A page number outside the cache counts as
 * page 0. */
template <class form>
static __device__ __forceinline__ const uint8_t *
fig_short_page(const void *cache, const fig_cache_strides &strides, int64_t pages, int32_t page,
               int32_t within) {
    return (const uint8_t *)cache +
           form::VALUE_BYTES *
               (fig_feed_known(page, pages) * strides.page + within * strides.token);
}

/* Returns the page number of `token`, or that of the row's last token if `token` is past it: behind
 * the row's own entries, the table may end. */
static __device__ __forceinline__ int32_t fig_short_number(const fig_attention_params &p,
                                                           const fig_short_row &row, int32_t token,
                                                           int32_t *within) {
    const int32_t known = min(token, row.last);
    const int32_t number = fig_geometry_divide(known, p.page_size);
    *within = known - number * p.page_size;
    return p.page_table[row.sequence * p.table_stride + number];
}

/* Starts the copies of the warp's 16 tokens from `token` on: one group for K, one for V. */
template <class form>
static __device__ __forceinline__ void
fig_short_ask(const fig_attention_params &p, const fig_short_row &row, const fig_short_lane &lane,
              int32_t token, fig_short_stage<form> *stage) {
    int32_t within;
    const int32_t page = fig_short_number(p, row, token, &within);
    const int32_t lane_number = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t all_copy = form::COPIERS == FIG_BLOCK_WARP;
    const int32_t lane_token = lane_number / form::OF_ROW;
    const int32_t chunk = (all_copy ? (int32_t)threadIdx.x : lane_number) % form::OF_ROW;
    const int32_t row_of_stage = fig_block_warp() * FIG_RING_TOKENS + lane_token;
    const int32_t unseen = token + lane_token - row.seen.first;
    const uint64_t policy = fig_machine_policy_once();
#pragma unroll
    for (int32_t is_v = 0; is_v < 2; is_v++) {
        const fig_cache_strides &strides = is_v ? p.v_cache_strides : p.k_cache_strides;
        const uint8_t *from = fig_short_page<form>(is_v ? p.v_cache : p.k_cache, strides,
                                                   is_v ? p.v_pages : p.k_pages, page, within) +
                              (is_v ? lane.v : lane.k);
        uint4(*to)[form::OF_ROW] = &(is_v ? stage->v : stage->k)[row_of_stage];
#pragma unroll
        for (int32_t i = 0; i < FIG_RING_TOKENS; i += form::ABREAST) {
            const int32_t at = is_v ? fig_short_v_at<form>(lane_token + i, chunk)
                                    : fig_short_k_at<form>(lane_token + i, chunk);
            if (all_copy || lane_number < form::COPIERS)
                fig_short_copy(&to[i][at], from, policy,
                               (uint32_t)(unseen + i) < (uint32_t)(row.seen.end - row.seen.first));
            from += form::ABREAST * form::VALUE_BYTES * strides.token;
        }
        fig_short_commit();
    }
}

/* Holds the lane's chunks of K and V of the row's newest token. If the launch appends to a cache of
 * codes, the chunks arrive as 16-bit numbers. Codes then replace them, in the first half of each
 * chunk. */
template <class form> struct fig_short_newest {
    static constexpr int32_t COUNT = (2 * form::OF_NEWEST + FIG_BLOCK_WARP - 1) / FIG_BLOCK_WARP;
    static constexpr int32_t IS_HALVED = form::OF_NEWEST > form::OF_ROW;
    const uint8_t *from[COUNT];
    /* destination in the cache if the launch appends; NULL if the token is in no page */
    uint8_t *to[COUNT];
    uint4 chunks[COUNT];
};

/* Returns the index of the lane's chunk n in [K, V]. */
template <class form> static __device__ __forceinline__ int32_t fig_short_newest_at(int32_t n) {
    return min((int32_t)threadIdx.x % FIG_BLOCK_WARP + n * FIG_BLOCK_WARP, 2 * form::OF_NEWEST - 1);
}

template <class form>
static __device__ __forceinline__ void fig_short_find_newest(const fig_attention_params &p,
                                                             const fig_short_row &row,
                                                             fig_short_newest<form> *newest) {
    int32_t within;
    const int32_t page = fig_short_number(p, row, row.length - 1, &within);
#pragma unroll
    for (int32_t n = 0; n < fig_short_newest<form>::COUNT; n++) {
        const int32_t at = fig_short_newest_at<form>(n), is_v = at >= form::OF_ROW;
        const fig_cache_strides strides = is_v ? p.v_cache_strides : p.k_cache_strides;
        newest->from[n] = fig_short_page<form>(is_v ? p.v_cache : p.k_cache, strides,
                                               is_v ? p.v_pages : p.k_pages, page, within) +
                          form::VALUE_BYTES * row.kv_head * strides.head +
                          at % form::OF_ROW * FIG_RING_CHUNK;
    }
}

/* Loads the newest token. The loads bypass L1, because L1 may hold bytes from before the step wrote
 * the token. */
template <class form>
static __device__ __forceinline__ void fig_short_load_newest(fig_short_newest<form> *newest) {
#pragma unroll
    for (int32_t n = 0; n < fig_short_newest<form>::COUNT; n++) {
        uint4 *x = &newest->chunks[n];
        asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x->x), "=r"(x->y), "=r"(x->z), "=r"(x->w)
                     : "l"(newest->from[n]));
    }
}

/* Stores a chunk to shared memory or to the cache. */
template <class form>
static __device__ __forceinline__ void fig_short_put_chunk(void *to, const uint4 &chunk) {
    if (fig_short_newest<form>::IS_HALVED) {
        *(uint2 *)to = make_uint2(chunk.x, chunk.y);
    } else {
        *(uint4 *)to = chunk;
    }
}

/* Overwrites the first copy of the newest token. All copies of the warp must have arrived. */
template <class form>
static __device__ __forceinline__ void fig_short_put_newest(const fig_short_newest<form> &newest,
                                                            int32_t token,
                                                            fig_short_stage<form> *stage) {
    __syncwarp();
#pragma unroll
    for (int32_t n = 0; n < fig_short_newest<form>::COUNT; n++) {
        const int32_t at = fig_short_newest_at<form>(n), within = at % form::OF_NEWEST;
        const int32_t of_chunk = fig_short_newest<form>::IS_HALVED ? 2 : 1;
        const int32_t chunk = within / of_chunk;
        uint4 *to = at < form::OF_NEWEST ? &stage->k[token][fig_short_k_at<form>(token, chunk)]
                                         : &stage->v[token][fig_short_v_at<form>(token, chunk)];
        fig_short_put_chunk<form>((uint2 *)to + within % of_chunk, newest.chunks[n]);
    }
}

/* Starts the copies of turn `turn`. If there is no such turn, the groups of copies are empty. */
template <class form>
static __device__ __forceinline__ void
fig_short_ask_turn(const fig_attention_params &p, const fig_short_row &row,
                   const fig_short_lane &lane, const fig_short_way &way, int32_t turn,
                   fig_short_stage<form> *stages) {
    if (turn < way.turns) {
        fig_short_ask<form>(p, row, lane, way.first + turn * form::BLOCKS * form::TOKENS,
                            &stages[turn % form::STAGES]);
    } else {
        fig_short_commit();
        fig_short_commit();
    }
}

#endif
