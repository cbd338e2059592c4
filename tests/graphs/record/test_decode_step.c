/* test_decode_step.c: tests that the standard step has the nodes, names and shapes that the public
 * header promises, for any spec. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/record/program.h"
#include "planner/spec/frequencies.h"
#include "planner/spec/spec.h"
#include "tests/support/files/sample.h"

/* Expects dims past the rank to be 1. A symbolic dim is given as the recorder takes it. */
static void assert_tensor(const fig_program *program, const char *name, fig_role role,
                          const int64_t dims[4]) {
    const fig_program_view *view = fig_program_view_of(program);
    const fig_tensor tensor = fig_program_find(program, name);
    if (tensor.id == 0) fail_msg("no tensor %s", name);
    const fig_tensor_record *record = &view->tensors[tensor.id - 1];
    int64_t own[4];
    int32_t rank = 0;
    memcpy(own, record->dims, sizeof own);
    if (record->symbol == FIG_SYMBOL_BATCH) own[0] = FIG_DIM_BATCH;
    if (record->symbol == FIG_SYMBOL_PAGES) own[0] = FIG_DIM_PAGES;
    while (rank < 4 && dims[rank] != 0)
        rank++;
    assert_int_equal(record->role, role);
    assert_int_equal(record->rank, rank);
    for (int32_t i = 0; i < rank; i++) {
        if (own[i] != dims[i])
            fail_msg("%s: dims[%d] is %lld, not %lld", name, i, (long long)own[i],
                     (long long)dims[i]);
    }
}

static void the_sample_has_the_promised_tensors(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    const int64_t q[4] = {FIG_DIM_BATCH, 8, 64}, k[4] = {FIG_DIM_BATCH, 2, 64};
    const int64_t cache[4] = {FIG_DIM_PAGES, 16, 2, 64}, table[4] = {9, 13};
    const int64_t gate_up[4] = {FIG_DIM_BATCH, 64}, act[4] = {FIG_DIM_BATCH, 32};
    assert_tensor(program, "page_table", FIG_ROLE_STATE, table);
    assert_tensor(program, "gate_up.1", FIG_ROLE_BOUND, gate_up);
    assert_tensor(program, "act.1", FIG_ROLE_BOUND, act);
    assert_tensor(program, "q.1", FIG_ROLE_BOUND, q);
    assert_tensor(program, "k.1", FIG_ROLE_BOUND, k);
    assert_tensor(program, "v.1", FIG_ROLE_BOUND, k);
    assert_tensor(program, "k_cache.1", FIG_ROLE_BOUND, cache);
    assert_tensor(program, "v_cache.1", FIG_ROLE_BOUND, cache);
    assert_tensor(program, "out.1", FIG_ROLE_BOUND, q);
    assert_int_equal(fig_program_view_of(program)->tensor_count, 1 + 2 * 8);
    fig_program_destroy(program);
}

static void layers_carry_their_number_and_the_nodes_their_order(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    const fig_program_view *view = fig_program_view_of(program);
    static const fig_op ops[] = {FIG_OP_GATED, FIG_OP_DECODE_ATTENTION};
    static const char *const names[] = {"q.1", "k_cache.1", "v_cache.1", "page_table", "",   "", "",
                                        "",    "out.1",     "",          "k.1",        "v.1"};
    assert_int_equal(view->node_count, 4);
    for (uint32_t n = 0; n < 4; n++) {
        assert_int_equal(view->nodes[n].op, ops[n % 2]);
        assert_int_equal(view->nodes[n].layer, n / 2);
    }
    const uint32_t *ids = view->operands + view->nodes[3].operand;
    for (int i = 0; i < 12; i++)
        assert_string_equal(ids[i] == 0 ? "" : fig_program_view_tensor_name(view, ids[i]),
                            names[i]);
    fig_program_destroy(program);
}

static void assert_segment(const fig_program *program, const char *name, uint32_t node,
                           uint32_t node_count) {
    fig_segment segment;
    if (!fig_program_view_find_segment(fig_program_view_of(program), name, &segment))
        fail_msg("no segment %s", name);
    assert_int_equal(segment.node, node);
    assert_int_equal(segment.node_count, node_count);
}

static void a_layer_has_a_segment_for_its_activation_and_one_for_all_from_rope_on(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    assert_int_equal(fig_program_view_of(program)->segment_count, 4);
    assert_segment(program, "act.0", 0, 1);
    assert_segment(program, "attn.0", 1, 1);
    assert_segment(program, "act.1", 2, 1);
    assert_segment(program, "attn.1", 3, 1);
    fig_program_destroy(program);
    spec.ffn_width = 0;
    program = fig_sample_step(&spec);
    assert_int_equal(fig_program_view_of(program)->segment_count, 2);
    assert_segment(program, "attn.0", 0, 1);
    assert_segment(program, "attn.1", 1, 1);
    fig_program_destroy(program);
}

/* The caller records nodes around the step: here a segment before it, and a node without a segment
 * after it. */
static void the_steps_segments_end_with_it(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    fig_program_segment(program, "mine");
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    fig_program_decode_step(program);
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_segment(program, "mine", 0, 1);
    assert_segment(program, "act.0", 1, 1);
    assert_segment(program, "attn.1", 4, 1);
    fig_program_destroy(program);
    program = fig_sample_program(&spec);
    fig_program_segment(program, "attn.1");
    fig_program_decode_step(program);
    FIG_SAMPLE_REFUSES(fig_program_finish(program), FIG_INVALID, "segment attn.1: ");
    fig_program_destroy(program);
}

static void a_plain_layer_appends_and_attends_and_turns_nothing(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    spec.qk_norm_epsilon = 0;
    spec.plain_layers[0] = 2;
    fig_program *program = fig_sample_step(&spec);
    const fig_program_view *view = fig_program_view_of(program);
    static const uint16_t due[] = {FIG_OP_GATED, FIG_OP_DECODE_ATTENTION, FIG_OP_GATED,
                                   FIG_OP_DECODE_ATTENTION};
    assert_int_equal(view->node_count, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(view->nodes[i].op, due[i]);
    assert_segment(program, "attn.1", 3, 1);
    fig_decode_attention_attributes turning = {.rope = {.norm_epsilon = 0}}, plain;
    memcpy(&turning, view->attributes + view->nodes[1].attribute, view->nodes[1].attribute_bytes);
    memcpy(&plain, view->attributes + view->nodes[3].attribute, sizeof plain);
    assert_false(fig_frequencies_is_still(&turning.table));
    assert_true(fig_frequencies_is_still(&plain.table));
    fig_program_destroy(program);
}

/* The multiple of each tensor is the number of its rows per row of the step: row_tokens, times
 * ffn_rows for a mixture. */
static void a_mixture_has_a_row_for_each_expert_of_a_token(void **state) {
    (void)state;
    static const int32_t tokens[] = {3, 16}, experts[] = {4, 8}; /* the last ones: the limits */
    static const char *const of_experts[] = {"gate_up.1", "act.1"};
    static const char *const of_tokens[] = {"q.1", "out.1"};
    for (int n = 0; n < 2; n++) {
        fig_spec spec = fig_sample_spec();
        spec.row_tokens = tokens[n];
        spec.ffn_rows = experts[n];
        fig_program *program = fig_sample_step(&spec);
        const fig_program_view *view = fig_program_view_of(program);
        for (int i = 0; i < 2; i++) {
            uint32_t id = fig_program_find(program, of_experts[i]).id;
            assert_int_equal(view->tensors[id - 1].dims[0], tokens[n] * experts[n]);
            id = fig_program_find(program, of_tokens[i]).id;
            assert_int_equal(view->tensors[id - 1].dims[0], tokens[n]);
        }
        fig_program_destroy(program);
    }
}

static void without_width_and_pages_there_is_no_activation_and_no_table(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    spec.ffn_width = 0;
    spec.page_size = 0;
    fig_program *program = fig_sample_step(&spec);
    const int64_t cache[4] = {FIG_DIM_PAGES, 200, 2, 64};
    assert_int_equal(fig_program_view_of(program)->node_count, 2);
    assert_int_equal(fig_program_find(program, "page_table").id, 0);
    assert_int_equal(fig_program_find(program, "act.0").id, 0);
    assert_tensor(program, "k_cache.0", FIG_ROLE_BOUND, cache);
    fig_program_destroy(program);
}

static const fig_tensor_record *record_of(const fig_program *program, const char *name) {
    const fig_tensor tensor = fig_program_find(program, name);
    if (tensor.id == 0) fail_msg("no tensor %s", name);
    return &fig_program_view_of(program)->tensors[tensor.id - 1];
}

static void without_heads_there_is_no_standard_step(void **state) {
    (void)state;
    fig_program *program;
    assert_int_equal(
        fig_program_create(&program, FIG_OPTIONS(fig_spec, .dtype = FIG_F16, .ffn_width = 64)),
        FIG_OK);
    fig_program_decode_step(program);
    assert_int_equal(fig_program_finish(program), FIG_INVALID);
    assert_string_equal(fig_message(), "decode_step: the spec has no heads");
    fig_program_destroy(program);
}

static void the_spec_decides_the_form_of_rows_and_caches(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_breadth_spec();
    fig_program *program = fig_sample_step(&spec);
    static const char *const rows[] = {"gate_up.1", "act.0", "q.1", "k.0", "v.1", "out.0"};
    static const char *const caches[] = {"k_cache.0", "v_cache.1"};
    static const char *const scales[] = {"k_scale.0", "v_scale.1"};
    static const char *const norms[] = {"q_norm.1", "k_norm.0"};
    const int64_t scale_dims[4] = {2}, norm_dims[4] = {64};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(record_of(program, rows[i])->symbol, FIG_SYMBOL_BATCH);
        assert_int_equal(record_of(program, rows[i])->dims[0], 2);
        assert_int_equal(record_of(program, rows[i])->dtype, FIG_F16);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(record_of(program, caches[i])->dtype, FIG_E4M3);
        assert_int_equal(record_of(program, caches[i])->layout, FIG_HND);
        assert_int_equal(record_of(program, caches[i])->dims[0], 1);
        assert_int_equal(record_of(program, scales[i])->dtype, FIG_F32);
        assert_int_equal(record_of(program, norms[i])->dtype, FIG_F16);
        assert_tensor(program, scales[i], FIG_ROLE_BOUND, scale_dims);
        assert_tensor(program, norms[i], FIG_ROLE_BOUND, norm_dims);
    }
    fig_program_destroy(program);
}

static void one_scale_serves_a_tensor_unless_heads_have_their_own(void **state) {
    (void)state;
    fig_spec spec = fig_sample_breadth_spec();
    spec.kv_scales = 0;
    fig_program *program = fig_sample_step(&spec);
    assert_int_equal(record_of(program, "k_scale.0")->dims[0], 1);
    fig_program_destroy(program);
    spec.kv_dtype = FIG_F16;
    spec.qk_norm_epsilon = 0;
    program = fig_sample_step(&spec);
    assert_int_equal(fig_program_find(program, "k_scale.0").id, 0);
    assert_int_equal(fig_program_find(program, "q_norm.0").id, 0);
    fig_program_destroy(program);
}

/* Layer 0 has a window of 40, layer 1 has none, and both have the soft cap. */
static void a_layer_sees_what_the_spec_lets_it(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_breadth_spec();
    fig_program *program = fig_sample_step(&spec);
    const fig_program_view *view = fig_program_view_of(program);
    for (uint32_t n = 0; n < view->node_count; n++) {
        fig_attention_attributes attributes;
        if (view->nodes[n].op != FIG_OP_DECODE_ATTENTION) continue;
        memcpy(&attributes, view->attributes + view->nodes[n].attribute, sizeof attributes);
        assert_int_equal(attributes.window, view->nodes[n].layer == 0 ? 40 : 0);
        assert_true(attributes.soft_cap == 30.0f);
    }
    fig_program_destroy(program);
}

/* With its own table, a cache manager can take back the pages that a window has passed. */
static void each_class_of_layers_has_its_page_table(void **state) {
    (void)state;
    fig_spec spec = fig_sample_breadth_spec();
    fig_program *program = fig_sample_step(&spec);
    const fig_program_view *view = fig_program_view_of(program);
    for (uint32_t n = 0; n < view->node_count; n++) {
        const uint32_t *ids = view->operands + view->nodes[n].operand;
        const char *const want = view->nodes[n].layer == 0 ? "page_table.window" : "page_table";
        if (view->nodes[n].op == FIG_OP_DECODE_ATTENTION)
            assert_string_equal(fig_program_view_tensor_name(view, ids[FIG_ATTENTION_TABLE]), want);
    }
    fig_program_destroy(program);
    memset(spec.window_layers, 0, sizeof spec.window_layers); /* all layers have the window */
    program = fig_sample_step(&spec);
    assert_int_not_equal(fig_program_find(program, "page_table").id, 0);
    assert_int_equal(fig_program_find(program, "page_table.window").id, 0);
    fig_program_destroy(program);
}

static void the_activation_is_the_specs(void **state) {
    (void)state;
    for (int activation = FIG_SILU; activation <= FIG_SWIGLU_LIMITED; activation++) {
        fig_spec spec = fig_sample_spec();
        fig_gated_attributes attributes;
        spec.activation = (fig_activation)activation;
        fig_program *program = fig_sample_step(&spec);
        const fig_program_view *view = fig_program_view_of(program);
        assert_int_equal(view->nodes[0].op, FIG_OP_GATED);
        memcpy(&attributes, view->attributes, sizeof attributes);
        assert_int_equal(attributes.activation, activation);
        fig_program_destroy(program);
    }
}

/* Returns the angles in the params of a layer's attention. */
static fig_rope_table angles_of(const fig_lower_common *common, int32_t layer, fig_op op) {
    for (uint32_t i = 0; i < common->launch_count; i++) {
        const fig_launch *launch = &common->launches[i];
        const uint8_t *params = common->params + launch->params;
        if (launch->op != op || common->view->nodes[launch->node].layer != layer) continue;
        if (op == FIG_OP_ATTENTION)
            return ((const fig_attention_params *)(const void *)params)->turn.angles.table;
        return ((const fig_decode_attention_params *)(const void *)params)->angles.table;
    }
    fail_msg("layer %d has no such launch", (int)layer);
    return (fig_rope_table){.factor = 0};
}

/* Layers 0 and 2, with windows, rotate by the window's own theta. Layer 1 rotates by the spec's
 * theta or by a table. */
static void check_kinds(int has_table) {
    fig_spec spec = fig_sample_spec();
    spec.layers = 3;
    spec.window = 16;
    spec.window_layers[0] = 5;
    spec.window_rope = (fig_rope_spec){.theta = 65536, .rotary_dim = 32};
    for (int32_t i = 0; has_table && i < spec.head_dim / 2; i++)
        spec.rope_table.frequencies[i] = 1.0 / (i + 3);
    fig_program *program = fig_sample_step(&spec);
    const fig_program_view *view = fig_program_view_of(program);
    const fig_lower_target target = fig_sample_target("host");
    fig_bucket_shape shape = {.caps = {1, 1}};
    fig_workspace workspace;
    fig_lower_common common;
    assert_int_equal(fig_lower_shape(view, &target, 0, &shape), FIG_OK);
    assert_int_equal(fig_workspace_init(&workspace, view, &shape, 1), FIG_OK);
    assert_int_equal(fig_lower_common_init(&common, view, &workspace), FIG_OK);
    for (int32_t layer = 0; layer < 3; layer++) {
        const fig_rope_table own = angles_of(&common, layer, FIG_OP_DECODE_ATTENTION);
        const fig_rope_table attention = angles_of(&common, layer, FIG_OP_ATTENTION);
        assert_memory_equal(&own, &attention, sizeof own);
        if (layer == 1 && has_table) {
            assert_memory_equal(&own, &view->spec.rope_table, sizeof own);
            continue;
        }
        const double theta = layer == 1 ? 1e4 : 65536, dim = layer == 1 ? 64 : 32;
        for (int32_t i = 0; i < FIG_FREQUENCY_LIMIT; i++) {
            const double due = i < dim / 2 ? pow(theta, -2 * i / dim) : 0;
            assert_true(fabs(own.frequencies[i] - due) <= 1e-14 * due);
        }
        assert_true(own.factor == 1);
    }
    fig_lower_common_finish(&common);
    fig_workspace_finish(&workspace);
    fig_program_destroy(program);
}

static void layers_turn_as_their_kind_does(void **state) {
    (void)state;
    check_kinds(0);
    check_kinds(1);
}

static void q_over_latents_may_be_in_two_parts(void **state) {
    (void)state;
    static const char *const preset = "deepseek-v3";
    const int64_t q[4] = {FIG_DIM_BATCH, 128, 512}, rope[4] = {FIG_DIM_BATCH, 128, 64};
    fig_spec spec = {.size = sizeof spec};
    fig_program *whole, *parts;
    assert_int_equal(fig_spec_preset(&spec, preset), FIG_OK);
    whole = fig_sample_step(&spec);
    assert_int_equal(fig_program_create(&parts, &spec), FIG_OK);
    fig_program_decode_step_parts(parts);
    assert_int_equal(fig_program_finish(parts), FIG_OK);
    assert_tensor(parts, "q.1", FIG_ROLE_BOUND, q);
    assert_tensor(parts, "q_rope.1", FIG_ROLE_BOUND, rope);
    assert_int_equal(fig_program_find(whole, "q_rope.1").id, 0);
    const fig_program_view *one = fig_program_view_of(whole), *two = fig_program_view_of(parts);
    assert_int_equal(two->node_count, one->node_count);
    assert_int_equal(two->segment_count, one->segment_count);
    assert_int_equal(two->tensor_count, one->tensor_count + (uint32_t)spec.layers);
    fig_program_destroy(whole);
    fig_program_destroy(parts);
}

static void only_q_over_latents_is_in_two_parts(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step_parts(program);
    FIG_SAMPLE_REFUSES(fig_program_finish(program), FIG_INVALID,
                       "q in two parts, but latent_dim is 0, it must be 512");
    fig_program_destroy(program);
}

static void every_preset_and_the_most_layers_record(void **state) {
    (void)state;
    fig_spec spec = {.size = sizeof spec};
    const char *name;
    for (int32_t i = 0; (name = fig_spec_preset_name(i)) != NULL; i++) {
        assert_int_equal(fig_spec_preset(&spec, name), FIG_OK);
        spec.layers = i == 0 ? FIG_LAYER_LIMIT : spec.layers;
        fig_program *program = fig_sample_step(&spec);
        assert_int_equal(fig_program_check(fig_program_view_of(program)), FIG_OK);
        assert_int_equal(fig_program_view_of(program)->node_count, 2 * spec.layers);
        fig_program_destroy(program);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sample_has_the_promised_tensors),
        cmocka_unit_test(layers_carry_their_number_and_the_nodes_their_order),
        cmocka_unit_test(a_layer_has_a_segment_for_its_activation_and_one_for_all_from_rope_on),
        cmocka_unit_test(the_steps_segments_end_with_it),
        cmocka_unit_test(a_plain_layer_appends_and_attends_and_turns_nothing),
        cmocka_unit_test(a_mixture_has_a_row_for_each_expert_of_a_token),
        cmocka_unit_test(without_width_and_pages_there_is_no_activation_and_no_table),
        cmocka_unit_test(without_heads_there_is_no_standard_step),
        cmocka_unit_test(the_spec_decides_the_form_of_rows_and_caches),
        cmocka_unit_test(one_scale_serves_a_tensor_unless_heads_have_their_own),
        cmocka_unit_test(a_layer_sees_what_the_spec_lets_it),
        cmocka_unit_test(each_class_of_layers_has_its_page_table),
        cmocka_unit_test(the_activation_is_the_specs),
        cmocka_unit_test(layers_turn_as_their_kind_does),
        cmocka_unit_test(q_over_latents_may_be_in_two_parts),
        cmocka_unit_test(only_q_over_latents_is_in_two_parts),
        cmocka_unit_test(every_preset_and_the_most_layers_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
