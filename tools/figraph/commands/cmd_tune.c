/* cmd_tune.c: figraph tune, measures what variants of attention cost and keeps it in a file.
 *
 * Leaves timing to tune_measure.c, the figures that are nearest to each variant's times to
 * tune_fit.c, and those that choose best among the variants to tune_lean.c. Invariant: the file is
 * replaced only once every class of it was measured and fitted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph_tune.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/tune/tune_lean.h"
#include "tools/figraph/tune/tune_measure.h"

enum { CLASSES = 4, VARIANTS = 16, RESULTS = CLASSES * VARIANTS };

/* A variant of a class. */
typedef struct result {
    fig_tune_variant was;
    double error; /* mean of what the model is off */
    int32_t points;
} result;

typedef struct tuning {
    fig_graphs *graphs, *tuned;
    fig_graphs_info info;
    fig_tune_times times;
    result results[RESULTS];
    fig_tune_costs costs[RESULTS]; /* what the model says of each: at first what it said before */
    int count;
    double before, after; /* what the cheapest by the model takes, of the fastest: geometric mean */
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

/* Those of the graphs' own machine are what counts. */
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
                "tune: class %d has %d q heads and query tokens for a kv head, "
                "16 can be measured",
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

/* What the model knows of the row's step; 0: the graphs have no such step. */
static int point_of(const tuning *t, const fig_tune_costs *of, const fig_tune_time *row,
                    fig_tune_point *point) {
    fig_lengths lengths = {NULL, 0, 0};
    fig_tune_work work = {.size = sizeof work};
    int known = fig_tune_times_lengths(row->cell, &lengths) == FIG_EXIT_FINE;
    const fig_step step = {
        .size = sizeof step, .rows = lengths.count, .kv_lengths = lengths.values};
    known = known && fig_graphs_tune_work(t->graphs, of, &step, &work) == FIG_OK;
    fig_lengths_finish(&lengths);
    *point = (fig_tune_point){(double)work.bytes, (double)work.pieces, (double)work.segments,
                              fig_tune_times_ns(row)};
    return known;
}

static int is_of(const tuning *t, const fig_tune_time *row, const fig_tune_class *of) {
    return strcmp(row->chip, t->info.traits->name) == 0 && fig_tune_times_is_of(row, of);
}

/* ---- A class */

/* Appends those that serve. */
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

/* Appends what a row says of a variant from `first` on. */
static void add_trial(const tuning *t, int first, const fig_tune_time *row, int32_t cell,
                      fig_tune_trials *trials) {
    for (int n = first; n < t->count; n++) {
        fig_tune_trial *trial = &trials->rows[trials->count];
        if (strcmp(t->results[n].was.name, row->variant) != 0) continue;
        *trial = (fig_tune_trial){.cell = cell, .variant = n - first};
        trials->count += point_of(t, &t->costs[n], row, &trial->point);
    }
}

/* The first row of a cell that has one. */
static int32_t first_of(const tuning *t, const fig_tune_class *of, const char *cell) {
    int32_t first = 0;
    while (strcmp(t->times.rows[first].cell, cell) != 0 || !is_of(t, &t->times.rows[first], of))
        first++;
    return first;
}

/* A cell is numbered by its first row, and all its rows are listed where that one stands. */
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

/* points: room for all trials. */
static int fit(tuning *t, int first, const fig_tune_trials *trials, fig_tune_point *points) {
    fig_tune_costs fitted[VARIANTS], *costs = &t->costs[first];
    const int count = t->count - first;
    for (int32_t v = 0; v < count; v++) {
        fitted[v] = costs[v];
        if (fig_tune_fit(points, gather(trials, v, points), &fitted[v]) >= 0) continue;
        return fig_report_refuse("tune: class %d, variant %s: no time was measured on %s",
                                 costs[v].split_class, t->results[first + v].was.name,
                                 t->info.traits->name);
    }
    t->before += fig_tune_lean_lost(trials, costs);
    fig_tune_lean(trials, fitted, count, costs);
    t->after += fig_tune_lean_lost(trials, costs);
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

/* ---- What is shown */

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
    printf("\nover %s the variant chosen takes %.3f of the fastest, before %.3f\n",
           fig_report_count(count, t->cells, "cell"), t->after, t->before);
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

static int tune(const fig_arguments *arguments, tuning *t) {
    fig_tune_subject subject;
    t->info.size = sizeof t->info;
    if (fig_graphs_load(&t->graphs, arguments->operand) != FIG_OK)
        return fig_report_status(arguments->operand);
    fig_graphs_read_info(t->graphs, &t->info);
    if (!subject_of(t, 0, &subject))
        return fig_report_refuse("tune: %s has no attention", arguments->operand);
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
    .summary = "measure what attention's variants cost, and keep it in the file",
    .operand = "FILE",
    .notes =
        "Times each variant that may serve the file's attention, over cold caches, in a chain\n"
        "and alone, on the machine that the file is lowered for. Four figures are fitted to\n"
        "the times of each variant: what a start costs, how many bytes a worker reads in a\n"
        "microsecond, and what a piece of the longest row and a segment of a worker cost. All\n"
        "but the rate are then moved, by a quarter at most, so that choosing the cheapest\n"
        "variant by them loses the least time. Whoever loads the file is served by that choice.\n"
        "\n"
        "off, in the table, is how far the figures are from the times, on average. All of it\n"
        "takes a minute or two on a GPU.",
    .failure = "attention is not within its tolerance of float64",
    .example = "figraph tune llama.fig -o tuned.fig --csv times.csv",
    .run = run,
    .options =
        {
            {"-o", "FILE", "where the file goes; without it FILE itself is replaced"},
            {"--times", "FILE", "a CSV of times measured before, in place of measuring"},
            {"--rows", NULL, "print rows of the library's own table, and keep nothing"},
            FIG_BENCH_MACHINE_OPTIONS,
        },
};
