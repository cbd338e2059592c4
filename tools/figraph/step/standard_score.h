/* standard_score.h: finds the score that a step was recorded with.
 *
 * Invariant: the step's attention computes this score in every layer, or the step is refused. */
#ifndef FIG_TOOLS_STANDARD_SCORE_H
#define FIG_TOOLS_STANDARD_SCORE_H

#include <figraph_scores.h>

/* Sets *score to the score of the graphs' attention, which the caller frees; NULL: there is none.
 * Refuses layers with different scores. Returns FIG_EXIT_*; the message begins with the command. */
int fig_standard_score(const fig_graphs *graphs, const char *command, fig_score **score);

#endif
