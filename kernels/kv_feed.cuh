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

#include "kernels/attention_form.h"
#include "kernels/cache.h"
#include "kernels/kv_ring.cuh"
#include "kernels/strip.cuh"

/* A piece of the worker's. */
typedef struct fig_feed_piece {
    fig_split_piece piece;
    fig_cache_sequence sequence;
    fig_strip_range tokens, seen_by_all;
    int32_t length, kv_head;
} fig_feed_piece;

/* A worker's plan. */
typedef struct fig_feed_plan {
    const fig_plan_head *head;
    const int32_t *lengths, *sequences;
    fig_split_line line;
    fig_split_start start;
} fig_feed_plan;

static __device__ __forceinline__ fig_feed_plan fig_feed_plan_of(const fig_attention_params &p) {
    fig_feed_plan plan;
    const int32_t *prefix = (const int32_t *)(p.plan + p.prefix_offset);
    plan.head = (const fig_plan_head *)p.plan;
    plan.lengths = (const int32_t *)(p.plan + p.lengths_offset);
    plan.sequences = (const int32_t *)(p.plan + p.sequences_offset);
    plan.start = ((const fig_split_start *)(p.plan + p.starts_offset))[blockIdx.x];
    int32_t rows = plan.head->rows;
    if (rows == 0) plan.start.count = 0;
    plan.line = fig_split_line_of(&p.split, prefix, rows > 0 ? rows : 0);
    return plan;
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
    fig_feed_piece of;
    fig_strip_range any, tiles;
    of.length = plan.lengths[start.row];
    of.sequence = fig_cache_sequence_of(p.page_table, p.table_stride, plan.sequences[start.row],
                                        p.page_size);
    of.piece = fig_split_piece_at(&p.split, &plan.line, &start);
    of.kv_head = start.group * p.heads_per_worker;
    const int32_t before = fig_plan_length_before(plan.head, of.length);
    const int32_t origin = fig_split_first_tile_token(&p.split, before);
    tiles.first = origin + of.piece.tile * p.split.tile_tokens;
    tiles.end = origin + of.piece.tile_end * p.split.tile_tokens;
    fig_feed_ranges(p, of.length, &any, &of.seen_by_all);
    of.tokens = fig_strip_overlap(tiles, any);
    return of;
}

static __device__ __forceinline__ int32_t fig_feed_page(const fig_feed_piece &of, int32_t token) {
    const int32_t within = token < of.tokens.first ? of.tokens.first : token;
    return fig_cache_page(&of.sequence, within);
}

static __device__ __forceinline__ fig_ring_note fig_feed_note(const fig_attention_params &p,
                                                              const fig_feed_piece &of,
                                                              int32_t token, int32_t strip) {
    fig_ring_note note;
    const fig_strip_range inner = fig_strip_overlap(of.tokens, of.seen_by_all);
    note.flags = token <= of.tokens.first ? FIG_RING_FIRST : 0;
    if (token + strip >= of.tokens.end) note.flags |= FIG_RING_LAST;
    if (token < inner.first || token + strip > inner.end) note.flags |= FIG_RING_EDGE;
    note.row = of.piece.row;
    note.group = of.piece.group;
    note.token = token;
    note.first = of.tokens.first;
    note.end = of.tokens.end;
    note.length = of.length;
    note.partial = of.piece.first == of.piece.last
                       ? -1
                       : fig_split_partial(&p.split, &of.piece, of.piece.number);
    return note;
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
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(
                     barrier),
                 "r"(bytes)
                 : "memory");
}

/* Where 16 tokens lie; page -1: nowhere. */
typedef struct fig_feed_block {
    int32_t page, token;
} fig_feed_block;

static __device__ __forceinline__ fig_feed_block fig_feed_block_at(const fig_feed_piece &of,
                                                                   int32_t token) {
    fig_feed_block block = {-1, 0};
    if (token >= of.tokens.end) return block;
    block.page = fig_feed_page(of, token);
    block.token = token % of.sequence.page_size;
    return block;
}

/* A page number outside the cache reads as page 0. */
static __device__ __forceinline__ int32_t fig_feed_known(int32_t page, int32_t token,
                                                         const fig_feed_piece &of, int64_t pages) {
    if (token >= of.tokens.end) return -1;
    return page < 0 || page >= pages ? 0 : page;
}

template <class form>
static __device__ __forceinline__ void
fig_feed_bulk_piece(const fig_attention_params &p, const fig_feed_piece &of, fig_ring *ring,
                    int32_t *has_waited) {
    const int32_t BLOCKS = form::STRIP / FIG_RING_TOKENS;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t window = FIG_BLOCK_WARP * FIG_RING_TOKENS;
    const int32_t origin = of.tokens.first & -FIG_RING_TOKENS;
    const uint32_t block_bytes = ring->side_bytes / BLOCKS;
    const uint64_t policy = fig_feed_once();
    fig_feed_block here = fig_feed_block_at(of, origin + lane * FIG_RING_TOKENS);
    fig_feed_block ahead = fig_feed_block_at(of, origin + window + lane * FIG_RING_TOKENS);
    int32_t token = origin;
    do {
        if (!*has_waited && token + form::STRIP > of.length - p.split.row_tokens) {
            fig_block_wait();
            *has_waited = 1;
        }
        const int32_t from = (token - origin) / FIG_RING_TOKENS % FIG_BLOCK_WARP;
        const int32_t page = __shfl_sync(0xffffffffu, here.page, from + lane);
        const int32_t page_token = __shfl_sync(0xffffffffu, here.token, from + lane);
        const int32_t mine = token + lane * FIG_RING_TOKENS;
#pragma unroll
        for (int32_t side = 0; side < 2; side++) {
            fig_ring_wait_empty(*ring, side);
            if (lane == 0) {
                if (side == FIG_RING_K)
                    fig_ring_write(*ring, fig_feed_note(p, of, token, form::STRIP));
                fig_feed_expect(fig_ring_full(*ring, side), ring->side_bytes);
            }
            __syncwarp();
            if (lane < BLOCKS)
                fig_feed_box(fig_ring_side(*ring, side) + (uint32_t)lane * block_bytes,
                             side == FIG_RING_K ? (const void *)&p.k_map : &p.v_map, page_token, of.kv_head,
                             fig_feed_known(page, mine, of,
                                            side == FIG_RING_K ? p.k_pages : p.v_pages),
                             fig_ring_full(*ring, side), policy);
        }
        fig_ring_next(ring);
        token += form::STRIP;
        if ((token - origin) % window == 0) {
            here = ahead;
            ahead = fig_feed_block_at(of, token + window + lane * FIG_RING_TOKENS);
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

/* Of the lane's token of a stretch of 32; NULL: nowhere. */
static __device__ __forceinline__ const uint8_t *
fig_feed_token_at(const fig_strip_side &side, const fig_feed_piece &of, int32_t token,
                  int32_t page, int32_t value_bytes) {
    if (token < of.tokens.first || token >= of.tokens.end) return NULL;
    return fig_strip_token(side, of.sequence, page, token, value_bytes);
}

static __device__ __forceinline__ int32_t fig_feed_page_ahead(const fig_feed_piece &of,
                                                              int32_t token) {
    return token < of.tokens.end ? fig_feed_page(of, token) : 0;
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
fig_feed_copy_piece(const fig_attention_params &p, const fig_feed_piece &of, int32_t is_v,
                    fig_ring *ring, int32_t *has_waited) {
    const int32_t STRETCH = form::STRIP < FIG_BLOCK_WARP ? form::STRIP : FIG_BLOCK_WARP;
    const int32_t bytes = form::VALUE_BYTES;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const fig_strip_side side =
        is_v ? fig_strip_side_of(p.v_cache, p.v_cache_strides, p.v_pages, of.kv_head, bytes)
             : fig_strip_side_of(p.k_cache, p.k_cache_strides, p.k_pages, of.kv_head, bytes);
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    int32_t token = of.tokens.first;
    int32_t page = fig_feed_page_ahead(of, token + lane);
    do {
        if (!*has_waited && token + form::STRIP > of.length - p.split.row_tokens) {
            fig_block_wait();
            *has_waited = 1;
        }
        fig_ring_wait_empty(*ring, is_v);
        if (!is_v && lane == 0) fig_ring_write(*ring, fig_feed_note(p, of, token, form::STRIP));
#pragma unroll 1
        for (int32_t done = 0; done < form::STRIP; done += STRETCH) {
            const int32_t mine = token + done + lane;
            const uint8_t *place = fig_feed_token_at(side, of, mine, page, bytes);
            page = fig_feed_page_ahead(of, mine + STRETCH);
            const uint32_t blocks = (uint32_t)(done / FIG_RING_TOKENS * p.heads_per_worker);
            fig_feed_copy_tokens<form>(place, side, STRETCH, p.heads_per_worker,
                                       fig_ring_side(*ring, is_v) + blocks * form::BLOCK_BYTES,
                                       policy);
        }
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
                                                                    const fig_split_piece &piece) {
    fig_ring_note note = {FIG_RING_MERGE, piece.row, piece.group};
    note.first = piece.first;
    note.end = piece.last;
    note.partial = fig_split_partial(&p.split, &piece, piece.first);
    return note;
}

/* The segments that the worker merges: those whose last piece is its own. */
template <class form>
static __device__ __forceinline__ void fig_feed_merges(const fig_attention_params &p,
                                                       const fig_feed_plan &plan,
                                                       int32_t is_second, fig_ring *ring) {
    fig_split_start start = plan.start;
    while (start.count > 0) {
        const fig_split_piece piece = fig_split_piece_at(&p.split, &plan.line, &start);
        if (piece.first != piece.last && piece.number == piece.last)
            fig_feed_say<form>(fig_feed_merge_note(p, piece), is_second, ring);
        if (!p.split.fixed) return; /* a later segment of the worker begins in its stretch */
        fig_split_pass(&p.split, &plan.line, &piece, &start);
    }
}

/* The first warp behind those that read: K and, in bulk, V; the second V. */
template <class form>
static __device__ void fig_feed_worker(const fig_attention_params &p, fig_ring ring,
                                       int32_t is_second) {
    int32_t has_waited = (p.flags & FIG_ATTENTION_EARLY) == 0;
    if (has_waited) fig_block_wait();
    const fig_feed_plan plan = fig_feed_plan_of(p);
    fig_split_start start = plan.start;
    while (start.count > 0) {
        const fig_feed_piece of = fig_feed_piece_of(p, plan, start);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if (form::IS_BULK) fig_feed_bulk_piece<form>(p, of, &ring, &has_waited);
#endif
        if (!form::IS_BULK) fig_feed_copy_piece<form>(p, of, is_second, &ring, &has_waited);
        if ((p.flags & FIG_ATTENTION_APART) != 0 && of.piece.first != of.piece.last)
            fig_feed_say<form>(fig_feed_merge_note(p, of.piece), is_second, &ring);
        fig_split_pass(&p.split, &plan.line, &of.piece, &start);
    }
    if (!has_waited) fig_block_wait();
    if (!is_second) fig_block_trigger();
    if ((p.flags & FIG_ATTENTION_APART) == 0) fig_feed_merges<form>(p, plan, is_second, &ring);
    const fig_ring_note end = {FIG_RING_END};
    fig_feed_say<form>(end, is_second, &ring);
    if (!form::IS_BULK) asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif
