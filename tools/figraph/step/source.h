/* source.h: reads from the options which model's step a command uses, and for which machine.
 *
 * Owns the options that several commands share. Invariant: exactly one of --preset, --config and
 * --q-heads names the model. */
#ifndef FIG_TOOLS_SOURCE_H
#define FIG_TOOLS_SOURCE_H

#include <figraph_parallel.h>
#include <figraph_scores.h>

#include "tools/figraph/terminal/arguments.h"

/* Rows of a command's option table: the options that name the model, with the command's need for
 * them, and the options that change it. */
#define FIG_SOURCE_NAMES(need)                                                                     \
    {"--preset", "NAME", "a model that the library knows; figraph presets lists them", need},      \
        {"--config", "FILE", "a model's Hugging Face config.json", need}, {                        \
        "--q-heads", "N", "q heads of a model that you describe by options", need                  \
    }
#define FIG_SOURCE_CHANGES                                                                         \
    {"--kv-heads", "N", "kv heads, with --q-heads only; default: as many as q heads"},             \
        {"--head-dim", "N", "numbers per head, with --q-heads only; default 128"},                 \
        {"--ffn-width", "N",                                                                       \
         "columns of the activation's output, with --q-heads only; default: no activation"},       \
        {"--activation", "NAME",                                                                   \
         "silu, gelu, gelu_tanh or swiglu_limited, with --q-heads only; default silu"},            \
        {"--window", "N", "tokens that a query sees, with --q-heads only; default: all"},          \
        {"--rope-theta", "N", "the base of RoPE, with --q-heads only; default 10000"},             \
        {"--dtype", "NAME",                                                                        \
         "f32, f16 or bf16, with --q-heads or --config; default bf16, or the file's dtype"},       \
        {"--ignore", "KEY[,KEY]",                                                                  \
         "keys of the --config file that the library does not know and may ignore"},               \
        {"--batch-limit", "N", "the most rows of a step"},                                         \
        {"--kv-limit", "N", "the most tokens of one sequence"},                                    \
        {"--page-size", "N", "tokens per cache page; 0: a dense cache"},                           \
        {"--kv-dtype", "NAME", "e4m3 or e5m2 for an 8-bit cache; default: the activations' type"}, \
        {"--kv-scales", "NAME",                                                                    \
         "tensor or head: one scale per tensor or per head of an e4m3 or e5m2 cache"},             \
        {"--kv-layout", "NAME", "order of dims in a cache page: nhd or hnd"},                      \
        {"--row-tokens", "N", "query tokens per row, 1 to 16; to 4096 with --query-limit"},        \
        {"--query-limit", "N",                                                                     \
         "pack rows with different numbers of query tokens, at most N in a step"},                 \
    {                                                                                              \
        "--deterministic", NULL, "make a row's bits depend only on its own length"                 \
    }

#define FIG_SOURCE_OPTIONS FIG_SOURCE_NAMES(FIG_OPTION_FREE), FIG_SOURCE_CHANGES

#define FIG_SOURCE_NOTES                                                                           \
    "Defaults with --config and --q-heads: at most 256 rows per step, at most "                    \
    "max_position_embeddings tokens per sequence (never more than 32 768), and pages of 16 "       \
    "tokens."

#define FIG_SOURCE_TRAITS                                                                          \
    {                                                                                              \
        "--traits", "MACHINE",                                                                     \
            "the machine to cut steps for: h200, h100, a100 or host; or, for another machine, "    \
            "compute_capability=89, sm_count=142 and shared_bytes=101376 in one word, with only "  \
            "commas between them; default: this machine's GPU, or host if there is none"           \
    }

#define FIG_SOURCE_RANKS                                                                           \
    { "--ranks", "N", "divide the model over N ranks; show the share of one rank" }

#define FIG_SOURCE_SCORE                                                                           \
    {"--score", "TEXT", "an expression for attention's scores; docs/scores.md has the words"}, {   \
        "--mask", "TEXT",                                                                          \
            "the ranges of tokens that a query sees, such as 'q_pos - 1023:q_pos + 1, 0:4'"        \
    }

#define FIG_SOURCE_DEVICE                                                                          \
    { "--device", "NAME", "auto, host or cuda; default: the variable FIG_DEVICE, else auto" }

typedef struct fig_source {
    fig_spec spec;  /* checked */
    fig_spec model; /* the whole model; differs from spec if that is one rank's share */
    int32_t ranks;
    int32_t sum_width; /* the width of the sums over ranks in the step; 0: no sums */
    const char *name;  /* the preset or path that was given, or "by hand" */
    int deterministic;
    int has_q_rope;   /* 1: over a latent cache, q of each layer is in two tensors */
    fig_score *score; /* of the attention, with its mask; the command destroys it; NULL: none */
} fig_source;

/* Refuses an option that names or changes the model, because the command's FILE fixes its step.
 * Returns FIG_EXIT_*. */
int fig_source_refuse_beside_file(const fig_arguments *arguments);
/* Checks that the command's optional FILE or the options, but not both, name the step. Returns
 * FIG_EXIT_*. */
int fig_source_check_named(const fig_arguments *arguments);
/* Returns FIG_EXIT_*. */
int fig_source_read(const fig_arguments *arguments, fig_source *source);
/* Reads --score and --mask into source->score. Returns FIG_EXIT_*; the message names the option
 * that is wrong. */
int fig_source_read_score(const fig_arguments *arguments, fig_source *source);
/* Prints the line of a score; prints nothing if it is NULL. */
void fig_source_print_score(const fig_score *score);
/* Reads only a preset; for an unknown name the message suggests the nearest preset. */
int fig_source_read_preset(const char *name, fig_spec *spec);
/* Keeps the first `layers` layers; each keeps its own window. Returns FIG_EXIT_*. */
int fig_source_keep_layers(const fig_arguments *arguments, fig_source *source, int32_t layers);
/* Returns the number of layers with a window shorter than the longest sequence. */
int32_t fig_source_window_layers(const fig_spec *spec);
int fig_source_has_window(const fig_spec *spec, int32_t layer);
/* Returns the number of layers without RoPE. */
int32_t fig_source_plain_layers(const fig_spec *spec);
int fig_source_is_plain(const fig_spec *spec, int32_t layer);
/* If --ranks is given, replaces the spec by one rank's share. Returns FIG_EXIT_*. */
int fig_source_take_share(const fig_arguments *arguments, fig_source *source);
/* Prints one rank's share of the model; prints nothing for one rank. */
void fig_source_print_share(const fig_spec *model, const fig_spec *share, int32_t ranks);
/* Reads --ranks, 1 by default. Returns FIG_EXIT_*. */
int fig_source_read_ranks(const fig_arguments *arguments, int32_t *ranks);
/* Replaces *graphs with the share of one of `ranks` ranks. On failure destroys *graphs and sets it
 * to NULL. Returns FIG_EXIT_*. */
int fig_source_divide(const fig_arguments *arguments, int32_t ranks, fig_graphs **graphs);
int fig_source_read_device(const fig_arguments *arguments, fig_device *device);
const char *fig_source_device_name(fig_device device);

/* Records the standard step of the spec and lowers it for `traits`. With a sum_width, each layer
 * also has two all-reduces with residual and RMSNorm, like those after its output and down
 * projections. Returns FIG_EXIT_*; *graphs is NULL on failure. */
int fig_source_lower(const fig_source *source, const fig_traits *traits, fig_graphs **graphs);
/* Opens the device and reads its traits, so that a missing device is refused before any work is
 * done. Returns FIG_EXIT_*. */
int fig_source_device_traits(const fig_arguments *arguments, fig_device device, fig_traits *traits);

/* The machine that steps are cut for. */
typedef struct fig_source_machine {
    fig_traits traits;
    const char *why; /* a phrase for people that tells the origin of the traits */
} fig_source_machine;
/* Reads --traits or, without it, the traits of the device chosen by --device, by FIG_DEVICE or by
 * default. Returns FIG_EXIT_*. */
int fig_source_read_machine(const fig_arguments *arguments, fig_source_machine *machine);

#endif
