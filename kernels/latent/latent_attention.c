/* latent_attention.c: computes split-K attention over a latent cache on the host, block by block as
 * a GPU does, and decides which family serves a launch.
 *
 * out = sum over tokens of 2^(l - m) v / sum of 2^(l - m), where l is the logit in base 2, m the
 * greatest l, and v the first 512 values of the token. One block is one worker of the split. It
 * walks its stretch of the line piece by piece, takes the vectors of the piece's group in chunks
 * and the tokens in strips, all in f32. pieces.c handles the results of pieces.
 *
 * Invariant: a token that a query does not see is skipped, not multiplied by a weight of zero, so
 * any bytes may lie there. */
#include "kernels/table/reference_kernels.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/attention/geometry.h"
#include "kernels/attention/pieces.h"
#include "kernels/common/cache.h"
#include "kernels/common/lanes.h"
#include "kernels/latent/latent.h"
#include "kernels/latent/latent_narrow.h"
#include "kernels/latent/latent_short.h"
#include "kernels/latent/latent_wide.h"
#include "kernels/table/entry.h"
#include "planner/spec/latent_spec.h"

/* A chunk and a strip fit the stack of any thread. */
enum { THREADS = 256, CHUNK = 8, STRIP = 8 };
static_assert(FIG_LATENT_KEY_DIM % FIG_LANES_COUNT == 0, "whole lanes");
static_assert((int)FIG_LATENT_DIM <= (int)FIG_PIECES_DIM_LIMIT, "pieces hold out's dimensions");
static_assert((int)FIG_LATENT_SPEC_HEAD_UNIT == (int)FIG_LATENT_HEAD_UNIT &&
                  (int)FIG_LATENT_SPEC_HEAD_PART == (int)FIG_LATENT_HEAD_PART,
              "the planner bounds the groups");
static_assert((int)FIG_LATENT_SPEC_UNIT_TOKENS * (int)FIG_LATENT_HEAD_UNIT == FIG_LATENT_VECTORS &&
                  (int)FIG_LATENT_SPEC_ROW_TOKENS * (int)FIG_LATENT_HEAD_PART == FIG_LATENT_VECTORS,
              "a unit and a part have at most the vectors of a group");

/* Some of the vectors [query][q head of the group] of one group of one row. */
typedef struct chunk_work {
    fig_cache_sequence sequence;
    fig_plan_queries queries; /* the row's rows of q and out */
    int32_t row, length, group, heads;
    int32_t origin;       /* the token at which tile 0 of the row begins */
    int32_t first, count; /* vectors */
    float q[CHUNK][FIG_LATENT_KEY_DIM];
    float tokens[STRIP][FIG_LATENT_KEY_DIM];
    float values[CHUNK][FIG_LATENT_DIM];
    float greatest[CHUNK], weights[CHUNK];
} chunk_work;

void fig_latent_attention_shape(const void *params, fig_launch_shape *shape) {
    const fig_latent_attention_params *p = params;
    *shape =
        (fig_launch_shape){.grid = {(uint32_t)p->split.workers, 1, 1}, .block = {THREADS, 1, 1}};
}

uint32_t fig_latent_attention_shared(const void *params, const fig_traits *traits) {
    (void)params;
    (void)traits;
    return FIG_LATENT_PLAIN_BYTES;
}

/* ---- The families on warpgroups */

static int is_aligned(const void *array, int64_t a, int64_t b) {
    return ((uint64_t)(uintptr_t)array | (uint64_t)a * 2 | (uint64_t)b * 2) % 16 == 0;
}

/* Returns why no warpgroup kernel over a cache of q's dtype serves, whatever the number of vectors,
 * or NULL. */
static const char *refuses_values(const fig_latent_attention_params *p, const fig_traits *traits) {
    if (traits->compute_capability != FIG_GEOMETRY_CAPABILITY_OF_BULK ||
        traits->shared_bytes < FIG_LATENT_WIDE_BYTES)
        return "compute capability 9.0";
    if (p->dtype != FIG_F16 && p->dtype != FIG_BF16) return "f16 or bf16";
    if (p->kv_dtype != p->dtype) return "a cache of q's dtype";
    if (p->flags & FIG_ATTENTION_DENSE) return "a page table";
    if (p->page_size % FIG_LATENT_WIDE_BOX_LEAST != 0) return "pages of a multiple of 16 tokens";
    if (p->split.fixed || p->split.tile_tokens != FIG_LATENT_WIDE_TILE)
        return "a split that is not fixed, with tiles of 64 tokens";
    if (p->split.workers > traits->sm_count) return "at most one worker per SM";
    if (!is_aligned(p->q, p->q_strides.row, p->q_strides.head) ||
        !is_aligned(p->q_rope, p->q_rope_strides.row, p->q_rope_strides.head) ||
        !is_aligned(p->k_cache, p->k_cache_strides.page, p->k_cache_strides.token) ||
        !is_aligned(p->out, p->out_strides.row, p->out_strides.head))
        return "vectors and tokens that begin at multiples of 16 bytes";
    return NULL;
}

const char *fig_latent_attention_wide_refuses(const void *params, const fig_traits *traits) {
    const fig_latent_attention_params *p = params;
    const char *refusal = refuses_values(p, traits);
    if (refusal != NULL) return refusal;
    return p->q_heads * p->split.row_tokens > FIG_LATENT_WIDE_VECTORS * p->split.groups
               ? "at most 64 vectors of a group"
               : NULL;
}

const char *fig_latent_attention_pair_refuses(const void *params, const fig_traits *traits) {
    const fig_latent_attention_params *p = params;
    const char *refusal = refuses_values(p, traits);
    if (refusal != NULL) return refusal;
    if (p->q_heads * p->split.row_tokens > FIG_LATENT_PAIR_VECTORS * p->split.groups)
        return "at most 128 vectors of a group";
    if (p->q_heads / p->split.groups * p->split.row_tokens % 2 != 0)
        return "an even number of vectors of a group";
    return p->split.workers * 2 > traits->sm_count ? "two SMs per worker" : NULL;
}

void fig_latent_attention_pair_shape(const void *params, fig_launch_shape *shape) {
    const fig_latent_attention_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->split.workers * 2, 1, 1},
                                .block = {FIG_LATENT_WIDE_WARPS * 32, 1, 1}};
}

void fig_latent_attention_pair_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_latent_attention_params *p = params;
    fig_entry_name entry = {name, name};
    fig_entry_put(&entry, "fig_kernel_latent_attention_pair_");
    fig_entry_put(&entry, p->dtype == FIG_BF16 ? "bf16" : "f16");
}

void fig_latent_attention_wide_shape(const void *params, fig_launch_shape *shape) {
    const fig_latent_attention_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->split.workers, 1, 1},
                                .block = {FIG_LATENT_WIDE_WARPS * 32, 1, 1}};
}

uint32_t fig_latent_attention_wide_shared(const void *params, const fig_traits *traits) {
    (void)params;
    (void)traits;
    return FIG_LATENT_WIDE_BYTES;
}

void fig_latent_attention_wide_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_latent_attention_params *p = params;
    fig_entry_name entry = {name, name};
    fig_entry_put(&entry, "fig_kernel_latent_attention_wide_");
    fig_entry_put(&entry, p->dtype == FIG_BF16 ? "bf16" : "f16");
    /* If several groups read the same tokens, products limit the speed, and not memory. */
    if (p->split.groups > 1) fig_entry_put(&entry, "_ahead");
}

const char *fig_latent_attention_narrow_refuses(const void *params, const fig_traits *traits) {
    const fig_latent_attention_params *p = params;
    const char *refusal = fig_latent_attention_wide_refuses(params, traits);
    if (refusal != NULL) return refusal;
    if (traits->shared_bytes < FIG_LATENT_NARROW_BYTES) return "227 KB of shared memory";
    if (p->q_heads * p->split.row_tokens > FIG_LATENT_NARROW_VECTORS * p->split.groups)
        return "at most 32 vectors of a group";
    return NULL;
}

void fig_latent_attention_narrow_shape(const void *params, fig_launch_shape *shape) {
    const fig_latent_attention_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->split.workers, 1, 1},
                                .block = {FIG_LATENT_NARROW_WARPS * 32, 1, 1}};
}

uint32_t fig_latent_attention_narrow_shared(const void *params, const fig_traits *traits) {
    (void)params;
    (void)traits;
    return FIG_LATENT_NARROW_BYTES;
}

/* Returns the number of blocks of a cluster, or 0 if the workers do not divide into clusters. */
static int32_t blocks_of(const fig_latent_attention_params *p) {
    const int32_t segments = p->split.row_limit * p->split.groups;
    if (segments == 0 || p->split.workers % segments != 0) return 0;
    const int32_t blocks = p->split.workers / segments;
    return fig_latent_short_has(blocks) ? blocks : 0;
}

const char *fig_latent_attention_short_refuses(const void *params, const fig_traits *traits) {
    const fig_latent_attention_params *p = params;
    if (!p->is_short) return "a bucket of short rows";
    const int32_t blocks = blocks_of(p);
    if (blocks == 0 || !fig_geometry_short_holds(blocks, traits->sm_count))
        return "2, 4, 8 or 16 workers per group of heads";
    return fig_latent_attention_narrow_refuses(params, traits);
}

/* Puts the dtype and the most vectors of a group. */
static void put_narrow(const fig_latent_attention_params *p, fig_entry_name *entry) {
    const int is_few = p->q_heads * p->split.row_tokens <= FIG_LATENT_NARROW_FEW * p->split.groups;
    fig_entry_put(entry, p->dtype == FIG_BF16 ? "bf16" : "f16");
    fig_entry_put(entry, is_few ? "_16" : "_32");
}

void fig_latent_attention_narrow_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    fig_entry_name entry = {name, name};
    fig_entry_put(&entry, "fig_kernel_latent_attention_narrow_");
    put_narrow(params, &entry);
}

void fig_latent_attention_short_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_latent_attention_params *p = params;
    fig_entry_name entry = {name, name};
    fig_entry_put(&entry, "fig_kernel_latent_attention_short_");
    put_narrow(p, &entry);
    fig_entry_put(&entry, "_");
    fig_entry_put_number(&entry, blocks_of(p));
}

/* Long rows have as many workers as the machine has SMs, or as many pairs of them. Short rows have
 * a cluster of workers for each group of heads. */
int fig_latent_attention_cut(void *params, const fig_traits *traits, int32_t n) {
    static const int32_t blocks[] = {2, 4, 8, FIG_LATENT_SHORT_BLOCKS};
    fig_latent_attention_params *p = params;
    if (n > (int32_t)(sizeof blocks / sizeof blocks[0])) return 0;
    p->split.row_limit = 1;
    p->is_short = n > 0;
    p->split.workers = n > 0 ? p->split.groups * blocks[n - 1] : traits->sm_count;
    if (n == 0 && fig_latent_is_pair(p->q_heads, p->split.row_tokens, p->split.groups))
        p->split.workers /= 2;
    if (p->split.workers < 1) p->split.workers = 1;
    return 1;
}

static int is_codes_aligned(const fig_latent_attention_params *p) {
    const uint64_t strides = (uint64_t)p->k_cache_strides.page | (uint64_t)p->k_cache_strides.token;
    return ((uint64_t)(uintptr_t)p->k_cache | strides) % 16 == 0;
}

const char *fig_latent_attention_codes_refuses(const void *params, const fig_traits *traits) {
    const fig_latent_attention_params *p = params;
    if (traits->compute_capability != FIG_GEOMETRY_CAPABILITY_OF_BULK ||
        traits->shared_bytes < FIG_LATENT_NARROW_BYTES)
        return "compute capability 9.0";
    if (p->dtype != FIG_BF16) return "bf16";
    if (p->kv_dtype != FIG_E4M3) return "a cache of codes";
    if (p->flags & FIG_ATTENTION_DENSE) return "a page table";
    if (p->split.fixed || p->split.tile_tokens != FIG_LATENT_WIDE_TILE)
        return "a split that is not fixed, with tiles of 64 tokens";
    if (p->split.workers > traits->sm_count) return "at most one worker per SM";
    if (p->q_heads * p->split.row_tokens > FIG_LATENT_NARROW_VECTORS * p->split.groups)
        return "at most 32 vectors of a group";
    if (!is_aligned(p->q, p->q_strides.row, p->q_strides.head) ||
        !is_aligned(p->q_rope, p->q_rope_strides.row, p->q_rope_strides.head) ||
        !is_aligned(p->out, p->out_strides.row, p->out_strides.head) || !is_codes_aligned(p))
        return "vectors and tokens that begin at multiples of 16 bytes";
    return NULL;
}

void fig_latent_attention_codes_shape(const void *params, fig_launch_shape *shape) {
    const fig_latent_attention_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->split.workers, 1, 1},
                                .block = {FIG_LATENT_NARROW_CODES_WARPS * 32, 1, 1}};
}

void fig_latent_attention_codes_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    fig_entry_name entry = {name, name};
    fig_entry_put(&entry, "fig_kernel_latent_attention_codes_");
    put_narrow(params, &entry);
}

/* The dimensions of the map are {values of a token, tokens of a page, pages}. */
void fig_latent_attention_wide_map(const void *params, uint32_t item,
                                   fig_tensor_map_recipe *recipe) {
    const fig_latent_attention_params *p = params;
    (void)item;
    *recipe = (fig_tensor_map_recipe){
        .address = (uint64_t)(uintptr_t)p->k_cache,
        .dtype = (uint32_t)p->kv_dtype,
        .rank = 3,
        .dims = {FIG_LATENT_KEY_DIM, (uint64_t)p->page_size, (uint64_t)p->k_pages},
        .strides_bytes = {2, (uint64_t)p->k_cache_strides.token * 2,
                          (uint64_t)p->k_cache_strides.page * 2},
        .box = {FIG_LATENT_WIDE_COLUMN, (uint32_t)fig_latent_wide_box(p->page_size), 1},
        .swizzle_bytes = FIG_LATENT_WIDE_COLUMN * 2};
}

/* ---- Tokens */

static void load_token(const fig_latent_attention_params *p, const chunk_work *work, int32_t token,
                       float *to) {
    int32_t page = fig_cache_page(&work->sequence, token);
    if (page < 0 || page >= p->k_pages) page = 0;
    const int64_t at =
        page * p->k_cache_strides.page + token % p->page_size * p->k_cache_strides.token;
    if (p->kv_dtype != FIG_E4M3) {
        fig_numeric_load_row(to, FIG_LATENT_KEY_DIM, p->k_cache, p->kv_dtype, at);
        return;
    }
    const uint8_t *codes = (const uint8_t *)p->k_cache + at;
    for (int32_t i = 0; i < FIG_LATENT_KEY_DIM; i++)
        to[i] = fig_latent_of_codes(codes, i);
}

static int32_t query_of(const chunk_work *work, int32_t n) {
    return (work->first + n) / work->heads;
}

static int32_t group_head_of(const chunk_work *work, int32_t n) {
    return (work->first + n) % work->heads;
}

static fig_pieces_vector vector_of(const chunk_work *work, int32_t n) {
    return (fig_pieces_vector){.row = (int64_t)work->queries.first + query_of(work, n),
                               .q_head = work->group * work->heads + group_head_of(work, n)};
}

/* Returns the first token that a query sees; the last one is at its position. */
static int32_t first_seen(const fig_latent_attention_params *p, int32_t position) {
    const int32_t low = p->split.window == 0 ? 0 : position + 1 - p->split.window;
    return low > 0 ? low : 0;
}

static int32_t position_of(const chunk_work *work, int32_t query) {
    return work->length - work->queries.count + query;
}

/* Adds tokens [first, first + count) of the strip, which begins with token `begin`, to a vector. */
static void add_tokens(chunk_work *work, int32_t n, int32_t first, int32_t count, float scale) {
    float logits[STRIP], greatest = work->greatest[n];
    for (int32_t t = 0; t < count; t++) {
        logits[t] = fig_lanes_dot(work->q[n], work->tokens[first + t], FIG_LATENT_KEY_DIM) * scale *
                    FIG_NUMERIC_LOG2_E;
        greatest = logits[t] > greatest ? logits[t] : greatest;
    }
    const float shrink = fig_sums_shrink(work->greatest[n], greatest);
    if (shrink != 1) fig_lanes_scale(work->values[n], shrink, FIG_LATENT_DIM);
    work->weights[n] *= shrink;
    work->greatest[n] = greatest;
    for (int32_t t = 0; t < count; t++) {
        const float weight = fig_sums_shrink(logits[t], greatest);
        work->weights[n] += weight;
        fig_lanes_add(work->values[n], work->tokens[first + t], weight, FIG_LATENT_DIM);
    }
}

/* Processes tokens [begin, end), at most a strip; the chunk's first query sees the oldest ones. */
static void see_strip(const fig_latent_attention_params *p, chunk_work *work, int32_t begin,
                      int32_t end) {
    const int32_t oldest = first_seen(p, position_of(work, query_of(work, 0)));
    for (int32_t token = begin > oldest ? begin : oldest; token < end; token++)
        load_token(p, work, token, work->tokens[token - begin]);
    for (int32_t n = 0; n < work->count; n++) {
        const int32_t position = position_of(work, query_of(work, n));
        const int32_t low = first_seen(p, position), first = begin > low ? begin : low;
        const int32_t last = fig_size_min(end, position + 1);
        if (first < last) add_tokens(work, n, first - begin, last - first, p->sm_scale);
    }
}

/* ---- Pieces */

static void load_vectors(const fig_latent_attention_params *p, chunk_work *work) {
    for (int32_t n = 0; n < work->count; n++) {
        const fig_pieces_vector from = vector_of(work, n);
        const int64_t at = from.row * p->q_strides.row + from.q_head * p->q_strides.head;
        const fig_latent_q_rope rope = fig_latent_q_rope_of(p, from.row, from.q_head);
        fig_numeric_load_row(work->q[n], FIG_LATENT_DIM, p->q, p->dtype, at);
        fig_numeric_load_row(work->q[n] + FIG_LATENT_DIM, FIG_LATENT_ROPE_DIM, rope.array, p->dtype,
                             rope.at);
        memset(work->values[n], 0, sizeof work->values[n]);
        work->greatest[n] = -INFINITY;
        work->weights[n] = 0;
    }
}

static void see_piece(const fig_latent_attention_params *p, chunk_work *work,
                      const fig_split_piece *piece) {
    const int32_t tile_tokens = p->split.tile_tokens;
    const int32_t end = fig_size_min(work->origin + piece->tile_end * tile_tokens, work->length);
    load_vectors(p, work);
    for (int32_t token = work->origin + piece->tile * tile_tokens; token < end; token += STRIP)
        see_strip(p, work, token, fig_size_min(token + STRIP, end));
}

/* Writes the results of the chunk to out or to the piece's partial. */
static void leave_piece(const fig_attention_params *of, const fig_split_piece *piece,
                        chunk_work *work) {
    for (int32_t n = 0; n < work->count; n++) {
        fig_sums sums = {work->values[n], work->greatest[n], work->weights[n]};
        if (piece->first == piece->last) {
            fig_pieces_end(of, piece->row, vector_of(work, n), &sums);
            continue;
        }
        const int32_t partial = fig_split_partial(&of->split, piece, piece->number);
        fig_pieces_write_partial(
            of, fig_pieces_partial(of, partial, query_of(work, n), group_head_of(work, n)), &sums);
    }
}

/* Processes a piece. `work` is memory that the worker uses for all its pieces. */
static void do_piece(const fig_latent_attention_params *p, const fig_attention_params *of,
                     const fig_pieces_worker *place, const fig_split_piece *piece,
                     chunk_work *work) {
    work->row = piece->row;
    work->group = piece->group;
    work->length = place->lengths[piece->row];
    work->queries = fig_pieces_queries(of, piece->row);
    work->heads = p->q_heads / p->split.groups;
    const int32_t before =
        fig_plan_length_before((const fig_plan_head *)(const void *)p->plan, work->length);
    work->origin = fig_split_first_tile_token(
        &p->split, fig_split_full_length(&p->split, before, work->queries.count));
    work->sequence = fig_cache_sequence_of(p->page_table, p->table_stride,
                                           place->sequences[piece->row], p->page_size);
    const int32_t vectors = work->heads * work->queries.count;
    for (work->first = 0; work->first < vectors; work->first += CHUNK) {
        work->count = fig_size_min(vectors - work->first, CHUNK);
        see_piece(p, work, piece);
        leave_piece(of, piece, work);
    }
    if (piece->first != piece->last && fig_pieces_is_last(of, piece)) fig_pieces_merge(of, piece);
}

void fig_latent_attention_reference(const void *params, const uint32_t block[3]) {
    const fig_latent_attention_params *p = params;
    assert(p->q_heads % p->split.groups == 0);
    assert(p->split.row_tokens >= 1 && p->split.row_tokens <= FIG_LATENT_SPEC_ROW_TOKENS);
    if (((const fig_plan_head *)p->plan)->rows == 0) return;
    const fig_attention_params of = fig_latent_attention_pieces(p);
    const fig_pieces_worker place = fig_pieces_worker_of(&of, (int32_t)block[0]);
    fig_split_start start = ((const fig_split_start *)(p->plan + p->starts_offset))[place.worker];
    chunk_work work;
    fig_pieces_write_idle_rows(&of, &place);
    while (start.count > 0) {
        const fig_split_piece piece = fig_split_take(&p->split, &place.line, &start);
        do_piece(p, &of, &place, &piece, &work);
    }
}
