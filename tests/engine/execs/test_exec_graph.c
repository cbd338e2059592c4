/* test_exec_graph.c: tests where a graph has its look-ahead, the kernel that prefetches the next
 * plan, and which of its edges are full ones. */
#include "engine/execs/exec_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/driver/cuda_bench.h"

enum { ROWS = 2, WIDTH = 64 };

/* The fetch is launch 0. */
static void a_look_ahead_is_over_before_the_last_launch(void **state) {
    (void)state;
    static const uint32_t cases[][2] = {{1, 0},  {2, 0},  {4, 0},  {5, 0},
                                        {16, 0}, {17, 8}, {18, 9}, {66, 33}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(fig_exec_graph_place_of_look(cases[i][0]), cases[i][1]);
}

static void do_nothing(void *user) {
    (void)user;
}

/* Captures one kernel, which may let the next one begin early. */
static int32_t fill(void *user, const fig_call_args *args) {
    fig_fake_cuda_enqueue(args->stream, do_nothing, user);
    return 0;
}

static fig_tensor tensor_of(fig_program *program, const char *name, int32_t rank, int64_t first,
                            int64_t second) {
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_STATE,
                                          .dtype = FIG_F16, .rank = rank, .dims = {first, second}));
}

/* Makes graphs of an activation, a call and a norm. The call writes the norm's weight, or a tensor
 * that no other node has. */
static fig_graphs *make_graphs(int writes_weight) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F16,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .head_dim = WIDTH,
                           .page_size = 16,
                           .batch_limit = ROWS,
                           .kv_limit = 16,
                           .sequence_limit = ROWS};
    fig_program *program;
    fig_graphs *graphs;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    const fig_tensor in = tensor_of(program, "in", 2, FIG_DIM_BATCH, 2 * WIDTH);
    const fig_tensor act = tensor_of(program, "act", 2, FIG_DIM_BATCH, WIDTH);
    const fig_tensor weight = tensor_of(program, "weight", 1, WIDTH, 0);
    const fig_tensor other = tensor_of(program, "other", 1, WIDTH, 0);
    const fig_tensor *writes = writes_weight ? &weight : &other;
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = in, .out = act));
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "fill", .reads = &act, .read_count = 1,
                                  .writes = writes, .write_count = 1));
    fig_rms_norm(program, FIG_OPTIONS(fig_rms_norm_op, .in = act, .weight = weight, .out = act));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    fig_program_destroy(program);
    return graphs;
}

/* Returns how many edges of each exec are programmatic. */
static int64_t count_programmatic(int writes_weight) {
    fig_graphs *graphs = make_graphs(writes_weight);
    fig_engine *engine;
    fig_cuda_bench_fake->enqueues_kernels = 1;
    fig_cuda_bench_fake->programmatic_edges = 0;
    if (fig_engine_open(&engine, graphs,
                        FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA)) != FIG_OK)
        fail_msg("%s", fig_message());
    assert_int_equal(fig_engine_register(engine, "fill", fill, NULL), FIG_OK);
    if (fig_engine_prepare(engine, 0) != FIG_OK) fail_msg("%s", fig_message());
    const int64_t execs = graphs->exec_count, count = fig_cuda_bench_fake->programmatic_edges;
    assert_int_equal(fig_engine_close(engine), FIG_OK);
    fig_graphs_destroy(graphs);
    assert_int_equal(count % execs, 0);
    return count / execs;
}

/* The edge from the call is full, so the norm does not read its weight while the call writes it. */
static void the_edge_into_a_norm_whose_weight_a_call_writes_is_full(void **state) {
    (void)state;
    const int64_t other = count_programmatic(0);
    assert_true(other > 0);
    assert_int_equal(count_programmatic(1), other - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_ahead_is_over_before_the_last_launch),
        FIG_CUDA_BENCH_TEST(the_edge_into_a_norm_whose_weight_a_call_writes_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
