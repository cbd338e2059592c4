/* short_feed.cuh: which tokens of a short row a warp has, and their way to shared memory.
 *
 * A row is dealt by turns: of each turn of a cluster a warp has 16 tokens. Their page follows from
 * the block's number and two loads, so that copies are on their way as soon as a launch can know of
 * them; as many turns as shared memory holds are. The newest token comes with the others, too
 * early where the step itself appends it: so it is taken again behind the wait, and put over the
 * first.
 *
 * Leaves what becomes of a turn to attention_short.cuh. Invariant: what no vector sees comes as
 * zeros, all functions are called by whole warps, and every turn of a warp is two groups of copies,
 * K's and V's, be they empty. */
#ifndef FIG_KERNELS_SHORT_FEED_CUH
#define FIG_KERNELS_SHORT_FEED_CUH

#include "kernels/attention_strip.cuh"

enum { FIG_SHORT_ABREAST = FIG_FORM_SHORT_ABREAST };

template <int32_t KV, int32_t DIMS, int32_t BLOCK_COUNT, int32_t WARP_COUNT, int32_t TURNING>
struct fig_short_form : fig_warps_form<KV, DIMS, 1, 0, TURNING> {
    typedef fig_warps_form<KV, DIMS, 1, 0, TURNING> of_warps;
    static constexpr int32_t WARPS = WARP_COUNT, THREADS = WARP_COUNT * FIG_BLOCK_WARP;
    static constexpr int32_t BLOCKS = BLOCK_COUNT;                   /* of a cluster */
    static constexpr int32_t TOKENS = WARP_COUNT * FIG_RING_TOKENS;  /* of a block's turn */
    static constexpr int32_t OF_ROW = of_warps::CHUNKS;              /* of a token */
    static constexpr int32_t OF_LANE = OF_ROW / 4;                   /* of them, in a fragment */
    static constexpr int32_t OF_HEAD = DIMS / 8;                     /* of q, k and v, of 16 bits */
    static constexpr int32_t OF_NEWEST = TURNING ? OF_HEAD : OF_ROW; /* as it is loaded */
    static constexpr int32_t ABREAST = FIG_BLOCK_WARP / OF_ROW;      /* tokens of a warp's copy */
    static constexpr int32_t OWN_TILES = DIMS / 16 / WARP_COUNT;     /* of a warp's sums */
    static constexpr int32_t STAGES = fig_form_short_stages(of_warps::VALUE_BYTES);
    static constexpr int32_t ROWS = DIMS / 2 / BLOCK_COUNT; /* of lanes' sums, written by a block */
};

/* A block's tokens of a turn. */
template <class form> struct fig_short_stage {
    uint4 k[form::TOKENS][form::OF_ROW];
    uint4 v[form::TOKENS][form::OF_ROW];
};

/* Where chunk c of token t lies in its row: so that neither the chunks that two lanes' tokens have
 * nor one chunk of 8 tokens meet in a bank. Two rows of 64 bytes have all banks by themselves. */
template <class form>
static __device__ __forceinline__ int32_t fig_short_k_at(int32_t token, int32_t chunk) {
    return form::OF_ROW > 4 ? chunk ^ token % 2 * 4 : chunk;
}

template <class form>
static __device__ __forceinline__ int32_t fig_short_v_at(int32_t token, int32_t chunk) {
    return chunk ^ (form::OF_ROW > 4 ? token % 8 : token / 2 % 4);
}

/* ---- A row */

/* What a block knows of the cluster's row. */
typedef struct fig_short_row {
    int32_t row, kv_head, rank; /* rank: the block's, in the cluster */
    int32_t vectors;
    int32_t length, sequence;
    int32_t position; /* where the launch turns */
    fig_strip_range seen;
    float k_scale, v_scale; /* what codes are worth; known behind the wait */
} fig_short_row;

/* Which row the block is of. */
template <class form>
static __device__ __forceinline__ fig_short_row fig_short_row_of(const fig_attention_params &p) {
    fig_short_row row;
    const int32_t segment = (int32_t)blockIdx.x / form::BLOCKS;
    row.rank = (int32_t)blockIdx.x % form::BLOCKS;
    row.row = fig_form_divide(segment, p.kv_heads);
    row.kv_head = segment - row.row * p.kv_heads;
    row.length = fig_vector_fetch_number((const int32_t *)(p.plan + p.lengths_offset) + row.row);
    row.sequence =
        fig_vector_fetch_number((const int32_t *)(p.plan + p.sequences_offset) + row.row);
    row.position = 0;
    if (form::TURNS)
        row.position =
            fig_vector_fetch_number((const int32_t *)(p.plan + p.turn.positions_offset) + row.row);
    row.vectors = fig_form_divide(p.q_heads, p.kv_heads);
    return row;
}

/* What a warp knows of its way through the row's turns. */
typedef struct fig_short_way {
    int32_t first, turns; /* the warp's first token; turns of the block, 1 at least */
    int32_t newest;       /* turn in which the warp has the row's newest token; -1: it has not */
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

/* Where it is said what the head's codes are worth; NULL: they are worth what they say. */
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

/* The turn for which the newest token is taken again, behind the wait; -1: none. Where the launch
 * appends it itself it is nowhere else. */
template <class form>
static __device__ __forceinline__ int32_t fig_short_late(const fig_attention_params &p,
                                                         const fig_short_way &way) {
    if (form::TURNS) return way.newest;
    if ((p.flags & FIG_ATTENTION_EARLY) == 0 || way.newest >= form::STAGES) return -1;
    return way.newest;
}

/* ---- Copies */

/* Where the first chunk that a lane copies of 16 tokens lies: in bytes from head 0 of the first. */
typedef struct fig_short_lane {
    int64_t k, v;
} fig_short_lane;

/* Zeros where it is unseen. */
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

/* Until no more than the last so many groups are on their way. */
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

/* Where page `page` lies, and there the token `within`. One outside the cache reads as page 0. */
template <class form>
static __device__ __forceinline__ const uint8_t *
fig_short_page(const void *cache, const fig_cache_strides &strides, int64_t pages, int32_t page,
               int32_t within) {
    return (const uint8_t *)cache +
           form::VALUE_BYTES *
               (fig_feed_known(page, pages) * strides.page + within * strides.token);
}

/* The page of `token`, or of the last that a row may have. */
static __device__ __forceinline__ int32_t fig_short_number(const fig_attention_params &p,
                                                           const fig_short_row &row, int32_t token,
                                                           int32_t *within) {
    const int32_t number = fig_form_divide(token, p.page_size);
    *within = token - number * p.page_size;
    return p.page_table[row.sequence * p.table_stride + min(number, (int32_t)p.table_stride - 1)];
}

/* Asks for the warp's 16 tokens from `token` on: K and V are a group each. */
template <class form>
static __device__ __forceinline__ void
fig_short_ask(const fig_attention_params &p, const fig_short_row &row, const fig_short_lane &lane,
              int32_t token, fig_short_stage<form> *stage) {
    int32_t within;
    const int32_t page = fig_short_number(p, row, token, &within);
    const int32_t lane_token = (int32_t)threadIdx.x % FIG_BLOCK_WARP / form::OF_ROW;
    const int32_t chunk = (int32_t)threadIdx.x % form::OF_ROW;
    const int32_t row_of_stage = fig_block_warp() * FIG_RING_TOKENS + lane_token;
    const int32_t unseen = token + lane_token - row.seen.first;
    const uint64_t policy = fig_feed_once();
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
            fig_short_copy(&to[i][at], from, policy,
                           (uint32_t)(unseen + i) < (uint32_t)(row.seen.end - row.seen.first));
            from += form::ABREAST * form::VALUE_BYTES * strides.token;
        }
        fig_short_commit();
    }
}

/* K and V of the row's newest token: the lane's chunks of them. Where the launch appends to codes
 * they come as 16 bits, and are codes from then on, in the first half. */
template <class form> struct fig_short_newest {
    static constexpr int32_t COUNT = (2 * form::OF_NEWEST + FIG_BLOCK_WARP - 1) / FIG_BLOCK_WARP;
    static constexpr int32_t IS_HALVED = form::OF_NEWEST > form::OF_ROW;
    const uint8_t *from[COUNT];
    uint8_t *to[COUNT]; /* in the cache, where the launch appends; NULL: in no page of it */
    uint4 chunks[COUNT];
};

/* Chunk n of the lane's, of [K, V]. */
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

/* Past L1, since it was copied before the step had written it. */
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

/* To shared memory or the cache. */
template <class form>
static __device__ __forceinline__ void fig_short_put_chunk(void *to, const uint4 &chunk) {
    if (fig_short_newest<form>::IS_HALVED) {
        *(uint2 *)to = make_uint2(chunk.x, chunk.y);
    } else {
        *(uint4 *)to = chunk;
    }
}

/* Puts it over what was copied: all of the warp's copies have come. */
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

/* Of turn `turn`; where there is none the groups are empty. */
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
