/* split.c: the split of one step, for every worker at once.
 *
 * Owns the host's walk; what a single row and a single worker have is split.h's, and both say the
 * same. Every loop over rows is one that the compiler makes vectors of, or a few cycles a row.
 * Invariant: starts are written once each, in order, and never read back, because they may lie in
 * memory that a device shares and that is slow to read. */
#include "planner/split.h"

/* Rows whose tiles are counted at a time. */
enum { BLOCK = 128 };

/* Where a tile has 2^shift tokens: fig_split_tiles_ahead without a division or a jump. */
static void count_shifted(const fig_split_shape *shape, int32_t shift, const int32_t *lengths,
                          int32_t count, int32_t ahead, int32_t *tiles) {
    /* A row's first token is this far behind its length; further than any is long: none hides. */
    const int64_t seen = (int64_t)shape->row_tokens - 1 + shape->window;
    const int32_t behind = shape->window > 0 && seen < INT32_MAX ? (int32_t)seen : INT32_MAX;
    for (int32_t row = 0; row < count; row++) {
        const int32_t length = lengths[row], first = length > behind ? length - behind : 0;
        const int32_t n = ((length + ahead - 1) >> shift) - (first >> shift) + 1;
        tiles[row] = length > 0 ? n : 0;
    }
}

/* Of up to BLOCK rows. */
static int32_t count_block(const fig_split_shape *shape, const fig_split_rows *rows, int32_t first,
                           int32_t tiles[BLOCK]) {
    const int32_t count = fig_size_min(rows->count - first, BLOCK);
    const int32_t *lengths = rows->lengths + first;
    if ((shape->tile_tokens & (shape->tile_tokens - 1)) == 0) {
        count_shifted(shape, __builtin_ctz((unsigned)shape->tile_tokens), lengths, count,
                      rows->ahead, tiles);
        return count;
    }
    for (int32_t row = 0; row < count; row++)
        tiles[row] = fig_split_tiles_ahead(shape, lengths[row], rows->ahead);
    return count;
}

fig_split_totals fig_split_count(const fig_split_shape *shape, const fig_split_rows *rows) {
    fig_split_totals totals = {0, 0, 0};
    int32_t tiles[BLOCK], longest = 0, busy = 0;
    for (int32_t first = 0; first < rows->count; first += BLOCK) {
        const int32_t count = count_block(shape, rows, first, tiles);
        /* A row has 2^20 tiles at most. */
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

int fig_split_prefix(const fig_split_shape *shape, const fig_split_rows *rows, int32_t *prefix) {
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

/* A place on the line: the row that holds it and what that row covers. */
typedef struct place {
    int32_t row, first; /* tile of the line where the row begins */
    int32_t row_tiles;  /* of one head group */
    int32_t end;        /* of the line where the next row begins */
} place;

/* Moves on to the row that holds tile x. */
static void advance(const fig_split_shape *shape, const int32_t *prefix, int32_t x, place *at) {
    while (x >= at->end) {
        at->row++;
        at->first = at->end;
        at->row_tiles = prefix[at->row + 1] - prefix[at->row];
        at->end += at->row_tiles * shape->groups;
    }
}

/* The first tile of worker w is T * w / A: its whole part and its remainder grow by the same steps
 * from worker to worker, so one division serves all. Another, for each of them, finds the group,
 * where there is more than one. Whether the remainder runs over is no branch, as it would be one
 * that no processor foresees. */
void fig_split_starts(const fig_split_shape *shape, const int32_t *prefix, int32_t rows,
                      fig_split_start *starts) {
    const fig_split_line line = fig_split_line_of(shape, prefix, rows);
    assert(shape->workers >= 1 && shape->workers <= FIG_WORKER_LIMIT);
    const int32_t step = line.active > 0 ? line.tiles / line.active : 0;
    const int32_t rest = line.active > 0 ? line.tiles % line.active : 0;
    place at = {.row = -1};
    int32_t x = 0, remainder = 0;
    for (int32_t worker = 0; worker < line.active; worker++) {
        remainder += rest;
        const int32_t over = remainder >= line.active, count = step + over;
        remainder -= -over & line.active;
        advance(shape, prefix, x, &at);
        const uint32_t offset = (uint32_t)(x - at.first), row_tiles = (uint32_t)at.row_tiles;
        const uint32_t group = shape->groups > 1 ? offset / row_tiles : 0;
        starts[worker] = (fig_split_start){.row = at.row,
                                           .group = (int32_t)group,
                                           .tile = (int32_t)(offset - group * row_tiles),
                                           .count = count};
        x += count;
    }
    for (int32_t worker = line.active; worker < shape->workers; worker++)
        starts[worker] = (fig_split_start){0, 0, 0, 0};
}
