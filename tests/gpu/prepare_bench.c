/* prepare_bench.c: measures the time of a first step, and the time and memory that preparing all
 * buckets takes.
 *
 *     build/release/tests/gpu/prepare_bench [LAYERS]            of llama-3.1-70b; default 80
 *     build/release/tests/gpu/prepare_bench LAYERS shared       one way to prepare, alone
 *     build/release/tests/gpu/prepare_bench LAYERS unshared
 *
 * Runs on the device that FIG_DEVICE names. Prints CSV: for graphs with one bucket and with all
 * buckets, the time from fig_engine_open to the end of the first step; the time to make all execs,
 * and their device memory; and the time and memory of UNSHARED_COUNT execs that are made one by one
 * although some of them have equal launches, as if buckets did not share execs. Each of the two
 * ways runs in a process of its own, after one step, because a driver reuses the memory of
 * destroyed execs and is faster then. Both ways lower a step, fill in its params, make its exec,
 * upload it and keep it. Only the number of execs and the memory are judged; times depend on the
 * machine. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/seam/clock.h"
#include "tests/support/driver/caller.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != FIG_OK) {                                                                    \
            fprintf(stderr, "prepare_bench: %s\n", fig_message());                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { LAYERS = 80, UNSHARED_COUNT = 198, EXEC_LIMIT = 40, MEMORY_LIMIT_MB = 45 };

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

/* Returns the milliseconds from open to the end of the first step. The driver was started before,
 * so its start does not count. The engine stays open. */
static double open_and_step(fig_engine **engine, const fig_graphs *graphs, fig_device device) {
    static const int32_t one = 1;
    const fig_engine_options options = {.size = sizeof options, .device = device};
    const int64_t begin_ns = fig_clock_ns();
    TRY(fig_engine_open(engine, graphs, &options));
    TRY(fig_caller_bind_all(*engine, graphs));
    TRY(fig_engine_step(*engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &one)));
    TRY(fig_engine_wait(*engine, -1));
    return (double)(fig_clock_ns() - begin_ns) / 1e6;
}

/* The cost of preparing, in milliseconds and in MB of device memory. */
typedef struct cost {
    double ms, mb;
} cost;

/* Returns the free bytes of the GPU, and 0 on the host. */
static int64_t free_bytes(fig_device device) {
    if (device != FIG_DEVICE_CUDA) return 0;
    const int64_t bytes = fig_caller_free_bytes();
    if (bytes < 0) {
        fprintf(stderr, "prepare_bench: the driver does not say how much is free\n");
        exit(1);
    }
    return bytes;
}

static void make_all(fig_engine *engine) {
    TRY(fig_engine_prepare(engine, 0));
}

/* Exec 0 was made for the first step. This makes the others, and keeps each until the process ends,
 * as an engine with that number of buckets would. */
static void make_unshared(fig_engine *engine) {
    const uint32_t bucket_count = engine->graphs->bucket_count;
    for (uint32_t i = 1; i < UNSHARED_COUNT; i++) {
        const uint32_t index = fig_engine_exec_of(engine, i % bucket_count);
        fig_exec *exec = &engine->execs.of[index];
        fig_lower_finish(&exec->lowered);
        free(exec->choices);
        exec->choices = NULL;
        exec->exec = NULL;
        exec->is_true = 0;
        exec->version = 0;
        TRY(fig_execs_prepare(&engine->execs, index));
    }
}

static cost prepare(const fig_graphs *ladder, fig_device device, void (*make)(fig_engine *)) {
    fig_engine *engine;
    open_and_step(&engine, ladder, device);
    const int64_t before = free_bytes(device);
    const int64_t begin_ns = fig_clock_ns();
    make(engine);
    const int64_t end_ns = fig_clock_ns();
    return (cost){(double)(end_ns - begin_ns) / 1e6, (double)(before - free_bytes(device)) / 1e6};
}

/* Runs this program in another process to measure one way of preparing. */
static cost ask(const char *program, int32_t layers, const char *way) {
    char command[4096];
    cost of;
    snprintf(command, sizeof command, "'%s' %d %s", program, layers, way);
    FILE *other = popen(command, "r");
    if (other == NULL || fscanf(other, "%lf,%lf", &of.ms, &of.mb) != 2 || pclose(other) != 0) {
        fprintf(stderr, "prepare_bench: %s: no answer\n", command);
        exit(1);
    }
    return of;
}

static int compare(const char *program, int32_t layers, fig_device device) {
    fig_engine_stats stats = {.size = sizeof stats};
    fig_engine *first, *one, *all;
    fig_graphs *single = capture(layers, 1), *ladder = capture(layers, 0);
    const cost shared = ask(program, layers, "shared"), unshared = ask(program, layers, "unshared");
    open_and_step(&first, single, device);
    const double one_ms = open_and_step(&one, single, device);
    const double all_ms = open_and_step(&all, ladder, device);
    make_all(all);
    fig_engine_read_stats(all, &stats);
    puts("layers,buckets,execs,first_step_one_ms,first_step_all_ms,ratio,prepare_ms,unshared,"
         "unshared_ms,share,device_mb,estimated_mb,unshared_mb");
    printf("%d,%u,%d,%.1f,%.1f,%.2f,%.1f,%d,%.1f,%.2f,%.1f,%.1f,%.1f\n", layers,
           ladder->bucket_count, stats.exec_count, one_ms, all_ms, all_ms / one_ms, shared.ms,
           UNSHARED_COUNT, unshared.ms, shared.ms / unshared.ms, shared.mb,
           (double)stats.exec_bytes / 1e6, unshared.mb);
    fig_engine_close(all);
    fig_engine_close(one);
    fig_engine_close(first);
    fig_graphs_destroy(ladder);
    fig_graphs_destroy(single);
    return stats.exec_count > EXEC_LIMIT || shared.mb > MEMORY_LIMIT_MB;
}

int main(int count, char **words) {
    const char *name = getenv("FIG_DEVICE");
    const fig_device device =
        name != NULL && strcmp(name, "cuda") == 0 ? FIG_DEVICE_CUDA : FIG_DEVICE_HOST;
    const int32_t layers = count > 1 ? atoi(words[1]) : LAYERS;
    if (count <= 2) return compare(words[0], layers, device);
    const int shares = strcmp(words[2], "shared") == 0;
    const cost of = prepare(capture(layers, 0), device, shares ? make_all : make_unshared);
    printf("%.1f,%.1f\n", of.ms, of.mb);
    return 0;
}
