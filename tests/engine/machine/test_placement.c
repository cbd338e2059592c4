/* test_placement.c: tests which NUMA node is chosen, and that both devices follow the choice.
 *
 * The test presents two cores of this machine as a machine with two nodes. The system reports where
 * a thread may run and the driver reports where memory came from, both independently of the
 * library. */
#include "engine/machine/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/seam/device.h"
#include "engine/doctor/ping.h"
#include "tests/support/cores.h"
#include "tests/support/driver/fake_cuda.h"
#include "tests/support/fault.h"

#define TWO_NODES "numa:2 pu:1(indexes=%d,%d)"

/* ---- A folder that stands in for /sys -------------------------------------------------------- */

typedef struct folder {
    char path[64];
    char made[16][160];
    int count;
} folder;

static void make_folder(folder *f, const char *below) {
    char path[160];
    snprintf(path, sizeof path, "%s%s", f->path, below);
    for (char *slash = path + strlen(f->path) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        if (mkdir(path, 0700) == 0) snprintf(f->made[f->count++], sizeof f->made[0], "%s", path);
        *slash = '/';
    }
}

/* Makes a folder for a machine with nodes of these numbers. NULL: the system reports no nodes. */
static void open_folder(folder *f, const char *const *nodes, int count) {
    memset(f, 0, sizeof *f);
    snprintf(f->path, sizeof f->path, "/tmp/test_placement.XXXXXX");
    assert_non_null(mkdtemp(f->path));
    for (int i = 0; i < count; i++) {
        char below[64];
        snprintf(below, sizeof below, "/devices/system/node/%s/", nodes[i]);
        make_folder(f, below);
    }
}

static void close_folder(folder *f) {
    while (f->count > 0)
        remove(f->made[--f->count]);
    assert_int_equal(rmdir(f->path), 0);
}

/* ---- The choice ---------------------------------------------------------------------------- */

static const char *const several[] = {"node0", "node8", "power", "nodes"};

static fig_placement choose(int32_t numa_node, int32_t device_node, const folder *system) {
    const fig_placement_wish wish = {numa_node, device_node, system != NULL ? system->path : NULL};
    fig_placement placement;
    if (fig_placement_open(&placement, &wish) != FIG_OK) fail_msg("%s", fig_message());
    assert_true((placement.topology != NULL) == (placement.memory_node >= 0));
    return placement;
}

static void check_choice(fig_placement placement, int32_t memory_node, int32_t thread_node) {
    assert_int_equal(placement.memory_node, memory_node);
    assert_int_equal(placement.thread_node, thread_node);
    fig_placement_close(&placement);
    fig_placement_close(&placement);
}

static void memory_lies_where_the_options_say(void **state) {
    const fig_cores cores = fig_cores_of(state);
    folder system;
    fig_cores_pretend(&cores, TWO_NODES);
    open_folder(&system, several, 4);
    check_choice(choose(0, 1, &system), 1, 1);
    check_choice(choose(0, 0, &system), 0, 0);
    check_choice(choose(2, 0, &system), 1, 1); /* the caller named the node */
    check_choice(choose(1, -1, &system), 0, 0);
    check_choice(choose(-1, 1, &system), -1, 1); /* the caller allows any node */
    fig_fault_arm(0);
    check_choice(choose(0, -1, &system), -1, -1);
    /* hwloc was not asked, since nothing was allocated */
    assert_int_equal(fig_fault_disarm(), 0);
    check_choice(choose(0, 5, &system), -1, 5); /* this process may not use the node */
    close_folder(&system);
}

/* If hwloc were asked, its answer would show in the result. */
static void hwloc_is_not_asked_where_the_system_has_one_node(void **state) {
    const fig_cores cores = fig_cores_of(state);
    folder one, none;
    fig_cores_pretend(&cores, TWO_NODES);
    open_folder(&one, several + 1, 3);
    open_folder(&none, NULL, 0);
    check_choice(choose(0, 1, &one), -1, 1);
    check_choice(choose(0, 1, &none), -1, 1);
    close_folder(&one);
    close_folder(&none);
    fig_cores_pretend(&cores, "numa:1 pu:2(indexes=%d,%d)");
    check_choice(choose(1, -1, NULL), -1, 0); /* the caller named the only node */
}

static void a_missing_node_is_named_with_the_existing_ones(void **state) {
    const fig_cores cores = fig_cores_of(state);
    static const int32_t wrong[] = {3, 1024};
    fig_cores_pretend(&cores, TWO_NODES);
    for (int i = 0; i < 2; i++) {
        const fig_placement_wish wish = {.numa_node = wrong[i], .device_node = -1};
        fig_placement placement;
        char sentence[128];
        snprintf(sentence, sizeof sentence,
                 "engine: numa_node is %d, which is node %d, and there are 2: 0-1", (int)wrong[i],
                 (int)wrong[i] - 1);
        assert_int_equal(fig_placement_open(&placement, &wish), FIG_INVALID);
        assert_string_equal(fig_message(), sentence);
        assert_null(placement.topology);
    }
}

static void a_failed_allocation_leaves_no_placement(void **state) {
    const fig_cores cores = fig_cores_of(state);
    const fig_placement_wish wish = {.numa_node = 1, .device_node = -1};
    fig_placement placement;
    fig_cores_pretend(&cores, TWO_NODES);
    for (int n = 1; n <= 3; n++) {
        fig_fault_arm(n);
        const fig_status opened = fig_placement_open(&placement, &wish);
        fig_fault_disarm();
        assert_int_not_equal(opened, FIG_OK);
        assert_null(placement.topology);
        placement = choose(-1, 1, NULL);
        fig_fault_arm(n);
        const fig_status bound = fig_placement_bind_thread(&placement);
        fig_fault_disarm();
        assert_int_not_equal(bound, FIG_OK);
    }
    void *address;
    placement = choose(1, -1, NULL);
    fig_fault_arm(1);
    const fig_status allocated = fig_placement_allocate(&placement, 1, &address);
    fig_fault_disarm();
    assert_int_equal(allocated, FIG_NOMEM);
    assert_null(address);
    fig_placement_close(&placement);
}

/* If the caller named no node, the ring may be placed on any node. */
static void a_node_that_was_only_guessed_is_never_refused(void **state) {
    const fig_cores cores = fig_cores_of(state);
    folder system;
    open_folder(&system, several, 4);
    fig_cores_pretend(&cores, TWO_NODES);
    for (int n = 1; n <= 3; n++) {
        fig_fault_arm(n);
        const fig_placement placement = choose(0, 1, &system);
        fig_fault_disarm();
        check_choice(placement, -1, 1);
    }
    close_folder(&system);
}

static void a_thread_is_bound_beside_the_chosen_node(void **state) {
    const fig_cores cores = fig_cores_of(state);
    fig_cores_pretend(&cores, TWO_NODES);
    fig_placement held = choose(1, -1, NULL), loose = choose(-1, 1, NULL),
                  unknown = choose(0, -1, NULL), away = choose(-1, 7, NULL);
    assert_int_equal(fig_placement_bind_thread(&unknown), FIG_UNSUPPORTED);
    assert_string_equal(fig_message(), "engine: the system does not tell which of 2 NUMA nodes, "
                                       "0-1, the device is beside");
    assert_int_equal(fig_placement_bind_thread(&away), FIG_UNSUPPORTED);
    assert_string_equal(fig_message(), "topology: node 7 has no cores for this process");
    fig_cores_check(cores.first, cores.second);
    assert_int_equal(fig_placement_bind_thread(&loose), FIG_OK);
    fig_cores_check(cores.second, -1);
    assert_int_equal(fig_placement_bind_thread(&held), FIG_OK);
    fig_cores_check(cores.first, -1);
    fig_cores_pretend(&cores, "numa:1 pu:2(indexes=%d,%d)");
    assert_int_equal(fig_placement_bind_thread(&unknown), FIG_OK); /* every core counts as near */
    assert_int_equal(fig_placement_bind_thread(&loose), FIG_OK);
    fig_cores_check(cores.first, -1);
    fig_placement_close(&held);
}

/* ---- The host device ----------------------------------------------------------------------- */

static void the_host_places_its_ring_on_a_named_node_alone(void **state) {
    const fig_cores cores = fig_cores_of(state);
    const fig_device_api *host = &fig_device_host;
    fig_dev *dev;
    fig_cores_pretend(&cores, TWO_NODES);
    for (int32_t numa_node = -1; numa_node <= 3; numa_node++) {
        const fig_engine_options options = {.numa_node = numa_node};
        const fig_status status = host->open(&dev, &options);
        assert_int_equal(status, numa_node == 3 ? FIG_INVALID : FIG_OK);
        assert_true((dev != NULL) == (status == FIG_OK));
        if (dev == NULL) break;
        for (fig_memory kind = FIG_MEMORY_DEVICE; kind <= FIG_MEMORY_PINNED; kind++) {
            fig_block block;
            assert_int_equal(host->allocate(dev, &block, kind, 5000), FIG_OK);
            assert_ptr_equal(block.host, kind == FIG_MEMORY_PINNED ? block.device : NULL);
            const uint8_t *memory = block.device;
            for (int i = 0; i < 5000; i++)
                assert_int_equal(memory[i], 0);
            if (numa_node > 0 && kind == FIG_MEMORY_PINNED)
                assert_int_equal((uintptr_t)memory % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
            host->release(dev, &block);
            assert_null(block.device);
            host->release(dev, &block);
        }
        host->close(dev);
    }
}

static void the_hosts_caller_is_bound_beside_a_named_node_alone(void **state) {
    const fig_cores cores = fig_cores_of(state);
    const fig_device_api *host = &fig_device_host;
    fig_dev *dev;
    fig_cores_pretend(&cores, TWO_NODES);
    for (int32_t numa_node = -1; numa_node <= 2; numa_node++) {
        const fig_engine_options options = {.numa_node = numa_node};
        assert_int_equal(host->open(&dev, &options), FIG_OK);
        assert_int_equal(host->bind_thread(dev), numa_node > 0 ? FIG_OK : FIG_UNSUPPORTED);
        if (numa_node <= 0) {
            assert_string_equal(fig_message(), "host device: numa_node names no node to "
                                               "bind the thread to");
            fig_cores_check(cores.first, cores.second);
        } else {
            fig_cores_check(numa_node == 1 ? cores.first : cores.second, -1);
        }
        host->close(dev);
    }
}

/* ---- The cuda device ----------------------------------------------------------------------- */

static const fig_device_api *const cuda = &fig_device_cuda;

static void finish_fake(const fig_fake_cuda *fake) {
    assert_int_equal(fake->held, 0);
    assert_int_equal(fake->unsafe, 0);
    assert_null(fake->current);
    fig_fake_cuda_remove();
}

static void pinned_memory_of_a_gpu_lies_on_the_node_named(void **state) {
    const fig_cores cores = fig_cores_of(state);
    fig_fake_cuda *fake = fig_fake_cuda_install();
    fig_cores_pretend(&cores, TWO_NODES);
    for (int32_t numa_node = -1; numa_node <= 2; numa_node++) {
        const fig_engine_options options = {.numa_node = numa_node};
        fig_dev *dev;
        fig_block block, other;
        const int64_t before = fake->registered;
        assert_int_equal(cuda->open(&dev, &options), FIG_OK);
        assert_int_equal(cuda->allocate(dev, &block, FIG_MEMORY_PINNED, 0), FIG_OK);
        assert_int_equal(cuda->allocate(dev, &other, FIG_MEMORY_PINNED, 10000), FIG_OK);
        assert_int_equal(fake->registered - before, numa_node > 0 ? 2 : 0);
        assert_true(other.host != NULL && other.device != NULL && other.bytes == 10000);
        for (int i = 0; i < 10000; i++)
            assert_int_equal(((uint8_t *)other.host)[i], 0);
        cuda->release(dev, &block);
        cuda->release(dev, &other);
        assert_null(other.host);
        cuda->close(dev);
    }
    const fig_engine_options wrong = {.numa_node = 9};
    fig_dev *dev;
    assert_int_equal(cuda->open(&dev, &wrong), FIG_INVALID);
    assert_null(dev);
    finish_fake(fake);
}

static void a_thread_is_bound_beside_the_gpu(void **state) {
    const fig_cores cores = fig_cores_of(state);
    fig_fake_cuda *fake = fig_fake_cuda_install();
    fig_cores_pretend(&cores, TWO_NODES);
    for (int32_t node = 1; node >= 0; node--) {
        const fig_engine_options options = {.numa_node = -1};
        fig_dev *dev;
        fake->node = node;
        assert_int_equal(cuda->open(&dev, &options), FIG_OK);
        assert_int_equal(cuda->bind_thread(dev), FIG_OK);
        fig_cores_check(node == 0 ? cores.first : cores.second, -1);
        cuda->close(dev);
    }
    finish_fake(fake);
}

/* This machine's /sys has no GPU at that address. */
static void a_gpu_on_an_unknown_node_opens_nevertheless(void **state) {
    const fig_cores cores = fig_cores_of(state);
    fig_fake_cuda *fake = fig_fake_cuda_install();
    const fig_engine_options options = {.numa_node = 0};
    fig_cores_pretend(&cores, TWO_NODES);
    for (int unknown = 0; unknown < 2; unknown++) {
        fig_dev *dev;
        fake->node = -1;
        fake->no_node_attribute = unknown;
        assert_int_equal(cuda->open(&dev, &options), FIG_OK);
        assert_int_equal(cuda->bind_thread(dev), FIG_UNSUPPORTED);
        cuda->close(dev);
    }
    finish_fake(fake);
}

/* Fails each call of open, of pinning one block of a node, and of close in turn. */
static void each_call_that_pins_memory_may_fail(void **state) {
    const fig_cores cores = fig_cores_of(state);
    fig_fake_cuda *fake = fig_fake_cuda_install();
    const fig_engine_options options = {.numa_node = 2};
    int pinning = 0, guesses = 0;
    fake->node = -1;              /* makes open ask for the PCI address */
    unsetenv("HWLOC_THISSYSTEM"); /* makes memory come from the heap, where asan notices leaks */
    fig_cores_pretend(&cores, TWO_NODES);
    for (int64_t n = 1;; n++) {
        fig_dev *dev;
        fig_block block = {0};
        fake->calls = 0, fake->failed = NULL;
        fake->fail_at = n, fake->fail_with = n % 2 ? 801 : FIG_CU_OUT_OF_MEMORY;
        fig_status status = cuda->open(&dev, &options);
        if (status == FIG_OK) status = cuda->allocate(dev, &block, FIG_MEMORY_PINNED, 100);
        if (dev != NULL) cuda->release(dev, &block);
        cuda->close(dev);
        assert_int_equal(fake->held, 0);
        if (fake->failed == NULL) break;
        if (strstr(fake->failed, "MemHost") != NULL && strstr(fake->failed, "Un") == NULL) {
            assert_int_not_equal(status, FIG_OK);
            assert_non_null(strstr(fig_message(), fake->failed));
            pinning++;
        }
        if (fig_fake_cuda_is_guess(fake->failed)) {
            assert_int_equal(status, FIG_OK);
            guesses++;
        }
    }
    assert_int_equal(pinning, 2); /* one registers the memory, the other gets its address */
    assert_int_equal(guesses, 2);
    finish_fake(fake);
}

/* ---- An engine ----------------------------------------------------------------------------- */

static fig_graphs *make_graphs(void) {
    static const fig_bucket bucket = {1, 64};
    const fig_lower_options options = {
        .size = sizeof options, .buckets = &bucket, .bucket_count = 1};
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    fig_graphs *graphs;
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step(program);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_graphs_lower(&graphs, program, &options), FIG_OK);
    fig_program_destroy(program);
    return graphs;
}

static void an_engine_hands_its_options_and_its_thread_on(void **state) {
    const fig_cores cores = fig_cores_of(state);
    static const int32_t outside[] = {-2, 1025, 3};
    fig_engine_options options = {.size = sizeof options, .device = FIG_DEVICE_HOST};
    fig_graphs *graphs = make_graphs();
    fig_engine *engine;
    fig_ping ping;
    fig_cores_pretend(&cores, TWO_NODES);
    for (int i = 0; i < 3; i++) {
        options.numa_node = outside[i];
        assert_int_equal(fig_engine_open(&engine, graphs, &options), FIG_INVALID);
        assert_non_null(strstr(fig_message(), "engine: numa_node is "));
        assert_null(engine);
    }
    options.numa_node = 0;
    assert_int_equal(fig_engine_open(&engine, graphs, &options), FIG_OK);
    assert_int_equal(fig_engine_bind_thread(engine), FIG_UNSUPPORTED);
    fig_engine_close(engine);
    options.numa_node = 2;
    /* The ring of an engine with these options works. */
    assert_int_equal(fig_ping_run(&options, NULL, &ping), FIG_OK);
    assert_int_equal(fig_engine_open(&engine, graphs, &options), FIG_OK);
    assert_int_equal(fig_engine_bind_thread(engine), FIG_OK);
    fig_cores_check(cores.second, -1);
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CORES_TEST(memory_lies_where_the_options_say),
        FIG_CORES_TEST(hwloc_is_not_asked_where_the_system_has_one_node),
        FIG_CORES_TEST(a_missing_node_is_named_with_the_existing_ones),
        FIG_CORES_TEST(a_failed_allocation_leaves_no_placement),
        FIG_CORES_TEST(a_node_that_was_only_guessed_is_never_refused),
        FIG_CORES_TEST(a_thread_is_bound_beside_the_chosen_node),
        FIG_CORES_TEST(the_host_places_its_ring_on_a_named_node_alone),
        FIG_CORES_TEST(the_hosts_caller_is_bound_beside_a_named_node_alone),
        FIG_CORES_TEST(pinned_memory_of_a_gpu_lies_on_the_node_named),
        FIG_CORES_TEST(a_thread_is_bound_beside_the_gpu),
        FIG_CORES_TEST(a_gpu_on_an_unknown_node_opens_nevertheless),
        FIG_CORES_TEST(each_call_that_pins_memory_may_fail),
        FIG_CORES_TEST(an_engine_hands_its_options_and_its_thread_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
