/* test_split.c: tests, for any lengths, that every visible token has exactly one worker, that no
 * worker has more than its share, and that every partial has a slot of its own.
 *
 * For comparison, the test makes a map of the line, tile by tile, with the tile's owner by the rule
 * in split.h and the worker that really took the tile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "planner/split/split.h"
#include "tests/support/random.h"

/* In small shapes every step is tried, so every combination of cuts, borders, idle rows and windows
 * occurs. Random shapes add large sizes and mixtures. */
enum { RANDOM_STEPS = 100000, FIXED_STEPS = 4000 };
enum { ROW_CAPACITY = 1024, LINE_CAPACITY = 1 << 18 };

typedef struct taken {
    fig_split_piece piece;
    int32_t worker;
} taken;

/* One step, its split, and the map. */
static struct ground {
    uint64_t seed;
    fig_split_shape shape;
    int32_t rows;
    int32_t ahead; /* how many tokens a row may still grow by */
    int32_t lengths[ROW_CAPACITY];
    int32_t prefix[ROW_CAPACITY + 1];
    fig_split_start starts[FIG_WORKER_LIMIT];
    fig_split_line line;
    int32_t row_tiles[ROW_CAPACITY];     /* the tiles of each row in one head group */
    int32_t row_begin[ROW_CAPACITY + 1]; /* the tile of the line where a row begins */
    int32_t owner[LINE_CAPACITY];        /* the owner by the rule in split.h */
    int32_t taker[LINE_CAPACITY];        /* the worker that took the tile; -1: none yet */
    taken pieces[LINE_CAPACITY];
    int32_t piece_count;
    int32_t slot_of[LINE_CAPACITY]; /* for each slot: 1 + the index of its piece; 0: none */
    int32_t partials;
} ground;

static fig_split_shape shape_of(int32_t row_limit, int32_t groups, int32_t tile_tokens,
                                int32_t workers) {
    return (fig_split_shape){.row_limit = row_limit,
                             .groups = groups,
                             .tile_tokens = tile_tokens,
                             .workers = workers,
                             .row_tokens = 1};
}

/* Fails, and prints the step, so that the message alone suffices to repeat it. */
static void refute(const char *what, int64_t index, int64_t seen, int64_t expected) {
    const fig_split_shape *shape = &ground.shape;
    print_error("seed %llu, row_limit %d, groups %d, tile_tokens %d, workers %d, window %d, "
                "row_tokens %d, fixed %d, ahead %d, %d rows:",
                (unsigned long long)ground.seed, shape->row_limit, shape->groups,
                shape->tile_tokens, shape->workers, shape->window, shape->row_tokens, shape->fixed,
                ground.ahead, ground.rows);
    for (int32_t row = 0; row < ground.rows; row++)
        print_error(" %d", ground.lengths[row]);
    print_error("\n");
    fail_msg("%s %lld: %lld, expected %lld", what, (long long)index, (long long)seen,
             (long long)expected);
}

static void expect(const char *what, int64_t index, int64_t seen, int64_t expected) {
    if (seen != expected) refute(what, index, seen, expected);
}

/* Counts tiles by walking from token 0, without the tested formula. A tile is read if its last
 * token is seen by the row's first query, which sees furthest back. Tiles that the row will grow
 * into count too. */
static int32_t count_tiles(int32_t length) {
    const int32_t first_query = length - ground.shape.row_tokens;
    int32_t tiles = 0;
    const int32_t grown = length > 0 ? length + ground.ahead : 0;
    for (int32_t token = 0; token < grown; token += ground.shape.tile_tokens) {
        int32_t last = token + ground.shape.tile_tokens - 1;
        tiles += ground.shape.window == 0 || last > first_query - ground.shape.window;
    }
    return tiles;
}

/* Makes the map of the line as the head comment of split.h describes it. */
static void draw_map(void) {
    int32_t tiles = 0;
    for (int32_t row = 0; row < ground.rows; row++) {
        ground.row_begin[row] = tiles;
        ground.row_tiles[row] = count_tiles(ground.lengths[row]);
        tiles += ground.row_tiles[row] * ground.shape.groups;
    }
    ground.row_begin[ground.rows] = tiles;
    assert_in_range(tiles, 0, LINE_CAPACITY);
    int32_t longest = tiles > 0 ? (tiles - 1) / ground.shape.workers + 1 : 1;
    int32_t active = tiles > 0 ? (tiles - 1) / longest + 1 : 0;
    for (int32_t worker = 0; worker < active; worker++) {
        int64_t begin = (int64_t)tiles * worker / active;
        int64_t end = (int64_t)tiles * (worker + 1) / active;
        for (int64_t x = begin; x < end; x++)
            ground.owner[x] = worker;
    }
    for (int32_t x = 0; x < tiles; x++)
        ground.taker[x] = -1;
    ground.shape.tile_limit = tiles;
}

static int split_rows(void) {
    const fig_split_rows rows = {ground.lengths, ground.rows, ground.ahead, NULL, NULL};
    const int changed = fig_split_prefix(&ground.shape, &rows, ground.prefix);
    fig_split_starts(&ground.shape, 0, ground.prefix, ground.rows, ground.starts);
    return changed;
}

/* Compares the totals that decide the choice of a bucket. */
static void count(void) {
    const fig_split_rows rows = {ground.lengths, ground.rows, ground.ahead, NULL, NULL};
    const fig_split_totals totals = fig_split_count(&ground.shape, &rows);
    int64_t tiles = 0, longest = 0, busy = 0;
    for (int32_t row = 0; row < ground.rows; row++) {
        tiles += ground.row_tiles[row];
        longest = ground.row_tiles[row] > longest ? ground.row_tiles[row] : longest;
        busy += ground.row_tiles[row] > 0;
    }
    expect("tiles of rows", ground.rows, totals.tiles, tiles);
    expect("tiles of the longest of rows", ground.rows, totals.longest, longest);
    expect("busy rows of", ground.rows, totals.busy, busy);
}

/* The walk over all workers must agree with the function that finds one worker's start. */
static void plan(void) {
    memset(ground.prefix, 0xa5, sizeof ground.prefix[0] * (size_t)(ground.rows + 1));
    expect("prefix is another, rows", ground.rows, split_rows(), 1);
    expect("prefix is the same, rows", ground.rows, split_rows(), 0);
    for (int32_t row = 0; row <= ground.rows; row++)
        expect("prefix of row", row, (int64_t)ground.prefix[row] * ground.shape.groups,
               ground.row_begin[row]);
    ground.line = fig_split_line_of(&ground.shape, ground.prefix, ground.rows);
    for (int32_t worker = 0; worker < ground.shape.workers; worker++) {
        fig_split_start found = fig_split_start_of(&ground.shape, &ground.line, worker);
        if (memcmp(&ground.starts[worker], &found, sizeof found) != 0)
            refute("tile where a worker starts, worker", worker, ground.starts[worker].tile,
                   found.tile);
    }
}

/* A piece has its worker's number or, in a fixed split, its tile's number on the line. */
static void expect_numbers(int32_t worker, const fig_split_piece *piece, int32_t segment) {
    const int32_t end = segment + ground.row_tiles[piece->row] - 1;
    if (ground.shape.fixed) {
        expect("tiles of a fixed piece at tile", segment, piece->tile_end - piece->tile, 1);
        expect("number of piece at tile", segment, piece->number, segment + piece->tile);
        expect("first piece of segment at tile", segment, piece->first, segment);
        expect("last piece of segment at tile", segment, piece->last, end);
        return;
    }
    expect("number of piece at tile", segment + piece->tile, piece->number, worker);
    expect("first worker of segment at tile", segment, piece->first, ground.owner[segment]);
    expect("last worker of segment at tile", segment, piece->last, ground.owner[end]);
}

static void take_one(int32_t worker, const fig_split_piece *piece) {
    int32_t tiles = piece->tile_end - piece->tile;
    if (piece->row >= ground.rows || ground.lengths[piece->row] <= 0)
        refute("an idle row is on the line, row", piece->row, worker, -1);
    if (tiles < 1) refute("an empty piece of worker", worker, tiles, 1);
    int32_t row_tiles = ground.row_tiles[piece->row];
    if (piece->tile < 0 || piece->tile_end > row_tiles)
        refute("a piece past its row, row", piece->row, piece->tile_end, row_tiles);
    int32_t segment = ground.row_begin[piece->row] + piece->group * row_tiles;
    for (int32_t x = segment + piece->tile; x < segment + piece->tile_end; x++) {
        expect("owner of tile", x, worker, ground.owner[x]);
        expect("earlier taker of tile", x, ground.taker[x], -1);
        ground.taker[x] = worker;
    }
    expect_numbers(worker, piece, segment);
    ground.pieces[ground.piece_count++] = (taken){*piece, worker};
}

static void take_all(void) {
    int32_t tiles = ground.line.tiles;
    ground.piece_count = 0;
    for (int32_t worker = 0; worker < ground.shape.workers; worker++) {
        fig_split_start start = ground.starts[worker];
        if ((int64_t)start.count * ground.shape.workers > (int64_t)tiles + ground.shape.workers)
            refute("more than the mean and a tile, worker", worker, start.count,
                   tiles / ground.shape.workers + 1);
        while (start.count > 0) {
            fig_split_piece piece = fig_split_take(&ground.shape, &ground.line, &start);
            take_one(worker, &piece);
        }
    }
    for (int32_t x = 0; x < tiles; x++) {
        if (ground.taker[x] < 0) refute("nobody takes tile", x, -1, ground.owner[x]);
    }
}

/* Each piece of a cut segment has a slot of its own, in whatever order pieces end. The worker that
 * merges the segment finds each piece in that slot. */
static void place_partials(void) {
    int32_t limit = fig_split_partial_limit(&ground.shape);
    memset(ground.slot_of, 0, sizeof ground.slot_of[0] * (size_t)limit);
    ground.partials = 0;
    for (int32_t i = 0; i < ground.piece_count; i++) {
        const fig_split_piece *piece = &ground.pieces[i].piece;
        if (piece->first == piece->last) continue;
        int32_t slot = fig_split_partial(&ground.shape, piece, piece->number);
        if (slot < 0 || slot >= limit) refute("slot of piece", i, slot, limit);
        expect("earlier piece in slot", slot, ground.slot_of[slot], 0);
        ground.slot_of[slot] = i + 1;
        ground.partials++;
    }
    for (int32_t i = 0; i < ground.piece_count; i++) {
        const fig_split_piece *merger = &ground.pieces[i].piece;
        if (merger->number != merger->last) continue;
        for (int32_t number = merger->first; number < merger->last; number++) {
            int32_t slot = fig_split_partial(&ground.shape, merger, number);
            if (ground.slot_of[slot] == 0) refute("nobody's slot", slot, 0, number);
            const fig_split_piece *other = &ground.pieces[ground.slot_of[slot] - 1].piece;
            expect("number in slot", slot, other->number, number);
            expect("row in slot", slot, other->row, merger->row);
            expect("group in slot", slot, other->group, merger->group);
        }
    }
}

static void check_step(void) {
    draw_map();
    count();
    plan();
    take_all();
    place_partials();
}

enum { UNIFORM, RAGGED, ONE_HUGE, MANY_IDLE, ALL_IDLE, AT_BORDERS, TINY, MIX_COUNT };

static int32_t draw_length(fig_random *random, int mix, int32_t uniform) {
    int32_t tile = ground.shape.tile_tokens;
    switch (mix) {
    case UNIFORM: return uniform;
    case RAGGED: return fig_random_range(random, 0, 8 * tile);
    case ONE_HUGE: return fig_random_range(random, 1, 2 * tile);
    case MANY_IDLE:
        return fig_random_range(random, 0, 3) > 0 ? 0 : fig_random_range(random, 1, 6 * tile);
    case AT_BORDERS: {
        /* The length lies at the end of a tile or, half of the time, one window further. */
        int32_t border = fig_random_range(random, 0, 8) * tile + fig_random_range(random, -1, 1);
        if (fig_random_range(random, 0, 1)) border += ground.shape.window;
        return border;
    }
    case TINY: return fig_random_range(random, 0, 1);
    default: return 0;
    }
}

static void draw_shape(fig_random *random, int large) {
    static const int32_t tile_sizes[] = {1, 3, 16, 64, 256};
    fig_split_shape *shape = &ground.shape;
    shape->row_limit = fig_random_range(random, 1, large ? ROW_CAPACITY : 32);
    shape->groups = fig_random_range(random, 1, 8);
    shape->tile_tokens = tile_sizes[fig_random_range(random, 0, 4)];
    shape->workers = fig_random_range(random, 1, large ? FIG_WORKER_LIMIT : 132);
    const int windowed = fig_random_range(random, 0, 2) == 0;
    shape->window = windowed ? fig_random_range(random, 1, 6 * shape->tile_tokens) : 0;
    const int drafts = fig_random_range(random, 0, 2) == 0;
    shape->row_tokens = drafts ? fig_random_range(random, 2, 16) : 1;
    shape->fixed = fig_random_range(random, 0, 3) == 0;
    const int grows = fig_random_range(random, 0, 3) == 0;
    ground.ahead = grows ? fig_random_range(random, 1, 3 * shape->tile_tokens) : 0;
}

/* A row that is not idle has at least as many tokens as queries. */
static void draw_lengths(fig_random *random, int mix) {
    const int32_t uniform = fig_random_range(random, 1, 6 * ground.shape.tile_tokens);
    for (int32_t row = 0; row < ground.rows; row++)
        ground.lengths[row] = draw_length(random, mix, uniform);
    if (mix == ONE_HUGE && ground.rows > 0)
        ground.lengths[fig_random_range(random, 0, ground.rows - 1)] =
            fig_random_range(random, 1, 100 * ground.shape.tile_tokens);
    for (int32_t row = 0; row < ground.rows; row++) {
        int32_t *length = &ground.lengths[row];
        if (*length < 0) *length = 0;
        if (*length > 0 && *length < ground.shape.row_tokens) *length = ground.shape.row_tokens;
    }
}

static int draw_step(uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    ground.seed = seed;
    draw_shape(&random, fig_random_range(&random, 0, 999) == 0);
    int fewer = fig_random_range(&random, 0, 1);
    ground.rows =
        fewer ? fig_random_range(&random, 0, ground.shape.row_limit) : ground.shape.row_limit;
    int mix = fig_random_range(&random, 0, MIX_COUNT - 1);
    draw_lengths(&random, mix);
    return mix;
}

/* Returns how many tiles the step need not read because of its window. */
static int32_t tiles_spared(void) {
    int32_t spared = 0;
    for (int32_t row = 0; row < ground.rows; row++) {
        int32_t length = ground.lengths[row], tile = ground.shape.tile_tokens;
        if (length > 0) length += ground.ahead;
        spared += (length + tile - 1) / tile - ground.row_tiles[row];
    }
    return spared;
}

static void random_steps_are_split_fairly_and_once(void **state) {
    (void)state;
    int64_t mixes[MIX_COUNT] = {0}, cut = 0, fewer_tiles = 0, fewer_rows = 0, at_limit = 0;
    int64_t fixed_cut = 0, spared = 0, drafts = 0, grow = 0;
    for (uint64_t seed = 1; seed <= RANDOM_STEPS; seed++) {
        int mix = draw_step(seed);
        check_step();
        const int is_cut = ground.partials > 0, fixed = ground.shape.fixed;
        mixes[mix]++;
        cut += is_cut && !fixed;
        fixed_cut += is_cut && fixed;
        spared += tiles_spared() > 0;
        drafts += ground.shape.row_tokens > 1;
        grow += ground.ahead > 0;
        fewer_tiles += ground.line.tiles < ground.shape.workers;
        fewer_rows += ground.rows < ground.shape.row_limit;
        at_limit += is_cut && !fixed && ground.partials == fig_split_partial_limit(&ground.shape);
    }
    for (int mix = 0; mix < MIX_COUNT; mix++)
        assert_true(mixes[mix] > RANDOM_STEPS / 10);
    assert_true(cut > RANDOM_STEPS / 4 && drafts > RANDOM_STEPS / 4);
    assert_true(grow > RANDOM_STEPS / 5 && spared > RANDOM_STEPS / 20);
    assert_true(fixed_cut > RANDOM_STEPS / 10 && fewer_tiles > RANDOM_STEPS / 10);
    assert_true(fewer_rows > RANDOM_STEPS / 10);
    assert_true(at_limit > RANDOM_STEPS / 200);
}

/* Moves to the next step in counting order, with rows of 0 to `tiles` tiles; returns 0 after the
 * last. Even rows fill their last tile, and odd rows have one token of it. */
static int next_small_step(int32_t *row_tiles, int32_t tiles) {
    int32_t row = 0;
    while (row < ground.rows && row_tiles[row] == tiles)
        row_tiles[row++] = 0;
    if (row == ground.rows) return 0;
    row_tiles[row]++;
    for (row = 0; row < ground.rows; row++)
        ground.lengths[row] = row_tiles[row] == 0 ? 0 : row_tiles[row] * 2 - (row & 1);
    return 1;
}

/* Checks every step of a shape whose rows have up to `tiles` tiles. Returns the most partials. */
static int32_t most_partials(fig_split_shape shape, int32_t tiles) {
    int32_t row_tiles[8] = {0}, most = 0;
    ground.seed = 0;
    ground.ahead = 0;
    ground.shape = shape;
    ground.rows = shape.row_limit;
    memset(ground.lengths, 0, sizeof ground.lengths);
    do {
        check_step();
        if (ground.partials > most) most = ground.partials;
    } while (next_small_step(row_tiles, tiles));
    return most;
}

static void every_small_step_is_split_fairly_and_once(void **state) {
    (void)state;
    for (int32_t n = 0; n < 3 * 3 * 6 * 2 * 4; n++) {
        fig_split_shape shape = shape_of(n % 3 + 1, n / 3 % 3 + 1, 2, n / 9 % 6 + 1);
        shape.fixed = n / 54 % 2;
        shape.window = n / 108;
        most_partials(shape, 4);
    }
}

static int32_t greatest_common_divisor(int32_t a, int32_t b) {
    while (b != 0) {
        int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* With one row, all segments have n tiles, and cut w falls on a border of segments exactly if
 * groups * w / workers is whole. Let d = gcd(groups, workers). If d > 1, every (workers / d)-th cut
 * falls on a border: the line is d equal lines side by side, each split by itself. Shorter rows
 * have fewer active workers, which may leave more partials. If d = 1, every cut is at least n /
 * workers tiles past a border, and one is exactly that far. For n < workers this rounds down to 0,
 * and that cut leaves no partials. For n = workers, all cuts leave partials. */
static void one_row_reaches_the_limit_where_groups_and_workers_are_coprime(void **state) {
    (void)state;
    for (int32_t groups = 1; groups <= 12; groups++) {
        for (int32_t workers = 1; workers <= 12; workers++) {
            fig_split_shape shape = shape_of(1, groups, 2, workers);
            int32_t divisor = greatest_common_divisor(groups, workers);
            int32_t limit = fig_split_partial_limit(&shape);
            for (int32_t tiles = 1; tiles <= workers + 2; tiles++) {
                int reached = most_partials(shape, tiles) == limit;
                int expected = workers == 1 || (divisor == 1 && tiles >= workers);
                if (reached != expected) refute("limit reached, tiles", tiles, reached, expected);
            }
            fig_split_shape part = shape_of(1, groups / divisor, 2, workers / divisor);
            const int32_t side_by_side = divisor * fig_split_partial_limit(&part);
            assert_in_range(most_partials(shape, workers + 2), side_by_side, limit);
        }
    }
}

/* Two or more rows can differ in length so that no cut falls on a border. The limit is then reached
 * as soon as a row can be long enough; workers + 1 tiles suffice. In shorter rows, rounding may
 * force a cut onto a border. No short formula tells from how many tiles on this can be avoided, so
 * this table holds the results of a search over every step. One worker leaves no partials, and a
 * segment of one tile is never cut. */
static const int8_t least_tiles[3][6][8] = {
    /* [rows - 2][groups - 1][workers - 1] */
    {{0, 2, 3, 4, 5, 6, 7, 8},
     {0, 2, 3, 3, 4, 5, 6, 6},
     {0, 2, 3, 3, 4, 4, 5, 7},
     {0, 3, 3, 3, 5, 5, 5, 5},
     {0, 2, 3, 4, 4, 5, 5, 7},
     {0, 2, 3, 4, 4, 4, 5, 6}},
    {{0, 2, 2, 3, 4, 4, 5, 6},
     {0, 2, 3, 3, 3, 3, 4, 4},
     {0, 2, 2, 2, 3, 3, 4, 5},
     {0, 3, 3, 3, 3, 4, 5, 5},
     {0, 2, 2, 2, 3, 3, 4, 5},
     {0, 2, 3, 3, 3, 4, 4, 4}},
    {{0, 2, 2, 2, 3, 4, 4, 4},
     {0, 2, 3, 3, 3, 3, 3, 3},
     {0, 2, 2, 2, 2, 3, 3, 5},
     {0, 3, 3, 3, 3, 3, 3, 4},
     {0, 2, 2, 2, 2, 2, 3, 3},
     {0, 2, 3, 3, 3, 4, 4, 4}}};

static void more_rows_reach_the_limit_where_tiles_are_enough(void **state) {
    (void)state;
    for (int32_t rows = 2; rows <= 4; rows++) {
        for (int32_t groups = 1; groups <= 6; groups++) {
            for (int32_t workers = 1; workers <= 8; workers++) {
                fig_split_shape shape = shape_of(rows, groups, 2, workers);
                int32_t least = least_tiles[rows - 2][groups - 1][workers - 1];
                int32_t limit = fig_split_partial_limit(&shape);
                assert_in_range(least, 0, workers + 1);
                expect("most partials, tiles", least, most_partials(shape, least), limit);
                if (least > 0 && most_partials(shape, least - 1) >= limit)
                    refute("limit reached, tiles", least - 1, limit, limit - 1);
            }
        }
    }
}

/* Shapes of Llama 3.1 8B on 132 SMs whose worst steps are common enough to occur by chance. */
static void real_shapes_reach_the_limit(void **state) {
    (void)state;
    const fig_split_shape shapes[] = {shape_of(2, 8, 64, 132), shape_of(8, 8, 64, 132),
                                      shape_of(2, 1, 16, 132), shape_of(16, 1, 16, 132),
                                      shape_of(64, 1, 16, 132)};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        fig_random random = fig_random_seed(i);
        int32_t limit = fig_split_partial_limit(&shapes[i]), most = 0;
        ground.shape = shapes[i];
        ground.ahead = 0;
        ground.rows = ground.shape.row_limit;
        for (int attempt = 0; attempt < 2000 && most < limit; attempt++) {
            for (int32_t row = 0; row < ground.rows; row++)
                ground.lengths[row] = fig_random_range(&random, 4000, 8000);
            check_step();
            if (ground.partials > most) most = ground.partials;
        }
        expect("most partials of shape", (int64_t)i, most, limit);
    }
}

/* With 2^30 tiles, every product of the integer computation is at its largest. A map would be too
 * large, so the test follows the pieces along the line. */
static void the_longest_line_is_split_without_overflow(void **state) {
    (void)state;
    ground.seed = 0;
    ground.ahead = 0;
    ground.shape = shape_of(ROW_CAPACITY, 16, 16, FIG_WORKER_LIMIT);
    ground.rows = ROW_CAPACITY;
    for (int32_t row = 0; row < ground.rows; row++)
        ground.lengths[row] = (1 << 20) - (row & 1);
    split_rows();
    ground.line = fig_split_line_of(&ground.shape, ground.prefix, ground.rows);
    assert_int_equal(ground.line.tiles, 1 << 30);
    int64_t x = 0;
    for (int32_t worker = 0; worker < FIG_WORKER_LIMIT; worker++) {
        fig_split_start start = ground.starts[worker];
        fig_split_start found = fig_split_start_of(&ground.shape, &ground.line, worker);
        assert_memory_equal(&start, &found, sizeof start);
        assert_int_equal(start.count, 1 << 20);
        while (start.count > 0) {
            fig_split_piece piece = fig_split_take(&ground.shape, &ground.line, &start);
            int64_t segment = ((int64_t)piece.row * 16 + piece.group) << 16;
            expect("begin of a piece, worker", worker, segment + piece.tile, x);
            expect("first worker", x, piece.first, segment >> 20);
            expect("last worker", x, piece.last, (segment + (1 << 16) - 1) >> 20);
            x += piece.tile_end - piece.tile;
        }
    }
    assert_int_equal(x, 1 << 30);
}

static void a_step_without_tokens_has_no_work(void **state) {
    (void)state;
    ground.seed = 0;
    ground.ahead = 0;
    ground.shape = shape_of(5, 3, 16, 7);
    memset(ground.lengths, 0, sizeof ground.lengths);
    for (ground.rows = 0; ground.rows <= 5; ground.rows++) {
        check_step();
        assert_int_equal(ground.line.active, 0);
        assert_int_equal(ground.piece_count, 0);
    }
}

/* Idle rows are skipped, whether they come before, between or after other rows. No worker's stretch
 * begins with an idle row. */
static void idle_rows_are_not_on_the_line(void **state) {
    (void)state;
    static const int32_t lengths[] = {0, 0, 17, 0, 1, 0, 0, 0, 33, 0, 0};
    ground.seed = 0;
    ground.ahead = 0;
    ground.rows = sizeof lengths / sizeof lengths[0];
    memcpy(ground.lengths, lengths, sizeof lengths);
    for (int32_t workers = 1; workers <= 20; workers++) {
        ground.shape = shape_of(ground.rows, 2, 16, workers);
        check_step();
        assert_int_equal(ground.line.tiles, 2 * (2 + 1 + 3));
        for (int32_t worker = 0; worker < ground.line.active; worker++)
            assert_true(lengths[ground.starts[worker].row] > 0);
    }
}

/* The pieces of a row in a fixed split, numbered from the row's first piece. */
typedef struct row_cut {
    int32_t count;
    fig_split_piece pieces[LINE_CAPACITY];
} row_cut;

static void cut_row(int32_t row, row_cut *cut) {
    cut->count = 0;
    for (int32_t i = 0; i < ground.piece_count; i++) {
        fig_split_piece piece = ground.pieces[i].piece;
        if (piece.row != row) continue;
        piece.row = 0;
        piece.number -= piece.first;
        piece.last -= piece.first;
        piece.first = 0;
        cut->pieces[cut->count++] = piece;
    }
}

/* Compares a row alone on one worker with the same row among others, at any place. */
static void a_fixed_split_cuts_a_row_by_its_own_length_alone(void **state) {
    (void)state;
    static row_cut alone, among;
    int64_t cut = 0;
    for (uint64_t seed = 1; seed <= FIXED_STEPS; seed++) {
        draw_step(seed);
        if (ground.rows == 0) continue;
        ground.shape.fixed = 1;
        check_step();
        fig_random random = fig_random_seed(seed);
        const int32_t row = fig_random_range(&random, 0, ground.rows - 1);
        cut_row(row, &among);
        ground.lengths[0] = ground.lengths[row];
        ground.rows = ground.shape.row_limit = ground.shape.workers = 1;
        check_step();
        cut_row(0, &alone);
        expect("pieces of row", row, among.count, alone.count);
        for (int32_t i = 0; i < alone.count; i++) {
            if (memcmp(&among.pieces[i], &alone.pieces[i], sizeof alone.pieces[i]) != 0)
                refute("another piece of row", row, among.pieces[i].tile, alone.pieces[i].tile);
        }
        cut += alone.count > ground.shape.groups;
    }
    assert_true(cut > FIXED_STEPS / 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_step_is_split_fairly_and_once),
        cmocka_unit_test(random_steps_are_split_fairly_and_once),
        cmocka_unit_test(a_fixed_split_cuts_a_row_by_its_own_length_alone),
        cmocka_unit_test(one_row_reaches_the_limit_where_groups_and_workers_are_coprime),
        cmocka_unit_test(more_rows_reach_the_limit_where_tiles_are_enough),
        cmocka_unit_test(real_shapes_reach_the_limit),
        cmocka_unit_test(the_longest_line_is_split_without_overflow),
        cmocka_unit_test(a_step_without_tokens_has_no_work),
        cmocka_unit_test(idle_rows_are_not_on_the_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
