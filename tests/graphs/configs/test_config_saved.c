/* test_config_saved.c: tests that a config.json is read in the form in which transformers 5 saves
 * it.
 *
 * tests/configs/saved/ holds files that transformers 5.23 wrote; 5.24 writes the same. Some are of
 * models whose published files are in tests/configs/; their spec must equal that of the published
 * file. The others, default-*.json, have every default of a family; their spec is stated here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/files/json_file.h"

static fig_spec spec_of(const char *path, const fig_config_options *options) {
    fig_spec spec = {.size = sizeof spec, .batch_limit = 8};
    if (fig_spec_read_config_with(&spec, path, options) != FIG_OK)
        fail_msg("%s: %s", path, fig_message());
    if (fig_spec_check(&spec) != FIG_OK) fail_msg("%s: %s", path, fig_message());
    return spec;
}

static void a_model_that_is_saved_anew_has_the_spec_that_it_had(void **state) {
    (void)state;
    static const char *const models[] = {
        "command-r7b",   "gemma-2-9b-it",      "gemma-3-1b-it",       "gemma-3-27b-it",
        "gemma-3-4b-it", "glm-4-9b-0414",      "gpt-oss-20b",         "granite-3.1-8b",
        "llama-3.1-8b",  "llama-7b",           "mistral-7b-v0.1",     "mistral-small-3.1-24b",
        "mixtral-8x7b",  "olmo-2-7b-instruct", "olmo-3-7b",           "phi-3.5-mini",
        "phi-4",         "phi-4-mini",         "qwen2.5-7b-instruct", "qwen3-30b-a3b",
        "qwen3-8b",      "smollm3-3b",         "vicuna-7b-v1.5-16k",  "yarn-llama-2-7b-128k"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char published[128], saved[128];
        snprintf(published, sizeof published, "tests/configs/%s.json", models[i]);
        snprintf(saved, sizeof saved, "tests/configs/saved/%s.json", models[i]);
        const fig_spec before = spec_of(published, NULL), after = spec_of(saved, NULL);
        if (memcmp(&before, &after, sizeof before) != 0) fail_msg("%s differs", saved);
    }
}

/* The spec of a family's file with every default. */
typedef struct family {
    const char *name;
    int32_t layers, q_heads, kv_heads, head_dim, ffn_width, ffn_rows, kv_limit;
    float theta;
    fig_activation activation;
    int32_t window;
    uint64_t window_layers;
    float epsilon;
    int32_t interleaved;
} family;

/* clang-format off */
static const family families[] = {
    {"gemma", 28, 16, 16, 256, 24576, 0, 8192, 1e4f, FIG_GELU_TANH, 0, 0, 0, 0},
    {"seed-oss", 64, 80, 8, 128, 27648, 0, 524288, 1e4f, FIG_SILU, 0, 0, 0, 0},
    {"ernie4-5", 18, 16, 2, 128, 3072, 0, 131072, 5e5f, FIG_SILU, 0, 0, 0, 1},
    {"ministral", 32, 32, 8, 128, 14336, 0, 131072, 1e4f, FIG_SILU, 4096, 0, 0, 0},
    {"olmo", 32, 32, 32, 128, 11008, 0, 2048, 1e4f, FIG_SILU, 0, 0, 0, 0},
    {"olmoe", 16, 16, 16, 128, 2048, 8, 4096, 1e4f, FIG_SILU, 0, 0, 0, 0},
    {"arcee", 32, 32, 32, 80, 0, 0, 4096, 1e4f, FIG_SILU, 0, 0, 0, 0},
    {"exaone4", 32, 32, 32, 128, 16384, 0, 2048, 1e4f, FIG_SILU, 4096, 0x77777777, 1e-5f, 0},
    {"helium", 24, 20, 20, 128, 7040, 0, 4096, 1e5f, FIG_SILU, 0, 0, 0, 1},
    {"qwen2-moe", 24, 16, 16, 128, 1408, 4, 32768, 1e4f, FIG_SILU, 0, 0, 0, 0},
    {"qwen2-5-vl", 80, 64, 8, 128, 29568, 0, 32768, 1e6f, FIG_SILU, 0, 0, 0, 0},
    {"qwen3-vl", 32, 32, 32, 128, 22016, 0, 128000, 5e5f, FIG_SILU, 0, 0, 1e-6f, 0},
    {"qwen3-moe", 24, 32, 4, 64, 768, 8, 32768, 1e4f, FIG_SILU, 0, 0, 1e-6f, 0},
};
/* clang-format on */

static void a_family_has_its_own_defaults(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const family *f = &families[i];
        char path[128];
        snprintf(path, sizeof path, "tests/configs/saved/default-%s.json", f->name);
        fig_spec got = spec_of(path, FIG_OPTIONS(fig_config_options, .dtype = FIG_F16));
        const int is_still = strcmp(f->name, "exaone4") == 0;
        fig_spec due = {.size = sizeof due,
                        .dtype = FIG_F16,
                        .layers = f->layers,
                        .q_heads = f->q_heads,
                        .kv_heads = f->kv_heads,
                        .head_dim = f->head_dim,
                        .ffn_width = f->ffn_width,
                        .ffn_rows = f->ffn_rows,
                        .activation = f->activation,
                        .batch_limit = 8,
                        .kv_limit = f->kv_limit,
                        .window = f->window,
                        .window_layers = {f->window_layers},
                        .qk_norm_epsilon = f->epsilon,
                        .rope = {.interleaved = f->interleaved, .theta = f->theta, .scale = 1}};
        if (is_still) {
            due.window_rope = due.rope;
            due.rope.scale = 1e30f;
        }
        if (memcmp(&got, &due, sizeof got) != 0) fail_msg("%s differs", path);
    }
}

static const char exaone[] = "tests/configs/saved/default-exaone4.json";
static const char vl[] = "tests/configs/saved/default-qwen2-5-vl.json";
#define DTYPE "\"dtype\":\"bfloat16\""

/* Without a window all layers have RoPE. With a window, only the layers that have it. */
static void layers_of_exaone_turn_where_they_slide(void **state) {
    (void)state;
    fig_spec spec = spec_of(
        fig_json_file_update(exaone, "{" DTYPE ",\"sliding_window\":null,\"num_hidden_layers\":2,"
                                     "\"sliding_window_pattern\":null,\"layer_types\":"
                                     "[\"full_attention\",\"full_attention\"]}"),
        NULL);
    assert_int_equal(spec.window, 0);
    assert_true(spec.rope.scale == 1.0f && spec.window_rope.theta == 0);
    spec =
        spec_of(fig_json_file_update(exaone, "{" DTYPE ",\"num_hidden_layers\":2,\"layer_types\":"
                                             "[\"full_attention\",\"full_attention\"]}"),
                NULL);
    assert_int_equal(spec.window, 0);
    assert_true(spec.rope.scale == 1e30f && spec.window_rope.theta == 0);
    spec = spec_of(fig_json_file_update(exaone, "{" DTYPE ",\"layer_types\":null}"), NULL);
    assert_true(spec.window_layers[0] == 0x77777777 && spec.plain_layers[0] == 0);
}

/* The form of the family's first files: all fields are in one object, and the type is "mrope". */
static void a_file_without_a_text_config_is_read_where_such_were_published(void **state) {
    (void)state;
    static const char text[] =
        "{\"model_type\":\"qwen2_5_vl\",\"torch_dtype\":\"bfloat16\",\"hidden_act\":\"silu\","
        "\"hidden_size\":3584,\"intermediate_size\":18944,\"num_attention_heads\":28,"
        "\"num_key_value_heads\":4,\"num_hidden_layers\":28,\"max_position_embeddings\":128000,"
        "\"max_window_layers\":28,\"sliding_window\":32768,\"use_sliding_window\":false,"
        "\"rope_theta\":1000000.0,\"rms_norm_eps\":1e-6,\"vision_start_token_id\":151652,"
        "\"vision_config\":{\"depth\":32},"
        "\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[16,24,24]}}";
    const fig_spec spec = spec_of(fig_json_file_write(text, strlen(text)), NULL);
    assert_int_equal(spec.q_heads, 28);
    assert_int_equal(spec.head_dim, 128);
    assert_int_equal(spec.window, 0);
    assert_true(spec.rope.theta == 1e6f && spec.rope.scale == 1.0f);
}

/* A file that was read and saved again has both names of the type, and its special tokens in both
 * objects. */
static void mrope_beside_default_is_one_type(void **state) {
    (void)state;
    const char *file = fig_json_file_change(
        &(fig_json_change){vl, "text_config", "vision_start_token_id", "151652"});
    file = fig_json_file_change(
        &(fig_json_change){file, "text_config", "rope_parameters",
                           "{\"rope_type\":\"default\",\"type\":\"mrope\",\"rope_theta\":10000.0,"
                           "\"mrope_section\":[16,24,24]}"});
    const fig_spec spec = spec_of(file, FIG_OPTIONS(fig_config_options, .dtype = FIG_BF16));
    assert_true(spec.rope.theta == 1e4f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_is_saved_anew_has_the_spec_that_it_had),
        cmocka_unit_test(a_family_has_its_own_defaults),
        cmocka_unit_test(layers_of_exaone_turn_where_they_slide),
        cmocka_unit_test(a_file_without_a_text_config_is_read_where_such_were_published),
        cmocka_unit_test(mrope_beside_default_is_one_type),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fig_json_file_remove();
    return failed;
}
