/* rope.cu: rope on a GPU.
 *
 * Turns each pair (x, y) among the first rotary_dim values of a head by angle(position, i), as
 * figraph.h defines it: x cos - y sin, y cos + x sin. The angle is a double, since at position 1M
 * f32 errs by 0.02; its sine and cosine, the turn, and the RMSNorm of the whole head that may come
 * before it are f32, rounded to the dtype once, at the end.
 *
 * A block does some heads of one token, as heads.h deals them. Its pieces are on their way while it
 * asks where the token stands and makes the turns, which all its heads share; frequencies and the
 * weights of a norm, which no kernel writes, are there before the launch before has ended.
 * Invariant: both numbers of a pair are read by the thread that writes them, and before, so out may
 * be in; what neither turns nor is normalised keeps its bits. */
#include "kernels/block.cuh"
#include "kernels/heads.cuh"

/* A head of q or, behind q's, of k. */
typedef struct head_place {
    const uint8_t *in, *norm; /* norm: NULL: none */
    uint8_t *out;
} head_place;

static __device__ __forceinline__ head_place place_of(const fig_rope_params *p, int32_t token,
                                                      int32_t number, int32_t dtype) {
    const int32_t bytes = fig_numeric_bytes(dtype), is_k = number >= p->q_heads;
    const int32_t head = is_k ? number - p->q_heads : number;
    const fig_row_strides in = is_k ? p->k_strides : p->q_strides;
    const fig_row_strides out = is_k ? p->k_out_strides : p->q_out_strides;
    head_place place;
    place.in = (const uint8_t *)(is_k ? p->k : p->q) + (token * in.row + head * in.head) * bytes;
    place.out = (uint8_t *)(is_k ? p->k_out : p->q_out);
    place.out += (token * out.row + head * out.head) * bytes;
    place.norm = (const uint8_t *)(is_k ? p->k_norm : p->q_norm);
    return place;
}

/* 1: each vector of each head begins at a multiple of its size, and no pair is cut from its
 * neighbours by the end of one. */
static __device__ __forceinline__ int32_t has_vectors(const fig_rope_params *p, int32_t token,
                                                      int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype);
    const head_place q = place_of(p, token, 0, dtype), k = place_of(p, token, p->q_heads, dtype);
    const int64_t apart =
        p->q_strides.head | p->q_out_strides.head | p->k_strides.head | p->k_out_strides.head;
    const uintptr_t places = (uintptr_t)q.in | (uintptr_t)q.out | (uintptr_t)k.in |
                             (uintptr_t)k.out | (uintptr_t)q.norm | (uintptr_t)k.norm;
    return places % FIG_VECTOR_BYTES == 0 && apart % lanes == 0 && p->head_dim / 2 % lanes == 0 &&
           p->rope.rotary_dim / 2 % lanes == 0;
}

static __device__ __forceinline__ void turn_vectors(const fig_rope_params *p,
                                                    const fig_heads_part *part, int32_t dtype,
                                                    fig_heads_turns *turns) {
    const int32_t bytes = fig_numeric_bytes(dtype);
    const int32_t sharers = fig_heads_sharers(p->head_dim, dtype);
    const int32_t number = part->first + (int32_t)threadIdx.x / sharers;
    const head_place head = place_of(p, part->token, number, dtype);
    const fig_heads_piece piece =
        fig_heads_piece_of((int32_t)threadIdx.x % sharers, fig_vector_lanes(dtype),
                           p->rope.rotary_dim / 2, p->rope.interleaved);
    const int32_t is_there = number < part->end && piece.first < p->head_dim;
    const double frequency = fig_heads_frequency(p);
    const fig_heads_codes weights =
        fig_heads_fetch(head.norm, &piece, dtype, is_there && head.norm != NULL);
    if (is_there) fig_block_prefetch(head.in + piece.first * bytes);
    fig_block_wait();
    fig_block_trigger();
    fig_heads_codes codes = fig_heads_fetch(head.in, &piece, dtype, is_there);
    int64_t position;
    const int32_t rows = fig_params_rows(&p->rows, p->plan);
    const int32_t stands = fig_angle_position(p, part->token, &position);
    if (part->token >= rows || !stands) return;
    fig_heads_make_turns(p, position, frequency, turns);
    float factor = 1;
    if (p->q_norm != NULL || p->k_norm != NULL)
        factor = fig_heads_factor(fig_norm_squares(codes.of[0], dtype) +
                                      fig_norm_squares(codes.of[1], dtype),
                                  sharers, p->head_dim, p->norm_epsilon);
    if (!is_there || (!piece.turns && head.norm == NULL && head.in == head.out)) return;
    fig_heads_change(p, &piece, turns, &weights, head.norm != NULL, factor, dtype, &codes);
    *(uint4 *)(head.out + piece.first * bytes) = codes.of[0];
    *(uint4 *)(head.out + piece.second * bytes) = codes.of[1];
}

/* A warp for each head. */
static __device__ __forceinline__ void turn_numbers(const fig_rope_params *p,
                                                    const fig_heads_part *part, int32_t dtype,
                                                    fig_heads_turns *turns) {
    const int32_t warp = (int32_t)threadIdx.x / FIG_HEADS_WARP;
    const double frequency = fig_heads_frequency(p);
    fig_block_wait();
    fig_block_trigger();
    if (part->token >= fig_params_rows(&p->rows, p->plan)) return;
    int64_t position;
    if (!fig_angle_position(p, part->token, &position)) return;
    fig_heads_make_turns(p, position, frequency, turns);
#pragma unroll 1
    for (int32_t number = part->first + warp; number < part->end;
         number += FIG_HEADS_THREADS / FIG_HEADS_WARP) {
        const head_place head = place_of(p, part->token, number, dtype);
        float factor = 1;
        if (head.norm != NULL)
            factor = fig_heads_factor_of(head.in, p->head_dim, p->norm_epsilon, dtype);
#pragma unroll 1
        for (int32_t i = (int32_t)threadIdx.x % FIG_HEADS_WARP; i < p->head_dim / 2;
             i += FIG_HEADS_WARP) {
            const fig_heads_piece piece =
                fig_heads_piece_of(i, 1, p->rope.rotary_dim / 2, p->rope.interleaved);
            uint32_t codes[2];
            fig_heads_change_pair(&piece, head.in, head.norm, turns, factor, dtype, codes);
            fig_heads_put_code(head.out, dtype, piece.first, codes[0]);
            fig_heads_put_code(head.out, dtype, piece.second, codes[1]);
        }
    }
}

static __device__ __forceinline__ void turn(const fig_rope_params *p, int32_t dtype,
                                            fig_heads_turns *turns) {
    const fig_heads_part part =
        fig_heads_part_of(p->q_heads + p->k_heads, p->head_dim, dtype, blockIdx.x);
    if (has_vectors(p, part.token, dtype)) {
        turn_vectors(p, &part, dtype, turns);
    } else {
        turn_numbers(p, &part, dtype, turns);
    }
}

extern "C" __global__ void __launch_bounds__(FIG_HEADS_THREADS)
    fig_kernel_rope(const __grid_constant__ fig_rope_params p) {
    __shared__ __align__(16) fig_heads_turns turns;
    switch (p.dtype) {
    case FIG_F16: turn(&p, FIG_F16, &turns); break;
    case FIG_BF16: turn(&p, FIG_BF16, &turns); break;
    default: turn(&p, FIG_F32, &turns); break;
    }
}
