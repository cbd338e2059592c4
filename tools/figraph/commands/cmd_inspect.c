/* cmd_inspect.c: figraph inspect, what a .fig file holds, in words, as JSON, or drawn. */
#include <stdio.h>
#include <string.h>

#include <figraph_archive.h>
#include <figraph_unstable.h>

#include "tools/figraph/commands/commands.h"
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
    if (json) return fig_report_refuse("inspect: --format and --json: one of both is taken");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i].name) != 0) continue;
        *format = names[i].format;
        return FIG_EXIT_FINE;
    }
    return fig_report_refuse("inspect: --format: %s: it is html, svg or dot", name);
}

/* What is shown, as the options say. step: lengths are filled in where --kv is given. */
static int read_options(const fig_arguments *arguments, fig_print_options *options,
                        fig_lengths *lengths) {
    fig_integer range = {.name = "--bucket", .least = 1, .most = INT32_MAX, .fallback = 0};
    const char *kv = fig_arguments_text(arguments, "--kv");
    int64_t bucket;
    int code = fig_arguments_integer(arguments, &range, &bucket);
    if (code == FIG_EXIT_FINE) code = read_format(arguments, &options->format);
    if (code == FIG_EXIT_FINE && kv != NULL && options->format != FIG_PRINT_HTML)
        code = fig_report_refuse("inspect: --kv: a step's split is shown with --format html alone");
    if (code == FIG_EXIT_FINE && kv != NULL) code = fig_lengths_parse(lengths, kv, "inspect: --kv");
    options->bucket = (int32_t)bucket;
    options->columns = fig_columns();
    options->all_buckets = fig_arguments_text(arguments, "--all") != NULL;
    return code;
}

/* As sha256sum prints: the list that --trust of replay reads. */
static int print_images(const fig_graphs *graphs, const char *path) {
    fig_image_info info = {.size = sizeof info};
    int32_t i = 0;
    for (; fig_graphs_image(graphs, i, &info) == FIG_OK; i++)
        printf("%s  %s/%s/%d.%d\n", info.sha256, info.operation, info.family,
               (int)info.compute_capability / 10, (int)info.compute_capability % 10);
    if (i > 0) return FIG_EXIT_FINE;
    return fig_report_refuse("%s: no images are recorded: its maker was built without nvcc", path);
}

static int refuse_beside_images(const fig_arguments *arguments) {
    static const char *const others[] = {"--bucket", "--ranks",  "--all",
                                         "--json",   "--format", "--kv"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (fig_arguments_text(arguments, others[i]) != NULL)
            return fig_report_refuse("inspect: --images and %s: one of both is taken", others[i]);
    return FIG_EXIT_FINE;
}

static int print_file(const fig_arguments *arguments, int32_t ranks,
                      const fig_print_options *options) {
    fig_graphs *graphs;
    if (fig_graphs_load(&graphs, arguments->operand) != FIG_OK) {
        return fig_report_status(arguments->operand);
    }
    int code = fig_source_divide(arguments, ranks, &graphs);
    if (code == FIG_EXIT_FINE && fig_arguments_text(arguments, "--images") != NULL) {
        code = print_images(graphs, arguments->operand);
    } else if (code == FIG_EXIT_FINE &&
               fig_graphs_print(graphs, options, write_stdout, NULL) != FIG_OK) {
        code = fig_report_status(arguments->operand);
    }
    fig_graphs_destroy(graphs);
    return code;
}

static int run(const fig_arguments *arguments) {
    fig_print_options options = {.size = sizeof options};
    fig_step step = {.size = sizeof step};
    fig_lengths lengths = {0};
    int32_t ranks;
    int code = FIG_EXIT_FINE;
    if (fig_arguments_text(arguments, "--images") != NULL) code = refuse_beside_images(arguments);
    if (code == FIG_EXIT_FINE) code = read_options(arguments, &options, &lengths);
    if (code == FIG_EXIT_FINE) code = fig_source_read_ranks(arguments, &ranks);
    if (lengths.count > 0) {
        step.rows = lengths.count;
        step.kv_lengths = lengths.values;
        options.step = &step;
    }
    if (code == FIG_EXIT_FINE) code = print_file(arguments, ranks, &options);
    fig_lengths_finish(&lengths);
    return code;
}

const fig_command fig_cmd_inspect = {
    .name = "inspect",
    .summary = "print what a .fig file holds",
    .operand = "FILE",
    .notes =
        "A page or a drawing shows the launches of one bucket: that of --bucket, else that which "
        "the step of --kv takes, else the last. Where they repeat, layers are shown once. The "
        "page is one file for any browser, and dot is Graphviz's.",
    .example = "figraph inspect tutorial.fig --bucket 1",
    .run = run,
    .options =
        {
            {"--bucket", "K", "the launches of the K-th bucket; without it the summary"},
            FIG_SOURCE_RANKS,
            {"--all", NULL, "a line for each bucket, not one for each batch"},
            {"--images", NULL, "SHA-256 of each image of kernels that it records, a line for each"},
            {"--json", NULL, "print an object, which holds all buckets"},
            {"--format", "NAME", "html, svg or dot: a page, a drawing, or one for Graphviz"},
            {"--kv", "LENS", "with html: kv lengths of a step whose split is drawn, 8x4096 say"},
        },
};
