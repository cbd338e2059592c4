/* decode_attention.cu: runs the first launch of decode_attention on a GPU: rope and append_kv
 * together.
 *
 * It normalises q and k of a query token and applies RoPE to them in place, then stores k and v in
 * the cache. The results equal those of rope.cu and store.cuh, bit for bit. A block processes some
 * heads of one token, or of several tokens in turn (fig_params_abreast()); heads.h deals the heads
 * of q, k and v. The loads of the block's pieces and of the page number are in flight while the
 * block computes the angles that all its heads share.
 * Invariant: the thread that writes a number has read that number's input before. */
#include "kernels/common/decode_attention.h"
#include "kernels/common/heads.cuh"
#include "kernels/common/store.cuh"

/* Holds the launch's params in the form that the shared code expects. Once the code is inlined, the
 * struct takes no memory. */
typedef struct work {
    fig_rope_params rope;
    fig_append_kv_params append;
    const fig_rope_angles *angles;
    uint32_t is_early;
} work;

/* Names the tensor of a head. */
typedef enum side { Q, K, V } side;
typedef struct head_place {
    const uint8_t *in, *norm; /* norm: NULL for no norm */
    uint8_t *out;             /* the same as `in`; NULL for v, which does not change */
    side side;
    int32_t head; /* number within its tensor */
} head_place;

static __device__ __forceinline__ head_place place_of(const work *p, int32_t token, int32_t number,
                                                      int32_t dtype) {
    const fig_rope_params *rope = &p->rope;
    const int32_t q_heads = rope->q_heads, kv_heads = rope->k_heads;
    head_place place;
    place.side = number < q_heads ? Q : number < q_heads + kv_heads ? K : V;
    place.head = number - (place.side == Q ? 0 : place.side == K ? q_heads : q_heads + kv_heads);
    const fig_row_strides strides = place.side == Q   ? rope->q_strides
                                    : place.side == K ? rope->k_strides
                                                      : p->append.v_strides;
    place.in = (const uint8_t *)(place.side == Q   ? rope->q
                                 : place.side == K ? rope->k
                                                   : p->append.v);
    place.in += (token * strides.row + place.head * strides.head) * fig_numeric_bytes(dtype);
    place.out = place.side == V ? NULL : (uint8_t *)place.in;
    place.norm = (const uint8_t *)(place.side == Q   ? rope->q_norm
                                   : place.side == K ? rope->k_norm
                                                     : NULL);
    return place;
}

/* Returns a piece of a head. A piece of v gets no RoPE. */
static __device__ __forceinline__ fig_heads_piece piece_of(const work *p, side side, int32_t number,
                                                           int32_t lanes) {
    const fig_rope_terms *rope = &p->rope.rope;
    return fig_heads_piece_of(number, lanes, side == V ? 0 : rope->rotary_dim / 2,
                              rope->interleaved);
}

/* Returns 1 if each vector of each head begins at a multiple of its size, both here and in the
 * cache, and no RoPE pair is split between two vectors. */
static __device__ __forceinline__ int32_t has_vectors(const work *p, int32_t token, int32_t dtype) {
    const fig_rope_params *rope = &p->rope;
    const int32_t lanes = fig_vector_lanes(dtype);
    const int64_t apart = rope->q_strides.head | rope->k_strides.head | p->append.v_strides.head;
    uintptr_t places = (uintptr_t)rope->q_norm | (uintptr_t)rope->k_norm;
#pragma unroll
    for (int32_t i = 0; i < 3; i++) {
        const int32_t number = i == 0 ? 0 : rope->q_heads + (i - 1) * rope->k_heads;
        places |= (uintptr_t)place_of(p, token, number, dtype).in;
    }
    return places % FIG_VECTOR_BYTES == 0 && apart % lanes == 0 &&
           rope->head_dim / 2 % lanes == 0 && rope->rope.rotary_dim / 2 % lanes == 0 &&
           fig_store_takes_vectors(&p->append);
}

/* Returns the position of a token. `planned` is the position of the last token of its row according
 * to the plan, loaded together with the rest of the plan. */
static __device__ __forceinline__ int64_t position_of(const fig_rope_params *p,
                                                      const fig_store_token *token,
                                                      int32_t planned) {
    int64_t position = max(planned - (token->before_end - 1), 0);
    if (p->positions != NULL) fig_angle_position(p, token->number, &position);
    return position;
}

/* This function is not inlined, because inlined copies would make up most of the kernel's code. */
static __device__ __noinline__ uint2 codes_of(uint4 x, int32_t dtype, int32_t kv_dtype,
                                              float scale) {
    return fig_store_codes_of(x, dtype, kv_dtype, scale);
}

static __device__ __forceinline__ void store(const fig_append_kv_params *p,
                                             const fig_store_heads *cache, int32_t head,
                                             int32_t element, uint4 x) {
    if (p->dtype == p->kv_dtype) {
        fig_store_vector(p, cache, head, element, x);
    } else if (cache->to != NULL) {
        const float scale = fig_cache_scale(cache->scale, cache->scales, head);
        *(uint2 *)(cache->to + head * cache->stride + element) =
            codes_of(x, p->dtype, p->kv_dtype, scale);
    }
}

/* Returns x, but lets the compiler believe that it is another number in each iteration of a loop.
 * Otherwise what follows from x is computed before the loop and takes half of the registers. */
static __device__ __forceinline__ int32_t afresh(int32_t x) {
    asm volatile("" : "+r"(x));
    return x;
}

static __device__ __forceinline__ void do_vectors(const work *p, const fig_heads_part *part,
                                                  int32_t dtype, fig_heads_turns *turns) {
    const fig_rope_params *rope = &p->rope;
    const int32_t bytes = fig_numeric_bytes(dtype), thread = afresh((int32_t)threadIdx.x);
    const int32_t sharers = fig_heads_sharers(rope->head_dim, dtype);
    const int32_t number = part->first + thread / sharers;
    const head_place head = place_of(p, part->group, number, dtype);
    const fig_heads_piece piece = piece_of(p, head.side, thread % sharers, fig_vector_lanes(dtype));
    const int32_t is_there = number < part->end && piece.first < rope->head_dim;
    fig_store_token token = fig_store_token_of(&p->append, part->group);
    const fig_heads_codes weights =
        fig_heads_fetch(head.norm, &piece, dtype, is_there && head.norm != NULL);
    const double frequency = fig_heads_frequency(rope, &p->angles->table, thread);
    if (is_there) fig_block_prefetch(head.in + piece.first * bytes);
    const fig_store_side side = fig_store_side_of(&p->append, head.side == V);
    const int32_t *last = (const int32_t *)(rope->plan + rope->positions_offset);
    last += token.row;
    fig_store_prefetch(&p->append, last);
    fig_block_enter(p->is_early);
    fig_heads_codes codes = fig_heads_fetch(head.in, &piece, dtype, is_there);
    fig_store_locate(&p->append, &token);
    if (rope->rows.queries_offset != 0) last += token.row;
    const int32_t planned = fig_store_fetch(&p->append, last);
    const fig_store_words words = fig_store_read(&p->append, &token);
    const fig_store_place place = fig_store_find(&p->append, &token, &words);
    fig_heads_make_turn(rope, thread, position_of(rope, &token, planned), frequency, turns);
    __syncthreads();
    if (part->group >= words.rows) return;
    const fig_store_heads cache = fig_store_in(&side, &place);
    float factor = 1;
    if (rope->q_norm != NULL)
        factor = fig_heads_factor(fig_norm_squares(codes.of[0], dtype) +
                                      fig_norm_squares(codes.of[1], dtype),
                                  sharers, rope->head_dim, rope->norm_epsilon);
    if (!is_there) return;
    fig_heads_change(rope, &piece, turns, &weights, head.norm != NULL, factor, dtype, &codes);
    if (head.out != NULL) {
        *(uint4 *)(head.out + piece.first * bytes) = codes.of[0];
        *(uint4 *)(head.out + piece.second * bytes) = codes.of[1];
    }
    if (head.side == Q) return;
    store(&p->append, &cache, head.head, piece.first, codes.of[0]);
    store(&p->append, &cache, head.head, piece.second, codes.of[1]);
}

/* Assigns each head to one warp. */
static __device__ __forceinline__ void do_numbers(const work *p, const fig_heads_part *part,
                                                  int32_t dtype, fig_heads_turns *turns) {
    const fig_rope_params *rope = &p->rope;
    const int32_t warp = afresh((int32_t)threadIdx.x) / FIG_HEADS_WARP;
    fig_store_token token = fig_store_token_of(&p->append, part->group);
    const double frequency = fig_heads_frequency(rope, &p->angles->table, (int32_t)threadIdx.x);
    fig_block_enter(p->is_early);
    fig_store_locate(&p->append, &token);
    const fig_store_words words = fig_store_read(&p->append, &token);
    if (part->group >= words.rows) return;
    const fig_store_place place = fig_store_find(&p->append, &token, &words);
    int64_t position;
    fig_angle_position(rope, part->group, &position);
    fig_heads_make_turn(rope, (int32_t)threadIdx.x, position, frequency, turns);
    __syncthreads();
#pragma unroll 1
    for (int32_t number = part->first + warp; number < part->end;
         number += FIG_HEADS_THREADS / FIG_HEADS_WARP) {
        const head_place head = place_of(p, part->group, number, dtype);
        const fig_store_side side = fig_store_side_of(&p->append, head.side == V);
        const fig_store_heads cache = fig_store_in(&side, &place);
        float factor = 1;
        if (head.norm != NULL)
            factor = fig_heads_factor_of(head.in, rope->head_dim, rope->norm_epsilon, dtype);
#pragma unroll 1
        for (int32_t i = (int32_t)threadIdx.x % FIG_HEADS_WARP; i < rope->head_dim / 2;
             i += FIG_HEADS_WARP) {
            const fig_heads_piece piece = piece_of(p, head.side, i, 1);
            uint32_t codes[2];
            fig_heads_change_pair(&piece, head.in, head.norm, turns, factor, dtype, codes);
#pragma unroll
            for (int32_t j = 0; j < 2; j++) {
                const int32_t element = j == 0 ? piece.first : piece.second;
                if (head.out != NULL) fig_heads_put_code(head.out, dtype, element, codes[j]);
                if (head.side == Q) continue;
                fig_store_element(&p->append, &cache, head.head, element, codes[j]);
            }
        }
    }
}

/* Returns 1 if the step has token number `group`. All threads have finished the token before. */
static __device__ __forceinline__ int32_t goes_on(const fig_rope_params *p, int32_t group) {
    __syncthreads();
    return group < fig_params_rows(&p->rows, p->plan);
}

template <int32_t IS_LONG>
static __device__ __forceinline__ void do_heads(const work *p, int32_t dtype,
                                                fig_heads_turns *turns) {
    const fig_rope_params *rope = &p->rope;
    const int32_t abreast = fig_params_abreast(&rope->rows);
    fig_heads_part part =
        fig_heads_part_of(rope->q_heads + 2 * rope->k_heads, rope->head_dim, dtype, blockIdx.x);
    if (has_vectors(p, part.group, dtype)) {
#pragma unroll 1
        do {
            do_vectors(p, &part, dtype, turns);
            part.group += abreast;
        } while (IS_LONG && goes_on(rope, part.group));
    } else {
#pragma unroll 1
        do {
            do_numbers(p, &part, dtype, turns);
            part.group += abreast;
        } while (IS_LONG && goes_on(rope, part.group));
    }
}

#define ENTRY(name, is_long, blocks)                                                               \
    extern "C" __global__ void __launch_bounds__(FIG_HEADS_THREADS, blocks)                        \
        fig_kernel_##name(const __grid_constant__ fig_decode_attention_params p) {                 \
        __shared__ __align__(16) fig_heads_turns turns;                                            \
        const work all = {fig_decode_attention_rope(&p), fig_decode_attention_append(&p),          \
                          &p.angles, p.early_reads & FIG_EARLY_READS_ON};                          \
        switch (p.dtype) {                                                                         \
        case FIG_F16: do_heads<is_long>(&all, FIG_F16, &turns); break;                             \
        case FIG_BF16: do_heads<is_long>(&all, FIG_BF16, &turns); break;                           \
        default: do_heads<is_long>(&all, FIG_F32, &turns); break;                                  \
        }                                                                                          \
    }
ENTRY(decode_attention, 0, 1)
ENTRY(decode_attention_long, 1, 5)
