/* test_cuda_gpu.c: tests which GPU is chosen, what is reported if there is none, and what AUTO
 * does. */
#include "engine/driver/cuda_gpu.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/driver/cuda_bench.h"
#include "tests/support/gate.h"

#define fake fig_cuda_bench_fake

static void check_message(const char *sentence) {
    assert_string_equal(fig_message(), sentence);
}

static void the_missing_part_is_named(void **state) {
    (void)state;
    fake->no_images = 1;
    assert_int_equal(fig_cuda_bench_try(0, 0), FIG_NO_DEVICE);
    check_message("cuda device: this library has no kernels for a GPU: it was built without nvcc");
    assert_int_equal(fake->calls, 0);
    fake->no_images = 0;
    fake->init = FIG_CU_NO_DEVICE;
    assert_int_equal(fig_cuda_bench_try(0, 0), FIG_NO_DEVICE);
    check_message("cuda device: there is a driver, of CUDA 13.0, but no GPU");
    fake->init = 34;
    assert_int_equal(fig_cuda_bench_try(0, 0), FIG_NO_DEVICE);
    check_message("cuda device: cuInit: an error without a name (34), which the driver does not "
                  "know");
    fake->init = FIG_CU_SUCCESS;
    fake->device_count = 0;
    assert_int_equal(fig_cuda_bench_try(0, 0), FIG_NO_DEVICE);
    check_message("cuda device: there is a driver, of CUDA 13.0, but no GPU");
    fake->device_count = 2;
    assert_int_equal(fig_cuda_bench_try(2, 0), FIG_NO_DEVICE);
    check_message("cuda device: ordinal is 2, and the driver sees 2 GPUs, from 0");
    assert_int_equal(fig_cuda_bench_try(-1, 0), FIG_NO_DEVICE);
    assert_int_equal(fig_cuda_bench_try(1, 0), FIG_OK);
    fake->capability = 75;
    assert_int_equal(fig_cuda_bench_try(0, 0), FIG_NO_DEVICE);
    check_message("cuda device: GPU 0 is of compute capability 7.5, this library needs 8.0");
    fake->capability = 90;
    fake->fail_name = "cuLibraryLoadData", fake->fail_with = 222;
    assert_int_equal(fig_cuda_bench_try(0, 0), FIG_NO_DEVICE);
    check_message("cuda device: the driver, of CUDA 13.0, does not take the kernels: cuda device: "
                  "cuLibraryLoadData: an error without a name (222), which the driver does not "
                  "know");
    fake->fail_name = "cuDevicePrimaryCtxRetain", fake->fail_with = 46;
    assert_int_equal(fig_cuda_bench_try(0, 0), FIG_NO_DEVICE);
}

static void the_chip_decides_on_the_path(void **state) {
    (void)state;
    static const struct {
        int capability, plain;
        fig_image_path path;
    } cases[] = {{90, 0, FIG_IMAGE_HOPPER},
                 {90, 1, FIG_IMAGE_PLAIN},
                 {80, 0, FIG_IMAGE_PLAIN},
                 {89, 0, FIG_IMAGE_PLAIN},
                 {100, 0, FIG_IMAGE_PLAIN}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake->capability = cases[i].capability;
        assert_int_equal(fig_cuda_bench_try(0, cases[i].plain), FIG_OK);
        assert_int_equal(fake->path, cases[i].path);
    }
}

/* If no machine is named, graphs are lowered for these traits. */
static void an_engine_tells_the_traits_of_its_gpu(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"NVIDIA H200", "h200"}, {"NVIDIA H100 80GB HBM3", "h100"}, {"NVIDIA Something", "sm_90"}};
    fig_graphs *graphs = fig_gate_graphs();
    for (int i = 0; i < 3; i++) {
        fig_traits traits = {.size = sizeof traits};
        fig_engine *engine;
        fake->name = names[i][0];
        assert_int_equal(
            fig_engine_open(&engine, graphs,
                            FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA)),
            FIG_OK);
        assert_int_equal(fig_engine_read_traits(engine, &traits), FIG_OK);
        assert_string_equal(traits.name, names[i][1]);
        assert_int_equal(traits.compute_capability, 90);
        assert_int_equal(traits.sm_count, 132);
        assert_int_equal(traits.shared_bytes, 232448);
        traits.size = 0;
        assert_int_equal(fig_engine_read_traits(engine, &traits), FIG_INVALID);
        fig_engine_close(engine);
    }
    fig_graphs_destroy(graphs);
}

static fig_device device_of(fig_device device) {
    fig_graphs *graphs = fig_gate_graphs();
    fig_engine *engine;
    fig_status status =
        fig_engine_open(&engine, graphs, FIG_OPTIONS(fig_engine_options, .device = device));
    fig_device became = status == FIG_OK ? fig_engine_device(engine) : FIG_DEVICE_AUTO;
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
    return became;
}

static void auto_is_the_host_where_there_is_no_driver_or_no_gpu(void **state) {
    (void)state;
    assert_int_equal(device_of(FIG_DEVICE_AUTO), FIG_DEVICE_CUDA);
    assert_int_equal(device_of(FIG_DEVICE_CUDA), FIG_DEVICE_CUDA);
    assert_int_equal(device_of(FIG_DEVICE_HOST), FIG_DEVICE_HOST);
    fake->device_count = 0;
    assert_int_equal(device_of(FIG_DEVICE_AUTO), FIG_DEVICE_HOST);
    assert_int_equal(device_of(FIG_DEVICE_CUDA), FIG_DEVICE_AUTO);
    fake->init = FIG_CU_NO_DEVICE;
    assert_int_equal(device_of(FIG_DEVICE_AUTO), FIG_DEVICE_HOST);
    fake->init = FIG_CU_SUCCESS;
    fake->device_count = 1;
    fake->memory_bytes = 64; /* a GPU whose memory is full is no reason to run on the host */
    assert_int_equal(device_of(FIG_DEVICE_AUTO), FIG_DEVICE_AUTO);
}

static void auto_never_leaves_a_gpu_that_it_cannot_use_for_the_host(void **state) {
    (void)state;
    static const struct {
        const char *call;
        fig_cu_result result;
    } refusals[] = {{"cuInit", 3},
                    {"cuDeviceGetCount", 999},
                    {"cuDevicePrimaryCtxRetain", 46},
                    {"cuLibraryLoadData", 222}};
    for (int i = 0; i < 4; i++) {
        fake->fail_name = refusals[i].call, fake->fail_with = refusals[i].result;
        assert_int_equal(device_of(FIG_DEVICE_AUTO), FIG_DEVICE_AUTO);
        assert_non_null(strstr(fig_message(), refusals[i].call));
    }
    fake->fail_name = NULL;
    fake->capability = 75;
    assert_int_equal(device_of(FIG_DEVICE_AUTO), FIG_DEVICE_AUTO);
    fake->no_images = 1;
    assert_int_equal(device_of(FIG_DEVICE_AUTO), FIG_DEVICE_AUTO);
    fig_cuda_api *table = fig_cuda_api_table();
    table->version = table->is_missing = 0; /* first a driver that is too old, then no driver */
    assert_int_equal(device_of(FIG_DEVICE_AUTO), FIG_DEVICE_AUTO);
    table->is_missing = 1;
    assert_int_equal(device_of(FIG_DEVICE_AUTO), FIG_DEVICE_HOST);
}

static void auto_never_becomes_the_host_if_the_caller_named_a_gpu(void **state) {
    (void)state;
    fig_graphs *graphs = fig_gate_graphs();
    fig_engine *engine;
    fig_engine_options options = {.size = sizeof options, .ordinal = 7};
    assert_int_equal(fig_engine_open(&engine, graphs, &options), FIG_NO_DEVICE);
    check_message("cuda device: ordinal is 7, and the driver sees 1 GPUs, from 0");
    fake->device_count = 0;
    assert_int_equal(fig_engine_open(&engine, graphs, &options), FIG_NO_DEVICE);
    fig_graphs_destroy(graphs);
}

static void *find_it_lost(void *gpu) {
    fig_cuda_gpu_refuse(gpu, FIG_CU_ILLEGAL_ADDRESS, "cuGraphUpload");
    return NULL;
}

/* One thread may prepare a bucket while another one runs steps. */
static void a_loss_that_one_thread_finds_is_told_whole_to_another(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    pthread_t thread;
    assert_int_equal(fig_cuda_gpu_find(&gpu, 0, 0), FIG_OK);
    assert_int_equal(pthread_create(&thread, NULL, find_it_lost, &gpu), 0);
    while (fig_cuda_gpu_check(&gpu) == FIG_OK)
        sched_yield();
    assert_non_null(strstr(fig_message(), "cuda device: cuGraphUpload: "));
    assert_non_null(strstr(fig_message(), "(700), "));
    pthread_join(thread, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(the_missing_part_is_named),
        FIG_CUDA_BENCH_TEST(the_chip_decides_on_the_path),
        FIG_CUDA_BENCH_TEST(an_engine_tells_the_traits_of_its_gpu),
        FIG_CUDA_BENCH_TEST(auto_is_the_host_where_there_is_no_driver_or_no_gpu),
        FIG_CUDA_BENCH_TEST(auto_never_leaves_a_gpu_that_it_cannot_use_for_the_host),
        FIG_CUDA_BENCH_TEST(auto_never_becomes_the_host_if_the_caller_named_a_gpu),
        FIG_CUDA_BENCH_TEST(a_loss_that_one_thread_finds_is_told_whole_to_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
