/* standard.h: checks whether a program is the standard step of its spec, maybe with a score.
 *
 * The names in a file prove nothing, because the file's author chose them. */
#ifndef FIG_TOOLS_STANDARD_H
#define FIG_TOOLS_STANDARD_H

#include <figraph.h>

/* Checks that the graphs have the same tensors and the same number of nodes as the standard step of
 * their spec, with or without a score. Sets *score to the score, which the caller frees; NULL:
 * there is none. Returns FIG_EXIT_*; the message begins with the command and names the first
 * difference. */
int fig_standard_check(const fig_graphs *graphs, const char *command, fig_score **score);

#endif
