/* test_mask_value.c: tests masks: texts, nodes, the normal form, and which tokens they show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "include/figraph_scores.h"
#include "planner/scores/mask_value.h"
#include "planner/scores/score.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static fig_score *parse(const char *text) {
    fig_score *score;
    if (fig_score_parse(&score, text) != FIG_OK) fail_msg("%s: %s", text, fig_message());
    return score;
}

static fig_score *parse_mask(const char *text, const fig_score *of) {
    fig_score *score;
    if (fig_score_parse_mask(&score, text, of) != FIG_OK) fail_msg("%s: %s", text, fig_message());
    return score;
}

static void assert_same(const fig_score *a, const fig_score *b) {
    assert_string_equal(a->text, b->text);
    assert_memory_equal(&a->code, &b->code, sizeof a->code);
    assert_int_equal(a->array_count, b->array_count);
    assert_memory_equal(a->arrays, b->arrays, sizeof a->arrays);
}

/* ---- The normal form */

static void a_mask_is_printed_in_its_normal_form(void **state) {
    static const struct {
        const char *text, *normal;
    } cases[] = {
        {"see 0:q_pos + 1; score", "see 0:q_pos + 1; score"},
        {"see(0) : (q_pos+1);score", "see 0:q_pos + 1; score"},
        {"see 4 - 4:q_pos + 1, q_pos:2 * 3; score", "see 0:q_pos + 1, q_pos:6; score"},
        {"see 0:4; see 9:q_pos; score", "see 0:4, 9:q_pos; score"},
        {"see 0:4, 0:4; see 0:4; score", "see 0:4; score"},
        {"bits -1, head; see 0:4; score * 2", "see 0:4; bits -1, head; score * 2.0"},
        {"i32 start[]; see start[q_pos]:q_pos; start[head] + score",
         "i32 start[]; see start[q_pos]:q_pos; score + start[head]"},
        {"n = q_pos // 8; see n * n:q_pos + 1; score + n * n",
         "t1 = q_pos // 8; see t1 * t1:q_pos + 1; t2 = q_pos // 8; score + t2 * t2"},
        {"weights sigmoid; see -3:4; score", "weights sigmoid; see -3:4; score"},
        {"see min(kv_length, row):int(2.5) + kv_head; score",
         "see min(row, kv_length):kv_head + 2; score"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        fig_score *score = parse(cases[i].text), *again = parse(score->text);
        fig_score *normal = parse(cases[i].normal), *made;
        fig_score_parts parts = {.size = sizeof parts};
        assert_int_equal(fig_score_read(score, &parts), FIG_OK);
        if (fig_score_create(&made, &parts) != FIG_OK) fail_msg("%zu: %s", i, fig_message());
        assert_same(score, again);
        assert_same(score, normal);
        assert_same(score, made);
        if (strstr(score->text, "see ") == NULL) fail_msg("%s", score->text);
        fig_score_destroy(score);
        fig_score_destroy(again);
        fig_score_destroy(normal);
        fig_score_destroy(made);
    }
}

static void a_score_and_a_mask_are_joined(void **state) {
    (void)state;
    fig_score *score = parse("f32 slope[4]; i32 at[]; n = at[row]; score + slope[head] * n");
    fig_score *masked = parse_mask("i32 at[7]; n = at[0]; 0:n, at[1]:q_pos", score);
    fig_score *whole = parse("f32 slope[4]; i32 at[7]; see 0:at[0], at[1]:q_pos; "
                             "score + slope[head] * at[row]");
    assert_same(masked, whole);
    fig_score_destroy(masked);
    fig_score_destroy(whole);
    masked = parse_mask("0:4", NULL);
    whole = parse("see 0:4; score");
    assert_same(masked, whole);
    fig_score_destroy(score);
    score = masked;
    assert_int_equal(fig_score_parse_mask(&masked, "0:4", score), FIG_INVALID);
    assert_null(masked);
    assert_non_null(strstr(fig_message(), "beside a score with a mask"));
    fig_score_destroy(score);
    fig_score_destroy(whole);
    score = parse("i32 at[3]; score + at[0]");
    assert_int_equal(fig_score_parse_mask(&masked, "i32 at[4]; 0:at[0]", score), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "the mask declares array at in another way"));
    fig_score_destroy(score);
    score = parse("a[0] + b[0] + c[0] + d[0] + e[0] + f[0] + g[0] + score");
    masked = parse_mask("i32 h[]; 0:h[0]", score);
    fig_score_destroy(masked);
    assert_int_equal(fig_score_parse_mask(&masked, "i32 h[]; i32 i[]; i[0]:h[0]", score),
                     FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "more than 8 arrays"));
    fig_score_destroy(score);
}

/* Texts from before masks existed, which use words of masks as names. */
static void arrays_may_be_called_see_and_bits(void **state) {
    static const char *const texts[] = {"bits[kv_pos] + score", "f32 see[9]; see[head] + score",
                                        "i32 bits; bits - 3 + score", "see = score + 1; see * see"};
    fig_score *score;
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        score = parse(texts[i]);
        assert_int_equal(score->code.mask_node_count, 0);
        fig_score *again = parse(score->text);
        assert_same(score, again);
        fig_score_destroy(score);
        fig_score_destroy(again);
    }
    score = parse("i32 bits[4]; score + bits[head]");
    fig_score *masked;
    assert_int_equal(fig_score_parse_mask(&masked, "0:4", score), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "array bits: beside a mask"));
    fig_score_destroy(score);
}

/* ---- Refusals */

static void a_wrong_mask_is_refused_by_name(void **state) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "the text ends, it wants an operand"},
        {"0", "wants \":\""},
        {"0:", "the text ends, it wants an operand"},
        {"0:4,", "the text ends, it wants an operand"},
        {"0:4 5", "it wants an operator or the end"},
        {"0:4, 5", "wants \":\""},
        {"0:4:5", "\":\", it wants an operator or the end"},
        {"0:4; score", "it wants an operator or the end"},
        {"0:1, 2:3, 4:5", "column 11: a mask has more than 2 ranges"},
        {"bits 0, 0; bits 1, 1; 0:4", "column 17: a mask has bits once"},
        {"bits 0; 0:4", "wants \",\""},
        {"bits 0:1; 0:4", "wants \",\""},
        {"0:kv_pos", "a mask reads kv_pos"},
        {"0:score", "the second operand of : is f32"},
        {"0.0:4", "the first operand of : is f32"},
        {"bits 1.0, 1; 0:4", "the first operand of bits is f32"},
        {"0:int(log2(q_pos))", "a mask has float, which is f32"},
        {"0:int(x[0])", "a mask reads array x, which is not i32"},
        {"weights sigmoid; 0:4", "weights belong to the score"},
        {"i32 x[4]; 0:4", "array x is declared and not used"},
        {"(0:4)", "wants \")\""},
        {"min(0, 4", "wants \")\""},
    };
    fig_score *score;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_not_equal(fig_score_parse_mask(&score, cases[i].text, NULL), FIG_OK);
        assert_null(score);
        if (strstr(fig_message(), cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].text, fig_message());
    }
    assert_int_equal(fig_score_parse(&score, "bits 0, 0; score"), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "a mask has bits and no range"));
    assert_int_equal(fig_score_parse(&score, "score, 1"), FIG_INVALID);
}

static void wrong_nodes_of_a_mask_are_refused_with_their_number(void **state) {
    static const fig_score_node range = {.op = FIG_SCORE_RANGE};
    static const struct {
        fig_score_node node;
        const char *says;
    } cases[] = {
        {{.op = FIG_SCORE_HEAD}, "the nodes of the mask have no range"},
        {{.op = FIG_SCORE_RANGE, .a = 1}, "mask node 1: operand a is node 1"},
        {{.op = FIG_SCORE_RANGE, .bits = 1}, "mask node 1: bits are 1"},
        {{.op = FIG_SCORE_RANGE, .c = 1}, "mask node 1: operand c is 1, but : has 2"},
        {{.op = FIG_SCORE_ELEMENT}, "mask node 1: array 0 of 0"},
    };
    static const fig_score_node logit = {.op = FIG_SCORE_SCORE};
    fig_score_node nodes[FIG_SCORE_NODE_LIMIT] = {{.op = FIG_SCORE_HEAD}};
    fig_score_parts parts = {
        .size = sizeof parts, .nodes = &logit, .node_count = 1, .mask_nodes = nodes};
    fig_score *score;
    (void)state;
    parts.mask_node_count = 2;
    for (size_t i = 0; i < COUNT(cases); i++) {
        nodes[1] = cases[i].node;
        assert_int_equal(fig_score_create(&score, &parts), FIG_INVALID);
        if (strstr(fig_message(), cases[i].says) == NULL) fail_msg("%zu: %s", i, fig_message());
    }
    nodes[1] = nodes[2] = range;
    nodes[2].b = 1; /* a range of a range */
    parts.mask_node_count = 3;
    assert_int_equal(fig_score_create(&score, &parts), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "operand b is a part of a mask"));
    parts.mask_node_count = FIG_SCORE_NODE_LIMIT;
    assert_int_equal(fig_score_create(&score, &parts), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "limits 0 to 127"));
    parts.mask_node_count = 1;
    parts.mask_nodes = NULL;
    assert_int_equal(fig_score_create(&score, &parts), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "mask_nodes is NULL"));
    parts.mask_node_count = 0;
    parts.nodes = &range;
    assert_int_equal(fig_score_create(&score, &parts), FIG_INVALID);
}

/* Makes a score of `count` nodes, with a mask of `of_mask` nodes. */
static fig_status make_sized(int32_t count, int32_t of_mask) {
    fig_score_node nodes[FIG_SCORE_NODE_LIMIT + 1] = {{.op = FIG_SCORE_SCORE}};
    fig_score_node mask[FIG_SCORE_NODE_LIMIT] = {{.op = FIG_SCORE_HEAD}};
    const fig_score_parts parts = {.size = sizeof parts,
                                   .nodes = nodes,
                                   .node_count = count,
                                   .mask_nodes = mask,
                                   .mask_node_count = of_mask};
    fig_score *score;
    for (int32_t i = 1; i < count; i++)
        nodes[i] = (fig_score_node){.op = FIG_SCORE_SIN, .a = (uint16_t)(i - 1)};
    for (int32_t i = 1; i < of_mask; i++)
        mask[i] = (fig_score_node){.op = FIG_SCORE_MULTIPLY, .a = (uint16_t)(i - 1)};
    mask[of_mask - 1] = (fig_score_node){.op = FIG_SCORE_RANGE, .b = (uint16_t)(of_mask - 2)};
    const fig_status status = fig_score_create(&score, &parts);
    if (status == FIG_OK) assert_int_equal(score->code.node_count, count);
    if (status == FIG_OK) assert_int_equal(score->code.mask_node_count, of_mask);
    fig_score_destroy(score);
    return status;
}

static void a_score_and_its_mask_share_the_limit_of_nodes(void **state) {
    char text[FIG_SCORE_TEXT_LIMIT];
    fig_score *score;
    size_t used = (size_t)snprintf(text, sizeof text, "see 0:q_pos; score");
    (void)state;
    assert_int_equal(make_sized(100, 28), FIG_OK);
    assert_int_equal(make_sized(3, 125), FIG_OK);
    assert_int_equal(make_sized(100, 29), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "29 nodes of a mask beside 100, limits 0 to 28"));
    for (int32_t i = 0; i < 125; i++) /* 3 nodes of the mask, 126 of the score */
        used += (size_t)snprintf(text + used, sizeof text - used, " * score");
    assert_int_equal(fig_score_parse(&score, text), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "129 nodes, limit 128"));
    text[used - strlen(" * score")] = 0;
    score = parse(text);
    assert_int_equal(score->code.node_count + score->code.mask_node_count, FIG_SCORE_NODE_LIMIT);
    fig_score_destroy(score);
}

/* ---- Tokens */

enum { LENGTH = 100 };

static fig_mask_sight sight_of(const char *mask, int32_t low, fig_score **score) {
    static const int32_t at[] = {7, 40, 41, 90};
    static const void *const arrays[FIG_SCORE_ARRAY_LIMIT] = {at};
    fig_score_inputs inputs = {.arrays = arrays};
    inputs.terms[FIG_SCORE_Q_POS] = 98;
    inputs.terms[FIG_SCORE_KV_LENGTH] = LENGTH;
    inputs.terms[FIG_SCORE_HEAD] = 3;
    inputs.terms[FIG_SCORE_KV_HEAD] = 1;
    inputs.terms[FIG_SCORE_ROW] = 2;
    *score = parse_mask(mask, NULL);
    return fig_mask_value_of(&(*score)->code, &inputs, low);
}

static void ranges_are_clamped_ordered_and_merged(void **state) {
    static const struct {
        const char *mask;
        int32_t low, first, end, second, last_end;
    } cases[] = {
        {"0:q_pos + 1", 0, 0, 99, 0, 0},
        {"-5:0x7fffffff", 0, 0, 100, 0, 0},
        {"0:0x7fffffff", 60, 60, 100, 0, 0},
        {"0:4", 60, 0, 0, 0, 0},
        {"50:50", 0, 0, 0, 0, 0},
        {"60:50", 0, 0, 0, 0, 0},
        {"100:200", 0, 0, 0, 0, 0},
        {"0:4, q_pos - 9:q_pos", 0, 0, 4, 89, 98},
        {"q_pos - 9:q_pos, 0:4", 0, 0, 4, 89, 98},
        {"0:4, 9:5", 0, 0, 4, 0, 0},
        {"9:5, 0:4", 0, 0, 4, 0, 0},
        {"0:4, 4:9", 0, 0, 9, 0, 0},
        {"4:9, 0:4", 0, 0, 9, 0, 0},
        {"0:9, 4:5", 0, 0, 9, 0, 0},
        {"0:9, 4:15", 0, 0, 15, 0, 0},
        {"i32 at[4]; at[0]:at[1], at[2]:at[-1] + at[99]", 0, 7, 40, 41, 97},
        {"head:row + kv_head * 9", 0, 3, 11, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        fig_score *score;
        const fig_mask_sight sight = sight_of(cases[i].mask, cases[i].low, &score);
        if (sight.first != cases[i].first || sight.end != cases[i].end ||
            sight.second != cases[i].second || sight.last_end != cases[i].last_end)
            fail_msg("%s: %d:%d, %d:%d", cases[i].mask, sight.first, sight.end, sight.second,
                     sight.last_end);
        fig_score_destroy(score);
    }
}

/* Compares fig_mask_value_sees(), _next() and _sees_all() with a check of each token. */
static void every_question_has_the_answer_of_its_tokens(void **state) {
    static const char *const masks[] = {
        "0:q_pos + 1",
        "q_pos - 9:q_pos, 0:4",
        "9:9",
        "30:40, 39:50",
        "bits 0x55555555, -1; 0:9, 30:99",
        "bits -1, 0x7fffffff; 20:100",
        "bits -1, -1; 20:100",
        "bits 0, 0; 0:100",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(masks); i++) {
        fig_score *score;
        const fig_mask_sight sight = sight_of(masks[i], 0, &score);
        int32_t next = FIG_MASK_NO_TOKEN;
        for (int32_t token = LENGTH - 1; token >= 0; token--) {
            const int in_first = token >= sight.first && token < sight.end;
            const int in_second = token >= sight.second && token < sight.last_end;
            if (in_first || in_second) next = token;
            assert_int_equal(fig_mask_value_next(&sight, token), next);
            int sees_all = 1;
            for (int32_t end = token + 1; end <= LENGTH; end++) {
                sees_all = sees_all && fig_mask_value_sees(&sight, end - 1);
                if (fig_mask_value_sees_all(&sight, token, end)) assert_true(sees_all);
                if (sees_all && end <= LENGTH - FIG_MASK_BITS)
                    assert_true(fig_mask_value_sees_all(&sight, token, end));
            }
        }
        fig_score_destroy(score);
    }
}

static void bits_belong_to_the_last_tokens(void **state) {
    fig_score *score;
    (void)state;
    const fig_mask_sight sight = sight_of("bits 0x80000001, 0x80000002; 0:kv_length", 0, &score);
    for (int32_t token = 0; token < LENGTH; token++) {
        const int32_t bit = token - (LENGTH - 64);
        const int seen = bit < 0 || bit == 0 || bit == 31 || bit == 33 || bit == 63;
        assert_int_equal(fig_mask_value_sees(&sight, token), seen);
    }
    fig_score_destroy(score);
}

static void evaluating_gives_hidden_tokens_no_score(void **state) {
    fig_score *score = parse("see 2:4, 90:200; score + 1.0");
    const fig_score_place place = {.size = sizeof place, .q_pos = 5, .kv_length = 92};
    float scores[100] = {0};
    (void)state;
    assert_int_equal(fig_score_evaluate(score, &place, scores, 100), FIG_OK);
    for (int32_t i = 0; i < 100; i++)
        assert_true(scores[i] == (i == 2 || i == 3 || i == 90 || i == 91 ? 1.0f : -INFINITY));
    fig_score_destroy(score);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_is_printed_in_its_normal_form),
        cmocka_unit_test(a_score_and_a_mask_are_joined),
        cmocka_unit_test(arrays_may_be_called_see_and_bits),
        cmocka_unit_test(a_wrong_mask_is_refused_by_name),
        cmocka_unit_test(wrong_nodes_of_a_mask_are_refused_with_their_number),
        cmocka_unit_test(a_score_and_its_mask_share_the_limit_of_nodes),
        cmocka_unit_test(ranges_are_clamped_ordered_and_merged),
        cmocka_unit_test(every_question_has_the_answer_of_its_tokens),
        cmocka_unit_test(bits_belong_to_the_last_tokens),
        cmocka_unit_test(evaluating_gives_hidden_tokens_no_score),
    };
    return cmocka_run_group_tests_name("mask", tests, NULL, NULL);
}
