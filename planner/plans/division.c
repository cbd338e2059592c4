/* division.c: divides a machine's workers between the rows and the chunks of a step.
 *
 * Invariant: a division leaves at least half of the workers for chunks. */
#include "planner/plans/division.h"

#include "planner/plans/strip_tuples.h"

/* The model, as measured on one H200 (kernels/NOTES.md, "Prompts on warpgroups"). */
enum {
    UNIT_NS = 100,        /* time of a unit of a strip's cost; see strips.h */
    MERGE_NS = 6000,      /* time of chunks beyond their units */
    SLOWER_PERCENT = 10,  /* how much slower chunks are while others read */
    SCATTER_PERCENT = 12, /* how much slower they are if their workers do not form tuples */
    WORTH_PERCENT = 98    /* a division pays off if the step takes at most this part of its time */
};

/* The chunks of a step as the model sees them. */
typedef struct chunk_line {
    int64_t units;
    int32_t strips; /* of each kv head, if there is only one chunk; otherwise 0 */
} chunk_line;

/* Counts all strips of a chunk as if they cost as much as the mean of the first and the last. */
static chunk_line measure(const fig_strips_shape *shape, const fig_division_work *work) {
    chunk_line line = {0, 0};
    fig_strip_cutter cut = {.tile_bits = 0};
    fig_strip_cutter_prepare(&cut, shape);
    const int32_t step = 2 * cut.half;
    for (int32_t i = 0; i < work->count; i++) {
        const fig_strips_segment *segment = &work->segments[i];
        if (segment->queries == 0) continue;
        const int32_t strips = fig_size_ceil_div(segment->queries, step);
        const int64_t first = fig_strip_cutter_at(&cut, segment, 0, 0).units;
        const int64_t last = fig_strip_cutter_at(&cut, segment, 0, (strips - 1) * step).units;
        line.units += (first + last) * strips * shape->kv_heads / 2;
        line.strips = work->count == 1 ? strips : 0;
    }
    return line;
}

/* Returns the time of the chunks by this number of workers. The workers of a single chunk form
 * tuples if that leaves few of them idle. */
static int64_t chunk_ns(const chunk_line *line, int32_t workers) {
    const int64_t even = line->units * UNIT_NS / workers;
    if (line->strips < 2 || line->strips > workers / 2) return even + MERGE_NS;
    const int64_t in_tuples = line->units * UNIT_NS / (workers / line->strips * line->strips);
    if (in_tuples * 100 <= even * FIG_STRIP_TUPLES_WORTH) return in_tuples + MERGE_NS;
    return even + even * SCATTER_PERCENT / 100 + MERGE_NS;
}

static int64_t row_ns(const fig_division_pace *pace, int64_t bytes, int32_t readers) {
    const int64_t rate = readers * pace->of_worker;
    return bytes * 1000 / (rate < pace->of_all ? rate : pace->of_all);
}

/* Returns the time of both launches side by side. */
static int64_t divided_ns(int64_t rows, int64_t chunks) {
    const int64_t slower = chunks + (rows < chunks ? rows : chunks) * SLOWER_PERCENT / 100;
    return rows > slower ? rows : slower;
}

/* The best division so far. */
typedef struct best_division {
    int64_t ns;
    int32_t readers;
} best_division;

/* Tries a number of readers. Returns 0 if fewer readers cannot be better, because the rows alone
 * then take longer than the best division so far. */
static int try_readers(const fig_division_pace *pace, const fig_strips_shape *strips,
                       const chunk_line *line, int64_t bytes, int32_t readers,
                       best_division *best) {
    const int64_t rows = row_ns(pace, bytes, readers);
    if (rows >= best->ns) return 0;
    const int64_t ns = divided_ns(rows, chunk_ns(line, strips->workers - readers));
    if (ns < best->ns) *best = (best_division){ns, readers};
    return 1;
}

/* Up to a third of the workers may read, or half of them: each then has its own port to memory,
 * which two SMs share. Between these numbers, some parts of the machine have one reader more than
 * others, and the readers there take longer. */
int32_t fig_division_readers(const fig_division_pace *pace, const fig_strips_shape *strips,
                             const fig_division_work *work) {
    if (pace->of_worker == 0 || work->tiles == 0 || work->count == 0 || strips->workers < 2)
        return 0;
    const chunk_line line = measure(strips, work);
    const int64_t bytes = work->tiles * pace->tile_bytes;
    const int64_t apart = bytes * 1000 / pace->of_all_apart + chunk_ns(&line, strips->workers);
    best_division best = {apart * WORTH_PERCENT / 100, 0};
    int32_t most = fig_size_min(pace->readers, strips->workers);
    if (work->tiles < most) most = (int32_t)work->tiles;
    if (most >= strips->workers / 2)
        try_readers(pace, strips, &line, bytes, strips->workers / 2, &best);
    int32_t readers = fig_size_min(most, strips->workers / 3);
    while (readers > 0 && try_readers(pace, strips, &line, bytes, readers, &best))
        readers--;
    return best.readers;
}
