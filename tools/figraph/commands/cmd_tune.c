/* cmd_tune.c: figraph tune, which measures attention's variants and stores their costs in a file.
 *
 * tune_measure.c measures times, tune_fit.c fits the figures of each variant to its times, and
 * tune_lean.c adjusts them for the best choice among the variants. Invariant: the file is replaced
 * only after all its classes were measured and fitted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <figraph_tune.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/tune/tune_lean.h"
#include "tools/figraph/tune/tune_measure.h"

enum { CLASSES = 4, VARIANTS = 16, RESULTS = CLASSES * VARIANTS };

/* A variant of a class. */
typedef struct result {
    fig_tune_variant was;
    double error; /* the mean relative difference between the model and the times */
    int32_t points;
} result;

typedef struct tuning {
    fig_graphs *graphs, *tuned;
    fig_graphs_info info;
    fig_tune_times times;
    result results[RESULTS];
    fig_tune_costs costs[RESULTS]; /* [count] the figures of each variant, first the file's own */
    int count;
    int32_t kept; /* classes that keep the file's figures because the fitted ones choose worse */
    /* Time of the variant that the model chooses, as a multiple of the fastest variant's time:
     * geometric mean over the cells, by the file's figures and by the stored ones. */
    double before, after;
    int32_t cells;
} tuning;

/* ---- Times */

static int subject_of(const tuning *t, int32_t split_class, fig_tune_subject *subject) {
    *subject = (fig_tune_subject){
        .graphs = t->graphs, .info = t->info, .split_class = split_class, .of = {.size = 0}};
    subject->of.size = sizeof subject->of;
    if (fig_graphs_tune_class(t->graphs, split_class, &subject->of) != FIG_OK) return 0;
    return 1;
}

/* Refuses to measure on a machine other than the one that the graphs are lowered for. */
static int check_machine(const tuning *t, const fig_bench_machine *machine, const char *path) {
    const fig_traits *own = t->info.traits, *here = &machine->traits;
    if (strcmp(own->name, here->name) == 0 && own->sm_count == here->sm_count) return FIG_EXIT_FINE;
    return fig_report_refuse("tune: %s is lowered for %s of %d SMs, and this device is %s of %d",
                             path, own->name, own->sm_count, here->name, here->sm_count);
}

static int measure(const fig_arguments *arguments, tuning *t) {
    fig_bench_machine machine;
    fig_tune_subject subject;
    int code = fig_bench_rig_read_machine(arguments, &machine);
    if (code == FIG_EXIT_FINE) code = check_machine(t, &machine, arguments->operand);
    for (int32_t c = 0; code == FIG_EXIT_FINE && subject_of(t, c, &subject); c++) {
        if (!fig_tune_measure_flatten(&subject.of))
            return fig_report_refuse(
                "tune: class %d has %d q heads times query tokens per kv head, "
                "limit 16",
                c, subject.of.q_heads / subject.of.kv_heads);
        code = fig_tune_measure(&subject, &machine, &t->times);
    }
    return code;
}

static int take_times(const fig_arguments *arguments, tuning *t) {
    const char *times = fig_arguments_text(arguments, "--times");
    const char *csv = fig_arguments_text(arguments, "--csv");
    const int code = times != NULL ? fig_tune_times_read(&t->times, times) : measure(arguments, t);
    if (code != FIG_EXIT_FINE || csv == NULL) return code;
    return fig_tune_times_write(&t->times, csv);
}

/* ---- Figures */

/* Returns the bytes of K and V in one tile of a variant. */
static double tile_bytes_of(const fig_tune_class *of, const fig_tune_variant *variant) {
    return 2.0 * variant->tile_tokens * variant->heads * of->head_dim * of->value_bytes;
}

/* Counts the tiles and segments of a step's whole line. */
static void count_line(const fig_tune_class *of, const fig_tune_variant *variant,
                       const fig_lengths *lengths, double *tiles, double *segments) {
    const int32_t groups = of->kv_heads / variant->heads;
    *tiles = *segments = 0;
    for (int32_t row = 0; row < lengths->count; row++) {
        const int32_t length = lengths->values[row];
        const int32_t seen = of->window > 0 && length > of->window ? of->window : length;
        *tiles += (double)groups * ((seen + variant->tile_tokens - 1) / variant->tile_tokens);
        *segments += seen > 0 ? groups : 0;
    }
}

/* In a split by units, the fullest worker has an equal share of the tiles, and an equal share of
 * the segments plus one. The number of workers that share the line is computed from the units that
 * the library counts. That number is the same for any figures in the file, so tuning again with the
 * same times gives the same figures. */
static fig_tune_point point_of_work(const fig_tune_class *of, const fig_tune_variant *variant,
                                    const fig_lengths *lengths, const fig_tune_work *work) {
    const double tile_bytes = tile_bytes_of(of, variant), once = variant->once;
    fig_tune_point point = {.bytes = (double)work->bytes,
                            .pieces = (double)work->pieces,
                            .segments = (double)work->segments,
                            .tiles = (double)work->bytes / tile_bytes,
                            .begins = (double)work->segments,
                            .tile_bytes = tile_bytes};
    double tiles, segments;
    if (!((double)work->units > once)) return point;
    count_line(of, variant, lengths, &tiles, &segments);
    const double workers =
        round((16 * tiles + once * (segments - 1)) / ((double)work->units - once));
    if (workers < 1) return point;
    point.tiles = tiles / workers;
    point.begins = (segments - 1) / workers + 1;
    point.is_by_units = 1;
    return point;
}

/* Returns 1 if a row has only one token. The memory does not limit the time of such steps. */
static int is_probe(const fig_lengths *lengths) {
    for (int32_t row = 0; row < lengths->count; row++)
        if (lengths->values[row] == 1) return 1;
    return 0;
}

/* Describes the row's step in a variant. Returns 0 if the graphs cannot run the step. */
static int point_of(const tuning *t, int variant, const fig_tune_time *row, fig_tune_point *point) {
    const fig_tune_costs *costs = &t->costs[variant];
    fig_lengths lengths = {0};
    fig_tune_work work = {.size = sizeof work};
    fig_tune_class of = {.size = sizeof of};
    int known = fig_tune_times_lengths(row->cell, &lengths) == FIG_EXIT_FINE;
    const fig_step step = {
        .size = sizeof step, .rows = lengths.count, .kv_lengths = lengths.values};
    known = known && fig_graphs_tune_class(t->graphs, costs->split_class, &of) == FIG_OK &&
            fig_graphs_tune_work(t->graphs, costs, &step, &work) == FIG_OK;
    *point = known ? point_of_work(&of, &t->results[variant].was, &lengths, &work)
                   : (fig_tune_point){.bytes = 0};
    point->is_probe = is_probe(&lengths);
    point->ns = fig_tune_times_ns(row);
    fig_lengths_finish(&lengths);
    return known;
}

static int is_of(const tuning *t, const fig_tune_time *row, const fig_tune_class *of) {
    return strcmp(row->chip, t->info.traits->name) == 0 && fig_tune_times_is_of(row, of);
}

/* ---- A class */

/* Appends the variants that can serve the class. */
static void list_variants(tuning *t, int32_t split_class) {
    for (int32_t v = 0; v < VARIANTS; v++) {
        fig_tune_variant was = {.size = sizeof was};
        if (fig_graphs_tune_variant(t->graphs, split_class, v, &was) != FIG_OK) break;
        if (!was.serves) continue;
        t->results[t->count] = (result){.was = was};
        t->costs[t->count++] = (fig_tune_costs){.size = sizeof t->costs[0],
                                                .split_class = split_class,
                                                .variant = v,
                                                .start_ns = was.start_ns,
                                                .bytes_per_us = was.bytes_per_us,
                                                .piece_ns = was.piece_ns,
                                                .segment_ns = was.segment_ns};
    }
}

/* Appends the row's time as a trial of its variant; the variants of this class begin at `first`. */
static void add_trial(const tuning *t, int first, const fig_tune_time *row, int32_t cell,
                      fig_tune_trials *trials) {
    for (int n = first; n < t->count; n++) {
        fig_tune_trial *trial = &trials->rows[trials->count];
        if (strcmp(t->results[n].was.name, row->variant) != 0) continue;
        *trial = (fig_tune_trial){.cell = cell, .variant = n - first};
        trials->count += point_of(t, n, row, &trial->point);
    }
}

/* Returns the first row of a cell; the cell must have one. */
static int32_t first_of(const tuning *t, const fig_tune_class *of, const char *cell) {
    int32_t first = 0;
    while (strcmp(t->times.rows[first].cell, cell) != 0 || !is_of(t, &t->times.rows[first], of))
        first++;
    return first;
}

/* Lists the trials of a class, those of the same cell together. A cell's number is the index of its
 * first row. */
static void list_trials(const tuning *t, const fig_tune_class *of, int first,
                        fig_tune_trials *trials) {
    const fig_tune_time *rows = t->times.rows;
    for (int32_t cell = 0; cell < t->times.count; cell++) {
        const char *name = rows[cell].cell;
        if (!is_of(t, &rows[cell], of) || first_of(t, of, name) != cell) continue;
        for (int32_t i = cell; i < t->times.count; i++)
            if (strcmp(rows[i].cell, name) == 0 && is_of(t, &rows[i], of))
                add_trial(t, first, &rows[i], cell, trials);
    }
}

static int32_t gather(const fig_tune_trials *trials, int32_t variant, fig_tune_point *points) {
    int32_t count = 0;
    for (int32_t i = 0; i < trials->count; i++)
        if (trials->rows[i].variant == variant) points[count++] = trials->rows[i].point;
    return count;
}

static int32_t count_cells(const fig_tune_trials *trials) {
    int32_t count = 0;
    for (int32_t i = 0; i < trials->count; i++)
        count += i == 0 || trials->rows[i].cell != trials->rows[i - 1].cell;
    return count;
}

/* Chooses between the fitted figures and the file's own, which also serve steps that were not
 * measured. If figures that fit the times choose worse than the file's, the file's figures stay.
 * costs: in, the file's figures; out, the chosen ones. */
static void choose(tuning *t, const fig_tune_trials *trials, const fig_tune_costs *fitted,
                   fig_tune_costs *costs) {
    fig_tune_costs leaned[VARIANTS];
    const int count = (int)(&t->costs[t->count] - costs);
    const double before = fig_tune_lean_lost(trials, costs);
    fig_tune_lean(trials, fitted, count, leaned);
    const double after = fig_tune_lean_lost(trials, leaned);
    const int is_worse = after > before;
    if (!is_worse) memcpy(costs, leaned, (size_t)count * sizeof *costs);
    t->kept += is_worse;
    t->before += before;
    t->after += is_worse ? before : after;
}

/* Fits once and tile_ns of a variant. If the times determine them, *standing gets the variant's
 * present once and tile_ns, so that the old and the fitted figures are compared by the same model.
 * Otherwise both stay 0, and the table's values are used. */
static void fit_units(const fig_tune_variant *was, const fig_tune_point *points, int32_t count,
                      fig_tune_costs *standing, fig_tune_costs *fitted) {
    fig_tune_costs before = *standing;
    before.once = was->once;
    before.tile_ns = was->tile_ns;
    if (fig_tune_fit_units(points, count, &before, fitted)) *standing = before;
}

/* Fits each variant of a class, whose first is `first`. points: room for all trials. */
static int fit(tuning *t, int first, const fig_tune_trials *trials, fig_tune_point *points) {
    fig_tune_costs fitted[VARIANTS], *costs = &t->costs[first];
    const int count = t->count - first;
    for (int32_t v = 0; v < count; v++) {
        const int32_t of_variant = gather(trials, v, points);
        fitted[v] = costs[v];
        if (fig_tune_fit(points, of_variant, &fitted[v]) >= 0) {
            fit_units(&t->results[first + v].was, points, of_variant, &costs[v], &fitted[v]);
            continue;
        }
        return fig_report_refuse("tune: class %d, variant %s: no time was measured on %s",
                                 costs[v].split_class, t->results[first + v].was.name,
                                 t->info.traits->name);
    }
    choose(t, trials, fitted, costs);
    t->cells += count_cells(trials);
    for (int32_t v = 0; v < count; v++) {
        result *r = &t->results[first + v];
        r->points = gather(trials, v, points);
        r->error = fig_tune_fit_off(&costs[v], points, r->points);
    }
    return FIG_EXIT_FINE;
}

static int fit_class(tuning *t, const fig_tune_subject *subject) {
    const size_t most = (size_t)t->times.count + 1;
    fig_tune_trials trials = {calloc(most, sizeof *trials.rows), 0};
    fig_tune_point *points = calloc(most, sizeof *points);
    const int first = t->count;
    int code;
    if (trials.rows != NULL && points != NULL) {
        list_variants(t, subject->split_class);
        list_trials(t, &subject->of, first, &trials);
        code = fit(t, first, &trials, points);
    } else {
        code = fig_report_refuse("tune: no memory for %d times", t->times.count);
    }
    free(points);
    free(trials.rows);
    return code;
}

static int fit_classes(tuning *t) {
    fig_tune_subject subject;
    int code = FIG_EXIT_FINE;
    for (int32_t c = 0; code == FIG_EXIT_FINE && subject_of(t, c, &subject); c++) {
        fig_tune_measure_flatten(&subject.of);
        code = fit_class(t, &subject);
    }
    t->before = exp(t->before / (t->cells > 0 ? t->cells : 1));
    t->after = exp(t->after / (t->cells > 0 ? t->cells : 1));
    return code;
}

/* ---- Output */

static void print_rows(const tuning *t) {
    for (int i = 0; i < t->count; i++) {
        const fig_tune_costs *costs = &t->costs[i];
        fig_tune_class of = {.size = sizeof of};
        fig_graphs_tune_class(t->graphs, costs->split_class, &of);
        printf("    {\"%s\", %d, \"%s\", %d, %d, %d, %d},\n", t->info.traits->name, of.value_bytes,
               t->results[i].was.name, costs->start_ns, costs->bytes_per_us, costs->piece_ns,
               costs->segment_ns);
    }
}

static void print_text(const tuning *t, const char *path) {
    fig_graphs_info tuned = {.size = sizeof tuned};
    char count[FIG_REPORT_COUNT];
    fig_graphs_read_info(t->tuned, &tuned);
    printf(" class variant reads    start_ns  bytes/us  piece_ns  segment_ns  times  off\n");
    for (int i = 0; i < t->count; i++) {
        const result *r = &t->results[i];
        const fig_tune_costs *costs = &t->costs[i];
        char reads[32];
        snprintf(reads, sizeof reads, "%dx%d", r->was.heads, r->was.tile_tokens);
        printf(" %5d %-7s %-8s %8d %9d %9d %11d %6d %3.0f%%\n", costs->split_class, r->was.name,
               reads, costs->start_ns, costs->bytes_per_us, costs->piece_ns, costs->segment_ns,
               r->points, 100 * r->error);
    }
    printf("\nover %s the chosen variant takes %.3f of the fastest, before %.3f\n",
           fig_report_count(count, t->cells, "cell"), t->after, t->before);
    if (t->kept > 0)
        printf("%s: the earlier figures choose better than the fitted ones, and are kept\n",
               fig_report_count(count, t->kept, "class of attention"));
    fig_report_name(path);
    printf(": %s, before %d\n", fig_report_count(count, tuned.bucket_count, "bucket"),
           t->info.bucket_count);
}

static void emit_json(const tuning *t, const char *path) {
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "file", path);
    fig_emit_text(&emit, "chip", t->info.traits->name);
    fig_emit_integer(&emit, "cells", t->cells);
    fig_emit_number(&emit, "of_fastest", t->after);
    fig_emit_number(&emit, "of_fastest_before", t->before);
    fig_emit_integer(&emit, "classes_kept", t->kept);
    fig_emit_array(&emit, "variants");
    for (int i = 0; i < t->count; i++) {
        const result *r = &t->results[i];
        const fig_tune_costs *costs = &t->costs[i];
        fig_emit_object(&emit, NULL);
        fig_emit_integer(&emit, "class", costs->split_class);
        fig_emit_text(&emit, "variant", r->was.name);
        fig_emit_integer(&emit, "heads", r->was.heads);
        fig_emit_integer(&emit, "tile_tokens", r->was.tile_tokens);
        fig_emit_integer(&emit, "start_ns", costs->start_ns);
        fig_emit_integer(&emit, "bytes_per_us", costs->bytes_per_us);
        fig_emit_integer(&emit, "piece_ns", costs->piece_ns);
        fig_emit_integer(&emit, "segment_ns", costs->segment_ns);
        fig_emit_integer(&emit, "once", costs->once > 0 ? costs->once : r->was.once);
        fig_emit_integer(&emit, "tile_ns", costs->once > 0 ? costs->tile_ns : r->was.tile_ns);
        fig_emit_integer(&emit, "times", r->points);
        fig_emit_number(&emit, "error", r->error);
        fig_emit_close(&emit);
    }
    fig_emit_close(&emit);
    fig_emit_close(&emit);
}

/* ---- The command */

static int keep(const fig_arguments *arguments, tuning *t) {
    const char *out = fig_arguments_text(arguments, "-o");
    const char *path = out != NULL ? out : arguments->operand;
    if (fig_arguments_text(arguments, "--rows") != NULL) {
        print_rows(t);
        return FIG_EXIT_FINE;
    }
    if (fig_graphs_tune(&t->tuned, t->graphs, t->costs, t->count) != FIG_OK ||
        fig_graphs_save(t->tuned, path) != FIG_OK)
        return fig_report_status(path);
    if (fig_arguments_text(arguments, "--json") != NULL) {
        emit_json(t, path);
    } else {
        print_text(t, path);
    }
    return FIG_EXIT_FINE;
}

/* Refuses to replace a read-only file, even though its folder would allow it, and any file in a
 * folder that takes no new one, and does so before measuring. The first check uses the file's mode,
 * because root may write any file. */
static int check_writable(const fig_arguments *arguments) {
    static const fig_option operand = {.name = "FILE", .is_replaced = 1};
    struct stat info;
    if (fig_arguments_text(arguments, "-o") != NULL ||
        fig_arguments_text(arguments, "--rows") != NULL || stat(arguments->operand, &info) != 0)
        return FIG_EXIT_FINE;
    if ((info.st_mode & 0222) != 0)
        return fig_arguments_check_written(arguments->command, &operand, arguments->operand);
    return fig_report_refuse("tune: %s: its mode is %03o, read-only; name another file with -o",
                             arguments->operand, (unsigned)info.st_mode & 0777);
}

static int tune(const fig_arguments *arguments, tuning *t) {
    fig_tune_subject subject;
    if (check_writable(arguments) != FIG_EXIT_FINE) return FIG_EXIT_BAD;
    t->info.size = sizeof t->info;
    if (fig_graphs_load(&t->graphs, arguments->operand) != FIG_OK)
        return fig_report_status(arguments->operand);
    fig_graphs_read_info(t->graphs, &t->info);
    if (!subject_of(t, 0, &subject))
        return fig_report_refuse("tune: %s has no attention", arguments->operand);
    if (t->info.spec->latent_dim > 0)
        return fig_report_refuse("tune: %s: the costs over a latent cache are fixed, and tune "
                                 "does not measure them",
                                 arguments->operand);
    int code = take_times(arguments, t);
    if (code == FIG_EXIT_FINE) code = fit_classes(t);
    return code == FIG_EXIT_FINE ? keep(arguments, t) : code;
}

static int run(const fig_arguments *arguments) {
    tuning t = {.graphs = NULL};
    const int code = tune(arguments, &t);
    fig_tune_times_finish(&t.times);
    fig_graphs_destroy(t.tuned);
    fig_graphs_destroy(t.graphs);
    return code;
}

const fig_command fig_cmd_tune = {
    .name = "tune",
    .summary = "measure the cost of each attention variant and store it in the file",
    .operand = "FILE",
    .notes =
        "Times each variant that can serve the file's attention, over cold caches, in a chain and "
        "standalone, on the machine that the file is lowered for. It then fits four figures to the "
        "times of each variant: the cost of a start, the bytes that a worker reads per "
        "microsecond, the cost of a piece of the longest row, and the cost of a segment of a "
        "worker. It then adjusts all figures except the rate, by at most a quarter, so that the "
        "variant that is cheapest by these figures is as fast as possible. Every engine that loads "
        "the file uses these figures.\n"
        "\n"
        "Two more figures decide where steps with short and long rows are cut: tile_ns, the time "
        "of a tile, and once, the additional time of a segment's first tile in sixteenths of "
        "tile_ns. Tune fits these two to steps in which some row has one token. If the times of "
        "such steps are missing, or if the old figures predict them better, the old figures stay.\n"
        "\n"
        "In the table, off is the mean difference between the figures and the times. Tuning takes "
        "a minute or two on a GPU.",
    .failure = "attention is not within its tolerance of float64",
    .example = "figraph tune llama.fig -o tuned.fig --csv times.csv",
    .run = run,
    .options =
        {
            {"-o", "FILE", "the file to write; default: replace the input file", .is_replaced = 1},
            {"--times", "FILE", "read times from this CSV file instead of measuring"},
            {"--rows", NULL, "print rows for the library's own table, and write no file"},
            FIG_BENCH_MACHINE_OPTIONS,
        },
};
