/* presets.c: models known by name.
 *
 * Facts of each model as its own config.json has them; page size and batch limit are a choice. What
 * a spec may say is spec.c's. Invariant: every preset passes fig_spec_check(), and rows are only
 * ever added at the end. */
#include "planner/spec.h"

#include <stdio.h>
#include <string.h>

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

/* Its config.json has a sliding window and says not to use it. */
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

/* Version 0.1: the later ones have no window. */
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

/* Of its 42 layers the first and every second one has the window. */
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

static const struct preset {
    const char *name;
    const fig_spec *spec;
    int32_t layers;
} presets[] = {
    {"tutorial", &tutorial, 1},
    {"llama-3.1-8b", &llama_3_1_8b, 32},
    {"llama-3.1-8b-layer", &llama_3_1_8b, 1},
    {"llama-3.1-70b", &llama_3_1_70b, 80},
    {"qwen2.5-7b", &qwen2_5_7b, 28},
    {"qwen3-8b", &qwen3_8b, 36},
    {"mistral-7b", &mistral_7b, 32},
    {"gemma-2-9b", &gemma_2_9b, 42},
};
enum { PRESET_COUNT = sizeof presets / sizeof presets[0] };

fig_status fig_spec_preset(fig_spec *spec, const char *name) {
    char known[256] = "";
    fig_spec found = {.size = sizeof found};
    for (int i = 0; i < PRESET_COUNT; i++) {
        if (name != NULL && strcmp(name, presets[i].name) == 0) {
            found = *presets[i].spec;
            found.layers = presets[i].layers;
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
