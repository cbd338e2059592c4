/* layer_bench.c: builds engine steps of several layers, for benches that run on a GPU. */
#include "tests/support/steps/layer_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "engine/seam/clock.h"
#include "tests/support/driver/gpu_caller.h"
#include "tests/support/place.h"
#include "tests/support/random.h"
#include "tools/figraph/truth/truth_attention.h"

enum {
    ROUNDS = FIG_LAYER_BENCH_ROUNDS,
    PAGE = FIG_LAYER_BENCH_PAGE,
    Q_HEADS = FIG_LAYER_BENCH_Q_HEADS,
    KV_HEADS = FIG_LAYER_BENCH_KV_HEADS,
    HEAD_DIM = FIG_LAYER_BENCH_HEAD_DIM,
    HANG_S = FIG_LAYER_BENCH_HANG_S,
    PIECE_BYTES = 1 << 24 /* bytes of random numbers, which caches repeat */
};

int32_t fig_layer_bench_steps_asked(int *argc, char ***argv, int32_t usual) {
    if (*argc < 3 || strcmp((*argv)[1], "--steps") != 0) return usual;
    const int32_t steps = atoi((*argv)[2]);
    *argc -= 2;
    *argv += 2;
    return steps > 0 ? steps : usual;
}

void *fig_layer_bench_allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (memory == NULL) fail_msg("%zu bytes", bytes);
    return memory;
}

int32_t *fig_layer_bench_order(const fig_layer_bench *b) {
    fig_random random = fig_random_seed(11);
    int32_t *order = fig_layer_bench_allocate((size_t)b->pages * sizeof *order);
    for (int32_t i = 0; i < b->pages; i++) {
        const int32_t j = fig_random_range(&random, 0, i);
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

int32_t fig_layer_bench_pages(int32_t tokens) {
    return (tokens + FIG_LAYER_BENCH_PAGE - 1) / FIG_LAYER_BENCH_PAGE;
}

const int32_t *fig_layer_bench_lend(fig_engine *engine, int32_t row, int32_t tokens,
                                    const int32_t *next) {
    const int32_t count = fig_layer_bench_pages(tokens);
    OK(fig_engine_set_pages(
        engine, FIG_OPTIONS(fig_pages, .sequence = row, .count = count, .pages = next)));
    return next + count;
}

/* Draws normally distributed numbers from a small table. */
static void fill(uint16_t *to, size_t count, fig_random *random) {
    static uint16_t numbers[4096];
    if (numbers[0] == 0)
        for (int i = 0; i < 4096; i++)
            truth_store(numbers, FIG_BF16, i, fig_random_normal(random) + 1e-3f);
    for (size_t i = 0; i < count; i++)
        to[i] = numbers[fig_random_bits(random) & 4095];
}

/* ---- The program ----------------------------------------------------------------------------- */

static fig_tensor declare(fig_program *program, const char *name, int32_t heads) {
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_BF16, .rank = 3,
                                          .dims = {FIG_DIM_QUERIES, heads, HEAD_DIM}));
}

static fig_tensor declare_cache(fig_program *program, const char *name, int32_t layer) {
    char full[32];
    snprintf(full, sizeof full, "%s.%d", name, (int)layer);
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = full, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_BF16, .rank = 4,
                                          .dims = {FIG_DIM_PAGES, PAGE, KV_HEADS, HEAD_DIM}));
}

static void read_on_device(fig_program *program, const fig_layer_bench *b) {
    if (!b->on_device) return;
    const fig_tensor lengths = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "lengths", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32, .rank = 1, .dims = {FIG_DIM_BATCH}));
    const fig_tensor starts = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "query_starts", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32, .rank = 1, .dims = {b->rows + 1}));
    fig_program_read_queries(program, lengths, (fig_tensor){0}, starts);
}

static void record(fig_program *program, const fig_layer_bench *b) {
    read_on_device(program, b);
    const fig_tensor q = declare(program, "q", Q_HEADS), out = declare(program, "out", Q_HEADS);
    fig_tensor k = {0}, v = {0};
    if (!b->only_reads) {
        k = declare(program, "k", KV_HEADS);
        v = declare(program, "v", KV_HEADS);
    }
    const fig_tensor table = fig_program_tensor(
        program,
        FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE, .dtype = FIG_I32,
                    .rank = 2, .dims = {b->rows, (b->kv_limit + PAGE - 1) / PAGE}));
    for (int32_t layer = 0; layer < b->layers; layer++) {
        const fig_cache cache = {.k = declare_cache(program, "k_cache", layer),
                                 .v = declare_cache(program, "v_cache", layer),
                                 .page_table = table};
        if (!b->only_reads)
            fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = cache));
        fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    }
}

fig_graphs *fig_layer_bench_lower(const fig_layer_bench *b) {
    const fig_bucket bucket = {b->rows, b->kv_limit};
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = Q_HEADS,
                           .kv_heads = KV_HEADS,
                           .head_dim = HEAD_DIM,
                           .page_size = PAGE,
                           .batch_limit = b->rows,
                           .kv_limit = b->kv_limit,
                           .row_tokens = b->row_tokens,
                           .query_limit = b->tokens};
    const fig_lower_options how = {.size = sizeof how,
                                   .traits = b->traits != NULL ? b->traits : fig_place_traits(),
                                   .buckets = &bucket,
                                   .bucket_count = 1};
    fig_program *program;
    fig_graphs *graphs;
    OK(fig_program_create(&program, &spec));
    record(program, b);
    OK(fig_program_finish(program));
    OK(fig_graphs_lower(&graphs, program, &how));
    fig_program_destroy(program);
    return graphs;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Binds a tensor to memory of the engine, and repeats random numbers there. */
static void bind(fig_engine *engine, const char *name, uint64_t bytes) {
    static uint16_t *numbers;
    fig_random random = fig_random_seed(5);
    if (numbers == NULL) {
        numbers = fig_layer_bench_allocate(PIECE_BYTES);
        fill(numbers, PIECE_BYTES / 2, &random);
    }
    OK(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = name, .bytes = bytes)));
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        const uint64_t left = bytes - at;
        OK(fig_engine_write(engine,
                            FIG_OPTIONS(fig_span, .name = name, .offset = at,
                                        .bytes = left < PIECE_BYTES ? left : PIECE_BYTES),
                            numbers));
    }
}

void fig_layer_bench_bind(const fig_layer_bench *b, fig_engine *engine) {
    const uint64_t row = (uint64_t)HEAD_DIM * 2, tokens = (uint64_t)b->tokens;
    bind(engine, "q", tokens * Q_HEADS * row);
    bind(engine, "out", tokens * Q_HEADS * row);
    if (!b->only_reads) {
        bind(engine, "k", tokens * KV_HEADS * row);
        bind(engine, "v", tokens * KV_HEADS * row);
    }
    if (b->on_device) bind(engine, "lengths", (uint64_t)b->rows * sizeof(int32_t));
    if (b->on_device) bind(engine, "query_starts", ((uint64_t)b->rows + 1) * sizeof(int32_t));
    for (int32_t layer = 0; layer < 2 * b->layers; layer++) {
        char name[32];
        snprintf(name, sizeof name, "%c_cache.%d", layer % 2 ? 'v' : 'k', (int)layer / 2);
        bind(engine, name, (uint64_t)b->pages * PAGE * FIG_LAYER_BENCH_TOKEN_BYTES);
    }
}

uint64_t fig_layer_bench_out_bytes(const fig_layer_bench *b) {
    return (uint64_t)b->tokens * Q_HEADS * HEAD_DIM * 2;
}

/* ---- Times ----------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the microseconds of a series of steps; on the host, of one step for each of them. */
static double time_series(fig_engine *engine, int32_t count, fig_layer_bench_steps steps,
                          void *of) {
    fig_cu_event from = NULL, to = NULL;
    float ms = 0;
    alarm(HANG_S);
    if (fig_place_device() == FIG_DEVICE_HOST) {
        const int64_t begin_ns = fig_clock_ns();
        steps(of, 1);
        OK(fig_engine_wait(engine, FIG_LAYER_BENCH_WAIT_US));
        return (double)(fig_clock_ns() - begin_ns) / 1e3 * count;
    }
    CU(EventCreate, &from, 0);
    CU(EventCreate, &to, 0);
    CU(EventRecord, from, fig_gpu_caller.stream);
    steps(of, count);
    CU(EventRecord, to, fig_gpu_caller.stream);
    CU(EventSynchronize, to);
    CU(EventElapsedTime, &ms, from, to);
    CU(EventDestroy, from);
    CU(EventDestroy, to);
    return (double)ms * 1e3;
}

double fig_layer_bench_time(const fig_layer_bench *b, fig_engine *engine, int32_t count,
                            fig_layer_bench_steps steps, void *of) {
    double times[ROUNDS];
    steps(of, 1);
    OK(fig_engine_wait(engine, FIG_LAYER_BENCH_WAIT_US));
    for (int32_t i = 0; i < ROUNDS; i++)
        times[i] = time_series(engine, count, steps, of) / count / b->layers;
    alarm(HANG_S);
    qsort(times, ROUNDS, sizeof times[0], by_size);
    OK(fig_engine_wait(engine, FIG_LAYER_BENCH_WAIT_US));
    return times[ROUNDS / 2];
}
