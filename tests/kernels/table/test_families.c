/* test_families.c: tests which family of kernels serves a launch, the reasons why earlier families
 * refuse it, and what happens if a tensor is bound to another address.
 *
 * The test puts a family of its own, "wide", in front of the gated activation's family. */
#include "kernels/table/families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "include/figraph_unstable.h"
#include "tests/support/driver/cuda_bench.h"
#include "tools/figraph/inspect/inspect_print.h"

enum { ROWS = 4, WIDTH = 16, CALL_LIMIT = 2000, PAGE = 64 };

#define fake fig_cuda_bench_fake

/* ---- The test's own family ----------------------------------------------------------------- */

static const char *wide_refuses(const void *params, const fig_traits *traits) {
    const fig_gated_params *p = params;
    if (traits->compute_capability != 90) return "compute capability 9.0";
    return (uintptr_t)p->in % PAGE != 0 ? "an input at a multiple of 64" : NULL;
}

static void wide_shape(const void *params, fig_launch_shape *shape) {
    const fig_gated_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->rows.row_limit, 1, 1}, .block = {64, 1, 1}};
}

/* Returns the most shared memory that a block can have on the machine. */
static uint32_t wide_shared(const void *params, const fig_traits *traits) {
    (void)params;
    return (uint32_t)traits->shared_bytes;
}

/* Each row stride has an entry of its own. */
static void wide_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_gated_params *p = params;
    snprintf(name, FIG_ENTRY_BYTES, "fig_kernel_gated_%d", (int)p->in_stride);
}

/* For FIG_OP_GATED, returns the test's family and the real one; for other operations, the real
 * ones. */
const fig_family *__real_fig_table_families(fig_op op, uint32_t *count);
const fig_family *__wrap_fig_table_families(fig_op op, uint32_t *count);
const fig_family *__wrap_fig_table_families(fig_op op, uint32_t *count) {
    static fig_family families[2] = {{.name = "wide",
                                      .refuses = wide_refuses,
                                      .shape = wide_shape,
                                      .shared = wide_shared,
                                      .entry = wide_entry}};
    const fig_family *real = __real_fig_table_families(op, count);
    if (op != FIG_OP_GATED) return real;
    assert_int_equal(*count, 1);
    families[1] = real[0];
    *count = 2;
    return families;
}

/* ---- Choosing ------------------------------------------------------------------------------ */

static fig_family_choice choose(uintptr_t in, int64_t in_stride, int32_t capability) {
    const fig_gated_params params = {
        .in = (const void *)in, .in_stride = in_stride, .rows = {.row_limit = ROWS}, .width = 8};
    const fig_traits traits = {
        .size = sizeof traits, .compute_capability = capability, .shared_bytes = 2048};
    fig_family_choice choice;
    memset(&choice, 0xa5, sizeof choice);
    fig_families_choose(FIG_OP_GATED, &params, &traits, &choice);
    return choice;
}

/* Tests which families may still serve once tensors are bound. */
static void each_family_says_for_itself_whether_it_may_serve(void **state) {
    (void)state;
    const fig_gated_params params = {.rows = {.row_limit = ROWS}, .width = 8};
    const fig_traits hopper = {
        .size = sizeof hopper, .compute_capability = 90, .shared_bytes = 2048};
    const fig_traits plain = {.size = sizeof plain, .compute_capability = 80};
    fig_family_choice choice;
    assert_true(fig_families_may_serve(FIG_OP_GATED, 0, &params, &hopper, &choice));
    assert_int_equal(choice.shape.shared_bytes, 2048);
    assert_string_equal(choice.entry, "fig_kernel_gated_0");
    assert_true(fig_families_may_serve(FIG_OP_GATED, 1, &params, &hopper, &choice));
    assert_string_equal(choice.entry, "fig_kernel_gated");
    assert_false(fig_families_may_serve(FIG_OP_GATED, 2, &params, &hopper, &choice));
    assert_false(fig_families_may_serve(FIG_OP_GATED, 0, &params, &plain, &choice));
}

static void the_first_family_that_does_not_refuse_serves(void **state) {
    (void)state;
    const fig_family_choice wide = choose(PAGE, 32, 90);
    assert_int_equal(wide.family, 0);
    assert_string_equal(wide.entry, "fig_kernel_gated_32");
    assert_int_equal(wide.shape.block[0], 64);
    assert_int_equal(wide.shape.shared_bytes, 2048);
    const fig_family_choice by_chip = choose(PAGE, 32, 80);
    assert_int_equal(by_chip.family, 1);
    assert_string_equal(by_chip.refusals[0], "compute capability 9.0");
    assert_null(by_chip.refusals[1]);
    assert_string_equal(by_chip.entry, "fig_kernel_gated");
    const fig_family_choice by_place = choose(PAGE + 16, 32, 90);
    assert_int_equal(by_place.family, 1);
    assert_string_equal(by_place.refusals[0], "an input at a multiple of 64");
    assert_int_equal(by_place.shape.grid[0], wide.shape.grid[0]);
    assert_int_not_equal(by_place.shape.block[0], wide.shape.block[0]);
}

static void launches_are_alike_where_family_shape_and_entry_are(void **state) {
    (void)state;
    const fig_family_choice one = choose(PAGE, 32, 90), moved = choose(3 * PAGE, 32, 90);
    const fig_family_choice entry = choose(PAGE, 64, 90), family = choose(16, 32, 90);
    fig_family_choice shape = one;
    assert_int_equal(fig_families_alike(&one, &moved), 1);
    assert_int_equal(fig_families_alike(&one, &entry), 0);
    assert_int_equal(fig_families_alike(&one, &family), 0);
    shape.shape.shared_bytes++;
    assert_int_equal(fig_families_alike(&one, &shape), 0);
    assert_null(fig_families_of(FIG_OP_GATED, 2));
    assert_null(fig_families_of(FIG_OP_ROPE, FIG_FAMILY_LIMIT));
}

/* ---- On a device --------------------------------------------------------------------------- */

typedef struct bench {
    fig_graphs *graphs;
    fig_engine *engine;
} bench;

/* [rows][gate | up], of which each test uses a part. */
static _Alignas(PAGE) float x[3 * ROWS * 2 * WIDTH];
static _Alignas(PAGE) float act[ROWS * WIDTH];

static fig_tensor tensor(fig_program *program, const char *name, int64_t width) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name,
                                                   .role = FIG_ROLE_BOUND, .dtype = FIG_F32,
                                                   .rank = 2, .dims = {FIG_DIM_BATCH, width}));
}

static fig_graphs *make_graphs(const char *machine) {
    static const fig_bucket two[] = {{2, 64}, {ROWS, 64}};
    fig_program *program;
    fig_graphs *graphs;
    fig_traits traits = {.size = sizeof traits};
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F32,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .ffn_width = WIDTH,
                           .batch_limit = ROWS,
                           .kv_limit = 64};
    traits.size = sizeof traits;
    assert_int_equal(fig_traits_named(&traits, machine), FIG_OK);
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    const fig_tensor in = tensor(program, "x", (int64_t)2 * WIDTH);
    const fig_tensor out = tensor(program, "act", WIDTH);
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = in, .out = out));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    const fig_lower_options options = {
        .size = sizeof options, .traits = &traits, .buckets = two, .bucket_count = 2};
    if (fig_graphs_lower(&graphs, program, &options) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return graphs;
}

/* Binds x, which begins `offset` floats into its memory, with rows `stride` floats apart. */
static void bind_input(bench *b, size_t offset, int64_t stride) {
    const fig_binding in = {.size = sizeof in,
                            .name = "x",
                            .address = x + offset,
                            .bytes = sizeof x - offset * sizeof x[0],
                            .strides = {stride, 1}};
    if (fig_engine_bind(b->engine, &in) != FIG_OK) fail_msg("%s", fig_message());
}

static void open_bench(bench *b, fig_device device) {
    const fig_engine_options options = {.size = sizeof options, .device = device};
    const fig_binding out = {
        .size = sizeof out, .name = "act", .address = act, .bytes = sizeof act};
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = (float)(i % 23) * 0.125f - 1;
    b->graphs = make_graphs("h200");
    if (fig_engine_open(&b->engine, b->graphs, &options) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_engine_bind(b->engine, &out), FIG_OK);
}

static void close_bench(bench *b) {
    fig_engine_close(b->engine);
    fig_graphs_destroy(b->graphs);
}

static fig_status step(bench *b) {
    static const int32_t lengths[ROWS] = {1, 1, 1, 1};
    const fig_step all = {.size = sizeof all, .rows = ROWS, .kv_lengths = lengths};
    memset(act, 0, sizeof act);
    const fig_status status = fig_engine_step(b->engine, &all);
    return status == FIG_OK ? fig_engine_wait(b->engine, 1000000) : status;
}

/* Runs a step and checks the rows of its output. */
static void check_step(bench *b, size_t offset, int64_t stride) {
    static float expected[ROWS * WIDTH];
    const fig_plan_head head = {.rows = ROWS};
    const fig_gated_params params = {.in = x + offset,
                                     .out = expected,
                                     .plan = (const uint8_t *)&head,
                                     .in_stride = stride,
                                     .out_stride = WIDTH,
                                     .rows = {ROWS, 1},
                                     .width = WIDTH,
                                     .dtype = FIG_F32,
                                     .activation = FIG_SILU};
    if (step(b) != FIG_OK) fail_msg("%s", fig_message());
    for (uint32_t row = 0; row < ROWS; row++)
        fig_kernel_table[FIG_OP_GATED].reference(&params, (uint32_t[]){row, 0, 0});
    assert_memory_equal(act, expected, sizeof act);
}

static fig_launch_info info_of(bench *b) {
    fig_launch_info info = {.size = sizeof info};
    if (fig_engine_launch_info(b->engine, 2, 1, &info) != FIG_OK) fail_msg("%s", fig_message());
    assert_string_equal(info.operation, "gated");
    assert_int_equal(info.node, 0);
    assert_int_equal(info.node_count, 1);
    return info;
}

static void bindings_decide_the_family_and_a_move_remakes_the_exec(void **state) {
    (void)state;
    const int64_t packed = (int64_t)2 * WIDTH;
    bench b;
    open_bench(&b, FIG_DEVICE_CUDA);
    bind_input(&b, 0, packed);
    check_step(&b, 0, packed);
    assert_string_equal(fake->ran[FIG_OP_GATED], "fig_kernel_gated_32");
    assert_string_equal(info_of(&b).family, "wide");
    int64_t made = fake->instantiated;
    bind_input(&b, 2 * PAGE, packed); /* another address that the family accepts */
    check_step(&b, 2 * PAGE, packed);
    assert_string_equal(fake->ran[FIG_OP_GATED], "fig_kernel_gated_32");
    assert_int_equal(fake->instantiated, made);
    bind_input(&b, 4, packed); /* an address that it refuses */
    check_step(&b, 4, packed);
    assert_string_equal(fake->ran[FIG_OP_GATED], "fig_kernel_gated");
    assert_true(fake->instantiated > made);
    const fig_launch_info info = info_of(&b);
    assert_string_equal(info.family, "general");
    assert_int_equal(info.refusal_count, 1);
    assert_string_equal(info.refused[0], "wide");
    assert_string_equal(info.needs[0], "an input at a multiple of 64");
    made = fake->instantiated;
    bind_input(&b, 0, 2 * packed); /* this row stride needs another entry */
    check_step(&b, 0, 2 * packed);
    assert_string_equal(fake->ran[FIG_OP_GATED], "fig_kernel_gated_64");
    assert_true(fake->instantiated > made);
    close_bench(&b);
}

/* If any driver call fails during the change to another family, the next prepare completes the
 * change. */
static void a_change_of_family_that_fails_is_made_by_the_next_prepare(void **state) {
    (void)state;
    const int64_t packed = (int64_t)2 * WIDTH;
    int failed = 1;
    for (int64_t n = 1; failed && n < CALL_LIMIT; n++) {
        bench b;
        open_bench(&b, FIG_DEVICE_CUDA);
        bind_input(&b, 0, packed);
        check_step(&b, 0, packed);
        bind_input(&b, 4, packed);
        fake->fail_at = fake->calls + n;
        fake->fail_with = FIG_CU_OUT_OF_MEMORY;
        fake->failed = NULL;
        fig_engine_prepare(b.engine, 0);
        failed = fake->failed != NULL;
        fake->fail_at = 0;
        if (fig_engine_prepare(b.engine, 0) != FIG_OK) fail_msg("%s", fig_message());
        check_step(&b, 4, packed);
        assert_string_equal(fake->ran[FIG_OP_GATED], "fig_kernel_gated");
        close_bench(&b);
    }
    assert_false(failed);
}

static void kernels_for_any_chip_are_chosen_where_the_options_ask_for_them(void **state) {
    (void)state;
    const fig_engine_options plain = {.size = sizeof plain,
                                      .device = FIG_DEVICE_CUDA,
                                      .test = FIG_OPTIONS(fig_test_options, .plain_kernels = 1)};
    bench b;
    open_bench(&b, FIG_DEVICE_CUDA);
    fig_engine_close(b.engine);
    if (fig_engine_open(&b.engine, b.graphs, &plain) != FIG_OK) fail_msg("%s", fig_message());
    const fig_binding out = {
        .size = sizeof out, .name = "act", .address = act, .bytes = sizeof act};
    assert_int_equal(fig_engine_bind(b.engine, &out), FIG_OK);
    bind_input(&b, 0, (int64_t)2 * WIDTH);
    check_step(&b, 0, (int64_t)2 * WIDTH);
    assert_string_equal(fake->ran[FIG_OP_GATED], "fig_kernel_gated");
    assert_string_equal(info_of(&b).needs[0], "compute capability 9.0");
    close_bench(&b);
}

static void the_host_reports_that_it_is_not_a_chip(void **state) {
    (void)state;
    bench b;
    open_bench(&b, FIG_DEVICE_HOST);
    fig_launch_info info = {.size = sizeof info};
    bind_input(&b, 0, (int64_t)2 * WIDTH);
    assert_int_equal(fig_engine_launch_info(b.engine, 1, 0, &info), FIG_ORDER);
    check_step(&b, 0, (int64_t)2 * WIDTH);
    assert_string_equal(info_of(&b).needs[0], "compute capability 9.0");
    assert_int_equal(fig_engine_launch_info(b.engine, 1, 0, &info), FIG_ORDER);
    assert_int_equal(fig_engine_launch_info(b.engine, 2, 0, &info), FIG_OK);
    assert_string_equal(info.operation, "fetch");
    assert_int_equal(info.node_count, 0);
    assert_int_equal(fig_engine_launch_info(b.engine, 0, 0, &info), FIG_INVALID);
    assert_int_equal(fig_engine_launch_info(b.engine, 3, 0, &info), FIG_INVALID);
    assert_int_equal(fig_engine_launch_info(b.engine, 2, -1, &info), FIG_INVALID);
    assert_int_equal(fig_engine_launch_info(b.engine, 2, 2, &info), FIG_INVALID);
    close_bench(&b);
}

/* ---- Inspection ---------------------------------------------------------------------------- */

typedef struct shown {
    char text[1 << 14];
    size_t count;
} shown;

static void keep(void *user, const char *bytes, size_t count) {
    shown *s = user;
    assert_true(count < sizeof s->text - s->count);
    memcpy(s->text + s->count, bytes, count);
    s->count += count;
    s->text[s->count] = '\0';
}

static void inspection_tells_the_family_for_the_machine_and_why(void **state) {
    (void)state;
    static shown s;
    for (int hopper = 0; hopper < 2; hopper++) {
        fig_graphs *graphs = make_graphs(hopper ? "h200" : "a100");
        fig_print_options options = {.bucket = 1};
        s.count = 0;
        assert_int_equal(fig_inspect_print(graphs, &options, keep, &s), FIG_OK);
        assert_int_equal(strstr(s.text, "needs compute capability 9.0") == NULL, hopper);
        assert_int_equal(strstr(s.text, "block 64") != NULL, hopper);
        options.format = FIG_PRINT_JSON;
        s.count = 0;
        assert_int_equal(fig_inspect_print(graphs, &options, keep, &s), FIG_OK);
        assert_int_equal(strstr(s.text, "\"needs\": \"compute capability 9.0\"") == NULL, hopper);
        assert_int_equal(strstr(s.text, "\"family\": \"general\"") != NULL, 1);
        fig_graphs_destroy(graphs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_family_that_does_not_refuse_serves),
        cmocka_unit_test(each_family_says_for_itself_whether_it_may_serve),
        cmocka_unit_test(launches_are_alike_where_family_shape_and_entry_are),
        FIG_CUDA_BENCH_TEST(bindings_decide_the_family_and_a_move_remakes_the_exec),
        FIG_CUDA_BENCH_TEST(a_change_of_family_that_fails_is_made_by_the_next_prepare),
        FIG_CUDA_BENCH_TEST(kernels_for_any_chip_are_chosen_where_the_options_ask_for_them),
        cmocka_unit_test(the_host_reports_that_it_is_not_a_chip),
        cmocka_unit_test(inspection_tells_the_family_for_the_machine_and_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
