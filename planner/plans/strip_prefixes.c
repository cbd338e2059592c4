/* strip_prefixes.c: cuts the strips of shared prefixes into pieces, and deals them to the workers.
 *
 * Each strip of a prefix has equally many pieces of about equal length, as many as give each worker
 * one piece, or fewer if other workers are better busy with the line. Invariant: where strips have
 * several pieces, there are at most as many pieces as workers, which bounds the slots of a step. */
#include "planner/plans/strip_cutter.h"

/* Fewest tiles of a piece, of a full strip and of one that fills a half: what a piece costs beside
 * its tiles. */
enum { PAIR_TILES = 4, LONE_TILES = 2 };
enum { MANY_PIECES = 5 };   /* merges of so many are slow */
enum { REST_TILES = 2 };    /* fewest tiles of a piece that comes behind all others */
enum { REST_PARTS = 16 };   /* one of so many workers must lack a piece to get such pieces */
enum { WORKER_PARTS = 16 }; /* numbers of workers for prefixes that are tried */

/* Units of the tiles of all prefixes, and of the line; the workers that process them. */
typedef struct prefix_costs {
    int64_t units, line_units, workers;
} prefix_costs;

/* Returns 1 if a strip of the prefix fills both halves. */
static int has_pairs(const fig_strips_shape *shape, const fig_strips_segment *prefix) {
    return prefix->queries > fig_strips_half(shape->ratio);
}

static int32_t tiles_of(const fig_strips_shape *shape, const fig_strips_segment *prefix) {
    return (prefix->end - 1) / shape->tile_tokens + 1 - prefix->first_token / shape->tile_tokens;
}

/* Returns the units of the tiles of all strips of a prefix, for one kv head. */
static int64_t units_of(const fig_strips_shape *shape, const fig_strips_segment *prefix) {
    const int32_t step = 2 * fig_strips_half(shape->ratio), rest = prefix->queries % step;
    int64_t tile = fig_strips_shared_cost_of(shape, step).tile * (prefix->queries / step);
    if (rest > 0) tile += fig_strips_shared_cost_of(shape, rest).tile;
    return tile * tiles_of(shape, prefix);
}

static int64_t strips_of(const fig_strips_shape *shape, const fig_strips_segment *prefix) {
    return fig_strip_cutter_ceil_div(prefix->queries, 2 * fig_strips_half(shape->ratio));
}

/* Returns the units of the tiles of all prefixes and kv heads. */
static int64_t all_units_of(const fig_strips_shape *shape, const fig_strips_segment *segments,
                            int32_t count) {
    int64_t units = 0;
    for (int32_t i = 0; i < count; i++)
        units += units_of(shape, &segments[i]) * shape->kv_heads;
    return units;
}

/* Returns the number of pieces of a prefix's strips that gives each of `workers` workers about one
 * piece. units: what all_units_of() returns. */
static int32_t pieces_of(const fig_strips_shape *shape, const fig_strips_segment *prefix,
                         int64_t units, int64_t workers) {
    const int32_t least = has_pairs(shape, prefix) ? PAIR_TILES : LONE_TILES;
    const int64_t strips = strips_of(shape, prefix);
    const int64_t most =
        fig_strip_cutter_small(FIG_STRIPS_PIECE_LIMIT, tiles_of(shape, prefix) / least);
    if (strips == 0 || shape->whole) return 1;
    const int64_t all = units_of(shape, prefix) * workers / (units * strips);
    const int64_t pieces = fig_strip_cutter_small(all, most);
    return pieces > 1 ? (int32_t)pieces : 1;
}

/* Returns about how long the slowest worker takes if `workers` of them share the prefixes: the
 * longest piece, or an even share of everything. */
static int64_t slowest(const fig_strips_shape *shape, const fig_strips_segment *segments,
                       int32_t count, const prefix_costs *costs, int64_t workers) {
    int64_t all = costs->units + costs->line_units, longest = 0;
    for (int32_t i = 0; i < count; i++) {
        const fig_strips_segment *prefix = &segments[i];
        const int64_t pieces = pieces_of(shape, prefix, costs->units, workers);
        const fig_strips_cost cost = fig_strips_shared_cost_of(
            shape, fig_size_min(prefix->queries, 2 * fig_strips_half(shape->ratio)));
        const int64_t tiles = fig_strip_cutter_ceil_div(tiles_of(shape, prefix), pieces);
        all += strips_of(shape, prefix) * shape->kv_heads * pieces * cost.once;
        if (cost.once + cost.tile * tiles > longest) longest = cost.once + cost.tile * tiles;
    }
    const int64_t even = fig_strip_cutter_ceil_div(all, costs->workers);
    return even > longest ? even : longest;
}

/* Returns how many workers are to share the prefixes. Strips of one half are bound by memory, as
 * rows are, so all workers share them: then most rows end behind their prefixes. */
static int64_t best_workers(const fig_strips_shape *shape, const fig_strips_segment *segments,
                            int32_t count, const prefix_costs *costs) {
    int64_t best = costs->workers, least = INT64_MAX;
    int are_pairs = 0;
    for (int32_t i = 0; i < count; i++)
        are_pairs |= has_pairs(shape, &segments[i]);
    if (!are_pairs) return best;
    for (int32_t part = 1; part <= WORKER_PARTS; part++) {
        const int64_t workers = fig_strip_cutter_ceil_div(costs->workers * part, WORKER_PARTS);
        const int64_t units = slowest(shape, segments, count, costs, workers);
        if (units >= least) continue;
        least = units;
        best = workers;
    }
    return best;
}

int64_t fig_strip_prefixes_rest(const fig_strip_prefixes_even *of, int32_t rests,
                                int64_t *longest) {
    const int64_t left = of->workers - of->strips * of->pieces;
    const int64_t each = fig_strip_cutter_ceil_div(of->strips * rests, left); /* of a worker */
    /* `each` rests, of b / rests tiles each, are to take as long as (tiles - b) / pieces tiles */
    const int64_t more =
        of->pieces * (of->cost.once - each * of->cost.once) + of->cost.tile * of->tiles;
    const int64_t of_tile = of->cost.tile * rests + each * of->cost.tile * of->pieces;
    const int64_t rest = more > 0 ? more * rests / of_tile : 0;
    *longest =
        of->cost.once + of->cost.tile * fig_strip_cutter_ceil_div(of->tiles - rest, of->pieces);
    return rest;
}

int32_t fig_strip_prefixes_rests(const fig_strip_prefixes_even *of, int64_t *longest) {
    const int64_t left = of->workers - of->strips * of->pieces;
    int32_t best = 0;
    *longest = of->cost.once + of->cost.tile * fig_strip_cutter_ceil_div(of->tiles, of->pieces);
    if (left * REST_PARTS < of->workers) return 0;
    for (int32_t rests = 1; of->strips * (of->pieces + rests - 1) < of->limit &&
                            of->pieces + rests <= FIG_STRIPS_PIECE_LIMIT;
         rests++) {
        int64_t own;
        const int64_t rest = fig_strip_prefixes_rest(of, rests, &own);
        if (rest < REST_TILES * rests || rest >= of->tiles || own >= *longest) continue;
        *longest = own;
        best = rests;
    }
    return best;
}

/* Gives workers that would have neither a piece nor rows the ends of all strips, as further pieces.
 * All workers then take about as long. Looks at the prefixes as if all were alike. */
static void cut_rests(const fig_strips_shape *shape, const prefix_costs *costs,
                      fig_strips_segment *segments, int32_t count) {
    const int32_t pieces = count > 0 ? segments[0].pieces : 0;
    fig_strip_prefixes_even even = {
        .cost = fig_strips_shared_cost_of(shape, 2 * fig_strips_half(shape->ratio)),
        .pieces = pieces,
        .workers = costs->workers,
        .limit = shape->workers};
    int64_t longest;
    for (int32_t i = 0; i < count; i++) {
        if (!has_pairs(shape, &segments[i]) || segments[i].pieces != pieces || shape->whole) return;
        even.strips += strips_of(shape, &segments[i]) * shape->kv_heads;
    }
    if (even.strips * pieces >= costs->workers) return;
    for (int32_t i = 0; i < count; i++) {
        even.tiles = tiles_of(shape, &segments[i]);
        const int32_t rests = fig_strip_prefixes_rests(&even, &longest);
        if (rests == 0) continue;
        segments[i].rest = (int32_t)fig_strip_prefixes_rest(&even, rests, &longest);
        segments[i].rests = rests;
        segments[i].pieces += rests;
    }
}

void fig_strip_prefixes_cut(const fig_strips_shape *shape, const fig_strips_beside *beside,
                            fig_strips_segment *segments, int32_t count) {
    const prefix_costs costs = {all_units_of(shape, segments, count), beside->line_units,
                                beside->workers};
    const int64_t workers = best_workers(shape, segments, count, &costs);
    for (int32_t i = 0; i < count; i++) {
        segments[i].pieces = pieces_of(shape, &segments[i], costs.units, workers);
        segments[i].rest = segments[i].rests = 0;
    }
    if (beside->line_units == 0) cut_rests(shape, &costs, segments, count);
}

/* Moves to the tiles of the next piece of the same head. */
static void walk_along(fig_strip_cutter_walk *walk) {
    walk->from = walk->end;
    walk->end += walk->quotient;
    walk->rest += walk->remainder;
    if (walk->rest < walk->n) return;
    walk->rest -= walk->n;
    walk->end++;
}

/* Moves to the first piece of a head. */
static void begin_head(fig_strip_cutter_walk *walk) {
    walk->piece = walk->rest = 0;
    walk->end = walk->first;
    walk_along(walk);
}

/* Moves to the next piece. */
static void walk_on(const fig_strip_cutter *cut, fig_strip_cutter_walk *walk) {
    walk->query += 2 * cut->half;
    if (walk->query < cut->segments[walk->segment].queries) return;
    walk->query = 0;
    if (++walk->piece < walk->n) {
        walk_along(walk);
        return;
    }
    begin_head(walk);
    if (++walk->head < cut->shape->kv_heads) return;
    walk->head = walk->n = 0;
    walk->segment++;
}

/* Begins the pieces of a segment that are of the walk's kind. Returns 0 if it has none. All strips
 * of a prefix have the same tiles. */
static int begin_segment(const fig_strip_cutter *cut, const fig_strips_segment *segment,
                         fig_strip_cutter_walk *walk) {
    if (segment->pieces == 0 || segment->queries == 0) return 0;
    const int32_t all = tiles_of(cut->shape, segment), full = all - segment->rest;
    const int32_t tiles = walk->is_behind ? segment->rest : full;
    if (tiles == 0) return 0;
    walk->n = walk->is_behind ? segment->rests : segment->pieces - segment->rests;
    walk->first = walk->is_behind ? full : 0;
    walk->quotient = tiles / walk->n;
    walk->remainder = tiles % walk->n;
    begin_head(walk);
    return 1;
}

/* Finds the segment of the walk's piece. Returns 0 after the last piece. */
static int has_piece(const fig_strip_cutter *cut, fig_strip_cutter_walk *walk) {
    if (walk->n > 0) return 1;
    for (; walk->is_behind <= (cut->rest_units > 0); walk->is_behind++) {
        for (; walk->segment < cut->count; walk->segment++)
            if (begin_segment(cut, &cut->segments[walk->segment], walk)) return 1;
        walk->segment = 0;
        walk->place = 0;
    }
    return 0;
}

static int64_t piece_units(const fig_strip_cutter *cut, const fig_strip_cutter_walk *walk) {
    const int32_t queries = cut->segments[walk->segment].queries - walk->query;
    const fig_strips_cost *cost = &cut->costs[1][queries <= cut->half];
    return cost->once + cost->tile * (walk->end - walk->from);
}

/* Returns the number of workers for pieces that do not come behind all others: as many as there are
 * such pieces, if there are others. */
static int64_t full_workers(const fig_strip_cutter *cut) {
    if (cut->rest_units == 0) return cut->workers;
    return fig_strip_cutter_small(cut->full_pieces, cut->workers - 1);
}

/* Returns 1 if the walk's piece, of `units` units, belongs to a worker behind this one: its middle
 * lies behind the worker's part of all pieces of the same kind. */
static int is_behind(const fig_strip_cutter *cut, const fig_strip_cutter_walk *walk, int64_t units,
                     int64_t worker) {
    const int64_t full = full_workers(cut), middle = 2 * walk->place + units;
    if (walk->is_behind)
        return middle * (cut->workers - full) >= 2 * cut->rest_units * (worker + 1 - full);
    return middle * full >= 2 * (cut->prefix_units - cut->rest_units) * (worker + 1);
}

int64_t fig_strip_prefixes_put(fig_strip_cutter *cut) {
    fig_strip_cutter_walk *walk = &cut->walk;
    int64_t all = 0;
    while (has_piece(cut, walk)) {
        const fig_strips_segment *segment = &cut->segments[walk->segment];
        const int64_t units = piece_units(cut, walk);
        if (is_behind(cut, walk, units, cut->worker)) break;
        fig_strip_cutter_strip s = fig_strip_cutter_at(cut, segment, walk->head, walk->query);
        s.flags |= FIG_STRIPS_IS_PREFIX;
        s.slot = walk->piece + (walk->is_behind ? segment->pieces - segment->rests : 0);
        fig_strips_put(cut, &s, walk->from, walk->end);
        walk->place += units;
        all += units;
        walk_on(cut, walk);
    }
    return all;
}

int64_t fig_strip_prefixes_units(const fig_strip_cutter *cut) {
    fig_strip_cutter_walk walk = cut->walk;
    int64_t all = 0;
    while (has_piece(cut, &walk)) {
        const int64_t units = piece_units(cut, &walk);
        if (is_behind(cut, &walk, units, cut->worker)) break;
        walk.place += units;
        all += units;
        walk_on(cut, &walk);
    }
    return all;
}

/* Returns the number of workers without a piece of a prefix. */
static int64_t count_bare(const fig_strip_cutter *cut) {
    fig_strip_cutter_walk walk = {0};
    int64_t bare = cut->workers, worker = -1;
    for (; has_piece(cut, &walk); walk_on(cut, &walk)) {
        const int64_t last = worker, units = piece_units(cut, &walk);
        while (is_behind(cut, &walk, units, worker))
            worker++;
        bare -= worker > last;
        walk.place += units;
    }
    return bare;
}

/* Returns the pieces of a prefix's strip, of those strips that have most. */
static int32_t most_pieces(const fig_strip_cutter *cut) {
    int32_t most = 0;
    for (int32_t i = 0; i < cut->count; i++)
        if (cut->segments[i].queries > 0 && cut->segments[i].pieces > most)
            most = cut->segments[i].pieces;
    return most;
}

/* Returns 1 if some prefix has strips that fill both halves. */
static int have_pairs(const fig_strip_cutter *cut) {
    for (int32_t i = 0; i < cut->count; i++)
        if (cut->segments[i].pieces > 0 && has_pairs(cut->shape, &cut->segments[i])) return 1;
    return 0;
}

int64_t fig_strip_prefixes_bare(const fig_strip_cutter *cut) {
    return have_pairs(cut) || most_pieces(cut) < MANY_PIECES ? -1 : count_bare(cut);
}

int fig_strip_prefixes_take_turns(const fig_strip_cutter *cut) {
    return have_pairs(cut) && most_pieces(cut) < MANY_PIECES;
}

/* If the own tokens of a row are done long before its prefixes, the worker of the last piece merges
 * the row, which is slow if there are many pieces. So workers without a piece then get no more of
 * the line than others. */
void fig_strip_prefixes_share_line(fig_strip_cutter *cut, int64_t bare) {
    const int64_t workers = cut->workers, all = cut->units + cut->prefix_units;
    cut->bare = cut->even = fig_strip_cutter_ceil_div(all, workers);
    if (bare < 0) return;
    cut->bare = fig_strip_cutter_small(cut->even, fig_strip_cutter_ceil_div(cut->units, workers));
    cut->even = fig_strip_cutter_ceil_div(all - bare * cut->bare, workers - bare);
}
