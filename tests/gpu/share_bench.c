/* share_bench.c: times engine steps whose rows begin with the same pages, with groups and without.
 *
 *     build/release/tests/gpu/share_bench [SECONDS [ROWS PREFIX [OWN]]]      default 180
 *
 * No cell begins after SECONDS. ROWS and PREFIX select a single cell, and OWN the tokens of a row
 * behind the prefix, 256 by default. A step appends one token of each row and computes attention,
 * in 4 to 16 layers. The caches of all layers together exceed 300 MB, so no layer begins with its
 * pages in L2. If every row reads all of its pages, the first row brings those of the prefix there.
 * Pages lie in random order. Prints CSV: for each cell, the microseconds of a layer in a step whose
 * rows read all of their pages, and in one whose rows share them; the host's microseconds of
 * staging and launching a step, for both; the bytes of a plan, for both; the KV tokens that groups
 * read and save; and the rms difference of both results, relative to the rms of the values. A time
 * is the median of seven series of steps, divided by steps and layers. The program does not judge
 * the times. It exits with 1 if the results differ by more than rounding, or if rows share nothing.
 * SIGALRM ends the program if a step hangs.
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
    STEPS = 32,
    LAYER_LIMIT = 16,
    LAYERS_LEAST = 16,
    PAGE = 16,
    Q_HEADS = 32,
    KV_HEADS = 8,
    HEAD_DIM = 128,
    TOKEN_BYTES = KV_HEADS * HEAD_DIM * 2, /* bytes of K, or of V, of a token */
    ROW_LIMIT = 256,
    PIECE_BYTES = 1 << 24, /* bytes of random numbers, which caches repeat */
    HANG_S = 60,
    WAIT_US = 60000000
};
#define COLD_BYTES 300e6
#define ERROR_LIMIT 0.004

static int32_t own_tokens = 256;

typedef struct cell {
    int32_t rows, prefix;
} cell;

static const cell cells[] = {{4, 2048},   {4, 8192},   {16, 2048},  {16, 8192},
                             {16, 32768}, {64, 2048},  {64, 8192},  {64, 32768},
                             {256, 2048}, {256, 8192}, {256, 32768}};
static const cell small = {4, 512};

/* One of the two ways to run a cell: with groups or without. */
typedef struct way {
    fig_engine *engine;
    uint16_t *out; /* [rows][Q_HEADS][HEAD_DIM] the result of the last layer */
    double us, host_us;
    fig_engine_stats stats;
} way;

typedef struct bench {
    cell c;
    int32_t layers, pages, length;
    int32_t lengths[ROW_LIMIT], counts[ROW_LIMIT];
    int32_t *order; /* [pages] in random order */
    fig_graphs *graphs;
    way ways[2]; /* without groups, with groups */
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

static void record(fig_program *program, const bench *b) {
    const fig_tensor q = declare(program, "q", Q_HEADS), out = declare(program, "out", Q_HEADS);
    const fig_tensor k = declare(program, "k", KV_HEADS), v = declare(program, "v", KV_HEADS);
    const fig_tensor table = fig_program_tensor(
        program,
        FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE, .dtype = FIG_I32,
                    .rank = 2, .dims = {b->c.rows, (b->length + PAGE - 1) / PAGE}));
    for (int32_t layer = 0; layer < b->layers; layer++) {
        const fig_cache cache = {.k = declare_cache(program, "k_cache", layer),
                                 .v = declare_cache(program, "v_cache", layer),
                                 .page_table = table};
        fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = cache));
        fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    }
}

static void lower(bench *b) {
    const fig_bucket bucket = {b->c.rows, b->length};
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = Q_HEADS,
                           .kv_heads = KV_HEADS,
                           .head_dim = HEAD_DIM,
                           .page_size = PAGE,
                           .batch_limit = b->c.rows,
                           .kv_limit = b->length,
                           .row_tokens = 16,
                           .query_limit = b->c.rows};
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
static void bind(const way *w, const char *name, uint64_t bytes) {
    static uint16_t *numbers;
    fig_random random = fig_random_seed(5);
    if (numbers == NULL) {
        numbers = allocate(PIECE_BYTES);
        fill(numbers, PIECE_BYTES / 2, &random);
    }
    OK(fig_engine_bind(w->engine, FIG_OPTIONS(fig_binding, .name = name, .bytes = bytes)));
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        const uint64_t left = bytes - at;
        OK(fig_engine_write(w->engine,
                            FIG_OPTIONS(fig_span, .name = name, .offset = at,
                                        .bytes = left < PIECE_BYTES ? left : PIECE_BYTES),
                            numbers));
    }
}

static void bind_all(const bench *b, const way *w) {
    const uint64_t row = (uint64_t)HEAD_DIM * 2, rows = (uint64_t)b->c.rows;
    bind(w, "q", rows * Q_HEADS * row);
    bind(w, "out", rows * Q_HEADS * row);
    bind(w, "k", rows * KV_HEADS * row);
    bind(w, "v", rows * KV_HEADS * row);
    for (int32_t layer = 0; layer < 2 * b->layers; layer++) {
        char name[32];
        snprintf(name, sizeof name, "%c_cache.%d", layer % 2 ? 'v' : 'k', (int)layer / 2);
        bind(w, name, (uint64_t)b->pages * PAGE * TOKEN_BYTES);
    }
}

/* All sequences begin with the pages of sequence 0. */
static void set_pages(const bench *b, const way *w) {
    const int32_t shared = b->c.prefix / PAGE, own = own_tokens / PAGE;
    OK(fig_engine_set_pages(w->engine, FIG_OPTIONS(fig_pages, .count = shared, .pages = b->order)));
    for (int32_t row = 0; row < b->c.rows; row++) {
        if (row > 0)
            OK(fig_engine_fork(w->engine,
                               FIG_OPTIONS(fig_fork, .target = row, .length = b->c.prefix)));
        OK(fig_engine_set_pages(w->engine,
                                FIG_OPTIONS(fig_pages, .sequence = row, .first = shared,
                                            .count = own, .pages = b->order + shared + row * own)));
    }
}

static void open_way(bench *b, int32_t shares) {
    way *w = &b->ways[shares];
    fig_engine_options options = fig_place_options();
    void *const stream = fig_gpu_caller.stream;
    options.share = shares ? 1 : -1;
    if (!is_host()) options.stream = &stream;
    OK(fig_engine_open(&w->engine, b->graphs, &options));
    if (shares && fig_engine_sharing(w->engine) != NULL)
        fail_msg("nothing is shared: %s", fig_engine_sharing(w->engine));
    bind_all(b, w);
    set_pages(b, w);
    w->out = allocate((size_t)b->c.rows * Q_HEADS * HEAD_DIM * 2);
    w->stats.size = sizeof w->stats;
}

static void open_cell(bench *b) {
    fig_random random = fig_random_seed(11);
    b->length = b->c.prefix + own_tokens;
    b->pages = (b->c.prefix + b->c.rows * own_tokens) / PAGE;
    b->layers = (int32_t)(COLD_BYTES / (2.0 * b->pages * PAGE * TOKEN_BYTES)) + 1;
    if (b->layers < LAYERS_LEAST) b->layers = LAYERS_LEAST;
    if (b->layers > LAYER_LIMIT) b->layers = LAYER_LIMIT;
    if (is_host()) b->layers = 1;
    b->order = allocate((size_t)b->pages * sizeof *b->order);
    for (int32_t i = 0; i < b->pages; i++) {
        const int32_t j = fig_random_range(&random, 0, i);
        b->order[i] = b->order[j];
        b->order[j] = i;
    }
    for (int32_t row = 0; row < b->c.rows; row++) {
        b->lengths[row] = b->length;
        b->counts[row] = 1;
    }
    lower(b);
    open_way(b, 0);
    open_way(b, 1);
}

static void close_cell(bench *b) {
    for (int32_t i = 0; i < 2; i++) {
        fig_engine_close(b->ways[i].engine);
        free(b->ways[i].out);
    }
    fig_graphs_destroy(b->graphs);
    free(b->order);
}

/* ---- Times ----------------------------------------------------------------------------------- */

static void run_steps(const bench *b, const way *w, int32_t count) {
    for (int32_t n = 0; n < count; n++) {
        fig_status status;
        do
            status = fig_engine_step(w->engine, FIG_OPTIONS(fig_step, .rows = b->c.rows,
                                                            .kv_lengths = b->lengths,
                                                            .query_counts = b->counts));
        while (status == FIG_BUSY);
        OK(status);
    }
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the microseconds of a series of steps. */
static double time_series(const bench *b, const way *w) {
    fig_cu_event from = NULL, to = NULL;
    float ms = 0;
    alarm(HANG_S);
    if (is_host()) {
        const int64_t begin_ns = fig_clock_ns();
        run_steps(b, w, 1);
        OK(fig_engine_wait(w->engine, WAIT_US));
        return (double)(fig_clock_ns() - begin_ns) / 1e3 * STEPS;
    }
    CU(EventCreate, &from, 0);
    CU(EventCreate, &to, 0);
    CU(EventRecord, from, fig_gpu_caller.stream);
    run_steps(b, w, STEPS);
    CU(EventRecord, to, fig_gpu_caller.stream);
    CU(EventSynchronize, to);
    CU(EventElapsedTime, &ms, from, to);
    CU(EventDestroy, from);
    CU(EventDestroy, to);
    return (double)ms * 1e3;
}

static void time_way(bench *b, way *w) {
    const size_t bytes = (size_t)b->c.rows * Q_HEADS * HEAD_DIM * 2;
    double times[ROUNDS];
    run_steps(b, w, 1);
    OK(fig_engine_wait(w->engine, WAIT_US));
    for (int32_t i = 0; i < ROUNDS; i++)
        times[i] = time_series(b, w) / STEPS / b->layers;
    alarm(HANG_S);
    qsort(times, ROUNDS, sizeof times[0], by_size);
    w->us = times[ROUNDS / 2];
    OK(fig_engine_wait(w->engine, WAIT_US));
    OK(fig_engine_read(w->engine, FIG_OPTIONS(fig_span, .name = "out", .bytes = bytes), w->out));
    OK(fig_engine_read_stats(w->engine, &w->stats));
    w->host_us = (double)fig_histogram_percentile(&w->stats.host, 50) / 1e3;
}

/* ---- Results --------------------------------------------------------------------------------- */

static double difference_of(const bench *b) {
    const int64_t count = (int64_t)b->c.rows * Q_HEADS * HEAD_DIM;
    double squares = 0, values = 0;
    for (int64_t i = 0; i < count; i++) {
        const double alone = truth_load(b->ways[0].out, FIG_BF16, i);
        const double off = truth_load(b->ways[1].out, FIG_BF16, i) - alone;
        squares += off * off;
        values += alone * alone;
    }
    return sqrt(squares / values);
}

/* Prints a cell; returns 1 if its results are wrong. */
static int print_cell(const bench *b) {
    const way *alone = &b->ways[0], *shared = &b->ways[1];
    const fig_engine_stats *stats = &shared->stats;
    const double error = difference_of(b);
    const double steps = stats->shared_steps > 0 ? (double)stats->shared_steps : 1;
    printf("%d,%d,%d,%.2f,%.2f,%.1f,%.1f,%.0f,%.0f,%.0f,%.0f,%.5f\n", b->c.rows, b->c.prefix,
           b->layers, alone->us, shared->us, alone->host_us, shared->host_us,
           (double)alone->stats.uploaded_bytes / (double)alone->stats.staged,
           (double)stats->uploaded_bytes / (double)stats->staged,
           (double)stats->shared_read / steps, (double)stats->shared_saved / steps, error);
    fflush(stdout);
    return !(error < ERROR_LIMIT) || stats->shared_steps == 0;
}

static int run_cell(const cell *c) {
    static bench b; /* too large for the stack */
    b = (bench){.c = *c};
    alarm(HANG_S);
    open_cell(&b);
    time_way(&b, &b.ways[0]);
    time_way(&b, &b.ways[1]);
    const int is_wrong = print_cell(&b);
    close_cell(&b);
    return is_wrong;
}

int main(int argc, char **argv) {
    const int seconds = argc > 1 ? atoi(argv[1]) : 180;
    const int64_t deadline_ns = fig_clock_ns() + (int64_t)seconds * 1000000000;
    int failed = 0;
    void *state = NULL;
    alarm(HANG_S);
    if (!is_host() && fig_gpu_caller_set_up(&state) != 0) return 2;
    printf("rows,prefix,layers,us,us_shared,host_us,host_us_shared,plan_bytes,plan_bytes_shared,"
           "tokens_read,tokens_saved,error\n");
    if (is_host()) return run_cell(&small);
    if (argc > 3) {
        const cell asked = {atoi(argv[2]), atoi(argv[3])};
        if (argc > 4) own_tokens = atoi(argv[4]);
        return run_cell(&asked);
    }
    for (size_t i = 0; i < sizeof cells / sizeof cells[0] && fig_clock_ns() < deadline_ns; i++)
        failed |= run_cell(&cells[i]);
    return fig_gpu_caller_tear_down(&state) != 0 || failed;
}
