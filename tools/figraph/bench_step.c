/* bench_step.c: figraph bench step, a decode step layer by layer, beside its attention alone.
 *
 * Each layer turns, appends and attends what the layer before left, over caches of its own, and its
 * activation goes beside, ordered behind the activation of the layer before: what comes between the
 * two in a model are GEMMs, which are none of this library's. Invariant: all sizes of a call are of
 * one run on one machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <figraph.h>

#include "tools/figraph/bench_cells.h"
#include "tools/figraph/bench_parts.h"
#include "tools/figraph/bench_rig.h"
#include "tools/figraph/bench_table.h"
#include "tools/figraph/report.h"
#include "tools/figraph/synthetic.h"

enum { LAYERS = 32, HOST_LAYERS = 2, LAYER_LIMIT = 256, FFN = 14336, HEAD_DIM = 128, PAGE = 16 };

static const fig_bench_column columns[] = {
    {"device", 0, -1},   {"chip", 0, -1},  {"cell", 18, -1},   {"heads", 6, -1},
    {"ffn_width", 9, 0}, {"layers", 6, 0}, {"layer_us", 9, 2}, {"attention_us", 12, 2},
    {"above_us", 8, 2},  {"spread", 6, 3}, {"bytes", 0, 0},    {NULL, 0, 0}};

typedef struct bench {
    fig_bench_machine machine;
    fig_bench_cells cells;
    fig_bench_table table;
    int32_t layers, ffn_width;
} bench;

typedef struct layer_name {
    char text[24];
} layer_name;

static layer_name name_of(const char *stem, int32_t layer) {
    layer_name name;
    snprintf(name.text, sizeof name.text, "%s.%d", stem, layer);
    return name;
}

/* all: 0: attention alone. */
static void record(fig_bench_rig *rig, const bench *b, const fig_spec *spec, int all) {
    const fig_tensor x[2] = {fig_bench_rig_rows(rig, "x.0", spec->q_heads, spec->head_dim, 1),
                             fig_bench_rig_rows(rig, "x.1", spec->q_heads, spec->head_dim, 1)};
    const fig_tensor k = fig_bench_rig_rows(rig, "k", spec->kv_heads, spec->head_dim, 1);
    const fig_tensor v = fig_bench_rig_rows(rig, "v", spec->kv_heads, spec->head_dim, 1);
    const fig_tensor gate_up = fig_bench_rig_rows(rig, "gate_up", 2 * b->ffn_width, 0, 1);
    const fig_tensor act = fig_bench_rig_rows(rig, "act", b->ffn_width, 0, 1);
    fig_cache cache = {.page_table = fig_bench_rig_table(rig, spec)};
    for (int32_t layer = 0; layer < b->layers; layer++) {
        const fig_tensor q = x[layer % 2], out = x[1 - layer % 2];
        cache.k = fig_bench_rig_cache(rig, spec, name_of("k_cache", layer).text);
        cache.v = fig_bench_rig_cache(rig, spec, name_of("v_cache", layer).text);
        if (all) {
            fig_silu_and_mul(rig->program, FIG_OPTIONS(fig_gated_op, .in = gate_up, .out = act));
            fig_rope(rig->program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k));
            fig_append_kv(rig->program,
                          FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = cache));
        }
        fig_attention(rig->program,
                      FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    }
}

static fig_spec spec_of(const fig_bench_cell *cell) {
    const fig_bench_shape *shape = &cell->shape;
    const int32_t longest = fig_bench_rig_round(fig_bench_cell_longest(cell));
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = shape->dtype,
                      .kv_dtype = shape->kv_dtype,
                      .q_heads = shape->q_heads,
                      .kv_heads = shape->kv_heads,
                      .head_dim = shape->head_dim,
                      .page_size = shape->page,
                      .batch_limit = fig_bench_rig_round(cell->lengths.count),
                      .kv_limit = longest > 128 ? longest : 128};
}

static int give_pages(fig_bench_rig *rig, const fig_bench_cell *cell) {
    const int32_t count = (int32_t)fig_bench_cell_pages(cell), page = cell->shape.page;
    int32_t *pages = calloc((size_t)count, sizeof *pages);
    const int32_t *next = pages;
    fig_synthetic synthetic;
    fig_status status = FIG_OK;
    if (pages == NULL) return fig_report_refuse("bench step: no memory for %d pages", count);
    fig_synthetic_seed(&synthetic, 3);
    fig_synthetic_permutation(&synthetic, pages, count);
    for (int32_t row = 0; status == FIG_OK && row < cell->lengths.count; row++) {
        const int32_t held = (cell->lengths.values[row] + page - 1) / page;
        if (held > 0)
            status = fig_engine_set_pages(
                rig->engine, FIG_OPTIONS(fig_pages, .sequence = row, .count = held, .pages = next));
        next += held;
    }
    free(pages);
    return status == FIG_OK ? FIG_EXIT_FINE : fig_report_status("bench step");
}

static int bind_caches(fig_bench_rig *rig, const bench *b, const fig_bench_cell *cell) {
    const size_t bytes = (size_t)fig_bench_cell_pages(cell) * fig_bench_cell_page_bytes(cell);
    const int64_t count = (int64_t)(bytes / fig_synthetic_bytes(cell->shape.kv_dtype));
    int code = FIG_EXIT_FINE;
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < 2 * b->layers; i++) {
        const layer_name name = name_of(i % 2 ? "v_cache" : "k_cache", i / 2);
        if (fig_engine_bind(rig->engine,
                            FIG_OPTIONS(fig_binding, .name = name.text, .bytes = bytes)) != FIG_OK)
            return fig_report_status("bench step");
        if (count < 1 << 24) code = fig_bench_rig_fill(rig, name.text, cell->shape.kv_dtype, count);
    }
    return code;
}

static int time_cell(const bench *b, const fig_bench_cell *cell, int all, fig_timed *timed) {
    const fig_spec spec = spec_of(cell);
    const fig_step step = {
        .size = sizeof step, .rows = cell->lengths.count, .kv_lengths = cell->lengths.values};
    const int64_t rows = spec.batch_limit;
    fig_bench_rig rig;
    int code = fig_bench_rig_begin(&rig, &spec);
    if (code == FIG_EXIT_FINE) {
        record(&rig, b, &spec, all);
        code = fig_bench_rig_open(&rig, &b->machine, (fig_bucket){spec.batch_limit, spec.kv_limit});
    }
    if (code == FIG_EXIT_FINE) code = bind_caches(&rig, b, cell);
    if (code == FIG_EXIT_FINE) code = give_pages(&rig, cell);
    if (code == FIG_EXIT_FINE)
        code = fig_bench_rig_fill(&rig, "x.0", spec.dtype, rows * spec.q_heads * spec.head_dim);
    if (code == FIG_EXIT_FINE)
        code = fig_bench_rig_fill(&rig, "gate_up", spec.dtype, rows * 2 * b->ffn_width);
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_time(&rig, &b->machine, &step, timed);
    fig_bench_rig_close(&rig);
    return code;
}

static int measure_cell(bench *b, const fig_bench_cell *cell) {
    fig_timed step = {0}, attention = {0};
    fig_bench_table *table = &b->table;
    int code = time_cell(b, cell, 1, &step);
    if (code == FIG_EXIT_FINE) code = time_cell(b, cell, 0, &attention);
    if (code != FIG_EXIT_FINE) return code;
    fig_bench_table_add(table);
    fig_bench_table_word(table, "device", "%s", fig_source_device_name(b->machine.device));
    fig_bench_table_word(table, "chip", "%s", b->machine.traits.name);
    fig_bench_table_word(table, "cell", "%s", cell->name);
    fig_bench_table_word(table, "heads", "%d/%d", cell->shape.q_heads, cell->shape.kv_heads);
    fig_bench_table_number(table, "ffn_width", b->ffn_width);
    fig_bench_table_number(table, "layers", b->layers);
    fig_bench_table_number(table, "bytes", fig_bench_cell_bytes(cell));
    if (b->machine.device == FIG_DEVICE_HOST) return FIG_EXIT_FINE;
    const double layer_us = step.median_ns / 1e3 / b->layers;
    const double attention_us = attention.median_ns / 1e3 / b->layers;
    fig_bench_table_number(table, "layer_us", layer_us);
    fig_bench_table_number(table, "attention_us", attention_us);
    fig_bench_table_number(table, "above_us", layer_us - attention_us);
    fig_bench_table_number(table, "spread", (step.most_ns - step.least_ns) / step.median_ns);
    return FIG_EXIT_FINE;
}

static int read_bench(const fig_arguments *arguments, bench *b) {
    const char *heads = fig_arguments_text(arguments, "--heads");
    const char *kv = fig_arguments_text(arguments, "--kv");
    fig_integer range = {.name = "--layers", .least = 1, .most = LAYER_LIMIT};
    int64_t layers = 0, width = 0;
    int code = fig_bench_rig_read_machine(arguments, &b->machine);
    const int host = b->machine.device == FIG_DEVICE_HOST;
    fig_bench_set set = {
        "kv", {.head_dim = HEAD_DIM, .page = PAGE, .dtype = FIG_BF16, .kv_dtype = FIG_BF16}};
    range.fallback = host ? HOST_LAYERS : LAYERS;
    if (code == FIG_EXIT_FINE) code = fig_arguments_integer(arguments, &range, &layers);
    range = (fig_integer){
        .name = "--ffn-width", .least = 8, .most = 1 << 17, .fallback = host ? 64 : FFN};
    if (code == FIG_EXIT_FINE) code = fig_arguments_integer(arguments, &range, &width);
    if (code != FIG_EXIT_FINE) return code;
    b->layers = (int32_t)layers;
    b->ffn_width = (int32_t)width;
    if (heads == NULL) heads = host ? "4/2" : "32/8";
    if (!fig_bench_cells_heads(heads, &set.shape.q_heads, &set.shape.kv_heads))
        return fig_report_refuse("bench step: --heads: \"%s\" is not as 32/8 is", heads);
    if (kv == NULL) kv = host ? "1x40,2x33" : "1x512,8x2048,32x2048";
    return fig_bench_cells_list(&b->cells, &set, kv);
}

static int measure(bench *b) {
    fig_report_progress progress;
    int code = FIG_EXIT_FINE;
    fig_report_begin(&progress, "size", b->cells.count);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < b->cells.count; i++) {
        code = measure_cell(b, &b->cells.cells[i]);
        fig_report_advance(&progress, i + 1);
    }
    fig_report_end(&progress);
    return code;
}

static int run(const fig_arguments *arguments) {
    bench b = {0};
    int code = read_bench(arguments, &b);
    if (code == FIG_EXIT_FINE) code = fig_bench_table_open(&b.table, columns, b.cells.count);
    if (code == FIG_EXIT_FINE) code = measure(&b);
    if (code == FIG_EXIT_FINE) code = fig_bench_table_show(&b.table, arguments);
    fig_bench_table_close(&b.table);
    fig_bench_cells_finish(&b.cells);
    return code;
}

const fig_command fig_bench_step = {
    .name = "bench step",
    .summary = "a layer of silu, RoPE, append and attention, beside its attention alone",
    .notes = "Layers depend on each other: each turns and attends what the one before left, over\n"
             "caches of its own. layer_us: one of them; attention_us: of the same chain, where\n"
             "nothing but attention is left; above_us: what the others add.",
    .example = "figraph bench step --kv 1x512,8x2048,32x2048",
    .run = run,
    .options =
        {
            {"--heads", "Q/KV", "query and kv heads; without it 32/8"},
            {"--kv", "CELLS", "rows of a step, see figraph bench attention --help"},
            {"--layers", "N", "without it 32"},
            {"--ffn-width", "N", "without it 14336"},
            FIG_BENCH_MACHINE_OPTIONS,
        },
};
