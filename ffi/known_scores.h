/* known_scores.h: the scores that calls name by a number.
 *
 * A call cannot hold an expression, so it holds a number that follows from the expression's normal
 * form: it is the same in every process. Scores are never destroyed, because recipes name them.
 * Invariant: once a score is found, every later call on any thread finds it. */
#ifndef FIG_FFI_KNOWN_SCORES_H
#define FIG_FFI_KNOWN_SCORES_H

#include "planner/scores/score.h"

enum { FIG_KNOWN_SCORE_LIMIT = 256 };

/* Keeps the score of a text, and sets *number to its number, which is above 0. FIG_INVALID: the
 * text is not a valid score. FIG_TOO_LARGE: FIG_KNOWN_SCORE_LIMIT scores are already kept. */
fig_status fig_known_scores_add(const char *text, int64_t *number);
/* Finds a score; FIG_ORDER: no score of this number is known. */
fig_status fig_known_scores_find(int64_t number, const fig_score **score);

#endif
