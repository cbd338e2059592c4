/* cmd_plan.c: figraph plan, how one step's KV work is cut among the workers.
 *
 * Every layer of the standard step has the same split, so one is lowered. Nothing runs. Invariant:
 * the rows of each worker, which the library does not report, are walked along the same line of
 * tiles that it cuts, and the sum of both is checked. */
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

typedef struct planned_step {
    fig_source source;
    fig_traits traits;
    fig_lengths lengths;
    fig_graphs *graphs;
    fig_graphs_info info;
    fig_plan_report report;
    fig_bucket_info bucket;
    int32_t *worker_tiles, *worker_rows; /* [report.workers] */
    int32_t longest;                     /* the row with most tokens */
    int32_t longest_workers;             /* who share it */
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

static int32_t row_tiles(const planned_step *plan, int32_t row) {
    int32_t tile = plan->report.tile_tokens;
    return (plan->lengths.values[row] + tile - 1) / tile;
}

/* Walks rows, head groups and workers together; who reads of a row is counted for it once. */
static void count_rows(planned_step *plan) {
    int32_t groups = plan->info.spec->kv_heads / plan->report.heads;
    int32_t worker = 0, left = plan->worker_tiles[0];
    int64_t walked = 0;
    for (int32_t row = 0; row < plan->lengths.count; row++) {
        int64_t tiles = (int64_t)row_tiles(plan, row) * groups;
        int32_t workers = 0;
        walked += tiles;
        while (tiles > 0) {
            while (left == 0 && worker + 1 < plan->report.workers)
                left = plan->worker_tiles[++worker];
            assert(left > 0);
            int32_t taken = tiles < left ? (int32_t)tiles : left;
            plan->worker_rows[worker]++;
            workers++;
            tiles -= taken;
            left -= taken;
        }
        if (row == plan->longest) plan->longest_workers = workers;
    }
    assert(walked == plan->report.tiles);
}

static int make_plan(planned_step *plan) {
    fig_step step = {
        .size = sizeof step, .rows = plan->lengths.count, .kv_lengths = plan->lengths.values};
    plan->source.spec.layers = 1;
    int code = fig_source_lower(&plan->source.spec, &plan->traits, &plan->graphs);
    if (code != FIG_EXIT_FINE) return code;
    plan->info.size = sizeof plan->info;
    fig_graphs_read_info(plan->graphs, &plan->info);
    plan->report.size = sizeof plan->report;
    if (fig_graphs_plan(plan->graphs, &step, &plan->report) != FIG_OK) {
        return fig_report_status("plan");
    }
    size_t workers = (size_t)plan->report.workers;
    plan->worker_tiles = calloc(workers + 1, sizeof *plan->worker_tiles);
    plan->worker_rows = calloc(workers + 1, sizeof *plan->worker_rows);
    if (plan->worker_tiles == NULL || plan->worker_rows == NULL) {
        return fig_report_refuse("plan: no memory for %zu workers", workers);
    }
    plan->report.worker_tiles = plan->worker_tiles;
    plan->report.worker_capacity = plan->report.workers;
    plan->bucket.size = sizeof plan->bucket;
    if (fig_graphs_plan(plan->graphs, &step, &plan->report) != FIG_OK ||
        fig_graphs_bucket(plan->graphs, plan->report.bucket, &plan->bucket) != FIG_OK) {
        return fig_report_status("plan");
    }
    for (int32_t row = 1; row < plan->lengths.count; row++) {
        if (plan->lengths.values[row] > plan->lengths.values[plan->longest]) plan->longest = row;
    }
    count_rows(plan);
    return FIG_EXIT_FINE;
}

static double mean_tiles(const planned_step *plan) {
    return (double)plan->report.tiles / plan->report.workers;
}

static void print_figures(const planned_step *plan) {
    const fig_plan_report *report = &plan->report;
    char lengths[56], a[FIG_REPORT_NUMBER], b[FIG_REPORT_NUMBER];
    fig_lengths_describe(&plan->lengths, lengths, sizeof lengths);
    printf("%s on %s\n\n", plan->source.name, plan->traits.name);
    printf("  step      %d row%s of %s: %s tokens\n", plan->lengths.count,
           plan->lengths.count == 1 ? "" : "s", lengths,
           fig_report_number(a, fig_lengths_total(&plan->lengths)));
    printf("  bucket    %d of %d: up to %d row%s and %s tokens\n", report->bucket + 1,
           plan->info.bucket_count, plan->bucket.bucket.batch,
           plan->bucket.bucket.batch == 1 ? "" : "s",
           fig_report_number(a, (int64_t)plan->bucket.bucket.batch * plan->bucket.bucket.kv));
    printf("  variant   %d: a worker reads %d of %d kv heads, %d tokens a tile\n",
           plan->bucket.variant, report->heads, plan->info.spec->kv_heads, report->tile_tokens);
    printf("  tiles     %s; each of %d workers has ", fig_report_number(a, report->tiles),
           report->workers);
    if (report->tiles_least == report->tiles_most) {
        printf("%d\n", report->tiles_most);
    } else {
        printf("%d to %d, %.2f on average\n", report->tiles_least, report->tiles_most,
               mean_tiles(plan));
    }
    printf("  partials  %d of at most %d\n", report->partials, report->partial_limit);
    printf("  plan      %s bytes of at most %s\n",
           fig_report_number(a, (int64_t)report->plan_bytes),
           fig_report_number(b, (int64_t)report->plan_bytes_limit));
}

/* What the split is for: how long the step would take if nobody shared the longest row. */
static void print_longest(const planned_step *plan) {
    int32_t groups = plan->info.spec->kv_heads / plan->report.heads;
    char each[FIG_REPORT_NUMBER];
    fig_report_number(each, row_tiles(plan, plan->longest));
    if (plan->longest_workers <= groups) return;
    if (groups == 1) {
        printf("\nUncut, row %d would keep one worker busy for %s tiles; here %d share them.\n",
               plan->longest, each, plan->longest_workers);
    } else {
        printf(
            "\nUncut, row %d would keep %d workers busy for %s tiles each; here %d share them.\n",
            plan->longest, groups, each, plan->longest_workers);
    }
}

static void print_plan(const planned_step *plan) {
    fig_draw_loads loads = {.tiles = plan->worker_tiles,
                            .rows = plan->worker_rows,
                            .workers = plan->report.workers,
                            .most = plan->report.tiles_most};
    print_figures(plan);
    if (plan->report.tiles == 0) {
        printf("\nEvery row is idle: there is nothing to cut.\n");
        return;
    }
    printf("\ntiles of each worker, and how many rows it reads\n\n");
    fig_draw_bars(&loads);
    print_longest(plan);
}

static void emit_array(fig_emit *emit, const char *key, const int32_t *values, int32_t count) {
    fig_emit_array(emit, key);
    for (int32_t i = 0; i < count; i++)
        fig_emit_integer(emit, NULL, values[i]);
    fig_emit_close(emit);
}

static void emit_plan(const planned_step *plan) {
    const fig_plan_report *report = &plan->report;
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "model", plan->source.name);
    fig_emit_text(&emit, "traits", plan->traits.name);
    fig_emit_integer(&emit, "rows", plan->lengths.count);
    fig_emit_integer(&emit, "tokens", fig_lengths_total(&plan->lengths));
    fig_emit_object(&emit, "bucket");
    fig_emit_integer(&emit, "number", report->bucket + 1);
    fig_emit_integer(&emit, "batch", plan->bucket.bucket.batch);
    fig_emit_integer(&emit, "kv", plan->bucket.bucket.kv);
    fig_emit_integer(&emit, "variant", plan->bucket.variant);
    fig_emit_close(&emit);
    fig_emit_integer(&emit, "heads", report->heads);
    fig_emit_integer(&emit, "tile_tokens", report->tile_tokens);
    fig_emit_integer(&emit, "workers", report->workers);
    fig_emit_integer(&emit, "tiles", report->tiles);
    fig_emit_integer(&emit, "tiles_least", report->tiles_least);
    fig_emit_integer(&emit, "tiles_most", report->tiles_most);
    fig_emit_number(&emit, "tiles_mean", mean_tiles(plan));
    fig_emit_integer(&emit, "partials", report->partials);
    fig_emit_integer(&emit, "partial_limit", report->partial_limit);
    fig_emit_integer(&emit, "plan_bytes", (int64_t)report->plan_bytes);
    fig_emit_integer(&emit, "plan_bytes_limit", (int64_t)report->plan_bytes_limit);
    emit_array(&emit, "worker_tiles", plan->worker_tiles, report->workers);
    emit_array(&emit, "worker_rows", plan->worker_rows, report->workers);
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
    free(plan.worker_rows);
    free(plan.worker_tiles);
    fig_graphs_destroy(plan.graphs);
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
