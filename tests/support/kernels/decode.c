/* decode.c: makes a decode step's graphs and memory, and fills the memory; decode_check.c checks
 * the results of a step.
 *
 * Invariant: all tensors are in one block of memory, so that one copy keeps every byte. */
#include "tests/support/kernels/decode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "tests/support/place.h"

enum {
    Q_HEADS = FIG_DECODE_Q_HEADS,
    KV_HEADS = FIG_DECODE_KV_HEADS,
    HEAD_DIM = FIG_DECODE_HEAD_DIM,
    FFN = FIG_DECODE_FFN,
    SEQUENCES_MORE = 3
};

static const char *const stems[FIG_DECODE_KIND_COUNT] = {"gate_up", "act",     "q",       "k",
                                                         "v",       "out",     "k_cache", "v_cache",
                                                         "k_scale", "v_scale", "q_norm",  "k_norm"};

/* ---- Open ---------------------------------------------------------------------------------- */

static fig_spec spec_of(const fig_decode_options *options) {
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = options->dtype,
                      .kv_dtype = options->kv_dtype,
                      .layers = options->layers,
                      .q_heads = Q_HEADS,
                      .kv_heads = KV_HEADS,
                      .head_dim = HEAD_DIM,
                      .ffn_width = FFN,
                      .activation = options->activation,
                      .page_size = options->page_size,
                      .kv_layout = options->kv_layout,
                      .kv_scales = options->kv_scales,
                      .batch_limit = options->batch_limit,
                      .kv_limit = options->kv_limit,
                      .sequence_limit = options->batch_limit + SEQUENCES_MORE,
                      .row_tokens = options->row_tokens,
                      .query_limit = options->query_limit,
                      .soft_cap = options->soft_cap,
                      .window = options->window,
                      .window_layers = {options->window_layers},
                      .qk_norm_epsilon = options->qk_norm_epsilon,
                      .rope = options->rope};
}

static fig_tensor record_rows(fig_program *program, const char *name, int64_t rows) {
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_I32, .rank = 1, .dims = {rows}));
}

static fig_graphs *lower(const fig_decode_options *options) {
    fig_program *program;
    fig_graphs *graphs;
    const fig_spec spec = spec_of(options);
    fig_lower_options how = {.size = sizeof how,
                             .traits = fig_place_traits(),
                             .buckets = options->buckets,
                             .bucket_count = options->bucket_count,
                             .deterministic = options->deterministic};
    if (fig_program_create(&program, &spec) != FIG_OK) fail_msg("%s", fig_message());
    if (options->reads_lengths) {
        const fig_tensor lengths = record_rows(program, "lengths", FIG_DIM_BATCH);
        const fig_tensor positions = record_rows(program, "positions", FIG_DIM_BATCH);
        if (options->query_limit > 0) {
            fig_program_read_queries(
                program, lengths, positions,
                record_rows(program, "query_starts", options->batch_limit + 1));
        } else {
            fig_program_read_lengths(program, lengths, positions);
        }
    }
    fig_program_decode_step(program);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_graphs_lower(&graphs, program, &how) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return graphs;
}

/* Describes a tensor: its dtype and its dims, with the number of rows or pages that this memory has
 * as dims[0]. Rank 0: the step has no such tensor. */
static void describe(const fig_decode *d, fig_decode_kind kind, fig_decode_tensor *tensor) {
    const int64_t rows = d->spec.query_limit > 0
                             ? d->spec.query_limit
                             : (int64_t)d->spec.batch_limit * d->spec.row_tokens;
    const int64_t scales = d->spec.kv_scales ? KV_HEADS : 1;
    const int fp8 = d->spec.kv_dtype == FIG_E4M3 || d->spec.kv_dtype == FIG_E5M2;
    const int norms = d->spec.qk_norm_epsilon > 0;
    const struct {
        int64_t dims[4];
        fig_dtype dtype;
        int there;
    } all[FIG_DECODE_KIND_COUNT] = {
        [FIG_DECODE_GATE_UP] = {{rows, 2 * FFN}, d->spec.dtype, 1},
        [FIG_DECODE_ACT] = {{rows, FFN}, d->spec.dtype, 1},
        [FIG_DECODE_Q] = {{rows, Q_HEADS, HEAD_DIM}, d->spec.dtype, 1},
        [FIG_DECODE_K] = {{rows, KV_HEADS, HEAD_DIM}, d->spec.dtype, 1},
        [FIG_DECODE_V] = {{rows, KV_HEADS, HEAD_DIM}, d->spec.dtype, 1},
        [FIG_DECODE_OUT] = {{rows, Q_HEADS, HEAD_DIM}, d->spec.dtype, 1},
        [FIG_DECODE_K_CACHE] = {{d->pages, d->page_tokens, KV_HEADS, HEAD_DIM},
                                d->spec.kv_dtype,
                                1},
        [FIG_DECODE_V_CACHE] = {{d->pages, d->page_tokens, KV_HEADS, HEAD_DIM},
                                d->spec.kv_dtype,
                                1},
        [FIG_DECODE_K_SCALE] = {{scales}, FIG_F32, fp8},
        [FIG_DECODE_V_SCALE] = {{scales}, FIG_F32, fp8},
        [FIG_DECODE_Q_NORM] = {{HEAD_DIM}, d->spec.dtype, norms},
        [FIG_DECODE_K_NORM] = {{HEAD_DIM}, d->spec.dtype, norms},
    };
    *tensor = (fig_decode_tensor){.dtype = all[kind].dtype};
    for (int i = 0; i < 4; i++) {
        tensor->dims[i] = all[kind].dims[i] > 0 ? all[kind].dims[i] : 1;
        tensor->rank += all[kind].there && all[kind].dims[i] > 0;
    }
}

/* Sets a tensor's strides. Returns the number of elements from its first to its last. Dims of 1
 * past the rank have stride 1. */
static int64_t place(fig_decode *d, int32_t layer, fig_decode_kind kind, int64_t row_stride) {
    fig_decode_tensor *tensor = &d->tensors[layer][kind];
    int64_t end = 1, page = 1;
    describe(d, kind, tensor);
    const int heads_first = tensor->rank == 4 && d->spec.kv_layout == FIG_HND;
    const int order[4] = {3, heads_first ? 1 : 2, heads_first ? 2 : 1, 0};
    for (int i = 0; i < 4; i++) {
        tensor->strides[order[i]] = page;
        page *= tensor->dims[order[i]];
    }
    if (row_stride > 0) tensor->strides[0] = row_stride;
    for (int i = 0; i < 4; i++)
        end += (tensor->dims[i] - 1) * tensor->strides[i];
    tensor->bytes = (size_t)(end * fig_numeric_bytes((int32_t)tensor->dtype));
    tensor->layer = layer;
    snprintf(tensor->name, sizeof tensor->name, "%s.%d", stems[kind], (int)layer);
    return end;
}

/* Returns the offset in the memory where a tensor begins. Rows are `stride` elements apart. */
static size_t begin(fig_decode *d, int32_t layer, fig_decode_kind kind, size_t *end,
                    int64_t stride) {
    size_t offset = *end;
    place(d, layer, kind, stride);
    *end = (offset + d->tensors[layer][kind].bytes + 63) / 64 * 64;
    return offset;
}

/* Lays out [rows][q | k | v] and [pages][K | V], or each tensor separately. */
static void lay_out_layer(fig_decode *d, int32_t layer, size_t offsets[], size_t *end) {
    const size_t item = (size_t)fig_numeric_bytes((int32_t)d->spec.dtype);
    const size_t kv_item = (size_t)fig_numeric_bytes((int32_t)d->spec.kv_dtype);
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
    offsets[FIG_DECODE_V_CACHE] = offsets[FIG_DECODE_K_CACHE] + (size_t)page * kv_item;
    *end += (size_t)page * kv_item;
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
    d->memory = fig_place_allocate(end);
    d->before = malloc(end);
    d->lengths = fig_place_allocate(3 * 64 * (size_t)d->spec.batch_limit);
    assert_true(d->memory != NULL && d->before != NULL && d->lengths != NULL);
    d->positions = d->lengths + 16 * d->spec.batch_limit;
    d->query_starts = d->positions + 16 * d->spec.batch_limit;
    for (int32_t layer = 0; layer < d->spec.layers; layer++)
        for (int kind = 0; kind < FIG_DECODE_KIND_COUNT; kind++)
            if (d->tensors[layer][kind].rank > 0)
                d->tensors[layer][kind].address = d->memory + offsets[layer][kind];
}

void fig_decode_close(fig_decode *d) {
    fig_graphs_destroy(d->graphs);
    fig_place_free(d->memory);
    free(d->before);
    fig_place_free(d->lengths);
    free(d->page_table);
    free(d->window_table);
    memset(d, 0, sizeof *d);
}

/* ---- Bind ---------------------------------------------------------------------------------- */

fig_binding fig_decode_binding(const fig_decode *d, int32_t layer, fig_decode_kind kind) {
    const fig_decode_tensor *tensor = &d->tensors[layer][kind];
    fig_binding binding = {.size = sizeof binding,
                           .name = tensor->name,
                           .address = tensor->address,
                           .bytes = tensor->bytes};
    for (int32_t i = 0; d->options.packed && i < tensor->rank; i++)
        binding.strides[i] = tensor->strides[i];
    return binding;
}

static void send_pages(const fig_decode *d, fig_engine *engine, int32_t sequence,
                       const int32_t *table) {
    const fig_pages pages = {.size = sizeof pages,
                             .sequence = sequence,
                             .count = d->sequence_pages,
                             .pages = table + sequence * d->sequence_pages,
                             .table =
                                 table == d->window_table ? "page_table.window" : "page_table"};
    if (fig_engine_set_pages(engine, &pages) != FIG_OK) fail_msg("%s", fig_message());
}

static void set_pages(fig_decode *d, fig_engine *engine, int32_t **table, uint64_t seed) {
    const int32_t entries = d->spec.sequence_limit * d->sequence_pages;
    fig_random random = fig_random_seed(seed);
    int32_t *order = malloc((size_t)d->pages * sizeof *order);
    *table = realloc(*table, (size_t)entries * sizeof **table);
    assert_true(order != NULL && *table != NULL);
    for (int32_t i = 0; i < d->pages; i++) { /* shuffles while it fills the array */
        int32_t j = fig_random_range(&random, 0, i);
        order[i] = order[j];
        order[j] = i;
    }
    memcpy(*table, order, (size_t)entries * sizeof *order);
    free(order);
    for (int32_t s = 0; s < d->spec.sequence_limit; s++)
        send_pages(d, engine, s, *table);
}

void fig_decode_move_pages(fig_decode *d, fig_engine *engine, int32_t sequence,
                           fig_random *random) {
    int32_t *row = d->page_table + sequence * d->sequence_pages;
    for (int32_t i = d->sequence_pages - 1; i > 0; i--) {
        int32_t j = fig_random_range(random, 0, i), page = row[i];
        row[i] = row[j];
        row[j] = page;
    }
    send_pages(d, engine, sequence, d->page_table);
}

/* Returns 1 if some layers have a window and others do not. */
static int has_window_table(const fig_decode *d) {
    const uint64_t all = (UINT64_C(1) << d->spec.layers) - 1;
    const uint64_t windowed = d->spec.window_layers[0] & all;
    return d->spec.page_size > 0 && d->spec.window > 0 && windowed != 0 && windowed != all;
}

static void bind_rows(fig_engine *engine, const char *name, int32_t *rows, int32_t count) {
    const fig_binding binding = {.size = sizeof binding,
                                 .name = name,
                                 .address = rows,
                                 .bytes = (size_t)count * sizeof *rows};
    if (fig_engine_bind(engine, &binding) != FIG_OK) fail_msg("%s", fig_message());
}

void fig_decode_bind(fig_decode *d, fig_engine *engine) {
    for (int32_t layer = 0; layer < d->spec.layers; layer++)
        for (int kind = 0; kind < FIG_DECODE_KIND_COUNT; kind++) {
            const fig_binding binding = fig_decode_binding(d, layer, (fig_decode_kind)kind);
            if (binding.address == NULL) continue;
            if (fig_engine_bind(engine, &binding) != FIG_OK) fail_msg("%s", fig_message());
        }
    if (d->options.reads_lengths) {
        bind_rows(engine, "lengths", d->lengths, d->spec.batch_limit);
        bind_rows(engine, "positions", d->positions, d->spec.batch_limit);
        if (d->spec.query_limit > 0)
            bind_rows(engine, "query_starts", d->query_starts, d->spec.batch_limit + 1);
    }
    if (d->spec.page_size > 0) set_pages(d, engine, &d->page_table, 17);
    if (has_window_table(d)) set_pages(d, engine, &d->window_table, 18);
}

/* ---- Fill ---------------------------------------------------------------------------------- */

truth_cache fig_decode_cache(const fig_decode *d, const fig_decode_tensor *cache) {
    const int windowed = (d->spec.window_layers[0] >> cache->layer & 1) != 0;
    return (truth_cache){.base = cache->address,
                         .dtype = cache->dtype,
                         .page_stride = cache->strides[0],
                         .token_stride = cache->strides[1],
                         .head_stride = cache->strides[2],
                         .pages = d->pages,
                         .page_size = d->page_tokens,
                         .page_table =
                             windowed && d->window_table != NULL ? d->window_table : d->page_table,
                         .table_stride = d->sequence_pages};
}

/* Fills a tensor with normally distributed numbers of this mean and deviation. The tensor may have
 * gaps between rows only. */
static void fill_tensor(const fig_decode_tensor *tensor, float mean, float deviation,
                        fig_random *random) {
    if (tensor->address == NULL) return;
    int64_t count = tensor->dims[1] * tensor->dims[2];
    for (int64_t row = 0; row < tensor->dims[0]; row++)
        for (int64_t i = 0; i < count; i++)
            fig_numeric_store(tensor->address, (int32_t)tensor->dtype, row * tensor->strides[0] + i,
                              mean + deviation * fig_random_normal(random));
}

void fig_decode_forget(fig_decode *d, int32_t sequence) {
    for (int32_t layer = 0; layer < d->spec.layers; layer++)
        for (int kind = FIG_DECODE_K_CACHE; kind <= FIG_DECODE_V_CACHE; kind++) {
            const fig_decode_tensor *tensor = &d->tensors[layer][kind];
            const truth_cache cache = fig_decode_cache(d, tensor);
            const size_t item = (size_t)fig_numeric_bytes((int32_t)tensor->dtype);
            for (int32_t token = 0; token < d->spec.kv_limit; token++) {
                int64_t at = truth_cache_offset(&cache, sequence, token);
                for (int32_t head = 0; head < KV_HEADS; head++)
                    memset(tensor->address + (size_t)(at + head * tensor->strides[2]) * item, 0xff,
                           HEAD_DIM * item);
            }
        }
}

void fig_decode_prefill(fig_decode *d, int32_t sequence, int32_t length, fig_random *random) {
    for (int32_t layer = 0; layer < d->spec.layers; layer++)
        for (int kind = FIG_DECODE_K_CACHE; kind <= FIG_DECODE_V_CACHE; kind++) {
            const fig_decode_tensor *tensor = &d->tensors[layer][kind];
            const truth_cache cache = fig_decode_cache(d, tensor);
            for (int32_t token = 0; token < length; token++) {
                int64_t at = truth_cache_offset(&cache, sequence, token);
                for (int32_t i = 0; i < KV_HEADS * HEAD_DIM; i++)
                    fig_numeric_store(tensor->address, (int32_t)tensor->dtype,
                                      at + i / HEAD_DIM * tensor->strides[2] + i % HEAD_DIM,
                                      fig_random_normal(random));
            }
        }
}

static void fill_inputs(fig_decode *d, fig_random *random) {
    static const fig_decode_kind inputs[] = {FIG_DECODE_GATE_UP, FIG_DECODE_Q, FIG_DECODE_K,
                                             FIG_DECODE_V};
    for (int32_t layer = 0; layer < d->spec.layers; layer++) {
        fig_decode_tensor *tensors = d->tensors[layer];
        for (int i = 0; i < 4; i++)
            fill_tensor(&tensors[inputs[i]], 0.0f, 1.0f, random);
        for (int kind = FIG_DECODE_K_SCALE; kind <= FIG_DECODE_K_NORM; kind++)
            fill_tensor(&tensors[kind], 1.0f, 0.1f, random);
    }
}

void fig_decode_fill(fig_decode *d, fig_random *random) {
    fill_inputs(d, random);
    memcpy(d->before, d->memory, d->memory_bytes);
}

void fig_decode_fill_rows(fig_decode *d, fig_random *random) {
    fill_inputs(d, random);
    for (int32_t layer = 0; layer < d->spec.layers; layer++)
        for (int kind = 0; kind < FIG_DECODE_KIND_COUNT; kind++) {
            const fig_decode_tensor *tensor = &d->tensors[layer][kind];
            const int is_cache = kind == FIG_DECODE_K_CACHE || kind == FIG_DECODE_V_CACHE;
            if (tensor->address == NULL || is_cache) continue;
            if (kind == FIG_DECODE_ACT || kind == FIG_DECODE_OUT)
                memset(tensor->address, 0xff, tensor->bytes);
            memcpy(d->before + (tensor->address - d->memory), tensor->address, tensor->bytes);
        }
}

fig_step fig_decode_step(fig_decode *d, const fig_step *step) {
    fig_step taken = *step;
    if (!d->options.reads_lengths) return taken;
    memset(d->lengths, 0x7f, 192 * (size_t)d->spec.batch_limit);
    d->query_starts[0] = 0;
    for (int32_t row = 0; row < step->rows; row++) {
        int32_t length = step->kv_lengths[row], last = length > 0 ? length - 1 : 0;
        d->lengths[row] = length;
        d->positions[row] = step->positions != NULL ? step->positions[row] : last;
        d->query_starts[row + 1] = d->query_starts[row] + fig_decode_queries(d, step, row);
    }
    taken.kv_lengths = taken.positions = taken.query_counts = NULL;
    return taken;
}

int32_t fig_decode_queries(const fig_decode *d, const fig_step *step, int32_t row) {
    return step->query_counts != NULL ? step->query_counts[row] : d->spec.row_tokens;
}

int32_t fig_decode_first_query(const fig_decode *d, const fig_step *step, int32_t row) {
    int32_t first = 0;
    for (int32_t r = 0; r < row; r++)
        first += fig_decode_queries(d, step, r);
    return first;
}
