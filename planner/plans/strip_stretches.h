/* strip_stretches.h: the stretch of each worker on a line of strips, found without the stretches
 * before it.
 *
 * strips.c walks along the line, strip by strip. Here the workers are found side by side, in four
 * turns. The caller keeps what each turn finds in arrays that all workers can read:
 *
 *     chunks    units of the line before each chunk, by closed forms
 *     places    the strip and tile at which each worker begins
 *     counts    items and cut pieces of each worker, then their sums over the workers before it
 *     items     of each worker, piece by piece
 *
 * A line has chunks only: segments that share nothing and whose first kv token is 0. A cut strip
 * belongs to successive workers, or in tuples to the same member of successive tuples, so the first
 * of them alone decides where its partials and counters lie. Read by nvcc. Invariant: the items
 * equal those of fig_strips_make(), byte for byte. */
#ifndef FIG_PLANNER_STRIP_STRETCHES_H
#define FIG_PLANNER_STRIP_STRETCHES_H

#include "planner/plans/strip_tuples.h"

enum { FIG_STRIP_STRETCHES_ALL = INT32_MAX }; /* the end of a piece: that of its strip */

/* A place between two tiles of the line: before tile `tile` of strip `number` of a chunk. Strips
 * are numbered by kv head, then by query. A place between two strips names the second one. */
typedef struct fig_strip_place {
    int32_t chunk, number, tile;
} fig_strip_place;

/* What a worker adds to the step: items, and the pieces and vectors of the partials of the strip
 * that it begins and others end. Or the sums over the workers before it. */
typedef struct fig_strip_stretch {
    int32_t items, pieces, vectors;
} fig_strip_stretch;

/* A line. All arrays belong to the caller. */
typedef struct fig_strip_stretches {
    fig_strip_cutter cut; /* only what the functions marked FIG_BOTH use; `count` chunks */
    int32_t visible;      /* fig_strips_visible of all chunks */
    const int32_t *rows;  /* [count] the row of each chunk */
    const int32_t *starts, *lengths, *sequences; /* [rows of the step], starts: and one more */
    const int64_t *units;                        /* [count + 1] before each chunk */
    fig_strip_tuples set;                        /* has no tuples: the line is cut by places */
    const fig_strip_place *places;               /* [workers + 1] */
    const fig_strip_stretch *before;             /* [workers] */
} fig_strip_stretches;

/* A worker's next items are found from here. */
typedef struct fig_strip_walk {
    fig_strip_place at, stop;   /* of a line that is cut by places */
    fig_strip_tuples_worker of; /* of tuples */
    int32_t head;
    int32_t lone_count; /* heads of the lone items so far */
} fig_strip_walk;

/* Tiles [from, end) of strip `number` of a chunk and of those of the next heads - 1 heads. */
typedef struct fig_strip_piece {
    int32_t chunk, number, heads;
    int32_t from, end;
    int32_t is_cut; /* 1: others have the rest of the strip */
} fig_strip_piece;

/* The pieces of a cut strip: how many, and which of them a worker has. */
typedef struct fig_strip_cuts {
    int32_t first_worker, pieces, piece;
} fig_strip_cuts;

/* ---- Chunks ---------------------------------------------------------------------------------- */

FIG_BOTH fig_strips_segment fig_strip_stretches_chunk(const fig_strip_stretches *line,
                                                      int32_t chunk) {
    const int32_t row = line->rows[chunk];
    fig_strips_segment segment;
    segment.first_query = line->starts[row];
    segment.queries = line->starts[row + 1] - segment.first_query;
    segment.sequence = line->sequences[row];
    segment.first_token = 0;
    segment.end = line->lengths[row];
    segment.visible = line->visible;
    segment.is_shared = segment.first_member = segment.pieces = 0;
    return segment;
}

/* Returns the strips of a kv head. */
FIG_BOTH int32_t fig_strip_stretches_strips(const fig_strip_stretches *line, int32_t queries) {
    const int32_t step = 2 * line->cut.half;
    return (queries + step - 1) / step;
}

/* Returns the sum of (start + step * i) >> bits for i from 0 to count - 1. Whole multiples of
 * 1 << bits, the size, leave step and start first. The rest counts points of a grid under a line
 * from (0, start) to (count, last). Seen from the other axis, the same points lie under a line of
 * step `size` over units of `step`: the numbers shrink as in Euclid's algorithm. The first turn
 * needs shifts only, and in most lines it is followed by one more. */
FIG_BOTH int64_t fig_strip_stretches_sum(uint32_t count, uint32_t step, uint32_t start,
                                         int32_t bits) {
    uint32_t size = UINT32_C(1) << bits;
    const int64_t pairs = (int64_t)count * ((int64_t)count - 1) / 2;
    int64_t sum = pairs * (step >> bits) + (int64_t)count * (start >> bits);
    step &= size - 1;
    start &= size - 1;
    uint32_t last = step * count + start;
    for (uint32_t quotient = last >> bits; quotient > 0; quotient = last / size) {
        const uint32_t other = size;
        count = quotient;
        start = last - quotient * size;
        size = step;
        step = other;
        sum += (int64_t)count * ((int64_t)count - 1) / 2 * (step / size) +
               (int64_t)count * (start / size);
        step %= size;
        start %= size;
        last = step * count + start;
    }
    return sum;
}

/* Returns the tiles of the first `count` strips of a kv head, all full. Strip i of a causal chunk
 * reads tiles up to that of token end - queries + (i + 1) * step - 1, and from 0 on or, as soon as
 * the window lies behind it, from that of token end - queries + i * step + 1 - window. */
FIG_BOTH int64_t fig_strip_stretches_tiles(const fig_strip_stretches *line,
                                           const fig_strips_segment *chunk, int32_t count) {
    const fig_strip_cutter *cut = &line->cut;
    const int32_t step = 2 * cut->half, bits = cut->tile_bits;
    const int32_t before = chunk->end - chunk->queries;
    if (count == 0) return 0;
    if (chunk->visible != FIG_STRIPS_CAUSAL)
        return (int64_t)count * (fig_strip_cutter_tile(cut, chunk->end - 1) + 1);
    const int64_t through = fig_strip_stretches_sum((uint32_t)count, (uint32_t)step,
                                                    (uint32_t)(before + step - 1), bits) +
                            count;
    /* low: the first token that strip 0 sees; whole: the strips that see token 0 */
    const int32_t low = before + 1 - cut->shape->window;
    const int32_t whole = low > 0 ? 0 : fig_size_min(-low / step + 1, count);
    if (cut->shape->window == 0 || whole == count) return through;
    return through - fig_strip_stretches_sum((uint32_t)(count - whole), (uint32_t)step,
                                             (uint32_t)(low + whole * step), bits);
}

/* Returns the units of the first `count` strips of a kv head, all full. Full strips are pairs. */
FIG_BOTH int64_t fig_strip_stretches_units(const fig_strip_stretches *line,
                                           const fig_strips_segment *chunk, int32_t count) {
    const fig_strips_cost *cost = &line->cut.costs[0][0];
    return cost->once * count + cost->tile * fig_strip_stretches_tiles(line, chunk, count);
}

/* What a chunk adds to the line: the units and tiles of one kv head, and 1 if a strip is a pair. */
typedef struct fig_strip_measure {
    int64_t units, tiles;
    int32_t has_pair;
} fig_strip_measure;

FIG_BOTH fig_strip_measure fig_strip_stretches_measure(const fig_strip_stretches *line,
                                                       int32_t chunk) {
    const fig_strips_segment segment = fig_strip_stretches_chunk(line, chunk);
    const int32_t full = fig_strip_stretches_strips(line, segment.queries) - 1;
    const fig_strip_cutter_strip last =
        fig_strip_cutter_at(&line->cut, &segment, 0, full * 2 * line->cut.half);
    fig_strip_measure measure;
    measure.tiles = fig_strip_stretches_tiles(line, &segment, full) + last.tiles;
    measure.units = fig_strip_stretches_units(line, &segment, full) + last.units;
    measure.has_pair = full > 0 || last.queries > line->cut.half;
    return measure;
}

/* Fills in the line's sums, and divides its units among the workers. tiles: of all heads. */
FIG_BOTH void fig_strip_stretches_share(fig_strip_stretches *line, int64_t tiles,
                                        int32_t has_pair) {
    fig_strip_cutter *cut = &line->cut;
    const fig_strips_cost *dearest = &cut->costs[0][has_pair ? 0 : 1];
    cut->units = line->units[cut->count];
    cut->tiles = tiles;
    cut->dearest_once = cut->count > 0 ? dearest->once : 0;
    cut->dearest_tile = cut->count > 0 ? dearest->tile : 0;
    cut->prefix_units = 0;
    fig_strip_cutter_share(cut, fig_strip_cutter_active(cut));
}

/* ---- Places ---------------------------------------------------------------------------------- */

/* Returns the chunk that holds the wanted place `units`. */
FIG_BOTH int32_t fig_strip_stretches_find_chunk(const fig_strip_stretches *line, int64_t units) {
    int32_t low = 0, high = line->cut.count - 1;
    while (low < high) {
        const int32_t middle = (low + high + 1) / 2;
        if (line->units[middle] <= units) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Returns the strip of a kv head, from 0, that holds the wanted place `units` behind the head's
 * first strip. */
FIG_BOTH int32_t fig_strip_stretches_find_strip(const fig_strip_stretches *line,
                                                const fig_strips_segment *chunk, int64_t units) {
    int32_t low = 0, high = fig_strip_stretches_strips(line, chunk->queries) - 1;
    while (low < high) {
        const int32_t middle = (low + high + 1) / 2;
        if (fig_strip_stretches_units(line, chunk, middle) <= units) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Returns the place at which worker `worker` begins; the last worker ends at that of the one behind
 * it. Workers that get no stretch begin and end behind all strips. */
FIG_BOTH fig_strip_place fig_strip_stretches_place(const fig_strip_stretches *line,
                                                   int32_t worker) {
    const fig_strip_cutter *cut = &line->cut;
    fig_strip_place place = {0, 0, 0};
    if (worker == 0) return place;
    place.chunk = cut->count;
    if (worker >= cut->active) return place;
    const int64_t wanted = fig_strip_cutter_wanted(cut, worker);
    place.chunk = fig_strip_stretches_find_chunk(line, wanted);
    const fig_strips_segment chunk = fig_strip_stretches_chunk(line, place.chunk);
    const int32_t heads = cut->shape->kv_heads;
    const int32_t strips = fig_strip_stretches_strips(line, chunk.queries);
    const int64_t own = line->units[place.chunk + 1] - line->units[place.chunk], of = own / heads;
    const int32_t head = (int32_t)((wanted - line->units[place.chunk]) / of);
    const int64_t behind = wanted - line->units[place.chunk] - head * of;
    const int32_t number = fig_strip_stretches_find_strip(line, &chunk, behind);
    const fig_strip_cutter_strip s = fig_strip_cutter_at(cut, &chunk, head, number * 2 * cut->half);
    place.number = head * strips + number;
    place.tile = fig_strip_cutter_tile_of_cut(
        cut, &s, behind - fig_strip_stretches_units(line, &chunk, number));
    if (place.tile < s.tiles) return place;
    place.tile = 0;
    if (++place.number < heads * strips) return place;
    place.number = 0;
    place.chunk++;
    return place;
}

/* Returns 1 if place a comes before place b. */
FIG_BOTH int fig_strip_stretches_is_before(const fig_strip_place *a, const fig_strip_place *b) {
    if (a->chunk != b->chunk) return a->chunk < b->chunk;
    return a->number != b->number ? a->number < b->number : a->tile < b->tile;
}

/* Returns the first worker that does not begin before this place. */
FIG_BOTH int32_t fig_strip_stretches_find_worker(const fig_strip_stretches *line,
                                                 const fig_strip_place *place) {
    int32_t low = 0, high = line->cut.shape->workers;
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        if (fig_strip_stretches_is_before(&line->places[middle], place)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- Pieces of a worker ---------------------------------------------------------------------- */

FIG_BOTH fig_strip_walk fig_strip_stretches_begin(const fig_strip_stretches *line, int32_t worker) {
    fig_strip_walk walk;
    walk.lone_count = walk.head = 0;
    if (line->set.tuples > 0) {
        walk.of = fig_strip_tuples_worker_of(&line->cut, &line->set, worker);
        walk.head = walk.of.first_head;
    } else {
        walk.at = line->places[worker];
        walk.stop = line->places[worker + 1];
    }
    return walk;
}

/* Moves to the next piece of a line that is cut by places. Strips of the same query tokens and of
 * successive heads follow each other only if a head has one strip. */
FIG_BOTH int fig_strip_stretches_next_by_place(const fig_strip_stretches *line,
                                               fig_strip_walk *walk, fig_strip_piece *piece) {
    fig_strip_place *at = &walk->at;
    const fig_strip_place *stop = &walk->stop;
    if (!fig_strip_stretches_is_before(at, stop)) return 0;
    const fig_strips_segment chunk = fig_strip_stretches_chunk(line, at->chunk);
    const int32_t strips = fig_strip_stretches_strips(line, chunk.queries);
    const int32_t all = strips * line->cut.shape->kv_heads;
    const int32_t end = at->chunk == stop->chunk ? stop->number : all;
    piece->chunk = at->chunk;
    piece->number = at->number;
    piece->heads = 1;
    piece->from = at->tile;
    piece->end = FIG_STRIP_STRETCHES_ALL;
    piece->is_cut = at->tile > 0;
    if (at->number == end) {
        piece->end = stop->tile;
        piece->is_cut = 1;
        *at = *stop;
        return 1;
    }
    if (strips == 1 && at->tile == 0) piece->heads = end - at->number;
    at->number += piece->heads;
    at->tile = 0;
    if (at->number < all) return 1;
    at->number = 0;
    at->chunk++;
    return 1;
}

/* Moves to the next piece of tuples. The member in the middle of an odd number of strips has the
 * same query tokens of each head. */
FIG_BOTH int fig_strip_stretches_next_by_tuple(const fig_strip_stretches *line,
                                               fig_strip_walk *walk, fig_strip_piece *piece) {
    const fig_strip_tuples_worker *of = &walk->of;
    const fig_strips_segment chunk = fig_strip_stretches_chunk(line, 0);
    const int is_middle = 2 * of->member + 1 == line->set.strips;
    piece->chunk = piece->heads = 0;
    for (; walk->head < of->end_head; walk->head++) {
        const fig_strip_tuples_part part =
            fig_strip_tuples_part_of(&line->cut, &line->set, &chunk, of, walk->head);
        const int32_t is_cut = part.from > 0 || part.end < part.s.tiles;
        if (part.end <= part.from) continue;
        if (piece->heads > 0 && (is_cut || !is_middle)) return 1;
        if (piece->heads++ > 0) continue;
        piece->number = part.s.head * line->set.strips + part.s.query / (2 * line->cut.half);
        piece->from = part.from;
        piece->end = part.end;
        piece->is_cut = is_cut;
        if (!is_cut && is_middle) continue;
        walk->head++;
        return 1;
    }
    return piece->heads > 0;
}

/* Moves to the worker's next piece. Returns 0 behind the last one. */
FIG_BOTH int fig_strip_stretches_next(const fig_strip_stretches *line, fig_strip_walk *walk,
                                      fig_strip_piece *piece) {
    if (line->set.tuples > 0) return fig_strip_stretches_next_by_tuple(line, walk, piece);
    return fig_strip_stretches_next_by_place(line, walk, piece);
}

/* Returns the pieces of the cut strip that the worker's piece belongs to. */
FIG_BOTH fig_strip_cuts fig_strip_stretches_cuts_of(const fig_strip_stretches *line,
                                                    const fig_strip_piece *piece,
                                                    const fig_strip_cutter_strip *s,
                                                    int32_t worker) {
    fig_strip_cuts cuts;
    if (line->set.tuples > 0) {
        const int32_t strips = line->set.strips;
        const int64_t place = (int64_t)s->head * line->set.tiles + s->tile - line->set.first;
        const int32_t tuple = fig_strip_tuples_at(&line->cut, &line->set, place);
        cuts.first_worker = tuple * strips + worker % strips;
        cuts.pieces = fig_strip_tuples_at(&line->cut, &line->set, place + s->tiles - 1) - tuple + 1;
        cuts.piece = (worker - cuts.first_worker) / strips;
        return cuts;
    }
    const fig_strip_place from = {piece->chunk, piece->number, 1};
    const fig_strip_place end = {piece->chunk, piece->number + 1, 0};
    const int32_t first = fig_strip_stretches_find_worker(line, &from);
    cuts.first_worker = first - 1;
    cuts.pieces = fig_strip_stretches_find_worker(line, &end) - first + 1;
    cuts.piece = worker - cuts.first_worker;
    return cuts;
}

/* Returns the first strip of a piece. chunk: that of the piece. */
FIG_BOTH fig_strip_cutter_strip fig_strip_stretches_strip(const fig_strip_stretches *line,
                                                          const fig_strip_piece *piece,
                                                          const fig_strips_segment *chunk) {
    const int32_t strips = fig_strip_stretches_strips(line, chunk->queries);
    const int32_t head = piece->number / strips;
    return fig_strip_cutter_at(&line->cut, chunk, head,
                               (piece->number - head * strips) * 2 * line->cut.half);
}

/* Counts a worker's items and the partials of the strip that it begins and others end. Needs the
 * places of all workers. */
FIG_BOTH fig_strip_stretch fig_strip_stretches_count(const fig_strip_stretches *line,
                                                     int32_t worker) {
    fig_strip_walk walk = fig_strip_stretches_begin(line, worker);
    fig_strip_stretch count = {0, 0, 0};
    fig_strip_piece piece;
    for (; fig_strip_stretches_next(line, &walk, &piece); count.items++) {
        if (!piece.is_cut || piece.from > 0) continue;
        const fig_strips_segment chunk = fig_strip_stretches_chunk(line, piece.chunk);
        const fig_strip_cutter_strip s = fig_strip_stretches_strip(line, &piece, &chunk);
        count.pieces = fig_strip_stretches_cuts_of(line, &piece, &s, worker).pieces;
        count.vectors = count.pieces * s.queries * line->cut.shape->ratio;
    }
    return count;
}

/* Returns a piece as an item. Needs the sums over the workers before each worker. */
FIG_BOTH fig_strips_item fig_strip_stretches_item(const fig_strip_stretches *line,
                                                  fig_strip_walk *walk,
                                                  const fig_strip_piece *piece, int32_t worker) {
    const fig_strips_segment chunk = fig_strip_stretches_chunk(line, piece->chunk);
    const fig_strip_cutter_strip s = fig_strip_stretches_strip(line, piece, &chunk);
    const int32_t is_lone = (s.flags & FIG_STRIPS_LONE) != 0;
    const int32_t is_second = is_lone && walk->lone_count % 2 != 0;
    fig_strips_item item = fig_strip_cutter_item(&s, piece->from, fig_size_min(piece->end, s.tiles),
                                                 piece->heads, is_second ? FIG_STRIPS_SECOND : 0);
    if (is_lone) walk->lone_count += piece->heads;
    if (!piece->is_cut) return item;
    const fig_strip_cuts cuts = fig_strip_stretches_cuts_of(line, piece, &s, worker);
    const fig_strip_stretch *first = &line->before[cuts.first_worker];
    item.first_partial = first->vectors;
    item.partial = first->vectors + cuts.piece * s.queries * line->cut.shape->ratio;
    item.pieces = cuts.pieces;
    item.counter = first->pieces * FIG_STRIPS_ARRIVALS;
    return item;
}

#endif
