/* append_bench.c: measures the time of a layer in graphs that a caller captures.
 *
 *     build/release/tests/gpu/append_bench [LAYERS]        of llama-3.1-8b; default 32
 *
 * Prints CSV. Each line gives the microseconds of a layer in four graphs: the engine's own; a
 * capture of all segments one by one; a capture of the whole step, from "fetch" to the last node,
 * as one piece; and a capture of all segments with child nodes in place of kernel nodes
 * (fig_test_options.child_nodes). The host stages and replays a series of steps; a time is the
 * duration of the fastest of several series, divided by steps and layers. The graphs take turns, so
 * that drift affects all of them. Each layer has caches of its own, as long as the cell says, so no
 * two layers read the same memory. The times are not judged, since they depend on the machine.
 * FIG_DEVICE=host cannot capture and fills only the first column. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/seam/clock.h"
#include "engine/driver/cuda_gpu.h"
#include "include/figraph_unstable.h"
#include "tests/support/driver/caller.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != FIG_OK) {                                                                    \
            fprintf(stderr, "append_bench: %s\n", fig_message());                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CU(caller, name, ...)                                                                      \
    do {                                                                                           \
        const fig_cu_result cu_result_ = (caller)->cu->name(__VA_ARGS__);                          \
        if (cu_result_ != FIG_CU_SUCCESS) {                                                        \
            fprintf(stderr, "append_bench: cu" #name ": %u\n", cu_result_);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { LAYERS = 32, STEPS = 200, ROUNDS = 7, ROW_LIMIT = 32 };

typedef struct cell {
    int32_t rows, tokens;
} cell;
static const cell cells[] = {{1, 512}, {8, 2048}, {32, 2048}};

enum { OWN, SEGMENTS, WHOLE, CHILDREN, WAY_COUNT };

/* One way to launch a step: its engine, and the graph that a caller captured, or NULL. */
typedef struct way {
    fig_engine *engine;
    fig_cu_graph graph;
    fig_cu_exec exec;
    double least_us;
} way;

static fig_graphs *capture_graphs(int32_t layers, const cell *of) {
    const fig_bucket bucket = {of->rows, of->tokens};
    fig_spec spec = {.size = sizeof spec};
    fig_traits traits = {.size = sizeof traits};
    fig_program *program;
    fig_graphs *graphs;
    TRY(fig_spec_preset(&spec, "llama-3.1-8b"));
    TRY(fig_traits_named(&traits, "h200"));
    spec.layers = layers;
    spec.batch_limit = spec.sequence_limit = of->rows;
    spec.kv_limit = of->tokens;
    TRY(fig_program_create(&program, &spec));
    fig_program_decode_step(program);
    TRY(fig_program_finish(program));
    const fig_lower_options options = {
        .size = sizeof options, .traits = &traits, .buckets = &bucket, .bucket_count = 1};
    TRY(fig_graphs_lower(&graphs, program, &options));
    fig_program_destroy(program);
    return graphs;
}

/* Binds every tensor to memory of the engine. Each cache has its own pages for all tokens of all
 * rows, in order, so that no two layers read the same memory. */
static void bind_all(fig_engine *engine, const fig_graphs *graphs, const cell *of) {
    enum { PAGE_TOKENS = 16 };
    static int32_t numbers[ROW_LIMIT * 2048 / PAGE_TOKENS];
    const int32_t each = of->tokens / PAGE_TOKENS;
    fig_tensor_info tensor = {.size = sizeof tensor};
    for (int32_t i = 0; fig_graphs_tensor(graphs, i, &tensor) == FIG_OK; i++) {
        if (tensor.role != FIG_ROLE_BOUND) continue;
        size_t bytes = tensor.dtype == FIG_F32 || tensor.dtype == FIG_I32 ? 4 : 2;
        bytes *= (size_t)(tensor.dims[0] == FIG_DIM_PAGES ? of->rows * each : of->rows);
        for (uint32_t d = 1; d < (uint32_t)tensor.rank; d++)
            bytes *= (size_t)tensor.dims[d];
        TRY(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = tensor.name, .bytes = bytes)));
    }
    for (int32_t i = 0; i < of->rows * each; i++)
        numbers[i] = i;
    for (int32_t row = 0; row < of->rows; row++)
        TRY(fig_engine_set_pages(engine, FIG_OPTIONS(fig_pages, .sequence = row, .count = each,
                                                     .pages = numbers + row * each)));
}

static void append(const fig_caller *caller, fig_engine *engine, const char *segment) {
    void *const on = caller->stream;
    const fig_append given = {.size = sizeof given, .segment = segment, .bucket = 1, .stream = &on};
    TRY(fig_engine_append(engine, &given));
}

static void capture_step(const fig_caller *caller, way *w, int32_t layers, int whole) {
    fig_cu_instantiate_params params = {.flags = 0};
    CU(caller, StreamBeginCapture, caller->stream, FIG_CU_CAPTURE_RELAXED);
    append(caller, w->engine, whole ? NULL : "fetch");
    for (int32_t layer = 0; layer < layers && !whole; layer++) {
        static const char *const names[] = {"act", "attn"};
        for (int i = 0; i < 2; i++) {
            char segment[32];
            snprintf(segment, sizeof segment, "%s.%d", names[i], (int)layer);
            append(caller, w->engine, segment);
        }
    }
    CU(caller, StreamEndCapture, caller->stream, &w->graph);
    CU(caller, GraphInstantiateWithParams, &w->exec, w->graph, &params);
}

static void open_way(const fig_caller *caller, way *w, int which, const fig_graphs *graphs,
                     int32_t layers, const cell *of) {
    const fig_test_options test = {.size = sizeof test, .child_nodes = which == CHILDREN};
    const fig_engine_options options = {.size = sizeof options,
                                        .device =
                                            caller != NULL ? FIG_DEVICE_CUDA : FIG_DEVICE_HOST,
                                        .test = &test};
    *w = (way){.least_us = 1e30};
    TRY(fig_engine_open(&w->engine, graphs, &options));
    bind_all(w->engine, graphs, of);
    TRY(fig_engine_prepare(w->engine, 1));
    if (which != OWN) capture_step(caller, w, layers, which == WHOLE);
}

static void close_way(const fig_caller *caller, way *w) {
    if (w->exec != NULL) CU(caller, GraphExecDestroy, w->exec);
    if (w->graph != NULL) CU(caller, GraphDestroy, w->graph);
    fig_engine_close(w->engine);
}

/* Runs a series of steps; while one is in flight, the host stages the next. */
static void run_row(const fig_caller *caller, way *w, const cell *of, int32_t steps) {
    int32_t lengths[ROW_LIMIT];
    for (int32_t row = 0; row < of->rows; row++)
        lengths[row] = of->tokens;
    const fig_step step = {
        .size = sizeof step, .rows = of->rows, .kv_lengths = lengths, .bucket = 1};
    for (int32_t i = 0; i < steps; i++) {
        fig_status status = fig_engine_stage(w->engine, &step);
        while (status == FIG_BUSY)
            status = fig_engine_stage(w->engine, &step);
        TRY(status);
        if (w->exec != NULL) CU(caller, GraphLaunch, w->exec, caller->stream);
        if (w->exec == NULL) TRY(fig_engine_launch(w->engine));
    }
    if (w->exec != NULL) CU(caller, StreamSynchronize, caller->stream);
    TRY(fig_engine_wait(w->engine, -1));
}

static void measure(const fig_caller *caller, int32_t layers, const cell *of, int32_t steps) {
    way ways[WAY_COUNT];
    const int count = caller != NULL ? WAY_COUNT : 1;
    fig_graphs *graphs = capture_graphs(layers, of);
    for (int i = 0; i < count; i++) {
        open_way(caller, &ways[i], i, graphs, layers, of);
        run_row(caller, &ways[i], of, 3);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) {
            const int64_t begin_ns = fig_clock_ns();
            run_row(caller, &ways[i], of, steps);
            const double us = (double)(fig_clock_ns() - begin_ns) / 1e3 / steps / layers;
            if (us < ways[i].least_us) ways[i].least_us = us;
        }
    }
    printf("%dx%d,%d", (int)of->rows, (int)of->tokens, (int)layers);
    for (int i = 0; i < WAY_COUNT; i++)
        i < count ? printf(",%.2f", ways[i].least_us) : printf(",");
    puts("");
    for (int i = 0; i < count; i++)
        close_way(caller, &ways[i]);
    fig_graphs_destroy(graphs);
}

int main(int count, char **words) {
    const char *name = getenv("FIG_DEVICE");
    const int on_gpu = name != NULL && strcmp(name, "cuda") == 0;
    const int32_t layers = count > 1 ? atoi(words[1]) : LAYERS;
    fig_caller caller = {0};
    if (layers < 1 || (on_gpu && fig_caller_open(&caller) != 0)) return 1;
    puts("cell,layers,own_us,segments_us,whole_us,children_us");
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++)
        measure(on_gpu ? &caller : NULL, layers, &cells[i], on_gpu ? STEPS : 1);
    return on_gpu ? fig_caller_close(&caller) : 0;
}
