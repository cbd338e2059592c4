/* bench_ops.c: figraph bench ops, which times the small operations in a chain.
 *
 * Each operation is first recorded once and compared with float64, then recorded many times and
 * timed. Every launch follows the one before, as in a model, where each operation waits for its
 * input. Invariant: all rows of a call are measured in one run on one machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph.h>

#include "tools/figraph/bench/bench_ops.h"
#include "tools/figraph/bench/bench_parts.h"
#include "tools/figraph/bench/bench_pool.h"
#include "tools/figraph/bench/bench_rig.h"
#include "tools/figraph/bench/bench_table.h"
#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/report.h"

enum {
    CHAIN = 256,     /* launches in a graph */
    LONG_CHAIN = 32, /* launches if there are many rows */
    FEW_ROWS = 512,  /* more rows than this are "many" */
    HOST_CHAIN = 2,
    ROW_LIMIT = 1024, /* rows of a step; if there are more, a row has several query tokens */
    ALIGNED = 256,
    SIZE_LIMIT = 256
};
/* half the pool, enough for the sets of every size */
static const size_t HALF = 1 << 30, HOST_HALF = 1 << 20;
static const double COLD_BYTES = 256e6; /* the least bytes of all sets together */

static const fig_bench_column columns[] = {
    {"device", 0, -1},      {"chip", 0, -1}, {"op", 12, -1},  {"width", 7, 0},  {"rows", 6, 0},
    {"us", 9, 3},           {"gbps", 8, 1},  {"share", 6, 3}, {"spread", 6, 3}, {"copy_gbps", 0, 1},
    {"ceiling_gbps", 0, 1}, {"bytes", 0, 0}, {NULL, 0, 0}};

static const char *const op_names[] = {"silu", "gelu",   "gelu_tanh",  "rms_norm",
                                       "rope", "append", "rope_append"};
enum { OP_COUNT = sizeof op_names / sizeof *op_names };

typedef struct bench {
    fig_bench_machine machine;
    fig_bench_table table;
    fig_bench_size sizes[SIZE_LIMIT];
    int32_t size_count;
    fig_bench_pool pool;
    double copy; /* the bytes per second that a copy reads and writes; 0 on the host */
} bench;

static int has_heads(fig_bench_op of) {
    return of >= FIG_BENCH_ROPE;
}

static int appends(fig_bench_op of) {
    return of == FIG_BENCH_APPEND || of == FIG_BENCH_BOTH;
}

static int32_t inputs_of(const fig_bench_size *of) {
    return of->op == FIG_BENCH_RMS_NORM ? 1 : 2;
}

static int32_t multiple_of(const fig_bench_size *of) {
    return of->rows > ROW_LIMIT ? of->rows / ROW_LIMIT : 1;
}

/* Returns the bytes that must be read and written. An activation reads two numbers for each
 * number that it writes. */
static double bytes_of(const fig_bench_size *of) {
    const double q = (double)FIG_BENCH_Q_HEADS * FIG_BENCH_HEAD_DIM,
                 kv = (double)FIG_BENCH_KV_HEADS * FIG_BENCH_HEAD_DIM;
    const double rows = of->rows, item = 2;
    switch (of->op) {
    case FIG_BENCH_SILU:
    case FIG_BENCH_GELU:
    case FIG_BENCH_GELU_TANH: return 3 * item * rows * of->width;
    case FIG_BENCH_RMS_NORM: return item * (2 * rows * of->width + of->width);
    case FIG_BENCH_ROPE: return 2 * item * rows * (q + kv);
    case FIG_BENCH_APPEND: return 2 * item * rows * 2 * kv;
    case FIG_BENCH_BOTH: return item * rows * (2 * (q + kv) + 3 * kv); /* k is read once */
    }
    return 0;
}

/* ---- Recording ----------------------------------------------------------------------------- */

static fig_spec spec_of(const fig_bench_size *of) {
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = FIG_BF16,
                      .kv_dtype = FIG_BF16,
                      .q_heads = FIG_BENCH_Q_HEADS,
                      .kv_heads = FIG_BENCH_KV_HEADS,
                      .head_dim = FIG_BENCH_HEAD_DIM,
                      .page_size = FIG_BENCH_PAGE,
                      .batch_limit = of->rows / multiple_of(of),
                      .row_tokens = has_heads(of->op) ? multiple_of(of) : 1,
                      .kv_limit = 128};
}

typedef struct set_name {
    char text[24];
} set_name;

/* Returns the name of a tensor of set `set`. Launch number n uses set n modulo the number of
 * sets. */
static set_name name_of(const char *stem, int32_t set) {
    set_name name;
    snprintf(name.text, sizeof name.text, "%s.%d", stem, set);
    return name;
}

/* With many rows, launches use several sets of tensors in turn, enough that none stays in a
 * cache. */
static int32_t sets_of(const fig_bench_size *of, int32_t launches) {
    const double cold = ceil(COLD_BYTES / bytes_of(of));
    if (of->rows <= FEW_ROWS) return 1;
    return cold < 2 ? 2 : cold > launches ? launches : (int32_t)cold;
}

typedef struct heads_set {
    fig_rope_op rope;
    fig_append_kv_op append;
    fig_decode_attention_op both; /* without attention */
} heads_set;

static heads_set record_heads_set(fig_bench_rig *rig, const fig_spec *spec, fig_tensor page_table,
                                  int32_t set) {
    const int32_t multiple = spec->row_tokens;
    const fig_tensor q = fig_bench_rig_rows(rig, name_of("q", set).text, FIG_BENCH_Q_HEADS,
                                            FIG_BENCH_HEAD_DIM, multiple);
    const fig_tensor k = fig_bench_rig_rows(rig, name_of("k", set).text, FIG_BENCH_KV_HEADS,
                                            FIG_BENCH_HEAD_DIM, multiple);
    heads_set recorded = {.rope = {.size = sizeof recorded.rope, .q = q, .k = k},
                          .append = {.size = sizeof recorded.append, .k = k},
                          .both = {.size = sizeof recorded.both, .q = q, .k = k}};
    if (page_table.id == 0) return recorded;
    recorded.append.v = fig_bench_rig_rows(rig, name_of("v", set).text, FIG_BENCH_KV_HEADS,
                                           FIG_BENCH_HEAD_DIM, multiple);
    recorded.append.cache.k = fig_bench_rig_cache(rig, spec, name_of("k_cache", set).text);
    recorded.append.cache.v = fig_bench_rig_cache(rig, spec, name_of("v_cache", set).text);
    recorded.append.cache.page_table = page_table;
    recorded.both.v = recorded.append.v;
    recorded.both.cache = recorded.append.cache;
    return recorded;
}

static void record_heads(fig_bench_rig *rig, const fig_bench_size *of, int32_t launches,
                         int32_t sets) {
    const fig_spec spec = spec_of(of);
    heads_set recorded[CHAIN];
    fig_tensor page_table = {0};
    if (appends(of->op)) page_table = fig_bench_rig_table(rig, &spec);
    for (int32_t set = 0; set < sets; set++)
        recorded[set] = record_heads_set(rig, &spec, page_table, set);
    for (int32_t i = 0; i < launches; i++) {
        const heads_set *next = &recorded[i % sets];
        if (of->op == FIG_BENCH_ROPE) fig_rope(rig->program, &next->rope);
        if (of->op == FIG_BENCH_APPEND) fig_append_kv(rig->program, &next->append);
        if (of->op == FIG_BENCH_BOTH) fig_decode_attention(rig->program, &next->both);
    }
}

static void record_rows(fig_bench_rig *rig, const fig_bench_size *of, int32_t launches,
                        int32_t sets) {
    const int32_t multiple = multiple_of(of);
    fig_gated_op gated[CHAIN];
    fig_tensor weight = {0};
    if (of->op == FIG_BENCH_RMS_NORM)
        weight = fig_program_tensor(
            rig->program, FIG_OPTIONS(fig_tensor_info, .name = "weight", .role = FIG_ROLE_BOUND,
                                      .dtype = FIG_BF16, .rank = 1, .dims = {of->width}));
    for (int32_t set = 0; set < sets; set++)
        gated[set] = (fig_gated_op){
            .size = sizeof *gated,
            .in = fig_bench_rig_rows(rig, name_of("in", set).text, inputs_of(of) * of->width, 0,
                                     multiple),
            .out = fig_bench_rig_rows(rig, name_of("out", set).text, of->width, 0, multiple)};
    for (int32_t i = 0; i < launches; i++) {
        const fig_gated_op *next = &gated[i % sets];
        if (of->op == FIG_BENCH_SILU) fig_silu_and_mul(rig->program, next);
        if (of->op == FIG_BENCH_GELU) fig_gelu_and_mul(rig->program, next);
        if (of->op == FIG_BENCH_GELU_TANH) fig_gelu_tanh_and_mul(rig->program, next);
        if (of->op == FIG_BENCH_RMS_NORM)
            fig_rms_norm(rig->program, FIG_OPTIONS(fig_rms_norm_op, .in = next->in,
                                                   .weight = weight, .out = next->out));
    }
}

/* ---- Measuring ----------------------------------------------------------------------------- */

/* Tensors that are read lie one after another in the pool's first half; tensors that are only
 * written lie in the second. Filling them again for each size would take longer than timing. */
static fig_status bind_rows(fig_bench_rig *rig, const bench *b, const fig_bench_size *of,
                            int32_t sets) {
    const size_t item = fig_synthetic_bytes(FIG_BF16), rows = (size_t)of->rows;
    const struct {
        const char *stem;
        size_t bytes;
        int written;
    } all[] = {{"in", rows * (size_t)(inputs_of(of) * of->width) * item, 0},
               {"out", rows * (size_t)of->width * item, 1},
               {"q", rows * FIG_BENCH_Q_HEADS * FIG_BENCH_HEAD_DIM * item, 0},
               {"k", rows * FIG_BENCH_KV_HEADS * FIG_BENCH_HEAD_DIM * item, 0},
               {"v", rows * FIG_BENCH_KV_HEADS * FIG_BENCH_HEAD_DIM * item, 0}};
    const int first = has_heads(of->op) ? 2 : 0;
    const int end = !has_heads(of->op) ? 2 : appends(of->op) ? 5 : 4;
    size_t at[2] = {0, b->pool.half_bytes};
    fig_status status = FIG_OK;
    for (int32_t i = 0; status == FIG_OK && i < sets * (end - first); i++) {
        const int kind = first + i % (end - first);
        const set_name name = name_of(all[kind].stem, i / (end - first));
        const fig_binding binding = {.size = sizeof binding,
                                     .name = name.text,
                                     .address = b->pool.address + at[all[kind].written],
                                     .bytes = all[kind].bytes};
        at[all[kind].written] += (all[kind].bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
        status = fig_engine_bind(rig->engine, &binding);
    }
    return status;
}

static fig_status bind_caches(fig_bench_rig *rig, const fig_bench_size *of, int32_t sets) {
    const fig_spec spec = spec_of(of);
    const size_t bytes = (size_t)spec.batch_limit * FIG_BENCH_PAGE * FIG_BENCH_KV_HEADS *
                         FIG_BENCH_HEAD_DIM * fig_synthetic_bytes(FIG_BF16);
    fig_status status = FIG_OK;
    for (int32_t i = 0; status == FIG_OK && i < 2 * sets; i++) {
        const set_name name = name_of(i % 2 ? "v_cache" : "k_cache", i / 2);
        status = fig_engine_bind(rig->engine,
                                 FIG_OPTIONS(fig_binding, .name = name.text, .bytes = bytes));
    }
    for (int32_t row = 0; status == FIG_OK && row < spec.batch_limit; row++)
        status = fig_engine_set_pages(
            rig->engine, FIG_OPTIONS(fig_pages, .sequence = row, .count = 1, .pages = &row));
    return status;
}

static int32_t launches_of(const bench *b, const fig_bench_size *of) {
    if (b->machine.device == FIG_DEVICE_HOST) return HOST_CHAIN;
    return of->rows > FEW_ROWS ? LONG_CHAIN : CHAIN;
}

static int bind_all(fig_bench_rig *rig, const bench *b, const fig_bench_size *of, int32_t sets) {
    fig_status status = bind_rows(rig, b, of, sets);
    if (status == FIG_OK && appends(of->op)) status = bind_caches(rig, of, sets);
    return status == FIG_OK ? FIG_EXIT_FINE : fig_report_status("bench ops");
}

/* Opens a rig with the given number of launches over the given number of sets of tensors. The
 * rig is serial, because launches on different sets would not wait for each other. */
static int open_size(fig_bench_rig *rig, const bench *b, const fig_bench_size *of, int32_t launches,
                     int32_t sets) {
    const fig_spec spec = spec_of(of);
    int code = fig_bench_rig_begin(rig, &spec);
    if (code != FIG_EXIT_FINE) return code;
    rig->serial = 1;
    if (has_heads(of->op)) {
        record_heads(rig, of, launches, sets);
    } else {
        record_rows(rig, of, launches, sets);
    }
    code = fig_bench_rig_open(rig, &b->machine, (fig_bucket){spec.batch_limit, 128});
    if (code == FIG_EXIT_FINE) code = bind_all(rig, b, of, sets);
    if (code == FIG_EXIT_FINE && of->op == FIG_BENCH_RMS_NORM)
        code = fig_bench_rig_fill(rig, "weight", FIG_BF16, of->width);
    return code;
}

static int check_size(const bench *b, const fig_bench_size *of) {
    const fig_spec spec = spec_of(of);
    fig_bench_rig rig = {.engine = NULL};
    int code = open_size(&rig, b, of, 1, 1);
    if (code == FIG_EXIT_FINE) code = fig_bench_ops_check(&rig, of, &spec);
    fig_bench_rig_close(&rig);
    return code;
}

static int time_size(const bench *b, const fig_bench_size *of, fig_timed *timed) {
    const fig_spec spec = spec_of(of);
    const int32_t launches = launches_of(b, of);
    int32_t lengths[ROW_LIMIT];
    fig_bench_rig rig = {.engine = NULL};
    for (int32_t row = 0; row < spec.batch_limit; row++)
        lengths[row] = spec.row_tokens;
    const fig_step step = {.size = sizeof step, .rows = spec.batch_limit, .kv_lengths = lengths};
    int code = open_size(&rig, b, of, launches, sets_of(of, launches));
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_time(&rig, &b->machine, &step, timed);
    fig_bench_rig_close(&rig);
    timed->median_ns /= launches;
    timed->least_ns /= launches;
    timed->most_ns /= launches;
    return code;
}

static int measure_size(bench *b, const fig_bench_size *of) {
    fig_timed timed = {0};
    fig_bench_table *table = &b->table;
    const double bytes = bytes_of(of);
    int code = check_size(b, of);
    if (code == FIG_EXIT_FINE) code = time_size(b, of, &timed);
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
    fig_bench_table_number(table, "share", bytes / timed.median_ns / b->copy * 1e9);
    fig_bench_table_number(table, "spread", (timed.most_ns - timed.least_ns) / timed.median_ns);
    fig_bench_table_number(table, "copy_gbps", b->copy / 1e9);
    fig_bench_table_number(table, "ceiling_gbps", b->pool.ceiling / 1e9);
    return FIG_EXIT_FINE;
}

/* ---- Arguments ----------------------------------------------------------------------------- */

static void add_sizes(bench *b, fig_bench_op of, const int32_t *widths, const int32_t *rows) {
    for (int i = 0; widths[i] > 0; i++)
        for (int j = 0; rows[j] > 0 && b->size_count < SIZE_LIMIT; j++)
            b->sizes[b->size_count++] = (fig_bench_size){of, op_names[of], widths[i], rows[j]};
}

static int read_sizes(const fig_arguments *arguments, bench *b) {
    static const int32_t widths[] = {1792, 3584, 7168, 14336, 28672, 0};
    static const int32_t norms[] = {2048, 4096, 8192, 0},
                         heads[] = {FIG_BENCH_Q_HEADS * FIG_BENCH_HEAD_DIM, 0};
    static const int32_t rows[] = {1, 8, 64, 256, 1024, 4096, 0}, few[] = {1, 256, 0};
    static const int32_t host_widths[] = {64, 0}, host_rows[] = {1, 3, 0};
    const char *only = fig_arguments_text(arguments, "--op");
    const int host = b->machine.device == FIG_DEVICE_HOST;
    const int32_t *counts = host ? host_rows : b->machine.quick ? few : rows;
    for (int of = 0; of < OP_COUNT; of++) {
        if (only != NULL && strcmp(only, op_names[of]) != 0) continue;
        add_sizes(b, (fig_bench_op)of,
                  has_heads((fig_bench_op)of)              ? heads
                  : host                                   ? host_widths
                  : (fig_bench_op)of == FIG_BENCH_RMS_NORM ? norms
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

static int open_pool(bench *b) {
    const int host = b->machine.device == FIG_DEVICE_HOST;
    const size_t half = host ? HOST_HALF : HALF;
    const int code = fig_bench_pool_open(&b->pool, &b->machine, FIG_BF16, half);
    if (code != FIG_EXIT_FINE) return code;
    if (b->pool.half_bytes < half) return fig_report_refuse("bench ops: no memory for tensors");
    return fig_bench_pool_copy(&b->pool, &b->machine, &b->copy);
}

static int run(const fig_arguments *arguments) {
    bench *b = calloc(1, sizeof *b);
    if (b == NULL) return fig_report_refuse("bench ops: no memory");
    int code = fig_bench_rig_read_machine(arguments, &b->machine);
    if (code == FIG_EXIT_FINE) code = read_sizes(arguments, b);
    if (code == FIG_EXIT_FINE) code = fig_bench_table_open(&b->table, columns, b->size_count);
    if (code == FIG_EXIT_FINE) code = open_pool(b);
    if (code == FIG_EXIT_FINE) code = measure(b);
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_show(&b->machine, &b->table, arguments);
    fig_bench_table_close(&b->table);
    fig_bench_pool_close(&b->pool);
    free(b);
    return code;
}

const fig_command fig_bench_ops = {
    .name = "bench ops",
    .summary = "activations, rms_norm, RoPE and append in a chain: us and bytes per second",
    .notes =
        "rope_append is RoPE and append in one launch, as decode_attention without an out records "
        "it. share compares the bytes per second with those of a copy in the same run. Tensors of "
        "up to 512 rows stay in the GPU's cache if they fit. With more rows the launches rotate "
        "over so many sets of tensors that no cache holds them.",
    .example = "figraph bench ops --op silu --csv silu.csv",
    .run = run,
    .options =
        {
            {"--op", "NAME",
             "only silu, gelu, gelu_tanh, rms_norm, rope, append or rope_append; default: all"},
            FIG_BENCH_MACHINE_OPTIONS,
        },
};
