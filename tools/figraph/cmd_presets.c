/* cmd_presets.c: figraph presets, the models that the library knows by name. */
#include <stdio.h>

#include <figraph.h>

#include "tools/figraph/commands.h"
#include "tools/figraph/emit.h"
#include "tools/figraph/report.h"
#include "tools/figraph/source.h"

static void emit_preset(fig_emit *emit, const char *name, const fig_spec *spec) {
    fig_emit_object(emit, NULL);
    fig_emit_text(emit, "name", name);
    fig_emit_integer(emit, "layers", spec->layers);
    fig_emit_integer(emit, "q_heads", spec->q_heads);
    fig_emit_integer(emit, "kv_heads", spec->kv_heads);
    fig_emit_integer(emit, "head_dim", spec->head_dim);
    fig_emit_text(emit, "dtype", fig_report_dtype(spec->dtype));
    fig_emit_integer(emit, "ffn_width", spec->ffn_width);
    fig_emit_text(emit, "activation", fig_report_activation(spec->activation));
    fig_emit_integer(emit, "window", spec->window);
    fig_emit_integer(emit, "window_layers", fig_source_window_layers(spec));
    fig_emit_number(emit, "soft_cap", (double)spec->soft_cap);
    fig_emit_number(emit, "qk_norm_epsilon", (double)spec->qk_norm_epsilon);
    fig_emit_number(emit, "rope_theta", (double)spec->rope.theta);
    fig_emit_integer(emit, "page_size", spec->page_size);
    fig_emit_integer(emit, "batch_limit", spec->batch_limit);
    fig_emit_integer(emit, "kv_limit", spec->kv_limit);
    fig_emit_close(emit);
}

/* What sets it apart from a llama. */
static void print_traits(const fig_spec *spec) {
    if (spec->activation != FIG_SILU) printf("  %s", fig_report_activation(spec->activation));
    if (spec->qk_norm_epsilon > 0) printf("  q and k normed");
    if (spec->soft_cap > 0) printf("  cap %g", (double)spec->soft_cap);
    if (spec->window > 0)
        printf("  window %d in %d layers", spec->window, fig_source_window_layers(spec));
    putchar('\n');
}

static void print_preset(const char *name, const fig_spec *spec) {
    char heads[24];
    snprintf(heads, sizeof heads, "%d/%d", spec->q_heads, spec->kv_heads);
    printf("%-18s %6d  %-6s %8d  %-5s %9d %9d %11d %8d", name, spec->layers, heads, spec->head_dim,
           fig_report_dtype(spec->dtype), spec->ffn_width, spec->page_size, spec->batch_limit,
           spec->kv_limit);
    print_traits(spec);
}

static int run(const fig_arguments *arguments) {
    int json = fig_arguments_text(arguments, "--json") != NULL;
    fig_emit emit = {0};
    if (json) {
        fig_emit_array(&emit, NULL);
    } else {
        printf("%-18s %6s  %-6s %8s  %-5s %9s %9s %11s %8s\n", "preset", "layers", "heads",
               "head_dim", "dtype", "ffn_width", "page_size", "batch_limit", "kv_limit");
    }
    for (int32_t i = 0; fig_spec_preset_name(i) != NULL; i++) {
        const char *name = fig_spec_preset_name(i);
        fig_spec spec = {.size = sizeof spec};
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
