/* decode_attention.cu: runs the first launch of decode_attention on a GPU: rope and append_kv
 * together.
 *
 * It normalises q and k of a query token and applies RoPE to them in place, then stores k and v in
 * the cache. The results equal those of rope.cu and store.cuh, bit for bit. A block processes some
 * heads of one token; heads.h deals the heads of q, k and v. The loads of the block's pieces and of
 * the page number are in flight while the block computes the angles that all its heads share.
 * Invariant: the thread that writes a number has read that number's input before. */
#include "kernels/rows/turned.cuh"

/* Returns 1 if each vector of each head begins at a multiple of its size, both here and in the
 * cache, and no RoPE pair is split between two vectors. */
static __device__ __forceinline__ int32_t has_vectors(const fig_turned_work *p, int32_t token,
                                                      int32_t dtype) {
    const fig_rope_params *rope = &p->rope;
    const int32_t lanes = fig_vector_lanes(dtype);
    const int64_t apart = rope->q_strides.head | rope->k_strides.head | p->append.v_strides.head;
    uintptr_t places = (uintptr_t)rope->q_norm | (uintptr_t)rope->k_norm;
#pragma unroll
    for (int32_t i = 0; i < 3; i++) {
        const int32_t number = i == 0 ? 0 : rope->q_heads + (i - 1) * rope->k_heads;
        places |= (uintptr_t)fig_turned_place_of(p, token, number, dtype).in;
    }
    return places % FIG_VECTOR_BYTES == 0 && apart % lanes == 0 &&
           rope->head_dim / 2 % lanes == 0 && rope->rope.rotary_dim / 2 % lanes == 0 &&
           fig_store_takes_vectors(&p->append);
}

static __device__ __forceinline__ void do_vectors(const fig_turned_work *p,
                                                  const fig_heads_part *part, int32_t dtype,
                                                  fig_heads_turns *turns) {
    const fig_rope_params *rope = &p->rope;
    const int32_t bytes = fig_numeric_bytes(dtype);
    const int32_t sharers = fig_heads_sharers(rope->head_dim, dtype);
    const int32_t number = part->first + (int32_t)threadIdx.x / sharers;
    const fig_turned_place head = fig_turned_place_of(p, part->group, number, dtype);
    const fig_heads_piece piece =
        fig_turned_piece_of(p, head.side, (int32_t)threadIdx.x % sharers, fig_vector_lanes(dtype));
    const int32_t is_there = number < part->end && piece.first < rope->head_dim;
    fig_store_token token = fig_store_token_of(&p->append, part->group);
    const fig_heads_codes weights =
        fig_heads_fetch(head.norm, &piece, dtype, is_there && head.norm != NULL);
    const double frequency = fig_heads_frequency(rope, &p->angles->table, (int32_t)threadIdx.x);
    if (is_there) fig_block_prefetch(head.in + piece.first * bytes);
    const fig_store_side side = fig_store_side_of(&p->append, head.side == FIG_TURNED_V);
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
    fig_heads_make_turn(rope, (int32_t)threadIdx.x, fig_turned_position_of(rope, &token, planned),
                        frequency, turns);
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
    if (head.side == FIG_TURNED_Q) return;
    fig_turned_store(&p->append, &cache, head.head, piece.first, codes.of[0]);
    fig_turned_store(&p->append, &cache, head.head, piece.second, codes.of[1]);
}

/* Assigns each head to one warp. */
static __device__ __forceinline__ void do_numbers(const fig_turned_work *p,
                                                  const fig_heads_part *part, int32_t dtype,
                                                  fig_heads_turns *turns) {
    const fig_rope_params *rope = &p->rope;
    const int32_t warp = (int32_t)threadIdx.x / FIG_HEADS_WARP;
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
        const fig_turned_place head = fig_turned_place_of(p, part->group, number, dtype);
        const fig_store_side side = fig_store_side_of(&p->append, head.side == FIG_TURNED_V);
        const fig_store_heads cache = fig_store_in(&side, &place);
        float factor = 1;
        if (head.norm != NULL)
            factor = fig_heads_factor_of(head.in, rope->head_dim, rope->norm_epsilon, dtype);
#pragma unroll 1
        for (int32_t i = (int32_t)threadIdx.x % FIG_HEADS_WARP; i < rope->head_dim / 2;
             i += FIG_HEADS_WARP) {
            const fig_heads_piece piece = fig_turned_piece_of(p, head.side, i, 1);
            uint32_t codes[2];
            fig_heads_change_pair(&piece, head.in, head.norm, turns, factor, dtype, codes);
#pragma unroll
            for (int32_t j = 0; j < 2; j++) {
                const int32_t element = j == 0 ? piece.first : piece.second;
                if (head.out != NULL) fig_heads_put_code(head.out, dtype, element, codes[j]);
                if (head.side == FIG_TURNED_Q) continue;
                fig_store_element(&p->append, &cache, head.head, element, codes[j]);
            }
        }
    }
}

static __device__ __forceinline__ void do_heads(const fig_turned_work *p, int32_t dtype,
                                                fig_heads_turns *turns) {
    const fig_rope_params *rope = &p->rope;
    const fig_heads_part part =
        fig_heads_part_of(rope->q_heads + 2 * rope->k_heads, rope->head_dim, dtype, blockIdx.x);
    if (has_vectors(p, part.group, dtype)) {
        do_vectors(p, &part, dtype, turns);
    } else {
        do_numbers(p, &part, dtype, turns);
    }
}

/* The code for packed programs would cost others a tenth of the time, so each has an entry. */
#define ENTRY(name, is_packed)                                                                     \
    extern "C" __global__ void __launch_bounds__(FIG_HEADS_THREADS, 1)                             \
        fig_kernel_##name(const __grid_constant__ fig_decode_attention_params p) {                 \
        __shared__ __align__(16) fig_heads_turns turns;                                            \
        const fig_turned_work all = fig_turned_work_of(&p, is_packed);                             \
        switch (p.dtype) {                                                                         \
        case FIG_F16: do_heads(&all, FIG_F16, &turns); break;                                      \
        case FIG_BF16: do_heads(&all, FIG_BF16, &turns); break;                                    \
        default: do_heads(&all, FIG_F32, &turns); break;                                           \
        }                                                                                          \
    }
ENTRY(decode_attention, 0)
ENTRY(decode_attention_packed, 1)
