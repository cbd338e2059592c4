/* test_device_host.c: tests the host device through its seam: memory, streams, execs, faults. */
#define _DEFAULT_SOURCE /* mincore, which POSIX lacks */
#include "engine/seam/device.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/fault.h"
#include "tests/support/kernels/fetch_place.h"
#include "tests/support/hang.h"
#include "tests/support/place.h"
#include "tests/support/files/sample.h"

enum { LOG_LIMIT = 1024 };

/* The bytes of a large block that the system may have backed with memory after only a few bytes
 * were touched. tsan's calloc clears the whole block. */
#if defined(__SANITIZE_THREAD__)
static const size_t LARGE_BYTES = 16 << 20, GIVEN_BYTES = 17 << 20;
#else
static const size_t LARGE_BYTES = 1 << 30, GIVEN_BYTES = 1 << 29;
#endif

static const fig_device_api *const api = &fig_device_host;
static const fig_dev_after none = {NULL, 0};

/* ---- Callbacks ----------------------------------------------------------------------------- */

/* The effects of callbacks, and the tags of calls in the order in which they ran. */
typedef struct scene {
    sem_t entered, leave; /* posted and awaited by the call that blocks */
    uint64_t log[LOG_LIMIT];
    int log_count;
    int answer;
    fig_plan_head plan;
} scene;

static void scene_init(scene *s) {
    memset(s, 0, sizeof *s);
    sem_init(&s->entered, 0, 0);
    sem_init(&s->leave, 0, 0);
    s->plan.tag = fig_plan_tag(7, 0);
    s->plan.rows = 3;
}

static int32_t log_tag(void *user, const fig_call_args *args) {
    scene *s = user;
    s->log[s->log_count++ % LOG_LIMIT] = args->tag;
    return 0;
}

static int32_t block(void *user, const fig_call_args *args) {
    scene *s = user;
    (void)args;
    sem_post(&s->entered);
    sem_wait(&s->leave);
    return 0;
}

static int32_t answer(void *user, const fig_call_args *args) {
    (void)args;
    return ((scene *)user)->answer;
}

static void *leave_after_a_while(void *user) {
    fig_hang_pause(30000);
    sem_post(&((scene *)user)->leave);
    return NULL;
}

/* ---- A device and its objects -------------------------------------------------------------- */

typedef struct host {
    fig_dev *dev;
    fig_dev_stream *stream;
} host;

static host host_open(void) {
    host h = {NULL, NULL};
    const fig_engine_options options = {.size = sizeof options};
    assert_int_equal(api->open(&h.dev, &options), FIG_OK);
    assert_int_equal(api->stream_open(h.dev, &h.stream), FIG_OK);
    return h;
}

static void host_close(host *h) {
    api->stream_close(h->dev, h->stream);
    api->close(h->dev);
}

static fig_dev_graph *new_graph(const host *h) {
    fig_dev_graph *graph;
    assert_int_equal(api->graph_create(h->dev, &graph), FIG_OK);
    return graph;
}

static fig_dev_call call_of(scene *s, fig_callback callback, uint64_t tag) {
    return (fig_dev_call){.callback = callback,
                          .user = s,
                          .name = "gemm",
                          .args = {.size = sizeof(fig_call_args), .tag = tag},
                          .plan = &s->plan};
}

static void add_call(const host *h, fig_dev_graph *graph, const fig_dev_call *call,
                     fig_dev_after after) {
    assert_int_equal(api->graph_call(h->dev, graph, call, after), FIG_OK);
}

/* Makes an exec of the graph, and destroys the graph. */
static fig_dev_exec *exec_of(const host *h, fig_dev_graph *graph) {
    fig_dev_exec *exec;
    assert_int_equal(api->exec_create(h->dev, &exec, graph), FIG_OK);
    api->graph_destroy(h->dev, graph);
    return exec;
}

static fig_dev_exec *exec_of_call(const host *h, scene *s, fig_callback callback, uint64_t tag) {
    fig_dev_graph *graph = new_graph(h);
    const fig_dev_call call = call_of(s, callback, tag);
    add_call(h, graph, &call, none);
    return exec_of(h, graph);
}

static void launch(const host *h, fig_dev_exec *exec) {
    assert_int_equal(api->exec_launch(h->dev, exec, h->stream), FIG_OK);
}

static void wait_idle(const host *h) {
    assert_int_equal(api->stream_wait(h->dev, h->stream, 20000000), FIG_OK);
}

/* ---- Memory -------------------------------------------------------------------------------- */

static void blocks_come_zeroed_and_aligned(void **state) {
    (void)state;
    host h = host_open();
    for (size_t bytes = 0; bytes < 5000; bytes = bytes * 3 + 1) {
        fig_block block_of[2];
        assert_int_equal(api->allocate(h.dev, &block_of[0], FIG_MEMORY_DEVICE, bytes), FIG_OK);
        assert_int_equal(api->allocate(h.dev, &block_of[1], FIG_MEMORY_PINNED, bytes), FIG_OK);
        assert_null(block_of[0].host);
        assert_ptr_equal(block_of[1].host, block_of[1].device);
        for (int i = 0; i < 2; i++) {
            uint8_t *memory = block_of[i].device;
            assert_int_equal((uintptr_t)memory % 256, 0);
            for (size_t j = 0; j < bytes; j++)
                assert_int_equal(memory[j], 0);
            if (bytes > 0) memset(memory, 0xee, bytes);
            api->release(h.dev, &block_of[i]);
            assert_null(block_of[i].device);
            api->release(h.dev, &block_of[i]);
        }
    }
    host_close(&h);
}

/* Returns the bytes of [memory, memory + bytes) in pages that the system has backed with memory. */
static size_t given_bytes(const uint8_t *memory, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), skipped = (uintptr_t)memory % page;
    const size_t count = (skipped + bytes + page - 1) / page;
    unsigned char *given = malloc(count);
    size_t found = 0;
    assert_non_null(given);
    assert_int_equal(mincore((void *)((uintptr_t)memory - skipped), count * page, given), 0);
    for (size_t i = 0; i < count; i++)
        found += given[i] & 1;
    free(given);
    return found * page;
}

static void a_large_block_costs_only_its_touched_pages(void **state) {
    (void)state;
    const size_t bytes = LARGE_BYTES;
    fig_block block_of;
    host h = host_open();
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(api->allocate(h.dev, &block_of, FIG_MEMORY_DEVICE, bytes), FIG_OK);
        uint8_t *memory = block_of.device;
        assert_int_equal((uintptr_t)memory % 256, 0);
        for (size_t i = 0; i < bytes; i += bytes / 64)
            assert_int_equal(memory[i], 0);
        assert_int_equal(memory[bytes - 1], 0);
        memset(memory, 0xee, 4096);
        memset(memory + bytes - 4096, 0xee, 4096);
        assert_in_range(given_bytes(memory, bytes), 0, GIVEN_BYTES);
        api->release(h.dev, &block_of);
        assert_null(block_of.device);
    }
    host_close(&h);
}

static void a_large_block_that_cannot_be_had_is_reported(void **state) {
    (void)state;
    fig_block block_of;
    host h = host_open();
    fig_fault_arm(1);
    const fig_status status = api->allocate(h.dev, &block_of, FIG_MEMORY_DEVICE, 2 << 20);
    fig_fault_disarm();
    FIG_SAMPLE_REFUSES(status, FIG_NOMEM, "a block of 2097152 bytes");
    assert_int_equal(api->allocate(h.dev, &block_of, FIG_MEMORY_DEVICE, SIZE_MAX), FIG_NOMEM);
    assert_null(block_of.device);
    host_close(&h);
}

static void a_copy_comes_after_what_was_launched(void **state) {
    (void)state;
    host h = host_open();
    scene s;
    fig_fetch_place place;
    fig_plan_head copy;
    pthread_t thread;
    scene_init(&s);
    fig_fetch_place_init(&place);
    fig_dev_graph *graph = new_graph(&h);
    const fig_dev_call call = call_of(&s, block, 0);
    const fig_dev_launch kernel = fig_fetch_place_launch(&place);
    const uint32_t first = 0;
    add_call(&h, graph, &call, none);
    assert_int_equal(api->graph_kernel(h.dev, graph, &kernel, (fig_dev_after){&first, 1}), FIG_OK);
    fig_dev_exec *exec = exec_of(&h, graph);
    launch(&h, exec);
    assert_int_equal(pthread_create(&thread, NULL, leave_after_a_while, &s), 0);
    assert_int_equal(api->copy_out(h.dev, h.stream, &copy, &place.plan, sizeof copy), FIG_OK);
    assert_int_equal(copy.rows, 5);
    pthread_join(thread, NULL);

    fig_status (*const ways_in[])(fig_dev *, fig_dev_stream *, void *, const void *,
                                  size_t) = {api->copy_in, api->push};
    for (int i = 0; i < 2; i++) {
        place.state.number = 0;
        launch(&h, exec);
        assert_int_equal(pthread_create(&thread, NULL, leave_after_a_while, &s), 0);
        copy.rows = 9 + i;
        assert_int_equal(ways_in[i](h.dev, h.stream, &place.plan, &copy, sizeof copy), FIG_OK);
        wait_idle(&h);
        assert_int_equal(place.plan.rows, 9 + i);
        pthread_join(thread, NULL);
    }
    api->exec_destroy(h.dev, exec);
    host_close(&h);
}

/* ---- Streams ------------------------------------------------------------------------------- */

static void launches_run_in_order(void **state) {
    (void)state;
    host h = host_open();
    scene s;
    fig_dev_exec *execs[3];
    scene_init(&s);
    for (uint64_t i = 0; i < 3; i++)
        execs[i] = exec_of_call(&h, &s, log_tag, i);
    for (int i = 0; i < 90; i++)
        launch(&h, execs[i * 7 % 3]);
    wait_idle(&h);
    assert_int_equal(s.log_count, 90);
    for (int i = 0; i < 90; i++)
        assert_int_equal(s.log[i], i * 7 % 3);
    for (int i = 0; i < 3; i++)
        api->exec_destroy(h.dev, execs[i]);
    host_close(&h);
}

static void a_wait_ends_at_its_bound(void **state) {
    (void)state;
    host h = host_open();
    scene s;
    int64_t pending;
    fig_status fault;
    scene_init(&s);
    fig_dev_exec *exec = exec_of_call(&h, &s, block, 0);
    launch(&h, exec);
    launch(&h, exec);
    sem_wait(&s.entered);
    assert_int_equal(api->stream_wait(h.dev, h.stream, 0), FIG_TIMEOUT);
    assert_int_equal(api->stream_wait(h.dev, h.stream, 2000), FIG_TIMEOUT);
    assert_string_equal(fig_message(), "still running after 2000 us: 2 steps to end");
    assert_int_equal(api->stream_query(h.dev, h.stream, &pending, &fault), FIG_OK);
    assert_int_equal(pending, 2);
    assert_int_equal(fault, FIG_OK);
    sem_post(&s.leave);
    sem_post(&s.leave);
    assert_int_equal(api->stream_wait(h.dev, h.stream, -1), FIG_OK);
    assert_int_equal(api->stream_query(h.dev, h.stream, &pending, &fault), FIG_OK);
    assert_int_equal(pending, 0);
    api->exec_destroy(h.dev, exec);
    host_close(&h);
}

static void a_full_queue_refuses_a_launch(void **state) {
    (void)state;
    host h = host_open();
    scene s;
    int launched = 0;
    scene_init(&s);
    fig_dev_exec *blocker = exec_of_call(&h, &s, block, 0);
    fig_dev_exec *logger = exec_of_call(&h, &s, log_tag, 0);
    launch(&h, blocker);
    while (launched < LOG_LIMIT && api->exec_launch(h.dev, logger, h.stream) == FIG_OK)
        launched++;
    assert_in_range(launched, 64, LOG_LIMIT - 1);
    assert_int_equal(api->exec_launch(h.dev, logger, h.stream), FIG_BUSY);
    sem_post(&s.leave);
    wait_idle(&h);
    assert_int_equal(s.log_count, launched);
    api->exec_destroy(h.dev, blocker);
    api->exec_destroy(h.dev, logger);
    host_close(&h);
}

static void closing_ends_what_was_launched(void **state) {
    (void)state;
    host h = host_open();
    scene s;
    pthread_t thread;
    scene_init(&s);
    fig_dev_exec *blocker = exec_of_call(&h, &s, block, 0);
    fig_dev_exec *logger = exec_of_call(&h, &s, log_tag, 0);
    launch(&h, blocker);
    for (int i = 0; i < 10; i++)
        launch(&h, logger);
    assert_int_equal(pthread_create(&thread, NULL, leave_after_a_while, &s), 0);
    api->stream_close(h.dev, h.stream);
    assert_int_equal(s.log_count, 10);
    pthread_join(thread, NULL);
    api->exec_destroy(h.dev, blocker);
    api->exec_destroy(h.dev, logger);
    api->close(h.dev);
}

static void a_failed_call_skips_only_the_rest_of_its_own_step(void **state) {
    (void)state;
    host h = host_open();
    scene s;
    int64_t pending;
    fig_status fault;
    scene_init(&s);
    fig_dev_graph *graph = new_graph(&h);
    const fig_dev_call calls[] = {call_of(&s, log_tag, 1), call_of(&s, answer, 2),
                                  call_of(&s, log_tag, 3)};
    for (uint32_t i = 0; i < 3; i++)
        add_call(&h, graph, &calls[i], none);
    fig_dev_exec *exec = exec_of(&h, graph);
    s.answer = 3;
    launch(&h, exec);
    wait_idle(&h);
    assert_int_equal(s.log_count, 1);
    s.answer = 4; /* a later fault does not replace the first */
    launch(&h, exec);
    wait_idle(&h);
    s.answer = 0;
    launch(&h, exec);
    wait_idle(&h);
    assert_int_equal(s.log_count, 4);
    assert_int_equal(api->stream_query(h.dev, h.stream, &pending, &fault), FIG_OK);
    assert_int_equal(fault, FIG_CALLBACK);
    assert_int_equal(api->stream_take_fault(h.dev, h.stream), FIG_CALLBACK);
    assert_string_equal(fig_message(), "step 7: call \"gemm\" returned 3");
    assert_int_equal(api->stream_take_fault(h.dev, h.stream), FIG_OK);
    api->exec_destroy(h.dev, exec);
    host_close(&h);
}

/* ---- Execs --------------------------------------------------------------------------------- */

static void a_patch_reaches_no_launch_before_it(void **state) {
    (void)state;
    host h = host_open();
    scene s;
    static fig_fetch_place places[2];
    pthread_t thread;
    const uint32_t first = 0;
    scene_init(&s);
    for (int i = 0; i < 2; i++)
        fig_fetch_place_init(&places[i]);
    const fig_fetch_params *params = &places[1].params;
    const fig_dev_launch kernel = fig_fetch_place_launch(&places[0]);
    const fig_dev_call call = call_of(&s, block, 0);
    fig_dev_graph *graph = new_graph(&h);
    add_call(&h, graph, &call, none);
    assert_int_equal(api->graph_kernel(h.dev, graph, &kernel, (fig_dev_after){&first, 1}), FIG_OK);
    fig_dev_exec *exec = exec_of(&h, graph);
    launch(&h, exec);
    sem_wait(&s.entered);
    assert_int_equal(pthread_create(&thread, NULL, leave_after_a_while, &s), 0);
    assert_int_equal(api->exec_patch(h.dev, exec, 1, params, sizeof *params), FIG_OK);
    wait_idle(&h);
    pthread_join(thread, NULL);
    assert_int_equal(places[0].plan.rows, 5);
    assert_int_equal(places[1].plan.rows, 0);
    sem_post(&s.leave);
    launch(&h, exec);
    wait_idle(&h);
    assert_int_equal(places[1].plan.rows, 5);
    api->exec_destroy(h.dev, exec);
    host_close(&h);
}

/* ---- Faults -------------------------------------------------------------------------------- */

/* Calls every function that can fail once, in order. Stops at the first failure. */
static fig_status use_all(int64_t fail_at_call, scene *s) {
    const fig_engine_options options = {
        .test = FIG_OPTIONS(fig_test_options, .fail_at_call = fail_at_call)};
    fig_fetch_place place;
    fig_fetch_place_init(&place);
    const fig_dev_launch kernel = fig_fetch_place_launch(&place);
    const fig_dev_call call = call_of(s, log_tag, 1);
    fig_dev *dev = NULL;
    fig_dev_stream *stream = NULL;
    fig_dev_graph *graph = NULL;
    fig_dev_exec *exec = NULL;
    fig_block memory = {0};
    uint64_t word = 1;
    int64_t pending = -1;
    uint64_t capture = 1;
    fig_status fault = FIG_LOST;
    fig_status status = api->open(&dev, &options);
    if (status != FIG_OK) assert_null(dev);
    if (status == FIG_OK) status = api->allocate(dev, &memory, FIG_MEMORY_DEVICE, sizeof word);
    if (status == FIG_OK) status = api->stream_open(dev, &stream);
    if (status == FIG_OK) status = api->copy_in(dev, stream, memory.device, &word, sizeof word);
    if (status == FIG_OK) status = api->push(dev, stream, memory.device, &word, sizeof word);
    if (status == FIG_OK) status = api->copy_out(dev, stream, &word, memory.device, sizeof word);
    if (status == FIG_OK) status = api->graph_create(dev, &graph);
    if (status == FIG_OK) status = api->graph_kernel(dev, graph, &kernel, none);
    if (status == FIG_OK) status = api->graph_call(dev, graph, &call, none);
    if (status == FIG_OK) status = api->exec_create(dev, &exec, graph);
    if (status == FIG_OK)
        status = api->exec_patch(dev, exec, 0, &place.params, sizeof place.params);
    if (status == FIG_OK) status = api->exec_launch(dev, exec, stream);
    if (status == FIG_OK) status = api->stream_wait(dev, stream, 20000000);
    if (status == FIG_OK) status = api->stream_query(dev, stream, &pending, &fault);
    if (status == FIG_OK) status = api->stream_capture(dev, NULL, &capture);
    if (status == FIG_OK) status = api->stream_fence(dev, stream, 1);
    if (status == FIG_OK) status = api->stream_pass(dev, stream, 1);
    if (status == FIG_OK) status = api->stream_follow(dev, stream, NULL);
    if (status == FIG_OK) status = api->stream_lead(dev, stream, NULL);
    if (status == FIG_OK) status = api->graph_append(dev, graph, stream, NULL, NULL);
    if (status == FIG_OK) status = api->stream_wait(dev, stream, 20000000);
    if (dev != NULL) {
        api->stream_close(dev, stream);
        api->graph_destroy(dev, graph);
        api->exec_destroy(dev, exec);
        api->release(dev, &memory);
        api->close(dev);
    }
    return status;
}

static void each_call_fails_when_asked_and_says_so(void **state) {
    (void)state;
    static const char *const names[] = {
        "open",         "allocate",     "stream_open",   "copy_in",      "push",
        "copy_out",     "graph_create", "graph_kernel",  "graph_call",   "exec_create",
        "exec_patch",   "exec_launch",  "stream_wait",   "stream_query", "stream_capture",
        "stream_fence", "stream_pass",  "stream_follow", "stream_lead",  "graph_append",
        "stream_wait"};
    enum { NAMES = sizeof names / sizeof names[0] };
    for (int n = 1; n <= NAMES; n++) {
        scene s;
        char sentence[128];
        scene_init(&s);
        snprintf(sentence, sizeof sentence, "host device: call %d (%s) failed as asked", n,
                 names[n - 1]);
        assert_int_equal(use_all(n, &s), n == 2 ? FIG_NOMEM : FIG_DRIVER);
        assert_string_equal(fig_message(), sentence);
    }
    scene s;
    scene_init(&s);
    assert_int_equal(use_all(NAMES + 1, &s), FIG_OK);
}

static void a_graph_is_appended_again_and_again_to_the_only_stream(void **state) {
    (void)state;
    fig_dev *dev;
    fig_dev_stream *stream;
    fig_dev_graph *graph;
    uint64_t capture = 1;
    scene s;
    const fig_engine_options options = {.size = sizeof options,
                                        .test = FIG_OPTIONS(fig_test_options, .shuffle = 3)};
    const fig_dev_call call = call_of(&s, log_tag, 1);
    scene_init(&s);
    assert_int_equal(api->open(&dev, &options), FIG_OK);
    assert_int_equal(api->stream_open(dev, &stream), FIG_OK);
    assert_int_equal(api->graph_create(dev, &graph), FIG_OK);
    assert_int_equal(api->graph_call(dev, graph, &call, none), FIG_OK);
    assert_int_equal(api->stream_capture(dev, NULL, &capture), FIG_OK);
    assert_int_equal(capture, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(api->graph_append(dev, graph, stream, NULL, NULL), FIG_OK);
    assert_int_equal(api->stream_wait(dev, stream, -1), FIG_OK);
    assert_int_equal(s.log_count, 3);
    capture = 1;
    assert_int_equal(api->stream_capture(dev, &s, &capture), FIG_INVALID);
    assert_int_equal(capture, 0);
    assert_int_equal(api->graph_append(dev, graph, stream, &s, NULL), FIG_INVALID);
    assert_int_equal(api->stream_follow(dev, stream, &s), FIG_INVALID);
    assert_int_equal(api->stream_lead(dev, stream, &s), FIG_INVALID);
    api->stream_close(dev, stream);
    api->graph_destroy(dev, graph);
    api->close(dev);
}

static void a_lack_of_memory_or_threads_gives_a_status_and_a_message(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        scene s;
        scene_init(&s);
        fig_fault_arm(n);
        fig_status status = use_all(0, &s);
        int64_t seen = fig_fault_disarm();
        if (seen < n) {
            assert_int_equal(status, FIG_OK);
            assert_in_range(n, 12, 60); /* otherwise this test has tested nothing */
            return;
        }
        if (status != FIG_NOMEM && status != FIG_DRIVER)
            fail_msg("fault %lld: %s", (long long)n, fig_status_name(status));
        assert_true(strncmp(fig_message(), "host device: ", 13) == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_zeroed_and_aligned),
        cmocka_unit_test(a_large_block_costs_only_its_touched_pages),
        cmocka_unit_test(a_large_block_that_cannot_be_had_is_reported),
        cmocka_unit_test(a_copy_comes_after_what_was_launched),
        cmocka_unit_test(launches_run_in_order),
        cmocka_unit_test(a_wait_ends_at_its_bound),
        cmocka_unit_test(a_full_queue_refuses_a_launch),
        cmocka_unit_test(closing_ends_what_was_launched),
        cmocka_unit_test(a_failed_call_skips_only_the_rest_of_its_own_step),
        cmocka_unit_test(a_patch_reaches_no_launch_before_it),
        cmocka_unit_test(each_call_fails_when_asked_and_says_so),
        cmocka_unit_test(a_graph_is_appended_again_and_again_to_the_only_stream),
        cmocka_unit_test(a_lack_of_memory_or_threads_gives_a_status_and_a_message),
    };
    fig_place_host_program("it is about the host device");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
