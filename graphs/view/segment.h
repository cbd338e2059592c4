/* segment.h: the segments of a program: named parts that a caller may enqueue separately.
 *
 * Owns the rules for a segment's name and nodes, and finds the segment of a node. program.c records
 * segments, and the engine enqueues them. Invariant: a node belongs to at most one segment. */
#ifndef FIG_GRAPHS_SEGMENT_H
#define FIG_GRAPHS_SEGMENT_H

#include "graphs/view/program_view.h"
#include "graphs/view/strings.h"

/* Checks a segment's name. FIG_INVALID: the name is not valid, or is "fetch", which the engine
 * uses. */
fig_status fig_segment_check_name(const char *name);
/* Checks the names, indices and order of all segments. `names` holds view->strings; the call marks
 * the segments' names as used. */
fig_status fig_segment_check(const fig_program_view *view, fig_strings *names);
/* Returns the segment to which a node belongs, or NULL if the node is in no segment. */
const fig_segment *fig_segment_of(const fig_program_view *view, uint32_t node);

#endif
