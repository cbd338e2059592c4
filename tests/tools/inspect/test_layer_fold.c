/* test_layer_fold.c: tests that layers are folded into one only if they are equal. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "tools/figraph/inspect/layer_fold.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"

static void a_name_splits_at_its_last_number(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t stem_bytes;
        int32_t number;
    } names[] = {
        {"q.0", 1, 0},        {"q.17", 1, 17},         {"k_cache.255", 7, 255}, {"a.1.2", 3, 2},
        {"q", 1, -1},         {"q.", 2, -1},           {"q.x", 3, -1},          {"q.07", 4, -1},
        {"q.1234567", 9, -1}, {"q.999999", 1, 999999}, {"q.-1", 4, -1},         {".3", 0, 3},
        {"", 0, -1},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const fig_layer_fold_name split = fig_layer_fold_split(names[i].name);
        if (split.stem_bytes != names[i].stem_bytes || split.number != names[i].number)
            fail_msg("\"%s\": %u and %d", names[i].name, split.stem_bytes, split.number);
    }
}

/* A tensor's name and shape. */
typedef struct tensor {
    const char *name;
    int64_t width;
} tensor;

static fig_program *make_program(void) {
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    spec.layers = 6;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    return program;
}

/* Finishes a program and opens a view of it without launches; close the view before you destroy
 * *graphs. */
static const fig_inspection *open_view(fig_program *program, fig_graphs **graphs) {
    const fig_inspection *view;
    const fig_bucket bucket = {1, 128};
    const fig_lower_options options = {
        .size = sizeof options, .buckets = &bucket, .bucket_count = 1};
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_graphs_lower(graphs, program, &options), FIG_OK);
    fig_program_destroy(program);
    assert_int_equal(fig_inspection_open(&view, *graphs, 0), FIG_OK);
    return view;
}

static void list_tensors(const tensor *from, uint32_t count, fig_inspect_tensor *to) {
    for (uint32_t i = 0; i < count; i++)
        to[i] = (fig_inspect_tensor){.name = from[i].name,
                                     .role = FIG_ROLE_BOUND,
                                     .dtype = FIG_F16,
                                     .rank = 2,
                                     .symbol = FIG_DIM_BATCH,
                                     .dims = {1, from[i].width, 1, 1}};
}

static void tensors_fold_while_their_numbers_go_on_and_their_shapes_agree(void **state) {
    (void)state;
    static const tensor tensors[] = {
        {"b.0", 8}, {"a.0", 8}, {"b.1", 8}, {"a.1", 8}, {"a.2", 8},   {"a.4", 8},
        {"c.0", 8}, {"c.1", 9}, {"c.2", 8}, {"d", 8},   {"d.0.1", 8}, {"d.0.2", 8},
    };
    static const struct {
        const char *first;
        uint32_t count;
    } expected[] = {{"b.0", 2}, {"a.0", 3}, {"a.4", 1}, {"c.0", 1},
                    {"c.1", 1}, {"c.2", 1}, {"d", 1},   {"d.0.1", 2}};
    enum { COUNT = sizeof tensors / sizeof tensors[0] };
    fig_inspect_tensor listed[COUNT];
    const fig_inspection view = {.tensors = listed, .tensor_count = COUNT};
    fig_layer_fold_tensors *groups;
    uint32_t count;
    list_tensors(tensors, COUNT, listed);
    assert_int_equal(fig_layer_fold_group(&view, &groups, &count), FIG_OK);
    assert_int_equal(count, sizeof expected / sizeof expected[0]);
    for (uint32_t i = 0; i < count; i++) {
        assert_string_equal(listed[groups[i].first - 1].name, expected[i].first);
        assert_int_equal(groups[i].count, expected[i].count);
    }
    free(groups);
}

static void every_tensor_is_in_one_group(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("llama-3.1-8b", 32, "h200");
    const fig_inspection *view;
    assert_int_equal(fig_inspection_open(&view, graphs, 0), FIG_OK);
    fig_layer_fold_tensors *groups;
    uint32_t count, sum = 0;
    assert_int_equal(fig_layer_fold_group(view, &groups, &count), FIG_OK);
    for (uint32_t i = 0; i < count; i++)
        sum += groups[i].count;
    assert_int_equal(count, 9);
    assert_int_equal(sum, view->tensor_count);
    free(groups);
    fig_inspection_close(view);
    fig_graphs_destroy(graphs);
}

static void grouping_survives_every_failed_allocation(void **state) {
    (void)state;
    static const tensor one = {"a", 1};
    fig_inspect_tensor listed;
    const fig_inspection view = {.tensors = &listed, .tensor_count = 1};
    list_tensors(&one, 1, &listed);
    for (int64_t n = 1; n <= 2; n++) {
        fig_layer_fold_tensors *groups;
        uint32_t count;
        fig_fault_arm(n);
        const fig_status status = fig_layer_fold_group(&view, &groups, &count);
        fig_fault_disarm();
        assert_int_equal(status, FIG_NOMEM);
        assert_null(groups);
        assert_int_equal(count, 0);
    }
}

/* ---- Nodes */

static uint32_t repeats(const fig_inspection *view) {
    const uint32_t count = fig_layer_fold_block(view, 0);
    uint32_t end = count;
    while (fig_layer_fold_repeats(view, end - count, count))
        end += count;
    return end / count;
}

static void layers_of_the_standard_step_are_all_alike(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("llama-3.1-8b", 32, "h200");
    const fig_inspection *view;
    assert_int_equal(fig_inspection_open(&view, graphs, 0), FIG_OK);
    assert_int_equal(fig_layer_fold_block(view, 0), 2);
    assert_int_equal(repeats(view), 32);
    fig_inspection_close(view);
    fig_graphs_destroy(graphs);
}

/* Changes one field of the second layer, in copies of the arrays. */
static void a_layer_that_differs_in_anything_is_not_alike(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    const fig_inspection *view;
    assert_int_equal(fig_inspection_open(&view, graphs, 0), FIG_OK);
    const uint32_t count = fig_layer_fold_block(view, 0);
    assert_int_equal(count, 6);
    assert_int_equal(repeats(view), 2);
    fig_inspect_node nodes[16];
    fig_inspect_operand operands[128];
    fig_inspect_tensor tensors[32];
    uint8_t attributes[4096];
    const uint32_t operand_count =
        view->nodes[view->node_count - 1].operand + view->nodes[view->node_count - 1].operand_count;
    assert_true(view->node_count <= 16 && operand_count <= 128 && view->tensor_count <= 32);
    for (int change = 0; change < 11; change++) {
        fig_inspection changed = *view;
        memcpy(nodes, view->nodes, view->node_count * sizeof *nodes);
        memcpy(operands, view->operands, operand_count * sizeof *operands);
        memcpy(tensors, view->tensors, view->tensor_count * sizeof *tensors);
        changed.nodes = nodes;
        changed.operands = operands;
        changed.tensors = tensors;
        fig_inspect_node *attention = &nodes[count + 2], *merged = &nodes[count + 4];
        fig_inspect_node *altered = change == 10 ? merged : attention;
        const uint32_t q = operands[attention->operand].tensor;
        assert_true(altered->attribute_bytes > 0 && altered->attribute_bytes <= sizeof attributes);
        memcpy(attributes, altered->attributes, altered->attribute_bytes);
        altered->attributes = attributes;
        switch (change) {
        case 0: break;
        case 1: attributes[0] ^= 1; break;
        case 2: operands[attention->operand].tensor = operands[nodes[2].operand].tensor; break;
        case 3: operands[attention->operand + 2].tensor = 0; break;
        case 4: tensors[q - 1].dims[1]++; break;
        case 5: nodes[count + 1].layer = 0; break;
        case 6: nodes[count].operation = "rope"; break;
        case 7: nodes[count].attribute_bytes--; break;
        case 8: tensors[q - 1].dims[0]++; break;
        case 9: tensors[q - 1].layout = FIG_HND; break;
        case 10: attributes[merged->attribute_bytes - 1] ^= 1; break;
        }
        const int alike = fig_layer_fold_repeats(&changed, 0, count);
        if (alike != (change == 0)) fail_msg("change %d: %d", change, alike);
    }
    fig_inspection_close(view);
    fig_graphs_destroy(graphs);
}

/* Records one call without tensors for each of these layers. Returns whether the first layer
 * repeats. */
static int first_repeats(const int32_t *layers, size_t count) {
    fig_program *program = make_program();
    for (size_t i = 0; i < count; i++) {
        fig_program_layer(program, layers[i]);
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = "work"));
    }
    fig_graphs *graphs;
    const fig_inspection *view = open_view(program, &graphs);
    const int repeated = fig_layer_fold_repeats(view, 0, 1);
    fig_inspection_close(view);
    fig_graphs_destroy(graphs);
    return repeated;
}

static void only_whole_layers_that_follow_each_other_repeat(void **state) {
    (void)state;
    assert_int_equal(first_repeats((int32_t[]){3, 4}, 2), 1);
    assert_int_equal(first_repeats((int32_t[]){3, 4, 5}, 3), 1);
    assert_int_equal(first_repeats((int32_t[]){3, 5}, 2), 0);
    assert_int_equal(first_repeats((int32_t[]){3, 4, 4}, 3), 0);
    assert_int_equal(first_repeats((int32_t[]){3}, 1), 0);
    assert_int_equal(first_repeats((int32_t[]){-1, 0}, 2), 0);
}

/* Records two calls without tensors in each of two layers, in the named segments: "" is no segment,
 * "=" continues the current one. Returns whether the first layer repeats. */
static int segments_repeat(const char *const names[4]) {
    fig_program *program = make_program();
    for (int i = 0; i < 4; i++) {
        fig_program_layer(program, 1 + i / 2);
        if (names[i][0] == '\0') fig_program_segment(program, NULL);
        if (names[i][0] != '\0' && names[i][0] != '=') fig_program_segment(program, names[i]);
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = "work"));
    }
    fig_graphs *graphs;
    const fig_inspection *view = open_view(program, &graphs);
    const int repeated = fig_layer_fold_repeats(view, 0, 2);
    fig_inspection_close(view);
    fig_graphs_destroy(graphs);
    return repeated;
}

static void layers_repeat_in_segments_of_their_own_or_in_one_of_both(void **state) {
    (void)state;
    static const struct {
        const char *names[4];
        int repeat;
    } cases[] = {
        {{"", "", "", ""}, 1},          {{"all", "=", "=", "="}, 1},
        {{"a.1", "=", "a.2", "="}, 1},  {{"a.1", "b.1", "a.2", "b.2"}, 1},
        {{"", "a.1", "", "a.2"}, 1},    {{"a.1", "", "a.2", ""}, 1},
        {{"a.1", "=", "", ""}, 0},      {{"", "", "a.2", "="}, 0},
        {{"a.1", "=", "b.2", "="}, 0},  {{"a.1", "=", "a.3", "="}, 0},
        {{"a.1", "", "a.2", "="}, 0},   {{"a.1", "b.1", "a.2", "="}, 0},
        {{"a.1", "=", "=", "="}, 0},    {{"a", "=", "b", "="}, 0},
        {{"a.1", "=", "ab.2", "="}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int repeated = segments_repeat(cases[i].names);
        if (repeated != cases[i].repeat) fail_msg("case %zu: %d", i, repeated);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_splits_at_its_last_number),
        cmocka_unit_test(tensors_fold_while_their_numbers_go_on_and_their_shapes_agree),
        cmocka_unit_test(every_tensor_is_in_one_group),
        cmocka_unit_test(grouping_survives_every_failed_allocation),
        cmocka_unit_test(layers_of_the_standard_step_are_all_alike),
        cmocka_unit_test(only_whole_layers_that_follow_each_other_repeat),
        cmocka_unit_test(layers_repeat_in_segments_of_their_own_or_in_one_of_both),
        cmocka_unit_test(a_layer_that_differs_in_anything_is_not_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
