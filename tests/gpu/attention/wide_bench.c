/* wide_bench.c: times attention over chunks of prompts, in a chain of launches with cold caches.
 *
 *     build/release/tests/gpu/attention/wide_bench [SECONDS [mixed | CELL...]]      default 180
 *
 * No cell begins after these seconds. "mixed" selects the steps of a chunk beside rows of one query
 * token, and their two parts. A CELL is rows x query tokens x tokens, as in 1x2048x8192; x head_dim
 * may follow. Prints CSV. For each cell, it gives the microseconds of a launch in a chain of
 * launches with programmatic edges, and the TFLOP/s of the pairs of query and token that attention
 * computes. of_parts: the time of a mixed step divided by the sum of the times of its
 * parts, which are cells of their own; 0 for other cells. The cache is cold: a graph's launches use
 * several copies of the pages in turn, which are more than 300 MB together, and each copy has its
 * pages in random order. A time is the median of seven replays, divided by the number of launches.
 * A sample of each cell's output vectors is compared with float64, and the bits after the last
 * replay with those of the first: columns `error`, the rms error relative to the rms of the values,
 * and `same`, 1 if the bits agree. The times are not judged. Exits with 1 if bits differ or the
 * error is above 0.004. SIGALRM ends the program if a launch hangs. FIG_DEVICE=host runs a small
 * mixed step and its parts. */
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
#include "include/figraph_prompts.h"
#include "tests/support/driver/device_bench.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth_attention.h"

enum { COPY_LIMIT = 64, LAUNCH_LIMIT = 64, SAMPLES = 48, ROW_LIMIT = 260 };
#define COLD_BYTES 300e6
#define ERROR_LIMIT 0.004

typedef struct cell {
    /* `rows` rows of `queries` query tokens; the last query sees `length` tokens */
    int32_t rows, queries, length;
    int32_t singles, single_length; /* `singles` more rows of one query token */
    int32_t q_heads, kv_heads, head_dim, page_size;
} cell;

/* The parts of each mixed step come before it: the rows of one query token, then the chunk. */
static const cell mixed[] = {
    {0, 0, 0, 64, 2048, 32, 8, 128, 16},       {1, 2048, 8192, 0, 0, 32, 8, 128, 16},
    {1, 2048, 8192, 64, 2048, 32, 8, 128, 16}, {0, 0, 0, 128, 1024, 32, 8, 128, 16},
    {1, 512, 8192, 0, 0, 32, 8, 128, 16},      {1, 512, 8192, 128, 1024, 32, 8, 128, 16}};
static const cell chunks[] = {
    {1, 128, 2048, 0, 0, 32, 8, 128, 16},   {1, 128, 8192, 0, 0, 32, 8, 128, 16},
    {1, 128, 32768, 0, 0, 32, 8, 128, 16},  {1, 512, 2048, 0, 0, 32, 8, 128, 16},
    {1, 512, 32768, 0, 0, 32, 8, 128, 16},  {1, 2048, 2048, 0, 0, 32, 8, 128, 16},
    {1, 2048, 32768, 0, 0, 32, 8, 128, 16}, {4, 512, 4096, 0, 0, 32, 8, 128, 16},
    {8, 64, 4096, 0, 0, 32, 8, 128, 16},    {1, 2048, 8192, 0, 0, 32, 8, 64, 16},
    {1, 2048, 8192, 0, 0, 32, 8, 96, 16},   {1, 2048, 8192, 0, 0, 16, 4, 256, 16},
    {1, 512, 8192, 0, 0, 16, 4, 256, 16},   {1, 512, 8192, 0, 0, 32, 8, 64, 16},
    {1, 2048, 8192, 0, 0, 32, 8, 128, 64},  {1, 2048, 8192, 0, 0, 32, 8, 128, 1}};
static const cell small[] = {{0, 0, 0, 3, 50, 4, 2, 64, 16},
                             {1, 40, 90, 0, 0, 4, 2, 64, 16},
                             {1, 40, 90, 3, 50, 4, 2, 64, 16}};

typedef struct bench {
    cell c;
    int32_t rows, tokens, columns, copies, launches;
    int64_t pages; /* pages of one copy */
    int32_t starts[ROW_LIMIT], lengths[ROW_LIMIT];
    fig_prompts *prompts;
    fig_prompts_memory memory;
    uint16_t *q, *k, *v; /* host arrays; every copy of the pages has the same contents */
    int32_t *table;      /* the page table of copy 0 */
    uint16_t *seen, *before;
    void *d_q, *d_out, *d_k, *d_v, *d_plan, *d_scratch;
    int32_t *d_table;
    fig_device_bench_graph graph;
    double us, error;
    int same;
} bench;

/* ---- A cell ---------------------------------------------------------------------------------- */

static void lay_out(bench *b) {
    const cell *c = &b->c;
    b->rows = c->rows + c->singles;
    for (int32_t r = 0; r < b->rows; r++) {
        const int32_t queries = r < c->rows ? c->queries : 1;
        b->lengths[r] = r < c->rows ? c->length : c->single_length;
        b->starts[r + 1] = b->starts[r] + queries;
        const int32_t pages = (b->lengths[r] + c->page_size - 1) / c->page_size;
        b->pages += pages;
        if (pages > b->columns) b->columns = pages;
    }
    b->tokens = b->starts[b->rows];
    const double bytes = (double)b->pages * c->page_size * c->kv_heads * c->head_dim * 4;
    b->copies = (int32_t)(COLD_BYTES / bytes) + 2;
    if (b->copies > COPY_LIMIT) b->copies = COPY_LIMIT;
    b->launches = b->copies > 16 ? b->copies : 16;
    if (b->launches > LAUNCH_LIMIT) b->launches = LAUNCH_LIMIT;
    if ((int64_t)c->rows * c->queries * c->length > 32 << 20) b->launches = 2 * b->copies;
    if (fig_device_bench_is_host()) b->launches = b->copies = 2;
}

static void *make_copies(const void *from, size_t bytes, int32_t copies) {
    uint8_t *to = fig_device_bench_allocate(bytes * (size_t)copies);
    fig_device_bench_copy(to, from, bytes);
    fig_device_bench_repeat(to, bytes * (size_t)copies, bytes);
    return to;
}

/* Each copy has pages of its own, in another order, but the same contents at each place of a
 * row. */
static void make_pages(bench *b, fig_random *random) {
    const cell *c = &b->c;
    const size_t page = (size_t)c->page_size * (size_t)c->kv_heads * (size_t)c->head_dim;
    const size_t table = (size_t)b->rows * (size_t)b->columns;
    const size_t all = page * (size_t)b->pages * 2;
    int32_t *order = fig_device_bench_memory((size_t)b->pages * sizeof *order);
    int32_t *tables = fig_device_bench_memory(table * (size_t)b->copies * sizeof *tables);
    memset(tables, 0, table * (size_t)b->copies * sizeof *tables);
    b->k = fig_device_bench_memory(all);
    b->v = fig_device_bench_memory(all);
    fig_device_bench_fill(b->k, all / 2, random);
    fig_device_bench_fill(b->v, all / 2, random);
    for (int32_t i = 0; i < b->pages; i++)
        order[i] = i;
    for (int32_t i = (int32_t)b->pages - 1; i > 0; i--) {
        const int32_t j = fig_random_range(random, 0, i), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int32_t copy = 0; copy < b->copies; copy++) {
        int64_t next = 0;
        for (int32_t r = 0; r < b->rows; r++)
            for (int32_t i = 0; i < (b->lengths[r] + c->page_size - 1) / c->page_size; i++)
                tables[(size_t)copy * table + (size_t)r * (size_t)b->columns + (size_t)i] =
                    order[next++] + copy * (int32_t)b->pages;
    }
    b->d_k = make_copies(b->k, all, b->copies);
    b->d_v = make_copies(b->v, all, b->copies);
    b->d_table = fig_device_bench_upload(tables, table * (size_t)b->copies * sizeof *tables);
    b->table = tables;
    free(order);
}

static void make_plan(bench *b) {
    const fig_prompts_step step = {.size = sizeof step,
                                   .rows = b->rows,
                                   .query_start = b->starts,
                                   .lengths = b->lengths,
                                   .page_columns = b->columns};
    b->memory.size = sizeof b->memory;
    OK(fig_prompts_measure(b->prompts, b->rows, b->tokens, &b->memory));
    void *plan = fig_device_bench_memory(b->memory.plan_bytes);
    const int64_t begin = fig_clock_ns();
    OK(fig_prompts_plan(b->prompts, &step, plan, b->memory.plan_bytes));
    fprintf(stderr, "plan %.1f us\n", (double)(fig_clock_ns() - begin) / 1e3);
    b->d_plan = fig_device_bench_upload(plan, b->memory.plan_bytes);
    b->d_scratch = fig_device_bench_allocate(b->memory.scratch_bytes);
    free(plan);
}

static void open_cell(bench *b) {
    const cell *c = &b->c;
    fig_random random = fig_random_seed(11);
    const fig_engine_options place = fig_place_options();
    const fig_prompts_options options = {.size = sizeof options,
                                         .device = place.device,
                                         .dtype = FIG_BF16,
                                         .q_heads = c->q_heads,
                                         .kv_heads = c->kv_heads,
                                         .head_dim = c->head_dim,
                                         .page_size = c->page_size,
                                         .test = place.test};
    OK(fig_prompts_open(&b->prompts, &options));
    lay_out(b);
    const size_t out = (size_t)b->tokens * (size_t)c->q_heads * (size_t)c->head_dim;
    b->q = fig_device_bench_memory(out * 2);
    b->seen = fig_device_bench_memory(out * 2);
    b->before = fig_device_bench_memory(out * 2);
    fig_device_bench_fill(b->q, out, &random);
    b->d_q = fig_device_bench_upload(b->q, out * 2);
    b->d_out = fig_device_bench_allocate(out * 2);
    make_pages(b, &random);
    make_plan(b);
}

static void close_cell(bench *b) {
    void *const device[] = {b->d_q, b->d_out, b->d_k, b->d_v, b->d_table, b->d_plan, b->d_scratch};
    void *const memories[] = {b->q, b->k, b->v, b->table, b->seen, b->before};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
        fig_device_bench_free(device[i]);
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++)
        free(memories[i]);
    fig_prompts_close(b->prompts);
}

/* ---- Times ----------------------------------------------------------------------------------- */

static void run_copy(const bench *b, int32_t copy) {
    const size_t table = (size_t)b->rows * (size_t)b->columns;
    OK(fig_prompts_run(b->prompts,
                       FIG_OPTIONS(fig_prompts_call, .tokens = b->tokens, .plan = b->d_plan,
                                   .q = b->d_q, .out = b->d_out, .k_cache = b->d_k,
                                   .v_cache = b->d_v, .pages = b->pages * b->copies,
                                   .page_table = b->d_table + table * (size_t)copy,
                                   .table_stride = b->columns, .scratch = b->d_scratch,
                                   .scratch_bytes = b->memory.scratch_bytes, .early_reads = 1,
                                   .stream = fig_gpu_caller.stream)));
}

static void enqueue(const void *of) {
    const bench *b = of;
    for (int32_t i = 0; i < b->launches; i++)
        run_copy(b, i % b->copies);
}

static void time_cell(bench *b) {
    const size_t bytes = (size_t)b->tokens * (size_t)b->c.q_heads * (size_t)b->c.head_dim * 2;
    b->graph = (fig_device_bench_graph){.enqueue = enqueue, .of = b};
    fig_device_bench_capture(&b->graph);
    fig_device_bench_replay(&b->graph);
    fig_device_bench_copy(b->before, b->d_out, bytes);
    b->us = fig_device_bench_median(&b->graph) / b->launches;
    fig_device_bench_copy(b->seen, b->d_out, bytes);
    b->same = memcmp(b->seen, b->before, bytes) == 0;
    fig_device_bench_drop(&b->graph);
}

/* ---- Truth ----------------------------------------------------------------------------------- */

static void check_cell(bench *b) {
    const cell *c = &b->c;
    fig_random random = fig_random_seed(3);
    const int64_t token = (int64_t)c->kv_heads * c->head_dim;
    const truth_cache k = {b->k,         FIG_BF16,    token * c->page_size,
                           token,        c->head_dim, b->pages,
                           c->page_size, b->table,    b->columns};
    truth_cache v = k;
    double squares = 0, values = 0;
    v.base = b->v;
    for (int32_t i = 0; i < SAMPLES; i++) {
        const int32_t row = fig_random_range(&random, 0, b->rows - 1);
        const int32_t queries = b->starts[row + 1] - b->starts[row];
        const int32_t query = fig_random_range(&random, 0, queries - 1);
        const int32_t head = fig_random_range(&random, 0, c->q_heads - 1);
        const int64_t vector = (int64_t)(b->starts[row] + query) * c->q_heads + head;
        truth_attention_result truth;
        truth_attention(
            &(truth_attention_args){
                .q = {b->q, FIG_BF16, (int64_t)c->q_heads * c->head_dim, c->head_dim},
                .k = k,
                .v = v,
                .row = b->starts[row] + query,
                .sequence = row,
                .length = b->lengths[row] - queries + 1 + query,
                .q_head = head,
                .kv_head = head / (c->q_heads / c->kv_heads),
                .head_dim = c->head_dim,
                .sm_scale = 1 / sqrt(c->head_dim)},
            &truth);
        for (int32_t d = 0; d < c->head_dim; d++) {
            const double off =
                truth_load(b->seen, FIG_BF16, vector * c->head_dim + d) - truth.out[d];
            squares += off * off;
            values += truth.out[d] * truth.out[d];
        }
    }
    b->error = sqrt(squares / values);
}

static double flops_of(const bench *b) {
    double pairs = 0;
    for (int32_t r = 0; r < b->rows; r++) {
        const double n = b->starts[r + 1] - b->starts[r], length = b->lengths[r];
        pairs += n * (length - n) + n * (n + 1) / 2;
    }
    return 4 * pairs * b->c.q_heads * b->c.head_dim;
}

static void print_cell(const bench *b, double parts_us) {
    const cell *c = &b->c;
    printf("%d,%d,%d,%d,%d,%d,%d,%d,%d,%.2f,%.1f,%.5f,%d,%.3f\n", c->rows, c->queries, c->length,
           c->singles, c->single_length, c->q_heads, c->kv_heads, c->head_dim, c->page_size, b->us,
           flops_of(b) / b->us / 1e6, b->error, b->same, parts_us > 0 ? b->us / parts_us : 0);
    fflush(stdout);
}

/* Measures cells; a mixed one follows its two parts. Returns 1 if results are wrong. */
static int run_cells(const cell *cells, size_t count, int64_t deadline_ns) {
    double before_us[2] = {0}; /* of the two preceding cells */
    int failed = 0;
    for (size_t i = 0; i < count && fig_clock_ns() < deadline_ns; i++) {
        bench b = {.c = cells[i]};
        alarm(FIG_DEVICE_BENCH_HANG_S);
        open_cell(&b);
        time_cell(&b);
        alarm(FIG_DEVICE_BENCH_HANG_S);
        check_cell(&b);
        print_cell(&b, b.c.rows > 0 && b.c.singles > 0 ? before_us[0] + before_us[1] : 0);
        before_us[0] = before_us[1];
        before_us[1] = b.us;
        failed |= !b.same || !(b.error < ERROR_LIMIT);
        close_cell(&b);
    }
    return failed;
}

/* Runs the cells that the command line names: all of 32/8 heads and pages of 16, of which 256 dims
 * get half. */
static int run_named(char **names, int count, int64_t deadline_ns) {
    int failed = 0;
    for (int i = 0; i < count; i++) {
        cell c = {.q_heads = 32, .kv_heads = 8, .head_dim = 128, .page_size = 16};
        if (sscanf(names[i], "%dx%dx%dx%d", &c.rows, &c.queries, &c.length, &c.head_dim) < 3)
            fail_msg("%s: not rows x query tokens x tokens", names[i]);
        if (c.head_dim == 256) c.q_heads = 16, c.kv_heads = 4;
        failed |= run_cells(&c, 1, deadline_ns);
    }
    return failed;
}

int main(int argc, char **argv) {
    const int seconds = argc > 1 ? atoi(argv[1]) : 180;
    const int64_t deadline_ns = fig_clock_ns() + (int64_t)seconds * 1000000000;
    int failed;
    if (fig_device_bench_set_up() != 0) return 2;
    printf("rows,queries,length,singles,single_length,q_heads,kv_heads,head_dim,page_size,us,"
           "tflops,error,same,of_parts\n");
    if (fig_device_bench_is_host()) {
        failed = run_cells(small, sizeof small / sizeof small[0], deadline_ns);
    } else {
        const int is_named = argc > 2 && strcmp(argv[2], "mixed") != 0;
        failed = is_named ? run_named(argv + 2, argc - 2, deadline_ns)
                          : run_cells(mixed, sizeof mixed / sizeof mixed[0], deadline_ns);
        if (argc <= 2) failed |= run_cells(chunks, sizeof chunks / sizeof chunks[0], deadline_ns);
    }
    return fig_device_bench_tear_down() != 0 || failed;
}
