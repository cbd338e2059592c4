/* planning.cu: makes the plan of a step on the device, where its lengths are.
 *
 * It writes lengths and positions, the query tokens of a packed program, and each class's prefix
 * and starts, by the rules of planner/plans/plan.h and planner/split/split.h. If rows may be
 * chunks, strip_planning.cuh writes their strips. For a run the kernel also writes the head and the
 * sequences. The bytes equal those of planning.c and the host. One block plans; the blocks after it
 * set a run's scratch to zeros. Thread r % THREADS handles row r until the strips, so each length
 * is read once, and no barrier is needed before the prefix. Invariant: nothing past the step's rows
 * is written. For a step that breaks a bound, only its lengths, an empty split and empty strips are
 * written. */
#include "kernels/step/planning.h"

#include "kernels/common/block.cuh"
#include "kernels/step/fetch.cuh"
#include "kernels/step/strip_planning.cuh"
#include "planner/spec/spec.h"
#include "planner/split/units.h"

enum { THREADS = FIG_PLANNING_THREADS, WARPS = FIG_PLANNING_WARPS };

/* Returns the number of a row's tiles. queries: shared, [rows] of a packed program; otherwise
 * NULL. */
static __device__ int32_t tiles_of(const fig_split_shape *split, const int32_t *lengths,
                                   const int32_t *queries, int32_t row) {
    if (queries != NULL) return fig_split_tiles_of(split, lengths[row], queries[row]);
    return fig_split_tiles(split, lengths[row]);
}

/* Returns 1 in all threads if no line is longer than its bucket allows. A double counts the tiles
 * without rounding, because 2^22 rows of any length have fewer than 2^53 tiles. sums: shared,
 * [FIG_BLOCK_WARP_LIMIT]. */
static __device__ int32_t is_within_bounds(const fig_plan_shape *shape, const fig_plan_head *head,
                                           const int32_t *lengths, const int32_t *queries,
                                           double *sums) {
    const int32_t rows = head->rows;
    for (int32_t i = 0; i < shape->class_count; i++) {
        const fig_split_shape *split = &shape->splits[i];
        int64_t tiles = 0;
        for (int32_t row = (int32_t)threadIdx.x; row < rows; row += THREADS)
            tiles += tiles_of(split, lengths, queries, row);
        tiles = (int64_t)fig_block_sum((double)tiles, sums);
        if (tiles * split->groups > head->tile_limits[i]) return 0;
    }
    return 1;
}

/* Writes prefix [rows + 1], which the whole block can read on return. */
static __device__ void write_prefix(const fig_split_shape *split, const int32_t *lengths,
                                    const int32_t *queries, int32_t rows, int32_t *prefix) {
    __shared__ int32_t warp_sums[WARPS];
    /* before: tiles of the rows before `first`; sum: tiles of the rows of this turn */
    int32_t before = 0, sum;
    for (int32_t first = 0; first < rows; first += THREADS) {
        int32_t row = first + (int32_t)threadIdx.x;
        int32_t tiles = row < rows ? tiles_of(split, lengths, queries, row) : 0;
        tiles = before + fig_planning_sum_before(tiles, &sum, warp_sums);
        if (row < rows) prefix[row] = tiles;
        before += sum;
    }
    if (threadIdx.x == 0) prefix[rows] = before;
    __syncthreads();
}

/* Reads the numbers of query tokens into `queries`, shared [rows]; returns their sum in all
 * threads. */
static __device__ int32_t read_queries(const fig_plan_params &p, int32_t rows, int32_t *queries,
                                       double *sums) {
    int32_t own = 0;
    for (int32_t row = (int32_t)threadIdx.x; row < rows; row += THREADS) {
        queries[row] = fig_planning_queries(&p, row);
        own += queries[row];
    }
    return (int32_t)fig_block_sum((double)own, sums);
}

/* Writes the section of query tokens. */
static __device__ void write_queries(const int32_t *queries, int32_t rows, int32_t *section) {
    __shared__ int32_t warp_sums[WARPS];
    int32_t before = 0, sum;
    for (int32_t first = 0; first < rows; first += THREADS) {
        const int32_t row = first + (int32_t)threadIdx.x;
        const int32_t start =
            before + fig_planning_sum_before(row < rows ? queries[row] : 0, &sum, warp_sums);
        if (row < rows) section[1 + row] = start;
        before += sum;
    }
    if (threadIdx.x == 0) section[0] = section[1 + rows] = before;
}

/* ---- Units */

/* Holds the arrays in which each worker searches its row. They are in shared memory, because a
 * search reads them eight times or more. */
typedef struct unit_rows {
    int32_t tiles[FIG_BATCH_LIMIT + 1],
        units[FIG_BATCH_LIMIT + 1]; /* sums before a row, as in units.h */
    int32_t warps[WARPS];
} unit_rows;

/* Returns 1 in all threads if the line may be cut by units; `of` is then visible to all. If the
 * line may not be cut by units, its units may overflow, and nothing reads them. */
static __device__ int32_t count_units(const fig_split_shape *split, int32_t once,
                                      const fig_split_line *line, unit_rows *of) {
    int32_t longest = 0, busy = 0, sum; /* busy: among the rows before `first` */
    for (int32_t first = 0; first < line->rows; first += THREADS) {
        const int32_t row = first + (int32_t)threadIdx.x;
        const int32_t before = row < line->rows ? line->prefix[row] : 0;
        const int32_t tiles = row < line->rows ? line->prefix[row + 1] - before : 0;
        const int32_t busy_before =
            busy + fig_planning_sum_before<int32_t>(tiles > 0, &sum, of->warps);
        if (row < line->rows) {
            of->tiles[row] = before;
            of->units[row] = (int32_t)((uint32_t)before * FIG_UNITS_OF_TILE +
                                       (uint32_t)busy_before * (uint32_t)once);
        }
        longest = max(longest, tiles);
        busy += sum;
    }
    longest = fig_planning_greatest(longest, of->warps);
    const int32_t all = line->prefix[line->rows];
    if (threadIdx.x == 0) {
        of->tiles[line->rows] = all;
        of->units[line->rows] =
            (int32_t)((uint32_t)all * FIG_UNITS_OF_TILE + (uint32_t)busy * (uint32_t)once);
    }
    __syncthreads();
    return fig_units_may_cut(split, once, all, longest, busy);
}

/* Returns the number of units that a worker has if the line is cut by tiles. */
static __device__ int32_t load_by_tiles(const fig_split_shape *split, const fig_split_line *line,
                                        const fig_units *units, int32_t worker) {
    if (worker >= line->active) return 0;
    const fig_split_start begin = fig_split_start_of(split, line, worker);
    int32_t end = units->total;
    if (worker + 1 < line->active) {
        const fig_split_start next = fig_split_start_of(split, line, worker + 1);
        end = fig_units_before(split, units, next.row, next.group, next.tile);
    }
    return fig_units_load(units, begin.tile,
                          fig_units_before(split, units, begin.row, begin.group, begin.tile), end);
}

/* Returns 1 in all threads if the line is cut by units; the starts are then written. */
static __device__ int32_t write_unit_starts(const fig_split_shape *split, int32_t once,
                                            const fig_split_line *by_tiles, unit_rows *of,
                                            fig_split_start *starts) {
    fig_split_line line = *by_tiles;
    int32_t most = 0, most_by_tiles = 0;
    if (!count_units(split, once, &line, of)) return 0;
    const fig_units units = fig_units_of_line(split, once, of->units, line.rows);
    line.prefix = of->tiles;
    for (int32_t worker = (int32_t)threadIdx.x; worker < split->workers; worker += THREADS) {
        const fig_units_cut cut = fig_units_cut_of(split, &line, &units, worker);
        const fig_units_cut next = fig_units_cut_of(split, &line, &units, worker + 1);
        most = max(most, fig_units_load(&units, cut.tile, cut.units, next.units));
        most_by_tiles = max(most_by_tiles, load_by_tiles(split, &line, &units, worker));
    }
    most = fig_planning_greatest(most, of->warps);
    most_by_tiles = fig_planning_greatest(most_by_tiles, of->warps);
    if (!fig_units_are_better(most, most_by_tiles)) return 0;
    for (int32_t worker = (int32_t)threadIdx.x; worker < split->workers; worker += THREADS) {
        const fig_units_cut cut = fig_units_cut_of(split, &line, &units, worker);
        const fig_units_cut next = fig_units_cut_of(split, &line, &units, worker + 1);
        starts[worker] = fig_units_start(&line, &cut, next.tiles - cut.tiles);
    }
    return 1;
}

/* Returns 1 in all threads if the starts are cut by units. A line with no more tiles than workers
 * is never cut by units, so its units need not be counted. */
static __device__ int32_t write_starts(const fig_split_shape *split, int32_t once,
                                       const int32_t *prefix, int32_t rows, fig_split_start *starts,
                                       unit_rows *of) {
    const fig_split_line line = fig_split_line_of(split, prefix, rows);
    if (once > 0 && rows <= FIG_BATCH_LIMIT && line.tiles > split->workers &&
        write_unit_starts(split, once, &line, of, starts))
        return 1;
    for (int32_t worker = (int32_t)threadIdx.x; worker < split->workers; worker += THREADS)
        starts[worker] = fig_split_start_of(split, &line, worker);
    return 0;
}

/* Memory of which one part is used at a time. */
typedef union scratch {
    unit_rows units;
    fig_strip_desk strips;
} scratch;

/* strips: NULL in the entry for plans without strips, which is compiled without their code. */
static __device__ __forceinline__ void plan(const fig_plan_params &p, unit_rows *units,
                                            fig_strip_desk *strips) {
    __shared__ double sums[FIG_BLOCK_WARP_LIMIT];
    __shared__ int32_t counts[FIG_BATCH_LIMIT];
    int32_t *queries = p.shape.query_limit > 0 ? counts : NULL;
    const fig_plan_layout *layout = &p.shape.layout;
    fig_plan_head *head = (fig_plan_head *)p.plan;
    int32_t *lengths = (int32_t *)(p.plan + layout->lengths);
    int32_t *positions = (int32_t *)(p.plan + layout->positions);
    int32_t *sequences = (int32_t *)(p.plan + layout->sequences);
    int32_t rows = p.rows > 0 ? p.rows : head->rows;
    if (rows == 0) return;
    if (p.rows > 0 && threadIdx.x == 0) *head = fig_planning_head(&p);
    const int32_t query_count = queries != NULL ? read_queries(p, rows, queries, sums) : 0;
    for (int32_t row = (int32_t)threadIdx.x; row < rows; row += THREADS) {
        lengths[row] = fig_plan_length(&p.shape, p.kv_limit, fig_planning_length(&p, row),
                                       queries != NULL ? queries[row] : 0);
        if (p.rows > 0) sequences[row] = row;
    }
    if (query_count > p.shape.query_limit ||
        (p.rows == 0 && !is_within_bounds(&p.shape, head, lengths, queries, sums))) {
        rows = 0; /* the sums have barriers, so all threads have read head->rows */
        if (threadIdx.x == 0) head->rows = 0;
        if (threadIdx.x == 0 && p.rows == 0) fig_fetch_miss(p.words);
    }
    for (int32_t row = (int32_t)threadIdx.x; row < rows; row += THREADS)
        positions[row] = p.positions != NULL ? p.positions[row] : fig_plan_last_token(lengths[row]);
    if (queries != NULL) write_queries(queries, rows, (int32_t *)(p.plan + layout->queries));
    uint32_t by_units = 0;
    for (int32_t i = 0; i < p.shape.class_count; i++) {
        int32_t *prefix = (int32_t *)(p.plan + layout->prefix[i]);
        write_prefix(&p.shape.splits[i], lengths, queries, rows, prefix);
        if (write_starts(&p.shape.splits[i], p.shape.once[i], prefix, rows,
                         (fig_split_start *)(p.plan + layout->starts[i]), units))
            by_units = FIG_PLAN_BY_UNITS;
    }
    if (strips != NULL) {
        __syncthreads(); /* all sections are written, and the scratch is free */
        fig_strip_planning_make(p, queries, rows, strips);
    }
    if (threadIdx.x == 0)
        head->sections = (head->sections & ~(uint32_t)FIG_PLAN_BY_UNITS) | by_units;
}

static __device__ void clear(const fig_plan_params &p) {
    const uint32_t first = (blockIdx.x - 1) * FIG_PLANNING_PIECES, left = p.zero_pieces - first;
    const uint32_t count = min(left, (uint32_t)FIG_PLANNING_PIECES);
    uint4 *zeros = (uint4 *)p.zeros + first;
    for (uint32_t i = threadIdx.x; i < count; i += THREADS)
        zeros[i] = make_uint4(0, 0, 0, 0);
}

static __device__ __forceinline__ void plan_or_clear(const fig_plan_params &p, unit_rows *units,
                                                     fig_strip_desk *strips) {
    fig_block_wait();
    fig_block_trigger();
    if (blockIdx.x > 0) {
        clear(p);
    } else if (p.plan != NULL) {
        plan(p, units, strips);
    }
}

/* Plans without strips have an entry of their own, which needs a third of the registers and of the
 * shared memory. */
#define ENTRY(name, memory, units, strips)                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        fig_kernel_plan_##name(const __grid_constant__ fig_plan_params p) {                        \
        __shared__ memory shared;                                                                  \
        plan_or_clear(p, units, strips);                                                           \
    }

ENTRY(rows, unit_rows, &shared, NULL)
ENTRY(strips, scratch, &shared.units, &shared.strips)
