/* engine.c: binds an engine's tensors, copies bytes in and out, orders streams, and waits.
 *
 * replay.c has the calls that are made in every step, and append.c those that put work on a
 * caller's stream. Invariant: a copy runs after everything that was launched on the engine's stream
 * before it. */
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

const char *fig_engine_sharing(const fig_engine *engine) {
    return fig_sharing_refuse(&engine->sharing);
}

fig_status fig_engine_bind_thread(const fig_engine *engine) {
    return engine->api->bind_thread(engine->dev);
}

/* ---- Bindings ------------------------------------------------------------------------------ */

/* Returns the id of the tensor of that name. The caller has checked that there is one. */
static uint32_t find_bound(const fig_engine *engine, const char *name) {
    return fig_program_find(engine->graphs->program, name).id;
}

/* Binds a tensor. Page table entries that wait for a plan belong to the memory bound so far, so
 * this function writes them before it changes the binding. */
static fig_status bind(fig_engine *engine, const fig_binding *binding) {
    fig_binding ours;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, binding, "fig_binding"));
    FIG_TRY(fig_page_tables_flush(&engine->tables, engine->running));
    if (fig_graph_refs_pieces(engine->refs) == 0) fig_binding_unmark(&engine->bindings);
    FIG_TRY(fig_binding_bind(&engine->bindings, &ours));
    fig_page_tables_forget(&engine->tables);
    const uint32_t tensor = find_bound(engine, ours.name);
    fig_table_mirrors_forget(&engine->tables.mirrors, tensor);
    fig_sharing_forget_table(&engine->sharing, tensor);
    fig_engine_count_owned(engine);
    return FIG_OK;
}

fig_status fig_engine_bind(fig_engine *engine, const fig_binding *binding) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, bind(engine, binding));
}

static fig_status find_address(fig_engine *engine, const char *name, void **address) {
    uint32_t tensor;
    FIG_TRY(fig_binding_find(&engine->bindings, name, &tensor));
    *address = engine->bindings.tensors[tensor - 1].place.address;
    fig_table_mirrors_give(&engine->tables.mirrors, tensor);
    return FIG_OK;
}

fig_status fig_engine_address(fig_engine *engine, const char *name, void **address) {
    *address = NULL;
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, find_address(engine, name, address));
}

fig_status fig_engine_register(fig_engine *engine, const char *call, fig_callback callback,
                               void *user) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, fig_binding_register(&engine->bindings, call, callback, user));
}

/* ---- Bytes in and out ---------------------------------------------------------------------- */

/* Checks a span and finds the address of its first byte. */
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

/* Refuses to change entries of a page table through which a staged step reads pages for other rows
 * too: entries may go to the device before that step does. */
static fig_status refuse_lent(const char *call) {
    return fig_fail(FIG_ORDER,
                    "%s: a staged step reads pages of several rows through these entries; launch "
                    "it or take it back first",
                    call);
}

static int is_waiting(const fig_engine *engine) {
    return engine->launched < engine->staged;
}

/* Copies bytes into a tensor. This function and read_bytes() first write the page table entries
 * that wait for a plan, so that the copy comes after those entries. */
static fig_status write_bytes(fig_engine *engine, const fig_span *span, const void *from) {
    fig_span ours;
    uint8_t *address;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, span, "fig_span"));
    FIG_TRY(find_span(engine, &ours, from, &address));
    const uint32_t tensor = find_bound(engine, ours.name);
    fig_engine_catch_up(engine);
    if (is_waiting(engine) && fig_sharing_lends(&engine->sharing, tensor, engine->running))
        return refuse_lent("write");
    FIG_TRY(fig_page_tables_flush(&engine->tables, engine->running));
    fig_table_mirrors *mirrors = &engine->tables.mirrors;
    if (engine->bindings.tensors[tensor - 1].tables)
        FIG_TRY(fig_table_mirrors_prepare(mirrors, tensor));
    const fig_status status =
        engine->api->copy_in(engine->dev, engine->stream, address, from, ours.bytes);
    const fig_page_bytes written = {(uint64_t)(uintptr_t)address, ours.bytes, from};
    if (status == FIG_OK) fig_page_tables_write(&engine->tables, &written, engine->running);
    fig_table_mirrors_write(mirrors, tensor, &ours, status == FIG_OK ? from : NULL);
    return status;
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
    if (is_waiting(engine) && fig_sharing_is_changed(&engine->sharing, &ours, engine->running))
        return refuse_lent("pages");
    FIG_TRY(fig_page_tables_set(&engine->tables, &ours, engine->running, &ahead_bytes));
    fig_stats_add(&engine->counters.page_bytes, (int64_t)ahead_bytes);
    fig_engine_count_owned(engine);
    return FIG_OK;
}

fig_status fig_engine_set_pages(fig_engine *engine, const fig_pages *pages) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, set_pages(engine, pages));
}

/* Copies page table entries of one sequence to another. Refuses to do so if a staged step still
 * waits for its launch: that step would see the copied entries too, and might append to a page that
 * both sequences have. */
static fig_status fork_pages(fig_engine *engine, const fig_fork *fork) {
    fig_fork ours;
    uint64_t ahead_bytes;
    fig_engine_catch_up(engine);
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, fork, "fig_fork"));
    if (engine->launched < engine->staged)
        return fig_fail(FIG_ORDER,
                        "fork: launches still due from earlier steps: %" PRId64
                        "; launch them or take them back first",
                        engine->staged - engine->launched);
    FIG_TRY(fig_page_tables_fork(&engine->tables, &ours, engine->running, &ahead_bytes));
    fig_stats_add(&engine->counters.page_bytes, (int64_t)ahead_bytes);
    fig_engine_count_owned(engine);
    return FIG_OK;
}

fig_status fig_engine_fork(fig_engine *engine, const fig_fork *fork) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, fork_pages(engine, fork));
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
    const uint64_t late = fig_ring_late(&engine->ring) - engine->told_late;
    const uint64_t missed = fig_ring_missed(&engine->ring) - engine->missed;
    if (missed == 0) return FIG_OK;
    engine->missed += missed;
    engine->told_torn += torn;
    engine->told_late += late;
    if (torn > 0)
        return fig_fail(FIG_DRIVER,
                        "%" PRIu64 " plan%s arrived damaged, and %" PRIu64 " step%s ran no rows "
                        "for it; the next plan carries their page table entries again",
                        torn, FIG_PLURAL(torn), missed, FIG_PLURAL(missed));
    if (late > 0)
        return fig_fail(FIG_DRIVER,
                        "%" PRIu64 " step%s ran no rows, staged before it was known that an "
                        "earlier plan had arrived damaged",
                        missed, FIG_PLURAL(missed));
    if (fig_program_view_reads_lengths(engine->program))
        return fig_fail(fig_engine_miss_status(engine),
                        "%" PRIu64 " step%s ran no rows: lengths%s on the device are more than the "
                        "bucket holds, or nothing was staged",
                        missed, FIG_PLURAL(missed),
                        engine->program->spec.query_limit > 0 ? " or query tokens" : "");
    return fig_fail(fig_engine_miss_status(engine),
                    "%" PRIu64 " replay%s found no plan staged and ran no rows", missed,
                    FIG_PLURAL(missed));
}

fig_status fig_engine_wait(fig_engine *engine, int64_t timeout_us) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, wait_and_judge(engine, timeout_us));
}
