/* share_bench.c: times engine steps whose rows begin with the same pages, with groups and without.
 *
 *     build/release/tests/gpu/share_bench [--steps N] [SECONDS [ROWS PREFIX [OWN]]]
 *
 * No cell begins after SECONDS, 180 by default. ROWS and PREFIX select a single cell, and OWN the
 * tokens of a row behind the prefix, 256 by default. A step appends one token of each row and
 * computes attention, in 16 layers. A third way to run a cell shares pages and appends nothing, so
 * its launches of attention form a chain. The caches of all layers together exceed 200 MB, so no
 * layer begins with its pages in L2. If every row reads all of its pages, the first row brings
 * those of the prefix there. Pages lie in random order. Prints CSV: for each cell, the microseconds
 * of a layer in a step whose rows read all of their pages, and in one whose rows share them; the
 * host's microseconds of staging and launching a step, for both; the bytes of a plan, for both; the
 * KV tokens that groups read and save; the rms difference of both results, relative to the rms of
 * the values; and the microseconds of a layer of the third way. A time is the median of seven
 * series of N steps, divided by steps and layers. N is 32 by default; in so long series, power
 * limits the GPU. The program does not judge the times. It exits with 1 if the results differ by
 * more than rounding, or if rows share nothing.
 * SIGALRM ends the program if a step hangs.
 * FIG_DEVICE=host runs one cell, a small one by default. */
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
    LAYERS = 16,
    PAGE = FIG_LAYER_BENCH_PAGE,
    OF_TOKEN = FIG_LAYER_BENCH_Q_HEADS * FIG_LAYER_BENCH_HEAD_DIM, /* values of a token's result */
    ROW_LIMIT = 256
};
#define ERROR_LIMIT 0.004

static int32_t own_tokens = 256, series_steps = 32;

typedef struct cell {
    int32_t rows, prefix;
} cell;

static const cell cells[] = {{4, 2048},   {4, 8192},   {16, 2048},  {16, 8192},
                             {16, 32768}, {64, 2048},  {64, 8192},  {64, 32768},
                             {256, 2048}, {256, 8192}, {256, 32768}};
static const cell small = {4, 512};

/* The ways to run a cell: without groups, with groups, and attention alone with groups. */
enum { UNSHARED, SHARED, ATTENTION, WAYS };
typedef struct way {
    fig_layer_bench of;
    fig_graphs *graphs;
    fig_engine *engine;
    uint16_t *out; /* [rows][OF_TOKEN] the result of the last layer */
    double us, host_us;
    fig_engine_stats stats;
} way;

typedef struct bench {
    cell c;
    int32_t lengths[ROW_LIMIT], counts[ROW_LIMIT];
    int32_t *order; /* the pages in random order */
    way ways[WAYS];
} bench;

static int is_host(void) {
    return fig_place_device() == FIG_DEVICE_HOST;
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

static void open_way(const bench *b, way *w, int32_t shares) {
    fig_engine_options options = fig_place_options();
    void *const stream = fig_gpu_caller.stream;
    options.share = shares ? 1 : -1;
    if (!is_host()) options.stream = &stream;
    w->graphs = fig_layer_bench_lower(&w->of);
    OK(fig_engine_open(&w->engine, w->graphs, &options));
    if (shares && fig_engine_sharing(w->engine) != NULL)
        fail_msg("nothing is shared: %s", fig_engine_sharing(w->engine));
    fig_layer_bench_bind(&w->of, w->engine);
    set_pages(b, w);
    w->out = fig_layer_bench_allocate(fig_layer_bench_out_bytes(&w->of));
    w->stats.size = sizeof w->stats;
}

static void open_cell(bench *b) {
    const int32_t length = b->c.prefix + own_tokens;
    const fig_layer_bench of = {.rows = b->c.rows,
                                .kv_limit = length,
                                .row_tokens = 16,
                                .tokens = b->c.rows,
                                .layers = is_host() ? 1 : LAYERS,
                                .pages = (b->c.prefix + b->c.rows * own_tokens) / PAGE};
    b->order = fig_layer_bench_order(&of);
    for (int32_t row = 0; row < b->c.rows; row++) {
        b->lengths[row] = length;
        b->counts[row] = 1;
    }
    for (int32_t i = 0; i < WAYS; i++) {
        b->ways[i].of = of;
        b->ways[i].of.only_reads = i == ATTENTION;
        open_way(b, &b->ways[i], i != UNSHARED);
    }
}

static void close_cell(bench *b) {
    for (int32_t i = 0; i < WAYS; i++) {
        fig_engine_close(b->ways[i].engine);
        fig_graphs_destroy(b->ways[i].graphs);
        free(b->ways[i].out);
    }
    free(b->order);
}

/* ---- Times ----------------------------------------------------------------------------------- */

/* A way to run a cell, as steps need it. */
typedef struct runner {
    const bench *b;
    const way *w;
} runner;

static void run_steps(void *of, int32_t count) {
    const bench *b = ((const runner *)of)->b;
    const way *w = ((const runner *)of)->w;
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

static void time_way(bench *b, way *w) {
    const uint64_t bytes = fig_layer_bench_out_bytes(&w->of);
    runner steps = {b, w};
    w->us = fig_layer_bench_time(&w->of, w->engine, series_steps, run_steps, &steps);
    OK(fig_engine_read(w->engine, FIG_OPTIONS(fig_span, .name = "out", .bytes = bytes), w->out));
    OK(fig_engine_read_stats(w->engine, &w->stats));
    w->host_us = (double)fig_histogram_percentile(&w->stats.host, 50) / 1e3;
}

/* ---- Results --------------------------------------------------------------------------------- */

static double difference_of(const bench *b) {
    const int64_t count = (int64_t)b->c.rows * OF_TOKEN;
    double squares = 0, values = 0;
    for (int64_t i = 0; i < count; i++) {
        const double alone = truth_load(b->ways[UNSHARED].out, FIG_BF16, i);
        const double off = truth_load(b->ways[SHARED].out, FIG_BF16, i) - alone;
        squares += off * off;
        values += alone * alone;
    }
    return sqrt(squares / values);
}

/* Prints a cell; returns 1 if its results are wrong. */
static int print_cell(const bench *b) {
    const way *alone = &b->ways[UNSHARED], *shared = &b->ways[SHARED];
    const fig_engine_stats *stats = &shared->stats;
    const double error = difference_of(b);
    const double steps = stats->shared_steps > 0 ? (double)stats->shared_steps : 1;
    printf("%d,%d,%d,%.2f,%.2f,%.1f,%.1f,%.0f,%.0f,%.0f,%.0f,%.5f,%.2f\n", b->c.rows, b->c.prefix,
           shared->of.layers, alone->us, shared->us, alone->host_us, shared->host_us,
           (double)alone->stats.uploaded_bytes / (double)alone->stats.staged,
           (double)stats->uploaded_bytes / (double)stats->staged,
           (double)stats->shared_read / steps, (double)stats->shared_saved / steps, error,
           b->ways[ATTENTION].us);
    fflush(stdout);
    return !(error < ERROR_LIMIT) || stats->shared_steps == 0;
}

static int run_cell(const cell *c) {
    static bench b; /* too large for the stack */
    b = (bench){.c = *c};
    alarm(FIG_LAYER_BENCH_HANG_S);
    open_cell(&b);
    for (int32_t i = 0; i < WAYS; i++)
        time_way(&b, &b.ways[i]);
    const int is_wrong = print_cell(&b);
    close_cell(&b);
    return is_wrong;
}

int main(int argc, char **argv) {
    series_steps = fig_layer_bench_steps_asked(&argc, &argv, series_steps);
    const int seconds = argc > 1 ? atoi(argv[1]) : 180;
    const int64_t deadline_ns = fig_clock_ns() + (int64_t)seconds * 1000000000;
    int failed = 0;
    void *state = NULL;
    alarm(FIG_LAYER_BENCH_HANG_S);
    if (!is_host() && fig_gpu_caller_set_up(&state) != 0) return 2;
    printf("rows,prefix,layers,us,us_shared,host_us,host_us_shared,plan_bytes,plan_bytes_shared,"
           "tokens_read,tokens_saved,error,attention_us\n");
    if (argc > 3) {
        const cell asked = {atoi(argv[2]), atoi(argv[3])};
        if (argc > 4) own_tokens = atoi(argv[4]);
        return run_cell(&asked);
    }
    if (is_host()) return run_cell(&small);
    for (size_t i = 0; i < sizeof cells / sizeof cells[0] && fig_clock_ns() < deadline_ns; i++)
        failed |= run_cell(&cells[i]);
    return fig_gpu_caller_tear_down(&state) != 0 || failed;
}
