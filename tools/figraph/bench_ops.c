/* bench_ops.c: figraph bench ops, the small operations in a chain.
 *
 * Each is recorded many times over the same tensors, so that every launch comes after the one
 * before, as in a model where each waits for its input. Invariant: all rows of a call are of one
 * run on one machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph.h>

#include "tools/figraph/bench_parts.h"
#include "tools/figraph/bench_pool.h"
#include "tools/figraph/bench_rig.h"
#include "tools/figraph/bench_table.h"
#include "tools/figraph/report.h"
#include "tools/figraph/synthetic.h"

enum {
    CHAIN = 256,     /* launches in a graph */
    LONG_CHAIN = 32, /* of many rows */
    HOST_CHAIN = 2,
    ROW_LIMIT = 1024, /* of a step; more are several to a row */
    Q_HEADS = 32,
    KV_HEADS = 8,
    HEAD_DIM = 128,
    PAGE = 16,
    SIZE_LIMIT = 256
};

static const fig_bench_column columns[] = {
    {"device", 0, -1}, {"chip", 0, -1},        {"op", 12, -1},  {"width", 7, 0},
    {"rows", 6, 0},    {"us", 9, 3},           {"gbps", 8, 1},  {"share", 6, 3},
    {"spread", 6, 3},  {"ceiling_gbps", 0, 1}, {"bytes", 0, 0}, {NULL, 0, 0}};

typedef enum op { OP_SILU, OP_GELU, OP_GELU_TANH, OP_RMS_NORM, OP_ROPE, OP_APPEND, OP_BOTH } op;
static const char *const op_names[] = {"silu", "gelu",   "gelu_tanh",  "rms_norm",
                                       "rope", "append", "rope_append"};
enum { OP_COUNT = sizeof op_names / sizeof *op_names };

/* One line of what comes out. */
typedef struct size {
    op op;
    int32_t width, rows; /* width: of the output; heads * head_dim of those that have heads */
} size;

typedef struct bench {
    fig_bench_machine machine;
    fig_bench_table table;
    size sizes[SIZE_LIMIT];
    int32_t size_count;
    double ceiling; /* bytes that a second reads; 0 on the host */
} bench;

static int has_heads(op of) {
    return of >= OP_ROPE;
}

static int32_t multiple_of(const size *of) {
    return of->rows > ROW_LIMIT ? of->rows / ROW_LIMIT : 1;
}

/* What must be read and written: an activation reads two numbers for each that it writes. */
static double bytes_of(const size *of) {
    const double q = (double)Q_HEADS * HEAD_DIM, kv = (double)KV_HEADS * HEAD_DIM;
    const double rows = of->rows, item = 2;
    switch (of->op) {
    case OP_SILU:
    case OP_GELU:
    case OP_GELU_TANH: return 3 * item * rows * of->width;
    case OP_RMS_NORM: return item * (2 * rows * of->width + of->width);
    case OP_ROPE: return 2 * item * rows * (q + kv);
    case OP_APPEND: return 2 * item * rows * 2 * kv;
    case OP_BOTH: return 2 * item * rows * (q + 3 * kv);
    }
    return 0;
}

/* ---- Recording ----------------------------------------------------------------------------- */

static fig_spec spec_of(const size *of) {
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = FIG_BF16,
                      .kv_dtype = FIG_BF16,
                      .q_heads = Q_HEADS,
                      .kv_heads = KV_HEADS,
                      .head_dim = HEAD_DIM,
                      .page_size = PAGE,
                      .batch_limit = of->rows / multiple_of(of),
                      .row_tokens = has_heads(of->op) ? multiple_of(of) : 1,
                      .kv_limit = 128};
}

static void record_heads(fig_bench_rig *rig, const fig_spec *spec, op of, int32_t launches) {
    const int32_t multiple = spec->row_tokens;
    const fig_tensor q = fig_bench_rig_rows(rig, "q", Q_HEADS, HEAD_DIM, multiple);
    const fig_tensor k = fig_bench_rig_rows(rig, "k", KV_HEADS, HEAD_DIM, multiple);
    const fig_tensor v = fig_bench_rig_rows(rig, "v", KV_HEADS, HEAD_DIM, multiple);
    fig_cache cache = {0};
    if (of != OP_ROPE)
        cache = (fig_cache){.k = fig_bench_rig_cache(rig, spec, "k_cache"),
                            .v = fig_bench_rig_cache(rig, spec, "v_cache"),
                            .page_table = fig_bench_rig_table(rig, spec)};
    for (int32_t i = 0; i < launches; i++) {
        if (of != OP_APPEND) fig_rope(rig->program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k));
        if (of != OP_ROPE)
            fig_append_kv(rig->program,
                          FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = cache));
    }
}

static void record_rows(fig_bench_rig *rig, const size *of, int32_t launches) {
    const int32_t inputs = of->op == OP_RMS_NORM ? 1 : 2, multiple = multiple_of(of);
    const fig_tensor in = fig_bench_rig_rows(rig, "in", inputs * of->width, 0, multiple);
    const fig_tensor out = fig_bench_rig_rows(rig, "out", of->width, 0, multiple);
    const fig_gated_op gated = {.size = sizeof gated, .in = in, .out = out};
    fig_rms_norm_op norm = {.size = sizeof norm, .in = in, .out = out};
    if (of->op == OP_RMS_NORM)
        norm.weight = fig_program_tensor(
            rig->program, FIG_OPTIONS(fig_tensor_info, .name = "weight", .role = FIG_ROLE_BOUND,
                                      .dtype = FIG_BF16, .rank = 1, .dims = {of->width}));
    for (int32_t i = 0; i < launches; i++) {
        if (of->op == OP_SILU) fig_silu_and_mul(rig->program, &gated);
        if (of->op == OP_GELU) fig_gelu_and_mul(rig->program, &gated);
        if (of->op == OP_GELU_TANH) fig_gelu_tanh_and_mul(rig->program, &gated);
        if (of->op == OP_RMS_NORM) fig_rms_norm(rig->program, &norm);
    }
}

/* ---- Measuring ----------------------------------------------------------------------------- */

static int bind_caches(fig_bench_rig *rig, const fig_spec *spec) {
    const size_t bytes =
        (size_t)spec->batch_limit * PAGE * KV_HEADS * HEAD_DIM * fig_synthetic_bytes(FIG_BF16);
    static const char *const names[] = {"k_cache", "v_cache"};
    for (int i = 0; i < 2; i++)
        if (fig_engine_bind(rig->engine,
                            FIG_OPTIONS(fig_binding, .name = names[i], .bytes = bytes)) != FIG_OK)
            return fig_report_status("bench ops");
    for (int32_t row = 0; row < spec->batch_limit; row++)
        if (fig_engine_set_pages(rig->engine, FIG_OPTIONS(fig_pages, .sequence = row, .count = 1,
                                                          .pages = &row)) != FIG_OK)
            return fig_report_status("bench ops");
    return FIG_EXIT_FINE;
}

static int32_t launches_of(const bench *b, const size *of) {
    if (b->machine.device == FIG_DEVICE_HOST) return HOST_CHAIN;
    return of->rows > 512 ? LONG_CHAIN : CHAIN;
}

static int fill(fig_bench_rig *rig, const size *of) {
    const int64_t inputs = of->op == OP_RMS_NORM ? 1 : 2, rows = of->rows;
    int code = FIG_EXIT_FINE;
    if (!has_heads(of->op))
        return fig_bench_rig_fill(rig, "in", FIG_BF16, rows * inputs * of->width);
    code = fig_bench_rig_fill(rig, "q", FIG_BF16, rows * Q_HEADS * HEAD_DIM);
    return code == FIG_EXIT_FINE
               ? fig_bench_rig_fill(rig, "k", FIG_BF16, rows * KV_HEADS * HEAD_DIM)
               : code;
}

static int time_size(const bench *b, const size *of, fig_timed *timed) {
    const fig_spec spec = spec_of(of);
    const int32_t launches = launches_of(b, of);
    int32_t lengths[ROW_LIMIT];
    fig_bench_rig rig;
    for (int32_t row = 0; row < spec.batch_limit; row++)
        lengths[row] = spec.row_tokens;
    const fig_step step = {.size = sizeof step, .rows = spec.batch_limit, .kv_lengths = lengths};
    int code = fig_bench_rig_begin(&rig, &spec);
    if (code != FIG_EXIT_FINE) return code;
    if (has_heads(of->op)) {
        record_heads(&rig, &spec, of->op, launches);
    } else {
        record_rows(&rig, of, launches);
    }
    code = fig_bench_rig_open(&rig, &b->machine, (fig_bucket){spec.batch_limit, 128});
    if (code == FIG_EXIT_FINE && (of->op == OP_APPEND || of->op == OP_BOTH))
        code = bind_caches(&rig, &spec);
    if (code == FIG_EXIT_FINE) code = fill(&rig, of);
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_time(&rig, &b->machine, &step, timed);
    fig_bench_rig_close(&rig);
    timed->median_ns /= launches;
    timed->least_ns /= launches;
    timed->most_ns /= launches;
    return code;
}

static int measure_size(bench *b, const size *of) {
    fig_timed timed = {0};
    fig_bench_table *table = &b->table;
    const double bytes = bytes_of(of);
    const int code = time_size(b, of, &timed);
    if (code != FIG_EXIT_FINE) return code;
    fig_bench_table_add(table);
    fig_bench_table_word(table, "device", "%s", fig_source_device_name(b->machine.device));
    fig_bench_table_word(table, "chip", "%s", b->machine.traits.name);
    fig_bench_table_word(table, "op", "%s", op_names[of->op]);
    fig_bench_table_number(table, "width", of->width);
    fig_bench_table_number(table, "rows", of->rows);
    fig_bench_table_number(table, "bytes", bytes);
    if (b->machine.device == FIG_DEVICE_HOST) return FIG_EXIT_FINE;
    fig_bench_table_number(table, "us", timed.median_ns / 1e3);
    fig_bench_table_number(table, "gbps", bytes / timed.median_ns);
    fig_bench_table_number(table, "share", bytes / timed.median_ns / b->ceiling * 1e9);
    fig_bench_table_number(table, "spread", (timed.most_ns - timed.least_ns) / timed.median_ns);
    fig_bench_table_number(table, "ceiling_gbps", b->ceiling / 1e9);
    return FIG_EXIT_FINE;
}

/* ---- What is asked for --------------------------------------------------------------------- */

static void add_sizes(bench *b, op of, const int32_t *widths, const int32_t *rows) {
    for (int i = 0; widths[i] > 0; i++)
        for (int j = 0; rows[j] > 0 && b->size_count < SIZE_LIMIT; j++)
            b->sizes[b->size_count++] = (size){of, widths[i], rows[j]};
}

static int read_sizes(const fig_arguments *arguments, bench *b) {
    static const int32_t widths[] = {1792, 3584, 7168, 14336, 28672, 0};
    static const int32_t norms[] = {2048, 4096, 8192, 0}, heads[] = {Q_HEADS * HEAD_DIM, 0};
    static const int32_t rows[] = {1, 8, 64, 256, 1024, 4096, 0}, few[] = {1, 256, 0};
    static const int32_t host_widths[] = {64, 0}, host_rows[] = {1, 3, 0};
    const char *only = fig_arguments_text(arguments, "--op");
    const int host = b->machine.device == FIG_DEVICE_HOST;
    const int32_t *counts = host ? host_rows : b->machine.quick ? few : rows;
    for (int of = 0; of < OP_COUNT; of++) {
        if (only != NULL && strcmp(only, op_names[of]) != 0) continue;
        add_sizes(b, (op)of,
                  has_heads((op)of)       ? heads
                  : host                  ? host_widths
                  : (op)of == OP_RMS_NORM ? norms
                                          : widths,
                  counts);
    }
    if (b->size_count > 0) return FIG_EXIT_FINE;
    return fig_report_refuse("bench ops: --op: \"%s\" is none of silu, gelu, gelu_tanh, rms_norm, "
                             "rope, append, rope_append",
                             only);
}

static int measure(bench *b) {
    fig_report_progress progress;
    int code = FIG_EXIT_FINE;
    fig_report_begin(&progress, "operation", b->size_count);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < b->size_count; i++) {
        code = measure_size(b, &b->sizes[i]);
        fig_report_advance(&progress, i + 1);
    }
    fig_report_end(&progress);
    return code;
}

static int run(const fig_arguments *arguments) {
    bench *b = calloc(1, sizeof *b);
    if (b == NULL) return fig_report_refuse("bench ops: no memory");
    int code = fig_bench_rig_read_machine(arguments, &b->machine);
    if (code == FIG_EXIT_FINE) code = read_sizes(arguments, b);
    if (code == FIG_EXIT_FINE) code = fig_bench_table_open(&b->table, columns, b->size_count);
    if (code == FIG_EXIT_FINE && b->machine.device == FIG_DEVICE_CUDA)
        code = fig_bench_pool_ceiling(&b->machine, &b->ceiling);
    if (code == FIG_EXIT_FINE) code = measure(b);
    if (code == FIG_EXIT_FINE) code = fig_bench_table_show(&b->table, arguments);
    fig_bench_table_close(&b->table);
    free(b);
    return code;
}

const fig_command fig_bench_ops = {
    .name = "bench ops",
    .summary = "activations, rms_norm, RoPE and append in a chain: us, and bytes a second",
    .notes = "share: of what the device reads in a second, measured in the same run; an operation\n"
             "that writes as well stays below it. Tensors that fit a cache are in it.",
    .example = "figraph bench ops --op silu --csv silu.csv",
    .run = run,
    .options =
        {
            {"--op", "NAME", "silu, gelu, gelu_tanh, rms_norm, rope, append or rope_append alone"},
            FIG_BENCH_MACHINE_OPTIONS,
        },
};
