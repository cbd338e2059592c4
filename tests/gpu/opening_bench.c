/* opening_bench.c: measures the time to open an engine in a fresh process, and the driver's part of
 * it.
 *
 *     build/release/tests/gpu/opening_bench [ROUNDS]     default 5; of llama-3.1-8b, 32 layers
 *     build/release/tests/gpu/opening_bench driver|figraph     one process of a round
 *
 * Prints CSV in milliseconds: the time of a process that only makes the GPU's context and loads the
 * library's smallest image; and the time of a process that opens an engine, binds, and completes a
 * first step, in total and by parts. Each line comes from two fresh processes that ran one right
 * after the other, so their difference is meaningful. The times are not judged, since they depend
 * on the machine and the driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/seam/clock.h"
#include "engine/graph/cuda_kernels.h"
#include "tests/support/driver/caller.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != FIG_OK) {                                                                    \
            fprintf(stderr, "opening_bench: %s\n", fig_message());                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { ROUNDS = 5, LAYERS = 32 };

static fig_device device_of_environment(void) {
    const char *name = getenv("FIG_DEVICE");
    return name != NULL && strcmp(name, "cuda") == 0 ? FIG_DEVICE_CUDA : FIG_DEVICE_HOST;
}

static double ms_since(int64_t begin_ns) {
    return (double)(fig_clock_ns() - begin_ns) / 1e6;
}

/* Measures the driver's part: starting the driver, making the context, and loading a module with
 * one small kernel. */
static int open_driver(void) {
    static fig_cuda_kernels kernels;
    fig_cuda_gpu gpu = {0};
    const int64_t begin_ns = fig_clock_ns();
    if (device_of_environment() == FIG_DEVICE_CUDA) {
        TRY(fig_cuda_gpu_find(&gpu, 0, 0));
        TRY(fig_cuda_gpu_open(&gpu));
        TRY(fig_cuda_gpu_enter(&gpu));
        TRY(fig_cuda_kernels_try(&kernels, &gpu));
    }
    printf("%.2f\n", ms_since(begin_ns));
    return 0;
}

static fig_graphs *capture(void) {
    static const fig_bucket small = {1, 512};
    fig_spec spec = {.size = sizeof spec};
    fig_traits traits = {.size = sizeof traits};
    fig_program *program;
    fig_graphs *graphs;
    TRY(fig_spec_preset(&spec, "llama-3.1-8b"));
    TRY(fig_traits_named(&traits, "h200"));
    spec.layers = LAYERS;
    TRY(fig_program_create(&program, &spec));
    fig_program_decode_step(program);
    TRY(fig_program_finish(program));
    const fig_lower_options options = {
        .size = sizeof options, .traits = &traits, .buckets = &small, .bucket_count = 1};
    TRY(fig_graphs_lower(&graphs, program, &options));
    fig_program_destroy(program);
    return graphs;
}

static int open_engine(void) {
    static const int32_t length = 512;
    const fig_engine_options options = {.size = sizeof options, .device = device_of_environment()};
    fig_graphs *graphs = capture();
    fig_engine *engine;
    const int64_t begin_ns = fig_clock_ns();
    TRY(fig_engine_open(&engine, graphs, &options));
    const double opened_ms = ms_since(begin_ns);
    TRY(fig_caller_bind_all(engine, graphs));
    const double bound_ms = ms_since(begin_ns);
    TRY(fig_engine_prepare(engine, 1));
    const double prepared_ms = ms_since(begin_ns);
    TRY(fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &length)));
    TRY(fig_engine_wait(engine, -1));
    printf("%.2f,%.2f,%.2f,%.2f\n", ms_since(begin_ns), opened_ms, bound_ms - opened_ms,
           prepared_ms - bound_ms);
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
    return 0;
}

/* Runs a fresh process and reads its line, without the line's end. */
static void ask(const char *program, const char *what, char line[128]) {
    char command[4096];
    snprintf(command, sizeof command, "'%s' %s", program, what);
    FILE *other = popen(command, "r");
    if (other == NULL || fgets(line, 128, other) == NULL || pclose(other) != 0) {
        fprintf(stderr, "opening_bench: %s: no answer\n", command);
        exit(1);
    }
    line[strcspn(line, "\n")] = '\0';
}

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "driver") == 0) return open_driver();
    if (count > 1 && strcmp(words[1], "figraph") == 0) return open_engine();
    const int rounds = count > 1 ? atoi(words[1]) : ROUNDS;
    puts("driver_ms,first_step_ms,beyond_ms,open_ms,bind_ms,prepare_ms");
    for (int i = 0; i < rounds; i++) {
        char driver[128], own[128];
        ask(words[0], "driver", driver);
        ask(words[0], "figraph", own);
        char *parts = strchr(own, ',');
        printf("%s,%.2f,%.2f%s\n", driver, atof(own), atof(own) - atof(driver), parts);
    }
    return 0;
}
