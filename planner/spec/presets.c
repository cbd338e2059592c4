/* presets.c: holds the specs of models known by name.
 *
 * The values of each model come from its config.json; we chose the page size and the batch limit.
 * The limits of a spec are in spec.c. Invariant: every preset passes fig_spec_check(), and new rows
 * are only added at the end. */
#include "planner/spec/spec.h"

#include <stdio.h>
#include <string.h>

#include "include/figraph_rope.h"
#include "planner/status.h"

static const fig_spec tutorial = {
    .size = sizeof(fig_spec),
    .dtype = FIG_F16,
    .q_heads = 16,
    .kv_heads = 4,
    .head_dim = 64,
    .ffn_width = 64,
    .page_size = 16,
    .batch_limit = 8,
    .kv_limit = 512,
};

static const fig_spec llama_3_1_8b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .ffn_width = 14336,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 131072,
    .rope = {.theta = 500000.0f,
             .llama3_factor = 8.0f,
             .llama3_low = 1.0f,
             .llama3_high = 4.0f,
             .llama3_context = 8192},
};

static const fig_spec llama_3_1_70b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 64,
    .kv_heads = 8,
    .head_dim = 128,
    .ffn_width = 28672,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 131072,
    .rope = {.theta = 500000.0f,
             .llama3_factor = 8.0f,
             .llama3_low = 1.0f,
             .llama3_high = 4.0f,
             .llama3_context = 8192},
};

/* The model's config.json names a sliding window and says not to use it. */
static const fig_spec qwen2_5_7b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 28,
    .kv_heads = 4,
    .head_dim = 128,
    .ffn_width = 18944,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 131072,
    .rope = {.theta = 1000000.0f},
};

static const fig_spec qwen3_8b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .ffn_width = 12288,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 40960,
    .qk_norm_epsilon = 1e-6f,
    .rope = {.theta = 1000000.0f},
};

/* Version 0.1: later versions have no window. */
static const fig_spec mistral_7b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .ffn_width = 14336,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 32768,
    .window = 4096,
    .rope = {.theta = 10000.0f},
};

/* Of this model's 42 layers, counted from 0, the even ones have the window. */
static const fig_spec gemma_2_9b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 16,
    .kv_heads = 8,
    .head_dim = 256,
    .ffn_width = 14336,
    .activation = FIG_GELU_TANH,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 8192,
    .soft_cap = 50.0f,
    .window = 4096,
    .window_layers = {UINT64_C(0x15555555555)},
    .sm_scale = 0.0625f,
    .rope = {.theta = 10000.0f},
};

/* This is the text model. Every sixth of its 62 layers sees all tokens and uses lower RoPE
 * frequencies. */
static const fig_spec gemma_3_27b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 32,
    .kv_heads = 16,
    .head_dim = 128,
    .ffn_width = 21504,
    .activation = FIG_GELU_TANH,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 131072,
    .window = 1024,
    .window_layers = {UINT64_C(0x37df7df7df7df7df)},
    .sm_scale = 0.0771516749810459598f,
    .qk_norm_epsilon = 1e-6f,
    .rope = {.theta = 1000000.0f, .scale = 8.0f},
    .window_rope = {.theta = 10000.0f},
};

/* Every second of this model's 24 layers sees all tokens. */
static const fig_spec gpt_oss_20b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 64,
    .kv_heads = 8,
    .head_dim = 64,
    .ffn_width = 2880,
    .activation = FIG_SWIGLU_LIMITED,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 131072,
    .window = 128,
    .window_layers = {UINT64_C(0x555555)},
    .rope = {.theta = 150000.0f},
    .ffn_rows = 4,
    .sinks = 1,
};

static const fig_rope_scaling gpt_oss_scaling = {
    .size = sizeof(fig_rope_scaling),
    .kind = FIG_ROPE_YARN,
    .factor = 32.0f,
    .context = 4096,
    .beta_fast = 32.0f,
    .beta_slow = 1.0f,
    .keeps_fractions = 1,
};

static const fig_spec phi_4 = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 40,
    .kv_heads = 10,
    .head_dim = 128,
    .ffn_width = 17920,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 16384,
    .rope = {.theta = 250000.0f},
};

static const fig_spec mixtral_8x7b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .ffn_width = 14336,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 32768,
    .rope = {.theta = 1000000.0f},
    .ffn_rows = 2,
};

static const fig_spec qwen3_30b_a3b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 32,
    .kv_heads = 4,
    .head_dim = 128,
    .ffn_width = 768,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 40960,
    .qk_norm_epsilon = 1e-6f,
    .rope = {.theta = 1000000.0f},
    .ffn_rows = 8,
};

/* This is the model of April 2025. RoPE rotates half of each head. */
static const fig_spec glm_4_9b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 32,
    .kv_heads = 2,
    .head_dim = 128,
    .ffn_width = 13696,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 32768,
    .rope = {.interleaved = 1, .rotary_dim = 64, .theta = 10000.0f},
};

static const fig_spec granite_3_1_8b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .ffn_width = 12800,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 131072,
    .sm_scale = 0.0078125f,
    .rope = {.theta = 10000000.0f},
};

/* Every fourth of this model's 36 layers has no RoPE. */
static const fig_spec smollm3_3b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 16,
    .kv_heads = 4,
    .head_dim = 128,
    .ffn_width = 11008,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 65536,
    .rope = {.theta = 5000000.0f},
    .plain_layers = {UINT64_C(0x888888888)},
};

/* Every fourth of this model's 32 layers sees all tokens and has no RoPE. */
static const fig_spec command_r7b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .ffn_width = 14336,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 8192,
    .window = 4096,
    .window_layers = {UINT64_C(0x77777777)},
    .rope = {.interleaved = 1, .theta = 50000.0f},
    .plain_layers = {UINT64_C(0x88888888)},
};

/* Every fourth of this model's 32 layers sees all tokens, and only those layers scale their
 * RoPE. */
static const fig_spec olmo_3_7b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 32,
    .kv_heads = 32,
    .head_dim = 128,
    .ffn_width = 11008,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 65536,
    .window = 4096,
    .window_layers = {UINT64_C(0x77777777)},
    .rope = {.theta = 500000.0f},
    .window_rope = {.theta = 500000.0f},
};

static const fig_rope_scaling olmo_3_scaling = {
    .size = sizeof(fig_rope_scaling),
    .kind = FIG_ROPE_YARN,
    .factor = 8.0f,
    .context = 8192,
    .beta_fast = 32.0f,
    .beta_slow = 1.0f,
    .attention_factor = 1.2079441541679836f,
};

/* The model of December 2024. */
static const fig_spec deepseek_v3 = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 128,
    .kv_heads = 1,
    .head_dim = 576,
    .ffn_width = 2048,
    .page_size = 64,
    .batch_limit = 256,
    .kv_limit = 163840,
    .sm_scale = 0.13523378f,
    .rope = {.interleaved = 1, .theta = 10000.0f},
    .ffn_rows = 8,
    .latent_dim = 512,
    .latent_norm_epsilon = 1e-6f,
    .dense_layers = 3,
    .dense_width = 18432,
};

static const fig_rope_scaling deepseek_v3_scaling = {
    .size = sizeof(fig_rope_scaling),
    .kind = FIG_ROPE_YARN,
    .factor = 40.0f,
    .context = 4096,
    .beta_fast = 32.0f,
    .beta_slow = 1.0f,
    .mscale = 1.0f,
    .mscale_all = 1.0f,
};

/* The model of July 2025. */
static const fig_spec kimi_k2 = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 64,
    .kv_heads = 1,
    .head_dim = 576,
    .ffn_width = 2048,
    .page_size = 64,
    .batch_limit = 256,
    .kv_limit = 131072,
    .sm_scale = 0.1308608f,
    .rope = {.interleaved = 1, .theta = 50000.0f},
    .ffn_rows = 8,
    .latent_dim = 512,
    .latent_norm_epsilon = 1e-6f,
    .dense_layers = 1,
    .dense_width = 18432,
};

static const fig_rope_scaling kimi_k2_scaling = {
    .size = sizeof(fig_rope_scaling),
    .kind = FIG_ROPE_YARN,
    .factor = 32.0f,
    .context = 4096,
    .beta_fast = 1.0f,
    .beta_slow = 1.0f,
    .mscale = 1.0f,
    .mscale_all = 1.0f,
};

static const struct preset {
    const char *name;
    const fig_spec *spec;
    int32_t layers;
    const fig_rope_scaling *scaling; /* NULL: the spec's RoPE needs no table */
} presets[] = {
    {"tutorial", &tutorial, 1, NULL},
    {"llama-3.1-8b", &llama_3_1_8b, 32, NULL},
    {"llama-3.1-8b-layer", &llama_3_1_8b, 1, NULL},
    {"llama-3.1-70b", &llama_3_1_70b, 80, NULL},
    {"qwen2.5-7b", &qwen2_5_7b, 28, NULL},
    {"qwen3-8b", &qwen3_8b, 36, NULL},
    {"mistral-7b", &mistral_7b, 32, NULL},
    {"gemma-2-9b", &gemma_2_9b, 42, NULL},
    {"gemma-3-27b", &gemma_3_27b, 62, NULL},
    {"gpt-oss-20b", &gpt_oss_20b, 24, &gpt_oss_scaling},
    {"phi-4", &phi_4, 40, NULL},
    {"mixtral-8x7b", &mixtral_8x7b, 32, NULL},
    {"qwen3-30b-a3b", &qwen3_30b_a3b, 48, NULL},
    {"glm-4-9b", &glm_4_9b, 40, NULL},
    {"granite-3.1-8b", &granite_3_1_8b, 40, NULL},
    {"smollm3-3b", &smollm3_3b, 36, NULL},
    {"command-r7b", &command_r7b, 32, NULL},
    {"olmo-3-7b", &olmo_3_7b, 32, &olmo_3_scaling},
    {"deepseek-v3", &deepseek_v3, 61, &deepseek_v3_scaling},
    {"kimi-k2", &kimi_k2, 61, &kimi_k2_scaling},
};
enum { PRESET_COUNT = sizeof presets / sizeof presets[0] };

fig_status fig_spec_preset(fig_spec *spec, const char *name) {
    char known[320] = "";
    fig_spec found = {.size = sizeof found};
    for (int i = 0; i < PRESET_COUNT; i++) {
        if (name != NULL && strcmp(name, presets[i].name) == 0) {
            found = *presets[i].spec;
            found.layers = presets[i].layers;
            if (presets[i].scaling != NULL)
                FIG_TRY(fig_rope_scale(&found.rope_table, &found.rope, fig_spec_turning_dim(&found),
                                       presets[i].scaling));
            return fig_status_give(spec, &found, sizeof found, "fig_spec");
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", presets[i].name);
    }
    FIG_TRY(fig_status_give(spec, &found, sizeof found, "fig_spec"));
    return fig_fail(FIG_INVALID, "preset %s is unknown, there are %s", name != NULL ? name : "NULL",
                    known);
}

const char *fig_spec_preset_name(int32_t index) {
    return index >= 0 && index < PRESET_COUNT ? presets[index].name : NULL;
}
