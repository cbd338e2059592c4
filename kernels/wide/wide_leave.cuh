/* wide_leave.cuh: writes the state of a warpgroup's vectors to out or to a partial.
 *
 * The pieces of a strip that is cut are merged in pairs. Whichever warp finishes last merges, so no
 * warp ever waits for another. Each pair has a counter for each set of 16 vectors; the counter
 * names the piece whose partial is ready.
 *
 * Owns how a vector lies in a partial: in the order in which the four threads of a quad hold it, 16
 * bytes of each in turn, so that they access 64 bytes together. Invariant: the bits of a merged
 * vector do not depend on which warp merges. */
#ifndef FIG_KERNELS_WIDE_LEAVE_CUH
#define FIG_KERNELS_WIDE_LEAVE_CUH

#include "kernels/attention/logit.h"
#include "kernels/wide/wide_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Locates the 64 vectors of a warpgroup's part of an item. */
struct fig_wide_way {
    int32_t is_shared;
    int32_t ends;        /* 1: the item ends before the warpgroup's next one begins */
    int32_t is_last;     /* 1: the warpgroup has no further item */
    int32_t is_row;      /* 1: the strip has few vectors, and is whole and a row's own tokens */
    int32_t query, head; /* of the first vector; query: a member if the strip is shared */
    int32_t slot;        /* the piece's, behind the first slot of each member */
    int32_t first_slot;  /* index in the partials of the first vector of slots */
    const fig_strips_member *members; /* of the first vector on; in shared memory if they are few */
    int32_t first;                    /* the first vector's number in the strip */
    int32_t count;                    /* vectors that exist, at most 64 */
    int32_t strip;                    /* vectors of the strip */
    int32_t piece, pieces;
    int32_t first_partial, counter; /* the strip's first partial; the warp's counter */
};

/* Holds the factor that turns a vector's sums into its result, the LSE, and the destination. */
struct fig_wide_result {
    float scale, lse;
    int64_t at; /* element of out */
};

/* Returns the result of a vector and writes its LSE. Of the lanes that hold the vector, only lane 0
 * writes. */
static __device__ __forceinline__ fig_wide_result
fig_wide_result_of(const fig_prompt_attention_params &p, int64_t row, int32_t head, float greatest,
                   float weights, int32_t lane) {
    fig_wide_result result;
    float shrink = 1.0f;
    if (p.sinks != NULL) {
        const float sink = p.sinks[head] * FIG_NUMERIC_LOG2_E, before = greatest;
        greatest = fmaxf(greatest, sink);
        shrink = fig_wide_exp2(before - greatest);
        weights = weights * shrink + fig_wide_exp2(sink - greatest);
    }
    result.scale = weights > 0.0f ? __fdividef(shrink, weights) : 0.0f;
    result.at = row * p.out_strides.row + head * p.out_strides.head;
    result.lse = weights > 0.0f ? greatest + __log2f(weights) : FIG_WIDE_MINUS_INFINITY;
    if (p.lse != NULL && lane == 0) p.lse[row * p.lse_stride + head] = result.lse;
    return result;
}

/* ---- Merges */

/* Merges the partial of another piece into the warp's sums. That partial may already stand for
 * several pieces. The products and their order follow the line, whether the warp has the left or
 * the right side. Each side has its own loop: a choice per sum would need more registers than the
 * sums of 256 dims leave. */
template <class form>
static __device__ __forceinline__ void
fig_wide_merge(const fig_prompt_attention_params &p, const fig_wide_way &way, int32_t piece,
               float (&sums)[form::DIM / 2], float (&greatest)[2], float (&weights)[2], int32_t row,
               int32_t quad) {
    const int32_t is_left = way.piece < piece;
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t vector = row + 8 * h;
        if (vector >= way.count) continue;
        const int64_t at = way.first_partial + (int64_t)piece * way.strip + way.first + vector;
        const float4 *from = (const float4 *)(p.partials + at * form::DIM) + quad;
        const float2 state = __ldcg((const float2 *)p.sums + at);
        const float most = fmaxf(greatest[h], state.x);
        const float own = fig_wide_exp2(greatest[h] - most);
        const float other = fig_wide_exp2(state.x - most);
        const float left = is_left ? own : other, right = is_left ? other : own;
        if (is_left) {
#pragma unroll
            for (int32_t i = 0; i < form::DIM / 16; i++) {
                const float4 theirs = __ldcg(from + 4 * i);
                float *const mine = sums + 8 * i + 2 * h;
                mine[0] = __fmaf_rn(theirs.x, other, __fmul_rn(mine[0], own));
                mine[1] = __fmaf_rn(theirs.y, other, __fmul_rn(mine[1], own));
                mine[4] = __fmaf_rn(theirs.z, other, __fmul_rn(mine[4], own));
                mine[5] = __fmaf_rn(theirs.w, other, __fmul_rn(mine[5], own));
            }
        } else {
#pragma unroll
            for (int32_t i = 0; i < form::DIM / 16; i++) {
                const float4 theirs = __ldcg(from + 4 * i);
                float *const mine = sums + 8 * i + 2 * h;
                mine[0] = __fmaf_rn(mine[0], own, __fmul_rn(theirs.x, other));
                mine[1] = __fmaf_rn(mine[1], own, __fmul_rn(theirs.y, other));
                mine[4] = __fmaf_rn(mine[4], own, __fmul_rn(theirs.z, other));
                mine[5] = __fmaf_rn(mine[5], own, __fmul_rn(theirs.w, other));
            }
        }
        const float a = is_left ? weights[h] : state.y, b = is_left ? state.y : weights[h];
        weights[h] = __fmaf_rn(b, right, __fmul_rn(a, left));
        greatest[h] = most;
    }
}

/* Writes the sums of the thread's vector h to partial `at`. */
template <class form>
static __device__ __forceinline__ void
fig_wide_store_partial(const fig_prompt_attention_params &p, int64_t at,
                       const float (&sums)[form::DIM / 2], int32_t h, int32_t quad) {
    float4 *to = (float4 *)(p.partials + at * form::DIM) + quad;
#pragma unroll
    for (int32_t i = 0; i < form::DIM / 16; i++) {
        const float *const mine = sums + 8 * i + 2 * h;
        __stcg(to + 4 * i, make_float4(mine[0], mine[1], mine[4], mine[5]));
    }
}

/* Writes the warp's sums to the partial of its piece. */
template <class form>
static __device__ __forceinline__ void
fig_wide_store(const fig_prompt_attention_params &p, const fig_wide_way &way,
               const float (&sums)[form::DIM / 2], const float (&greatest)[2],
               const float (&weights)[2], int32_t row, int32_t quad) {
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t vector = row + 8 * h;
        if (vector >= way.count) continue;
        const int64_t at = way.first_partial + (int64_t)way.piece * way.strip + way.first + vector;
        fig_wide_store_partial<form>(p, at, sums, h, quad);
        if (quad == 0) __stcg((float2 *)p.sums + at, make_float2(greatest[h], weights[h]));
    }
}

/* Returns the piece whose partial the counter names, or -1. Lane 0 reads the counter for the
 * warp. */
static __device__ __forceinline__ int32_t fig_wide_look(uint32_t *counter, int32_t lane) {
    uint32_t seen = 0;
    if (lane == 0) seen = fig_wide_acquire(counter);
    return (int32_t)__shfl_sync(0xffffffffu, seen, 0) - 1;
}

/* Stores the warp's piece in the counter. Returns the piece that another warp stored before, or -1.
 * The exchange orders accesses to partials before and after it. */
static __device__ __forceinline__ int32_t fig_wide_name(uint32_t *counter, int32_t piece,
                                                        int32_t lane) {
    uint32_t seen = 0;
    __syncwarp();
    if (lane == 0) seen = fig_wide_exchange(counter, (uint32_t)piece + 1);
    return (int32_t)__shfl_sync(0xffffffffu, seen, 0) - 1;
}

/* Merges the pieces of the warp's 16 vectors as a binary tree over the line: [0, 1], [2, 3], then
 * [0 .. 3], and so on. A node has two sides. The warp that finishes its side first writes a partial
 * and stops; the warp of the other side merges the partial and goes on. A node's number is the
 * first piece of its right side. Returns 1 if the warp has the sums of all pieces. */
template <class form>
static __device__ __forceinline__ int32_t fig_wide_climb(const fig_prompt_attention_params &p,
                                                         const fig_wide_way &way,
                                                         float (&sums)[form::DIM / 2],
                                                         float (&greatest)[2], float (&weights)[2],
                                                         int32_t row, int32_t quad, int32_t lane) {
#pragma unroll 1
    for (int32_t level = 0; 1 << level < way.pieces; level++) {
        const int32_t node = (way.piece >> level | 1) << level;
        if (node >= way.pieces) continue; /* the other side is empty */
        uint32_t *counter = p.counters + way.counter + node * FIG_STRIPS_ARRIVALS;
        int32_t other = fig_wide_look(counter, lane);
        if (other < 0) {
            fig_wide_store<form>(p, way, sums, greatest, weights, row, quad);
            other = fig_wide_name(counter, way.piece, lane);
            if (other < 0) return 0;
        }
        if (lane == 0) *counter = 0;
        fig_wide_merge<form>(p, way, other, sums, greatest, weights, row, quad);
    }
    return 1;
}

/* ---- Results */

/* Writes the warpgroup's vectors to out. A thread holds two rows, `row` and row + 8, at columns
 * 2 * quad + 8 * j. */
template <class form>
static __device__ __forceinline__ void
fig_wide_write(const fig_prompt_attention_params &p, const fig_wide_way &way,
               const float (&sums)[form::DIM / 2], const float (&greatest)[2],
               const float (&weights)[2], int32_t row, int32_t quad) {
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t vector = row + 8 * h;
        if (vector >= way.count) continue;
        const int32_t query = vector / p.ratio;
        const int32_t head = way.head * p.ratio + vector - query * p.ratio;
        const fig_wide_result result =
            fig_wide_result_of(p, way.query + query, head, greatest[h], weights[h], quad);
        uint32_t *to = (uint32_t *)((uint16_t *)p.out + result.at) + quad;
#pragma unroll
        for (int32_t j = 0; j < form::DIM / 8; j++)
            to[4 * j] = fig_fragment_pair<form::TYPE>(sums[4 * j + 2 * h] * result.scale,
                                                      sums[4 * j + 2 * h + 1] * result.scale);
    }
}

#endif
#endif
