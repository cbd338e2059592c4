/* step.h: checks that a caller's step is valid for the program.
 *
 * Planning with and without a device both call this check, so they accept the same steps.
 * Invariant: in a step that passes, nothing is out of range, and no two rows that have tokens name
 * the same sequence. If only the device knows which rows have tokens, no two rows at all name the
 * same sequence. */
#ifndef FIG_GRAPHS_STEP_H
#define FIG_GRAPHS_STEP_H

#include "graphs/view/program_view.h"
#include "planner/plans/plan.h"

/* The last position at which a query may stand, including growth within a horizon. It is far beyond
 * every model's context, and far enough from INT32_MAX that no sum on the device overflows. */
enum { FIG_POSITION_LIMIT = 1 << 30 };

/* The stamps with which a check finds, in O(rows) and without allocating, a sequence that two rows
 * name. Each check has a number and stamps each sequence of its step with that number. No number is
 * used again before all stamps are cleared. Most steps name the same sequences as an earlier step;
 * `known` keeps such sequences, which need no second check. */
typedef struct fig_step_stamps {
    uint32_t *of; /* [sequence_limit] owned by the caller, who zeroes it first */
    uint32_t last;
    int32_t known_rows;
    /* [batch_limit] owned by the caller: the sequences of known_rows rows, all different. NULL if
     * the caller does not keep them. */
    int32_t *known;
} fig_step_stamps;

/* Checks a step and fills *plan, which then points at the step's arrays. FIG_TOO_LARGE: the rows or
 * a length exceed the spec's limits, or a position exceeds FIG_POSITION_LIMIT. */
fig_status fig_step_check(const fig_program_view *program, const fig_step *step,
                          fig_step_stamps *stamps, fig_plan_step *plan);

#endif
