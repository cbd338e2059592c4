/* test_cuda_kernels.c: tests which images an engine loads, and when, over a driver that needs no
 * GPU. */
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/driver/caller.h"
#include "tests/support/driver/cuda_bench.h"

#define fake fig_cuda_bench_fake

typedef struct scene {
    fig_graphs *graphs;
    fig_engine *engine;
} scene;

static void open_scene(scene *s) {
    const fig_engine_options options = {.size = sizeof options, .device = FIG_DEVICE_CUDA};
    static const fig_bucket two[] = {{1, 64}, {2, 64}};
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step(program);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    const fig_lower_options lower = {.size = sizeof lower, .buckets = two, .bucket_count = 2};
    if (fig_graphs_lower(&s->graphs, program, &lower) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
    if (fig_engine_open(&s->engine, s->graphs, &options) != FIG_OK) fail_msg("%s", fig_message());
}

static void close_scene(scene *s) {
    fig_engine_close(s->engine);
    fig_graphs_destroy(s->graphs);
}

static int64_t loaded(void) {
    int64_t count = 0;
    for (int op = 0; op < FIG_OP_KERNEL_COUNT; op++)
        count += fake->images[op];
    return count;
}

/* Counts the kernel families that serve the launches of a prepared bucket and the look-ahead. Each
 * family counts once. */
static int64_t count_families(scene *s, int32_t bucket) {
    fig_launch_info info = {.size = sizeof info}, others = {.size = sizeof others};
    int64_t count = 1;
    for (int32_t i = 0; fig_engine_launch_info(s->engine, bucket, i, &info) == FIG_OK; i++) {
        int is_first = info.family != NULL;
        for (int32_t j = 0; j < i && is_first; j++) {
            assert_int_equal(fig_engine_launch_info(s->engine, bucket, j, &others), FIG_OK);
            is_first = others.family == NULL || strcmp(others.family, info.family) != 0 ||
                       strcmp(others.operation, info.operation) != 0;
        }
        count += is_first;
    }
    return count;
}

static void opening_loads_the_one_image_that_says_whether_the_driver_takes_them(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    assert_int_equal(loaded(), 1);
    assert_int_equal(fake->images[FIG_OP_FETCH], 1);
    assert_int_equal(fig_caller_bind_all(s.engine, s.graphs), FIG_OK);
    assert_int_equal(loaded(), 1);
    close_scene(&s);
}

static void a_bucket_loads_the_families_that_serve_it_and_no_others(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    assert_int_equal(fig_caller_bind_all(s.engine, s.graphs), FIG_OK);
    assert_int_equal(fig_engine_prepare(s.engine, 1), FIG_OK);
    assert_int_equal(loaded(), count_families(&s, 1));
    assert_true(loaded() >= 4); /* otherwise the program is too small for this test */
    assert_int_equal(fake->images[FIG_OP_CEILING] + fake->images[FIG_OP_ALL_REDUCE], 0);
    close_scene(&s);
}

/* Prepares again, binds again, launches and captures. */
static void a_loaded_kernel_is_not_loaded_again(void **state) {
    (void)state;
    static const int32_t one = 1;
    scene s;
    open_scene(&s);
    fig_cu_stream stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    void *const on = stream;
    assert_int_equal(fig_caller_bind_all(s.engine, s.graphs), FIG_OK);
    assert_int_equal(fig_engine_prepare(s.engine, 0), FIG_OK);
    const int64_t before = loaded();
    assert_int_equal(fig_caller_bind_all(s.engine, s.graphs), FIG_OK);
    assert_int_equal(fig_engine_prepare(s.engine, 0), FIG_OK);
    assert_int_equal(
        fig_engine_step(s.engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &one)), FIG_OK);
    fig_fake_cuda_capture(stream);
    assert_int_equal(
        fig_engine_append(s.engine, FIG_OPTIONS(fig_append, .bucket = 1, .stream = &on)), FIG_OK);
    fig_fake_cuda_drop(fig_fake_cuda_end(stream));
    fig_fake_cuda_stream_destroy(stream);
    assert_int_equal(loaded(), before);
    assert_int_equal(fake->images_in_capture, 0);
    close_scene(&s);
}

static void a_load_that_fails_is_tried_again_when_the_bucket_is(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    assert_int_equal(fig_caller_bind_all(s.engine, s.graphs), FIG_OK);
    fake->fail_name = "cuLibraryLoadData", fake->fail_with = FIG_CU_OUT_OF_MEMORY;
    assert_int_equal(fig_engine_prepare(s.engine, 1), FIG_NOMEM);
    assert_non_null(strstr(fig_message(), "cuLibraryLoadData"));
    assert_int_equal(loaded(), 1);
    fake->fail_name = NULL;
    assert_int_equal(fig_engine_prepare(s.engine, 1), FIG_OK);
    assert_int_equal(loaded(), count_families(&s, 1));
    close_scene(&s);
}

/* A driver refuses clusters of over 8 blocks unless the caller has allowed them for that kernel. */
static void clusters_of_over_8_blocks_are_allowed_once_a_kernel(void **state) {
    (void)state;
    static const int widths[] = {0, 8, 9, 16};
    for (int n = 0; n < 4; n++) {
        scene s;
        fake->cluster_width = widths[n];
        fake->clusters_allowed = 0;
        open_scene(&s);
        assert_int_equal(fig_caller_bind_all(s.engine, s.graphs), FIG_OK);
        assert_int_equal(fig_engine_prepare(s.engine, 1), FIG_OK);
        const int64_t allowed = fake->clusters_allowed;
        assert_int_equal(allowed > 0, widths[n] > 8);
        assert_int_equal(fig_caller_bind_all(s.engine, s.graphs), FIG_OK);
        assert_int_equal(fig_engine_prepare(s.engine, 1), FIG_OK);
        assert_int_equal(fake->clusters_allowed, allowed);
        close_scene(&s);
    }
}

static void clusters_that_the_driver_does_not_allow_are_a_status(void **state) {
    (void)state;
    const fig_engine_options options = {.size = sizeof options, .device = FIG_DEVICE_CUDA};
    scene s;
    open_scene(&s);
    fig_engine_close(s.engine);
    fake->cluster_width = 16;
    fake->fail_name = "cuKernelSetAttribute", fake->fail_with = FIG_CU_OUT_OF_MEMORY;
    assert_int_equal(fig_engine_open(&s.engine, s.graphs, &options), FIG_NOMEM);
    assert_non_null(strstr(fig_message(), "cuKernelSetAttribute"));
    assert_null(s.engine);
    fake->fail_name = NULL;
    close_scene(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(opening_loads_the_one_image_that_says_whether_the_driver_takes_them),
        FIG_CUDA_BENCH_TEST(a_bucket_loads_the_families_that_serve_it_and_no_others),
        FIG_CUDA_BENCH_TEST(a_loaded_kernel_is_not_loaded_again),
        FIG_CUDA_BENCH_TEST(a_load_that_fails_is_tried_again_when_the_bucket_is),
        FIG_CUDA_BENCH_TEST(clusters_of_over_8_blocks_are_allowed_once_a_kernel),
        FIG_CUDA_BENCH_TEST(clusters_that_the_driver_does_not_allow_are_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
