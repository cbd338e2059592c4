/* latent_decode.cu: runs the first launch of latent_decode on a GPU.
 *
 * It applies RoPE to the last 64 values of each q head in place. It also turns each new latent into
 * a token of the cache, by an RMSNorm of its first 512 values and RoPE of its last 64.
 * latent_decode.h deals a token's heads to blocks; the token's last block has the latent. A warp
 * handles a head, and a lane handles a pair. In the block of the latent, each warp handles 128
 * values, which share a scale. Invariant: the thread that writes a number has read that number's
 * input before. */
#include "kernels/common/heads.cuh"
#include "kernels/common/store.cuh"
#include "kernels/latent/latent.h"
#include "kernels/latent/latent_decode.h"

enum {
    THREADS = FIG_LATENT_DECODE_THREADS,
    WARPS = THREADS / FIG_BLOCK_WARP,
    LANE_VALUES = FIG_LATENT_SCALE_DIM / FIG_BLOCK_WARP
};
static_assert(THREADS == FIG_HEADS_THREADS, "each turn has its thread");
static_assert(WARPS == FIG_LATENT_SCALES, "a warp has the values of a scale");
static_assert(FIG_LATENT_ROPE_DIM == 2 * FIG_BLOCK_WARP, "a lane has a pair");

typedef struct shared_state {
    fig_heads_turns turns;
    double sums[FIG_BLOCK_WARP_LIMIT];
} shared_state;

/* Rotates the lane's pair of a head of 64 values and returns it, rounded to the dtype. */
static __device__ __forceinline__ float2 turned_pair(const fig_rope_params *rope,
                                                     const fig_heads_turns *turns, const void *head,
                                                     int64_t at, const fig_heads_piece *piece) {
    float x = fig_numeric_load(head, rope->dtype, at + piece->first);
    float y = fig_numeric_load(head, rope->dtype, at + piece->second);
    fig_heads_turn_pair(&x, &y, turns->cosine[piece->pair], turns->sine[piece->pair]);
    return make_float2(x, y);
}

static __device__ __forceinline__ float rounded(float x, int32_t dtype) {
    if (dtype == FIG_F16) return fig_numeric_of_f16(fig_numeric_f16(x));
    if (dtype == FIG_BF16) return fig_numeric_of_bf16(fig_numeric_bf16(x));
    return x;
}

static __device__ void turn_heads(const fig_rope_params *rope, const fig_latent_decode_part *part,
                                  const fig_heads_piece *piece, const shared_state *shared) {
#pragma unroll 1
    for (int32_t head = part->first + fig_block_warp(); head < part->end; head += WARPS) {
        const int64_t at = part->token * rope->q_strides.row + head * rope->q_strides.head;
        const float2 pair = turned_pair(rope, &shared->turns, rope->q, at, piece);
        fig_numeric_store(rope->q_out, rope->dtype, at + piece->first, pair.x);
        fig_numeric_store(rope->q_out, rope->dtype, at + piece->second, pair.y);
    }
}

/* Returns the thread's values of the latent, normalised and rounded. Its i-th value is number
 * first + i * 32. */
static __device__ void load_latent(const fig_latent_decode_params &p, int64_t from, int32_t first,
                                   shared_state *shared, float (&values)[LANE_VALUES]) {
    double squares = 0;
#pragma unroll
    for (int32_t i = 0; i < LANE_VALUES; i++) {
        values[i] = fig_numeric_load(p.latent, p.dtype, from + first + i * FIG_BLOCK_WARP);
        squares += (double)values[i] * (double)values[i];
    }
    if (p.norm == NULL) return;
    const float factor =
        fig_norm_factor(fig_block_sum(squares, shared->sums), FIG_LATENT_DIM, p.norm_epsilon);
#pragma unroll
    for (int32_t i = 0; i < LANE_VALUES; i++) {
        const float weight = fig_numeric_load(p.norm, p.dtype, first + i * FIG_BLOCK_WARP);
        values[i] = rounded(values[i] * (factor * weight), p.dtype);
    }
}

/* Writes a warp's values as codes, and their scale. */
static __device__ void store_codes(uint8_t *token, int32_t first,
                                   const float (&values)[LANE_VALUES]) {
    float most = 0;
#pragma unroll
    for (int32_t i = 0; i < LANE_VALUES; i++)
        most = fmaxf(most, fabsf(values[i]));
#pragma unroll
    for (int32_t apart = FIG_BLOCK_WARP / 2; apart > 0; apart /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
    const float scale = fig_latent_scale(most);
#pragma unroll
    for (int32_t i = 0; i < LANE_VALUES; i++)
        token[first + i * FIG_BLOCK_WARP] = fig_numeric_e4m3(values[i] / scale);
    if (first % FIG_LATENT_SCALE_DIM == 0)
        memcpy(token + FIG_LATENT_SCALES_AT + first / FIG_LATENT_SCALE_DIM * 4, &scale,
               sizeof scale);
}

/* Writes the token to the cache, at element `to`. All threads of the block call this. */
static __device__ void append(const fig_latent_decode_params &p, const fig_rope_params *rope,
                              int32_t token, int64_t to, const fig_heads_piece *piece,
                              shared_state *shared) {
    const int64_t from = token * p.latent_stride;
    const int32_t warp = fig_block_warp(), lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t first = warp * FIG_LATENT_SCALE_DIM + lane;
    float values[LANE_VALUES];
    load_latent(p, from, first, shared, values);
    uint8_t *codes = (uint8_t *)p.k_cache + to;
    if (p.kv_dtype == FIG_E4M3) store_codes(codes, first, values);
    if (p.kv_dtype != FIG_E4M3) {
#pragma unroll
        for (int32_t i = 0; i < LANE_VALUES; i++)
            fig_numeric_store(p.k_cache, p.kv_dtype, to + first + i * FIG_BLOCK_WARP, values[i]);
    }
    if (warp != 0) return;
    const float2 pair = turned_pair(rope, &shared->turns, p.latent, from + FIG_LATENT_DIM, piece);
    const float x[] = {rounded(pair.x, p.dtype), rounded(pair.y, p.dtype)};
#pragma unroll
    for (int32_t i = 0; i < 2; i++) {
        const int32_t at = i == 0 ? piece->first : piece->second;
        if (p.kv_dtype != FIG_E4M3) {
            fig_numeric_store(p.k_cache, p.kv_dtype, to + FIG_LATENT_DIM + at, x[i]);
            continue;
        }
        const uint16_t code = fig_numeric_bf16(x[i]);
        codes[FIG_LATENT_ROPE_AT + 2 * at] = (uint8_t)code;
        codes[FIG_LATENT_ROPE_AT + 2 * at + 1] = (uint8_t)(code >> 8);
    }
}

static __device__ __forceinline__ void do_part(const fig_latent_decode_params &p, int32_t is_packed,
                                               shared_state &shared) {
    fig_rope_params rope = fig_latent_decode_rope(&p);
    fig_append_kv_params where = fig_latent_decode_append(&p);
    if (!is_packed) rope.rows.queries_offset = where.rows.queries_offset = 0;
    const fig_latent_decode_part part = fig_latent_decode_part_of(p.q_heads, blockIdx.x);
    const fig_heads_piece piece = fig_heads_piece_of(
        (int32_t)threadIdx.x % FIG_BLOCK_WARP, 1, FIG_LATENT_ROPE_DIM / 2, rope.rope.interleaved);
    const double frequency = fig_heads_frequency(&rope, &p.angles, (int32_t)threadIdx.x);
    fig_store_token token = fig_store_token_of(&where, part.token);
    fig_block_enter(p.early_reads & FIG_EARLY_READS_ON);
    fig_store_locate(&where, &token);
    const fig_store_words words = fig_store_read(&where, &token);
    if (part.token >= words.rows) return;
    int64_t position;
    fig_angle_position(&rope, part.token, &position);
    fig_heads_make_turn(&rope, (int32_t)threadIdx.x, position, frequency, &shared.turns);
    __syncthreads();
    if (part.first < part.end) {
        turn_heads(&rope, &part, &piece, &shared);
        return;
    }
    const fig_store_place place = fig_store_find(&where, &token, &words);
    if (!place.stands || place.page < 0 || place.page >= p.k_pages) return;
    append(p, &rope, part.token,
           place.page * p.k_cache_strides.page + place.rest * p.k_cache_strides.token, &piece,
           &shared);
}

/* The code for packed programs would cost others some of the time, so each has an entry. */
#define ENTRY(name, is_packed)                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                       \
        fig_kernel_##name(const __grid_constant__ fig_latent_decode_params p) {                    \
        __shared__ shared_state shared;                                                            \
        do_part(p, is_packed, shared);                                                             \
    }
ENTRY(latent_decode, 0)
ENTRY(latent_decode_packed, 1)
