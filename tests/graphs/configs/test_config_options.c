/* test_config_options.c: tests the dtype that a caller gives with a config.json, the fields that a
 * caller ignores, and files that state how caches are stored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/files/json_file.h"

static const char llama[] = "tests/configs/llama-3.1-8b.json";
static const char mistral[] = "tests/configs/mistral-7b-v0.1.json";
static const char small[] = "tests/configs/mistral-small-3.1-24b.json";
static const char newer[] = "tests/configs/llama-3.1-8b-newer-form.json";

static void assert_said(const char *part) {
    if (strstr(fig_message(), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fig_message(), part);
}

/* ---- The dtype */

static void the_callers_dtype_stands_in_place_of_the_files(void **state) {
    (void)state;
    fig_spec spec = {.size = sizeof spec};
    const fig_json_change without = {llama, NULL, "torch_dtype", NULL};
    const char *path = fig_json_file_change(&without);
    assert_int_equal(fig_spec_read_config(&spec, path), FIG_INVALID);
    assert_said("dtype is missing, and so is torch_dtype");
    assert_int_equal(
        fig_spec_read_config_with(&spec, path, FIG_OPTIONS(fig_config_options, .dtype = FIG_F16)),
        FIG_OK);
    assert_int_equal(spec.dtype, FIG_F16);
    assert_int_equal(
        fig_spec_read_config_with(&spec, llama, FIG_OPTIONS(fig_config_options, .dtype = FIG_F32)),
        FIG_OK);
    assert_int_equal(spec.dtype, FIG_F32);
    assert_int_equal(fig_spec_read_config_with(&spec, llama, NULL), FIG_OK);
    assert_int_equal(spec.dtype, FIG_BF16);
}

/* ---- Fields that are ignored */

static fig_status read_ignoring(const char *path, const char *field) {
    fig_spec spec = {.size = sizeof spec};
    const char *const ignored[] = {"another", field};
    return fig_spec_read_config_with(
        &spec, path, FIG_OPTIONS(fig_config_options, .ignored = ignored, .ignored_count = 2));
}

static void an_unknown_field_passes_where_the_caller_names_it(void **state) {
    (void)state;
    static const fig_json_change changes[] = {
        {llama, NULL, "my_key", "3"},
        {small, NULL, "my_key", "3"},
        {small, "text_config", "my_key", "3"},
        {newer, "rope_parameters", "my_key", "3"},
        {llama, NULL, "sliding_window", "4096"},
        {llama, NULL, "activation", "\"relu2\""},
        {llama, NULL, "quantization_config", "{\"kv_cache_group\":[1]}"},
        {llama, NULL, "quantization_config",
         "{\"kv_cache_scheme\":{\"num_bits\":8,\"type\":\"float\",\"my_key\":3}}"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const char *path = fig_json_file_change(&changes[i]);
        const char *field = strstr(changes[i].value, "my_key") != NULL           ? "my_key"
                            : strstr(changes[i].value, "kv_cache_group") != NULL ? "kv_cache_group"
                                                                                 : changes[i].field;
        assert_int_equal(read_ignoring(path, "other"), FIG_UNSUPPORTED);
        assert_said(field);
        if (read_ignoring(path, field) != FIG_OK) fail_msg("case %zu: %s", i, fig_message());
    }
}

static void a_field_that_is_read_cannot_be_ignored(void **state) {
    (void)state;
    static const char *const fields[] = {"rope_theta",          "rope_scaling",
                                         "model_type",          "dtype",
                                         "num_key_value_heads", "quantization_config"};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        assert_int_equal(read_ignoring(llama, fields[i]), FIG_INVALID);
        assert_said(fields[i]);
        assert_said("is to be ignored, but model_type llama has a meaning for it");
    }
    assert_int_equal(read_ignoring(mistral, "sliding_window"), FIG_INVALID);
    assert_int_equal(read_ignoring("tests/configs/gemma-2-9b-it.json", "attn_logit_softcapping"),
                     FIG_INVALID);
    assert_int_equal(read_ignoring(llama, "low_freq_factor"), FIG_INVALID);
    assert_said("rope_scaling.low_freq_factor is 1.0, and cannot be ignored");
}

static void invalid_options_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {"a", NULL};
    const struct {
        fig_config_options options;
        const char *said;
    } cases[] = {
        {{.dtype = FIG_E4M3}, "config: dtype is"},
        {{.ignored_count = -1}, "ignored_count is -1"},
        {{.ignored_count = 1}, "ignored is NULL"},
        {{.ignored = names, .ignored_count = 2}, "ignored[1] is NULL"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_spec spec = {.size = sizeof spec}, before = spec;
        fig_config_options options = cases[i].options;
        options.size = sizeof options;
        assert_int_equal(fig_spec_read_config_with(&spec, llama, &options), FIG_INVALID);
        assert_said(cases[i].said);
        assert_memory_equal(&spec, &before, sizeof spec);
    }
}

/* ---- Caches */

#define SCHEME(fields) "{\"kv_cache_scheme\":{\"num_bits\":8,\"type\":\"float\"" fields "}}"

static void a_file_says_how_its_caches_are_stored(void **state) {
    (void)state;
    static const struct {
        const char *value;
        fig_dtype kv_dtype;
        int32_t kv_scales;
    } cases[] = {
        {"{\"quant_method\":\"fp8\",\"kv_cache_scheme\":null}", 0, 0},
        {SCHEME(""), FIG_E4M3, 0},
        {SCHEME(",\"dynamic\":false,\"symmetric\":true,\"strategy\":\"tensor\",\"group_size\":null,"
                "\"observer\":\"minmax\",\"observer_kwargs\":{},\"actorder\":null"),
         FIG_E4M3, 0},
        {SCHEME(",\"strategy\":\"attn_head\""), FIG_E4M3, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int within = 0; within < 3; within++) {
            fig_spec spec = {.size = sizeof spec, .batch_limit = 1};
            const fig_json_change change = {within > 0 ? small : llama,
                                            within == 2 ? "text_config" : NULL,
                                            "quantization_config", cases[i].value};
            if (fig_spec_read_config(&spec, fig_json_file_change(&change)) != FIG_OK)
                fail_msg("case %zu: %s", i, fig_message());
            assert_int_equal(spec.kv_dtype, cases[i].kv_dtype);
            assert_int_equal(spec.kv_scales, cases[i].kv_scales);
            assert_int_equal(fig_spec_check(&spec), FIG_OK);
        }
    }
}

static void caches_that_are_stored_otherwise_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *value, *said;
        fig_status status;
    } cases[] = {
        {"{\"kv_cache_scheme\":{\"num_bits\":4,\"type\":\"float\"}}", "num_bits is 4", FIG_INVALID},
        {"{\"kv_cache_scheme\":{\"num_bits\":8,\"type\":\"int\"}}", "type is \"int\"",
         FIG_UNSUPPORTED},
        {"{\"kv_cache_scheme\":{\"type\":\"float\"}}", "num_bits is missing", FIG_INVALID},
        {"{\"kv_cache_scheme\":{\"num_bits\":8}}", "kv_cache_scheme.type is missing", FIG_INVALID},
        {"{\"kv_cache_scheme\":\"fp8\"}", "it must be an object", FIG_INVALID},
        {"\"fp8\"", "it must be an object", FIG_INVALID},
        {SCHEME(",\"dynamic\":true"), "kv_cache_scheme.dynamic is true", FIG_UNSUPPORTED},
        {SCHEME(",\"symmetric\":false"), "symmetric is false", FIG_UNSUPPORTED},
        {SCHEME(",\"strategy\":\"channel\""), "strategy is \"channel\"", FIG_UNSUPPORTED},
        {SCHEME(",\"group_size\":64"), "group_size is 64", FIG_UNSUPPORTED},
        {"{\"kv_cache_quant_algo\":\"FP8\"}", "kv_cache_quant_algo is \"FP8\"", FIG_UNSUPPORTED},
        {"{\"kv_cache_quant_config\":{\"*k\":{}}}", "kv_cache_quant_config is", FIG_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_spec spec = {.size = sizeof spec}, before = spec;
        const fig_json_change change = {llama, NULL, "quantization_config", cases[i].value};
        assert_int_equal(fig_spec_read_config(&spec, fig_json_file_change(&change)),
                         cases[i].status);
        assert_said("quantization_config");
        assert_said(cases[i].said);
        assert_memory_equal(&spec, &before, sizeof spec);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_callers_dtype_stands_in_place_of_the_files),
        cmocka_unit_test(an_unknown_field_passes_where_the_caller_names_it),
        cmocka_unit_test(a_field_that_is_read_cannot_be_ignored),
        cmocka_unit_test(invalid_options_are_refused),
        cmocka_unit_test(a_file_says_how_its_caches_are_stored),
        cmocka_unit_test(caches_that_are_stored_otherwise_are_refused),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fig_json_file_remove();
    return failed;
}
