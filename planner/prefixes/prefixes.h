/* prefixes.h: finds the rows of a step that share leading pages, and chooses what to read once.
 *
 * A group is some rows and a range of pages that all of them have. One strip of the queries of all
 * of its rows reads the range, and each row reads the rest for itself. Groups form a tree: a group
 * inside another one begins where the other one ends, at most three deep.
 *
 *     pages    0 .. 4          4 .. 9             9 ..
 *     row 3    [ all rows     ][ rows 3, 0, 5   ][ own
 *     row 0    [              ][                ][ own
 *     row 5    [              ][                ][ own
 *     row 1    [              ][ own
 *
 * page_order.c knows which sequences share pages; here are the rows of one step, their lengths and
 * the choice. Groups are kept from step to step while the same rows would give the same groups.
 * Invariant: a group's pages are the same entries in the table for all of its rows, and hold only
 * tokens in front of each row's first query token. */
#ifndef FIG_PLANNER_PREFIXES_H
#define FIG_PLANNER_PREFIXES_H

#include "planner/prefixes/page_order.h"

enum { FIG_PREFIXES_LEVEL_LIMIT = 3, FIG_PREFIXES_DEPTH_LIMIT = 30 };

/* What reading costs a worker, for one kv head, in any one unit of time. */
typedef struct fig_prefixes_costs {
    int32_t page_tokens;
    int32_t query_limit;       /* a row of more query tokens reads all of its pages for itself */
    int32_t tile_tokens, tile; /* of a row's tile: its tokens, its cost */
    int32_t strip_queries;     /* query tokens of a full strip; a lone strip has at most half */
    int32_t strip_tile_tokens;
    int32_t strip_once, strip_tile; /* costs of a strip: once, and for each tile */
    int32_t lone_once, lone_tile;   /* the same for a lone strip */
    int32_t partial; /* for each query token in a group: to leave and merge one more result */
} fig_prefixes_costs;

/* The rows of a step. A row is idle if its length or its number of query tokens is 0; no two other
 * rows have the same sequence. */
typedef struct fig_prefixes_step {
    int32_t rows, row_tokens;
    const int32_t *lengths;   /* [rows] at least the row's query tokens, or 0 */
    const int32_t *sequences; /* [rows]; NULL: row r is sequence r */
    const int32_t *queries;   /* [rows]; NULL: row_tokens each */
} fig_prefixes_step;

typedef struct fig_prefixes_group {
    int32_t first, rows; /* of fig_prefixes.members */
    int32_t from, to;    /* pages */
    int32_t queries;     /* query tokens of its rows */
    int32_t level;       /* 0: no group around it */
} fig_prefixes_group;

/* A row that is not idle. Items are in the order of their whole pages. */
typedef struct fig_prefixes_item {
    int32_t row;
    int32_t whole;  /* whole pages before its first query token, but no more than it shares */
    int32_t common; /* whole pages that it shares with the item before */
    int32_t before; /* query tokens of all items before */
    int32_t slot;   /* the first item, in the order of the table, that begins with its pages */
} fig_prefixes_item;

/* Items [first, end), which share `depth` pages; together they are no part of a wider interval that
 * shares as many. */
typedef struct fig_prefixes_node {
    int32_t first, end, depth;
    int32_t level;                /* the number of nodes around it */
    int32_t parent;               /* the smallest node around it; -1: none */
    int32_t begin_tile, end_tile; /* where tiles of a strip begin, if `depth` is its first page or
                                     its end */
    int64_t page_worth, tile_price, price;        /* see prefixes.c */
    uint32_t taken[FIG_PREFIXES_LEVEL_LIMIT + 1]; /* [levels left] bit j: it is a group if the
                                                     group around it is the j-th node around */
} fig_prefixes_node;

typedef struct fig_prefixes {
    int32_t row_limit;
    /* What the groups were found from. */
    fig_prefixes_costs costs;
    int32_t rows;                 /* of the last step; -1: none */
    int32_t row_tokens;           /* 0: `queries` has those of each row */
    int32_t *sequences, *queries; /* [row_limit] */
    int32_t *least, *most; /* [row_limit] a row whose length stays in this range changes no group */
    /* While groups are found. */
    int32_t *row_of;          /* [sequence_limit or row_limit] -1: no row */
    fig_prefixes_item *items; /* [row_limit + 1] */
    fig_prefixes_node *nodes; /* [row_limit] each behind those inside it */
    int32_t *stack;           /* [row_limit + 1] */
    int32_t item_count, node_count;
    /* The groups, each behind those around it. */
    int32_t *members;           /* [row_limit] rows; a group's are behind each other */
    fig_prefixes_group *groups; /* [row_limit] */
    int32_t group_count;
    int64_t saved; /* cost without groups less cost with them, for one kv head */
} fig_prefixes;

/* FIG_NOMEM. fig_prefixes_finish() accepts a zeroed struct. */
fig_status fig_prefixes_init(fig_prefixes *prefixes, int32_t row_limit, int32_t sequence_limit);
void fig_prefixes_finish(fig_prefixes *prefixes);

/* Finds the groups of a step, and settles the order. Returns 1 if they were found anew, and 0 if
 * those of the last step stand. O(rows) for the latter, else O(known sequences) and at most
 * FIG_PREFIXES_DEPTH_LIMIT times as many for the choice. */
int fig_prefixes_find(fig_prefixes *prefixes, fig_page_order *order,
                      const fig_prefixes_costs *costs, const fig_prefixes_step *step);
/* Makes the next call find the groups anew. */
void fig_prefixes_forget(fig_prefixes *prefixes);

#endif
