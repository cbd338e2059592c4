/* source.h: which step a command is about, and for which machine.
 *
 * Owns the options that several commands share. Invariant: exactly one of preset and config names
 * the model. */
#ifndef FIG_TOOLS_SOURCE_H
#define FIG_TOOLS_SOURCE_H

#include <figraph.h>

#include "tools/figraph/arguments.h"

/* Rows of a command's option table. */
#define FIG_SOURCE_OPTIONS                                                                         \
    {"--preset", "NAME", "a model that the library knows; figraph presets lists them"},            \
        {"--config", "FILE", "a model's Hugging Face config.json"},                                \
        {"--batch-limit", "N", "most rows of a step"},                                             \
        {"--kv-limit", "N", "most tokens of one sequence"},                                        \
        {"--page-size", "N", "tokens of a cache page; 0: dense"},                                  \
        {"--kv-dtype", "NAME", "of the cache: e4m3 or e5m2; without it the activations'"},         \
        {"--kv-scales", "NAME", "of e4m3 or e5m2, one for each tensor or head"},                   \
        {"--kv-layout", "NAME", "of a cache page: nhd or hnd"},                                    \
        {"--row-tokens", "N", "query tokens of a row, 1 to 8"}, {                                  \
        "--deterministic", NULL, "a row's bits depend on its own length alone"                     \
    }

#define FIG_SOURCE_NOTES                                                                           \
    "A config.json says nothing about limits; without options they are 256 rows, 32768 tokens "    \
    "and\n"                                                                                        \
    "pages of 16."

#define FIG_SOURCE_DEVICE                                                                          \
    { "--device", "NAME", "auto, host or cuda; without it FIG_DEVICE, else auto" }

typedef struct fig_source {
    fig_spec spec;    /* checked */
    const char *name; /* the preset or the path, as given */
    int deterministic;
} fig_source;

/* Returns FIG_EXIT_*. */
int fig_source_read(const fig_arguments *arguments, fig_source *source);
/* Leaves the first so many layers, each with the window that it has. Returns FIG_EXIT_*. */
int fig_source_keep_layers(const fig_arguments *arguments, fig_source *source, int32_t layers);
/* Layers that have the window, where it hides anything. */
int32_t fig_source_window_layers(const fig_spec *spec);
/* traits are set where --traits was given; *given says so. */
int fig_source_read_traits(const fig_arguments *arguments, fig_traits *traits, int *given);
int fig_source_read_device(const fig_arguments *arguments, fig_device *device);
const char *fig_source_device_name(fig_device device);

/* Records the standard step of the spec and lowers it for `traits`. Returns FIG_EXIT_*; *graphs is
 * NULL on failure. */
int fig_source_lower(const fig_source *source, const fig_traits *traits, fig_graphs **graphs);
/* The traits of a device, which is opened for it: one that is not there is refused before work is
 * done for it. Returns FIG_EXIT_*. */
int fig_source_device_traits(const fig_arguments *arguments, fig_device device, fig_traits *traits);

#endif
