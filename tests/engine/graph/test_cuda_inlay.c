/* test_cuda_inlay.c: tests our kernels as nodes of a graph that a caller captures, over a driver
 * that needs no GPU: their edges, their early reads, and the driver's refusals. */
#include "engine/graph/cuda_inlay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "planner/status.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/driver/fake_graph.h"
#include "tests/support/fault.h"

static const fig_device_api *const api = &fig_device_cuda;
static const fig_dev_after none = {NULL, 0};

#undef fake
#define fake fig_cuda_bench_fake

/* A device, a capturing stream of the caller, and the captured graph. */
typedef struct scene {
    fig_cuda_bench b;
    fig_cu_stream stream;
    fig_graph_refs *refs;
    fig_cu_exec exec;
} scene;

static void open_scene(scene *s, const fig_test_options *test) {
    fig_test_options ours = {.size = sizeof ours};
    if (test != NULL) ours = *test;
    ours.size = sizeof ours;
    const fig_engine_options options = {.size = sizeof options, .test = &ours};
    *s = (scene){0};
    fig_cuda_bench_open(&s->b, &options);
    s->stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    s->refs = fig_graph_refs_create();
    fig_fake_cuda_capture(s->stream);
}

static fig_cu_graph end_capture(scene *s) {
    s->exec = fig_fake_cuda_end(s->stream);
    assert_non_null(s->exec);
    return s->exec->graph;
}

static void close_scene(scene *s) {
    if (s->exec == NULL) end_capture(s);
    fig_fake_cuda_drop(s->exec);
    fig_fake_cuda_stream_destroy(s->stream);
    fig_graph_refs_drop(s->refs);
    fig_cuda_bench_close(&s->b);
}

static fig_status append_graph(scene *s, fig_dev_graph *graph) {
    return api->graph_append(s->b.dev, graph, s->b.stream, s->stream, s->refs);
}

static fig_status add_kernel(scene *s, fig_dev_graph *graph, uint32_t early_reads,
                             fig_dev_after after) {
    const fig_gated_params params = {.width = 2, .early_reads = early_reads};
    const fig_dev_launch launch = {.op = FIG_OP_GATED,
                                   .grid = {1, 1, 1},
                                   .block = {32, 1, 1},
                                   .params = &params,
                                   .params_bytes = sizeof params};
    return api->graph_kernel(s->b.dev, graph, &launch, after);
}

/* Adds a kernel that is marked to begin early, whatever its place in the graph. */
static fig_status add_early(scene *s, fig_dev_graph *graph, fig_dev_after after) {
    return add_kernel(s, graph, FIG_EARLY_READS_ON, after);
}

static fig_status add_fetch(scene *s, fig_dev_graph *graph) {
    const fig_dev_launch launch = fig_cuda_scene_launch(&s->b.s);
    return api->graph_kernel(s->b.dev, graph, &launch, none);
}

static fig_dev_graph *make_graph(scene *s) {
    fig_dev_graph *graph;
    assert_int_equal(api->graph_create(s->b.dev, &graph), FIG_OK);
    return graph;
}

/* Makes a graph of one early kernel. */
static fig_dev_graph *make_one(scene *s) {
    fig_dev_graph *graph = make_graph(s);
    assert_int_equal(add_early(s, graph, none), FIG_OK);
    return graph;
}

static uint32_t early_reads_of(fig_cu_node node) {
    fig_gated_params params;
    memcpy(&params, node->params, sizeof params);
    assert_non_null(node->kernel);
    return params.early_reads;
}

/* Returns the number of edges into a node, either the programmatic or the plain ones. */
static size_t count_into(fig_cu_graph graph, fig_cu_node node, int is_programmatic) {
    size_t count = 0;
    for (size_t i = 0; i < graph->edge_count; i++)
        count += graph->edges[i].to == node &&
                 (graph->edges[i].data.type == FIG_CU_EDGE_PROGRAMMATIC) == is_programmatic;
    return count;
}

static fig_cu_node last_of(fig_cu_graph graph) {
    return graph->nodes[graph->node_count - 1];
}

static void nothing_to_do(void *user) {
    (void)user;
}

/* ---- Edges within a graph ------------------------------------------------------------------ */

/* Makes a graph: node 0 is the fetch; nodes 1 to 4 follow it, more than there are lanes; node 5
 * follows 1 and 3. */
static fig_dev_graph *make_wide(scene *s) {
    static const uint32_t both[] = {1, 3}, first = 0;
    fig_dev_graph *graph = make_graph(s);
    assert_int_equal(add_fetch(s, graph), FIG_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(add_early(s, graph, (fig_dev_after){&first, 1}), FIG_OK);
    assert_int_equal(add_early(s, graph, (fig_dev_after){both, 2}), FIG_OK);
    return graph;
}

static void nodes_and_edges_are_those_of_the_engines_own_graph(void **state) {
    (void)state;
    static const fig_test_options ways[] = {
        {.plain_edges = 0}, {.plain_edges = 1}, {.plain_kernels = 1}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        scene own, inlaid;
        fig_test_options test = ways[i];
        open_scene(&inlaid, &test);
        fig_dev_graph *wide = make_wide(&inlaid);
        fig_fake_cuda_enqueue(inlaid.stream, nothing_to_do, NULL);
        assert_int_equal(append_graph(&inlaid, wide), FIG_OK);
        test.child_nodes = 1;
        open_scene(&own, &test);
        fig_dev_graph *same = make_wide(&own);
        assert_int_equal(append_graph(&own, same), FIG_OK);
        fig_cu_graph child = end_capture(&own)->nodes[0]->child;
        assert_non_null(child);
        assert_int_equal(child->node_count, 6);
        assert_true(fig_fake_graph_is_alike(end_capture(&inlaid), 1, child));
        api->graph_destroy(own.b.dev, same);
        api->graph_destroy(inlaid.b.dev, wide);
        close_scene(&own);
        close_scene(&inlaid);
    }
}

static void the_caller_waits_for_all_ends_and_for_nothing_else(void **state) {
    (void)state;
    scene s;
    open_scene(&s, NULL);
    fig_dev_graph *wide = make_wide(&s), *one = make_one(&s);
    assert_int_equal(append_graph(&s, wide), FIG_OK);
    assert_in_range(s.stream->tail_count, 1, 3);
    for (size_t i = 0; i < s.stream->tail_count; i++)
        for (size_t e = 0; e < s.stream->capturing->edge_count; e++)
            assert_ptr_not_equal(s.stream->capturing->edges[e].from, s.stream->tails[i]);
    const size_t ends = s.stream->tail_count;
    assert_int_equal(append_graph(&s, one), FIG_OK);
    assert_int_equal(s.stream->tail_count, 1);
    fig_cu_graph graph = end_capture(&s);
    assert_int_equal(count_into(graph, last_of(graph), 1), ends);
    /* Every node except the last has an edge to a later one. */
    for (size_t n = 0; n + 1 < graph->node_count; n++) {
        size_t out = 0;
        for (size_t e = 0; e < graph->edge_count; e++)
            out += graph->edges[e].from == graph->nodes[n];
        assert_true(out > 0);
    }
    api->graph_destroy(s.b.dev, one);
    api->graph_destroy(s.b.dev, wide);
    close_scene(&s);
}

/* ---- Edges from the caller's nodes --------------------------------------------------------- */

static void a_kernel_behind_an_engines_kernel_may_be_early(void **state) {
    (void)state;
    scene s;
    open_scene(&s, NULL);
    fig_dev_graph *fetch = make_graph(&s), *one = make_one(&s);
    assert_int_equal(add_fetch(&s, fetch), FIG_OK);
    assert_int_equal(append_graph(&s, fetch), FIG_OK);
    assert_int_equal(append_graph(&s, one), FIG_OK); /* after the kernel that makes the plan */
    assert_int_equal(append_graph(&s, one), FIG_OK);
    assert_int_equal(append_graph(&s, fetch), FIG_OK);
    assert_int_equal(append_graph(&s, one), FIG_OK);
    fig_cu_graph graph = end_capture(&s);
    assert_int_equal(graph->edge_count, 4);
    for (size_t i = 1; i < 5; i++)
        assert_int_equal(count_into(graph, graph->nodes[i], 1), 1);
    assert_int_equal(early_reads_of(graph->nodes[1]), 0);
    assert_int_equal(early_reads_of(graph->nodes[2]), FIG_EARLY_READS_ON);
    assert_int_equal(early_reads_of(graph->nodes[4]), 0);
    api->graph_destroy(s.b.dev, one);
    api->graph_destroy(s.b.dev, fetch);
    close_scene(&s);
}

/* In the engine's own graph this kernel comes directly after the kernel that makes the plan. In the
 * caller's graph another kernel comes between them. */
static void a_kernel_that_is_late_in_the_engines_graph_may_be_early_in_a_callers(void **state) {
    (void)state;
    scene s;
    open_scene(&s, NULL);
    fig_dev_graph *fetch = make_graph(&s), *late = make_graph(&s);
    assert_int_equal(add_fetch(&s, fetch), FIG_OK);
    assert_int_equal(add_kernel(&s, late, 0, none), FIG_OK);
    assert_int_equal(append_graph(&s, fetch), FIG_OK);
    assert_int_equal(append_graph(&s, late), FIG_OK); /* after the kernel that makes the plan */
    assert_int_equal(append_graph(&s, late), FIG_OK);
    fake->enqueues_kernels = 1;
    fig_fake_cuda_enqueue(s.stream, nothing_to_do, NULL);
    assert_int_equal(append_graph(&s, late), FIG_OK); /* after the caller's kernel */
    assert_int_equal(append_graph(&s, late), FIG_OK);
    fig_cu_graph graph = end_capture(&s);
    assert_int_equal(graph->node_count, 6);
    assert_int_equal(early_reads_of(graph->nodes[1]), 0);
    assert_int_equal(early_reads_of(graph->nodes[2]), FIG_EARLY_READS_ON);
    assert_int_equal(early_reads_of(graph->nodes[4]), 0);
    assert_int_equal(early_reads_of(graph->nodes[5]), FIG_EARLY_READS_ON);
    api->graph_destroy(s.b.dev, late);
    api->graph_destroy(s.b.dev, fetch);
    close_scene(&s);
}

/* The caller's kernel may write memory that our kernel reads, and may trigger our kernel before it
 * has written. */
static void a_kernel_behind_a_callers_kernel_waits_first(void **state) {
    (void)state;
    scene s;
    open_scene(&s, NULL);
    fig_dev_graph *one = make_one(&s);
    fake->enqueues_kernels = 1;
    fig_fake_cuda_enqueue(s.stream, nothing_to_do, NULL);
    assert_int_equal(append_graph(&s, one), FIG_OK);
    fig_cu_graph graph = end_capture(&s);
    assert_int_equal(count_into(graph, last_of(graph), 1), 1);
    assert_int_equal(early_reads_of(last_of(graph)), 0);
    api->graph_destroy(s.b.dev, one);
    close_scene(&s);
}

static void a_kernel_behind_a_callers_copy_has_a_full_edge(void **state) {
    (void)state;
    scene s;
    open_scene(&s, NULL);
    fig_dev_graph *one = make_one(&s);
    fig_fake_cuda_enqueue(s.stream, nothing_to_do, NULL);
    assert_int_equal(append_graph(&s, one), FIG_OK);
    fig_cu_graph graph = end_capture(&s);
    assert_int_equal(count_into(graph, last_of(graph), 0), 1);
    assert_int_equal(count_into(graph, last_of(graph), 1), 0);
    /* an early read is safe: the copy has ended */
    assert_int_equal(early_reads_of(last_of(graph)), FIG_EARLY_READS_ON);
    api->graph_destroy(s.b.dev, one);
    close_scene(&s);
}

/* The two nodes are unordered, as after the caller's stream has waited for another stream. */
static void each_of_several_preceding_nodes_has_its_own_edge(void **state) {
    (void)state;
    scene s;
    fig_cu_node both[2];
    open_scene(&s, NULL);
    fig_dev_graph *one = make_one(&s);
    fake->enqueues_kernels = 1;
    assert_int_equal(append_graph(&s, one), FIG_OK);
    both[0] = s.stream->tails[0];
    fig_fake_cuda_enqueue(s.stream, nothing_to_do, NULL);
    both[1] = s.stream->tails[0];
    assert_int_equal(fig_cuda_api_table()->StreamUpdateCaptureDependencies(
                         s.stream, both, NULL, 2, FIG_CU_CAPTURE_SET_DEPENDENCIES),
                     0);
    assert_int_equal(append_graph(&s, one), FIG_OK);
    fig_cu_graph graph = end_capture(&s);
    assert_int_equal(count_into(graph, last_of(graph), 1), 2);
    assert_int_equal(early_reads_of(last_of(graph)), 0); /* one of the two nodes is the caller's */
    api->graph_destroy(s.b.dev, one);
    close_scene(&s);
}

static void a_kernel_of_another_engine_counts_as_the_callers(void **state) {
    (void)state;
    scene s, other;
    open_scene(&s, NULL);
    open_scene(&other, NULL);
    fig_dev_graph *one = make_one(&s), *theirs = make_one(&other);
    assert_int_equal(api->graph_append(other.b.dev, theirs, other.b.stream, s.stream, other.refs),
                     FIG_OK);
    assert_int_equal(append_graph(&s, one), FIG_OK);
    fig_cu_graph graph = end_capture(&s);
    assert_int_equal(count_into(graph, last_of(graph), 1), 1);
    assert_int_equal(early_reads_of(last_of(graph)), 0);
    api->graph_destroy(s.b.dev, one);
    api->graph_destroy(other.b.dev, theirs);
    fig_fake_cuda_drop(s.exec); /* the exec holds a reference to the other engine's graph */
    s.exec = NULL;
    fig_fake_cuda_capture(s.stream);
    close_scene(&other);
    close_scene(&s);
}

/* ---- Refusals of the driver ---------------------------------------------------------------- */

static void a_driver_that_takes_no_kernel_node_gets_a_child(void **state) {
    (void)state;
    scene s;
    open_scene(&s, NULL);
    fig_dev_graph *one = make_one(&s);
    fake->refuses_nodes = 1;
    assert_int_equal(append_graph(&s, one), FIG_OK);
    assert_int_equal(append_graph(&s, one), FIG_OK);
    fig_cu_graph graph = end_capture(&s);
    assert_int_equal(fake->children, 2);
    assert_int_equal(graph->node_count, 2);
    assert_int_equal(graph->objects.count, 2); /* one reference each */
    assert_int_equal(count_into(graph, graph->nodes[1], 0), 1);
    api->graph_destroy(s.b.dev, one);
    close_scene(&s);
}

static void a_driver_that_takes_no_edge_from_a_callers_kernel_gets_a_full_one(void **state) {
    (void)state;
    scene s;
    open_scene(&s, NULL);
    fig_dev_graph *one = make_one(&s);
    fake->enqueues_kernels = fake->refuses_edges = 1;
    fig_fake_cuda_enqueue(s.stream, nothing_to_do, NULL);
    assert_int_equal(append_graph(&s, one), FIG_OK);
    assert_int_equal(append_graph(&s, one), FIG_OK);
    fig_cu_graph graph = end_capture(&s);
    assert_int_equal(fake->children, 0);
    assert_int_equal(count_into(graph, graph->nodes[1], 0), 1);
    assert_int_equal(early_reads_of(graph->nodes[1]), 0);
    assert_int_equal(count_into(graph, graph->nodes[2], 1), 1);
    assert_int_equal(early_reads_of(graph->nodes[2]), FIG_EARLY_READS_ON);
    api->graph_destroy(s.b.dev, one);
    close_scene(&s);
}

/* At that point half of our graph is in the caller's graph, so the append fails instead of adding a
 * child node. */
static void a_driver_that_refuses_a_later_call_fails_the_append(void **state) {
    (void)state;
    static const char *const calls[] = {"cuGraphAddDependencies",
                                        "cuStreamUpdateCaptureDependencies"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        scene s;
        open_scene(&s, NULL);
        fig_dev_graph *wide = make_wide(&s);
        fake->fail_name = calls[i], fake->fail_with = 801;
        assert_int_equal(append_graph(&s, wide), FIG_DRIVER);
        assert_non_null(strstr(fig_message(), calls[i]));
        fake->fail_name = NULL;
        assert_int_equal(fake->children, 0);
        api->graph_destroy(s.b.dev, wide);
        close_scene(&s);
    }
}

static void a_graph_that_holds_a_call_stays_a_child(void **state) {
    (void)state;
    static const uint32_t first = 0;
    scene s;
    open_scene(&s, NULL);
    fig_dev_graph *mixed = make_one(&s);
    fig_dev_call call = fig_cuda_scene_call(&s.b.s);
    assert_int_equal(api->graph_call(s.b.dev, mixed, &call, (fig_dev_after){&first, 1}), FIG_OK);
    assert_int_equal(append_graph(&s, mixed), FIG_OK);
    assert_int_equal(fake->children, 1);
    api->graph_destroy(s.b.dev, mixed);
    close_scene(&s);
}

static void a_lack_of_memory_gives_a_status_and_a_message(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        scene s;
        open_scene(&s, NULL);
        fig_dev_graph *graph = make_graph(&s);
        fig_fault_arm(n);
        fig_status status = add_early(&s, graph, none);
        if (status == FIG_OK) status = append_graph(&s, graph);
        const int64_t seen = fig_fault_disarm();
        api->graph_destroy(s.b.dev, graph);
        close_scene(&s);
        if (seen < n) {
            assert_int_equal(status, FIG_OK);
            assert_in_range(n, 8, 60); /* otherwise this test has tested nothing */
            return;
        }
        assert_int_equal(status, FIG_NOMEM);
        assert_true(fig_message()[0] != '\0');
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(nodes_and_edges_are_those_of_the_engines_own_graph),
        FIG_CUDA_BENCH_TEST(the_caller_waits_for_all_ends_and_for_nothing_else),
        FIG_CUDA_BENCH_TEST(a_kernel_behind_an_engines_kernel_may_be_early),
        FIG_CUDA_BENCH_TEST(a_kernel_that_is_late_in_the_engines_graph_may_be_early_in_a_callers),
        FIG_CUDA_BENCH_TEST(a_kernel_behind_a_callers_kernel_waits_first),
        FIG_CUDA_BENCH_TEST(a_kernel_behind_a_callers_copy_has_a_full_edge),
        FIG_CUDA_BENCH_TEST(each_of_several_preceding_nodes_has_its_own_edge),
        FIG_CUDA_BENCH_TEST(a_kernel_of_another_engine_counts_as_the_callers),
        FIG_CUDA_BENCH_TEST(a_driver_that_takes_no_kernel_node_gets_a_child),
        FIG_CUDA_BENCH_TEST(a_driver_that_takes_no_edge_from_a_callers_kernel_gets_a_full_one),
        FIG_CUDA_BENCH_TEST(a_driver_that_refuses_a_later_call_fails_the_append),
        FIG_CUDA_BENCH_TEST(a_graph_that_holds_a_call_stays_a_child),
        FIG_CUDA_BENCH_TEST(a_lack_of_memory_gives_a_status_and_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
