/* split.c: the split of one step, for all workers at once.
 *
 * Owns the host's walk over the line, which is the sequence of all tiles of the step (split.h);
 * split.h and units.h define the pieces of a single row and a single worker. Every step whose split
 * changes pays for this walk, so the loops over rows and over workers have no unpredictable
 * branches and the compiler can vectorise them. On a processor with AVX2, versions of the same
 * functions that are compiled for AVX2 run instead.
 *
 * Invariant: the starts are those of fig_split_start_of() for each worker where the line is cut by
 * tiles, and those of fig_units_cut_of() where it is cut by units. The plain and the AVX2 functions
 * give the same bytes. */
#include "planner/split/split.h"

#include <string.h>

#include "planner/spec/spec.h"
#include "planner/split/units.h"

/* AVX2 is detected through the C library, because not every compiler has a built-in for it. */
#if defined(__x86_64__) && __has_include(<sys/platform/x86.h>)
#define HAS_WIDE 1
#include <sys/platform/x86.h>
/* Compiles the function and everything that it calls for AVX2. */
#define WIDE __attribute__((target("avx2"), flatten))
#else
#define HAS_WIDE 0
#endif

/* The number of rows whose tiles are counted at a time. */
enum { BLOCK = 128 };

static int is_power(int32_t tokens) {
    return (tokens & (tokens - 1)) == 0;
}

/* Does the work of fig_split_tiles_ahead() for `count` rows and a tile of 2^shift tokens, with no
 * division and no branch. */
static void count_shifted(const fig_split_shape *shape, int32_t shift, const int32_t *lengths,
                          int32_t count, int32_t ahead, int32_t *tiles) {
    /* The distance from the first visible token to the row's end. Without a window the distance
     * exceeds every length, so no token is hidden. */
    const int64_t seen = (int64_t)shape->row_tokens - 1 + shape->window;
    const int32_t behind = shape->window > 0 && seen < INT32_MAX ? (int32_t)seen : INT32_MAX;
    for (int32_t row = 0; row < count; row++) {
        const int32_t length = lengths[row], first = length > behind ? length - behind : 0;
        const int32_t n = ((length + ahead - 1) >> shift) - (first >> shift) + 1;
        tiles[row] = length > 0 ? n : 0;
    }
}

/* Does the work of fig_split_tiles_of() in the same way. */
static void count_packed(const fig_split_shape *shape, int32_t shift, const int32_t *lengths,
                         const int32_t *queries, int32_t count, int32_t *tiles) {
    const int32_t most = shape->row_tokens, has_window = shape->window > 0;
    /* A larger window hides no token, either; this one cannot make the difference overflow. */
    const int32_t window = has_window ? fig_size_min(shape->window - 1, INT32_MAX / 2) : 0;
    for (int32_t row = 0; row < count; row++) {
        const int32_t length = lengths[row], own = queries[row];
        const int32_t low = has_window ? length - own - window : 0, first = low > 0 ? low : 0;
        const int32_t n = ((length - 1) >> shift) - (first >> shift) + 1;
        const int32_t is_seen = (length > 0) & (own > 0) & (own <= most);
        tiles[row] = is_seen ? n : 0;
    }
}

/* Counts all tiles of at most BLOCK rows from `first` on; returns the number of rows counted. */
static int32_t count_all(const fig_split_shape *shape, const fig_split_rows *rows, int32_t first,
                         int32_t tiles[BLOCK]) {
    const int32_t count = fig_size_min(rows->count - first, BLOCK);
    const int32_t *lengths = rows->lengths + first;
    const int is_shift = is_power(shape->tile_tokens);
    const int32_t shift = __builtin_ctz((unsigned)shape->tile_tokens);
    if (is_shift && rows->queries != NULL) {
        count_packed(shape, shift, lengths, rows->queries + first, count, tiles);
        return count;
    }
    for (int32_t row = 0; row < count && rows->queries != NULL; row++)
        tiles[row] = fig_split_tiles_of(shape, lengths[row], rows->queries[first + row]);
    if (rows->queries != NULL) return count;
    if (is_shift) {
        count_shifted(shape, shift, lengths, count, rows->ahead, tiles);
        return count;
    }
    for (int32_t row = 0; row < count; row++)
        tiles[row] = fig_split_tiles_ahead(shape, lengths[row], rows->ahead);
    return count;
}

/* Counts the tiles of at most BLOCK rows that are on the line. */
static int32_t count_block(const fig_split_shape *shape, const fig_split_rows *rows, int32_t first,
                           int32_t tiles[BLOCK]) {
    const int32_t count = count_all(shape, rows, first, tiles);
    for (int32_t row = 0; row < count && rows->hidden != NULL; row++)
        tiles[row] -= rows->hidden[first + row];
    return count;
}

fig_split_totals fig_split_count(const fig_split_shape *shape, const fig_split_rows *rows) {
    fig_split_totals totals = {0, 0, 0};
    int32_t tiles[BLOCK], longest = 0, busy = 0;
    for (int32_t first = 0; first < rows->count; first += BLOCK) {
        const int32_t count = count_block(shape, rows, first, tiles);
        /* A row has at most 2^20 tiles, so a block's sum fits 32 bits. */
        int32_t sum = 0;
        for (int32_t row = 0; row < count; row++) {
            sum += tiles[row];
            longest = tiles[row] > longest ? tiles[row] : longest;
            busy += tiles[row] > 0;
        }
        totals.tiles += sum;
    }
    totals.longest = longest;
    totals.busy = busy;
    return totals;
}

int fig_split_prefix_plain(const fig_split_shape *shape, const fig_split_rows *rows,
                           int32_t *prefix) {
    int32_t tiles[BLOCK], sum = 0, changed = 0;
    assert(rows->count >= 0 && rows->count <= shape->row_limit);
    assert(shape->tile_tokens >= 1 && shape->row_tokens >= 1 && shape->window >= 0);
    for (int32_t first = 0; first < rows->count; first += BLOCK) {
        const int32_t count = count_block(shape, rows, first, tiles);
        for (int32_t row = 0; row < count; row++) {
            changed |= prefix[first + row] ^ sum;
            prefix[first + row] = sum;
            sum += tiles[row];
        }
    }
    changed |= prefix[rows->count] ^ sum;
    prefix[rows->count] = sum;
    return changed != 0;
}

/* ---- Units ---------------------------------------------------------------------------------- */

/* A line without its idle rows. */
typedef struct busy_line {
    fig_split_line line;
    const int32_t *names; /* [line.rows] number of each row in the step; NULL: no row is idle */
    int32_t prefix_room[FIG_BATCH_LIMIT + 1], name_room[FIG_BATCH_LIMIT];
} busy_line;

static void drop_idle(const fig_split_line *line, int32_t busy, busy_line *of) {
    int32_t kept = 0;
    of->line = *line;
    of->names = NULL;
    if (busy == line->rows) return;
    for (int32_t row = 0; row < line->rows && kept < busy; row++) {
        of->prefix_room[kept] = line->prefix[row];
        of->name_room[kept] = row;
        kept += line->prefix[row + 1] > line->prefix[row];
    }
    of->prefix_room[busy] = line->prefix[line->rows];
    of->line.prefix = of->prefix_room;
    of->line.rows = busy;
    of->names = of->name_room;
}

/* Returns the units of all rows before `row`, in all head groups, on a line that has no idle
 * row. */
static int32_t units_before(int32_t groups, const int32_t *prefix, int32_t once, int32_t row) {
    return (FIG_UNITS_OF_TILE * prefix[row] + once * row) * groups;
}

/* Returns 1 if cuts by units may give the fullest worker a 32nd less work than cuts by tiles. Cuts
 * by units give it at least an even share of all units. Cuts by tiles give it at most the units
 * that the longest stretch would have if all its segments were as short as the shortest row. */
static int may_be_better(const fig_split_shape *shape, const fig_split_line *line, int32_t once) {
    const int64_t stretch = fig_size_ceil_div(line->tiles, line->active);
    const int32_t *prefix = line->prefix;
    int32_t shortest = INT32_MAX;
    for (int32_t row = 0; row < line->rows; row++) {
        const int32_t tiles = prefix[row + 1] - prefix[row];
        shortest = tiles < shortest ? tiles : shortest;
    }
    const int64_t most = FIG_UNITS_OF_TILE * stretch + once * (2 + (stretch - 2) / shortest);
    const int64_t even =
        units_before(shape->groups, line->prefix, once, line->rows) / shape->workers;
    return even < most - most / 32;
}

/* Returns 1 if cuts by units are worth computing; *of is then the line without idle rows. */
static int count_units(const fig_split_shape *shape, int32_t once, const fig_split_line *line,
                       busy_line *of) {
    const int32_t *prefix = line->prefix, rows = line->rows;
    int32_t longest = 0, busy = 0;
    if (once == 0 || shape->fixed || line->tiles <= shape->workers) return 0;
    for (int32_t row = 0; row < rows; row++) {
        const int32_t tiles = prefix[row + 1] - prefix[row];
        longest = tiles > longest ? tiles : longest;
        busy += tiles > 0;
    }
    if (!fig_units_may_cut(shape, once, prefix[rows], longest, busy)) return 0;
    drop_idle(line, busy, of);
    return may_be_better(shape, &of->line, once);
}

/* Finds, for each cut, the row that holds the cut's wanted place, or sometimes the row after it.
 * Each row marks the first cut whose wanted place is at the row's start or later. A cut then lies
 * in the last row that marked this cut or an earlier one. Single precision is enough because its
 * errors can only lower a mark: a mark may name the cut before the right one, but never a later
 * cut. */
static void mark_rows(const fig_split_shape *shape, const fig_split_line *line, int32_t once,
                      int32_t marks[FIG_WORKER_LIMIT + 1]) {
    int32_t cuts[BLOCK];
    const double workers = shape->workers;
    const double share =
        workers / (units_before(shape->groups, line->prefix, once, line->rows) - once);
    const float of_tile = (float)(FIG_UNITS_OF_TILE * shape->groups * share);
    const float of_row = (float)(once * shape->groups * share);
    /* The 1 turns the rounding down of the conversion to int32_t into rounding up. The error of
     * single precision is below 2^-20 per worker; subtracting it ensures that no error raises a
     * mark. */
    const float first = (float)(1 - once * share - workers * 0x1p-20);
    memset(marks, 0, ((size_t)shape->workers + 1) * sizeof *marks);
    for (int32_t row = 1; row < line->rows; row += BLOCK) {
        const int32_t count = fig_size_min(line->rows - row, BLOCK);
        const int32_t *prefix = line->prefix + row;
        for (int32_t i = 0; i < count; i++)
            cuts[i] = (int32_t)((float)prefix[i] * of_tile + (float)(row + i) * of_row + first);
        for (int32_t i = 0; i < count; i++)
            marks[cuts[i]] = row + i;
    }
}

/* The cuts of all workers; the end of the line follows the last cut. */
typedef struct unit_cuts {
    int32_t row[FIG_WORKER_LIMIT], group[FIG_WORKER_LIMIT];
    int32_t tile[FIG_WORKER_LIMIT + 1];
    int32_t tiles[FIG_WORKER_LIMIT + 1]; /* tiles of the line before the cut */
    /* units of the line before the cut; `once` of the segment that is cut is not counted */
    int32_t units[FIG_WORKER_LIMIT + 1];
} unit_cuts;

/* The wanted places of cuts, before each cut moves to a whole tile. */
typedef struct wanted_cuts {
    int32_t behind[FIG_WORKER_LIMIT];    /* units from the start of the row to the cut */
    int32_t row_tiles[FIG_WORKER_LIMIT]; /* tiles of the row in one head group */
} wanted_cuts;

/* Fills in `wanted` and, in `cuts`, the row of each cut, the tiles before that row, and the wanted
 * place in units. The place grows by a fixed stride of 32.32 bits. The stride is rounded up, so
 * after all cuts the place is at most 2^-22 too large. An exact place lies at least 2^-10 below the
 * next integer, so the integer part is exact. */
static void find_wanted(const fig_split_shape *shape, const fig_split_line *line, int32_t once,
                        unit_cuts *cuts, wanted_cuts *wanted) {
    const int32_t groups = shape->groups, count = shape->workers, *prefix = line->prefix;
    const uint64_t workers = (uint64_t)count;
    const uint64_t dealt =
        (uint64_t)(units_before(shape->groups, line->prefix, once, line->rows) - once) << 32;
    const uint64_t stride = (dealt + workers - 1) / workers;
    uint64_t place = (uint64_t)once << 32;
    int32_t marks[FIG_WORKER_LIMIT + 1], last = 0;
    mark_rows(shape, line, once, marks);
    for (int32_t worker = 0; worker < count; worker++, place += stride) {
        const int32_t x = (int32_t)(place >> 32);
        last = marks[worker] > last ? marks[worker] : last;
        int32_t row = last, first = units_before(groups, prefix, once, row);
        while (x < first)
            first = units_before(groups, prefix, once, --row);
        cuts->row[worker] = row;
        cuts->tiles[worker] = prefix[row] * groups;
        cuts->units[worker] = x;
        wanted->behind[worker] = x - first;
        wanted->row_tiles[worker] = prefix[row + 1] - prefix[row];
    }
}

/* Does the work of fig_units_cut_of() for all workers at once, on a line that has no idle row.
 * Conditions are masks, 0 or -1, so that the compiler can vectorise the loops. */
static void cut_by_units(const fig_split_shape *shape, const fig_split_line *line, int32_t once,
                         unit_cuts *cuts) {
    const int32_t workers = shape->workers, groups = shape->groups;
    wanted_cuts wanted;
    find_wanted(shape, line, once, cuts, &wanted);
    for (int32_t worker = 0; worker < workers; worker++) {
        const int32_t row_tiles = wanted.row_tiles[worker], behind = wanted.behind[worker];
        const int32_t own = FIG_UNITS_OF_TILE * row_tiles + once;
        int32_t group = (int32_t)((double)behind / own);
        const int32_t rest = behind - group * own, y = rest - once + FIG_UNITS_OF_TILE / 2;
        int32_t tile = (int32_t)((uint32_t)(y & ~(y >> 31)) / FIG_UNITS_OF_TILE);
        const int32_t is_next = -(tile == row_tiles);
        tile &= ~is_next;
        group -= is_next;
        const int32_t is_past = -(group == groups);
        cuts->tiles[worker] += group * row_tiles + tile;
        cuts->units[worker] += FIG_UNITS_OF_TILE * tile - rest + (own & is_next);
        cuts->row[worker] -= is_past;
        cuts->group[worker] = group & ~is_past;
        cuts->tile[worker] = tile;
    }
    cuts->tile[workers] = 0;
    cuts->tiles[workers] = line->tiles;
    cuts->units[workers] = units_before(shape->groups, line->prefix, once, line->rows);
}

/* Returns the units of a worker that begins after `begin` units and ends at the given place. */
static int32_t load_of(int32_t once, int32_t begin, int32_t end_units, int32_t end_tile) {
    return end_units + (-(end_tile > 0) & once) - begin;
}

static int32_t fullest_of(const unit_cuts *cuts, int32_t once, int32_t workers) {
    int32_t most = 0;
    for (int32_t worker = 0; worker < workers; worker++) {
        const int32_t load =
            load_of(once, cuts->units[worker], cuts->units[worker + 1], cuts->tile[worker + 1]);
        most = load > most ? load : most;
    }
    return most;
}

static void write_unit_starts(const fig_split_shape *shape, const fig_split_line *line,
                              const unit_cuts *cuts, fig_split_start *starts) {
    for (int32_t worker = 0; worker < shape->workers; worker++)
        starts[worker] = (fig_split_start){.row = cuts->row[worker],
                                           .group = cuts->group[worker],
                                           .tile = cuts->tile[worker],
                                           .count = cuts->tiles[worker + 1] - cuts->tiles[worker]};
    for (int32_t worker = shape->workers; starts[worker - 1].row == line->rows; worker--)
        starts[worker - 1].row = 0;
}

/* ---- Tiles ---------------------------------------------------------------------------------- */

/* A row, and the part of the line that it covers. */
typedef struct place {
    int32_t row, first; /* the row's first tile, counted from the start of the line */
    int32_t row_tiles;  /* tiles of the row in one head group */
    int32_t end;        /* the next row's first tile */
} place;

/* Moves *at forward to the row that holds tile x of the line. */
static void advance(const fig_split_shape *shape, const int32_t *prefix, int32_t x, place *at) {
    while (x >= at->end) {
        at->row++;
        at->first = at->end;
        at->row_tiles = prefix[at->row + 1] - prefix[at->row];
        at->end += at->row_tiles * shape->groups;
    }
}

/* The cuts by units with which cuts by tiles are compared. */
typedef struct rival {
    int32_t once; /* 0: there are no cuts by units */
    int32_t most; /* units of the fullest worker under these cuts */
} rival;

/* Writes the starts of the cuts by tiles. The first tile of worker w is T * w / A, where T is
 * the number of tiles and A the number of workers that get tiles. The whole part and the remainder
 * of this quotient grow by the same amounts from worker to worker, so one division serves all
 * workers. If there is more than one head group, a second division per worker finds the worker's
 * group.
 *
 * Returns 0 as soon as a worker has enough units for the rival to win; the starts are then
 * incomplete. A line that has a rival has no idle row. */
static int cut_by_tiles(const fig_split_shape *shape, const fig_split_line *line,
                        const rival *against, fig_split_start *starts) {
    const int32_t step = line->active > 0 ? line->tiles / line->active : 0;
    const int32_t rest = line->active > 0 ? line->tiles % line->active : 0;
    const int32_t groups = shape->groups, once = against->once;
    place at = {.row = -1};
    int32_t x = 0, remainder = 0, before = 0;
    for (int32_t worker = 0; worker < line->active; worker++) {
        remainder += rest;
        const int32_t over = remainder >= line->active, count = step + over;
        remainder -= -over & line->active;
        advance(shape, line->prefix, x, &at);
        const uint32_t offset = (uint32_t)(x - at.first), row_tiles = (uint32_t)at.row_tiles;
        const uint32_t group = groups > 1 ? offset / row_tiles : 0;
        const int32_t tile = (int32_t)(offset - group * row_tiles);
        starts[worker] =
            (fig_split_start){.row = at.row, .group = (int32_t)group, .tile = tile, .count = count};
        if (once > 0) {
            const int32_t segments = at.row * groups + (int32_t)group;
            const int32_t units = FIG_UNITS_OF_TILE * x + once * segments;
            if (fig_units_are_better(against->most, load_of(once, before, units, tile))) return 0;
            before = units;
        }
        x += count;
    }
    for (int32_t worker = line->active; worker < shape->workers; worker++)
        starts[worker] = (fig_split_start){0, 0, 0, 0};
    if (once == 0) return 1;
    const int32_t end = units_before(shape->groups, line->prefix, once, line->rows);
    return !fig_units_are_better(against->most, load_of(once, before, end, 0));
}

/* ---- The split ------------------------------------------------------------------------------ */

/* Replaces row numbers of the line by row numbers of the step. Starts of zeros belong to workers
 * past the end of the line and stay. */
static void name_rows(const busy_line *of, int32_t workers, fig_split_start *starts) {
    for (int32_t worker = 0; worker < workers && of->names != NULL; worker++) {
        fig_split_start *start = &starts[worker];
        if (start->count > 0 || start->row + start->group + start->tile > 0)
            start->row = of->names[start->row];
    }
}

int fig_split_starts_plain(const fig_split_shape *shape, int32_t once, const int32_t *prefix,
                           int32_t rows, fig_split_start *starts) {
    const fig_split_line line = fig_split_line_of(shape, prefix, rows);
    rival against = {0, 0};
    busy_line busy;
    unit_cuts cuts;
    assert(shape->workers >= 1 && shape->workers <= FIG_WORKER_LIMIT);
    assert(once >= 0 && once <= FIG_UNITS_ONCE_LIMIT && (once == 0 || rows <= FIG_BATCH_LIMIT));
    if (!count_units(shape, once, &line, &busy)) {
        cut_by_tiles(shape, &line, &against, starts);
        return 0;
    }
    cut_by_units(shape, &busy.line, once, &cuts);
    against = (rival){once, fullest_of(&cuts, once, shape->workers)};
    const int is_by_tiles = cut_by_tiles(shape, &busy.line, &against, starts);
    if (!is_by_tiles) write_unit_starts(shape, &busy.line, &cuts, starts);
    name_rows(&busy, shape->workers, starts);
    return !is_by_tiles;
}

#if HAS_WIDE

static WIDE int prefix_wide(const fig_split_shape *shape, const fig_split_rows *rows,
                            int32_t *prefix) {
    return fig_split_prefix_plain(shape, rows, prefix);
}

static WIDE int starts_wide(const fig_split_shape *shape, int32_t once, const int32_t *prefix,
                            int32_t rows, fig_split_start *starts) {
    return fig_split_starts_plain(shape, once, prefix, rows, starts);
}

int fig_split_prefix(const fig_split_shape *shape, const fig_split_rows *rows, int32_t *prefix) {
    if (CPU_FEATURE_ACTIVE(AVX2)) return prefix_wide(shape, rows, prefix);
    return fig_split_prefix_plain(shape, rows, prefix);
}

int fig_split_starts(const fig_split_shape *shape, int32_t once, const int32_t *prefix,
                     int32_t rows, fig_split_start *starts) {
    if (CPU_FEATURE_ACTIVE(AVX2)) return starts_wide(shape, once, prefix, rows, starts);
    return fig_split_starts_plain(shape, once, prefix, rows, starts);
}

#else

int fig_split_prefix(const fig_split_shape *shape, const fig_split_rows *rows, int32_t *prefix) {
    return fig_split_prefix_plain(shape, rows, prefix);
}

int fig_split_starts(const fig_split_shape *shape, int32_t once, const int32_t *prefix,
                     int32_t rows, fig_split_start *starts) {
    return fig_split_starts_plain(shape, once, prefix, rows, starts);
}

#endif
