/* cmd_presets.c: figraph presets, the models that the library knows by name. */
#include <stdio.h>

#include <figraph.h>

#include "tools/figraph/commands.h"
#include "tools/figraph/emit.h"
#include "tools/figraph/report.h"

static void emit_preset(fig_emit *emit, const char *name, const fig_spec *spec) {
    fig_emit_object(emit, NULL);
    fig_emit_text(emit, "name", name);
    fig_emit_integer(emit, "layers", spec->layers);
    fig_emit_integer(emit, "q_heads", spec->q_heads);
    fig_emit_integer(emit, "kv_heads", spec->kv_heads);
    fig_emit_integer(emit, "head_dim", spec->head_dim);
    fig_emit_text(emit, "dtype", fig_report_dtype(spec->dtype));
    fig_emit_integer(emit, "ffn_width", spec->ffn_width);
    fig_emit_integer(emit, "page_size", spec->page_size);
    fig_emit_integer(emit, "batch_limit", spec->batch_limit);
    fig_emit_integer(emit, "kv_limit", spec->kv_limit);
    fig_emit_close(emit);
}

static void print_preset(const char *name, const fig_spec *spec) {
    char heads[24];
    snprintf(heads, sizeof heads, "%d/%d", spec->q_heads, spec->kv_heads);
    printf("%-20s %6d  %-7s %8d  %-5s %9d %9d %11d %9d\n", name, spec->layers, heads,
           spec->head_dim, fig_report_dtype(spec->dtype), spec->ffn_width, spec->page_size,
           spec->batch_limit, spec->kv_limit);
}

static int run(const fig_arguments *arguments) {
    int json = fig_arguments_text(arguments, "--json") != NULL;
    fig_emit emit = {0};
    if (json) {
        fig_emit_array(&emit, NULL);
    } else {
        printf("%-20s %6s  %-7s %8s  %-5s %9s %9s %11s %9s\n", "preset", "layers", "heads",
               "head_dim", "dtype", "ffn_width", "page_size", "batch_limit", "kv_limit");
    }
    for (int32_t i = 0; fig_spec_preset_name(i) != NULL; i++) {
        const char *name = fig_spec_preset_name(i);
        fig_spec spec;
        if (fig_spec_preset(&spec, name) != FIG_OK) return fig_report_status(name);
        if (json) {
            emit_preset(&emit, name, &spec);
        } else {
            print_preset(name, &spec);
        }
    }
    if (json) fig_emit_close(&emit);
    return FIG_EXIT_FINE;
}

const fig_command fig_cmd_presets = {
    .name = "presets",
    .summary = "list the models that the library knows",
    .example = "figraph presets --json",
    .run = run,
    .options = {{"--json", NULL, "print an array of objects"}},
};
