/* cmd_inspect.c: figraph inspect, what a .fig file holds, in words or as JSON. */
#include <stdio.h>

#include <figraph_unstable.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/step/source.h"

static void write_stdout(void *user, const char *bytes, size_t count) {
    (void)user;
    fwrite(bytes, 1, count, stdout);
}

static int run(const fig_arguments *arguments) {
    fig_print_options options = {.size = sizeof options};
    fig_integer range = {.name = "--bucket", .least = 1, .most = INT32_MAX, .fallback = 0};
    fig_graphs *graphs;
    int64_t bucket;
    int32_t ranks;
    int code = fig_arguments_integer(arguments, &range, &bucket);
    if (code == FIG_EXIT_FINE) code = fig_source_read_ranks(arguments, &ranks);
    if (code != FIG_EXIT_FINE) return code;
    if (fig_arguments_text(arguments, "--json") != NULL) options.format = FIG_PRINT_JSON;
    options.bucket = (int32_t)bucket;
    options.columns = fig_columns();
    options.all_buckets = fig_arguments_text(arguments, "--all") != NULL;
    if (fig_graphs_load(&graphs, arguments->operand) != FIG_OK) {
        return fig_report_status(arguments->operand);
    }
    code = fig_source_divide(arguments, ranks, &graphs);
    if (code == FIG_EXIT_FINE && fig_graphs_print(graphs, &options, write_stdout, NULL) != FIG_OK) {
        code = fig_report_status(arguments->operand);
    }
    fig_graphs_destroy(graphs);
    return code;
}

const fig_command fig_cmd_inspect = {
    .name = "inspect",
    .summary = "print what a .fig file holds",
    .operand = "FILE",
    .example = "figraph inspect tutorial.fig --bucket 1",
    .run = run,
    .options =
        {
            {"--bucket", "K", "the launches of the K-th bucket; without it the summary"},
            FIG_SOURCE_RANKS,
            {"--all", NULL, "a line for each bucket, not one for each batch"},
            {"--json", NULL, "print an object, which holds all buckets"},
        },
};
