/* truth_latent.c: computes attention over a latent cache in float64, one token after another.
 *
 * Invariant: each token is read once, and sums are relative to the greatest logit so far, so
 * nothing overflows. */
#include "tools/figraph/truth/truth_latent.h"

#include <math.h>
#include <string.h>

/* The parts of a token of codes: bytes in front of its scales and of its values under RoPE. */
enum { CODES_OF_SCALE = 128, SCALES_AT = 512, ROPE_AT = 528 };

/* A token of codes may begin at any byte. */
double truth_latent_scale(const unsigned char *token, int32_t i) {
    float scale;
    memcpy(&scale, token + SCALES_AT + (size_t)(i / CODES_OF_SCALE) * sizeof scale, sizeof scale);
    return (double)scale;
}

void truth_latent_token(const truth_cache *cache, int64_t offset,
                        double values[TRUTH_LATENT_KEY_DIM]) {
    const unsigned char *token = (const unsigned char *)cache->base + offset;
    uint16_t rope[TRUTH_LATENT_KEY_DIM - TRUTH_LATENT_DIM];
    if (cache->dtype != FIG_E4M3) {
        truth_load_row(cache->base, cache->dtype, offset, TRUTH_LATENT_KEY_DIM, values);
        return;
    }
    truth_load_row(token, FIG_E4M3, 0, TRUTH_LATENT_DIM, values);
    for (int32_t i = 0; i < TRUTH_LATENT_DIM; i++)
        values[i] *= truth_latent_scale(token, i);
    memcpy(rope, token + ROPE_AT, sizeof rope);
    truth_load_row(rope, FIG_BF16, 0, TRUTH_LATENT_KEY_DIM - TRUTH_LATENT_DIM,
                   values + TRUTH_LATENT_DIM);
}

/* Weights are relative to the greatest logit so far. */
typedef struct sums {
    double greatest, weights;
} sums;

static void raise_greatest(truth_latent_result *result, sums *s, double greatest) {
    const double share = exp(s->greatest - greatest);
    for (int32_t i = 0; i < TRUTH_LATENT_DIM; i++) {
        result->out[i] *= share;
        result->magnitude[i] *= share;
    }
    s->weights *= share;
    s->greatest = greatest;
}

static double logit_of(const truth_latent_args *args, const double *q, const double *token) {
    double parts[8] = {0}, sum = 0;
    for (int32_t i = 0; i < TRUTH_LATENT_KEY_DIM; i++)
        parts[i % 8] += q[i] * token[i];
    for (int32_t i = 0; i < 8; i++)
        sum += parts[i];
    return sum * args->sm_scale;
}

static void add_token(truth_latent_result *result, sums *s, double logit, const double *token) {
    if (logit > s->greatest) raise_greatest(result, s, logit);
    const double weight = logit == -INFINITY ? 0 : exp(logit - s->greatest);
    s->weights += weight;
    for (int32_t i = 0; i < TRUTH_LATENT_DIM; i++) {
        result->out[i] += weight * token[i];
        result->magnitude[i] += weight * fabs(token[i]);
    }
}

static void load_part(const truth_latent_args *args, const truth_rows *rows, int32_t count,
                      double *values) {
    truth_load_row(rows->base, rows->dtype,
                   args->row * rows->row_stride + args->q_head * rows->head_stride, count, values);
}

static void load_q(const truth_latent_args *args, double q[TRUTH_LATENT_KEY_DIM]) {
    if (args->q_rope.base == NULL) {
        load_part(args, &args->q, TRUTH_LATENT_KEY_DIM, q);
    } else {
        load_part(args, &args->q, TRUTH_LATENT_DIM, q);
        load_part(args, &args->q_rope, TRUTH_LATENT_KEY_DIM - TRUTH_LATENT_DIM,
                  q + TRUTH_LATENT_DIM);
    }
}

void truth_latent(const truth_latent_args *args, truth_latent_result *result) {
    const truth_cache *cache = &args->cache;
    double q[TRUTH_LATENT_KEY_DIM], token[TRUTH_LATENT_KEY_DIM];
    sums s = {.greatest = -INFINITY};
    load_q(args, q);
    for (int32_t i = 0; i < TRUTH_LATENT_DIM; i++)
        result->out[i] = result->magnitude[i] = 0;
    result->lse = -INFINITY;
    if (args->length <= 0) return;
    if (args->sink != NULL) s = (sums){.greatest = *args->sink, .weights = 1};
    const int32_t first =
        args->window == 0 || args->length <= args->window ? 0 : args->length - args->window;
    for (int32_t t = first; t < args->length; t++) {
        int64_t offset = truth_cache_offset(cache, args->sequence, t);
        if (offset < 0) offset = t % cache->page_size * cache->token_stride;
        truth_latent_token(cache, offset, token);
        add_token(result, &s, logit_of(args, q, token), token);
    }
    for (int32_t i = 0; i < TRUTH_LATENT_DIM; i++) {
        result->out[i] /= s.weights;
        result->magnitude[i] /= s.weights;
    }
    result->lse = (s.greatest + log(s.weights)) / log(2);
}
