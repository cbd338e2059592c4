/* strip_prefixes.c: cuts the strips of shared prefixes into pieces, and deals them to the workers.
 *
 * Each strip of a prefix has equally many pieces of about equal length, as many as give each worker
 * one piece. Invariant: where strips have several pieces, there are at most as many pieces as
 * workers, which bounds the slots of a step. */
#include "planner/plans/strip_cutter.h"

/* Fewest tiles of a piece, of a full strip and of one that fills a half: what a piece costs beside
 * its tiles. */
enum { PAIR_TILES = 4, LONE_TILES = 2 };
enum { MANY_PIECES = 5 }; /* merges of so many are slow */

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

void fig_strip_prefixes_cut(const fig_strips_shape *shape, fig_strips_segment *segments,
                            int32_t count) {
    int64_t units = 0;
    for (int32_t i = 0; i < count; i++)
        units += units_of(shape, &segments[i]) * shape->kv_heads;
    for (int32_t i = 0; i < count; i++) {
        fig_strips_segment *prefix = &segments[i];
        const int32_t half = fig_strips_half(shape->ratio);
        const int64_t strips = fig_strip_cutter_ceil_div(prefix->queries, 2 * half);
        const int32_t least = prefix->queries > half ? PAIR_TILES : LONE_TILES;
        const int64_t most =
            fig_strip_cutter_small(FIG_STRIPS_PIECE_LIMIT, tiles_of(shape, prefix) / least);
        prefix->pieces = 1;
        if (strips == 0 || shape->whole) continue;
        const int64_t all = units_of(shape, prefix) * shape->workers / (units * strips);
        const int64_t pieces = fig_strip_cutter_small(all, most);
        if (pieces > 1) prefix->pieces = (int32_t)pieces;
    }
}

/* Moves to the next piece. */
static void walk_on(const fig_strip_cutter *cut, fig_strip_cutter_walk *walk) {
    const fig_strips_segment *segment = &cut->segments[walk->segment];
    walk->query += 2 * cut->half;
    if (walk->query < segment->queries) return;
    walk->query = 0;
    if (++walk->piece < segment->pieces) return;
    walk->piece = 0;
    if (++walk->head < cut->shape->kv_heads) return;
    walk->head = 0;
    walk->tiles = 0;
    walk->segment++;
}

/* A piece of a prefix. */
typedef struct prefix_piece {
    int32_t from, end; /* tiles of its strip */
    int64_t units;
} prefix_piece;

/* Finds the walk's piece. Returns 0 after the last one. All strips of a prefix have the same
 * tiles. */
static int piece_of(const fig_strip_cutter *cut, fig_strip_cutter_walk *walk, prefix_piece *piece) {
    const fig_strips_segment *segment = &cut->segments[walk->segment];
    for (;; segment = &cut->segments[++walk->segment]) {
        if (walk->segment == cut->count) return 0;
        if (segment->pieces > 0 && segment->queries > 0) break;
    }
    if (walk->tiles == 0) walk->tiles = tiles_of(cut->shape, segment);
    const fig_strips_cost *cost = &cut->costs[1][segment->queries - walk->query <= cut->half];
    piece->from = walk->tiles * walk->piece / segment->pieces;
    piece->end = walk->tiles * (walk->piece + 1) / segment->pieces;
    piece->units = cost->once + cost->tile * (piece->end - piece->from);
    return 1;
}

/* Returns 1 if the walk's piece belongs to a worker behind this one: its middle lies behind the
 * worker's part of all pieces. */
static int is_behind(const fig_strip_cutter *cut, const fig_strip_cutter_walk *walk,
                     const prefix_piece *piece, int64_t worker) {
    return (2 * walk->place + piece->units) * cut->shape->workers >=
           2 * cut->prefix_units * (worker + 1);
}

int64_t fig_strip_prefixes_put(fig_strip_cutter *cut) {
    fig_strip_cutter_walk *walk = &cut->walk;
    const int64_t before = walk->place;
    prefix_piece piece;
    while (piece_of(cut, walk, &piece) && !is_behind(cut, walk, &piece, cut->worker)) {
        fig_strip_cutter_strip s =
            fig_strips_strip_at(cut, &cut->segments[walk->segment], walk->head, walk->query);
        s.item.flags |= FIG_STRIPS_IS_PREFIX;
        s.item.slot = walk->piece;
        fig_strips_put(cut, &s, piece.from, piece.end);
        walk->place += piece.units;
        walk_on(cut, walk);
    }
    return walk->place - before;
}

/* Returns the number of workers without a piece of a prefix. */
static int64_t count_bare(const fig_strip_cutter *cut) {
    fig_strip_cutter_walk walk = {0};
    prefix_piece piece;
    int64_t bare = cut->shape->workers, worker = -1;
    for (; piece_of(cut, &walk, &piece); walk_on(cut, &walk)) {
        const int64_t last = worker;
        while (is_behind(cut, &walk, &piece, worker))
            worker++;
        bare -= worker > last;
        walk.place += piece.units;
    }
    return bare;
}

/* Shares out the line among workers of which some have pieces of prefixes. If the own tokens of a
 * row are done long before its prefixes, the worker of the last piece merges the row, which is slow
 * if there are many pieces. So workers without a piece then get no more of the line than others. */
void fig_strip_prefixes_share_line(fig_strip_cutter *cut) {
    const int64_t workers = cut->shape->workers, all = cut->units + cut->prefix_units;
    int32_t most = 0;
    for (int32_t i = 0; i < cut->count; i++)
        if (cut->segments[i].queries > 0 && cut->segments[i].pieces > most)
            most = cut->segments[i].pieces;
    cut->bare = cut->even = fig_strip_cutter_ceil_div(all, workers);
    if (most < MANY_PIECES) return;
    const int64_t bare = count_bare(cut);
    cut->bare = fig_strip_cutter_small(cut->even, fig_strip_cutter_ceil_div(cut->units, workers));
    cut->even = fig_strip_cutter_ceil_div(all - bare * cut->bare, workers - bare);
}
