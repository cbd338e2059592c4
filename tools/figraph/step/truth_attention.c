/* truth_attention.c: attention in float64, one token after another.
 *
 * Invariant: every logit is computed where it is used, from figraph.h's formula and nothing else.
 *  */
#include "tools/figraph/step/truth_attention.h"

#include <math.h>

/* Element 0 of one head of a token; what is outside the cache reads as page 0. */
static int64_t head_offset(const truth_cache *cache, const truth_attention_args *args,
                           int32_t token) {
    int64_t offset = truth_cache_offset(cache, args->sequence, token);
    if (offset < 0) offset = token % cache->page_size * cache->token_stride;
    return offset + args->kv_head * cache->head_stride;
}

static double scale_of(double scale) {
    return scale == 0 ? 1 : scale;
}

static double logit_of(const truth_attention_args *args, const double *q, int32_t token) {
    int64_t offset = head_offset(&args->k, args, token);
    double sum = 0;
    for (int32_t i = 0; i < args->head_dim; i++)
        sum += q[i] * scale_of(args->k_scale) * truth_load(args->k.base, args->k.dtype, offset + i);
    int32_t position = args->length - 1;
    double logit = sum * args->sm_scale + args->alibi * (token - position);
    if (args->soft_cap > 0) logit = args->soft_cap * tanh(logit / args->soft_cap);
    return logit;
}

static int32_t first_token(const truth_attention_args *args) {
    if (args->window == 0 || args->length <= args->window) return 0;
    return args->length - args->window;
}

void truth_attention(const truth_attention_args *args, truth_attention_result *result) {
    double q[TRUTH_HEAD_DIM_LIMIT], greatest = -INFINITY, weights = 0;
    int64_t q_offset = args->row * args->q.row_stride + args->q_head * args->q.head_stride;
    for (int32_t i = 0; i < args->head_dim; i++) {
        q[i] = truth_load(args->q.base, args->q.dtype, q_offset + i);
        result->out[i] = result->magnitude[i] = 0;
    }
    result->lse = -INFINITY;
    if (args->length <= 0) return;
    for (int32_t t = first_token(args); t < args->length; t++)
        greatest = fmax(greatest, logit_of(args, q, t));
    if (args->sink != NULL) greatest = fmax(greatest, *args->sink);
    for (int32_t t = first_token(args); t < args->length; t++) {
        double weight = exp(logit_of(args, q, t) - greatest);
        int64_t offset = head_offset(&args->v, args, t);
        weights += weight;
        for (int32_t i = 0; i < args->head_dim; i++) {
            double v =
                scale_of(args->v_scale) * truth_load(args->v.base, args->v.dtype, offset + i);
            result->out[i] += weight * v;
            result->magnitude[i] += weight * fabs(v);
        }
    }
    if (args->sink != NULL) weights += exp(*args->sink - greatest);
    for (int32_t i = 0; i < args->head_dim; i++) {
        result->out[i] /= weights;
        result->magnitude[i] /= weights;
    }
    result->lse = (greatest + log(weights)) / log(2);
}
