/* test_masks.c: tests programs with masks: the results of an engine, the contents of a file, and
 * that each interface of the library serves a mask, or refuses it and names it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/files/codec.h"
#include "graphs/files/sections.h"
#include "graphs/graphs.h"
#include "graphs/record/program.h"
#include "graphs/view/score_units.h"
#include "include/figraph_parallel.h"
#include "include/figraph_scores.h"
#include "tests/support/files/forgery.h"
#include "tests/support/random.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { LENGTH = 13, Q_HEADS = 16, HEAD_DIM = 64, KV_HEADS = 4, PAGES = 4, CASE_BYTES = 1 << 17 };

/* The variants of docs/scores.md. */
static const char *const variants[] = {
    "see 0:q_pos + 1; score",
    "see q_pos - 3:q_pos + 1; score",
    "see q_pos // 8 * 8:q_pos + 1; score",
    "i32 prefix[8]; see 0:max(q_pos + 1, prefix[row]); score",
    "i32 start[64]; see start[q_pos]:q_pos + 1; score",
    "i32 image[128]; see 0:q_pos + 1, image[2 * q_pos]:image[2 * q_pos + 1]; score",
    "see 0:4, q_pos - 5:q_pos + 1; score",
    "i32 sees[128]; n = 2 * q_pos; see 0:kv_length; bits sees[n], sees[n + 1]; score",
    "weights sigmoid; see 0:4; score",
    "f32 slope[16]; see 0:4, q_pos:q_pos + 1; score + slope[head] * (kv_pos - q_pos)",
};

static fig_score *parse(const char *text) {
    fig_score *score;
    if (fig_score_parse(&score, text) != FIG_OK) fail_msg("%s: %s", text, fig_message());
    return score;
}

static fig_spec preset(const char *name) {
    fig_spec spec = {.size = sizeof spec};
    if (fig_spec_preset(&spec, name) != FIG_OK) fail_msg("%s", fig_message());
    return spec;
}

/* Records the standard step. text NULL: without a score. Returns the status of the recording. */
static fig_status record(const fig_spec *spec, const char *text, fig_graphs **graphs) {
    fig_program *program;
    fig_score *score = text == NULL ? NULL : parse(text);
    *graphs = NULL;
    if (fig_program_create(&program, spec) != FIG_OK) fail_msg("%s", fig_message());
    if (score == NULL) {
        fig_program_decode_step(program);
    } else {
        fig_program_decode_step_score(program, score);
    }
    fig_status status = fig_program_finish(program);
    if (status == FIG_OK) status = fig_graphs_lower(graphs, program, NULL);
    fig_program_destroy(program);
    fig_score_destroy(score);
    return status;
}

static fig_spec small_spec(void) {
    fig_spec spec = preset("tutorial");
    spec.dtype = spec.kv_dtype = FIG_F32;
    spec.kv_limit = 64;
    spec.batch_limit = 1;
    return spec;
}

static void must(fig_status status) {
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

/* Runs steps of lengths 1 to LENGTH with random q, k and v, and copies the last out. Destroys the
 * graphs. i32 arrays hold i / 2, so they differ from element to element. */
static void run(fig_graphs *graphs, float *out) {
    static float memory[16][CASE_BYTES / sizeof(float)];
    static const int32_t pages[PAGES] = {2, 0, 3, 1};
    fig_tensor_info info = {.size = sizeof info};
    fig_engine *engine;
    fig_random random = fig_random_seed(3);
    int32_t q = -1, k = -1, v = -1, found = -1;
    must(fig_engine_open(&engine, graphs,
                         FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST)));
    memset(memory, 0, sizeof memory);
    for (int32_t i = 0; fig_graphs_tensor(graphs, i, &info) == FIG_OK; i++) {
        assert_in_range(i, 0, 15);
        if (strcmp(info.name, "q.0") == 0) q = i;
        if (strcmp(info.name, "k.0") == 0) k = i;
        if (strcmp(info.name, "v.0") == 0) v = i;
        if (strcmp(info.name, "out.0") == 0) found = i;
        for (int32_t n = 0; info.dtype == FIG_I32 && n < 512; n++)
            ((int32_t *)(void *)memory[i])[n] = n / 2;
        if (info.role == FIG_ROLE_BOUND)
            must(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = info.name,
                                                     .address = memory[i], .bytes = CASE_BYTES)));
        if (strstr(info.name, "_cache.") != NULL)
            must(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = info.name,
                                                     .address = memory[i], .bytes = CASE_BYTES)));
    }
    must(fig_engine_set_pages(engine, FIG_OPTIONS(fig_pages, .count = PAGES, .pages = pages)));
    for (int32_t length = 1; length <= LENGTH; length++) {
        for (int32_t i = 0; i < Q_HEADS * HEAD_DIM; i++)
            memory[q][i] = fig_random_float(&random);
        for (int32_t i = 0; i < KV_HEADS * HEAD_DIM; i++) {
            memory[k][i] = fig_random_float(&random);
            memory[v][i] = fig_random_float(&random);
        }
        must(fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &length)));
        must(fig_engine_wait(engine, -1));
    }
    memcpy(out, memory[found], Q_HEADS * HEAD_DIM * sizeof *out);
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

/* Runs the small spec with a window and a score. */
static void run_with(int32_t window, const char *text, float *out) {
    fig_spec spec = small_spec();
    fig_graphs *graphs;
    spec.window = window;
    must(record(&spec, text, &graphs));
    run(graphs, out);
}

static float distance(const float *a, const float *b) {
    float most = 0;
    for (int32_t i = 0; i < Q_HEADS * HEAD_DIM; i++)
        most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

/* ---- What it computes */

static void masks_that_say_the_same_in_other_words_are_equal(void **state) {
    static const struct {
        int32_t window;
        const char *mask;
        int32_t other_window;
        const char *other;
    } cases[] = {
        {0, "see 0:q_pos + 1; score", 0, NULL},
        {0, "see q_pos - 3:q_pos + 1; score", 4, NULL},
        {4, "see 0:kv_length; score", 4, NULL},
        {4, "see 0:11; score", 4, "select(kv_pos < 11, score, -inf)"},
        {0, "see 0:4, q_pos - 5:q_pos + 1; score", 0,
         "select((kv_pos < 4) | (kv_pos > q_pos - 6), score, -inf)"},
        {0, "i32 image[128]; see image[5]:image[16], 9:12; score", 0,
         "select((kv_pos >= 2) & (kv_pos < 8) | (kv_pos >= 9) & (kv_pos < 12), score, -inf)"},
        {0, "see 0:kv_length; bits -1, 0x2aaaaaaa; score", 0,
         "select((kv_pos - kv_length + 32 < 0) | (0x2aaaaaaa >> (kv_pos - kv_length + 32) & 1), "
         "score, -inf)"},
    };
    float plain[Q_HEADS * HEAD_DIM], a[Q_HEADS * HEAD_DIM], b[Q_HEADS * HEAD_DIM];
    (void)state;
    run_with(0, NULL, plain);
    for (size_t i = 0; i < COUNT(cases); i++) {
        run_with(cases[i].window, cases[i].mask, a);
        run_with(cases[i].other_window, cases[i].other, b);
        if (distance(a, b) > 1e-5f) fail_msg("%s: %g", cases[i].mask, (double)distance(a, b));
        if (i > 0) assert_true(distance(a, plain) > 1e-3f); /* the mask does something */
    }
}

static void each_mask_hides_something(void **state) {
    float seen[Q_HEADS * HEAD_DIM], out[Q_HEADS * HEAD_DIM];
    (void)state;
    run_with(0, NULL, seen);
    for (size_t i = 1; i < COUNT(variants); i++) {
        run_with(0, variants[i], out);
        if (strstr(variants[i], "prefix") != NULL || strstr(variants[i], "image") != NULL)
            assert_true(distance(seen, out) <= 1e-5f); /* of one query, they hide nothing */
        else
            assert_true(distance(seen, out) > 1e-3f);
    }
}

/* ---- Files */

static void a_file_keeps_every_mask_and_its_bytes(void **state) {
    float a[Q_HEADS * HEAD_DIM], b[Q_HEADS * HEAD_DIM];
    (void)state;
    for (size_t i = 0; i < COUNT(variants); i++) {
        const fig_spec spec = small_spec();
        fig_graphs *graphs, *again;
        uint8_t *bytes, *twice;
        size_t count, counted;
        must(record(&spec, variants[i], &graphs));
        must(fig_graphs_write(graphs, &bytes, &count));
        must(fig_graphs_parse(&again, bytes, count));
        must(fig_graphs_write(again, &twice, &counted));
        assert_int_equal(count, counted);
        assert_memory_equal(bytes, twice, count);
        run(graphs, a);
        run(again, b);
        assert_memory_equal(a, b, sizeof a);
        free(bytes);
        free(twice);
    }
}

/* Writes a word of the section of scores and parses the file. */
static fig_status parse_changed(const uint8_t *bytes, size_t count, size_t word, uint32_t value) {
    fig_forgery image;
    fig_graphs *graphs;
    size_t made;
    uint32_t s = 0;
    fig_forgery_open(&image, bytes, count);
    while (memcmp(image.sections[s].entry.name, "SCOR", 4) != 0)
        s++;
    memcpy(image.sections[s].raw + word * 4, &value, sizeof value);
    uint8_t *file = fig_forgery_write(&image, 0, &made);
    const fig_status status = fig_graphs_parse(&graphs, file, made);
    fig_graphs_destroy(graphs);
    free(file);
    fig_forgery_close(&image);
    return status;
}

/* The units are: counts, the node score, then q_pos, the constant 1, their sum, and so on. */
static void a_damaged_mask_is_refused_by_name(void **state) {
    static const struct {
        size_t word;
        uint32_t value;
        const char *says;
    } cases[] = {
        {3, 0, "its counts are beyond their limits, or its units end"},
        {3, 128, "its counts are beyond their limits"},
        {3, UINT32_MAX, "its counts are beyond their limits"},
        {3, 4, "its counts are beyond their limits, or its units end"},
        {8, FIG_SCORE_KV_POS | FIG_I32 << 16, "a mask reads kv_pos"},
        {8, FIG_SCORE_SCORE | FIG_F32 << 16, "is f32"},
        {8, FIG_SCORE_HEAD | FIG_F32 << 16, "normal form"},
        {8, FIG_SCORE_OP_COUNT, "mask node 0: op is 40"},
        {16, FIG_SCORE_RANGE | FIG_I32 << 16, "normal form"},
        {17, 0x00020000, "mask node 2: operand b is node 2, it must be an earlier one"},
        {16, FIG_SCORE_BITS, "the nodes of the mask have no range"},
    };
    const fig_spec spec = small_spec();
    fig_graphs *graphs;
    uint8_t *bytes;
    size_t count;
    (void)state;
    must(record(&spec, "see head:row; score", &graphs)); /* head, row, the range */
    must(fig_graphs_write(graphs, &bytes, &count));
    for (size_t i = 0; i < COUNT(cases); i++) {
        const fig_status status = parse_changed(bytes, count, cases[i].word, cases[i].value);
        if (strstr(fig_message(), cases[i].says) == NULL) fail_msg("%zu: %s", i, fig_message());
        assert_int_not_equal(status, FIG_OK);
    }
    free(bytes);
    fig_graphs_destroy(graphs);
}

/* The section of two scores, of which the first claims the nodes of the second. */
static void a_mask_has_no_more_nodes_than_a_score(void **state) {
    static fig_score_unit units[202];
    const fig_program_view view = {.scores = units, .score_units = 202};
    (void)state;
    units[0] = (fig_score_unit){{100, 0, 0, 0}};
    units[101] = (fig_score_unit){{90, 0, 0, 10}};
    assert_int_equal(fig_score_units_count(&view), 2);
    units[0].words[3] = 101;
    assert_int_equal(fig_score_units_count(&view), 0);
}

/* ---- The grid of entry points and variants */

static fig_status latents(const char *text) {
    const fig_spec spec = preset("deepseek-v3");
    fig_graphs *graphs;
    const fig_status status = record(&spec, text, &graphs);
    fig_graphs_destroy(graphs);
    return status;
}

static fig_status caps(const char *text) {
    const fig_spec spec = preset("gemma-2-9b");
    fig_graphs *graphs;
    const fig_status status = record(&spec, text, &graphs);
    fig_graphs_destroy(graphs);
    return status;
}

static fig_status ranks(const char *text) {
    const fig_spec spec = small_spec();
    fig_graphs *graphs, *share;
    must(record(&spec, text, &graphs));
    const fig_status status = fig_graphs_rank(&share, graphs, 2);
    fig_graphs_destroy(share);
    fig_graphs_destroy(graphs);
    return status;
}

static void interfaces_without_masks_refuse_them_by_name(void **state) {
    static const struct {
        fig_status (*enter)(const char *text);
        const char *says;
    } entries[] = {
        {latents, "latent attention evaluates no score"},
        {caps, "soft_cap is 50 beside a score"},
        {ranks, "ranks cannot divide it"},
    };
    (void)state;
    for (size_t e = 0; e < COUNT(entries); e++) {
        for (size_t i = 0; i < COUNT(variants); i++) {
            assert_int_not_equal(entries[e].enter(variants[i]), FIG_OK);
            if (strstr(fig_message(), entries[e].says) == NULL)
                fail_msg("%zu, %s: %s", e, variants[i], fig_message());
        }
    }
}

static void no_mask_becomes_a_field_of_attention(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(variants); i++) {
        fig_score *score = parse(variants[i]);
        assert_false(fig_score_recognise(score).is_known);
        fig_score_destroy(score);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_that_say_the_same_in_other_words_are_equal),
        cmocka_unit_test(each_mask_hides_something),
        cmocka_unit_test(a_file_keeps_every_mask_and_its_bytes),
        cmocka_unit_test(a_damaged_mask_is_refused_by_name),
        cmocka_unit_test(a_mask_has_no_more_nodes_than_a_score),
        cmocka_unit_test(interfaces_without_masks_refuse_them_by_name),
        cmocka_unit_test(no_mask_becomes_a_field_of_attention),
    };
    return cmocka_run_group_tests_name("masks", tests, NULL, NULL);
}
