/* serve_outs.h: compares every element of every output of the steps that figraph serve runs.
 *
 * With q = 0 each token that a query sees has the same weight, so attention is the mean of V over
 * these tokens. Each query token of a step has a V of its own, chosen so that every type holds it
 * exactly. A model of the caches in float64 then gives each output in a few operations: it keeps
 * sums of V for each sequence, over all tokens and over the window. A token that is missed, read
 * twice, or read from another sequence's page changes a mean by more than its rounding. V of latent
 * attention is the normalised latent. If attention has a score, each token has a weight of its own,
 * and the model adds all tokens up for each query head. Invariant: the model knows only what the
 * loop told the engine: lengths, queries and sequences. */
#ifndef FIG_TOOLS_SERVE_OUTS_H
#define FIG_TOOLS_SERVE_OUTS_H

#include <figraph.h>

#include "tools/figraph/serve/serve_batch.h"
#include "tools/figraph/serve/serve_score.h"

typedef struct fig_serve_outs { /* starts zeroed */
    fig_engine *engine;
    const fig_graphs *graphs;
    const fig_spec *spec;
    const fig_serve_score *score; /* if score->score is NULL, attention has no score */
    int32_t width;                /* elements of a token's V, in all heads */
    double *values;               /* [query_limit][width] V of each query token of a step */
    int32_t *tokens;              /* [sequences][kv_limit] the query token that wrote each token */
    double *sums[2];   /* [sequences][width] sums of V: over all tokens, and over the window */
    double *due[2];    /* [query_limit][width] the means of V that each query token should get */
    uint8_t *got;      /* [query_limit] rows of an output */
    int64_t compared;  /* elements so far */
    int64_t row_bytes; /* of `got` */
} fig_serve_outs;

/* Writes V, or latents and the weights of their norms, and the scales of the caches; all other
 * inputs stay zeros. Returns FIG_EXIT_*. close also accepts a zeroed struct. */
int fig_serve_outs_open(fig_serve_outs *outs, fig_engine *engine, const fig_graphs *graphs,
                        const fig_serve_score *score);
void fig_serve_outs_close(fig_serve_outs *outs);
/* Call it after a launch, before the batch advances. Waits for the step, and compares. With
 * FIG_EXIT_FAILED the message names the tensor, the row and both values. */
int fig_serve_outs_check(fig_serve_outs *outs, const fig_serve_batch *batch);

#endif
