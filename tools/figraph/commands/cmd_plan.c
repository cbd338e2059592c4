/* cmd_plan.c: figraph plan, which draws how one step's KV work is cut among the workers.
 *
 * Layers with the same window form a class and are split alike, so one layer of each class is
 * lowered, in the order of the model: the class of the first layer has a say in the choice of the
 * bucket that the whole step takes. Nothing runs. Invariant: the library reports the tiles of each
 * row and of each worker, but not the rows of each worker, so this file walks the same line of
 * tiles, and checks that the number of tiles agrees. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <figraph.h>
#include <figraph_inspect.h>
#include <figraph_scores.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/commands/group_list.h"
#include "tools/figraph/step/schedule.h"
#include "tools/figraph/step/source.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/draw.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/lengths.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/terminal/vocabulary.h"

enum { CLASS_LIMIT = 2 };

/* Layers with the same window, and their split. */
typedef struct planned_class {
    int32_t window; /* 0: all tokens */
    int32_t layers;
    int32_t index; /* of the class in the graphs */
    fig_plan_report report;
    int32_t *worker_tiles, *worker_rows; /* [report.workers] */
    int32_t *row_tiles;                  /* [rows] in one head group */
    int64_t hidden;                      /* the tiles that the mask hides, over all head groups */
    int32_t longest;                     /* the row with the most tiles */
    int32_t longest_workers;             /* the number of workers that share it */
    int32_t *strip_tiles, *strip_pieces; /* [report.strip_workers] */
    fig_group_list groups;
} planned_class;

typedef struct planned_step {
    const fig_arguments *arguments;
    fig_source source;
    fig_source_machine machine;
    fig_lengths lengths;
    planned_class classes[CLASS_LIMIT];
    int32_t class_count;
    fig_graphs *graphs; /* with a layer of each class */
    const fig_inspection *inspection;
    fig_graphs_info info;
    fig_bucket_info bucket;
} planned_step;

static int read_lengths(const fig_arguments *arguments, fig_lengths *lengths) {
    fig_integer range = {.name = "--batch", .least = 1, .most = FIG_LENGTHS_LIMIT};
    const char *text = fig_arguments_text(arguments, "--kv");
    int64_t batch;
    int code = fig_lengths_parse_shared(lengths, text, "plan: --kv");
    if (code != FIG_EXIT_FINE) return code;
    range.fallback = lengths->count;
    code = fig_arguments_integer(arguments, &range, &batch);
    if (code == FIG_EXIT_FINE) code = fig_lengths_repeat(lengths, (int32_t)batch, "plan: --kv");
    if (code == FIG_EXIT_FINE) code = fig_lengths_check_shared(lengths, "plan: --kv");
    if (code != FIG_EXIT_FINE || lengths->shared == NULL) return code;
    return fig_lengths_fill_queries(lengths);
}

/* If the list gives query tokens, makes the spec that of a packed program. Its rows then have room
 * for the largest number of query tokens in the list. Only rows of programs that take chunks share
 * pages; over a latent cache none does. */
static void pack(planned_step *plan) {
    const fig_lengths *lengths = &plan->lengths;
    fig_spec *spec = &plan->source.spec;
    if (lengths->queries == NULL) return;
    if (spec->row_tokens < 1) spec->row_tokens = 1;
    for (int32_t row = 0; row < lengths->count; row++)
        if (lengths->queries[row] > spec->row_tokens) spec->row_tokens = lengths->queries[row];
    const int32_t narrow = fig_schedule_narrow(spec);
    if (lengths->shared != NULL && spec->latent_dim == 0 && spec->row_tokens <= narrow)
        spec->row_tokens = narrow + 1;
    spec->query_limit = (int64_t)spec->batch_limit * spec->row_tokens;
    if (spec->row_tokens > narrow) spec->query_limit = fig_lengths_queries(lengths);
}

static int read_arguments(planned_step *plan) {
    const fig_arguments *arguments = plan->arguments;
    int code = fig_source_read(arguments, &plan->source);
    if (code == FIG_EXIT_FINE) code = read_lengths(arguments, &plan->lengths);
    if (code == FIG_EXIT_FINE) pack(plan);
    if (code == FIG_EXIT_FINE) code = fig_source_take_share(arguments, &plan->source);
    if (code == FIG_EXIT_FINE) code = fig_source_read_score(arguments, &plan->source);
    if (code == FIG_EXIT_FINE) code = fig_source_read_machine(arguments, &plan->machine);
    return code;
}

static int has_mask(const fig_score *score) {
    fig_score_parts parts = {.size = sizeof parts};
    return score != NULL && fig_score_read(score, &parts) == FIG_OK && parts.mask_node_count > 0;
}

static int is_chunk(const planned_step *plan, int32_t row) {
    const int32_t *queries = plan->lengths.queries;
    return queries != NULL && queries[row] > fig_schedule_narrow(&plan->source.spec);
}

/* Counts the tiles of a row in one head group that are not before its window. Tiles begin at
 * multiples of their size. The first one holds the first token that a query sees. */
static int32_t count_tiles(const planned_step *plan, const planned_class *class, int32_t row) {
    const int32_t tile = class->report.tile_tokens, length = plan->lengths.values[row];
    const int32_t *queries = plan->lengths.queries;
    const int32_t own = queries != NULL ? queries[row] : plan->info.spec->row_tokens;
    int32_t first = length - own + 1 - class->window;
    if (length == 0 || own == 0 || is_chunk(plan, row)) return 0;
    if (class->window == 0 || first < 0) first = 0;
    return (length + tile - 1) / tile - first / tile;
}

/* A class whose rows share pages has no mask. */
static void count_hidden(const planned_step *plan, planned_class *class) {
    if (class->report.shared_groups > 0) return;
    for (int32_t row = 0; row < plan->lengths.count; row++) {
        const int32_t hidden = count_tiles(plan, class, row) - class->row_tiles[row];
        assert(hidden == 0 || (hidden > 0 && has_mask(plan->source.score)));
        class->hidden += (int64_t)hidden * class->report.groups;
    }
}

/* Of rows with equally many tiles, the one with the most tokens is the longest. */
static int32_t find_longest(const fig_lengths *lengths, const int32_t *row_tiles) {
    int32_t longest = 0;
    for (int32_t row = 1; row < lengths->count; row++) {
        const int32_t more = row_tiles[row] - row_tiles[longest];
        if (more > 0 || (more == 0 && lengths->values[row] > lengths->values[longest]))
            longest = row;
    }
    return longest;
}

/* Walks rows, head groups and workers together. A worker counts once for each row that it reads. */
static void count_rows(const planned_step *plan, planned_class *class) {
    int32_t groups = class->report.groups;
    int32_t worker = 0, left = class->worker_tiles[0];
    int64_t walked = 0;
    class->longest = find_longest(&plan->lengths, class->row_tiles);
    for (int32_t row = 0; row < plan->lengths.count; row++) {
        int64_t tiles = (int64_t) class->row_tiles[row] * groups;
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
        if (row == class->longest) class->longest_workers = workers;
    }
    assert(walked == class->report.tiles);
}

/* Lists the classes, those with a window first. In the graphs, the class of the model's first layer
 * is the first. */
static void find_classes(planned_step *plan) {
    const fig_spec *spec = &plan->source.spec;
    const int32_t windowed = fig_source_window_layers(spec);
    const int32_t first = !fig_source_has_window(spec, 0);
    if (windowed > 0)
        plan->classes[plan->class_count++] =
            (planned_class){.window = spec->window, .layers = windowed, .index = first};
    if (windowed < spec->layers)
        plan->classes[plan->class_count++] =
            (planned_class){.layers = spec->layers - windowed, .index = windowed > 0 && first == 0};
}

/* Lowers one layer of each class. Ranks divide the lowered program and not the spec, because a
 * score counts the heads of the whole model. */
static int lower(planned_step *plan) {
    fig_source source = plan->source;
    fig_spec *spec = &source.spec;
    *spec = source.model;
    spec->layers = plan->class_count;
    spec->dense_layers = spec->dense_width = 0;
    for (int i = 0; i < 8; i++)
        spec->window_layers[i] = spec->plain_layers[i] = 0; /* RoPE does not change the split */
    if (plan->class_count > 1) spec->window_layers[0] = plan->classes[0].index == 0 ? 1 : 2;
    int code = fig_source_lower(&source, &plan->machine.traits, &plan->graphs);
    if (code == FIG_EXIT_FINE)
        code = fig_source_divide(plan->arguments, source.ranks, &plan->graphs);
    if (code != FIG_EXIT_FINE) return code;
    if (fig_inspection_open(&plan->inspection, plan->graphs, 0) != FIG_OK)
        return fig_report_status("plan");
    return FIG_EXIT_FINE;
}

/* Refuses rows that share tokens in a program whose rows never can. */
static int check_sharing(const planned_step *plan) {
    const char *reason = plan->lengths.shared != NULL ? fig_graphs_sharing(plan->graphs) : NULL;
    if (reason == NULL) return FIG_EXIT_FINE;
    return fig_report_refuse("plan: --kv: \"@\": rows cannot share pages: %s", reason);
}

static int plan_class(planned_step *plan, planned_class *class) {
    fig_step step = {.size = sizeof step,
                     .rows = plan->lengths.count,
                     .kv_lengths = plan->lengths.values,
                     .query_counts = plan->lengths.queries};
    class->report.size = sizeof class->report;
    class->report.fork_sources = plan->lengths.sources;
    class->report.fork_lengths = plan->lengths.shared;
    if (fig_inspection_plan(plan->inspection, &step, class->index, &class->report) != FIG_OK)
        return fig_report_status("plan");
    size_t workers = (size_t) class->report.workers;
    class->worker_tiles = calloc(workers + 1, sizeof *class->worker_tiles);
    class->worker_rows = calloc(workers + 1, sizeof *class->worker_rows);
    class->row_tiles = calloc((size_t)plan->lengths.count, sizeof *class->row_tiles);
    const size_t strip_workers = (size_t) class->report.strip_workers;
    class->strip_tiles = calloc(strip_workers + 1, sizeof *class->strip_tiles);
    class->strip_pieces = calloc(strip_workers + 1, sizeof *class->strip_pieces);
    if (class->worker_tiles == NULL || class->worker_rows == NULL || class->row_tiles == NULL ||
        class->strip_tiles == NULL || class->strip_pieces == NULL) {
        return fig_report_refuse("plan: no memory for %zu workers", workers + strip_workers);
    }
    class->report.worker_tiles = class->worker_tiles;
    class->report.worker_capacity = class->report.workers;
    class->report.row_tiles = class->row_tiles;
    class->report.row_capacity = plan->lengths.count;
    class->report.strip_worker_tiles = class->strip_tiles;
    class->report.strip_worker_pieces = class->strip_pieces;
    class->report.strip_worker_capacity = class->report.strip_workers;
    const int code = fig_group_list_make(&class->groups, &class->report);
    if (code != FIG_EXIT_FINE) return code;
    plan->info.size = sizeof plan->info;
    plan->bucket.size = sizeof plan->bucket;
    if (fig_inspection_plan(plan->inspection, &step, class->index, &class->report) != FIG_OK ||
        fig_graphs_bucket(plan->graphs, class->report.bucket, &plan->bucket) != FIG_OK)
        return fig_report_status("plan");
    fig_graphs_read_info(plan->graphs, &plan->info);
    count_rows(plan, class);
    count_hidden(plan, class);
    return FIG_EXIT_FINE;
}

static int make_plan(planned_step *plan) {
    find_classes(plan);
    int code = lower(plan);
    if (code == FIG_EXIT_FINE) code = check_sharing(plan);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < plan->class_count; i++)
        code = plan_class(plan, &plan->classes[i]);
    assert(code != FIG_EXIT_FINE || plan->class_count == 1 ||
           plan->classes[0].report.bucket == plan->classes[1].report.bucket);
    return code;
}

/* Returns the number of workers that read rows. */
static int32_t readers_of(const planned_class *class) {
    const fig_plan_report *report = &class->report;
    return report->readers > 0 ? report->readers : report->workers;
}

static double mean_tiles(const planned_class *class) {
    return (double)class->report.tiles / readers_of(class);
}

static void print_step(const planned_step *plan) {
    const fig_plan_report *report = &plan->classes[0].report;
    char lengths[56], a[FIG_REPORT_COUNT], b[FIG_REPORT_COUNT];
    fig_lengths_describe(&plan->lengths, lengths, sizeof lengths);
    fig_report_name(plan->source.name);
    printf("\n\n");
    printf("  machine   %s, %s\n", plan->machine.traits.name, plan->machine.why);
    fig_source_print_score(plan->source.score);
    fig_source_print_share(&plan->source.model, &plan->source.spec, plan->source.ranks);
    printf("  step      %s of %s: %s\n", fig_report_count(a, plan->lengths.count, "row"), lengths,
           fig_report_count(b, fig_lengths_total(&plan->lengths), "token"));
    if (plan->lengths.queries != NULL)
        printf("  queries   %s, packed\n",
               fig_report_count(a, fig_lengths_queries(&plan->lengths), "query token"));
    printf(
        "  bucket    %d of %d: up to %s and %s\n", report->bucket, plan->info.bucket_count,
        fig_report_count(a, plan->bucket.bucket.batch, "row"),
        fig_report_count(b, (int64_t)plan->bucket.bucket.batch * plan->bucket.bucket.kv, "token"));
    if (plan->info.spec->latent_dim > 0) {
        printf("  variant   %s at once, tiles of %d tokens, %s\n",
               fig_report_count(a, plan->info.spec->q_heads / report->groups, "q head"),
               report->tile_tokens, fig_report_count(b, report->workers, "worker"));
    } else {
        printf("  variant   %d of %s at once, tiles of %d tokens, %s\n", report->heads,
               fig_report_count(a, plan->info.spec->kv_heads, "kv head"), report->tile_tokens,
               fig_report_count(b, report->workers, "worker"));
    }
    printf("  plan      %s bytes of at most %s\n",
           fig_report_number(a, (int64_t)report->plan_bytes),
           fig_report_number(b, (int64_t)report->plan_bytes_limit));
}

static void print_hidden(const planned_class *class) {
    char hidden[FIG_REPORT_NUMBER], all[FIG_REPORT_COUNT], sentence[160];
    snprintf(sentence, sizeof sentence, "hides %s of %s: no query token or head sees them",
             fig_report_number(hidden, class->hidden),
             fig_report_count(all, class->report.tiles + class->hidden, "tile"));
    if (class->hidden == 0)
        snprintf(sentence, sizeof sentence, "hides no tile that the planner knows of");
    fig_columns_words(printf("  mask      "), 12, sentence);
}

/* Prints the window, the mask and the split of a class. */
static void print_class(const planned_step *plan, const planned_class *class) {
    const fig_plan_report *report = &class->report;
    const int32_t readers = readers_of(class);
    char a[FIG_REPORT_COUNT];
    if (plan->class_count > 1 || class->window > 0) {
        printf("\n%d of %s: a query sees ", class->layers,
               fig_report_count(a, plan->source.spec.layers, "layer"));
        if (class->window > 0)
            printf("%s, its own included\n\n", fig_report_count(a, class->window, "token"));
        if (class->window == 0) printf("all tokens\n\n");
    }
    if (has_mask(plan->source.score)) print_hidden(class);
    if (plan->lengths.shared != NULL) fig_group_list_print(&class->groups, report);
    if (report->tiles == 0 && report->shared_groups > 0) return;
    if (report->readers > 0 && report->tails == 0)
        printf("  readers   %d of %d workers read rows, the others process chunks\n", readers,
               report->workers);
    printf("  tiles     %s; ", fig_report_number(a, report->tiles));
    if (readers > 1) printf("each of %d workers has ", readers);
    if (readers == 1) printf("one worker has ");
    if (report->tiles_least == report->tiles_most) {
        printf("%d\n", report->tiles_most);
    } else {
        printf("%d to %d, %.2f on average\n", report->tiles_least, report->tiles_most,
               mean_tiles(class));
    }
    if (report->by_units)
        printf("  units     %d in the fullest worker: 16 a tile, %d more at the start of a row\n",
               report->units_most, report->once);
    printf("  partials  %d of at most %d\n", report->partials, report->partial_limit);
}

/* Prints how many strips a class has. */
static void print_strip_counts(const fig_plan_report *report) {
    const int32_t of_rows = report->strips - report->prefix_strips;
    char a[FIG_REPORT_COUNT], b[FIG_REPORT_COUNT];
    if (report->chunks > 0) printf("\n  chunks    %s", fig_report_count(a, report->chunks, "row"));
    if (report->shared_groups == 0) {
        printf(" in %s, tiles of %d tokens\n", fig_report_count(b, report->strips, "strip"),
               report->strip_tile_tokens);
        return;
    }
    printf("\n  strips    %s of prefixes, ", fig_report_number(a, report->prefix_strips));
    printf("%s of rows, tiles of %d tokens\n", fig_report_number(b, of_rows),
           report->strip_tile_tokens);
}

/* Prints the strips of a class's chunks and groups. */
static void print_strips(const planned_class *class) {
    const fig_plan_report *report = &class->report;
    const fig_draw_loads loads = {.counted = "parts",
                                  .tiles = class->strip_tiles,
                                  .rows = class->strip_pieces,
                                  .marked = class->groups.prefix_tiles,
                                  .workers = report->strip_workers - report->readers,
                                  .most = report->strip_tiles_most};
    char a[FIG_REPORT_COUNT], b[FIG_REPORT_COUNT];
    if (report->chunks == 0 && report->shared_groups == 0) return;
    print_strip_counts(report);
    printf("  tiles     %s; each of %d workers has %d to %d\n",
           fig_report_number(a, report->strip_tiles), loads.workers, report->strip_tiles_least,
           report->strip_tiles_most);
    printf("  partials  %s of query vectors, of at most %s\n",
           fig_report_number(a, report->strip_partials),
           fig_report_number(b, report->strip_partial_limit));
    printf("\ntiles of strips of each worker, and how many parts of strips it does\n");
    if (report->shared_groups > 0) printf("%s are tiles of shared prefixes\n", fig_draw_mark());
    putchar('\n');
    fig_draw_bars(&loads);
}

/* Prints how long the longest row would keep its workers busy if the row were not cut. */
static void print_longest(const planned_class *class) {
    int32_t groups = class->report.groups;
    char each[FIG_REPORT_NUMBER], who[32] = "one worker", sentence[160];
    if (class->longest_workers <= groups) return;
    if (groups > 1) snprintf(who, sizeof who, "%d workers", groups);
    snprintf(sentence, sizeof sentence,
             "Uncut, row %d would keep %s busy for %s tiles%s; here %d share them.", class->longest,
             who, fig_report_number(each, class->row_tiles[class->longest]),
             groups > 1 ? " each" : "", class->longest_workers);
    putchar('\n');
    fig_columns_words(0, 0, sentence);
}

static int is_idle(const fig_plan_report *report) {
    return report->tiles == 0 && report->chunks == 0 && report->shared_groups == 0;
}

static void print_plan(const planned_step *plan) {
    print_step(plan);
    for (int32_t i = 0; i < plan->class_count; i++) {
        const planned_class *class = &plan->classes[i];
        fig_draw_loads loads = {.counted = "rows",
                                .tiles = class->worker_tiles,
                                .rows = class->worker_rows,
                                .workers = readers_of(class),
                                .most = class->report.tiles_most};
        print_class(plan, class);
        if (class->report.tiles > 0) {
            printf("\ntiles of each worker, and how many rows%s it reads\n\n",
                   class->report.tails > 0 ? " and tails" : "");
            fig_draw_bars(&loads);
            if (class->report.tails == 0) print_longest(class);
        }
        print_strips(class);
    }
    if (is_idle(&plan->classes[0].report))
        printf("\nEvery row is idle: there is nothing to cut.\n");
}

static void emit_array(fig_emit *emit, const char *key, const int32_t *values, int32_t count) {
    fig_emit_array(emit, key);
    for (int32_t i = 0; i < count; i++)
        fig_emit_integer(emit, NULL, values[i]);
    fig_emit_close(emit);
}

static void emit_strips(fig_emit *emit, const planned_class *class) {
    const fig_plan_report *report = &class->report;
    fig_emit_object(emit, "chunks");
    fig_emit_integer(emit, "rows", report->chunks);
    fig_emit_integer(emit, "strips", report->strips);
    fig_emit_integer(emit, "pieces", report->strip_pieces);
    fig_emit_integer(emit, "tile_tokens", report->strip_tile_tokens);
    fig_emit_integer(emit, "tiles", report->strip_tiles);
    fig_emit_integer(emit, "tiles_least", report->strip_tiles_least);
    fig_emit_integer(emit, "tiles_most", report->strip_tiles_most);
    fig_emit_integer(emit, "partial_vectors", report->strip_partials);
    fig_emit_integer(emit, "partial_vector_limit", report->strip_partial_limit);
    emit_array(emit, "worker_tiles", class->strip_tiles, report->strip_workers);
    emit_array(emit, "worker_pieces", class->strip_pieces, report->strip_workers);
    fig_emit_close(emit);
}

static void emit_class(fig_emit *emit, const planned_step *plan, const planned_class *class) {
    const fig_plan_report *report = &class->report;
    fig_emit_object(emit, NULL);
    fig_emit_integer(emit, "window", class->window);
    fig_emit_integer(emit, "layers", class->layers);
    fig_emit_integer(emit, "tiles", report->tiles);
    if (has_mask(plan->source.score)) fig_emit_integer(emit, "tiles_hidden", class->hidden);
    fig_emit_integer(emit, "tiles_least", report->tiles_least);
    fig_emit_integer(emit, "tiles_most", report->tiles_most);
    fig_emit_number(emit, "tiles_mean", mean_tiles(class));
    if (report->readers > 0) fig_emit_integer(emit, "readers", report->readers);
    if (report->by_units) fig_emit_integer(emit, "units_most", report->units_most);
    if (report->by_units) fig_emit_integer(emit, "units_once", report->once);
    fig_emit_integer(emit, "partials", report->partials);
    fig_emit_integer(emit, "partial_limit", report->partial_limit);
    emit_array(emit, "worker_tiles", class->worker_tiles, report->workers);
    emit_array(emit, "worker_rows", class->worker_rows, report->workers);
    if (report->strip_workers > 0) emit_strips(emit, class);
    if (plan->lengths.shared != NULL) fig_group_list_emit(emit, &class->groups, report);
    fig_emit_close(emit);
}

static void emit_plan(const planned_step *plan) {
    const fig_plan_report *report = &plan->classes[0].report;
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "model", plan->source.name);
    if (plan->source.score != NULL)
        fig_emit_text(&emit, "score", fig_score_text(plan->source.score));
    fig_vocabulary_traits(&emit, &plan->machine.traits);
    fig_vocabulary_share(&emit, &plan->source.model, plan->source.ranks);
    fig_emit_integer(&emit, "rows", plan->lengths.count);
    fig_emit_integer(&emit, "kv_tokens", fig_lengths_total(&plan->lengths));
    if (plan->lengths.queries != NULL)
        fig_emit_integer(&emit, "query_tokens", fig_lengths_queries(&plan->lengths));
    fig_vocabulary_open_bucket(&emit, "bucket", report->bucket, &plan->bucket);
    fig_emit_close(&emit);
    fig_emit_integer(&emit, "plan_bytes", (int64_t)report->plan_bytes);
    fig_emit_integer(&emit, "plan_bytes_limit", (int64_t)report->plan_bytes_limit);
    fig_emit_array(&emit, "classes");
    for (int32_t i = 0; i < plan->class_count; i++)
        emit_class(&emit, plan, &plan->classes[i]);
    fig_emit_close(&emit);
    fig_emit_close(&emit);
}

static int run(const fig_arguments *arguments) {
    planned_step plan = {.arguments = arguments};
    int code = read_arguments(&plan);
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
        free(plan.classes[i].row_tiles);
        free(plan.classes[i].strip_tiles);
        free(plan.classes[i].strip_pieces);
        fig_group_list_finish(&plan.classes[i].groups);
    }
    fig_inspection_close(plan.inspection);
    fig_graphs_destroy(plan.graphs);
    fig_lengths_finish(&plan.lengths);
    fig_score_destroy(plan.source.score);
    return code;
}

const fig_command fig_cmd_plan = {
    .name = "plan",
    .summary = "draw how one step's KV work is cut among the workers",
    .notes =
        "LENS is a list of kv lengths, this step's token included. \"32768,39x512\" is one "
        "row of 32768 tokens and 39 rows of 512. A single length is repeated for every row; 0 "
        "is an idle row. \"4x2000:3+512:8\" also gives each row's number of query tokens, for "
        "a packed program; the default is 1. A row of 9 to 4096 query tokens is a chunk of a "
        "prompt, and its strips are drawn separately: \"4x2000+8192:512\". In \"64x8448@8192\", "
        "64 rows begin with the same 8192 tokens. Where that saves time, the whole pages of these "
        "tokens are read once for all rows of the item; the program is then one that takes "
        "chunks. The strips that read them are marked in the drawing.\n\n"
        "A mask takes the tiles that nobody sees off the workers: --mask '0:4, q_pos - 1023:q_pos "
        "+ 1'. The tiles count whole if a range reads an array, whose contents the host does not "
        "know.\n\n" FIG_SOURCE_NOTES,
    .example = "figraph plan --preset llama-3.1-8b --kv 32768,39x512 --traits h200",
    .run = run,
    .options =
        {
            FIG_SOURCE_NAMES(FIG_OPTION_ONE_OF),
            FIG_SOURCE_CHANGES,
            FIG_SOURCE_RANKS,
            FIG_SOURCE_SCORE,
            {"--batch", "N", "rows of the step; default: the number of lengths"},
            {"--kv", "LENS", "the kv length of each row", FIG_OPTION_REQUIRED},
            FIG_SOURCE_DEVICE,
            FIG_SOURCE_TRAITS,
            {"--json", NULL, "print an object"},
        },
};
