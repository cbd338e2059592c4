/* truth.c: computes the operations in float64, one element after another.
 *
 * Speed is left to the kernels, and tolerances to the callers. Invariant: if a formula of figraph.h
 * has cases, the code has the same cases under the same names. */
#include "tools/figraph/truth/truth.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

/* Puts the sign, exponent and mantissa of a code at the places where a double has them. The
 * result is too small by the difference of the two biases; a multiplication corrects this
 * exactly, for subnormals too. Codes from `special` on, without the sign, are not finite
 * numbers. */
static double widen(uint32_t sign, uint32_t magnitude, uint32_t special, int mantissa_bits,
                    double bias) {
    uint64_t bits = (uint64_t)magnitude << (52 - mantissa_bits);
    bits |= magnitude >= special ? UINT64_C(0x7ff) << 52 : 0;
    bits |= (uint64_t)sign << 63;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x * bias;
}

/* f16 has a sign, 5 exponent bits and 10 mantissa bits, as in IEEE 754. */
static double of_f16(uint16_t code) {
    return widen(code >> 15, code & 0x7fff, 0x7c00, 10, 0x1p1008);
}

/* bf16 is the upper half of an f32. */
static double of_bf16(uint16_t code) {
    const uint32_t bits = (uint32_t)code << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e4m3 has a sign, 4 exponent bits and 3 mantissa bits; all ones is NaN, and there is no
 * infinity. */
static double of_e4m3(uint8_t code) {
    return widen(code >> 7, code & 0x7f, 0x7f, 3, 0x1p1016);
}

/* e5m2 has a sign, 5 exponent bits and 2 mantissa bits, in the manner of IEEE 754. */
static double of_e5m2(uint8_t code) {
    return widen(code >> 7, code & 0x7f, 0x7c, 2, 0x1p1008);
}

/* Each type has its own loop, so that the compiler can vectorize it. A cache that holds codes and
 * numbers side by side has them at any address, so memcpy() reads them. */
#define LOAD_ROW(type, read)                                                                       \
    for (int32_t i = 0; i < count; i++) {                                                          \
        type code;                                                                                 \
        memcpy(&code, (const char *)array + (first + i) * (int64_t)sizeof code, sizeof code);      \
        out[i] = read(code);                                                                       \
    }                                                                                              \
    break

void truth_load_row(const void *array, fig_dtype dtype, int64_t first, int32_t count, double *out) {
    switch (dtype) {
    case FIG_F32: LOAD_ROW(float, (double));
    case FIG_F16: LOAD_ROW(uint16_t, of_f16);
    case FIG_BF16: LOAD_ROW(uint16_t, of_bf16);
    case FIG_E4M3: LOAD_ROW(uint8_t, of_e4m3);
    case FIG_E5M2: LOAD_ROW(uint8_t, of_e5m2);
    case FIG_I32: LOAD_ROW(int32_t, (double));
    case FIG_I64: LOAD_ROW(int64_t, (double));
    }
}

double truth_load(const void *array, fig_dtype dtype, int64_t index) {
    double x = NAN;
    truth_load_row(array, dtype, index, 1, &x);
    return x;
}

/* The mantissa bits and the least exponent of a type's normal numbers. */
typedef struct float_form {
    int mantissa_bits, least_exponent;
} float_form;

static float_form form_of(fig_dtype dtype) {
    switch (dtype) {
    case FIG_F16: return (float_form){10, -14};
    case FIG_BF16: return (float_form){7, -126};
    case FIG_E4M3: return (float_form){3, -6};
    case FIG_E5M2: return (float_form){2, -14};
    default: return (float_form){23, -126};
    }
}

/* The unit is 2 to the power e - mantissa_bits, where e is the exponent of x but at least the
 * least exponent of the type. */
double truth_ulp(fig_dtype dtype, double x) {
    const float_form form = form_of(dtype);
    uint64_t bits;
    double ulp;
    if (isinf(x)) return INFINITY;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    if (exponent < form.least_exponent || isnan(x)) exponent = form.least_exponent;
    bits = (uint64_t)(exponent - form.mantissa_bits + 1023) << 52;
    memcpy(&ulp, &bits, sizeof ulp);
    return ulp;
}

/* The codes of positive numbers are in the order of the numbers. So a mantissa that is rounded
 * up to the next power of two carries into the exponent, and the greatest number carries into
 * infinity. */
void truth_store(void *array, fig_dtype dtype, int64_t index, double x) {
    const float_form form = form_of(dtype);
    /* at most the number that infinity's code would encode if it were finite */
    const double magnitude = fmin(fabs(x), ldexp(1, 2 - form.least_exponent));
    const double ulp = truth_ulp(dtype, magnitude);
    const int exponent = ilogb(ulp) + form.mantissa_bits - form.least_exponent;
    const uint32_t mantissa = (uint32_t)nearbyint(magnitude / ulp);
    const uint32_t code = ((uint32_t)exponent << form.mantissa_bits) + mantissa;
    if (dtype == FIG_F32) {
        const uint32_t word = code | (uint32_t)(signbit(x) != 0) << 31;
        memcpy((char *)array + index * 4, &word, sizeof word);
    } else {
        const uint16_t half = (uint16_t)(code | (uint32_t)(signbit(x) != 0) << 15);
        memcpy((char *)array + index * 2, &half, sizeof half);
    }
}

static double activate(fig_activation activation, double x) {
    switch (activation) {
    case FIG_SILU: return x / (1 + exp(-x));
    case FIG_GELU: return x * erfc(-x / sqrt(2)) / 2;
    case FIG_GELU_TANH:
        /* x * (1 + tanh(y)) / 2, in a form of exp() that keeps its digits if y is far below 0 */
        return x / (1 + exp(-2 * sqrt(2 / PI) * (x + 0.044715 * x * x * x)));
    case FIG_SWIGLU_LIMITED:
        if (x > 7) x = 7;
        return x / (1 + exp(-1.702 * x));
    }
    return NAN;
}

/* Returns the factor that the activation is multiplied by. */
static double beside(fig_activation activation, double up) {
    if (activation != FIG_SWIGLU_LIMITED) return up;
    return 1 + (up > 7 ? 7 : up < -7 ? -7 : up);
}

void truth_gated(const truth_gated_args *args, double *out) {
    const truth_rows *in = &args->in;
    for (int32_t i = 0; i < args->width; i++) {
        double gate = truth_load(in->base, in->dtype, args->row * in->row_stride + i);
        double up = truth_load(in->base, in->dtype, args->row * in->row_stride + args->width + i);
        out[i] = activate(args->activation, gate) * beside(args->activation, up);
    }
}

/* Computes x / sqrt(mean(x^2) + epsilon) * (weight + offset) in place. */
static void normalise(double *x, int32_t width, double epsilon, const void *weight, fig_dtype dtype,
                      double offset) {
    double sum = 0;
    for (int32_t i = 0; i < width; i++)
        sum += x[i] * x[i];
    const double root = sqrt(sum / width + epsilon);
    for (int32_t i = 0; i < width; i++)
        x[i] *= (truth_load(weight, dtype, i) + offset) / root;
}

void truth_rms_norm(const truth_rms_norm_args *args, double *out) {
    const truth_rows *x = &args->x;
    truth_load_row(x->base, x->dtype, args->row * x->row_stride, args->width, out);
    normalise(out, args->width, args->epsilon, args->weight, x->dtype, args->weight_offset);
}

static double frequency_of(const fig_rope_spec *rope, int32_t i) {
    double frequency = pow(rope->theta, -2.0 * i / rope->rotary_dim);
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

void truth_rope_turns(const truth_rope_args *args, double *turns) {
    const int32_t half = args->rope.rotary_dim / 2;
    const fig_rope_table *table = args->table;
    const int has_table = table != NULL && table->frequencies[0] > 0;
    const double factor = has_table ? table->factor : 1;
    for (int32_t i = 0; i < half; i++) {
        double angle = (double)args->position *
                       (has_table ? table->frequencies[i] : frequency_of(&args->rope, i));
        turns[2 * i] = args->cos_sin != NULL ? args->cos_sin[i] : factor * cos(angle);
        turns[2 * i + 1] = args->cos_sin != NULL ? args->cos_sin[half + i] : factor * sin(angle);
    }
}

void truth_rope(const truth_rope_args *args, double *out) {
    const truth_rows *x = &args->x;
    const int64_t offset = args->row * x->row_stride + args->head * x->head_stride;
    const int32_t half = args->rope.rotary_dim / 2;
    const double *turns = args->turns;
    double own[TRUTH_HEAD_DIM_LIMIT];
    if (turns == NULL) {
        truth_rope_turns(args, own);
        turns = own;
    }
    truth_load_row(x->base, x->dtype, offset, args->head_dim, out);
    if (args->norm != NULL)
        normalise(out, args->head_dim, args->norm_epsilon, args->norm, x->dtype, 0);
    for (int32_t i = 0; i < half; i++) {
        int32_t first = args->rope.interleaved ? 2 * i : i;
        int32_t second = args->rope.interleaved ? 2 * i + 1 : i + half;
        double cosine = turns[2 * i], sine = turns[2 * i + 1];
        double a = out[first], b = out[second];
        out[first] = a * cosine - b * sine;
        out[second] = b * cosine + a * sine;
    }
}

void truth_merge_states(const truth_merge_args *args, truth_merge_result *result) {
    double greatest = fmax(args->lse_a, args->lse_b);
    double weight_a = args->lse_a == -INFINITY ? 0 : exp2(args->lse_a - greatest);
    double weight_b = args->lse_b == -INFINITY ? 0 : exp2(args->lse_b - greatest);
    const truth_rows *x = &args->a, *y = &args->b;
    int64_t x_offset = args->row * x->row_stride + args->head * x->head_stride;
    int64_t y_offset = args->row * y->row_stride + args->head * y->head_stride;
    for (int32_t i = 0; i < args->head_dim; i++) {
        double a = truth_load(x->base, x->dtype, x_offset + i);
        double b = truth_load(y->base, y->dtype, y_offset + i);
        if (weight_a == 0) a = 0;
        if (weight_b == 0) b = 0;
        double weights = weight_a + weight_b == 0 ? 1 : weight_a + weight_b;
        result->out[i] = (weight_a * a + weight_b * b) / weights;
        result->magnitude[i] = (weight_a * fabs(a) + weight_b * fabs(b)) / weights;
    }
    result->lse = greatest + log2(weight_a + weight_b);
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
