/* engine.c: bind an engine's tensors, move bytes in and out, order streams, wait.
 *
 * All that is not done per step, as replay.c is, nor on a caller's stream, as append.c is.
 * Invariant: bytes are moved in the order of the engine's stream, behind all that was launched on
 * it before. */
#include "engine/engine.h"

#include <inttypes.h>

#include "planner/status.h"

fig_device fig_engine_device(const fig_engine *engine) {
    return engine->api->kind;
}

fig_status fig_engine_read_traits(const fig_engine *engine, fig_traits *traits) {
    fig_traits ours;
    engine->api->read_traits(engine->dev, &ours);
    return fig_status_give(traits, &ours, sizeof ours, "fig_traits");
}

fig_status fig_engine_bind_thread(const fig_engine *engine) {
    return engine->api->bind_thread(engine->dev);
}

/* ---- Bindings ------------------------------------------------------------------------------ */

/* Entries of page tables that wait belong to the memory that is bound as yet. */
static fig_status bind(fig_engine *engine, const fig_binding *binding) {
    fig_binding ours;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, binding, "fig_binding"));
    FIG_TRY(fig_page_tables_flush(&engine->tables, engine->running));
    if (fig_graph_refs_pieces(engine->refs) == 0) fig_binding_unmark(&engine->bindings);
    FIG_TRY(fig_binding_bind(&engine->bindings, &ours));
    fig_page_tables_forget(&engine->tables);
    fig_engine_count_owned(engine);
    return FIG_OK;
}

fig_status fig_engine_bind(fig_engine *engine, const fig_binding *binding) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, bind(engine, binding));
}

static fig_status find_address(fig_engine *engine, const char *name, void **address) {
    uint32_t tensor;
    *address = NULL;
    FIG_TRY(fig_binding_find(&engine->bindings, name, &tensor));
    *address = engine->bindings.tensors[tensor - 1].place.address;
    return FIG_OK;
}

fig_status fig_engine_address(fig_engine *engine, const char *name, void **address) {
    FIG_TRY(fig_thread_check_enter(&engine->owner));
    return fig_thread_check_leave(&engine->owner, find_address(engine, name, address));
}

fig_status fig_engine_register(fig_engine *engine, const char *call, fig_callback callback,
                               void *user) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, fig_binding_register(&engine->bindings, call, callback, user));
}

/* ---- Bytes in and out ---------------------------------------------------------------------- */

/* Checks a span and finds where it begins. */
static fig_status find_span(fig_engine *engine, const fig_span *span, const void *host,
                            uint8_t **address) {
    uint32_t tensor;
    FIG_TRY(fig_binding_find(&engine->bindings, span->name, &tensor));
    const fig_bound_place *place = &engine->bindings.tensors[tensor - 1].place;
    if (span->offset > place->bytes || span->bytes > place->bytes - span->offset)
        return fig_fail(FIG_INVALID, "tensor %s: %zu bytes from %zu of %zu", span->name,
                        span->bytes, span->offset, place->bytes);
    if (host == NULL && span->bytes > 0)
        return fig_fail(FIG_INVALID, "tensor %s: the host's memory is NULL", span->name);
    *address = place->address + span->offset;
    return FIG_OK;
}

/* What waits for a page table is there before it is written or read. */
static fig_status write_bytes(fig_engine *engine, const fig_span *span, const void *from) {
    fig_span ours;
    uint8_t *address;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, span, "fig_span"));
    FIG_TRY(find_span(engine, &ours, from, &address));
    FIG_TRY(fig_page_tables_flush(&engine->tables, engine->running));
    return engine->api->copy_in(engine->dev, engine->stream, address, from, ours.bytes);
}

static fig_status read_bytes(fig_engine *engine, const fig_span *span, void *to) {
    fig_span ours;
    uint8_t *address;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, span, "fig_span"));
    FIG_TRY(find_span(engine, &ours, to, &address));
    FIG_TRY(fig_page_tables_flush(&engine->tables, engine->running));
    return engine->api->copy_out(engine->dev, engine->stream, to, address, ours.bytes);
}

fig_status fig_engine_write(fig_engine *engine, const fig_span *span, const void *from) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, write_bytes(engine, span, from));
}

fig_status fig_engine_read(fig_engine *engine, const fig_span *span, void *to) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, read_bytes(engine, span, to));
}

static fig_status set_pages(fig_engine *engine, const fig_pages *pages) {
    fig_pages ours;
    uint64_t ahead_bytes;
    fig_engine_catch_up(engine);
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, pages, "fig_pages"));
    FIG_TRY(fig_page_tables_set(&engine->tables, &ours, engine->running, &ahead_bytes));
    fig_stats_add(&engine->counters.page_bytes, (int64_t)ahead_bytes);
    fig_engine_count_owned(engine);
    return FIG_OK;
}

fig_status fig_engine_set_pages(fig_engine *engine, const fig_pages *pages) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, set_pages(engine, pages));
}

/* ---- The caller's streams ------------------------------------------------------------------ */

void *fig_engine_stream(const fig_engine *engine) {
    return engine->api->stream_handle(engine->stream);
}

fig_status fig_engine_wait_for(fig_engine *engine, void *stream) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine,
                            engine->api->stream_follow(engine->dev, engine->stream, stream));
}

fig_status fig_engine_signal(fig_engine *engine, void *stream) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, engine->api->stream_lead(engine->dev, engine->stream, stream));
}

/* ---- Waiting ------------------------------------------------------------------------------- */

static fig_status wait_and_judge(fig_engine *engine, int64_t timeout_us) {
    FIG_TRY(engine->api->stream_wait(engine->dev, engine->stream, timeout_us));
    fig_engine_catch_up(engine);
    FIG_TRY(engine->api->stream_take_fault(engine->dev, engine->stream));
    const uint64_t torn = fig_ring_torn(&engine->ring) - engine->told_torn;
    const uint64_t missed = fig_ring_missed(&engine->ring) - engine->missed;
    if (missed == 0) return FIG_OK;
    engine->missed += missed;
    engine->told_torn += torn;
    if (torn > 0)
        return fig_fail(FIG_DRIVER,
                        "%" PRIu64 " plan%s arrived damaged, and %" PRIu64 " step%s ran no rows "
                        "for it; what was carried for page tables goes with the next plan",
                        torn, FIG_PLURAL(torn), missed, FIG_PLURAL(missed));
    if (fig_program_view_reads_lengths(engine->program))
        return fig_fail(fig_engine_miss_status(engine),
                        "%" PRIu64 " step%s ran no rows: lengths on the device are more than the "
                        "bucket holds, or nothing was staged",
                        missed, FIG_PLURAL(missed));
    return fig_fail(fig_engine_miss_status(engine),
                    "%" PRIu64 " replay%s found no plan staged and ran no rows", missed,
                    FIG_PLURAL(missed));
}

fig_status fig_engine_wait(fig_engine *engine, int64_t timeout_us) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, wait_and_judge(engine, timeout_us));
}
