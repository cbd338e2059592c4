/* test_topology.c: tests what is found on machines of every shape, and how threads are bound on
 * this machine.
 *
 * With HWLOC_THISSYSTEM, hwloc takes a synthetic machine for the real one and really binds threads.
 * The system reports independently where a thread may run. */
#include "engine/machine/topology.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/cores.h"
#include "tests/support/fault.h"

static fig_topology *open_topology(const char *synthetic) {
    fig_topology *topology;
    if (fig_topology_open(&topology, synthetic) != FIG_OK) fail_msg("%s", fig_message());
    return topology;
}

/* ---- Descriptions of machines -------------------------------------------------------------- */

/* threads: the number near each node */
typedef struct machine {
    const char *synthetic;
    int32_t packages, cores, threads, nodes;
    const char *node_list;
    const char *beside[4];
} machine;

static const machine machines[] = {
    {"pack:2 [numa] core:4 pu:2", 2, 8, 16, 2, "0-1", {"0-7", "8-15"}},
    {"numa:4 core:2 pu:1", 0, 8, 8, 4, "0-3", {"0-1", "2-3", "4-5", "6-7"}},
    {"pack:1 core:6 pu:1", 1, 6, 6, 1, "0", {"0-5"}},
    {"pu:3", 0, 3, 3, 1, "0", {"0-2"}},
    {"pack:2 numa:2(indexes=0,8,16,24) core:1 pu:1", 2, 4, 4, 4, "0,8,16,24", {"0"}},
    {"pack:2 [numa] core:96 pu:4", 2, 192, 768, 2, "0-1", {"0-383", "384-767"}},
    {"numa:2 pu:4(indexes=0,2,4,6,1,3,5,7)", 0, 8, 8, 2, "0-1", {"0,2,4,6", "1,3,5,7"}},
};
enum { MACHINES = sizeof machines / sizeof machines[0] };

static void machines_of_every_shape_are_described(void **state) {
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        const machine *m = &machines[i];
        fig_topology_info info;
        fig_topology *topology = open_topology(m->synthetic);
        fig_topology_read_info(topology, &info);
        assert_int_equal(info.packages, m->packages);
        assert_int_equal(info.cores, m->cores);
        assert_int_equal(info.threads, m->threads);
        assert_int_equal(info.nodes, m->nodes);
        assert_string_equal(info.node_list, m->node_list);
        fig_topology_close(topology);
    }
}

static void a_node_is_found_by_its_number_with_its_threads(void **state) {
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        fig_topology *topology = open_topology(machines[i].synthetic);
        for (int32_t node = 0; node < 4 && machines[i].beside[node] != NULL; node++) {
            char list[FIG_TOPOLOGY_LIST_BYTES];
            assert_true(fig_topology_has_node(topology, node));
            fig_topology_list_threads(topology, node, list);
            assert_string_equal(list, machines[i].beside[node]);
        }
        fig_topology_close(topology);
    }
    fig_topology *sparse = open_topology(machines[4].synthetic);
    char list[FIG_TOPOLOGY_LIST_BYTES];
    fig_topology_list_threads(sparse, 24, list);
    assert_string_equal(list, "3");
    fig_topology_close(sparse);
}

static void a_missing_node_is_not_found(void **state) {
    (void)state;
    fig_topology *topology = open_topology("numa:2 pu:2");
    static const int32_t absent[] = {-1, -2, INT32_MIN, 2, 3, 1024, INT32_MAX};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        char list[FIG_TOPOLOGY_LIST_BYTES] = "x";
        assert_false(fig_topology_has_node(topology, absent[i]));
        fig_topology_list_threads(topology, absent[i], list);
        assert_string_equal(list, "");
        assert_true(fig_topology_is_beside(topology, absent[i]));
    }
    assert_int_equal(fig_topology_bind_thread(topology, 2), FIG_UNSUPPORTED);
    assert_string_equal(fig_message(), "topology: node 2 has no cores for this process");
    fig_topology_close(topology);
}

static void a_list_that_does_not_fit_is_cut_short(void **state) {
    (void)state;
    char synthetic[4096] = "numa:2 pu:300(indexes=", list[FIG_TOPOLOGY_LIST_BYTES];
    for (int i = 0; i < 600; i++) /* Every second thread belongs to node 0. */
        snprintf(synthetic + strlen(synthetic), sizeof synthetic - strlen(synthetic), "%d%s",
                 i < 300 ? 2 * i : 2 * (i - 300) + 1, i < 599 ? "," : ")");
    fig_topology *topology = open_topology(synthetic);
    fig_topology_list_threads(topology, 0, list);
    assert_int_equal(strlen(list), FIG_TOPOLOGY_LIST_BYTES - 1);
    assert_int_equal(strncmp(list, "0,2,4,6,", 8), 0);
    fig_topology_close(topology);
}

static void traits_of_no_machine_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"", "bogus", "pack:x", "numa:0 pu:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        fig_topology *topology = (fig_topology *)state;
        assert_int_equal(fig_topology_open(&topology, wrong[i]), FIG_INVALID);
        assert_null(topology);
        assert_non_null(strstr(fig_message(), wrong[i]));
    }
    fig_topology_close(NULL);
}

/* ---- This machine -------------------------------------------------------------------------- */

static void this_machine_has_threads_and_a_node(void **state) {
    (void)state;
    fig_topology_info info;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    fig_topology *topology = open_topology(NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    fig_topology_read_info(topology, &info);
    assert_true(info.nodes >= 1 && info.threads >= info.cores && info.cores >= info.packages);
    assert_true(info.threads >= 1 && info.threads <= sysconf(_SC_NPROCESSORS_CONF));
    assert_true(info.node_list[0] != '\0');
    print_message("%d threads, nodes %s: %.2f ms\n", info.threads, info.node_list,
                  (double)(end.tv_sec - begin.tv_sec) * 1e3 +
                      (double)(end.tv_nsec - begin.tv_nsec) / 1e6);
    fig_topology_close(topology);
}

/* ---- Binding ------------------------------------------------------------------------------- */

/* Opens the two cores as two nodes; node 1 is the one near `second`. */
static fig_topology *open_two(const fig_cores *cores) {
    char synthetic[64];
    snprintf(synthetic, sizeof synthetic, "numa:2 pu:1(indexes=%d,%d)", cores->first,
             cores->second);
    return open_topology(synthetic);
}

static void a_thread_is_bound_to_the_cores_of_its_node(void **state) {
    const fig_cores cores = fig_cores_of(state);
    fig_topology *topology = open_two(&cores);
    assert_true(fig_topology_is_beside(topology, 0) && fig_topology_is_beside(topology, 1));
    assert_int_equal(fig_topology_bind_thread(topology, 1), FIG_OK);
    fig_cores_check(cores.second, -1);
    assert_true(fig_topology_is_beside(topology, 1));
    assert_false(fig_topology_is_beside(topology, 0));
    assert_int_equal(fig_topology_bind_thread(topology, 0),
                     FIG_OK); /* until this call, the thread may run on no core of node 0 */
    fig_cores_check(cores.first, -1);
    fig_topology_close(topology);
}

/* A process that was started on some of a node's cores stays on those. */
static void a_thread_that_runs_beside_the_node_gets_no_more_cores(void **state) {
    const fig_cores cores = fig_cores_of(state);
    char synthetic[96];
    snprintf(synthetic, sizeof synthetic, "numa:2 pu:2(indexes=%d,%d,900,901)", cores.first,
             cores.second);
    fig_topology *one = open_two(&cores), *both = open_topology(synthetic);
    assert_int_equal(fig_topology_bind_thread(both, 0), FIG_OK);
    fig_cores_check(cores.first, cores.second);
    assert_int_equal(fig_topology_bind_thread(one, 1), FIG_OK);
    assert_int_equal(fig_topology_bind_thread(both, 0), FIG_OK);
    fig_cores_check(cores.second, -1);
    fig_topology_close(one);
    fig_topology_close(both);
}

static void no_thread_is_bound_on_a_machine_of_one_node(void **state) {
    const fig_cores cores = fig_cores_of(state);
    fig_topology *topology = open_topology("numa:1(indexes=900) pu:1(indexes=900)");
    fig_topology_block block = {.node = 900, .bytes = 100};
    assert_int_equal(fig_topology_bind_thread(topology, 900), FIG_OK);
    assert_int_equal(fig_topology_bind_thread(topology, 5), FIG_OK);
    fig_cores_check(cores.first, cores.second);
    assert_true(fig_topology_is_beside(topology, 900));
    assert_int_equal(fig_topology_allocate(topology, &block), FIG_OK);
    assert_int_equal(block.refusal, 0);
    fig_topology_release(topology, block.address, block.bytes);
    fig_topology_close(topology);
}

static void a_binding_that_the_system_refuses_leaves_a_message(void **state) {
    (void)state;
    fig_topology *topology = open_topology("numa:2 pu:1(indexes=900,901)");
    assert_int_equal(fig_topology_bind_thread(topology, 1), FIG_UNSUPPORTED);
    assert_non_null(
        strstr(fig_message(), "topology: the system does not bind this thread to node 1: "));
    fig_topology_close(topology);
}

/* ---- Memory -------------------------------------------------------------------------------- */

static void check_block(const fig_topology *topology, int32_t node, size_t bytes) {
    fig_topology_block block = {.node = node, .bytes = bytes, .refusal = -1};
    assert_int_equal(fig_topology_allocate(topology, &block), FIG_OK);
    assert_true(block.refusal >= 0);
    assert_int_equal((uintptr_t)block.address % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
    uint8_t *memory = block.address;
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(memory[i], 0);
    memset(memory, 0xaa, bytes);
    fig_topology_release(topology, block.address, bytes);
}

static void memory_of_a_node_is_whole_pages_of_zeros(void **state) {
    (void)state;
    static const char *const made_up[] = {NULL, "numa:2 pu:2", "numa:1 pu:1"};
    for (int i = 0; i < 3; i++) {
        fig_topology *topology = open_topology(made_up[i]);
        for (size_t bytes = 0; bytes < 100000; bytes = bytes * 7 + 1)
            for (int32_t node = 0; node < 4; node++)
                if (fig_topology_has_node(topology, node)) check_block(topology, node, bytes);
        fig_topology_release(topology, NULL, 5);
        fig_topology_close(topology);
    }
}

/* No machine has a node 900. */
static void memory_that_the_system_does_not_place_lies_anywhere(void **state) {
    const fig_cores cores = fig_cores_of(state);
    char synthetic[96];
    snprintf(synthetic, sizeof synthetic, "numa:2(indexes=0,900) pu:1(indexes=%d,%d)", cores.first,
             cores.second);
    fig_topology *topology = open_topology(synthetic);
    fig_topology_block block = {.node = 900, .bytes = 5000};
    assert_int_equal(fig_topology_allocate(topology, &block), FIG_OK);
    assert_int_not_equal(block.refusal, 0);
    print_message("refused: %s\n", strerror(block.refusal));
    memset(block.address, 1, 5000);
    fig_topology_release(topology, block.address, block.bytes);
    fig_topology_close(topology);
}

static void a_lack_of_memory_names_bytes_and_node(void **state) {
    (void)state;
    fig_topology *topology = open_topology(NULL);
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX / 2};
    int32_t node = 0;
    while (!fig_topology_has_node(topology, node))
        node++;
    for (int i = 0; i < 2; i++) {
        fig_topology_block block = {.node = node, .bytes = huge[i]};
        char sentence[96];
        snprintf(sentence, sizeof sentence, "topology: %zu bytes on node %d", huge[i], (int)node);
        assert_int_equal(fig_topology_allocate(topology, &block), FIG_NOMEM);
        assert_string_equal(fig_message(), sentence);
        assert_null(block.address);
    }
    fig_topology_close(topology);
    /* The memory of a synthetic machine comes from the heap, which may return 0 bytes. */
    topology = open_topology("numa:2 pu:1");
    fig_topology_block block = {.node = 1, .bytes = SIZE_MAX};
    assert_int_equal(fig_topology_allocate(topology, &block), FIG_NOMEM);
    fig_topology_close(topology);
}

/* The first allocation that fails is the topology's own, the second is hwloc's, the third is made
 * by the search. */
static void a_failed_allocation_leaves_no_topology(void **state) {
    (void)state;
    static const fig_status expected[] = {FIG_NOMEM, FIG_NOMEM, FIG_UNSUPPORTED, FIG_OK};
    for (int n = 1; n <= 4; n++) {
        fig_topology *topology;
        fig_fault_arm(n);
        const fig_status status = fig_topology_open(&topology, NULL);
        assert_int_equal(fig_fault_disarm(), n < 4 ? n : 3);
        assert_int_equal(status, expected[n - 1]);
        assert_true((topology != NULL) == (status == FIG_OK));
        fig_topology_close(topology);
    }
}

static void a_bitmap_without_memory_binds_no_thread(void **state) {
    const fig_cores cores = fig_cores_of(state);
    fig_topology *topology = open_two(&cores);
    fig_fault_arm(1);
    const fig_status status = fig_topology_bind_thread(topology, 1);
    fig_fault_arm(1);
    const int beside = fig_topology_is_beside(topology, 1);
    fig_fault_arm(1);
    fig_topology_block block = {.node = 1, .bytes = 1};
    const fig_status allocated = fig_topology_allocate(topology, &block);
    fig_fault_disarm();
    assert_int_equal(status, FIG_NOMEM);
    assert_true(beside);
    assert_int_equal(allocated, FIG_NOMEM);
    fig_cores_check(cores.first, cores.second);
    fig_topology_close(topology);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_of_every_shape_are_described),
        cmocka_unit_test(a_node_is_found_by_its_number_with_its_threads),
        cmocka_unit_test(a_missing_node_is_not_found),
        cmocka_unit_test(a_list_that_does_not_fit_is_cut_short),
        cmocka_unit_test(traits_of_no_machine_are_refused),
        cmocka_unit_test(this_machine_has_threads_and_a_node),
        FIG_CORES_TEST(a_thread_is_bound_to_the_cores_of_its_node),
        FIG_CORES_TEST(a_thread_that_runs_beside_the_node_gets_no_more_cores),
        FIG_CORES_TEST(no_thread_is_bound_on_a_machine_of_one_node),
        FIG_CORES_TEST(a_binding_that_the_system_refuses_leaves_a_message),
        cmocka_unit_test(memory_of_a_node_is_whole_pages_of_zeros),
        FIG_CORES_TEST(memory_that_the_system_does_not_place_lies_anywhere),
        cmocka_unit_test(a_lack_of_memory_names_bytes_and_node),
        cmocka_unit_test(a_failed_allocation_leaves_no_topology),
        FIG_CORES_TEST(a_bitmap_without_memory_binds_no_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
