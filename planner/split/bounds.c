/* bounds.c: upper bounds on the needs of a step, as closed forms.
 *
 * Owns the bounds that follow from a bucket's shape. The bound on partials is in split.h, beside
 * the function that numbers their slots. Invariant: a bound is the exact maximum; the tests compare
 * it with every step of small shapes. */
#include "planner/split/bounds.h"

/* The number of tokens at which a row gets its next tile, with a window or without. Beyond the
 * first few tiles, the shortest row with n tiles has (n - 1) * tile_tokens + 1 tokens.
 *
 *     tokens   least           the shortest row has these tokens, in first_tiles tiles
 *              + second        one more tile, once the last of first_tiles is full
 *              + tile_tokens   each further tile; further_limit tiles follow first_tiles  */
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

/* least: the fewest tokens of a row that is not idle. */
static row_tiles tiles_of_row(const fig_split_shape *shape, int32_t kv_limit, int32_t least) {
    const int64_t tile = shape->tile_tokens;
    int64_t most = (kv_limit - 1) / tile + 1;
    row_tiles row = {.least = least, .tile_tokens = tile};
    row.first_tiles = (least - 1) / tile + 1;
    row.second = row.first_tiles * tile + 1 - least;
    if (shape->window > 0) {
        /* The queries of the row together see `seen` tokens, which may begin anywhere in a tile. In
         * a fixed split, the row may also grow into one more tile. */
        const int64_t seen = (int64_t)shape->window + shape->row_tokens - 1;
        const int64_t grown = fig_split_ahead_limit(shape) < INT32_MAX;
        most = min_of(most, (seen + tile - 2) / tile + 1 + grown);
    }
    row.further_limit = most - row.first_tiles;
    return row;
}

/* Returns the largest number of tiles of `rows` busy rows. `tokens` must be enough for these
 * rows. */
static int64_t tiles_of_rows(const row_tiles *row, int64_t rows, int64_t tokens) {
    const int64_t spare = tokens - rows * row->least;
    const int64_t seconds = min_of(rows, spare / row->second);
    const int64_t further = seconds + (spare - seconds * row->second) / row->tile_tokens;
    return rows * row->first_tiles + min_of(further, rows * row->further_limit);
}

/* Returns the largest number of tiles over all numbers of rows. While there are enough tokens to
 * give every row a second tile, one more row never costs the other rows more tiles than it adds.
 * Beyond that, one more row adds its first tiles and takes the tokens of second tiles from other
 * rows. The net change is then the same for every row, apart from rounding down, which never turns
 * a gain into a loss. So the maximum lies at an end of one of the two ranges. */
static int64_t most_tiles(const fig_split_shape *shape, int64_t tokens, int32_t kv_limit,
                          int32_t least) {
    assert(shape->tile_tokens >= 1 && shape->row_tokens >= 1 && shape->window >= 0);
    if (shape->row_limit <= 0 || kv_limit < least) return 0;
    const row_tiles row = tiles_of_row(shape, kv_limit, least);
    const int64_t rows = min_of(shape->row_limit, tokens / row.least);
    if (rows <= 0) return 0;
    const int64_t with_second = min_of(rows, tokens / (row.least + row.second));
    int64_t most = tiles_of_rows(&row, rows, tokens);
    most = max_of(most, tiles_of_rows(&row, with_second, tokens));
    return max_of(most, tiles_of_rows(&row, min_of(rows, with_second + 1), tokens));
}

int64_t fig_bounds_tiles(const fig_split_shape *shape, int64_t tokens, int32_t kv_limit) {
    return most_tiles(shape, tokens, kv_limit, shape->row_tokens);
}

int64_t fig_bounds_packed_tiles(const fig_split_shape *shape, int64_t tokens, int32_t kv_limit) {
    return most_tiles(shape, tokens, kv_limit, 1);
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
