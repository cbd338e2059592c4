/* serve_report.c: prints the results of a run as aligned text or as one JSON object. */
#include "tools/figraph/serve/serve_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/figraph/step/source.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"

static const double percents[] = {50, 90, 99, 99.9};
static const char *const percent_names[] = {"p50", "p90", "p99", "p99.9"};
enum { PERCENT_COUNT = sizeof percents / sizeof *percents };

/* A histogram, with its name in JSON (`key`) and in the text for people (`text`). */
typedef struct timing {
    const char *key, *text;
    const fig_histogram *histogram;
} timing;
/* A bin of a histogram is an eighth of an octave wide, so a time has two significant digits. */
enum { TIMING_LIMIT = 5, COLUMN = 10, TEXT_COLUMN = 12, BIN_DIGITS = 2 };

/* Returns the number of timings. */
static int list_timings(const fig_serve_report *report, timing timings[TIMING_LIMIT]) {
    const fig_serve_result *result = report->result;
    int count = 0;
    timings[count++] = (timing){"step_ns", "step", &result->step};
    timings[count++] = (timing){"between_tokens_ns", "between tokens", &result->between};
    if (report->options->chunk > 0)
        timings[count++] =
            (timing){"beside_prompts_ns", "the same, beside prompts", &result->beside};
    timings[count++] = (timing){"first_token_ns", "to the first token", &result->first};
    timings[count++] = (timing){"host_ns", "the host's part of a step", &result->stats.host};
    return count;
}

static double ratio(int64_t part, int64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0;
}

static double tokens_per_second(const fig_serve_result *result) {
    return 1e9 * ratio(result->tokens, result->ns);
}

/* ---- For people -------------------------------------------------------------------------- */

/* Prints a time right-aligned in a column, with two significant digits and a unit: "4.2 ms". */
static void print_time(int64_t ns) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    char text[32];
    int unit = 0;
    snprintf(text, sizeof text, "%.*e", BIN_DIGITS - 1, (double)ns);
    double value = strtod(text, NULL);
    while (unit < 3 && value >= 1000) {
        value /= 1000;
        unit++;
    }
    const int whole = value >= 100 ? 3 : value >= 10 ? 2 : 1;
    const int decimals = unit == 0 || whole > BIN_DIGITS ? 0 : BIN_DIGITS - whole;
    const int wide = unit == 1 && fig_report_wide(); /* µ has two bytes but takes one column */
    snprintf(text, sizeof text, "%.*f %s", decimals, value, wide ? "µs" : units[unit]);
    printf("%*s", wide ? COLUMN + 1 : COLUMN, text);
}

static void print_times(const fig_serve_report *report) {
    timing timings[TIMING_LIMIT];
    const int count = list_timings(report, timings);
    printf("\n  %-27s", "");
    for (int i = 0; i < PERCENT_COUNT; i++)
        printf("%*s", COLUMN, percent_names[i]);
    printf("%*s\n", COLUMN, "most");
    for (const timing *t = timings; t < timings + count; t++) {
        printf("  %-27s", t->text);
        for (int i = 0; i < PERCENT_COUNT; i++)
            print_time(fig_histogram_percentile(t->histogram, percents[i]));
        print_time(t->histogram->most);
        printf("\n");
    }
}

static void print_head(const fig_serve_report *report) {
    const fig_serve_trace *trace = report->options->trace;
    const fig_serve_totals totals = fig_serve_trace_totals(trace);
    char requests[FIG_REPORT_COUNT], sentence[160];
    fig_report_name(report->name);
    printf(" on %s", fig_source_device_name(report->result->device));
    if (report->ranks > 1) printf(", %d ranks", report->ranks);
    printf("\n\n");
    snprintf(sentence, sizeof sentence, "%s, %.0f tokens of prompt and %.0f of output on average",
             fig_report_count(requests, trace->count, "request"),
             ratio(totals.prompt, trace->count), ratio(totals.output, trace->count));
    fig_columns_words(printf("  asked     "), TEXT_COLUMN, sentence);
}

void fig_serve_report_print(const fig_serve_report *report) {
    const fig_serve_result *result = report->result;
    const fig_engine_stats *stats = &result->stats;
    char number[FIG_REPORT_COUNT];
    print_head(report);
    printf("  done      %s", fig_report_number(number, result->done));
    printf(" in %.2f s%s\n", (double)result->ns / 1e9,
           report->options->fast ? ", idle times skipped" : "");
    printf("  tokens    %s", fig_report_number(number, result->tokens));
    printf(", %s per second\n", fig_report_number(number, (int64_t)tokens_per_second(result)));
    if (report->options->chunk > 0) {
        printf("  prompts   %s", fig_report_count(number, result->prompt_tokens, "token"));
        printf(" in %s", fig_report_count(number, result->prompt_steps, "step"));
        printf(", at most %s in one\n", fig_report_number(number, report->options->chunk));
    }
    printf("  steps     %s", fig_report_number(number, result->steps));
    printf(" under %s", fig_report_count(number, result->plans, "plan"));
    printf(", %.2f rows on average, %d at most\n", ratio(result->rows, result->steps),
           result->rows_most);
    printf("  pages     %s", fig_report_number(number, result->pages_most));
    printf(" of %s at most", fig_report_number(number, report->options->page_count));
    printf(", %s", fig_report_count(number, report->page_tokens, "token"));
    printf(" and %s each\n", fig_report_count(number, (int64_t)report->page_bytes, "byte"));
    printf("  uploaded  %.1f bytes a step in plans, %.1f in pages ahead of them\n",
           ratio(stats->uploaded_bytes, result->steps), ratio(stats->page_bytes, result->steps));
    printf("  events    %" PRId64 " preempted, %s taken back, %" PRId64
           " refused for want of a slot\n",
           result->preemptions, fig_report_count(number, stats->taken_back, "step"), stats->busy);
    print_times(report);
    if (report->options->check)
        printf("\n  Every step was launched once, ran once and found its plan whole;\n"
               "  the page tables are right%s.\n",
               report->ranks > 1 ? ", and all ranks did the same" : "");
    if (report->options->check && report->options->chunk > 0)
        printf("  %s of outputs compared: all right.\n",
               fig_report_count(number, result->compared, "element"));
}

/* ---- For programs ------------------------------------------------------------------------ */

static void emit_timing(fig_emit *emit, const timing *t) {
    fig_emit_object(emit, t->key);
    fig_emit_number(emit, "mean", ratio(t->histogram->sum, t->histogram->count));
    for (int i = 0; i < PERCENT_COUNT; i++)
        fig_emit_integer(emit, percent_names[i],
                         fig_histogram_percentile(t->histogram, percents[i]));
    fig_emit_integer(emit, "max", t->histogram->most);
    fig_emit_integer(emit, "count", t->histogram->count);
    fig_emit_close(emit);
}

void fig_serve_report_emit(const fig_serve_report *report) {
    const fig_serve_options *options = report->options;
    const fig_serve_result *result = report->result;
    const fig_engine_stats *stats = &result->stats;
    const fig_serve_totals totals = fig_serve_trace_totals(options->trace);
    timing timings[TIMING_LIMIT];
    fig_emit emit = {0};
    const int count = list_timings(report, timings);
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, report->is_file ? "file" : "model", report->name);
    fig_emit_text(&emit, "device", fig_source_device_name(result->device));
    fig_emit_integer(&emit, "ranks", report->ranks);
    fig_emit_integer(&emit, "requests", options->trace->count);
    fig_emit_integer(&emit, "done", result->done);
    fig_emit_integer(&emit, "prompt_tokens", totals.prompt);
    fig_emit_integer(&emit, "output_tokens", totals.output);
    fig_emit_integer(&emit, "tokens", result->tokens);
    fig_emit_number(&emit, "seconds", (double)result->ns / 1e9);
    fig_emit_number(&emit, "tokens_per_second", tokens_per_second(result));
    fig_emit_integer(&emit, "steps", result->steps);
    fig_emit_integer(&emit, "plans", result->plans);
    fig_emit_number(&emit, "mean_rows", ratio(result->rows, result->steps));
    fig_emit_integer(&emit, "most_rows", result->rows_most);
    fig_emit_integer(&emit, "pages", options->page_count);
    fig_emit_integer(&emit, "most_pages", result->pages_most);
    fig_emit_integer(&emit, "page_tokens", report->page_tokens);
    fig_emit_integer(&emit, "page_bytes", (int64_t)report->page_bytes);
    fig_emit_number(&emit, "plan_bytes_per_step", ratio(stats->uploaded_bytes, result->steps));
    fig_emit_number(&emit, "table_bytes_per_step", ratio(stats->page_bytes, result->steps));
    fig_emit_integer(&emit, "reused_splits", stats->reused_splits);
    if (options->chunk > 0) {
        fig_emit_integer(&emit, "chunk", options->chunk);
        fig_emit_integer(&emit, "computed_prompt_tokens", result->prompt_tokens);
        fig_emit_integer(&emit, "prompt_steps", result->prompt_steps);
        if (options->check) fig_emit_integer(&emit, "compared", result->compared);
    }
    fig_emit_integer(&emit, "preemptions", result->preemptions);
    fig_emit_integer(&emit, "taken_back", stats->taken_back);
    fig_emit_integer(&emit, "busy", stats->busy);
    fig_emit_integer(&emit, "missed", stats->missed);
    fig_emit_truth(&emit, "checked", options->check);
    fig_emit_truth(&emit, "passed", report->passed);
    for (const timing *t = timings; t < timings + count; t++)
        emit_timing(&emit, t);
    fig_emit_close(&emit);
}
