/* attention_family.c: which families of attention serve a launch, and as what.
 *
 * short_turn: tensor cores, a cluster of blocks for each kv head of a short row, RoPE and append
 * with it; turn: tensor cores, K and V by the bulk copy engine, RoPE and append with it; short and
 * bulk: as those two, but for what they have with it; copy: tensor cores, K and V by copies of 16
 * bytes; scalar: everything else. Owns what each needs and how its blocks are cut; what an instance
 * is compiled for is form.h's. Invariant: what is not bound yet is 0, and no fault. */
#include "kernels/twins.h"

#include "kernels/angle.h"
#include "kernels/entry.h"
#include "kernels/form.h"

static int32_t value_bytes_of(const fig_attention_params *p) {
    return fig_numeric_bytes(p->kv_dtype);
}

static int32_t vectors_of(const fig_attention_params *p) {
    return p->q_heads / p->kv_heads * p->split.row_tokens;
}

static int32_t sets_of(const fig_attention_params *p) {
    return fig_form_sets(p->heads_per_worker, vectors_of(p));
}

typedef enum kind { TURN, SHORT_TURN, SHORT, BULK, COPY } kind;

/* Slots, the ring's state, and where shares meet, as far as a block of the machine has room; 0:
 * there is no slot. */
static uint32_t shared_bytes_of(const fig_attention_params *p, const fig_traits *traits,
                                kind which) {
    const int32_t sets = sets_of(p), shares = fig_form_shares(sets);
    const int32_t turned = which == TURN ? p->split.row_tokens : 0;
    const int32_t slot = 2 * fig_form_side_bytes(value_bytes_of(p), p->head_dim, shares,
                                                 p->heads_per_worker, which != COPY);
    const int32_t vectors = fig_size_min(vectors_of(p), FIG_FORM_VECTORS);
    const int32_t join = sets * shares * fig_form_share_bytes(p->head_dim, vectors, turned, shares);
    const int32_t room = traits->shared_bytes - FIG_FORM_STATE_BYTES - join;
    int32_t slots = fig_size_min(room, FIG_FORM_RING_BYTES) / slot;
    if (slots > FIG_FORM_SLOT_LIMIT) slots = FIG_FORM_SLOT_LIMIT;
    return slots > 0 ? (uint32_t)(slots * slot + FIG_FORM_STATE_BYTES + join) : 0;
}

/* ---- What they need */

static int is_form(const fig_attention_params *p) {
    switch (p->head_dim) {
    case 64:
    case 80:
    case 96:
    case 128:
    case 256: return 1;
    default: return 0;
    }
}

/* 1: each head begins with a whole pair of numbers of 16 bits. */
static int has_pairs(const void *rows, const fig_row_strides *strides) {
    return ((uintptr_t)rows | (uint64_t)strides->row * 2 | (uint64_t)strides->head * 2) % 4 == 0;
}

static const char *refuses_tensors(const fig_attention_params *p, const fig_traits *traits,
                                   kind which) {
    if (p->dtype != FIG_F16 && p->dtype != FIG_BF16) return "f16 or bf16";
    if (!is_form(p)) return "head_dim 64, 80, 96, 128 or 256";
    if (sets_of(p) > FIG_FORM_WARP_LIMIT)
        return "at most 8 warps, one for each kv head of a worker and 8 vectors of it";
    if (shared_bytes_of(p, traits, which) == 0) return "a slot in shared memory";
    if (!has_pairs(p->q, &p->q_strides)) return "q in whole pairs";
    return NULL;
}

/* 1: each token of each head begins at 16 bytes. */
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

const char *fig_attention_family_copy_refuses(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    if (traits->compute_capability < FIG_FORM_CAPABILITY) return "compute capability 8.0";
    const char *refusal = refuses_tensors(p, traits, COPY);
    return refusal != NULL ? refusal : refuses_places(p);
}

const char *fig_attention_family_bulk_refuses(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    if (traits->compute_capability != FIG_FORM_CAPABILITY_OF_BULK) return "compute capability 9.0";
    const char *refusal = refuses_tensors(p, traits, BULK);
    if (refusal != NULL) return refusal;
    if (fig_form_token_bytes(value_bytes_of(p), p->head_dim) % 128 != 0)
        return "tokens of whole 128 bytes";
    if (p->page_size % FIG_FORM_TOKENS != 0 && (p->flags & FIG_ATTENTION_DENSE) == 0)
        return "pages of whole 16 tokens";
    return refuses_places(p);
}

/* Workers of a kv head of a row, where each has as many; else 0. */
static int32_t short_blocks(const fig_attention_params *p) {
    const int64_t segments = (int64_t)p->split.row_limit * p->kv_heads;
    if (segments == 0 || p->split.workers % segments != 0) return 0;
    return (int32_t)(p->split.workers / segments);
}

static int32_t short_warps(const fig_attention_params *p) {
    return fig_form_short_warps(p->head_dim, p->split.tile_tokens);
}

/* Of what is known before anything is bound. As many workers as the machine has places are no short
 * rows', whatever they are a multiple of. */
static const char *refuses_rows(const fig_attention_params *p, const fig_traits *traits) {
    const fig_form_rows rows = {.dtype = p->dtype,
                                .kv_dtype = p->kv_dtype,
                                .head_dim = p->head_dim,
                                .row_tokens = p->split.row_tokens,
                                .ratio = p->q_heads / p->kv_heads,
                                .page_size =
                                    (p->flags & FIG_ATTENTION_DENSE) == 0 ? p->page_size : 0};
    const int32_t blocks = short_blocks(p);
    if (traits->compute_capability != FIG_FORM_CAPABILITY_OF_BULK) return "compute capability 9.0";
    if (p->heads_per_worker != 1 || p->split.workers >= traits->sm_count ||
        (blocks != 8 && (short_warps(p) != FIG_FORM_SHORT_WARPS || (blocks != 2 && blocks != 4))))
        return "2, 4 or 8 workers to a row's kv head, fewer than SMs";
    if (p->split.fixed) return "a split of its own";
    return fig_form_short_refuses(&rows);
}

/* 1: each vector begins at 16 bytes. */
static int has_chunks(const void *rows, const fig_row_strides *strides) {
    return ((uintptr_t)rows | (uint64_t)strides->row * 2 | (uint64_t)strides->head * 2) % 16 == 0;
}

const char *fig_attention_family_short_refuses(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    const char *refusal = refuses_rows(p, traits);
    if (refusal != NULL) return refusal;
    if (!has_chunks(p->q, &p->q_strides)) return "q in whole 16 bytes";
    return refuses_places(p);
}

/* What attention can turn and append by itself. */
static const char *refuses_turn(const fig_attention_params *p) {
    const fig_attention_turn *turn = &p->turn;
    if (turn->rope.rotary_dim == 0) return "a node that turns and appends, too";
    if (turn->rope.rotary_dim != p->head_dim || turn->rope.interleaved)
        return "heads that turn whole, halves by halves";
    if (turn->positions != NULL || turn->cos_sin != NULL)
        return "positions of the plan's, computed";
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
        return "k and v in whole 16 bytes, norms in whole pairs";
    return NULL;
}

/* What turns is whole in a warp's registers and shared memory, and each newest token is in a strip
 * of one reader. Short rows are others', wherever their tensors lie: whoever loads kernels before
 * anything is bound has to know that. */
const char *fig_attention_family_turn_refuses(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    const fig_attention_turn *turn = &p->turn;
    const char *refusal = refuses_turn(p);
    if (refusal != NULL) return refusal;
    if (refuses_rows(p, traits) == NULL) return "rows that are not short";
    refusal = fig_attention_family_bulk_refuses(params, traits);
    if (refusal != NULL) return refusal;
    if (vectors_of(p) > FIG_FORM_VECTORS) return "at most 8 vectors of a kv head";
    if (shared_bytes_of(p, traits, TURN) == 0) return "a slot in shared memory";
    if (!has_pairs(turn->k, &turn->k_strides) || !has_pairs(turn->v, &turn->v_strides) ||
        (uintptr_t)turn->q_norm % 4 != 0 || (uintptr_t)turn->k_norm % 4 != 0)
        return "k, v and norms in whole pairs";
    return NULL;
}

/* ---- Blocks */

static void shape_of(const fig_attention_params *p, int is_bulk, fig_launch_shape *shape) {
    const int32_t sets = sets_of(p);
    const int32_t fillers = is_bulk ? FIG_FORM_BULK_FILLERS : FIG_FORM_COPY_FILLERS;
    const int32_t warps = sets * fig_form_shares(sets) + fillers;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->split.workers, 1, 1},
                                .block = {(uint32_t)warps * 32, 1, 1}};
}

void fig_attention_family_short_shape(const void *params, fig_launch_shape *shape) {
    const fig_attention_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->split.workers, 1, 1},
                                .block = {(uint32_t)short_warps(p) * 32, 1, 1}};
}

/* As fig_short_shared has it, but no less than a third of an SM's: where a third block of 4 warps
 * fits, the blocks of the next launch are dealt unevenly, and a chain takes a tenth longer. */
uint32_t fig_attention_family_short_shared(const void *params, const fig_traits *traits) {
    const fig_attention_params *p = params;
    const int32_t stages = fig_form_short_stages(value_bytes_of(p)), warps = short_warps(p);
    const int32_t tokens = stages * warps * FIG_FORM_TOKENS;
    const int32_t weights = warps * (FIG_FORM_SHORT_ABREAST * 512 + 64);
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
    static const char *const families[] = {[TURN] = "turn",
                                           [SHORT_TURN] = "short_turn",
                                           [SHORT] = "short",
                                           [BULK] = "bulk",
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
    if (which == TURN || which == BULK) put_part(&own, fig_form_shares(sets_of(p)));
}

void fig_attention_family_bulk_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    entry_of(params, BULK, name);
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

/* What no file holds. */
void fig_attention_family_turn_finish(void *params) {
    fig_attention_params *p = params;
    p->turn.is_on = 1;
}

void fig_attention_family_copy_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    entry_of(params, COPY, name);
}

/* {128 bytes of a token, token, which 128 bytes, head, page}: one box is 16 tokens of all heads
 * that a worker reads at once, each in columns of its own. */
void fig_attention_family_bulk_map(const void *params, uint32_t item,
                                   fig_tensor_map_recipe *recipe) {
    const fig_attention_params *p = params;
    const int is_v = item == FIG_ATTENTION_V_MAP;
    const fig_cache_strides *strides = is_v ? &p->v_cache_strides : &p->k_cache_strides;
    const uint64_t bytes = (uint64_t)value_bytes_of(p);
    const uint32_t column = (uint32_t)(128 / bytes), columns = (uint32_t)p->head_dim / column;
    *recipe = (fig_tensor_map_recipe){
        .address = (uint64_t)(uintptr_t)(is_v ? p->v_cache : p->k_cache),
        .dtype = (uint32_t)p->kv_dtype,
        .rank = 5,
        .dims = {column, (uint64_t)p->page_size, columns, (uint64_t)p->kv_heads,
                 (uint64_t)(is_v ? p->v_pages : p->k_pages)},
        .strides_bytes = {bytes, (uint64_t)strides->token * bytes, 128,
                          (uint64_t)strides->head * bytes, (uint64_t)strides->page * bytes},
        .box = {column, FIG_FORM_TOKENS, columns, (uint32_t)p->heads_per_worker, 1},
        .swizzle_bytes = 128};
}
