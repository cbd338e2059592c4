/* decode_attention.c: runs the first launch of decode_attention on the host: rope and append_kv
 * together, block by block as a GPU does; and decides which launches only store k and v, and which
 * have many tokens.
 *
 * It normalises q and k of a query token and applies RoPE to them in place, then stores k and v in
 * the cache. A block processes some heads of a token. Invariant: the result equals that of rope
 * followed by append_kv, bit for bit. */
#include "kernels/common/decode_attention.h"

#include "kernels/common/angle.h"
#include "kernels/rows/append_kv.h"
#include "kernels/rows/rope.h"
#include "kernels/table/entry.h"
#include "kernels/table/reference_kernels.h"

enum { VECTOR_BYTES = 16, CODES_BYTES = 8 }; /* a vector, and a vector as codes of 8 bits */

void fig_decode_attention_shape(const void *params, fig_launch_shape *shape) {
    const fig_decode_attention_params *p = params;
    const int32_t blocks = fig_heads_blocks(fig_decode_attention_heads(p), p->head_dim, p->dtype);
    *shape = (fig_launch_shape){.grid = {(uint32_t)(p->rows.row_limit * blocks), 1, 1},
                                .block = {FIG_HEADS_THREADS, 1, 1}};
}

void fig_decode_attention_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_decode_attention_params *p = params;
    fig_entry_write(name, "decode_attention", fig_entry_packed(&p->rows));
}

void fig_decode_attention_reference(const void *params, const uint32_t block[3]) {
    const fig_decode_attention_params *p = params;
    const fig_rope_params rope = fig_decode_attention_rope(p);
    const fig_append_kv_params append = fig_decode_attention_append(p);
    const fig_heads_part part =
        fig_heads_part_of(fig_decode_attention_heads(p), p->head_dim, p->dtype, block[0]);
    const int32_t token = part.group;
    fig_rope_turns turns;
    fig_append_kv_place place;
    if (token >= fig_params_rows(&p->rows, p->plan)) return;
    if (!fig_rope_find_turns(&rope, token, &turns)) return;
    const int stands = fig_append_kv_find(&append, token, &place);
    for (int32_t number = part.first; number < part.end; number++) {
        const int32_t k = number - p->q_heads, v = k - p->kv_heads;
        const int64_t q_at = token * p->q_strides.row + number * p->q_strides.head;
        const int64_t k_at = token * p->k_strides.row + k * p->k_strides.head;
        const int64_t v_at = token * p->v_strides.row + v * p->v_strides.head;
        if (k < 0) {
            fig_rope_turn_head(&rope, &turns, p->q_norm, p->q, q_at, p->q, q_at);
        } else if (v < 0) {
            fig_rope_turn_head(&rope, &turns, p->k_norm, p->k, k_at, p->k, k_at);
            if (stands) fig_append_kv_store(&append, &place, 0, k, p->k, k_at);
        } else if (stands) {
            fig_append_kv_store(&append, &place, 1, v, p->v, v_at);
        }
    }
}

/* ---- What vectors demand */

/* Returns 1 if every head of a token begins at a multiple of a vector. */
static int has_vectors(const void *rows, const fig_row_strides *strides, int32_t unit) {
    const uint64_t places = (uint64_t)(uintptr_t)rows | (uint64_t)(strides->row * unit) |
                            (uint64_t)(strides->head * unit);
    return places % VECTOR_BYTES == 0;
}

static int has_places(const void *cache, const fig_cache_strides *strides, int32_t unit,
                      uint64_t bytes) {
    const uint64_t places = (uint64_t)(uintptr_t)cache | (uint64_t)(strides->page * unit) |
                            (uint64_t)(strides->token * unit) | (uint64_t)(strides->head * unit);
    return places % bytes == 0;
}

/* Returns why k, v or the cache cannot be moved in whole vectors, or NULL. */
static const char *refuse_places(const fig_decode_attention_params *p) {
    const int32_t unit = fig_numeric_bytes(p->dtype), kv_unit = fig_numeric_bytes(p->kv_dtype);
    const uint64_t bytes = p->kv_dtype == p->dtype ? VECTOR_BYTES : CODES_BYTES;
    if (p->head_dim * unit % VECTOR_BYTES != 0 || !has_vectors(p->k, &p->k_strides, unit) ||
        !has_vectors(p->v, &p->v_strides, unit))
        return "heads of k and v at multiples of 16 bytes";
    if (!has_places(p->k_cache, &p->k_cache_strides, kv_unit, bytes) ||
        !has_places(p->v_cache, &p->v_cache_strides, kv_unit, bytes))
        return "heads of the cache at multiples of 16 bytes, or of 8 if it has 8-bit codes";
    return NULL;
}

/* ---- The family that only stores */

const char *fig_decode_attention_still_refuses(const void *params, const fig_traits *traits) {
    const fig_decode_attention_params *p = params;
    if (traits->compute_capability != FIG_DECODE_STILL_CAPABILITY) return "compute capability 9.0";
    if (!fig_decode_attention_is_still(p)) return "a node that rotates nothing";
    if (p->norm_epsilon != 0 || p->q_norm != NULL || p->k_norm != NULL)
        return "a node without norms";
    return refuse_places(p);
}

/* A thread stores one vector, so a token has as many blocks as its vectors need. */
void fig_decode_attention_still_shape(const void *params, fig_launch_shape *shape) {
    const fig_decode_attention_params *p = params;
    const int32_t vectors = p->head_dim * fig_numeric_bytes(p->dtype) / VECTOR_BYTES;
    const int32_t parts = fig_size_ceil_div(2 * p->kv_heads * vectors, FIG_DECODE_STILL_THREADS);
    *shape =
        (fig_launch_shape){.grid = {(uint32_t)fig_params_abreast(&p->rows), (uint32_t)parts, 1},
                           .block = {FIG_DECODE_STILL_THREADS, 1, 1}};
}

void fig_decode_attention_still_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    (void)params;
    fig_entry_write(name, "decode_attention", "_still");
}

/* ---- The family for buckets of many query tokens */

const char *fig_decode_attention_long_refuses(const void *params, const fig_traits *traits) {
    const fig_decode_attention_params *p = params;
    const int32_t unit = fig_numeric_bytes(p->dtype), lanes = VECTOR_BYTES / unit;
    if (traits->compute_capability == 0)
        return "a GPU"; /* the reference kernel is the general one */
    if (p->rows.row_limit <= FIG_PARAMS_ABREAST) return "a bucket of more than 512 query tokens";
    if (p->head_dim / 2 % lanes != 0 || fig_decode_attention_rope(p).rope.rotary_dim / 2 % lanes)
        return "pairs in whole vectors";
    if (!has_vectors(p->q, &p->q_strides, unit) ||
        ((uintptr_t)p->q_norm | (uintptr_t)p->k_norm) % VECTOR_BYTES != 0)
        return "heads of q and norms at multiples of 16 bytes";
    return refuse_places(p);
}

void fig_decode_attention_long_shape(const void *params, fig_launch_shape *shape) {
    const fig_decode_attention_params *p = params;
    const int32_t blocks = fig_heads_blocks(fig_decode_attention_heads(p), p->head_dim, p->dtype);
    const int32_t groups = fig_decode_attention_groups(&p->rows);
    *shape = (fig_launch_shape){.grid = {(uint32_t)(groups * blocks), 1, 1},
                                .block = {FIG_HEADS_THREADS, 1, 1}};
}

void fig_decode_attention_long_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    (void)params;
    fig_entry_write(name, "decode_attention", "_long");
}
