/* page_order.h: keeps a copy of a page table, and sorts its sequences by their lists of pages.
 *
 *     sequence 4   7 9 2            common with the one before   0
 *     sequence 0   7 9 2 5 1                                     3
 *     sequence 2   7 9 6                                         2
 *     sequence 1   8 3                                           0
 *
 * Sequences that begin with the same pages stand side by side, so the sequences that share n pages
 * or more form an interval of the order. This file compares page numbers, not hashes of the
 * contents: equal numbers are the same memory, so no collision and no stale hash is possible. An
 * entry that was never set counts as 0, as in the table itself. Only rows that were set use memory.
 *
 * Invariant: after fig_page_order_settle(), common[i] is the exact number of leading pages that
 * order[i - 1] and order[i] share. Before that call, this holds only between sequences that are not
 * marked. */
#ifndef FIG_PLANNER_PAGE_ORDER_H
#define FIG_PLANNER_PAGE_ORDER_H

#include <stdint.h>

#include "include/figraph.h"

typedef struct fig_page_order {
    int32_t sequence_limit, page_limit;
    int32_t *entries; /* [sequence_limit][page_limit] the table */
    int32_t *known;   /* [sequence_limit] the number of entries up to the last one that was set */
    int32_t *order;  /* [count] all sequences with known entries; marked ones at their old places */
    int32_t *common; /* [count + 1] leading pages that order[i - 1] and order[i] share */
    int32_t *place;  /* [sequence_limit] index in `order`; -1: not there */
    int32_t *marked; /* [marked_count] sequences whose place must be found again */
    uint8_t *is_marked; /* [sequence_limit] 1: the sequence is in `marked` */
    int32_t count, marked_count;
} fig_page_order;

/* The size of the table. */
typedef struct fig_page_order_limits {
    int64_t sequences, pages;
} fig_page_order_limits;

/* Makes the order of a table of zeros. FIG_NOMEM. fig_page_order_finish() accepts a zeroed
 * struct. */
fig_status fig_page_order_init(fig_page_order *order, const fig_page_order_limits *limits);
void fig_page_order_finish(fig_page_order *order);

/* Sets entries [first, first + count) of a sequence, which lie within the limits. Marks the
 * sequence if its place in the order may change. O(count) */
void fig_page_order_set(fig_page_order *order, int32_t sequence, int32_t first, int32_t count,
                        const int32_t *pages);
/* Finds the places of the marked sequences. O(known sequences) for each of them; a sequence is
 * compared with few others, each page about once. */
void fig_page_order_settle(fig_page_order *order);

/* Returns the entries of a sequence: [page_limit]. */
static inline const int32_t *fig_page_order_row(const fig_page_order *order, int32_t sequence) {
    return order->entries + (int64_t)sequence * order->page_limit;
}

#endif
