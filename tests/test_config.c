/* test_config.c: that a config.json is read as its model means it, or refused by name.
 *
 * tests/configs/ holds the facts of real models. What no real file says is made here: a sound
 * config with one field changed. */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#include "include/figraph.h"
#include "tests/support/fault.h"
#include "tests/support/random.h"

static char path[] = "/tmp/test_config_XXXXXX";

static void write_file(const char *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static fig_spec empty_spec(void) {
    return (fig_spec){.size = sizeof(fig_spec)};
}

static fig_status read_text(fig_spec *spec, const char *text) {
    write_file(text, strlen(text));
    return fig_spec_read_config(spec, path);
}

/* Reads `base` with one field, of `object` where given, set to `value` (JSON), or gone (NULL). */
static fig_status read_changed(fig_spec *spec, const char *base, const char *object,
                               const char *field, const char *value) {
    json_error_t error;
    json_t *config = json_load_file(base, 0, &error);
    assert_non_null(config);
    json_t *inner = object != NULL ? json_object_get(config, object) : config;
    assert_non_null(inner);
    if (value == NULL) {
        json_object_del(inner, field);
    } else {
        json_t *changed = json_loads(value, JSON_DECODE_ANY, &error);
        assert_non_null(changed);
        json_object_set_new(inner, field, changed);
    }
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    return fig_spec_read_config(spec, path);
}

static const char llama[] = "tests/configs/llama-3.1-8b.json";
static const char newer[] = "tests/configs/llama-3.1-8b-newer-form.json";

static void assert_said(const char *part) {
    if (strstr(fig_message(), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fig_message(), part);
}

/* ---- Real models */

typedef struct model {
    const char *path;
    fig_spec spec;
} model;

static const model models[] = {
    {"tests/configs/llama-3.1-8b.json",
     {.dtype = FIG_BF16,
      .layers = 32,
      .q_heads = 32,
      .kv_heads = 8,
      .head_dim = 128,
      .ffn_width = 14336,
      .kv_limit = 131072,
      .rope = {0, 500000.0f, 1.0f, 8.0f, 1.0f, 4.0f, 8192}}},
    {"tests/configs/llama-3.1-8b-newer-form.json",
     {.dtype = FIG_BF16,
      .layers = 32,
      .q_heads = 32,
      .kv_heads = 8,
      .head_dim = 128,
      .ffn_width = 14336,
      .kv_limit = 131072,
      .rope = {0, 500000.0f, 1.0f, 8.0f, 1.0f, 4.0f, 8192}}},
    {"tests/configs/llama-3.2-1b.json",
     {.dtype = FIG_BF16,
      .layers = 16,
      .q_heads = 32,
      .kv_heads = 8,
      .head_dim = 64,
      .ffn_width = 8192,
      .kv_limit = 131072,
      .rope = {0, 500000.0f, 1.0f, 32.0f, 1.0f, 4.0f, 8192}}},
    {"tests/configs/llama-2-7b.json",
     {.dtype = FIG_F16,
      .layers = 32,
      .q_heads = 32,
      .kv_heads = 32,
      .head_dim = 128,
      .ffn_width = 11008,
      .kv_limit = 4096,
      .rope = {0, 10000.0f, 1.0f, 0, 0, 0, 0}}},
    {"tests/configs/llama-7b.json",
     {.dtype = FIG_F16,
      .layers = 32,
      .q_heads = 32,
      .kv_heads = 32,
      .head_dim = 128,
      .ffn_width = 11008,
      .kv_limit = 2048,
      .rope = {0, 10000.0f, 1.0f, 0, 0, 0, 0}}},
    {"tests/configs/vicuna-7b-v1.5-16k.json",
     {.dtype = FIG_F16,
      .layers = 32,
      .q_heads = 32,
      .kv_heads = 32,
      .head_dim = 128,
      .ffn_width = 11008,
      .kv_limit = 4096,
      .rope = {0, 10000.0f, 4.0f, 0, 0, 0, 0}}},
    {"tests/configs/tinyllama-1.1b.json",
     {.dtype = FIG_BF16,
      .layers = 22,
      .q_heads = 32,
      .kv_heads = 4,
      .head_dim = 64,
      .ffn_width = 5632,
      .kv_limit = 2048,
      .rope = {0, 10000.0f, 1.0f, 0, 0, 0, 0}}},
    {"tests/configs/yi-34b.json",
     {.dtype = FIG_BF16,
      .layers = 60,
      .q_heads = 56,
      .kv_heads = 8,
      .head_dim = 128,
      .ffn_width = 20480,
      .kv_limit = 4096,
      .rope = {0, 5000000.0f, 1.0f, 0, 0, 0, 0}}},
};

static void every_model_reads_as_its_facts_say(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        fig_spec spec = empty_spec(), expected = models[i].spec;
        if (fig_spec_read_config(&spec, models[i].path) != FIG_OK) fail_msg("%s", fig_message());
        expected.size = sizeof expected;
        /* Every field is four bytes wide. */
        for (size_t word = 0; word < sizeof spec / 4; word++) {
            uint32_t got, want;
            memcpy(&got, (const uint8_t *)&spec + 4 * word, 4);
            memcpy(&want, (const uint8_t *)&expected + 4 * word, 4);
            if (got != want)
                fail_msg("%s: word %zu is %#x, not %#x", models[i].path, word, got, want);
        }
        spec.batch_limit = 8;
        if (fig_spec_check(&spec) != FIG_OK) fail_msg("%s: %s", models[i].path, fig_message());
    }
}

static void a_config_agrees_with_the_preset_of_its_model(void **state) {
    (void)state;
    fig_spec preset, spec;
    assert_int_equal(fig_spec_preset(&preset, "llama-3.1-8b"), FIG_OK);
    spec = preset;
    assert_int_equal(fig_spec_read_config(&spec, llama), FIG_OK);
    if (spec.rope.scale == 1.0f && preset.rope.scale == 0.0f) preset.rope.scale = 1.0f;
    assert_memory_equal(&spec, &preset, sizeof spec);
}

static void what_a_config_does_not_say_stays(void **state) {
    (void)state;
    fig_spec spec = {.size = sizeof spec,
                     .page_size = 32,
                     .batch_limit = 7,
                     .kv_limit = 999,
                     .sequence_limit = 11,
                     .sm_scale = 0.5f,
                     .q_heads = 1};
    assert_int_equal(fig_spec_read_config(&spec, llama), FIG_OK);
    assert_int_equal(spec.page_size, 32);
    assert_int_equal(spec.batch_limit, 7);
    assert_int_equal(spec.kv_limit, 999);
    assert_int_equal(spec.sequence_limit, 11);
    assert_true(spec.sm_scale == 0.5f);
    assert_int_equal(spec.q_heads, 32);
}

static void a_scaled_rope_does_not_outlive_the_next_config(void **state) {
    (void)state;
    fig_spec spec = empty_spec();
    spec.rope.interleaved = 1;
    assert_int_equal(fig_spec_read_config(&spec, llama), FIG_OK);
    assert_int_equal(spec.rope.interleaved, 0);
    assert_int_equal(fig_spec_read_config(&spec, "tests/configs/llama-2-7b.json"), FIG_OK);
    assert_true(spec.rope.llama3_factor == 0.0f && spec.rope.llama3_context == 0);
}

static void an_older_caller_gets_the_fields_it_has_room_for(void **state) {
    (void)state;
    struct {
        fig_spec spec;
    } room;
    memset(&room, 0x5a, sizeof room);
    const uint32_t size = offsetof(fig_spec, rope);
    memset(&room.spec, 0, size);
    room.spec.size = size;
    assert_int_equal(fig_spec_read_config(&room.spec, llama), FIG_OK);
    assert_int_equal(room.spec.size, size);
    assert_int_equal(room.spec.kv_heads, 8);
    for (size_t i = size; i < sizeof room; i++)
        assert_int_equal(((const uint8_t *)&room)[i], 0x5a);
}

/* ---- Refusals */

typedef struct refusal {
    const char *base, *object, *field, *value;
    fig_status status;
    const char *said;
} refusal;

static const refusal refusals[] = {
    {llama, NULL, "model_type", "\"qwen2\"", FIG_UNSUPPORTED, "model_type is \"qwen2\""},
    {llama, NULL, "model_type", NULL, FIG_INVALID, "model_type is missing"},
    {llama, NULL, "model_type", "7", FIG_INVALID, "model_type is 7"},
    {llama, NULL, "hidden_act", "\"gelu\"", FIG_UNSUPPORTED, "hidden_act is \"gelu\""},
    {llama, NULL, "hidden_act", NULL, FIG_INVALID, "hidden_act is missing"},
    {llama, NULL, "num_hidden_layers", NULL, FIG_INVALID, "num_hidden_layers is missing"},
    {llama, NULL, "num_hidden_layers", "0", FIG_INVALID, "num_hidden_layers is 0"},
    {llama, NULL, "num_hidden_layers", "513", FIG_INVALID, "1 to 512"},
    {llama, NULL, "num_hidden_layers", "32.0", FIG_INVALID, "it must be an integer"},
    {llama, NULL, "num_hidden_layers", "\"32\"", FIG_INVALID, "num_hidden_layers is \"32\""},
    {llama, NULL, "num_hidden_layers", "true", FIG_INVALID, "num_hidden_layers is true"},
    {llama, NULL, "num_attention_heads", "-32", FIG_INVALID, "num_attention_heads is -32"},
    {llama, NULL, "num_attention_heads", "4294967328", FIG_INVALID, "4294967328"},
    {llama, NULL, "num_attention_heads", NULL, FIG_INVALID, "num_attention_heads is missing"},
    {llama, NULL, "num_key_value_heads", "[8]", FIG_INVALID, "num_key_value_heads is [8]"},
    {llama, NULL, "head_dim", "0", FIG_INVALID, "head_dim is 0"},
    {llama, NULL, "hidden_size", "4097", FIG_INVALID, "hidden_size is 4097"},
    {llama, NULL, "hidden_size", NULL, FIG_INVALID, "hidden_size is missing"},
    {llama, NULL, "intermediate_size", NULL, FIG_INVALID, "intermediate_size is missing"},
    {llama, NULL, "intermediate_size", "9223372036854775807", FIG_INVALID, "9223372036854775807"},
    {llama, NULL, "torch_dtype", NULL, FIG_INVALID, "torch_dtype is missing"},
    {llama, NULL, "torch_dtype", "\"float8_e4m3fn\"", FIG_UNSUPPORTED, "float8_e4m3fn"},
    {llama, NULL, "torch_dtype", "16", FIG_INVALID, "torch_dtype is 16"},
    {llama, NULL, "dtype", "\"float16\"", FIG_INVALID, "torch_dtype is \"bfloat16\""},
    {llama, NULL, "max_position_embeddings", "-1", FIG_INVALID, "max_position_embeddings is -1"},
    {llama, NULL, "rope_theta", "0", FIG_INVALID, "rope_theta is 0"},
    {llama, NULL, "rope_theta", "1e39", FIG_INVALID, "rope_theta is 1e39"},
    {llama, NULL, "rope_theta", "\"5e5\"", FIG_INVALID, "rope_theta is \"5e5\""},
    {llama, NULL, "rope_scaling", "\"llama3\"", FIG_INVALID, "it must be an object"},
    {llama, "rope_scaling", "rope_type", NULL, FIG_INVALID, "rope_scaling.rope_type is missing"},
    {llama, "rope_scaling", "rope_type", "\"dynamic\"", FIG_UNSUPPORTED, "is \"dynamic\""},
    {llama, "rope_scaling", "rope_type", "\"longrope\"", FIG_UNSUPPORTED, "is \"longrope\""},
    {llama, "rope_scaling", "rope_type", "[]", FIG_INVALID, "rope_type is []"},
    {llama, "rope_scaling", "type", "\"linear\"", FIG_INVALID, "type is \"linear\""},
    {llama, "rope_scaling", "factor", NULL, FIG_INVALID, "rope_scaling.factor is missing"},
    {llama, "rope_scaling", "factor", "-8", FIG_INVALID, "rope_scaling.factor is -8"},
    {llama, "rope_scaling", "low_freq_factor", NULL, FIG_INVALID, "low_freq_factor is missing"},
    {llama, "rope_scaling", "high_freq_factor", "{}", FIG_INVALID, "high_freq_factor is {}"},
    {llama, "rope_scaling", "original_max_position_embeddings", "8192.5", FIG_INVALID, "8192.5"},
    {llama, "rope_scaling", "attention_factor", "1.2", FIG_UNSUPPORTED, "attention_factor is 1.2"},
    {llama, "rope_scaling", "mrope_section", "[16,24]", FIG_UNSUPPORTED, "mrope_section"},
    {llama, NULL, "rope_parameters", "{\"rope_type\":\"default\"}", FIG_INVALID, "rope_scaling"},
    {newer, "rope_parameters", "rope_type", NULL, FIG_INVALID, "rope_parameters.rope_type"},
    {newer, "rope_parameters", "rope_type", "\"default\"", FIG_UNSUPPORTED, "type default"},
    {newer, NULL, "rope_theta", "10000.0", FIG_INVALID, "rope_parameters.rope_theta is 500000"},
    {newer, "rope_parameters", "rope_theta", "null", FIG_OK, ""},
    {newer, NULL, "rope_theta", "500000", FIG_OK, ""},
    {newer, NULL, "torch_dtype", "\"bfloat16\"", FIG_OK, ""},
    {llama, NULL, "sliding_window", "4096", FIG_UNSUPPORTED, "sliding_window is 4096"},
    {llama, NULL, "sliding_window", "null", FIG_OK, ""},
    {llama, NULL, "attn_logit_softcapping", "50.0", FIG_UNSUPPORTED, "attn_logit_softcapping"},
    {llama, NULL, "query_pre_attn_scalar", "256", FIG_UNSUPPORTED, "query_pre_attn_scalar"},
    {llama, NULL, "attention_multiplier", "0.01", FIG_UNSUPPORTED, "attention_multiplier"},
    {llama, NULL, "partial_rotary_factor", "0.5", FIG_UNSUPPORTED, "partial_rotary_factor is 0.5"},
    {llama, NULL, "partial_rotary_factor", "1.0", FIG_OK, ""},
    {llama, NULL, "no_rope_layers", "[1,1,1,0]", FIG_UNSUPPORTED, "no_rope_layers"},
    {llama, NULL, "qk_norm", "true", FIG_UNSUPPORTED, "qk_norm is true"},
    {llama, NULL, "qk_norm", "false", FIG_OK, ""},
    {llama, NULL, "alibi", "true", FIG_UNSUPPORTED, "alibi is true"},
    {llama, NULL, "layer_types", "[\"full_attention\",\"full_attention\"]", FIG_OK, ""},
    {llama, NULL, "layer_types", "[\"full_attention\",\"sliding_attention\"]", FIG_UNSUPPORTED,
     "layer_types[1] is sliding_attention"},
    {llama, NULL, "layer_types", "[3]", FIG_UNSUPPORTED, "layer_types[0]"},
    {llama, NULL, "layer_types", "3", FIG_INVALID, "layer_types is 3"},
    {llama, NULL, "attention_bias", "true", FIG_OK, ""},
    {llama, NULL, "num_key_value_heads", "null", FIG_OK, ""},
    {llama, NULL, "max_position_embeddings", NULL, FIG_OK, ""},
};

static void each_fault_of_a_config_is_named_and_changes_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *r = &refusals[i];
        fig_spec spec = empty_spec(), before = spec;
        const fig_status status = read_changed(&spec, r->base, r->object, r->field, r->value);
        if (status != r->status)
            fail_msg("%s = %s: %s, not %s (%s)", r->field, r->value == NULL ? "" : r->value,
                     fig_status_name(status), fig_status_name(r->status), fig_message());
        if (status == FIG_OK) continue;
        assert_said(r->said);
        assert_said(path);
        assert_memory_equal(&spec, &before, sizeof spec);
    }
}

static void models_of_other_kinds_are_refused_by_name(void **state) {
    (void)state;
    fig_spec spec = empty_spec();
    assert_int_equal(fig_spec_read_config(&spec, "tests/configs/mistral-7b-v0.1.json"),
                     FIG_UNSUPPORTED);
    assert_said("model_type is \"mistral\"");
    assert_int_equal(fig_spec_read_config(&spec, "tests/configs/yarn-llama-2-7b-128k.json"),
                     FIG_UNSUPPORTED);
    assert_said("rope_scaling.type is \"yarn\"");
}

static void an_unused_window_is_no_window(void **state) {
    (void)state;
    fig_spec spec = empty_spec();
    assert_int_equal(read_text(&spec, "{\"model_type\":\"llama\",\"hidden_act\":\"silu\","
                                      "\"sliding_window\":4096,\"use_sliding_window\":false,"
                                      "\"num_hidden_layers\":1,\"num_attention_heads\":4,"
                                      "\"head_dim\":64,\"intermediate_size\":64,"
                                      "\"dtype\":\"float32\"}"),
                     FIG_OK);
    assert_int_equal(spec.kv_heads, 4);
    assert_int_equal(spec.kv_limit, 0);
    assert_int_equal(spec.dtype, FIG_F32);
}

static void a_longer_context_than_any_spec_is_cut_to_the_limit(void **state) {
    (void)state;
    fig_spec spec = empty_spec();
    assert_int_equal(read_changed(&spec, llama, NULL, "max_position_embeddings", "10485760"),
                     FIG_OK);
    assert_int_equal(spec.kv_limit, 1 << 20);
}

static void what_is_no_json_is_refused_with_its_place(void **state) {
    (void)state;
    fig_spec spec = empty_spec();
    assert_int_equal(read_text(&spec, "{\n  \"model_type\": llama\n}"), FIG_INVALID);
    assert_said("line 2, column 2");
    assert_int_equal(read_text(&spec, "{\"model_type\":\"llama\",\"model_type\":\"llama\"}"),
                     FIG_INVALID);
    assert_said("duplicate object key");
    assert_int_equal(read_text(&spec, "{\"hidden_size\": 99999999999999999999}"), FIG_INVALID);
    assert_said("too big integer");
    assert_int_equal(read_text(&spec, "[1, 2]"), FIG_INVALID);
    assert_said("it must be an object");
    assert_int_equal(read_text(&spec, ""), FIG_INVALID);
    assert_int_equal(read_text(&spec, "{} {}"), FIG_INVALID);
    assert_said("line 1");
}

static void a_file_that_cannot_be_read_is_named(void **state) {
    (void)state;
    fig_spec spec = empty_spec();
    assert_int_equal(fig_spec_read_config(&spec, "/nowhere/config.json"), FIG_IO);
    assert_said("/nowhere/config.json");
    assert_said(strerror(ENOENT));
    assert_int_equal(fig_spec_read_config(&spec, "tests"), FIG_IO);
    assert_said(strerror(EISDIR));
    assert_int_equal(fig_spec_read_config(&spec, NULL), FIG_INVALID);
    assert_int_equal(fig_spec_read_config(NULL, llama), FIG_INVALID);
    spec.size = 0;
    assert_int_equal(fig_spec_read_config(&spec, llama), FIG_INVALID);
}

static void a_file_beyond_the_limit_is_not_parsed(void **state) {
    (void)state;
    fig_spec spec = empty_spec();
    const size_t limit = 1 << 20;
    char *text = malloc(limit + 1);
    assert_non_null(text);
    memset(text, ' ', limit + 1);
    text[0] = '{';
    text[1] = '}';
    write_file(text, limit + 1);
    assert_int_equal(fig_spec_read_config(&spec, path), FIG_TOO_LARGE);
    assert_said("1048576");
    write_file(text, limit);
    assert_int_equal(fig_spec_read_config(&spec, path), FIG_INVALID);
    assert_said("model_type is missing");
    memset(text, '[', limit);
    write_file(text, limit);
    assert_int_equal(fig_spec_read_config(&spec, path), FIG_INVALID);
    assert_said("maximum parsing depth");
    free(text);
}

static void mutated_configs_are_read_or_refused_with_a_sentence(void **state) {
    (void)state;
    fig_random random = fig_random_seed(20);
    char text[2048];
    FILE *file = fopen(llama, "rb");
    assert_non_null(file);
    const size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    for (int i = 0; i < 3000; i++) {
        char mutated[sizeof text];
        fig_spec spec = empty_spec();
        memcpy(mutated, text, length);
        for (int32_t n = fig_random_range(&random, 1, 4); n > 0; n--)
            mutated[fig_random_range(&random, 0, (int32_t)length - 1)] =
                (char)fig_random_range(&random, 0, 255);
        write_file(mutated, length);
        if (fig_spec_read_config(&spec, path) == FIG_OK) continue;
        assert_int_equal(strncmp(fig_message(), path, strlen(path)), 0);
        assert_int_equal(spec.layers, 0);
    }
}

static void every_call_that_fails_leaves_a_sentence_and_the_spec(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        fig_spec spec = empty_spec();
        fig_fault_arm(n);
        const fig_status status = fig_spec_read_config(&spec, llama);
        const int64_t seen = fig_fault_disarm();
        if (seen < n) {
            assert_int_equal(status, FIG_OK);
            assert_true(n > 3);
            break;
        }
        /* What is read is right even where closing the file is not. */
        if (status == FIG_OK) continue;
        assert_int_equal(spec.layers, 0);
        assert_true(strlen(fig_message()) > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_reads_as_its_facts_say),
        cmocka_unit_test(a_config_agrees_with_the_preset_of_its_model),
        cmocka_unit_test(what_a_config_does_not_say_stays),
        cmocka_unit_test(a_scaled_rope_does_not_outlive_the_next_config),
        cmocka_unit_test(an_older_caller_gets_the_fields_it_has_room_for),
        cmocka_unit_test(each_fault_of_a_config_is_named_and_changes_nothing),
        cmocka_unit_test(models_of_other_kinds_are_refused_by_name),
        cmocka_unit_test(an_unused_window_is_no_window),
        cmocka_unit_test(a_longer_context_than_any_spec_is_cut_to_the_limit),
        cmocka_unit_test(what_is_no_json_is_refused_with_its_place),
        cmocka_unit_test(a_file_that_cannot_be_read_is_named),
        cmocka_unit_test(a_file_beyond_the_limit_is_not_parsed),
        cmocka_unit_test(mutated_configs_are_read_or_refused_with_a_sentence),
        cmocka_unit_test(every_call_that_fails_leaves_a_sentence_and_the_spec),
    };
    int handle = mkstemp(path);
    if (handle < 0) return 1;
    close(handle);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
