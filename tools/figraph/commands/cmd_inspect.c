/* cmd_inspect.c: figraph inspect, which prints a .fig file as text, JSON, a page or a drawing. */
#include <stdio.h>
#include <string.h>

#include <figraph_archive.h>
#include <figraph.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/inspect/failure.h"
#include "tools/figraph/inspect/inspect_print.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/lengths.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/step/source.h"

static void write_stdout(void *user, const char *bytes, size_t count) {
    (void)user;
    fwrite(bytes, 1, count, stdout);
}

static int read_format(const fig_arguments *arguments, fig_print_format *format) {
    static const struct {
        const char *name;
        fig_print_format format;
    } names[] = {{"html", FIG_PRINT_HTML}, {"svg", FIG_PRINT_SVG}, {"dot", FIG_PRINT_DOT}};
    const char *name = fig_arguments_text(arguments, "--format");
    const int json = fig_arguments_text(arguments, "--json") != NULL;
    *format = json ? FIG_PRINT_JSON : FIG_PRINT_TEXT;
    if (name == NULL) return FIG_EXIT_FINE;
    if (json) return fig_report_refuse("inspect: --format and --json: give only one of them");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i].name) != 0) continue;
        *format = names[i].format;
        return FIG_EXIT_FINE;
    }
    return fig_report_refuse("inspect: --format: %s: it must be html, svg or dot", name);
}

/* Reads the options of the output; fills in lengths if --kv is given. */
static int read_options(const fig_arguments *arguments, fig_print_options *options,
                        fig_lengths *lengths) {
    fig_integer range = {.name = "--bucket", .least = 1, .most = INT32_MAX, .fallback = 0};
    const char *kv = fig_arguments_text(arguments, "--kv");
    int64_t bucket;
    int code = fig_arguments_integer(arguments, &range, &bucket);
    if (code == FIG_EXIT_FINE) code = read_format(arguments, &options->format);
    if (code == FIG_EXIT_FINE && kv != NULL && options->format != FIG_PRINT_HTML)
        code = fig_report_refuse("inspect: --kv: only --format html draws a step's split");
    if (code == FIG_EXIT_FINE && kv != NULL)
        code = fig_lengths_parse_queries(lengths, kv, "inspect: --kv");
    options->bucket = (int32_t)bucket;
    options->columns = fig_columns();
    options->all_buckets = fig_arguments_text(arguments, "--all") != NULL;
    return code;
}

/* Prints the compiled scores in the same format. Returns their number. */
static int32_t print_compiled(const fig_graphs *graphs) {
    fig_compiled_info info = {.size = sizeof info};
    int32_t i = 0;
    for (; fig_graphs_compiled(graphs, i, &info) == FIG_OK; i++)
        printf("%s  score/%s/%d.%d\n", info.sha256, info.family, (int)info.compute_capability / 10,
               (int)info.compute_capability % 10);
    return i;
}

/* Prints in the format of sha256sum, which replay --trust reads. */
static int print_images(const fig_graphs *graphs, const char *path) {
    fig_image_info info = {.size = sizeof info};
    int32_t i = 0;
    for (; fig_graphs_image(graphs, i, &info) == FIG_OK; i++)
        printf("%s  %s/%s/%d.%d\n", info.sha256, info.operation, info.family,
               (int)info.compute_capability / 10, (int)info.compute_capability % 10);
    const int32_t scores = print_compiled(graphs);
    if (i > 0 || scores > 0) return FIG_EXIT_FINE;
    return fig_report_refuse("%s: no images are recorded: the library that made it was built "
                             "without nvcc",
                             path);
}

static int refuse_beside_images(const fig_arguments *arguments) {
    static const char *const others[] = {"--bucket", "--ranks",  "--all",
                                         "--json",   "--format", "--kv"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (fig_arguments_text(arguments, others[i]) != NULL)
            return fig_report_refuse("inspect: --images and %s: give only one of them", others[i]);
    return FIG_EXIT_FINE;
}

/* Gives the step its numbers of query tokens, of which only a packed program has any. */
static int give_queries(const fig_graphs *graphs, const char *path, fig_lengths *lengths,
                        fig_step *step) {
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs_read_info(graphs, &info);
    if (lengths->count == 0) return FIG_EXIT_FINE;
    if (info.spec->query_limit == 0 && lengths->queries != NULL)
        return fig_report_refuse("inspect: --kv: :QUERIES was given, but the step of %s is not "
                                 "packed",
                                 path);
    if (info.spec->query_limit > 0 && fig_lengths_fill_queries(lengths) != FIG_EXIT_FINE)
        return FIG_EXIT_BAD;
    step->query_counts = lengths->queries;
    return FIG_EXIT_FINE;
}

static int print_file(const fig_arguments *arguments, int32_t ranks, fig_lengths *lengths,
                      fig_print_options *options) {
    fig_step step = {.size = sizeof step, .rows = lengths->count, .kv_lengths = lengths->values};
    fig_graphs *graphs;
    if (fig_graphs_load(&graphs, arguments->operand) != FIG_OK) {
        return fig_report_status(arguments->operand);
    }
    if (lengths->count > 0) options->step = &step;
    int code = fig_source_divide(arguments, ranks, &graphs);
    if (code == FIG_EXIT_FINE) code = give_queries(graphs, arguments->operand, lengths, &step);
    if (code == FIG_EXIT_FINE && fig_arguments_text(arguments, "--images") != NULL) {
        code = print_images(graphs, arguments->operand);
    } else if (code == FIG_EXIT_FINE &&
               fig_inspect_print(graphs, options, write_stdout, NULL) != FIG_OK) {
        code = fig_report_refuse("%s: %s", arguments->operand, fig_failure_message());
    }
    fig_graphs_destroy(graphs);
    return code;
}

static int run(const fig_arguments *arguments) {
    fig_print_options options = {.file = arguments->operand};
    fig_lengths lengths = {0};
    int32_t ranks;
    int code = FIG_EXIT_FINE;
    if (fig_arguments_text(arguments, "--images") != NULL) code = refuse_beside_images(arguments);
    if (code == FIG_EXIT_FINE) code = read_options(arguments, &options, &lengths);
    if (code == FIG_EXIT_FINE) code = fig_source_read_ranks(arguments, &ranks);
    if (code == FIG_EXIT_FINE) code = print_file(arguments, ranks, &lengths, &options);
    fig_lengths_finish(&lengths);
    return code;
}

const fig_command fig_cmd_inspect = {
    .name = "inspect",
    .summary = "print the contents of a .fig file",
    .operand = "FILE",
    .notes =
        "A page or a drawing shows the launches of one bucket: the bucket of --bucket, the bucket "
        "that the step of --kv takes, or the last bucket. Layers with equal launches are shown "
        "once. The page is a single HTML file for any browser; dot is the format of Graphviz.",
    .example = "figraph inspect tutorial.fig --bucket 1",
    .run = run,
    .options =
        {
            {"--bucket", "K", "the launches of the K-th bucket; default: a summary of the file"},
            FIG_SOURCE_RANKS,
            {"--all", NULL, "print a line for each bucket; default: a line for each batch"},
            {"--images", NULL,
             "print the SHA-256 to trust for each recorded kernel image and compiled score"},
            {"--json", NULL, "print an object that holds all buckets"},
            {"--format", "NAME", "html, svg or dot: a page, a drawing, or input for Graphviz"},
            {"--kv", "LENS",
             "with html, draw the split of a step of these kv lengths: 8x4096; see figraph plan "
             "--help"},
        },
};
