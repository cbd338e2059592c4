/* strip_tuples.c: cuts the line of a single segment so that workers read the same tiles in step.
 *
 * If only one segment has queries, the k strips of each kv head read the same tiles. Workers then
 * form tuples of k. The workers of a tuple read the same range of tiles at the same time, each for
 * a different strip, so that L2 serves all of them except the first. Of P tuples, tuple j processes
 * tiles [L * j / P, L * (j + 1) / P) of a line of L = kv_heads * tiles. Causal strips differ in
 * length, so odd heads assign their strips to workers in reverse order. Invariant: a strip is cut
 * only where its tuple ends. */
#include "planner/plans/strip_cutter.h"

/* limit on the fullest worker of tuples, in % of an even share */
enum { TUPLE_WORTH = 108 };

typedef struct tuple_set {
    const fig_strips_segment *segment;
    int32_t strips, tuples;
    int32_t first, tiles; /* range of tiles that the strips of a head read */
} tuple_set;

/* Returns the first tile of the line that tuple `tuple` processes. */
static int64_t begin_of(const fig_strip_cutter *cut, const tuple_set *set, int32_t tuple) {
    return (int64_t)set->tiles * cut->shape->kv_heads * tuple / set->tuples;
}

/* Returns the tuple that processes tile x of the line. */
static int32_t tuple_of(const fig_strip_cutter *cut, const tuple_set *set, int64_t x) {
    const int64_t line = (int64_t)set->tiles * cut->shape->kv_heads;
    return (int32_t)(((x + 1) * set->tuples - 1) / line);
}

/* A worker of a tuple, and what of the line the tuple processes. */
typedef struct tuple_worker {
    int32_t member;               /* the worker's number in its tuple */
    int32_t first_head, end_head; /* the heads with tiles of the tuple */
    int64_t begin, end;           /* tiles of the line */
} tuple_worker;

static tuple_worker worker_of(const fig_strip_cutter *cut, const tuple_set *set, int32_t worker) {
    const int32_t tuple = worker / set->strips;
    const int64_t begin = begin_of(cut, set, tuple), end = begin_of(cut, set, tuple + 1);
    return (tuple_worker){.member = worker % set->strips,
                          .first_head = (int32_t)(begin / set->tiles),
                          .end_head = (int32_t)fig_strip_cutter_ceil_div(end, set->tiles),
                          .begin = begin,
                          .end = end};
}

/* A worker's part of the strips of one head. */
typedef struct tuple_part {
    fig_strip_cutter_strip s;
    int64_t place;     /* the strip's first tile on the line */
    int32_t from, end; /* tiles of the strip */
} tuple_part;

static tuple_part part_of(const fig_strip_cutter *cut, const tuple_set *set, const tuple_worker *of,
                          int32_t head) {
    const int32_t number = head % 2 == 0 ? of->member : set->strips - 1 - of->member;
    const int32_t step = 2 * cut->half;
    tuple_part part = {.s = fig_strips_strip_at(cut, set->segment, head, number * step)};
    part.place = (int64_t)head * set->tiles + part.s.tile - set->first;
    part.from = (int32_t)(of->begin > part.place ? of->begin - part.place : 0);
    part.end = (int32_t)fig_strip_cutter_small(of->end - part.place, part.s.tiles);
    return part;
}

/* Returns the pieces of the part's strip. */
static int32_t pieces_of(const fig_strip_cutter *cut, const tuple_set *set,
                         const tuple_part *part) {
    return tuple_of(cut, set, part->place + part->s.tiles - 1) - tuple_of(cut, set, part->place) +
           1;
}

/* Returns the units of the fullest worker. */
static int64_t fullest_of(const fig_strip_cutter *cut, const tuple_set *set) {
    int64_t fullest = 0;
    for (int32_t worker = 0; worker < set->strips * set->tuples; worker++) {
        const tuple_worker of = worker_of(cut, set, worker);
        int64_t units = 0;
        for (int32_t head = of.first_head; head < of.end_head; head++) {
            const tuple_part part = part_of(cut, set, &of, head);
            if (part.end > part.from)
                units += part.s.cost->once + part.s.cost->tile * (part.end - part.from);
        }
        if (units > fullest) fullest = units;
    }
    return fullest;
}

/* Finds the tuples of a step. Returns 1 if their imbalance is small enough for them to pay off:
 * they were measured to save 4 to 10 percent, for 8192 to 32768 tokens. */
static int find_tuples(const fig_strip_cutter *cut, tuple_set *set) {
    const int32_t step = 2 * cut->half;
    *set = (tuple_set){0};
    for (int32_t i = 0; i < cut->count; i++) {
        if (cut->segments[i].queries == 0) continue;
        if (set->segment != NULL) return 0;
        set->segment = &cut->segments[i];
    }
    if (set->segment == NULL || cut->shape->whole) return 0;
    set->strips = fig_size_ceil_div(set->segment->queries, step);
    if (set->strips < 2 || set->strips > cut->shape->workers / 2) return 0;
    set->tuples = cut->shape->workers / set->strips;
    const fig_strip_cutter_strip first = fig_strips_strip_at(cut, set->segment, 0, 0);
    const fig_strip_cutter_strip last =
        fig_strips_strip_at(cut, set->segment, 0, (set->strips - 1) * step);
    set->first = first.tile;
    set->tiles = last.tile + last.tiles - first.tile;
    if ((int64_t)set->tiles * cut->shape->kv_heads < set->tuples) return 0;
    const int64_t even = cut->share + cut->dearest_once;
    return fullest_of(cut, set) * 100 <= even * TUPLE_WORTH;
}

/* Assigns a partial to the worker's last item. The first piece of a strip allocates the partials of
 * all its pieces. A later piece takes the partial after that of the preceding piece, which is the
 * last item of the same member of the preceding tuple. */
static void join_part(fig_strip_cutter *cut, const tuple_set *set, const tuple_part *part) {
    fig_strips_item *item = &cut->items[cut->item_count - 1];
    const int32_t vectors = item->queries * cut->shape->ratio;
    item->pieces = pieces_of(cut, set, part);
    if (item->pieces < 2) return;
    if (part->from == 0) {
        item->partial = item->first_partial = (int32_t)cut->partial_vectors;
        item->counter = (int32_t)cut->cut_pieces * FIG_STRIPS_ARRIVALS;
        cut->cut_pieces += item->pieces;
        cut->partial_vectors += (int64_t)item->pieces * vectors;
        return;
    }
    const fig_strips_item *before = &cut->items[cut->ranges[cut->worker - set->strips + 1] - 1];
    item->first_partial = before->first_partial;
    item->partial = before->partial + vectors;
    item->counter = before->counter;
}

int fig_strip_tuples_cut(fig_strip_cutter *cut) {
    tuple_set set;
    if (!find_tuples(cut, &set)) return 0;
    for (int32_t worker = 0; worker < set.strips * set.tuples; worker++) {
        const tuple_worker of = worker_of(cut, &set, worker);
        for (int32_t head = of.first_head; head < of.end_head; head++) {
            const tuple_part part = part_of(cut, &set, &of, head);
            if (part.end <= part.from) continue;
            fig_strips_put(cut, &part.s, part.from, part.end);
            join_part(cut, &set, &part);
        }
        fig_strips_turn(cut);
    }
    return 1;
}
