/* strip_rows.c: keeps the pieces of prefixes and the items of rows, and cuts the line of rows.
 *
 * A small row is lone, and none of its strips is cut, unless it is long. So a boundary between
 * workers that lies in its strips goes to the nearest boundary between kv heads, and the row leaves
 * one item for each worker that has some of its heads. Invariant: each function that writes items
 * leaves the cutter as strips.c would, so that strips.c can go on with any row. */
#include "planner/plans/strip_rows.h"

#include <stdlib.h>
#include <string.h>

#include "planner/plans/strip_cutter.h"
#include "planner/status.h"

enum { SMALL_FLAGS = FIG_STRIPS_LONE | FIG_STRIPS_IS_SHARED | FIG_STRIPS_IS_CAUSAL };

fig_status fig_strip_rows_init(fig_strip_rows *rows, const fig_strips_shape *shape,
                               const fig_strip_rows_limits *limits) {
    const size_t workers = (size_t)shape->workers, most = (size_t)limits->rows;
    *rows = (fig_strip_rows){.piece_limit = (int32_t)limits->pieces,
                             .row_limit = (int32_t)limits->rows,
                             .shape = *shape};
    rows->pieces = calloc((size_t)limits->pieces + 1, sizeof *rows->pieces);
    rows->first = calloc(workers + 1, sizeof *rows->first);
    rows->lone_counts = calloc(workers, sizeof *rows->lone_counts);
    rows->piece_units = calloc(workers, sizeof *rows->piece_units);
    rows->rows = calloc(most, sizeof *rows->rows);
    rows->items = calloc(most, sizeof *rows->items);
    rows->units = calloc(most, sizeof *rows->units);
    if (rows->pieces != NULL && rows->first != NULL && rows->lone_counts != NULL &&
        rows->piece_units != NULL && rows->rows != NULL && rows->items != NULL &&
        rows->units != NULL)
        return FIG_OK;
    fig_strip_rows_finish(rows);
    return fig_fail(FIG_NOMEM, "plan: %zu rows that share pages", most);
}

void fig_strip_rows_finish(fig_strip_rows *rows) {
    free(rows->pieces);
    free(rows->first);
    free(rows->lone_counts);
    free(rows->piece_units);
    free(rows->rows);
    free(rows->items);
    free(rows->units);
    *rows = (fig_strip_rows){0};
}

/* ---- What is kept -------------------------------------------------------------------------- */

/* Returns the number of pieces of all prefixes. */
static int64_t count_pieces(const fig_strip_cutter *cut) {
    int64_t pieces = 0;
    for (int32_t i = 0; i < cut->count; i++)
        pieces += fig_strip_cutter_ceil_div(cut->segments[i].queries, 2 * cut->half) *
                  cut->segments[i].pieces * cut->shape->kv_heads;
    return pieces;
}

/* Finds the pieces of each worker. */
static void take_pieces(fig_strip_rows *rows, fig_strip_cutter *cut) {
    cut->items = rows->pieces;
    cut->ranges = rows->first;
    for (cut->worker = 0; cut->worker < rows->shape.workers; cut->worker++) {
        cut->lone_count = 0;
        rows->first[cut->worker] = cut->item_count;
        rows->piece_units[cut->worker] = fig_strip_prefixes_put(cut);
        rows->lone_counts[cut->worker] = cut->lone_count;
    }
    rows->first[cut->worker] = cut->item_count;
    rows->all_units = cut->prefix_units;
    rows->bare = fig_strip_prefixes_bare(cut);
    rows->takes_turns = fig_strip_prefixes_take_turns(cut);
}

static int is_small(const fig_strips_shape *shape, const fig_strips_segment *segment) {
    return segment->is_shared && segment->visible == FIG_STRIPS_CAUSAL && shape->window == 0 &&
           segment->queries * shape->ratio <= FIG_STRIP_CUTTER_WHOLE_VECTORS;
}

/* Returns the fields of the row's items that its length does not change. */
static fig_strips_item item_of(const fig_strip_cutter *cut, const fig_strips_segment *segment) {
    return (fig_strips_item){.query = segment->first_member,
                             .queries = segment->queries,
                             .sequence = segment->sequence,
                             .tile = fig_strip_cutter_tile(cut, segment->first_token),
                             .first_token = segment->first_token,
                             .flags = FIG_STRIPS_LONE | FIG_STRIPS_IS_SHARED | FIG_STRIPS_IS_CAUSAL,
                             .partial = -1,
                             .first_partial = -1,
                             .pieces = 1};
}

/* Lists the segments that are no prefixes. */
static void take_rows(fig_strip_rows *rows, const fig_strip_cutter *cut) {
    rows->row_count = rows->queries = 0;
    for (int32_t i = 0; i < cut->count; i++) {
        const fig_strips_segment *segment = &cut->segments[i];
        const int32_t end = segment->first_query + segment->queries;
        if (end > rows->queries) rows->queries = end;
        if (segment->queries == 0 || segment->pieces > 0) continue;
        assert(rows->row_count < rows->row_limit);
        rows->rows[rows->row_count] = (fig_strip_rows_row){i, is_small(cut->shape, segment)};
        rows->units[rows->row_count] = INT64_MAX;
        rows->items[rows->row_count++] = item_of(cut, segment);
    }
}

/* Without prefixes, strips.c cuts the line in other ways. */
void fig_strip_rows_take(fig_strip_rows *rows, const fig_strips_segment *segments, int32_t count,
                         int32_t workers) {
    fig_strip_cutter cut = {.shape = &rows->shape, .segments = segments, .count = count};
    rows->is_kept = 0;
    rows->workers = workers;
    fig_strips_prepare(&cut);
    cut.workers = workers;
    if (count_pieces(&cut) > rows->piece_limit) return;
    for (int32_t i = 0; i < count; i++)
        if (segments[i].pieces > 0) fig_strips_add_costs(&cut, &segments[i], 1);
    if (cut.prefix_units == 0) return;
    take_pieces(rows, &cut);
    take_rows(rows, &cut);
    rows->is_kept = 1;
}

/* ---- Cutting ------------------------------------------------------------------------------- */

/* Updates the items of small rows to the ends of their segments. Adds up the costs of the line. */
static void lengthen(const fig_strip_rows *rows, fig_strip_cutter *cut) {
    const int32_t once = (int32_t)cut->costs[1][1].once, of_tile = (int32_t)cut->costs[1][1].tile;
    const int32_t count = rows->row_count, tile_bits = cut->tile_bits;
    const fig_strips_segment *segments = cut->segments;
    const fig_strip_rows_row *all = rows->rows;
    fig_strips_item *items = rows->items;
    int64_t *units = rows->units, sum = 0;
    for (int32_t n = 0; n < count; n++) {
        const fig_strips_segment *segment = &segments[all[n].segment];
        if (!all[n].is_small) {
            fig_strips_add_costs(cut, segment, 1);
            continue;
        }
        const int32_t end = segment->end, first_query = end - items[n].queries;
        const int32_t tiles = ((end - 1) >> tile_bits) + 1 - items[n].tile;
        items[n].tiles = tiles;
        items[n].end = end;
        items[n].limit = items[n].fresh = first_query;
        units[n] = once + of_tile * tiles;
        sum += units[n];
    }
    cut->units += sum * cut->shape->kv_heads;
}

/* Writes heads [first, end) of a small row as an item. lone_count: lone heads of the worker before
 * these. */
static inline void write_heads(const fig_strips_item *row, int32_t first, int32_t end,
                               int32_t lone_count, fig_strips_item *item) {
    *item = *row;
    item->head = first;
    item->heads = (int16_t)(end - first);
    item->flags = SMALL_FLAGS | (lone_count & 1) * FIG_STRIPS_SECOND;
}

/* Returns how many whole strips of `units` units end nearest to `place`. It is at least 0, because
 * no stretch ends before the row that cuts it. */
static int32_t nearest(int64_t place, int64_t units) {
    return (int32_t)((uint64_t)(2 * place + units) / (uint64_t)(2 * units));
}

/* The fields of the cutter that change from item to item. In registers, they do not wait for each
 * other. */
typedef struct stretch {
    fig_strips_item *to; /* the end of the items */
    int64_t next;        /* the wanted place of the following worker */
    int32_t worker, lone_count;
} stretch;

static inline stretch stretch_of(const fig_strip_cutter *cut) {
    return (stretch){.to = cut->items + cut->item_count,
                     .next = cut->next,
                     .worker = cut->worker,
                     .lone_count = cut->lone_count};
}

/* Does what fig_strips_turn() does, if the pieces are known. There is a further worker: shares are
 * rounded up, so the last worker's stretch ends at the end of the line or behind it. */
static inline void turn(const fig_strip_cutter *cut, stretch *of) {
    const fig_strip_cutter_pieces *pieces = cut->pieces;
    if (fig_strip_cutter_is_late(cut, of->worker))
        of->to = fig_strip_cutter_put_known(pieces, of->worker, of->lone_count, of->to);
    fig_strip_cutter_mark_last(cut->items, of->to);
    const int32_t worker = ++of->worker;
    assert(worker < cut->shape->workers);
    cut->ranges[worker] = (int32_t)(of->to - cut->items);
    of->lone_count = 0;
    of->next += fig_strip_cutter_rest(cut, pieces->units[worker]);
    if (fig_strip_cutter_is_late(cut, worker)) return;
    of->to = fig_strip_cutter_put_known(pieces, worker, 0, of->to);
    of->lone_count = pieces->lone_counts[worker];
}

/* Cuts the strips of rows from number n on, as long as they are small and not long. Returns the
 * number of the first other row. */
static int32_t cut_small(fig_strip_cutter *cut, const fig_strip_rows *rows, int32_t n) {
    const int32_t heads = cut->shape->kv_heads, count = rows->row_count;
    const int64_t whole_units = cut->whole_units, *all_units = rows->units;
    const fig_strips_item *items = rows->items;
    int64_t place = cut->place;
    stretch of = stretch_of(cut);
    for (; n < count && all_units[n] <= whole_units; n++) {
        const int64_t units = all_units[n], begin = place;
        int32_t first = 0;
        place += units * heads;
        while (of.next < place) {
            const int32_t head = nearest(of.next - begin, units);
            if (head > first) {
                write_heads(&items[n], first, head, of.lone_count, of.to++);
                of.lone_count += head - first;
                first = head;
            }
            turn(cut, &of);
        }
        if (first == heads) continue;
        write_heads(&items[n], first, heads, of.lone_count, of.to++);
        of.lone_count += heads - first;
    }
    cut->item_count = (int32_t)(of.to - cut->items);
    cut->lone_count = of.lone_count;
    cut->worker = of.worker;
    cut->next = of.next;
    cut->place = place;
    return n;
}

fig_strips_sizes fig_strip_rows_make(fig_strip_rows *rows, const fig_strips_segment *segments,
                                     int32_t count, uint8_t *plan) {
    if (!rows->is_kept)
        return fig_strips_make_within(&rows->shape, segments, count, rows->workers, plan);
    const fig_strip_cutter_pieces pieces = {rows->pieces, rows->first, rows->lone_counts,
                                            rows->piece_units};
    fig_strip_cutter cut = {.shape = &rows->shape,
                            .segments = segments,
                            .count = count,
                            .prefix_units = rows->all_units,
                            .takes_turns = rows->takes_turns,
                            .pieces = &pieces};
    fig_strips_open(&cut, rows->queries, plan);
    cut.workers = rows->workers;
    lengthen(rows, &cut);
    fig_strip_prefixes_share_line(&cut, rows->bare);
    fig_strips_begin(&cut, rows->workers);
    for (int32_t n = 0; n < rows->row_count;) {
        n = cut_small(&cut, rows, n);
        if (n < rows->row_count) fig_strips_cut_segment(&cut, &segments[rows->rows[n++].segment]);
    }
    return fig_strips_close(&cut);
}
