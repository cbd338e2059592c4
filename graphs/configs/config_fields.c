/* config_fields.c: lists the known fields of a config.json, and finds the object that describes the
 * decoder.
 *
 * config.c owns the meaning of fields. Invariant: a field that a file leaves out gets a value here
 * only if its family publishes files without it and documents that value. */
#include "graphs/configs/config_fields.h"

#include <stdio.h>
#include <string.h>

#include "planner/status.h"

/* The fields that are read for every family. Each list ends with NULL. */
/* clang-format off */
static const char *const read_fields[] = {
    "model_type", "torch_dtype", "dtype", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "hidden_size", "intermediate_size", "hidden_act",
    "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
    "sliding_window", "use_sliding_window", "max_window_layers", "layer_types",
    "max_position_embeddings", "original_max_position_embeddings", "quantization_config", NULL};
/* Fields on which a decode step does not depend: token ids; work that the caller does, such as
 * biases, norms and the final logits; sampling; and notes from the program that wrote the file. */
static const char *const idle_fields[] = {
    "architectures", "auto_map", "transformers_version", "vocab_size", "bos_token_id",
    "eos_token_id", "eod_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "im_start_id",
    "im_end_id", "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id",
    "tie_word_embeddings", "use_cache", "cache_implementation", "initializer_range",
    "attention_bias", "attention_out_bias", "use_bias", "qkv_bias", "use_qkv_bias", "mlp_bias",
    "attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout",
    "residual_dropout", "embedding_dropout", "classifier_dropout", "layer_norm_eps", "norm_eps",
    "pretraining_tp", "final_logit_softcapping", "is_llama_config", "max_sequence_length",
    "model_max_length", "neftune_noise_alpha", "transformers.js_config", "unsloth_fixed",
    "unsloth_version", "max_length", "max_new_tokens", "min_length", "do_sample",
    "early_stopping", "num_beams", "num_beam_groups", "num_return_sequences", "diversity_penalty",
    "length_penalty", "repetition_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens",
    "temperature", "top_k", "top_p", "typical_p", "is_decoder", "id2label", "label2id",
    "return_dict", "return_dict_in_generate", "output_attentions", "output_hidden_states",
    "output_scores", "problem_type", "task_specific_params", "finetuning_task", "prefix",
    "tokenizer_class", NULL};
/* Fields that stand beside a text_config, or in a file that describes decoder and images in one
 * object. */
static const char *const image_fields[] = {
    "text_config", "vision_config", "image_token_index", "boi_token_index", "eoi_token_index",
    "image_token_id", "video_token_id", "vision_token_id", "vision_start_token_id",
    "vision_end_token_id", "boi_token_id", "eoi_token_id", "mm_tokens_per_image",
    "multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size",
    "vision_feature_layer", NULL};
/* clang-format on */

/* The models that also see images. Their text_config leaves out fields that equal the fields of the
 * family's first model. `absent` is a JSON object with the values of these fields. `older` has the
 * values of further fields, which files without rope_parameters leave out as well. `flat` is the
 * model_type of the decoder in files that have all fields in one object and no text_config; NULL if
 * no such files exist. */
static const struct image_model {
    const char *model_type, *absent, *older, *flat;
} image_models[] = {
    {"gemma3",
     "{\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 256,"
     " \"hidden_activation\": \"gelu_pytorch_tanh\", \"max_position_embeddings\": 131072,"
     " \"rms_norm_eps\": 1e-6, \"query_pre_attn_scalar\": 256, \"attn_logit_softcapping\": null,"
     " \"sliding_window_pattern\": 6}",
     "{\"rope_theta\": 1e6, \"rope_local_base_freq\": 1e4}", NULL},
    {"mistral3", "{}", "{}", NULL},
    {"qwen2_5_vl", "{}", "{}", "qwen2_5_vl_text"},
    {"qwen3_vl", "{}", "{}", NULL}};
enum { IMAGE_MODEL_COUNT = sizeof image_models / sizeof image_models[0] };

static int is_listed(const char *const *fields, const char *field) {
    while (*fields != NULL && strcmp(*fields, field) != 0)
        fields++;
    return *fields != NULL;
}

int fig_config_fields_know(const char *field) {
    return field[0] == '_' || is_listed(read_fields, field) || is_listed(idle_fields, field);
}

int fig_config_fields_read(const char *field) {
    return is_listed(read_fields, field) || strcmp(field, "text_config") == 0;
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
    snprintf(wrong, sizeof wrong, "which this library does not support for model_type %.40s",
             model_type);
    return fig_document_refuse(config, field, FIG_UNSUPPORTED, wrong);
}

fig_status fig_config_fields_refuse_unknown(const fig_document *config, const char *model_type,
                                            const char *field) {
    char wrong[2 * FIG_DOCUMENT_TEXT];
    snprintf(wrong, sizeof wrong,
             "which this library does not know for model_type %.40s; if it does not affect a step, "
             "list it as a field to ignore",
             model_type);
    return fig_document_refuse(config, field, FIG_UNSUPPORTED, wrong);
}

static fig_status refuse_unknown(const fig_document *config, const char *model_type) {
    const char *field;
    json_t *value;
    json_object_foreach(config->object, field, value) {
        if (fig_config_fields_ask(value) && !fig_config_fields_know(field) &&
            !is_listed(image_fields, field) && !fig_document_ignores(config, field))
            return fig_config_fields_refuse_unknown(config, model_type, field);
    }
    return FIG_OK;
}

/* Copies to `text` the fields that say how the parts of a model are stored. The file gives these
 * fields once at the top level; the parts may repeat them. Returns 1 if memory runs out. */
static int take_stored(const fig_document *config, fig_document *text) {
    static const char *const fields[] = {"dtype", "torch_dtype", "quantization_config"};
    const int has_dtype =
        fig_document_find(text, fields[0]) != NULL || fig_document_find(text, fields[1]) != NULL;
    for (int i = has_dtype ? 2 : 0; i < 3; i++) {
        json_t *stored = fig_document_find(config, fields[i]);
        if (stored == NULL || fig_document_find(text, fields[i]) != NULL) continue;
        if (json_object_set(text->object, fields[i], stored) != 0) return 1;
    }
    return 0;
}

/* Adds the fields of the JSON object `absent` that the text leaves out. Returns 1 if memory runs
 * out. */
static int take_absent(const char *absent, fig_document *text) {
    json_t *fields = json_loads(absent, 0, NULL);
    const int failed = fields == NULL || json_object_update_missing(text->object, fields) != 0;
    json_decref(fields);
    return failed;
}

void fig_config_fields_list_image_models(char *sentence, size_t bytes) {
    for (int i = 0; i < IMAGE_MODEL_COUNT; i++) {
        const size_t used = strlen(sentence);
        snprintf(sentence + used, bytes - used, " %s%s", image_models[i].model_type,
                 i < IMAGE_MODEL_COUNT - 1 ? ","
                                           : "; record another model's step with fig_program");
    }
}

/* Leaves only the decoder's fields in a file that has no object for them. */
static fig_status flatten(const fig_document *config, const char *model_type) {
    for (int i = 0; image_fields[i] != NULL; i++)
        json_object_del(config->object, image_fields[i]);
    if (json_object_set_new(config->object, "model_type", json_string(model_type)) == 0)
        return FIG_OK;
    return fig_fail(FIG_NOMEM, "%s: its JSON", config->path);
}

fig_status fig_config_fields_find_text(const fig_document *config, fig_document *text) {
    const char *name;
    *text = *config;
    FIG_TRY(fig_document_need_text(config, "model_type", &name));
    for (int i = 0; i < IMAGE_MODEL_COUNT; i++) {
        if (strcmp(name, image_models[i].model_type) != 0) continue;
        const int has_text = fig_document_find(config, "text_config") != NULL;
        if (!has_text && image_models[i].flat != NULL) return flatten(config, image_models[i].flat);
        FIG_TRY(refuse_unknown(config, name));
        if (!has_text) return fig_document_refuse_missing(config, "text_config");
        FIG_TRY(fig_document_enter(config, "text_config", text));
        const int is_newer = fig_document_find(text, "rope_parameters") != NULL;
        if (take_stored(config, text) == 0 && take_absent(image_models[i].absent, text) == 0 &&
            take_absent(is_newer ? "{}" : image_models[i].older, text) == 0)
            return FIG_OK;
        return fig_fail(FIG_NOMEM, "%s: its JSON", config->path);
    }
    return FIG_OK;
}
