/* test_config_arithmetic.c: tests that a step with the spec of a config.json gives the same numbers
 * as the model's own code.
 *
 * tests/configs/tiny/ holds a small config of each family, saved by transformers, and numbers.txt,
 * the results of transformers in float32. tests/configs/config_arithmetic.py wrote both. Both
 * programs compute q, k, v, gate and up of each token by the same formula. Of each tensor, eight
 * sums are compared. */
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

enum { TOKENS = 24, SUMS = 8, LAYERS = 2, WIDTH_LIMIT = 512, NAME_BYTES = 32 };
enum { Q = 1, K, V, Q_NORM, K_NORM, SINKS, GATE_UP, SUM };

/* A sum of 6144 numbers near 1 is a few tens, and float32 computes it to about 1e-5. */
static const double tolerance = 2e-3;

/* A line of numbers.txt. */
typedef struct line {
    char model[NAME_BYTES], tensor[NAME_BYTES];
    double sums[SUMS];
} line;

enum { LINE_LIMIT = 256 };
static line lines[LINE_LIMIT];
static int line_count;

/* Returns a multiple of 2^-23 from -1 to 1. */
static float number_of(uint32_t kind, uint32_t layer, uint32_t token, uint32_t index) {
    uint32_t mixed =
        kind * 0x9E3779B1u ^ layer * 0x85EBCA6Bu ^ token * 0xC2B2AE35u ^ index * 0x27D4EB2Fu;
    mixed = (mixed ^ mixed >> 16) * 0x7FEB352Du;
    mixed = (mixed ^ mixed >> 15) * 0x846CA68Bu;
    mixed ^= mixed >> 16;
    return (float)((double)(mixed >> 8) / 8388608.0 - 1.0);
}

static void read_numbers(void) {
    FILE *file = fopen("tests/configs/tiny/numbers.txt", "r");
    char text[512];
    assert_non_null(file);
    for (line_count = 0; fgets(text, sizeof text, file) != NULL;) {
        line *l = &lines[line_count];
        double *s = l->sums;
        if (text[0] == '#') continue;
        assert_int_equal(sscanf(text, "%31s %31s %lf %lf %lf %lf %lf %lf %lf %lf", l->model,
                                l->tensor, s, s + 1, s + 2, s + 3, s + 4, s + 5, s + 6, s + 7),
                         10);
        line_count++;
        assert_true(line_count < LINE_LIMIT);
    }
    fclose(file);
}

static int read_once(void **state) {
    (void)state;
    read_numbers();
    return 0;
}

static fig_spec read_model(const char *model) {
    char path[128];
    fig_spec spec = {.size = sizeof spec, .page_size = 16, .batch_limit = 1};
    snprintf(path, sizeof path, "tests/configs/tiny/%s.json", model);
    if (fig_spec_read_config_with(&spec, path, FIG_OPTIONS(fig_config_options, .dtype = FIG_F32)) !=
        FIG_OK)
        fail_msg("%s: %s", model, fig_message());
    assert_int_equal(spec.layers, LAYERS);
    return spec;
}

static void must(fig_status status) {
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

/* ---- A step */

static void bind_all(fig_engine *engine, const fig_graphs *graphs, const fig_spec *spec) {
    fig_tensor_info tensor = {.size = sizeof tensor};
    const int64_t pages = spec->kv_limit / spec->page_size;
    for (int32_t i = 0; fig_graphs_tensor(graphs, i, &tensor) == FIG_OK; i++) {
        uint64_t bytes = 4u * (uint64_t)(tensor.multiple > 0 ? tensor.multiple : 1);
        if (tensor.role != FIG_ROLE_BOUND) continue;
        for (int d = 0; d < tensor.rank; d++)
            bytes *= (uint64_t)(tensor.dims[d] == FIG_DIM_PAGES   ? pages
                                : tensor.dims[d] == FIG_DIM_BATCH ? 1
                                                                  : tensor.dims[d]);
        must(
            fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = tensor.name, .bytes = bytes)));
    }
}

/* One tensor of one token. */
typedef struct part {
    const char *name;
    uint32_t kind, layer, token;
    int32_t count;
    float factor, plus;
} part;

static void write_part(fig_engine *engine, const part *p) {
    float numbers[WIDTH_LIMIT];
    char name[NAME_BYTES];
    assert_true(p->count <= WIDTH_LIMIT);
    for (int32_t i = 0; i < p->count; i++)
        numbers[i] = p->plus + p->factor * number_of(p->kind, p->layer, p->token, (uint32_t)i);
    snprintf(name, sizeof name, "%s.%u", p->name, p->layer);
    must(fig_engine_write(
        engine, FIG_OPTIONS(fig_span, .name = name, .bytes = 4u * (uint32_t)p->count), numbers));
}

static void write_weights(fig_engine *engine, const fig_spec *spec) {
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        const int32_t dim = spec->head_dim;
        if (spec->sinks) write_part(engine, &(part){"sinks", SINKS, layer, 0, spec->q_heads, 1, 0});
        if (spec->qk_norm_epsilon == 0) continue;
        write_part(engine, &(part){"q_norm", Q_NORM, layer, 0, dim, 0.5f, 1});
        write_part(engine, &(part){"k_norm", K_NORM, layer, 0, dim, 0.5f, 1});
    }
}

static void write_token(fig_engine *engine, const fig_spec *spec, uint32_t token) {
    const int32_t rows = spec->ffn_rows > 0 ? spec->ffn_rows : 1;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        const int32_t q = spec->q_heads * spec->head_dim, kv = spec->kv_heads * spec->head_dim;
        float gate_up[WIDTH_LIMIT];
        char name[NAME_BYTES];
        write_part(engine, &(part){"q", Q, layer, token, q, 4, 0});
        write_part(engine, &(part){"k", K, layer, token, kv, 1, 0});
        write_part(engine, &(part){"v", V, layer, token, kv, 1, 0});
        if (spec->ffn_width == 0) continue;
        const int32_t width = 2 * spec->ffn_width;
        assert_true(rows * width <= WIDTH_LIMIT);
        for (int32_t i = 0; i < rows * width; i++)
            gate_up[i] =
                8 * number_of(GATE_UP, layer, token * (uint32_t)rows + (uint32_t)(i / width),
                              (uint32_t)(i % width));
        snprintf(name, sizeof name, "gate_up.%u", layer);
        must(fig_engine_write(
            engine, FIG_OPTIONS(fig_span, .name = name, .bytes = 4u * (uint32_t)(rows * width)),
            gate_up));
    }
}

/* sums[layer][0] are sums of out, sums[layer][1] of act. */
typedef double step_sums[LAYERS][2][SUMS];

static void add_output(fig_engine *engine, const part *p, double sums[SUMS]) {
    float numbers[WIDTH_LIMIT];
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%u", p->name, p->layer);
    must(fig_engine_read(
        engine, FIG_OPTIONS(fig_span, .name = name, .bytes = 4u * (uint32_t)p->count), numbers));
    for (uint32_t s = 0; s < SUMS; s++)
        for (int32_t i = 0; i < p->count; i++)
            sums[s] +=
                (double)numbers[i] *
                (double)number_of(SUM, p->layer, s, p->token * (uint32_t)p->count + (uint32_t)i);
}

static void take_steps(fig_engine *engine, const fig_spec *spec, step_sums sums) {
    const int32_t act = spec->ffn_width * (spec->ffn_rows > 0 ? spec->ffn_rows : 1);
    for (uint32_t token = 0; token < TOKENS; token++) {
        const int32_t length = (int32_t)token + 1;
        write_token(engine, spec, token);
        must(fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &length)));
        must(fig_engine_wait(engine, -1));
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            const int32_t out = spec->q_heads * spec->head_dim;
            add_output(engine, &(part){"out", 0, layer, token, out, 1, 0}, sums[layer][0]);
            if (act > 0)
                add_output(engine, &(part){"act", 0, layer, token, act, 1, 0}, sums[layer][1]);
        }
    }
}

static void run_model(const fig_spec *spec, step_sums sums) {
    fig_program *program;
    fig_graphs *graphs;
    fig_engine *engine;
    int32_t pages[16];
    for (int32_t i = 0; i < 16; i++)
        pages[i] = i;
    memset(sums, 0, sizeof(step_sums));
    must(fig_program_create(&program, spec));
    fig_program_decode_step(program);
    must(fig_program_finish(program));
    must(fig_graphs_lower(&graphs, program, NULL));
    must(fig_engine_open(&engine, graphs,
                         FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST)));
    bind_all(engine, graphs, spec);
    must(fig_engine_set_pages(
        engine, FIG_OPTIONS(fig_pages, .count = spec->kv_limit / spec->page_size, .pages = pages)));
    write_weights(engine, spec);
    take_steps(engine, spec, sums);
    must(fig_engine_close(engine));
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
}

/* Returns the sums of the tensor that the line names: "out.1" gives sums[1][0]. NULL: the step has
 * no such tensor. */
static const double *find_sums(const line *l, step_sums sums) {
    const int layer = l->tensor[strlen(l->tensor) - 1] - '0';
    return sums[layer][strncmp(l->tensor, "act", 3) == 0];
}

static double worst_of(const line *l, step_sums sums) {
    const double *got = find_sums(l, sums);
    double worst = 0;
    for (int s = 0; s < SUMS; s++)
        worst = fmax(worst, fabs(got[s] - l->sums[s]));
    return worst;
}

/* ---- Tests */

static void every_family_has_the_numbers_of_its_own_code(void **state) {
    (void)state;
    step_sums sums;
    int families = 0;
    for (int i = 0; i < line_count; i++) {
        const line *l = &lines[i];
        if (i == 0 || strcmp(l->model, lines[i - 1].model) != 0) {
            const fig_spec spec = read_model(l->model);
            run_model(&spec, sums);
            families++;
        }
        const double worst = worst_of(l, sums);
        if (!(worst <= tolerance)) fail_msg("%s: %s is off by %g", l->model, l->tensor, worst);
    }
    assert_int_equal(families, 29);
}

/* Each change to the spec is one that misreading a field would cause. */
static void the_numbers_tell_a_spec_from_one_that_is_a_little_off(void **state) {
    (void)state;
    static const char *const models[] = {"llama", "gemma", "exaone4", "helium", "gpt-oss", "phi3"};
    for (int change = 0; change < 6; change++) {
        fig_spec spec = read_model(models[change]);
        step_sums sums;
        double worst = 0;
        switch (change) {
        case 0: spec.rope.llama3_factor = 7.0f; break;
        case 1: spec.activation = FIG_GELU; break;
        case 2: spec.rope = spec.window_rope; break;
        case 3: spec.rope.interleaved = 0; break;
        case 4: spec.window = 7; break;
        case 5: spec.rope_table.factor *= 1.01; break;
        }
        run_model(&spec, sums);
        for (int i = 0; i < line_count; i++)
            if (strcmp(lines[i].model, models[change]) == 0)
                worst = fmax(worst, worst_of(&lines[i], sums));
        if (worst < 5 * tolerance) fail_msg("%s: off by %g alone", models[change], worst);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_has_the_numbers_of_its_own_code),
        cmocka_unit_test(the_numbers_tell_a_spec_from_one_that_is_a_little_off),
    };
    return cmocka_run_group_tests(tests, read_once, NULL);
}
