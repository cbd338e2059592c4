/* cuda_bench.h: a cuda device over the fake driver, and a graph on it with a fetch and a call.
 *
 * Each test begins on a machine without faults, on a thread where another library's context is
 * current. Invariant: tear_down fails the test unless that context is current again, nothing is
 * held, and the test has made no call that would crash a real driver. */
#ifndef FIG_TESTS_SUPPORT_CUDA_BENCH_H
#define FIG_TESTS_SUPPORT_CUDA_BENCH_H

#include "engine/seam/device.h"
#include "tests/support/driver/fake_cuda.h"
#include "tests/support/kernels/fetch_place.h"

#define FIG_CUDA_BENCH_TEST(name)                                                                  \
    cmocka_unit_test_setup_teardown(name, fig_cuda_bench_set_up, fig_cuda_bench_tear_down)
int fig_cuda_bench_set_up(void **state);
int fig_cuda_bench_tear_down(void **state);
extern fig_fake_cuda *fig_cuda_bench_fake; /* the fake of the running test */

/* The memory that a fetch uses, and the behaviour of a call. */
typedef struct fig_cuda_scene {
    fig_fetch_place fetch;
    /* what the callback returns, how much work it enqueues, and whether it breaks the capture */
    int answer, enqueues, breaks;
    int calls, works;   /* how often the callback was called, and how often its work ran */
    fig_call_args args; /* the arguments of the last call */
    int32_t rows_seen;  /* the rows of the plan, as the enqueued work saw them */
} fig_cuda_scene;
void fig_cuda_scene_init(fig_cuda_scene *scene);
fig_dev_launch fig_cuda_scene_launch(const fig_cuda_scene *scene); /* the launch of the fetch */
fig_dev_call fig_cuda_scene_call(fig_cuda_scene *scene);

typedef struct fig_cuda_bench {
    fig_dev *dev;
    fig_dev_stream *stream;
    fig_dev_graph *graph;
    fig_dev_exec *exec; /* NULL before fig_cuda_bench_build() */
    fig_cuda_scene s;
} fig_cuda_bench;
void fig_cuda_bench_open(fig_cuda_bench *bench, const fig_engine_options *options);
void fig_cuda_bench_close(fig_cuda_bench *bench);
fig_status fig_cuda_bench_kernel(fig_cuda_bench *bench, fig_dev_after after);
fig_status fig_cuda_bench_call(fig_cuda_bench *bench, fig_dev_after after);
/* Records the fetch as node 0 and the call after it as node 1, and makes the exec. */
void fig_cuda_bench_build(fig_cuda_bench *bench);

/* Opens and closes a device, and returns the status of the open. */
fig_status fig_cuda_bench_try(int ordinal, int plain);

#endif
