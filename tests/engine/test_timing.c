/* test_timing.c: tests the results of fig_engine_time(), its effects on the engine and its
 * refusals. */
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/hang.h"
#include "tests/support/place.h"

enum { ROWS = 3, KV_LIMIT = 256 };

static const int32_t lengths[ROWS] = {17, 0, 40};
static const fig_step three_rows = {.size = sizeof three_rows, .rows = ROWS, .kv_lengths = lengths};
static const fig_bucket buckets[] = {{4, 8}, {4, KV_LIMIT}};
static const fig_decode_options decode_options = {.dtype = FIG_F16,
                                                  .layers = 1,
                                                  .page_size = 16,
                                                  .batch_limit = 4,
                                                  .kv_limit = KV_LIMIT,
                                                  .buckets = buckets,
                                                  .bucket_count = 2};

typedef struct bench {
    fig_decode decode;
    fig_engine *engine;
} bench;

static void open_bench(bench *b) {
    fig_random random = fig_random_seed(7);
    fig_engine_options options = fig_place_options();
    memset(b, 0, sizeof *b);
    fig_decode_open(&b->decode, &decode_options);
    assert_int_equal(fig_engine_open(&b->engine, b->decode.graphs, &options), FIG_OK);
    fig_decode_bind(&b->decode, b->engine);
    for (int32_t row = 0; row < ROWS; row++)
        fig_decode_prefill(&b->decode, row, lengths[row], &random);
    fig_decode_fill(&b->decode, &random);
}

static void close_bench(bench *b) {
    fig_engine_close(b->engine);
    fig_decode_close(&b->decode);
}

static fig_status time_with(fig_engine *engine, const fig_timing_options *options,
                            fig_timed *timed) {
    *timed = (fig_timed){.size = sizeof *timed, .median_ns = -1};
    return fig_engine_time(engine, options, timed);
}

/* Checks that the engine is idle, that nothing is staged, and that the next step is right. */
static void check_usable(bench *b) {
    fig_random random = fig_random_seed(9);
    assert_int_equal(b->engine->staged, b->engine->launched);
    fig_decode_fill(&b->decode, &random);
    assert_int_equal(fig_engine_step(b->engine, &three_rows), FIG_OK);
    assert_int_equal(fig_engine_wait(b->engine, FIG_HANG_US), FIG_OK);
    fig_decode_check(&b->decode, &three_rows);
}

static void check_figures(const fig_timed *timed) {
    assert_true(timed->least_ns > 0 && timed->least_ns <= timed->median_ns);
    assert_true(timed->median_ns <= timed->most_ns && timed->most_ns < 1e9 * FIG_HANG_S);
}

static void a_step_and_a_tensor_are_timed_and_the_engine_is_usable(void **state) {
    (void)state;
    static bench b;
    fig_timed timed;
    open_bench(&b);
    assert_int_equal(time_with(b.engine,
                               FIG_OPTIONS(fig_timing_options, .step = &three_rows, .samples = 5,
                                           .sample_us = 10),
                               &timed),
                     FIG_OK);
    check_figures(&timed);
    assert_true(timed.bucket > 0);
    assert_int_equal(b.engine->counters.last_bucket, timed.bucket);
    check_usable(&b);
    assert_int_equal(time_with(b.engine,
                               FIG_OPTIONS(fig_timing_options, .tensor = "k_cache.0", .samples = 3,
                                           .sample_us = 10),
                               &timed),
                     FIG_OK);
    check_figures(&timed);
    assert_int_equal(timed.bucket, 0);
    check_usable(&b);
    close_bench(&b);
}

static const fig_device_api *real;
static int32_t launched;

static fig_status count_launch(fig_dev *dev, fig_dev_exec *exec, fig_dev_stream *stream) {
    launched++;
    return real->exec_launch(dev, exec, stream);
}

static int32_t launches_of(bench *b, int32_t replays) {
    static fig_device_api counting;
    fig_timed timed;
    real = b->engine->api;
    counting = *real;
    counting.exec_launch = count_launch;
    b->engine->api = b->engine->bindings.api = &counting;
    launched = 0;
    const fig_timing_options options = {.size = sizeof options,
                                        .step = &three_rows,
                                        .samples = 3,
                                        .sample_us = 1,
                                        .replays = replays};
    assert_int_equal(time_with(b->engine, &options, &timed), FIG_OK);
    b->engine->api = b->engine->bindings.api = real;
    return launched;
}

static void a_sample_has_as_many_replays_as_the_caller_asks(void **state) {
    (void)state;
    static bench b;
    open_bench(&b);
    assert_int_equal(launches_of(&b, 100) - launches_of(&b, 1), 3 * 99);
    close_bench(&b);
}

static void a_copy_makes_the_second_half_the_first_and_leaves_all_else(void **state) {
    (void)state;
    static bench b;
    static uint8_t before[1 << 20], after[1 << 20];
    fig_timed timed;
    uint32_t tensor;
    open_bench(&b);
    assert_int_equal(fig_binding_find(&b.engine->bindings, "k_cache.0", &tensor), FIG_OK);
    const size_t bytes = b.engine->bindings.tensors[tensor - 1].place.bytes;
    const fig_span all = {.size = sizeof all, .name = "k_cache.0", .bytes = bytes};
    assert_true(bytes <= sizeof before);
    assert_int_equal(fig_engine_read(b.engine, &all, before), FIG_OK);
    assert_memory_not_equal(before, before + bytes / 2, bytes / 2);
    assert_int_equal(time_with(b.engine,
                               FIG_OPTIONS(fig_timing_options, .tensor = "k_cache.0", .samples = 3,
                                           .sample_us = 10, .copies = 1),
                               &timed),
                     FIG_OK);
    check_figures(&timed);
    assert_int_equal(fig_engine_read(b.engine, &all, after), FIG_OK);
    assert_memory_equal(after, before, bytes / 2);
    assert_memory_equal(after + bytes / 2, before, bytes / 2);
    close_bench(&b);
}

/* The number of nodes in one graph, and the number of those that follow only the node directly
 * before them. */
static uint32_t node_count, follower_count;

static fig_status note_kernel(fig_dev *dev, fig_dev_graph *graph, const fig_dev_launch *launch,
                              fig_dev_after after) {
    follower_count += node_count > 0 && after.count == 1 && after.nodes[0] == node_count - 1;
    node_count++;
    return real->graph_kernel(dev, graph, launch, after);
}

static fig_status note_graph(fig_dev *dev, fig_dev_graph **graph) {
    node_count = follower_count = 0;
    return real->graph_create(dev, graph);
}

static void launches_are_one_after_another_where_serial_is_asked_for(void **state) {
    (void)state;
    static bench b;
    static fig_device_api noting;
    fig_timing_options options = {
        .size = sizeof options, .step = &three_rows, .samples = 1, .sample_us = 1};
    fig_timed timed;
    open_bench(&b);
    real = b.engine->api;
    noting = *real;
    noting.graph_create = note_graph;
    noting.graph_kernel = note_kernel;
    b.engine->api = b.engine->bindings.api = &noting;
    assert_int_equal(time_with(b.engine, &options, &timed), FIG_OK);
    assert_true(node_count > 1 && follower_count < node_count - 1);
    options.serial = 1;
    assert_int_equal(time_with(b.engine, &options, &timed), FIG_OK);
    assert_int_equal(follower_count, node_count - 1);
    b.engine->api = b.engine->bindings.api = real;
    check_usable(&b);
    close_bench(&b);
}

/* The kernels of one graph in order. Of each: its operation, what it reads if it is a spacer, and
 * whether it is plain and follows only the kernel directly before it. */
enum { KERNEL_LIMIT = 64 };
static struct kernel {
    fig_op op;
    int is_plain, follows;
    fig_ceiling_params reads;
} kernels[KERNEL_LIMIT];
static uint32_t kernel_count;

static fig_status list_kernel(fig_dev *dev, fig_dev_graph *graph, const fig_dev_launch *launch,
                              fig_dev_after after) {
    struct kernel *kernel = &kernels[kernel_count];
    assert_true(kernel_count < KERNEL_LIMIT);
    *kernel = (struct kernel){.op = launch->op, .is_plain = launch->is_plain};
    kernel->follows = kernel_count == 0 ? after.count == 0
                                        : after.count == 1 && after.nodes[0] == kernel_count - 1;
    if (launch->op == FIG_OP_CEILING) memcpy(&kernel->reads, launch->params, sizeof kernel->reads);
    kernel_count++;
    return real->graph_kernel(dev, graph, launch, after);
}

static fig_status begin_list(fig_dev *dev, fig_dev_graph **graph) {
    kernel_count = 0;
    return real->graph_create(dev, graph);
}

/* Spacers read the first and the second 48 of these 112 bytes in turn. */
enum { WEIGHTS = 112 };
static const uint8_t *weights; /* their address on the device */
static fig_spacer spacer_of_weights(void) {
    return (fig_spacer){
        .size = sizeof(fig_spacer), .memory = weights, .memory_bytes = WEIGHTS, .bytes = 48};
}

static void time_spaced(bench *b, const fig_spacer *spacer) {
    static fig_device_api listing;
    fig_timed timed;
    real = b->engine->api;
    listing = *real;
    listing.graph_create = begin_list;
    listing.graph_kernel = list_kernel;
    b->engine->api = b->engine->bindings.api = &listing;
    const fig_timing_options options = {.size = sizeof options,
                                        .step = &three_rows,
                                        .samples = 1,
                                        .sample_us = 1,
                                        .spacer = spacer};
    assert_int_equal(time_with(b->engine, &options, &timed), FIG_OK);
    check_figures(&timed);
    b->engine->api = b->engine->bindings.api = real;
}

static void a_spacer_stands_before_each_node_and_reads_what_comes_next(void **state) {
    (void)state;
    static bench b;
    uint32_t spacers = 0;
    const fig_spacer spacer = spacer_of_weights();
    open_bench(&b);
    time_spaced(&b, &spacer);
    assert_true(kernel_count >= 4);
    for (uint32_t i = 0; i < kernel_count; i++) {
        const struct kernel *kernel = &kernels[i];
        const int is_spacer = kernel->op == FIG_OP_CEILING;
        assert_true(kernel->follows);
        if (!is_spacer) continue;
        assert_true(kernel->is_plain && i + 1 < kernel_count && kernels[i + 1].is_plain);
        assert_int_not_equal(kernels[i + 1].op, FIG_OP_CEILING);
        assert_ptr_equal(kernel->reads.in, weights + spacers % 2 * 48);
        assert_int_equal(kernel->reads.pieces, 3);
        spacers++;
    }
    assert_int_equal(kernels[0].op, FIG_OP_CEILING);
    assert_int_equal(spacers, b.engine->program->node_count);
    check_usable(&b);
    close_bench(&b);
}

static void as_many_nodes_are_spaced_as_the_spacer_asks(void **state) {
    (void)state;
    static bench b;
    fig_spacer spacer = spacer_of_weights();
    open_bench(&b);
    spacer.nodes = 2;
    time_spaced(&b, &spacer);
    uint32_t spacers = 0;
    for (uint32_t i = 0; i < kernel_count; i++)
        spacers += kernels[i].op == FIG_OP_CEILING;
    assert_int_equal(spacers, 2);
    assert_int_not_equal(kernels[kernel_count - 1].op, FIG_OP_CEILING);
    spacer.only = 1;
    time_spaced(&b, &spacer);
    assert_int_equal(kernel_count, 2);
    for (uint32_t i = 0; i < kernel_count; i++)
        assert_true(kernels[i].op == FIG_OP_CEILING && kernels[i].is_plain && kernels[i].follows);
    spacer.bytes = 0;
    time_spaced(&b, &spacer);
    assert_int_equal(kernels[1].reads.pieces, 0);
    check_usable(&b);
    close_bench(&b);
}

static void refuse(bench *b, const fig_timing_options *options, fig_status status,
                   const char *sentence) {
    fig_timed timed;
    assert_int_equal(time_with(b->engine, options, &timed), status);
    assert_non_null(strstr(fig_message(), sentence));
    assert_true(timed.median_ns == 0);
}

static void wrong_values_are_refused(void **state) {
    (void)state;
    static bench b;
    const fig_step longer = {.size = sizeof longer, .rows = 5, .kv_lengths = lengths};
    open_bench(&b);
    refuse(&b, NULL, FIG_INVALID, "neither was");
    refuse(&b, FIG_OPTIONS(fig_timing_options, .step = &three_rows, .tensor = "q.0"), FIG_INVALID,
           "both were");
    refuse(&b, FIG_OPTIONS(fig_timing_options, .step = &three_rows, .samples = -1), FIG_INVALID,
           "samples is -1");
    refuse(&b, FIG_OPTIONS(fig_timing_options, .step = &three_rows, .samples = 1001), FIG_INVALID,
           "samples is 1001");
    refuse(&b, FIG_OPTIONS(fig_timing_options, .step = &three_rows, .sample_us = -1), FIG_INVALID,
           "sample_us is -1");
    refuse(&b, FIG_OPTIONS(fig_timing_options, .step = &three_rows, .replays = 1001), FIG_INVALID,
           "replays is 1001");
    refuse(&b, FIG_OPTIONS(fig_timing_options, .tensor = "nothing"), FIG_INVALID, "nothing");
    refuse(&b, FIG_OPTIONS(fig_timing_options, .step = &longer), FIG_TOO_LARGE, "rows");
    fig_spacer spacer = spacer_of_weights();
    refuse(&b, FIG_OPTIONS(fig_timing_options, .tensor = "q.0", .spacer = &spacer), FIG_INVALID,
           "spacer needs step");
    const fig_timing_options spaced = {
        .size = sizeof spaced, .step = &three_rows, .spacer = &spacer};
    spacer.nodes = -1;
    refuse(&b, &spaced, FIG_INVALID, "nodes is -1");
    spacer.nodes = 0;
    for (int64_t i = 0; i < 3; i++) {
        static const int64_t wrong[] = {-16, 8, 128};
        spacer.bytes = wrong[i];
        refuse(&b, &spaced, FIG_INVALID, "a multiple of 16 from 0 to memory_bytes, 112");
    }
    assert_int_equal(fig_engine_stage(b.engine, &three_rows), FIG_OK);
    refuse(&b, FIG_OPTIONS(fig_timing_options, .step = &three_rows), FIG_ORDER,
           "1 staged step to launch");
    assert_int_equal(fig_engine_take_back(b.engine), FIG_OK);
    check_usable(&b);
    close_bench(&b);
}

/* Fails each device call in turn. Steps that have begun still end, and the engine remains
 * usable. */
static void fail_each_call(const fig_spacer *spacer) {
    static bench b;
    int failures = 0, failed = 1;
    fig_engine_options options = fig_place_host_only("the host fails at a call that is asked for");
    options.device = FIG_DEVICE_HOST;
    options.slots = 2;
    open_bench(&b);
    fig_engine_close(b.engine);
    for (int64_t n = 1; failed || failures == 0; n++) {
        const fig_timing_options order = {.size = sizeof order,
                                          .step = &three_rows,
                                          .samples = 1,
                                          .sample_us = 1,
                                          .spacer = spacer};
        fig_timed timed;
        options.test = FIG_OPTIONS(fig_test_options, .fail_at_call = n);
        if (fig_engine_open(&b.engine, b.decode.graphs, &options) != FIG_OK) continue;
        int bound = 1;
        for (int i = 0; i < FIG_DECODE_K_SCALE; i++) {
            const fig_binding binding = fig_decode_binding(&b.decode, 0, (fig_decode_kind)i);
            bound &= fig_engine_bind(b.engine, &binding) == FIG_OK;
        }
        const fig_span table = {.size = sizeof table,
                                .name = "page_table",
                                .bytes = (size_t)b.decode.spec.sequence_limit *
                                         (size_t)b.decode.sequence_pages * 4};
        bound &= fig_engine_write(b.engine, &table, b.decode.page_table) == FIG_OK;
        if (bound) {
            failed = time_with(b.engine, &order, &timed) != FIG_OK;
            failures += failed;
            check_usable(&b);
        }
        fig_engine_close(b.engine);
    }
    assert_true(failures > 10);
    b.engine = NULL;
    close_bench(&b);
}

static void every_device_call_may_fail(void **state) {
    (void)state;
    fail_each_call(NULL);
    const fig_spacer spacer = spacer_of_weights();
    fail_each_call(&spacer);
}

static void an_address_is_where_a_tensor_lies(void **state) {
    (void)state;
    static bench b;
    void *address = &b;
    open_bench(&b);
    const fig_binding binding = fig_decode_binding(&b.decode, 0, FIG_DECODE_Q);
    assert_int_equal(fig_engine_address(b.engine, "q.0", &address), FIG_OK);
    assert_ptr_equal(address, binding.address);
    assert_int_equal(fig_engine_address(b.engine, "nothing", &address), FIG_INVALID);
    assert_null(address);
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_and_a_tensor_are_timed_and_the_engine_is_usable),
        cmocka_unit_test(a_sample_has_as_many_replays_as_the_caller_asks),
        cmocka_unit_test(a_copy_makes_the_second_half_the_first_and_leaves_all_else),
        cmocka_unit_test(launches_are_one_after_another_where_serial_is_asked_for),
        cmocka_unit_test(a_spacer_stands_before_each_node_and_reads_what_comes_next),
        cmocka_unit_test(as_many_nodes_are_spaced_as_the_spacer_asks),
        cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(every_device_call_may_fail),
        cmocka_unit_test(an_address_is_where_a_tensor_lies),
    };
    void *memory = fig_place_allocate(WEIGHTS);
    if (memory == NULL) return 1;
    weights = memory;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fig_place_free(memory);
    return failed;
}
