/* source.c: from options to a spec, traits and a device.
 *
 * Leaves every limit on a value to the library, whose sentences name field and limit. */
#include "tools/figraph/source.h"

#include <stdlib.h>
#include <string.h>

#include "tools/figraph/report.h"

/* What a config.json leaves open. */
static const fig_spec config_defaults = {
    .size = sizeof(fig_spec), .page_size = 16, .batch_limit = 256, .kv_limit = 32768};

static const char *const device_names[] = {
    [FIG_DEVICE_AUTO] = "auto", [FIG_DEVICE_HOST] = "host", [FIG_DEVICE_CUDA] = "cuda"};
enum { DEVICE_COUNT = sizeof device_names / sizeof *device_names };

static int read_override(const fig_arguments *arguments, const char *name, int32_t *field) {
    int64_t value;
    fig_integer integer = {.name = name, .least = 0, .most = INT32_MAX, .fallback = *field};
    int code = fig_arguments_integer(arguments, &integer, &value);
    if (code == FIG_EXIT_FINE) *field = (int32_t)value;
    return code;
}

int fig_source_read(const fig_arguments *arguments, fig_source *source) {
    const char *command = arguments->command->name;
    const char *preset = fig_arguments_text(arguments, "--preset");
    const char *config = fig_arguments_text(arguments, "--config");
    fig_spec *spec = &source->spec;
    *source = (fig_source){.spec = config_defaults, .name = preset != NULL ? preset : config};
    if ((preset == NULL) == (config == NULL)) {
        return fig_report_refuse("%s: --preset and --config: %s, one of them names the model",
                                 command, preset == NULL ? "neither was given" : "both were given");
    }
    if (preset != NULL) {
        if (fig_spec_preset(spec, preset) != FIG_OK) return fig_report_status("--preset");
    } else if (fig_spec_read_config(spec, config) != FIG_OK) {
        return fig_report_status(config);
    }
    int code = read_override(arguments, "--batch-limit", &spec->batch_limit);
    if (code == FIG_EXIT_FINE) code = read_override(arguments, "--kv-limit", &spec->kv_limit);
    if (code == FIG_EXIT_FINE) code = read_override(arguments, "--page-size", &spec->page_size);
    if (code != FIG_EXIT_FINE) return code;
    return fig_spec_check(spec) == FIG_OK ? FIG_EXIT_FINE : fig_report_status(source->name);
}

int fig_source_read_traits(const fig_arguments *arguments, fig_traits *traits, int *given) {
    const char *name = fig_arguments_text(arguments, "--traits");
    *given = name != NULL;
    *traits = (fig_traits){0};
    if (name == NULL || fig_traits_named(traits, name) == FIG_OK) return FIG_EXIT_FINE;
    return fig_report_status("--traits");
}

int fig_source_read_device(const fig_arguments *arguments, fig_device *device) {
    const char *name = fig_arguments_text(arguments, "--device");
    const char *option = "--device";
    *device = FIG_DEVICE_AUTO;
    if (name == NULL) {
        name = getenv("FIG_DEVICE");
        option = "FIG_DEVICE";
    }
    if (name == NULL || *name == '\0') return FIG_EXIT_FINE;
    for (int i = 0; i < DEVICE_COUNT; i++) {
        if (strcmp(name, device_names[i]) != 0) continue;
        *device = (fig_device)i;
        return FIG_EXIT_FINE;
    }
    return fig_report_refuse("%s: %s: \"%s\" is not auto, host or cuda", arguments->command->name,
                             option, name);
}

const char *fig_source_device_name(fig_device device) {
    return device_names[device];
}

int fig_source_lower(const fig_spec *spec, const fig_traits *traits, fig_graphs **graphs) {
    fig_program *program;
    *graphs = NULL;
    fig_status status = fig_program_create(&program, spec);
    if (status == FIG_OK) {
        fig_program_decode_step(program);
        status = fig_program_finish(program);
    }
    if (status == FIG_OK) {
        status =
            fig_graphs_lower(graphs, program, FIG_OPTIONS(fig_lower_options, .traits = traits));
    }
    int code = status == FIG_OK ? FIG_EXIT_FINE : fig_report_status(NULL);
    fig_program_destroy(program);
    return code;
}
