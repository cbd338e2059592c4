/* prepare_bench.c: what it costs to get from graphs to a first step, and to have all buckets ready.
 *
 *     build/release/tests/gpu/prepare_bench [LAYERS [memory]]   80; llama-3.1-70b, on FIG_DEVICE
 *
 * Prints CSV: of graphs with one bucket and of those with all, how long fig_engine_open to the
 * end of the first step takes; then how long all execs take to make, what they hold of the device,
 * and how long it takes to lower, fill in, make and upload an exec for each bucket instead. What
 * they hold is told by a process of its own, which has made nothing before, since a driver keeps
 * what it once took. Judges the number of execs alone: times are the machine's. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "engine/cuda/cuda_api.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != FIG_OK) {                                                                    \
            fprintf(stderr, "prepare_bench: %s\n", fig_message());                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { LAYERS = 80, EXEC_LIMIT = 40 };

static fig_graphs *capture(int32_t layers, int one_bucket) {
    static const fig_bucket small = {1, 128};
    fig_spec spec = {.size = sizeof spec};
    fig_traits traits = {.size = sizeof traits};
    fig_program *program;
    fig_graphs *graphs;
    TRY(fig_spec_preset(&spec, "llama-3.1-70b"));
    TRY(fig_traits_named(&traits, "h200"));
    spec.layers = layers;
    TRY(fig_program_create(&program, &spec));
    fig_program_decode_step(program);
    TRY(fig_program_finish(program));
    const fig_lower_options options = {.size = sizeof options,
                                       .traits = &traits,
                                       .buckets = one_bucket ? &small : NULL,
                                       .bucket_count = one_bucket};
    TRY(fig_graphs_lower(&graphs, program, &options));
    fig_program_destroy(program);
    return graphs;
}

static void bind_all(fig_engine *engine, const fig_graphs *graphs) {
    fig_tensor_info tensor = {.size = sizeof tensor};
    for (int32_t i = 0; fig_graphs_tensor(graphs, i, &tensor) == FIG_OK; i++) {
        if (tensor.role != FIG_ROLE_BOUND) continue;
        const int64_t rows = tensor.dims[0] == FIG_DIM_BATCH ? 256 : 16;
        size_t bytes = (size_t)rows * 4;
        for (uint32_t d = 1; d < (uint32_t)tensor.rank; d++)
            bytes *= (size_t)tensor.dims[d];
        TRY(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = tensor.name, .bytes = bytes)));
    }
}

static uint64_t free_bytes(void) {
    size_t bytes = 0, total = 0;
    const fig_cuda_api *cu = fig_cuda_api_table();
    if (cu->version != 0) cu->MemGetInfo(&bytes, &total);
    return bytes;
}

/* Milliseconds from open to the end of the first step; what the driver itself needs to start was
 * paid before. The engine stays open. */
static double open_and_step(fig_engine **engine, const fig_graphs *graphs, fig_device device) {
    static const int32_t one = 1;
    const fig_engine_options options = {.size = sizeof options, .device = device};
    const int64_t begin_ns = fig_clock_ns();
    TRY(fig_engine_open(engine, graphs, &options));
    bind_all(*engine, graphs);
    TRY(fig_engine_step(*engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &one)));
    TRY(fig_engine_wait(*engine, -1));
    return (double)(fig_clock_ns() - begin_ns) / 1e6;
}

/* As if it had never been asked for. */
static void forget_exec(fig_execs *execs, fig_exec *exec) {
    execs->bindings->api->exec_destroy(execs->bindings->dev, exec->exec);
    free(exec->choices);
    fig_lower_finish(&exec->lowered);
    exec->exec = NULL;
    exec->choices = NULL;
    exec->is_true = 0;
    exec->version = 0;
}

/* Milliseconds for an exec of each bucket's own, made one after another. */
static double make_unshared(fig_engine *engine) {
    const int64_t begin_ns = fig_clock_ns();
    for (uint32_t i = 0; i < engine->graphs->bucket_count; i++) {
        const uint32_t exec = fig_engine_exec_of(engine, i);
        forget_exec(&engine->execs, &engine->execs.of[exec]);
        TRY(fig_execs_prepare(&engine->execs, exec));
    }
    return (double)(fig_clock_ns() - begin_ns) / 1e6;
}

/* Of the device, in MB, by all execs but the first. */
static double held_mb(const fig_graphs *ladder, fig_device device) {
    fig_engine *engine;
    open_and_step(&engine, ladder, device);
    const uint64_t before = free_bytes();
    TRY(fig_engine_prepare(engine, 0));
    const double held = (double)(before - free_bytes()) / 1e6;
    fig_engine_close(engine);
    return held;
}

/* The same, asked of another process. */
static double ask_held_mb(const char *program, int32_t layers) {
    char command[4096];
    double held = 0;
    snprintf(command, sizeof command, "'%s' %d memory", program, layers);
    FILE *other = popen(command, "r");
    if (other == NULL || fscanf(other, "%lf", &held) != 1 || pclose(other) != 0) {
        fprintf(stderr, "prepare_bench: %s: no answer\n", command);
        exit(1);
    }
    return held;
}

int main(int count, char **words) {
    const char *name = getenv("FIG_DEVICE");
    const fig_device device =
        name != NULL && strcmp(name, "cuda") == 0 ? FIG_DEVICE_CUDA : FIG_DEVICE_HOST;
    const int32_t layers = count > 1 ? atoi(words[1]) : LAYERS;
    fig_engine_stats stats = {.size = sizeof stats};
    fig_engine *first, *one, *all;
    fig_graphs *single = capture(layers, 1), *ladder = capture(layers, 0);
    if (count > 2) {
        printf("%.1f\n", held_mb(ladder, device));
        fig_graphs_destroy(ladder);
        fig_graphs_destroy(single);
        return 0;
    }
    const double device_mb = ask_held_mb(words[0], layers);
    open_and_step(&first, single, device);
    const double one_ms = open_and_step(&one, single, device);
    const double all_ms = open_and_step(&all, ladder, device);
    const int64_t begin_ns = fig_clock_ns();
    TRY(fig_engine_prepare(all, 0));
    const double prepare_ms = (double)(fig_clock_ns() - begin_ns) / 1e6;
    fig_engine_read_stats(all, &stats);
    const double unshared_ms = make_unshared(all);
    puts("layers,buckets,execs,first_step_one_ms,first_step_all_ms,ratio,prepare_ms,"
         "unshared_ms,share,device_mb,estimated_mb");
    printf("%d,%u,%d,%.1f,%.1f,%.2f,%.1f,%.1f,%.2f,%.1f,%.1f\n", layers, ladder->bucket_count,
           stats.exec_count, one_ms, all_ms, all_ms / one_ms, prepare_ms, unshared_ms,
           prepare_ms / unshared_ms, device_mb, (double)stats.exec_bytes / 1e6);
    fig_engine_close(all);
    fig_engine_close(one);
    fig_engine_close(first);
    fig_graphs_destroy(ladder);
    fig_graphs_destroy(single);
    return stats.exec_count > EXEC_LIMIT;
}
