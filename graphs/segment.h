/* segment.h: the named parts of a program that a caller may enqueue by themselves.
 *
 * Pure: what a segment's name and nodes may be, and whose a node is. Recording them is program.c's,
 * enqueuing the engine's. Invariant: a node is of at most one segment. */
#ifndef FIG_GRAPHS_SEGMENT_H
#define FIG_GRAPHS_SEGMENT_H

#include "graphs/program_view.h"
#include "graphs/strings.h"

/* FIG_INVALID: no name, or the one that the engine keeps for itself. */
fig_status fig_segment_check_name(const char *name);
/* Every name, index and order. names: of view->strings; those of segments are marked as used. */
fig_status fig_segment_check(const fig_program_view *view, fig_strings *names);
/* The segment that a node is of; NULL: it is of none. */
const fig_segment *fig_segment_of(const fig_program_view *view, uint32_t node);

#endif
