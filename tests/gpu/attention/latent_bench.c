/* latent_bench.c: times attention over a latent cache, in a chain of launches with cold caches.
 *
 *     build/release/tests/gpu/attention/latent_bench [SECONDS [CELL...]]      default 180
 *
 * No cell begins after these seconds. A CELL is q heads x rows x tokens of a row, as in 16x4x2048;
 * x query tokens of a row and x tokens of a page may follow. Without a CELL, the program measures
 * those of the table below. Prints CSV. For each cell, it gives the family that serves,
 * the microseconds of a launch in a chain of launches with programmatic edges, the limit, and the
 * limit divided by the microseconds. The limit is the least possible time: 2 us + the bytes of the
 * cache / 4.57 TB/s or, if that is longer, the flops / 790 TFLOP/s. A program has one node for each
 * launch of the chain, with a page table of its own. The tables name several copies of the pages,
 * each copy in random order. Together the copies have more than 300 MB. A time is the median of
 * seven replays, divided by the number of launches. A sample of each cell's output vectors is
 * compared with float64. The bits after the last replay are compared with the bits after the first.
 * The last two columns give the rms error relative to the rms of the values, and 1 if the bits
 * agree. The times are not judged. Exits with 1 if bits differ or the error is above 0.004. SIGALRM
 * ends the program if a launch hangs. */
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
#include "include/figraph_inspect.h"
#include "include/figraph_runner.h"
#include "tests/support/driver/gpu_caller.h"
#include "tests/support/place.h"
#include "tests/support/random.h"
#include "tools/figraph/truth/truth_latent.h"

enum { ROUNDS = 7, COPY_LIMIT = 64, LAUNCH_LIMIT = 64, SAMPLES = 24, HANG_S = 60 };
enum { Q = TRUTH_LATENT_KEY_DIM, OUT = TRUTH_LATENT_DIM };
/* The bound tensors; the page tables follow. */
enum { TENSOR_Q, TENSOR_OUT, TENSOR_CACHE, TENSOR_TABLES };
#define COLD_BYTES 300e6
#define ERROR_LIMIT 0.004
#define LIMIT_US 2.0
#define LIMIT_BYTES_PER_US 4.57e6
#define LIMIT_FLOPS_PER_US 790e6

typedef struct cell {
    int32_t heads, rows, length, row_tokens, page_size;
} cell;

/* All steps of these rows and lengths, for each number of heads. */
#define ROWS_OF(heads, rows)                                                                       \
    {heads, rows, 512, 1, 64}, {heads, rows, 2048, 1, 64}, {heads, rows, 8192, 1, 64}, {           \
        heads, rows, 32768, 1, 64                                                                  \
    }
#define STEPS_OF(heads)                                                                            \
    ROWS_OF(heads, 1), ROWS_OF(heads, 4), ROWS_OF(heads, 16), ROWS_OF(heads, 32),                  \
        ROWS_OF(heads, 64), ROWS_OF(heads, 128)

static const cell cells[] = {STEPS_OF(16),           STEPS_OF(32),           {64, 1, 512, 1, 64},
                             {64, 4, 2048, 1, 64},   {64, 16, 2048, 1, 64},  {64, 16, 8192, 1, 64},
                             {64, 64, 8192, 1, 64},  {64, 1, 32768, 1, 64},  {128, 1, 512, 1, 64},
                             {128, 4, 2048, 1, 64},  {128, 16, 2048, 1, 64}, {128, 16, 8192, 1, 64},
                             {128, 64, 8192, 1, 64}, {128, 128, 512, 1, 64}, {128, 1, 32768, 1, 64},
                             {16, 16, 8192, 2, 64},  {128, 16, 8192, 2, 64}, {16, 16, 8192, 1, 16},
                             {128, 16, 8192, 1, 16}, {128, 64, 32768, 1, 64}};
enum { CELLS = sizeof cells / sizeof cells[0] };

typedef struct bench {
    cell c;
    int32_t columns, copies, launches;
    int64_t pages, row_pages; /* pages of one copy; pages of one row */
    fig_program *program;
    fig_graphs *graphs;
    fig_runner *runner;
    char names[LAUNCH_LIMIT][16];
    fig_binding bindings[TENSOR_TABLES + LAUNCH_LIMIT];
    fig_run run;
    uint16_t *q, *cache; /* host arrays; every copy of the pages has the same contents */
    int32_t *tables;     /* [copies][rows][columns] */
    uint16_t *seen, *before;
    fig_cu_address d_q, d_out, d_cache, d_tables, d_scratch;
    fig_cu_graph graph;
    fig_cu_exec exec;
    char family[32];
    double us, error;
    int same;
} bench;

static uint64_t deadline_ns;

/* ---- Memory ---------------------------------------------------------------------------------- */

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (memory == NULL) fail_msg("%zu bytes", bytes);
    return memory;
}

static fig_cu_address upload(const void *from, size_t bytes) {
    fig_cu_address address = 0;
    CU(MemAlloc, &address, bytes + 256);
    if (from == NULL) {
        CU(MemsetD8Async, address, 0, bytes, fig_gpu_caller.stream);
    } else {
        CU(MemcpyAsync, address, (fig_cu_address)(uintptr_t)from, bytes, fig_gpu_caller.stream);
    }
    CU(StreamSynchronize, fig_gpu_caller.stream);
    return address;
}

static void *address_of(fig_cu_address address) {
    return (void *)(uintptr_t)address;
}

/* Draws normally distributed numbers from a small table, since a cell has a hundred million of
 * them. */
static void fill(uint16_t *to, size_t count, fig_random *random) {
    static uint16_t numbers[4096];
    if (numbers[0] == 0)
        for (int i = 0; i < 4096; i++)
            truth_store(numbers, FIG_BF16, i, fig_random_normal(random) + 1e-3f);
    for (size_t i = 0; i < count; i += 4) {
        uint64_t bits = fig_random_bits(random);
        for (size_t j = i; j < i + 4; j++, bits >>= 16)
            to[j] = numbers[bits & 4095];
    }
}

/* ---- A cell ---------------------------------------------------------------------------------- */

static double bytes_of(const cell *c) {
    return (double)c->rows * c->length * Q * 2;
}

/* Each pair of a query vector and a token is multiplied by K and by V. */
static double limit_of(const cell *c) {
    const double flops = 2.0 * c->rows * c->length * c->heads * c->row_tokens * (double)(Q + OUT);
    return fmax(LIMIT_US + bytes_of(c) / LIMIT_BYTES_PER_US, flops / LIMIT_FLOPS_PER_US);
}

static void lay_out(bench *b) {
    const cell *c = &b->c;
    b->row_pages = (c->length + c->page_size - 1) / c->page_size;
    b->columns = (int32_t)b->row_pages;
    b->pages = b->row_pages * c->rows;
    b->copies = (int32_t)(COLD_BYTES / bytes_of(c)) + 1;
    if (b->copies > COPY_LIMIT) b->copies = COPY_LIMIT;
    b->launches = bytes_of(c) < 200e6 ? LAUNCH_LIMIT : 12;
}

/* Each copy has its own pages, in another order, but the same contents at the same token of a
 * row. */
static void make_pages(bench *b, fig_random *random) {
    const cell *c = &b->c;
    const size_t page = (size_t)c->page_size * Q, all = page * (size_t)b->pages * 2;
    const size_t table = (size_t)c->rows * (size_t)b->columns;
    b->tables = allocate(table * (size_t)b->copies * sizeof *b->tables);
    b->cache = allocate(all);
    fill(b->cache, all / 2, random);
    for (size_t i = 0; i < table; i++)
        b->tables[i] = (int32_t)i;
    for (int32_t i = (int32_t)table - 1; i > 0; i--) {
        const int32_t j = fig_random_range(random, 0, i), swap = b->tables[i];
        b->tables[i] = b->tables[j];
        b->tables[j] = swap;
    }
    CU(MemAlloc, &b->d_cache, all * (size_t)b->copies);
    for (int32_t copy = 0; copy < b->copies; copy++) {
        for (size_t i = 0; i < table && copy > 0; i++)
            b->tables[(size_t)copy * table + i] = b->tables[i] + copy * (int32_t)b->pages;
        CU(MemcpyAsync, b->d_cache + all * (size_t)copy, (fig_cu_address)(uintptr_t)b->cache, all,
           fig_gpu_caller.stream);
    }
    b->d_tables = upload(b->tables, table * (size_t)b->copies * sizeof *b->tables);
}

static fig_tensor tensor(bench *b, const char *name, fig_dtype dtype, int64_t rows, int64_t heads,
                         int64_t dim) {
    const int32_t multiple = rows == FIG_DIM_BATCH ? b->c.row_tokens : 0;
    return fig_program_tensor(b->program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = dtype, .rank = dim > 0 ? 3 : 2,
                                          .dims = {rows, heads, dim}, .multiple = multiple));
}

static void bind(bench *b, int32_t index, const char *name, fig_cu_address address, size_t bytes) {
    b->bindings[index] = (fig_binding){
        .size = sizeof(fig_binding), .name = name, .address = address_of(address), .bytes = bytes};
}

/* Records one node for each launch of the chain. */
static void record(bench *b) {
    const cell *c = &b->c;
    const size_t table = (size_t)c->rows * (size_t)b->columns * sizeof *b->tables;
    const size_t vectors = (size_t)c->rows * (size_t)c->row_tokens * (size_t)c->heads;
    fig_latent_attention_op op = {.size = sizeof op, .sm_scale = (float)(1 / sqrt(Q))};
    op.q = tensor(b, "q", FIG_BF16, FIG_DIM_BATCH, c->heads, Q);
    op.out = tensor(b, "out", FIG_BF16, FIG_DIM_BATCH, c->heads, OUT);
    op.cache = tensor(b, "cache", FIG_BF16, FIG_DIM_PAGES, c->page_size, Q);
    bind(b, TENSOR_Q, "q", b->d_q, vectors * Q * 2);
    bind(b, TENSOR_OUT, "out", b->d_out, vectors * OUT * 2);
    bind(b, TENSOR_CACHE, "cache", b->d_cache,
         (size_t)b->pages * (size_t)b->copies * (size_t)c->page_size * Q * 2);
    fig_tensor tables[LAUNCH_LIMIT];
    for (int32_t i = 0; i < b->launches; i++) {
        snprintf(b->names[i], sizeof b->names[i], "table.%d", i);
        tables[i] = tensor(b, b->names[i], FIG_I32, c->rows, b->columns, 0);
        bind(b, TENSOR_TABLES + i, b->names[i],
             b->d_tables + (fig_cu_address)(i % b->copies) * table, table);
    }
    for (int32_t i = 0; i < b->launches; i++) {
        op.page_table = tables[i];
        fig_latent_attention(b->program, &op);
    }
}

/* Keeps the name of the family that serves the last launch. */
static void find_family(bench *b) {
    const fig_inspection *inspection = NULL;
    OK(fig_inspection_open(&inspection, b->graphs, 1));
    for (uint32_t i = 0; i < inspection->launch_count; i++)
        if (inspection->launches[i].family != NULL)
            snprintf(b->family, sizeof b->family, "%s", inspection->launches[i].family);
    fig_inspection_close(inspection);
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
    find_family(b);
    OK(fig_runner_open(
        &b->runner, b->graphs,
        FIG_OPTIONS(fig_runner_options, .device = place.device, .concurrent_runs = 1)));
    OK(fig_runner_read_traits(b->runner, &traits));
    OK(fig_graphs_scratch(b->graphs, &traits, c->rows, c->length, &needed));
    b->d_scratch = upload(NULL, needed.best_bytes);
    b->run = (fig_run){.size = sizeof b->run,
                       .rows = c->rows,
                       .kv_length = c->length,
                       .bindings = b->bindings,
                       .binding_count = TENSOR_TABLES + b->launches,
                       .scratch = address_of(b->d_scratch),
                       .scratch_bytes = needed.best_bytes,
                       .stream = fig_gpu_caller.stream};
}

static void open_cell(bench *b) {
    const cell *c = &b->c;
    fig_random random = fig_random_seed(11);
    lay_out(b);
    const size_t vectors = (size_t)c->rows * (size_t)c->row_tokens * (size_t)c->heads;
    b->q = allocate(vectors * Q * 2);
    b->seen = allocate(vectors * OUT * 2);
    b->before = allocate(vectors * OUT * 2);
    fill(b->q, vectors * Q, &random);
    b->d_q = upload(b->q, vectors * Q * 2);
    b->d_out = upload(NULL, vectors * OUT * 2);
    make_pages(b, &random);
    make_runner(b);
}

static void close_cell(bench *b) {
    const fig_cu_address addresses[] = {b->d_q, b->d_out, b->d_cache, b->d_tables, b->d_scratch};
    void *const memories[] = {b->q, b->cache, b->tables, b->seen, b->before};
    CU(GraphExecDestroy, b->exec);
    CU(GraphDestroy, b->graph);
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++)
        CU(MemFree, addresses[i]);
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++)
        free(memories[i]);
    fig_runner_close(b->runner);
    fig_graphs_destroy(b->graphs);
    fig_program_destroy(b->program);
}

/* ---- Times ----------------------------------------------------------------------------------- */

static void capture(bench *b) {
    fig_cu_instantiate_params wish = {0};
    CU(StreamBeginCapture, fig_gpu_caller.stream, FIG_CU_CAPTURE_RELAXED);
    OK(fig_runner_run(b->runner, &b->run));
    CU(StreamEndCapture, fig_gpu_caller.stream, &b->graph);
    CU(GraphInstantiateWithParams, &b->exec, b->graph, &wish);
}

static void read_out(const bench *b, uint16_t *to) {
    const cell *c = &b->c;
    const size_t vectors = (size_t)c->rows * (size_t)c->row_tokens * (size_t)c->heads;
    CU(MemcpyAsync, (fig_cu_address)(uintptr_t)to, b->d_out, vectors * OUT * 2,
       fig_gpu_caller.stream);
    CU(StreamSynchronize, fig_gpu_caller.stream);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double replay_us(const bench *b) {
    fig_cu_event from, to;
    float ms = 0;
    CU(EventCreate, &from, 0);
    CU(EventCreate, &to, 0);
    CU(EventRecord, from, fig_gpu_caller.stream);
    CU(GraphLaunch, b->exec, fig_gpu_caller.stream);
    CU(EventRecord, to, fig_gpu_caller.stream);
    alarm(HANG_S);
    CU(EventSynchronize, to);
    alarm(0);
    CU(EventElapsedTime, &ms, from, to);
    CU(EventDestroy, from);
    CU(EventDestroy, to);
    return (double)ms * 1e3 / b->launches;
}

static void time_cell(bench *b) {
    const cell *c = &b->c;
    const size_t vectors = (size_t)c->rows * (size_t)c->row_tokens * (size_t)c->heads;
    double times[ROUNDS];
    capture(b);
    replay_us(b);
    read_out(b, b->before);
    for (int32_t i = 0; i < ROUNDS; i++)
        times[i] = replay_us(b);
    read_out(b, b->seen);
    b->same = memcmp(b->seen, b->before, vectors * OUT * 2) == 0;
    qsort(times, ROUNDS, sizeof times[0], by_size);
    b->us = times[ROUNDS / 2];
}

/* ---- Truth ----------------------------------------------------------------------------------- */

static void check_cell(bench *b) {
    const cell *c = &b->c;
    fig_random random = fig_random_seed(3);
    const truth_cache cache = {.base = b->cache,
                               .dtype = FIG_BF16,
                               .page_stride = (int64_t)c->page_size * Q,
                               .token_stride = Q,
                               .pages = b->pages,
                               .page_size = c->page_size,
                               .page_table = b->tables,
                               .table_stride = b->columns};
    double squares = 0, values = 0;
    for (int32_t i = 0; i < SAMPLES; i++) {
        const int32_t row = fig_random_range(&random, 0, c->rows - 1);
        const int32_t query = fig_random_range(&random, 0, c->row_tokens - 1);
        const int32_t head = fig_random_range(&random, 0, c->heads - 1);
        const int64_t number = (int64_t)row * c->row_tokens + query;
        truth_latent_result truth;
        truth_latent(&(truth_latent_args){.q = {b->q, FIG_BF16, (int64_t)c->heads * Q, Q},
                                          .cache = cache,
                                          .row = number,
                                          .sequence = row,
                                          .length = c->length - c->row_tokens + 1 + query,
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

static void print_cell(const bench *b) {
    const cell *c = &b->c;
    const double limit = limit_of(c);
    printf("%d,%d,%d,%d,%d,%s,%.2f,%.2f,%.3f,%.5f,%d\n", c->heads, c->rows, c->length,
           c->row_tokens, c->page_size, b->family, b->us, limit, limit / b->us, b->error, b->same);
    fflush(stdout);
}

/* Returns cell i of those that the command line names, or of the table. */
static cell cell_of(int argc, char **argv, int i) {
    cell c = {.row_tokens = 1, .page_size = 64};
    if (argc <= 2) return cells[i];
    if (sscanf(argv[2 + i], "%dx%dx%dx%dx%d", &c.heads, &c.rows, &c.length, &c.row_tokens,
               &c.page_size) < 3)
        fail_msg("%s: not heads x rows x tokens", argv[2 + i]);
    return c;
}

int main(int argc, char **argv) {
    const int seconds = argc > 1 ? atoi(argv[1]) : 180, count = argc > 2 ? argc - 2 : CELLS;
    int failed = 0;
    void *state = NULL;
    alarm(HANG_S);
    if (fig_gpu_caller_set_up(&state) != 0) return 2;
    deadline_ns = (uint64_t)fig_clock_ns() + (uint64_t)seconds * 1000000000u;
    printf("heads,rows,length,row_tokens,page_size,family,us,limit_us,share,error,same\n");
    for (int i = 0; i < count; i++) {
        static bench b;
        if ((uint64_t)fig_clock_ns() > deadline_ns) break;
        b = (bench){.c = cell_of(argc, argv, i)};
        alarm(HANG_S);
        open_cell(&b);
        time_cell(&b);
        alarm(HANG_S);
        check_cell(&b);
        print_cell(&b);
        failed |= !b.same || !(b.error < ERROR_LIMIT);
        close_cell(&b);
    }
    return fig_gpu_caller_tear_down(&state) != 0 || failed;
}
