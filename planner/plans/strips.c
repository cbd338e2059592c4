/* strips.c: makes the plan of attention over rows with many query tokens.
 *
 * The cost of a strip is once + tile * tiles. Its unit is a sixteenth of the time of a tile in a
 * strip of two halves; all figures were measured. A worker that begins inside a strip pays `once`
 * again, so on a line of U units, the wanted place of cut w of A workers is once + (U - once) * w /
 * A. Invariant: a line of A workers has at most A - 1 cuts, which bounds everything that grows with
 * the number of workers. */
#include "planner/plans/strips.h"

#include <string.h>

/* Units of a strip of two halves (PAIR) and of a strip of one half (LONE), at head_dim 128 and 128
 * tokens per tile. The time of a strip's `once` does not grow with the work of a tile. */
enum { PAIR_ONCE = 30, PAIR_TILE = 16, LONE_ONCE = 9, LONE_TILE = 12, TILE_WORK = 128 * 128 };
/* The same in shared segments. A full strip leaves and merges 128 results, each in a slot. A lone
 * strip is mostly a row's own tokens: other warps merge its few results while it goes on. */
enum { SHARED_PAIR_ONCE = 100, SHARED_LONE_ONCE = 9, SHARED_LONE_TILE = 8 };
/* A strip of a shared segment stays whole if it has at most WHOLE_VECTORS vectors and costs at most
 * WHOLE_WORTH % of an even share. */
enum { WHOLE_VECTORS = 16, WHOLE_WORTH = 150 };
enum { TUPLE_WORTH = 108 }; /* limit on the fullest worker of tuples, in % of an even share */

/* A strip of a segment. `item` is the whole strip as one piece, on the first warpgroup, without its
 * head: a word that is stored just before the item is copied would stall the copy. */
typedef struct strip {
    fig_strips_item item;
    int32_t head;
    fig_strips_cost cost;
    int64_t units; /* of the whole strip */
    int32_t is_shared;
} strip;

/* The line while it is cut. */
typedef struct cutter {
    const fig_strips_shape *shape;
    int32_t half;                /* query tokens of half a strip */
    fig_strips_cost costs[2][2]; /* of strips of two halves and of one; the same if shared */
    fig_strips_head *head;
    int32_t *ranges; /* [workers + 1] */
    fig_strips_item *items;
    int64_t units, tiles, dearest_once, dearest_tile;
    int64_t active;       /* number of workers that get a stretch */
    int64_t share, extra; /* quotient and remainder of the line, without a strip's `once` */
    int64_t place;        /* units before the strip */
    int32_t worker;       /* the worker whose stretch is being filled */
    int64_t next;         /* the wanted place of the following worker */
    int32_t item_count, lone_count;
    int64_t partial_vectors, cut_pieces; /* cut_pieces: number of pieces of cut strips */
} cutter;

static int64_t small(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static fig_strips_cost cost_of(const fig_strips_shape *shape, int64_t once, int64_t tile) {
    const int64_t work = (int64_t)shape->tile_tokens * shape->head_dim;
    return (fig_strips_cost){once * TILE_WORK / work, tile};
}

fig_strips_cost fig_strips_cost_of(const fig_strips_shape *shape, int32_t queries) {
    const int is_lone = queries <= fig_strips_half(shape->ratio);
    return cost_of(shape, is_lone ? LONE_ONCE : PAIR_ONCE, is_lone ? LONE_TILE : PAIR_TILE);
}

fig_strips_cost fig_strips_shared_cost_of(const fig_strips_shape *shape, int32_t queries) {
    const int is_lone = queries <= fig_strips_half(shape->ratio);
    return cost_of(shape, is_lone ? SHARED_LONE_ONCE : SHARED_PAIR_ONCE,
                   is_lone ? SHARED_LONE_TILE : PAIR_TILE);
}

static int32_t limit_of(const fig_strips_segment *segment, int32_t query) {
    if (segment->visible != FIG_STRIPS_CAUSAL) return segment->end - 1;
    return segment->end - segment->queries + query;
}

/* Returns the first kv token that query `query` or a later one sees. */
static int32_t floor_of(const fig_strips_shape *shape, const fig_strips_segment *segment,
                        int32_t query) {
    if (shape->window == 0 || segment->visible != FIG_STRIPS_CAUSAL) return segment->first_token;
    const int32_t low = limit_of(segment, query) + 1 - shape->window;
    return low > segment->first_token ? low : segment->first_token;
}

/* Returns the first kv token that the same step may have written. */
static int32_t fresh_of(const fig_strips_segment *segment) {
    if (segment->visible == FIG_STRIPS_ALL) return 0;
    return segment->visible == FIG_STRIPS_OLD ? segment->end : segment->end - segment->queries;
}

/* Returns the strip that begins with query `query` of the segment. */
static strip strip_at(const cutter *cut, const fig_strips_segment *segment, int32_t head,
                      int32_t query) {
    const int32_t tile_tokens = cut->shape->tile_tokens;
    const int32_t queries = fig_size_min(segment->queries - query, 2 * cut->half);
    const int32_t is_lone = queries <= cut->half;
    const int32_t tile = floor_of(cut->shape, segment, query) / tile_tokens;
    strip s = {.item = {.query = segment->first_query + query,
                        .queries = queries,
                        .sequence = segment->sequence,
                        .tile = tile,
                        .tiles = limit_of(segment, query + queries - 1) / tile_tokens + 1 - tile,
                        .first_token = segment->first_token,
                        .end = segment->end,
                        .limit = limit_of(segment, query),
                        .flags = is_lone ? FIG_STRIPS_LONE : 0,
                        .partial = -1,
                        .first_partial = -1,
                        .pieces = 1,
                        .fresh = fresh_of(segment)},
               .head = head,
               .cost = cut->costs[segment->is_shared][is_lone],
               .is_shared = segment->is_shared};
    s.units = s.cost.once + s.cost.tile * s.item.tiles;
    if (segment->visible == FIG_STRIPS_CAUSAL) s.item.flags |= FIG_STRIPS_IS_CAUSAL;
    if (segment->is_shared) {
        s.item.flags |= FIG_STRIPS_IS_SHARED;
        s.item.member = segment->first_member + query;
    }
    return s;
}

/* Adds up the costs of the line. The strips of all kv heads cost the same. */
static void add_costs(cutter *cut, const fig_strips_segment *segments, int32_t count) {
    const int32_t heads = cut->shape->kv_heads;
    for (int32_t i = 0; i < count; i++) {
        for (int32_t query = 0; query < segments[i].queries; query += 2 * cut->half) {
            const strip s = strip_at(cut, &segments[i], 0, query);
            cut->units += heads * s.units;
            cut->tiles += (int64_t)heads * s.item.tiles;
            if (s.cost.once > cut->dearest_once) cut->dearest_once = s.cost.once;
            if (s.cost.tile > cut->dearest_tile) cut->dearest_tile = s.cost.tile;
        }
    }
}

/* ---- Cutting */

/* Returns the wanted place of worker `worker`, in units from the start of the line. */
static int64_t wanted(const cutter *cut, int64_t worker) {
    return cut->dearest_once + cut->share * worker + cut->extra * worker / cut->active;
}

/* Returns 1 if the strip must not be cut. A row's own tokens in a shared segment are a strip of few
 * vectors, whose pieces would take longer to merge than the imbalance costs. */
static int is_whole(const cutter *cut, const strip *s) {
    if (cut->shape->whole) return 1;
    if (!s->is_shared || s->item.queries * cut->shape->ratio > WHOLE_VECTORS) return 0;
    return s->units * 100 * cut->active <= cut->units * WHOLE_WORTH;
}

/* Returns the strip's tile at which to cut, for a wanted place `units` units behind the strip's
 * start. */
static int32_t tile_of_cut(const cutter *cut, const strip *s, int64_t units) {
    if (is_whole(cut, s)) return units * 2 < s->units ? 0 : s->item.tiles;
    if (units < s->cost.once) return 0;
    return (int32_t)small((units - s->cost.once + s->cost.tile / 2) / s->cost.tile, s->item.tiles);
}

/* Adds tiles [from, end) of the strip as an item. */
static void put(cutter *cut, const strip *s, int32_t from, int32_t end) {
    if (end <= from) return;
    fig_strips_item *item = &cut->items[cut->item_count++];
    *item = s->item;
    item->head = s->head;
    item->tile += from;
    item->tiles = end - from;
    if ((item->flags & FIG_STRIPS_LONE) != 0 && cut->lone_count++ % 2 != 0)
        item->flags |= FIG_STRIPS_SECOND;
}

/* Ends the stretch of the current worker. */
static void turn(cutter *cut) {
    cut->ranges[++cut->worker] = cut->item_count;
    cut->lone_count = 0;
    cut->next = wanted(cut, cut->worker + 1);
}

/* Assigns partials to the pieces of a cut strip: the items from `first` on. */
static void join(cutter *cut, int32_t first, int32_t vectors) {
    const int32_t pieces = cut->item_count - first;
    if (pieces < 2) return;
    for (int32_t i = 0; i < pieces; i++) {
        fig_strips_item *item = &cut->items[first + i];
        item->first_partial = (int32_t)cut->partial_vectors;
        item->partial = item->first_partial + i * vectors;
        item->pieces = pieces;
        item->counter = (int32_t)cut->cut_pieces * FIG_STRIPS_ARRIVALS;
    }
    cut->partial_vectors += (int64_t)pieces * vectors;
    cut->cut_pieces += pieces;
}

static void cut_strip(cutter *cut, const strip *s) {
    const int64_t end = cut->place + s->units;
    const int32_t first = cut->item_count;
    int32_t from = 0;
    while (cut->worker + 1 < cut->active && cut->next < end) {
        const int32_t tile = tile_of_cut(cut, s, cut->next - cut->place);
        put(cut, s, from, tile);
        if (tile > from) from = tile;
        turn(cut);
    }
    put(cut, s, from, s->item.tiles);
    join(cut, first, s->item.queries * cut->shape->ratio);
    cut->place = end;
}

/* Does what cut_strip() does, for the heads from s->head on up to the first whose strip is to be
 * cut, and moves s->head there. Rows that share a prefix have thousands of such strips. */
static void pass_whole(cutter *cut, strip *s) {
    const int64_t end = cut->worker + 1 < cut->active ? cut->next : INT64_MAX, units = s->units;
    const int32_t other = s->item.flags & FIG_STRIPS_LONE ? FIG_STRIPS_SECOND : 0;
    const int32_t heads = cut->shape->kv_heads, first = s->head;
    int32_t flags = s->item.flags | (cut->lone_count % 2 != 0 ? other : 0), head = first;
    fig_strips_item *item = &cut->items[cut->item_count];
    for (; head < heads && end - cut->place >= units; head++) {
        *item = s->item;
        item->head = head;
        item++->flags = flags;
        flags ^= other;
        cut->place += units;
    }
    cut->item_count += head - first;
    cut->lone_count += other != 0 ? head - first : 0;
    s->head = head;
}

/* Cuts the strips of a segment that has one strip per kv head. */
static void cut_single(cutter *cut, const fig_strips_segment *segment) {
    strip s = strip_at(cut, segment, 0, 0);
    for (pass_whole(cut, &s); s.head < cut->shape->kv_heads; pass_whole(cut, &s)) {
        cut_strip(cut, &s);
        s.head++;
    }
}

/* Cuts all strips, in the order of the line. */
static void cut_line(cutter *cut, const fig_strips_segment *segments, int32_t count) {
    const int32_t step = 2 * cut->half;
    for (int32_t i = 0; i < count; i++) {
        if (segments[i].queries == 0) continue;
        if (segments[i].queries <= step) {
            cut_single(cut, &segments[i]);
            continue;
        }
        for (int32_t head = 0; head < cut->shape->kv_heads; head++) {
            for (int32_t query = 0; query < segments[i].queries; query += step) {
                const strip s = strip_at(cut, &segments[i], head, query);
                cut_strip(cut, &s);
            }
        }
    }
}

/* ---- Tuples
 *
 * If only one segment has queries, the k strips of each kv head read the same tiles. Workers then
 * form tuples of k. The workers of a tuple read the same range of tiles at the same time, each for
 * a different strip, so that L2 serves all of them except the first. Of P tuples, tuple j processes
 * tiles [L * j / P, L * (j + 1) / P) of a line of L = kv_heads * tiles. Causal strips differ in
 * length, so odd heads assign their strips to workers in reverse order. */

typedef struct tuple_set {
    const fig_strips_segment *segment;
    int32_t strips, tuples;
    int32_t first, tiles; /* range of tiles that the strips of a head read */
} tuple_set;

/* Returns the first tile of the line that tuple `tuple` processes. */
static int64_t begin_of(const cutter *cut, const tuple_set *set, int32_t tuple) {
    return (int64_t)set->tiles * cut->shape->kv_heads * tuple / set->tuples;
}

/* Returns the tuple that processes tile x of the line. */
static int32_t tuple_of(const cutter *cut, const tuple_set *set, int64_t x) {
    const int64_t line = (int64_t)set->tiles * cut->shape->kv_heads;
    return (int32_t)(((x + 1) * set->tuples - 1) / line);
}

/* A worker of a tuple, and what of the line the tuple processes. */
typedef struct tuple_worker {
    int32_t member;               /* the worker's number in its tuple */
    int32_t first_head, end_head; /* the heads with tiles of the tuple */
    int64_t begin, end;           /* tiles of the line */
} tuple_worker;

static tuple_worker worker_of(const cutter *cut, const tuple_set *set, int32_t worker) {
    const int32_t tuple = worker / set->strips;
    const int64_t begin = begin_of(cut, set, tuple), end = begin_of(cut, set, tuple + 1);
    return (tuple_worker){.member = worker % set->strips,
                          .first_head = (int32_t)(begin / set->tiles),
                          .end_head = (int32_t)ceil_div(end, set->tiles),
                          .begin = begin,
                          .end = end};
}

/* A worker's part of the strips of one head. */
typedef struct tuple_part {
    strip s;
    int64_t place;     /* the strip's first tile on the line */
    int32_t from, end; /* tiles of the strip */
} tuple_part;

static tuple_part part_of(const cutter *cut, const tuple_set *set, const tuple_worker *of,
                          int32_t head) {
    const int32_t number = head % 2 == 0 ? of->member : set->strips - 1 - of->member;
    const int32_t step = 2 * cut->half;
    tuple_part part = {.s = strip_at(cut, set->segment, head, number * step)};
    part.place = (int64_t)head * set->tiles + part.s.item.tile - set->first;
    part.from = (int32_t)(of->begin > part.place ? of->begin - part.place : 0);
    part.end = (int32_t)small(of->end - part.place, part.s.item.tiles);
    return part;
}

/* Returns the pieces of the part's strip. */
static int32_t pieces_of(const cutter *cut, const tuple_set *set, const tuple_part *part) {
    return tuple_of(cut, set, part->place + part->s.item.tiles - 1) -
           tuple_of(cut, set, part->place) + 1;
}

/* Returns the units of the fullest worker. */
static int64_t fullest_of(const cutter *cut, const tuple_set *set) {
    int64_t fullest = 0;
    for (int32_t worker = 0; worker < set->strips * set->tuples; worker++) {
        const tuple_worker of = worker_of(cut, set, worker);
        int64_t units = 0;
        for (int32_t head = of.first_head; head < of.end_head; head++) {
            const tuple_part part = part_of(cut, set, &of, head);
            if (part.end > part.from)
                units += part.s.cost.once + part.s.cost.tile * (part.end - part.from);
        }
        if (units > fullest) fullest = units;
    }
    return fullest;
}

/* Finds the tuples of a step. Returns 1 if their imbalance is small enough for them to pay off:
 * they were measured to save 4 to 10 percent, for 8192 to 32768 tokens. */
static int find_tuples(const cutter *cut, const fig_strips_segment *segments, int32_t count,
                       tuple_set *set) {
    const int32_t step = 2 * cut->half;
    *set = (tuple_set){0};
    for (int32_t i = 0; i < count; i++) {
        if (segments[i].queries == 0) continue;
        if (set->segment != NULL) return 0;
        set->segment = &segments[i];
    }
    if (set->segment == NULL || cut->shape->whole) return 0;
    set->strips = fig_size_ceil_div(set->segment->queries, step);
    if (set->strips < 2 || set->strips > cut->shape->workers / 2) return 0;
    set->tuples = cut->shape->workers / set->strips;
    const strip first = strip_at(cut, set->segment, 0, 0);
    const strip last = strip_at(cut, set->segment, 0, (set->strips - 1) * step);
    set->first = first.item.tile;
    set->tiles = last.item.tile + last.item.tiles - first.item.tile;
    if ((int64_t)set->tiles * cut->shape->kv_heads < set->tuples) return 0;
    const int64_t even = cut->share + cut->dearest_once;
    return fullest_of(cut, set) * 100 <= even * TUPLE_WORTH;
}

/* Assigns a partial to the worker's last item. The first piece of a strip allocates the partials of
 * all its pieces. A later piece takes the partial after that of the preceding piece, which is the
 * last item of the same member of the preceding tuple. */
static void join_part(cutter *cut, const tuple_set *set, const tuple_part *part) {
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

static void cut_tuples(cutter *cut, const tuple_set *set) {
    for (int32_t worker = 0; worker < set->strips * set->tuples; worker++) {
        const tuple_worker of = worker_of(cut, set, worker);
        for (int32_t head = of.first_head; head < of.end_head; head++) {
            const tuple_part part = part_of(cut, set, &of, head);
            if (part.end <= part.from) continue;
            put(cut, &part.s, part.from, part.end);
            join_part(cut, set, &part);
        }
        turn(cut);
    }
}

/* ---- Sizes */

static int64_t vectors_of(const fig_strips_shape *shape, int64_t queries) {
    return queries * shape->ratio * shape->kv_heads;
}

/* A strip of v vectors with c cuts leaves c + 1 partials of v vectors. Let V be the vectors of a
 * full strip. Pieces that begin at a cut have at most cuts * V vectors in all. The first pieces of
 * cut strips also have at most cuts * V vectors, and at most all vectors of the step. */
static fig_strips_sizes sizes_of(const fig_strips_shape *shape, int64_t strips, int64_t queries) {
    const int64_t cuts = shape->whole ? 0 : shape->workers - 1;
    const int64_t after = cuts * fig_strips_vectors(shape->ratio);
    fig_strips_sizes sizes = {.items = strips + cuts};
    sizes.partial_vectors = after + small(after, vectors_of(shape, queries));
    sizes.counters = (cuts + small(cuts, strips)) * FIG_STRIPS_ARRIVALS;
    sizes.plan_bytes = (int64_t)sizeof(fig_strips_head) +
                       (int64_t)fig_size_align((uint64_t)(shape->workers + 1) * 4, 16) +
                       sizes.items * (int64_t)sizeof(fig_strips_item);
    return sizes;
}

/* Returns the most strips of `busy` segments. With the fewest queries a segment has `first` strips.
 * It gets one more with its next `second` queries, and then one with every `step`. */
static int64_t strips_of(const fig_strips_limits *limits, int64_t busy, int64_t step,
                         int64_t least) {
    const int64_t first = ceil_div(least, step), second = first * step + 1 - least;
    const int64_t spare = limits->queries - busy * least;
    const int64_t seconds = small(busy, spare / second);
    return busy * first + seconds + (spare - seconds * second) / step;
}

/* One more segment brings its first strips, and takes second strips from others where queries are
 * few. Both change at one number of segments: that for which there are just enough queries. So the
 * maximum lies there or at the largest number. */
fig_strips_sizes fig_strips_bound(const fig_strips_shape *shape, const fig_strips_limits *limits) {
    const int64_t step = 2 * fig_strips_half(shape->ratio);
    const int64_t least = limits->least > 0 ? limits->least : 1;
    const int64_t most = small(limits->segments, limits->queries / least);
    const int64_t with_second = small(most, limits->queries / (ceil_div(least, step) * step + 1));
    int64_t strips = strips_of(limits, most, step, least);
    for (int64_t busy = with_second; busy <= small(with_second + 1, most); busy++) {
        const int64_t own = strips_of(limits, busy, step, least);
        if (own > strips) strips = own;
    }
    if (most == 0) return sizes_of(shape, 0, 0);
    fig_strips_sizes sizes = sizes_of(shape, strips * shape->kv_heads, limits->queries);
    const int64_t slots = limits->shared * FIG_STRIPS_SLOT_LIMIT;
    sizes.partial_vectors += vectors_of(shape, slots);
    sizes.plan_bytes += slots * (int64_t)sizeof(fig_strips_member);
    if (limits->shared > 0)
        sizes.counters =
            fig_strips_slot_counters(shape->workers) + vectors_of(shape, limits->shared);
    return sizes;
}

fig_strips_sizes fig_strips_size(const fig_strips_shape *shape, const fig_strips_segment *segments,
                                 int32_t count) {
    const int64_t step = 2 * fig_strips_half(shape->ratio);
    int64_t strips = 0, queries = 0;
    for (int32_t i = 0; i < count; i++) {
        strips += ceil_div(segments[i].queries, step);
        queries += segments[i].queries;
    }
    return sizes_of(shape, strips * shape->kv_heads, queries);
}

/* ---- Public */

static int32_t last_query(const fig_strips_segment *segments, int32_t count) {
    int32_t last = 0;
    for (int32_t i = 0; i < count; i++)
        if (segments[i].first_query + segments[i].queries > last)
            last = segments[i].first_query + segments[i].queries;
    return last;
}

/* Fills in what a division would otherwise give for each strip. */
static void prepare(cutter *cut) {
    const int32_t half = cut->half = fig_strips_half(cut->shape->ratio);
    cut->costs[0][0] = fig_strips_cost_of(cut->shape, half + 1);
    cut->costs[0][1] = fig_strips_cost_of(cut->shape, half);
    cut->costs[1][0] = fig_strips_shared_cost_of(cut->shape, half + 1);
    cut->costs[1][1] = fig_strips_shared_cost_of(cut->shape, half);
}

fig_strips_sizes fig_strips_make(const fig_strips_shape *shape, const fig_strips_segment *segments,
                                 int32_t count, uint8_t *plan) {
    cutter cut = {.shape = shape, .head = (fig_strips_head *)(void *)plan};
    assert(shape->ratio >= 1 && shape->ratio <= FIG_STRIPS_RATIO_LIMIT && shape->workers >= 1);
    *cut.head = (fig_strips_head){.workers = shape->workers,
                                  .tile_tokens = shape->tile_tokens,
                                  .ratio = shape->ratio,
                                  .kv_heads = shape->kv_heads,
                                  .window = shape->window,
                                  .queries = last_query(segments, count)};
    cut.ranges = (int32_t *)(void *)(plan + sizeof *cut.head);
    const uint64_t ranges = fig_size_align((uint64_t)(shape->workers + 1) * sizeof(int32_t), 16);
    memset(cut.ranges, 0, ranges);
    cut.items = (fig_strips_item *)(void *)(plan + sizeof *cut.head + ranges);
    prepare(&cut);
    add_costs(&cut, segments, count);
    cut.active = small(shape->workers, cut.tiles);
    if (cut.dearest_tile > 0)
        cut.active = small(cut.active, (cut.units - cut.dearest_once) / cut.dearest_tile);
    if (cut.active < 1) cut.active = 1;
    cut.share = (cut.units - cut.dearest_once) / cut.active;
    cut.extra = (cut.units - cut.dearest_once) % cut.active;
    cut.next = wanted(&cut, 1);
    tuple_set set;
    if (find_tuples(&cut, segments, count, &set)) {
        cut_tuples(&cut, &set);
    } else {
        cut_line(&cut, segments, count);
    }
    while (cut.worker < shape->workers)
        turn(&cut);
    cut.head->items = cut.item_count;
    cut.head->partial_vectors = (int32_t)cut.partial_vectors;
    cut.head->counters = (int32_t)cut.cut_pieces * FIG_STRIPS_ARRIVALS;
    const uint64_t items = (uint64_t)cut.item_count * sizeof *cut.items;
    return (fig_strips_sizes){.items = cut.item_count,
                              .partial_vectors = cut.partial_vectors,
                              .counters = cut.head->counters,
                              .plan_bytes = (int64_t)(sizeof *cut.head + ranges + items)};
}

fig_strips_sizes fig_strips_share(const fig_strips_shared *shared, uint8_t *plan) {
    fig_strips_head *head = (fig_strips_head *)(void *)plan;
    const int32_t q_heads = head->ratio * head->kv_heads;
    const size_t bytes = (size_t)shared->count * sizeof *shared->members;
    uint8_t *members = (uint8_t *)(uintptr_t)fig_strips_members(plan);
    if (bytes > 0) memcpy(members, shared->members, bytes);
    head->members = shared->count;
    head->slot_vectors = shared->slots * q_heads;
    fig_strips_sizes sizes = {.items = head->items,
                              .partial_vectors = head->partial_vectors + head->slot_vectors,
                              .counters = head->counters,
                              .plan_bytes = members - plan + (int64_t)bytes};
    if (shared->tokens > 0)
        sizes.counters = fig_strips_slot_counters(head->workers) + shared->tokens * q_heads;
    return sizes;
}
