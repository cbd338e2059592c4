/* mask_lines.h: counts the tiles that the masks of a step's classes hide.
 *
 * Attention nodes with one mask form a class, and the planner leaves tiles that nobody sees off the
 * lines of the class. Owns the ranges of each class's mask and the counts of the step that is being
 * planned; mask_line.h computes the tiles of a row. Buckets are chosen as if all tiles were seen.
 * The cost for a row that is not idle is that of its places: the nodes of the ranges, for each
 * query token and head on which they depend, and for each launch of a horizon; at most
 * FIG_MASK_LINE_PLACES times. Invariant: nothing allocates after fig_mask_lines_init(), and a count
 * is below the number of the row's tiles, and 0 for a chunk, which has no tiles on the line. */
#ifndef FIG_PLANNER_MASK_LINES_H
#define FIG_PLANNER_MASK_LINES_H

#include "include/figraph.h"
#include "planner/plans/plan.h"
#include "planner/scores/mask_line.h"

/* A class whose mask the planner knows. */
typedef struct fig_mask_lines_class {
    fig_score_code ranges; /* the nodes on which the ranges of the mask depend */
    int32_t split_class;
    int32_t heads, ratio; /* q heads, in all and of a kv head */
} fig_mask_lines_class;

typedef struct fig_mask_lines {
    fig_mask_lines_class *of; /* [count] */
    int32_t count;
    int32_t *room;                          /* [count][row_limit] */
    const int32_t *hidden[FIG_CLASS_LIMIT]; /* [split class] in `room`; NULL: nothing is hidden */
} fig_mask_lines;

/* Sets *ranges to a code with only the nodes on which the ranges of the score's mask depend, and
 * to zeros if there is no mask or a range reads an array. Returns ranges->line. */
uint32_t fig_mask_lines_ranges(const fig_score_code *score, fig_score_code *ranges);

/* Makes room for `count` classes, whose `of` the caller fills in, and for steps of row_limit rows.
 * FIG_NOMEM. fig_mask_lines_finish() accepts a zeroed struct. */
fig_status fig_mask_lines_init(fig_mask_lines *lines, int32_t count, int32_t row_limit);
void fig_mask_lines_finish(fig_mask_lines *lines);

/* Returns fig_plan_step.hidden of a step: NULL if no class has a known mask or the host does not
 * know the lengths. The result is valid until the next call. */
const int32_t *const *fig_mask_lines_find(fig_mask_lines *lines, const fig_plan_shape *shape,
                                          const fig_plan_step *step);

#endif
