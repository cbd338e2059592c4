/* ping.c: records the tutorial's step, opens an engine, and runs steps whose results are known.
 *
 * It uses only the public header, as a caller would. Invariant: V is 1 everywhere and only one
 * sequence grows, so every output of attention is 1, whatever its weights are. */
#include "engine/doctor/ping.h"

#include <assert.h>
#include <string.h>

#include "engine/seam/clock.h"
#include "planner/status.h"

enum {
    STEPS = 20,             /* enough for the sequence to grow into a second page */
    TENSOR_BYTES = 1 << 16, /* eight pages, and larger than any other tensor of the tutorial */
    WAIT_US = 10000000,
    V_COUNT = 4 * 64,   /* elements of one row of v */
    OUT_COUNT = 16 * 64 /* elements of one row of out */
};
static const uint16_t one = 0x3c00; /* 1 as f16 */

static fig_status make_graphs(fig_graphs **graphs, const fig_traits *traits) {
    static const fig_bucket bucket = {1, 64};
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    *graphs = NULL;
    FIG_TRY(fig_spec_preset(&spec, "tutorial"));
    assert(spec.dtype == FIG_F16 && spec.kv_heads * spec.head_dim == V_COUNT &&
           spec.q_heads * spec.head_dim == OUT_COUNT && spec.page_size > 0 &&
           spec.kv_limit >= STEPS);
    FIG_TRY(fig_program_create(&program, &spec));
    fig_program_decode_step(program);
    fig_status status = fig_program_finish(program);
    if (status == FIG_OK)
        status = fig_graphs_lower(graphs, program,
                                  FIG_OPTIONS(fig_lower_options, .traits = traits,
                                              .buckets = &bucket, .bucket_count = 1));
    fig_program_destroy(program);
    return status;
}

static fig_status bind_all(fig_engine *engine, const fig_graphs *graphs) {
    fig_tensor_info tensor = {.size = sizeof tensor};
    uint16_t v[V_COUNT];
    for (int32_t i = 0; fig_graphs_tensor(graphs, i, &tensor) == FIG_OK; i++)
        FIG_TRY(fig_engine_bind(
            engine, FIG_OPTIONS(fig_binding, .name = tensor.name, .bytes = TENSOR_BYTES)));
    for (int i = 0; i < V_COUNT; i++)
        v[i] = one;
    return fig_engine_write(engine, FIG_OPTIONS(fig_span, .name = "v.0", .bytes = sizeof v), v);
}

/* Waits for each step, so that no step has to queue behind another. */
static fig_status take_steps(fig_engine *engine, fig_ping *ping) {
    static const int32_t pages[] = {5, 2};
    fig_histogram stage = {0}, launch = {0};
    FIG_TRY(fig_engine_set_pages(engine, FIG_OPTIONS(fig_pages, .count = 2, .pages = pages)));
    for (int32_t seen = 1; seen <= STEPS; seen++) {
        const int64_t begin_ns = fig_clock_ns();
        FIG_TRY(fig_engine_stage(engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &seen)));
        const int64_t staged_ns = fig_clock_ns();
        FIG_TRY(fig_engine_launch(engine));
        const int64_t launched_ns = fig_clock_ns();
        FIG_TRY(fig_engine_wait(engine, WAIT_US));
        fig_histogram_add(&stage, staged_ns - begin_ns);
        fig_histogram_add(&launch, launched_ns - staged_ns);
    }
    ping->steps = STEPS;
    ping->stage_ns = fig_histogram_percentile(&stage, 50);
    ping->launch_ns = fig_histogram_percentile(&launch, 50);
    return FIG_OK;
}

static fig_status check_out(fig_engine *engine) {
    uint16_t out[OUT_COUNT];
    FIG_TRY(
        fig_engine_read(engine, FIG_OPTIONS(fig_span, .name = "out.0", .bytes = sizeof out), out));
    for (int i = 0; i < OUT_COUNT; i++)
        if (out[i] != one)
            return fig_fail(FIG_DRIVER, "out[%d] is %04x as f16, and must be %04x", i, out[i], one);
    return FIG_OK;
}

fig_status fig_ping_run(const fig_engine_options *options, const fig_traits *traits,
                        fig_ping *ping) {
    fig_graphs *graphs;
    fig_engine *engine = NULL;
    *ping = (fig_ping){0};
    fig_status status = make_graphs(&graphs, traits);
    if (status == FIG_OK) status = fig_engine_open(&engine, graphs, options);
    if (status == FIG_OK) status = bind_all(engine, graphs);
    if (status == FIG_OK) status = take_steps(engine, ping);
    if (status == FIG_OK) status = check_out(engine);
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
    return status;
}
