/* division.c: divides a machine's workers between the rows and the strips of a step.
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
    WORTH_PERCENT = 98,   /* a division pays off if the step takes at most this part of its time */
    PAIR_LEAVE = 80,      /* units of a piece of a full strip of a prefix, beside its tiles */
    LONE_LEAVE = 34,      /* the same of a strip of one half */
    LEAST_TILES = 4,      /* of a piece of a prefix */
    TAIL_NS = 3000,       /* time of a worker to begin and end a tail */
    PREFIX_NS = 20000,    /* time of prefixes beyond their pieces */
    TAIL_BYTES = 1 << 27  /* fewer bytes of tails are read sooner by the strips' launch */
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

/* Returns the time of the prefixes by this number of workers, all of whose strips count as alike.
 */
static int64_t prefix_ns(const fig_division_prefixes *prefixes, int32_t workers, int32_t limit) {
    const int64_t strips = prefixes->strips, once = prefixes->once / strips;
    const int64_t units = prefixes->units / strips;
    const int64_t most = units / (LEAST_TILES * FIG_STRIPS_PAIR_TILE);
    int64_t pieces = workers / strips < most ? workers / strips : most;
    if (pieces < 1) pieces = 1;
    const int64_t rounds = (strips * pieces + workers - 1) / workers;
    int64_t longest = rounds * (once + (units + pieces - 1) / pieces);
    const fig_strip_prefixes_even even = {.strips = strips,
                                          .tiles = units / FIG_STRIPS_PAIR_TILE,
                                          .pieces = pieces,
                                          .workers = workers,
                                          .limit = limit,
                                          .cost = {once, FIG_STRIPS_PAIR_TILE}};
    if (strips * pieces < workers) fig_strip_prefixes_rests(&even, &longest);
    return longest * UNIT_NS + PREFIX_NS;
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

void fig_division_add_prefix(const fig_strips_shape *strips, const fig_strip_group *group,
                             int32_t queries, fig_division_prefixes *prefixes) {
    const int32_t half = fig_strips_half(strips->ratio), rest = queries % (2 * half);
    const int64_t full = queries / (2 * half) + (rest > half), lone = rest > 0 && rest <= half;
    const int64_t tiles =
        (group->to - 1) / strips->tile_tokens + 1 - group->from / strips->tile_tokens;
    const int64_t of_full = fig_strips_shared_cost_of(strips, 2 * half).tile;
    const int64_t of_lone = fig_strips_shared_cost_of(strips, half).tile;
    prefixes->strips += (full + lone) * strips->kv_heads;
    prefixes->units += (full * of_full + lone * of_lone) * tiles * strips->kv_heads;
    prefixes->once += (full * PAIR_LEAVE + lone * LONE_LEAVE) * strips->kv_heads;
}

int32_t fig_division_tail_readers(const fig_division_pace *pace, const fig_strips_shape *strips,
                                  const fig_division_prefixes *prefixes, int64_t tiles) {
    const int64_t bytes = tiles * pace->tile_bytes;
    if (prefixes->strips == 0 || tiles == 0 || strips->workers < 2) return 0;
    best_division best = {INT64_MAX, 0};
    const int32_t half = fig_size_min(fig_size_min(pace->readers, strips->workers / 2),
                                      tiles < INT32_MAX ? (int32_t)tiles : INT32_MAX);
    for (int32_t readers = half; readers > 0; readers--) {
        if (readers > strips->workers / 3 && readers != strips->workers / 2) continue;
        const int64_t rows = row_ns(pace, bytes, readers) + prefixes->tails * TAIL_NS / readers;
        if (rows >= best.ns) break;
        const int32_t others = strips->workers - readers;
        const int64_t ns = divided_ns(rows, prefix_ns(prefixes, others, strips->workers));
        if (ns < best.ns) best = (best_division){ns, readers};
    }
    return best.readers;
}

int fig_division_is_for_tails(int64_t tokens, int64_t token_bytes) {
    return tokens * token_bytes >= TAIL_BYTES;
}
