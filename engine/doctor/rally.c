/* rally.c: times all-reduces among ranks that are threads of this process.
 *
 * It opens a group, runs each rank's engine on a separate thread, and runs steps that consist of
 * many all-reduces. It uses only the public headers, as a caller would. Invariant: every element
 * that rank r contributes is r + 1, so each sum is known in advance. A rank that fails reports this
 * to the others, so that no rank waits for it. */
#include "engine/doctor/rally.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/seam/clock.h"
#include "include/figraph_parallel.h"
#include "include/figraph_ranks.h"
#include "planner/status.h"

enum {
    WIDTH = FIG_RALLY_ROW_KIB * 1024 / 4, /* number of f32 elements in a row */
    NUMBER_BYTES = FIG_RALLY_ROWS * WIDTH * 4,
    CHAIN = 32, /* all-reduces in a step */
    WARM_STEPS = 2,
    STEPS = 10,
    WAIT_US = 10000000
};

typedef struct member {
    const fig_graphs *graphs;
    fig_ranks *ranks;
    fig_device device;
    int32_t rank, count;
    pthread_t thread;
    int64_t ns[2];
    fig_status status;
    char sentence[256];
} member;

static fig_tensor add(fig_program *program, const char *name) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name,
                                                   .role = FIG_ROLE_BOUND, .dtype = FIG_F32,
                                                   .rank = 2, .dims = {FIG_DIM_BATCH, WIDTH}));
}

static fig_status make_graphs(fig_graphs **graphs, const fig_traits *traits) {
    static const fig_bucket buckets[] = {{1, 1}, {FIG_RALLY_ROWS, 1}};
    fig_all_reduce_op op = {.size = sizeof op};
    fig_program *program;
    *graphs = NULL;
    FIG_TRY(
        fig_program_create(&program, FIG_OPTIONS(fig_spec, .dtype = FIG_F32,
                                                 .batch_limit = FIG_RALLY_ROWS, .kv_limit = 1)));
    op.in = add(program, "in");
    op.out = add(program, "out");
    for (int i = 0; i < CHAIN; i++)
        fig_all_reduce(program, &op);
    fig_status status = fig_program_finish(program);
    if (status == FIG_OK)
        status = fig_graphs_lower(graphs, program,
                                  FIG_OPTIONS(fig_lower_options, .traits = traits,
                                              .buckets = buckets, .bucket_count = 2));
    fig_program_destroy(program);
    return status;
}

static fig_status take_steps(fig_engine *engine, int32_t rows, int32_t steps) {
    static const int32_t lengths[FIG_RALLY_ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (int32_t i = 0; i < steps; i++)
        FIG_TRY(
            fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = rows, .kv_lengths = lengths)));
    return fig_engine_wait(engine, WAIT_US);
}

static fig_status time_steps(member *m, fig_engine *engine) {
    for (int i = 0; i < 2; i++) {
        const int32_t rows = i == 0 ? 1 : FIG_RALLY_ROWS;
        FIG_TRY(take_steps(engine, rows, WARM_STEPS));
        FIG_TRY(fig_ranks_barrier(m->ranks));
        const int64_t began = fig_clock_ns();
        FIG_TRY(take_steps(engine, rows, STEPS));
        m->ns[i] = (fig_clock_ns() - began) / (STEPS * CHAIN);
    }
    return FIG_OK;
}

/* Checks the sums that the engine computed. out: [FIG_RALLY_ROWS * WIDTH], a buffer to read them
 * into. */
static fig_status check_sums(const member *m, fig_engine *engine, float *out) {
    const float due = (float)(m->count * (m->count + 1) / 2);
    FIG_TRY(
        fig_engine_read(engine, FIG_OPTIONS(fig_span, .name = "out", .bytes = NUMBER_BYTES), out));
    for (int i = 0; i < FIG_RALLY_ROWS * WIDTH; i++)
        if (out[i] != due)
            return fig_fail(FIG_DRIVER, "the sum over ranks is %g at element %d, and must be %g",
                            (double)out[i], i, (double)due);
    return FIG_OK;
}

/* Binds the tensors. in: [FIG_RALLY_ROWS * WIDTH], a buffer for the rank's numbers. */
static fig_status bind_all(const member *m, fig_engine *engine, float *in) {
    for (int i = 0; i < FIG_RALLY_ROWS * WIDTH; i++)
        in[i] = (float)(m->rank + 1);
    FIG_TRY(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = "in", .bytes = NUMBER_BYTES)));
    FIG_TRY(
        fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = "out", .bytes = NUMBER_BYTES)));
    return fig_engine_write(engine, FIG_OPTIONS(fig_span, .name = "in", .bytes = NUMBER_BYTES), in);
}

static fig_status run(member *m) {
    const fig_engine_options options = {.size = sizeof options,
                                        .device = m->device,
                                        .ordinal = m->device == FIG_DEVICE_HOST ? 0 : m->rank,
                                        .ranks = m->ranks,
                                        .busy_us = WAIT_US};
    fig_engine *engine = NULL;
    float *numbers = malloc(NUMBER_BYTES);
    if (numbers == NULL) return fig_fail(FIG_NOMEM, "ranks: %d bytes", NUMBER_BYTES);
    fig_status status = fig_engine_open(&engine, m->graphs, &options);
    if (status == FIG_OK) status = bind_all(m, engine, numbers);
    if (status == FIG_OK) status = time_steps(m, engine);
    if (status == FIG_OK) status = check_sums(m, engine, numbers);
    fig_engine_close(engine);
    free(numbers);
    return status;
}

static void *run_member(void *user) {
    member *m = user;
    m->status = run(m);
    if (m->status == FIG_OK) return NULL;
    snprintf(m->sentence, sizeof m->sentence, "%s", fig_message());
    fig_ranks_abort(m->ranks, m->sentence);
    return NULL;
}

/* Runs each rank on a separate thread. If a thread cannot be started, no later rank is started, and
 * the group is aborted. */
static fig_status run_all(member *members, int32_t count) {
    int32_t started = 0;
    fig_status status = FIG_OK;
    for (; started < count; started++)
        if (pthread_create(&members[started].thread, NULL, run_member, &members[started]) != 0) {
            status = fig_fail(FIG_NOMEM, "a thread for rank %d cannot be started", (int)started);
            fig_ranks_abort(members[started].ranks, fig_message());
            break;
        }
    for (int32_t i = 0; i < started; i++)
        pthread_join(members[i].thread, NULL);
    return status;
}

/* Keeps the slowest times. If several ranks failed, reports a rank that caused the loss of the
 * group rather than one that only learned of it. */
static fig_status conclude(const member *members, int32_t count, fig_rally *rally) {
    const member *failed = NULL;
    for (const member *m = members; m < members + count; m++) {
        if (m->status != FIG_OK && (failed == NULL || failed->status == FIG_LOST)) failed = m;
        for (int i = 0; i < 2; i++)
            if (m->ns[i] > rally->ns[i]) rally->ns[i] = m->ns[i];
    }
    return failed == NULL ? FIG_OK : fig_status_relay(failed->status, failed->sentence);
}

fig_status fig_rally_run(fig_device device, int32_t count, fig_rally *rally) {
    member members[FIG_RALLY_LIMIT] = {0};
    fig_ranks *ranks[FIG_RALLY_LIMIT] = {NULL};
    fig_traits traits = {.size = sizeof traits};
    fig_graphs *graphs = NULL;
    *rally = (fig_rally){{0, 0}};
    fig_status status = fig_traits_named(&traits, device == FIG_DEVICE_HOST ? "host" : "h200");
    if (status == FIG_OK) status = make_graphs(&graphs, &traits);
    if (status == FIG_OK)
        status = fig_ranks_open_local(ranks, count,
                                      FIG_OPTIONS(fig_ranks_options, .timeout_us = WAIT_US));
    for (int32_t i = 0; i < count; i++)
        members[i] = (member){
            .graphs = graphs, .ranks = ranks[i], .device = device, .rank = i, .count = count};
    if (status == FIG_OK) status = run_all(members, count);
    if (status == FIG_OK) status = conclude(members, count, rally);
    for (int32_t i = 0; i < count; i++)
        fig_ranks_close(ranks[i]);
    fig_graphs_destroy(graphs);
    return status;
}
