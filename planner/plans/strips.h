/* strips.h: cuts the attention of rows with many query tokens into items of equal cost.
 *
 * A segment is a range of query tokens that attend to a range of kv tokens of one sequence. A strip
 * is a group of consecutive query tokens of a segment, for one kv head: as many as fill two halves
 * of at most 64 query vectors. Each strip reads tiles of kv tokens, counted from token 0 of the
 * sequence. The line holds all strips, ordered by segment, kv head and query. The cost of a strip
 * is `once` plus the cost of its tiles, and workers get stretches of equal cost. An item, also
 * called a piece, is the part of a strip that lies in the stretch of one worker. Each piece of a
 * cut strip leaves a partial of the strip's vectors. The partials are merged in pairs along the
 * line, each pair by the side that finishes last. Whole strips of successive kv heads that differ
 * in nothing else are one item, which a worker processes head by head.
 *
 * This file defines the plan, which the kernel and the reference kernel read:
 *
 *     [fig_strips_head][ranges, workers + 1, in whole 16 bytes][items][members]
 *
 * Several strips may see different kv tokens for the same query tokens: a prefix that many rows
 * share, and the rest of each row. The query tokens of such a shared segment are members, listed in
 * the plan. A strip leaves the result of each of its members in a slot, and whichever result comes
 * last merges all slots of the query token, in their order.
 *
 * The strips of a prefix are not on the line. Each is cut into an equal number of pieces, and each
 * piece leaves its results in slots of its own. A worker with pieces gets a shorter stretch of the
 * line, which has the rest of each row. Most workers do their pieces first. So a row's last result
 * is mostly that of its own tokens, and merges are spread over all workers. But if strips have few
 * pieces, every second worker does them last: pieces of prefixes keep the tensor cores busy, and
 * rows the memory.
 *
 * Invariant: each tile of each strip belongs to exactly one item, and no two pieces share a
 * partial. */
#ifndef FIG_PLANNER_STRIPS_H
#define FIG_PLANNER_STRIPS_H

#include <assert.h>

#include "planner/size.h"

enum {
    FIG_STRIPS_HALF = 64,        /* query vectors of half a strip; one warpgroup holds them */
    FIG_STRIPS_RATIO_LIMIT = 64, /* largest number of q heads per kv head */
    FIG_STRIPS_SHARED_LIMIT = 4, /* segments of a query token: three shared prefixes and its own */
    FIG_STRIPS_PIECE_LIMIT = 32, /* pieces of a strip of a shared prefix */
    FIG_STRIPS_ARRIVALS = 8      /* counters of a piece: one per 16 vectors */
};

/* The kv tokens that the queries of a segment see. CAUSAL: query i of n sees all tokens up to end -
 * n + i. ALL: every query sees all tokens. OLD: like ALL; in addition, earlier steps have written
 * all these tokens. */
typedef enum fig_strips_visible {
    FIG_STRIPS_CAUSAL = 0,
    FIG_STRIPS_ALL,
    FIG_STRIPS_OLD
} fig_strips_visible;

typedef struct fig_strips_segment {
    int32_t first_query, queries; /* a range of the packed query tokens; may be empty */
    int32_t sequence;             /* row of the page table */
    int32_t first_token, end;     /* kv tokens of the sequence; at least one if there are queries */
    int32_t visible;              /* fig_strips_visible */
    int32_t is_shared;            /* 1: query i of the segment is member first_member + i */
    int32_t first_member;
    int32_t pieces; /* of each strip, if the segment is a shared prefix; otherwise 0 */
    /* The last `rests` of them have `rest` tiles of a strip, and all others the rest, each about
     * equally many; 0: all pieces are about equally long. */
    int32_t rest, rests;
} fig_strips_segment;

/* A query token in one shared segment. The results of the query token have slots [first_slot,
 * first_slot + slots). */
typedef struct fig_strips_member {
    int32_t query;       /* index in the packed query tokens */
    int32_t token;       /* index in the query tokens of shared segments, each counted once */
    int32_t first_slot;  /* index in all slots of the step */
    int16_t slot, slots; /* slot: this segment's first slot; slots: slots of the query token */
} fig_strips_member;
static_assert(sizeof(fig_strips_member) == 16, "one load");

/* The members of a step, and the slots that they need. */
typedef struct fig_strips_shared {
    const fig_strips_member *members; /* [count] */
    int32_t count;
    int32_t tokens; /* query tokens in shared segments, each counted once */
    int32_t slots;  /* slots of all these query tokens */
} fig_strips_shared;

/* LONE: the strip fills at most one half, so a single warpgroup processes the item: with SECOND the
 * second warpgroup, otherwise the first. The lone items of a worker take turns, the first warpgroup
 * first; each head of an item counts as one. The kernel relies on that: otherwise its warpgroups
 * could wait for each other. */
enum {
    FIG_STRIPS_LONE = 1,
    FIG_STRIPS_SECOND = 2,
    FIG_STRIPS_IS_CAUSAL = 4,
    FIG_STRIPS_IS_SHARED = 8,  /* the strip belongs to a shared segment */
    FIG_STRIPS_IS_PREFIX = 16, /* and that segment is a prefix */
    FIG_STRIPS_IS_LAST = 32,   /* no later item of the worker has the warpgroups of the last head */
    FIG_STRIPS_ARE_LAST = 64   /* nor those of the head before it */
};

typedef struct fig_strips_item {
    int32_t query,
        queries;  /* a range of the packed query tokens or, if IS_SHARED, of the members */
    int32_t head; /* the first kv head */
    int32_t sequence;
    int32_t tile, tiles;      /* the piece's tiles of kv tokens */
    int32_t first_token, end; /* the segment's kv tokens */
    int32_t limit;            /* the last kv token that the first query sees */
    int32_t flags;            /* FIG_STRIPS_* */
    int32_t partial;          /* the first vector of the piece's partial; -1: strip not cut */
    int32_t first_partial;    /* the partial of the strip's first piece */
    int32_t pieces;           /* number of pieces of the strip */
    int32_t counter;          /* the strip's first counter; each piece has FIG_STRIPS_ARRIVALS */
    int32_t fresh;            /* the first kv token that the same step may have written */
    int16_t slot;             /* of the piece, behind the first slot of each member */
    int16_t heads;            /* whole strips of successive kv heads; 1 if the strip is cut */
} fig_strips_item;
static_assert(sizeof(fig_strips_item) == 64, "four loads");

typedef struct fig_strips_head {
    int32_t workers, items;
    int32_t partial_vectors, counters; /* numbers that this step uses */
    int32_t tile_tokens, ratio, kv_heads, window;
    int32_t queries; /* one past the last query token */
    int32_t members;
    int32_t slot_vectors; /* query vectors of all slots; their partials follow the others */
    int32_t reserved[5];
} fig_strips_head;
static_assert(sizeof(fig_strips_head) == 64, "the ranges behind it are aligned");

typedef struct fig_strips_shape {
    int32_t ratio; /* q heads of a kv head */
    int32_t kv_heads, head_dim;
    int32_t tile_tokens; /* kv tokens of a tile */
    int32_t window;      /* tokens that a query of a causal segment sees; 0: all */
    int32_t workers;
    int32_t whole;  /* 1: no strip is cut, so a row's bits do not depend on other rows */
    int32_t shares; /* 1: steps of an engine may have shared segments */
    /* what the queries of an engine's chunks see: CAUSAL, or ALL if a mask then decides */
    int32_t visible;
} fig_strips_shape;

/* The memory that a step needs. */
typedef struct fig_strips_sizes {
    int64_t items, partial_vectors, counters, plan_bytes;
} fig_strips_sizes;

/* The largest steps that the memory must hold. */
typedef struct fig_strips_limits {
    int64_t segments, queries; /* queries: a query token counts once for each of its segments */
    int64_t least;             /* the fewest query tokens of a segment that has any; 0: 1 */
    int64_t shared;            /* query tokens in shared segments */
} fig_strips_limits;

/* Returns b for tiles of 1 << b kv tokens: a shift is no division. */
FIG_BOTH int32_t fig_strips_tile_bits(const fig_strips_shape *shape) {
    int32_t bits = 0;
    while (1 << bits < shape->tile_tokens)
        bits++;
    return bits;
}

/* Returns the query tokens of half a strip. */
FIG_BOTH int32_t fig_strips_half(int32_t ratio) {
    return FIG_STRIPS_HALF / ratio;
}

/* Returns the vectors of a full strip. */
FIG_BOTH int32_t fig_strips_vectors(int32_t ratio) {
    return 2 * fig_strips_half(ratio) * ratio;
}

FIG_BOTH const int32_t *fig_strips_ranges(const uint8_t *plan) {
    return (const int32_t *)(const void *)(plan + sizeof(fig_strips_head));
}

FIG_BOTH const fig_strips_item *fig_strips_items(const uint8_t *plan, int32_t workers) {
    const uint64_t ranges = fig_size_align((uint64_t)(workers + 1) * sizeof(int32_t), 16);
    return (const fig_strips_item *)(const void *)(plan + sizeof(fig_strips_head) + ranges);
}

FIG_BOTH const fig_strips_member *fig_strips_members(const uint8_t *plan) {
    const fig_strips_head *head = (const fig_strips_head *)(const void *)plan;
    return (const fig_strips_member *)(const void *)(fig_strips_items(plan, head->workers) +
                                                     head->items);
}

/* Returns the index, in the partials, of the vector that holds a member's result for a q head. */
FIG_BOTH int64_t fig_strips_slot(const fig_strips_head *head, const fig_strips_member *member,
                                 int32_t slot, int32_t q_head) {
    const int32_t q_heads = head->ratio * head->kv_heads;
    return head->partial_vectors + (int64_t)(member->first_slot + slot) * q_heads + q_head;
}

/* Returns the index of the first counter of slots. It lies behind all counters that strips can
 * need. */
FIG_BOTH int32_t fig_strips_slot_counters(int32_t workers) {
    return 2 * workers * FIG_STRIPS_ARRIVALS;
}

/* Returns the index of the counter of a member's results for a q head. */
FIG_BOTH int32_t fig_strips_slot_counter(const fig_strips_head *head,
                                         const fig_strips_member *member, int32_t q_head) {
    return fig_strips_slot_counters(head->workers) + member->token * head->ratio * head->kv_heads +
           q_head;
}

/* Returns the first kv token that a query of the item sees. limit: the last one that it sees. */
FIG_BOTH int32_t fig_strips_floor(const fig_strips_item *item, int32_t window, int32_t limit) {
    if (window == 0 || !(item->flags & FIG_STRIPS_IS_CAUSAL)) return item->first_token;
    return limit + 1 - window > item->first_token ? limit + 1 - window : item->first_token;
}

/* Returns the last kv token that query `query` of the item sees. */
FIG_BOTH int32_t fig_strips_limit(const fig_strips_item *item, int32_t query) {
    return item->limit + (item->flags & FIG_STRIPS_IS_CAUSAL ? query : 0);
}

/* Returns the flags of head `number` of an item of `heads` heads. The warpgroups take turns. */
FIG_BOTH int32_t fig_strips_flags(int32_t flags, int32_t heads, int32_t number) {
    const int32_t are_last = (flags & FIG_STRIPS_ARE_LAST) != 0;
    if (number + 1 + are_last < heads) flags &= ~FIG_STRIPS_IS_LAST;
    return flags & FIG_STRIPS_LONE && number % 2 != 0 ? flags ^ FIG_STRIPS_SECOND : flags;
}

/* Returns head `number` of an item as an item of its own. */
FIG_BOTH fig_strips_item fig_strips_of_head(const fig_strips_item *item, int32_t number) {
    fig_strips_item one = *item;
    one.flags = fig_strips_flags(item->flags, item->heads, number);
    one.head += number;
    one.heads = 1;
    return one;
}

/* The cost of a strip. Its unit is a sixteenth of the time of a tile in a strip of two halves. */
typedef struct fig_strips_cost {
    int64_t once, tile; /* the fixed cost of the strip, and the cost of each tile */
} fig_strips_cost;

/* Units of a strip of two halves (PAIR) and of a strip of one half (LONE), as measured at head_dim
 * 128 and 128 tokens per tile. The time of a strip's `once` does not grow with the work of a
 * tile. */
enum {
    FIG_STRIPS_PAIR_ONCE = 30,
    FIG_STRIPS_PAIR_TILE = 16,
    FIG_STRIPS_LONE_ONCE = 9,
    FIG_STRIPS_LONE_TILE = 12,
    FIG_STRIPS_TILE_WORK = 128 * 128
};
static_assert((int)FIG_STRIPS_PAIR_ONCE >= (int)FIG_STRIPS_LONE_ONCE &&
                  (int)FIG_STRIPS_PAIR_TILE >= (int)FIG_STRIPS_LONE_TILE,
              "a line's dearest strip is a pair if the line has one");

/* Returns the cost with `once` for the work of the shape's tiles. */
FIG_BOTH fig_strips_cost fig_strips_cost_scaled(const fig_strips_shape *shape, int32_t once,
                                                int32_t tile) {
    const int32_t work = shape->tile_tokens * shape->head_dim;
    fig_strips_cost cost;
    cost.once = once * FIG_STRIPS_TILE_WORK / work;
    cost.tile = tile;
    return cost;
}

FIG_BOTH fig_strips_cost fig_strips_cost_of(const fig_strips_shape *shape, int32_t queries) {
    if (queries <= fig_strips_half(shape->ratio))
        return fig_strips_cost_scaled(shape, FIG_STRIPS_LONE_ONCE, FIG_STRIPS_LONE_TILE);
    return fig_strips_cost_scaled(shape, FIG_STRIPS_PAIR_ONCE, FIG_STRIPS_PAIR_TILE);
}

/* Returns the cost of a strip of a shared segment. */
fig_strips_cost fig_strips_shared_cost_of(const fig_strips_shape *shape, int32_t queries);
/* Returns the units of the strips of a row's own tokens, for all kv heads, if its query tokens are
 * members. */
int64_t fig_strips_row_units(const fig_strips_shape *shape, int32_t queries, int64_t tiles);
/* What matters to the pieces of prefixes beside the prefixes. */
typedef struct fig_strips_beside {
    int64_t line_units; /* those of the line, at least about */
    int32_t workers;    /* that process the strips of the step */
} fig_strips_beside;
/* Sets the pieces of segments that are shared prefixes: about as many as let the slowest worker end
 * first. Needs their queries and kv tokens. O(count) */
void fig_strip_prefixes_cut(const fig_strips_shape *shape, const fig_strips_beside *beside,
                            fig_strips_segment *segments, int32_t count);

/* Returns upper bounds for any step within the limits. Each bound on partials and counters is
 * reached by some step. */
fig_strips_sizes fig_strip_sizes_bound(const fig_strips_shape *shape,
                                       const fig_strips_limits *limits);
/* Returns upper bounds for this step. O(segments) */
fig_strips_sizes fig_strip_sizes_of(const fig_strips_shape *shape,
                                    const fig_strips_segment *segments, int32_t count);
/* Writes the plan of a step, whose size fig_strip_sizes_of() bounds, and returns its exact size.
 * O(items) */
fig_strips_sizes fig_strips_make(const fig_strips_shape *shape, const fig_strips_segment *segments,
                                 int32_t count, uint8_t *plan);
/* Does the same, but only the first `workers` workers get items. */
fig_strips_sizes fig_strips_make_within(const fig_strips_shape *shape,
                                        const fig_strips_segment *segments, int32_t count,
                                        int32_t workers, uint8_t *plan);
/* Adds the members of shared segments to the plan that fig_strips_make() has written, and returns
 * the new size of the whole plan. The plan must have room for 16 more bytes per member. */
fig_strips_sizes fig_strips_share(const fig_strips_shared *shared, uint8_t *plan);

#endif
