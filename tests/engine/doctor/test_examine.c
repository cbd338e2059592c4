/* test_examine.c: tests the findings about machines that have what the library needs, lack it, or
 * get it wrong.
 *
 * The driver is the fake one, and steps really run on it. Invariant: after every examination no
 * resource is held, and the caller's context is current. */
#include <dlfcn.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/doctor/ping.h"
#include "include/figraph_unstable.h"
#include "tests/support/cores.h"
#include "tests/support/driver/fake_cuda.h"
#include "tests/support/fault.h"

enum { FINDING_LIMIT = 32 };

typedef struct told {
    fig_verdict verdict;
    char subject[32], text[512], advice[256];
} told;

typedef struct findings {
    told of[FINDING_LIMIT];
    int count;
} findings;

static fig_fake_cuda *fake;

static int set_up(void **state) {
    if (fig_cores_set_up(state) != 0) return 1;
    fake = fig_fake_cuda_install();
    fig_fake_cuda_push(fig_fake_cuda_foreign());
    return 0;
}

static int is_clean(void) {
    return fake->held == 0 && fake->unsafe == 0 && fake->memory_used == 0 && fake->mode == 0 &&
           fake->captures == 0 && fake->current == fig_fake_cuda_foreign();
}

static int tear_down(void **state) {
    const int clean = is_clean();
    if (!clean) print_message("held %" PRId64 ", unsafe %" PRId64 "\n", fake->held, fake->unsafe);
    fig_fake_cuda_remove();
    return fig_cores_tear_down(state) != 0 || !clean;
}

static void note(void *user, const fig_finding *finding) {
    findings *all = user;
    if (all->count == FINDING_LIMIT) fail_msg("more than %d findings", FINDING_LIMIT);
    told *one = &all->of[all->count++];
    assert_int_equal(finding->size, sizeof *finding);
    one->verdict = finding->verdict;
    snprintf(one->subject, sizeof one->subject, "%s", finding->subject);
    snprintf(one->text, sizeof one->text, "%s", finding->text);
    snprintf(one->advice, sizeof one->advice, "%s", finding->advice);
    assert_true(one->subject[0] != '\0' && one->text[0] != '\0');
}

static findings examine(int32_t ordinal) {
    findings all = {.count = 0};
    assert_int_equal(fig_examine(ordinal, note, &all), FIG_OK);
    return all;
}

/* Fails unless a finding has that verdict and subject and contains the words. */
static void has(const findings *all, fig_verdict verdict, const char *subject, const char *words) {
    for (int i = 0; i < all->count; i++) {
        const told *one = &all->of[i];
        if (strcmp(one->subject, subject) == 0 && one->verdict == verdict &&
            strstr(one->text, words) != NULL)
            return;
    }
    for (int i = 0; i < all->count; i++)
        print_message("%d %s: %s\n", (int)all->of[i].verdict, all->of[i].subject, all->of[i].text);
    fail_msg("no %d of \"%s\" with \"%s\"", (int)verdict, subject, words);
}

static int count_of(const findings *all, fig_verdict verdict) {
    int count = 0;
    for (int i = 0; i < all->count; i++)
        count += all->of[i].verdict == verdict && strcmp(all->of[i].subject, "nccl") != 0;
    return count;
}

static int is_told(const findings *all, const char *subject) {
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->of[i].subject, subject) == 0) return 1;
    return 0;
}

/* ---- Sound machines ------------------------------------------------------------------------ */

static void a_sound_gpu_passes_and_is_described_completely(void **state) {
    (void)state;
    static const char *const subjects[] = {"library",  "driver", "gpu 0",     "gpu 1",  "peers",
                                           "topology", "nccl",   "placement", "pinned", "edges",
                                           "capture",  "splice", "steps"};
    enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };
    fake->device_count = 2;
    const findings all = examine(1);
    assert_int_equal(all.count, SUBJECTS);
    for (int i = 0; i < SUBJECTS; i++)
        assert_string_equal(all.of[i].subject, subjects[i]);
    has(&all, FIG_VERDICT_FINE, "library", "kernel images");
    has(&all, FIG_VERDICT_FINE, "driver", "it is of CUDA 13.0 (12.4 is needed) and sees 2 GPUs");
    has(&all, FIG_VERDICT_FINE, "gpu 0",
        "NVIDIA H200, compute capability 9.0, 132 SMs, 1.0 GiB, beside NUMA node 777; runs the "
        "kernels made for 9.0");
    has(&all, FIG_VERDICT_FINE, "peers", "all 2 GPUs");
    has(&all, FIG_VERDICT_FINE, "steps", "20 steps of the tutorial on the GPU, ");
    assert_int_equal(count_of(&all, FIG_VERDICT_FAULT), 0);
}

static void a_finding_says_whether_gpus_reach_each_other(void **state) {
    (void)state;
    fake->device_count = 3;
    findings all = examine(0);
    has(&all, FIG_VERDICT_FINE, "peers", "all 3 GPUs reach one another's memory, with native");
    fake->is_slow = 1;
    all = examine(0);
    has(&all, FIG_VERDICT_FINE, "peers", "some without native atomics, as over PCIe");
    fake->unreached = 2;
    all = examine(0);
    has(&all, FIG_VERDICT_ADVICE, "peers", "GPUs 0 and 2 do not reach each other's memory");
    has(&all, FIG_VERDICT_ADVICE, "peers", "GPUs 1 and 2 do not");
    fake->device_count = 1;
    all = examine(0);
    assert_false(is_told(&all, "peers"));
}

static void without_a_gpu_the_host_takes_the_steps(void **state) {
    (void)state;
    /* If the machine has a real driver, the library would open it in place of a closed table. The
     * case without any driver is then left out. */
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    const int ways = driver == NULL ? 3 : 2;
    if (driver != NULL) dlclose(driver);
    for (int way = 0; way < ways; way++) {
        /* first a GPU that examine(-1) does not examine; then no GPU; then no driver either */
        fake->device_count = way == 0 ? 1 : 0;
        if (way == 2) fig_cuda_api_table()->version = 0;
        const findings all = examine(-1);
        has(&all, FIG_VERDICT_FINE, "steps", "20 steps of the tutorial on the host, ");
        has(&all, way == 0 ? FIG_VERDICT_FINE : FIG_VERDICT_ADVICE, "driver",
            way == 1 ? "but no GPU" : "");
        assert_int_equal(is_told(&all, "gpu 0"), way == 0);
        assert_false(is_told(&all, "pinned"));
        assert_int_equal(count_of(&all, FIG_VERDICT_FAULT), 0);
    }
}

static void a_library_without_kernels_runs_on_the_host_and_says_so(void **state) {
    (void)state;
    fake->no_images = 1;
    findings all = examine(-1);
    has(&all, FIG_VERDICT_ADVICE, "library", "holds no kernel images");
    has(&all, FIG_VERDICT_FINE, "gpu 0", "NVIDIA H200");
    has(&all, FIG_VERDICT_FINE, "steps", "on the host");
    all = examine(0);
    has(&all, FIG_VERDICT_FAULT, "gpu 0", "built without nvcc");
    assert_false(is_told(&all, "steps"));
}

/* ---- GPUs that cannot be used -------------------------------------------------------------- */

static void a_gpu_that_was_asked_for_and_cannot_be_used_is_a_fault(void **state) {
    (void)state;
    findings all = examine(3);
    has(&all, FIG_VERDICT_FAULT, "gpu 3", "ordinal is 3, and the driver sees 1 GPUs, from 0");
    assert_false(is_told(&all, "steps"));
    fake->capability = 75;
    all = examine(0);
    has(&all, FIG_VERDICT_ADVICE, "gpu 0", "compute capability 7.5");
    has(&all, FIG_VERDICT_FAULT, "gpu 0", "this library needs 8.0");
    all = examine(-1);
    assert_int_equal(count_of(&all, FIG_VERDICT_FAULT), 0);
    fake->capability = 90;
    fake->fail_name = "cuDevicePrimaryCtxRetain", fake->fail_with = 46;
    all = examine(0);
    has(&all, FIG_VERDICT_FAULT, "gpu 0", "cuDevicePrimaryCtxRetain");
    fake->fail_name = "cuMemHostAlloc", fake->fail_with = FIG_CU_OUT_OF_MEMORY;
    all = examine(0);
    has(&all, FIG_VERDICT_FAULT, "pinned", "1048576 bytes of pinned memory");
    has(&all, FIG_VERDICT_FAULT, "steps", "cuMemHostAlloc");
}

/* ---- Drivers ------------------------------------------------------------------------------- */

static void the_drivers_known_fault_of_edges_is_found_and_does_no_harm(void **state) {
    (void)state;
    findings all = examine(0);
    has(&all, FIG_VERDICT_FINE, "edges",
        "gives all edges of one call the kind of the first, a known");
    fake->keeps_edges = 1;
    all = examine(0);
    has(&all, FIG_VERDICT_FINE, "edges", "the driver keeps the kind of every edge");
    fake->loses_edges = 1;
    all = examine(0);
    has(&all, FIG_VERDICT_FAULT, "edges", "does not keep the kind of an edge");
    has(&all, FIG_VERDICT_FAULT, "steps", "programmatic edges where");
}

static void a_chip_without_programmatic_edges_is_not_asked_for_any(void **state) {
    (void)state;
    fake->capability = 80;
    const findings all = examine(0);
    assert_false(is_told(&all, "edges"));
    has(&all, FIG_VERDICT_FINE, "gpu 0", "runs the kernels made for 8.0 and later");
    assert_int_equal(count_of(&all, FIG_VERDICT_FAULT), 0);
}

static void the_driver_s_answer_to_an_exec_in_a_capture_is_reported(void **state) {
    (void)state;
    findings all = examine(0);
    has(&all, FIG_VERDICT_FINE, "capture", "refuses to launch a graph into a capture (error 900)");
    fake->takes_execs = 1;
    all = examine(0);
    has(&all, FIG_VERDICT_FINE, "capture", "takes the launch of a graph into a capture");
    fake->fail_name = "cuGraphLaunch", fake->fail_with = 801;
    all = examine(0);
    has(&all, FIG_VERDICT_FAULT, "capture", "cuGraphLaunch into a capture");
    has(&all, FIG_VERDICT_FAULT, "splice", "cuGraphLaunch");
    static const char *const calls[] = {"cuGraphAddChildGraphNode", "cuStreamEndCapture",
                                        "cuStreamSynchronize"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        fake->fail_name = calls[i];
        all = examine(0);
        has(&all, FIG_VERDICT_FAULT, "splice", calls[i]);
    }
}

/* Copies zeros in place of a row of v, which is the only copy of 512 bytes. */
static fig_cuda_api sound;
static fig_cu_result lose_v(fig_cu_address to, fig_cu_address from, size_t bytes,
                            fig_cu_stream stream) {
    static uint8_t zeros[512];
    if (bytes == sizeof zeros) from = (fig_cu_address)(uintptr_t)zeros;
    return sound.MemcpyAsync(to, from, bytes, stream);
}

static void steps_with_wrong_results_are_a_fault(void **state) {
    (void)state;
    sound = *fig_cuda_api_table();
    fig_cuda_api_table()->MemcpyAsync = lose_v;
    const findings all = examine(0);
    has(&all, FIG_VERDICT_FAULT, "steps", "out[0] is 0000 as f16, and must be 3c00");
}

/* ---- Placement ----------------------------------------------------------------------------- */

#define TWO_NODES "numa:2 pu:1(indexes=%d,%d)"

static void the_nodes_of_the_gpu_and_of_this_thread_are_reported(void **state) {
    const fig_cores cores = fig_cores_of(state);
    fig_cores_pretend(&cores, "numa:1 pu:2(indexes=%d,%d)");
    findings all = examine(0);
    has(&all, FIG_VERDICT_FINE, "placement", "all cores and all memory are equally near to GPU 0");
    has(&all, FIG_VERDICT_FINE, "topology", "2 threads, 1 NUMA node: 0");
    fig_cores_pretend(&cores, TWO_NODES);
    all = examine(0);
    has(&all, FIG_VERDICT_FINE, "topology", "2 NUMA nodes: 0-1");
    has(&all, FIG_VERDICT_ADVICE, "placement",
        "GPU 0 is beside node 777, and this process may use only 0-1");
    fake->node = -1;
    all = examine(0);
    has(&all, FIG_VERDICT_ADVICE, "placement",
        "does not tell which of 2 NUMA nodes GPU 0 is beside");
    fake->node = 1;
    all = examine(0);
    has(&all, FIG_VERDICT_FINE, "placement", "is beside node 1, threads ");
    assert_int_equal(count_of(&all, FIG_VERDICT_FAULT), 0);
}

static void a_thread_far_from_the_gpu_is_reported(void **state) {
    const fig_cores cores = fig_cores_of(state);
    const fig_cores strangers = {cores.first, 900};
    fig_cores_pretend(&strangers, TWO_NODES);
    fake->node = 1;
    const findings all = examine(0);
    has(&all, FIG_VERDICT_ADVICE, "placement",
        "threads 900, and this thread may run on none of them");
}

static void a_system_that_places_no_memory_is_reported(void **state) {
    const fig_cores cores = fig_cores_of(state);
    fig_cores_pretend(&cores, "numa:2(indexes=0,900) pu:1(indexes=%d,%d)");
    fake->node = 900;
    const findings all = examine(0);
    has(&all, FIG_VERDICT_FINE, "placement", "GPU 0 is beside node 900");
    has(&all, FIG_VERDICT_ADVICE, "placement", "the system does not place memory on node 900: ");
}

static void the_examination_goes_on_if_hwloc_cannot_describe_the_machine(void **state) {
    (void)state;
    findings all = {.count = 0};
    fig_fault_arm(1); /* the topology is the first thing that the library allocates */
    const fig_status status = fig_examine(-1, note, &all);
    fig_fault_disarm();
    assert_int_equal(status, FIG_OK);
    has(&all, FIG_VERDICT_FAULT, "topology", "bytes");
    has(&all, FIG_VERDICT_FINE, "steps", "on the host");
}

/* ---- Faults -------------------------------------------------------------------------------- */

static void a_caller_without_a_function_is_refused(void **state) {
    (void)state;
    assert_int_equal(fig_examine(0, NULL, NULL), FIG_INVALID);
    assert_string_equal(fig_message(), "examine: find is NULL");
}

/* Returns 1 if a failure of the call must be reported. Calls that only free, restore, end or guess
 * may fail silently. Calls that enter or leave a context may too, since they may serve only to
 * free. */
static int must_be_told(const char *call) {
    return !fig_fake_cuda_is_guess(call) && strstr(call, "Destroy") == NULL &&
           strstr(call, "Free") == NULL && strstr(call, "Unload") == NULL &&
           strstr(call, "Release") == NULL && strstr(call, "cuCtxP") == NULL &&
           strcmp(call, "cuStreamEndCapture") != 0 &&
           strcmp(call, "cuThreadExchangeStreamCaptureMode") != 0 &&
           strcmp(call, "cuStreamSynchronize") != 0;
}

static void each_call_to_the_driver_may_fail(void **state) {
    (void)state;
    static const fig_cu_result results[] = {801, FIG_CU_OUT_OF_MEMORY, FIG_CU_ILLEGAL_ADDRESS};
    for (int64_t n = 1;; n += FIG_FAULT_STRIDE) {
        fake->calls = 0, fake->failed = NULL, fake->launches = 0;
        fake->fail_at = n, fake->fail_with = results[n % 3];
        const findings all = examine(0);
        if (!is_clean()) fail_msg("call %" PRId64 ", %s: not clean", n, fake->failed);
        if (fake->failed == NULL) {
            assert_int_equal(count_of(&all, FIG_VERDICT_FAULT), 0);
            assert_in_range(n, 200, 3000); /* otherwise this test has tested nothing */
            return;
        }
        if (must_be_told(fake->failed) &&
            count_of(&all, FIG_VERDICT_FAULT) + count_of(&all, FIG_VERDICT_ADVICE) == 0)
            fail_msg("call %" PRId64 ", %s, failed and nobody was told", n, fake->failed);
    }
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        findings all = {.count = 0};
        fig_fault_arm(n);
        const fig_status status = fig_examine(0, note, &all);
        const int64_t seen = fig_fault_disarm();
        assert_int_equal(status, FIG_OK);
        assert_true(is_clean());
        if (seen < n) {
            assert_int_equal(count_of(&all, FIG_VERDICT_FAULT), 0);
            assert_in_range(n, 30, 2000);
            return;
        }
        if (count_of(&all, FIG_VERDICT_FAULT) == 0)
            fail_msg("allocation %" PRId64 ": nobody was told", n);
    }
}

static void a_ping_of_the_host_measures_its_steps(void **state) {
    (void)state;
    const fig_engine_options host = {.size = sizeof host, .device = FIG_DEVICE_HOST};
    fig_ping ping;
    assert_int_equal(fig_ping_run(&host, NULL, &ping), FIG_OK);
    assert_int_equal(ping.steps, 20);
    assert_true(ping.stage_ns > 0 && ping.launch_ns > 0);
    const fig_engine_options wrong = {.size = sizeof wrong, .slots = -1};
    assert_int_equal(fig_ping_run(&wrong, NULL, &ping), FIG_INVALID);
    assert_int_equal(ping.steps, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_sound_gpu_passes_and_is_described_completely),
        TEST(a_finding_says_whether_gpus_reach_each_other),
        TEST(without_a_gpu_the_host_takes_the_steps),
        TEST(a_library_without_kernels_runs_on_the_host_and_says_so),
        TEST(a_gpu_that_was_asked_for_and_cannot_be_used_is_a_fault),
        TEST(the_drivers_known_fault_of_edges_is_found_and_does_no_harm),
        TEST(a_chip_without_programmatic_edges_is_not_asked_for_any),
        TEST(the_driver_s_answer_to_an_exec_in_a_capture_is_reported),
        TEST(steps_with_wrong_results_are_a_fault),
        TEST(the_nodes_of_the_gpu_and_of_this_thread_are_reported),
        TEST(a_thread_far_from_the_gpu_is_reported),
        TEST(a_system_that_places_no_memory_is_reported),
        TEST(the_examination_goes_on_if_hwloc_cannot_describe_the_machine),
        TEST(a_caller_without_a_function_is_refused),
        TEST(each_call_to_the_driver_may_fail),
        TEST(each_allocation_may_fail),
        TEST(a_ping_of_the_host_measures_its_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
