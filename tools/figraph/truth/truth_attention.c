/* truth_attention.c: computes attention in float64, one token after another.
 *
 * Invariant: each token is read once, and sums are relative to the greatest logit so far, so
 * nothing overflows. */
#include "tools/figraph/truth/truth_attention.h"

#include <math.h>

enum { SUM_COUNT = 8 };
/* The error of a logit that a kernel computes in f32, relative to the sum of its terms' magnitudes:
 * a few roundings of 2^-24. */
static const double logit_error = 0x1p-21;
/* The relative error of a score if a kernel computes its last function and turns the result into a
 * power of 2. */
static const double score_error = 0x1p-22;

/* Returns the offset of element 0 of one head of a token; a token outside the cache is read from
 * page 0. */
static int64_t head_offset(const truth_cache *cache, const truth_attention_args *args,
                           int32_t token) {
    int64_t offset = truth_cache_offset(cache, args->sequence, token);
    if (offset < 0) offset = token % cache->page_size * cache->token_stride;
    return offset + args->kv_head * cache->head_stride;
}

static double scale_of(double scale) {
    return scale == 0 ? 1 : scale;
}

static void load_head(const truth_cache *cache, const truth_attention_args *args, int32_t token,
                      double *head) {
    truth_load_row(cache->base, cache->dtype, head_offset(cache, args, token), args->head_dim,
                   head);
}

/* Uses eight sums, because each addition to a single sum would wait for the one before. */
static double product_of(const double *a, const double *b, int32_t count) {
    double sums[SUM_COUNT] = {0}, all = 0;
    int32_t i = 0;
    for (; i + SUM_COUNT <= count; i += SUM_COUNT)
        for (int32_t s = 0; s < SUM_COUNT; s++)
            sums[s] += a[i + s] * b[i + s];
    for (; i < count; i++)
        all += a[i] * b[i];
    for (int32_t s = 0; s < SUM_COUNT; s++)
        all += sums[s];
    return all;
}

/* The score of a token, and the least and greatest scores that rounding may give it. */
typedef struct scored {
    double score, low, high;
} scored;

static truth_score_place place_of(const truth_attention_args *args, int32_t token) {
    return (truth_score_place){.q_pos = args->length - 1,
                               .kv_pos = token,
                               .kv_length = args->kv_length,
                               .head = args->q_head,
                               .kv_head = args->kv_head,
                               .row = args->step_row,
                               .context = args->score_context};
}

static double scored_of(const truth_attention_args *args, int32_t token, double logit) {
    const truth_score_place place = place_of(args, token);
    return args->score(&place, logit);
}

/* Returns the sum of the magnitudes of the terms of q.k. */
static double size_of(const double *q, const double *k, int32_t count) {
    double size = 0;
    for (int32_t i = 0; i < count; i++)
        size += fabs(q[i] * k[i]);
    return size;
}

static scored score_token(const truth_attention_args *args, const double *q, int32_t token) {
    double k[TRUTH_HEAD_DIM_LIMIT];
    load_head(&args->k, args, token, k);
    const double scale = scale_of(args->k_scale) * args->sm_scale;
    double logit =
        product_of(q, k, args->head_dim) * scale + args->alibi * (token - (args->length - 1));
    if (args->soft_cap > 0) logit = args->soft_cap * tanh(logit / args->soft_cap);
    if (args->score == NULL) return (scored){logit, logit, logit};
    const double error = logit_error * size_of(q, k, args->head_dim) * fabs(scale);
    const double score = scored_of(args, token, logit);
    const double below = scored_of(args, token, logit - error);
    const double above = scored_of(args, token, logit + error);
    const double turned = isfinite(score) ? fabs(score) * score_error : 0;
    return (scored){score, fmin(score, fmin(below, above)) - turned,
                    fmax(score, fmax(below, above)) + turned};
}

static int32_t first_token(const truth_attention_args *args) {
    if (args->window == 0 || args->length <= args->window) return 0;
    return args->length - args->window;
}

/* Sums of weighted values. The weights are relative to the greatest logit so far. */
typedef struct sums {
    double greatest, weights;
    double slack; /* the largest error of `weights` that rounding may cause */
} sums;

static void raise_greatest(const truth_attention_args *args, truth_attention_result *result,
                           sums *s, double greatest) {
    const double share = exp(s->greatest - greatest);
    for (int32_t i = 0; i < args->head_dim; i++) {
        result->out[i] *= share;
        result->magnitude[i] *= share;
        result->slack[i] *= share;
    }
    s->weights *= share;
    s->slack *= share;
    s->greatest = greatest;
}

/* Returns the logarithm of a token's weight, before weights are divided by their sum. */
static double log_weight(const truth_attention_args *args, double score) {
    if (!args->is_sigmoid) return score;
    return score < 0 ? score - log1p(exp(score)) : -log1p(exp(-score));
}

static void add_token(const truth_attention_args *args, truth_attention_result *result, sums *s,
                      const scored *of, int32_t token) {
    double v[TRUTH_HEAD_DIM_LIMIT];
    const double logit = log_weight(args, of->score);
    const double high = of->high == of->score ? logit : log_weight(args, of->high);
    if (high == -INFINITY) return; /* it is not seen */
    if (logit > s->greatest) raise_greatest(args, result, s, logit);
    if (s->greatest == -INFINITY) raise_greatest(args, result, s, high);
    const double weight = exp(logit - s->greatest);
    const double slack =
        of->low < of->high ? exp(high - s->greatest) - exp(log_weight(args, of->low) - s->greatest)
                           : 0;
    load_head(&args->v, args, token, v);
    s->weights += weight;
    s->slack += slack;
    for (int32_t i = 0; i < args->head_dim; i++) {
        result->out[i] += weight * v[i];
        result->magnitude[i] += weight * fabs(v[i]);
        result->slack[i] += slack * fabs(v[i]);
    }
}

/* Divides by the sum of the weights, and adds the slack of this sum to the slack of the results. */
static void divide(const truth_attention_args *args, truth_attention_result *result,
                   const sums *s) {
    const double sum = args->is_sigmoid ? exp(-s->greatest) : s->weights;
    const double scale = scale_of(args->v_scale) / sum;
    const double of_sum = args->is_sigmoid ? 0 : s->slack / sum;
    for (int32_t i = 0; i < args->head_dim; i++) {
        result->out[i] *= scale;
        result->magnitude[i] *= fabs(scale);
        result->slack[i] = result->slack[i] * fabs(scale) + of_sum * fabs(result->out[i]);
    }
    result->lse = (s->greatest + log(s->weights)) / log(2);
}

void truth_attention(const truth_attention_args *args, truth_attention_result *result) {
    double q[TRUTH_HEAD_DIM_LIMIT];
    sums s = {.greatest = -INFINITY};
    truth_load_row(args->q.base, args->q.dtype,
                   args->row * args->q.row_stride + args->q_head * args->q.head_stride,
                   args->head_dim, q);
    for (int32_t i = 0; i < args->head_dim; i++)
        result->out[i] = result->magnitude[i] = result->slack[i] = 0;
    result->lse = -INFINITY;
    if (args->length <= 0) return;
    if (args->sink != NULL) s = (sums){.greatest = *args->sink, .weights = 1};
    const int32_t end = args->sees != NULL ? args->kv_length : args->length;
    for (int32_t t = first_token(args); t < end; t++) {
        const truth_score_place place = place_of(args, t);
        if (args->sees != NULL && !args->sees(&place)) continue;
        const scored of = score_token(args, q, t);
        add_token(args, result, &s, &of, t);
    }
    if (s.weights != 0) divide(args, result, &s);
}
