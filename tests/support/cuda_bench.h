/* cuda_bench.h: a cuda device over the fake driver, and a graph on it: a fetch, and a call.
 *
 * Each test begins on a machine where all goes well, on a thread where another library has its own
 * context current. Invariant: tear_down fails the test unless that context is current again,
 * nothing is held, and no call was made that a real driver would not have survived. */
#ifndef FIG_TESTS_SUPPORT_CUDA_BENCH_H
#define FIG_TESTS_SUPPORT_CUDA_BENCH_H

#include "engine/device.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/fetch_place.h"

#define FIG_CUDA_BENCH_TEST(name)                                                                  \
    cmocka_unit_test_setup_teardown(name, fig_cuda_bench_set_up, fig_cuda_bench_tear_down)
int fig_cuda_bench_set_up(void **state);
int fig_cuda_bench_tear_down(void **state);
extern fig_fake_cuda *fig_cuda_bench_fake; /* of the test that runs */

/* What a fetch sees, and how a call behaves. */
typedef struct fig_cuda_scene {
    fig_fetch_place fetch;
    int answer, enqueues, breaks; /* of the callback: what it returns, how much it enqueues */
    int calls, works;             /* so far */
    fig_call_args args;           /* of the last call */
    int32_t rows_seen;            /* of the plan, by what was enqueued */
} fig_cuda_scene;
void fig_cuda_scene_init(fig_cuda_scene *scene);
fig_dev_launch fig_cuda_scene_launch(const fig_cuda_scene *scene); /* of the fetch */
fig_dev_call fig_cuda_scene_call(fig_cuda_scene *scene);

typedef struct fig_cuda_bench {
    fig_dev *dev;
    fig_dev_stream *stream;
    fig_dev_graph *graph;
    fig_dev_exec *exec; /* NULL until build */
    fig_cuda_scene s;
} fig_cuda_bench;
void fig_cuda_bench_open(fig_cuda_bench *bench, const fig_engine_options *options);
void fig_cuda_bench_close(fig_cuda_bench *bench);
fig_status fig_cuda_bench_kernel(fig_cuda_bench *bench, fig_dev_after after);
fig_status fig_cuda_bench_call(fig_cuda_bench *bench, fig_dev_after after);
/* Node 0 the fetch, node 1 the call behind it; and the exec. */
void fig_cuda_bench_build(fig_cuda_bench *bench);

/* Opens a device, closes it, and says how that went. */
fig_status fig_cuda_bench_try(int ordinal, int plain);

#endif
