/* strip_groups.h: turns groups of rows that begin with the same kv tokens into shared segments.
 *
 * The kv tokens of a group are one segment. Its query tokens are those of all rows of the group.
 * Each of these rows has another segment for the kv tokens after its innermost group. Groups may be
 * nested, at most three deep.
 *
 *     rows 0, 1, 2: tokens [0, 64)      segment of 3 rows
 *     rows 0, 1: tokens [64, 200)       segment of 2 rows
 *     row 0 from 200, 1 from 200, 2 from 64, 3 from 0
 *
 * Invariant: each query token of a row sees each of the row's tokens in exactly one segment. */
#ifndef FIG_PLANNER_STRIP_GROUPS_H
#define FIG_PLANNER_STRIP_GROUPS_H

#include "planner/plans/strips.h"

enum { FIG_STRIP_GROUPS_LEVEL_LIMIT = FIG_STRIPS_SHARED_LIMIT - 1 };

typedef struct fig_strip_group {
    int32_t first, rows; /* the group's rows are entries [first, first + rows) of `order` */
    int32_t from, to;    /* kv tokens [from, to); the enclosing group ends at `from` */
} fig_strip_group;

/* The rows of a step, and their groups. Each group follows the groups that enclose it. */
typedef struct fig_strip_groups {
    const fig_strips_shape *shape;
    int32_t rows, count;
    const int32_t *starts;         /* [rows + 1] the first query token of each row */
    const int32_t *lengths;        /* [rows] */
    const int32_t *sequences;      /* [rows]; NULL: row r is sequence r */
    const int32_t *order;          /* row numbers; groups are ranges of it. NULL: entry r is r */
    const fig_strip_group *groups; /* [count] */
    int32_t visible;               /* fig_strips_visible of each row's own segment */
    /* The fewest query tokens with which a row in no group gets a segment. The row must also have
     * kv tokens. 0: every row gets a segment. */
    int32_t least;
    int32_t workers; /* that process strips; 0: all of the shape */
    /* 1: a row of a group with a single query token has no segment of its own. The launch for rows
     * that are not chunks reads its other tokens, and leaves the result in the row's last slot. */
    int32_t has_tails;
} fig_strip_groups;

/* The groups of one row, and the slots for its partial results. */
typedef struct fig_strip_groups_row {
    int32_t token, first_slot; /* these fields of the row's first member (fig_strips_member) */
    int32_t slots;             /* 0: the row is in no group */
    int32_t from;              /* the first kv token after its groups */
    /* units of each tile of the row's own tokens; 0: it is in no group, or has no segment */
    int32_t tile_units;
    int32_t next;    /* the first slot of the next group */
    int32_t segment; /* index of the row's own segment; -1: it has none */
} fig_strip_groups_row;

/* Memory that the caller provides, and the results. */
typedef struct fig_strip_groups_work {
    fig_strip_groups_row *rows;   /* [rows] */
    fig_strips_segment *segments; /* [rows + count] those of groups, then those of rows */
    int32_t segment_count;
    fig_strips_member *members; /* as many as fig_strip_groups_members() returns */
    fig_strips_shared shared;
    int64_t fixed_units; /* of the rows' own tokens, but for their tiles */
    int64_t line_units;  /* by which the prefixes were cut, see fig_strip_prefixes_cut() */
} fig_strip_groups_work;

/* Returns an upper bound on the members of the step. O(rows of all groups) */
int64_t fig_strip_groups_members(const fig_strip_groups *step);
/* Lists the segments and members of the step. O(members + rows) */
void fig_strip_groups_list(const fig_strip_groups *step, fig_strip_groups_work *work);
/* Does the same if `work` holds the list of a step that differs only in its lengths, and returns 1.
 * Returns 0 if other rows have segments now, or if prefixes are cut otherwise; the list is then
 * invalid. O(rows), and fast */
int fig_strip_groups_lengthen(const fig_strip_groups *step, fig_strip_groups_work *work);

#endif
