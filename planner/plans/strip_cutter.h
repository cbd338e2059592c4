/* strip_cutter.h: the line of strips while it is cut, and the rules by which a strip is cut.
 *
 * strips.c walks along the line, strip_prefixes.c adds the pieces of prefixes, strip_tuples.c cuts
 * the line of a single segment, and strip_rows.c that of rows of which much is known.
 * strip_stretches.h finds the stretch of one worker alone. All use the functions of this file, so
 * they agree on each strip, cut and item. Read by nvcc. Invariant: items are added in the order of
 * the workers. */
#ifndef FIG_PLANNER_STRIP_CUTTER_H
#define FIG_PLANNER_STRIP_CUTTER_H

#include "planner/plans/strips.h"

/* A strip of a segment. */
typedef struct fig_strip_cutter_strip {
    const fig_strips_segment *segment;
    int32_t head, query, queries; /* query: of the segment */
    int32_t tile, tiles;          /* of kv tokens */
    int32_t flags, slot;          /* of each of its items */
    const fig_strips_cost *cost;
    int64_t units; /* of the whole strip */
} fig_strip_cutter_strip;

/* Names the next piece of a prefix. Pieces are taken in the order segment, kv head, piece, strip,
 * so that strips which read the same tiles do so at the same time. Of the n pieces of a strip of T
 * tiles, piece i has tiles [T * i / n, T * (i + 1) / n), found without a division for each. Pieces
 * of which segments say how long they are (fig_strips_segment.rest) come behind all others. */
typedef struct fig_strip_cutter_walk {
    int32_t segment, head, piece, query;
    int32_t from, end;           /* tiles of the piece */
    int32_t quotient, remainder; /* of T / n; n = 0: the segment has not been begun */
    int32_t n, rest;             /* rest: T * (i + 1) % n */
    int32_t first;               /* the tile at which the strip's pieces begin */
    int32_t is_behind;           /* 1: the pieces that come behind all others */
    int64_t place;               /* units of the pieces before it, of the same kind */
} fig_strip_cutter_walk;

/* All pieces that fig_strip_prefixes_put() adds. They depend on no segment that is no prefix. */
typedef struct fig_strip_cutter_pieces {
    const fig_strips_item *items; /* in the order of the workers */
    const int32_t *first;         /* [workers + 1] the first piece of each worker */
    const int32_t *lone_counts;   /* [workers] heads of the worker's lone pieces */
    const int64_t *units;         /* [workers] of the worker's pieces */
} fig_strip_cutter_pieces;

/* A strip of a shared segment stays whole if it has at most this many vectors and if it has no more
 * than fig_strip_cutter.whole_units units. */
enum { FIG_STRIP_CUTTER_WHOLE_VECTORS = 16 };

/* The line while it is cut. */
typedef struct fig_strip_cutter {
    const fig_strips_shape *shape;
    const fig_strips_segment *segments;
    int32_t count;
    int32_t workers;             /* that may get items; at most those of the shape */
    int32_t half;                /* query tokens of half a strip */
    int32_t tile_bits;           /* fig_strips_tile_bits() */
    fig_strips_cost costs[2][2]; /* of strips of two halves and of one; the same if shared */
    int32_t takes_turns; /* 1: every second worker has its pieces of prefixes behind the line's */
    fig_strips_head *head;
    int32_t *ranges; /* [workers + 1] */
    fig_strips_item *items;
    int64_t units, tiles, dearest_once, dearest_tile;
    int64_t active;       /* number of workers that get a stretch */
    int64_t share, extra; /* quotient and remainder of the line, without a strip's `once` */
    int64_t prefix_units; /* of all pieces of prefixes; they are not on the line */
    int64_t rest_units;   /* of those that come behind all others, see fig_strip_cutter_walk */
    int64_t full_pieces;  /* the number of all others */
    int64_t even;         /* share of a worker of those and of the line */
    int64_t bare;         /* most units of the line for a worker without such a piece */
    int64_t whole_units;
    const fig_strip_cutter_pieces *pieces; /* NULL: they must be found */
    fig_strip_cutter_walk walk;
    int64_t place;  /* units before the strip */
    int32_t worker; /* the worker whose stretch is being filled */
    int64_t next;   /* the wanted place of the following worker */
    int32_t item_count, lone_count;
    int64_t partial_vectors, cut_pieces; /* cut_pieces: number of pieces of cut strips */
} fig_strip_cutter;

/* Returns the tile of a kv token. */
FIG_BOTH int32_t fig_strip_cutter_tile(const fig_strip_cutter *cut, int32_t token) {
    return token >> cut->tile_bits;
}

FIG_BOTH int64_t fig_strip_cutter_small(int64_t a, int64_t b) {
    return a < b ? a : b;
}

FIG_BOTH int64_t fig_strip_cutter_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Fills in what a division would otherwise give for each strip. The costs of shared segments are
 * left to strips.c. */
FIG_BOTH void fig_strip_cutter_prepare(fig_strip_cutter *cut, const fig_strips_shape *shape) {
    cut->shape = shape;
    cut->workers = shape->workers;
    cut->half = fig_strips_half(shape->ratio);
    cut->tile_bits = fig_strips_tile_bits(shape);
    cut->costs[0][0] = fig_strips_cost_of(shape, cut->half + 1);
    cut->costs[0][1] = fig_strips_cost_of(shape, cut->half);
}

/* ---- A strip ----------------------------------------------------------------------------------*/

FIG_BOTH int32_t fig_strip_cutter_limit(const fig_strips_segment *segment, int32_t query) {
    if (segment->visible != FIG_STRIPS_CAUSAL) return segment->end - 1;
    return segment->end - segment->queries + query;
}

/* Returns the first kv token that query `query` or a later one sees. */
FIG_BOTH int32_t fig_strip_cutter_floor(const fig_strips_shape *shape,
                                        const fig_strips_segment *segment, int32_t query) {
    if (shape->window == 0 || segment->visible != FIG_STRIPS_CAUSAL) return segment->first_token;
    const int32_t low = fig_strip_cutter_limit(segment, query) + 1 - shape->window;
    return low > segment->first_token ? low : segment->first_token;
}

/* Returns the first kv token that the same step may have written. */
FIG_BOTH int32_t fig_strip_cutter_fresh(const fig_strips_segment *segment) {
    if (segment->visible == FIG_STRIPS_ALL) return 0;
    return segment->visible == FIG_STRIPS_OLD ? segment->end : segment->end - segment->queries;
}

/* Returns the strip that begins with query `query` of the segment. */
FIG_BOTH fig_strip_cutter_strip fig_strip_cutter_at(const fig_strip_cutter *cut,
                                                    const fig_strips_segment *segment, int32_t head,
                                                    int32_t query) {
    const int32_t queries = fig_size_min(segment->queries - query, 2 * cut->half);
    const int32_t is_lone = queries <= cut->half;
    const int32_t limit = fig_strip_cutter_limit(segment, query + queries - 1);
    fig_strip_cutter_strip s;
    s.segment = segment;
    s.head = head;
    s.query = query;
    s.queries = queries;
    s.tile = fig_strip_cutter_tile(cut, fig_strip_cutter_floor(cut->shape, segment, query));
    s.tiles = fig_strip_cutter_tile(cut, limit) + 1 - s.tile;
    s.flags = (is_lone ? FIG_STRIPS_LONE : 0) | (segment->is_shared ? FIG_STRIPS_IS_SHARED : 0) |
              (segment->visible == FIG_STRIPS_CAUSAL ? FIG_STRIPS_IS_CAUSAL : 0);
    s.slot = 0;
    s.cost = &cut->costs[segment->is_shared][is_lone];
    s.units = s.cost->once + s.cost->tile * s.tiles;
    return s;
}

/* ---- Cutting ----------------------------------------------------------------------------------*/

/* Returns the number of workers that get a stretch of the line. */
FIG_BOTH int64_t fig_strip_cutter_active(const fig_strip_cutter *cut) {
    int64_t active = fig_strip_cutter_small(cut->workers, cut->tiles);
    if (cut->dearest_tile > 0)
        active =
            fig_strip_cutter_small(active, (cut->units - cut->dearest_once) / cut->dearest_tile);
    if (cut->prefix_units > 0) active = cut->workers;
    return active < 1 ? 1 : active;
}

/* Divides the line's units among the workers that get a stretch. */
FIG_BOTH void fig_strip_cutter_share(fig_strip_cutter *cut, int64_t active) {
    cut->active = active;
    cut->share = (cut->units - cut->dearest_once) / active;
    cut->extra = (cut->units - cut->dearest_once) % active;
}

/* Returns the wanted place of worker `worker`, in units from the start of the line. */
FIG_BOTH int64_t fig_strip_cutter_wanted(const fig_strip_cutter *cut, int64_t worker) {
    return cut->dearest_once + cut->share * worker + cut->extra * worker / cut->active;
}

/* Returns 1 if the strip must not be cut. A row's own tokens in a shared segment are a strip of few
 * vectors, whose pieces would take longer to merge than the imbalance costs. */
FIG_BOTH int fig_strip_cutter_is_whole(const fig_strip_cutter *cut,
                                       const fig_strip_cutter_strip *s) {
    if (cut->shape->whole) return 1;
    if (!s->segment->is_shared) return 0;
    if (s->queries * cut->shape->ratio > FIG_STRIP_CUTTER_WHOLE_VECTORS) return 0;
    return s->units <= cut->whole_units;
}

/* Returns the strip's tile at which to cut, for a wanted place `units` units behind the strip's
 * start. */
FIG_BOTH int32_t fig_strip_cutter_tile_of_cut(const fig_strip_cutter *cut,
                                              const fig_strip_cutter_strip *s, int64_t units) {
    if (fig_strip_cutter_is_whole(cut, s)) return units * 2 < s->units ? 0 : s->tiles;
    if (units < s->cost->once) return 0;
    return (int32_t)fig_strip_cutter_small(
        (units - s->cost->once + s->cost->tile / 2) / s->cost->tile, s->tiles);
}

/* ---- Items ------------------------------------------------------------------------------------*/

/* Returns the index of the strip's first query: in the members, or in all packed queries. */
FIG_BOTH int32_t fig_strip_cutter_query(const fig_strip_cutter_strip *s) {
    return s->query + (s->segment->is_shared ? s->segment->first_member : s->segment->first_query);
}

/* Returns tiles [from, end) of `heads` successive strips as an item. */
FIG_BOTH fig_strips_item fig_strip_cutter_item(const fig_strip_cutter_strip *s, int32_t from,
                                               int32_t end, int32_t heads, int32_t flags) {
    fig_strips_item item;
    item.query = fig_strip_cutter_query(s);
    item.queries = s->queries;
    item.head = s->head;
    item.sequence = s->segment->sequence;
    item.tile = s->tile + from;
    item.tiles = end - from;
    item.first_token = s->segment->first_token;
    item.end = s->segment->end;
    item.limit = fig_strip_cutter_limit(s->segment, s->query);
    item.flags = s->flags | flags;
    item.partial = -1;
    item.first_partial = -1;
    item.pieces = 1;
    item.counter = 0;
    item.fresh = fig_strip_cutter_fresh(s->segment);
    item.slot = (int16_t)s->slot;
    item.heads = (int16_t)heads;
    return item;
}

/* Marks the last items of a worker's warpgroups. The worker's items end at `end`, and those of the
 * plan, or only the worker's, begin at `items`. Lone heads take turns, so the worker's last head
 * and the head before it have different warpgroups if both are lone. If one of the two items is
 * another worker's, that worker has marked it already. */
FIG_BOTH void fig_strip_cutter_mark_last(fig_strips_item *items, fig_strips_item *end) {
    if (items == end) return;
    fig_strips_item *last = end - 1;
    last->flags |= FIG_STRIPS_IS_LAST;
    if ((last->flags & FIG_STRIPS_LONE) == 0) return;
    if (last->heads > 1) last->flags |= FIG_STRIPS_ARE_LAST;
    if (last->heads == 1 && last > items && (last[-1].flags & FIG_STRIPS_LONE) != 0)
        last[-1].flags |= FIG_STRIPS_IS_LAST;
}

/* ---- On the host ------------------------------------------------------------------------------*/

/* Sets the fields of the cutter that follow from its shape. */
void fig_strips_prepare(fig_strip_cutter *cut);
/* Adds the costs of these segments to those of the line and of prefixes. */
void fig_strips_add_costs(fig_strip_cutter *cut, const fig_strips_segment *segments, int32_t count);
/* Prepares the cutter and writes the head of the plan. queries: one past the last query token. */
void fig_strips_open(fig_strip_cutter *cut, int32_t queries, uint8_t *plan);
/* Begins the first stretch. All costs have been added. active: number of workers that get one. */
void fig_strips_begin(fig_strip_cutter *cut, int64_t active);
/* Cuts the strips of a segment that is no prefix. */
void fig_strips_cut_segment(fig_strip_cutter *cut, const fig_strips_segment *segment);
/* Ends the stretches that are left, completes the head, and returns the size of the plan. */
fig_strips_sizes fig_strips_close(fig_strip_cutter *cut);
/* Adds tiles [from, end) of the strip as an item. */
void fig_strips_put(fig_strip_cutter *cut, const fig_strip_cutter_strip *s, int32_t from,
                    int32_t end);
/* Ends the stretch of the current worker. */
void fig_strips_turn(fig_strip_cutter *cut);
/* Strips of prefixes that are all alike, each of them in `pieces` pieces, and the workers that
 * process them: more than there are pieces. limit: workers of the shape, which bound the pieces. */
typedef struct fig_strip_prefixes_even {
    int64_t strips, tiles, pieces, workers, limit;
    fig_strips_cost cost;
} fig_strip_prefixes_even;
/* Returns the best number of fig_strips_segment.rests. *longest: units of the slowest worker. */
int32_t fig_strip_prefixes_rests(const fig_strip_prefixes_even *of, int64_t *longest);
/* Returns fig_strips_segment.rest for a number of rests. */
int64_t fig_strip_prefixes_rest(const fig_strip_prefixes_even *of, int32_t rests, int64_t *longest);

/* Finds and adds the pieces of prefixes that belong to the current worker. Returns their units. */
int64_t fig_strip_prefixes_put(fig_strip_cutter *cut);
/* Returns their units, and adds nothing. */
int64_t fig_strip_prefixes_units(const fig_strip_cutter *cut);
/* Returns the number of workers without a piece of a prefix, or -1 if it does not matter. */
int64_t fig_strip_prefixes_bare(const fig_strip_cutter *cut);
/* Returns 1 if every second worker is to have its pieces of prefixes behind its stretch of the
 * line. Few pieces of a strip are merged fast, even if one of them comes last. */
int fig_strip_prefixes_take_turns(const fig_strip_cutter *cut);
/* Shares out the line among workers of which some have pieces of prefixes. bare: what
 * fig_strip_prefixes_bare() returns. */
void fig_strip_prefixes_share_line(fig_strip_cutter *cut, int64_t bare);
/* Cuts the line in tuples if that pays off, and returns 1 then. */
int fig_strip_tuples_cut(fig_strip_cutter *cut);

/* ---- From worker to worker ------------------------------------------------------------------- */

/* Returns 1 if the worker has its pieces of prefixes behind its stretch of the line. */
static inline int fig_strip_cutter_is_late(const fig_strip_cutter *cut, int32_t worker) {
    return cut->takes_turns && worker % 2 != 0;
}

/* Adds the known pieces of a worker from `to` on, behind `lone_count` lone heads. Returns the end
 * of the items. */
static inline fig_strips_item *fig_strip_cutter_put_known(const fig_strip_cutter_pieces *pieces,
                                                          int32_t worker, int32_t lone_count,
                                                          fig_strips_item *to) {
    const fig_strips_item *end = pieces->items + pieces->first[worker + 1];
    const int32_t is_odd = lone_count % 2 != 0;
    for (const fig_strips_item *of = pieces->items + pieces->first[worker]; of < end; of++, to++) {
        *to = *of;
        if (is_odd && of->flags & FIG_STRIPS_LONE) to->flags ^= FIG_STRIPS_SECOND;
    }
    return to;
}

/* Returns the units of the line for a worker whose pieces of prefixes have `units` units. */
static inline int64_t fig_strip_cutter_rest(const fig_strip_cutter *cut, int64_t units) {
    const int64_t left = cut->even - units;
    return units == 0 ? cut->bare : left > 0 ? left : 0;
}

#endif
