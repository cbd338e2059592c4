/* truth_latent.h: computes attention over a latent cache in plain float64.
 *
 * The code follows figraph.h alone, as truth.h does. Invariant: it reads only tokens that the query
 * sees. */
#ifndef TRUTH_LATENT_H
#define TRUTH_LATENT_H

#include "tools/figraph/truth/truth.h"

enum {
    TRUTH_LATENT_DIM = 512,     /* of out */
    TRUTH_LATENT_KEY_DIM = 576, /* of q, and of a token */
    TRUTH_LATENT_CODES = 656    /* bytes of a token of a cache of FIG_E4M3 */
};

/* One query head at the last of `length` tokens of a sequence. */
typedef struct truth_latent_args {
    truth_rows q;
    truth_rows q_rope; /* the last 64 values of each head; base NULL: they are in q */
    truth_cache cache; /* head_stride 0; the elements of a token of codes are bytes */
    int64_t row;       /* of q */
    int32_t sequence, length, q_head;
    int32_t window; /* 0: all tokens */
    double sm_scale;
    const double *sink; /* of this head; NULL: none */
} truth_latent_args;

/* As truth_attention_result. */
typedef struct truth_latent_result {
    double out[TRUTH_LATENT_DIM], magnitude[TRUTH_LATENT_DIM];
    double lse;
} truth_latent_result;
void truth_latent(const truth_latent_args *args, truth_latent_result *result);

/* Returns the scale of value i of a token of codes. */
double truth_latent_scale(const unsigned char *token, int32_t i);

/* Reads the values of a token that begins at element `offset`. */
void truth_latent_token(const truth_cache *cache, int64_t offset,
                        double values[TRUTH_LATENT_KEY_DIM]);

#endif
