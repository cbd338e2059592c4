/* serve_score.h: the arrays of a score in figraph serve, and attention with the score in float64.
 *
 * Invariant: the arrays on the device equal those here, and are the same in every run. */
#ifndef FIG_TOOLS_SERVE_SCORE_H
#define FIG_TOOLS_SERVE_SCORE_H

#include "tools/figraph/truth/truth_score.h"

typedef struct fig_serve_score { /* starts zeroed */
    fig_score *score;            /* the score of attention in every layer; NULL: none */
    truth_score truth;
    void *arrays[FIG_SCORE_ARRAY_LIMIT];
} fig_serve_score;

/* Fills the arrays with synthetic data, here and in the engine's tensors. The caller sets
 * of->score, which belongs to `of` from then on. Returns FIG_EXIT_*. close also accepts a zeroed
 * struct. */
int fig_serve_score_open(fig_serve_score *of, fig_engine *engine);
void fig_serve_score_close(fig_serve_score *of);

/* The tokens that a query head sees. All logits are 0, because q is. */
typedef struct fig_serve_seen {
    truth_score_place place; /* its kv_pos and context are not set */
    int32_t first;           /* the window's first token; without a mask, place.q_pos is its last */
    int32_t sinks;           /* 1: the head has a sink of 0 */
    const double *values;    /* [query][width], from the kv head's first element on */
    const int32_t *tokens;   /* [place.kv_length] the query whose values each token has */
    int32_t width, head_dim;
} fig_serve_seen;

/* Computes attention, and the largest change of the result that rounding in a score may cause. */
void fig_serve_score_attend(const fig_serve_score *of, const fig_serve_seen *seen,
                            double *out /* [head_dim] */, double *slack /* [head_dim] */);

#endif
