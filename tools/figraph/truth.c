/* truth.c: float64, one element after another.
 *
 * Leaves speed to the kernels and tolerances to its callers. Invariant: where a formula of
 * figraph.h has cases, the code has the same cases in the same words. */
#include "tools/figraph/truth.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

static double load_f32(const void *array, int64_t index) {
    float x;
    memcpy(&x, (const char *)array + index * 4, sizeof x);
    return x;
}

/* A sign, 5 bits of exponent and 10 of mantissa, as IEEE 754 reads them. */
static double load_f16(const void *array, int64_t index) {
    uint16_t code;
    memcpy(&code, (const char *)array + index * 2, sizeof code);
    int exponent = code >> 10 & 31, mantissa = code & 1023;
    double x = mantissa * 0x1p-24;
    if (exponent > 0) x = (1024 + mantissa) * 0x1p-25 * (double)(1u << exponent);
    if (exponent == 31) x = mantissa == 0 ? INFINITY : NAN;
    return code >> 15 ? -x : x;
}

/* The upper half of an f32. */
static double load_bf16(const void *array, int64_t index) {
    uint16_t code;
    memcpy(&code, (const char *)array + index * 2, sizeof code);
    uint32_t bits = (uint32_t)code << 16;
    return load_f32(&bits, 0);
}

double truth_load(const void *array, fig_dtype dtype, int64_t index) {
    switch (dtype) {
    case FIG_F32: return load_f32(array, index);
    case FIG_F16: return load_f16(array, index);
    case FIG_BF16: return load_bf16(array, index);
    case FIG_I32: return ((const int32_t *)array)[index];
    case FIG_I64: return (double)((const int64_t *)array)[index];
    }
    return NAN;
}

double truth_ulp(fig_dtype dtype, double x) {
    int mantissa_bits = dtype == FIG_F16 ? 10 : dtype == FIG_BF16 ? 7 : 23;
    int least_exponent = dtype == FIG_F16 ? -14 : -126;
    int exponent = x == 0 ? least_exponent : ilogb(x);
    if (exponent < least_exponent) exponent = least_exponent;
    return ldexp(1.0, exponent - mantissa_bits);
}

void truth_silu_and_mul(const truth_rows *in, int64_t row, int32_t width, double *out) {
    for (int32_t i = 0; i < width; i++) {
        double gate = truth_load(in->base, in->dtype, row * in->row_stride + i);
        double up = truth_load(in->base, in->dtype, row * in->row_stride + width + i);
        out[i] = gate / (1 + exp(-gate)) * up;
    }
}

static double frequency_of(const fig_rope_spec *rope, int32_t i, int32_t head_dim) {
    double frequency = pow(rope->theta, -2.0 * i / head_dim);
    if (rope->llama3_factor <= 0) return frequency / rope->scale;
    double wave = 2 * PI / frequency;
    double longest = (double)rope->llama3_context / rope->llama3_low;
    double shortest = (double)rope->llama3_context / rope->llama3_high;
    if (wave < shortest) return frequency / rope->scale;
    if (wave > longest) return frequency / rope->llama3_factor / rope->scale;
    double smooth =
        (rope->llama3_context / wave - rope->llama3_low) / (rope->llama3_high - rope->llama3_low);
    frequency = (1 - smooth) * frequency / rope->llama3_factor + smooth * frequency;
    return frequency / rope->scale;
}

void truth_rope(const truth_rope_args *args, double *out) {
    const truth_rows *x = &args->x;
    int64_t offset = args->row * x->row_stride + args->head * x->head_stride;
    int32_t half = args->head_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        int32_t first = args->rope.interleaved ? 2 * i : i;
        int32_t second = args->rope.interleaved ? 2 * i + 1 : i + half;
        double a = truth_load(x->base, x->dtype, offset + first);
        double b = truth_load(x->base, x->dtype, offset + second);
        double angle = (double)args->position * frequency_of(&args->rope, i, args->head_dim);
        out[first] = a * cos(angle) - b * sin(angle);
        out[second] = b * cos(angle) + a * sin(angle);
    }
}

static int64_t page_of(const truth_cache *cache, int32_t sequence, int32_t token) {
    if (cache->page_table == NULL) return sequence;
    return cache->page_table[sequence * cache->table_stride + token / cache->page_size];
}

int64_t truth_cache_offset(const truth_cache *cache, int32_t sequence, int32_t token) {
    int64_t page = page_of(cache, sequence, token);
    if (page < 0 || page >= cache->pages) return -1;
    return page * cache->page_stride + token % cache->page_size * cache->token_stride;
}

/* Element 0 of one head of a token; what is outside the cache reads as page 0. */
static int64_t head_offset(const truth_cache *cache, const truth_attention_args *args,
                           int32_t token) {
    int64_t offset = truth_cache_offset(cache, args->sequence, token);
    if (offset < 0) offset = token % cache->page_size * cache->token_stride;
    return offset + args->kv_head * cache->head_stride;
}

static double logit_of(const truth_attention_args *args, const double *q, int32_t token) {
    int64_t offset = head_offset(&args->k, args, token);
    double sum = 0;
    for (int32_t i = 0; i < args->head_dim; i++)
        sum += q[i] * truth_load(args->k.base, args->k.dtype, offset + i);
    return sum * args->sm_scale;
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
    for (int32_t t = 0; t < args->length; t++)
        greatest = fmax(greatest, logit_of(args, q, t));
    for (int32_t t = 0; t < args->length; t++) {
        double weight = exp(logit_of(args, q, t) - greatest);
        int64_t offset = head_offset(&args->v, args, t);
        weights += weight;
        for (int32_t i = 0; i < args->head_dim; i++) {
            double v = truth_load(args->v.base, args->v.dtype, offset + i);
            result->out[i] += weight * v;
            result->magnitude[i] += weight * fabs(v);
        }
    }
    for (int32_t i = 0; i < args->head_dim; i++) {
        result->out[i] /= weights;
        result->magnitude[i] /= weights;
    }
    result->lse = (greatest + log(weights)) / log(2);
}
