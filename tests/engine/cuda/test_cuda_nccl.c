/* test_cuda_nccl.c: tests that a communicator is not given up while a thread captures with it. Runs
 * over the fake driver and the fake NCCL. test_cuda_peers.c has the other tests of cuda_nccl.c. */
#include "engine/cuda/cuda_nccl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/routes.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/driver/fake_nccl.h"
#include "tests/support/files/sample.h"

enum { ROWS = 4, WIDTH = 16 };

/* The communicator under test, and how often NCCL was called with it. */
static fig_cuda_nccl nccl;
static int calls;

/* Plays the thread that waits for the stream: while this call captures, it finds that a collective
 * hangs. */
static fig_nccl_result reduce_and_abort(const void *in, void *out, size_t count, int dtype, int sum,
                                        fig_nccl_comm comm, fig_cu_stream stream) {
    (void)in, (void)out, (void)count, (void)dtype, (void)sum, (void)stream;
    fig_cuda_nccl_abort(&nccl);
    assert_ptr_equal(nccl.comm, comm);
    calls++;
    return FIG_NCCL_SUCCESS;
}

static void open_nccl(fig_cuda_gpu *gpu) {
    const fig_cuda_nccl_wish wish = {.count = 2, .timeout_us = 60000000, .byte_limit = 1024};
    fig_nccl_config config = {.magic = FIG_NCCL_CONFIG_MAGIC};
    fig_nccl_id id;
    fig_fake_nccl_install()->looks = 0;
    assert_int_equal(fig_cuda_gpu_find(gpu, 0, 0), FIG_OK);
    assert_int_equal(fig_cuda_gpu_open(gpu), FIG_OK);
    assert_int_equal(fig_cuda_gpu_enter(gpu), FIG_OK);
    assert_int_equal(fig_cuda_nccl_init(&nccl, gpu, &wish), FIG_OK);
    assert_int_equal(nccl.api->GetUniqueId(&id), FIG_NCCL_SUCCESS);
    assert_int_equal(nccl.api->CommInitRankConfig(&nccl.comm, 2, id, 0, &config), FIG_NCCL_SUCCESS);
    fig_nccl_api_table()->AllReduce = reduce_and_abort;
    calls = 0;
}

static void close_nccl(fig_cuda_gpu *gpu) {
    fig_cuda_nccl_close(&nccl, gpu);
    fig_cuda_gpu_leave(gpu, FIG_OK);
    fig_cuda_gpu_close(gpu);
    fig_fake_nccl_remove();
}

static void a_communicator_is_not_given_up_while_a_thread_captures_with_it(void **state) {
    (void)state;
    static uint16_t in[ROWS * WIDTH], out[ROWS * WIDTH];
    static fig_peers peers;
    fig_cuda_gpu gpu;
    fig_cuda_kernels kernels = {0};
    fig_cuda_work *work;
    open_nccl(&gpu);
    assert_int_equal(fig_cuda_work_create(&work, &gpu), FIG_OK);
    const fig_all_reduce_params params = {.in = in,
                                          .out = out,
                                          .peers = &peers,
                                          .rows = {ROWS, 1},
                                          .width = WIDTH,
                                          .dtype = FIG_BF16,
                                          .ranks = 2,
                                          .routes = FIG_ROUTE_NCCL};
    const fig_dev_launch launch = {.op = FIG_OP_ALL_REDUCE,
                                   .family = FIG_FAMILY_ALL_REDUCE_NCCL,
                                   .params = &params,
                                   .params_bytes = sizeof params};
    const fig_cuda_nccl_job job = {&nccl, &gpu, &kernels, &launch};
    if (fig_cuda_nccl_capture(&job, work, (fig_dev_after){NULL, 0}) != FIG_OK)
        fail_msg("%s", fig_message());
    assert_int_equal(calls, 1);
    assert_non_null(nccl.comm);
    fig_cuda_nccl_abort(&nccl);
    assert_null(nccl.comm);
    FIG_SAMPLE_REFUSES(fig_cuda_nccl_capture(&job, work, (fig_dev_after){NULL, 0}), FIG_LOST,
                       "the communicator was aborted");
    assert_int_equal(calls, 1);
    fig_cuda_work_release(work, &gpu);
    fig_cuda_kernels_finish(&kernels, &gpu);
    close_nccl(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(a_communicator_is_not_given_up_while_a_thread_captures_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
