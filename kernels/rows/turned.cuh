/* turned.cuh: the heads that decode_attention's first launch normalises, turns and stores.
 *
 * Owns the launch's params in the form of rope and append_kv, the place of a head and of a thread's
 * piece of it, and the way of k and v into the cache. Two kernels share this:
 * decode_attention.cu and decode_attention_long.cu. Invariant: the thread that writes a number has
 * read that number's input before. */
#ifndef FIG_KERNELS_TURNED_CUH
#define FIG_KERNELS_TURNED_CUH

#include "kernels/common/decode_attention.h"
#include "kernels/common/heads.cuh"
#include "kernels/common/store.cuh"

/* Holds the launch's params in the form that the shared code expects. Once the code is inlined, the
 * struct takes no memory. */
typedef struct fig_turned_work {
    fig_rope_params rope;
    fig_append_kv_params append;
    const fig_rope_angles *angles;
    uint32_t is_early;
} fig_turned_work;

/* is_packed: 0 if the program is not packed. If this is a constant, the compiler leaves out what
 * only packed programs need. */
static __device__ __forceinline__ fig_turned_work
fig_turned_work_of(const fig_decode_attention_params *p, int32_t is_packed) {
    fig_turned_work work = {fig_decode_attention_rope(p), fig_decode_attention_append(p),
                            &p->angles, p->early_reads & FIG_EARLY_READS_ON};
    if (!is_packed) work.rope.rows.queries_offset = work.append.rows.queries_offset = 0;
    return work;
}

/* Names the tensor of a head. */
typedef enum fig_turned_side { FIG_TURNED_Q, FIG_TURNED_K, FIG_TURNED_V } fig_turned_side;
typedef struct fig_turned_place {
    const uint8_t *in, *norm; /* norm: NULL for no norm */
    uint8_t *out;             /* the same as `in`; NULL for v, which does not change */
    fig_turned_side side;
    int32_t head; /* number within its tensor */
} fig_turned_place;

static __device__ __forceinline__ fig_turned_place fig_turned_place_of(const fig_turned_work *p,
                                                                       int32_t token,
                                                                       int32_t number,
                                                                       int32_t dtype) {
    const fig_rope_params *rope = &p->rope;
    const int32_t q_heads = rope->q_heads, kv_heads = rope->k_heads;
    fig_turned_place place;
    place.side = number < q_heads              ? FIG_TURNED_Q
                 : number < q_heads + kv_heads ? FIG_TURNED_K
                                               : FIG_TURNED_V;
    place.head = number - (place.side == FIG_TURNED_Q   ? 0
                           : place.side == FIG_TURNED_K ? q_heads
                                                        : q_heads + kv_heads);
    const fig_row_strides strides = place.side == FIG_TURNED_Q   ? rope->q_strides
                                    : place.side == FIG_TURNED_K ? rope->k_strides
                                                                 : p->append.v_strides;
    place.in = (const uint8_t *)(place.side == FIG_TURNED_Q   ? rope->q
                                 : place.side == FIG_TURNED_K ? rope->k
                                                              : p->append.v);
    place.in += (token * strides.row + place.head * strides.head) * fig_numeric_bytes(dtype);
    place.out = place.side == FIG_TURNED_V ? NULL : (uint8_t *)place.in;
    place.norm = (const uint8_t *)(place.side == FIG_TURNED_Q   ? rope->q_norm
                                   : place.side == FIG_TURNED_K ? rope->k_norm
                                                                : NULL);
    return place;
}

/* Returns a piece of a head. A piece of v gets no RoPE. */
static __device__ __forceinline__ fig_heads_piece fig_turned_piece_of(const fig_turned_work *p,
                                                                      fig_turned_side side,
                                                                      int32_t number,
                                                                      int32_t lanes) {
    const fig_rope_terms *rope = &p->rope.rope;
    return fig_heads_piece_of(number, lanes, side == FIG_TURNED_V ? 0 : rope->rotary_dim / 2,
                              rope->interleaved);
}

/* Returns the position of a token. `planned` is the position of the last token of its row according
 * to the plan, loaded together with the rest of the plan. */
static __device__ __forceinline__ int64_t fig_turned_position_of(const fig_rope_params *p,
                                                                 const fig_store_token *token,
                                                                 int32_t planned) {
    int64_t position = max(planned - (token->before_end - 1), 0);
    if (p->positions != NULL) fig_angle_position(p, token->number, &position);
    return position;
}

/* This function is not inlined, because inlined copies would make up most of the kernel's code. */
static __device__ __noinline__ uint2 fig_turned_codes_of(uint4 x, int32_t dtype, int32_t kv_dtype,
                                                         float scale) {
    return fig_store_codes_of(x, dtype, kv_dtype, scale);
}

static __device__ __forceinline__ void fig_turned_store(const fig_append_kv_params *p,
                                                        const fig_store_heads *cache, int32_t head,
                                                        int32_t element, uint4 x) {
    if (p->dtype == p->kv_dtype) {
        fig_store_vector(p, cache, head, element, x);
    } else if (cache->to != NULL) {
        const float scale = fig_cache_scale(cache->scale, cache->scales, head);
        *(uint2 *)(cache->to + head * cache->stride + element) =
            fig_turned_codes_of(x, p->dtype, p->kv_dtype, scale);
    }
}

#endif
