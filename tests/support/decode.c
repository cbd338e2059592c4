/* decode.c: see decode.h. Whatever a step may not touch is compared byte by byte; what it may is
 * compared with the truth within the type's precision. */
#include "tests/support/decode.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/numeric.h"
#include "tools/figraph/truth.h"

enum { Q_HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64, FFN = 48, SEQUENCES_MORE = 3 };

static const char *const stems[FIG_DECODE_KIND_COUNT] = {"gate_up", "act", "q",       "k",
                                                         "v",       "out", "k_cache", "v_cache"};

/* ---- Open ---------------------------------------------------------------------------------- */

static fig_graphs *lower(const fig_decode_options *options) {
    fig_program *program;
    fig_graphs *graphs;
    fig_spec spec = {.size = sizeof spec,
                     .dtype = options->dtype,
                     .layers = options->layers,
                     .q_heads = Q_HEADS,
                     .kv_heads = KV_HEADS,
                     .head_dim = HEAD_DIM,
                     .ffn_width = FFN,
                     .page_size = options->page_size,
                     .batch_limit = options->batch_limit,
                     .kv_limit = options->kv_limit,
                     .sequence_limit = options->batch_limit + SEQUENCES_MORE};
    fig_lower_options how = {
        .size = sizeof how, .buckets = options->buckets, .bucket_count = options->bucket_count};
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step(program);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    if (fig_graphs_lower(&graphs, program, &how) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return graphs;
}

/* A tensor's dims, dims[0] as this memory has it. */
static void dims_of(const fig_decode *d, fig_decode_kind kind, int64_t dims[4]) {
    const int64_t rows = d->spec.batch_limit;
    const int64_t all[FIG_DECODE_KIND_COUNT][4] = {
        [FIG_DECODE_GATE_UP] = {rows, 2 * FFN, 1, 1},
        [FIG_DECODE_ACT] = {rows, FFN, 1, 1},
        [FIG_DECODE_Q] = {rows, Q_HEADS, HEAD_DIM, 1},
        [FIG_DECODE_K] = {rows, KV_HEADS, HEAD_DIM, 1},
        [FIG_DECODE_V] = {rows, KV_HEADS, HEAD_DIM, 1},
        [FIG_DECODE_OUT] = {rows, Q_HEADS, HEAD_DIM, 1},
        [FIG_DECODE_K_CACHE] = {d->pages, d->page_tokens, KV_HEADS, HEAD_DIM},
        [FIG_DECODE_V_CACHE] = {d->pages, d->page_tokens, KV_HEADS, HEAD_DIM},
    };
    memcpy(dims, all[kind], sizeof all[kind]);
}

/* Elements from a tensor's start to behind its last; dims of 1 past the rank have stride 1. */
static int64_t place(fig_decode *d, int32_t layer, fig_decode_kind kind, int64_t row_stride) {
    fig_decode_tensor *tensor = &d->tensors[layer][kind];
    int64_t dims[4], end = 1;
    dims_of(d, kind, dims);
    tensor->strides[3] = 1;
    for (int i = 2; i >= 0; i--)
        tensor->strides[i] = tensor->strides[i + 1] * dims[i + 1];
    if (row_stride > 0) tensor->strides[0] = row_stride;
    for (int i = 0; i < 4; i++)
        end += (dims[i] - 1) * tensor->strides[i];
    tensor->bytes = (size_t)(end * fig_numeric_bytes(d->spec.dtype));
    snprintf(tensor->name, sizeof tensor->name, "%s.%d", stems[kind], (int)layer);
    return end;
}

/* Where a tensor begins, as an offset from memory; `step` elements after the one before. */
static size_t begin(fig_decode *d, int32_t layer, fig_decode_kind kind, size_t *end,
                    int64_t stride) {
    size_t offset = *end;
    int64_t count = place(d, layer, kind, stride);
    *end = (offset + (size_t)(count * fig_numeric_bytes(d->spec.dtype)) + 63) / 64 * 64;
    return offset;
}

/* [rows][q | k | v] and [pages][K | V], or each alone. */
static void lay_out_layer(fig_decode *d, int32_t layer, size_t offsets[], size_t *end) {
    const size_t item = (size_t)fig_numeric_bytes(d->spec.dtype);
    const int64_t row = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM;
    const int64_t page = (int64_t)d->page_tokens * KV_HEADS * HEAD_DIM;
    for (int kind = 0; kind < FIG_DECODE_KIND_COUNT; kind++)
        offsets[kind] = begin(d, layer, (fig_decode_kind)kind, end, 0);
    if (!d->options.packed) return;
    offsets[FIG_DECODE_Q] = begin(d, layer, FIG_DECODE_Q, end, row);
    place(d, layer, FIG_DECODE_K, row);
    place(d, layer, FIG_DECODE_V, row);
    offsets[FIG_DECODE_K] = offsets[FIG_DECODE_Q] + Q_HEADS * HEAD_DIM * item;
    offsets[FIG_DECODE_V] = offsets[FIG_DECODE_K] + KV_HEADS * HEAD_DIM * item;
    *end += (size_t)row * item;
    offsets[FIG_DECODE_K_CACHE] = begin(d, layer, FIG_DECODE_K_CACHE, end, 2 * page);
    place(d, layer, FIG_DECODE_V_CACHE, 2 * page);
    offsets[FIG_DECODE_V_CACHE] = offsets[FIG_DECODE_K_CACHE] + (size_t)page * item;
    *end += (size_t)page * item;
}

void fig_decode_open(fig_decode *d, const fig_decode_options *options) {
    size_t offsets[FIG_DECODE_LAYER_LIMIT][FIG_DECODE_KIND_COUNT], end = 0;
    memset(d, 0, sizeof *d);
    assert_true(options->layers <= FIG_DECODE_LAYER_LIMIT);
    d->options = *options;
    d->graphs = lower(options);
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs_read_info(d->graphs, &info);
    d->spec = *info.spec;
    d->page_tokens = d->spec.page_size > 0 ? d->spec.page_size : d->spec.kv_limit;
    d->sequence_pages = (d->spec.kv_limit - 1) / d->page_tokens + 1;
    d->pages = d->spec.sequence_limit * d->sequence_pages + (d->spec.page_size > 0 ? 5 : 0);
    for (int32_t layer = 0; layer < d->spec.layers; layer++)
        lay_out_layer(d, layer, offsets[layer], &end);
    d->memory_bytes = end;
    d->memory = aligned_alloc(64, (end + 63) / 64 * 64);
    d->before = malloc(end);
    assert_true(d->memory != NULL && d->before != NULL);
    /* All ones is NaN in every type: what nobody wrote shows in whatever reads it. */
    memset(d->memory, 0xff, end);
    for (int32_t layer = 0; layer < d->spec.layers; layer++)
        for (int kind = 0; kind < FIG_DECODE_KIND_COUNT; kind++)
            d->tensors[layer][kind].address = d->memory + offsets[layer][kind];
}

void fig_decode_close(fig_decode *d) {
    fig_graphs_destroy(d->graphs);
    free(d->memory);
    free(d->before);
    free(d->page_table);
    memset(d, 0, sizeof *d);
}

/* ---- Bind and fill ------------------------------------------------------------------------- */

fig_binding fig_decode_binding(const fig_decode *d, int32_t layer, fig_decode_kind kind) {
    const fig_decode_tensor *tensor = &d->tensors[layer][kind];
    fig_binding binding = {.size = sizeof binding,
                           .name = tensor->name,
                           .address = tensor->address,
                           .bytes = tensor->bytes};
    /* dims of 1 behind the rank are none of the binding's */
    int32_t rank = kind <= FIG_DECODE_ACT ? 2 : kind <= FIG_DECODE_OUT ? 3 : 4;
    for (int32_t i = 0; d->options.packed && i < rank; i++)
        binding.strides[i] = tensor->strides[i];
    return binding;
}

static void set_pages(fig_decode *d, fig_engine *engine) {
    const int32_t entries = d->spec.sequence_limit * d->sequence_pages;
    fig_random random = fig_random_seed(17);
    int32_t *order = malloc((size_t)d->pages * sizeof *order);
    d->page_table = realloc(d->page_table, (size_t)entries * sizeof *d->page_table);
    assert_true(order != NULL && d->page_table != NULL);
    for (int32_t i = 0; i < d->pages; i++) { /* shuffles as it fills */
        int32_t j = fig_random_range(&random, 0, i);
        order[i] = order[j];
        order[j] = i;
    }
    memcpy(d->page_table, order, (size_t)entries * sizeof *order);
    free(order);
    for (int32_t s = 0; s < d->spec.sequence_limit; s++) {
        const fig_pages pages = {.size = sizeof pages,
                                 .sequence = s,
                                 .count = d->sequence_pages,
                                 .pages = d->page_table + s * d->sequence_pages};
        if (fig_engine_set_pages(engine, &pages) != FIG_OK) fail_msg("%s", fig_message());
    }
}

void fig_decode_bind(fig_decode *d, fig_engine *engine) {
    for (int32_t layer = 0; layer < d->spec.layers; layer++)
        for (int kind = 0; kind < FIG_DECODE_KIND_COUNT; kind++) {
            const fig_binding binding = fig_decode_binding(d, layer, (fig_decode_kind)kind);
            if (fig_engine_bind(engine, &binding) != FIG_OK) fail_msg("%s", fig_message());
        }
    if (d->spec.page_size > 0) set_pages(d, engine);
}

static void fill_tensor(const fig_decode *d, const fig_decode_tensor *tensor, const int64_t dims[4],
                        fig_random *random) {
    for (int64_t row = 0; row < dims[0]; row++)
        for (int64_t i = 0; i < dims[1] * dims[2]; i++)
            fig_numeric_store(tensor->address, d->spec.dtype, row * tensor->strides[0] + i,
                              fig_random_normal(random));
}

static truth_cache truth_of(const fig_decode *d, const fig_decode_tensor *cache) {
    return (truth_cache){.base = cache->address,
                         .dtype = d->spec.dtype,
                         .page_stride = cache->strides[0],
                         .token_stride = cache->strides[1],
                         .head_stride = cache->strides[2],
                         .pages = d->pages,
                         .page_size = d->page_tokens,
                         .page_table = d->page_table,
                         .table_stride = d->sequence_pages};
}

void fig_decode_prefill(fig_decode *d, int32_t sequence, int32_t length, fig_random *random) {
    for (int32_t layer = 0; layer < d->spec.layers; layer++)
        for (int kind = FIG_DECODE_K_CACHE; kind <= FIG_DECODE_V_CACHE; kind++) {
            const fig_decode_tensor *tensor = &d->tensors[layer][kind];
            const truth_cache cache = truth_of(d, tensor);
            for (int32_t token = 0; token < length; token++) {
                int64_t at = truth_cache_offset(&cache, sequence, token);
                for (int32_t i = 0; i < KV_HEADS * HEAD_DIM; i++)
                    fig_numeric_store(tensor->address, d->spec.dtype,
                                      at + i / HEAD_DIM * tensor->strides[2] + i % HEAD_DIM,
                                      fig_random_normal(random));
            }
        }
}

void fig_decode_fill(fig_decode *d, fig_random *random) {
    static const fig_decode_kind inputs[] = {FIG_DECODE_GATE_UP, FIG_DECODE_Q, FIG_DECODE_K,
                                             FIG_DECODE_V};
    for (int32_t layer = 0; layer < d->spec.layers; layer++)
        for (int i = 0; i < 4; i++) {
            int64_t dims[4];
            dims_of(d, inputs[i], dims);
            fill_tensor(d, &d->tensors[layer][inputs[i]], dims, random);
        }
    memcpy(d->before, d->memory, d->memory_bytes);
}

/* ---- Check --------------------------------------------------------------------------------- */

/* What one layer's check looks at. `before` has the step's inputs, and takes over every byte that
 * was found right, so that what differs at the end was written by mistake. */
typedef struct checking {
    fig_decode *d;
    const fig_step *step;
    int32_t layer, row, sequence, length;
} checking;

static const fig_decode_tensor *tensor_of(const checking *c, fig_decode_kind kind) {
    return &c->d->tensors[c->layer][kind];
}

static const uint8_t *before_of(const checking *c, fig_decode_kind kind) {
    return c->d->before + (tensor_of(c, kind)->address - c->d->memory);
}

static truth_rows rows_of(const checking *c, fig_decode_kind kind, const void *base) {
    const fig_decode_tensor *tensor = tensor_of(c, kind);
    return (truth_rows){base, c->d->spec.dtype, tensor->strides[0], tensor->strides[1]};
}

static truth_cache cache_of(const checking *c, fig_decode_kind kind) {
    return truth_of(c->d, tensor_of(c, kind));
}

/* Accepts elements [at, at + count) of a tensor: right to within `units` of the type's last place
 * at the magnitude given (f32: to 2e-5 of it), and no mistake then. */
static void accept(const checking *c, fig_decode_kind kind, int64_t at, int32_t count,
                   const double *want, const double *magnitude, double units) {
    const fig_decode_tensor *tensor = tensor_of(c, kind);
    const fig_dtype dtype = c->d->spec.dtype;
    const size_t item = (size_t)fig_numeric_bytes(dtype);
    for (int32_t i = 0; i < count; i++) {
        double got = truth_load(tensor->address, dtype, at + i), m = fabs(magnitude[i]);
        double tolerance = dtype == FIG_F32 ? 2e-5 * m : units * truth_ulp(dtype, m);
        double error = fabs(got - want[i]);
        if (!(error <= tolerance))
            fail_msg(
                "%s: row %d, element %lld: %.9g, want %.9g within %.3g (sequence %d, length %d)",
                tensor->name, (int)c->row, (long long)(at + i), got, want[i], tolerance,
                (int)c->sequence, (int)c->length);
        if (tolerance > 0 && error / tolerance > c->d->worst) c->d->worst = error / tolerance;
    }
    size_t offset = (size_t)at * item + (size_t)(tensor->address - c->d->memory);
    memcpy(c->d->before + offset, c->d->memory + offset, (size_t)count * item);
}

static void check_activation(const checking *c) {
    const truth_rows in = rows_of(c, FIG_DECODE_GATE_UP, tensor_of(c, FIG_DECODE_GATE_UP)->address);
    double want[FFN];
    truth_silu_and_mul(&in, c->row, FFN, want);
    accept(c, FIG_DECODE_ACT, c->row * tensor_of(c, FIG_DECODE_ACT)->strides[0], FFN, want, want,
           1.0);
}

/* A rotated pair keeps its length, by which the error of either is judged. */
static void check_rope(const checking *c, fig_decode_kind kind, int32_t heads) {
    const fig_decode_tensor *tensor = tensor_of(c, kind);
    int32_t position = c->length > 0 ? c->length - 1 : 0;
    if (c->step->positions != NULL) position = c->step->positions[c->row];
    for (int32_t head = 0; head < heads; head++) {
        const truth_rope_args args = {.x = rows_of(c, kind, before_of(c, kind)),
                                      .rope = c->d->spec.rope,
                                      .row = c->row,
                                      .position = position,
                                      .head = head,
                                      .head_dim = HEAD_DIM};
        double want[HEAD_DIM], magnitude[HEAD_DIM];
        truth_rope(&args, want);
        for (int i = 0; i < HEAD_DIM; i++)
            magnitude[i] = hypot(want[i], want[(i + HEAD_DIM / 2) % HEAD_DIM]);
        accept(c, kind, c->row * tensor->strides[0] + head * tensor->strides[1], HEAD_DIM, want,
               magnitude, 1.0);
    }
}

/* The step's own token holds k as it was rotated, and v, bit for bit. */
static void check_append(const checking *c, fig_decode_kind kind, fig_decode_kind from) {
    const fig_decode_tensor *rows = tensor_of(c, from), *cache = tensor_of(c, kind);
    const truth_cache pages = cache_of(c, kind);
    if (c->length == 0) return;
    int64_t at = truth_cache_offset(&pages, c->sequence, c->length - 1);
    for (int32_t head = 0; head < KV_HEADS; head++) {
        double want[HEAD_DIM], exact[HEAD_DIM] = {0};
        for (int i = 0; i < HEAD_DIM; i++)
            want[i] = truth_load(rows->address, c->d->spec.dtype,
                                 c->row * rows->strides[0] + head * rows->strides[1] + i);
        accept(c, kind, at + head * cache->strides[2], HEAD_DIM, want, exact, 0.0);
    }
}

static void check_attention(const checking *c) {
    const fig_decode_tensor *out = tensor_of(c, FIG_DECODE_OUT);
    for (int32_t head = 0; head < Q_HEADS; head++) {
        const truth_attention_args args = {
            .q = rows_of(c, FIG_DECODE_Q, tensor_of(c, FIG_DECODE_Q)->address),
            .k = cache_of(c, FIG_DECODE_K_CACHE),
            .v = cache_of(c, FIG_DECODE_V_CACHE),
            .row = c->row,
            .sequence = c->sequence,
            .length = c->length,
            .q_head = head,
            .kv_head = head / (Q_HEADS / KV_HEADS),
            .head_dim = HEAD_DIM,
            .sm_scale = c->d->spec.sm_scale};
        truth_attention_result want;
        truth_attention(&args, &want);
        accept(c, FIG_DECODE_OUT, c->row * out->strides[0] + head * out->strides[1], HEAD_DIM,
               want.out, want.magnitude, 2.0);
    }
}

/* Rows past the step's may hold anything; caches are not of rows. */
static void ignore_rows(const checking *c, int32_t first) {
    static const fig_decode_kind kinds[] = {FIG_DECODE_ACT, FIG_DECODE_Q, FIG_DECODE_K,
                                            FIG_DECODE_OUT};
    const int64_t item = fig_numeric_bytes(c->d->spec.dtype);
    for (int k = 0; k < 4; k++) {
        int64_t dims[4];
        const fig_decode_tensor *tensor = tensor_of(c, kinds[k]);
        dims_of(c->d, kinds[k], dims);
        for (int64_t row = first; row < dims[0]; row++) {
            size_t offset = (size_t)(row * tensor->strides[0] * item) +
                            (size_t)(tensor->address - c->d->memory);
            memcpy(c->d->before + offset, c->d->memory + offset,
                   (size_t)(dims[1] * dims[2] * item));
        }
    }
}

static void check_unchanged(const fig_decode *d) {
    for (size_t i = 0; i < d->memory_bytes; i++) {
        if (d->memory[i] == d->before[i]) continue;
        const char *name = "no tensor";
        size_t nearest = d->memory_bytes;
        for (int32_t layer = 0; layer < d->spec.layers; layer++)
            for (int kind = 0; kind < FIG_DECODE_KIND_COUNT; kind++) {
                size_t offset = (size_t)(d->tensors[layer][kind].address - d->memory);
                if (offset > i || i - offset >= nearest) continue;
                nearest = i - offset;
                name = d->tensors[layer][kind].name;
            }
        fail_msg("%s: byte %zu was 0x%02x and became 0x%02x", name, nearest, d->before[i],
                 d->memory[i]);
    }
}

void fig_decode_check(fig_decode *d, const fig_step *step) {
    for (int32_t layer = 0; layer < d->spec.layers; layer++) {
        checking c = {.d = d, .step = step, .layer = layer};
        for (c.row = 0; c.row < step->rows; c.row++) {
            c.sequence = step->sequences != NULL ? step->sequences[c.row] : c.row;
            c.length = step->kv_lengths[c.row];
            check_activation(&c);
            check_rope(&c, FIG_DECODE_Q, Q_HEADS);
            check_rope(&c, FIG_DECODE_K, KV_HEADS);
            check_append(&c, FIG_DECODE_K_CACHE, FIG_DECODE_K);
            check_append(&c, FIG_DECODE_V_CACHE, FIG_DECODE_V);
        }
        for (c.row = 0; c.row < step->rows; c.row++) {
            c.sequence = step->sequences != NULL ? step->sequences[c.row] : c.row;
            c.length = step->kv_lengths[c.row];
            check_attention(&c);
        }
        ignore_rows(&c, step->rows);
    }
    check_unchanged(d);
}
