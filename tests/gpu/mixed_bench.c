/* mixed_bench.c: times engine steps that hold a chunk of a prompt beside rows of one query token.
 *
 *     build/release/tests/gpu/mixed_bench [--steps N] [SECONDS]
 *
 * No cell begins after SECONDS, 180 by default. A step appends the tokens of all rows and computes
 * attention, in several layers, whose caches together exceed 300 MB. Pages lie in random order.
 * Prints CSV: for each cell, the microseconds of a layer in a step with the single tokens alone,
 * with the chunk alone, and with both; both divided by the sum of the two; and the rms difference
 * of the chunk in both from that alone, relative to the rms of the values. A time is the median of
 * seven series of N steps, 16 by default, divided by steps and layers. The program does not judge
 * the times. It exits with 1 if the results differ by more than rounding. SIGALRM ends the program
 * if a step hangs.
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
#include "tests/support/steps/layer_bench.h"
#include "tools/figraph/truth/truth_attention.h"

enum {
    LAYERS = 8,
    ROW_LIMIT = 130,
    OF_TOKEN = FIG_LAYER_BENCH_Q_HEADS * FIG_LAYER_BENCH_HEAD_DIM /* values of a token's result */
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
static int32_t series_steps = 16;

/* What a step holds. */
enum { SINGLES, CHUNK, BOTH, KINDS };

typedef struct bench {
    cell c;
    fig_layer_bench of;
    int kind;       /* of the steps that run */
    int32_t *order; /* the pages in random order */
    fig_graphs *graphs;
    fig_engine *engine;
    uint16_t *out[KINDS]; /* [tokens][OF_TOKEN] the results of the last layer */
    double us[KINDS];
} bench;

static int is_host(void) {
    return fig_place_device() == FIG_DEVICE_HOST;
}

static void set_pages(const bench *b) {
    const int32_t *next = b->order;
    for (int32_t row = 0; row < b->of.rows; row++)
        next =
            fig_layer_bench_lend(b->engine, row, row > 0 ? b->c.single_length : b->c.length, next);
}

static void open_cell(bench *b) {
    const cell *c = &b->c;
    b->of =
        (fig_layer_bench){.rows = c->singles + 1,
                          .kv_limit = c->length > c->single_length ? c->length : c->single_length,
                          .row_tokens = c->queries,
                          .tokens = c->queries + c->singles,
                          .layers = is_host() ? 1 : LAYERS,
                          .pages = fig_layer_bench_pages(c->length) +
                                   c->singles * fig_layer_bench_pages(c->single_length)};
    b->order = fig_layer_bench_order(&b->of);
    b->graphs = fig_layer_bench_lower(&b->of);
    fig_engine_options options = fig_place_options();
    void *const stream = fig_gpu_caller.stream;
    if (!is_host()) options.stream = &stream;
    OK(fig_engine_open(&b->engine, b->graphs, &options));
    fig_layer_bench_bind(&b->of, b->engine);
    set_pages(b);
    for (int kind = 0; kind < KINDS; kind++)
        b->out[kind] = fig_layer_bench_allocate(fig_layer_bench_out_bytes(&b->of));
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
static void run_steps(void *of, int32_t count) {
    const bench *b = of;
    int32_t lengths[ROW_LIMIT] = {0}, counts[ROW_LIMIT] = {0};
    if (b->kind != SINGLES) {
        lengths[0] = b->c.length;
        counts[0] = b->c.queries;
    }
    for (int32_t row = 1; row < b->of.rows && b->kind != CHUNK; row++) {
        lengths[row] = b->c.single_length;
        counts[row] = 1;
    }
    for (int32_t n = 0; n < count; n++) {
        fig_status status;
        do
            status = fig_engine_step(b->engine,
                                     FIG_OPTIONS(fig_step, .rows = b->of.rows,
                                                 .kv_lengths = lengths, .query_counts = counts));
        while (status == FIG_BUSY);
        OK(status);
    }
}

static void time_kind(bench *b, int kind) {
    const uint64_t bytes = fig_layer_bench_out_bytes(&b->of);
    b->kind = kind;
    b->us[kind] = fig_layer_bench_time(&b->of, b->engine, series_steps, run_steps, b);
    OK(fig_engine_read(b->engine, FIG_OPTIONS(fig_span, .name = "out", .bytes = bytes),
                       b->out[kind]));
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Compares the rows of a step with those of the step that held both. A step's query tokens are
 * packed, so those of single rows come first if there is no chunk, and have other queries then. */
static double difference_of(const bench *b) {
    const int64_t count = (int64_t)b->c.queries * OF_TOKEN;
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
    alarm(FIG_LAYER_BENCH_HANG_S);
    open_cell(&b);
    for (int kind = 0; kind < KINDS; kind++)
        time_kind(&b, kind);
    const double error = difference_of(&b);
    printf("%d,%d,%d,%d,%d,%.2f,%.2f,%.2f,%.3f,%.5f\n", c->queries, c->length, c->singles,
           c->single_length, b.of.layers, b.us[SINGLES], b.us[CHUNK], b.us[BOTH],
           b.us[BOTH] / (b.us[SINGLES] + b.us[CHUNK]), error);
    fflush(stdout);
    close_cell(&b);
    return !(error < ERROR_LIMIT);
}

int main(int argc, char **argv) {
    series_steps = fig_layer_bench_steps_asked(&argc, &argv, series_steps);
    const int seconds = argc > 1 ? atoi(argv[1]) : 180;
    const int64_t deadline_ns = fig_clock_ns() + (int64_t)seconds * 1000000000;
    int failed = 0;
    void *state = NULL;
    alarm(FIG_LAYER_BENCH_HANG_S);
    if (!is_host() && fig_gpu_caller_set_up(&state) != 0) return 2;
    printf("queries,length,singles,single_length,layers,us_singles,us_chunk,us_both,of_parts,"
           "error\n");
    if (is_host()) return run_cell(&small);
    for (size_t i = 0; i < sizeof cells / sizeof cells[0] && fig_clock_ns() < deadline_ns; i++)
        failed |= run_cell(&cells[i]);
    return fig_gpu_caller_tear_down(&state) != 0 || failed;
}
