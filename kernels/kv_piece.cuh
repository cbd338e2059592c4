/* kv_piece.cuh: the worker's way along the split, piece by piece, for those who fill the ring.
 *
 * Owns what the plan says of a worker and of its rows, where a piece's tokens lie, and what the
 * notes of its strips and of its merge say. Leaves the bytes to kv_feed.cuh and kv_copy.cuh.
 * Invariant: all functions are called by whole warps. */
#ifndef FIG_KERNELS_KV_PIECE_CUH
#define FIG_KERNELS_KV_PIECE_CUH

#include "kernels/form.h"
#include "kernels/cache.h"
#include "kernels/kv_ring.cuh"
#include "kernels/partials.cuh"
#include "kernels/strip.cuh"

/* Of the warps that fill the ring, the one that makes it and says what its slots hold. */
enum { FIG_FEED_TELLER };

/* A piece of the worker's, as far as its tokens go. */
typedef struct fig_feed_piece {
    fig_split_start start;
    fig_cache_sequence sequence;
    fig_strip_range tokens, seen_by_all;
    int32_t length, kv_head;
    int32_t tiles;             /* its own */
    int32_t before, row_tiles; /* fig_split_piece_of_row */
    float page_share;          /* 1 / tokens of a page: a division as fig_form_divide has it */
} fig_feed_piece;

/* What the plan says of a row. */
typedef struct fig_feed_row {
    int32_t length, sequence;
    int32_t prefix, next_prefix;
} fig_feed_row;

/* Where it says that. */
typedef struct fig_feed_sections {
    const int32_t *lengths, *sequences, *prefix;
} fig_feed_sections;

/* A worker's plan, as far as the first loads bring it: where the worker starts and, of the first
 * rows, each lane's. */
typedef struct fig_feed_plan {
    fig_split_start start;
    int32_t rows, advanced;
    float page_share; /* as a piece has it */
    fig_feed_sections sections;
    fig_feed_row of_lane;
} fig_feed_plan;

static __device__ __forceinline__ fig_feed_sections
fig_feed_sections_of(const fig_attention_params &p) {
    fig_feed_sections sections;
    sections.lengths = (const int32_t *)(p.plan + p.lengths_offset);
    sections.sequences = (const int32_t *)(p.plan + p.sequences_offset);
    sections.prefix = (const int32_t *)(p.plan + p.prefix_offset);
    return sections;
}

static __device__ __forceinline__ fig_feed_row fig_feed_row_at(const fig_feed_sections &sections,
                                                               int32_t row) {
    fig_feed_row of;
    of.length = sections.lengths[row];
    of.sequence = sections.sequences[row];
    of.prefix = sections.prefix[row];
    of.next_prefix = sections.prefix[row + 1];
    return of;
}

/* Where the block's worker starts. Count 0 where the step has no rows: what lies behind the head is
 * a plan before. */
static __device__ __forceinline__ fig_split_start fig_feed_start(const fig_attention_params &p) {
    const int4 words = ((const int4 *)(p.plan + p.starts_offset))[blockIdx.x];
    fig_split_start start = {words.x, words.y, words.z, words.w};
    if (((const fig_plan_head *)p.plan)->rows == 0) start.count = 0;
    return start;
}

/* Every load by itself: none waits for another. */
static __device__ __forceinline__ fig_feed_plan fig_feed_read_plan(const fig_attention_params &p) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const fig_plan_head *head = (const fig_plan_head *)p.plan;
    fig_feed_plan plan;
    plan.page_share = __fdividef(1.0f, (float)p.page_size);
    plan.start = fig_feed_start(p);
    plan.rows = head->rows;
    plan.advanced = head->advanced;
    plan.sections = fig_feed_sections_of(p);
    plan.of_lane = fig_feed_row_at(plan.sections, fig_size_min(lane, p.split.row_limit - 1));
    return plan;
}

static __device__ __forceinline__ fig_feed_row fig_feed_row_of(const fig_feed_plan &plan,
                                                               int32_t row) {
    if (row >= FIG_BLOCK_WARP) return fig_feed_row_at(plan.sections, row);
    fig_feed_row of;
    of.length = __shfl_sync(0xffffffffu, plan.of_lane.length, row);
    of.sequence = __shfl_sync(0xffffffffu, plan.of_lane.sequence, row);
    of.prefix = __shfl_sync(0xffffffffu, plan.of_lane.prefix, row);
    of.next_prefix = __shfl_sync(0xffffffffu, plan.of_lane.next_prefix, row);
    return of;
}

/* fig_split_first_tile_token, without an integer's division. */
static __device__ __forceinline__ int32_t fig_feed_origin(const fig_attention_params &p,
                                                          int32_t length) {
    const int32_t first = fig_split_first_token(&p.split, length), tile = p.split.tile_tokens;
    return fig_form_divide(first, tile) * tile;
}

/* Tokens that all of a row's queries see: its last sees as far back as any, its first least far
 * on. And those that any sees. */
static __device__ __forceinline__ void fig_feed_ranges(const fig_attention_params &p,
                                                       int32_t length, fig_strip_range *any,
                                                       fig_strip_range *all) {
    const int32_t first = length - p.split.row_tokens, last = length - 1;
    const int32_t window = p.split.window;
    any->first = all->first = 0;
    any->end = length;
    all->end = first + 1;
    if (window == 0) return;
    any->first = max(first + 1 - window, 0);
    all->first = max(last + 1 - window, 0);
}

static __device__ __forceinline__ fig_feed_piece fig_feed_piece_of(const fig_attention_params &p,
                                                                   const fig_feed_plan &plan,
                                                                   const fig_split_start &start) {
    const fig_feed_row row = fig_feed_row_of(plan, start.row);
    fig_feed_piece of;
    fig_strip_range any, tiles;
    of.start = start;
    of.length = row.length;
    of.sequence = fig_cache_sequence_of(p.page_table, p.table_stride, row.sequence, p.page_size);
    of.page_share = plan.page_share;
    of.kv_head = start.group * p.heads_per_worker;
    tiles.first = start.tile * p.split.tile_tokens;
    if (p.split.window > 0) tiles.first += fig_feed_origin(p, of.length - plan.advanced);
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
    const int32_t number = __float2int_rd(((float)within + 0.5f) * of.page_share);
    fig_feed_place place;
    place.page = of.sequence.number;
    if (__builtin_expect(of.sequence.pages != NULL, 1)) place.page = of.sequence.pages[number];
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
    line.prefix = plan.sections.prefix;
    line.rows = plan.rows;
    const int32_t last = max(plan.rows, 1) - 1;
    const int32_t tiles = last < FIG_BLOCK_WARP
                              ? __shfl_sync(0xffffffffu, plan.of_lane.next_prefix, last)
                              : line.prefix[plan.rows];
    line.tiles = tiles * p.split.groups;
    line.active = fig_split_active(line.tiles, p.split.workers);
    return line;
}

/* Moves *start behind a piece. */
static __device__ __forceinline__ void fig_feed_pass(const fig_attention_params &p,
                                                     const fig_feed_plan &plan,
                                                     const fig_feed_piece &of,
                                                     fig_split_start *start) {
    const fig_split_line line = fig_feed_line(p, plan);
    if (start->count > of.tiles) {
        fig_split_pass(&p.split, &line, start);
    } else {
        start->count = 0; /* It was the last, and what would be next need not be looked up. */
    }
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

/* ---- Merges */

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

/* Into how many parts a cut segment's merge is shared, by the owners of its last pieces: no more
 * than a head has vectors. A worker has one part at most, that of its first piece: so the owner of
 * the segment's first piece has one only where its stretch begins there too. */
static __device__ __forceinline__ int32_t fig_feed_parts(const fig_attention_params &p,
                                                         const fig_split_line &line,
                                                         const fig_split_piece &piece,
                                                         int32_t segment, int32_t shares) {
    const int32_t pieces = piece.last - piece.first; /* but for the first */
    const int32_t vectors = fig_form_divide(p.q_heads, p.kv_heads) * p.split.row_tokens;
    const int32_t limit = fig_size_min(FIG_PARTIALS_PARTS, vectors);
    if (shares < FIG_FORM_SHARE_LIMIT || p.split.fixed || (p.flags & FIG_ATTENTION_APART) != 0)
        return 1;
    if (pieces >= limit) return limit;
    return fig_split_begin(&line, piece.first) == segment ? pieces + 1 : pieces;
}

/* What is read once leaves L2 first. */
static __device__ __forceinline__ uint64_t fig_feed_once(void) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

#endif
