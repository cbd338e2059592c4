/* bounds.c: the most that a step can need, as closed forms.
 *
 * Owns bounds that follow from a bucket's shape; that of partials is split.h's, beside the slots it
 * counts. Invariant: a bound is the maximum itself; the tests compare it with every step of small
 * shapes. */
#include "planner/bounds.h"

/* What a row's tiles cost in tokens, whether it has a window or not: n tiles, beyond the first few,
 * are cheapest in a row of (n - 1) * tile_tokens + 1 tokens.
 *
 *     tokens   1 .. least      first_tiles come with the fewest tokens that a row has
 *              + second        one more tile, as soon as the last of those is full
 *              + tile_tokens   each further one, further_limit in all with the second  */
typedef struct row_tiles {
    int64_t least, first_tiles;
    int64_t second, tile_tokens;
    int64_t further_limit;
} row_tiles;

static int64_t min_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t max_of(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static row_tiles tiles_of_row(const fig_split_shape *shape, int32_t kv_limit) {
    const int64_t tile = shape->tile_tokens, least = shape->row_tokens;
    int64_t most = (kv_limit - 1) / tile + 1;
    row_tiles row = {.least = least, .tile_tokens = tile};
    row.first_tiles = (least - 1) / tile + 1;
    row.second = row.first_tiles * tile + 1 - least;
    if (shape->window > 0) {
        /* All queries of the row see so many tokens, which begin anywhere in a tile; where a
         * partial of each is kept, the row may grow by one more. */
        const int64_t seen = (int64_t)shape->window + least - 1;
        const int64_t grown = fig_split_ahead_limit(shape) < INT32_MAX;
        most = min_of(most, (seen + tile - 2) / tile + 1 + grown);
    }
    row.further_limit = most - row.first_tiles;
    return row;
}

/* Most tiles of `rows` rows that are not idle; the tokens suffice for so many. */
static int64_t tiles_of_rows(const row_tiles *row, int64_t rows, int64_t tokens) {
    const int64_t spare = tokens - rows * row->least;
    const int64_t seconds = min_of(rows, spare / row->second);
    const int64_t further = seconds + (spare - seconds * row->second) / row->tile_tokens;
    return rows * row->first_tiles + min_of(further, rows * row->further_limit);
}

/* One row more, with a second tile, never costs the others more tiles than it brings. Where the
 * tokens do not give every row a second tile, one row more brings its first tiles and costs the
 * others their seconds: always the same, but for rounding down, which never turns a gain into a
 * loss. So the most is at an end of either stretch. */
int64_t fig_bounds_tiles(const fig_split_shape *shape, int64_t tokens, int32_t kv_limit) {
    assert(shape->tile_tokens >= 1 && shape->row_tokens >= 1 && shape->window >= 0);
    if (shape->row_limit <= 0 || kv_limit < shape->row_tokens) return 0;
    const row_tiles row = tiles_of_row(shape, kv_limit);
    const int64_t rows = min_of(shape->row_limit, tokens / row.least);
    if (rows <= 0) return 0;
    const int64_t with_second = min_of(rows, tokens / (row.least + row.second));
    int64_t most = tiles_of_rows(&row, rows, tokens);
    most = max_of(most, tiles_of_rows(&row, with_second, tokens));
    return max_of(most, tiles_of_rows(&row, min_of(rows, with_second + 1), tokens));
}

fig_bounds_class fig_bounds_class_of(const fig_split_shape *shape, int32_t q_heads,
                                     int32_t head_dim) {
    assert(q_heads >= 1 && head_dim >= 1 && shape->row_tokens >= 1);
    fig_bounds_class bounds;
    bounds.partial_limit = fig_split_partial_limit(shape);
    const uint64_t vectors = (uint64_t)q_heads * (uint64_t)shape->row_tokens;
    const uint64_t partial_vectors = (uint64_t)bounds.partial_limit * vectors;
    const uint64_t segments = (uint64_t)shape->row_limit * (uint64_t)shape->groups;
    const uint64_t dims = fig_size_align((uint64_t)head_dim, FIG_BOUNDS_PARTIAL_DIMS);
    bounds.partials_bytes = partial_vectors * dims * sizeof(float);
    bounds.sums_bytes = partial_vectors * 2 * sizeof(float);
    bounds.counters_bytes = segments * sizeof(uint32_t);
    return bounds;
}
