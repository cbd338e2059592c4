/* test_score.c: tests the language of scores: texts, nodes, the normal form and its values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <locale.h>
#include <math.h>
#include <cmocka.h>

#include "include/figraph_scores.h"
#include "planner/scores/score.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static fig_score *parse(const char *text) {
    fig_score *score;
    if (fig_score_parse(&score, text) != FIG_OK) fail_msg("%s: %s", text, fig_message());
    return score;
}

static fig_score_parts parts_of(const fig_score *score) {
    fig_score_parts parts = {.size = sizeof parts};
    assert_int_equal(fig_score_read(score, &parts), FIG_OK);
    return parts;
}

static void assert_same(const fig_score *a, const fig_score *b) {
    const fig_score_parts x = parts_of(a), y = parts_of(b);
    assert_string_equal(fig_score_text(a), fig_score_text(b));
    assert_int_equal(x.node_count, y.node_count);
    assert_int_equal(x.array_count, y.array_count);
    assert_int_equal(x.weights, y.weights);
    assert_memory_equal(x.nodes, y.nodes, (size_t)x.node_count * sizeof *x.nodes);
    assert_memory_equal(x.arrays, y.arrays, (size_t)x.array_count * sizeof *x.arrays);
}

/* Evaluates a score without arrays at query 100, token 90 of 128, head 3 of kv head 1, row 2. */
static float value_of(const char *text, float logit) {
    fig_score *score = parse(text);
    const fig_score_place place = {.size = sizeof place,
                                   .q_pos = 100,
                                   .kv_pos = 90,
                                   .kv_length = 128,
                                   .head = 3,
                                   .kv_head = 1,
                                   .row = 2};
    assert_int_equal(fig_score_evaluate(score, &place, &logit, 1), FIG_OK);
    fig_score_destroy(score);
    return logit;
}

/* ---- The normal form */

static void a_text_is_printed_in_its_normal_form(void **state) {
    static const struct {
        const char *text, *normal;
    } cases[] = {
        {"score", "score"},
        {" ( ( score ) ) ", "score"},
        {"slope[head] * (kv_pos - q_pos) + score",
         "f32 slope[]; score + (kv_pos - q_pos) * slope[head]"},
        {"f32 slope[8]; score + (float(kv_pos - q_pos)) * slope[head]",
         "f32 slope[8]; score + (kv_pos - q_pos) * slope[head]"},
        {"30 * tanh(score / 30.0)", "tanh(score / 30.0) * 30.0"},
        {"cap * tanh(score / cap)", "f32 cap; tanh(score / cap) * cap"},
        {"weights sigmoid; score - log2(kv_length)", "weights sigmoid; score - log2(kv_length)"},
        {"weights softmax; score", "score"},
        {"select(kv_pos // 16 >= q_pos // 16, score, -inf)",
         "select(q_pos // 16 <= kv_pos // 16, score, -inf)"},
        {"x = score * score; x * x", "t1 = score * score; t1 * t1"},
        {"score + 0x10 * 2", "score + 32.0"},
        {"- -score * 1", "score"},
        {"select(1 < 2, score, inf)", "score"},
        {"score - (1 - head)", "score - (1 - head)"},
        {"score - (head - 1) - 2", "score - (head - 1) - 2.0"},
        {"score * (-2 - head)", "score * (-2 - head)"},
        {"score + -head", "score + -head"},
        {"score * float(min(head, row)) + abs(int(score))",
         "score * min(head, row) + abs(int(score))"},
        {"score + head / row", "score + head / row"},
        {"score + max(float(head), 1.5)", "score + max(head, 1.5)"},
        {"score + select(head, float(row), float(head))",
         "score + select(head, float(row), float(head))"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        fig_score *score = parse(cases[i].text);
        /* The order of the operands of * and + is the normal form's own; the rest is as written. */
        fig_score *again = parse(fig_score_text(score)), *normal = parse(cases[i].normal);
        assert_same(score, again);
        assert_same(score, normal);
        fig_score_destroy(score);
        fig_score_destroy(again);
        fig_score_destroy(normal);
    }
}

static void only_arithmetic_that_all_machines_round_alike_is_folded(void **state) {
    (void)state;
    fig_score *folded = parse("score + (0.1 + 0.2) * 3.0"), *kept = parse("score + tanh(0.5)");
    assert_int_equal(parts_of(folded).node_count, 3);
    assert_int_equal(parts_of(kept).node_count, 4);
    fig_score_destroy(folded);
    fig_score_destroy(kept);
    kept = parse("score + (inf - inf)"); /* not folded: the bits of a NaN differ */
    assert_int_equal(parts_of(kept).node_count, 4);
    fig_score_destroy(kept);
}

static void numbers_are_read_and_printed_exactly(void **state) {
    static const uint32_t bits[] = {0x00000001, 0x007fffff, 0x00800000, 0x3dcccccd, 0x3f800001,
                                    0x4b800001, 0x7f7fffff, 0x33d6bf95, 0x2edbe6ff, 0x80000000,
                                    0xc2f6e979, 0x501502f9, 0x7149f2ca, 0x0da24260};
    (void)state;
    for (size_t i = 0; i < COUNT(bits) + 20000; i++) {
        uint32_t wanted = i < COUNT(bits) ? bits[i] : (uint32_t)i * 2654435761u;
        const fig_score_node nodes[] = {{.op = FIG_SCORE_SCORE},
                                        {.op = FIG_SCORE_CONSTANT, .type = FIG_F32, .bits = wanted},
                                        {.op = FIG_SCORE_DIVIDE, .a = 0, .b = 1}};
        const fig_score_parts parts = {.size = sizeof parts, .nodes = nodes, .node_count = 3};
        fig_score *score, *again;
        if ((wanted & 0x7fffffff) > 0x7f800000) continue; /* NaN */
        assert_int_equal(fig_score_create(&score, &parts), FIG_OK);
        again = parse(fig_score_text(score));
        assert_same(score, again);
        fig_score_destroy(score);
        fig_score_destroy(again);
    }
}

static void the_locale_of_the_process_changes_nothing(void **state) {
    (void)state;
    fig_score *here = parse("score * 0.125 + 1e-7");
    const char *names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"};
    for (size_t i = 0; i < COUNT(names); i++) {
        if (setlocale(LC_ALL, names[i]) == NULL) continue;
        fig_score *there = parse("score * 0.125 + 1e-7");
        assert_same(here, there);
        fig_score_destroy(there);
    }
    setlocale(LC_ALL, "C");
    fig_score_destroy(here);
}

static void nodes_and_a_text_make_the_same_score(void **state) {
    (void)state;
    const fig_score_array array = {.name = "slope", .dtype = FIG_F32};
    const fig_score_node nodes[] = {{.op = FIG_SCORE_HEAD},
                                    {.op = FIG_SCORE_ELEMENT, .a = 0},
                                    {.op = FIG_SCORE_KV_POS},
                                    {.op = FIG_SCORE_Q_POS},
                                    {.op = FIG_SCORE_KV_HEAD}, /* used by no node */
                                    {.op = FIG_SCORE_SUBTRACT, .a = 2, .b = 3},
                                    {.op = FIG_SCORE_MULTIPLY, .a = 1, .b = 5},
                                    {.op = FIG_SCORE_SCORE},
                                    {.op = FIG_SCORE_ADD, .a = 6, .b = 7}};
    const fig_score_parts parts = {.size = sizeof parts,
                                   .nodes = nodes,
                                   .arrays = &array,
                                   .node_count = COUNT(nodes),
                                   .array_count = 1};
    fig_score *made, *parsed = parse("score + slope[head] * (kv_pos - q_pos)");
    assert_int_equal(fig_score_create(&made, &parts), FIG_OK);
    assert_same(made, parsed);
    fig_score_destroy(made);
    fig_score_destroy(parsed);
}

/* ---- Refusals */

static void a_wrong_text_is_refused_with_its_column(void **state) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "column 1: the text ends"},
        {"score +", "column 8"},
        {"score score", "column 7: \"score\""},
        {"(score", "wants \")\""},
        {"score)", "column 6: \")\" closes nothing"},
        {"x[head", "wants \"]\""},
        {"x[head)", "closes nothing"},
        {"min(score]", "closes nothing"},
        {"min(score)", "min has 2 operands"},
        {"min(score, 1, 2)", "min has 2 operands"},
        {"tanh score", "\"(\" after the function"},
        {"foo(score)", "foo is no function"},
        {"score, 1", "not between the operands"},
        {"(score, 1)", "not between the operands"},
        {"x[1, 2]", "not between the operands"},
        {"1 < score < 2", "comparisons make no chain"},
        {"kv_pos", "the result is i32"},
        {"score % 2", "column 7: the first operand of % is f32"},
        {"score + x[score]", "the index of x is f32"},
        {"select(score, score, 1)", "the condition of select is f32"},
        {"f32 x[4]; score", "array x is declared and not used"},
        {"f32 x[4]; score + x", "\"[\" after the array"},
        {"f32 x[0]; score + x[0]", "at least one element"},
        {"f32 x[]; f32 x[]; score + x[0]", "the name x is taken"},
        {"f32 head; score", "the name head is taken"},
        {"tanh = score; tanh", "the name tanh is taken"},
        {"a = 1; a = 2; score", "the name a is taken"},
        {"weights linear; score", "softmax or sigmoid"},
        {"f32 1; score", "the name of an array"},
        {"a = 1 score", "column 7"},
        {"score $ 1", "'$' has no meaning"},
        {"score + 1.2.3", "followed by '.'"},
        {"score + 3000000000", "beyond i32"},
        {"score + 0x1ffffffff", "more than 32 bits"},
        {"score + 1e99", "beyond f32"},
        {"score + 12abc", "followed by 'a'"},
        {"score + a23456789012345678901234", "more than 23 characters"},
        {"score \x80", "code 128"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        fig_score *score = (fig_score *)1;
        assert_int_equal(fig_score_parse(&score, cases[i].text), FIG_INVALID);
        assert_null(score);
        if (strstr(fig_message(), cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].text, fig_message());
    }
    fig_score *score;
    assert_int_equal(fig_score_parse(&score, NULL), FIG_INVALID);
}

static char *repeat(const char *part, int count, const char *end) {
    char *text = calloc(1, strlen(part) * (size_t)count + strlen(end) + 1);
    for (int i = 0; i < count; i++)
        memcpy(text + strlen(part) * (size_t)i, part, strlen(part));
    memcpy(text + strlen(part) * (size_t)count, end, strlen(end));
    return text;
}

static void depth_and_size_have_limits_that_a_sentence_names(void **state) {
    static const struct {
        const char *part;
        int count;
        const char *end, *says;
    } cases[] = {{"(", 100000, "score", "more than 16383 characters"},
                 {"(", 16000, "score", "more than 512 parts inside each other"},
                 {"-", 16000, "score", "more than 512 parts inside each other"},
                 {"tanh(", 3000, "score", "more than 512 parts inside each other"},
                 {"head + (", 2000, "score", "more than 512 parts inside each other"},
                 {"x[int(", 2500, "score", "more than 512 parts inside each other"}};
    char text[FIG_SCORE_TEXT_LIMIT];
    fig_score *score;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *made = repeat(cases[i].part, cases[i].count, cases[i].end);
        assert_int_equal(fig_score_parse(&score, made), FIG_TOO_LARGE);
        if (strstr(fig_message(), cases[i].says) == NULL) fail_msg("%s", fig_message());
        free(made);
    }
    int length = snprintf(text, sizeof text, "score");
    for (int i = 2; i < 43; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, " + %d.0 * head", i);
    score = parse(text); /* 126 nodes */
    fig_score_destroy(score);
    snprintf(text + length, sizeof text - (size_t)length, " + 64.0 * head");
    assert_int_equal(fig_score_parse(&score, text), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "limit 128"));
    length = snprintf(text, sizeof text, "score");
    for (int i = 0; i < 9; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, " + a%d", i);
    assert_int_equal(fig_score_parse(&score, text), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "more than 8 arrays"));
    length = 0;
    for (int i = 0; i < 129; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "n%d = 1; ", i);
    snprintf(text + length, sizeof text - (size_t)length, "score");
    assert_int_equal(fig_score_parse(&score, text), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "more than 128 names"));
}

static void wrong_nodes_are_refused_with_their_number(void **state) {
    static const struct {
        fig_score_node node;
        const char *says;
    } cases[] = {
        {{.op = 0}, "op is 0"},
        {{.op = FIG_SCORE_OP_COUNT}, "op is 40"},
        {{.op = FIG_SCORE_TANH, .a = 1}, "operand a is node 1, it must be an earlier one"},
        {{.op = FIG_SCORE_ADD, .b = 9}, "operand b is node 9"},
        {{.op = FIG_SCORE_TANH, .b = 1}, "operand b is 1, but tanh has 1"},
        {{.op = FIG_SCORE_HEAD, .bits = 3}, "bits are 3"},
        {{.op = FIG_SCORE_HEAD, .reserved = 3}, "reserved is 3"},
        {{.op = FIG_SCORE_CONSTANT, .type = FIG_F16}, "type of a constant is 2"},
        {{.op = FIG_SCORE_CONSTANT, .type = FIG_F32, .bits = 0x7fc00000}, "a constant is NaN"},
        {{.op = FIG_SCORE_ELEMENT, .bits = 1}, "array 1 of 1"},
        {{.op = FIG_SCORE_ELEMENT}, "index of x is f32"},
    };
    fig_score_array array = {.name = "x", .dtype = FIG_F32};
    fig_score *score;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const fig_score_node nodes[] = {{.op = FIG_SCORE_SCORE}, cases[i].node};
        fig_score_parts parts = {.size = sizeof parts,
                                 .nodes = nodes,
                                 .arrays = &array,
                                 .node_count = 2,
                                 .array_count = 1};
        assert_int_equal(fig_score_create(&score, &parts), FIG_INVALID);
        assert_null(score);
        if (strstr(fig_message(), "node 1") == NULL || strstr(fig_message(), cases[i].says) == NULL)
            fail_msg("%zu: %s", i, fig_message());
    }
    const fig_score_node term = {.op = FIG_SCORE_SCORE};
    fig_score_parts parts = {.size = sizeof parts, .nodes = &term, .node_count = 1};
    parts.weights = 2;
    assert_int_equal(fig_score_create(&score, &parts), FIG_INVALID);
    parts = (fig_score_parts){.size = sizeof parts, .nodes = &term, .node_count = 129};
    assert_int_equal(fig_score_create(&score, &parts), FIG_INVALID);
    parts = (fig_score_parts){.size = sizeof parts, .node_count = 1};
    assert_int_equal(fig_score_create(&score, &parts), FIG_INVALID);
    static const fig_score_array wrong[] = {
        {.name = "", .dtype = FIG_F32},     {.name = "a b", .dtype = FIG_F32},
        {.name = "head", .dtype = FIG_F32}, {.name = "a\0b", .dtype = FIG_F32},
        {.name = "a", .dtype = FIG_F16},    {.name = "a", .dtype = FIG_F32, .count = -1}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        parts = (fig_score_parts){.size = sizeof parts,
                                  .nodes = &term,
                                  .arrays = &wrong[i],
                                  .node_count = 1,
                                  .array_count = 1};
        assert_int_equal(fig_score_create(&score, &parts), FIG_INVALID);
        assert_non_null(strstr(fig_message(), "array 0"));
    }
    memset(array.name, 'x', sizeof array.name);
    parts.arrays = &array;
    assert_int_equal(fig_score_create(&score, &parts), FIG_INVALID);
}

/* ---- Values */

static void i32_wraps_around_and_divides_downwards(void **state) {
    (void)state;
    assert_true(value_of("score + float((0 - 7) // 2)", 0) == -4.0f);
    assert_true(value_of("score + float((head - 10) // 2)", 0) == -4.0f);
    assert_true(value_of("score + float((head - 10) % 4)", 0) == 1.0f);
    assert_true(value_of("score + float((10 - head) % (head - 7))", 0) == -1.0f);
    assert_true(value_of("score + float(head // (row - 2) + head % (row - 2))", 0) == 0.0f);
    assert_true(value_of("score + float((0x80000000 + head - 3) // (row - 3))", 0) ==
                -2147483648.0f);
    assert_true(value_of("score + float((0x80000000 + head - 3) % (row - 3))", 0) == 0.0f);
    assert_true(value_of("score + float(0x7fffffff + head)", 0) == -2147483648.0f);
    assert_true(value_of("score + float((head - 11) >> row)", 0) == -2.0f);
    assert_true(value_of("score + float(head << 33)", 0) == 6.0f);
    assert_true(value_of("score + float((head | 4) ^ (head & 2))", 0) == 5.0f);
    assert_true(value_of("score + abs(-(0x80000000 + head - 3))", 0) == -2147483648.0f);
}

static void f32_follows_its_rules_at_the_edges(void **state) {
    (void)state;
    assert_true(value_of("score + float(int(1e20 * head))", 0) == 2147483648.0f);
    assert_true(value_of("score + float(int(-1e20 * head))", 0) == -2147483648.0f);
    assert_true(value_of("float(int(score))", NAN) == 0.0f);
    assert_true(value_of("float(int(score))", -3.9f) == -3.0f);
    assert_true(value_of("min(score, 2.0)", NAN) == 2.0f);
    assert_true(value_of("max(2.0, score)", NAN) == 2.0f);
    assert_true(isinf(value_of("score / (head - 3)", 1)));
    assert_true(isnan(value_of("score / (head - 3)", 0)));
    assert_true(value_of("select(score == score, 1.0, 2.0)", NAN) == 2.0f);
    assert_true(value_of("select(score != score, 1.0, 2.0)", NAN) == 1.0f);
    assert_true(value_of("select(score >= 1, score, -inf)", 0.5f) == -INFINITY);
}

/* Compares with float64. */
static void functions_agree_with_float64(void **state) {
    (void)state;
    for (double x = -20; x < 20; x += 0.37) {
        const float y = (float)x;
        const double z = y;
        assert_true(fabs(value_of("exp2(score)", y) / exp2(z) - 1) < 1e-6);
        assert_true(fabs(value_of("tanh(score)", y) - tanh(z)) < 1e-6);
        assert_true(fabs(value_of("sigmoid(score)", y) * (1 + exp(-z)) - 1) < 4e-6);
        assert_true(fabs(value_of("sin(score)", y) - sin(z)) < 1e-6);
        assert_true(fabs(value_of("cos(score)", y) - cos(z)) < 1e-6);
        assert_true(fabs(value_of("log2(abs(score))", y) - log2(fabs(z))) < 1e-5);
        assert_true(fabs(value_of("abs(score) * head - row / kv_head", y) - (fabs(z) * 3 - 2)) <
                    1e-4);
    }
}

static void terms_have_the_values_of_the_place(void **state) {
    (void)state;
    assert_true(value_of("score + q_pos", 0) == 100);
    assert_true(value_of("score + kv_pos", 0) == 90);
    assert_true(value_of("score + kv_length", 0) == 128);
    assert_true(value_of("score + head", 0) == 3);
    assert_true(value_of("score + kv_head", 0) == 1);
    assert_true(value_of("score + row", 0) == 2);
}

/* The arrays lie in blocks of their own size, so that a sanitizer sees a read outside one. */
static void no_index_reads_outside_an_array(void **state) {
    static const struct {
        int32_t row;
        float wanted;
    } cases[] = {{0, 10}, {1, 20}, {2, 30}, {3, 30}, {INT32_MAX, 30}, {-1, 10}, {INT32_MIN, 10}};
    (void)state;
    fig_score *score = parse("f32 a[3]; i32 b[]; bf16 c[]; score + a[row] + b[row] + c[row]");
    const fig_score_parts parts = parts_of(score);
    void *memory[3] = {NULL};
    const void *arrays[3];
    int32_t counts[3];
    for (int32_t i = 0; i < parts.array_count; i++) {
        const uint32_t dtype = parts.arrays[i].dtype;
        memory[i] = malloc(3 * (dtype == FIG_BF16 ? 2 : 4));
        for (int32_t n = 0; n < 3; n++) {
            const float x = (float)(n + 1) * (dtype == FIG_F32 ? 8 : 1);
            if (dtype == FIG_F32) ((float *)memory[i])[n] = x;
            if (dtype == FIG_I32) ((int32_t *)memory[i])[n] = n + 1;
            if (dtype == FIG_BF16)
                ((uint16_t *)memory[i])[n] = (uint16_t)(fig_score_value_bits(x) >> 16);
        }
        arrays[i] = memory[i];
        counts[i] = 3;
    }
    for (size_t i = 0; i < COUNT(cases); i++) {
        float value = 0;
        fig_score_place place = {
            .size = sizeof place, .row = cases[i].row, .arrays = arrays, .counts = counts};
        assert_int_equal(fig_score_evaluate(score, &place, &value, 1), FIG_OK);
        assert_true(value == cases[i].wanted);
    }
    float value = 0;
    fig_score_place place = {.size = sizeof place, .counts = counts};
    assert_int_equal(fig_score_evaluate(score, &place, &value, 1), FIG_INVALID);
    place.arrays = arrays;
    counts[0] = 2; /* of a[3] */
    assert_int_equal(fig_score_evaluate(score, &place, &value, 1), FIG_INVALID);
    assert_int_equal(fig_score_evaluate(NULL, &place, &value, 1), FIG_INVALID);
    assert_int_equal(fig_score_evaluate(score, &place, NULL, 1), FIG_INVALID);
    for (int32_t i = 0; i < 3; i++)
        free(memory[i]);
    fig_score_destroy(score);
}

/* ---- Forms */

static void soft_caps_and_slopes_are_recognised(void **state) {
    static const struct {
        const char *text;
        float soft_cap;
        int32_t slope;
        int is_known;
    } cases[] = {
        {"score", 0, -1, 1},
        {"50.0 * tanh(score / 50)", 50, -1, 1},
        {"score + slope[head] * (kv_pos - q_pos)", 0, 0, 1},
        {"score - slope[head] * (q_pos - kv_pos)", 0, 0, 1},
        {"x = score + slope[head] * (kv_pos - q_pos); tanh(x / 30) * 30", 30, 0, 1},
        {"score + slope[head] * (q_pos - kv_pos)", 0, -1, 0},
        {"score - slope[head] * (kv_pos - q_pos)", 0, -1, 0},
        {"score + slope[kv_head] * (kv_pos - q_pos)", 0, -1, 0},
        {"bf16 slope[]; score + slope[head] * (kv_pos - q_pos)", 0, -1, 0},
        {"slope[head] - score * (kv_pos - q_pos)", 0, -1, 0},
        {"50.0 * tanh(score / 40)", 0, -1, 0},
        {"-50.0 * tanh(score / -50.0)", 0, -1, 0},
        {"cap * tanh(score / cap)", 0, -1, 0},
        {"weights sigmoid; score", 0, -1, 0},
        {"score + 1", 0, -1, 0},
        {"tanh(score)", 0, -1, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        fig_score *score = parse(cases[i].text);
        const fig_score_form form = fig_score_recognise(score);
        if (form.is_known != cases[i].is_known) fail_msg("%s", cases[i].text);
        if (form.is_known) {
            assert_true(form.soft_cap == cases[i].soft_cap);
            assert_int_equal(form.slope_array, cases[i].slope);
        }
        fig_score_destroy(score);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_printed_in_its_normal_form),
        cmocka_unit_test(only_arithmetic_that_all_machines_round_alike_is_folded),
        cmocka_unit_test(numbers_are_read_and_printed_exactly),
        cmocka_unit_test(the_locale_of_the_process_changes_nothing),
        cmocka_unit_test(nodes_and_a_text_make_the_same_score),
        cmocka_unit_test(a_wrong_text_is_refused_with_its_column),
        cmocka_unit_test(depth_and_size_have_limits_that_a_sentence_names),
        cmocka_unit_test(wrong_nodes_are_refused_with_their_number),
        cmocka_unit_test(i32_wraps_around_and_divides_downwards),
        cmocka_unit_test(f32_follows_its_rules_at_the_edges),
        cmocka_unit_test(functions_agree_with_float64),
        cmocka_unit_test(terms_have_the_values_of_the_place),
        cmocka_unit_test(no_index_reads_outside_an_array),
        cmocka_unit_test(soft_caps_and_slopes_are_recognised),
    };
    return cmocka_run_group_tests_name("score", tests, NULL, NULL);
}
