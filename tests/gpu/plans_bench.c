/* plans_bench.c: times what it costs that the device plans chunks of prompts, instead of the host.
 *
 *     build/release/tests/gpu/plans_bench [SECONDS]      default 120
 *
 * No cell begins after SECONDS. Two engines run the same steps of several layers: in one the host
 * gives the lengths, in the other the device reads them and makes the plan. Prints CSV: for each
 * cell and each kind of step, the microseconds of a whole step with the host's and with the
 * device's plan, and their difference. That difference is the time of the launch that makes the
 * plan, less what the host's plan takes to cross the bus. A time is the median of seven series of
 * steps. The program exits with 1 if a value differs between the two engines in any bit. SIGALRM
 * ends the program if a step hangs. FIG_DEVICE=host runs one small cell. */
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
#include "tests/support/steps/layer_bench.h"

enum { STEPS = 16, LAYERS = 2, ROW_LIMIT = 1024 };

/* Rows [0, chunks) have `queries` query tokens each, and see `length` tokens. Behind them are
 * `singles` rows of one query token, over `single_length` tokens. */
typedef struct cell {
    int32_t chunks, queries, length, singles, single_length;
} cell;

static const cell cells[] = {{1, 2048, 8192, 64, 2048},
                             {1, 512, 2048, 64, 1024},
                             {1, 4096, 16384, 8, 1024},
                             {32, 64, 2048, 64, 1024},
                             {200, 9, 512, 200, 512}};
static const cell small = {2, 40, 200, 3, 50};

/* What a step holds. Rows that are not part of it are idle. */
enum { SINGLES, CHUNKS, BOTH, KINDS };
static const char *const kinds[KINDS] = {"singles", "chunks", "both"};

typedef struct bench {
    cell c;
    int kind;
    fig_layer_bench of;
    int32_t *order; /* the pages in random order */
    fig_graphs *graphs;
    fig_engine *engine;
    uint8_t *out[KINDS];
    double us[KINDS];
} bench;

static int is_host(void) {
    return fig_place_device() == FIG_DEVICE_HOST;
}

static void set_pages(const bench *b) {
    const int32_t *next = b->order;
    for (int32_t row = 0; row < b->of.rows; row++)
        next = fig_layer_bench_lend(b->engine, row,
                                    row < b->c.chunks ? b->c.length : b->c.single_length, next);
}

static void open_bench(bench *b, const cell *c, int32_t on_device) {
    *b = (bench){.c = *c};
    b->of =
        (fig_layer_bench){.rows = c->chunks + c->singles,
                          .kv_limit = c->length > c->single_length ? c->length : c->single_length,
                          .row_tokens = c->queries > 16 ? c->queries : 17,
                          .tokens = c->chunks * c->queries + c->singles,
                          .layers = is_host() ? 1 : LAYERS,
                          .pages = c->chunks * fig_layer_bench_pages(c->length) +
                                   c->singles * fig_layer_bench_pages(c->single_length),
                          .on_device = on_device};
    b->order = fig_layer_bench_order(&b->of);
    b->graphs = fig_layer_bench_lower(&b->of);
    fig_engine_options options = fig_place_options();
    void *const stream = fig_gpu_caller.stream;
    if (!is_host()) options.stream = &stream;
    options.share = -1; /* the device makes no groups */
    OK(fig_engine_open(&b->engine, b->graphs, &options));
    fig_layer_bench_bind(&b->of, b->engine);
    set_pages(b);
    for (int kind = 0; kind < KINDS; kind++)
        b->out[kind] = fig_layer_bench_allocate(fig_layer_bench_out_bytes(&b->of));
}

static void close_bench(bench *b) {
    for (int kind = 0; kind < KINDS; kind++)
        free(b->out[kind]);
    fig_engine_close(b->engine);
    fig_graphs_destroy(b->graphs);
    free(b->order);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

typedef struct step_rows {
    int32_t lengths[ROW_LIMIT], counts[ROW_LIMIT], starts[ROW_LIMIT + 1];
} step_rows;

static step_rows rows_of(const bench *b) {
    step_rows rows = {.starts = {0}};
    for (int32_t row = 0; row < b->of.rows; row++) {
        const int is_chunk = row < b->c.chunks;
        if (b->kind == BOTH || (b->kind == CHUNKS) == is_chunk) {
            rows.lengths[row] = is_chunk ? b->c.length : b->c.single_length;
            rows.counts[row] = is_chunk ? b->c.queries : 1;
        }
        rows.starts[row + 1] = rows.starts[row] + rows.counts[row];
    }
    return rows;
}

static void run_steps(void *of, int32_t count) {
    const bench *b = of;
    const step_rows rows = rows_of(b);
    for (int32_t n = 0; n < count; n++) {
        /* the first bucket, so that both engines run the same variant */
        fig_step step = {.size = sizeof step, .rows = b->of.rows, .bucket = 1};
        if (!b->of.on_device) {
            step.kv_lengths = rows.lengths;
            step.query_counts = rows.counts;
        }
        fig_status status;
        do
            status = fig_engine_step(b->engine, &step);
        while (status == FIG_BUSY);
        OK(status);
    }
}

static void write_rows(const bench *b) {
    const step_rows rows = rows_of(b);
    const uint64_t bytes = (uint64_t)b->of.rows * sizeof(int32_t);
    if (!b->of.on_device) return;
    OK(fig_engine_write(b->engine, FIG_OPTIONS(fig_span, .name = "lengths", .bytes = bytes),
                        rows.lengths));
    OK(fig_engine_write(
        b->engine, FIG_OPTIONS(fig_span, .name = "query_starts", .bytes = bytes + 4), rows.starts));
}

static void time_kinds(bench *b) {
    const uint64_t bytes = fig_layer_bench_out_bytes(&b->of);
    for (b->kind = 0; b->kind < KINDS; b->kind++) {
        write_rows(b);
        b->us[b->kind] =
            fig_layer_bench_time(&b->of, b->engine, STEPS, run_steps, b) * b->of.layers;
        OK(fig_engine_read(b->engine, FIG_OPTIONS(fig_span, .name = "out", .bytes = bytes),
                           b->out[b->kind]));
    }
}

/* Runs a cell and prints it; returns 1 if its results differ. */
static int run_cell(const cell *c) {
    static bench host, device; /* too large for the stack */
    int differ = 0;
    alarm(FIG_LAYER_BENCH_HANG_S);
    open_bench(&host, c, 0);
    time_kinds(&host);
    open_bench(&device, c, 1);
    time_kinds(&device);
    for (int kind = 0; kind < KINDS; kind++) {
        const size_t bytes = (size_t)fig_layer_bench_out_bytes(&host.of);
        const int same = memcmp(host.out[kind], device.out[kind], bytes) == 0;
        printf("%d,%d,%d,%d,%d,%s,%.2f,%.2f,%.2f,%d\n", c->chunks, c->queries, c->length,
               c->singles, c->single_length, kinds[kind], host.us[kind], device.us[kind],
               device.us[kind] - host.us[kind], same);
        differ |= !same;
    }
    fflush(stdout);
    close_bench(&host);
    close_bench(&device);
    return differ;
}

int main(int argc, char **argv) {
    const int seconds = argc > 1 ? atoi(argv[1]) : 120;
    const int64_t deadline_ns = fig_clock_ns() + (int64_t)seconds * 1000000000;
    int failed = 0;
    void *state = NULL;
    alarm(FIG_LAYER_BENCH_HANG_S);
    if (!is_host() && fig_gpu_caller_set_up(&state) != 0) return 2;
    printf("chunks,queries,length,singles,single_length,kind,us_host,us_device,us_more,same\n");
    if (is_host()) return run_cell(&small);
    for (size_t i = 0; i < sizeof cells / sizeof cells[0] && fig_clock_ns() < deadline_ns; i++)
        failed |= run_cell(&cells[i]);
    return fig_gpu_caller_tear_down(&state) != 0 || failed;
}
