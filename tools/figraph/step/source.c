/* source.c: makes a spec, traits and a device from options.
 *
 * The library checks the limits of all values; its messages name field and limit. */
#include "tools/figraph/step/source.h"

#include <figraph_scores.h>
#include <figraph_unstable.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/step/chip.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/nearest.h"
#include "tools/figraph/terminal/report.h"

/* Fields that a config.json does not give. If the file gives more positions than CONFIG_KV_LIMIT,
 * only CONFIG_KV_LIMIT of them are used. */
static const fig_spec config_defaults = {
    .size = sizeof(fig_spec), .page_size = 16, .batch_limit = 256};
enum { CONFIG_KV_LIMIT = 32768, IGNORED_LIMIT = 32, IGNORED_BYTES = 1024 };

static const char *const device_names[] = {
    [FIG_DEVICE_AUTO] = "auto", [FIG_DEVICE_HOST] = "host", [FIG_DEVICE_CUDA] = "cuda"};
enum { DEVICE_COUNT = sizeof device_names / sizeof *device_names };

typedef struct choice {
    const char *name; /* NULL in the row after the last */
    int value;
} choice;
static const choice kv_dtypes[] = {{"f32", FIG_F32},   {"f16", FIG_F16},   {"bf16", FIG_BF16},
                                   {"e4m3", FIG_E4M3}, {"e5m2", FIG_E5M2}, {NULL, 0}};
static const choice dtypes[] = {{"f32", FIG_F32}, {"f16", FIG_F16}, {"bf16", FIG_BF16}, {NULL, 0}};
static const choice activations[] = {{"silu", FIG_SILU},
                                     {"gelu", FIG_GELU},
                                     {"gelu_tanh", FIG_GELU_TANH},
                                     {"swiglu_limited", FIG_SWIGLU_LIMITED},
                                     {NULL, 0}};
static const choice kv_scales[] = {{"tensor", 0}, {"head", 1}, {NULL, 0}};
static const choice kv_layouts[] = {{"nhd", FIG_NHD}, {"hnd", FIG_HND}, {NULL, 0}};

static int read_override(const fig_arguments *arguments, const char *name, int32_t *field) {
    int64_t value;
    fig_integer integer = {.name = name, .least = 0, .most = INT32_MAX, .fallback = *field};
    int code = fig_arguments_integer(arguments, &integer, &value);
    if (code == FIG_EXIT_FINE) *field = (int32_t)value;
    return code;
}

/* Reads one name of a list; *choice stays unchanged if the option was not given. */
static int read_choice(const fig_arguments *arguments, const char *name, const choice *choices,
                       int *value) {
    const char *text = fig_arguments_text(arguments, name);
    char known[64] = "";
    if (text == NULL) return FIG_EXIT_FINE;
    for (int i = 0; choices[i].name != NULL; i++) {
        size_t used = strlen(known);
        if (strcmp(text, choices[i].name) == 0) {
            *value = choices[i].value;
            return FIG_EXIT_FINE;
        }
        snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", choices[i].name);
    }
    return fig_report_refuse("%s: %s: \"%s\" is none of %s", arguments->command->name, name, text,
                             known);
}

/* Refuses --kv-scales for a cache without scales, where it would have no effect. Only 8-bit caches
 * are stored with scales. */
static int check_scales(const fig_arguments *arguments, const fig_spec *spec) {
    const char *given = fig_arguments_text(arguments, "--kv-scales");
    const fig_dtype dtype = spec->kv_dtype != 0 ? spec->kv_dtype : spec->dtype;
    if (given == NULL || dtype == FIG_E4M3 || dtype == FIG_E5M2) return FIG_EXIT_FINE;
    return fig_report_refuse("%s: --kv-scales: %s was given, but a cache of %s has no scales; only "
                             "caches of e4m3 and e5m2 have scales",
                             arguments->command->name, given, fig_report_dtype(dtype));
}

static int read_cache(const fig_arguments *arguments, fig_spec *spec) {
    int dtype = (int)spec->kv_dtype, scales = spec->kv_scales, layout = (int)spec->kv_layout;
    int code = read_choice(arguments, "--kv-dtype", kv_dtypes, &dtype);
    if (code == FIG_EXIT_FINE) code = read_choice(arguments, "--kv-scales", kv_scales, &scales);
    if (code == FIG_EXIT_FINE) code = read_choice(arguments, "--kv-layout", kv_layouts, &layout);
    spec->kv_dtype = (fig_dtype)dtype;
    spec->kv_scales = scales;
    spec->kv_layout = (fig_kv_layout)layout;
    return code == FIG_EXIT_FINE ? check_scales(arguments, spec) : code;
}

/* Reads a model that is described by numbers, of which at least one is given. */
static int read_shape(const fig_arguments *arguments, fig_spec *spec) {
    const fig_integer theta = {
        .name = "--rope-theta", .least = 1, .most = INT32_MAX, .fallback = 10000};
    int dtype = FIG_BF16, activation = FIG_SILU;
    int64_t base = 0;
    spec->kv_limit = CONFIG_KV_LIMIT;
    spec->layers = 1;
    spec->head_dim = 128;
    int code = read_override(arguments, "--q-heads", &spec->q_heads);
    spec->kv_heads = spec->q_heads;
    if (code == FIG_EXIT_FINE) code = read_override(arguments, "--kv-heads", &spec->kv_heads);
    if (code == FIG_EXIT_FINE) code = read_override(arguments, "--head-dim", &spec->head_dim);
    if (code == FIG_EXIT_FINE) code = read_override(arguments, "--ffn-width", &spec->ffn_width);
    if (code == FIG_EXIT_FINE) code = read_override(arguments, "--window", &spec->window);
    if (code == FIG_EXIT_FINE) code = fig_arguments_integer(arguments, &theta, &base);
    if (code == FIG_EXIT_FINE) code = read_choice(arguments, "--dtype", dtypes, &dtype);
    if (code == FIG_EXIT_FINE)
        code = read_choice(arguments, "--activation", activations, &activation);
    spec->rope.theta = (float)base;
    spec->dtype = (fig_dtype)dtype;
    spec->activation = (fig_activation)activation;
    return code;
}

/* Refuses options that describe a model by hand if a preset or a file already describes it. Only
 * --dtype is allowed with a file. */
static int refuse_shape(const fig_arguments *arguments, int has_config) {
    static const char *const shape[] = {"--kv-heads",   "--head-dim", "--ffn-width",
                                        "--activation", "--window",   "--rope-theta"};
    const char *command = arguments->command->name;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        if (fig_arguments_text(arguments, shape[i]) != NULL)
            return fig_report_refuse("%s: %s: only --q-heads takes it, not --preset or --config",
                                     command, shape[i]);
    if (!has_config && fig_arguments_text(arguments, "--dtype") != NULL)
        return fig_report_refuse("%s: --dtype: --q-heads and --config take it, not --preset",
                                 command);
    return FIG_EXIT_FINE;
}

static int refuse_ignored(const fig_arguments *arguments) {
    if (fig_arguments_text(arguments, "--ignore") == NULL) return FIG_EXIT_FINE;
    return fig_report_refuse("%s: --ignore: only --config takes it", arguments->command->name);
}

/* The keys of --ignore KEY[,KEY], in memory that this struct owns. */
typedef struct ignored_fields {
    char text[IGNORED_BYTES];
    const char *of[IGNORED_LIMIT];
    int32_t count;
} ignored_fields;

static int read_ignored(const fig_arguments *arguments, ignored_fields *ignored) {
    const char *command = arguments->command->name;
    const char *given = fig_arguments_text(arguments, "--ignore");
    ignored->count = 0;
    if (given == NULL) return FIG_EXIT_FINE;
    if (strlen(given) >= sizeof ignored->text)
        return fig_report_refuse("%s: --ignore: %zu bytes, the limit is %d", command, strlen(given),
                                 IGNORED_BYTES - 1);
    memcpy(ignored->text, given, strlen(given) + 1);
    for (char *at = ignored->text; at != NULL;) {
        char *comma = strchr(at, ',');
        if (comma != NULL) *comma = '\0';
        if (*at == '\0')
            return fig_report_refuse("%s: --ignore: \"%s\" has an empty name", command, given);
        if (ignored->count == IGNORED_LIMIT)
            return fig_report_refuse("%s: --ignore: more than %d names", command, IGNORED_LIMIT);
        ignored->of[ignored->count++] = at;
        at = comma != NULL ? comma + 1 : NULL;
    }
    return FIG_EXIT_FINE;
}

/* Reads a config. The longest sequence is decided first, because some kinds of RoPE depend on it.
 * If no option gives it, it is the file's number of positions; if that is too large, the file is
 * read again with the number of positions that are served. */
static int read_config(const fig_arguments *arguments, const char *config, fig_spec *spec) {
    ignored_fields ignored;
    int dtype = 0;
    int code = read_override(arguments, "--kv-limit", &spec->kv_limit);
    const int is_given = spec->kv_limit != 0;
    if (code == FIG_EXIT_FINE) code = read_ignored(arguments, &ignored);
    if (code == FIG_EXIT_FINE) code = read_choice(arguments, "--dtype", dtypes, &dtype);
    if (code != FIG_EXIT_FINE) return code;
    const fig_config_options options = {.size = sizeof options,
                                        .dtype = (fig_dtype)dtype,
                                        .ignored = ignored.of,
                                        .ignored_count = ignored.count};
    fig_status status = fig_spec_read_config_with(spec, config, &options);
    if (status == FIG_OK && !is_given &&
        (spec->kv_limit == 0 || spec->kv_limit > CONFIG_KV_LIMIT)) {
        spec->kv_limit = CONFIG_KV_LIMIT;
        status = fig_spec_read_config_with(spec, config, &options);
    }
    return status == FIG_OK ? FIG_EXIT_FINE : fig_report_status(config);
}

static const char *preset_name(const void *of, int32_t index) {
    (void)of;
    return fig_spec_preset_name(index);
}

int fig_source_read_preset(const char *name, fig_spec *spec) {
    char asked[FIG_NEAREST_BYTES];
    if (fig_spec_preset(spec, name) == FIG_OK) return FIG_EXIT_FINE;
    fig_nearest_ask(asked, name, preset_name, NULL);
    return fig_report_refuse("--preset: %s%s", fig_message(), asked);
}

static int read_model(const fig_arguments *arguments, fig_source *source) {
    const char *preset = fig_arguments_text(arguments, "--preset");
    const char *config = fig_arguments_text(arguments, "--config");
    const int by_hand = fig_arguments_text(arguments, "--q-heads") != NULL;
    const int given = (preset != NULL) + (config != NULL) + by_hand;
    fig_spec *spec = &source->spec;
    source->name = preset != NULL ? preset : config != NULL ? config : "by hand";
    if (given != 1) {
        return fig_report_refuse("%s: --preset, --config and --q-heads: %s, one of them names the "
                                 "model",
                                 arguments->command->name,
                                 given == 0 ? "none was given" : "more than one was given");
    }
    int code = config != NULL ? FIG_EXIT_FINE : refuse_ignored(arguments);
    if (code == FIG_EXIT_FINE && by_hand) return read_shape(arguments, spec);
    if (code == FIG_EXIT_FINE) code = refuse_shape(arguments, config != NULL);
    if (code != FIG_EXIT_FINE) return code;
    if (preset != NULL) return fig_source_read_preset(preset, spec);
    return read_config(arguments, config, spec);
}

static int read_query_limit(const fig_arguments *arguments, fig_spec *spec) {
    const fig_integer range = {
        .name = "--query-limit", .least = 1, .most = INT32_MAX, .fallback = spec->query_limit};
    return fig_arguments_integer(arguments, &range, &spec->query_limit);
}

int fig_source_refuse_beside_file(const fig_arguments *arguments) {
    static const fig_command model = {.options = {FIG_SOURCE_OPTIONS}};
    for (const fig_option *option = model.options; option->name != NULL; option++)
        if (fig_arguments_text(arguments, option->name) != NULL)
            return fig_report_refuse("%s: %s: %s was given, which already fixes it",
                                     arguments->command->name, option->name, arguments->operand);
    return FIG_EXIT_FINE;
}

static int is_named(const fig_arguments *arguments) {
    return fig_arguments_text(arguments, "--preset") != NULL ||
           fig_arguments_text(arguments, "--config") != NULL ||
           fig_arguments_text(arguments, "--q-heads") != NULL;
}

int fig_source_check_named(const fig_arguments *arguments) {
    if (arguments->operand != NULL) return fig_source_refuse_beside_file(arguments);
    if (is_named(arguments)) return FIG_EXIT_FINE;
    return fig_report_refuse("%s: FILE, --preset, --config and --q-heads: none was given, one of "
                             "them names the step",
                             arguments->command->name);
}

int fig_source_read(const fig_arguments *arguments, fig_source *source) {
    fig_spec *spec = &source->spec;
    *source = (fig_source){.spec = config_defaults};
    int code = read_model(arguments, source);
    if (code != FIG_EXIT_FINE) return code;
    code = read_override(arguments, "--batch-limit", &spec->batch_limit);
    if (code == FIG_EXIT_FINE) code = read_override(arguments, "--kv-limit", &spec->kv_limit);
    if (code == FIG_EXIT_FINE) code = read_override(arguments, "--page-size", &spec->page_size);
    if (code == FIG_EXIT_FINE) code = read_override(arguments, "--row-tokens", &spec->row_tokens);
    if (code == FIG_EXIT_FINE) code = read_query_limit(arguments, spec);
    if (code == FIG_EXIT_FINE) code = read_cache(arguments, spec);
    source->deterministic = fig_arguments_text(arguments, "--deterministic") != NULL;
    if (code != FIG_EXIT_FINE) return code;
    return fig_spec_check(spec) == FIG_OK ? FIG_EXIT_FINE : fig_report_status(source->name);
}

static int has_bit(const uint64_t bits[8], int32_t layer) {
    return (int)(bits[layer / 64] >> layer % 64 & 1);
}

/* Counts the bits of the layers below `layers`. */
static int32_t count_bits(const uint64_t bits[8], int32_t layers) {
    int32_t count = 0;
    for (int32_t layer = 0; layer < layers; layer++)
        count += has_bit(bits, layer);
    return count;
}

int32_t fig_source_window_layers(const fig_spec *spec) {
    int32_t count = count_bits(spec->window_layers, spec->layers);
    if (spec->window == 0 || spec->window >= spec->kv_limit) return 0;
    return count > 0 ? count : spec->layers;
}

int fig_source_has_window(const fig_spec *spec, int32_t layer) {
    const int32_t count = fig_source_window_layers(spec);
    return count == spec->layers || (count > 0 && has_bit(spec->window_layers, layer));
}

int32_t fig_source_plain_layers(const fig_spec *spec) {
    return count_bits(spec->plain_layers, spec->layers);
}

int fig_source_is_plain(const fig_spec *spec, int32_t layer) {
    return has_bit(spec->plain_layers, layer);
}

int fig_source_keep_layers(const fig_arguments *arguments, fig_source *source, int32_t layers) {
    fig_spec *spec = &source->spec;
    const int32_t windows = count_bits(spec->window_layers, spec->layers);
    const int32_t plain = count_bits(spec->plain_layers, spec->layers);
    if (windows + plain > 0 && layers > spec->layers) {
        return fig_report_refuse("%s: --layers: %d, but %s has %d and says which have its %s",
                                 arguments->command->name, layers, source->name, spec->layers,
                                 windows > 0 ? "window" : "RoPE");
    }
    for (int32_t layer = layers; layer < spec->layers; layer++) {
        spec->window_layers[layer / 64] &= ~(UINT64_C(1) << layer % 64);
        spec->plain_layers[layer / 64] &= ~(UINT64_C(1) << layer % 64);
    }
    spec->layers = layers;
    if (spec->dense_layers > layers) spec->dense_layers = layers;
    /* If no bit were set, every layer would have the window. */
    if (windows > 0 && count_bits(spec->window_layers, layers) == 0) spec->window = 0;
    return FIG_EXIT_FINE;
}

int fig_source_read_ranks(const fig_arguments *arguments, int32_t *ranks) {
    fig_integer range = {
        .name = "--ranks", .least = 1, .most = FIG_PARALLEL_RANK_LIMIT, .fallback = 1};
    int64_t number;
    int code = fig_arguments_integer(arguments, &range, &number);
    *ranks = (int32_t)number;
    return code;
}

int fig_source_take_share(const fig_arguments *arguments, fig_source *source) {
    char about[64];
    int code = fig_source_read_ranks(arguments, &source->ranks);
    source->model = source->spec;
    if (code != FIG_EXIT_FINE || source->ranks == 1) return code;
    snprintf(about, sizeof about, "%s: --ranks", arguments->command->name);
    if (fig_spec_rank(&source->spec, &source->model, source->ranks) == FIG_OK) return FIG_EXIT_FINE;
    return fig_report_status(about);
}

void fig_source_print_share(const fig_spec *model, const fig_spec *share, int32_t ranks) {
    char part[FIG_REPORT_COUNT], whole[FIG_REPORT_COUNT];
    if (ranks == 1) return;
    printf("  ranks     %d, each with %d of %s, %d of %s", ranks, share->q_heads,
           fig_report_count(part, model->q_heads, "q head"), share->kv_heads,
           fig_report_count(whole, model->kv_heads, "kv head"));
    if (model->ffn_width > 0)
        printf(", %s of %s", fig_report_number(part, share->ffn_width),
               fig_report_count(whole, model->ffn_width, "ffn column"));
    putchar('\n');
    if (model->latent_dim > 0)
        printf("  cache     whole on each rank: all q heads read one vector for each token\n"
               "            1/%d on each rank if ranks divided the requests, with all q heads\n",
               ranks);
}

int fig_source_divide(const fig_arguments *arguments, int32_t ranks, fig_graphs **graphs) {
    fig_graphs *model = *graphs;
    char about[64];
    if (ranks == 1) return FIG_EXIT_FINE;
    snprintf(about, sizeof about, "%s: --ranks", arguments->command->name);
    const fig_status status = fig_graphs_rank(graphs, model, ranks);
    int code = status == FIG_OK ? FIG_EXIT_FINE : fig_report_status(about);
    fig_graphs_destroy(model);
    return code;
}

static int takes_traits(const fig_command *command) {
    for (const fig_option *option = command->options; option->name != NULL; option++)
        if (strcmp(option->name, "--traits") == 0) return 1;
    return 0;
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
    return fig_report_refuse(
        "%s: %s: \"%s\" is not auto, host or cuda%s", arguments->command->name, option, name,
        takes_traits(arguments->command) ? "; --traits names a machine that need not be present"
                                         : "");
}

const char *fig_source_device_name(fig_device device) {
    return device_names[device];
}

static fig_tensor add_rows(fig_program *program, const fig_source *source, const char *name) {
    return fig_program_tensor(
        program,
        FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                    .dtype = source->spec.dtype, .rank = 2,
                    .dims = {source->spec.query_limit > 0 ? FIG_DIM_QUERIES : FIG_DIM_BATCH,
                             source->sum_width}));
}

static void record_sums(fig_program *program, const fig_source *source) {
    fig_rms_norm_op op = {.size = sizeof op};
    op.in = add_rows(program, source, "part");
    op.residual = add_rows(program, source, "residual");
    op.out = add_rows(program, source, "normed");
    op.weight = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "norm", .role = FIG_ROLE_BOUND,
                             .dtype = source->spec.dtype, .rank = 1, .dims = {source->sum_width}));
    for (int32_t i = 0; i < 2 * source->spec.layers; i++) {
        fig_program_layer(program, i / 2);
        fig_all_reduce_add_rms_norm(program, &op);
    }
}

int fig_source_read_score(const fig_arguments *arguments, fig_source *source) {
    const char *score = fig_arguments_text(arguments, "--score");
    const char *mask = fig_arguments_text(arguments, "--mask");
    fig_score *plain = NULL;
    char about[64];
    snprintf(about, sizeof about, "%s: --score", arguments->command->name);
    if (score != NULL && fig_score_parse(&plain, score) != FIG_OK) return fig_report_status(about);
    source->score = plain;
    if (mask == NULL) return FIG_EXIT_FINE;
    snprintf(about, sizeof about, "%s: --mask", arguments->command->name);
    const fig_status status = fig_score_parse_mask(&source->score, mask, plain);
    fig_score_destroy(plain);
    return status == FIG_OK ? FIG_EXIT_FINE : fig_report_status(about);
}

void fig_source_print_score(const fig_score *score) {
    if (score != NULL) fig_columns_words(printf("  score     "), 12, fig_score_text(score));
}

/* Records the standard step, with a score if one is given, or with q in two tensors. */
static void record_step(fig_program *program, const fig_source *source) {
    if (source->has_q_rope) {
        fig_program_decode_step_parts(program);
    } else if (source->score == NULL) {
        fig_program_decode_step(program);
    } else {
        fig_program_decode_step_score(program, source->score);
    }
}

int fig_source_lower(const fig_source *source, const fig_traits *traits, fig_graphs **graphs) {
    fig_lower_options options = {
        .size = sizeof options, .traits = traits, .deterministic = source->deterministic};
    fig_program *program;
    *graphs = NULL;
    fig_status status = fig_program_create(&program, &source->spec);
    if (status == FIG_OK) {
        record_step(program, source);
        if (source->sum_width > 0) record_sums(program, source);
        status = fig_program_finish(program);
    }
    if (status == FIG_OK) status = fig_graphs_lower(graphs, program, &options);
    int code = status == FIG_OK ? FIG_EXIT_FINE : fig_report_status(NULL);
    fig_program_destroy(program);
    return code;
}

/* Opens the device with the smallest possible step. */
int fig_source_device_traits(const fig_arguments *arguments, fig_device device,
                             fig_traits *traits) {
    fig_source tutorial = {.name = "tutorial", .spec.size = sizeof tutorial.spec};
    fig_graphs *graphs;
    fig_engine *engine;
    char about[64];
    snprintf(about, sizeof about, "%s: --device", arguments->command->name);
    if (fig_spec_preset(&tutorial.spec, tutorial.name) != FIG_OK) return fig_report_status(NULL);
    int code = fig_source_lower(&tutorial, NULL, &graphs);
    if (code != FIG_EXIT_FINE) return code;
    if (fig_engine_open(&engine, graphs, FIG_OPTIONS(fig_engine_options, .device = device)) !=
        FIG_OK) {
        code = fig_report_status(about);
    } else {
        *traits = (fig_traits){.size = sizeof *traits};
        fig_engine_read_traits(engine, traits);
    }
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
    return code;
}

int fig_source_read_machine(const fig_arguments *arguments, fig_source_machine *machine) {
    const char *name = fig_arguments_text(arguments, "--traits");
    fig_device device;
    *machine =
        (fig_source_machine){.traits = {.size = sizeof machine->traits}, .why = "as --traits says"};
    int code = fig_source_read_device(arguments, &device);
    if (code != FIG_EXIT_FINE) return code;
    if (name != NULL) return fig_chip_read(arguments, name, &machine->traits);
    code = fig_source_device_traits(arguments, device, &machine->traits);
    const int on_host = machine->traits.compute_capability == 0;
    machine->why = !on_host                    ? "this machine's GPU; --traits names another"
                   : device == FIG_DEVICE_AUTO ? "since there is no GPU; --traits names one"
                                               : "the device; --traits names a GPU";
    return code;
}
