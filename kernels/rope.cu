/* rope.cu: rope on a GPU.
 *
 * Turns each pair (x, y) among the first rotary_dim values of a head by angle(position, i), as
 * figraph.h defines it: x cos - y sin, y cos + x sin. One block per token turns all heads of q and
 * k. The angle is a double, since at position 1M f32 errs by 0.02; its sine and cosine, the turn,
 * and the RMSNorm of the whole head that may come before it are f32, rounded to the dtype once, at
 * the end.
 *
 * A block makes the turns once, while its first heads are on their way. A head is cut into pieces
 * of `lanes` pairs: two vectors each or, where addresses, strides or widths do not allow them, two
 * numbers. About as many threads of a warp as a head has pieces share it, and a thread has the same
 * pieces of every head that it does. Helpers take dtype and lanes as constants, once inlined.
 * Premise: head_dim is even. Invariant: both numbers of a pair are read by the thread that writes
 * them, and before, so out may be in; what neither turns nor is normalised keeps its bits. */
#include "kernels/angle.h"
#include "kernels/block.cuh"
#include "kernels/numeric.h"
#include "kernels/params.h"
#include "kernels/vector.cuh"

enum {
    THREADS = 128,
    HEAD_DIM_LIMIT = 256,
    PAIR_LIMIT = HEAD_DIM_LIMIT / 2,
    PIECE_LIMIT = PAIR_LIMIT / FIG_BLOCK_WARP /* of a head, that one thread has */
};
static_assert(PAIR_LIMIT <= THREADS, "each turn has its thread");

/* What all heads of a token share. */
typedef struct token_share {
    float cosine[PAIR_LIMIT], sine[PAIR_LIMIT];
    float weights[2][HEAD_DIM_LIMIT]; /* of q's norm and of k's; unset where there is none */
} token_share;

/* A thread's part of a token: place `index` among the `sharers` of heads number `head`,
 * head + apart, ... Its pieces of a head are index, index + sharers, ... */
typedef struct token_part {
    const fig_rope_params *p;
    int32_t row, dtype, lanes;
    int32_t head, apart, sharers, index;
} token_part;

typedef struct head_place {
    const uint8_t *in;
    uint8_t *out;
    int32_t side;   /* 0: q, 1: k */
    int32_t normed; /* 1: by the weights of its side */
} head_place;

/* Where the halves of a piece begin: the x and the y of its pairs or, where pairs are neighbours
 * and behind those that turn, simply its first half and its second. */
typedef struct piece_place {
    int32_t number, first, second;
    int32_t turns; /* 0: it is behind the last pair that turns */
} piece_place;

/* A thread's pieces of a head, codes of the dtype as they lie in memory: of each half a vector, of
 * which a single number is the first. */
typedef struct head_codes {
    uint4 of[PIECE_LIMIT][2];
} head_codes;

/* The same as numbers: of a piece, its first half and then its second. */
typedef struct head_numbers {
    float of[PIECE_LIMIT][2 * FIG_VECTOR_LANE_LIMIT];
} head_numbers;

/* ---- What heads share */

/* This thread's turn. A position outside the table reads as the nearest in it, so that nothing
 * beside it is read. */
static __device__ void write_turn(const fig_rope_params *p, int64_t position, double frequency,
                                  token_share *share) {
    int32_t half = p->rope.rotary_dim / 2, pair = (int32_t)threadIdx.x;
    if (pair >= half) return;
    if (p->cos_sin != NULL) {
        if (position >= p->cos_sin_rows) position = p->cos_sin_rows - 1;
        if (position < 0) position = 0;
        const float *row = p->cos_sin + position * p->cos_sin_stride;
        share->cosine[pair] = row[pair];
        share->sine[pair] = row[half + pair];
    } else {
        double cosine, sine;
        sincos((double)position * frequency, &sine, &cosine);
        share->cosine[pair] = (float)cosine;
        share->sine[pair] = (float)sine;
    }
}

static __device__ void write_weights(const fig_rope_params *p, token_share *share) {
    for (int32_t i = (int32_t)threadIdx.x; i < p->head_dim; i += THREADS) {
        if (p->q_norm != NULL) share->weights[0][i] = fig_numeric_load(p->q_norm, p->dtype, i);
        if (p->k_norm != NULL) share->weights[1][i] = fig_numeric_load(p->k_norm, p->dtype, i);
    }
}

/* ---- Pieces of heads */

/* Head `number` of the token, k's behind q's. */
static __device__ __forceinline__ head_place place_of_head(const fig_rope_params *p, int32_t row,
                                                           int32_t number) {
    const int32_t side = number >= p->q_heads, bytes = fig_numeric_bytes(p->dtype);
    const int32_t head = side == 0 ? number : number - p->q_heads;
    const fig_row_strides in = side == 0 ? p->q_strides : p->k_strides;
    const fig_row_strides out = side == 0 ? p->q_out_strides : p->k_out_strides;
    head_place place;
    place.side = side;
    place.normed = (side == 0 ? p->q_norm : p->k_norm) != NULL;
    place.in = (const uint8_t *)(side == 0 ? p->q : p->k);
    place.in += (row * in.row + head * in.head) * bytes;
    place.out = (uint8_t *)(side == 0 ? p->q_out : p->k_out);
    place.out += (row * out.row + head * out.head) * bytes;
    return place;
}

/* 1: each vector of each head begins at a multiple of its size, and no pair is cut from its
 * neighbours by the end of one. */
static __device__ __forceinline__ int has_vectors(const fig_rope_params *p, int32_t row) {
    const int32_t bytes = fig_numeric_bytes(p->dtype), lanes = fig_vector_lanes(p->dtype);
    const head_place q = place_of_head(p, row, 0), k = place_of_head(p, row, p->q_heads);
    int64_t apart =
        p->q_strides.head | p->q_out_strides.head | p->k_strides.head | p->k_out_strides.head;
    uintptr_t places = (uintptr_t)q.in | (uintptr_t)q.out | (uintptr_t)k.in | (uintptr_t)k.out;
    return places % FIG_VECTOR_BYTES == 0 && apart % lanes == 0 && p->head_dim / 2 % lanes == 0 &&
           p->rope.rotary_dim / 2 % lanes == 0;
}

/* A power of two of threads shares a head, so that butterflies of shuffles stay among them. */
static __device__ __forceinline__ token_part part_of_thread(const fig_rope_params *p, int32_t row,
                                                            int32_t dtype, int32_t lanes) {
    token_part part = {p, row, dtype, lanes, 0, 0, 1, 0};
    while (part.sharers < p->head_dim / 2 / lanes && part.sharers < FIG_BLOCK_WARP)
        part.sharers *= 2;
    part.head = (int32_t)threadIdx.x / part.sharers;
    part.apart = THREADS / part.sharers;
    part.index = (int32_t)threadIdx.x % part.sharers;
    return part;
}

/* Pieces of vectors are no more than a head has threads. */
static __device__ __forceinline__ int32_t pieces_of(const token_part *part) {
    return part->lanes > 1 ? 1 : PIECE_LIMIT;
}

/* The thread's i-th; 0: the head has no such piece. */
static __device__ __forceinline__ int find_piece(const token_part *part, int32_t i,
                                                 piece_place *piece) {
    const int32_t lanes = part->lanes, half = part->p->rope.rotary_dim / 2;
    piece->number = part->index + i * part->sharers;
    piece->turns = piece->number * lanes < half;
    if (piece->turns && !part->p->rope.interleaved) {
        piece->first = piece->number * lanes;
        piece->second = piece->first + half;
    } else {
        piece->first = 2 * piece->number * lanes;
        piece->second = piece->first + lanes;
    }
    return piece->first < part->p->head_dim;
}

static __device__ __forceinline__ uint4 load_half(const token_part *part, const uint8_t *head,
                                                  int32_t first) {
    const uint8_t *from = head + first * fig_numeric_bytes(part->dtype);
    if (part->lanes > 1) return *(const uint4 *)from;
    if (part->dtype == FIG_F32) return make_uint4(*(const uint32_t *)from, 0, 0, 0);
    return make_uint4(*(const uint16_t *)from, 0, 0, 0);
}

static __device__ __forceinline__ void store_half(const token_part *part, uint8_t *head,
                                                  int32_t first, const uint4 &codes) {
    uint8_t *to = head + first * fig_numeric_bytes(part->dtype);
    if (part->lanes > 1) {
        *(uint4 *)to = codes;
    } else if (part->dtype == FIG_F32) {
        *(uint32_t *)to = codes.x;
    } else {
        *(uint16_t *)to = (uint16_t)codes.x;
    }
}

/* ---- Heads */

/* 0 where the thread has no piece, or there is no such head. */
static __device__ __forceinline__ void load_head(const token_part *part, int32_t number,
                                                 head_codes *codes) {
    const head_place head = place_of_head(part->p, part->row, number);
    const int there = number < part->p->q_heads + part->p->k_heads;
#pragma unroll
    for (int32_t i = 0; i < pieces_of(part); i++) {
        piece_place piece;
        codes->of[i][0] = codes->of[i][1] = make_uint4(0, 0, 0, 0);
        if (!find_piece(part, i, &piece) || !there) continue;
        codes->of[i][0] = load_half(part, head.in, piece.first);
        codes->of[i][1] = load_half(part, head.in, piece.second);
    }
}

/* 1 / sqrt(mean(x^2) + epsilon) of the head that threads share. Called by whole warps. */
static __device__ __forceinline__ float scale_of(const token_part *part, const head_numbers *x) {
    double sum = 0;
#pragma unroll
    for (int32_t i = 0; i < pieces_of(part); i++) {
#pragma unroll
        for (int32_t j = 0; j < 2 * part->lanes; j++)
            sum += (double)x->of[i][j] * (double)x->of[i][j];
    }
    for (int32_t apart = part->sharers / 2; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    return (float)rsqrt(sum / part->p->head_dim + (double)part->p->norm_epsilon);
}

/* Every product is rounded before it is added, as the twin's are: a turn that cancels would show
 * the difference. */
static __device__ __forceinline__ void turn_pair(float *x, float *y, float cosine, float sine) {
    float a = *x, b = *y;
    *x = __fmul_rn(a, cosine) - __fmul_rn(b, sine);
    *y = __fmul_rn(b, cosine) + __fmul_rn(a, sine);
}

static __device__ __forceinline__ void turn_piece(const token_part *part, const token_share *share,
                                                  int32_t number, float *x) {
    const int32_t lanes = part->lanes;
    const float *cosine = share->cosine + number * lanes, *sine = share->sine + number * lanes;
    if (part->p->rope.interleaved) {
#pragma unroll
        for (int32_t i = 0; i < lanes; i++)
            turn_pair(&x[2 * i], &x[2 * i + 1], cosine[i], sine[i]);
    } else {
#pragma unroll
        for (int32_t i = 0; i < lanes; i++)
            turn_pair(&x[i], &x[lanes + i], cosine[i], sine[i]);
    }
}

/* Called by whole warps, and for heads that are not there. */
static __device__ __forceinline__ void finish_head(const token_part *part, int32_t number,
                                                   const token_share *share, head_codes *codes) {
    const fig_rope_params *p = part->p;
    const head_place head = place_of_head(p, part->row, number);
    const float *weights = share->weights[head.side];
    head_numbers x;
    float scale = 1;
#pragma unroll
    for (int32_t i = 0; i < pieces_of(part); i++) {
        fig_vector_read(x.of[i], part->lanes, codes->of[i][0], part->dtype);
        fig_vector_read(x.of[i] + part->lanes, part->lanes, codes->of[i][1], part->dtype);
    }
    if (p->q_norm != NULL || p->k_norm != NULL) scale = scale_of(part, &x);
    if (number >= p->q_heads + p->k_heads) return;
#pragma unroll
    for (int32_t i = 0; i < pieces_of(part); i++) {
        piece_place piece;
        if (!find_piece(part, i, &piece)) break;
        if (!piece.turns && !head.normed && head.in == head.out) break;
#pragma unroll
        for (int32_t j = 0; j < part->lanes && head.normed; j++) {
            x.of[i][j] *= scale * weights[piece.first + j];
            x.of[i][part->lanes + j] *= scale * weights[piece.second + j];
        }
        if (piece.turns) turn_piece(part, share, piece.number, x.of[i]);
        if (piece.turns || head.normed) {
            codes->of[i][0] = fig_vector_of(x.of[i], part->lanes, part->dtype);
            codes->of[i][1] = fig_vector_of(x.of[i] + part->lanes, part->lanes, part->dtype);
        }
        store_half(part, head.out, piece.first, codes->of[i][0]);
        store_half(part, head.out, piece.second, codes->of[i][1]);
    }
}

/* ---- Tokens */

/* The first heads are on their way while turns are made. */
static __device__ __forceinline__ void turn_token(const token_part *part, double frequency,
                                                  token_share *share) {
    const int32_t heads = part->p->q_heads + part->p->k_heads;
    const int32_t batch = part->lanes > 1 ? FIG_VECTOR_BATCH : 1;
    head_codes codes[FIG_VECTOR_BATCH];
    int64_t position;
#pragma unroll
    for (int32_t j = 0; j < batch; j++)
        load_head(part, part->head + j * part->apart, &codes[j]);
    if (!fig_angle_position(part->p, part->row, &position)) return;
    write_turn(part->p, position, frequency, share);
    write_weights(part->p, share);
    __syncthreads();
    for (int32_t first = 0; first < heads; first += batch * part->apart) {
#pragma unroll
        for (int32_t j = 0; j < batch && first > 0; j++)
            load_head(part, first + part->head + j * part->apart, &codes[j]);
#pragma unroll 1
        for (int32_t j = 0; j < batch && first + j * part->apart < heads; j++) {
            head_codes head = fig_vector_choose(codes, j);
            finish_head(part, first + part->head + j * part->apart, share, &head);
        }
    }
}

static __device__ __forceinline__ void turn_token_of(const fig_rope_params *p, int32_t row,
                                                     int32_t dtype, double frequency,
                                                     token_share *share) {
    if (has_vectors(p, row)) {
        const token_part part = part_of_thread(p, row, dtype, fig_vector_lanes(dtype));
        turn_token(&part, frequency, share);
    } else {
        const token_part part = part_of_thread(p, row, dtype, 1);
        turn_token(&part, frequency, share);
    }
}

/* Frequencies follow from params alone, so they are made while the launch before ends. */
extern "C" __global__ void __launch_bounds__(THREADS)
    fig_kernel_rope(const __grid_constant__ fig_rope_params p) {
    __shared__ token_share share;
    const int32_t row = (int32_t)blockIdx.x, pair = (int32_t)threadIdx.x;
    double frequency = 0;
    if (p.cos_sin == NULL && pair < p.rope.rotary_dim / 2)
        frequency = fig_angle_frequency(&p.rope, pair);
    fig_block_wait();
    fig_block_trigger();
    if (row >= fig_params_rows(&p.rows, p.plan)) return;
    switch (p.dtype) {
    case FIG_F16: turn_token_of(&p, row, FIG_F16, frequency, &share); break;
    case FIG_BF16: turn_token_of(&p, row, FIG_BF16, frequency, &share); break;
    default: turn_token_of(&p, row, FIG_F32, frequency, &share); break;
    }
}
