/* config_fields.c: see config_fields.h.
 *
 * Leaves what fields mean to config.c. Invariant: what a file leaves out is taken from here only
 * where its family publishes files that leave it out, and documents what it then is. */
#include "graphs/files/config_fields.h"

#include <stdio.h>
#include <string.h>

#include "planner/status.h"

/* What is read, and what a decode step does not depend on: the token numbers, what is the caller's
 * work, as biases, norms and the last logits, how tokens are chosen, and notes of whoever made the
 * file. Ends with NULL. */
/* clang-format off */
static const char *const known_fields[] = {
    "model_type", "torch_dtype", "dtype", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "hidden_size", "intermediate_size", "hidden_act",
    "hidden_activation", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters",
    "partial_rotary_factor", "sliding_window", "use_sliding_window", "max_window_layers",
    "layer_types", "max_position_embeddings", "original_max_position_embeddings", "architectures",
    "auto_map", "transformers_version", "vocab_size", "bos_token_id", "eos_token_id",
    "pad_token_id", "unk_token_id", "sep_token_id", "tie_word_embeddings", "use_cache",
    "cache_implementation", "initializer_range", "attention_bias", "attention_dropout",
    "attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout", "mlp_bias", "layer_norm_eps",
    "norm_eps", "pretraining_tp", "final_logit_softcapping", "quantization_config",
    "is_llama_config", "max_sequence_length", "model_max_length", "neftune_noise_alpha",
    "transformers.js_config", "unsloth_fixed", "unsloth_version",
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "num_return_sequences", "diversity_penalty", "length_penalty", "repetition_penalty",
    "temperature", "top_k", "top_p", "typical_p", "is_decoder", "id2label", "label2id",
    "return_dict", NULL};
/* Beside a text_config. */
static const char *const image_fields[] = {
    "text_config", "vision_config", "image_token_index", "boi_token_index", "eoi_token_index",
    "image_token_id", "boi_token_id", "eoi_token_id", "mm_tokens_per_image",
    "multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size",
    "vision_feature_layer", NULL};
/* clang-format on */

/* Models that see images as well. Their text_config leaves out what it has in common with the
 * first of its family; `absent` is that, an object, and `older` what the form without
 * rope_parameters leaves out beside it. */
static const struct image_model {
    const char *model_type, *absent, *older;
} image_models[] = {
    {"gemma3",
     "{\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 256,"
     " \"hidden_activation\": \"gelu_pytorch_tanh\", \"max_position_embeddings\": 131072,"
     " \"rms_norm_eps\": 1e-6, \"query_pre_attn_scalar\": 256, \"attn_logit_softcapping\": null,"
     " \"sliding_window_pattern\": 6}",
     "{\"rope_theta\": 1e6, \"rope_local_base_freq\": 1e4}"},
    {"mistral3", "{}", "{}"}};
enum { IMAGE_MODEL_COUNT = sizeof image_models / sizeof image_models[0] };

static int is_listed(const char *const *fields, const char *field) {
    while (*fields != NULL && strcmp(*fields, field) != 0)
        fields++;
    return *fields != NULL;
}

int fig_config_fields_know(const char *field) {
    return field[0] == '_' || is_listed(known_fields, field);
}

int fig_config_fields_ask(const json_t *value) {
    if (json_is_null(value) || json_is_false(value)) return 0;
    if (json_is_array(value)) return json_array_size(value) > 0;
    if (json_is_object(value)) return json_object_size(value) > 0;
    return !json_is_number(value) || json_number_value(value) != 0.0;
}

fig_status fig_config_fields_refuse(const fig_document *config, const char *model_type,
                                    const char *field) {
    char wrong[FIG_DOCUMENT_TEXT];
    snprintf(wrong, sizeof wrong, "which this library does not do for model_type %.40s",
             model_type);
    return fig_document_refuse(config, field, FIG_UNSUPPORTED, wrong);
}

static fig_status refuse_unknown(const fig_document *config, const char *model_type) {
    const char *field;
    json_t *value;
    json_object_foreach(config->object, field, value) {
        if (fig_config_fields_ask(value) && !fig_config_fields_know(field) &&
            !is_listed(image_fields, field))
            return fig_config_fields_refuse(config, model_type, field);
    }
    return FIG_OK;
}

/* The file says once what its parts are stored as, and the parts may say it, too. */
static int take_dtype(const fig_document *config, fig_document *text) {
    static const char *const spellings[] = {"dtype", "torch_dtype"};
    for (int i = 0; i < 2; i++)
        if (fig_document_find(text, spellings[i]) != NULL) return 0;
    for (int i = 0; i < 2; i++) {
        json_t *dtype = fig_document_find(config, spellings[i]);
        if (dtype != NULL && json_object_set(text->object, spellings[i], dtype) != 0) return 1;
    }
    return 0;
}

/* 1: there is no memory for it. */
static int take_absent(const char *absent, fig_document *text) {
    json_t *fields = json_loads(absent, 0, NULL);
    const int failed = fields == NULL || json_object_update_missing(text->object, fields) != 0;
    json_decref(fields);
    return failed;
}

fig_status fig_config_fields_find_text(const fig_document *config, fig_document *text) {
    const char *name;
    *text = *config;
    FIG_TRY(fig_document_need_text(config, "model_type", &name));
    for (int i = 0; i < IMAGE_MODEL_COUNT; i++) {
        if (strcmp(name, image_models[i].model_type) != 0) continue;
        FIG_TRY(refuse_unknown(config, name));
        if (fig_document_find(config, "text_config") == NULL)
            return fig_document_refuse_missing(config, "text_config");
        FIG_TRY(fig_document_enter(config, "text_config", text));
        const int is_newer = fig_document_find(text, "rope_parameters") != NULL;
        if (take_dtype(config, text) == 0 && take_absent(image_models[i].absent, text) == 0 &&
            take_absent(is_newer ? "{}" : image_models[i].older, text) == 0)
            return FIG_OK;
        return fig_fail(FIG_NOMEM, "%s: its JSON", config->path);
    }
    return FIG_OK;
}
