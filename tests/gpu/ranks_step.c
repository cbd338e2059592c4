/* ranks_step.c: runs one rank of a step with collectives, on a GPU of its own, to test its results
 * and how it fails.
 *
 *     RANK=r WORLD_SIZE=n LOCAL_RANK=r MASTER_ADDR=127.0.0.1 MASTER_PORT=p FIG_SECRET=s
 *         build/release/tests/gpu/ranks_step [--steps N] [--leave N] [--stray N] [--timeout-ms N]
 *         [--routes N]
 *
 * Every rank runs N steps of a program with a sum, a sum with a norm, and a gather, and compares
 * the results with sums computed here. --leave: the number of steps after which the last rank exits
 * without notice. --stray: the step from which the last rank uses another bucket than the others.
 * --routes: a sum of FIG_ROUTE_*, 0: all. Prints one line. Exit: 0 if every number was right; 1 if
 * a number was wrong; 2 if a call failed. After a failed call, it prints the message, the duration
 * of the call and the duration of closing. FIG_DEVICE selects the device. A GPU is opened before
 * the ranks meet, since opening many at once takes seconds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/seam/clock.h"
#include "engine/driver/cuda_gpu.h"
#include "include/figraph_parallel.h"
#include "include/figraph_ranks.h"
#include "include/figraph_unstable.h"
#include "kernels/common/numeric.h"

enum { ROWS = 8, WIDTH = 4096, PART = 512, RANK_LIMIT = 8 };
enum { A, B, GATHERED, RESIDUAL, WEIGHT }; /* tensors, each with numbers of its own */
static const double EPSILON = 1e-5;

static fig_ranks_info who = {.size = sizeof who};
static int64_t last_ns; /* when the last call ended */
static int steps = 200, leave = -1, stray = -1, timeout_ms = 3000, routes;

static fig_ranks *ranks;
static fig_engine *engine;

/* Ends a rank after a failed call: prints the message and the duration of the call, closes
 * everything, and prints how long closing took. */
static void give_up(void) {
    printf("rank %d: %s after %.3f s\n", (int)who.rank, fig_message(),
           (double)(fig_clock_ns() - last_ns) / 1e9);
    last_ns = fig_clock_ns();
    fig_engine_close(engine);
    fig_ranks_close(ranks);
    printf("rank %d: closed after %.3f s\n", (int)who.rank,
           (double)(fig_clock_ns() - last_ns) / 1e9);
    fflush(stdout);
    _exit(2);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != FIG_OK) give_up();                                                           \
        last_ns = fig_clock_ns();                                                                  \
    } while (0)

static fig_tensor rows(fig_program *program, const char *name, int64_t width) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name,
                                                   .role = FIG_ROLE_BOUND, .dtype = FIG_BF16,
                                                   .rank = 2, .dims = {FIG_DIM_BATCH, width}));
}

static fig_graphs *lower(void) {
    static const fig_bucket buckets[] = {{2, 16}, {ROWS, 16}};
    fig_program *program;
    fig_graphs *graphs;
    fig_traits traits = {.size = sizeof traits};
    fig_rms_norm_op norm = {.size = sizeof norm, .epsilon = (float)EPSILON};
    TRY(fig_traits_named(&traits, "h200"));
    TRY(fig_program_create(
        &program, FIG_OPTIONS(fig_spec, .dtype = FIG_BF16, .batch_limit = ROWS, .kv_limit = 16)));
    norm.in = rows(program, "b", WIDTH);
    norm.out = rows(program, "normed", WIDTH);
    norm.residual = rows(program, "residual", WIDTH);
    norm.weight = fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = "weight",
                                                          .role = FIG_ROLE_BOUND, .dtype = FIG_BF16,
                                                          .rank = 1, .dims = {WIDTH}));
    fig_all_reduce(program, FIG_OPTIONS(fig_all_reduce_op, .in = rows(program, "a", WIDTH),
                                        .out = rows(program, "sum", WIDTH)));
    fig_all_reduce_add_rms_norm(program, &norm);
    fig_all_gather(program, FIG_OPTIONS(fig_all_gather_op, .in = rows(program, "part", PART),
                                        .out = rows(program, "all", who.count * PART)));
    TRY(fig_program_finish(program));
    TRY(fig_graphs_lower(
        &graphs, program,
        FIG_OPTIONS(fig_lower_options, .traits = &traits, .buckets = buckets, .bucket_count = 2)));
    fig_program_destroy(program);
    return graphs;
}

static uint16_t number_of(int32_t rank, int tensor, int i, int step) {
    return fig_numeric_bf16((float)((rank * 13 + tensor * 5 + i * 3 + step * 7) % 41) - 20.0f);
}

static void put(const char *name, int32_t rank, int tensor, int count, int step) {
    static uint16_t numbers[ROWS * WIDTH];
    for (int i = 0; i < count; i++)
        numbers[i] = number_of(rank, tensor, i, step);
    TRY(fig_engine_write(engine, FIG_OPTIONS(fig_span, .name = name, .bytes = (uint64_t)count * 2),
                         numbers));
}

/* The residual and the weights are the same on all ranks. */
static void put_all(int step) {
    put("a", who.rank, A, ROWS * WIDTH, step);
    put("b", who.rank, B, ROWS * WIDTH, step);
    put("residual", 0, RESIDUAL, ROWS * WIDTH, step);
    put("weight", 0, WEIGHT, WIDTH, step);
    put("part", who.rank, GATHERED, ROWS * PART, step);
}

static void get(const char *name, int width, uint16_t *to) {
    TRY(fig_engine_read(
        engine, FIG_OPTIONS(fig_span, .name = name, .bytes = (uint64_t)ROWS * (uint64_t)width * 2),
        to));
}

static float sum_of(int tensor, int i, int step) {
    float sum = fig_numeric_of_bf16(number_of(0, tensor, i, step));
    for (int32_t r = 1; r < who.count; r++)
        sum += fig_numeric_of_bf16(number_of(r, tensor, i, step));
    return fig_numeric_of_bf16(fig_numeric_bf16(sum));
}

/* Checks a row of the residual, which must be exact, and a row of the norm, which may be off by one
 * unit in the last place. */
static int check_norm(int row, int step, const uint16_t *residual, const uint16_t *normed) {
    static float x[WIDTH];
    double squares = 0;
    for (int i = 0; i < WIDTH; i++) {
        const int at = row * WIDTH + i;
        const float before = fig_numeric_of_bf16(number_of(0, RESIDUAL, at, step));
        x[i] = fig_numeric_of_bf16(fig_numeric_bf16(before + sum_of(B, at, step)));
        if (residual[at] != fig_numeric_bf16(x[i])) return 0;
        squares += (double)x[i] * (double)x[i];
    }
    for (int i = 0; i < WIDTH; i++) {
        const double weight = (double)fig_numeric_of_bf16(number_of(0, WEIGHT, i, step));
        const double want = (double)x[i] / sqrt(squares / WIDTH + EPSILON) * weight;
        if (abs((int)normed[row * WIDTH + i] - (int)fig_numeric_bf16((float)want)) > 1) return 0;
    }
    return 1;
}

static int check(int step) {
    static uint16_t sum[ROWS * WIDTH], all[ROWS * PART * RANK_LIMIT];
    static uint16_t residual[ROWS * WIDTH], normed[ROWS * WIDTH];
    get("sum", WIDTH, sum);
    get("all", who.count * PART, all);
    get("residual", WIDTH, residual);
    get("normed", WIDTH, normed);
    for (int i = 0; i < ROWS * WIDTH; i++)
        if (sum[i] != fig_numeric_bf16(sum_of(A, i, step))) return 0;
    for (int row = 0; row < ROWS; row++)
        if (!check_norm(row, step, residual, normed)) return 0;
    for (int i = 0; i < ROWS * PART * who.count; i++) {
        const int row = i / (who.count * PART), column = i % (who.count * PART);
        if (all[i] != number_of(column / PART, GATHERED, row * PART + column % PART, step))
            return 0;
    }
    return 1;
}

static void bind_all(const fig_graphs *graphs) {
    fig_tensor_info info = {.size = sizeof info};
    for (int32_t i = 0; fig_graphs_tensor(graphs, i, &info) == FIG_OK; i++)
        TRY(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = info.name)));
}

static int run(void) {
    static const int32_t lengths[ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};
    const int is_last = who.rank == who.count - 1;
    for (int n = 0; n < steps; n++) {
        const int strays = is_last && stray >= 0 && n >= stray;
        if (is_last && n == leave) _exit(0);
        put_all(n);
        TRY(fig_engine_step(
            engine, FIG_OPTIONS(fig_step, .rows = strays ? 2 : ROWS, .kv_lengths = lengths)));
        TRY(fig_engine_wait(engine, 30000000));
        if (!check(n)) {
            printf("rank %d: step %d: a number is wrong\n", (int)who.rank, n);
            return 1;
        }
    }
    printf("rank %d of %d: %d steps, every number right\n", (int)who.rank, (int)who.count, steps);
    return 0;
}

static void begin_gpu(void) {
    const char *local_rank = getenv("LOCAL_RANK");
    fig_cuda_gpu gpu;
    TRY(fig_cuda_gpu_find(&gpu, local_rank != NULL ? atoi(local_rank) : 0, 0));
    TRY(fig_cuda_gpu_open(&gpu)); /* stays open until the process ends */
}

int main(int argc, char **argv) {
    const char *device = getenv("FIG_DEVICE");
    const int on_host = device == NULL || strcmp(device, "cuda") != 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--steps") == 0) steps = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--leave") == 0) leave = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--stray") == 0) stray = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--routes") == 0) routes = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--timeout-ms") == 0) timeout_ms = atoi(argv[i + 1]);
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that printed lines are not lost if the rank is killed */
    last_ns = fig_clock_ns();
    if (!on_host) begin_gpu();
    TRY(fig_ranks_open(&ranks,
                       FIG_OPTIONS(fig_ranks_options, .timeout_us = (int64_t)timeout_ms * 1000)));
    TRY(fig_ranks_read_info(ranks, &who));
    fig_graphs *graphs = lower();
    TRY(fig_engine_open(
        &engine, graphs,
        FIG_OPTIONS(fig_engine_options, .device = on_host ? FIG_DEVICE_HOST : FIG_DEVICE_CUDA,
                    .ordinal = on_host ? 0 : who.local_rank, .ranks = ranks,
                    .test = FIG_OPTIONS(fig_test_options, .routes = (uint32_t)routes))));
    bind_all(graphs);
    const int wrong = run();
    fig_engine_close(engine);
    fig_ranks_close(ranks);
    fig_graphs_destroy(graphs);
    return wrong;
}
