/* attention_family.c: decides which families of attention serve a launch, and which instance each
 * runs.
 *
 * The families, all on tensor cores except the last:
 *     short_turn   a cluster of blocks for each kv head of a short row, with RoPE and append
 *     turn         K and V loaded by the bulk copy engine, with RoPE and append
 *     short        as short_turn, without RoPE and append
 *     many         K and V by the bulk copy engine, for rows of many query tokens, on warpgroups
 *     packed       as bulk, for rows of unequal numbers of query tokens
 *     bulk         as turn, without RoPE and append
 *     copy         K and V loaded by copies of 16 bytes
 *     scalar       everything else
 * Owns the requirements of each family and the shape of its blocks. geometry.h owns the tile
 * geometry of an instance. Invariant: a field that is not bound yet is 0, and no family refuses
 * because of it. */
#include "kernels/table/reference_kernels.h"

#include "kernels/attention/geometry.h"
#include "kernels/attention/many.h"
#include "kernels/common/angle.h"
#include "kernels/table/entry.h"
#include "planner/spec/head_dims.h"

/* A bulk copy moves boxes of 128 bytes of a token, or boxes of 64 bytes if values have 16 bits.
 * Therefore an instance fed by bulk copies exists only where head_dims.h says that a token is a
 * whole number of boxes. */
#define IS_BOXED(wide, codes, short_wide, short_codes, whole, bytes, dims)                         \
    &&(wide) == (2 * (dims) % ((bytes) / 2) == 0) && (codes) == ((dims) % (bytes) == 0)
static_assert(1 FIG_HEAD_DIMS(IS_BOXED, 128), "tokens of whole boxes");

static int32_t value_bytes_of(const fig_attention_params *p) {
    return fig_numeric_bytes(p->kv_dtype);
}

static int32_t column_of(const fig_attention_params *p) {
    return fig_geometry_column(value_bytes_of(p), p->head_dim);
}

static int32_t vectors_of(const fig_attention_params *p) {
    return p->q_heads / p->kv_heads * p->split.row_tokens;
}

static int32_t sets_of(const fig_attention_params *p) {
    return fig_geometry_sets(p->heads_per_worker, vectors_of(p));
}

typedef enum kind { TURN, SHORT_TURN, SHORT, MANY, PACKED, BULK, COPY } kind;

/* Returns the bytes of shared memory of a block: the largest number of slots that fits, the ring's
 * state and the join of the shares. Returns 0 if not even one slot fits. */
static uint32_t shared_bytes_of(const fig_attention_params *p, const fig_traits *traits,
                                kind which) {
    const int32_t sets = sets_of(p), shares = fig_geometry_shares(sets);
    const int32_t turned = which == TURN ? p->split.row_tokens : 0;
    const int32_t slot = 2 * fig_geometry_side_bytes(value_bytes_of(p), p->head_dim, shares,
                                                     p->heads_per_worker, which != COPY);
    const int32_t vectors = fig_size_min(vectors_of(p), FIG_GEOMETRY_VECTORS);
    const int32_t join =
        sets * shares * fig_geometry_share_bytes(p->head_dim, vectors, turned, shares);
    const int32_t room = traits->shared_bytes - FIG_GEOMETRY_STATE_BYTES - join;
    int32_t slots = fig_size_min(room, FIG_GEOMETRY_RING_BYTES) / slot;
    if (slots > FIG_GEOMETRY_SLOT_LIMIT) slots = FIG_GEOMETRY_SLOT_LIMIT;
    return slots > 0 ? (uint32_t)(slots * slot + FIG_GEOMETRY_STATE_BYTES + join) : 0;
}

/* ---- Requirements */

/* Returns 1 if each head begins at a multiple of 4 bytes, that is, of a pair of 16-bit numbers. */
static int has_pairs(const void *rows, const fig_row_strides *strides) {
    return ((uintptr_t)rows | (uint64_t)strides->row * 2 | (uint64_t)strides->head * 2) % 4 == 0;
}

static const char *refuses_tensors(const fig_attention_params *p, const fig_traits *traits,
                                   kind which) {
    if (p->dtype != FIG_F16 && p->dtype != FIG_BF16) return "f16 or bf16";
    if (!fig_head_dims_has(p->head_dim)) return "head_dim " FIG_HEAD_DIMS_ANY_TEXT;
    if (sets_of(p) > FIG_GEOMETRY_WARP_LIMIT)
        return "at most 8 warps, one for each kv head of a worker and 8 vectors of it";
    if (shared_bytes_of(p, traits, which) == 0) return "shared memory for a slot";
    if (!has_pairs(p->q, &p->q_strides)) return "q aligned to 4 bytes";
    return NULL;
}

/* Returns 1 if each token of each head begins at a multiple of 16 bytes. */
static int is_aligned(const void *cache, const fig_cache_strides *strides, int32_t value_bytes) {
    const uint64_t bytes = (uint64_t)value_bytes;
    const uint64_t places = (uint64_t)(uintptr_t)cache | (uint64_t)strides->page * bytes |
                            (uint64_t)strides->token * bytes | (uint64_t)strides->head * bytes;
    return places % 16 == 0;
}

static const char *refuses_places(const fig_attention_params *p) {
    const int32_t bytes = value_bytes_of(p);
    if (is_aligned(p->k_cache, &p->k_cache_strides, bytes) &&
        is_aligned(p->v_cache, &p->v_cache_strides, bytes))
        return NULL;
    return "tokens that begin at multiples of 16 bytes";
}

static const char *refuses_boxes(const fig_attention_params *p) {
    if (p->page_size % FIG_GEOMETRY_TOKENS != 0 && (p->flags & FIG_ATTENTION_DENSE) == 0)
        return "pages of a multiple of 16 tokens";
    return refuses_places(p);
}

const char *fig_attention_family_copy_refuses(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    if (traits->compute_capability < FIG_GEOMETRY_CAPABILITY) return "compute capability 8.0";
    const char *refusal = refuses_tensors(p, traits, COPY);
    return refusal != NULL ? refusal : refuses_places(p);
}

const char *fig_attention_family_bulk_refuses(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    if (traits->compute_capability != FIG_GEOMETRY_CAPABILITY_OF_BULK)
        return "compute capability 9.0";
    const char *refusal = refuses_tensors(p, traits, BULK);
    if (refusal != NULL) return refusal;
    if (fig_geometry_token_bytes(value_bytes_of(p), p->head_dim) % column_of(p) != 0)
        return "tokens of a multiple of 128 bytes, or of 64 if values have 16 bits";
    return refuses_boxes(p);
}

/* Few vectors leave most of a warpgroup's products unused, and then other families are as quick. */
const char *fig_attention_family_many_refuses(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    if ((p->dtype != FIG_F16 && p->dtype != FIG_BF16) || p->kv_dtype != p->dtype)
        return "f16 or bf16, over a cache of the same";
    if (!fig_many_serves(value_bytes_of(p), p->head_dim, vectors_of(p)))
        return "17 to 128 vectors of 64 or 128 dims";
    if (traits->compute_capability != FIG_GEOMETRY_CAPABILITY_OF_BULK ||
        traits->shared_bytes < fig_many_shared_bytes(p->head_dim))
        return "compute capability 9.0";
    if (p->heads_per_worker != 1) return "workers of one kv head";
    if (p->alibi != NULL) return "no ALiBi";
    if (!has_pairs(p->q, &p->q_strides)) return "q aligned to 4 bytes";
    if (!has_pairs(p->out, &p->out_strides)) return "out aligned to 4 bytes";
    return refuses_boxes(p);
}

/* A row of few query tokens leaves most warps of `bulk` without vectors. Only warps of the same kv
 * head can take turns. If the vectors of any row fit one or two sets of warps, there is little to
 * gain, except beside chunks: blocks of `packed` without work exit before those of `bulk`. With a
 * fixed split, the parts of warps may not follow a row's query tokens. */
const char *fig_attention_family_packed_refuses(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    if (!p->is_packed) return "rows of unequal numbers of query tokens";
    if (p->head_dim != 64 && p->head_dim != 128) return "head_dim 64 or 128";
    if (p->kv_dtype == FIG_E5M2) return "no cache of e5m2";
    if (p->split.fixed) return "a split that is not fixed";
    const int is_for_singles = p->is_packed == FIG_ATTENTION_SINGLES;
    if (vectors_of(p) <= FIG_GEOMETRY_VECTORS && !is_for_singles)
        return "more than 8 vectors of a kv head";
    const char *refusal = fig_attention_family_bulk_refuses(params, traits);
    if (refusal != NULL) return refusal;
    const int32_t shares = fig_geometry_shares(sets_of(p)), value_bytes = value_bytes_of(p);
    if (shares > 2 && (value_bytes == 1 || !is_for_singles)) return "more than two sets of warps";
    return shares == 2 && value_bytes == 2 ? "more than four sets of warps" : NULL;
}

/* Returns the number of workers of a row's kv head if all kv heads have the same number, and 0
 * otherwise. */
static int32_t short_blocks(const fig_attention_params *p) {
    const int64_t segments = (int64_t)p->split.row_limit * p->kv_heads;
    if (segments == 0 || p->split.workers % segments != 0) return 0;
    return (int32_t)(p->split.workers / segments);
}

static int32_t short_warps(const fig_attention_params *p) {
    return fig_geometry_short_warps(p->head_dim, p->split.tile_tokens);
}

/* Returns 1 if attention_short.cuh has an instance for such clusters and the machine can run it. */
static int has_clusters(const fig_attention_params *p, const fig_traits *traits) {
    const int32_t blocks = short_blocks(p), warps = short_warps(p);
    if (!fig_geometry_short_holds(blocks, traits->sm_count)) return 0;
    if (blocks == 2 || blocks == 4) return warps == FIG_GEOMETRY_SHORT_WARPS;
    return blocks == FIG_GEOMETRY_SHORT_BLOCKS ||
           (blocks == FIG_GEOMETRY_SHORT_BLOCK_LIMIT && warps == FIG_GEOMETRY_SHORT_LIMIT);
}

/* Checks properties that are known before anything is bound. A split with as many workers as the
 * machine has SMs never counts as short, even if that number would divide into clusters. */
static const char *refuses_rows(const fig_attention_params *p, const fig_traits *traits) {
    const fig_geometry_rows rows = {.dtype = p->dtype,
                                    .kv_dtype = p->kv_dtype,
                                    .head_dim = p->head_dim,
                                    .row_tokens = p->split.row_tokens,
                                    .ratio = p->q_heads / p->kv_heads,
                                    .page_size =
                                        (p->flags & FIG_ATTENTION_DENSE) == 0 ? p->page_size : 0};
    if (traits->compute_capability != FIG_GEOMETRY_CAPABILITY_OF_BULK)
        return "compute capability 9.0";
    if (p->heads_per_worker != 1 || p->split.workers >= traits->sm_count ||
        !has_clusters(p, traits))
        return "2, 4, 8 or 16 workers per kv head, fewer than SMs";
    if (p->split.fixed) return "a split that is not fixed";
    if (p->queries_offset != 0) return "rows of equal numbers of query tokens";
    return fig_geometry_short_refuses(&rows);
}

/* Returns 1 if each vector begins at a multiple of 16 bytes. */
static int has_chunks(const void *rows, const fig_row_strides *strides) {
    return ((uintptr_t)rows | (uint64_t)strides->row * 2 | (uint64_t)strides->head * 2) % 16 == 0;
}

const char *fig_attention_family_short_refuses(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    const char *refusal = refuses_rows(p, traits);
    if (refusal != NULL) return refusal;
    if (!has_chunks(p->q, &p->q_strides)) return "q aligned to 16 bytes";
    return refuses_places(p);
}

/* Checks that one launch of attention can also apply the node's RoPE and append. */
static const char *refuses_turn(const fig_attention_params *p) {
    const fig_attention_turn *turn = &p->turn;
    if (turn->rope.rotary_dim == 0) return "a node with RoPE and append";
    if (p->queries_offset != 0) return "rows of equal numbers of query tokens";
    if (turn->rope.rotary_dim != p->head_dim || turn->rope.interleaved)
        return "RoPE over whole heads, not interleaved";
    if (turn->positions != NULL || turn->cos_sin != NULL)
        return "positions from the plan, and no cos_sin table";
    return NULL;
}

const char *fig_attention_family_short_turn_refuses(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    const fig_attention_turn *turn = &p->turn;
    const char *refusal = refuses_turn(p);
    if (refusal == NULL) refusal = fig_attention_family_short_refuses(params, traits);
    if (refusal != NULL) return refusal;
    if (!has_chunks(turn->k, &turn->k_strides) || !has_chunks(turn->v, &turn->v_strides) ||
        (uintptr_t)turn->q_norm % 4 != 0 || (uintptr_t)turn->k_norm % 4 != 0)
        return "k and v aligned to 16 bytes, norms to 4";
    return NULL;
}

/* A vector to which RoPE applies must fit whole in a warp's registers and shared memory. Each
 * newest token must be in a strip that only one warp reads. Short rows belong to short_turn, even
 * if their tensors are not aligned for it: code that loads kernels before anything is bound relies
 * on this. */
const char *fig_attention_family_turn_refuses(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    const fig_attention_turn *turn = &p->turn;
    const char *refusal = refuses_turn(p);
    if (refusal != NULL) return refusal;
    if (refuses_rows(p, traits) == NULL) return "rows that are not short";
    refusal = fig_attention_family_bulk_refuses(params, traits);
    if (refusal != NULL) return refusal;
    if (vectors_of(p) > FIG_GEOMETRY_VECTORS) return "at most 8 vectors of a kv head";
    if (shared_bytes_of(p, traits, TURN) == 0) return "shared memory for a slot";
    if (!has_pairs(turn->k, &turn->k_strides) || !has_pairs(turn->v, &turn->v_strides) ||
        (uintptr_t)turn->q_norm % 4 != 0 || (uintptr_t)turn->k_norm % 4 != 0)
        return "k, v and norms aligned to 4 bytes";
    return NULL;
}

/* ---- Cuts */

/* The families distinguish two kinds of split. Long rows have as many workers as the machine has
 * places. Short rows have a cluster for each kv head of a row, of 2, 4, 8 or 16 blocks with 4 or 8
 * warps each. refuses_rows() treats every other split as one of these two kinds. */
int fig_attention_family_cut(void *params, const fig_traits *traits, int32_t n) {
    static const int32_t blocks[] = {2, 4, FIG_GEOMETRY_SHORT_BLOCKS,
                                     FIG_GEOMETRY_SHORT_BLOCK_LIMIT};
    static const int32_t warps[] = {FIG_GEOMETRY_SHORT_WARPS, FIG_GEOMETRY_SHORT_LIMIT};
    const int32_t sizes = sizeof blocks / sizeof blocks[0];
    fig_attention_params *p = params;
    fig_split_shape *split = &p->split;
    split->row_limit = 1;
    if (n == 0) split->workers = traits->sm_count > 0 ? traits->sm_count : 1;
    if (n == 0) return 1;
    if (n > sizes * (int32_t)(sizeof warps / sizeof warps[0])) return 0;
    split->workers = p->kv_heads * blocks[(n - 1) % sizes];
    split->tile_tokens = warps[(n - 1) / sizes] * FIG_GEOMETRY_TOKENS;
    return 1;
}

/* ---- Blocks */

static void shape_of(const fig_attention_params *p, int is_bulk, fig_launch_shape *shape) {
    const int32_t sets = sets_of(p);
    const int32_t fillers = is_bulk ? FIG_GEOMETRY_BULK_FILLERS : FIG_GEOMETRY_COPY_FILLERS;
    const int32_t warps = sets * fig_geometry_shares(sets) + fillers;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->split.workers, 1, 1},
                                .block = {(uint32_t)warps * 32, 1, 1}};
}

void fig_attention_family_many_shape(const void *params, fig_launch_shape *shape) {
    const fig_attention_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->split.workers, 1, 1},
                                .block = {(FIG_MANY_READERS + FIG_MANY_FILLERS) * 32, 1, 1}};
}

uint32_t fig_attention_family_many_shared(const void *params, const fig_traits *traits) {
    (void)traits;
    return (uint32_t)fig_many_shared_bytes(((const fig_attention_params *)params)->head_dim);
}

void fig_attention_family_short_shape(const void *params, fig_launch_shape *shape) {
    const fig_attention_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->split.workers, 1, 1},
                                .block = {(uint32_t)short_warps(p) * 32, 1, 1}};
}

/* Returns the bytes that fig_short_shared computes, but at least a third of an SM's shared memory.
 * If a third block of 4 warps fitted on an SM, the GPU would deal the blocks of the next launch
 * unevenly, and a chain of launches would take a tenth longer. */
uint32_t fig_attention_family_short_shared(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    const int32_t stages = fig_geometry_short_stages(value_bytes_of(p)), warps = short_warps(p);
    const int32_t tokens = stages * warps * FIG_GEOMETRY_TOKENS;
    const int32_t weights = warps * (FIG_GEOMETRY_SHORT_ABREAST * 512 + 64);
    const int32_t inbox = p->head_dim * 32 + short_blocks(p) * 64 + 16;
    const int32_t bytes = tokens * 2 * value_bytes_of(p) * p->head_dim + weights + inbox;
    return (uint32_t)(bytes > traits->shared_bytes / 3 ? bytes : traits->shared_bytes / 3);
}

void fig_attention_family_bulk_shape(const void *params, fig_launch_shape *shape) {
    shape_of(params, 1, shape);
}

void fig_attention_family_copy_shape(const void *params, fig_launch_shape *shape) {
    shape_of(params, 0, shape);
}

uint32_t fig_attention_family_turn_shared(const void *params, const fig_traits *traits) {
    return shared_bytes_of(params, traits, TURN);
}

uint32_t fig_attention_family_bulk_shared(const void *params, const fig_traits *traits) {
    return shared_bytes_of(params, traits, BULK);
}

uint32_t fig_attention_family_copy_shared(const void *params, const fig_traits *traits) {
    return shared_bytes_of(params, traits, COPY);
}

static void put_part(fig_entry_name *name, int32_t part) {
    fig_entry_put(name, "_");
    fig_entry_put_number(name, part);
}

static void entry_of(const fig_attention_params *p, kind which, char name[FIG_ENTRY_BYTES]) {
    static const char *const families[] = {
        [TURN] = "turn", [SHORT_TURN] = "short_turn", [SHORT] = "short",
        [MANY] = "many", [PACKED] = "packed",         [BULK] = "bulk",
        [COPY] = "copy"};
    static const char *const dtypes[] = {
        [FIG_F16] = "f16", [FIG_BF16] = "bf16", [FIG_E4M3] = "e4m3", [FIG_E5M2] = "e5m2"};
    fig_entry_name own = {name, name};
    fig_entry_put(&own, "fig_kernel_attention_");
    fig_entry_put(&own, families[which]);
    fig_entry_put(&own, "_");
    fig_entry_put(&own, dtypes[p->kv_dtype]);
    put_part(&own, p->head_dim);
    if (which == SHORT || which == SHORT_TURN) {
        put_part(&own, short_blocks(p));
        put_part(&own, short_warps(p));
    }
    if (which == TURN || which == BULK || which == PACKED)
        put_part(&own, fig_geometry_shares(sets_of(p)));
}

void fig_attention_family_bulk_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    entry_of(params, BULK, name);
}

void fig_attention_family_many_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    entry_of(params, MANY, name);
}

void fig_attention_family_packed_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    entry_of(params, PACKED, name);
}

void fig_attention_family_short_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    entry_of(params, SHORT, name);
}

void fig_attention_family_short_turn_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    entry_of(params, SHORT_TURN, name);
}

void fig_attention_family_turn_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    entry_of(params, TURN, name);
}

/* Sets the mark that the launch applies RoPE and appends. Files do not hold this mark. */
void fig_attention_family_turn_finish(void *params) {
    fig_attention_params *p = params;
    p->turn.is_on = 1;
}

void fig_attention_family_copy_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    entry_of(params, COPY, name);
}

/* The dimensions of the map are {bytes of a token in a column, token, column, head, page}. One
 * box is 16 tokens of all heads that a worker reads at once. Each head has its own columns. */
void fig_attention_family_bulk_map(const void *params, uint32_t item,
                                   fig_tensor_map_recipe *recipe) {
    const fig_attention_params *p = params;
    const int is_v = item == FIG_ATTENTION_V_MAP;
    const fig_cache_strides *strides = is_v ? &p->v_cache_strides : &p->k_cache_strides;
    const uint64_t bytes = (uint64_t)value_bytes_of(p);
    const uint32_t wide = (uint32_t)column_of(p); /* in bytes */
    const uint32_t column = (uint32_t)(wide / bytes), columns = (uint32_t)p->head_dim / column;
    *recipe = (fig_tensor_map_recipe){
        .address = (uint64_t)(uintptr_t)(is_v ? p->v_cache : p->k_cache),
        .dtype = (uint32_t)p->kv_dtype,
        .rank = 5,
        .dims = {column, (uint64_t)p->page_size, columns, (uint64_t)p->kv_heads,
                 (uint64_t)(is_v ? p->v_pages : p->k_pages)},
        .strides_bytes = {bytes, (uint64_t)strides->token * bytes, wide,
                          (uint64_t)strides->head * bytes, (uint64_t)strides->page * bytes},
        .box = {column, FIG_GEOMETRY_TOKENS, columns, (uint32_t)p->heads_per_worker, 1},
        .swizzle_bytes = wide};
}

/* A box is one column of 16 tokens: the columns of a strip lie one behind the other. */
void fig_attention_family_many_map(const void *params, uint32_t item,
                                   fig_tensor_map_recipe *recipe) {
    fig_attention_family_bulk_map(params, item, recipe);
    recipe->box[2] = 1;
}
