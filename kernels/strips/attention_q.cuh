/* attention_q.cuh: loads q for the warps that read strips.
 *
 * A warp keeps 8 vectors of q as the right operand of its products for a whole piece. Owns the
 * loading of the vectors and, for caches of 8-bit codes, their scaling to fit f16.
 * attention_warps.cuh decides when to load. Invariant: if a warp has fewer vectors, it loads
 * another vector in place of each missing one; no address outside the row's query tokens is
 * read. */
#ifndef FIG_KERNELS_ATTENTION_Q_CUH
#define FIG_KERNELS_ATTENTION_Q_CUH

#include "kernels/strips/attention_strip.cuh"

/* Returns, for each bf16 vector, the power of two that brings the vector's largest number below
 * 2^15. Each lane that holds the vector returns the same power. With the sign bits cleared, 16-bit
 * floats compare as integers do. */
template <class form>
static __device__ __forceinline__ float fig_warps_fit_q(const fig_warps_seen<form> &seen) {
    uint32_t pair = 0;
#pragma unroll
    for (int32_t k = 0; k < form::TILES; k++)
        pair = __vimax3_u16x2(pair, seen.q[k][0] & 0x7fff7fffu, seen.q[k][1] & 0x7fff7fffu);
    pair = __vmaxu2(pair, __shfl_xor_sync(0xffffffffu, pair, 1));
    pair = __vmaxu2(pair, __shfl_xor_sync(0xffffffffu, pair, 2));
    /* the exponent field of 2^14 is 141 */
    const uint32_t exponent = max(pair & 0xffffu, pair >> 16) >> 7;
    return __uint_as_float(min(268u - exponent, 253u) << 23);
}

/* Holds the chunks of q that a lane loads for the warps that share a head. A lane without a chunk
 * loads the last chunk again. The words that a lane needs lie far apart, so loading each word alone
 * would touch eight cache lines. Therefore the lanes load q in whole chunks and distribute them
 * through shared memory. */
template <class form> struct fig_warps_rows {
    static constexpr int32_t CHUNKS = form::HEAD_DIM * 2 / FIG_RING_CHUNK; /* chunks of a vector */
    static constexpr int32_t LANES = FIG_BLOCK_WARP * (form::SHARES > 0 ? form::SHARES : 1);
    static constexpr int32_t LOADS = (FIG_GEOMETRY_VECTORS * CHUNKS + LANES - 1) / LANES;
    /* distance between two vectors, chosen to avoid bank conflicts */
    static constexpr int32_t WORDS = form::HEAD_DIM / 2 + 4;
    const uint32_t *from[LOADS];
    int32_t to[LOADS]; /* in words */
    int32_t loads;
    uint4 chunks[LOADS];
};

template <class form>
static __device__ __forceinline__ fig_warps_rows<form>
fig_warps_rows_of_q(const fig_attention_params &p, const fig_warps_role &role,
                    const fig_partials_place &place) {
    const int32_t CHUNKS = fig_warps_rows<form>::CHUNKS, count = max(place.count, 1) * CHUNKS;
    const int32_t LANES = fig_warps_rows<form>::LANES;
    const int32_t lane =
        form::SHARES > 0 ? FIG_WARPS_PART(role) * FIG_BLOCK_WARP + role.lane : role.lane;
    fig_warps_rows<form> rows;
    rows.loads = (count + LANES - 1) / LANES;
#pragma unroll
    for (int32_t i = 0; i < fig_warps_rows<form>::LOADS; i++) {
        const int32_t chunk = fig_size_min(lane + i * LANES, count - 1);
        const int32_t n = chunk / CHUNKS;
        const fig_pieces_vector from = fig_partials_vector(place, n);
        const uint16_t *q =
            (const uint16_t *)p.q + from.row * p.q_strides.row + from.q_head * p.q_strides.head;
        rows.from[i] = (const uint32_t *)q + chunk % CHUNKS * 4;
        rows.to[i] = n * fig_warps_rows<form>::WORDS + chunk % CHUNKS * 4;
    }
    return rows;
}

/* Loads q, word by word if the vectors do not begin at multiples of 16 bytes. */
template <class form>
static __device__ __forceinline__ void fig_warps_ask_q(const fig_attention_params &p,
                                                       fig_warps_rows<form> *rows) {
    const int32_t LOADS = fig_warps_rows<form>::LOADS;
    const uint64_t places =
        (uint64_t)p.q | (uint64_t)p.q_strides.row * 2 | (uint64_t)p.q_strides.head * 2;
    if (places % FIG_RING_CHUNK == 0) {
#pragma unroll
        for (int32_t i = 0; i < LOADS; i++)
            if (i < rows->loads) rows->chunks[i] = *(const uint4 *)rows->from[i];
        return;
    }
#pragma unroll
    for (int32_t i = 0; i < LOADS; i++) {
        const uint32_t *q = rows->from[i];
        if (i < rows->loads) rows->chunks[i] = make_uint4(q[0], q[1], q[2], q[3]);
    }
}

template <class form>
static __device__ __forceinline__ void fig_warps_leave_q(const fig_warps_rows<form> &rows,
                                                         uint32_t *q) {
#pragma unroll
    for (int32_t i = 0; i < fig_warps_rows<form>::LOADS; i++)
        if (i < rows.loads) *(uint4 *)(q + rows.to[i]) = rows.chunks[i];
}

/* Loads q of the row's vectors. Another vector replaces a missing one. In a cache of 8-bit codes, a
 * word holds four codes: columns 2t and 2t + 1 in one half, 2t + 8 and 2t + 9 in the other. q has
 * the same order. */
template <class form>
static __device__ __forceinline__ void
fig_warps_load_q(const fig_warps_role &role, const uint32_t *q, fig_warps_seen<form> *seen) {
    const int32_t of_column = form::VALUE_BYTES == 1 ? 2 : 1;
    const int32_t apart = form::VALUE_BYTES == 1 ? 1 : 4;
    q += fig_size_min(role.row, role.count - 1) * fig_warps_rows<form>::WORDS +
         of_column * role.column;
#pragma unroll
    for (int32_t k = 0; k < form::TILES; k++) {
        seen->q[k][0] = q[8 * k];
        seen->q[k][1] = q[8 * k + apart];
    }
}

/* Converts q to f16. A bf16 vector is first multiplied by a power of two, and its scale is divided
 * by the same power. */
template <class form>
static __device__ __forceinline__ void fig_warps_halve_q(const fig_attention_params &p,
                                                         const fig_warps_role &role,
                                                         fig_warps_seen<form> *seen) {
    if (p.dtype == FIG_F16) return;
    const float fit = fig_warps_fit_q(*seen);
    const float back = __uint_as_float((254u << 23) - __float_as_uint(fit)); /* 1 / fit */
    seen->scale[0] *= __shfl_sync(0xffffffffu, back, role.column * 8);
    seen->scale[1] *= __shfl_sync(0xffffffffu, back, role.column * 8 + 4);
#pragma unroll
    for (int32_t k = 0; k < form::TILES; k++) {
#pragma unroll
        for (int32_t half = 0; half < 2; half++) {
            const float2 x = fig_warps_widen_q(FIG_BF16, seen->q[k][half]);
            seen->q[k][half] = fig_fragment_pair<FIG_F16>(x.x * fit, x.y * fit);
        }
    }
}

/* Prepares q for the products. Vectors that do not exist become zeros. */
template <class form>
static __device__ __forceinline__ void
fig_warps_take_q(const fig_attention_params &p, const fig_warps_role &role,
                 const fig_partials_place &place, float k_scale, fig_warps_seen<form> *seen) {
    const int32_t is_none = role.row >= place.count;
#pragma unroll
    for (int32_t k = 0; k < form::TILES; k++)
        if (is_none) seen->q[k][0] = seen->q[k][1] = 0;
    seen->scale[0] = seen->scale[1] = p.sm_scale * k_scale * FIG_WARPS_BASE;
    if constexpr (form::VALUE_BYTES == 1) fig_warps_halve_q<form>(p, role, seen);
}

#endif
