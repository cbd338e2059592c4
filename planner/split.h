/* split.h: cut one step's KV work into equal stretches, one per worker.
 *
 * The line is (row, head group, tile), row-major, of the tiles that a row's window touches. With T
 * tiles on it, the longest stretch has L = ceil(T / workers) tiles, A = ceil(T / L) workers are
 * active, and worker w owns [T*w/A, T*(w+1)/A). More would do no step sooner, and fewer cuts leave
 * less to merge. That sentence is the whole split: it follows from the lengths and the shape alone,
 * so the host, the twin and a kernel that reads lengths on the device agree on it.
 *
 *     row 0, group 0   row 0, group 1   row 1, groups 0 and 1
 *     t0 t1 t2 t3 t4 | t0 t1 t2 t3 t4 | t0 | t0
 *     `worker 0-' `-worker 1--' `--worker 2---'
 *
 * A row and group is a segment. A segment that is one piece is written straight to the output; one
 * that is cut leaves a partial result per piece, and some of their workers merge these. A row of
 * length 0 is not on the line: worker (row mod workers) owns it and writes its zeros.
 *
 * Invariant: prefix[] is non-decreasing and counts tiles of ONE head group. Integers alone; read by
 * gcc and nvcc, and nothing here allocates. */
#ifndef FIG_PLANNER_SPLIT_H
#define FIG_PLANNER_SPLIT_H

#include <assert.h>
#include <stdint.h>

#include "planner/size.h"

enum {
    FIG_WORKER_LIMIT = 1024,
    FIG_CLASS_LIMIT = 4, /* splits of one program */
    FIG_TILE_TOKENS_LIMIT = 512,
    FIG_FIXED_TILE_TOKENS = 512 /* of every fixed split: long, since each leaves a partial */
};

/* One split class of one bucket: fixed at lower, equal for every step.
 *
 * `fixed` is the deterministic split: every tile of the line is a piece of its own, so that where a
 * row is cut follows from its own length. Tiles are long then, and the line is still cut in equal
 * stretches; only what a partial holds differs. */
typedef struct fig_split_shape {
    int32_t row_limit;   /* the bucket's batch */
    int32_t groups;      /* head groups: kv_heads / heads that one worker reads at a time */
    int32_t tile_tokens; /* counted from token 0, whatever the window */
    int32_t workers;     /* the grid; never changes */
    int32_t window;      /* tokens that a query sees, its own included; 0: all */
    int32_t row_tokens;  /* queries of a row, the last of its sequence */
    int32_t fixed;       /* 1: each tile is a piece */
    int32_t tile_limit;  /* most tiles on any line of this bucket */
} fig_split_shape;
static_assert(sizeof(fig_split_shape) == 32, "kernel params");

/* Where a worker starts; count 0: it owns no tile. */
typedef struct fig_split_start {
    int32_t row, group, tile, count;
} fig_split_start;
static_assert(sizeof(fig_split_start) == 16, "plan layout");

/* The line of one step. */
typedef struct fig_split_line {
    const int32_t *prefix; /* [rows + 1] */
    int32_t rows;
    int32_t tiles;  /* T */
    int32_t active; /* A */
} fig_split_line;

/* A part of one segment that one worker does at a time. Pieces of a segment are numbered: by their
 * workers or, where fixed, by their place on the line. */
typedef struct fig_split_piece {
    int32_t row, group;
    int32_t tile, tile_end; /* of the row: [tile, tile_end), 0 being the first that is seen */
    int32_t number;
    int32_t first, last; /* numbers of the segment's first and last piece; equal: it is whole */
} fig_split_piece;

/* The first token that any query of the row sees; its first query stands at length - row_tokens. */
FIG_BOTH int32_t fig_split_first_token(const fig_split_shape *shape, int32_t length) {
    int32_t first = length - shape->row_tokens + 1 - shape->window;
    return shape->window == 0 || first < 0 ? 0 : first;
}

/* The token at which tile 0 of a row begins: a multiple of tile_tokens. */
FIG_BOTH int32_t fig_split_first_tile_token(const fig_split_shape *shape, int32_t length) {
    int32_t first = fig_split_first_token(shape, length);
    return first - first % shape->tile_tokens;
}

/* Tiles of one head group that a row reads while it grows from this length by `ahead` tokens. The
 * first is counted from the length before it grew. */
FIG_BOTH int32_t fig_split_tiles_ahead(const fig_split_shape *shape, int32_t length,
                                       int32_t ahead) {
    if (length <= 0) return 0;
    return (length + ahead - 1 - fig_split_first_tile_token(shape, length)) / shape->tile_tokens +
           1;
}

/* Those of a row that stays as it is. */
FIG_BOTH int32_t fig_split_tiles(const fig_split_shape *shape, int32_t length) {
    return fig_split_tiles_ahead(shape, length, 0);
}

/* A, of a line of so many tiles. */
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
    return line;
}

/* First tile of a worker; that of `active` is T. */
FIG_BOTH int32_t fig_split_begin(const fig_split_line *line, int32_t worker) {
    if (worker >= line->active) return line->tiles;
    const uint64_t place = (uint64_t)line->tiles * (uint64_t)worker;
    if (place <= UINT32_MAX) return (int32_t)((uint32_t)place / (uint32_t)line->active);
    return (int32_t)(place / (uint64_t)line->active);
}

/* The inverse: who owns tile x of the line, x < T. A GPU divides 64 bits five times slower than 32,
 * which hold all but the longest lines. */
FIG_BOTH int32_t fig_split_owner(const fig_split_line *line, int32_t x) {
    const uint64_t place = ((uint64_t)x + 1) * (uint64_t)line->active - 1;
    if (place <= UINT32_MAX) return (int32_t)((uint32_t)place / (uint32_t)line->tiles);
    return (int32_t)(place / (uint64_t)line->tiles);
}

/* The row whose stretch holds tile x, empty rows skipped. O(log rows). */
FIG_BOTH int32_t fig_split_row_of(const fig_split_shape *shape, const fig_split_line *line,
                                  int32_t x) {
    int32_t low = 0, high = line->rows;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (line->prefix[middle] * shape->groups <= x) {
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
    start.row = fig_split_row_of(shape, line, x);
    tiles = line->prefix[start.row + 1] - line->prefix[start.row];
    x -= line->prefix[start.row] * shape->groups;
    start.group = x / tiles;
    start.tile = x % tiles;
    return start;
}

/* Tiles of the next piece of a worker's stretch, in a row of so many; start->count > 0. */
FIG_BOTH int32_t fig_split_piece_tiles(const fig_split_shape *shape, int32_t row_tiles,
                                       const fig_split_start *start) {
    return shape->fixed ? 1 : fig_size_min(row_tiles - start->tile, start->count);
}

/* That piece, of a row whose tiles of one head group, so many, stand behind `before` on the line,
 * for who knows the worker. Where a segment begins or ends in the piece nobody need be looked for.
 */
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
    if (piece.tile > 0) piece.first = shape->fixed ? segment : fig_split_owner(line, segment);
    if (piece.tile_end < row_tiles) piece.last = shape->fixed ? end : fig_split_owner(line, end);
    return piece;
}

/* And for who does not. */
FIG_BOTH fig_split_piece fig_split_piece_of_row(const fig_split_shape *shape,
                                                const fig_split_line *line, int32_t before,
                                                int32_t row_tiles, const fig_split_start *start) {
    int32_t x = before * shape->groups + start->group * row_tiles + start->tile;
    int32_t worker = shape->fixed ? 0 : fig_split_owner(line, x);
    return fig_split_piece_of_worker(shape, line, worker, before, row_tiles, start);
}

FIG_BOTH fig_split_piece fig_split_piece_at(const fig_split_shape *shape,
                                            const fig_split_line *line,
                                            const fig_split_start *start) {
    int32_t before = line->prefix[start->row];
    return fig_split_piece_of_row(shape, line, before, line->prefix[start->row + 1] - before,
                                  start);
}

/* Moves *start behind it. */
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

/* Takes the next piece off a worker's stretch and moves *start behind it; start->count > 0. */
FIG_BOTH fig_split_piece fig_split_take(const fig_split_shape *shape, const fig_split_line *line,
                                        fig_split_start *start) {
    fig_split_piece piece = fig_split_piece_at(shape, line, start);
    fig_split_pass(shape, line, start);
    return piece;
}

FIG_BOTH int32_t fig_split_segment(const fig_split_shape *shape, int32_t row, int32_t group) {
    return row * shape->groups + group;
}

/* Which partial the piece numbered `number` of a cut segment goes to. Where fixed, each place of
 * the line has its own. Else each of the W - 1 cuts begins one piece, which takes the slot of its
 * cut; a segment's first piece begins at no cut of its own and takes the slot of its segment or,
 * where segments outnumber cuts, of its worker.
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

/* Most partials that any step can leave. */
FIG_BOTH int32_t fig_split_partial_limit(const fig_split_shape *shape) {
    int32_t cuts = shape->workers - 1;
    if (shape->fixed) return shape->tile_limit;
    return cuts + fig_size_min(cuts, shape->row_limit * shape->groups);
}

/* Tokens that rows may grow by under one split. A window leaves tiles behind while its row grows,
 * and where each tile has a partial there is room for one such tile a row. */
FIG_BOTH int32_t fig_split_ahead_limit(const fig_split_shape *shape) {
    return shape->fixed && shape->window > 0 ? shape->tile_tokens : INT32_MAX;
}

/* The rows of a step, as a split sees them. */
typedef struct fig_split_rows {
    const int32_t *lengths; /* [count] */
    int32_t count;
    int32_t ahead; /* tokens that each row with any may yet grow by under this split */
} fig_split_rows;

/* What they have on the line of one head group. */
typedef struct fig_split_totals {
    int64_t tiles;
    int32_t longest; /* tiles of a row */
    int32_t busy;    /* rows that are not idle */
} fig_split_totals;
fig_split_totals fig_split_count(const fig_split_shape *shape, const fig_split_rows *rows);
/* Writes prefix [count + 1]; 1: it was another before. */
int fig_split_prefix(const fig_split_shape *shape, const fig_split_rows *rows, int32_t *prefix);
/* Writes starts [workers], each once and in order, from a prefix of `rows`. O(rows + workers) */
void fig_split_starts(const fig_split_shape *shape, const int32_t *prefix, int32_t rows,
                      fig_split_start *starts);

#endif
