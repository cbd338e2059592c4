/* stranger.c: see stranger.h. */
#include "tests/support/files/stranger.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/graphs.h"
#include "include/figraph_unstable.h"
#include "planner/size.h"
#include "planner/status.h"
#include "tools/figraph/inspect/diff.h"
#include "tools/figraph/inspect/inspect_print.h"

static void must(fig_status status, const char *what) {
    if (status == FIG_OK) return;
    fprintf(stderr, "stranger: %s: %s: %s\n", what, fig_status_name(status), fig_message());
    abort();
}

/* ---- Without an engine ----------------------------------------------------------------------- */

static void swallow(void *user, const char *bytes, size_t count) {
    size_t *sum = user;
    for (size_t i = 0; i < count; i++)
        *sum += (uint8_t)bytes[i];
}

static void show(const fig_graphs *graphs) {
    size_t sum = 0;
    for (fig_print_format format = FIG_PRINT_TEXT; format <= FIG_PRINT_DOT; format++)
        for (int32_t bucket = 0; bucket <= 1; bucket++)
            must(fig_inspect_print(graphs, &(fig_print_options){.format = format, .bucket = bucket},
                                   swallow, &sum),
                 "print");
}

static void count_difference(void *user, const fig_difference *difference) {
    (void)difference;
    ++*(int *)user;
}

static void save_and_load(const fig_graphs *graphs) {
    fig_graphs *again;
    uint8_t *bytes;
    size_t count;
    int differences = 0;
    must(fig_graphs_write(graphs, &bytes, &count), "write");
    must(fig_graphs_parse(&again, bytes, count), "parse what was written");
    must(fig_diff_graphs(graphs, again, count_difference, &differences), "diff");
    if (differences != 0 || memcmp(graphs->content_id, again->content_id, 32) != 0) {
        fprintf(stderr, "stranger: saved and loaded, there are %d differences\n", differences);
        abort();
    }
    fig_graphs_destroy(again);
    free(bytes);
}

void fig_stranger_use(const fig_graphs *graphs) {
    fig_memory_info memory = {.size = sizeof memory};
    fig_plan_report report = {.size = sizeof report};
    const int32_t length = fig_program_view_of(graphs->program)->spec.row_tokens;
    const fig_step step = {.size = sizeof step, .rows = 1, .kv_lengths = &length};
    show(graphs);
    must(fig_graphs_memory(graphs, 0, &memory), "memory");
    (void)fig_graphs_plan(graphs, &step, &report);
    save_and_load(graphs);
}

/* ---- On the host --------------------------------------------------------------------------- */

enum { PAGES = 4, ROWS = 2, BYTES_LIMIT = 4 << 20 };

static int32_t callback(void *user, const fig_call_args *args) {
    (void)user;
    (void)args;
    return 0;
}

/* Returns the bytes of a tensor. A dim of pages counts as PAGES. */
static uint64_t bytes_of(const fig_program_view *view, uint32_t tensor) {
    const fig_tensor_record *record = &view->tensors[tensor - 1];
    const uint64_t bytes = fig_program_view_tensor_bytes(view, tensor);
    return record->symbol == FIG_SYMBOL_PAGES ? bytes * PAGES : bytes;
}

static int is_small(const fig_graphs *graphs) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    uint64_t bytes = graphs->workspace.bytes;
    for (uint32_t id = 1; id <= view->tensor_count && bytes <= BYTES_LIMIT; id++)
        bytes += bytes_of(view, id);
    return bytes <= BYTES_LIMIT && graphs->plan_bytes <= BYTES_LIMIT;
}

/* Binds every tensor that must be bound to the engine's own memory. */
static fig_status bind_all(fig_engine *engine, const fig_program_view *view) {
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        const fig_tensor_record *record = &view->tensors[id - 1];
        const int is_bound = record->role == FIG_ROLE_BOUND || record->symbol == FIG_SYMBOL_PAGES;
        if (!is_bound || record->role == FIG_ROLE_TEMP) continue;
        FIG_TRY(fig_engine_bind(engine, FIG_OPTIONS(fig_binding,
                                                    .name = fig_program_view_tensor_name(view, id),
                                                    .bytes = bytes_of(view, id))));
    }
    return FIG_OK;
}

static fig_status register_calls(fig_engine *engine, const fig_program_view *view) {
    for (uint32_t n = 0; n < view->node_count; n++) {
        fig_call_attributes call;
        if (view->nodes[n].op != FIG_OP_CALL) continue;
        memcpy(&call, view->attributes + view->nodes[n].attribute, sizeof call);
        FIG_TRY(fig_engine_register(engine, view->strings + call.name, callback, NULL));
    }
    return FIG_OK;
}

/* If the program reads lengths on the device, writes them there. Otherwise the step gives them. */
static fig_status write_lengths(fig_engine *engine, const fig_program_view *view,
                                const int32_t lengths[ROWS]) {
    const fig_node *node = &view->nodes[0];
    if (!fig_program_view_reads_lengths(view)) return FIG_OK;
    const uint32_t tensor = view->operands[node->operand + FIG_PLAN_IN_LENGTHS];
    const uint64_t bytes = bytes_of(view, tensor);
    const uint64_t given = ROWS * sizeof lengths[0];
    return fig_engine_write(engine,
                            FIG_OPTIONS(fig_span,
                                        .name = fig_program_view_tensor_name(view, tensor),
                                        .bytes = bytes < given ? bytes : given),
                            lengths);
}

static fig_status give_pages(fig_engine *engine, const fig_spec *spec, int32_t rows) {
    const int32_t pages[PAGES] = {3, 1, 0, 2};
    if (spec->page_size == 0) return FIG_OK;
    const int32_t most = (spec->kv_limit + spec->page_size - 1) / spec->page_size;
    for (int32_t row = 0; row < rows; row++)
        FIG_TRY(fig_engine_set_pages(engine, FIG_OPTIONS(fig_pages, .sequence = row,
                                                         .count = most < PAGES ? most : PAGES,
                                                         .pages = pages)));
    return FIG_OK;
}

/* Returns the query tokens that each of ROWS rows of a packed program may have. */
static int32_t most_queries(const fig_spec *spec) {
    const int64_t share = spec->query_limit / ROWS;
    return share < spec->row_tokens ? (int32_t)share : spec->row_tokens;
}

static fig_status run(fig_engine *engine, const fig_program_view *view) {
    const fig_spec *spec = &view->spec;
    const int32_t rows = spec->batch_limit < ROWS ? spec->batch_limit : ROWS;
    /* If a page or the limit is small, the second row fills its pages. */
    int32_t lengths[ROWS] = {spec->row_tokens, 40};
    if (spec->kv_limit < lengths[1]) lengths[1] = spec->kv_limit;
    if (spec->page_size > 0 && spec->page_size * PAGES < lengths[1])
        lengths[1] = spec->page_size * PAGES;
    if (spec->kv_limit < lengths[0]) lengths[0] = 0;
    const int on_device = fig_program_view_reads_lengths(view);
    const int is_counted = spec->query_limit > 0 && !on_device;
    const int32_t counts[ROWS] = {fig_size_min(lengths[0], most_queries(spec)),
                                  fig_size_min(lengths[1], most_queries(spec))};
    FIG_TRY(register_calls(engine, view));
    FIG_TRY(bind_all(engine, view));
    FIG_TRY(write_lengths(engine, view, lengths));
    FIG_TRY(give_pages(engine, spec, rows));
    FIG_TRY(fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = rows,
                                                .kv_lengths = on_device ? NULL : lengths,
                                                .query_counts = is_counted ? counts : NULL)));
    return fig_engine_wait(engine, 10000000);
}

void fig_stranger_step(const fig_graphs *graphs) {
    fig_engine *engine;
    if (!is_small(graphs)) return;
    fig_status status = fig_engine_open(
        &engine, graphs,
        FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST, .numa_node = -1));
    if (status == FIG_OK) status = run(engine, fig_program_view_of(graphs->program));
    fig_engine_close(engine);
    if (status == FIG_OK || (status >= FIG_INVALID && status <= FIG_CALLBACK)) return;
    must(status, "a step on the host");
}
