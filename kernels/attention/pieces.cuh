/* pieces.cuh: stores the partials of cut segments, merges them, and writes a vector's final result.
 *
 * Owns partials, sums and counters. A vector's partial is its sum of weight * v. Separate arrays
 * hold the vector's greatest logit and its sum of weights. Both sums are relative to that logit.
 * Invariant: pieces are merged in their order, so the output bits do not depend on which block
 * merges. Partials, sums and counters are 0 except while their segment is half done. */
#ifndef FIG_KERNELS_PIECES_CUH
#define FIG_KERNELS_PIECES_CUH

#include "kernels/common/block.cuh"

#include <math.h>

#include "kernels/common/cache.h"
#include "kernels/common/numeric.h"

enum {
    FIG_PIECES_LOADS = 8,                   /* loads that a lane has in flight */
    FIG_PIECES_STRETCH = 4 * FIG_BLOCK_WARP /* dimensions that a warp merges at a time */
};

/* Names one vector of the step: a q head of one row of q and out. */
typedef struct fig_pieces_vector {
    int64_t row; /* a row of the plan has one row of q and out for each query */
    int32_t q_head;
} fig_pieces_vector;

/* Holds the final factors of a vector: out = values * scale. */
typedef struct fig_pieces_end {
    float scale, lse;
} fig_pieces_end;

static __device__ float fig_pieces_warp_max(float x) {
    for (int32_t apart = FIG_BLOCK_WARP / 2; apart > 0; apart /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

static __device__ float fig_pieces_warp_sum(float x) {
    for (int32_t apart = FIG_BLOCK_WARP / 2; apart > 0; apart /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

/* Returns the factor for a sum whose greatest logit grows from `from` to `to`. The factor is 0 if
 * there was no logit yet, because -inf - -inf would be NaN. */
static __device__ float fig_pieces_shrink(float from, float to) {
    return from == -INFINITY ? 0 : exp2f(from - to);
}

#ifdef FIG_PIECES_SCORED
/* Returns the params that hold the score of the launch. */
static __device__ const fig_scored_attention_params &
fig_pieces_scored(const fig_attention_params &p) {
    return reinterpret_cast<const fig_scored_attention_params &>(p);
}
#endif

/* Returns the final factors of a vector, with its sink and the scale of V. */
static __device__ fig_pieces_end fig_pieces_end_of(const fig_attention_params &p, int32_t q_head,
                                                   float greatest, float weights) {
    int32_t kv_head = q_head / (p.q_heads / p.kv_heads);
    float shrink = 1;
    if (p.sinks != NULL) {
        float sink = p.sinks[q_head] * FIG_NUMERIC_LOG2_E, seen = greatest;
        greatest = fmaxf(greatest, sink);
        shrink = fig_pieces_shrink(seen, greatest);
        weights = weights * shrink + fig_pieces_shrink(sink, greatest);
    }
    float scale = fig_cache_scale(p.v_scale, p.v_scales, kv_head);
    fig_pieces_end end = {weights == 0 ? 0 : scale * shrink / weights, greatest + log2f(weights)};
#ifdef FIG_PIECES_SCORED
    if (fig_pieces_scored(p).score.weights != FIG_SCORE_SOFTMAX)
        end.scale *= weights * exp2f(greatest);
#endif
    return end;
}

static __device__ void fig_pieces_write(const fig_attention_params &p, fig_pieces_vector vector,
                                        int32_t dim, float x) {
    int64_t offset = vector.row * p.out_strides.row + vector.q_head * p.out_strides.head;
    fig_numeric_store(p.out, p.dtype, offset + dim, x);
}

static __device__ void fig_pieces_write_lse(const fig_attention_params &p, fig_pieces_vector vector,
                                            float lse) {
    if (p.lse != NULL) p.lse[vector.row * p.lse_stride + vector.q_head] = lse;
}

static __device__ int32_t fig_pieces_group_heads(const fig_attention_params &p) {
    return p.q_heads / p.kv_heads * p.heads_per_worker;
}

/* Returns the rows of q and out that belong to a row of the plan. */
static __device__ fig_plan_queries fig_pieces_queries(const fig_attention_params &p, int32_t row) {
    return fig_plan_queries_of(p.plan, p.queries_offset, p.split.row_tokens, row);
}

/* Returns the index of vector [query][q head] of the group in the partials. Its sums have the same
 * index. */
static __device__ int64_t fig_pieces_partial(const fig_attention_params &p,
                                             const fig_split_piece &piece, int32_t number,
                                             int32_t vector) {
    int32_t vectors = p.split.row_tokens * fig_pieces_group_heads(p);
    return (int64_t)fig_split_partial(&p.split, &piece, number) * vectors + vector;
}

/* Counts a piece as finished. Returns 1 if the piece is the last one of its segment, and then
 * leaves the counter at 0. A block that counts later sees everything that the threads of this block
 * have written for the piece. shared: a word of shared memory that only this function reads and
 * writes. */
static __device__ uint32_t fig_pieces_is_last(const fig_attention_params &p,
                                              const fig_split_piece &piece, uint32_t *shared) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t *counter = &p.counters[fig_split_segment(&p.split, piece.row, piece.group)];
        uint32_t last = (uint32_t)(piece.last - piece.first);
        *shared = atomicInc(counter, last) == last;
    }
    __syncthreads();
    __threadfence();
    return *shared;
}

/* Adds four dimensions of `count` pieces. Lane i holds the partial and the weight of piece i. The
 * loads bypass L1, because other blocks have written partials since this block began. */
static __device__ void fig_pieces_add(const fig_attention_params &p, int32_t count, int64_t partial,
                                      float weight, int32_t dim, float4 *values) {
    for (int32_t done = 0; done < count; done += FIG_PIECES_LOADS) {
        float4 loaded[FIG_PIECES_LOADS];
#pragma unroll
        for (int32_t i = 0; i < FIG_PIECES_LOADS; i++) {
            int64_t from = __shfl_sync(0xffffffffu, partial, done + i);
            loaded[i] = make_float4(0, 0, 0, 0);
            if (done + i < count && dim < p.head_dim)
                loaded[i] = __ldcg((const float4 *)&p.partials[from * p.head_dim + dim]);
        }
#pragma unroll
        for (int32_t i = 0; i < FIG_PIECES_LOADS; i++) {
            float scale = __shfl_sync(0xffffffffu, weight, done + i);
            values->x = fmaf(loaded[i].x, scale, values->x);
            values->y = fmaf(loaded[i].y, scale, values->y);
            values->z = fmaf(loaded[i].z, scale, values->z);
            values->w = fmaf(loaded[i].w, scale, values->w);
        }
    }
}

/* Merges all pieces of a segment for one vector of its group. Each lane merges four dimensions. */
static __device__ void fig_pieces_merge_vector(const fig_attention_params &p,
                                               const fig_split_piece &piece, int32_t vector,
                                               int32_t first_dim) {
    const float2 *sums = (const float2 *)p.sums;
    int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, dim = first_dim + 4 * lane;
    float greatest = -INFINITY, weights = 0;
    float4 values = make_float4(0, 0, 0, 0);
    for (int32_t n = piece.first + lane; n <= piece.last; n += FIG_BLOCK_WARP)
        greatest = fmaxf(greatest, __ldcg(&sums[fig_pieces_partial(p, piece, n, vector)]).x);
    greatest = fig_pieces_warp_max(greatest);
    for (int32_t first = piece.first; first <= piece.last; first += FIG_BLOCK_WARP) {
        int32_t count = fig_size_min(FIG_BLOCK_WARP, piece.last - first + 1);
        int64_t partial = 0;
        float weight = 0;
        if (lane < count) {
            partial = fig_pieces_partial(p, piece, first + lane, vector);
            float2 sum = __ldcg(&sums[partial]);
            weight = fig_pieces_shrink(sum.x, greatest);
            weights += sum.y * weight;
        }
        fig_pieces_add(p, count, partial, weight, dim, &values);
    }
    weights = fig_pieces_warp_sum(weights);
    int32_t group_heads = fig_pieces_group_heads(p);
    fig_pieces_vector to = {(int64_t)fig_pieces_queries(p, piece.row).first + vector / group_heads,
                            piece.group * group_heads + vector % group_heads};
    fig_pieces_end end = fig_pieces_end_of(p, to.q_head, greatest, weights);
    if (dim == 0) fig_pieces_write_lse(p, to, end.lse);
    if (dim >= p.head_dim) return;
    fig_pieces_write(p, to, dim, values.x * end.scale);
    fig_pieces_write(p, to, dim + 1, values.y * end.scale);
    fig_pieces_write(p, to, dim + 2, values.z * end.scale);
    fig_pieces_write(p, to, dim + 3, values.w * end.scale);
}

/* Sets the partials and sums of the segment to 0, as they were before the launch. */
static __device__ void fig_pieces_clear(const fig_attention_params &p,
                                        const fig_split_piece &piece) {
    int32_t vectors = p.split.row_tokens * fig_pieces_group_heads(p);
    for (int32_t n = piece.first; n <= piece.last; n++) {
        int64_t first = fig_pieces_partial(p, piece, n, 0);
        float *values = p.partials + first * p.head_dim, *sums = p.sums + first * 2;
        for (int32_t i = (int32_t)threadIdx.x; i < vectors * p.head_dim; i += (int32_t)blockDim.x)
            values[i] = 0;
        for (int32_t i = (int32_t)threadIdx.x; i < vectors * 2; i += (int32_t)blockDim.x)
            sums[i] = 0;
    }
}

/* Merges the pieces of a segment. One warp handles each stretch of dimensions of each vector of the
 * group. */
static __device__ void fig_pieces_merge(const fig_attention_params &p,
                                        const fig_split_piece &piece) {
    int32_t stretches = fig_size_ceil_div(p.head_dim, FIG_PIECES_STRETCH);
    int32_t queries = fig_pieces_queries(p, piece.row).count;
    int32_t parts = queries * fig_pieces_group_heads(p) * stretches;
    int32_t warps = (int32_t)blockDim.x / FIG_BLOCK_WARP;
    for (int32_t part = (int32_t)threadIdx.x / FIG_BLOCK_WARP; part < parts; part += warps)
        fig_pieces_merge_vector(p, piece, part / stretches, part % stretches * FIG_PIECES_STRETCH);
    __syncthreads();
    fig_pieces_clear(p, piece);
}

#endif
