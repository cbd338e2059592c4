/* split.h: cuts one step's KV work into equal stretches, one per worker.
 *
 * The line holds every tile that a row's window touches, ordered by row, head group and tile. If it
 * has T tiles, the longest stretch has L = ceil(T / workers) tiles, A = ceil(T / L) workers are
 * active, and worker w owns [T*w/A, T*(w+1)/A). More active workers would not shorten the longest
 * stretch, and fewer workers leave fewer partials to merge. The cuts depend only on the lengths and
 * the shape, so the host, the reference kernel and a kernel that reads lengths on the device
 * compute the same cuts.
 *
 *     row 0, group 0   row 0, group 1   row 1, groups 0 and 1
 *     t0 t1 t2 t3 t4 | t0 t1 t2 t3 t4 | t0 | t0
 *     `worker 0-' `-worker 1--' `--worker 2---'
 *
 * One row in one head group is a segment. A worker writes an uncut segment straight to the output.
 * Each piece of a cut segment leaves a partial result, and workers of the segment merge the
 * partials. A row of length 0 is not on the line: worker (row mod workers) writes zeros as the
 * row's output. A row may have fewer queries than row_tokens. With a window, its first tile may
 * then begin later; nothing else differs, and a segment is still one row in one head group. A row
 * with more queries is not on the line: it has strips instead (strips.h). Tiles that a mask hides
 * from all queries may be left out; the others are then numbered without gaps
 * (scores/mask_line.h).
 *
 * If rows have different lengths, equal tiles are not equal work, because the first tile of a
 * segment takes longer than a later tile. The line is therefore cut by units (units.h), which count
 * this extra time, if this gives the fullest worker at least a 32nd less work. A bit in the plan's
 * head says how the line is cut. Only the cuts move: tiles, pieces, numbers and partials follow the
 * same rules.
 *
 * Invariant: prefix[] is non-decreasing and counts tiles of ONE head group. All arithmetic is on
 * integers; gcc and nvcc both read this header, and nothing here allocates. */
#ifndef FIG_PLANNER_SPLIT_H
#define FIG_PLANNER_SPLIT_H

#include <assert.h>
#include <stdint.h>

#include "planner/size.h"

enum {
    FIG_WORKER_LIMIT = 1024,
    FIG_CLASS_LIMIT = 4, /* largest number of splits in one program */
    FIG_TILE_TOKENS_LIMIT = 512,
    /* the tile of a fixed split is long, because each tile leaves a partial */
    FIG_FIXED_TILE_TOKENS = 512
};

/* One split class of one bucket. Lowering sets it, and every step uses the same values.
 *
 * `fixed` marks the deterministic split, with long tiles. Every tile is a separate piece, so a
 * row's pieces depend only on the row's length. Workers still get equal stretches of tiles, but a
 * worker leaves one partial per tile. */
typedef struct fig_split_shape {
    int32_t row_limit;   /* the bucket's batch */
    int32_t groups;      /* head groups: kv_heads / heads that one worker reads at a time */
    int32_t tile_tokens; /* counted from token 0, whatever the window */
    int32_t workers;     /* the grid; never changes */
    int32_t window;      /* tokens that a query sees, its own included; 0: all */
    int32_t row_tokens;  /* largest number of queries of a row */
    int32_t fixed;       /* 1: each tile is a piece */
    int32_t tile_limit;  /* largest number of tiles on any line of this bucket */
} fig_split_shape;
static_assert(sizeof(fig_split_shape) == 32, "kernel params");

/* The start of a worker; count 0: the worker owns no tile. If the line is cut by units, a worker
 * without tiles may stand between others; its start then names the place where its stretch would
 * begin. */
typedef struct fig_split_start {
    int32_t row, group, tile, count;
} fig_split_start;
static_assert(sizeof(fig_split_start) == 16, "plan layout");

/* The line of one step. */
typedef struct fig_split_line {
    const int32_t *prefix; /* [rows + 1] */
    int32_t rows;
    int32_t tiles;                 /* T */
    int32_t active;                /* A */
    const fig_split_start *starts; /* [workers] if the line is cut by units; NULL: by tiles */
} fig_split_line;

/* A part of one segment that one worker processes at once. The piece has the number of its worker
 * or, in a fixed split, the number of its tile on the line. */
typedef struct fig_split_piece {
    int32_t row, group;
    int32_t tile, tile_end; /* tiles [tile, tile_end) of the row; tile 0 is the first visible one */
    int32_t number;
    int32_t first, last; /* numbers of the segment's first and last piece; equal: uncut */
} fig_split_piece;

/* Returns the first token that any query of the row sees. The first query is token length -
 * row_tokens. */
FIG_BOTH int32_t fig_split_first_token(const fig_split_shape *shape, int32_t length) {
    int32_t first = length - shape->row_tokens + 1 - shape->window;
    return shape->window == 0 || first < 0 ? 0 : first;
}

/* Returns the token at which tile 0 of a row begins: a multiple of tile_tokens. */
FIG_BOTH int32_t fig_split_first_tile_token(const fig_split_shape *shape, int32_t length) {
    int32_t first = fig_split_first_token(shape, length);
    return first - first % shape->tile_tokens;
}

/* Returns the tiles of one head group that a row reads while it grows from `length` by `ahead`
 * tokens. The first tile follows from the length before the row grew. */
FIG_BOTH int32_t fig_split_tiles_ahead(const fig_split_shape *shape, int32_t length,
                                       int32_t ahead) {
    if (length <= 0) return 0;
    return (length + ahead - 1 - fig_split_first_tile_token(shape, length)) / shape->tile_tokens +
           1;
}

/* Returns the tiles of one head group of a row that does not grow. */
FIG_BOTH int32_t fig_split_tiles(const fig_split_shape *shape, int32_t length) {
    return fig_split_tiles_ahead(shape, length, 0);
}

/* Returns the length that a row of `queries` queries would have if it had row_tokens queries,
 * beginning with the same first query. Functions that compute the first query from a length expect
 * such lengths. */
FIG_BOTH int32_t fig_split_full_length(const fig_split_shape *shape, int32_t length,
                                       int32_t queries) {
    return length + shape->row_tokens - queries;
}

/* Returns the tiles of one head group of a row that has `queries` queries; a row without queries is
 * idle. A row with more than row_tokens is on no line of this split: strips.h cuts it. */
FIG_BOTH int32_t fig_split_tiles_of(const fig_split_shape *shape, int32_t length, int32_t queries) {
    if (length <= 0 || queries <= 0 || queries > shape->row_tokens) return 0;
    const int32_t full = fig_split_full_length(shape, length, queries);
    return (length - 1 - fig_split_first_tile_token(shape, full)) / shape->tile_tokens + 1;
}

/* Returns the number of active workers, A, for a line of `tiles` tiles. */
FIG_BOTH int32_t fig_split_active(int32_t tiles, int32_t workers) {
    if (tiles == 0) return 0;
    return fig_size_ceil_div(tiles, fig_size_ceil_div(tiles, workers));
}

FIG_BOTH fig_split_line fig_split_line_of(const fig_split_shape *shape, const int32_t *prefix,
                                          int32_t rows) {
    fig_split_line line;
    line.prefix = prefix;
    line.rows = rows;
    line.tiles = prefix[rows] * shape->groups;
    line.active = fig_split_active(line.tiles, shape->workers);
    line.starts = NULL;
    return line;
}

/* Returns a worker's first tile on the line. Returns T for an inactive worker, numbered A or
 * above. */
FIG_BOTH int32_t fig_split_begin(const fig_split_line *line, int32_t worker) {
    if (worker >= line->active) return line->tiles;
    const uint64_t place = (uint64_t)line->tiles * (uint64_t)worker;
    if (place <= UINT32_MAX) return (int32_t)((uint32_t)place / (uint32_t)line->active);
    return (int32_t)(place / (uint64_t)line->active);
}

/* The inverse of fig_split_begin(): returns the worker that owns tile x of the line, x < T. A GPU
 * divides 64 bits five times slower than 32 bits, and 32 bits are enough for all but the longest
 * lines. */
FIG_BOTH int32_t fig_split_owner(const fig_split_line *line, int32_t x) {
    const uint64_t place = ((uint64_t)x + 1) * (uint64_t)line->active - 1;
    if (place <= UINT32_MAX) return (int32_t)((uint32_t)place / (uint32_t)line->tiles);
    return (int32_t)(place / (uint64_t)line->tiles);
}

/* Returns the row that holds place x of the line; empty rows are skipped. prefix [rows + 1] counts
 * one head group, in the unit of x: tiles or units. O(log rows) */
FIG_BOTH int32_t fig_split_row_of(const int32_t *prefix, int32_t rows, int32_t groups, int32_t x) {
    int32_t low = 0, high = rows;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (prefix[middle] * groups <= x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

FIG_BOTH fig_split_start fig_split_start_of(const fig_split_shape *shape,
                                            const fig_split_line *line, int32_t worker) {
    fig_split_start start = {0, 0, 0, 0};
    int32_t x = fig_split_begin(line, worker), tiles;
    if (worker >= line->active) return start;
    start.count = fig_split_begin(line, worker + 1) - x;
    start.row = fig_split_row_of(line->prefix, line->rows, shape->groups, x);
    tiles = line->prefix[start.row + 1] - line->prefix[start.row];
    x -= line->prefix[start.row] * shape->groups;
    start.group = x / tiles;
    start.tile = x % tiles;
    return start;
}

/* Returns the worker that owns a tile of a line that is cut by units: the last worker that starts
 * at the tile or before it. If several workers start at one place, only the last of them has tiles.
 * A start of zeros after worker 0 belongs to a worker past the end of the line, because no cut lies
 * at the first tile. O(log workers) */
FIG_BOTH int32_t fig_split_holder(const fig_split_shape *shape, const fig_split_line *line,
                                  int32_t row, int32_t group, int32_t tile) {
    int32_t low = 0, high = shape->workers;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        const fig_split_start *at = &line->starts[middle];
        const int is_before = at->row != row       ? at->row < row
                              : at->group != group ? at->group < group
                                                   : at->tile <= tile;
        const int is_none = at->count == 0 && at->row == 0 && at->group == 0 && at->tile == 0;
        if (is_before && !is_none) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Returns the tiles of the next piece of a worker's stretch, in a row of row_tiles tiles.
 * start->count must be above 0. */
FIG_BOTH int32_t fig_split_piece_tiles(const fig_split_shape *shape, int32_t row_tiles,
                                       const fig_split_start *start) {
    return shape->fixed ? 1 : fig_size_min(row_tiles - start->tile, start->count);
}

/* Returns the next piece of the stretch of a known worker. The piece's row has row_tiles tiles in
 * one head group, and `before` tiles of the head group lie before the row. If the segment begins or
 * ends outside the piece, this function finds the worker at that end. */
FIG_BOTH fig_split_piece fig_split_piece_of_worker(const fig_split_shape *shape,
                                                   const fig_split_line *line, int32_t worker,
                                                   int32_t before, int32_t row_tiles,
                                                   const fig_split_start *start) {
    int32_t segment = before * shape->groups + start->group * row_tiles;
    int32_t end = segment + row_tiles - 1;
    fig_split_piece piece;
    piece.row = start->row;
    piece.group = start->group;
    piece.tile = start->tile;
    piece.tile_end = start->tile + fig_split_piece_tiles(shape, row_tiles, start);
    piece.number = shape->fixed ? segment + start->tile : worker;
    piece.first = piece.last = piece.number;
    if (line->starts != NULL) {
        if (piece.tile > 0) piece.first = fig_split_holder(shape, line, piece.row, piece.group, 0);
        if (piece.tile_end < row_tiles)
            piece.last = fig_split_holder(shape, line, piece.row, piece.group, row_tiles - 1);
        return piece;
    }
    if (piece.tile > 0) piece.first = shape->fixed ? segment : fig_split_owner(line, segment);
    if (piece.tile_end < row_tiles) piece.last = shape->fixed ? end : fig_split_owner(line, end);
    return piece;
}

/* Does the same if the worker is not known: finds the worker from the tile. */
FIG_BOTH fig_split_piece fig_split_piece_of_row(const fig_split_shape *shape,
                                                const fig_split_line *line, int32_t before,
                                                int32_t row_tiles, const fig_split_start *start) {
    int32_t x = before * shape->groups + start->group * row_tiles + start->tile;
    int32_t worker = 0;
    if (line->starts != NULL) {
        worker = fig_split_holder(shape, line, start->row, start->group, start->tile);
    } else if (!shape->fixed) {
        worker = fig_split_owner(line, x);
    }
    return fig_split_piece_of_worker(shape, line, worker, before, row_tiles, start);
}

FIG_BOTH fig_split_piece fig_split_piece_at(const fig_split_shape *shape,
                                            const fig_split_line *line,
                                            const fig_split_start *start) {
    int32_t before = line->prefix[start->row];
    return fig_split_piece_of_row(shape, line, before, line->prefix[start->row + 1] - before,
                                  start);
}

/* Moves *start past the next piece. */
FIG_BOTH void fig_split_pass(const fig_split_shape *shape, const fig_split_line *line,
                             fig_split_start *start) {
    int32_t tiles = line->prefix[start->row + 1] - line->prefix[start->row];
    int32_t passed = fig_split_piece_tiles(shape, tiles, start);
    start->count -= passed;
    start->tile += passed;
    if (start->tile < tiles) return;
    start->tile = 0;
    if (++start->group < shape->groups) return;
    start->group = 0;
    do
        start->row++;
    while (start->row < line->rows && line->prefix[start->row + 1] == line->prefix[start->row]);
}

/* Returns the next piece of a worker's stretch and moves *start past it; start->count > 0. */
FIG_BOTH fig_split_piece fig_split_take(const fig_split_shape *shape, const fig_split_line *line,
                                        fig_split_start *start) {
    fig_split_piece piece = fig_split_piece_at(shape, line, start);
    fig_split_pass(shape, line, start);
    return piece;
}

FIG_BOTH int32_t fig_split_segment(const fig_split_shape *shape, int32_t row, int32_t group) {
    return row * shape->groups + group;
}

/* Returns the partial slot of piece `number` of a cut segment. In a fixed split each tile of the
 * line has its own slot. Otherwise each of the W - 1 cuts begins one piece, which takes the slot of
 * its cut. A segment's first piece begins at no cut: it takes the slot of its segment or, if there
 * are more segments than cuts, the slot of its worker. Only a worker's last piece can be the first
 * piece of a cut segment, and the last worker has no such piece. So for any cuts, by tiles or by
 * units, no two pieces share a slot and no slot is past the limit.
 *
 *     [piece after cut 1 .. W-1][first piece of segment, or of worker 0 .. W-2]  */
FIG_BOTH int32_t fig_split_partial(const fig_split_shape *shape, const fig_split_piece *piece,
                                   int32_t number) {
    int32_t cuts = shape->workers - 1;
    if (shape->fixed) return number;
    if (number > piece->first) return number - 1;
    if (shape->row_limit * shape->groups > cuts) return cuts + number;
    return cuts + fig_split_segment(shape, piece->row, piece->group);
}

/* Returns the largest number of partials that a step can leave. */
FIG_BOTH int32_t fig_split_partial_limit(const fig_split_shape *shape) {
    int32_t cuts = shape->workers - 1;
    if (shape->fixed) return shape->tile_limit;
    return cuts + fig_size_min(cuts, shape->row_limit * shape->groups);
}

/* Returns the largest number of tokens by which rows may grow under one split. As a row grows, its
 * window moves past tiles; in a fixed split, whose tiles all have partials, each row has room for
 * one such tile. */
FIG_BOTH int32_t fig_split_ahead_limit(const fig_split_shape *shape) {
    return shape->fixed && shape->window > 0 ? shape->tile_tokens : INT32_MAX;
}

/* The rows of a step that is split. */
typedef struct fig_split_rows {
    const int32_t *lengths; /* [count] */
    int32_t count;
    int32_t ahead; /* tokens by which each row that is not empty may grow under this split */
    /* [count] number of queries of each row, and `ahead` must be 0; NULL: row_tokens each */
    const int32_t *queries;
    /* [count] tiles of each row that are not on the line, because nobody sees them; a row that is
     * not empty keeps at least one tile. NULL: none */
    const int32_t *hidden;
} fig_split_rows;

/* The totals of all rows, for the line of one head group. */
typedef struct fig_split_totals {
    int64_t tiles;
    int32_t longest; /* tiles of the longest row */
    int32_t busy;    /* rows that are not empty */
} fig_split_totals;
fig_split_totals fig_split_count(const fig_split_shape *shape, const fig_split_rows *rows);
/* Writes prefix [count + 1]. Returns 1 if the prefix differs from what stood there before. */
int fig_split_prefix(const fig_split_shape *shape, const fig_split_rows *rows, int32_t *prefix);
/* Writes starts [workers] from the prefix of `rows` rows. Returns 1 if the line is cut by units.
 * `once` is fig_units.once; with 0 the line is always cut by tiles. O(rows + workers) */
int fig_split_starts(const fig_split_shape *shape, int32_t once, const int32_t *prefix,
                     int32_t rows, fig_split_start *starts);
/* The two functions above use AVX2 if the processor has it; these two do the same without AVX2. */
int fig_split_prefix_plain(const fig_split_shape *shape, const fig_split_rows *rows,
                           int32_t *prefix);
int fig_split_starts_plain(const fig_split_shape *shape, int32_t once, const int32_t *prefix,
                           int32_t rows, fig_split_start *starts);

#endif
