/* truth_score.h: evaluates a score in plain float64.
 *
 * The code follows only figraph_scores.h and shares nothing with the library's interpreters.
 * Invariant: the result of each f32 operation is rounded to f32, because the language says so; a
 * reference without these roundings would differ wherever a score adds a great number. */
#ifndef TRUTH_SCORE_H
#define TRUTH_SCORE_H

#include <figraph_scores.h>

#include "tools/figraph/truth/truth_attention.h"

typedef struct truth_score {
    fig_score_parts parts; /* as fig_score_read() gives them */
    /* The elements of each array, of the dtype that `parts` gives, and the number of elements. */
    const void *arrays[FIG_SCORE_ARRAY_LIMIT];
    int32_t counts[FIG_SCORE_ARRAY_LIMIT];
} truth_score;

/* Returns 1 if the score's mask shows the token, which lies in the row. place->context is a
 * truth_score with a mask. */
int truth_score_sees(const truth_score_place *place);
/* Returns the score of a token. place->context is a truth_score. */
double truth_score_of(const truth_score_place *place, double logit);

#endif
