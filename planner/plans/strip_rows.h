/* strip_rows.h: makes the strips of steps whose groups stay the same while their rows grow.
 *
 * From step to step only the lengths of rows change, so only the line must be cut again. What
 * follows from the groups alone is kept: the pieces of prefixes with their workers, and an item for
 * each row. Most rows are in a group and are cut only between kv heads. The others, such as chunks
 * and very long rows, are left to strips.c.
 *
 * Invariant: the plan has the bytes that fig_strips_make_within() would write for the same
 * segments, whatever steps came before. */
#ifndef FIG_PLANNER_STRIP_ROWS_H
#define FIG_PLANNER_STRIP_ROWS_H

#include "include/figraph.h"
#include "planner/plans/strips.h"

/* The segment of a row. */
typedef struct fig_strip_rows_row {
    int32_t segment;  /* its index */
    int32_t is_small; /* 1: strips.c would not cut its strips unless they are long */
} fig_strip_rows_row;

typedef struct fig_strip_rows {
    int32_t piece_limit, row_limit; /* items that there is memory for */
    int32_t is_kept;                /* 1: the other fields fit the segments */
    fig_strips_shape shape;
    int32_t workers; /* that get items */
    int32_t queries; /* one past the last query token */
    /* The pieces of prefixes, see fig_strip_cutter_pieces. */
    fig_strips_item *pieces; /* [first[workers]] */
    int32_t *first;          /* [workers + 1] */
    int32_t *lone_counts;    /* [workers] */
    int64_t *piece_units;    /* [workers] */
    int64_t all_units, bare;
    int32_t takes_turns; /* fig_strip_cutter's */
    /* The other segments. */
    fig_strip_rows_row *rows; /* [row_count] in the order of the line */
    fig_strips_item *items;   /* [row_count] all heads of a small row */
    int64_t *units;           /* [row_count] of a small row's strip; otherwise INT64_MAX */
    int32_t row_count;
} fig_strip_rows;

/* The most pieces of prefixes, and the most other segments. */
typedef struct fig_strip_rows_limits {
    int64_t pieces, rows;
} fig_strip_rows_limits;

/* FIG_NOMEM. fig_strip_rows_finish() accepts a zeroed struct. */
fig_status fig_strip_rows_init(fig_strip_rows *rows, const fig_strips_shape *shape,
                               const fig_strip_rows_limits *limits);
void fig_strip_rows_finish(fig_strip_rows *rows);

/* Keeps what follows from the segments of a step, except from the ends of those that are no
 * prefixes. Only the first `workers` workers get items. O(items) */
void fig_strip_rows_take(fig_strip_rows *rows, const fig_strips_segment *segments, int32_t count,
                         int32_t workers);
/* Does what fig_strips_make_within() does. From the segments that were taken, the given ones differ
 * at most in the ends of those that are no prefixes. O(items), and fast */
fig_strips_sizes fig_strip_rows_make(fig_strip_rows *rows, const fig_strips_segment *segments,
                                     int32_t count, uint8_t *plan);

#endif
