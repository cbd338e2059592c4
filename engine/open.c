/* open.c: opens and closes an engine.
 *
 * engine.c, replay.c and append.c do the work of an open engine. Invariant: dismantle() releases
 * everything that fig_engine_open() acquired, in the opposite order, even if open failed
 * half-way. */
#include "engine/engine.h"

#include <inttypes.h>
#include <stdlib.h>

#include "engine/cuda/choice.h"
#include "engine/meeting.h"
#include "include/figraph_unstable.h"
#include "planner/size.h"
#include "planner/status.h"

static fig_status check_options(fig_engine_options *options) {
    fig_test_options test;
    FIG_TRY(fig_status_take_options(&test, sizeof test, options->test, "fig_test_options"));
    if (test.fail_at_call < 0)
        return fig_fail(FIG_INVALID, "engine: fail_at_call is %" PRId64 ", it must not be negative",
                        test.fail_at_call);
    if (options->slots == 0) options->slots = FIG_SLOT_DEFAULT;
    if (options->slots < FIG_SLOT_LEAST || options->slots > FIG_SLOT_LIMIT)
        return fig_fail(FIG_INVALID, "engine: slots is %" PRId32 ", limits %d to %d",
                        options->slots, FIG_SLOT_LEAST, FIG_SLOT_LIMIT);
    if (options->busy_us < 0)
        return fig_fail(FIG_INVALID, "engine: busy_us is %" PRId32 ", it must not be negative",
                        options->busy_us);
    if (options->check_plans != 0 && options->check_plans != 1)
        return fig_fail(FIG_INVALID, "engine: check_plans is %" PRId32 ", it is 0 or 1",
                        options->check_plans);
    if (options->numa_node < -1 || options->numa_node > FIG_NUMA_NODE_LIMIT)
        return fig_fail(FIG_INVALID, "engine: numa_node is %" PRId32 ", limits -1 to %d",
                        options->numa_node, FIG_NUMA_NODE_LIMIT);
    if (options->share < -1 || options->share > 1)
        return fig_fail(FIG_INVALID, "engine: share is %" PRId32 ", it is 0, 1 or -1",
                        options->share);
    if (options->score_cache != NULL && !options->compile_scores)
        return fig_fail(FIG_INVALID, "engine: score_cache is for engines with compile_scores");
    return FIG_OK;
}

static fig_status choose_device(fig_engine *engine, const fig_engine_options *options) {
    const fig_choice_wish wish = {"engine", options->device,
                                  options->ordinal != 0 || options->stream != NULL};
    fig_device device;
    FIG_TRY(fig_choice_of_device(&wish, &device));
    engine->api = device == FIG_DEVICE_HOST ? &fig_device_host : &fig_device_cuda;
    return engine->api->open(&engine->dev, options);
}

/* Loads the kernel images of the graphs' file. This library fills in params as described by its own
 * kernel table, so an image is usable only if the library that made the file had the same
 * params. */
static fig_status trust_images(fig_engine *engine, const struct fig_trust *trust) {
    const fig_graphs *graphs = engine->graphs;
    if (trust == NULL) return FIG_OK;
    FIG_TRY(fig_archive_admit(&graphs->archive, trust, fig_images_of, &engine->admitted));
    for (uint32_t i = 0; i < engine->admitted.set.count; i++) {
        const fig_op op = engine->admitted.set.images[i].op;
        if (!(graphs->changed_kernels >> op & 1)) continue;
        return fig_fail(FIG_UNSUPPORTED,
                        "trust: %s takes other params than its image in the file, made by version "
                        "%" PRIu32
                        ": open the engine without trust to use the library's own kernels",
                        fig_kernel_table[op].name, graphs->maker.version);
    }
    return engine->api->take_images(engine->dev, &engine->admitted.set);
}

/*     pinned: [words, padded to 64][slot 0][slot 1]...[pages in bulk]
 *     state:  [fig_fetch_state][copy of the slot that the device prefetched]  */
static fig_status open_memory(fig_engine *engine, uint32_t slot_count) {
    const fig_graphs *graphs = engine->graphs;
    const fig_device_api *api = engine->api;
    const size_t words_bytes = fig_size_align(sizeof(fig_fetch_words), 64);
    const size_t slot_bytes = fig_graphs_slot_bytes(graphs);
    const size_t pinned_bytes = words_bytes + slot_count * slot_bytes + FIG_GRAPHS_BULK_BYTES;
    FIG_TRY(
        api->allocate(engine->dev, &engine->workspace, FIG_MEMORY_DEVICE, graphs->workspace.bytes));
    FIG_TRY(api->allocate(engine->dev, &engine->plan, FIG_MEMORY_DEVICE, graphs->plan_bytes));
    FIG_TRY(api->allocate(engine->dev, &engine->state, FIG_MEMORY_DEVICE,
                          sizeof(fig_fetch_state) + slot_bytes));
    FIG_TRY(api->allocate(engine->dev, &engine->pinned, FIG_MEMORY_PINNED, pinned_bytes));
    uint8_t *host = engine->pinned.host;
    fig_ring_init(&engine->ring, host + words_bytes, engine->pinned.host, slot_count,
                  (uint32_t)slot_bytes);
    return FIG_OK;
}

static fig_status open_execs(fig_engine *engine, const fig_engine_options *options) {
    uint8_t *device = engine->pinned.device;
    size_t words_bytes = (size_t)(engine->ring.slots - (uint8_t *)engine->pinned.host);
    fig_exec_places places = {
        .workspace = engine->workspace.device,
        .plan = engine->plan.device,
        .ring = device + words_bytes,
        .state = engine->state.device,
        .words = device,
        .slot_count = engine->ring.slot_count,
        .slot_bytes = engine->ring.slot_bytes,
    };
    FIG_TRY(fig_meeting_open(engine, options->ranks, &places.met));
    const fig_binding_table on = {
        .graphs = engine->graphs, .api = engine->api, .dev = engine->dev, .stream = engine->stream};
    FIG_TRY(fig_binding_init(&engine->bindings, &on, engine->workspace.device));
    FIG_TRY(fig_execs_init(&engine->execs, &engine->bindings, engine->stream, &places));
    engine->execs.compiles_scores = options->compile_scores;
    const size_t slots_bytes = (size_t)engine->ring.slot_count * engine->ring.slot_bytes;
    FIG_TRY(fig_page_tables_init(&engine->tables, &engine->bindings, engine->stream, &engine->ring,
                                 engine->ring.slots + slots_bytes));
    FIG_TRY(fig_sharing_init(&engine->sharing, &engine->tables.mirrors, options->share));
    FIG_TRY(fig_graphs_mask_lines(engine->graphs, &engine->lines));
    const fig_plan_held_limits limits = fig_graphs_held_limits(engine->graphs);
    return fig_plan_held_init(&engine->held, &limits);
}

static fig_status open_references(fig_engine *engine) {
    for (uint32_t i = 0; i < FIG_ENGINE_FETCH_LIMIT; i++)
        engine->fetches[i].bucket = -1;
    engine->refs = fig_graph_refs_create();
    if (engine->refs == NULL) return fig_fail(FIG_NOMEM, "engine: a reference count");
    return FIG_OK;
}

static fig_status open_stamps(fig_engine *engine) {
    const size_t count = (size_t)engine->program->spec.sequence_limit;
    const size_t rows = (size_t)engine->program->spec.batch_limit;
    engine->stamps.of = calloc(count, sizeof *engine->stamps.of);
    engine->stamps.known = calloc(rows, sizeof *engine->stamps.known);
    if (engine->stamps.of != NULL && engine->stamps.known != NULL) return FIG_OK;
    return fig_fail(FIG_NOMEM, "engine: %zu sequences and %zu rows", count, rows);
}

/* Opens the parts in this order: fork check, device, kernel images, stream, memory, references,
 * stamps, ranks, bindings, execs, page tables, sharing. */
static fig_status open_parts(fig_engine *engine, const fig_engine_options *options) {
    FIG_TRY(fig_fork_check_open(&engine->fork));
    FIG_TRY(choose_device(engine, options));
    FIG_TRY(trust_images(engine, options->trust));
    FIG_TRY(engine->api->stream_open(engine->dev, &engine->stream));
    FIG_TRY(open_memory(engine, (uint32_t)options->slots));
    FIG_TRY(open_references(engine));
    FIG_TRY(open_stamps(engine));
    return open_execs(engine, options);
}

static void close_memory(fig_engine *engine) {
    fig_binding_finish(&engine->bindings);
    engine->api->release(engine->dev, &engine->pinned);
    engine->api->release(engine->dev, &engine->state);
    engine->api->release(engine->dev, &engine->plan);
    engine->api->release(engine->dev, &engine->workspace);
    engine->api->close(engine->dev);
}

/* Takes back every staged step, so that a caller's graph that outlives the engine finds no plan. */
static void take_all_back(fig_engine *engine) {
    fig_engine_catch_up(engine);
    while (engine->launched < engine->staged) {
        const int64_t staged = engine->staged;
        fig_engine_take_back(engine);
        if (engine->staged == staged) return;
    }
}

/* Frees an engine, which may be half-made. If a caller's graph outlives the engine, the caller may
 * still launch it, or may be capturing it at this moment. So the memory and code that the graph's
 * nodes use stay until the process ends: kernels, context, ring, workspace and the tensors that the
 * engine allocated. The closed engine stages no more steps, so the graph finds no plan and runs no
 * rows. */
static void dismantle(fig_engine *engine) {
    const int outlived = engine->refs != NULL && fig_graph_refs_pieces(engine->refs) > 0;
    if (outlived) take_all_back(engine);
    if (engine->dev != NULL) {
        engine->api->stream_close(engine->dev, engine->stream); /* waits; nothing runs afterwards */
        fig_execs_finish(&engine->execs);
        if (!outlived) close_memory(engine);
    }
    fig_graph_refs_drop(engine->refs);
    fig_plan_held_finish(&engine->held);
    fig_mask_lines_finish(&engine->lines);
    fig_sharing_finish(&engine->sharing);
    fig_page_tables_finish(&engine->tables);
    fig_fork_check_close(&engine->fork);
    if (!outlived) fig_archive_admitted_finish(&engine->admitted);
    free(engine->stamps.known);
    free(engine->stamps.of);
    free(engine);
}

fig_status fig_engine_open(fig_engine **out, const fig_graphs *graphs,
                           const fig_engine_options *options) {
    fig_engine_options ours;
    *out = NULL;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, options, "fig_engine_options"));
    FIG_TRY(check_options(&ours));
    if (graphs == NULL) return fig_fail(FIG_INVALID, "engine: graphs is NULL");
    fig_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) return fig_fail(FIG_NOMEM, "engine: %zu bytes", sizeof *engine);
    engine->graphs = graphs;
    engine->program = fig_program_view_of(graphs->program);
    engine->busy_us = ours.busy_us;
    engine->check_plans = ours.check_plans;
    engine->running = 1;
    fig_status status = open_parts(engine, &ours);
    if (status != FIG_OK) {
        dismantle(engine);
        return status;
    }
    *out = engine;
    return FIG_OK;
}

/* If the wait fails with FIG_LOST, the engine is closed anyway: on a lost device no wait can
 * succeed, and nothing more will run. */
fig_status fig_engine_close_within(fig_engine *engine, int64_t timeout_us) {
    if (engine == NULL) return FIG_OK;
    FIG_TRY(fig_engine_enter(engine));
    const fig_status status =
        fig_engine_leave(engine, engine->api->stream_wait(engine->dev, engine->stream, timeout_us));
    if (status != FIG_OK && status != FIG_LOST) return status;
    dismantle(engine);
    return FIG_OK;
}

/* Closes the engine without a timeout. Unlike fig_engine_close_within(), this function also closes
 * an engine whose stream is capturing, for which no wait is possible. */
fig_status fig_engine_close(fig_engine *engine) {
    if (engine == NULL) return FIG_OK;
    FIG_TRY(fig_engine_enter(engine));
    fig_engine_leave(engine, FIG_OK);
    dismantle(engine);
    return FIG_OK;
}
