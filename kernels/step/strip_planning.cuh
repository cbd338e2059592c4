/* strip_planning.cuh: writes the section of strips of a plan that the device makes.
 *
 * planner/plans/strip_stretches.h finds each worker's stretch; here a thread stands for a chunk or
 * for a worker, in turns. Classes follow each other, because the strips of one lie behind those of
 * the one before it. A step without chunks gets empty strips, which one turn of all threads writes.
 * Invariant: the section's bytes equal the host's. */
#ifndef FIG_KERNELS_STRIP_PLANNING_CUH
#define FIG_KERNELS_STRIP_PLANNING_CUH

#include "kernels/common/params.h"
#include "kernels/step/planning_sums.cuh"
#include "planner/plans/strip_stretches.h"
#include "planner/spec/spec.h"

/* The arrays of a line, in shared memory because searches read them. */
typedef struct fig_strip_desk {
    int64_t units[FIG_BATCH_LIMIT + 1], unit_sums[FIG_PLANNING_WARPS];
    int32_t rows[FIG_BATCH_LIMIT];
    fig_strip_place places[FIG_WORKER_LIMIT + 1];
    fig_strip_stretch before[FIG_WORKER_LIMIT];
    int32_t sums[FIG_PLANNING_WARPS];
    double tiles[FIG_BLOCK_WARP_LIMIT];
} fig_strip_desk;

/* Lists the rows that are chunks; returns their number in all threads. The rows are readable after
 * the next barrier. queries: shared, [rows]. lengths: those that this thread has written. */
static __device__ int32_t fig_strip_planning_list(const int32_t *queries, const int32_t *lengths,
                                                  int32_t rows, fig_strip_desk *desk) {
    int32_t count = 0, sum;
    for (int32_t first = 0; first < rows; first += FIG_PLANNING_THREADS) {
        const int32_t row = first + (int32_t)threadIdx.x;
        const int32_t is_chunk =
            row < rows && queries[row] > FIG_NARROW_TOKENS_LIMIT && lengths[row] > 0;
        const int32_t before = count + fig_planning_sum_before(is_chunk, &sum, desk->sums);
        if (is_chunk) desk->rows[before] = row;
        count += sum;
    }
    return count;
}

/* Fills in what the line has in common with every line of the class. */
static __device__ fig_strip_stretches fig_strip_planning_line(const fig_plan_params &p,
                                                              const fig_strips_shape *shape,
                                                              int32_t count,
                                                              const fig_strip_desk *desk) {
    const fig_plan_layout *layout = &p.shape.layout;
    fig_strip_stretches line;
    fig_strip_cutter_prepare(&line.cut, shape);
    line.cut.count = count;
    line.visible = shape->visible;
    line.rows = desk->rows;
    line.starts = (const int32_t *)(p.plan + layout->queries) + 1;
    line.lengths = (const int32_t *)(p.plan + layout->lengths);
    line.sequences = (const int32_t *)(p.plan + layout->sequences);
    line.units = desk->units;
    line.set.tuples = 0;
    line.places = desk->places;
    line.before = desk->before;
    return line;
}

/* Measures the chunks, one by thread, and shares out the line. */
static __device__ void fig_strip_planning_measure(fig_strip_stretches *line, fig_strip_desk *desk) {
    const int32_t count = line->cut.count, heads = line->cut.shape->kv_heads;
    int64_t before = 0, sum, tiles = 0;
    int32_t has_pair = 0;
    for (int32_t first = 0; first < count; first += FIG_PLANNING_THREADS) {
        const int32_t chunk = first + (int32_t)threadIdx.x;
        fig_strip_measure measure = {0, 0, 0};
        if (chunk < count) measure = fig_strip_stretches_measure(line, chunk);
        const int64_t units =
            before + fig_planning_sum_before(measure.units * heads, &sum, desk->unit_sums);
        if (chunk < count) desk->units[chunk] = units;
        tiles += measure.tiles * heads;
        has_pair |= measure.has_pair;
        before += sum;
    }
    if (threadIdx.x == 0) desk->units[count] = before;
    /* the sums have barriers, so all threads see all units; a double holds fewer than 2^53 tiles */
    tiles = (int64_t)fig_block_sum((double)tiles, desk->tiles);
    has_pair = fig_planning_greatest(has_pair, desk->sums);
    fig_strip_stretches_share(line, tiles, has_pair);
}

/* Cuts a line of one chunk in tuples if they pay off. */
static __device__ void fig_strip_planning_pair_up(fig_strip_stretches *line, fig_strip_desk *desk) {
    if (line->cut.count != 1) return;
    const fig_strips_segment chunk = fig_strip_stretches_chunk(line, 0);
    const fig_strip_tuples set = fig_strip_tuples_of(&line->cut, &chunk);
    int32_t is_uneven = 0;
    for (int32_t worker = (int32_t)threadIdx.x; worker < set.strips * set.tuples;
         worker += FIG_PLANNING_THREADS)
        is_uneven |= !fig_strip_tuples_pay(
            &line->cut, fig_strip_tuples_units(&line->cut, &set, &chunk, worker));
    if (!fig_planning_greatest(is_uneven, desk->sums)) line->set = set;
}

/* Finds where each worker begins; in tuples nobody asks. The places are readable after the next
 * barrier. */
static __device__ void fig_strip_planning_place(const fig_strip_stretches *line,
                                                fig_strip_desk *desk) {
    if (line->set.tuples > 0) return;
    for (int32_t worker = (int32_t)threadIdx.x; worker <= line->cut.shape->workers;
         worker += FIG_PLANNING_THREADS)
        desk->places[worker] = fig_strip_stretches_place(line, worker);
}

/* Counts what each worker adds, and writes the ranges. Returns the sums over all workers, in all
 * threads. */
static __device__ fig_strip_stretch fig_strip_planning_count(const fig_strip_stretches *line,
                                                             fig_strip_desk *desk,
                                                             int32_t *ranges) {
    const int32_t workers = line->cut.shape->workers;
    fig_strip_stretch all = {0, 0, 0}, sum;
    for (int32_t first = 0; first < workers; first += FIG_PLANNING_THREADS) {
        const int32_t worker = first + (int32_t)threadIdx.x;
        fig_strip_stretch own = {0, 0, 0};
        if (worker < workers) own = fig_strip_stretches_count(line, worker);
        own.items = all.items + fig_planning_sum_before(own.items, &sum.items, desk->sums);
        own.pieces = all.pieces + fig_planning_sum_before(own.pieces, &sum.pieces, desk->sums);
        own.vectors = all.vectors + fig_planning_sum_before(own.vectors, &sum.vectors, desk->sums);
        if (worker < workers) {
            desk->before[worker] = own;
            ranges[worker] = own.items;
        }
        all.items += sum.items;
        all.pieces += sum.pieces;
        all.vectors += sum.vectors;
    }
    __syncthreads();
    return all;
}

/* Stores an item in four pieces of 16 bytes; the items of a plan are aligned to that. */
static __device__ void fig_strip_planning_store(const fig_strips_item &item, fig_strips_item *to) {
    union {
        fig_strips_item item;
        uint4 pieces[4];
    } words;
    words.item = item;
    for (int32_t i = 0; i < 4; i++)
        ((uint4 *)to)[i] = words.pieces[i];
}

/* Writes each worker's items. */
static __device__ void fig_strip_planning_write(const fig_strip_stretches *line,
                                                fig_strips_item *items) {
    for (int32_t worker = (int32_t)threadIdx.x; worker < line->cut.shape->workers;
         worker += FIG_PLANNING_THREADS) {
        const int32_t first = line->before[worker].items;
        int32_t end = first;
        fig_strip_walk walk = fig_strip_stretches_begin(line, worker);
        fig_strip_piece piece;
        while (fig_strip_stretches_next(line, &walk, &piece))
            fig_strip_planning_store(fig_strip_stretches_item(line, &walk, &piece, worker),
                                     &items[end++]);
        fig_strip_cutter_mark_last(items + first, items + end);
    }
}

/* Returns the head of the strips of a class. queries: one past the last query token of a chunk */
static __device__ fig_strips_head fig_strip_planning_head(const fig_strips_shape *shape,
                                                          const fig_strip_stretch *all,
                                                          int32_t queries) {
    fig_strips_head head = {};
    head.workers = shape->workers;
    head.items = all->items;
    head.partial_vectors = all->vectors;
    head.counters = all->pieces * FIG_STRIPS_ARRIVALS;
    head.tile_tokens = shape->tile_tokens;
    head.ratio = shape->ratio;
    head.kv_heads = shape->kv_heads;
    head.window = shape->window;
    head.queries = queries;
    return head;
}

/* Writes the strips of a class; returns their number of items in all threads. */
static __device__ int32_t fig_strip_planning_cut(const fig_plan_params &p,
                                                 const fig_strips_shape *shape, int32_t count,
                                                 fig_strip_desk *desk, uint8_t *strips) {
    const int32_t padded = (int32_t)fig_size_align((uint64_t)(shape->workers + 1), 4);
    int32_t *ranges = (int32_t *)fig_strips_ranges(strips), queries = 0;
    fig_strip_stretch all = {0, 0, 0};
    if (count > 0) {
        fig_strip_stretches line = fig_strip_planning_line(p, shape, count, desk);
        fig_strip_planning_measure(&line, desk);
        fig_strip_planning_pair_up(&line, desk);
        fig_strip_planning_place(&line, desk);
        __syncthreads();
        all = fig_strip_planning_count(&line, desk, ranges);
        fig_strip_planning_write(&line,
                                 (fig_strips_item *)fig_strips_items(strips, shape->workers));
        queries = line.starts[desk->rows[count - 1] + 1];
    }
    for (int32_t i = (int32_t)threadIdx.x; i < padded; i += FIG_PLANNING_THREADS)
        if (count == 0 || i >= shape->workers) ranges[i] = i == shape->workers ? all.items : 0;
    if (threadIdx.x == 0)
        *(fig_strips_head *)strips = fig_strip_planning_head(shape, &all, queries);
    return all.items;
}

/* Writes the strips of all classes. The plan's lengths, sequences and query tokens are written and
 * visible to the block. queries: shared, [rows] */
static __device__ void fig_strip_planning_make(const fig_plan_params &p, const int32_t *queries,
                                               int32_t rows, fig_strip_desk *desk) {
    uint8_t *section = p.plan + fig_plan_strips_place(&p.shape);
    const int32_t *lengths = (const int32_t *)(p.plan + p.shape.layout.lengths);
    const int32_t count = fig_strip_planning_list(queries, lengths, rows, desk);
    uint32_t end = FIG_PLAN_STRIPS_HEAD;
    __syncthreads();
    for (int32_t i = 0; i < FIG_CLASS_LIMIT; i++) {
        const int has_class = i < p.shape.class_count;
        if (threadIdx.x == 0) ((uint32_t *)section)[i] = has_class ? end : 0;
        if (!has_class) continue;
        const fig_strips_shape *shape = &p.strips.of[i];
        const int32_t items = fig_strip_planning_cut(p, shape, count, desk, section + end);
        end += (uint32_t)(sizeof(fig_strips_head) +
                          fig_size_align((uint64_t)(shape->workers + 1) * sizeof(int32_t), 16) +
                          (uint64_t)items * sizeof(fig_strips_item));
        __syncthreads(); /* the next class uses the desk again */
    }
}

#endif
