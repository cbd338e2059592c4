/* ranks_soak.c: runs ranks that sum, normalise and gather over and over, for a given time.
 *
 *     build/release/tests/gpu/ranks_soak [--ranks N] [--seconds N] [--steps N] [--routes N]
 *                                        [--seed N]
 *
 * Ranks are threads, each with a GPU of its own: one for each GPU, or two on the host if FIG_DEVICE
 * says so. The number of rows changes with every step, and ranks are delayed at random. Each step
 * continues with the results of the step before: each rank normalises its numbers with its own
 * weights, and the ranks' numbers are summed. So if a rank reads a word too early, or reads a stale
 * word of an earlier step, the error stays in its numbers, and the comparison of all ranks' bits at
 * regular intervals finds it. --routes: the routes to use, a sum of FIG_ROUTE_*; 0: the library
 * chooses. Prints one line and the verdict. Exit: 0 if all agreed, 1 if ranks differed, 2 if a call
 * failed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/seam/clock.h"
#include "engine/driver/cuda_gpu.h"
#include "include/figraph_parallel.h"
#include "include/figraph_ranks.h"
#include "include/figraph_unstable.h"
#include "kernels/common/numeric.h"
#include "tests/support/random.h"

enum {
    RANK_LIMIT = 8,
    ROWS = 64,
    WIDTH = 1024,
    PART = 128, /* columns that each rank contributes to a gather */
    ROUNDS = 3, /* how often a step repeats norm, sum, norm, sum with norm, gather */
    BURST = 200 /* steps between two comparisons; each series begins with the same numbers */
};

static int32_t count;
static int64_t seconds = 4, step_limit, seed = 1, routes;
static int on_host;
static pthread_barrier_t barrier;
static int ends, differs; /* rank 0 sets them between two barriers */

typedef struct rank {
    int32_t rank;
    pthread_t thread;
    fig_ranks *group;
    fig_engine *engine;
    fig_random random; /* decides when the rank is delayed */
    int64_t steps;
    uint16_t residual[ROWS * WIDTH], sum[ROWS * WIDTH], all[ROWS * PART * RANK_LIMIT];
} rank;
static rank ranks[RANK_LIMIT];
static int32_t lengths[ROWS]; /* all are 1 */

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != FIG_OK) {                                                                    \
            printf("ranks_soak: line %d: %s\n", __LINE__, fig_message());                          \
            fflush(stdout);                                                                        \
            _exit(2);                                                                              \
        }                                                                                          \
    } while (0)

/* ---- The program --------------------------------------------------------------------------- */

static fig_tensor rows(fig_program *program, const char *name, int64_t width) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name,
                                                   .role = FIG_ROLE_BOUND, .dtype = FIG_BF16,
                                                   .rank = 2, .dims = {FIG_DIM_BATCH, width}));
}

static fig_tensor weights(fig_program *program, const char *name) {
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_BF16, .rank = 1, .dims = {WIDTH}));
}

static void record(fig_program *program) {
    const fig_tensor x = rows(program, "x", WIDTH), y = rows(program, "y", WIDTH);
    const fig_tensor sum = rows(program, "sum", WIDTH), own = weights(program, "own");
    const fig_rms_norm_op spread = {.size = sizeof spread, .in = x, .weight = own, .out = y};
    const fig_rms_norm_op again = {.size = sizeof again, .in = sum, .weight = own, .out = y};
    const fig_rms_norm_op merge = {.size = sizeof merge,
                                   .in = y,
                                   .weight = weights(program, "common"),
                                   .residual = rows(program, "residual", WIDTH),
                                   .out = x};
    const fig_all_reduce_op add = {.size = sizeof add, .in = y, .out = sum};
    const fig_all_gather_op gather = {.size = sizeof gather,
                                      .in = rows(program, "part", PART),
                                      .out = rows(program, "all", count * PART)};
    for (int i = 0; i < ROUNDS; i++) {
        fig_rms_norm(program, &spread);
        fig_all_reduce(program, &add);
        fig_rms_norm(program, &again);
        fig_all_reduce_add_rms_norm(program, &merge);
        fig_all_gather(program, &gather);
    }
}

static fig_graphs *lower(void) {
    static const fig_bucket buckets[] = {{1, 16}, {4, 16}, {16, 16}, {ROWS, 16}};
    fig_traits traits = {.size = sizeof traits};
    fig_program *program;
    fig_graphs *graphs;
    TRY(fig_traits_named(&traits, "h200"));
    TRY(fig_program_create(
        &program, FIG_OPTIONS(fig_spec, .dtype = FIG_BF16, .batch_limit = ROWS, .kv_limit = 16)));
    record(program);
    TRY(fig_program_finish(program));
    TRY(fig_graphs_lower(
        &graphs, program,
        FIG_OPTIONS(fig_lower_options, .traits = &traits, .buckets = buckets, .bucket_count = 4)));
    fig_program_destroy(program);
    return graphs;
}

/* ---- One rank ------------------------------------------------------------------------------ */

static void put(rank *r, const char *name, int32_t numbers, uint32_t salt) {
    static _Thread_local uint16_t values[ROWS * WIDTH];
    fig_random random = fig_random_seed((uint64_t)seed * 977 + salt);
    for (int32_t i = 0; i < numbers; i++)
        values[i] = fig_numeric_bf16((float)fig_random_range(&random, -200, 200) / 64);
    TRY(fig_engine_write(
        r->engine, FIG_OPTIONS(fig_span, .name = name, .bytes = (uint64_t)numbers * 2), values));
}

static void get(rank *r, const char *name, int32_t numbers, uint16_t *to) {
    TRY(fig_engine_read(r->engine,
                        FIG_OPTIONS(fig_span, .name = name, .bytes = (uint64_t)numbers * 2), to));
}

static void open_engine(rank *r, const fig_graphs *graphs) {
    fig_tensor_info info = {.size = sizeof info};
    TRY(fig_engine_open(
        &r->engine, graphs,
        FIG_OPTIONS(fig_engine_options, .device = on_host ? FIG_DEVICE_HOST : FIG_DEVICE_CUDA,
                    .ordinal = on_host ? 0 : r->rank, .slots = 16, .busy_us = 20000000,
                    .numa_node = -1, .ranks = r->group,
                    .test = FIG_OPTIONS(fig_test_options, .routes = (uint32_t)routes))));
    for (int32_t i = 0; fig_graphs_tensor(graphs, i, &info) == FIG_OK; i++)
        TRY(fig_engine_bind(r->engine, FIG_OPTIONS(fig_binding, .name = info.name)));
    put(r, "own", WIDTH, 100 + (uint32_t)r->rank);
    put(r, "common", WIDTH, 3);
    r->random = fig_random_seed((uint64_t)seed * 31 + (uint64_t)r->rank);
}

/* The numbers of rows are the same on all ranks; the delays are not. */
static void run_burst(rank *r, fig_random *both) {
    put(r, "x", ROWS * WIDTH, 1);
    put(r, "residual", ROWS * WIDTH, 2);
    put(r, "part", ROWS * PART, 200 + (uint32_t)r->rank + (uint32_t)r->steps);
    for (int i = 0; i < BURST; i++, r->steps++) {
        const int32_t most = 1 << fig_random_range(both, 0, 6);
        const struct timespec late = {0, fig_random_range(&r->random, 0, 60000)};
        if (fig_random_range(&r->random, 0, 7) == 0) nanosleep(&late, NULL);
        TRY(fig_engine_step(r->engine,
                            FIG_OPTIONS(fig_step, .rows = (int32_t)fig_random_range(both, 1, most),
                                        .kv_lengths = lengths)));
    }
    TRY(fig_engine_wait(r->engine, 20000000));
    get(r, "residual", ROWS * WIDTH, r->residual);
    get(r, "sum", ROWS * WIDTH, r->sum);
    get(r, "all", ROWS * PART * count, r->all);
}

/* Rank 0 calls this while the others wait. */
static void compare(void) {
    const rank *first = &ranks[0];
    for (int32_t i = 1; i < count && !differs; i++) {
        const rank *other = &ranks[i];
        const int sums = memcmp(first->sum, other->sum, sizeof first->sum) != 0;
        const int gathers = memcmp(first->all, other->all, sizeof first->all) != 0;
        if (!sums && !gathers &&
            memcmp(first->residual, other->residual, sizeof first->residual) == 0)
            continue;
        printf("ranks_soak: %s of ranks 0 and %d differ by step %lld\n",
               sums      ? "sums"
               : gathers ? "what was gathered"
                         : "residuals",
               (int)i, (long long)first->steps);
        differs = 1;
    }
}

static void *run_rank(void *user) {
    rank *r = user;
    const int64_t until_ns = fig_clock_ns() + seconds * 1000000000;
    fig_graphs *graphs = lower();
    fig_random both = fig_random_seed((uint64_t)seed);
    open_engine(r, graphs);
    while (!ends) {
        run_burst(r, &both);
        pthread_barrier_wait(&barrier);
        if (r->rank == 0) {
            compare();
            ends =
                differs || (step_limit > 0 ? r->steps >= step_limit : fig_clock_ns() >= until_ns);
        }
        pthread_barrier_wait(&barrier);
    }
    fig_engine_close(r->engine);
    fig_graphs_destroy(graphs);
    return NULL;
}

/* ---- All ranks ----------------------------------------------------------------------------- */

static int32_t count_gpus(void) {
    int gpus = 0;
    TRY(fig_cuda_gpu_count(&gpus));
    return gpus < RANK_LIMIT ? gpus : RANK_LIMIT;
}

static void read_options(int argc, char **argv) {
    const char *device = getenv("FIG_DEVICE");
    on_host = device == NULL || strcmp(device, "cuda") != 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        const long long value = atoll(argv[i + 1]);
        if (strcmp(argv[i], "--ranks") == 0) count = (int32_t)value;
        if (strcmp(argv[i], "--seconds") == 0) seconds = value;
        if (strcmp(argv[i], "--steps") == 0) step_limit = value;
        if (strcmp(argv[i], "--routes") == 0) routes = value;
        if (strcmp(argv[i], "--seed") == 0) seed = value;
    }
    if (count < 1 || count > RANK_LIMIT) count = on_host ? 2 : count_gpus();
}

int main(int argc, char **argv) {
    fig_ranks *groups[RANK_LIMIT];
    read_options(argc, argv);
    for (int32_t i = 0; i < ROWS; i++)
        lengths[i] = 1;
    TRY(fig_ranks_open_local(groups, count,
                             FIG_OPTIONS(fig_ranks_options, .timeout_us = 10000000)));
    pthread_barrier_init(&barrier, NULL, (unsigned)count);
    const int64_t begin_ns = fig_clock_ns();
    for (int32_t i = 0; i < count; i++) {
        ranks[i].rank = i;
        ranks[i].group = groups[i];
        pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
    }
    for (int32_t i = 0; i < count; i++)
        pthread_join(ranks[i].thread, NULL);
    for (int32_t i = 0; i < count; i++)
        fig_ranks_close(groups[i]);
    printf("ranks: %d ranks, routes %lld, seed %lld: %lld steps of %d collectives in %.1f s: %s\n",
           (int)count, (long long)routes, (long long)seed, (long long)ranks[0].steps, 3 * ROUNDS,
           (double)(fig_clock_ns() - begin_ns) / 1e9,
           differs ? "RANKS DIFFER" : "the same bits everywhere");
    /* tests/run counts these lines */
    printf("[  %s  ] 1 test(s).\n", differs ? "FAILED" : "PASSED");
    return differs;
}
