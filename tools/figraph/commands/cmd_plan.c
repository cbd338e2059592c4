/* cmd_plan.c: figraph plan, how one step's KV work is cut among the workers.
 *
 * Layers that see as much are a class and are split alike, so one of each class is lowered. The
 * library reports the split of the first attention: where there are two classes, both are lowered
 * twice, in either order, so that each is planned in the bucket that their whole step takes.
 * Nothing runs. Invariant: the rows of each worker, which the library does not report, are walked
 * along the same line of tiles that it cuts, and the sum of both is checked. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <figraph.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/step/source.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/draw.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/lengths.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/terminal/vocabulary.h"

enum { CLASS_LIMIT = 2 };

/* Layers that see as much, and their split. */
typedef struct planned_class {
    int32_t window; /* 0: all tokens */
    int32_t layers;
    fig_graphs *graphs;
    fig_plan_report report;
    int32_t *worker_tiles, *worker_rows; /* [report.workers] */
    int32_t longest_workers;             /* who share the longest row */
} planned_class;

typedef struct planned_step {
    fig_source source;
    fig_source_machine machine;
    fig_lengths lengths;
    planned_class classes[CLASS_LIMIT];
    int32_t class_count;
    fig_graphs_info info;
    fig_bucket_info bucket;
    int32_t longest; /* the row with most tokens */
} planned_step;

static int read_lengths(const fig_arguments *arguments, fig_lengths *lengths) {
    fig_integer range = {.name = "--batch", .least = 1, .most = FIG_LENGTHS_LIMIT};
    const char *text = fig_arguments_text(arguments, "--kv");
    int64_t batch;
    int code = fig_lengths_parse(lengths, text, "plan: --kv");
    if (code != FIG_EXIT_FINE) return code;
    range.fallback = lengths->count;
    code = fig_arguments_integer(arguments, &range, &batch);
    if (code != FIG_EXIT_FINE) return code;
    return fig_lengths_repeat(lengths, (int32_t)batch, "plan: --kv");
}

static int read_arguments(const fig_arguments *arguments, planned_step *plan) {
    int code = fig_source_read(arguments, &plan->source);
    if (code == FIG_EXIT_FINE) code = fig_source_take_share(arguments, &plan->source);
    if (code == FIG_EXIT_FINE) code = read_lengths(arguments, &plan->lengths);
    if (code == FIG_EXIT_FINE) code = fig_source_read_machine(arguments, &plan->machine);
    return code;
}

/* Tiles begin at multiples of their size, the first being the one with the first token seen. */
static int32_t row_tiles(const planned_step *plan, const planned_class *class, int32_t row) {
    int32_t tile = class->report.tile_tokens, length = plan->lengths.values[row];
    int32_t first = length - plan->info.spec->row_tokens + 1 - class->window;
    if (length == 0) return 0;
    if (class->window == 0 || first < 0) first = 0;
    return (length + tile - 1) / tile - first / tile;
}

/* Walks rows, head groups and workers together; who reads of a row is counted for it once. */
static void count_rows(const planned_step *plan, planned_class *class) {
    int32_t groups = plan->info.spec->kv_heads / class->report.heads;
    int32_t worker = 0, left = class->worker_tiles[0];
    int64_t walked = 0;
    for (int32_t row = 0; row < plan->lengths.count; row++) {
        int64_t tiles = (int64_t)row_tiles(plan, class, row) * groups;
        int32_t workers = 0;
        walked += tiles;
        while (tiles > 0) {
            while (left == 0 && worker + 1 < class->report.workers)
                left = class->worker_tiles[++worker];
            assert(left > 0);
            int32_t taken = tiles < left ? (int32_t)tiles : left;
            class->worker_rows[worker]++;
            workers++;
            tiles -= taken;
            left -= taken;
        }
        if (row == plan->longest) class->longest_workers = workers;
    }
    assert(walked == class->report.tiles);
}

static void find_classes(planned_step *plan) {
    const fig_spec *spec = &plan->source.spec;
    int32_t windowed = fig_source_window_layers(spec);
    if (windowed > 0)
        plan->classes[plan->class_count++] =
            (planned_class){.window = spec->window, .layers = windowed};
    if (windowed < spec->layers)
        plan->classes[plan->class_count++] = (planned_class){.layers = spec->layers - windowed};
}

/* One layer of each class, that of `class` first. */
static int lower_class(const planned_step *plan, planned_class *class) {
    fig_source source = plan->source;
    fig_spec *spec = &source.spec;
    spec->layers = plan->class_count;
    for (int i = 0; i < 8; i++)
        spec->window_layers[i] = spec->plain_layers[i] = 0; /* RoPE does not change the split */
    if (plan->class_count > 1) spec->window_layers[0] = class->window > 0 ? 1 : 2;
    return fig_source_lower(&source, &plan->machine.traits, &class->graphs);
}

static int plan_class(planned_step *plan, planned_class *class) {
    fig_step step = {
        .size = sizeof step, .rows = plan->lengths.count, .kv_lengths = plan->lengths.values};
    int code = lower_class(plan, class);
    if (code != FIG_EXIT_FINE) return code;
    class->report.size = sizeof class->report;
    if (fig_graphs_plan(class->graphs, &step, &class->report) != FIG_OK) {
        return fig_report_status("plan");
    }
    size_t workers = (size_t) class->report.workers;
    class->worker_tiles = calloc(workers + 1, sizeof *class->worker_tiles);
    class->worker_rows = calloc(workers + 1, sizeof *class->worker_rows);
    if (class->worker_tiles == NULL || class->worker_rows == NULL) {
        return fig_report_refuse("plan: no memory for %zu workers", workers);
    }
    class->report.worker_tiles = class->worker_tiles;
    class->report.worker_capacity = class->report.workers;
    plan->info.size = sizeof plan->info;
    plan->bucket.size = sizeof plan->bucket;
    if (fig_graphs_plan(class->graphs, &step, &class->report) != FIG_OK ||
        fig_graphs_bucket(class->graphs, class->report.bucket, &plan->bucket) != FIG_OK) {
        return fig_report_status("plan");
    }
    fig_graphs_read_info(class->graphs, &plan->info);
    count_rows(plan, class);
    return FIG_EXIT_FINE;
}

static int make_plan(planned_step *plan) {
    int code = FIG_EXIT_FINE;
    for (int32_t row = 1; row < plan->lengths.count; row++) {
        if (plan->lengths.values[row] > plan->lengths.values[plan->longest]) plan->longest = row;
    }
    find_classes(plan);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < plan->class_count; i++)
        code = plan_class(plan, &plan->classes[i]);
    assert(code != FIG_EXIT_FINE || plan->class_count == 1 ||
           plan->classes[0].report.bucket == plan->classes[1].report.bucket);
    return code;
}

static double mean_tiles(const planned_class *class) {
    return (double)class->report.tiles / class->report.workers;
}

static void print_step(const planned_step *plan) {
    const fig_plan_report *report = &plan->classes[0].report;
    char lengths[56], a[FIG_REPORT_COUNT], b[FIG_REPORT_COUNT];
    fig_lengths_describe(&plan->lengths, lengths, sizeof lengths);
    fig_report_name(plan->source.name);
    printf("\n\n");
    printf("  machine   %s, %s\n", plan->machine.traits.name, plan->machine.why);
    fig_source_print_share(&plan->source.model, &plan->source.spec, plan->source.ranks);
    printf("  step      %s of %s: %s\n", fig_report_count(a, plan->lengths.count, "row"), lengths,
           fig_report_count(b, fig_lengths_total(&plan->lengths), "token"));
    printf(
        "  bucket    %d of %d: up to %s and %s\n", report->bucket, plan->info.bucket_count,
        fig_report_count(a, plan->bucket.bucket.batch, "row"),
        fig_report_count(b, (int64_t)plan->bucket.bucket.batch * plan->bucket.bucket.kv, "token"));
    printf("  variant   %d of %s at once, tiles of %d tokens, %s\n", report->heads,
           fig_report_count(a, plan->info.spec->kv_heads, "kv head"), report->tile_tokens,
           fig_report_count(b, report->workers, "worker"));
    printf("  plan      %s bytes of at most %s\n",
           fig_report_number(a, (int64_t)report->plan_bytes),
           fig_report_number(b, (int64_t)report->plan_bytes_limit));
}

/* What the class sees, where not every layer sees all. */
static void print_class(const planned_step *plan, const planned_class *class) {
    const fig_plan_report *report = &class->report;
    char a[FIG_REPORT_COUNT];
    if (plan->class_count > 1 || class->window > 0) {
        printf("\n%d of %s: a query sees ", class->layers,
               fig_report_count(a, plan->source.spec.layers, "layer"));
        if (class->window > 0)
            printf("%s, its own included\n\n", fig_report_count(a, class->window, "token"));
        if (class->window == 0) printf("all tokens\n\n");
    }
    printf("  tiles     %s; ", fig_report_number(a, report->tiles));
    if (report->workers > 1) printf("each of %d workers has ", report->workers);
    if (report->workers == 1) printf("one worker has ");
    if (report->tiles_least == report->tiles_most) {
        printf("%d\n", report->tiles_most);
    } else {
        printf("%d to %d, %.2f on average\n", report->tiles_least, report->tiles_most,
               mean_tiles(class));
    }
    printf("  partials  %d of at most %d\n", report->partials, report->partial_limit);
}

/* What the split is for: how long the step would take if nobody shared the longest row. */
static void print_longest(const planned_step *plan, const planned_class *class) {
    int32_t groups = plan->info.spec->kv_heads / class->report.heads;
    char each[FIG_REPORT_NUMBER], who[32] = "one worker", sentence[160];
    if (class->longest_workers <= groups) return;
    if (groups > 1) snprintf(who, sizeof who, "%d workers", groups);
    snprintf(sentence, sizeof sentence,
             "Uncut, row %d would keep %s busy for %s tiles%s; here %d share them.", plan->longest,
             who, fig_report_number(each, row_tiles(plan, class, plan->longest)),
             groups > 1 ? " each" : "", class->longest_workers);
    putchar('\n');
    fig_columns_words(0, 0, sentence);
}

static void print_plan(const planned_step *plan) {
    print_step(plan);
    for (int32_t i = 0; i < plan->class_count; i++) {
        const planned_class *class = &plan->classes[i];
        fig_draw_loads loads = {.tiles = class->worker_tiles,
                                .rows = class->worker_rows,
                                .workers = class->report.workers,
                                .most = class->report.tiles_most};
        print_class(plan, class);
        if (class->report.tiles == 0) continue;
        printf("\ntiles of each worker, and how many rows it reads\n\n");
        fig_draw_bars(&loads);
        print_longest(plan, class);
    }
    if (plan->classes[0].report.tiles == 0)
        printf("\nEvery row is idle: there is nothing to cut.\n");
}

static void emit_array(fig_emit *emit, const char *key, const int32_t *values, int32_t count) {
    fig_emit_array(emit, key);
    for (int32_t i = 0; i < count; i++)
        fig_emit_integer(emit, NULL, values[i]);
    fig_emit_close(emit);
}

static void emit_class(fig_emit *emit, const planned_class *class) {
    const fig_plan_report *report = &class->report;
    fig_emit_object(emit, NULL);
    fig_emit_integer(emit, "window", class->window);
    fig_emit_integer(emit, "layers", class->layers);
    fig_emit_integer(emit, "tiles", report->tiles);
    fig_emit_integer(emit, "tiles_least", report->tiles_least);
    fig_emit_integer(emit, "tiles_most", report->tiles_most);
    fig_emit_number(emit, "tiles_mean", mean_tiles(class));
    fig_emit_integer(emit, "partials", report->partials);
    fig_emit_integer(emit, "partial_limit", report->partial_limit);
    emit_array(emit, "worker_tiles", class->worker_tiles, report->workers);
    emit_array(emit, "worker_rows", class->worker_rows, report->workers);
    fig_emit_close(emit);
}

static void emit_plan(const planned_step *plan) {
    const fig_plan_report *report = &plan->classes[0].report;
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "model", plan->source.name);
    fig_vocabulary_traits(&emit, &plan->machine.traits);
    fig_vocabulary_share(&emit, &plan->source.model, plan->source.ranks);
    fig_emit_integer(&emit, "rows", plan->lengths.count);
    fig_emit_integer(&emit, "kv_tokens", fig_lengths_total(&plan->lengths));
    fig_vocabulary_open_bucket(&emit, "bucket", report->bucket, &plan->bucket);
    fig_emit_close(&emit);
    fig_emit_integer(&emit, "plan_bytes", (int64_t)report->plan_bytes);
    fig_emit_integer(&emit, "plan_bytes_limit", (int64_t)report->plan_bytes_limit);
    fig_emit_array(&emit, "classes");
    for (int32_t i = 0; i < plan->class_count; i++)
        emit_class(&emit, &plan->classes[i]);
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
    for (int i = 0; i < CLASS_LIMIT; i++) {
        free(plan.classes[i].worker_rows);
        free(plan.classes[i].worker_tiles);
        fig_graphs_destroy(plan.classes[i].graphs);
    }
    fig_lengths_finish(&plan.lengths);
    return code;
}

const fig_command fig_cmd_plan = {
    .name = "plan",
    .summary = "draw how one step's KV work is cut among the workers",
    .notes = "LENS are kv lengths, this step's token included: \"32768,39x512\" is one row and 39 "
             "equal ones; a single length is repeated for every row; 0 is an idle "
             "row.\n\n" FIG_SOURCE_NOTES,
    .example = "figraph plan --preset llama-3.1-8b --kv 32768,39x512 --traits h200",
    .run = run,
    .options =
        {
            FIG_SOURCE_NAMES(FIG_OPTION_ONE_OF),
            FIG_SOURCE_CHANGES,
            FIG_SOURCE_RANKS,
            {"--batch", "N", "rows of the step; without it as many as lengths"},
            {"--kv", "LENS", "kv length of each row", FIG_OPTION_REQUIRED},
            FIG_SOURCE_DEVICE,
            FIG_SOURCE_TRAITS,
            {"--json", NULL, "print an object"},
        },
};
