/* decode_check.c: checks the results of a decode step.
 *
 * Bytes that a step must not change are compared exactly. All others are compared with the truth,
 * within their type's precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "planner/spec/spec.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/worst.h"

enum {
    Q_HEADS = FIG_DECODE_Q_HEADS,
    KV_HEADS = FIG_DECODE_KV_HEADS,
    HEAD_DIM = FIG_DECODE_HEAD_DIM,
    FFN = FIG_DECODE_FFN
};

/* The check of one layer. `before` holds the step's inputs, and every byte that was found right is
 * copied into it. A byte that still differs at the end was written by mistake. */
typedef struct checking {
    fig_decode *d;
    const fig_step *step;
    int32_t layer, row, sequence, length;
    int32_t queries, query; /* how many queries the row has, and which of them this is */
    int64_t number;         /* which of all rows' queries this is */
} checking;

/* The names under which worst.h notes the operations that write each tensor. Errors in a step have
 * names of their own, since a step may lose more precision than a single kernel. */
static const char *const writers[FIG_DECODE_KIND_COUNT] = {[FIG_DECODE_ACT] = "step:gated",
                                                           [FIG_DECODE_Q] = "step:rope",
                                                           [FIG_DECODE_K] = "step:rope",
                                                           [FIG_DECODE_OUT] = "step:attention",
                                                           [FIG_DECODE_K_CACHE] = "step:append_kv",
                                                           [FIG_DECODE_V_CACHE] = "step:append_kv"};

static const fig_decode_tensor *tensor_of(const checking *c, fig_decode_kind kind) {
    return &c->d->tensors[c->layer][kind];
}

static const uint8_t *before_of(const checking *c, fig_decode_kind kind) {
    return c->d->before + (tensor_of(c, kind)->address - c->d->memory);
}

static truth_rows rows_of(const checking *c, fig_decode_kind kind, const void *base) {
    const fig_decode_tensor *tensor = tensor_of(c, kind);
    return (truth_rows){base, tensor->dtype, tensor->strides[0], tensor->strides[1]};
}

/* Returns how many queries come after this one in its row. */
static int32_t behind(const checking *c) {
    return c->queries - 1 - c->query;
}

/* Returns the cache's scale for a kv head, or 1 if the cache has no scale. */
static double scale_of(const checking *c, fig_decode_kind kind, int32_t kv_head) {
    const fig_decode_tensor *scale = tensor_of(c, kind);
    if (scale->address == NULL) return 1;
    return truth_load(scale->address, FIG_F32, scale->dims[0] > 1 ? kv_head : 0);
}

/* Checks elements [at, at + count) of a tensor, and marks them as right. The tolerance is `units`
 * units in the last place of the type at the given magnitude. In f32 it is 2e-5 of the
 * magnitude. */
static void accept(const checking *c, fig_decode_kind kind, int64_t at, int32_t count,
                   const double *want, const double *magnitude, double units) {
    const fig_decode_tensor *tensor = tensor_of(c, kind);
    const fig_dtype dtype = tensor->dtype;
    const size_t item = (size_t)fig_numeric_bytes((int32_t)dtype);
    for (int32_t i = 0; i < count; i++) {
        double got = truth_load(tensor->address, dtype, at + i), m = fabs(magnitude[i]);
        double tolerance = units * truth_ulp(dtype, m);
        if (dtype == FIG_F32 && units > 0) tolerance = 2e-5 * m;
        double error = fabs(got - want[i]);
        if (!(error <= tolerance))
            fail_msg("%s: row %d, query %d, element %lld: %.9g, want %.9g within %.3g (sequence "
                     "%d, length %d)",
                     tensor->name, (int)c->row, (int)c->query, (long long)(at + i), got, want[i],
                     tolerance, (int)c->sequence, (int)c->length);
        fig_worst_note(writers[kind], dtype, error, tolerance);
        if (tolerance > 0 && error / tolerance > c->d->worst) c->d->worst = error / tolerance;
    }
    size_t offset = (size_t)at * item + (size_t)(tensor->address - c->d->memory);
    memcpy(c->d->before + offset, c->d->memory + offset, (size_t)count * item);
}

static void check_activation(const checking *c) {
    const truth_gated_args args = {
        .in = rows_of(c, FIG_DECODE_GATE_UP, tensor_of(c, FIG_DECODE_GATE_UP)->address),
        .activation = c->d->spec.activation,
        .row = c->number,
        .width = FFN};
    double want[FFN];
    truth_gated(&args, want);
    accept(c, FIG_DECODE_ACT, c->number * tensor_of(c, FIG_DECODE_ACT)->strides[0], FFN, want, want,
           1.0);
}

/* Returns 1 if the step left a head unrotated in memory, because attention rotated its own copy. In
 * that case, stores the true rotation in the head, for later comparisons with it. */
static int was_left(const checking *c, fig_decode_kind kind, int64_t at, const double *want) {
    const fig_decode_tensor *tensor = tensor_of(c, kind);
    const size_t item = (size_t)fig_numeric_bytes((int32_t)tensor->dtype);
    const size_t offset = (size_t)at * item;
    float turned[HEAD_DIM];
    if (memcmp(tensor->address + offset, before_of(c, kind) + offset, HEAD_DIM * item) != 0)
        return 0;
    for (int i = 0; i < HEAD_DIM; i++)
        turned[i] = (float)want[i];
    fig_numeric_store_row(tensor->address, (int32_t)tensor->dtype, at, turned, HEAD_DIM);
    return 1;
}

/* RoPE keeps the length of a pair, so an element's error is measured relative to its pair's length.
 * The error of an element that does not rotate is relative to that element. Returns 1 if all heads
 * were left unrotated. */
static int check_rope(const checking *c, fig_decode_kind kind, int32_t heads) {
    const fig_decode_tensor *tensor = tensor_of(c, kind);
    const fig_decode_kind norm = kind == FIG_DECODE_Q ? FIG_DECODE_Q_NORM : FIG_DECODE_K_NORM;
    const int32_t turned = c->d->spec.rope.rotary_dim;
    int32_t position = c->length > 0 ? c->length - 1 : 0;
    if (c->step->positions != NULL) position = c->step->positions[c->row];
    int left = 1;
    /* The position of an idle row stays at 0. */
    position = position > behind(c) ? position - behind(c) : 0;
    for (int32_t head = 0; head < heads; head++) {
        const truth_rope_args args = {.x = rows_of(c, kind, before_of(c, kind)),
                                      .rope = c->d->spec.rope,
                                      .row = c->number,
                                      .position = position,
                                      .head = head,
                                      .head_dim = HEAD_DIM,
                                      .norm = tensor_of(c, norm)->address,
                                      .norm_epsilon = (double)c->d->spec.qk_norm_epsilon};
        double want[HEAD_DIM], magnitude[HEAD_DIM];
        truth_rope(&args, want);
        for (int32_t i = 0; i < HEAD_DIM; i++) {
            int32_t other = args.rope.interleaved ? i ^ 1 : (i + turned / 2) % turned;
            magnitude[i] = i < turned ? hypot(want[i], want[other]) : want[i];
        }
        const int64_t at = c->number * tensor->strides[0] + head * tensor->strides[1];
        left &= was_left(c, kind, at, want);
        accept(c, kind, at, HEAD_DIM, want, magnitude, 1.0);
    }
    return left;
}

static double greatest_of(fig_dtype dtype) {
    return dtype == FIG_E4M3 ? 448 : dtype == FIG_E5M2 ? 57344 : INFINITY;
}

/* Checks that the cache holds the step's own token: the rotated k, or v, either bit for bit or
 * rounded to fp8 once. known 0: attention did not write the rotated k back, so the cached k may be
 * off by a further unit, at a magnitude of at least 1/HEAD_DIM of its vector's length. */
static void check_append(const checking *c, fig_decode_kind kind, fig_decode_kind from, int known) {
    const fig_decode_tensor *rows = tensor_of(c, from), *cache = tensor_of(c, kind);
    const truth_cache pages = fig_decode_cache(c->d, cache);
    const int exact = cache->dtype == rows->dtype;
    const double greatest = greatest_of(cache->dtype);
    const double more = known ? 0.0 : exact ? 1.0 : 0x1p-4;
    if (c->length == 0) return;
    if (c->step->row_tokens != NULL && behind(c) >= c->step->row_tokens[c->row]) return;
    int64_t at = truth_cache_offset(&pages, c->sequence, c->length - 1 - behind(c));
    for (int32_t head = 0; head < KV_HEADS; head++) {
        const double scale =
            scale_of(c, kind == FIG_DECODE_K_CACHE ? FIG_DECODE_K_SCALE : FIG_DECODE_V_SCALE, head);
        double want[HEAD_DIM], magnitude[HEAD_DIM], length = 0;
        for (int i = 0; i < HEAD_DIM; i++) {
            double x = truth_load(rows->address, rows->dtype,
                                  c->number * rows->strides[0] + head * rows->strides[1] + i);
            want[i] = exact ? x : fmax(-greatest, fmin(greatest, x / scale));
            length = hypot(length, want[i]);
        }
        for (int i = 0; i < HEAD_DIM; i++)
            magnitude[i] = known ? want[i] : fmax(fabs(want[i]), fmin(length, greatest) / HEAD_DIM);
        accept(c, kind, at + head * cache->strides[2], HEAD_DIM, want, magnitude,
               (exact ? 0.0 : 0.5 + 0x1p-20) + more);
    }
}

static void check_attention(const checking *c) {
    const fig_decode_tensor *out = tensor_of(c, FIG_DECODE_OUT);
    for (int32_t head = 0; head < Q_HEADS; head++) {
        const int32_t kv_head = head / (Q_HEADS / KV_HEADS);
        const truth_attention_args args = {
            .q = rows_of(c, FIG_DECODE_Q, tensor_of(c, FIG_DECODE_Q)->address),
            .k = fig_decode_cache(c->d, tensor_of(c, FIG_DECODE_K_CACHE)),
            .v = fig_decode_cache(c->d, tensor_of(c, FIG_DECODE_V_CACHE)),
            .row = c->number,
            .sequence = c->sequence,
            .length = c->length > 0 ? c->length - behind(c) : 0,
            .q_head = head,
            .kv_head = kv_head,
            .head_dim = HEAD_DIM,
            .window = fig_spec_layer_window(&c->d->spec, c->layer),
            .sm_scale = (double)c->d->spec.sm_scale,
            .soft_cap = (double)c->d->spec.soft_cap,
            .k_scale = scale_of(c, FIG_DECODE_K_SCALE, kv_head),
            .v_scale = scale_of(c, FIG_DECODE_V_SCALE, kv_head)};
        truth_attention_result want;
        truth_attention(&args, &want);
        accept(c, FIG_DECODE_OUT, c->number * out->strides[0] + head * out->strides[1], HEAD_DIM,
               want.out, want.magnitude, 2.0);
    }
}

/* Accepts any contents of rows after the step's last. Caches have no such rows. */
static void ignore_rows(const checking *c, int64_t queries) {
    static const fig_decode_kind kinds[] = {FIG_DECODE_ACT, FIG_DECODE_Q, FIG_DECODE_K,
                                            FIG_DECODE_OUT};
    for (int k = 0; k < 4; k++) {
        const fig_decode_tensor *tensor = tensor_of(c, kinds[k]);
        const int64_t item = fig_numeric_bytes((int32_t)tensor->dtype);
        for (int64_t row = queries; row < tensor->dims[0]; row++) {
            size_t offset = (size_t)(row * tensor->strides[0] * item) +
                            (size_t)(tensor->address - c->d->memory);
            memcpy(c->d->before + offset, c->d->memory + offset,
                   (size_t)(tensor->dims[1] * tensor->dims[2] * item));
        }
    }
}

static void check_unchanged(const fig_decode *d) {
    if (memcmp(d->memory, d->before, d->memory_bytes) == 0) return;
    for (size_t i = 0; i < d->memory_bytes; i++) {
        if (d->memory[i] == d->before[i]) continue;
        const char *name = "no tensor";
        size_t nearest = d->memory_bytes;
        for (int32_t layer = 0; layer < d->spec.layers; layer++)
            for (int kind = 0; kind < FIG_DECODE_KIND_COUNT; kind++) {
                if (d->tensors[layer][kind].address == NULL) continue;
                size_t offset = (size_t)(d->tensors[layer][kind].address - d->memory);
                if (offset > i || i - offset >= nearest) continue;
                nearest = i - offset;
                name = d->tensors[layer][kind].name;
            }
        fail_msg("%s: byte %zu was 0x%02x and became 0x%02x", name, nearest, d->before[i],
                 d->memory[i]);
    }
}

static void check_query(const checking *c) {
    check_activation(c);
    check_rope(c, FIG_DECODE_Q, Q_HEADS);
    const int left = check_rope(c, FIG_DECODE_K, KV_HEADS);
    check_append(c, FIG_DECODE_K_CACHE, FIG_DECODE_K, !left);
    check_append(c, FIG_DECODE_V_CACHE, FIG_DECODE_V, 1);
}

static void check_queries(checking *c, int32_t row, void (*check)(const checking *c)) {
    c->row = row;
    c->sequence = c->step->sequences != NULL ? c->step->sequences[row] : row;
    c->length = c->step->kv_lengths[row];
    c->queries = fig_decode_queries(c->d, c->step, row);
    for (c->query = 0; c->query < c->queries; c->query++) {
        c->number = fig_decode_first_query(c->d, c->step, row) + c->query;
        check(c);
    }
}

void fig_decode_check(fig_decode *d, const fig_step *step) {
    for (int32_t layer = 0; layer < d->spec.layers; layer++) {
        checking c = {.d = d, .step = step, .layer = layer};
        for (int32_t row = 0; row < step->rows; row++)
            check_queries(&c, row, check_query);
        for (int32_t row = 0; row < step->rows; row++)
            check_queries(&c, row, check_attention);
        ignore_rows(&c, fig_decode_first_query(d, step, step->rows));
    }
    check_unchanged(d);
}

void fig_decode_check_row(fig_decode *d, const fig_step *step, int32_t row) {
    for (int32_t layer = 0; layer < d->spec.layers; layer++) {
        checking c = {.d = d, .step = step, .layer = layer};
        check_queries(&c, row, check_query);
        check_queries(&c, row, check_attention);
    }
}
