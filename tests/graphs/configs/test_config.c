/* test_config.c: tests the spec that is read from a config.json: it must describe the same model as
 * the file.
 *
 * tests/configs/ holds the configs of real models. Where no real file has a case, this test changes
 * some fields of a real one. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "planner/spec/spec.h"
#include "tests/support/files/json_file.h"

static fig_spec empty_spec(void) {
    return (fig_spec){.size = sizeof(fig_spec)};
}

static const char llama[] = "tests/configs/llama-3.1-8b.json";

static void assert_said(const char *part) {
    if (strstr(fig_message(), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fig_message(), part);
}

/* ---- Real models */

/* Models whose RoPE frequencies are given by a table. */
typedef enum table {
    NO_TABLE,
    GPT_OSS,    /* yarn with unrounded ends */
    OLMO_3,     /* yarn with an attention factor of its own */
    YARN_LLAMA, /* yarn as it was first published */
    PHI_3,      /* longrope of the whole head */
    PHI_4       /* longrope of three quarters of the head */
} table;

typedef struct model {
    const char *path, *preset; /* NULL: no preset */
    fig_spec spec;
    table table;
} model;

#define LLAMA3_ROPE(factor) .rope = {0, 0, 500000.0f, 1.0f, factor, 1.0f, 4.0f, 8192}
#define ROPE(theta, scale) .rope = {0, 0, theta, scale, 0, 0, 0, 0}

#define GEMMA_3(name, preset, layers_, q, kv, dim, width, limit, seen, windows, scale, factor)     \
    {"tests/configs/gemma-3-" name ".json", preset,                                                \
     {.dtype = FIG_BF16, .layers = layers_, .q_heads = q, .kv_heads = kv, .head_dim = dim,         \
      .ffn_width = width, .activation = FIG_GELU_TANH, .kv_limit = limit, .window = seen,          \
      .window_layers = {windows}, .sm_scale = scale, .qk_norm_epsilon = 1e-6f,                     \
      ROPE(1000000.0f, factor), .window_rope = {0, 0, 10000.0f, 1.0f, 0, 0, 0, 0}}, NO_TABLE}
/* clang-format off */
static const model models[] = {
    {"tests/configs/llama-3.1-8b.json", "llama-3.1-8b",
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 32, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 14336, .kv_limit = 131072, LLAMA3_ROPE(8.0f)}, NO_TABLE},
    {"tests/configs/llama-3.1-8b-newer-form.json", "llama-3.1-8b",
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 32, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 14336, .kv_limit = 131072, LLAMA3_ROPE(8.0f)}, NO_TABLE},
    {"tests/configs/llama-3.1-70b.json", "llama-3.1-70b",
     {.dtype = FIG_BF16, .layers = 80, .q_heads = 64, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 28672, .kv_limit = 131072, LLAMA3_ROPE(8.0f)}, NO_TABLE},
    {"tests/configs/llama-3.2-1b.json", NULL,
     {.dtype = FIG_BF16, .layers = 16, .q_heads = 32, .kv_heads = 8, .head_dim = 64,
      .ffn_width = 8192, .kv_limit = 131072, LLAMA3_ROPE(32.0f)}, NO_TABLE},
    {"tests/configs/llama-2-7b.json", NULL,
     {.dtype = FIG_F16, .layers = 32, .q_heads = 32, .kv_heads = 32, .head_dim = 128,
      .ffn_width = 11008, .kv_limit = 4096, ROPE(10000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/llama-7b.json", NULL,
     {.dtype = FIG_F16, .layers = 32, .q_heads = 32, .kv_heads = 32, .head_dim = 128,
      .ffn_width = 11008, .kv_limit = 2048, ROPE(10000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/vicuna-7b-v1.5-16k.json", NULL,
     {.dtype = FIG_F16, .layers = 32, .q_heads = 32, .kv_heads = 32, .head_dim = 128,
      .ffn_width = 11008, .kv_limit = 4096, ROPE(10000.0f, 4.0f)}, NO_TABLE},
    {"tests/configs/tinyllama-1.1b.json", NULL,
     {.dtype = FIG_BF16, .layers = 22, .q_heads = 32, .kv_heads = 4, .head_dim = 64,
      .ffn_width = 5632, .kv_limit = 2048, ROPE(10000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/yi-34b.json", NULL,
     {.dtype = FIG_BF16, .layers = 60, .q_heads = 56, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 20480, .kv_limit = 4096, ROPE(5000000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/mistral-7b-v0.1.json", "mistral-7b",
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 32, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 14336, .kv_limit = 32768, .window = 4096, ROPE(10000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/mistral-7b-v0.3.json", NULL,
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 32, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 14336, .kv_limit = 32768, ROPE(1000000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/qwen2.5-7b-instruct.json", "qwen2.5-7b",
     {.dtype = FIG_BF16, .layers = 28, .q_heads = 28, .kv_heads = 4, .head_dim = 128,
      .ffn_width = 18944, .kv_limit = 32768, ROPE(1000000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/qwen3-8b.json", "qwen3-8b",
     {.dtype = FIG_BF16, .layers = 36, .q_heads = 32, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 12288, .kv_limit = 40960, .qk_norm_epsilon = 1e-6f,
      ROPE(1000000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/gemma-2-9b-it.json", "gemma-2-9b",
     {.dtype = FIG_BF16, .layers = 42, .q_heads = 16, .kv_heads = 8, .head_dim = 256,
      .ffn_width = 14336, .activation = FIG_GELU_TANH, .kv_limit = 8192, .window = 4096,
      .window_layers = {0x15555555555}, .soft_cap = 50.0f, .sm_scale = 1.0f / 16,
      ROPE(10000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/gemma-2-27b-it.json", NULL,
     {.dtype = FIG_BF16, .layers = 46, .q_heads = 32, .kv_heads = 16, .head_dim = 128,
      .ffn_width = 36864, .activation = FIG_GELU_TANH, .kv_limit = 8192, .window = 4096,
      .window_layers = {0x155555555555}, .soft_cap = 50.0f, .sm_scale = 1.0f / 12,
      ROPE(10000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/granite-3.1-8b.json", "granite-3.1-8b",
     {.dtype = FIG_BF16, .layers = 40, .q_heads = 32, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 12800, .kv_limit = 131072, .sm_scale = 0.0078125f,
      ROPE(10000000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/glm-4-9b-0414.json", "glm-4-9b",
     {.dtype = FIG_BF16, .layers = 40, .q_heads = 32, .kv_heads = 2, .head_dim = 128,
      .ffn_width = 13696, .kv_limit = 32768,
      .rope = {1, 64, 10000.0f, 1.0f, 0, 0, 0, 0}}, NO_TABLE},
    {"tests/configs/phi-3-mini-4k.json", NULL,
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 32, .kv_heads = 32, .head_dim = 96,
      .ffn_width = 8192, .kv_limit = 4096, .window = 2047, ROPE(10000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/phi-4.json", "phi-4",
     {.dtype = FIG_BF16, .layers = 40, .q_heads = 40, .kv_heads = 10, .head_dim = 128,
      .ffn_width = 17920, .kv_limit = 16384, ROPE(250000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/mixtral-8x7b.json", "mixtral-8x7b",
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 32, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 14336, .ffn_rows = 2, .kv_limit = 32768, ROPE(1000000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/qwen3-30b-a3b.json", "qwen3-30b-a3b",
     {.dtype = FIG_BF16, .layers = 48, .q_heads = 32, .kv_heads = 4, .head_dim = 128,
      .ffn_width = 768, .ffn_rows = 8, .kv_limit = 40960, .qk_norm_epsilon = 1e-6f,
      ROPE(1000000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/smollm3-3b.json", "smollm3-3b",
     {.dtype = FIG_BF16, .layers = 36, .q_heads = 16, .kv_heads = 4, .head_dim = 128,
      .ffn_width = 11008, .kv_limit = 65536, .plain_layers = {0x888888888},
      ROPE(5000000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/command-r7b.json", "command-r7b",
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 32, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 14336, .kv_limit = 8192, .window = 4096, .window_layers = {0x77777777},
      .plain_layers = {0x88888888}, .rope = {1, 0, 50000.0f, 1.0f, 0, 0, 0, 0}}, NO_TABLE},
    {"tests/configs/yarn-llama-2-7b-128k.json", NULL,
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 32, .kv_heads = 32, .head_dim = 128,
      .ffn_width = 11008, .kv_limit = 131072, ROPE(10000.0f, 1.0f)}, YARN_LLAMA},
    {"tests/configs/gpt-oss-20b.json", "gpt-oss-20b",
     {.dtype = FIG_BF16, .layers = 24, .q_heads = 64, .kv_heads = 8, .head_dim = 64,
      .ffn_width = 2880, .ffn_rows = 4, .activation = FIG_SWIGLU_LIMITED,
      .kv_limit = 131072, .window = 128, .window_layers = {0x555555}, .sinks = 1,
      ROPE(150000.0f, 1.0f)}, GPT_OSS},
    {"tests/configs/smollm2-135m.json", NULL,
     {.dtype = FIG_BF16, .layers = 30, .q_heads = 9, .kv_heads = 3, .head_dim = 64,
      .ffn_width = 1536, .kv_limit = 8192, ROPE(100000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/mistral-small-3.1-24b.json", NULL,
     {.dtype = FIG_BF16, .layers = 40, .q_heads = 32, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 32768, .kv_limit = 131072, ROPE(1e9f, 1.0f)}, NO_TABLE},
    {"tests/configs/qwen3-coder-30b-a3b.json", NULL,
     {.dtype = FIG_BF16, .layers = 48, .q_heads = 32, .kv_heads = 4, .head_dim = 128,
      .ffn_width = 768, .ffn_rows = 8, .kv_limit = 262144, .qk_norm_epsilon = 1e-6f,
      ROPE(1e7f, 1.0f)}, NO_TABLE},
    {"tests/configs/glm-4-9b-chat.json", NULL,
     {.dtype = FIG_BF16, .layers = 40, .q_heads = 32, .kv_heads = 2, .head_dim = 128,
      .ffn_width = 13696, .kv_limit = 131072,
      .rope = {1, 64, 10000.0f, 1.0f, 0, 0, 0, 0}}, NO_TABLE},
    GEMMA_3("270m", NULL, 18, 4, 1, 256, 2048, 32768, 512, 0x1f7df, 1.0f / 16, 1.0f),
    GEMMA_3("1b-it", NULL, 26, 4, 1, 256, 6912, 32768, 512, 0x37df7df, 1.0f / 16, 1.0f),
    GEMMA_3("4b-it", NULL, 34, 8, 4, 256, 10240, 131072, 1024, 0x3df7df7df, 1.0f / 16, 8.0f),
    GEMMA_3("12b-it", NULL, 48, 16, 8, 256, 15360, 131072, 1024, 0x7df7df7df7df, 1.0f / 16, 8.0f),
    GEMMA_3("27b-it", "gemma-3-27b", 62, 32, 16, 128, 21504, 131072, 1024, 0x37df7df7df7df7df,
            0.0771516749810459598f, 8.0f),
    GEMMA_3("27b-text", "gemma-3-27b", 62, 32, 16, 128, 21504, 131072, 1024, 0x37df7df7df7df7df,
            0.0771516749810459598f, 8.0f),
    {"tests/configs/phi-3.5-mini.json", NULL,
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 32, .kv_heads = 32, .head_dim = 96,
      .ffn_width = 8192, .kv_limit = 131072, .window = 262144, ROPE(10000.0f, 1.0f)}, PHI_3},
    {"tests/configs/phi-4-mini.json", NULL,
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 24, .kv_heads = 8, .head_dim = 128,
      .ffn_width = 8192, .kv_limit = 131072, .window = 262144,
      .rope = {0, 96, 10000.0f, 1.0f, 0, 0, 0, 0}}, PHI_4},
    {"tests/configs/olmo-2-7b-instruct.json", NULL,
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 32, .kv_heads = 32, .head_dim = 128,
      .ffn_width = 11008, .kv_limit = 4096, ROPE(500000.0f, 1.0f)}, NO_TABLE},
    {"tests/configs/olmo-3-7b.json", "olmo-3-7b",
     {.dtype = FIG_BF16, .layers = 32, .q_heads = 32, .kv_heads = 32, .head_dim = 128,
      .ffn_width = 11008, .kv_limit = 65536, .window = 4096, .window_layers = {0x77777777},
      ROPE(500000.0f, 1.0f), .window_rope = {0, 0, 500000.0f, 1.0f, 0, 0, 0, 0}}, OLMO_3},
};
/* clang-format on */
enum { MODEL_COUNT = sizeof models / sizeof models[0] };

/* Compares word by word: every byte of a fig_spec belongs to a field, and no field is narrower than
 * a word. */
static void assert_same_spec(const char *name, const fig_spec *spec, const fig_spec *expected) {
    for (size_t word = 0; word < sizeof *spec / 4; word++) {
        uint32_t got, due;
        memcpy(&got, (const uint8_t *)spec + 4 * word, 4);
        memcpy(&due, (const uint8_t *)expected + 4 * word, 4);
        if (got != due) fail_msg("%s: word %zu is %#x, not %#x", name, word, got, due);
    }
}

/* ---- Tables, in float64 from the public definitions */

#define PI 3.14159265358979323846

/* Returns the frequency of pair i. Pairs that turn more than 32 times in the old context keep their
 * own frequency, pairs that turn less than once have it divided by `factor`, and pairs in between
 * have a blend of both. */
static double yarn(double theta, int32_t dim, double factor, double context, int rounds,
                   int32_t i) {
    double first = dim * log(context / (32 * 2 * PI)) / (2 * log(theta));
    double last = dim * log(context / (2 * PI)) / (2 * log(theta));
    double own = pow(theta, -2.0 * i / dim);
    if (rounds) first = floor(first), last = ceil(last);
    double part = (i - first) / (last - first);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return own * (1 - part) + own / factor * part;
}

/* Four of the factors in a model's file. */
typedef struct known_factor {
    int32_t pair;
    double within, beyond; /* for sequences of up to 4096 tokens, and for longer ones */
} known_factor;

static const known_factor factors_of_phi_3[] = {{0, 1.0, 1.0800000429153442},
                                                {11, 1.1099998950958252, 7.400000095367432},
                                                {31, 2.0299997329711914, 62.62000274658203},
                                                {47, 2.8399994373321533, 64.83999633789062}};
static const known_factor factors_of_phi_4[] = {
    {0, 1, 1}, {1, 1, 1.118320672}, {31, 1, 32.03}, {47, 1, 47.77}};

static void expect_near(const model *m, const char *what, int32_t at, double got, double due,
                        double tolerance) {
    if (!(fabs(got - due) <= tolerance * due))
        fail_msg("%s: %s %d is %.17g, it must be %.17g", m->path, what, (int)at, got, due);
}

static void expect_longrope(const model *m, const fig_rope_table *got, const known_factor *factors,
                            int beyond) {
    for (int i = 0; i < 4; i++) {
        const double own = pow(10000, -2.0 * factors[i].pair / 96);
        expect_near(m, "frequency", factors[i].pair, got->frequencies[factors[i].pair],
                    own / (beyond ? factors[i].beyond : factors[i].within), 1e-7);
    }
    assert_true(got->frequencies[48] == 0);
    expect_near(m, "factor", 0, got->factor, sqrt(1 + log(32) / log(4096)), 1e-15);
}

static void expect_yarn(const model *m, const fig_rope_table *got, double factor, double context,
                        double attention) {
    const int32_t dim = m->spec.head_dim;
    for (int32_t i = 0; i < dim / 2; i++)
        expect_near(m, "frequency", i, got->frequencies[i],
                    yarn((double)m->spec.rope.theta, dim, factor, context, m->table != GPT_OSS, i),
                    1e-14);
    assert_true(got->frequencies[dim / 2] == 0);
    expect_near(m, "factor", 0, got->factor, attention, 1e-7);
}

/* Returns the spec that a model's facts give, with the table that was read. Checks that this table
 * is right for the spec's kv_limit. */
static fig_spec expected_of(const model *m, const fig_spec *read) {
    fig_spec expected = m->spec;
    const fig_rope_table *got = &read->rope_table;
    const int beyond = read->kv_limit > 4096;
    switch (m->table) {
    case NO_TABLE: break;
    case GPT_OSS:
    case YARN_LLAMA: expect_yarn(m, got, 32, 4096, 0.1 * log(32) + 1); break;
    case OLMO_3: expect_yarn(m, got, 8, 8192, 1.2079441541679836); break;
    case PHI_3: expect_longrope(m, got, factors_of_phi_3, beyond); break;
    case PHI_4: expect_longrope(m, got, factors_of_phi_4, beyond); break;
    }
    if (m->table != NO_TABLE) expected.rope_table = read->rope_table;
    return expected;
}

static void every_model_reads_as_its_facts_say(void **state) {
    (void)state;
    for (int i = 0; i < MODEL_COUNT; i++) {
        fig_spec spec = empty_spec();
        if (fig_spec_read_config(&spec, models[i].path) != FIG_OK) fail_msg("%s", fig_message());
        fig_spec expected = expected_of(&models[i], &spec);
        expected.size = sizeof expected;
        assert_same_spec(models[i].path, &spec, &expected);
        spec.batch_limit = 8;
        if (fig_spec_check(&spec) != FIG_OK) fail_msg("%s: %s", models[i].path, fig_message());
    }
}

/* Compares specs after defaults are filled in, since a preset may omit what a file states. */
static void a_config_agrees_with_the_preset_of_its_model(void **state) {
    (void)state;
    int compared = 0;
    for (int i = 0; i < MODEL_COUNT; i++) {
        fig_spec preset = {.size = sizeof preset}, read = empty_spec();
        if (models[i].preset == NULL) continue;
        assert_int_equal(fig_spec_preset(&preset, models[i].preset), FIG_OK);
        read.page_size = preset.page_size;
        read.batch_limit = preset.batch_limit;
        read.kv_limit = preset.kv_limit;
        assert_int_equal(fig_spec_read_config(&read, models[i].path), FIG_OK);
        assert_int_equal(fig_spec_resolve(&read, &read), FIG_OK);
        assert_int_equal(fig_spec_resolve(&preset, &preset), FIG_OK);
        assert_same_spec(models[i].path, &read, &preset);
        compared++;
    }
    assert_int_equal(compared, 18);
}

static int has_text_config(const char *path) {
    json_t *file = json_load_file(path, 0, NULL);
    const int has = json_object_get(file, "text_config") != NULL;
    json_decref(file);
    return has;
}

/* A field that is null, false or 0 requests nothing. A field whose name begins with an underscore
 * is a note by the file's author. */
static void a_field_that_nobody_knows_is_refused_in_every_family(void **state) {
    (void)state;
    for (int i = 0; i < MODEL_COUNT; i++) {
        fig_spec spec = empty_spec();
        fig_json_change change = {models[i].path, NULL, "new_attention", "7"};
        assert_int_equal(fig_spec_read_config(&spec, fig_json_file_change(&change)),
                         FIG_UNSUPPORTED);
        assert_said("new_attention is 7, which this library does not know for model_type");
        assert_said("if it does not affect a step, list it as a field to ignore");
        assert_int_equal(spec.layers, 0);
        change.value = "false";
        assert_int_equal(fig_spec_read_config(&spec, fig_json_file_change(&change)), FIG_OK);
        change = (fig_json_change){models[i].path, NULL, "_new_attention", "7"};
        assert_int_equal(fig_spec_read_config(&spec, fig_json_file_change(&change)), FIG_OK);
        change = (fig_json_change){models[i].path, "text_config", "new_attention", "7"};
        if (!has_text_config(models[i].path)) continue;
        assert_int_equal(fig_spec_read_config(&spec, fig_json_file_change(&change)),
                         FIG_UNSUPPORTED);
        assert_said("text_config.new_attention is 7, which this library does not know for");
    }
}

static void fields_that_a_config_lacks_stay(void **state) {
    (void)state;
    fig_spec spec = {.size = sizeof spec,
                     .page_size = 32,
                     .batch_limit = 7,
                     .kv_limit = 999,
                     .sequence_limit = 11,
                     .kv_dtype = FIG_E4M3,
                     .kv_layout = FIG_HND,
                     .kv_scales = 1,
                     .row_tokens = 4,
                     .q_heads = 1};
    assert_int_equal(fig_spec_read_config(&spec, llama), FIG_OK);
    assert_int_equal(spec.page_size, 32);
    assert_int_equal(spec.batch_limit, 7);
    assert_int_equal(spec.kv_limit, 999);
    assert_int_equal(spec.sequence_limit, 11);
    assert_int_equal(spec.kv_dtype, FIG_E4M3);
    assert_int_equal(spec.kv_layout, FIG_HND);
    assert_int_equal(spec.kv_scales, 1);
    assert_int_equal(spec.row_tokens, 4);
    assert_int_equal(spec.q_heads, 32);
}

static void nothing_of_a_model_outlives_the_next_config(void **state) {
    (void)state;
    for (int i = 0; i < MODEL_COUNT; i++) {
        for (int j = 0; j < MODEL_COUNT; j++) {
            fig_spec spec = empty_spec();
            spec.kv_limit = 1000;
            spec.rope.interleaved = 1;
            assert_int_equal(fig_spec_read_config(&spec, models[i].path), FIG_OK);
            assert_int_equal(fig_spec_read_config(&spec, models[j].path), FIG_OK);
            fig_spec expected = expected_of(&models[j], &spec);
            expected.kv_limit = 1000;
            expected.size = sizeof expected;
            assert_same_spec(models[j].path, &spec, &expected);
        }
    }
}

/* Reads a config into a spec of an older header's size. The bytes after that size must stay as they
 * are. */
static fig_status read_older(fig_spec *room, uint32_t size, const char *config) {
    memset(room, 0x5a, sizeof *room);
    memset(room, 0, size);
    room->size = size;
    const fig_status status = fig_spec_read_config(room, config);
    assert_int_equal(room->size, size);
    for (size_t i = size; i < sizeof *room; i++)
        assert_int_equal(((const uint8_t *)room)[i], 0x5a);
    return status;
}

static void an_older_caller_gets_what_it_has_room_for(void **state) {
    (void)state;
    fig_spec room = {.size = sizeof room};
    const uint32_t size = offsetof(fig_spec, rope) + offsetof(fig_rope_spec, llama3_factor);
    assert_int_equal(read_older(&room, size, "tests/configs/llama-2-7b.json"), FIG_OK);
    assert_int_equal(room.kv_heads, 32);
    assert_true(room.rope.theta == 10000.0f);
}

static void an_older_caller_is_told_what_it_has_no_room_for(void **state) {
    (void)state;
    fig_spec room = {.size = sizeof room};
    const uint32_t size = offsetof(fig_spec, rope) + offsetof(fig_rope_spec, llama3_factor);
    assert_int_equal(read_older(&room, size, llama), FIG_UNSUPPORTED);
    assert_said("a fig_spec of 160 bytes");
    assert_int_equal(room.kv_heads, 0);
}

/* ---- Windows and rope */

static const char gemma[] = "tests/configs/gemma-2-9b-it.json";
static const char mistral[] = "tests/configs/mistral-7b-v0.1.json";
static const char qwen2[] = "tests/configs/qwen2.5-7b-instruct.json";
static const char qwen3[] = "tests/configs/qwen3-8b.json";

static fig_status read_layers(fig_spec *spec, const char *base, int layers, const char *fields) {
    char number[16];
    const char *file = fig_json_file_update(base, fields);
    snprintf(number, sizeof number, "%d", layers);
    file = fig_json_file_change(&(fig_json_change){file, NULL, "num_hidden_layers", number});
    *spec = empty_spec();
    return fig_spec_read_config(spec, file);
}

typedef struct window_case {
    const char *base;
    int layers;
    const char *fields;
    int32_t window;
    uint64_t window_layers; /* 0: all layers have the window, or none has */
} window_case;

#define SLIDING "\"sliding_attention\""
#define FULL "\"full_attention\""

static const window_case window_cases[] = {
    {gemma, 1, "{}", 4096, 0},
    {gemma, 2, "{}", 4096, 1},
    {gemma, 5, "{}", 4096, 0x15},
    {gemma, 3, "{\"layer_types\":[" FULL "," SLIDING "," SLIDING "]}", 4096, 6},
    {gemma, 2, "{\"layer_types\":[" FULL "," FULL "]}", 0, 0},
    {gemma, 2, "{\"layer_types\":[" SLIDING "," SLIDING "]}", 4096, 0},
    {mistral, 2, "{\"layer_types\":[" FULL "," SLIDING "]}", 4096, 2},
    {mistral, 2, "{\"sliding_window\":null,\"layer_types\":[" FULL "," FULL "]}", 0, 0},
    {mistral, 2, "{\"use_sliding_window\":true}", 4096, 0},
    {qwen2, 4, "{\"use_sliding_window\":true,\"max_window_layers\":3}", 131072, 8},
    {qwen2, 4, "{\"use_sliding_window\":true,\"max_window_layers\":0}", 131072, 0},
    {qwen2, 4, "{\"use_sliding_window\":true,\"max_window_layers\":4}", 0, 0},
    {qwen2, 4, "{\"use_sliding_window\":true,\"max_window_layers\":28}", 0, 0},
    {qwen3, 3, "{\"use_sliding_window\":true,\"max_window_layers\":1,\"sliding_window\":64}", 64,
     6},
    {qwen3, 2,
     "{\"use_sliding_window\":true,\"max_window_layers\":null,\"sliding_window\":64,"
     "\"layer_types\":[" SLIDING "," FULL "]}",
     64, 1},
    {qwen3, 2, "{\"layer_types\":[" FULL "," FULL "]}", 0, 0},
    {qwen3, 2, "{\"use_sliding_window\":null}", 0, 0},
    {llama, 1, "{\"sliding_window\":64,\"use_sliding_window\":false}", 0, 0},
    {llama, 2, "{\"layer_types\":[" FULL "," FULL "]}", 0, 0},
};

static void each_layer_has_the_window_that_its_family_or_the_file_gives_it(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof window_cases / sizeof window_cases[0]; i++) {
        const window_case *c = &window_cases[i];
        fig_spec spec = {.size = sizeof spec};
        if (read_layers(&spec, c->base, c->layers, c->fields) != FIG_OK)
            fail_msg("case %zu: %s", i, fig_message());
        if (spec.window != c->window || spec.window_layers[0] != c->window_layers)
            fail_msg("case %zu: window %d of layers %#llx, not %d of %#llx", i, spec.window,
                     (unsigned long long)spec.window_layers[0], c->window,
                     (unsigned long long)c->window_layers);
    }
}

static void windows_reach_the_last_layer_that_a_spec_may_have(void **state) {
    (void)state;
    fig_spec spec = {.size = sizeof spec};
    assert_int_equal(read_layers(&spec, gemma, 512, "{}"), FIG_OK);
    for (int i = 0; i < 8; i++)
        assert_true(spec.window_layers[i] == UINT64_C(0x5555555555555555));
}

static void a_part_of_the_head_turns_where_the_file_says_so(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        int32_t rotary_dim;
    } cases[] = {
        {"{\"partial_rotary_factor\":0.5}", 64},
        {"{\"partial_rotary_factor\":0.4,\"head_dim\":80}", 32},
        {"{\"partial_rotary_factor\":0.25,\"head_dim\":256}", 64},
        {"{\"partial_rotary_factor\":1.0}", 0},
        {"{\"partial_rotary_factor\":1}", 0},
        {"{\"rope_scaling\":{\"type\":\"default\",\"partial_rotary_factor\":0.75}}", 96},
        {"{\"rope_scaling\":{\"type\":\"default\",\"partial_rotary_factor\":0.5},"
         "\"partial_rotary_factor\":0.5}",
         64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_spec spec = {.size = sizeof spec};
        if (read_layers(&spec, llama, 1, cases[i].fields) != FIG_OK)
            fail_msg("case %zu: %s", i, fig_message());
        assert_int_equal(spec.rope.rotary_dim, cases[i].rotary_dim);
    }
}

static void every_activation_that_a_file_can_name_is_read(void **state) {
    (void)state;
    fig_spec spec = {.size = sizeof spec};
    assert_int_equal(read_layers(&spec, llama, 1, "{\"hidden_act\":\"gelu\"}"), FIG_OK);
    assert_int_equal(spec.activation, FIG_GELU);
    assert_int_equal(read_layers(&spec, llama, 1, "{\"hidden_act\":\"gelu_pytorch_tanh\"}"),
                     FIG_OK);
    assert_int_equal(spec.activation, FIG_GELU_TANH);
    assert_int_equal(read_layers(&spec, gemma, 1, "{\"hidden_activation\":\"silu\"}"), FIG_OK);
    assert_int_equal(spec.activation, FIG_SILU);
}

/* The layers without RoPE are named by a list or an interval. In one family they are the layers
 * without a window. */
static void layers_without_rope_are_those_that_the_file_means(void **state) {
    (void)state;
    static const char smollm[] = "tests/configs/smollm3-3b.json";
    static const char command[] = "tests/configs/command-r7b.json";
    static const struct {
        const char *base;
        int layers;
        const char *fields;
        uint64_t plain;
    } cases[] = {
        {smollm, 3, "{\"no_rope_layers\":[0,1,0]}", 5},
        {smollm, 7, "{\"no_rope_layers\":null,\"no_rope_layer_interval\":3}", 0x24},
        {command, 5, "{\"sliding_window_pattern\":2}", 0xa},
        {command, 3, "{\"layer_types\":[" FULL "," SLIDING "," FULL "]}", 5},
        {command, 2, "{\"layer_types\":[" SLIDING "," SLIDING "]}", 0},
        {command, 2, "{\"layer_types\":[" FULL "," FULL "]}", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_spec spec;
        if (read_layers(&spec, cases[i].base, cases[i].layers, cases[i].fields) != FIG_OK)
            fail_msg("case %zu: %s", i, fig_message());
        if (spec.plain_layers[0] != cases[i].plain)
            fail_msg("case %zu: %#llx", i, (unsigned long long)spec.plain_layers[0]);
        spec.batch_limit = 1;
        assert_int_equal(fig_spec_check(&spec), FIG_OK);
    }
}

static void an_unused_window_is_no_window(void **state) {
    (void)state;
    fig_spec spec = empty_spec();
    const char text[] = "{\"model_type\":\"llama\",\"hidden_act\":\"silu\","
                        "\"sliding_window\":4096,\"use_sliding_window\":false,"
                        "\"num_hidden_layers\":1,\"num_attention_heads\":4,"
                        "\"head_dim\":64,\"intermediate_size\":64,"
                        "\"dtype\":\"float32\"}";
    assert_int_equal(fig_spec_read_config(&spec, fig_json_file_write(text, strlen(text))), FIG_OK);
    assert_int_equal(spec.kv_heads, 4);
    assert_int_equal(spec.kv_limit, 0);
    assert_int_equal(spec.window, 0);
    assert_int_equal(spec.dtype, FIG_F32);
}

static void a_longer_context_than_any_spec_is_cut_to_the_limit(void **state) {
    (void)state;
    fig_spec spec = {.size = sizeof spec};
    assert_int_equal(read_layers(&spec, llama, 1, "{\"max_position_embeddings\":10485760}"),
                     FIG_OK);
    assert_int_equal(spec.kv_limit, 1 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_reads_as_its_facts_say),
        cmocka_unit_test(a_config_agrees_with_the_preset_of_its_model),
        cmocka_unit_test(a_field_that_nobody_knows_is_refused_in_every_family),
        cmocka_unit_test(fields_that_a_config_lacks_stay),
        cmocka_unit_test(nothing_of_a_model_outlives_the_next_config),
        cmocka_unit_test(an_older_caller_gets_what_it_has_room_for),
        cmocka_unit_test(an_older_caller_is_told_what_it_has_no_room_for),
        cmocka_unit_test(each_layer_has_the_window_that_its_family_or_the_file_gives_it),
        cmocka_unit_test(windows_reach_the_last_layer_that_a_spec_may_have),
        cmocka_unit_test(a_part_of_the_head_turns_where_the_file_says_so),
        cmocka_unit_test(every_activation_that_a_file_can_name_is_read),
        cmocka_unit_test(layers_without_rope_are_those_that_the_file_means),
        cmocka_unit_test(an_unused_window_is_no_window),
        cmocka_unit_test(a_longer_context_than_any_spec_is_cut_to_the_limit),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fig_json_file_remove();
    return failed;
}
