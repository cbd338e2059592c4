/* config.c: a spec's fields from a Hugging Face config.json.
 *
 * Owns what the fields of such a file mean to a decode step, and which of them a family of models
 * has; limits and defaults of a spec are planner/spec.c's. Invariant: what the file asks for and
 * this library lacks is refused by name, so that no step is planned for another model than the one
 * described. */
#include "include/figraph.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graphs/files/config_fields.h"
#include "graphs/files/config_rope.h"
#include "graphs/files/document.h"
#include "planner/spec.h"
#include "planner/status.h"

/* Which layers have the window where layer_types does not say. */
typedef enum layer_rule {
    NO_LAYERS, /* the family has no window */
    ALL_LAYERS,
    UPPER_LAYERS, /* from max_window_layers on, if use_sliding_window is true */
    EVEN_LAYERS,
    PATTERN_LAYERS, /* but for each sliding_window_pattern-th */
    LISTED_LAYERS   /* layer_types must say */
} layer_rule;

/* Which layers have no RoPE. */
typedef enum plain_rule {
    NONE_PLAIN,
    LISTED_PLAIN, /* where no_rope_layers has 0 or, without it, each no_rope_layer_interval-th */
    FULL_PLAIN    /* those that have no window */
} plain_rule;

enum { OWN_LIMIT = 10 };
typedef struct family {
    const char *model_type;
    const char *activation; /* the field that names it; NULL: hidden_act */
    layer_rule sliding;
    plain_rule plain;
    int qk_norm;  /* 1: norms each head of q and k, with rms_norm_eps */
    int head_dim; /* 1: must be given; else it may follow from hidden_size */
    int kv_heads; /* 1: must be given: absent it would be a number of the family's code */
    fig_config_rope rope;
    int sinks;                   /* 1: each layer has them */
    fig_dtype dtype;             /* where the file says none; 0: it must */
    int limited;                 /* 1: the activation is swiglu_limited, and swiglu_limit 7 */
    const char *width, *experts; /* the fields of ffn_width, of the experts of a token; NULL:
                                    intermediate_size, and no experts */
    const char *logit_scale;     /* the field that is sm_scale; NULL: there is none */
    const char *fixed[2][2];     /* fields with the one value that is served */
    const char *own[OWN_LIMIT];  /* fields beside those that all have; NULL behind the last */
} family;

/* The first llamas were published before rope_theta was a field. */
static const family families[] = {
    {.model_type = "llama", .rope = {.theta = 10000.0f}, .fixed = {{"activation", "swiglu"}}},
    {.model_type = "mistral", .sliding = ALL_LAYERS, .kv_heads = 1},
    {.model_type = "qwen2", .sliding = UPPER_LAYERS, .kv_heads = 1},
    {.model_type = "qwen3", .sliding = UPPER_LAYERS, .qk_norm = 1, .head_dim = 1, .kv_heads = 1},
    {.model_type = "gemma2",
     .activation = "hidden_activation",
     .sliding = EVEN_LAYERS,
     .head_dim = 1,
     .kv_heads = 1,
     .own = {"query_pre_attn_scalar", "attn_logit_softcapping", "sliding_window_size"}},
    {.model_type = "granite",
     .kv_heads = 1,
     .logit_scale = "attention_multiplier",
     .own = {"attention_multiplier", "embedding_multiplier", "residual_multiplier",
             "logits_scaling"}},
    {.model_type = "glm", .head_dim = 1, .kv_heads = 1, .rope = {.partial = 1, .interleaved = 1}},
    {.model_type = "glm4", .head_dim = 1, .kv_heads = 1, .rope = {.partial = 1, .interleaved = 1}},
    {.model_type = "phi3",
     .sliding = ALL_LAYERS,
     .kv_heads = 1,
     .fixed = {{"full_attn_mod", "1"}, {"interpolate_factor", "1"}},
     .own = {"lm_head_bias"}},
    {.model_type = "mixtral",
     .sliding = ALL_LAYERS,
     .kv_heads = 1,
     .experts = "num_experts_per_tok",
     .own = {"num_experts_per_tok", "num_local_experts", "output_router_logits",
             "router_aux_loss_coef", "router_jitter_noise"}},
    {.model_type = "qwen3_moe",
     .qk_norm = 1,
     .head_dim = 1,
     .kv_heads = 1,
     .width = "moe_intermediate_size",
     .experts = "num_experts_per_tok",
     .fixed = {{"use_qk_norm", "true"}},
     .own = {"moe_intermediate_size", "num_experts", "num_experts_per_tok", "norm_topk_prob",
             "decoder_sparse_step", "mlp_only_layers", "output_router_logits",
             "router_aux_loss_coef"}},
    {.model_type = "smollm3",
     .plain = LISTED_PLAIN,
     .kv_heads = 1,
     .own = {"no_rope_layers", "no_rope_layer_interval"}},
    {.model_type = "cohere2",
     .sliding = PATTERN_LAYERS,
     .plain = FULL_PLAIN,
     .kv_heads = 1,
     .rope = {.interleaved = 1, .part = "rotary_pct"},
     .fixed = {{"position_embedding_type", "rope_gptj"},
               {"order_of_interleaved_layers", "local_attn_first"}},
     .own = {"rotary_pct", "sliding_window_pattern", "layer_switch", "logit_scale",
             "use_gated_activation", "use_parallel_block", "use_parallel_embedding",
             "use_embedding_sharing"}},
    {.model_type = "gemma3_text",
     .activation = "hidden_activation",
     .sliding = PATTERN_LAYERS,
     .qk_norm = 1,
     .head_dim = 1,
     .kv_heads = 1,
     .rope = {.window = 1, .window_theta = "rope_local_base_freq"},
     .own = {"query_pre_attn_scalar", "attn_logit_softcapping", "sliding_window_pattern",
             "rope_local_base_freq"}},
    /* hidden_act says silu of what swiglu_limit bounds. */
    {.model_type = "gpt_oss",
     .sliding = EVEN_LAYERS,
     .head_dim = 1,
     .kv_heads = 1,
     .sinks = 1,
     .dtype = FIG_BF16,
     .experts = "num_experts_per_tok",
     .limited = 1,
     .own = {"num_local_experts", "num_experts_per_tok", "experts_per_token", "swiglu_limit",
             "initial_context_length", "router_aux_loss_coef", "output_router_logits"}},
    /* Their norms of q and k go over all heads at once and come with the projections. */
    {.model_type = "olmo2", .kv_heads = 1},
    {.model_type = "olmo3", .sliding = LISTED_LAYERS, .kv_heads = 1, .rope = {.window = 1}},
};
enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

/* What is refused with a reason of its own. */
static const char *const refused[][2] = {
    {"llama4", "whose layers see chunks of a sequence, which this library does not do"},
    {"llama4_text", "whose layers see chunks of a sequence, which this library does not do"},
    {"glm4_moe", "whose first layers have no experts, and are wider than the others"}};
enum { REFUSED_COUNT = sizeof refused / sizeof refused[0] };

static const fig_document_range layer_range = {1, FIG_LAYER_LIMIT},
                                head_range = {1, FIG_HEAD_LIMIT};
static const fig_document_range width_range = {1, FIG_WIDTH_LIMIT}, any_count = {1, INT32_MAX};

static fig_status refuse_of_family(const fig_document *config, const family *model,
                                   const char *field) {
    return fig_config_fields_refuse(config, model->model_type, field);
}

static int is_own(const family *model, const char *field) {
    for (int i = 0; i < OWN_LIMIT && model->own[i] != NULL; i++)
        if (strcmp(field, model->own[i]) == 0) return 1;
    return 0;
}

/* 1: the field is one of those that have one value, and has it. */
static int is_fixed(const fig_document *config, const family *model, const char *field) {
    const json_t *found = fig_document_find(config, field);
    const char *value = json_is_true(found) ? "true" : json_string_value(found);
    char number[32];
    if (json_is_integer(found)) {
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(found));
        value = number;
    }
    for (int i = 0; i < 2 && model->fixed[i][0] != NULL; i++)
        if (strcmp(field, model->fixed[i][0]) == 0)
            return value != NULL && strcmp(value, model->fixed[i][1]) == 0;
    return 0;
}

static fig_status refuse_unknown(const fig_document *config, const family *model) {
    const char *field;
    json_t *value;
    json_object_foreach(config->object, field, value) {
        if (fig_config_fields_ask(value) && !fig_config_fields_know(field) &&
            !is_own(model, field) && !is_fixed(config, model, field))
            return refuse_of_family(config, model, field);
    }
    return FIG_OK;
}

static fig_status read_family(const fig_document *config, const family **model) {
    const char *name;
    char known[256] = "this library has";
    FIG_TRY(fig_document_need_text(config, "model_type", &name));
    for (int i = 0; i < REFUSED_COUNT; i++)
        if (strcmp(name, refused[i][0]) == 0)
            return fig_document_refuse(config, "model_type", FIG_UNSUPPORTED, refused[i][1]);
    for (int i = 0; i < FAMILY_COUNT; i++) {
        *model = &families[i];
        if (strcmp(name, families[i].model_type) == 0) return FIG_OK;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s %s", i == 0 ? "" : ",",
                 families[i].model_type);
    }
    const size_t used = strlen(known);
    snprintf(known + used, sizeof known - used,
             "; the step of another model can be recorded with fig_program");
    return fig_document_refuse(config, "model_type", FIG_UNSUPPORTED, known);
}

/* ---- Window */

/* Leaves 0 where there is no window to use. */
static fig_status read_window(const fig_document *config, const family *model, fig_spec *spec) {
    const int given = fig_document_find(config, "sliding_window") != NULL;
    int used = 1;
    spec->window = 0;
    FIG_TRY(fig_document_read_truth(config, "use_sliding_window", &used));
    switch (model->sliding) {
    case NO_LAYERS:
        return given && used ? refuse_of_family(config, model, "sliding_window") : FIG_OK;
    case UPPER_LAYERS:
        if (given) FIG_TRY(fig_document_need(config, "use_sliding_window"));
        if (!used || fig_document_find(config, "use_sliding_window") == NULL) return FIG_OK;
        return fig_document_need_integer(config, "sliding_window", any_count, &spec->window);
    case ALL_LAYERS:
        /* Absent, it would be whatever the family's code says; null is none. */
        FIG_TRY(fig_document_need(config, "sliding_window"));
        if (!used) return refuse_of_family(config, model, "use_sliding_window");
        return fig_document_read_integer(config, "sliding_window", any_count, &spec->window);
    case PATTERN_LAYERS:
    case LISTED_LAYERS:
    case EVEN_LAYERS: break;
    }
    if (!used) return refuse_of_family(config, model, "use_sliding_window");
    return fig_document_need_integer(config, "sliding_window", any_count, &spec->window);
}

/* 1: the layer slides, as the array says. */
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

/* "max_window_layers" counts the layers below the first that slides, whatever its name says: so the
 * models' own code has it. */
static int slides_by_rule(const family *model, int32_t layer, int32_t number) {
    if (model->sliding == EVEN_LAYERS) return layer % 2 == 0;
    if (model->sliding == PATTERN_LAYERS) return (layer + 1) % number != 0;
    return model->sliding == ALL_LAYERS || layer >= number;
}

static fig_status read_window_layers(const fig_document *config, const family *model,
                                     fig_spec *spec) {
    const json_t *types = fig_document_find(config, "layer_types");
    int32_t number = 0, sliding = 0;
    memset(spec->window_layers, 0, sizeof spec->window_layers);
    if (types != NULL && json_array_size(types) != (size_t)spec->layers)
        return fig_document_refuse(config, "layer_types", FIG_INVALID,
                                   "it must be an array of num_hidden_layers strings");
    if (types == NULL && spec->window == 0) return FIG_OK;
    if (types == NULL && model->sliding == UPPER_LAYERS)
        FIG_TRY(fig_document_need_integer(config, "max_window_layers",
                                          (fig_document_range){0, INT32_MAX}, &number));
    if (model->sliding == LISTED_LAYERS) FIG_TRY(fig_document_need(config, "layer_types"));
    if (types == NULL && model->sliding == PATTERN_LAYERS)
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

/* The list has a number for each layer, and it is those with 0 that have no RoPE. */
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

/* Without a bit the window, where there is one, is every layer's. */
static int has_window(const fig_spec *spec, int32_t layer) {
    for (int32_t other = 0; other < spec->layers; other++)
        if (spec->window_layers[other / 64] >> (other % 64) & 1)
            return (int)(spec->window_layers[layer / 64] >> (layer % 64) & 1);
    return spec->window > 0;
}

static fig_status read_plain_layers(const fig_document *config, const family *model,
                                    fig_spec *spec) {
    int32_t interval = 0;
    const json_t *list = fig_document_find(config, "no_rope_layers");
    memset(spec->plain_layers, 0, sizeof spec->plain_layers);
    if (model->plain == NONE_PLAIN) return FIG_OK;
    if (model->plain == LISTED_PLAIN && list != NULL) return read_plain_list(config, list, spec);
    if (model->plain == LISTED_PLAIN)
        FIG_TRY(fig_document_need_integer(config, "no_rope_layer_interval", any_count, &interval));
    for (int32_t layer = 0; layer < spec->layers; layer++) {
        if (model->plain == FULL_PLAIN ? !has_window(spec, layer) : (layer + 1) % interval == 0)
            set_plain(spec, layer);
    }
    return FIG_OK;
}

/* ---- The rest */

static fig_status read_heads(const fig_document *config, const family *model, fig_spec *spec) {
    int32_t hidden_size = 0;
    FIG_TRY(fig_document_need_integer(config, "num_attention_heads", head_range, &spec->q_heads));
    spec->kv_heads = spec->q_heads; /* null says so, too */
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

/* A family without a say on them has 1 / sqrt(head_dim) and no cap. */
static fig_status read_logits(const fig_document *config, const family *model, fig_spec *spec) {
    float scalar = 0;
    spec->soft_cap = spec->sm_scale = spec->qk_norm_epsilon = 0;
    if (model->qk_norm)
        FIG_TRY(fig_document_need_real(config, "rms_norm_eps", &spec->qk_norm_epsilon));
    if (model->logit_scale != NULL)
        return fig_document_need_real(config, model->logit_scale, &spec->sm_scale);
    if (!is_own(model, "query_pre_attn_scalar")) return FIG_OK;
    FIG_TRY(fig_document_need_real(config, "query_pre_attn_scalar", &scalar));
    spec->sm_scale = (float)(1 / sqrt((double)scalar));
    FIG_TRY(fig_document_need(config, "attn_logit_softcapping"));
    return fig_document_read_real(config, "attn_logit_softcapping", &spec->soft_cap);
}

/* Layers that have experts and others that have none would differ in width. */
static fig_status read_experts(const fig_document *config, const family *model, fig_spec *spec) {
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

static fig_status read_activation(const fig_document *config, const family *model,
                                  fig_activation *activation) {
    static const struct {
        const char *name;
        fig_activation activation;
    } names[] = {{"silu", FIG_SILU}, {"gelu", FIG_GELU}, {"gelu_pytorch_tanh", FIG_GELU_TANH}};
    const char *name;
    const char *field = model->activation != NULL ? model->activation : "hidden_act";
    FIG_TRY(fig_document_need_text(config, field, &name));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *activation = names[i].activation;
        if (strcmp(name, names[i].name) == 0) return FIG_OK;
    }
    return fig_document_refuse(config, field, FIG_UNSUPPORTED,
                               "this library has silu, gelu and gelu_pytorch_tanh");
}

/* What is called silu, with a limit beside it. */
static fig_status read_limited(const fig_document *config, fig_activation *activation) {
    float limit = 0;
    if (*activation != FIG_SILU)
        return fig_document_refuse(config, "hidden_act", FIG_UNSUPPORTED,
                                   "this library has silu beside a swiglu_limit");
    FIG_TRY(fig_document_need_real(config, "swiglu_limit", &limit));
    *activation = FIG_SWIGLU_LIMITED;
    if (limit == 7.0f) return FIG_OK;
    return fig_document_refuse(config, "swiglu_limit", FIG_UNSUPPORTED, "this library has 7");
}

static fig_status read_ffn(const fig_document *config, const family *model, fig_spec *spec) {
    const char *width = model->width != NULL ? model->width : "intermediate_size";
    spec->ffn_width = spec->ffn_rows = 0;
    spec->activation = FIG_SILU;
    FIG_TRY(fig_document_need_integer(config, width, width_range, &spec->ffn_width));
    FIG_TRY(read_experts(config, model, spec));
    FIG_TRY(read_activation(config, model, &spec->activation));
    return model->limited ? read_limited(config, &spec->activation) : FIG_OK;
}

/* dtype is the newer spelling of torch_dtype. */
static fig_status read_dtype(const fig_document *config, const family *model, fig_dtype *dtype) {
    static const struct {
        const char *name;
        fig_dtype dtype;
    } names[] = {{"float32", FIG_F32}, {"float16", FIG_F16}, {"bfloat16", FIG_BF16}};
    const char *field = fig_document_find(config, "dtype") != NULL ? "dtype" : "torch_dtype";
    const json_t *older = fig_document_find(config, "torch_dtype");
    const char *name;
    *dtype = model->dtype;
    if (model->dtype != 0 && fig_document_find(config, field) == NULL) return FIG_OK;
    FIG_TRY(fig_document_need_text(config, field, &name));
    if (older != NULL && !json_equal(fig_document_find(config, field), older))
        return fig_document_refuse(config, "torch_dtype", FIG_INVALID, "dtype is another");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *dtype = names[i].dtype;
        if (strcmp(name, names[i].name) == 0) return FIG_OK;
    }
    return fig_document_refuse(config, field, FIG_UNSUPPORTED,
                               "this library has float32, float16 and bfloat16");
}

static fig_status read_fields(const fig_document *file, fig_spec *spec) {
    const family *model;
    fig_document text;
    const fig_document *config = &text;
    int32_t positions = 0;
    FIG_TRY(fig_config_fields_find_text(file, &text));
    FIG_TRY(read_family(config, &model));
    FIG_TRY(refuse_unknown(config, model));
    FIG_TRY(fig_document_need_integer(config, "num_hidden_layers", layer_range, &spec->layers));
    FIG_TRY(read_heads(config, model, spec));
    FIG_TRY(read_ffn(config, model, spec));
    FIG_TRY(read_dtype(config, model, &spec->dtype));
    FIG_TRY(fig_config_rope_read(config, &model->rope, spec));
    spec->sinks = model->sinks;
    FIG_TRY(read_logits(config, model, spec));
    FIG_TRY(read_window(config, model, spec));
    FIG_TRY(read_window_layers(config, model, spec));
    FIG_TRY(read_plain_layers(config, model, spec));
    FIG_TRY(fig_document_read_integer(config, "max_position_embeddings", any_count, &positions));
    if (spec->kv_limit == 0) spec->kv_limit = positions < FIG_KV_LIMIT ? positions : FIG_KV_LIMIT;
    return FIG_OK;
}

/* A caller of an older header has room for what it knows, and is told where that is not enough. */
static fig_status hand_over(const char *path, fig_spec *read, fig_spec *spec) {
    const uint8_t *bytes = (const uint8_t *)read;
    const size_t known = spec->size < sizeof *read ? spec->size : sizeof *read;
    for (size_t i = known; i < sizeof *read; i++) {
        if (bytes[i] != 0)
            return fig_fail(FIG_UNSUPPORTED,
                            "%s: it says more than a fig_spec of %" PRIu32 " bytes can hold", path,
                            spec->size);
    }
    read->size = spec->size;
    memcpy(spec, read, known);
    return FIG_OK;
}

fig_status fig_spec_read_config(fig_spec *spec, const char *path) {
    fig_spec read;
    fig_document config;
    if (spec == NULL) return fig_fail(FIG_INVALID, "config: spec is NULL");
    if (path == NULL) return fig_fail(FIG_INVALID, "config: path is NULL");
    FIG_TRY(fig_status_take_options(&read, sizeof read, spec, "fig_spec"));
    FIG_TRY(fig_document_open(&config, path));
    const fig_status status = read_fields(&config, &read);
    fig_document_close(&config);
    FIG_TRY(status);
    return hand_over(path, &read, spec);
}
