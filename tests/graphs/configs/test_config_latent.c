/* test_config_latent.c: tests config.json files with latent attention: the spec that is read, the
 * refusals, and that a step with that spec gives the same numbers as the model's own code.
 *
 * tests/configs/latent/ holds small configs, saved by transformers, and numbers.txt, the results of
 * transformers' attention in float32. tests/configs/config_latent.py wrote both. The test
 * multiplies q and out by the two parts of kv_b_proj, as a caller does. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph.h"

enum {
    TOKENS = 24,
    SUMS = 8,
    LAYERS = 2,
    HEADS = 8,
    PLAIN = 16,
    TURNED = 64,
    VALUES = 16,
    LATENT = 512,
    KEY = LATENT + TURNED,
    NAME_BYTES = 32
};
enum { Q = 1, KV = 2, NORM = 4, WEIGHT = 5, SUM = 8 };

/* A sum of 3072 numbers is about a hundred, and float32 computes it to about 1e-4. */
static const double tolerance = 5e-3;

/* Returns a multiple of 2^-23 from -1 to 1. */
static float number_of(uint32_t kind, uint32_t layer, uint32_t token, uint32_t index) {
    uint32_t mixed =
        kind * 0x9E3779B1u ^ layer * 0x85EBCA6Bu ^ token * 0xC2B2AE35u ^ index * 0x27D4EB2Fu;
    mixed = (mixed ^ mixed >> 16) * 0x7FEB352Du;
    mixed = (mixed ^ mixed >> 15) * 0x846CA68Bu;
    mixed ^= mixed >> 16;
    return (float)((double)(mixed >> 8) / 8388608.0 - 1.0);
}

/* Returns element `column` of a row of kv_b_proj; a head has PLAIN rows of K, then VALUES of V. */
static double weight_of(uint32_t layer, int32_t row, int32_t column) {
    return (double)(0.25f * number_of(WEIGHT, layer, (uint32_t)row, (uint32_t)column));
}

static void must(fig_status status) {
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

static fig_spec read_model(const char *model) {
    char path[128];
    fig_spec spec = {.size = sizeof spec, .page_size = 16, .batch_limit = 1};
    snprintf(path, sizeof path, "tests/configs/latent/%s.json", model);
    must(fig_spec_read_config(&spec, path));
    return spec;
}

/* ---- A step */

typedef struct rig {
    fig_engine *engine;
    fig_graphs *graphs;
    double weights[LAYERS][HEADS * (PLAIN + VALUES)][LATENT];
} rig;

static void write_floats(rig *r, const char *stem, uint32_t layer, const float *numbers,
                         size_t count) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%u", stem, layer);
    must(fig_engine_write(r->engine, FIG_OPTIONS(fig_span, .name = name, .bytes = 4 * count),
                          numbers));
}

static void bind_all(rig *r, const fig_spec *spec) {
    fig_tensor_info tensor = {.size = sizeof tensor};
    const int64_t count = spec->kv_limit / spec->page_size;
    int32_t pages[16];
    for (int32_t i = 0; fig_graphs_tensor(r->graphs, i, &tensor) == FIG_OK; i++) {
        uint64_t bytes = 4u * (uint64_t)tensor.multiple;
        if (tensor.multiple == 0) bytes = 4;
        if (tensor.role != FIG_ROLE_BOUND) continue;
        for (int d = 0; d < tensor.rank; d++)
            bytes *= (uint64_t)(tensor.dims[d] == FIG_DIM_PAGES   ? count
                                : tensor.dims[d] == FIG_DIM_BATCH ? 1
                                                                  : tensor.dims[d]);
        must(fig_engine_bind(r->engine,
                             FIG_OPTIONS(fig_binding, .name = tensor.name, .bytes = bytes)));
    }
    for (int32_t i = 0; i < 16; i++)
        pages[i] = i;
    must(fig_engine_set_pages(r->engine,
                              FIG_OPTIONS(fig_pages, .count = (int32_t)count, .pages = pages)));
}

static void open_rig(rig *r, const fig_spec *spec) {
    fig_program *program;
    must(fig_program_create(&program, spec));
    fig_program_decode_step(program);
    must(fig_program_finish(program));
    must(fig_graphs_lower(&r->graphs, program, NULL));
    fig_program_destroy(program);
    must(fig_engine_open(&r->engine, r->graphs,
                         FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST)));
    bind_all(r, spec);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        float norm[LATENT];
        for (int32_t i = 0; i < LATENT; i++)
            norm[i] = 1 + 0.5f * number_of(NORM, layer, 0, (uint32_t)i);
        write_floats(r, "latent_norm", layer, norm, LATENT);
        for (int32_t row = 0; row < HEADS * (PLAIN + VALUES); row++)
            for (int32_t i = 0; i < LATENT; i++)
                r->weights[layer][row][i] = weight_of(layer, row, i);
    }
}

static void write_token(rig *r, uint32_t layer, uint32_t token) {
    float q[HEADS * KEY], latent[KEY];
    for (int32_t head = 0; head < HEADS; head++) {
        const uint32_t first = (uint32_t)(head * (PLAIN + TURNED));
        for (int32_t i = 0; i < LATENT; i++) {
            double sum = 0;
            for (int32_t n = 0; n < PLAIN; n++)
                sum += (double)(4 * number_of(Q, layer, token, first + (uint32_t)n)) *
                       r->weights[layer][head * (PLAIN + VALUES) + n][i];
            q[head * KEY + i] = (float)sum;
        }
        for (uint32_t i = 0; i < TURNED; i++)
            q[head * KEY + LATENT + (int32_t)i] = 4 * number_of(Q, layer, token, first + PLAIN + i);
    }
    for (uint32_t i = 0; i < KEY; i++)
        latent[i] = number_of(KV, layer, token, i);
    write_floats(r, "q", layer, q, HEADS * KEY);
    write_floats(r, "latent", layer, latent, KEY);
}

static void add_output(rig *r, uint32_t layer, uint32_t token, double sums[SUMS]) {
    float out[HEADS * LATENT];
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "out.%u", layer);
    must(fig_engine_read(r->engine, FIG_OPTIONS(fig_span, .name = name, .bytes = sizeof out), out));
    for (int32_t n = 0; n < HEADS * VALUES; n++) {
        const int32_t head = n / VALUES;
        const double *row = r->weights[layer][head * (PLAIN + VALUES) + PLAIN + n % VALUES];
        double value = 0;
        for (int32_t i = 0; i < LATENT; i++)
            value += (double)out[head * LATENT + i] * row[i];
        for (uint32_t s = 0; s < SUMS; s++)
            sums[s] +=
                value * (double)number_of(SUM, layer, s, token * HEADS * VALUES + (uint32_t)n);
    }
}

static void run_model(const fig_spec *spec, double sums[LAYERS][SUMS]) {
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    memset(sums, 0, sizeof(double[LAYERS][SUMS]));
    open_rig(r, spec);
    for (uint32_t token = 0; token < TOKENS; token++) {
        const int32_t length = (int32_t)token + 1;
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            write_token(r, layer, token);
        must(fig_engine_step(r->engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &length)));
        must(fig_engine_wait(r->engine, -1));
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            add_output(r, layer, token, sums[layer]);
    }
    must(fig_engine_close(r->engine));
    fig_graphs_destroy(r->graphs);
    free(r);
}

/* Returns the largest difference between the sums and the lines of numbers.txt for the model. */
static double worst_of(const char *model, double sums[LAYERS][SUMS]) {
    FILE *file = fopen("tests/configs/latent/numbers.txt", "r");
    char text[512], name[NAME_BYTES];
    double worst = 0, s[SUMS];
    int layer, found = 0;
    assert_non_null(file);
    while (fgets(text, sizeof text, file) != NULL) {
        if (sscanf(text, "%31s out.%d %lf %lf %lf %lf %lf %lf %lf %lf", name, &layer, s, s + 1,
                   s + 2, s + 3, s + 4, s + 5, s + 6, s + 7) != 10 ||
            strcmp(name, model) != 0)
            continue;
        for (int i = 0; i < SUMS; i++)
            worst = fmax(worst, fabs(s[i] - sums[layer][i]));
        found++;
    }
    fclose(file);
    assert_int_equal(found, LAYERS);
    return worst;
}

static const char *const models[] = {"deepseek-v3", "deepseek-v3-apart", "deepseek-v2", "kimi-k2"};

static void every_family_has_the_numbers_of_its_own_code(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        double sums[LAYERS][SUMS];
        const fig_spec spec = read_model(models[i]);
        run_model(&spec, sums);
        const double worst = worst_of(models[i], sums);
        if (!(worst <= tolerance)) fail_msg("%s is off by %g", models[i], worst);
    }
}

/* Each change to the spec is one that misreading a field would cause. */
static void the_numbers_tell_a_spec_from_one_that_is_a_little_off(void **state) {
    (void)state;
    for (int change = 0; change < 4; change++) {
        double sums[LAYERS][SUMS];
        fig_spec spec = read_model("deepseek-v3");
        switch (change) {
        case 0: spec.rope.interleaved = 0; break;
        case 1: spec.sm_scale *= 1.02f; break;
        case 2: spec.rope_table.factor *= 1.02; break;
        case 3: spec.latent_norm_epsilon = 1e-1f; break;
        }
        run_model(&spec, sums);
        const double worst = worst_of("deepseek-v3", sums);
        if (worst < 5 * tolerance) fail_msg("change %d: off by %g alone", change, worst);
    }
}

/* ---- Specs that are read */

static void the_first_layers_are_dense_and_the_others_have_experts(void **state) {
    (void)state;
    const fig_spec spec = read_model("deepseek-v3");
    assert_int_equal(spec.layers, LAYERS);
    assert_int_equal(spec.q_heads, HEADS);
    assert_int_equal(spec.kv_heads, 1);
    assert_int_equal(spec.head_dim, KEY);
    assert_int_equal(spec.latent_dim, LATENT);
    assert_int_equal(spec.dense_layers, 1);
    assert_int_equal(spec.dense_width, 96);
    assert_int_equal(spec.ffn_width, 32);
    assert_int_equal(spec.ffn_rows, 2);
}

/* The published files give the presets' specs. */
static void published_files_give_the_presets(void **state) {
    (void)state;
    static const char *const names[] = {"deepseek-v3", "kimi-k2"};
    for (int i = 0; i < 2; i++) {
        char path[64];
        fig_spec preset = {.size = sizeof preset}, spec = {.size = sizeof spec};
        must(fig_spec_preset(&preset, names[i]));
        snprintf(path, sizeof path, "tests/configs/%s.json", names[i]);
        spec.page_size = preset.page_size;
        spec.batch_limit = preset.batch_limit;
        must(fig_spec_read_config(&spec, path));
        spec.rope.scale = preset.rope.scale; /* both mean 1 */
        for (size_t word = 0; word < sizeof spec / 4; word++) {
            uint32_t got, due;
            memcpy(&got, (const uint8_t *)&spec + 4 * word, 4);
            memcpy(&due, (const uint8_t *)&preset + 4 * word, 4);
            if (got != due) fail_msg("%s: word %zu is %#x, not %#x", names[i], word, got, due);
        }
    }
}

static void refuses(const char *field, const char *value, const char *words) {
    fig_spec spec = {.size = sizeof spec, .page_size = 64, .batch_limit = 1};
    char path[64] = "/tmp/test_config_latent.XXXXXX", command[512];
    const int file = mkstemp(path);
    assert_true(file >= 0);
    snprintf(
        command, sizeof command,
        "python3 -c 'import json,sys; c = json.load(open(\"tests/configs/deepseek-v3.json\")); "
        "c[\"%s\"] = %s; json.dump(c, open(sys.argv[1], \"w\"))' %s",
        field, value, path);
    assert_int_equal(system(command), 0);
    const fig_status status = fig_spec_read_config(&spec, path);
    remove(path);
    if (status != FIG_UNSUPPORTED) fail_msg("%s: status %d: %s", field, status, fig_message());
    if (strstr(fig_message(), words) == NULL) fail_msg("%s: %s", field, fig_message());
}

static void calls_that_cannot_be_served_are_refused_by_name(void **state) {
    (void)state;
    refuses("kv_lora_rank", "256", "kv_lora_rank");
    refuses("qk_rope_head_dim", "32", "qk_rope_head_dim");
    refuses("moe_layer_freq", "2", "moe_layer_freq");
    refuses("index_topk", "2048", "index_topk");
    refuses("model_type", "\"deepseek_v32\"", "an indexer chooses (DSA)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_has_the_numbers_of_its_own_code),
        cmocka_unit_test(the_numbers_tell_a_spec_from_one_that_is_a_little_off),
        cmocka_unit_test(the_first_layers_are_dense_and_the_others_have_experts),
        cmocka_unit_test(published_files_give_the_presets),
        cmocka_unit_test(calls_that_cannot_be_served_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
