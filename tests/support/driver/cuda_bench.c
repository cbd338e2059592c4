/* cuda_bench.c: see cuda_bench.h. */
#include "include/figraph_unstable.h"
#include "tests/support/driver/cuda_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/place.h"

fig_fake_cuda *fig_cuda_bench_fake;

static const fig_device_api *const api = &fig_device_cuda;
static const fig_dev_after none = {NULL, 0};

int fig_cuda_bench_set_up(void **state) {
    (void)state;
    fig_place_hold_host();
    fig_cuda_bench_fake = fig_fake_cuda_install();
    fig_fake_cuda_push(fig_fake_cuda_foreign());
    return 0;
}

int fig_cuda_bench_tear_down(void **state) {
    (void)state;
    fig_place_release_host();
    const fig_fake_cuda *fake = fig_cuda_bench_fake;
    const int kept = fake->current == fig_fake_cuda_foreign();
    const int bad = fake->held != 0 || fake->unsafe != 0 || fake->memory_used != 0 || !kept ||
                    fake->mode != 0 || fake->captures != 0;
    if (bad)
        printf("held %d, unsafe %d, the caller's context %s\n", (int)fake->held, (int)fake->unsafe,
               kept ? "kept" : "lost");
    fig_fake_cuda_remove();
    return bad;
}

void fig_cuda_scene_init(fig_cuda_scene *s) {
    memset(s, 0, sizeof *s);
    fig_fetch_place_init(&s->fetch);
    s->enqueues = 2;
}

static void work(void *user) {
    fig_cuda_scene *s = user;
    s->works++;
    s->rows_seen = s->fetch.plan.rows;
}

static int32_t callback(void *user, const fig_call_args *args) {
    fig_cuda_scene *s = user;
    s->calls++;
    s->args = *args;
    for (int i = 0; i < s->enqueues; i++)
        fig_fake_cuda_enqueue(args->stream, work, s);
    if (s->breaks) fig_fake_cuda_break(args->stream);
    return s->answer;
}

fig_dev_launch fig_cuda_scene_launch(const fig_cuda_scene *s) {
    return fig_fetch_place_launch(&s->fetch);
}

fig_dev_call fig_cuda_scene_call(fig_cuda_scene *s) {
    return (fig_dev_call){.callback = callback,
                          .user = s,
                          .name = "gemm",
                          .args = {.size = sizeof(fig_call_args),
                                   .device = FIG_DEVICE_CUDA,
                                   .bucket = {8, 256},
                                   .tag = 3}};
}

void fig_cuda_bench_open(fig_cuda_bench *b, const fig_engine_options *options) {
    const fig_engine_options plain = {.size = sizeof plain};
    memset(b, 0, sizeof *b);
    fig_cuda_scene_init(&b->s);
    if (api->open(&b->dev, options != NULL ? options : &plain) != FIG_OK)
        fail_msg("%s", fig_message());
    assert_int_equal(api->stream_open(b->dev, &b->stream), FIG_OK);
    assert_int_equal(api->graph_create(b->dev, &b->graph), FIG_OK);
}

void fig_cuda_bench_close(fig_cuda_bench *b) {
    api->stream_close(b->dev, b->stream);
    api->graph_destroy(b->dev, b->graph);
    api->exec_destroy(b->dev, b->exec);
    api->close(b->dev);
}

fig_status fig_cuda_bench_kernel(fig_cuda_bench *b, fig_dev_after after) {
    const fig_dev_launch launch = fig_cuda_scene_launch(&b->s);
    return api->graph_kernel(b->dev, b->graph, &launch, after);
}

fig_status fig_cuda_bench_call(fig_cuda_bench *b, fig_dev_after after) {
    const fig_dev_call call = fig_cuda_scene_call(&b->s);
    return api->graph_call(b->dev, b->graph, &call, after);
}

void fig_cuda_bench_build(fig_cuda_bench *b) {
    const uint32_t first = 0;
    assert_int_equal(fig_cuda_bench_kernel(b, none), FIG_OK);
    assert_int_equal(fig_cuda_bench_call(b, (fig_dev_after){&first, 1}), FIG_OK);
    assert_int_equal(api->exec_create(b->dev, &b->exec, b->graph), FIG_OK);
}

fig_status fig_cuda_bench_try(int ordinal, int plain) {
    const fig_engine_options options = {
        .ordinal = ordinal, .test = FIG_OPTIONS(fig_test_options, .plain_kernels = plain)};
    fig_dev *dev = (fig_dev *)(void *)fig_cuda_bench_fake;
    fig_status status = api->open(&dev, &options);
    assert_true((dev != NULL) == (status == FIG_OK));
    api->close(dev);
    assert_int_equal(fig_cuda_bench_fake->held, 0);
    return status;
}
