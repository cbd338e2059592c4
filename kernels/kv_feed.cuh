/* kv_feed.cuh: fills the ring with a worker's strips, in their order, and says what each is.
 *
 * Owns the worker's way along the split and, for each strip, where its tokens lie. Two ways lead
 * from the cache to the ring: by the bulk copy engine, one box for each 16 tokens, where pages are
 * whole ones of those; or by copies of 16 bytes, of which two warps issue one side each. Both leave
 * the same bytes. What a vector does not see may be brought along, and a page that the row does not
 * have is never read: zeros come in its place.
 *
 * Before fig_block_wait, where the launch allows it, the plan is read and old tokens are on their
 * way; those that the step itself appends come after it. Invariant: every slot is filled once and
 * whole, and all functions are called by whole warps. */
#ifndef FIG_KERNELS_KV_FEED_CUH
#define FIG_KERNELS_KV_FEED_CUH

#include "kernels/form.h"
#include "kernels/cache.h"
#include "kernels/kv_ring.cuh"
#include "kernels/partials.cuh"
#include "kernels/strip.cuh"

/* A piece of the worker's, as far as its tokens go. */
typedef struct fig_feed_piece {
    fig_split_start start;
    fig_cache_sequence sequence;
    fig_strip_range tokens, seen_by_all;
    int32_t length, kv_head;
    int32_t tiles;             /* its own */
    int32_t before, row_tiles; /* fig_split_piece_of_row */
} fig_feed_piece;

/* What the plan says of a row. */
typedef struct fig_feed_row {
    int32_t length, sequence;
    int32_t prefix, next_prefix;
} fig_feed_row;

/* A worker's plan, as far as the first loads bring it: where the worker starts and, of the first
 * rows, each lane's. */
typedef struct fig_feed_plan {
    fig_split_start start;
    int32_t rows, advanced;
    fig_feed_row of_lane;
} fig_feed_plan;

static __device__ __forceinline__ const int32_t *fig_feed_section(const fig_attention_params &p,
                                                                  uint32_t offset) {
    return (const int32_t *)(p.plan + offset);
}

static __device__ __forceinline__ fig_feed_row fig_feed_row_at(const fig_attention_params &p,
                                                               int32_t row) {
    const int32_t *prefix = fig_feed_section(p, p.prefix_offset);
    fig_feed_row of;
    of.length = fig_feed_section(p, p.lengths_offset)[row];
    of.sequence = fig_feed_section(p, p.sequences_offset)[row];
    of.prefix = prefix[row];
    of.next_prefix = prefix[row + 1];
    return of;
}

/* Where the block's worker starts. Count 0 where the step has no rows: what lies behind the head is
 * a plan before. */
static __device__ __forceinline__ fig_split_start fig_feed_start(const fig_attention_params &p) {
    fig_split_start start = ((const fig_split_start *)(p.plan + p.starts_offset))[blockIdx.x];
    if (((const fig_plan_head *)p.plan)->rows == 0) start.count = 0;
    return start;
}

/* Every load by itself, none waits for another, and what is read too early is read again. */
static __device__ __forceinline__ fig_feed_plan fig_feed_read_plan(const fig_attention_params &p) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const fig_plan_head *head = (const fig_plan_head *)p.plan;
    fig_feed_plan plan;
    plan.start = fig_feed_start(p);
    plan.rows = head->rows;
    plan.advanced = head->advanced;
    plan.of_lane = fig_feed_row_at(p, fig_size_min(lane, p.split.row_limit - 1));
    return plan;
}

static __device__ __forceinline__ fig_feed_row fig_feed_row_of(const fig_attention_params &p,
                                                               const fig_feed_plan &plan,
                                                               int32_t row) {
    if (row >= FIG_BLOCK_WARP) return fig_feed_row_at(p, row);
    fig_feed_row of;
    of.length = __shfl_sync(0xffffffffu, plan.of_lane.length, row);
    of.sequence = __shfl_sync(0xffffffffu, plan.of_lane.sequence, row);
    of.prefix = __shfl_sync(0xffffffffu, plan.of_lane.prefix, row);
    of.next_prefix = __shfl_sync(0xffffffffu, plan.of_lane.next_prefix, row);
    return of;
}

/* Tokens that all of a row's queries see: its last sees as far back as any, its first least far
 * on. And those that any sees. */
static __device__ __forceinline__ void fig_feed_ranges(const fig_attention_params &p,
                                                       int32_t length, fig_strip_range *any,
                                                       fig_strip_range *all) {
    const int32_t first = length - p.split.row_tokens, last = length - 1;
    const int32_t window = p.split.window;
    any->first = window > 0 && first + 1 > window ? first + 1 - window : 0;
    any->end = length;
    all->first = window > 0 && last + 1 > window ? last + 1 - window : 0;
    all->end = first + 1;
}

static __device__ __forceinline__ fig_feed_piece fig_feed_piece_of(const fig_attention_params &p,
                                                                   const fig_feed_plan &plan,
                                                                   const fig_split_start &start) {
    const fig_feed_row row = fig_feed_row_of(p, plan, start.row);
    fig_feed_piece of;
    fig_strip_range any, tiles;
    of.start = start;
    of.length = row.length;
    of.sequence = fig_cache_sequence_of(p.page_table, p.table_stride, row.sequence, p.page_size);
    of.kv_head = start.group * p.heads_per_worker;
    const int32_t origin =
        p.split.window == 0 ? 0 : fig_split_first_tile_token(&p.split, of.length - plan.advanced);
    tiles.first = origin + start.tile * p.split.tile_tokens;
    of.before = row.prefix;
    of.row_tiles = row.next_prefix - row.prefix;
    of.tiles = fig_split_piece_tiles(&p.split, of.row_tiles, &start);
    tiles.end = tiles.first + of.tiles * p.split.tile_tokens;
    fig_feed_ranges(p, of.length, &any, &of.seen_by_all);
    of.tokens = fig_strip_overlap(tiles, any);
    return of;
}

/* Until what the launches before have written is there, once; those behind may begin then. */
static __device__ __forceinline__ void fig_feed_wait(int32_t *has_waited) {
    if (*has_waited) return;
    fig_block_wait();
    fig_block_trigger();
    *has_waited = 1;
}

/* Where a token lies, and a token before the piece's first where that does. */
typedef struct fig_feed_place {
    int32_t page, token; /* token: of the page */
} fig_feed_place;

static __device__ __forceinline__ fig_feed_place fig_feed_place_of(const fig_feed_piece &of,
                                                                   int32_t token) {
    const int32_t within = max(token, of.tokens.first), size = of.sequence.page_size;
    const int32_t number = fig_form_divide(within, size);
    fig_feed_place place;
    place.page = of.sequence.pages == NULL ? of.sequence.number : of.sequence.pages[number];
    place.token = (within < token ? within : token) - number * size;
    return place;
}

static __device__ __forceinline__ fig_ring_note fig_feed_note(const fig_feed_piece &of,
                                                              int32_t partial, int32_t token,
                                                              int32_t strip) {
    fig_ring_note note;
    const fig_strip_range inner = fig_strip_overlap(of.tokens, of.seen_by_all);
    note.flags = token <= of.tokens.first ? FIG_RING_FIRST : 0;
    if (token + strip >= of.tokens.end) note.flags |= FIG_RING_LAST;
    if (token < inner.first || token + strip > inner.end) note.flags |= FIG_RING_EDGE;
    note.row = of.start.row;
    note.group = of.start.group;
    note.token = token;
    note.first = of.tokens.first;
    note.end = of.tokens.end;
    note.length = of.length;
    note.partial = partial;
    return note;
}

/* The line; its length is known to a lane already where rows are few. */
static __device__ __forceinline__ fig_split_line fig_feed_line(const fig_attention_params &p,
                                                               const fig_feed_plan &plan) {
    fig_split_line line;
    line.prefix = fig_feed_section(p, p.prefix_offset);
    line.rows = plan.rows;
    const int32_t last = max(plan.rows, 1) - 1;
    const int32_t tiles = last < FIG_BLOCK_WARP
                              ? __shfl_sync(0xffffffffu, plan.of_lane.next_prefix, last)
                              : line.prefix[plan.rows];
    line.tiles = tiles * p.split.groups;
    line.active = fig_split_active(line.tiles, p.split.workers);
    return line;
}

/* Which partial the piece goes to; -1: it is whole. All that its place depends on is whether the
 * segment's first piece is another, and that is whether the worker begins inside the segment: so
 * the piece's neighbours need not be looked for, which takes divisions. */
static __device__ __forceinline__ int32_t fig_feed_partial(const fig_attention_params &p,
                                                           const fig_feed_piece &of) {
    const int32_t number = (int32_t)blockIdx.x, segment = of.before * p.split.groups;
    const int32_t is_first = of.start.tile == 0;
    const int32_t is_whole = is_first && of.tiles == of.row_tiles;
    fig_split_piece piece = {of.start.row, of.start.group};
    piece.first = is_first ? number : number - 1;
    if (is_whole) return -1;
    if (p.split.fixed) return segment + of.start.group * of.row_tiles + of.start.tile;
    return fig_split_partial(&p.split, &piece, number);
}

/* ---- By the bulk copy engine */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
static __device__ __forceinline__ uint64_t fig_feed_once(void) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

static __device__ __forceinline__ void fig_feed_box(uint32_t to, const void *map, int32_t token,
                                                    int32_t head, int32_t page, uint32_t barrier,
                                                    uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %2, %4, %5}], [%6], %7;" ::"r"(to),
                 "l"(map), "r"(0), "r"(token), "r"(head), "r"(page), "r"(barrier), "l"(policy)
                 : "memory");
}

static __device__ __forceinline__ void fig_feed_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(barrier),
        "r"(bytes)
        : "memory");
}

/* The maps lie in the params, which are far away when a block begins. */
static __device__ __forceinline__ void fig_feed_prefetch_maps(const fig_attention_params &p) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&p.k_map) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&p.v_map) : "memory");
}

/* Asks L2 for what a box will read, as fig_block_prefetch does. */
static __device__ __forceinline__ void fig_feed_prefetch_box(const void *map, int32_t token,
                                                             int32_t head, int32_t page) {
    asm volatile(
        "cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %1, %3, %4}];" ::"l"(map), "r"(0),
        "r"(token), "r"(head), "r"(page)
        : "memory");
}

/* Where 16 tokens lie: their page, as a coordinate of K's map and of V's, and the first of it. */
typedef struct fig_feed_block {
    int32_t k_page, v_page, token;
} fig_feed_block;

/* A page number outside the cache reads as page 0. */
static __device__ __forceinline__ int32_t fig_feed_known(int32_t page, int64_t pages) {
    return page < 0 || page >= pages ? 0 : page;
}

/* Of the 16 tokens from `token` on; those behind the piece lie nowhere. */
static __device__ __forceinline__ fig_feed_block fig_feed_block_at(const fig_attention_params &p,
                                                                   const fig_feed_piece &of,
                                                                   int32_t token) {
    fig_feed_block block = {-1, -1, 0};
    if (token >= of.tokens.end) return block;
    const fig_feed_place place = fig_feed_place_of(of, token);
    block.k_page = fig_feed_known(place.page, p.k_pages);
    block.v_page = fig_feed_known(place.page, p.v_pages);
    block.token = place.token;
    return block;
}

/* 1 for one lane of the warp, which the compiler knows to be alone. */
static __device__ __forceinline__ int32_t fig_feed_is_alone(void) {
    uint32_t is_alone;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
                 : "=r"(is_alone));
    return (int32_t)is_alone;
}

/* A strip's blocks, all known to each lane. */
template <int32_t BLOCKS> struct fig_feed_blocks {
    fig_feed_block of[BLOCKS];
    int32_t kv_head;
};

/* Those of one side from `first` to `end`, by one lane: boxes side by side would each be elected
 * for themselves. */
template <int32_t BLOCKS>
static __device__ __forceinline__ void
fig_feed_boxes(const fig_attention_params &p, const fig_ring &ring, int32_t side,
               const fig_feed_blocks<BLOCKS> &blocks, int32_t first, int32_t end, uint64_t policy) {
    const uint32_t block_bytes = ring.side_bytes / BLOCKS;
    if (!fig_feed_is_alone()) return;
#pragma unroll
    for (int32_t i = 0; i < BLOCKS; i++) {
        const fig_feed_block &block = blocks.of[i];
        if (i < first || i >= end) continue;
        fig_feed_box(fig_ring_side(ring, side) + (uint32_t)i * block_bytes,
                     side == FIG_RING_K ? &p.k_map : &p.v_map, block.token, blocks.kv_head,
                     side == FIG_RING_K ? block.k_page : block.v_page, fig_ring_full(ring, side),
                     policy);
    }
}

/* Blocks from `first` on hold tokens that the step itself appends: L2 is asked for them, and they
 * are sent behind the wait. */
template <int32_t BLOCKS>
static __device__ __forceinline__ void
fig_feed_boxes_behind_wait(const fig_attention_params &p, const fig_ring &ring,
                           const fig_feed_blocks<BLOCKS> &blocks, int32_t first, uint64_t policy,
                           int32_t *has_waited) {
    if (fig_feed_is_alone()) {
#pragma unroll
        for (int32_t i = 0; i < BLOCKS; i++) {
            const fig_feed_block &block = blocks.of[i];
            if (i < first) continue;
            fig_feed_prefetch_box(&p.k_map, block.token, blocks.kv_head, block.k_page);
            fig_feed_prefetch_box(&p.v_map, block.token, blocks.kv_head, block.v_page);
        }
    }
    __syncwarp();
    fig_feed_wait(has_waited);
    fig_feed_boxes(p, ring, FIG_RING_K, blocks, first, BLOCKS, policy);
    fig_feed_boxes(p, ring, FIG_RING_V, blocks, first, BLOCKS, policy);
}

/* The lane's block, and 32 further on; the first bytes are on their way before what lies ahead and
 * where the piece goes are looked for. */
template <class form>
static __device__ __forceinline__ void fig_feed_bulk_piece(const fig_attention_params &p,
                                                           const fig_feed_piece &of, fig_ring *ring,
                                                           int32_t *has_waited) {
    const int32_t BLOCKS = form::STRIP / FIG_RING_TOKENS;
    const int32_t mine = (int32_t)threadIdx.x % FIG_BLOCK_WARP * FIG_RING_TOKENS;
    const int32_t window = FIG_BLOCK_WARP * FIG_RING_TOKENS;
    const int32_t origin = of.tokens.first & -FIG_RING_TOKENS;
    const int32_t first_new = of.length - p.split.row_tokens;
    const uint64_t policy = fig_feed_once();
    fig_feed_block here = fig_feed_block_at(p, of, origin + mine), ahead = here;
    int32_t token = origin, partial = -1, from = 0; /* from: the lane that has the strip's first */
    do {
        fig_feed_blocks<BLOCKS> blocks;
        blocks.kv_head = of.kv_head;
#pragma unroll
        for (int32_t i = 0; i < BLOCKS; i++)
            blocks.of[i] = {__shfl_sync(0xffffffffu, here.k_page, from + i),
                            __shfl_sync(0xffffffffu, here.v_page, from + i),
                            __shfl_sync(0xffffffffu, here.token, from + i)};
        const int32_t is_late = !*has_waited && token + form::STRIP > first_new;
        const int32_t old = is_late ? max(first_new - token, 0) / FIG_RING_TOKENS : BLOCKS;
        fig_ring_wait_empty(*ring, FIG_RING_K);
        fig_feed_boxes(p, *ring, FIG_RING_K, blocks, 0, old, policy);
        fig_ring_wait_empty(*ring, FIG_RING_V);
        fig_feed_boxes(p, *ring, FIG_RING_V, blocks, 0, old, policy);
        __syncwarp();
        if (token == origin) partial = fig_feed_partial(p, of);
        if (threadIdx.x % FIG_BLOCK_WARP == 0) {
            fig_ring_write(*ring, fig_feed_note(of, partial, token, form::STRIP));
            fig_feed_expect(fig_ring_full(*ring, FIG_RING_K), ring->side_bytes);
            fig_feed_expect(fig_ring_full(*ring, FIG_RING_V), ring->side_bytes);
        }
        __syncwarp();
        if (is_late) fig_feed_boxes_behind_wait(p, *ring, blocks, old, policy, has_waited);
        __syncwarp();
        if (token == origin) ahead = fig_feed_block_at(p, of, origin + window + mine);
        fig_ring_next(ring);
        token += form::STRIP;
        from += BLOCKS;
        if (from == FIG_BLOCK_WARP) {
            from = 0;
            here = ahead;
            ahead = fig_feed_block_at(p, of, token + window + mine);
        }
    } while (token < of.tokens.end);
}
#endif

/* ---- By copies of 16 bytes */

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
static __device__ __forceinline__ void fig_feed_copy_piece(const fig_attention_params &p,
                                                           const fig_feed_piece &of, int32_t is_v,
                                                           fig_ring *ring, int32_t *has_waited) {
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
        if (token + form::STRIP > of.length - p.split.row_tokens) fig_feed_wait(has_waited);
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
        if (!is_v && token == of.tokens.first) partial = fig_feed_partial(p, of);
        if (!is_v && lane == 0)
            fig_ring_write(*ring, fig_feed_note(of, partial, token, form::STRIP));
        fig_feed_fill_after_copies(fig_ring_full(*ring, is_v));
        fig_ring_next(ring);
        token += form::STRIP;
    } while (token < of.tokens.end);
}

/* ---- A worker */

/* A note without a strip. */
template <class form>
static __device__ __forceinline__ void fig_feed_say(const fig_ring_note &note, int32_t is_second,
                                                    fig_ring *ring) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    for (int32_t side = is_second; side < (form::IS_BULK ? 2 : is_second + 1); side++) {
        fig_ring_wait_empty(*ring, side);
        if (lane == 0 && side == FIG_RING_K) fig_ring_write(*ring, note);
        __syncwarp();
        if (!form::IS_BULK) {
            fig_feed_fill_after_copies(fig_ring_full(*ring, side));
        } else if (lane == 0) {
            fig_ring_arrive(fig_ring_full(*ring, side));
        }
    }
    fig_ring_next(ring);
}

static __device__ __forceinline__ fig_ring_note fig_feed_merge_note(const fig_attention_params &p,
                                                                    const fig_split_piece &piece,
                                                                    int32_t part, int32_t parts) {
    fig_ring_note note = {FIG_RING_MERGE, piece.row, piece.group, part};
    note.first = piece.first;
    note.end = piece.last;
    note.length = parts;
    note.partial = fig_split_partial(&p.split, &piece, piece.first);
    return note;
}

/* Rows of length 0 are not on the line: each belongs to one worker by its number. Zeros and -inf,
 * whatever the sinks. */
static __device__ __noinline__ void fig_feed_idle_rows(const fig_attention_params &p) {
    const int32_t *lengths = (const int32_t *)(p.plan + p.lengths_offset);
    const int32_t rows = ((const fig_plan_head *)p.plan)->rows;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    for (int32_t row = (int32_t)blockIdx.x; row < rows; row += p.split.workers) {
        if (lengths[row] > 0) continue;
        for (int32_t n = 0; n < p.split.row_tokens * p.q_heads; n++) {
            const int64_t at = (int64_t)row * p.split.row_tokens + n / p.q_heads;
            const int32_t head = n % p.q_heads;
            uint16_t *out = (uint16_t *)p.out + at * p.out_strides.row + head * p.out_strides.head;
            for (int32_t dim = lane; dim < p.head_dim; dim += FIG_BLOCK_WARP)
                out[dim] = 0;
            if (lane == 0 && p.lse != NULL) p.lse[at * p.lse_stride + head] = -INFINITY;
        }
    }
}

/* The worker's strips, and where no block waits for another the note that a piece is done. */
template <class form>
static __device__ __forceinline__ void fig_feed_strips(const fig_attention_params &p,
                                                       const fig_feed_plan &plan, int32_t is_second,
                                                       fig_ring *ring, int32_t *has_waited) {
    fig_split_start start = plan.start;
    while (start.count > 0) {
        const fig_feed_piece of = fig_feed_piece_of(p, plan, start);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if (form::IS_BULK) fig_feed_bulk_piece<form>(p, of, ring, has_waited);
#endif
        if (!form::IS_BULK) fig_feed_copy_piece<form>(p, of, is_second, ring, has_waited);
        const fig_split_line line = fig_feed_line(p, plan);
        if (p.flags & FIG_ATTENTION_APART) {
            const fig_split_piece piece = fig_split_piece_at(&p.split, &line, &start);
            if (piece.first != piece.last)
                fig_feed_say<form>(fig_feed_merge_note(p, piece, 0, 1), is_second, ring);
        }
        fig_split_pass(&p.split, &line, &start);
    }
}

/* Into how many parts a cut segment's merge is shared, among the owners of its last pieces. A worker
 * has one part at most, that of its first piece: so the owner of the segment's first piece has one
 * only where its stretch begins there too. */
template <class form>
static __device__ __forceinline__ int32_t fig_feed_parts(const fig_attention_params &p,
                                                         const fig_split_line &line,
                                                         const fig_split_piece &piece,
                                                         int32_t segment) {
    const int32_t pieces = piece.last - piece.first + 1;
    if (!form::CAN_SHARE || p.split.fixed) return 1;
    if (pieces > FIG_PARTIALS_PARTS) return FIG_PARTIALS_PARTS;
    return fig_split_begin(&line, piece.first) == segment ? pieces : 1;
}

/* The merges that are the worker's. But for fixed splits they are of its first piece's segment
 * alone: a later one begins in the worker's stretch, and where it ends there too it is whole. */
template <class form>
static __device__ __forceinline__ void fig_feed_merges(const fig_attention_params &p,
                                                       const fig_feed_plan &plan, int32_t is_second,
                                                       fig_ring *ring) {
    fig_split_start start = plan.start;
    const fig_split_line line = fig_feed_line(p, plan);
    while (start.count > 0) {
        const fig_feed_row row = fig_feed_row_of(p, plan, start.row);
        const int32_t row_tiles = row.next_prefix - row.prefix;
        const fig_split_piece piece = fig_split_piece_of_worker(
            &p.split, &line, (int32_t)blockIdx.x, row.prefix, row_tiles, &start);
        if (piece.first != piece.last) {
            const int32_t segment = row.prefix * p.split.groups + start.group * row_tiles;
            const int32_t parts = fig_feed_parts<form>(p, line, piece, segment);
            const int32_t part = piece.last - piece.number;
            if (part < parts)
                fig_feed_say<form>(fig_feed_merge_note(p, piece, part, parts), is_second, ring);
        }
        if (!p.split.fixed) return;
        fig_split_pass(&p.split, &line, &start);
    }
}

/* The first warp behind those that read: the ring, K and, in bulk, V; the second V. plan: known
 * where it may be read early. */
template <class form>
static __device__ void fig_feed_worker(const fig_attention_params &p, fig_ring ring,
                                       fig_feed_plan plan, int32_t is_second) {
    int32_t has_waited = 0;
    if (is_second) {
        fig_ring_meet(FIG_RING_MADE, (int32_t)blockDim.x);
    } else {
        if (threadIdx.x % FIG_BLOCK_WARP == 0) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
            fig_feed_prefetch_maps(p);
#endif
            fig_ring_init(ring.state, ring.slot_count, form::IS_BULK ? 1 : FIG_BLOCK_WARP + 1,
                          ring.readers);
        }
        __syncwarp();
        fig_ring_pass(FIG_RING_MADE, (int32_t)blockDim.x);
    }
    if ((p.flags & FIG_ATTENTION_EARLY) == 0) {
        fig_feed_wait(&has_waited);
        plan = fig_feed_read_plan(p);
    }
    fig_feed_strips<form>(p, plan, is_second, &ring, &has_waited);
    fig_feed_wait(&has_waited);
    if ((p.flags & FIG_ATTENTION_APART) == 0) fig_feed_merges<form>(p, plan, is_second, &ring);
    const fig_ring_note end = {FIG_RING_END};
    fig_feed_say<form>(end, is_second, &ring);
    if (!is_second) fig_feed_idle_rows(p);
    if (!form::IS_BULK) asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif
