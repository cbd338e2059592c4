/* tune_measure.c: times every variant of a class on the machine at hand.
 *
 * It times each variant as `figraph bench attention` does: in a chain over cold caches, where the
 * out of each layer is the q of the next; and standalone, between kernels that read weights.
 * Invariant: all variants of a cell are timed one after another, so that a machine that slows down
 * slows them alike. */
#include "tools/figraph/tune/tune_measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/bench/bench_chain.h"

enum { GROUP_LIMIT = 16, VARIANTS = 16, FEW_ROWS = 2 };
static const double BYTES_LIMIT = 1.2e9; /* limit of a cell: larger cells give no better rate */

int fig_tune_measure_flatten(fig_tune_class *of) {
    of->q_heads *= of->row_tokens;
    of->row_tokens = 1;
    return of->q_heads / of->kv_heads <= GROUP_LIMIT;
}

/* ---- Cells */

static fig_bench_shape shape_of(const fig_tune_subject *subject) {
    const fig_spec *spec = subject->info.spec;
    const fig_tune_class *of = &subject->of;
    return (fig_bench_shape){.q_heads = of->q_heads,
                             .kv_heads = of->kv_heads,
                             .head_dim = of->head_dim,
                             .page = spec->page_size > 0 ? spec->page_size : 16,
                             .window = of->window,
                             .dtype = spec->dtype,
                             .kv_dtype = spec->kv_dtype,
                             .layout = spec->kv_layout};
}

/* Returns 1 if the spec allows the cell's rows and lengths and the cell is not too large. */
static int is_wanted(const fig_tune_subject *subject, const fig_bench_cell *cell) {
    const fig_spec *spec = subject->info.spec;
    return cell->lengths.count <= spec->batch_limit &&
           fig_bench_cell_longest(cell) <= spec->kv_limit &&
           fig_bench_cell_bytes(cell) <= BYTES_LIMIT;
}

static int list_cells(const fig_tune_subject *subject, const fig_bench_machine *machine,
                      fig_bench_cells *cells) {
    static const int32_t batches[] = {1, 4, 8, 16, 32, 64, 128, 256, 0};
    static const int32_t lengths[] = {128, 512, 2048, 8192, 32768, 0};
    static const int32_t few_batches[] = {1, 8, 64, 0}, few_lengths[] = {512, 4096, 0};
    static const int32_t host_batches[] = {1, FEW_ROWS, 0}, host_lengths[] = {40, 100, 0};
    static const char *const more[] = {
        "1x256",         "1x1024",         "8x256",           "8x1024",
        "1x8192+15x512", "1x32768+39x512", "2x32768+62x1024", NULL};
    /* Rows of one token keep the memory from limiting the time; tune_fit.c fits once and tile_ns to
     * these cells. */
    static const char *const probes[] = {
        "1x1",          "8x1",           "16x1",        "32x1",         "128x1",
        "256x1",        "1x2048+31x1",   "1x4096+63x1", "1x4096+127x1", "1x16384+127x1",
        "1x8192+255x1", "1x16384+255x1", "8x512+120x1", "32x256+224x1", NULL};
    const fig_bench_set set = {"tune", shape_of(subject), 0};
    if (machine->device == FIG_DEVICE_HOST)
        return fig_bench_cells_grid(cells, &set, host_batches, host_lengths);
    if (machine->quick) return fig_bench_cells_grid(cells, &set, few_batches, few_lengths);
    int code = fig_bench_cells_grid(cells, &set, batches, lengths);
    if (code == FIG_EXIT_FINE) code = fig_bench_cells_list(cells, &set, more);
    return code == FIG_EXIT_FINE ? fig_bench_cells_list(cells, &set, probes) : code;
}

/* ---- Times */

/* Rounds a time as the CSV does, so that reading the CSV gives the same figures. */
static double as_written(double us) {
    const double rounded = round(us * 1000) / 1000;
    return rounded > 0 ? rounded : 0.001;
}

/* Times one variant of a cell, the chain's `variant`. */
static int time_variant(const fig_bench_chain *sized, const fig_bench_machine *machine,
                        fig_tune_time *row) {
    fig_bench_chain chain = *sized;
    fig_timed timed = {0};
    double worst_ulp;
    int code = fig_bench_chain_open(&chain, machine, FIG_BENCH_NOTHING);
    if (code == FIG_EXIT_FINE) code = fig_bench_chain_check(&chain, &worst_ulp);
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_time(&chain.rig, machine, &chain.step, &timed);
    if (code == FIG_EXIT_FINE) code = fig_bench_chain_alone(&chain, machine, &row->alone_us);
    fig_bench_chain_close(&chain);
    row->chain_us = as_written(timed.median_ns / 1e3 / sized->layers);
    if (!(row->alone_us > row->chain_us / 2))
        row->alone_us = row->chain_us; /* on the host, where times vary */
    row->alone_us = as_written(row->alone_us);
    return code;
}

static int time_cell(const fig_tune_subject *subject, const fig_bench_machine *machine,
                     const fig_bench_pool *pool, const fig_bench_cell *cell,
                     fig_tune_times *times) {
    const fig_tune_class *of = &subject->of;
    fig_bench_chain sized;
    fig_bench_chain_size(&sized, machine, cell, pool);
    if (sized.copies == 0) return FIG_EXIT_FINE;
    int code = FIG_EXIT_FINE;
    for (int32_t v = 0; code == FIG_EXIT_FINE && v < VARIANTS; v++) {
        fig_tune_variant variant = {.size = sizeof variant};
        fig_tune_time row = {.q_heads = of->q_heads,
                             .kv_heads = of->kv_heads,
                             .head_dim = of->head_dim,
                             .value_bytes = of->value_bytes,
                             .window = of->window};
        if (fig_graphs_tune_variant(subject->graphs, subject->split_class, v, &variant) != FIG_OK)
            break;
        if (!variant.serves) continue;
        snprintf(row.chip, sizeof row.chip, "%s", machine->traits.name);
        snprintf(row.cell, sizeof row.cell, "%s", cell->name);
        snprintf(row.variant, sizeof row.variant, "%s", variant.name);
        sized.variant = v + 1;
        code = time_variant(&sized, machine, &row);
        if (code == FIG_EXIT_FINE) code = fig_tune_times_add(times, &row);
    }
    return code;
}

static int time_cells(const fig_tune_subject *subject, const fig_bench_machine *machine,
                      const fig_bench_cells *cells, fig_tune_times *times) {
    fig_report_progress progress;
    fig_bench_pool pool;
    size_t half = 0;
    for (int32_t i = 0; i < cells->count; i++) {
        const size_t bytes = fig_bench_chain_bytes(machine, &cells->cells[i]);
        if (is_wanted(subject, &cells->cells[i]) && bytes > half) half = bytes;
    }
    if (half == 0) return fig_report_refuse("tune: no cell is within the spec's limits");
    int code = fig_bench_pool_open(&pool, machine, subject->info.spec->kv_dtype, half);
    fig_report_begin(&progress, "cell", cells->count);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < cells->count; i++) {
        if (is_wanted(subject, &cells->cells[i]))
            code = time_cell(subject, machine, &pool, &cells->cells[i], times);
        fig_report_advance(&progress, i + 1);
    }
    fig_report_end(&progress);
    fig_bench_pool_close(&pool);
    return code;
}

int fig_tune_measure(const fig_tune_subject *subject, const fig_bench_machine *machine,
                     fig_tune_times *times) {
    fig_bench_cells cells = {NULL, 0};
    int code = list_cells(subject, machine, &cells);
    if (code == FIG_EXIT_FINE) code = time_cells(subject, machine, &cells, times);
    fig_bench_cells_finish(&cells);
    return code;
}
