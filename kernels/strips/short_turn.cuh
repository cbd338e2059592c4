/* short_turn.cuh: applies RoPE and append within attention over short rows, for a launch that does
 * all of decode_attention.
 *
 * Each block of a cluster has all vectors of q of its row's kv head, and one warp of the cluster
 * has the row's newest token. A lane has both numbers of each pair of q in registers, applies RoPE
 * there, and never writes q back. The warp with the newest token applies RoPE to k; the other
 * number of each pair of k is in another lane. If the cache has codes, this warp converts k and v.
 * It then puts k and v into its turn, as short_feed.cuh does with a token that is loaded again, and
 * writes both to the cache when the block's sums are in flight. No block waits for the part of the
 * cache that this launch writes.
 *
 *     angles  [cosines, sines][head_dim / 2], of the row's position, shared by the block
 *
 * Premises, checked by the family: those of attention_short.cuh and attention_turn.cuh; k and v
 * consist of whole chunks. Invariant: out and the cache equal, bit for bit, the results of
 * separate launches of rope, append_kv and attention, if the newest token has a page of the cache
 * (otherwise this launch sees its own k and v, and separate ones see page 0); no thread writes to a
 * page outside the cache. */
#ifndef FIG_KERNELS_SHORT_TURN_CUH
#define FIG_KERNELS_SHORT_TURN_CUH

#include "kernels/strips/short_feed.cuh"

/* Holds a chunk of a head: four words of two 16-bit numbers. */
typedef struct fig_short_chunk {
    uint32_t of[4];
} fig_short_chunk;

/* ---- Angles */

/* Returns the row's angles, which are not set if q and k do not change. All threads of the block
 * call this function, and each computes the angle of one pair. */
template <class form>
static __device__ __forceinline__ const float *fig_short_make_angles(const fig_attention_params &p,
                                                                     int32_t position) {
    const int32_t PAIRS = form::HEAD_DIM / 2, pair = (int32_t)threadIdx.x;
    __shared__ __align__(16) float angles[form::HEAD_DIM];
    static_assert(PAIRS <= form::THREADS, "a thread for each pair");
    if (fig_turn_is_plain(p)) return angles;
    const fig_rope_table *table = &p.turn.angles.table;
    const float factor = (float)table->factor;
    float cosine, sine;
    fig_heads_turn_of(max(position, 0) * table->frequencies[min(pair, PAIRS - 1)], &cosine, &sine);
    if (pair < PAIRS) {
        angles[pair] = cosine * factor;
        angles[PAIRS + pair] = sine * factor;
    }
    __syncthreads();
    return angles;
}

/* ---- Chunks */

static __device__ __forceinline__ double fig_short_squares(const fig_short_chunk &x,
                                                           int32_t dtype) {
    double squares = 0;
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const float2 pair = fig_turn_widen(dtype, x.of[i]);
        squares += (double)pair.x * (double)pair.x + (double)pair.y * (double)pair.y;
    }
    return squares;
}

/* Returns two numbers after the norm. norm: NULL if NORMED is 0. */
template <int32_t NORMED>
static __device__ __forceinline__ float2 fig_short_normed(uint32_t word, const uint32_t *norm,
                                                          float factor, int32_t dtype) {
    const float2 x = fig_turn_widen(dtype, word);
    if constexpr (NORMED) return fig_turn_normed(x, *norm, factor, dtype);
    return x;
}

/* Returns chunk `chunk` of a head after norm and RoPE. `other` is the chunk half a head before or
 * after `chunk` and has the other numbers of its pairs. Every product is rounded before it is
 * added. */
template <class form, int32_t NORMED>
static __device__ __forceinline__ fig_short_chunk
fig_short_turn_chunk(const fig_short_chunk &own, const fig_short_chunk &other, int32_t chunk,
                     const float *angles, const void *norm, float factor, int32_t dtype) {
    const int32_t HALF = form::OF_HEAD / 2, PAIRS = form::HEAD_DIM / 2;
    const int32_t first = chunk % HALF * 4; /* in words */
    const uint32_t *weights = (const uint32_t *)norm;
    const float sign = chunk >= HALF ? 1.0f : -1.0f;
    fig_short_chunk turned;
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const int32_t at = 4 * chunk + i, apart = chunk >= HALF ? -4 * HALF : 4 * HALF;
        const float2 cosine = ((const float2 *)angles)[first + i];
        const float2 sine = ((const float2 *)(angles + PAIRS))[first + i];
        const float2 x = fig_short_normed<NORMED>(own.of[i], weights + at, factor, dtype);
        const float2 y = fig_short_normed<NORMED>(other.of[i], weights + at + apart, factor, dtype);
        turned.of[i] =
            fig_vector_pair(__fmul_rn(x.x, cosine.x) + sign * __fmul_rn(y.x, sine.x),
                            __fmul_rn(x.y, cosine.y) + sign * __fmul_rn(y.y, sine.y), dtype);
    }
    return turned;
}

/* ---- q */

template <class form>
static __device__ __forceinline__ fig_short_chunk
fig_short_chunk_of_q(const uint32_t (&q)[form::TILES][2], int32_t i) {
    return {{q[2 * i][0], q[2 * i][1], q[2 * i + 1][0], q[2 * i + 1][1]}};
}

template <class form>
static __device__ __forceinline__ void fig_short_put_q(const fig_short_chunk &x, int32_t i,
                                                       uint32_t (&q)[form::TILES][2]) {
    q[2 * i][0] = x.of[0];
    q[2 * i][1] = x.of[1];
    q[2 * i + 1][0] = x.of[2];
    q[2 * i + 1][1] = x.of[3];
}

/* Returns the number, within the head, of the lane's chunk i. The order is that of
 * fig_short_load_q(). */
template <class form>
static __device__ __forceinline__ int32_t fig_short_number_of_q(int32_t column, int32_t i) {
    const int32_t ABREAST = form::TILES_OF_LOAD;
    return (i / ABREAST * 4 + column) * ABREAST + i % ABREAST;
}

/* Returns the chunk with the other numbers of the pairs of the lane's chunk i. Usually that chunk
 * is in the same lane. It is in the lane two columns on if heads are short and the cache has codes,
 * or if each lane has an odd number of chunks. In the latter case it is half a head on, and each of
 * the two lanes gives the chunk that the other needs. */
template <class form>
static __device__ __forceinline__ fig_short_chunk
fig_short_other_of_q(const uint32_t (&q)[form::TILES][2], int32_t column, int32_t i) {
    const int32_t COUNT = form::OF_HEAD / 4, HALF = COUNT / 2;
    if constexpr (COUNT > 1 && COUNT % 2 != 0) {
        const fig_short_chunk near = fig_short_chunk_of_q<form>(q, (i + HALF) % COUNT);
        const fig_short_chunk far = fig_short_chunk_of_q<form>(q, (i + HALF + 1) % COUNT);
        fig_short_chunk other;
#pragma unroll
        for (int32_t n = 0; n < 4; n++)
            other.of[n] = __shfl_xor_sync(0xffffffffu, column >= 2 ? near.of[n] : far.of[n], 2);
        return other;
    }
    if (COUNT > form::TILES_OF_LOAD) return fig_short_chunk_of_q<form>(q, (i + HALF) % COUNT);
    fig_short_chunk other = fig_short_chunk_of_q<form>(q, i);
#pragma unroll
    for (int32_t n = 0; n < 4; n++)
        other.of[n] = __shfl_xor_sync(0xffffffffu, other.of[n], 2);
    return other;
}

template <class form, int32_t NORMED>
static __device__ __forceinline__ void
fig_short_turn_chunks(const fig_attention_params &p, int32_t column, const float *angles,
                      float factor, uint32_t (&q)[form::TILES][2]) {
    fig_short_chunk turned[form::OF_HEAD / 4];
#pragma unroll
    for (int32_t i = 0; i < form::OF_HEAD / 4; i++)
        turned[i] = fig_short_turn_chunk<form, NORMED>(
            fig_short_chunk_of_q<form>(q, i), fig_short_other_of_q<form>(q, column, i),
            fig_short_number_of_q<form>(column, i), angles, p.turn.q_norm, factor,
            fig_turn_dtype<form>(p));
#pragma unroll
    for (int32_t i = 0; i < form::OF_HEAD / 4; i++)
        fig_short_put_q<form>(turned[i], i, q);
}

template <class form>
static __device__ __forceinline__ void fig_short_turn_q(const fig_attention_params &p,
                                                        int32_t column, const float *angles,
                                                        uint32_t (&q)[form::TILES][2]) {
    double squares = 0;
    if (__builtin_expect(p.turn.q_norm == NULL, 1))
        return fig_short_turn_chunks<form, 0>(p, column, angles, 1, q);
#pragma unroll
    for (int32_t i = 0; i < form::OF_HEAD / 4; i++)
        squares += fig_short_squares(fig_short_chunk_of_q<form>(q, i), fig_turn_dtype<form>(p));
    fig_short_turn_chunks<form, 1>(
        p, column, angles, fig_heads_factor(squares, 4, form::HEAD_DIM, p.turn.norm_epsilon), q);
}

/* ---- The newest token */

/* Finds the addresses of the newest k and v, and their destinations in the cache. */
template <class form>
static __device__ __forceinline__ void fig_short_find_own(const fig_attention_params &p,
                                                          const fig_short_row &row,
                                                          fig_short_newest<form> *newest) {
    int32_t within;
    const int32_t page = fig_short_number(p, row, row.length - 1, &within);
#pragma unroll
    for (int32_t n = 0; n < fig_short_newest<form>::COUNT; n++) {
        const int32_t at = fig_short_newest_at<form>(n), is_v = at >= form::OF_HEAD;
        const fig_row_strides rows = is_v ? p.turn.v_strides : p.turn.k_strides;
        const fig_cache_strides strides = is_v ? p.v_cache_strides : p.k_cache_strides;
        const int32_t first = at % form::OF_HEAD * 8; /* a number's index in the head */
        newest->from[n] = (const uint8_t *)(is_v ? p.turn.v : p.turn.k) +
                          2 * (row.row * rows.row + row.kv_head * rows.head + first);
        newest->to[n] = (uint8_t *)(is_v ? p.v_cache : p.k_cache) +
                        form::VALUE_BYTES * (page * strides.page + within * strides.token +
                                             row.kv_head * strides.head + first);
        if (page < 0 || page >= (is_v ? p.v_pages : p.k_pages)) newest->to[n] = NULL;
    }
}

/* Applies norm and RoPE to the lane's chunk `at` of k. All lanes call this function, because some
 * lanes hold chunks that other lanes need. */
template <class form, int32_t NORMED>
static __device__ __forceinline__ fig_short_chunk fig_short_turn_k(const fig_attention_params &p,
                                                                   const fig_short_chunk &own,
                                                                   int32_t at,
                                                                   const float *angles) {
    const int32_t dtype = fig_turn_dtype<form>(p), HALF = form::OF_HEAD / 2;
    const int32_t is_power = (form::OF_HEAD & (form::OF_HEAD - 1)) == 0;
    fig_short_chunk other;
    float factor = 1;
#pragma unroll
    for (int32_t i = 0; i < 4; i++)
        other.of[i] = is_power ? __shfl_xor_sync(0xffffffffu, own.of[i], HALF)
                               : __shfl_sync(0xffffffffu, own.of[i], (at + HALF) % form::OF_HEAD);
    if (NORMED) {
        double squares = fig_short_squares(own, dtype);
        if (!is_power && at >= form::OF_HEAD) squares = 0;
        factor = fig_heads_factor(squares, is_power ? form::OF_HEAD : FIG_BLOCK_WARP,
                                  form::HEAD_DIM, p.turn.norm_epsilon);
    }
    return fig_short_turn_chunk<form, NORMED>(own, other, at % form::OF_HEAD, angles, p.turn.k_norm,
                                              factor, dtype);
}

/* Applies norm and RoPE to k and leaves v unchanged. If the cache has codes, converts both. If a
 * head takes at most half of the lanes, one load brings k and v; otherwise the first load brings
 * only k. */
template <class form>
static __device__ __forceinline__ void
fig_short_turn_newest(const fig_attention_params &p, const fig_short_row &row, const float *angles,
                      fig_short_newest<form> *newest) {
    const int32_t at = fig_short_newest_at<form>(0);
    uint4 *x = &newest->chunks[0];
    const fig_short_chunk own = {{x->x, x->y, x->z, x->w}};
    fig_short_chunk turned = own;
    if (__builtin_expect(p.turn.k_norm != NULL, 0)) {
        turned = fig_short_turn_k<form, 1>(p, own, at, angles);
    } else if (!fig_turn_is_plain(p)) {
        turned = fig_short_turn_k<form, 0>(p, own, at, angles);
    }
    if (at < form::OF_HEAD) *x = make_uint4(turned.of[0], turned.of[1], turned.of[2], turned.of[3]);
    if constexpr (fig_short_newest<form>::IS_HALVED) {
#pragma unroll
        for (int32_t n = 0; n < fig_short_newest<form>::COUNT; n++) {
            const int32_t is_v = fig_short_newest_at<form>(n) >= form::OF_HEAD;
            const uint2 codes = fig_store_codes_of(newest->chunks[n], p.dtype, form::KV_DTYPE,
                                                   is_v ? row.v_scale : row.k_scale);
            newest->chunks[n] = make_uint4(codes.x, codes.y, 0, 0);
        }
    }
}

/* Writes the chunks to the cache. Lanes past the last chunk write that chunk again. */
template <class form>
static __device__ __forceinline__ void
fig_short_append_newest(const fig_short_newest<form> &newest) {
#pragma unroll
    for (int32_t n = 0; n < fig_short_newest<form>::COUNT; n++)
        if (newest.to[n] != NULL) fig_short_put_chunk<form>(newest.to[n], newest.chunks[n]);
}

#endif
