/* cmd_tune.c: figraph tune, measures what variants of attention cost and keeps it in a file.
 *
 * Leaves timing to tune_measure.c and the figures to tune_fit.c. Invariant: the file is replaced
 * only once every class of it was measured and fitted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph_tune.h>

#include "tools/figraph/commands.h"
#include "tools/figraph/emit.h"
#include "tools/figraph/tune_fit.h"
#include "tools/figraph/tune_measure.h"

enum { CLASSES = 4, VARIANTS = 16, RESULTS = CLASSES * VARIANTS };

/* A variant of a class, before and after. */
typedef struct result {
    fig_tune_variant was;
    fig_tune_costs costs;
    double error; /* mean of what the model is off */
    int32_t points;
} result;

typedef struct tuning {
    fig_graphs *graphs, *tuned;
    fig_graphs_info info;
    fig_tune_times times;
    result results[RESULTS];
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

static int fit(tuning *t, const fig_tune_class *of, result *r) {
    fig_tune_point *points = calloc((size_t)t->times.count + 1, sizeof *points);
    if (points == NULL) return fig_report_refuse("tune: no memory for %d times", t->times.count);
    for (int32_t i = 0; i < t->times.count; i++) {
        const fig_tune_time *row = &t->times.rows[i];
        if (!is_of(t, row, of) || strcmp(row->variant, r->was.name) != 0) continue;
        r->points += point_of(t, &r->costs, row, &points[r->points]);
    }
    r->error = fig_tune_fit(points, r->points, &r->costs);
    free(points);
    if (r->error >= 0) return FIG_EXIT_FINE;
    return fig_report_refuse("tune: class %d, variant %s: no time was measured on %s",
                             r->costs.split_class, r->was.name, t->info.traits->name);
}

static int fit_class(tuning *t, const fig_tune_subject *subject) {
    int code = FIG_EXIT_FINE;
    for (int32_t v = 0; code == FIG_EXIT_FINE && v < VARIANTS; v++) {
        result *r = &t->results[t->count];
        *r = (result){.was = {.size = sizeof r->was}};
        if (fig_graphs_tune_variant(t->graphs, subject->split_class, v, &r->was) != FIG_OK) break;
        if (!r->was.serves) continue;
        r->costs = (fig_tune_costs){
            .size = sizeof r->costs, .split_class = subject->split_class, .variant = v};
        t->count++;
        code = fit(t, &subject->of, r);
    }
    return code;
}

/* ---- How good the choice is */

static fig_tune_costs costs_before(const result *r) {
    fig_tune_costs costs = r->costs;
    costs.start_ns = r->was.start_ns;
    costs.bytes_per_us = r->was.bytes_per_us;
    costs.piece_ns = r->was.piece_ns;
    costs.segment_ns = r->was.segment_ns;
    return costs;
}

/* What the variant of a row's cell took that the model takes for the cheapest. */
static double chosen_ns(const tuning *t, const fig_tune_class *of, const fig_tune_time *cell,
                        int32_t split_class, int is_before, double *fastest) {
    double least = INFINITY, ns = 0;
    *fastest = INFINITY;
    for (int32_t i = 0; i < t->times.count; i++) {
        const fig_tune_time *row = &t->times.rows[i];
        if (strcmp(row->cell, cell->cell) != 0 || !is_of(t, row, of)) continue;
        for (int n = 0; n < t->count; n++) {
            const result *r = &t->results[n];
            fig_tune_point point;
            if (r->costs.split_class != split_class || strcmp(r->was.name, row->variant) != 0 ||
                !point_of(t, &r->costs, row, &point))
                continue;
            const fig_tune_costs costs = is_before ? costs_before(r) : r->costs;
            const double predicted = fig_tune_fit_predict(&costs, &point);
            if (point.ns < *fastest) *fastest = point.ns;
            if (predicted >= least) continue;
            least = predicted;
            ns = point.ns;
        }
    }
    return ns;
}

/* Each cell once, by its first row. */
static void judge(tuning *t) {
    fig_tune_subject subject;
    double before = 0, after = 0, fastest;
    for (int32_t c = 0; subject_of(t, c, &subject); c++) {
        fig_tune_measure_flatten(&subject.of);
        for (int32_t i = 0; i < t->times.count; i++) {
            const fig_tune_time *row = &t->times.rows[i];
            int32_t first = 0;
            while (strcmp(t->times.rows[first].cell, row->cell) != 0 ||
                   !is_of(t, &t->times.rows[first], &subject.of)) {
                if (++first > i) break;
            }
            if (first != i) continue;
            const double was = chosen_ns(t, &subject.of, row, c, 1, &fastest);
            if (!(fastest < INFINITY)) continue;
            before += log(was / fastest);
            after += log(chosen_ns(t, &subject.of, row, c, 0, &fastest) / fastest);
            t->cells++;
        }
    }
    t->before = exp(before / (t->cells > 0 ? t->cells : 1));
    t->after = exp(after / (t->cells > 0 ? t->cells : 1));
}

/* ---- What is shown */

static void print_rows(const tuning *t) {
    for (int i = 0; i < t->count; i++) {
        const result *r = &t->results[i];
        fig_tune_class of = {.size = sizeof of};
        fig_graphs_tune_class(t->graphs, r->costs.split_class, &of);
        printf("    {\"%s\", %d, \"%s\", %d, %d, %d, %d},\n", t->info.traits->name, of.value_bytes,
               r->was.name, r->costs.start_ns, r->costs.bytes_per_us, r->costs.piece_ns,
               r->costs.segment_ns);
    }
}

static void print_text(const tuning *t, const char *path) {
    fig_graphs_info tuned = {.size = sizeof tuned};
    char count[FIG_REPORT_COUNT];
    fig_graphs_read_info(t->tuned, &tuned);
    printf(" class variant reads    start_ns  bytes/us  piece_ns  segment_ns  times  off\n");
    for (int i = 0; i < t->count; i++) {
        const result *r = &t->results[i];
        char reads[32];
        snprintf(reads, sizeof reads, "%dx%d", r->was.heads, r->was.tile_tokens);
        printf(" %5d %-7s %-8s %8d %9d %9d %11d %6d %3.0f%%\n", r->costs.split_class, r->was.name,
               reads, r->costs.start_ns, r->costs.bytes_per_us, r->costs.piece_ns,
               r->costs.segment_ns, r->points, 100 * r->error);
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
        fig_emit_object(&emit, NULL);
        fig_emit_integer(&emit, "class", r->costs.split_class);
        fig_emit_text(&emit, "variant", r->was.name);
        fig_emit_integer(&emit, "heads", r->was.heads);
        fig_emit_integer(&emit, "tile_tokens", r->was.tile_tokens);
        fig_emit_integer(&emit, "start_ns", r->costs.start_ns);
        fig_emit_integer(&emit, "bytes_per_us", r->costs.bytes_per_us);
        fig_emit_integer(&emit, "piece_ns", r->costs.piece_ns);
        fig_emit_integer(&emit, "segment_ns", r->costs.segment_ns);
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
    fig_tune_costs costs[RESULTS];
    if (fig_arguments_text(arguments, "--rows") != NULL) {
        print_rows(t);
        return FIG_EXIT_FINE;
    }
    for (int i = 0; i < t->count; i++)
        costs[i] = t->results[i].costs;
    if (fig_graphs_tune(&t->tuned, t->graphs, costs, t->count) != FIG_OK ||
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
    for (int32_t c = 0; code == FIG_EXIT_FINE && subject_of(t, c, &subject); c++) {
        fig_tune_measure_flatten(&subject.of);
        code = fit_class(t, &subject);
    }
    if (code != FIG_EXIT_FINE) return code;
    judge(t);
    return keep(arguments, t);
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
        "the times of each: a start, bytes in a microsecond of a worker, a piece of the longest\n"
        "row, a segment of a worker. Steps are served by what these make the cheapest, as\n"
        "soon as the file is loaded.\n"
        "\n"
        "off: how far the figures are off, in the mean. A minute or two on a GPU.",
    .failure = "attention is not within its tolerance of float64",
    .example = "figraph tune llama.fig -o tuned.fig --csv times.csv",
    .run = run,
    .options =
        {
            {"-o", "FILE", "where to; without it the file itself is replaced"},
            {"--times", "FILE", "a CSV of times measured before, in place of measuring"},
            {"--rows", NULL, "print rows of the library's own table, and keep nothing"},
            FIG_BENCH_MACHINE_OPTIONS,
        },
};
