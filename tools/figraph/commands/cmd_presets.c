/* cmd_presets.c: figraph presets, which lists the models that the library knows by name. */
#include <stdarg.h>
#include <stdio.h>

#include <figraph.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/step/source.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"

static void emit_preset(fig_emit *emit, const char *name, const fig_spec *spec) {
    fig_emit_object(emit, NULL);
    fig_emit_text(emit, "name", name);
    fig_emit_integer(emit, "layers", spec->layers);
    fig_emit_integer(emit, "q_heads", spec->q_heads);
    fig_emit_integer(emit, "kv_heads", spec->kv_heads);
    fig_emit_integer(emit, "head_dim", spec->head_dim);
    fig_emit_text(emit, "dtype", fig_report_dtype(spec->dtype));
    fig_emit_integer(emit, "ffn_width", spec->ffn_width);
    fig_emit_integer(emit, "ffn_rows", spec->ffn_rows > 0 ? spec->ffn_rows : 1);
    fig_emit_text(emit, "activation", fig_report_activation(spec->activation));
    fig_emit_integer(emit, "window", spec->window);
    fig_emit_array(emit, "window_layers");
    for (int32_t layer = 0; layer < spec->layers; layer++)
        if (fig_source_has_window(spec, layer)) fig_emit_integer(emit, NULL, layer);
    fig_emit_close(emit);
    fig_emit_float(emit, "soft_cap", spec->soft_cap);
    fig_emit_float(emit, "qk_norm_epsilon", spec->qk_norm_epsilon);
    fig_emit_integer(emit, "sinks", spec->sinks);
    fig_emit_array(emit, "plain_layers");
    for (int32_t layer = 0; layer < spec->layers; layer++)
        if (fig_source_is_plain(spec, layer)) fig_emit_integer(emit, NULL, layer);
    fig_emit_close(emit);
    fig_emit_integer(emit, "page_size", spec->page_size);
    fig_emit_integer(emit, "batch_limit", spec->batch_limit);
    fig_emit_integer(emit, "kv_limit", spec->kv_limit);
    fig_emit_close(emit);
}

enum { NAME_COLUMNS = 18, TRAITS_BYTES = 128 };

/* The traits collected so far; TRAITS_BYTES also covers the text after them. */
typedef struct traits {
    char text[TRAITS_BYTES];
    size_t used;
} traits;

__attribute__((format(printf, 2, 3))) static void add(traits *of, const char *format, ...) {
    va_list values;
    va_start(values, format);
    const int count = vsnprintf(of->text + of->used, sizeof of->text - of->used, format, values);
    va_end(values);
    if (count > 0 && of->used + (size_t)count < sizeof of->text) of->used += (size_t)count;
}

/* Describes the differences between a model and a llama. */
static void describe_traits(const fig_spec *spec, traits *of) {
    char number[FIG_REPORT_NUMBER];
    const int32_t plain = fig_source_plain_layers(spec);
    *of = (traits){.used = 0};
    if (spec->activation != FIG_SILU) add(of, ", %s", fig_report_activation(spec->activation));
    if (spec->ffn_rows > 1) add(of, ", %d experts a token", spec->ffn_rows);
    if (spec->qk_norm_epsilon > 0) add(of, ", q and k normed");
    if (spec->soft_cap > 0) add(of, ", cap %g", (double)spec->soft_cap);
    if (spec->sinks) add(of, ", sinks");
    if (plain > 0) add(of, ", no RoPE in %d layers", plain);
    if (spec->window > 0)
        add(of, ", window %s in %d layers", fig_report_number(number, spec->window),
            fig_source_window_layers(spec));
}

/* Prints the traits after the name, or below it if the line has no room. */
static void print_preset(const char *name, const fig_spec *spec) {
    char heads[24], ffn_width[FIG_REPORT_NUMBER], kv_limit[FIG_REPORT_NUMBER];
    traits apart;
    snprintf(heads, sizeof heads, "%d/%d", spec->q_heads, spec->kv_heads);
    const int used = printf("%-*s %6d  %-5s %8d  %-5s %9s %4d %5d %8s", NAME_COLUMNS, name,
                            spec->layers, heads, spec->head_dim, fig_report_dtype(spec->dtype),
                            fig_report_number(ffn_width, spec->ffn_width), spec->page_size,
                            spec->batch_limit, fig_report_number(kv_limit, spec->kv_limit));
    describe_traits(spec, &apart);
    if (apart.used == 0) {
        putchar('\n');
    } else if (used + fig_columns_of(apart.text) <= fig_columns()) {
        printf("  %s\n", apart.text + 2);
    } else {
        printf("\n%*s", NAME_COLUMNS + 1, "");
        fig_columns_words(NAME_COLUMNS + 1, NAME_COLUMNS + 1, apart.text + 2);
    }
}

static int run(const fig_arguments *arguments) {
    int json = fig_arguments_text(arguments, "--json") != NULL;
    fig_emit emit = {0};
    if (json) {
        fig_emit_array(&emit, NULL);
    } else {
        printf("%-*s %6s  %-5s %8s  %-5s %9s %4s %5s %8s\n", NAME_COLUMNS, "preset", "layers",
               "heads", "head_dim", "dtype", "ffn_width", "page", "rows", "kv_limit");
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
    .summary = "list the models that the library knows by name",
    .example = "figraph presets --json",
    .run = run,
    .options = {{"--json", NULL, "print an array of objects"}},
};
