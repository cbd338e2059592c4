/* cmd_capture.c: figraph capture, from a model's shape to a .fig file.
 *
 * Records the standard step, lowers it for every bucket of the ladder and saves. The traits are
 * those of the device the file is for, unless --traits names others. */
#include <stdio.h>
#include <sys/stat.h>

#include <figraph.h>

#include "tools/figraph/commands.h"
#include "tools/figraph/emit.h"
#include "tools/figraph/report.h"
#include "tools/figraph/source.h"

static void emit_capture(const char *path, int64_t bytes, const fig_graphs_info *info) {
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "file", path);
    fig_emit_integer(&emit, "bytes", bytes);
    fig_emit_text(&emit, "traits", info->traits->name);
    fig_emit_integer(&emit, "layers", info->spec->layers);
    fig_emit_integer(&emit, "buckets", info->bucket_count);
    fig_emit_integer(&emit, "tensors", info->tensor_count);
    fig_emit_integer(&emit, "nodes", info->node_count);
    fig_emit_text(&emit, "content_id", info->content_id);
    fig_emit_close(&emit);
}

static void print_capture(const char *path, int64_t bytes, const fig_graphs_info *info) {
    char number[FIG_REPORT_NUMBER];
    fig_report_name(path);
    printf("\n");
    printf("  bytes     %s\n", fig_report_number(number, bytes));
    printf("  step      %d layer%s, %d nodes over %d tensors\n", info->spec->layers,
           info->spec->layers == 1 ? "" : "s", info->node_count, info->tensor_count);
    printf("  buckets   %d, for %s: up to %d rows, a sequence up to %d tokens\n",
           info->bucket_count, info->traits->name, info->spec->batch_limit, info->spec->kv_limit);
    printf("  content   %s\n", info->content_id);
}

static int save(const fig_graphs *graphs, const char *path, int json) {
    fig_graphs_info info = {.size = sizeof info};
    struct stat file;
    if (fig_graphs_save(graphs, path) != FIG_OK) return fig_report_status(path);
    if (stat(path, &file) != 0) return fig_report_refuse("%s: it was saved and is gone", path);
    fig_graphs_read_info(graphs, &info);
    if (json) {
        emit_capture(path, (int64_t)file.st_size, &info);
    } else {
        print_capture(path, (int64_t)file.st_size, &info);
    }
    return FIG_EXIT_FINE;
}

static int run(const fig_arguments *arguments) {
    const char *path = fig_arguments_text(arguments, "-o");
    fig_integer range = {.name = "--layers", .least = 1, .most = INT32_MAX};
    fig_source source;
    fig_traits traits;
    fig_device device;
    fig_graphs *graphs;
    int traits_given;
    int64_t layers;
    if (path == NULL) return fig_report_refuse("capture: -o: its value, FILE, is missing");
    int code = fig_source_read(arguments, &source);
    if (code == FIG_EXIT_FINE) code = fig_source_read_traits(arguments, &traits, &traits_given);
    if (code == FIG_EXIT_FINE) code = fig_source_read_device(arguments, &device);
    range.fallback = source.spec.layers;
    if (code == FIG_EXIT_FINE) code = fig_arguments_integer(arguments, &range, &layers);
    if (code == FIG_EXIT_FINE && !traits_given)
        code = fig_source_device_traits(arguments, device, &traits);
    if (code != FIG_EXIT_FINE) return code;
    code = fig_source_keep_layers(arguments, &source, (int32_t)layers);
    if (code == FIG_EXIT_FINE) code = fig_source_lower(&source, &traits, &graphs);
    if (code != FIG_EXIT_FINE) return code;
    code = save(graphs, path, fig_arguments_text(arguments, "--json") != NULL);
    fig_graphs_destroy(graphs);
    return code;
}

const fig_command fig_cmd_capture = {
    .name = "capture",
    .summary = "record and lower a model's decode step, and save it as a .fig file",
    .notes = FIG_SOURCE_NOTES
    "\nThe file is written whole or not at all: what -o named before stays until "
    "then.",
    .example = "figraph capture --preset llama-3.1-8b-layer -o llama.fig",
    .run = run,
    .options =
        {
            FIG_SOURCE_OPTIONS,
            {"--layers", "N", "layers of the step; without it the model's"},
            FIG_SOURCE_DEVICE,
            {"--traits", "NAME", "h200, h100, a100 or host; without it the device's"},
            {"-o", "FILE", "where the file goes"},
            {"--json", NULL, "print an object"},
        },
};
