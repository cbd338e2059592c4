/* test_run_order.c: tests that nodes on which no other node depends are launched first if no shared
 * memory forbids it. */
#include "engine/runs/run_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/graph/cuda_resident.h"
#include "graphs/record/program.h"
#include "include/figraph_runner.h"
#include "tests/support/driver/fake_graph.h"
#include "tests/support/fault.h"

enum { ROWS = 2, HEADS = 2, DIM = 64, LIMIT = 16, WIDTH = 8, BYTES = 1 << 14, GAP = 64 };
enum { IN_0, ACT_0, IN_1, ACT_1, HALF, END, Q, K, V, OUT, K_CACHE, V_CACHE, TENSORS };
enum { NODES = 5 };

/* A binding as a later version of the header may declare it. */
typedef struct later_binding {
    fig_binding known;
    uint64_t more[2];
} later_binding;

/* Five nodes in this order: an activation, a layer's attention, another activation, and two nodes
 * of which the second reads the first one's result. */
typedef struct work {
    fig_program *program;
    fig_tensor tensors[TENSORS];
    fig_binding bindings[TENSORS];
    _Alignas(64) uint8_t memory[TENSORS][BYTES];
    _Alignas(16) uint8_t scratch[1 << 18];
} work;

static void add(work *w, int index, const char *name, int64_t a, int64_t b, int64_t c) {
    const int cache = index == K_CACHE || index == V_CACHE;
    const fig_tensor_info info = {.size = sizeof info,
                                  .name = name,
                                  .role = FIG_ROLE_BOUND,
                                  .dtype = FIG_F16,
                                  .rank = c != 0   ? 4
                                          : b != 0 ? 3
                                                   : 2,
                                  .dims = {cache ? FIG_DIM_PAGES : FIG_DIM_BATCH, a, b, c}};
    w->tensors[index] = fig_program_tensor(w->program, &info);
    w->bindings[index] = (fig_binding){
        .size = sizeof(fig_binding), .address = w->memory[index], .bytes = BYTES - GAP};
}

static void gate(work *w, int from, int to) {
    fig_silu_and_mul(w->program,
                     FIG_OPTIONS(fig_gated_op, .in = w->tensors[from], .out = w->tensors[to]));
}

static work *begin_with(int reads_lengths) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F16,
                           .q_heads = HEADS,
                           .kv_heads = 1,
                           .head_dim = DIM,
                           .batch_limit = ROWS,
                           .kv_limit = LIMIT};
    work *w = calloc(1, sizeof *w);
    assert_non_null(w);
    assert_int_equal(fig_program_create(&w->program, &spec), FIG_OK);
    add(w, IN_0, "in.0", 2 * WIDTH, 0, 0);
    add(w, ACT_0, "act.0", WIDTH, 0, 0);
    add(w, IN_1, "in.1", 2 * WIDTH, 0, 0);
    add(w, ACT_1, "act.1", WIDTH, 0, 0);
    add(w, HALF, "half", WIDTH, 0, 0);
    add(w, END, "end", WIDTH / 2, 0, 0);
    add(w, Q, "q", HEADS, DIM, 0);
    add(w, K, "k", 1, DIM, 0);
    add(w, V, "v", 1, DIM, 0);
    add(w, OUT, "out", HEADS, DIM, 0);
    add(w, K_CACHE, "k_cache", LIMIT, 1, DIM);
    add(w, V_CACHE, "v_cache", LIMIT, 1, DIM);
    if (reads_lengths) {
        const fig_tensor_info lengths = {.size = sizeof lengths,
                                         .name = "lengths",
                                         .role = FIG_ROLE_BOUND,
                                         .dtype = FIG_I32,
                                         .rank = 1,
                                         .dims = {FIG_DIM_BATCH}};
        fig_program_read_lengths(w->program, fig_program_tensor(w->program, &lengths),
                                 (fig_tensor){0});
    }
    gate(w, IN_0, ACT_0);
    fig_decode_attention(
        w->program, FIG_OPTIONS(fig_decode_attention_op, .q = w->tensors[Q], .k = w->tensors[K],
                                .v = w->tensors[V], .out = w->tensors[OUT],
                                .cache = {.k = w->tensors[K_CACHE], .v = w->tensors[V_CACHE]}));
    gate(w, IN_1, ACT_1);
    gate(w, IN_1, HALF);
    gate(w, HALF, END);
    if (fig_program_finish(w->program) != FIG_OK) fail_msg("%s", fig_message());
    return w;
}

static work *begin(void) {
    return begin_with(0);
}

static void end(work *w) {
    fig_program_destroy(w->program);
    free(w);
}

/* ---- Tests */

static void nodes_without_edges_are_independent_except_attention(void **state) {
    (void)state;
    static const uint8_t expected[NODES] = {1, 0, 1, 0, 0};
    for (int reads_lengths = 0; reads_lengths <= 1; reads_lengths++) {
        work *w = begin_with(reads_lengths);
        fig_run_tensors tensors;
        fig_run_order order;
        assert_int_equal(fig_run_tensors_init(&tensors, fig_program_view_of(w->program)), FIG_OK);
        assert_int_equal(fig_run_order_init(&order, &tensors), FIG_OK);
        assert_int_equal(tensors.view->node_count, reads_lengths + NODES);
        assert_memory_equal(order.apart + reads_lengths, expected, sizeof expected);
        fig_run_order_finish(&order);
        fig_run_tensors_finish(&tensors);
        end(w);
    }
}

static void a_failed_allocation_leaves_no_order(void **state) {
    (void)state;
    work *w = begin();
    fig_run_tensors tensors;
    fig_run_order order;
    assert_int_equal(fig_run_tensors_init(&tensors, fig_program_view_of(w->program)), FIG_OK);
    for (int64_t n = 1; n <= 2; n++) {
        fig_fault_arm(n);
        const fig_status status = fig_run_order_init(&order, &tensors);
        fig_fault_disarm();
        assert_int_equal(status, FIG_NOMEM);
        fig_run_order_finish(&order);
    }
    fig_run_tensors_finish(&tensors);
    end(w);
}

static int ask(const work *w, const fig_run *run) {
    fig_run_tensors tensors;
    fig_run_order order;
    assert_int_equal(fig_run_tensors_init(&tensors, fig_program_view_of(w->program)), FIG_OK);
    assert_int_equal(fig_run_order_init(&order, &tensors), FIG_OK);
    const fig_run_bound bound = {.tensors = &tensors, .run = run, .nodes = {0, NODES}};
    const int answer = fig_run_order_is_free(&order, &bound);
    fig_run_order_finish(&order);
    fig_run_tensors_finish(&tensors);
    return answer;
}

/* Returns 1 if nodes may change places when tensor `moved` lies at `offset` from tensor `onto`. */
static int is_free(work *w, int moved, int onto, int offset) {
    const fig_run run = {.bindings = w->bindings, .binding_count = TENSORS};
    const fig_binding before = w->bindings[moved];
    w->bindings[moved].address = w->memory[onto] + offset;
    w->bindings[moved].bytes = GAP;
    const int answer = ask(w, &run);
    w->bindings[moved] = before;
    return answer;
}

static void memory_that_is_written_keeps_nodes_where_they_are(void **state) {
    (void)state;
    work *w = begin();
    assert_true(is_free(w, ACT_1, ACT_1, 0));
    assert_false(is_free(w, ACT_1, Q, 0));
    assert_false(is_free(w, ACT_1, Q, BYTES - GAP - 1));
    /* after the end of q and before the next tensor */
    assert_true(is_free(w, ACT_1, Q, BYTES - GAP));
    assert_false(is_free(w, ACT_1, Q, BYTES - GAP + 1));
    assert_false(is_free(w, IN_0, OUT, 0));
    assert_true(is_free(w, IN_0, V, 0)); /* no node writes IN_0 or V */
    assert_true(is_free(w, IN_0, IN_1, 0));
    assert_true(is_free(w, ACT_1, ACT_0, 0)); /* both nodes go first, in their own order */
    assert_true(is_free(w, HALF, OUT, 0));    /* both nodes stay where they are */
    end(w);
}

static void bindings_of_a_later_header_are_read_too(void **state) {
    (void)state;
    enum { SURPLUS = 9 };
    static later_binding later[TENSORS + SURPLUS];
    work *w = begin();
    const fig_run run = {.bindings = &later[0].known, .binding_count = TENSORS + SURPLUS};
    for (int i = 0; i < TENSORS + SURPLUS; i++) {
        later[i].known = w->bindings[i < TENSORS ? i : ACT_1];
        later[i].known.size = sizeof *later;
    }
    assert_true(ask(w, &run));
    later[ACT_1].known.address = w->memory[V_CACHE];
    assert_false(ask(w, &run));
    end(w);
}

/* The params of an activation begin with the address of its input. */
static size_t place_of(fig_cu_exec exec, const void *first) {
    for (size_t i = 0; i < exec->node_count; i++)
        if (memcmp(exec->nodes[i].params, &first, sizeof first) == 0) return i;
    return SIZE_MAX;
}

static void a_run_launches_independent_nodes_first(void **state) {
    (void)state;
    work *w = begin();
    fig_graphs *graphs;
    fig_runner *runner;
    fig_fake_cuda *driver = fig_fake_cuda_install();
    assert_int_equal(fig_graphs_lower(&graphs, w->program, NULL), FIG_OK);
    assert_int_equal(fig_runner_open(&runner, graphs,
                                     FIG_OPTIONS(fig_runner_options, .device = FIG_DEVICE_CUDA)),
                     FIG_OK);
    fig_cu_stream stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    size_t count = 0;
    for (int meets = 0; meets <= 1; meets++) {
        const fig_run run = {.size = sizeof run,
                             .rows = ROWS,
                             .kv_length = LIMIT,
                             .bindings = w->bindings,
                             .binding_count = TENSORS,
                             .scratch = w->scratch,
                             .scratch_bytes = sizeof w->scratch,
                             .stream = stream};
        if (meets) w->bindings[ACT_1].address = w->memory[Q];
        assert_true(fig_fake_cuda_capture(stream));
        if (fig_runner_run(runner, &run) != FIG_OK) fail_msg("%s", fig_message());
        fig_cu_exec exec = fig_fake_cuda_end(stream);
        assert_non_null(exec);
        if (count == 0) count = exec->node_count;
        assert_int_equal(exec->node_count, count);
        /* The planner comes first, then both activations, then attention. If memory is shared, the
         * second activation comes last instead. */
        assert_int_equal(place_of(exec, w->memory[IN_0]), 1);
        assert_int_equal(place_of(exec, w->memory[IN_1]) == 2, !meets);
        fig_fake_cuda_drop(exec);
    }
    fig_fake_cuda_stream_destroy(stream);
    fig_runner_close(runner);
    fig_graphs_destroy(graphs);
    fig_cuda_resident_forget();
    assert_int_equal(driver->held, 0);
    fig_fake_cuda_remove();
    end(w);
}

/* ---- Weights */

enum { OF_GATE, GATED, OF_NORM, NORMED, WEIGHT, NORM_TENSORS };

/* Two nodes: an activation, and a norm whose weight no node of the program writes. */
static fig_program *record_norm(void) {
    static const int64_t widths[NORM_TENSORS] = {2 * WIDTH, WIDTH, WIDTH, WIDTH, WIDTH};
    static const char *const names[NORM_TENSORS] = {"of_gate", "gated", "of_norm", "normed",
                                                    "weight"};
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F16,
                           .q_heads = HEADS,
                           .kv_heads = 1,
                           .head_dim = DIM,
                           .batch_limit = ROWS,
                           .kv_limit = LIMIT};
    fig_tensor tensors[NORM_TENSORS];
    fig_program *program;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    for (int i = 0; i < NORM_TENSORS; i++)
        tensors[i] = fig_program_tensor(
            program, FIG_OPTIONS(fig_tensor_info, .name = names[i], .role = FIG_ROLE_BOUND,
                                 .dtype = FIG_F16, .rank = i == WEIGHT ? 1 : 2,
                                 .dims = {i == WEIGHT ? WIDTH : FIG_DIM_BATCH,
                                          i == WEIGHT ? 0 : widths[i]}));
    fig_silu_and_mul(program,
                     FIG_OPTIONS(fig_gated_op, .in = tensors[OF_GATE], .out = tensors[GATED]));
    fig_rms_norm(program, FIG_OPTIONS(fig_rms_norm_op, .in = tensors[OF_NORM],
                                      .weight = tensors[WEIGHT], .out = tensors[NORMED]));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

/* Norms read weights before their wait. If the run binds the weight to memory that another node
 * writes, the launch waits for that node as a whole, also when the memo repeats it. */
static void a_norm_whose_weight_the_run_writes_is_a_plain_launch(void **state) {
    (void)state;
    static _Alignas(64) uint8_t memory[NORM_TENSORS][BYTES];
    fig_program *program = record_norm();
    fig_graphs *graphs;
    fig_runner *runner;
    fig_fake_cuda *driver = fig_fake_cuda_install();
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    assert_int_equal(fig_runner_open(&runner, graphs,
                                     FIG_OPTIONS(fig_runner_options, .device = FIG_DEVICE_CUDA)),
                     FIG_OK);
    for (int n = 0; n < 4; n++) {
        const int is_written = n >= 2;
        fig_binding bindings[NORM_TENSORS];
        for (int i = 0; i < NORM_TENSORS; i++)
            bindings[i] = (fig_binding){
                .size = sizeof(fig_binding), .address = memory[i], .bytes = BYTES - GAP};
        bindings[WEIGHT].address = memory[is_written ? GATED : WEIGHT];
        bindings[WEIGHT].bytes = 2 * WIDTH;
        const fig_run run = {
            .size = sizeof run, .rows = ROWS, .bindings = bindings, .binding_count = NORM_TENSORS};
        const int64_t launches = driver->stream_launches, early = driver->early_launches;
        if (fig_runner_run(runner, &run) != FIG_OK) fail_msg("%s", fig_message());
        assert_int_equal(driver->stream_launches - launches, 2);
        assert_int_equal(driver->early_launches - early, is_written ? 1 : 2);
    }
    fig_runner_close(runner);
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
    fig_cuda_resident_forget();
    assert_int_equal(driver->held, 0);
    fig_fake_cuda_remove();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_without_edges_are_independent_except_attention),
        cmocka_unit_test(a_failed_allocation_leaves_no_order),
        cmocka_unit_test(memory_that_is_written_keeps_nodes_where_they_are),
        cmocka_unit_test(bindings_of_a_later_header_are_read_too),
        cmocka_unit_test(a_run_launches_independent_nodes_first),
        cmocka_unit_test(a_norm_whose_weight_the_run_writes_is_a_plain_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
