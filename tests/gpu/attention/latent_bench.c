/* latent_bench.c: times attention over a latent cache, in a chain of launches with cold caches.
 *
 *     build/release/tests/gpu/attention/latent_bench [SECONDS [HEADS | CELL]...]      default 120
 *
 * No cell begins after these seconds. The steps of the table below come in such an order that a
 * short run measures a fair share of them, each with all numbers of q heads or with those that
 * HEADS names. A CELL is q heads x rows x tokens of a row, as in 16x4x2048; x query tokens of a row
 * and x tokens of a page may follow, and ":codes" for a cache of codes. Prints CSV. For each cell,
 * it gives the family that serves, the microseconds of a launch in a chain of launches with
 * programmatic edges, the limit, and the limit divided by the microseconds. The limit is the least
 * possible time: 2 us + the bytes of the cache / 4.57 TB/s or, if that is longer, the flops / 790
 * TFLOP/s. If lengths differ, the column `length` has the longest, and the device reads them.
 *
 * A program has one node for each launch of the chain, with a page table of its own, and a graph
 * has up to eight runs of it. The tables name several copies of the pages in random order; if a
 * step reads 0.6 MB or more, all copies together have more than 300 MB. A time is the median of
 * seven replays, divided by the number of launches. A sample of each cell's output vectors is
 * compared with float64, and the bits after the last replay with those after the first: columns
 * `error`, the rms error relative to the rms of the values, and `same`. Prints on stderr, for each
 * number of heads, the geometric means of the limit's share; and the times of rows of two query
 * tokens as a multiple of those of one query token with twice as many heads. Exits with 1 if bits
 * differ or the error is above 0.004. SIGALRM ends the program if a launch hangs. FIG_DEVICE=host
 * runs a few small cells. */
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

#include "engine/runs/runner.h"
#include "engine/seam/clock.h"
#include "include/figraph_runner.h"
#include "tests/support/driver/device_bench.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth_latent.h"

enum { LAUNCH_LIMIT = 64, LAUNCHES_LEAST = 12, RUN_LIMIT = 8 };
enum { CELL_LIMIT = 256 };
enum { Q = TRUTH_LATENT_KEY_DIM, OUT = TRUTH_LATENT_DIM, CODES = TRUTH_LATENT_CODES };
/* float64 reads this many tokens of each cell, but in at least three vectors and at most 24 */
enum { TRUTH_TOKENS = 65536, SAMPLES_LEAST = 3, SAMPLES_MOST = 24 };
/* The tokens of a piece of the cache, which the rest repeats; a multiple of each page size. */
enum { PIECE_TOKENS = 1 << 15, HOST_PIECE_TOKENS = 1 << 10 };
/* The bound tensors; the page tables and perhaps the lengths follow. */
enum { TENSOR_Q, TENSOR_OUT, TENSOR_CACHE, TENSOR_TABLES };
enum { TENSOR_LIMIT = TENSOR_TABLES + LAUNCH_LIMIT + 1 };
#define COLD_BYTES 300e6
#define LONG_CHAIN_BYTES 200e6 /* a chain over more bytes has fewer launches */
#define ERROR_LIMIT 0.004
#define LIMIT_US 2.0
#define LIMIT_BYTES_PER_US 4.57e6
#define LIMIT_FLOPS_PER_US 790e6

/* The lengths of a cell's rows. `length` is the longest. */
typedef enum lengths {
    EQUAL,
    ONE_LONG, /* all rows but the first have a 64th of it */
    EVEN,     /* from a 128th of it on, in equal steps */
    POWERS,   /* halves of it, up to ten times, again and again */
    LENGTHS_COUNT
} lengths;
static const char *const lengths_names[LENGTHS_COUNT] = {"equal", "one_long", "even", "powers"};

typedef struct cell {
    int32_t heads, rows, length, row_tokens, page_size;
    lengths lengths;
    int32_t is_codes; /* 1: tokens are 656 bytes of e4m3 codes and scales */
} cell;

/* The steps that each number of heads takes: rows, length, lengths. */
static const struct {
    int32_t rows, length;
    lengths lengths;
} steps[] = {{16, 8192, EQUAL},  {1, 512, EQUAL},     {64, 8192, EQUAL},  {4, 2048, EQUAL},
             {32, 32768, EQUAL}, {128, 512, EQUAL},   {1, 32768, EQUAL},  {32, 32768, ONE_LONG},
             {16, 2048, EQUAL},  {4, 8192, EQUAL},    {64, 8192, EVEN},   {128, 8192, EQUAL},
             {1, 2048, EQUAL},   {32, 512, EQUAL},    {64, 2048, EQUAL},  {16, 32768, EQUAL},
             {4, 512, EQUAL},    {40, 32768, POWERS}, {32, 8192, EQUAL},  {1, 8192, EQUAL},
             {64, 512, EQUAL},   {128, 2048, EQUAL},  {4, 32768, EQUAL},  {16, 512, EQUAL},
             {32, 2048, EQUAL},  {64, 32768, EQUAL},  {128, 32768, EQUAL}};
static const int32_t heads_of_table[] = {16, 32, 64, 128};

/* Two query tokens; pages of 16; codes, which come last because they replace the cache. */
static const cell further[] = {{16, 16, 8192, 2, 64, EQUAL, 0},  {64, 16, 8192, 2, 64, EQUAL, 0},
                               {32, 64, 8192, 2, 64, EQUAL, 0},  {64, 64, 8192, 2, 64, EQUAL, 0},
                               {16, 4, 2048, 2, 64, EQUAL, 0},   {64, 4, 2048, 2, 64, EQUAL, 0},
                               {128, 16, 8192, 2, 64, EQUAL, 0}, {16, 16, 8192, 1, 16, EQUAL, 0},
                               {128, 16, 8192, 1, 16, EQUAL, 0}, {16, 64, 8192, 1, 64, EQUAL, 1}};
static const cell small[] = {{16, 3, 130, 1, 64, EQUAL, 0},    {8, 3, 130, 2, 64, EQUAL, 0},
                             {16, 4, 200, 1, 16, ONE_LONG, 0}, {16, 5, 150, 1, 64, EVEN, 0},
                             {32, 4, 300, 1, 64, POWERS, 0},   {16, 3, 90, 1, 64, EQUAL, 1}};
#define COUNT_OF(array) ((int)(sizeof(array) / sizeof *(array)))

typedef struct bench {
    cell c;
    int32_t columns, copies, launches, runs, tensors; /* launches: of a run */
    int64_t pages;                                    /* of one copy */
    fig_program *program;
    fig_graphs *graphs;
    fig_runner *runner;
    char names[LAUNCH_LIMIT][16];
    fig_binding bindings[TENSOR_LIMIT];
    fig_run run;
    int32_t *lengths; /* [rows] */
    uint16_t *q, *seen, *before;
    int32_t *tables; /* [copies][rows][columns] */
    void *d_q, *d_out, *d_tables, *d_lengths, *d_scratch;
    fig_device_bench_graph graph;
    const char *family;
    double us, error;
    int same;
} bench;

/* The cache of all cells. Its contents repeat those of a piece, so any page of it has the contents
 * of a page of the piece. */
typedef struct pool {
    void *address;  /* of the device */
    uint8_t *piece; /* [piece_tokens] */
    int64_t tokens;
    int32_t piece_tokens;
    int32_t is_codes; /* -1: it has no contents yet */
} pool;

static cell cells[CELL_LIMIT];
static double times[CELL_LIMIT]; /* in us; 0: not reached */
static int cell_count;
static pool cache = {.is_codes = -1};

/* ---- A cell ---------------------------------------------------------------------------------- */

static int64_t token_bytes(const cell *c) {
    return c->is_codes ? CODES : Q * 2;
}

static int32_t length_of(const cell *c, int32_t row) {
    const int32_t even = c->length / 128, powers = c->length >> row % 10;
    switch (c->lengths) {
    case ONE_LONG: return row == 0 || c->length < 64 ? c->length : c->length / 64;
    case EVEN:
        return c->rows < 2 ? c->length
                           : even + (int32_t)((int64_t)(c->length - even) * row / (c->rows - 1));
    case POWERS: return powers > 0 ? powers : 1;
    default: return c->length;
    }
}

static int64_t pages_of(const cell *c, int32_t row) {
    return (length_of(c, row) + c->page_size - 1) / c->page_size;
}

static double tokens_of(const cell *c) {
    double tokens = 0;
    for (int32_t row = 0; row < c->rows; row++)
        tokens += length_of(c, row);
    return tokens;
}

static double bytes_of(const cell *c) {
    return tokens_of(c) * (double)token_bytes(c);
}

/* Each pair of a query vector and a token is multiplied by K and by V. */
static double limit_of(const cell *c) {
    const double flops = 2.0 * tokens_of(c) * c->heads * c->row_tokens * (double)(Q + OUT);
    return fmax(LIMIT_US + bytes_of(c) / LIMIT_BYTES_PER_US, flops / LIMIT_FLOPS_PER_US);
}

static size_t vectors_of(const cell *c) {
    return (size_t)c->rows * (size_t)c->row_tokens * (size_t)c->heads;
}

static void lay_out(bench *b) {
    const cell *c = &b->c;
    /* Every table begins at a multiple of 16 bytes. */
    b->columns = ((c->length + c->page_size - 1) / c->page_size + 3) / 4 * 4;
    b->lengths = fig_device_bench_memory((size_t)c->rows * sizeof *b->lengths);
    for (int32_t row = 0; row < c->rows; row++) {
        b->lengths[row] = length_of(c, row);
        b->pages += pages_of(c, row);
    }
    b->launches = bytes_of(c) < LONG_CHAIN_BYTES && !c->is_codes ? LAUNCH_LIMIT : LAUNCHES_LEAST;
    if (fig_device_bench_is_host()) b->launches = 1;
    b->runs = 1;
    while (b->runs < RUN_LIMIT && b->runs * b->launches * bytes_of(c) < COLD_BYTES)
        b->runs++;
    const int64_t fit = cache.tokens / c->page_size / b->pages;
    const int64_t cold = (int64_t)(COLD_BYTES / bytes_of(c)) + 1;
    b->copies = b->launches * b->runs;
    if (cold < b->copies) b->copies = (int32_t)cold;
    if (fit < b->copies) b->copies = (int32_t)fit;
}

/* ---- The cache ------------------------------------------------------------------------------- */

/* Codes have magnitudes below 2, and scales of 0.5 to 1. */
static void fill_codes(uint8_t *token, fig_random *random) {
    for (int32_t i = 0; i < OUT; i++)
        token[i] = (uint8_t)(fig_random_bits(random) & 0xbf);
    for (size_t i = 0; i < 4; i++) {
        const float scale = 0.5f + fig_random_float(random) / 2;
        memcpy(token + OUT + i * sizeof scale, &scale, sizeof scale);
    }
    fig_device_bench_fill((uint16_t *)(void *)(token + OUT + 16), Q - OUT, random);
}

static void open_pool(void) {
    int64_t most = fig_device_bench_is_host() ? 0 : (int64_t)(COLD_BYTES / (Q * 2)) + 1;
    for (int i = 0; i < cell_count; i++) {
        int64_t tokens = 0;
        for (int32_t row = 0; row < cells[i].rows; row++)
            tokens += pages_of(&cells[i], row) * cells[i].page_size;
        if (tokens > most) most = tokens;
    }
    cache.piece_tokens = fig_device_bench_is_host() ? HOST_PIECE_TOKENS : PIECE_TOKENS;
    cache.tokens = (most + cache.piece_tokens - 1) / cache.piece_tokens * cache.piece_tokens;
    cache.address = fig_device_bench_allocate((size_t)cache.tokens * Q * 2);
    cache.piece = fig_device_bench_memory((size_t)cache.piece_tokens * Q * 2);
}

static void fill_pool(const cell *c) {
    fig_random random = fig_random_seed(5);
    const size_t token = (size_t)token_bytes(c), piece = token * (size_t)cache.piece_tokens;
    if (cache.is_codes == c->is_codes) return;
    for (int32_t i = 0; i < cache.piece_tokens && c->is_codes; i++)
        fill_codes(cache.piece + (size_t)i * token, &random);
    if (!c->is_codes) fig_device_bench_fill((uint16_t *)(void *)cache.piece, piece / 2, &random);
    fig_device_bench_copy(cache.address, cache.piece, piece);
    fig_device_bench_repeat(cache.address, token * (size_t)cache.tokens, piece);
    cache.is_codes = c->is_codes;
}

/* Each copy has pages of its own. */
static void make_tables(bench *b, fig_random *random) {
    const cell *c = &b->c;
    const int32_t all = (int32_t)b->pages * b->copies;
    const size_t count = (size_t)b->copies * (size_t)c->rows * (size_t)b->columns;
    int32_t *order = fig_device_bench_memory((size_t)all * sizeof *order), *next = order;
    for (int32_t i = 0; i < all; i++) {
        const int32_t j = fig_random_range(random, 0, i);
        order[i] = order[j];
        order[j] = i;
    }
    b->tables = fig_device_bench_memory(count * sizeof *b->tables);
    memset(b->tables, 0, count * sizeof *b->tables);
    for (size_t line = 0; line < (size_t)b->copies * (size_t)c->rows; line++) {
        const int64_t pages = pages_of(c, (int32_t)(line % (size_t)c->rows));
        memcpy(b->tables + line * (size_t)b->columns, next, (size_t)pages * sizeof *next);
        next += pages;
    }
    b->d_tables = fig_device_bench_upload(b->tables, count * sizeof *b->tables);
    free(order);
}

/* ---- The program ----------------------------------------------------------------------------- */

/* Declares a bound tensor, and binds it. */
static fig_tensor bind(bench *b, const fig_tensor_info *info, void *address, size_t bytes) {
    b->bindings[b->tensors++] = (fig_binding){
        .size = sizeof(fig_binding), .name = info->name, .address = address, .bytes = bytes};
    return fig_program_tensor(b->program, info);
}

static fig_tensor bind_vectors(bench *b, const char *name, int32_t dim, void *address) {
    return bind(b,
                FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                            .dtype = FIG_BF16, .rank = 3, .dims = {FIG_DIM_BATCH, b->c.heads, dim},
                            .multiple = b->c.row_tokens),
                address, vectors_of(&b->c) * (size_t)dim * 2);
}

/* Records one node for each launch of the chain. */
static void record(bench *b) {
    const cell *c = &b->c;
    const size_t table = (size_t)c->rows * (size_t)b->columns;
    fig_latent_attention_op op = {.size = sizeof op, .sm_scale = (float)(1 / sqrt(Q))};
    op.q = bind_vectors(b, "q", Q, b->d_q);
    op.out = bind_vectors(b, "out", OUT, b->d_out);
    op.cache = bind(b,
                    FIG_OPTIONS(fig_tensor_info, .name = "cache", .role = FIG_ROLE_BOUND,
                                .dtype = c->is_codes ? FIG_E4M3 : FIG_BF16, .rank = 3,
                                .dims = {FIG_DIM_PAGES, c->page_size, c->is_codes ? CODES : Q}),
                    cache.address, (size_t)cache.tokens * (size_t)token_bytes(c));
    fig_tensor tables[LAUNCH_LIMIT];
    for (int32_t i = 0; i < b->launches; i++) {
        snprintf(b->names[i], sizeof b->names[i], "table.%d", i);
        tables[i] = bind(b,
                         FIG_OPTIONS(fig_tensor_info, .name = b->names[i], .role = FIG_ROLE_BOUND,
                                     .dtype = FIG_I32, .rank = 2, .dims = {c->rows, b->columns}),
                         b->d_tables, table * sizeof *b->tables);
    }
    if (c->lengths != EQUAL)
        fig_program_read_lengths(
            b->program,
            bind(b,
                 FIG_OPTIONS(fig_tensor_info, .name = "lengths", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32, .rank = 1, .dims = {FIG_DIM_BATCH}),
                 b->d_lengths, (size_t)c->rows * sizeof *b->lengths),
            (fig_tensor){0});
    for (int32_t i = 0; i < b->launches; i++) {
        op.page_table = tables[i];
        fig_latent_attention(b->program, &op);
    }
}

/* Returns the family that serves the launches of a run, which the run's size decides. Addresses and
 * strides are 0 here; those of a cell are multiples of 16 bytes too. */
static const char *family_of(const bench *b) {
    const fig_run_size size = {b->c.rows, b->c.length, b->run.scratch_bytes, 0};
    _Alignas(64) uint8_t params[FIG_PARAMS_LIMIT];
    fig_run_shape shape;
    fig_family_choice choice;
    OK(fig_run_shape_make(b->graphs, &b->runner->traits, &size, &shape));
    fig_run_fill(b->runner, &shape, b->graphs->common.launch_count - 1, params);
    fig_families_choose(FIG_OP_LATENT_ATTENTION, params, &b->runner->kernel_traits, &choice);
    return fig_families_of(FIG_OP_LATENT_ATTENTION, choice.family)->name;
}

static void make_runner(bench *b) {
    const cell *c = &b->c;
    static const fig_bucket least = {1, 1};
    const fig_engine_options place = fig_place_options();
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = 8,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .page_size = c->page_size,
                           .batch_limit = c->rows,
                           .kv_limit = c->length,
                           .row_tokens = c->row_tokens};
    const fig_lower_options lower = {
        .size = sizeof lower, .traits = fig_place_traits(), .buckets = &least, .bucket_count = 1};
    fig_traits traits = {.size = sizeof traits};
    fig_scratch needed = {.size = sizeof needed};
    OK(fig_program_create(&b->program, &spec));
    record(b);
    OK(fig_program_finish(b->program));
    OK(fig_graphs_lower(&b->graphs, b->program, &lower));
    OK(fig_runner_open(&b->runner, b->graphs,
                       FIG_OPTIONS(fig_runner_options, .device = place.device, .concurrent_runs = 1,
                                   .test = place.test)));
    OK(fig_runner_read_traits(b->runner, &traits));
    OK(fig_graphs_scratch(b->graphs, &traits, c->rows, c->length, &needed));
    b->d_scratch = fig_device_bench_allocate(needed.best_bytes);
    b->run = (fig_run){.size = sizeof b->run,
                       .rows = c->rows,
                       .kv_length = c->length,
                       .binding_count = b->tensors,
                       .scratch = b->d_scratch,
                       .scratch_bytes = needed.best_bytes,
                       .stream = fig_gpu_caller.stream};
    b->family = family_of(b);
}

/* Returns the number of the copy that a launch reads. */
static int32_t copy_of(const bench *b, int32_t run, int32_t launch) {
    return (run * b->launches + launch) % b->copies;
}

/* Enqueues the runs, each with tables of its own. */
static void enqueue(const void *of) {
    const bench *b = of;
    const size_t table = (size_t)b->c.rows * (size_t)b->columns;
    fig_binding bindings[TENSOR_LIMIT];
    fig_run run = b->run;
    memcpy(bindings, b->bindings, sizeof bindings);
    run.bindings = bindings;
    for (int32_t i = 0; i < b->runs; i++) {
        for (int32_t j = 0; j < b->launches; j++)
            bindings[TENSOR_TABLES + j].address =
                (int32_t *)b->d_tables + (size_t)copy_of(b, i, j) * table;
        OK(fig_runner_run(b->runner, &run));
    }
}

static void open_cell(bench *b) {
    const cell *c = &b->c;
    fig_random random = fig_random_seed(11);
    const size_t vectors = vectors_of(c);
    fill_pool(c);
    lay_out(b);
    b->q = fig_device_bench_memory(vectors * Q * 2);
    b->seen = fig_device_bench_memory(vectors * OUT * 2);
    b->before = fig_device_bench_memory(vectors * OUT * 2);
    fig_device_bench_fill(b->q, vectors * Q, &random);
    b->d_q = fig_device_bench_upload(b->q, vectors * Q * 2);
    b->d_out = fig_device_bench_allocate(vectors * OUT * 2);
    b->d_lengths = fig_device_bench_upload(b->lengths, (size_t)c->rows * sizeof *b->lengths);
    make_tables(b, &random);
    make_runner(b);
}

static void close_cell(bench *b) {
    void *const device[] = {b->d_q, b->d_out, b->d_tables, b->d_lengths, b->d_scratch};
    void *const memories[] = {b->q, b->lengths, b->tables, b->seen, b->before};
    for (int i = 0; i < COUNT_OF(device); i++)
        fig_device_bench_free(device[i]);
    for (int i = 0; i < COUNT_OF(memories); i++)
        free(memories[i]);
    fig_runner_close(b->runner);
    fig_graphs_destroy(b->graphs);
    fig_program_destroy(b->program);
}

/* ---- Times ----------------------------------------------------------------------------------- */

static void time_cell(bench *b) {
    const size_t bytes = vectors_of(&b->c) * OUT * 2;
    b->graph = (fig_device_bench_graph){.enqueue = enqueue, .of = b};
    fig_device_bench_capture(&b->graph);
    fig_device_bench_replay(&b->graph);
    fig_device_bench_copy(b->before, b->d_out, bytes);
    b->us = fig_device_bench_median(&b->graph) / (b->launches * b->runs);
    fig_device_bench_copy(b->seen, b->d_out, bytes);
    b->same = memcmp(b->seen, b->before, bytes) == 0;
    fig_device_bench_drop(&b->graph);
}

/* ---- Truth ----------------------------------------------------------------------------------- */

/* Turns the table of the last launch into one of the piece's pages. */
static truth_cache truth_of(const bench *b) {
    const cell *c = &b->c;
    const size_t count = (size_t)c->rows * (size_t)b->columns;
    const int32_t pages = cache.piece_tokens / c->page_size;
    int32_t *table = b->tables + (size_t)copy_of(b, b->runs - 1, b->launches - 1) * count;
    for (size_t i = 0; i < count; i++)
        table[i] %= pages;
    return (truth_cache){.base = cache.piece,
                         .dtype = c->is_codes ? FIG_E4M3 : FIG_BF16,
                         .page_stride = c->page_size * (c->is_codes ? CODES : Q),
                         .token_stride = c->is_codes ? CODES : Q,
                         .pages = pages,
                         .page_size = c->page_size,
                         .page_table = table,
                         .table_stride = b->columns};
}

static void check_cell(bench *b) {
    const cell *c = &b->c;
    fig_random random = fig_random_seed(3);
    const truth_cache from = truth_of(b);
    const int32_t fit = TRUTH_TOKENS / c->length;
    const int32_t samples = fit < SAMPLES_LEAST  ? SAMPLES_LEAST
                            : fit > SAMPLES_MOST ? SAMPLES_MOST
                                                 : fit;
    double squares = 0, values = 0;
    for (int32_t i = 0; i < samples; i++) {
        /* The first sample is of the first row, which is the longest or the shortest. */
        const int32_t row = i == 0 ? 0 : fig_random_range(&random, 0, c->rows - 1);
        const int32_t query = fig_random_range(&random, 0, c->row_tokens - 1);
        const int32_t head = fig_random_range(&random, 0, c->heads - 1);
        const int64_t number = (int64_t)row * c->row_tokens + query;
        truth_latent_result truth;
        truth_latent(&(truth_latent_args){.q = {b->q, FIG_BF16, (int64_t)c->heads * Q, Q},
                                          .cache = from,
                                          .row = number,
                                          .sequence = row,
                                          .length = b->lengths[row] - c->row_tokens + 1 + query,
                                          .q_head = head,
                                          .sm_scale = (double)(float)(1 / sqrt(Q))},
                     &truth);
        for (int32_t d = 0; d < OUT; d++) {
            const double off =
                truth_load(b->seen, FIG_BF16, (number * c->heads + head) * OUT + d) - truth.out[d];
            squares += off * off;
            values += truth.out[d] * truth.out[d];
        }
    }
    b->error = sqrt(squares / values);
}

/* ---- Results --------------------------------------------------------------------------------- */

static void print_cell(const bench *b) {
    const cell *c = &b->c;
    const double limit = limit_of(c);
    printf("%d,%d,%d,%d,%d,%s,%.2f,%.2f,%.3f,%.5f,%d,%s,%s\n", c->heads, c->rows, c->length,
           c->row_tokens, c->page_size, b->family, b->us, limit, limit / b->us, b->error, b->same,
           lengths_names[c->lengths], c->is_codes ? "e4m3" : "bf16");
    fflush(stdout);
}

/* A part of the table. */
typedef enum part { ALL, LARGE, RAGGED, PART_COUNT } part;

static int is_in(const cell *c, part of) {
    if (of == LARGE) return c->lengths == EQUAL && c->rows >= 16 && c->length >= 8192;
    return of == ALL || c->lengths != EQUAL;
}

/* Prints the geometric means over the cells of one query token, pages of 64 and bf16. */
static void print_means(int32_t heads) {
    static const char *const parts[PART_COUNT] = {"all", "rows >= 16 x tokens >= 8192", "ragged"};
    for (int of = 0; of < PART_COUNT; of++) {
        double sum = 0;
        int count = 0;
        for (int i = 0; i < cell_count; i++) {
            const cell *c = &cells[i];
            if (c->heads != heads || c->row_tokens != 1 || c->page_size != 64 || c->is_codes ||
                !is_in(c, (part)of) || times[i] <= 0)
                continue;
            sum += log(limit_of(c) / times[i]);
            count++;
        }
        if (count > 0)
            fprintf(stderr, "%d heads, %s: mean share %.3f of %d cells\n", heads, parts[of],
                    exp(sum / count), count);
    }
}

/* Compares two query tokens with one of twice as many heads: the same number of vectors. */
static void print_pairs(void) {
    for (int i = 0; i < cell_count; i++)
        for (int j = 0; j < cell_count; j++) {
            const cell *two = &cells[i], *one = &cells[j];
            if (times[i] <= 0 || times[j] <= 0 || two->row_tokens != 2 || one->row_tokens != 1 ||
                one->heads != 2 * two->heads || one->rows != two->rows ||
                one->length != two->length || one->page_size != two->page_size ||
                one->lengths != two->lengths || one->is_codes != two->is_codes)
                continue;
            fprintf(stderr, "%dx%dx%d with 2 query tokens: %.3f of one with %d heads\n", two->heads,
                    two->rows, two->length, times[i] / times[j], one->heads);
        }
}

static int run_cell(int i) {
    static bench b; /* too large for the stack */
    b = (bench){.c = cells[i]};
    alarm(FIG_DEVICE_BENCH_HANG_S);
    open_cell(&b);
    time_cell(&b);
    alarm(FIG_DEVICE_BENCH_HANG_S);
    check_cell(&b);
    print_cell(&b);
    times[i] = b.us;
    close_cell(&b);
    return !b.same || !(b.error < ERROR_LIMIT);
}

/* ---- The list of cells ----------------------------------------------------------------------- */

static void add(const cell *c) {
    if (cell_count == CELL_LIMIT) fail_msg("more than %d cells", CELL_LIMIT);
    cells[cell_count++] = *c;
}

/* asked: HEADS of the command line; without any, all. */
static int is_asked(char **asked, int count, int32_t heads) {
    for (int i = 0; i < count; i++)
        if (atoi(asked[i]) == heads) return 1;
    return count == 0;
}

static void list_cells(char **asked, int count) {
    for (int i = 0; i < count && strchr(asked[0], 'x') != NULL; i++) {
        cell c = {.row_tokens = 1, .page_size = 64};
        if (sscanf(asked[i], "%dx%dx%dx%dx%d", &c.heads, &c.rows, &c.length, &c.row_tokens,
                   &c.page_size) < 3)
            fail_msg("%s: not heads x rows x tokens", asked[i]);
        c.is_codes = strstr(asked[i], ":codes") != NULL;
        add(&c);
    }
    if (cell_count > 0) return;
    for (int i = 0; i < COUNT_OF(small) && fig_device_bench_is_host(); i++)
        add(&small[i]);
    if (cell_count > 0) return;
    for (int i = 0; i < COUNT_OF(steps); i++)
        for (int j = 0; j < COUNT_OF(heads_of_table); j++)
            if (is_asked(asked, count, heads_of_table[j]))
                add(&(cell){heads_of_table[j], steps[i].rows, steps[i].length, 1, 64,
                            steps[i].lengths, 0});
    for (int i = 0; i < COUNT_OF(further); i++)
        if (is_asked(asked, count, further[i].heads)) add(&further[i]);
}

int main(int argc, char **argv) {
    const int seconds = argc > 1 ? atoi(argv[1]) : 120;
    const int64_t deadline_ns = fig_clock_ns() + (int64_t)seconds * 1000000000;
    int failed = 0;
    if (fig_device_bench_set_up() != 0) return 2;
    list_cells(argv + 2, argc > 2 ? argc - 2 : 0);
    open_pool();
    printf("heads,rows,length,row_tokens,page_size,family,us,limit_us,share,error,same,lengths,"
           "cache\n");
    for (int i = 0; i < cell_count && fig_clock_ns() < deadline_ns; i++)
        failed |= run_cell(i);
    for (int j = 0; j < COUNT_OF(heads_of_table); j++)
        print_means(heads_of_table[j]);
    print_pairs();
    fig_device_bench_free(cache.address);
    free(cache.piece);
    return fig_device_bench_tear_down() != 0 || failed;
}
