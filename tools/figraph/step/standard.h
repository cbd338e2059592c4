/* standard.h: is a program the standard step of its spec?
 *
 * A file's names prove nothing: whoever wrote it chose them. */
#ifndef FIG_TOOLS_STANDARD_H
#define FIG_TOOLS_STANDARD_H

#include <figraph.h>

/* Whether the graphs have the tensors that the standard step of their spec has, and as many nodes.
 * Returns FIG_EXIT_*; the sentence begins with the command and names the first that differs. */
int fig_standard_check(const fig_graphs *graphs, const char *command);

#endif
