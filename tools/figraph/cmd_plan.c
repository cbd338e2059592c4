/* cmd_plan.c: figraph plan, how one step's KV work is cut among the workers.
 *
 * Layers that see as much are split alike, so one of each kind is lowered. The library reports the
 * split of the first attention: where there are two kinds, both are lowered twice, in either order,
 * so that each is planned in the bucket that their whole step takes. Nothing runs. Invariant: the
 * rows of each worker, which the library does not report, are walked along the same line of tiles
 * that it cuts, and the sum of both is checked. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <figraph.h>

#include "tools/figraph/commands.h"
#include "tools/figraph/draw.h"
#include "tools/figraph/emit.h"
#include "tools/figraph/lengths.h"
#include "tools/figraph/report.h"
#include "tools/figraph/source.h"

#define DEFAULT_TRAITS "h200"

enum { KIND_LIMIT = 2 };

/* Layers that see as much, and their split. */
typedef struct planned_kind {
    int32_t window; /* 0: all tokens */
    int32_t layers;
    fig_graphs *graphs;
    fig_plan_report report;
    int32_t *worker_tiles, *worker_rows; /* [report.workers] */
    int32_t longest_workers;             /* who share the longest row */
} planned_kind;

typedef struct planned_step {
    fig_source source;
    fig_traits traits;
    fig_lengths lengths;
    planned_kind kinds[KIND_LIMIT];
    int32_t kind_count;
    fig_graphs_info info;
    fig_bucket_info bucket;
    int32_t longest; /* the row with most tokens */
} planned_step;

static int read_lengths(const fig_arguments *arguments, fig_lengths *lengths) {
    fig_integer range = {.name = "--batch", .least = 1, .most = FIG_LENGTHS_LIMIT};
    const char *text = fig_arguments_text(arguments, "--kv");
    int64_t batch;
    if (text == NULL) return fig_report_refuse("plan: --kv: its value, LENS, is missing");
    int code = fig_lengths_parse(lengths, text, "plan: --kv");
    if (code != FIG_EXIT_FINE) return code;
    range.fallback = lengths->count;
    code = fig_arguments_integer(arguments, &range, &batch);
    if (code != FIG_EXIT_FINE) return code;
    return fig_lengths_repeat(lengths, (int32_t)batch, "plan: --kv");
}

static int read_arguments(const fig_arguments *arguments, planned_step *plan) {
    int traits_given;
    int code = fig_source_read(arguments, &plan->source);
    if (code == FIG_EXIT_FINE)
        code = fig_source_read_traits(arguments, &plan->traits, &traits_given);
    if (code == FIG_EXIT_FINE) code = read_lengths(arguments, &plan->lengths);
    if (code != FIG_EXIT_FINE || traits_given) return code;
    return fig_traits_named(&plan->traits, DEFAULT_TRAITS) == FIG_OK ? code
                                                                     : fig_report_status(NULL);
}

/* Tiles begin at multiples of their size, the first being the one with the first token seen. */
static int32_t row_tiles(const planned_step *plan, const planned_kind *kind, int32_t row) {
    int32_t tile = kind->report.tile_tokens, length = plan->lengths.values[row];
    int32_t first = length - plan->info.spec->row_tokens + 1 - kind->window;
    if (length == 0) return 0;
    if (kind->window == 0 || first < 0) first = 0;
    return (length + tile - 1) / tile - first / tile;
}

/* Walks rows, head groups and workers together; who reads of a row is counted for it once. */
static void count_rows(const planned_step *plan, planned_kind *kind) {
    int32_t groups = plan->info.spec->kv_heads / kind->report.heads;
    int32_t worker = 0, left = kind->worker_tiles[0];
    int64_t walked = 0;
    for (int32_t row = 0; row < plan->lengths.count; row++) {
        int64_t tiles = (int64_t)row_tiles(plan, kind, row) * groups;
        int32_t workers = 0;
        walked += tiles;
        while (tiles > 0) {
            while (left == 0 && worker + 1 < kind->report.workers)
                left = kind->worker_tiles[++worker];
            assert(left > 0);
            int32_t taken = tiles < left ? (int32_t)tiles : left;
            kind->worker_rows[worker]++;
            workers++;
            tiles -= taken;
            left -= taken;
        }
        if (row == plan->longest) kind->longest_workers = workers;
    }
    assert(walked == kind->report.tiles);
}

static void find_kinds(planned_step *plan) {
    const fig_spec *spec = &plan->source.spec;
    int32_t windowed = fig_source_window_layers(spec);
    if (windowed > 0)
        plan->kinds[plan->kind_count++] =
            (planned_kind){.window = spec->window, .layers = windowed};
    if (windowed < spec->layers)
        plan->kinds[plan->kind_count++] = (planned_kind){.layers = spec->layers - windowed};
}

/* One layer of each kind, that of `kind` first. */
static int lower_kind(const planned_step *plan, planned_kind *kind) {
    fig_source source = plan->source;
    fig_spec *spec = &source.spec;
    spec->layers = plan->kind_count;
    for (int i = 0; i < 8; i++)
        spec->window_layers[i] = 0;
    if (plan->kind_count > 1) spec->window_layers[0] = kind->window > 0 ? 1 : 2;
    return fig_source_lower(&source, &plan->traits, &kind->graphs);
}

static int plan_kind(planned_step *plan, planned_kind *kind) {
    fig_step step = {
        .size = sizeof step, .rows = plan->lengths.count, .kv_lengths = plan->lengths.values};
    int code = lower_kind(plan, kind);
    if (code != FIG_EXIT_FINE) return code;
    kind->report.size = sizeof kind->report;
    if (fig_graphs_plan(kind->graphs, &step, &kind->report) != FIG_OK) {
        return fig_report_status("plan");
    }
    size_t workers = (size_t)kind->report.workers;
    kind->worker_tiles = calloc(workers + 1, sizeof *kind->worker_tiles);
    kind->worker_rows = calloc(workers + 1, sizeof *kind->worker_rows);
    if (kind->worker_tiles == NULL || kind->worker_rows == NULL) {
        return fig_report_refuse("plan: no memory for %zu workers", workers);
    }
    kind->report.worker_tiles = kind->worker_tiles;
    kind->report.worker_capacity = kind->report.workers;
    plan->info.size = sizeof plan->info;
    plan->bucket.size = sizeof plan->bucket;
    if (fig_graphs_plan(kind->graphs, &step, &kind->report) != FIG_OK ||
        fig_graphs_bucket(kind->graphs, kind->report.bucket, &plan->bucket) != FIG_OK) {
        return fig_report_status("plan");
    }
    fig_graphs_read_info(kind->graphs, &plan->info);
    count_rows(plan, kind);
    return FIG_EXIT_FINE;
}

static int make_plan(planned_step *plan) {
    int code = FIG_EXIT_FINE;
    for (int32_t row = 1; row < plan->lengths.count; row++) {
        if (plan->lengths.values[row] > plan->lengths.values[plan->longest]) plan->longest = row;
    }
    find_kinds(plan);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < plan->kind_count; i++)
        code = plan_kind(plan, &plan->kinds[i]);
    assert(code != FIG_EXIT_FINE || plan->kind_count == 1 ||
           plan->kinds[0].report.bucket == plan->kinds[1].report.bucket);
    return code;
}

static double mean_tiles(const planned_kind *kind) {
    return (double)kind->report.tiles / kind->report.workers;
}

static void print_step(const planned_step *plan) {
    const fig_plan_report *report = &plan->kinds[0].report;
    char lengths[56], a[FIG_REPORT_NUMBER], b[FIG_REPORT_NUMBER];
    fig_lengths_describe(&plan->lengths, lengths, sizeof lengths);
    fig_report_name(plan->source.name);
    printf(" on %s\n\n", plan->traits.name);
    printf("  step      %d row%s of %s: %s tokens\n", plan->lengths.count,
           plan->lengths.count == 1 ? "" : "s", lengths,
           fig_report_number(a, fig_lengths_total(&plan->lengths)));
    printf("  bucket    %d of %d: up to %d row%s and %s tokens\n", report->bucket,
           plan->info.bucket_count, plan->bucket.bucket.batch,
           plan->bucket.bucket.batch == 1 ? "" : "s",
           fig_report_number(a, (int64_t)plan->bucket.bucket.batch * plan->bucket.bucket.kv));
    printf("  variant   %d: a worker reads %d of %d kv heads, %d tokens a tile\n",
           plan->bucket.variant, report->heads, plan->info.spec->kv_heads, report->tile_tokens);
    printf("  plan      %s bytes of at most %s\n",
           fig_report_number(a, (int64_t)report->plan_bytes),
           fig_report_number(b, (int64_t)report->plan_bytes_limit));
}

/* What the kind sees, where not every layer sees all. */
static void print_kind(const planned_step *plan, const planned_kind *kind) {
    const fig_plan_report *report = &kind->report;
    char a[FIG_REPORT_NUMBER];
    if (plan->kind_count > 1 || kind->window > 0) {
        printf("\n%d of %d layer%s: a query sees ", kind->layers, plan->source.spec.layers,
               plan->source.spec.layers == 1 ? "" : "s");
        if (kind->window > 0)
            printf("%s tokens, its own included\n\n", fig_report_number(a, kind->window));
        if (kind->window == 0) printf("all tokens\n\n");
    }
    printf("  tiles     %s; each of %d workers has ", fig_report_number(a, report->tiles),
           report->workers);
    if (report->tiles_least == report->tiles_most) {
        printf("%d\n", report->tiles_most);
    } else {
        printf("%d to %d, %.2f on average\n", report->tiles_least, report->tiles_most,
               mean_tiles(kind));
    }
    printf("  partials  %d of at most %d\n", report->partials, report->partial_limit);
}

/* What the split is for: how long the step would take if nobody shared the longest row. */
static void print_longest(const planned_step *plan, const planned_kind *kind) {
    int32_t groups = plan->info.spec->kv_heads / kind->report.heads;
    char each[FIG_REPORT_NUMBER];
    fig_report_number(each, row_tiles(plan, kind, plan->longest));
    if (kind->longest_workers <= groups) return;
    if (groups == 1) {
        printf("\nUncut, row %d would keep one worker busy for %s tiles; here %d share them.\n",
               plan->longest, each, kind->longest_workers);
    } else {
        printf(
            "\nUncut, row %d would keep %d workers busy for %s tiles each; here %d share them.\n",
            plan->longest, groups, each, kind->longest_workers);
    }
}

static void print_plan(const planned_step *plan) {
    print_step(plan);
    for (int32_t i = 0; i < plan->kind_count; i++) {
        const planned_kind *kind = &plan->kinds[i];
        fig_draw_loads loads = {.tiles = kind->worker_tiles,
                                .rows = kind->worker_rows,
                                .workers = kind->report.workers,
                                .most = kind->report.tiles_most};
        print_kind(plan, kind);
        if (kind->report.tiles == 0) continue;
        printf("\ntiles of each worker, and how many rows it reads\n\n");
        fig_draw_bars(&loads);
        print_longest(plan, kind);
    }
    if (plan->kinds[0].report.tiles == 0) printf("\nEvery row is idle: there is nothing to cut.\n");
}

static void emit_array(fig_emit *emit, const char *key, const int32_t *values, int32_t count) {
    fig_emit_array(emit, key);
    for (int32_t i = 0; i < count; i++)
        fig_emit_integer(emit, NULL, values[i]);
    fig_emit_close(emit);
}

static void emit_kind(fig_emit *emit, const planned_kind *kind) {
    const fig_plan_report *report = &kind->report;
    fig_emit_object(emit, NULL);
    fig_emit_integer(emit, "window", kind->window);
    fig_emit_integer(emit, "layers", kind->layers);
    fig_emit_integer(emit, "tiles", report->tiles);
    fig_emit_integer(emit, "tiles_least", report->tiles_least);
    fig_emit_integer(emit, "tiles_most", report->tiles_most);
    fig_emit_number(emit, "tiles_mean", mean_tiles(kind));
    fig_emit_integer(emit, "partials", report->partials);
    fig_emit_integer(emit, "partial_limit", report->partial_limit);
    emit_array(emit, "worker_tiles", kind->worker_tiles, report->workers);
    emit_array(emit, "worker_rows", kind->worker_rows, report->workers);
    fig_emit_close(emit);
}

static void emit_plan(const planned_step *plan) {
    const fig_plan_report *report = &plan->kinds[0].report;
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "model", plan->source.name);
    fig_emit_text(&emit, "traits", plan->traits.name);
    fig_emit_integer(&emit, "rows", plan->lengths.count);
    fig_emit_integer(&emit, "tokens", fig_lengths_total(&plan->lengths));
    fig_emit_object(&emit, "bucket");
    fig_emit_integer(&emit, "number", report->bucket);
    fig_emit_integer(&emit, "batch", plan->bucket.bucket.batch);
    fig_emit_integer(&emit, "kv", plan->bucket.bucket.kv);
    fig_emit_integer(&emit, "variant", plan->bucket.variant);
    fig_emit_close(&emit);
    fig_emit_integer(&emit, "heads", report->heads);
    fig_emit_integer(&emit, "tile_tokens", report->tile_tokens);
    fig_emit_integer(&emit, "workers", report->workers);
    fig_emit_integer(&emit, "plan_bytes", (int64_t)report->plan_bytes);
    fig_emit_integer(&emit, "plan_bytes_limit", (int64_t)report->plan_bytes_limit);
    fig_emit_array(&emit, "kinds");
    for (int32_t i = 0; i < plan->kind_count; i++)
        emit_kind(&emit, &plan->kinds[i]);
    fig_emit_close(&emit);
    fig_emit_close(&emit);
}

static int run(const fig_arguments *arguments) {
    planned_step plan = {0};
    int code = read_arguments(arguments, &plan);
    if (code == FIG_EXIT_FINE) code = make_plan(&plan);
    if (code == FIG_EXIT_FINE) {
        if (fig_arguments_text(arguments, "--json") != NULL) {
            emit_plan(&plan);
        } else {
            print_plan(&plan);
        }
    }
    for (int i = 0; i < KIND_LIMIT; i++) {
        free(plan.kinds[i].worker_rows);
        free(plan.kinds[i].worker_tiles);
        fig_graphs_destroy(plan.kinds[i].graphs);
    }
    fig_lengths_finish(&plan.lengths);
    return code;
}

const fig_command fig_cmd_plan = {
    .name = "plan",
    .summary = "draw how one step's KV work is cut among the workers",
    .notes =
        "LENS are kv lengths, this step's token included: \"32768,39x512\" is one row and 39 "
        "equal\n"
        "ones; a single length is repeated for every row; 0 is an idle row.\n" FIG_SOURCE_NOTES,
    .example = "figraph plan --preset llama-3.1-8b --batch 40 --kv 32768,39x512",
    .run = run,
    .options =
        {
            FIG_SOURCE_OPTIONS,
            {"--batch", "N", "rows of the step; without it as many as lengths"},
            {"--kv", "LENS", "kv length of each row"},
            {"--traits", "NAME", "h200, h100, a100 or host; without it " DEFAULT_TRAITS},
            {"--json", NULL, "print an object"},
        },
};
