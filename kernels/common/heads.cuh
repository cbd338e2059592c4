/* heads.cuh: loads, normalises and applies RoPE to one thread's piece of a head.
 *
 * A head is cut into pieces of `lanes` pairs. A piece is two vectors, or two numbers if addresses,
 * strides or widths do not allow vectors. Threads that share a head are neighbours in a warp. With
 * vectors, each thread has one piece and keeps it in registers; otherwise each thread goes through
 * several pieces one by one. The kernels choose the heads and the destination of a piece. In each
 * helper the dtype is a constant once the compiler has inlined the helper. Premise: head_dim is
 * even. */
#ifndef FIG_KERNELS_HEADS_CUH
#define FIG_KERNELS_HEADS_CUH

#include "kernels/common/angle.h"
#include "kernels/common/heads.h"
#include "kernels/common/norm.cuh"

enum { FIG_HEADS_PAIR_LIMIT = FIG_HEADS_DIM_LIMIT / 2 };
static_assert(FIG_HEADS_PAIR_LIMIT <= FIG_HEADS_THREADS, "each turn has its thread");

/* The cosine and sine of every pair of a head, for one token. */
typedef struct fig_heads_turns {
    float cosine[FIG_HEADS_PAIR_LIMIT], sine[FIG_HEADS_PAIR_LIMIT];
} fig_heads_turns;

/* Locates the two halves of a piece: the x and the y of its pairs. If the two numbers of a pair are
 * neighbours, or the piece lies past the part under RoPE, these are simply the first and the second
 * half of the piece. */
typedef struct fig_heads_piece {
    int32_t first, second;
    int32_t pair; /* number of the piece's first pair, if the piece is under RoPE */
    int32_t turns;
} fig_heads_piece;

/* Returns a piece of a head. turning: number of pairs of the head under RoPE. */
static __device__ __forceinline__ fig_heads_piece fig_heads_piece_of(int32_t number, int32_t lanes,
                                                                     int32_t turning,
                                                                     int32_t interleaved) {
    fig_heads_piece piece;
    piece.pair = number * lanes;
    piece.turns = piece.pair < turning;
    piece.first = 2 * piece.pair;
    piece.second = piece.first + lanes;
    if (piece.turns && !interleaved) {
        piece.first = piece.pair;
        piece.second = piece.pair + turning;
    }
    return piece;
}

/* ---- Turns */

/* Computes cosine and sine of a double, rounded to f32 or one unit off. The nearest multiple of a
 * quarter turn is subtracted in double, to 1e-16 of a radian. The rest is at most an eighth of a
 * turn, so f32 and a short polynomial suffice. Beyond 2^50 radians a double no longer determines
 * the place on the circle; the remainder is then clamped, so that a vector keeps its length. */
static __device__ __forceinline__ void fig_heads_turn_of(double angle, float *cosine, float *sine) {
    const double to_integer = 6755399441055744.0; /* 1.5 * 2^52: its last place is a unit */
    const double shifted = fma(angle, 0.63661977236758134308, to_integer);
    const double quarters = shifted - to_integer;
    double rest = fma(-quarters, 1.5707963267948966, angle);
    rest = fma(-quarters, 6.123233995736766e-17, rest);
    const float x = fminf(fmaxf((float)rest, -0.79f), 0.79f), square = x * x;
    float small = fmaf(square, -1.9515295891e-4f, 8.3321608736e-3f);
    small = fmaf(fmaf(square, small, -1.6666654611e-1f), square * x, x);
    float large = fmaf(square, 2.443315711809948e-5f, -1.388731625493765e-3f);
    large = fmaf(fmaf(square, large, 4.166664568298827e-2f), square * square,
                 fmaf(square, -0.5f, 1.0f));
    const int32_t quarter = __double2loint(shifted);
    *cosine = quarter & 1 ? small : large;
    *sine = quarter & 1 ? large : small;
    if (quarter + 1 & 2) *cosine = -*cosine;
    if (quarter & 2) *sine = -*sine;
}

/* Returns the radians per position of a pair, or 0 if there is a table of cosines or no such pair.
 * `table` lies in the params of the launch; indexing a copy of it would put the whole copy into
 * local memory. The function reads it by normal loads, because constant loads of 32 different
 * addresses run one after another. */
static __device__ __forceinline__ double
fig_heads_frequency(const fig_rope_params *p, const fig_rope_table *table, int32_t pair) {
    if (p->cos_sin != NULL || pair >= p->rope.rotary_dim / 2) return 0;
    double frequency;
    asm("ld.f64 %0, [%1];" : "=d"(frequency) : "l"(&table->frequencies[pair]));
    return frequency;
}

/* Computes the cosine and sine of a pair for a token, if the pair exists. The caller puts a barrier
 * before their use. For a position outside the table, the nearest row is read, so nothing outside
 * the table is read. */
static __device__ __forceinline__ void fig_heads_make_turn(const fig_rope_params *p, int32_t pair,
                                                           int64_t position, double frequency,
                                                           fig_heads_turns *turns) {
    const int32_t half = p->rope.rotary_dim / 2;
    if (pair < half && p->cos_sin != NULL) {
        if (position >= p->cos_sin_rows) position = p->cos_sin_rows - 1;
        if (position < 0) position = 0;
        const float *row = p->cos_sin + position * p->cos_sin_stride;
        turns->cosine[pair] = row[pair];
        turns->sine[pair] = row[half + pair];
    } else if (pair < half) {
        const float factor = (float)p->angles.table.factor;
        float cosine, sine;
        fig_heads_turn_of((double)position * frequency, &cosine, &sine);
        turns->cosine[pair] = cosine * factor;
        turns->sine[pair] = sine * factor;
    }
}

/* Rounds every product before adding it, as the reference kernel does. Where the sum cancels, a
 * fused operation would show a difference. */
static __device__ __forceinline__ void fig_heads_turn_pair(float *x, float *y, float cosine,
                                                           float sine) {
    float a = *x, b = *y;
    *x = __fmul_rn(a, cosine) - __fmul_rn(b, sine);
    *y = __fmul_rn(b, cosine) + __fmul_rn(a, sine);
}

/* Applies RoPE to a piece. x: [2 * lanes], the first half of the piece and then the second. */
static __device__ __forceinline__ void fig_heads_turn_piece(const fig_heads_piece *piece,
                                                            int32_t lanes, int32_t interleaved,
                                                            const fig_heads_turns *turns,
                                                            float *x) {
    const float *cosine = turns->cosine + piece->pair, *sine = turns->sine + piece->pair;
    if (interleaved) {
#pragma unroll
        for (int32_t i = 0; i < lanes; i++)
            fig_heads_turn_pair(&x[2 * i], &x[2 * i + 1], cosine[i], sine[i]);
    } else {
#pragma unroll
        for (int32_t i = 0; i < lanes; i++)
            fig_heads_turn_pair(&x[i], &x[lanes + i], cosine[i], sine[i]);
    }
}

/* ---- Norms */

/* Returns 1 / sqrt(mean(x^2) + epsilon) of a head that `sharers` threads of a warp share. squares:
 * the thread's part of the sum. Whole warps call this. */
static __device__ __forceinline__ float fig_heads_factor(double squares, int32_t sharers,
                                                         int32_t head_dim, float epsilon) {
    for (int32_t apart = sharers / 2; apart > 0; apart /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, apart);
    return fig_norm_factor(squares, head_dim, epsilon);
}

/* ---- Pieces as vectors */

/* A piece in the dtype's codes, as in memory. */
typedef struct fig_heads_codes {
    uint4 of[2];
} fig_heads_codes;

/* Loads a piece; returns zeros if is_there is 0. */
static __device__ __forceinline__ fig_heads_codes fig_heads_fetch(const uint8_t *head,
                                                                  const fig_heads_piece *piece,
                                                                  int32_t dtype, int32_t is_there) {
    const int32_t bytes = fig_numeric_bytes(dtype);
    fig_heads_codes codes;
    codes.of[0] = codes.of[1] = make_uint4(0, 0, 0, 0);
    if (!is_there) return codes;
    codes.of[0] = fig_vector_fetch(head + piece->first * bytes);
    codes.of[1] = fig_vector_fetch(head + piece->second * bytes);
    return codes;
}

/* Applies norm and RoPE to a piece; codes to which neither applies stay unchanged. weights: not
 * read if the head is not normed. */
static __device__ __forceinline__ void
fig_heads_change(const fig_rope_params *p, const fig_heads_piece *piece,
                 const fig_heads_turns *turns, const fig_heads_codes *weights, int32_t normed,
                 float factor, int32_t dtype, fig_heads_codes *codes) {
    const int32_t lanes = fig_vector_lanes(dtype);
    float x[2 * FIG_VECTOR_LANE_LIMIT];
    if (!normed && !piece->turns) return;
#pragma unroll
    for (int32_t half = 0; half < 2; half++) {
        float weight[FIG_VECTOR_LANE_LIMIT];
        fig_vector_read(x + half * lanes, lanes, codes->of[half], dtype);
        if (!normed) continue;
        fig_vector_read(weight, lanes, weights->of[half], dtype);
#pragma unroll
        for (int32_t i = 0; i < lanes; i++)
            x[half * lanes + i] *= factor * weight[i];
    }
    if (piece->turns) fig_heads_turn_piece(piece, lanes, p->rope.interleaved, turns, x);
    codes->of[0] = fig_vector_of(x, lanes, dtype);
    codes->of[1] = fig_vector_of(x + lanes, lanes, dtype);
}

/* ---- Pieces as numbers */

static __device__ __forceinline__ uint32_t fig_heads_code_at(const uint8_t *head, int32_t dtype,
                                                             int32_t i) {
    if (dtype == FIG_F32) return ((const uint32_t *)head)[i];
    return ((const uint16_t *)head)[i];
}

static __device__ __forceinline__ void fig_heads_put_code(uint8_t *head, int32_t dtype, int32_t i,
                                                          uint32_t code) {
    if (dtype == FIG_F32) {
        ((uint32_t *)head)[i] = code;
    } else {
        ((uint16_t *)head)[i] = (uint16_t)code;
    }
}

/* Returns the same factor as fig_heads_factor() if one warp reads the head number by number. */
static __device__ __forceinline__ float fig_heads_factor_of(const uint8_t *head, int32_t head_dim,
                                                            float epsilon, int32_t dtype) {
    double squares = 0;
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x % FIG_HEADS_WARP; i < head_dim; i += FIG_HEADS_WARP) {
        const double x = fig_numeric_load(head, dtype, i);
        squares += x * x;
    }
    return fig_heads_factor(squares, FIG_HEADS_WARP, head_dim, epsilon);
}

/* Applies norm and RoPE to both numbers of a piece and returns codes. norm: NULL for none. */
static __device__ __forceinline__ void
fig_heads_change_pair(const fig_heads_piece *piece, const uint8_t *head, const uint8_t *norm,
                      const fig_heads_turns *turns, float factor, int32_t dtype,
                      uint32_t codes[2]) {
    float x[2] = {fig_numeric_load(head, dtype, piece->first),
                  fig_numeric_load(head, dtype, piece->second)};
    codes[0] = fig_heads_code_at(head, dtype, piece->first);
    codes[1] = fig_heads_code_at(head, dtype, piece->second);
    if (norm == NULL && !piece->turns) return;
    if (norm != NULL) {
        x[0] *= factor * fig_numeric_load(norm, dtype, piece->first);
        x[1] *= factor * fig_numeric_load(norm, dtype, piece->second);
    }
    if (piece->turns) fig_heads_turn_piece(piece, 1, 0, turns, x);
    for (int32_t i = 0; i < 2; i++) {
        if (dtype == FIG_F32) codes[i] = fig_numeric_bits(x[i]);
        if (dtype == FIG_F16) codes[i] = fig_numeric_f16(x[i]);
        if (dtype == FIG_BF16) codes[i] = fig_numeric_bf16(x[i]);
    }
}

#endif
