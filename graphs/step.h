/* step.h: whether a caller's step is one that the program allows.
 *
 * Who plans on paper and who plans for a device both ask here, so that they agree. Invariant: a
 * step that passes names no sequence in two rows that have tokens, nor in any two where only the
 * device knows which have, and nothing out of range. */
#ifndef FIG_GRAPHS_STEP_H
#define FIG_GRAPHS_STEP_H

#include "graphs/program_view.h"
#include "planner/plan.h"

/* The last position at which a query may stand, growth within a horizon included. Far beyond every
 * context there is, and far enough from INT32_MAX that no sum on the device overflows. */
enum { FIG_POSITION_LIMIT = 1 << 30 };

/* Lets a check find a sequence named twice in O(rows) without allocating: a sequence met carries
 * the check's number, and numbers are not used again before all of them are wiped. Most steps name
 * the sequences of the step before, which were found to be sound. */
typedef struct fig_step_stamps {
    uint32_t *of; /* [sequence_limit] the owner's, zeroed at first */
    uint32_t last;
    int32_t known_rows;
    int32_t *known; /* [batch_limit] the owner's: sequences of known_rows rows, no two alike; NULL:
                       none are kept */
} fig_step_stamps;

/* *plan points at the step's arrays. FIG_TOO_LARGE: rows or a length beyond the spec's limits,
 * or a position beyond FIG_POSITION_LIMIT. */
fig_status fig_step_check(const fig_program_view *program, const fig_step *step,
                          fig_step_stamps *stamps, fig_plan_step *plan);

#endif
