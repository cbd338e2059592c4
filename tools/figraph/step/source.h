/* source.h: which step a command is about, and for which machine.
 *
 * Owns the options that several commands share. Invariant: exactly one of preset, config and
 * q-heads names the model. */
#ifndef FIG_TOOLS_SOURCE_H
#define FIG_TOOLS_SOURCE_H

#include <figraph_parallel.h>

#include "tools/figraph/terminal/arguments.h"

/* Rows of a command's option table: what names the model, which the command may need, and what
 * changes it. */
#define FIG_SOURCE_NAMES(need)                                                                     \
    {"--preset", "NAME", "a model that the library knows; figraph presets lists them", need},      \
        {"--config", "FILE", "a model's Hugging Face config.json", need}, {                        \
        "--q-heads", "N", "q heads of a model that neither names", need                            \
    }
#define FIG_SOURCE_CHANGES                                                                         \
    {"--kv-heads", "N", "beside --q-heads, as those up to --dtype; without it as many"},           \
        {"--head-dim", "N", "numbers of a head; without it 128"},                                  \
        {"--ffn-width", "N", "columns of act; without it there is no activation"},                 \
        {"--activation", "NAME", "silu, gelu, gelu_tanh or swiglu_limited; without it silu"},      \
        {"--window", "N", "tokens that a query sees; without it all"},                             \
        {"--rope-theta", "N", "RoPE's base; without it 10000"},                                    \
        {"--dtype", "NAME", "f32, f16 or bf16; without it bf16"},                                  \
        {"--batch-limit", "N", "most rows of a step"},                                             \
        {"--kv-limit", "N", "most tokens of one sequence"},                                        \
        {"--page-size", "N", "tokens of a cache page; 0: dense"},                                  \
        {"--kv-dtype", "NAME", "the cache's type: e4m3 or e5m2; without it the activations'"},     \
        {"--kv-scales", "NAME", "a scale of an e4m3 or e5m2 cache for each: tensor or head"},      \
        {"--kv-layout", "NAME", "order of a cache page: nhd or hnd"},                              \
        {"--row-tokens", "N", "query tokens of a row, 1 to 8"}, {                                  \
        "--deterministic", NULL, "a row's bits depend on its own length alone"                     \
    }

#define FIG_SOURCE_OPTIONS FIG_SOURCE_NAMES(FIG_OPTION_FREE), FIG_SOURCE_CHANGES

#define FIG_SOURCE_NOTES                                                                           \
    "Of a config.json or by --q-heads, without options: steps of at most 256 rows, sequences of "  \
    "at most max_position_embeddings tokens or 32 768 where those are more, pages of 16 tokens."

#define FIG_SOURCE_TRAITS                                                                          \
    {                                                                                              \
        "--traits", "MACHINE",                                                                     \
            "the machine to cut steps for: h200, h100, a100 or host, or any by its numbers, as "   \
            "compute_capability=89,sm_count=142,shared_bytes=101376; without it the device's, "    \
            "which is host's where there is no GPU"                                                \
    }

#define FIG_SOURCE_RANKS                                                                           \
    { "--ranks", "N", "the share of one of so many ranks, and what all hold together" }

#define FIG_SOURCE_DEVICE                                                                          \
    { "--device", "NAME", "auto, host or cuda; without it FIG_DEVICE, else auto" }

typedef struct fig_source {
    fig_spec spec;  /* checked */
    fig_spec model; /* the same, unless that is the share of one of several ranks */
    int32_t ranks;
    int32_t sum_width; /* lowered with sums over ranks, so wide; 0: without */
    const char *name;  /* the preset or the path, as given; "by hand" */
    int deterministic;
} fig_source;

/* Returns FIG_EXIT_*. */
int fig_source_read(const fig_arguments *arguments, fig_source *source);
/* Leaves the first so many layers, each with the window that it has. Returns FIG_EXIT_*. */
int fig_source_keep_layers(const fig_arguments *arguments, fig_source *source, int32_t layers);
/* Layers that have the window, where it hides anything. */
int32_t fig_source_window_layers(const fig_spec *spec);
int fig_source_has_window(const fig_spec *spec, int32_t layer);
/* Layers without RoPE. */
int32_t fig_source_plain_layers(const fig_spec *spec);
int fig_source_is_plain(const fig_spec *spec, int32_t layer);
/* Makes the spec one rank's share, as --ranks says. Returns FIG_EXIT_*. */
int fig_source_take_share(const fig_arguments *arguments, fig_source *source);
/* What one of several ranks has of the whole; nothing where ranks is 1. */
void fig_source_print_share(const fig_spec *model, const fig_spec *share, int32_t ranks);
/* --ranks; 1 where it is not given. Returns FIG_EXIT_*. */
int fig_source_read_ranks(const fig_arguments *arguments, int32_t *ranks);
/* Puts the share of one of `ranks` in the place of *graphs; a refusal leaves neither. Returns
 * FIG_EXIT_*. */
int fig_source_divide(const fig_arguments *arguments, int32_t ranks, fig_graphs **graphs);
int fig_source_read_device(const fig_arguments *arguments, fig_device *device);
const char *fig_source_device_name(fig_device device);

/* Records the standard step of the spec and lowers it for `traits`. With sums there are beside it,
 * twice for each layer, an all_reduce with residual and RMSNorm, as behind output and down. Returns
 * FIG_EXIT_*; *graphs is NULL on failure. */
int fig_source_lower(const fig_source *source, const fig_traits *traits, fig_graphs **graphs);
/* The traits of a device, which is opened for it: one that is not there is refused before work is
 * done for it. Returns FIG_EXIT_*. */
int fig_source_device_traits(const fig_arguments *arguments, fig_device device, fig_traits *traits);

/* What steps are cut for. */
typedef struct fig_source_machine {
    fig_traits traits;
    const char *why; /* where they come from, for people: "the GPU's" */
} fig_source_machine;
/* --traits, else the traits of the device that --device, FIG_DEVICE or the machine itself gives.
 * Returns FIG_EXIT_*. */
int fig_source_read_machine(const fig_arguments *arguments, fig_source_machine *machine);

#endif
