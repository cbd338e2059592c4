/* kv_piece.cuh: walks along the split of a worker, piece by piece, for the warps that fill the
 * ring.
 *
 * Owns the plan's data about a worker and its rows, the place of a piece's tokens, and the content
 * of the notes about strips and merges. kv_feed.cuh and kv_copy.cuh move the bytes. Invariant:
 * whole warps call all functions. */
#ifndef FIG_KERNELS_KV_PIECE_CUH
#define FIG_KERNELS_KV_PIECE_CUH

#include "kernels/attention/geometry.h"
#include "kernels/common/cache.h"
#include "kernels/attention/kv_ring.cuh"
#include "kernels/attention/partials.cuh"
#include "kernels/attention/strip.cuh"

/* The teller is the filling warp that makes the ring and writes the ring's notes. */
enum { FIG_FEED_TELLER };

/* Describes the tokens of one of the worker's pieces. */
typedef struct fig_feed_piece {
    fig_split_start start;
    fig_cache_sequence sequence;
    fig_strip_range tokens, seen_by_all;
    int32_t length, kv_head, worker; /* length: as fig_split_full_length() */
    int32_t tiles;                   /* tiles of the piece */
    int32_t before, row_tiles;       /* as in fig_split_piece_of_row */
    /* 1 / tokens of a page, for a division like that of fig_geometry_divide() */
    float page_share;
} fig_feed_piece;

/* Holds the plan's data about a row. */
typedef struct fig_feed_row {
    int32_t length, sequence;
    int32_t prefix, next_prefix;
} fig_feed_row;

/* Holds the addresses of the plan's data about rows. */
typedef struct fig_feed_sections {
    const int32_t *lengths, *sequences, *prefix;
} fig_feed_sections;

/* Holds the results of the first loads from the plan: the worker's start and, in each lane, one of
 * the first rows. */
typedef struct fig_feed_plan {
    fig_split_start start;
    int32_t worker, rows, advanced;
    float page_share; /* as in fig_feed_piece */
    fig_feed_sections sections;
    fig_feed_row of_lane;
#ifdef FIG_PIECES_TAILS
    const fig_plan_tail *tails; /* [rows]; NULL: no row has one */
#endif
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

/* Blocks that share a worker: the blocks of a cluster, for different vectors. */
#ifndef FIG_FEED_BLOCKS
#define FIG_FEED_BLOCKS 1
#endif

/* Returns the number of the block, or of the blocks that share a worker. */
static __device__ __forceinline__ int32_t fig_feed_team(void) {
    return (int32_t)blockIdx.x / FIG_FEED_BLOCKS;
}

/* Returns the block's worker if workers are spread. Of each pair of blocks, one gets a worker from
 * the first half of the workers, the other one from the second half. The parity of the set bits in
 * the block's number decides which, so that no regular pattern of SMs gets only one half. */
static __device__ __forceinline__ int32_t fig_feed_spread(void) {
    const int32_t block = fig_feed_team(), workers = (int32_t)gridDim.x / FIG_FEED_BLOCKS;
    const int32_t is_second = block % 2 != 0 || block + 1 < workers ? __popc(block) % 2 : 0;
    return block / 2 + is_second * ((workers + 1) / 2);
}

/* Returns the number of the block's worker. In a line that is cut by units, neighbouring workers
 * are often alike: workers of a long row read all the time, and workers of short rows wait most of
 * the time. Blocks that begin together could then fill a whole cluster of SMs with readers, whose
 * common port to memory would limit them. So the workers of such a line are spread. In all other
 * lines the workers are alike. */
static __device__ __forceinline__ int32_t fig_feed_number(const fig_attention_params &p) {
    const uint32_t sections = ((const fig_plan_head *)p.plan)->sections;
    const int32_t in_order = p.split.fixed || (p.flags & FIG_ATTENTION_IN_ORDER) != 0;
    return in_order || (sections & FIG_PLAN_BY_UNITS) == 0 ? fig_feed_team() : fig_feed_spread();
}

/* Returns the start of the block's worker. It loads both starts that the worker may have, because
 * the plan's head, which decides between them, arrives no sooner. The count is 0 if the step has no
 * rows, because the bytes after the plan's head then belong to an older plan. */
static __device__ __forceinline__ fig_split_start fig_feed_start(const fig_attention_params &p) {
    const int4 *starts = (const int4 *)(p.plan + p.starts_offset);
    const int4 plain = starts[fig_feed_team()], spread = starts[fig_feed_spread()];
    const int4 words = fig_feed_number(p) == fig_feed_team() ? plain : spread;
    fig_split_start start = {words.x, words.y, words.z, words.w};
    if (((const fig_plan_head *)p.plan)->rows == 0) start.count = 0;
    return start;
}

#ifdef FIG_PIECES_TAILS
/* Returns the tails of rows, or NULL if the plan has none. */
static __device__ __forceinline__ const fig_plan_tail *
fig_feed_tails(const fig_attention_params &p) {
    const uint32_t sections = ((const fig_plan_head *)p.plan)->sections, at = p.slots.tails_offset;
    if (at == 0 || (sections & FIG_PLAN_BY_TAILS) == 0) return NULL;
    return (const fig_plan_tail *)(p.plan + at);
}
#endif

/* Starts the first loads from the plan. All of them are independent, so no load waits for
 * another. */
static __device__ __forceinline__ fig_feed_plan fig_feed_read_plan(const fig_attention_params &p) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const fig_plan_head *head = (const fig_plan_head *)p.plan;
    fig_feed_plan plan;
    plan.page_share = __fdividef(1.0f, (float)p.page_size);
    plan.start = fig_feed_start(p);
    plan.worker = fig_feed_number(p);
    plan.rows = head->rows;
    plan.advanced = head->advanced;
    plan.sections = fig_feed_sections_of(p);
    plan.of_lane = fig_feed_row_at(plan.sections, fig_size_min(lane, p.split.row_limit - 1));
#ifdef FIG_PIECES_TAILS
    plan.tails = fig_feed_tails(p);
#endif
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

/* Returns the result of fig_split_first_tile_token(), without an integer division. */
static __device__ __forceinline__ int32_t fig_feed_origin(const fig_attention_params &p,
                                                          int32_t length) {
    const int32_t first = fig_split_first_token(&p.split, length), tile = p.split.tile_tokens;
    return fig_geometry_divide(first, tile) * tile;
}

/* Returns by how many query tokens a row of a packed program falls short of row_tokens. */
static __device__ __forceinline__ int32_t fig_feed_spare(const fig_attention_params &p,
                                                         int32_t row) {
    if (p.queries_offset == 0) return 0;
    return p.split.row_tokens -
           fig_plan_queries_of(p.plan, p.queries_offset, p.split.row_tokens, row).count;
}

/* Computes the tokens that all of a row's queries see, and the tokens that at least one query sees.
 * Of all windows, the last query's begins last and the first query's ends first. */
static __device__ __forceinline__ void fig_feed_ranges(const fig_attention_params &p,
                                                       int32_t length, int32_t spare,
                                                       fig_strip_range *any, fig_strip_range *all) {
    const int32_t first = length - p.split.row_tokens, last = length - spare - 1;
    const int32_t window = p.split.window;
    any->first = all->first = 0;
    any->end = last + 1;
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
    of.worker = plan.worker;
    const int32_t spare = fig_feed_spare(p, start.row);
    of.length = row.length + spare;
    of.sequence = fig_cache_sequence_of(p.page_table, p.table_stride, row.sequence, p.page_size);
    of.page_share = plan.page_share;
    of.kv_head = start.group * p.heads_per_worker;
    tiles.first = start.tile * p.split.tile_tokens;
    if (p.split.window > 0) tiles.first += fig_feed_origin(p, of.length - plan.advanced);
    of.before = row.prefix;
    of.row_tiles = row.next_prefix - row.prefix;
    of.tiles = fig_split_piece_tiles(&p.split, of.row_tiles, &start);
    tiles.end = tiles.first + of.tiles * p.split.tile_tokens;
    fig_feed_ranges(p, of.length, spare, &any, &of.seen_by_all);
#ifdef FIG_PIECES_TAILS
    if (plan.tails != NULL) {
        const int32_t tail = plan.tails[start.row].first_token, tile = p.split.tile_tokens;
        const int32_t origin = fig_geometry_divide(tail, tile) * tile;
        tiles.first += origin;
        tiles.end += origin;
        any.first = max(any.first, tail);
    }
#endif
    of.tokens = fig_strip_overlap(tiles, any);
    return of;
}

/* On the first call, waits until the preceding launches have written their results, and lets the
 * following launches begin. */
static __device__ __forceinline__ void fig_feed_wait(int32_t *has_waited) {
    if (*has_waited) return;
    fig_block_wait();
    fig_block_trigger();
    *has_waited = 1;
}

/* Describes the place of a token. A token before the piece's first token gets the place of the
 * first. */
typedef struct fig_feed_place {
    int32_t page, token; /* token: its number in the page */
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

/* Returns the line of the split. If there are few rows, a lane has already loaded the length of the
 * line. */
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
    line.starts = NULL;
    return line;
}

/* Moves *start past a piece. */
static __device__ __forceinline__ void fig_feed_pass(const fig_attention_params &p,
                                                     const fig_feed_plan &plan,
                                                     const fig_feed_piece &of,
                                                     fig_split_start *start) {
    const fig_split_line line = fig_feed_line(p, plan);
    if (start->count > of.tiles) {
        fig_split_pass(&p.split, &line, start);
    } else {
        start->count = 0; /* This was the last piece, so there is no next place to look up. */
    }
}

/* Returns the partial of a piece, or -1 if the piece is whole. The result depends only on whether
 * the segment has an earlier piece, that is, whether the worker begins inside the segment. So the
 * function need not compute the piece's neighbours, and avoids the divisions of that
 * computation. */
static __device__ __forceinline__ int32_t fig_feed_partial(const fig_attention_params &p,
                                                           const fig_feed_piece &of) {
    const int32_t number = of.worker, segment = of.before * p.split.groups;
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

/* Returns 1 if some split of this plan is cut by units. A warp calls this function only when it
 * announces a merge, because only merges depend on the result. */
static __device__ __forceinline__ int32_t fig_feed_is_by_units(const fig_attention_params &p) {
    const uint32_t sections = ((const fig_plan_head *)p.plan)->sections;
    return (sections & FIG_PLAN_BY_UNITS) != 0 && !p.split.fixed;
}

/* Finds the workers at both ends of a segment that is cut by units. The result packs three numbers
 * into one word: the low bits hold the worker of the segment's first tile, the next bits the worker
 * of its last tile, and the bits above them 1 if the first worker begins exactly at the first tile.
 * The warp loads all starts in one round trip; each lane has some of them. The first worker is the
 * last one that starts at the segment's beginning or before. The last worker is the last one that
 * starts within the segment or before. Workers without tiles do not count. The function is inlined
 * and returns one word, because a call or three separate results would make ptxas spill
 * registers. */
enum { FIG_FEED_WORKER_BITS = 10 };
static_assert(1 << FIG_FEED_WORKER_BITS >= FIG_WORKER_LIMIT, "three numbers in a word");
static __device__ __forceinline__ int32_t fig_feed_ends(const fig_attention_params &p, int32_t row,
                                                        int32_t group) {
    const int4 *starts = (const int4 *)(p.plan + p.starts_offset);
    int32_t first = 0, last = 0, begins = 0;
    for (int32_t worker = (int32_t)threadIdx.x % FIG_BLOCK_WARP; worker < p.split.workers;
         worker += FIG_BLOCK_WARP) {
        const int4 at = starts[worker]; /* row, group, tile, count */
        const int32_t is_here = at.x == row && at.y == group;
        const int32_t is_before = at.x < row || (at.x == row && at.y < group);
        if (at.w == 0) continue;
        if (is_before || (is_here && at.z == 0)) first = worker;
        if (is_before || is_here) last = worker;
        if (is_here && at.z == 0) begins = 1;
    }
    first = __reduce_max_sync(0xffffffffu, first);
    last = __reduce_max_sync(0xffffffffu, last);
    begins = __any_sync(0xffffffffu, begins) != 0;
    return first | last << FIG_FEED_WORKER_BITS | begins << 2 * FIG_FEED_WORKER_BITS;
}

/* Returns the number of parts of a cut segment's merge, at most the number of vectors of a head.
 * The workers that own the segment's last pieces take one part each. A worker takes at most one
 * part, of the segment to which the worker's first piece belongs. The owner of the segment's first
 * piece therefore takes a part only if its stretch also begins there. */
static __device__ __forceinline__ int32_t fig_feed_parts(const fig_attention_params &p,
                                                         const fig_split_piece &piece,
                                                         int32_t begins) {
    const int32_t pieces = piece.last - piece.first; /* without the first piece */
    const int32_t vectors = fig_geometry_divide(p.q_heads, p.kv_heads) * p.split.row_tokens;
    const int32_t limit = fig_size_min(FIG_PARTIALS_PARTS, vectors);
    if (p.split.fixed || (p.flags & FIG_ATTENTION_APART) != 0) return 1;
    if (pieces >= limit) return limit;
    return begins ? pieces + 1 : pieces;
}

#endif
