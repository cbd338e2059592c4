/* rope.cu: runs rope on a GPU.
 *
 * The kernel rotates each pair (x, y) among the first rotary_dim values of a head by
 * angle(position, i), as figraph.h defines it: x cos - y sin, y cos + x sin. The angle is a
 * double, because at position 1M f32 errs by 0.02. All else is f32: the angle's sine and cosine,
 * the rotation, and the RMSNorm of the whole head that may precede the rotation. The result is
 * rounded to the dtype once, at the end.
 *
 * A block processes some heads of one token or, if there are many tokens, of a few side by side,
 * as heads.h deals them. The block's pieces are in flight while it looks up the positions and
 * computes the cosines and sines, which all heads share. Frequencies and norm weights are
 * loaded before the preceding launch has ended (rms_norm.cu tells why they may be). The dtype and
 * the number of tokens are constants once the compiler has inlined a helper. Invariant: the thread
 * that writes a pair has itself read both numbers of the pair before, so out may be the same tensor
 * as in. Values that are neither rotated nor normalised keep their bits. */
#include "kernels/common/block.cuh"
#include "kernels/common/heads.cuh"

/* The place of one head: heads are numbered through q and then through k. */
typedef struct head_place {
    const uint8_t *in, *norm; /* norm: NULL if there is none */
    uint8_t *out;
} head_place;

/* The tokens of a block. */
typedef struct tokens {
    int32_t first, count; /* count: 1 or FIG_HEADS_ABREAST */
} tokens;

/* The cosines and sines of these tokens. */
typedef struct block_turns {
    fig_heads_turns of[FIG_HEADS_ABREAST];
    /* 0: the token has no position; not set for a single token */
    int32_t stands[FIG_HEADS_ABREAST];
} block_turns;

/* Returns the number of threads that compute the cosines and sines of one token. */
static __device__ __forceinline__ int32_t makers_of(const fig_rope_params *p, tokens of) {
    const int32_t few = FIG_HEADS_THREADS / 2;
    return of.count > 1 && p->rope.rotary_dim / 2 <= few ? few : FIG_HEADS_THREADS;
}

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

/* Returns 1 if each vector of each head begins at a multiple of its size, and no pair is split
 * between two vectors. */
static __device__ __forceinline__ int32_t has_vectors(const fig_rope_params *p, tokens of,
                                                      int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype);
    const head_place q = place_of(p, of.first, 0, dtype);
    const head_place k = place_of(p, of.first, p->q_heads, dtype);
    int64_t apart =
        p->q_strides.head | p->q_out_strides.head | p->k_strides.head | p->k_out_strides.head;
    if (of.count > 1)
        apart |= p->q_strides.row | p->q_out_strides.row | p->k_strides.row | p->k_out_strides.row;
    const uintptr_t places = (uintptr_t)q.in | (uintptr_t)q.out | (uintptr_t)k.in |
                             (uintptr_t)k.out | (uintptr_t)q.norm | (uintptr_t)k.norm;
    return places % FIG_VECTOR_BYTES == 0 && apart % lanes == 0 && p->head_dim / 2 % lanes == 0 &&
           p->rope.rotary_dim / 2 % lanes == 0;
}

/* Returns the pair whose cosine and sine this thread computes. With one token, each thread has its
 * own pair. With several tokens, a group of makers_of() threads handles each token. */
static __device__ __forceinline__ int32_t pair_of(const fig_rope_params *p, tokens of) {
    return (int32_t)threadIdx.x % makers_of(p, of);
}

/* Computes the cosines and sines of all tokens, followed by a barrier. Returns a bit for each token
 * that has a position; 0 means that nothing was computed. */
static __device__ __forceinline__ uint32_t make_turns(const fig_rope_params *p, tokens of,
                                                      double frequency, block_turns *turns) {
    const int32_t rows = fig_params_rows(&p->rows, p->plan), makers = makers_of(p, of);
    const int32_t pair = pair_of(p, of);
    uint32_t standing = 0;
    if (of.first >= rows) return 0;
#pragma unroll
    for (int32_t n = 0; n < of.count; n++) {
        const int32_t i =
            of.count == 1 ? 0 : (int32_t)threadIdx.x / makers + n * (FIG_HEADS_THREADS / makers);
        int64_t position;
        if (i >= of.count) break;
        const int32_t token = of.count == 1 ? of.first : min(of.first + i, p->rows.row_limit - 1);
        const int32_t stands = fig_angle_position(p, token, &position) && of.first + i < rows;
        fig_heads_make_turn(p, pair, position, frequency, &turns->of[i]);
        if (of.count > 1 && pair == 0) turns->stands[i] = stands;
        standing = (uint32_t)stands;
    }
    __syncthreads();
    if (of.count == 1) return standing;
    standing = 0;
#pragma unroll
    for (int32_t i = 0; i < of.count; i++)
        standing |= (uint32_t)turns->stands[i] << i;
    return standing;
}

static __device__ __forceinline__ void turn_vectors(const fig_rope_params *p, tokens of,
                                                    const fig_heads_part *part, int32_t dtype,
                                                    block_turns *turns) {
    const int32_t bytes = fig_numeric_bytes(dtype);
    const int32_t sharers = fig_heads_sharers(p->head_dim, dtype);
    const int32_t number = part->first + (int32_t)threadIdx.x / sharers;
    const fig_heads_piece piece =
        fig_heads_piece_of((int32_t)threadIdx.x % sharers, fig_vector_lanes(dtype),
                           p->rope.rotary_dim / 2, p->rope.interleaved);
    const int32_t is_there = number < part->end && piece.first < p->head_dim;
    const head_place first = place_of(p, of.first, number, dtype);
    const double frequency = fig_heads_frequency(p, &p->angles.table, pair_of(p, of));
    const fig_heads_codes weights =
        fig_heads_fetch(first.norm, &piece, dtype, is_there && first.norm != NULL);
    fig_heads_codes codes[FIG_HEADS_ABREAST];
    if (is_there) fig_block_prefetch(first.in + piece.first * bytes);
    fig_block_wait();
    fig_block_trigger();
#pragma unroll
    for (int32_t i = 0; i < of.count; i++)
        codes[i] = fig_heads_fetch(place_of(p, of.first + i, number, dtype).in, &piece, dtype,
                                   is_there && (i == 0 || of.first + i < p->rows.row_limit));
    const uint32_t standing = make_turns(p, of, frequency, turns);
    if (standing == 0) return;
#pragma unroll
    for (int32_t i = 0; i < of.count; i++) {
        const head_place head = place_of(p, of.first + i, number, dtype);
        float factor = 1;
        if (p->q_norm != NULL || p->k_norm != NULL)
            factor = fig_heads_factor(fig_norm_squares(codes[i].of[0], dtype) +
                                          fig_norm_squares(codes[i].of[1], dtype),
                                      sharers, p->head_dim, p->norm_epsilon);
        if (!is_there || !(standing >> i & 1)) continue;
        if (!piece.turns && head.norm == NULL && head.in == head.out) continue;
        fig_heads_change(p, &piece, &turns->of[i], &weights, head.norm != NULL, factor, dtype,
                         &codes[i]);
        *(uint4 *)(head.out + piece.first * bytes) = codes[i].of[0];
        *(uint4 *)(head.out + piece.second * bytes) = codes[i].of[1];
    }
}

/* Assigns each head to one warp. */
static __device__ __forceinline__ void turn_numbers(const fig_rope_params *p, int32_t token,
                                                    const fig_heads_part *part, int32_t dtype,
                                                    const fig_heads_turns *turns) {
    const int32_t warp = (int32_t)threadIdx.x / FIG_HEADS_WARP;
#pragma unroll 1
    for (int32_t number = part->first + warp; number < part->end;
         number += FIG_HEADS_THREADS / FIG_HEADS_WARP) {
        const head_place head = place_of(p, token, number, dtype);
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

static __device__ __forceinline__ void turn(const fig_rope_params *p, int32_t abreast,
                                            int32_t dtype, block_turns *turns) {
    const fig_heads_part part =
        fig_heads_part_of(p->q_heads + p->k_heads, p->head_dim, dtype, blockIdx.x);
    const tokens of = {part.group * abreast, abreast};
    if (has_vectors(p, of, dtype)) {
        turn_vectors(p, of, &part, dtype, turns);
        return;
    }
    const double frequency = fig_heads_frequency(p, &p->angles.table, pair_of(p, of));
    fig_block_wait();
    fig_block_trigger();
    const uint32_t standing = make_turns(p, of, frequency, turns);
#pragma unroll 1
    for (int32_t i = 0; i < abreast; i++)
        if (standing >> i & 1) turn_numbers(p, of.first + i, &part, dtype, &turns->of[i]);
}

static __device__ __forceinline__ void turn_tokens(const fig_rope_params *p, int32_t dtype,
                                                   block_turns *turns) {
    if (fig_heads_abreast(p->rows.row_limit) == 1) {
        turn(p, 1, dtype, turns);
    } else {
        turn(p, FIG_HEADS_ABREAST, dtype, turns);
    }
}

/* With fewer blocks an SM has too few loads in flight. With more, registers run short and pieces
 * are spilled. */
enum { BLOCKS = 6 };

extern "C" __global__ void __launch_bounds__(FIG_HEADS_THREADS, BLOCKS)
    fig_kernel_rope(const __grid_constant__ fig_rope_params p) {
    __shared__ __align__(16) block_turns turns;
    switch (p.dtype) {
    case FIG_F16: turn_tokens(&p, FIG_F16, &turns); break;
    case FIG_BF16: turn_tokens(&p, FIG_BF16, &turns); break;
    default: turn_tokens(&p, FIG_F32, &turns); break;
    }
}
