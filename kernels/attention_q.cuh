/* attention_q.cuh: q on its way to the warps that read strips.
 *
 * A warp has 8 vectors of q as the right side of its products, all of a piece long. Owns how they
 * come and, over codes of 8 bits, how they fit f16. Leaves when to attention_warps.cuh. Invariant:
 * vectors that a warp does not have are zeros. */
#ifndef FIG_KERNELS_ATTENTION_Q_CUH
#define FIG_KERNELS_ATTENTION_Q_CUH

#include "kernels/attention_strip.cuh"

/* For each vector of bf16 a power of two that brings its largest number below 2^15. Its lanes know
 * it. Numbers of 16 bits compare as integers do, but for their signs. */
template <class form>
static __device__ __forceinline__ float fig_warps_fit_q(const fig_warps_seen<form> &seen) {
    uint32_t pair = 0;
#pragma unroll
    for (int32_t k = 0; k < form::TILES; k++)
        pair = __vimax3_u16x2(pair, seen.q[k][0] & 0x7fff7fffu, seen.q[k][1] & 0x7fff7fffu);
    pair = __vmaxu2(pair, __shfl_xor_sync(0xffffffffu, pair, 1));
    pair = __vmaxu2(pair, __shfl_xor_sync(0xffffffffu, pair, 2));
    const uint32_t exponent = max(pair & 0xffffu, pair >> 16) >> 7; /* 2^14 has 141 */
    return __uint_as_float(min(268u - exponent, 253u) << 23);
}

/* The chunks of q that a lane brings of what the warps that share a head need; behind the last the
 * last again. Lanes need words that lie apart, of which every load would be eight cache lines: so
 * they come by whole chunks and go through shared memory. */
template <class form> struct fig_warps_rows {
    static constexpr int32_t CHUNKS = form::HEAD_DIM * 2 / FIG_RING_CHUNK; /* of a vector */
    static constexpr int32_t LANES = FIG_BLOCK_WARP * (form::SHARES > 0 ? form::SHARES : 1);
    static constexpr int32_t LOADS = (FIG_FORM_VECTORS * CHUNKS + LANES - 1) / LANES;
    static constexpr int32_t WORDS = form::HEAD_DIM / 2 + 4; /* apart, so that banks differ */
    const uint32_t *from[LOADS];
    int32_t to[LOADS]; /* in words */
    int32_t loads;
    uint4 chunks[LOADS];
};

template <class form>
static __device__ __forceinline__ fig_warps_rows<form>
fig_warps_rows_of_q(const fig_attention_params &p, const fig_warps_role &role,
                    const fig_partials_place &place) {
    const int32_t CHUNKS = fig_warps_rows<form>::CHUNKS, count = role.count * CHUNKS;
    const int32_t LANES = fig_warps_rows<form>::LANES;
    const int32_t lane = form::SHARES > 0 ? role.share * FIG_BLOCK_WARP + role.lane : role.lane;
    fig_warps_rows<form> rows;
    rows.loads = (count + LANES - 1) / LANES;
#pragma unroll
    for (int32_t i = 0; i < fig_warps_rows<form>::LOADS; i++) {
        const int32_t chunk = fig_size_min(lane + i * LANES, count - 1);
        const int32_t n = chunk / CHUNKS;
        const fig_pieces_vector from = fig_partials_vector(p, place, n);
        const uint16_t *q =
            (const uint16_t *)p.q + from.row * p.q_strides.row + from.q_head * p.q_strides.head;
        rows.from[i] = (const uint32_t *)q + chunk % CHUNKS * 4;
        rows.to[i] = n * fig_warps_rows<form>::WORDS + chunk % CHUNKS * 4;
    }
    return rows;
}

/* Word by word where q's vectors do not begin at whole chunks. */
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

/* q of the row's vectors; those that are none are some other's. Codes of 8 bits come four to a
 * word, which are columns 2t and 2t + 1 and, in the other half, 2t + 8 and 2t + 9: q follows them.
 */
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

/* q as f16: of bf16 each vector times a power of two that its scale takes back. */
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

/* Makes of them what logits are multiplied by: vectors that are none are zeros. */
template <class form>
static __device__ __forceinline__ void
fig_warps_take_q(const fig_attention_params &p, const fig_warps_role &role,
                 const fig_partials_place &place, fig_warps_seen<form> *seen) {
    const int32_t is_none = role.row >= role.count;
#pragma unroll
    for (int32_t k = 0; k < form::TILES; k++)
        if (is_none) seen->q[k][0] = seen->q[k][1] = 0;
    float scale = p.sm_scale * fig_cache_scale(p.k_scale, p.k_scales, place.kv_head);
    seen->scale[0] = seen->scale[1] = scale * FIG_NUMERIC_LOG2_E;
    if constexpr (form::VALUE_BYTES == 1) fig_warps_halve_q<form>(p, role, seen);
}

#endif
