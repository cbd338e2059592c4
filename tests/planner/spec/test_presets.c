/* test_presets.c: compares each preset with a second copy of its model's facts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "planner/spec/spec.h"

static void a_preset_is_the_model_it_names(void **state) {
    (void)state;
    fig_spec spec = {.size = sizeof spec};
    const fig_spec tutorial = {.size = sizeof(fig_spec),
                               .dtype = FIG_F16,
                               .layers = 1,
                               .q_heads = 16,
                               .kv_heads = 4,
                               .head_dim = 64,
                               .ffn_width = 64,
                               .page_size = 16,
                               .batch_limit = 8,
                               .kv_limit = 512};
    fig_spec llama = {.size = sizeof(fig_spec),
                      .dtype = FIG_BF16,
                      .layers = 32,
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
                               .llama3_context = 8192}};
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    assert_memory_equal(&spec, &tutorial, sizeof spec);
    assert_int_equal(fig_spec_preset(&spec, "llama-3.1-8b"), FIG_OK);
    assert_memory_equal(&spec, &llama, sizeof spec);
    llama.layers = 1;
    assert_int_equal(fig_spec_preset(&spec, "llama-3.1-8b-layer"), FIG_OK);
    assert_memory_equal(&spec, &llama, sizeof spec);
    llama.layers = 80;
    llama.q_heads = 64;
    llama.ffn_width = 28672;
    assert_int_equal(fig_spec_preset(&spec, "llama-3.1-70b"), FIG_OK);
    assert_memory_equal(&spec, &llama, sizeof spec);
}

/* Compares each preset with a second copy of its model's parameters. */
static void presets_of_other_families_are_the_models_they_name(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int32_t layers, q_heads, kv_heads, head_dim, ffn_width, kv_limit, window;
        float theta, soft_cap, sm_scale, qk_norm_epsilon;
        fig_activation activation;
    } models[] = {
        {"qwen2.5-7b", 28, 28, 4, 128, 18944, 131072, 0, 1e6f, 0, 0, 0, FIG_SILU},
        {"qwen3-8b", 36, 32, 8, 128, 12288, 40960, 0, 1e6f, 0, 0, 1e-6f, FIG_SILU},
        {"mistral-7b", 32, 32, 8, 128, 14336, 32768, 4096, 1e4f, 0, 0, 0, FIG_SILU},
        {"gemma-2-9b", 42, 16, 8, 256, 14336, 8192, 4096, 1e4f, 50, 0.0625f, 0, FIG_GELU_TANH},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        fig_spec spec = {.size = sizeof spec},
                 expected = {.size = sizeof(fig_spec),
                             .dtype = FIG_BF16,
                             .layers = models[i].layers,
                             .q_heads = models[i].q_heads,
                             .kv_heads = models[i].kv_heads,
                             .head_dim = models[i].head_dim,
                             .ffn_width = models[i].ffn_width,
                             .activation = models[i].activation,
                             .page_size = 16,
                             .batch_limit = 256,
                             .kv_limit = models[i].kv_limit,
                             .window = models[i].window,
                             .soft_cap = models[i].soft_cap,
                             .sm_scale = models[i].sm_scale,
                             .qk_norm_epsilon = models[i].qk_norm_epsilon,
                             .rope = {.theta = models[i].theta}};
        assert_int_equal(fig_spec_preset(&spec, models[i].name), FIG_OK);
        memcpy(expected.window_layers, spec.window_layers, sizeof expected.window_layers);
        if (memcmp(&spec, &expected, sizeof spec) != 0) fail_msg("%s", models[i].name);
    }
}

static void all_layers_of_mistral_and_every_second_of_gemma_have_a_window(void **state) {
    (void)state;
    fig_spec spec = {.size = sizeof spec}, resolved;
    assert_int_equal(fig_spec_preset(&spec, "mistral-7b"), FIG_OK);
    assert_int_equal(fig_spec_resolve(&spec, &resolved), FIG_OK);
    for (int32_t layer = 0; layer < 32; layer++)
        assert_int_equal(fig_spec_layer_window(&resolved, layer), 4096);
    assert_int_equal(fig_spec_preset(&spec, "gemma-2-9b"), FIG_OK);
    assert_int_equal(fig_spec_resolve(&spec, &resolved), FIG_OK);
    for (int32_t layer = 0; layer < 42; layer++)
        assert_int_equal(fig_spec_layer_window(&resolved, layer), layer % 2 == 0 ? 4096 : 0);
}

static void every_preset_passes_and_an_unknown_one_lists_them(void **state) {
    (void)state;
    fig_spec spec = {.size = sizeof spec};
    const fig_spec zeros = {.size = sizeof zeros};
    int32_t count = 0;
    for (; fig_spec_preset_name(count) != NULL; count++) {
        assert_int_equal(fig_spec_preset(&spec, fig_spec_preset_name(count)), FIG_OK);
        assert_int_equal(fig_spec_check(&spec), FIG_OK);
    }
    assert_int_equal(count, 20);
    assert_null(fig_spec_preset_name(-1));
    assert_int_equal(fig_spec_preset(&spec, "llama"), FIG_INVALID);
    assert_string_equal(fig_message(), "preset llama is unknown, there are tutorial, llama-3.1-8b, "
                                       "llama-3.1-8b-layer, llama-3.1-70b, qwen2.5-7b, qwen3-8b, "
                                       "mistral-7b, gemma-2-9b, gemma-3-27b, gpt-oss-20b, "
                                       "phi-4, mixtral-8x7b, qwen3-30b-a3b, glm-4-9b, "
                                       "granite-3.1-8b, smollm3-3b, command-r7b, olmo-3-7b, "
                                       "deepseek-v3, kimi-k2");
    /* only the size is kept; everything else is zero */
    assert_memory_equal(&spec, &zeros, sizeof spec);
    assert_int_equal(fig_spec_preset(&spec, NULL), FIG_INVALID);
}

/* An older header has a shorter struct. The bytes after it do not belong to the library. */
static void a_preset_fills_no_more_than_the_caller_has(void **state) {
    (void)state;
    fig_spec spec;
    memset(&spec, 0x5a, sizeof spec);
    spec.size = offsetof(fig_spec, ffn_width);
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    assert_true(spec.head_dim != 0x5a5a5a5a);
    assert_int_equal(spec.size, offsetof(fig_spec, ffn_width));
    assert_int_equal(spec.ffn_width, 0x5a5a5a5a);
    memset(&spec, 0x5a, sizeof spec); /* the size was never set */
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_INVALID);
    assert_int_equal(spec.ffn_width, 0x5a5a5a5a);
    memset(&spec, 0x5a, sizeof spec);
    spec.size = offsetof(fig_spec, ffn_width);
    assert_int_equal(fig_spec_preset(&spec, "llama"), FIG_INVALID);
    assert_int_equal(spec.head_dim, 0);
    assert_int_equal(spec.ffn_width, 0x5a5a5a5a);
    assert_int_equal(fig_spec_preset(NULL, "tutorial"), FIG_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_preset_is_the_model_it_names),
        cmocka_unit_test(presets_of_other_families_are_the_models_they_name),
        cmocka_unit_test(all_layers_of_mistral_and_every_second_of_gemma_have_a_window),
        cmocka_unit_test(a_preset_fills_no_more_than_the_caller_has),
        cmocka_unit_test(every_preset_passes_and_an_unknown_one_lists_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
