/* test_units.c: tests that a step is cut by units if this leaves the fullest worker at least a 32nd
 * less work, for any order of rows, and that every other plan equals the plan by tiles byte for
 * byte.
 *
 * For comparison, a 64-bit scan over all segments finds each cut, a walk over all tiles finds each
 * worker's load, and a separate function cuts by tiles alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/spec/spec.h"
#include "planner/split/units.h"
#include "tests/support/random.h"

enum { TILE_CAPACITY = 1 << 17, RANDOM_STEPS = 20000 };

/* A step whose tiles have one token each, so that lengths count tiles. */
static struct ground {
    uint64_t seed;
    fig_split_shape shape;
    int32_t once, rows;
    int32_t lengths[FIG_BATCH_LIMIT], prefix[FIG_BATCH_LIMIT + 1], before[FIG_BATCH_LIMIT + 1];
    fig_split_start starts[FIG_WORKER_LIMIT], by_tiles[FIG_WORKER_LIMIT];
    fig_split_start by_units[FIG_WORKER_LIMIT];
    int32_t segment_of[TILE_CAPACITY], holder[TILE_CAPACITY];
    int32_t slot_of[TILE_CAPACITY];
    /* the units of the fullest worker if cut by units, and if cut by tiles */
    int32_t units_most, tiles_most;
    int is_by_units;
} ground;

static void refute(const char *what, int64_t index, int64_t seen, int64_t expected) {
    print_error("seed %llu, once %d, groups %d, workers %d, fixed %d, %d rows:",
                (unsigned long long)ground.seed, ground.once, ground.shape.groups,
                ground.shape.workers, ground.shape.fixed, ground.rows);
    for (int32_t row = 0; row < ground.rows; row++)
        print_error(" %d", ground.lengths[row]);
    print_error("\n");
    fail_msg("%s %lld: %lld, expected %lld", what, (long long)index, (long long)seen,
             (long long)expected);
}

static void expect(const char *what, int64_t index, int64_t seen, int64_t expected) {
    if (seen != expected) refute(what, index, seen, expected);
}

static int32_t line_tiles(void) {
    return ground.prefix[ground.rows] * ground.shape.groups;
}

/* ---- For comparison -------------------------------------------------------------------------- */

/* Returns the place of tile x on the line. */
static fig_split_start place_of(int32_t x) {
    fig_split_start at = {0, 0, 0, 0};
    while (ground.prefix[at.row + 1] * ground.shape.groups <= x)
        at.row++;
    const int32_t tiles = ground.prefix[at.row + 1] - ground.prefix[at.row];
    x -= ground.prefix[at.row] * ground.shape.groups;
    at.group = x / tiles;
    at.tile = x % tiles;
    return at;
}

/* Follows the rule in the head comment of split.h. */
static void cut_by_tiles(void) {
    const int64_t tiles = line_tiles(), workers = ground.shape.workers;
    const int64_t longest = (tiles + workers - 1) / workers;
    const int64_t active = tiles > 0 ? (tiles + longest - 1) / longest : 0;
    memset(ground.by_tiles, 0, sizeof ground.by_tiles);
    for (int64_t worker = 0; worker < active; worker++) {
        const int64_t first = tiles * worker / active, end = tiles * (worker + 1) / active;
        ground.by_tiles[worker] = place_of((int32_t)first);
        ground.by_tiles[worker].count = (int32_t)(end - first);
    }
}

/* Returns how many tiles the line has before the cut at x units, by the rules in the head comment
 * of units.h. */
static int32_t tiles_before(int64_t x) {
    int64_t units = 0;
    int32_t tiles = 0;
    for (int32_t row = 0; row < ground.rows; row++) {
        const int32_t n = ground.lengths[row];
        for (int32_t group = 0; group < ground.shape.groups && n > 0; group++) {
            const int64_t y = x - units, own = ground.once + 16 * (int64_t)n;
            if (y < own) {
                const int64_t tile = y < ground.once ? 0 : (y - ground.once + 8) / 16;
                return tiles + (int32_t)tile;
            }
            units += own;
            tiles += n;
        }
    }
    refute("no segment holds", x, -1, tiles);
    return tiles;
}

static int64_t line_units(void) {
    int64_t units = 0;
    for (int32_t row = 0; row < ground.rows; row++)
        if (ground.lengths[row] > 0) units += ground.once + 16 * (int64_t)ground.lengths[row];
    return units * ground.shape.groups;
}

static void cut_by_units(void) {
    const int64_t dealt = line_units() - ground.once;
    const int32_t workers = ground.shape.workers, all = line_tiles();
    int32_t first = 0;
    memset(ground.by_units, 0, sizeof ground.by_units);
    for (int32_t worker = 0; worker < workers; worker++) {
        int32_t end = all;
        if (worker + 1 < workers) end = tiles_before(ground.once + dealt * (worker + 1) / workers);
        if (first < all) ground.by_units[worker] = place_of(first);
        ground.by_units[worker].count = end - first;
        first = end;
    }
}

/* Returns the units of the fullest worker of a line with these cuts. A worker's units are those of
 * its tiles, and `once` for each segment that it begins or continues. */
static int32_t fullest_of(const fig_split_start *starts) {
    int32_t most = 0, x = 0;
    for (int32_t worker = 0; worker < ground.shape.workers; worker++) {
        int32_t units = 0, segment = -1;
        for (int32_t i = 0; i < starts[worker].count; i++, x++) {
            units += 16 + (ground.segment_of[x] != segment ? ground.once : 0);
            segment = ground.segment_of[x];
        }
        most = units > most ? units : most;
    }
    expect("tiles of all workers", 0, x, line_tiles());
    return most;
}

static void number_segments(void) {
    int32_t x = 0, segment = 0;
    for (int32_t row = 0; row < ground.rows; row++)
        for (int32_t group = 0; group < ground.shape.groups && ground.lengths[row] > 0;
             group++, segment++)
            for (int32_t tile = 0; tile < ground.lengths[row]; tile++)
                ground.segment_of[x++] = segment;
}

static int rows_are_alike(void) {
    int32_t seen = 0;
    for (int32_t row = 0; row < ground.rows; row++) {
        const int32_t length = ground.lengths[row];
        if (length > 0 && seen > 0 && length != seen) return 0;
        if (length > 0) seen = length;
    }
    return 1;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static void expect_starts(const char *what, const fig_split_start *seen,
                          const fig_split_start *expected) {
    for (int32_t worker = 0; worker < ground.shape.workers; worker++)
        if (memcmp(&seen[worker], &expected[worker], sizeof *seen) != 0) {
            print_error(
                "row %d group %d tile %d count %d, expected %d %d %d %d: ", seen[worker].row,
                seen[worker].group, seen[worker].tile, seen[worker].count, expected[worker].row,
                expected[worker].group, expected[worker].tile, expected[worker].count);
            refute(what, worker, 1, 0);
        }
}

/* Checks the cuts that a GPU thread computes, for its own worker and for any other. */
static void check_cuts_alone(void) {
    int32_t units = 0;
    for (int32_t row = 0; row < ground.rows; row++) {
        ground.before[row] = units;
        units += fig_units_of_tiles(ground.once, ground.lengths[row]);
    }
    ground.before[ground.rows] = units;
    const fig_split_line line = fig_split_line_of(&ground.shape, ground.prefix, ground.rows);
    const fig_units of = fig_units_of_line(&ground.shape, ground.once, ground.before, ground.rows);
    int32_t most = 0;
    for (int32_t worker = 0; worker < ground.shape.workers; worker++) {
        const fig_units_cut cut = fig_units_cut_of(&ground.shape, &line, &of, worker);
        const fig_units_cut next = fig_units_cut_of(&ground.shape, &line, &of, worker + 1);
        const fig_split_start start = fig_units_start(&line, &cut, next.tiles - cut.tiles);
        if (memcmp(&start, &ground.by_units[worker], sizeof start) != 0)
            refute("cut alone of worker", worker, cut.tiles, ground.by_units[worker].tile);
        const int32_t load = fig_units_load(&of, cut.tile, cut.units, next.units);
        most = load > most ? load : most;
    }
    expect("fullest by units, once", ground.once, most, ground.units_most);
    const int32_t even = fig_size_ceil_div(of.total - ground.once, ground.shape.workers);
    if (most > even + ground.once + 15) refute("fullest by units is past", even, most, even);
}

/* Checks that every tile has one worker, that the pieces of a segment are numbered without gaps,
 * and that each partial has its own slot within the bound. */
static void check_pieces(void) {
    fig_split_line line = fig_split_line_of(&ground.shape, ground.prefix, ground.rows);
    const int32_t limit = fig_split_partial_limit(&ground.shape);
    int32_t x = 0;
    line.starts = ground.starts;
    memset(ground.slot_of, 0, sizeof ground.slot_of[0] * (size_t)limit);
    for (int32_t worker = 0; worker < ground.shape.workers; worker++)
        for (int32_t i = 0; i < ground.starts[worker].count; i++)
            ground.holder[x++] = worker;
    x = 0;
    for (int32_t worker = 0; worker < ground.shape.workers; worker++) {
        fig_split_start start = ground.starts[worker];
        while (start.count > 0) {
            const fig_split_piece piece = fig_split_take(&ground.shape, &line, &start);
            const int32_t tiles = ground.lengths[piece.row];
            const int32_t segment =
                ground.prefix[piece.row] * ground.shape.groups + piece.group * tiles;
            expect("tile of the line where a piece begins", x, segment + piece.tile, x);
            expect("number of the piece at", x, piece.number, worker);
            expect("first worker of the segment at", segment, piece.first, ground.holder[segment]);
            expect("last worker of the segment at", segment, piece.last,
                   ground.holder[segment + tiles - 1]);
            for (int32_t tile = piece.tile; tile < piece.tile_end; tile++, x++)
                expect("who holds tile", x,
                       fig_split_holder(&ground.shape, &line, piece.row, piece.group, tile),
                       ground.holder[x]);
            for (int32_t number = piece.first; number <= piece.last; number++)
                if (ground.starts[number].count == 0) refute("a gap at worker", number, 0, 1);
            if (piece.first == piece.last) continue;
            const int32_t slot = fig_split_partial(&ground.shape, &piece, piece.number);
            if (slot < 0 || slot >= limit) refute("slot of the piece before", x, slot, limit);
            expect("earlier piece in slot", slot, ground.slot_of[slot], 0);
            ground.slot_of[slot] = 1;
        }
    }
    expect("tiles taken", 0, x, line_tiles());
}

/* Processors with AVX2 and processors without must find the same cuts. */
static void check_plain(void) {
    static int32_t prefix[FIG_BATCH_LIMIT + 1];
    static fig_split_start starts[FIG_WORKER_LIMIT];
    const fig_split_rows rows = {ground.lengths, ground.rows, 0, NULL, NULL};
    const size_t prefix_bytes = ((size_t)ground.rows + 1) * sizeof prefix[0];
    memcpy(prefix, ground.prefix, prefix_bytes);
    expect("plain prefix is new", 0, fig_split_prefix_plain(&ground.shape, &rows, prefix), 0);
    memset(prefix, 0xa5, prefix_bytes);
    expect("plain prefix is old", 0, fig_split_prefix_plain(&ground.shape, &rows, prefix), 1);
    if (memcmp(prefix, ground.prefix, prefix_bytes) != 0) refute("plain prefix", 0, 1, 0);
    expect("plain is by units", ground.once,
           fig_split_starts_plain(&ground.shape, ground.once, prefix, ground.rows, starts),
           ground.is_by_units);
    expect_starts("plain, worker", starts, ground.starts);
}

/* Checks the step in `ground`. */
static void check_step(void) {
    const fig_split_rows rows = {ground.lengths, ground.rows, 0, NULL, NULL};
    fig_split_prefix(&ground.shape, &rows, ground.prefix);
    number_segments();
    memset(ground.starts, 0xa5, sizeof ground.starts);
    ground.is_by_units =
        fig_split_starts(&ground.shape, ground.once, ground.prefix, ground.rows, ground.starts);
    check_plain();
    cut_by_tiles();
    int expected = 0;
    if (ground.once > 0 && !ground.shape.fixed && line_tiles() > ground.shape.workers &&
        !rows_are_alike()) {
        cut_by_units();
        ground.units_most = fullest_of(ground.by_units);
        ground.tiles_most = fullest_of(ground.by_tiles);
        expected = ground.units_most < ground.tiles_most - ground.tiles_most / 32;
        check_cuts_alone();
    }
    expect("is by units", ground.once, ground.is_by_units, expected);
    if (!expected) {
        expect_starts("by tiles, worker", ground.starts, ground.by_tiles);
        return;
    }
    expect_starts("by units, worker", ground.starts, ground.by_units);
    check_pieces();
}

/* ---- Steps ----------------------------------------------------------------------------------- */

enum { ANY, SHORT_AND_LONG, MANY_IDLE, TWO_LENGTHS, ALIKE, MIXES };

static int32_t draw_tiles(fig_random *random, int mix) {
    switch (mix) {
    case ANY: return fig_random_range(random, 0, 40);
    case SHORT_AND_LONG:
        return fig_random_range(random, 0, 3) > 0 ? fig_random_range(random, 0, 2)
                                                  : fig_random_range(random, 1, 300);
    case MANY_IDLE: return fig_random_range(random, 0, 3) > 0 ? 0 : fig_random_range(random, 1, 60);
    case TWO_LENGTHS: return fig_random_range(random, 0, 1) ? 1 : 33;
    default: return 7;
    }
}

static void draw_step(uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    const int mix = fig_random_range(&random, 0, MIXES - 1);
    ground.seed = seed;
    ground.shape = (fig_split_shape){.row_limit = fig_random_range(&random, 1, 16),
                                     .groups = fig_random_range(&random, 1, 8),
                                     .tile_tokens = 1,
                                     .workers = fig_random_range(&random, 1, 40),
                                     .row_tokens = 1,
                                     .fixed = fig_random_range(&random, 0, 15) == 0};
    if (fig_random_range(&random, 0, 15) == 0) ground.shape.workers *= 7;
    ground.rows = fig_random_range(&random, 0, ground.shape.row_limit);
    ground.once = fig_random_range(&random, 0, 7) > 0 ? fig_random_range(&random, 1, 90) : 0;
    for (int32_t row = 0; row < ground.rows; row++)
        ground.lengths[row] = draw_tiles(&random, mix);
}

static void random_steps_are_cut_as_the_definition_says(void **state) {
    (void)state;
    int32_t by_units = 0, idle_between = 0;
    for (uint64_t seed = 1; seed <= RANDOM_STEPS; seed++) {
        draw_step(seed);
        check_step();
        by_units += ground.is_by_units;
        for (int32_t w = 1; ground.is_by_units && w < ground.shape.workers; w++)
            if (ground.starts[w].count > 0 && ground.starts[w - 1].count == 0) {
                idle_between++;
                break;
            }
    }
    assert_true(by_units > RANDOM_STEPS / 5);
    assert_true(idle_between > RANDOM_STEPS / 200);
}

static void every_small_step_is_cut_as_the_definition_says(void **state) {
    (void)state;
    static const int32_t onces[] = {1, 7, 16, 41};
    int32_t by_units = 0;
    ground.seed = 0;
    for (int32_t groups = 1; groups <= 2; groups++)
        for (int32_t workers = 1; workers <= 5; workers++)
            for (int i = 0; i < 4; i++)
                for (int32_t n = 0; n < 8 * 8 * 8; n++) {
                    ground.shape = (fig_split_shape){.row_limit = 3,
                                                     .groups = groups,
                                                     .tile_tokens = 1,
                                                     .workers = workers,
                                                     .row_tokens = 1};
                    ground.rows = 3;
                    ground.once = onces[i];
                    ground.lengths[0] = n % 8;
                    ground.lengths[1] = n / 8 % 8;
                    ground.lengths[2] = n / 64;
                    check_step();
                    by_units += ground.is_by_units;
                }
    assert_true(by_units > 1000);
}

static void large_steps_are_cut_as_the_definition_says(void **state) {
    (void)state;
    int32_t by_units = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        fig_random random = fig_random_seed(seed);
        ground.seed = seed;
        ground.shape = (fig_split_shape){.row_limit = FIG_BATCH_LIMIT,
                                         .groups = seed % 2 ? 4 : 1,
                                         .tile_tokens = 1,
                                         .workers = seed % 3 ? 132 : FIG_WORKER_LIMIT,
                                         .row_tokens = 1};
        ground.once = 41;
        ground.rows = fig_random_range(&random, 256, FIG_BATCH_LIMIT);
        for (int32_t row = 0; row < ground.rows; row++) {
            const int32_t bits = fig_random_range(&random, 0, 6);
            ground.lengths[row] = fig_random_range(&random, seed % 4 ? 1 : 0, 1 << bits);
        }
        check_step();
        by_units += ground.is_by_units;
    }
    assert_true(by_units > 4);
}

/* ---- Steps on an H200 ------------------------------------------------------------------------ */

/* 132 workers, 32 q heads over 8 kv heads of 128, 2 bytes per number. */
typedef struct variant {
    int32_t heads, tile_tokens, once;
    double tile_us;
} variant;
static const variant HEAD = {1, 64, 33, 0.69}, PAGE = {8, 16, 14, 1.79}, PAIR = {2, 64, 41, 0.73};

typedef struct batch {
    int32_t count, rows[FIG_BATCH_LIMIT]; /* in tokens */
} batch;

static void add(batch *to, int32_t count, int32_t tokens) {
    while (count-- > 0)
        to->rows[to->count++] = tokens;
}

static int ascending(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Orders of a batch's rows. */
enum { GIVEN, SORTED, REVERSED, INTERLEAVED, SHUFFLED, ORDERS };

static batch in_order(const batch *given, int order) {
    batch of = *given, sorted = *given;
    qsort(sorted.rows, (size_t)sorted.count, sizeof sorted.rows[0], ascending);
    fig_random random = fig_random_seed((uint64_t)order);
    for (int32_t i = 0; i < of.count; i++) {
        const int32_t other = fig_random_range(&random, 0, i), last = of.count - 1;
        if (order == SORTED) of.rows[i] = sorted.rows[i];
        if (order == REVERSED) of.rows[i] = sorted.rows[last - i];
        if (order == INTERLEAVED) of.rows[i] = sorted.rows[i % 2 ? i / 2 : last - i / 2];
        if (order != SHUFFLED) continue;
        const int32_t row = of.rows[i];
        of.rows[i] = of.rows[other];
        of.rows[other] = row;
    }
    return of;
}

/* Returns the time in us by the model of kernels/NOTES.md: that of the fullest worker's units, or
 * that of all bytes at the memory's full speed, whichever is longer. */
static double predict(const variant *of, const batch *rows) {
    double bytes = 0;
    ground.seed = 0;
    ground.once = of->once;
    ground.rows = rows->count;
    ground.shape = (fig_split_shape){.row_limit = FIG_BATCH_LIMIT,
                                     .groups = 8 / of->heads,
                                     .tile_tokens = 1,
                                     .workers = 132,
                                     .row_tokens = 1};
    for (int32_t row = 0; row < rows->count; row++) {
        ground.lengths[row] = fig_size_ceil_div(rows->rows[row], of->tile_tokens);
        bytes += rows->rows[row] * 4096.0;
    }
    check_step();
    const double units = ground.is_by_units ? ground.units_most : ground.tiles_most;
    const double worker_us = units * of->tile_us / 16, memory_us = bytes / 4.57e6;
    return 1.5 + (worker_us > memory_us ? worker_us : memory_us);
}

/* Checks that a batch takes the expected time in any order of its rows, and is cut by units. */
static void expect_us(const char *name, const variant *of, const batch *given, double us) {
    for (int order = 0; order < ORDERS; order++) {
        const batch rows = in_order(given, order);
        const double seen = predict(of, &rows);
        if (!ground.is_by_units) fail_msg("%s, order %d: it is cut by tiles", name, order);
        if (seen > us * 1.03 || seen < us * 0.93)
            fail_msg("%s, order %d: %.1f us, expected %.1f", name, order, seen, us);
    }
}

static void five_batches_take_the_predicted_time_in_any_order(void **state) {
    (void)state;
    batch powers = {0}, four = {0}, few = {0}, tokens = {0}, prompt = {0};
    for (int32_t length = 1; length <= 32768; length *= 2) {
        add(&powers, 1, length);
        add(&four, 4, length);
    }
    add(&few, 1, 32768);
    add(&few, 7, 128);
    add(&tokens, 127, 1);
    add(&tokens, 1, 16384);
    add(&prompt, 1, 65536);
    add(&prompt, 255, 17);
    expect_us("one of each power of two", &PAIR, &powers, 62);
    expect_us("four of each", &PAIR, &four, 236);
    expect_us("1x32768+7x128", &HEAD, &few, 34);
    expect_us("127x1+1x16384", &PAIR, &tokens, 21);
    expect_us("1x65536+255x17", &PAIR, &prompt, 66);
}

/* Lengths are log-uniform, as on a server. No order of rows may cost more than another. */
static void no_order_of_rows_matters(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        fig_random random = fig_random_seed(seed);
        batch rows = {0};
        const int32_t count = fig_random_range(&random, 8, 256);
        for (int32_t i = 0; i < count; i++)
            add(&rows, 1, fig_random_range(&random, 1, 1 << fig_random_range(&random, 0, 15)));
        double least = 1e30, most = 0;
        for (int order = 0; order < ORDERS; order++) {
            const batch turned = in_order(&rows, order);
            const double us = predict(&PAIR, &turned);
            least = us < least ? us : least;
            most = us > most ? us : most;
        }
        if (most > 1.05 * least)
            fail_msg("seed %llu: %.2f us in one order, %.2f in another", (unsigned long long)seed,
                     least, most);
    }
}

static void rows_that_are_alike_keep_their_cuts_by_tiles(void **state) {
    (void)state;
    static const int32_t cells[][2] = {{8, 2048},  {32, 4096},  {33, 4096},  {34, 4096},
                                       {40, 4096}, {67, 4096},  {136, 4096}, {133, 2049},
                                       {256, 64},  {128, 128},  {1, 100000}, {3, 60000},
                                       {1, 512},   {256, 2048}, {64, 8192}};
    static const variant *const variants[] = {&HEAD, &PAGE, &PAIR};
    for (int v = 0; v < 3; v++)
        for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
            batch rows = {0};
            add(&rows, cells[i][0], cells[i][1]);
            predict(variants[v], &rows);
            assert_false(ground.is_by_units);
            add(&rows, cells[i][0] / 2, 0); /* again, with idle rows added */
            predict(variants[v], &rows);
            assert_false(ground.is_by_units);
        }
}

static void a_line_with_too_many_units_for_32_bits_is_cut_by_tiles(void **state) {
    (void)state;
    fig_split_shape shape = {.row_limit = 2,
                             .groups = 64,
                             .tile_tokens = 1,
                             .workers = FIG_WORKER_LIMIT,
                             .row_tokens = 1};
    /* The line has 64 * (16 * (tiles + 1) + 2 * once) units, which may be at most INT32_MAX. */
    const int32_t most = (INT32_MAX / 64 - 2 * 41) / 16 - 1;
    static fig_split_start starts[FIG_WORKER_LIMIT];
    for (int32_t over = 0; over <= 1; over++) {
        const int32_t prefix[] = {0, 1, 1 + most + over};
        assert_int_equal(fig_split_starts(&shape, 41, prefix, 2, starts), 0);
        int64_t tiles = 0;
        for (int32_t worker = 0; worker < shape.workers; worker++)
            tiles += starts[worker].count;
        assert_int_equal(tiles, (int64_t)prefix[2] * shape.groups);
        assert_int_equal(fig_units_may_cut(&shape, 41, prefix[2], most + over, 2), !over);
    }
    const int32_t before[] = {0, 57, 57 + 41 + 16 * most}, prefix[] = {0, 1, 1 + most};
    const fig_split_line line = fig_split_line_of(&shape, prefix, 2);
    const fig_units units = fig_units_of_line(&shape, 41, before, 2);
    const int64_t dealt = (int64_t)units.total - 41;
    int32_t tiles = 0;
    for (int32_t worker = 1; worker <= shape.workers; worker++) {
        const fig_units_cut cut = fig_units_cut_of(&shape, &line, &units, worker);
        const int64_t wanted = 41 + dealt * worker / shape.workers;
        assert_true(cut.tiles > tiles);
        assert_in_range(cut.units, wanted - 57, wanted + 8);
        tiles = cut.tiles;
    }
    assert_int_equal(tiles, line.tiles);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_step_is_cut_as_the_definition_says),
        cmocka_unit_test(random_steps_are_cut_as_the_definition_says),
        cmocka_unit_test(large_steps_are_cut_as_the_definition_says),
        cmocka_unit_test(five_batches_take_the_predicted_time_in_any_order),
        cmocka_unit_test(no_order_of_rows_matters),
        cmocka_unit_test(rows_that_are_alike_keep_their_cuts_by_tiles),
        cmocka_unit_test(a_line_with_too_many_units_for_32_bits_is_cut_by_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
