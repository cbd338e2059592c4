/* units.h: measures a step's line in units of a worker's time.
 *
 * A segment of n tiles has once + 16 n units. The 16 units of a tile stand for the time that a
 * worker needs for a tile while memory is not saturated. `once` is the extra time of the first tile
 * that a worker reads in a segment. A worker that begins inside a segment therefore pays `once`
 * again.
 *
 * The line has U units in all and W workers. Cut w is the place where worker w begins. Its wanted
 * place is once + floor((U - once) * w / W), because every worker except worker 0 may begin inside
 * a segment. If this place lies y units behind the start of its segment, the cut moves to a whole
 * tile:
 *
 *     y < once    the segment's first tile, so the segment is not cut
 *     else        tile round((y - once) / 16), or the next segment if there is no such tile
 *
 * Units are used only if there are more tiles than workers. Then (U - once) / W >= 16: wanted
 * places lie at least 16 units apart, and no two cuts inside one segment lie at the same tile. So
 * no worker without tiles stands between two pieces of a segment, and the numbers of the segment's
 * pieces have no gap. A worker's end moves at most 8 units to the right. Its start moves at most 7
 * units to the left if the worker then pays `once`, and at most once + 7 units if the worker pays
 * nothing. The fullest worker has therefore at most ceil((U - once) / W) + once + 15 units.
 *
 * Owns the arithmetic. With it, split.c cuts the whole line, and each thread of planning.cu finds
 * the cut of one worker. Invariant: all arithmetic is on integers; gcc and nvcc read this header,
 * and nothing allocates. */
#ifndef FIG_PLANNER_UNITS_H
#define FIG_PLANNER_UNITS_H

#include "planner/split/split.h"

enum { FIG_UNITS_OF_TILE = 16, FIG_UNITS_ONCE_LIMIT = 1 << 14 };

typedef struct fig_units {
    const int32_t *before; /* [rows + 1] units of one head group before a row */
    int32_t once;
    int32_t total;      /* U */
    int32_t step, rest; /* quotient and remainder of (U - once) / W; products fit 32 bits */
} fig_units;

/* The place where a worker begins, and the part of the line before it. */
typedef struct fig_units_cut {
    int32_t row, group, tile;
    int32_t tiles, units; /* in front of the cut, including earlier tiles of the cut segment */
} fig_units_cut;

FIG_BOTH int32_t fig_units_of_tiles(int32_t once, int32_t tiles) {
    return tiles > 0 ? once + FIG_UNITS_OF_TILE * tiles : 0;
}

/* Returns 1 if the line may be cut by units. `tiles` counts one head group. `busy` is the number of
 * rows that are not idle, and `longest` the tiles of the longest row. If all busy rows are equally
 * long, or if 32 bits cannot count the units, the line is cut by tiles. */
FIG_BOTH int fig_units_may_cut(const fig_split_shape *shape, int32_t once, int32_t tiles,
                               int32_t longest, int32_t busy) {
    const int64_t units =
        ((int64_t)FIG_UNITS_OF_TILE * tiles + (int64_t)once * busy) * (int64_t)shape->groups;
    if (once == 0 || shape->fixed || (int64_t)longest * busy == tiles) return 0;
    return (int64_t)tiles * shape->groups > shape->workers && units <= INT32_MAX;
}

/* Computes the units of a line. before: [rows + 1] */
FIG_BOTH fig_units fig_units_of_line(const fig_split_shape *shape, int32_t once,
                                     const int32_t *before, int32_t rows) {
    fig_units units;
    units.before = before;
    units.once = once;
    units.total = before[rows] * shape->groups;
    units.step = (units.total - once) / shape->workers;
    units.rest = (units.total - once) % shape->workers;
    return units;
}

/* Returns the units of the line before a place in a row. */
FIG_BOTH int32_t fig_units_before(const fig_split_shape *shape, const fig_units *units, int32_t row,
                                  int32_t group, int32_t tile) {
    const int32_t first = units->before[row], own = units->before[row + 1] - first;
    return first * shape->groups + group * own + fig_units_of_tiles(units->once, tile);
}

/* Returns the first row at or after `row` that is not idle, or line->rows if there is none. */
FIG_BOTH int32_t fig_units_busy_row(const fig_split_shape *shape, const fig_split_line *line,
                                    const fig_units *units, int32_t row) {
    if (row >= line->rows || units->before[row + 1] > units->before[row]) return row;
    if (units->before[row] == units->before[line->rows]) return line->rows;
    return fig_split_row_of(units->before, line->rows, shape->groups,
                            units->before[row] * shape->groups);
}

/* Returns the cut whose wanted place is x units from the start of the line; x lies in `row`. */
FIG_BOTH fig_units_cut fig_units_cut_in(const fig_split_shape *shape, const fig_split_line *line,
                                        const fig_units *units, int32_t row, int32_t x) {
    const int32_t first = units->before[row], own = units->before[row + 1] - first;
    const int32_t tiles = line->prefix[row + 1] - line->prefix[row];
    const uint32_t behind = (uint32_t)(x - first * shape->groups);
    int32_t group = shape->groups > 1 ? (int32_t)(behind / (uint32_t)own) : 0;
    const int32_t y = (int32_t)behind - group * own - units->once;
    int32_t tile = -(y >= 0) & ((y + FIG_UNITS_OF_TILE / 2) / FIG_UNITS_OF_TILE);
    const int32_t is_next = tile == tiles;
    fig_units_cut cut;
    tile &= is_next - 1;
    group += is_next;
    cut.tile = tile;
    cut.tiles = line->prefix[row] * shape->groups + group * tiles + tile;
    cut.units = first * shape->groups + group * own + FIG_UNITS_OF_TILE * tile +
                (-(tile > 0) & units->once);
    const int32_t is_past = group == shape->groups;
    cut.group = group & (is_past - 1);
    cut.row = fig_units_busy_row(shape, line, units, row + is_past);
    return cut;
}

/* Returns the cut where a worker begins; for worker W this is the end of the line. O(log rows) */
FIG_BOTH fig_units_cut fig_units_cut_of(const fig_split_shape *shape, const fig_split_line *line,
                                        const fig_units *units, int32_t worker) {
    fig_units_cut cut = {line->rows, 0, 0, line->tiles, units->total};
    const int32_t x = units->once + units->step * worker + units->rest * worker / shape->workers;
    if (worker >= shape->workers) return cut;
    return fig_units_cut_in(shape, line, units,
                            fig_split_row_of(units->before, line->rows, shape->groups, x), x);
}

/* Returns the start of a worker that begins at `cut`; zeros if the cut is the end of the line. */
FIG_BOTH fig_split_start fig_units_start(const fig_split_line *line, const fig_units_cut *cut,
                                         int32_t count) {
    fig_split_start start = {0, 0, 0, 0};
    if (cut->row >= line->rows) return start;
    start.row = cut->row;
    start.group = cut->group;
    start.tile = cut->tile;
    start.count = count;
    return start;
}

/* Returns the units of a worker from its start to its end; a start inside a segment costs `once`
 * again. */
FIG_BOTH int32_t fig_units_load(const fig_units *units, int32_t begin_tile, int32_t begin_units,
                                int32_t end_units) {
    return end_units - begin_units + (-(begin_tile > 0) & units->once);
}

/* Returns 1 if cuts by units are used. Each argument is the number of units of the fullest worker
 * under one way of cutting. */
FIG_BOTH int fig_units_are_better(int32_t by_units, int32_t by_tiles) {
    return by_units < by_tiles - by_tiles / 32;
}

#endif
