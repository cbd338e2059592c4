/* split.c: the split of one step, for every worker at once.
 *
 * Owns the host's walk; where a single worker starts is split.h's, and both say the same.
 * Invariant: prefix and starts are written once each, in order, and never read back, because they
 * may lie in memory that a device shares and that is slow to read. */
#include "planner/split.h"

/* A place on the line: the row that holds it and what that row covers. */
typedef struct place {
    int32_t row, first; /* tile of the line where the row begins */
    int32_t row_tiles;  /* of one head group */
} place;

static int32_t write_prefix(const fig_split_shape *shape, const int32_t *lengths, int32_t rows,
                            int32_t *prefix) {
    int32_t sum = 0;
    for (int32_t row = 0; row < rows; row++) {
        prefix[row] = sum;
        sum += lengths != NULL ? fig_split_tiles(shape, lengths[row]) : 0;
    }
    prefix[rows] = sum;
    return sum;
}

/* Moves on to the row that holds tile x. Tiles are counted from the lengths a second time, which
 * costs a division a row and spares reading prefix. */
static void advance(const fig_split_shape *shape, const int32_t *lengths, int32_t x, place *at) {
    while (x - at->first >= at->row_tiles * shape->groups) {
        at->first += at->row_tiles * shape->groups;
        at->row++;
        at->row_tiles = fig_split_tiles(shape, lengths[at->row]);
    }
}

void fig_split_plan(const fig_split_shape *shape, const int32_t *lengths, int32_t rows,
                    int32_t *prefix, fig_split_start *starts) {
    assert(rows >= 0 && rows <= shape->row_limit);
    assert(shape->workers >= 1 && shape->workers <= FIG_WORKER_LIMIT);
    assert(shape->tile_tokens >= 1 && shape->row_tokens >= 1 && shape->window >= 0);
    fig_split_line line = {.prefix = prefix, .rows = rows};
    line.tiles = write_prefix(shape, lengths, rows, prefix) * shape->groups;
    line.active = fig_size_min(line.tiles, shape->workers);

    place at = {.row = -1};
    for (int32_t worker = 0; worker < line.active; worker++) {
        int32_t x = fig_split_begin(&line, worker);
        advance(shape, lengths, x, &at);
        fig_split_start start = {.row = at.row,
                                 .group = (x - at.first) / at.row_tiles,
                                 .tile = (x - at.first) % at.row_tiles,
                                 .count = fig_split_begin(&line, worker + 1) - x};
        starts[worker] = start;
    }
    for (int32_t worker = line.active; worker < shape->workers; worker++)
        starts[worker] = (fig_split_start){0, 0, 0, 0};
}
