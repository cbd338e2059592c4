/* test_invoke_program.c: tests recorded programs, which callers identify by a hash of their
 * content. */
#include "ffi/invoke/invoke_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ffi/registry.h"
#include "include/figraph_ffi.h"
#include "tests/support/ffi/xla_host.h"

enum { ROWS = 3, WIDTH = 16, DIM = 64, LAYERS = 3, X = ROWS * 2 * DIM };

static char content_id[65], layered_id[65], packed_id[65];

/* Returns the number that identifies a file in a call's attributes. */
static int64_t content_of(const char id[65]) {
    char digits[17] = {0};
    memcpy(digits, id, 16);
    return (int64_t)strtoull(digits, NULL, 16);
}

/* Returns the number that identifies a segment in a call's attributes; 0 stands for all
 * segments. */
static int64_t segment_of(const char id[65], const char *name) {
    fig_ffi_segment segment = {.size = sizeof segment};
    if (name == NULL) return 0;
    for (int32_t i = 1; fig_ffi_read_segment(id, i, &segment) == FIG_OK; i++)
        if (strcmp(segment.name, name) == 0) return i;
    fail_msg("%s: %s", name, fig_message());
    return -1;
}

static void keep(fig_program *program, char id[65]) {
    fig_graphs_info about = {.size = sizeof about};
    fig_graphs *graphs;
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_graphs_lower(&graphs, program,
                                      FIG_OPTIONS(fig_lower_options, .buckets = &(fig_bucket){1, 1},
                                                  .bucket_count = 1)),
                     FIG_OK);
    fig_program_destroy(program);
    assert_int_equal(fig_graphs_read_info(graphs, &about), FIG_OK);
    memcpy(id, about.content_id, sizeof about.content_id);
    assert_int_equal(fig_registry_add_file(graphs), FIG_OK);
}

static fig_tensor tensor(fig_program *program, const char *stem, int layer, int64_t width) {
    char name[32];
    snprintf(name, sizeof name, "%s.%d", stem, layer);
    fig_tensor_info info = {.size = sizeof info,
                            .name = name,
                            .role = FIG_ROLE_BOUND,
                            .dtype = FIG_F32,
                            .rank = width != 0 ? 2 : 3,
                            .dims = {FIG_DIM_BATCH, width != 0 ? width : 2, width != 0 ? 0 : DIM}};
    return fig_program_tensor(program, &info);
}

/* Records a segment for each layer: "layer.1" computes act.1 from input.1, and changes x.1 and y.1
 * in place. Segment "odd" uses numbered tensors that cannot be passed as one array of layers: gap.1
 * does not exist; and xs.0 is read before it is written, but xs.1 is written first. */
static void record_layers(void) {
    const fig_spec spec = {.size = sizeof spec, .dtype = FIG_F32};
    const fig_tensor_info places = {.size = sizeof places,
                                    .name = "positions",
                                    .role = FIG_ROLE_BOUND,
                                    .dtype = FIG_I32,
                                    .rank = 1,
                                    .dims = {FIG_DIM_BATCH}};
    fig_program *program;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    const fig_tensor positions = fig_program_tensor(program, &places);
    for (int n = 0; n < LAYERS; n++) {
        char name[32];
        snprintf(name, sizeof name, "layer.%d", n);
        const fig_tensor in = tensor(program, "input", n, 2 * WIDTH);
        const fig_tensor out = tensor(program, "act", n, WIDTH);
        const fig_tensor q = tensor(program, "x", n, 0), k = tensor(program, "y", n, 0);
        fig_program_segment(program, name);
        fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = in, .out = out));
        fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .positions = positions));
    }
    fig_program_segment(program, "odd");
    const fig_tensor a = tensor(program, "gap", 0, 0), b = tensor(program, "gap", 2, 0);
    const fig_tensor c = tensor(program, "xs", 0, 0), d = tensor(program, "xs", 1, 0);
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = a, .k = c, .q_out = b, .k_out = d,
                                  .positions = positions));
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = b, .k = d, .q_out = a, .k_out = c,
                                  .positions = positions));
    keep(program, layered_id);
}

/* Records RoPE of the query tokens of up to 4 rows, at most 2 tokens each. */
static void record_packed(void) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F32,
                           .batch_limit = 4,
                           .row_tokens = 2,
                           .kv_limit = 100,
                           .query_limit = 8};
    fig_tensor_info info = {
        .size = sizeof info, .role = FIG_ROLE_BOUND, .dtype = FIG_I32, .rank = 1};
    fig_program *program;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    info.name = "lengths", info.dims[0] = FIG_DIM_BATCH;
    const fig_tensor lengths = fig_program_tensor(program, &info);
    info.name = "query_starts", info.dims[0] = 5;
    const fig_tensor starts = fig_program_tensor(program, &info);
    info = (fig_tensor_info){.size = sizeof info,
                             .name = "x",
                             .role = FIG_ROLE_BOUND,
                             .dtype = FIG_F32,
                             .rank = 3,
                             .dims = {FIG_DIM_QUERIES, 2, DIM}};
    const fig_tensor x = fig_program_tensor(program, &info);
    info.name = "y";
    const fig_tensor y = fig_program_tensor(program, &info);
    fig_program_read_queries(program, lengths, (fig_tensor){0}, starts);
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = x, .k = y));
    keep(program, packed_id);
}

/* Records two segments: "act", from input to half to act; and "turn", which changes x and y in
 * place. */
static int record(void **state) {
    (void)state;
    const fig_spec spec = {.size = sizeof spec, .dtype = FIG_F32};
    fig_tensor_info info = {.size = sizeof info,
                            .role = FIG_ROLE_BOUND,
                            .dtype = FIG_F32,
                            .rank = 2,
                            .dims = {FIG_DIM_BATCH, 4 * WIDTH}};
    fig_program *program;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    info.name = "input";
    const fig_tensor input = fig_program_tensor(program, &info);
    info.name = "half", info.dims[1] = 2 * WIDTH;
    const fig_tensor half = fig_program_tensor(program, &info);
    info.name = "act", info.dims[1] = WIDTH;
    const fig_tensor act = fig_program_tensor(program, &info);
    info.name = "x", info.rank = 3, info.dims[1] = 2, info.dims[2] = DIM;
    const fig_tensor x = fig_program_tensor(program, &info);
    info.name = "y";
    const fig_tensor y = fig_program_tensor(program, &info);
    info = (fig_tensor_info){.size = sizeof info,
                             .name = "positions",
                             .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32,
                             .rank = 1,
                             .dims = {FIG_DIM_BATCH}};
    const fig_tensor positions = fig_program_tensor(program, &info);
    fig_program_segment(program, "act");
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = input, .out = half));
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = half, .out = act));
    fig_program_segment(program, "turn");
    fig_rope(program,
             FIG_OPTIONS(fig_rope_op, .q = x, .k = y, .positions = positions, .rope = NULL));
    keep(program, content_id);
    record_layers();
    record_packed();
    return 0;
}

static float input[ROWS * 4 * WIDTH], half[ROWS * 2 * WIDTH], act[ROWS * WIDTH];

/* A tensor that the program writes before it reads it is a result and not an argument. */
static void act_call(fig_xla_host *host) {
    for (int i = 0; i < ROWS * 4 * WIDTH; i++)
        input[i] = (float)(i % 13) - 6;
    fig_xla_host_init(host, fig_xla_host_find("figraph.program", "cpu"));
    fig_xla_host_arg(host, FIG_XLA_F32, input, FIG_XLA_HOST_DIMS(ROWS, 4 * WIDTH));
    fig_xla_host_ret(host, FIG_XLA_F32, half, FIG_XLA_HOST_DIMS(ROWS, 2 * WIDTH));
    fig_xla_host_ret(host, FIG_XLA_F32, act, FIG_XLA_HOST_DIMS(ROWS, WIDTH));
    fig_xla_host_integer(host, "content", content_of(content_id));
    fig_xla_host_integer(host, "segment", segment_of(content_id, "act"));
}

static void call_soundly(fig_xla_host *host) {
    fig_xla_host_call(host);
    if (host->code != 0) fail_msg("%d: %s", host->code, host->message);
}

static void expect_refusal(fig_xla_host *host, const char *words) {
    fig_xla_host_call(host);
    if (host->code == 0 || strstr(host->message, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, host->message);
}

static void a_segment_runs_with_its_tensors_alone(void **state) {
    (void)state;
    fig_xla_host host;
    act_call(&host);
    memset(act, 0x7f, sizeof act);
    call_soundly(&host);
    for (int i = 0; i < ROWS * WIDTH; i++)
        assert_true(act[i] > -100 && act[i] < 100000);
    act_call(&host);
    host.stage = FIG_XLA_INITIALIZE;
    memset(act, 0x7f, sizeof act);
    call_soundly(&host);
    assert_true(act[0] > 1e30f);
}

static void packed_call(fig_xla_host *host, float *x, float *y, int64_t y_tokens,
                        int64_t starts_count) {
    static int32_t lengths[3] = {5, 40, 9}, starts[5] = {0, 2, 2, 3, 3};
    static _Alignas(64) uint8_t scratch[1 << 14];
    fig_ffi_scratch told = {.size = sizeof told};
    assert_int_equal(fig_ffi_read_program_scratch(packed_id, 3, 0, &told), FIG_OK);
    assert_true(told.best_bytes > 0 && told.best_bytes <= sizeof scratch);
    fig_xla_host_init(host, fig_xla_host_find("figraph.program", "cpu"));
    fig_xla_host_arg(host, FIG_XLA_S32, lengths, FIG_XLA_HOST_DIMS(3));
    fig_xla_host_arg(host, FIG_XLA_S32, starts, FIG_XLA_HOST_DIMS(starts_count));
    fig_xla_host_arg(host, FIG_XLA_F32, x, FIG_XLA_HOST_DIMS(3, 2, DIM));
    fig_xla_host_arg(host, FIG_XLA_F32, y, FIG_XLA_HOST_DIMS(y_tokens, 2, DIM));
    fig_xla_host_ret(host, FIG_XLA_F32, x, FIG_XLA_HOST_DIMS(3, 2, DIM));
    fig_xla_host_ret(host, FIG_XLA_F32, y, FIG_XLA_HOST_DIMS(y_tokens, 2, DIM));
    fig_xla_host_ret(host, FIG_XLA_U8, scratch, FIG_XLA_HOST_DIMS((int64_t)told.best_bytes));
    fig_xla_host_integer(host, "content", content_of(packed_id));
}

/* Row 0 has the tokens at positions 3 and 4, row 1 none, and row 2 the one at 8. */
static void a_packed_program_reads_where_the_tokens_of_each_row_begin(void **state) {
    (void)state;
    enum { NUMBERS = 3 * 2 * DIM };
    float x[NUMBERS], y[NUMBERS], x_at[NUMBERS], y_at[NUMBERS];
    int32_t positions[3] = {3, 4, 8};
    fig_xla_host host;
    for (int i = 0; i < NUMBERS; i++)
        x[i] = y[i] = x_at[i] = y_at[i] = (float)(i % 11) - 5;
    packed_call(&host, x, y, 3, 4);
    call_soundly(&host);
    fig_xla_host_init(&host, fig_xla_host_find("figraph.rope", "cpu"));
    fig_xla_host_arg(&host, FIG_XLA_F32, x_at, FIG_XLA_HOST_DIMS(3, 2, DIM));
    fig_xla_host_arg(&host, FIG_XLA_F32, y_at, FIG_XLA_HOST_DIMS(3, 2, DIM));
    fig_xla_host_arg(&host, FIG_XLA_S32, positions, FIG_XLA_HOST_DIMS(3));
    fig_xla_host_ret(&host, FIG_XLA_F32, x_at, FIG_XLA_HOST_DIMS(3, 2, DIM));
    fig_xla_host_ret(&host, FIG_XLA_F32, y_at, FIG_XLA_HOST_DIMS(3, 2, DIM));
    call_soundly(&host);
    assert_memory_equal(x, x_at, sizeof x);
    assert_memory_equal(y, y_at, sizeof y);
    packed_call(&host, x, y, 2, 4);
    expect_refusal(&host, "y is of 2 query tokens, others are of 3");
    packed_call(&host, x, y, 3, 5);
    expect_refusal(&host, "query_starts is of 4 rows, others are of 3");
    packed_call(&host, x, y, 0, 4);
    expect_refusal(&host, "y: dim 0 is 0, it must be a multiple of 1, not 0");
}

static void segments_are_counted_as_they_were_recorded(void **state) {
    (void)state;
    fig_ffi_segment segment = {.size = sizeof segment};
    assert_int_equal(segment_of(layered_id, "layer.1"), 2);
    assert_int_equal(fig_ffi_read_segment(content_id, 0, &segment), FIG_INVALID);
    assert_int_equal(fig_ffi_read_segment(content_id, 3, &segment), FIG_INVALID);
    assert_string_equal(fig_ffi_message(), "segment 3 of 2");
    assert_null(segment.name);
}

static void a_tensor_written_in_place_is_argument_and_result(void **state) {
    (void)state;
    float x[ROWS * 2 * DIM], y[ROWS * 2 * DIM], before[ROWS * 2 * DIM];
    int32_t positions[ROWS] = {0, 1, 5};
    fig_xla_host host;
    for (int i = 0; i < ROWS * 2 * DIM; i++)
        x[i] = y[i] = before[i] = (float)(i % 11) - 5;
    fig_xla_host_init(&host, fig_xla_host_find("figraph.program", "cpu"));
    fig_xla_host_arg(&host, FIG_XLA_F32, x, FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_arg(&host, FIG_XLA_F32, y, FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_arg(&host, FIG_XLA_S32, positions, FIG_XLA_HOST_DIMS(ROWS));
    fig_xla_host_ret(&host, FIG_XLA_F32, x, FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_ret(&host, FIG_XLA_F32, y, FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_integer(&host, "content", content_of(content_id));
    fig_xla_host_integer(&host, "segment", segment_of(content_id, "turn"));
    fig_xla_host broken = host;
    broken.rets[0].buffer.data = before;
    expect_refusal(&broken, "x is not the memory of argument x");
    call_soundly(&host);
    assert_memory_equal(x, before, 2 * DIM * sizeof *x); /* at position 0 nothing rotates */
    assert_memory_equal(x, y, sizeof x);
    assert_memory_not_equal(x + 2 * DIM, before + 2 * DIM, 2 * DIM * sizeof *x);
}

static void a_wrong_call_is_refused_by_name(void **state) {
    (void)state;
    fig_xla_host host;
    act_call(&host);
    host.attributes[0].integer = 0x77;
    expect_refusal(&host, "no file whose content_id begins with 0000000000000077 was loaded");
    act_call(&host);
    host.attributes[1].integer = 3;
    expect_refusal(&host, "segment is 3, the program has 2");
    act_call(&host);
    host.attributes[1].integer = -1;
    expect_refusal(&host, "segment is -1, the program has 2");
    act_call(&host);
    host.rets[1].dims[0] = ROWS + 1;
    expect_refusal(&host, "act is of 4 rows, others are of 3");
    act_call(&host);
    host.args[0].dims[1]++;
    expect_refusal(&host, "input is [3, 65], its dim 1 must be 64");
    act_call(&host);
    host.rets[0].buffer.type = FIG_XLA_F16;
    expect_refusal(&host, "half is float16, it must be float32");
    act_call(&host);
    host.ret_count = 1;
    expect_refusal(&host, "act, is missing");
    act_call(&host);
    fig_xla_host_integer(&host, "rows", ROWS - 1);
    expect_refusal(&host, "input is of 3 rows, others are of 2");
    act_call(&host);
    host.attribute_count = 0;
    expect_refusal(&host, "attribute content is missing");
}

/* ---- Layers */

typedef struct layers {
    float input[LAYERS][ROWS * 2 * WIDTH], act[LAYERS][ROWS * WIDTH];
    float x[LAYERS][X], y[LAYERS][X];
} layers;
static int32_t positions[ROWS] = {1, 0, 5};

static void fill_layers(layers *of) {
    float *numbers = &of->input[0][0];
    for (size_t i = 0; i < sizeof *of / sizeof *numbers; i++)
        numbers[i] = (float)(i % 29) - 14;
}

static void begin_layers(fig_xla_host *host, const char *segment) {
    fig_xla_host_init(host, fig_xla_host_find("figraph.program", "cpu"));
    fig_xla_host_arg(host, FIG_XLA_S32, positions, FIG_XLA_HOST_DIMS(ROWS));
    fig_xla_host_integer(host, "content", content_of(layered_id));
    fig_xla_host_integer(host, "segment", segment_of(layered_id, segment));
}

/* Passes each tensor as one array of all its layers. */
static void stacked_call(fig_xla_host *host, layers *of, const char *segment) {
    begin_layers(host, segment);
    fig_xla_host_arg(host, FIG_XLA_F32, of->input, FIG_XLA_HOST_DIMS(LAYERS, ROWS, 2 * WIDTH));
    fig_xla_host_arg(host, FIG_XLA_F32, of->x, FIG_XLA_HOST_DIMS(LAYERS, ROWS, 2, DIM));
    fig_xla_host_arg(host, FIG_XLA_F32, of->y, FIG_XLA_HOST_DIMS(LAYERS, ROWS, 2, DIM));
    fig_xla_host_ret(host, FIG_XLA_F32, of->act, FIG_XLA_HOST_DIMS(LAYERS, ROWS, WIDTH));
    fig_xla_host_ret(host, FIG_XLA_F32, of->x, FIG_XLA_HOST_DIMS(LAYERS, ROWS, 2, DIM));
    fig_xla_host_ret(host, FIG_XLA_F32, of->y, FIG_XLA_HOST_DIMS(LAYERS, ROWS, 2, DIM));
}

static void single_call(fig_xla_host *host, layers *of, int n) {
    static const char *const segments[] = {"layer.0", "layer.1", "layer.2"};
    begin_layers(host, segments[n]);
    fig_xla_host_arg(host, FIG_XLA_F32, of->input[n], FIG_XLA_HOST_DIMS(ROWS, 2 * WIDTH));
    fig_xla_host_arg(host, FIG_XLA_F32, of->x[n], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_arg(host, FIG_XLA_F32, of->y[n], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_ret(host, FIG_XLA_F32, of->act[n], FIG_XLA_HOST_DIMS(ROWS, WIDTH));
    fig_xla_host_ret(host, FIG_XLA_F32, of->x[n], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_ret(host, FIG_XLA_F32, of->y[n], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
}

static void a_segment_takes_its_part_of_all_layers(void **state) {
    (void)state;
    layers want, got;
    fig_xla_host host;
    fill_layers(&want);
    fill_layers(&got);
    for (int n = LAYERS - 1; n >= 0; n--) {
        const char *const segments[] = {"layer.0", "layer.1", "layer.2"};
        single_call(&host, &want, n);
        call_soundly(&host);
        assert_memory_not_equal(&want, &got, sizeof want);
        stacked_call(&host, &got, segments[n]);
        call_soundly(&host);
        assert_memory_equal(&want, &got, sizeof want);
    }
}

static void a_whole_program_takes_all_layers_at_once(void **state) {
    (void)state;
    layers want, got;
    float odd[4][X];
    fig_xla_host host;
    fill_layers(&want);
    fill_layers(&got);
    memset(odd, 0, sizeof odd);
    for (int n = 0; n < LAYERS; n++) {
        single_call(&host, &want, n);
        call_soundly(&host);
    }
    stacked_call(&host, &got, NULL);
    fig_xla_host_arg(&host, FIG_XLA_F32, odd[0], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_arg(&host, FIG_XLA_F32, odd[2], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    for (int i = 0; i < 4; i++)
        fig_xla_host_ret(&host, FIG_XLA_F32, odd[i], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    call_soundly(&host);
    assert_memory_equal(&want, &got, sizeof want);
}

/* Some tensors may come as one array of all layers while others come as single layers: here x is
 * one array, and input and y are not. */
static void layers_come_as_one_array_or_as_many(void **state) {
    (void)state;
    layers want, got;
    fig_xla_host host;
    fill_layers(&want);
    fill_layers(&got);
    for (int n = 0; n < LAYERS; n++) {
        single_call(&host, &want, n);
        call_soundly(&host);
    }
    begin_layers(&host, "layer.1");
    fig_xla_host_arg(&host, FIG_XLA_F32, got.input[1], FIG_XLA_HOST_DIMS(ROWS, 2 * WIDTH));
    fig_xla_host_arg(&host, FIG_XLA_F32, got.x, FIG_XLA_HOST_DIMS(LAYERS, ROWS, 2, DIM));
    fig_xla_host_arg(&host, FIG_XLA_F32, got.y[1], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_ret(&host, FIG_XLA_F32, got.act[1], FIG_XLA_HOST_DIMS(ROWS, WIDTH));
    fig_xla_host_ret(&host, FIG_XLA_F32, got.x, FIG_XLA_HOST_DIMS(LAYERS, ROWS, 2, DIM));
    fig_xla_host_ret(&host, FIG_XLA_F32, got.y[1], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    call_soundly(&host);
    assert_memory_equal(want.act[1], got.act[1], sizeof got.act[1]);
    assert_memory_equal(want.x[1], got.x[1], sizeof got.x[1]);
    assert_memory_equal(want.y[1], got.y[1], sizeof got.y[1]);
    assert_memory_not_equal(want.x[0], got.x[0], sizeof got.x[0]);
}

static void arrays_that_do_not_hold_all_layers_are_refused(void **state) {
    (void)state;
    layers of;
    float pair[2][X];
    fig_xla_host host;
    fill_layers(&of);
    memset(pair, 0, sizeof pair);
    stacked_call(&host, &of, "layer.1");
    host.args[1].dims[0]--;
    expect_refusal(&host, "input.1 is [2, 3, 32], its dim 0 must be 3");
    stacked_call(&host, &of, "layer.1");
    host.args[1].dims[2]++;
    expect_refusal(&host, "input.1 is [3, 33], its dim 1 must be 32");
    stacked_call(&host, &of, "layer.1");
    host.args[0].buffer.rank = 2, host.args[0].dims[0] = 1, host.args[0].dims[1] = ROWS;
    expect_refusal(&host, "positions is [1, 3], it must have 1 dims");
    begin_layers(&host, "odd");
    fig_xla_host_arg(&host, FIG_XLA_F32, pair, FIG_XLA_HOST_DIMS(2, ROWS, 2, DIM));
    fig_xla_host_ret(&host, FIG_XLA_F32, pair, FIG_XLA_HOST_DIMS(2, ROWS, 2, DIM));
    expect_refusal(&host, "gap.0 is [2, 3, 2, 64], it must have 3 dims");
    begin_layers(&host, "odd");
    fig_xla_host_arg(&host, FIG_XLA_F32, pair[0], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_ret(&host, FIG_XLA_F32, pair[0], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_ret(&host, FIG_XLA_F32, pair[1], FIG_XLA_HOST_DIMS(ROWS, 2, DIM));
    fig_xla_host_arg(&host, FIG_XLA_F32, pair, FIG_XLA_HOST_DIMS(2, ROWS, 2, DIM));
    fig_xla_host_ret(&host, FIG_XLA_F32, pair, FIG_XLA_HOST_DIMS(2, ROWS, 2, DIM));
    expect_refusal(&host, "xs.0 comes with a dim of layers, and xs.1 is bound already, or is not "
                          "read and written as it is");
    single_call(&host, &of, 0);
    /* all layers of input in one array, after input.0 was passed by itself */
    host.attribute_count = 1;
    fig_xla_host_arg(&host, FIG_XLA_F32, of.input, FIG_XLA_HOST_DIMS(LAYERS, ROWS, 2 * WIDTH));
    expect_refusal(&host, "input.1 comes with a dim of layers, and input.0 is bound already");
}

/* XLA:GPU calls initialize at every step, so its cost must not grow with the program. */
static void initialize_looks_at_no_array(void **state) {
    (void)state;
    fig_xla_host host;
    begin_layers(&host, NULL);
    host.arg_count = 0;
    host.stage = FIG_XLA_INITIALIZE;
    call_soundly(&host);
    host.stage = FIG_XLA_EXECUTE;
    expect_refusal(&host, "positions, is missing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_program_reads_where_the_tokens_of_each_row_begin),
        cmocka_unit_test(segments_are_counted_as_they_were_recorded),
        cmocka_unit_test(a_segment_runs_with_its_tensors_alone),
        cmocka_unit_test(a_tensor_written_in_place_is_argument_and_result),
        cmocka_unit_test(a_wrong_call_is_refused_by_name),
        cmocka_unit_test(a_segment_takes_its_part_of_all_layers),
        cmocka_unit_test(a_whole_program_takes_all_layers_at_once),
        cmocka_unit_test(layers_come_as_one_array_or_as_many),
        cmocka_unit_test(arrays_that_do_not_hold_all_layers_are_refused),
        cmocka_unit_test(initialize_looks_at_no_array),
    };
    return cmocka_run_group_tests(tests, record, NULL);
}
