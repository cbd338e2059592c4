/* bench_step.c: figraph bench step, which times the layers of a decode step and their attention.
 *
 * Each layer does RoPE, append and attention on the result of the layer before, over its own
 * caches. Nothing here depends on a layer's activation: in a model, GEMMs are on both sides of it,
 * and this library leaves them out. So the step is timed twice: serial, with all launches one after
 * another as if GEMMs separated them, and parallel, as the engine launches it, with the activations
 * beside the rest. On several ranks each has its share of heads and columns, and all-reduces follow
 * activation and attention. Invariant: a step is checked against float64 before it is timed, and
 * all sizes of a call are measured in one run on one machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <figraph_parallel.h>

#include "tools/figraph/bench/bench_chain.h"
#include "tools/figraph/bench/bench_parts.h"
#include "tools/figraph/bench/bench_table.h"
#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/truth/truth.h"

enum { LAYERS = 32, HOST_LAYERS = 2, LAYER_LIMIT = 256, FFN = 14336, HEAD_DIM = 128, PAGE = 16 };
static const double TOLERANCE_ULP = 1;
static const double SMALL = 1.0 / 1024; /* below this, intermediate rounding dominates the error */

static const fig_bench_column columns[] = {
    {"device", 0, -1},       {"chip", 0, -1},    {"cell", 18, -1},
    {"heads", 6, -1},        {"nodes", 5, -1},   {"ffn_width", 9, 0},
    {"layers", 6, 0},        {"layer_us", 9, 2}, {"parallel_us", 11, 2},
    {"attention_us", 12, 2}, {"above_us", 8, 2}, {"sums_us", 7, 2},
    {"spread", 6, 3},        {"ranks", 0, 0},    {"worst_ulp", 0, 3},
    {"bytes", 0, 0},         {NULL, 0, 0}};

typedef struct bench {
    fig_bench_machine machine;
    fig_bench_cells cells;
    fig_bench_table table;
    fig_bench_pool pool;
    fig_ranked ranked;
    int32_t layers, ffn_width, sum_width; /* columns of the sums over ranks; 0: one rank, no sums */
    fig_bench_between form;               /* FIG_BENCH_STEP or FIG_BENCH_STEP_APART */
} bench;

/* The times of a cell, for all layers together. */
typedef struct times {
    fig_timed serial, parallel, attention;
    fig_timed apart; /* the serial time without the sums over ranks */
} times;

/* ---- Checking ------------------------------------------------------------------------------ */

/* Reads a row: `count` elements. */
static int read_row(const fig_bench_chain *chain, const char *name, int32_t row, int32_t count,
                    uint8_t *to) {
    const size_t bytes = (size_t)count * fig_synthetic_bytes(chain->spec.dtype);
    const fig_span span = {
        .size = sizeof span, .name = name, .offset = (size_t)row * bytes, .bytes = bytes};
    return fig_engine_read(chain->rig.engine, &span, to) == FIG_OK
               ? FIG_EXIT_FINE
               : fig_report_status("bench step");
}

static int compare(const fig_bench_chain *chain, const char *name, const uint8_t *got,
                   const double *due, int32_t count) {
    const fig_dtype dtype = chain->spec.dtype;
    for (int32_t i = 0; i < count; i++) {
        const double value = truth_load(got, dtype, i);
        const double tolerance = TOLERANCE_ULP * truth_ulp(dtype, fmax(fabs(due[i]), SMALL));
        if (!(fabs(value - due[i]) <= tolerance))
            return fig_report_failure("bench step: %s: %s: element %d of the last row is %.9g and "
                                      "must be %.9g, tolerance %.3g",
                                      chain->cell->name, name, i, value, due[i], tolerance);
    }
    return FIG_EXIT_FINE;
}

/* Compares the activation of a row. scratch: [3 * ffn_width] of the dtype; due: [ffn_width]. */
static int check_activation(const fig_bench_chain *chain, int32_t row, uint8_t *scratch,
                            double *due) {
    const int32_t width = chain->ffn_width;
    uint8_t *act = scratch + 2 * (size_t)width * fig_synthetic_bytes(chain->spec.dtype);
    int code = read_row(chain, FIG_BENCH_GATE_UP, row, 2 * width, scratch);
    if (code == FIG_EXIT_FINE) code = read_row(chain, FIG_BENCH_ACT, row, width, act);
    if (code != FIG_EXIT_FINE) return code;
    truth_gated(&(truth_gated_args){.in = {.base = scratch, .dtype = chain->spec.dtype},
                                    .activation = FIG_SILU,
                                    .width = width},
                due);
    return compare(chain, FIG_BENCH_ACT, act, due, width);
}

/* Runs the step once and compares the activation of the last row that has tokens. */
static int check_step(fig_bench_chain *chain, double *worst_ulp) {
    const size_t bytes = fig_synthetic_bytes(chain->spec.dtype), width = (size_t)chain->ffn_width;
    uint8_t *scratch = malloc(3 * width * bytes);
    double *due = malloc(width * sizeof *due);
    int32_t row = chain->cell->lengths.count - 1;
    while (chain->cell->lengths.values[row] == 0)
        row--;
    int code = scratch != NULL && due != NULL
                   ? fig_bench_chain_check(chain, worst_ulp)
                   : fig_report_refuse("bench step: no memory for a check");
    if (code == FIG_EXIT_FINE) code = check_activation(chain, row, scratch, due);
    free(scratch);
    free(due);
    return code;
}

/* ---- Measuring ----------------------------------------------------------------------------- */

static fig_bench_chain chain_of(const bench *b, const fig_bench_cell *cell) {
    return (fig_bench_chain){.cell = cell,
                             .pool = &b->pool,
                             .layers = b->layers,
                             .copies = b->layers,
                             .ffn_width = b->ffn_width,
                             .sum_width = b->sum_width};
}

static int time_step(const bench *b, const fig_bench_cell *cell, times *taken, double *worst_ulp) {
    fig_bench_chain chain = chain_of(b, cell);
    int code = fig_bench_chain_open(&chain, &b->machine, b->form);
    if (code == FIG_EXIT_FINE) code = check_step(&chain, worst_ulp);
    if (code == FIG_EXIT_FINE)
        code = fig_bench_rig_time(&chain.rig, &b->machine, &chain.step, &taken->parallel);
    chain.rig.serial = 1;
    if (code == FIG_EXIT_FINE)
        code = fig_bench_rig_time(&chain.rig, &b->machine, &chain.step, &taken->serial);
    fig_bench_chain_close(&chain);
    return code;
}

static int time_apart(const bench *b, const fig_bench_cell *cell, times *taken) {
    fig_bench_chain chain = chain_of(b, cell);
    chain.sum_width = 0;
    int code = fig_bench_chain_open(&chain, &b->machine, b->form);
    chain.rig.serial = 1;
    if (code == FIG_EXIT_FINE)
        code = fig_bench_rig_time(&chain.rig, &b->machine, &chain.step, &taken->apart);
    fig_bench_chain_close(&chain);
    return code;
}

static int time_attention(const bench *b, const fig_bench_cell *cell, times *taken) {
    fig_bench_chain chain = chain_of(b, cell);
    chain.sum_width = 0;
    int code = fig_bench_chain_open(&chain, &b->machine, FIG_BENCH_NOTHING);
    if (code == FIG_EXIT_FINE)
        code = fig_bench_rig_time(&chain.rig, &b->machine, &chain.step, &taken->attention);
    fig_bench_chain_close(&chain);
    return code;
}

static int measure_cell(bench *b, const fig_bench_cell *cell) {
    times taken = {0};
    double worst_ulp = 0;
    fig_bench_table *table = &b->table;
    int code = time_step(b, cell, &taken, &worst_ulp);
    if (code == FIG_EXIT_FINE) code = time_attention(b, cell, &taken);
    if (code == FIG_EXIT_FINE && b->sum_width > 0) code = time_apart(b, cell, &taken);
    if (code != FIG_EXIT_FINE) return code;
    fig_bench_table_add(table);
    fig_bench_table_word(table, "device", "%s", fig_source_device_name(b->machine.device));
    fig_bench_table_word(table, "chip", "%s", b->machine.traits.name);
    fig_bench_table_word(table, "cell", "%s", cell->name);
    fig_bench_table_word(table, "heads", "%d/%d", cell->shape.q_heads, cell->shape.kv_heads);
    fig_bench_table_word(table, "nodes", "%s", b->form == FIG_BENCH_STEP ? "one" : "apart");
    fig_bench_table_number(table, "ffn_width", b->ffn_width);
    fig_bench_table_number(table, "layers", b->layers);
    fig_bench_table_number(table, "ranks", b->ranked.count);
    fig_bench_table_number(table, "bytes", fig_bench_cell_bytes(cell));
    fig_bench_table_number(table, "worst_ulp", worst_ulp);
    if (b->machine.device == FIG_DEVICE_HOST) return FIG_EXIT_FINE;
    const fig_timed *serial = &taken.serial;
    const double layer_us = serial->median_ns / 1e3 / b->layers;
    const double attention_us = taken.attention.median_ns / 1e3 / b->layers;
    fig_bench_table_number(table, "layer_us", layer_us);
    fig_bench_table_number(table, "parallel_us", taken.parallel.median_ns / 1e3 / b->layers);
    fig_bench_table_number(table, "attention_us", attention_us);
    fig_bench_table_number(table, "above_us", layer_us - attention_us);
    if (b->sum_width > 0)
        fig_bench_table_number(table, "sums_us",
                               layer_us - taken.apart.median_ns / 1e3 / b->layers);
    fig_bench_table_number(table, "spread",
                           (serial->most_ns - serial->least_ns) / serial->median_ns);
    return FIG_EXIT_FINE;
}

/* Fills in the model's heads and columns. */
static int take_share(bench *b, fig_bench_shape *shape) {
    const fig_spec model = {.size = sizeof model,
                            .dtype = FIG_BF16,
                            .q_heads = shape->q_heads,
                            .kv_heads = shape->kv_heads,
                            .head_dim = HEAD_DIM,
                            .ffn_width = b->ffn_width,
                            .batch_limit = 1,
                            .kv_limit = PAGE};
    fig_spec share = {.size = sizeof share};
    if (b->ranked.count == 1) return FIG_EXIT_FINE;
    if (fig_spec_rank(&share, &model, b->ranked.count) != FIG_OK)
        return fig_report_status("bench step: --ranks");
    b->sum_width = shape->q_heads * HEAD_DIM;
    b->ffn_width = share.ffn_width;
    shape->q_heads = share.q_heads;
    shape->kv_heads = share.kv_heads;
    return FIG_EXIT_FINE;
}

static int read_bench(const fig_arguments *arguments, bench *b) {
    const char *heads = fig_arguments_text(arguments, "--heads");
    static const char *const host_few[] = {"1x40", "2x33", NULL};
    static const char *const few[] = {"1x512", "8x2048", "32x2048", NULL};
    fig_integer range = {.name = "--layers", .least = 1, .most = LAYER_LIMIT};
    int64_t layers = 0, width = 0;
    int code = fig_bench_rig_read_machine(arguments, &b->machine);
    const int host = b->machine.device == FIG_DEVICE_HOST;
    fig_bench_set set = {
        "kv", {.head_dim = HEAD_DIM, .page = PAGE, .dtype = FIG_BF16, .kv_dtype = FIG_BF16}, 0};
    range.fallback = host ? HOST_LAYERS : LAYERS;
    if (code == FIG_EXIT_FINE) code = fig_arguments_integer(arguments, &range, &layers);
    range = (fig_integer){
        .name = "--ffn-width", .least = 8, .most = 1 << 17, .fallback = host ? 64 : FFN};
    if (code == FIG_EXIT_FINE) code = fig_arguments_integer(arguments, &range, &width);
    if (code != FIG_EXIT_FINE) return code;
    b->layers = (int32_t)layers;
    b->ffn_width = (int32_t)width;
    b->form =
        fig_arguments_text(arguments, "--apart") != NULL ? FIG_BENCH_STEP_APART : FIG_BENCH_STEP;
    if (heads == NULL) heads = host ? "4/2" : "32/8";
    code = fig_bench_cells_heads("bench step", heads, &set.shape);
    if (code == FIG_EXIT_FINE) code = take_share(b, &set.shape);
    if (code != FIG_EXIT_FINE) return code;
    if (fig_arguments_text(arguments, "--kv") != NULL)
        return fig_bench_cells_read(&b->cells, &set, arguments);
    return fig_bench_cells_list(&b->cells, &set, host ? host_few : few);
}

/* Opens a pool that is large enough for the caches of every cell. */
static int open_pool(bench *b) {
    size_t half = 0;
    for (int32_t i = 0; i < b->cells.count; i++) {
        const fig_bench_cell *cell = &b->cells.cells[i];
        const size_t bytes = (size_t)fig_bench_cell_pages(cell) * fig_bench_cell_page_bytes(cell) *
                             (size_t)b->layers;
        if (bytes > half) half = bytes;
    }
    const int code = fig_bench_pool_open(&b->pool, &b->machine, FIG_BF16, half);
    if (code != FIG_EXIT_FINE || b->pool.half_bytes >= half) return code;
    return fig_report_refuse("bench step: the caches of %d layers take %zu bytes, there is room "
                             "for %zu",
                             b->layers, 2 * half, 2 * b->pool.half_bytes);
}

static int measure(bench *b) {
    fig_report_progress progress;
    int code = open_pool(b);
    fig_report_begin(&progress, "size", b->cells.count);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < b->cells.count; i++) {
        code = measure_cell(b, &b->cells.cells[i]);
        fig_report_advance(&progress, i + 1);
    }
    fig_report_end(&progress);
    fig_bench_pool_close(&b->pool);
    return code;
}

static int run(const fig_arguments *arguments) {
    bench b = {0};
    int code = fig_ranked_open(arguments, &b.ranked);
    if (code == FIG_EXIT_FINE) code = read_bench(arguments, &b);
    if (code == FIG_EXIT_FINE && b.ranked.must_start) code = fig_ranked_start(&b.ranked);
    b.machine.ranks = b.ranked.ranks;
    b.machine.ordinal = fig_ranked_ordinal(&b.ranked, b.machine.device);
    if (code == FIG_EXIT_FINE) code = fig_bench_table_open(&b.table, columns, b.cells.count);
    if (code == FIG_EXIT_FINE) code = measure(&b);
    if (code == FIG_EXIT_FINE && b.ranked.rank == 0)
        code = fig_bench_rig_show(&b.machine, &b.table, arguments);
    fig_bench_table_close(&b.table);
    fig_bench_cells_finish(&b.cells);
    fig_ranked_close(&b.ranked);
    return code;
}

const fig_command fig_bench_step = {
    .name = "bench step",
    .summary = "a layer of silu, RoPE, append and attention, and its attention alone",
    .notes = "Layers depend on each other: each works on the result of the layer before, over its "
             "own caches. layer_us: one layer, with its launches one after another. parallel_us: "
             "one layer with its activation beside the rest, as the engine launches a step. "
             "attention_us: one layer with only attention. above_us: the time that the other "
             "launches add to attention.\n\nWith several ranks, heads, columns and times are those "
             "of one rank. After its activation and its attention each layer has an all-reduce "
             "with residual and norm, with rows as wide as the model's heads; sums_us is the time "
             "that they add.\n\n" FIG_RANKED_NOTES,
    .example = "figraph bench step --kv 1x512 --kv 8x2048 --kv 32x2048",
    .run = run,
    .options =
        {
            {"--heads", "Q/KV", "query and kv heads; default 32/8"},
            {"--kv", "LENS", "the rows of a step; may be repeated; see figraph plan --help",
             .repeats = 1},
            {"--layers", "N", "the number of layers; default 32"},
            {"--ffn-width", "N", "columns of the activation's output; default 14336"},
            {"--apart", NULL, "record RoPE, append and attention as three nodes instead of one"},
            FIG_RANKED_OPTION,
            FIG_BENCH_MACHINE_OPTIONS,
        },
};
