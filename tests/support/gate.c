/* gate.c: see gate.h. */
#include "tests/support/gate.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/place.h"

void fig_gate_init(fig_gate *gate) {
    memset(gate, 0, sizeof *gate);
    assert_int_equal(sem_init(&gate->entered, 0, 0), 0);
    assert_int_equal(sem_init(&gate->leave, 0, 0), 0);
}

int32_t fig_gate_callback(void *user, const fig_call_args *args) {
    fig_gate *gate = user;
    const float *x = args->reads[0];
    float *up = args->writes[0];
    sem_post(&gate->entered);
    if (gate->held) sem_wait(&gate->leave);
    gate->calls++;
    gate->last = *args;
    gate->last_read = x;
    memcpy(gate->last_bytes, args->bytes, (size_t)args->byte_count);
    for (int32_t r = 0; r < args->rows; r++)
        for (int c = 0; c < 2 * FIG_GATE_WIDTH; c++)
            up[r * 2 * FIG_GATE_WIDTH + c] = x[r * 4] * (float)(c + 1);
    return gate->answer;
}

static void *leave_later(void *user) {
    fig_hang_pause(30000);
    sem_post(&((fig_gate *)user)->leave);
    return NULL;
}

void fig_gate_leave_later(fig_gate *gate) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, leave_later, gate), 0);
    pthread_detach(thread);
}

fig_graphs *fig_gate_graphs(void) {
    static const fig_bucket buckets[] = {{2, FIG_GATE_KV}, {FIG_GATE_ROWS, FIG_GATE_KV}};
    fig_program *program;
    fig_graphs *graphs;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F32,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .ffn_width = FIG_GATE_WIDTH,
                           .batch_limit = FIG_GATE_ROWS,
                           .kv_limit = FIG_GATE_KV};
    fig_tensor_info info = {.size = sizeof info, .dtype = FIG_F32, .rank = 2};
    info.dims[0] = FIG_DIM_BATCH;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    info.name = "x", info.role = FIG_ROLE_BOUND, info.dims[1] = 4;
    fig_tensor x = fig_program_tensor(program, &info);
    info.name = "up", info.role = FIG_ROLE_TEMP, info.dims[1] = 2 * FIG_GATE_WIDTH;
    fig_tensor up = fig_program_tensor(program, &info);
    info.name = "act", info.role = FIG_ROLE_BOUND, info.dims[1] = FIG_GATE_WIDTH;
    fig_tensor act = fig_program_tensor(program, &info);
    info.name = "spare", info.role = FIG_ROLE_STATE;
    fig_program_tensor(program, &info);
    fig_call(program,
             FIG_OPTIONS(fig_call_op, .call = "gemm", .reads = &x, .read_count = 1, .writes = &up,
                         .write_count = 1, .tag = 5, .bytes = "scale", .byte_count = 6));
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = up, .out = act));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_graphs_lower(&graphs, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = buckets, .bucket_count = 2)) !=
        FIG_OK)
        fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return graphs;
}

/* ---- An engine with all tensors bound ------------------------------------------------------ */

fig_status fig_gate_bind(fig_engine *engine, const char *name, void *address, size_t bytes) {
    return fig_engine_bind(
        engine, FIG_OPTIONS(fig_binding, .name = name, .address = address, .bytes = bytes));
}

fig_engine_options fig_gate_options(void) {
    return fig_place_host_only("a call does its work in the step, and can be held up there");
}

void fig_gate_open(fig_gate *gate, const fig_engine_options *options) {
    fig_engine_options ours = fig_gate_options();
    if (options != NULL) ours = *options;
    ours.device = FIG_DEVICE_HOST;
    fig_gate_init(gate);
    gate->graphs = fig_gate_graphs();
    fig_gate_fill(gate->x, 0.5f);
    assert_int_equal(fig_engine_open(&gate->engine, gate->graphs, &ours), FIG_OK);
    assert_int_equal(fig_gate_bind(gate->engine, "x", gate->x, sizeof gate->x), FIG_OK);
    assert_int_equal(fig_gate_bind(gate->engine, "act", gate->act, sizeof gate->act), FIG_OK);
    assert_int_equal(fig_engine_register(gate->engine, "gemm", fig_gate_callback, gate), FIG_OK);
}

void fig_gate_close(fig_gate *gate) {
    fig_engine_close(gate->engine);
    fig_graphs_destroy(gate->graphs);
}

fig_step fig_gate_step(int32_t rows) {
    static const int32_t lengths[FIG_GATE_ROWS] = {1, 2, 3, 4};
    return (fig_step){.size = sizeof(fig_step), .rows = rows, .kv_lengths = lengths};
}

fig_status fig_gate_stage(fig_gate *gate, int32_t rows) {
    const fig_step step = fig_gate_step(rows);
    return fig_engine_stage(gate->engine, &step);
}

void fig_gate_run(fig_gate *gate, int32_t rows) {
    const fig_step step = fig_gate_step(rows);
    if (fig_engine_step(gate->engine, &step) != FIG_OK) fail_msg("%s", fig_message());
}

void fig_gate_wait(fig_gate *gate) {
    if (fig_engine_wait(gate->engine, FIG_HANG_US) != FIG_OK) fail_msg("%s", fig_message());
}

fig_engine_stats fig_gate_stats(const fig_engine *engine) {
    fig_engine_stats stats = {.size = sizeof stats};
    fig_engine_read_stats(engine, &stats);
    return stats;
}

fig_progress fig_gate_progress(fig_engine *engine) {
    fig_progress progress = {.size = sizeof progress};
    assert_int_equal(fig_engine_poll(engine, &progress), FIG_OK);
    return progress;
}

/* ---- Numbers ------------------------------------------------------------------------------- */

void fig_gate_fill(float *x, float first) {
    for (int i = 0; i < FIG_GATE_ROWS * 4; i++)
        x[i] = first + (float)(i / 4) * 0.25f;
}

void fig_gate_check(const float *x, const float *act, int32_t rows) {
    for (int32_t i = 0; i < rows * FIG_GATE_WIDTH; i++) {
        int32_t row = i / FIG_GATE_WIDTH, c = i % FIG_GATE_WIDTH;
        double gate = (double)x[row * 4] * (c + 1);
        double up = (double)x[row * 4] * (c + 1 + FIG_GATE_WIDTH);
        double want = gate / (1 + exp(-gate)) * up, tolerance = 2e-5 * fabs(want);
        if (!(fabs((double)act[i] - want) <= tolerance))
            fail_msg("act[%d][%d]: %.9g, want %.9g within %.3g", (int)row, (int)c, (double)act[i],
                     want, tolerance);
    }
}
