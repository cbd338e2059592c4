/* readers.cuh: holds what every warp that reads the ring of strips does, whichever instructions
 * multiply the strips.
 *
 * Owns the reading of notes, the passing of strips, the end of a segment's pieces, and which tokens
 * a query sees. Invariant: whole warps call all functions. */
#ifndef FIG_KERNELS_READERS_CUH
#define FIG_KERNELS_READERS_CUH

#include "kernels/common/machine.cuh"
#include "kernels/strips/kv_feed.cuh"

/* the barrier of all warps that empty the ring; others of theirs have lower numbers */
enum { FIG_WARPS_BARRIER = 15 };

/* ---- The ring */

static __device__ __forceinline__ fig_ring_note fig_warps_read(const fig_ring &ring) {
    fig_ring_wait_full(ring, FIG_RING_K);
    return fig_ring_read(ring);
}

/* Leaves the next strip in the ring to other warps. A warp may release V of a strip only after all
 * warps have released the V that was in the slot before; otherwise its release would count for that
 * V, which a slower warp may still read. When V of this strip has arrived, they have. That K has
 * arrived proves it only for K. */
static __device__ __forceinline__ void fig_warps_pass_strip(const fig_ring &ring) {
    fig_ring_release(ring, FIG_RING_K);
    fig_ring_wait_full(ring, FIG_RING_V);
    fig_ring_release(ring, FIG_RING_V);
}

/* Counts a piece as finished, for all warps that empty the ring. Returns 1 if the piece is the last
 * one of its segment. The caller then sees the results of all other pieces, and the counter is 0
 * again. */
static __device__ __forceinline__ uint32_t fig_warps_is_last(const fig_attention_params &p,
                                                             const fig_ring &ring,
                                                             const fig_ring_note &note) {
    const int32_t threads = ring.readers * FIG_BLOCK_WARP;
    __threadfence();
    fig_ring_meet(FIG_WARPS_BARRIER, threads);
    if (threadIdx.x == 0) {
        uint32_t *counter = &p.counters[fig_split_segment(&p.split, note.row, note.group)];
        const uint32_t last = (uint32_t)(note.end - note.first);
        ring.state->is_last = atomicInc(counter, last) == last;
    }
    fig_ring_meet(FIG_WARPS_BARRIER, threads);
    __threadfence();
    return ring.state->is_last;
}

/* ---- Vectors */

/* The scales of a head's codes. */
typedef struct fig_warps_scales {
    float k, v;
} fig_warps_scales;

/* Loads the scale of K or V where the call stands. The compiler would load V's where the piece
 * ends, and K's behind the wait for q. */
static __device__ __forceinline__ float fig_warps_scale_of(const float *scales, int32_t count,
                                                           int32_t kv_head) {
    if (scales == NULL) return 1;
    return fig_machine_load_here(&scales[count > 1 ? kv_head : 0]);
}

static __device__ __forceinline__ fig_warps_scales
fig_warps_scales_of(const fig_attention_params &p, int32_t kv_head) {
    fig_warps_scales scales;
    scales.k = fig_warps_scale_of(p.k_scale, p.k_scales, kv_head);
    scales.v = fig_warps_scale_of(p.v_scale, p.v_scales, kv_head);
    return scales;
}

/* Converts two neighbouring numbers of q to f32. */
static __device__ __forceinline__ float2 fig_warps_widen_q(int32_t dtype, uint32_t pair) {
    if (dtype == FIG_BF16)
        return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    return __half22float2(*(const __half2 *)&pair);
}

/* Returns the position of a query. */
static __device__ __forceinline__ int32_t fig_warps_position(const fig_attention_params &p,
                                                             const fig_ring_note &note,
                                                             int32_t query) {
    return note.length - p.split.row_tokens + query;
}

static __device__ __forceinline__ fig_strip_range fig_warps_sees(const fig_attention_params &p,
                                                                 const fig_ring_note &note,
                                                                 int32_t query) {
    const int32_t end = fig_warps_position(p, note, query) + 1, window = p.split.window;
    const int32_t first = window > 0 && end > window ? end - window : 0;
    fig_strip_range seen = {max(first, note.first), min(end, note.end)};
    return seen;
}

#endif
