/* bench_attention.c: figraph bench attention, which times attention against its roofline.
 *
 * A cell's score is its roofline divided by its time. The roofline is 2 us plus the bytes of K and
 * V at the memory's speed, or over a latent cache the time of its products if that is longer. The
 * time is measured in a chain, where launches depend on each other and
 * nothing else runs, and standalone: the time that attention adds to a chain of kernels that read
 * weights. Every cell is checked before it is timed. Invariant: all cells of a call are measured in
 * one run on one machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph_unstable.h>

#include "tools/figraph/bench/bench_chain.h"
#include "tools/figraph/bench/bench_parts.h"
#include "tools/figraph/bench/bench_table.h"
#include "tools/figraph/step/source.h"
#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/report.h"

enum { FEW_SAMPLES = 3, RANDOM_LIMIT = 256, RANDOM_LONGEST = 32768 };
static const double LONG_BYTES = 5e9; /* a replay that reads this many bytes takes milliseconds */
/* measured on an H200 with bulk copies */
static const double FIXED_US = 2, FIXED_BYTES_PER_US = 4.70e6;
static const double FLOPS_PER_US = 790e6; /* of products in 16 bits, on an H200 */

static const fig_bench_column columns[] = {{"device", 0, -1},
                                           {"chip", 0, -1},
                                           {"set", 0, -1},
                                           {"cell", 18, -1},
                                           {"heads", 6, -1},
                                           {"head_dim", 8, 0},
                                           {"page", 4, 0},
                                           {"layout", 6, -1},
                                           {"dtype", 0, -1},
                                           {"kv_dtype", 8, -1},
                                           {"kv_scales", 0, -1},
                                           {"window", 0, 0},
                                           {"rows", 0, 0},
                                           {"tokens", 0, 0},
                                           {"family", 7, -1},
                                           {"workers", 0, 0},
                                           {"layers", 0, 0},
                                           {"caches", 0, 0},
                                           {"bytes", 0, 0},
                                           {"limit_us", 8, 2},
                                           {"chain_us", 9, 2},
                                           {"chain_share", 11, 3},
                                           {"alone_us", 9, 2},
                                           {"alone_share", 11, 3},
                                           {"of_twin", 7, 3},
                                           {"spread", 6, 3},
                                           {"ceiling_gbps", 0, 1},
                                           {"ceiling_limit_us", 0, 2},
                                           {"ceiling_chain_share", 0, 4},
                                           {"ceiling_alone_share", 0, 4},
                                           {"worst_ulp", 0, 3},
                                           {"queries", 0, 0},
                                           {"of_plain", 8, 3},
                                           {"ones_us", 0, 2},
                                           {"most_us", 0, 2},
                                           {NULL, 0, 0}};

typedef struct bench {
    fig_bench_machine machine;
    fig_bench_cells cells;
    fig_bench_table table;
    int32_t left_out; /* cells that do not fit into memory */
    double speed;     /* bytes per us of the previous cell's chain; 0: the cell was left out */
    double chain_us;  /* time of a layer of that chain */
    uint64_t seed;    /* decides the numbers of query tokens that are drawn */
} bench;

/* ---- Options ------------------------------------------------------------------------------- */

static int read_dtype(const char *option, const char *text, fig_dtype *dtype) {
    static const fig_dtype dtypes[] = {FIG_F32, FIG_F16, FIG_BF16, FIG_E4M3, FIG_E5M2};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(text, fig_report_dtype(dtypes[i])) != 0) continue;
        *dtype = dtypes[i];
        return FIG_EXIT_FINE;
    }
    return fig_report_refuse("bench attention: %s: \"%s\" is none of f32, f16, bf16, e4m3, e5m2",
                             option, text);
}

static int read_number(const fig_arguments *arguments, const char *name, int64_t most,
                       int32_t fallback, int32_t *value) {
    const fig_integer range = {.name = name, .least = 0, .most = most, .fallback = fallback};
    int64_t number;
    const int code = fig_arguments_integer(arguments, &range, &number);
    *value = (int32_t)number;
    return code;
}

static int read_layout(const fig_arguments *arguments, fig_kv_layout *layout) {
    const char *text = fig_arguments_text(arguments, "--layout");
    *layout = text != NULL && strcmp(text, "hnd") == 0 ? FIG_HND : FIG_NHD;
    if (text == NULL || *layout == FIG_HND || strcmp(text, "nhd") == 0) return FIG_EXIT_FINE;
    return fig_report_refuse("bench attention: --layout: \"%s\" is none of nhd, hnd", text);
}

static int read_scales(const fig_arguments *arguments, fig_bench_shape *shape) {
    const char *text = fig_arguments_text(arguments, "--kv-scales");
    const int fp8 = shape->kv_dtype == FIG_E4M3 || shape->kv_dtype == FIG_E5M2 ||
                    fig_arguments_text(arguments, "--fp8") != NULL;
    shape->kv_scales = text != NULL && strcmp(text, "head") == 0;
    if (text != NULL && !fp8)
        return fig_report_refuse("bench attention: --kv-scales: %s was given, but a cache of %s "
                                 "has no scales; only caches of e4m3 and e5m2 have scales",
                                 text, fig_report_dtype(shape->kv_dtype));
    if (text == NULL || shape->kv_scales || strcmp(text, "tensor") == 0) return FIG_EXIT_FINE;
    return fig_report_refuse("bench attention: --kv-scales: \"%s\" is none of tensor, head", text);
}

/* Takes the shape of a preset. Options may change its heads, page and dtypes, but no other part. */
static int read_preset(const fig_arguments *arguments, const char *name, fig_bench_shape *shape) {
    static const char *const fixed[] = {"--head-dim", "--fp8", "--layout"};
    fig_spec spec = {.size = sizeof spec};
    const int code = fig_source_read_preset(name, &spec);
    if (code != FIG_EXIT_FINE) return code;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (fig_arguments_text(arguments, fixed[i]) != NULL)
            return fig_report_refuse("bench attention: %s: --preset %s gives it", fixed[i], name);
    if (spec.latent_dim == 0)
        return fig_report_refuse("bench attention: --preset: %s has no latent attention; give "
                                 "--heads %d/%d --head-dim %d",
                                 name, spec.q_heads, spec.kv_heads, spec.head_dim);
    *shape = (fig_bench_shape){.q_heads = spec.q_heads,
                               .kv_heads = spec.kv_heads,
                               .head_dim = spec.head_dim,
                               .page = spec.page_size,
                               .dtype = spec.dtype,
                               .latent_dim = spec.latent_dim,
                               .sm_scale = spec.sm_scale};
    return FIG_EXIT_FINE;
}

static int check_latent(const fig_bench_shape *shape) {
    if (shape->latent_dim == 0 || shape->kv_dtype == shape->dtype) return FIG_EXIT_FINE;
    return fig_report_refuse("bench attention: --kv-dtype: %s; cells over latent caches are "
                             "measured with the dtype of q, %s",
                             fig_report_dtype(shape->kv_dtype), fig_report_dtype(shape->dtype));
}

/* Reads the shape except the heads, which may have several values. */
static int read_shape(const fig_arguments *arguments, fig_bench_shape *shape) {
    const char *dtype = fig_arguments_text(arguments, "--dtype");
    const char *kv_dtype = fig_arguments_text(arguments, "--kv-dtype");
    const char *preset = fig_arguments_text(arguments, "--preset");
    int code = FIG_EXIT_FINE;
    if (preset != NULL) {
        code = read_preset(arguments, preset, shape);
        if (dtype == NULL) dtype = fig_report_dtype(shape->dtype);
    } else {
        code = read_number(arguments, "--head-dim", 256, 128, &shape->head_dim);
    }
    const int32_t page = preset != NULL ? shape->page : 16;
    if (code == FIG_EXIT_FINE) code = read_number(arguments, "--page", 65536, page, &shape->page);
    if (code == FIG_EXIT_FINE)
        code = read_number(arguments, "--window", INT32_MAX, 0, &shape->window);
    if (code == FIG_EXIT_FINE && shape->page == 0)
        code = fig_report_refuse("bench attention: --page: 0 is outside 1..65536");
    if (code == FIG_EXIT_FINE)
        code = read_dtype("--dtype", dtype != NULL ? dtype : "bf16", &shape->dtype);
    shape->kv_dtype = shape->dtype;
    if (code == FIG_EXIT_FINE && kv_dtype != NULL)
        code = read_dtype("--kv-dtype", kv_dtype, &shape->kv_dtype);
    if (code == FIG_EXIT_FINE) code = check_latent(shape);
    if (code == FIG_EXIT_FINE) code = read_scales(arguments, shape);
    return code == FIG_EXIT_FINE ? read_layout(arguments, &shape->layout) : code;
}

/* Adds the cells of a grid. On the host one small cell is enough to try the command. */
static int add_grid(bench *b, const fig_bench_set *set, int quarter) {
    static const int32_t batches[] = {1, 4, 8, 16, 32, 64, 128, 256, 0};
    static const int32_t lengths[] = {128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 0};
    static const int32_t quarter_batches[] = {1, 8, 32, 64, 128, 256, 0};
    static const int32_t quarter_lengths[] = {512, 1024, 2048, 4096, 8192, 0};
    static const int32_t few_batches[] = {1, 8, 64, 0}, few_lengths[] = {512, 4096, 0};
    static const int32_t host_batches[] = {1, 2, 0}, host_lengths[] = {40, 0};
    if (b->machine.device == FIG_DEVICE_HOST)
        return fig_bench_cells_grid(&b->cells, set, host_batches, host_lengths);
    if (b->machine.quick) return fig_bench_cells_grid(&b->cells, set, few_batches, few_lengths);
    return quarter ? fig_bench_cells_grid(&b->cells, set, quarter_batches, quarter_lengths)
                   : fig_bench_cells_grid(&b->cells, set, batches, lengths);
}

static int add_sets(const fig_arguments *arguments, bench *b, const fig_bench_shape *shape) {
    const int host = b->machine.device == FIG_DEVICE_HOST;
    static const char *const host_few[] = {"1x40", "1x33,2x9", NULL};
    static const char *const few[] = {"1x512",   "1x4096",  "8x512",          "8x2048",
                                      "32x2048", "64x2048", "1x32768+39x512", NULL};
    static const char *const host_ragged[] = {"1x70,3x9", NULL};
    static const char *const long_ragged[] = {"1x32768+39x512", "2x32768+62x1024", NULL};
    fig_bench_set set = {"kv", *shape, b->seed};
    int32_t random;
    int code = read_number(arguments, "--random", RANDOM_LIMIT, 0, &random);
    const int uniform = fig_arguments_text(arguments, "--uniform") != NULL;
    const int quarter = fig_arguments_text(arguments, "--fp8") != NULL;
    const int ragged = fig_arguments_text(arguments, "--ragged") != NULL;
    const int asked = uniform || quarter || ragged || random > 0;
    if (code == FIG_EXIT_FINE) code = fig_bench_cells_read(&b->cells, &set, arguments);
    if (code == FIG_EXIT_FINE && !asked && fig_arguments_text(arguments, "--kv") == NULL)
        code = fig_bench_cells_list(&b->cells, &set, host ? host_few : few);
    set.name = "uniform";
    if (code == FIG_EXIT_FINE && uniform) code = add_grid(b, &set, 0);
    set.name = "ragged";
    if (code == FIG_EXIT_FINE && ragged)
        code = fig_bench_cells_list(&b->cells, &set, host ? host_ragged : long_ragged);
    set.name = "random";
    if (code == FIG_EXIT_FINE && random > 0)
        code = fig_bench_cells_random(&b->cells, &set, random, host ? 60 : RANDOM_LONGEST);
    set.name = "fp8";
    set.shape.kv_dtype = FIG_E4M3;
    if (code == FIG_EXIT_FINE && quarter) code = add_grid(b, &set, 1);
    return code;
}

static int read_cells(const fig_arguments *arguments, bench *b) {
    const char *heads = fig_arguments_text(arguments, "--heads");
    fig_bench_shape shape = {0};
    int32_t seed;
    int code = read_shape(arguments, &shape);
    if (code == FIG_EXIT_FINE) code = read_number(arguments, "--seed", INT32_MAX, 0, &seed);
    if (code == FIG_EXIT_FINE) b->seed = 1 + (uint64_t)seed;
    if (code == FIG_EXIT_FINE && shape.latent_dim > 0 && heads == NULL)
        return add_sets(arguments, b, &shape);
    if (heads == NULL) heads = b->machine.device == FIG_DEVICE_HOST ? "4/2" : "32/8";
    while (code == FIG_EXIT_FINE) {
        code = fig_bench_cells_heads("bench attention", heads, &shape);
        if (code != FIG_EXIT_FINE) return code;
        if (shape.latent_dim > 0 && shape.kv_heads != 1)
            return fig_report_refuse(
                "bench attention: --heads: %d/%d; a latent cache has 1 kv head", shape.q_heads,
                shape.kv_heads);
        code = add_sets(arguments, b, &shape);
        heads += strcspn(heads, ",");
        if (*heads == '\0') break;
        heads++;
    }
    return code;
}

/* ---- Measuring ----------------------------------------------------------------------------- */

static void describe(bench *b, const fig_bench_chain *chain) {
    const fig_bench_cell *cell = chain->cell;
    const fig_bench_shape *shape = &cell->shape;
    fig_bench_table *table = &b->table;
    fig_bench_table_add(table);
    fig_bench_table_word(table, "device", "%s", fig_source_device_name(b->machine.device));
    fig_bench_table_word(table, "chip", "%s", b->machine.traits.name);
    fig_bench_table_word(table, "set", "%s", cell->set);
    fig_bench_table_word(table, "cell", "%s", cell->name);
    fig_bench_table_word(table, "heads", "%d/%d", shape->q_heads, shape->kv_heads);
    fig_bench_table_number(table, "head_dim", shape->head_dim);
    fig_bench_table_number(table, "page", shape->page);
    fig_bench_table_word(table, "layout", "%s", shape->layout == FIG_HND ? "hnd" : "nhd");
    fig_bench_table_word(table, "dtype", "%s", fig_report_dtype(shape->dtype));
    fig_bench_table_word(table, "kv_dtype", "%s", fig_report_dtype(shape->kv_dtype));
    if (fig_synthetic_bytes(shape->kv_dtype) == 1)
        fig_bench_table_word(table, "kv_scales", shape->kv_scales ? "head" : "tensor");
    fig_bench_table_number(table, "window", shape->window);
    fig_bench_table_number(table, "rows", cell->lengths.count);
    fig_bench_table_number(table, "tokens", (double)fig_lengths_total(&cell->lengths));
    fig_bench_table_number(table, "queries", (double)fig_bench_cell_queries(cell));
    fig_bench_table_number(table, "layers", chain->layers);
    fig_bench_table_number(table, "caches", chain->copies);
    fig_bench_table_number(table, "bytes", fig_bench_cell_bytes(cell));
}

static void describe_bucket(bench *b, const fig_bench_chain *chain, int32_t bucket) {
    fig_bucket_info info = {.size = sizeof info};
    if (fig_graphs_bucket(chain->rig.graphs, bucket, &info) != FIG_OK) return;
    fig_bench_table_word(&b->table, "family", "%dx%d", fig_report_heads(chain->rig.graphs, &info),
                         info.tile_tokens);
    fig_bench_table_number(&b->table, "workers", info.workers);
}

static void note_times(bench *b, const fig_bench_pool *pool, const fig_timed *timed,
                       const fig_bench_chain *chain, double alone_us) {
    const double bytes = fig_bench_cell_bytes(chain->cell);
    const double products_us = fig_bench_cell_flops(chain->cell) / FLOPS_PER_US;
    const double limit_us = fmax(FIXED_US + bytes / FIXED_BYTES_PER_US, products_us);
    const double ceiling_us = fmax(FIXED_US + bytes / pool->ceiling * 1e6, products_us);
    const double chain_us = timed->median_ns / 1e3 / chain->layers;
    fig_bench_table *table = &b->table;
    fig_bench_table_number(table, "limit_us", limit_us);
    fig_bench_table_number(table, "chain_us", chain_us);
    fig_bench_table_number(table, "chain_share", limit_us / chain_us);
    fig_bench_table_number(table, "alone_us", alone_us);
    fig_bench_table_number(table, "alone_share", limit_us / alone_us);
    if (chain->cell->has_twin && b->speed > 0)
        fig_bench_table_number(table, "of_twin", bytes / chain_us / b->speed);
    if (chain->cell->has_plain && b->speed > 0)
        fig_bench_table_number(table, "of_plain", chain_us / b->chain_us);
    b->speed = bytes / chain_us;
    b->chain_us = chain_us;
    fig_bench_table_number(table, "spread", (timed->most_ns - timed->least_ns) / timed->median_ns);
    fig_bench_table_number(table, "ceiling_gbps", pool->ceiling / 1e9);
    fig_bench_table_number(table, "ceiling_limit_us", ceiling_us);
    fig_bench_table_number(table, "ceiling_chain_share", ceiling_us / chain_us);
    fig_bench_table_number(table, "ceiling_alone_share", ceiling_us / alone_us);
}

/* Times the graph of a cell with drafts again, with other numbers of query tokens: with one in each
 * row, and with the most that a row may have. */
static int note_other_drafts(bench *b, const fig_bench_machine *machine, fig_bench_chain *chain) {
    static const char *const columns_of[] = {"ones_us", "most_us"};
    const int32_t each[] = {1, chain->cell->row_tokens};
    int code = FIG_EXIT_FINE;
    for (int i = 0; code == FIG_EXIT_FINE && i < 2; i++) {
        fig_timed timed = {0};
        code = fig_bench_chain_draft(chain, each[i]);
        if (code == FIG_EXIT_FINE)
            code = fig_bench_rig_time(&chain->rig, machine, &chain->step, &timed);
        if (b->machine.device == FIG_DEVICE_CUDA)
            fig_bench_table_number(&b->table, columns_of[i], timed.median_ns / 1e3 / chain->layers);
    }
    return code;
}

/* Long cells vary little, so they need fewer samples. */
static fig_bench_machine machine_for(const bench *b, const fig_bench_chain *sized) {
    fig_bench_machine machine = b->machine;
    const double bytes = fig_bench_cell_bytes(sized->cell) * sized->layers;
    if (bytes > LONG_BYTES && machine.samples > FEW_SAMPLES) machine.samples = FEW_SAMPLES;
    return machine;
}

/* Measures a cell. The host runs the same cell, but its times mean nothing and are not reported. */
static int measure_cell(bench *b, const fig_bench_pool *pool, const fig_bench_cell *cell) {
    fig_bench_chain chain;
    fig_timed timed = {0};
    double worst_ulp, alone_us;
    fig_bench_chain_size(&chain, &b->machine, cell, pool);
    if (chain.copies == 0) {
        b->left_out++;
        b->speed = 0;
        return FIG_EXIT_FINE;
    }
    const fig_bench_machine machine = machine_for(b, &chain);
    int code = fig_bench_chain_open(&chain, &machine, FIG_BENCH_NOTHING);
    if (code == FIG_EXIT_FINE) code = fig_bench_chain_check(&chain, &worst_ulp);
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_time(&chain.rig, &machine, &chain.step, &timed);
    if (code == FIG_EXIT_FINE) code = fig_bench_chain_alone(&chain, &machine, &alone_us);
    if (code == FIG_EXIT_FINE) {
        describe(b, &chain);
        describe_bucket(b, &chain, timed.bucket);
        fig_bench_table_number(&b->table, "worst_ulp", worst_ulp);
        if (b->machine.device == FIG_DEVICE_CUDA) note_times(b, pool, &timed, &chain, alone_us);
        if (cell->row_tokens > 0) code = note_other_drafts(b, &machine, &chain);
    }
    fig_bench_chain_close(&chain);
    return code;
}

/* Measures all cells of a dtype in one pool. */
static int measure_dtype(bench *b, fig_dtype dtype, fig_report_progress *progress, int32_t *done) {
    size_t half = 0;
    fig_bench_pool pool;
    for (int32_t i = 0; i < b->cells.count; i++) {
        const fig_bench_cell *cell = &b->cells.cells[i];
        const size_t bytes = fig_bench_chain_bytes(&b->machine, cell);
        if (cell->shape.kv_dtype == dtype && bytes > half) half = bytes;
    }
    if (half == 0) return FIG_EXIT_FINE;
    int code = fig_bench_pool_open(&pool, &b->machine, dtype, half);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < b->cells.count; i++) {
        if (b->cells.cells[i].shape.kv_dtype != dtype) continue;
        code = measure_cell(b, &pool, &b->cells.cells[i]);
        fig_report_advance(progress, ++*done);
    }
    fig_bench_pool_close(&pool);
    return code;
}

static int measure(bench *b) {
    static const fig_dtype dtypes[] = {FIG_F32, FIG_F16, FIG_BF16, FIG_E4M3, FIG_E5M2};
    fig_report_progress progress;
    int32_t done = 0;
    int code = FIG_EXIT_FINE;
    fig_report_begin(&progress, "cell", b->cells.count);
    for (size_t i = 0; code == FIG_EXIT_FINE && i < sizeof dtypes / sizeof *dtypes; i++)
        code = measure_dtype(b, dtypes[i], &progress, &done);
    fig_report_end(&progress);
    return code;
}

/* ---- Results ------------------------------------------------------------------------------- */

static void print_means(const bench *b) {
    char line[256];
    snprintf(line, sizeof line,
             "geometric means: chain %.3f, alone %.3f; of the ceiling measured, %.0f GB/s: chain "
             "%.3f, alone %.3f",
             fig_bench_table_mean(&b->table, "chain_share"),
             fig_bench_table_mean(&b->table, "alone_share"),
             fig_bench_table_mean(&b->table, "ceiling_gbps"),
             fig_bench_table_mean(&b->table, "ceiling_chain_share"),
             fig_bench_table_mean(&b->table, "ceiling_alone_share"));
    if (b->machine.device == FIG_DEVICE_CUDA) {
        printf("\n");
        fig_columns_words(0, 0, line);
    }
    const double worst = fig_bench_table_least(&b->table, "of_twin");
    if (!isnan(worst))
        printf("speed of random batches, of a uniform batch's: geometric mean %.3f, worst %.3f\n",
               fig_bench_table_mean(&b->table, "of_twin"), worst);
    if (b->left_out > 0)
        printf("%d cell%s left out, for want of memory\n", b->left_out,
               b->left_out == 1 ? "" : "s");
}

static int run(const fig_arguments *arguments) {
    bench b = {0};
    int code = fig_bench_rig_read_machine(arguments, &b.machine);
    if (code == FIG_EXIT_FINE) code = read_cells(arguments, &b);
    if (code == FIG_EXIT_FINE) code = fig_bench_table_open(&b.table, columns, b.cells.count);
    if (code == FIG_EXIT_FINE) code = measure(&b);
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_show(&b.machine, &b.table, arguments);
    if (code == FIG_EXIT_FINE && fig_arguments_text(arguments, "--json") == NULL) print_means(&b);
    fig_bench_table_close(&b.table);
    fig_bench_cells_finish(&b.cells);
    return code;
}

const fig_command fig_bench_attention = {
    .name = "bench attention",
    .summary = "attention's share of its roofline, in a chain and standalone",
    .notes =
        "A cell is one step. Its rows are written as in figraph plan --help: 8x2048 or "
        "32768,39x512. Give --kv once for each cell. In text and CSV the name of a cell has + "
        "instead of commas.\n"
        "\n"
        "chain: layers over cold caches and shuffled pages; each layer's q is the out of the layer "
        "before. alone: the time that a layer adds to a chain of other kernels. Each of these "
        "reads 33.5 MB of weights, like a projection of 4096 x 4096, and begins after the previous "
        "one has ended. limit: the roofline, 2 us plus the bytes of K and V at 4.70 TB/s. share: "
        "the roofline divided by the time. CSV and JSON also have the measured ceiling of the "
        "memory, and shares of it.\n"
        "\n"
        "--preset takes a model with latent attention (MLA), such as deepseek-v3. A token is then "
        "one vector for all heads, all layers of a chain read one q, and the roofline is the time "
        "of the products, at 790 TFLOP/s, if that is longer. --heads then has the form 16/1: one "
        "rank of several has fewer query heads.\n"
        "\n"
        "Rows of drafts have a number of query tokens, up to 16, as in 32x4096:16, or a range from "
        "which each row's number is drawn, as in 32x4096:2-16. The device then reads lengths and "
        "query_start_loc and makes the plan, in one graph for every mix. Before such a cell, the "
        "same rows are measured with one query token each. of_plain: the time in a chain, as a "
        "multiple of theirs. CSV and JSON also have the times of the same graph with one query "
        "token in each row (ones_us), and with the most that a row may have (most_us).\n"
        "\n"
        "of_twin: the bytes per second of a random batch, as a share of those of the uniform batch "
        "beside it. family: the kv heads (over a latent cache, the query heads) and tokens that a "
        "worker reads at a time.",
    .example = "figraph bench attention --heads 32/8,64/8 --kv 8x2048 --kv 32768,39x512",
    .run = run,
    .options =
        {
            {"--preset", "NAME", "the heads, page and dtype of a model with latent attention"},
            {"--heads", "Q/KV,..", "query and kv heads; default 32/8, or the preset's"},
            {"--head-dim", "N", "numbers per head; default 128"},
            {"--page", "N", "tokens per cache page; default 16"},
            {"--dtype", "NAME", "f32, f16 or bf16; default bf16"},
            {"--kv-dtype", "NAME", "the cache's type, also e4m3 or e5m2; default: as --dtype"},
            {"--kv-scales", "NAME",
             "tensor or head: one scale per tensor or per head of an e4m3 or e5m2 cache"},
            {"--layout", "NAME", "order of dims in a cache page: nhd or hnd"},
            {"--window", "N", "tokens that a query sees; default: all"},
            {"--kv", "LENS", "a cell; may be repeated. Without --kv and sets: a few cells",
             .repeats = 1},
            {"--uniform", NULL, "the set of batch 1 to 256 x kv 128 to 32768 that fits in memory"},
            {"--fp8", NULL, "the set of batch 1 to 256 x kv 512 to 8192 with an e4m3 cache"},
            {"--ragged", NULL, "a set of one or two long rows among many short ones"},
            {"--random", "N", "N random batches, each beside a uniform batch of equal bytes"},
            {"--seed", "N", "seed of the numbers of query tokens that are drawn; default 0"},
            FIG_BENCH_MACHINE_OPTIONS,
        },
};
