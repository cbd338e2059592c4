/* cmd_doctor.c: figraph doctor, which examines this machine and reports faults and advice.
 *
 * fig_examine() does the work; this file prints its findings. Invariant: the exit code is 1 if and
 * only if a fault was printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph_unstable.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"

enum { TEXT_COLUMN = 20, ORDINAL_LIMIT = 1023, RANK_LIMIT = 8 };

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

/* ordinal: the GPU to test, -1: none. gpus: the number of GPUs for ranks, 0: test ranks on the
 * host. */
typedef struct trying {
    int32_t ordinal, gpus;
} trying;

static void note_gpu(void *user, const fig_finding *finding) {
    trying *found = user;
    if (strncmp(finding->subject, "gpu ", 4) == 0 && finding->verdict == FIG_VERDICT_FINE)
        found->gpus++;
    if (strcmp(finding->subject, "gpu 0") == 0) found->ordinal = 0;
    if (strcmp(finding->subject, "peers") == 0 && finding->verdict != FIG_VERDICT_FINE)
        found->gpus = 1;
}

/* One GPU cannot run several ranks, so with a single GPU the test of ranks is skipped. */
static fig_status examine(const trying *of, fig_find_callback find, showing *shown) {
    const int32_t most = of->gpus < RANK_LIMIT ? of->gpus : RANK_LIMIT;
    const fig_status status = fig_examine(of->ordinal, find, shown);
    if (status != FIG_OK || most == 1) return status;
    return fig_examine_ranks(most == 0 ? FIG_DEVICE_HOST : FIG_DEVICE_CUDA, most == 0 ? 2 : most,
                             find, shown);
}

static int print_all(const trying *of) {
    showing shown = {.counts = {0}};
    if (examine(of, print_finding, &shown) != FIG_OK) return fig_report_status("doctor");
    const int advice = shown.counts[FIG_VERDICT_ADVICE], faults = shown.counts[FIG_VERDICT_FAULT];
    printf("\n%d fine, %d to consider, %d fault%s\n", shown.counts[FIG_VERDICT_FINE], advice,
           faults, faults == 1 ? "" : "s");
    return faults > 0 ? FIG_EXIT_FAILED : FIG_EXIT_FINE;
}

static int emit_all(const trying *of) {
    showing shown = {.counts = {0}};
    fig_emit_object(&shown.emit, NULL);
    fig_emit_integer(&shown.emit, "ordinal", of->ordinal);
    fig_emit_array(&shown.emit, "findings");
    const fig_status status = examine(of, emit_finding, &shown);
    fig_emit_close(&shown.emit);
    fig_emit_integer(&shown.emit, "advice", shown.counts[FIG_VERDICT_ADVICE]);
    fig_emit_integer(&shown.emit, "faults", shown.counts[FIG_VERDICT_FAULT]);
    fig_emit_close(&shown.emit);
    if (status != FIG_OK) return fig_report_status("doctor");
    return shown.counts[FIG_VERDICT_FAULT] > 0 ? FIG_EXIT_FAILED : FIG_EXIT_FINE;
}

/* Without --device the first GPU is tested, if there is one. */
static int run(const fig_arguments *arguments) {
    const fig_integer range = {
        .name = "--device", .least = 0, .most = ORDINAL_LIMIT, .fallback = -1};
    trying found = {.ordinal = -1};
    int64_t device;
    int code = fig_arguments_integer(arguments, &range, &device);
    if (code != FIG_EXIT_FINE) return code;
    if (fig_examine(-1, note_gpu, &found) != FIG_OK) return fig_report_status("doctor");
    if (device >= 0) found.ordinal = (int32_t)device;
    return fig_arguments_text(arguments, "--json") != NULL ? emit_all(&found) : print_all(&found);
}

const fig_command fig_cmd_doctor = {
    .name = "doctor",
    .summary = "examine this machine and report faults and advice",
    .notes = "Looks at the library, the driver, the GPUs and the paths between them, cores, memory "
             "and NCCL. Tests the driver for known faults, runs a few steps, and times all-reduces "
             "over up to eight GPUs. Without a GPU it runs the steps and all-reduces on the host.",
    .failure = "a fault was found (advice does not count)",
    .example = "figraph doctor --device 0",
    .run = run,
    .options =
        {
            {"--device", "N", "the number of the GPU to test; default: the first GPU, if any"},
            {"--json", NULL, "print an object"},
        },
};
