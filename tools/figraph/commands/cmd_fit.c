/* cmd_fit.c: figraph fit, which tells whether a machine can run a .fig file as it is.
 *
 * The command needs no GPU to answer for a GPU. It also answers for a file that does not load: a
 * sound file of another library must be captured anew, and a damaged file is refused. */
#include <stdio.h>

#include <figraph_unstable.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/step/source.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/terminal/vocabulary.h"

enum { REASON_COLUMN = 12 };

typedef struct fitted {
    const char *path;
    fig_source_machine machine;
    fig_emit emit;
    int json, begun;
} fitted;

static const char *word_of(fig_fit fit) {
    static const char *const words[] = {[FIG_FIT_FINE] = "fine",
                                        [FIG_FIT_WARNING] = "warning",
                                        [FIG_FIT_ANEW] = "anew",
                                        [FIG_FIT_REFUSED] = "refused"};
    return words[fit];
}

/* Prints the head of the output before the first reason. If the traits are refused, nothing is
 * printed. */
static void begin(fitted *of) {
    if (of->begun) return;
    of->begun = 1;
    if (of->json) {
        fig_emit_object(&of->emit, NULL);
        fig_emit_text(&of->emit, "file", of->path);
        fig_vocabulary_traits(&of->emit, &of->machine.traits);
        fig_emit_array(&of->emit, "reasons");
        return;
    }
    fig_report_name(of->path);
    printf(" on %s, %s\n", of->machine.traits.name, of->machine.why);
}

static void take(void *user, fig_fit fit, const char *reason) {
    fitted *of = user;
    begin(of);
    if (!of->json) {
        fig_columns_words(printf("  %-9s ", word_of(fit)), REASON_COLUMN, reason);
        return;
    }
    fig_emit_object(&of->emit, NULL);
    fig_emit_text(&of->emit, "fit", word_of(fit));
    fig_emit_text(&of->emit, "reason", reason);
    fig_emit_close(&of->emit);
}

static int end(fitted *of, fig_fit fit) {
    static const char *const sentences[] = {
        [FIG_FIT_FINE] = "It fits.",
        [FIG_FIT_WARNING] = "It fits, with the warnings above.",
        [FIG_FIT_ANEW] = "Capture it anew: it does not run there, or runs slower than it could.",
        [FIG_FIT_REFUSED] = "It does not run there."};
    begin(of);
    if (of->json) {
        fig_emit_close(&of->emit);
        fig_emit_text(&of->emit, "fit", word_of(fit));
        fig_emit_close(&of->emit);
    } else {
        printf("\n%s\n", sentences[fit]);
    }
    return fit >= FIG_FIT_ANEW ? FIG_EXIT_FAILED : FIG_EXIT_FINE;
}

static int run(const fig_arguments *arguments) {
    fitted of = {.path = arguments->operand,
                 .json = fig_arguments_text(arguments, "--json") != NULL};
    fig_graphs *graphs;
    fig_fit fit = FIG_FIT_REFUSED;
    const int code = fig_source_read_machine(arguments, &of.machine);
    if (code != FIG_EXIT_FINE) return code;
    const fig_status status = fig_graphs_load(&graphs, of.path);
    if (status != FIG_OK && status != FIG_STALE && status != FIG_FORMAT)
        return fig_report_status(of.path);
    if (status == FIG_OK) {
        if (fig_graphs_fit(graphs, &of.machine.traits, &fit, take, &of) != FIG_OK)
            return fig_report_status(of.path);
    } else {
        fit = status == FIG_STALE ? FIG_FIT_ANEW : FIG_FIT_REFUSED;
        take(&of, fit, fig_message());
    }
    fig_graphs_destroy(graphs);
    return end(&of, fit);
}

const fig_command fig_cmd_fit = {
    .name = "fit",
    .summary = "tell how well a .fig file fits this machine, or another",
    .operand = "FILE",
    .notes = "A file gives correct results on every machine that runs it. Capture it anew if a "
             "capture for the machine would cut steps in another, faster way, or if this library "
             "cannot read the file.",
    .failure = "the file must be captured anew, or does not run there",
    .example = "figraph fit llama.fig --traits h100",
    .run = run,
    .options = {FIG_SOURCE_DEVICE, FIG_SOURCE_TRAITS, {"--json", NULL, "print an object"}},
};
