/* config.c: reads a spec's fields from a Hugging Face config.json.
 *
 * Owns the meaning of such a file's fields for a decode step; limits and defaults of a spec are in
 * planner/spec/spec.c. Invariant: if the file requires a feature that this library lacks, reading
 * fails with a message that names the feature, so no step is ever planned for a model other than
 * the one described. */
#include "include/figraph.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graphs/configs/config_cache.h"
#include "graphs/configs/config_families.h"
#include "graphs/configs/config_fields.h"
#include "graphs/configs/config_latent.h"
#include "graphs/configs/config_rope.h"
#include "graphs/configs/document.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

static const fig_document_range layer_range = {1, FIG_LAYER_LIMIT},
                                head_range = {1, FIG_HEAD_LIMIT};
static const fig_document_range width_range = {1, FIG_WIDTH_LIMIT}, any_count = {1, INT32_MAX};

static fig_status refuse_of_family(const fig_document *config, const fig_config_family *model,
                                   const char *field) {
    return fig_config_fields_refuse(config, model->model_type, field);
}

/* Returns 1 if the family allows only one value for the field and the field has that value. */
static int is_fixed(const fig_document *config, const fig_config_family *model, const char *field) {
    const json_t *found = fig_document_find(config, field);
    const char *value = json_is_true(found) ? "true" : json_string_value(found);
    char number[32];
    if (json_is_number(found)) {
        snprintf(number, sizeof number, "%.9g", json_number_value(found));
        value = number;
    }
    for (int i = 0; i < FIG_CONFIG_FIXED_LIMIT && model->fixed[i][0] != NULL; i++)
        if (strcmp(field, model->fixed[i][0]) == 0)
            return value != NULL && strcmp(value, model->fixed[i][1]) == 0;
    return 0;
}

static fig_status refuse_unknown(const fig_document *config, const fig_config_family *model) {
    const char *field;
    json_t *value;
    json_object_foreach(config->object, field, value) {
        if (fig_config_fields_ask(value) && !fig_config_fields_know(field) &&
            !fig_config_families_own(model, field) && !is_fixed(config, model, field) &&
            !fig_document_ignores(config, field))
            return fig_config_fields_refuse_unknown(config, model->model_type, field);
    }
    return FIG_OK;
}

/* Fails if the caller asks to ignore a field that this library reads. A caller may ignore only
 * unknown fields. */
static fig_status refuse_ignored(const fig_document *config, const fig_config_family *model) {
    for (int32_t i = 0; i < config->ignored_count; i++) {
        const char *field = config->ignored[i];
        const int unused =
            model->sliding == FIG_CONFIG_NO_LAYERS && strcmp(field, "sliding_window") == 0;
        if ((fig_config_fields_read(field) && !unused) || fig_config_families_own(model, field))
            return fig_fail(FIG_INVALID,
                            "%s: %.64s is to be ignored, but model_type %s has a meaning for it",
                            config->path, field, model->model_type);
    }
    return FIG_OK;
}

/* ---- Window */

/* Sets window to 0 if the model uses no window. */
static fig_status read_window(const fig_document *config, const fig_config_family *model,
                              fig_spec *spec) {
    const int given = fig_document_find(config, "sliding_window") != NULL;
    int used = 1;
    spec->window = 0;
    FIG_TRY(fig_document_read_truth(config, "use_sliding_window", &used));
    switch (model->sliding) {
    case FIG_CONFIG_NO_LAYERS:
        if (!given || !used || fig_document_ignores(config, "sliding_window")) return FIG_OK;
        return refuse_of_family(config, model, "sliding_window");
    case FIG_CONFIG_UPPER_LAYERS:
        if (given) FIG_TRY(fig_document_need(config, "use_sliding_window"));
        if (!used || fig_document_find(config, "use_sliding_window") == NULL) return FIG_OK;
        return fig_document_need_integer(config, "sliding_window", any_count, &spec->window);
    case FIG_CONFIG_ALL_LAYERS:
        /* An absent field would mean a default in the family's code; null means no window. */
        FIG_TRY(fig_document_need(config, "sliding_window"));
        if (!used) return refuse_of_family(config, model, "use_sliding_window");
        return fig_document_read_integer(config, "sliding_window", any_count, &spec->window);
    case FIG_CONFIG_PATTERN_LAYERS:
        if (model->windowless && !given) return fig_document_need(config, "sliding_window");
        break;
    case FIG_CONFIG_LISTED_LAYERS:
    case FIG_CONFIG_EVEN_LAYERS: break;
    }
    if (!used) return refuse_of_family(config, model, "use_sliding_window");
    return fig_document_need_integer(config, "sliding_window", any_count, &spec->window);
}

/* Sets *slides to 1 if layer_types gives the layer a sliding window. */
static fig_status read_layer_type(const fig_document *config, const fig_spec *spec, int32_t layer,
                                  int *slides) {
    const json_t *types = fig_document_find(config, "layer_types");
    const char *type = json_string_value(json_array_get(types, (size_t)layer));
    if (type == NULL ||
        (strcmp(type, "full_attention") != 0 && strcmp(type, "sliding_attention") != 0))
        return fig_fail(FIG_UNSUPPORTED,
                        "%s: layer_types[%" PRId32
                        "] is %s, this library has full_attention and sliding_attention",
                        config->path, layer, type != NULL ? type : "no string");
    *slides = strcmp(type, "sliding_attention") == 0;
    if (*slides && spec->window == 0)
        return fig_fail(FIG_INVALID,
                        "%s: layer_types[%" PRId32
                        "] is sliding_attention, but there is no sliding_window that it uses",
                        config->path, layer);
    return FIG_OK;
}

/* Despite its name, "max_window_layers" counts the layers below the first layer with a window: this
 * is how the models' own code uses the field. */
static int slides_by_rule(const fig_config_family *model, int32_t layer, int32_t number) {
    if (model->sliding == FIG_CONFIG_EVEN_LAYERS) return layer % 2 == 0;
    if (model->sliding == FIG_CONFIG_PATTERN_LAYERS) return (layer + 1) % number != 0;
    return model->sliding == FIG_CONFIG_ALL_LAYERS || layer >= number;
}

static fig_status read_window_layers(const fig_document *config, const fig_config_family *model,
                                     fig_spec *spec) {
    const json_t *types = fig_document_find(config, "layer_types");
    int32_t number = 0, sliding = 0;
    memset(spec->window_layers, 0, sizeof spec->window_layers);
    if (types != NULL && json_array_size(types) != (size_t)spec->layers)
        return fig_document_refuse(config, "layer_types", FIG_INVALID,
                                   "it must be an array of num_hidden_layers strings");
    if (types == NULL && spec->window == 0) return FIG_OK;
    if (types == NULL && model->sliding == FIG_CONFIG_UPPER_LAYERS)
        FIG_TRY(fig_document_need_integer(config, "max_window_layers",
                                          (fig_document_range){0, INT32_MAX}, &number));
    if (model->sliding == FIG_CONFIG_LISTED_LAYERS)
        FIG_TRY(fig_document_need(config, "layer_types"));
    if (types == NULL && model->sliding == FIG_CONFIG_PATTERN_LAYERS)
        FIG_TRY(fig_document_need_integer(config, "sliding_window_pattern", any_count, &number));
    for (int32_t layer = 0; layer < spec->layers; layer++) {
        int slides = types == NULL && slides_by_rule(model, layer, number);
        if (types != NULL) FIG_TRY(read_layer_type(config, spec, layer, &slides));
        if (!slides) continue;
        spec->window_layers[layer / 64] |= UINT64_C(1) << (layer % 64);
        sliding++;
    }
    if (sliding == 0) spec->window = 0;
    if (sliding == spec->layers) memset(spec->window_layers, 0, sizeof spec->window_layers);
    return FIG_OK;
}

/* ---- Layers without RoPE */

static void set_plain(fig_spec *spec, int32_t layer) {
    spec->plain_layers[layer / 64] |= UINT64_C(1) << (layer % 64);
}

/* The list has a number for each layer; the layers with 0 have no RoPE. */
static fig_status read_plain_list(const fig_document *config, const json_t *list, fig_spec *spec) {
    if (json_array_size(list) != (size_t)spec->layers)
        return fig_document_refuse(config, "no_rope_layers", FIG_INVALID,
                                   "it must be an array of num_hidden_layers numbers");
    for (int32_t layer = 0; layer < spec->layers; layer++) {
        const json_t *turns = json_array_get(list, (size_t)layer);
        if (!json_is_integer(turns) || json_integer_value(turns) / 2 != 0)
            return fig_fail(FIG_INVALID, "%s: no_rope_layers[%" PRId32 "] is neither 0 nor 1",
                            config->path, layer);
        if (json_integer_value(turns) == 0) set_plain(spec, layer);
    }
    return FIG_OK;
}

/* Returns 1 if the layer has a window. If the spec has a window and no bit is set, every layer has
 * the window. */
static int has_window(const fig_spec *spec, int32_t layer) {
    for (int32_t other = 0; other < spec->layers; other++)
        if (spec->window_layers[other / 64] >> (other % 64) & 1)
            return (int)(spec->window_layers[layer / 64] >> (layer % 64) & 1);
    return spec->window > 0;
}

static fig_status read_plain_layers(const fig_document *config, const fig_config_family *model,
                                    fig_spec *spec) {
    int32_t interval = 0;
    const json_t *list = fig_document_find(config, "no_rope_layers");
    memset(spec->plain_layers, 0, sizeof spec->plain_layers);
    if (model->plain == FIG_CONFIG_NONE_PLAIN) return FIG_OK;
    if (model->plain == FIG_CONFIG_FULL_PLAIN &&
        fig_document_find(config, "sliding_window") == NULL)
        return FIG_OK;
    if (model->plain == FIG_CONFIG_LISTED_PLAIN && list != NULL)
        return read_plain_list(config, list, spec);
    if (model->plain == FIG_CONFIG_LISTED_PLAIN)
        FIG_TRY(fig_document_need_integer(config, "no_rope_layer_interval", any_count, &interval));
    for (int32_t layer = 0; layer < spec->layers; layer++) {
        if (model->plain == FIG_CONFIG_FULL_PLAIN ? !has_window(spec, layer)
                                                  : (layer + 1) % interval == 0)
            set_plain(spec, layer);
    }
    return FIG_OK;
}

/* In this library the norms of q and k are part of RoPE, so a layer cannot have them without RoPE.
 * Layers that have such norms but no RoPE therefore get RoPE with angles divided by 10^30: at the
 * last position that a step may have, 2^30, the angle is 10^-21 radians, too small to change any
 * sum in float32. These are the layers without a window; the other layers keep the file's
 * angles. */
static void hold_still(const fig_config_family *model, fig_spec *spec) {
    int32_t layer = 0;
    while (layer < spec->layers && !(spec->plain_layers[layer / 64] >> (layer % 64) & 1))
        layer++;
    if (!model->qk_norm || layer == spec->layers) return;
    if (spec->window > 0) {
        spec->window_rope = spec->rope;
        spec->window_table = spec->rope_table;
    }
    spec->rope = (fig_rope_spec){.interleaved = spec->rope.interleaved,
                                 .rotary_dim = spec->rope.rotary_dim,
                                 .theta = spec->rope.theta,
                                 .scale = 1e30f};
    memset(&spec->rope_table, 0, sizeof spec->rope_table);
    memset(spec->plain_layers, 0, sizeof spec->plain_layers);
}

/* ---- The rest */

static fig_status read_heads(const fig_document *config, const fig_config_family *model,
                             fig_spec *spec) {
    int32_t hidden_size = 0;
    spec->latent_dim = 0;
    spec->latent_norm_epsilon = 0;
    if (model->latent) return fig_config_latent_read_heads(config, spec);
    FIG_TRY(fig_document_need_integer(config, "num_attention_heads", head_range, &spec->q_heads));
    spec->kv_heads = spec->q_heads; /* null means the same as an absent field */
    if (model->kv_heads) FIG_TRY(fig_document_need(config, "num_key_value_heads"));
    FIG_TRY(fig_document_read_integer(config, "num_key_value_heads", head_range, &spec->kv_heads));
    if (model->head_dim || fig_document_find(config, "head_dim") != NULL)
        return fig_document_need_integer(config, "head_dim", width_range, &spec->head_dim);
    FIG_TRY(fig_document_need_integer(config, "hidden_size", width_range, &hidden_size));
    if (hidden_size % spec->q_heads != 0)
        return fig_document_refuse(config, "hidden_size", FIG_INVALID,
                                   "without head_dim it must be a multiple of num_attention_heads");
    spec->head_dim = hidden_size / spec->q_heads;
    return FIG_OK;
}

/* Reads the scale and the cap of logits. A family without such fields has the scale 1 /
 * sqrt(head_dim) and no cap. */
static fig_status read_logits(const fig_document *config, const fig_config_family *model,
                              fig_spec *spec) {
    float scalar = 0;
    spec->soft_cap = spec->sm_scale = spec->qk_norm_epsilon = 0;
    if (model->latent) return fig_config_latent_read_logits(config, spec);
    if (model->qk_norm)
        FIG_TRY(fig_document_need_real(config, "rms_norm_eps", &spec->qk_norm_epsilon));
    if (model->logit_scale != NULL)
        return fig_document_need_real(config, model->logit_scale, &spec->sm_scale);
    if (!fig_config_families_own(model, "query_pre_attn_scalar")) return FIG_OK;
    FIG_TRY(fig_document_need_real(config, "query_pre_attn_scalar", &scalar));
    spec->sm_scale = (float)(1 / sqrt((double)scalar));
    FIG_TRY(fig_document_need(config, "attn_logit_softcapping"));
    return fig_document_read_real(config, "attn_logit_softcapping", &spec->soft_cap);
}

/* A model that has experts only in some layers would have layers of different widths. */
static fig_status read_experts(const fig_document *config, const fig_config_family *model,
                               fig_spec *spec) {
    const fig_document_range one = {1, 1}, few = {1, FIG_FFN_ROWS_LIMIT};
    int32_t every = 1;
    spec->ffn_rows = 0;
    if (model->experts == NULL) return FIG_OK;
    FIG_TRY(fig_document_read_integer(config, "decoder_sparse_step", one, &every));
    if (json_array_size(fig_document_find(config, "mlp_only_layers")) != 0)
        return fig_document_refuse(config, "mlp_only_layers", FIG_UNSUPPORTED,
                                   "this library has the same width in every layer");
    return fig_document_need_integer(config, model->experts, few, &spec->ffn_rows);
}

static fig_status read_activation(const fig_document *config, const fig_config_family *model,
                                  fig_activation *activation) {
    static const struct {
        const char *name;
        fig_activation activation;
    } names[] = {{"silu", FIG_SILU}, {"gelu", FIG_GELU}, {"gelu_pytorch_tanh", FIG_GELU_TANH}};
    const char *name;
    const char *field = model->activation != NULL ? model->activation : "hidden_act";
    FIG_TRY(fig_document_need_text(config, field, &name));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i].name) != 0) continue;
        *activation = names[i].activation;
        if (model->gate == FIG_CONFIG_TANH && *activation == FIG_GELU) *activation = FIG_GELU_TANH;
        return FIG_OK;
    }
    return fig_document_refuse(config, field, FIG_UNSUPPORTED,
                               "this library has silu, gelu and gelu_pytorch_tanh");
}

/* Reads the activation swiglu_limited, which the file calls silu. The file may leave out the limit;
 * its default in the family's code is 7. */
static fig_status read_limited(const fig_document *config, fig_activation *activation) {
    float limit = 7.0f;
    if (*activation != FIG_SILU)
        return fig_document_refuse(config, "hidden_act", FIG_UNSUPPORTED,
                                   "this library has silu beside a swiglu_limit");
    FIG_TRY(fig_document_read_real(config, "swiglu_limit", &limit));
    *activation = FIG_SWIGLU_LIMITED;
    if (limit == 7.0f) return FIG_OK;
    return fig_document_refuse(config, "swiglu_limit", FIG_UNSUPPORTED, "this library has 7");
}

static fig_status read_ffn(const fig_document *config, const fig_config_family *model,
                           fig_spec *spec) {
    const char *width = model->width != NULL ? model->width : "intermediate_size";
    spec->ffn_width = spec->ffn_rows = spec->dense_layers = spec->dense_width = 0;
    spec->activation = FIG_SILU;
    if (model->gate == FIG_CONFIG_UNGATED) return FIG_OK;
    FIG_TRY(fig_document_need_integer(config, width, width_range, &spec->ffn_width));
    FIG_TRY(read_experts(config, model, spec));
    if (model->latent) FIG_TRY(fig_config_latent_read_dense(config, spec));
    FIG_TRY(read_activation(config, model, &spec->activation));
    return model->gate == FIG_CONFIG_LIMITED ? read_limited(config, &spec->activation) : FIG_OK;
}

/* dtype is the newer spelling of torch_dtype. */
static fig_status read_dtype(const fig_document *config, const fig_config_family *model,
                             fig_dtype *dtype) {
    static const struct {
        const char *name;
        fig_dtype dtype;
    } names[] = {{"float32", FIG_F32}, {"float16", FIG_F16}, {"bfloat16", FIG_BF16}};
    const char *field = fig_document_find(config, "dtype") != NULL ? "dtype" : "torch_dtype";
    const json_t *older = fig_document_find(config, "torch_dtype");
    const char *name;
    *dtype = model->dtype;
    if (fig_document_find(config, field) == NULL) {
        if (model->dtype != 0) return FIG_OK;
        return fig_fail(FIG_INVALID,
                        "%s: %sdtype is missing, and so is torch_dtype; the caller "
                        "may give one (--dtype)",
                        config->path, config->name);
    }
    FIG_TRY(fig_document_need_text(config, field, &name));
    if (older != NULL && !json_equal(fig_document_find(config, field), older))
        return fig_document_refuse(config, "torch_dtype", FIG_INVALID, "but dtype differs");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *dtype = names[i].dtype;
        if (strcmp(name, names[i].name) == 0) return FIG_OK;
    }
    return fig_document_refuse(config, field, FIG_UNSUPPORTED,
                               "this library has float32, float16 and bfloat16");
}

static fig_status read_fields(const fig_document *file, fig_dtype dtype, fig_spec *spec) {
    const fig_config_family *model;
    fig_document text;
    const fig_document *config = &text;
    int32_t positions = 0;
    FIG_TRY(fig_config_fields_find_text(file, &text));
    FIG_TRY(fig_config_families_read(config, &model));
    FIG_TRY(refuse_ignored(config, model));
    FIG_TRY(refuse_unknown(config, model));
    FIG_TRY(fig_document_need_integer(config, "num_hidden_layers", layer_range, &spec->layers));
    FIG_TRY(read_heads(config, model, spec));
    FIG_TRY(read_ffn(config, model, spec));
    spec->dtype = dtype;
    if (dtype == 0) FIG_TRY(read_dtype(config, model, &spec->dtype));
    FIG_TRY(fig_config_cache_read(config, spec));
    FIG_TRY(fig_config_rope_read(config, &model->rope, spec));
    spec->sinks = model->sinks;
    FIG_TRY(read_logits(config, model, spec));
    FIG_TRY(read_window(config, model, spec));
    FIG_TRY(read_window_layers(config, model, spec));
    FIG_TRY(read_plain_layers(config, model, spec));
    hold_still(model, spec);
    FIG_TRY(fig_document_read_integer(config, "max_position_embeddings", any_count, &positions));
    if (spec->kv_limit == 0) spec->kv_limit = positions < FIG_KV_LIMIT ? positions : FIG_KV_LIMIT;
    return FIG_OK;
}

/* Copies the spec to the caller. A caller with an older header has room only for the fields of that
 * header. If any other field is not zero, the call fails. */
static fig_status hand_over(const char *path, fig_spec *read, fig_spec *spec) {
    const uint8_t *bytes = (const uint8_t *)read;
    const size_t known = spec->size < sizeof *read ? spec->size : sizeof *read;
    for (size_t i = known; i < sizeof *read; i++) {
        if (bytes[i] != 0)
            return fig_fail(FIG_UNSUPPORTED,
                            "%s: the model needs fields beyond a fig_spec of %" PRIu32 " bytes",
                            path, spec->size);
    }
    read->size = spec->size;
    memcpy(spec, read, known);
    return FIG_OK;
}

/* Checks the options. None of the names to ignore may be NULL, because NULL cannot be compared with
 * a field. */
static fig_status check_options(const fig_config_options *options) {
    const fig_dtype dtype = options->dtype;
    if (dtype != 0 && dtype != FIG_F32 && dtype != FIG_F16 && dtype != FIG_BF16)
        return fig_fail(FIG_INVALID, "config: dtype is %" PRIu32 ", it must be f32, f16 or bf16",
                        dtype);
    if (options->ignored_count < 0)
        return fig_fail(FIG_INVALID, "config: ignored_count is %" PRId32 ", it must be 0 or more",
                        options->ignored_count);
    if (options->ignored_count > 0 && options->ignored == NULL)
        return fig_fail(FIG_INVALID, "config: ignored is NULL, ignored_count is %" PRId32,
                        options->ignored_count);
    for (int32_t i = 0; i < options->ignored_count; i++)
        if (options->ignored[i] == NULL)
            return fig_fail(FIG_INVALID, "config: ignored[%" PRId32 "] is NULL", i);
    return FIG_OK;
}

fig_status fig_spec_read_config_with(fig_spec *spec, const char *path,
                                     const fig_config_options *options) {
    fig_spec read;
    fig_document config;
    fig_config_options taken;
    if (spec == NULL) return fig_fail(FIG_INVALID, "config: spec is NULL");
    if (path == NULL) return fig_fail(FIG_INVALID, "config: path is NULL");
    FIG_TRY(fig_status_take_options(&read, sizeof read, spec, "fig_spec"));
    FIG_TRY(fig_status_take_options(&taken, sizeof taken, options, "fig_config_options"));
    FIG_TRY(check_options(&taken));
    FIG_TRY(fig_document_open(&config, path));
    config.ignored = taken.ignored;
    config.ignored_count = taken.ignored_count;
    const fig_status status = read_fields(&config, taken.dtype, &read);
    fig_document_close(&config);
    FIG_TRY(status);
    return hand_over(path, &read, spec);
}

fig_status fig_spec_read_config(fig_spec *spec, const char *path) {
    return fig_spec_read_config_with(spec, path, NULL);
}
