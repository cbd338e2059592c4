/* all_reduce.cu: all_reduce on GPUs that write into one another's memory, alone or with the
 * residual and the RMSNorm behind it.
 *
 * One shot: each rank pushes all that it has to every other and adds up what all have, in the order
 * of ranks, in f32, rounded once: so the bits are the same everywhere. Alone, thread i of the
 * launch has vectors i, i + threads, ...; with a norm a block has row b, b + blocks, ..., and the
 * sum of a vector is what rms_norm would have read, bit for bit. Weights and residual are read
 * while packets are on their way. Helpers take the dtype as a constant, once inlined. Invariant: a
 * thread has the same places of a row whenever it reads or writes, so out may be in. */
#include "kernels/block.cuh"
#include "kernels/norm.cuh"
#include "kernels/numeric.h"
#include "kernels/params.h"
#include "kernels/peers.cuh"
#include "kernels/vector.cuh"

enum { THREAD_LIMIT = 512, KEPT = 4 }; /* vectors of a row that a thread keeps between its passes */

/* Vector i of the sum over all ranks, of which this one has `own`. */
static __device__ __forceinline__ uint4 sum_over_ranks(const fig_peers_epoch &e, int64_t i,
                                                       uint4 own, int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype), count = e.view->count, rank = e.view->rank;
    float sum[FIG_VECTOR_LANE_LIMIT], more[FIG_VECTOR_LANE_LIMIT];
    fig_vector_read(sum, lanes, rank == 0 ? own : fig_peers_take(e, 0, i), dtype);
    for (int32_t r = 1; r < count; r++) {
        fig_vector_read(more, lanes, rank == r ? own : fig_peers_take(e, r, i), dtype);
#pragma unroll
        for (int32_t lane = 0; lane < lanes; lane++)
            sum[lane] += more[lane];
    }
    return fig_vector_of(sum, lanes, dtype);
}

/* ---- Alone */

static __device__ __forceinline__ void reduce(const fig_all_reduce_params *p,
                                              const fig_peers_view *view, int32_t dtype) {
    const int64_t in_row = p->width / fig_vector_lanes(dtype);
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t apart = (int64_t)(gridDim.x - 1) * blockDim.x;
    const uint4 *in = (const uint4 *)p->in;
    uint4 *out = (uint4 *)p->out;
    uint4 own = make_uint4(0, 0, 0, 0);
    fig_block_enter(p->haste & FIG_HASTE_EARLY);
    const fig_peers_epoch e = fig_peers_enter(view);
    if (first < in_row * p->rows.row_limit) own = fig_vector_fetch(in + first);
    const int32_t rows = fig_params_rows(&p->rows, p->plan);
    if (fig_peers_speaks()) {
        fig_peers_speak(e, fig_peers_place_of(p->plan, p->state, p->node, rows));
    } else {
        const int64_t end = in_row * rows;
        for (int64_t i = first; i < end; i += apart)
            fig_peers_push(e, i, i == first ? own : fig_vector_fetch(in + i));
        for (int64_t i = first; i < end; i += apart)
            out[i] = sum_over_ranks(e, i, i == first ? own : fig_vector_fetch(in + i), dtype);
    }
    fig_peers_leave(e);
}

/* ---- With residual and norm */

/* Of one row, what a thread keeps: vectors thread, thread + threads, ... */
typedef struct kept_row {
    uint4 x[KEPT], weight[KEPT];
} kept_row;

/* In f32: what is too large or too small for it is found out by what comes out. */
static __device__ __forceinline__ float squares_of(uint4 vector, int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype);
    float numbers[FIG_VECTOR_LANE_LIMIT], sum = 0;
    fig_vector_read(numbers, lanes, vector, dtype);
#pragma unroll
    for (int32_t i = 0; i < lanes; i++)
        sum += numbers[i] * numbers[i];
    return sum;
}

/* Over the block, the same in every thread. sums: shared, [FIG_BLOCK_WARP_LIMIT]; free again when
 * all threads have passed their next barrier. */
static __device__ __forceinline__ float block_sum(float x, float *sums) {
    const int32_t thread = (int32_t)threadIdx.x, warps = (int32_t)blockDim.x / FIG_BLOCK_WARP;
    for (int32_t apart = FIG_BLOCK_WARP / 2; apart > 0; apart /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, apart);
    if (thread % FIG_BLOCK_WARP == 0) sums[thread / FIG_BLOCK_WARP] = x;
    __syncthreads();
    const int32_t lane = thread % FIG_BLOCK_WARP;
    x = lane < warps ? sums[lane] : 0;
    for (int32_t apart = FIG_BLOCK_WARP / 2; apart > 0; apart /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

/* The row's sum over ranks becomes part of the residual, and x; returns the sum of its squares. */
static __device__ __forceinline__ float add_row(const fig_all_reduce_params *p,
                                                const fig_peers_epoch &e, int64_t row,
                                                kept_row *kept, int32_t dtype) {
    const int32_t vectors = p->width / fig_vector_lanes(dtype), threads = (int32_t)blockDim.x;
    const uint4 *in = (const uint4 *)p->in + row * vectors;
    uint4 *residual = (uint4 *)p->residual + row * vectors;
    float squares = 0;
#pragma unroll
    for (int32_t k = 0; k < KEPT; k++) {
        const int32_t i = (int32_t)threadIdx.x + k * threads;
        if (i < vectors) kept->x[k] = fig_vector_fetch(residual + i);
    }
#pragma unroll
    for (int32_t k = 0; k < KEPT; k++) {
        const int32_t i = (int32_t)threadIdx.x + k * threads;
        if (i >= vectors) break;
        const uint4 sum = sum_over_ranks(e, row * vectors + i, fig_vector_fetch(in + i), dtype);
        kept->x[k] = fig_vector_sum(kept->x[k], sum, dtype);
        residual[i] = kept->x[k];
        squares += squares_of(kept->x[k], dtype);
    }
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x + KEPT * threads; i < vectors; i += threads) {
        const uint4 sum = sum_over_ranks(e, row * vectors + i, in[i], dtype);
        const uint4 x = fig_vector_sum(residual[i], sum, dtype);
        residual[i] = x;
        squares += squares_of(x, dtype);
    }
    return squares;
}

/* The same in double, of what add_row left. */
static __device__ __noinline__ double exact_squares(const uint4 *residual, int32_t vectors,
                                                    int32_t dtype) {
    double squares = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < vectors; i += (int32_t)blockDim.x)
        squares += fig_norm_squares(residual[i], dtype);
    return squares;
}

/* What the row is multiplied by. Where 16 bits come out, f32 is exact enough for the sum as long as
 * it neither overflows nor vanishes. */
static __device__ __forceinline__ float factor_of(const fig_all_reduce_params *p, int64_t row,
                                                  float squares, double *sums, int32_t dtype) {
    const int32_t vectors = p->width / fig_vector_lanes(dtype);
    const float sum = block_sum(squares, (float *)sums);
    if (dtype != FIG_F32 && sum > 1e-30f && sum < 1e37f)
        return rsqrtf(sum * __frcp_rn((float)p->width) + p->epsilon);
    __syncthreads();
    const uint4 *residual = (const uint4 *)p->residual + row * vectors;
    const double exact = fig_block_sum(exact_squares(residual, vectors, dtype), sums);
    return fig_norm_factor(exact, p->width, p->epsilon);
}

static __device__ __forceinline__ void norm_row(const fig_all_reduce_params *p, int64_t row,
                                                const kept_row *kept, float scale, int32_t dtype) {
    const int32_t vectors = p->width / fig_vector_lanes(dtype), threads = (int32_t)blockDim.x;
    const uint4 *residual = (const uint4 *)p->residual + row * vectors;
    const uint4 *weight = (const uint4 *)p->weight;
    uint4 *out = (uint4 *)p->out + row * vectors;
#pragma unroll
    for (int32_t k = 0; k < KEPT; k++) {
        const int32_t i = (int32_t)threadIdx.x + k * threads;
        if (i < vectors)
            out[i] = fig_vector_normed(kept->x[k], kept->weight[k], scale, p->weight_offset, dtype);
    }
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x + KEPT * threads; i < vectors; i += threads)
        out[i] = fig_vector_normed(residual[i], weight[i], scale, p->weight_offset, dtype);
}

static __device__ __forceinline__ void reduce_and_norm(const fig_all_reduce_params *p,
                                                       const fig_peers_view *view, double *sums,
                                                       int32_t dtype) {
    const int32_t vectors = p->width / fig_vector_lanes(dtype);
    const int32_t thread = (int32_t)threadIdx.x, threads = (int32_t)blockDim.x;
    const int64_t apart = gridDim.x - 1;
    kept_row kept;
#pragma unroll
    for (int32_t k = 0; k < KEPT; k++) {
        const int32_t i = thread + k * threads;
        if (i < vectors) kept.weight[k] = fig_vector_fetch((const uint4 *)p->weight + i);
    }
    fig_block_enter(p->haste & FIG_HASTE_EARLY);
    const fig_peers_epoch e = fig_peers_enter(view);
    const int32_t rows = fig_params_rows(&p->rows, p->plan);
    if (fig_peers_speaks()) {
        fig_peers_speak(e, fig_peers_place_of(p->plan, p->state, p->node, rows));
        fig_peers_leave(e);
        return;
    }
    for (int64_t row = blockIdx.x; row < rows; row += apart) {
        for (int64_t i = row * vectors + thread; i < (row + 1) * vectors; i += threads)
            fig_peers_push(e, i, fig_vector_fetch((const uint4 *)p->in + i));
    }
    for (int64_t row = blockIdx.x; row < rows; row += apart) {
        const float squares = add_row(p, e, row, &kept, dtype);
        norm_row(p, row, &kept, factor_of(p, row, squares, sums, dtype), dtype);
        sums += FIG_BLOCK_WARP_LIMIT; /* the other half of them, and back */
        if ((row / apart) % 2 == 1) sums -= 2 * FIG_BLOCK_WARP_LIMIT;
    }
    fig_peers_leave(e);
}

static __device__ __forceinline__ void serve(const fig_all_reduce_params *p, fig_peers_view *view,
                                             double *sums, int32_t dtype) {
    fig_peers_open(p->peers, view);
    if (p->weight == NULL) {
        reduce(p, view, dtype);
    } else {
        reduce_and_norm(p, view, sums, dtype);
    }
}

extern "C" __global__ void __launch_bounds__(THREAD_LIMIT)
    fig_kernel_all_reduce(const __grid_constant__ fig_all_reduce_params p) {
    __shared__ fig_peers_view view;
    __shared__ double sums[2 * FIG_BLOCK_WARP_LIMIT];
    switch (p.dtype) {
    case FIG_F16: serve(&p, &view, sums, FIG_F16); break;
    case FIG_BF16: serve(&p, &view, sums, FIG_BF16); break;
    default: serve(&p, &view, sums, FIG_F32); break;
    }
}
