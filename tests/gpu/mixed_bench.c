/* mixed_bench.c: times engine steps that hold a chunk of a prompt beside rows of one query token.
 *
 *     build/release/tests/gpu/mixed_bench [SECONDS]      default 180
 *
 * No cell begins after SECONDS. A step appends the tokens of all rows and computes attention, in
 * several layers, whose caches together exceed 300 MB. Pages lie in random order. Prints CSV: for
 * each cell, the microseconds of a layer in a step with the single tokens alone, with the chunk
 * alone, and with both; both divided by the sum of the two; and the rms difference of the chunk in
 * both from that alone, relative to the rms of the values. A time is the median of seven series
 * of steps, divided by steps and layers. The program does not judge the times. It exits with 1 if
 * the results differ by more than rounding. SIGALRM ends the program if a step hangs.
 * FIG_DEVICE=host runs one small cell. */
#include <math.h>
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
    ROUNDS = 7,
    STEPS = 16,
    LAYERS = 8,
    PAGE = 16,
    Q_HEADS = 32,
    KV_HEADS = 8,
    HEAD_DIM = 128,
    TOKEN_BYTES = KV_HEADS * HEAD_DIM * 2, /* bytes of K, or of V, of a token */
    ROW_LIMIT = 130,
    PIECE_BYTES = 1 << 24, /* bytes of random numbers, which caches repeat */
    HANG_S = 60,
    WAIT_US = 60000000
};
#define ERROR_LIMIT 0.004

/* Row 0 has `queries` query tokens, and its last one sees `length` tokens. Behind it are `singles`
 * rows of one query token, over `single_length` tokens. */
typedef struct cell {
    int32_t queries, length, singles, single_length;
} cell;

static const cell cells[] = {
    {2048, 8192, 64, 2048}, {512, 8192, 128, 1024}, {256, 4096, 64, 4096}, {512, 2048, 32, 8192}};
static const cell small = {40, 200, 3, 50};

/* What a step holds. */
enum { SINGLES, CHUNK, BOTH, KINDS };

typedef struct bench {
    cell c;
    int32_t rows, tokens, layers, pages;
    int32_t *order; /* [pages] in random order */
    fig_graphs *graphs;
    fig_engine *engine;
    uint16_t *out[KINDS]; /* [tokens][Q_HEADS][HEAD_DIM] the results of the last layer */
    double us[KINDS];
} bench;

static int is_host(void) {
    return fig_place_device() == FIG_DEVICE_HOST;
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (memory == NULL) fail_msg("%zu bytes", bytes);
    return memory;
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

static int32_t pages_of(int32_t tokens) {
    return (tokens + PAGE - 1) / PAGE;
}

static int32_t longest(const bench *b) {
    return b->c.length > b->c.single_length ? b->c.length : b->c.single_length;
}

static void record(fig_program *program, const bench *b) {
    const fig_tensor q = declare(program, "q", Q_HEADS), out = declare(program, "out", Q_HEADS);
    const fig_tensor k = declare(program, "k", KV_HEADS), v = declare(program, "v", KV_HEADS);
    const fig_tensor table = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE,
                             .dtype = FIG_I32, .rank = 2, .dims = {b->rows, pages_of(longest(b))}));
    for (int32_t layer = 0; layer < b->layers; layer++) {
        const fig_cache cache = {.k = declare_cache(program, "k_cache", layer),
                                 .v = declare_cache(program, "v_cache", layer),
                                 .page_table = table};
        fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = cache));
        fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    }
}

static void lower(bench *b) {
    const fig_bucket bucket = {b->rows, longest(b)};
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = Q_HEADS,
                           .kv_heads = KV_HEADS,
                           .head_dim = HEAD_DIM,
                           .page_size = PAGE,
                           .batch_limit = b->rows,
                           .kv_limit = longest(b),
                           .row_tokens = b->c.queries,
                           .query_limit = b->tokens};
    const fig_lower_options how = {
        .size = sizeof how, .traits = fig_place_traits(), .buckets = &bucket, .bucket_count = 1};
    fig_program *program;
    OK(fig_program_create(&program, &spec));
    record(program, b);
    OK(fig_program_finish(program));
    OK(fig_graphs_lower(&b->graphs, program, &how));
    fig_program_destroy(program);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Binds a tensor to memory of the engine, and repeats random numbers there. */
static void bind(const bench *b, const char *name, uint64_t bytes) {
    static uint16_t *numbers;
    fig_random random = fig_random_seed(5);
    if (numbers == NULL) {
        numbers = allocate(PIECE_BYTES);
        fill(numbers, PIECE_BYTES / 2, &random);
    }
    OK(fig_engine_bind(b->engine, FIG_OPTIONS(fig_binding, .name = name, .bytes = bytes)));
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        const uint64_t left = bytes - at;
        OK(fig_engine_write(b->engine,
                            FIG_OPTIONS(fig_span, .name = name, .offset = at,
                                        .bytes = left < PIECE_BYTES ? left : PIECE_BYTES),
                            numbers));
    }
}

static void bind_all(const bench *b) {
    const uint64_t row = (uint64_t)HEAD_DIM * 2, tokens = (uint64_t)b->tokens;
    bind(b, "q", tokens * Q_HEADS * row);
    bind(b, "out", tokens * Q_HEADS * row);
    bind(b, "k", tokens * KV_HEADS * row);
    bind(b, "v", tokens * KV_HEADS * row);
    for (int32_t layer = 0; layer < 2 * b->layers; layer++) {
        char name[32];
        snprintf(name, sizeof name, "%c_cache.%d", layer % 2 ? 'v' : 'k', (int)layer / 2);
        bind(b, name, (uint64_t)b->pages * PAGE * TOKEN_BYTES);
    }
}

static void set_pages(const bench *b) {
    const int32_t *next = b->order;
    for (int32_t row = 0; row < b->rows; row++) {
        const int32_t count = pages_of(row > 0 ? b->c.single_length : b->c.length);
        OK(fig_engine_set_pages(
            b->engine, FIG_OPTIONS(fig_pages, .sequence = row, .count = count, .pages = next)));
        next += count;
    }
}

static void open_cell(bench *b) {
    fig_random random = fig_random_seed(11);
    b->rows = b->c.singles + 1;
    b->tokens = b->c.queries + b->c.singles;
    b->pages = pages_of(b->c.length) + b->c.singles * pages_of(b->c.single_length);
    b->layers = is_host() ? 1 : LAYERS;
    b->order = allocate((size_t)b->pages * sizeof *b->order);
    for (int32_t i = 0; i < b->pages; i++) {
        const int32_t j = fig_random_range(&random, 0, i);
        b->order[i] = b->order[j];
        b->order[j] = i;
    }
    lower(b);
    fig_engine_options options = fig_place_options();
    void *const stream = fig_gpu_caller.stream;
    if (!is_host()) options.stream = &stream;
    OK(fig_engine_open(&b->engine, b->graphs, &options));
    bind_all(b);
    set_pages(b);
    for (int kind = 0; kind < KINDS; kind++)
        b->out[kind] = allocate((size_t)b->tokens * Q_HEADS * HEAD_DIM * 2);
}

static void close_cell(bench *b) {
    for (int kind = 0; kind < KINDS; kind++)
        free(b->out[kind]);
    fig_engine_close(b->engine);
    fig_graphs_destroy(b->graphs);
    free(b->order);
}

/* ---- Times ----------------------------------------------------------------------------------- */

/* A row that is not part of the step is idle. */
static void run_steps(const bench *b, int kind, int32_t count) {
    int32_t lengths[ROW_LIMIT] = {0}, counts[ROW_LIMIT] = {0};
    if (kind != SINGLES) {
        lengths[0] = b->c.length;
        counts[0] = b->c.queries;
    }
    for (int32_t row = 1; row < b->rows && kind != CHUNK; row++) {
        lengths[row] = b->c.single_length;
        counts[row] = 1;
    }
    for (int32_t n = 0; n < count; n++) {
        fig_status status;
        do
            status = fig_engine_step(b->engine,
                                     FIG_OPTIONS(fig_step, .rows = b->rows, .kv_lengths = lengths,
                                                 .query_counts = counts));
        while (status == FIG_BUSY);
        OK(status);
    }
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the microseconds of a series of steps. */
static double time_series(const bench *b, int kind) {
    fig_cu_event from = NULL, to = NULL;
    float ms = 0;
    alarm(HANG_S);
    if (is_host()) {
        const int64_t begin_ns = fig_clock_ns();
        run_steps(b, kind, 1);
        OK(fig_engine_wait(b->engine, WAIT_US));
        return (double)(fig_clock_ns() - begin_ns) / 1e3 * STEPS;
    }
    CU(EventCreate, &from, 0);
    CU(EventCreate, &to, 0);
    CU(EventRecord, from, fig_gpu_caller.stream);
    run_steps(b, kind, STEPS);
    CU(EventRecord, to, fig_gpu_caller.stream);
    CU(EventSynchronize, to);
    CU(EventElapsedTime, &ms, from, to);
    CU(EventDestroy, from);
    CU(EventDestroy, to);
    return (double)ms * 1e3;
}

static void time_kind(bench *b, int kind) {
    const size_t bytes = (size_t)b->tokens * Q_HEADS * HEAD_DIM * 2;
    double times[ROUNDS];
    run_steps(b, kind, 1);
    OK(fig_engine_wait(b->engine, WAIT_US));
    for (int32_t i = 0; i < ROUNDS; i++)
        times[i] = time_series(b, kind) / STEPS / b->layers;
    alarm(HANG_S);
    qsort(times, ROUNDS, sizeof times[0], by_size);
    b->us[kind] = times[ROUNDS / 2];
    OK(fig_engine_wait(b->engine, WAIT_US));
    OK(fig_engine_read(b->engine, FIG_OPTIONS(fig_span, .name = "out", .bytes = bytes),
                       b->out[kind]));
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Compares the rows of a step with those of the step that held both. A step's query tokens are
 * packed, so those of single rows come first if there is no chunk, and have other queries then. */
static double difference_of(const bench *b) {
    const int64_t count = (int64_t)b->c.queries * Q_HEADS * HEAD_DIM;
    double squares = 0, values = 0;
    for (int64_t i = 0; i < count; i++) {
        const double alone = truth_load(b->out[CHUNK], FIG_BF16, i);
        const double off = truth_load(b->out[BOTH], FIG_BF16, i) - alone;
        squares += off * off;
        values += alone * alone;
    }
    return sqrt(squares / values);
}

/* Runs a cell and prints it; returns 1 if its results are wrong. */
static int run_cell(const cell *c) {
    static bench b; /* too large for the stack */
    b = (bench){.c = *c};
    alarm(HANG_S);
    open_cell(&b);
    for (int kind = 0; kind < KINDS; kind++)
        time_kind(&b, kind);
    const double error = difference_of(&b);
    printf("%d,%d,%d,%d,%d,%.2f,%.2f,%.2f,%.3f,%.5f\n", c->queries, c->length, c->singles,
           c->single_length, b.layers, b.us[SINGLES], b.us[CHUNK], b.us[BOTH],
           b.us[BOTH] / (b.us[SINGLES] + b.us[CHUNK]), error);
    fflush(stdout);
    close_cell(&b);
    return !(error < ERROR_LIMIT);
}

int main(int argc, char **argv) {
    const int seconds = argc > 1 ? atoi(argv[1]) : 180;
    const int64_t deadline_ns = fig_clock_ns() + (int64_t)seconds * 1000000000;
    int failed = 0;
    void *state = NULL;
    alarm(HANG_S);
    if (!is_host() && fig_gpu_caller_set_up(&state) != 0) return 2;
    printf("queries,length,singles,single_length,layers,us_singles,us_chunk,us_both,of_parts,"
           "error\n");
    if (is_host()) return run_cell(&small);
    for (size_t i = 0; i < sizeof cells / sizeof cells[0] && fig_clock_ns() < deadline_ns; i++)
        failed |= run_cell(&cells[i]);
    return fig_gpu_caller_tear_down(&state) != 0 || failed;
}
