/* test_invoke_program.c: recorded programs, called by what is in them. */
#include "ffi/invoke_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ffi/registry.h"
#include "tests/support/xla_host.h"

enum { ROWS = 3, WIDTH = 16, DIM = 64 };

static char content_id[65];

/* Two segments: "act", from input to half to act; "turn", x and y in place. */
static int record(void **state) {
    (void)state;
    const fig_spec spec = {.size = sizeof spec, .dtype = FIG_F32};
    fig_tensor_info info = {.size = sizeof info,
                            .role = FIG_ROLE_BOUND,
                            .dtype = FIG_F32,
                            .rank = 2,
                            .dims = {FIG_DIM_BATCH, 4 * WIDTH}};
    fig_graphs_info about = {.size = sizeof about};
    fig_program *program;
    fig_graphs *graphs;
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
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_graphs_lower(&graphs, program,
                                      FIG_OPTIONS(fig_lower_options, .buckets = &(fig_bucket){1, 1},
                                                  .bucket_count = 1)),
                     FIG_OK);
    fig_program_destroy(program);
    assert_int_equal(fig_graphs_read_info(graphs, &about), FIG_OK);
    memcpy(content_id, about.content_id, sizeof content_id);
    return fig_registry_add_file(graphs) != FIG_OK;
}

static float input[ROWS * 4 * WIDTH], half[ROWS * 2 * WIDTH], act[ROWS * WIDTH];

/* What is written before it is read is a result alone. */
static void act_call(fig_xla_host *host) {
    for (int i = 0; i < ROWS * 4 * WIDTH; i++)
        input[i] = (float)(i % 13) - 6;
    fig_xla_host_init(host, fig_xla_host_find("figraph.program", "cpu"));
    fig_xla_host_arg(host, FIG_XLA_F32, input, FIG_XLA_HOST_DIMS(ROWS, 4 * WIDTH));
    fig_xla_host_ret(host, FIG_XLA_F32, half, FIG_XLA_HOST_DIMS(ROWS, 2 * WIDTH));
    fig_xla_host_ret(host, FIG_XLA_F32, act, FIG_XLA_HOST_DIMS(ROWS, WIDTH));
    fig_xla_host_text(host, "content_id", content_id);
    fig_xla_host_text(host, "segment", "act");
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

static void what_is_written_in_place_is_argument_and_result(void **state) {
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
    fig_xla_host_text(&host, "content_id", content_id);
    fig_xla_host_text(&host, "segment", "turn");
    fig_xla_host broken = host;
    broken.rets[0].buffer.data = before;
    expect_refusal(&broken, "x is not the memory of argument x");
    call_soundly(&host);
    assert_memory_equal(x, before, 2 * DIM * sizeof *x); /* at position 0 nothing turns */
    assert_memory_equal(x, y, sizeof x);
    assert_memory_not_equal(x + 2 * DIM, before + 2 * DIM, 2 * DIM * sizeof *x);
}

static void a_wrong_call_is_refused_by_name(void **state) {
    (void)state;
    fig_xla_host host;
    act_call(&host);
    host.attributes[0].text = "77";
    expect_refusal(&host, "content_id is \"77\", it must be 64 digits");
    act_call(&host);
    host.attributes[0].text = "0000000000000000000000000000000000000000000000000000000000000000";
    expect_refusal(&host, "no file with content_id 0000");
    act_call(&host);
    host.attributes[1].text = "turns";
    expect_refusal(&host, "the program has no segment \"turns\"");
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
    expect_refusal(&host, "attribute content_id is missing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_runs_with_its_tensors_alone),
        cmocka_unit_test(what_is_written_in_place_is_argument_and_result),
        cmocka_unit_test(a_wrong_call_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, record, NULL);
}
