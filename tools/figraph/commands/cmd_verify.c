/* cmd_verify.c: figraph verify, which tells whether a .fig file is sound.
 *
 * Loading checks everything: the hashes, every index, the rules of each operation, and whether this
 * library lowers the program to the same launches as the library that wrote the file. */
#include <stdio.h>

#include <figraph_tune.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/terminal/vocabulary.h"

enum { NOTE_COLUMN = 12 };

static int print_damage(const char *path, fig_status status, int json) {
    /* Other failures mean that the file could not be read, so it was not checked. */
    int checked = status == FIG_FORMAT || status == FIG_STALE;
    if (json && checked) {
        fig_emit emit = {0};
        fig_emit_object(&emit, NULL);
        fig_emit_text(&emit, "file", path);
        fig_emit_truth(&emit, "sound", 0);
        fig_emit_text(&emit, "status", fig_status_name(status));
        fig_emit_text(&emit, "message", fig_message());
        fig_emit_close(&emit);
    }
    int code = fig_report_status(path);
    return checked ? FIG_EXIT_FAILED : code;
}

static void emit_tuning(fig_emit *emit, const fig_tune_info *tuning) {
    fig_emit_object(emit, "tuning");
    fig_emit_integer(emit, "used", tuning->used);
    fig_emit_integer(emit, "foreign", tuning->foreign);
    fig_emit_integer(emit, "stale", tuning->stale);
    fig_emit_close(emit);
}

static void emit_sound(const char *path, const fig_graphs_info *info, const fig_tune_info *tuning) {
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "file", path);
    fig_emit_truth(&emit, "sound", 1);
    fig_vocabulary_graphs(&emit, info);
    emit_tuning(&emit, tuning);
    fig_emit_close(&emit);
}

static void print_note(const char *note) {
    fig_columns_words(printf("  note      "), NOTE_COLUMN, note);
}

/* The file may hold costs that were measured on another machine or with other kernels; the library
 * ignores these. */
static void print_tuning(const fig_tune_info *tuning) {
    char note[160], count[FIG_REPORT_COUNT];
    if (tuning->used > 0)
        printf("  tuned     the costs of %s were measured for it\n",
               fig_report_count(count, tuning->used, "variant"));
    if (tuning->foreign + tuning->stale == 0) return;
    snprintf(note, sizeof note,
             "%s of costs not used: %d from another machine, %d from another version; figraph tune "
             "measures again",
             fig_report_count(count, tuning->foreign + tuning->stale, "record"), tuning->foreign,
             tuning->stale);
    print_note(note);
}

static void print_sound(const char *path, const fig_graphs_info *info,
                        const fig_tune_info *tuning) {
    char buckets[FIG_REPORT_COUNT], nodes[FIG_REPORT_COUNT], tensors[FIG_REPORT_COUNT], note[160];
    fig_report_name(path);
    printf(": sound\n");
    printf("  holds     %s for %s, %s over %s\n",
           fig_report_count(buckets, info->bucket_count, "bucket"), info->traits->name,
           fig_report_count(nodes, info->node_count, "node"),
           fig_report_count(tensors, info->tensor_count, "tensor"));
    printf("  content   %s\n", info->content_id);
    print_tuning(tuning);
    if (info->relowered_count == 0) return;
    snprintf(note, sizeof note,
             "%d of %s lowered again: this library lowers them differently from the library that "
             "wrote the file",
             info->relowered_count, buckets);
    print_note(note);
}

static int run(const fig_arguments *arguments) {
    int json = fig_arguments_text(arguments, "--json") != NULL;
    fig_graphs_info info = {.size = sizeof info};
    fig_tune_info tuning = {.size = sizeof tuning};
    fig_graphs *graphs;
    fig_status status = fig_graphs_load(&graphs, arguments->operand);
    if (status != FIG_OK) return print_damage(arguments->operand, status, json);
    fig_graphs_read_info(graphs, &info);
    fig_graphs_tune_info(graphs, &tuning);
    if (json) {
        emit_sound(arguments->operand, &info, &tuning);
    } else {
        print_sound(arguments->operand, &info, &tuning);
    }
    fig_graphs_destroy(graphs);
    return FIG_EXIT_FINE;
}

const fig_command fig_cmd_verify = {
    .name = "verify",
    .summary = "check a .fig file",
    .operand = "FILE",
    .notes = "A file is also sound if this library lowers its buckets differently from the library "
             "that wrote the file: loading then lowers them again.",
    .failure = "the file is damaged, or must be captured anew",
    .example = "figraph verify tutorial.fig",
    .run = run,
    .options = {{"--json", NULL, "print an object"}},
};
