/* bench_replay.c: figraph bench replay, which times the parts of a step on host and device.
 *
 * Generates rows, opens a session for each row count, compares a step with float64, lets the
 * library measure, and prints the figures as text, CSV or JSON. engine/measure.c explains each
 * figure. Invariant: text, CSV and JSON are printed from one table of figures. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph_unstable.h>

#include "tools/figraph/bench/bench_parts.h"
#include "tools/figraph/step/check.h"
#include "tools/figraph/step/session.h"
#include "tools/figraph/step/source.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/lengths.h"
#include "tools/figraph/terminal/report.h"

static const int64_t CHECK_US = 60000000; /* the timeout of the step that is compared */

enum {
    STEPS_LIMIT = 1000000,
    STEPS_OF_GPU = 10000,
    STEPS_OF_HOST = 100, /* few, because the host's kernels are C on one thread */
    QUICKER = 10,        /* --quick divides the steps by this */
    GROWTH = 64,         /* the most tokens that measuring adds to a row */
    LENGTH_MEAN = 512,   /* the mean of generated lengths */
    BAR = 50,
    LINES_LIMIT = 64
};
static const char DEFAULT_ROWS[] = "1,8,64";

/* One row count. */
typedef struct line {
    int32_t rows;
    int64_t tokens;
    fig_lengths lengths; /* [rows] */
    fig_measured measured;
    fig_bucket_info bucket;
    double above_bare, fetch_over_bare, fetch_over_resident, result_over_empty;
} line;

typedef struct bench {
    fig_source source;
    const char *name, *csv, *kv; /* kv: as given, or "ragged" */
    fig_device device;
    fig_traits traits;
    char driver[32];
    fig_graphs *graphs;
    fig_graphs_info info;
    int32_t steps, quick;
    line *lines; /* [line_count] */
    int32_t line_count;
} bench;

/* A figure of a line in CSV and JSON, in ns. */
static const struct figure {
    const char *name;
    size_t offset; /* the offset of its double in a line */
    int of_gpu;    /* 1: only a GPU has this figure */
} figures[] = {
    {"check_ns", offsetof(line, measured.check_ns), 0},
    {"choose_ns", offsetof(line, measured.choose_ns), 0},
    {"plan_ns", offsetof(line, measured.plan_ns), 0},
    {"launch_ns", offsetof(line, measured.launch_ns), 0},
    {"step_ns", offsetof(line, measured.step_ns), 0},
    {"bare_launch_ns", offsetof(line, measured.bare_launch_ns), 0},
    {"idle_step_ns", offsetof(line, measured.idle_step_ns), 0},
    {"idle_bare_launch_ns", offsetof(line, measured.idle_bare_launch_ns), 0},
    {"above_bare_ns", offsetof(line, above_bare), 0},
    {"fetched_ns", offsetof(line, measured.fetched_ns), 1},
    {"waited_ns", offsetof(line, measured.waited_ns), 1},
    {"resident_ns", offsetof(line, measured.resident_ns), 1},
    {"bare_ns", offsetof(line, measured.bare_ns), 1},
    {"fetch_over_bare_ns", offsetof(line, fetch_over_bare), 1},
    {"fetch_over_resident_ns", offsetof(line, fetch_over_resident), 1},
    {"gap_ns", offsetof(line, measured.gap_ns), 1},
    {"empty_gap_ns", offsetof(line, measured.empty_gap_ns), 1},
    {"result_ns", offsetof(line, measured.result_ns), 1},
    {"empty_result_ns", offsetof(line, measured.empty_result_ns), 1},
    {"result_over_empty_ns", offsetof(line, result_over_empty), 1},
};
enum { FIGURE_COUNT = sizeof figures / sizeof *figures };

static int is_told(const bench *b, size_t figure) {
    return b->device == FIG_DEVICE_CUDA || !figures[figure].of_gpu;
}

static double value_of(const line *of, size_t figure) {
    double value;
    memcpy(&value, (const char *)of + figures[figure].offset, sizeof value);
    return value;
}

/* ---- Options ------------------------------------------------------------------------------- */

static int32_t least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* Generates lengths between 0.5 and 1.5 times the mean, the same on every machine. */
static int make_up(fig_lengths *lengths, int32_t rows, const fig_spec *spec) {
    fig_synthetic synthetic;
    const int32_t room = spec->kv_limit - GROWTH;
    const int32_t mean = room > 1 ? least(LENGTH_MEAN, (room + 1) / 2) : 1;
    lengths->values = calloc((size_t)rows, sizeof *lengths->values);
    if (lengths->values == NULL)
        return fig_report_refuse("bench replay: no memory for %d rows", rows);
    lengths->count = lengths->capacity = rows;
    fig_synthetic_seed(&synthetic, 1);
    for (int32_t row = 0; row < rows; row++) {
        const int32_t length = mean / 2 + 1 + fig_synthetic_below(&synthetic, mean);
        const int32_t fewest = fig_schedule_least(spec);
        lengths->values[row] = length > fewest ? length : fewest;
    }
    if (spec->row_tokens == fig_schedule_least(spec)) return FIG_EXIT_FINE;
    /* Rows may be chunks; unless the caller asks for some, each row decodes one token. */
    lengths->queries = calloc((size_t)rows, sizeof *lengths->queries);
    if (lengths->queries == NULL)
        return fig_report_refuse("bench replay: no memory for %d rows", rows);
    for (int32_t row = 0; row < rows; row++)
        lengths->queries[row] = 1;
    return FIG_EXIT_FINE;
}

static int read_lengths(const bench *b, const char *text, line *of) {
    const fig_spec *spec = &b->source.spec;
    int code = FIG_EXIT_FINE;
    if (text == NULL) {
        code = make_up(&of->lengths, of->rows, spec);
    } else if (spec->query_limit > 0) {
        code = fig_lengths_parse_queries(&of->lengths, text, "bench replay: --kv");
    } else {
        code = fig_lengths_parse(&of->lengths, text, "bench replay: --kv");
    }
    if (code == FIG_EXIT_FINE)
        code = fig_lengths_repeat(&of->lengths, of->rows, "bench replay: --kv");
    for (int32_t row = 0; code == FIG_EXIT_FINE && row < of->rows; row++) {
        const int32_t length = of->lengths.values[row];
        if (length >= spec->kv_limit)
            code = fig_report_refuse(
                "bench replay: --kv: %d tokens, a sequence of %s has %d at most, and rows grow "
                "while they are measured",
                length, b->name, spec->kv_limit);
    }
    if (code == FIG_EXIT_FINE) of->tokens = fig_lengths_total(&of->lengths);
    return code;
}

static int read_lines(const fig_arguments *arguments, bench *b) {
    const char *text = fig_arguments_text(arguments, "--rows");
    const char *kv = fig_arguments_text(arguments, "--kv");
    const fig_spec *spec = &b->source.spec;
    int32_t most = spec->batch_limit;
    fig_lengths counts = {0};
    if (spec->sequence_limit > 0) most = least(most, spec->sequence_limit);
    int code =
        fig_lengths_parse(&counts, text != NULL ? text : DEFAULT_ROWS, "bench replay: --rows");
    if (code == FIG_EXIT_FINE && counts.count > LINES_LIMIT)
        code = fig_report_refuse("bench replay: --rows: %d row counts, limit %d", counts.count,
                                 LINES_LIMIT);
    if (code == FIG_EXIT_FINE) b->lines = calloc((size_t)counts.count, sizeof *b->lines);
    if (code == FIG_EXIT_FINE && b->lines == NULL)
        code = fig_report_refuse("bench replay: no memory for %d lines", counts.count);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < counts.count; i++) {
        const int32_t rows = counts.values[i];
        if (text == NULL && rows > most) break;
        if (rows < 1 || rows > most) {
            code = fig_report_refuse("bench replay: --rows: %d is outside 1..%d of %s", rows, most,
                                     b->name);
            break;
        }
        b->lines[i].rows = rows;
        b->line_count = i + 1;
        code = read_lengths(b, kv, &b->lines[i]);
    }
    b->kv = kv != NULL ? kv : "ragged";
    fig_lengths_finish(&counts);
    return code;
}

/* Refuses options of the step beside a file, which already fixes the step. */
static int check_file(const fig_arguments *arguments) {
    if (fig_arguments_text(arguments, "--layers") == NULL)
        return fig_source_refuse_beside_file(arguments);
    return fig_report_refuse("bench replay: --layers: %s was given, which already fixes it",
                             arguments->operand);
}

static int read_file(const fig_arguments *arguments, bench *b) {
    int code = check_file(arguments);
    if (code != FIG_EXIT_FINE) return code;
    b->name = arguments->operand;
    if (fig_graphs_load(&b->graphs, b->name) != FIG_OK) return fig_report_status(b->name);
    fig_graphs_read_info(b->graphs, &b->info);
    b->source.spec = *b->info.spec;
    return FIG_EXIT_FINE;
}

static int read_preset(const fig_arguments *arguments, bench *b) {
    fig_integer range = {.name = "--layers", .least = 1, .most = INT32_MAX};
    int64_t layers;
    int code = fig_source_read(arguments, &b->source);
    range.fallback = b->source.spec.layers;
    b->name = b->source.name;
    if (code == FIG_EXIT_FINE) code = fig_arguments_integer(arguments, &range, &layers);
    if (code != FIG_EXIT_FINE) return code;
    return fig_source_keep_layers(arguments, &b->source, (int32_t)layers);
}

/* Unused buckets cost memory and time to prepare. Therefore limits that the user did not give are
 * reduced: the rows to the number that the lines need, the tokens to the next power of two. */
static void narrow(const fig_arguments *arguments, bench *b) {
    fig_spec *spec = &b->source.spec;
    int32_t rows = 1, longest = 1, kv_limit = 128;
    for (int32_t i = 0; i < b->line_count; i++) {
        if (b->lines[i].rows > rows) rows = b->lines[i].rows;
        for (int32_t row = 0; row < b->lines[i].rows; row++)
            if (b->lines[i].lengths.values[row] > longest)
                longest = b->lines[i].lengths.values[row];
    }
    while (kv_limit < spec->kv_limit && (kv_limit - GROWTH < longest || kv_limit < spec->page_size))
        kv_limit *= 2;
    if (fig_arguments_text(arguments, "--batch-limit") == NULL) spec->batch_limit = rows;
    if (fig_arguments_text(arguments, "--kv-limit") == NULL && kv_limit < spec->kv_limit)
        spec->kv_limit = kv_limit;
}

static int read_arguments(const fig_arguments *arguments, bench *b) {
    fig_integer range = {.name = "--steps", .least = 1, .most = STEPS_LIMIT, .fallback = 0};
    int64_t steps;
    int code = fig_arguments_integer(arguments, &range, &steps);
    if (code == FIG_EXIT_FINE) code = fig_source_read_device(arguments, &b->device);
    if (code != FIG_EXIT_FINE) return code;
    b->steps = (int32_t)steps;
    b->csv = fig_arguments_text(arguments, "--csv");
    b->quick = fig_arguments_text(arguments, "--quick") != NULL;
    b->info.size = sizeof b->info;
    code = arguments->operand != NULL ? read_file(arguments, b) : read_preset(arguments, b);
    if (code == FIG_EXIT_FINE) code = read_lines(arguments, b);
    if (code == FIG_EXIT_FINE) code = fig_source_device_traits(arguments, b->device, &b->traits);
    if (code != FIG_EXIT_FINE || b->graphs != NULL) return code;
    narrow(arguments, b);
    code = fig_source_lower(&b->source, &b->traits, &b->graphs);
    if (code == FIG_EXIT_FINE) fig_graphs_read_info(b->graphs, &b->info);
    return code;
}

/* ---- Measuring ----------------------------------------------------------------------------- */

/* Reads the driver's version, such as "570.86.15", from the text of the kernel module. */
static void read_driver(bench *b) {
    char text[256] = "";
    FILE *file = b->device == FIG_DEVICE_CUDA ? fopen("/proc/driver/nvidia/version", "r") : NULL;
    snprintf(b->driver, sizeof b->driver, "none");
    if (file == NULL) return;
    if (fgets(text, sizeof text, file) == NULL) text[0] = '\0';
    fclose(file);
    for (const char *word = text; *word != '\0'; word += strspn(word, " \t\n")) {
        const size_t bytes = strcspn(word, " \t\n");
        const size_t digits = strspn(word, "0123456789");
        if (digits > 0 && word[digits] == '.' && bytes < sizeof b->driver) {
            snprintf(b->driver, sizeof b->driver, "%.*s", (int)bytes, word);
            return;
        }
        word += bytes;
    }
}

/* Returns the number of a row's query tokens. */
static int32_t queries_of(const bench *b, const line *of, int32_t row) {
    return of->lengths.queries != NULL ? of->lengths.queries[row] : b->info.spec->row_tokens;
}

/* Gives each row all the pages that it grows into, and fills every input. */
static int feed(const bench *b, fig_session *session, const line *of) {
    const fig_spec *spec = b->info.spec;
    int32_t *longest = calloc(2 * (size_t)of->rows, sizeof *longest), *queries = longest + of->rows;
    if (longest == NULL) return fig_report_refuse("bench replay: no memory for %d rows", of->rows);
    for (int32_t row = 0; row < of->rows; row++) {
        const int32_t length = of->lengths.values[row];
        if (length > 0) longest[row] = least(length + GROWTH, spec->kv_limit);
        queries[row] = queries_of(b, of, row);
    }
    const fig_schedule schedule = {.rows = of->rows, .lengths = longest, .queries = queries};
    const int code = fig_session_feed(session, &schedule);
    free(longest);
    return code;
}

/* Checks the line's bucket with its first row only, because comparing all rows would take longer
 * than timing them. */
static int check_session(const bench *b, fig_session *session, const line *of,
                         const fig_step *whole) {
    int32_t queries = queries_of(b, of, 0);
    const fig_schedule schedule = {.rows = 1, .lengths = of->lengths.values, .queries = &queries};
    fig_plan_report report = {.size = sizeof report};
    fig_check check = {.elements = 0};
    fig_step step = *whole;
    fig_status status = fig_graphs_plan(b->graphs, whole, &report);
    step.rows = 1;
    step.bucket = report.bucket;
    if (status == FIG_OK) status = fig_engine_step(session->engine, &step);
    if (status == FIG_OK) status = fig_engine_wait(session->engine, CHECK_US);
    if (status != FIG_OK) return fig_report_status("bench replay");
    return fig_check_step(&check, session, &schedule);
}

static int measure_session(bench *b, fig_session *session, line *of) {
    const fig_step step = {.size = sizeof step,
                           .rows = of->rows,
                           .kv_lengths = of->lengths.values,
                           .query_counts = of->lengths.queries,
                           .sequences = session->sequences};
    int code = feed(b, session, of);
    if (code == FIG_EXIT_FINE) code = check_session(b, session, of, &step);
    if (code != FIG_EXIT_FINE) return code;
    of->measured = (fig_measured){.size = sizeof of->measured};
    if (b->steps == 0)
        b->steps = (b->device == FIG_DEVICE_CUDA ? STEPS_OF_GPU : STEPS_OF_HOST) /
                   (b->quick ? QUICKER : 1);
    if (fig_engine_measure(session->engine,
                           FIG_OPTIONS(fig_measure_options, .step = &step, .steps = b->steps),
                           &of->measured) != FIG_OK)
        return fig_report_status("bench replay");
    return FIG_EXIT_FINE;
}

static int measure_line(bench *b, line *of) {
    const fig_session_options options = {.graphs = b->graphs,
                                         .device = b->device,
                                         .schedule = {.graphs = b->graphs,
                                                      .rows = of->rows,
                                                      .steps = GROWTH + 1,
                                                      .start = &of->lengths,
                                                      .seed = 1}};
    fig_session session;
    int code = fig_session_open(&session, &options);
    if (code == FIG_EXIT_FINE) {
        b->device = fig_engine_device(session.engine);
        code = measure_session(b, &session, of);
    }
    fig_session_close(&session);
    if (code != FIG_EXIT_FINE) return code;
    const fig_measured *m = &of->measured;
    of->bucket.size = sizeof of->bucket;
    if (fig_graphs_bucket(b->graphs, m->bucket, &of->bucket) != FIG_OK)
        return fig_report_status("bench replay");
    of->above_bare = m->step_ns - m->bare_launch_ns;
    of->fetch_over_bare = m->fetched_ns - m->bare_ns;
    of->fetch_over_resident = m->fetched_ns - m->resident_ns;
    of->result_over_empty = m->result_ns - m->empty_result_ns;
    return FIG_EXIT_FINE;
}

static int measure_lines(bench *b) {
    fig_report_progress progress;
    int code = FIG_EXIT_FINE;
    fig_report_begin(&progress, "bench replay: row count", b->line_count);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < b->line_count; i++) {
        fig_report_part(&progress, i);
        code = measure_line(b, &b->lines[i]);
        fig_report_advance(&progress, i + 1);
    }
    fig_report_end(&progress);
    read_driver(b);
    return code;
}

/* ---- Text ---------------------------------------------------------------------------------- */

/* Draws the parts of a step's time as marks: the largest part first, the rest at the end. */
static void print_bar(const line *of) {
    const fig_measured *m = &of->measured;
    struct part {
        char mark;
        double ns;
    } parts[] = {{'L', m->launch_ns}, {'P', m->plan_ns}, {'C', m->check_ns}, {'H', m->choose_ns}};
    enum { PARTS = sizeof parts / sizeof *parts };
    char bar[BAR + 1];
    int used = 0;
    for (int done = 0; done < PARTS; done++) {
        int first = done;
        for (int i = done + 1; i < PARTS; i++)
            if (parts[i].ns > parts[first].ns) first = i;
        const struct part next = parts[first];
        parts[first] = parts[done];
        parts[done] = next;
        const int marks = m->step_ns > 0 ? (int)(next.ns / m->step_ns * BAR + 0.5) : 0;
        for (int i = 0; i < marks && used < BAR; i++)
            bar[used++] = next.mark;
    }
    while (used < BAR)
        bar[used++] = '.';
    bar[used] = '\0';
    printf("  %4d   %s\n", of->rows, bar);
}

static void print_gpu(const bench *b) {
    printf("\ndevice, a replay                                       fetched is over\n"
           "  rows  launches  fetched   waited resident     bare     bare resident\n");
    for (int32_t i = 0; i < b->line_count; i++) {
        const line *of = &b->lines[i];
        const fig_measured *m = &of->measured;
        printf("  %4d  %8d %8.0f %8.0f %8.0f %8.0f %+8.0f %+8.0f\n", of->rows, m->launches,
               m->fetched_ns, m->waited_ns, m->resident_ns, m->bare_ns, of->fetch_over_bare,
               of->fetch_over_resident);
    }
    printf("\nbeside graphs of as many launches that do nothing\n"
           "  rows       gap  of empty  from stage to result  of empty  over it\n");
    for (int32_t i = 0; i < b->line_count; i++) {
        const fig_measured *m = &b->lines[i].measured;
        printf("  %4d  %8.0f  %8.0f  %20.0f  %8.0f %+8.0f\n", b->lines[i].rows, m->gap_ns,
               m->empty_gap_ns, m->result_ns, m->empty_result_ns, b->lines[i].result_over_empty);
    }
}

static void print_bench(const bench *b) {
    fig_report_name(b->name);
    printf(" on %s", fig_source_device_name(b->device));
    if (b->device == FIG_DEVICE_CUDA)
        printf(": %s, %d SMs, driver %s", b->traits.name, b->traits.sm_count, b->driver);
    printf("\n%d layer%s, kv %s, medians of %d, in ns\n", b->info.spec->layers,
           b->info.spec->layers == 1 ? "" : "s", b->kv, b->steps);
    printf("\nhost, a step, by a loop that runs ahead of the device\n"
           "  rows   tokens   check  choose    plan  launch    step  bare launch  above bare\n");
    for (int32_t i = 0; i < b->line_count; i++) {
        const line *of = &b->lines[i];
        const fig_measured *m = &of->measured;
        printf("  %4d %8" PRId64 "  %6.0f  %6.0f  %6.0f  %6.0f  %6.0f  %11.0f  %+10.0f\n", of->rows,
               of->tokens, m->check_ns, m->choose_ns, m->plan_ns, m->launch_ns, m->step_ns,
               m->bare_launch_ns, of->above_bare);
    }
    if (b->device == FIG_DEVICE_CUDA) print_gpu(b);
    printf("\nwhere a step's time on the host goes\n");
    for (int32_t i = 0; i < b->line_count; i++)
        print_bar(&b->lines[i]);
    printf("         L launch  P plan  C check  H choose  . the rest\n");
}

/* ---- CSV and JSON -------------------------------------------------------------------------- */

static void write_quoted(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"') fputc('"', file);
        fputc(*text, file);
    }
    fputc('"', file);
}

static void write_line(FILE *file, const bench *b, const line *of) {
    fprintf(file, "%s,%s,%d,%s,", fig_source_device_name(b->device), b->traits.name,
            b->traits.sm_count, b->driver);
    write_quoted(file, b->name);
    fprintf(file, ",%d,%d,", b->info.spec->layers, of->rows);
    write_quoted(file, b->kv);
    fprintf(file, ",%" PRId64 ",%d,%d,%" PRId64 ",%d,%d", of->tokens, b->steps,
            of->bucket.bucket.batch, (int64_t)of->bucket.bucket.batch * of->bucket.bucket.kv,
            of->bucket.variant, of->measured.launches);
    for (size_t i = 0; i < FIGURE_COUNT; i++)
        is_told(b, i) ? fprintf(file, ",%.1f", value_of(of, i)) : fputc(',', file);
    fputc('\n', file);
}

static int write_csv(const bench *b) {
    FILE *file = fopen(b->csv, "w");
    if (file == NULL)
        return fig_report_refuse("bench replay: --csv: %s: %s", b->csv, strerror(errno));
    fputs("device,name,sm_count,driver,preset,layers,rows,kv,tokens,steps,bucket_rows,"
          "bucket_tokens,variant,launches",
          file);
    for (size_t i = 0; i < FIGURE_COUNT; i++)
        fprintf(file, ",%s", figures[i].name);
    fputc('\n', file);
    for (int32_t i = 0; i < b->line_count; i++)
        write_line(file, b, &b->lines[i]);
    const int failed = ferror(file);
    errno = 0;
    if (fclose(file) == 0 && !failed) return FIG_EXIT_FINE;
    return fig_report_refuse("bench replay: --csv: %s: %s", b->csv,
                             errno != 0 ? strerror(errno) : "a write failed");
}

static void emit_bench(const bench *b) {
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "device", fig_source_device_name(b->device));
    fig_emit_text(&emit, "name", b->traits.name);
    fig_emit_integer(&emit, "sm_count", b->traits.sm_count);
    fig_emit_text(&emit, "driver", b->driver);
    fig_emit_text(&emit, "preset", b->name);
    fig_emit_integer(&emit, "layers", b->info.spec->layers);
    fig_emit_text(&emit, "kv", b->kv);
    fig_emit_integer(&emit, "steps", b->steps);
    fig_emit_array(&emit, "lines");
    for (int32_t i = 0; i < b->line_count; i++) {
        const line *of = &b->lines[i];
        fig_emit_object(&emit, NULL);
        fig_emit_integer(&emit, "rows", of->rows);
        fig_emit_integer(&emit, "tokens", of->tokens);
        fig_emit_integer(&emit, "bucket", of->measured.bucket);
        fig_emit_integer(&emit, "bucket_rows", of->bucket.bucket.batch);
        fig_emit_integer(&emit, "bucket_tokens",
                         (int64_t)of->bucket.bucket.batch * of->bucket.bucket.kv);
        fig_emit_integer(&emit, "variant", of->bucket.variant);
        fig_emit_integer(&emit, "launches", of->measured.launches);
        for (size_t figure = 0; figure < FIGURE_COUNT; figure++)
            if (is_told(b, figure))
                fig_emit_number(&emit, figures[figure].name, value_of(of, figure));
        fig_emit_close(&emit);
    }
    fig_emit_close(&emit);
    fig_emit_close(&emit);
}

static int run(const fig_arguments *arguments) {
    bench b = {0};
    int code = read_arguments(arguments, &b);
    if (code == FIG_EXIT_FINE) code = measure_lines(&b);
    if (code == FIG_EXIT_FINE && b.csv != NULL) code = write_csv(&b);
    if (code == FIG_EXIT_FINE) {
        if (fig_arguments_text(arguments, "--json") != NULL) {
            emit_bench(&b);
        } else {
            print_bench(&b);
        }
    }
    for (int32_t i = 0; i < b.line_count; i++)
        fig_lengths_finish(&b.lines[i].lengths);
    free(b.lines);
    fig_graphs_destroy(b.graphs);
    return code;
}

const fig_command fig_bench_replay = {
    .name = "bench replay",
    .summary = "the times of a step's parts on host and device, over many replays",
    .operand = "[FILE]",
    .notes =
        "FILE is a .fig file. Without FILE, --preset, --config or --q-heads names the model, and "
        "limits that you do not give are as low as the rows allow.\n\n"
        "Host figures: rows grow by a token per step. step is a stage and a launch, in a loop "
        "that runs ahead of the device. bare launch is only the driver's launch of the same "
        "graph. above bare is step minus bare launch. CSV and JSON also have these figures for "
        "a loop that waits for each step to end; their names begin with idle.\n\n"
        "GPU figures: rows keep their lengths. fetched: each graph fetches a whole plan of "
        "its own. waited: a single such graph, with its launch and the transfer over the bus. "
        "resident: the fetch finds the plan on the device. bare: the same nodes without a "
        "fetch. fetched is over: fetched minus bare, and fetched minus resident. gap: the "
        "time between two graphs. result: the time from stage until the host knows that the "
        "step has ended. Graphs of empty launches show the least time that the driver needs.",
    .example = "figraph bench replay --preset llama-3.1-8b-layer --rows 1,8,64 --kv 1024",
    .run = run,
    .options =
        {
            FIG_SOURCE_OPTIONS,
            {"--layers", "N", "layers of the step; default: all layers of the model"},
            {"--rows", "N,..", "row counts; default 1,8,64, up to the limit of the step"},
            {"--kv", "LENS", "kv lengths, see figraph plan --help; default: random, mean 512"},
            {"--steps", "N", "steps of each kind; default 10000, on the host 100"},
            FIG_SOURCE_DEVICE,
            {"--quick", NULL, "a tenth of the steps, unless --steps is given"},
            {"--csv", "FILE", "write all figures to FILE, a line for each row count",
             .is_written = 1},
            {"--json", NULL, "print an object"},
        },
};
