/* planning.cu: the plan of a step whose lengths lie on the device, made where they lie.
 *
 * lengths, positions, and of every class prefix and starts, by the rules of planner/plan.h and
 * planner/split.h, and of a run the head and the sequences: the bytes that planning.c and the host
 * write. One block plans; those behind it put a run's scratch to zeros. Row r is thread
 * r % THREADS's throughout, so a length is read once, and what follows from it needs no barrier
 * before the prefix. Invariant: nothing past the step's rows is written, and nothing of a step
 * past a bound but its lengths and an empty split. */
#include "kernels/planning.h"

#include "kernels/block.cuh"
#include "kernels/fetch.cuh"

enum { THREADS = 256, WARPS = THREADS / FIG_BLOCK_WARP };

/* 1: every line is as long as its bucket allows, or shorter; the same in all threads. The tiles of
 * 2^22 rows of any length are fewer than 2^53, and so a double counts them without rounding.
 * sums: shared, [FIG_BLOCK_WARP_LIMIT]. */
static __device__ int32_t is_within_bounds(const fig_plan_shape *shape, const fig_plan_head *head,
                                           const int32_t *lengths, double *sums) {
    const int32_t rows = head->rows;
    for (int32_t i = 0; i < shape->class_count; i++) {
        const fig_split_shape *split = &shape->splits[i];
        int64_t tiles = 0;
        for (int32_t row = (int32_t)threadIdx.x; row < rows; row += THREADS)
            tiles += fig_split_tiles(split, lengths[row]);
        tiles = (int64_t)fig_block_sum((double)tiles, sums);
        if (tiles * split->groups > head->tile_limits[i]) return 0;
    }
    return 1;
}

/* Sum of x over the threads before this one, and over all in *sum. warp_sums: shared, [WARPS]; free
 * again when this returns. */
static __device__ int32_t sum_before(int32_t x, int32_t *sum, int32_t *warp_sums) {
    int32_t warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    int32_t through = x, before = 0; /* this thread of its warp; of the warps before */
    for (int32_t apart = 1; apart < FIG_BLOCK_WARP; apart *= 2) {
        int32_t other = __shfl_up_sync(0xffffffffu, through, (uint32_t)apart);
        if (lane >= apart) through += other;
    }
    if (lane == FIG_BLOCK_WARP - 1) warp_sums[warp] = through;
    __syncthreads();
    *sum = 0;
    for (int32_t i = 0; i < WARPS; i++) {
        if (i == warp) before = *sum;
        *sum += warp_sums[i];
    }
    __syncthreads();
    return before + through - x;
}

/* prefix: [rows + 1]; there for the whole block when this returns. */
static __device__ void write_prefix(const fig_split_shape *split, const int32_t *lengths,
                                    int32_t rows, int32_t *prefix) {
    __shared__ int32_t warp_sums[WARPS];
    int32_t before = 0, sum; /* of the rows before `first`; of those of this turn */
    for (int32_t first = 0; first < rows; first += THREADS) {
        int32_t row = first + (int32_t)threadIdx.x;
        int32_t tiles = row < rows ? fig_split_tiles(split, lengths[row]) : 0;
        tiles = before + sum_before(tiles, &sum, warp_sums);
        if (row < rows) prefix[row] = tiles;
        before += sum;
    }
    if (threadIdx.x == 0) prefix[rows] = before;
    __syncthreads();
}

static __device__ void write_starts(const fig_split_shape *split, const int32_t *prefix,
                                    int32_t rows, fig_split_start *starts) {
    const fig_split_line line = fig_split_line_of(split, prefix, rows);
    for (int32_t worker = (int32_t)threadIdx.x; worker < split->workers; worker += THREADS)
        starts[worker] = fig_split_start_of(split, &line, worker);
}

static __device__ void plan(const fig_plan_params &p) {
    __shared__ double sums[FIG_BLOCK_WARP_LIMIT];
    const fig_plan_layout *layout = &p.shape.layout;
    fig_plan_head *head = (fig_plan_head *)p.plan;
    int32_t *lengths = (int32_t *)(p.plan + layout->lengths);
    int32_t *positions = (int32_t *)(p.plan + layout->positions);
    int32_t *sequences = (int32_t *)(p.plan + layout->sequences);
    int32_t rows = p.rows > 0 ? p.rows : head->rows;
    if (rows == 0) return;
    if (p.rows > 0 && threadIdx.x == 0) *head = fig_planning_head(&p);
    for (int32_t row = (int32_t)threadIdx.x; row < rows; row += THREADS) {
        lengths[row] = fig_plan_length(&p.shape, p.kv_limit, fig_planning_length(&p, row));
        if (p.rows > 0) sequences[row] = row;
    }
    if (p.rows == 0 && !is_within_bounds(&p.shape, head, lengths, sums)) {
        rows = 0; /* the barriers of the sum stand between this and the reading of it */
        if (threadIdx.x == 0) head->rows = 0;
        if (threadIdx.x == 0) fig_fetch_miss(p.words);
    }
    for (int32_t row = (int32_t)threadIdx.x; row < rows; row += THREADS)
        positions[row] = p.positions != NULL ? p.positions[row] : fig_plan_last_token(lengths[row]);
    for (int32_t i = 0; i < p.shape.class_count; i++) {
        int32_t *prefix = (int32_t *)(p.plan + layout->prefix[i]);
        write_prefix(&p.shape.splits[i], lengths, rows, prefix);
        write_starts(&p.shape.splits[i], prefix, rows,
                     (fig_split_start *)(p.plan + layout->starts[i]));
    }
}

static __device__ void clear(const fig_plan_params &p) {
    const uint32_t first = (blockIdx.x - 1) * FIG_PLANNING_PIECES, left = p.zero_pieces - first;
    const uint32_t count = min(left, (uint32_t)FIG_PLANNING_PIECES);
    uint4 *zeros = (uint4 *)p.zeros + first;
    for (uint32_t i = threadIdx.x; i < count; i += THREADS)
        zeros[i] = make_uint4(0, 0, 0, 0);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    fig_kernel_plan(const __grid_constant__ fig_plan_params p) {
    fig_block_wait();
    fig_block_trigger();
    if (blockIdx.x > 0) {
        clear(p);
    } else if (p.plan != NULL) {
        plan(p);
    }
}
