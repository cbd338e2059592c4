/* truth_attention.c: computes attention in float64, one token after another.
 *
 * Invariant: each token is read once, and sums are relative to the greatest logit so far, so
 * nothing overflows. */
#include "tools/figraph/step/truth_attention.h"

#include <math.h>

enum { SUM_COUNT = 8 };

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

static double logit_of(const truth_attention_args *args, const double *q, int32_t token) {
    double k[TRUTH_HEAD_DIM_LIMIT];
    load_head(&args->k, args, token, k);
    const double sum = product_of(q, k, args->head_dim) * scale_of(args->k_scale);
    int32_t position = args->length - 1;
    double logit = sum * args->sm_scale + args->alibi * (token - position);
    if (args->soft_cap > 0) logit = args->soft_cap * tanh(logit / args->soft_cap);
    if (args->score == NULL) return logit;
    const truth_score_place place = {.q_pos = position,
                                     .kv_pos = token,
                                     .kv_length = args->kv_length,
                                     .head = args->q_head,
                                     .kv_head = args->kv_head,
                                     .row = args->step_row};
    return args->score(&place, logit);
}

static int32_t first_token(const truth_attention_args *args) {
    if (args->window == 0 || args->length <= args->window) return 0;
    return args->length - args->window;
}

/* Sums of weighted values. The weights are relative to the greatest logit so far. */
typedef struct sums {
    double greatest, weights;
} sums;

static void raise_greatest(const truth_attention_args *args, truth_attention_result *result,
                           sums *s, double greatest) {
    const double share = exp(s->greatest - greatest);
    for (int32_t i = 0; i < args->head_dim; i++) {
        result->out[i] *= share;
        result->magnitude[i] *= share;
    }
    s->weights *= share;
    s->greatest = greatest;
}

static void add_token(const truth_attention_args *args, truth_attention_result *result, sums *s,
                      double logit, int32_t token) {
    double v[TRUTH_HEAD_DIM_LIMIT];
    if (logit == -INFINITY) return; /* it is not seen */
    if (args->is_sigmoid) logit = -log1p(exp(-logit));
    if (logit > s->greatest) raise_greatest(args, result, s, logit);
    const double weight = exp(logit - s->greatest);
    load_head(&args->v, args, token, v);
    s->weights += weight;
    for (int32_t i = 0; i < args->head_dim; i++) {
        result->out[i] += weight * v[i];
        result->magnitude[i] += weight * fabs(v[i]);
    }
}

void truth_attention(const truth_attention_args *args, truth_attention_result *result) {
    double q[TRUTH_HEAD_DIM_LIMIT];
    sums s = {.greatest = -INFINITY};
    truth_load_row(args->q.base, args->q.dtype,
                   args->row * args->q.row_stride + args->q_head * args->q.head_stride,
                   args->head_dim, q);
    for (int32_t i = 0; i < args->head_dim; i++)
        result->out[i] = result->magnitude[i] = 0;
    result->lse = -INFINITY;
    if (args->length <= 0) return;
    if (args->sink != NULL) s = (sums){.greatest = *args->sink, .weights = 1};
    for (int32_t t = first_token(args); t < args->length; t++)
        add_token(args, result, &s, logit_of(args, q, t), t);
    if (s.weights == 0) return;
    const double sum = args->is_sigmoid ? exp(-s.greatest) : s.weights;
    const double scale = scale_of(args->v_scale) / sum;
    for (int32_t i = 0; i < args->head_dim; i++) {
        result->out[i] *= scale;
        result->magnitude[i] *= fabs(scale);
    }
    result->lse = (s.greatest + log(s.weights)) / log(2);
}
