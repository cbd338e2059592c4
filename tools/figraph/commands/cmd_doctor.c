/* cmd_doctor.c: figraph doctor, what this machine has, lacks and does wrong.
 *
 * Leaves the looking to fig_examine(); shows what it finds. Invariant: the exit code is 1
 * exactly where a fault is shown. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph_unstable.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"

enum { TEXT_COLUMN = 20, ORDINAL_LIMIT = 1023 };

static const char *const verdicts[] = {
    [FIG_VERDICT_FINE] = "fine", [FIG_VERDICT_ADVICE] = "advice", [FIG_VERDICT_FAULT] = "FAULT"};

typedef struct showing {
    fig_emit emit;
    int counts[FIG_VERDICT_FAULT + 1]; /* [fig_verdict] */
} showing;

/* ---- Text ---------------------------------------------------------------------------------- */

static void print_finding(void *user, const fig_finding *finding) {
    showing *shown = user;
    shown->counts[finding->verdict]++;
    printf("  %-6s  %-9s ", verdicts[finding->verdict], finding->subject);
    fig_columns_words(TEXT_COLUMN, TEXT_COLUMN, finding->text);
    if (finding->advice[0] == '\0') return;
    printf("%*s%s", TEXT_COLUMN - 3, "", fig_report_wide() ? " → " : "-> ");
    fig_columns_words(TEXT_COLUMN, TEXT_COLUMN, finding->advice);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void emit_finding(void *user, const fig_finding *finding) {
    showing *shown = user;
    fig_emit *emit = &shown->emit;
    shown->counts[finding->verdict]++;
    fig_emit_object(emit, NULL);
    fig_emit_text(emit, "verdict",
                  finding->verdict == FIG_VERDICT_FAULT ? "fault" : verdicts[finding->verdict]);
    fig_emit_text(emit, "subject", finding->subject);
    fig_emit_text(emit, "text", finding->text);
    fig_emit_text(emit, "advice", finding->advice);
    fig_emit_close(emit);
}

/* ---- The command --------------------------------------------------------------------------- */

static void note_gpu(void *user, const fig_finding *finding) {
    int32_t *ordinal = user;
    if (strcmp(finding->subject, "gpu 0") == 0) *ordinal = 0;
}

static int print_all(int32_t ordinal) {
    showing shown = {.counts = {0}};
    if (fig_examine(ordinal, print_finding, &shown) != FIG_OK) return fig_report_status("doctor");
    const int advice = shown.counts[FIG_VERDICT_ADVICE], faults = shown.counts[FIG_VERDICT_FAULT];
    printf("\n%d fine, %d to consider, %d fault%s\n", shown.counts[FIG_VERDICT_FINE], advice,
           faults, faults == 1 ? "" : "s");
    return faults > 0 ? FIG_EXIT_FAILED : FIG_EXIT_FINE;
}

static int emit_all(int32_t ordinal) {
    showing shown = {.counts = {0}};
    fig_emit_object(&shown.emit, NULL);
    fig_emit_integer(&shown.emit, "ordinal", ordinal);
    fig_emit_array(&shown.emit, "findings");
    const fig_status status = fig_examine(ordinal, emit_finding, &shown);
    fig_emit_close(&shown.emit);
    fig_emit_integer(&shown.emit, "advice", shown.counts[FIG_VERDICT_ADVICE]);
    fig_emit_integer(&shown.emit, "faults", shown.counts[FIG_VERDICT_FAULT]);
    fig_emit_close(&shown.emit);
    if (status != FIG_OK) return fig_report_status("doctor");
    return shown.counts[FIG_VERDICT_FAULT] > 0 ? FIG_EXIT_FAILED : FIG_EXIT_FINE;
}

/* Without --device the first GPU is tried, where there is one. */
static int run(const fig_arguments *arguments) {
    const fig_integer range = {
        .name = "--device", .least = 0, .most = ORDINAL_LIMIT, .fallback = -1};
    int32_t first = -1;
    int64_t device;
    int code = fig_arguments_integer(arguments, &range, &device);
    if (code != FIG_EXIT_FINE) return code;
    if (device < 0) {
        if (fig_examine(-1, note_gpu, &first) != FIG_OK) return fig_report_status("doctor");
        device = first;
    }
    const int json = fig_arguments_text(arguments, "--json") != NULL;
    return json ? emit_all((int32_t)device) : print_all((int32_t)device);
}

const fig_command fig_cmd_doctor = {
    .name = "doctor",
    .summary = "tell what this machine has, lacks and does wrong",
    .notes = "Looks at the library, the driver, GPUs, cores and memory, and NCCL; tries the driver "
             "for known faults and takes a few steps. Without a GPU the steps are taken on the "
             "host.",
    .failure = "a fault was found; advice alone is fine",
    .example = "figraph doctor --device 0",
    .run = run,
    .options =
        {
            {"--device", "N", "the GPU to try; without it the first, if there is one"},
            {"--json", NULL, "print an object"},
        },
};
