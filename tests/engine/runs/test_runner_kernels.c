/* test_runner_kernels.c: tests that an open runner has loaded every kernel that any run may choose,
 * and has allowed the shared memory that the kernel asks for. Tries all shapes, numbers of rows and
 * lengths.
 *
 * The fake driver refuses a launch that asks for more shared memory than was allowed, and the
 * runner refuses a launch of a kernel that it did not load. Kernels do nothing, so addresses need
 * not be valid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/graph/cuda_resident.h"
#include "ffi/invoke/invoke.h"
#include "include/figraph_runner.h"
#include "tests/support/driver/fake_cuda.h"

enum { ROWS_LIMIT = 256, TENSOR_LIMIT = 64, PAGE = 16 };
#define TENSOR_BYTES (UINT64_C(1) << 37)

static const int32_t all_rows[] = {1, 2, 3, 4, 8, 16, 17, 32, 64, ROWS_LIMIT};
static const int32_t all_limits[] = {64, 128, 256, 544, 1024, 2176, 4096, 8192, 32768};
#define COUNT(array) ((int32_t)(sizeof(array) / sizeof *(array)))

static fig_fake_cuda *driver;

static int install(void **state) {
    (void)state;
    driver = fig_fake_cuda_install();
    driver->skips_kernels = 1;
    fig_fake_cuda_push(&fig_fake_cuda_primary);
    return 0;
}

static int remove_driver(void **state) {
    (void)state;
    fig_cuda_resident_forget();
    fig_fake_cuda_pop();
    fig_fake_cuda_remove();
    return 0;
}

static void *address_of(int32_t index, int64_t skew) {
    return (void *)(uintptr_t)((uint64_t)(index + 1) * 2 * TENSOR_BYTES + (uint64_t)skew);
}

/* ---- Graphs that a caller records */

static fig_graphs *lower(const fig_spec *spec, const char *what) {
    fig_program *program;
    fig_graphs *graphs = NULL;
    fig_status status = fig_program_create(&program, spec);
    if (status != FIG_OK) fail_msg("%s: %s", what, fig_message());
    const fig_tensor lengths = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "lengths", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32, .rank = 1, .dims = {FIG_DIM_BATCH}));
    fig_program_read_lengths(program, lengths, (fig_tensor){0});
    fig_program_decode_step(program);
    status = fig_program_finish(program);
    if (status == FIG_OK)
        status = fig_graphs_lower(
            &graphs, program,
            FIG_OPTIONS(fig_lower_options, .buckets = &(fig_bucket){1, 1}, .bucket_count = 1));
    if (status != FIG_OK) fail_msg("%s: %s", what, fig_message());
    fig_program_destroy(program);
    return graphs;
}

/* Places every tensor of 16 or 8 bits `skew` bytes after an aligned address, so that kernels that
 * need alignment cannot serve the run. */
static int32_t bind_all(const fig_graphs *graphs, int64_t skew, fig_binding *bindings) {
    fig_tensor_info info = {.size = sizeof info};
    int32_t count = 0;
    while (fig_graphs_tensor(graphs, count, &info) == FIG_OK) {
        assert_true(count < TENSOR_LIMIT);
        const int is_wide = info.dtype == FIG_F32 || info.dtype == FIG_I32;
        bindings[count] = (fig_binding){.size = sizeof *bindings,
                                        .address = address_of(count, is_wide ? 0 : skew),
                                        .bytes = TENSOR_BYTES};
        count++;
    }
    return count;
}

/* is_cut: also runs with less scratch, which cuts the work into fewer pieces. */
static void run_rows(const fig_runner *runner, const fig_graphs *graphs, fig_run *run, int is_cut,
                     const char *what) {
    fig_scratch needed = {.size = sizeof needed};
    fig_traits traits = {.size = sizeof traits};
    assert_int_equal(fig_runner_read_traits(runner, &traits), FIG_OK);
    assert_int_equal(fig_graphs_scratch(graphs, &traits, run->rows, run->kv_length, &needed),
                     FIG_OK);
    const uint64_t bytes[] = {needed.best_bytes, needed.least_bytes,
                              (needed.best_bytes + needed.least_bytes) / 2};
    for (int i = 0; i < (is_cut ? 3 : 1); i++) {
        run->scratch_bytes = bytes[i];
        if (fig_runner_run(runner, run) == FIG_OK) continue;
        fail_msg("%s: %d rows of %d tokens, %d of %d in scratch: %s", what, run->rows,
                 (int)run->kv_length, (int)bytes[i], (int)needed.best_bytes, fig_message());
    }
}

/* Tries all numbers of rows and all lengths with a runner that is opened for exactly this
 * kv_limit. */
static void try_limit(const fig_spec *spec, const char *what) {
    static const int64_t skews[] = {0, 8, 4, 2};
    fig_binding bindings[TENSOR_LIMIT];
    fig_runner *runner;
    fig_graphs *graphs = lower(spec, what);
    if (fig_runner_open(&runner, graphs,
                        FIG_OPTIONS(fig_runner_options, .device = FIG_DEVICE_CUDA)) != FIG_OK)
        fail_msg("%s: %s", what, fig_message());
    for (int32_t n = 0; n < COUNT(all_rows); n++) {
        const int64_t lengths[] = {spec->kv_limit, (spec->kv_limit + 1) / 2, 40};
        fig_run run = {.size = sizeof run, .rows = all_rows[n], .bindings = bindings};
        run.binding_count = bind_all(graphs, skews[n % 4], bindings);
        run.scratch = address_of(TENSOR_LIMIT, 0);
        for (int i = 0; i < 3; i++) {
            run.kv_length = lengths[i];
            run_rows(runner, graphs, &run, i == n % 3, what);
        }
        bind_all(graphs, 0, bindings);
        run_rows(runner, graphs, &run, 0, what);
    }
    fig_runner_close(runner);
    fig_graphs_destroy(graphs);
}

static void try_spec(fig_spec spec, const char *what) {
    spec.size = sizeof spec;
    spec.batch_limit = spec.sequence_limit = ROWS_LIMIT;
    for (int32_t n = 0; n < COUNT(all_limits); n++) {
        spec.kv_limit = all_limits[n];
        try_limit(&spec, what);
    }
}

/* Sets the spec to that of one of `share` ranks of a model. The spec has one layer or, if only some
 * layers of the model have a window, six layers of both kinds. */
static int take_preset(const char *name, int32_t share, fig_spec *spec) {
    *spec = (fig_spec){.size = sizeof *spec};
    assert_int_equal(fig_spec_preset(spec, name), FIG_OK);
    if (spec->kv_heads % share != 0) return 0;
    spec->q_heads /= share, spec->kv_heads /= share;
    spec->ffn_width = 0;
    spec->page_size = PAGE;
    spec->layers = spec->window_layers[0] != 0 ? 6 : 1;
    spec->dense_layers = spec->dense_width = 0;
    spec->window_layers[0] &= 63;
    spec->plain_layers[0] &= spec->layers == 6 ? 63 : 1;
    for (int i = 1; i < 8; i++)
        spec->window_layers[i] = spec->plain_layers[i] = 0;
    return 1;
}

/* ---- Tests */

static void every_model_runs_at_all_rows_and_limits(void **state) {
    (void)state;
    for (int32_t n = 0; fig_spec_preset_name(n) != NULL; n++) {
        for (int32_t share = 1; share <= 8; share *= 2) {
            fig_spec spec;
            if (take_preset(fig_spec_preset_name(n), share, &spec))
                try_spec(spec, fig_spec_preset_name(n));
        }
    }
}

static void every_head_dim_group_and_dtype_runs(void **state) {
    (void)state;
    static const int32_t dims[] = {64, 80, 96, 128, 256}, ratios[] = {1, 2, 4, 5, 8, 16};
    static const struct {
        fig_dtype dtype, kv_dtype;
    } kinds[] = {{FIG_BF16, 0}, {FIG_F16, FIG_E4M3}, {FIG_BF16, FIG_E5M2}, {FIG_F32, 0}};
    for (int32_t d = 0; d < COUNT(dims); d++) {
        for (int32_t r = 0; r < COUNT(ratios); r++) {
            const int32_t kv_heads = 1 << (d + r) % 4;
            const fig_spec spec = {.dtype = kinds[(d + r) % 4].dtype,
                                   .kv_dtype = kinds[(d + r) % 4].kv_dtype,
                                   .q_heads = kv_heads * ratios[r],
                                   .kv_heads = kv_heads,
                                   .head_dim = dims[d],
                                   .page_size = (d + r) % 3 == 0 ? 5 : 2 * PAGE};
            try_spec(spec, "heads");
        }
    }
}

static void drafts_windows_and_dense_caches_run(void **state) {
    (void)state;
    for (int32_t tokens = 1; tokens <= 8; tokens *= 2) {
        for (int32_t window = 0; window <= 1024; window += 512) {
            const fig_spec spec = {.dtype = FIG_F16,
                                   .kv_dtype = window == 512 ? FIG_E4M3 : 0,
                                   .q_heads = 8,
                                   .kv_heads = tokens == 2 ? 8 : 2,
                                   .head_dim = tokens == 4 ? 256 : 128,
                                   .page_size = tokens == 1 ? 0 : PAGE,
                                   .row_tokens = tokens,
                                   .window = window};
            try_spec(spec, "drafts");
            fig_spec packed = spec;
            packed.query_limit = (int64_t)ROWS_LIMIT * tokens;
            try_spec(packed, "packed drafts");
            packed.row_tokens = 33;
            packed.query_limit = (int64_t)ROWS_LIMIT * packed.row_tokens;
            try_spec(packed, "chunks");
        }
    }
}

/* ---- Calls of torch, JAX and TVM, which all come to invoke.c */

static fig_array array_of(const char *name, int32_t index, fig_dtype dtype, uint32_t bits,
                          const int64_t dims[4]) {
    fig_array array = {.name = name,
                       .data = address_of(index, 0),
                       .dtype = dtype,
                       .bits = bits,
                       .device = FIG_DEVICE_CUDA};
    for (; array.rank < 4 && dims[array.rank] != 0; array.rank++)
        array.dims[array.rank] = dims[array.rank];
    fig_array_pack(&array);
    return array;
}
#define ARRAY(name, index, dtype, bits, ...)                                                       \
    array_of(name, index, dtype, bits, (int64_t[4]){__VA_ARGS__})

typedef struct call_shape {
    int32_t q_heads, kv_heads, head_dim;
    uint32_t kv_bits;
    int is_paged, has_lengths;
} call_shape;

static void describe(const call_shape *s, int64_t rows, int64_t tokens, fig_invoke_decode *decode) {
    fig_invoke_attention *a = &decode->attention;
    const fig_dtype kv_dtype = s->kv_bits == 8 ? FIG_E4M3 : FIG_BF16;
    const int64_t pages = (tokens + PAGE - 1) / PAGE;
    *decode = (fig_invoke_decode){.attention = {.window_left = -1}};
    a->q = ARRAY("q", 0, FIG_BF16, 16, rows, s->q_heads, s->head_dim);
    a->out = ARRAY("out", 1, FIG_BF16, 16, rows, s->q_heads, s->head_dim);
    const int64_t dense[] = {rows, tokens, s->kv_heads, s->head_dim};
    const int64_t paged[] = {rows * pages, PAGE, s->kv_heads, s->head_dim};
    a->k = array_of("k", 2, kv_dtype, s->kv_bits, s->is_paged ? paged : dense);
    a->v = array_of("v", 3, kv_dtype, s->kv_bits, s->is_paged ? paged : dense);
    if (s->is_paged) a->page_table = ARRAY("page_table", 4, FIG_I32, 32, rows, pages);
    if (s->has_lengths) a->lengths = ARRAY("lengths", 5, FIG_I32, 32, rows);
    decode->k = ARRAY("new_k", 6, FIG_BF16, 16, rows, s->kv_heads, s->head_dim);
    decode->v = ARRAY("new_v", 7, FIG_BF16, 16, rows, s->kv_heads, s->head_dim);
}

static void call_rows(const call_shape *s, int64_t rows, int64_t tokens) {
    fig_invoke_decode decode;
    describe(s, rows, tokens, &decode);
    for (int is_decode = 0; is_decode <= s->has_lengths; is_decode++) {
        const fig_array scratch = ARRAY("scratch", 8, FIG_I32, 8, INT64_C(1) << 32);
        fig_invoke invoke = {.rows = 0};
        fig_status status = is_decode ? fig_invoke_decode_describe(&invoke, &decode)
                                      : fig_invoke_attention_describe(&invoke, &decode.attention);
        if (status == FIG_OK) status = fig_invoke_lend(&invoke, &scratch);
        if (status == FIG_OK) status = fig_invoke_run(&invoke);
        if (status == FIG_OK) continue;
        fail_msg("%d/%d heads of %d, %u bits, paged %d, decode %d, %d rows of %d: %s", s->q_heads,
                 s->kv_heads, s->head_dim, s->kv_bits, s->is_paged, is_decode, (int)rows,
                 (int)tokens, fig_message());
    }
}

static void calls_from_other_libraries_run_at_all_rows(void **state) {
    (void)state;
    static const int32_t heads[][2] = {{16, 8}, {8, 1}, {32, 8}, {8, 4}, {24, 8}};
    static const int32_t dims[] = {64, 128, 256};
    static const int64_t lengths[] = {512, 40, 700, 2048, 5000};
    for (int32_t n = 0; n < COUNT(heads) * COUNT(dims) * 8; n++) {
        const call_shape shape = {.q_heads = heads[n / 8 % COUNT(heads)][0],
                                  .kv_heads = heads[n / 8 % COUNT(heads)][1],
                                  .head_dim = dims[n / 8 / COUNT(heads)],
                                  .kv_bits = n % 2 == 0 ? 16 : 8,
                                  .is_paged = n / 2 % 2,
                                  .has_lengths = n / 4 % 2};
        for (int32_t r = 0; r < COUNT(all_rows); r++)
            for (int32_t l = 0; l < COUNT(lengths); l++)
                call_rows(&shape, all_rows[r], lengths[l]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_runs_at_all_rows_and_limits),
        cmocka_unit_test(every_head_dim_group_and_dtype_runs),
        cmocka_unit_test(drafts_windows_and_dense_caches_run),
        cmocka_unit_test(calls_from_other_libraries_run_at_all_rows),
    };
    return cmocka_run_group_tests(tests, install, remove_driver);
}
