/* test_config_refusals.c: tests that a config.json is refused if it needs an unsupported feature or
 * has a value that makes no sense. The message must name the field, and the spec must not
 * change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph.h"
#include "tests/support/fault.h"
#include "tests/support/files/json_file.h"
#include "tests/support/random.h"

static fig_spec empty_spec(void) {
    return (fig_spec){.size = sizeof(fig_spec)};
}

static const char llama[] = "tests/configs/llama-3.1-8b.json";
static const char newer[] = "tests/configs/llama-3.1-8b-newer-form.json";
static const char gemma[] = "tests/configs/gemma-2-9b-it.json";
static const char mistral[] = "tests/configs/mistral-7b-v0.1.json";
static const char qwen2[] = "tests/configs/qwen2.5-7b-instruct.json";
static const char qwen3[] = "tests/configs/qwen3-8b.json";

static const char granite[] = "tests/configs/granite-3.1-8b.json";

static const char glm4[] = "tests/configs/glm-4-9b-0414.json";
static const char phi3[] = "tests/configs/phi-3-mini-4k.json";
static const char mixtral[] = "tests/configs/mixtral-8x7b.json";
static const char moe[] = "tests/configs/qwen3-30b-a3b.json";
static const char smollm[] = "tests/configs/smollm3-3b.json";
static const char command[] = "tests/configs/command-r7b.json";
static const char phi4[] = "tests/configs/phi-4-mini.json";
static const char oss[] = "tests/configs/gpt-oss-20b.json";
static const char gemma3[] = "tests/configs/gemma-3-1b-it.json";
static const char gemma_4b[] = "tests/configs/gemma-3-4b-it.json";
static const char small[] = "tests/configs/mistral-small-3.1-24b.json";
static const char olmo3[] = "tests/configs/olmo-3-7b.json";

/* rope_parameters with one object for each of the two types of layers. */
#define BOTH(full, sliding) "{\"full_attention\":{" full "},\"sliding_attention\":{" sliding "}}"

static void assert_said(const char *part) {
    if (strstr(fig_message(), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fig_message(), part);
}

typedef struct refusal {
    fig_json_change change;
    fig_status status;
    const char *said;
} refusal;

static const refusal refusals[] = {
    {{llama, NULL, "model_type", "\"mamba\""}, FIG_UNSUPPORTED, "model_type is \"mamba\""},
    {{llama, NULL, "model_type", "\"phi\""}, FIG_UNSUPPORTED, "qwen2, qwen3, gemma, gemma2"},
    {{llama, NULL, "model_type", "\"llama4_text\""}, FIG_UNSUPPORTED, "see chunks of a sequence"},
    {{llama, NULL, "model_type", "\"deepseek_v32\""}, FIG_UNSUPPORTED, "indexer chooses (DSA)"},
    {{llama, NULL, "model_type", "\"llama4\""}, FIG_UNSUPPORTED, "see chunks of a sequence"},
    {{llama, NULL, "model_type", "\"glm4_moe\""}, FIG_UNSUPPORTED, "first layers have no experts"},
    {{llama, NULL, "model_type", "\"phi\""}, FIG_UNSUPPORTED, "gemma3, mistral3, qwen2_5_vl"},
    {{llama, NULL, "model_type", "\"hunyuan_v1_dense\""},
     FIG_UNSUPPORTED,
     "norms of q and k come after RoPE"},
    {{llama, NULL, "model_type", "\"qwen3_vl\""}, FIG_INVALID, "text_config is missing"},
    {{llama, NULL, "hidden_activation", "\"gelu\""}, FIG_UNSUPPORTED, "hidden_activation is"},
    {{llama, NULL, "model_type", "\"gemma3\""}, FIG_INVALID, "text_config is missing"},
    {{small, NULL, "text_config", "[]"}, FIG_INVALID, "text_config is [], it must be an object"},
    {{small, "text_config", "model_type", "\"ministral3\""},
     FIG_UNSUPPORTED,
     "text_config.model_type is \"ministral3\", whose queries are scaled by their positions"},
    {{small, "text_config", "sliding_window", NULL},
     FIG_INVALID,
     "text_config.sliding_window is missing"},
    {{small, "text_config", "torch_dtype", "\"float16\""}, FIG_OK, ""},
    {{small, NULL, "dtype", NULL}, FIG_INVALID, "text_config.dtype is missing, and so is"},
    {{small, NULL, "adapter_rank", "8"}, FIG_UNSUPPORTED, "model_type mistral3"},
    {{gemma_4b, "text_config", "sliding_window", NULL},
     FIG_INVALID,
     "text_config.sliding_window is missing"},
    {{gemma_4b, "text_config", "rope_local_base_freq", "null"},
     FIG_INVALID,
     "text_config.rope_local_base_freq is missing"},
    {{gemma_4b, "text_config", "attn_logit_softcapping", "50.0"}, FIG_OK, ""},
    {{llama, NULL, "text_config", "{}"}, FIG_OK, ""},
    {{llama, NULL, "text_config", "{\"layers\":1}"}, FIG_UNSUPPORTED, "model_type llama"},
    {{llama, NULL, "activation", "\"swiglu\""}, FIG_OK, ""},
    {{llama, NULL, "activation", "\"relu2\""}, FIG_UNSUPPORTED, "activation is \"relu2\""},
    {{llama, NULL, "rope_interleaved", "true"}, FIG_UNSUPPORTED, "rope_interleaved is true"},
    {{llama, NULL, "use_qk_norm", "true"}, FIG_UNSUPPORTED, "use_qk_norm is true"},
    {{llama, NULL, "pruned_heads", "{}"}, FIG_OK, ""},
    {{llama, NULL, "pruned_heads", "{\"1\":[0]}"}, FIG_UNSUPPORTED, "pruned_heads is"},
    {{llama, NULL, "model_type", NULL}, FIG_INVALID, "model_type is missing"},
    {{llama, NULL, "model_type", "7"}, FIG_INVALID, "model_type is 7"},
    {{llama, NULL, "hidden_act", "\"relu2\""}, FIG_UNSUPPORTED, "hidden_act is \"relu2\""},
    {{llama, NULL, "hidden_act", NULL}, FIG_INVALID, "hidden_act is missing"},
    {{llama, NULL, "num_hidden_layers", NULL}, FIG_INVALID, "num_hidden_layers is missing"},
    {{llama, NULL, "num_hidden_layers", "0"}, FIG_INVALID, "num_hidden_layers is 0"},
    {{llama, NULL, "num_hidden_layers", "513"}, FIG_INVALID, "1 to 512"},
    {{llama, NULL, "num_hidden_layers", "32.0"}, FIG_INVALID, "it must be an integer"},
    {{llama, NULL, "num_hidden_layers", "\"32\""}, FIG_INVALID, "num_hidden_layers is \"32\""},
    {{llama, NULL, "num_hidden_layers", "true"}, FIG_INVALID, "num_hidden_layers is true"},
    {{llama, NULL, "num_attention_heads", "-32"}, FIG_INVALID, "num_attention_heads is -32"},
    {{llama, NULL, "num_attention_heads", "4294967328"}, FIG_INVALID, "4294967328"},
    {{llama, NULL, "num_attention_heads", NULL}, FIG_INVALID, "num_attention_heads is missing"},
    {{llama, NULL, "num_key_value_heads", "[8]"}, FIG_INVALID, "num_key_value_heads is [8]"},
    {{mistral, NULL, "num_key_value_heads", NULL}, FIG_INVALID, "num_key_value_heads is missing"},
    {{qwen2, NULL, "num_key_value_heads", NULL}, FIG_INVALID, "num_key_value_heads is missing"},
    {{qwen3, NULL, "num_key_value_heads", NULL}, FIG_INVALID, "num_key_value_heads is missing"},
    {{gemma, NULL, "num_key_value_heads", NULL}, FIG_INVALID, "num_key_value_heads is missing"},
    {{mistral, NULL, "clip_qkv", "8.0"}, FIG_UNSUPPORTED, "clip_qkv is 8.0"},
    {{gemma, NULL, "num_kv_shared_layers", "10"}, FIG_UNSUPPORTED, "num_kv_shared_layers is 10"},
    {{qwen3, NULL, "attn_output_gate", "true"}, FIG_UNSUPPORTED, "attn_output_gate is true"},
    {{llama, NULL, "is_encoder_decoder", "true"}, FIG_UNSUPPORTED, "is_encoder_decoder is true"},
    {{llama, NULL, "attention_chunk_size", "8192"},
     FIG_UNSUPPORTED,
     "attention_chunk_size is 8192"},
    {{llama, NULL, "use_qk_norm", "true"}, FIG_UNSUPPORTED, "use_qk_norm is true"},
    {{llama, NULL, "attention_sinks", "4"}, FIG_UNSUPPORTED, "attention_sinks is 4"},
    {{llama, NULL, "v_head_dim", "64"}, FIG_UNSUPPORTED, "v_head_dim is 64"},
    {{llama, NULL, "add_cross_attention", "true"}, FIG_UNSUPPORTED, "add_cross_attention is true"},
    {{llama, NULL, "attn_temperature_tuning", "true"},
     FIG_UNSUPPORTED,
     "attn_temperature_tuning is true"},
    {{llama, NULL, "sliding_window_pattern", "6"}, FIG_UNSUPPORTED, "sliding_window_pattern is 6"},
    {{llama, NULL, "no_rope_layer_interval", "4"}, FIG_UNSUPPORTED, "no_rope_layer_interval is 4"},
    {{llama, NULL, "kv_lora_rank", "512"}, FIG_UNSUPPORTED, "kv_lora_rank is 512"},
    {{llama, NULL, "scale_attn_by_inverse_layer_idx", "true"},
     FIG_UNSUPPORTED,
     "scale_attn_by_inverse_layer_idx is true"},
    {{llama, NULL, "cross_attention_layers", "[3]"}, FIG_UNSUPPORTED, "cross_attention_layers is"},
    {{llama, NULL, "head_dim", "0"}, FIG_INVALID, "head_dim is 0"},
    {{llama, NULL, "hidden_size", "4097"}, FIG_INVALID, "hidden_size is 4097"},
    {{llama, NULL, "hidden_size", NULL}, FIG_INVALID, "hidden_size is missing"},
    {{llama, NULL, "intermediate_size", NULL}, FIG_INVALID, "intermediate_size is missing"},
    {{llama, NULL, "intermediate_size", "9223372036854775807"}, FIG_INVALID, "9223372036854775807"},
    {{llama, NULL, "torch_dtype", NULL},
     FIG_INVALID,
     "dtype is missing, and so is torch_dtype; the caller may give one"},
    {{llama, NULL, "torch_dtype", "\"float8_e4m3fn\""}, FIG_UNSUPPORTED, "float8_e4m3fn"},
    {{llama, NULL, "torch_dtype", "16"}, FIG_INVALID, "torch_dtype is 16"},
    {{llama, NULL, "dtype", "\"float16\""}, FIG_INVALID, "torch_dtype is \"bfloat16\""},
    {{llama, NULL, "max_position_embeddings", "-1"}, FIG_INVALID, "max_position_embeddings is -1"},
    {{llama, NULL, "rope_theta", "0"}, FIG_INVALID, "rope_theta is 0"},
    {{llama, NULL, "rope_theta", "1e39"}, FIG_INVALID, "rope_theta is 1e39"},
    {{llama, NULL, "rope_theta", "\"5e5\""}, FIG_INVALID, "rope_theta is \"5e5\""},
    {{llama, NULL, "rope_scaling", "\"llama3\""}, FIG_INVALID, "it must be an object"},
    {{llama, "rope_scaling", "rope_type", NULL}, FIG_INVALID, "rope_scaling.rope_type is missing"},
    {{llama, "rope_scaling", "rope_type", "\"ntk\""}, FIG_UNSUPPORTED, "is \"ntk\""},
    {{llama, "rope_scaling", "rope_type", "\"dynamic\""}, FIG_UNSUPPORTED, "for rope type dynamic"},
    {{llama, "rope_scaling", "rope_type", "[]"}, FIG_INVALID, "rope_type is []"},
    {{llama, "rope_scaling", "type", "\"linear\""}, FIG_INVALID, "type is \"linear\""},
    {{llama, "rope_scaling", "factor", NULL}, FIG_INVALID, "rope_scaling.factor is missing"},
    {{llama, "rope_scaling", "factor", "-8"}, FIG_INVALID, "rope_scaling.factor is -8"},
    {{llama, "rope_scaling", "low_freq_factor", NULL}, FIG_INVALID, "low_freq_factor is missing"},
    {{llama, "rope_scaling", "high_freq_factor", "{}"}, FIG_INVALID, "high_freq_factor is {}"},
    {{llama, "rope_scaling", "original_max_position_embeddings", "8192.5"}, FIG_INVALID, "8192.5"},
    {{llama, "rope_scaling", "attention_factor", "1.2"},
     FIG_UNSUPPORTED,
     "attention_factor is 1.2"},
    {{llama, "rope_scaling", "mrope_section", "[16,24]"}, FIG_UNSUPPORTED, "mrope_section"},
    {{llama, NULL, "rope_parameters", "{\"rope_type\":\"default\"}"}, FIG_INVALID, "rope_scaling"},
    {{newer, "rope_parameters", "rope_type", NULL}, FIG_INVALID, "rope_parameters.rope_type"},
    {{newer, "rope_parameters", "rope_type", "\"default\""}, FIG_UNSUPPORTED, "type default"},
    {{newer, NULL, "rope_theta", "10000.0"}, FIG_INVALID, "rope_parameters.rope_theta is 500000"},
    {{newer, "rope_parameters", "rope_theta", "null"}, FIG_OK, ""},
    {{newer, NULL, "rope_theta", "500000"}, FIG_OK, ""},
    {{newer, NULL, "torch_dtype", "\"bfloat16\""}, FIG_OK, ""},
    {{llama, NULL, "sliding_window", "4096"}, FIG_UNSUPPORTED, "sliding_window is 4096"},
    {{llama, NULL, "sliding_window", "null"}, FIG_OK, ""},
    {{llama, NULL, "attn_logit_softcapping", "50.0"}, FIG_UNSUPPORTED, "attn_logit_softcapping"},
    {{llama, NULL, "query_pre_attn_scalar", "256"}, FIG_UNSUPPORTED, "query_pre_attn_scalar"},
    {{llama, NULL, "attention_multiplier", "0.01"}, FIG_UNSUPPORTED, "attention_multiplier"},
    {{llama, NULL, "partial_rotary_factor", "1.5"}, FIG_INVALID, "partial_rotary_factor is 1.5"},
    {{llama, NULL, "partial_rotary_factor", "0"}, FIG_INVALID, "partial_rotary_factor is 0"},
    {{llama, NULL, "partial_rotary_factor", "0.3"}, FIG_INVALID, "partial_rotary_factor is 0.3"},
    {{llama, NULL, "partial_rotary_factor", "0.000001"}, FIG_INVALID, "an even part of head_dim"},
    {{llama, "rope_scaling", "partial_rotary_factor", "0.3"},
     FIG_INVALID,
     "rope_scaling.partial_rotary_factor is 0.3"},
    {{llama, NULL, "no_rope_layers", "[1,1,1,0]"}, FIG_UNSUPPORTED, "no_rope_layers"},
    {{llama, NULL, "qk_norm", "true"}, FIG_UNSUPPORTED, "qk_norm is true"},
    {{llama, NULL, "qk_norm", "false"}, FIG_OK, ""},
    {{llama, NULL, "alibi", "true"}, FIG_UNSUPPORTED, "alibi is true"},
    {{llama, NULL, "layer_types", "[\"full_attention\"]"},
     FIG_INVALID,
     "num_hidden_layers strings"},
    {{llama, NULL, "layer_types", "3"}, FIG_INVALID, "layer_types is 3"},
    {{llama, NULL, "use_sliding_window", "\"no\""}, FIG_INVALID, "use_sliding_window is \"no\""},
    {{mistral, NULL, "sliding_window", NULL}, FIG_INVALID, "sliding_window is missing"},
    {{mistral, NULL, "sliding_window", "0"}, FIG_INVALID, "sliding_window is 0"},
    {{mistral, NULL, "sliding_window", "4096.0"}, FIG_INVALID, "sliding_window is 4096.0"},
    {{mistral, NULL, "use_sliding_window", "false"}, FIG_UNSUPPORTED, "model_type mistral"},
    {{mistral, NULL, "rope_theta", NULL}, FIG_INVALID, "rope_theta is missing"},
    {{mistral, NULL, "query_pre_attn_scalar", "128"}, FIG_UNSUPPORTED, "model_type mistral"},
    {{mistral, NULL, "attn_logit_softcapping", "30"}, FIG_UNSUPPORTED, "model_type mistral"},
    {{qwen2, NULL, "use_sliding_window", NULL}, FIG_INVALID, "use_sliding_window is missing"},
    {{qwen2, NULL, "use_sliding_window", "1"}, FIG_INVALID, "use_sliding_window is 1"},
    {{qwen2, NULL, "dual_chunk_attention_config", "{\"chunk_size\":262144}"},
     FIG_UNSUPPORTED,
     "dual_chunk_attention_config"},
    {{qwen2, NULL, "use_mrope", "true"}, FIG_UNSUPPORTED, "use_mrope is true"},
    {{qwen2, NULL, "use_mrope", "false"}, FIG_OK, ""},
    {{qwen2, NULL, "rope_scaling", "{\"type\":\"mrope\",\"mrope_section\":[16,24,24]}"},
     FIG_OK,
     ""},
    {{qwen2, NULL, "rope_scaling", "{\"type\":\"mrope\",\"mrope_section\":[16,24]}"},
     FIG_INVALID,
     "rope_scaling.mrope_section is [16,24], its sections must add up to all pairs that are "
     "rotated"},
    {{qwen2, NULL, "rope_scaling", "{\"type\":\"mrope\"}"},
     FIG_INVALID,
     "mrope_section is missing"},
    {{qwen2, NULL, "rope_scaling", "{\"type\":\"yarn\",\"factor\":4.0}"}, FIG_OK, ""},
    {{qwen2, NULL, "rope_scaling", "{\"type\":\"yarn\"}"}, FIG_INVALID, "factor is missing"},
    {{qwen2, NULL, "rope_scaling", "{\"type\":\"yarn\",\"factor\":0.5}"},
     FIG_INVALID,
     "rope_scaling.rope scaling: factor is 0.5"},
    {{qwen2, NULL, "rope_scaling", "{\"type\":\"yarn\",\"factor\":4,\"alpha\":1}"},
     FIG_UNSUPPORTED,
     "rope_scaling.alpha is 1, which this library does not support for rope type yarn"},
    {{qwen2, NULL, "rope_scaling", "{\"type\":\"yarn\",\"factor\":4,\"truncate\":0}"},
     FIG_INVALID,
     "truncate is 0, it must be true or false"},
    {{qwen2, NULL, "rope_scaling", "{\"type\":\"dynamic\"}"}, FIG_INVALID, "factor is missing"},
    {{qwen2, NULL, "rope_scaling", "{\"type\":\"dynamic\",\"factor\":2}"}, FIG_OK, ""},
    {{qwen3, NULL, "use_sliding_window", "true"}, FIG_INVALID, "sliding_window is missing"},
    {{qwen3, NULL, "head_dim", NULL}, FIG_INVALID, "head_dim is missing"},
    {{qwen3, NULL, "rms_norm_eps", NULL}, FIG_INVALID, "rms_norm_eps is missing"},
    {{qwen3, NULL, "rms_norm_eps", "0"}, FIG_INVALID, "rms_norm_eps is 0"},
    {{gemma, NULL, "head_dim", NULL}, FIG_INVALID, "head_dim is missing"},
    {{gemma, NULL, "hidden_activation", NULL}, FIG_INVALID, "hidden_activation is missing"},
    {{gemma, NULL, "hidden_activation", "null"}, FIG_INVALID, "hidden_activation is missing"},
    {{gemma, NULL, "query_pre_attn_scalar", NULL}, FIG_INVALID, "query_pre_attn_scalar is missing"},
    {{gemma, NULL, "query_pre_attn_scalar", "-1"}, FIG_INVALID, "query_pre_attn_scalar is -1"},
    {{gemma, NULL, "attn_logit_softcapping", NULL}, FIG_INVALID, "softcapping is missing"},
    {{gemma, NULL, "attn_logit_softcapping", "0"}, FIG_INVALID, "attn_logit_softcapping is 0"},
    {{gemma, NULL, "attn_logit_softcapping", "null"}, FIG_OK, ""},
    {{gemma, NULL, "sliding_window", "null"}, FIG_INVALID, "sliding_window is missing"},
    {{gemma, NULL, "use_sliding_window", "false"}, FIG_UNSUPPORTED, "model_type gemma2"},
    {{gemma, NULL, "use_bidirectional_attention", "true"}, FIG_UNSUPPORTED, "bidirectional"},
    {{llama, NULL, "attention_bias", "true"}, FIG_OK, ""},
    {{llama, NULL, "num_key_value_heads", "null"}, FIG_OK, ""},
    {{llama, NULL, "num_key_value_heads", NULL}, FIG_OK, ""},
    {{mistral, NULL, "num_key_value_heads", "null"}, FIG_OK, ""},
    {{llama, NULL, "num_kv_shared_layers", "0"}, FIG_OK, ""},
    {{llama, NULL, "is_encoder_decoder", "false"}, FIG_OK, ""},
    {{llama, NULL, "clip_qkv", "null"}, FIG_OK, ""},
    {{granite, NULL, "attention_multiplier", NULL}, FIG_INVALID, "attention_multiplier is missing"},
    {{granite, NULL, "attention_multiplier", "0"}, FIG_INVALID, "attention_multiplier is 0"},
    {{granite, NULL, "sliding_window", "4096"}, FIG_UNSUPPORTED, "model_type granite"},
    {{llama, NULL, "attention_multiplier", "0.5"}, FIG_UNSUPPORTED, "model_type llama"},
    {{glm4, NULL, "partial_rotary_factor", NULL}, FIG_INVALID, "partial_rotary_factor is missing"},
    {{glm4, NULL, "head_dim", NULL}, FIG_INVALID, "head_dim is missing"},
    {{phi3, NULL, "rope_scaling", "{\"type\":\"longrope\",\"short_factor\":[1.0]}"},
     FIG_INVALID,
     "rope_scaling.short_factor is [1.0], it must be an array of 48 numbers above 0"},
    {{phi4, "rope_scaling", "long_factor", NULL},
     FIG_INVALID,
     "rope_scaling.long_factor is missing"},
    {{phi4, "rope_scaling", "short_mscale", "1.1"}, FIG_UNSUPPORTED, "short_mscale is 1.1"},
    {{phi4, NULL, "partial_rotary_factor", "0.5"}, FIG_INVALID, "an array of 32 numbers"},
    {{phi4, NULL, "max_position_embeddings", NULL}, FIG_INVALID, "max_position_embeddings is"},
    {{phi4, NULL, "full_attn_mod", "2"}, FIG_UNSUPPORTED, "full_attn_mod is 2"},
    {{oss, NULL, "sliding_window", NULL}, FIG_INVALID, "sliding_window is missing"},
    {{oss, NULL, "swiglu_limit", NULL}, FIG_OK, ""},
    {{oss, NULL, "swiglu_alpha", "1.702"}, FIG_OK, ""},
    {{oss, NULL, "swiglu_alpha", "1.5"}, FIG_UNSUPPORTED, "swiglu_alpha is 1.5"},
    {{oss, NULL, "swiglu_limit", "10.0"},
     FIG_UNSUPPORTED,
     "swiglu_limit is 10.0, this library has 7"},
    {{oss, NULL, "hidden_act", "\"gelu\""},
     FIG_UNSUPPORTED,
     "hidden_act is \"gelu\", this library has"},
    {{oss, NULL, "num_experts_per_tok", NULL}, FIG_INVALID, "num_experts_per_tok is missing"},
    {{oss, NULL, "torch_dtype", "\"float64\""}, FIG_UNSUPPORTED, "torch_dtype is \"float64\""},
    {{oss, NULL, "torch_dtype", "\"float16\""}, FIG_OK, ""},
    {{gemma3, NULL, "rope_local_base_freq", NULL}, FIG_INVALID, "rope_local_base_freq is missing"},
    {{gemma3, NULL, "sliding_window_pattern", NULL}, FIG_INVALID, "sliding_window_pattern is"},
    {{gemma3, NULL, "use_bidirectional_attention", "true"}, FIG_UNSUPPORTED, "bidirectional"},
    {{olmo3, NULL, "layer_types", NULL}, FIG_INVALID, "layer_types is missing"},
    {{newer, NULL, "rope_parameters", BOTH("\"rope_type\":\"default\"", "\"factor\":2")},
     FIG_INVALID,
     "rope_parameters.sliding_attention.rope_type is missing"},
    {{newer, NULL, "rope_parameters", "{\"full_attention\":{}}"},
     FIG_INVALID,
     "rope_parameters.sliding_attention is missing"},
    {{newer, NULL, "rope_parameters", "{\"full_attention\":{},\"chunked_attention\":{}}"},
     FIG_UNSUPPORTED,
     "rope_parameters.chunked_attention is {}, beside full_attention"},
    {{phi3, NULL, "sliding_window", NULL}, FIG_INVALID, "sliding_window is missing"},
    {{mixtral, NULL, "num_experts_per_tok", NULL}, FIG_INVALID, "num_experts_per_tok is missing"},
    {{mixtral, NULL, "num_experts_per_tok", "9"}, FIG_INVALID, "num_experts_per_tok is 9"},
    {{moe, NULL, "decoder_sparse_step", "2"}, FIG_INVALID, "decoder_sparse_step is 2"},
    {{moe, NULL, "mlp_only_layers", "[3]"}, FIG_UNSUPPORTED, "mlp_only_layers is [3]"},
    {{moe, NULL, "moe_intermediate_size", NULL}, FIG_INVALID, "moe_intermediate_size is missing"},
    {{qwen3, NULL, "num_experts_per_tok", "8"}, FIG_UNSUPPORTED, "model_type qwen3"},
    {{smollm, NULL, "no_rope_layers", "[1, 0]"}, FIG_INVALID, "no_rope_layers is [1,0]"},
    {{smollm, NULL, "no_rope_layers", "3"}, FIG_INVALID, "an array of num_hidden_layers numbers"},
    {{command, NULL, "order_of_interleaved_layers", "\"global_attn_first\""},
     FIG_UNSUPPORTED,
     "order_of_interleaved_layers is \"global_attn_first\""},
    {{command, NULL, "position_embedding_type", "3"}, FIG_UNSUPPORTED, "model_type cohere2"},
    {{command, NULL, "sliding_window_pattern", NULL},
     FIG_INVALID,
     "sliding_window_pattern is missing"},
    {{command, NULL, "rotary_pct", "1.5"}, FIG_INVALID, "it must be at most 1"},
    {{llama, NULL, "rotary_pct", "0.5"}, FIG_UNSUPPORTED, "rotary_pct is 0.5"},
    {{llama, NULL, "no_rope_layers", "[1]"}, FIG_UNSUPPORTED, "model_type llama"},
    {{llama, NULL, "max_position_embeddings", NULL}, FIG_OK, ""},
};

static void each_fault_of_a_config_is_named_and_changes_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *r = &refusals[i];
        const char *path = fig_json_file_change(&r->change);
        fig_spec spec = empty_spec(), before = spec;
        const fig_status status = fig_spec_read_config(&spec, path);
        if (status != r->status)
            fail_msg("%s = %s: %s, not %s (%s)", r->change.field,
                     r->change.value == NULL ? "" : r->change.value, fig_status_name(status),
                     fig_status_name(r->status), fig_message());
        if (status == FIG_OK) continue;
        assert_said(r->said);
        assert_said(path);
        assert_memory_equal(&spec, &before, sizeof spec);
    }
}

#define SLIDING "\"sliding_attention\""
#define FULL "\"full_attention\""
#define TWO_LAYERS "\"num_hidden_layers\":2"

/* Each of these faults is a contradiction between two fields. */
static void fields_that_contradict_each_other_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *base, *fields, *said;
    } cases[] = {
        {smollm, "{" TWO_LAYERS ",\"no_rope_layers\":[1,2]}",
         "no_rope_layers[1] is neither 0 nor 1"},
        {smollm, "{" TWO_LAYERS ",\"no_rope_layers\":[\"0\",1]}", "no_rope_layers[0] is neither"},
        {smollm, "{\"no_rope_layers\":null,\"no_rope_layer_interval\":null}",
         "no_rope_layer_interval is missing"},
        {llama, "{" TWO_LAYERS ",\"layer_types\":[" FULL "," SLIDING "]}",
         "layer_types[1] is sliding_attention"},
        {mistral, "{" TWO_LAYERS ",\"sliding_window\":null,\"layer_types\":[" SLIDING "," FULL "]}",
         "layer_types[0] is sliding_attention"},
        {qwen2, "{" TWO_LAYERS ",\"layer_types\":[" FULL "," SLIDING "]}",
         "layer_types[1] is sliding_attention"},
        {qwen2, "{\"use_sliding_window\":true,\"max_window_layers\":null}",
         "max_window_layers is missing"},
        {gemma, "{" TWO_LAYERS ",\"layer_types\":[" FULL ",3]}", "layer_types[1] is no string"},
        {gemma, "{" TWO_LAYERS ",\"layer_types\":[\"chunked_attention\"," FULL "]}",
         "is chunked_attention"},
        {gemma, "{" TWO_LAYERS ",\"layer_types\":[" FULL "]}",
         "layer_types is [\"full_attention\"]"},
        {llama,
         "{\"rope_scaling\":{\"type\":\"default\",\"partial_rotary_factor\":0.5},"
         "\"partial_rotary_factor\":0.25}",
         "rope_scaling.partial_rotary_factor is 0.5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_spec spec = empty_spec(), before = spec;
        const char *path = fig_json_file_update(cases[i].base, cases[i].fields);
        if (fig_spec_read_config(&spec, path) == FIG_OK) fail_msg("case %zu was read", i);
        assert_said(cases[i].said);
        assert_memory_equal(&spec, &before, sizeof spec);
    }
}

static void a_file_that_is_not_there_is_named(void **state) {
    (void)state;
    fig_spec spec = empty_spec();
    assert_int_equal(fig_spec_read_config(&spec, "/nowhere/config.json"), FIG_IO);
    assert_said("/nowhere/config.json");
    assert_int_equal(fig_spec_read_config(&spec, NULL), FIG_INVALID);
    assert_int_equal(fig_spec_read_config(NULL, llama), FIG_INVALID);
    spec.size = 0;
    assert_int_equal(fig_spec_read_config(&spec, llama), FIG_INVALID);
}

static void mutated_configs_are_read_or_refused_with_a_sentence(void **state) {
    (void)state;
    fig_random random = fig_random_seed(20);
    char text[4096];
    static const char *const bases[] = {llama, gemma, qwen3, oss, phi4, gemma_4b};
    for (int i = 0; i < 4000; i++) {
        FILE *file = fopen(bases[i % 6], "rb");
        assert_non_null(file);
        const size_t length = fread(text, 1, sizeof text, file);
        fclose(file);
        char mutated[sizeof text];
        fig_spec spec = empty_spec();
        memcpy(mutated, text, length);
        for (int32_t n = fig_random_range(&random, 1, 4); n > 0; n--)
            mutated[fig_random_range(&random, 0, (int32_t)length - 1)] =
                (char)fig_random_range(&random, 0, 255);
        const char *path = fig_json_file_write(mutated, length);
        if (fig_spec_read_config(&spec, path) == FIG_OK) continue;
        assert_int_equal(strncmp(fig_message(), path, strlen(path)), 0);
        assert_int_equal(spec.layers, 0);
    }
}

static void fail_each_call(const char *path) {
    for (int64_t n = 1;; n++) {
        fig_spec spec = empty_spec();
        fig_fault_arm(n);
        const fig_status status = fig_spec_read_config(&spec, path);
        const int64_t seen = fig_fault_disarm();
        if (seen < n) {
            assert_int_equal(status, FIG_OK);
            assert_true(n > 3);
            break;
        }
        /* A failure to close the file does no harm: everything was read before. */
        if (status == FIG_OK) continue;
        assert_int_equal(spec.layers, 0);
        assert_true(strlen(fig_message()) > 0);
    }
}

static void every_call_that_fails_leaves_a_sentence_and_the_spec(void **state) {
    (void)state;
    /* If memory runs out within an array, Jansson leaks that array, so this text has no arrays. */
    static const char text[] =
        "{\"model_type\":\"gemma3\",\"dtype\":\"bfloat16\",\"text_config\":{\"model_type\":"
        "\"gemma3_text\",\"num_hidden_layers\":2,\"intermediate_size\":64,\"sliding_window\":16}}";
    fail_each_call(llama);
    fail_each_call(fig_json_file_write(text, strlen(text)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_of_a_config_is_named_and_changes_nothing),
        cmocka_unit_test(fields_that_contradict_each_other_are_refused),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
        cmocka_unit_test(mutated_configs_are_read_or_refused_with_a_sentence),
        cmocka_unit_test(every_call_that_fails_leaves_a_sentence_and_the_spec),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fig_json_file_remove();
    return failed;
}
