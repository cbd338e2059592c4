/* prefixes.h: finds the rows of a step that share leading pages, and chooses what to read once.
 *
 * A group is a set of rows and a range of pages that all these rows have. Strips that hold the
 * queries of all rows of the group read the range once, and each row reads its other pages for
 * itself. Groups form a tree, at most three deep: the range of a nested group begins where the
 * range of the enclosing group ends.
 *
 *     pages    0 .. 4          4 .. 9             9 ..
 *     row 3    [ all rows     ][ rows 3, 0, 5   ][ own
 *     row 0    [              ][                ][ own
 *     row 5    [              ][                ][ own
 *     row 1    [              ][ own
 *
 * page_order.c knows which sequences share pages. This file adds the rows of one step and their
 * lengths, and chooses the groups. It keeps the groups of the last step as long as the next step
 * would get the same ones. Invariant: all rows of a group have the same page numbers in the group's
 * range, and these pages hold only tokens that precede each row's first query token. */
#ifndef FIG_PLANNER_PREFIXES_H
#define FIG_PLANNER_PREFIXES_H

#include "planner/prefixes/page_order.h"

enum { FIG_PREFIXES_LEVEL_LIMIT = 3, FIG_PREFIXES_DEPTH_LIMIT = 30 };

/* The costs of reading for a worker and one kv head, all in the same unit of time. */
typedef struct fig_prefixes_costs {
    int32_t page_tokens;
    int32_t query_limit;       /* a row with more query tokens shares no pages */
    int32_t tile_tokens, tile; /* the tokens and the cost of a tile of a row */
    int32_t strip_queries; /* query tokens of a full strip; a lone strip has at most half of it */
    int32_t strip_tile_tokens;
    int32_t strip_once, strip_tile; /* the cost of a strip: once, and for each of its tiles */
    int32_t lone_once, lone_tile;   /* the same for a strip that is at most half full */
    int32_t partial; /* the cost of writing and merging one more result of a query token */
    int32_t step;    /* what a step with any groups costs in addition */
} fig_prefixes_costs;

/* The rows of a step. A row is idle if its length or its number of query tokens is 0. No two rows
 * that are not idle have the same sequence. */
typedef struct fig_prefixes_step {
    int32_t rows, row_tokens;
    const int32_t *lengths;   /* [rows] at least the row's query tokens, or 0 */
    const int32_t *sequences; /* [rows]; NULL: row r is sequence r */
    const int32_t *queries;   /* [rows]; NULL: row_tokens each */
} fig_prefixes_step;

typedef struct fig_prefixes_group {
    int32_t first, rows; /* its rows are entries [first, first + rows) of fig_prefixes.members */
    int32_t from, to;    /* its pages are pages [from, to) of each row */
    int32_t queries;     /* the number of query tokens of its rows */
    int32_t level;       /* the number of groups that enclose it */
} fig_prefixes_group;

/* A row that is not idle. Items are sorted by the lists of their whole pages. */
typedef struct fig_prefixes_item {
    int32_t row;
    int32_t whole;  /* whole pages before its first query token that a group may contain */
    int32_t common; /* whole pages that it shares with the preceding item */
    int32_t before; /* query tokens of all preceding items */
    int32_t slot;   /* the first item, in the order of the table, that begins with these pages */
} fig_prefixes_item;

/* A maximal interval of items, [first, end), that share `depth` pages. */
typedef struct fig_prefixes_node {
    int32_t first, end, depth;
    int32_t level;                /* the number of nodes that enclose it */
    int32_t parent;               /* the smallest node that encloses it; -1: none */
    int32_t begin_tile, end_tile; /* the tile of a strip that begins at page `depth`, and the end of
                                     the tiles of a strip that ends there */
    int64_t page_worth, tile_price, price;        /* see prefixes.c */
    uint32_t taken[FIG_PREFIXES_LEVEL_LIMIT + 1]; /* [levels left] bit j: the node is a group if the
                                                     group around it is its j-th ancestor */
} fig_prefixes_node;

typedef struct fig_prefixes {
    int32_t row_limit, sequence_limit;
    /* The step from which the groups were found. */
    fig_prefixes_costs costs;
    int32_t rows;                 /* -1: there is no such step */
    int32_t row_tokens;           /* 0: `queries` has the number for each row */
    int32_t *sequences, *queries; /* [row_limit] */
    int32_t *least, *most; /* [row_limit] while lengths are in this range, the groups stay valid */
    /* Memory for finding groups. */
    int32_t *row_of;          /* [sequence_limit] -1: no row */
    fig_prefixes_item *items; /* [row_limit + 1] */
    fig_prefixes_node *nodes; /* [row_limit] each after the nodes inside it */
    int32_t *stack;           /* [row_limit + 1] */
    int32_t item_count, node_count;
    /* The groups, each after the groups that enclose it. */
    int32_t *members;           /* [row_limit] rows; those of a group are consecutive */
    fig_prefixes_group *groups; /* [row_limit] */
    int32_t group_count;
    /* The cost without groups minus the cost with groups, for one kv head, without costs.step. */
    int64_t saved;
} fig_prefixes;

/* Sequences of steps are below sequence_limit; the order may have others too. FIG_NOMEM.
 * fig_prefixes_finish() accepts a zeroed struct. */
fig_status fig_prefixes_init(fig_prefixes *prefixes, int32_t row_limit, int32_t sequence_limit);
void fig_prefixes_finish(fig_prefixes *prefixes);

/* Finds the groups of a step, and settles the order. Returns 1 if it searched for groups, and 0 if
 * it kept the groups of the last step. Keeping takes O(rows). A search takes O(known sequences),
 * and O(rows^2) if many rows end before the pages that they share with others. The choice takes at
 * most FIG_PREFIXES_DEPTH_LIMIT times O(rows). */
int fig_prefixes_find(fig_prefixes *prefixes, fig_page_order *order,
                      const fig_prefixes_costs *costs, const fig_prefixes_step *step);
/* Makes the next call of fig_prefixes_find() search for groups. */
void fig_prefixes_forget(fig_prefixes *prefixes);

#endif
